//! Makes stored runs of what the load generator reports.

mod agents;

pub use agents::agent;

use std::time::Duration;

use weir_block::Geometry;
use weir_block::size::Size;
use weir_load::bench::{self, BenchReport, Caveat as LoadCaveat, IntervalOperation, Latencies};
use weir_load::workload;

use crate::document::{
    Arrivals, Caveat, Interval, Latency, Load, Operation, Operations, Processor, Run, SizeShare,
    SteadyState, Stream, Volume, Workload,
};
use crate::secret;
use crate::statistics::{littles_law, rounds_of, steady_state};

/// What a run was asked for.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// What the run is called.
    pub name: &'a str,
    /// What each volume was asked for.
    pub workload: &'a workload::Workload,
    /// How much, of all volumes together.
    pub load: Load,
    /// What the randomness started from.
    pub seed: u64,
    /// For how long it ran before it was measured.
    pub ramp: Duration,
}

/// A volume as it is stored.
#[must_use]
pub fn volume(url: &str, name: &str, geometry: &Geometry) -> Volume {
    let block_size_bytes = geometry.block_size.bytes();
    Volume {
        url: secret::without_in(url),
        name: secret::without_in(name),
        block_size_bytes,
        length_bytes: geometry.length_bytes(),
        transfer_bytes_max: u64::from(geometry.transfer_blocks_max) * u64::from(block_size_bytes),
        volatile_cache: geometry.volatile_cache,
        operations: None,
    }
}

/// A run on one or several volumes at the same time, with a report for each.
///
/// # Panics
/// Where there are not as many reports as volumes, or none.
#[must_use]
pub fn run(asked: &Asked<'_>, volumes: &[Volume], reports: &[BenchReport]) -> Run {
    assert!(!reports.is_empty() && volumes.len() == reports.len());
    let mut sum = reports[0].clone();
    reports[1..].iter().for_each(|report| sum.add(report));
    let mut volumes = volumes.to_vec();
    if let [_, _, ..] = reports {
        for (volume, report) in volumes.iter_mut().zip(reports) {
            volume.operations = Some(operations(report));
        }
    }
    let intervals: Vec<Interval> = sum.intervals.iter().map(interval).collect();
    let open = asked.load.rate().is_some();
    let of_law = sum.littles_law;
    Run {
        name: asked.name.to_owned(),
        phase: None,
        volumes,
        workload: workload(asked.workload),
        load: asked.load,
        seed: asked.seed,
        ramp_seconds: asked.ramp.as_secs_f64(),
        elapsed_seconds: sum.elapsed.as_secs_f64(),
        operations: operations(&sum),
        ended: open.then_some(sum.ended),
        steady_state: steady(&intervals, sum.elapsed),
        intervals,
        lag: sum.lag_ns.as_ref().and_then(Latency::of),
        late_ns_max: open.then_some(sum.late_ns_max),
        unsent: sum.unsent,
        unfinished: sum.unfinished,
        littles_law: (of_law.in_flight > 0.0)
            .then(|| littles_law(of_law.in_flight, of_law.rate_times_service)),
        processor: processor(&sum),
        first_error: sum.first_error.as_deref().map(secret::without_in_text),
        agents: None,
    }
}

/// What has to be said with a run.
#[must_use]
pub fn caveats(reports: &[BenchReport]) -> Vec<Caveat> {
    let mut caveats: Vec<Caveat> = Vec::new();
    for caveat in reports.iter().flat_map(|report| &report.caveats) {
        let caveat = Caveat::new(caveat.code(), caveat.to_string());
        if !caveats.contains(&caveat) {
            caveats.push(caveat);
        }
    }
    caveats
}

/// The code of the caveat of [`unsteady`].
pub const UNSTEADY: &str = "not-steady";

/// What has to be said of a run at full load whose throughput did not settle, or did not stay where it had settled.
#[must_use]
pub fn unsteady(run: &Run) -> Option<Caveat> {
    if run.load.rate().is_some() {
        // What arrives is the load's, and no state of the volume.
        return None;
    }
    let steady = run.steady_state.as_ref()?;
    let rounds = format!("rounds of {}s", steady.round_seconds);
    let text = match (steady.reached, steady.held) {
        (false, _) => format!(
            "throughput did not settle: by SNIA's rule, though nothing was preconditioned as SNIA has it, no five {rounds} in a row are steady; run for longer, or take the mean for what it is"
        ),
        (true, Some(false)) => format!(
            "throughput settled at {:.0} requests a second ({rounds}, by SNIA's rule, though nothing was preconditioned) and did not stay there: the mean covers both",
            steady.mean
        ),
        (true, _) => return None,
    };
    Some(Caveat::new(UNSTEADY, text))
}

fn operations(report: &BenchReport) -> Operations {
    let [read, write, deallocate, flush] = report.operations.each_ref().map(|of| Operation {
        requests: of.requests,
        bytes: of.bytes,
        errors: of.errors,
        service: Latency::of(&of.service_ns),
        response: of.response_ns.as_ref().and_then(Latency::of),
    });
    Operations {
        read,
        write,
        deallocate,
        flush,
    }
}

