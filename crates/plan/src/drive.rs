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

/// A drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Drive {
    /// What it is called.
    pub name: String,
    /// Bytes, if known.
    pub capacity: Option<f64>,
    /// Ascending by length; at least one.
    pub windows: Vec<Window>,
    /// The mean rate of the slowest pass.
    pub mean: f64,
    /// The longest time without a completion; 0 where nobody said.
    pub gap_seconds: f64,
    /// What [`Drive::gap_seconds`] is.
    pub gap: GapKind,
    /// The data sheet's rate, if known.
    pub data_sheet: Option<f64>,
    /// Where the rates come from.
    pub source: Source,
    /// What a reader of the plan must know of it.
    pub caveats: Vec<String>,
}

/// What a drive's longest gap is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapKind {
    /// Nobody said one.
    Unknown,
    /// The longest time between two completions.
    Measured,
    /// The slowest write of a result without gaps, which is no shorter where writes are always queued.
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
    drives: Vec<StoredDrive>,
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
}

impl StoredDrive {
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
    #[serde(default)]
    phases: Vec<StoredPhase>,
    #[serde(default)]
    worst_windows: Vec<StoredWindow>,
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
            let mut drive = of_stored(drive, when_full)?;
            if stored.simulated || drive.source == Source::Modelled {
                drive.source = Source::Modelled;
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

fn of_stored(stored: &StoredDrive, when_full: WhenFull) -> Result<Drive, DriveError> {
    let name = match stored.name.as_str() {
        "" => stored.url.clone(),
        name => name.to_owned(),
    };
    let missing = |what: &str| DriveError::Missing {
        drive: name.clone(),
        what: what.to_owned(),
    };
    let pass = |wanted: &str| stored.passes.iter().find(|pass| pass.pass == wanted);
    let mut caveats = Vec::new();
    let fill = pass("fill").ok_or_else(|| missing("pass 'fill'"))?;
    let over = match when_full {
        WhenFull::Stop => None,
        WhenFull::Overwrite => Some(pass("overwrite").ok_or_else(|| missing("pass 'overwrite'"))?),
        WhenFull::TrimAhead => match (pass("overwrite-trimmed"), pass("overwrite")) {
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
    if let Some(cut) = passes.iter().find(|pass| pass.complete == Some(false)) {
        caveats.push(format!(
            "{name}: its pass '{}' was not made to its end, and what would have come is not in the plan",
            cut.pass
        ));
    }
    if let Some(capacity) = stored.capacity_bytes
        && stored.written_bytes > 0.0
        && stored.written_bytes < capacity
    {
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
    let mut windows: Vec<Window> = Vec::new();
    for pass in &passes {
        let usable = (pass.worst_windows.iter())
            .filter(|of| of.seconds > 0.0 && of.bytes_per_second.is_finite());
        let mut found = false;
        for of in usable {
            found = true;
            match windows.iter_mut().find(|has| has.seconds == of.seconds) {
                Some(has) => has.rate = has.rate.min(of.bytes_per_second),
                None => windows.push(Window {
                    seconds: of.seconds,
                    rate: of.bytes_per_second,
                }),
            }
        }
        if !found {
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
    let phases = || passes.iter().flat_map(|pass| &pass.phases);
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
            "{name}: its result does not have the longest gap between completions, as those of older Weirs do not; its slowest write, {}, stands for it, and is longer by the time that it waited behind others",
            crate::units::time_text(gap_seconds)
        ));
    }
    Ok(Drive {
        name,
        capacity: stored.capacity_bytes,
        mean: if mean.is_finite() { mean } else { longest },
        gap_seconds,
        gap,
        windows,
        data_sheet: None,
        source: match stored.is_modelled() {
            true => Source::Modelled,
            false => Source::Measured,
        },
        caveats,
    })
}

fn mean_of(pass: &StoredPass) -> Option<f64> {
    let rated = pass.phases.iter().filter_map(|phase| {
        let rate = phase.rate.as_ref()?;
        Some((phase.seconds, rate.mean.or(rate.median)?))
    });
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
            windows: vec![Window {
                seconds: f64::INFINITY,
                rate,
            }],
            mean: rate,
            gap_seconds: 0.0,
            gap: GapKind::Unknown,
            data_sheet: None,
            source,
            caveats: Vec::new(),
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
        let least = |values: Vec<Option<f64>>| {
            values.into_iter().try_fold(f64::INFINITY, |least, value| {
                value.map(|value| least.min(value))
            })
        };
        let longest = of().max_by(|one, other| one.gap_seconds.total_cmp(&other.gap_seconds));
        let longest = longest.unwrap_or(first);
        let names = members
            .iter()
            .map(|(drive, count)| format!("{count} x {}", drive.name));
        let array = Drive {
            name: names.collect::<Vec<_>>().join(" + "),
            capacity: least(of().map(|drive| drive.capacity).collect()),
            windows: windows.collect(),
            mean: of().map(|drive| drive.mean).fold(f64::INFINITY, f64::min),
            gap_seconds: longest.gap_seconds,
            gap: longest.gap,
            data_sheet: least(of().map(|drive| drive.data_sheet).collect()),
            source: if of().all(|drive| drive.source == first.source) {
                first.source
            } else if of().any(|drive| drive.source == Source::Modelled) {
                Source::Modelled
            } else {
                Source::Derived
            },
            caveats: of().flat_map(|drive| drive.caveats.clone()).collect(),
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
        assert_eq!(array.capacity, Some(8.0));
        assert_eq!(array.rate_over(1.0), 1.0);
        assert_eq!(array.rate_over(9.0), 3.0);
    }
}
