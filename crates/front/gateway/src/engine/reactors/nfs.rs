//! NFS as a front end: makes its exports of the state, keeps what outlasts a restart, and makes the engine's reports.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_block::Volume;
use weir_files::{Directory, FileError, FileId, FileSystem};
use weir_front::{ConnectionState, FrontError, FrontStats, Hubs, Latency, Limits, ListenAt};
use weir_nfs_server::{
    Allowed, ClientInfo, Export, Network, Nfs, NfsConfig, Registration, Rpcbind, Source,
    VolumeFile, VolumeFiles,
};
use weir_reactor::System;

use super::counters::io_columns;
use super::front_end::{Answer, Counts, FrontEnd, FrontEndKind, MetricNames, Served, Starting};
use super::listen::socket_report;
use super::nfs_file::NfsFile;
use crate::config::{Config, Environment};
use crate::digits::{digits, parse_digits};
use crate::engine::{ClientReport, ConnectionReport, EngineError, RevokedReport};
use crate::limits::Plan;
use crate::name::{ExportPath, VolumeName};
use crate::state::{ExportName, InitiatorName, NfsExport, Protocol, State};

/// NFS.
pub(super) const KIND: FrontEndKind = FrontEndKind {
    memory_needs: |config| {
        let in_flight = config.limits.bytes_in_flight_per_connection;
        nfs_config(config, in_flight).memory_needs()
    },
    start,
};

const NAMES: MetricNames = MetricNames {
    sessions: ("weir_nfs_clients", "NFS clients that have a session."),
    group: "export",
    group_columns: io_columns!("weir_export"),
};

/// The front end's configuration, but for the numbers of connections, which are planned. What the configuration says of NVMe's
/// controllers holds for clients.
fn nfs_config(config: &Config, in_flight: u32) -> NfsConfig {
    let (limits, defaults) = (&config.limits, NfsConfig::default());
    NfsConfig {
        connections: Limits {
            max_half_open_per_address: limits.half_open_per_address,
            handshake_timeout: limits.handshake_timeout,
            progress_timeout: limits.progress_timeout,
            ..defaults.connections
        },
        clients_max: limits.controllers,
        transfer_bytes_max: defaults.transfer_bytes_max.min(in_flight),
        bytes_in_flight_per_connection: in_flight,
        ..defaults
    }
}

fn start<'a>(hubs: &'a Hubs, config: &'a Config, plan: &'a Plan) -> Starting<'a> {
    let nfs = nfs_config(config, plan.bytes_in_flight_per_connection);
    let nfs = NfsConfig {
        connections: Limits {
            max_connections: plan.connections,
            max_half_open: plan.half_open_connections,
            max_half_open_per_address: plan.half_open_per_address,
            ..nfs.connections
        },
        ..nfs
    };
    let state = config.state_path(&Environment::of_this_process());
    Box::pin(async move {
        let system = hubs.of_first(|reactor| Arc::clone(reactor.system()));
        let system = system.await.ok_or(FrontError::Stopped { reactor: 0 })?;
        let file = Arc::new(NfsFile::load(&state, &*system)?);
        let persistent = file.persistent();
        let front: Box<dyn FrontEnd> = Box::new(NfsFront {
            server: Nfs::on(hubs, nfs, persistent).await?,
            file,
            system,
            state: Mutex::default(),
            hubs: hubs.clone(),
            known: Mutex::default(),
            registered: Arc::default(),
        });
        Ok(front)
    })
}

/// An export, and the directory that it serves where it serves one.
struct Known {
    path: ExportPath,
    directory: Option<Arc<Directory>>,
}

/// The server as a front end.
struct NfsFront {
    server: Nfs,
    file: Arc<NfsFile>,
    system: Arc<dyn System>,
    /// The state that is served.
    state: Mutex<Arc<State>>,
    hubs: Hubs,
    /// Exports that are served, by their numbers.
    known: Mutex<BTreeMap<u32, Known>>,
    /// The address at which rpcbind says that version 3 is served.
    registered: Arc<Mutex<Option<SocketAddr>>>,
}