fn interval(of: &bench::Interval) -> Interval {
    let operation = |of: &IntervalOperation| Operation {
        requests: of.requests,
        bytes: of.bytes,
        errors: of.errors,
        service: latency(&of.service),
        response: of.response.as_ref().and_then(latency),
    };
    let [read, write, deallocate, flush] = of.operations.each_ref().map(operation);
    Interval {
        start_seconds: of.start.as_secs_f64(),
        length_seconds: of.length.as_secs_f64(),
        operations: Operations {
            read,
            write,
            deallocate,
            flush,
        },
        lag_ns_max: of.lag.max(),
    }
}

fn latency(of: &Latencies) -> Option<Latency> {
    if of.is_empty() {
        return None;
    }
    Latency::of(&of.histogram())
}

fn steady(intervals: &[Interval], elapsed: Duration) -> Option<SteadyState> {
    let end = elapsed.as_secs_f64();
    let measured = intervals.partition_point(|of| of.start_seconds < end);
    let (round_seconds, rounds) = rounds_of(&intervals[..measured]);
    let steady = steady_state(&rounds)?;
    Some(SteadyState {
        metric: "requests per second".to_owned(),
        round_seconds,
        rounds,
        reached: steady.reached,
        held: steady.reached.then_some(steady.held),
        window_start: steady.window_start as u32,
        mean: steady.mean,
        range_percent: steady.range_percent,
        slope_percent: steady.slope_percent,
    })
}

fn processor(report: &BenchReport) -> Processor {
    let generator = &report.generator;
    let saturated = |of: &LoadCaveat| matches!(of, LoadCaveat::GeneratorSaturated { .. });
    Processor {
        generator_seconds: generator.processor.map(|of| of.as_secs_f64()),
        generator_busy_percent: generator.busy_shares.iter().map(|of| of * 100.0).collect(),
        gateway_seconds: None,
        generator_saturated: report.caveats.iter().any(saturated),
    }
}

/// A workload as it is stored.
#[must_use]
pub fn workload(of: &workload::Workload) -> Workload {
    let streams: Vec<Stream> = of.streams.iter().map(stream).collect();
    Workload {
        name: of.name.map(str::to_owned),
        text: text(of),
        source: of
            .name
            .and_then(|name| workload::named(name).ok())
            .map(|of| of.source.to_owned()),
        streams,
        range_bytes: of.range_bytes,
        compressible_percent: f64::from(of.compressible_percent),
    }
}

fn stream(of: &workload::Stream) -> Stream {
    let size = |of: &workload::SizeShare| SizeShare {
        bytes: of.bytes,
        percent: of.percent,
    };
    Stream {
        share_percent: of.share_percent,
        read_percent: of.operations.read_percent,
        write_percent: of.operations.write_percent,
        deallocate_percent: of.operations.deallocate_percent,
        flush_percent: of.operations.flush_percent,
        sizes: of.sizes.iter().map(size).collect(),
        pattern: of.access.to_string(),
        align_bytes: of.align_bytes,
        range_bytes: of.range_bytes,
    }
}

/// In a line: `16k random, 70% read, 30% write`.
fn text(of: &workload::Workload) -> String {
    let each = of.streams.iter().map(|stream| {
        let kinds = workload::Kind::ALL
            .iter()
            .zip(stream.operations.percents())
            .filter(|(_, percent)| *percent > 0.0)
            .map(|(kind, percent)| format!("{percent}% {}", kind.name()));
        let kinds: Vec<String> = kinds.collect();
        let share = match of.streams.len() {
            1 => String::new(),
            _ => format!("{}% of ", stream.share_percent),
        };
        let sizes = workload::sizes_text(&stream.sizes);
        let mut text = format!("{share}{sizes} {}, {}", stream.access, kinds.join(", "));
        if let Some(bytes) = stream.align_bytes {
            text += &format!(", at multiples of {}", Size(bytes));
        }
        if let Some(bytes) = stream.range_bytes {
            text += &format!(", within {}", Size(bytes));
        }
        text
    });
    let mut text = each.collect::<Vec<_>>().join("; ");
    if of.compressible_percent > 0 {
        text += &format!("; {}% of the data zeroes", of.compressible_percent);
    }
    if let Some(bytes) = of.range_bytes {
        text += &format!("; within {} of each volume", Size(bytes));
    }
    text
}

/// Arrivals as they are stored.
#[must_use]
pub fn arrivals(of: bench::Arrivals) -> Arrivals {
    match of {
        bench::Arrivals::Uniform => Arrivals::Uniform,
        bench::Arrivals::Exponential => Arrivals::Exponential,
    }
}

