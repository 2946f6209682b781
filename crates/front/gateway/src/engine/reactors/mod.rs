//! The engine that serves: reactors on io_uring, volumes behind guards, a front end for each protocol.
//!
//! What is here only carries the control plane's wishes to those who do the work, and their answers
//! back. It runs on the control thread; what may block goes to a thread of its own.

mod counters;
mod front_end;
mod identity;
mod iscsi;
mod limits;
mod listen;
mod nfs;
mod nfs_file;
mod nvme;
mod reservations;
mod volumes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;
use weir_front::{FrontError, HubLimits, Hubs, Latency, MemoryNeeds};
use weir_iscsi_host::IscsiHost;
use weir_nfs_host::{NfsHost, User};
use weir_nvme_host::NvmeHost;
use weir_rbd::RbdHost;
use weir_reactor::linux::{Feature, FeatureState, LinuxConfig, LinuxSystem};
use weir_reactor::{
    PanicPolicy, ReactorConfig, ReactorId, ReactorMain, ReactorThread, Remote, System,
};
use weir_volume::{LimitedVolume, Registry};

use self::front_end::{FrontEndKind, FrontEnds, Served, memory_needs_of};
use super::{
    ConnectionReport, Engine, EngineError, EngineFuture, EngineStart, ListenerReport, Opening,
    ReactorReport, Reply, ReservationReport, RevokedReport, Started, ThrottledReport, ToKeep,
    VolumeReport,
};
use crate::config::{Config, Environment};
use crate::kinds;
use crate::metrics::Family;
use crate::name::{ListenerAddress, VolumeName};
use crate::state::{ExportName, Portal, Protocol, State};

/// The front ends that the engine is built with.
const FRONT_ENDS: [FrontEndKind; 3] = [nvme::KIND, iscsi::KIND, nfs::KIND];
/// The protocol at listeners that the service manager hands over.
const INHERITED: Protocol = nvme::PROTOCOL;

/// Longest time for a reactor's answer to a question that takes no time.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Time that ending may take on top of the drain.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// The engine that serves.
pub struct ReactorEngine {
    system: Arc<LinuxSystem>,
    reactors: Vec<Running>,
    registry: Registry,
    /// This gateway as a host of other targets, for `nvme+tcp:` volumes.
    host: Arc<NvmeHost>,
    initiator: Arc<IscsiHost>,
    nfs_client: Arc<NfsHost>,
    /// This gateway as a user of Ceph, for `rbd:` volumes.
    rbd: Arc<RbdHost>,
    hubs: Hubs,
    front_ends: FrontEnds,
    user_timeout: Duration,
    keep_alive: Duration,
    /// Buffers of each socket where its listener says nothing.
    socket_buffer: Option<u32>,
    books: Mutex<Books>,
    /// Reservations that are to be stored.
    to_keep: mpsc::UnboundedSender<ToKeep>,
    kept_next: tokio::sync::Mutex<mpsc::UnboundedReceiver<ToKeep>>,
}

/// A reactor that runs.
struct Running {
    remote: Remote,
    processor: Option<usize>,
    /// Taken when it is waited for.
    thread: Mutex<Option<ReactorThread>>,
}

/// What is open.
#[derive(Default)]
struct Books {
    volumes: BTreeMap<VolumeName, volumes::Open>,
    /// The open volumes as front ends serve them.
    served: BTreeMap<ExportName, Arc<LimitedVolume>>,
    /// The reservations of the state's volumes, whether or not these are open.
    reservations: reservations::ByVolume,
    listeners: BTreeMap<ListenerAddress, listen::Bound>,
    inherited: Vec<(String, SocketAddr)>,
    /// The state that is served.
    state: Option<Arc<State>>,
    next_reactor: usize,
}

impl Books {
    /// Every socket that listens; those of the state come first.
    fn sockets(&self) -> Vec<listen::Socket> {
        let own = self.listeners.values().flat_map(|bound| {
            let socket = |address: &SocketAddr| listen::Socket {
                address: *address,
                protocol: bound.listener.protocol,
                advertise: bound.listener.advertise.clone(),
            };
            bound.addresses.iter().map(socket)
        });
        let inherited = self.inherited.iter().map(|(_, address)| listen::Socket {
            address: *address,
            protocol: INHERITED,
            advertise: None,
        });
        own.chain(inherited).collect()
    }
}

/// Memory that hosts can make all front ends keep.
pub fn memory_needs(config: &Config) -> MemoryNeeds {
    memory_needs_of(&FRONT_ENDS, config)
}

