//! Moves of a volume from the client that it shares to one of its own: nothing is lost by it, and nothing cut off.
//!
//! A volume with a volatile cache does not move: it has no way to tell its hosts of a write that was answered and then failed.
//!
//! On a thread of its own, step by step:
//!
//! 1. A client is connected, and the image opened on it without its lock. The volume serves on; where this fails, nothing has happened.
//! 2. The volume is `moving`: queues let go of its life, and requests wait. The life ends when librbd has nothing of it any more, within
//!    [`DRAIN_TIME_MAX`]; if not, queues go on with it.
//! 3. The image is closed on the old client, which gives its lock up.
//! 4. The new client takes the lock. Where that fails, the image is opened again on the old client; where that fails too, on any, as after
//!    a client was cut off.
//! 5. A new life begins, and queues go on with that.
//!
//! Meanwhile:
//!
//! - The old life ends in step 2, as a write times out or its client is refused: the volume is `fencing` then, and the move ends. Later
//!   nobody has a life that could end.
//! - The volume is closed: it is `closed` then. The move ends at its next look, and closes what it has open.
//! - It is resized: a resize waits for a move, and calls off one that comes later, as it may take long.
//! - The cluster does not answer: requests wait for the image, and time out, which is noted as its trouble. After `fence_timeout` from step 3
//!   on the volume is lost until a life begins: each queue has a timer for that.
//! - Another gateway finds the lock free: the image has the name of this one, of which a client watches it ([`owner::announce`]).
//! - The process is killed: the image has the lock of a dead client, whose name is known, or nobody's.

use std::sync::atomic::Ordering;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

use weir_volume::parts::lock;

use crate::auto::Reason;
use crate::cluster::let_go;
use crate::error::CephError;
use crate::host::{FENCED_OF_IMAGE_MAX, Opened, in_background};
use crate::owner;
use crate::threads;
use crate::volume::{Life, Phase, Shared};

/// How long requests wait at most for what is in flight to end, before a move is called off. Half of a request's time-out where that is
/// less, so that none times out by it.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);
/// Between two looks whether a life has ended: little beside what it takes to close an image.
const DRAIN_LOOK: Duration = Duration::from_millis(1);
/// For how long a volume, or all that are like it where no client could be had, are left where they are after a move that was called
/// off, in ticks: ten minutes.
const NOT_AGAIN_TICKS: u64 = 10 * 60 * 100;

const WHY_LOST: &str = "the image could be opened on no client while it moved";

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
    /// The image can be opened on neither client: it is tried on, if nobody else has it.
    #[error("the image cannot be opened on its client again: {0}")]
    Lost(CephError),
    /// Its client was cut off meanwhile, or the volume was closed.
    #[error("the volume's client was cut off, or the volume closed, while it moved")]
    Overtaken,
}

