//! What may be done on a namespace in a second, and the account from which its queues on all reactors draw.
//!
//! Every limit is a bucket of tokens, one for a request or a byte, that fills at the limit's rate up to its burst. A request of
//! a class, read or write, takes its tokens from each bucket that concerns it: its class's and the total ones. A queue does not
//! come here for each request: it leases tokens for a [`SLICE`], spends them on its own, and gives back what is left. What is
//! leased counts as if it were still in the bucket, so that over any time no more is begun than the rate allows in it, and the
//! burst. A request that is larger than a burst begins when the bucket is full, and the rate pays it off afterwards.
//!
//! Queues whose requests wait stand in a line, one line for each class. The first draws a slice's worth and goes to the end of
//! it, so that they share alike, whatever they ask for; meanwhile nobody leases more than is asked for at once. Where both
//! classes wait for a total limit, they take turns.
//!
//! It reads no clock: time is an argument. It comes from reactors, which know it by the turn of their loops; by what the rate brings
//! in the longest turn a limit may be passed. A lock guards it,
//! which a queue takes a few times in a slice at most, and never within a submission.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use weir_block::{Operation, OperationKind};
use weir_reactor::Instant;

use super::table::{Message, QueueMailbox};
use crate::support::lock;
use crate::when_all::WhenAll;

/// For how long a queue leases tokens.
pub(super) const SLICE: Duration = Duration::from_millis(1);
/// After this time the first of a line that does not come goes to its end.
const PATIENCE: Duration = Duration::from_millis(20);
/// So many turns a queue that has drawn for a large request is passed over, at most.
const TURNS_AHEAD_MAX: u32 = 64;
const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// A rate and what may be done at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    rate: u64,
    burst: u64,
}

/// Why a rate cannot be a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RateLimitError {
    /// The rate is not one that can be asked for.
    #[error("must be 1 to {max} in a second", max = RateLimit::RATE_MAX)]
    Rate,
    /// The burst is too small for the rate, or too large.
    #[error(
        "needs a burst of {least} to {max}: at least a hundredth of the limit",
        max = RateLimit::RATE_MAX
    )]
    Burst {
        /// The smallest burst for the rate.
        least: u64,
    },
}

impl RateLimit {
    /// The highest rate, and the largest burst.
    pub const RATE_MAX: u64 = 1 << 50;
    /// The smallest burst is this part of what may be done in a second: queues draw by the slice.
    const BURST_PART_MIN: u64 = 100;
    /// The burst is this part of it unless given.
    const BURST_PART: u64 = 10;

    /// `rate` in a second, and `burst` at once; a tenth of the rate unless given.
    ///
    /// # Errors
    /// [`RateLimitError`].
    pub fn new(rate: u64, burst: Option<u64>) -> Result<Self, RateLimitError> {
        if !(1..=Self::RATE_MAX).contains(&rate) {
            return Err(RateLimitError::Rate);
        }
        let least = rate.div_ceil(Self::BURST_PART_MIN);
        let burst = burst.unwrap_or(rate.div_ceil(Self::BURST_PART));
        if !(least..=Self::RATE_MAX).contains(&burst) {
            return Err(RateLimitError::Burst { least });
        }
        Ok(RateLimit { rate, burst })
    }

    /// In a second.
    #[must_use]
    pub fn rate(self) -> u64 {
        self.rate
    }

    /// At once.
    #[must_use]
    pub fn burst(self) -> u64 {
        self.burst
    }
}

/// The limits of a namespace. Reads, compares and verifies are of the class of reads; writes, compare-and-writes and write zeroes
/// of that of writes. Bandwidth counts the bytes that are read or written for the host, so none for verifies and write zeroes.
/// Deallocates and flushes are not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests of the class of reads.
    pub read_iops: Option<RateLimit>,
    /// Requests of the class of writes.
    pub write_iops: Option<RateLimit>,
    /// Requests of both classes.
    pub total_iops: Option<RateLimit>,
    /// Bytes read.
    pub read_bandwidth: Option<RateLimit>,
    /// Bytes written.
    pub write_bandwidth: Option<RateLimit>,
    /// Bytes read and written.
    pub total_bandwidth: Option<RateLimit>,
}

