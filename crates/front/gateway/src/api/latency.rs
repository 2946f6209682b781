//! Where the time of hosts' commands went: `/v1/latency/...` and `latency` of a namespace or connection.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_front::{CommandKind, Histogram, Latency, Stage, StageTimes};

use super::input::{Names, Options};
use super::{ApiError, Refusals, Shared};
use crate::engine::{EngineError, Reply};
use crate::name::{ExportPath, IscsiName, Nqn, VolumeName};
use crate::state::ExportName;

/// Longest interval that can be looked at, in seconds.
pub const INTERVAL_SECONDS_MAX: u32 = 60;

/// Over which time to look.
#[derive(Debug, Clone, Copy, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Over {
    /// Show only commands that end in the next so many seconds, 1 to 60, and answer then. Without it: all since the
    /// connection was made, or since the namespace is served.
    #[param(minimum = 1, maximum = 60)]
    interval: Option<u32>,
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Command {
    /// It reads.
    Read,
    /// It writes.
    Write,
    /// Anything else that asks something of a volume.
    Other,
}

/// How long something took, in nanoseconds. Quantiles are never too short, and too long by a quarter at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Times {
    /// The mean.
    pub mean_ns: u64,
    /// Half were not longer.
    pub p50_ns: u64,
    /// 99 % were not longer.
    pub p99_ns: u64,
    /// 99.9 % were not longer.
    pub p999_ns: u64,
    /// The longest. Over an interval, too long by a quarter at most.
    pub max_ns: u64,
}

/// Where the time of one kind of command went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommandTimes {
    /// What the commands do.
    pub command: Command,
    /// How many there were.
    pub count: u64,
    /// From a command's first byte until all of it was there, its data included.
    pub wire_in: Times,
    /// Waiting in the gateway for a slot or a buffer, and until the volume took the request.
    pub queue: Times,
    /// Until the volume had done it.
    pub volume: Times,
    /// Until the kernel had taken the last byte of the answer.
    pub wire_out: Times,
    /// All of these together.
    pub total: Times,
}

/// Where the time of a namespace's commands went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamespaceLatency {
    /// The subsystem.
    pub subsystem: Nqn,
    /// The NSID.
    pub nsid: u32,
    /// By kind of command; those that occurred.
    pub commands: Vec<CommandTimes>,
}

/// Where the time of a logical unit's commands went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LunLatency {
    /// The target.
    pub target: IscsiName,
    /// The number.
    pub lun: u16,
    /// By kind of command; those that occurred.
    pub commands: Vec<CommandTimes>,
}

/// Times of the requests of a volume that is a file of an NFS export, by stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileLatency {
    /// Path of its export.
    pub export: ExportPath,
    /// The volume.
    pub volume: VolumeName,
    /// By kind of request; those that occurred.
    pub commands: Vec<CommandTimes>,
}

/// Where the time of a connection's commands went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ConnectionLatency {
    /// The connection.
    pub connection: u64,
    /// By kind of command; those that occurred. None on admin queues.
    pub commands: Vec<CommandTimes>,
}

fn times(histogram: &Histogram) -> Times {
    Times {
        mean_ns: histogram.mean_ns(),
        p50_ns: histogram.quantile_ns(0.5),
        p99_ns: histogram.quantile_ns(0.99),
        p999_ns: histogram.quantile_ns(0.999),
        max_ns: histogram.max_ns(),
    }
}

fn command_times(command: Command, of: &StageTimes) -> CommandTimes {
    let stage = |stage| times(of.stage(stage));
    CommandTimes {
        command,
        count: of.count(),
        wire_in: stage(Stage::WireIn),
        queue: stage(Stage::Queue),
        volume: stage(Stage::Volume),
        wire_out: stage(Stage::WireOut),
        total: stage(Stage::Total),
    }
}

fn commands(latency: &Latency) -> Vec<CommandTimes> {
    let of_kind = |kind| {
        let command = match kind {
            CommandKind::Read => Command::Read,
            CommandKind::Write => Command::Write,
            CommandKind::Other => Command::Other,
        };
        let times = latency.kind(kind).filter(|times| times.count() > 0)?;
        Some(command_times(command, times))
    };
    CommandKind::ALL.into_iter().filter_map(of_kind).collect()
}

