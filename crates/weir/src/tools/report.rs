//! `weir report`: stored results as one HTML page, or as what other tools read; and the same for a result that was just measured.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
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
    /// Fails where a file cannot be written, before hours are measured for it, or would replace another one or one of `inputs`. Changes none.
    pub(crate) fn check(&self, inputs: &[&Path]) -> anyhow::Result<()> {
        let mut others = inputs.to_vec();
        for file in self.output.iter().chain(&self.report) {
            check_place(file, &others)?;
            others.push(file);
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
    if let Some(file) = &arguments.output {
        let results: Vec<&Path> = arguments.results.iter().map(PathBuf::as_path).collect();
        refuse_replacing(file, &results)?;
    }
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

/// Fails where a text cannot be put, or would replace one of `others`. Changes nothing.
pub(super) fn check_place(file: &Path, others: &[&Path]) -> anyhow::Result<()> {
    refuse_replacing(file, others)?;
    try_put(file).with_context(|| format!("{} cannot be written", file.display()))
}

/// Refuses to write where something else is read from or written to.
pub(super) fn refuse_replacing(file: &Path, others: &[&Path]) -> anyhow::Result<()> {
    match others.iter().find(|other| is_same(file, other)) {
        None => Ok(()),
        Some(other) => bail!(
            "{} would replace {}: name another file",
            file.display(),
            other.display()
        ),
    }
}

/// Whether two names are those of one file, by whatever way, or would be.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        // What is written to a device or a pipe replaces nothing.
        (Ok(one), Ok(_)) if !one.is_file() => false,
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (Err(_), Err(_)) => match (place(one), place(other)) {
            (Ok(one), Ok(other)) => one == other,
            _ => one == other,
        },
        _ => false,
    }
}

/// A file with its whole path, whether it is there or not.
fn place(file: &Path) -> io::Result<PathBuf> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let name = file.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    Ok(fs::canonicalize(folder)?.join(name))
}

/// Where a text is put together before it takes its file's place: beside the file that a symbolic link leads to. None where there is no place to take: a
/// device or a pipe.
fn beside(file: &Path) -> io::Result<Option<(PathBuf, PathBuf)>> {
    // What these lead to is open somewhere: it is written to, and not replaced.
    if file.starts_with("/dev") || file.starts_with("/proc") {
        return Ok(None);
    }
    let target = match fs::metadata(file) {
        Ok(metadata) if metadata.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => return Ok(None),
        Ok(_) => fs::canonicalize(file)?,
        Err(_) => place(file)?,
    };
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{}", std::process::id()));
    Ok(Some((target.with_file_name(name), target)))
}

/// Whether a text can be put there.
pub(super) fn try_put(file: &Path) -> io::Result<()> {
    match beside(file)? {
        // Whoever reads a pipe would see its end, were it opened only to be tried.
        None => fs::metadata(file).map(drop),
        Some((beside, target)) => {
            if target.exists() {
                File::options().append(true).open(&target)?;
            }
            File::options().write(true).create_new(true).open(&beside)?;
            fs::remove_file(beside)
        }
    }
}

/// The file has the whole text or what it had before, whatever happens meanwhile.
pub(super) fn put(file: &Path, text: &[u8]) -> anyhow::Result<()> {
    let written = || match beside(file)? {
        None => File::options().append(true).open(file)?.write_all(text),
        Some((beside, target)) => {
            let whole = replace(&beside, &target, text);
            if whole.is_err() {
                // What could not be put in place is of no use there.
                let _ = fs::remove_file(&beside);
            }
            whole
        }
    };
    written().with_context(|| format!("{} cannot be written", file.display()))
}

fn replace(beside: &Path, target: &Path, text: &[u8]) -> io::Result<()> {
    let mut new = File::options().write(true).create_new(true).open(beside)?;
    if let Ok(metadata) = fs::metadata(target) {
        new.set_permissions(metadata.permissions())?;
    }
    new.write_all(text)?;
    new.sync_all()?;
    fs::rename(beside, target)
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
    fn a_file_has_the_whole_text_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.json"), folder.path().join("link"));
        try_put(&file).unwrap();
        assert!(!file.exists(), "trying makes nothing");
        put(&file, b"one, and long").unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        try_put(&link).unwrap();
        put(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        // A text that cannot be put in its place leaves what was there.
        let there = folder.path().join("folder");
        fs::create_dir(&there).unwrap();
        assert!(try_put(&there).is_err() && put(&there, b"x").is_err());
        let taken = beside(&file).unwrap().unwrap().0;
        fs::create_dir(&taken).unwrap();
        assert!(put(&file, b"three").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"two");
        fs::remove_dir(taken).unwrap();
        let names = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(names, 3, "a file, a link and a folder");
        put(Path::new("/dev/null"), b"gone").unwrap();
    }

    #[test]
    fn nothing_replaces_what_is_read_or_written_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a"), folder.path().join("link"));
        let result = |output: &Path, report: &Path| ResultArguments {
            output: Some(output.to_owned()),
            report: vec![report.to_owned()],
        };
        let refused = |arguments: &ResultArguments, inputs: &[&Path]| {
            arguments.check(inputs).unwrap_err().to_string()
        };
        let roundabout = folder.path().join(".").join("a");
        assert!(refused(&result(&file, &roundabout), &[]).contains("would replace"));
        fs::write(&file, "x").unwrap();
        fs::hard_link(&file, &link).unwrap();
        let other = folder.path().join("b");
        assert!(refused(&result(&other, &link), &[&file]).contains("would replace"));
        result(&other, &folder.path().join("c"))
            .check(&[&file])
            .unwrap();
        result(Path::new("/dev/null"), Path::new("/dev/null"))
            .check(&[])
            .unwrap();
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
