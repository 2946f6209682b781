//! What is known of a drive: from a result of `weir drive`, from what was published, or told by hand.
//!
//! Of a result only what sizing needs is read; fields that it does not know are passed over.

use serde::Deserialize;
use weir_lab::modelled::is_modelled;

use crate::sheet::Source;

/// The lowest mean rate over any window of a length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// The window's length; infinite where the rate is said to hold for ever.
    pub seconds: f64,
    /// Bytes per second.
    pub rate: f64,
}

/// A part of a pass in which a drive is written at one rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// Bytes that are written in it.
    pub bytes: f64,
    /// Bytes per second, in the mean.
    pub rate: f64,
}

/// A drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Drive {
    /// What it is called.
    pub name: String,
    /// Bytes, if known.
    pub capacity: Option<f64>,
    /// Where that comes from.
    pub capacity_source: Source,
    /// Ascending by length; at least one.
    pub windows: Vec<Window>,
    /// The length from which on all windows were measured; 0 where a rate is said to hold for ever.
    pub seen_seconds: f64,
    /// The mean rate of the slowest pass.
    pub mean: f64,
    /// The phases of the passes that count, one after the other; empty where they are not known, or are an array's.
    pub phases: Vec<Phase>,
    /// The longest time without a completion; 0 where nobody said.
    pub gap_seconds: f64,
    /// What [`Drive::gap_seconds`] is.
    pub gap: GapKind,
    /// The data sheet's rate, if known.
    pub data_sheet: Option<f64>,
    /// Where that comes from.
    pub data_sheet_source: Source,
    /// Bytes that its vendor lets hosts write to it in its life, if known, and where that comes from.
    pub rated_writes: Option<(f64, Source)>,
    /// Windows of a drive that is slow now and then, if how often and for how long is assumed and not measured.
    pub assumed_windows: Vec<Window>,
    /// Where the rates come from.
    pub source: Source,
    /// What a reader of the plan must know of it.
    pub caveats: Vec<String>,
    /// How it was measured, and how it was: of an array each of its kinds of drive; none where nobody measured it.
    pub found: Vec<Found>,
}

/// How a drive was measured, and how it was then.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The drive.
    pub drive: String,
    /// [`Source::Measured`] or [`Source::Modelled`].
    pub source: Source,
    /// When the measurement began, RFC 3339; empty where the result does not say.
    pub started: String,
    /// In the order in which they were made.
    pub passes: Vec<FoundPass>,
    /// How much of its endurance was used afterwards, in percent, by its own word.
    pub endurance_used_percent: Option<f64>,
    /// How warm it was afterwards, in Kelvin, by its own word.
    pub temperature_kelvin: Option<f64>,
    /// What was written to the medium for each byte that the drive was written, in all passes.
    pub write_amplification: Option<f64>,
}

/// A pass that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundPass {
    /// As results call it.
    pub name: String,
    /// All bytes over all time.
    pub mean: Option<f64>,
    /// Whether the plan goes by it.
    pub counts: bool,
    /// With TRIM ahead: so many bytes ahead of the writes.
    pub trim_ahead_bytes: Option<f64>,
}

impl Found {
    /// A pass by its name.
    #[must_use]
    pub fn pass(&self, name: &str) -> Option<&FoundPass> {
        self.passes.iter().find(|pass| pass.name == name)
    }
}

/// The pass that overwrites with TRIM ahead.
pub const TRIMMED: &str = "overwrite-trimmed";

/// What a drive's longest gap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapKind {
    /// Nobody said one.
    Unknown,
    /// The longest time between two completions.
    Measured,
    /// The slowest write of a result without gaps: no gap with writes under way is longer, and one in which nothing but a deallocation was may be.
    SlowestWrite,
}

/// What a recorder does when its drives are full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It ends: only the first fill matters.
    Stop,
    /// It deallocates ahead of where it writes.
    TrimAhead,
    /// It writes over the old data.
    Overwrite,
}

