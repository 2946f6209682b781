//! Reads the tables of a TOML text, and names the line of what is wrong in them.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};
use weir_block::size;
use weir_block::text::line_of;
use weir_load::workload::WorkloadError;

use super::JobError;

/// A text and the file that it is from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a str,
    pub(super) text: &'a str,
}

/// A text in a table.
pub(super) struct Text {
    pub(super) value: String,
    pub(super) line: usize,
}

/// A table whose keys are all known.
pub(super) struct Table<'a> {
    source: Source<'a>,
    table: &'a DeTable<'a>,
    line: usize,
}

/// A whole number, however it is written: TOML has 10, 0xa, 0o12 and 0b1010.
fn whole(number: &DeInteger<'_>) -> Option<u64> {
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

impl<'a> Source<'a> {
    pub(super) fn parse(&self) -> Result<Spanned<DeTable<'a>>, JobError> {
        DeTable::parse(self.text).map_err(|error| JobError {
            file: self.file.to_owned(),
            line: self.line(error.span().unwrap_or(0..0)),
            wrong: format!("this is not TOML: {}", error.message()),
            allowed: "a job file has [[phase]] and [[phase.job]] tables of key = value lines"
                .to_owned(),
        })
    }

    fn line(&self, span: Range<usize>) -> usize {
        line_of(self.text, span.start)
    }

    fn error(&self, line: usize, wrong: &str, allowed: &str) -> JobError {
        JobError {
            file: self.file.to_owned(),
            line,
            wrong: wrong.to_owned(),
            allowed: allowed.to_owned(),
        }
    }

    /// A table, of which only these keys are known.
    pub(super) fn table(
        &self,
        table: &'a DeTable<'a>,
        span: Range<usize>,
        what: &str,
        known: &[&str],
    ) -> Result<Table<'a>, JobError> {
        let mut unknown: Vec<_> = table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()))
            .collect();
        unknown.sort_by_key(|key| key.span().start);
        if let Some(key) = unknown.first() {
            let wrong = format!("{what} has no key '{}'", key.get_ref());
            let allowed = format!("it has {}", known.join(", "));
            return Err(self.error(self.line(key.span()), &wrong, &allowed));
        }
        Ok(Table {
            source: *self,
            table,
            line: self.line(span),
        })
    }
}

impl<'a> Table<'a> {
    pub(super) fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let found = self.table.iter().find(|(name, _)| name.get_ref() == key);
        found.map(|(_, value)| value)
    }

    /// The line on which it begins.
    pub(super) fn line(&self) -> usize {
        self.line
    }

    /// The line of a key's value, and of the table where it has none.
    pub(super) fn line_of(&self, key: &str) -> usize {
        self.value(key)
            .map_or(self.line, |value| self.source.line(value.span()))
    }

    /// An error of the table as a whole.
    pub(super) fn wrong(&self, wrong: &str, allowed: &str) -> JobError {
        self.source.error(self.line, wrong, allowed)
    }

    /// An error of one of its keys.
    pub(super) fn wrong_key(&self, key: &str, wrong: &str, allowed: &str) -> JobError {
        self.source.error(self.line_of(key), wrong, allowed)
    }

    /// An error that a workload's own words describe: they say what is allowed after a semicolon.
    pub(super) fn wrong_workload(&self, key: &str, error: &WorkloadError) -> JobError {
        let text = error.to_string();
        let (wrong, allowed) = text.split_once("; ").unwrap_or((&text, "change it"));
        self.wrong_key(key, wrong, allowed)
    }

    fn not(&self, key: &str, value: &DeValue<'_>, allowed: &str) -> JobError {
        let found = match value {
            DeValue::String(text) => format!("'{text}'"),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(of) => of.to_string(),
            other => format!("a TOML {}", other.type_str()),
        };
        self.wrong_key(key, &format!("{key} is {found}"), allowed)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<Text>, JobError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.get_ref() {
            DeValue::String(text) => Ok(Some(Text {
                value: text.to_string(),
                line: self.source.line(value.span()),
            })),
            other => Err(self.not(key, other, "a text in quotes is allowed")),
        }
    }

    pub(super) fn integer(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, JobError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let number = match value.get_ref() {
            DeValue::Integer(number) => whole(number),
            _ => None,
        };
        match number.filter(|number| range.contains(number)) {
            Some(number) => Ok(Some(number)),
            None => {
                let (least, most) = range.into_inner();
                let allowed = format!("a whole number from {least} to {most} is allowed");
                Err(self.not(key, value.get_ref(), &allowed))
            }
        }
    }

    pub(super) fn percent(&self, key: &str) -> Result<Option<f64>, JobError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let number = match value.get_ref() {
            DeValue::Integer(number) => whole(number).map(|number| number as f64),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        match number.filter(|number| (0.0..=100.0).contains(number)) {
            Some(number) => Ok(Some(number)),
            None => Err(self.not(key, value.get_ref(), "a number from 0 to 100 is allowed")),
        }
    }

    /// Bytes: a number, or a text with a unit.
    pub(super) fn size(&self, key: &str) -> Result<Option<u64>, JobError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let bytes = match value.get_ref() {
            DeValue::String(text) => size::parse(text).ok(),
            DeValue::Integer(number) => whole(number),
            _ => None,
        };
        match bytes.filter(|&bytes| bytes > 0) {
            Some(bytes) => Ok(Some(bytes)),
            None => Err(self.not(
                key,
                value.get_ref(),
                "a number of bytes is allowed, or a text such as \"16k\" or \"1G\"",
            )),
        }
    }

    /// A time: a number of seconds, or a text with a unit.
    pub(super) fn duration(
        &self,
        key: &str,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, JobError> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
        let time = match value.get_ref() {
            DeValue::String(text) => humantime::parse_duration(text).ok(),
            DeValue::Integer(number) => whole(number).map(Duration::from_secs),
            DeValue::Float(number) => seconds(number.as_str()),
            _ => None,
        };
        match time.filter(|time| range.contains(time)) {
            Some(time) => Ok(Some(time)),
            None => {
                let (least, most) = range.into_inner();
                let allowed = format!(
                    "seconds are allowed, or a text such as \"500ms\" or \"2m\", from {} to {}",
                    humantime::format_duration(least),
                    humantime::format_duration(most)
                );
                Err(self.not(key, value.get_ref(), &allowed))
            }
        }
    }

    /// The tables `[[key]]`, in their order.
    pub(super) fn tables(
        &self,
        key: &str,
        what: &str,
        known: &[&str],
    ) -> Result<Vec<Table<'a>>, JobError> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let DeValue::Array(array) = value.get_ref() else {
            let allowed = format!("tables are allowed: [[{key}]]");
            return Err(self.not(key, value.get_ref(), &allowed));
        };
        let each = array.iter().map(|element| match element.get_ref() {
            DeValue::Table(table) => self.source.table(table, element.span(), what, known),
            other => {
                let allowed = format!("tables are allowed: [[{key}]]");
                Err(self.not(key, other, &allowed))
            }
        });
        each.collect()
    }
}
