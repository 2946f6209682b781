//! Drives in RAID0 for a recorder that must keep up with a line.
//!
//! The rule: with `n` drives, a buffer of `B` bytes, a line that brings `L` bytes a second and a margin `m`, what one drive writes in any window of `W`
//! seconds is at least `w(W) * W`, so that nothing is lost when for every measured window
//!
//! ```text
//! (L * (1 + m) - n * w(W)) * W <= B       or      n >= (L * (1 + m) - B / W) / w(W)
//! ```
//!
//! The least such `n` is what is needed, and the window that asks for most is the one that binds. A rate that is said to hold for ever is a window without
//! end, which no buffer hides. No number of drives hides a gap in which nothing is written at all: that takes `B >= L * (1 + m) * gap`.

mod buffered;
mod endurance;
mod loss;

pub use loss::first_loss;

use crate::drive::{Drive, Found, GapKind, TRIMMED, Window};
use crate::sheet::{Cell, Chart, Quantity, Row, Section, Series, Sheet, Source};
use crate::units::{SECONDS_OF_YEAR, bytes_text, percent_text, rate_text, time_text};

/// An Enhanced Packet Block without options: type, total length, interface, two halves of the time stamp, captured and original length, and the total
/// length again (draft-ietf-opsawg-pcapng, section 4.3).
pub const PCAPNG_HEADER_BYTES: u64 = 32;
/// What a packet's bytes are padded to there.
pub const PCAPNG_ALIGNMENT: u64 = 4;
/// What Ethernet adds to each packet on the wire and no capture stores: preamble and start of frame (8), frame check sequence (4), gap (12); IEEE 802.3.
pub const ETHERNET_WIRE_BYTES: u64 = 24;
/// 0 degrees Celsius.
const KELVIN_OF_ZERO: f64 = 273.15;
/// Beyond so many a plan is a mistake.
const DRIVES_MAX: u64 = 100_000;
/// What rounding may do to a quotient that is whole.
const WHOLE: f64 = 1e-9;

/// What the line's rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// Bytes of packets.
    Payload,
    /// Bits on an Ethernet: what surrounds each packet is counted and not stored.
    Ethernet,
}

/// A figure that was told, or is a default.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Told {
    /// The figure.
    pub value: f64,
    /// [`Source::Given`] or [`Source::Assumed`].
    pub source: Source,
}

impl Told {
    /// As it was given, or by default.
    #[must_use]
    pub fn or(given: Option<f64>, default: f64) -> Self {
        match given {
            Some(value) => Told {
                value,
                source: Source::Given,
            },
            None => Told {
                value: default,
                source: Source::Assumed,
            },
        }
    }
}

/// What to plan for.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirements {
    /// Bytes per second of the line.
    pub line: f64,
    /// What that counts.
    pub link: Link,
    /// Bytes of a packet as it is captured; none: what arrives is stored as it is.
    pub packet_bytes: Option<u64>,
    /// How much of the line is used in the mean. Drives keep up with the whole line; retention and endurance are of the mean.
    pub utilisation: Told,
    /// How much more than the line the drives must keep up with.
    pub margin: Told,
    /// Bytes of memory between the line and the drives.
    pub buffer: Told,
    /// For how long to keep what was recorded, in seconds.
    pub retain: Option<f64>,
    /// Bytes that hosts may write to a drive, where that was told.
    pub rated_writes: Option<f64>,
    /// Drive writes per day that the warranty allows; assumed, it is of drives of which nobody says their rated writes.
    pub dwpd: Told,
    /// Seconds of warranty.
    pub warranty: Told,
    /// For how long ahead of where it is written the drives are deallocated, in seconds; 0 where they are not.
    pub trim_ahead: Told,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A number is out of its range.
    #[error("{what} cannot be {value}: {allowed}")]
    Range {
        /// What it is.
        what: &'static str,
        /// As it was given.
        value: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// No number of drives is enough, or a senseless one.
    #[error(
        "{drive} keeps {rate} over {window}, so that no array of up to {DRIVES_MAX} keeps up; a faster drive or a larger --buffer is needed"
    )]
    TooSlow {
        /// The drive.
        drive: String,
        /// What it keeps.
        rate: String,
        /// Over which window.
        window: String,
    },
    /// The array was told, and something else is needed as well.
    #[error("no drive to plan with")]
    NoDrive,
}

/// One design: a drive, and how many of it there are, where that was told.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    /// The drive; of a mixed array what [`Drive::striped`] makes of its members.
    pub drive: Drive,
    /// How many.
    pub count: Option<u64>,
}

/// How many drives a rate takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Needed {
    /// Drives.
    pub drives: u64,
    /// The window that asks for most; none where the buffer hides them all.
    pub binding: Option<Window>,
}

/// Rounded up, but for what is whole but for rounding.
fn ceiling(value: f64) -> f64 {
    if (value - value.round()).abs() < WHOLE * value.abs().max(1.0) {
        value.round()
    } else {
        value.ceil()
    }
}

