//! Where the blocks of a stripe are: pure arithmetic.
//!
//! Chunk number c of the volume is chunk c / members of member c % members. So what a range of the volume has on one member
//! is one range there: the chunks of it follow one another.

use std::ops::Range;

/// The layout of a set, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) members: u64,
    pub(crate) chunk: u64,
    /// First block of data on each member.
    pub(crate) data_start: u64,
}

/// One chunk's part of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) member: usize,
    /// First block on the member.
    pub(crate) lba: u64,
    /// Blocks from the start of the range.
    pub(crate) offset: u64,
    pub(crate) blocks: u64,
}

impl Layout {
    fn locate(&self, lba: u64) -> (usize, u64) {
        let (chunk, within) = (lba / self.chunk, lba % self.chunk);
        let row = chunk / self.members;
        let member = (chunk % self.members) as usize;
        (member, self.data_start + row * self.chunk + within)
    }

    /// The member that has all of a range, and where, if one has.
    pub(crate) fn single(&self, lba: u64, blocks: u64) -> Option<(usize, u64)> {
        let one = self.members == 1 || lba % self.chunk + blocks <= self.chunk;
        one.then(|| self.locate(lba))
    }

    /// The pieces of a range, in order.
    pub(crate) fn pieces(&self, lba: u64, blocks: u64) -> impl Iterator<Item = Piece> + use<> {
        let layout = *self;
        let end = lba + blocks;
        let mut next = lba;
        std::iter::from_fn(move || {
            if next == end {
                return None;
            }
            let length = (layout.chunk - next % layout.chunk).min(end - next);
            let (member, at) = layout.locate(next);
            let piece = Piece {
                member,
                lba: at,
                offset: next - lba,
                blocks: length,
            };
            next += length;
            Some(piece)
        })
    }

    /// What a range has on one member; empty where it has nothing there.
    pub(crate) fn on_member(&self, member: usize, lba: u64, blocks: u64) -> Range<u64> {
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

    proptest! {
        /// The pieces of a range cover it once, and each member's are one range without gaps.
        #[test]
        fn pieces_and_ranges_agree(
            members in 1u64..6, chunk in 1u64..9, data_start in 0u64..3, lba in 0u64..100, blocks in 1u64..200
        ) {
            let layout = Layout { members, chunk, data_start };
            let mut on_members = vec![Vec::new(); members as usize];
            let mut offset = 0;
            for piece in layout.pieces(lba, blocks) {
                prop_assert_eq!(piece.offset, offset);
                offset += piece.blocks;
                on_members[piece.member].extend(piece.lba..piece.lba + piece.blocks);
            }
            prop_assert_eq!(offset, blocks);
            for (member, blocks_there) in on_members.into_iter().enumerate() {
                let range: Vec<_> = layout.on_member(member, lba, blocks).collect();
                prop_assert_eq!(range, blocks_there);
            }
            if let Some((member, at)) = layout.single(lba, blocks) {
                prop_assert_eq!(layout.on_member(member, lba, blocks), at..at + blocks);
            }
        }

        /// No two blocks of the volume are in one place.
        #[test]
        fn places_are_distinct(members in 1u64..6, chunk in 1u64..9) {
            let layout = Layout { members, chunk, data_start: 1 };
            let places: std::collections::HashSet<_> = (0..200).map(|lba| layout.locate(lba)).collect();
            prop_assert_eq!(places.len(), 200);
        }
    }
}
