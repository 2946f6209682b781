//! Where commands spend their time: histograms by stage.
//!
//! A command's [`Course`] is kept in its slot. It adds up the time spent in each stage, from the time of the reactor's loop, which
//! is read once per turn. It leaves the slot with the answer. When the send of the answer has ended, the reactor records the
//! course by itself. Nothing here reads a clock. A histogram is allocated at the first command of its kind.

use weir_reactor::Instant;

/// Buckets of a histogram.
const BUCKETS: usize = 128;
/// Two to this power nanoseconds are the finest difference that is told apart: 64 ns.
const UNIT_SHIFT: u32 = 6;
/// Two to this power buckets divide each power of two.
const SPLIT_SHIFT: u32 = 2;
/// Buckets that divide each power of two.
const SPLIT: u64 = 1 << SPLIT_SHIFT;

/// How long things took, in nanoseconds, in 128 buckets whose width is a quarter of their power of two (64 ns at least).
///
/// Times of 481 s and more share the last bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum_ns: u64,
    max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram {
            buckets: [0; BUCKETS],
            sum_ns: 0,
            max_ns: 0,
        }
    }
}

/// The bucket that a time belongs to.
fn bucket_of(value_ns: u64) -> usize {
    let units = value_ns >> UNIT_SHIFT;
    if units < SPLIT {
        return units as usize;
    }
    let power = units.ilog2();
    let part = (units >> (power - SPLIT_SHIFT)) & (SPLIT - 1);
    let bucket = u64::from(power - SPLIT_SHIFT + 1) * SPLIT + part;
    (bucket as usize).min(BUCKETS - 1)
}

/// The first time, in nanoseconds, that is too long for a bucket.
fn end_of(bucket: usize) -> u64 {
    let next = bucket as u64 + 1;
    if next <= SPLIT {
        return next << UNIT_SHIFT;
    }
    let power = (next / SPLIT) as u32 - 1;
    (SPLIT + next % SPLIT) << (power + UNIT_SHIFT)
}

impl Histogram {
    /// The worst by which a quantile is too long: a part of the true value (and 63 ns where that is more).
    pub const QUANTILE_ERROR: f64 = 1.0 / SPLIT as f64;

    /// Counts `count` times of `value_ns` nanoseconds.
    pub fn record(&mut self, value_ns: u64, count: u64) {
        self.buckets[bucket_of(value_ns)] += count;
        self.sum_ns = self.sum_ns.wrapping_add(value_ns.wrapping_mul(count));
        self.max_ns = self.max_ns.max(value_ns);
    }

    /// Counts what another one counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// What was counted since this was equal to `earlier`. The longest is exact where it grew, else too long by
    /// [`Histogram::QUANTILE_ERROR`] at most.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut new = Histogram {
            buckets: std::array::from_fn(|bucket| {
                self.buckets[bucket].saturating_sub(earlier.buckets[bucket])
            }),
            sum_ns: self.sum_ns.wrapping_sub(earlier.sum_ns),
            max_ns: self.max_ns,
        };
        if self.max_ns == earlier.max_ns {
            new.max_ns = new.quantile_ns(1.0);
        }
        new
    }

    /// How many times were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum, in nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest, in nanoseconds; exact. Zero where there is none.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean, in nanoseconds, rounded down. Zero where there is none.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// The time, in nanoseconds, that `quantile` (0 to 1) of all did not exceed. Never too short, and too long by
    /// [`Histogram::QUANTILE_ERROR`] at most. Zero where there is none.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        let count = self.count();
        let rank = ((quantile * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut below = 0;
        for (bucket, counted) in self.buckets.iter().enumerate() {
            below += counted;
            if below >= rank {
                return match bucket {
                    // Its end is not known.
                    LAST_BUCKET => self.max_ns,
                    _ => self.max_ns.min(end_of(bucket) - 1),
                };
            }
        }
        0
    }

    /// How many were shorter than 2 to the power of `exponent` nanoseconds, 6 to 38; exact.
    #[must_use]
    pub fn below_power(&self, exponent: u32) -> u64 {
        assert!(
            (UNIT_SHIFT..=38).contains(&exponent),
            "a bucket begins there"
        );
        let bucket = bucket_of(1 << exponent);
        self.buckets[..bucket].iter().sum()
    }
}

