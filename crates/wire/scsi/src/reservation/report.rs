//! Data of PERSISTENT RESERVE IN (SPC-4 section 6.15).

use super::transport::{TransportId, TransportIdError};
use crate::wire::{TooShort, at_least, bit, flag, length_32, put, u16_at, u32_at, u64_at};

/// Bytes of PRGENERATION and ADDITIONAL LENGTH, which the latter does not count.
const HEADER_LENGTH: usize = 8;
const KEY_LENGTH: usize = 8;
const RESERVATION_LENGTH: usize = 16;
const CAPABILITIES_LENGTH: usize = 8;
/// Bytes of a full status descriptor before its TransportID.
const STATUS_LENGTH: usize = 24;
/// Bits of TYPE; SCOPE above them is zero, the logical unit.
const TYPE_MASK: u8 = 0xf;

fn header(generation: u32, additional: usize) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_LENGTH];
    put(&mut bytes, 0, generation.to_be_bytes());
    put(&mut bytes, 4, length_32(additional));
    bytes
}

/// PRGENERATION, and as much of the rest as there is.
fn split<'a>(name: &'static str, bytes: &'a [u8]) -> Result<(u32, &'a [u8]), TooShort> {
    at_least(name, bytes, HEADER_LENGTH)?;
    let (header, rest) = bytes.split_at(HEADER_LENGTH);
    let length = rest.len().min(u32_at(header, 4) as usize);
    Ok((u32_at(header, 0), &rest[..length]))
}

/// READ KEYS data (SPC-4 section 6.15.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredKeys {
    /// PRGENERATION.
    pub generation: u32,
    /// A key for each registration.
    pub keys: Vec<u64>,
}

impl RegisteredKeys {
    /// The parameter data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = header(self.generation, self.keys.len() * KEY_LENGTH);
        bytes.extend(self.keys.iter().flat_map(|key| key.to_be_bytes()));
        bytes
    }

    /// Reads the parameter data; of data that is cut, the keys that are whole.
    ///
    /// # Errors
    /// The data ends within its header.
    pub fn parse(bytes: &[u8]) -> Result<Self, TooShort> {
        let (generation, keys) = split("READ KEYS data", bytes)?;
        let keys = keys.chunks_exact(KEY_LENGTH);
        Ok(Self {
            generation,
            keys: keys.map(|key| u64_at(key, 0)).collect(),
        })
    }
}

/// A reservation as READ RESERVATION reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeldReservation {
    /// RESERVATION KEY: zero where all registrants hold it.
    pub key: u64,
    /// TYPE, four bits.
    pub kind: u8,
}

/// READ RESERVATION data (SPC-4 section 6.15.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReservationStatus {
    /// PRGENERATION.
    pub generation: u32,
    /// The reservation, if there is one.
    pub held: Option<HeldReservation>,
}

impl ReservationStatus {
    /// The parameter data.
    pub fn encode(&self) -> Vec<u8> {
        let Some(held) = self.held else {
            return header(self.generation, 0);
        };
        let mut bytes = header(self.generation, RESERVATION_LENGTH);
        bytes.resize(HEADER_LENGTH + RESERVATION_LENGTH, 0);
        put(&mut bytes, 8, held.key.to_be_bytes());
        bytes[21] = held.kind & TYPE_MASK;
        bytes
    }

    /// Reads the parameter data.
    ///
    /// # Errors
    /// The data ends within its header, or within the reservation that it announces.
    pub fn parse(bytes: &[u8]) -> Result<Self, TooShort> {
        let name = "READ RESERVATION data";
        let (generation, _) = split(name, bytes)?;
        if u32_at(bytes, 4) == 0 {
            let held = None;
            return Ok(Self { generation, held });
        }
        at_least(name, bytes, HEADER_LENGTH + RESERVATION_LENGTH)?;
        let held = Some(HeldReservation {
            key: u64_at(bytes, 8),
            kind: bytes[21] & TYPE_MASK,
        });
        Ok(Self { generation, held })
    }
}

/// Mask of types, with a bit for each by its value: bit 1 for Write Exclusive, bit 8 for Exclusive Access, All
/// Registrants.
pub fn type_mask(types: impl IntoIterator<Item = u8>) -> u16 {
    types
        .into_iter()
        .fold(0, |mask, kind| mask | 1 << (kind & TYPE_MASK))
}

