//! Sessions and their slots: each request is done once (RFC 8881, section 2.10.6).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_nfs::operation::Sequence;
use weir_nfs::types::ChannelAttributes;
use weir_nfs::{SessionId, Status};
use weir_reactor::Instant;

/// A session. Its slots are all that the requests of different connections touch in common: a lock each, for which nobody waits as
/// long as the client keeps to one request a slot.
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) client: u64,
    pub(crate) fore: ChannelAttributes,
    slots: Box<[Mutex<Slot>]>,
    is_ended: AtomicBool,
    /// Time at which its client was heard last; the client's sessions share it.
    heard: Arc<AtomicU64>,
}

/// Bytes of a slot without a reply.
pub(crate) const SLOT_BYTES: usize = size_of::<Mutex<Slot>>();

#[derive(Default)]
struct Slot {
    sequence: u32,
    is_busy: bool,
    reply: Option<Kept>,
}

/// Outcome of a request.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    /// Its reply from the COMPOUND's status on.
    Reply(Arc<[u8]>),
    /// The client did not ask for it to be kept.
    NotKept,
}

/// Kinds of requests that a SEQUENCE begins.
#[derive(Debug)]
pub(crate) enum Begun {
    /// A request that is new.
    New,
    /// One that was done.
    Again(Kept),
}

impl Session {
    pub(crate) fn new(
        id: SessionId,
        client: u64,
        fore: ChannelAttributes,
        heard: Arc<AtomicU64>,
    ) -> Arc<Self> {
        let slots = (0..fore.slots).map(|_| Mutex::default()).collect();
        Arc::new(Session {
            id,
            client,
            fore,
            slots,
            is_ended: AtomicBool::new(false),
            heard,
        })
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }

    pub(crate) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    fn slot(&self, number: u32) -> MutexGuard<'_, Slot> {
        let slot = &self.slots[number as usize];
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of the last slot.
    pub(crate) fn highest(&self) -> u32 {
        self.slots.len() as u32 - 1
    }

    /// Begins a request.
    pub(crate) fn begin(&self, request: &Sequence, now: Instant) -> Result<Begun, Status> {
        if self.is_ended() {
            return Err(Status::Badsession);
        }
        if request.slot > self.highest() {
            return Err(Status::Badslot);
        }
        if request.highest > self.highest() {
            return Err(Status::BadHighSlot);
        }
        self.heard.store(now.as_nanos(), Ordering::Relaxed);
        let mut slot = self.slot(request.slot);
        if request.sequence == slot.sequence {
            return match &slot.reply {
                _ if slot.is_busy => Err(Status::Delay),
                Some(kept) => Ok(Begun::Again(kept.clone())),
                None => Err(Status::SeqMisordered),
            };
        }
        if request.sequence != slot.sequence.wrapping_add(1) {
            return Err(Status::SeqMisordered);
        }
        if slot.is_busy {
            return Err(Status::Delay);
        }
        *slot = Slot {
            sequence: request.sequence,
            is_busy: true,
            reply: None,
        };
        Ok(Begun::New)
    }

    /// The request of a slot is done.
    pub(crate) fn ended(&self, slot: u32, kept: Kept, now: Instant) {
        self.heard.store(now.as_nanos(), Ordering::Relaxed);
        let mut slot = self.slot(slot);
        slot.is_busy = false;
        slot.reply = Some(kept);
    }

    /// Tells whether a request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        (0..=self.highest()).any(|number| self.slot(number).is_busy)
    }
}
