//! Counts of reactors, front ends and volumes, as metrics.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{OperationKind, Volume};
use weir_front::{CommandKind, ConnectionCounts, FrontStats, Histogram, Latency, Stage};
use weir_volume::{KINDS, VolumeStatistics};

use super::front_end::Counts;
use super::volumes::Open;
use super::{ANSWER_TIME_MAX, ReactorEngine};
use crate::engine::{EngineError, ReactorReport};
use crate::metrics::{Family, Kind, Value};
use crate::name::VolumeName;

/// Bounds of the buckets of volumes' latencies that are shown, as powers of two of nanoseconds: 4 us to 34 s.
const VOLUME_POWERS: RangeInclusive<u32> = 12..=35;
/// Bounds of the buckets of commands' stages that are shown, as powers of two of nanoseconds: 4 us to 1 s.
const STAGE_POWERS: [u32; 10] = [12, 14, 16, 18, 20, 22, 24, 26, 28, 30];

impl ReactorEngine {
    pub(super) async fn count(&self) -> Result<Vec<Family>, EngineError> {
        let mut families = of_reactors(&self.ask_reactors().await?);
        let counts = self.front_ends.counts().await;
        let reactors = by_reactor(&counts, &self.hubs.bytes_in_flight());
        families.extend(of_connections(&counts, &reactors));
        families.extend(of_groups(&counts));
        families.push(of_limits(&reactors));
        families.push(of_stages(&counts));
        let (names, guards): (Vec<_>, Vec<_>) = {
            let volumes = &self.books().volumes;
            let of_volume =
                |(name, open): (&VolumeName, &Open)| (name.to_string(), open.guard.clone());
            volumes.iter().map(of_volume).unzip()
        };
        let latencies = {
            let counted: Vec<_> = guards
                .iter()
                .map(|guard| guard.clone() as Arc<dyn Volume>)
                .collect();
            self.front_ends.volume_latencies(&counted).await
        };
        let mut volumes = Vec::new();
        for ((name, guard), latency) in names.into_iter().zip(guards).zip(latencies) {
            let block_bytes = u64::from(guard.geometry().block_size.bytes());
            let asked = tokio::time::timeout(ANSWER_TIME_MAX, guard.statistics()).await;
            if let Ok(Some(statistics)) = asked {
                volumes.push(VolumeCounts {
                    name,
                    block_bytes,
                    statistics,
                    latency,
                });
            }
        }
        families.extend(of_volumes(&volumes));
        Ok(families)
    }
}

/// One counter or gauge, by what its number is taken from.
pub(super) type Column<T> = (&'static str, Kind, &'static str, fn(&T) -> Value);

/// The counters of a group of exports of one protocol, by the beginning of their names.
macro_rules! io_columns {
    ($prefix:literal) => {
        &[
            (
                concat!($prefix, "_reads_total"),
                $crate::metrics::Kind::Counter,
                "Commands that read or verify and ended well.",
                |row: &weir_front::IoTotals| row.reads.into(),
            ),
            (
                concat!($prefix, "_writes_total"),
                $crate::metrics::Kind::Counter,
                "Commands that write and ended well.",
                |row| row.writes.into(),
            ),
            (
                concat!($prefix, "_other_commands_total"),
                $crate::metrics::Kind::Counter,
                "Other commands that ended well.",
                |row| row.other_commands.into(),
            ),
            (
                concat!($prefix, "_read_bytes_total"),
                $crate::metrics::Kind::Counter,
                "Bytes read by hosts.",
                |row| row.bytes_read.into(),
            ),
            (
                concat!($prefix, "_written_bytes_total"),
                $crate::metrics::Kind::Counter,
                "Bytes written by hosts.",
                |row| row.bytes_written.into(),
            ),
            (
                concat!($prefix, "_media_errors_total"),
                $crate::metrics::Kind::Counter,
                "Commands that failed because a medium did.",
                |row| row.media_errors.into(),
            ),
            (
                concat!($prefix, "_failed_commands_total"),
                $crate::metrics::Kind::Counter,
                "Commands that failed for any reason.",
                |row| row.failed_commands.into(),
            ),
        ]
    };
}
pub(super) use io_columns;

