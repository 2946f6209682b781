//! What a reactor runs on.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_memory::{Gather, Segment, Segments, View, Views};

use crate::{Instant, Listener, LocalFile, Owner, Socket};

/// Names one open file, listener or socket of a [`crate::System`]: a file descriptor on a real machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u32);

/// Names one operation in flight on one reactor.
pub type OpToken = crate::slots::Key;

/// One I/O operation. It owns its buffers, and keeps what it works on open, until its [`Outcome`] gives them back.
#[derive(Debug)]
pub enum Op {
    /// Accepts one connection: [`Output::Accepted`].
    Accept {
        /// Where it arrives.
        listener: Rc<Listener>,
    },
    /// Connects a socket: [`Output::Done`].
    Connect {
        /// A socket that is not connected.
        socket: Rc<Socket>,
        /// Its peer to be.
        address: SocketAddr,
    },
    /// Receives from a socket.
    Receive {
        /// A connected socket.
        socket: Rc<Socket>,
        /// Where the bytes go.
        into: ReceiveInto,
    },
    /// Waits until a packet or UDP socket has data to read, or an error to report: [`Output::Done`]. `Unsupported` on a system without
    /// such sockets.
    Ready {
        /// The socket.
        socket: Arc<OwnedFd>,
    },
    /// Sends all of a gather list: [`Output::Done`]. Fewer bytes leave only where the connection fails.
    Send {
        /// A connected socket.
        socket: Rc<Socket>,
        /// What to send.
        gather: Gather,
    },
    /// Reads a file into segments, filling them in order: [`Output::Count`]; fewer bytes only at the end of the file.
    Read {
        /// An open file.
        file: Rc<LocalFile>,
        /// First byte.
        offset: u64,
        /// Where the bytes go.
        into: Segments,
    },
    /// Writes views to a file, in order: [`Output::Count`].
    Write {
        /// A file open for writing.
        file: Rc<LocalFile>,
        /// First byte.
        offset: u64,
        /// What to write.
        data: Views,
        /// Whether the data must be on stable storage before the operation is done (as O_DSYNC).
        durable: bool,
    },
    /// Makes what was written durable, and the metadata needed to read it back (as fdatasync): [`Output::Done`].
    Sync {
        /// A file open for writing.
        file: Rc<LocalFile>,
    },
    /// Changes the allocation of a range: [`Output::Done`]. `EOPNOTSUPP` where the medium cannot.
    Allocate {
        /// A file open for writing.
        file: Rc<LocalFile>,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// What is to become of the range.
        mode: AllocateMode,
    },
}

/// Where received bytes go.
#[derive(Debug)]
pub enum ReceiveInto {
    /// Into a buffer that the driver chooses when bytes arrive, so that an idle connection holds none:
    /// [`Output::Received`], as soon as there is a byte; empty at the end of the stream.
    Ring(Amount),
    /// Into a segment from byte `from` to its end: [`Output::Count`]. It is filled; fewer bytes only where the stream ends.
    Segment {
        /// The buffer.
        segment: Segment,
        /// Where in it the first byte goes.
        from: usize,
    },
}

/// How many bytes whoever receives into the ring expects. A driver may choose the buffer by it, or not; nothing else
/// depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Amount {
    /// No more than headers: what follows them is better received elsewhere.
    Headers,
    /// As is usual.
    #[default]
    Usual,
    /// More than usual.
    Bulk,
}

/// Change of a range of a file. The file's length does not change, but where that is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocateMode {
    /// Deallocated; it reads as zeroes. (On a block device: zeroed, unmapped where the device can.)
    PunchHole,
    /// It reads as zeroes and stays allocated.
    ZeroRange,
    /// It has room, and the file is as long as its end at least.
    Reserve,
    /// A block device discards it; what it reads as is the device's to say. On a file as [`AllocateMode::PunchHole`].
    Discard,
}

impl AllocateMode {
    /// Number of modes.
    pub const COUNT: usize = AllocateMode::Discard as usize + 1;
}

/// What an operation that succeeded yields.
#[derive(Debug)]
pub enum Output {
    /// Nothing but success.
    Done,
    /// So many bytes.
    Count(usize),
    /// Bytes in a buffer of the driver's choice.
    Received(View),
    /// A connection and its peer's address.
    Accepted(Socket, SocketAddr),
}

/// How an operation ended. It always comes, exactly once, also after a cancellation (`ECANCELED`).
#[derive(Debug)]
pub struct Outcome {
    /// What it yielded, or the system's error.
    pub result: io::Result<Output>,
    /// The operation with its buffers.
    pub op: Op,
}

/// How long [`Driver::turn`] may wait for an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all: more work is ready, or the reactor is spinning.
    No,
    /// Not at all; and receives for which there are no bytes yet come back to be started again, where there are few: to ask
    /// them answers sooner than to wait to be told, for a system call each time.
    Look,
    /// Until an outcome, a notification, or this moment.
    Until(Option<Instant>),
}

/// What a scheduler did with a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProcessorTimes {
    /// For how long it had a processor.
    pub ran: Duration,
    /// For how long it was ready to run while others had it.
    pub waited: Duration,
}

/// Network, disk, clock and randomness of one reactor. The reactor's thread is its only caller. It has the only table of the
/// operations in flight ([`crate::InFlight`]).
pub trait Driver {
    /// The time now.
    fn now(&self) -> Instant;

    /// A random number.
    fn random(&mut self) -> u64;

    /// Takes an operation. Its outcome comes from a later [`Driver::turn`], with its owner.
    fn submit(&mut self, owner: Owner, op: Op) -> OpToken;

    /// Asks for an early end of an operation. Its outcome still comes, whatever it is by then. Does nothing to one that has ended.
    fn cancel(&mut self, token: OpToken);

    /// Starts what was submitted, waits as told, and appends the outcomes that are there.
    fn turn(&mut self, wait: Wait, outcomes: &mut Vec<(Owner, Outcome)>);

    /// Operations whose outcome has not come.
    fn in_flight(&self) -> usize;

    /// Asks for an early end of every operation. Their outcomes still come, and are nobody's: the owners are returned, for the
    /// caller to drop.
    fn abandon_all(&mut self) -> Vec<Owner>;

    /// What the scheduler did with the reactor's thread since it started; none where nobody knows.
    fn processor_times(&self) -> Option<ProcessorTimes> {
        None
    }

    /// What ends a waiting [`Driver::turn`] from another thread.
    fn notifier(&self) -> Arc<dyn Notifier>;
}

/// Ends the wait of one reactor's driver; from any thread.
pub trait Notifier: Send + Sync {
    /// The wait that goes on, or the next one, ends at once.
    fn notify(&self);
}
