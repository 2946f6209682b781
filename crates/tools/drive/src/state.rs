//! What has been measured so far, in a form that can be kept and taken up again.

use std::io;

use serde::{Deserialize, Serialize};
use weir_block::HealthReport;
use weir_lab::document::Caveat;
use weir_lab::modelled::is_modelled;

use crate::config::Config;
use crate::course::{Current, longest_gap};
use crate::document::{Drive, Health, Pass, PassKind, Sample, Truth};
use crate::{analysis, phases};

/// What a kept state calls itself.
const KIND: &str = "drive-state";
/// The version of its form.
const VERSION: u32 = 1;

/// What makes a drive this one and no other, as far as it can be asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its URL.
    pub url: String,
    /// Its length.
    pub capacity_bytes: u64,
    /// Its logical block.
    pub block_size_bytes: u32,
}

/// A drive and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DriveState {
    /// Which.
    pub identity: Identity,
    /// What it is called.
    pub name: String,
    /// Of a stripe: its members.
    #[serde(default)]
    pub members: Vec<String>,
    /// How much of it is written, from its beginning.
    pub size_bytes: u64,
    /// What tells the data that is written to it from that of all other drives and runs; none before it was chosen.
    pub mark: Option<u64>,
    /// Whether it was purged, or was new.
    pub purged: bool,
    /// Whether it returns what was written; not known before something was.
    pub keeps_data: Option<bool>,
    /// What it said before.
    pub health_before: Option<Health>,
    /// What it said last.
    pub health_after: Option<Health>,
    /// Why something of it is not known.
    #[serde(default)]
    pub health_unknown: Vec<String>,
    /// What it says that it is.
    #[serde(default)]
    pub identified_as: Vec<String>,
    /// Passes that were made to their end.
    pub passes: Vec<Pass>,
    /// The pass that was not.
    pub current: Option<Current>,
    /// Of a modelled drive: what its profile says.
    #[serde(default)]
    pub truth: Option<Truth>,
    /// Of a modelled drive: what its vendor lets hosts write to it.
    #[serde(default)]
    pub rated_write_bytes: Option<u64>,
    /// Why nothing more was measured of it.
    #[serde(default)]
    pub failed: Option<String>,
}

impl DriveState {
    /// A drive of which nothing was measured yet.
    #[must_use]
    pub fn new(identity: Identity, name: String, size_bytes: u64) -> Self {
        DriveState {
            identity,
            name,
            members: Vec::new(),
            size_bytes,
            mark: None,
            purged: false,
            keeps_data: None,
            health_before: None,
            health_after: None,
            health_unknown: Vec::new(),
            identified_as: Vec::new(),
            passes: Vec::new(),
            current: None,
            truth: None,
            rated_write_bytes: None,
            failed: None,
        }
    }

    /// Takes what came of asking it for its health; what it says.
    pub fn heard(&mut self, report: HealthReport) -> Option<Health> {
        if !report.drives.is_empty() {
            self.identified_as = report.drives;
        }
        for reason in report.unknown {
            if !self.health_unknown.contains(&reason) {
                self.health_unknown.push(reason);
            }
        }
        report.health.map(Health::from)
    }

    /// Whether a pass was made to its end.
    #[must_use]
    pub fn is_made(&self, pass: PassKind) -> bool {
        self.passes.iter().any(|made| made.pass == pass)
    }

