//! What a course of samples shows: where the rate changes, how low it was, and how long.
//!
//! # Change points
//!
//! The samples are put together into at most [`BINS_MAX`] bins of equal bytes, so that a place is known in bytes written. On the logarithm `x`
//! of the bins' rates the segmentation is sought that minimises
//!
//! ```text
//! sum over segments of ( sum |x - median of the segment| / b )  +  PENALTY * ln(bins) * (segments - 1)
//! ```
//!
//! exactly, by dynamic programming over all places (optimal partitioning: Jackson et al., "An algorithm for optimal partitioning of data on an
//! interval", 2005; PELT finds the same optimum with pruning, which so few bins do not need). The absolute deviation, which is the likelihood of
//! Laplace noise of scale `b`, makes a stall cost what it is off and not its square. What a bin is off the median of itself and [`NEIGHBOURS`] on either
//! side counts for no more than [`OFF_MOST`] standard deviations besides: a few stalls close to each other are not a phase, and a step stays one.
//!
//! `b` comes from the data: of differences of bins at the distances [`LAGS`] the median absolute one, which steps do not touch, as a standard
//! deviation (times 1.4826 / sqrt 2), and the largest of these, so that noise that lasts for several bins is not taken for less than it is; at least
//! [`NOISE_LEAST`]. `b` is that times sqrt(2 / pi), the mean absolute deviation.
//!
//! The penalty is the Bayesian information criterion's (two parameters for each change, the place and the level, at half a logarithm of the number of bins
//! each), times four: noise with a correlation of 0.6 from bin to bin makes sums vary (1 + 0.6) / (1 - 0.6) = 4 times as much as independent noise does.
//!
//! A segment has at least [`SEGMENT_BINS`] bins. Neighbours whose medians differ by less than [`STEP_LEAST`] are one phase: less is a property of
//! the drive's load, not a threshold that it crossed. In the end each change is moved to the sample at which it fits best.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::document::{Rate, SEGMENT_BINS, Sample, Window};

/// Bins that a pass has at most: a bin is a quarter of a percent of it.
pub const BINS_MAX: usize = 400;
/// What a change costs, in logarithms of the number of bins.
pub const PENALTY: f64 = 4.0;
/// The least noise that is reckoned with, as a standard deviation of the logarithm: no rate is steadier than the clock that it is measured with.
pub const NOISE_LEAST: f64 = 0.01;
/// The least change of the median rate that makes a phase.
pub const STEP_LEAST: f64 = 0.05;
/// Distances of bins whose differences tell the noise.
pub const LAGS: [usize; 4] = [1, 2, 4, 8];
/// A bin is compared with so many on either side: fewer than a phase has.
pub const NEIGHBOURS: usize = SEGMENT_BINS - 1;
/// A bin is off its neighbours by so many standard deviations at most.
pub const OFF_MOST: f64 = 3.0;
/// Of normal noise, the standard deviation over the median absolute deviation.
const NORMAL_OVER_MEDIAN: f64 = 1.4826;
/// Of a rate that is none, for its logarithm: this part of the lowest rate that there was.
const RATE_OF_NONE: f64 = 0.1;
/// The length of the windows that percentiles are of.
const WINDOW_SECONDS: f64 = 1.0;
/// A pass has at least so many of these; in a shorter one they are shorter.
const WINDOWS_LEAST: f64 = 20.0;

/// What the search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Segmentation {
    /// One after the other, without gaps, over all samples.
    pub segments: Vec<Segment>,
    /// The noise that was reckoned with: the standard deviation of the logarithm of a bin's rate.
    pub noise: f64,
}

/// Samples that belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The first sample.
    pub first: usize,
    /// The one after the last.
    pub end: usize,
    /// Bytes before the first.
    pub begins_at_bytes: u64,
    /// Bytes before `end`.
    pub ends_at_bytes: u64,
}

/// One or several samples together.
struct Bin {
    first: usize,
    end: usize,
    log_rate: f64,
}

