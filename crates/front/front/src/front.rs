//! A front end as its owner sees it: what it serves, where it listens, who is connected.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use weir_block::Volume;
use weir_reactor::{Reactor, Receiver, SocketOptions, SocketReport, oneshot};

use crate::accept::{self, ListenAt};
use crate::counters::{ConnectionCounters, ConnectionCounts};
use crate::entry::{Entry, Message};
use crate::hub::{Hubs, key_of};
use crate::latency::Latency;
use crate::limits::Limits;
use crate::parts::Parts;
use crate::protocol::Protocol;
use crate::session::Session;
use crate::shard::{ExportKey, Shard};
use crate::shared::Shared;
use crate::volumes::Export;
use crate::watches::Concerned;

/// How long a shutdown waits at least for connections to close.
const CLOSE_TIME: Duration = Duration::from_secs(5);
/// How often a shutdown looks whether commands are still in flight.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// What a front end's owner asked for cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// There is no reactor to run on.
    #[error("a front end needs at least one reactor")]
    NoReactor,
    /// A reactor has stopped, and with it this part of the front end.
    #[error("reactor {reactor} of the front end has stopped")]
    Stopped {
        /// Index of the reactor among the front end's.
        reactor: usize,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        #[source]
        error: std::io::Error,
    },
    /// There is no such listener.
    #[error("nothing listens on {address}; the listeners are listed by their own addresses")]
    NoListener {
        /// The address.
        address: SocketAddr,
    },
    /// Something that must outlast a restart cannot be stored.
    #[error("what must outlast a restart cannot be stored: {0}")]
    Store(#[source] std::io::Error),
    /// There is no such connection.
    #[error("there is no connection {id}; it may have ended already")]
    NoConnection {
        /// Its number.
        id: u64,
    },
}

/// A connection as it is now.
#[derive(Debug, Clone)]
pub struct ConnectionState<A> {
    /// Its number, unique among all front ends on the same hubs.
    pub id: u64,
    /// Index of its reactor among the front end's.
    pub reactor: usize,
    /// The host's address.
    pub peer: SocketAddr,
    /// The address that the host reached.
    pub local: SocketAddr,
    /// What the protocol tells of it.
    pub about: A,
    /// Commands that it has.
    pub in_flight: u32,
    /// Bytes received so far.
    pub bytes_received: u64,
    /// Bytes sent so far.
    pub bytes_sent: u64,
    /// What the system says of the socket.
    pub socket: Option<SocketReport>,
}

impl<A> ConnectionState<A> {
    /// The same connection, told of in another way.
    pub fn with<B>(self, about: B) -> ConnectionState<B> {
        ConnectionState {
            id: self.id,
            reactor: self.reactor,
            peer: self.peer,
            local: self.local,
            about,
            in_flight: self.in_flight,
            bytes_received: self.bytes_received,
            bytes_sent: self.bytes_sent,
            socket: self.socket,
        }
    }
}

/// Counts since a front end started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FrontStats {
    /// Connections now.
    pub connections: u32,
    /// Of these, those that are not established.
    pub half_open: u32,
    /// Of these, accepted and not served yet: there are too many half-open ones.
    pub waiting: u32,
    /// By reactor.
    pub reactors: Vec<ConnectionCounts>,
    /// Data in flight now, as [`Hubs::bytes_in_flight`].
    pub bytes_in_flight: Vec<u64>,
}

struct ListenerEntry {
    id: u64,
    reactor: usize,
    address: SocketAddr,
}

/// A front end on a number of reactors. Clones are handles of one, and may be used on any thread.
pub struct Front<S: Session> {
    /// What all reactors share.
    pub shared: Arc<Shared<S::Protocol>>,
    parts: Arc<Parts<Shard<S::Protocol>>>,
    hubs: Hubs,
    listeners: Arc<Mutex<Vec<ListenerEntry>>>,
}

impl<S: Session> Clone for Front<S> {
    fn clone(&self) -> Self {
        Front {
            shared: Arc::clone(&self.shared),
            parts: Arc::clone(&self.parts),
            hubs: self.hubs.clone(),
            listeners: Arc::clone(&self.listeners),
        }
    }
}

/// A front end as its volumes reach it.
struct Served<P: Protocol> {
    parts: Weak<Parts<Shard<P>>>,
    shared: Weak<Shared<P>>,
}

