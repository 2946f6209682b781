//! The stored result of qualifying drives: one JSON object that begins with `"weir": "drive"`.
//!
//! It holds the rate over the bytes written, sample by sample, what was found in it, what the drive said of itself, and how it was
//! measured, so that a report or a plan needs nothing else. All rates are bytes per second, all lengths bytes. What a drive does not
//! say is absent, and means that it is not known. Fields that a later version adds are passed over when it is read.

use std::io;

use serde::{Deserialize, Serialize};
use weir_lab::document::{Caveat, Machine};

/// What a document calls itself.
pub const KIND: &str = "drive";
/// The version of the form that this crate reads and writes.
pub const VERSION: u32 = 1;

/// Samples of the shortest phase: 1.5% of a pass. Fewer do not tell one rate from another.
pub const SEGMENT_BINS: usize = 6;

/// A stored result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`KIND`].
    pub weir: String,
    /// [`VERSION`].
    pub version: u32,
    /// Each drive that was measured. A stripe is one drive with members.
    pub drives: Vec<Drive>,
    /// Several drives that were written at the same time, as far as all were in the same pass: their bytes added up. None where there
    /// is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub together: Option<Drive>,
    /// The command with its arguments; secrets are replaced.
    #[serde(default)]
    pub command: Vec<String>,
    /// Weir's version.
    #[serde(default)]
    pub weir_version: String,
    /// When the measurement began: RFC 3339, UTC.
    #[serde(default)]
    pub started: String,
    /// Where it was made.
    #[serde(default)]
    pub machine: Machine,
    /// Whether drives were modelled on a model's clock and none was written.
    #[serde(default)]
    pub simulated: bool,
    /// Whether every pass that was asked for was made to its end.
    #[serde(default)]
    pub complete: bool,
    /// What a reader of the numbers must know.
    #[serde(default)]
    pub caveats: Vec<Caveat>,
}

/// A drive and what was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// What it is called: the volume's name.
    pub name: String,
    /// Its URL, without secrets.
    pub url: String,
    /// Of a stripe: its members' URLs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<String>,
    /// Whether it is a model of a drive (`ssd:`), or of such: then no figure of it is of a drive.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub modelled: bool,
    /// Its whole length.
    pub capacity_bytes: u64,
    /// The length from its beginning that was written; less than its capacity where only a part was asked for.
    #[serde(default)]
    pub written_bytes: u64,
    /// Bytes of each write.
    pub block_bytes: u64,
    /// Writes in flight.
    pub depth: u32,
    /// In the order in which they were made.
    pub passes: Vec<Pass>,
    /// What the drive said of itself before; none where it says nothing.
    #[serde(default)]
    pub health_before: Option<Health>,
    /// What it said afterwards.
    #[serde(default)]
    pub health_after: Option<Health>,
    /// Why something is not known that a drive could say of itself, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_unknown: Vec<String>,
    /// What it says that it is: model, firmware, serial number. Of a stripe: each member's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identified_as: Vec<String>,
    /// Of a modelled drive: what its profile says will happen, without running the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truth: Option<Truth>,
    /// Of a modelled drive: what its profile says that its vendor lets hosts write to it in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rated_write_bytes: Option<u64>,
    /// What was written to the medium for each byte that was written to the drive, in all passes together; none where the drive does
    /// not count what its medium is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_amplification: Option<f64>,
}

/// Which pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PassKind {
    /// From the first byte to the last, of a drive that should be empty.
    Fill,
    /// Once more over what is there.
    Overwrite,
    /// Once more, with what lies ahead of the writes deallocated before they come.
    OverwriteTrimmed,
    /// After some time without any request: a burst that shows how much of the cache came back.
    Recovery,
}

impl PassKind {
    /// All, in the order in which they are made.
    pub const ALL: [PassKind; 4] = [
        PassKind::Fill,
        PassKind::Overwrite,
        PassKind::OverwriteTrimmed,
        PassKind::Recovery,
    ];

    /// As in documents and at the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PassKind::Fill => "fill",
            PassKind::Overwrite => "overwrite",
            PassKind::OverwriteTrimmed => "overwrite-trimmed",
            PassKind::Recovery => "recovery",
        }
    }
}