impl Limits {
    fn each(&self) -> [Option<RateLimit>; BUCKETS] {
        [
            self.read_iops,
            self.write_iops,
            self.total_iops,
            self.read_bandwidth,
            self.write_bandwidth,
            self.total_bandwidth,
        ]
    }
}

/// What waited for a limit since the volume was opened under it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Requests that had to wait and went on.
    pub requests: u64,
    /// How long they waited, all together, in nanoseconds.
    pub waited_ns: u64,
    /// Requests that wait now.
    pub waiting: u64,
}

/// What a request is limited as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Read,
    Write,
}

impl Class {
    pub(super) const ALL: [Class; CLASSES] = [Class::Read, Class::Write];

    /// The class of a request and the bytes that count; none: it is not limited.
    pub(super) fn of(operation: &Operation, block_shift: u32) -> Option<(Class, u64)> {
        let bytes = operation
            .range()
            .map_or(0, |(_, blocks)| blocks << block_shift);
        Some(match operation.kind() {
            OperationKind::Read | OperationKind::Compare => (Class::Read, bytes),
            OperationKind::Verify => (Class::Read, 0),
            OperationKind::Write | OperationKind::CompareWrite => (Class::Write, bytes),
            OperationKind::WriteZeroes => (Class::Write, 0),
            OperationKind::Deallocate | OperationKind::Flush => return None,
        })
    }

    fn other(self) -> Class {
        match self {
            Class::Read => Class::Write,
            Class::Write => Class::Read,
        }
    }

    /// Its own buckets and the total ones, for requests and for bytes.
    fn buckets(self) -> [[usize; 2]; 2] {
        match self {
            Class::Read => [[0, 2], [3, 5]],
            Class::Write => [[1, 2], [4, 5]],
        }
    }
}

pub(super) const CLASSES: usize = 2;
const BUCKETS: usize = 6;
/// Of [`Class::buckets`]: where the total ones stand.
const TOTAL: usize = 1;

/// Tokens of one class that a queue holds, for requests and for bytes; none: there is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tokens([Option<u64>; 2]);

impl Tokens {
    /// Pays for one request, where there is enough for it.
    pub(super) fn pay(&mut self, bytes: u64) -> bool {
        let costs = [1, bytes];
        let enough = |(held, cost): (&Option<u64>, u64)| held.is_none_or(|held| held >= cost);
        if !self.0.iter().zip(costs).all(enough) {
            return false;
        }
        for (held, cost) in self.0.iter_mut().zip(costs) {
            *held = held.map(|held| held - cost);
        }
        true
    }

    /// Whether none is left that would have to be given back.
    pub(super) fn is_spent(self) -> bool {
        self.0.iter().all(|held| held.is_none_or(|held| held == 0))
    }
}

/// One limit. Levels are in thousand millionths of a token, so that a nanosecond of a rate is a whole number.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    limit: RateLimit,
    /// What is to be had; less than nothing after a request that is larger than the burst.
    level: i128,
    /// What queues hold, or have spent without having said so.
    leased: i128,
}

fn parts(tokens: u64) -> i128 {
    i128::from(tokens) * NANOSECONDS_PER_SECOND
}

impl Bucket {
    fn capacity(&self) -> i128 {
        parts(self.limit.burst) - self.leased
    }

    fn fill(&mut self, elapsed: Duration) {
        let gained = i128::from(self.limit.rate) * i128::try_from(elapsed.as_nanos()).unwrap_or(0);
        self.level = (self.level + gained).min(self.capacity());
    }

    /// In how long `cost` can be paid.
    fn wait(&self, cost: u64) -> Duration {
        let needed = parts(cost.min(self.limit.burst));
        if self.level >= needed {
            return Duration::ZERO;
        }
        let rate = i128::from(self.limit.rate);
        let nanoseconds = (needed - self.level + rate - 1) / rate;
        let wait = Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
        // The rest is leased: it comes back within a slice.
        if self.capacity() < needed {
            wait.max(SLICE)
        } else {
            wait
        }
    }

