//! The history of a run: what was asked and answered, what the volumes were asked and did, and what was done to the system.
//!
//! All of it is in one order, which is that in which it happened: a simulated world is one thread. What is recorded here is
//! what the checkers go by.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_block::{OperationKind, VolumeError};
use weir_reactor::sim::{FaultKind, World};
use weir_reactor::{Sender, oneshot};

use crate::plan::Trouble;
use crate::violation::Violation;

/// The number of a write, or 0 for zeroes: what a block holds.
pub(crate) type Value = u64;
/// A place in the order of all that happened.
pub(crate) type Order = u64;

/// Tells whether a change leaves zeroes, which name no request.
pub(crate) fn zeroes(kind: OperationKind) -> bool {
    matches!(kind, OperationKind::WriteZeroes | OperationKind::Deallocate)
}

/// A request as its client asked it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// The initiator's host.
    pub(crate) host: usize,
    /// The number of times that the host was started before.
    pub(crate) life: u32,
    /// Which of its paths it goes.
    pub(crate) path: usize,
    pub(crate) namespace: usize,
    /// Which time it is that a volume was opened.
    pub(crate) opening: u64,
    pub(crate) kind: OperationKind,
    pub(crate) lba: u64,
    /// None for a flush.
    pub(crate) blocks: u64,
    pub(crate) fua: bool,
    /// The initiator sends it as one command, so that it fails as a whole.
    pub(crate) whole: bool,
    /// Values that a comparison expects, by block.
    pub(crate) expected: Vec<Value>,
}

/// The end of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) order: Order,
    pub(crate) result: Result<(), VolumeError>,
}

/// One request of a client, from its submission to its completion.
#[derive(Debug, Clone)]
pub(crate) struct Op {
    /// From 1; what the blocks of a write hold.
    pub(crate) id: u64,
    pub(crate) ask: Ask,
    pub(crate) asked: Order,
    pub(crate) ended: Option<Ended>,
    /// Its client wished that it end.
    pub(crate) cancelled: bool,
    /// When it could have no effect any more, where it never ended.
    pub(crate) fenced: Option<Order>,
    /// Values that a read found, by block.
    pub(crate) found: Vec<Value>,
}

impl Op {
    /// The last moment at which it may have an effect.
    pub(crate) fn until(&self) -> Order {
        let ended = self.ended.map(|ended| ended.order);
        ended.or(self.fenced).unwrap_or(Order::MAX)
    }

    pub(crate) fn succeeded(&self) -> bool {
        self.ended.is_some_and(|ended| ended.result.is_ok())
    }
}

/// One change that a volume behind the target was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Execution {
    /// The request whose data it carries; none for zeroes.
    pub(crate) of: Option<u64>,
    pub(crate) namespace: usize,
    pub(crate) kind: OperationKind,
    pub(crate) lba: u64,
    pub(crate) blocks: u64,
    pub(crate) began: Order,
    /// When it could change nothing any more.
    pub(crate) over: Option<Order>,
    /// The volume said that it was done.
    pub(crate) done: bool,
}

/// An event that is not of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// Power failed where the volumes are.
    PowerLoss,
    /// Anything else, in words.
    Words(String),
}

/// Whose right to change something was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// All hosts', to a namespace.
    Namespace(usize),
    /// A host's, to everything.
    Host(usize),
}

/// A right was taken away, for a time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Revocation {
    pub(crate) whose: Whose,
    /// When that was acknowledged.
    pub(crate) from: Order,
    /// When it began to be given back.
    pub(crate) until: Option<Order>,
}

/// A reason for which a request may fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The world's.
    Fault(FaultKind),
    Trouble(Trouble),
    /// A client drops a queue, and fences its volume.
    Fence,
}

/// Something that was really done to the system, which explains what fails meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Incident {
    pub(crate) cause: Cause,
    /// The host that alone feels it; none where all do.
    pub(crate) host: Option<usize>,
    /// The namespace that alone is concerned; none where all are.
    pub(crate) namespace: Option<usize>,
    pub(crate) from: Duration,
    /// None while it goes on.
    pub(crate) until: Option<Duration>,
}

/// A connection as the gateway knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connection {
    pub(crate) host: usize,
    pub(crate) path: usize,
    pub(crate) namespace: usize,
    pub(crate) from: Duration,
    /// When it ended there; none while it is there.
    pub(crate) until: Option<Duration>,
}

