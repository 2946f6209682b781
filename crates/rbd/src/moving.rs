//! How a volume moves from the client that it shares to one of its own: nothing is lost by it, and nothing cut off.
//!
//! A volume with a volatile cache does not move: it has no way to tell its hosts of a write that was answered and then failed.
//!
//! On a thread of its own, step by step:
//!
//! 1. A client is connected, and the image opened on it. The volume serves on; where this fails, nothing has happened.
//! 2. The volume is `moving`: queues submit nothing, and requests wait. What librbd has of the old life ends, for as long as
//!    [`DRAIN_TIME_MAX`] at most; then the move is called off, and queues go on with the old life.
//! 3. The old client gives the lock up, the new one takes it, and the word of who has it is changed. Where
//!    that fails, the old client takes the lock back, and queues go on with the old life.
//! 4. A new life begins, on the new client, and queues go on with that. The old image is closed in the background.
//!
//! What else may happen meanwhile:
//!
//! - The old life ends (a write times out, its client is refused, its lock is lost): from step 2 on the volume is `fencing` then, and the
//!   move ends where it is; the new client is let go. Such an end comes from an operation of the old life, so that none comes in steps 3 and 4;
//!   what is found of it without any (`watches`) ends it only while it serves.
//! - The volume is closed: it is `closed` then, and the move likewise ends where it is.
//! - It is resized: one waits for the other. A resize that is under way calls the move off, as it may take long.
//! - A queue is opened: it begins paused.
//! - A fence: requests that wait count as any others.
//! - The lock can be had by neither client, or step 3 takes longer than `fence_timeout`: the volume is `reopening` then, on another client
//!   of its own, and goes on if nobody else has the lock. Nothing of it is in flight, so that no client is cut off, and neighbours notice
//!   nothing. Step 3 is on a thread of its own, which lets go of both images when it comes back; until then nobody waits for it.
//! - The process is killed: the image has the lock of a dead client, whose name is known or becomes free with its watch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, TryLockError, mpsc};
use std::time::Duration;

use weir_volume::parts::{WhenAll, lock};

use crate::auto::Reason;
use crate::cluster::is_same_client;
use crate::error::CephError;
use crate::host::{Claim, Held, Identity, Opened, in_background, try_in_background};
use crate::owner::{self, NotPassed, Side};
use crate::threads;
use crate::volume::{Life, Message, Phase, Shared};

/// How long requests wait at most for what is in flight to end, before a move is called off. Half of a request's time-out where that is
/// less, so that none times out by it.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// For how long a volume, or all that are like it where no client could be had, are left where they are after a move that was called
/// off, in ticks: ten minutes.
const NOT_AGAIN_TICKS: u64 = 10 * 60 * 100;

const WHY_LOCK_LOST: &str =
    "the image's lock was lost while it was passed on to a client of its own";
const WHY_LOCK_OVERDUE: &str = "the image's lock was not passed on to a client of its own in time";

/// Why a volume has not moved. It serves on where it was, unless that says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotMoved {
    /// It has no image open, or is closed, or is opened again just now.
    #[error("the volume is not serving")]
    NotServing,
    /// It moves already, or is being resized.
    #[error("the volume moves already, or is being resized")]
    Busy,
    /// Its client may have what was answered and is not durable: a flush on the way would take the error that hosts are to see.
    #[error(
        "the volume's cache may hold writes that are not durable, so that it stays on its client"
    )]
    VolatileCache,
    /// librbd has buffers still of operations that were answered.
    #[error("librbd has not given back what {0} operations lent it that were answered already")]
    Orphans(u32),
    /// No client can be had for it.
    #[error("no client of its own can be had: {0}")]
    NoClient(CephError),
    /// The image cannot be opened on a client of its own.
    #[error("the image cannot be opened on a client of its own: {0}")]
    NotOpened(CephError),
    /// What was in flight has not ended in time.
    #[error("what is in flight has not ended within {0:?}")]
    InFlight(Duration),
    /// The new client does not watch the image either.
    #[error("a client of its own does not come to watch the image either")]
    NotWatched,
    /// The lock was not passed on, and is where it was.
    #[error("the image's lock could not be passed on: {0}")]
    LockKept(CephError),
    /// The lock was lost on the way: the image is opened again, if nobody else has it.
    #[error("the image's lock was lost while it was passed on: {0}")]
    LockLost(CephError),
    /// Whether the lock was passed on is not known after so long: the image is opened again, if nobody else has it.
    #[error("the image's lock was not passed on within {0:?}")]
    LockOverdue(Duration),
    /// Its client was cut off meanwhile, or the volume was closed.
    #[error("the volume's client was cut off, or the volume closed, while it moved")]
    Overtaken,
}