    /// How long the rate takes to make up for `cost`.
    fn time_of(&self, cost: u64) -> Duration {
        let nanoseconds = parts(cost) / i128::from(self.limit.rate);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Whole tokens for a slice.
    fn share(&self) -> u64 {
        let slice = i128::from(self.limit.rate) * SLICE.as_nanos() as i128;
        let tokens = self.level.min(slice).max(0) / NANOSECONDS_PER_SECOND;
        u64::try_from(tokens).unwrap_or(0)
    }
}

/// Names a queue.
pub(super) type QueueId = u64;

/// A queue as the account knows it.
pub(super) struct Member {
    id: QueueId,
    mailbox: Arc<QueueMailbox>,
    /// What it was leased, by class: requests and bytes.
    leased: [[u64; 2]; CLASSES],
    /// When it comes again, by class, where it waits.
    due: [Instant; CLASSES],
    /// Requests that wait in it, by class.
    pub(super) waiting: [u64; CLASSES],
    /// What it has drawn in its turn, by class; with a large request, of its next turns too.
    drawn: [Duration; CLASSES],
}

/// The buckets of a namespace, and the queues that draw from them.
#[derive(Default)]
pub(super) struct Ledger {
    limits: Limits,
    buckets: [Option<Bucket>; BUCKETS],
    updated: Option<Instant>,
    members: Vec<Member>,
    lines: [VecDeque<QueueId>; CLASSES],
    /// Whether the first of each line lacks nothing but tokens of the total limits.
    wants_total: [bool; CLASSES],
    /// Whose turn it is where both want those.
    turn: usize,
    next_id: QueueId,
    requests: u64,
    waited_ns: u64,
}

/// The account of a namespace.
#[derive(Default)]
pub(super) struct Account(Mutex<Ledger>);

impl Account {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        let account = Account::default();
        lock(&account.0).set(limits);
        Arc::new(account)
    }

    pub(super) fn limits(&self) -> Limits {
        lock(&self.0).limits
    }

    /// Changes the limits. Every queue is told, and holds `told` until it has taken them over.
    pub(super) fn set_limits(&self, limits: Limits, told: &Arc<WhenAll>) {
        let mut ledger = lock(&self.0);
        ledger.set(limits);
        let mailboxes: Vec<_> = ledger
            .members
            .iter()
            .map(|one| one.mailbox.clone())
            .collect();
        drop(ledger);
        for mailbox in mailboxes {
            mailbox.post(Message::Limits(Arc::clone(told)));
        }
    }

    pub(super) fn throttled(&self) -> Throttled {
        let ledger = lock(&self.0);
        let waiting = ledger.members.iter().flat_map(|member| member.waiting);
        Throttled {
            requests: ledger.requests,
            waited_ns: ledger.waited_ns,
            waiting: waiting.sum(),
        }
    }

    /// Adds a queue, which holds no tokens yet.
    pub(super) fn add(&self, mailbox: &Arc<QueueMailbox>) -> QueueId {
        let mut ledger = lock(&self.0);
        let id = ledger.next_id;
        ledger.next_id += 1;
        ledger.members.push(Member {
            id,
            mailbox: Arc::clone(mailbox),
            leased: Default::default(),
            due: Default::default(),
            waiting: Default::default(),
            drawn: Default::default(),
        });
        id
    }

    /// Removes a queue, with what it has left.
    pub(super) fn remove(&self, id: QueueId, left: [Tokens; CLASSES]) {
        let mut ledger = lock(&self.0);
        for class in Class::ALL {
            ledger.settle(id, class, left[class as usize]);
            ledger.leave(id, class);
        }
        ledger.members.retain(|member| member.id != id);
    }

    pub(super) fn is_limited(&self) -> bool {
        lock(&self.0).buckets.iter().any(Option::is_some)
    }

    /// A queue comes to give back and to draw.
    pub(super) fn visit(&self, now: Instant) -> MutexGuard<'_, Ledger> {
        let mut ledger = lock(&self.0);
        ledger.fill(now);
        ledger
    }
}

