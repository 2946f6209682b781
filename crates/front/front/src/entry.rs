//! A connection as others know it, and what they may tell it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{Completions, Volume};
use weir_reactor::{Mailbox, Sender, SocketOptions, SocketReport};

use crate::arrivals::Source;
use crate::latency::Latency;
use crate::protocol::Protocol;
use crate::reservations::News;

/// Messages from other tasks to a connection.
pub enum Message<M> {
    /// Take over what the host sees now. The sender is used when only commands in flight still hold what the host saw before. Those
    /// that may no longer run are counted in the connection's entry by then.
    Look(Sender<()>),
    /// Every reactor has the new snapshot: tell the host what changed.
    Announce,
    /// End it.
    End(&'static str),
    /// What this volume has not answered stays so for now.
    Unfenced(Weak<dyn Volume>),
    /// Reservations of a volume changed.
    Rights(Arc<News>),
    /// The front end is about to shut down.
    ShuttingDown,
    /// Tell what the system says of the socket.
    Report(Sender<Option<SocketReport>>),
    /// One of the protocol's own.
    Own(M),
}

/// A connection as others reach it, on any thread.
pub struct Handle<M> {
    /// Its number, unique while the front end lives.
    pub id: u64,
    pub(crate) mailbox: Arc<Mailbox<Message<M>>>,
}

impl<M: Send + 'static> Handle<M> {
    pub(crate) fn new(id: u64) -> Self {
        Handle {
            id,
            mailbox: Mailbox::new(),
        }
    }

    /// Sends it a message of the protocol.
    ///
    /// # Errors
    /// The message, where nobody reads it any more.
    pub fn tell(&self, message: M) -> Result<(), M> {
        match self.mailbox.send(Message::Own(message)) {
            Ok(()) => Ok(()),
            Err(Message::Own(message)) => Err(message),
            Err(_) => unreachable!("what was sent comes back"),
        }
    }
}

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Handle {
            id: self.id,
            mailbox: Arc::clone(&self.mailbox),
        }
    }
}

/// The part of a connection that its reactor's other tasks see.
pub struct Entry<P: Protocol> {
    /// The connection as others reach it.
    pub handle: Handle<P::Message>,
    /// The host's address.
    pub peer: SocketAddr,
    /// The address that the host reached.
    pub local: SocketAddr,
    /// What is to be known of the listener that it came by.
    pub port: P::Port,
    /// What others are told of it.
    pub about: RefCell<P::About>,
    /// The number by which volumes know what it submits ([`weir_block::Token::owner`]).
    pub owner: u32,
    /// Where the time of its commands went.
    pub latency: RefCell<Latency>,
    pub(crate) in_flight: Cell<u32>,
    pub(crate) bytes_received: Cell<u64>,
    pub(crate) bytes_sent: Cell<u64>,
    /// Number of its requests under way whose right was taken away, by the number of the export.
    pub(crate) revoked: RefCell<BTreeMap<u32, u64>>,
    /// Where it comes from, while it is half open.
    pub(crate) half_open: Cell<Option<Source>>,
    /// The generation of what it sees; 0: it is to look again.
    pub(crate) seen: Cell<u64>,
    /// Options that its socket is to get.
    pub(crate) options: RefCell<Option<SocketOptions>>,
    pub(crate) completions: Rc<Completions>,
    /// Number of requests on volumes that have not ended; shared with the session's commands.
    pub(crate) running: RefCell<Rc<Cell<u32>>>,
}

impl<P: Protocol> Entry<P> {
    /// Takes out the options that its socket is to get.
    #[inline]
    pub(crate) fn take_options(&self) -> Option<SocketOptions> {
        let has_some = self.options.borrow().is_some();
        has_some.then(|| self.options.take()).flatten()
    }

    /// Tells whether no command is in flight. Those that [`Session::in_flight`](crate::Session::in_flight) leaves out do not count.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.get() == 0 && self.running.borrow().get() == 0
    }
}