impl Incident {
    /// Tells whether it was under way at `moment` or later.
    pub(crate) fn is_under_way(&self, moment: Duration) -> bool {
        self.until.is_none_or(|until| until >= moment)
    }
}

#[derive(Debug, Clone)]
enum Event {
    Asked(u64),
    Ended(u64),
    Began(u64),
    Over(u64),
    Noted(usize),
}

/// The history of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) ops: Vec<Op>,
    /// By number.
    pub(crate) executions: BTreeMap<u64, Execution>,
    pub(crate) notes: Vec<(Order, Note)>,
    pub(crate) revocations: Vec<Revocation>,
    pub(crate) incidents: Vec<Incident>,
    pub(crate) connections: Vec<Connection>,
    /// When things began to go wrong.
    pub(crate) faults_began: Duration,
    /// When that stopped.
    pub(crate) faults_stopped: Option<Order>,
    /// By time which the volume was opened, when.
    openings: Vec<Duration>,
    events: Vec<(Duration, Event)>,
    /// Violations that were seen while they happened.
    pub(crate) wrong: Vec<Violation>,
    next_execution: u64,
    /// A task that waits for a write.
    awaited: Option<Awaited>,
    hash: u64,
}

/// A task that waits until a volume begins a write for a request that is meant.
struct Awaited {
    is_meant: Box<dyn Fn(&Ask) -> bool + Send>,
    sender: Sender<Ask>,
}

impl fmt::Debug for Awaited {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Awaited")
    }
}

impl History {
    fn push(&mut self, at: Duration, event: Event, words: [u64; 4]) -> Order {
        const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
        for word in [at.as_nanos() as u64].into_iter().chain(words) {
            self.hash = (self.hash.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER);
        }
        self.events.push((at, event));
        self.events.len() as Order
    }