/// A family for each column, with a sample for each row.
fn families<T>(label: &'static str, rows: &[(String, T)], columns: &[Column<T>]) -> Vec<Family> {
    let family = |&(name, kind, help, value): &Column<T>| {
        let mut family = Family::new(name, kind, help);
        for (key, row) in rows {
            family.add([(label, key.as_str())], value(row));
        }
        family
    };
    columns.iter().map(family).collect()
}

fn seconds(nanoseconds: u64) -> Value {
    Value::Real(Duration::from_nanos(nanoseconds).as_secs_f64())
}

fn of_reactors(reports: &[ReactorReport]) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    const COLUMNS: &[Column<ReactorReport>] = &[
        (
            "weir_reactor_turns_total",
            Counter,
            "Turns of the loop.",
            |row| row.turns.into(),
        ),
        (
            "weir_reactor_busy_turns_total",
            Counter,
            "Turns that found work.",
            |row| row.busy_turns.into(),
        ),
        (
            "weir_reactor_sleeps_total",
            Counter,
            "Times it slept in the kernel.",
            |row| row.sleeps.into(),
        ),
        (
            "weir_reactor_operations_total",
            Counter,
            "I/O operations that ended.",
            |row| row.operations.into(),
        ),
        (
            "weir_reactor_busy_seconds_total",
            Counter,
            "Time spent on work.",
            |row| seconds(row.busy_ns),
        ),
        (
            "weir_reactor_spin_seconds_total",
            Counter,
            "Time spent looking for work.",
            |row| seconds(row.spin_ns),
        ),
        (
            "weir_reactor_sleep_seconds_total",
            Counter,
            "Time spent asleep.",
            |row| seconds(row.sleep_ns),
        ),
        (
            "weir_reactor_pause_seconds_total",
            Counter,
            "0: reactors do not pause any more. Goes with the next release.",
            |row| seconds(row.pause_ns),
        ),
        (
            "weir_reactor_processor_wait_seconds_total",
            Counter,
            "Time that it was ready to run while others had its processor, part of the other times.",
            |row| seconds(row.processor_wait_ns),
        ),
        (
            "weir_reactor_connections",
            Gauge,
            "Connections that belong to it.",
            |row| row.connections.into(),
        ),
        (
            "weir_reactor_pool_used_bytes",
            Gauge,
            "Buffer memory in use.",
            |row| row.pool_used_bytes.into(),
        ),
        (
            "weir_reactor_pool_held_bytes",
            Gauge,
            "Buffer memory taken from the system.",
            |row| row.pool_held_bytes.into(),
        ),
        (
            "weir_reactor_pool_limit_bytes",
            Gauge,
            "Bound on buffer memory.",
            |row| row.pool_limit_bytes.into(),
        ),
    ];
    let rows: Vec<_> = reports
        .iter()
        .map(|report| (report.id.to_string(), report.clone()))
        .collect();
    families("reactor", &rows, COLUMNS)
}

/// Counters of one reactor, of all front ends there.
struct ReactorCounts {
    connections: ConnectionCounts,
    bytes_in_flight: u64,
}

/// Adds up what front ends counted on each reactor.
fn by_reactor(counts: &[Counts], bytes_in_flight: &[u64]) -> Vec<(String, ReactorCounts)> {
    let of_reactor = |(index, bytes_in_flight): (usize, &u64)| {
        let mut connections = ConnectionCounts::default();
        for of in counts
            .iter()
            .filter_map(|front| front.stats.reactors.get(index))
        {
            connections += *of;
        }
        let counts = ReactorCounts {
            connections,
            bytes_in_flight: *bytes_in_flight,
        };
        (index.to_string(), counts)
    };
    bytes_in_flight.iter().enumerate().map(of_reactor).collect()
}