impl Shared {
    /// Returns whether the volume may move at this time, in ticks, and can have a client of its own. Without need no volume moves while
    /// much is left of clients that were cut off.
    pub(crate) fn may_move(&self, now: u64) -> bool {
        let (host, group) = (&self.host, self.host.group(&self.options));
        !self.has_volatile_cache()
            && now >= lock(&self.state).move_not_before
            && now >= group.move_not_before.load(Ordering::Relaxed)
            && !group.moving.load(Ordering::Acquire)
            && group.fenced(|_| true) <= FENCED_OF_IMAGE_MAX
            && host.own_clients() < host.auto_limits.own_clients_max
    }

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
            Ok(()) => {
                tracing::info!(volume = %self.name, %reason, "the volume has moved to a client of its own");
            }
            Err(error) => {
                lock(&self.state).moves.1 += 1;
                tracing::warn!(volume = %self.name, %error, %reason, "the volume does not move to a client of its own");
            }
        }
        moved
    }

    fn try_move(self: &Arc<Self>, reason: &Reason) -> Result<(), NotMoved> {
        if self.has_volatile_cache() {
            return Err(NotMoved::VolatileCache);
        }
        let life = self.serving().ok_or(NotMoved::NotServing)?;
        let mut ahead = self.open_ahead(&life, reason)?;
        // Only now: a resize does not wait for a client that does not get through.
        let _changing = match self.changing.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(NotMoved::Busy),
            changing => changing,
        };
        let old = self.drain(life).inspect_err(|_| {
            // There was no life to ask about a size that changed meanwhile.
            self.look_soon();
        })?;
        let (host, options) = (&self.host, &self.options);
        let clients = [&old, &ahead].map(|opened| &opened.seat.client);
        let former = clients.map(|client| client.address.clone());
        let shared = Arc::downgrade(clients[0]);
        let claim = ahead.claim.clone();
        let seat = old.close();
        if lock(&self.state).phase != Phase::Moving {
            // It was closed meanwhile.
            return Err(NotMoved::Overtaken);
        }
        let (opened, moved) = match host.take_lock(&mut ahead, options, Some(&former)) {
            Ok(()) => (ahead, Ok(())),
            Err(error) => {
                let again = host.open_at(seat, options, claim);
                if let Ok(again) = &again {
                    // It may have the lock, and word of itself alone.
                    let _ = owner::announce(&ahead, again, &host.identity);
                }
                // Not before: an image that nobody watches is another gateway's to take.
                drop(ahead);
                let again = again.and_then(|mut again| {
                    host.take_lock(&mut again, options, Some(&former))?;
                    self.same(again)
                });
                match again {
                    Ok(opened) => (opened, Err(NotMoved::NotOpened(error))),
                    Err(error) => {
                        // Such a client keeps its lock, which is not waited for.
                        if error.is_blocklisted()
                            && let Some(client) = shared.upgrade()
                        {
                            client.retire();
                            let_go(client);
                        }
                        return Err(self.reopen(former.into(), error));
                    }
                }
            }
        };
        let begun = self.begin_life(opened, |state| {
            if moved.is_ok() {
                state.moves.0 += 1;
                state.own_client = Some(reason.clone());
            }
        });
        if !begun {
            return Err(NotMoved::Overtaken);
        }
        moved
    }

    /// Opens the image on a client of its own, and leaves the lock where it is.
    fn open_ahead(&self, life: &Life, reason: &Reason) -> Result<Opened, NotMoved> {
        let (options, claim) = (&self.options, life.opened().claim.clone());
        let seat = self.host.group(options).own_seat();
        let seat = seat.map_err(NotMoved::NoClient)?;
        let opened = self.host.open_at(seat, options, claim);
        let mut ahead = opened
            .and_then(|opened| self.same(opened))
            .map_err(NotMoved::NotOpened)?;
        if ahead.claim.is_none() {
            return Ok(ahead);
        }
        // A client that does not watch an image cannot take its lock.
        ahead.see_watch();
        if !ahead.watched {
            return Err(NotMoved::NotWatched);
        }
        // Without its watch other gateways take the old client for dead anyway, and librbd may wait for the watch before it writes.
        if *reason != Reason::Unwatched {
            let announced = owner::announce(life.opened(), &ahead, &self.host.identity);
            announced.map_err(|errno| {
                let action = format!("cannot leave word with {}", options.name);
                NotMoved::NotOpened(CephError::new(action, &options.id, errno))
            })?;
        }
        Ok(ahead)
    }

    /// Has queues let go of a life, until nobody has it any more.
    fn drain(&self, mut life: Arc<Life>) -> Result<Opened, NotMoved> {
        let orphans = self.orphans.load(Ordering::Relaxed);
        if orphans > 0 {
            // These keep it for as long as librbd does.
            return Err(NotMoved::Orphans(orphans));
        }
        let number = life.number;
        self.turn(number, Phase::Serving, Phase::Moving, None)?;
        let longest = DRAIN_TIME_MAX.min(self.options.io_timeout / 2);
        for _ in 0..longest.as_millis() / DRAIN_LOOK.as_millis() {
            match Arc::try_unwrap(life) {
                Ok(life) => {
                    self.turn(number, Phase::Moving, Phase::Moving, None)?;
                    return Ok(life.into_opened());
                }
                Err(shared) => life = shared,
            }
            if lock(&self.state).phase != Phase::Moving {
                return Err(NotMoved::Overtaken);
            }
            std::thread::sleep(DRAIN_LOOK);
        }
        self.turn(number, Phase::Moving, Phase::Serving, Some(life))?;
        Err(NotMoved::InFlight(longest))
    }

    /// Goes from one phase to another in the life of this number, and has queues take that life up or let go of it.
    fn turn(
        &self,
        number: u64,
        from: Phase,
        to: Phase,
        life: Option<Arc<Life>>,
    ) -> Result<(), NotMoved> {
        let mut state = lock(&self.state);
        if state.phase != from || state.number != number {
            return Err(NotMoved::Overtaken);
        }
        // A move that goes on has what nobody uses any more.
        (state.drained, state.moved_by) = (from == to, None);
        state.phase = to;
        state.life = life;
        drop(state);
        self.changed();
        Ok(())
    }

    /// Has the image opened again on any client.
    fn reopen(self: &Arc<Self>, former: Vec<String>, error: CephError) -> NotMoved {
        let mut state = lock(&self.state);
        if state.phase != Phase::Moving {
            return NotMoved::Overtaken;
        }
        state.phase = Phase::Reopening;
        state.end(WHY_LOST);
        drop(state);
        tracing::error!(volume = %self.name, %error, "{WHY_LOST}");
        let shared = Arc::clone(self);
        in_background("weir-rbd-reopen", move || shared.open_again(&former));
        NotMoved::Lost(error)
    }
}
