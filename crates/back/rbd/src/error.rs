//! Why something of Ceph's failed, in words.

use crate::sys::{Errno, LibraryError};

pub(crate) const EPERM: Errno = 1;
pub(crate) const ENOENT: Errno = 2;
const EIO: Errno = 5;
const EACCES: Errno = 13;
pub(crate) const EBUSY: Errno = 16;
const EEXIST: Errno = 17;
pub(crate) const EINVAL: Errno = 22;
const ENOSPC: Errno = 28;
pub(crate) const EROFS: Errno = 30;
const EOPNOTSUPP: Errno = 95;
const ESHUTDOWN: Errno = 108;
const ETIMEDOUT: Errno = 110;
const EDQUOT: Errno = 122;

/// What an operation on an image ended with means for its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The pool, or the whole cluster, is full, or at its quota.
    Full,
    /// The cluster refuses this client: it is blocklisted. Nothing of this client lands any more.
    Blocklisted,
    /// The image's lock is another's: nothing was done.
    LockLost,
    /// librados gave up waiting: the operation may be done still.
    InDoubt,
    /// A comparison found a difference.
    Differs,
    /// The key does not allow it.
    Refused,
    /// The image is gone.
    Gone,
    /// Anything else.
    Failed,
}

impl Fault {
    /// `EILSEQ`, which is how a compare-and-write says that something differs.
    const EILSEQ: Errno = 84;

    pub(crate) fn of(errno: Errno) -> Self {
        match errno {
            ENOSPC | EDQUOT => Fault::Full,
            ESHUTDOWN => Fault::Blocklisted,
            EROFS => Fault::LockLost,
            ETIMEDOUT => Fault::InDoubt,
            Fault::EILSEQ => Fault::Differs,
            EPERM | EACCES => Fault::Refused,
            ENOENT => Fault::Gone,
            _ => Fault::Failed,
        }
    }
}

/// Why something of Ceph's failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CephError {
    /// A library is missing or too old.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// Someone else has the image's lock.
    #[error("{action}: {owner} has the image's lock, and is alive; an image is written by one")]
    Locked {
        /// What was tried.
        action: String,
        /// Who, with the address.
        owner: String,
    },
    /// Anything else.
    #[error("{action}: {reason}")]
    Failed {
        /// What was tried.
        action: String,
        /// What the library said, and what to do about it.
        reason: String,
        /// The library's errno; 0 where it has none.
        errno: i32,
    },
}

impl CephError {
    /// An error that is none of Ceph's.
    pub(crate) fn other(action: impl Into<String>, reason: impl Into<String>) -> Self {
        CephError::Failed {
            action: action.into(),
            reason: reason.into(),
            errno: 0,
        }
    }

    /// Says what an errno means where a client named `id` tried something.
    pub(crate) fn of(action: impl Into<String>, id: &str) -> impl FnOnce(Errno) -> Self {
        move |errno| CephError::new(action, id, errno)
    }

    /// Makes an error of an errno at once; see [`CephError::of`].
    pub(crate) fn new(action: impl Into<String>, id: &str, errno: Errno) -> Self {
        CephError::Failed {
            action: action.into(),
            reason: reason(id, errno),
            errno,
        }
    }

    /// Makes an error of a connection, where `EOPNOTSUPP` and `ENOENT` say that no key was found.
    pub(crate) fn connecting(action: impl Into<String>, id: &str, errno: Errno) -> Self {
        if errno != EOPNOTSUPP && errno != ENOENT {
            return CephError::new(action, id, errno);
        }
        let reason = format!(
            "no key of client.{id} was found; say keyring=/path/to/keyring, or name the keyring in ceph.conf"
        );
        CephError::other(action, reason)
    }

    fn errno(&self) -> Option<Errno> {
        match self {
            CephError::Failed { errno, .. } => Some(*errno),
            CephError::Library(_) | CephError::Locked { .. } => None,
        }
    }

    /// Whether what was asked for does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.errno() == Some(ENOENT)
    }

    /// Whether what was to be made exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.errno() == Some(EEXIST)
    }

    /// Whether what was to be taken away or changed is in use.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(self, CephError::Locked { .. }) || self.errno() == Some(EBUSY)
    }

    /// Returns whether the cluster refuses the client that it was tried with.
    pub(crate) fn is_blocklisted(&self) -> bool {
        self.errno() == Some(ESHUTDOWN)
    }

    /// Whether trying again later is in vain until someone changes something.
    pub(crate) fn is_final(&self) -> bool {
        let is_final = |errno| matches!(errno, ENOENT | EINVAL | EROFS | EOPNOTSUPP);
        self.errno().is_none_or(is_final)
    }
}

fn reason(id: &str, errno: Errno) -> String {
    let words = match errno {
        EPERM | EACCES => {
            return format!(
                "the cluster refuses the key of client.{id} (errno {errno}); see `ceph auth get client.{id}`: it needs `mon 'profile rbd'` and `osd 'profile rbd pool=...'`, and the key must be the one in the keyring"
            );
        }
        ETIMEDOUT => {
            "the cluster did not answer in time; are its monitors reachable at the addresses in ceph.conf?"
        }
        ESHUTDOWN => "the cluster has blocklisted this client; see `ceph osd blocklist ls`",
        ENOENT => "it does not exist",
        EEXIST => "it exists already",
        EBUSY => "it is in use (open somewhere, or it has snapshots or clones)",
        EROFS => {
            "the image cannot be written to by this client: another client has its lock, or it is not the primary of a mirror"
        }
        ENOSPC => "the pool is full",
        EDQUOT => "the pool is at its quota",
        EIO => "the cluster failed to read or write",
        EINVAL => "Ceph finds the request invalid",
        _ => {
            return format!(
                "{} (errno {errno})",
                std::io::Error::from_raw_os_error(errno)
            );
        }
    };
    format!("{words} (errno {errno})")
}
