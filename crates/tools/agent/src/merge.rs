//! How a load is shared out among agents, and how what they measured becomes one report.
//!
//! Pure: what is merged are counts and histograms, so that a percentile of all is that of all requests together. What nobody measured
//! (a mean of percentiles, for one) is not made up.

use std::time::Duration;

use weir_load::bench::{
    Among, BenchConfig, BenchReport, Caveat, GeneratorReport, Interval, LittlesLaw,
    OperationReport, histogram,
};

/// More queues than can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{queues} queues of a volume on each of {agents} agents are too many")]
pub struct ShareError {
    /// Of a volume, of each agent.
    pub queues: u32,
    /// Agents.
    pub agents: u32,
}

/// What agent `index` of so many does of a job: it has as many queues as are asked for, of which each is one among those of all agents. So all of them
/// together do what one machine with all of these queues would: the same requests, and by a rate at the same times. Where they are `apart`, the requests of each go to blocks
/// of its own.
///
/// # Errors
/// [`ShareError`].
pub fn share(
    config: &BenchConfig,
    index: u32,
    agents: u32,
    apart: bool,
) -> Result<BenchConfig, ShareError> {
    let wrong = ShareError {
        queues: config.queues,
        agents,
    };
    let of = |agents: u32| config.queues.checked_mul(agents).ok_or(wrong);
    Ok(BenchConfig {
        among: Some(Among {
            before: of(index)?,
            queues: of(agents)?,
            apart,
        }),
        ..config.clone()
    })
}

/// The reports of one volume by several agents, as one. Processor time is the sum, and every agent's reactors stand there. None where there are none.
#[must_use]
pub fn merged<'a>(reports: impl IntoIterator<Item = &'a BenchReport>) -> Option<BenchReport> {
    let mut reports = reports.into_iter();
    let mut sum = reports.next()?.clone();
    for report in reports {
        let generator = together(&sum.generator, &report.generator);
        sum.add(report);
        sum.generator = generator;
    }
    Some(sum)
}

/// Of two machines.
fn together(one: &GeneratorReport, other: &GeneratorReport) -> GeneratorReport {
    let processor = match (one.processor, other.processor) {
        (Some(one), Some(other)) => Some(one + other),
        // A sum of which a part is not known is not known.
        _ => None,
    };
    GeneratorReport {
        processor,
        busy_shares: [&one.busy_shares[..], &other.busy_shares[..]].concat(),
    }
}

/// What is known of a volume from its intervals alone: of an agent that was lost. `open` where the load was.
///
/// # Panics
/// Never with intervals of a report: their histograms are of one shape.
#[must_use]
pub fn from_intervals(intervals: Vec<Interval>, open: bool) -> BenchReport {
    const ONE_SHAPE: &str = "histograms of one shape add up";
    let mut operations = [(); 4].map(|()| OperationReport::new(open));
    let mut lag_ns = open.then(histogram);
    for interval in &intervals {
        for (sum, of) in operations.iter_mut().zip(&interval.operations) {
            let mut part = OperationReport {
                requests: of.requests,
                bytes: of.bytes,
                errors: of.errors,
                ..OperationReport::new(open)
            };
            part.service_ns = of.service.histogram();
            if let (Some(response), Some(of)) = (&mut part.response_ns, &of.response) {
                *response = of.histogram();
            }
            sum.add(&part);
        }
        if let Some(sum) = &mut lag_ns {
            sum.add(interval.lag.histogram()).expect(ONE_SHAPE);
        }
    }
    let last = intervals.last();
    BenchReport {
        elapsed: last.map_or(Duration::ZERO, |last| last.start + last.length),
        ended: operations.iter().map(|of| of.requests).sum(),
        operations,
        unsent: 0,
        unfinished: 0,
        unfinished_ns_max: 0,
        ramp_errors: 0,
        first_error: None,
        queue_requests: Vec::new(),
        intervals,
        lag_ns,
        waited: 0,
        late_ns_max: 0,
        littles_law: LittlesLaw::default(),
        generator: GeneratorReport::default(),
        caveats: vec![Caveat::EndedEarly],
    }
}