    /// A hash of everything that was recorded.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn op(&self, id: u64) -> &Op {
        &self.ops[id as usize - 1]
    }

    /// A volume is opened; which time that is.
    pub(crate) fn open(&mut self, at: Duration) -> u64 {
        self.openings.push(at);
        self.openings.len() as u64
    }

    /// When volumes were opened for the `opening`th time.
    pub(crate) fn opened(&self, opening: u64) -> Duration {
        let opened = self.openings.get(opening.wrapping_sub(1) as usize);
        opened.copied().unwrap_or_default()
    }

    /// When something happened.
    pub(crate) fn time(&self, order: Order) -> Duration {
        self.events[order as usize - 1].0
    }

    /// A request is asked for; its number.
    pub(crate) fn ask(&mut self, at: Duration, ask: Ask) -> u64 {
        let id = self.ops.len() as u64 + 1;
        let words = [1, id, ask.lba << 8 | ask.kind as u64, ask.blocks];
        let asked = self.push(at, Event::Asked(id), words);
        self.ops.push(Op {
            id,
            ask,
            asked,
            ended: None,
            cancelled: false,
            fenced: None,
            found: Vec::new(),
        });
        id
    }

    /// Its client wishes that a request end.
    pub(crate) fn cancel(&mut self, id: u64) {
        self.ops[id as usize - 1].cancelled = true;
    }

    /// A request ended.
    pub(crate) fn end(
        &mut self,
        at: Duration,
        id: u64,
        result: Result<(), VolumeError>,
        found: Vec<Value>,
    ) {
        let code = result.err().map_or(0, |error| 1 + error_number(error));
        let mixed = found.iter().fold(code, |mixed, value| {
            mixed.wrapping_mul(31).wrapping_add(*value)
        });
        let order = self.push(at, Event::Ended(id), [2, id, code, mixed]);
        let op = &mut self.ops[id as usize - 1];
        assert!(
            op.ended.is_none(),
            "who records this has seen that it is once"
        );
        op.ended = Some(Ended { order, result });
        op.found = found;
    }

    /// Requests that never ended can have no effect any more.
    pub(crate) fn fence(&mut self, at: Duration, what: String, which: impl Fn(&Op) -> bool) {
        let order = self.note(at, Note::Words(what));
        for op in &mut self.ops {
            if op.ended.is_none() && op.fenced.is_none() && op.asked < order && which(op) {
                op.fenced = Some(order);
            }
        }
    }

    /// A volume is asked for a change; the number of the execution.
    pub(crate) fn begin(
        &mut self,
        at: Duration,
        of: Option<u64>,
        namespace: usize,
        kind: OperationKind,
        range: (u64, u64),
    ) -> u64 {
        self.next_execution += 1;
        let number = self.next_execution;
        let words = [3, of.unwrap_or(0), range.0 << 8 | kind as u64, range.1];
        let began = self.push(at, Event::Began(number), words);
        let execution = Execution {
            of,
            namespace,
            kind,
            lba: range.0,
            blocks: range.1,
            began,
            over: None,
            done: false,
        };
        self.executions.insert(number, execution);
        let ask = of.map(|of| &self.op(of).ask);
        if let Some(ask) = ask.cloned()
            && let Some(awaited) = self.awaited.take_if(|awaited| (awaited.is_meant)(&ask))
        {
            awaited.sender.send(ask);
        }
        number
    }

    /// The volume did not take it after all.
    pub(crate) fn never_began(&mut self, number: u64) {
        self.executions.remove(&number);
    }

    /// An execution can change nothing any more.
    pub(crate) fn over(&mut self, at: Duration, number: u64, done: bool) {
        let is_open = |execution: &Execution| execution.over.is_none();
        if !self.executions.get(&number).is_some_and(is_open) {
            return;
        }
        let order = self.push(at, Event::Over(number), [4, number, done.into(), 0]);
        if let Some(execution) = self.executions.get_mut(&number) {
            execution.over = Some(order);
            execution.done = done;
        }
    }

    /// Nothing that began so far can change anything any more: the host of the volumes went down.
    pub(crate) fn all_over(&mut self, at: Duration) {
        let open = self.executions.iter();
        let open: Vec<u64> = open
            .filter(|(_, execution)| execution.over.is_none())
            .map(|(number, _)| *number)
            .collect();
        open.into_iter()
            .for_each(|number| self.over(at, number, false));
    }

    /// Something happened.
    pub(crate) fn note(&mut self, at: Duration, note: Note) -> Order {
        let mixed = note.to_string().bytes().fold(0u64, |mixed, byte| {
            mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
        });
        let order = self.push(at, Event::Noted(self.notes.len()), [5, mixed, 0, 0]);
        self.notes.push((order, note));
        order
    }

    /// It is acknowledged that a right is taken away.
    pub(crate) fn revoke(&mut self, at: Duration, what: String, whose: Whose) {
        let from = self.note(at, Note::Words(what));
        self.revocations.push(Revocation {
            whose,
            from,
            until: None,
        });
    }

    /// A right is about to be given back.
    pub(crate) fn give_back(&mut self, at: Duration, what: String, whose: Whose) {
        let order = self.note(at, Note::Words(what));
        let of = |revocation: &&mut Revocation| revocation.whose == whose;
        for revocation in self.revocations.iter_mut().filter(of) {
            revocation.until.get_or_insert(order);
        }
    }

    /// Something begins to be done to the system; its number.
    pub(crate) fn incident(
        &mut self,
        at: Duration,
        cause: Cause,
        host: Option<usize>,
        namespace: Option<usize>,
    ) -> usize {
        self.incidents.push(Incident {
            cause,
            host,
            namespace,
            from: at,
            until: None,
        });
        self.incidents.len() - 1
    }

    /// Counts the incidents of a cause.
    pub(crate) fn happened(&self, cause: Cause) -> u64 {
        let incidents = self.incidents.iter();
        incidents.filter(|incident| incident.cause == cause).count() as u64
    }

    /// An incident is over.
    pub(crate) fn incident_over(&mut self, at: Duration, number: usize) {
        self.incidents[number].until = Some(at);
    }

    /// Something is wrong.
    pub(crate) fn accuse(&mut self, violation: Violation) {
        self.wrong.push(violation);
    }

    /// The lines of the history, in order.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |(index, (at, event)): (usize, &(Duration, Event))| {
            let order = index + 1;
            let what = match event {
                Event::Asked(id) => format!("asked  {}", self.op(*id)),
                Event::Ended(id) => format!("ended  {}", Answered(self.op(*id))),
                Event::Began(number) => match self.executions.get(number) {
                    Some(execution) => format!("begins {execution} (execution {number})"),
                    None => format!("the volume did not take execution {number}"),
                },
                Event::Over(number) => format!("over   execution {number}"),
                Event::Noted(index) => self.notes[*index].1.to_string(),
            };
            format!("{order:6} {:12.6} {what}", at.as_secs_f64())
        };
        self.events.iter().enumerate().map(line)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ask {
            host,
            life,
            path,
            namespace,
            kind,
            lba,
            blocks,
            fua,
            ..
        } = &self.ask;
        let range = match blocks {
            0 => String::new(),
            _ => format!(" of blocks {lba}..{}", lba + blocks),
        };
        let fua = if *fua { " (FUA)" } else { "" };
        write!(
            formatter,
            "#{} {kind:?}{fua}{range} of namespace {}, by host {host}",
            self.id,
            namespace + 1
        )?;
        if *life > 0 {
            write!(formatter, ", life {life}")?;
        }
        if *path > 0 {
            write!(formatter, ", path {path}")?;
        }
        match self.ask.expected.is_empty() {
            true => Ok(()),
            false => write!(formatter, ", expecting {:?}", self.ask.expected),
        }
    }
}

