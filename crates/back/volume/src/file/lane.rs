//! A file's part of a request: its first operation, and what follows the end of each.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use weir_block::{Geometry, Landing, Operation, ReadBuffers, VolumeError};
use weir_memory::{Segment, Segments, View, segments_len, views_len};
use weir_reactor::{AllocateMode, FileKind, Handler, Key, LocalFile, Op, OpToken, Outcome, Output};

use super::FileVolume;
use crate::lane::{BackEnd, Lane, Turn, Work, holds_memory};
use crate::support::{
    TRANSFER_BYTES_MAX, compare_views, copy_at, fill, freeze, pool_landing, pool_segments,
};

type Next = crate::lane::Next<Op>;

/// The longest range that one operation allocates or deallocates, so that none keeps the medium for long.
const ALLOCATE_BYTES_MAX: u64 = 1 << 30;

/// How a range is made to read as zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Zeroing {
    Allocate(AllocateMode),
    Write,
}

/// What an operation in flight is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Step {
    /// Nothing was begun.
    #[default]
    First,
    /// The request's own transfer; a bounce buffer carries it where the request's memory does not fit.
    Transfer {
        bounced: bool,
    },
    /// A range is made to read as zeroes. `unsynced`: a piece before was not written through.
    Zero {
        how: Zeroing,
        unsynced: bool,
    },
    Deallocate,
    Verify,
    /// What was done is made durable.
    Sync,
}

/// State of a request on its way.
#[derive(Default)]
pub(super) struct State {
    step: Step,
    /// Of a range that takes several operations: where the next begins and the last ends, and how much is under way, in bytes.
    next: u64,
    end: u64,
    piece: u64,
    in_flight: Option<OpToken>,
}

/// One reactor's part of a file.
pub(super) struct FileLane {
    volume: Arc<FileVolume>,
    file: Rc<LocalFile>,
}

impl FileLane {
    pub(super) fn new(volume: Arc<FileVolume>) -> Self {
        FileLane {
            file: LocalFile::new(Arc::clone(&volume.file)),
            volume,
        }
    }
}

impl BackEnd for FileLane {
    type State = State;
    type Action = Op;
    type Held<'a> = ();

    fn hold(&self) -> (Geometry, ()) {
        (self.volume.geometry.get(), ())
    }

    fn landing(&self, lane: &Lane<Self>, _lba: u64, blocks: u32) -> Landing {
        let shift = self.volume.geometry.get().block_size.shift();
        pool_landing(lane.reactor.pool(), (blocks as usize) << shift)
    }

    fn start(&self, turn: &Turn<'_>, (): &(), work: Work<'_, State>) -> Next {
        let Work {
            operation, state, ..
        } = work;
        match state.step {
            Step::Verify => self.verify(turn, state),
            _ => self.first(turn, operation, state),
        }
    }

    fn run(&self, lane: &Lane<Self>, key: Key, op: Op) {
        let in_flight = lane.reactor.submit(op, lane.rc(), key.to_word());
        lane.state(key, |state| state.in_flight = Some(in_flight));
    }

    fn cancel(&self, lane: &Lane<Self>, key: Key) {
        let cut_off = lane.state(key, |state| match state.step {
            // Ending these early leaves their request without an effect.
            Step::Transfer { .. } | Step::Verify => state.in_flight,
            _ => None,
        });
        if let Some(op) = cut_off {
            lane.reactor.cancel(op);
        }
    }

    fn leave(&self, lane: &Lane<Self>) -> bool {
        lane.for_each_running(|_, state| {
            if let Some(op) = state.in_flight {
                lane.reactor.cancel(op);
            }
        });
        true
    }
}

impl Handler for Lane<FileLane> {
    fn complete(&self, user: u64, outcome: Outcome) {
        self.ended(Key::from_word(user), |file, turn, work| {
            work.state.in_flight = None;
            file.after(turn, work, outcome)
        });
    }
}

impl FileLane {
    /// The first operation of a request.
    fn first(&self, turn: &Turn<'_>, operation: &mut Operation, state: &mut State) -> Next {
        let geometry = turn.geometry;
        let shift = geometry.block_size.shift();
        let (lba, blocks) = operation.range().unwrap_or_default();
        (state.next, state.end) = (lba << shift, (lba + blocks) << shift);
        match *operation {
            Operation::Read { .. } | Operation::Compare { .. } | Operation::Write { .. } => {
                self.transfer(turn, operation, state)
            }
            Operation::WriteZeroes {
                deallocate, fua, ..
            } => {
                let how = self.zeroing(deallocate);
                self.zero(state, fua, how, false)
            }
            Operation::Deallocate { .. } => {
                let unit = self.volume.deallocate_bytes;
                if unit == 0 || self.volume.unsupported.is(self.deallocate_mode()) {
                    return Next::Done(Ok(()));
                }
                // The part of the range that lies on whole units.
                state.next = state.next.next_multiple_of(unit);
                state.end = state.end / unit * unit;
                self.deallocate(state)
            }
            Operation::Verify { .. } => self.verify(turn, state),
            Operation::Flush if geometry.read_only => Next::Done(Ok(())),
            Operation::Flush => self.sync(state),
            Operation::CompareWrite { .. } => Next::Done(Err(VolumeError::Unsupported)),
        }
    }

