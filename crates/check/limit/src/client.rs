//! The bare client: keeps so many requests outstanding on each connection, and counts answers.
//!
//! It knows nothing of the data. Latency is measured where one request is outstanding in all.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::engine::{self, Side, Waiting};
use crate::flow::Flow;
use crate::processor;
use crate::work::Work;

/// Requests outstanding on one connection at most. What they take on the way out always fits the sockets' buffers when answers
/// are long, so that the two ends never wait for one another.
pub const DEPTH_MAX: u64 = 1024;

/// When a client ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// After so long; what is outstanding then is waited for.
    Elapsed(Duration),
    /// After so many operations in all.
    Operations(u64),
}

/// What load to make.
#[derive(Debug, Clone)]
pub struct ClientConfig {
    /// The server.
    pub address: SocketAddr,
    /// Which requests, and which answers; the server's must be the same.
    pub work: Work,
    /// How many connections, at least 1; the server's number must be the same.
    pub connections: usize,
    /// Requests outstanding on each, 1 to [`DEPTH_MAX`].
    pub depth: u64,
    /// When to end.
    pub until: Until,
    /// Ask for answers all the time instead of sleeping.
    pub spin: bool,
}

/// What the load was.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Requests that were answered.
    pub operations: u64,
    /// Seconds from the first request to the last answer.
    pub elapsed_seconds: f64,
    /// Processor seconds of this process in that time.
    pub processor_seconds: f64,
    /// Microseconds from a request to its answer; with one request outstanding in all only.
    pub latency_us: Option<Latency>,
}

/// Latency, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// 99 of 100 took no longer.
    pub p99: f64,
}

/// Latencies of requests that go one at a time.
struct Timed {
    sent: Instant,
    histogram: Histogram<u64>,
}

struct Asking {
    until: Until,
    began: Instant,
    issued: u64,
    answered: u64,
    timed: Option<Timed>,
}

impl Asking {
    /// How many of `wish` requests may be sent.
    fn issue(&mut self, wish: u64, now: Instant) -> u64 {
        let granted = match self.until {
            Until::Elapsed(duration) if now - self.began >= duration => 0,
            Until::Elapsed(_) => wish,
            Until::Operations(operations) => wish.min(operations - self.issued),
        };
        self.issued += granted;
        granted
    }
}

impl Side for Asking {
    fn answer(&mut self, units: u64) -> u64 {
        let now = Instant::now();
        self.answered += units;
        assert!(self.answered <= self.issued, "every answer has its request");
        if let Some(timed) = self.timed.as_mut().filter(|_| units > 0) {
            timed
                .histogram
                .saturating_record((now - timed.sent).as_nanos() as u64);
            timed.sent = now;
        }
        self.issue(units, now)
    }

    fn is_done(&self) -> bool {
        self.answered == self.issued
    }

    fn closed(&mut self) -> io::Result<()> {
        Err(io::Error::new(
            ErrorKind::UnexpectedEof,
            "the server closed a connection with requests outstanding",
        ))
    }
}

/// Makes the load.
///
/// # Errors
/// A connection could not be made, or failed.
pub fn drive(config: &ClientConfig) -> io::Result<ClientReport> {
    assert!(config.connections > 0, "somebody is to ask");
    assert!(
        (1..=DEPTH_MAX).contains(&config.depth),
        "a depth has a bound"
    );
    let mut flows = Vec::with_capacity(config.connections);
    for _ in 0..config.connections {
        let stream = TcpStream::connect(config.address)?;
        let (incoming, outgoing) = (config.work.answer_bytes(), config.work.request_bytes());
        flows.push(Flow::new(stream, incoming, outgoing)?);
    }
    let (began, processor_began) = (Instant::now(), processor::own_time());
    let alone = config.connections == 1 && config.depth == 1;
    let mut side = Asking {
        until: config.until,
        began,
        issued: 0,
        answered: 0,
        timed: alone.then(|| Timed {
            sent: began,
            histogram: histogram(),
        }),
    };
    for flow in &mut flows {
        flow.owe(side.issue(config.depth, began));
    }
    let waiting = Waiting::of(flows.len(), config.spin);
    engine::run(&mut flows, waiting, &mut side)?;
    Ok(ClientReport {
        operations: side.answered,
        elapsed_seconds: began.elapsed().as_secs_f64(),
        processor_seconds: (processor::own_time() - processor_began).as_secs_f64(),
        latency_us: side.timed.map(|timed| Latency::of(&timed.histogram)),
    })
}

/// Of nanoseconds up to a minute, with three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .expect("the bounds of the histogram are constants that it takes")
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        Latency {
            mean: histogram.mean() / 1e3,
            p99: histogram.value_at_quantile(0.99) as f64 / 1e3,
        }
    }
}
