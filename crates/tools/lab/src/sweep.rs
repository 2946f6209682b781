//! Drives a sweep: the curve of the same volume under each of several settings, and which setting is the best.
//!
//! Curves that were measured one after the other differ by whatever drifted meanwhile. So after them all settings do as much as they can in rounds of drawn order, at
//! one depth that is enough for each, and the best is compared with every other one. Since nobody knew before which would be the best, the intervals are as sure as if
//! every setting were compared with every other (decision 0027). It measures nothing itself: see [`Bench`].

use crate::compare::{CompareConfig, CompareError, Judge, METRICS, SideConfig, rounds_at};
use crate::curve::{self, CurveConfig, CurveError, Steps};
use crate::document::{
    Arrivals, Axis, Caveat, Comparison, Curve, Failure, LatencyError, Load, Round, Run, Side,
    Stage, Verdict,
};
use crate::runner::{Bench, Step, seed_of_run};
use crate::secret;
use crate::statistics::{PAIRS_MIN, mean};

/// The runs of one curve are fewer.
const RUNS_MAX: u64 = 1 << 10;
/// A depth is enough for a setting where it reaches this part of its highest throughput.
const ENOUGH: f64 = 0.97;

/// What to sweep, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepConfig {
    /// The curve of each setting; its side and seed are those of the first.
    pub curve: CurveConfig,
    /// The settings, by the sides of the [`Bench`].
    pub settings: Vec<SideConfig>,
    /// Rounds in which they are compared.
    pub rounds: u32,
    /// How sure the confidence intervals of all differences together are.
    pub confidence_percent: f64,
    /// Differences below this are not shown.
    pub least_difference_percent: f64,
}

/// Why there is no sweep.
#[derive(Debug, thiserror::Error)]
pub enum SweepError<E> {
    /// No setting has a curve; this is why the first has none.
    #[error("{setting}: {error}")]
    Curve {
        /// The setting.
        setting: String,
        /// Why.
        error: CurveError<E>,
    },
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
}

/// A sweep, and what its reader must know.
#[derive(Debug, Clone, PartialEq)]
pub struct Swept {
    /// The curve of each setting, by its name.
    pub curves: Vec<Curve>,
    /// The settings side by side, the best first; none where there was nothing to compare.
    pub settings: Option<Comparison>,
    /// What must be said with it.
    pub caveats: Vec<Caveat>,
}