/// Asks once, or at both ends of an interval and takes the difference.
async fn over<'a, K: Ord>(
    over: Over,
    ask: impl Fn() -> Reply<'a, BTreeMap<K, Latency>>,
) -> Result<BTreeMap<K, Latency>, ApiError> {
    let Some(interval) = over.interval else {
        return Ok(ask().await?);
    };
    if !(1..=INTERVAL_SECONDS_MAX).contains(&interval) {
        let message =
            format!("an interval has 1 to {INTERVAL_SECONDS_MAX} seconds, not {interval}");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "invalid", message));
    }
    let before = ask().await?;
    tokio::time::sleep(Duration::from_secs(interval.into())).await;
    let mut all = ask().await?;
    for (key, latency) in &mut all {
        if let Some(before) = before.get(key) {
            *latency = latency.since(before);
        }
    }
    Ok(all)
}

fn of_namespace(subsystem: Nqn, nsid: u32, latency: &Latency) -> NamespaceLatency {
    NamespaceLatency {
        subsystem,
        nsid,
        commands: commands(latency),
    }
}

fn of_lun(target: IscsiName, lun: u16, latency: &Latency) -> LunLatency {
    LunLatency {
        target,
        lun,
        commands: commands(latency),
    }
}

fn of_file(export: ExportPath, volume: VolumeName, latency: &Latency) -> FileLatency {
    FileLatency {
        export,
        volume,
        commands: commands(latency),
    }
}

fn of_connection(connection: u64, latency: &Latency) -> ConnectionLatency {
    ConnectionLatency {
        connection,
        commands: commands(latency),
    }
}

/// Lists where the time of namespaces' commands went. Namespaces whose volume is not open are left out.
#[utoipa::path(get, path = "/v1/latency/namespaces", tag = "running",
    operation_id = "list_namespace_latencies", params(Over),
    responses((status = 200, body = Vec<NamespaceLatency>), Refusals))]
pub(super) async fn namespaces(
    State(context): Shared,
    Options(interval): Options<Over>,
) -> Result<Json<Vec<NamespaceLatency>>, ApiError> {
    let engine = context.control.engine();
    let all = over(interval, || engine.export_latencies(None)).await?;
    let view = |(export, latency): (ExportName, Latency)| {
        let (nqn, nsid) = export.namespace()?;
        Some(of_namespace(nqn, nsid, &latency))
    };
    Ok(Json(all.into_iter().filter_map(view).collect()))
}

/// Lists where the time of logical units' commands went. Those whose volume is not open are left out.
#[utoipa::path(get, path = "/v1/latency/luns", tag = "running",
    operation_id = "list_lun_latencies", params(Over),
    responses((status = 200, body = Vec<LunLatency>), Refusals))]
pub(super) async fn luns(
    State(context): Shared,
    Options(interval): Options<Over>,
) -> Result<Json<Vec<LunLatency>>, ApiError> {
    let engine = context.control.engine();
    let all = over(interval, || engine.export_latencies(None)).await?;
    let view = |(export, latency): (ExportName, Latency)| {
        let (target, lun) = export.lun()?;
        Some(of_lun(target, lun, &latency))
    };
    Ok(Json(all.into_iter().filter_map(view).collect()))
}

/// Shows where the time of a logical unit's commands went.
#[utoipa::path(get, path = "/v1/iscsi/targets/{iqn}/luns/{lun}/latency", tag = "running",
    operation_id = "show_lun_latency",
    params(("iqn" = IscsiName, Path), ("lun" = u16, Path), Over),
    responses((status = 200, body = LunLatency), Refusals))]
pub(super) async fn lun(
    State(context): Shared,
    Names((target, lun)): Names<(IscsiName, u16)>,
    Options(interval): Options<Over>,
) -> Result<Json<LunLatency>, ApiError> {
    let control = &context.control;
    control.state().lun(&target, lun)?;
    let export = ExportName::Lun {
        target: target.clone(),
        lun,
    };
    let ask = || control.engine().export_latencies(Some(export.clone()));
    // It is not among what is served while its volume is not open.
    let latency = over(interval, ask).await?.remove(&export);
    Ok(Json(of_lun(target, lun, &latency.unwrap_or_default())))
}

