//! One HTML file that needs nothing else: no other file, no network, and to be read no script either.
//!
//! Style and script stand in it, drawings are SVG made here, and each has a table beside it for those who do not see it. The
//! script adds words under the pointer, series that can be switched off, and the other of light and dark.

mod agents;
mod compared;
mod curves;
mod details;
pub mod drawing;
mod drives;
mod over_time;
mod page;
mod plot;
mod scale;
mod subject;
mod tables;

use std::io;

use weir_drive::Document;

use crate::{ReportError, Source};

pub(crate) fn write(sources: &[Source], sink: &mut dyn io::Write) -> Result<(), ReportError> {
    let page = page::page(sources)?;
    Ok(sink.write_all(page.into_string().as_bytes())?)
}

pub(crate) fn write_drives(document: &Document, sink: &mut dyn io::Write) -> io::Result<()> {
    sink.write_all(drives::page(document).into_string().as_bytes())
}
