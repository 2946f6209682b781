//! Reading of blocks whoever looks for what is wrong: block by block, again, and on the whole volume for what went elsewhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{BlockSize, Operation, ReadBuffers, Volume};
use weir_memory::View;
use weir_reactor::Reactor;

use crate::PROGRESS_INTERVAL;
use crate::diagnosis::Finding;
use crate::lane::{Ended, Lane};
use crate::pattern::{self, Stamp};

/// Pauses before what is wrong is read again.
pub(crate) const AGAIN_AFTER: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(100),
];
/// The longest request of a search, in bytes.
const SEARCH_BYTES_MAX: u64 = 1 << 20;
/// Requests in flight of a search.
const SEARCH_DEPTH: u32 = 8;

/// Where writes that seem lost went.
pub(crate) struct Search {
    wanted: Vec<Stamp>,
    found: HashMap<Stamp, u64>,
}

impl Search {
    /// For what the findings of the run `seed` miss, of which some was seen at the places of `strays`.
    pub(crate) fn of(seed: u64, findings: &[Finding], strays: HashMap<Stamp, u64>) -> Self {
        let wanted = findings.iter().filter_map(|finding| finding.missing(seed));
        Search {
            wanted: wanted.collect(),
            found: strays,
        }
    }

    fn has_all(&self) -> bool {
        let mut wanted = self.wanted.iter();
        wanted.all(|stamp| self.found.contains_key(stamp))
    }

    /// Reads the whole volume, if need be and for as long as `goes_on` says, and says where each stamp is. What cannot be read is
    /// passed over: there is no more to be known. `shown` is told the block that it is at, every so often.
    pub(crate) async fn run(
        mut self,
        control: &Reactor,
        volume: &Arc<dyn Volume>,
        goes_on: impl Fn() -> bool,
        mut shown: impl FnMut(u64),
    ) -> HashMap<Stamp, u64> {
        if self.has_all() {
            return self.found;
        }
        let geometry = volume.geometry();
        let shift = geometry.block_size.shift();
        let transfer = (SEARCH_BYTES_MAX >> shift).min(u64::from(geometry.transfer_blocks_max));
        let Ok(mut lane) = Lane::open(control, volume, SEARCH_DEPTH) else {
            return self.found;
        };
        let (mut next, mut last) = (0, control.now());
        loop {
            while lane.has_room() && next < geometry.blocks && !self.has_all() && goes_on() {
                let blocks = transfer.min(geometry.blocks - next);
                lane.push(next, read_of(next, blocks as u32));
                next += blocks;
            }
            if lane.is_idle() {
                return self.found;
            }
            let Ended { tag, operation, .. } = lane.next().await;
            self.look_through(tag, geometry.block_size, &operation);
            if control.now() - last >= PROGRESS_INTERVAL {
                last = control.now();
                shown(next);
            }
        }
    }

    fn look_through(&mut self, lba: u64, block_size: BlockSize, read: &Operation) {
        let mut at = lba;
        for_each_block(filled(read), block_size.bytes() as usize, |block| {
            if let Some(stamp) = pattern::header(block)
                && stamp.lba != at
                && self.wanted.contains(&stamp)
            {
                self.found.entry(stamp).or_insert(at);
            }
            at += 1;
        });
    }
}

/// The data of a read that succeeded; nothing of another operation.
pub(crate) fn filled(operation: &Operation) -> &[View] {
    match operation {
        Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } => data,
        _ => &[],
    }
}

pub(crate) fn read_of(lba: u64, blocks: u32) -> Operation {
    Operation::Read {
        lba,
        blocks,
        buffers: ReadBuffers::Lend,
    }
}

/// Calls `visit` with each block of `data`; blocks that lie across two views are put together. A part of a block at the end is left out.
pub(crate) fn for_each_block(data: &[View], block_len: usize, mut visit: impl FnMut(&[u8])) {
    let mut partial: Vec<u8> = Vec::new();
    for view in data {
        let mut rest: &[u8] = view;
        if !partial.is_empty() {
            let missing = (block_len - partial.len()).min(rest.len());
            let (head, tail) = rest.split_at(missing);
            partial.extend_from_slice(head);
            rest = tail;
            if partial.len() == block_len {
                visit(&partial);
                partial.clear();
            }
        }
        let blocks = rest.chunks_exact(block_len);
        partial.extend_from_slice(blocks.remainder());
        blocks.for_each(&mut visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_across_views_are_put_together() {
        let bytes: Vec<u8> = (0..64).collect();
        let whole = View::copy_of(&bytes);
        for cut in 1..63 {
            let views = [whole.slice(0..cut), whole.slice(cut..64)];
            let mut seen = Vec::new();
            for_each_block(&views, 16, |block| {
                assert_eq!(block.len(), 16);
                seen.extend_from_slice(block);
            });
            assert_eq!(seen, bytes);
        }
        let mut blocks = 0;
        for_each_block(&[whole.slice(0..20), whole.slice(20..47)], 16, |_| {
            blocks += 1
        });
        assert_eq!(blocks, 2);
    }
}
