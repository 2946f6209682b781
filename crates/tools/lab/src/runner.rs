//! What curves and comparisons need of whoever makes the load.

use crate::document::{Load, Run};

/// A run that is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Of which of the compared things, by index; 0 where there is one.
    pub side: usize,
    /// What the run is to be called.
    pub name: String,
    /// How much load.
    pub load: Load,
    /// What the randomness starts from.
    pub seed: u64,
}

/// Makes load and measures it. What is asked for and for how long is its own matter, and the same in all runs.
pub trait Bench {
    /// Why there is no run.
    type Error: std::fmt::Display;

    /// Measures once.
    fn run(&mut self, request: &Request) -> impl Future<Output = Result<Run, Self::Error>>;

    /// Whether the user wants no further runs.
    fn is_stopped(&self) -> bool {
        false
    }
}

/// How far a curve or a comparison is.
#[derive(Debug)]
pub enum Step<'a> {
    /// A run begins.
    Begins {
        /// What it is called.
        name: &'a str,
        /// How many have ended.
        done: u32,
        /// How many there will be, as far as is known.
        planned: u32,
    },
    /// It ended.
    Ended {
        /// What came out.
        run: &'a Run,
    },
}

/// The load that one queue carries, so that outstanding requests are spread evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spread {
    /// Volumes that are driven at the same time.
    pub volumes: u32,
    /// Queues in all.
    pub queues: u32,
    /// Hosts that they are spread over.
    pub hosts: u32,
}

impl Spread {
    pub(crate) fn closed(self, depth: u32) -> Load {
        Load::Closed {
            depth,
            queues: self.queues,
            hosts: self.hosts,
        }
    }

    /// The nearest rate that can be offered: a whole number of requests a second, and one at least for each volume.
    pub(crate) fn rate(self, wanted: f64) -> f64 {
        wanted.round().max(f64::from(self.volumes.max(1)))
    }
}

/// Searching the highest throughput ends when twice as many requests in flight bring less than this more.
const GAIN_MIN: f64 = 1.03;
/// Requests in flight of each queue with which that search begins.
const DEPTH_FIRST: u32 = 8;

/// What a search for the highest throughput found.
pub(crate) struct Maximum {
    /// Requests a second.
    pub(crate) rate: f64,
    /// The least requests in flight of each queue that reach about as much.
    pub(crate) depth: u32,
    pub(crate) runs: Vec<Run>,
}

/// Runs that follow each other must not ask for the same blocks: later ones would find in a cache what earlier ones read. The low bits are left to the
/// volumes of a run, which begin at different numbers too.
pub(crate) fn seed_of_run(seed: u64, number: u64) -> u64 {
    seed.wrapping_add(number << 16)
}

/// More runs than any search for a maximum makes, which doubles a 32-bit depth.
pub(crate) const SEARCH_RUNS_MAX: u64 = 64;

/// Doubles the depth until that brings nothing more, or the depth is `depth_max`.
pub(crate) async fn find_maximum<B: Bench>(
    bench: &mut B,
    side: usize,
    spread: Spread,
    depth_max: u32,
    seed: u64,
    mut observe: impl FnMut(Step<'_>),
) -> Result<Maximum, B::Error> {
    let mut found = Maximum {
        rate: 0.0,
        depth: DEPTH_FIRST.min(depth_max),
        runs: Vec::new(),
    };
    let mut depth = found.depth;
    loop {
        let request = Request {
            side,
            name: format!("maximum, depth {depth}"),
            load: spread.closed(depth),
            seed: seed_of_run(seed, found.runs.len() as u64),
        };
        observe(Step::Begins {
            name: &request.name,
            done: 0,
            planned: 0,
        });
        let run = bench.run(&request).await?;
        observe(Step::Ended { run: &run });
        let rate = run.rate();
        found.runs.push(run);
        let gained = rate >= GAIN_MIN * found.rate;
        if gained {
            found.depth = depth;
        }
        found.rate = found.rate.max(rate);
        if !gained || depth >= depth_max || bench.is_stopped() {
            return Ok(found);
        }
        depth = (depth * 2).min(depth_max);
    }
}