/// One pass over a drive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pass {
    /// Which.
    pub pass: PassKind,
    /// Whether it was made to its end.
    #[serde(default)]
    pub complete: bool,
    /// One after the other, without gaps.
    pub samples: Vec<Sample>,
    /// One after the other, without gaps, over all bytes of the pass.
    pub phases: Vec<Phase>,
    /// The lowest mean rate over any time of this length, from short to long.
    pub worst_windows: Vec<Window>,
    /// The length of the windows that the phases' percentiles are of: a second, or less in a pass of a few seconds.
    #[serde(default)]
    pub rate_window_seconds: f64,
    /// The noise of the rate that the search for phases found: the standard deviation of its logarithm.
    #[serde(default)]
    pub noise: f64,
    /// What the drive said of itself on the way, from the beginning to the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health: Vec<HealthSample>,
    /// Where the pass was interrupted and taken up again: bytes written by then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupted_at_bytes: Vec<u64>,
    /// Whether other drives of the run did not begin it at the same time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// Of an overwrite with deallocation: for how many bytes ahead of the writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trim_ahead_bytes: Option<u64>,
    /// Of a recovery: what came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,
}

impl Pass {
    /// Bytes written in it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.samples.iter().map(|sample| sample.bytes).sum()
    }

    /// How long it took.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.samples.iter().map(|sample| sample.seconds).sum()
    }
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Its length.
    pub seconds: f64,
    /// Bytes whose writes were answered in it.
    pub bytes: u64,
    /// The longest time that one of these took; 0 where none was answered. With many in flight most of it is waiting behind the others.
    pub nanoseconds_longest: u64,
    /// The longest time without a write being answered of those that ended in it; 0 where none did. None where it was not measured: Weir did not always.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nanoseconds_gap: Option<u64>,
}

impl Sample {
    /// Bytes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// A part of a pass with one rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `cache`, `direct`, `folding`, `shrinking cache`, `overwrite`, `throttled by heat`, or `unknown cause`.
    pub name: String,
    /// What told that: `counters` of the drive, or its `position` in the pass.
    #[serde(default)]
    pub told_by: String,
    /// Bytes of the pass that were written before it.
    pub begins_at_bytes: u64,
    /// Bytes of the pass that were written at its end.
    pub ends_at_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// What it sustained.
    pub rate: Rate,
    /// The longest time that a write took.
    #[serde(alias = "stall_seconds")]
    pub slowest_write_seconds: f64,
    /// The longest time in which no write was answered, though more was to be written: for so long the drive took no byte. None where it was not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_gap_seconds: Option<f64>,
}

/// A rate with what it fell to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Half of the windows had more.
    pub median: f64,
    /// 5 of 100 windows had no more.
    pub p5: f64,
    /// 1 of 1000 windows had no more; the lowest, where there are fewer.
    pub p0_1: f64,
    /// All bytes over all time.
    pub mean: f64,
}

/// The worst that a pass had over some time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// The length of time.
    pub seconds: f64,
    /// The lowest mean rate over any such time of the pass.
    pub bytes_per_second: f64,
}

/// How much of a cache came back while nothing was asked of the drive.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// For how long nothing was asked.
    pub idle_seconds: f64,
    /// Bytes of the burst that went at the rate that the cache had in the fill, known to a sample; the length of the burst where all of it did. None where that was not
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returned_bytes: Option<u64>,
    /// Why it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<NotMeasured>,
    /// Bytes that the cache took in the fill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes: Option<u64>,
}

/// Why it is not known what came back of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NotMeasured {
    /// The fill showed no cache, or was not made.
    NoCache,
    /// The burst had fewer samples than tell a cache from what comes behind it ([`SEGMENT_BINS`]).
    TooFewSamples,
    /// The burst was stopped before it had shown where the cache ends: that takes as many samples ([`SEGMENT_BINS`]) beyond it.
    Unfinished,
    /// A reason that a later version has.
    #[serde(other)]
    Other,
}

impl NotMeasured {
    /// In words, with the way out.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            NotMeasured::NoCache => {
                "there is no cache that could come back, as far as the fill shows".to_owned()
            }
            NotMeasured::TooFewSamples => format!(
                "not measured, the burst had fewer than {} samples; write more of the drive (--size), and it is longer",
                SEGMENT_BINS
            ),
            NotMeasured::Unfinished => {
                "not measured, the burst was stopped before it had shown where the cache ends"
                    .to_owned()
            }
            NotMeasured::Other => "not measured".to_owned(),
        }
    }
}