/// Why a drive cannot be planned with.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// The text is no result of `weir drive`.
    #[error(
        "this is no result of `weir drive`: {0}; what `weir drive URL --output FILE` writes is"
    )]
    Form(String),
    /// It holds no drive with what is needed.
    #[error(
        "{drive} has no {what}: run `weir drive` with the passes that the plan is about, or say another --when-full"
    )]
    Missing {
        /// The drive.
        drive: String,
        /// What it lacks.
        what: String,
    },
    /// A number in it cannot be.
    #[error(
        "the result cannot be right: {drive}: {what} is {number}; take the file as `weir drive` wrote it"
    )]
    Number {
        /// The drive.
        drive: String,
        /// What it is of.
        what: &'static str,
        /// As it stands there.
        number: f64,
    },
    /// There is no such published drive.
    #[error("no drive '{name}' was published; there are {there}, and all")]
    Unknown {
        /// As it was asked for.
        name: String,
        /// Those there are.
        there: String,
    },
}

#[derive(Deserialize)]
struct StoredResult {
    weir: String,
    #[serde(default)]
    version: serde_json::Value,
    #[serde(default)]
    simulated: bool,
    #[serde(default)]
    started: String,
    #[serde(default)]
    caveats: Vec<StoredCaveat>,
    drives: Vec<StoredDrive>,
}

#[derive(Deserialize)]
struct StoredCaveat {
    #[serde(default)]
    code: String,
    text: String,
}

impl StoredResult {
    /// What the result says of a drive. Where there are several, what is of one of them begins with its name; the rest is of all.
    fn caveats_of(&self, drive: &StoredDrive) -> Vec<(&str, String)> {
        let several = self.drives.len() > 1;
        let name = drive.title();
        let of_other = |text: &str| {
            let begins = |of: &StoredDrive| text.starts_with(&format!("{}: ", of.name));
            several && !begins(drive) && self.drives.iter().any(begins)
        };
        let own = format!("{}: ", drive.name);
        let caveats = self.caveats.iter().filter(|of| !of_other(&of.text));
        let words = |of: &StoredCaveat| match of.text.strip_prefix(&own) {
            Some(text) if several => format!("{name}: {text}"),
            _ => format!("{name}: {}", of.text),
        };
        caveats.map(|of| (of.code.as_str(), words(of))).collect()
    }
}

#[derive(Deserialize)]
struct StoredDrive {
    #[serde(default)]
    name: String,
    #[serde(default)]
    url: String,
    capacity_bytes: Option<f64>,
    #[serde(default)]
    written_bytes: f64,
    #[serde(default)]
    modelled: bool,
    #[serde(default)]
    members: Vec<String>,
    #[serde(default)]
    passes: Vec<StoredPass>,
    health_after: Option<StoredHealth>,
    write_amplification: Option<f64>,
    rated_write_bytes: Option<f64>,
}

#[derive(Deserialize)]
struct StoredHealth {
    percentage_used: Option<f64>,
    temperature_kelvin: Option<f64>,
}

impl StoredDrive {
    fn title(&self) -> &str {
        match self.name.as_str() {
            "" => &self.url,
            name => name,
        }
    }

    /// Results did not always say so; their URLs do.
    fn is_modelled(&self) -> bool {
        let named = std::iter::once(&self.url).chain(&self.members);
        self.modelled || named.into_iter().any(|url| is_modelled(url))
    }
}

#[derive(Deserialize)]
struct StoredPass {
    pass: String,
    #[serde(default)]
    complete: Option<bool>,
    trim_ahead_bytes: Option<f64>,
    #[serde(default)]
    phases: Vec<StoredPhase>,
    #[serde(default)]
    worst_windows: Vec<StoredWindow>,
}

impl StoredPass {
    /// Refuses numbers that no measurement has. A window in which nothing was written is none of them: the drive stood still.
    fn check(&self, drive: &str, counts: bool) -> Result<(), DriveError> {
        let wrong = |what, number| {
            Err(DriveError::Number {
                drive: drive.to_owned(),
                what,
                number,
            })
        };
        for phase in &self.phases {
            let mean = phase.mean();
            for (what, number, is_used) in [
                ("the time of a phase", Some(phase.seconds), counts),
                ("the mean rate of a phase", mean, counts),
                (
                    "the slowest write of a phase",
                    Some(phase.slowest_write_seconds),
                    false,
                ),
                (
                    "the longest gap of a phase",
                    phase.longest_gap_seconds,
                    false,
                ),
            ] {
                let Some(number) = number else { continue };
                if !number.is_finite() || number < 0.0 || (is_used && number == 0.0) {
                    return wrong(what, number);
                }
            }
        }
        for window in &self.worst_windows {
            if !window.seconds.is_finite() || window.seconds <= 0.0 {
                return wrong("the length of a window", window.seconds);
            }
            if !window.bytes_per_second.is_finite() || window.bytes_per_second < 0.0 {
                return wrong("the rate of a window", window.bytes_per_second);
            }
        }
        Ok(())
    }
}

