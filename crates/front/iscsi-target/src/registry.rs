//! The sessions of all reactors. For the control path: it locks.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_block::HostNumber;
use weir_front::Handle;
use weir_iscsi::names::Name;
use weir_iscsi::pdu::{Isid, Tsih};
use weir_reactor::SharedSection;
use weir_reservation::Refused;

use crate::config::IscsiConfig;

/// Who talks to whom: an I_T nexus (RFC 7143, section 4.4.3). All portals are of one group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Nexus {
    pub(crate) initiator: Name,
    pub(crate) isid: Isid,
    pub(crate) target: Name,
}

/// Returns the number by which volumes tell an initiator from others. Were two to have the same, one would wait for what the
/// other's lost sessions have left, and nothing else.
pub(crate) fn number_of(initiator: &Name) -> HostNumber {
    let mut hasher = DefaultHasher::new();
    ("iscsi", initiator.as_str()).hash(&mut hasher);
    HostNumber(hasher.finish())
}

/// What sessions tell one another.
pub(crate) enum Message {
    /// A login that waited may go on.
    Retry,
    /// The initiator logged in anew in this session's place.
    Reinstated,
    /// A logical unit was reset, or all of them: commands there end, and the initiator is told. `wait` is dropped when nothing that
    /// was begun before can take effect any more.
    Reset {
        lun: Option<u16>,
        wait: Arc<ResetWait>,
    },
    /// A reset that this session asked for has reached all sessions.
    ResetEnded { number: u32 },
    /// The reservations of a volume have answered the task of this slot.
    Reserved {
        slot: u16,
        uses: u16,
        result: Result<(), Refused>,
    },
}

/// Held by all that must still do a reset. The session that asked for it is told when the last one has.
pub(crate) struct ResetWait {
    pub(crate) asked_by: Handle<Message>,
    pub(crate) number: u32,
}

impl Drop for ResetWait {
    fn drop(&mut self) {
        let number = self.number;
        // It may have ended meanwhile.
        let _ = self.asked_by.tell(Message::ResetEnded { number });
    }
}

/// A session as all reactors know it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) tsih: Tsih,
    pub(crate) nexus: Nexus,
    pub(crate) reactor: usize,
}

struct Session {
    shared: Arc<Shared>,
    handle: Handle<Message>,
    /// It ends, and not every reactor knows what it may have left under way.
    is_ending: bool,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<u16, Session>,
    /// Sessions on each reactor.
    load: Vec<u32>,
    last_tsih: u16,
    /// Sessions that are gone but for requests that volumes have not ended.
    draining: HashMap<Nexus, u32>,
    /// Connections whose login waits until it is known what sessions of the same initiator have left, or until that has ended.
    waiting: Vec<Handle<Message>>,
}

impl State {
    fn tell_waiting(&mut self) {
        for handle in self.waiting.drain(..) {
            // It may have ended meanwhile.
            let _ = handle.tell(Message::Retry);
        }
    }

    /// Sessions of an initiator that are gone but for such requests.
    fn draining_of(&self, initiator: &Name) -> u32 {
        let own = self
            .draining
            .iter()
            .filter(|(nexus, _)| nexus.initiator == *initiator);
        own.map(|(_, sessions)| sessions).sum()
    }

    /// A number that no session has. None: they are all taken.
    fn next_tsih(&mut self) -> Option<u16> {
        for _ in 0..u16::MAX {
            self.last_tsih = match self.last_tsih {
                u16::MAX => 1,
                last => last + 1,
            };
            if !self.sessions.contains_key(&self.last_tsih) {
                return Some(self.last_tsih);
            }
        }
        None
    }

    /// The reactor with the fewest sessions of this initiator, and then the fewest of all.
    fn choose_reactor(&self, initiator: &Name) -> usize {
        let mut own = vec![0_u32; self.load.len()];
        for session in self.sessions.values() {
            if session.shared.nexus.initiator == *initiator {
                own[session.shared.reactor] += 1;
            }
        }
        (0..self.load.len())
            .min_by_key(|&reactor| (own[reactor], self.load[reactor]))
            .expect("a front end has a reactor")
    }
}

