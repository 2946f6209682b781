//! Drives a comparison: the same work on several volumes in rounds, and by how much they differ.
//!
//! First every side's own maximum, closed loop, at one depth for all; then each side at 80% of its own maximum, and all at one rate, open loop. A
//! round runs each side once, in an order that is drawn, and in one round all sides have the same randomness. It measures nothing itself: see
//! [`Bench`]. How differences are judged: decision 0027.

use std::collections::BTreeMap;

use weir_reactor::random::Random;

use crate::document::{
    Arrivals, Caveat, Comparison, Difference, Direction, LatencyError, Load, Metric, NetworkPath,
    Round, Run, Side, Stage, Verdict, Volume,
};
use crate::runner::{Bench, Request, SEARCH_RUNS_MAX, Spread, Step, find_maximum, seed_of_run};
use crate::statistics::{
    Estimate, FRACTION_MAX, PAIRS_MIN, Pair, difference, is_disturbed, mean, orders,
};

/// The part of each side's maximum that it is asked for in the second stage.
const PART_OF_MAXIMUM: f64 = 0.8;
/// The part of the least maximum that all are asked for, where no rate is given.
const PART_OF_LEAST: f64 = 0.5;
/// A side sustains a load if this part of what was due ends in time. What is still in flight at the end does not, however sustained the load.
const SUSTAINED: f64 = 0.95;
/// Sides are at the limit of a link of which they use this part.
const AT_LIMIT: f64 = 0.9;
/// Stages of a comparison.
const STAGES: u32 = 3;
pub(crate) const METRICS: [Metric; 3] =
    [Metric::Throughput, Metric::LatencyMean, Metric::LatencyP99];
/// Share of undisturbed comparisons that may be called disturbed.
const FALSELY_DISTURBED: f64 = 0.05;
/// Why nothing can be said where the rounds differ by a pattern in time.
const DISTURBED: &str = "not comparable here: disturbed by something that comes and goes";
/// So many rounds are named where several are without figures.
const NAMED_ROUNDS_MAX: usize = 3;

/// One of what is compared.
#[derive(Debug, Clone, PartialEq)]
pub struct SideConfig {
    /// What it is called.
    pub name: String,
    /// What it is.
    pub volumes: Vec<Volume>,
    /// What could make a difference, by name: protocol, connections, block size, ...
    pub things: BTreeMap<String, String>,
    /// What the link to it carries in each direction, in bytes a second, where there is one and that is known.
    pub link_bytes_per_second: Option<f64>,
    /// Ways to its remote volumes, each once.
    pub paths: Vec<NetworkPath>,
}

/// What to compare, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct CompareConfig {
    /// At least two; the first is what the others are measured against.
    pub sides: Vec<SideConfig>,
    /// Over what the load is spread.
    pub spread: Spread,
    /// Requests in flight of each queue at the maximum; looked for where none.
    pub depth: Option<u32>,
    /// Requests in flight of each queue at most.
    pub depth_max: u32,
    /// The rate that all are asked for; half of the least maximum where none.
    pub rate: Option<f64>,
    /// How arrivals are spread.
    pub arrivals: Arrivals,
    /// Rounds of each stage.
    pub rounds: u32,
    /// How sure the confidence intervals of all differences together are.
    pub confidence_percent: f64,
    /// Differences below this are not shown.
    pub least_difference_percent: f64,
    /// What the randomness starts from.
    pub seed: u64,
    /// Processors of the machine that makes the load, and on which gateways may be whose processor time is told; 0 where it is not known.
    pub processors: u32,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum CompareError<E> {
    /// There was no run.
    #[error(transparent)]
    Run(E),
    /// What a run measured cannot be read.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// Too little is asked for to say anything.
    #[error(
        "{rounds} rounds are too few to tell a difference from chance; {PAIRS_MIN} are needed at least"
    )]
    Rounds {
        /// What was asked for.
        rounds: u32,
    },
    /// Too little is compared.
    #[error("{sides} volume can be compared with nothing; name two at least")]
    Sides {
        /// What was asked for.
        sides: usize,
    },
    /// More is asked for than there may be.
    #[error(
        "a depth of {depth} is above the highest depth, {depth_max}; ask for less, or for a higher one"
    )]
    Depth {
        /// Requests in flight of each queue that were asked for.
        depth: u32,
        /// Those that there may be.
        depth_max: u32,
    },
    /// A side does nothing.
    #[error("no request succeeded on {side}{}", first_error.as_ref().map_or(String::new(), |error| format!(": {error}")))]
    Nothing {
        /// The side's name.
        side: String,
        /// The first error.
        first_error: Option<String>,
    },
    /// The user wanted no further runs, and there were too few to compare.
    #[error("it was asked to end before there was anything to compare")]
    Stopped,
}

