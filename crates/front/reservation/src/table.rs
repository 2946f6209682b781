//! The table: who is registered, and what is reserved.

use crate::registrant::{Nexus, Registrant};
use crate::rights::{Access, ReservationType, Rights, Standing};

/// Most registrants of a volume.
pub const REGISTRANTS_MAX: usize = 128;

/// A registrant with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The registrant.
    pub registrant: Registrant,
    /// Its key as a number, never zero.
    pub key: u64,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Its type.
    pub kind: ReservationType,
    /// Its holder; `None` where all registrants hold it.
    pub holder: Option<Registrant>,
}

/// Reservations of one volume. [`Table::apply`] changes it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    pub(crate) registrations: Vec<Registration>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) unit_holder: Option<Nexus>,
    pub(crate) generation: u32,
    pub(crate) is_persistent: bool,
}

impl Table {
    /// Registrations, oldest first; at most [`REGISTRANTS_MAX`].
    pub fn registrations(&self) -> &[Registration] {
        &self.registrations
    }

    /// The reservation. While RESERVE (6) or (10) shuts the unit there is none.
    pub const fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// The nexus whose RESERVE (6) or (10) shuts the unit.
    pub const fn unit_holder(&self) -> Option<&Nexus> {
        self.unit_holder.as_ref()
    }

    /// PRGENERATION, which is GEN of NVMe: counts registrations, preemptions and clears, and wraps.
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Says that registrations and reservation outlast a loss of power (APTPL, PTPL).
    pub const fn is_persistent(&self) -> bool {
        self.is_persistent
    }

    /// Key of a registrant; `None` where it has not registered.
    pub fn key_of(&self, registrant: &Registrant) -> Option<u64> {
        let is_its = |one: &&Registration| one.registrant == *registrant;
        self.registrations.iter().find(is_its).map(|one| one.key)
    }

    /// Key of the reservation as reports give it: zero where all registrants hold it.
    pub fn reservation_key(&self) -> Option<u64> {
        let reservation = self.reservation.as_ref()?;
        let holder = reservation.holder.as_ref();
        Some(holder.and_then(|holder| self.key_of(holder)).unwrap_or(0))
    }

    /// Says that a registrant is a holder of the reservation.
    pub fn holds(&self, registrant: &Registrant) -> bool {
        match &self.reservation {
            None => false,
            Some(Reservation {
                holder: Some(holder),
                ..
            }) => holder == registrant,
            Some(_) => self.key_of(registrant).is_some(),
        }
    }

    /// What the table says of commands.
    pub fn rights(&self) -> Rights {
        match &self.reservation {
            _ if self.unit_holder.is_some() => Rights::Unit,
            Some(reservation) => Rights::Held(reservation.kind),
            None => Rights::Free,
        }
    }

    /// Relation of a registrant to the table.
    pub fn standing(&self, registrant: &Registrant) -> Standing {
        let holds_unit = match (registrant, &self.unit_holder) {
            (Registrant::Nexus(nexus), Some(holder)) => nexus == holder,
            _ => false,
        };
        if holds_unit || self.holds(registrant) {
            Standing::Holder
        } else if self.key_of(registrant).is_some() {
            Standing::Registered
        } else {
            Standing::Stranger
        }
    }

    /// Verdict on a command of a registrant.
    pub fn allows(&self, registrant: &Registrant, access: Access) -> bool {
        self.rights().allows(access, self.standing(registrant))
    }
}