/// What became of a login.
pub(crate) enum Grant {
    /// The session is there.
    Granted(Arc<Shared>),
    /// An earlier session of the initiator may still have requests under way that matter here. [`Message::Retry`] says when to try again.
    Wait,
    /// There are as many sessions as there may be; which bound that is.
    Full(&'static str),
}

/// All sessions.
pub(crate) struct Registry {
    state: Mutex<State>,
}

/// What is known of all sessions, which a panic must not leave half changed to the other connections.
struct Locked<'a> {
    state: MutexGuard<'a, State>,
    _shared: SharedSection,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Registry {
    /// No sessions, on so many reactors.
    pub(crate) fn new(reactors: usize) -> Self {
        let state = State {
            load: vec![0; reactors],
            ..State::default()
        };
        Registry {
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            _shared: SharedSection::enter(),
            state: self.state.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Enters a session. One of the same nexus is ended first, with all its tasks (session reinstatement, RFC 7143, section 6.3.5): the
    /// initiator takes it that nothing of them takes effect any more.
    pub(crate) fn enter(
        &self,
        nexus: &Nexus,
        handle: &Handle<Message>,
        config: &IscsiConfig,
    ) -> Grant {
        let mut state = self.lock();
        let mut is_ending = state.draining.contains_key(nexus);
        for session in state.sessions.values() {
            if session.shared.nexus == *nexus && !session.is_ending {
                let _ = session.handle.tell(Message::Reinstated);
                is_ending = true;
            }
            is_ending |= session.is_ending && session.shared.nexus.initiator == nexus.initiator;
        }
        // One that is lost again and again does not leave more behind than it may have.
        let draining = state.draining_of(&nexus.initiator);
        if is_ending || draining >= config.sessions_per_initiator_max {
            state.waiting.push(handle.clone());
            return Grant::Wait;
        }
        if state.sessions.len() >= config.sessions_max as usize {
            return Grant::Full("there are as many sessions as there may be");
        }
        let of_nexus = |session: &&Session| {
            let other = &session.shared.nexus;
            other.initiator == nexus.initiator && other.target == nexus.target
        };
        let own = state.sessions.values().filter(of_nexus).count();
        if own >= config.sessions_per_initiator_max as usize {
            return Grant::Full(
                "the initiator has as many sessions with the target as it may have",
            );
        }
        let Some(tsih) = state.next_tsih() else {
            return Grant::Full("there are as many sessions as there are numbers for");
        };
        let reactor = state.choose_reactor(&nexus.initiator);
        let shared = Arc::new(Shared {
            tsih: Tsih(tsih),
            nexus: nexus.clone(),
            reactor,
        });
        state.load[reactor] += 1;
        state.sessions.insert(
            tsih,
            Session {
                shared: Arc::clone(&shared),
                handle: handle.clone(),
                is_ending: false,
            },
        );
        Grant::Granted(shared)
    }

    /// Tells whether there is a session of this number.
    pub(crate) fn has(&self, tsih: Tsih) -> bool {
        self.lock().sessions.contains_key(&tsih.0)
    }

    /// Has logins that wait look again.
    pub(crate) fn retry_waiting(&self) {
        self.lock().tell_waiting();
    }

    /// A connection that waited is gone.
    pub(crate) fn forget_waiting(&self, connection: u64) {
        let waits = |handle: &Handle<Message>| handle.id != connection;
        self.lock().waiting.retain(waits);
    }

    /// A session begins to end: what it wrote may take effect until [`Registry::ended`].
    fn ends(&self, shared: &Shared) {
        let mut state = self.lock();
        let session = state.sessions.get_mut(&shared.tsih.0);
        session.expect("it was entered").is_ending = true;
        *state.draining.entry(shared.nexus.clone()).or_default() += 1;
    }

    /// Every queue of every volume knows what a session that ended may have left there.
    fn known(&self, shared: &Shared) {
        let mut state = self.lock();
        state.sessions.remove(&shared.tsih.0);
        state.load[shared.reactor] -= 1;
        state.tell_waiting();
    }

    /// Nothing that a session wrote can take effect any more.
    pub(crate) fn ended(&self, shared: &Shared) {
        let mut state = self.lock();
        let nexus = &shared.nexus;
        let left = state.draining.get_mut(nexus).expect("it is draining");
        *left -= 1;
        if *left == 0 {
            state.draining.remove(nexus);
        }
        state.tell_waiting();
    }

    /// The other sessions with the same target.
    pub(crate) fn others(&self, shared: &Shared) -> Vec<Handle<Message>> {
        let state = self.lock();
        let is_other = |session: &&Session| {
            session.shared.nexus.target == shared.nexus.target && session.shared.tsih != shared.tsih
        };
        let others = state.sessions.values().filter(is_other);
        others.map(|session| session.handle.clone()).collect()
    }

    /// How many sessions there are.
    pub(crate) fn count(&self) -> u32 {
        self.lock().sessions.len() as u32
    }
}

/// A session that is lost. Dropped when every queue of every volume knows what it may have left under way there: then the same
/// initiator may log in again.
pub(crate) struct LostSession {
    registry: Weak<Registry>,
    shared: Arc<Shared>,
}

impl LostSession {
    /// A session is lost from now on.
    pub(crate) fn new(registry: &Arc<Registry>, shared: &Arc<Shared>) -> Self {
        registry.ends(shared);
        LostSession {
            registry: Arc::downgrade(registry),
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for LostSession {
    fn drop(&mut self) {
        if let Some(registry) = self.registry.upgrade() {
            registry.known(&self.shared);
        }
    }
}
