//! `weir torture`: what does a target answer to what no well-behaved host sends?

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use weir_nvme_host::HostIdentity;
use weir_torture::context::{Facts, Where};
use weir_torture::iscsi::{self, Iscsi};
use weir_torture::nvme::{self, Nvme};
use weir_torture::{Case, Context as Given, Outcome, Protocol, Record, Runner, Settings};
use weir_volume::VolumeUrl;

use super::duration;
use super::present::{self, Line, Progress};
use crate::table;

/// Where Linux gives out random UUIDs, as text.
const RANDOM_UUID_FILE: &str = "/proc/sys/kernel/random/uuid";

/// Send a target what breaks targets, and compare its answers with the specifications
#[derive(Debug, clap::Args)]
pub(crate) struct TortureArguments {
    /// The target: nvme+tcp://HOST:PORT/NQN?nsid=1, a namespace, or iscsi://HOST:PORT/IQN/LUN, a logical unit
    #[arg(required_unless_present = "list")]
    url: Option<VolumeUrl>,
    /// Run only these cases: a group's number, a case's name, or how names begin; may be given several times
    #[arg(long, value_name = "GROUP|NAME")]
    only: Vec<String>,
    /// List the cases, of the URL's protocol or of both, and run none
    #[arg(long)]
    list: bool,
    /// Run cases that write, too: what the namespace or logical unit holds is lost
    #[arg(long)]
    destroy_data: bool,
    /// Run against a target on another machine. It may crash, and take what others have on it along
    #[arg(long)]
    i_own_this_target: bool,
    /// A second address of the same subsystem or target, for the cases that need one
    #[arg(long, value_name = "HOST:PORT")]
    second: Option<String>,
    /// What starts the target again where a case has ended it, run by the shell; without it the cases that follow are skipped
    #[arg(long, value_name = "COMMAND")]
    restart: Option<String>,
    /// How long an answer may take
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    patience: Duration,
    /// How long a command of the well-behaved host beside the cases may take
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    stall: Duration,
}

/// The protocols that have a suite.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Speaks {
    Nvme,
    Iscsi,
}

impl Speaks {
    fn of(url: &VolumeUrl) -> anyhow::Result<Self> {
        match url.scheme() {
            weir_nvme_host::SCHEME => Ok(Speaks::Nvme),
            weir_iscsi_host::SCHEME => Ok(Speaks::Iscsi),
            _ => bail!(
                "{url} is no NVMe/TCP and no iSCSI target; name it as {}://HOST:PORT/NQN?nsid=1 or {}://HOST:PORT/IQN/LUN",
                weir_nvme_host::SCHEME,
                weir_iscsi_host::SCHEME,
            ),
        }
    }
}

pub(crate) fn run(arguments: &TortureArguments, json: bool) -> anyhow::Result<ExitCode> {
    let only = &arguments.only;
    let Some(url) = &arguments.url else {
        let both = (choose::<Nvme>(only), choose::<Iscsi>(only));
        let mut rows = Vec::new();
        match both {
            (Err(error), Err(_)) => return Err(error),
            (nvme, iscsi) => {
                rows.extend(nvme.iter().flatten().map(|case| described::<Nvme>(case)));
                rows.extend(iscsi.iter().flatten().map(|case| described::<Iscsi>(case)));
            }
        }
        list(&rows, json)?;
        return Ok(ExitCode::SUCCESS);
    };
    match Speaks::of(url)? {
        Speaks::Nvme => run_suite::<Nvme>(url, arguments, json, nvme_target),
        Speaks::Iscsi => run_suite::<Iscsi>(url, arguments, json, iscsi_target),
    }
}