    /// Whether anything was written to it.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        let begun = |current: &Current| current.position_bytes > 0;
        !self.passes.is_empty() || self.current.as_ref().is_some_and(begun)
    }

    /// So much from its beginning was certainly written, by whichever pass.
    #[must_use]
    pub fn known_bytes(&self) -> u64 {
        let made = self.passes.iter().map(Pass::bytes);
        let current = self.current.iter().map(|current| current.position_bytes);
        made.chain(current).max().unwrap_or(0).min(self.size_bytes)
    }

    /// The pass as it is to be taken up, or begun.
    #[must_use]
    pub fn begin(&self, config: &Config, pass: PassKind) -> Current {
        match &self.current {
            Some(current) if current.pass == pass => current.clone(),
            _ => {
                let cache = phases::cache(&self.passes).map(|cache| cache.bytes);
                let end = match pass {
                    PassKind::Recovery => config.burst(self.size_bytes, cache),
                    _ => self.size_bytes,
                };
                Current::new(pass, end)
            }
        }
    }

    /// Takes what a pass came to: at its end it is one that was made, before that the one that goes on.
    pub fn put(&mut self, config: &Config, current: Current) {
        if current.position_bytes < current.end_bytes {
            self.current = Some(current);
            return;
        }
        let made = self.analysed(config, &current);
        self.passes.push(made);
        self.current = None;
    }

    fn analysed(&self, config: &Config, current: &Current) -> Pass {
        let trim_ahead = config.trim_ahead(self.size_bytes);
        phases::pass(current, trim_ahead, &self.passes)
    }

    /// As documents have it, with the pass that was not made to its end.
    #[must_use]
    pub fn drive(&self, config: &Config) -> Drive {
        let mut passes = self.passes.clone();
        let unfinished = self.current.iter().filter(|of| !of.samples.is_empty());
        passes.extend(unfinished.map(|current| self.analysed(config, current)));
        Drive {
            name: self.name.clone(),
            url: self.identity.url.clone(),
            members: self.members.clone(),
            modelled: is_modelled(&self.identity.url)
                || self.members.iter().any(|member| is_modelled(member)),
            capacity_bytes: self.identity.capacity_bytes,
            written_bytes: self.size_bytes,
            block_bytes: config.block_bytes,
            depth: config.depth,
            passes,
            health_before: self.health_before,
            health_after: self.health_after,
            health_unknown: self.health_unknown.clone(),
            identified_as: self.identified_as.clone(),
            truth: self.truth.clone(),
            rated_write_bytes: self.rated_write_bytes,
            write_amplification: write_amplification(self.health_before, self.health_after),
        }
    }
}

/// Bytes that the medium was written for each byte that the drive was. None where the drive does not say both.
fn write_amplification(before: Option<Health>, after: Option<Health>) -> Option<f64> {
    let host = grown(before, after, |health| health.data_units_written_bytes)? as f64;
    let media = grown(before, after, |health| health.media_bytes_written)? as f64;
    (host > 0.0).then(|| media / host)
}

/// By how much a counter grew. None where the drive does not have it.
fn grown(
    before: Option<Health>,
    after: Option<Health>,
    of: fn(&Health) -> Option<u64>,
) -> Option<u64> {
    of(&after?)?.checked_sub(of(&before?)?)
}

/// What a drive's own words say of how it was while it was measured: codes and texts of caveats.
fn told_by_the_drive(drive: &DriveState) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    let (before, after) = (drive.health_before, drive.health_after);
    let mut warnings: Vec<String> = Vec::new();
    for health in [before, after].iter().flatten() {
        for warning in health.warnings() {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    if !warnings.is_empty() {
        let text = format!("the drive warns of itself: {}", warnings.join("; "));
        told.push(("drive-warns", text));
    }
    let seconds = grown(before, after, |of| of.thermal_throttle_nanoseconds)
        .map(|nanoseconds| nanoseconds as f64 / 1e9);
    let times = grown(before, after, |of| of.thermal_throttle_transitions);
    let current = drive.current.iter().flat_map(|current| &current.health);
    let samples = drive.passes.iter().flat_map(|pass| &pass.health);
    let level = samples
        .chain(current)
        .filter_map(|sample| sample.health.throttling_level)
        .max();
    let mut counts = Vec::new();
    if let Some(seconds) = seconds.filter(|&seconds| seconds > 0.0) {
        counts.push(format!("for {seconds:.0} s"));
    }
    if let Some(times) = times.filter(|&times| times > 0) {
        counts.push(format!("beginning {times} times"));
    }
    if let Some(level) = level.filter(|&level| level > 0) {
        counts.push(format!("by level {level} of 3 at most"));
    }
    if !counts.is_empty() {
        let text = format!(
            "heat held the drive back while it was measured, by its own count {}: cooled better it may sustain more",
            counts.join(", ")
        );
        told.push(("throttled", text));
    }
    let warm = grown(before, after, |of| of.warning_temperature_minutes).unwrap_or(0);
    let hot = grown(before, after, |of| of.critical_temperature_minutes).unwrap_or(0);
    if warm + hot > 0 {
        let text = format!(
            "the drive was too warm while it was measured: for {warm} minutes beyond its warning temperature and for {hot} beyond its critical one"
        );
        told.push(("too-warm", text));
    }
    told.extend(causes_unknown(drive).map(|text| ("causes-unknown", text)));
    told
}

/// The caveat of a drive whose counters do not explain its phases. None where they do, or nothing was measured.
fn causes_unknown(drive: &DriveState) -> Option<String> {
    let samples = drive.passes.iter().flat_map(|pass| &pass.health);
    let all = samples.map(|sample| &sample.health);
    let all: Vec<&Health> = all.chain(&drive.health_after).collect();
    let counts = |has: fn(&Health) -> bool| all.iter().any(|&health| has(health));
    if drive.passes.is_empty() || counts(|of| of.cache_bytes_size.is_some()) {
        return None;
    }
    let heat =
        counts(|of| of.thermal_throttle_nanoseconds.is_some() || of.throttling_level.is_some());
    let heat = if heat {
        "; heat it counts"
    } else {
        ", or heat, which it does not count either"
    };
    Some(format!(
        "the drive does not count what its cache holds and what it moves by itself: rates, places where they change and worst windows are measured, and their causes are not. What is called a cache was fast at the beginning of a fill and never again in it; an unknown cause may be a cache that is full or has become smaller, data that is moved out of it, or garbage collection{heat}"
    ))
}

/// Everything that is kept: what was asked for, and how far each drive is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    weir: String,
    version: u32,
    /// What was asked for.
    pub config: Config,
    /// When the measurement began: RFC 3339, UTC.
    pub started: String,
    /// The drives.
    pub drives: Vec<DriveState>,
}

