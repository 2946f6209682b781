//! TCP.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use std::net::Shutdown;

use weir_memory::{Gather, Segment, View};

use crate::{
    Amount, Handle, Handler, Op, OpToken, Outcome, Output, Reactor, ReceiveInto, System, TaskWaker,
};

/// Options of a TCP socket; what is `None` stays as the system has it. `TCP_NODELAY` is always set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketOptions {
    /// SO_SNDBUF, in bytes.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF, in bytes.
    pub receive_buffer: Option<u32>,
    /// TCP_CONGESTION.
    pub congestion_control: Option<String>,
    /// Differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
    /// SO_PRIORITY.
    pub priority: Option<u32>,
    /// TCP_USER_TIMEOUT: for how long sent data may stay unacknowledged.
    pub user_timeout: Option<Duration>,
    /// SO_KEEPALIVE: after so long without a word of its peer a connection asks for one, again and again, and where none comes it
    /// is given up after as long again. With a user time-out it asks after a third of that at the latest, and is given up when the
    /// silence is as long as that. Whole seconds, one at least; zero: never.
    pub keep_alive: Option<Duration>,
    /// Listening: how many connections wait to be accepted at most.
    pub backlog: Option<u32>,
    /// Listening on an IPv6 wildcard: IPv6 only.
    pub only_v6: Option<bool>,
}

/// What the system itself says of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SocketReport {
    /// SO_SNDBUF, in bytes (Linux reports twice what was set).
    pub send_buffer: u32,
    /// SO_RCVBUF, in bytes (Linux reports twice what was set).
    pub receive_buffer: u32,
    /// TCP_CONGESTION.
    pub congestion_control: String,
    /// Differentiated services code point.
    pub dscp: u8,
    /// SO_PRIORITY.
    pub priority: u32,
    /// TCP_USER_TIMEOUT.
    pub user_timeout: Duration,
    /// SO_KEEPALIVE and TCP_KEEPIDLE; zero where it is off.
    pub keep_alive: Duration,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// Smoothed round-trip time (TCP_INFO).
    pub round_trip: Duration,
    /// Segments retransmitted so far (TCP_INFO).
    pub retransmits: u32,
    /// Sending congestion window, in segments (TCP_INFO).
    pub congestion_window: u32,
    /// Bytes that the peer has acknowledged so far (TCP_INFO).
    pub bytes_acknowledged: u64,
    /// Bytes that came in order so far, whether a program has taken them or not (TCP_INFO).
    pub bytes_received: u64,
}

/// An open socket; closed when dropped.
pub struct Socket {
    handle: Handle,
    system: Arc<dyn System>,
}

impl Socket {
    /// For systems: wraps a handle.
    #[must_use]
    pub fn new(handle: Handle, system: Arc<dyn System>) -> Self {
        Socket { handle, system }
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.system.close(self.handle);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Socket({})", self.handle.0)
    }
}

/// A listening socket, not yet bound to a reactor.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    address: SocketAddr,
}

impl Listener {
    /// For systems: wraps a listening socket.
    #[must_use]
    pub fn new(socket: Socket, address: SocketAddr) -> Self {
        Listener { socket, address }
    }

    /// Its handle.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.socket.handle
    }

    /// The address that it listens on, with the real port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A listening socket on one reactor.
pub struct TcpListener {
    reactor: Reactor,
    listener: Rc<Listener>,
}

