//! Least squares: parameters from curves, what they are worth, and which are dropped.

use super::{Configuration, HOST_QUEUES, MeasuredCurve, Parameter, Premises, Values, network};
use crate::matrix;

/// Of a parameter whose logarithm is less sure than this (one standard deviation), the curves say nothing worth having: it is dropped.
pub const DEVIATION_MAX: f64 = 0.5;
/// No fit is held to be better than this part: readings are not.
const ERROR_MIN: f64 = 1e-4;
/// Readings beyond the parameters that there must be at least.
const FREEDOM_MIN: usize = 4;
/// Steps of one search at most.
const STEPS_MAX: u32 = 120;
/// How far a logarithm moves in one step at most.
const STEP_MAX: f64 = 1.0;
/// The step of a numerical derivative.
const DERIVATIVE_STEP: f64 = 1e-5;
/// What keeps the matrix of a parameter without effect from being singular, so that its deviation is merely huge.
const RIDGE: f64 = 1e-12;
/// Logarithms beyond these are no times of machines.
const LOGARITHM_MIN: f64 = -30.0;
const LOGARITHM_MAX: f64 = 10.0;

/// Parameters that curves show.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// Their values; those that were dropped are as [`Values::none`] has them.
    pub values: Values,
    /// Those that were found, with the standard deviation of their logarithm.
    pub found: Vec<(Parameter, f64)>,
    /// Those that the readings do not show, in the order in which they were dropped.
    pub dropped: Vec<Parameter>,
    /// Root mean square of the relative errors of all readings.
    pub error: f64,
    /// How many readings there were: points of all curves.
    pub readings: usize,
    /// The largest eigenvalue of the normal matrix by its smallest.
    pub condition: f64,
    /// Relative errors of the readings.
    pub residuals: Vec<f64>,
    /// The covariance of the logarithms, in the order of `found`.
    pub covariance: Vec<Vec<f64>>,
}

/// Why there is no fit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    /// No curve.
    #[error("no curve to fit")]
    Nothing,
    /// A reading or a configuration has no sense.
    #[error("curve '{curve}': {what}")]
    Senseless {
        /// The curve.
        curve: String,
        /// What is wrong.
        what: &'static str,
    },
    /// There are too few readings.
    #[error(
        "{readings} points cannot show the {parameters} parameters of the smallest model with {FREEDOM_MIN} to spare; measure more depths"
    )]
    TooFew {
        /// Those there are.
        readings: usize,
        /// Those wanted.
        parameters: usize,
    },
    /// The readings show nothing that waits.
    #[error(
        "these curves do not identify the model: no station's demand is known to within a factor of {:.1} (condition {condition:.0e}); measure to saturation, at more depths, and in another configuration",
        DEVIATION_MAX.exp()
    )]
    Unidentified {
        /// The condition of the last try.
        condition: f64,
    },
}

/// What is held against readings.
struct Problem<'a> {
    curves: &'a [MeasuredCurve],
    premises: &'a Premises,
}

