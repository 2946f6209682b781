//! What a protocol adds to an initiator.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Operation, VolumeError};
use weir_memory::{View, Views, slice_views};
use weir_reactor::Reactor;

use crate::calls::Caller;
use crate::connection::Connection;
use crate::durability::Retained;
use crate::options::CommonOptions;
use crate::plan::{Limits, Method, Piece};
use crate::remote::{Profile, Remote};
use crate::wire::{Payload, Wire};

/// One association with a target: from its first connection to its end. It does not change; a new one has the next generation.
pub struct Association<P: Protocol> {
    /// Counts the associations of the volume from 1.
    pub generation: u64,
    /// Address of the first connection; the others go there, too.
    pub address: SocketAddr,
    /// The medium.
    pub profile: Profile<P::Identity>,
    /// Connections that the target has for this host's I/O.
    pub queues: u16,
    /// What else the protocol must know.
    pub details: P::Details,
}

/// An association, and the connection by which it is kept.
pub struct Established<P: Protocol> {
    /// The association.
    pub association: Arc<Association<P>>,
    /// The connection by which it is kept and asked.
    pub admin: P::Admin,
    /// The target ends an association that was silent for so long; or it is asked at least so often.
    pub keep_alive: Duration,
    /// Whether I/O keeps the association alive, too.
    pub traffic_based: bool,
    /// So long after the last connection was closed the target has surely ended the association by itself.
    pub quiet: Duration,
}

/// What is known of the next association before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// Its number: associations of a volume are counted from 1.
    pub generation: u64,
    /// The highest connection for I/O in use; an association with fewer is of no use.
    pub queues_used: u16,
}

/// A remote medium as a protocol knows it.
pub type RemoteOf<P> =
    Remote<<P as Protocol>::Options, <P as Protocol>::Host, <P as Protocol>::Identity>;

/// Result of the wish that an association end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<WayOut> {
    /// The target says that it has.
    Surely,
    /// It said, in good time, that it has not yet: what it executes takes long.
    NotYet(WayOut),
    /// It answers. What it still executes ends when the connections are made again ([`Protocol::replaces`]).
    Alive,
    /// It did not say.
    Unheard,
}

/// A piece of a request, to be made a command of.
pub struct Command<'request> {
    /// The request.
    pub operation: &'request Operation,
    /// Method of the piece.
    pub method: Method,
    /// First block of the piece.
    pub lba: u64,
    /// The piece.
    pub piece: Piece,
    /// Commands that the target takes.
    pub limits: &'request Limits,
}

impl Command<'_> {
    /// The block size as a power of two.
    #[must_use]
    pub fn shift(&self) -> u32 {
        self.limits.block_size.shift()
    }

    /// Bytes of the piece.
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.piece.blocks as usize) << self.shift()
    }

    /// All data that the request brings.
    #[must_use]
    pub fn brought(&self) -> &[View] {
        match self.operation {
            Operation::Write { data, .. }
            | Operation::Compare { data, .. }
            | Operation::CompareWrite { data, .. } => data,
            _ => &[],
        }
    }

    /// Data of the request, `length` bytes of it from the piece's start and `skipped` bytes on.
    #[must_use]
    pub fn data(&self, skipped: usize, length: usize) -> Payload {
        let start = skipped + (self.piece.offset << self.shift()) as usize;
        Payload::Out(slice_views(self.brought(), start, length))
    }

    /// Data of a piece that is written with data.
    #[must_use]
    pub fn written(&self) -> Views {
        let start = (self.piece.offset << self.shift()) as usize;
        match self.method {
            Method::Write => slice_views(self.brought(), start, self.bytes()),
            _ => View::zeroes(self.bytes()).collect(),
        }
    }
}

/// What to do about a command that the target has completed. It has ended there in every case, so that a retry never meets an
/// earlier execution of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was done.
    Done,
    /// It failed for good.
    Failed(VolumeError),
    /// It may succeed later; where it does not in time, this is its error.
    Retry(VolumeError),
    /// It ended because this host asked for it: the one who asked knows the reason.
    Aborted,
    /// It ended because the other command of its pair failed, whose status says why.
    AbortedWithOther,
}

/// A verdict with what goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judged {
    /// The verdict. The offset of a miscompare counts from the start of the piece.
    pub verdict: Verdict,
    /// Whether the command, or a part of it, may have been carried out though it is retried.
    pub may_have_been_done: bool,
    /// The pause that the target names before a retry.
    pub pause: Duration,
    /// Whether the medium is to be looked at again: it may have changed.
    pub attention: bool,
    /// Whether the target says that a write failed which it had acknowledged.
    pub write_lost: bool,
    /// The reason for which the association must end, where the answer says that.
    pub ends: Option<&'static str>,
}

impl Judged {
    /// The verdict alone.
    #[must_use]
    pub fn new(verdict: Verdict) -> Judged {
        Judged {
            verdict,
            may_have_been_done: false,
            pause: Duration::ZERO,
            attention: false,
            write_lost: false,
            ends: None,
        }
    }
}

/// Failure of a connection for I/O to be made.
#[derive(Debug)]
pub struct LinkFailure {
    /// Text for the log.
    pub reason: String,
    /// Whether the target refused it for a reason that may pass soon.
    pub again: bool,
}

