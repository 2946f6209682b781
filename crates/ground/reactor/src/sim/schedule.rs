//! The simulated clock, the events that move it, and the trace of what happened.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::injected::{FaultKind, Injected};
use super::random::{Random, nanoseconds};
use super::settings::{Faults, HostId};
use crate::{Handle, OpToken};

/// An operation in flight on one reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiter {
    /// Index of the reactor in the world.
    pub(super) reactor: usize,
    /// Its place in the order in which the reactor submitted operations. The trace names it by that, and not by a slot, so that a
    /// history does not depend on which slot is used again first.
    pub(super) number: u64,
    pub(super) token: OpToken,
}

/// Something that happens at a set time, outside any reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A segment reaches this end of a connection.
    Arrive(Handle),
    /// A connection request reaches the host that it is meant for.
    Request { client: Handle, attempt: u32 },
    /// The answer to a connection request reaches the client.
    Established(Handle),
    /// The refusal of a connection request reaches the client.
    Refused(Handle),
    /// A connection request was unanswered for too long.
    ConnectTimeout(Handle),
    /// A look at whether sent data was unacknowledged for too long.
    CheckProgress(Handle),
    /// A look at whether the peer of a silent connection is alive.
    CheckAlive(Handle),
    /// A part of a disk operation takes effect.
    DiskEffect { of: Waiter, part: usize },
    /// A disk operation is done.
    DiskDone(Waiter),
    /// Offloaded work runs.
    Offload(u64),
    /// A reactor that stood still goes on.
    StallEnd(usize),
}

/// One step of the trace.
#[derive(Clone, Copy)]
pub(super) enum Step {
    Event(Event),
    Submitted(Waiter, &'static str),
    Ended(Waiter, Ending),
    Drawn(u64),
    Control(&'static str, u64, u64),
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Event(event) => write!(formatter, "{event:?}"),
            Step::Submitted(of, kind) => write!(formatter, "{of} begins to {kind}"),
            Step::Ended(of, Ending::Ok(value)) => write!(formatter, "{of} ended: {value}"),
            Step::Ended(of, Ending::Error(number)) => {
                let error = std::io::Error::from_raw_os_error(*number);
                write!(formatter, "{of} failed: {error}")
            }
            Step::Drawn(word) => write!(formatter, "a reactor drew {word:#x}"),
            Step::Control(what, first, second) => write!(formatter, "{what} {first} {second}"),
        }
    }
}

impl fmt::Display for Waiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiter {
            reactor, number, ..
        } = self;
        write!(formatter, "operation {number} of reactor {reactor}")
    }
}

/// The end of an operation: bytes, or an error's number.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Ok(u64),
    Error(i32),
}

/// Events at one moment happen in random order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Scheduled {
    at: u64,
    order: u64,
    sequence: u64,
    event: Event,
}

/// Steps that a failure report shows.
const STEPS_SHOWN: usize = 40;

#[derive(Default)]
struct Trace {
    hash: u64,
    steps: u64,
    last: VecDeque<(u64, Step)>,
}

/// The state that every part of the world shares: time, randomness, events.
pub(super) struct Schedule {
    pub(super) now: u64,
    pub(super) random: Random,
    pub(super) faults: Faults,
    /// Faults that were carried out, in the order in which they began.
    pub(super) injected: Vec<Injected>,
    events: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    next_handle: u32,
    /// Per reactor: operations that may be able to go on.
    ready: Vec<Vec<OpToken>>,
    trace: Trace,
}