fn of_connections(counts: &[Counts], reactors: &[(String, ReactorCounts)]) -> Vec<Family> {
    use Kind::{Counter, Gauge};
    const REACTOR: &[Column<ReactorCounts>] = &[
        (
            "weir_connections_accepted_total",
            Counter,
            "Connections that were accepted.",
            |row| row.connections.accepted.into(),
        ),
        (
            "weir_connects_refused_total",
            Counter,
            "Connects that were refused.",
            |row| row.connections.refused.into(),
        ),
        (
            "weir_handshake_timeouts_total",
            Counter,
            "Connections whose Connect did not come in time.",
            |row| row.connections.handshake_timeouts.into(),
        ),
        (
            "weir_keep_alive_expiries_total",
            Counter,
            "Controllers that fell silent.",
            |row| row.connections.keep_alive_expiries.into(),
        ),
        (
            "weir_connections_terminated_total",
            Counter,
            "Connections that broke a rule of the transport.",
            |row| row.connections.terminated.into(),
        ),
        (
            "weir_connections_lost_total",
            Counter,
            "Connections that the system gave up: a reset, or a host that is gone.",
            |row| row.connections.lost.into(),
        ),
        (
            "weir_data_in_flight_bytes",
            Gauge,
            "Data that hosts were asked for, or were sent and have not taken.",
            |row| row.bytes_in_flight.into(),
        ),
        (
            "weir_stalled_pdus_total",
            Counter,
            "Connections ended because the rest of a PDU did not come in time.",
            |row| row.connections.stalled_arriving.into(),
        ),
        (
            "weir_stalled_transfers_total",
            Counter,
            "Connections ended because data that was asked for did not come in time.",
            |row| row.connections.stalled_awaited.into(),
        ),
        (
            "weir_stalled_sends_total",
            Counter,
            "Connections ended because the host did not take in time what it was sent.",
            |row| row.connections.stalled_sending.into(),
        ),
        (
            "weir_data_digest_errors_total",
            Counter,
            "PDUs whose data was damaged on its way.",
            |row| row.connections.data_digest_errors.into(),
        ),
        (
            "weir_connection_panics_total",
            Counter,
            "Connections that ended by a broken invariant: a defect.",
            |row| row.connections.panics.into(),
        ),
        (
            "weir_received_bytes_total",
            Counter,
            "Bytes received from hosts.",
            |row| row.connections.bytes_received.into(),
        ),
        (
            "weir_sent_bytes_total",
            Counter,
            "Bytes sent to hosts.",
            |row| row.connections.bytes_sent.into(),
        ),
        (
            "weir_sends_total",
            Counter,
            "Sends; each may carry many PDUs.",
            |row| row.connections.sends.into(),
        ),
    ];
    let sum = |of: fn(&FrontStats) -> u32| counts.iter().map(|front| of(&front.stats)).sum::<u32>();
    let gauge = |name, help, value: u32| Family::single(name, Gauge, help, Value::from(value));
    let mut all = vec![
        gauge("weir_connections", "Connections.", sum(|of| of.connections)),
        gauge(
            "weir_half_open_connections",
            "Connections without a Connect.",
            sum(|of| of.half_open),
        ),
        gauge(
            "weir_waiting_connections",
            "Connections that wait to be served: too many are half open.",
            sum(|of| of.waiting),
        ),
    ];
    all.extend(counts.iter().map(|front| {
        let (name, help) = front.names.sessions;
        gauge(name, help, front.sessions)
    }));
    all.extend(families("reactor", reactors, REACTOR));
    all
}

/// Commands by group of exports, with each protocol's own names.
fn of_groups(counts: &[Counts]) -> Vec<Family> {
    let of_each =
        |front: &Counts| families(front.names.group, &front.groups, front.names.group_columns);
    counts.iter().flat_map(of_each).collect()
}

fn operation(kind: OperationKind) -> &'static str {
    match kind {
        OperationKind::Read => "read",
        OperationKind::Write => "write",
        OperationKind::WriteZeroes => "write_zeroes",
        OperationKind::Compare => "compare",
        OperationKind::CompareWrite => "compare_write",
        OperationKind::Deallocate => "deallocate",
        OperationKind::Verify => "verify",
        OperationKind::Flush => "flush",
    }
}

/// How often each limit was met.
fn of_limits(reactors: &[(String, ReactorCounts)]) -> Family {
    type Count = fn(&ConnectionCounts) -> u64;
    const LIMITS: [(&str, Count); 6] = [
        ("connections", |row| row.over_connections),
        ("half_open_connections", |row| row.over_half_open),
        ("half_open_per_address", |row| row.over_address),
        ("controllers", |row| row.over_sessions),
        ("bytes_in_flight_per_connection", |row| row.own_waits),
        ("memory", |row| row.buffer_waits),
    ];
    let mut family = Family::new(
        "weir_limit_reached_total",
        Kind::Counter,
        "Connections closed, Connects refused and commands held up by a limit of the configuration, by limit.",
    );
    for (name, reactor) in reactors {
        for (limit, count) in LIMITS {
            let labels = [("reactor", name.as_str()), ("limit", limit)];
            family.add(labels, count(&reactor.connections));
        }
    }
    family
}