    fn transfer(&self, turn: &Turn<'_>, operation: &mut Operation, state: &mut State) -> Next {
        let (offset, bytes) = (state.next, (state.end - state.next) as usize);
        let alignment = turn.geometry.memory_alignment as usize;
        let file = Rc::clone(&self.file);
        let is_bounced = match operation {
            Operation::Read {
                buffers: ReadBuffers::Into(segments),
                ..
            } => !segments
                .iter()
                .all(|segment| is_aligned(segment, alignment)),
            Operation::Write { data, .. } => !data.iter().all(|view| is_aligned(view, alignment)),
            _ => true,
        };
        let mut bounce = Segments::new();
        if is_bounced {
            match self.bounce(turn, operation, bytes) {
                Some(segments) => bounce = segments,
                None => return Next::Wait,
            }
        }
        state.step = Step::Transfer {
            bounced: is_bounced,
        };
        Next::Run(match operation {
            Operation::Read {
                buffers: ReadBuffers::Into(segments),
                ..
            } if !is_bounced => Op::Read {
                file,
                offset,
                into: std::mem::take(segments),
            },
            Operation::Write { data, fua, .. } => Op::Write {
                file,
                offset,
                data: if is_bounced {
                    copy_at(data, &mut bounce, 0);
                    freeze(bounce)
                } else {
                    std::mem::take(data)
                },
                durable: *fua,
            },
            _ => Op::Read {
                file,
                offset,
                into: bounce,
            },
        })
    }

    /// A buffer of the pool. Where the pool is exhausted, nothing of this queue is under way, and the request holds memory of the pool
    /// itself, it is memory outside the pool: all of the pool may be held by requests that wait like this one, and so one of them
    /// always goes on.
    fn bounce(&self, turn: &Turn<'_>, operation: &Operation, bytes: usize) -> Option<Segments> {
        pool_segments(turn.reactor.pool(), bytes).or_else(|| {
            let is_stuck = turn.running == 0 && holds_memory(operation);
            is_stuck.then(|| Segments::from_iter([Segment::heap(bytes)]))
        })
    }

    /// The best way that the medium is not known to lack.
    fn zeroing(&self, may_deallocate: bool) -> Zeroing {
        let modes = [
            (
                may_deallocate && self.volume.deallocate_bytes > 0,
                AllocateMode::PunchHole,
            ),
            (true, AllocateMode::ZeroRange),
        ];
        let usable =
            |&(allowed, mode): &(bool, AllocateMode)| allowed && !self.volume.unsupported.is(mode);
        let found = modes.into_iter().find(usable);
        found.map_or(Zeroing::Write, |(_, mode)| Zeroing::Allocate(mode))
    }

    fn zero(&self, state: &mut State, fua: bool, how: Zeroing, unsynced: bool) -> Next {
        if state.next == state.end {
            return if fua && unsynced {
                self.sync(state)
            } else {
                Next::Done(Ok(()))
            };
        }
        let piece_max = match how {
            Zeroing::Allocate(_) => ALLOCATE_BYTES_MAX,
            Zeroing::Write => u64::from(TRANSFER_BYTES_MAX),
        };
        state.piece = (state.end - state.next).min(piece_max);
        state.step = Step::Zero { how, unsynced };
        let (offset, length) = (state.next, state.piece);
        let file = Rc::clone(&self.file);
        Next::Run(match how {
            Zeroing::Allocate(mode) => Op::Allocate {
                file,
                offset,
                length,
                mode,
            },
            Zeroing::Write => Op::Write {
                file,
                offset,
                data: View::zeroes(length as usize).collect(),
                durable: fua,
            },
        })
    }

    fn deallocate_mode(&self) -> AllocateMode {
        match self.volume.kind {
            FileKind::Regular => AllocateMode::PunchHole,
            FileKind::BlockDevice => AllocateMode::Discard,
        }
    }

    fn deallocate(&self, state: &mut State) -> Next {
        if state.next >= state.end {
            return Next::Done(Ok(()));
        }
        // A piece ends on a unit, as the range does.
        let unit = self.volume.deallocate_bytes;
        let piece_max = (ALLOCATE_BYTES_MAX / unit).max(1) * unit;
        state.piece = (state.end - state.next).min(piece_max);
        state.step = Step::Deallocate;
        Next::Run(Op::Allocate {
            file: Rc::clone(&self.file),
            offset: state.next,
            length: state.piece,
            mode: self.deallocate_mode(),
        })
    }

