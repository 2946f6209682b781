//! One TCP connection: moves bytes between the socket and the state machine.
//!
//! It decides nothing: what commands mean, and what to do when the connection ends, is its owner's.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_memory::Gather;
use weir_reactor::{Amount, Reactor, ReceiveInto, Received, SocketOptions, TcpStream};

use crate::wire::{Commands, Exposure, Wire};

/// Receives handled in one go, so that a fast peer does not keep others on the reactor from running.
const RECEIVES_PER_TURN_MAX: usize = 16;
/// Bytes of one receive from which more are expected of the next.
const BULK_BYTES_MIN: usize = 24 << 10;

/// Reason of a connection's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// This host closed it.
    Closed,
    /// The target closed it.
    ClosedByPeer,
    /// The system says so.
    System(String),
    /// The protocol cannot go on: one of the two broke it, or the target says so.
    Fault(String),
}

impl fmt::Display for EndReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Closed => formatter.write_str("closed by this host"),
            EndReason::ClosedByPeer => formatter.write_str("closed by the target"),
            EndReason::System(error) => formatter.write_str(error),
            EndReason::Fault(fault) => formatter.write_str(fault),
        }
    }
}

/// Takes what comes of a connection's commands.
pub trait Owner<W: Wire>: Commands<W::Answer> {
    /// All that was received so far has been handed on, or there is more room: commands may be submitted.
    fn settled(&self);

    /// The connection ended before this command was answered.
    fn unanswered(&self, user: u64, exposure: Exposure);

    /// The connection ended; its socket is closed and [`Owner::unanswered`] was called for every command.
    fn ended(&self, reason: EndReason);
}

/// A connection and the task that serves it.
pub struct Connection<W: Wire> {
    stream: RefCell<Option<TcpStream>>,
    wire: RefCell<W>,
    owner: Rc<dyn Owner<W>>,
    waker: RefCell<Option<Waker>>,
    closing: Cell<bool>,
    /// Whether what was not delivered is to be dropped.
    aborting: Cell<bool>,
    last_received: Cell<usize>,
}

impl<W: Wire> Connection<W> {
    /// Starts to serve `stream`. It goes on until the connection ends or is closed, whoever holds the handle.
    pub fn start(
        reactor: &Reactor,
        stream: TcpStream,
        wire: W,
        owner: Rc<dyn Owner<W>>,
    ) -> Rc<Connection<W>> {
        let connection = Rc::new(Connection {
            stream: RefCell::new(Some(stream)),
            wire: RefCell::new(wire),
            owner,
            waker: RefCell::default(),
            closing: Cell::new(false),
            aborting: Cell::new(false),
            last_received: Cell::new(0),
        });
        reactor.spawn(Rc::clone(&connection).serve()).detach();
        connection
    }

    /// Commands that can be submitted now.
    pub fn room(&self) -> usize {
        match self.closing.get() {
            true => 0,
            false => self.wire.borrow().room(),
        }
    }

    /// Returns whether it has ended, or is about to.
    pub fn is_closed(&self) -> bool {
        self.closing.get()
    }

    /// Has the protocol do something, and sends what comes of it.
    pub fn with<T>(&self, act: impl FnOnce(&mut W) -> T) -> T {
        let result = act(&mut self.wire.borrow_mut());
        self.wake();
        result
    }

    /// Looks at the protocol.
    pub fn look<T>(&self, at: impl FnOnce(&W) -> T) -> T {
        at(&self.wire.borrow())
    }

    /// Ends the connection soon, without waiting for anything.
    pub fn close(&self) {
        self.closing.set(true);
        self.wake();
    }