impl Problem<'_> {
    /// Logarithms of what the model says by what was read: one of each point. With so many in flight, a latency says what its rate says (Little's law), so that it
    /// is no reading of its own.
    fn residuals(&self, values: &Values) -> Vec<f64> {
        let mut residuals = Vec::new();
        for curve in self.curves {
            let network = network(values, &curve.configuration, self.premises);
            for reading in &curve.readings {
                let rate = network.rate(reading.in_flight);
                residuals.push((rate / reading.rate).ln());
            }
        }
        residuals
    }

    /// The residuals' derivatives by the logarithms: a row for each reading.
    fn derivatives(&self, values: &Values, free: &[Parameter], at: &[f64]) -> Vec<Vec<f64>> {
        let mut rows = vec![Vec::with_capacity(free.len()); at.len()];
        for &parameter in free {
            let mut moved = *values;
            moved.set(parameter, values.get(parameter) * DERIVATIVE_STEP.exp());
            for (row, (new, old)) in rows.iter_mut().zip(self.residuals(&moved).iter().zip(at)) {
                row.push((new - old) / DERIVATIVE_STEP);
            }
        }
        rows
    }

    /// Levenberg's and Marquardt's search from a start; values and the sum of squares.
    fn search(&self, start: &Values, free: &[Parameter]) -> (Values, f64) {
        let mut values = *start;
        let mut residuals = self.residuals(&values);
        let mut squares = sum_of_squares(&residuals);
        let mut damping = 1e-2;
        for _ in 0..STEPS_MAX {
            let rows = self.derivatives(&values, free, &residuals);
            let normal = normal_matrix(&rows, free.len());
            let gradient: Vec<f64> = (0..free.len())
                .map(|at| {
                    rows.iter()
                        .zip(&residuals)
                        .map(|(row, of)| row[at] * of)
                        .sum()
                })
                .collect();
            let mut damped = normal;
            for (at, row) in damped.iter_mut().enumerate() {
                row[at] += damping * row[at] + RIDGE;
            }
            let Some(step) = matrix::solve(&damped, &gradient) else {
                break;
            };
            let mut moved = values;
            for (&parameter, of) in free.iter().zip(&step) {
                let logarithm = values.get(parameter).ln() - of.clamp(-STEP_MAX, STEP_MAX);
                moved.set(
                    parameter,
                    logarithm.clamp(LOGARITHM_MIN, LOGARITHM_MAX).exp(),
                );
            }
            let tried = self.residuals(&moved);
            let sum = sum_of_squares(&tried);
            if sum < squares {
                let gained = (squares - sum) / squares;
                (values, residuals, squares) = (moved, tried, sum);
                damping = (damping * 0.3).max(1e-9);
                if gained < 1e-10 {
                    break;
                }
            } else {
                damping *= 4.0;
                if damping > 1e9 {
                    break;
                }
            }
        }
        (values, squares)
    }
}

fn sum_of_squares(residuals: &[f64]) -> f64 {
    let sum: f64 = residuals.iter().map(|of| of * of).sum();
    if sum.is_finite() { sum } else { f64::MAX }
}

fn normal_matrix(rows: &[Vec<f64>], size: usize) -> Vec<Vec<f64>> {
    let mut normal = vec![vec![0.0; size]; size];
    for row in rows {
        for (at, one) in row.iter().enumerate() {
            for (beside, other) in row.iter().enumerate() {
                normal[at][beside] += one * other;
            }
        }
    }
    normal
}

/// Fits the model with all parameters but `without`, and drops those that the readings do not show: the least sure of those that are less sure than
/// [`DEVIATION_MAX`], and again, until all that are left are shown. Then a station whose parameter the readings do not need is dropped: one without which Schwarz's
/// criterion (1978), `n ln(squares / n) + k ln n`, is lower.
///
/// # Errors
/// [`FitError`].
pub fn fit(
    curves: &[MeasuredCurve],
    premises: &Premises,
    without: &[Parameter],
) -> Result<Fit, FitError> {
    check(curves)?;
    let problem = Problem { curves, premises };
    let readings = problem.residuals(&Values::none()).len();
    let mut free: Vec<Parameter> = Parameter::ALL
        .into_iter()
        .filter(|of| !without.contains(of))
        .collect();
    let mut dropped = Vec::new();
    // A curve of few readings can still show a small model.
    while free.len() + FREEDOM_MIN > readings {
        match free.pop() {
            Some(parameter) if free.len() >= 2 => dropped.push(parameter),
            _ => {
                return Err(FitError::TooFew {
                    readings,
                    parameters: 2,
                });
            }
        }
    }
    loop {
        let (values, squares) = best(&problem, curves, premises, &free);
        let found = worth(&problem, &values, squares, &free, readings);
        let worst = (found.iter().enumerate())
            .map(|(at, (_, deviation))| (at, *deviation))
            .max_by(|one, other| one.1.total_cmp(&other.1));
        let condition = {
            let residuals = problem.residuals(&values);
            let rows = problem.derivatives(&values, &free, &residuals);
            let eigenvalues = matrix::eigenvalues(&normal_matrix(&rows, free.len()));
            match (eigenvalues.first(), eigenvalues.last()) {
                (Some(least), Some(most)) => most / least.max(f64::MIN_POSITIVE),
                _ => f64::INFINITY,
            }
        };
        match worst {
            Some((at, deviation)) if deviation > DEVIATION_MAX => {
                let parameter = free.remove(at);
                dropped.push(parameter);
                if parameter == Parameter::Host {
                    free.retain(|of| *of != Parameter::HostQueues);
                }
            }
            _ => match spare(&problem, curves, premises, &free, squares) {
                Some(fewer) => {
                    dropped.extend(free.iter().filter(|of| !fewer.contains(of)));
                    free = fewer;
                }
                None => {
                    return Ok(Fit {
                        values,
                        found,
                        dropped,
                        error: (squares / readings as f64).sqrt(),
                        readings,
                        condition,
                        residuals: problem.residuals(&values),
                        covariance: covariance(&problem, &values, squares, &free, readings),
                    });
                }
            },
        }
        if !free.iter().any(|of| is_station(*of)) {
            return Err(FitError::Unidentified { condition });
        }
    }
}