    fn verify(&self, turn: &Turn<'_>, state: &mut State) -> Next {
        state.piece = (state.end - state.next).min(u64::from(TRANSFER_BYTES_MAX));
        state.step = Step::Verify;
        if state.piece == 0 {
            return Next::Done(Ok(()));
        }
        let Some(into) = pool_segments(turn.reactor.pool(), state.piece as usize) else {
            return Next::Wait;
        };
        Next::Run(Op::Read {
            file: Rc::clone(&self.file),
            offset: state.next,
            into,
        })
    }

    fn sync(&self, state: &mut State) -> Next {
        if let Err(error) = self.volume.failed_sync.check() {
            return Next::Done(Err(error));
        }
        state.step = Step::Sync;
        Next::Run(Op::Sync {
            file: Rc::clone(&self.file),
        })
    }

    /// What follows the end of an operation.
    fn after(&self, turn: &Turn<'_>, work: Work<'_, State>, outcome: Outcome) -> Next {
        let Outcome { result, op } = outcome;
        if let (Op::Write { durable: true, .. } | Op::Sync { .. }, Some(error)) =
            (&op, error_of(&result))
        {
            self.note_failed(error);
        }
        let state = work.state;
        let error = error_of(&result);
        if error.is_none() {
            state.next += state.piece;
        }
        match state.step {
            Step::First => unreachable!("something was begun"),
            Step::Transfer { bounced } => {
                Next::Done(after_transfer(work.operation, bounced, result, op))
            }
            Step::Zero { how, unsynced } => {
                let &mut Operation::WriteZeroes {
                    deallocate, fua, ..
                } = work.operation
                else {
                    unreachable!("only these make zeroes")
                };
                match (error, how) {
                    (None, _) => self.zero(state, fua, how, unsynced || how != Zeroing::Write),
                    (Some(VolumeError::Unsupported), Zeroing::Allocate(mode)) => {
                        self.volume.unsupported.set(mode);
                        self.zero(state, fua, self.zeroing(deallocate), unsynced)
                    }
                    (Some(error), _) => Next::Done(Err(error)),
                }
            }
            Step::Deallocate => match error {
                None => self.deallocate(state),
                // It was a hint.
                Some(VolumeError::Unsupported) => {
                    self.volume.unsupported.set(self.deallocate_mode());
                    Next::Done(Ok(()))
                }
                Some(error) => Next::Done(Err(error)),
            },
            Step::Verify => match full(&result, state.piece as usize) {
                Ok(()) if work.is_cancelled && state.next < state.end => {
                    Next::Done(Err(VolumeError::Cancelled))
                }
                Ok(()) => self.verify(turn, state),
                failed => Next::Done(failed),
            },
            // A sync that succeeds beside one that failed proves nothing: the system reports a failure only once.
            Step::Sync => Next::Done(match error {
                Some(error) => Err(error),
                None => self.volume.failed_sync.check(),
            }),
        }
    }

    /// A sync or a durable write failed.
    fn note_failed(&self, error: VolumeError) {
        // What was cut off had no failure of its own.
        if error != VolumeError::Cancelled {
            self.volume.failed_sync.note(&self.volume.name, &error);
        }
    }
}

fn is_aligned(bytes: &[u8], alignment: usize) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(alignment) && bytes.len().is_multiple_of(alignment)
}

fn error_of(result: &io::Result<Output>) -> Option<VolumeError> {
    result.as_ref().err().map(VolumeError::from_io)
}

/// Whether a transfer did all of `expected` bytes. Less was read where the file has become shorter than the volume.
fn full(result: &io::Result<Output>, expected: usize) -> Result<(), VolumeError> {
    match result {
        Ok(Output::Count(count)) if *count == expected => Ok(()),
        Ok(_) => Err(VolumeError::Medium),
        Err(error) => Err(VolumeError::from_io(error)),
    }
}

/// Gives the buffers of a transfer back to its request.
fn after_transfer(
    operation: &mut Operation,
    bounced: bool,
    result: io::Result<Output>,
    op: Op,
) -> Result<(), VolumeError> {
    match (operation, op) {
        (Operation::Read { buffers, .. }, Op::Read { into, .. }) => {
            let done = full(&result, segments_len(&into));
            match (done, bounced) {
                (Ok(()), true) => fill(buffers, freeze(into)),
                (Ok(()), false) => *buffers = ReadBuffers::Filled(freeze(into)),
                (Err(_), true) => {}
                (Err(_), false) => *buffers = ReadBuffers::Into(into),
            }
            done
        }
        (Operation::Compare { data, .. }, Op::Read { into, .. }) => {
            full(&result, segments_len(&into))?;
            compare_views(data, &freeze(into))
        }
        (Operation::Write { data, .. }, Op::Write { data: written, .. }) => {
            let done = full(&result, views_len(&written));
            if !bounced {
                *data = written;
            }
            done
        }
        _ => unreachable!("an outcome returns its operation"),
    }
}
