//! Qualifies a modelled drive on the model's own clock: what takes a drive hours takes the processor seconds. The order of requests, the samples and
//! what is made of them are those of a real drive; only who answers is another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_load::Stop;
use weir_ssd::Model;

use crate::config::Config;
use crate::course::{Course, Step};
use crate::document::{Health, PassKind};
use crate::state::DriveState;

/// The most bytes that one request deallocates in a purge.
const PURGE_BYTES: u64 = 1 << 30;
/// How often it is looked whether a stop was asked for, in requests.
const LOOK_EVERY: u64 = 4096;

/// A drive on a clock of its own. Times are nanoseconds, and never decrease from call to call.
pub trait Device {
    /// When a write that is made at `now` is answered.
    fn write(&mut self, now: u64, offset: u64, bytes: u64) -> u64;
    /// When a deallocation that is made at `now` is answered.
    fn deallocate(&mut self, now: u64, offset: u64, bytes: u64) -> u64;
    /// When a flush that is made at `now` is answered.
    fn flush(&mut self, now: u64) -> u64;
    /// What it says of itself at `now`; none where it says nothing.
    fn health(&mut self, now: u64) -> Option<Health>;
}

impl Device for Model {
    fn write(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        Model::write(self, now, offset, bytes)
    }

    fn deallocate(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        Model::deallocate(self, now, offset, bytes)
    }

    fn flush(&mut self, now: u64) -> u64 {
        Model::flush(self, now)
    }

    fn health(&mut self, now: u64) -> Option<Health> {
        Some(self.smart(now).into())
    }
}

/// Drives of which one chunk after the other is on the next one.
pub struct Striped<D> {
    members: Vec<D>,
    chunk_bytes: u64,
}

impl<D: Device> Striped<D> {
    /// A stripe of these.
    ///
    /// # Panics
    /// Where there is none, or chunks have no length.
    #[must_use]
    pub fn new(members: Vec<D>, chunk_bytes: u64) -> Self {
        assert!(
            !members.is_empty() && chunk_bytes > 0,
            "a stripe has members and chunks"
        );
        Striped {
            members,
            chunk_bytes,
        }
    }

    /// Has each member that a range touches do its part, which is one range on it; yields when the last one has.
    fn each(
        &mut self,
        offset: u64,
        bytes: u64,
        mut ask: impl FnMut(&mut D, u64, u64) -> u64,
    ) -> u64 {
        let (chunk, count) = (self.chunk_bytes, self.members.len() as u64);
        // How many of the first so many bytes are on a member.
        let below = |end: u64, member: u64| {
            let (row, in_row) = (end / (chunk * count), end % (chunk * count));
            row * chunk + in_row.saturating_sub(member * chunk).min(chunk)
        };
        let mut last = 0;
        for (member, device) in self.members.iter_mut().enumerate() {
            let from = below(offset, member as u64);
            let part = below(offset + bytes, member as u64) - from;
            if part > 0 {
                last = last.max(ask(device, from, part));
            }
        }
        last
    }
}

impl<D: Device> Device for Striped<D> {
    fn write(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        self.each(offset, bytes, |member, offset, bytes| {
            member.write(now, offset, bytes)
        })
    }

    fn deallocate(&mut self, now: u64, offset: u64, bytes: u64) -> u64 {
        self.each(offset, bytes, |member, offset, bytes| {
            member.deallocate(now, offset, bytes)
        })
    }

    fn flush(&mut self, now: u64) -> u64 {
        let each = self.members.iter_mut().map(|member| member.flush(now));
        each.max().unwrap_or(now)
    }

