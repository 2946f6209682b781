//! Tests of reservations: verdicts against a slow model, rules one by one, random histories, reports, and the stored form.

mod random;
mod reports;
mod rules;
mod stored;
mod verdicts;

use weir_nvme::HostId;
use weir_nvme::feature::HostIdentifier;
use weir_reservation::{Change, Nexus, Operation, Refused, Registrant, Table};

/// An I_T nexus by its number.
fn nexus(number: u8) -> Registrant {
    Registrant::Nexus(port(number))
}

fn port(number: u8) -> Nexus {
    Nexus {
        initiator: "iqn.2026-01.example:host".into(),
        isid: [0x80, 0, 0, 0, 0, number],
        target: "iqn.2026-01.example:target".into(),
        portal_group: 1,
    }
}

/// A host of NVMe by its number; one that is even has a short identifier.
fn host(number: u8) -> Registrant {
    Registrant::Host(if number.is_multiple_of(2) {
        HostIdentifier::Short([number; 8])
    } else {
        HostIdentifier::Extended(HostId([number; 16]))
    })
}

/// A table with its history, in which every operation is to succeed.
#[derive(Default)]
struct History {
    table: Table,
}

impl History {
    fn of(operations: &[(&Registrant, Operation)]) -> Self {
        let mut history = Self::default();
        for (caller, operation) in operations {
            history.does(caller, operation.clone());
        }
        history
    }

    fn does(&mut self, caller: &Registrant, operation: Operation) -> Change {
        let change = self.table.apply(caller, &operation);
        let change = change.unwrap_or_else(|refused| panic!("{operation:?}: {refused}"));
        self.table = change.table.clone();
        change
    }

    fn refuses(&self, caller: &Registrant, operation: Operation) -> Refused {
        let refused = self.table.apply(caller, &operation);
        refused.map(|_| operation).expect_err("it is refused")
    }
}
