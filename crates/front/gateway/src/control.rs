//! Carries changes through.
//!
//! The order of a change is: the next state is made and checked; the volumes that it needs are
//! opened; it is made and checked again, for others have changed the state meanwhile; it is stored; it
//! is applied on every reactor; what it no longer needs is closed; what hosts have under way and may do
//! no more has ended; it is acknowledged. Whatever fails before it is applied is undone. Changes are stored and applied one at a time; reading waits for none.
//!
//! A medium may take long, or never answer: a cluster whose OSDs are silent. So nothing waits for one
//! while it keeps others from changing the state. Instead a volume that is being opened, resized or
//! closed is busy, and refuses whatever else is to be done with it ([`VolumeBusy`]),
//! but for being removed while it opens. Each call waits for a medium for a time only
//! (`OPEN_TIME_MAX`, `RESIZE_TIME_MAX`); what it has begun goes on, and when it ends it is taken or
//! undone as the state then says.
//!
//! At start, a volume or listener that cannot be opened, or has not been opened in time, does not keep
//! the gateway from serving the others: it is listed as failed, with the reason, its namespaces are
//! not ready, and it is tried again on request and by itself ([`Control::retry_forever`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;
use weir_reservation::StoredTable;

use crate::engine::{Engine, EngineError, Opening, Reply, RevokedReport, ToKeep};
use crate::name::{ListenerAddress, VolumeName};
use crate::state::{Change, Outcome, State, StateError};
use crate::store::{Store, StoreError};

/// Shortest time after which what failed to open is tried again by itself.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest time after which what failed to open is tried again by itself.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);
/// For how long a round of such tries is waited for.
const RETRY_WAIT: Duration = Duration::from_secs(5);

/// For how long a start waits for media and addresses that another process has. A gateway that was
/// killed lets go of them only after it is gone: the kernel takes its rings down on its own time.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks.
const START_POLL: Duration = Duration::from_millis(20);
/// For how long a start waits for volumes that neither open nor fail. What opens later is served then.
const START_TIME_MAX: Duration = Duration::from_secs(6);
/// For how long a call waits for a volume to open. Longer than a client of Ceph waits for its
/// monitors, which says more.
const OPEN_TIME_MAX: Duration = Duration::from_secs(40);
/// For how long a call waits for a volume to be resized.
const RESIZE_TIME_MAX: Duration = Duration::from_secs(60);
/// For how long a call waits for what hosts have under way and may do no more.
const REVOKED_TIME_MAX: Duration = Duration::from_secs(5);
/// Time between two looks.
const REVOKED_POLL: Duration = Duration::from_millis(5);
/// Lines of what is under way that an error has room for.
const REVOKED_TOLD_MAX: usize = 4;
/// For how long the end waits for volumes that are being resized, so that the state has their sizes.
const RESIZE_END_MAX: Duration = Duration::from_secs(2);

/// Why a change was not carried through.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The state does not allow it.
    #[error(transparent)]
    State(#[from] StateError),
    /// The data path refuses or fails.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// It could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The volume has its new size, but the state does not know.
    #[error("volume {name} was resized, but the state could not be stored: {source}")]
    ResizeNotStored {
        /// The volume.
        name: VolumeName,
        /// Why not.
        source: StoreError,
    },
    /// Another call is at work on the volume.
    #[error(transparent)]
    VolumeBusy(#[from] VolumeBusy),
    /// Its medium has not said whether it was resized.
    #[error(
        "volume {name} has not been resized within {} seconds; whether it will be is open",
        RESIZE_TIME_MAX.as_secs()
    )]
    ResizeUnanswered {
        /// The volume.
        name: VolumeName,
    },
    /// The store has not said whether reservations were given up.
    #[error(
        "the reservations of volume {name} have not been cleared within {} seconds; whether they will be is open",
        REVOKED_TIME_MAX.as_secs()
    )]
    ClearUnanswered {
        /// The volume.
        name: VolumeName,
    },
    /// The change is in force, but what it took away from hosts has not ended.
    #[error(
        "the change is in force, but after {} seconds requests are under way that hosts may not do any more: {}",
        REVOKED_TIME_MAX.as_secs(),
        told(revoked)
    )]
    UnderWay {
        /// Requests that are under way.
        revoked: Vec<RevokedReport>,
    },
    /// The gateway is ending.
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

