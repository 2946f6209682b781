//! Least squares: parameters of every form from curves, what they are worth, and how likely the forms are beside each other.

use super::{
    Configuration, HostForm, MeasuredCurve, Parameter, Premises, StorageForm, Values, network,
};
use crate::matrix;
use weir_reactor::random::Random;

/// Of a parameter whose logarithm is less sure than this (one standard deviation), the curves say nothing worth having: a form with it is not shown.
pub const DEVIATION_MAX: f64 = 0.5;
/// Forms with a weight below this part are left out of what is averaged.
pub const WEIGHT_MIN: f64 = 0.01;
/// No fit is held to be better than this part: readings are not.
const ERROR_MIN: f64 = 1e-4;
/// Readings beyond the parameters that there must be at least.
pub const FREEDOM_MIN: usize = 4;
/// Steps of one search at most, and those after which only the best [`SEARCHES_KEPT`] go on.
const STEPS_MAX: u32 = 120;
const STEPS_AT_FIRST: u32 = 10;
const SEARCHES_KEPT: usize = 2;
/// How far a logarithm moves in one step at most.
const STEP_MAX: f64 = 1.0;
/// A search ends where a step gains less than this part.
const GAIN_MIN: f64 = 1e-7;
/// The step of a numerical derivative.
const DERIVATIVE_STEP: f64 = 1e-5;
/// What keeps the matrix of a parameter without effect from being singular, so that its deviation is merely huge.
const RIDGE: f64 = 1e-12;
/// Logarithms beyond these are no times of machines.
const LOGARITHM_MIN: f64 = -30.0;
const LOGARITHM_MAX: f64 = 10.0;
/// Queues of a host that a search starts from.
const QUEUES_AT_FIRST: [f64; 2] = [4.0, 48.0];
/// The stations of which each subset is tried.
pub const STATIONS: [Parameter; 4] = [
    Parameter::Reactor,
    Parameter::Context,
    Parameter::Host,
    Parameter::Storage,
];

/// Which stations there are, and how requests wait at them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Of [`STATIONS`].
    pub stations: Vec<Parameter>,
    /// Whether a request takes time that is no station's; without it the delay is 0.
    pub delay: bool,
    /// How requests wait for hosts; [`HostForm::Queues`] where there are none.
    pub hosts: HostForm,
    /// How they visit OSDs; [`StorageForm::One`] where there are none.
    pub storage: StorageForm,
}

impl Form {
    /// Every subset of the stations in every form, each with a delay.
    #[must_use]
    pub fn all() -> Vec<Form> {
        let mut forms = Vec::new();
        for subset in 1..1u32 << STATIONS.len() {
            let stations: Vec<Parameter> = (STATIONS.into_iter().enumerate())
                .filter(|(at, _)| subset >> at & 1 == 1)
                .map(|(_, of)| of)
                .collect();
            let hosts: &[HostForm] = match stations.contains(&Parameter::Host) {
                true => &[HostForm::Queues, HostForm::One, HostForm::Shared],
                false => &[HostForm::Queues],
            };
            let storages: &[StorageForm] = match stations.contains(&Parameter::Storage) {
                true => &[StorageForm::One, StorageForm::Replicas],
                false => &[StorageForm::One],
            };
            for &hosts in hosts {
                for &storage in storages {
                    forms.push(Form {
                        stations: stations.clone(),
                        delay: true,
                        hosts,
                        storage,
                    });
                }
            }
        }
        forms
    }

    /// What is estimated of it.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut parameters = Vec::new();
        parameters.extend(self.delay.then_some(Parameter::Delay));
        parameters.extend(&self.stations);
        if self.stations.contains(&Parameter::Host) && self.hosts.counts() {
            parameters.push(Parameter::HostQueues);
        }
        parameters
    }

    /// The same stations without a delay.
    fn without_delay(&self) -> Form {
        Form {
            delay: false,
            ..self.clone()
        }
    }

    /// In words.
    #[must_use]
    pub fn text(&self) -> String {
        let words = self.stations.iter().map(|of| match of {
            Parameter::Reactor => "reactors".to_owned(),
            Parameter::Context => "client contexts".to_owned(),
            Parameter::Host => format!("hosts ({})", self.hosts.words()),
            _ => format!("storage ({})", self.storage.words()),
        });
        let none = (!self.delay).then(|| "no delay".to_owned());
        words.chain(none).collect::<Vec<_>>().join(", ")
    }
}

