//! The course of one pass: which request comes next, and what became of those before. It does no I/O and reads no clock: times are given, in
//! nanoseconds since the pass began or was taken up again.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::config::{Config, TRIM_PIECES};
use crate::document::{Health, HealthSample, PassKind, Sample};

/// The length of a sample in a pass that takes long.
const SAMPLE_NS: u64 = 1_000_000_000;
/// The length of the first samples. It doubles when there are many, until it is that of a long pass.
const SAMPLE_NS_LEAST: u64 = SAMPLE_NS >> 6;
/// So many samples are too many where they are shorter than they need be: two neighbours become one.
const SAMPLES_MANY: usize = 512;
/// How often a drive is asked for its health in a pass.
const HEALTH_SAMPLES: u64 = 400;
/// A last sample of less than this part of the others' length is added to the one before it.
const SCRAP: f64 = 0.25;

/// A pass that has begun and not ended, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Current {
    /// Which.
    pub pass: PassKind,
    /// All below was written in this pass.
    pub position_bytes: u64,
    /// Where it ends.
    pub end_bytes: u64,
    /// The length of samples.
    pub sample_nanoseconds: u64,
    /// What there was so far.
    pub samples: Vec<Sample>,
    /// What the drive said so far.
    pub health: Vec<HealthSample>,
    /// Where it was interrupted: bytes written by then.
    pub interrupted_at_bytes: Vec<u64>,
    /// Whether other drives of the run did not begin it at the same time.
    #[serde(default)]
    pub alone: bool,
    /// Of a recovery: for how long nothing was asked of the drive.
    pub idled_nanoseconds: Option<u64>,
}

impl Current {
    /// A pass that begins.
    #[must_use]
    pub fn new(pass: PassKind, end_bytes: u64) -> Self {
        Current {
            pass,
            position_bytes: 0,
            end_bytes,
            sample_nanoseconds: SAMPLE_NS_LEAST,
            samples: Vec::new(),
            health: Vec::new(),
            interrupted_at_bytes: Vec::new(),
            alone: false,
            idled_nanoseconds: None,
        }
    }

    /// Bytes that were written in it.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.samples.iter().map(|sample| sample.bytes).sum()
    }
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Write.
    Write {
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
    },
    /// Say that it is no longer needed.
    Deallocate {
        /// From here.
        offset: u64,
        /// So many.
        bytes: u64,
    },
}

/// A pass at work.
pub struct Course {
    pass: PassKind,
    head: Head,
    recorder: Recorder,
    health: Vec<HealthSample>,
    health_every_bytes: u64,
    health_next_bytes: u64,
    interrupted_at_bytes: Vec<u64>,
    alone: bool,
    idled_nanoseconds: Option<u64>,
}

impl Course {
    /// Takes a pass up where it is.
    #[must_use]
    pub fn take_up(config: &Config, size_bytes: u64, current: Current) -> Self {
        let trim = (current.pass == PassKind::OverwriteTrimmed)
            .then(|| Trim::new(config, size_bytes, current.position_bytes));
        let mut current = current;
        // What was answered beyond a write that was not is written once more, and counts then.
        let written_bytes = current.position_bytes;
        take_back(&mut current.samples, written_bytes);
        current.health.retain(|of| of.at_bytes <= written_bytes);
        let mut interrupted_at_bytes = current.interrupted_at_bytes;
        if written_bytes > 0 {
            interrupted_at_bytes.push(written_bytes);
        }
        let health_every_bytes = (current.end_bytes / HEALTH_SAMPLES).max(1);
        Course {
            pass: current.pass,
            head: Head {
                block_bytes: config.block_bytes,
                depth: config.depth as usize,
                next: current.position_bytes,
                end: current.end_bytes,
                in_flight: BTreeSet::new(),
                trim,
            },
            recorder: Recorder {
                sample_ns: current.sample_nanoseconds,
                samples: current.samples,
                began_ns: 0,
                bytes: 0,
                longest_ns: 0,
                // What went by before it was taken up is not the drive's.
                answered_ns: 0,
                gap_ns: 0,
                written_bytes,
            },
            health_next_bytes: match current.health.is_empty() {
                true => 0,
                false => written_bytes + health_every_bytes,
            },
            health: current.health,
            health_every_bytes,
            interrupted_at_bytes,
            alone: current.alone,
            idled_nanoseconds: current.idled_nanoseconds,
        }
    }