const LAST_BUCKET: usize = BUCKETS - 1;

/// A stage of a command's way through the front end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Receiving: from the turn of the loop that saw its first byte until all of it was there, its data included.
    WireIn,
    /// Waiting in the front end: for a slot, for a buffer, and until the volume took its request.
    Queue,
    /// Until its last request on the volume ended.
    Volume,
    /// Until the kernel had taken the last byte of its answer.
    WireOut,
    /// All of these together.
    Total,
}

impl Stage {
    /// All, in the order of a command's way.
    pub const ALL: [Stage; 5] = [
        Stage::WireIn,
        Stage::Queue,
        Stage::Volume,
        Stage::WireOut,
        Stage::Total,
    ];
}

/// What kind of command it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CommandKind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Any other command that asks something of a volume.
    Other,
}

impl CommandKind {
    /// All.
    pub const ALL: [CommandKind; 3] = [CommandKind::Read, CommandKind::Write, CommandKind::Other];
}

/// The times of commands of one kind, by stage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StageTimes {
    stages: [Histogram; Stage::ALL.len()],
}

/// Bound on the memory that one kind of command takes, for a connection or an export on one reactor.
const _: () = assert!(size_of::<StageTimes>() < 5300);

impl StageTimes {
    /// The times of a stage.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> &Histogram {
        &self.stages[stage as usize]
    }

    /// How many commands it was.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.stage(Stage::Total).count()
    }

    fn since(&self, earlier: &StageTimes) -> StageTimes {
        StageTimes {
            stages: std::array::from_fn(|stage| self.stages[stage].since(&earlier.stages[stage])),
        }
    }

    fn merge(&mut self, other: &StageTimes) {
        for (mine, theirs) in self.stages.iter_mut().zip(&other.stages) {
            mine.merge(theirs);
        }
    }
}

/// Times of the commands of a connection or an export, by kind. A kind that did not occur takes no memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Latency {
    kinds: [Option<Box<StageTimes>>; CommandKind::ALL.len()],
}

impl Latency {
    /// What it takes with commands of every kind, in bytes.
    pub const MEMORY_BYTES_MAX: usize = CommandKind::ALL.len() * size_of::<StageTimes>();

    /// The times of one kind of command; none: there was no such command.
    #[must_use]
    pub fn kind(&self, kind: CommandKind) -> Option<&StageTimes> {
        self.kinds[kind as usize].as_deref()
    }

    /// Whether there was no command.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.iter().all(Option::is_none)
    }

    /// Counts what another one counted.
    pub fn merge(&mut self, other: &Latency) {
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            if let Some(theirs) = theirs {
                mine.get_or_insert_default().merge(theirs);
            }
        }
    }

    /// What was counted since this was equal to `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Latency) -> Latency {
        let kind = |kind: usize| {
            let (now, then) = (self.kinds[kind].as_ref()?, earlier.kinds[kind].as_ref());
            Some(match then {
                Some(then) => Box::new(now.since(then)),
                None => now.clone(),
            })
        };
        Latency {
            kinds: std::array::from_fn(kind),
        }
    }

    /// Counts `count` commands that spent so many nanoseconds in [`Stage::WireIn`], [`Stage::Queue`], [`Stage::Volume`] and
    /// [`Stage::WireOut`].
    pub fn add(&mut self, kind: CommandKind, spent_ns: [u64; 4], count: u64) {
        let times = self.kinds[kind as usize].get_or_insert_default();
        let [wire_in, queue, volume, wire_out] = spent_ns;
        let total = wire_in + queue + volume + wire_out;
        let all = [wire_in, queue, volume, wire_out, total];
        for (stage, value) in times.stages.iter_mut().zip(all) {
            // Most often a command spends time in few of them.
            match value {
                0 => stage.buckets[0] += count,
                _ => stage.record(value, count),
            }
        }
    }

    /// Records commands whose send ended `now`.
    pub fn record(&mut self, run: &Run, now: Instant) {
        let course = &run.course;
        let Some(kind) = course.kind else {
            return;
        };
        let [wire_in, queue, volume] = course.spent_ns;
        let wire_out = nanoseconds(course.since, now);
        let spent = [wire_in, queue, volume, wire_out];
        self.add(kind, spent, u64::from(run.count));
    }
}