/// What curves say of one form.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The form.
    pub form: Form,
    /// The values of its parameters; the others are as [`Values::none`] has them.
    pub values: Values,
    /// Its parameters, with the standard deviation of their logarithm.
    pub found: Vec<(Parameter, f64)>,
    /// Whether each of them is known to within [`DEVIATION_MAX`].
    pub shown: bool,
    /// Root mean square of the relative errors of all readings.
    pub error: f64,
    /// How many readings there were: points of all curves.
    pub readings: usize,
    /// The largest eigenvalue of the normal matrix by its smallest.
    pub condition: f64,
    /// Relative errors of the readings, in the order of curves and points.
    pub residuals: Vec<f64>,
    /// The covariance of the logarithms, in the order of `found`.
    pub covariance: Vec<Vec<f64>>,
    /// Akaike's criterion with the correction for few readings (Hurvich and Tsai 1989).
    pub criterion: f64,
    /// How likely the form is beside the others that are shown, by the criterion: all together 1. 0 of what is not shown, or less likely than [`WEIGHT_MIN`].
    pub weight: f64,
}

impl Fit {
    /// The error of a reading, with the readings that the parameters took allowed for.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        let freedom = self.readings.saturating_sub(self.found.len()).max(1) as f64;
        self.error * (self.readings as f64 / freedom).sqrt()
    }

    /// Whether the delay alone is less sure than [`DEVIATION_MAX`].
    fn lacks_only_delay(&self) -> bool {
        (self.found.iter()).all(|(parameter, deviation)| {
            (*deviation <= DEVIATION_MAX) == (*parameter != Parameter::Delay)
        })
    }
}

/// What curves say of all forms.
#[derive(Debug, Clone, PartialEq)]
pub struct Fits {
    /// Those that were tried: those that are shown first, and of these the likeliest.
    pub tried: Vec<Fit>,
    /// Those for which there are too few readings.
    pub not_tried: Vec<Form>,
}

impl Fits {
    /// The likeliest.
    #[must_use]
    pub fn best(&self) -> &Fit {
        &self.tried[0]
    }

    /// Those that are averaged.
    pub fn weighed(&self) -> impl Iterator<Item = &Fit> {
        self.tried.iter().filter(|of| of.weight > 0.0)
    }

    /// How likely it is that a station is one, by what is averaged.
    #[must_use]
    pub fn weight_of(&self, station: Parameter) -> f64 {
        let with = self
            .weighed()
            .filter(|of| of.found.iter().any(|(parameter, _)| *parameter == station));
        with.map(|of| of.weight).sum()
    }

    /// The likeliest that is shown and does without a station.
    #[must_use]
    pub fn without(&self, station: Parameter) -> Option<&Fit> {
        self.tried
            .iter()
            .find(|of| of.shown && !of.form.stations.contains(&station))
    }
}

