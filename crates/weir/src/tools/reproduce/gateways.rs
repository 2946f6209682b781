//! Gateways that `weir reproduce ceph` starts, one after the other, each as one setting has it.
//!
//! A gateway has its state and its control socket in a folder of its own, which is gone afterwards: what the configuration file says of these is
//! of no effect, and the state of the gateway that the file is for stays as it is.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fd::OwnedFd;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use weir_gateway::config::Config;
use weir_volume::VolumeUrl;

use super::super::interrupt::RUN_BY;
use super::super::own::Own;

const NQN: &str = "nqn.2026-01.org.example:reproduce";
/// Gateways of one run: each is measured for minutes.
const SETTINGS_MAX: usize = 16;
/// Time-out for a gateway's first answer. It opens images later.
const START_MAX: Duration = Duration::from_secs(60);
/// Between two attempts to reach it.
const START_EVERY: Duration = Duration::from_millis(20);
/// Lines of the log of a gateway that did not start.
const LOG_LINES: usize = 5;
const BDEVS: &str = "bdevs_per_cluster";

/// One axis: `reactors=1,2` or `bdevs_per_cluster=32,1`.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    of_reactors: bool,
    values: Vec<String>,
}

impl FromStr for Axis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, values)) = text.split_once('=') else {
            return Err(format!(
                "write WHAT=VALUE,VALUE,..., where WHAT is reactors or {BDEVS}"
            ));
        };
        let of_reactors = match name {
            "reactors" => true,
            BDEVS => false,
            _ => return Err(format!("'{name}' is not reactors or {BDEVS}")),
        };
        let values: Vec<String> = values.split(',').map(|of| of.trim().to_owned()).collect();
        let most = if of_reactors { 256 } else { 1024 };
        for (at, value) in values.iter().enumerate() {
            let is_number = value.parse().is_ok_and(|of: u32| (1..=most).contains(&of));
            if !is_number && (of_reactors || value != "auto") {
                let auto = if of_reactors { "" } else { ", or auto" };
                return Err(format!("'{value}' is not a number from 1 to {most}{auto}"));
            }
            if values[..at].contains(value) {
                return Err(format!("{value} is there twice"));
            }
        }
        Ok(Axis {
            of_reactors,
            values,
        })
    }
}

/// The configuration of one gateway.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Setting {
    /// Its configuration file; none: all defaults.
    conf: Option<PathBuf>,
    reactors: Option<String>,
    bdevs: Option<String>,
}

impl Setting {
    /// As it is called beside the others.
    pub(super) fn name(&self) -> String {
        let conf = self.conf.as_ref();
        let parts = [
            conf.map(|of| of.display().to_string()),
            self.reactors.as_ref().map(|of| format!("reactors={of}")),
            self.bdevs.as_ref().map(|of| format!("{BDEVS}={of}")),
        ];
        let named: Vec<String> = parts.into_iter().flatten().collect();
        if named.is_empty() {
            "defaults".to_owned()
        } else {
            named.join(", ")
        }
    }

    /// The text of its configuration, with state and socket in a folder.
    fn configuration(&self, folder: &Path) -> anyhow::Result<String> {
        let mut table = toml::Table::new();
        if let Some(path) = &self.conf {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            // It names the line of an error, as weir serve does.
            Config::parse(&text, path)?;
            table = text.parse()?;
        }
        // Who runs this command serves.
        for key in ["user", "group"] {
            table.remove(key);
        }
        let text = |name: &str| -> anyhow::Result<toml::Value> {
            let path = folder.join(name);
            let path = path
                .to_str()
                .context("the temporary folder has no name in UTF-8")?;
            Ok(path.into())
        };
        table.insert("state".to_owned(), text("state.json")?);
        let control = toml::Table::from_iter([("socket".to_owned(), text("weir.sock")?)]);
        table.insert("control".to_owned(), control.into());
        if let Some(reactors) = &self.reactors {
            table.insert("reactors".to_owned(), reactors.parse::<i64>()?.into());
        }
        Ok(toml::to_string(&table)?)
    }
}