/// Lists or runs the cases of one protocol. `target` has the target, once it is clear that the suite may run there.
fn run_suite<P: Protocol>(
    url: &VolumeUrl,
    arguments: &TortureArguments,
    json: bool,
    target: fn(&VolumeUrl, &TortureArguments) -> anyhow::Result<P::Target>,
) -> anyhow::Result<ExitCode> {
    let chosen = choose::<P>(&arguments.only)?;
    if arguments.list {
        let rows: Vec<_> = chosen.iter().map(|case| described::<P>(case)).collect();
        list(&rows, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let target = target(url, arguments)?;
    let address = target.address();
    for address in [Some(address), target.second()].into_iter().flatten() {
        if !is_loopback(address.ip()) && !arguments.i_own_this_target {
            bail!(
                "{address} is not on this machine. What is sent may crash it and disturb whoever uses it; if it is yours, and nobody else needs it, say --i-own-this-target"
            );
        }
    }
    let settings = Settings {
        patience: arguments.patience,
        destroy_data: arguments.destroy_data,
        stall_max: arguments.stall,
        ..Settings::default()
    };
    let mut runner = Runner::<P>::new(target, settings, None)
        .with_context(|| format!("a well-behaved host cannot use {url}"))?;
    if let Some(command) = arguments.restart.clone() {
        runner.set_restart(Box::new(move || restart(&command)));
    }
    let records = run_all(&mut runner, &chosen);
    let model = runner.context.facts.model();
    if json {
        let report = json!({
            "target": url.to_string(),
            "address": address.to_string(),
            "model": model,
            "counts": counts(&records).into_iter().collect::<serde_json::Map<_, _>>(),
            "cases": records.iter().map(as_json).collect::<Vec<_>>(),
        });
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_table(&records);
        println!("\n{address} ({model}), {}", summary(&records));
    }
    let failed = records.iter().any(|record| record.outcome.is_failure());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Runs the user's command. What it prints is no part of the report.
fn restart(command: &str) -> Result<(), String> {
    let status = std::process::Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .status()
        .map_err(|error| format!("/bin/sh: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("'{command}': {status}"))
}

/// The cases that were asked for; all where none was.
fn choose<P: Protocol>(only: &[String]) -> anyhow::Result<Vec<&'static Case<Given<P>>>> {
    let all = P::cases();
    if only.is_empty() {
        return Ok(all);
    }
    let fits = |case: &Case<Given<P>>, wanted: &str| match wanted.parse::<u8>() {
        Ok(group) => case.group == group,
        Err(_) => case.name.starts_with(wanted),
    };
    for wanted in only {
        if !all.iter().any(|case| fits(case, wanted)) {
            bail!("there is no case or group '{wanted}'; --list shows those that there are");
        }
    }
    let chosen = all
        .into_iter()
        .filter(|case| only.iter().any(|wanted| fits(case, wanted)));
    Ok(chosen.collect())
}

fn list(rows: &[Value], json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(rows)?);
        return Ok(());
    }
    let text = |row: &Value, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| {
            let group = format!("{} {}", row["group"], text(row, "group_name"));
            [
                group,
                text(row, "name"),
                text(row, "summary"),
                text(row, "expected"),
            ]
        })
        .collect();
    let heading = ["GROUP", "CASE", "WHAT IS DONE", "EXPECTED"];
    print!("{}", table::table(heading, &rows));
    Ok(())
}

fn described<P: Protocol>(case: &Case<Given<P>>) -> Value {
    json!({
        "group": case.group,
        "group_name": P::GROUPS[usize::from(case.group) - 1],
        "name": case.name,
        "summary": case.summary,
        "expected": case.expected,
        "specification": case.specification,
        "needs": case.needs.to_string(),
    })
}

/// The address of `--second`.
fn second(arguments: &TortureArguments, port: u16) -> anyhow::Result<Option<SocketAddr>> {
    let Some(text) = &arguments.second else {
        return Ok(None);
    };
    let (host, own) = weir_nvme_host::options::host_and_port(text)?;
    resolve(host, own.unwrap_or(port)).map(Some)
}

fn nvme_target(url: &VolumeUrl, arguments: &TortureArguments) -> anyhow::Result<nvme::Target> {
    let options = weir_nvme_host::Options::from_url(url)?;
    let address = resolve(&options.host, options.port)?;
    let second = second(arguments, options.port)?;
    let (first, witness) = (identity(&options)?, identity(&options)?);
    Ok(nvme::Target {
        address,
        second,
        subsystem: options.subsystem,
        nsid: options.nsid,
        host_nqn: first.nqn,
        host_id: first.id,
        witness_nqn: witness.nqn,
        witness_id: witness.id,
    })
}

fn iscsi_target(url: &VolumeUrl, arguments: &TortureArguments) -> anyhow::Result<iscsi::Target> {
    let options = weir_iscsi_host::Options::from_url(url)?;
    if options.chap.user.is_some() {
        bail!(
            "weir torture speaks no CHAP; let its initiator in without, and leave user= out of {url}"
        );
    }
    let initiator = || match &options.initiator {
        Some(name) => Ok(name.to_string()),
        None => {
            let made = weir_iscsi_host::initiator_name(None, random_uuid()?.into_bytes())?;
            Ok::<_, anyhow::Error>(made.to_string())
        }
    };
    Ok(iscsi::Target {
        address: resolve(&options.host, options.port)?,
        second: second(arguments, options.port)?,
        name: options.target.to_string(),
        lun: options.lun,
        initiator: initiator()?,
        witness: initiator()?,
    })
}

fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let addresses = (host, port).to_socket_addrs();
    let mut addresses = addresses.with_context(|| format!("the address of {host}"))?;
    let first = addresses.next();
    first.with_context(|| format!("{host} has no address"))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A host of its own; the one of the URL, where it names one.
fn identity(options: &weir_nvme_host::Options) -> anyhow::Result<HostIdentity> {
    let made = HostIdentity::from_random(random_uuid()?.into_bytes());
    Ok(HostIdentity {
        nqn: options.host_nqn.clone().unwrap_or(made.nqn),
        id: options.host_id.unwrap_or(made.id),
    })
}

fn random_uuid() -> anyhow::Result<uuid::Uuid> {
    let text = std::fs::read_to_string(RANDOM_UUID_FILE)
        .with_context(|| format!("cannot read {RANDOM_UUID_FILE}"))?;
    let uuid = text.trim().parse();
    uuid.with_context(|| format!("{RANDOM_UUID_FILE} has no UUID"))
}

fn run_all<P: Protocol>(
    runner: &mut Runner<P>,
    chosen: &[&'static Case<Given<P>>],
) -> Vec<Record<P>> {
    let progress = Progress::start();
    let mut show = progress.sink();
    let began = Instant::now();
    let mut records = Vec::with_capacity(chosen.len());
    for (index, case) in chosen.iter().enumerate() {
        show(Line {
            elapsed: began.elapsed(),
            fraction: index as f64 / chosen.len() as f64,
            text: format!("{} of {}: {}", index + 1, chosen.len(), case.name),
        });
        records.push(runner.run(case));
    }
    records
}

fn as_json<P: Protocol>(record: &Record<P>) -> Value {
    let mut value = described::<P>(record.case);
    value["outcome"] = record.outcome.name().into();
    value["got"] = record.got.clone().into();
    value["witness_commands"] = record.seen.commands.into();
    value["witness_worst_seconds"] = record.seen.worst.as_secs_f64().into();
    value["elapsed_seconds"] = record.took.as_secs_f64().into();
    value
}

fn print_table<P: Protocol>(records: &[Record<P>]) {
    let rows: Vec<_> = records
        .iter()
        .map(|record| {
            [
                record.case.group.to_string(),
                record.case.name.to_owned(),
                record.outcome.name().to_owned(),
                record.case.expected.to_owned(),
                record.got.clone(),
            ]
        })
        .collect();
    let heading = ["GROUP", "CASE", "OUTCOME", "EXPECTED", "GOT"];
    print!("{}", table::table(heading, &rows));
}

/// How many cases ended how, in the order of outcomes from good to bad.
fn counts<P: Protocol>(records: &[Record<P>]) -> Vec<(String, Value)> {
    const ORDER: [Outcome; 9] = [
        Outcome::Ok,
        Outcome::Differs,
        Outcome::NoAnswer,
        Outcome::Preparation,
        Outcome::Disturbed,
        Outcome::LeftBehind,
        Outcome::TargetGone,
        Outcome::Skipped,
        Outcome::NotApplicable,
    ];
    ORDER
        .iter()
        .map(|outcome| {
            let of_it = records.iter().filter(|record| record.outcome == *outcome);
            (outcome.name().to_owned(), of_it.count().into())
        })
        .filter(|(_, count): &(String, Value)| *count != 0)
        .collect()
}

fn summary<P: Protocol>(records: &[Record<P>]) -> String {
    let parts: Vec<_> = counts(records)
        .into_iter()
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    let worst = records.iter().map(|record| record.seen.worst).max();
    let worst = worst.unwrap_or_default().as_nanos() as f64;
    format!(
        "{} cases: {}; the witness waited {} at most",
        records.len(),
        parts.join(", "),
        present::latency(worst)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_chosen_by_group_name_and_beginning() {
        let names = |only: &[&str]| -> Vec<_> {
            let only: Vec<_> = only.iter().map(|text| (*text).to_owned()).collect();
            let chosen = choose::<Nvme>(&only).expect("there are such cases");
            chosen.iter().map(|case| (case.group, case.name)).collect()
        };
        assert_eq!(names(&["icreq_pfv_1"]), [(1, "icreq_pfv_1")]);
        assert!(names(&["icreq_plen"]).len() > 2);
        assert!(names(&["7"]).iter().all(|(group, _)| *group == 7));
        assert_eq!(names(&[]).len(), Nvme::cases().len());
        let is_none = |name: &str| choose::<Nvme>(&[name.to_owned()]).is_err();
        assert!(is_none("99") && is_none("nothing") && is_none("reinstatement"));
        assert!(choose::<Iscsi>(&["reinstatement".to_owned()]).is_ok());
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for (address, own) in [
            ("127.0.0.1", true),
            ("127.8.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("192.0.2.1", false),
            ("0.0.0.0", false),
            ("::ffff:192.0.2.1", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(is_loopback(address), own, "{address}");
        }
    }
}