/// The parameters without the station that the readings need least, where Schwarz's criterion is lower without it; never without any station.
fn spare(
    problem: &Problem<'_>,
    curves: &[MeasuredCurve],
    premises: &Premises,
    free: &[Parameter],
    squares: f64,
) -> Option<Vec<Parameter>> {
    let count = problem.residuals(&Values::none()).len() as f64;
    let criterion = |squares: f64, parameters: usize| {
        count * (squares / count).max(ERROR_MIN * ERROR_MIN).ln() + parameters as f64 * count.ln()
    };
    let stations = || free.iter().copied().filter(|of| is_station(*of));
    if stations().count() < 2 {
        return None;
    }
    let tried = stations().map(|station| {
        let fewer: Vec<Parameter> = (free.iter().copied())
            .filter(|of| {
                *of != station && !(station == Parameter::Host && *of == Parameter::HostQueues)
            })
            .collect();
        let (_, squares) = best(problem, curves, premises, &fewer);
        (criterion(squares, fewer.len()), fewer)
    });
    let (least, fewer) = tried.min_by(|one, other| one.0.total_cmp(&other.0))?;
    (least < criterion(squares, free.len())).then_some(fewer)
}

fn is_station(parameter: Parameter) -> bool {
    !matches!(parameter, Parameter::Delay | Parameter::HostQueues)
}

pub(super) fn check(curves: &[MeasuredCurve]) -> Result<(), FitError> {
    if curves.is_empty() {
        return Err(FitError::Nothing);
    }
    for curve in curves {
        let wrong = |what| {
            Err(FitError::Senseless {
                curve: curve.name.clone(),
                what,
            })
        };
        let Configuration {
            gateways,
            reactors,
            bdevs_per_cluster,
            nodes,
            osds,
        } = curve.configuration;
        if [gateways, reactors, bdevs_per_cluster, nodes, osds].contains(&0) {
            return wrong("gateways, reactors, bdevs_per_cluster, nodes and osds are 1 at least");
        }
        if curve.readings.is_empty() {
            return wrong("it has no point");
        }
        let sense = |of: f64| of > 0.0 && of.is_finite();
        if !curve.readings.iter().all(|of| {
            of.in_flight >= 1.0
                && sense(of.in_flight)
                && sense(of.rate)
                && of.latency.is_none_or(sense)
        }) {
            return wrong("requests in flight are 1 at least, rates and latencies above 0");
        }
    }
    Ok(())
}

/// The best of searches from several starts: every station near to binding, and each in turn more than the others.
fn best(
    problem: &Problem<'_>,
    curves: &[MeasuredCurve],
    premises: &Premises,
    free: &[Parameter],
) -> (Values, f64) {
    let stations = [
        Parameter::Reactor,
        Parameter::Context,
        Parameter::Host,
        Parameter::Storage,
    ];
    let least_latency = curves
        .iter()
        .flat_map(|curve| &curve.readings)
        .map(|of| of.in_flight / of.rate)
        .fold(f64::INFINITY, f64::min);
    let start = |most: Option<Parameter>| {
        let mut values = Values::none();
        for &parameter in free {
            let near = match most {
                Some(of) if of == parameter => 0.9,
                Some(_) => 0.3,
                None => 0.7,
            };
            values.set(
                parameter,
                match parameter {
                    Parameter::Delay => 0.5 * least_latency,
                    Parameter::HostQueues => HOST_QUEUES,
                    station => near * demand_that_binds(curves, premises, station),
                },
            );
        }
        values
    };
    let starts = std::iter::once(None).chain(
        stations
            .into_iter()
            .filter(|of| free.contains(of))
            .map(Some),
    );
    let searched = starts.map(|most| problem.search(&start(most), free));
    searched
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .expect("there is a start")
}

