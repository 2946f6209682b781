//! What tests measure: devices whose truth is known, in computed time, and the randomness that they and the statistics' tests need.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use hdrhistogram::Histogram;

use crate::document::{Arrivals, Latency, Load, Operation, Operations, Processor, Run, Workload};
use crate::runner::{Bench, Request};

/// Numbers from a seed, and variates of them.
pub(crate) struct Random(weir_reactor::random::Random);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(weir_reactor::random::Random::new(seed))
    }

    fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Above 0, at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.unit_above_zero()
    }

    /// Mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }

    /// Mean 0, standard deviation 1 (Box and Muller).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (2.0 * self.exponential()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// So many servers with one queue in front of them, and a delay behind.
#[derive(Clone)]
pub(crate) struct Device {
    pub(crate) servers: usize,
    pub(crate) service_seconds: f64,
    /// Whether service times are exponential; all the same if not.
    pub(crate) random: bool,
    pub(crate) delay_seconds: f64,
    /// Beyond so many in flight each further one makes service longer by a hundredth.
    pub(crate) collapses_beyond: Option<u64>,
    /// One of so many requests fails.
    pub(crate) fails_one_of: Option<u64>,
}

impl Device {
    pub(crate) fn throttled(rate: f64, delay_seconds: f64) -> Self {
        Device {
            servers: 1,
            service_seconds: 1.0 / rate,
            random: false,
            delay_seconds,
            collapses_beyond: None,
            fails_one_of: None,
        }
    }
}

/// Devices, one for each side, that are measured: with noise from run to run, and drift.
pub(crate) struct Model {
    pub(crate) devices: Vec<Device>,
    pub(crate) seconds: f64,
    pub(crate) random: Random,
    /// Noise of each run, as a fraction.
    pub(crate) noise: f64,
    /// How much slower everything is with every run, as a fraction.
    pub(crate) trend: f64,
    pub(crate) level: f64,
    /// Other load slows one run in so many by a third; none where it is 0.
    pub(crate) burst_every: usize,
    pub(crate) requests: Vec<Request>,
    pub(crate) stop_after: Option<usize>,
    /// Runs, by their number from 0, in which every request fails.
    pub(crate) idle: BTreeSet<usize>,
    /// The run, by its number from 0, that ends with an error.
    pub(crate) lost_at: Option<usize>,
    /// For how many seconds the generator is away in the middle of a run, by the rate offered: the first run of it, the next and so on, last first.
    pub(crate) away: BTreeMap<u64, Vec<f64>>,
}

impl Model {
    pub(crate) fn new(devices: Vec<Device>, seed: u64) -> Self {
        Model {
            devices,
            seconds: 1.0,
            random: Random::new(seed),
            noise: 0.0,
            trend: 0.0,
            level: 0.0,
            burst_every: 0,
            requests: Vec::new(),
            stop_after: None,
            idle: BTreeSet::new(),
            lost_at: None,
            away: BTreeMap::new(),
        }
    }

    fn simulate(&mut self, request: &Request) -> Run {
        let mut device = self.devices[request.side].clone();
        self.level += self.trend;
        let in_burst = self.burst_every > 0 && self.requests.len().is_multiple_of(self.burst_every);
        let burst = if in_burst { 1.0 / 3.0 } else { 0.0 };
        let slower = (self.level + self.noise * self.random.normal() + burst).exp();
        device.service_seconds *= slower;
        device.delay_seconds *= slower;
        if let Some(beyond) = device.collapses_beyond {
            let more = request.load.outstanding().saturating_sub(beyond);
            device.service_seconds *= 1.0 + more as f64 / 100.0;
        }
        let mut random = Random::new(request.seed ^ self.random.next());
        let away = match request.load {
            Load::Open { rate, .. } => self.away.get_mut(&(rate as u64)).and_then(Vec::pop),
            Load::Closed { .. } => None,
        };
        let arrivals = Random::new(request.seed);
        let run = match request.load {
            Load::Closed { .. } => self.closed(&device, request, &mut random),
            Load::Open { .. } => self.open(
                &device,
                request,
                &mut random,
                (arrivals, away.unwrap_or(0.0)),
            ),
        };
        match (
            device.fails_one_of,
            self.idle.contains(&(self.requests.len() - 1)),
        ) {
            (_, true) => failing(run, 1),
            (Some(one_of), false) => failing(run, one_of),
            (None, false) => run,
        }
    }

    fn closed(&self, device: &Device, request: &Request, random: &mut Random) -> Run {
        let mut servers = Servers::of(device);
        let mut waiting: BinaryHeap<Reverse<u64>> = (0..request.load.outstanding())
            .map(|_| Reverse(0))
            .collect();
        let mut service = histogram();
        // What is measured begins when what the first requests did together is over.
        let (from, to) = (
            nanoseconds(self.seconds * 0.25),
            nanoseconds(self.seconds * 1.25),
        );
        while let Some(Reverse(at)) = waiting.pop() {
            let end = servers.take(at, device, random);
            if (from..to).contains(&end) {
                service.record(end - at).unwrap();
            }
            if end < to {
                waiting.push(Reverse(end));
            }
        }
        let ended = service.len();
        self.report(request, ended, &service, None)
    }