/// The first of what is under way, in words.
fn told(revoked: &[RevokedReport]) -> String {
    let first = revoked.iter().take(REVOKED_TOLD_MAX);
    let mut lines: Vec<_> = first.map(ToString::to_string).collect();
    if revoked.len() > REVOKED_TOLD_MAX {
        lines.push(format!("{} more", revoked.len() - REVOKED_TOLD_MAX));
    }
    lines.join(", ")
}

/// What may be under way with a volume, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// It is being opened.
    Opening,
    /// It is being resized.
    Resizing,
    /// It is being closed.
    Closing,
}

impl std::fmt::Display for Doing {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Doing::Opening => "opened",
            Doing::Resizing => "resized",
            Doing::Closing => "closed",
        })
    }
}

/// Another call is at work on a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("volume {name} is being {doing} by another call, which has not ended yet")]
pub struct VolumeBusy {
    /// The volume.
    pub name: VolumeName,
    /// What is done with it.
    pub doing: Doing,
}

type BusyVolumes = Arc<Mutex<BTreeMap<VolumeName, Doing>>>;

/// That something is under way with a volume, until this is dropped.
#[derive(Debug)]
struct Busy {
    all: BusyVolumes,
    name: VolumeName,
}

impl Drop for Busy {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.name);
    }
}

/// What an attempt to open a volume ends with, and the volume, busy still.
type Attempt = oneshot::Receiver<(Result<(), EngineError>, Busy)>;

/// What could not be opened and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    /// The volumes that are not open, with the reason.
    pub volumes: BTreeMap<VolumeName, String>,
    /// The listeners that are not open, with the reason.
    pub listeners: BTreeMap<ListenerAddress, String>,
}

impl Failures {
    /// Whether everything is open.
    pub fn is_empty(&self) -> bool {
        self.volumes.is_empty() && self.listeners.is_empty()
    }
}

/// The state and the one who may change it.
pub struct Control {
    engine: Arc<dyn Engine>,
    live: Mutex<Live>,
    busy: BusyVolumes,
    /// Held while the state is changed, and never while anything waits for a volume's medium.
    keeper: tokio::sync::Mutex<Keeper>,
}

struct Live {
    state: Arc<State>,
    failures: Failures,
}

struct Keeper {
    store: Arc<Mutex<Box<dyn Store>>>,
    stored: Option<u64>,
    shutting_down: bool,
}

impl Keeper {
    /// Stores `state`, off this thread: a sync may take long.
    async fn save(&mut self, state: &Arc<State>) -> Result<(), StoreError> {
        let (store, saved, expected) = (self.store.clone(), state.clone(), self.stored);
        let work = move || lock(&store).save(&saved, expected);
        let result = tokio::task::spawn_blocking(work).await;
        let saved = result.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        if is_in_place(&saved) {
            self.stored = Some(state.revision);
        }
        saved
    }
}

/// Tells whether a restart finds what was saved, unless power fails.
fn is_in_place(saved: &Result<(), StoreError>) -> bool {
    matches!(saved, Ok(()) | Err(StoreError::Uncertain { .. }))
}

/// What a change has come to.
struct Carried {
    before: Arc<State>,
    outcome: Outcome,
    /// The volumes that are not in the state any more, to be closed.
    removed: Vec<Busy>,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("nothing panics while it holds this lock")
}

impl Control {
    /// Loads the state, opens what it needs as far as that can be opened, and applies it. What is in
    /// use gets some seconds to become free, all together.
    ///
    /// # Errors
    /// The state cannot be loaded, or not be applied.
    pub async fn start(
        engine: Arc<dyn Engine>,
        mut store: Box<dyn Store>,
    ) -> Result<Arc<Self>, ControlError> {
        let loaded = store.load()?;
        let stored = loaded.as_ref().map(|state| state.revision);
        let state = Arc::new(loaded.unwrap_or_default());
        let store = Arc::new(Mutex::new(store));
        let keeper = Keeper {
            store,
            stored,
            shutting_down: false,
        };
        let live = Live {
            state: state.clone(),
            failures: Failures::default(),
        };
        let control = Arc::new(Self {
            engine,
            live: Mutex::new(live),
            busy: Arc::default(),
            keeper: keeper.into(),
        });
        // What opens too late for this is taken when all the rest is served.
        let keeper = control.keeper.lock().await;
        let began = Instant::now();
        let deadline = began + START_PATIENCE;
        control
            .open_all(&state, deadline, began + START_TIME_MAX)
            .await;
        let engine = &control.engine;
        for (address, portal) in &state.portals {
            let opened = when_free(deadline, || engine.open_listener(address, portal)).await;
            control.note_listener(address, opened.as_ref().err());
        }
        engine.apply(state).await?;
        drop(keeper);
        Ok(control)
    }

