//! The driver of a simulated reactor.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use weir_memory::{Gather, Pool, Segment, View, segments_len, views_len};

use super::disk::{Request, Work};
use super::medium::Mark;
use super::network::Readable;
use super::schedule::{Ending, Step, Waiter};
use super::system::{SimulatedSystem, cancelled};
use super::world::State;
use crate::{
    Driver, Handle, InFlight, Instant, Notifier, Op, OpToken, Outcome, Output, Owner, ReceiveInto,
    Socket, Wait,
};

/// The driver's record of an operation in flight.
struct Running {
    op: Op,
    /// Its place in the order of submission.
    number: u64,
    /// Bytes that it has moved.
    moved: usize,
    begun: bool,
}

impl Running {
    fn waiter(&self, reactor: usize, token: OpToken) -> Waiter {
        Waiter {
            reactor,
            number: self.number,
            token,
        }
    }
}

pub(super) struct SimulatedDriver {
    system: Arc<SimulatedSystem>,
    reactor: usize,
    /// The pool that rings receive into.
    receive_pool: Pool,
    notifier: Arc<dyn Notifier>,
    in_flight: InFlight<Running>,
    /// Operations that were ever submitted.
    operations: u64,
    submitted: Vec<OpToken>,
    cancelled: Vec<OpToken>,
    /// Receives for which the pool had no buffer.
    starved: Vec<OpToken>,
}

/// The result of an attempt to go on with an operation. Sockets are made outside the world's lock.
enum Attempt {
    Waits,
    Ends(io::Result<Output>),
    Accepted(Handle, std::net::SocketAddr),
    Starved,
}

impl From<io::Result<Output>> for Attempt {
    fn from(result: io::Result<Output>) -> Self {
        Attempt::Ends(result)
    }
}

impl SimulatedDriver {
    pub(super) fn new(
        system: Arc<SimulatedSystem>,
        reactor: usize,
        receive_pool: Pool,
        notifier: Arc<dyn Notifier>,
    ) -> Self {
        SimulatedDriver {
            system,
            reactor,
            receive_pool,
            notifier,
            in_flight: InFlight::default(),
            operations: 0,
            submitted: Vec::new(),
            cancelled: Vec::new(),
            starved: Vec::new(),
        }
    }

    fn is_dead(&self) -> bool {
        self.system.world.lock().reactors[self.reactor].dead
    }

    /// Goes on with an operation as far as it gets.
    fn attempt(&mut self, token: OpToken, outcomes: &mut Vec<(Owner, Outcome)>) {
        let Some(running) = self.in_flight.find(token) else {
            return;
        };
        let waiter = running.waiter(self.reactor, token);
        let attempt = {
            let state = &mut *self.system.world.lock();
            go_on(state, &self.receive_pool, waiter, running)
        };
        let result = match attempt {
            Attempt::Waits => return,
            Attempt::Starved => return self.starved.push(token),
            Attempt::Ends(result) => result,
            Attempt::Accepted(handle, peer) => {
                let system: Arc<SimulatedSystem> = Arc::clone(&self.system);
                Ok(Output::Accepted(Socket::new(handle, system), peer))
            }
        };
        self.end(token, result, outcomes);
    }

    fn end(
        &mut self,
        token: OpToken,
        result: io::Result<Output>,
        outcomes: &mut Vec<(Owner, Outcome)>,
    ) {
        let (owner, running) = self.in_flight.remove(token);
        let waiter = running.waiter(self.reactor, token);
        let state = &mut *self.system.world.lock();
        if let Some(object) = socket_of(&running.op) {
            state
                .network
                .forget_waiter(&mut state.schedule, object, waiter);
        }
        state.schedule.record(Step::Ended(waiter, ending(&result)));
        state.reactors[self.reactor]
            .operations
            .remove(&waiter.number);
        let op = running.op;
        outcomes.push((owner, Outcome { result, op }));
    }

