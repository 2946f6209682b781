//! Drives a curve: the same work under more and more load, and what the points say together.
//!
//! By depth, closed loop, or by rate, open loop, as parts of a maximum that a closed loop finds first. Afterwards points are added where the knee and the
//! objectives are, until they are known to 2%. Points there at which the generator was late are measured again: the machine that it ran on was not there
//! on time, which says nothing of the volume. It measures nothing itself: see [`Bench`].

use crate::document;
use crate::document::{
    Arrivals, Axis, Curve, Failure, Knee, Latency, LatencyError, LeftOut, Load, Point, Run,
};
use crate::runner::{Bench, Request, Spread, Step, find_maximum, seed_of_run};
use crate::secret;
use crate::statistics::{Objective, Sample, attained, knee, past_saturation};

/// Points that are added to find the knee, or one objective, more exactly.
const REFINEMENTS_MAX: u32 = 6;
/// Points that are measured again for one finding because the generator was late, and how often one of them is.
const REPEATS_MAX: u32 = 6;
const REPEATS_OF_POINT_MAX: usize = 2;
/// A generator was late where that may have lengthened the mean latency by more than this part.
const LATE: f64 = 0.02;
/// Two points are close enough when their loads differ by this part of the higher one.
const CLOSE: f64 = 0.02;
/// Points beyond saturation: so much more in flight than at the knee, or offered so much more than the maximum.
const BEYOND_KNEE: f64 = 1.25;
const BEYOND_MAXIMUM: f64 = 1.02;
/// A point is saturated where less than this part of what was due ended in time.
const SUSTAINED: f64 = 0.95;

/// What to raise.
#[derive(Debug, Clone, PartialEq)]
pub enum Steps {
    /// Requests in flight of each queue, ascending.
    Depths(Vec<u32>),
    /// Requests offered per second.
    Rates {
        /// In hundredths of the maximum, ascending.
        percents: Vec<f64>,
        /// How arrivals are spread.
        arrivals: Arrivals,
        /// Requests in flight of each queue at most.
        depth_max: u32,
        /// The maximum, in requests a second; looked for where none.
        maximum: Option<f64>,
    },
}

/// What curve to measure.
#[derive(Debug, Clone, PartialEq)]
pub struct CurveConfig {
    /// Of which of what the [`Bench`] measures it is, by index; 0 where there is one.
    pub side: usize,
    /// What is raised.
    pub steps: Steps,
    /// Over what the load is spread.
    pub spread: Spread,
    /// The first point that breaks this is the last.
    pub bound: Option<Objective>,
    /// What is to be found the highest rate of.
    pub objectives: Vec<Objective>,
    /// Whether points are added where the knee and the objectives are.
    pub refine: bool,
    /// What the randomness starts from.
    pub seed: u64,
}

