//! The policy against a model of a reactor and its peer, whose clock is counted and not measured. What a choice costs is the
//! processor time of the reactor (work and waiting awake) and the time for which work waited for it to wake up.

use std::collections::VecDeque;

use super::*;

/// How an agent waits.
enum Way {
    Policy(Box<Waiting>),
    /// Awake for so long, in nanoseconds.
    Fixed(u64),
}

/// The reactor, or its peer; all times are in nanoseconds.
struct Agent {
    way: Way,
    wake_up: u64,
    /// What a look at what came costs, and what each request does.
    turn: u64,
    request: u64,
    /// When what is still to do came.
    inbox: VecDeque<u64>,
    free: u64,
    /// Processor time and time waited for a wake-up; requests done.
    cost: u64,
    done: u64,
    /// Of them, since the last gap.
    work: u64,
    /// It stands still now and then: how often, and for how long.
    still: Option<[u64; 2]>,
    /// Each so-manieth request is as much work as 32 others.
    large: Option<u64>,
}

impl Agent {
    fn new(way: Way, wake_up: u64, turn: u64, request: u64) -> Self {
        Agent {
            way,
            wake_up,
            turn,
            request,
            inbox: VecDeque::new(),
            free: 0,
            cost: 0,
            done: 0,
            work: 0,
            still: None,
            large: None,
        }
    }

    fn awake_for(&self) -> u64 {
        match &self.way {
            Way::Policy(waiting) => waiting.awake_for().as_nanos() as u64,
            Way::Fixed(time) => *time,
        }
    }

    /// When it takes up what came.
    fn next(&self) -> Option<u64> {
        let came = *self.inbox.front()?;
        let gap = came.saturating_sub(self.free);
        Some(match gap {
            0 => self.free,
            _ if gap <= self.awake_for() => came,
            _ => came + self.wake_up,
        })
    }

    /// Does what has come by `at`; how many requests, which have left when it is free again.
    fn go_on(&mut self, at: u64) -> u64 {
        let came = *self.inbox.front().expect("it has something to do");
        if came > self.free {
            let slept = at > came;
            self.cost += self.awake_for().min(came - self.free) + (at - came);
            let gap = Duration::from_nanos(at - self.free);
            if let Way::Policy(waiting) = &mut self.way {
                let gap = Gap {
                    time: gap,
                    slept: slept || self.wake_up == 0,
                    work: std::mem::take(&mut self.work),
                };
                waiting.gap_ended(gap, || Duration::ZERO);
            }
        }
        let mut taken = 0;
        while self.inbox.front().is_some_and(|&came| came <= at) {
            self.inbox.pop_front();
            taken += 1;
        }
        let work = self.turn + taken * self.request;
        self.cost += work;
        let large = self
            .large
            .map_or(0, |each| (self.done + taken) / each - self.done / each);
        self.done += taken;
        self.work += taken + 31 * large;
        self.free = at + work;
        if let Some([every, time]) = self.still {
            self.free += time.saturating_sub(self.free % every);
        }
        taken
    }
}

/// The policy where a wake-up takes so long, asleep or awake.
fn policy(wake_up: u64, asleep: bool) -> Way {
    let mut waiting = Waiting::new(Spin::Auto, Instant::from_nanos(0));
    for _ in 0..WAKE_UPS {
        let late = Duration::from_nanos(wake_up).div_f64(BY_ANOTHER);
        waiting.woke_up(Instant::from_nanos(0), Some(late));
    }
    if asleep {
        waiting.is_awake = false;
        waiting.awake = f64::from(REACH + 1) * wake_up as f64;
    }
    Way::Policy(Box::new(waiting))
}

/// How the peer waits.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Peer {
    Asleep,
    Awake,
    /// As the reactor does.
    Both,
}

impl Peer {
    fn way(self, wake_up: u64, asleep: bool) -> Way {
        match self {
            Peer::Asleep => Way::Fixed(0),
            Peer::Awake => Way::Fixed(u64::MAX),
            Peer::Both => policy(wake_up, asleep),
        }
    }
}

const MILLISECOND: u64 = 1_000_000;
const WAKE_UPS_US: [u64; 5] = [0, 5, 20, 60, 200];
const DEPTHS: [u64; 6] = [1, 4, 8, 16, 32, 128];
/// What a turn and a request cost the reactor, and the peer.
const SPEEDS: [[u64; 4]; 3] = [
    [700, 300, 1000, 1200],
    [1500, 1200, 1000, 500],
    [2000, 3000, 2000, 20_000],
];