/// A comparison, and what its reader must know.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// What came out.
    pub comparison: Comparison,
    /// What must be said with it.
    pub caveats: Vec<Caveat>,
}

/// Compares.
///
/// # Errors
/// [`CompareError`].
pub async fn measure<B: Bench>(
    bench: &mut B,
    config: &CompareConfig,
    observe: impl FnMut(Step<'_>),
) -> Result<Compared, CompareError<B::Error>> {
    if config.sides.len() < 2 {
        return Err(CompareError::Sides {
            sides: config.sides.len(),
        });
    }
    if (config.rounds as usize) < PAIRS_MIN {
        return Err(CompareError::Rounds {
            rounds: config.rounds,
        });
    }
    let depth_max = config.depth_max;
    if let Some(depth) = config.depth.filter(|depth| *depth > depth_max) {
        return Err(CompareError::Depth { depth, depth_max });
    }
    let mut driver = Driver {
        bench,
        config,
        observe,
        stages: STAGES,
        done: 0,
        stopped: false,
    };
    driver.compare().await
}

/// Rounds of all sides at one depth, and nothing else. As many as are whole; their differences are not worked out.
pub(crate) async fn rounds_at<B: Bench>(
    bench: &mut B,
    config: &CompareConfig,
    depth: u32,
    observe: impl FnMut(Step<'_>),
) -> Result<Stage, CompareError<B::Error>> {
    let mut driver = Driver {
        bench,
        config,
        observe,
        stages: 1,
        done: 0,
        stopped: false,
    };
    let loads = vec![config.spread.closed(depth); config.sides.len()];
    let name = format!("full load, depth {depth}");
    driver.stage(name, loads).await
}

struct Driver<'a, B, O> {
    bench: &'a mut B,
    config: &'a CompareConfig,
    observe: O,
    /// How many there will be.
    stages: u32,
    done: u32,
    stopped: bool,
}

impl<B: Bench, O: FnMut(Step<'_>)> Driver<'_, B, O> {
    async fn compare(&mut self) -> Result<Compared, CompareError<B::Error>> {
        let config = self.config;
        let intervals = (config.sides.len() - 1) * METRICS.len() * STAGES as usize;
        let judge = Judge::of(config, intervals);
        let depth = match config.depth {
            Some(depth) => depth,
            None => self.look_for_depth().await?,
        };
        let closed = config.spread.closed(depth);
        let name = "100%: each side's maximum".to_owned();
        let loads = vec![closed; config.sides.len()];
        let full = self.stage(name, loads).await?;
        if full.rounds.len() < PAIRS_MIN {
            return Err(CompareError::Stopped);
        }
        let at_maximum = judge.differences(&full, None)?;
        let measured = self.maxima(&full)?;
        let maxima = settled(&measured, &at_maximum);

        let parts: Vec<Load> = maxima
            .iter()
            .map(|maximum| self.open(maximum * PART_OF_MAXIMUM))
            .collect();
        let part = self
            .stage("80% of each side's maximum".to_owned(), parts)
            .await?;
        let least = maxima.iter().copied().fold(f64::MAX, f64::min);
        let rate = self.open(config.rate.unwrap_or(least * PART_OF_LEAST));
        let name = format!(
            "{} requests a second on each side",
            rate.rate().unwrap_or(0.0)
        );
        let same = self.stage(name, vec![rate; config.sides.len()]).await?;

        let mut stages = Vec::new();
        for (mut stage, at_maximum) in [(same, None), (part, Some(&at_maximum))] {
            // A stage that was cut short says nothing.
            if stage.rounds.len() >= PAIRS_MIN {
                stage.differences = judge.differences(&stage, at_maximum.map(Vec::as_slice))?;
                stages.push(stage);
            }
        }
        stages.push(Stage {
            differences: at_maximum,
            ..full
        });
        let mut caveats = self.caveats(&stages);
        if self.stopped {
            caveats.push(Caveat::new(
                "ended-early",
                "the comparison was ended before its time; stages with fewer than four whole rounds are left out",
            ));
        }
        Ok(Compared {
            comparison: self.comparison(measured, stages),
            caveats,
        })
    }

    /// One depth for all sides, at which each reaches its maximum.
    async fn look_for_depth(&mut self) -> Result<u32, CompareError<B::Error>> {
        let config = self.config;
        let mut depth = 1;
        for side in 0..config.sides.len() {
            let found = find_maximum(
                self.bench,
                side,
                config.spread,
                config.depth_max,
                config.seed,
                &mut self.observe,
            )
            .await
            .map_err(CompareError::Run)?;
            if self.bench.is_stopped() {
                return Err(CompareError::Stopped);
            }
            depth = depth.max(found.depth);
        }
        Ok(depth)
    }

    fn open(&self, rate: f64) -> Load {
        let Spread { queues, hosts, .. } = self.config.spread;
        Load::Open {
            rate: self.config.spread.rate(rate),
            arrivals: self.config.arrivals,
            depth_max: self.config.depth_max,
            queues,
            hosts,
        }
    }

    /// Runs rounds; those that are whole.
    async fn stage(
        &mut self,
        name: String,
        loads: Vec<Load>,
    ) -> Result<Stage, CompareError<B::Error>> {
        let mut rounds = Vec::new();
        let mut random = Random::of_stream(self.config.seed, self.done.into());
        let orders = orders(loads.len() as u32, self.config.rounds as usize, &mut random);
        for (round, order) in orders.into_iter().enumerate() {
            match self.round(&name, &loads, round, order).await? {
                Some(round) => rounds.push(round),
                None => break,
            }
        }
        Ok(Stage {
            name,
            loads,
            rounds,
            differences: Vec::new(),
        })
    }

    async fn round(
        &mut self,
        stage: &str,
        loads: &[Load],
        round: usize,
        order: Vec<u32>,
    ) -> Result<Option<Round>, CompareError<B::Error>> {
        let mut runs: Vec<Option<Run>> = vec![None; loads.len()];
        // All sides of a round ask for the same, and no two rounds do, of whatever stage.
        let number = SEARCH_RUNS_MAX + u64::from(self.done) / loads.len() as u64;
        let seed = seed_of_run(self.config.seed, number);
        for &side in &order {
            let index = side as usize;
            let name = format!(
                "{}, {stage}, round {}",
                self.config.sides[index].name,
                round + 1
            );
            (self.observe)(Step::Begins {
                name: &name,
                done: self.done,
                planned: self.stages * self.config.rounds * loads.len() as u32,
            });
            let request = Request {
                side: index,
                name,
                load: loads[index],
                seed,
            };
            let run = match self.bench.run(&request).await {
                Ok(run) => run,
                // It was asked to end while the run was being prepared.
                Err(_) if self.bench.is_stopped() => {
                    self.stopped = true;
                    return Ok(None);
                }
                Err(error) => return Err(CompareError::Run(error)),
            };
            (self.observe)(Step::Ended { run: &run });
            self.done += 1;
            runs[index] = Some(run);
            // What was running when it was stopped was cut short too.
            if self.bench.is_stopped() {
                self.stopped = true;
                return Ok(None);
            }
        }
        let runs = runs.into_iter().flatten().collect();
        Ok(Some(Round { order, runs }))
    }

    /// Requests a second of each side.
    fn maxima(&self, full: &Stage) -> Result<Vec<f64>, CompareError<B::Error>> {
        let sides = self.config.sides.iter().enumerate();
        sides
            .map(|(index, side)| {
                let runs: Vec<&Run> = full.rounds.iter().map(|round| &round.runs[index]).collect();
                // A round in which nothing succeeded is no smaller maximum.
                let rates = runs.iter().map(|run| run.rate());
                let rates: Vec<f64> = rates.filter(|&rate| rate > 0.0).collect();
                match mean(&rates) {
                    rate if rate > 0.0 => Ok(rate),
                    _ => Err(CompareError::Nothing {
                        side: side.name.clone(),
                        first_error: runs.iter().find_map(|run| run.first_error.clone()),
                    }),
                }
            })
            .collect()
    }

    fn comparison(&self, maxima: Vec<f64>, stages: Vec<Stage>) -> Comparison {
        let sides: Vec<Side> = self
            .config
            .sides
            .iter()
            .zip(maxima)
            .map(|(side, maximum_rate)| Side {
                name: side.name.clone(),
                volumes: side.volumes.clone(),
                paths: side.paths.clone(),
                maximum_rate,
            })
            .collect();
        Comparison {
            summary: summary(&sides, &stages),
            sides,
            stages,
            confidence_percent: self.config.confidence_percent,
            least_difference_percent: self.config.least_difference_percent,
        }
    }

    fn caveats(&self, stages: &[Stage]) -> Vec<Caveat> {
        let sides = &self.config.sides;
        let mut caveats = Vec::new();
        let things: Vec<_> = sides.iter().map(|side| &side.things).collect();
        caveats.extend(differing_things(&things));
        if let Some(full) = stages.last() {
            caveats.extend(same_limit(sides, self.config.processors, full));
        }
        caveats.extend(unknown(sides, stages));
        let errors: u64 = stages
            .iter()
            .flat_map(|stage| &stage.rounds)
            .flat_map(|round| &round.runs)
            .map(Run::errors)
            .sum();
        if errors > 0 {
            caveats.push(Caveat::new(
                "errors",
                format!("{errors} requests failed; they are in no number, and what is compared is what succeeded"),
            ));
        }
        caveats
    }
}

/// What is given to each side as its maximum: where no difference was shown the first side's and that one's together, so that chance in the search does not
/// become a difference in the load. Where nothing is known of the difference each side has its own.
fn settled(maxima: &[f64], at_maximum: &[Difference]) -> Vec<f64> {
    let differs = |side: usize| {
        at_maximum.iter().any(|of| {
            of.side as usize == side
                && of.metric == Metric::Throughput
                && of.verdict != Verdict::NoDifferenceShown
        })
    };
    let alike: Vec<f64> = (0..maxima.len())
        .filter(|&side| side == 0 || !differs(side))
        .map(|side| maxima[side])
        .collect();
    let common = mean(&alike);
    (0..maxima.len())
        .map(|side| match side {
            side if side > 0 && differs(side) => maxima[side],
            _ => common,
        })
        .collect()
}

pub(crate) struct Judge {
    /// How often each interval may miss the truth, so that all together miss it as seldom as was asked for (Bonferroni).
    alpha: f64,
    /// Share of undisturbed differences that may be called disturbed.
    disturbed_alpha: f64,
    least: f64,
}

impl Judge {
    /// For so many intervals.
    pub(crate) fn of(config: &CompareConfig, intervals: usize) -> Self {
        Judge {
            alpha: (1.0 - config.confidence_percent / 100.0) / intervals as f64,
            disturbed_alpha: FALSELY_DISTURBED / intervals as f64,
            least: config.least_difference_percent / 100.0,
        }
    }

    /// All differences of a stage. `at_maximum` are those of the maxima, where they are what the loads of this stage were made of.
    pub(crate) fn differences(
        &self,
        stage: &Stage,
        at_maximum: Option<&[Difference]>,
    ) -> Result<Vec<Difference>, LatencyError> {
        let mut found = Vec::new();
        for side in 1..stage.loads.len() {
            for metric in METRICS {
                let values = values(stage, side, metric)?;
                let fixed = metric == Metric::Throughput && is_fixed(stage, side);
                let difference = if fixed {
                    fixed_difference(stage, side, &values, at_maximum)
                } else {
                    self.difference(side, metric, &values)
                };
                found.push(Difference {
                    reason: difference.reason.or_else(|| {
                        (difference.verdict == Verdict::Unknown)
                            .then(|| without_figures(stage, side))
                    }),
                    ..difference
                });
            }
        }
        Ok(found)
    }

    fn difference(&self, side: usize, metric: Metric, pairs: &[Pair]) -> Difference {
        let Some(estimate) = difference(pairs, self.alpha) else {
            let anything = Estimate {
                fraction: 0.0,
                low: -1.0,
                high: FRACTION_MAX,
            };
            return described(side, metric, pairs, anything, Verdict::Unknown);
        };
        if is_disturbed(pairs, self.disturbed_alpha, self.least) {
            return Difference {
                reason: Some(DISTURBED.to_owned()),
                ..described(side, metric, pairs, estimate, Verdict::Unknown)
            };
        }
        let shown = estimate.excludes_zero() && estimate.fraction.abs() >= self.least;
        let more = estimate.fraction > 0.0;
        let verdict = match (shown, metric.better()) {
            (false, _) => Verdict::NoDifferenceShown,
            (true, Direction::Higher) if more => Verdict::Better,
            (true, Direction::Lower) if !more => Verdict::Better,
            _ => Verdict::Worse,
        };
        described(side, metric, pairs, estimate, verdict)
    }
}

fn described(
    side: usize,
    metric: Metric,
    pairs: &[Pair],
    estimate: Estimate,
    verdict: Verdict,
) -> Difference {
    let of = |value: fn(&Pair) -> f64| mean(&pairs.iter().map(value).collect::<Vec<_>>());
    Difference {
        side: side as u32,
        metric,
        baseline: of(|pair| pair.baseline),
        value: of(|pair| pair.value),
        percent: estimate.fraction * 100.0,
        percent_low: estimate.low * 100.0,
        percent_high: estimate.high * 100.0,
        verdict,
        reason: None,
    }
}

/// In which rounds the first side or another one did nothing, and why as far as that is known.
fn without_figures(stage: &Stage, side: usize) -> String {
    let mut rounds = Vec::new();
    let mut first_error = None;
    for (index, round) in stage.rounds.iter().enumerate() {
        let nothing = |of: &usize| {
            round.runs[*of].operations.requests() == 0 || round.runs[*of].rate() <= 0.0
        };
        let mut idle = [0, side].into_iter().filter(nothing).peekable();
        if idle.peek().is_some() {
            rounds.push((index + 1).to_string());
        }
        for of in idle {
            first_error = first_error.or_else(|| round.runs[of].first_error.clone());
        }
    }
    let more = match rounds.len().saturating_sub(NAMED_ROUNDS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    rounds.truncate(NAMED_ROUNDS_MAX);
    let error = first_error.map_or(String::new(), |error| format!(" ({error})"));
    format!(
        "no request succeeded in round {}{more}{error}",
        rounds.join(", ")
    )
}

/// Both sides did what they were asked for, so that their throughput is the loads' and not theirs.
fn is_fixed(stage: &Stage, side: usize) -> bool {
    [0, side].iter().all(|&of| {
        let runs = || stage.rounds.iter().map(|round| &round.runs[of]);
        let due: u64 = runs()
            .map(|run| run.operations.requests() + run.errors() + run.unsent)
            .sum();
        let ended: f64 = runs().map(|run| run.rate() * run.elapsed_seconds).sum();
        let all_did_something = runs().all(|run| run.rate() > 0.0);
        stage.loads[of].rate().is_some() && all_did_something && ended >= SUSTAINED * due as f64
    })
}

/// The throughput of sides that sustained their loads: as sure, or unsure, as that of the maxima that the loads were made of.
fn fixed_difference(
    stage: &Stage,
    side: usize,
    pairs: &[Pair],
    at_maximum: Option<&[Difference]>,
) -> Difference {
    let of_maxima = at_maximum.into_iter().flatten().find(|of| {
        of.side as usize == side
            && of.metric == Metric::Throughput
            && stage.loads[0].rate() != stage.loads[side].rate()
    });
    let (estimate, verdict) = match of_maxima {
        Some(of) => (
            Estimate {
                fraction: of.percent / 100.0,
                low: of.percent_low / 100.0,
                high: of.percent_high / 100.0,
            },
            of.verdict,
        ),
        None => (
            Estimate {
                fraction: 0.0,
                low: 0.0,
                high: 0.0,
            },
            Verdict::Fixed,
        ),
    };
    Difference {
        reason: of_maxima.and_then(|of| of.reason.as_ref()).map(|reason| {
            format!("of the maxima that the loads are made of nothing is known: {reason}")
        }),
        ..described(side, Metric::Throughput, pairs, estimate, verdict)
    }
}

/// One metric of the first side and another one, round by round.
fn values(stage: &Stage, side: usize, metric: Metric) -> Result<Vec<Pair>, LatencyError> {
    stage
        .rounds
        .iter()
        .map(|round| {
            let position = |of: usize| {
                let at = round.order.iter().position(|&side| side as usize == of);
                at.expect("a round runs every side") as f64
            };
            Ok(Pair {
                baseline: value(&round.runs[0], metric)?,
                value: value(&round.runs[side], metric)?,
                later: position(side) - position(0),
            })
        })
        .collect()
}

fn value(run: &Run, metric: Metric) -> Result<f64, LatencyError> {
    let Some(latency) = run.felt()? else {
        return Ok(0.0);
    };
    Ok(match metric {
        Metric::Throughput => run.rate(),
        Metric::LatencyMean => latency.mean_ns,
        Metric::LatencyP99 => latency.percentile_ns(99.0)? as f64,
    })
}

/// More than one thing differs, so that nobody can say which of them a difference comes from.
#[must_use]
pub fn differing_things(sides: &[&BTreeMap<String, String>]) -> Option<Caveat> {
    let first = sides.first()?;
    let mut names: Vec<&String> = sides.iter().flat_map(|side| side.keys()).collect();
    names.sort();
    names.dedup();
    let absent = "none".to_owned();
    let of =
        |side: &BTreeMap<String, String>, name: &String| side.get(name).unwrap_or(&absent).clone();
    let differing: Vec<String> = names
        .into_iter()
        .filter(|name| sides.iter().any(|side| of(side, name) != of(first, name)))
        .map(|name| {
            let values: Vec<String> = sides.iter().map(|side| of(side, name)).collect();
            format!("{name} ({})", values.join(", "))
        })
        .collect();
    (differing.len() > 1).then(|| {
        Caveat::new(
            "several-differences",
            format!(
                "what is compared differs in {} things, so that a difference cannot be put down to one: {}",
                differing.len(),
                differing.join("; ")
            ),
        )
    })
}

/// All sides are at the same limit, which then is what was measured.
fn same_limit(sides: &[SideConfig], processors: u32, full: &Stage) -> Vec<Caveat> {
    let mut caveats = Vec::new();
    let runs = |side: usize| full.rounds.iter().map(move |round| &round.runs[side]);
    let saturated = |side: usize| {
        let count = runs(side)
            .filter(|run| run.processor.generator_saturated)
            .count();
        2 * count > full.rounds.len()
    };
    if (0..sides.len()).all(saturated) {
        caveats.push(Caveat::new(
            "same-limit-generator",
            "at their maximum all sides are limited by the load generator's processors, which are the same: a difference between them can hide behind that",
        ));
    }
    // Of a gateway on the generator's machine, together with the generator.
    let of_processors = |side: usize| {
        let parts: Option<Vec<f64>> = runs(side)
            .map(|run| {
                let here = run
                    .processor
                    .generator_seconds
                    .filter(|_| run.agents.is_none());
                let took = run.processor.gateway_seconds? + here.unwrap_or(0.0);
                Some(took / (run.elapsed_seconds * f64::from(processors)))
            })
            .collect();
        Some(mean(&parts?)).filter(|&part| part >= AT_LIMIT)
    };
    let parts: Option<Vec<f64>> = (0..sides.len()).map(of_processors).collect();
    if let Some(parts) = parts.filter(|_| processors > 0) {
        caveats.push(Caveat::new(
            "same-limit-processors",
            format!(
                "at their maximum gateway and generator take the machine's {processors} processors on all sides ({} of them): what is compared there is what a request costs, and more processors may show another difference",
                percents(&parts)
            ),
        ));
    }
    let of_link = |side: usize| {
        // A link carries as much in one direction as in the other at the same time.
        let directions = [0, 1].map(|direction| {
            let bytes = runs(side).map(|run| run.directions_bytes_per_second()[direction]);
            mean(&bytes.collect::<Vec<_>>())
        });
        Some(directions[0].max(directions[1]) / sides[side].link_bytes_per_second?)
    };
    let parts: Option<Vec<f64>> = (0..sides.len()).map(of_link).collect();
    if let Some(parts) = parts.filter(|parts| parts.iter().all(|&part| part >= AT_LIMIT)) {
        caveats.push(Caveat::new(
            "same-limit-link",
            format!(
                "at their maximum all sides fill the link ({} of it): what is compared there is the link",
                percents(&parts)
            ),
        ));
    }
    caveats
}

fn percents(parts: &[f64]) -> String {
    let each = parts.iter().map(|part| format!("{:.0}%", part * 100.0));
    each.collect::<Vec<_>>().join(", ")
}

/// The whole in a sentence for each side.
fn summary(sides: &[Side], stages: &[Stage]) -> String {
    let each = sides.iter().enumerate().skip(1).map(|(index, side)| {
        let shown: Vec<String> = stages
            .iter()
            .flat_map(|stage| stage.differences.iter().map(move |of| (stage, of)))
            .filter(|(_, of)| of.side as usize == index)
            .filter(|(_, of)| matches!(of.verdict, Verdict::Better | Verdict::Worse))
            .map(|(stage, of)| {
                format!(
                    "{} {:+.1}% at {}",
                    of.metric.name(),
                    of.percent,
                    short_name(stage)
                )
            })
            .collect();
        let mut said = shown;
        said.extend(stages.iter().filter_map(|stage| {
            let reason = unknown_of(stage, index)?;
            Some(format!("unknown at {} ({reason})", short_name(stage)))
        }));
        if said.is_empty() {
            said.push("no difference shown".to_owned());
        }
        format!(
            "{} against {}: {}",
            side.name,
            sides[0].name,
            said.join(", ")
        )
    });
    each.collect::<Vec<_>>().join("; ")
}

/// A stage's name without its explanation.
fn short_name(stage: &Stage) -> &str {
    stage.name.split(':').next().unwrap_or_default()
}

/// Why nothing is known of a side in a stage, of whatever metric; none where something is known of all.
fn unknown_of(stage: &Stage, side: usize) -> Option<&str> {
    let mut unknown = stage
        .differences
        .iter()
        .filter(|of| of.side as usize == side && of.verdict == Verdict::Unknown);
    unknown.find_map(|of| of.reason.as_deref())
}

/// What of the comparison is not known.
fn unknown(sides: &[SideConfig], stages: &[Stage]) -> Option<Caveat> {
    let mut texts = Vec::new();
    for stage in stages {
        for (index, side) in sides.iter().enumerate().skip(1) {
            if let Some(reason) = unknown_of(stage, index) {
                let (of, against) = (&side.name, &sides[0].name);
                texts.push(format!(
                    "{of} against {against} at {}: {reason}",
                    short_name(stage)
                ));
            }
        }
    }
    let text = format!("nothing can be said of {}", texts.join("; "));
    (!texts.is_empty()).then(|| Caveat::new("unknown-difference", text))
}

#[cfg(test)]
mod tests;
