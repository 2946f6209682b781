//! What commands and connections of one reactor hold, and whose turn it is when there is no more.
//!
//! For one reactor: nothing here is shared between threads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::Waker;

use weir_block::Landing;
use weir_memory::{Pool, Segments, segments_len};

/// Bytes of data in flight on one reactor: data that hosts are to send, answers that they have not taken, and what
/// commands copy, or have a volume read, without sending it.
#[derive(Debug)]
pub struct Account {
    used: Cell<u64>,
    limit: u64,
}

impl Account {
    /// An account with so much room, in bytes.
    pub fn new(limit: u64) -> Rc<Self> {
        Rc::new(Account {
            used: Cell::new(0),
            limit,
        })
    }

    /// Bytes in flight now.
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Whether there is no room for another byte.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.used.get() >= self.limit
    }

    /// Tells whether half of it is taken.
    #[inline]
    fn is_half_full(&self) -> bool {
        self.used.get() >= self.limit / 2
    }

    /// Takes `bytes`, where there is room; what is longer than the limit itself has room alone.
    #[inline]
    pub fn take(&self, bytes: u64) -> bool {
        let used = self.used.get();
        if used > 0 && used + bytes > self.limit {
            return false;
        }
        self.used.set(used + bytes);
        true
    }

    /// Takes `bytes` that are there already, room or not.
    #[inline]
    pub fn add(&self, bytes: u64) {
        self.used.set(self.used.get() + bytes);
    }

    /// Gives back what was taken.
    #[inline]
    pub fn give_back(&self, bytes: u64) {
        let used = self.used.get();
        debug_assert!(bytes <= used, "what is given back was taken");
        self.used.set(used.saturating_sub(bytes));
    }
}

/// The reason for which the first of a connection's waiting commands waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    /// That commands of its own queue end.
    Own,
    /// Room in the account of all connections of the reactor.
    Account,
    /// A buffer of the reactor's pool.
    Buffer,
}

/// Data in flight of one connection, as a part of its reactor's [`Account`]. Commands take room. Answers keep it until their send
/// has ended. It knows whether this connection may take what is scarce, and what was lacking last.
#[derive(Debug)]
pub struct Room {
    account: Rc<Account>,
    bytes: u64,
    bytes_max: u64,
    /// Those of `bytes` that no command works with: it may come, or it came and lacks room for the rest of its data.
    set_aside: u64,
    /// Bytes that a command may have when it is alone, though there is no room.
    bytes_alone: u32,
    may_take_buffers: bool,
    may_take_bytes: bool,
    lack: Lack,
    was_granted: bool,
}

impl Room {
    /// Creates a room of at most `bytes_max` bytes within `account`. A connection with nothing in flight beside what is set aside may take
    /// up to `bytes_alone` bytes even when the account is full, so that it always makes progress.
    #[must_use]
    pub fn new(account: &Rc<Account>, bytes_max: u64, bytes_alone: u32) -> Self {
        Room {
            account: Rc::clone(account),
            bytes: 0,
            bytes_max,
            set_aside: 0,
            bytes_alone,
            may_take_buffers: true,
            may_take_bytes: true,
            lack: Lack::Own,
            was_granted: false,
        }
    }

    /// Sets whether it may take buffers, and room in the account. It may not while a connection waits that came before it.
    pub fn set_turns(&mut self, buffers: bool, bytes: bool) {
        self.may_take_buffers = buffers;
        self.may_take_bytes = bytes;
    }

    /// Takes bytes for a command, where there is room.
    #[inline]
    pub fn take(&mut self, bytes: u64) -> bool {
        let fits = self.bytes + bytes <= self.bytes_max;
        if fits && self.may_take_bytes && self.account.take(bytes) {
            self.bytes += bytes;
            return true;
        }
        self.take_alone(bytes, fits)
    }

