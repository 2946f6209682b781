//! `stripe:` spreads blocks over its members, chunk by chunk (RAID 0). It adds speed and room, and no safety.
//!
//! Chunk number c of the volume is chunk c / members of member c % members. So what a range of the volume has on one member
//! is one range there: the chunks of it follow one another.

use std::ops::Range;

use crate::set::label::Label;
use crate::set::{Kind, Layout, Place};
use crate::url::value_error;
use crate::{Parameters, UrlError};

/// Chunks are multiples of this, so that a block of either size lies in one.
const CHUNK_UNIT: u64 = 4096;
/// The largest chunk, in bytes.
const CHUNK_BYTES_MAX: u64 = 1 << 30;

/// Sets whose chunks go round.
pub(crate) struct Stripe;

impl Kind for Stripe {
    fn scheme(&self) -> &'static str {
        "stripe"
    }

    fn chunk_asked_for(&self, parameters: &Parameters<'_>) -> Result<Option<u64>, UrlError> {
        let asked = parameters.size("chunk")?;
        let fits = |bytes: u64| {
            (CHUNK_UNIT..=CHUNK_BYTES_MAX).contains(&bytes) && bytes.is_multiple_of(CHUNK_UNIT)
        };
        if let Some(bytes) = asked.filter(|&bytes| !fits(bytes)) {
            let allowed = format!("a multiple of {CHUNK_UNIT} up to {CHUNK_BYTES_MAX}");
            return Err(value_error("chunk", &bytes.to_string(), allowed));
        }
        Ok(asked)
    }

    fn chunk_bytes(&self) -> u64 {
        128 << 10
    }

    fn is_even(&self) -> bool {
        true
    }

    fn layout(&self, labels: &[Label]) -> Box<dyn Layout> {
        let label = labels[0];
        let shift = label.block_bytes.trailing_zeros();
        Box::new(Chunks {
            members: u64::from(label.members),
            chunk: label.chunk_bytes >> shift,
            data_start: label.data_offset >> shift,
        })
    }
}

/// Its layout, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Chunks {
    members: u64,
    chunk: u64,
    /// First block of data on each member.
    data_start: u64,
}

impl Layout for Chunks {
    fn locate(&self, lba: u64) -> Place {
        let (chunk, within) = (lba / self.chunk, lba % self.chunk);
        let row = chunk / self.members;
        Place {
            member: (chunk % self.members) as usize,
            lba: self.data_start + row * self.chunk + within,
            run: match self.members {
                1 => u64::MAX,
                _ => self.chunk - within,
            },
        }
    }

    fn on_member(&self, member: usize, lba: u64, blocks: u64) -> Range<u64> {
        let (first, last) = (lba / self.chunk, (lba + blocks - 1) / self.chunk);
        let member = member as u64;
        // The first and the last chunk of the range that are this member's.
        let from = first + (member + self.members - first % self.members) % self.members;
        let back = (last % self.members + self.members - member) % self.members;
        if from > last || back > last || last - back < first {
            return 0..0;
        }
        let to = last - back;
        let start = if from == first { lba % self.chunk } else { 0 };
        let end = if to == last {
            (lba + blocks - 1) % self.chunk + 1
        } else {
            self.chunk
        };
        let row = |chunk: u64| self.data_start + chunk / self.members * self.chunk;
        row(from) + start..row(to) + end
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::set::tests::check;

    proptest! {
        #[test]
        fn every_block_is_in_one_place_and_what_a_member_has_of_a_range_is_one_range(
            members in 1u64..6, chunk in 1u64..9, data_start in 0u64..3, lba in 0u64..100, blocks in 1u64..200
        ) {
            let layout = Chunks { members, chunk, data_start };
            check(&layout, members as usize, lba..lba + blocks);
        }
    }
}
