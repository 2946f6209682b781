//! State of clients on the server: sessions, opens, locks. All reactors share it, behind one lock, which the data path of a request
//! with an open that its connection knows does not take.

mod clients;
mod files;
mod locks;
mod slots;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_nfs::{SessionId, StateId};
use weir_reactor::{Instant, SharedSection};

use clients::Client;
pub(crate) use clients::Principal;
pub(crate) use files::{Open, OpenRequest, Opened, STATE_BYTES};
pub(crate) use locks::{Conflict, Locked};
pub(crate) use slots::{Begun, Kept, SLOT_BYTES, Session};

use crate::config::NfsConfig;
use crate::handle::FileKey;
use files::{Held, OpenFile};

/// Keeps which clients may reclaim after a restart what they had.
pub trait Keeper: Send + Sync + 'static {
    /// Keeps these names of clients (co_ownerid), and no others, on stable storage. Blocks.
    ///
    /// # Errors
    /// They could not be kept.
    fn keep(&self, clients: &BTreeSet<Vec<u8>>) -> io::Result<()>;
}

/// The time after a start in which clients reclaim what they had, and nobody gets anything new.
#[derive(Debug)]
struct Grace {
    until: Instant,
    /// Those that may reclaim, and have not said that they are done.
    waiting: BTreeSet<Vec<u8>>,
}

/// The state of all clients.
pub(crate) struct State {
    /// Tells this run of the server from others.
    boot: u32,
    /// Number that says to clients that data which was not committed may be gone, when it changes.
    verifier: AtomicU64,
    /// Opens that deny something.
    denials: Arc<AtomicUsize>,
    config: NfsConfig,
    keeper: Arc<dyn Keeper>,
    /// Held while names are kept, so that the newest are kept last.
    keeping: Mutex<()>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Counts clients and stateids.
    last: u64,
    clients: HashMap<u64, Client>,
    /// By name: the client that is confirmed, and the one that is not yet.
    by_name: HashMap<Vec<u8>, Named>,
    sessions: HashMap<SessionId, Arc<Session>>,
    /// Slots of all sessions.
    slots: usize,
    held: HashMap<[u8; 12], Held>,
    files: HashMap<FileKey, OpenFile>,
    grace: Option<Grace>,
    /// Names of clients that may reclaim after the next start.
    recorded: BTreeSet<Vec<u8>>,
}

#[derive(Default, Clone, Copy)]
struct Named {
    confirmed: Option<u64>,
    unconfirmed: Option<u64>,
}

/// All of it, while nobody else has it: what breaks here is not one connection's.
struct Everything<'a> {
    inner: MutexGuard<'a, Inner>,
    _section: SharedSection,
}

impl Deref for Everything<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Everything<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

/// A client, for people.
#[derive(Debug, Clone)]
pub(crate) struct ClientView {
    pub(crate) id: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) implementation: String,
    pub(crate) address: IpAddr,
    pub(crate) sessions: u32,
    pub(crate) states: u32,
}

impl State {
    /// The state of a server that starts `now`, in which the clients of these names may reclaim what they had. `boot` and `verifier` are
    /// drawn.
    pub(crate) fn new(
        config: NfsConfig,
        keeper: Arc<dyn Keeper>,
        reclaiming: BTreeSet<Vec<u8>>,
        now: Instant,
        boot: u32,
        verifier: u64,
    ) -> Self {
        let grace = (!reclaiming.is_empty()).then(|| Grace {
            until: now + config.lease,
            waiting: reclaiming.clone(),
        });
        State {
            // Zero is the first word of special stateids, and so is all ones.
            boot: boot.clamp(1, u32::MAX - 1),
            verifier: AtomicU64::new(verifier),
            denials: Arc::default(),
            keeper,
            keeping: Mutex::new(()),
            inner: Mutex::new(Inner {
                grace,
                recorded: reclaiming,
                ..Inner::default()
            }),
            config,
        }
    }

    fn lock(&self) -> Everything<'_> {
        let section = SharedSection::enter();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Everything {
            inner,
            _section: section,
        }
    }

    /// Verifier that WRITE and COMMIT yield.
    pub(crate) fn verifier(&self) -> u64 {
        self.verifier.load(Ordering::Acquire)
    }

    /// Data that was not committed may be gone.
    pub(crate) fn lost_data(&self, drawn: u64) {
        // Never the same again, whatever was drawn.
        let before = self.verifier();
        let next = if drawn == before { !drawn } else { drawn };
        self.verifier.store(next, Ordering::Release);
    }

    /// Keeps which clients may reclaim, as it is now. Blocks.
    pub(crate) fn keep_names(&self) -> io::Result<()> {
        let _keeping = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let names = self.lock().recorded.clone();
        self.keeper.keep(&names)
    }

    /// Everything ends that clients have of files that are gone.
    pub(crate) fn end(&self, is_gone: impl Fn(&FileKey) -> bool) {
        let mut inner = self.lock();
        let ids: Vec<[u8; 12]> = inner
            .held
            .iter()
            .filter(|(_, held)| is_gone(&held.key()))
            .map(|(&id, _)| id)
            .collect();
        for id in ids {
            inner.remove_held(&id);
        }
    }

    /// The clients that are confirmed, in the order in which they came.
    pub(crate) fn clients(&self) -> Vec<ClientView> {
        let inner = self.lock();
        let confirmed = inner.clients.values().filter(|client| client.is_confirmed);
        let mut clients: Vec<ClientView> = confirmed
            .map(|client| ClientView {
                id: client.id,
                name: client.name.clone(),
                implementation: client.implementation.clone(),
                address: client.address,
                sessions: client.sessions.len() as u32,
                states: client.states,
            })
            .collect();
        clients.sort_by_key(|client| client.id);
        clients
    }
}

impl Inner {
    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn next_state(&mut self, boot: u32) -> [u8; 12] {
        let mut id = [0; 12];
        id[..4].copy_from_slice(&boot.to_be_bytes());
        id[4..].copy_from_slice(&self.next().to_be_bytes());
        id
    }

    /// Ends the time of grace where it is over.
    fn look_at_grace(&mut self, now: Instant) -> bool {
        let Some(grace) = &self.grace else {
            return false;
        };
        if grace.waiting.is_empty() || grace.until <= now {
            // Those that did not come back in time had their chance.
            let came: BTreeSet<Vec<u8>> = self
                .clients
                .values()
                .filter(|client| client.is_recorded)
                .map(|client| client.name.clone())
                .collect();
            self.recorded = came;
            self.grace = None;
        }
        self.grace.is_some()
    }
}

/// Tells how a stateid stands to the newest one of what it names.
pub(crate) fn compare_seqid(asked: u32, now: u32) -> Result<(), weir_nfs::Status> {
    use weir_nfs::Status;
    match asked {
        0 => Ok(()),
        asked if asked == now => Ok(()),
        asked if asked < now => Err(Status::OldStateid),
        _ => Err(Status::BadStateid),
    }
}

/// A stateid of something that is at this seqid.
pub(crate) fn stateid(other: [u8; 12], seqid: u32) -> StateId {
    StateId { seqid, other }
}

#[cfg(test)]
mod tests;
