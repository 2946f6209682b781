//! EXTENDED COPY (LID1) parameter list, and what RECEIVE COPY OPERATING PARAMETERS tells (SPC-4 sections 6.4 and 6.22).
//!
//! Copies go from blocks to blocks, and logical units are told by a designator of their device identification page.

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::sense::{AdditionalSense, FieldPointer, Sense};
use crate::wire::{
    TooShort, at_least, bit, flag, length_16, length_32, put, u16_at, u24_at, u32_at, u64_at,
};

/// Bytes of the header of the list.
pub const COPY_HEADER_LENGTH: usize = 16;
/// Bytes of a target descriptor.
pub const TARGET_DESCRIPTOR_LENGTH: usize = 32;
/// Bytes of a segment descriptor from blocks to blocks.
pub const SEGMENT_DESCRIPTOR_LENGTH: usize = 28;
/// DESCRIPTOR TYPE CODE of an identification descriptor target descriptor.
pub const IDENTIFICATION_DESCRIPTOR: u8 = 0xe4;
/// DESCRIPTOR TYPE CODE of a copy from a block device to a block device.
pub const BLOCK_TO_BLOCK: u8 = 0x02;

const DESIGNATOR_LENGTH_MAX: usize = 20;
const OPERATING_PARAMETERS_LENGTH: usize = 44;

/// A logical unit that a copy reads or writes, by a designator of its device identification page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyTarget<'a> {
    /// CODE SET, four bits.
    pub code_set: u8,
    /// DESIGNATOR TYPE, four bits.
    pub designator_type: u8,
    /// ASSOCIATION, two bits.
    pub association: u8,
    /// DESIGNATOR, of at most 20 bytes.
    pub designator: &'a [u8],
    /// DISK BLOCK LENGTH, in bytes.
    pub block_length: u32,
}

/// Blocks to be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopySegment {
    /// SOURCE TARGET DESCRIPTOR INDEX.
    pub source: u16,
    /// DESTINATION TARGET DESCRIPTOR INDEX.
    pub destination: u16,
    /// BLOCK DEVICE NUMBER OF BLOCKS.
    pub blocks: u16,
    /// DC: the number is of blocks of the destination, and not of the source.
    pub counts_destination: bool,
    /// SOURCE BLOCK DEVICE LOGICAL BLOCK ADDRESS.
    pub source_lba: u64,
    /// DESTINATION BLOCK DEVICE LOGICAL BLOCK ADDRESS.
    pub destination_lba: u64,
}

/// A parameter list that is not to be carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CopyError {
    /// The list ends within its header, or within the descriptors that it announces.
    #[error("the list of {0} bytes ends before its descriptors do")]
    Length(usize),
    /// A length is no multiple of what it counts.
    #[error("byte {0} of the list begins a length that holds no whole number of descriptors")]
    Field(u16),
    /// There are more targets than may be.
    #[error("the list has {0} target descriptors")]
    TooManyTargets(usize),
    /// There are more segments than may be.
    #[error("the list has {0} segment descriptors")]
    TooManySegments(usize),
    /// A target is described in a way that is not known.
    #[error("target descriptor type code {0:02x}h is not supported")]
    TargetType(u8),
    /// A segment is described in a way that is not known.
    #[error("segment descriptor type code {0:02x}h is not supported")]
    SegmentType(u8),
    /// Data comes with the list, which no segment has a use for.
    #[error("the list has {0} bytes of inline data")]
    InlineData(u32),
}

impl From<CopyError> for Sense {
    fn from(error: CopyError) -> Self {
        let additional = match error {
            CopyError::Length(_) => return Self::parameter_list_length(),
            CopyError::Field(byte) => return Self::invalid_field(FieldPointer::list(byte)),
            CopyError::TooManyTargets(_) => AdditionalSense::TOO_MANY_TARGET_DESCRIPTORS,
            CopyError::TooManySegments(_) => AdditionalSense::TOO_MANY_SEGMENT_DESCRIPTORS,
            CopyError::TargetType(_) => AdditionalSense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE,
            CopyError::SegmentType(_) => AdditionalSense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE,
            CopyError::InlineData(_) => AdditionalSense::INLINE_DATA_LENGTH_EXCEEDED,
        };
        Self::illegal_request(additional)
    }
}

