//! Queues that draw from one account, in a time of the test's own. What begins is checked against a bucket that knows of no
//! leases, lines or turns.

use weir_block::{Operation, Token};
use weir_reactor::Mailbox;

use super::super::lane::User;
use super::super::meter::Meter;
use super::*;

const BLOCK_SHIFT: u32 = 12;
/// Bytes of the longest request.
const LONGEST: u64 = 64 << BLOCK_SHIFT;

fn limit(rate: u64, burst: u64) -> Option<RateLimit> {
    Some(RateLimit::new(rate, Some(burst)).unwrap())
}

/// A bucket as a person would write it.
struct Oracle {
    limit: RateLimit,
    counts: fn(Class, u64) -> u64,
    level: i128,
    at: Instant,
    /// By so much the times of reactors are behind.
    lag: Duration,
}

impl Oracle {
    fn all(limits: Limits, at: Instant, lag: Duration) -> Vec<Oracle> {
        let counts: [fn(Class, u64) -> u64; BUCKETS] = [
            |class, _| u64::from(class == Class::Read),
            |class, _| u64::from(class == Class::Write),
            |_, _| 1,
            |class, bytes| if class == Class::Read { bytes } else { 0 },
            |class, bytes| if class == Class::Write { bytes } else { 0 },
            |_, bytes| bytes,
        ];
        let each = limits.each().into_iter().zip(counts);
        let oracle = |(limit, counts): (Option<RateLimit>, _)| {
            limit.map(|limit| Oracle {
                limit,
                counts,
                level: parts(limit.burst()),
                at,
                lag,
            })
        };
        each.filter_map(oracle).collect()
    }

    fn begins(&mut self, class: Class, bytes: u64, at: Instant) {
        let cost = (self.counts)(class, bytes);
        let gained = i128::from(self.limit.rate()) * at.since(self.at).as_nanos() as i128;
        self.level = (self.level + gained).min(parts(self.limit.burst())) - parts(cost);
        self.at = at;
        // What is larger than the burst may begin when the bucket is full.
        let debt = parts(LONGEST.saturating_sub(self.limit.burst()));
        let debt = debt + i128::from(self.limit.rate()) * self.lag.as_nanos() as i128;
        assert!(
            self.level >= -debt,
            "{:?} was passed at {at:?} by {} tokens",
            self.limit,
            -(self.level + debt) / NANOSECONDS_PER_SECOND
        );
    }
}

/// One queue under test: it keeps a number of requests waiting or begins them.
struct Tested {
    meter: Meter,
    next: u32,
    /// What a request of it is like.
    class: Class,
    bytes: u64,
    begun: Vec<u32>,
    cancelled: u32,
    next_draw: Option<Instant>,
}

impl Tested {
    fn new(account: &Arc<Account>, class: Class, bytes: u64) -> Self {
        Tested {
            meter: Meter::new(Arc::clone(account), &Mailbox::new()),
            next: 0,
            class,
            bytes,
            begun: Vec::new(),
            cancelled: 0,
            next_draw: None,
        }
    }

    fn waiting(&self) -> u32 {
        self.next - self.begun.len() as u32 - self.cancelled
    }

    fn submit(&mut self, now: Instant, begins: &mut impl FnMut(Class, u64)) {
        let token = Token {
            owner: 0,
            slot: self.next,
            generation: 0,
        };
        let user = User::new(token, &Operation::Flush);
        self.next += 1;
        let costs = (self.class, self.bytes);
        match self.meter.pay(user, Operation::Flush, costs, now) {
            Ok((user, _)) => {
                self.begun.push(user.request.token.slot);
                begins(self.class, self.bytes);
            }
            Err(true) => self.next_draw = Some(now),
            Err(false) => {}
        }
    }

    fn draw(&mut self, now: Instant, begins: &mut impl FnMut(Class, u64)) {
        let mut go_on = Vec::new();
        self.next_draw = self.meter.draw(now, &mut go_on);
        assert!(self.next_draw.is_none_or(|next| next > now), "it waits");
        for waiting in go_on {
            self.begun.push(waiting.user.request.token.slot);
            begins(self.class, self.bytes);
        }
    }

    fn check_order(&self) {
        assert!(self.begun.is_sorted(), "the order is kept");
    }
}

/// Keeps `depth` requests of every queue waiting for some time; how many of each began.
fn saturate(account: &Arc<Account>, queues: &mut [Tested], depth: u32, time: Duration) -> Vec<u64> {
    let mut now = Instant::from_nanos(1_000_000);
    let end = now + time;
    let mut oracles = Oracle::all(account.limits(), now, Duration::ZERO);
    let before: Vec<_> = queues.iter().map(|queue| queue.begun.len()).collect();
    while now < end {
        for queue in queues.iter_mut() {
            let mut begins = |class, bytes| {
                for oracle in &mut oracles {
                    oracle.begins(class, bytes, now);
                }
            };
            while queue.waiting() < depth {
                queue.submit(now, &mut begins);
                if queue.next_draw.is_some_and(|at| at <= now) {
                    queue.draw(now, &mut begins);
                }
            }
            if queue.next_draw.is_some_and(|at| at <= now) {
                queue.draw(now, &mut begins);
            }
        }
        now = now + Duration::from_micros(50);
    }
    queues.iter().for_each(Tested::check_order);
    let begun = queues.iter().zip(before);
    begun
        .map(|(queue, before)| (queue.begun.len() - before) as u64)
        .collect()
}