/// The least number of drives that keep up with `rate` (with its margin) behind a buffer: the rule of this module.
///
/// # Errors
/// [`RecordError::TooSlow`].
pub fn needed(drive: &Drive, rate: f64, buffer: f64) -> Result<Needed, RecordError> {
    let mut most: f64 = 0.0;
    let mut binding = None;
    for window in &drive.windows {
        let wanted = rate - buffer / window.seconds;
        if wanted <= 0.0 {
            continue;
        }
        let drives = wanted / window.rate;
        if drives.is_nan() || drives > DRIVES_MAX as f64 {
            return Err(RecordError::TooSlow {
                drive: drive.name.clone(),
                rate: rate_text(window.rate),
                window: window_text(window.seconds),
            });
        }
        if drives > most {
            most = drives;
            binding = Some(*window);
        }
    }
    Ok(Needed {
        drives: (ceiling(most) as u64).max(1),
        binding,
    })
}

/// The margins from above the first to the second at which exactly `drives` are needed at one steady rate: `drives - 1 < line (1 + m) / rate <= drives`.
#[must_use]
pub fn margins_for(drives: u64, rate: f64, line: f64) -> (f64, f64) {
    let margin = |count: u64| count as f64 * rate / line - 1.0;
    (margin(drives.saturating_sub(1)), margin(drives))
}

fn window_text(seconds: f64) -> String {
    if seconds.is_finite() {
        time_text(seconds)
    } else {
        "without end".to_owned()
    }
}

impl Requirements {
    fn check(&self) -> Result<(), RecordError> {
        let wrong = |what, value: f64, allowed| {
            Err(RecordError::Range {
                what,
                value: value.to_string(),
                allowed,
            })
        };
        let utilisation = self.utilisation.value;
        if !(utilisation > 0.0 && utilisation <= 1.0) {
            return wrong("--utilisation", utilisation, "above 0% and at most 100%");
        }
        if !(self.margin.value >= 0.0 && self.margin.value <= 10.0) {
            return wrong("--margin", self.margin.value, "from 0% to 1000%");
        }
        if let Some(bytes) = self.rated_writes
            && bytes <= 0.0
        {
            return wrong("--rated-writes", bytes, "above 0");
        }
        if self.dwpd.value <= 0.0 {
            return wrong("--dwpd", self.dwpd.value, "above 0");
        }
        if self.warranty.value <= 0.0 {
            return wrong("--warranty", self.warranty.value, "above 0");
        }
        match self.packet_bytes {
            Some(bytes) if !(1..=262_144).contains(&bytes) => {
                wrong("--packet-bytes", bytes as f64, "from 1 to 262144")
            }
            _ => Ok(()),
        }
    }

    /// Bytes stored for each byte that the line counts, of packets of this size.
    fn stored_per_byte(&self, packet_bytes: u64) -> f64 {
        let counted = packet_bytes
            + match self.link {
                Link::Payload => 0,
                Link::Ethernet => ETHERNET_WIRE_BYTES,
            };
        stored_bytes(packet_bytes) as f64 / counted as f64
    }

    /// Bytes that arrive while a drive takes none: the least buffer.
    fn bridging(&self, drive: &Drive) -> f64 {
        self.stored() * (1.0 + self.margin.value) * drive.gap_seconds
    }

    /// Bytes to be stored in a second when the line is full.
    #[must_use]
    pub fn stored(&self) -> f64 {
        self.line * self.packet_bytes.map_or(1.0, |of| self.stored_per_byte(of))
    }
}

/// Bytes of a packet as pcapng stores it.
#[must_use]
pub fn stored_bytes(packet_bytes: u64) -> u64 {
    PCAPNG_HEADER_BYTES + packet_bytes.next_multiple_of(PCAPNG_ALIGNMENT)
}

/// The plan.
///
/// # Errors
/// [`RecordError`].
pub fn plan(requirements: &Requirements, designs: &[Design]) -> Result<Sheet, RecordError> {
    requirements.check()?;
    if designs.is_empty() {
        return Err(RecordError::NoDrive);
    }
    let worked = designs
        .iter()
        .map(|design| Worked::new(requirements, design))
        .collect::<Result<Vec<_>, _>>()?;
    let title = format!("A recorder for {}", line_text(requirements.line));
    let mut sheet = Sheet::new("record", title);
    sheet.sections.push(line_section(requirements));
    sheet.sections.push(drives_section(requirements, &worked));
    sheet.sections.push(ring_section(requirements, &worked));
    sheet
        .sections
        .push(endurance::section(requirements, &worked));
    sheet.sections.extend(found_section(requirements, &worked));
    sheet.answer = worked
        .iter()
        .map(|of| of.answer(requirements))
        .collect::<Vec<_>>()
        .join(" ");
    sheet.charts.extend(windows_chart(requirements, &worked));
    for of in &worked {
        sheet.tell(of.design.drive.caveats.clone());
        sheet.tell(of.caveats(requirements));
    }
    Ok(sheet)
}

