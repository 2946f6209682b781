//! The thread that looks whether images are watched by this process still, and locked.
//!
//! librbd watches each image that is open for writing: that is how it hears that someone else resizes it, and how other gateways know that
//! its holder is alive. Where a watch is lost librbd takes it up again by itself, so that nothing is said before several checks have missed
//! it. What is written is safe all the same: by the lock, and because who takes it over has this client refused first.
//!
//! There is one such thread while an image is open for writing. Every [`WatchLimits::check`] it has the images of each client looked at,
//! one after another, in a [`Round`] on a thread of that client's own. librbd answers such questions on the thread that asks, for which it may
//! wait for as long as a placement group is silent: where a round stands at one image from one check to the next, another goes on with
//! those behind it, and what it stands at is not looked at again before it has come back. Of one client so many rounds may stand still at
//! once, [`ROUNDS_MAX`], and no more begin. What the cluster does not answer says nothing of the watch. A round is its client's: an image
//! that has another when its turn comes is that one's to look at.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use weir_reactor::linux::start_thread;
use weir_volume::parts::lock;

use crate::auto::Reason;
use crate::cluster::{Client, is_same_client};
use crate::error::{EBUSY, EINVAL, Fault};
use crate::host::{RbdHost, attend, by_client};
use crate::sys::{Errno, RawImage};
use crate::threads;
use crate::volume::{End, Life, Phase, Shared};

/// What is wrong with an image while its watch is lost.
const TROUBLE: &str = "the image's watch is lost: that someone else resizes it is not seen, and other gateways take this one for dead";
/// What is wrong with an image while too many of its client are silent.
pub(crate) const UNCHECKED: &str = "the image's watch and lock are not looked at: of too many images of its client the cluster answers nothing";
/// Rounds of one client at once, at most: all but the last stand still, each at another image.
const ROUNDS_MAX: usize = 8;
/// How many checks one after another must find that the lock is not this client's, or be refused, before that ends a life.
const ENDS_AFTER: u32 = 2;

/// When an image's watch counts as lost, and what is done about it then.
#[derive(Debug, Clone, Copy)]
pub struct WatchLimits {
    /// Between two checks of an image.
    pub check: Duration,
    /// How many checks one after another must miss the watch until that is told.
    pub told_after: u32,
    /// How many until the image moves to another client.
    pub moved_after: u32,
}

impl Default for WatchLimits {
    /// As documented for users.
    fn default() -> Self {
        WatchLimits {
            check: Duration::from_secs(10),
            told_after: 2,
            moved_after: 6,
        }
    }
}

/// What a check has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    watch: bool,
    lock: Holder,
}

/// Who has an image's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holder {
    Own,
    Other,
    Nobody,
}

/// What was found of an image, check by check.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The life that all of this is about.
    life: u64,
    /// When it was judged the last time, in ticks.
    judged_at: Option<u64>,
    /// The life that is being looked at; none is 0.
    under_way: u64,
    /// The watch and the lock were found when the life began, or by a check, so that to miss one of them says something.
    found: bool,
    /// It was told that the watch is lost.
    told: bool,
    /// How many checks one after another have missed the watch, or the lock, or were refused.
    unwatched: u32,
    unlocked: u32,
    refused: u32,
}

/// What follows from a check.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    /// The watch is lost.
    Lost,
    /// The watch is back.
    Back,
    /// It does not come back.
    Move,
    End(End),
}