    fn open(
        &self,
        device: &Device,
        request: &Request,
        random: &mut Random,
        (mut arrivals, away): (Random, f64),
    ) -> Run {
        let Load::Open {
            rate,
            arrivals: spread,
            depth_max,
            ..
        } = request.load
        else {
            unreachable!("the caller looked")
        };
        let mut servers = Servers::of(device);
        let (mut response, mut lag, mut ended) = (histogram(), histogram(), 0);
        let (mut at, to) = (0.0, nanoseconds(self.seconds));
        let gone = nanoseconds(self.seconds / 2.0);
        let back = gone + nanoseconds(away);
        let (mut in_flight, mut late) = (BinaryHeap::new(), 0);
        loop {
            at += 1e9 / rate
                * match spread {
                    Arrivals::Uniform => 1.0,
                    Arrivals::Exponential => arrivals.exponential(),
                };
            let due = at as u64;
            if due >= to {
                break;
            }
            let ready = if (gone..back).contains(&due) {
                back
            } else {
                due
            };
            late = late.max(ready - due);
            in_flight.retain(|&Reverse(end)| end > ready);
            let sent = match in_flight.len() < depth_max as usize {
                true => ready,
                false => in_flight.pop().map_or(ready, |Reverse(end)| end),
            };
            let end = servers.take(sent, device, random);
            in_flight.push(Reverse(end));
            response.record(end - due).unwrap();
            lag.record(sent - due).unwrap();
            ended += u64::from(end < to);
        }
        Run {
            lag: Latency::of(&lag),
            late_ns_max: Some(late),
            ..self.report(request, ended, &histogram(), Some(&response))
        }
    }

    fn report(
        &self,
        request: &Request,
        ended: u64,
        service: &Histogram<u64>,
        response: Option<&Histogram<u64>>,
    ) -> Run {
        let requests = response.map_or(service.len(), Histogram::len);
        Run {
            name: request.name.clone(),
            phase: None,
            volumes: Vec::new(),
            workload: Workload::default(),
            load: request.load,
            seed: request.seed,
            ramp_seconds: 0.0,
            elapsed_seconds: self.seconds,
            operations: Operations {
                read: Operation {
                    requests,
                    bytes: requests * 4096,
                    errors: 0,
                    service: Latency::of(service),
                    response: response.and_then(Latency::of),
                },
                ..Operations::default()
            },
            ended: Some(ended),
            intervals: Vec::new(),
            lag: None,
            late_ns_max: None,
            unsent: 0,
            unfinished: 0,
            littles_law: None,
            steady_state: None,
            processor: Processor::default(),
            first_error: None,
            agents: None,
        }
    }
}

impl Bench for Model {
    type Error = String;

    async fn run(&mut self, request: &Request) -> Result<Run, String> {
        self.requests.push(request.clone());
        if request.side >= self.devices.len() {
            return Err(format!("there is no side {}", request.side));
        }
        if self.lost_at == Some(self.requests.len() - 1) {
            return Err("the volume is lost".to_owned());
        }
        Ok(self.simulate(request))
    }

    fn is_stopped(&self) -> bool {
        self.stop_after
            .is_some_and(|runs| self.requests.len() >= runs)
    }
}

struct Servers(BinaryHeap<Reverse<u64>>);

impl Servers {
    fn of(device: &Device) -> Self {
        Servers((0..device.servers).map(|_| Reverse(0)).collect())
    }

    /// When what arrives at `at` has ended. Those that arrive earlier are asked about earlier.
    fn take(&mut self, at: u64, device: &Device, random: &mut Random) -> u64 {
        let Reverse(free) = self.0.pop().unwrap();
        let times = if device.random {
            random.exponential()
        } else {
            1.0
        };
        let end = free.max(at) + nanoseconds(device.service_seconds * times).max(1);
        self.0.push(Reverse(end));
        end + nanoseconds(device.delay_seconds)
    }
}

/// The same run, had one of so many requests failed.
fn failing(mut run: Run, one_of: u64) -> Run {
    let read = &mut run.operations.read;
    read.errors = read.requests / one_of;
    read.requests -= read.errors;
    run.ended = run.ended.map(|ended| ended - ended / one_of);
    if one_of == 1 {
        (read.service, read.response) = (None, None);
    }
    run.first_error = Some("the medium failed".to_owned());
    run
}

fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap()
}

/// Waits for what never has to wait.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the model answers at once"),
    }
}
