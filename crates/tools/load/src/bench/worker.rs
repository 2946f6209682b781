//! One queue, kept full or on schedule.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use weir_block::{Operation, ReadBuffers, VolumeError};
use weir_memory::{View, Views};
use weir_reactor::{Instant, Reactor, Timer};

use super::arrivals::Schedule;
use super::recorder::{Issued, Recorder, Window};
use crate::Stop;
use crate::lane::{Ended, Lane};
use crate::workload::{Generator, Kind, Next};
use weir_reactor::random::Random;

/// How often a lane that waits for what is due looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// How long a run that was stopped waits for what is in flight.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What a lane has done so far. Only the lane's reactor writes it.
#[derive(Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    bytes: AtomicU64,
    errors: AtomicU64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Done {
    pub(super) requests: u64,
    pub(super) bytes: u64,
    pub(super) errors: u64,
}

impl Done {
    pub(super) fn of_all(counters: &[Counters]) -> Self {
        let sum = |one: fn(&Counters) -> &AtomicU64| {
            counters.iter().map(|of| one(of).load(Relaxed)).sum()
        };
        Done {
            requests: sum(|of| &of.requests),
            bytes: sum(|of| &of.bytes),
            errors: sum(|of| &of.errors),
        }
    }
}

/// How many requests were in flight, summed over the nanoseconds of the measured time.
#[derive(Clone, Copy)]
struct Flight {
    sum: u64,
    until: Instant,
}

impl Flight {
    /// So many were in flight until `now`.
    #[inline]
    fn note(&mut self, in_flight: usize, now: Instant, window: Window) {
        let now = now.min(window.end);
        if now > self.until {
            self.sum += in_flight as u64 * (now.as_nanos() - self.until.as_nanos());
            self.until = now;
        }
    }
}

/// What a lane is at its end.
pub(super) struct LaneEnd {
    pub(super) queue: u32,
    pub(super) requests: u64,
    /// The moment at which it stopped sending.
    pub(super) sent_until: Instant,
    pub(super) unsent: u64,
    pub(super) in_flight_sum: u64,
    pub(super) first_error: Option<String>,
}

pub(super) struct Worker {
    pub(super) reactor: Reactor,
    pub(super) lane: Lane<Issued>,
    pub(super) generator: Generator,
    /// Where writes take their data from.
    pub(super) data: Data,
    pub(super) recorder: Rc<RefCell<Recorder>>,
    pub(super) counters: Arc<[Counters]>,
    pub(super) queue: u32,
    pub(super) block_shift: u32,
    pub(super) stop: Stop,
}

/// Data to write.
pub(super) struct Data {
    pub(super) pool: View,
    pub(super) random: Random,
}

/// A worker at work.
struct Run {
    of: Worker,
    window: Window,
    flight: Flight,
    /// When there was room again after there had been none.
    room_since: Instant,
    requests: u64,
    done: Done,
    first_error: Option<String>,
    fatal: bool,
    /// What was in flight is to end early.
    cancelled: bool,
}

impl Worker {
    /// Runs until the end of the measured time and until nothing is in flight.
    pub(super) async fn run(self, window: Window, schedule: Option<Schedule>) -> LaneEnd {
        let mut run = Run {
            of: self,
            window,
            flight: Flight {
                sum: 0,
                until: window.from,
            },
            room_since: Instant::default(),
            requests: 0,
            done: Done::default(),
            first_error: None,
            fatal: false,
            cancelled: false,
        };
        let left = match schedule {
            None => {
                run.closed().await;
                None
            }
            Some(schedule) => Some(run.open(schedule).await),
        };
        let sent_until = run.of.reactor.precise_now().min(window.end);
        // What ends from here on was not measured to its end.
        run.window.end = sent_until;
        run.drain().await;
        // Counting what is left takes time: nothing is waited for any more.
        let left = left.filter(|_| !run.is_over());
        LaneEnd {
            queue: run.of.queue,
            requests: run.requests,
            sent_until,
            unsent: left.map_or(0, |left| left.count_before(window.end)),
            in_flight_sum: run.flight.sum,
            first_error: run.first_error,
        }
    }
}

impl Run {
    fn is_over(&self) -> bool {
        self.fatal || self.of.stop.is_asked()
    }

    async fn closed(&mut self) {
        let mut timer = Timer::new(&self.of.reactor);
        timer.set(self.of.reactor.now() + LOOK);
        while self.of.reactor.now() < self.window.end && !self.is_over() {
            self.fill();
            match self.next_or(&mut timer).await {
                Some(ended) => self.take_all(ended),
                None => timer.set(self.of.reactor.now() + LOOK),
            }
        }
    }

    /// Waits for what is in flight. Where the run was stopped it waits for [`STOP_GRACE`], and then wishes that the rest end early.
    async fn drain(&mut self) {
        let mut timer = Timer::new(&self.of.reactor);
        let mut cancel_at = None;
        self.of.lane.submit();
        while !self.of.lane.is_idle() {
            let now = self.of.reactor.now();
            if self.of.stop.is_asked() && !self.cancelled {
                let at = *cancel_at.get_or_insert(now + STOP_GRACE);
                if at <= now {
                    self.cancelled = true;
                    self.of.lane.cancel_all();
                    continue;
                }
            }
            timer.set(now + LOOK);
            if let Some(ended) = self.next_or(&mut timer).await {
                self.take_all(ended);
            }
        }
    }