    fn health(&mut self, now: u64) -> Option<Health> {
        // What several drives say of themselves is one thing only where it is a count.
        let each: Option<Vec<Health>> = self.members.iter_mut().map(|of| of.health(now)).collect();
        let each = each?;
        let sum = |of: fn(&Health) -> Option<u64>| each.iter().map(of).sum::<Option<u64>>();
        let most = |of: fn(&Health) -> Option<f64>| {
            let values: Option<Vec<f64>> = each.iter().map(of).collect();
            values.map(|values| values.into_iter().fold(0.0, f64::max))
        };
        Some(Health {
            data_units_written_bytes: sum(|of| of.data_units_written_bytes),
            media_bytes_written: sum(|of| of.media_bytes_written),
            percentage_used: most(|of| of.percentage_used),
            temperature_kelvin: most(|of| of.temperature_kelvin),
            // Heat holds the stripe back where it does one of them.
            thermal_throttle_nanoseconds: each
                .iter()
                .filter_map(|of| of.thermal_throttle_nanoseconds)
                .max(),
            thermal_throttle_transitions: sum(|of| of.thermal_throttle_transitions),
            folded_bytes: sum(|of| of.folded_bytes),
            cache_bytes_used: sum(|of| of.cache_bytes_used),
            cache_bytes_size: sum(|of| of.cache_bytes_size),
            ..Health::default()
        })
    }
}

/// How far a modelled drive is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// The pass.
    pub pass: PassKind,
    /// Bytes written in it.
    pub written_bytes: u64,
    /// Bytes that it has.
    pub end_bytes: u64,
    /// Seconds of the drive's clock since all began.
    pub drive_seconds: f64,
}

/// Makes all passes that were asked for. A stop ends it early: a modelled drive forgets what it was, so it cannot be taken up again, and what is left
/// is a result that is not whole.
pub fn run(
    device: &mut dyn Device,
    config: &Config,
    state: &mut DriveState,
    stop: &Stop,
    mut progress: impl FnMut(Progress),
) {
    let mut now = 0;
    state.health_before = device.health(now);
    if config.purge {
        let mut offset = 0;
        while offset < state.identity.capacity_bytes {
            let bytes = PURGE_BYTES.min(state.identity.capacity_bytes - offset);
            now = device.deallocate(now, offset, bytes);
            offset += bytes;
        }
    }
    // A modelled drive begins new.
    state.purged = true;
    for &kind in &config.passes {
        if stop.is_asked() {
            break;
        }
        let mut current = state.begin(config, kind);
        if kind == PassKind::Recovery {
            let idle = config.idle.as_nanos() as u64;
            now += idle;
            current.idled_nanoseconds = Some(idle);
        }
        let course = Course::take_up(config, state.size_bytes, current);
        let (current, end) = pass(device, course, now, stop, &mut progress);
        now = device.flush(end);
        state.put(config, current);
        state.health_after = device.health(now);
    }
}

/// A request in flight: when it is answered, in which order it was made, when, and what it is.
type Flying = Reverse<(u64, u64, u64, Step)>;

/// Makes one pass from `began` on; yields what it came to, and when it ended.
fn pass(
    device: &mut dyn Device,
    mut course: Course,
    began: u64,
    stop: &Stop,
    progress: &mut impl FnMut(Progress),
) -> (crate::course::Current, u64) {
    let mut flying: BinaryHeap<Flying> = BinaryHeap::new();
    let (mut now, mut made) = (began, 0);
    let mut stopped = false;
    if let Some(health) = device.health(now) {
        course.note_health(health);
    }
    loop {
        while let Some(step) = (!stopped).then(|| course.next_step()).flatten() {
            let end = match step {
                Step::Write { offset, bytes } => device.write(now, offset, bytes),
                Step::Deallocate { offset, bytes } => device.deallocate(now, offset, bytes),
            };
            made += 1;
            flying.push(Reverse((end.max(now), made, now, step)));
        }
        let Some(Reverse((end, _, submitted, step))) = flying.pop() else {
            break;
        };
        now = end;
        course.ended(step, submitted - began, now - began);
        if course.wants_health() {
            if let Some(health) = device.health(now) {
                course.note_health(health);
            }
            progress(Progress {
                pass: course.pass(),
                written_bytes: course.written_bytes(),
                end_bytes: course.end_bytes(),
                drive_seconds: now as f64 / 1e9,
            });
        }
        stopped = stopped || (made % LOOK_EVERY == 0 && stop.is_asked());
    }
    if let Some(health) = device.health(now) {
        course.note_health(health);
    }
    (course.kept(now - began), now)
}