/// When an agent began, as far as can be known, on the coordinator's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// Not before this.
    pub earliest: Duration,
    /// Not after this.
    pub latest: Duration,
    /// The shortest round trip that was seen.
    pub round_trip: Duration,
}

impl Began {
    /// The likeliest moment: what a message takes on its way is half of the shortest round trip, unless that cannot be.
    fn likely(&self) -> Duration {
        (self.earliest + self.round_trip / 2).min(self.latest.max(self.earliest))
    }
}

/// How far apart several began.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spread {
    /// How much later than the first one each began.
    pub offsets: Vec<Duration>,
    /// The greatest of them.
    pub spread: Duration,
    /// By how much that may be wrong.
    pub uncertainty: Duration,
}

/// How far apart they began; there is at least one.
#[must_use]
pub fn spread(began: &[Began]) -> Spread {
    let likely: Vec<_> = began.iter().map(Began::likely).collect();
    let first = likely.iter().min().copied().unwrap_or_default();
    let offsets: Vec<_> = likely.iter().map(|at| *at - first).collect();
    // Half of what the moment of each may be off, for two of them.
    let widths = began.iter().map(|of| of.latest.saturating_sub(of.earliest));
    Spread {
        spread: offsets.iter().max().copied().unwrap_or_default(),
        uncertainty: widths.max().unwrap_or_default(),
        offsets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_load::Stop;
    use weir_load::bench::{Arrivals, IntervalOperation, Latencies, Load};
    use weir_load::workload::{Access, Workload};

    fn config(load: Load) -> BenchConfig {
        BenchConfig {
            workload: Workload::simple(4096, 100, Access::Random),
            load,
            queues: 2,
            among: None,
            duration: Duration::from_secs(1),
            ramp: Duration::ZERO,
            interval: Duration::from_secs(1),
            seed: 7,
            stop: Stop::new(),
        }
    }

    #[test]
    fn queues_are_those_of_one_machine_that_has_all_of_them() {
        let one = config(Load::Open {
            rate: 1,
            arrivals: Arrivals::Exponential,
            depth_max: 5,
        });
        for index in 0..3 {
            let shared = share(&one, index, 3, index == 1).unwrap();
            assert_eq!((shared.load, shared.seed), (one.load, one.seed));
            let among = Among {
                before: 2 * index,
                queues: 6,
                apart: index == 1,
            };
            assert_eq!((shared.queues, shared.among), (2, Some(among)));
        }
        let many = BenchConfig {
            queues: 1 << 31,
            ..one
        };
        let error = share(&many, 0, 2, false).unwrap_err().to_string();
        assert!(error.contains("2 agents"), "{error}");
    }

    #[test]
    fn who_began_later_is_told() {
        let at = |earliest, latest, round_trip| Began {
            earliest: Duration::from_micros(earliest),
            latest: Duration::from_micros(latest),
            round_trip: Duration::from_micros(round_trip),
        };
        let spread = spread(&[at(1000, 1100, 100), at(900, 1300, 400), at(1500, 1520, 100)]);
        let offsets: Vec<_> = spread.offsets.iter().map(Duration::as_micros).collect();
        // The second one's message took 200 us; the third cannot have begun after 1520.
        assert_eq!(offsets, [0, 50, 470]);
        assert_eq!(spread.spread, Duration::from_micros(470));
        assert_eq!(spread.uncertainty, Duration::from_micros(400));
    }

    #[test]
    fn processor_time_is_summed_over_machines() {
        let of = |processor: Option<u64>, shares: &[f64]| BenchReport {
            generator: GeneratorReport {
                processor: processor.map(Duration::from_millis),
                busy_shares: shares.to_vec(),
            },
            ..from_intervals(Vec::new(), false)
        };
        let sum = merged(&[of(Some(500), &[0.5, 0.1]), of(Some(250), &[0.9])]).unwrap();
        assert_eq!(sum.generator.processor, Some(Duration::from_millis(750)));
        assert_eq!(sum.generator.busy_shares, [0.5, 0.1, 0.9]);
        let sum = merged(&[of(Some(500), &[]), of(None, &[])]).unwrap();
        assert_eq!(sum.generator.processor, None);
        assert!(merged(&[]).is_none());
    }

    fn interval(second: u64, values: &[u64]) -> Interval {
        let mut of = histogram();
        values.iter().for_each(|value| of.record(*value).unwrap());
        let seen = of.iter_recorded();
        let packed = Latencies::pack(seen.map(|of| (of.value_iterated_to(), of.count_at_value())));
        let mut operations: [IntervalOperation; 4] = Default::default();
        operations[0] = IntervalOperation {
            requests: values.len() as u64,
            bytes: values.len() as u64 * 4096,
            errors: 1,
            service: packed,
            response: None,
        };
        Interval {
            start: Duration::from_secs(second),
            length: Duration::from_secs(1),
            operations,
            lag: Latencies::default(),
        }
    }

    fn samples() -> impl Strategy<Value = Vec<Vec<Vec<u64>>>> {
        // Agents, intervals of each, latencies of each interval.
        let latency = prop_oneof![1..100_000u64, 1..5_000_000_000u64];
        let interval = proptest::collection::vec(latency, 0..50);
        proptest::collection::vec(proptest::collection::vec(interval, 3), 1..5)
    }

    /// An eighth of the cases; all of them where `WEIR_NIGHTLY` is set.
    fn some_cases() -> ProptestConfig {
        let all = ProptestConfig::default();
        let is_all = std::env::var_os("WEIR_NIGHTLY").is_some();
        ProptestConfig {
            cases: if is_all { all.cases } else { all.cases / 8 },
            ..all
        }
    }

    proptest! {
        #![proptest_config(some_cases())]

        /// The oracle sorts every single sample: a percentile of what was merged is the sample of that rank, but for the histogram's three digits.
        #[test]
        fn merged_percentiles_are_those_of_all_samples_together(agents in samples()) {
            let reports: Vec<_> = agents
                .iter()
                .map(|intervals| {
                    let intervals = (0..).zip(intervals).map(|(second, values)| interval(second, values));
                    from_intervals(intervals.collect(), false)
                })
                .collect();
            let sum = merged(&reports).unwrap();
            let mut all = agents.concat().concat();
            all.sort_unstable();
            prop_assert_eq!(sum.requests(), all.len() as u64);
            prop_assert_eq!(sum.bytes(), all.len() as u64 * 4096);
            prop_assert_eq!(sum.errors(), agents.len() as u64 * 3);
            prop_assert_eq!(sum.intervals.len(), 3);
            let latency = sum.latency_ns();
            prop_assert_eq!(latency.len(), all.len() as u64);
            for percent in [0.0, 10.0, 50.0, 90.0, 99.0, 99.9, 100.0] {
                let Some(last) = all.len().checked_sub(1) else { break };
                let rank = ((percent / 100.0 * all.len() as f64).ceil() as usize).clamp(1, last + 1);
                let (found, sample) = (latency.value_at_percentile(percent), all[rank - 1]);
                prop_assert!(
                    latency.equivalent(found, sample),
                    "p{}: {} instead of {}", percent, found, sample
                );
            }
            for (second, interval) in sum.intervals.iter().enumerate() {
                let mut values: Vec<u64> = agents.iter().flat_map(|of| of[second].clone()).collect();
                values.sort_unstable();
                let latencies = interval.latency();
                prop_assert_eq!(latencies.count(), values.len() as u64);
                if let Some(longest) = values.last() {
                    prop_assert!(latency.equivalent(latencies.max(), *longest));
                }
            }
        }
    }
}
