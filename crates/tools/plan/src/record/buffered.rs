//! Fewer drives behind a larger buffer: a drive that is slow for a while and not for ever.

use super::{Requirements, Worked, ceiling};
use crate::drive::{Drive, Window};
use crate::sheet::Source;
use crate::units::{rate_text, time_text};

/// A GiB.
const GIBIBYTE: f64 = (1u64 << 30) as f64;
/// More memory than this nobody puts before drives.
const BUFFER_MAX: f64 = 1024.0 * GIBIBYTE;

/// Fewer drives with the buffer that makes up for it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Buffered {
    pub(super) drives: u64,
    /// Bytes, rounded up to a power of two of GiB.
    pub(super) buffer: f64,
}

/// As few drives as keep up in a window without end, with the buffer that hides the shorter ones.
fn buffered(windows: &[Window], wanted: f64) -> Option<Buffered> {
    let for_ever = windows.iter().find(|of| of.seconds.is_infinite())?;
    let drives = ceiling(wanted / for_ever.rate);
    let lacking = |of: &Window| (wanted - drives * of.rate) * of.seconds;
    let finite = windows.iter().filter(|of| of.seconds.is_finite());
    let most = finite.map(lacking).fold(0.0, f64::max);
    let buffer = GIBIBYTE * (most / GIBIBYTE).log2().ceil().max(0.0).exp2();
    (most > 0.0 && buffer <= BUFFER_MAX).then_some(Buffered {
        drives: drives as u64,
        buffer,
    })
}

/// The windows by which fewer drives may do: those of the drive, or those that are assumed of it.
fn windows(drive: &Drive) -> &[Window] {
    match drive.assumed_windows.as_slice() {
        [] => &drive.windows,
        assumed => assumed,
    }
}

impl Worked<'_> {
    /// Fewer drives with more buffer than there is; none where drives were told, or something else than the line takes as many.
    pub(super) fn buffered(&self, requirements: &Requirements) -> Option<Buffered> {
        if self.design.count.is_some() || self.drives > self.needed.drives {
            return None;
        }
        let wanted = requirements.stored() * (1.0 + requirements.margin.value);
        let found = buffered(windows(&self.design.drive), wanted)?;
        let bridges = requirements.bridging(&self.design.drive) <= found.buffer;
        let others = self
            .by_retention
            .unwrap_or(0)
            .max(self.by_spare.unwrap_or(0));
        let is_less = found.drives < self.drives && found.drives >= others;
        (is_less && bridges && found.buffer > requirements.buffer.value).then_some(found)
    }

    /// The same in the words of an answer; empty without.
    pub(super) fn or_buffered(&self, requirements: &Requirements) -> String {
        let Some(found) = self.buffered(requirements) else {
            return String::new();
        };
        let assumed = match self.design.drive.assumed_windows.as_slice() {
            [dip, ..] => format!(
                " (if a dip lasts {}, as is assumed)",
                time_text(dip.seconds)
            ),
            [] if self.design.drive.source == Source::Modelled => {
                " (if dips last as long as the model's, as is assumed)".to_owned()
            }
            [] => String::new(),
        };
        format!(
            ", or {} and {} GiB of buffer{assumed}",
            found.drives,
            found.buffer / GIBIBYTE
        )
    }

    /// That how long the drive is slow was assumed.
    pub(super) fn caveat_of_dips(&self) -> Option<String> {
        let [dip, mean] = self.design.drive.assumed_windows.as_slice() else {
            return None;
        };
        Some(format!(
            "{}: nobody published how long it stays at {}, or how often: {} at a time, and {} in the mean, are assumed, and fewer drives with a larger buffer rest on that; weir drive measures it",
            self.name(),
            rate_text(dip.rate),
            time_text(dip.seconds),
            rate_text(mean.rate),
        ))
    }
}
