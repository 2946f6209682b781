//! The driver of one reactor: operations become submissions, completions become outcomes.
//!
//! An operation and all that its submission refers to rest in a slot until the kernel's last completion for it. What the
//! ring has no room for waits in a backlog in order; a receive for which the kernel found no buffer waits until one is
//! back. Bytes that had arrived for a receive or left with a send that was then cancelled are lost with it: what is left
//! to do with such a connection is to close it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use crate::linux::LinuxSystem;
use crate::linux::buffers::BufferRing;
use crate::linux::feature::Feature;
use crate::linux::notify::EventNotifier;
use crate::linux::ring::Ring;
use crate::linux::schedule::Schedule;
use crate::linux::slot::{Next, Slot, error};
use crate::random::Random;
use crate::{
    Driver, Handle, InFlight, Instant, Notifier, Op, OpToken, Outcome, Output, Owner,
    ProcessorTimes, Socket, Wait,
};

/// Word of the read that ends a wait. No operation's slot comes near.
const WAKE: u64 = u32::MAX as u64;
/// Word of cancellations, whose own completions mean nothing.
const CANCEL: u64 = u32::MAX as u64 - 1;

/// How long a receive may wait with a large buffer that another could use.
const BULK_IDLE: Duration = Duration::from_millis(10);

/// Transfers of files that are handed to the kernel at once. It tells the drive of all that it was handed in one call after the
/// last: the drive starts on the first of them while the others are still being prepared.
const TRANSFERS_AT_ONCE: usize = 4;

/// Receives that are asked again and again. Of more, it waits to be told: to ask each one takes longer.
const LOOKED_AT_MAX: usize = 8;

/// For how long a driver that is dropped waits for the kernel to let go of its memory.
const DROP_WAIT_MAX: Duration = Duration::from_secs(5);

pub(super) struct Uring {
    ring: Ring,
    /// None only while the driver is dropped.
    buffers: Option<BufferRing>,
    /// Submissions refer to slots, which stay where they are when the table grows.
    in_flight: InFlight<Box<Slot>>,
    /// Slots of operations that have ended, for the next ones.
    #[expect(clippy::vec_box, reason = "they go back into the table as they are")]
    spare: Vec<Box<Slot>>,
    /// Memory for vectors, for the next operation that needs some.
    vectors: Vec<Vec<libc::iovec>>,
    /// Operations whose submission the kernel has, or the backlog.
    in_kernel: usize,
    backlog: VecDeque<squeue::Entry>,
    /// Transfers of files that were queued since the ring was last handed to the kernel.
    transfers: usize,
    /// Receives for which there was no buffer, in order.
    starved: VecDeque<OpToken>,
    /// Receives that start with the turn.
    held: Vec<OpToken>,
    /// When it was last looked for large buffers that are not used.
    bulk_looked: Instant,
    /// Outcomes that needed no kernel.
    ready: Vec<(Owner, Outcome)>,
    completions: Vec<cqueue::Entry>,
    notifier: Arc<EventNotifier>,
    /// Where the notifier's count is read to.
    wake_count: Box<u64>,
    wake_armed: bool,
    /// For jitter and the like.
    random: Random,
    schedule: Schedule,
    discards_by_command: bool,
    system: Arc<LinuxSystem>,
}

impl Uring {
    /// A driver for the calling thread, which alone may use it.
    pub(super) fn new(system: Arc<LinuxSystem>) -> io::Result<Self> {
        let config = system.config();
        let ring = Ring::new(config.ring_entries, system.features())?;
        let buffers = BufferRing::new(&ring.submitter(), config.receive_buffers)?;
        let mut seed = [0; 8];
        crate::System::random_bytes(&*system, &mut seed);
        Ok(Uring {
            ring,
            buffers: Some(buffers),
            in_flight: InFlight::default(),
            spare: Vec::new(),
            vectors: Vec::new(),
            in_kernel: 0,
            backlog: VecDeque::new(),
            transfers: 0,
            starved: VecDeque::new(),
            held: Vec::new(),
            bulk_looked: Instant::default(),
            ready: Vec::new(),
            completions: Vec::new(),
            notifier: Arc::new(EventNotifier::new()?),
            wake_count: Box::new(0),
            wake_armed: false,
            random: Random::new(u64::from_ne_bytes(seed)),
            schedule: Schedule::of_this_thread(),
            discards_by_command: system.features().uses(Feature::BlockDiscard),
            system,
        })
    }