#[derive(Deserialize)]
struct StoredPhase {
    #[serde(default)]
    seconds: f64,
    rate: Option<StoredRate>,
    /// As results had it before they had gaps: the time of the slowest write.
    #[serde(default, alias = "stall_seconds")]
    slowest_write_seconds: f64,
    longest_gap_seconds: Option<f64>,
}

impl StoredPhase {
    /// The rate that is gone by.
    fn mean(&self) -> Option<f64> {
        let rate = self.rate.as_ref()?;
        rate.mean.or(rate.median)
    }
}

#[derive(Deserialize)]
struct StoredRate {
    mean: Option<f64>,
    median: Option<f64>,
}

#[derive(Deserialize)]
struct StoredWindow {
    seconds: f64,
    bytes_per_second: f64,
}

/// A drive of which so much of its endurance is used, in percent, is not a new one.
const USED_PERCENT: f64 = 1.0;
/// The form of results that is read.
const RESULT_VERSION: u64 = 1;

/// The drives of a result of `weir drive`.
///
/// # Errors
/// [`DriveError`].
pub fn read(text: &str, when_full: WhenFull) -> Result<Vec<Drive>, DriveError> {
    let stored: StoredResult =
        serde_json::from_str(text).map_err(|error| DriveError::Form(error.to_string()))?;
    if stored.weir != "drive" {
        return Err(DriveError::Form(format!("it is of `weir {}`", stored.weir)));
    }
    if stored.version.as_u64() != Some(RESULT_VERSION) {
        return Err(DriveError::Form(format!(
            "its version is {}, and this Weir reads {RESULT_VERSION}",
            stored.version
        )));
    }
    if stored.drives.is_empty() {
        return Err(DriveError::Form("it has no drive".to_owned()));
    }
    stored
        .drives
        .iter()
        .map(|drive| {
            let mut drive = of_stored(&stored, drive, when_full)?;
            if stored.simulated || drive.source == Source::Modelled {
                drive.source = Source::Modelled;
                drive.capacity_source = Source::Modelled;
                drive.rated_writes = drive.rated_writes.map(|of| (of.0, Source::Modelled));
                for found in &mut drive.found {
                    found.source = Source::Modelled;
                }
                let said = format!(
                    "{}: a modelled drive (ssd:): its figures are the model's, and no drive's",
                    drive.name
                );
                drive.caveats.push(said);
            }
            Ok(drive)
        })
        .collect()
}