/// Starts the engine. Where io_uring cannot be used, the error says why and how to mend it.
pub fn start(start: EngineStart<'_>) -> EngineFuture<'_> {
    Box::pin(async move {
        let engine = ReactorEngine::start(start).await?;
        let ceph = engine.rbd.clone();
        let engine = Arc::new(engine);
        Ok(Started { engine, ceph })
    })
}

impl ReactorEngine {
    async fn start(
        start: EngineStart<'_>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let EngineStart {
            config,
            plan,
            listeners,
        } = start;
        let linux = LinuxConfig {
            forced_off: config.features_off.clone(),
            ..Default::default()
        };
        let system = LinuxSystem::new(linux)?;
        log_features(&system);
        let reactors = start_reactors(&system, config, plan.reactors, plan.pool_bytes)?;
        let reactors_u16 = u16::try_from(plan.reactors).unwrap_or(u16::MAX);
        let remotes: Vec<_> = reactors
            .iter()
            .map(|running| running.remote.clone())
            .collect();
        let limits = HubLimits {
            bytes_in_flight: plan.pool_bytes,
            ..HubLimits::default()
        };
        let hubs = Hubs::new(&remotes, &limits);
        let hubs = hubs.map_err(|reactor| FrontError::Stopped { reactor })?;
        let front_ends = FrontEnds::start(&FRONT_ENDS, &hubs, config, &plan).await?;
        let host = NvmeHost::new(identity::of_this_machine(&*system)?, reactors_u16);
        let initiator = IscsiHost::new(identity::initiator(&*system)?, reactors_u16);
        let nfs_client = NfsHost::new(User::of_this_process(), reactors_u16);
        let state = config.state_path(&Environment::of_this_process());
        let identity = identity::of_this_gateway(&*system, &state)?;
        let rbd = RbdHost::new(identity, weir_rbd::Libraries::default());
        let (to_keep, kept_next) = mpsc::unbounded_channel();
        let engine = Self {
            system,
            reactors,
            registry: kinds::registry(&host, &initiator, &nfs_client, &rbd),
            host,
            initiator,
            nfs_client,
            rbd,
            hubs,
            front_ends,
            user_timeout: config.transport.user_timeout,
            keep_alive: config.transport.keep_alive,
            socket_buffer: plan.socket_buffer,
            books: Mutex::default(),
            to_keep,
            kept_next: kept_next.into(),
        };
        for (name, listener) in listeners {
            engine.adopt(name, listener).await?;
        }
        Ok(engine)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books
            .lock()
            .expect("nothing panics while it holds the books")
    }

    fn system(&self) -> Arc<dyn System> {
        self.system.clone()
    }

    /// The reactors in turn, for work that any of them can do.
    fn next_reactor(&self) -> Remote {
        let mut books = self.books();
        books.next_reactor = (books.next_reactor + 1) % self.reactors.len();
        self.reactors[books.next_reactor].remote.clone()
    }

    /// Serves `state` with what is open now.
    async fn serve(&self, state: Arc<State>) -> Result<(), EngineError> {
        let (served, options, limits) = {
            let mut books = self.books();
            books.state = Some(state.clone());
            let options = listen::changed_options(&mut books.listeners, &state);
            let limits = limits::take_over(&mut books, &state);
            reservations::take_over(&mut books, &state, &self.hubs, &self.to_keep);
            let served = Served {
                state,
                exports: books.served.clone(),
                reservations: books.reservations.clone(),
                sockets: books.sockets(),
            };
            (served, options, limits)
        };
        for (protocol, address, options) in options {
            let options = self.socket_options(&options);
            let front = self.front_ends.of(protocol);
            let result = front.set_options(address, options).await;
            result.map_err(front_failure)?;
        }
        limits.in_force().await?;
        self.front_ends.apply(&served).await.map_err(front_failure)
    }

    async fn ask_reactors(&self) -> Result<Vec<ReactorReport>, EngineError> {
        let connections = self.front_ends.connections().await;
        let mut reports = Vec::new();
        for (index, running) in self.reactors.iter().enumerate() {
            let id = running.remote.id().0;
            let asked = running
                .remote
                .call(|reactor| async move { (reactor.stats(), reactor.pool().usage()) });
            let lost = EngineError::ReactorLost { id };
            let Ok(Ok((stats, usage))) = tokio::time::timeout(ANSWER_TIME_MAX, asked).await else {
                return Err(lost);
            };
            let own = connections
                .iter()
                .filter(|connection| connection.reactor as usize == index);
            reports.push(ReactorReport {
                id,
                processor: running.processor.map(|processor| processor as u32),
                connections: own.count() as u32,
                turns: stats.turns,
                busy_turns: stats.busy_turns,
                sleeps: stats.sleeps,
                busy_ns: stats.busy_ns,
                spin_ns: stats.spin_ns,
                sleep_ns: stats.sleep_ns,
                pause_ns: 0,
                wake_up_ns: stats.wake_up_ns,
                processor_wait_ns: stats.processor_wait_ns,
                operations: stats.operations,
                pool_used_bytes: usage.used_bytes as u64,
                pool_held_bytes: usage.held_bytes as u64,
                pool_limit_bytes: usage.limit_bytes as u64,
            });
        }
        Ok(reports)
    }

    /// Ends the front ends, the connections to other targets and the reactors, in this order.
    async fn end(&self, drain: Duration) -> Result<(), EngineError> {
        let time = drain + END_TIME_MAX;
        if tokio::time::timeout(time, self.front_ends.shutdown(drain))
            .await
            .is_err()
        {
            let reason = format!("connections did not end within {time:?}");
            return Err(EngineError::Failed { reason });
        }
        self.rbd.close_all().await;
        for remote in self.reactors.iter().map(|running| &running.remote) {
            // A volume ends with the reactor that it is on if it does not end by itself.
            let remote_volumes = async {
                self.host.close_all().await;
                self.initiator.close_all().await;
                self.nfs_client.close_all().await;
            };
            let closing = tokio::time::timeout(ANSWER_TIME_MAX, remote_volumes);
            if closing.await.is_err() {
                tracing::warn!("volumes on other targets were not disconnected in order");
            }
            remote.stop();
        }
        self.books().served.clear();
        self.books().volumes.clear();
        for running in &self.reactors {
            let thread = running
                .thread
                .lock()
                .expect("nothing panics with it")
                .take();
            let Some(thread) = thread else { continue };
            let joined = tokio::task::spawn_blocking(move || thread.join());
            match tokio::time::timeout(END_TIME_MAX, joined).await {
                Ok(Ok(())) => {}
                _ => {
                    return Err(EngineError::ReactorLost {
                        id: running.remote.id().0,
                    });
                }
            }
        }
        Ok(())
    }
}

