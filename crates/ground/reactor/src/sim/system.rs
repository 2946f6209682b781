//! A simulated host, as the reactors on it see it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::network::{address_v4, address_v6, failure};
use super::settings::HostId;
use super::world::{ReactorState, State, World};
use crate::net::Shutdown;
use crate::remote::Shared;
use crate::{
    File, FileInfo, Handle, Listener, Notifier, OpenOptions, ReactorConfig, ReactorMain,
    ReactorThread, Remote, Socket, SocketOptions, SocketReport, System,
};

/// When simulated worlds begin: 2026-01-01 00:00 UTC, since the Unix epoch.
const BEGINNING: Duration = Duration::from_secs(1_767_225_600);

pub(super) struct SimulatedSystem {
    pub(super) world: World,
    pub(super) host: HostId,
}

/// A reactor that was started and does not run yet: reactors cannot be made where any thread might be.
pub(super) struct Starting {
    pub(super) system: Arc<SimulatedSystem>,
    pub(super) reactor: usize,
    pub(super) config: ReactorConfig,
    pub(super) shared: Arc<Shared>,
    pub(super) main: ReactorMain,
}

impl Starting {
    pub(super) fn host(&self) -> HostId {
        self.system.host
    }
}

/// The simulation turns every reactor in every round, so that none sleeps.
struct NeverAsleep;

impl Notifier for NeverAsleep {
    fn notify(&self) {}
}

pub(super) fn new_shared(config: &ReactorConfig) -> Arc<Shared> {
    Shared::new(config.id, Arc::new(NeverAsleep))
}

impl SimulatedSystem {
    /// The state, unless this host is down.
    fn on_host<T>(&self, work: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.world.lock();
        let host = &state.hosts[self.host.0];
        if !host.up {
            return Err(io::Error::other(format!("host {} is down", host.name)));
        }
        work(&mut state)
    }
}

impl State {
    pub(super) fn add_reactor(&mut self, host: HostId, config: &ReactorConfig) -> usize {
        self.schedule.add_reactor();
        self.reactors.push(ReactorState {
            host,
            id: config.id,
            dead: false,
            ended: false,
            stalled_until: 0,
            receive_bytes_held: 0,
            operations: Default::default(),
        });
        self.reactors.len() - 1
    }
}

impl System for SimulatedSystem {
    fn wall_clock(&self) -> Duration {
        let state = self.world.lock();
        let clock = BEGINNING + Duration::from_nanos(state.schedule.now);
        Duration::from_nanos((clock.as_nanos() as u64).wrapping_add_signed(state.wall_clock_step))
    }

    fn random_bytes(&self, bytes: &mut [u8]) {
        self.world.lock().schedule.random.fill(bytes);
    }

    fn processors(&self) -> Vec<usize> {
        (0..self.world.lock().hosts[self.host.0].processors).collect()
    }

    fn start_reactor(
        self: Arc<Self>,
        config: ReactorConfig,
        main: ReactorMain,
    ) -> io::Result<ReactorThread> {
        let shared = new_shared(&config);
        let remote = Remote {
            shared: Arc::clone(&shared),
        };
        let world = self.world.clone();
        let system = Arc::clone(&self);
        let reactor = self.on_host(|state| {
            let reactor = state.add_reactor(system.host, &config);
            state.starting.push(Starting {
                system,
                reactor,
                config,
                shared,
                main,
            });
            Ok(reactor)
        })?;
        let join = move || {
            super::drive_until(&|| {
                let state = world.lock();
                state.reactors[reactor].ended || state.reactors[reactor].dead
            });
        };
        Ok(ReactorThread::new(remote, Box::new(join)))
    }

    fn offload(&self, work: Box<dyn FnOnce() + Send>) {
        let refused = self.world.lock().offload(self.host, work);
        drop(refused);
    }

    fn open_file(
        self: Arc<Self>,
        path: &Path,
        options: &OpenOptions,
    ) -> io::Result<(Arc<File>, FileInfo)> {
        let (handle, info) = self.on_host(|state| {
            state
                .disks
                .open(&mut state.schedule, self.host, path, options)
        })?;
        Ok((File::new(handle, self), info))
    }

    fn file_length(&self, file: Handle) -> io::Result<u64> {
        self.on_host(|state| state.disks.length(file))
    }

    fn set_file_length(&self, file: Handle, length: u64) -> io::Result<()> {
        self.on_host(|state| state.disks.set_length(file, length))
    }

    fn sync_file(&self, file: Handle) -> io::Result<()> {
        self.on_host(|state| state.disks.sync(&mut state.schedule, file))
    }

    fn listen(
        self: Arc<Self>,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Listener> {
        let (handle, address) = self.on_host(|state| {
            state
                .network
                .listen(&mut state.schedule, self.host, address, options)
        })?;
        Ok(Listener::new(Socket::new(handle, self), address))
    }

    fn socket(self: Arc<Self>, _: SocketAddr, options: &SocketOptions) -> io::Result<Socket> {
        let handle = self.on_host(|state| {
            state
                .network
                .socket(&mut state.schedule, self.host, options)
        })?;
        Ok(Socket::new(handle, self))
    }

    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(ip) = literal.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let with_port = |ips: [IpAddr; 2]| ips.map(|ip| SocketAddr::new(ip, port)).to_vec();
        if host == "localhost" {
            let ips = [Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()];
            return Ok(with_port(ips));
        }
        self.on_host(|state| {
            let found = state.hosts.iter().position(|other| other.name == host);
            let found = HostId(found.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("no host is named {host}"))
            })?);
            Ok(with_port([
                address_v4(found).into(),
                address_v6(found).into(),
            ]))
        })
    }

    fn set_socket_options(&self, socket: Handle, options: &SocketOptions) -> io::Result<()> {
        self.on_host(|state| {
            let schedule = &mut state.schedule;
            state.network.set_options(schedule, socket, options)
        })
    }

    fn socket_report(&self, socket: Handle) -> io::Result<SocketReport> {
        self.on_host(|state| state.network.report(socket))
    }

    fn has_peer_ended(&self, socket: Handle) -> bool {
        self.on_host(|state| state.network.has_peer_ended(socket))
            .unwrap_or(true)
    }

    fn local_address(&self, socket: Handle) -> io::Result<SocketAddr> {
        self.on_host(|state| state.network.local_address(socket))
    }

    fn shutdown(&self, socket: Handle, how: Shutdown) {
        let ended = self.on_host(|state| {
            state.network.shutdown(&mut state.schedule, socket, how);
            Ok(())
        });
        // A host that is down has no connections to end.
        drop(ended);
    }

    fn abort(&self, socket: Handle) {
        let state = &mut *self.world.lock();
        state.network.abort(&mut state.schedule, socket);
    }

    fn close(&self, handle: Handle) {
        self.world.lock().close(handle);
    }
}

/// The error of everything that a reactor does after its host crashed.
pub(super) fn cancelled() -> io::Error {
    failure(libc::ECANCELED)
}