    /// Opens all volumes at once, and waits for them until `end`. What is in use may become free until
    /// `deadline`.
    async fn open_all(self: &Arc<Self>, state: &State, deadline: Instant, end: Instant) {
        let mut attempts = Vec::new();
        for (name, volume) in &state.volumes {
            if let Ok(busy) = self.claim(name, Doing::Opening) {
                let (url, until) = (volume.url.clone(), Some(deadline));
                let attempt = self.begin_open(busy, url, Opening::Existing, until);
                attempts.push((name, attempt));
            }
        }
        for (name, attempt) in attempts {
            let opened = match ended_by(end, attempt).await {
                Some((opened, _busy)) => opened,
                None => Err(unanswered(name, START_TIME_MAX, SERVED_LATER)),
            };
            self.note_volume(name, opened.as_ref().err());
        }
    }

    /// The state as it is now.
    pub fn state(&self) -> Arc<State> {
        lock(&self.live).state.clone()
    }

    /// What is not open now.
    pub fn failures(&self) -> Failures {
        lock(&self.live).failures.clone()
    }

    /// The data path.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Carries a change through. Once begun it goes on to its end or its undoing even when the
    /// caller loses interest.
    ///
    /// # Errors
    /// The change was refused or failed, and was undone.
    pub async fn change(self: &Arc<Self>, change: Change) -> Result<Outcome, ControlError> {
        let control = self.clone();
        to_the_end(async move { control.change_now(&change).await }).await
    }

    async fn change_now(self: &Arc<Self>, change: &Change) -> Result<Outcome, ControlError> {
        // Nothing is opened in vain.
        drop(self.keeper().await?);
        let opened = self.open_added(change).await?;
        let carried = self.carry_through(change, &opened).await;
        let served = carried
            .as_ref()
            .is_ok_and(|carried| carried.outcome.changed);
        if !served {
            self.close(opened).await;
        }
        let Carried {
            before,
            outcome,
            removed,
        } = carried?;
        self.close(removed).await;
        self.end_revoked(change, &before).await?;
        Ok(outcome)
    }