impl Ledger {
    fn set(&mut self, limits: Limits) {
        self.limits = limits;
        for (index, limit) in limits.each().into_iter().enumerate() {
            let leased = self.leased(index);
            let bucket = limit.map(|limit| {
                let mut bucket = Bucket {
                    limit,
                    level: 0,
                    leased,
                };
                let full = bucket.capacity();
                bucket.level = self.buckets[index].map_or(full, |before| before.level.min(full));
                bucket
            });
            self.buckets[index] = bucket;
        }
    }

    /// What queues were leased of a bucket.
    fn leased(&self, index: usize) -> i128 {
        let mut sum = 0;
        for class in Class::ALL {
            for (kind, buckets) in class.buckets().iter().enumerate() {
                if buckets.contains(&index) {
                    let of = |member: &Member| parts(member.leased[class as usize][kind]);
                    sum += self.members.iter().map(of).sum::<i128>();
                }
            }
        }
        sum
    }

    fn fill(&mut self, now: Instant) {
        let before = self.updated.unwrap_or(now);
        self.updated = Some(before.max(now));
        let elapsed = now.since(before);
        for bucket in self.buckets.iter_mut().flatten() {
            bucket.fill(elapsed);
        }
    }

    pub(super) fn member(&mut self, id: QueueId) -> &mut Member {
        let member = self.members.iter_mut().find(|member| member.id == id);
        member.expect("a queue is a member until it is dropped")
    }

    /// Takes back what is left of a lease.
    pub(super) fn settle(&mut self, id: QueueId, class: Class, left: Tokens) {
        let leased = std::mem::take(&mut self.member(id).leased[class as usize]);
        for (kind, buckets) in class.buckets().into_iter().enumerate() {
            let left = left.0[kind].unwrap_or(0).min(leased[kind]);
            for index in buckets {
                if let Some(bucket) = &mut self.buckets[index] {
                    bucket.leased -= parts(leased[kind]);
                    bucket.level = (bucket.level + parts(left)).min(bucket.capacity());
                }
            }
        }
    }

    /// For requests and for bytes: the least that `of` says of the buckets that limit them.
    fn tokens(&self, class: Class, of: impl Fn(&Bucket) -> u64) -> Tokens {
        let least = |buckets: [usize; 2]| {
            let limiting = buckets.iter().filter_map(|&index| self.buckets[index]);
            limiting.map(|bucket| of(&bucket)).min()
        };
        Tokens(class.buckets().map(least))
    }

    /// No tokens, as the limits are now.
    pub(super) fn nothing(&self, class: Class) -> Tokens {
        self.tokens(class, |_| 0)
    }

    /// A request goes on that waited.
    pub(super) fn note_waited(&mut self, waited: Duration) {
        self.requests += 1;
        let nanoseconds = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.waited_ns = self.waited_ns.saturating_add(nanoseconds);
    }

    /// Pays for one request, or says in how long to come again; then the queue stands in line.
    pub(super) fn pay(
        &mut self,
        id: QueueId,
        class: Class,
        bytes: u64,
        now: Instant,
    ) -> Result<(), Duration> {
        let paid = self.pay_now(id, class, bytes, now);
        if let Err(wait) = paid {
            self.member(id).due[class as usize] = now + wait;
        }
        paid
    }

    fn pay_now(
        &mut self,
        id: QueueId,
        class: Class,
        bytes: u64,
        now: Instant,
    ) -> Result<(), Duration> {
        if self.nothing(class) == Tokens::default() {
            return Ok(());
        }
        if let Some(first) = self.first_in_line(class, now)
            && first != id
        {
            self.join(id, class);
            let due = self.member(first).due[class as usize];
            return Err(due.since(now).max(SLICE));
        }
        let (own, total) = (self.wait(class, 0, bytes), self.wait(class, TOTAL, bytes));
        let other = class.other();
        let is_others_turn = self.wants_total[other as usize]
            && self.turn == other as usize
            && self.is_total_limited();
        let wait = if own.is_zero() && is_others_turn {
            let first = self.lines[other as usize].front().copied();
            let due = first.map(|first| self.member(first).due[other as usize]);
            due.map_or(SLICE, |due| due.since(now).max(SLICE))
        } else {
            own.max(total)
        };
        if !wait.is_zero() {
            self.wants_total[class as usize] = own.is_zero();
            self.join(id, class);
            return Err(wait);
        }
        self.draw(id, class, bytes);
        Ok(())
    }