/// What a drive says of itself. Each is absent where the drive does not say it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// Bytes that hosts wrote to it in its life (NVM Express Base Specification, SMART / Health Information log, Data Units Written, in bytes).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_units_written_bytes: Option<u64>,
    /// Bytes that its medium was written in its life (OCP Datacenter NVMe SSD Specification, SMART extended log, Physical Media Units Written).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_bytes_written: Option<u64>,
    /// The part of its endurance that is used, in percent; may be above 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentage_used: Option<f64>,
    /// Its temperature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_kelvin: Option<f64>,
    /// For how long heat held it back, in its life (SMART / Health Information log, Total Time For Thermal Management Temperature 1 and 2, together).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thermal_throttle_nanoseconds: Option<u64>,
    /// How often heat began to hold it back, in its life (the same log, Thermal Management Temperature 1 and 2 Transition Count, together).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thermal_throttle_transitions: Option<u64>,
    /// How much heat holds it back now: 0 is not at all, 1 to 3 are levels of it (OCP's SMART extended log, Current Throttling Status).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttling_level: Option<u8>,
    /// Minutes in its life that it was as warm as its warning threshold or warmer, and not as its critical one (SMART / Health Information log, Warning Composite
    /// Temperature Time).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning_temperature_minutes: Option<u64>,
    /// Minutes in its life that it was as warm as its critical threshold or warmer (the same log, Critical Composite Temperature Time).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_temperature_minutes: Option<u64>,
    /// What it warns of, as the bits of the same log's Critical Warning; see [`Health::warnings`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical_warning: Option<u8>,
    /// Bytes that it moved from its cache to where they stay, in its life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folded_bytes: Option<u64>,
    /// What its cache holds now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes_used: Option<u64>,
    /// What its cache can hold now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_bytes_size: Option<u64>,
}

/// What the bits of Critical Warning say of a drive, from bit 0 on.
const WARNINGS: [&str; 6] = [
    "its spare is below its threshold",
    "its temperature is beyond a threshold",
    "its reliability is degraded",
    "its media are read-only",
    "the backup of its volatile memory failed",
    "its persistent memory region is read-only or unreliable",
];

impl Health {
    /// What it warns of, in words. Bits that have no meaning yet are told as what they are.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let bits = self.critical_warning.unwrap_or(0);
        let is_set = |bit: &usize| bits >> bit & 1 == 1;
        let words = |bit: usize| match WARNINGS.get(bit) {
            Some(words) => (*words).to_owned(),
            None => format!("bit {bit} of its critical warning is set"),
        };
        (0..8).filter(is_set).map(words).collect()
    }
}

impl From<weir_block::Health> for Health {
    fn from(of: weir_block::Health) -> Self {
        Health {
            data_units_written_bytes: of.data_units_written_bytes,
            media_bytes_written: of.media_bytes_written,
            percentage_used: of.percentage_used,
            temperature_kelvin: of.temperature_kelvin,
            thermal_throttle_nanoseconds: of.thermal_throttle_nanoseconds,
            thermal_throttle_transitions: of.thermal_throttle_transitions,
            throttling_level: of.throttling_level,
            warning_temperature_minutes: of.warning_temperature_minutes,
            critical_temperature_minutes: of.critical_temperature_minutes,
            critical_warning: of.critical_warning,
            folded_bytes: of.folded_bytes,
            cache_bytes_used: of.cache_bytes_used,
            cache_bytes_size: of.cache_bytes_size,
        }
    }
}

impl From<weir_ssd::Smart> for Health {
    fn from(of: weir_ssd::Smart) -> Self {
        weir_block::Health::from(of).into()
    }
}

/// What a modelled drive's profile says of the passes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Truth {
    /// Of an empty drive that is filled.
    pub fill: Vec<TruthPhase>,
    /// Of the overwrite that follows.
    pub overwrite: Vec<TruthPhase>,
    /// Of the one after that, with deallocation ahead of the writes.
    pub overwrite_trimmed: Vec<TruthPhase>,
    /// What the cache takes of a burst after the drive was idle for as long as it wanted.
    pub recovered_cache_bytes: u64,
    /// Whether writing without end makes the drive so warm that rates may be below these.
    pub throttles: bool,
}

/// A phase that a profile says there is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TruthPhase {
    /// What sets the rate.
    pub name: String,
    /// Where in the pass it begins.
    pub begins_at_bytes: u64,
    /// The mean rate.
    pub bytes_per_second: f64,
}

