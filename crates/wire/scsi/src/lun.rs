//! Logical unit numbers (SAM-5 section 4.7) and REPORT LUNS data (SPC-4 section 6.33).
//!
//! Units are numbered on one level. Numbers below 256 are written in peripheral device addressing,
//! as initiators expect, and others in flat space addressing; either is read for any number.

#[cfg(test)]
mod tests;

use crate::wire::{TooShort, array_at, at_least, length_32, put, u32_at};
use thiserror::Error;

/// Bytes of the header of REPORT LUNS data.
pub const REPORT_LUNS_HEADER_LENGTH: usize = 8;

const REPORT_LUNS_BYTES: [u8; 8] = [0xc1, 0x01, 0, 0, 0, 0, 0, 0];

/// A logical unit of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lun {
    /// A unit by its number, at most [`Lun::NUMBER_MAX`].
    Unit(u16),
    /// The REPORT LUNS well-known logical unit.
    ReportLuns,
}

/// A LUN that addresses no unit which there could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the LUN {0:016x} is in no addressing method that is supported")]
pub struct LunError(pub u64);

impl Lun {
    /// Highest number that flat space addressing can say.
    pub const NUMBER_MAX: u16 = 0x3fff;

    /// Reads the eight bytes of a LUN.
    ///
    /// # Errors
    /// Another addressing method, a bus other than 0, or a second level.
    #[inline]
    pub fn parse(bytes: &[u8; 8]) -> Result<Self, LunError> {
        let number = u16::from_be_bytes([bytes[0], bytes[1]]);
        let value = u64::from_be_bytes(*bytes);
        match number {
            _ if *bytes == REPORT_LUNS_BYTES => Ok(Self::ReportLuns),
            _ if value & 0xffff_ffff_ffff != 0 => Err(LunError(value)),
            0x0000..=0x00ff => Ok(Self::Unit(number)),
            0x4000..=0x7fff => Ok(Self::Unit(number & Self::NUMBER_MAX)),
            _ => Err(LunError(value)),
        }
    }

    /// Eight bytes of the LUN. A number beyond [`Lun::NUMBER_MAX`] is cut to its low 14 bits.
    pub fn encode(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        match self {
            Self::Unit(number @ 0..=0xff) => put(&mut bytes, 0, number.to_be_bytes()),
            Self::Unit(number) => {
                let flat = 0x4000 | number & Self::NUMBER_MAX;
                put(&mut bytes, 0, flat.to_be_bytes());
            }
            Self::ReportLuns => bytes = REPORT_LUNS_BYTES,
        }
        bytes
    }
}

/// REPORT LUNS data: the header and eight bytes for each unit, in the order given.
pub fn report_luns(luns: &[Lun]) -> Vec<u8> {
    let mut data = vec![0; REPORT_LUNS_HEADER_LENGTH];
    put(&mut data, 0, length_32(luns.len() * 8));
    for lun in luns {
        data.extend(lun.encode());
    }
    data
}

/// REPORT LUNS data as an initiator reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedLuns {
    /// LUN LIST LENGTH: bytes of the whole list, though it was cut.
    pub list_length: u32,
    /// Units of the list as far as it was not cut, in their order; the bytes of each are kept.
    pub luns: Vec<[u8; 8]>,
}

impl ReportedLuns {
    /// Reads REPORT LUNS data.
    ///
    /// # Errors
    /// The data ends within its header.
    pub fn parse(bytes: &[u8]) -> Result<Self, TooShort> {
        at_least("REPORT LUNS data", bytes, REPORT_LUNS_HEADER_LENGTH)?;
        let list_length = u32_at(bytes, 0);
        let luns = bytes[REPORT_LUNS_HEADER_LENGTH..]
            .chunks_exact(8)
            .take(list_length as usize / 8)
            .map(|chunk| *array_at(chunk, 0))
            .collect();
        Ok(Self { list_length, luns })
    }
}