    fn is_total_limited(&self) -> bool {
        self.limits.total_iops.is_some() || self.limits.total_bandwidth.is_some()
    }

    /// The first of a line. Who does not come when due goes to the end, and so does who has drawn what this turn would bring.
    fn first_in_line(&mut self, class: Class, now: Instant) -> Option<QueueId> {
        let passes_max = self.lines[class as usize].len() * TURNS_AHEAD_MAX as usize;
        for _ in 0..passes_max {
            let is_alone = self.lines[class as usize].len() < 2;
            let first = *self.lines[class as usize].front()?;
            let member = self.member(first);
            let is_ahead = member.drawn[class as usize] >= SLICE;
            let is_late = now > member.due[class as usize] + PATIENCE;
            if is_alone || !(is_ahead || is_late) {
                break;
            }
            if is_ahead {
                member.drawn[class as usize] -= SLICE;
            }
            self.give_way(class);
            self.lines[class as usize].push_back(first);
        }
        self.lines[class as usize].front().copied()
    }

    fn join(&mut self, id: QueueId, class: Class) {
        let line = &mut self.lines[class as usize];
        if !line.contains(&id) {
            line.push_back(id);
        }
    }

    /// No request of the class waits in the queue any more.
    pub(super) fn leave(&mut self, id: QueueId, class: Class) {
        if self.lines[class as usize].front() == Some(&id) {
            self.give_way(class);
        }
        self.lines[class as usize].retain(|&other| other != id);
        self.member(id).drawn[class as usize] = Duration::ZERO;
    }

    /// The first of a line is no longer the first.
    fn give_way(&mut self, class: Class) {
        self.lines[class as usize].pop_front();
        self.wants_total[class as usize] = false;
        self.turn = class.other() as usize;
    }

    /// In how long the class's own buckets, or the total ones, can pay for a request.
    fn wait(&self, class: Class, which: usize, bytes: u64) -> Duration {
        let costs = [1, bytes].into_iter().zip(class.buckets());
        let wait = |(cost, buckets): (u64, [usize; 2])| {
            let bucket = self.buckets[buckets[which]];
            bucket.map_or(Duration::ZERO, |bucket| bucket.wait(cost))
        };
        costs.map(wait).max().unwrap_or_default()
    }

    fn draw(&mut self, id: QueueId, class: Class, bytes: u64) {
        self.wants_total[class as usize] = false;
        let mut time = Duration::ZERO;
        for (cost, buckets) in [1, bytes].into_iter().zip(class.buckets()) {
            for index in buckets {
                if let Some(bucket) = &mut self.buckets[index] {
                    bucket.level -= parts(cost);
                    time = time.max(bucket.time_of(cost));
                }
            }
        }
        let is_first = self.lines[class as usize].front() == Some(&id);
        let is_alone = self.lines[class as usize].len() < 2;
        let drawn = &mut self.member(id).drawn[class as usize];
        *drawn = (*drawn + time).min(SLICE * TURNS_AHEAD_MAX);
        if *drawn < SLICE {
            return;
        }
        *drawn = match is_alone {
            true => Duration::ZERO,
            false => *drawn - SLICE,
        };
        self.turn = class.other() as usize;
        if is_first {
            self.give_way(class);
        }
    }

    /// Tokens for a slice, where nobody waits for them.
    pub(super) fn lease(&mut self, id: QueueId, class: Class) -> Tokens {
        let contended = !self.lines[class as usize].is_empty()
            || self.is_total_limited() && !self.lines[class.other() as usize].is_empty();
        let share = self.tokens(class, Bucket::share);
        // Tokens for requests are of no use without some for bytes.
        if contended || share.0.contains(&Some(0)) {
            return self.nothing(class);
        }
        let leased = share.0.map(|tokens| tokens.unwrap_or(0));
        for (tokens, buckets) in leased.into_iter().zip(class.buckets()) {
            for index in buckets {
                if let Some(bucket) = &mut self.buckets[index] {
                    bucket.level -= parts(tokens);
                    bucket.leased += parts(tokens);
                }
            }
        }
        self.member(id).leased[class as usize] = leased;
        share
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