    /// Waits until nothing is under way any more that `change` has taken away from what `before` allowed. Others may change the state meanwhile.
    async fn end_revoked(&self, change: &Change, before: &State) -> Result<(), ControlError> {
        let end = Instant::now() + REVOKED_TIME_MAX;
        loop {
            let mut revoked = self.engine.revoked().await?;
            revoked.retain(|one| change.takes_from(before, &one.host, &one.export));
            if revoked.is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                tracing::warn!(%change, "requests that hosts may not do any more are under way: {}", told(&revoked));
                return Err(ControlError::UnderWay { revoked });
            }
            tokio::time::sleep(REVOKED_POLL).await;
        }
    }

    /// Stores and applies a change for which these volumes were opened, or undoes it.
    async fn carry_through(
        &self,
        change: &Change,
        opened: &[Busy],
    ) -> Result<Carried, ControlError> {
        let mut keeper = self.keeper().await?;
        let before = self.state();
        let outcome = before.changed_by(change, &mut random)?;
        let next = Arc::new(outcome.state.clone());
        let added = missing(next.volumes.keys(), |name| {
            let is_open = opened.iter().any(|busy| busy.name == *name);
            before.volumes.contains_key(name) || is_open
        });
        if let Some(name) = added.into_iter().next() {
            // It was there when it was to be opened, and has been removed since.
            let doing = Doing::Closing;
            return Err(VolumeBusy { name, doing }.into());
        }
        let removed = self.claim_removed(&before, &next)?;
        if !outcome.changed {
            return Ok(Carried {
                before,
                outcome,
                removed,
            });
        }
        let listeners = self.listen_added(&before, &next).await?;
        let saved = keeper.save(&next).await;
        if saved.is_err() {
            if is_in_place(&saved) {
                self.roll_back(&mut keeper, &before, &next).await;
            }
            self.stop_listening(&listeners).await;
            saved?;
        }
        if let Err(error) = self.engine.apply(next.clone()).await {
            tracing::error!(%error, revision = next.revision, "a change cannot be applied");
            self.roll_back(&mut keeper, &before, &next).await;
            self.stop_listening(&listeners).await;
            return Err(error.into());
        }
        lock(&self.live).state = next.clone();
        self.forget_removed(&before, &next).await;
        tracing::info!(revision = next.revision, %change, "changed");
        Ok(Carried {
            before,
            outcome,
            removed,
        })
    }

    async fn keeper(&self) -> Result<tokio::sync::MutexGuard<'_, Keeper>, ControlError> {
        let keeper = self.keeper.lock().await;
        if keeper.shutting_down {
            Err(ControlError::ShuttingDown)
        } else {
            Ok(keeper)
        }
    }

    /// Has a volume to oneself, to do something with it.
    fn claim(&self, name: &VolumeName, doing: Doing) -> Result<Busy, VolumeBusy> {
        let mut all = lock(&self.busy);
        if let Some(&doing) = all.get(name) {
            let name = name.clone();
            return Err(VolumeBusy { name, doing });
        }
        all.insert(name.clone(), doing);
        Ok(Busy {
            all: Arc::clone(&self.busy),
            name: name.clone(),
        })
    }

    /// The volumes that a change takes away. One that is being opened is closed by who opens it.
    fn claim_removed(&self, before: &State, next: &State) -> Result<Vec<Busy>, VolumeBusy> {
        let mut claimed = Vec::new();
        for name in missing(before.volumes.keys(), |name| {
            next.volumes.contains_key(name)
        }) {
            match self.claim(&name, Doing::Closing) {
                Ok(busy) => claimed.push(busy),
                Err(VolumeBusy {
                    doing: Doing::Opening,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(claimed)
    }

    /// Opens the volumes that a change adds; all of them or nothing.
    async fn open_added(self: &Arc<Self>, change: &Change) -> Result<Vec<Busy>, ControlError> {
        let mut opened = Vec::new();
        if !matches!(change, Change::AddVolume { .. }) {
            return Ok(opened);
        }
        let before = self.state();
        let next = before.changed_by(change, &mut random)?.state;
        for (name, volume) in &next.volumes {
            if before.volumes.contains_key(name) {
                continue;
            }
            match self.open_one(name, &volume.url).await {
                Ok(busy) => opened.extend(busy),
                Err(error) => {
                    self.close(opened).await;
                    return Err(error);
                }
            }
        }
        Ok(opened)
    }

    /// Opens a volume that is to be added; none where another call has added it meanwhile.
    async fn open_one(
        self: &Arc<Self>,
        name: &VolumeName,
        url: &str,
    ) -> Result<Option<Busy>, ControlError> {
        let busy = self.claim(name, Doing::Opening)?;
        if self.state().volumes.contains_key(name) {
            return Ok(None);
        }
        let attempt = self.begin_open(busy, url.to_owned(), Opening::Create, None);
        match ended_by(Instant::now() + OPEN_TIME_MAX, attempt).await {
            Some((Ok(()), busy)) => Ok(Some(busy)),
            Some((Err(error), _busy)) => Err(error.into()),
            None => Err(unanswered(name, OPEN_TIME_MAX, CLOSED_LATER).into()),
        }
    }

    /// Opens a volume on a task of its own, which goes on for as long as that takes. Where nobody waits
    /// for its end any more, the volume is served if the state has it then, and closed if not. With a
    /// time it is tried again until then while it is in use.
    fn begin_open(
        self: &Arc<Self>,
        busy: Busy,
        url: String,
        opening: Opening,
        until: Option<Instant>,
    ) -> Attempt {
        let (sender, attempt) = oneshot::channel();
        let control = self.clone();
        tokio::spawn(async move {
            let open = || control.engine.open_volume(&busy.name, &url, opening);
            let opened = match until {
                Some(deadline) => when_free(deadline, open).await,
                None => open().await,
            };
            if let Err((opened, busy)) = sender.send((opened, busy)) {
                // What goes wrong is in the log, and noted where the volume is shown.
                let _ = control.conclude(opened, busy, &url).await;
            }
        });
        attempt
    }

    /// Serves a volume that is in the state and was not open, or notes why it cannot be opened. One that
    /// is not in the state any more is closed again.
    async fn conclude(
        &self,
        opened: Result<(), EngineError>,
        busy: Busy,
        url: &str,
    ) -> Result<(), ControlError> {
        let keeper = self.keeper.lock().await;
        let (state, name) = (self.state(), &busy.name);
        let volume = state.volume(name);
        if volume.as_ref().map_or(true, |volume| volume.url != url) {
            drop(keeper);
            let gone = volume.map(drop);
            if opened.is_ok() {
                self.close(vec![busy]).await;
            }
            return Ok(gone?);
        }
        if keeper.shutting_down {
            // It ends with all the rest.
            return Err(ControlError::ShuttingDown);
        }
        self.note_volume(name, opened.as_ref().err());
        opened?;
        self.engine.apply(state).await?;
        Ok(())
    }

    /// Closes volumes that are not served.
    async fn close(&self, volumes: Vec<Busy>) {
        for busy in volumes {
            let name = &busy.name;
            if let Err(error) = self.engine.close_volume(name).await {
                tracing::warn!(%name, %error, "a volume stays open");
            }
        }
    }

    /// Listens where `next` does and `before` does not; everywhere or nowhere.
    async fn listen_added(
        &self,
        before: &State,
        next: &State,
    ) -> Result<Vec<ListenerAddress>, EngineError> {
        let mut opened = Vec::new();
        for (address, portal) in &next.portals {
            if before.portals.contains_key(address) {
                continue;
            }
            if let Err(error) = self.engine.open_listener(address, portal).await {
                self.stop_listening(&opened).await;
                return Err(error);
            }
            opened.push(address.clone());
        }
        Ok(opened)
    }

    async fn stop_listening(&self, listeners: &[ListenerAddress]) {
        for address in listeners {
            if let Err(error) = self.engine.close_listener(address).await {
                tracing::warn!(%address, %error, "a listener stays open");
            }
        }
    }

    /// Stops listening where `before` did and `next` does not, and forgets what could not be opened of
    /// what is gone.
    async fn forget_removed(&self, before: &State, next: &State) {
        let listeners = missing(before.portals.keys(), |key| next.portals.contains_key(key));
        self.stop_listening(&listeners).await;
        let failures = &mut lock(&self.live).failures;
        failures
            .volumes
            .retain(|name, _| next.volumes.contains_key(name));
        failures
            .listeners
            .retain(|address, _| next.portals.contains_key(address));
    }

    /// Makes what was before `failed` the state again, here and in the store, under a revision of its
    /// own: some reactors may have seen the failed one.
    async fn roll_back(&self, keeper: &mut Keeper, before: &State, failed: &State) {
        let mut again = before.clone();
        again.revision = failed.revision + 1;
        if failed.discovery_generation != before.discovery_generation {
            again.discovery_generation = failed.discovery_generation + 1;
        }
        if failed.secrets.generation != before.secrets.generation {
            // The failed ones have a file of their generation already, which is not to be another's.
            again.secrets.set_generation(again.revision);
        }
        let again = Arc::new(again);
        if let Err(error) = keeper.save(&again).await {
            tracing::error!(%error, "a change that failed stays in the store until the next one");
        }
        if let Err(error) = self.engine.apply(again.clone()).await {
            tracing::error!(%error, "the state before a change that failed cannot be applied");
        }
        lock(&self.live).state = again;
    }

    /// Changes a volume's size, and its URL with it. Once begun it goes on to its end even when the
    /// caller loses interest, or has been told that the medium has not answered.
    ///
    /// # Errors
    /// There is no such volume, it cannot have this size, its medium has not answered in time, or the
    /// state could not be stored.
    pub async fn resize(
        self: &Arc<Self>,
        name: VolumeName,
        size_bytes: u64,
        force: bool,
    ) -> Result<(), ControlError> {
        drop(self.keeper().await?);
        self.state().volume(&name)?;
        let busy = self.claim(&name, Doing::Resizing)?;
        // Nobody takes it away, or gives it another URL, from now on.
        let url = self.state().volume(&name)?.url.clone();
        let (sender, resized) = oneshot::channel();
        let control = self.clone();
        tokio::spawn(async move {
            let name = &busy.name;
            let resized = control
                .engine
                .resize_volume(name, &url, size_bytes, force)
                .await;
            let result = match resized {
                Ok(url) => control.keep_url(name, url, size_bytes).await,
                Err(error) => Err(error.into()),
            };
            let name = busy.name.clone();
            drop(busy);
            if let Err(Err(error)) = sender.send(result) {
                tracing::error!(%name, %error, "a resize that nobody waits for any more has failed");
            }
        });
        match ended_by(Instant::now() + RESIZE_TIME_MAX, resized).await {
            Some(result) => result,
            None => Err(ControlError::ResizeUnanswered { name }),
        }
    }

    /// Keeps the URL of a volume that has a new size.
    async fn keep_url(
        &self,
        name: &VolumeName,
        url: String,
        size_bytes: u64,
    ) -> Result<(), ControlError> {
        // Also at the end: a restart is to find the size that the medium has.
        let mut keeper = self.keeper.lock().await;
        let before = self.state();
        let change = Change::SetVolumeUrl {
            name: name.clone(),
            url,
        };
        let outcome = before.changed_by(&change, &mut |_| {})?;
        tracing::info!(%name, size_bytes, "resized");
        if !outcome.changed {
            return Ok(());
        }
        let next = Arc::new(outcome.state);
        let not_stored = |source| ControlError::ResizeNotStored {
            name: name.clone(),
            source,
        };
        let saved = keeper.save(&next).await;
        // The medium keeps its size: what is in place is right.
        if is_in_place(&saved) {
            lock(&self.live).state = next.clone();
            if !keeper.shutting_down {
                self.engine.apply(next).await?;
            }
        }
        saved.map_err(not_stored)
    }

    /// Gives up all that hosts have registered and reserved of a volume: of hosts that are gone, and left it shut.
    ///
    /// # Errors
    /// There is no such volume, it could not be stored, or the store has not answered in time.
    pub async fn discard_reservations(
        self: &Arc<Self>,
        name: VolumeName,
    ) -> Result<(), ControlError> {
        drop(self.keeper().await?);
        self.state().volume(&name)?;
        let (sender, discarded) = oneshot::channel();
        let control = self.clone();
        let asked = name.clone();
        tokio::spawn(async move {
            let result = control.engine.discard_reservations(&asked).await;
            match &result {
                Ok(()) => tracing::info!(name = %asked, "reservations cleared"),
                Err(error) => {
                    tracing::error!(name = %asked, %error, "reservations cannot be cleared");
                }
            }
            // Whoever asked may have been told that it is open.
            let _ = sender.send(result);
        });
        match ended_by(Instant::now() + REVOKED_TIME_MAX, discarded).await {
            Some(result) => Ok(result?),
            None => Err(ControlError::ClearUnanswered { name }),
        }
    }

    /// Stores the reservations that hosts make, in their order. Does not return.
    pub async fn keep_reservations_forever(self: Arc<Self>) {
        loop {
            let ToKeep {
                volume,
                table,
                kept,
            } = self.engine.next_to_keep().await;
            let stored = self.keep_reservations(volume.clone(), table).await;
            if let Err(error) = &stored {
                tracing::error!(%volume, %error, "reservations cannot be stored, and stay as they were");
            }
            kept.tell(stored.is_ok());
        }
    }

    async fn keep_reservations(
        &self,
        name: VolumeName,
        table: Option<StoredTable>,
    ) -> Result<(), ControlError> {
        let mut keeper = self.keeper().await?;
        let before = self.state();
        let change = Change::SetReservations { name, table };
        let outcome = before.changed_by(&change, &mut |_| {})?;
        if !outcome.changed {
            return Ok(());
        }
        let next = Arc::new(outcome.state);
        let saved = keeper.save(&next).await;
        if saved.is_err() && is_in_place(&saved) {
            self.roll_back(&mut keeper, &before, &next).await;
        }
        saved?;
        // Nothing else is served because of it.
        lock(&self.live).state = next;
        Ok(())
    }

    /// Tries again to open a volume that is not open, or images of it that were given up; one that is open and not lost stays as it is.
    ///
    /// # Errors
    /// There is no such volume, it is being opened already, it still cannot be opened, or it is lost.
    pub async fn retry_volume(self: &Arc<Self>, name: VolumeName) -> Result<(), ControlError> {
        let control = self.clone();
        to_the_end(async move { control.retry_volume_now(&name).await }).await
    }

    async fn retry_volume_now(self: &Arc<Self>, name: &VolumeName) -> Result<(), ControlError> {
        drop(self.keeper().await?);
        self.state().volume(name)?;
        if self.engine.volume(name).is_some() {
            return self.open_gone(name).await;
        }
        let busy = self.claim(name, Doing::Opening)?;
        let url = self.state().volume(name)?.url.clone();
        // It may have been opened just now.
        if self.engine.volume(name).is_some() {
            return Ok(());
        }
        let attempt = self.begin_open(busy, url.clone(), Opening::Existing, None);
        match ended_by(Instant::now() + OPEN_TIME_MAX, attempt).await {
            Some((opened, busy)) => self.conclude(opened, busy, &url).await,
            None => {
                let error = unanswered(name, OPEN_TIME_MAX, SERVED_LATER);
                self.note_volume(name, Some(&error));
                Err(error.into())
            }
        }
    }

    /// Has what is given up of an open volume opened again. What is lost otherwise comes back by itself.
    async fn open_gone(&self, name: &VolumeName) -> Result<(), ControlError> {
        let url = self.state().volume(name)?.url.clone();
        let opened = self.engine.reopen_volume(name, &url);
        let opened = tokio::time::timeout(OPEN_TIME_MAX, opened).await;
        opened.map_err(|_| unanswered(name, OPEN_TIME_MAX, SERVED_LATER))??;
        match self.engine.volume(name) {
            Some(report) if report.lost => {
                let reason = "it is open, and lost: its medium cannot be reached, which is tried again by itself";
                Err(EngineError::OpenVolume {
                    name: name.clone(),
                    reason: reason.to_owned(),
                    in_use: false,
                }
                .into())
            }
            _ => Ok(()),
        }
    }

    /// Tries again to open a listener that is not open; one that is open stays as it is.
    ///
    /// # Errors
    /// There is no such listener, or it still cannot be opened.
    pub async fn retry_listener(
        self: &Arc<Self>,
        address: ListenerAddress,
    ) -> Result<(), ControlError> {
        let control = self.clone();
        to_the_end(async move {
            let mut keeper = control.keeper().await?;
            let state = control.state();
            let portal = state.portal(&address)?;
            if !control.failures().listeners.contains_key(&address) {
                return Ok(());
            }
            let opened = control.engine.open_listener(&address, portal).await;
            control.note_listener(&address, opened.as_ref().err());
            opened?;
            // Hosts find it in the discovery log from now on, and the log's counter tells them.
            let change = Change::CountListener {
                address: address.clone(),
            };
            let next = Arc::new(state.changed_by(&change, &mut |_| {})?.state);
            if let Err(error) = keeper.save(&next).await {
                // It is served all the same, as at any start.
                tracing::error!(%error, "a listener that came late is not counted");
                control.engine.apply(state).await?;
                return Ok(());
            }
            lock(&control.live).state = next.clone();
            control.engine.apply(next).await?;
            Ok(())
        })
        .await
    }

    /// Tries everything that is not open again, with pauses that double up to a minute. Does not
    /// return.
    pub async fn retry_forever(self: Arc<Self>) {
        let mut pause = RETRY_PAUSE_MIN;
        loop {
            tokio::time::sleep(pause).await;
            let failures = self.failures();
            let mut tries = JoinSet::new();
            for name in failures.volumes.into_keys() {
                let control = self.clone();
                // What goes wrong is noted where it can be seen; nobody waits for this answer.
                tries.spawn(async move { drop(control.retry_volume(name).await) });
            }
            // What takes longer goes on, and keeps no other from being tried.
            let all = async { while tries.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(RETRY_WAIT, all).await;
            for address in failures.listeners.keys() {
                let _ = self.retry_listener(address.clone()).await;
            }
            let worse = !self.failures().is_empty();
            pause = if worse {
                (pause * 2).min(RETRY_PAUSE_MAX)
            } else {
                RETRY_PAUSE_MIN
            };
        }
    }

    /// Ends the data path, after the change that is being carried through. No change is accepted
    /// from now on.
    ///
    /// # Errors
    /// The data path did not end as it should.
    pub async fn shut_down(&self, drain: Duration) -> Result<(), EngineError> {
        self.keeper.lock().await.shutting_down = true;
        // What the medium has done is in the state too, if it can be had soon.
        let resizing = || {
            lock(&self.busy)
                .values()
                .any(|doing| *doing == Doing::Resizing)
        };
        let all = async {
            while resizing() {
                tokio::time::sleep(START_POLL).await;
            }
        };
        if tokio::time::timeout(RESIZE_END_MAX, all).await.is_err() {
            tracing::warn!("a volume is being resized still, and its medium does not answer");
        }
        self.engine.shutdown(drain).await
    }

    /// Notes that a volume is open, or why not. Says so in the log if that is news.
    fn note_volume(&self, name: &VolumeName, error: Option<&EngineError>) {
        let live = &mut *lock(&self.live);
        // It may have been removed while it was waited for.
        if live.state.volumes.contains_key(name) {
            note(&mut live.failures.volumes, name, error);
        }
    }

    fn note_listener(&self, address: &ListenerAddress, error: Option<&EngineError>) {
        let failures = &mut lock(&self.live).failures.listeners;
        note(failures, address, error);
    }
}

/// What becomes of a volume that is not open in time where it is in the state, and where it is not.
const SERVED_LATER: &str = "it is served as soon as it has";
const CLOSED_LATER: &str = "it is not added, whatever it answers later";

/// A volume that neither opened nor failed in time.
fn unanswered(name: &VolumeName, longest: Duration, then: &str) -> EngineError {
    let seconds = longest.as_secs();
    EngineError::OpenVolume {
        name: name.clone(),
        reason: format!("its medium has not answered within {seconds} seconds; {then}"),
        in_use: false,
    }
}

/// What comes until `end`; whoever sends later learns that nobody waits any more.
async fn ended_by<T>(end: Instant, mut answer: oneshot::Receiver<T>) -> Option<T> {
    match tokio::time::timeout_at(end, &mut answer).await {
        Ok(answered) => answered.ok(),
        Err(_) => {
            answer.close();
            // It may have come just now.
            answer.try_recv().ok()
        }
    }
}

fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel has random bits for every process");
}

/// Opens something, as soon as it is no longer in use and until `deadline`.
async fn when_free<'a>(
    deadline: Instant,
    open: impl Fn() -> Reply<'a, ()>,
) -> Result<(), EngineError> {
    let mut told = false;
    loop {
        let opened = open().await;
        match &opened {
            Err(
                error @ (EngineError::OpenVolume { in_use: true, .. }
                | EngineError::Listen { in_use: true, .. }),
            ) if Instant::now() < deadline => {
                if !told {
                    tracing::info!(%error, "waits for it to become free");
                    told = true;
                }
            }
            _ => return opened,
        }
        tokio::time::sleep(START_POLL).await;
    }
}

fn note<K: Ord + Clone + std::fmt::Display>(
    failures: &mut BTreeMap<K, String>,
    key: &K,
    error: Option<&EngineError>,
) {
    match error {
        None => {
            if failures.remove(key).is_some() {
                tracing::info!(name = %key, "opened after all");
            }
        }
        Some(error) => {
            let reason = error.to_string();
            if failures.insert(key.clone(), reason.clone()).as_ref() != Some(&reason) {
                tracing::error!(name = %key, reason, "cannot be opened; it will be tried again");
            }
        }
    }
}

fn missing<'a, K: Clone + 'a>(
    before: impl Iterator<Item = &'a K>,
    after: impl Fn(&K) -> bool,
) -> Vec<K> {
    before.filter(|key| !after(key)).cloned().collect()
}

/// Runs `work` on a task of its own, so that it ends even when the caller is dropped.
async fn to_the_end<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    match tokio::spawn(work).await {
        Ok(result) => result,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
