//! `/v1/connections`, `/v1/reactors`, `/v1/status` and `/metrics`.

use axum::Json;
use axum::extract;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;

use super::input::Names;
use super::views::StatusView;
use super::{ApiError, Context, Refusals, Shared};
use crate::engine::{
    ConnectionReport, EngineError, ListenerReport, ReactorReport, RevokedReport, ThrottledReport,
};
use crate::limits;
use crate::metrics::{self, Family, Kind};
use crate::state::{Export, ExportName, ProtocolName, QosLimit, State};

/// Lists the connections.
#[utoipa::path(get, path = "/v1/connections", tag = "running",
    operation_id = "list_connections",
    responses((status = 200, body = Vec<ConnectionReport>), Refusals))]
pub(super) async fn connections(
    extract::State(context): Shared,
) -> Result<Json<Vec<ConnectionReport>>, ApiError> {
    Ok(Json(context.control.engine().connections().await?))
}

/// Shows a connection.
#[utoipa::path(get, path = "/v1/connections/{id}", tag = "running",
    operation_id = "show_connection",
    params(("id" = u64, Path)),
    responses((status = 200, body = ConnectionReport), Refusals))]
pub(super) async fn connection(
    extract::State(context): Shared,
    Names(id): Names<u64>,
) -> Result<Json<ConnectionReport>, ApiError> {
    let connections = context.control.engine().connections().await?;
    let found = connections
        .into_iter()
        .find(|connection| connection.id == id);
    Ok(Json(found.ok_or(EngineError::UnknownConnection { id })?))
}

/// Ends a connection. A host that still wants it connects again.
#[utoipa::path(delete, path = "/v1/connections/{id}", tag = "running",
    operation_id = "end_connection",
    params(("id" = u64, Path)), responses((status = 204), Refusals))]
pub(super) async fn disconnect(
    extract::State(context): Shared,
    Names(id): Names<u64>,
) -> Result<StatusCode, ApiError> {
    context.control.engine().disconnect(id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists the reactors and how busy they are.
#[utoipa::path(get, path = "/v1/reactors", tag = "running", operation_id = "list_reactors",
    responses((status = 200, body = Vec<ReactorReport>), Refusals))]
pub(super) async fn reactors(
    extract::State(context): Shared,
) -> Result<Json<Vec<ReactorReport>>, ApiError> {
    Ok(Json(context.control.engine().reactors().await?))
}

/// Shows the gateway as a whole and what an operator should look at.
#[utoipa::path(get, path = "/v1/status", tag = "running", operation_id = "show_status",
    responses((status = 200, body = StatusView), Refusals))]
pub(super) async fn status(extract::State(context): Shared) -> Result<Json<StatusView>, ApiError> {
    let (control, about) = (&context.control, &context.about);
    let state = control.state();
    let engine = control.engine();
    let connections = engine.connections().await?;
    let is_session = |connection: &&ConnectionReport| connection.session.is_some();
    Ok(Json(StatusView {
        version: about.version.to_owned(),
        process: std::process::id(),
        uptime_seconds: about.started.elapsed().as_secs(),
        state: about.state.clone(),
        revision: state.revision,
        discovery_generation: state.discovery_generation,
        volumes: state.volumes.len(),
        subsystems: state.subsystems.len(),
        namespaces: state.namespaces().count(),
        limited_namespaces: count_limited(&state, |name| {
            matches!(name, ExportName::Namespace { .. })
        }),
        targets: state.targets.len(),
        exports: state.exports.len(),
        luns: state.luns().count(),
        limited_luns: count_limited(&state, |name| matches!(name, ExportName::Lun { .. })),
        files: state.files().count(),
        limited_files: count_limited(&state, |name| matches!(name, ExportName::File { .. })),
        sessions: connections.iter().filter(is_session).count(),
        throttled: throttled(&context),
        hosts: state.hosts.len(),
        listeners: engine.listeners().len(),
        connections: connections.len(),
        reactors: engine.reactors().await?.len(),
        memory: about.budget.clone(),
        resident_bytes: limits::resident_memory(),
        ceph: super::ceph::view(&context).await?,
        problems: problems(&context, &engine.revoked().await?),
    }))
}

/// What of a state has limits.
fn limited(state: &State) -> impl Iterator<Item = Export<'_>> {
    state.exports().filter(|export| !export.qos.is_empty())
}

fn count_limited(state: &State, is_of_kind: impl Fn(&ExportName) -> bool) -> usize {
    limited(state)
        .filter(|export| is_of_kind(&export.name))
        .count()
}

/// What waited for the limits of all that has some.
fn throttled(context: &Context) -> ThrottledReport {
    let (state, engine) = (context.control.state(), context.control.engine());
    let mut sum = ThrottledReport::default();
    for export in limited(&state) {
        let throttled = engine.throttled(&export.name).unwrap_or_default();
        sum.requests += throttled.requests;
        sum.waited_ns += throttled.waited_ns;
        sum.waiting += throttled.waiting;
    }
    sum
}

