//! Blocks that say what they are: which write of which block of which run put them there.
//!
//! Layout of a stamped block of any size, little-endian: bytes 0-7 the magic, 8-15 the run's seed, 16-23 the block's
//! address, 24-31 the pass, 32-39 a hash of the three; from 40 on a pseudo-random stream seeded by that hash, so that every
//! byte of the block depends on all of them and no two blocks look alike to a medium that compresses or deduplicates.

use std::fmt;

use crate::random::{Random, mix};

const MAGIC: [u8; 8] = *b"WEIRSTMP";
const HEADER_LEN: usize = 40;

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Which run wrote it.
    pub seed: u64,
    /// Which block it was written to.
    pub lba: u64,
    /// In which pass of the run; the first is 1.
    pub pass: u64,
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "block {} of pass {} of run {:#018x}",
            self.lba, self.pass, self.seed
        )
    }
}

/// What was found where a stamped block should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Another stamped block, whole.
    Stamped(Stamp),
    /// A stamped block whose contents are damaged from this byte on.
    Damaged {
        /// What its header says.
        stamp: Stamp,
        /// The first byte that is wrong.
        byte: usize,
    },
    /// Only zeroes.
    Zeroes,
    /// Neither zeroes nor a stamp.
    Foreign,
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Stamped(stamp) => write!(formatter, "{stamp}"),
            Found::Damaged { stamp, byte } => {
                write!(formatter, "{stamp}, damaged from byte {byte} on")
            }
            Found::Zeroes => formatter.write_str("zeroes"),
            Found::Foreign => formatter.write_str("data that this tool did not write"),
        }
    }
}

impl Stamp {
    fn hash(&self) -> u64 {
        mix(self.seed ^ mix(self.lba ^ mix(self.pass)))
    }

    /// Writes the whole block.
    pub(crate) fn write(&self, block: &mut [u8]) {
        let (header, body) = block.split_at_mut(HEADER_LEN);
        header[0..8].copy_from_slice(&MAGIC);
        header[8..16].copy_from_slice(&self.seed.to_le_bytes());
        header[16..24].copy_from_slice(&self.lba.to_le_bytes());
        header[24..32].copy_from_slice(&self.pass.to_le_bytes());
        header[32..40].copy_from_slice(&self.hash().to_le_bytes());
        Random::new(self.hash()).fill(body);
    }

    /// What `block` holds; `Ok` when it is just this stamp's.
    pub(crate) fn check(&self, block: &[u8]) -> Result<(), Found> {
        match read(block) {
            Found::Stamped(stamp) if stamp == *self => Ok(()),
            found => Err(found),
        }
    }
}

/// What `block` holds.
pub(crate) fn read(block: &[u8]) -> Found {
    if block.iter().all(|&byte| byte == 0) {
        return Found::Zeroes;
    }
    let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
    let stamp = Stamp {
        seed: word(8),
        lba: word(16),
        pass: word(24),
    };
    if block[0..8] != MAGIC || word(32) != stamp.hash() {
        return Found::Foreign;
    }
    match first_wrong_byte(&block[HEADER_LEN..], stamp.hash()) {
        Some(at) => Found::Damaged {
            stamp,
            byte: HEADER_LEN + at,
        },
        None => Found::Stamped(stamp),
    }
}

fn first_wrong_byte(body: &[u8], seed: u64) -> Option<usize> {
    let mut random = Random::new(seed);
    for (index, chunk) in body.chunks(8).enumerate() {
        let expected = random.next().to_le_bytes();
        if *chunk != expected[..chunk.len()] {
            let within = chunk
                .iter()
                .zip(expected)
                .position(|(&found, expected)| found != expected);
            return within.map(|within| index * 8 + within);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp {
        seed: 11,
        lba: 22,
        pass: 3,
    };

    #[test]
    fn a_block_is_known_again_and_every_damage_is_named() {
        for size in [512, 4096] {
            let mut block = vec![0; size];
            STAMP.write(&mut block);
            assert_eq!(STAMP.check(&block), Ok(()));
            for byte in [40, 41, size / 2, size - 1] {
                block[byte] ^= 1;
                assert_eq!(
                    STAMP.check(&block),
                    Err(Found::Damaged { stamp: STAMP, byte })
                );
                block[byte] ^= 1;
            }
            block[20] ^= 1;
            assert_eq!(STAMP.check(&block), Err(Found::Foreign));
        }
    }

    #[test]
    fn another_block_is_not_taken_for_this_one() {
        let mut block = vec![0; 512];
        assert_eq!(STAMP.check(&block), Err(Found::Zeroes));
        for other in [
            Stamp { lba: 23, ..STAMP },
            Stamp { pass: 2, ..STAMP },
            Stamp { seed: 12, ..STAMP },
        ] {
            other.write(&mut block);
            assert_eq!(STAMP.check(&block), Err(Found::Stamped(other)));
        }
    }
}
