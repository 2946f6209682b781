//! A modelled drive's part of a request: it goes to the volume below, and its completion waits for the drive.

use std::sync::Arc;

use weir_block::{BlockSize, Completion, Geometry, Landing, Operation, VolumeError};
use weir_reactor::{Instant, Key};
use weir_volume::parts::{BackEnd, Lane, Turn, Work, pool_landing};

use super::{Clock, Drive, SsdVolume};
use crate::Model;

type Next = weir_volume::parts::Next<Operation>;

/// State of a request on its way.
#[derive(Default)]
pub(super) struct State {
    /// When the drive is done with it.
    due: Instant,
    /// What the drive is asked once it has ended below.
    asks: Option<Asked>,
}

/// One reactor's part of a modelled drive.
pub(super) struct SsdLane {
    drive: Arc<Drive>,
    geometry: Geometry,
    passes_deallocations: bool,
}

impl SsdLane {
    pub(super) fn new(volume: &SsdVolume) -> Self {
        SsdLane {
            drive: Arc::clone(&volume.drive),
            geometry: volume.geometry,
            passes_deallocations: volume.passes_deallocations,
        }
    }

    /// Has the drive begin a request; when it is done.
    fn ask(&self, turn: &Turn<'_>, asked: Asked) -> Instant {
        let now = turn.reactor.now();
        Instant::from_nanos(self.drive.ask(now, |model, now| asked.ask(model, now)))
    }
}

impl BackEnd for SsdLane {
    type State = State;
    type Action = Operation;
    type Held<'a> = ();
    /// The model is asked in the order of a batch, also for requests of which it is asked once they have ended below at once.
    const IS_ONE_BY_ONE: bool = true;

    fn hold(&self) -> (Geometry, ()) {
        (self.geometry, ())
    }

    fn landing(&self, lane: &Lane<Self>, lba: u64, blocks: u32) -> Landing {
        match lane.below.landing(0, lba, blocks) {
            // A completion that waits for the drive keeps its data for as long.
            Landing::Anywhere => {
                let bytes = (blocks as usize) << self.geometry.block_size.shift();
                pool_landing(lane.reactor.pool(), bytes)
            }
            landing => landing,
        }
    }

    fn start(&self, turn: &Turn<'_>, (): &(), work: Work<'_, State>) -> Next {
        let asked = Asked::of(work.operation, self.geometry.block_size);
        let is_deallocation = matches!(work.operation, Operation::Deallocate { .. });
        if is_deallocation && !self.passes_deallocations {
            return Next::Due(self.ask(turn, asked), Ok(()));
        }
        match work.operation {
            // What the volume below does not support others make of reads and writes, and those are then what the drive is asked.
            Operation::WriteZeroes { .. }
            | Operation::Compare { .. }
            | Operation::CompareWrite { .. }
            | Operation::Verify { .. } => work.state.asks = Some(asked),
            _ => work.state.due = self.ask(turn, asked),
        }
        Next::Run(std::mem::replace(work.operation, Operation::Flush))
    }

    fn run(&self, lane: &Lane<Self>, key: Key, operation: Operation) {
        lane.below.send(0, key, operation);
    }

    fn after(
        &self,
        turn: &Turn<'_>,
        work: Work<'_, State>,
        _: usize,
        completion: Completion,
    ) -> Next {
        let Completion {
            result, operation, ..
        } = completion;
        *work.operation = operation;
        let at = match (work.state.asks, result) {
            (None, _) | (_, Err(VolumeError::Unsupported)) => work.state.due,
            (Some(Asked::ReadWrite(offset, bytes)), Err(_)) => {
                self.ask(turn, Asked::Read(offset, bytes))
            }
            (Some(asked), _) => self.ask(turn, asked),
        };
        Next::Due(at, result)
    }

    fn cancel(&self, lane: &Lane<Self>, key: Key) {
        lane.below.cancel(0, key);
    }

    fn is_due(&self, at: Instant, now: Instant) -> bool {
        self.drive.clock == Clock::Model || at <= now
    }

    /// A request that only waits for the drive ends as it ended below: the drive goes on.
    fn cancel_ends_due(&self) -> bool {
        self.drive.clock == Clock::Real
    }

    fn answered(&self, at: Instant) {
        self.drive.ended(at);
    }
}

/// What the drive is asked to do, in bytes.
#[derive(Clone, Copy)]
enum Asked {
    Read(u64, u64),
    Write(u64, u64),
    /// Reads, and writes when nothing differs.
    ReadWrite(u64, u64),
    Deallocate(u64, u64),
    Flush,
}

impl Asked {
    fn of(operation: &Operation, block_size: BlockSize) -> Self {
        let Some((lba, blocks)) = operation.range() else {
            return Asked::Flush;
        };
        // Of a request that is refused, nothing is asked.
        let bytes = |blocks: u64| blocks.saturating_mul(u64::from(block_size.bytes()));
        let (offset, bytes) = (bytes(lba), bytes(blocks));
        match operation {
            Operation::Read { .. } | Operation::Compare { .. } | Operation::Verify { .. } => {
                Asked::Read(offset, bytes)
            }
            Operation::WriteZeroes {
                deallocate: true, ..
            }
            | Operation::Deallocate { .. } => Asked::Deallocate(offset, bytes),
            Operation::Write { .. } | Operation::WriteZeroes { .. } => Asked::Write(offset, bytes),
            Operation::CompareWrite { .. } => Asked::ReadWrite(offset, bytes),
            Operation::Flush => Asked::Flush,
        }
    }

    fn ask(self, model: &mut Model, now: u64) -> u64 {
        match self {
            Asked::Read(offset, bytes) => model.read(now, offset, bytes),
            Asked::Write(offset, bytes) => model.write(now, offset, bytes),
            Asked::ReadWrite(offset, bytes) => {
                let read = model.read(now, offset, bytes);
                model.write(now, offset, bytes).max(read)
            }
            Asked::Deallocate(offset, bytes) => model.deallocate(now, offset, bytes),
            Asked::Flush => model.flush(now),
        }
    }
}