/// Lists where the time went of requests of volumes that are files of NFS exports. Those whose volume is not open are left out.
#[utoipa::path(get, path = "/v1/latency/files", tag = "running",
    operation_id = "list_file_latencies", params(Over),
    responses((status = 200, body = Vec<FileLatency>), Refusals))]
pub(super) async fn files(
    State(context): Shared,
    Options(interval): Options<Over>,
) -> Result<Json<Vec<FileLatency>>, ApiError> {
    let engine = context.control.engine();
    let all = over(interval, || engine.export_latencies(None)).await?;
    let view = |(export, latency): (ExportName, Latency)| {
        let (path, volume) = export.file()?;
        Some(of_file(path, volume, &latency))
    };
    Ok(Json(all.into_iter().filter_map(view).collect()))
}

/// Shows where the time went of requests of a volume that is a file of an NFS export.
#[utoipa::path(get, path = "/v1/nfs/exports/{path}/files/{volume}/latency", tag = "running",
    operation_id = "show_file_latency",
    params(("path" = ExportPath, Path), ("volume" = VolumeName, Path), Over),
    responses((status = 200, body = FileLatency), Refusals))]
pub(super) async fn file(
    State(context): Shared,
    Names((path, volume)): Names<(ExportPath, VolumeName)>,
    Options(interval): Options<Over>,
) -> Result<Json<FileLatency>, ApiError> {
    let control = &context.control;
    control.state().file(&path, &volume)?;
    let export = ExportName::File {
        path: path.clone(),
        volume: volume.clone(),
    };
    let ask = || control.engine().export_latencies(Some(export.clone()));
    // It is not among what is served while its volume is not open.
    let latency = over(interval, ask).await?.remove(&export);
    Ok(Json(of_file(path, volume, &latency.unwrap_or_default())))
}

/// Lists where the time of connections' commands went.
#[utoipa::path(get, path = "/v1/latency/connections", tag = "running",
    operation_id = "list_connection_latencies", params(Over),
    responses((status = 200, body = Vec<ConnectionLatency>), Refusals))]
pub(super) async fn connections(
    State(context): Shared,
    Options(interval): Options<Over>,
) -> Result<Json<Vec<ConnectionLatency>>, ApiError> {
    let engine = context.control.engine();
    let all = over(interval, || engine.connection_latencies(None)).await?;
    let view = |(id, latency): (_, Latency)| of_connection(id, &latency);
    Ok(Json(all.into_iter().map(view).collect()))
}

/// Shows where the time of a namespace's commands went.
#[utoipa::path(get, path = "/v1/subsystems/{nqn}/namespaces/{nsid}/latency", tag = "running",
    operation_id = "show_namespace_latency",
    params(("nqn" = Nqn, Path), ("nsid" = u32, Path), Over),
    responses((status = 200, body = NamespaceLatency), Refusals))]
pub(super) async fn namespace(
    State(context): Shared,
    Names((nqn, nsid)): Names<(Nqn, u32)>,
    Options(interval): Options<Over>,
) -> Result<Json<NamespaceLatency>, ApiError> {
    let control = &context.control;
    control.state().namespace(&nqn, nsid)?;
    let export = ExportName::Namespace {
        subsystem: nqn.clone(),
        nsid,
    };
    let ask = || control.engine().export_latencies(Some(export.clone()));
    // It is not among what is served while its volume is not open.
    let latency = over(interval, ask).await?.remove(&export);
    let latency = latency.unwrap_or_default();
    Ok(Json(of_namespace(nqn, nsid, &latency)))
}

/// Shows where the time of a connection's commands went.
#[utoipa::path(get, path = "/v1/connections/{id}/latency", tag = "running",
    operation_id = "show_connection_latency",
    params(("id" = u64, Path), Over),
    responses((status = 200, body = ConnectionLatency), Refusals))]
pub(super) async fn connection(
    State(context): Shared,
    Names(id): Names<u64>,
    Options(interval): Options<Over>,
) -> Result<Json<ConnectionLatency>, ApiError> {
    let engine = context.control.engine();
    let mut all = over(interval, || engine.connection_latencies(Some(id))).await?;
    let latency = all.remove(&id);
    let latency = latency.ok_or(EngineError::UnknownConnection { id })?;
    Ok(Json(of_connection(id, &latency)))
}