/// Names of the metrics of limits, of one kind of what is served.
struct LimitMetrics {
    /// Labels of the group and of its member.
    labels: [&'static str; 2],
    limit: &'static str,
    burst: &'static str,
    requests: &'static str,
    seconds: &'static str,
    waiting: &'static str,
}

const OF_NAMESPACES: LimitMetrics = LimitMetrics {
    labels: ["subsystem", "nsid"],
    limit: "weir_namespace_limit",
    burst: "weir_namespace_limit_burst",
    requests: "weir_namespace_throttled_requests_total",
    seconds: "weir_namespace_throttled_seconds_total",
    waiting: "weir_namespace_throttled_waiting",
};

const OF_LUNS: LimitMetrics = LimitMetrics {
    labels: ["target", "lun"],
    limit: "weir_lun_limit",
    burst: "weir_lun_limit_burst",
    requests: "weir_lun_throttled_requests_total",
    seconds: "weir_lun_throttled_seconds_total",
    waiting: "weir_lun_throttled_waiting",
};

const OF_FILES: LimitMetrics = LimitMetrics {
    labels: ["export", "volume"],
    limit: "weir_file_limit",
    burst: "weir_file_limit_burst",
    requests: "weir_file_throttled_requests_total",
    seconds: "weir_file_throttled_seconds_total",
    waiting: "weir_file_throttled_waiting",
};

/// The limits, and what waited for them, by namespace, by logical unit and by file; nothing of those without limits.
fn limit_families(context: &Context) -> Vec<Family> {
    let state = context.control.state();
    let namespace = |export: &Export<'_>| {
        let (nqn, nsid) = export.name.clone().namespace()?;
        Some([nqn.to_string(), nsid.to_string()])
    };
    let lun = |export: &Export<'_>| {
        let (target, lun) = export.name.clone().lun()?;
        Some([target.to_string(), lun.to_string()])
    };
    let mut families = OF_NAMESPACES.families(context, &state, namespace);
    let file = |export: &Export<'_>| {
        let (path, volume) = export.name.clone().file()?;
        Some([path.to_string(), volume.to_string()])
    };
    families.extend(OF_LUNS.families(context, &state, lun));
    families.extend(OF_FILES.families(context, &state, file));
    families
}

impl LimitMetrics {
    /// The metrics of what of a state has limits and, by `names`, is of this kind.
    fn families(
        &self,
        context: &Context,
        state: &State,
        names: impl Fn(&Export<'_>) -> Option<[String; 2]>,
    ) -> Vec<Family> {
        let allows = "Requests or bytes that a limit allows in a second, by limit.";
        let mut limits = Family::new(self.limit, Kind::Gauge, allows);
        let allows = "Requests or bytes that a limit allows at once, by limit.";
        let mut bursts = Family::new(self.burst, Kind::Gauge, allows);
        let waited = "Requests that had to wait for a limit.";
        let mut requests = Family::new(self.requests, Kind::Counter, waited);
        let waited = "Time that requests waited for a limit.";
        let mut seconds = Family::new(self.seconds, Kind::Counter, waited);
        let wait = "Requests that wait for a limit now.";
        let mut waiting = Family::new(self.waiting, Kind::Gauge, wait);
        let [group, member] = self.labels;
        for export in limited(state) {
            let Some(names) = names(&export) else {
                continue;
            };
            let labels = [(group, names[0].as_str()), (member, names[1].as_str())];
            for (name, limit) in export.qos.each() {
                let Some(QosLimit { limit, burst }) = limit else {
                    continue;
                };
                let with = || labels.into_iter().chain([("limit", name)]);
                limits.add(with(), limit);
                bursts.add(with(), burst);
            }
            let throttled = context.control.engine().throttled(&export.name);
            let throttled = throttled.unwrap_or_default();
            requests.add(labels, throttled.requests);
            seconds.add(labels, throttled.waited_ns as f64 / 1e9);
            waiting.add(labels, throttled.waiting);
        }
        vec![limits, bursts, requests, seconds, waiting]
    }
}

/// The protocol of each listener that listens. Inherited ones are NVMe/TCP.
fn listening(context: &Context) -> Vec<ProtocolName> {
    let state = context.control.state();
    let protocol = |report: ListenerReport| {
        let portal = report
            .address
            .and_then(|address| state.portals.get(&address));
        portal.map_or(ProtocolName::Nvme, |portal| portal.protocol.into())
    };
    let listeners = context.control.engine().listeners();
    listeners.into_iter().map(protocol).collect()
}

fn problems(context: &Context, revoked: &[RevokedReport]) -> Vec<String> {
    let control = &context.control;
    let (state, failures) = (control.state(), control.failures());
    let mut problems: Vec<String> = failures.volumes.into_values().collect();
    let troubles = super::ceph::troubles(context);
    for name in state.volumes.keys() {
        let report = control.engine().volume(name);
        let lost = report.is_some_and(|report| report.lost);
        match (lost, troubles.get(name)) {
            (true, Some(trouble)) => problems.push(format!(
                "the medium of volume {name} cannot be reached: {trouble}"
            )),
            (true, None) => problems.push(format!("the medium of volume {name} cannot be reached")),
            (false, Some(trouble)) => problems.push(format!("volume {name}: {trouble}")),
            (false, None) => {}
        }
    }
    problems.extend(
        revoked.iter().map(|one| {
            format!("requests are under way that their host may not do any more: {one}")
        }),
    );
    problems.extend(failures.listeners.into_values());
    for (nqn, subsystem) in &state.subsystems {
        if !subsystem.allow_any_host && subsystem.allowed_hosts.is_empty() {
            problems.push(format!("no host may connect to subsystem {nqn}"));
        }
    }
    for (name, target) in &state.targets {
        if !target.allow_any_host && target.allowed_hosts.is_empty() {
            problems.push(format!("no host may log in to target {name}"));
        }
    }
    for (path, export) in &state.exports {
        if !export.allow_any_host && export.allowed_addresses.is_empty() {
            problems.push(format!("no client may use export {path}"));
        }
    }
    let listening = listening(context);
    for (is_served, what, protocol) in [
        (
            !state.subsystems.is_empty(),
            "subsystems",
            ProtocolName::Nvme,
        ),
        (!state.targets.is_empty(), "targets", ProtocolName::Iscsi),
        (!state.exports.is_empty(), "exports", ProtocolName::Nfs),
    ] {
        if is_served && !listening.contains(&protocol) {
            let problem = format!("there are {what}, but no listener that hosts could reach");
            problems.push(problem);
        }
    }
    problems
}

/// Everything that is counted, as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "running", operation_id = "show_metrics",
    responses((status = 200, body = String, content_type = "text/plain"), Refusals))]