fn of_stored(
    result: &StoredResult,
    stored: &StoredDrive,
    when_full: WhenFull,
) -> Result<Drive, DriveError> {
    let name = stored.title().to_owned();
    let missing = |what: &str| DriveError::Missing {
        drive: name.clone(),
        what: what.to_owned(),
    };
    let pass = |wanted: &str| stored.passes.iter().find(|pass| pass.pass == wanted);
    let mut caveats = Vec::new();
    // What of the result's own caveats the plan says itself.
    let mut said = Vec::new();
    let fill = pass("fill").ok_or_else(|| missing("pass 'fill'"))?;
    let over = match when_full {
        WhenFull::Stop => None,
        WhenFull::Overwrite => Some(pass("overwrite").ok_or_else(|| missing("pass 'overwrite'"))?),
        WhenFull::TrimAhead => match (pass(TRIMMED), pass("overwrite")) {
            (Some(trimmed), _) => Some(trimmed),
            (None, Some(overwrite)) => {
                caveats.push(format!(
                    "{name}: no overwrite with TRIM ahead was measured; the plan takes the one without"
                ));
                Some(overwrite)
            }
            (None, None) => {
                return Err(missing("pass 'overwrite-trimmed' or 'overwrite'"));
            }
        },
    };
    let passes: Vec<&StoredPass> = std::iter::once(fill).chain(over).collect();
    for pass in &stored.passes {
        let counts = passes.iter().any(|used| used.pass == pass.pass);
        pass.check(&name, counts)?;
    }
    if let Some(cut) = passes.iter().find(|pass| pass.complete == Some(false)) {
        said.push("unfinished");
        caveats.push(format!(
            "{name}: its pass '{}' was not made to its end, and what would have come is not in the plan",
            cut.pass
        ));
    }
    if let Some(capacity) = stored.capacity_bytes
        && stored.written_bytes > 0.0
        && stored.written_bytes < capacity
    {
        said.push("part-of-the-drive");
        caveats.push(format!(
            "{name}: only its first {} were written; a drive slows down as it fills",
            crate::units::bytes_text(stored.written_bytes)
        ));
    }
    if !stored.members.is_empty() {
        caveats.push(format!(
            "{name} is a stripe of {}: where the plan says drives, it means such stripes",
            stored.members.len()
        ));
    }
    let health = stored.health_after.as_ref();
    let endurance_used_percent = health.and_then(|of| of.percentage_used);
    if let Some(percent) = endurance_used_percent.filter(|&percent| percent >= USED_PERCENT) {
        caveats.push(format!(
            "{name}: {} of its endurance was used when it had been measured; how long it lasts is said of a new one",
            crate::units::percent_text(percent / 100.0)
        ));
    }
    let carried = result.caveats_of(stored).into_iter();
    let carried = carried.filter(|(code, _)| !said.contains(code));
    caveats.extend(carried.map(|(_, text)| text));
    let mut windows: Vec<Window> = Vec::new();
    let mut seen_seconds: f64 = 0.0;
    for pass in &passes {
        let mut shortest = f64::INFINITY;
        for of in &pass.worst_windows {
            shortest = shortest.min(of.seconds);
            match windows.iter_mut().find(|has| has.seconds == of.seconds) {
                Some(has) => has.rate = has.rate.min(of.bytes_per_second),
                None => windows.push(Window {
                    seconds: of.seconds,
                    rate: of.bytes_per_second,
                }),
            }
        }
        seen_seconds = seen_seconds.max(shortest);
        if shortest.is_infinite() {
            return Err(missing(&format!("worst windows in pass '{}'", pass.pass)));
        }
    }
    // A ring goes on pass after pass: what it keeps for ever is the mean of one that overwrites.
    let whole = over.and_then(|pass| {
        (pass.worst_windows.iter()).max_by(|one, other| one.seconds.total_cmp(&other.seconds))
    });
    windows.extend(whole.map(|of| Window {
        seconds: f64::INFINITY,
        rate: of.bytes_per_second,
    }));
    windows.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    if windows.iter().any(|of| of.rate <= 0.0) && windows.iter().all(|of| of.rate <= 0.0) {
        return Err(missing("window in which anything was written"));
    }
    let mean = passes
        .iter()
        .filter_map(|pass| mean_of(pass))
        .fold(f64::INFINITY, f64::min);
    let longest = windows.last().map_or(0.0, |of| of.rate);
    let mean = if mean.is_finite() { mean } else { longest };
    if mean <= 0.0 {
        return Err(DriveError::Number {
            drive: name,
            what: "the mean rate of a pass",
            number: mean,
        });
    }
    let phases = || passes.iter().flat_map(|pass| &pass.phases);
    let mean_phases = phases().filter_map(|of| {
        let rate = of.mean()?;
        let bytes = rate * of.seconds;
        Some(Phase { bytes, rate })
    });
    let mean_phases = mean_phases.filter(|of| of.rate > 0.0).collect();
    let gaps: Option<Vec<f64>> = phases().map(|of| of.longest_gap_seconds).collect();
    let slowest = phases().map(|of| of.slowest_write_seconds);
    let (gap_seconds, gap) = match gaps {
        Some(gaps) if !gaps.is_empty() => (gaps.into_iter().fold(0.0, f64::max), GapKind::Measured),
        _ => (slowest.fold(0.0, f64::max), GapKind::SlowestWrite),
    };
    let gap = if gap_seconds > 0.0 {
        gap
    } else {
        GapKind::Unknown
    };
    if gap == GapKind::SlowestWrite {
        caveats.push(format!(
            "{name}: its result does not have the longest gap between completions, as those of older Weirs do not; its slowest write, {}, stands for it: no gap with writes under way is longer, and one in which the drive only deallocated may be",
            crate::units::time_text(gap_seconds)
        ));
    }
    let source = match stored.is_modelled() {
        true => Source::Modelled,
        false => Source::Measured,
    };
    let counts = |of: &StoredPass| passes.iter().any(|used| used.pass == of.pass);
    let found = Found {
        drive: name.clone(),
        source,
        started: result.started.clone(),
        passes: (stored.passes.iter())
            .map(|of| FoundPass {
                name: of.pass.clone(),
                mean: mean_of(of),
                counts: counts(of),
                trim_ahead_bytes: of.trim_ahead_bytes,
            })
            .collect(),
        endurance_used_percent,
        temperature_kelvin: health.and_then(|of| of.temperature_kelvin),
        write_amplification: stored.write_amplification,
    };
    Ok(Drive {
        name,
        capacity: stored.capacity_bytes,
        capacity_source: source,
        mean,
        phases: mean_phases,
        gap_seconds,
        gap,
        windows,
        seen_seconds,
        data_sheet: None,
        data_sheet_source: source,
        rated_writes: (stored.rated_write_bytes.filter(|of| *of > 0.0)).map(|of| (of, source)),
        assumed_windows: Vec::new(),
        source,
        caveats,
        found: vec![found],
    })
}