impl<P: Protocol> Concerned for Served<P> {
    /// Every reactor looks at the geometry, and then the hosts are told.
    fn resized(&self) {
        let Some(parts) = self.parts.upgrade() else {
            return;
        };
        let left = Arc::new(AtomicU32::new(parts.count() as u32));
        let all = Arc::clone(&parts);
        parts.tell_every(move |shard| {
            shard.renew_geometry();
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                announce(&all);
            }
        });
    }

    /// Connections that have any such commands are ended, and hosts that wait to come in are told why they cannot.
    fn unfenced(&self, volume: &Arc<dyn Volume>) {
        let (Some(parts), Some(shared)) = (self.parts.upgrade(), self.shared.upgrade()) else {
            return;
        };
        let volume = Arc::downgrade(volume);
        parts.tell_every(move |shard| shard.tell_all(|| Message::Unfenced(Weak::clone(&volume))));
        P::look_again(&shared.own);
    }
}

fn announce<P: Protocol>(parts: &Parts<Shard<P>>) {
    parts.tell_every(|shard| shard.tell_all(|| Message::Announce));
}

impl<S: Session> Front<S> {
    /// A front end on the reactors of `hubs` that serves nothing yet and listens nowhere.
    ///
    /// # Errors
    /// [`FrontError::NoReactor`] or [`FrontError::Stopped`].
    pub async fn new(
        hubs: &Hubs,
        limits: Limits,
        own: Arc<<S::Protocol as Protocol>::Shared>,
    ) -> Result<Self, FrontError> {
        let count = hubs.reactors();
        if count == 0 {
            return Err(FrontError::NoReactor);
        }
        let stopped = |reactor| FrontError::Stopped { reactor };
        let now = hubs.parts().ask(0, |hub| hub.reactor.now());
        let started = now.await.ok_or(stopped(0))?;
        let shared = Shared::new(limits, own, hubs, started);
        let parts = Parts::new(count);
        for reactor in 0..count {
            let (shared, parts) = (Arc::clone(&shared), Arc::clone(&parts));
            let begun = hubs.parts().ask(reactor, move |hub| {
                let inbox = parts.inbox(reactor);
                let shard = Shard::new(reactor, Rc::clone(hub), shared, parts);
                hub.reactor.spawn(shard.run(inbox)).detach();
            });
            begun.await.ok_or(stopped(reactor))?;
        }
        Ok(Front {
            hubs: hubs.clone(),
            shared,
            parts,
            listeners: Arc::default(),
        })
    }

    /// How many reactors it runs on.
    #[must_use]
    pub fn reactors(&self) -> usize {
        self.parts.count()
    }

    /// Serves `snapshot` from now on, in place of the one before. Returns when every reactor and every connection has taken it over;
    /// then hosts are told what changed for them. A volume that is no longer served is held only by its requests in flight. Commands
    /// that their host may no longer run do not begin. [`Front::revoked`] counts their requests under way until these have ended.
    /// Calls must be made one after another.
    ///
    /// # Errors
    /// [`FrontError::Stopped`].
    pub async fn apply(
        &self,
        snapshot: Arc<<S::Protocol as Protocol>::Snapshot>,
    ) -> Result<(), FrontError> {
        self.watch(&snapshot);
        let answers = self
            .parts
            .ask_every(move |shard| shard.apply(Arc::clone(&snapshot)))
            .await;
        for (reactor, connections) in answers.into_iter().enumerate() {
            for connection in connections.ok_or(FrontError::Stopped { reactor })? {
                // None: the connection has ended.
                let _ = connection.await;
            }
        }
        announce(&self.parts);
        Ok(())
    }

    fn watch(&self, snapshot: &<S::Protocol as Protocol>::Snapshot) {
        let exports = S::Protocol::exports(snapshot).flat_map(|(_, exports)| exports);
        self.shared
            .watches
            .take_over(exports.map(Export::volume), || Served {
                parts: Arc::downgrade(&self.parts),
                shared: Arc::downgrade(&self.shared),
            });
    }

    fn lock(&self) -> MutexGuard<'_, Vec<ListenerEntry>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens, and yields the address with its real port.
    ///
    /// # Errors
    /// [`FrontError::Listen`] or [`FrontError::Stopped`].
    pub async fn add_listener(
        &self,
        at: ListenAt<<S::Protocol as Protocol>::Port>,
    ) -> Result<SocketAddr, FrontError> {
        let reactor = self.reactor_for_listener();
        let id = self.shared.next_id();
        let asked = at.address;
        let answer = self
            .parts
            .ask(reactor, move |shard| accept::listen::<S>(shard, id, at));
        let stopped = FrontError::Stopped { reactor };
        let address = answer
            .await
            .ok_or(stopped)?
            .map_err(|error| FrontError::Listen {
                address: asked,
                error,
            })?;
        self.lock().push(ListenerEntry {
            id,
            reactor,
            address,
        });
        Ok(address)
    }