/// Why a kept state cannot be taken up.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It is none.
    #[error("this is no kept state of weir drive of version {VERSION}: {0}")]
    Form(String),
    /// Something else was asked for.
    #[error(
        "the run that is to be taken up was asked for with other options ({what}); give the same ones, or begin anew without --resume"
    )]
    Other {
        /// What differs.
        what: &'static str,
    },
    /// The drives are others.
    #[error(
        "the run that is to be taken up was on {then}, and this is {now}; name the same drives in the same order"
    )]
    Drives {
        /// As it was.
        then: String,
        /// As it is.
        now: String,
    },
    /// It could not be read or written.
    #[error("the state could not be read or written: {0}")]
    Io(#[from] io::Error),
}

impl State {
    /// Nothing measured yet.
    #[must_use]
    pub fn new(config: Config, started: String, drives: Vec<DriveState>) -> Self {
        State {
            weir: KIND.to_owned(),
            version: VERSION,
            config,
            started,
            drives,
        }
    }

    /// Reads a state.
    ///
    /// # Errors
    /// [`StateError::Form`] or [`StateError::Io`].
    pub fn read(mut source: impl io::Read) -> Result<Self, StateError> {
        let mut text = String::new();
        source.read_to_string(&mut text)?;
        let state: State =
            serde_json::from_str(&text).map_err(|error| StateError::Form(error.to_string()))?;
        if state.weir != KIND || state.version != VERSION {
            let found = format!("it is \"{}\" of version {}", state.weir, state.version);
            return Err(StateError::Form(found));
        }
        Ok(state)
    }