fn mean_of(pass: &StoredPass) -> Option<f64> {
    let rated = pass
        .phases
        .iter()
        .filter_map(|phase| Some((phase.seconds, phase.mean()?)));
    let (seconds, bytes) = rated.fold((0.0, 0.0), |(seconds, bytes), (of, rate)| {
        (seconds + of, bytes + of * rate)
    });
    (seconds > 0.0).then(|| bytes / seconds)
}

impl Drive {
    /// A drive that somebody says keeps a rate for ever.
    #[must_use]
    pub fn steady(name: &str, rate: f64, capacity: Option<f64>, source: Source) -> Self {
        Drive {
            name: name.to_owned(),
            capacity,
            capacity_source: source,
            windows: vec![Window {
                seconds: f64::INFINITY,
                rate,
            }],
            seen_seconds: 0.0,
            mean: rate,
            phases: Vec::new(),
            gap_seconds: 0.0,
            gap: GapKind::Unknown,
            data_sheet: None,
            data_sheet_source: source,
            rated_writes: None,
            assumed_windows: Vec::new(),
            source,
            caveats: Vec::new(),
            found: Vec::new(),
        }
    }

    /// The lowest mean rate over windows of this length: that of the longest measured one that is no longer, or of the shortest there is.
    #[must_use]
    pub fn rate_over(&self, seconds: f64) -> f64 {
        let fits = self.windows.iter().rev().find(|of| of.seconds <= seconds);
        fits.or(self.windows.first()).map_or(0.0, |of| of.rate)
    }