/// Says which kernel features beyond the oldest supported kernel are used.
fn log_features(system: &LinuxSystem) {
    for feature in Feature::ALL {
        let state = match system.features().state(feature) {
            FeatureState::Used => "used",
            FeatureState::Absent => "not in this kernel",
            FeatureState::ForcedOff => "forced off",
        };
        tracing::info!(%feature, state, "kernel feature");
    }
}

fn start_reactors(
    system: &Arc<LinuxSystem>,
    config: &Config,
    count: u32,
    pool_bytes: u64,
) -> std::io::Result<Vec<Running>> {
    let processors = system.processors();
    let start = |index: u32| {
        let place = config.pin.then(|| processors.get(index as usize).copied());
        let processor = place.flatten();
        let reactor = ReactorConfig {
            id: ReactorId(index),
            name: format!("weir-{index}"),
            processor,
            spin: config.spin,
            pool_bytes: usize::try_from(pool_bytes).unwrap_or(usize::MAX),
            on_panic: PanicPolicy::Abort,
        };
        let until_told: ReactorMain = Box::new(|_reactor| Box::pin(std::future::pending()));
        let thread = system.clone().start_reactor(reactor, until_told)?;
        let remote = thread.remote.clone();
        Ok(Running {
            remote,
            processor,
            thread: Mutex::new(Some(thread)),
        })
    };
    (0..count).map(start).collect()
}

/// An error of a front end, as the control plane knows it.
fn front_failure(error: FrontError) -> EngineError {
    match error {
        FrontError::Stopped { reactor } => EngineError::ReactorLost { id: reactor as u32 },
        FrontError::NoConnection { id } => EngineError::UnknownConnection { id },
        other => EngineError::Failed {
            reason: other.to_string(),
        },
    }
}

