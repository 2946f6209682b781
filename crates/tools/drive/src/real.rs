//! Qualifies drives by writing them: volumes, reactors and the reactors' clock.
//!
//! A drive is written by one reactor through one queue, which always has as many writes as were asked for. All drives begin a pass together. What was
//! measured is handed out as it goes, so that it can be kept; a stop ends the pass after what is in flight, and it can be taken up again.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use weir_block::{HealthFuture, HealthReport, Operation, ReadBuffers, Volume, VolumeError};
use weir_load::{Ended, Lane, LaneError, PROGRESS_INTERVAL, Stop};
use weir_memory::{ALIGNMENT, Views, views_len};
use weir_reactor::{Instant, Reactor, Remote, Timer};

use crate::config::{Config, Limits};
use crate::course::{Course, Current, Step};
use crate::data::{BLOCK_BYTES_MAX, Data};
use crate::document::PassKind;
use crate::state::{DriveState, Identity};

/// The most bytes that one request deallocates in a purge.
const PURGE_BYTES: u64 = 1 << 30;
/// How often a drive of which nothing is asked looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// How long a pass that was stopped waits for what is in flight before it wishes that it end early.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// At so many places it is looked whether a drive holds what a run wrote to it.
const PLACES: u64 = 16;
/// How long a drive has to say how it is.
const HEALTH_WAIT: Duration = Duration::from_secs(10);
/// While it is written, a drive is left alone for so many times as long as it took to answer, so that asking it costs it little.
const HEALTH_REST: u32 = 1000;
/// How often what was measured so far is handed out to be kept.
pub const KEEP_EVERY: Duration = Duration::from_secs(10);

/// Why a drive was not measured to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DriveError {
    /// A request failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// A drive does not return what was just written to it.
    #[error(
        "{drive} does not hold what was written to it at byte {offset}: reading it gives other data"
    )]
    Wrong {
        /// The drive.
        drive: String,
        /// Where.
        offset: u64,
    },
    /// A drive does not hold what was written to it before the run was interrupted.
    #[error(
        "{drive} does not hold what was written to it at byte {offset} before: it is another drive, or something wrote to it meanwhile; begin anew without --resume"
    )]
    Foreign {
        /// The drive.
        drive: String,
        /// Where.
        offset: u64,
    },
}

/// A drive to measure.
#[derive(Clone)]
pub struct Subject {
    /// It.
    pub volume: Arc<dyn Volume>,
    /// How far it is.
    pub state: DriveState,
}

/// How far a drive is.
#[derive(Debug, Clone)]
pub struct Progress {
    /// Which, by its place.
    pub drive: usize,
    /// The pass.
    pub pass: PassKind,
    /// Bytes written in it.
    pub written_bytes: u64,
    /// Bytes that it has.
    pub end_bytes: u64,
    /// Since the pass began or was taken up.
    pub elapsed: Duration,
    /// Bytes written since it began or was taken up.
    pub fresh_bytes: u64,
    /// For how long nothing is asked of the drive yet.
    pub idle_left: Option<Duration>,
    /// From time to time: the pass as it is, to be kept.
    pub kept: Option<Box<Current>>,
}

/// What is asked for on one drive, on its reactor.
#[derive(Clone)]
struct Job {
    index: usize,
    volume: Arc<dyn Volume>,
    config: Config,
    data: Data,
    size_bytes: u64,
    stop: Stop,
}

/// What a drive takes.
#[must_use]
pub fn limits(volume: &Arc<dyn Volume>) -> Limits {
    let geometry = volume.geometry();
    let block = u64::from(geometry.block_size.bytes());
    let longest = u64::from(geometry.transfer_blocks_max) * block;
    Limits {
        drive: volume.name(),
        capacity_bytes: geometry.length_bytes(),
        multiple: block,
        block_bytes_max: longest.min(BLOCK_BYTES_MAX),
        read_only: geometry.read_only,
        deallocates: geometry.deallocate_blocks > 0,
    }
}

