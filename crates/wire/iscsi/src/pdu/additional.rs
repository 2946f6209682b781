//! Additional Header Segments: an extended CDB, and the read length of a bidirectional command (RFC 7143 section 11.2.2).

use crate::wire::get_u16;
use thiserror::Error;

/// AHSType of an extended CDB (section 11.2.2.1).
const EXTENDED_CDB: u8 = 1;
/// AHSType of a bidirectional read's length (section 11.2.2.1).
const BIDIRECTIONAL_READ_LENGTH: u8 = 2;
/// AHSLength and AHSType.
const PREFIX: usize = 3;
/// Bits of the byte after AHSLength that are the AHSType.
const TYPE_MASK: u8 = 0x3f;

/// One Additional Header Segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AdditionalHeader<'a> {
    /// The bytes of a CDB after its first 16 (section 11.2.2.3).
    ExtendedCdb(&'a [u8]),
    /// Expected Bidirectional Read Data Length in bytes (section 11.2.2.4).
    BidirectionalReadLength(u32),
    /// A type that is not known.
    Other {
        /// AHSType.
        ahs_type: u8,
        /// The bytes after AHSType.
        bytes: &'a [u8],
    },
}

/// An Additional Header Segment that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AdditionalError {
    /// Its length goes beyond TotalAHSLength.
    #[error("an additional header of {length} bytes, but TotalAHSLength leaves {left}")]
    TooLong {
        /// Bytes with AHSLength, AHSType and padding.
        length: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// Its length does not fit its type.
    #[error("an additional header of type {ahs_type} with AHSLength {length}")]
    WrongLength {
        /// AHSType.
        ahs_type: u8,
        /// AHSLength.
        length: u16,
    },
    /// A type that may come once came twice.
    #[error("two additional headers of type {ahs_type}")]
    Twice {
        /// AHSType.
        ahs_type: u8,
    },
}

/// The Additional Header Segments of a PDU, one after another.
#[derive(Debug, Clone)]
pub struct AdditionalHeaders<'a> {
    rest: &'a [u8],
}

impl<'a> AdditionalHeaders<'a> {
    /// Those that are in `bytes`: all of TotalAHSLength, as [`Reader::additional`](crate::reader::Reader::additional) has them.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn parse(&mut self) -> Result<AdditionalHeader<'a>, AdditionalError> {
        let left = self.rest.len();
        let too_long = |length| AdditionalError::TooLong { length, left };
        if left < 4 {
            return Err(too_long(4));
        }
        // AHSLength counts what follows AHSType, without padding.
        let length = get_u16(self.rest, 0);
        let ahs_type = self.rest[2] & TYPE_MASK;
        let end = PREFIX + usize::from(length);
        let padded = end.next_multiple_of(4);
        if padded > left {
            return Err(too_long(padded));
        }
        let bytes = &self.rest[PREFIX..end];
        self.rest = &self.rest[padded..];
        let wrong = AdditionalError::WrongLength { ahs_type, length };
        match (ahs_type, bytes) {
            // A reserved byte comes first in both.
            (EXTENDED_CDB, [_, cdb @ ..]) if !cdb.is_empty() => {
                Ok(AdditionalHeader::ExtendedCdb(cdb))
            }
            (BIDIRECTIONAL_READ_LENGTH, &[_, a, b, c, d]) => Ok(
                AdditionalHeader::BidirectionalReadLength(u32::from_be_bytes([a, b, c, d])),
            ),
            (EXTENDED_CDB | BIDIRECTIONAL_READ_LENGTH, _) => Err(wrong),
            _ => Ok(AdditionalHeader::Other { ahs_type, bytes }),
        }
    }
}

impl<'a> Iterator for AdditionalHeaders<'a> {
    type Item = Result<AdditionalHeader<'a>, AdditionalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let next = self.parse();
        if next.is_err() {
            self.rest = &[];
        }
        Some(next)
    }
}

