//! The front end as its owner sees it: what it serves, where it listens, who is connected.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use weir_block::Volume;
use weir_front::{
    ConnectionState, Front, FrontError, FrontStats, Groups, Hubs, IoTotals, Latency, ListenAt,
};
use weir_reactor::SocketOptions;

use crate::config::NfsConfig;
use crate::handle::HandleKey;
use crate::protocol::{About, ClientInfo, NfsShared};
use crate::replies::Replies;
use crate::served::{Export, Snapshot, Source};
use crate::session::NfsSession;
use crate::state::{Keeper, State};
use crate::volumes::{VolumeFile, number_of};

/// Properties of a server that outlive it.
pub struct Persistent {
    /// Key of its handles.
    pub key: HandleKey,
    /// Names it for clients: the same behind all its addresses, and after a restart.
    pub name: Vec<u8>,
    /// Keeps which clients may reclaim.
    pub keeper: Arc<dyn Keeper>,
    /// Those that may, as they were kept last.
    pub reclaiming: BTreeSet<Vec<u8>>,
}

/// The NFS front end on a number of reactors. Clones are handles of one front end, and may be used on any thread.
#[derive(Clone)]
pub struct Nfs {
    front: Front<NfsSession>,
    served: Arc<Mutex<Served>>,
}

/// The present snapshot, and those before it.
#[derive(Default)]
struct Served {
    now: Arc<Snapshot>,
    /// Counts snapshots.
    generation: u64,
    /// Snapshots of which something was taken away, while calls are under way that began under them.
    before: Vec<Before>,
}

/// A snapshot that is not served any more.
struct Before {
    snapshot: Weak<Snapshot>,
    /// The exports of which it took something away.
    taken: Vec<u32>,
}

/// Tells whether clients may do less with an export than before.
fn is_less(before: &Export, now: Option<&Export>) -> bool {
    let Some(now) = now else { return true };
    let is_less = |file: &VolumeFile| {
        let same = is_in(now, file);
        same.is_none_or(|now| now.is_read_only && !file.is_read_only)
    };
    now.is_read_only && !before.is_read_only
        || now.allowed != before.allowed
        || before.source.volumes().iter().any(is_less)
}

/// Tells whether an export has a file no more that is a volume.
fn is_gone(export: &Export, file: &VolumeFile) -> bool {
    match &export.source {
        Source::Volumes(volumes) => {
            volumes.file(file.number).is_none() && !volumes.is_absent(file.number)
        }
        Source::Files(_) => true,
    }
}

/// A file that is a volume, as an export has it now; none: it is gone, or another volume has its place.
fn is_in<'a>(export: &'a Export, file: &VolumeFile) -> Option<&'a VolumeFile> {
    let mut files = export.source.volumes().iter();
    files.find(|now| now.number == file.number && Arc::ptr_eq(&now.volume, &file.volume))
}

impl Nfs {
    /// A front end on the reactors of `hubs` that serves nothing yet and listens nowhere.
    ///
    /// # Errors
    /// [`FrontError::NoReactor`] or [`FrontError::Stopped`].
    pub async fn on(
        hubs: &Hubs,
        config: NfsConfig,
        persistent: Persistent,
    ) -> Result<Self, FrontError> {
        if hubs.reactors() == 0 {
            return Err(FrontError::NoReactor);
        }
        let first = hubs.of_first(|reactor| (reactor.now(), reactor.random()));
        let (now, drawn) = first.await.ok_or(FrontError::Stopped { reactor: 0 })?;
        let limits = config.connections.clone();
        let state = State::new(
            config.clone(),
            persistent.keeper,
            persistent.reclaiming,
            now,
            drawn as u32,
            drawn.rotate_left(32),
        );
        let replies = Replies::new(config.replies_max());
        let own = NfsShared {
            replies,
            groups: Groups::default(),
            config,
            key: persistent.key,
            name: persistent.name,
            state,
            next_reactor: AtomicUsize::new(0),
        };
        Ok(Nfs {
            front: Front::new(hubs, limits, Arc::new(own)).await?,
            served: Arc::default(),
        })
    }

    fn own(&self) -> &NfsShared {
        &self.front.shared.own
    }

