//! What can be asked of `weir-speed`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Parser;

use super::rows::{Initiator, Protocol, Volume};

/// Measures Weir against the machine's limit and against a peer; one line per bar: name, value, bar, and ok, short, failed or
/// skipped.
///
/// Everything is a ratio of runs that alternate, in an order drawn anew for each round; values are medians of the rounds, and
/// a bar is cleared where eight of ten rounds clear it. Lines that begin with # hold the figures
/// behind the bars. Exit status 1 where any bar is short or failed. A bar that needs a peer and has none is skipped.
#[derive(Debug, Clone, Parser)]
#[command(name = "weir-speed", version, max_term_width = 100)]
pub struct Options {
    /// The weir to measure
    #[arg(long, value_name = "PATH", default_value = "weir")]
    pub weir: PathBuf,
    /// The bare servers and the canned responder [default: beside this program]
    #[arg(long, value_name = "PATH")]
    pub limit: Option<PathBuf>,
    /// The protocol whose target is measured: nvme, or iscsi, beside nvme in the same run
    #[arg(long, value_name = "PROTOCOL", default_value = "nvme", value_parser = protocol)]
    pub protocol: Protocol,
    /// How often each row's contestants run in turn
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// What the order of the contestants is drawn from [default: the time]
    #[arg(long, value_name = "N", default_value_t = now(), hide_default_value = true)]
    pub seed: u64,
    /// Length of a run in seconds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
    /// For how many seconds the idle gateway is looked at
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub idle_seconds: u32,
    /// Only rows whose name contains one of these (comma-separated, or given several times)
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Print the rows' names and their bars, and run nothing
    #[arg(long)]
    pub list: bool,
    /// Print everything as JSON, every run included
    #[arg(long)]
    pub json: bool,
    /// The processor of what is measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub target_processor: usize,
    /// The processor of initiators, and of this program
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub initiator_processor: usize,
    /// Go on where the processors are not free
    #[arg(long)]
    pub force: bool,
    /// Where files are made that are measured; its file system must know O_DIRECT [default: the folder for temporary files]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// A running target to measure against, pinned to the target's processor: [null=|mem=]nvme+tcp://HOST:PORT/NQN or
    /// [null=|mem=]iscsi://HOST:PORT/IQN/LUN, once for each kind of volume. What it holds is overwritten
    #[arg(long, value_name = "[VOLUME=]URL", value_parser = peer_url)]
    pub peer: Vec<PeerUrl>,
    /// The peer's process: its processor time counts as busy, and it is stopped (SIGSTOP) while others run
    #[arg(long, value_name = "PID")]
    pub peer_pid: Option<u32>,
    /// A shell command that prints how many seconds the peer was busy so far; for a peer that polls
    #[arg(long, value_name = "COMMAND")]
    pub peer_busy: Option<String>,
    /// A second target to measure iSCSI against, as --peer says
    #[arg(long, value_name = "[VOLUME=]URL", value_parser = peer_url)]
    pub second: Vec<PeerUrl>,
    /// The second target's process, as --peer-pid says
    #[arg(long, value_name = "PID")]
    pub second_pid: Option<u32>,
    /// A shell command that drives a target as another initiator does: {host}, {port}, {nqn}, {nsid}, {size} in bytes,
    /// {read-percent}, {pattern} (random or sequential), {depth}, {queues}, {seconds}, {processor}, and {url} stand for the
    /// load. Its last line is operations per second, and, where it knows them, the mean and the 99th percentile of latency in
    /// microseconds
    #[arg(long, value_name = "COMMAND")]
    pub peer_initiator: Option<String>,
    /// Who drives Weir and the peer, where both are compared
    #[arg(long, value_name = "weir|peer", default_value = "weir", value_parser = initiator)]
    pub initiator: Initiator,
}

/// A target that the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUrl {
    /// What is behind it.
    pub volume: Volume,
    /// Where it is.
    pub url: String,
}

/// Gives another seed each second.
fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Options {
    /// Whether a row of this name was asked for.
    #[must_use]
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|part| name.contains(part.as_str()))
    }

    /// Where the peer has such a volume.
    #[must_use]
    pub fn peer_of(&self, volume: Volume) -> Option<&str> {
        let found = self.peer.iter().find(|peer| peer.volume == volume)?;
        Some(&found.url)
    }

    /// Where the second peer has such a volume.
    #[must_use]
    pub fn second_of(&self, volume: Volume) -> Option<&str> {
        let found = self.second.iter().find(|peer| peer.volume == volume)?;
        Some(&found.url)
    }

    /// What does not go together.
    ///
    /// # Errors
    /// In words.
    pub fn check(&self) -> Result<(), String> {
        if self.target_processor == self.initiator_processor {
            return Err("target and initiator need a processor each".to_owned());
        }
        if self.initiator == Initiator::Peer && self.peer_initiator.is_none() {
            return Err("--initiator peer needs --peer-initiator COMMAND".to_owned());
        }
        if self.peer.is_empty() && (self.peer_pid.is_some() || self.peer_busy.is_some()) {
            return Err("--peer-pid and --peer-busy are about a --peer URL".to_owned());
        }
        if self.second.is_empty() && self.second_pid.is_some() {
            return Err("--second-pid is about a --second URL".to_owned());
        }
        let scheme = match self.protocol {
            Protocol::Nvme => NVME,
            Protocol::Iscsi => ISCSI,
        };
        let mut peers = self.peer.iter().chain(&self.second);
        if let Some(other) = peers.find(|peer| !peer.url.starts_with(scheme)) {
            let url = &other.url;
            return Err(format!("{url} is no {scheme} URL; see --protocol"));
        }
        Ok(())
    }
}