    /// The array of RAID0 in which each of these stands as often as is said: it goes at its slowest member's pace, and every member holds as much as the
    /// smallest.
    ///
    /// # Panics
    /// Of no drive.
    #[must_use]
    pub fn striped(members: &[(Drive, u64)]) -> (Drive, u64) {
        let (first, _) = members.first().expect("an array has members");
        let count = members.iter().map(|(_, count)| count).sum();
        if members.len() == 1 {
            return (first.clone(), count);
        }
        let of = || members.iter().map(|(drive, _)| drive);
        let mut lengths: Vec<f64> = of()
            .flat_map(|drive| drive.windows.iter().map(|of| of.seconds))
            .collect();
        lengths.sort_by(f64::total_cmp);
        lengths.dedup();
        let windows = lengths.into_iter().map(|seconds| Window {
            seconds,
            rate: of()
                .map(|drive| drive.rate_over(seconds))
                .fold(f64::INFINITY, f64::min),
        });
        let figures = |of: fn(&Drive) -> (Option<f64>, Source)| {
            let each: Option<Vec<(f64, Source)>> = members
                .iter()
                .map(|(drive, _)| of(drive))
                .map(|(value, source)| Some((value?, source)))
                .collect();
            each.and_then(|each| {
                each.into_iter()
                    .min_by(|one, other| one.0.total_cmp(&other.0))
            })
        };
        let capacity = figures(|of| (of.capacity, of.capacity_source));
        let data_sheet = figures(|of| (of.data_sheet, of.data_sheet_source));
        let rated_writes = figures(|of| {
            let source = of.rated_writes.map_or(of.source, |rated| rated.1);
            (of.rated_writes.map(|rated| rated.0), source)
        });
        let longest = of().max_by(|one, other| one.gap_seconds.total_cmp(&other.gap_seconds));
        let longest = longest.unwrap_or(first);
        let names = members
            .iter()
            .map(|(drive, count)| format!("{count} x {}", drive.name));
        let array = Drive {
            name: names.collect::<Vec<_>>().join(" + "),
            capacity: capacity.map(|of| of.0),
            capacity_source: capacity.map_or(first.capacity_source, |of| of.1),
            windows: windows.collect(),
            seen_seconds: of().map(|drive| drive.seen_seconds).fold(0.0, f64::max),
            mean: of().map(|drive| drive.mean).fold(f64::INFINITY, f64::min),
            phases: Vec::new(),
            gap_seconds: longest.gap_seconds,
            gap: longest.gap,
            data_sheet: data_sheet.map(|of| of.0),
            data_sheet_source: data_sheet.map_or(first.data_sheet_source, |of| of.1),
            rated_writes,
            assumed_windows: Vec::new(),
            source: if of().all(|drive| drive.source == first.source) {
                first.source
            } else if of().any(|drive| drive.source == Source::Modelled) {
                Source::Modelled
            } else {
                Source::Derived
            },
            caveats: of().flat_map(|drive| drive.caveats.clone()).collect(),
            found: of().flat_map(|drive| drive.found.clone()).collect(),
        };
        (array, count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(passes: &str) -> String {
        format!(
            r#"{{"weir":"drive","version":1,"later":1,"drives":[{{"name":"d","url":"file:/d","capacity_bytes":1000,"passes":[{passes}]}}]}}"#
        )
    }

    const FILL: &str = r#"{"pass":"fill","phases":[{"seconds":10,"rate":{"mean":20,"median":21},"stall_seconds":0.5},
        {"seconds":30,"rate":{"mean":10},"stall_seconds":0.25}],
        "worst_windows":[{"seconds":1,"bytes_per_second":8},{"seconds":10,"bytes_per_second":10}]}"#;

    #[test]
    fn a_result_is_read_with_the_slowest_of_its_passes() {
        let over = FILL.replace("fill", "overwrite").replace(":8}", ":6}");
        let both = format!("{FILL},{over}");
        let drive = read(&result(&both), WhenFull::Overwrite).unwrap().remove(0);
        assert_eq!(drive.rate_over(1.0), 6.0);
        assert_eq!(drive.rate_over(60.0), 10.0);
        // A ring never ends; a first fill does.
        assert!(drive.windows.last().unwrap().seconds.is_infinite());
        assert_eq!(drive.mean, 12.5);
        // As a result was before there were gaps.
        assert_eq!((drive.gap_seconds, drive.gap), (0.5, GapKind::SlowestWrite));
        let said = drive.caveats.iter().find(|of| of.contains("slowest write"));
        assert!(said.is_some_and(|of| of.contains("0.5 s")), "{said:?}");
        assert_eq!(drive.capacity, Some(1000.0));
        let with_gaps = both
            .replace(
                "\"stall_seconds\":0.5",
                "\"slowest_write_seconds\":0.5,\"longest_gap_seconds\":0.02",
            )
            .replace(
                "\"stall_seconds\":0.25",
                "\"slowest_write_seconds\":0.25,\"longest_gap_seconds\":0.03",
            );
        let measured = read(&result(&with_gaps), WhenFull::Overwrite)
            .unwrap()
            .remove(0);
        assert_eq!(
            (measured.gap_seconds, measured.gap),
            (0.03, GapKind::Measured)
        );
        assert_eq!(measured.caveats, Vec::<String>::new());
        // Where a part of a run has none, the longest is not known.
        let partly = with_gaps.replacen(",\"longest_gap_seconds\":0.02", "", 1);
        let partly = read(&result(&partly), WhenFull::Overwrite)
            .unwrap()
            .remove(0);
        assert_eq!(
            (partly.gap_seconds, partly.gap),
            (0.5, GapKind::SlowestWrite)
        );
        let first = read(&result(&both), WhenFull::Stop).unwrap().remove(0);
        assert_eq!(first.rate_over(1.0), 8.0);
        assert_eq!(first.windows.last().unwrap().seconds, 10.0);
        let trimmed = read(&result(&both), WhenFull::TrimAhead).unwrap();
        assert!(trimmed[0].caveats[0].contains("without"));
    }