/// What makes a drive this one.
#[must_use]
pub fn identity(volume: &Arc<dyn Volume>, url: String) -> Identity {
    let geometry = volume.geometry();
    Identity {
        url,
        capacity_bytes: geometry.length_bytes(),
        block_size_bytes: geometry.block_size.bytes(),
    }
}

/// A mark for a drive that has none yet.
#[must_use]
pub fn mark(reactor: &Reactor) -> u64 {
    let mut bytes = [0; 8];
    reactor.system().random_bytes(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// The data of a run: that of its first drive, of which that of the others is made.
#[must_use]
pub fn data(config: &Config, drives: &[DriveState]) -> Data {
    let first = drives.first().and_then(|drive| drive.mark);
    Data::new(config.seed, first.unwrap_or_default())
}

/// What a drive holds where a run wrote to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// What the run wrote, and so it is the drive that it was.
    Written,
    /// Zeroes.
    Zeroes,
    /// Something else, or not everywhere what was written: first at this byte.
    Other(u64),
}

/// Looks at places to which the run wrote before it was interrupted, evenly over what is known to have been written; where nothing is, at the first block, which
/// may have been written since that was kept. At each is what any of the passes wrote there, for more may have been made than was kept; zeroes, where
/// a pass deallocates. What is compared is the beginning of a block, which no interruption leaves half written.
///
/// # Errors
/// [`LaneError`]: reading failed.
pub async fn held(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    config: &Config,
    data: &Data,
    state: &DriveState,
) -> Result<Held, LaneError> {
    let data = data.of(state.mark.unwrap_or_default());
    let last = (state.known_bytes() / config.block_bytes).saturating_sub(1);
    let mut places: Vec<u64> = (0..PLACES)
        .map(|place| (u128::from(last) * u128::from(place) / u128::from(PLACES - 1)) as u64)
        .collect();
    places.dedup();
    let (mut written, mut zero) = (false, None);
    for place in places {
        let offset = place * config.block_bytes;
        let bytes = config.block_bytes.min(state.size_bytes - offset);
        let least = (ALIGNMENT as u64).max(u64::from(volume.geometry().block_size.bytes()));
        let read = read_at(reactor, volume, offset, bytes.min(least)).await?;
        let is_of = |&pass: &PassKind| data.at(pass, offset, bytes)[..read.len()] == read[..];
        if config.passes.iter().any(is_of) {
            written = true;
        } else if read.iter().all(|&byte| byte == 0) {
            zero.get_or_insert(offset);
        } else {
            return Ok(Held::Other(offset));
        }
    }
    let may_be_gone = config.passes.contains(&PassKind::OverwriteTrimmed);
    Ok(match (written, zero) {
        (false, _) => Held::Zeroes,
        (true, Some(offset)) if !may_be_gone => Held::Other(offset),
        (true, _) => Held::Written,
    })
}

async fn read_at(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
    offset: u64,
    bytes: u64,
) -> Result<Vec<u8>, LaneError> {
    let shift = volume.geometry().block_size.shift();
    let mut lane = Lane::open(reactor, volume, 1)?;
    let read = Operation::Read {
        lba: offset >> shift,
        blocks: (bytes >> shift) as u32,
        buffers: ReadBuffers::Lend,
    };
    let Operation::Read {
        buffers: ReadBuffers::Filled(found),
        ..
    } = lane.alone((), read).await?
    else {
        unreachable!("a read that succeeded is filled")
    };
    let mut read = vec![0; views_len(&found)];
    weir_memory::copy_views(&found, &mut read);
    Ok(read)
}

/// Asks a drive for its health. One that does not answer does not hold the run up.
async fn ask_health(reactor: &Reactor, volume: &Arc<dyn Volume>) -> HealthReport {
    let mut asked = volume.health(reactor);
    let mut timer = Timer::new(reactor);
    timer.set(reactor.now() + HEALTH_WAIT);
    std::future::poll_fn(|context| {
        if let Poll::Ready(report) = asked.as_mut().poll(context) {
            return Poll::Ready(report);
        }
        timer.poll_elapsed(context).map(|()| {
            let seconds = HEALTH_WAIT.as_secs();
            HealthReport::unknown(format!(
                "the drive did not say within {seconds} s how it is"
            ))
        })
    })
    .await
}

/// Makes all passes that were asked for and not made yet, each on all drives at the same time. The drives' states come back; one that failed says so in its own,
/// and is left out of the passes that follow. `observe` is called on the drives' reactors, `keep` here, with what is to be kept when a pass has ended.
///
/// # Panics
/// Where there is no reactor.
pub async fn run(
    control: &Reactor,
    remotes: &[Remote],
    mut subjects: Vec<Subject>,
    config: &Config,
    stop: &Stop,
    observe: impl FnMut(Progress) + Clone + Send + 'static,
    mut keep: impl FnMut(&[DriveState]),
) -> Vec<DriveState> {
    let mut kept = |subjects: &[Subject]| {
        let states: Vec<_> = subjects.iter().map(|of| of.state.clone()).collect();
        keep(&states);
    };
    for subject in &mut subjects {
        subject.state.mark.get_or_insert_with(|| mark(control));
    }
    let states: Vec<_> = subjects.iter().map(|of| of.state.clone()).collect();
    let data = data(config, &states);
    let job = |index: usize, subject: &Subject| Job {
        index,
        volume: Arc::clone(&subject.volume),
        config: config.clone(),
        data: data.of(subject.state.mark.unwrap_or_default()),
        size_bytes: subject.state.size_bytes,
        stop: stop.clone(),
    };
    let mut calls = Vec::new();
    for (index, subject) in subjects.iter().enumerate() {
        let (job, state) = (job(index, subject), subject.state.clone());
        let call = move |reactor| async move { job.prepare(&reactor, state).await };
        calls.push((index, remotes[index % remotes.len()].call(call)));
    }
    for (index, call) in calls {
        let state = &mut subjects[index].state;
        match call.await {
            Ok(Ok(prepared)) => *state = prepared,
            Ok(Err(error)) => state.failed = Some(error.to_string()),
            Err(stopped) => state.failed = Some(LaneError::from(stopped).to_string()),
        }
    }
    kept(&subjects);
    for &kind in &config.passes {
        if stop.is_asked() {
            break;
        }
        let begins = |subject: &Subject| {
            let state = &subject.state;
            let is_fresh = || state.begin(config, kind).position_bytes == 0;
            state.failed.is_none() && !state.is_made(kind) && is_fresh()
        };
        let alone = !subjects.iter().all(begins);
        let mut calls = Vec::new();
        for (index, subject) in subjects.iter().enumerate() {
            if subject.state.failed.is_some() || subject.state.is_made(kind) {
                continue;
            }
            let (job, observe) = (job(index, subject), observe.clone());
            let mut current = subject.state.begin(config, kind);
            current.alone |= alone;
            let call = move |reactor| async move { job.pass(&reactor, current, observe).await };
            calls.push((index, remotes[index % remotes.len()].call(call)));
        }
        for (index, call) in calls {
            let subject = &mut subjects[index];
            match call.await {
                Ok((current, keeps_data, error)) => {
                    subject.state.keeps_data = keeps_data.or(subject.state.keeps_data);
                    subject.state.put(config, current);
                    subject.state.failed = error.map(|error| error.to_string());
                }
                Err(stopped) => {
                    subject.state.failed = Some(LaneError::from(stopped).to_string());
                }
            }
            let report = ask_health(control, &subject.volume).await;
            subject.state.health_after = subject.state.heard(report);
        }
        kept(&subjects);
    }
    subjects.into_iter().map(|subject| subject.state).collect()
}

impl Job {
    /// What comes before the first pass: the drive is the one that it was, and empty where that was asked for.
    async fn prepare(
        &self,
        reactor: &Reactor,
        mut state: DriveState,
    ) -> Result<DriveState, DriveError> {
        if state.is_begun() {
            self.check_identity(reactor, &state).await?;
            // What the run before wrote last may not have reached the medium.
            self.flush(reactor).await?;
        }
        state.failed = None;
        if state.health_before.is_none() {
            let report = ask_health(reactor, &self.volume).await;
            state.health_before = state.heard(report);
        }
        if self.config.purge && !state.purged {
            state.purged = self.purge(reactor).await?;
        }
        Ok(state)
    }

    /// Reads what was written before the run was interrupted, where it is known and the drive keeps what is written.
    async fn check_identity(
        &self,
        reactor: &Reactor,
        state: &DriveState,
    ) -> Result<(), DriveError> {
        let held = held(reactor, &self.volume, &self.config, &self.data, state).await?;
        let offset = match held {
            Held::Written => return Ok(()),
            Held::Zeroes if state.keeps_data != Some(true) => return Ok(()),
            Held::Zeroes => 0,
            Held::Other(offset) => offset,
        };
        Err(DriveError::Foreign {
            drive: self.volume.name(),
            offset,
        })
    }

    /// What a drive holds at a place, compared with what is written there in a pass.
    async fn found(
        &self,
        reactor: &Reactor,
        pass: PassKind,
        offset: u64,
    ) -> Result<Found, DriveError> {
        let bytes = self.config.block_bytes.min(self.size_bytes - offset);
        let read = read_at(reactor, &self.volume, offset, bytes).await?;
        if read == *self.data.at(pass, offset, bytes) {
            Ok(Found::Written)
        } else if read.iter().all(|&byte| byte == 0) {
            Ok(Found::Zeroes)
        } else {
            Ok(Found::Other)
        }
    }

    /// Deallocates the whole drive, however much of it is written then. Whether it came to the end before it was stopped.
    async fn purge(&self, reactor: &Reactor) -> Result<bool, DriveError> {
        let mut lane = Lane::open(reactor, &self.volume, 1)?;
        let all = self.volume.geometry().length_bytes();
        let mut offset = 0;
        while offset < all {
            if self.stop.is_asked() {
                return Ok(false);
            }
            let bytes = PURGE_BYTES.min(all - offset);
            let (lba, blocks) = self.blocks(offset, bytes);
            lane.alone((), Operation::Deallocate { lba, blocks })
                .await?;
            offset += bytes;
        }
        lane.alone((), Operation::Flush).await?;
        Ok(true)
    }

    fn blocks(&self, offset: u64, bytes: u64) -> (u64, u64) {
        let shift = self.volume.geometry().block_size.shift();
        (offset >> shift, bytes >> shift)
    }

    /// Makes one pass, or what is left of it. What there is comes back also where a request failed, with whether the drive keeps what is
    /// written to it, where that was looked at.
    async fn pass(
        self,
        reactor: &Reactor,
        mut current: Current,
        mut observe: impl FnMut(Progress),
    ) -> (Current, Option<bool>, Option<DriveError>) {
        if current.pass == PassKind::Recovery && current.position_bytes == 0 {
            match self.idle(reactor, &mut current, &mut observe).await {
                true => {}
                false => return (current, None, None),
            }
        }
        let lane = match Lane::open(reactor, &self.volume, self.config.depth + 1) {
            Ok(lane) => lane,
            Err(error) => return (current, None, Some(error.into())),
        };
        let health = ask_health(reactor, &self.volume).await.health;
        let began = reactor.precise_now();
        let mut course = Course::take_up(&self.config, self.size_bytes, current);
        let fresh_from = course.written_bytes();
        if let Some(health) = health {
            course.note_health(health.into());
        }
        let mut work = Work {
            job: &self,
            reactor,
            lane,
            course,
            began,
            fresh_from,
            asked: None,
            // One that says nothing is not asked on the way.
            asked_next: health.map(|_| began),
            error: None,
            cancel_at: None,
            cancelled: false,
        };
        work.run(&mut observe).await;
        let ended_ns = work.now_ns();
        let Work {
            mut course,
            mut error,
            cancelled,
            ..
        } = work;
        if cancelled {
            // A drive that answers nothing is asked nothing more.
            return (course.kept(ended_ns), None, error);
        }
        if let Some(health) = ask_health(reactor, &self.volume).await.health {
            course.note_health(health.into());
        }
        let current = course.kept(ended_ns);
        if error.is_none() {
            error = self.flush(reactor).await.err();
        }
        let mut keeps_data = None;
        if error.is_none() && current.position_bytes >= self.config.block_bytes {
            match self.found(reactor, current.pass, 0).await {
                Ok(Found::Other) => {
                    let drive = self.volume.name();
                    error = Some(DriveError::Wrong { drive, offset: 0 });
                }
                Ok(found) => keeps_data = Some(found == Found::Written),
                Err(failed) => error = Some(failed),
            }
        }
        (current, keeps_data, error)
    }

    async fn flush(&self, reactor: &Reactor) -> Result<(), DriveError> {
        let mut lane = Lane::open(reactor, &self.volume, 1)?;
        lane.alone((), Operation::Flush).await?;
        Ok(())
    }

    /// Asks nothing of the drive for some time. Whether it was that long.
    async fn idle(
        &self,
        reactor: &Reactor,
        current: &mut Current,
        observe: &mut impl FnMut(Progress),
    ) -> bool {
        let began = reactor.now();
        let until = began + self.config.idle;
        let mut next = began;
        while reactor.now() < until && !self.stop.is_asked() {
            let now = reactor.now();
            if now >= next {
                next = now + PROGRESS_INTERVAL;
                observe(Progress {
                    drive: self.index,
                    pass: current.pass,
                    written_bytes: 0,
                    end_bytes: current.end_bytes,
                    elapsed: now - began,
                    fresh_bytes: 0,
                    idle_left: Some(until - now),
                    kept: None,
                });
            }
            reactor.sleep_until(until.min(now + LOOK)).await;
        }
        current.idled_nanoseconds = Some((reactor.now() - began).as_nanos() as u64);
        !self.stop.is_asked()
    }
}

/// What is at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// What was written there.
    Written,
    /// Nothing.
    Zeroes,
    /// Something else.
    Other,
}