    /// Ends an operation that was asked to end early, where it can.
    fn end_early(&mut self, token: OpToken, outcomes: &mut Vec<(Owner, Outcome)>) {
        let Some(running) = self.in_flight.find(token) else {
            return;
        };
        if socket_of(&running.op).is_none() && running.begun {
            let waiter = running.waiter(self.reactor, token);
            let state = &mut *self.system.world.lock();
            if !state.disks.cancel(&mut state.schedule, waiter) {
                return;
            }
        }
        self.end(token, Err(cancelled()), outcomes);
    }

    /// Ends every operation, now that the reactor ends: files' as they would have ended later.
    fn end_all(&mut self, outcomes: &mut Vec<(Owner, Outcome)>) {
        let all = self.in_flight.iter_mut();
        let waiters = all.map(|(token, running)| running.waiter(self.reactor, token));
        let mut waiters: Vec<Waiter> = waiters.collect();
        waiters.sort_unstable();
        for waiter in waiters {
            let token = waiter.token;
            if !self.is_dead() {
                {
                    let state = &mut *self.system.world.lock();
                    state.disks.hasten(&mut state.schedule, waiter);
                }
                self.attempt(token, outcomes);
            }
            if self.in_flight.find(token).is_some() {
                self.end(token, Err(cancelled()), outcomes);
            }
        }
    }

    fn go_on_with_ready(&mut self, outcomes: &mut Vec<(Owner, Outcome)>) {
        let mut ready = std::mem::take(&mut self.submitted);
        ready.append(&mut self.starved);
        loop {
            let world = &self.system.world;
            world.lock().schedule.take_ready(self.reactor, &mut ready);
            if ready.is_empty() {
                break;
            }
            for token in std::mem::take(&mut ready) {
                self.attempt(token, outcomes);
            }
        }
        for token in std::mem::take(&mut self.cancelled) {
            self.end_early(token, outcomes);
        }
    }
}

impl Driver for SimulatedDriver {
    fn now(&self) -> Instant {
        self.system.world.lock().clock(self.system.host)
    }

    fn random(&mut self) -> u64 {
        let schedule = &mut self.system.world.lock().schedule;
        let word = schedule.random.next();
        schedule.record(Step::Drawn(word));
        word
    }

    fn submit(&mut self, owner: Owner, op: Op) -> OpToken {
        self.operations += 1;
        let (kind, object) = describe(&op);
        let running = Running {
            op,
            number: self.operations,
            moved: 0,
            begun: false,
        };
        let token = self.in_flight.insert(owner, running);
        let state = &mut *self.system.world.lock();
        let (reactor, number) = (self.reactor, self.operations);
        let waiter = Waiter {
            reactor,
            number,
            token,
        };
        state.schedule.record(Step::Submitted(waiter, kind));
        state.reactors[reactor]
            .operations
            .insert(number, (kind, object));
        self.submitted.push(token);
        token
    }

    fn cancel(&mut self, token: OpToken) {
        self.cancelled.push(token);
    }

    fn turn(&mut self, wait: Wait, outcomes: &mut Vec<(Owner, Outcome)>) {
        let first = outcomes.len();
        if !matches!(wait, Wait::Until(_)) && !self.is_dead() {
            self.go_on_with_ready(outcomes);
        } else {
            // A simulated reactor waits only when it stops.
            self.end_all(outcomes);
        }
        let state = &mut *self.system.world.lock();
        state.reactors[self.reactor].receive_bytes_held = self.receive_pool.usage().used_bytes;
        state.schedule.random.shuffle(&mut outcomes[first..]);
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn abandon_all(&mut self) -> Vec<Owner> {
        let tokens = self.in_flight.iter_mut().map(|(token, _)| token);
        self.cancelled.extend(tokens);
        self.in_flight.disown()
    }

    fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::clone(&self.notifier)
    }
}

fn ending(result: &io::Result<Output>) -> Ending {
    match result {
        Ok(Output::Done) => Ending::Ok(0),
        Ok(Output::Count(count)) => Ending::Ok(*count as u64),
        Ok(Output::Received(view)) => Ending::Ok(view.len() as u64),
        Ok(Output::Accepted(socket, _)) => Ending::Ok(socket.handle().0.into()),
        Err(error) => Ending::Error(error.raw_os_error().unwrap_or(0)),
    }
}