    #[test]
    fn what_a_result_says_of_its_drive_is_in_the_plan() {
        let over = FILL.replace("fill", "overwrite");
        let trimmed = FILL.replace("\"fill\"", "\"overwrite-trimmed\",\"trim_ahead_bytes\":10");
        let caveats = r#""started":"2026-01-31T12:00:00Z","caveats":[{"code":"not-purged","text":"it was not purged first"},
            {"code":"part-of-the-drive","text":"only a part"},{"code":"drive-warns","text":"the drive warns of itself"}],"later":1"#;
        let health = r#""written_bytes":500,"health_after":{"percentage_used":12.5,"temperature_kelvin":313.15,"later":1},"write_amplification":1.25,"passes":"#;
        let text = result(&format!("{FILL},{over},{trimmed}"))
            .replace("\"later\":1", caveats)
            .replace("\"passes\":", health);
        let drive = read(&text, WhenFull::TrimAhead).unwrap().remove(0);
        let said = |part: &str| drive.caveats.iter().filter(|of| of.contains(part)).count();
        assert_eq!(
            (
                said("d: it was not purged first"),
                said("d: the drive warns")
            ),
            (1, 1)
        );
        // The plan has its own words for it.
        assert_eq!((said("only a part"), said("only its first 500 B")), (0, 1));
        assert_eq!(said("12.5% of its endurance was used"), 1);
        let found = &drive.found[0];
        assert_eq!(found.started, "2026-01-31T12:00:00Z");
        assert_eq!(found.endurance_used_percent, Some(12.5));
        assert_eq!(found.write_amplification, Some(1.25));
        let trimmed = found.pass(TRIMMED).unwrap();
        assert_eq!(
            (trimmed.trim_ahead_bytes, trimmed.counts),
            (Some(10.0), true)
        );
        assert!(!found.pass("overwrite").unwrap().counts);
        let other = read(&text, WhenFull::Overwrite).unwrap().remove(0);
        assert!(!other.found[0].pass(TRIMMED).unwrap().counts);
        // Of several drives each has its own, and what is of all.
        let second = result(FILL).replace("\"name\":\"d\"", "\"name\":\"e\"");
        let second = &second[second.find("{\"name\"").unwrap()..second.len() - 2];
        let first = result(FILL);
        let said = r#""caveats":[{"code":"a","text":"d: one"},{"code":"b","text":"e: two"},{"code":"c","text":"three"}]"#;
        let both = format!("{},{second}]}}", &first[..first.len() - 2]);
        let both = both.replace("\"later\":1", said);
        let drives = read(&both, WhenFull::Stop).unwrap();
        let caveats = |at: usize| {
            let said = drives[at].caveats.iter();
            said.filter(|of| !of.contains("slowest write"))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(caveats(0), ["d: one", "d: three"]);
        assert_eq!(caveats(1), ["e: two", "e: three"]);
    }

    #[test]
    fn what_a_modelled_drive_did_is_no_measurement() {
        let source = |text: &str| {
            let drive = read(text, WhenFull::Stop).unwrap().remove(0);
            let said = drive
                .caveats
                .iter()
                .any(|of| of.contains("a modelled drive"));
            assert_eq!(said, drive.source == Source::Modelled, "{text}");
            drive.source
        };
        let real = result(FILL);
        assert_eq!(source(&real), Source::Measured);
        for modelled in [
            real.replace("file:/d", "ssd:optane?size=1G"),
            real.replace(
                "\"url\"",
                "\"members\":[\"file:/a\",\"ssd:optane\"],\"url\"",
            ),
            real.replace("\"url\"", "\"modelled\":true,\"url\""),
            real.replace("\"later\":1", "\"simulated\":true"),
        ] {
            assert_eq!(source(&modelled), Source::Modelled);
        }
        let steady = |source| (Drive::steady("d", 1.0, None, source), 1);
        let (mixed, _) = Drive::striped(&[steady(Source::Measured), steady(Source::Modelled)]);
        assert_eq!(mixed.source, Source::Modelled);
    }

