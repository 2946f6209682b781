//! How much load, when, and for how long.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Geometry, Volume};

use crate::Stop;
use crate::lane::LaneError;
use crate::plan::PlanError;
use crate::workload::{ApartError, Workload, WorkloadError, own_blocks};

/// The length of an interval where nothing else is asked for.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// The most intervals that a run has.
pub const INTERVALS_MAX: u128 = 200_000;
/// The most requests a second that can be offered: arrivals are nanoseconds apart, at the least.
pub const RATE_MAX: u64 = 1_000_000_000;

/// What load to make on one volume.
#[derive(Debug, Clone)]
pub struct BenchConfig {
    /// Which requests.
    pub workload: Workload,
    /// How many, and when.
    pub load: Load,
    /// Queues, spread evenly over the reactors.
    pub queues: u32,
    /// Which these are of the queues of several machines; none where this one makes all of the load.
    pub among: Option<Among>,
    /// For how long it is measured.
    pub duration: Duration,
    /// For how long it runs before that, unmeasured.
    pub ramp: Duration,
    /// The length of the intervals that a report has ([`INTERVAL`] mostly). At most [`INTERVALS_MAX`] of them.
    pub interval: Duration,
    /// What the randomness starts from. The same seed makes the same requests, and open-loop at the same times.
    pub seed: u64,
    /// Ends the run early.
    pub stop: Stop,
}

/// The queues of one machine among those of several that make one load: their requests, and when these are due, are those of a machine that has all of
/// these queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Among {
    /// Queues that stand before the first of this machine.
    pub before: u32,
    /// Queues of all machines.
    pub queues: u32,
    /// Whether each machine has blocks of its own, to which no other one's requests go ([`crate::workload::own_blocks`]); otherwise those of all go to the same ones.
    /// All machines have as many queues then.
    pub apart: bool,
}

impl BenchConfig {
    /// The queues of all machines that make this load, and which of them the first one here is.
    #[must_use]
    pub fn among(&self) -> Among {
        self.among.unwrap_or(Among {
            before: 0,
            queues: self.queues,
            apart: false,
        })
    }

    /// The blocks of a volume that this machine's requests go to.
    ///
    /// # Errors
    /// [`ApartError`], where machines are to have blocks of their own and cannot.
    pub fn own_blocks(&self, geometry: &Geometry) -> Result<Range<u64>, ApartError> {
        let among = self.among();
        let queues = self.queues.max(1);
        let (machine, machines) = match among.apart {
            true => (among.before / queues, among.queues.div_ceil(queues)),
            false => (0, 1),
        };
        own_blocks(&self.workload, geometry, machine, machines)
    }
}

/// How many requests, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Closed loop: as many in flight on each queue as this, always.
    Closed {
        /// Requests in flight per queue.
        depth: u32,
    },
    /// Open loop: offered at times that are fixed by the seed before the run, whatever becomes of them.
    Open {
        /// Requests per second, of all queues together; those of other machines too, where there are some.
        rate: u64,
        /// How they are spread over time.
        arrivals: Arrivals,
        /// Requests in flight per queue at most; what is due beyond them waits.
        depth_max: u32,
    },
}

impl Load {
    /// Requests that are in flight on each queue at most.
    #[must_use]
    pub fn depth(&self) -> u32 {
        match *self {
            Load::Closed { depth } => depth,
            Load::Open { depth_max, .. } => depth_max,
        }
    }

    /// Requests offered per second; none closed-loop.
    #[must_use]
    pub fn rate(&self) -> Option<u64> {
        match *self {
            Load::Closed { .. } => None,
            Load::Open { rate, .. } => Some(rate),
        }
    }
}

/// How the requests of an open loop are spread over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Arrivals {
    /// Evenly.
    #[default]
    Uniform,
    /// As those of many independent users are: a Poisson process, exponential times between two.
    Exponential,
}

impl Arrivals {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Arrivals::Uniform => "uniform",
            Arrivals::Exponential => "exponential",
        }
    }
}

/// Load on one volume, beside other jobs.
#[derive(Clone)]
pub struct Job {
    /// What its report is called.
    pub name: String,
    /// The volume, once for each host that it is seen by. Of one size. The queues are spread over them.
    pub volumes: Vec<Arc<dyn Volume>>,
    /// What to do with it.
    pub config: BenchConfig,
}

/// Jobs that run side by side; the next phase begins when all of them are done.
#[derive(Clone)]
pub struct Phase {
    /// What it is called.
    pub name: String,
    /// At least one.
    pub jobs: Vec<Job>,
}

/// Why there was no measurement.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BenchError {
    /// The workload makes no sense.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The volume cannot do what was asked for.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// More requests a second than arrivals can be told apart.
    #[error(
        "{rate} requests a second cannot be offered; at most {RATE_MAX} can, one each nanosecond"
    )]
    Rate {
        /// What was asked for.
        rate: u64,
    },
    /// A place that is not among all queues.
    #[error("{queues} queues behind {} others are more than {} queues of all machines", among.before, among.queues)]
    Among {
        /// What was asked for.
        among: Among,
        /// Queues of this machine.
        queues: u32,
    },
    /// Machines cannot have blocks of their own.
    #[error(transparent)]
    Apart(#[from] ApartError),
    /// More intervals than are kept.
    #[error(
        "{duration:?} in intervals of {interval:?} are more than {INTERVALS_MAX} intervals; intervals of {least:?} or longer are possible"
    )]
    Intervals {
        /// The time that is measured.
        duration: Duration,
        /// The length that was asked for.
        interval: Duration,
        /// The shortest that is possible.
        least: Duration,
    },
    /// Part of the work failed as a whole.
    #[error(transparent)]
    Lane(#[from] LaneError),
}

/// How a run goes on: what happened on one volume since the last report.
#[derive(Debug, Clone)]
pub struct BenchProgress {
    /// Which job, by its place among them; 0 where there is one.
    pub job: usize,
    /// Since the start of the ramp.
    pub elapsed: Duration,
    /// Ramp and duration together.
    pub total: Duration,
    /// Whether this is still the ramp.
    pub ramping: bool,
    /// Since the last report.
    pub interval: Duration,
    /// Requests that completed in it.
    pub requests: u64,
    /// Bytes that they read and wrote.
    pub bytes: u64,
    /// Failures in it.
    pub errors: u64,
    /// Intervals of the measured time that have ended since the last report, with their latencies.
    pub intervals: Vec<super::Interval>,
}
