//! Who may write to an image: the holder of its lock, with its name stored beside it.
//!
//! The lock is RBD's own (the feature exclusive-lock); it knows its holder by the address of a client, which is another one after
//! each start. So the holder's identity is kept with the image, together with that address: who finds the lock taken knows by it
//! whether that was itself in an earlier life, which it takes over from at once, or someone else, whom it leaves alone for as
//! long as it is alive.

use crate::cluster::{addresses_of, is_same_client};
use crate::error::{CephError, EBUSY, EINVAL, ENOENT, EROFS};
use crate::host::{Identity, Opened};
use crate::options::Options;
use crate::sys::{Errno, FEATURE_DIRTY_CACHE, FEATURE_EXCLUSIVE_LOCK, RawImage};

const EAGAIN: Errno = 11;

/// How often the lock's holder is looked up where it changes in between.
const LOOKS_MAX: u32 = 5;

/// Under which key the holder's identity is kept.
const KEY: &str = "weir.owner";
/// The form of what is kept there.
const VERSION: &str = "1";

/// What is kept of a holder.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    id: String,
    address: String,
    name: String,
}

impl Owner {
    fn to_text(&self) -> String {
        format!("{VERSION} {} {} {}", self.id, self.address, self.name)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ' ');
        if parts.next()? != VERSION {
            return None;
        }
        Some(Owner {
            id: parts.next()?.to_owned(),
            address: parts.next()?.to_owned(),
            name: parts.next()?.to_owned(),
        })
    }
}

/// Takes an image's lock for good, and leaves word of who has it. `former` are the clients that had the image in this process before it is
/// opened again: nobody else is thrown out then, whoever it is. One of them that serves other images is not cut off, and a holder that is no
/// gateway neither: these are waited for.
pub(crate) fn take(
    opened: &Opened,
    options: &Options,
    me: &Identity,
    former: Option<&[String]>,
) -> Result<(), CephError> {
    let (image, client, features) = (&opened.image, &opened.seat.client, opened.shape.features);
    let (name, id) = (&options.name, &options.id);
    let refused = |reason| Err(CephError::other(format!("cannot write to {name}"), reason));
    if features & FEATURE_EXCLUSIVE_LOCK == 0 {
        return refused(format!(
            "the image has no exclusive lock, so that two writers would not notice each other; `rbd feature enable {name} exclusive-lock` gives it one"
        ));
    }
    if features & FEATURE_DIRTY_CACHE != 0 {
        return refused(format!(
            "writes of a client with a write log (rbd_persistent_cache_mode) are in that log still, and not in the image; `rbd persistent-cache flush {name}` on that client's machine brings them there, and `rbd persistent-cache invalidate {name}` gives them up"
        ));
    }
    let action = || format!("cannot take the lock of {name}");
    let failed = |errno: Errno| CephError::new(action(), id, errno);
    let because = |reason| CephError::Failed {
        action: action(),
        reason,
        errno: EBUSY,
    };
    let locked = |owner: String| CephError::Locked {
        action: format!("cannot write to {name}"),
        owner,
    };
    let mut looks = 1;
    loop {
        let holder = image.lock_owner().map_err(failed)?;
        // Looked at after it was seen that nobody has the lock: a gateway that moves the image had it until then.
        if holder.is_none()
            && let Some(owner) = passing(image, me).map_err(failed)?
        {
            let (name, address) = (owner.name, owner.address);
            return Err(locked(format!("gateway {name} (client {address})")));
        }
        let others = |holder: &String| !is_same_client(holder, &client.address);
        let Some(holder) = holder.filter(others) else {
            match image.acquire_lock() {
                Ok(()) => return sign(image, &client.address, me).map_err(failed),
                // Someone was faster.
                Err(EROFS | EBUSY) if looks < LOOKS_MAX => {
                    looks += 1;
                    continue;
                }
                Err(errno) => return Err(failed(errno)),
            }
        };
        let mut clients = former.unwrap_or_default().iter();
        let is_former = clients.any(|client| is_same_client(client, &holder));
        if client.has_beside(&holder) {
            return Err(because(format!(
                "the client of this process at {holder} has not let go of it yet"
            )));
        }
        let kept = image.metadata(KEY).map_err(failed)?;
        let kept = kept.as_deref().and_then(Owner::parse);
        let known = kept.filter(|owner| is_same_client(&owner.address, &holder));
        let watchers = image.watchers().map_err(failed)?;
        let alive = watchers
            .iter()
            .any(|watcher| is_same_client(watcher, &holder));
        if !may_take(known.as_ref(), alive, me, former.map(|_| is_former)) {
            return Err(match known {
                Some(owner) => locked(format!("gateway {} (client {holder})", owner.name)),
                None if former.is_some() => because(format!(
                    "the client at {holder} has it, is alive, and is no gateway (a command such as `rbd resize`, perhaps): it is waited for until that lets go of it"
                )),
                None => locked(format!("the client at {holder}")),
            });
        }
        tracing::info!(image = %name, %holder, "takes the lock over from a client that is gone, and has the cluster refuse it");
        // librbd does so too, unless the image or its pool is configured otherwise.
        client.refuse(&holder)?;
        match image.break_lock(&holder) {
            // librbd's own entry may end earlier, and is the one that counts.
            Ok(()) => {
                client.refuse(&holder)?;
            }
            // It is another's by now, or nobody's.
            Err(ENOENT | EBUSY | EAGAIN) if looks < LOOKS_MAX => looks += 1,
            Err(errno @ EINVAL) => {
                return Err(CephError::Failed {
                    action: action(),
                    reason: format!(
                        "librbd could not have its holder blocklisted; librbd 16 cannot where rbd_blocklist_expire_seconds is configured: `rbd config image rm {name} rbd_blocklist_expire_seconds` (or `rbd config pool rm`) is the way out"
                    ),
                    errno,
                });
            }
            Err(errno) => return Err(failed(errno)),
        }
    }
}