impl From<weir_ssd::Truth> for Truth {
    fn from(of: weir_ssd::Truth) -> Self {
        let phases = |phases: Vec<weir_ssd::TruthPhase>| {
            let phase = |of: weir_ssd::TruthPhase| TruthPhase {
                name: of.name.to_owned(),
                begins_at_bytes: of.begins_at_bytes,
                bytes_per_second: of.rate_bytes_per_s,
            };
            phases.into_iter().map(phase).collect()
        };
        Truth {
            fill: phases(of.fill),
            overwrite: phases(of.overwrite),
            overwrite_trimmed: phases(of.overwrite_trimmed),
            recovered_cache_bytes: of.recovered_cache_bytes,
            throttles: of.throttles,
        }
    }
}

/// What a drive said at some place of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HealthSample {
    /// Bytes of the pass that were written by then.
    pub at_bytes: u64,
    /// What it said.
    pub health: Health,
}

/// Why a text is no result of qualifying drives.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is something else.
    #[error(
        "this is no result of weir drive: there is no \"weir\": \"{KIND}\" in it; what weir drive writes with --output is"
    )]
    NotAResult,
    /// It is one of another version.
    #[error(
        "the result has version {found} of its form, and this Weir reads version {VERSION}; read it with the Weir that wrote it ({by}), or a later one"
    )]
    Version {
        /// Its version.
        found: u64,
        /// The Weir that wrote it, if it says so.
        by: String,
    },
    /// It says that it is of this version, and is not.
    #[error("the result says that it is one of weir drive, and does not have that form: {0}")]
    Form(serde_json::Error),
    /// It is no JSON.
    #[error("the result is no JSON: {0}")]
    Json(serde_json::Error),
    /// A number in it cannot be.
    #[error("the result cannot be right: {0}")]
    Number(String),
    /// It could not be read or written.
    #[error("the result could not be read or written: {0}")]
    Io(#[from] io::Error),
}

#[derive(Deserialize)]
struct Head {
    weir: Option<serde_json::Value>,
    version: Option<u64>,
    weir_version: Option<String>,
}

impl Document {
    /// A document of this version of drives that were measured to the end, without anything beside them.
    #[must_use]
    pub fn new(drives: Vec<Drive>) -> Self {
        Document {
            weir: KIND.to_owned(),
            version: VERSION,
            drives,
            together: None,
            command: Vec::new(),
            weir_version: String::new(),
            started: String::new(),
            machine: Machine::default(),
            simulated: false,
            complete: true,
            caveats: Vec::new(),
        }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_json(text: &str) -> Result<Self, DocumentError> {
        let head: Head = match serde_json::from_str(text) {
            Ok(head) => head,
            Err(error) if error.is_data() => return Err(DocumentError::NotAResult),
            Err(error) => return Err(DocumentError::Json(error)),
        };
        if head.weir.and_then(|of| of.as_str().map(str::to_owned)) != Some(KIND.to_owned()) {
            return Err(DocumentError::NotAResult);
        }
        if head.version != Some(u64::from(VERSION)) {
            return Err(DocumentError::Version {
                found: head.version.unwrap_or_default(),
                by: head.weir_version.unwrap_or_else(|| "unknown".to_owned()),
            });
        }
        let document: Document = serde_json::from_str(text).map_err(DocumentError::Form)?;
        document.check()?;
        Ok(document)
    }

    /// Reads a document to the end of `source`.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn read(mut source: impl io::Read) -> Result<Self, DocumentError> {
        let mut text = String::new();
        source.read_to_string(&mut text)?;
        Self::from_json(&text)
    }

