//! Requests that take several steps below: too long, not aligned to the blocks below, or not supported there.
//!
//! Positions are in bytes here, as both sizes of block are at work. No step holds a buffer while it waits for another: a
//! read that is longer than one transfer takes all of its buffers first.

use std::ops::Range;
use std::rc::Rc;

use weir_block::{Operation, OperationKind, ReadBuffers, VolumeError, compare_write_halves};
use weir_memory::{Segment, Segments, View, Views, slice_views};

use super::lane::{Emulated, Lane, Ticket};
use crate::support::{TRANSFER_BYTES_MAX, compare_views, copy_at, fill, freeze, pool_segments};
use weir_reactor::Key;

/// What can be done by other means where the volume below does not support it.
pub(super) fn can_emulate(kind: OperationKind) -> bool {
    match kind {
        OperationKind::Compare
        | OperationKind::CompareWrite
        | OperationKind::WriteZeroes
        | OperationKind::Deallocate
        | OperationKind::Verify => true,
        OperationKind::Read | OperationKind::Write | OperationKind::Flush => false,
    }
}

/// Does one request of the user.
pub(super) async fn run(
    lane: &Rc<Lane>,
    key: Key,
    operation: &mut Operation,
) -> Result<(), VolumeError> {
    let guard = &lane.guard;
    let shift = guard.inner_shift - guard.ratio_shift;
    let (lba, blocks) = operation.range().expect("a flush is one step");
    let range = lba << shift..(lba + blocks) << shift;
    let steps = Steps { lane, key };
    let result = steps.run(operation, range).await;
    let is_changed = lane.emulated(key, |entry| entry.changed);
    result.map_err(|error| match is_changed {
        true => error.after_a_part(),
        false => error,
    })
}

/// A part of a range, in bytes.
struct Part {
    /// Its start in the blocks that hold it.
    within: usize,
    /// Its start in the range.
    offset: usize,
    bytes: usize,
}

struct Steps<'lane> {
    lane: &'lane Rc<Lane>,
    key: Key,
}

