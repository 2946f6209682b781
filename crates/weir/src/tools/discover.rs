//! `weir discover`: what does a target offer this host?

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use weir_iscsi_host::ChapOptions;
use weir_nvme::log::{SubsystemType, TransportType};
use weir_nvme_host::options::host_and_port;
use weir_nvme_host::{DiscoveryEntry, HostIdentity, discover};

use super::ReactorArguments;
use super::session::Session;
use crate::table;

/// NSID in the URLs that are shown: the usual first namespace.
const NSID: u32 = 1;

/// Ask a target which subsystems, or which iSCSI targets, it offers this host, and where
#[derive(Debug, clap::Args)]
pub(crate) struct DiscoverArguments {
    /// The target: a name or address of NVMe/TCP, and its port where that is neither 8009 nor 4420; or iscsi://HOST, and its
    /// port where that is not 3260
    #[arg(value_name = "HOST[:PORT]")]
    target: String,
    /// Ask as this NVMe host [default: the one in /etc/nvme/hostnqn, or one made for this run]
    #[arg(long, value_name = "NQN", value_parser = weir_nvme::Nqn::new)]
    hostnqn: Option<weir_nvme::Nqn>,
    /// Ask as this iSCSI initiator [default: the one in /etc/iscsi/initiatorname.iscsi, or one made for this run]
    #[arg(long, value_name = "IQN")]
    initiator: Option<weir_iscsi::Name>,
    /// The name by which this host proves itself (CHAP)
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The file whose first line is its secret [default: the variable WEIR_CHAP_SECRET]
    #[arg(long, value_name = "FILE", requires = "user")]
    secret_file: Option<PathBuf>,
    /// The name by which the target proves itself
    #[arg(long, value_name = "NAME", requires = "user")]
    mutual_user: Option<String>,
    /// The file whose first line is the target's secret [default: the variable WEIR_CHAP_MUTUAL_SECRET]
    #[arg(long, value_name = "FILE", requires = "mutual_user")]
    mutual_secret_file: Option<PathBuf>,
}

pub(crate) fn run(arguments: DiscoverArguments, json: bool) -> anyhow::Result<ExitCode> {
    let target = arguments.target.clone();
    if let Some(place) = target.strip_prefix("iscsi://") {
        return iscsi(arguments, place, json);
    }
    let place = target.strip_prefix("nvme+tcp://").unwrap_or(&target);
    if arguments.initiator.is_some() || arguments.user.is_some() {
        anyhow::bail!("--initiator and --user go with iscsi://HOST: NVMe/TCP knows neither");
    }
    nvme(arguments, place, json)
}

/// Prints what was found, or says that it is nothing.
fn show<const COLUMNS: usize>(
    json: bool,
    found: &[serde_json::Value],
    heading: [&str; COLUMNS],
    rows: &[[String; COLUMNS]],
    nothing: &str,
) -> anyhow::Result<ExitCode> {
    if json {
        println!("{}", serde_json::to_string_pretty(found)?);
    } else if rows.is_empty() {
        eprintln!("note: {nothing}");
    } else {
        print!("{}", table::table(heading, rows));
    }
    Ok(ExitCode::SUCCESS)
}

fn nvme(arguments: DiscoverArguments, place: &str, json: bool) -> anyhow::Result<ExitCode> {
    let (host, port) = host_and_port(place)?;
    let session = Session::start(&ReactorArguments::default(), 1)?;
    let own = session.identity().clone();
    let nqn = arguments.hostnqn.unwrap_or(own.nqn);
    let identity = HostIdentity { nqn, id: own.id };
    let (host, asked_as) = (host.to_owned(), identity.nqn.clone());
    let asked = session
        .run(move |reactor| async move { discover(&reactor, &host, port, &identity).await })?;
    let entries = asked.with_context(|| format!("discovery at {}", arguments.target))?;
    let found: Vec<_> = entries.iter().map(as_json).collect();
    let rows: Vec<_> = entries.iter().map(row).collect();
    let heading = ["SUBSYSTEM", "KIND", "TRANSPORT", "ADDRESS", "PORT", "URL"];
    let nothing = format!("{} offers nothing to host {asked_as}", arguments.target);
    show(json, &found, heading, &rows, &nothing)
}