/// Tells whether as many drives as a design has keep up, and hold what is to be kept; `true` where that is not known.
///
/// # Errors
/// [`RecordError`].
pub fn fits(requirements: &Requirements, design: &Design) -> Result<bool, RecordError> {
    let worked = Worked::new(requirements, design)?;
    let keeps_up = worked.drives >= worked.needed.drives;
    let bridges = worked.bridged(requirements) != Bridged::No;
    Ok(keeps_up && bridges && worked.keeps() != Some(false))
}

fn line_text(line: f64) -> String {
    let bits = line * 8.0 / 1e9;
    format!(
        "{} Gb/s ({})",
        weir_report::words::trimmed(bits, 2),
        rate_text(line)
    )
}

/// A design with what the rules make of it.
struct Worked<'a> {
    design: &'a Design,
    needed: Needed,
    by_mean: u64,
    by_data_sheet: Option<u64>,
    /// How many hold what is kept and the spare.
    by_retention: Option<u64>,
    /// How many hold more than the spare.
    by_spare: Option<u64>,
    /// How many the plan goes on with.
    drives: u64,
}

/// Whether the buffer hides the longest gap in which a drive takes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bridged {
    Yes,
    /// Data is lost in it, whatever the number of drives.
    No,
    /// Nobody said how long it is, or a slowest write stands for it, which is longer than the buffer hides.
    Unknown,
}

impl<'a> Worked<'a> {
    fn new(requirements: &Requirements, design: &'a Design) -> Result<Self, RecordError> {
        let stored = requirements.stored();
        let wanted = stored * (1.0 + requirements.margin.value);
        let drive = &design.drive;
        let found = needed(drive, wanted, requirements.buffer.value)?;
        let by = |rate: f64, wanted: f64| (ceiling(wanted / rate) as u64).max(1);
        if let Some(capacity) = drive.capacity
            && !(capacity > 0.0 && capacity.is_finite())
        {
            return Err(RecordError::Range {
                what: "--capacity, or a result's capacity",
                value: capacity.to_string(),
                allowed: "above 0",
            });
        }
        let retained = requirements.retain.zip(drive.capacity);
        let by_retention = retained.map(|(seconds, capacity)| {
            by(
                capacity,
                stored * requirements.utilisation.value * seconds + spare(requirements),
            )
        });
        // As much as the spare alone would be a ring that holds nothing.
        let by_spare = (drive.capacity)
            .filter(|_| spare(requirements) > 0.0)
            .map(|capacity| ((spare(requirements) / capacity).floor() as u64).saturating_add(1));
        let counts = [
            ("the number of drives that --retain takes", by_retention),
            ("the number of drives that --trim-ahead takes", by_spare),
        ];
        for (what, drives) in counts {
            if let Some(drives) = drives.filter(|of| *of > DRIVES_MAX) {
                return Err(RecordError::Range {
                    what,
                    value: drives.to_string(),
                    allowed: "at most 100000",
                });
            }
        }
        let least = (found.drives)
            .max(by_retention.unwrap_or(0))
            .max(by_spare.unwrap_or(0));
        Ok(Worked {
            design,
            needed: found,
            by_mean: by(drive.mean, wanted),
            by_data_sheet: drive.data_sheet.map(|of| by(of, stored)),
            by_retention,
            by_spare,
            drives: design.count.unwrap_or(least),
        })
    }

    fn name(&self) -> &str {
        &self.design.drive.name
    }

    /// What the array holds beside what is deallocated ahead.
    fn ring(&self, requirements: &Requirements) -> Option<f64> {
        let capacity = self.design.drive.capacity?;
        let bytes = self.drives as f64 * capacity - spare(requirements);
        (bytes > 0.0).then_some(bytes)
    }

    fn bridged(&self, requirements: &Requirements) -> Bridged {
        let drive = &self.design.drive;
        let hides = requirements.bridging(drive) <= requirements.buffer.value;
        match (drive.gap, hides) {
            (GapKind::Unknown, _) | (GapKind::SlowestWrite, false) => Bridged::Unknown,
            (_, true) => Bridged::Yes,
            (GapKind::Measured, false) => Bridged::No,
        }
    }

    /// Whether the spare leaves room for anything; none where what a drive holds is unknown.
    fn has_room(&self, requirements: &Requirements) -> Option<bool> {
        self.design.drive.capacity?;
        Some(self.ring(requirements).is_some())
    }

    /// Whether so many hold what is to be kept; none where what a drive holds is unknown.
    fn keeps(&self) -> Option<bool> {
        self.by_retention.map(|of| self.drives >= of)
    }

