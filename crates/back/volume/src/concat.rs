//! `concat:` puts its members one behind the other. It adds room, and members may be of any length.

use std::ops::Range;

use crate::set::label::Label;
use crate::set::{Kind, Layout, Place};

/// Sets whose members follow one another.
pub(crate) struct Concat;

impl Kind for Concat {
    fn scheme(&self) -> &'static str {
        "concat"
    }

    fn chunk_bytes(&self) -> u64 {
        // So that members may have blocks of either size.
        4096
    }

    fn is_even(&self) -> bool {
        false
    }

    fn layout(&self, labels: &[Label]) -> Box<dyn Layout> {
        let mut end = 0;
        let member = |label: &Label| {
            let shift = label.block_bytes.trailing_zeros();
            let start = end;
            end += label.data_bytes >> shift;
            Member {
                blocks: start..end,
                data_start: label.data_offset >> shift,
            }
        };
        Box::new(Members(labels.iter().map(member).collect()))
    }
}

struct Member {
    /// Of the set.
    blocks: Range<u64>,
    /// First block of data on the member.
    data_start: u64,
}

struct Members(Vec<Member>);

impl Layout for Members {
    fn locate(&self, lba: u64) -> Place {
        let member = self.0.partition_point(|member| member.blocks.end <= lba);
        let Member { blocks, data_start } = &self.0[member];
        Place {
            member,
            lba: data_start + lba - blocks.start,
            run: blocks.end - lba,
        }
    }

    fn on_member(&self, member: usize, lba: u64, blocks: u64) -> Range<u64> {
        let Member {
            blocks: own,
            data_start,
        } = &self.0[member];
        let (start, end) = (lba.max(own.start), (lba + blocks).min(own.end));
        if start >= end {
            return 0..0;
        }
        let on_member = |lba: u64| data_start + lba - own.start;
        on_member(start)..on_member(end)
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
            lengths in prop::collection::vec(1u64..60, 1..6), start in 0.0..1.0_f64, part in 0.0..1.0_f64
        ) {
            let label = |length: &u64| Label {
                scheme: "concat",
                set: [0; 16],
                index: 0,
                members: lengths.len() as u32,
                block_bytes: 512,
                chunk_bytes: 4096,
                data_bytes: length << 9,
                data_offset: 1 << 20,
            };
            let labels: Vec<_> = lengths.iter().map(label).collect();
            let all: u64 = lengths.iter().sum();
            let lba = (start * all as f64) as u64;
            let blocks = 1 + (part * (all - lba - 1) as f64) as u64;
            check(&*Concat.layout(&labels), lengths.len(), lba..lba + blocks);
        }
    }
}