/// Why there is no fit.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FitError {
    /// Curves of different loads.
    #[error(
        "{one} and {other} were not asked the same: {difference}; a model is of one kind of request, so give curves of one"
    )]
    Unlike {
        /// Where one is from.
        one: String,
        /// Where the other is from.
        other: String,
        /// In what they differ.
        difference: String,
    },
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
        "these curves do not identify the model: in no form of it all demands are known to within a factor of {:.1} (condition {condition:.0e} of the best); measure to saturation, at more depths, and in another configuration",
        DEVIATION_MAX.exp()
    )]
    Unidentified {
        /// The condition of the form with the least error.
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
        self.residuals_near(values, None)
    }

    /// As [`Problem::residuals`], where those of values close by are known.
    fn residuals_near(&self, values: &Values, near: Option<&[f64]>) -> Vec<f64> {
        let mut residuals = Vec::with_capacity(near.map_or(0, <[f64]>::len));
        for curve in self.curves {
            let network = network(values, &curve.configuration, self.premises);
            for reading in &curve.readings {
                let expected = near.map_or(f64::INFINITY, |near| {
                    reading.rate * near[residuals.len()].exp()
                });
                let rate = network.rate_near(reading.in_flight, expected);
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
            let news = self.residuals_near(&moved, Some(at));
            for (row, (new, old)) in rows.iter_mut().zip(news.iter().zip(at)) {
                row.push((new - old) / DERIVATIVE_STEP);
            }
        }
        rows
    }

    /// Between which logarithms a parameter is looked for.
    fn limits(&self, parameter: Parameter) -> (f64, f64) {
        match parameter {
            Parameter::Storage => (
                LOGARITHM_MIN,
                self.premises.storage_seconds_max.ln().min(LOGARITHM_MAX),
            ),
            // Less than one processor is none.
            Parameter::HostQueues => (0.0, LOGARITHM_MAX),
            _ => (LOGARITHM_MIN, LOGARITHM_MAX),
        }
    }

    /// Levenberg's and Marquardt's search from a start; values and the sum of squares.
    fn search(&self, start: &Values, free: &[Parameter], steps: u32) -> (Values, f64) {
        let mut values = *start;
        let mut residuals = self.residuals(&values);
        let mut squares = sum_of_squares(&residuals);
        let mut damping = 1e-2;
        for _ in 0..steps {
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
            let Some(mut step) = matrix::solve(&damped, &gradient) else {
                break;
            };
            // What is at its limit and would go beyond stays, and the others move without it.
            let held = free.iter().zip(&step).position(|(&parameter, of)| {
                let (logarithm, (least, most)) =
                    (values.get(parameter).ln(), self.limits(parameter));
                (*of < 0.0 && logarithm >= most) || (*of > 0.0 && logarithm <= least)
            });
            if let Some(held) = held {
                let mut gradient = gradient.clone();
                gradient[held] = 0.0;
                for row in &mut damped {
                    row[held] = 0.0;
                }
                damped[held].fill(0.0);
                damped[held][held] = 1.0;
                let Some(without) = matrix::solve(&damped, &gradient) else {
                    break;
                };
                step = without;
            }
            let mut moved = values;
            for (&parameter, of) in free.iter().zip(&step) {
                let logarithm = values.get(parameter).ln() - of.clamp(-STEP_MAX, STEP_MAX);
                let (least, most) = self.limits(parameter);
                moved.set(parameter, logarithm.clamp(least, most).exp());
            }
            let tried = self.residuals_near(&moved, Some(&residuals));
            let sum = sum_of_squares(&tried);
            if sum < squares {
                let gained = (squares - sum) / squares;
                (values, residuals, squares) = (moved, tried, sum);
                damping = (damping * 0.3).max(1e-9);
                if gained < GAIN_MIN {
                    break;
                }
            } else {
                damping *= 8.0;
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

/// Fits every form to all readings: least squares on the logarithms of rates. A form of which the delay alone is not shown has none. Of the forms that are shown each
/// is as likely as its criterion has it, and those that have next to no weight are left out. Searches start from many places, or, where fits of nearly the same are `near`, from those and few.
///
/// # Errors
/// [`FitError`].
pub fn fits(
    curves: &[MeasuredCurve],
    premises: &Premises,
    near: Option<&Fits>,
) -> Result<Fits, FitError> {
    check(curves)?;
    let problem = Problem { curves, premises };
    let readings: usize = curves.iter().map(|of| of.readings.len()).sum();
    let (can, not_tried): (Vec<Form>, Vec<Form>) = Form::all()
        .into_iter()
        .partition(|of| of.parameters().len() + FREEDOM_MIN <= readings);
    if can.is_empty() {
        return Err(FitError::TooFew {
            readings,
            parameters: 2,
        });
    }
    let mut tried: Vec<Fit> = can
        .into_iter()
        .map(|form| {
            let before = near.and_then(|near| {
                let same = |of: &&Fit| of.form.without_delay() == form.without_delay();
                near.tried.iter().find(same).map(|of| of.values)
            });
            fit_shown(&problem, form, readings, before)
        })
        .collect();
    tried.sort_by(|one, other| {
        (other.shown.cmp(&one.shown)).then(one.criterion.total_cmp(&other.criterion))
    });
    let least = tried[0].criterion;
    if !tried[0].shown {
        let closest = tried
            .iter()
            .min_by(|one, other| one.error.total_cmp(&other.error));
        return Err(FitError::Unidentified {
            condition: closest.map_or(f64::INFINITY, |of| of.condition),
        });
    }
    let likely = |of: &Fit| match of.shown {
        true => (-0.5 * (of.criterion - least)).exp(),
        false => 0.0,
    };
    let all: f64 = tried.iter().map(likely).sum();
    let weights: Vec<f64> = (tried.iter())
        .map(|of| Some(likely(of)).filter(|weight| *weight >= WEIGHT_MIN * all))
        .map(Option::unwrap_or_default)
        .collect();
    let kept: f64 = weights.iter().sum();
    for (of, weight) in tried.iter_mut().zip(weights) {
        of.weight = weight / kept;
    }
    Ok(Fits { tried, not_tried })
}

/// A form with its delay; where the readings show all of it but that, the same stations without. A delay near 0 has no logarithm to be known, so that the form that is
/// so would be none for the one thing it has not got.
fn fit_shown(problem: &Problem<'_>, form: Form, readings: usize, before: Option<Values>) -> Fit {
    let emphases = match before {
        Some(_) => Emphases::None,
        None => Emphases::Each,
    };
    let with = fit(problem, form, readings, before, emphases);
    if !with.lacks_only_delay() {
        return with;
    }
    // It is weighed against others, so that it is looked for in as many places.
    let form = with.form.without_delay();
    let without = fit(problem, form, readings, Some(with.values), emphases);
    if without.shown { without } else { with }
}

/// Whether searches start also with each station in turn nearer to binding than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Emphases {
    None,
    Each,
}

fn fit(
    problem: &Problem<'_>,
    form: Form,
    readings: usize,
    before: Option<Values>,
    emphases: Emphases,
) -> Fit {
    let free = form.parameters();
    let (values, squares) = best(problem, &form, &free, before, emphases);
    let residuals = problem.residuals(&values);
    let rows = problem.derivatives(&values, &free, &residuals);
    let normal = normal_matrix(&rows, free.len());
    let covariance = covariance(&normal, squares, readings);
    let found: Vec<(Parameter, f64)> = free
        .iter()
        .enumerate()
        .map(|(at, &parameter)| (parameter, covariance[at][at].abs().sqrt()))
        .collect();
    let eigenvalues = matrix::eigenvalues(&normal);
    let condition = match (eigenvalues.first(), eigenvalues.last()) {
        (Some(least), Some(most)) => most / least.max(f64::MIN_POSITIVE),
        _ => f64::INFINITY,
    };
    // The variance is estimated as well.
    let (count, estimated) = (readings as f64, free.len() as f64 + 1.0);
    let variance = (squares / count).max(ERROR_MIN * ERROR_MIN);
    let criterion = count * variance.ln()
        + 2.0 * estimated
        + 2.0 * estimated * (estimated + 1.0) / (count - estimated - 1.0);
    Fit {
        form,
        values,
        shown: found
            .iter()
            .all(|(_, deviation)| *deviation <= DEVIATION_MAX),
        found,
        error: (squares / count).sqrt(),
        readings,
        condition,
        residuals,
        covariance,
        criterion,
        weight: 0.0,
    }
}

pub(super) fn check(curves: &[MeasuredCurve]) -> Result<(), FitError> {
    if curves.is_empty() {
        return Err(FitError::Nothing);
    }
    for (at, curve) in curves.iter().enumerate() {
        for before in &curves[..at] {
            if let Some(difference) = before.asked.differs(&curve.asked) {
                return Err(FitError::Unlike {
                    one: before.place().to_owned(),
                    other: curve.place().to_owned(),
                    difference,
                });
            }
        }
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
            link,
        } = curve.configuration;
        if link == Some(0) {
            return wrong("a link carries 1 byte a second at least");
        }
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

/// The best of searches from several starts: every station near to binding, and, with emphases, each in turn more than the others; with few and with
/// many queues of a host.
fn best(
    problem: &Problem<'_>,
    form: &Form,
    free: &[Parameter],
    before: Option<Values>,
    emphases: Emphases,
) -> (Values, f64) {
    let least_latency = (problem.curves.iter())
        .flat_map(|curve| &curve.readings)
        .map(|of| of.in_flight / of.rate)
        .fold(f64::INFINITY, f64::min);
    let start = |most: Option<Parameter>, queues: f64| {
        let mut values = Values {
            hosts: form.hosts,
            storage: form.storage,
            ..Values::none()
        };
        if form.delay {
            values.set(Parameter::Delay, 0.5 * least_latency);
        }
        if free.contains(&Parameter::HostQueues) {
            values.set(Parameter::HostQueues, queues);
        }
        for &station in &form.stations {
            let near = match most {
                Some(of) if of == station => 0.9,
                Some(_) => 0.3,
                None => 0.7,
            };
            let demand = near * demand_that_binds(problem, &values, station);
            let (least, most) = problem.limits(station);
            values.set(station, demand.clamp(least.exp(), most.exp()));
        }
        values
    };
    let queues: &[f64] = match free.contains(&Parameter::HostQueues) {
        true => &QUEUES_AT_FIRST,
        false => &[1.0],
    };
    let emphases: Vec<Option<Parameter>> = match form.stations.as_slice() {
        _ if emphases == Emphases::None => vec![None],
        [_] => vec![None],
        several => std::iter::once(None)
            .chain(several.iter().copied().map(Some))
            .collect(),
    };
    let starts = emphases
        .iter()
        .flat_map(|&most| queues.iter().map(move |&of| (most, of)));
    let starts = starts.map(|(most, queues)| start(most, queues));
    let before = before.map(|mut of| {
        match (form.delay, of.get(Parameter::Delay)) {
            (false, _) => of.set(Parameter::Delay, 0.0),
            // Nothing has no logarithm to start from.
            (true, 0.0) => of.set(Parameter::Delay, 0.5 * least_latency),
            (true, _) => {}
        }
        of
    });
    let mut searched: Vec<(Values, f64)> = (before.into_iter().chain(starts))
        .map(|start| problem.search(&start, free, STEPS_AT_FIRST))
        .collect();
    searched.sort_by(|one, other| one.1.total_cmp(&other.1));
    (searched.iter().take(SEARCHES_KEPT))
        .map(|(values, _)| problem.search(values, free, STEPS_MAX))
        .min_by(|one, other| one.1.total_cmp(&other.1))
        .expect("there is a start")
}

/// The demand with which a station alone would bind one of the curves and none sooner.
fn demand_that_binds(problem: &Problem<'_>, of: &Values, station: Parameter) -> f64 {
    let mut values = Values {
        hosts: of.hosts,
        storage: of.storage,
        ..Values::none()
    };
    values.set(Parameter::HostQueues, of.get(Parameter::HostQueues));
    values.set(station, 1.0);
    let demand = |curve: &MeasuredCurve| {
        network(&values, &curve.configuration, problem.premises).capacity() / curve.peak()
    };
    (problem.curves.iter().map(demand)).fold(f64::INFINITY, f64::min)
}

fn covariance(normal: &[Vec<f64>], squares: f64, readings: usize) -> Vec<Vec<f64>> {
    let size = normal.len();
    let mut normal = normal.to_vec();
    for (at, row) in normal.iter_mut().enumerate() {
        row[at] += RIDGE;
    }
    let freedom = readings.saturating_sub(size).max(1) as f64;
    // A perfect fit is still no surer than readings are.
    let variance = (squares / freedom).max(ERROR_MIN * ERROR_MIN);
    let infinite = || vec![vec![f64::INFINITY; size]; size];
    matrix::inverse(&normal).map_or_else(infinite, |inverse| {
        inverse
            .into_iter()
            .map(|row| row.into_iter().map(|of| of * variance).collect())
            .collect()
    })
}

/// What might as well be so.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Parameters of one of the forms.
    pub values: Values,
    /// By how many deviations a curve of its own differs from the model: of Student's distribution.
    pub apart: f64,
}

/// Draws from what the fits leave open: a form by its weight, its parameters' logarithms by their covariance, and how far a curve lies from the model, by
/// Student's distribution with so many degrees of freedom. The same seed draws the same. A draw is none where the covariance is no covariance.
#[must_use]
pub fn draws(
    fits: &Fits,
    premises: &Premises,
    count: u32,
    freedom: u32,
    seed: u64,
) -> Vec<Option<Draw>> {
    let mut random = Random::new(seed);
    let factors: Vec<(&Fit, Option<Vec<Vec<f64>>>)> = fits
        .weighed()
        .map(|of| (of, matrix::cholesky(&of.covariance)))
        .collect();
    (0..count)
        .map(|_| {
            let mut left = random.unit_above_zero();
            let chosen = factors.iter().find(|(of, _)| {
                left -= of.weight;
                left <= 0.0
            });
            let (of, factor) = chosen.or(factors.last())?;
            let normals: Vec<f64> = of.found.iter().map(|_| normal(&mut random)).collect();
            let squares: f64 = (0..freedom).map(|_| normal(&mut random).powi(2)).sum();
            let apart = normal(&mut random) / (squares / f64::from(freedom)).sqrt();
            let mut values = of.values;
            for ((parameter, _), row) in of.found.iter().zip(factor.as_ref()?) {
                let moved: f64 = row.iter().zip(&normals).map(|(one, two)| one * two).sum();
                values.set(*parameter, values.get(*parameter) * moved.exp());
            }
            let storage = values.get(Parameter::Storage);
            values.set(
                Parameter::Storage,
                storage.min(premises.storage_seconds_max),
            );
            Some(Draw { values, apart })
        })
        .collect()
}

/// Of the standard normal distribution (Box and Muller 1958).
pub(super) fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * random.unit_above_zero().ln()).sqrt();
    radius * (std::f64::consts::TAU * random.unit_above_zero()).cos()
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