    /// Which pass.
    #[must_use]
    pub fn pass(&self) -> PassKind {
        self.pass
    }

    /// The next request, if one may be made now. It is in flight until [`Course::ended`].
    pub fn next_step(&mut self) -> Option<Step> {
        self.head.next_step()
    }

    /// A request was answered. Times are those at which it was made and answered.
    pub fn ended(&mut self, step: Step, began_ns: u64, now_ns: u64) {
        self.head.ended(step);
        if let Step::Write { bytes, .. } = step {
            let took_ns = now_ns.saturating_sub(began_ns);
            self.recorder.record(bytes, took_ns, now_ns);
        }
    }

    /// Whether every write was answered.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.head.next >= self.head.end && self.head.in_flight.is_empty()
    }

    /// Bytes written so far.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.recorder.written_bytes
    }

    /// Where it ends.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        self.head.end
    }

    /// Samples that have ended.
    #[must_use]
    pub fn samples(&self) -> &[Sample] {
        &self.recorder.samples
    }

    /// Whether the drive is to be asked for its health.
    #[must_use]
    pub fn wants_health(&self) -> bool {
        self.recorder.written_bytes >= self.health_next_bytes
    }

    /// What the drive said.
    pub fn note_health(&mut self, health: Health) {
        let at_bytes = self.recorder.written_bytes;
        self.health_next_bytes = at_bytes + self.health_every_bytes;
        self.health.push(HealthSample { at_bytes, health });
    }

    /// As it is at this time, to be kept.
    #[must_use]
    pub fn kept(&self, now_ns: u64) -> Current {
        let mut samples = self.recorder.samples.clone();
        self.recorder.close(&mut samples, now_ns, self.is_done());
        Current {
            pass: self.pass,
            position_bytes: self.head.position(),
            end_bytes: self.head.end,
            sample_nanoseconds: self.recorder.sample_ns,
            samples,
            health: self.health.clone(),
            interrupted_at_bytes: self.interrupted_at_bytes.clone(),
            alone: self.alone,
            idled_nanoseconds: self.idled_nanoseconds,
        }
    }
}

/// Takes bytes from the last samples until so many are left. The time that went by stays.
fn take_back(samples: &mut [Sample], left_bytes: u64) {
    let all: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let mut excess = all.saturating_sub(left_bytes);
    for sample in samples.iter_mut().rev() {
        let bytes = excess.min(sample.bytes);
        sample.bytes -= bytes;
        excess -= bytes;
    }
}

/// The longest of these; none where one is not known.
pub(crate) fn longest_gap(gaps: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    gaps.into_iter()
        .try_fold(0, |longest, gap| Some(gap?.max(longest)))
}

/// Where writing is.
struct Head {
    block_bytes: u64,
    depth: usize,
    next: u64,
    end: u64,
    /// Where writes in flight begin.
    in_flight: BTreeSet<u64>,
    trim: Option<Trim>,
}

impl Head {
    fn next_step(&mut self) -> Option<Step> {
        if let Some(trim) = &mut self.trim
            && let Some(step) = trim.next_step(self.next, self.end)
        {
            return Some(step);
        }
        if self.next >= self.end || self.in_flight.len() >= self.depth {
            return None;
        }
        let bytes = self.block_bytes.min(self.end - self.next);
        if let Some(trim) = &self.trim
            && self.next + bytes > trim.done
        {
            return None;
        }
        let offset = self.next;
        self.next += bytes;
        self.in_flight.insert(offset);
        Some(Step::Write { offset, bytes })
    }

    fn ended(&mut self, step: Step) {
        match (step, &mut self.trim) {
            (Step::Write { offset, .. }, _) => {
                let was_there = self.in_flight.remove(&offset);
                assert!(was_there, "a write ends once");
            }
            (Step::Deallocate { offset, bytes }, Some(trim)) => {
                trim.in_flight = false;
                trim.done = offset + bytes;
            }
            (Step::Deallocate { .. }, None) => {
                unreachable!("nothing is deallocated in this pass")
            }
        }
    }

    /// All below was written.
    fn position(&self) -> u64 {
        self.in_flight.first().copied().unwrap_or(self.next)
    }
}

/// Deallocates ahead of the writes, one piece after the other.
struct Trim {
    ahead: u64,
    piece: u64,
    begun: u64,
    done: u64,
    in_flight: bool,
}