impl TcpListener {
    /// Accepts connections of `listener` on `reactor`.
    #[must_use]
    pub fn new(reactor: &Reactor, listener: Listener) -> Self {
        TcpListener {
            reactor: reactor.clone(),
            listener: Rc::new(listener),
        }
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// The next connection. Cancelling loses none: one that was accepted meanwhile is closed.
    ///
    /// # Errors
    /// The system's; out of descriptors, for one, which passes.
    pub async fn accept(&self) -> io::Result<TcpStream> {
        let op = Op::Accept {
            listener: Rc::clone(&self.listener),
        };
        match self.reactor.start(op).await.result? {
            Output::Accepted(socket, peer) => Ok(TcpStream::new(&self.reactor, socket, peer)),
            other => unreachable!("accepting yields a connection, not {other:?}"),
        }
    }
}

/// What a receive yielded.
#[derive(Debug)]
pub enum Received {
    /// Bytes in a buffer of the driver's choice; none at the end of the stream.
    Ring(View),
    /// The segment given, and how many bytes were received into it this time; fewer than fit only at the end of the stream.
    Segment(Segment, usize),
}

#[derive(Default)]
enum Direction<T> {
    #[default]
    Idle,
    InFlight(OpToken),
    Done(T),
}

impl<T> Direction<T> {
    /// Takes the result. Until it is there, `waker` has the task, which is woken when it comes.
    fn poll(&mut self, waker: &TaskWaker, context: &Context<'_>) -> Poll<T> {
        if !matches!(self, Direction::Done(_)) {
            waker.register(context);
            return Poll::Pending;
        }
        match std::mem::take(self) {
            Direction::Done(result) => Poll::Ready(result),
            Direction::Idle | Direction::InFlight(_) => unreachable!("matched above"),
        }
    }
}

#[derive(Default)]
struct StreamState {
    receive: Direction<io::Result<Received>>,
    send: Direction<(io::Result<()>, Gather)>,
    receive_waker: TaskWaker,
    send_waker: TaskWaker,
}

const RECEIVE: u64 = 0;
const SEND: u64 = 1;

impl Handler for RefCell<StreamState> {
    fn complete(&self, user: u64, outcome: Outcome) {
        let state = &mut *self.borrow_mut();
        if user == RECEIVE {
            state.receive = Direction::Done(received(outcome));
            state.receive_waker.wake();
        } else {
            let Op::Send { gather, .. } = outcome.op else {
                unreachable!("an outcome returns its operation")
            };
            state.send = Direction::Done((outcome.result.map(drop), gather));
            state.send_waker.wake();
        }
    }
}

fn received(outcome: Outcome) -> io::Result<Received> {
    match (outcome.result?, outcome.op) {
        (Output::Received(view), _) => Ok(Received::Ring(view)),
        (
            Output::Count(count),
            Op::Receive {
                into: ReceiveInto::Segment { segment, .. },
                ..
            },
        ) => Ok(Received::Segment(segment, count)),
        (output, op) => unreachable!("receiving yields bytes, not {output:?} of {op:?}"),
    }
}

/// A TCP connection on one reactor. At most one receive and one send are in flight. Dropping it cancels them and closes
/// the connection.
pub struct TcpStream {
    reactor: Reactor,
    socket: Rc<Socket>,
    peer: SocketAddr,
    aborted: Cell<bool>,
    state: Rc<RefCell<StreamState>>,
}

impl TcpStream {
    /// A connection on `reactor` over a connected socket.
    #[must_use]
    pub fn new(reactor: &Reactor, socket: Socket, peer: SocketAddr) -> Self {
        TcpStream {
            reactor: reactor.clone(),
            socket: Rc::new(socket),
            peer,
            aborted: Cell::new(false),
            state: Rc::default(),
        }
    }