    /// Takes bytes that only a command that is alone may have.
    #[cold]
    fn take_alone(&mut self, bytes: u64, fits: bool) -> bool {
        let is_alone = self.bytes == self.set_aside;
        if !fits && !is_alone {
            self.lack = Lack::Own;
            return false;
        }
        let is_taken = !fits && self.may_take_bytes && self.account.take(bytes);
        if !is_taken {
            if !is_alone || bytes > u64::from(self.bytes_alone) {
                self.lack = Lack::Account;
                return false;
            }
            self.account.add(bytes);
        }
        self.bytes += bytes;
        true
    }

    /// Takes bytes that are there already, room or not.
    pub fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.account.add(bytes);
    }

    /// Sets bytes aside for a command that may come, where there is room. It stops where half of the account is taken, so that those
    /// that came find room.
    #[must_use]
    pub fn set_aside(&mut self, bytes: u64) -> bool {
        let has_room = self.bytes + bytes <= self.bytes_max
            && self.may_take_bytes
            && !self.account.is_half_full()
            && self.account.take(bytes);
        if has_room {
            self.bytes += bytes;
            self.set_aside += bytes;
        }
        has_room
    }

    /// Sets aside bytes that are there already, room or not, of a command that may lack room for more.
    pub fn add_aside(&mut self, bytes: u64) {
        self.add(bytes);
        self.set_aside += bytes;
    }

    /// Counts bytes that were set aside as taken: their command has all its room now, or ends.
    pub fn use_aside(&mut self, bytes: u64) {
        debug_assert!(bytes <= self.set_aside, "what is used was set aside");
        self.set_aside = self.set_aside.saturating_sub(bytes);
    }

    /// The command came, or will not: what was set aside for it is free.
    pub fn free(&mut self, bytes: u64) {
        self.use_aside(bytes);
        self.give_back(bytes);
    }

    /// Gives back what was taken.
    #[inline]
    pub fn give_back(&mut self, bytes: u64) {
        debug_assert!(
            bytes <= self.bytes - self.set_aside,
            "what is given back was taken"
        );
        self.bytes = self.bytes.saturating_sub(bytes);
        self.account.give_back(bytes);
    }

    /// Tells whether it may take buffers now; if not, that is what it lacks.
    #[inline]
    pub fn may_take_buffers(&mut self) -> bool {
        if !self.may_take_buffers {
            self.lack = Lack::Buffer;
        }
        self.may_take_buffers
    }

    /// A place for so many bytes: the one that their volume wishes, else in the pool. None: there is none now.
    ///
    /// # Panics
    /// When the volume's is not as long.
    #[inline(always)]
    pub fn place(&mut self, landing: Landing, bytes: usize, pool: &Pool) -> Option<Segments> {
        match landing {
            // Most often the volume has no wish.
            Landing::Anywhere => {
                if let Ok(segment) = pool.segment(bytes) {
                    let mut segments = Segments::new();
                    segments.push(segment);
                    return Some(segments);
                }
            }
            Landing::Ready(segments) => {
                let length = segments_len(&segments);
                assert_eq!(length, bytes, "a landing is as long as its range");
                return Some(segments);
            }
            Landing::Wait => {}
        }
        self.lack = Lack::Buffer;
        None
    }

    /// A command that waited, or one whose data comes with it, had what it lacked.
    #[inline]
    pub fn grant(&mut self) {
        self.was_granted = true;
    }

    /// Tells whether one had since the last call.
    pub(crate) fn take_grant(&mut self) -> bool {
        std::mem::take(&mut self.was_granted)
    }

    /// What was lacking last.
    pub(crate) fn lack(&self) -> Lack {
        self.lack
    }

    /// Tells whether there is no room for another byte beside what it has.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.bytes > 0 && (self.bytes >= self.bytes_max || self.account.is_full())
    }

    /// Tells whether [`Room::is_full`] holds only because of other connections. They wake nobody when they give room back.
    #[must_use]
    pub fn is_full_of_others(&self) -> bool {
        self.bytes > 0 && self.bytes < self.bytes_max && self.account.is_full()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

/// Connections that wait for something of which their reactor has no more, in order. While one waits no other takes any: else
/// one whose commands take whatever comes back would have it all for good. Each is known by its number among the users of the volume
/// queues ([`crate::Entry::owner`]).
#[derive(Default)]
pub(crate) struct Turns {
    waiting: RefCell<VecDeque<(u32, Waker)>>,
}

impl Turns {
    /// Whether connection `owner` may take some.
    #[inline]
    pub(crate) fn is_turn_of(&self, owner: u32) -> bool {
        let waiting = self.waiting.borrow();
        waiting.front().is_none_or(|(first, _)| *first == owner)
    }

    /// Has connection `owner`, which does not wait yet, wait behind the others.
    pub(crate) fn wait(&self, owner: u32, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        debug_assert!(waiting.iter().all(|(other, _)| *other != owner));
        waiting.push_back((owner, waker.clone()));
    }

    /// Connection `owner` waits no longer; the next one has its turn.
    pub(crate) fn leave(&self, owner: u32) {
        let mut waiting = self.waiting.borrow_mut();
        let Some(index) = waiting.iter().position(|(other, _)| *other == owner) else {
            return;
        };
        waiting.remove(index);
        if index == 0
            && let Some((_, next)) = waiting.front()
        {
            next.wake_by_ref();
        }
    }

    /// Something may have come back: whose turn it is looks, unless that is connection `owner` itself.
    #[inline]
    pub(crate) fn look(&self, owner: u32) {
        if let Some((first, waker)) = self.waiting.borrow().front()
            && *first != owner
        {
            waker.wake_by_ref();
        }
    }
}

/// Bytes that one connection keeps of its input outside of all pools, as part of what all of its reactor keep.
#[derive(Debug)]
pub(crate) struct Kept {
    all: Rc<Cell<usize>>,
    bytes: usize,
}

impl Kept {
    pub(crate) fn none(all: &Rc<Cell<usize>>) -> Self {
        Kept {
            all: Rc::clone(all),
            bytes: 0,
        }
    }

    /// It keeps so many from now on.
    pub(crate) fn set(&mut self, bytes: usize) {
        self.all.set(self.all.get() - self.bytes + bytes);
        self.bytes = bytes;
    }

    /// What all connections of the reactor keep.
    pub(crate) fn of_all(&self) -> usize {
        self.all.get()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_not_overdrawn_but_for_what_is_alone() {
        let account = Account::new(100);
        assert!(account.take(60) && account.take(40));
        assert!(account.is_full() && !account.take(1));
        account.give_back(100);
        assert!(account.take(150), "alone");
        assert!(!account.take(1));
        account.give_back(150);
        account.add(120);
        assert_eq!(account.used(), 120);
    }

    #[test]
    fn what_is_set_aside_holds_nothing_up() {
        let account = Account::new(300);
        let mut room = Room::new(&account, 100, 100);
        assert!(room.set_aside(40) && room.set_aside(40) && !room.set_aside(40));
        assert!(room.take(100), "alone");
        assert!(!room.take(1));
        assert!(!room.set_aside(1), "half of the account is taken");
        room.free(40);
        room.give_back(100);
        assert_eq!(account.used(), 40);
        room.add_aside(60);
        assert!(room.take(40), "alone");
        room.use_aside(60);
        assert!(!room.take(1));
        room.give_back(100);
        account.add(260);
        assert!(room.take(100), "alone, in a full account");
        drop(room);
        assert_eq!(account.used(), 260);
    }

    #[test]
    fn turns_come_in_order() {
        let turns = Turns::default();
        assert!(turns.is_turn_of(1) && turns.is_turn_of(2));
        turns.wait(1, Waker::noop());
        turns.wait(2, Waker::noop());
        assert!(turns.is_turn_of(1) && !turns.is_turn_of(2) && !turns.is_turn_of(3));
        turns.leave(3);
        turns.leave(1);
        assert!(turns.is_turn_of(2) && !turns.is_turn_of(1));
        turns.leave(2);
        assert!(turns.is_turn_of(3));
    }

    #[test]
    fn what_is_kept_is_counted_until_its_end() {
        let all = Rc::default();
        let mut one = Kept::none(&all);
        let mut other = Kept::none(&all);
        one.set(5);
        other.set(7);
        one.set(6);
        assert_eq!(one.of_all(), 13);
        drop(one);
        assert_eq!(all.get(), 7);
    }
}
