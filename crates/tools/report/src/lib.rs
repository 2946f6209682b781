//! Reports from stored results: one HTML file that needs nothing else, and the forms that other tools read.
//!
//! Everything here works from [`weir_lab::document`] alone, one or several, or from [`weir_drive::document`], and writes text. What was measured is not judged
//! again: knees, differences and caveats are shown as the document has them, and what only the putting together of documents
//! shows (other machines, other workloads) is said beside them. This crate opens no file, reads no clock and knows no terminal.

#![forbid(unsafe_code)]

mod export;
pub mod health;
mod html;
mod measured;
pub mod words;

use std::io;

use weir_lab::document::{Document, LatencyError};

pub use export::fio::LATENCY_NS_MAX as FIO_LATENCY_NS_MAX;
pub use export::vdbench::RATE_MAXIMUM as VDBENCH_RATE_MAXIMUM;
pub use html::drawing;

/// What a report is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One HTML file with drawings, for any browser; it asks nothing of a network.
    Html,
    /// The JSON that fio writes with `--output-format=json+`.
    Fio,
    /// The columns of vdbench's `flatfile.html`.
    Vdbench,
    /// Comma-separated values, one row for each run or interval and kind of request.
    Csv,
    /// A log of HdrHistogram's, with the histogram of each interval.
    Hdr,
}

impl Format {
    /// All of them.
    pub const ALL: [Format; 5] = [
        Format::Html,
        Format::Fio,
        Format::Vdbench,
        Format::Csv,
        Format::Hdr,
    ];

    /// What it is called at the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Format::Html => "html",
            Format::Fio => "fio",
            Format::Vdbench => "vdbench",
            Format::Csv => "csv",
            Format::Hdr => "hdr",
        }
    }
}

/// A document with what it is called in the report, such as the name of its file.
#[derive(Debug, Clone)]
pub struct Source {
    /// What it is called; unlike the others of the report.
    pub name: String,
    /// What it holds.
    pub document: Document,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// No document, or none with a run.
    #[error("there is nothing to report: no result holds a run")]
    Nothing,
    /// A histogram of a document is none.
    #[error("{run}: {error}; the document was changed, or is not Weir's")]
    Histogram {
        /// The run that it belongs to.
        run: String,
        /// What is wrong with it.
        error: LatencyError,
    },
    /// A document does not say when it was measured, and what is written needs to.
    #[error(
        "{source_name} says that it was measured at '{started}', which is no time as RFC 3339 writes it (2026-01-31T12:00:00Z)"
    )]
    Started {
        /// The document.
        source_name: String,
        /// What it says.
        started: String,
    },
    /// It could not be written.
    #[error("the report could not be written: {0}")]
    Io(#[from] io::Error),
}

/// Writes the report of drives that were qualified, as one HTML file.
///
/// # Errors
/// [`ReportError::Io`].
pub fn write_drives(
    document: &weir_drive::Document,
    sink: &mut dyn io::Write,
) -> Result<(), ReportError> {
    Ok(html::write_drives(document, sink)?)
}

/// Writes the report of one or several documents together.
///
/// # Errors
/// [`ReportError`].
pub fn write(
    format: Format,
    sources: &[Source],
    sink: &mut dyn io::Write,
) -> Result<(), ReportError> {
    if sources
        .iter()
        .all(|source| source.document.runs().is_empty())
    {
        return Err(ReportError::Nothing);
    }
    match format {
        Format::Html => html::write(sources, sink),
        Format::Fio => export::fio::write(sources, sink),
        Format::Vdbench => export::vdbench::write(sources, sink),
        Format::Csv => export::csv::write(sources, sink),
        Format::Hdr => export::hdr::write(sources, sink),
    }
}