    /// Connects to `address`.
    ///
    /// # Errors
    /// The system's.
    pub async fn connect(
        reactor: &Reactor,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<TcpStream> {
        let socket = Rc::new(Arc::clone(reactor.system()).socket(address, options)?);
        let op = Op::Connect {
            socket: Rc::clone(&socket),
            address,
        };
        reactor.start(op).await.result?;
        Ok(TcpStream {
            reactor: reactor.clone(),
            socket,
            peer: address,
            aborted: Cell::new(false),
            state: Rc::default(),
        })
    }

    /// The reactor that it is on.
    #[must_use]
    pub fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    /// The address of the other end.
    #[must_use]
    pub fn peer_address(&self) -> SocketAddr {
        self.peer
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system's.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.reactor.system().local_address(self.socket.handle)
    }

    /// Sets options.
    ///
    /// # Errors
    /// The system's.
    pub fn set_options(&self, options: &SocketOptions) -> io::Result<()> {
        self.reactor
            .system()
            .set_socket_options(self.socket.handle, options)
    }

    /// What the system says of the connection.
    ///
    /// # Errors
    /// The system's.
    pub fn report(&self) -> io::Result<SocketReport> {
        self.reactor.system().socket_report(self.socket.handle)
    }

    /// Whether the peer has ended its direction, or the connection is over. Only for a connection that this end has not shut
    /// down; what arrived before the end may still be received.
    #[must_use]
    pub fn has_peer_ended(&self) -> bool {
        self.reactor.system().has_peer_ended(self.socket.handle)
    }

    /// Ends one or both directions.
    pub fn shutdown(&self, how: Shutdown) {
        self.reactor.system().shutdown(self.socket.handle, how);
    }

    /// Has the connection end by a reset, at the latest when it is dropped, which must be next: what the system still has to
    /// send is not delivered.
    pub fn abort(&self) {
        self.aborted.set(true);
        self.reactor.system().abort(self.socket.handle);
    }

    /// Whether a receive was started whose result was not taken.
    #[must_use]
    pub fn is_receiving(&self) -> bool {
        !matches!(self.state.borrow().receive, Direction::Idle)
    }

    /// Whether a send was started whose result was not taken.
    #[must_use]
    pub fn is_sending(&self) -> bool {
        !matches!(self.state.borrow().send, Direction::Idle)
    }

    /// Starts a receive.
    ///
    /// # Panics
    /// When [`TcpStream::is_receiving`].
    pub fn start_receive(&self, into: ReceiveInto) {
        assert!(!self.is_receiving(), "one receive at a time");
        let op = Op::Receive {
            socket: Rc::clone(&self.socket),
            into,
        };
        let handler: Rc<dyn Handler> = self.state.clone();
        let token = self.reactor.submit(op, handler, RECEIVE);
        self.state.borrow_mut().receive = Direction::InFlight(token);
    }

    /// The result of the receive that was started; pending also when none was.
    pub fn poll_received(&self, context: &mut Context<'_>) -> Poll<io::Result<Received>> {
        let state = &mut *self.state.borrow_mut();
        state.receive.poll(&state.receive_waker, context)
    }

    /// Starts a send of all of `gather`.
    ///
    /// # Panics
    /// When [`TcpStream::is_sending`].
    pub fn start_send(&self, gather: Gather) {
        assert!(!self.is_sending(), "one send at a time");
        let op = Op::Send {
            socket: Rc::clone(&self.socket),
            gather,
        };
        let handler: Rc<dyn Handler> = self.state.clone();
        let token = self.reactor.submit(op, handler, SEND);
        self.state.borrow_mut().send = Direction::InFlight(token);
    }

    /// The result of the send that was started, with its gather list to be used again; pending also when none was.
    pub fn poll_sent(&self, context: &mut Context<'_>) -> Poll<(io::Result<()>, Gather)> {
        let state = &mut *self.state.borrow_mut();
        state.send.poll(&state.send_waker, context)
    }

    /// Asks for an early end of the receive in flight; its result still comes.
    pub fn cancel_receive(&self) {
        if let Direction::InFlight(token) = self.state.borrow().receive {
            self.reactor.cancel(token);
        }
    }

    /// Receives some bytes; none at the end of the stream. When the future is dropped the receive goes on, and the next call
    /// yields what it yields: no byte is lost.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// When a receive into a segment was started whose result was not taken.
    pub async fn receive(&self) -> io::Result<View> {
        if !self.is_receiving() {
            self.start_receive(ReceiveInto::Ring(Amount::Usual));
        }
        match std::future::poll_fn(|context| self.poll_received(context)).await? {
            Received::Ring(view) => Ok(view),
            Received::Segment(..) => panic!("a receive into a segment was started and not taken"),
        }
    }

    /// Sends all of `gather`, which is returned for the next use.
    pub async fn send(&self, gather: Gather) -> (io::Result<()>, Gather) {
        self.start_send(gather);
        std::future::poll_fn(|context| self.poll_sent(context)).await
    }

    /// Takes the connection off its reactor, to be put on another.
    ///
    /// # Panics
    /// When a receive or send was started whose result was not taken.
    #[must_use]
    pub fn detach(self) -> DetachedStream {
        assert!(
            !self.is_receiving() && !self.is_sending(),
            "a connection moves at rest"
        );
        let (socket, peer) = (Rc::clone(&self.socket), self.peer);
        drop(self);
        let socket = Rc::try_unwrap(socket).expect("no operation refers to a connection at rest");
        DetachedStream { socket, peer }
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        let state = self.state.borrow();
        let receive = matches!(state.receive, Direction::InFlight(_));
        let send = matches!(state.send, Direction::InFlight(_));
        if let Direction::InFlight(token) = state.receive {
            self.reactor.cancel(token);
        }
        if let Direction::InFlight(token) = state.send {
            self.reactor.cancel(token);
        }
        if (receive || send) && !self.aborted.get() {
            // The operations hold the socket open until they end; the peer learns of the end at once.
            self.reactor
                .system()
                .shutdown(self.socket.handle, Shutdown::Both);
        }
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "TcpStream({:?}, peer {})",
            self.socket, self.peer
        )
    }
}

/// A connection between reactors.
#[derive(Debug)]
pub struct DetachedStream {
    socket: Socket,
    peer: SocketAddr,
}

impl DetachedStream {
    /// Puts the connection on `reactor`.
    #[must_use]
    pub fn attach(self, reactor: &Reactor) -> TcpStream {
        TcpStream::new(reactor, self.socket, self.peer)
    }
}