impl Watched {
    /// What is wrong with the image in this life.
    pub(crate) fn trouble(&self, life: u64) -> Option<&'static str> {
        (self.told && self.life == life).then_some(TROUBLE)
    }

    /// Whether a life may be looked at. Where rounds stand still two looks may follow each other at once, and what is amiss for a moment is
    /// not to be seen by both. Rounds are not so regular that it could be a whole interval.
    fn is_due(&self, life: u64, now: Option<u64>, limits: &WatchLimits) -> bool {
        let judged_at = self.judged_at.filter(|_| self.life == life);
        let since = judged_at.zip(now).map(|(at, now)| now.saturating_sub(at));
        since.is_none_or(|ticks| threads::time_of(ticks) >= limits.check / 2)
    }

    /// `was_held`: its watch and its lock were seen to be its client's when the life began.
    fn judge(
        &mut self,
        (life, was_held): (u64, bool),
        found: Result<Found, Errno>,
        limits: &WatchLimits,
    ) -> Verdict {
        if self.life != life {
            *self = Watched {
                life,
                found: was_held,
                ..Watched::default()
            };
        }
        let Found { watch, lock } = match found {
            Ok(found) => found,
            Err(errno) if Fault::of(errno) == Fault::Blocklisted => {
                self.refused += 1;
                return if self.refused >= ENDS_AFTER {
                    Verdict::End(End::Blocklisted)
                } else {
                    Verdict::Nothing
                };
            }
            // The cluster has not told, and librbd may have been as much in the dark: what it had put down it takes up again now.
            Err(_) => {
                self.unlocked = 0;
                return Verdict::Nothing;
            }
        };
        self.refused = 0;
        self.found |= watch && lock == Holder::Own;
        // librbd puts down the lock of an image that it cannot watch, writes nothing meanwhile, and takes both up again.
        let put_down = lock == Holder::Nobody && !watch;
        let is_unlocked = lock != Holder::Own && !put_down;
        self.unlocked = if is_unlocked { self.unlocked + 1 } else { 0 };
        if self.found && self.unlocked >= ENDS_AFTER {
            return Verdict::End(End::LockLost);
        }
        if watch {
            self.unwatched = 0;
            return if std::mem::take(&mut self.told) {
                Verdict::Back
            } else {
                Verdict::Nothing
            };
        }
        self.unwatched += 1;
        if !self.told && self.unwatched >= limits.told_after {
            self.told = true;
            return Verdict::Lost;
        }
        // What does not come about is tried again after as long.
        if self.found && self.unwatched.is_multiple_of(limits.moved_after) {
            Verdict::Move
        } else {
            Verdict::Nothing
        }
    }
}

/// Has the images of a host that are open for writing checked, if they are not yet.
pub(crate) fn begin(host: &Arc<RbdHost>) {
    let (limits, mut rounds) = (host.watch_limits, Rounds::default());
    attend(
        host,
        |host| &host.checking,
        "weir-rbd-watch",
        is_for_writing,
        limits.check,
        move |_, volumes, pause| {
            rounds.go_on(volumes, limits);
            pause
        },
    );
}

/// The rounds that there are, and the clients of which as many stand still as may.
#[derive(Default)]
struct Rounds {
    rounds: Vec<Round>,
    full: BTreeSet<String>,
}

impl Rounds {
    /// Begins the rounds that are due.
    fn go_on(&mut self, volumes: &[Arc<Shared>], limits: WatchLimits) {
        self.rounds.retain(|round| !round.thread.is_finished());
        let mut now_full = BTreeSet::new();
        for (client, images) in by_client(volumes, is_for_writing) {
            let of_client = self
                .rounds
                .iter_mut()
                .filter(|round| round.client == client);
            // Each is asked, as that counts.
            let goes_on: Vec<bool> = of_client.map(Round::goes_on).collect();
            if goes_on.contains(&true) {
                continue;
            }
            if goes_on.len() >= ROUNDS_MAX {
                if !self.full.contains(&client) {
                    tell_full(&client, &images);
                }
                now_full.insert(client);
                continue;
            }
            match Round::begin(&client, images, limits) {
                Ok(round) => self.rounds.push(round),
                // The next time, perhaps.
                Err(error) => {
                    tracing::debug!(%error, client, "no thread can be had to check images");
                }
            }
        }
        for client in self.full.difference(&now_full) {
            tracing::info!(client, "the images of this client are looked at again");
        }
        self.full = now_full;
        for volume in volumes.iter().filter(|volume| is_for_writing(volume)) {
            let client = volume.client();
            let is_unchecked = client.is_some_and(|client| self.full.contains(&client.address));
            volume.unchecked.store(is_unchecked, Relaxed);
        }
    }
}