    fn served(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves these exports from now on, and no others. Returns when every connection has taken them over. What clients have on exports
    /// that are gone ends; [`Nfs::under_way`] tells whether calls are under way that began when clients could do more. Calls must be made
    /// one after another.
    ///
    /// # Errors
    /// [`FrontError::Stopped`].
    pub async fn apply(&self, exports: Vec<Export>) -> Result<(), FrontError> {
        let (before, now) = {
            let mut served = self.served();
            served.generation += 1;
            let now = Arc::new(Snapshot::new(exports, served.generation));
            (std::mem::replace(&mut served.now, Arc::clone(&now)), now)
        };
        let paths = now.exports().map(|export| &export.path);
        self.own().groups.add_new(paths, self.front.reactors());
        self.front.apply(Arc::clone(&now)).await?;
        let state = &self.own().state;
        for export in now.exports() {
            let before = before.export(export.number);
            let is_new =
                |file: &VolumeFile| before.is_none_or(|before| is_in(before, file).is_none());
            if export.source.volumes().iter().any(is_new) {
                // Data that an earlier volume of that name had and that was not committed may be gone.
                state.lost_data(state.verifier().wrapping_add(1));
            }
        }
        let mut taken = Vec::new();
        for export in before.exports() {
            let still = now.export(export.number);
            match still {
                None => state.end(|key| key.export == export.number),
                Some(still) => {
                    let files = export.source.volumes().iter();
                    for gone in files.filter(|file| is_gone(still, file)) {
                        let number = Some(gone.number);
                        state
                            .end(|key| key.export == export.number && number_of(&key.id) == number);
                    }
                }
            }
            if is_less(export, still) {
                taken.push(export.number);
            }
        }
        if !taken.is_empty() {
            let snapshot = Arc::downgrade(&before);
            self.served().before.push(Before { snapshot, taken });
        }
        Ok(())
    }

    /// The exports with which clients may do less than before, and on which calls are under way that began before.
    #[must_use]
    pub fn under_way(&self) -> BTreeSet<u32> {
        let mut served = self.served();
        let is_used = |before: &Before| before.snapshot.strong_count() > 0;
        served.before.retain(is_used);
        let taken = served.before.iter().flat_map(|before| &before.taken);
        taken.copied().collect()
    }

    /// Listens, and yields the address with its real port.
    ///
    /// # Errors
    /// [`FrontError::Listen`] or [`FrontError::Stopped`].
    pub async fn add_listener(&self, at: ListenAt<()>) -> Result<SocketAddr, FrontError> {
        self.front.add_listener(at).await
    }

    /// Stops listening. Connections that were accepted stay.
    ///
    /// # Errors
    /// [`FrontError::NoListener`] or [`FrontError::Stopped`].
    pub async fn remove_listener(&self, address: SocketAddr) -> Result<(), FrontError> {
        self.front.remove_listener(address).await
    }

    /// Gives the connections that are accepted at `address` from now on other options.
    ///
    /// # Errors
    /// [`FrontError::NoListener`] or [`FrontError::Stopped`].
    pub async fn set_listener_options(
        &self,
        address: SocketAddr,
        options: SocketOptions,
    ) -> Result<(), FrontError> {
        self.front.set_listener_options(address, options).await
    }

    /// The addresses that it listens on.
    #[must_use]
    pub fn listeners(&self) -> Vec<SocketAddr> {
        self.front.listeners()
    }

    /// Every client that has a session.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientInfo> {
        let clients = self.own().state.clients().into_iter();
        let info = |client: crate::state::ClientView| ClientInfo {
            id: client.id,
            name: String::from_utf8_lossy(&client.name).into_owned(),
            implementation: client.implementation,
            address: client.address,
            sessions: client.sessions,
            states: client.states,
        };
        clients.map(info).collect()
    }

    /// Every connection, with its client; none before it used a session. A reactor that has stopped has none.
    pub async fn connections(&self) -> Vec<ConnectionState<Option<ClientInfo>>> {
        let clients = self.clients().into_iter();
        let clients: BTreeMap<u64, ClientInfo> = clients.map(|one| (one.id, one)).collect();
        let connections = self.front.connections().await.into_iter();
        let with_client = |state: ConnectionState<About>| {
            let client = state.about.client.and_then(|id| clients.get(&id).cloned());
            state.with(client)
        };
        connections.map(with_client).collect()
    }

    /// Times of connections' commands, by number: of one connection, or of all.
    pub async fn connection_latencies(&self, only: Option<u64>) -> BTreeMap<u64, Latency> {
        self.front.connection_latencies(only).await
    }

    /// Times of requests of volumes since these are served as files, by the path of the export and the number of the file:
    /// of one, or of all.
    pub async fn file_latencies(
        &self,
        only: Option<(Arc<str>, u32)>,
    ) -> BTreeMap<(Arc<str>, u32), Latency> {
        self.front.export_latencies(only).await
    }

    /// The same of all files of exports that are volumes, by path; it only grows.
    pub async fn export_latencies(&self) -> BTreeMap<Arc<str>, Latency> {
        self.front.group_latencies().await
    }

    /// Latencies of each of these volumes, through all files whose [`VolumeFile::counted`] it is or was. They only grow while somebody
    /// holds the volume.
    pub async fn volume_latencies(&self, volumes: &[Arc<dyn Volume>]) -> Vec<Latency> {
        self.front.volume_latencies(volumes).await
    }

    /// Counts of what clients did with exports since the front end started, by path; removed exports included.
    #[must_use]
    pub fn totals(&self) -> Vec<(Arc<str>, IoTotals)> {
        self.own().groups.totals()
    }

    /// Ends a connection. Its client makes another one.
    ///
    /// # Errors
    /// [`FrontError::NoConnection`].
    pub async fn disconnect(&self, id: u64) -> Result<(), FrontError> {
        self.front.disconnect(id).await
    }

    /// Counts since the front end started.
    #[must_use]
    pub fn stats(&self) -> FrontStats {
        self.front.stats()
    }

    /// Stops listening, lets calls end for up to `drain`, and then ends every connection. Afterwards the front end is of no more use.
    pub async fn shutdown(&self, drain: Duration) {
        self.front.shutdown(drain).await;
    }
}

impl std::fmt::Debug for Nfs {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Nfs")
            .field("reactors", &self.front.reactors())
            .finish_non_exhaustive()
    }
}
