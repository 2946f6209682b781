//! A set's part of a request: one request to the member that has all of it, or one to each that has a part.

use std::sync::Arc;

use weir_block::{Completion, Geometry, Landing, Operation, ReadBuffers, VolumeError};
use weir_memory::{View, Views, slice_views};
use weir_reactor::Key;

use super::SetVolume;
use crate::lane::{BackEnd, Lane, Turn, Work};
use crate::support::{change_range, fill, pool_landing};

type Next = crate::lane::Next<Parts>;

/// Requests to members.
pub(super) enum Parts {
    One(usize, Operation),
    Each(Vec<(usize, Operation)>),
}

/// State of a request on its way.
#[derive(Default)]
pub(super) enum State {
    /// Nothing was begun.
    #[default]
    First,
    /// One member has all of it, which began at this block of the set.
    Whole { member: usize, lba: u64 },
    /// Several have a part.
    Spread(Spread),
}

/// A request that is one request to each of several members.
pub(super) struct Spread {
    /// Parts that have not ended.
    pending: u32,
    result: Result<(), VolumeError>,
    /// Whether a part of it has had its effect.
    done_in_part: bool,
    /// What each member read.
    read: Vec<Views>,
}

/// One reactor's part of a set.
pub(super) struct SetLane {
    volume: Arc<SetVolume>,
}

impl SetLane {
    pub(super) fn new(volume: Arc<SetVolume>) -> Self {
        SetLane { volume }
    }
}

impl BackEnd for SetLane {
    type State = State;
    type Action = Parts;
    type Held<'a> = ();

    fn hold(&self) -> (Geometry, ()) {
        (self.volume.geometry, ())
    }

    fn landing(&self, lane: &Lane<Self>, lba: u64, blocks: u32) -> Landing {
        if let Some((member, at)) = self.volume.layout.single(lba, u64::from(blocks)) {
            return lane.below.landing(member, at, blocks);
        }
        let shift = self.volume.geometry.block_size.shift();
        pool_landing(lane.reactor.pool(), (blocks as usize) << shift)
    }

    fn start(&self, _: &Turn<'_>, (): &(), work: Work<'_, State>) -> Next {
        let range = work.operation.range();
        let single = range.and_then(|(lba, blocks)| {
            let (member, at) = self.volume.layout.single(lba, blocks)?;
            Some((lba, member, at))
        });
        let Some((lba, member, at)) = single else {
            return self.spread(work);
        };
        let mut operation = std::mem::replace(work.operation, Operation::Flush);
        change_range(&mut operation, |_, blocks| (at, blocks));
        *work.state = State::Whole { member, lba };
        Next::Run(Parts::One(member, operation))
    }

    fn run(&self, lane: &Lane<Self>, key: Key, parts: Parts) {
        match parts {
            Parts::One(member, operation) => lane.below.send(member, key, operation),
            Parts::Each(parts) => {
                for (member, operation) in parts {
                    lane.below.send(member, key, operation);
                }
            }
        }
    }

    fn cancel(&self, lane: &Lane<Self>, key: Key) {
        let members = lane.state(key, |state| match *state {
            State::Whole { member, .. } => member..member + 1,
            _ => 0..self.volume.members.len(),
        });
        members.for_each(|member| lane.below.cancel(member, key));
    }

    fn after(
        &self,
        _: &Turn<'_>,
        work: Work<'_, State>,
        member: usize,
        completion: Completion,
    ) -> Next {
        match work.state {
            State::First => unreachable!("something was begun"),
            State::Whole { lba, .. } => {
                *work.operation = completion.operation;
                change_range(work.operation, |_, blocks| (*lba, blocks));
                Next::Done(completion.result)
            }
            State::Spread(spread) => self.part_ended(work.operation, spread, member, completion),
        }
    }
}

impl SetLane {
    /// One request to each member that is concerned.
    fn spread(&self, work: Work<'_, State>) -> Next {
        let members = self.volume.members.len();
        let parts: Vec<_> = (0..members)
            .filter_map(|member| Some((member, self.part(work.operation, member)?)))
            .collect();
        *work.state = State::Spread(Spread {
            pending: parts.len() as u32,
            result: Ok(()),
            done_in_part: false,
            read: vec![Views::new(); members],
        });
        Next::Run(Parts::Each(parts))
    }

