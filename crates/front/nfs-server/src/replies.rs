//! Replies to calls of version 3 that must not be done twice. A client that lost its connection sends its call again, from the same
//! address and port and with the same number; it then gets the reply that it missed.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_reactor::SharedSection;

/// Bytes of a reply that is kept at most, with what it is found by: RENAME's has the attributes of two directories.
pub(crate) const REPLY_BYTES_MAX: usize = 512;

/// Facts by which a call is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CallKey {
    pub(crate) peer: SocketAddr,
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    /// Checksum of the whole.
    pub(crate) sum: [u8; 8],
}

/// Outcome of a look at what came before.
pub(crate) enum Before {
    /// The call is new.
    Nothing(Ticket),
    /// It is being done.
    UnderWay,
    /// It was done, with this reply.
    Reply(Arc<[u8]>),
}

/// The replies of all connections.
pub(crate) struct Replies {
    shared: Arc<Shared>,
}

struct Shared {
    /// Calls at most that are known.
    max: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// None: it is under way.
    calls: HashMap<CallKey, Option<Arc<[u8]>>>,
    /// Those that were done, the oldest first.
    done: VecDeque<CallKey>,
}

/// A call that is being done. Where it is dropped without a reply it was never done.
pub(crate) struct Ticket {
    shared: Arc<Shared>,
    key: CallKey,
}

impl Shared {
    fn lock(&self) -> (MutexGuard<'_, Inner>, SharedSection) {
        let section = SharedSection::enter();
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        (inner, section)
    }
}

impl Replies {
    /// Room for the replies of so many calls.
    pub(crate) fn new(max: usize) -> Self {
        let inner = Mutex::default();
        Replies {
            shared: Arc::new(Shared { max, inner }),
        }
    }

    pub(crate) fn begin(&self, key: &CallKey) -> Before {
        let (mut inner, _section) = self.shared.lock();
        match inner.calls.get(key) {
            Some(Some(reply)) => return Before::Reply(Arc::clone(reply)),
            Some(None) => return Before::UnderWay,
            None => {}
        }
        inner.calls.insert(*key, None);
        Before::Nothing(Ticket {
            shared: Arc::clone(&self.shared),
            key: *key,
        })
    }
}

impl Ticket {
    /// The call was done.
    pub(crate) fn answered(self, reply: &[u8]) {
        let (mut inner, _section) = self.shared.lock();
        let inner = &mut *inner;
        if inner.done.len() >= self.shared.max
            && let Some(oldest) = inner.done.pop_front()
        {
            inner.calls.remove(&oldest);
        }
        inner.done.push_back(self.key);
        inner.calls.insert(self.key, Some(reply.into()));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (mut inner, _section) = self.shared.lock();
        if let Some(None) = inner.calls.get(&self.key) {
            inner.calls.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(xid: u32) -> CallKey {
        CallKey {
            peer: "127.0.0.1:900".parse().expect("an address"),
            xid,
            procedure: 12,
            sum: [0; 8],
        }
    }

    fn done(replies: &Replies, xid: u32, reply: &[u8]) {
        match replies.begin(&key(xid)) {
            Before::Nothing(ticket) => ticket.answered(reply),
            _ => panic!("{xid} is new"),
        }
    }

    fn before(replies: &Replies, xid: u32) -> Option<Vec<u8>> {
        match replies.begin(&key(xid)) {
            Before::Reply(reply) => Some(reply.to_vec()),
            Before::Nothing(_) | Before::UnderWay => None,
        }
    }

    #[test]
    fn a_call_is_done_once_and_the_newest_replies_are_kept() {
        let replies = Replies::new(2);
        let Before::Nothing(first) = replies.begin(&key(1)) else {
            panic!("it is new");
        };
        assert!(matches!(replies.begin(&key(1)), Before::UnderWay));
        done(&replies, 2, b"two");
        first.answered(b"one");
        assert_eq!(before(&replies, 1), Some(b"one".to_vec()));
        assert_eq!(before(&replies, 2), Some(b"two".to_vec()));
        done(&replies, 3, b"three");
        assert_eq!(before(&replies, 2), None, "it was done first");
        assert_eq!(before(&replies, 1), Some(b"one".to_vec()));
        assert_eq!(replies.shared.lock().0.calls.len(), 2);
    }

    #[test]
    fn a_call_that_was_not_answered_is_new_again() {
        let replies = Replies::new(2);
        drop(replies.begin(&key(1)));
        assert!(matches!(replies.begin(&key(1)), Before::Nothing(_)));
        let another = CallKey {
            sum: [1; 8],
            ..key(1)
        };
        done(&replies, 1, b"one");
        assert!(matches!(replies.begin(&another), Before::Nothing(_)));
    }
}
