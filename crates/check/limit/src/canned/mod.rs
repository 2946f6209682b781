//! A canned NVMe/TCP responder: answers any initiator's reads and writes from nothing, with the least work.
//!
//! It is there to measure initiators against something that is not the limit, and reports its own busy share to show it. One
//! subsystem, one namespace, controllers that are all alike; no digests, no checks beyond what keeps it alive, nothing stored.

mod admin;
mod connection;
mod outgoing;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use serde::{Deserialize, Serialize};

pub use admin::{BLOCK_BYTES, NAMESPACE_BYTES, NSID, SUBSYSTEM};

use crate::processor;
use connection::{Connection, Turn};

/// Connections at once.
pub const CONNECTIONS_MAX: usize = 4096;
/// Events that one wait brings at most.
const EVENTS_MAX: usize = 256;
/// Bytes that one receive takes at most.
const RECEIVE_BYTES: usize = 256 << 10;
/// Event data of the listener and of what ends the responder; below them are connections.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;

/// What the responder did while any I/O queue was connected.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CannedReport {
    /// Reads and writes that were answered.
    pub operations: u64,
    /// Seconds during which an I/O queue was connected.
    pub elapsed_seconds: f64,
    /// Processor seconds in that time.
    pub processor_seconds: f64,
    /// How much of that time the processor was at work: at 1 the responder is the limit.
    pub busy_share: f64,
}

/// Time with I/O queues.
#[derive(Default)]
struct Watch {
    running: Option<(Instant, Duration)>,
    elapsed: Duration,
    processor: Duration,
}

impl Watch {
    fn set(&mut self, run: bool) {
        if run && self.running.is_none() {
            self.running = Some((Instant::now(), processor::own_time()));
        } else if !run && let Some((began, processor_began)) = self.running.take() {
            self.elapsed += began.elapsed();
            self.processor += processor::own_time() - processor_began;
        }
    }
}

struct Responder<'a> {
    listener: &'a TcpListener,
    poll: rustix::fd::OwnedFd,
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    operations: u64,
    watch: Watch,
}

/// Answers whoever connects to `listener`, until a byte or the end comes from `stop`.
///
/// # Errors
/// Waiting or accepting failed. A connection's failure ends that connection, with a line on standard error.
pub fn respond(listener: &TcpListener, stop: &UnixStream) -> io::Result<CannedReport> {
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let readable = epoll::EventFlags::IN;
    epoll::add(
        &poll,
        listener,
        epoll::EventData::new_u64(LISTENER),
        readable,
    )?;
    epoll::add(&poll, stop, epoll::EventData::new_u64(STOP), readable)?;
    let mut responder = Responder {
        listener,
        poll,
        connections: Vec::new(),
        buffer: vec![0; RECEIVE_BYTES],
        operations: 0,
        watch: Watch::default(),
    };
    responder.run()?;
    responder.watch.set(false);
    let (elapsed, processor) = (responder.watch.elapsed, responder.watch.processor);
    Ok(CannedReport {
        operations: responder.operations,
        elapsed_seconds: elapsed.as_secs_f64(),
        processor_seconds: processor.as_secs_f64(),
        busy_share: if elapsed.is_zero() {
            0.0
        } else {
            processor.as_secs_f64() / elapsed.as_secs_f64()
        },
    })
}

impl Responder<'_> {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            events.clear();
            match epoll::wait(&self.poll, spare_capacity(&mut events), None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                match { event.data }.u64() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    index => self.turn(index as usize),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            let index = self.free_place();
            if index >= CONNECTIONS_MAX {
                eprintln!("{peer}: more than {CONNECTIONS_MAX} connections; refused");
                continue;
            }
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let connection = Connection::new(stream, peer);
            let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.poll, &connection, data, edges)?;
            if index == self.connections.len() {
                self.connections.push(None);
            }
            self.connections[index] = Some(connection);
        }
    }

    fn free_place(&self) -> usize {
        let free = self.connections.iter().position(Option::is_none);
        free.unwrap_or(self.connections.len())
    }

    fn turn(&mut self, index: usize) {
        // An event of a connection that ended in this round finds nothing.
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let (before, was_io) = (connection.operations(), connection.is_io());
        let turn = connection.turn(&mut self.buffer);
        self.operations += connection.operations() - before;
        let ended = match turn {
            Ok(Turn::Open) => false,
            Ok(Turn::Closed) => true,
            Err(error) => {
                eprintln!("{}: {error}", connection.peer());
                true
            }
        };
        let is_io = connection.is_io();
        if ended {
            // Dropping closes, and what is closed is polled no more.
            self.connections[index] = None;
        }
        if ended || is_io != was_io {
            let any = self.connections.iter().flatten().any(Connection::is_io);
            self.watch.set(any);
        }
    }
}

/// An address as a volume URL of the responder's namespace.
#[must_use]
pub fn url(address: SocketAddr) -> String {
    format!("nvme+tcp://{address}/{SUBSYSTEM}?nsid={NSID}")
}