    /// What of the schedule is left.
    async fn open(&mut self, mut schedule: Schedule) -> Schedule {
        let end = self.window.end;
        let mut timer = Timer::new(&self.of.reactor);
        let mut look = self.of.reactor.now() + LOOK;
        while self.of.reactor.precise_now() < end && !self.is_over() {
            self.send_due(&mut schedule);
            // Where there is no room the next completion makes some; nothing is due before that.
            let next = match self.of.lane.has_room() {
                true => schedule.next().min(end),
                false => end,
            };
            let now = self.of.reactor.now();
            if look <= now {
                look = now + LOOK;
            }
            timer.set(next.min(look));
            if let Some(ended) = self.next_or(&mut timer).await {
                self.take_all(ended);
            }
        }
        // The end may be seen late, and what was due just before it can be sent where there is room.
        if !self.is_over() {
            self.send_due(&mut schedule);
        }
        schedule
    }

    /// Sends what is due, as far as there is room.
    fn send_due(&mut self, schedule: &mut Schedule) {
        let now = self.of.reactor.precise_now();
        self.note_flight(now);
        while self.of.lane.has_room() {
            let due = schedule.next();
            if due > now || due >= self.window.end {
                break;
            }
            let counts = {
                let mut recorder = self.of.recorder.borrow_mut();
                recorder.note_sent(due, self.room_since, now)
            };
            self.push(now, (now - due).as_nanos() as f32, counts);
            schedule.advance();
        }
        self.of.lane.submit();
    }

    /// The next request that ends, if one does before the timer elapses.
    async fn next_or(&mut self, timer: &mut Timer) -> Option<Ended<Issued>> {
        std::future::poll_fn(|context| {
            if !self.of.lane.is_idle()
                && let Poll::Ready(ended) = self.of.lane.poll_next(context)
            {
                return Poll::Ready(Some(ended));
            }
            timer.poll_elapsed(context).map(|()| None)
        })
        .await
    }

    /// Keeps the lane full. All requests of one batch carry the moment at which the batch was put together.
    fn fill(&mut self) {
        let at = self.of.reactor.precise_now();
        self.note_flight(at);
        while self.of.lane.has_room() {
            self.push(at, 0.0, true);
        }
        self.of.lane.submit();
    }

    fn note_flight(&mut self, now: Instant) {
        self.flight.note(self.of.lane.in_flight(), now, self.window);
    }

    /// Adds a request to the batch.
    #[inline]
    fn push(&mut self, at: Instant, lag_ns: f32, counts: bool) {
        let next = self.of.generator.next();
        let operation = self.operation(next);
        let issued = Issued {
            at,
            lag_ns,
            // A request is not longer than what writes take their data from.
            blocks: next.blocks as u16,
            kind: next.kind,
            counts,
        };
        self.of.lane.push(issued, operation);
    }

    #[inline]
    fn operation(&mut self, next: Next) -> Operation {
        let Next { kind, lba, blocks } = next;
        match kind {
            Kind::Read => Operation::Read {
                lba,
                blocks,
                buffers: ReadBuffers::Lend,
            },
            Kind::Write => Operation::Write {
                lba,
                blocks,
                data: self.of.data.some(blocks, self.of.block_shift),
                fua: false,
            },
            Kind::Deallocate => Operation::Deallocate {
                lba,
                blocks: u64::from(blocks),
            },
            Kind::Flush => Operation::Flush,
        }
    }

    /// Takes a completion, and all that are there with it.
    fn take_all(&mut self, ended: Ended<Issued>) {
        let seen = self.of.reactor.precise_now();
        // The one that ended is counted as room already.
        let was_full = self.of.lane.room() == 1;
        self.flight
            .note(self.of.lane.in_flight() + 1, seen, self.window);
        if was_full {
            self.room_since = seen;
        }
        let recorder = Rc::clone(&self.of.recorder);
        let mut recorder = recorder.borrow_mut();
        self.take(ended, seen, &mut recorder);
        while let Some(ended) = self.of.lane.try_next() {
            self.take(ended, seen, &mut recorder);
        }
        self.publish();
    }

    /// Takes a completion that was seen at `now`.
    #[inline]
    fn take(&mut self, ended: Ended<Issued>, now: Instant, recorder: &mut Recorder) {
        let issued = ended.tag;
        if let Err(error) = ended.result {
            if self.cancelled && error == VolumeError::Cancelled {
                return recorder.give_up(&issued, now);
            }
            recorder.fail(&issued, now);
            self.fail(&ended.operation, error);
            return;
        }
        let bytes = u64::from(issued.blocks) << self.of.block_shift;
        self.done.requests += 1;
        if matches!(issued.kind, Kind::Read | Kind::Write) {
            self.done.bytes += bytes;
        }
        self.requests += u64::from(recorder.record(&issued, bytes, now, self.window));
    }

    fn fail(&mut self, operation: &Operation, error: VolumeError) {
        self.done.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(self.of.lane.error(operation, error).to_string());
        }
        self.fatal |= matches!(
            error,
            VolumeError::Lost
                | VolumeError::ReadOnly
                | VolumeError::OutOfRange
                | VolumeError::Unsupported
                | VolumeError::Invalid
                | VolumeError::NoSpace
        );
    }

    fn publish(&self) {
        let counters = &self.of.counters[self.of.queue as usize];
        counters.requests.store(self.done.requests, Relaxed);
        counters.bytes.store(self.done.bytes, Relaxed);
        counters.errors.store(self.done.errors, Relaxed);
    }
}

impl Data {
    /// So many blocks of it.
    #[inline]
    fn some(&mut self, blocks: u32, block_shift: u32) -> Views {
        let length = (blocks as usize) << block_shift;
        let starts = ((self.pool.len() - length) >> block_shift) as u64 + 1;
        let start = (self.random.below(starts) as usize) << block_shift;
        Views::from_iter([self.pool.slice(start..start + length)])
    }
}