/// Summary of the Additional Header Segments of a command, without their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AdditionalSummary {
    /// Bytes of the CDB after its first 16; 0 for none.
    pub extended_cdb_length: u16,
    /// Expected Bidirectional Read Data Length in bytes, where there is one.
    pub bidirectional_read_length: Option<u32>,
    /// A type that is not known was among them.
    pub unknown_type: Option<u8>,
}

/// An Additional Header Segment that is not supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum UnsupportedAdditional {
    /// A CDB of more than 16 bytes.
    #[error("a CDB of {length} bytes, where 16 are supported")]
    ExtendedCdb {
        /// Bytes of the CDB.
        length: u32,
    },
    /// A command that reads and writes.
    #[error("a bidirectional command, which is not supported")]
    Bidirectional,
    /// An additional header of another type.
    #[error("an additional header of type {ahs_type}, which is not supported")]
    Unknown {
        /// AHSType.
        ahs_type: u8,
    },
}

impl AdditionalSummary {
    /// Reads all of a command's Additional Header Segments.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn read(bytes: &[u8]) -> Result<Self, AdditionalError> {
        let mut summary = Self::default();
        for header in AdditionalHeaders::new(bytes) {
            summary.add(header?)?;
        }
        Ok(summary)
    }

    fn add(&mut self, header: AdditionalHeader<'_>) -> Result<(), AdditionalError> {
        let twice = |ahs_type| Err(AdditionalError::Twice { ahs_type });
        match header {
            AdditionalHeader::ExtendedCdb(_) if self.extended_cdb_length > 0 => twice(EXTENDED_CDB),
            AdditionalHeader::ExtendedCdb(cdb) => {
                self.extended_cdb_length = cdb.len() as u16;
                Ok(())
            }
            AdditionalHeader::BidirectionalReadLength(_)
                if self.bidirectional_read_length.is_some() =>
            {
                twice(BIDIRECTIONAL_READ_LENGTH)
            }
            AdditionalHeader::BidirectionalReadLength(length) => {
                self.bidirectional_read_length = Some(length);
                Ok(())
            }
            AdditionalHeader::Other { ahs_type, .. } => {
                self.unknown_type = Some(ahs_type);
                Ok(())
            }
        }
    }

    /// Refuses all of them by name, for a target that supports none.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse(&self) -> Result<(), UnsupportedAdditional> {
        if self.extended_cdb_length > 0 {
            return Err(UnsupportedAdditional::ExtendedCdb {
                length: 16 + u32::from(self.extended_cdb_length),
            });
        }
        if self.bidirectional_read_length.is_some() {
            return Err(UnsupportedAdditional::Bidirectional);
        }
        match self.unknown_type {
            Some(ahs_type) => Err(UnsupportedAdditional::Unknown { ahs_type }),
            None => Ok(()),
        }
    }
}

/// Writes the bytes of a CDB after its first 16; returns how many bytes with padding. Panics where the buffer is too short or the CDB
/// longer than 260 bytes.
pub fn put_extended_cdb(buffer: &mut [u8], rest: &[u8]) -> usize {
    assert!(
        !rest.is_empty() && rest.len() <= 244,
        "a CDB has at most 260 bytes"
    );
    put_additional(buffer, EXTENDED_CDB, rest)
}

/// Writes the read length of a bidirectional command, in bytes; returns how many bytes it takes. Panics where the buffer is too short.
pub fn put_bidirectional_read_length(buffer: &mut [u8], length: u32) -> usize {
    put_additional(buffer, BIDIRECTIONAL_READ_LENGTH, &length.to_be_bytes())
}

/// AHSLength, AHSType, a reserved byte, `bytes` and padding.
fn put_additional(buffer: &mut [u8], ahs_type: u8, bytes: &[u8]) -> usize {
    let end = PREFIX + 1 + bytes.len();
    let padded = end.next_multiple_of(4);
    let buffer = &mut buffer[..padded];
    buffer[..2].copy_from_slice(&(1 + bytes.len() as u16).to_be_bytes());
    buffer[2] = ahs_type;
    buffer[3] = 0;
    buffer[4..end].copy_from_slice(bytes);
    buffer[end..].fill(0);
    padded
}