fn iscsi(arguments: DiscoverArguments, place: &str, json: bool) -> anyhow::Result<ExitCode> {
    let (host, port) = host_and_port(place)?;
    if arguments.hostnqn.is_some() {
        anyhow::bail!("--hostnqn goes with NVMe/TCP: an iSCSI initiator is named by --initiator");
    }
    let session = Session::start(&ReactorArguments::default(), 1)?;
    let initiator = arguments.initiator.as_ref();
    let initiator = initiator.unwrap_or_else(|| session.initiator()).clone();
    let chap = ChapOptions {
        user: arguments.user,
        secret_file: arguments.secret_file,
        mutual_user: arguments.mutual_user,
        mutual_secret_file: arguments.mutual_secret_file,
    };
    let (asked_at, asked_as) = (host.to_owned(), initiator.clone());
    let asked = session.run(move |reactor| async move {
        weir_iscsi_host::discover(&reactor, &asked_at, port, &initiator, chap).await
    })?;
    let entries = asked.with_context(|| format!("discovery at {}", arguments.target))?;
    let portal = match host.contains(':') {
        true => format!(
            "[{host}]:{}",
            port.unwrap_or(weir_iscsi_host::options::PORT)
        ),
        false => format!("{host}:{}", port.unwrap_or(weir_iscsi_host::options::PORT)),
    };
    let mut rows = Vec::new();
    for entry in &entries {
        // A target without an address is reached where it was asked for.
        let mut addresses = entry.addresses.clone();
        if addresses.is_empty() {
            addresses.push(portal.clone());
        }
        rows.extend(addresses.iter().map(|address| portal_row(entry, address)));
    }
    let object = |[target, address, group, url]: &[String; 4]| json!({ "target": target, "address": address, "portal_group": group.parse::<u16>().ok(), "url": url });
    let found: Vec<_> = rows.iter().map(object).collect();
    let heading = ["TARGET", "ADDRESS", "GROUP", "URL OF LUN 0"];
    let nothing = format!("{} offers nothing to {asked_as}", arguments.target);
    show(json, &found, heading, &rows, &nothing)
}

/// A target at one of its portals, whose address may end with a comma and a portal group.
fn portal_row(entry: &weir_iscsi_host::DiscoveryEntry, address: &str) -> [String; 4] {
    let (portal, group) = address.split_once(',').unwrap_or((address, "-"));
    [
        entry.target.to_string(),
        portal.to_owned(),
        group.to_owned(),
        format!("{}://{portal}/{}/0", weir_iscsi_host::SCHEME, entry.target),
    ]
}

fn kind(entry: &DiscoveryEntry) -> &'static str {
    match entry.kind {
        SubsystemType::Nvm => "nvm",
        SubsystemType::Referral | SubsystemType::CurrentDiscovery => "discovery",
        _ => "other",
    }
}

fn transport(entry: &DiscoveryEntry) -> String {
    match entry.transport {
        TransportType::Tcp => "tcp".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}

fn as_json(entry: &DiscoveryEntry) -> serde_json::Value {
    json!({
        "subsystem": entry.subsystem.as_str(),
        "kind": kind(entry),
        "transport": transport(entry),
        "address": entry.address,
        "port": entry.service,
        "port_id": entry.port_id,
        "url": entry.url(NSID),
    })
}

fn row(entry: &DiscoveryEntry) -> [String; 6] {
    [
        entry.subsystem.as_str().to_owned(),
        kind(entry).to_owned(),
        transport(entry),
        entry.address.clone(),
        entry.service.clone(),
        table::or_dash(entry.url(NSID)),
    ]
}
