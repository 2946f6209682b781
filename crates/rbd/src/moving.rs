//! How a volume moves from the client that it shares to one of its own: nothing is lost by it, and nothing cut off.
//!
//! On a thread of its own, step by step:
//!
//! 1. A client is connected, and the image opened on it. The volume serves on; where this fails, nothing has happened.
//! 2. The volume is `moving`: queues submit nothing, and requests wait. What librbd has of the old life ends, for as long as
//!    [`DRAIN_TIME_MAX`] at most; then the move is called off, and queues go on with the old life.
//! 3. What is cached is flushed, the old client gives the lock up, the new one takes it, and the word of who has it is changed. Where
//!    that fails, the old client takes the lock back, and queues go on with the old life.
//! 4. A new life begins, on the new client, and queues go on with that. The old image is closed in the background.
//!
//! What else may happen meanwhile:
//!
//! - The old life ends (a write times out, its client is refused, its lock is lost): from step 2 on the volume is `fencing` then, and the
//!   move ends where it is; the new client is let go. Such an end comes from an operation of the old life, so that none comes in steps 3 and 4.
//! - The volume is closed: it is `closed` then, and the move likewise ends where it is.
//! - It is resized: one waits for the other. A resize that is under way calls the move off, as it may take long.
//! - A queue is opened: it begins paused.
//! - A fence: requests that wait count as any others.
//! - The lock can be had by neither client: the life is ended as one whose lock was lost, and opened again if nobody else has it.
//! - The process is killed: the image has the lock of a dead client, whose name is known or becomes free with its watch.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, TryLockError, mpsc};
use std::time::Duration;

use weir_volume::parts::{WhenAll, lock};

use crate::auto::Reason;
use crate::error::CephError;
use crate::host::{Claim, Opened, in_background};
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

/// Why a volume has not moved. It serves on where it was, unless that says otherwise.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotMoved {
    /// It has no image open, or is closed, or is opened again just now.
    #[error("the volume is not serving")]
    NotServing,
    /// It moves already, or is being resized.
    #[error("the volume moves already, or is being resized")]
    Busy,
    /// No client can be had for it, or the image not be opened there.
    #[error("no client of its own can be had: {0}")]
    NoClient(CephError),
    /// What was in flight has not ended in time.
    #[error("what is in flight has not ended within {0:?}")]
    InFlight(Duration),
    /// The lock was not passed on, and is where it was.
    #[error("the image's lock could not be passed on: {0}")]
    LockKept(CephError),
    /// The lock was lost on the way: the image is opened again, if nobody else has it.
    #[error("the image's lock was lost while it was passed on: {0}")]
    LockLost(CephError),
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

impl Shared {
    /// Moves the volume in the background, because measurement says so. One volume of a cluster's at a time.
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
        let (life, claim) = {
            let state = lock(&self.state);
            let life = state.life.clone().filter(|_| state.phase == Phase::Serving);
            (life.ok_or(NotMoved::NotServing)?, state.claim.clone())
        };
        // It is counted as open until it is closed, so that the lock is free when everything is said to be closed; and nobody else in
        // this process opens it before.
        let _held = self.host.closing.hold();
        let opened = self.open_ahead().map_err(NotMoved::NoClient)?;
        let _changing = try_have(&self.changing).ok_or(NotMoved::Busy)?;
        self.pause(&life)?;
        let passed = match self.read_only {
            true => Ok(()),
            false => self.pass_lock(&life, &opened),
        };
        match passed {
            Ok(()) => self.begin_own_life(opened, &life, claim, reason),
            Err(error @ NotMoved::LockLost(_)) => {
                // Before the image is opened again: this one may have the lock.
                drop(opened);
                self.end_life(&life, WHY_LOCK_LOST);
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn open_ahead(&self) -> Result<Opened, CephError> {
        let seat = self.host.group(&self.options).own_seat()?;
        self.host.open_at(seat, &self.options, self.read_only)
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

    fn pass_lock(self: &Arc<Self>, life: &Arc<Life>, to: &Opened) -> Result<(), NotMoved> {
        if lock(&self.state).phase != Phase::Moving {
            return Err(NotMoved::Overtaken);
        }
        let from = Side {
            image: life.image(),
            client: life.client(),
        };
        let to = Side {
            image: &to.image,
            client: &to.seat.client,
        };
        let failed = |errno| {
            let action = format!("cannot pass the lock of {} on", self.options.name);
            CephError::new(action, &self.options.id, errno)
        };
        match owner::pass(&from, &to, &self.host.identity) {
            Ok(()) => Ok(()),
            Err(NotPassed::Kept(errno)) => {
                self.resume(life.number)?;
                Err(NotMoved::LockKept(failed(errno)))
            }
            Err(NotPassed::Neither(errno)) => Err(NotMoved::LockLost(failed(errno))),
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
