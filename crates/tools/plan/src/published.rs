//! What others published, kept as data with its source: the drives of a recorder, and the curves of a gateway cluster.

use serde::Deserialize;

use crate::drive::{Drive, DriveError};
use crate::sheet::Source;
use crate::units;

const DRIVES: &str = include_str!("../published/drives.toml");

/// The published drives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    line_rate: String,
    /// Who published it.
    pub source: String,
    /// In the order of the table.
    #[serde(rename = "drive")]
    pub drives: Vec<PublishedDrive>,
}

/// A published drive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedDrive {
    /// What it is asked for by.
    pub name: String,
    /// In words.
    pub title: String,
    capacity: String,
    data_sheet: String,
    peak: String,
    sustained: String,
    /// What was measured, in the publication's words.
    pub words: String,
    /// Drives by the data sheet, as published.
    pub by_data_sheet: u64,
    /// Drives that are needed, as published.
    pub needed: u64,
}

fn rate(text: &str) -> f64 {
    units::rate(text).expect("the published data is well formed")
}

impl PublishedDrive {
    /// Bytes per second of the data sheet.
    #[must_use]
    pub fn data_sheet(&self) -> f64 {
        rate(&self.data_sheet)
    }

    /// Bytes per second at first.
    #[must_use]
    pub fn peak(&self) -> f64 {
        rate(&self.peak)
    }

    /// The lowest measured bytes per second.
    #[must_use]
    pub fn sustained(&self) -> f64 {
        rate(&self.sustained)
    }

    /// Bytes.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        units::bytes(&self.capacity).expect("the published data is well formed")
    }

    /// As a drive to plan with, whose lowest rate holds for ever.
    #[must_use]
    pub fn drive(&self) -> Drive {
        Drive {
            data_sheet: Some(self.data_sheet()),
            ..Drive::steady(
                &self.name,
                self.sustained(),
                Some(self.capacity()),
                Source::Published,
            )
        }
    }
}

impl Drives {
    /// Bytes per second of the published line.
    #[must_use]
    pub fn line(&self) -> f64 {
        rate(&self.line_rate)
    }
}

/// The published drives.
///
/// # Panics
/// Never: the data is part of the program, and tested.
#[must_use]
pub fn drives() -> Drives {
    toml::from_str(DRIVES).expect("the published data is well formed")
}

/// The published drive of this name, or all of them.
///
/// # Errors
/// [`DriveError::Unknown`].
pub fn drives_named(name: &str) -> Result<Vec<Drive>, DriveError> {
    let all = drives().drives;
    let found: Vec<Drive> = all
        .iter()
        .filter(|drive| name == "all" || drive.name == name)
        .map(PublishedDrive::drive)
        .collect();
    if found.is_empty() {
        let names: Vec<&str> = all.iter().map(|drive| drive.name.as_str()).collect();
        return Err(DriveError::Unknown {
            name: name.to_owned(),
            there: names.join(", "),
        });
    }
    Ok(found)
}
