//! Places in the ring, for the streams of one recording: each has a reactor of its own, and takes segments as it needs them.
//!
//! The next segment, the tail, and the segments that are being written are known to all of them, under a lock that is taken once or twice for
//! each segment. The tail passes no segment that is being written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;
use weir_reactor::Reactor;

use crate::format::{ClockSteps, Superblock};
use crate::pressure::Pressure;
use crate::ring::{Ring, WhenFull};

/// A place for one more segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its sequence.
    Segment(u64),
    /// The tail must move first; the caller or another stream moves it.
    Later,
    /// There is none, and will be none.
    Full,
}

struct State {
    superblock: Superblock,
    /// The sequence that nobody has yet.
    next: u64,
    /// The tail that is on the volumes; that of the superblock is on its way to them.
    tail: u64,
    moves_tail: bool,
    /// Segments that are being written, and by how many.
    under_way: BTreeMap<u64, u32>,
}

/// Smallest step that counts, in nanoseconds.
const STEP_MIN: u64 = 1_000_000;
/// Longest time between the readings of the monotonic clock around one of the wall clock. If it takes longer, the thread was interrupted, and
/// the reading does not count.
const READING: Duration = Duration::from_micros(100);
/// Attempts to get a reading that counts: at each comparison, and when a recording begins.
const TRIES: usize = 3;
const TRIES_FIRST: usize = 1000;

/// The wall clock, as last compared with the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    /// Nanoseconds since the beginning of 1970, less those of the machine's monotonic clock.
    pub(crate) offset: u64,
    pub(crate) steps: ClockSteps,
}

impl WallClock {
    fn new(reactor: &Reactor) -> Self {
        let mut tries = (0..TRIES_FIRST).map(|_| offset(reactor));
        // All were interrupted: take an inexact one.
        let (offset, _) = tries.find(|one| one.1).unwrap_or_else(|| offset(reactor));
        WallClock {
            offset,
            steps: ClockSteps::default(),
        }
    }

    /// Compares the clocks: a difference of `STEP_MIN` or more is a step. Without a reading that counts nothing changes.
    fn compare(&mut self, reactor: &Reactor) {
        let mut tries = (0..TRIES).map(|_| offset(reactor));
        let Some((offset, _)) = tries.find(|one| one.1) else {
            return;
        };
        let step = offset.wrapping_sub(self.offset) as i64;
        if step.unsigned_abs() >= STEP_MIN {
            self.offset = offset;
            self.steps.count += 1;
            self.steps.nanoseconds = self.steps.nanoseconds.wrapping_add(step);
        }
    }
}

/// Returns the wall clock minus the monotonic clock in nanoseconds, and whether the reading counts.
fn offset(reactor: &Reactor) -> (u64, bool) {
    let before = reactor.precise_now();
    let wall = reactor.system().wall_clock().as_nanos() as u64;
    let is_exact = reactor.precise_now() - before <= READING;
    (wall.wrapping_sub(before.as_nanos()), is_exact)
}

/// The parts of a recording that its streams share.
pub struct Streams {
    pub(crate) recording: Uuid,
    pub(crate) count: u32,
    pub(crate) pressure: Arc<Pressure>,
    clock: Mutex<WallClock>,
    state: Mutex<State>,
}

