//! `weir volume`.

use weir_block::size::Size;
use weir_gateway::api::views::{LunName, NamespaceName, VolumeStatus, VolumeView};
use weir_gateway::api::{Resize, SizeInput, VolumeSpec};
use weir_gateway::engine::{NexusReport, RegistrantReport, ReservationReport};
use weir_gateway::name::VolumeName;

use super::Asked;
use crate::cli::VolumeCommand;
use crate::client::{Failure, segment};
use crate::table::{lines, or_dash, table, values, yes};

const PATH: &str = "/v1/volumes";

fn path(name: &VolumeName) -> String {
    format!("{PATH}/{}", segment(name))
}

pub(crate) fn run(asked: &Asked, command: VolumeCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        VolumeCommand::List => asked.show(&client.get(PATH)?, list),
        VolumeCommand::Show { name } => asked.show(&client.get(&path(&name))?, show),
        VolumeCommand::Add { name, url } => {
            let answer = client.put(&path(&name), &VolumeSpec { url })?;
            asked.show_added(&answer, &format!("volume {name}"), show)
        }
        VolumeCommand::Remove { name } => {
            client.delete(&path(&name))?;
            Ok(asked.show_done(&format!(
                "removed volume {name}; its data stays where it is"
            )))
        }
        VolumeCommand::Resize { name, size, force } => {
            let resize = Resize {
                size: SizeInput(size),
                force,
            };
            asked.show(
                &client.post(&format!("{}/resize", path(&name)), &resize)?,
                show,
            )
        }
        VolumeCommand::ClearReservations { name } => {
            client.delete(&format!("{}/reservations", path(&name)))?;
            Ok(asked.show_done(&format!("volume {name} is reserved by nobody")))
        }
        VolumeCommand::Retry { name } => {
            let nothing = serde_json::json!({});
            asked.show(
                &client.post(&format!("{}/retry", path(&name)), &nothing)?,
                show,
            )
        }
    }
}

fn status(view: &VolumeView) -> &'static str {
    match view.status {
        VolumeStatus::Online => "online",
        VolumeStatus::Lost => "lost",
        VolumeStatus::Failed => "failed",
    }
}

fn size(view: &VolumeView) -> String {
    or_dash(view.report.as_ref().map(|report| Size(report.size_bytes)))
}

fn list(views: Vec<VolumeView>) -> String {
    let row = |view: &VolumeView| {
        let block = or_dash(view.report.as_ref().map(|report| report.block_size));
        let namespaces = view.namespaces.len().to_string();
        let luns = view.luns.len().to_string();
        let exports = view.exports.len().to_string();
        let status = status(view).to_owned();
        [
            view.name.to_string(),
            size(view),
            block,
            status,
            namespaces,
            luns,
            exports,
            view.url.clone(),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    let mut text = table(
        [
            "NAME",
            "SIZE",
            "BLOCK",
            "STATUS",
            "NAMESPACES",
            "LUNS",
            "EXPORTS",
            "URL",
        ],
        &rows,
    );
    for reason in views.iter().filter_map(|view| view.reason.as_ref()) {
        text.push_str(&format!("! {reason}\n"));
    }
    text
}

/// What is reserved, in words.
fn reserved(report: &ReservationReport) -> String {
    let lasts = match report.persistent {
        true => ", kept over a restart",
        false => "",
    };
    match (&report.shut_by, report.kind) {
        (Some(nexus), _) => format!("RESERVE by {}", session(nexus)),
        (None, Some(kind)) => format!("{kind}{lasts}"),
        (None, None) => format!("none{lasts}"),
    }
}

fn registrant(report: &RegistrantReport) -> String {
    let who = match (&report.nexus, &report.host) {
        (Some(nexus), _) => session(nexus),
        (None, host) => format!("host {}", host.as_deref().unwrap_or_default()),
    };
    let holds = if report.holds { ", holder" } else { "" };
    format!("key {} of {who}{holds}", report.key)
}

fn session(nexus: &NexusReport) -> String {
    format!("{} ({}) at {}", nexus.initiator, nexus.isid, nexus.target)
}

fn show(view: VolumeView) -> String {
    let namespace = |name: &NamespaceName| format!("{} of {}", name.nsid, name.subsystem);
    let mut pairs = vec![
        ("name", view.name.to_string()),
        ("url", view.url.clone()),
        ("status", status(&view).to_owned()),
    ];
    if let Some(reason) = &view.reason {
        pairs.push(("reason", reason.clone()));
    }
    if let Some(report) = &view.report {
        pairs.push((
            "size",
            format!("{} ({} bytes)", Size(report.size_bytes), report.size_bytes),
        ));
        pairs.push(("block size", report.block_size.to_string()));
        pairs.push(("read-only", yes(report.read_only)));
        pairs.push(("volatile cache", yes(report.volatile_cache)));
        if let Some(reservations) = &report.reservations {
            pairs.push(("reservation", reserved(reservations)));
            let hosts = reservations.registrants.iter();
            pairs.push(("registered", lines(hosts.map(registrant))));
        }
        if !report.notices.is_empty() {
            pairs.push(("notices", lines(&report.notices)));
        }
    }
    pairs.push(("namespaces", lines(view.namespaces.iter().map(namespace))));
    let lun = |name: &LunName| format!("{} of {}", name.lun, name.target);
    pairs.push(("LUNs", lines(view.luns.iter().map(lun))));
    pairs.push(("exports", lines(&view.exports)));
    if let Some(uuid) = view.uuid {
        pairs.push(("uuid", uuid.to_string()));
    }
    values(&pairs)
}