    /// Ends the connection soon. What was sent and did not reach the target never will.
    pub fn abort(&self) {
        self.aborting.set(true);
        self.close();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    async fn serve(self: Rc<Self>) {
        let mut gather = Some(Gather::new());
        let reason = poll_fn(|context| self.poll(context, &mut gather)).await;
        self.closing.set(true);
        if let Some(stream) = self.stream.take()
            && self.aborting.get()
        {
            stream.abort();
        }
        let unanswered = self.wire.borrow_mut().take_unanswered();
        for (user, exposure) in unanswered {
            self.owner.unanswered(user, exposure);
        }
        self.owner.ended(reason);
    }

    fn poll(&self, context: &mut Context<'_>, gather: &mut Option<Gather>) -> Poll<EndReason> {
        *self.waker.borrow_mut() = Some(context.waker().clone());
        if self.closing.get() {
            return Poll::Ready(EndReason::Closed);
        }
        let stream = self.stream.borrow();
        let stream = stream.as_ref().expect("the stream is there until the end");
        for _ in 0..RECEIVES_PER_TURN_MAX {
            let sent = self.poll_send(context, stream, gather);
            let received = match self.wire.borrow().fault() {
                // Nothing is read any more; the connection ends when the termination is out.
                Some(fault) if gather.is_some() => {
                    return Poll::Ready(EndReason::Fault(fault.to_string()));
                }
                Some(_) => Poll::Pending,
                None => Poll::Ready(()),
            };
            let received = match received {
                Poll::Ready(()) => self.poll_receive(context, stream),
                Poll::Pending => Poll::Pending,
            };
            match (sent, received) {
                (Poll::Ready(Err(reason)), _) | (_, Poll::Ready(Err(reason))) => {
                    return Poll::Ready(reason);
                }
                (Poll::Pending, Poll::Pending) => return Poll::Pending,
                _ => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Keeps a send going while there is something to send; ready when something changed.
    fn poll_send(
        &self,
        context: &mut Context<'_>,
        stream: &TcpStream,
        gather: &mut Option<Gather>,
    ) -> Poll<Result<(), EndReason>> {
        if gather.is_none() {
            let Poll::Ready((result, mut sent)) = stream.poll_sent(context) else {
                return Poll::Pending;
            };
            sent.clear();
            *gather = Some(sent);
            if let Err(error) = result {
                return Poll::Ready(Err(system(&error)));
            }
        }
        let mut wire = self.wire.borrow_mut();
        if !wire.has_output() {
            return Poll::Pending;
        }
        let mut next = gather.take().expect("filled above");
        let room = wire.room();
        wire.transmit(&mut next);
        let has_more_room = wire.room() > room;
        drop(wire);
        stream.start_send(next);
        if has_more_room {
            // With data that was owed to commands that had ended: nothing else may come that would tell of it.
            self.owner.settled();
        }
        Poll::Ready(Ok(()))
    }

    /// Takes what was received; ready when something was.
    fn poll_receive(
        &self,
        context: &mut Context<'_>,
        stream: &TcpStream,
    ) -> Poll<Result<(), EndReason>> {
        if !stream.is_receiving() {
            let amount = match self.last_received.get() {
                BULK_BYTES_MIN.. => Amount::Bulk,
                _ => Amount::Usual,
            };
            stream.start_receive(ReceiveInto::Ring(amount));
        }
        let Poll::Ready(received) = stream.poll_received(context) else {
            return Poll::Pending;
        };
        let bytes = match received {
            Ok(Received::Ring(bytes)) => bytes,
            Ok(Received::Segment(..)) => unreachable!("only ring receives are started"),
            Err(error) => return Poll::Ready(Err(system(&error))),
        };
        if bytes.is_empty() {
            return Poll::Ready(Err(EndReason::ClosedByPeer));
        }
        self.last_received.set(bytes.len());
        self.wire.borrow_mut().receive(&bytes, &*self.owner);
        drop(bytes);
        self.owner.settled();
        Poll::Ready(Ok(()))
    }
}

/// Ends a connection when whoever makes a session of it is dropped.
pub struct CloseOnDrop<W: Wire>(Option<Rc<Connection<W>>>);

impl<W: Wire> CloseOnDrop<W> {
    /// Watches over a connection.
    pub fn new(connection: &Rc<Connection<W>>) -> Self {
        CloseOnDrop(Some(Rc::clone(connection)))
    }

    /// Leaves the connection open.
    pub fn disarm(mut self) {
        self.0 = None;
    }
}

impl<W: Wire> Drop for CloseOnDrop<W> {
    fn drop(&mut self) {
        if let Some(connection) = &self.0 {
            connection.abort();
        }
    }
}

fn system(error: &io::Error) -> EndReason {
    EndReason::System(error.to_string())
}

/// The addresses of `host`, of which there is at least one.
///
/// # Errors
/// The system's, as text.
pub async fn resolve(reactor: &Reactor, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let system = Arc::clone(reactor.system());
    let name = host.to_owned();
    let found = reactor.offload(move || system.resolve(&name, port)).await;
    let addresses = found
        .ok_or_else(|| "the look-up failed".to_owned())?
        .map_err(|error| error.to_string())?;
    match addresses.is_empty() {
        true => Err("it has no address".to_owned()),
        false => Ok(addresses),
    }
}

/// Connects to the first of `addresses` that answers in time.
///
/// # Errors
/// The last address's error.
pub async fn connect(
    reactor: &Reactor,
    addresses: &[SocketAddr],
    options: &SocketOptions,
    timeout: Duration,
) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for &address in addresses {
        let attempt = TcpStream::connect(reactor, address, options);
        match within(reactor, timeout, attempt).await {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(error)) => last = io::Error::new(error.kind(), format!("{address}: {error}")),
            None => {
                let text = format!("{address} did not answer in {timeout:?}");
                last = io::Error::new(io::ErrorKind::TimedOut, text);
            }
        }
    }
    Err(last)
}

/// The result of `future`, unless `timeout` passes first.
pub async fn within<T>(
    reactor: &Reactor,
    timeout: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = std::pin::pin!(future);
    let mut sleep = std::pin::pin!(reactor.sleep(timeout));
    poll_fn(|context| {
        if let Poll::Ready(value) = future.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}
