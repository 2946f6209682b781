//! Blocks that say what they are: which write of which block of which run put them there.
//!
//! Layout of a stamped block of any size, little-endian: bytes 0-7 the magic, 8-15 the run's seed, 16-23 the block's
//! address, 24-31 the sequence number of the write, 32-39 a checksum of the three; from 40 on a pseudo-random stream seeded by that
//! checksum, so that every byte of the block depends on all of them, every bit is checked, and no two blocks look alike to a
//! medium that compresses or deduplicates.
//!
//! This module writes blocks and reads what they say. What a wrong one means is found in `diagnosis`.

use std::fmt;

use weir_reactor::random::{Random, mix};

/// The bits of a sequence number that count; those above say which machine of a run on several wrote.
pub(crate) const SEQUENCE_BITS: u32 = 48;

/// A sequence number as it counts, without who wrote.
pub(crate) fn number_of(sequence: u64) -> u64 {
    sequence & ((1 << SEQUENCE_BITS) - 1)
}

/// Which machine of a run on several wrote, from 1 on; 0 where there is one.
pub(crate) fn writer_of(sequence: u64) -> u64 {
    sequence >> SEQUENCE_BITS
}

const MAGIC: [u8; 8] = *b"WEIRSTMP";
const HEADER_LEN: usize = 40;

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    /// Which run wrote it.
    pub(crate) seed: u64,
    /// Which block it was written to.
    pub(crate) lba: u64,
    /// Which write of this block it was: later ones have greater numbers. A verification numbers its passes; the first is 1.
    pub(crate) sequence: u64,
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "block {}, sequence {} of run {:#018x}",
            self.lba,
            number_of(self.sequence),
            self.seed
        )?;
        match writer_of(self.sequence) {
            0 => Ok(()),
            writer => write!(formatter, " by machine {writer}"),
        }
    }
}

impl Stamp {
    fn checksum(&self) -> u64 {
        mix(self.seed ^ mix(self.lba ^ mix(self.sequence)))
    }

    /// Writes the whole block.
    pub(crate) fn write(&self, block: &mut [u8]) {
        let (header, body) = block.split_at_mut(HEADER_LEN);
        header[0..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&self.seed.to_le_bytes());
        header[16..24].copy_from_slice(&self.lba.to_le_bytes());
        header[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        header[32..40].copy_from_slice(&self.checksum().to_le_bytes());
        Random::new(self.checksum()).fill(body);
    }

    /// What the whole block holds.
    pub(crate) fn contents(&self, block_len: usize) -> Vec<u8> {
        let mut block = vec![0; block_len];
        self.write(&mut block);
        block
    }

    /// Whether `block` is just what this stamp says.
    pub(crate) fn is_in(&self, block: &[u8]) -> bool {
        header(block) == Some(*self) && is_body_of(self, block)
    }
}

/// What the header of `block` says, where that is one.
pub(crate) fn header(block: &[u8]) -> Option<Stamp> {
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
    let stamp = Stamp {
        seed: word(8),
        lba: word(16),
        sequence: word(24),
    };
    (block[0..8] == MAGIC && word(32) == stamp.checksum()).then_some(stamp)
}

/// The stamp of a block that is whole.
pub(crate) fn whole(block: &[u8]) -> Option<Stamp> {
    header(block).filter(|stamp| is_body_of(stamp, block))
}

fn is_body_of(stamp: &Stamp, block: &[u8]) -> bool {
    let mut random = Random::new(stamp.checksum());
    block[HEADER_LEN..].chunks(8).all(|chunk| {
        let expected = random.next().to_le_bytes();
        *chunk == expected[..chunk.len()]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        seed: 11,
        lba: 22,
        sequence: 3,
    };

    #[test]
    fn a_block_is_known_again_and_every_damage_is_seen() {
        for size in [512, 4096] {
            let mut block = STAMP.contents(size);
            assert!(STAMP.is_in(&block));
            assert_eq!(whole(&block), Some(STAMP));
            for byte in 0..size {
                block[byte] ^= 1;
                assert!(!STAMP.is_in(&block), "byte {byte}");
                assert_eq!(whole(&block), None, "byte {byte}");
                let header_is_there = byte >= HEADER_LEN;
                assert_eq!(header(&block).is_some(), header_is_there, "byte {byte}");
                block[byte] ^= 1;
            }
        }
    }

    #[test]
    fn another_block_is_not_taken_for_this_one() {
        assert_eq!(whole(&[0; 512]), None);
        for other in [
            Stamp { lba: 23, ..STAMP },
            Stamp {
                sequence: 2,
                ..STAMP
            },
            Stamp { seed: 12, ..STAMP },
        ] {
            let block = other.contents(512);
            assert!(!STAMP.is_in(&block));
            assert_eq!(whole(&block), Some(other));
        }
    }
}
