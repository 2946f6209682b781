//! `weir report`: stored results as one HTML page, or as what other tools read; and the same for a result that was just measured.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use weir_lab::document::Document;
use weir_report::{Format, Source};

/// Draw stored results together, or write them for other tools
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArguments {
    /// Results, as `weir bench`, `weir curve` and `weir compare` store them with --output
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// Where to write the report [default: standard output]
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// What to write: html, fio (its JSON), vdbench (its flat file), csv, hdr (HdrHistogram's log) [default: what the ending of
    /// --output names, else html]
    #[arg(long, short = 'f', value_name = "FORMAT", value_parser = format)]
    format: Option<Format>,
}

/// Where a tool that measures leaves its result.
#[derive(Debug, Default, Clone, clap::Args)]
pub(crate) struct ResultArguments {
    /// Store the whole result, with every run and its histograms, in this file; weir report draws it
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a report: HTML, or CSV, HdrHistogram's log, fio's JSON or vdbench's flat file where FILE ends in .csv, .hlog, .fio.json or
    /// .flatfile; may be given several times
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
}

impl ResultArguments {
    /// Whether a result is wanted at all.
    pub(crate) fn is_wanted(&self) -> bool {
        self.output.is_some() || !self.report.is_empty()
    }

    /// Fails where a file cannot be written, before hours are measured for it. Makes those that are not there.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for file in self.output.iter().chain(&self.report) {
            let opened = File::options().append(true).create(true).open(file);
            opened.with_context(|| format!("{} cannot be written", file.display()))?;
        }
        Ok(())
    }

    /// Writes what was asked for.
    pub(crate) fn write(&self, document: &Document) -> anyhow::Result<()> {
        if let Some(file) = &self.output {
            let mut text = Vec::new();
            document.write(&mut text)?;
            put(file, &text)?;
        }
        for file in &self.report {
            let source = Source {
                name: stem(file),
                document: document.clone(),
            };
            let format = ending(file).unwrap_or(Format::Html);
            let mut text = Vec::new();
            weir_report::write(format, &[source], &mut text)?;
            put(file, &text)?;
        }
        Ok(())
    }
}

pub(crate) fn run(arguments: &ReportArguments, json: bool) -> anyhow::Result<ExitCode> {
    let named = arguments.output.as_deref().and_then(ending);
    let format = match (arguments.format, json) {
        (Some(format), _) => format,
        (None, true) => bail!(
            "--json is no form of a report: the results are JSON already; --format fio writes fio's"
        ),
        (None, false) => named.unwrap_or(Format::Html),
    };
    let sources = read(&arguments.results)?;
    let mut text = Vec::new();
    weir_report::write(format, &sources, &mut text)?;
    match &arguments.output {
        Some(file) => put(file, &text)?,
        None if format == Format::Html && std::io::stdout().is_terminal() => {
            bail!("a page of HTML is not for a terminal: say --output report.html, or --format csv")
        }
        None => match std::io::stdout().write_all(&text) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                return Err(error).context("the report cannot be written");
            }
            _ => (),
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn format(text: &str) -> Result<Format, String> {
    Format::ALL
        .into_iter()
        .find(|format| format.name() == text)
        .ok_or_else(|| {
            let names = Format::ALL.map(Format::name);
            format!(
                "'{text}' is no format; those there are: {}",
                names.join(", ")
            )
        })
}

/// What the ending of a file's name says; none where it says nothing.
fn ending(file: &Path) -> Option<Format> {
    const ENDINGS: [(&str, Format); 6] = [
        (".html", Format::Html),
        (".htm", Format::Html),
        (".csv", Format::Csv),
        (".hlog", Format::Hdr),
        (".fio.json", Format::Fio),
        (".flatfile", Format::Vdbench),
    ];
    let name = file.file_name()?.to_string_lossy();
    let found = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    found.map(|(_, format)| *format)
}

/// The results, each called as its file without the ending, or by its whole path where two would be called the same.
fn read(files: &[PathBuf]) -> anyhow::Result<Vec<Source>> {
    let stems: BTreeSet<_> = files.iter().map(|file| stem(file)).collect();
    files
        .iter()
        .map(|file| {
            let opened = File::open(file).with_context(|| format!("{}", file.display()))?;
            let document = Document::read(BufReader::new(opened))
                .with_context(|| format!("{}", file.display()))?;
            let name = match stems.len() == files.len() {
                true => stem(file),
                false => file.display().to_string(),
            };
            Ok(Source { name, document })
        })
        .collect()
}

fn stem(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    stem.to_string_lossy().into_owned()
}

fn put(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_file_says_what_is_in_it() {
        for (file, expected) in [
            ("a.html", Some(Format::Html)),
            ("a.b.csv", Some(Format::Csv)),
            ("a.fio.json", Some(Format::Fio)),
            ("a.json", None),
            ("results/x.hlog", Some(Format::Hdr)),
            ("x.flatfile", Some(Format::Vdbench)),
            ("csv", None),
        ] {
            assert_eq!(ending(Path::new(file)), expected, "{file}");
        }
    }

    #[test]
    fn a_wrong_format_is_told_with_those_there_are() {
        let error = format("pdf").unwrap_err();
        assert_eq!(
            error,
            "'pdf' is no format; those there are: html, fio, vdbench, csv, hdr"
        );
    }
}