/// A closed loop of `depth` requests between a reactor and its peer.
struct Closed {
    agents: [Agent; 2],
}

impl Closed {
    fn new(depth: u64, us: Way, peer: Way, wake_up: u64, speed: [u64; 4]) -> Self {
        let [turn, request, peer_turn, peer_request] = speed;
        let mut reactor = Agent::new(us, wake_up, turn, request);
        reactor.inbox = (0..depth).map(|_| 1).collect();
        let peer = Agent::new(peer, wake_up, peer_turn, peer_request);
        Closed {
            agents: [reactor, peer],
        }
    }

    /// Goes on until `end`; requests of the reactor until then, and what they cost it.
    fn run(&mut self, end: u64) -> (u64, u64) {
        let (done, cost) = (self.agents[0].done, self.agents[0].cost);
        loop {
            let next = [0, 1].map(|index| self.agents[index].next().unwrap_or(u64::MAX));
            let index = usize::from(next[1] < next[0]);
            if next[index] >= end {
                return (self.agents[0].done - done, self.agents[0].cost - cost);
            }
            let left = self.agents[index].go_on(next[index]);
            let free = self.agents[index].free;
            self.agents[1 - index].inbox.extend((0..left).map(|_| free));
        }
    }
}

/// A reactor alone, to whom requests come whatever it does.
fn open(way: Way, wake_up: u64, arrivals: &[u64]) -> u64 {
    let mut reactor = Agent::new(way, wake_up, 700, 1000);
    for &arrival in arrivals {
        while let Some(next) = reactor.next().filter(|&next| next < arrival) {
            reactor.go_on(next);
        }
        reactor.inbox.push_back(arrival);
    }
    reactor.cost
}

