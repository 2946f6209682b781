//! Carries changes through.
//!
//! The order of a change is: the next state is made and checked; what it needs is opened; it is
//! stored; it is applied on every reactor; what it no longer needs is closed; it is acknowledged.
//! Whatever fails before the end is undone. Changes happen one at a time; reading waits for none.
//!
//! At start, a volume or listener that cannot be opened does not keep the gateway from serving the
//! others: it is listed as failed, with the reason, its namespaces are not ready, and it is tried
//! again on request and by itself ([`Control::retry_forever`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::{Engine, EngineError, Opening, Reply};
use crate::name::{ListenerAddress, VolumeName};
use crate::state::{Change, Outcome, State, StateError};
use crate::store::{Store, StoreError};

/// Shortest time after which what failed to open is tried again by itself.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest time after which what failed to open is tried again by itself.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// For how long a start waits for media and addresses that another process has. A gateway that was
/// killed lets go of them only after it is gone: the kernel takes its rings down on its own time.
const START_PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const START_POLL: Duration = Duration::from_millis(20);

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
    /// The gateway is ending.
    #[error("the gateway is shutting down")]
    ShuttingDown,
}

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
    /// Held while a change is carried through.
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
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        self.stored = Some(state.revision);
        Ok(())
    }
}

/// What was opened for a change, to be closed again if the change fails.
#[derive(Default)]
struct Opened {
    volumes: Vec<VolumeName>,
    listeners: Vec<ListenerAddress>,
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
        let control = Self {
            engine,
            live: Mutex::new(live),
            keeper: keeper.into(),
        };
        let engine = &control.engine;
        let deadline = Instant::now() + START_PATIENCE;
        for (name, volume) in &state.volumes {
            let open = || engine.open_volume(name, &volume.url, Opening::Existing);
            let opened = when_free(deadline, open).await;
            control.note_volume(name, opened.as_ref().err());
        }
        for (address, listener) in &state.listeners {
            let opened = when_free(deadline, || engine.open_listener(address, listener)).await;
            control.note_listener(address, opened.as_ref().err());
        }
        control.engine.apply(state).await?;
        Ok(Arc::new(control))
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

    async fn change_now(&self, change: &Change) -> Result<Outcome, ControlError> {
        let mut keeper = self.keeper().await?;
        let before = self.state();
        let mut random = |bytes: &mut [u8]| {
            getrandom::fill(bytes).expect("the kernel has random bits for every process");
        };
        let outcome = before.changed_by(change, &mut random)?;
        if !outcome.changed {
            return Ok(outcome);
        }
        let next = Arc::new(outcome.state.clone());
        let opened = self.open_added(&before, &next).await?;
        if let Err(error) = keeper.save(&next).await {
            self.close(&opened).await;
            return Err(error.into());
        }
        if let Err(error) = self.engine.apply(next.clone()).await {
            tracing::error!(%error, revision = next.revision, "a change cannot be applied");
            self.roll_back(&mut keeper, &before, &next).await;
            self.close(&opened).await;
            return Err(error.into());
        }
        lock(&self.live).state = next.clone();
        self.close_removed(&before, &next).await;
        tracing::info!(revision = next.revision, %change, "changed");
        Ok(outcome)
    }