    /// The reactor with the fewest listeners.
    fn reactor_for_listener(&self) -> usize {
        let entries = self.lock();
        let listeners = |reactor: usize| {
            let on = |entry: &&ListenerEntry| entry.reactor == reactor;
            entries.iter().filter(on).count()
        };
        (0..self.reactors())
            .min_by_key(|&reactor| listeners(reactor))
            .expect("a front end has a reactor")
    }

    /// Stops listening. Connections that were accepted stay.
    ///
    /// # Errors
    /// [`FrontError::NoListener`] or [`FrontError::Stopped`].
    pub async fn remove_listener(&self, address: SocketAddr) -> Result<(), FrontError> {
        let ListenerEntry { id, reactor, .. } = {
            let mut listeners = self.lock();
            let found = listeners.iter().position(|entry| entry.address == address);
            listeners.remove(found.ok_or(FrontError::NoListener { address })?)
        };
        let answer = self.parts.ask(reactor, move |shard| {
            drop(shard.listeners.borrow_mut().remove(&id));
        });
        answer.await.ok_or(FrontError::Stopped { reactor })
    }

    /// Gives the connections that are accepted at `address` from now on other options.
    ///
    /// # Errors
    /// [`FrontError::NoListener`] or [`FrontError::Stopped`].
    pub async fn set_listener_options(
        &self,
        address: SocketAddr,
        options: SocketOptions,
    ) -> Result<(), FrontError> {
        let (id, reactor) = {
            let listeners = self.lock();
            let found = listeners
                .iter()
                .find(|entry| entry.address == address)
                .ok_or(FrontError::NoListener { address })?;
            (found.id, found.reactor)
        };
        let answer = self.parts.ask(reactor, move |shard| {
            if let Some(listening) = shard.listeners.borrow().get(&id) {
                *listening.options.borrow_mut() = options;
            }
        });
        answer.await.ok_or(FrontError::Stopped { reactor })
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.lock().iter().map(|entry| entry.address).collect()
    }

    /// Every connection. A reactor that has stopped has none.
    pub async fn connections(&self) -> Vec<ConnectionState<<S::Protocol as Protocol>::About>> {
        let mut all = Vec::new();
        let answers = self.parts.ask_every(describe_connections).await;
        for (mut state, report) in answers.into_iter().flatten().flatten() {
            state.socket = match report {
                Some(report) => report.await.flatten(),
                None => None,
            };
            all.push(state);
        }
        all
    }

    /// Where the time of exports' commands went since they are served: of one export, or of all.
    pub async fn export_latencies(
        &self,
        only: Option<ExportKey<S::Protocol>>,
    ) -> BTreeMap<ExportKey<S::Protocol>, Latency> {
        self.gather(move |shard| shard.export_latencies(only.as_ref()))
            .await
    }

    /// Where the time of connections' commands went, by number: of one connection, or of all.
    pub async fn connection_latencies(&self, only: Option<u64>) -> BTreeMap<u64, Latency> {
        self.gather(move |shard| shard.connection_latencies(only))
            .await
    }

    /// Where the time of groups' commands went since they are served; it only grows.
    pub async fn group_latencies(&self) -> BTreeMap<<S::Protocol as Protocol>::Group, Latency> {
        self.gather(|shard| shard.group_latencies()).await
    }

    /// Latencies of each of these volumes, through all exports whose [`Export::counted`] it is or was. They only grow while
    /// somebody holds the volume.
    ///
    /// Commands whose connection was lost are among them from when the volume has done them. They say how long the volume took
    /// ([`Stage::Volume`]), and nothing of an answer.
    ///
    /// [`Stage::Volume`]: crate::Stage::Volume
    pub async fn volume_latencies(&self, volumes: &[Arc<dyn Volume>]) -> Vec<Latency> {
        let all = self.gather(|shard| shard.volume_latencies()).await;
        let of_volume = |volume| all.get(&key_of(volume)).cloned().unwrap_or_default();
        volumes.iter().map(of_volume).collect()
    }