impl Trim {
    fn new(config: &Config, size_bytes: u64, position: u64) -> Self {
        let ahead = config.trim_ahead(size_bytes);
        let blocks = (ahead / TRIM_PIECES / config.block_bytes).max(1);
        Trim {
            ahead,
            piece: blocks * config.block_bytes,
            begun: position,
            done: position,
            in_flight: false,
        }
    }

    fn next_step(&mut self, next: u64, end: u64) -> Option<Step> {
        let until = (next + self.ahead).min(end);
        let bytes = self.piece.min(end - self.begun);
        if self.in_flight || bytes == 0 || self.begun + bytes > until {
            return None;
        }
        let offset = self.begun;
        self.begun += bytes;
        self.in_flight = true;
        Some(Step::Deallocate { offset, bytes })
    }
}

/// Puts what was answered into samples.
struct Recorder {
    sample_ns: u64,
    samples: Vec<Sample>,
    /// When the sample began that goes on.
    began_ns: u64,
    bytes: u64,
    longest_ns: u64,
    /// When a write was last answered; 0 before any was.
    answered_ns: u64,
    /// The longest time between two answers that ended in this sample.
    gap_ns: u64,
    written_bytes: u64,
}

impl Recorder {
    fn record(&mut self, bytes: u64, took_ns: u64, now_ns: u64) {
        let gap_ns = now_ns.saturating_sub(self.answered_ns);
        self.answered_ns = now_ns.max(self.answered_ns);
        while now_ns >= self.began_ns + self.sample_ns {
            self.samples.push(Sample {
                seconds: self.sample_ns as f64 / 1e9,
                bytes: self.bytes,
                nanoseconds_longest: self.longest_ns,
                nanoseconds_gap: Some(self.gap_ns),
            });
            self.began_ns += self.sample_ns;
            (self.bytes, self.longest_ns, self.gap_ns) = (0, 0, 0);
            if self.sample_ns < SAMPLE_NS && self.samples.len() >= SAMPLES_MANY {
                self.coarsen();
            }
        }
        self.bytes += bytes;
        self.longest_ns = self.longest_ns.max(took_ns);
        self.gap_ns = self.gap_ns.max(gap_ns);
        self.written_bytes += bytes;
    }

    fn coarsen(&mut self) {
        let pairs = self.samples.chunks(2).map(|pair| Sample {
            seconds: pair.iter().map(|of| of.seconds).sum(),
            bytes: pair.iter().map(|of| of.bytes).sum(),
            nanoseconds_longest: pair
                .iter()
                .map(|of| of.nanoseconds_longest)
                .max()
                .unwrap_or(0),
            nanoseconds_gap: longest_gap(pair.iter().map(|of| of.nanoseconds_gap)),
        });
        self.samples = pairs.collect();
        self.sample_ns *= 2;
    }