/// A protocol by which a volume is reached.
///
/// An association is one connection by which the target is asked about itself (`Admin`), and any number of connections for I/O,
/// counted from 1 (`qid`), which each volume queue opens on its own reactor.
#[expect(
    async_fn_in_trait,
    reason = "futures stay on the reactor that made them"
)]
pub trait Protocol: Sized + Send + Sync + 'static {
    /// The state machine of a connection.
    type Wire: Wire;
    /// Where to connect, and how.
    type Options: Send + Sync + 'static;
    /// This host, as it says to targets who it is.
    type Host: Send + Sync + 'static;
    /// What tells a medium from others.
    type Identity: Clone + PartialEq + Send + Sync + fmt::Debug + 'static;
    /// What an association has of its own.
    type Details: Send + Sync + 'static;
    /// The connection by which an association is kept. Its connection is closed when this is dropped.
    type Admin: 'static;
    /// Words by which a target is told to end an association.
    type WayOut: Copy + PartialEq + fmt::Debug + 'static;
    /// A command in flight on a connection, for whoever aborts it.
    type Tag: Copy + PartialEq + Send + fmt::Debug + 'static;
    /// Failure of an association.
    type ConnectError: fmt::Display + 'static;

    /// Scheme of the URLs.
    const SCHEME: &'static str;

    /// Says that this host keeps what no flush has covered, and writes it again where a target has lost it ([`Protocol::restore`]).
    const RETAINS: bool = false;

    /// The volume as a person knows it.
    fn name(options: &Self::Options) -> String;

    /// Tells whether a connection for I/O that is made again ends, at the target, the commands of its last one, before it is made.
    fn replaces(options: &Self::Options) -> bool;

    /// Options that do not depend on the protocol.
    fn common(options: &Self::Options) -> &CommonOptions;

    /// Makes an association.
    ///
    /// # Errors
    /// The target cannot be reached, or refuses, or has no such medium.
    async fn establish(
        reactor: &Reactor,
        remote: &RemoteOf<Self>,
        next: Next,
    ) -> Result<Established<Self>, Self::ConnectError>;

    /// Makes `writes` durable, which were acknowledged in associations before, in this order, and which no flush has covered. Nothing else
    /// is sent meanwhile.
    ///
    /// # Errors
    /// It could not; the association is not used.
    async fn restore(
        _established: &Established<Self>,
        _remote: &RemoteOf<Self>,
        _writes: &[Retained],
    ) -> Result<(), Self::ConnectError> {
        unreachable!("nothing is retained")
    }

    /// Waits for the end of the connection by which the association is kept; its reason.
    async fn end_of(admin: &Self::Admin) -> String;

    /// Asks the target whether it lives, which keeps the association alive.
    ///
    /// # Errors
    /// The association must end, for this reason.
    async fn keep_alive(established: &Established<Self>) -> Result<(), String>;

    /// Watches for what the target tells of itself, and calls `changed` with the medium as it is then, or that it is gone. Returns
    /// when nothing more is to come.
    async fn events(
        established: &Established<Self>,
        remote: &RemoteOf<Self>,
        changed: &dyn Fn(Option<Profile<Self::Identity>>),
    );

    /// Looks at the medium: as it is now, or that it is gone.
    ///
    /// # Errors
    /// It cannot be asked.
    async fn look(
        established: &Established<Self>,
        remote: &RemoteOf<Self>,
    ) -> Result<Option<Profile<Self::Identity>>, Self::ConnectError>;

    /// Ends the association at the target: by a shutdown where that is wished, else so that nothing of it is executed any more.
    async fn end(admin: &Self::Admin, orderly: bool) -> Ended<Self::WayOut>;

    /// Goes on asking a target that has not ended an association; true when it says that it has, false when it is heard no more.
    async fn outlive(established: &Established<Self>, way: Self::WayOut) -> bool;

    /// Closes the connection by which the association was kept.
    fn close(admin: &Self::Admin);

    /// Returns whether the target of a lost association still answers, within `timeout`, by which it proves that it was there all the
    /// time.
    async fn answers(admin: &Self::Admin, timeout: Duration) -> bool;

    /// The state machine of connection `qid`.
    fn wire(
        reactor: &Reactor,
        remote: &RemoteOf<Self>,
        association: &Association<Self>,
        qid: u16,
    ) -> Self::Wire;

    /// Makes a connection that was just opened ready for I/O.
    ///
    /// # Errors
    /// [`LinkFailure`].
    async fn greet(
        caller: &Caller<Self::Wire>,
        remote: &RemoteOf<Self>,
        association: &Association<Self>,
        qid: u16,
    ) -> Result<(), LinkFailure>;

    /// Takes leave of the target on a connection for I/O, within a time that its user can wait.
    async fn farewell(caller: &Caller<Self::Wire>, association: &Association<Self>);

    /// Commands that a piece takes.
    fn needs(method: Method) -> usize;

    /// Submits a piece; the commands in flight, of which there are [`Protocol::needs`].
    fn issue(
        wire: &mut Self::Wire,
        remote: &RemoteOf<Self>,
        command: &Command<'_>,
        user: u64,
    ) -> Self::Tag;

    /// Aborts a command on its own connection, where that is possible there. Otherwise [`Protocol::abort`] is called at the volume's
    /// home.
    fn abort_here(caller: &Caller<Self::Wire>, tag: Self::Tag) -> bool;

    /// Aborts a command of connection `qid`. Whether it ends is seen by its completion, or by its absence.
    async fn abort(established: Rc<Established<Self>>, qid: u16, tag: Self::Tag);

    /// Judges the answer to a piece of `bytes` bytes.
    fn judge(
        association: Option<&Association<Self>>,
        answer: &<Self::Wire as Wire>::Answer,
        bytes: u64,
    ) -> Judged;
}

/// A connection for I/O as its protocol sees it.
pub type Link<P> = Connection<<P as Protocol>::Wire>;