    /// Sums what the reactors tell. One that has stopped tells nothing.
    async fn gather<K: Ord + Send + 'static>(
        &self,
        ask: impl Fn(&Rc<Shard<S::Protocol>>) -> Vec<(K, Latency)> + Clone + Send + 'static,
    ) -> BTreeMap<K, Latency> {
        let mut all = BTreeMap::<K, Latency>::new();
        let answers = self.parts.ask_every(ask).await;
        for (key, latency) in answers.into_iter().flatten().flatten() {
            all.entry(key).or_default().merge(&latency);
        }
        all
    }

    /// Number of requests under way on volumes although their hosts may not do this any more, those included whose
    /// connections are gone: by connection and number of the export. A reactor that has stopped has none.
    pub async fn revoked(&self) -> Vec<(<S::Protocol as Protocol>::About, u32, u64)> {
        let answers = self.parts.ask_every(|shard| shard.revoked()).await;
        answers.into_iter().flatten().flatten().collect()
    }

    /// Ends a connection.
    ///
    /// # Errors
    /// [`FrontError::NoConnection`].
    pub async fn disconnect(&self, id: u64) -> Result<(), FrontError> {
        let end = move |shard: &Rc<Shard<S::Protocol>>| {
            let connections = shard.connections.borrow();
            let end = Message::End("the operator disconnected it");
            connections
                .get(&id)
                .is_some_and(|entry| entry.handle.mailbox.send(end).is_ok())
        };
        let answers = self.parts.ask_every(end).await;
        match answers.contains(&Some(true)) {
            true => Ok(()),
            false => Err(FrontError::NoConnection { id }),
        }
    }

    /// Counts since it started.
    #[must_use]
    pub fn stats(&self) -> FrontStats {
        let newcomers = self.shared.admission.newcomers();
        let counts = |counters: &Arc<ConnectionCounters>| {
            let mut counts = ConnectionCounts::default();
            counts.add(counters);
            counts
        };
        FrontStats {
            connections: self.shared.admission.connections(),
            half_open: newcomers.half_open,
            waiting: newcomers.waiting,
            reactors: self.shared.counters.iter().map(counts).collect(),
            bytes_in_flight: self.hubs.bytes_in_flight(),
        }
    }

    /// Stops listening, tells the hosts, lets commands end for up to `drain`, and then ends every connection, waiting as long
    /// again, and five seconds at least, for what volumes are still doing. Afterwards the front end is of no more use.
    pub async fn shutdown(&self, drain: Duration) {
        self.lock().clear();
        self.parts.tell_every(|shard| {
            shard.listeners.borrow_mut().clear();
            accept::forget_waiting(shard);
            shard.tell_all(|| Message::ShuttingDown);
        });
        let (sender, drained) = oneshot();
        let (shared, parts) = (Arc::clone(&self.shared), Arc::clone(&self.parts));
        let watch = move |shard: &Rc<Shard<S::Protocol>>| {
            let reactor = shard.hub.reactor.clone();
            let task = async move {
                drain_and_close(&reactor, &shared, &parts, drain).await;
                parts.tell_every(|shard| shard.stopped.set(true));
                sender.send(());
            };
            shard.hub.reactor.spawn(task).detach();
        };
        // Without an answer the reactor stopped, and its connections with it.
        let _ = self.parts.ask(0, watch).await;
        let _ = drained.await;
    }
}

async fn drain_and_close<P: Protocol>(
    reactor: &Reactor,
    shared: &Shared<P>,
    parts: &Parts<Shard<P>>,
    drain: Duration,
) {
    let deadline = reactor.now() + drain;
    while !is_drained(parts).await && reactor.now() < deadline {
        reactor.sleep(DRAIN_POLL).await;
    }
    parts.tell_every(|shard| {
        shard.tell_all(|| Message::End("the front end shuts down"));
    });
    let give_up = reactor.now() + drain.max(CLOSE_TIME);
    let connections = || shared.admission.connections();
    while connections() > 0 && reactor.now() < give_up {
        reactor.sleep(DRAIN_POLL).await;
    }
    let left = connections();
    if left > 0 {
        tracing::warn!(
            left,
            "connections wait for volumes that do not answer; left as they are"
        );
    }
}

/// Tells whether no connection has commands in flight, on any reactor that runs.
async fn is_drained<P: Protocol>(parts: &Parts<Shard<P>>) -> bool {
    let is_idle = |shard: &Rc<Shard<P>>| {
        let connections = shard.connections.borrow();
        connections.values().all(|entry| entry.is_idle())
    };
    let answers = parts.ask_every(is_idle).await;
    answers.into_iter().all(|idle| idle.unwrap_or(true))
}

type Described<P> = (
    ConnectionState<<P as Protocol>::About>,
    Option<Receiver<Option<SocketReport>>>,
);

fn describe_connections<P: Protocol>(shard: &Rc<Shard<P>>) -> Vec<Described<P>> {
    let describe = |entry: &Rc<Entry<P>>| {
        let state = ConnectionState {
            id: entry.handle.id,
            reactor: shard.index,
            peer: entry.peer,
            local: entry.local,
            about: entry.about.borrow().clone(),
            in_flight: entry.in_flight.get(),
            bytes_received: entry.bytes_received.get(),
            bytes_sent: entry.bytes_sent.get(),
            socket: None,
        };
        let (sender, receiver) = oneshot();
        let asked = entry.handle.mailbox.send(Message::Report(sender));
        (state, asked.is_ok().then_some(receiver))
    };
    let connections = shard.connections.borrow();
    connections.values().map(describe).collect()
}