/// Something that one at a time may have, if it is free.
fn try_have(mutex: &std::sync::Mutex<()>) -> Option<MutexGuard<'_, ()>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The image as it is open on the client that the volume is to have.
struct Ahead {
    opened: Opened,
    /// Behind it, so that it is closed before it counts as that.
    _held: Held,
}

impl Ahead {
    /// Whether the image is watched by the client that it is to have. One that is not would take the lock in vain, and the old client
    /// could not take it back.
    fn is_watching(&self) -> bool {
        let own = &self.opened.seat.client.address;
        let watchers = self.opened.image.watchers();
        watchers.is_ok_and(|all| all.iter().any(|address| is_same_client(address, own)))
    }

    /// Takes the lock over from the life that there was. Nothing is asked afterwards: requests wait.
    fn take_lock(
        &self,
        from: &Life,
        me: &Identity,
        given_up: &AtomicBool,
    ) -> Result<(), NotPassed> {
        let from = Side {
            image: from.image(),
            client: from.client(),
        };
        let to = Side {
            image: &self.opened.image,
            client: &self.opened.seat.client,
        };
        owner::pass(&from, &to, me, given_up)
    }
}

impl Shared {
    /// Moves the volume in the background, because measurement says so, or a check. One volume of a cluster's at a time.
    pub(crate) fn begin_move(self: &Arc<Self>, reason: Reason) {
        let group = self.host.group(&self.options);
        if group.moving.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        in_background("weir-rbd-move", move || {
            let moved = shared.move_to_own_client(reason);
            let not_before = threads::now().map_or(0, |now| now + NOT_AGAIN_TICKS);
            match moved {
                Ok(()) | Err(NotMoved::Overtaken | NotMoved::NotServing) => {}
                Err(NotMoved::NoClient(_)) => {
                    group.move_not_before.store(not_before, Ordering::Relaxed);
                }
                Err(_) => lock(&shared.state).move_not_before = not_before,
            }
            group.moving.store(false, Ordering::Release);
        });
    }

    /// Moves the volume to a client of its own. Blocks for as long as that takes.
    pub(crate) fn move_to_own_client(self: &Arc<Self>, reason: Reason) -> Result<(), NotMoved> {
        let moved = self.try_move(&reason);
        match &moved {
            Ok(address) => tracing::info!(
                volume = %self.name, client = %address, %reason,
                "the volume has moved to a client of its own"
            ),
            Err(error) => {
                lock(&self.state).moves.1 += 1;
                tracing::warn!(volume = %self.name, %error, %reason, "the volume does not move to a client of its own");
            }
        }
        moved.map(drop)
    }

    /// The new client's address.
    fn try_move(self: &Arc<Self>, reason: &Reason) -> Result<String, NotMoved> {
        let _once = try_have(&self.moving).ok_or(NotMoved::Busy)?;
        if self.has_volatile_cache() {
            return Err(NotMoved::VolatileCache);
        }
        let (life, claim) = {
            let state = lock(&self.state);
            let life = state.life.clone().filter(|_| state.phase == Phase::Serving);
            (life.ok_or(NotMoved::NotServing)?, state.claim.clone())
        };
        // It is counted as open until it is closed, so that the lock is free when everything is said to be closed; and nobody else in
        // this process opens it before.
        let held = self.host.closing.hold();
        self.has_orphans()?;
        let mut ahead = Ahead {
            opened: self.open_ahead()?,
            _held: held,
        };
        // Asked while the volume serves on, as the cluster may not answer. The lock is seen to be this client's when it is passed on.
        ahead.opened.held = !self.read_only && ahead.is_watching();
        if *reason == Reason::Unwatched && !ahead.opened.held {
            return Err(NotMoved::NotWatched);
        }
        let _changing = try_have(&self.changing).ok_or(NotMoved::Busy)?;
        self.has_orphans()?;
        self.pause(&life)?;
        let ahead = match self.read_only {
            true => ahead,
            false => self.pass_lock(&life, ahead, reason)?,
        };
        self.begin_own_life(ahead.opened, &life, claim, reason)
    }

    /// While there are orphans requests would wait in vain for what is in flight to end.
    fn has_orphans(&self) -> Result<(), NotMoved> {
        match self.orphans.load(Ordering::Relaxed) {
            0 => Ok(()),
            orphans => Err(NotMoved::Orphans(orphans)),
        }
    }

    fn open_ahead(&self) -> Result<Opened, NotMoved> {
        let seat = self.host.group(&self.options).own_seat();
        let seat = seat.map_err(NotMoved::NoClient)?;
        let opened = self.host.open_at(seat, &self.options, self.read_only);
        opened.map_err(NotMoved::NotOpened)
    }