/// Times of commands by stage: 15 series at most for each group, however many exports and connections.
fn of_stages(counts: &[Counts]) -> Family {
    let mut family = Family::new(
        "weir_command_seconds",
        Kind::Histogram,
        "Time that commands spent in the gateway, by subsystem, kind of command and stage.",
    );
    let groups = counts.iter().flat_map(|front| {
        let label = front.names.group;
        front.latencies.iter().map(move |of| (label, of))
    });
    for (label, (group, latency)) in groups {
        for kind in CommandKind::ALL {
            let Some(times) = latency.kind(kind) else {
                continue;
            };
            for stage in Stage::ALL {
                let labels = [
                    (label, group.as_str()),
                    ("command", command(kind)),
                    ("stage", stage_name(stage)),
                ];
                add_times(&mut family, labels, times.stage(stage), STAGE_POWERS);
            }
        }
    }
    family
}

/// Adds a histogram with upper bounds at these powers of two of nanoseconds.
fn add_times<const LABELS: usize>(
    family: &mut Family,
    labels: [(&'static str, &str); LABELS],
    times: &Histogram,
    powers: impl IntoIterator<Item = u32>,
) {
    let bound = |power: u32| ((1_u64 << power) as f64 / 1e9, times.below_power(power));
    let buckets: Vec<_> = powers.into_iter().map(bound).collect();
    let sum = Duration::from_nanos(times.sum_ns()).as_secs_f64();
    family.add_histogram(labels, &buckets, times.count(), sum);
}

fn command(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Read => "read",
        CommandKind::Write => "write",
        CommandKind::Other => "other",
    }
}

fn stage_name(stage: Stage) -> &'static str {
    match stage {
        Stage::WireIn => "wire_in",
        Stage::Queue => "queue",
        Stage::Volume => "volume",
        Stage::WireOut => "wire_out",
        Stage::Total => "total",
    }
}

/// Counters of one volume.
struct VolumeCounts {
    name: String,
    block_bytes: u64,
    statistics: VolumeStatistics,
    /// Of the exports that serve it, or did.
    latency: Latency,
}

fn of_volumes(volumes: &[VolumeCounts]) -> Vec<Family> {
    use Kind::{Counter, Gauge, Histogram};
    let mut requests = Family::new(
        "weir_volume_requests_total",
        Counter,
        "Requests that ended, by operation and result.",
    );
    let mut bytes = Family::new(
        "weir_volume_bytes_total",
        Counter,
        "Bytes of the requests that succeeded, by operation.",
    );
    let mut in_flight = Family::new(
        "weir_volume_in_flight",
        Gauge,
        "Requests in flight, by operation.",
    );
    let mut waited = Family::new(
        "weir_volume_lock_waits_total",
        Counter,
        "Requests that had to wait for a range lock, or for what a lost connection of their host had left.",
    );
    let mut latency = Family::new(
        "weir_volume_latency_seconds",
        Histogram,
        "Time that commands spent on the volume, by kind of command; those of lost connections included.",
    );
    for volume in volumes {
        let name = ("volume", volume.name.as_str());
        waited.add([name], volume.statistics.waited_for_lock);
        for kind in CommandKind::ALL {
            if let Some(times) = volume.latency.kind(kind) {
                let labels = [name, ("operation", command(kind))];
                add_times(
                    &mut latency,
                    labels,
                    times.stage(Stage::Volume),
                    VOLUME_POWERS,
                );
            }
        }
        for kind in KINDS {
            let of_kind = volume.statistics.kind(kind);
            let ended = of_kind.succeeded + of_kind.failed;
            // A volume that never saw an operation has nothing to show of it.
            if ended + of_kind.in_flight == 0 {
                continue;
            }
            let labels = [name, ("operation", operation(kind))];
            let with = |result| labels.into_iter().chain([("result", result)]);
            requests.add(with("succeeded"), of_kind.succeeded);
            requests.add(with("failed"), of_kind.failed);
            bytes.add(labels, of_kind.blocks * volume.block_bytes);
            in_flight.add(labels, of_kind.in_flight);
        }
    }
    vec![requests, bytes, in_flight, waited, latency]
}
