//! READ CAPACITY data (SBC-3 sections 5.15 and 5.16).

#[cfg(test)]
mod tests;

use crate::wire::{TooShort, at_least, bit, flag, put, u16_at, u32_at, u64_at};

/// Bytes of READ CAPACITY (10) data.
pub const CAPACITY_10_LENGTH: usize = 8;
/// Bytes of READ CAPACITY (16) data.
pub const CAPACITY_16_LENGTH: usize = 32;

/// Size of a unit and of its blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capacity {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last block.
    pub last_lba: u64,
    /// LOGICAL BLOCK LENGTH IN BYTES.
    pub block_length: u32,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, four bits.
    pub physical_block_exponent: u8,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS, 14 bits.
    pub lowest_aligned_lba: u16,
    /// The unit has logical block provisioning management (LBPME).
    pub provisioning_managed: bool,
    /// Blocks that are not mapped read as zeroes (LBPRZ).
    pub unmapped_reads_zeroes: bool,
    /// The unit is formatted with protection information (PROT_EN).
    pub has_protection: bool,
}

impl Capacity {
    /// READ CAPACITY (10) data; where the last block needs more than four bytes, FFFFFFFFh stands
    /// there, and the initiator asks with READ CAPACITY (16).
    pub fn encode_10(&self) -> [u8; CAPACITY_10_LENGTH] {
        let mut bytes = [0; CAPACITY_10_LENGTH];
        let last_lba = u32::try_from(self.last_lba).unwrap_or(u32::MAX);
        put(&mut bytes, 0, last_lba.to_be_bytes());
        put(&mut bytes, 4, self.block_length.to_be_bytes());
        bytes
    }

    /// READ CAPACITY (16) data.
    pub fn encode_16(&self) -> [u8; CAPACITY_16_LENGTH] {
        let mut bytes = [0; CAPACITY_16_LENGTH];
        put(&mut bytes, 0, self.last_lba.to_be_bytes());
        put(&mut bytes, 8, self.block_length.to_be_bytes());
        bytes[12] = flag(self.has_protection, 0);
        bytes[13] = self.physical_block_exponent & 0x0f;
        let aligned = self.lowest_aligned_lba & 0x3fff;
        put(&mut bytes, 14, aligned.to_be_bytes());
        bytes[14] |= flag(self.provisioning_managed, 7) | flag(self.unmapped_reads_zeroes, 6);
        bytes
    }

    /// Reads READ CAPACITY (10) data; what it does not say is zero.
    ///
    /// # Errors
    /// The data is too short.
    pub fn parse_10(bytes: &[u8]) -> Result<Self, TooShort> {
        at_least("READ CAPACITY (10) data", bytes, CAPACITY_10_LENGTH)?;
        Ok(Self {
            last_lba: u32_at(bytes, 0).into(),
            block_length: u32_at(bytes, 4),
            ..Self::default()
        })
    }

    /// Reads READ CAPACITY (16) data.
    ///
    /// # Errors
    /// The data is too short.
    pub fn parse_16(bytes: &[u8]) -> Result<Self, TooShort> {
        at_least("READ CAPACITY (16) data", bytes, CAPACITY_16_LENGTH)?;
        Ok(Self {
            last_lba: u64_at(bytes, 0),
            block_length: u32_at(bytes, 8),
            physical_block_exponent: bytes[13] & 0x0f,
            lowest_aligned_lba: u16_at(bytes, 14) & 0x3fff,
            provisioning_managed: bit(bytes[14], 7),
            unmapped_reads_zeroes: bit(bytes[14], 6),
            has_protection: bit(bytes[12], 0),
        })
    }
}