/// Says that no more images of a client are looked at, as nothing is answered of these.
fn tell_full(client: &str, images: &[Arc<Shared>]) {
    let silent = images.iter().filter_map(|volume| {
        let life = volume.serving()?;
        let is_silent = lock(&volume.watched).under_way == life.number;
        is_silent.then(|| volume.options.name.to_string())
    });
    let silent: Vec<_> = silent.collect();
    tracing::warn!(
        client,
        silent = silent.join(", "),
        "the cluster answers nothing of so many images that no other of their client is looked at before it does: that a watch or a lock is lost is not seen"
    );
}

/// Checks of the images of one client, one after another.
struct Round {
    client: String,
    thread: JoinHandle<()>,
    /// How many checks have begun.
    begun: Arc<AtomicU64>,
    /// Value of `begun` when it was last seen.
    seen: u64,
}

impl Round {
    /// Begins with the images that were not looked at for longest.
    fn begin(
        client: &str,
        mut images: Vec<Arc<Shared>>,
        limits: WatchLimits,
    ) -> std::io::Result<Round> {
        images.sort_by_cached_key(|volume| lock(&volume.watched).judged_at);
        let images: Vec<_> = images.iter().map(Arc::downgrade).collect();
        let begun = Arc::new(AtomicU64::new(0));
        let (count, of) = (Arc::clone(&begun), client.to_owned());
        let thread = start_thread("weir-rbd-check", move || {
            for volume in images {
                if let Some(life) = due(&volume, &of, &limits) {
                    count.fetch_add(1, Relaxed);
                    check(&volume, &life, &limits);
                }
            }
        })?;
        Ok(Round {
            client: client.to_owned(),
            thread,
            begun,
            // Its first, at which it may stand for as long as any.
            seen: 1,
        })
    }

    /// Returns whether it has begun another check since this was last asked.
    fn goes_on(&mut self) -> bool {
        let begun = self.begun.load(Relaxed);
        std::mem::replace(&mut self.seen, begun) != begun
    }
}

fn is_for_writing(volume: &Shared) -> bool {
    !volume.read_only && lock(&volume.state).phase != Phase::Closed
}

/// The life of an image that is to be checked: the image is a client's still, its time has come, and no other round stands at it.
fn due(volume: &Weak<Shared>, client: &str, limits: &WatchLimits) -> Option<Arc<Life>> {
    let volume = volume.upgrade()?;
    let life = volume.serving()?;
    let mut watched = lock(&volume.watched);
    let is_due = watched.under_way != life.number
        && watched.is_due(life.number, threads::now(), limits)
        && life.client().address == client;
    if is_due {
        watched.under_way = life.number;
    }
    drop(watched);
    is_due.then_some(life)
}

/// Checks an image. Blocks until the cluster has answered; the volume may be closed meanwhile.
fn check(volume: &Weak<Shared>, life: &Arc<Life>, limits: &WatchLimits) {
    let found = look(life.image(), life.client());
    let Some(volume) = volume.upgrade() else {
        return;
    };
    volume.checked(life, found, limits);
    let mut watched = lock(&volume.watched);
    if watched.under_way == life.number {
        watched.under_way = 0;
    }
}

fn look(image: &RawImage, client: &Client) -> Result<Found, Errno> {
    let own = &client.address;
    let is_own = |address: &String| is_same_client(address, own);
    let watch = image.watchers()?.iter().any(is_own);
    let lock = match image.lock_owner() {
        Ok(Some(owner)) if is_own(&owner) => Holder::Own,
        Ok(None) => Holder::Nobody,
        // Locked by hand, or no longer an image that is locked: neither protects what this client writes.
        Ok(Some(_)) | Err(EBUSY | EINVAL) => Holder::Other,
        Err(errno) => return Err(errno),
    };
    Ok(Found { watch, lock })
}