    /// What one member has to do for a request; none where it is not concerned.
    fn part(&self, operation: &Operation, member: usize) -> Option<Operation> {
        let Some((lba, blocks)) = operation.range() else {
            return Some(Operation::Flush);
        };
        let range = self.volume.layout.on_member(member, lba, blocks);
        if range.is_empty() {
            return None;
        }
        let (at, length) = (range.start, range.end - range.start);
        let blocks_there = || u32::try_from(length).expect("a part is no longer than the whole");
        Some(match operation {
            Operation::Read { .. } => Operation::Read {
                lba: at,
                blocks: blocks_there(),
                buffers: ReadBuffers::Lend,
            },
            Operation::Write { data, fua, .. } => Operation::Write {
                lba: at,
                blocks: blocks_there(),
                data: self.share(data, member, lba, blocks),
                fua: *fua,
            },
            Operation::Compare { data, .. } => Operation::Compare {
                lba: at,
                blocks: blocks_there(),
                data: self.share(data, member, lba, blocks),
            },
            &Operation::WriteZeroes {
                deallocate, fua, ..
            } => Operation::WriteZeroes {
                lba: at,
                blocks: length,
                deallocate,
                fua,
            },
            Operation::Deallocate { .. } => Operation::Deallocate {
                lba: at,
                blocks: length,
            },
            Operation::Verify { .. } => Operation::Verify {
                lba: at,
                blocks: length,
            },
            Operation::CompareWrite { .. } | Operation::Flush => {
                unreachable!("a compare-and-write is one block, and a flush has no range")
            }
        })
    }

    /// The data of a request that belongs on one member.
    fn share(&self, data: &[View], member: usize, lba: u64, blocks: u64) -> Views {
        let shift = self.volume.geometry.block_size.shift();
        let pieces = self.volume.layout.pieces(lba, blocks);
        pieces
            .filter(|piece| piece.member == member)
            .flat_map(|piece| {
                let (from, bytes) = (piece.offset << shift, piece.blocks << shift);
                slice_views(data, from as usize, bytes as usize)
            })
            .collect()
    }

    fn part_ended(
        &self,
        operation: &mut Operation,
        spread: &mut Spread,
        member: usize,
        completion: Completion,
    ) -> Next {
        spread.pending -= 1;
        if let Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } = completion.operation
        {
            spread.read[member] = data;
        }
        match completion.result {
            Ok(()) => spread.done_in_part |= operation.modifies(),
            Err(error) => {
                spread.done_in_part |= operation.modifies() && !error.had_no_effect();
                let error = self.in_the_whole(operation, member, error);
                spread.result = Err(first_error(spread.result, error));
            }
        }
        if spread.pending > 0 {
            return Next::Running;
        }
        Next::Done(match spread.result {
            Ok(()) => {
                self.put_together(operation, &spread.read);
                Ok(())
            }
            // A guard then does all of it by other means.
            Err(VolumeError::Unsupported) => Err(VolumeError::Unsupported),
            Err(error) if spread.done_in_part => Err(error.after_a_part()),
            Err(error) => Err(error),
        })
    }

    /// A miscompare of a part, counted from the start of the whole.
    fn in_the_whole(
        &self,
        operation: &Operation,
        member: usize,
        error: VolumeError,
    ) -> VolumeError {
        let (VolumeError::Miscompare { offset }, Some((lba, blocks))) = (error, operation.range())
        else {
            return error;
        };
        let shift = self.volume.geometry.block_size.shift();
        let layout = &self.volume.layout;
        let at = layout.on_member(member, lba, blocks).start + (offset >> shift);
        let mut pieces = layout.pieces(lba, blocks);
        let piece = pieces
            .find(|piece| {
                piece.member == member && (piece.lba..piece.lba + piece.blocks).contains(&at)
            })
            .expect("a part consists of the pieces of its member");
        let within = offset & ((1 << shift) - 1);
        VolumeError::Miscompare {
            offset: ((piece.offset + at - piece.lba) << shift) + within,
        }
    }

    /// Makes the data of a read of what each member read.
    fn put_together(&self, operation: &mut Operation, read: &[Views]) {
        let Operation::Read {
            lba,
            blocks,
            buffers,
        } = operation
        else {
            return;
        };
        let shift = self.volume.geometry.block_size.shift();
        let layout = &self.volume.layout;
        let (lba, blocks) = (*lba, u64::from(*blocks));
        let data = layout.pieces(lba, blocks).flat_map(|piece| {
            let start = layout.on_member(piece.member, lba, blocks).start;
            let (from, bytes) = ((piece.lba - start) << shift, piece.blocks << shift);
            slice_views(&read[piece.member], from as usize, bytes as usize)
        });
        let data: Views = data.collect();
        fill(buffers, data);
    }
}

/// The error of a request of which two parts failed: the first, and of two differences the one nearer to the start.
fn first_error(before: Result<(), VolumeError>, error: VolumeError) -> VolumeError {
    match (before, error) {
        (Ok(()), error) => error,
        (
            Err(VolumeError::Miscompare { offset: before }),
            VolumeError::Miscompare { offset: now },
        ) => VolumeError::Miscompare {
            offset: before.min(now),
        },
        (Err(before), _) => before,
    }
}