    /// Writes the document as JSON, with a newline at its end.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn write(&self, mut sink: impl io::Write) -> Result<(), DocumentError> {
        serde_json::to_writer(&mut sink, self).map_err(|error| DocumentError::Io(error.into()))?;
        Ok(sink.write_all(b"\n")?)
    }

    fn check(&self) -> Result<(), DocumentError> {
        for drive in self.drives.iter().chain(&self.together) {
            let wrong = |what: &str, number: f64| {
                DocumentError::Number(format!("{}: {what} is {number}", drive.name))
            };
            for pass in &drive.passes {
                for sample in &pass.samples {
                    if !sample.seconds.is_finite() || sample.seconds <= 0.0 {
                        return Err(wrong("the length of a sample", sample.seconds));
                    }
                }
                for phase in &pass.phases {
                    let rate = phase.rate;
                    let gap = phase.longest_gap_seconds.unwrap_or(0.0);
                    for number in [
                        rate.median,
                        rate.p5,
                        rate.p0_1,
                        rate.mean,
                        phase.seconds,
                        phase.slowest_write_seconds,
                        gap,
                    ] {
                        if !number.is_finite() || number < 0.0 {
                            return Err(wrong("a number of a phase", number));
                        }
                    }
                }
                for window in &pass.worst_windows {
                    if !window.bytes_per_second.is_finite() || window.bytes_per_second < 0.0 {
                        return Err(wrong("a rate", window.bytes_per_second));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What another program may write: the least that a plan needs.
    const LEAST: &str = r#"{"weir":"drive","version":1,"drives":[{"name":"a","url":"file:/a","capacity_bytes":1000,"block_bytes":10,"depth":4,
        "passes":[{"pass":"overwrite-trimmed","samples":[{"seconds":1.0,"bytes":100,"nanoseconds_longest":5}],
        "phases":[{"name":"direct","begins_at_bytes":0,"ends_at_bytes":100,"seconds":1.0,
        "rate":{"median":100.0,"p5":90.0,"p0_1":80.0,"mean":99.0},"stall_seconds":0.1}],
        "worst_windows":[{"seconds":1.0,"bytes_per_second":80.0}]}],"health_before":null,"health_after":null}],"later":1}"#;

    #[test]
    fn the_least_form_is_read_and_what_is_written_is_read_back() {
        let document = Document::from_json(LEAST).unwrap();
        let pass = &document.drives[0].passes[0];
        assert_eq!((pass.pass, pass.bytes()), (PassKind::OverwriteTrimmed, 100));
        assert_eq!(document.drives[0].health_before, None);
        // As a result was before there were gaps.
        assert_eq!(pass.phases[0].slowest_write_seconds, 0.1);
        assert_eq!(pass.phases[0].longest_gap_seconds, None);
        assert!(document.drives[0].health_unknown.is_empty());
        let mut text = Vec::new();
        document.write(&mut text).unwrap();
        assert_eq!(Document::read(&text[..]).unwrap(), document);
    }

    #[test]
    fn what_a_drive_says_is_read_back_and_what_older_results_lack_is_not_known() {
        let mut document = Document::from_json(LEAST).unwrap();
        let drive = &mut document.drives[0];
        drive.health_before = Some(Health {
            critical_warning: Some(0b1000_0101),
            warning_temperature_minutes: Some(3),
            critical_temperature_minutes: Some(0),
            thermal_throttle_transitions: Some(2),
            throttling_level: Some(1),
            ..Health::default()
        });
        drive.health_unknown = vec!["because".to_owned()];
        drive.identified_as = vec!["A Drive".to_owned()];
        let mut text = Vec::new();
        document.write(&mut text).unwrap();
        let read = Document::read(&text[..]).unwrap();
        assert_eq!(read, document);
        let health = read.drives[0].health_before.unwrap();
        let warnings = health.warnings();
        assert_eq!(
            warnings,
            [
                WARNINGS[0],
                WARNINGS[2],
                "bit 7 of its critical warning is set"
            ]
        );
        // As it was before there were these fields.
        let older = LEAST.replace(
            "\"health_before\":null",
            "\"health_before\":{\"data_units_written_bytes\":5,\"temperature_kelvin\":300.0}",
        );
        let older = Document::from_json(&older).unwrap();
        let health = older.drives[0].health_before.unwrap();
        assert_eq!(health.data_units_written_bytes, Some(5));
        assert_eq!(health.critical_warning, None);
        assert!(health.warnings().is_empty());
    }

    #[test]
    fn what_is_no_result_is_told_as_what_it_is() {
        for (text, part) in [
            ("{", "no JSON"),
            ("[]", "no result of weir drive"),
            ("{}", "no result of weir drive"),
            (r#"{"schema":"weir-result/1"}"#, "no result of weir drive"),
            (r#"{"weir":"plan","version":1}"#, "no result of weir drive"),
            (
                r#"{"weir":"drive","version":2,"weir_version":"9.1"}"#,
                "(9.1)",
            ),
            (r#"{"weir":"drive","version":1}"#, "does not have that form"),
            (
                &LEAST.replace(
                    "\"seconds\":1.0,\"bytes\":100",
                    "\"seconds\":0.0,\"bytes\":100",
                ),
                "length of a sample is 0",
            ),
            (
                &LEAST.replace("\"mean\":99.0", "\"mean\":-1.0"),
                "phase is -1",
            ),
        ] {
            let error = Document::from_json(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