    /// Has queues wait, until nothing of this life is in flight.
    fn pause(&self, life: &Arc<Life>) -> Result<(), NotMoved> {
        let number = life.number;
        let mut state = lock(&self.state);
        if state.phase != Phase::Serving || state.number != number {
            return Err(NotMoved::Overtaken);
        }
        state.phase = Phase::Moving;
        drop(state);
        let (sender, drained) = mpsc::channel();
        let all = WhenAll::new(Box::new(move |_| {
            // Where nobody waits any more, nobody is told.
            let _told = sender.send(());
        }));
        self.post(|| Message::Pause(number, Arc::clone(&all)));
        drop(all);
        let longest = DRAIN_TIME_MAX.min(self.options.io_timeout / 2);
        if drained.recv_timeout(longest).is_ok() {
            return Ok(());
        }
        self.resume(number)?;
        Err(NotMoved::InFlight(longest))
    }

    /// Has queues go on with the life that they had.
    fn resume(&self, number: u64) -> Result<(), NotMoved> {
        let mut state = lock(&self.state);
        if state.phase != Phase::Moving || state.number != number {
            return Err(NotMoved::Overtaken);
        }
        state.phase = Phase::Serving;
        drop(state);
        self.post(|| Message::Resume(number));
        Ok(())
    }

    /// Passes the lock on, on a thread of its own, as any step of that may wait for ever.
    fn pass_lock(
        self: &Arc<Self>,
        life: &Arc<Life>,
        to: Ahead,
        reason: &Reason,
    ) -> Result<Ahead, NotMoved> {
        if lock(&self.state).phase != Phase::Moving {
            return Err(NotMoved::Overtaken);
        }
        let clients = [life.client(), &to.opened.seat.client];
        let clients = clients.map(|client| client.address.clone()).to_vec();
        let action = format!("cannot pass the lock of {} on", self.options.name);
        let given_up = Arc::new(AtomicBool::new(false));
        let (sender, passed) = mpsc::channel();
        let pass = {
            let (life, given_up) = (Arc::clone(life), Arc::clone(&given_up));
            let me = self.host.identity.clone();
            move || {
                let result = to.take_lock(&life, &me, &given_up);
                // Where nobody waits any more, the image is closed here.
                let _told = sender.send((result, to));
            }
        };
        if let Err(error) = try_in_background("weir-rbd-pass", pass) {
            self.resume(life.number)?;
            return Err(NotMoved::LockKept(CephError::Other {
                action,
                reason: format!("no thread can be had: {error}"),
                errno: error.raw_os_error().unwrap_or(0),
            }));
        }
        let failed = |errno| CephError::new(action, &self.options.id, errno);
        let longest = self.options.fence_timeout;
        match passed.recv_timeout(longest) {
            Ok((Ok(()), to)) => Ok(to),
            Ok((Err(NotPassed::Kept(errno)), _to)) => {
                self.resume(life.number)?;
                Err(NotMoved::LockKept(failed(errno)))
            }
            Ok((Err(NotPassed::Neither(errno)), to)) => {
                // It may have the lock; closing it may take as long as anything.
                in_background("weir-rbd-close", move || drop(to));
                self.reopen_moving(life, clients, reason, WHY_LOCK_LOST)?;
                Err(NotMoved::LockLost(failed(errno)))
            }
            Err(_) => {
                given_up.store(true, Ordering::Relaxed);
                self.reopen_moving(life, clients, reason, WHY_LOCK_OVERDUE)?;
                // As with any image that is out of reach for so long.
                self.overdue();
                Err(NotMoved::LockOverdue(longest))
            }
        }
    }

    fn begin_own_life(
        self: &Arc<Self>,
        opened: Opened,
        old: &Arc<Life>,
        claim: Option<Arc<Claim>>,
        reason: &Reason,
    ) -> Result<String, NotMoved> {
        let number = old.number + 1;
        let life = self.life_of(opened, number, claim);
        let address = life.client().address.clone();
        let telling = lock(&self.telling);
        let mut state = lock(&self.state);
        if state.phase != Phase::Moving || state.number != old.number {
            return Err(NotMoved::Overtaken);
        }
        state.phase = Phase::Serving;
        state.number = number;
        let left = state.life.replace(Arc::clone(&life));
        state.own_client = Some(reason.clone());
        state.moves.0 += 1;
        drop(state);
        self.post(|| Message::Attach(Arc::clone(&life)));
        drop((telling, left));
        // It may have been resized before the new image was watched.
        self.look_at_size();
        Ok(address)
    }
}