/// Bounds of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CopyBounds {
    /// MAXIMUM TARGET DESCRIPTOR COUNT.
    pub targets: u16,
    /// MAXIMUM SEGMENT DESCRIPTOR COUNT.
    pub segments: u16,
}

impl CopyBounds {
    /// Bytes of the longest list within these bounds.
    pub const fn list_length(&self) -> usize {
        COPY_HEADER_LENGTH + self.descriptors_length()
    }

    /// MAXIMUM DESCRIPTOR LIST LENGTH.
    pub const fn descriptors_length(&self) -> usize {
        self.targets as usize * TARGET_DESCRIPTOR_LENGTH
            + self.segments as usize * SEGMENT_DESCRIPTOR_LENGTH
    }
}

/// EXTENDED COPY (LID1) parameter list. LIST IDENTIFIER, STR, LIST ID USAGE and PRIORITY change nothing here: copies are answered when
/// they have ended, and no results are held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyList<'a> {
    /// Logical units.
    pub targets: Vec<CopyTarget<'a>>,
    /// Segments, in their order.
    pub segments: Vec<CopySegment>,
}

impl<'a> CopyList<'a> {
    /// Reads a list. No bytes are a list that copies nothing.
    ///
    /// # Errors
    /// What is wrong with it. Indexes of targets are not looked at.
    pub fn parse(bytes: &'a [u8], bounds: CopyBounds) -> Result<Self, CopyError> {
        let (mut targets, mut segments) = (Vec::new(), Vec::new());
        if bytes.is_empty() {
            return Ok(Self { targets, segments });
        }
        let cut = CopyError::Length(bytes.len());
        let (header, rest) = bytes.split_at_checked(COPY_HEADER_LENGTH).ok_or(cut)?;
        let targets_length = usize::from(u16_at(header, 2));
        if !targets_length.is_multiple_of(TARGET_DESCRIPTOR_LENGTH) {
            return Err(CopyError::Field(2));
        }
        if targets_length / TARGET_DESCRIPTOR_LENGTH > bounds.targets.into() {
            let count = targets_length / TARGET_DESCRIPTOR_LENGTH;
            return Err(CopyError::TooManyTargets(count));
        }
        match u32_at(header, 12) {
            0 => {}
            length => return Err(CopyError::InlineData(length)),
        }
        let (target_bytes, rest) = rest.split_at_checked(targets_length).ok_or(cut)?;
        for descriptor in target_bytes.chunks_exact(TARGET_DESCRIPTOR_LENGTH) {
            targets.push(CopyTarget::parse(descriptor)?);
        }
        let segments_length = u32_at(header, 8) as usize;
        let mut rest = rest.get(..segments_length).ok_or(cut)?;
        while let Some(&code) = rest.first() {
            if code != BLOCK_TO_BLOCK {
                return Err(CopyError::SegmentType(code));
            }
            let descriptor = rest.split_at_checked(SEGMENT_DESCRIPTOR_LENGTH);
            let (descriptor, after) = descriptor.ok_or(CopyError::Field(8))?;
            if segments.len() == usize::from(bounds.segments) {
                let count = segments_length / SEGMENT_DESCRIPTOR_LENGTH;
                return Err(CopyError::TooManySegments(count));
            }
            segments.push(CopySegment::parse(descriptor));
            rest = after;
        }
        Ok(Self { targets, segments })
    }

    /// Bytes of the list.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; COPY_HEADER_LENGTH];
        put(
            &mut bytes,
            2,
            length_16(self.targets.len() * TARGET_DESCRIPTOR_LENGTH),
        );
        put(
            &mut bytes,
            8,
            length_32(self.segments.len() * SEGMENT_DESCRIPTOR_LENGTH),
        );
        for target in &self.targets {
            bytes.extend(target.encode());
        }
        for segment in &self.segments {
            bytes.extend(segment.encode());
        }
        bytes
    }
}