/// The beginnings of URLs.
const NVME: &str = "nvme+tcp://";
const ISCSI: &str = "iscsi://";

fn protocol(text: &str) -> Result<Protocol, &'static str> {
    match text {
        "nvme" => Ok(Protocol::Nvme),
        "iscsi" => Ok(Protocol::Iscsi),
        _ => Err("write nvme or iscsi"),
    }
}

fn peer_url(text: &str) -> Result<PeerUrl, String> {
    let (volume, url) = match text.split_once('=') {
        Some(("null", url)) => (Volume::Null, url),
        Some(("mem", url)) => (Volume::Mem, url),
        _ => (Volume::Null, text),
    };
    if !url.starts_with(ISCSI) {
        Address::of(url)?;
    }
    Ok(PeerUrl {
        volume,
        url: url.to_owned(),
    })
}

fn initiator(text: &str) -> Result<Initiator, &'static str> {
    match text {
        "weir" => Ok(Initiator::Weir),
        "peer" => Ok(Initiator::Peer),
        _ => Err("write weir or peer"),
    }
}

/// The parts of `nvme+tcp://HOST:PORT/NQN?nsid=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The host, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The subsystem.
    pub nqn: String,
    /// The namespace.
    pub nsid: u32,
}

impl Address {
    /// Takes a URL apart.
    ///
    /// # Errors
    /// It is none, in words.
    pub fn of(url: &str) -> Result<Address, String> {
        let wrong = || format!("'{url}' is not nvme+tcp://HOST:PORT/NQN");
        let rest = url.strip_prefix(NVME).ok_or_else(wrong)?;
        let (place, rest) = rest.split_once('/').ok_or_else(wrong)?;
        let (nqn, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, port) = place.rsplit_once(':').ok_or_else(wrong)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let nsid = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("nsid="))
            .unwrap_or("1");
        let (port, nsid) = (port.parse(), nsid.parse());
        match (port, nsid) {
            (Ok(port), Ok(nsid)) if !host.is_empty() && nqn.starts_with("nqn.") => Ok(Address {
                host: host.to_owned(),
                port,
                nqn: nqn.to_owned(),
                nsid,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from([&["weir-speed"], arguments].concat())
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
        let options = parse(&[]).unwrap();
        assert!(options.wants("anything") && options.check().is_ok());
    }

    #[test]
    fn rows_are_picked_by_parts_of_their_names() {
        let options = parse(&["--only", "mem,d1-q1"]).unwrap();
        assert!(options.wants("mem-4k-read-d32-q1") && options.wants("null-4k-read-d1-q1"));
        assert!(!options.wants("null-4k-read-d32-q1"));
    }

    #[test]
    fn peers_are_told_apart() {
        let url = "nvme+tcp://127.0.0.1:4420/nqn.2026-01.org.example:a";
        let of_memory = format!("mem={url}2?nsid=3");
        let options = parse(&["--peer", url, "--peer", &of_memory]).unwrap();
        assert_eq!(options.peer_of(Volume::Null), Some(url));
        assert_eq!(options.peer_of(Volume::Mem), Some(&of_memory[4..]));
        let unit = "iscsi://127.0.0.1/iqn.2026-01.org.example:a/1";
        let options = parse(&["--protocol", "iscsi", "--second", unit]).unwrap();
        assert_eq!(options.second_of(Volume::Null), Some(unit));
        assert!(options.check().is_ok());
        assert!(parse(&["--peer", unit]).unwrap().check().is_err());
        assert!(parse(&["--peer", "tcp://x"]).is_err());
        assert!(parse(&["--peer", "disk=nvme+tcp://h:1/nqn.a"]).is_err());
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for wrong in [
            vec!["--target-processor", "1"],
            vec!["--initiator", "peer"],
            vec!["--peer-pid", "1"],
            vec!["--peer-busy", "true"],
        ] {
            assert!(parse(&wrong).unwrap().check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn an_address_is_taken_apart() {
        let address =
            Address::of("nvme+tcp://[::1]:4420/nqn.2026-01.org.example:a?nsid=7&kato=5s").unwrap();
        assert_eq!(
            (address.host.as_str(), address.port, address.nsid),
            ("::1", 4420, 7)
        );
        assert_eq!(address.nqn, "nqn.2026-01.org.example:a");
        for wrong in [
            "nvme+tcp://h/nqn.a",
            "nvme+tcp://h:1/a",
            "nvme+tcp://:1/nqn.a",
            "nvme+tcp://h:1/nqn.a?nsid=x",
        ] {
            assert!(Address::of(wrong).is_err(), "{wrong}");
        }
    }
}
