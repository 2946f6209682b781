//! What a volume is like.

/// Bytes in a logical block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockSize {
    /// 512 bytes.
    B512,
    /// 4096 bytes.
    B4096,
}

impl BlockSize {
    /// The size in bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// The size as a power of two: 9 or 12.
    #[must_use]
    pub const fn shift(self) -> u32 {
        match self {
            BlockSize::B512 => 9,
            BlockSize::B4096 => 12,
        }
    }

    /// The block size of so many bytes, if Weir has it.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            512 => Some(BlockSize::B512),
            4096 => Some(BlockSize::B4096),
            _ => None,
        }
    }
}

/// What blocks read as after they were deallocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeallocatedRead {
    /// Zeroes.
    Zeroes,
    /// Nothing is promised.
    Unknown,
}

/// What a volume is like. All of it but the generation, the number of blocks and read-only stays as it is while the
/// volume is open. No volume has metadata or protection information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Grows with every change.
    pub generation: u64,
    /// Bytes in a block.
    pub block_size: BlockSize,
    /// How many there are.
    pub blocks: u64,
    /// The longest transfer of one request, in blocks. Longer ones are split above.
    pub transfer_blocks_max: u32,
    /// Transfers are best at multiples of this, in blocks (NPWG, NPWA).
    pub transfer_blocks_optimal: u32,
    /// What the medium asks of the address of a buffer, in bytes. Segments from a pool always fit.
    pub memory_alignment: u32,
    /// Deallocation works in multiples of this, in blocks (NPDG); ends that are not aligned stay allocated. 0: not at all.
    pub deallocate_blocks: u32,
    /// What deallocated blocks read as (DLFEAT).
    pub deallocated_read: DeallocatedRead,
    /// Whether writes may be lost at a power failure until a flush.
    pub volatile_cache: bool,
    /// Whether writing is refused.
    pub read_only: bool,
    /// Writes of up to so many blocks are seen whole or not at all by other requests (NAWUN). At least 1.
    pub atomic_blocks: u32,
    /// The same across a power failure (NAWUPF). At least 1.
    pub atomic_blocks_power_fail: u32,
    /// The longest compare-and-write that the volume does natively, in blocks; 0: none, and the guard emulates it.
    pub compare_write_blocks: u32,
}

impl Geometry {
    /// The volume's length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.blocks << self.block_size.shift()
    }

    /// Whether `blocks` from `lba` lie within the volume.
    #[must_use]
    pub fn contains(&self, lba: u64, blocks: u64) -> bool {
        lba.checked_add(blocks)
            .is_some_and(|end| end <= self.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_a_volume_ends_where_it_ends() {
        let volume = Geometry {
            generation: 1,
            block_size: BlockSize::B512,
            blocks: 100,
            transfer_blocks_max: 8,
            transfer_blocks_optimal: 1,
            memory_alignment: 1,
            deallocate_blocks: 0,
            deallocated_read: DeallocatedRead::Unknown,
            volatile_cache: false,
            read_only: false,
            atomic_blocks: 1,
            atomic_blocks_power_fail: 1,
            compare_write_blocks: 0,
        };
        assert_eq!(volume.length_bytes(), 51_200);
        for (lba, blocks) in [(0, 1), (0, 100), (99, 1), (100, 0)] {
            assert!(volume.contains(lba, blocks), "{blocks} from {lba}");
        }
        for (lba, blocks) in [(100, 1), (99, 2), (0, 101), (u64::MAX, 1), (1, u64::MAX)] {
            assert!(!volume.contains(lba, blocks), "{blocks} from {lba}");
        }
    }
}