    fn buffers(&mut self) -> &mut BufferRing {
        self.buffers
            .as_mut()
            .expect("the buffers are there until the driver is dropped")
    }

    /// The slot of an operation that has not ended.
    fn slot(&mut self, token: OpToken) -> &mut Slot {
        let slot = self.in_flight.find(token);
        slot.expect("the operation is in flight")
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.backlog.is_empty() {
            // SAFETY: an operation's entry refers to its slot and buffers, which stay until its last completion; the
            // others refer to nothing, or to `wake_count`, which stays as long as the ring.
            unsafe {
                if self.ring.push(&entry) {
                    return;
                }
                self.ring.submit();
                if self.ring.push(&entry) {
                    return;
                }
            }
        }
        self.backlog.push_back(entry);
    }

    /// Moves the backlog into the ring as far as there is room.
    fn push_backlog(&mut self) {
        while let Some(entry) = self.backlog.front() {
            // SAFETY: as in `push`.
            if !unsafe { self.ring.push(entry) } {
                self.ring.submit();
                // SAFETY: as in `push`.
                if !unsafe { self.ring.push(entry) } {
                    return;
                }
            }
            self.backlog.pop_front();
        }
    }

    /// Submits what is left of an operation.
    fn start(&mut self, token: OpToken) {
        let receive_bytes = self.buffers().bytes();
        if self.slot(token).wants_bulk() {
            match self.buffers().bulk() {
                Some(segment) => self.slot(token).set_bulk(segment),
                None => self.call_bulk_back(),
            }
        }
        let slot = self.slot(token);
        let entry = slot.entry(receive_bytes).user_data(token.to_word());
        let is_transfer = slot.is_transfer();
        self.in_kernel += 1;
        self.push(entry);
        if is_transfer {
            self.transfers += 1;
            if self.transfers == TRANSFERS_AT_ONCE {
                self.transfers = 0;
                self.ring.submit();
            }
        }
    }

    /// Calls receives back that have waited with large buffers for bytes which do not come, for others to have these.
    fn call_bulk_back(&mut self) {
        let now = super::now();
        if now < self.bulk_looked + BULK_IDLE {
            return;
        }
        self.bulk_looked = now;
        let idle = self.in_flight.iter_mut();
        let idle = idle.filter_map(|(token, slot)| slot.calls_bulk_back().then_some(token));
        let idle: Vec<OpToken> = idle.collect();
        idle.into_iter().for_each(|token| self.push_cancel(token));
    }

    fn push_cancel(&mut self, token: OpToken) {
        // It follows the operation's own submission, whether that is in the kernel, the ring or the backlog.
        let entry = opcode::AsyncCancel::new(token.to_word())
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(CANCEL);
        self.push(entry);
    }

    fn finish(&mut self, token: OpToken, result: io::Result<Output>) -> (Owner, Outcome) {
        let (owner, mut slot) = self.in_flight.remove(token);
        let op = slot.op.take().expect("a slot in use holds an operation");
        slot.bulk_returns();
        self.vectors.extend(slot.take_vectors());
        self.spare.push(slot);
        (owner, Outcome { result, op })
    }

    /// Replaces missing receive buffers, and starts receives that wait for one.
    fn feed_receives(&mut self) {
        self.buffers().refill();
        if self.starved.is_empty() {
            return;
        }
        for _ in 0..self.buffers().available().min(self.starved.len()) {
            let token = self.starved.pop_front().expect("counted");
            let slot = self.slot(token);
            (slot.starved, slot.looks) = (false, false);
            self.start(token);
        }
    }

    /// Whether a receive waits for a buffer, and the kernel has one to choose. Those that were started as if each took one may
    /// have found no bytes, and taken none.
    fn can_feed_more(&mut self) -> bool {
        !self.starved.is_empty() && self.buffers().available() > 0
    }