fn account(limits: Limits) -> Arc<Account> {
    Account::new(limits)
}

#[test]
fn one_busy_queue_has_the_whole_rate_and_the_burst_and_no_more() {
    for (rate, burst) in [(1, 1), (50, 10), (20_000, 2_000), (300_000, 3_000)] {
        let limits = Limits {
            read_iops: limit(rate, burst),
            ..Limits::default()
        };
        let account = account(limits);
        // The other two are there and do nothing.
        let mut queues: Vec<_> = (0..3)
            .map(|_| Tested::new(&account, Class::Read, 4096))
            .collect();
        let begun = saturate(&account, &mut queues[..1], 32, Duration::from_secs(2));
        let allowed = 2 * rate + burst;
        assert!(begun[0] <= allowed, "{} of {allowed}", begun[0]);
        assert!(
            begun[0] * 100 >= allowed * 98 - 100,
            "{} of {allowed}",
            begun[0]
        );
    }
}

#[test]
fn busy_queues_share_alike_whatever_their_requests_are_like() {
    let limits = Limits {
        total_bandwidth: limit(100 << 20, 10 << 20),
        ..Limits::default()
    };
    for sizes in [[4096; 4], [4096, 65_536, 4096, LONGEST]] {
        let account = account(limits);
        let mut queues: Vec<_> = sizes
            .iter()
            .map(|&bytes| Tested::new(&account, Class::Write, bytes))
            .collect();
        let begun = saturate(&account, &mut queues, 64, Duration::from_secs(2));
        let bytes: Vec<_> = begun
            .iter()
            .zip(sizes)
            .map(|(n, bytes)| n * bytes)
            .collect();
        let all: u64 = bytes.iter().sum();
        assert!(all <= 210 << 20, "{all}");
        assert!(all >= 200 << 20, "all of the rate is used: {all}");
        for one in &bytes {
            assert!(one * 4 * 10 >= all * 7, "{bytes:?} is not shared alike");
        }
    }
}

#[test]
fn classes_take_turns_at_a_total_limit_and_do_not_hold_each_other_up_otherwise() {
    let limits = Limits {
        total_iops: limit(10_000, 1_000),
        ..Limits::default()
    };
    let both = |limits| {
        let account = account(limits);
        let mut queues = vec![
            Tested::new(&account, Class::Read, 4096),
            Tested::new(&account, Class::Write, 4096),
            Tested::new(&account, Class::Write, 4096),
        ];
        saturate(&account, &mut queues, 64, Duration::from_secs(2))
    };
    let begun = both(limits);
    let (reads, writes) = (begun[0], begun[1] + begun[2]);
    assert!(reads + writes >= 20_500, "{begun:?}");
    assert!(
        reads * 10 >= writes * 7 && writes * 10 >= reads * 7,
        "{begun:?}"
    );
    // Writes that wait for their own limit leave the rest of the total to reads.
    let begun = both(Limits {
        write_iops: limit(100, 1),
        ..limits
    });
    assert!((190..=201).contains(&(begun[1] + begun[2])), "{begun:?}");
    assert!(begun[0] >= 20_300, "{begun:?}");
}

#[test]
fn a_request_larger_than_the_burst_goes_on_and_is_paid_off() {
    let limits = Limits {
        write_bandwidth: limit(1 << 20, 16 << 10),
        ..Limits::default()
    };
    let account = account(limits);
    let mut queues = vec![
        Tested::new(&account, Class::Write, LONGEST),
        Tested::new(&account, Class::Write, 4096),
    ];
    let begun = saturate(&account, &mut queues, 8, Duration::from_secs(8));
    let bytes = begun[0] * LONGEST + begun[1] * 4096;
    assert!(bytes <= (8 << 20) + LONGEST, "{bytes}");
    assert!(bytes >= 7 << 20, "{bytes}");
    assert!(begun[0] > 8 && begun[1] > 8, "{begun:?}");
}

#[test]
fn no_window_has_more_than_its_rate_and_the_burst() {
    let seed = weir_reactor::sim::seed_from_env_or_random();
    println!("no_window_has_more_than_its_rate_and_the_burst: WEIR_SEED={seed}");
    let mut random = Random(weir_reactor::random::Random::new(seed));
    for _ in 0..200 {
        random_run(&mut random);
    }
}

/// Choices of a seed.
struct Random(weir_reactor::random::Random);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    fn limit(&mut self, largest: u64) -> Option<RateLimit> {
        if self.below(2) == 0 {
            return None;
        }
        let rate = 1 + self.below(largest);
        let burst = rate.div_ceil(100) + self.below(rate);
        Some(RateLimit::new(rate, Some(burst)).unwrap())
    }

    fn limits(&mut self) -> Limits {
        Limits {
            read_iops: self.limit(50_000),
            write_iops: self.limit(50_000),
            total_iops: self.limit(50_000),
            read_bandwidth: self.limit(200 << 20),
            write_bandwidth: self.limit(200 << 20),
            total_bandwidth: self.limit(200 << 20),
        }
    }
}