    #[test]
    fn what_is_no_result_or_lacks_something_is_refused() {
        let said = |text: &str, when| read(text, when).unwrap_err().to_string();
        assert!(said("{}", WhenFull::Stop).contains("no result of `weir drive`"));
        assert!(said("[", WhenFull::Stop).contains("no result"));
        let other = result(FILL).replace("\"drive\"", "\"record\"");
        assert!(said(&other, WhenFull::Stop).contains("`weir record`"));
        let later = result(FILL).replace("\"version\":1", "\"version\":2");
        assert!(said(&later, WhenFull::Stop).contains("version is 2"));
        assert!(said(&result(FILL), WhenFull::Overwrite).contains("'overwrite'"));
        let bare = r#"{"pass":"fill"}"#;
        assert!(said(&result(bare), WhenFull::Stop).contains("worst windows"));
    }

    #[test]
    fn numbers_that_no_measurement_has_are_refused_and_a_stall_is_none_of_them() {
        let over = FILL.replace("\"fill\"", "\"overwrite\"");
        let said = |from: &str, to: &str| {
            assert!(FILL.contains(from), "{from}");
            let text = result(&format!("{},{over}", FILL.replacen(from, to, 1)));
            let read = read(&text, WhenFull::Overwrite);
            read.map(|drives| drives[0].rate_over(1.0))
                .map_err(|error| error.to_string())
        };
        for (from, to, what) in [
            (
                "\"bytes_per_second\":8",
                "\"bytes_per_second\":-8",
                "the rate of a window is -8",
            ),
            (
                "{\"seconds\":1,",
                "{\"seconds\":-1,",
                "the length of a window is -1",
            ),
            (
                "{\"seconds\":1,",
                "{\"seconds\":0,",
                "the length of a window is 0",
            ),
            ("\"mean\":20", "\"mean\":0", "the mean rate of a phase is 0"),
            (
                "\"mean\":20",
                "\"mean\":-20",
                "the mean rate of a phase is -20",
            ),
            (
                "{\"seconds\":10,\"rate\"",
                "{\"seconds\":-10,\"rate\"",
                "the time of a phase is -10",
            ),
            (
                "{\"seconds\":10,\"rate\"",
                "{\"seconds\":0,\"rate\"",
                "the time of a phase is 0",
            ),
            (
                "\"stall_seconds\":0.5",
                "\"stall_seconds\":-1",
                "the slowest write of a phase is -1",
            ),
            (
                "\"stall_seconds\":0.5",
                "\"longest_gap_seconds\":-1",
                "the longest gap of a phase is -1",
            ),
        ] {
            let refused = said(from, to).unwrap_err();
            assert!(refused.contains(&format!("d: {what};")), "{to}: {refused}");
        }
        assert_eq!(
            said("\"bytes_per_second\":8", "\"bytes_per_second\":0"),
            Ok(0.0)
        );
        // Nothing but windows, in the longest of which nothing was written.
        let bare = r#"{"pass":"fill","worst_windows":[{"seconds":1,"bytes_per_second":5},{"seconds":9,"bytes_per_second":0}]}"#;
        let refused = read(&result(bare), WhenFull::Stop).unwrap_err();
        assert!(refused.to_string().contains("the mean rate of a pass is 0"));
    }

    #[test]
    fn an_array_goes_at_its_slowest_members_pace() {
        let fast = Drive::steady("fast", 3.0, Some(10.0), Source::Given);
        let slow = Drive {
            windows: vec![
                Window {
                    seconds: 1.0,
                    rate: 1.0,
                },
                Window {
                    seconds: 9.0,
                    rate: 4.0,
                },
            ],
            ..Drive::steady("slow", 2.0, Some(8.0), Source::Measured)
        };
        let (array, count) = Drive::striped(&[(fast, 2), (slow, 3)]);
        assert_eq!(count, 5);
        assert_eq!(array.name, "2 x fast + 3 x slow");
        assert_eq!(
            (array.capacity, array.capacity_source),
            (Some(8.0), Source::Measured)
        );
        assert_eq!(array.rate_over(1.0), 1.0);
        assert_eq!(array.rate_over(9.0), 3.0);
    }
}