    fn hold(&mut self, token: OpToken) {
        self.slot(token).held = true;
        self.held.push(token);
    }

    /// Starts the receives that were held; where it only `looks`, those without bytes come back to be held on.
    /// They come behind those that waited for a buffer, which have their turn however quick the others are.
    fn start_held(&mut self, looks: bool) {
        let mut held = std::mem::take(&mut self.held);
        for token in held.drain(..) {
            let slot = self.slot(token);
            slot.held = false;
            slot.looks = looks;
            self.start(token);
        }
        self.held = held;
    }

    fn arm_wake(&mut self) {
        if self.wake_armed {
            return;
        }
        let count = std::ptr::from_mut(&mut *self.wake_count).cast();
        let entry = opcode::Read::new(Fd(self.notifier.raw()), count, size_of::<u64>() as u32)
            .build()
            .user_data(WAKE);
        self.wake_armed = true;
        self.push(entry);
    }

    /// Takes the completions that are there.
    fn reap(&mut self, outcomes: &mut Vec<(Owner, Outcome)>) {
        let mut completions = std::mem::take(&mut self.completions);
        self.ring.take(&mut completions);
        for completion in completions.drain(..) {
            match completion.user_data() {
                WAKE => self.wake_armed = false,
                CANCEL => {}
                word => outcomes.extend(self.complete(OpToken::from_word(word), &completion)),
            }
        }
        self.completions = completions;
    }

    fn complete(&mut self, token: OpToken, completion: &cqueue::Entry) -> Option<(Owner, Outcome)> {
        self.in_kernel -= 1;
        let result = completion.result();
        let received = cqueue::buffer_select(completion.flags()).and_then(|number| {
            if result > 0 {
                return Some(self.buffers().take(number, result as usize));
            }
            self.buffers().put_back(number);
            None
        });
        let system = &self.system;
        let accepted = |descriptor| Socket::new(Handle(descriptor as u32), system.clone());
        let slot = self.in_flight.find(token);
        let slot = slot.expect("the kernel completes operations in flight");
        match slot.complete(result, received, accepted) {
            Next::Done(result) => return Some(self.finish(token, result)),
            Next::Again => self.start(token),
            Next::Later => {
                slot.bulk_returns();
                self.hold(token);
            }
            Next::Starved => {
                slot.starved = true;
                self.starved.push_back(token);
                self.buffers().ran_out();
            }
        }
        None
    }
}

impl Driver for Uring {
    fn now(&self) -> Instant {
        super::now()
    }

    fn random(&mut self) -> u64 {
        self.random.next()
    }

    fn submit(&mut self, owner: Owner, op: Op) -> OpToken {
        let mut slot = self.spare.pop().unwrap_or_else(Slot::new);
        if matches!(op, Op::Send { .. } | Op::Read { .. } | Op::Write { .. }) {
            slot.lend_vectors(self.vectors.pop().unwrap_or_default());
        }
        let done = slot.begin(op, self.discards_by_command);
        let can_wait = slot.can_wait();
        let token = self.in_flight.insert(owner, slot);
        match done {
            None if can_wait => self.hold(token),
            None => self.start(token),
            Some(output) => {
                let outcome = self.finish(token, Ok(output));
                self.ready.push(outcome);
            }
        }
        token
    }

    fn cancel(&mut self, token: OpToken) {
        let Some(slot) = self.in_flight.find(token) else {
            return;
        };
        slot.cancelled = true;
        if slot.starved || slot.held {
            self.starved.retain(|&waiting| waiting != token);
            self.held.retain(|&waiting| waiting != token);
            let outcome = self.finish(token, Err(error(libc::ECANCELED)));
            self.ready.push(outcome);
            return;
        }
        self.push_cancel(token);
    }

    fn turn(&mut self, wait: Wait, outcomes: &mut Vec<(Owner, Outcome)>) {
        self.feed_receives();
        self.start_held(wait == Wait::Look && self.held.len() <= LOOKED_AT_MAX);
        self.push_backlog();
        match wait {
            Wait::Until(deadline)
                if self.ready.is_empty()
                    && !self.ring.has_completions()
                    && !self.can_feed_more() =>
            {
                self.arm_wake();
                let now = super::now();
                self.ring.wait(deadline, now);
            }
            _ => self.ring.poll(),
        }
        self.transfers = 0;
        outcomes.append(&mut self.ready);
        self.reap(outcomes);
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len() + self.ready.len()
    }