    fn answer(&self, requirements: &Requirements) -> String {
        let name = self.name();
        let needed = self.needed.drives;
        let takes = format!(
            "{}, takes a buffer of {}, and there are {}",
            time_text(self.design.drive.gap_seconds),
            bytes_text(requirements.bridging(&self.design.drive)),
            bytes_text(requirements.buffer.value),
        );
        let gap = format!("its longest gap between completions, {takes}");
        let mut text = match (self.bridged(requirements), self.design.count) {
            (Bridged::No, None) => {
                format!("{name}: no number of drives keeps up: {gap}; but for that {needed} would")
            }
            (Bridged::No, Some(count)) => format!(
                "{name}: {count} drives do not keep up, nor does any number: {gap}; but for that {needed} would"
            ),
            (_, None) => format!(
                "{name}: {} drives{}",
                self.drives,
                self.or_buffered(requirements)
            ),
            (_, Some(count)) if count >= needed => {
                format!("{name}: {count} drives keep up ({needed} would)")
            }
            (_, Some(count)) => format!("{name}: {count} drives do not keep up, {needed} would"),
        };
        if self.design.count.is_none() && self.drives > needed {
            let what = match self.by_retention == Some(self.drives) {
                true => "for what is kept",
                false => "for the spare",
            };
            text += &match self.bridged(requirements) {
                Bridged::No => format!(", and {} {what}", self.drives),
                _ => format!(" {what}, {needed} to keep up"),
            };
        }
        let is_open = self.bridged(requirements) == Bridged::Unknown
            && self.design.drive.gap == GapKind::SlowestWrite;
        if is_open {
            text += " as far as is known";
        }
        let lasting = self
            .years(requirements)
            .map(|years| format!("last {}", time_text(years * SECONDS_OF_YEAR)));
        let holding = self.ring(requirements).map(|ring| {
            format!(
                "hold {} of a full line",
                time_text(ring / requirements.stored())
            )
        });
        let done: Vec<String> = holding.into_iter().chain(lasting).collect();
        if !done.is_empty() {
            let which = match self.buffered(requirements) {
                Some(_) if self.bridged(requirements) != Bridged::No => {
                    format!("; {}", self.drives)
                }
                _ => ", which".to_owned(),
            };
            text += &format!("{which} {}", done.join(" and "));
        }
        text += ".";
        if is_open {
            text += &format!(
                " Its slowest write, {takes}: whether its longest gap, for which that stands, is as long is unknown."
            );
        }
        if self.has_room(requirements) == Some(false)
            && let Some(least) = self.by_spare
        {
            text += &format!(
                " They hold nothing: the spare of {} does not fit on them, and takes {least}.",
                bytes_text(spare(requirements))
            );
        }
        if let Some(seconds) = requirements.retain {
            let wanted = time_text(seconds);
            match (self.keeps(), self.by_retention) {
                (Some(false), Some(least)) => {
                    text += &format!(
                        " They do not keep the {wanted} that are to be kept, which take {least} drives."
                    );
                }
                (None, _) => {
                    text += &format!(
                        " Whether they keep {wanted} is unknown: --capacity says what one holds."
                    );
                }
                _ => (),
            }
        }
        text
    }

    fn caveats(&self, requirements: &Requirements) -> Vec<String> {
        let mut caveats = Vec::new();
        let name = self.name();
        let gap = self.design.drive.gap_seconds;
        let arrives = requirements.bridging(&self.design.drive);
        if arrives > requirements.buffer.value {
            let what = match self.design.drive.gap {
                GapKind::SlowestWrite => {
                    "its slowest write, which stands for its longest gap between completions"
                }
                GapKind::Measured | GapKind::Unknown => "its longest gap between completions",
            };
            caveats.push(format!(
                "{name}: {what}, {}, is longer than the buffer of {} hides: no number of drives helps, a buffer of {} does",
                time_text(gap),
                bytes_text(requirements.buffer.value),
                bytes_text(arrives),
            ));
        }
        let longest = self
            .design
            .drive
            .windows
            .last()
            .map_or(0.0, |of| of.seconds);
        if self.needed.binding.is_some_and(|of| of.seconds == longest) && longest.is_finite() {
            caveats.push(format!(
                "{name}: the longest measured window ({}) binds; in a longer one the buffer is of less use, so that the count without it, {}, is the safe one",
                time_text(longest),
                needed(&self.design.drive, requirements.stored() * (1.0 + requirements.margin.value), 0.0)
                    .map_or_else(|_| "unknown".to_owned(), |of| of.drives.to_string()),
            ));
        }
        caveats.extend(self.unseen(requirements));
        caveats.extend(self.caveat_of_dips());
        let planned = spare(requirements) / self.drives as f64;
        for found in &self.design.drive.found {
            let trimmed = found.pass(TRIMMED).filter(|pass| pass.counts);
            let Some(measured) = trimmed.and_then(|pass| pass.trim_ahead_bytes) else {
                continue;
            };
            if measured > planned * (1.0 + WHOLE) {
                caveats.push(format!(
                    "{}: its overwrite with TRIM ahead was measured with {} deallocated ahead of the writes, and here it is {} on each of {} drives: with less ahead it may be slower; --trim-ahead {} keeps as much",
                    found.drive,
                    bytes_text(measured),
                    bytes_text(planned),
                    self.drives,
                    duration_text(measured * self.drives as f64 / requirements.stored()),
                ));
            }
        }
        if requirements.retain.is_some() && self.design.drive.capacity.is_none() {
            caveats.push(format!(
                "{name}: its capacity is unknown, so that nothing is said of what is kept; --capacity says it"
            ));
        }
        caveats
    }