/// The load of one of several volumes that share a stored one. Of a rate each has the same part, and what does not divide goes to the first ones. With
/// less than one request a second for each volume, the last ones have a rate of 0, which nobody runs.
#[must_use]
pub fn load(of: &Load, volumes: u64, index: u64) -> bench::Load {
    match *of {
        Load::Closed { depth, .. } => bench::Load::Closed { depth },
        Load::Open {
            rate,
            arrivals,
            depth_max,
            ..
        } => {
            let rate = rate.round() as u64;
            bench::Load::Open {
                rate: rate / volumes + u64::from(index < rate % volumes),
                arrivals: match arrivals {
                    Arrivals::Uniform => bench::Arrivals::Uniform,
                    Arrivals::Exponential => bench::Arrivals::Exponential,
                },
                depth_max,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_load::bench::{GeneratorReport, OperationReport, histogram};
    use weir_load::workload::{Access, named};

    fn report(open: bool, requests: u64) -> BenchReport {
        let mut operations = [(); 4].map(|()| OperationReport::new(open));
        for _ in 0..requests {
            operations[0].requests += 1;
            operations[0].bytes += 4096;
            operations[0].service_ns.record(1_000_000).unwrap();
            if let Some(response) = &mut operations[0].response_ns {
                response.record(2_000_000).unwrap();
            }
        }
        BenchReport {
            elapsed: Duration::from_secs(2),
            operations,
            unsent: 3,
            unfinished: 4,
            unfinished_ns_max: 0,
            ramp_errors: 0,
            first_error: None,
            queue_requests: vec![requests],
            intervals: Vec::new(),
            lag_ns: open.then(histogram),
            ended: requests,
            waited: 0,
            late_ns_max: 64_000_000,
            littles_law: bench::LittlesLaw {
                in_flight: 2.0,
                rate_times_service: 1.9,
            },
            generator: GeneratorReport {
                processor: Some(Duration::from_millis(500)),
                busy_shares: vec![0.5],
            },
            caveats: vec![LoadCaveat::EndedEarly],
        }
    }

    fn asked<'a>(workload: &'a workload::Workload, load: Load) -> Asked<'a> {
        Asked {
            name: "a",
            workload,
            load,
            seed: 7,
            ramp: Duration::from_millis(1500),
        }
    }

    fn stored(url: &str) -> Volume {
        Volume {
            url: url.to_owned(),
            name: url.to_owned(),
            block_size_bytes: 4096,
            length_bytes: 1 << 30,
            transfer_bytes_max: 1 << 20,
            volatile_cache: false,
            operations: None,
        }
    }

    #[test]
    fn several_volumes_become_one_run() {
        let workload = workload::Workload::simple(4096, 100, Access::Random);
        let load = Load::Closed {
            depth: 1,
            queues: 2,
            hosts: 1,
        };
        let volumes = [stored("mem:"), stored("null:")];
        let mut reports = [report(false, 10), report(false, 20)];
        reports[1].first_error = Some("a?secret=b: refused".to_owned());
        let run = run(&asked(&workload, load), &volumes, &reports);
        assert_eq!((run.operations.requests(), run.rate()), (30, 15.0));
        let each: Vec<u64> = run
            .volumes
            .iter()
            .map(|volume| volume.operations.as_ref().unwrap().requests())
            .collect();
        assert_eq!(each, [10, 20]);
        assert_eq!((run.ramp_seconds, run.seed, run.unsent), (1.5, 7, 6));
        assert_eq!(run.late_ns_max, None, "the load is a closed one");
        let law = run.littles_law.unwrap();
        assert_eq!((law.in_flight, law.from_latency), (4.0, 3.8));
        assert!((law.error_percent + 5.0).abs() < 1e-9);
        assert_eq!(run.processor.generator_seconds, Some(0.5));
        assert_eq!(run.felt().unwrap().unwrap().count, 30);
        assert_eq!(run.first_error.as_deref(), Some("a?secret=*** refused"));
        assert_eq!(caveats(&reports).len(), 1);
    }

    #[test]
    fn an_open_load_has_response_times_and_is_shared_out() {
        let workload = named("oracle").unwrap().workload();
        let load = Load::Open {
            rate: 1001.0,
            arrivals: Arrivals::Exponential,
            depth_max: 64,
            queues: 1,
            hosts: 1,
        };
        let run = run(
            &asked(&workload, load),
            &[stored("mem:")],
            &[report(true, 10)],
        );
        let response = run.operations.read.response.as_ref().unwrap();
        assert!((response.mean_ns / 2e6 - 1.0).abs() < 1e-3);
        assert!(run.volumes[0].operations.is_none());
        assert_eq!(run.workload.name.as_deref(), Some("oracle"));
        let source = named("oracle").unwrap().source;
        assert_eq!(run.workload.source.as_deref(), Some(source));
        assert!(run.workload.text.contains("64KiB"), "{}", run.workload.text);
        let rates: Vec<_> = (0..2)
            .map(|index| super::load(&load, 2, index).rate())
            .collect();
        assert_eq!(rates, [Some(501), Some(500)]);
    }
}
