//! Reports: a table in the form of either protocol. Registrants of the other protocol are among them.

use weir_nvme::HostId;
use weir_nvme::feature::HostIdentifier;
use weir_nvme::reservation::{CONTROLLER_NOT_ATTACHED, RegisteredController, ReservationReport};
use weir_scsi::reservation::{
    FullStatus, HeldReservation, RegisteredKeys, RegistrantStatus, ReservationCapabilities,
    ReservationStatus, TransportId, type_mask,
};

use crate::registrant::{Nexus, Registrant};
use crate::rights::ReservationType;
use crate::table::Table;

/// Offset basis and prime of FNV-1a with 128 bits.
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

impl Table {
    /// READ KEYS data.
    pub fn registered_keys(&self) -> RegisteredKeys {
        RegisteredKeys {
            generation: self.generation,
            keys: self.registrations.iter().map(|one| one.key).collect(),
        }
    }

    /// READ RESERVATION data.
    pub fn reservation_status(&self) -> ReservationStatus {
        let held = self.reservation.as_ref().map(|held| HeldReservation {
            key: self.reservation_key().unwrap_or(0),
            kind: held.kind.to_scsi(),
        });
        ReservationStatus {
            generation: self.generation,
            held,
        }
    }

    /// REPORT CAPABILITIES data.
    pub fn capabilities(&self) -> ReservationCapabilities {
        ReservationCapabilities {
            compatible_handling: false,
            specifies_initiator_ports: false,
            all_target_ports: false,
            can_persist: true,
            persists: self.is_persistent,
            allow_commands: 0,
            types: Some(type_mask(
                ReservationType::ALL.map(ReservationType::to_scsi),
            )),
        }
    }

    /// READ FULL STATUS data. `relative_port` yields the RELATIVE TARGET PORT IDENTIFIER of a nexus's target port, as the
    /// target that is asked tells of it.
    pub fn full_status(&self, relative_port: impl Fn(&Nexus) -> u16) -> FullStatus {
        let kind = self.reservation.as_ref().map(|held| held.kind.to_scsi());
        let registrants = self.registrations.iter().map(|one| {
            let (transport, relative_port) = match &one.registrant {
                Registrant::Nexus(nexus) => {
                    let (name, isid) = (nexus.initiator.clone(), nexus.isid);
                    let port = TransportId::IscsiPort { name, isid };
                    (port, relative_port(nexus))
                }
                Registrant::Host(HostIdentifier::Short(bytes)) => {
                    (TransportId::NvmeHost(*bytes), 0)
                }
                Registrant::Host(HostIdentifier::Extended(HostId(bytes))) => {
                    (TransportId::NvmeHostExtended(*bytes), 0)
                }
            };
            RegistrantStatus {
                key: one.key,
                holds: kind.filter(|_| self.holds(&one.registrant)),
                relative_port,
                transport,
            }
        });
        FullStatus {
            generation: self.generation,
            registrants: registrants.collect(),
        }
    }

    /// What Reservation Report returns. `controllers` yields the controllers that a host has now; one that has none is reported as
    /// not attached, and so is a nexus, under [`Nexus::host_identifier`].
    pub fn reservation_report(
        &self,
        controllers: impl Fn(&HostIdentifier) -> Vec<u16>,
    ) -> ReservationReport {
        let mut all = Vec::new();
        for one in &self.registrations {
            let (host, mut of_host) = match &one.registrant {
                Registrant::Host(host) => (*host, controllers(host)),
                Registrant::Nexus(nexus) => (nexus.host_identifier(), Vec::new()),
            };
            if of_host.is_empty() {
                of_host.push(CONTROLLER_NOT_ATTACHED);
            }
            all.extend(of_host.into_iter().map(|controller| RegisteredController {
                controller,
                holds: self.holds(&one.registrant),
                key: one.key,
                host,
            }));
        }
        ReservationReport {
            generation: self.generation,
            kind: self
                .reservation
                .as_ref()
                .map_or(0, |held| held.kind.to_nvme()),
            persists: self.is_persistent,
            controllers: all,
        }
    }
}

impl Nexus {
    /// Host Identifier under which NVMe hosts see a nexus: the FNV-1a hash with 128 bits of its names, ISID and portal group. It
    /// stands for no host, and no operation takes it.
    pub fn host_identifier(&self) -> HostIdentifier {
        let group = self.portal_group.to_be_bytes();
        let parts: [&[u8]; 4] = [
            self.initiator.as_bytes(),
            &self.isid,
            self.target.as_bytes(),
            &group,
        ];
        let mut hash = FNV_OFFSET;
        for part in parts {
            // No name holds a zero, which ends each.
            for &byte in part.iter().chain(&[0]) {
                hash = (hash ^ u128::from(byte)).wrapping_mul(FNV_PRIME);
            }
        }
        HostIdentifier::Extended(HostId(hash.to_be_bytes()))
    }
}