fn describe(op: &Op) -> (&'static str, Handle) {
    match op {
        Op::Accept { listener } => ("accept", listener.handle()),
        Op::Connect { socket, .. } => ("connect", socket.handle()),
        Op::Receive { socket, .. } => ("receive", socket.handle()),
        Op::Ready { socket } => ("ready", Handle(socket.as_raw_fd() as u32)),
        Op::Send { socket, .. } => ("send", socket.handle()),
        Op::Read { file, .. } => ("read", file.handle()),
        Op::Write { file, .. } => ("write", file.handle()),
        Op::Sync { file } => ("sync", file.handle()),
        Op::Allocate { file, .. } => ("allocate", file.handle()),
    }
}

/// The socket or listener that an operation waits on.
fn socket_of(op: &Op) -> Option<Handle> {
    match op {
        Op::Accept { listener } => Some(listener.handle()),
        Op::Connect { socket, .. } | Op::Receive { socket, .. } | Op::Send { socket, .. } => {
            Some(socket.handle())
        }
        Op::Ready { .. }
        | Op::Read { .. }
        | Op::Write { .. }
        | Op::Sync { .. }
        | Op::Allocate { .. } => None,
    }
}

fn go_on(state: &mut State, pool: &Pool, waiter: Waiter, running: &mut Running) -> Attempt {
    let begun = std::mem::replace(&mut running.begun, true);
    let moved = &mut running.moved;
    match &mut running.op {
        Op::Accept { listener } => {
            let (network, schedule) = (&mut state.network, &mut state.schedule);
            match network.accept(schedule, listener.handle(), waiter) {
                None => Attempt::Waits,
                Some(Ok((handle, peer))) => Attempt::Accepted(handle, peer),
                Some(Err(error)) => Attempt::Ends(Err(error)),
            }
        }
        Op::Connect { socket, address } => connect(state, waiter, socket, *address, begun),
        Op::Receive { socket, into } => match into {
            ReceiveInto::Ring(_) => receive_ring(state, pool, waiter, socket.handle()),
            ReceiveInto::Segment { segment, from } => {
                receive_segment(state, waiter, socket.handle(), &mut segment[*from..], moved)
            }
        },
        Op::Ready { .. } => Attempt::Ends(Err(io::ErrorKind::Unsupported.into())),
        Op::Send { socket, gather } => send(state, waiter, socket.handle(), gather, moved),
        Op::Read { .. } | Op::Write { .. } | Op::Sync { .. } | Op::Allocate { .. } => {
            disk_operation(state, waiter, &mut running.op, begun)
        }
    }
}

fn connect(
    state: &mut State,
    waiter: Waiter,
    socket: &Socket,
    address: std::net::SocketAddr,
    begun: bool,
) -> Attempt {
    let (network, schedule) = (&mut state.network, &mut state.schedule);
    if !begun && let Err(error) = network.connect(schedule, socket.handle(), address, waiter) {
        return Attempt::Ends(Err(error));
    }
    match network.connected(socket.handle()) {
        None => Attempt::Waits,
        Some(result) => Attempt::Ends(result.map(|()| Output::Done)),
    }
}

fn receive_ring(state: &mut State, pool: &Pool, waiter: Waiter, socket: Handle) -> Attempt {
    let available = match state.network.readable(socket, waiter) {
        Err(error) => return Attempt::Ends(Err(error)),
        Ok(Readable::Nothing) => return Attempt::Waits,
        Ok(Readable::End) => return Attempt::Ends(Ok(Output::Received(View::empty()))),
        Ok(Readable::Bytes(available)) => available,
    };
    let Ok(mut buffer) = pool.segment(state.receive_buffer) else {
        return Attempt::Starved;
    };
    let count = received_at_once(state, available.min(buffer.len()));
    buffer.set_len(count);
    let taken = state.network.take(&mut state.schedule, socket, &mut buffer);
    assert_eq!(taken, count, "what is readable can be taken");
    Attempt::Ends(Ok(Output::Received(buffer.freeze())))
}

/// A receive may see less than has arrived.
fn received_at_once(state: &mut State, available: usize) -> usize {
    const LESS_ONE_IN: u64 = 4;
    let random = &mut state.schedule.random;
    if random.below(LESS_ONE_IN) == 0 {
        1 + random.below(available as u64) as usize
    } else {
        available
    }
}