/// Finds where the rate changes. Samples without a byte make none.
#[must_use]
pub fn segments(samples: &[Sample]) -> Segmentation {
    let bins = bins(samples);
    if bins.is_empty() {
        return Segmentation {
            segments: Vec::new(),
            noise: NOISE_LEAST,
        };
    }
    let values: Vec<f64> = bins.iter().map(|bin| bin.log_rate).collect();
    let noise = noise(&values);
    let ends = merged(&values, &partition(&calmed(&values, noise), noise));
    let mut firsts = vec![0];
    for (place, &end) in ends.iter().enumerate().take(ends.len() - 1) {
        let before = if place == 0 { 0 } else { ends[place - 1] };
        let after = ends[place + 1];
        let levels = [median(&values[before..end]), median(&values[end..after])];
        firsts.push(place_of_change(samples, &bins[end - 1], &bins[end], levels));
    }
    Segmentation {
        segments: between(samples, &firsts),
        noise,
    }
}

/// Segments that begin at these samples.
fn between(samples: &[Sample], firsts: &[usize]) -> Vec<Segment> {
    let mut bytes = 0;
    let ends = firsts.iter().skip(1).copied().chain([samples.len()]);
    let segments = firsts.iter().zip(ends).map(|(&first, end)| {
        let begins_at_bytes = bytes;
        bytes += samples[first..end].iter().map(|of| of.bytes).sum::<u64>();
        Segment {
            first,
            end,
            begins_at_bytes,
            ends_at_bytes: bytes,
        }
    });
    segments.collect()
}

/// Samples put together so that each bin has about the same bytes, and at least one. Where samples are longer than bins there are fewer of these; they are not made up for
/// by short ones behind them, of which six would be a phase.
fn bins(samples: &[Sample]) -> Vec<Bin> {
    let total: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let (mut bins, mut first) = (Vec::<Bin>::new(), 0);
    let (mut written, mut bytes, mut seconds) = (0_u64, 0_u64, 0.0);
    let mut due = u128::from(total) / BINS_MAX as u128;
    for (index, sample) in samples.iter().enumerate() {
        written += sample.bytes;
        bytes += sample.bytes;
        seconds += sample.seconds;
        if bytes > 0 && u128::from(written) >= due {
            bins.push(Bin {
                first,
                end: index + 1,
                log_rate: (bytes as f64 / seconds).ln(),
            });
            (first, bytes, seconds) = (index + 1, 0, 0.0);
            let passed = u128::from(written) * BINS_MAX as u128 / u128::from(total);
            due = (passed + 1) * u128::from(total) / BINS_MAX as u128;
        }
    }
    // What is left is less than a bin, and no more than time without a byte.
    if let Some(last) = bins.last_mut() {
        last.end = samples.len();
    }
    bins
}

/// The noise of the values as a standard deviation, whatever steps there are.
fn noise(values: &[f64]) -> f64 {
    let of_lag = |lag: usize| {
        let differences: Vec<f64> = values
            .iter()
            .zip(values.iter().skip(lag))
            .map(|(one, other)| (other - one).abs())
            .collect();
        match differences.is_empty() {
            true => 0.0,
            false => NORMAL_OVER_MEDIAN * median(&differences) / std::f64::consts::SQRT_2,
        }
    };
    LAGS.iter()
        .map(|&lag| of_lag(lag))
        .fold(NOISE_LEAST, f64::max)
}

/// The values, none of them far off its neighbours.
fn calmed(values: &[f64], noise: f64) -> Vec<f64> {
    let off = OFF_MOST * noise;
    let calm = |(place, value): (usize, &f64)| {
        let around = place.saturating_sub(NEIGHBOURS)..(place + NEIGHBOURS + 1).min(values.len());
        let middle = median(&values[around]);
        value.clamp(middle - off, middle + off)
    };
    values.iter().enumerate().map(calm).collect()
}

/// The ends of the best segments.
fn partition(values: &[f64], noise: f64) -> Vec<usize> {
    let count = values.len();
    let scale = noise * std::f64::consts::FRAC_2_PI.sqrt();
    let penalty = PENALTY * (count as f64).ln();
    // The least cost of all up to a place, and where its last segment begins.
    let mut best = vec![(f64::INFINITY, 0); count + 1];
    best[0] = (-penalty, 0);
    for end in 1..=count {
        let mut deviation = Deviation::default();
        for first in (0..end).rev() {
            deviation.add(values[first]);
            let is_whole = end == count && first == 0;
            if end - first < SEGMENT_BINS && !is_whole {
                continue;
            }
            let cost = best[first].0 + deviation.sum() / scale + penalty;
            if cost < best[end].0 {
                best[end] = (cost, first);
            }
        }
    }
    let mut ends = Vec::new();
    let mut at = count;
    while at > 0 {
        ends.push(at);
        at = best[at].1;
    }
    ends.reverse();
    ends
}