    /// Writes the state.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn write(&self, mut sink: impl io::Write) -> Result<(), StateError> {
        let text = serde_json::to_vec(self).map_err(io::Error::from)?;
        Ok(sink.write_all(&text)?)
    }

    /// Whether what is asked for now, of these drives, is what was begun.
    ///
    /// # Errors
    /// [`StateError::Other`] or [`StateError::Drives`].
    pub fn check(&self, config: &Config, drives: &[Identity]) -> Result<(), StateError> {
        let then = &self.config;
        let differences = [
            ("--block-size", then.block_bytes != config.block_bytes),
            ("--depth", then.depth != config.depth),
            ("--size", then.size_bytes != config.size_bytes),
            ("--passes", then.passes != config.passes),
            (
                "--trim-ahead",
                then.trim_ahead_bytes != config.trim_ahead_bytes,
            ),
            ("--idle", then.idle != config.idle),
            ("--purge", then.purge != config.purge),
            ("--seed", then.seed != config.seed),
        ];
        if let Some((what, _)) = differences.into_iter().find(|(_, differs)| *differs) {
            return Err(StateError::Other { what });
        }
        let words = |drives: &[&Identity]| {
            let each = drives.iter().map(|of| {
                format!(
                    "{} ({} bytes, {}-byte blocks)",
                    of.url, of.capacity_bytes, of.block_size_bytes
                )
            });
            each.collect::<Vec<_>>().join(", ")
        };
        let then: Vec<_> = self.drives.iter().map(|drive| &drive.identity).collect();
        let now: Vec<_> = drives.iter().collect();
        match then == now {
            true => Ok(()),
            false => Err(StateError::Drives {
                then: words(&then),
                now: words(&now),
            }),
        }
    }

    /// Whether all that was asked for was measured.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let made = |drive: &DriveState| self.config.passes.iter().all(|&pass| drive.is_made(pass));
        let whole = |drive: &DriveState| drive.failed.is_none() && made(drive);
        self.drives.iter().all(whole)
    }

    /// Several drives as one that is as fast as they are together, in the passes that all began at the same time and none was interrupted in. None where there is one.
    #[must_use]
    pub fn together(&self) -> Option<Drive> {
        if self.drives.len() < 2 {
            return None;
        }
        let drives: Vec<Drive> = self
            .drives
            .iter()
            .map(|of| of.drive(&self.config))
            .collect();
        let mut passes = Vec::new();
        for kind in &self.config.passes {
            let of_all: Vec<&Pass> = drives
                .iter()
                .filter_map(|drive| drive.passes.iter().find(|pass| pass.pass == *kind))
                .collect();
            if of_all.len() < drives.len() || !are_together(&of_all) {
                continue;
            }
            passes.push(added(*kind, &of_all));
        }
        Some(Drive {
            name: format!("{} drives together", drives.len()),
            members: drives.iter().map(|drive| drive.url.clone()).collect(),
            modelled: drives.iter().any(|drive| drive.modelled),
            capacity_bytes: drives.iter().map(|drive| drive.capacity_bytes).sum(),
            written_bytes: drives.iter().map(|drive| drive.written_bytes).sum(),
            block_bytes: self.config.block_bytes,
            depth: self.config.depth,
            passes,
            ..Drive::default()
        })
    }

    /// What a reader of the numbers must know.
    #[must_use]
    pub fn caveats(&self) -> Vec<Caveat> {
        let mut caveats = Vec::new();
        let several = self.drives.len() > 1;
        for drive in &self.drives {
            let mut say = |code: &str, text: String| {
                let text = match several {
                    true => format!("{}: {text}", drive.name),
                    false => text,
                };
                caveats.push(Caveat::new(code, text));
            };
            let first = self.config.passes.first();
            if let Some(pass @ (PassKind::Overwrite | PassKind::OverwriteTrimmed)) = first {
                say(
                    "not-filled",
                    format!(
                        "it was not filled first: the pass {} writes over old data only where it was full",
                        pass.name()
                    ),
                );
            }
            if drive.size_bytes < drive.identity.capacity_bytes {
                say(
                    "part-of-the-drive",
                    format!(
                        "only the first {} of {} bytes were written: what comes with a full drive was not met",
                        drive.size_bytes, drive.identity.capacity_bytes
                    ),
                );
            }
            if let Some(reason) = &drive.failed {
                say("failed", format!("it ended early: {reason}"));
            }
            if !drive.purged && self.config.passes.first() == Some(&PassKind::Fill) {
                say(
                    "not-purged",
                    "it was not purged first: a fill shows an empty drive only where it was one"
                        .to_owned(),
                );
            }
            let unfinished = self
                .config
                .passes
                .iter()
                .find(|&&pass| !drive.is_made(pass));
            if let Some(pass) = unfinished {
                say(
                    "unfinished",
                    format!("the pass {} was not made to its end", pass.name()),
                );
            }
            let interrupted = drive
                .passes
                .iter()
                .map(|pass| (pass.pass, &pass.interrupted_at_bytes))
                .chain(
                    drive
                        .current
                        .iter()
                        .map(|of| (of.pass, &of.interrupted_at_bytes)),
                );
            for (pass, at_bytes) in interrupted {
                if !at_bytes.is_empty() {
                    say(
                        "interrupted",
                        format!(
                            "the pass {} was interrupted after {at_bytes:?} bytes and taken up again: the drive had time to recover there",
                            pass.name()
                        ),
                    );
                }
            }
            for (code, text) in told_by_the_drive(drive) {
                say(code, text);
            }
            if drive.keeps_data == Some(false) {
                say(
                    "discards",
                    "it does not return what is written to it: it is no drive, or one that is modelled"
                        .to_owned(),
                );
            }
        }
        for kind in &self.config.passes {
            let passes = self.drives.iter().flat_map(|drive| &drive.passes);
            let passes: Vec<&Pass> = passes.filter(|pass| pass.pass == *kind).collect();
            if several && passes.len() == self.drives.len() && !are_together(&passes) {
                let text = format!(
                    "the drives did not make the pass {} at the same time throughout: what they are together leaves it out",
                    kind.name()
                );
                caveats.push(Caveat::new("not-together", text));
            }
        }
        caveats
    }
}