    async fn keeper(&self) -> Result<tokio::sync::MutexGuard<'_, Keeper>, ControlError> {
        let keeper = self.keeper.lock().await;
        if keeper.shutting_down {
            Err(ControlError::ShuttingDown)
        } else {
            Ok(keeper)
        }
    }

    /// Opens what `next` has and `before` has not; all of it or nothing.
    async fn open_added(&self, before: &State, next: &State) -> Result<Opened, EngineError> {
        let mut opened = Opened::default();
        let result = self.open_each(before, next, &mut opened).await;
        if result.is_err() {
            self.close(&opened).await;
        }
        result.map(|()| opened)
    }

    async fn open_each(
        &self,
        before: &State,
        next: &State,
        opened: &mut Opened,
    ) -> Result<(), EngineError> {
        for (name, volume) in &next.volumes {
            if !before.volumes.contains_key(name) {
                self.engine
                    .open_volume(name, &volume.url, Opening::Create)
                    .await?;
                opened.volumes.push(name.clone());
            }
        }
        for (address, listener) in &next.listeners {
            if !before.listeners.contains_key(address) {
                self.engine.open_listener(address, listener).await?;
                opened.listeners.push(address.clone());
            }
        }
        Ok(())
    }

    /// Closes again what was opened for a change that failed.
    async fn close(&self, opened: &Opened) {
        for address in &opened.listeners {
            if let Err(error) = self.engine.close_listener(address).await {
                tracing::warn!(%address, %error, "a listener stays open");
            }
        }
        for name in &opened.volumes {
            if let Err(error) = self.engine.close_volume(name).await {
                tracing::warn!(%name, %error, "a volume stays open");
            }
        }
    }

    /// Closes what `before` had and `next` has not: it is not served any more.
    async fn close_removed(&self, before: &State, next: &State) {
        let gone = Opened {
            volumes: missing(before.volumes.keys(), |name| {
                next.volumes.contains_key(name)
            }),
            listeners: missing(before.listeners.keys(), |key| {
                next.listeners.contains_key(key)
            }),
        };
        self.close(&gone).await;
        let failures = &mut lock(&self.live).failures;
        gone.volumes
            .iter()
            .for_each(|name| drop(failures.volumes.remove(name)));
        gone.listeners
            .iter()
            .for_each(|address| drop(failures.listeners.remove(address)));
    }

    /// Makes what was before `failed` the state again, under a revision of its own: some reactors
    /// may have seen the failed one.
    async fn roll_back(&self, keeper: &mut Keeper, before: &State, failed: &State) {
        let mut again = before.clone();
        again.revision = failed.revision + 1;
        if failed.discovery_generation != before.discovery_generation {
            again.discovery_generation = failed.discovery_generation + 1;
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

    /// Changes a volume's size, and its URL with it.
    ///
    /// # Errors
    /// There is no such volume, it cannot have this size, or the state could not be stored.
    pub async fn resize(
        self: &Arc<Self>,
        name: VolumeName,
        size_bytes: u64,
        force: bool,
    ) -> Result<(), ControlError> {
        let control = self.clone();
        to_the_end(async move { control.resize_now(&name, size_bytes, force).await }).await
    }

    async fn resize_now(
        &self,
        name: &VolumeName,
        size_bytes: u64,
        force: bool,
    ) -> Result<(), ControlError> {
        let mut keeper = self.keeper().await?;
        let before = self.state();
        let url = &before.volume(name)?.url;
        let url = self
            .engine
            .resize_volume(name, url, size_bytes, force)
            .await?;
        let change = Change::SetVolumeUrl {
            name: name.clone(),
            url,
        };
        let outcome = before.changed_by(&change, &mut |_| {})?;
        if !outcome.changed {
            return Ok(());
        }
        let next = Arc::new(outcome.state);
        let not_stored = |source| ControlError::ResizeNotStored {
            name: name.clone(),
            source,
        };
        keeper.save(&next).await.map_err(not_stored)?;
        lock(&self.live).state = next.clone();
        self.engine.apply(next).await?;
        tracing::info!(%name, size_bytes, "resized");
        Ok(())
    }

    /// Tries again to open a volume that is not open; one that is open stays as it is.
    ///
    /// # Errors
    /// There is no such volume, or it still cannot be opened.
    pub async fn retry_volume(self: &Arc<Self>, name: VolumeName) -> Result<(), ControlError> {
        let control = self.clone();
        to_the_end(async move {
            let _keeper = control.keeper().await?;
            let state = control.state();
            let url = &state.volume(&name)?.url;
            if control.engine.volume(&name).is_some() {
                return Ok(());
            }
            let opened = control
                .engine
                .open_volume(&name, url, Opening::Existing)
                .await;
            control.note_volume(&name, opened.as_ref().err());
            opened?;
            control.engine.apply(state).await?;
            Ok(())
        })
        .await
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
            let listener = state.listener(&address)?;
            if !control.failures().listeners.contains_key(&address) {
                return Ok(());
            }
            let opened = control.engine.open_listener(&address, listener).await;
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
            for name in failures.volumes.keys() {
                // What goes wrong is noted where it can be seen; nobody waits for this answer.
                let _ = self.retry_volume(name.clone()).await;
            }
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
        self.engine.shutdown(drain).await
    }

    /// Notes that a volume is open, or why not. Says so in the log if that is news.
    fn note_volume(&self, name: &VolumeName, error: Option<&EngineError>) {
        let failures = &mut lock(&self.live).failures.volumes;
        note(failures, name, error);
    }

    fn note_listener(&self, address: &ListenerAddress, error: Option<&EngineError>) {
        let failures = &mut lock(&self.live).failures.listeners;
        note(failures, address, error);
    }
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