impl Schedule {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        Schedule {
            now: 0,
            random: Random::new(seed),
            faults,
            injected: Vec::new(),
            events: BinaryHeap::new(),
            sequence: 0,
            next_handle: 0,
            ready: Vec::new(),
            trace: Trace::default(),
        }
    }

    /// A handle that no object had before.
    pub(super) fn new_handle(&mut self) -> Handle {
        self.next_handle += 1;
        Handle(self.next_handle)
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        assert!(at >= self.now, "nothing happens in the past");
        self.sequence += 1;
        let scheduled = Scheduled {
            at,
            order: self.random.next(),
            sequence: self.sequence,
            event,
        };
        self.events.push(Reverse(scheduled));
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now.saturating_add(delay), event);
    }

    pub(super) fn next_event(&self) -> Option<u64> {
        self.events.peek().map(|Reverse(scheduled)| scheduled.at)
    }

    /// Takes one event that is due, and records it.
    pub(super) fn pop_due(&mut self) -> Option<Event> {
        if self.next_event()? > self.now {
            return None;
        }
        let Reverse(scheduled) = self.events.pop()?;
        self.record(Step::Event(scheduled.event));
        Some(scheduled.event)
    }

    pub(super) fn event_count(&self) -> usize {
        self.events.len()
    }

    pub(super) fn add_reactor(&mut self) {
        self.ready.push(Vec::new());
    }

    pub(super) fn wake(&mut self, waiter: Waiter) {
        self.ready[waiter.reactor].push(waiter.token);
    }

    pub(super) fn is_ready(&self, reactor: usize) -> bool {
        !self.ready[reactor].is_empty()
    }

    pub(super) fn take_ready(&mut self, reactor: usize, into: &mut Vec<OpToken>) {
        into.append(&mut self.ready[reactor]);
    }

    /// The time that one segment between two hosts takes.
    pub(super) fn network_delay(&mut self, hosts: (HostId, HostId)) -> u64 {
        let mut delay = self.random.span(&self.faults.network_delay);
        if self.random.chance(self.faults.delay_spike_probability) {
            delay += self.random.span(&self.faults.delay_spike);
            self.inject(FaultKind::DelaySpike, hosts, Some(delay));
        }
        delay
    }

    /// Records a fault that begins now, and is over after `duration`, or goes on; its place in the record.
    pub(super) fn inject(
        &mut self,
        kind: FaultKind,
        hosts: (HostId, HostId),
        duration: Option<u64>,
    ) -> usize {
        let until = duration.map(|duration| self.now.saturating_add(duration));
        self.injected.push(Injected {
            kind,
            hosts,
            path: None,
            from: Duration::from_nanos(self.now),
            until: until.map(Duration::from_nanos),
        });
        self.injected.len() - 1
    }

    /// Records that faults which go on are over now.
    pub(super) fn end_injected(&mut self, which: impl Fn(usize, &Injected) -> bool) {
        let now = Duration::from_nanos(self.now);
        for (place, injected) in self.injected.iter_mut().enumerate() {
            if injected.until.is_none() && which(place, injected) {
                injected.until = Some(now);
            }
        }
    }

    pub(super) fn record(&mut self, step: Step) {
        let trace = &mut self.trace;
        trace.steps += 1;
        let mut mixer = Mixer(trace.hash);
        mixer.word(self.now);
        mixer.step(step);
        trace.hash = mixer.0;
        if trace.last.len() == STEPS_SHOWN {
            trace.last.pop_front();
        }
        trace.last.push_back((self.now, step));
    }

    pub(super) fn trace_hash(&self) -> u64 {
        self.trace.hash
    }

    pub(super) fn steps(&self) -> u64 {
        self.trace.steps
    }

    pub(super) fn last_steps(&self) -> impl Iterator<Item = String> {
        self.trace
            .last
            .iter()
            .map(|(at, step)| format!("{:?} {step}", Duration::from_nanos(*at)))
    }

    /// `duration` in nanoseconds, as events count.
    pub(super) fn moment_after(&self, duration: Duration) -> u64 {
        self.now.saturating_add(nanoseconds(duration))
    }
}

/// A hash of words that is the same on every machine and in every build.
struct Mixer(u64);

impl Mixer {
    fn word(&mut self, word: u64) {
        const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
    }

    fn words(&mut self, kind: u64, words: [u64; 3]) {
        self.word(kind);
        words.into_iter().for_each(|word| self.word(word));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Event(event) => self.event(event),
            Step::Submitted(of, _) => self.words(20, waiter_words(of, 0)),
            Step::Ended(of, Ending::Ok(bytes)) => self.words(21, waiter_words(of, bytes)),
            Step::Ended(of, Ending::Error(number)) => {
                self.words(22, waiter_words(of, number as u64));
            }
            Step::Drawn(word) => self.words(23, [word, 0, 0]),
            Step::Control(_, first, second) => self.words(24, [first, second, 0]),
        }
    }

    fn event(&mut self, event: Event) {
        let handle = |handle: Handle| [u64::from(handle.0), 0, 0];
        match event {
            Event::Arrive(to) => self.words(1, handle(to)),
            Event::Request { client, attempt } => {
                self.words(2, [u64::from(client.0), u64::from(attempt), 0]);
            }
            Event::Established(client) => self.words(3, handle(client)),
            Event::Refused(client) => self.words(4, handle(client)),
            Event::ConnectTimeout(client) => self.words(5, handle(client)),
            Event::CheckProgress(of) => self.words(6, handle(of)),
            Event::DiskEffect { of, part } => self.words(7, waiter_words(of, part as u64)),
            Event::DiskDone(of) => self.words(8, waiter_words(of, 0)),
            Event::Offload(number) => self.words(9, [number, 0, 0]),
            Event::StallEnd(reactor) => self.words(10, [reactor as u64, 0, 0]),
            Event::CheckAlive(of) => self.words(11, handle(of)),
        }
    }
}

fn waiter_words(waiter: Waiter, more: u64) -> [u64; 3] {
    [waiter.reactor as u64, waiter.number, more]
}
