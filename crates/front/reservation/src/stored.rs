//! Stored form of a table: what outlasts a loss of power.
//!
//! In JSON, keys, ISIDs and Host Identifiers are hexadecimal digits: a key as a number, a name byte for byte in the order of
//! its wire:
//!
//! ```json
//! {
//!   "registrations": [
//!     {"key": "00000000000000a1", "nexus": {"initiator": "iqn.2026-01.example:host", "isid": "800000000001",
//!      "target": "iqn.2026-01.example:disks", "portal_group": 1}},
//!     {"key": "00000000000000a2", "host": "0102030405060708090a0b0c0d0e0f10"}
//!   ],
//!   "reservation": {"type": "write_exclusive", "holder": 0}
//! }
//! ```
//!
//! `holder` counts registrations from zero, and is left out where all registrants hold the reservation.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use weir_nvme::HostId;
use weir_nvme::feature::HostIdentifier;

use crate::registrant::{Nexus, Registrant};
use crate::rights::ReservationType;
use crate::table::{REGISTRANTS_MAX, Registration, Reservation, Table};

/// Registrations and reservation of a table that is persistent. The generation is not stored (SPC-4 section 5.12.1:
/// zero after a power on), and neither is a RESERVE (6) or (10), which ends with its nexus.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "TableForm", into = "TableForm")]
pub struct StoredTable(Table);

impl Table {
    /// Form in which the table is stored; `None`: it is not persistent, so that nothing of it is stored, and what was
    /// stored before is removed.
    pub fn stored(&self) -> Option<StoredTable> {
        self.is_persistent.then(|| {
            StoredTable(Self {
                registrations: self.registrations.clone(),
                reservation: self.reservation.clone(),
                unit_holder: None,
                generation: 0,
                is_persistent: true,
            })
        })
    }
}

impl From<StoredTable> for Table {
    fn from(stored: StoredTable) -> Self {
        stored.0
    }
}