/// REPORT CAPABILITIES data (SPC-4 section 6.15.4). RLR_C is zero: reservations are not lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ReservationCapabilities {
    /// CRH: RESERVE (6) and (10) of a registrant are answered with GOOD.
    pub compatible_handling: bool,
    /// SIP_C: SPEC_I_PT is supported.
    pub specifies_initiator_ports: bool,
    /// ATP_C: ALL_TG_PT is supported.
    pub all_target_ports: bool,
    /// PTPL_C: APTPL is supported.
    pub can_persist: bool,
    /// PTPL_A: what is registered outlasts a loss of power.
    pub persists: bool,
    /// ALLOW COMMANDS, three bits; zero says nothing.
    pub allow_commands: u8,
    /// PERSISTENT RESERVATION TYPE MASK, as [`type_mask`] makes it; `None`: not told.
    pub types: Option<u16>,
}

impl ReservationCapabilities {
    /// The parameter data.
    pub fn encode(&self) -> Vec<u8> {
        let [low, high] = self.types.unwrap_or(0).to_le_bytes();
        vec![
            0,
            CAPABILITIES_LENGTH as u8,
            flag(self.compatible_handling, 4)
                | flag(self.specifies_initiator_ports, 3)
                | flag(self.all_target_ports, 2)
                | flag(self.can_persist, 0),
            flag(self.types.is_some(), 7)
                | (self.allow_commands & 0x7) << 4
                | flag(self.persists, 0),
            low,
            high,
            0,
            0,
        ]
    }

    /// Reads the parameter data.
    ///
    /// # Errors
    /// The data ends before it should.
    pub fn parse(bytes: &[u8]) -> Result<Self, TooShort> {
        at_least("REPORT CAPABILITIES data", bytes, CAPABILITIES_LENGTH)?;
        let types = u16::from_le_bytes([bytes[4], bytes[5]]);
        Ok(Self {
            compatible_handling: bit(bytes[2], 4),
            specifies_initiator_ports: bit(bytes[2], 3),
            all_target_ports: bit(bytes[2], 2),
            can_persist: bit(bytes[2], 0),
            persists: bit(bytes[3], 0),
            allow_commands: bytes[3] >> 4 & 0x7,
            types: bit(bytes[3], 7).then_some(types),
        })
    }
}

/// A registration as READ FULL STATUS reports it. ALL_TG_PT is zero: each is for one target port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistrantStatus {
    /// RESERVATION KEY.
    pub key: u64,
    /// TYPE of the reservation, four bits, where the registrant is a holder.
    pub holds: Option<u8>,
    /// RELATIVE TARGET PORT IDENTIFIER; zero, which names none, for a host of NVMe.
    pub relative_port: u16,
    /// The initiator.
    pub transport: TransportId,
}

/// READ FULL STATUS data (SPC-4 section 6.15.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullStatus {
    /// PRGENERATION.
    pub generation: u32,
    /// A descriptor for each registration.
    pub registrants: Vec<RegistrantStatus>,
}

impl FullStatus {
    /// The parameter data.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = header(self.generation, 0);
        for registrant in &self.registrants {
            bytes.extend(registrant.encode());
        }
        let additional = length_32(bytes.len() - HEADER_LENGTH);
        put(&mut bytes, 4, additional);
        bytes
    }

    /// Reads the parameter data; of data that is cut, the descriptors that are whole. A descriptor whose TransportID
    /// is not known comes with the reason.
    ///
    /// # Errors
    /// The data ends within its header.
    pub fn parse(
        bytes: &[u8],
    ) -> Result<(u32, Vec<Result<RegistrantStatus, TransportIdError>>), TooShort> {
        let (generation, mut rest) = split("READ FULL STATUS data", bytes)?;
        let mut registrants = Vec::new();
        while let Some((descriptor, behind)) = rest.split_at_checked(STATUS_LENGTH) {
            let length = u32_at(descriptor, 20) as usize;
            let Some((transport, behind)) = behind.split_at_checked(length) else {
                break;
            };
            registrants.push(RegistrantStatus::parse(descriptor, transport));
            rest = behind;
        }
        Ok((generation, registrants))
    }
}

impl RegistrantStatus {
    fn encode(&self) -> Vec<u8> {
        let transport = self.transport.encode();
        let mut bytes = vec![0; STATUS_LENGTH];
        put(&mut bytes, 0, self.key.to_be_bytes());
        bytes[12] = flag(self.holds.is_some(), 0);
        bytes[13] = self.holds.unwrap_or(0) & TYPE_MASK;
        put(&mut bytes, 18, self.relative_port.to_be_bytes());
        put(&mut bytes, 20, length_32(transport.len()));
        bytes.extend(transport);
        bytes
    }

    fn parse(descriptor: &[u8], transport: &[u8]) -> Result<Self, TransportIdError> {
        Ok(Self {
            key: u64_at(descriptor, 0),
            holds: bit(descriptor[12], 0).then_some(descriptor[13] & TYPE_MASK),
            relative_port: u16_at(descriptor, 18),
            transport: TransportId::parse(transport)?,
        })
    }
}