struct Answered<'a>(&'a Op);

impl fmt::Display for Answered<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = self.0;
        write!(formatter, "#{} {:?}: ", op.id, op.ask.kind)?;
        match op.ended.map(|ended| ended.result) {
            None => write!(formatter, "not at all"),
            Some(Ok(())) if op.found.is_empty() => write!(formatter, "well"),
            Some(Ok(())) => write!(formatter, "{:?}", op.found),
            Some(Err(error)) => write!(formatter, "{error:?}"),
        }
    }
}

impl fmt::Display for Execution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?} of blocks {}..{} of namespace {}",
            self.kind,
            self.lba,
            self.lba + self.blocks,
            self.namespace + 1
        )?;
        match self.of {
            Some(of) => write!(formatter, " for #{of}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.cause)?;
        if let Some(host) = self.host {
            write!(formatter, " of host {host}")?;
        }
        if let Some(namespace) = self.namespace {
            write!(formatter, " of namespace {}", namespace + 1)?;
        }
        write!(formatter, " from {:.6}", self.from.as_secs_f64())?;
        match self.until {
            Some(until) => write!(formatter, " until {:.6}", until.as_secs_f64()),
            None => write!(formatter, " until the end"),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::PowerLoss => write!(formatter, "== power fails at the gateway"),
            Note::Words(words) => write!(formatter, "== {words}"),
        }
    }
}

fn error_number(error: VolumeError) -> u64 {
    match error {
        VolumeError::OutOfRange => 1,
        VolumeError::ReadOnly => 2,
        VolumeError::Miscompare { .. } => 3,
        VolumeError::Unsupported => 4,
        VolumeError::Invalid => 5,
        VolumeError::NoSpace => 6,
        VolumeError::Medium => 7,
        VolumeError::Lost => 8,
        VolumeError::TimedOut => 9,
        VolumeError::Cancelled => 10,
        VolumeError::Busy => 11,
    }
}

/// The history while it is made, and the world's clock.
#[derive(Clone)]
pub(crate) struct Journal {
    world: World,
    history: Arc<Mutex<History>>,
}

impl Journal {
    pub(crate) fn new(world: World) -> Self {
        Journal {
            world,
            history: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulated time since the world began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.world.elapsed()
    }

    /// Changes the history; `change` is told the time.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut History, Duration) -> T) -> T {
        let now = self.world.elapsed();
        change(&mut self.lock(), now)
    }

    /// Something happened, in words.
    pub(crate) fn say(&self, words: impl Into<String>) {
        let note = Note::Words(words.into());
        self.with(|history, now| history.note(now, note));
    }

    /// Trouble begins; the number of the incident.
    pub(crate) fn trouble(
        &self,
        trouble: Trouble,
        host: Option<usize>,
        namespace: Option<usize>,
    ) -> usize {
        let cause = Cause::Trouble(trouble);
        self.with(|history, now| history.incident(now, cause, host, namespace))
    }

    /// An incident is over.
    pub(crate) fn over(&self, incident: usize) {
        self.with(|history, now| history.incident_over(now, incident));
    }

    /// Waits until a volume begins a write for a request that is meant; none where that is waited for no more.
    pub(crate) async fn next_write(
        &self,
        is_meant: impl Fn(&Ask) -> bool + Send + 'static,
    ) -> Option<Ask> {
        let (sender, write) = oneshot();
        let is_meant = Box::new(is_meant);
        self.lock().awaited = Some(Awaited { is_meant, sender });
        write.await
    }

    /// Waits for no write any more.
    pub(crate) fn await_no_write(&self) {
        drop(self.lock().awaited.take());
    }

    /// Something is wrong.
    pub(crate) fn accuse(&self, violation: Violation) {
        self.lock().accuse(violation);
    }

    /// Takes what was recorded; nothing is recorded here any more.
    pub(crate) fn take(&self) -> History {
        std::mem::take(&mut self.lock())
    }
}
