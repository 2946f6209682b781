//! Answers from threads that no reactor runs on: one bounded inbox for each reactor.
//!
//! Who hands work to a library with threads of its own reserves a place first, on the reactor. The [`Ticket`] goes with the work,
//! and whichever thread ends it delivers one number there: without a lock, without memory, and with a system call only where
//! the reactor sleeps. A place that is reserved cannot be full, so that delivering never fails and never waits; when all places
//! are reserved, whoever wants one waits, on the reactor.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use crate::Source;
use crate::remote::Shared;

/// Answers that one reactor awaits at once at most.
pub const DELIVERIES_MAX: usize = 16 << 10;

/// The end of the list of places.
const END: u32 = u32::MAX;

/// Takes what is delivered on its reactor.
pub trait Recipient {
    /// One ticket was delivered, or dropped. Called between tasks, never from within a reservation.
    fn delivered(&self, delivery: Delivery);
}

/// What came of one [`Ticket`]. There is exactly one, and only the reactor makes it.
#[derive(Debug)]
pub struct Delivery {
    user: u64,
    value: Option<i64>,
}

impl Delivery {
    /// What the recipient named the ticket.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    /// The number that was delivered; none where the ticket was dropped.
    #[must_use]
    pub fn value(&self) -> Option<i64> {
        self.value
    }
}

/// A place for one answer.
struct Place {
    index: u32,
    inbox: *const Places,
    /// The place that was filled before this one, while both wait to be taken.
    next: AtomicU32,
    value: AtomicI64,
    dropped: AtomicBool,
}

/// The places of one reactor, as every thread sees them.
struct Places {
    places: Box<[Place]>,
    /// The place that was filled last; [`END`] for none.
    last: AtomicU32,
    shared: Arc<Shared>,
}

// SAFETY: all that threads share is atomic, or `Arc<Shared>`, which is theirs to share; the pointer of each place is to what it lies in.
unsafe impl Send for Places {}
// SAFETY: as above.
unsafe impl Sync for Places {}

impl Places {
    fn new(shared: Arc<Shared>) -> Arc<Self> {
        Arc::new_cyclic(|this| Places {
            places: (0..DELIVERIES_MAX as u32)
                .map(|index| Place {
                    index,
                    inbox: this.as_ptr(),
                    next: AtomicU32::new(END),
                    value: AtomicI64::new(0),
                    dropped: AtomicBool::new(false),
                })
                .collect(),
            last: AtomicU32::new(END),
            shared,
        })
    }

    /// Puts a place at the front of the list. Its holder does so once for each reservation.
    fn push(&self, index: u32, value: Option<i64>) {
        let place = &self.places[index as usize];
        place.value.store(value.unwrap_or(0), Ordering::Relaxed);
        place.dropped.store(value.is_none(), Ordering::Relaxed);
        let mut last = self.last.load(Ordering::Relaxed);
        loop {
            place.next.store(last, Ordering::Relaxed);
            // In one order with the reactor's announcement that it sleeps: one of the two sees the other.
            match self
                .last
                .compare_exchange_weak(last, index, Ordering::SeqCst, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => last = now,
            }
        }
        self.shared.rouse();
    }
}

/// A place in a reactor's inbox, to be filled once from any thread. Dropping it unfilled tells the recipient as well.
#[must_use = "dropping it is an answer too"]
pub struct Ticket {
    inbox: Option<Arc<Places>>,
    index: u32,
}

impl Ticket {
    /// Hands the answer over. Never blocks, and may be called where nothing may block or unwind.
    pub fn deliver(mut self, value: i64) {
        if let Some(inbox) = self.inbox.take() {
            inbox.push(self.index, Some(value));
        }
    }

    /// The ticket as a pointer, for a library to carry. It is lost, with its place, where it is not taken back.
    pub fn into_raw(mut self) -> *mut c_void {
        let inbox = self
            .inbox
            .take()
            .expect("a ticket has its inbox until it is used");
        let place: *const Place = &raw const inbox.places[self.index as usize];
        // The place keeps the count that this gives up.
        let _ = Arc::into_raw(inbox);
        place.cast_mut().cast()
    }

    /// Takes back what [`Ticket::into_raw`] gave.
    ///
    /// # Safety
    /// `raw` must come from [`Ticket::into_raw`], and be taken back once.
    pub unsafe fn from_raw(raw: *mut c_void) -> Self {
        // SAFETY: by the caller's promise it points to a place, whose inbox lives by the count that was given up.
        let (inbox, index) = unsafe {
            let place = &*raw.cast_const().cast::<Place>();
            (Arc::from_raw(place.inbox), place.index)
        };
        Ticket {
            inbox: Some(inbox),
            index,
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(inbox) = self.inbox.take() {
            inbox.push(self.index, None);
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Ticket({})", self.index)
    }
}

/// The inbox as its reactor has it.
pub(crate) struct Inbox {
    places: Arc<Places>,
    state: RefCell<State>,
}

struct State {
    /// For whom each place is reserved.
    owners: Vec<Option<(Rc<dyn Recipient>, u64)>>,
    free: Vec<u32>,
    /// Room for the indexes of one look, in the order in which they were filled.
    taken: Vec<u32>,
}

impl Inbox {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Inbox {
            places: Places::new(shared),
            state: RefCell::new(State {
                owners: (0..DELIVERIES_MAX).map(|_| None).collect(),
                free: (0..DELIVERIES_MAX as u32).rev().collect(),
                taken: Vec::with_capacity(DELIVERIES_MAX),
            }),
        }
    }

    pub(crate) fn reserve(&self, recipient: Rc<dyn Recipient>, user: u64) -> Option<Ticket> {
        let state = &mut *self.state.borrow_mut();
        let index = state.free.pop()?;
        state.owners[index as usize] = Some((recipient, user));
        Some(Ticket {
            inbox: Some(Arc::clone(&self.places)),
            index,
        })
    }

    fn hand_over(&self, index: u32) {
        let place = &self.places.places[index as usize];
        let value = place.value.load(Ordering::Relaxed);
        let value = (!place.dropped.load(Ordering::Relaxed)).then_some(value);
        let mut state = self.state.borrow_mut();
        let owner = state.owners[index as usize].take();
        state.free.push(index);
        drop(state);
        // None where the reactor is shutting down.
        if let Some((recipient, user)) = owner {
            recipient.delivered(Delivery { user, value });
        }
    }

    /// Forgets who waits: what is delivered from now on is nobody's.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.borrow_mut();
        let owners: Vec<_> = state.owners.iter_mut().filter_map(Option::take).collect();
        drop(state);
        drop(owners);
    }
}

impl Source for Inbox {
    /// Hands out what was delivered.
    fn poll(&self) -> usize {
        if self.places.last.load(Ordering::Relaxed) == END {
            return 0;
        }
        let mut taken = std::mem::take(&mut self.state.borrow_mut().taken);
        let mut index = self.places.last.swap(END, Ordering::Acquire);
        while index != END {
            taken.push(index);
            index = self.places.places[index as usize]
                .next
                .load(Ordering::Relaxed);
        }
        let count = taken.len();
        for index in taken.drain(..).rev() {
            self.hand_over(index);
        }
        self.state.borrow_mut().taken = taken;
        count
    }

    /// Who delivers wakes a reactor that sleeps: nothing is to be done for that. In one order with what is announced and delivered.
    fn arm(&self) -> bool {
        self.places.last.load(Ordering::SeqCst) == END
    }
}