/// The demand with which a station alone would bind one of the curves and none sooner.
fn demand_that_binds(curves: &[MeasuredCurve], premises: &Premises, station: Parameter) -> f64 {
    let mut values = Values::none();
    values.set(station, 1.0);
    let demand = |curve: &MeasuredCurve| {
        network(&values, &curve.configuration, premises).capacity() / curve.peak()
    };
    curves.iter().map(demand).fold(f64::INFINITY, f64::min)
}

fn covariance(
    problem: &Problem<'_>,
    values: &Values,
    squares: f64,
    free: &[Parameter],
    readings: usize,
) -> Vec<Vec<f64>> {
    let residuals = problem.residuals(values);
    let rows = problem.derivatives(values, free, &residuals);
    let mut normal = normal_matrix(&rows, free.len());
    for (at, row) in normal.iter_mut().enumerate() {
        row[at] += RIDGE;
    }
    let freedom = readings.saturating_sub(free.len()).max(1) as f64;
    // A perfect fit is still no surer than its numbers.
    let variance = (squares / freedom).max(1e-12);
    let infinite = || vec![vec![f64::INFINITY; free.len()]; free.len()];
    matrix::inverse(&normal).map_or_else(infinite, |inverse| {
        inverse
            .into_iter()
            .map(|row| row.into_iter().map(|of| of * variance).collect())
            .collect()
    })
}

fn worth(
    problem: &Problem<'_>,
    values: &Values,
    squares: f64,
    free: &[Parameter],
    readings: usize,
) -> Vec<(Parameter, f64)> {
    let covariance = covariance(problem, values, squares, free, readings);
    free.iter()
        .enumerate()
        .map(|(at, &parameter)| (parameter, covariance[at][at].abs().sqrt()))
        .collect()
}

/// Values of the parameters had other points of the same curves been read: of each curve as many points as it has are drawn with replacement, and the model is
/// fitted again, with what is dropped decided anew. A draw that shows no model gives none. The same seed draws the same.
#[must_use]
pub fn bootstrap(
    curves: &[MeasuredCurve],
    premises: &Premises,
    samples: u32,
    seed: u64,
) -> Vec<Values> {
    let mut state = seed;
    (0..samples)
        .filter_map(|_| {
            let drawn: Vec<MeasuredCurve> = curves
                .iter()
                .map(|curve| {
                    let count = curve.readings.len() as u64;
                    let readings = (curve.readings.iter())
                        .map(|_| curve.readings[(next(&mut state) % count) as usize]);
                    MeasuredCurve {
                        readings: readings.collect(),
                        ..curve.clone()
                    }
                })
                .collect();
            Some(fit(&drawn, premises, &[]).ok()?.values)
        })
        .collect()
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// The variance of the logarithm of `quantity` after another curve was measured in `candidate` at these numbers in flight, with the errors that the readings had
/// so far: none where it cannot be computed.
#[must_use]
pub fn variance_after(
    fit: &Fit,
    premises: &Premises,
    candidate: Option<(&Configuration, &[f64])>,
    quantity: &dyn Fn(&Values) -> f64,
) -> Option<f64> {
    let free: Vec<Parameter> = fit.found.iter().map(|(parameter, _)| *parameter).collect();
    let gradient = logarithmic_gradient(&fit.values, &free, quantity);
    let mut information = matrix::inverse(&fit.covariance)?;
    if let Some((configuration, in_flight)) = candidate {
        let error = fit.error.max(1e-6);
        for &population in in_flight {
            let rate = |values: &Values| network(values, configuration, premises).rate(population);
            let row = logarithmic_gradient(&fit.values, &free, &rate);
            for (at, one) in row.iter().enumerate() {
                for (beside, other) in row.iter().enumerate() {
                    information[at][beside] += one * other / (error * error);
                }
            }
        }
    }
    let solved = matrix::solve(&information, &gradient)?;
    let variance: f64 = solved
        .iter()
        .zip(&gradient)
        .map(|(one, other)| one * other)
        .sum();
    variance.is_finite().then_some(variance.max(0.0))
}

fn logarithmic_gradient(
    values: &Values,
    free: &[Parameter],
    quantity: &dyn Fn(&Values) -> f64,
) -> Vec<f64> {
    let base = quantity(values).ln();
    // Quantities are found by bisection: a step well above its last bit.
    const STEP: f64 = 1e-4;
    free.iter()
        .map(|&parameter| {
            let mut moved = *values;
            moved.set(parameter, values.get(parameter) * STEP.exp());
            (quantity(&moved).ln() - base) / STEP
        })
        .collect()
}