/// Whether drives began a pass at the same time, and none was interrupted in it.
fn are_together(passes: &[&Pass]) -> bool {
    let is_apart = |pass: &&Pass| pass.alone || !pass.interrupted_at_bytes.is_empty();
    !passes.iter().any(is_apart)
}

/// Samples of one pass of several drives added up, from its beginning until the first of them has ended it.
fn added(kind: PassKind, passes: &[&Pass]) -> Pass {
    let length = passes
        .iter()
        .map(|pass| pass.seconds())
        .fold(f64::INFINITY, f64::min);
    let sample_seconds = passes
        .iter()
        .flat_map(|pass| &pass.samples)
        .map(|sample| sample.seconds)
        .fold(0.0, f64::max);
    let count = match sample_seconds > 0.0 && length.is_finite() {
        true => (length / sample_seconds).floor() as usize,
        false => 0,
    };
    let mut samples = vec![
        Sample {
            seconds: sample_seconds,
            bytes: 0,
            nanoseconds_longest: 0,
            nanoseconds_gap: Some(0),
        };
        count
    ];
    for pass in passes {
        spread(pass, &mut samples);
    }
    let bytes = samples.iter().map(|sample| sample.bytes).sum();
    let current = Current {
        position_bytes: bytes,
        samples,
        ..Current::new(kind, bytes)
    };
    let mut pass = phases::pass(&current, 0, &[]);
    pass.trim_ahead_bytes = None;
    pass.recovery = None;
    pass.rate_window_seconds = analysis::window_seconds(length);
    pass.complete = passes.iter().all(|of| of.complete);
    pass
}