/// Times of arrival until `end` with `rate` in a second, evenly spaced or at random.
fn arrivals(from: u64, end: u64, rate: u64, random: Option<&mut u64>) -> Vec<u64> {
    let mean = 1_000_000_000 / rate;
    let mut at = from;
    let mut all = Vec::new();
    let mut state = random;
    while at < end {
        all.push(at);
        at += match &mut state {
            None => mean,
            Some(state) => {
                **state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let uniform = ((**state >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
                (-uniform.ln() * mean as f64) as u64
            }
        };
    }
    all
}

fn fixed(wake_up: u64) -> [Way; 2] {
    [Way::Fixed(0), Way::Fixed(u64::from(REACH) * wake_up)]
}

/// The most that the policy may cost, of the better fixed choice; in thousandths.
fn assert_cheap(what: &str, policy: f64, fixed: [f64; 2], most: f64) {
    let better = fixed[0].min(fixed[1]);
    assert!(
        policy <= better * most,
        "{what}: the policy costs {policy:.0}, to sleep at once {:.0}, to wait awake {:.0}",
        fixed[0],
        fixed[1],
    );
}

/// A seventh of all closed loops, and all of them where `WEIR_NIGHTLY` is set. Seven has no factor in common with the numbers of wake-ups, depths, peers and
/// speeds: each wake-up is there with each depth, and all of them with other peers and speeds. Another `turn` has others.
fn closed_loops(turn: usize, mut check: impl FnMut(u64, u64, Peer, [u64; 4])) {
    let each = if is_nightly() { 1 } else { 7 };
    let mut number = turn;
    for wake_up in WAKE_UPS_US.map(|us| us * 1000) {
        for depth in DEPTHS {
            for peer in [Peer::Asleep, Peer::Awake, Peer::Both] {
                for speed in SPEEDS {
                    if number.is_multiple_of(each) {
                        check(wake_up, depth, peer, speed);
                    }
                    number += 1;
                }
            }
        }
    }
}

fn is_nightly() -> bool {
    std::env::var_os("WEIR_NIGHTLY").is_some()
}

#[test]
fn on_closed_loops_it_costs_little_more_than_the_better_choice() {
    closed_loops(0, |wake_up, depth, peer, speed| {
        let cost = |us: Way| {
            let mut closed = Closed::new(depth, us, peer.way(wake_up, false), wake_up, speed);
            closed.run(100 * MILLISECOND);
            let (done, cost) = closed.run(600 * MILLISECOND);
            cost as f64 / done as f64
        };
        for asleep in [false, true] {
            let what = format!(
                "wake-up {wake_up}, depth {depth}, peer {peer:?}, {speed:?}, asleep at first: {asleep}"
            );
            assert_cheap(
                &what,
                cost(policy(wake_up, asleep)),
                fixed(wake_up).map(cost),
                1.3,
            );
        }
    });
}

#[test]
fn a_long_gap_now_and_then_and_a_wake_up_measured_wrongly_cost_little() {
    let mut turn = 0;
    for every in [MILLISECOND, 3 * MILLISECOND, 10 * MILLISECOND] {
        // A choice by half or twice of what a wake-up takes may cost as much more.
        for (measured, most) in [(0.5, 2.5), (1.0, 1.3), (2.0, 2.5)] {
            turn += 1;
            closed_loops(turn, |wake_up, depth, peer, speed| {
                if peer == Peer::Both {
                    return;
                }
                let cost = |us: Way| {
                    let mut closed =
                        Closed::new(depth, us, peer.way(wake_up, false), wake_up, speed);
                    closed.agents[1].still = Some([every, 300_000]);
                    closed.run(100 * MILLISECOND);
                    let (done, cost) = closed.run(600 * MILLISECOND);
                    cost as f64 / done as f64
                };
                let what = format!(
                    "wake-up {wake_up}, {measured} measured, depth {depth}, peer {peer:?}, {speed:?}, still every {every}"
                );
                let measured_so = policy((wake_up as f64 * measured) as u64, false);
                assert_cheap(&what, cost(measured_so), fixed(wake_up).map(cost), most);
            });
        }
    }
}

#[test]
fn a_large_request_among_small_ones_changes_little() {
    for (turn, each) in [3, 10].into_iter().enumerate() {
        closed_loops(turn, |wake_up, depth, peer, speed| {
            let cost = |us: Way| {
                let mut closed = Closed::new(depth, us, peer.way(wake_up, false), wake_up, speed);
                closed
                    .agents
                    .iter_mut()
                    .for_each(|agent| agent.large = Some(each));
                closed.run(100 * MILLISECOND);
                let (done, cost) = closed.run(600 * MILLISECOND);
                cost as f64 / done as f64
            };
            let what = format!(
                "wake-up {wake_up}, depth {depth}, peer {peer:?}, {speed:?}, one of {each} large"
            );
            let us = cost(policy(wake_up, false));
            assert_cheap(&what, us, fixed(wake_up).map(cost), 1.6);
        });
    }
}

/// The load changes, and what was learnt from the one before does not hold it up for longer than 0.3 s.
#[test]
fn after_another_load_it_comes_to_the_same_rate() {
    closed_loops(0, |wake_up, depth, peer, speed| {
        for before in [1, 128] {
            let rate = |loads: &[u64]| {
                let mut ways = [policy(wake_up, false), peer.way(wake_up, false)];
                let mut rate = 0.0;
                for &depth in loads {
                    let [us, other] = ways;
                    let mut closed = Closed::new(depth, us, other, wake_up, speed);
                    closed.run(300 * MILLISECOND);
                    rate = closed.run(800 * MILLISECOND).0 as f64;
                    ways = closed.agents.map(|agent| agent.way);
                }
                rate
            };
            let ratio = rate(&[before, depth]) / rate(&[depth]);
            assert!(
                ratio >= 0.94,
                "wake-up {wake_up}, depth {depth} after {before}, peer {peer:?}, {speed:?}: {ratio:.3} of the rate"
            );
        }
    });
}

#[test]
fn asleep_or_awake_at_first_it_comes_to_the_same_rate() {
    closed_loops(0, |wake_up, depth, peer, speed| {
        let rate = |asleep: bool| {
            let way = policy(wake_up, asleep);
            let mut closed = Closed::new(depth, way, peer.way(wake_up, asleep), wake_up, speed);
            closed.run(100 * MILLISECOND);
            closed.run(600 * MILLISECOND).0 as f64
        };
        let ratio = rate(true) / rate(false);
        assert!(
            (0.97..=1.03).contains(&ratio),
            "wake-up {wake_up}, depth {depth}, peer {peer:?}, {speed:?}: {ratio:.3} of the rate after it slept at first"
        );
    });
}

#[test]
fn on_open_loops_it_costs_little_more_than_the_better_choice() {
    let mut random = 1;
    for wake_up in WAKE_UPS_US.map(|us| us * 1000) {
        for rate in [1_000, 3_000, 10_000, 20_000, 50_000, 100_000, 300_000] {
            for is_random in [false, true] {
                let end = 1_000 * MILLISECOND;
                let all = arrivals(1, end, rate, is_random.then_some(&mut random));
                let what = format!("wake-up {wake_up}, {rate} a second, at random: {is_random}");
                for asleep in [false, true] {
                    let policy = open(policy(wake_up, asleep), wake_up, &all) as f64;
                    let fixed = fixed(wake_up).map(|way| open(way, wake_up, &all) as f64);
                    assert_cheap(&what, policy, fixed, 1.3);
                }
            }
        }
    }
}

#[test]
fn on_loads_that_switch_it_costs_at_most_about_twice() {
    let mut random = 7;
    let rates = [1_000, 10_000, 50_000, 300_000];
    for wake_up in WAKE_UPS_US.map(|us| us * 1000) {
        for (one, other) in rates
            .iter()
            .flat_map(|one| rates.map(|other| (*one, other)))
        {
            let spell = 20 * MILLISECOND;
            let all: Vec<u64> = (0..50)
                .flat_map(|index| {
                    let rate = if index % 2 == 0 { one } else { other };
                    arrivals(
                        index * spell + 1,
                        (index + 1) * spell,
                        rate,
                        Some(&mut random),
                    )
                })
                .collect();
            let policy = open(policy(wake_up, false), wake_up, &all) as f64;
            let fixed = fixed(wake_up).map(|way| open(way, wake_up, &all) as f64);
            let what = format!("wake-up {wake_up}, {one} and {other} a second in turn");
            assert_cheap(&what, policy, fixed, 2.2);
        }
    }
}

/// As many gaps of this length, at which a thread that was awake had waited so long for a processor, and one that was asleep
/// as long again as its wake-up takes.
fn gaps(waiting: &mut Waiting, count: u32, us: u64, kept: Duration) -> u32 {
    let mut waited = Duration::ZERO;
    let mut awake = 0;
    for _ in 0..count {
        let slept = waiting.awake_for() == Duration::ZERO;
        let mut time = Duration::from_micros(us);
        match slept {
            true => {
                time += waiting.wake_up;
                waited += waiting.wake_up;
            }
            false => {
                awake += 1;
                waited += kept;
            }
        }
        let gap = Gap {
            time,
            slept,
            work: 1,
        };
        waiting.gap_ended(gap, || waited);
    }
    awake
}

#[test]
fn what_it_kept_from_others_is_lost() {
    let of = |kept| {
        let Way::Policy(mut waiting) = policy(20_000, false) else {
            unreachable!("asked for");
        };
        gaps(&mut waiting, 10_000, 5, kept);
        gaps(&mut waiting, 10_000, 5, kept)
    };
    assert_eq!(of(Duration::ZERO), 10_000);
    let Way::Policy(mut asleep) = policy(20_000, true) else {
        unreachable!("asked for");
    };
    // Work comes an hour late, so that it sleeps; then at once.
    gaps(&mut asleep, 1_000, 3_600_000_000, Duration::ZERO);
    gaps(&mut asleep, 5_000, 5, Duration::ZERO);
    assert_eq!(
        gaps(&mut asleep, 10_000, 5, Duration::ZERO),
        10_000,
        "it woke up late before"
    );
    assert!(of(Duration::from_micros(30)) < 1_000, "it goes on spinning");
}

#[test]
fn a_wake_up_is_the_median_of_those_that_were_measured() {
    let mut now = Instant::from_nanos(0);
    let mut waiting = Waiting::new(Spin::Auto, now);
    assert_eq!(waiting.wake_up(), WAKE_UP);
    for us in [70, 60, 9_000, 50, 65, 55, 8_000] {
        let deadline = waiting.measure(now).expect("none was measured");
        now = deadline + Duration::from_micros(us);
        waiting.woke_up(now, Some(Duration::from_micros(us)));
    }
    assert_eq!(
        waiting.wake_up(),
        Duration::from_micros(65).mul_f64(BY_ANOTHER)
    );
    assert_eq!(waiting.measure(now), None, "for now it is known");
    now = now + MEASURED_FOR;
    // Work that comes sooner makes the sleeps shorter that measure.
    let reach = |waiting: &Waiting, now| waiting.measure(now).map(|end| end.since(now));
    assert_eq!(reach(&waiting, now), Some(MEASURED_BY_MAX));
    waiting.woke_up(now, None);
    assert_eq!(reach(&waiting, now), Some(MEASURED_BY_MAX / 2));
}

#[test]
fn a_time_that_was_set_is_kept_to() {
    let time = Duration::from_millis(1);
    let mut waiting = Waiting::new(Spin::For(time), Instant::from_nanos(0));
    assert_eq!(gaps(&mut waiting, 1_000, 5_000, Duration::ZERO), 1_000);
    assert_eq!(waiting.awake_for(), time);
}
