//! What Reservation Report returns: the Reservation Status data structure in both forms (NVMe Base 2.0c section 7.5).

use crate::feature::HostIdentifier;
use crate::nqn::HostId;
use crate::wire::{WrongLength, flags, wire_struct};

/// CNTLID of a registrant that has no controller now.
pub const CONTROLLER_NOT_ATTACHED: u16 = 0xffff;

/// Bytes of the header of the extended form.
const HEADER_EXTENDED: usize = 64;

wire_struct! {
    /// Header of either form. The extended one has 64 bytes, of which the rest are reserved.
    pub struct ReservationReportHeader[24] {
        /// Generation (GEN).
        0 => generation: u32,
        /// Reservation Type (RTYPE); 0 is no reservation.
        4 => kind: u8,
        /// Number of Registered Controllers (REGCTL).
        5 => controllers: u16,
        /// Persist Through Power Loss State (PTPLS), 0 or 1.
        9 => persistence: u8,
    }
}

flags! {
    /// Reservation Status (RCSTS) of a registered controller.
    pub struct RegisteredControllerStatus: u8 {
        /// Bit 0: its host holds the reservation.
        HOLDER = 1 << 0,
    }
}

wire_struct! {
    /// Registered Controller data structure.
    pub struct RegisteredControllerEntry[24] {
        /// Controller ID (CNTLID).
        0 => controller: u16,
        /// Reservation Status (RCSTS).
        2 => status: RegisteredControllerStatus,
        /// Host Identifier (HOSTID), 64 bits.
        8 => host: [u8; 8],
        /// Reservation Key (RKEY).
        16 => key: u64,
    }
}

wire_struct! {
    /// Registered Controller Extended data structure.
    pub struct RegisteredControllerEntryExtended[64] {
        /// Controller ID (CNTLID).
        0 => controller: u16,
        /// Reservation Status (RCSTS).
        2 => status: RegisteredControllerStatus,
        /// Reservation Key (RKEY).
        8 => key: u64,
        /// Host Identifier (HOSTID), 128 bits.
        16 => host: [u8; 16],
    }
}

/// A controller of a registrant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegisteredController {
    /// Controller ID (CNTLID), or [`CONTROLLER_NOT_ATTACHED`].
    pub controller: u16,
    /// Its host holds the reservation.
    pub holds: bool,
    /// Reservation Key (RKEY).
    pub key: u64,
    /// Host Identifier (HOSTID).
    pub host: HostIdentifier,
}

/// What Reservation Report returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationReport {
    /// Generation (GEN).
    pub generation: u32,
    /// Reservation Type (RTYPE); 0 is no reservation.
    pub kind: u8,
    /// Persist Through Power Loss State (PTPLS).
    pub persists: bool,
    /// Controllers of registrants, at most 65,535.
    pub controllers: Vec<RegisteredController>,
}

impl ReservationReport {
    /// Bytes of the whole structure in one of its forms. Of a host identifier of 128 bits the form without extension
    /// has the first eight bytes: a controller refuses it to hosts with such identifiers (Host Identifier
    /// Inconsistent Format). One of 64 bits is followed by zeroes in the extended form.
    ///
    /// Panics where there are more controllers than REGCTL can say.
    pub fn encode(&self, is_extended: bool) -> Vec<u8> {
        let controllers = u16::try_from(self.controllers.len());
        let header = ReservationReportHeader {
            generation: self.generation,
            kind: self.kind,
            controllers: controllers.expect("the number of registered controllers has 16 bits"),
            persistence: self.persists.into(),
        };
        let mut bytes = header.encode().to_vec();
        if is_extended {
            bytes.resize(HEADER_EXTENDED, 0);
            for one in &self.controllers {
                bytes.extend(one.extended().encode());
            }
        } else {
            for one in &self.controllers {
                bytes.extend(one.short().encode());
            }
        }
        bytes
    }

    /// Reads the structure; of one that is cut, the controllers that are whole.
    ///
    /// # Errors
    /// The bytes end within the header.
    pub fn parse(bytes: &[u8], is_extended: bool) -> Result<Self, WrongLength> {
        let header_length = if is_extended {
            HEADER_EXTENDED
        } else {
            ReservationReportHeader::SIZE
        };
        let cut = WrongLength {
            structure: "ReservationReport",
            expected: header_length,
            actual: bytes.len(),
        };
        let (header, entries) = bytes.split_at_checked(header_length).ok_or(cut)?;
        let header = ReservationReportHeader::decode(header.first_chunk().ok_or(cut)?);
        let count = header.controllers.into();
        let controllers = if is_extended {
            let entries = entries.as_chunks().0.iter().take(count);
            let entries = entries.map(RegisteredControllerEntryExtended::decode);
            entries.map(RegisteredController::from).collect()
        } else {
            let entries = entries.as_chunks().0.iter().take(count);
            let entries = entries.map(RegisteredControllerEntry::decode);
            entries.map(RegisteredController::from).collect()
        };
        Ok(Self {
            generation: header.generation,
            kind: header.kind,
            persists: header.persistence & 1 != 0,
            controllers,
        })
    }
}

impl RegisteredController {
    const fn status(&self) -> RegisteredControllerStatus {
        if self.holds {
            RegisteredControllerStatus::HOLDER
        } else {
            RegisteredControllerStatus::NONE
        }
    }

    fn short(&self) -> RegisteredControllerEntry {
        let mut host = [0; 8];
        match &self.host {
            HostIdentifier::Short(bytes) => host = *bytes,
            HostIdentifier::Extended(HostId(bytes)) => host.copy_from_slice(&bytes[..8]),
        }
        RegisteredControllerEntry {
            controller: self.controller,
            status: self.status(),
            host,
            key: self.key,
        }
    }

    fn extended(&self) -> RegisteredControllerEntryExtended {
        let mut host = [0; 16];
        match &self.host {
            HostIdentifier::Short(bytes) => host[..8].copy_from_slice(bytes),
            HostIdentifier::Extended(HostId(bytes)) => host = *bytes,
        }
        RegisteredControllerEntryExtended {
            controller: self.controller,
            status: self.status(),
            key: self.key,
            host,
        }
    }
}

impl From<RegisteredControllerEntry> for RegisteredController {
    fn from(entry: RegisteredControllerEntry) -> Self {
        Self {
            controller: entry.controller,
            holds: entry.status.contains(RegisteredControllerStatus::HOLDER),
            key: entry.key,
            host: HostIdentifier::Short(entry.host),
        }
    }
}

impl From<RegisteredControllerEntryExtended> for RegisteredController {
    fn from(entry: RegisteredControllerEntryExtended) -> Self {
        Self {
            controller: entry.controller,
            holds: entry.status.contains(RegisteredControllerStatus::HOLDER),
            key: entry.key,
            host: HostIdentifier::Extended(HostId(entry.host)),
        }
    }
}
