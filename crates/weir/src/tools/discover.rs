//! `weir discover`: what does a target offer this host?

use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use weir_nvme::log::{SubsystemType, TransportType};
use weir_nvme_host::options::host_and_port;
use weir_nvme_host::{DiscoveryEntry, HostIdentity, discover};

use super::ReactorArguments;
use super::session::Session;
use crate::table;

/// NSID in the URLs that are shown: the usual first namespace.
const NSID: u32 = 1;

/// Ask a target which subsystems it offers this host, and where
#[derive(Debug, clap::Args)]
pub(crate) struct DiscoverArguments {
    /// The target: a name or address, and its port where that is neither 8009 nor 4420
    #[arg(value_name = "HOST[:PORT]")]
    target: String,
    /// Ask as this host [default: the one in /etc/nvme/hostnqn, or one made for this run]
    #[arg(long, value_name = "NQN", value_parser = weir_nvme::Nqn::new)]
    hostnqn: Option<weir_nvme::Nqn>,
}

pub(crate) fn run(arguments: DiscoverArguments, json: bool) -> anyhow::Result<ExitCode> {
    let (host, port) = host_and_port(&arguments.target)?;
    let session = Session::start(&ReactorArguments::default(), 1)?;
    let own = session.identity().clone();
    let nqn = arguments.hostnqn.unwrap_or(own.nqn);
    let identity = HostIdentity { nqn, id: own.id };
    let (host, asked_as) = (host.to_owned(), identity.nqn.clone());
    let asked = session
        .run(move |reactor| async move { discover(&reactor, &host, port, &identity).await })?;
    let entries = asked.with_context(|| format!("discovery at {}", arguments.target))?;
    if json {
        let entries: Vec<_> = entries.iter().map(as_json).collect();
        println!("{}", serde_json::to_string_pretty(&entries)?);
    } else if entries.is_empty() {
        eprintln!(
            "note: {} offers nothing to host {asked_as}",
            arguments.target
        );
    } else {
        let rows: Vec<_> = entries.iter().map(row).collect();
        let heading = ["SUBSYSTEM", "KIND", "TRANSPORT", "ADDRESS", "PORT", "URL"];
        print!("{}", table::table(heading, &rows));
    }
    Ok(ExitCode::SUCCESS)
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