    /// That the drive may do what nobody saw, for longer than the buffer hides.
    fn unseen(&self, requirements: &Requirements) -> Option<String> {
        let shortest = self.design.drive.seen_seconds;
        let wanted = requirements.stored() * (1.0 + requirements.margin.value);
        let hides = requirements.buffer.value / wanted;
        (hides < shortest * (1.0 - WHOLE)).then(|| {
            format!(
                "{}: what it does within {} was not measured, and the buffer of {} hides {} alone: that it slows down for less than the shortest window is not seen, and takes data where it does; --buffer {} covers that",
                self.name(),
                time_text(shortest),
                bytes_text(requirements.buffer.value),
                time_text(hides),
                size_text(wanted * shortest),
            )
        })
    }
}

/// A size as the command line takes it, rounded up to whole bytes.
fn size_text(bytes: f64) -> String {
    let text = bytes_text(bytes).replace(' ', "");
    match crate::units::bytes(&text) {
        Ok(of) if of >= bytes => text,
        _ => format!("{}B", bytes.ceil()),
    }
}

/// A length of time as the command line takes it, rounded up to whole seconds.
fn duration_text(seconds: f64) -> String {
    format!("{}s", seconds.ceil() as u64)
}

/// Bytes ahead of the head that are being deallocated.
fn spare(requirements: &Requirements) -> f64 {
    requirements.stored() * requirements.trim_ahead.value
}

fn single(name: &str, label: &str, unit: &str, cell: Cell) -> Row {
    Row::new(name, label, unit, vec![cell])
}

fn line_section(requirements: &Requirements) -> Section {
    let stored = requirements.stored();
    let mean = stored * requirements.utilisation.value;
    let mut rows = vec![
        single("line", "Line", "bytes/s", Cell::new(requirements.line, line_text(requirements.line), Source::Given))
            .how(match requirements.link {
                Link::Payload => "the rate counts the bytes of packets",
                Link::Ethernet => "the rate counts what is on the wire: each packet takes 24 bytes more there (preamble 8, frame check sequence 4, gap 12), which are not stored",
            }),
        single("utilisation", "Used in the mean", "fraction", Cell::new(
            requirements.utilisation.value,
            percent_text(requirements.utilisation.value),
            requirements.utilisation.source,
        )).how("drives keep up with the whole line; retention and endurance are of the mean"),
    ];
    if let Some(packet) = requirements.packet_bytes {
        let part = requirements.stored_per_byte(packet);
        let overhead = stored_bytes(packet) as f64 / packet as f64 - 1.0;
        rows.push(
            single("pcapng", "pcapng adds to a packet", "fraction", Cell::new(overhead, percent_text(overhead), Source::Derived)).how(format!(
                "an Enhanced Packet Block is {PCAPNG_HEADER_BYTES} bytes and the packet padded to {PCAPNG_ALIGNMENT}: {packet} bytes become {}; {} stored for each byte of the line",
                stored_bytes(packet),
                weir_report::words::trimmed(part, 4),
            )),
        );
        for size in [64u64, 256, 512, 1518, 9018] {
            let rate = requirements.line * requirements.stored_per_byte(size);
            rows.push(single(
                &format!("stored-{size}"),
                &format!("Stored of packets of {size} bytes"),
                "bytes/s",
                Cell::new(rate, rate_text(rate), Source::Derived),
            ));
        }
    }
    rows.push(single(
        "stored",
        "Stored, full line",
        "bytes/s",
        Cell::new(stored, rate_text(stored), Source::Derived),
    ));
    rows.push(single(
        "stored-mean",
        "Stored, mean",
        "bytes/s",
        Cell::new(mean, rate_text(mean), Source::Derived),
    ));
    Section {
        name: "line".to_owned(),
        title: "The line".to_owned(),
        words: String::new(),
        columns: vec![String::new()],
        rows,
    }
}

