//! `weir latency`.

use weir_gateway::api::latency::{
    Command, CommandTimes, ConnectionLatency, FileLatency, LunLatency, NamespaceLatency, Times,
};

use super::Asked;
use crate::cli::LatencyArguments;
use crate::client::{Failure, segment};
use crate::table::table;

/// What precedes the columns of a stage.
const HEADING: [&str; 8] = [
    "COMMAND", "COUNT", "STAGE", "MEAN", "P50", "P99", "P99.9", "MAX",
];

pub(crate) fn run(asked: &Asked, arguments: LatencyArguments) -> Result<String, Failure> {
    let LatencyArguments {
        namespace,
        lun,
        luns,
        file,
        files,
        connection,
        connections,
        interval,
    } = arguments;
    let query = interval.map_or_else(String::new, |seconds| format!("?interval={seconds}"));
    let get = |path: &str| asked.client.get(&format!("{path}{query}"));
    if let Some(id) = connection {
        let answer = get(&format!("/v1/connections/{id}/latency"))?;
        return asked.show(&answer, |view| of_connections(vec![view]));
    }
    if connections {
        return asked.show(&get("/v1/latency/connections")?, of_connections);
    }
    if luns {
        return asked.show(&get("/v1/latency/luns")?, of_luns);
    }
    if let [iqn, lun] = &lun[..] {
        let path = format!("/v1/iscsi/targets/{}/luns", segment(iqn));
        let answer = get(&format!("{path}/{}/latency", segment(lun)))?;
        return asked.show(&answer, |view| of_luns(vec![view]));
    }
    if files {
        return asked.show(&get("/v1/latency/files")?, of_files);
    }
    if let [path, volume] = &file[..] {
        let path = format!("/v1/nfs/exports/{}/files", segment(path));
        let answer = get(&format!("{path}/{}/latency", segment(volume)))?;
        return asked.show(&answer, |view| of_files(vec![view]));
    }
    if let [nqn, nsid] = &namespace[..] {
        let path = format!("/v1/subsystems/{}/namespaces", segment(nqn));
        let answer = get(&format!("{path}/{}/latency", segment(nsid)))?;
        return asked.show(&answer, |view| of_namespaces(vec![view]));
    }
    asked.show(&get("/v1/latency/namespaces")?, of_namespaces)
}

fn of_namespaces(views: Vec<NamespaceLatency>) -> String {
    let of = |view: NamespaceLatency| {
        let names = [view.subsystem.to_string(), view.nsid.to_string()];
        (names, view.commands)
    };
    of_exports("SUBSYSTEM", "NSID", views.into_iter().map(of))
}

fn of_luns(views: Vec<LunLatency>) -> String {
    let of = |view: LunLatency| {
        let names = [view.target.to_string(), view.lun.to_string()];
        (names, view.commands)
    };
    of_exports("TARGET", "LUN", views.into_iter().map(of))
}

fn of_files(views: Vec<FileLatency>) -> String {
    let of = |view: FileLatency| {
        let names = [view.export.to_string(), view.volume.to_string()];
        (names, view.commands)
    };
    of_exports("EXPORT", "VOLUME", views.into_iter().map(of))
}

/// The rows of what a group serves, by names of group and member.
fn of_exports(
    group: &'static str,
    member: &'static str,
    views: impl Iterator<Item = ([String; 2], Vec<CommandTimes>)>,
) -> String {
    let [command, count, stage, mean, p50, p99, p999, max] = HEADING;
    let heading = [
        group, member, command, count, stage, mean, p50, p99, p999, max,
    ];
    let rows: Vec<_> = views
        .flat_map(|(names, commands)| rows(names, &commands))
        .map(|([group, member], rest)| {
            let [command, count, stage, mean, p50, p99, p999, max] = rest;
            [
                group, member, command, count, stage, mean, p50, p99, p999, max,
            ]
        })
        .collect();
    table(heading, &rows)
}

fn of_connections(views: Vec<ConnectionLatency>) -> String {
    let [command, count, stage, mean, p50, p99, p999, max] = HEADING;
    let heading = [
        "CONNECTION",
        command,
        count,
        stage,
        mean,
        p50,
        p99,
        p999,
        max,
    ];
    let rows: Vec<_> = views
        .iter()
        .flat_map(|view| rows([view.connection.to_string()], &view.commands))
        .map(|([connection], rest)| {
            let [command, count, stage, mean, p50, p99, p999, max] = rest;
            [connection, command, count, stage, mean, p50, p99, p999, max]
        })
        .collect();
    table(heading, &rows)
}

/// A row for each stage of each kind of command. Whose it is stands in the first of them, the kind in the first of its own.
fn rows<const N: usize>(
    names: [String; N],
    commands: &[CommandTimes],
) -> Vec<([String; N], [String; 8])> {
    let mut rows = Vec::new();
    for of in commands {
        for (index, (stage, times)) in stages(of).into_iter().enumerate() {
            let first = index == 0;
            let names = if first && rows.is_empty() {
                names.clone()
            } else {
                std::array::from_fn(|_| String::new())
            };
            let (command, count) = if first {
                (command_name(of.command).to_owned(), of.count.to_string())
            } else {
                Default::default()
            };
            let [mean, p50, p99, p999, max] = cells(&times);
            let stage = stage.to_owned();
            rows.push((names, [command, count, stage, mean, p50, p99, p999, max]));
        }
    }
    rows
}

fn command_name(command: Command) -> &'static str {
    match command {
        Command::Read => "read",
        Command::Write => "write",
        Command::Other => "other",
    }
}

fn stages(of: &CommandTimes) -> [(&'static str, Times); 5] {
    [
        ("wire-in", of.wire_in),
        ("queue", of.queue),
        ("volume", of.volume),
        ("wire-out", of.wire_out),
        ("total", of.total),
    ]
}

fn cells(times: &Times) -> [String; 5] {
    [
        times.mean_ns,
        times.p50_ns,
        times.p99_ns,
        times.p999_ns,
        times.max_ns,
    ]
    .map(duration)
}

/// A time in the unit that suits it, with three digits.
fn duration(nanoseconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fitting = UNITS.into_iter().find(|(unit, _)| nanoseconds >= *unit);
    let Some((unit, name)) = fitting else {
        return format!("{nanoseconds} ns");
    };
    let value = nanoseconds as f64 / unit as f64;
    let digits = match value {
        ..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let told = [0, 999, 1_000, 12_345, 123_456, 1_500_000, 72_000_000_000].map(duration);
        let expected = [
            "0 ns", "999 ns", "1.00 us", "12.3 us", "123 us", "1.50 ms", "72.0 s",
        ];
        assert_eq!(told, expected);
    }
}
