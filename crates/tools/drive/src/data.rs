//! The data that is written: aligned, random, and known again by its place.
//!
//! Writes take their data from one buffer of random bytes that is much longer than what a drive looks at to compress; from where in it depends on the drive's
//! mark, the pass and the place, so that a place can be read again and compared, no pass writes what was there, and no drive holds what another one does.

use std::sync::Arc;

use weir_memory::{ALIGNMENT, SharedBuffer, View};
use weir_reactor::random::{Random, mix};

use crate::document::PassKind;

/// The longest write.
pub const BLOCK_BYTES_MAX: u64 = 4 << 20;
/// Random bytes that data is taken from. Drives that compress look at tens of KiB.
const POOL_BYTES: usize = 32 << 20;

/// Data to write.
#[derive(Clone)]
pub struct Data {
    pool: Arc<SharedBuffer>,
    mark: u64,
}

impl Data {
    /// That of a seed, for a drive with this mark.
    #[must_use]
    pub fn new(seed: u64, mark: u64) -> Self {
        let seed = seed ^ mix(mark);
        Data {
            pool: SharedBuffer::new(POOL_BYTES, |bytes| Random::new(seed).fill(bytes)),
            mark,
        }
    }

    /// For another drive of the same run, from the same buffer.
    #[must_use]
    pub fn of(&self, mark: u64) -> Self {
        Data {
            pool: Arc::clone(&self.pool),
            mark,
        }
    }

    /// What is written at a place in a pass: `bytes` bytes, which are at most [`BLOCK_BYTES_MAX`].
    #[must_use]
    pub fn at(&self, pass: PassKind, offset: u64, bytes: u64) -> View {
        let length = bytes as usize;
        let places = ((self.pool.len() - length) / ALIGNMENT + 1) as u64;
        let pick = mix(self.mark ^ mix(offset ^ mix(pass as u64 + 1)));
        let from = (pick % places) as usize * ALIGNMENT;
        self.pool.view().slice(from..from + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_known_by_seed_mark_pass_and_place() {
        let (data, other) = (Data::new(1, 7), Data::new(2, 7));
        let at = |data: &Data, pass, offset| data.at(pass, offset, 8192).to_vec();
        let first = at(&data, PassKind::Fill, 0);
        assert_eq!(first, at(&Data::new(1, 7), PassKind::Fill, 0));
        assert_ne!(first, at(&data, PassKind::Fill, 8192));
        assert_ne!(first, at(&data, PassKind::Overwrite, 0));
        assert_ne!(first, at(&other, PassKind::Fill, 0));
        assert_ne!(first, at(&data.of(8), PassKind::Fill, 0));
        assert_ne!(first, at(&Data::new(1, 8), PassKind::Fill, 0));
        let whole = data.at(PassKind::Fill, 0, BLOCK_BYTES_MAX);
        assert_eq!(whole.as_ptr() as usize % ALIGNMENT, 0);
    }
}