pub(super) async fn metrics(
    extract::State(context): Shared,
) -> Result<impl IntoResponse, ApiError> {
    let mut families = own_families(&context);
    families.extend(limit_families(&context));
    families.extend(super::ceph::families(&context).await?);
    families.extend(context.control.engine().counters().await?);
    Ok((
        [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)],
        metrics::page(&families),
    ))
}

/// What the control plane itself counts.
fn own_families(context: &Context) -> Vec<Family> {
    let (control, about) = (&context.control, &context.about);
    let (state, failures) = (control.state(), control.failures());
    let gauge = |name, help, value: usize| Family::single(name, Kind::Gauge, help, value as u64);
    let mut build = Family::new("weir_build_info", Kind::Gauge, "The program's version.");
    build.add([("version", about.version)], 1_u64);
    let mut online = Family::new(
        "weir_volume_online",
        Kind::Gauge,
        "Whether a volume is open and reachable.",
    );
    let mut planned = Family::new(
        "weir_memory_planned_bytes",
        Kind::Gauge,
        "Memory at worst, by what it is for.",
    );
    for part in &about.budget.parts {
        planned.add([("part", part.name.as_str())], part.bytes);
    }
    let mut resident = Family::new(
        "weir_memory_resident_bytes",
        Kind::Gauge,
        "Memory of the process that is in the machine's now.",
    );
    if let Some(bytes) = limits::resident_memory() {
        resident.add([], bytes);
    }
    for name in state.volumes.keys() {
        let report = control.engine().volume(name);
        let value = u64::from(report.is_some_and(|report| !report.lost));
        online.add([("volume", name.as_str())], value);
    }
    vec![
        build,
        planned,
        resident,
        Family::single(
            "weir_memory_allowed_bytes",
            Kind::Gauge,
            "Memory that the process may use.",
            about.budget.allowed_bytes,
        ),
        Family::single(
            "weir_uptime_seconds",
            Kind::Gauge,
            "Time since the start.",
            about.started.elapsed().as_secs_f64(),
        ),
        Family::single(
            "weir_state_changes_total",
            Kind::Counter,
            "Changes made to the state, ever.",
            state.revision,
        ),
        gauge("weir_volumes", "Volumes.", state.volumes.len()),
        gauge(
            "weir_volumes_failed",
            "Volumes that are not open.",
            failures.volumes.len(),
        ),
        online,
        gauge("weir_subsystems", "Subsystems.", state.subsystems.len()),
        gauge("weir_namespaces", "Namespaces.", state.namespaces().count()),
        gauge("weir_targets", "iSCSI targets.", state.targets.len()),
        gauge("weir_exports", "NFS exports.", state.exports.len()),
        gauge("weir_luns", "Logical units.", state.luns().count()),
        gauge("weir_hosts", "Registered hosts.", state.hosts.len()),
        gauge(
            "weir_listeners",
            "Listeners in the state.",
            state.portals.len(),
        ),
        gauge(
            "weir_listeners_failed",
            "Listeners that are not open.",
            failures.listeners.len(),
        ),
        Family::single(
            "weir_log_lines_suppressed_total",
            Kind::Counter,
            "Log lines left out because there were too many like them.",
            crate::log::suppressed_total(),
        ),
    ]
}
