//! Endurance of drives: by what their vendors let hosts write to them, or by drive writes per day where nobody says that.

use super::{Requirements, Worked, each, unknown};
use crate::sheet::{Cell, Section, Source};
use crate::units::{DAYS_OF_YEAR, SECONDS_OF_DAY, SECONDS_OF_YEAR, bytes_text, time_text};
use weir_report::words::trimmed;

impl Worked<'_> {
    /// Bytes that hosts may write to one drive: as told, by drive writes per day as told, as the drive is rated, or by those assumed.
    fn rated(&self, requirements: &Requirements) -> Option<(f64, Source)> {
        let drive = &self.design.drive;
        if let Some(bytes) = requirements.rated_writes {
            return Some((bytes, Source::Given));
        }
        let own = drive.rated_writes;
        if let Some(own) = own.filter(|_| requirements.dwpd.source != Source::Given) {
            return Some(own);
        }
        Some((overwrites(requirements) * drive.capacity?, Source::Derived))
    }

    /// Years until the array is worn out.
    pub(super) fn years(&self, requirements: &Requirements) -> Option<f64> {
        let written = requirements.stored() * requirements.utilisation.value;
        let (rated, _) = self.rated(requirements)?;
        Some(self.drives as f64 * rated / written / SECONDS_OF_YEAR)
    }
}

/// Overwrites that drive writes per day allow.
fn overwrites(requirements: &Requirements) -> f64 {
    requirements.dwpd.value * requirements.warranty.value / SECONDS_OF_DAY
}

/// Rated writes of the drives, and when they are used up.
pub(super) fn section(requirements: &Requirements, worked: &[Worked<'_>]) -> Section {
    let of_capacity = |of: &Worked<'_>| {
        let (rated, _) = of.rated(requirements)?;
        Some(rated / of.design.drive.capacity?)
    };
    let rows = vec![
        each("dwpd", "Drive writes per day", "", worked, |_| {
            let dwpd = requirements.dwpd;
            Cell::new(dwpd.value, trimmed(dwpd.value, 2), dwpd.source)
        })
        .how("assumed ones count where nobody says what a drive is rated for"),
        each("warranty", "Warranty", "seconds", worked, |_| {
            let warranty = requirements.warranty;
            Cell::new(warranty.value, time_text(warranty.value), warranty.source)
        }),
        each("rated", "A drive's rated writes", "bytes", worked, |of| {
            of.rated(requirements).map_or_else(unknown, |(bytes, source)| {
                Cell::new(bytes, bytes_text(bytes), source)
            })
        })
        .how(format!("as told (--rated-writes), as the drive's vendor says, or drive writes per day times the days of the warranty, {DAYS_OF_YEAR} to the year, times what it holds")),
        each("overwrites", "Overwrites that this allows", "", worked, |of| {
            of_capacity(of).map_or_else(unknown, |count| Cell::new(count, trimmed(count, 0), Source::Derived))
        }),
        each("years", "Worn out after", "years", worked, |of| {
            of.years(requirements).map_or_else(unknown, |years| {
                Cell::new(years, time_text(years * SECONDS_OF_YEAR), Source::Derived)
            })
        })
        .how("the array's rated writes divided by the mean that is stored; what a rating counts are the host's writes, so that write amplification is in it already"),
        each("dwpd-needed", "Drive writes per day that are made", "", worked, |of| {
            let written = requirements.stored() * requirements.utilisation.value * SECONDS_OF_DAY;
            of.design.drive.capacity.map_or_else(unknown, |capacity| {
                let made = written / (of.drives as f64 * capacity);
                Cell::new(made, trimmed(made, 2), Source::Derived)
            })
        }),
    ];
    Section {
        name: "endurance".to_owned(),
        title: "How long they last".to_owned(),
        words: String::new(),
        columns: worked.iter().map(|of| of.name().to_owned()).collect(),
        rows,
    }
}