    /// Adds what there is of the sample that goes on. Until all is done, a time without an answer goes on too.
    fn close(&self, samples: &mut Vec<Sample>, now_ns: u64, is_done: bool) {
        let seconds = now_ns.saturating_sub(self.began_ns) as f64 / 1e9;
        if seconds <= 0.0 && self.bytes == 0 {
            return;
        }
        let whole = self.sample_ns as f64 / 1e9;
        let gap_ns = match is_done {
            true => self.gap_ns,
            false => self.gap_ns.max(now_ns.saturating_sub(self.answered_ns)),
        };
        match samples.last_mut() {
            Some(last) if seconds < SCRAP * whole => {
                last.seconds += seconds;
                last.bytes += self.bytes;
                last.nanoseconds_longest = last.nanoseconds_longest.max(self.longest_ns);
                last.nanoseconds_gap = longest_gap([last.nanoseconds_gap, Some(gap_ns)]);
            }
            _ => samples.push(Sample {
                // What was answered at the very beginning took some time all the same.
                seconds: seconds.max(1e-9),
                bytes: self.bytes,
                nanoseconds_longest: self.longest_ns,
                nanoseconds_gap: Some(gap_ns),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(block_bytes: u64, depth: u32, trim_ahead_bytes: u64) -> Config {
        Config {
            block_bytes,
            depth,
            trim_ahead_bytes: Some(trim_ahead_bytes),
            ..Config::default()
        }
    }

    /// Makes all steps that may be made.
    fn all(course: &mut Course) -> Vec<Step> {
        std::iter::from_fn(|| course.next_step()).collect()
    }

    #[test]
    fn what_was_answered_out_of_order_before_a_kill_counts_once() {
        let current = Current::new(PassKind::Fill, 40);
        let mut course = Course::take_up(&config(10, 3, 10), 40, current);
        all(&mut course);
        let second = 1_000_000_000;
        for (offset, ns) in [(0, second / 100), (20, second / 50)] {
            course.ended(Step::Write { offset, bytes: 10 }, 0, ns);
        }
        let kept = course.kept(second / 40);
        assert_eq!((kept.position_bytes, kept.written_bytes()), (10, 20));
        let mut course = Course::take_up(&config(10, 3, 10), 40, kept);
        assert_eq!(course.written_bytes(), 10);
        for step in all(&mut course) {
            course.ended(step, 0, second);
        }
        let kept = course.kept(second);
        assert_eq!((kept.position_bytes, kept.written_bytes()), (40, 40));
        assert_eq!(kept.interrupted_at_bytes, [10]);
    }

    #[test]
    fn writes_are_one_after_the_other_as_many_as_may_be_in_flight() {
        let write = |offset, bytes| Step::Write { offset, bytes };
        let current = Current::new(PassKind::Fill, 25);
        let mut course = Course::take_up(&config(10, 2, 10), 25, current);
        assert_eq!(all(&mut course), [write(0, 10), write(10, 10)]);
        course.ended(write(10, 10), 0, 5);
        assert_eq!(course.kept(5).position_bytes, 0, "the first is in flight");
        assert_eq!(all(&mut course), [write(20, 5)]);
        course.ended(write(0, 10), 0, 6);
        assert_eq!(course.kept(6).position_bytes, 20);
        assert!(!course.is_done());
        course.ended(write(20, 5), 5, 9);
        assert!(course.is_done() && course.next_step().is_none());
        let kept = course.kept(10);
        assert_eq!((kept.position_bytes, kept.written_bytes()), (25, 25));
        assert_eq!(kept.samples.len(), 1);
        assert_eq!(kept.samples[0].nanoseconds_longest, 6);
    }

    #[test]
    fn no_write_comes_before_its_place_was_deallocated_and_that_is_not_far_ahead() {
        for (size, block, ahead) in [(1000, 10, 100), (995, 10, 10), (64, 10, 1000), (40, 40, 40)] {
            let current = Current::new(PassKind::OverwriteTrimmed, size);
            let config = config(block, 4, ahead);
            let mut course = Course::take_up(&config, size, current);
            let (mut trimmed, mut written, mut now) = (0, 0, 0);
            let mut flying = std::collections::VecDeque::new();
            while !course.is_done() {
                flying.extend(all(&mut course));
                let step = flying.pop_front().expect("something goes on");
                now += 1;
                match step {
                    Step::Deallocate { offset, bytes } => {
                        assert_eq!(offset, trimmed, "one after the other");
                        trimmed += bytes;
                    }
                    Step::Write { offset, bytes } => {
                        assert_eq!(offset, written);
                        written += bytes;
                        assert!(written <= trimmed, "{written} of {trimmed}");
                    }
                }
                assert!(trimmed <= size.min(written + ahead + 4 * block));
                course.ended(step, now - 1, now);
            }
            assert_eq!((trimmed, written), (size, size));
        }
    }

    #[test]
    fn a_pass_that_is_taken_up_goes_on_and_says_where_it_was_interrupted() {
        let config = config(10, 3, 10);
        let mut course = Course::take_up(&config, 100, Current::new(PassKind::Fill, 100));
        let first = all(&mut course);
        for step in &first[..2] {
            course.ended(*step, 0, 50);
        }
        let text = serde_json::to_string(&course.kept(60)).unwrap();
        let mut course = Course::take_up(&config, 100, serde_json::from_str(&text).unwrap());
        let mut now = 0;
        while !course.is_done() {
            for step in all(&mut course) {
                now += 10;
                course.ended(step, now - 10, now);
            }
        }
        let kept = course.kept(now);
        assert_eq!((kept.written_bytes(), kept.position_bytes), (100, 100));
        assert_eq!(kept.interrupted_at_bytes, [20]);
        let nanoseconds: f64 = kept.samples.iter().map(|of| of.seconds * 1e9).sum();
        assert!((nanoseconds - 140.0).abs() < 1e-3, "{nanoseconds}");
    }

    /// Writes one after the other, an answer every so often; each waits behind those before it.
    fn answer(course: &mut Course, answers: &[u64]) {
        let mut flying = std::collections::VecDeque::new();
        let mut now = 0;
        for &answered in answers {
            flying.extend(all(course).into_iter().map(|step| (step, now)));
            let (step, began) = flying.pop_front().expect("something is in flight");
            now = answered;
            course.ended(step, began, now);
        }
    }

    #[test]
    fn a_gap_is_the_time_without_an_answer_and_not_the_time_that_a_write_took() {
        let milli = 1_000_000;
        let config = config(10, 8, 10);
        let mut course = Course::take_up(&config, 400, Current::new(PassKind::Fill, 400));
        // An answer every 2 ms, and one after 9 ms: with 8 in flight a write takes 16 ms without that.
        let mut answers: Vec<u64> = (1..=40).map(|at| at * 2 * milli).collect();
        answers[25..].iter_mut().for_each(|at| *at += 7 * milli);
        answer(&mut course, &answers);
        assert!(course.is_done());
        // What comes after the last answer is no gap: there was nothing more to write.
        let kept = course.kept(answers[39] + 500 * milli);
        let longest = kept.samples.iter().map(|of| of.nanoseconds_longest).max();
        assert_eq!(longest, Some(23 * milli));
        let gap = longest_gap(kept.samples.iter().map(|of| of.nanoseconds_gap));
        assert_eq!(gap, Some(9 * milli));
    }

    #[test]
    fn a_gap_that_goes_on_is_kept_and_the_time_of_an_interruption_is_none() {
        let milli = 1_000_000;
        let config = config(10, 4, 10);
        let mut course = Course::take_up(&config, 100, Current::new(PassKind::Fill, 100));
        answer(&mut course, &[milli, 2 * milli]);
        let quiet = course.kept(3 * milli);
        let stalled = course.kept(90 * milli);
        let gap =
            |current: &Current| longest_gap(current.samples.iter().map(|of| of.nanoseconds_gap));
        assert_eq!(
            (gap(&quiet), gap(&stalled)),
            (Some(milli), Some(88 * milli))
        );
        // Times begin anew where it is taken up.
        let mut course = Course::take_up(&config, 100, quiet.clone());
        let answers: Vec<u64> = (1..=8).map(|at| at * 3 * milli).collect();
        answer(&mut course, &answers);
        assert!(course.is_done());
        assert_eq!(gap(&course.kept(24 * milli)), Some(3 * milli));
        // What an older Weir kept has none, so that the longest of all is not known.
        let text = serde_json::to_string(&quiet).unwrap();
        let older = text.replace(",\"nanoseconds_gap\":1000000", "");
        assert_ne!(older, text);
        let older: Current = serde_json::from_str(&older).unwrap();
        let mut course = Course::take_up(&config, 100, older);
        answer(&mut course, &answers);
        let kept = course.kept(24 * milli);
        assert_eq!((kept.written_bytes(), gap(&kept)), (100, None));
    }

    #[test]
    fn samples_become_longer_until_they_are_a_second() {
        let config = config(1, 1, 1);
        let mut course = Course::take_up(&config, 4000, Current::new(PassKind::Fill, 4000));
        let mut now = 0;
        while let Some(step) = course.next_step() {
            // Half a second each, and one stall of 20 seconds.
            let took = match course.written_bytes() == 100 {
                true => 20_000_000_000,
                false => 500_000_000,
            };
            now += took;
            course.ended(step, now - took, now);
        }
        let kept = course.kept(now);
        assert_eq!(kept.sample_nanoseconds, SAMPLE_NS);
        let seconds: f64 = kept.samples.iter().map(|of| of.seconds).sum();
        assert!((seconds - 2019.5).abs() < 1e-6, "{seconds}");
        assert_eq!(kept.written_bytes(), 4000);
        assert_eq!(kept.samples.iter().filter(|of| of.bytes == 0).count(), 19);
        let longest = kept.samples.iter().map(|of| of.nanoseconds_longest).max();
        assert_eq!(longest, Some(20_000_000_000));
        let gap = longest_gap(kept.samples.iter().map(|of| of.nanoseconds_gap));
        assert_eq!(gap, Some(20_000_000_000));
        assert!(kept.samples.len() > 1500);
    }
}