/// A row with a figure of each design.
fn each(
    name: &str,
    label: &str,
    unit: &str,
    worked: &[Worked<'_>],
    cell: impl Fn(&Worked<'_>) -> Cell,
) -> Row {
    Row::new(name, label, unit, worked.iter().map(cell).collect())
}

fn unknown() -> Cell {
    Cell::word("unknown", Source::Assumed)
}

fn yes_or_no(is_so: bool) -> Cell {
    Cell::word(if is_so { "yes" } else { "no" }, Source::Derived)
}

fn drives_section(requirements: &Requirements, worked: &[Worked<'_>]) -> Section {
    let stored = requirements.stored();
    let wanted = stored * (1.0 + requirements.margin.value);
    let buffer = requirements.buffer;
    let count = |value: u64| Cell::count(value, Source::Derived);
    let mut rows = vec![
        each("margin", "Margin", "fraction", worked, |_| {
            Cell::new(requirements.margin.value, percent_text(requirements.margin.value), requirements.margin.source)
        }),
        each("buffer", "Buffer", "bytes", worked, |_| {
            let hides = buffer.value / wanted;
            Cell::new(buffer.value, format!("{} = {}", bytes_text(buffer.value), time_text(hides)), buffer.source)
        }),
        each("binding-window", "Window that binds", "seconds", worked, |of| match of.needed.binding {
            Some(window) => Cell::new(window.seconds, window_text(window.seconds), of.design.drive.source),
            None => Cell::word("none: the buffer hides all", Source::Derived),
        }),
        each("binding-rate", "Lowest mean rate in it", "bytes/s", worked, |of| match of.needed.binding {
            Some(window) => Cell::new(window.rate, rate_text(window.rate), of.design.drive.source),
            None => Cell::word("-", Source::Derived),
        }),
        each("drives", "Drives by the worst window", "drives", worked, |of| count(of.needed.drives)).how(format!(
            "the least n with (L (1 + m) - n w(W)) W <= B for every measured window W: L = {}, m = {}, B = {}; {}",
            rate_text(stored),
            percent_text(requirements.margin.value),
            bytes_text(buffer.value),
            worked.iter().map(|of| arithmetic(of, wanted, buffer.value)).collect::<Vec<_>>().join("; "),
        )),
        each("drives-margin", "Margin that this count has", "fraction", worked, |of| {
            let margin = margin_of(of, of.needed.drives, stored, buffer.value);
            Cell::new(margin, percent_text(margin), Source::Derived)
        }).how("the largest m that needs no drive more"),
        each("drives-margin-next", "Margin that one drive more has", "fraction", worked, |of| {
            let margin = margin_of(of, of.needed.drives + 1, stored, buffer.value);
            Cell::new(margin, percent_text(margin), Source::Derived)
        }),
        each("drives-mean", "Drives by the mean, for comparison", "drives", worked, |of| count(of.by_mean)),
    ];
    if worked.iter().any(|of| !of.design.drive.phases.is_empty()) {
        let row = each(
            "first-loss-less",
            "First loss with one drive fewer",
            "seconds",
            worked,
            |of| {
                let drive = &of.design.drive;
                let fewer = of.needed.drives - 1;
                match first_loss(drive, fewer, wanted, buffer.value) {
                    _ if drive.phases.is_empty() || fewer == 0 => unknown(),
                    Some(seconds) => Cell::new(seconds, time_text(seconds), Source::Derived),
                    None => Cell::word("never in the passes that were measured", Source::Derived),
                }
            },
        );
        rows.push(row.how(
            "time until the buffer is full, from empty drives on, each phase at its measured rate",
        ));
    }
    if worked
        .iter()
        .any(|of| of.design.drive.gap != GapKind::Unknown)
    {
        rows.push(each("gap", "Longest gap between completions", "seconds", worked, |of| {
            let drive = &of.design.drive;
            let text = match drive.gap {
                GapKind::Unknown => return unknown(),
                GapKind::Measured => time_text(drive.gap_seconds),
                GapKind::SlowestWrite => format!("{}, its slowest write", time_text(drive.gap_seconds)),
            };
            Cell::new(drive.gap_seconds, text, drive.source)
        }).how("for so long the drive took no byte: no number of drives makes up for it, and a write that waits behind others takes longer than that"));
        rows.push(
            each(
                "buffer-gap",
                "Buffer that bridges it",
                "bytes",
                worked,
                |of| {
                    if of.design.drive.gap == GapKind::Unknown {
                        return unknown();
                    }
                    let bytes = requirements.bridging(&of.design.drive);
                    Cell::new(bytes, bytes_text(bytes), Source::Derived)
                },
            )
            .how("L (1 + m) times the longest gap"),
        );
        rows.push(
            each(
                "gap-bridged",
                "The buffer bridges it",
                "",
                worked,
                |of| match (of.bridged(requirements), of.design.drive.gap) {
                    (Bridged::Yes, _) => yes_or_no(true),
                    (Bridged::No, _) => yes_or_no(false),
                    (Bridged::Unknown, GapKind::SlowestWrite) => {
                        Cell::word("unknown: not its slowest write", Source::Derived)
                    }
                    (Bridged::Unknown, _) => unknown(),
                },
            )
            .how("where it does not, data is lost, whatever the number of drives"),
        );
    }
    if worked.iter().any(|of| of.by_data_sheet.is_some()) {
        rows.push(each("data-sheet", "Data sheet", "bytes/s", worked, |of| {
            let drive = &of.design.drive;
            drive.data_sheet.map_or_else(unknown, |rate| {
                Cell::new(rate, rate_text(rate), drive.data_sheet_source)
            })
        }));
        rows.push(
            each(
                "drives-data-sheet",
                "Drives by the data sheet, for comparison",
                "drives",
                worked,
                |of| of.by_data_sheet.map_or_else(unknown, count),
            )
            .how("L divided by the data sheet's rate, without margin"),
        );
    }
    if worked.iter().any(|of| of.design.count.is_some()) {
        rows.push(each("count", "Drives there are", "drives", worked, |of| {
            of.design.count.map_or_else(unknown, |of| Cell::count(of, Source::Given))
        }).how("RAID0 goes at its slowest member's pace, and holds as many times its smallest member as it has members"));
    }
    Section {
        name: "drives".to_owned(),
        title: "Drives in RAID0 that keep up".to_owned(),
        words: "By the worst sustained window that the buffer cannot hide, not by the mean."
            .to_owned(),
        columns: worked.iter().map(|of| of.name().to_owned()).collect(),
        rows,
    }
}

fn arithmetic(of: &Worked<'_>, wanted: f64, buffer: f64) -> String {
    match of.needed.binding {
        None => format!(
            "{}: the buffer hides every window, one drive does",
            of.name()
        ),
        Some(window) => {
            let hidden = buffer / window.seconds;
            let quotient = (wanted - hidden) / window.rate;
            format!(
                "{}: ({} - {}) / {} = {}, so {}",
                of.name(),
                rate_text(wanted),
                rate_text(hidden),
                rate_text(window.rate),
                weir_report::words::trimmed(quotient, 3),
                of.needed.drives,
            )
        }
    }
}

/// The largest margin with which so many drives keep up.
fn margin_of(of: &Worked<'_>, drives: u64, stored: f64, buffer: f64) -> f64 {
    let keeps = |window: &Window| drives as f64 * window.rate + buffer / window.seconds;
    let least = of
        .design
        .drive
        .windows
        .iter()
        .map(keeps)
        .fold(f64::INFINITY, f64::min);
    least / stored - 1.0
}

fn ring_section(requirements: &Requirements, worked: &[Worked<'_>]) -> Section {
    let stored = requirements.stored();
    let mean = stored * requirements.utilisation.value;
    let spare = spare(requirements);
    let bytes = |value: f64, source| Cell::new(value, bytes_text(value), source);
    let mut rows = vec![each("capacity", "A drive holds", "bytes", worked, |of| {
        of.design.drive.capacity.map_or_else(unknown, |value| {
            bytes(value, of.design.drive.capacity_source)
        })
    })];
    if let Some(seconds) = requirements.retain {
        rows.push(
            each("retained", "To be kept", "bytes", worked, |_| {
                bytes(mean * seconds, Source::Derived)
            })
            .how(format!("{} for {}", rate_text(mean), time_text(seconds))),
        );
        rows.push(
            each(
                "drives-retention",
                "Drives for that",
                "drives",
                worked,
                |of| {
                    of.by_retention
                        .map_or_else(unknown, |of| Cell::count(of, Source::Derived))
                },
            )
            .how("what is kept and the spare, divided by what a drive holds"),
        );
        rows.push(each(
            "kept",
            "The drives in all hold it",
            "",
            worked,
            |of| of.keeps().map_or_else(unknown, yes_or_no),
        ));
    }
    rows.push(
        each(
            "spare",
            "Spare, deallocated ahead of the head",
            "bytes",
            worked,
            |of| match of.design.drive.capacity {
                Some(capacity) => Cell::new(
                    spare,
                    format!(
                        "{} = {} drives",
                        bytes_text(spare),
                        weir_report::words::trimmed(spare / capacity, 3)
                    ),
                    requirements.trim_ahead.source,
                ),
                None => bytes(spare, requirements.trim_ahead.source),
            },
        )
        .how(format!(
            "a ring that trims ahead needs room for what arrives while the drives erase: {} at {}",
            time_text(requirements.trim_ahead.value),
            rate_text(stored),
        )),
    );
    if worked.iter().any(|of| of.by_spare.is_some()) {
        rows.push(
            each(
                "drives-spare",
                "Drives that hold more than it",
                "drives",
                worked,
                |of| {
                    of.by_spare
                        .map_or_else(unknown, |of| Cell::count(of, Source::Derived))
                },
            )
            .how("the least number that holds more than the spare; with fewer there is no ring"),
        );
    }
    rows.push(
        each("drives-total", "Drives in all", "drives", worked, |of| {
            Cell::count(
                of.drives,
                if of.design.count.is_some() {
                    Source::Given
                } else {
                    Source::Derived
                },
            )
        })
        .how("the greatest of what keeps up, what is kept and what holds more than the spare, or as told"),
    );
    rows.push(
        each(
            "held",
            "They hold, of a full line",
            "seconds",
            worked,
            |of| held(of, requirements, stored),
        )
        .how("all drives but the spare, divided by what a full line stores"),
    );
    rows.push(each(
        "held-mean",
        "They hold, at mean use",
        "seconds",
        worked,
        |of| held(of, requirements, mean),
    ));
    Section {
        name: "ring".to_owned(),
        title: "What they hold".to_owned(),
        words: String::new(),
        columns: worked.iter().map(|of| of.name().to_owned()).collect(),
        rows,
    }
}

/// For how long a rate is held.
fn held(of: &Worked<'_>, requirements: &Requirements, rate: f64) -> Cell {
    match (of.ring(requirements), of.has_room(requirements)) {
        (Some(ring), _) => Cell::new(ring / rate, time_text(ring / rate), Source::Derived),
        (None, Some(_)) => Cell::word("nothing: the spare does not fit", Source::Derived),
        (None, None) => unknown(),
    }
}

/// How the drives were measured, and how they were; none where nobody measured any.
fn found_section(requirements: &Requirements, worked: &[Worked<'_>]) -> Option<Section> {
    let all: Vec<(&Found, &Worked<'_>)> = worked
        .iter()
        .flat_map(|of| of.design.drive.found.iter().map(move |found| (found, of)))
        .collect();
    if all.is_empty() {
        return None;
    }
    let row = |name: &str, label: &str, unit: &str, cell: &dyn Fn(&Found, &Worked<'_>) -> Cell| {
        let cells = all.iter().map(|(found, of)| cell(found, of)).collect();
        Row::new(name, label, unit, cells)
    };
    let pass = |name: &str, label: &str| {
        row(&format!("mean-{name}"), label, "bytes/s", &|found, _| {
            let Some(pass) = found.pass(name) else {
                return Cell::word("not measured", found.source);
            };
            let counts = match pass.counts {
                true => "counts",
                false => "does not count",
            };
            match pass.mean {
                Some(mean) => {
                    Cell::new(mean, format!("{}, {counts}", rate_text(mean)), found.source)
                }
                None => Cell::word(format!("unknown, {counts}"), found.source),
            }
        })
    };
    let said = |value: Option<f64>, text: &dyn Fn(f64) -> String, found: &Found| {
        let of = |value| Cell::new(value, text(value), found.source);
        value.map_or_else(|| Cell::word("unknown", found.source), of)
    };
    let trimmed = |found: &Found| found.pass(TRIMMED).filter(|pass| pass.counts).is_some();
    let rows = vec![
        row("when", "Measured from", "", &|found, _| {
            let when = match found.started.as_str() {
                "" => "unknown",
                when => when,
            };
            Cell::word(when, found.source)
        }),
        pass("fill", "Mean of the first fill"),
        pass("overwrite", "Mean of the overwrite"),
        pass(TRIMMED, "Mean of the overwrite with TRIM ahead"),
        row(
            "trim-ahead-measured",
            "Deallocated ahead, as measured",
            "bytes",
            &|found, _| match found.pass(TRIMMED) {
                Some(pass) => said(pass.trim_ahead_bytes, &bytes_text, found),
                None => Cell::word("not measured", found.source),
            },
        ),
        row(
            "trim-ahead-planned",
            "Deallocated ahead, as planned, of each drive",
            "bytes",
            &|found, of| {
                if !trimmed(found) {
                    return Cell::word("the plan goes by no pass with TRIM ahead", Source::Derived);
                }
                let bytes = spare(requirements) / of.drives as f64;
                Cell::new(bytes, bytes_text(bytes), Source::Derived)
            },
        )
        .how("what the full line stores in --trim-ahead, over the drives"),
        row(
            "endurance-used",
            "Endurance used afterwards",
            "fraction",
            &|found, _| {
                said(
                    found.endurance_used_percent.map(|of| of / 100.0),
                    &percent_text,
                    found,
                )
            },
        ),
        row(
            "temperature",
            "Temperature afterwards",
            "degrees Celsius",
            &|found, _| {
                let celsius = found.temperature_kelvin.map(|of| of - KELVIN_OF_ZERO);
                said(celsius, &|of| format!("{of:.0} \u{b0}C"), found)
            },
        ),
        row(
            "write-amplification",
            "Write amplification, all passes",
            "",
            &|found, _| {
                said(
                    found.write_amplification,
                    &|of| weir_report::words::trimmed(of, 3),
                    found,
                )
            },
        ),
    ];
    Some(Section {
        name: "measured".to_owned(),
        title: "How the drives were measured, and how they were".to_owned(),
        words: "What counts is what --when-full says that the recorder does; of the passes that count the plan takes the worst windows.".to_owned(),
        columns: all.iter().map(|(found, _)| found.drive.clone()).collect(),
        rows,
    })
}

/// The worst windows, with what each window asks of one drive.
fn windows_chart(requirements: &Requirements, worked: &[Worked<'_>]) -> Option<Chart> {
    let wanted = requirements.stored() * (1.0 + requirements.margin.value);
    let mut series = Vec::new();
    for of in worked {
        let finite: Vec<&Window> = of
            .design
            .drive
            .windows
            .iter()
            .filter(|of| of.seconds.is_finite())
            .collect();
        if finite.len() < 2 {
            continue;
        }
        series.push(Series {
            name: of.name().to_owned(),
            source: of.design.drive.source,
            points: finite.iter().map(|of| [of.seconds, of.rate]).collect(),
        });
        series.push(Series {
            name: format!("asked of each of {} x {}", of.needed.drives, of.name()),
            source: Source::Derived,
            points: finite
                .iter()
                .map(|window| {
                    let asked = (wanted - requirements.buffer.value / window.seconds)
                        / of.needed.drives as f64;
                    [window.seconds, asked.max(0.0)]
                })
                .collect(),
        });
    }
    (!series.is_empty()).then(|| Chart {
        title: "Lowest mean rate over any window, and what each window asks of a drive".to_owned(),
        x: Quantity::WindowSeconds,
        y: Quantity::BytesPerSecond,
        series,
    })
}

#[cfg(test)]
mod tests;
