//! Reservations of volumes, as the control plane stores and shows them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_front::Kept;
use weir_nvme::feature::HostIdentifier;
use weir_reservation::{Nexus, Registrant, ReservationType, StoredTable, Table};

use crate::digits::digits;
use crate::name::VolumeName;

/// Reservations of a volume that are to be stored before a host is answered.
pub struct ToKeep {
    /// The volume.
    pub volume: VolumeName,
    /// What is to be stored of them; none: nothing.
    pub table: Option<StoredTable>,
    /// Is told whether they are stored.
    pub kept: Kept,
}

/// The hosts that have registered on a volume, and what is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReservationReport {
    /// Type of the reservation; missing where nothing is reserved.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub kind: Option<ReservationType>,
    /// The initiator whose RESERVE (6) or (10) shuts the volume to all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shut_by: Option<NexusReport>,
    /// Whether registrations and reservation outlast a restart.
    pub persistent: bool,
    /// The hosts that have registered, oldest first.
    pub registrants: Vec<RegistrantReport>,
}

/// A host that has registered: an iSCSI session's two ends, or an NVMe host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RegistrantReport {
    /// Its key, in hexadecimal digits.
    pub key: String,
    /// Whether it holds the reservation.
    pub holds: bool,
    /// The iSCSI session's ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nexus: Option<NexusReport>,
    /// The NVMe Host Identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The two ends of an iSCSI session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NexusReport {
    /// The initiator.
    pub initiator: String,
    /// The initiator's part of the session's identity (ISID), in hexadecimal digits.
    pub isid: String,
    /// The target.
    pub target: String,
}

impl ReservationReport {
    /// What a table says; none where nobody has registered and nothing is reserved.
    pub fn of(table: &Table) -> Option<Self> {
        if table.registrations().is_empty() && table.unit_holder().is_none() {
            return None;
        }
        let registrants = table.registrations().iter().map(|one| {
            let (nexus, host) = match &one.registrant {
                Registrant::Nexus(nexus) => (Some(nexus.into()), None),
                Registrant::Host(HostIdentifier::Short(bytes)) => (None, Some(digits(bytes))),
                Registrant::Host(HostIdentifier::Extended(host)) => (None, Some(host.to_string())),
            };
            RegistrantReport {
                key: format!("{:#x}", one.key),
                holds: table.holds(&one.registrant),
                nexus,
                host,
            }
        });
        Some(Self {
            kind: table.reservation().map(|held| held.kind),
            shut_by: table.unit_holder().map(Into::into),
            persistent: table.is_persistent(),
            registrants: registrants.collect(),
        })
    }
}

impl From<&Nexus> for NexusReport {
    fn from(nexus: &Nexus) -> Self {
        Self {
            initiator: nexus.initiator.to_string(),
            isid: digits(&nexus.isid),
            target: nexus.target.to_string(),
        }
    }
}