fn nanoseconds(from: Instant, to: Instant) -> u64 {
    to.as_nanos().saturating_sub(from.as_nanos())
}

/// How one command's time was spent until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Course {
    /// When the stage began that it is in.
    since: Instant,
    /// Time spent in [`Stage::WireIn`], [`Stage::Queue`] and [`Stage::Volume`].
    spent_ns: [u64; 3],
    export: u32,
    /// None until it asked something of a volume.
    kind: Option<CommandKind>,
}

/// Arrival times of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Arrival of its first byte.
    pub first: Instant,
    /// Arrival of the whole command, without its data.
    pub whole: Instant,
}

impl Arrival {
    /// All of it came at once.
    #[must_use]
    pub fn at(now: Instant) -> Self {
        Arrival {
            first: now,
            whole: now,
        }
    }
}

impl Course {
    /// As `==`, for courses of one kind: without a branch for each part.
    #[inline]
    fn is_equal(&self, other: &Course) -> bool {
        let parts = |course: &Course| {
            let [wire_in, queue, volume] = course.spent_ns;
            [course.since.as_nanos(), wire_in, queue, volume]
        };
        let (mine, theirs) = (parts(self), parts(other));
        let differs = (0..4).fold(0, |differs, part| differs | (mine[part] ^ theirs[part]));
        differs | u64::from(self.export ^ other.export) == 0
    }

    /// Begins the course of a command that gets its slot `now`.
    pub fn begin(&mut self, arrival: Arrival, export: u32, now: Instant) {
        *self = Course {
            since: arrival.first,
            export,
            ..Course::default()
        };
        self.spend(Stage::WireIn, arrival.whole);
        self.spend(Stage::Queue, now);
    }

    /// The number of its export.
    #[must_use]
    pub fn export(&self) -> u32 {
        self.export
    }

    /// Clears the kind: the course is not recorded until [`Course::ask`] is called.
    pub fn forget(&mut self) {
        self.kind = None;
    }

    /// It asks something of a volume.
    pub fn ask(&mut self, kind: CommandKind) {
        self.kind = Some(kind);
    }

    /// The time since the last call was spent in this stage, which is not one of the last two.
    #[inline]
    pub fn spend(&mut self, stage: Stage, now: Instant) {
        // Most often all of it is in one turn of the loop. A time before the last one was told late, and is over already.
        if now > self.since {
            self.spent_ns[stage as usize] += nanoseconds(self.since, now);
            self.since = now;
        }
    }
}

/// Commands with the same course. What runs through one turn of the loop together has one, and is recorded at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Run {
    course: Course,
    count: u32,
}

impl Run {
    /// A command by itself.
    pub fn of(course: &Course) -> Self {
        Run {
            course: *course,
            count: 1,
        }
    }

    /// The number of their export.
    pub fn export(&self) -> u32 {
        self.course.export()
    }
}

/// Courses of commands whose answers leave together. As long as the answers of one send at most.
#[derive(Debug, Default)]
pub struct Runs {
    runs: Vec<Run>,
    /// Index after the latest run of each kind, to which a course may be added: kinds take turns. 0: there is none.
    latest: [usize; CommandKind::ALL.len()],
}

impl Runs {
    /// Adds the course of a command, if it asked something of a volume.
    #[inline]
    pub fn add(&mut self, course: &Course) {
        let Some(kind) = course.kind else {
            return;
        };
        let latest = &mut self.latest[kind as usize];
        if let Some(run) = self.runs.get_mut(latest.wrapping_sub(1))
            && run.course.is_equal(course)
        {
            run.count += 1;
            return;
        }
        self.runs.push(Run::of(course));
        *latest = self.runs.len();
    }

    /// Takes all out, one after the other.
    pub fn drain(&mut self, each: impl FnMut(&Run)) {
        if self.is_empty() {
            return;
        }
        self.runs.iter().for_each(each);
        self.runs.clear();
        self.latest = Default::default();
    }

    /// Tells whether there are none.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

#[cfg(test)]
mod tests;