/// Every file with every value of each axis, in the order in which they are given.
pub(super) fn settings(files: &[PathBuf], axes: &[Axis]) -> anyhow::Result<Vec<Setting>> {
    let of_file = |path: &PathBuf| Setting {
        conf: Some(path.clone()),
        ..Setting::default()
    };
    let mut settings: Vec<Setting> = files.iter().map(of_file).collect();
    if settings.is_empty() {
        settings.push(Setting::default());
    }
    for (at, axis) in axes.iter().enumerate() {
        if axes[..at]
            .iter()
            .any(|of| of.of_reactors == axis.of_reactors)
        {
            let name = if axis.of_reactors { "reactors" } else { BDEVS };
            bail!("--sweep {name}= is given twice");
        }
        let with = |setting: &Setting, value: &String| {
            let mut setting = setting.clone();
            let place = if axis.of_reactors {
                &mut setting.reactors
            } else {
                &mut setting.bdevs
            };
            *place = Some(value.clone());
            setting
        };
        let all =
            (settings.iter()).flat_map(|of| axis.values.iter().map(move |value| with(of, value)));
        settings = all.collect();
    }
    if settings.len() > SETTINGS_MAX {
        bail!(
            "these are {} gateways, of which each is measured: {SETTINGS_MAX} at most",
            settings.len()
        );
    }
    Ok(settings)
}

/// A gateway that runs until this is dropped.
pub(super) struct Gateway {
    child: Child,
    port: u16,
    volumes: usize,
    folder: TempDir,
    /// Keeps the port from everybody else.
    _port: OwnedFd,
}