impl NfsFront {
    fn known(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has rpcbind forget an address, or whichever it was told.
    async fn unregister(&self, only: Option<SocketAddr>) {
        let registered = Arc::clone(&self.registered);
        let unregister = move || {
            let mut registered = registered.lock().unwrap_or_else(PoisonError::into_inner);
            let known = registered.filter(|known| only.is_none_or(|only| only == *known));
            let Some(address) = known else { return };
            *registered = None;
            if let Err(error) = Rpcbind::default().unregister(address) {
                tracing::warn!(%address, %error, "rpcbind does not forget where NFS version 3 was");
            }
        };
        // It does not panic.
        let _ = tokio::task::spawn_blocking(unregister).await;
    }

    /// The state as the server serves it. Directories that were served before stay open.
    fn exports(&self, served: &Served) -> Vec<Export> {
        let (mut known, state) = (self.known(), &served.state);
        let now: BTreeSet<u32> = state.exports.values().map(|export| export.number).collect();
        let mut exports = Vec::new();
        for (path, export) in &state.exports {
            let open = || {
                let root = parse_root(&export.root);
                let open =
                    |path: &str| Directory::new(Arc::clone(&self.system), Path::new(path), root);
                Known {
                    path: path.clone(),
                    directory: export.directory().map(open).map(Arc::new),
                }
            };
            let known = known.entry(export.number).or_insert_with(open);
            let source = match &known.directory {
                Some(directory) => Source::Files(directory.clone()),
                None => Source::Volumes(Arc::new(self.volumes(path, export, served))),
            };
            exports.push(offered(path, export, source));
        }
        // What is gone keeps its name while calls on it are under way.
        let under_way = self.server.under_way();
        known.retain(|number, _| now.contains(number) || under_way.contains(number));
        exports
    }

    /// The volumes that are files of an export. Clients of those that are not open are to ask again.
    fn volumes(&self, path: &ExportPath, export: &NfsExport, served: &Served) -> VolumeFiles {
        let (mut files, mut absent) = (Vec::new(), BTreeMap::new());
        let now = self.system.wall_clock();
        for (name, file) in &export.files {
            match served.exports.get(&file_name(path, name)) {
                None => drop(absent.insert(file.number, name.to_string())),
                Some(volume) => {
                    let counted: Arc<dyn Volume> = volume.guard().clone();
                    files.push(VolumeFile {
                        number: file.number,
                        name: name.to_string(),
                        volume: volume.clone(),
                        changes: self.hubs.changes(&counted, now),
                        counted,
                        identity: u128::from(file.number).to_be_bytes(),
                        is_read_only: file.read_only || export.read_only,
                        reservations: served.reservations.get(name).cloned(),
                    });
                }
            }
        }
        VolumeFiles::new(files, absent, now)
    }

    /// The file of a path and a number, as the server has them; none: it is not served any more.
    fn file_of(&self, path: &str, number: u32, state: &State) -> Option<ExportName> {
        let mut files = state.files();
        let (at, volume, _) = files.find(|(at, _, file)| {
            file.number == number && at.as_str().trim_start_matches('/') == path
        })?;
        Some(file_name(at, volume))
    }
}

/// Tells rpcbind where version 3 is, once: at the first address that other machines reach. Blocks.
fn register(registered: &Mutex<Option<SocketAddr>>, address: SocketAddr) {
    let mut registered = registered.lock().unwrap_or_else(PoisonError::into_inner);
    if registered.is_some() || address.ip().to_canonical().is_loopback() {
        return;
    }
    match Rpcbind::default().register(address) {
        Ok(Registration::Done) => {
            *registered = Some(address);
            tracing::info!(%address, "rpcbind tells clients of NFS version 3 of this address");
        }
        Ok(Registration::NoRpcbind) => {
            tracing::debug!("there is no rpcbind: clients of NFS version 3 must name ports");
        }
        Ok(Registration::Taken) => {
            tracing::warn!(
                %address,
                "rpcbind knows another server of NFS version 3: clients that name no ports find that one"
            );
        }
        Err(error) => {
            tracing::warn!(
                %address, %error,
                "rpcbind does not answer: clients of NFS version 3 must name ports"
            );
        }
    }
}

fn file_name(path: &ExportPath, volume: &VolumeName) -> ExportName {
    ExportName::File {
        path: path.clone(),
        volume: volume.clone(),
    }
}

fn offered(path: &ExportPath, export: &NfsExport, source: Source) -> Export {
    let network = |range: &crate::name::AddressRange| Network {
        address: range.address(),
        prefix: range.prefix(),
    };
    Export {
        number: export.number,
        path: path.as_str().trim_start_matches('/').into(),
        source,
        fsid: export.uuid.as_u64_pair(),
        is_read_only: export.read_only,
        allowed: match export.allow_any_host {
            true => Allowed::Any,
            false => Allowed::These(export.allowed_addresses.iter().map(network).collect()),
        },
    }
}

/// A root's name as the state has it: kind and bytes in hexadecimal digits.
fn root_text(id: &FileId) -> String {
    format!("{:x}:{}", id.kind(), digits(id.bytes()))
}

fn parse_root(text: &str) -> Option<FileId> {
    let (kind, bytes) = text.split_once(':')?;
    FileId::new(i32::from_str_radix(kind, 16).ok()?, &parse_digits(bytes)?)
}

/// Looks for the name of a directory's root. Blocks.
pub(super) fn look_at_directory(
    system: Arc<dyn System>,
    path: PathBuf,
) -> Result<String, EngineError> {
    let directory = Directory::new(system, &path, None);
    let fail = |reason: String, needs_right| EngineError::OpenDirectory {
        path: path.display().to_string(),
        reason,
        needs_right,
    };
    match directory.root() {
        Ok(root) => Ok(root_text(&root.id)),
        Err(FileError::NotPermitted) => Err(fail(
            "the gateway may not open files by their handles".to_owned(),
            true,
        )),
        Err(FileError::NotSupported) => Err(fail(
            "its file system gives files no handles that last".to_owned(),
            false,
        )),
        Err(FileError::Absent) => Err(fail("there is no such directory".to_owned(), false)),
        Err(error) => Err(fail(error.to_string(), false)),
    }
}

impl FrontEnd for NfsFront {
    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Nfs
    }