/// A request in flight.
#[derive(Clone, Copy)]
struct Issued {
    step: Step,
    at: Instant,
}

/// A pass at work.
struct Work<'job> {
    job: &'job Job,
    reactor: &'job Reactor,
    lane: Lane<Issued>,
    course: Course,
    began: Instant,
    /// Bytes that were written before it was taken up.
    fresh_from: u64,
    /// What the drive was asked and has not answered, and when.
    asked: Option<(HealthFuture, Instant)>,
    /// Not before then is it asked again; none: never.
    asked_next: Option<Instant>,
    error: Option<DriveError>,
    cancel_at: Option<Instant>,
    cancelled: bool,
}

impl Work<'_> {
    fn now_ns(&self) -> u64 {
        (self.reactor.precise_now() - self.began).as_nanos() as u64
    }

    /// Until all is written, or what is in flight has ended after a stop or a failure.
    async fn run(&mut self, observe: &mut impl FnMut(Progress)) {
        let mut timer = Timer::new(self.reactor);
        let (mut told, mut kept) = (self.began, self.began);
        loop {
            self.fill();
            if self.lane.is_idle() {
                break;
            }
            timer.set(self.reactor.now() + LOOK);
            if let Some(ended) = self.next_or(&mut timer).await {
                self.take_all(ended);
            }
            let now = self.reactor.now();
            self.ask_where_due(now);
            if now - told >= PROGRESS_INTERVAL {
                told = now;
                let is_due = now - kept >= KEEP_EVERY;
                if is_due {
                    kept = now;
                }
                observe(self.progress(is_due));
            }
            self.cancel_where_stopped(now);
        }
    }

    /// Asks the drive for its health where enough was written since. It may answer at once.
    fn ask_where_due(&mut self, now: Instant) {
        let is_due = self.asked.is_none() && self.asked_next.is_some_and(|next| next <= now);
        if !is_due || !self.course.wants_health() {
            return;
        }
        let mut asked = self.job.volume.health(self.reactor);
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(report) => self.note_health(report),
            Poll::Pending => self.asked = Some((asked, now)),
        }
    }

    fn note_health(&mut self, report: HealthReport) {
        if let Some(health) = report.health {
            self.course.note_health(health.into());
        }
    }

    /// Takes the drive's answer, if it has come.
    fn poll_health(&mut self, context: &mut Context<'_>) {
        let Some((asked, at)) = &mut self.asked else {
            return;
        };
        let Poll::Ready(report) = asked.as_mut().poll(context) else {
            return;
        };
        let now = self.reactor.now();
        self.asked_next = Some(now + HEALTH_REST * (now - *at));
        self.asked = None;
        self.note_health(report);
    }

    fn is_over(&self) -> bool {
        self.error.is_some() || self.job.stop.is_asked()
    }

    /// Keeps the queue full.
    fn fill(&mut self) {
        if self.is_over() {
            return;
        }
        let at = self.reactor.precise_now();
        while self.lane.has_room() {
            let Some(step) = self.course.next_step() else {
                break;
            };
            let operation = self.operation(step);
            self.lane.push(Issued { step, at }, operation);
        }
        self.lane.submit();
    }

    fn operation(&self, step: Step) -> Operation {
        match step {
            Step::Write { offset, bytes } => {
                let (lba, blocks) = self.job.blocks(offset, bytes);
                let data = self.job.data.at(self.course.pass(), offset, bytes);
                Operation::Write {
                    lba,
                    blocks: blocks as u32,
                    data: Views::from_iter([data]),
                    fua: false,
                }
            }
            Step::Deallocate { offset, bytes } => {
                let (lba, blocks) = self.job.blocks(offset, bytes);
                Operation::Deallocate { lba, blocks }
            }
        }
    }

    /// The next request that ends, if one does before the timer elapses.
    async fn next_or(&mut self, timer: &mut Timer) -> Option<Ended<Issued>> {
        std::future::poll_fn(|context| {
            self.poll_health(context);
            if let Poll::Ready(ended) = self.lane.poll_next(context) {
                return Poll::Ready(Some(ended));
            }
            timer.poll_elapsed(context).map(|()| None)
        })
        .await
    }

    /// Takes a completion, and all that are there with it.
    fn take_all(&mut self, ended: Ended<Issued>) {
        let now_ns = self.now_ns();
        let mut next = Some(ended);
        while let Some(ended) = next {
            self.take(ended, now_ns);
            next = self.lane.try_next();
        }
    }

    fn take(&mut self, ended: Ended<Issued>, now_ns: u64) {
        let Issued { step, at } = ended.tag;
        match ended.result {
            Ok(()) => {
                let began_ns = (at - self.began).as_nanos() as u64;
                self.course.ended(step, began_ns, now_ns);
            }
            Err(VolumeError::Cancelled) if self.cancelled => {}
            Err(error) => {
                let error = self.lane.error(&ended.operation, error);
                self.error.get_or_insert(error.into());
            }
        }
    }

    /// What was in flight when a stop was asked for has a while to end.
    fn cancel_where_stopped(&mut self, now: Instant) {
        if !self.is_over() || self.cancelled {
            return;
        }
        let at = *self.cancel_at.get_or_insert(now + STOP_GRACE);
        if at <= now {
            self.cancelled = true;
            self.lane.cancel_all();
        }
    }

    fn progress(&self, with_kept: bool) -> Progress {
        let written_bytes = self.course.written_bytes();
        Progress {
            drive: self.job.index,
            pass: self.course.pass(),
            written_bytes,
            end_bytes: self.course.end_bytes(),
            elapsed: self.reactor.now() - self.began,
            fresh_bytes: written_bytes - self.fresh_from,
            idle_left: None,
            kept: with_kept.then(|| Box::new(self.course.kept(self.now_ns()))),
        }
    }
}