/// Leaves word that the lock is this process's, by way of one of these clients.
fn sign(image: &RawImage, address: &str, me: &Identity) -> Result<(), Errno> {
    let mine = Owner {
        id: me.id.clone(),
        address: address.to_owned(),
        name: me.name.clone(),
    };
    image.set_metadata(KEY, &mine.to_text())
}

/// Leaves word that the lock may be with either client from now on: another gateway that finds it free while it passes from the first to the
/// second sees that the second is alive. Fails where the first does not have the lock: the word of who has it stays.
pub(crate) fn announce(from: &Opened, to: &Opened, me: &Identity) -> Result<(), Errno> {
    let clients = [from, to].map(|opened| &*opened.seat.client.address);
    let holder = from.image.lock_owner()?;
    if !holder.is_some_and(|holder| is_same_client(&holder, clients[0])) {
        return Err(EROFS);
    }
    sign(&from.image, &both(clients), me)
}

/// The addresses of two clients.
fn both(clients: [&str; 2]) -> String {
    let addresses: Vec<_> = clients.into_iter().flat_map(addresses_of).collect();
    addresses.join(",")
}

/// Returns who has an image of which nobody has the lock: another gateway that has it open still, and moves it from one of its clients to
/// another.
fn passing(image: &RawImage, me: &Identity) -> Result<Option<Owner>, Errno> {
    let kept = image.metadata(KEY)?;
    let Some(other) = kept.as_deref().and_then(Owner::parse) else {
        return Ok(None);
    };
    let alive = other.id != me.id && {
        let watchers = image.watchers()?;
        watchers
            .iter()
            .any(|watcher| is_same_client(watcher, &other.address))
    };
    Ok(alive.then_some(other))
}

/// Returns whether a lock is taken over from its holder. `is_former` says whether that is the client that had an image before it is opened
/// again; none where an image is opened for the first time.
fn may_take(known: Option<&Owner>, alive: bool, me: &Identity, is_former: Option<bool>) -> bool {
    let is_me = || known.is_some_and(|owner| owner.id == me.id);
    !alive || is_former.unwrap_or_else(is_me)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(id: &str) -> Owner {
        Owner {
            id: id.to_owned(),
            address: "10.0.0.1:0/5".to_owned(),
            name: "node a, third rack".to_owned(),
        }
    }

    #[test]
    fn what_is_kept_of_an_owner_reads_back() {
        let kept = owner("9f").to_text();
        assert_eq!(Owner::parse(&kept), Some(owner("9f")));
        assert_eq!(Owner::parse("2 a b c"), None);
        assert_eq!(Owner::parse("1 a b"), None);
        assert_eq!(Owner::parse(""), None);
    }

    #[test]
    fn the_owner_of_a_lock_that_passes_is_known_by_both_clients() {
        let own = ["[v2:10.0.0.1:0/5,v1:10.0.0.1:0/5]", "v2:[::1]:0/6"];
        let both = both(own);
        assert_eq!(both, "10.0.0.1:0/5,[::1]:0/6");
        assert!(own.iter().all(|client| is_same_client(client, &both)));
        assert!(!is_same_client("10.0.0.1:0/6", &both));
    }

    #[test]
    fn only_the_dead_and_oneself_are_taken_over() {
        let me = Identity {
            id: "me".to_owned(),
            name: "here".to_owned(),
        };
        let (mine, other) = (owner("me"), owner("other"));
        assert!(may_take(Some(&mine), true, &me, None));
        assert!(may_take(Some(&mine), false, &me, None));
        assert!(may_take(Some(&other), false, &me, None));
        assert!(may_take(None, false, &me, None));
        assert!(!may_take(Some(&other), true, &me, None));
        assert!(!may_take(None, true, &me, None));
        // Opened again: the client before is thrown out, and no other, though it has the same name.
        assert!(may_take(Some(&mine), true, &me, Some(true)));
        assert!(may_take(None, true, &me, Some(true)));
        assert!(!may_take(Some(&mine), true, &me, Some(false)));
    }
}