impl Shared {
    /// A life was checked. What it was like while it moved, or before it ended, says nothing of what comes.
    fn checked(
        self: &Arc<Self>,
        life: &Arc<Life>,
        found: Result<Found, Errno>,
        limits: &WatchLimits,
    ) {
        let serves = self.serving().is_some_and(|now| now.number == life.number);
        if !serves {
            return;
        }
        let began = (life.number, life.opened().watched);
        let verdict = {
            let mut watched = lock(&self.watched);
            let verdict = watched.judge(began, found, limits);
            watched.judged_at = threads::now();
            verdict
        };
        match verdict {
            Verdict::Nothing => {}
            Verdict::Lost => {
                tracing::warn!(volume = %self.name, client = %life.client().address, "{TROUBLE}; librbd tries to take it up again");
            }
            Verdict::Back => {
                tracing::info!(volume = %self.name, "the image is watched again");
                // Nobody has told of what changed meanwhile.
                self.look_at_size();
            }
            Verdict::Move => self.leave_unwatched(),
            Verdict::End(end) => self.end_life(life, end),
        }
    }

    /// Moves to another client, where that takes nothing from anyone: neighbours are not cut off for a watch.
    fn leave_unwatched(self: &Arc<Self>) {
        // Without a clock nothing is held off for as long as it should be.
        if threads::now().is_some_and(|now| self.may_move(now)) {
            self.begin_move(Reason::Unwatched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WatchLimits = WatchLimits {
        check: Duration::from_secs(1),
        told_after: 2,
        moved_after: 4,
    };
    const BOTH: Result<Found, Errno> = found(true, Holder::Own);
    const UNWATCHED: Result<Found, Errno> = found(false, Holder::Own);
    const UNLOCKED: Result<Found, Errno> = found(true, Holder::Nobody);
    const TAKEN: Result<Found, Errno> = found(true, Holder::Other);
    const NEITHER: Result<Found, Errno> = found(false, Holder::Nobody);
    const TAKEN_UNWATCHED: Result<Found, Errno> = found(false, Holder::Other);
    const REFUSED: Result<Found, Errno> = Err(108);
    const UNTOLD: Result<Found, Errno> = Err(5);

    const fn found(watch: bool, lock: Holder) -> Result<Found, Errno> {
        Ok(Found { watch, lock })
    }

    /// Judges checks of one life, and says what the last comes to.
    #[track_caller]
    fn judged(watched: &mut Watched, life: u64, checks: &[Result<Found, Errno>]) -> Verdict {
        let (last, before) = checks.split_last().unwrap();
        for check in before {
            let verdict = watched.judge((life, false), *check, &LIMITS);
            assert_eq!(verdict, Verdict::Nothing);
        }
        watched.judge((life, false), *last, &LIMITS)
    }

    #[test]
    fn a_watch_is_lost_when_checks_one_after_another_miss_it() {
        let mut watched = Watched::default();
        let once = [BOTH, UNWATCHED, BOTH, UNWATCHED, UNTOLD];
        assert_eq!(judged(&mut watched, 1, &once), Verdict::Nothing);
        assert_eq!(watched.trouble(1), None);
        assert_eq!(judged(&mut watched, 1, &[UNWATCHED]), Verdict::Lost);
        assert_eq!(watched.trouble(1), Some(TROUBLE));
        assert_eq!(watched.trouble(2), None, "it is another life's");
        assert_eq!(
            judged(&mut watched, 1, &[UNTOLD, UNWATCHED, UNWATCHED]),
            Verdict::Move
        );
        let again = [UNWATCHED; 4];
        assert_eq!(judged(&mut watched, 1, &again), Verdict::Move);
        assert_eq!(judged(&mut watched, 1, &[BOTH]), Verdict::Back);
        assert_eq!(watched.trouble(1), None);
        assert_eq!(judged(&mut watched, 1, &[BOTH]), Verdict::Nothing);
    }

    #[test]
    fn an_image_whose_watch_was_never_found_stays_where_it_is() {
        let mut watched = Watched::default();
        assert_eq!(judged(&mut watched, 1, &[UNWATCHED; 2]), Verdict::Lost);
        assert_eq!(judged(&mut watched, 1, &[UNWATCHED; 8]), Verdict::Nothing);
        // Nor does its life end for a lock that was never found.
        let mut watched = Watched::default();
        assert_eq!(judged(&mut watched, 1, &[UNLOCKED; 8]), Verdict::Nothing);
    }

    #[test]
    fn a_life_is_not_looked_at_twice_at_once() {
        let mut watched = Watched::default();
        assert!(watched.is_due(1, Some(100), &LIMITS));
        assert_eq!(judged(&mut watched, 1, &[BOTH]), Verdict::Nothing);
        watched.judged_at = Some(100);
        assert!(!watched.is_due(1, Some(100), &LIMITS));
        assert!(!watched.is_due(1, Some(149), &LIMITS));
        assert!(watched.is_due(1, Some(150), &LIMITS));
        assert!(watched.is_due(2, Some(101), &LIMITS), "it is another");
        assert!(watched.is_due(1, None, &LIMITS), "there is no clock");
    }

    #[test]
    fn what_was_found_when_a_life_began_counts_as_found() {
        let mut watched = Watched::default();
        let mut judge = |life, check| watched.judge((life, true), check, &LIMITS);
        assert_eq!(judge(1, UNWATCHED), Verdict::Nothing);
        assert_eq!(judge(1, UNWATCHED), Verdict::Lost);
        assert_eq!(judge(1, UNWATCHED), Verdict::Nothing);
        assert_eq!(judge(1, UNWATCHED), Verdict::Move);
        assert_eq!(judge(2, TAKEN_UNWATCHED), Verdict::Nothing);
        assert_eq!(judge(2, TAKEN_UNWATCHED), Verdict::End(End::LockLost));
    }

    /// As librbd does it while the watch cannot be taken up again: writes wait, and are as safe as before.
    #[test]
    fn a_lock_that_was_put_down_with_the_watch_ends_no_life() {
        let mut watched = Watched::default();
        assert_eq!(
            judged(&mut watched, 1, &[BOTH, NEITHER, NEITHER]),
            Verdict::Lost
        );
        assert_eq!(judged(&mut watched, 1, &[NEITHER, NEITHER]), Verdict::Move);
        assert_eq!(judged(&mut watched, 1, &[BOTH]), Verdict::Back);
        assert_eq!(
            judged(&mut watched, 1, &[BOTH, NEITHER, UNLOCKED]),
            Verdict::Nothing
        );
    }

    #[test]
    fn a_lock_that_is_lost_and_a_client_that_is_refused_end_a_life() {
        let lost = Verdict::End(End::LockLost);
        let mut watched = Watched::default();
        let once = [BOTH, UNLOCKED, BOTH, UNLOCKED, UNTOLD, UNLOCKED, UNLOCKED];
        assert_eq!(judged(&mut watched, 1, &once), lost);
        let mut watched = Watched::default();
        assert_eq!(judged(&mut watched, 1, &[BOTH, TAKEN, TAKEN]), lost);
        let mut watched = Watched::default();
        let without = [BOTH, TAKEN_UNWATCHED, TAKEN];
        assert_eq!(judged(&mut watched, 1, &without), lost);
        let refused = Verdict::End(End::Blocklisted);
        let once = [BOTH, REFUSED, BOTH, REFUSED, UNTOLD, REFUSED];
        assert_eq!(judged(&mut watched, 2, &once), refused);
        // What was found of a life says nothing of the next.
        assert_eq!(judged(&mut watched, 3, &[REFUSED]), Verdict::Nothing);
    }
}