/// A stored form that is no table.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StoredTableError {
    /// A field does not consist of so many hexadecimal digits.
    #[error("{field} {text:?} of a stored reservation must have {digits} hexadecimal digits")]
    Digits {
        /// Name of the field.
        field: &'static str,
        /// Text of the field.
        text: String,
        /// Digits that it must have.
        digits: &'static str,
    },
    /// A registration has no registrant, or two.
    #[error("registration {0} must have either a nexus or a host")]
    Registrant(usize),
    /// A key is zero.
    #[error("registration {0} has a key of zero; leave it out")]
    ZeroKey(usize),
    /// A Host Identifier is zero.
    #[error("registration {0} is of a host without an identifier; leave it out")]
    NamelessHost(usize),
    /// A registrant has registered twice.
    #[error("registration {0} is of a registrant that an earlier one is of; leave one out")]
    Twice(usize),
    /// There are too many registrations.
    #[error("a table has at most {REGISTRANTS_MAX} registrations, but {0} are stored")]
    TooMany(usize),
    /// The reservation has no registered holder.
    #[error("the stored reservation is not held by one registration, or by all, as its type asks")]
    Holder,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableForm {
    registrations: Vec<RegistrationForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<ReservationForm>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistrationForm {
    key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nexus: Option<NexusForm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NexusForm {
    initiator: Box<str>,
    isid: String,
    target: Box<str>,
    portal_group: u16,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReservationForm {
    #[serde(rename = "type")]
    kind: ReservationType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<usize>,
}

impl From<StoredTable> for TableForm {
    fn from(StoredTable(table): StoredTable) -> Self {
        let position = |holder: &Registrant| {
            let is_its = |one: &Registration| one.registrant == *holder;
            table.registrations.iter().position(is_its)
        };
        let reservation = table.reservation.as_ref().map(|held| ReservationForm {
            kind: held.kind,
            holder: held.holder.as_ref().and_then(position),
        });
        let registrations = table.registrations.iter().map(RegistrationForm::from);
        Self {
            registrations: registrations.collect(),
            reservation,
        }
    }
}

impl From<&Registration> for RegistrationForm {
    fn from(one: &Registration) -> Self {
        let (nexus, host) = match &one.registrant {
            Registrant::Nexus(nexus) => (Some(NexusForm::from(nexus)), None),
            Registrant::Host(HostIdentifier::Short(bytes)) => (None, Some(digits(bytes))),
            Registrant::Host(HostIdentifier::Extended(HostId(bytes))) => {
                (None, Some(digits(bytes)))
            }
        };
        let key = digits(&one.key.to_be_bytes());
        Self { key, nexus, host }
    }
}

impl From<&Nexus> for NexusForm {
    fn from(nexus: &Nexus) -> Self {
        Self {
            initiator: nexus.initiator.clone(),
            isid: digits(&nexus.isid),
            target: nexus.target.clone(),
            portal_group: nexus.portal_group,
        }
    }
}

impl TryFrom<TableForm> for StoredTable {
    type Error = StoredTableError;

    fn try_from(form: TableForm) -> Result<Self, StoredTableError> {
        let count = form.registrations.len();
        if count > REGISTRANTS_MAX {
            return Err(StoredTableError::TooMany(count));
        }
        let mut registrations: Vec<Registration> = Vec::with_capacity(count);
        for (index, one) in form.registrations.into_iter().enumerate() {
            let one = one.read(index)?;
            if registrations
                .iter()
                .any(|other| other.registrant == one.registrant)
            {
                return Err(StoredTableError::Twice(index));
            }
            registrations.push(one);
        }
        let reservation = form.reservation.map(|held| held.read(&registrations));
        Ok(Self(Table {
            reservation: reservation.transpose()?,
            registrations,
            unit_holder: None,
            generation: 0,
            is_persistent: true,
        }))
    }
}

impl RegistrationForm {
    fn read(self, index: usize) -> Result<Registration, StoredTableError> {
        let registrant = match (self.nexus, self.host) {
            (Some(nexus), None) => Registrant::Nexus(nexus.read()?),
            (None, Some(host)) => Registrant::Host(identifier(&host)?),
            _ => return Err(StoredTableError::Registrant(index)),
        };
        if registrant.is_nameless() {
            return Err(StoredTableError::NamelessHost(index));
        }
        let key = bytes(&self.key).ok_or_else(|| wrong("key", &self.key, "16"))?;
        let key = u64::from_be_bytes(key);
        if key == 0 {
            return Err(StoredTableError::ZeroKey(index));
        }
        Ok(Registration { registrant, key })
    }
}

impl NexusForm {
    fn read(self) -> Result<Nexus, StoredTableError> {
        let isid = bytes(&self.isid).ok_or_else(|| wrong("isid", &self.isid, "12"))?;
        Ok(Nexus {
            initiator: self.initiator,
            isid,
            target: self.target,
            portal_group: self.portal_group,
        })
    }
}

impl ReservationForm {
    fn read(self, registrations: &[Registration]) -> Result<Reservation, StoredTableError> {
        let holder = match self.holder {
            None if self.kind.is_all_registrants() && !registrations.is_empty() => None,
            Some(index) if !self.kind.is_all_registrants() => {
                let one = registrations.get(index).ok_or(StoredTableError::Holder)?;
                Some(one.registrant.clone())
            }
            _ => return Err(StoredTableError::Holder),
        };
        Ok(Reservation {
            kind: self.kind,
            holder,
        })
    }
}

fn wrong(field: &'static str, text: &str, digits: &'static str) -> StoredTableError {
    StoredTableError::Digits {
        field,
        text: text.into(),
        digits,
    }
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn identifier(text: &str) -> Result<HostIdentifier, StoredTableError> {
    let short = bytes(text).map(HostIdentifier::Short);
    let extended = || bytes(text).map(|bytes| HostIdentifier::Extended(HostId(bytes)));
    let identifier = short.or_else(extended);
    identifier.ok_or_else(|| wrong("host", text, "16 or 32"))
}

fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; N];
    for (byte, &[high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = (digit(high)? << 4 | digit(low)?) as u8;
    }
    Some(bytes)
}