/// Segments of which no two neighbours have about the same median: of those that have, the closest become one first.
fn merged(values: &[f64], ends: &[usize]) -> Vec<usize> {
    let mut ends = ends.to_vec();
    loop {
        let mut firsts = vec![0];
        firsts.extend_from_slice(&ends[..ends.len() - 1]);
        let levels: Vec<f64> = firsts
            .iter()
            .zip(&ends)
            .map(|(&first, &end)| median(&values[first..end]))
            .collect();
        let closest = levels
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).abs())
            .enumerate()
            .min_by(|one, other| one.1.total_cmp(&other.1));
        match closest {
            Some((place, step)) if step < (1.0 + STEP_LEAST).ln() => ends.remove(place),
            _ => return ends,
        };
    }
}

/// The sample within two neighbouring bins at which the change between two levels fits best.
fn place_of_change(samples: &[Sample], before: &Bin, after: &Bin, levels: [f64; 2]) -> usize {
    let lowest = levels[0].min(levels[1]).exp() * RATE_OF_NONE;
    let values: Vec<f64> = samples[before.first..after.end]
        .iter()
        .map(|sample| sample.rate().max(lowest).ln())
        .collect();
    let mut off: f64 = values.iter().map(|value| (value - levels[1]).abs()).sum();
    let (mut least, mut place) = (off, 0);
    for (index, value) in values.iter().enumerate() {
        off += (value - levels[0]).abs() - (value - levels[1]).abs();
        if off < least {
            (least, place) = (off, index + 1);
        }
    }
    // Each side keeps a sample.
    (before.first + place).clamp(before.first + 1, after.end - 1)
}

/// The sum of absolute deviations from the median, of values that come one after the other.
#[derive(Default)]
struct Deviation {
    /// The lower half, and its sum. It has as many as the upper one, or one more.
    lower: BinaryHeap<Ordered>,
    lower_sum: f64,
    upper: BinaryHeap<Reverse<Ordered>>,
    upper_sum: f64,
}

#[derive(Clone, Copy, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Deviation {
    fn add(&mut self, value: f64) {
        let is_low = self.lower.peek().is_none_or(|middle| value <= middle.0);
        if is_low {
            self.lower.push(Ordered(value));
            self.lower_sum += value;
        } else {
            self.upper.push(Reverse(Ordered(value)));
            self.upper_sum += value;
        }
        if self.lower.len() > self.upper.len() + 1 {
            let Ordered(value) = self.lower.pop().expect("it is the longer one");
            self.lower_sum -= value;
            self.upper.push(Reverse(Ordered(value)));
            self.upper_sum += value;
        } else if self.upper.len() > self.lower.len() {
            let Reverse(Ordered(value)) = self.upper.pop().expect("it is the longer one");
            self.upper_sum -= value;
            self.lower.push(Ordered(value));
            self.lower_sum += value;
        }
    }

    fn sum(&self) -> f64 {
        let Some(&Ordered(middle)) = self.lower.peek() else {
            return 0.0;
        };
        let more = self.lower.len() as f64 - self.upper.len() as f64;
        (self.upper_sum - self.lower_sum + more * middle).max(0.0)
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

/// The length of the windows that percentiles of a pass of so many seconds are of.
#[must_use]
pub fn window_seconds(pass_seconds: f64) -> f64 {
    WINDOW_SECONDS.min(pass_seconds / WINDOWS_LEAST)
}

/// Lengths of samples are not exact to the last bit.
const NEARLY: f64 = 0.999;

/// What some samples sustained, in windows of this length; a window is as many samples as make that time. None where there is no time.
#[must_use]
pub fn rate(samples: &[Sample], window_seconds: f64) -> Option<Rate> {
    let mut rates = Vec::new();
    let (mut bytes, mut seconds) = (0, 0.0);
    for sample in samples {
        bytes += sample.bytes;
        seconds += sample.seconds;
        if seconds >= window_seconds * NEARLY {
            rates.push(bytes as f64 / seconds);
            (bytes, seconds) = (0, 0.0);
        }
    }
    let all_bytes: u64 = samples.iter().map(|sample| sample.bytes).sum();
    let all_seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
    if all_seconds <= 0.0 {
        return None;
    }
    let mean = all_bytes as f64 / all_seconds;
    if rates.is_empty() {
        rates.push(mean);
    }
    rates.sort_by(f64::total_cmp);
    // The nearest rank: of n values, the one that this part of them is not above.
    let at = |part: f64| {
        let rank = (part * rates.len() as f64).ceil().max(1.0) as usize;
        rates[rank - 1]
    };
    Some(Rate {
        median: median(&rates),
        p5: at(0.05),
        p0_1: at(0.001),
        mean,
    })
}

/// Steps of the lengths of windows within a power of ten.
const WINDOW_STEPS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];