impl Streams {
    /// A recording of so many streams, behind what is in the ring.
    #[must_use]
    pub fn new(ring: &Ring, count: u32) -> Self {
        let reactor = &ring.reactor;
        let mut bytes = [0; 16];
        reactor.system().random_bytes(&mut bytes);
        // Writes of an earlier recorder that was killed may still land in the slots behind the last one.
        let streams = ring.segments.last().map_or(1, |one| one.commit.streams);
        let next = match ring.next {
            0 => 0,
            next => {
                // A small ring keeps what it has.
                let others = u64::from(streams - 1).min(ring.superblock.capacity() / 8);
                next + u64::from(ring.superblock.members) + others
            }
        };
        Streams {
            recording: Uuid::from_bytes(bytes),
            count,
            pressure: Arc::new(Pressure::recording()),
            clock: Mutex::new(WallClock::new(reactor)),
            state: Mutex::new(State {
                next,
                tail: ring.superblock.tail,
                moves_tail: false,
                under_way: BTreeMap::new(),
                superblock: ring.superblock.clone(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of the last comparison.
    pub(crate) fn clock(&self) -> WallClock {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the clocks now, and returns the result.
    pub(crate) fn compare_clocks(&self, reactor: &Reactor) -> WallClock {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        clock.compare(reactor);
        *clock
    }

    /// Its back-pressure, for readers of the ring.
    #[must_use]
    pub fn pressure(&self) -> &Arc<Pressure> {
        &self.pressure
    }

    /// Bytes that can be written until the ring is full, or its oldest segments must be given up.
    pub(crate) fn room_bytes(&self) -> u64 {
        let state = self.state();
        let end = state.tail + state.superblock.capacity();
        let segments = end.saturating_sub(state.next);
        segments * u64::from(state.superblock.segment_bytes)
    }

    /// A place for a segment; and where the tail is to move, from where, and the superblock that says so: who asked has it written, and then
    /// calls [`Streams::tail_moved`].
    pub(crate) fn place(&self, when_full: WhenFull) -> (Place, Option<(u64, Superblock)>) {
        let state = &mut *self.state();
        let capacity = state.superblock.capacity();
        let ahead = state.superblock.ahead();
        let mut moved = None;
        if when_full == WhenFull::GoRound && state.next + ahead >= state.tail + capacity {
            let wanted = (state.next + 2 * ahead).saturating_sub(capacity);
            // The newest one stays, however small the ring is, and so does what is being written.
            let first = state.under_way.keys().next().copied().unwrap_or(u64::MAX);
            let wanted = wanted.min(state.next.saturating_sub(1)).min(first);
            if wanted > state.tail && !state.moves_tail {
                state.moves_tail = true;
                state.superblock.tail = wanted;
                state.superblock.generation += 1;
                moved = Some((state.tail, state.superblock.clone()));
            }
        }
        if state.next >= state.tail + capacity {
            let place = match when_full {
                WhenFull::Stop => Place::Full,
                WhenFull::GoRound => Place::Later,
            };
            return (place, moved);
        }
        let sequence = state.next;
        state.next += 1;
        state.under_way.insert(sequence, 1);
        (Place::Segment(sequence), moved)
    }

    /// The superblock that [`Streams::place`] gave is on the volumes: the slots before its tail may be written.
    pub(crate) fn tail_moved(&self) {
        let state = &mut *self.state();
        state.tail = state.superblock.tail;
        state.moves_tail = false;
    }

    /// Tells whether there is a place for a segment now.
    pub(crate) fn has_place(&self) -> bool {
        let state = self.state();
        state.next < state.tail + state.superblock.capacity()
    }

    /// Nothing is written to a segment any more.
    pub(crate) fn done(&self, sequence: u64) {
        let under_way = &mut self.state().under_way;
        if let Some(holders) = under_way.get_mut(&sequence) {
            *holders -= 1;
            if *holders == 0 {
                under_way.remove(&sequence);
            }
        }
    }

    /// Takes a segment up again that was done; false: it was given up meanwhile.
    pub(crate) fn take_up(&self, sequence: u64) -> bool {
        let state = &mut *self.state();
        let is_there = sequence >= state.superblock.tail;
        if is_there {
            *state.under_way.entry(sequence).or_default() += 1;
        }
        is_there
    }

    /// Tells whether a segment is more than half a ring behind the newest, and so will be in the tail's way. In a small ring streams that
    /// write little do not push one another on: each has one segment open.
    pub(crate) fn is_in_the_way(&self, sequence: u64) -> bool {
        let state = self.state();
        let behind = (state.superblock.capacity() / 2).max(self.count.into());
        state.next > sequence + behind
    }
}