/// Adds a pass to samples of equal length; what lies across two of these is divided by time.
fn spread(pass: &Pass, samples: &mut [Sample]) {
    let Some(length) = samples.first().map(|sample| sample.seconds) else {
        return;
    };
    let (mut at, mut given) = (0.0, vec![0.0_f64; samples.len()]);
    for sample in &pass.samples {
        let end = at + sample.seconds;
        let mut place = (at / length) as usize;
        while place < samples.len() && place as f64 * length < end {
            let from = at.max(place as f64 * length);
            let to = end.min((place + 1) as f64 * length);
            given[place] += sample.bytes as f64 * ((to - from).max(0.0) / sample.seconds);
            let longest = &mut samples[place].nanoseconds_longest;
            *longest = (*longest).max(sample.nanoseconds_longest);
            // Drives that are written as one wait for the one that stands still.
            let gap = &mut samples[place].nanoseconds_gap;
            *gap = longest_gap([*gap, sample.nanoseconds_gap]);
            place += 1;
        }
        at = end;
    }
    let mut written = 0.0_f64;
    for (sample, bytes) in samples.iter_mut().zip(given) {
        // Rounded so that no byte is lost or made.
        let before = written.round();
        written += bytes;
        sample.bytes += (written.round() - before) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(url: &str) -> Identity {
        Identity {
            url: url.to_owned(),
            capacity_bytes: 1000,
            block_size_bytes: 512,
        }
    }

    fn made(pass: PassKind, rates: &[u64], seconds: f64) -> Current {
        let samples: Vec<_> = rates
            .iter()
            .map(|&bytes| Sample {
                seconds,
                bytes,
                nanoseconds_longest: bytes,
                nanoseconds_gap: Some(bytes / 10),
            })
            .collect();
        let bytes = rates.iter().sum();
        Current {
            position_bytes: bytes,
            samples,
            ..Current::new(pass, bytes)
        }
    }

    fn state(drives: usize) -> State {
        let drive =
            |index| DriveState::new(identity(&format!("file:/{index}")), "a".to_owned(), 1000);
        let config = Config {
            passes: vec![PassKind::Fill, PassKind::Overwrite],
            ..Config::default()
        };
        State::new(config, String::new(), (0..drives).map(drive).collect())
    }

    #[test]
    fn a_state_is_kept_and_taken_up_only_for_the_same_run() {
        let mut state = state(1);
        let config = state.config.clone();
        state.drives[0].put(&config, made(PassKind::Fill, &[500, 500], 1.0));
        let part = Current {
            end_bytes: 1000,
            ..made(PassKind::Overwrite, &[500], 1.0)
        };
        state.drives[0].put(&config, part);
        let mut text = Vec::new();
        state.write(&mut text).unwrap();
        let again = State::read(&text[..]).unwrap();
        assert_eq!(again, state);
        assert!(!again.is_complete() && again.drives[0].is_made(PassKind::Fill));
        assert_eq!(
            again.drives[0]
                .begin(&config, PassKind::Overwrite)
                .position_bytes,
            500
        );
        let identities = [identity("file:/0")];
        again.check(&config, &identities).unwrap();
        let other = Config {
            depth: 7,
            ..config.clone()
        };
        let refused = again.check(&other, &identities).unwrap_err().to_string();
        assert!(refused.contains("--depth"), "{refused}");
        let refused = again.check(&config, &[identity("file:/b")]).unwrap_err();
        assert!(
            refused.to_string().contains("file:/b (1000 bytes"),
            "{refused}"
        );
        for wrong in ["{}", "nothing", r#"{"weir":"drive","version":1}"#] {
            let error = State::read(wrong.as_bytes()).unwrap_err();
            assert!(matches!(error, StateError::Form(_)), "{error}");
        }
        let codes: Vec<_> = again.caveats().into_iter().map(|of| of.code).collect();
        assert_eq!(codes, ["not-purged", "unfinished", "causes-unknown"]);
        let drive = again.drives[0].drive(&config);
        assert_eq!(drive.passes.len(), 2);
        assert!(drive.passes[0].complete && !drive.passes[1].complete);
    }

    #[test]
    fn drives_together_are_added_up_while_all_are_at_it() {
        let mut state = state(2);
        let config = state.config.clone();
        state.drives[0].put(&config, made(PassKind::Fill, &[100; 8], 1.0));
        state.drives[1].put(&config, made(PassKind::Fill, &[25; 12], 0.5));
        let together = state.together().unwrap();
        assert_eq!(together.members, ["file:/0", "file:/1"]);
        assert_eq!(
            together.passes.len(),
            1,
            "the overwrite was not made by all"
        );
        let samples: Vec<_> = together.passes[0]
            .samples
            .iter()
            .map(|of| of.bytes)
            .collect();
        assert_eq!(samples, [150; 6]);
        // One that stands still keeps all waiting.
        let gap = together.passes[0].phases[0].longest_gap_seconds;
        assert_eq!(gap, Some(10e-9));
        // What was not at the same time is not added up.
        for apart in [
            |pass: &mut Pass| pass.alone = true,
            |pass: &mut Pass| pass.interrupted_at_bytes.push(5),
        ] {
            let mut state = state.clone();
            apart(&mut state.drives[1].passes[0]);
            assert_eq!(state.together().unwrap().passes, []);
            let codes: Vec<_> = state.caveats().into_iter().map(|of| of.code).collect();
            assert!(codes.contains(&"not-together".to_owned()), "{codes:?}");
        }
        state.config.passes.remove(0);
        let codes: Vec<_> = state.caveats().into_iter().map(|of| of.code).collect();
        assert_eq!(codes[0], "not-filled");
        state.config.clone_from(&config);
        let one = State {
            drives: state.drives[..1].to_vec(),
            ..state
        };
        assert!(one.together().is_none());
    }

    #[test]
    fn a_drive_that_is_a_model_says_so() {
        let config = Config::default();
        let drive = |url: &str| DriveState::new(identity(url), "a".to_owned(), 1000);
        assert!(!drive("file:/ssd").drive(&config).modelled);
        assert!(drive("ssd:optane").drive(&config).modelled);
        let mut stripe = drive("two as a stripe");
        stripe.members = vec!["file:/a".to_owned(), "ssd:optane?seed=2".to_owned()];
        assert!(stripe.drive(&config).modelled);
        let drives = vec![drive("file:/a"), drive("ssd:optane")];
        let state = State::new(config, String::new(), drives);
        assert!(state.together().unwrap().modelled);
    }

    #[test]
    fn what_the_drive_says_of_heat_and_of_itself_is_a_caveat() {
        let health = |throttled: u64, minutes: u64, warning| Health {
            thermal_throttle_nanoseconds: Some(throttled * 1_000_000_000),
            thermal_throttle_transitions: Some(throttled / 10),
            warning_temperature_minutes: Some(minutes),
            critical_temperature_minutes: Some(7),
            critical_warning: Some(warning),
            ..Health::default()
        };
        let identity = Identity {
            url: "file:/d".to_owned(),
            capacity_bytes: 1000,
            block_size_bytes: 512,
        };
        let mut drive = DriveState::new(identity, "d".to_owned(), 1000);
        let codes = |drive: &DriveState| -> Vec<_> {
            told_by_the_drive(drive).iter().map(|told| told.0).collect()
        };
        assert!(codes(&drive).is_empty());
        drive.health_before = Some(health(100, 4, 0));
        assert!(
            codes(&drive).is_empty(),
            "there is nothing to compare it with"
        );
        drive.health_after = Some(health(100, 4, 0));
        assert!(
            codes(&drive).is_empty(),
            "what was before is not of this run"
        );
        drive.health_after = Some(health(130, 6, 0b10));
        let told = told_by_the_drive(&drive);
        assert_eq!(codes(&drive), ["drive-warns", "throttled", "too-warm"]);
        assert!(told[0].1.contains("temperature is beyond"), "{told:?}");
        assert!(
            told[1].1.contains("for 30 s, beginning 3 times"),
            "{told:?}"
        );
        assert!(told[2].1.contains("for 2 minutes beyond"), "{told:?}");
        // A level that was told on the way is enough.
        drive.health_after = drive.health_before;
        let mut current = Current::new(PassKind::Fill, 1000);
        current.health = vec![crate::document::HealthSample {
            at_bytes: 5,
            health: Health {
                throttling_level: Some(2),
                ..Health::default()
            },
        }];
        drive.current = Some(current);
        assert_eq!(codes(&drive), ["throttled"]);
    }

    #[test]
    fn a_drive_that_does_not_count_causes_has_that_said_and_one_that_does_has_not() {
        let tells = |counters: Health| {
            let identity = Identity {
                url: "file:/d".to_owned(),
                capacity_bytes: 1000,
                block_size_bytes: 512,
            };
            let mut drive = DriveState::new(identity, "d".to_owned(), 1000);
            drive.health_after = Some(counters);
            assert_eq!(causes_unknown(&drive), None, "nothing was measured");
            let nothing = Current::new(PassKind::Fill, 1000);
            drive.passes = vec![crate::phases::pass(&nothing, 0, &[])];
            causes_unknown(&drive)
        };
        let none = tells(Health::default()).unwrap();
        assert!(none.contains("which it does not count either"), "{none}");
        let heat = tells(Health {
            thermal_throttle_nanoseconds: Some(0),
            ..Health::default()
        });
        assert!(heat.unwrap().ends_with("heat it counts"));
        let all = tells(Health {
            cache_bytes_size: Some(0),
            ..Health::default()
        });
        assert_eq!(all, None);
    }

    #[test]
    fn reasons_are_kept_once() {
        let identity = Identity {
            url: "file:/d".to_owned(),
            capacity_bytes: 1000,
            block_size_bytes: 512,
        };
        let mut drive = DriveState::new(identity, "d".to_owned(), 1000);
        for reason in ["it refuses", "it refuses", "it is gone"] {
            assert_eq!(drive.heard(HealthReport::unknown(reason.to_owned())), None);
        }
        assert_eq!(drive.health_unknown, ["it refuses", "it is gone"]);
        let says = HealthReport {
            drives: vec!["A Drive".to_owned()],
            ..HealthReport::from(weir_block::Health::default())
        };
        assert_eq!(drive.heard(says), Some(Health::default()));
        assert_eq!(drive.identified_as, ["A Drive"]);
        drive.heard(HealthReport::unknown("it is gone".to_owned()));
        assert_eq!(drive.identified_as, ["A Drive"], "it is the same still");
    }

    #[test]
    fn amplification_is_known_where_the_drive_counts_both() {
        let health = |host, media| Health {
            data_units_written_bytes: host,
            media_bytes_written: media,
            ..Health::default()
        };
        let (before, after) = (health(Some(100), Some(50)), health(Some(300), Some(350)));
        assert_eq!(write_amplification(Some(before), Some(after)), Some(1.5));
        let silent = health(Some(300), None);
        assert_eq!(write_amplification(Some(before), Some(silent)), None);
        assert_eq!(write_amplification(None, Some(after)), None);
        assert_eq!(write_amplification(Some(after), Some(after)), None);
    }
}