/// Why there is no curve.
#[derive(Debug, thiserror::Error)]
pub enum CurveError<E> {
    /// There was no run.
    #[error(transparent)]
    Run(E),
    /// What a run measured cannot be read.
    #[error(transparent)]
    Latency(#[from] LatencyError),
    /// Nothing ended in a run, so that there is nothing to show.
    #[error("no request succeeded at {point}{}", first_error.as_ref().map_or(String::new(), |error| format!(": {error}")))]
    Nothing {
        /// The run's name.
        point: String,
        /// The first error of the run.
        first_error: Option<String>,
    },
}

/// Measures a curve. A point that cannot be measured ends it; those before it are kept.
///
/// # Errors
/// [`CurveError`].
///
/// # Panics
/// Where there are no steps.
pub async fn measure<B: Bench>(
    bench: &mut B,
    config: &CurveConfig,
    observe: impl FnMut(Step<'_>),
) -> Result<Curve, CurveError<B::Error>> {
    let mut explorer = Explorer {
        bench,
        config,
        observe,
        maximum: 0.0,
        maximum_runs: Vec::new(),
        points: Vec::new(),
        failures: Vec::new(),
        repeats: 0,
        repeats_left: 0,
        planned: 0,
    };
    let stopped = explorer.sweep().await?;
    if config.refine && explorer.may_go_on() {
        explorer.refine().await?;
    }
    explorer.curve(stopped)
}

struct Explorer<'a, B, O> {
    bench: &'a mut B,
    config: &'a CurveConfig,
    observe: O,
    maximum: f64,
    maximum_runs: Vec<Run>,
    points: Vec<Measured>,
    failures: Vec<Failure>,
    /// Runs that were of a load that had been measured before, and how many more there may be for what is looked for now.
    repeats: u32,
    repeats_left: u32,
    planned: u32,
}

/// What to measure next.
enum Next {
    /// A load that has no point yet.
    New(f64),
    /// The load of the point of this index, again.
    Again(usize),
}

struct Measured {
    point: Point,
    /// None where nothing succeeded.
    sample: Option<Sample>,
    /// What each objective bounds here.
    objectives: Vec<f64>,
}

impl<B: Bench, O: FnMut(Step<'_>)> Explorer<'_, B, O> {
    /// Measures what was asked for; says why it ended.
    async fn sweep(&mut self) -> Result<String, CurveError<B::Error>> {
        let loads = self.loads().await?;
        assert!(!loads.is_empty(), "a curve needs steps");
        self.planned = loads.len() as u32;
        for offered in loads {
            if self.bench.is_stopped() {
                return Ok("it was asked to end".to_owned());
            }
            let at = self.add(offered, false).await?;
            if let Some(failure) = self.failures.last() {
                return Ok(format!("{} could not be measured", failure.point));
            }
            let (Some(at), Some(bound)) = (at, &self.config.bound) else {
                continue;
            };
            self.repeats_left = REPEATS_MAX;
            loop {
                let run = &self.points[at].point.run;
                if bound.holds(value_of(bound, run, run.felt()?.as_ref())?) {
                    break;
                }
                if !self.config.refine || !self.may_go_on() || !self.is_to_be_repeated(at) {
                    return Ok(format!("{} does not hold {bound}", run.name));
                }
                self.repeat(at).await?;
            }
        }
        Ok(match self.bench.is_stopped() {
            true => "it was asked to end".to_owned(),
            false => "all that was asked for was measured".to_owned(),
        })
    }

    fn may_go_on(&self) -> bool {
        self.failures.is_empty() && !self.bench.is_stopped()
    }

    /// The loads of the sweep, as [`Point::offered`] has them.
    async fn loads(&mut self) -> Result<Vec<f64>, CurveError<B::Error>> {
        match &self.config.steps {
            Steps::Depths(depths) => Ok(depths
                .iter()
                .map(|&depth| f64::from(depth) * f64::from(self.config.spread.queues))
                .collect()),
            Steps::Rates {
                percents,
                depth_max,
                maximum,
                ..
            } => {
                self.maximum = match *maximum {
                    Some(maximum) => maximum,
                    None => self.look_for_maximum(*depth_max).await?,
                };
                let mut rates: Vec<f64> = percents
                    .iter()
                    .map(|percent| self.config.spread.rate(self.maximum * percent / 100.0))
                    .collect();
                rates.dedup();
                Ok(rates)
            }
        }
    }

    async fn look_for_maximum(&mut self, depth_max: u32) -> Result<f64, CurveError<B::Error>> {
        let (spread, seed) = (self.config.spread, self.config.seed);
        let side = self.config.side;
        let found = find_maximum(self.bench, side, spread, depth_max, seed, &mut self.observe)
            .await
            .map_err(CurveError::Run)?;
        self.maximum_runs = found.runs;
        if found.rate > 0.0 {
            return Ok(found.rate);
        }
        let last = self.maximum_runs.last();
        Err(CurveError::Nothing {
            point: last.map_or(String::new(), |run| run.name.clone()),
            first_error: last.and_then(|run| run.first_error.clone()),
        })
    }

    fn axis(&self) -> Axis {
        match self.config.steps {
            Steps::Depths(_) => Axis::Depth,
            Steps::Rates { .. } => Axis::Rate,
        }
    }

    fn request(&self, offered: f64) -> Request {
        let Spread { queues, hosts, .. } = self.config.spread;
        let runs = self.maximum_runs.len()
            + self.points.len()
            + self.failures.len()
            + self.repeats as usize;
        let (name, load) = match self.config.steps {
            Steps::Depths(_) => {
                let depth = (offered / f64::from(queues)) as u32;
                (format!("depth {depth}"), self.config.spread.closed(depth))
            }
            Steps::Rates {
                arrivals,
                depth_max,
                ..
            } => {
                let percent = offered / self.maximum * 100.0;
                let load = Load::Open {
                    rate: offered,
                    arrivals,
                    depth_max,
                    queues,
                    hosts,
                };
                (format!("{}%", (percent * 10.0).round() / 10.0), load)
            }
        };
        Request {
            side: self.config.side,
            name,
            load,
            seed: seed_of_run(self.config.seed, runs as u64),
        }
    }

    /// Measures a point and puts it in its place, which is returned; none where there is nothing to be put anywhere.
    async fn add(
        &mut self,
        offered: f64,
        refinement: bool,
    ) -> Result<Option<usize>, CurveError<B::Error>> {
        let request = self.request(offered);
        let run = match self.run(&request).await {
            Ok(run) => run,
            // With nothing measured before there is no curve.
            Err(error) if self.points.is_empty() => return Err(CurveError::Run(error)),
            // It was asked to end while the run was being prepared.
            Err(_) if self.bench.is_stopped() => return Ok(None),
            Err(error) => {
                self.fail(request.name, offered, error.to_string());
                return Ok(None);
            }
        };
        let latency = run.felt()?;
        if latency.is_none() {
            if self.points.is_empty() {
                return Err(CurveError::Nothing {
                    point: run.name,
                    first_error: run.first_error,
                });
            }
            // A run that was cut short says nothing.
            if self.bench.is_stopped() {
                return Ok(None);
            }
            let error = run.first_error.clone();
            let why = error.map_or(String::new(), |error| format!(": {error}"));
            self.fail(
                run.name.clone(),
                offered,
                format!("no request succeeded{why}"),
            );
        }
        let measured = self.measured(Point {
            offered,
            percent_of_maximum: (self.axis() == Axis::Rate).then(|| offered / self.maximum * 100.0),
            refinement,
            run,
            left_out: Vec::new(),
        })?;
        let at = self
            .points
            .partition_point(|other| other.point.offered < offered);
        self.points.insert(at, measured);
        Ok(Some(at))
    }

    /// Measures once, and tells the observer.
    async fn run(&mut self, request: &Request) -> Result<Run, B::Error> {
        let done = self.points.len() as u32 + self.repeats;
        self.planned = self.planned.max(done + 1);
        (self.observe)(Step::Begins {
            name: &request.name,
            done,
            planned: self.planned,
        });
        let run = self.bench.run(request).await?;
        (self.observe)(Step::Ended { run: &run });
        Ok(run)
    }

    /// What a point says to what is looked for.
    fn measured(&self, point: Point) -> Result<Measured, LatencyError> {
        let run = &point.run;
        let latency = run.felt()?;
        let rate = run.rate();
        let sample = latency.as_ref().map(|latency| Sample {
            outstanding: match self.axis() {
                Axis::Depth => point.offered,
                Axis::Rate => rate * latency.mean_ns / 1e9,
            },
            rate,
            latency_ns: latency.mean_ns,
        });
        let objectives = self.config.objectives.iter();
        Ok(Measured {
            sample,
            objectives: objectives
                .map(|objective| value_of(objective, run, latency.as_ref()))
                .collect::<Result<_, _>>()?,
            point,
        })
    }

    /// Measures a point again. The run in which the generator was less late stays, whatever else it says; one in which more failed, or nothing
    /// succeeded, is no better. One that comes to nothing ends the curve as that of a new point does, and the point stays as it was.
    async fn repeat(&mut self, at: usize) -> Result<(), CurveError<B::Error>> {
        let shown = &self.points[at].point;
        let offered = shown.offered;
        let mut request = self.request(offered);
        request.name += &format!(", run {}", shown.left_out.len() + 2);
        let again = self.run(&request).await;
        self.repeats += 1;
        self.repeats_left = self.repeats_left.saturating_sub(1);
        let run = match again {
            // A run that was cut short says nothing.
            _ if self.bench.is_stopped() => return Ok(()),
            Ok(run) => run,
            Err(error) => {
                self.fail(request.name, offered, error.to_string());
                return Ok(());
            }
        };
        let mut point = self.points[at].point.clone();
        let is_better = late_ns_max(&run) < late_ns_max(&point.run)
            && run.errors() <= point.run.errors()
            && run.felt()?.is_some();
        let left_out = match is_better {
            true => std::mem::replace(&mut point.run, run),
            false => run,
        };
        point.left_out.push(LeftOut {
            seed: left_out.seed,
            late_ns_max: late_ns_max(&left_out),
            errors: left_out.errors(),
            rate: left_out.rate(),
            mean_ns: left_out.felt()?.map(|latency| latency.mean_ns),
        });
        self.points[at] = self.measured(point)?;
        Ok(())
    }

    fn fail(&mut self, point: String, offered: f64, reason: String) {
        self.failures.push(Failure {
            point,
            offered,
            reason: secret::without_in_text(&reason),
        });
    }

    /// Adds points where the knee and the objectives are.
    async fn refine(&mut self) -> Result<(), CurveError<B::Error>> {
        self.approach(Self::next_for_knee).await?;
        for index in 0..self.config.objectives.len() {
            self.approach(|explorer| explorer.next_for_objective(index))
                .await?;
        }
        Ok(())
    }

    /// Measures what `next` asks for, until that is nothing or enough was measured.
    async fn approach(
        &mut self,
        next: impl Fn(&Self) -> Option<Next>,
    ) -> Result<(), CurveError<B::Error>> {
        let mut added = 0;
        self.repeats_left = REPEATS_MAX;
        while self.may_go_on() {
            match next(self) {
                Some(Next::Again(at)) => self.repeat(at).await?,
                Some(Next::New(offered)) if added < REFINEMENTS_MAX => {
                    added += 1;
                    self.add(offered, true).await?;
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// What to measure next for the knee's sake. By depth that is the knee itself; by rate the middle of the points about it.
    fn next_for_knee(&self) -> Option<Next> {
        let knee = self.knee()?;
        let above = self
            .points
            .iter()
            .position(|of| (of.sample).is_some_and(|of| of.outstanding >= knee.outstanding))?;
        match self.axis() {
            Axis::Depth => {
                let offered = self.whole_load(knee.outstanding);
                self.is_new(offered).then_some(Next::New(offered))
            }
            Axis::Rate => self.between(above),
        }
    }

    fn next_for_objective(&self, index: usize) -> Option<Next> {
        let objective = &self.config.objectives[index];
        let broken = self
            .points
            .iter()
            .position(|of| !objective.holds(of.objectives[index]))?;
        self.between(broken)
    }

    /// What to measure between a point and the one before it: these again where the generator was late, and else a load between them; nothing where they
    /// are close, or there is no such load.
    fn between(&self, above: usize) -> Option<Next> {
        let below = above.checked_sub(1)?;
        let late = [below, above]
            .into_iter()
            .find(|&at| self.is_to_be_repeated(at));
        if let Some(at) = late {
            return Some(Next::Again(at));
        }
        let [low, high] = [below, above].map(|at| self.points[at].point.offered);
        if high - low <= CLOSE * high {
            return None;
        }
        let middle = self.whole_load((low + high) / 2.0);
        self.is_new(middle).then_some(Next::New(middle))
    }

    /// Whether the generator was so late that the point may say more of that than of the volume. What waited for room does not count: the volume was slow.
    ///
    /// What is due while the generator is away for a time L comes all at once behind it. That queue is gone when the volume has done it beside what
    /// is due meanwhile, in L × maximum / (maximum - rate), and the waiting of all of it, over all requests of a run of length T, is
    /// L² / 2T × maximum / (maximum - rate) each.
    fn is_to_be_repeated(&self, at: usize) -> bool {
        let Measured { point, sample, .. } = &self.points[at];
        let Some(sample) = sample else {
            return false;
        };
        if self.repeats_left == 0 || point.left_out.len() >= REPEATS_OF_POINT_MAX {
            return false;
        }
        let away = late_ns_max(&point.run) as f64 / 1e9;
        let length = point.run.elapsed_seconds;
        if away <= 0.0 || length <= 0.0 {
            return false;
        }
        let maximum = self.highest().max(self.maximum);
        let spare = 1.0 - point.offered / maximum;
        let drains_in = away / spare.max(f64::MIN_POSITIVE);
        let longer_by = away * drains_in.min(length) / (2.0 * length);
        longer_by > LATE * sample.latency_ns / 1e9
    }

    /// The nearest load that can be asked for.
    fn whole_load(&self, offered: f64) -> f64 {
        match self.axis() {
            Axis::Depth => {
                let queues = f64::from(self.config.spread.queues);
                (offered / queues).round().max(1.0) * queues
            }
            Axis::Rate => self.config.spread.rate(offered),
        }
    }

    fn is_new(&self, offered: f64) -> bool {
        self.points.iter().all(|of| of.point.offered != offered)
    }

    /// The highest rate of a point.
    fn highest(&self) -> f64 {
        let rates = self.points.iter().map(|of| of.point.run.rate());
        rates.fold(0.0, f64::max)
    }

    fn knee(&self) -> Option<Knee> {
        let samples: Vec<Sample> = self.points.iter().filter_map(|of| of.sample).collect();
        knee(&samples)
    }

    /// The points at which more was asked for than can be had, of a curve that showed how much that is.
    fn beyond(&self, knee: Option<&Knee>, highest: f64) -> &[Measured] {
        let saturated = |of: &Measured| match self.axis() {
            Axis::Depth => {
                knee.is_some_and(|knee| of.point.offered > BEYOND_KNEE * knee.outstanding)
            }
            // A maximum that was given may be too low, and one too high.
            Axis::Rate => {
                of.point.offered > BEYOND_MAXIMUM * self.maximum.min(highest)
                    && !is_sustained(&of.point.run)
            }
        };
        let first = self.points.iter().position(saturated);
        first.map_or(&[], |first| &self.points[first..])
    }

    fn curve(self, stopped: String) -> Result<Curve, CurveError<B::Error>> {
        let axis = self.axis();
        let knee = self.knee();
        let highest = self.highest();
        let beyond = self.beyond(knee.as_ref(), highest);
        let rates: Vec<f64> = beyond.iter().map(|of| of.point.run.rate()).collect();
        let errors = beyond.iter().map(|of| of.point.run.errors()).sum();
        let past_saturation = past_saturation(&rates, highest, errors);
        let objectives = self.objectives();
        Ok(Curve {
            name: String::new(),
            axis,
            maximum_rate: (axis == Axis::Rate).then_some(self.maximum),
            maximum_runs: self.maximum_runs,
            points: self.points.into_iter().map(|of| of.point).collect(),
            failures: self.failures,
            knee,
            objectives,
            past_saturation,
            stopped,
        })
    }

    fn objectives(&self) -> Vec<document::Objective> {
        let each = self.config.objectives.iter().enumerate();
        each.map(|(index, objective)| {
            let points: Vec<(f64, f64)> = self
                .points
                .iter()
                .map(|of| (of.point.run.rate(), of.objectives[index]))
                .collect();
            let found = attained(objective, &points);
            document::Objective {
                objective: objective.to_string(),
                rate: found.rate,
                value_ns: found.value_ns,
                broken_rate: found.broken_rate,
            }
        })
        .collect()
    }
}

/// By how much the generator was late at most; 0 of a closed load.
fn late_ns_max(run: &Run) -> u64 {
    run.late_ns_max.unwrap_or(0)
}

/// Whether about all that was due ended in time.
fn is_sustained(run: &Run) -> bool {
    let due = run.operations.requests() + run.errors() + run.unsent;
    run.rate() * run.elapsed_seconds >= SUSTAINED * due as f64
}

/// What an objective bounds of a run, in nanoseconds; infinite where nothing succeeded.
fn value_of(
    objective: &Objective,
    run: &Run,
    latency: Option<&Latency>,
) -> Result<f64, LatencyError> {
    let Some(latency) = latency else {
        return Ok(f64::INFINITY);
    };
    let (answered, missing) = (run.operations.requests(), run.errors() + run.unsent);
    objective.value_ns(latency, answered, missing)
}

#[cfg(test)]
mod tests;