    fn apply<'a>(&'a self, served: &'a Served) -> Answer<'a, Result<(), FrontError>> {
        Box::pin(async {
            let exports = self.exports(served);
            if !exports.is_empty() {
                let file = Arc::clone(&self.file);
                let stored = tokio::task::spawn_blocking(move || file.store()).await;
                let stored = stored.unwrap_or_else(|error| Err(error.into()));
                stored.map_err(FrontError::Store)?;
            }
            self.server.apply(exports).await?;
            *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&served.state);
            Ok(())
        })
    }

    fn revoked(&self) -> Answer<'_, Vec<RevokedReport>> {
        let under_way = self.server.under_way();
        let known = self.known();
        let report = |number: &u32| {
            let path = known.get(number)?.path.clone();
            Some(RevokedReport {
                host: InitiatorName::NfsClients,
                export: ExportName::Directory { path },
                requests: 1,
            })
        };
        let reports = under_way.iter().filter_map(report).collect();
        Box::pin(std::future::ready(reports))
    }

    fn listen(&self, at: ListenAt<Protocol>) -> Answer<'_, Result<SocketAddr, FrontError>> {
        Box::pin(async move {
            let address = self.server.add_listener(ListenAt {
                address: at.address,
                options: at.options,
                port: (),
                inherited: at.inherited,
            });
            let address = address.await?;
            let registered = Arc::clone(&self.registered);
            // Nobody waits for what clients of version 4 do without.
            tokio::task::spawn_blocking(move || register(&registered, address));
            Ok(address)
        })
    }

    fn set_options(
        &self,
        address: SocketAddr,
        options: weir_reactor::SocketOptions,
    ) -> Answer<'_, Result<(), FrontError>> {
        Box::pin(self.server.set_listener_options(address, options))
    }

    fn stop_listening(&self, address: SocketAddr) -> Answer<'_, Result<(), FrontError>> {
        Box::pin(async move {
            self.server.remove_listener(address).await?;
            self.unregister(Some(address)).await;
            let (registered, others) = (Arc::clone(&self.registered), self.server.listeners());
            let tell = move |other| register(&registered, other);
            tokio::task::spawn_blocking(move || others.into_iter().for_each(tell));
            Ok(())
        })
    }

    fn connections(&self) -> Answer<'_, Vec<ConnectionReport>> {
        Box::pin(async {
            let connections = self.server.connections().await;
            connections.into_iter().map(connection_report).collect()
        })
    }

    fn disconnect(&self, id: u64) -> Answer<'_, Result<(), FrontError>> {
        Box::pin(self.server.disconnect(id))
    }

    /// Those of files that are volumes: calls on files of directories are not timed.
    fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> Answer<'_, BTreeMap<ExportName, Latency>> {
        Box::pin(async move {
            let latencies = self.server.file_latencies(None).await.into_iter();
            let state = Arc::clone(&self.state.lock().unwrap_or_else(PoisonError::into_inner));
            let of = |((path, number), latency): ((Arc<str>, u32), Latency)| {
                let name = self.file_of(&path, number, &state)?;
                let is_asked_for = only.as_ref().is_none_or(|only| *only == name);
                is_asked_for.then_some((name, latency))
            };
            latencies.filter_map(of).collect()
        })
    }

    fn connection_latencies(&self, only: Option<u64>) -> Answer<'_, BTreeMap<u64, Latency>> {
        Box::pin(self.server.connection_latencies(only))
    }

    fn volume_latencies<'a>(&'a self, volumes: &'a [Arc<dyn Volume>]) -> Answer<'a, Vec<Latency>> {
        Box::pin(self.server.volume_latencies(volumes))
    }

    fn counts(&self) -> Answer<'_, Counts> {
        let path_of = |path: Arc<str>| format!("/{path}");
        let totals = self.server.totals().into_iter();
        let mut counts = Counts {
            names: &NAMES,
            // One front end tells of the bytes in flight, which are all front ends' together.
            stats: FrontStats {
                bytes_in_flight: Vec::new(),
                ..self.server.stats()
            },
            sessions: self.server.clients().len() as u32,
            groups: totals.map(|(path, io)| (path_of(path), io)).collect(),
            latencies: BTreeMap::new(),
        };
        Box::pin(async move {
            let latencies = self.server.export_latencies().await.into_iter();
            counts.latencies = latencies.map(|(path, of)| (path_of(path), of)).collect();
            counts
        })
    }

    fn shutdown(&self, drain: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            self.unregister(None).await;
            self.server.shutdown(drain).await;
        })
    }
}