impl Gateway {
    /// Starts a gateway that serves the volumes to hosts of this machine.
    pub(super) fn start(
        own: &Own,
        setting: &Setting,
        volumes: &[VolumeUrl],
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder")?;
        let file = folder.path().join("weir.toml");
        std::fs::write(&file, setting.configuration(folder.path())?)
            .with_context(|| format!("cannot write {}", file.display()))?;
        let (held, port) = hold_port().context("no port is free")?;
        let log = File::create(folder.path().join("log")).context("cannot write a log")?;
        let program = std::env::current_exe().context("this program cannot be found")?;
        let child = Command::new(program)
            .args(["serve", "--config"])
            .arg(&file)
            .env(RUN_BY, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("weir serve")?;
        let mut gateway = Gateway {
            child,
            port,
            volumes: volumes.len(),
            folder,
            _port: held,
        };
        gateway.answers()?;
        let told = |arguments: &[&str]| gateway.told(own, arguments);
        told(&["subsystem", "add", NQN, "--allow-any-host"])?;
        for (at, url) in volumes.iter().enumerate() {
            let (name, nsid) = (format!("volume{at}"), (at + 1).to_string());
            let url = match &setting.bdevs {
                Some(bdevs) => url.clone().without(BDEVS).with(BDEVS, bdevs),
                None => url.clone(),
            };
            told(&["volume", "add", &name, &url.to_string()])?;
            told(&["namespace", "add", NQN, &name, "--nsid", &nsid])?;
        }
        told(&["listener", "add", &gateway.address().to_string()])?;
        TcpStream::connect(gateway.address()).context("the gateway does not listen")?;
        Ok(gateway)
    }

    fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The volumes as hosts reach them, in order.
    pub(super) fn served(&self) -> Vec<String> {
        let url = |at| format!("nvme+tcp://{}/{NQN}?nsid={}", self.address(), at + 1);
        (0..self.volumes).map(url).collect()
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("weir.sock")
    }

    /// Waits until the gateway can be told something.
    fn answers(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while UnixStream::connect(self.socket()).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "the gateway did not start ({status}): {}",
                    self.last_words()
                );
            }
            if began.elapsed() > START_MAX {
                bail!("the gateway does not answer: {}", self.last_words());
            }
            std::thread::sleep(START_EVERY);
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let Ok(log) = File::open(self.folder.path().join("log")) else {
            return String::new();
        };
        let lines: Vec<String> = BufReader::new(log).lines().map_while(Result::ok).collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Runs a command of its control.
    fn told(&self, own: &Own, arguments: &[&str]) -> anyhow::Result<String> {
        let socket = self.socket().display().to_string();
        let mut words = vec!["--socket".to_owned(), socket];
        words.extend(arguments.iter().map(|&word| word.to_owned()));
        own.run(&words)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// A port of this machine that nobody else is given, and the socket that holds it: one that never listens.
fn hold_port() -> rustix::io::Result<(OwnedFd, u16)> {
    let held = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_reuseaddr(&held, true)?;
    bind(&held, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let bound = SocketAddr::try_from(getsockname(&held)?)?;
    Ok((held, bound.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(texts: &[&str]) -> Vec<Axis> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn every_file_goes_with_every_value() {
        let names = |files: &[&str], texts: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            let all = settings(&files, &axes(texts)).unwrap();
            all.iter().map(Setting::name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[], &[]), ["defaults"]);
        assert_eq!(names(&["a.toml", "b.toml"], &[]), ["a.toml", "b.toml"]);
        assert_eq!(
            names(&[], &["reactors=1,2", "bdevs_per_cluster=32,auto"]),
            [
                "reactors=1, bdevs_per_cluster=32",
                "reactors=1, bdevs_per_cluster=auto",
                "reactors=2, bdevs_per_cluster=32",
                "reactors=2, bdevs_per_cluster=auto"
            ]
        );
        let of_file = names(&["a.toml"], &["reactors=3"]);
        assert_eq!(of_file, ["a.toml, reactors=3"]);
    }

    #[test]
    fn axes_that_are_none_are_refused() {
        for (text, part) in [
            ("reactors", "WHAT=VALUE"),
            ("spin=1,2", "'spin' is not reactors or bdevs_per_cluster"),
            ("reactors=0", "from 1 to 256"),
            ("reactors=auto", "from 1 to 256"),
            ("bdevs_per_cluster=1025", "from 1 to 1024, or auto"),
            ("reactors=2,4,2", "2 is there twice"),
        ] {
            let error = text.parse::<Axis>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let twice = settings(&[], &axes(&["reactors=1", "reactors=2"])).unwrap_err();
        assert!(twice.to_string().contains("given twice"), "{twice}");
        let many = "reactors=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17";
        let many = settings(&[], &axes(&[many])).unwrap_err();
        assert!(many.to_string().contains("17 gateways"), "{many}");
    }

    #[test]
    fn a_gateway_has_its_state_elsewhere_and_all_else_as_its_file_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.toml");
        let text = "reactors = 3\nuser = \"weir\"\nstate = \"/kept\"\n[limits]\nio_queues = 7\n[control]\nsocket = \"/kept.sock\"\n";
        std::fs::write(&path, text).unwrap();
        let mut setting = Setting {
            conf: Some(path.clone()),
            ..Setting::default()
        };
        let read = |setting: &Setting| {
            let text = setting.configuration(Path::new("/of/its/own")).unwrap();
            Config::parse(&text, &path).unwrap()
        };
        let config = read(&setting);
        assert_eq!((config.reactors, config.limits.io_queues), (3, 7));
        assert_eq!(config.state.unwrap(), Path::new("/of/its/own/state.json"));
        let socket = config.control.socket.unwrap();
        assert_eq!(
            (socket.as_path(), config.user),
            (Path::new("/of/its/own/weir.sock"), None)
        );
        setting.reactors = Some("5".to_owned());
        assert_eq!(read(&setting).reactors, 5);
        std::fs::write(&path, "reactor = 3\n").unwrap();
        let error = setting
            .configuration(folder.path())
            .unwrap_err()
            .to_string();
        assert!(error.contains("reactor"), "{error}");
    }
}