impl<'a> CopyTarget<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, CopyError> {
        if bytes[0] != IDENTIFICATION_DESCRIPTOR {
            return Err(CopyError::TargetType(bytes[0]));
        }
        let length = usize::from(bytes[7]).min(DESIGNATOR_LENGTH_MAX);
        Ok(Self {
            code_set: bytes[4] & 0xf,
            designator_type: bytes[5] & 0xf,
            association: bytes[5] >> 4 & 0x3,
            designator: &bytes[8..8 + length],
            block_length: u24_at(bytes, 29),
        })
    }

    /// The descriptor. Of a longer designator the first 20 bytes are told, and of a larger block length the low 24 bits.
    fn encode(&self) -> [u8; TARGET_DESCRIPTOR_LENGTH] {
        let mut bytes = [0; TARGET_DESCRIPTOR_LENGTH];
        bytes[0] = IDENTIFICATION_DESCRIPTOR;
        bytes[4] = self.code_set & 0xf;
        bytes[5] = (self.association & 0x3) << 4 | self.designator_type & 0xf;
        let length = self.designator.len().min(DESIGNATOR_LENGTH_MAX);
        bytes[7] = length as u8;
        bytes[8..8 + length].copy_from_slice(&self.designator[..length]);
        let [_, high, middle, low] = self.block_length.to_be_bytes();
        put(&mut bytes, 29, [high, middle, low]);
        bytes
    }
}

impl CopySegment {
    fn parse(bytes: &[u8]) -> Self {
        Self {
            source: u16_at(bytes, 4),
            destination: u16_at(bytes, 6),
            blocks: u16_at(bytes, 10),
            counts_destination: bit(bytes[1], 1),
            source_lba: u64_at(bytes, 12),
            destination_lba: u64_at(bytes, 20),
        }
    }

    fn encode(&self) -> [u8; SEGMENT_DESCRIPTOR_LENGTH] {
        let mut bytes = [0; SEGMENT_DESCRIPTOR_LENGTH];
        bytes[0] = BLOCK_TO_BLOCK;
        bytes[1] = flag(self.counts_destination, 1);
        put(&mut bytes, 2, length_16(SEGMENT_DESCRIPTOR_LENGTH - 4));
        put(&mut bytes, 4, self.source.to_be_bytes());
        put(&mut bytes, 6, self.destination.to_be_bytes());
        put(&mut bytes, 10, self.blocks.to_be_bytes());
        put(&mut bytes, 12, self.source_lba.to_be_bytes());
        put(&mut bytes, 20, self.destination_lba.to_be_bytes());
        bytes
    }
}

/// Operating parameters of third-party copies from blocks to blocks. What has no field here is zero: no data inline or held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OperatingParameters {
    /// How long a list may be.
    pub bounds: CopyBounds,
    /// MAXIMUM SEGMENT LENGTH, in bytes.
    pub segment_length_max: u32,
    /// TOTAL CONCURRENT COPIES.
    pub concurrent_copies_total: u16,
    /// MAXIMUM CONCURRENT COPIES.
    pub concurrent_copies_max: u8,
    /// DATA SEGMENT GRANULARITY, as a power of two of bytes.
    pub granularity_exponent: u8,
}

impl OperatingParameters {
    /// The parameter data, with the descriptors that [`CopyList`] has.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; OPERATING_PARAMETERS_LENGTH];
        // SNLID: a list identifier is not needed.
        bytes[4] = flag(true, 0);
        put(&mut bytes, 8, self.bounds.targets.to_be_bytes());
        put(&mut bytes, 10, self.bounds.segments.to_be_bytes());
        put(&mut bytes, 12, length_32(self.bounds.descriptors_length()));
        put(&mut bytes, 16, self.segment_length_max.to_be_bytes());
        put(&mut bytes, 34, self.concurrent_copies_total.to_be_bytes());
        bytes[36] = self.concurrent_copies_max;
        bytes[37] = self.granularity_exponent;
        let descriptors = [BLOCK_TO_BLOCK, IDENTIFICATION_DESCRIPTOR];
        bytes[43] = descriptors.len() as u8;
        bytes.extend(descriptors);
        let length = length_32(bytes.len() - 4);
        put(&mut bytes, 0, length);
        bytes
    }

    /// Reads the parameter data.
    ///
    /// # Errors
    /// The data ends before the list of descriptors.
    pub fn parse(bytes: &[u8]) -> Result<Self, TooShort> {
        at_least("operating parameters", bytes, OPERATING_PARAMETERS_LENGTH)?;
        Ok(Self {
            bounds: CopyBounds {
                targets: u16_at(bytes, 8),
                segments: u16_at(bytes, 10),
            },
            segment_length_max: u32_at(bytes, 16),
            concurrent_copies_total: u16_at(bytes, 34),
            concurrent_copies_max: bytes[36],
            granularity_exponent: bytes[37],
        })
    }
}