impl Steps<'_> {
    async fn run(&self, operation: &mut Operation, range: Range<u64>) -> Result<(), VolumeError> {
        match operation {
            Operation::Read { buffers, .. } => self.read(range, buffers).await,
            Operation::Write { data, fua, .. } => self.write(range, data, *fua).await,
            Operation::WriteZeroes {
                deallocate, fua, ..
            } => self.write_zeroes(range, *deallocate, *fua).await,
            Operation::Compare { data, .. } => self.compare(range, data, None).await,
            Operation::CompareWrite { data, fua, .. } => {
                let (compare, data) = compare_write_halves(data);
                let ticket = self.lane.lock(self.covering(&range)).await;
                self.compare(range.clone(), &compare, Some(&ticket)).await?;
                self.write_under(range, &data, *fua, &ticket).await
            }
            Operation::Deallocate { .. } => self.deallocate(range).await,
            Operation::Verify { .. } => self.verify(range).await,
            Operation::Flush => unreachable!("a flush is one step"),
        }
    }

    fn block(&self) -> u64 {
        1 << self.lane.guard.inner_shift
    }

    /// The blocks below that a range touches.
    fn covering(&self, range: &Range<u64>) -> Range<u64> {
        range.start / self.block()..range.end.div_ceil(self.block())
    }

    /// The blocks below that lie wholly in a range.
    fn within(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.div_ceil(self.block());
        start..(range.end / self.block()).max(start)
    }

    fn is_aligned(&self, range: &Range<u64>) -> bool {
        (range.start | range.end).is_multiple_of(self.block())
    }

    /// Blocks in parts that the volume below takes as one transfer.
    fn transfers(&self, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        pieces(blocks, u64::from(self.lane.guard.inner_transfer_blocks_max))
    }

    /// One request below. Where the user wishes no more, none begins until one has changed something.
    async fn call(
        &self,
        operation: Operation,
        under: Option<&Ticket>,
    ) -> (Result<(), VolumeError>, Operation) {
        let is_over = |entry: &mut Emulated| entry.cancelled && !entry.changed;
        if self.lane.emulated(self.key, is_over) {
            return (Err(VolumeError::Cancelled), operation);
        }
        self.lane.call(self.key, operation, under).await
    }

    /// Something has changed: the request is not ended early any more.
    fn note_changed(&self) {
        self.lane.emulated(self.key, |entry| entry.changed = true);
    }

    /// One request below, where the volume there supports it.
    async fn native(&self, operation: Operation) -> Option<Result<(), VolumeError>> {
        let (result, _) = self.call(operation, None).await;
        (result != Err(VolumeError::Unsupported)).then_some(result)
    }

    /// Parts of a range in bytes, each with the blocks that hold it, as the volume below takes them as one transfer.
    fn parts(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, Part)> {
        let (range, block) = (range.clone(), self.block());
        self.transfers(self.covering(&range)).map(move |blocks| {
            let base = blocks.start * block;
            let start = range.start.max(base);
            let end = range.end.min(blocks.end * block);
            let part = Part {
                within: (start - base) as usize,
                offset: (start - range.start) as usize,
                bytes: (end - start) as usize,
            };
            (blocks, part)
        })
    }

    /// Reads for a request that holds memory. It does not wait for more: all of the pool may be held by
    /// requests that wait like this one. What is not had of the pool is no longer than what the request holds.
    async fn read_blocks_holding(
        &self,
        blocks: Range<u64>,
        under: Option<&Ticket>,
    ) -> Result<Views, VolumeError> {
        let bytes = ((blocks.end - blocks.start) * self.block()) as usize;
        let pooled = pool_segments(self.lane.reactor.pool(), bytes);
        let segments = pooled.unwrap_or_else(|| Segments::from_iter([Segment::heap(bytes)]));
        self.read_into(blocks, ReadBuffers::Into(segments), under)
            .await
    }

    async fn read_into(
        &self,
        blocks: Range<u64>,
        buffers: ReadBuffers,
        under: Option<&Ticket>,
    ) -> Result<Views, VolumeError> {
        let read = Operation::Read {
            lba: blocks.start,
            blocks: length(&blocks),
            buffers,
        };
        let (result, read) = self.call(read, under).await;
        result?;
        match read {
            Operation::Read {
                buffers: ReadBuffers::Filled(data),
                ..
            } => Ok(data),
            _ => unreachable!("a read that succeeded is filled"),
        }
    }

    async fn read(&self, range: Range<u64>, buffers: &mut ReadBuffers) -> Result<(), VolumeError> {
        let blocks = self.covering(&range);
        let bytes = (range.end - range.start) as usize;
        let base = blocks.start * self.block();
        if blocks.end - blocks.start <= u64::from(self.lane.guard.inner_transfer_blocks_max) {
            let data = self.read_into(blocks, ReadBuffers::Lend, None).await?;
            let data = slice_views(&data, (range.start - base) as usize, bytes);
            fill(buffers, data);
            return Ok(());
        }
        if let ReadBuffers::Lend = buffers {
            *buffers = ReadBuffers::Into(self.lane.segments(bytes).await);
        }
        for (blocks, part) in self.parts(&range) {
            let data = self.read_blocks_holding(blocks, None).await?;
            let ReadBuffers::Into(segments) = buffers else {
                unreachable!("they were taken above")
            };
            let data = slice_views(&data, part.within, part.bytes);
            copy_at(&data, segments, part.offset);
        }
        let ReadBuffers::Into(segments) = std::mem::replace(buffers, ReadBuffers::Lend) else {
            unreachable!("they were taken above")
        };
        *buffers = ReadBuffers::Filled(freeze(segments));
        Ok(())
    }

    async fn write(&self, range: Range<u64>, data: &Views, fua: bool) -> Result<(), VolumeError> {
        if self.is_aligned(&range) {
            return self
                .write_blocks(self.covering(&range), data, fua, None)
                .await;
        }
        let ticket = self.lane.lock(self.covering(&range)).await;
        self.write_under(range, data, fua, &ticket).await
    }

    /// Writes a range that is locked. Where it does not begin and end with a block below, the rest of that is read first.
    async fn write_under(
        &self,
        range: Range<u64>,
        data: &[View],
        fua: bool,
        ticket: &Ticket,
    ) -> Result<(), VolumeError> {
        let blocks = self.covering(&range);
        let before = (range.start - blocks.start * self.block()) as usize;
        let after = (blocks.end * self.block() - range.end) as usize;
        let mut whole = Views::new();
        if before > 0 {
            let first = blocks.start..blocks.start + 1;
            let there = self.read_blocks_holding(first, Some(ticket)).await?;
            whole.extend(slice_views(&there, 0, before));
        }
        whole.extend(data.iter().cloned());
        if after > 0 {
            let last = blocks.end - 1..blocks.end;
            let there = self.read_blocks_holding(last, Some(ticket)).await?;
            whole.extend(slice_views(&there, self.block() as usize - after, after));
        }
        self.write_blocks(blocks, &whole, fua, Some(ticket)).await
    }

    async fn write_blocks(
        &self,
        blocks: Range<u64>,
        data: &[View],
        fua: bool,
        under: Option<&Ticket>,
    ) -> Result<(), VolumeError> {
        let first = blocks.start;
        for part in self.transfers(blocks) {
            let from = ((part.start - first) * self.block()) as usize;
            let bytes = ((part.end - part.start) * self.block()) as usize;
            let write = Operation::Write {
                lba: part.start,
                blocks: length(&part),
                data: slice_views(data, from, bytes),
                fua,
            };
            self.call(write, under).await.0?;
            self.note_changed();
        }
        Ok(())
    }

    async fn write_zeroes(
        &self,
        range: Range<u64>,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), VolumeError> {
        let middle = self.within(&range);
        if middle.is_empty() {
            return self.zero_edge(range, fua).await;
        }
        let head = range.start..middle.start * self.block();
        let tail = middle.end * self.block()..range.end;
        if !head.is_empty() {
            self.zero_edge(head, fua).await?;
        }
        self.zero_blocks(middle, deallocate, fua).await?;
        if !tail.is_empty() {
            self.zero_edge(tail, fua).await?;
        }
        Ok(())
    }

    async fn zero_edge(&self, range: Range<u64>, fua: bool) -> Result<(), VolumeError> {
        let ticket = self.lane.lock(self.covering(&range)).await;
        let zeroes: Views = View::zeroes((range.end - range.start) as usize).collect();
        self.write_under(range, &zeroes, fua, &ticket).await
    }

    async fn zero_blocks(
        &self,
        blocks: Range<u64>,
        deallocate: bool,
        fua: bool,
    ) -> Result<(), VolumeError> {
        let native = Operation::WriteZeroes {
            lba: blocks.start,
            blocks: blocks.end - blocks.start,
            deallocate,
            fua,
        };
        if let Some(ended) = self.native(native).await {
            if ended.is_ok() {
                self.note_changed();
            }
            return ended;
        }
        for part in pieces(blocks, u64::from(TRANSFER_BYTES_MAX) / self.block()) {
            let bytes = ((part.end - part.start) * self.block()) as usize;
            let zeroes: Views = View::zeroes(bytes).collect();
            self.write_blocks(part, &zeroes, fua, None).await?;
        }
        Ok(())
    }

    async fn compare(
        &self,
        range: Range<u64>,
        data: &[View],
        under: Option<&Ticket>,
    ) -> Result<(), VolumeError> {
        for (blocks, part) in self.parts(&range) {
            let there = self.read_blocks_holding(blocks, under).await?;
            let there = slice_views(&there, part.within, part.bytes);
            let expected = slice_views(data, part.offset, part.bytes);
            let compared = compare_views(&expected, &there);
            compared.map_err(|error| counted_from(error, part.offset as u64))?;
        }
        Ok(())
    }

    /// A hint: what does not fill a block below stays, and so does everything where the volume does not support it.
    async fn deallocate(&self, range: Range<u64>) -> Result<(), VolumeError> {
        let blocks = self.within(&range);
        if blocks.is_empty() {
            return Ok(());
        }
        let deallocate = Operation::Deallocate {
            lba: blocks.start,
            blocks: blocks.end - blocks.start,
        };
        self.native(deallocate).await.unwrap_or(Ok(()))
    }

    async fn verify(&self, range: Range<u64>) -> Result<(), VolumeError> {
        let blocks = self.covering(&range);
        let verify = Operation::Verify {
            lba: blocks.start,
            blocks: blocks.end - blocks.start,
        };
        if let Some(ended) = self.native(verify).await {
            return ended;
        }
        for part in self.transfers(blocks) {
            drop(self.read_into(part, ReadBuffers::Lend, None).await?);
        }
        Ok(())
    }
}

fn length(blocks: &Range<u64>) -> u32 {
    u32::try_from(blocks.end - blocks.start).expect("a transfer is bounded")
}

/// A range in parts of at most `longest`.
fn pieces(range: Range<u64>, longest: u64) -> impl Iterator<Item = Range<u64>> {
    let mut start = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min(start + longest);
        let part = start..end;
        start = end;
        (!part.is_empty()).then_some(part)
    })
}

/// A miscompare in a part, as one of the whole.
fn counted_from(error: VolumeError, start: u64) -> VolumeError {
    match error {
        VolumeError::Miscompare { offset } => VolumeError::Miscompare {
            offset: start + offset,
        },
        error => error,
    }
}
