//! A `weir serve` of its own, with its state in a temporary folder.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use tempfile::TempDir;

use super::process::{self, Running};
use super::rows::{Protocol, Volume};

/// The subsystem of every gateway here.
pub(super) const SUBSYSTEM: &str = "nqn.2026-01.org.example:speed";
/// The iSCSI target of every gateway here that has one.
const TARGET: &str = "iqn.2026-01.org.example:speed";
/// How long a gateway may take to answer.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Of a reactor in `weir reactor list`.
#[derive(Deserialize)]
struct Busy {
    busy_ns: u64,
}

/// What is served, and how.
pub(super) struct Plan<'a> {
    pub(super) weir: &'a Path,
    /// As `taskset` has them.
    pub(super) processors: String,
    pub(super) reactors: u32,
    /// URLs of volumes; the first is namespace 1.
    pub(super) volumes: Vec<String>,
    pub(super) protocol: Protocol,
}

/// A gateway that serves; dropped, it ends.
pub(super) struct Gateway {
    weir: PathBuf,
    socket: PathBuf,
    pub(super) port: u16,
    iscsi_port: u16,
    running: Running,
    /// Goes last: the gateway writes there while it ends.
    _folder: TempDir,
}

impl Gateway {
    pub(super) fn start(plan: &Plan<'_>, folder: TempDir) -> anyhow::Result<Self> {
        let socket = folder.path().join("weir.sock");
        let configuration = folder.path().join("weir.toml");
        fs::write(&configuration, configure(plan, folder.path(), &socket))?;
        let log = fs::File::create(folder.path().join("weir.log"))?;
        let mut command = process::bound(&plan.processors, plan.weir);
        command.args(["serve", "--config"]).arg(&configuration);
        let running = Running::start(command.stderr(Stdio::from(log)))?;
        let mut gateway = Gateway {
            weir: plan.weir.to_owned(),
            socket,
            port: free_port()?,
            iscsi_port: free_port()?,
            running,
            _folder: folder,
        };
        gateway.wait_until_ready()?;
        gateway.command(&["subsystem", "add", SUBSYSTEM, "--allow-any-host"])?;
        for (index, url) in plan.volumes.iter().enumerate() {
            let name = format!("volume{}", index + 1);
            gateway.command(&["volume", "add", &name, url])?;
            gateway.command(&["namespace", "add", SUBSYSTEM, &name])?;
        }
        let address = format!("127.0.0.1:{}", gateway.port);
        gateway.command(&["listener", "add", &address])?;
        if plan.protocol == Protocol::Iscsi {
            gateway.serve_iscsi(plan.volumes.len())?;
        }
        Ok(gateway)
    }

    /// Serves its volumes over iSCSI, too.
    fn serve_iscsi(&self, volumes: usize) -> anyhow::Result<()> {
        self.command(&["target", "add", TARGET, "--allow-any-host"])?;
        for number in 1..=volumes {
            let (name, lun) = (format!("volume{number}"), number.to_string());
            self.command(&["lun", "add", TARGET, &name, "--lun", &lun])?;
        }
        let address = format!("127.0.0.1:{}", self.iscsi_port);
        self.command(&["listener", "add", "--protocol", "iscsi", &address])
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.running.id()
    }

    /// A namespace as a volume, for `weir bench`.
    pub(super) fn url(&self, nsid: u32) -> String {
        format!("nvme+tcp://127.0.0.1:{}/{SUBSYSTEM}?nsid={nsid}", self.port)
    }

    /// A logical unit as a volume, for `weir bench`.
    pub(super) fn iscsi_url(&self, lun: u32) -> String {
        format!("iscsi://127.0.0.1:{}/{TARGET}/{lun}", self.iscsi_port)
    }

    fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + READY_WITHIN;
        loop {
            match self.command(&["status"]) {
                Ok(()) => return Ok(()),
                Err(error) if self.running.has_ended() || Instant::now() > until => {
                    let log = fs::read_to_string(self._folder.path().join("weir.log"));
                    bail!(
                        "the gateway did not start: {error:#}\n{}",
                        log.unwrap_or_default()
                    );
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    /// For how many seconds its reactors were busy so far, as they count it: without the time that they waited awake.
    /// Asked from another processor.
    pub(super) fn busy_seconds(&self, from: usize) -> anyhow::Result<f64> {
        let mut command = process::bound(&from.to_string(), &self.weir);
        command.arg("--socket").arg(&self.socket);
        let reactors = process::output(command.args(["--json", "reactor", "list"]))?;
        let reactors: Vec<Busy> =
            serde_json::from_str(&reactors).context("weir reactor list printed something else")?;
        Ok(reactors.iter().map(|reactor| reactor.busy_ns).sum::<u64>() as f64 / 1e9)
    }

    fn command(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.weir);
        command.arg("--socket").arg(&self.socket).args(arguments);
        process::output(&mut command).map(drop)
    }
}

/// The volumes of a gateway that is measured, with the numbers of their namespaces.
pub(super) fn volumes(protocol: Protocol) -> Vec<String> {
    // As long as the peers' are wont to be; blocks of 512 bytes give a peer's tools the same choices.
    let [null, mem] = match protocol {
        Protocol::Nvme => ["null:?size=1T&block_size=512", "mem:?size=256M"],
        Protocol::Iscsi => [
            "null:?size=1T&block_size=4096",
            "mem:?size=256M&block_size=4096",
        ],
    };
    vec![null.to_owned(), mem.to_owned()]
}

/// The namespace, and the LUN, of a volume of [`volumes`].
pub(super) fn nsid(volume: Volume) -> u32 {
    match volume {
        Volume::Null => 1,
        Volume::Mem => 2,
    }
}

fn configure(plan: &Plan<'_>, folder: &Path, socket: &Path) -> String {
    let reactors = plan.reactors;
    let pin = reactors > 1;
    format!(
        "state = {:?}\nreactors = {reactors}\npin = {pin}\n\n[control]\nsocket = {socket:?}\n\n[limits]\nhalf_open_connections = 2048\n",
        folder.join("state.json")
    )
}

/// A TCP port of 127.0.0.1 on which nothing listens.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}
