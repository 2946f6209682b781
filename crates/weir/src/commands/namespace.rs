//! `weir namespace`.

use weir_block::size::Size;
use weir_gateway::api::views::{NamespaceView, SubsystemView};
use weir_gateway::name::Nqn;
use weir_gateway::state::{
    NamespacePatch, NamespaceSpec, Qos, QosLimit, QosLimitPatch, QosPatch, Visibility,
};

use super::Asked;
use super::status::throttled_text;
use crate::cli::{LimitArgs, NamespaceAdd, NamespaceCommand, Visible};
use crate::client::{Failure, segment};
use crate::table::{lines, or_dash, table, values, yes};

fn path(nqn: &Nqn) -> String {
    format!("/v1/subsystems/{}/namespaces", segment(nqn))
}

pub(crate) fn run(asked: &Asked, command: NamespaceCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        NamespaceCommand::List { nqn: Some(nqn) } => asked.show(&client.get(&path(&nqn))?, list),
        NamespaceCommand::List { nqn: None } => asked.show_members(
            "/v1/subsystems",
            |view: SubsystemView| view.namespaces,
            list,
        ),
        NamespaceCommand::Show { nqn, nsid } => {
            asked.show(&client.get(&format!("{}/{nsid}", path(&nqn)))?, show)
        }
        NamespaceCommand::Add(arguments) => add(asked, arguments),
        NamespaceCommand::Set {
            nqn,
            nsid,
            read_only,
            visible,
            limits,
        } => {
            let visible_to = visibility(visible);
            let qos = qos(&limits);
            if read_only.is_none() && visible_to.is_none() && qos.is_none() {
                let message = "nothing to change was given";
                let hint = "use --read-only, --visible-to, --visible-to-all or a limit such as --read-iops";
                return Err(Failure::new(message).hint(hint));
            }
            let patch = NamespacePatch {
                read_only,
                visible_to,
                qos,
            };
            asked.show(
                &client.patch(&format!("{}/{nsid}", path(&nqn)), &patch)?,
                show,
            )
        }
        NamespaceCommand::Remove { nqn, nsid } => {
            client.delete(&format!("{}/{nsid}", path(&nqn)))?;
            Ok(asked.show_done(&format!(
                "removed namespace {nsid} of {nqn}; its volume stays"
            )))
        }
    }
}

fn add(asked: &Asked, arguments: NamespaceAdd) -> Result<String, Failure> {
    let NamespaceAdd {
        nqn,
        volume,
        nsid,
        uuid,
        nguid,
        eui64,
        read_only,
        visible,
        limits,
    } = arguments;
    let read_only = read_only.then_some(true);
    let visible_to = visibility(visible);
    let spec = NamespaceSpec {
        volume,
        uuid,
        nguid,
        eui64,
        read_only,
        visible_to,
        qos: qos(&limits),
    };
    let path = path(&nqn);
    let answer = match nsid {
        Some(nsid) => asked.client.put(&format!("{path}/{nsid}"), &spec)?,
        None => asked.client.post(&path, &spec)?,
    };
    asked.show_added(&answer, &format!("namespace of {nqn}"), show)
}

/// Who is to see it; none where nothing is said.
pub(super) fn visibility(visible: Visible) -> Option<Visibility> {
    if visible.visible_to_all {
        return Some(Visibility::All);
    }
    let hosts = visible.visible_to;
    (!hosts.is_empty()).then(|| Visibility::Hosts(hosts.into_iter().collect()))
}

/// The limits that are given; none where none is.
pub(super) fn qos(limits: &LimitArgs) -> Option<QosPatch> {
    let limit = |limit: Option<u64>, burst| limit.map(|limit| QosLimitPatch { limit, burst });
    let patch = QosPatch {
        read_iops: limit(limits.read_iops, limits.read_iops_burst),
        write_iops: limit(limits.write_iops, limits.write_iops_burst),
        total_iops: limit(limits.total_iops, limits.total_iops_burst),
        read_bandwidth: limit(limits.read_bandwidth, limits.read_bandwidth_burst),
        write_bandwidth: limit(limits.write_bandwidth, limits.write_bandwidth_burst),
        total_bandwidth: limit(limits.total_bandwidth, limits.total_bandwidth_burst),
    };
    (!patch.is_empty()).then_some(patch)
}

/// Who sees it, in a word.
pub(super) fn visible(visible_to: &Visibility) -> String {
    match visible_to {
        Visibility::All => "all".to_owned(),
        Visibility::Hosts(hosts) => format!("{} hosts", hosts.len()),
    }
}

/// State of what is served, in a word.
pub(super) fn status(online: bool) -> String {
    if online { "online" } else { "offline" }.to_owned()
}

/// The access that hosts have, in a word.
pub(super) fn access(read_only: bool) -> String {
    if read_only { "read-only" } else { "read-write" }.to_owned()
}

fn list(views: Vec<NamespaceView>) -> String {
    let row = |view: &NamespaceView| {
        [
            view.subsystem.to_string(),
            view.nsid.to_string(),
            view.volume.to_string(),
            or_dash(view.size_bytes.map(Size)),
            access(view.read_only),
            visible(&view.visible_to),
            status(view.online),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(
        [
            "SUBSYSTEM",
            "NSID",
            "VOLUME",
            "SIZE",
            "ACCESS",
            "VISIBLE",
            "STATUS",
        ],
        &rows,
    )
}

/// Each limit on a line of its own.
pub(super) fn limits(qos: &Qos) -> String {
    let line = |(name, limit): (&str, Option<QosLimit>)| {
        let QosLimit { limit, burst } = limit?;
        let name = name.replace('_', " ").replace("iops", "IOPS");
        Some(match name.ends_with("bandwidth") {
            true => format!("{name} {}/s, burst {}", Size(limit), Size(burst)),
            false => format!("{name} {limit}, burst {burst}"),
        })
    };
    let limits: Vec<_> = qos.each().into_iter().filter_map(line).collect();
    if limits.is_empty() {
        return "none".to_owned();
    }
    lines(limits)
}

fn throttled(view: &NamespaceView) -> String {
    or_dash(view.throttled.as_ref().map(throttled_text))
}

fn show(view: NamespaceView) -> String {
    let visible_to = match &view.visible_to {
        Visibility::All => "all hosts of the subsystem".to_owned(),
        Visibility::Hosts(hosts) => lines(hosts),
    };
    values(&[
        ("subsystem", view.subsystem.to_string()),
        ("nsid", view.nsid.to_string()),
        ("volume", view.volume.to_string()),
        ("status", status(view.online)),
        ("size", or_dash(view.size_bytes.map(Size))),
        ("read-only", yes(view.read_only)),
        ("visible to", visible_to),
        ("limits", limits(&view.qos)),
        ("throttled", throttled(&view)),
        ("uuid", view.uuid.to_string()),
        ("nguid", view.nguid.to_string()),
        ("eui64", view.eui64.to_string()),
        ("ANA group", view.ana_group.to_string()),
    ])
}
