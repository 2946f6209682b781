//! Reports of a table in the forms of both protocols.

use weir_nvme::feature::HostIdentifier;
use weir_nvme::reservation::{CONTROLLER_NOT_ATTACHED, ReservationReport};
use weir_reservation::{Operation, Proof, Registrant, ReservationType};
use weir_scsi::reservation::{FullStatus, HeldReservation, TransportId};

use crate::{History, host, nexus, port};

fn enroll(key: u64) -> Operation {
    let (proof, persistence) = (Proof::Key(0), Some(true));
    Operation::Enroll {
        proof,
        key,
        persistence,
    }
}

/// A nexus and a host have registered, and the host holds the reservation.
fn mixed() -> History {
    let kind = ReservationType::WriteExclusiveRegistrantsOnly;
    let reserve = Operation::Reserve {
        key: 2,
        kind: Some(kind),
    };
    History::of(&[
        (&nexus(1), enroll(1)),
        (&host(3), enroll(2)),
        (&host(3), reserve),
    ])
}

#[test]
fn scsi_reports_tell_of_hosts_of_nvme() {
    let table = mixed().table;
    assert_eq!(table.registered_keys().keys, [1, 2]);
    let held = Some(HeldReservation { key: 2, kind: 5 });
    assert_eq!(table.reservation_status().held, held);
    let capabilities = table.capabilities();
    assert!(capabilities.can_persist && capabilities.persists);
    assert_eq!(capabilities.types, Some(0b1_1110_1010));

    let data = table.full_status(|nexus| nexus.portal_group).encode();
    let (generation, registrants) = FullStatus::parse(&data).expect("full status data");
    assert_eq!(generation, table.generation());
    let registrants: Vec<_> = registrants.into_iter().map(|one| one.unwrap()).collect();
    let told = registrants
        .iter()
        .map(|one| (one.key, one.holds, one.relative_port));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(1, None, 1), (2, Some(5), 0)],
        "a host has no target port"
    );
    assert_eq!(
        registrants[1].transport,
        TransportId::NvmeHostExtended([3; 16])
    );
}

#[test]
fn nvme_reports_tell_of_nexuses_and_of_every_controller() {
    let table = mixed().table;
    let report = |controllers: &[u16]| {
        let data = table
            .reservation_report(|_| controllers.to_vec())
            .encode(true);
        ReservationReport::parse(&data, true).expect("a report")
    };
    let nexus = port(1).host_identifier();
    let Registrant::Host(host) = host(3) else {
        unreachable!("it is one")
    };
    let told = |report: &ReservationReport| -> Vec<(u16, bool, u64, HostIdentifier)> {
        let controllers = report.controllers.iter();
        controllers
            .map(|one| (one.controller, one.holds, one.key, one.host))
            .collect()
    };
    let foreign = (CONTROLLER_NOT_ATTACHED, false, 1, nexus);
    let two = report(&[4, 7]);
    assert_eq!((two.kind, two.persists), (3, true));
    assert_eq!(
        told(&two),
        [foreign, (4, true, 2, host), (7, true, 2, host)]
    );
    let gone = report(&[]);
    assert_eq!(
        told(&gone),
        [foreign, (CONTROLLER_NOT_ATTACHED, true, 2, host)]
    );
}

#[test]
fn a_nexus_has_an_identifier_of_its_own() {
    let mut other = port(1);
    other.portal_group = 2;
    let identifiers = [port(1), port(2), other].map(|nexus| nexus.host_identifier());
    assert_ne!(identifiers[0], identifiers[1]);
    assert_ne!(identifiers[0], identifiers[2]);
    // It is stable: what a host once read still names the same nexus.
    let HostIdentifier::Extended(id) = identifiers[0] else {
        panic!("it has 128 bits");
    };
    assert_eq!(id.to_string(), "410248a6-5f1a-6af9-137b-4236ff02c082");
}