fn random_run(random: &mut Random) {
    let account = account(random.limits());
    let mut now = Instant::from_nanos(1 << 40);
    let lag = Duration::from_nanos([0, 100_000][random.below(2) as usize]);
    let mut oracles = Oracle::all(account.limits(), now, lag);
    let count = 1 + random.below(6);
    let mut queues: Vec<_> = (0..count)
        .map(|_| {
            let class = Class::ALL[random.below(2) as usize];
            let blocks = 1 + random.below(64);
            Tested::new(&account, class, blocks << BLOCK_SHIFT)
        })
        .collect();
    for _ in 0..2_000 {
        now = now + Duration::from_nanos(random.below(400_000));
        if random.below(400) == 0 {
            // A change counts from when every queue has taken it over.
            let (limits, nobody) = (random.limits(), WhenAll::new(Box::new(|_| {})));
            account.set_limits(limits, &nobody);
            let mut free = |_, _| {};
            for queue in &mut queues {
                queue.meter.renew();
                queue.draw(now, &mut free);
            }
            oracles = Oracle::all(limits, now, lag);
        }
        let queue = &mut queues[random.below(count) as usize];
        // A reactor's time is that of the turn that it is in.
        let behind = random.below(lag.as_nanos() as u64 + 1);
        let own = Instant::from_nanos(now.as_nanos() - behind);
        let mut begins = |class, bytes| {
            for oracle in &mut oracles {
                oracle.begins(class, bytes, now);
            }
        };
        match random.below(8) {
            0..5 => (0..random.below(8)).for_each(|_| queue.submit(own, &mut begins)),
            5 if queue.next > 0 => {
                let slot = random.below(u64::from(queue.next)) as u32;
                let token = Token {
                    owner: 0,
                    slot,
                    generation: 0,
                };
                let is_waiting = queue.meter.cancel(token).is_some();
                queue.cancelled += u32::from(is_waiting);
            }
            _ => {}
        }
        if queue.next_draw.is_some_and(|at| at <= own) {
            queue.draw(own, &mut begins);
        }
        if random.below(500) == 0 {
            // A queue ends, with all that it holds.
            let (class, bytes) = (queue.class, queue.bytes);
            *queue = Tested::new(&account, class, bytes);
        }
    }
    // Whatever waits goes on in the end.
    account.set_limits(Limits::default(), &WhenAll::new(Box::new(|_| {})));
    for queue in &mut queues {
        queue.meter.renew();
        queue.draw(now, &mut |_, _| {});
        queue.check_order();
        assert_eq!(queue.waiting(), 0, "none is lost");
    }
    assert_eq!(account.throttled().waiting, 0);
    drop(queues);
    let state = lock(&account.0);
    assert!(state.members.is_empty() && state.lines.iter().all(VecDeque::is_empty));
}

#[test]
fn nothing_stays_leased_to_queues_that_are_idle_or_gone() {
    let limits = Limits {
        total_iops: limit(100_000, 5_000),
        ..Limits::default()
    };
    let account = account(limits);
    let mut queues: Vec<_> = (0..4)
        .map(|_| Tested::new(&account, Class::Read, 4096))
        .collect();
    let now = Instant::from_nanos(1_000);
    for queue in &mut queues {
        queue.submit(now, &mut |_, _| {});
        queue.draw(now, &mut |_, _| {});
    }
    let leased = |account: &Account| lock(&account.0).buckets[2].unwrap().leased;
    assert!(leased(&account) > 0);
    drop(queues.pop());
    // What nobody has used in a slice goes back at its end.
    for slice in 1..3 {
        for queue in &mut queues {
            queue.draw(now + SLICE * slice, &mut |_, _| {});
        }
    }
    assert_eq!(leased(&account), 0);
    assert!(
        queues.iter().all(|queue| queue.next_draw.is_none()),
        "idle costs nothing"
    );
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    assert_eq!(RateLimit::new(0, None), Err(RateLimitError::Rate));
    assert_eq!(RateLimit::new(u64::MAX, None), Err(RateLimitError::Rate));
    let huge = RateLimit::new(RateLimit::RATE_MAX, None).unwrap();
    assert_eq!(huge.burst(), RateLimit::RATE_MAX.div_ceil(10));
    let small = RateLimit::new(1_000, Some(9));
    assert_eq!(small, Err(RateLimitError::Burst { least: 10 }));
    assert!(RateLimit::new(1_000, Some(10)).is_ok());
    assert!(RateLimit::new(1_000, Some(u64::MAX)).is_err());
    assert_eq!(RateLimit::new(1, None).unwrap().burst(), 1);
    assert_eq!(
        small.unwrap_err().to_string(),
        "needs a burst of 10 to 1125899906842624: at least a hundredth of the limit"
    );
}