    fn abandon_all(&mut self) -> Vec<Owner> {
        let mut owners = self.in_flight.disown();
        let ready = self.ready.iter_mut();
        owners.extend(ready.map(|(owner, _)| std::mem::take(owner)));
        let tokens: Vec<OpToken> = self.in_flight.iter_mut().map(|(token, _)| token).collect();
        tokens.into_iter().for_each(|token| self.cancel(token));
        owners
    }

    fn processor_times(&self) -> Option<ProcessorTimes> {
        self.schedule.times()
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        self.notifier.clone()
    }
}

impl Drop for Uring {
    /// The kernel may write to the memory of whatever is in flight: it is all called back first.
    fn drop(&mut self) {
        let deadline = super::now() + DROP_WAIT_MAX;
        let mut outcomes = Vec::new();
        self.starved.clear();
        self.held.clear();
        let in_kernel = self.in_flight.iter_mut();
        let in_kernel = in_kernel.filter_map(|(token, slot)| slot.is_in_kernel().then_some(token));
        let in_kernel: Vec<OpToken> = in_kernel.collect();
        in_kernel.into_iter().for_each(|token| self.cancel(token));
        if self.wake_armed {
            self.notifier.notify();
        }
        while (self.in_kernel > 0 || self.wake_armed) && super::now() < deadline {
            self.push_backlog();
            self.ring.wait(Some(deadline), super::now());
            self.reap(&mut outcomes);
        }
        let buffers = self.buffers.take().expect("dropped once");
        if self.in_kernel == 0 && !self.wake_armed {
            buffers.unregister(&self.ring.submitter());
            return;
        }
        tracing::error!(
            operations = self.in_kernel,
            "the kernel did not give operations back; their memory is lost"
        );
        std::mem::forget(buffers);
        std::mem::forget(std::mem::take(&mut self.in_flight));
        std::mem::forget(std::mem::take(&mut self.wake_count));
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use weir_memory::{Segment, View, Views};

    use super::*;
    use crate::linux::{LinuxConfig, ReceiveBuffers};
    use crate::{Amount, Handler, LocalFile, OpenOptions, ReceiveInto, System};

    fn driver() -> Uring {
        driver_with(ReceiveBuffers::default())
    }

    fn driver_with(receive_buffers: ReceiveBuffers) -> Uring {
        let config = LinuxConfig {
            receive_buffers,
            ..LinuxConfig::default()
        };
        let system = LinuxSystem::new(config).expect("io_uring works here");
        Uring::new(system).expect("a driver")
    }

    fn file(driver: &Uring, directory: &tempfile::TempDir) -> Rc<LocalFile> {
        let options = OpenOptions {
            write: true,
            create: Some(1 << 20),
            ..OpenOptions::default()
        };
        let path = directory.path().join("file");
        let (file, _) = driver
            .system
            .clone()
            .open_file(&path, &options)
            .expect("opens");
        LocalFile::new(file)
    }

    fn write(file: &Rc<LocalFile>, number: u64) -> Op {
        let data: Views = View::zeroes(4096).collect();
        Op::Write {
            file: file.clone(),
            offset: number * 4096,
            data,
            durable: false,
        }
    }

    /// A connected socket and what it is connected to.
    fn socket(driver: &Uring) -> (Rc<Socket>, std::net::TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("has one");
        let peer = std::net::TcpStream::connect(address).expect("connects");
        let (accepted, _) = listener.accept().expect("accepts");
        let handle = Handle(std::os::fd::IntoRawFd::into_raw_fd(accepted) as u32);
        (Rc::new(Socket::new(handle, driver.system.clone())), peer)
    }

    /// Waits until a socket has bytes to receive.
    fn await_bytes(socket: &Socket) {
        // SAFETY: the socket is open.
        let socket = unsafe { std::os::fd::BorrowedFd::borrow_raw(socket.handle().0 as i32) };
        let socket = std::net::TcpStream::from(socket.try_clone_to_owned().expect("a descriptor"));
        socket.peek(&mut [0]).expect("bytes");
    }

    #[test]
    fn spinning_makes_no_system_call() {
        let mut driver = driver();
        let (socket, peer) = socket(&driver);
        let op = Op::Receive {
            socket,
            into: ReceiveInto::Ring(Amount::Usual),
        };
        driver.submit(Owner::nobody(0), op);
        let mut outcomes = Vec::new();
        driver.turn(Wait::No, &mut outcomes);
        let enters = driver.ring.enters();
        for _ in 0..10_000 {
            driver.turn(Wait::No, &mut outcomes);
        }
        assert_eq!(driver.ring.enters(), enters, "nothing had happened");
        assert!(outcomes.is_empty());
        // And it sees what happens, at the price of one.
        std::io::Write::write_all(&mut &peer, b"x").expect("sends");
        while outcomes.is_empty() {
            driver.turn(Wait::No, &mut outcomes);
        }
        assert!(driver.ring.enters() <= enters + 2);
    }

    fn receive(driver: &mut Uring, socket: &Rc<Socket>) -> OpToken {
        let op = Op::Receive {
            socket: socket.clone(),
            into: ReceiveInto::Ring(Amount::Usual),
        };
        driver.submit(Owner::nobody(0), op)
    }

    fn received(outcomes: &[(Owner, Outcome)]) -> &[u8] {
        match outcomes {
            [
                (
                    _,
                    Outcome {
                        result: Ok(Output::Received(view)),
                        ..
                    },
                ),
            ] => view,
            other => panic!("one receive was to end: {other:?}"),
        }
    }

    #[test]
    fn a_look_finds_what_is_there_and_holds_the_receive_of_what_is_not() {
        let mut driver = driver();
        let (socket, peer) = socket(&driver);
        let mut outcomes = Vec::new();
        let token = receive(&mut driver, &socket);
        driver.turn(Wait::Look, &mut outcomes);
        assert!(outcomes.is_empty());
        assert_eq!(driver.held, [token], "the kernel has it");
        std::io::Write::write_all(&mut &peer, b"there").expect("sends");
        driver.turn(Wait::Look, &mut outcomes);
        assert_eq!(received(&outcomes), b"there");
        assert!(driver.held.is_empty());
    }

    #[test]
    fn a_held_receive_is_cancelled_or_dropped_like_any_other() {
        let mut driver = driver();
        let (socket, _peer) = socket(&driver);
        let mut outcomes = Vec::new();
        let token = receive(&mut driver, &socket);
        driver.turn(Wait::Look, &mut outcomes);
        driver.cancel(token);
        driver.turn(Wait::No, &mut outcomes);
        let (_, outcome) = outcomes.pop().expect("it ended");
        let error = outcome.result.expect_err("it was cancelled");
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
        receive(&mut driver, &socket);
        driver.turn(Wait::Look, &mut outcomes);
        drop(driver);
        assert!(outcomes.is_empty());
    }

    #[test]
    fn what_a_turn_submits_takes_one_system_call() {
        let mut driver = driver();
        let directory = tempfile::tempdir().expect("a directory");
        let file = file(&driver, &directory);
        for number in 0..32 {
            driver.submit(Owner::nobody(number), Op::Sync { file: file.clone() });
        }
        assert_eq!(driver.ring.enters(), 0, "submitting is the turn's work");
        driver.turn(Wait::No, &mut Vec::new());
        assert_eq!(driver.ring.enters(), 1);
    }

    #[test]
    fn a_few_transfers_of_files_take_one_system_call() {
        const OPERATIONS: u64 = 128;
        let mut driver = driver();
        let directory = tempfile::tempdir().expect("a directory");
        let file = file(&driver, &directory);
        for number in 0..OPERATIONS {
            driver.submit(Owner::nobody(number), write(&file, number));
        }
        let enters = OPERATIONS / TRANSFERS_AT_ONCE as u64;
        assert_eq!(driver.ring.enters(), enters);
        let mut outcomes = Vec::new();
        driver.turn(Wait::No, &mut outcomes);
        assert!(driver.ring.enters() <= enters + 1);
        while outcomes.len() < OPERATIONS as usize {
            driver.turn(Wait::Until(None), &mut outcomes);
        }
        for (_, outcome) in outcomes {
            assert!(matches!(outcome.result, Ok(Output::Count(4096))));
        }
    }

    #[test]
    fn completions_beyond_the_ring_are_kept() {
        const OPERATIONS: u64 = 20_000;
        let mut driver = driver();
        let (socket, peer) = socket(&driver);
        // All wait for bytes, and all end at once, with more completions than the ring holds.
        for number in 0..OPERATIONS {
            let op = Op::Receive {
                socket: socket.clone(),
                into: ReceiveInto::Segment {
                    segment: Segment::heap(1),
                    from: 0,
                },
            };
            driver.submit(Owner::nobody(number), op);
        }
        let mut outcomes = Vec::new();
        driver.turn(Wait::No, &mut outcomes);
        assert!(outcomes.is_empty());
        drop(peer);
        while outcomes.len() < OPERATIONS as usize {
            driver.turn(Wait::Until(None), &mut outcomes);
        }
        let mut numbers: Vec<u64> = outcomes.iter().map(|(owner, _)| owner.user()).collect();
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..OPERATIONS), "each once");
    }

    #[test]
    fn a_notification_ends_the_wait_that_goes_on_or_the_next() {
        let mut driver = driver();
        let notifier = driver.notifier();
        let mut outcomes = Vec::new();
        for _ in 0..1000 {
            notifier.notify();
            driver.turn(Wait::Until(None), &mut outcomes);
        }
        let thread = std::thread::spawn(move || {
            for _ in 0..1000 {
                notifier.notify();
                std::thread::yield_now();
            }
        });
        driver.turn(Wait::Until(None), &mut outcomes);
        thread.join().expect("no panic");
        assert!(outcomes.is_empty());
    }

    #[test]
    fn a_wait_ends_at_its_deadline_and_not_before() {
        for forced_off in [Vec::new(), Feature::ALL.to_vec()] {
            let config = LinuxConfig {
                forced_off,
                ..LinuxConfig::default()
            };
            let system = LinuxSystem::new(config).expect("io_uring works here");
            let mut driver = Uring::new(system).expect("a driver");
            let mut outcomes = Vec::new();
            let mut enters = 0;
            // None where the machine stood still for longer before the wait began.
            while enters == 0 {
                let deadline = driver.now() + Duration::from_millis(20);
                let before = driver.ring.enters();
                while driver.now() < deadline {
                    driver.turn(Wait::Until(Some(deadline)), &mut outcomes);
                }
                enters = driver.ring.enters() - before;
            }
            assert!(
                (1..5).contains(&enters),
                "{enters} system calls for one wait"
            );
            // One that is over is no wait.
            driver.turn(Wait::Until(Some(Instant::from_nanos(1))), &mut outcomes);
        }
    }

    #[test]
    fn a_deadline_of_ages_is_a_wait() {
        for forced_off in [Vec::new(), Feature::ALL.to_vec()] {
            let config = LinuxConfig {
                forced_off,
                ..LinuxConfig::default()
            };
            let system = LinuxSystem::new(config).expect("io_uring works here");
            let mut driver = Uring::new(system).expect("a driver");
            let notifier = driver.notifier();
            let notified = Arc::new(std::sync::atomic::AtomicBool::new(false));
            let thread = std::thread::spawn({
                let notified = notified.clone();
                move || {
                    std::thread::sleep(Duration::from_millis(20));
                    notified.store(true, std::sync::atomic::Ordering::SeqCst);
                    notifier.notify();
                }
            });
            let mut outcomes = Vec::new();
            let ages = Wait::Until(Some(Instant::from_nanos(u64::MAX)));
            let mut turns = 0;
            while !notified.load(std::sync::atomic::Ordering::SeqCst) {
                driver.turn(ages, &mut outcomes);
                turns += 1;
            }
            assert!(turns < 5, "{turns} turns");
            thread.join().expect("no panic");
        }
    }

    /// A receive that finds no bytes takes no buffer: those behind it are started with the same one.
    #[test]
    fn no_receive_waits_for_a_buffer_while_there_is_one() {
        const IDLE: u64 = 3;
        let mut driver = driver_with(ReceiveBuffers {
            count: 1,
            bytes: 4096,
        });
        let pairs: Vec<_> = (0..=IDLE).map(|_| socket(&driver)).collect();
        std::io::Write::write_all(&mut &pairs[0].1, b"x").expect("sends");
        await_bytes(&pairs[0].0);
        for (number, (socket, _)) in (0..).zip(&pairs) {
            let op = Op::Receive {
                socket: socket.clone(),
                into: ReceiveInto::Ring(Amount::Usual),
            };
            driver.submit(Owner::nobody(number), op);
        }
        let mut outcomes = Vec::new();
        driver.turn(Wait::No, &mut outcomes);
        assert_eq!(outcomes.len(), 1);
        assert_eq!(driver.starved.len(), IDLE as usize, "there was one buffer");
        let soon = driver.now() + Duration::from_millis(5);
        while driver.now() < soon {
            driver.turn(Wait::Until(Some(soon)), &mut outcomes);
        }
        // Bytes end the wait of the one that was started last too.
        for number in (1..=IDLE).rev() {
            let mut peer = &pairs[number as usize].1;
            std::io::Write::write_all(&mut peer, b"x").expect("sends");
            outcomes.clear();
            let deadline = driver.now() + Duration::from_secs(300);
            while outcomes.is_empty() && driver.now() < deadline {
                driver.turn(Wait::Until(Some(deadline)), &mut outcomes);
            }
            let received: Vec<u64> = outcomes.iter().map(|(owner, _)| owner.user()).collect();
            assert_eq!(received, [number]);
        }
    }

    #[test]
    fn receives_that_wait_for_a_buffer_have_their_turn() {
        let mut driver = driver_with(ReceiveBuffers {
            count: 1,
            bytes: 4096,
        });
        let pairs: Vec<_> = (0..2).map(|_| socket(&driver)).collect();
        let receive = |driver: &mut Uring, number: u64| {
            let op = Op::Receive {
                socket: pairs[number as usize].0.clone(),
                into: ReceiveInto::Ring(Amount::Usual),
            };
            driver.submit(Owner::nobody(number), op);
        };
        let fill = |slot: usize| {
            std::io::Write::write_all(&mut &pairs[slot].1, b"x").expect("sends");
            await_bytes(&pairs[slot].0);
        };
        (0..2).for_each(fill);
        (0..2).for_each(|number| receive(&mut driver, number));
        let mut outcomes = Vec::new();
        // The first is always there again before the other one's turn.
        for _ in 1..4 {
            driver.turn(Wait::No, &mut outcomes);
            let received: Vec<u64> = outcomes.drain(..).map(|(owner, _)| owner.user()).collect();
            match received[..] {
                [0] => {
                    fill(0);
                    receive(&mut driver, 0);
                }
                [1] => return,
                _ => panic!("one buffer for {received:?}"),
            }
        }
        panic!("the other one starves");
    }

    #[test]
    fn receives_that_wait_in_vain_give_their_large_buffers_up() {
        const IDLE: u64 = 20;
        const BYTES: usize = 100_000;
        let mut driver = driver();
        let pairs: Vec<_> = (0..=IDLE).map(|_| socket(&driver)).collect();
        let receive = |driver: &mut Uring, number: u64| {
            let op = Op::Receive {
                socket: pairs[number as usize].0.clone(),
                into: ReceiveInto::Ring(Amount::Bulk),
            };
            driver.submit(Owner::nobody(number), op);
        };
        let has_bulk = |driver: &mut Uring| {
            let slots = driver.in_flight.iter_mut();
            slots.filter(|(_, slot)| slot.has_bulk()).count()
        };
        (0..IDLE).for_each(|number| receive(&mut driver, number));
        let mut outcomes = Vec::new();
        driver.turn(Wait::No, &mut outcomes);
        let most = has_bulk(&mut driver);
        assert!(most > 0 && most < IDLE as usize, "{most}");
        // Somebody who does receive much has one before long.
        let (busy, _) = &pairs[IDLE as usize];
        let mut longest = 0;
        for _ in 0..100 {
            let mut peer = &pairs[IDLE as usize].1;
            std::io::Write::write_all(&mut peer, &[7; BYTES]).expect("sends");
            await_bytes(busy);
            receive(&mut driver, IDLE);
            let mut left = BYTES;
            while left > 0 {
                driver.turn(Wait::Until(None), &mut outcomes);
                for (owner, outcome) in outcomes.drain(..) {
                    assert_eq!(owner.user(), IDLE);
                    let Ok(Output::Received(view)) = outcome.result else {
                        panic!("{outcome:?}")
                    };
                    longest = longest.max(view.len());
                    left -= view.len();
                    if left > 0 {
                        receive(&mut driver, IDLE);
                    }
                }
            }
            if longest > 32 << 10 {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(longest > 32 << 10, "{longest} bytes at once at most");
        assert!(has_bulk(&mut driver) < most);
        // Those that lost theirs receive as ever.
        for (number, (_, peer)) in (0..IDLE).zip(&pairs) {
            std::io::Write::write_all(&mut &*peer, b"x").expect("sends");
            while outcomes.is_empty() {
                driver.turn(Wait::Until(None), &mut outcomes);
            }
            let (owner, outcome) = outcomes.pop().expect("one");
            assert_eq!(owner.user(), number);
            let Ok(Output::Received(view)) = outcome.result else {
                panic!("{outcome:?}")
            };
            assert_eq!(view[..], *b"x");
        }
        assert_eq!(has_bulk(&mut driver), 0);
        assert_eq!(driver.in_flight(), 0);
    }

    #[test]
    fn abandoned_operations_come_back_and_are_nobodys() {
        struct Unheard;
        impl Handler for Unheard {
            fn complete(&self, user: u64, _: Outcome) {
                panic!("operation {user} was abandoned");
            }
        }
        let mut driver = driver();
        let (socket, _peer) = socket(&driver);
        let handler: Rc<dyn Handler> = Rc::new(Unheard);
        // The kernel has the first, the second waits for the turn, and the third needs no kernel.
        for (number, from) in [(0, Some(0)), (1, None), (2, Some(1))] {
            let into = match from {
                Some(from) => ReceiveInto::Segment {
                    segment: Segment::heap(1),
                    from,
                },
                None => ReceiveInto::Ring(Amount::Usual),
            };
            let socket = socket.clone();
            let op = Op::Receive { socket, into };
            driver.submit(Owner::new(handler.clone(), number), op);
        }
        assert_eq!(driver.abandon_all().len(), 3);
        assert_eq!((driver.in_flight(), Rc::strong_count(&handler)), (3, 1));
        let mut outcomes = Vec::new();
        while driver.in_flight() > 0 {
            driver.turn(Wait::Until(None), &mut outcomes);
        }
        assert_eq!(outcomes.len(), 3);
        for (owner, outcome) in outcomes {
            owner.end(outcome);
        }
        assert_eq!(Rc::strong_count(&socket), 1);
    }

    #[test]
    fn a_driver_that_is_dropped_calls_everything_back() {
        let mut driver = driver();
        let (socket, peer) = socket(&driver);
        let op = Op::Receive {
            socket: socket.clone(),
            into: ReceiveInto::Ring(Amount::Usual),
        };
        driver.submit(Owner::nobody(0), op);
        let segment = Segment::heap(4096);
        let into = ReceiveInto::Segment { segment, from: 0 };
        let op = Op::Receive {
            socket: socket.clone(),
            into,
        };
        driver.submit(Owner::nobody(1), op);
        let mut outcomes = Vec::new();
        let soon = driver.now() + Duration::from_millis(1);
        driver.turn(Wait::Until(Some(soon)), &mut outcomes);
        assert!(outcomes.is_empty() && driver.wake_armed);
        drop(driver);
        assert_eq!(Rc::strong_count(&socket), 1);
        drop(peer);
    }

    #[test]
    fn random_numbers_differ() {
        let mut numbers: Vec<u64> = (0..2)
            .flat_map(|_| {
                let mut driver = driver();
                (0..1000).map(move |_| driver.random()).collect::<Vec<_>>()
            })
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 2000);
    }
}