impl Engine for ReactorEngine {
    fn open_volume<'a>(
        &'a self,
        name: &'a VolumeName,
        url: &'a str,
        opening: Opening,
    ) -> Reply<'a, ()> {
        Box::pin(self.open(name, url, opening))
    }

    fn close_volume<'a>(&'a self, name: &'a VolumeName) -> Reply<'a, ()> {
        Box::pin(self.close(name))
    }

    fn resize_volume<'a>(
        &'a self,
        name: &'a VolumeName,
        url: &'a str,
        size_bytes: u64,
        force: bool,
    ) -> Reply<'a, String> {
        Box::pin(self.resize(name, url, size_bytes, force))
    }

    fn volume(&self, name: &VolumeName) -> Option<VolumeReport> {
        let books = self.books();
        let reservations = books.reservations.get(name);
        let reservations = reservations.and_then(|of| ReservationReport::of(&of.table()));
        books
            .volumes
            .get(name)
            .map(|open| open.report(reservations))
    }

    fn discard_reservations<'a>(&'a self, name: &'a VolumeName) -> Reply<'a, ()> {
        let reservations = self.books().reservations.get(name).cloned();
        Box::pin(async move {
            let Some(reservations) = reservations else {
                return Ok(());
            };
            let (sender, receiver) = tokio::sync::oneshot::channel();
            reservations.discard(move |result| {
                // Whoever asked may have lost interest.
                let _ = sender.send(result);
            });
            let failed = |reason: String| EngineError::Failed { reason };
            match receiver.await {
                Ok(result) => result.map_err(|error| failed(error.to_string())),
                Err(_) => Err(failed("the reservations were closed".to_owned())),
            }
        })
    }

    fn next_to_keep(&self) -> Pin<Box<dyn Future<Output = ToKeep> + Send + '_>> {
        Box::pin(async {
            let next = self.kept_next.lock().await.recv().await;
            next.expect("the engine has a sender itself")
        })
    }

    fn reopen_volume<'a>(&'a self, name: &'a VolumeName, url: &'a str) -> Reply<'a, ()> {
        Box::pin(self.reopen(name, url))
    }

    fn open_listener<'a>(
        &'a self,
        address: &'a ListenerAddress,
        listener: &'a Portal,
    ) -> Reply<'a, ()> {
        Box::pin(self.listen(address, listener))
    }

    fn close_listener<'a>(&'a self, address: &'a ListenerAddress) -> Reply<'a, ()> {
        Box::pin(async move {
            let Some(bound) = self.books().listeners.remove(address) else {
                return Ok(());
            };
            for address in bound.addresses {
                let front = self.front_ends.of(bound.listener.protocol);
                let closed = front.stop_listening(address).await;
                closed.map_err(front_failure)?;
            }
            Ok(())
        })
    }

    fn look_at_directory<'a>(&'a self, path: &'a str) -> Reply<'a, String> {
        let (system, path) = (self.system(), path.into());
        Box::pin(async move {
            let looked = tokio::task::spawn_blocking(|| nfs::look_at_directory(system, path));
            let failed = |error: tokio::task::JoinError| EngineError::Failed {
                reason: error.to_string(),
            };
            looked.await.map_err(failed)?
        })
    }

    fn listeners(&self) -> Vec<ListenerReport> {
        let books = self.books();
        let own = books
            .listeners
            .iter()
            .map(|(address, bound)| ListenerReport {
                address: Some(address.clone()),
                inherited: None,
                bound: bound.addresses.clone(),
            });
        let inherited = books
            .inherited
            .iter()
            .map(|(name, address)| ListenerReport {
                address: None,
                inherited: Some(name.clone()),
                bound: vec![*address],
            });
        own.chain(inherited).collect()
    }

    fn apply(&self, state: Arc<State>) -> Reply<'_, ()> {
        Box::pin(self.serve(state))
    }

    fn revoked(&self) -> Reply<'_, Vec<RevokedReport>> {
        Box::pin(async { Ok(self.front_ends.revoked().await) })
    }

    fn throttled(&self, export: &ExportName) -> Option<ThrottledReport> {
        let books = self.books();
        let throttled = books.served.get(export)?.throttled();
        Some(ThrottledReport {
            requests: throttled.requests,
            waited_ns: throttled.waited_ns,
            waiting: throttled.waiting,
        })
    }

    fn connections(&self) -> Reply<'_, Vec<ConnectionReport>> {
        Box::pin(async { Ok(self.front_ends.connections().await) })
    }

    fn disconnect(&self, id: u64) -> Reply<'_, ()> {
        Box::pin(async move { self.front_ends.disconnect(id).await.map_err(front_failure) })
    }

    fn reactors(&self) -> Reply<'_, Vec<ReactorReport>> {
        Box::pin(self.ask_reactors())
    }

    fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> Reply<'_, BTreeMap<ExportName, Latency>> {
        Box::pin(async { Ok(self.front_ends.export_latencies(only).await) })
    }

    fn connection_latencies(&self, only: Option<u64>) -> Reply<'_, BTreeMap<u64, Latency>> {
        Box::pin(async move { Ok(self.front_ends.connection_latencies(only).await) })
    }

    fn counters(&self) -> Reply<'_, Vec<Family>> {
        Box::pin(self.count())
    }

    fn shutdown(&self, drain: Duration) -> Reply<'_, ()> {
        Box::pin(self.end(drain))
    }
}