fn receive_segment(
    state: &mut State,
    waiter: Waiter,
    socket: Handle,
    target: &mut [u8],
    moved: &mut usize,
) -> Attempt {
    while *moved < target.len() {
        match state.network.readable(socket, waiter) {
            Err(error) => return Attempt::Ends(Err(error)),
            Ok(Readable::Nothing) => return Attempt::Waits,
            Ok(Readable::End) => break,
            Ok(Readable::Bytes(_)) => {
                let rest = &mut target[*moved..];
                *moved += state.network.take(&mut state.schedule, socket, rest);
            }
        }
    }
    Attempt::Ends(Ok(Output::Count(*moved)))
}

fn send(
    state: &mut State,
    waiter: Waiter,
    socket: Handle,
    gather: &Gather,
    moved: &mut usize,
) -> Attempt {
    let (network, schedule) = (&mut state.network, &mut state.schedule);
    match network.send(schedule, socket, waiter, gather.slices(), *moved) {
        Err(error) => return Attempt::Ends(Err(error)),
        Ok(count) => *moved += count,
    }
    if *moved < gather.len() {
        return Attempt::Waits;
    }
    Attempt::Ends(Ok(Output::Done))
}

fn disk_operation(state: &mut State, waiter: Waiter, op: &mut Op, begun: bool) -> Attempt {
    if !begun {
        let (file, request, misaligned) = request(state, op);
        let (disks, schedule) = (&mut state.disks, &mut state.schedule);
        if let Err(error) = disks.start(schedule, waiter, file, request, misaligned) {
            return Attempt::Ends(Err(error));
        }
    }
    let Some((result, data)) = state.disks.take_done(waiter) else {
        return Attempt::Waits;
    };
    let output = result.map(|count| match op {
        Op::Read { into, .. } => {
            scatter(&data[..count as usize], into);
            Output::Count(count as usize)
        }
        Op::Write { .. } => Output::Count(count as usize),
        _ => Output::Done,
    });
    output.into()
}

/// The disk's view of an operation, and whether its buffers break the rules of direct I/O.
fn request(state: &State, op: &Op) -> (Handle, Request, bool) {
    let alignment = state.disks.memory_alignment() as usize;
    let breaks = |bytes: &[u8]| {
        !(bytes.as_ptr() as usize).is_multiple_of(alignment)
            || !bytes.len().is_multiple_of(alignment)
    };
    let (file, offset, length, data, work, misaligned) = match op {
        Op::Read { file, offset, into } => {
            let length = segments_len(into);
            let misaligned = into.iter().any(|segment| breaks(segment));
            (
                file,
                *offset,
                length as u64,
                vec![0; length],
                Work::Read,
                misaligned,
            )
        }
        Op::Write {
            file,
            offset,
            data,
            durable,
        } => {
            let mut bytes = Vec::with_capacity(views_len(data));
            data.iter().for_each(|view| bytes.extend_from_slice(view));
            let misaligned = data.iter().any(|view| breaks(view));
            let work = Work::Write { durable: *durable };
            (file, *offset, bytes.len() as u64, bytes, work, misaligned)
        }
        Op::Sync { file } => (file, 0, 0, Vec::new(), Work::Sync(Mark::default()), false),
        Op::Allocate {
            file,
            offset,
            length,
            mode,
        } => (
            file,
            *offset,
            *length,
            Vec::new(),
            Work::Allocate(*mode),
            false,
        ),
        Op::Accept { .. }
        | Op::Connect { .. }
        | Op::Receive { .. }
        | Op::Ready { .. }
        | Op::Send { .. } => {
            unreachable!("only files' operations reach the disk")
        }
    };
    let request = Request {
        work,
        offset,
        length,
        data,
    };
    (file.handle(), request, misaligned)
}

fn scatter(mut bytes: &[u8], into: &mut [Segment]) {
    for segment in into {
        let (head, tail) = bytes.split_at(bytes.len().min(segment.len()));
        segment[..head.len()].copy_from_slice(head);
        bytes = tail;
    }
}