fn connection_report(info: ConnectionState<Option<ClientInfo>>) -> ConnectionReport {
    ConnectionReport {
        id: info.id,
        peer: info.peer,
        local: info.local,
        reactor: info.reactor as u32,
        queue: None,
        session: None,
        client: info.about.map(client_report),
        in_flight: info.in_flight,
        received_bytes: info.bytes_received,
        sent_bytes: info.bytes_sent,
        socket: info.socket.map(socket_report),
    }
}

fn client_report(info: ClientInfo) -> ClientReport {
    ClientReport {
        name: info.name,
        implementation: Some(info.implementation).filter(|text| !text.is_empty()),
        sessions: info.sessions,
        states: info.states,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_roots_come_back() {
        for (kind, bytes) in [(1, &[0, 255, 16][..]), (0x81, &[]), (-1, &[7; 48])] {
            let id = FileId::new(kind, bytes).unwrap();
            let text = root_text(&id);
            match kind {
                // No file system has such a kind.
                ..0 => assert_eq!(parse_root(&text), None),
                _ => assert_eq!(parse_root(&text), Some(id)),
            }
        }
        for text in [
            "",
            "1",
            "1:0",
            "x:00",
            "1:zz",
            &format!("1:{}", "00".repeat(49)),
        ] {
            assert_eq!(parse_root(text), None, "{text}");
        }
    }
}
