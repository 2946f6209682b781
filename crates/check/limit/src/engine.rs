//! The loop that servers and clients share: receive, answer, and wait in one of three ways.

use std::io::{self, ErrorKind};

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::flow::{Flow, Received};

/// Events that one wait brings at most.
const EVENTS_MAX: usize = 256;
/// Bytes that one receive takes at most. Larger ones leave the second level cache.
const RECEIVE_BYTES: usize = 256 << 10;

/// How a loop waits for bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// In a blocking receive: the least calls, for one connection only.
    Block,
    /// Not at all: it asks again and again.
    Spin,
    /// In epoll.
    Poll,
}

impl Waiting {
    /// The way for so many connections.
    pub(crate) fn of(connections: usize, spin: bool) -> Self {
        match (spin, connections) {
            (true, _) => Waiting::Spin,
            (false, 1) => Waiting::Block,
            (false, _) => Waiting::Poll,
        }
    }
}

/// What a side does with the units that arrive.
pub(crate) trait Side {
    /// So many arrived; how many go back.
    fn answer(&mut self, units: u64) -> u64;
    /// Whether the loop is to end.
    fn is_done(&self) -> bool;
    /// A connection was closed by the peer, between two units and with nothing owed.
    ///
    /// # Errors
    /// That should not have been.
    fn closed(&mut self) -> io::Result<()>;
}

/// Whether a connection is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    Open,
    Closed,
}

/// Runs until the side is done. What flows already owe is sent first.
pub(crate) fn run(flows: &mut [Flow], waiting: Waiting, side: &mut impl Side) -> io::Result<()> {
    let mut buffer = vec![0; RECEIVE_BYTES];
    for flow in flows.iter_mut() {
        if waiting != Waiting::Block {
            flow.set_nonblocking()?;
        }
        flow.send()?;
    }
    match waiting {
        Waiting::Block => run_blocking(flows, &mut buffer, side),
        Waiting::Spin => run_spinning(flows, &mut buffer, side),
        Waiting::Poll => run_polling(flows, &mut buffer, side),
    }
}

fn run_blocking(flows: &mut [Flow], buffer: &mut [u8], side: &mut impl Side) -> io::Result<()> {
    let [flow] = flows else {
        return Err(ErrorKind::InvalidInput.into());
    };
    while !side.is_done() {
        take(flow, buffer, side)?;
    }
    Ok(())
}

fn run_spinning(flows: &mut [Flow], buffer: &mut [u8], side: &mut impl Side) -> io::Result<()> {
    let mut open: Vec<bool> = vec![true; flows.len()];
    while !side.is_done() {
        for (flow, open) in flows.iter_mut().zip(&mut open) {
            if *open {
                *open = turn(flow, buffer, side)? == Turn::Open;
            }
        }
    }
    Ok(())
}

fn run_polling(flows: &mut [Flow], buffer: &mut [u8], side: &mut impl Side) -> io::Result<()> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // Edges: a connection costs no call beyond its receives and sends.
    let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
    for (index, flow) in flows.iter().enumerate() {
        epoll::add(&poll, flow, epoll::EventData::new_u64(index as u64), edges)?;
    }
    let mut events = Vec::with_capacity(EVENTS_MAX);
    while !side.is_done() {
        events.clear();
        match epoll::wait(&poll, spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        for event in &events {
            let flow = &mut flows[{ event.data }.u64() as usize];
            if turn(flow, buffer, side)? == Turn::Closed {
                epoll::delete(&poll, &*flow)?;
            }
        }
    }
    Ok(())
}

/// Sends and receives until nothing more can be done.
fn turn(flow: &mut Flow, buffer: &mut [u8], side: &mut impl Side) -> io::Result<Turn> {
    loop {
        flow.send()?;
        // What is not answered is not read on: the peer is to wait, and nothing grows here.
        if !flow.is_even() {
            return Ok(Turn::Open);
        }
        match take(flow, buffer, side)? {
            // A short receive found the socket empty, and more is a new edge.
            Received::Units { filled: false, .. } if flow.is_even() => return Ok(Turn::Open),
            Received::Units { .. } => {}
            Received::Nothing => return Ok(Turn::Open),
            Received::Closed => return Ok(Turn::Closed),
        }
    }
}

/// One receive, and the answers to what it brought.
fn take(flow: &mut Flow, buffer: &mut [u8], side: &mut impl Side) -> io::Result<Received> {
    let received = flow.receive(buffer)?;
    match received {
        Received::Units { units, .. } => {
            flow.owe(side.answer(units));
            flow.send()?;
        }
        Received::Nothing => {}
        Received::Closed if flow.is_inside_unit() => {
            return Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the peer closed inside a unit: both ends must be given the same work",
            ));
        }
        Received::Closed => side.closed()?,
    }
    Ok(received)
}