/// Measures the curve of each setting, and compares them.
///
/// # Errors
/// [`SweepError`]. A setting of which there is no curve is a failure of that curve, where another one has one.
///
/// # Panics
/// Where there are no settings or no steps.
pub async fn measure<B: Bench>(
    bench: &mut B,
    config: &SweepConfig,
    mut observe: impl FnMut(Step<'_>),
) -> Result<Swept, SweepError<B::Error>> {
    assert!(!config.settings.is_empty(), "a sweep needs settings");
    if (config.rounds as usize) < PAIRS_MIN {
        return Err(SweepError::Rounds {
            rounds: config.rounds,
        });
    }
    let curves = curves(bench, config, &mut observe).await?;
    let mut swept = Swept {
        curves,
        settings: None,
        caveats: Vec::new(),
    };
    if let Err(why) = compare(bench, config, &mut swept, observe).await? {
        let text = format!("which setting is the best was not found out: {why}");
        swept
            .caveats
            .push(Caveat::new("settings-not-compared", text));
    }
    Ok(swept)
}

async fn curves<B: Bench>(
    bench: &mut B,
    config: &SweepConfig,
    mut observe: impl FnMut(Step<'_>),
) -> Result<Vec<Curve>, SweepError<B::Error>> {
    let mut curves: Vec<Curve> = Vec::new();
    let mut first_error = None;
    for (side, setting) in config.settings.iter().enumerate() {
        let of_setting = CurveConfig {
            side,
            seed: seed_of_run(config.curve.seed, side as u64 * RUNS_MAX),
            ..config.curve.clone()
        };
        if bench.is_stopped() && !curves.is_empty() {
            curves.push(empty(config, setting, "it was asked to end".to_owned()));
            continue;
        }
        let curve = match curve::measure(bench, &of_setting, &mut observe).await {
            Ok(curve) => curve,
            Err(error) => {
                let why = secret::without_in_text(&error.to_string());
                first_error.get_or_insert((setting.name.clone(), error));
                Curve {
                    failures: vec![Failure {
                        point: setting.name.clone(),
                        offered: 0.0,
                        reason: why.clone(),
                    }],
                    ..empty(config, setting, why)
                }
            }
        };
        curves.push(Curve {
            name: setting.name.clone(),
            ..curve
        });
    }
    match first_error {
        Some((setting, error)) if curves.iter().all(|curve| curve.points.is_empty()) => {
            Err(SweepError::Curve { setting, error })
        }
        _ => Ok(curves),
    }
}

/// The curve of a setting that has none.
fn empty(config: &SweepConfig, setting: &SideConfig, why: String) -> Curve {
    Curve {
        name: setting.name.clone(),
        axis: match config.curve.steps {
            Steps::Depths(_) => Axis::Depth,
            Steps::Rates { .. } => Axis::Rate,
        },
        maximum_rate: None,
        maximum_runs: Vec::new(),
        points: Vec::new(),
        failures: Vec::new(),
        knee: None,
        objectives: Vec::new(),
        past_saturation: None,
        stopped: why,
    }
}

/// Compares the settings, or says why not.
async fn compare<B: Bench>(
    bench: &mut B,
    config: &SweepConfig,
    swept: &mut Swept,
    observe: impl FnMut(Step<'_>),
) -> Result<Result<(), String>, SweepError<B::Error>> {
    if config.settings.len() < 2 {
        return Ok(Err("there is one alone".to_owned()));
    }
    if bench.is_stopped() {
        return Ok(Err("it was asked to end before".to_owned()));
    }
    let failed = swept.curves.iter().find(|curve| !curve.failures.is_empty());
    if let Some(failed) = failed {
        return Ok(Err(format!("{} could not be measured", failed.name)));
    }
    let depths = swept.curves.iter().map(|curve| depth_of(curve, config));
    let depth = depths.max().expect("there are settings");
    let count = config.settings.len();
    let rounds = CompareConfig {
        sides: config.settings.clone(),
        spread: config.curve.spread,
        depth: Some(depth),
        depth_max: depth,
        rate: None,
        arrivals: Arrivals::Uniform,
        rounds: config.rounds,
        confidence_percent: config.confidence_percent,
        least_difference_percent: config.least_difference_percent,
        seed: seed_of_run(config.curve.seed, count as u64 * RUNS_MAX),
        processors: 0,
    };
    let stage = match rounds_at(bench, &rounds, depth, observe).await {
        Ok(stage) => stage,
        Err(CompareError::Latency(error)) => return Err(error.into()),
        Err(error) => return Ok(Err(error.to_string())),
    };
    if stage.rounds.len() < PAIRS_MIN {
        return Ok(Err("it was asked to end before".to_owned()));
    }
    let ranks = ranked(&stage);
    let mut stage = reordered(stage, &ranks);
    // Whichever is the best: as many intervals as there are pairs.
    let judge = Judge::of(&rounds, count * (count - 1) / 2 * METRICS.len());
    stage.differences = judge.differences(&stage, None)?;
    let sides: Vec<Side> = ranks
        .iter()
        .enumerate()
        .map(|(place, &setting)| Side {
            name: config.settings[setting].name.clone(),
            volumes: config.settings[setting].volumes.clone(),
            paths: config.settings[setting].paths.clone(),
            maximum_rate: rate_of(&stage, place),
        })
        .collect();
    swept.settings = Some(Comparison {
        summary: summary(&sides, &stage),
        sides,
        stages: vec![stage],
        confidence_percent: config.confidence_percent,
        least_difference_percent: config.least_difference_percent,
    });
    Ok(Ok(()))
}

/// The least depth that is enough for a setting, by its curve.
fn depth_of(curve: &Curve, config: &SweepConfig) -> u32 {
    let points = curve.points.iter().map(|point| &point.run);
    let measured: Vec<(u32, f64)> = curve
        .maximum_runs
        .iter()
        .chain(points)
        .filter_map(|run| match run.load {
            Load::Closed { depth, .. } => Some((depth, run.rate())),
            Load::Open { .. } => None,
        })
        .collect();
    let highest = measured.iter().map(|of| of.1).fold(0.0, f64::max);
    let enough = measured.iter().filter(|of| of.1 >= ENOUGH * highest);
    let least = enough.map(|of| of.0).min();
    least.unwrap_or(match config.curve.steps {
        // The maximum was given, so that nothing says which depth is enough.
        Steps::Rates { depth_max, .. } => depth_max,
        Steps::Depths(_) => 1,
    })
}

/// The mean requests a second of a setting, without rounds in which nothing succeeded.
fn rate_of(stage: &Stage, side: usize) -> f64 {
    let rates = stage.rounds.iter().map(|round| round.runs[side].rate());
    mean(&rates.filter(|&rate| rate > 0.0).collect::<Vec<_>>())
}

/// The settings, by throughput, the best first.
fn ranked(stage: &Stage) -> Vec<usize> {
    let mut ranks: Vec<usize> = (0..stage.loads.len()).collect();
    ranks.sort_by(|&one, &other| rate_of(stage, other).total_cmp(&rate_of(stage, one)));
    ranks
}

/// The stage with its sides in another order.
fn reordered(stage: Stage, ranks: &[usize]) -> Stage {
    let place = |side: u32| {
        let found = ranks.iter().position(|&setting| setting == side as usize);
        found.expect("every side has a rank") as u32
    };
    let rounds = stage.rounds.into_iter().map(|round| {
        let mut runs: Vec<Option<Run>> = round.runs.into_iter().map(Some).collect();
        let taken = ranks.iter().map(|&setting| runs[setting].take());
        Round {
            runs: taken
                .map(|run| run.expect("a rank is taken once"))
                .collect(),
            order: round.order.into_iter().map(place).collect(),
        }
    });
    Stage {
        rounds: rounds.collect(),
        loads: ranks.iter().map(|&setting| stage.loads[setting]).collect(),
        ..stage
    }
}

/// The whole in a sentence.
fn summary(sides: &[Side], stage: &Stage) -> String {
    let (mut alike, mut others) = (Vec::new(), Vec::new());
    for (place, side) in sides.iter().enumerate().skip(1) {
        let of_side = || {
            stage
                .differences
                .iter()
                .filter(|of| of.side as usize == place)
        };
        let shown: Vec<String> = of_side()
            .filter(|of| matches!(of.verdict, Verdict::Better | Verdict::Worse))
            .map(|of| format!("{} {:+.1}%", of.metric.name(), of.percent))
            .collect();
        let unknown = of_side().find_map(|of| of.reason.as_deref());
        match (unknown, shown.is_empty()) {
            (Some(reason), _) => others.push(format!("{}: unknown ({reason})", side.name)),
            (None, true) => alike.push(side.name.as_str()),
            (None, false) => others.push(format!("{}: {}", side.name, shown.join(", "))),
        }
    }
    let best = &sides[0].name;
    if others.is_empty() {
        return format!("no difference shown between {best}, {}", alike.join(", "));
    }
    let alike = match alike.is_empty() {
        true => String::new(),
        false => format!(
            ", and no difference shown between it and {}",
            alike.join(", ")
        ),
    };
    format!(
        "the best is {best}{alike}; against it {}",
        others.join("; ")
    )
}

#[cfg(test)]
mod tests;
