//! The well-behaved host that must not notice anything: one command at a time on a connection of its own while a case runs.
//!
//! It reads blocks that no case touches and, where it may, writes them before and compares. An error, other data, or a lost connection
//! is kept until it is asked for; so is the longest time that a command took.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::case::Failure;
use crate::context::{Host, WITNESS_BLOCKS};

/// A pause between two commands: the witness watches, it is no load.
const PAUSE: Duration = Duration::from_millis(1);
/// After how long it says that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// The longest that the witness waits for an answer: far above any bound on a stall.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the witness saw in a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Seen {
    /// Commands that ended well.
    pub commands: u64,
    /// The longest of them.
    pub worst: Duration,
}

#[derive(Default)]
struct State {
    /// It is to send commands.
    watching: bool,
    /// A command is in flight.
    busy: bool,
    /// It is to end.
    ending: bool,
    seen: Seen,
    /// What went wrong, for good.
    wrong: Option<String>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A host on a thread of its own.
pub struct Witness {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    /// Begins to watch, as this host. Blocks of `block` bytes from `first` on are its own; `writes`: it may write to them.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn start(
        mut host: Box<dyn Host>,
        first: u64,
        block: u32,
        writes: bool,
    ) -> Result<Self, Failure> {
        let expected = (0..WITNESS_BLOCKS)
            .map(|index| host.read(first + index))
            .collect::<Result<_, _>>()?;
        let work = Work {
            host,
            first,
            block,
            expected,
            writes,
            round: 0,
            alive: Instant::now(),
        };
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = std::thread::spawn(move || watch(&own, work));
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// A case begins.
    pub fn begin(&self) {
        let mut state = self.shared.lock();
        state.watching = true;
        state.seen = Seen::default();
        self.shared.changed.notify_all();
    }

    /// The case has ended: what was seen, once one command more has ended and none is in flight.
    ///
    /// # Errors
    /// What went wrong.
    pub fn end(&self) -> Result<Seen, String> {
        let state = self.shared.lock();
        // One more: the shortest case is watched, too.
        let enough = state.seen.commands + 1;
        let mut state = self.wait_while(state, |state| {
            state.seen.commands < enough && state.wrong.is_none()
        });
        state.watching = false;
        let state = self.wait_while(state, |state| state.busy);
        match &state.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(state.seen),
        }
    }
}

impl Witness {
    fn wait_while<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        condition: impl Fn(&State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.shared
            .changed
            .wait_while(state, |state| condition(state))
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.shared.lock().ending = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of its thread was told when it happened.
            let _ = thread.join();
        }
    }
}

struct Work {
    host: Box<dyn Host>,
    first: u64,
    block: u32,
    expected: Vec<Vec<u8>>,
    writes: bool,
    round: u64,
    alive: Instant,
}

fn watch(shared: &Shared, mut work: Work) {
    loop {
        let mut state = shared.lock();
        while !state.watching && !state.ending && work.alive.elapsed() < KEEP_ALIVE {
            state = shared
                .changed
                .wait_timeout(state, KEEP_ALIVE)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if state.ending || state.wrong.is_some() {
            return;
        }
        let counts = state.watching;
        state.busy = true;
        drop(state);
        let began = Instant::now();
        let done = work.step();
        let took = began.elapsed();
        let mut state = shared.lock();
        state.busy = false;
        match done {
            Ok(()) if counts => {
                state.seen.commands += 1;
                state.seen.worst = state.seen.worst.max(took);
            }
            Ok(()) => {}
            Err(failure) => state.wrong = Some(failure.to_string()),
        }
        shared.changed.notify_all();
        drop(state);
        std::thread::sleep(PAUSE);
    }
}

impl Work {
    /// One command.
    fn step(&mut self) -> Result<(), Failure> {
        if self.alive.elapsed() >= KEEP_ALIVE {
            self.alive = Instant::now();
            self.host.keep_alive()?;
        }
        self.round += 1;
        // Each block in turn: written in one round over all of them, compared in the next.
        let index = (self.round % WITNESS_BLOCKS) as usize;
        let lba = self.first + index as u64;
        let writes = self.writes && (self.round / WITNESS_BLOCKS).is_multiple_of(2);
        if writes {
            let data = self.stamp(index);
            self.host.write(lba, &data)?;
            self.expected[index] = data;
            return Ok(());
        }
        let read = self.host.read(lba)?;
        if read == self.expected[index] {
            return Ok(());
        }
        Err(Failure::differs(
            format!("the witness's block {lba}"),
            "the data that was there",
            "other data",
        ))
    }

    fn stamp(&self, index: usize) -> Vec<u8> {
        let stamp = self.round << 8 | index as u64;
        let mut data: Vec<u8> = stamp.to_le_bytes().repeat(self.block as usize / 8);
        data.resize(self.block as usize, 0);
        data
    }
}