/// The lowest mean rate over any time of some lengths: round ones from a sample's to the whole, and the whole.
#[must_use]
pub fn worst_windows(samples: &[Sample]) -> Vec<Window> {
    let course = Course::of(samples);
    let whole = course.seconds();
    // Most samples are of one length; a last one, or one to which a scrap was added, is shorter or longer.
    let mut each: Vec<f64> = samples.iter().map(|sample| sample.seconds).collect();
    each.sort_by(f64::total_cmp);
    let shortest = each.get(each.len() / 2).copied().unwrap_or(0.0) * NEARLY;
    if whole <= 0.0 {
        return Vec::new();
    }
    let mut lengths = Vec::new();
    let mut power = 10f64.powf(shortest.min(WINDOW_SECONDS).log10().floor());
    while power < whole {
        let steps = WINDOW_STEPS.iter().map(|step| step * power);
        lengths.extend(steps.filter(|&length| length >= shortest && length < whole));
        power *= 10.0;
    }
    lengths.push(whole);
    let window = |seconds| Window {
        seconds,
        bytes_per_second: course.least(seconds) / seconds,
    };
    lengths.into_iter().map(window).collect()
}

/// Bytes over time, a line from sample to sample.
struct Course {
    /// Time and bytes at the ends of samples, from zero.
    places: Vec<(f64, f64)>,
}

impl Course {
    fn of(samples: &[Sample]) -> Self {
        let mut at = (0.0, 0.0);
        let mut places = vec![at];
        for sample in samples {
            at = (at.0 + sample.seconds, at.1 + sample.bytes as f64);
            places.push(at);
        }
        Course { places }
    }

    fn seconds(&self) -> f64 {
        self.places[self.places.len() - 1].0
    }

    /// The least bytes in any time of this length. It is at a window that begins or ends where a sample does, for between these the bytes in a window
    /// change linearly.
    fn least(&self, length: f64) -> f64 {
        let whole = self.seconds();
        let begins = self.places.iter().map(|place| place.0);
        let ends = self.places.iter().map(|place| place.0 - length);
        let (mut forward, mut backward) = (Cursor::default(), Cursor::default());
        let (mut forward_end, mut backward_begin) = (Cursor::default(), Cursor::default());
        let mut least = f64::INFINITY;
        for begin in begins.take_while(|begin| begin + length <= whole) {
            let bytes = forward_end.at(self, begin + length) - forward.at(self, begin);
            least = least.min(bytes);
        }
        for begin in ends.filter(|&begin| begin >= 0.0) {
            let bytes = backward.at(self, begin + length) - backward_begin.at(self, begin);
            least = least.min(bytes);
        }
        match least.is_finite() {
            true => least.max(0.0),
            // The whole, but for a rounding.
            false => self.places[self.places.len() - 1].1,
        }
    }
}

/// Reads a course at times that do not decrease.
#[derive(Default)]
struct Cursor {
    place: usize,
}

impl Cursor {
    fn at(&mut self, course: &Course, seconds: f64) -> f64 {
        let places = &course.places;
        while self.place + 2 < places.len() && places[self.place + 1].0 < seconds {
            self.place += 1;
        }
        let (from, to) = (
            places[self.place],
            places[(self.place + 1).min(places.len() - 1)],
        );
        match to.0 > from.0 {
            true => {
                from.1 + (to.1 - from.1) * ((seconds - from.0) / (to.0 - from.0)).clamp(0.0, 1.0)
            }
            false => from.1,
        }
    }
}

#[cfg(test)]
mod tests;
