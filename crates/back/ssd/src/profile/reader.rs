//! Reads a profile's keys, and names the line of what is wrong in them.

use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};
use weir_block::text::line_of;

use super::{
    Background, CAPACITY_BYTES_MAX, CAPACITY_BYTES_MIN, CAPACITY_BYTES_UNIT, Cache, Heat, Latency,
    Media, Parameter, Profile, ProfileError, Source, Stall, Throttle, WhenFull,
};
use crate::value;

/// What a parameter looks like.
const SHAPE: &str = "a parameter is written as key = { value = ..., source = \"published\", \"fitted\" or \"assumed\", note = \"where from\" }";
/// Rates from one byte a second to what no link carries.
const RATES: RangeInclusive<f64> = 1.0..=1e13;
/// A day, in nanoseconds: longer than any time that a drive takes over something.
const TIME_MAX: f64 = 86_400e9;
/// Stalls are no more frequent than this, in nanoseconds, so that one write meets a few at most.
const STALL_EVERY_MIN: f64 = 1e6;
/// Times of background work come back at most so often while the drive is filled, so that each is a phase of its own.
const BACKGROUND_TIMES_MAX: u64 = 100;
/// Degrees that a drive can have, in Celsius.
const CELSIUS: RangeInclusive<f64> = -60.0..=200.0;

/// The keys of one profile. Those that were read are remembered.
pub(super) struct Reader<'a> {
    text: &'a str,
    file: &'a str,
    table: &'a DeTable<'a>,
    known: Vec<&'static str>,
    pub(super) parameters: Vec<Parameter>,
}

struct Value<'a> {
    value: &'a DeValue<'a>,
    line: usize,
}

impl<'a> Reader<'a> {
    /// The text as TOML.
    pub(super) fn tree(text: &'a str, file: &str) -> Result<Spanned<DeTable<'a>>, ProfileError> {
        DeTable::parse(text).map_err(|error| ProfileError {
            file: file.to_owned(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            what: format!("this is not TOML: {}", error.message()),
            allowed: SHAPE.to_owned(),
        })
    }

    pub(super) fn new(text: &'a str, file: &'a str, table: &'a DeTable<'a>) -> Self {
        Reader {
            text,
            file,
            table,
            known: Vec::new(),
            parameters: Vec::new(),
        }
    }

    fn error(
        &self,
        line: usize,
        what: impl Into<String>,
        allowed: impl Into<String>,
    ) -> ProfileError {
        ProfileError {
            file: self.file.to_owned(),
            line,
            what: what.into(),
            allowed: allowed.into(),
        }
    }

    fn find(table: &'a DeTable<'a>, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        let found = table.iter().find(|(name, _)| name.get_ref() == key);
        found.map(|(_, value)| value)
    }

    fn line(&self, value: &Spanned<DeValue<'_>>) -> usize {
        line_of(self.text, value.span().start)
    }

    /// The line of a key, or the last one where it is missing.
    fn line_of_key(&self, key: &str) -> usize {
        match Self::find(self.table, key) {
            Some(value) => self.line(value),
            None => self.text.lines().count().max(1),
        }
    }

    fn missing(&self, key: &str, allowed: &str) -> ProfileError {
        let what = format!("{key} is missing");
        self.error(self.line_of_key(key), what, allowed)
    }

    /// A text that is no parameter.
    pub(super) fn text(&mut self, key: &'static str) -> Result<String, ProfileError> {
        self.known.push(key);
        let allowed = "it is a text in quotes, and not empty";
        let value = Self::find(self.table, key).ok_or_else(|| self.missing(key, allowed))?;
        match value.get_ref().as_str() {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            _ => Err(self.error(self.line(value), format!("{key} is no such text"), allowed)),
        }
    }

    /// A parameter's value; what is said of it is kept.
    fn value(&mut self, key: &'static str) -> Result<Option<Value<'a>>, ProfileError> {
        self.known.push(key);
        let Some(found) = Self::find(self.table, key) else {
            return Ok(None);
        };
        let line = self.line(found);
        let Some(table) = found.get_ref().as_table() else {
            return Err(self.error(line, format!("{key} is a bare value"), SHAPE));
        };
        let other = |name: &&Spanned<DeString<'_>>| {
            !["value", "source", "note"].contains(&name.get_ref().as_ref())
        };
        if let Some(other) = table.keys().find(other) {
            let line = line_of(self.text, other.span().start);
            return Err(self.error(line, format!("{key} has '{}'", other.get_ref()), SHAPE));
        }
        let value = Self::find(table, "value");
        let value = value
            .ok_or_else(|| self.error(line, format!("{key} has no value"), SHAPE))?
            .get_ref();
        let text_of = |name| Self::find(table, name).map(|value| value.get_ref().as_str());
        let source = match text_of("source") {
            Some(Some("published")) => Source::Published,
            Some(Some("fitted")) => Source::Fitted,
            Some(Some("assumed")) => Source::Assumed,
            _ => {
                let what = format!("{key} does not say where it is from");
                return Err(self.error(line, what, SHAPE));
            }
        };
        let note = match text_of("note") {
            None => String::new(),
            Some(Some(note)) => note.to_owned(),
            Some(None) => {
                return Err(self.error(line, format!("the note of {key} is no text"), SHAPE));
            }
        };
        if source != Source::Assumed && note.is_empty() {
            let what = format!("{key} is {source}, and does not say by whom or to what");
            return Err(self.error(line, what, "say it in note = \"...\""));
        }
        self.parameters.push(Parameter {
            name: key,
            value: shown(value),
            source,
            note,
        });
        Ok(Some(Value { value, line }))
    }

    /// The error that a key is wrong, or of several that belong together the first that is given.
    fn wrong<T>(&self, keys: &[&str], what: &str, allowed: &str) -> Result<T, ProfileError> {
        let mut given = keys.iter().filter(|key| self.has(key));
        let key = given.next().unwrap_or(&keys[0]);
        Err(self.error(self.line_of_key(key), what, allowed))
    }

    fn has(&self, key: &str) -> bool {
        Self::find(self.table, key).is_some()
    }

    /// Makes something of a parameter's value.
    fn made<T>(
        &mut self,
        key: &'static str,
        allowed: impl Into<String>,
        make: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Result<Option<T>, ProfileError> {
        let Some(Value { value, line }) = self.value(key)? else {
            return Ok(None);
        };
        let what = || format!("{key} is {}", shown(value));
        let made = make(value).ok_or_else(|| self.error(line, what(), allowed));
        made.map(Some)
    }

    /// A number that a parser makes of a text.
    fn parsed(
        &mut self,
        key: &'static str,
        parse: fn(&str) -> Option<f64>,
        range: RangeInclusive<f64>,
        allowed: &str,
    ) -> Result<Option<f64>, ProfileError> {
        self.made(key, allowed, |value| {
            let number = value.as_str().and_then(parse);
            number.filter(|number| range.contains(number))
        })
    }

    pub(super) fn bytes(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, ProfileError> {
        let (least, most) = range.into_inner();
        let allowed = format!(
            "it is a text with a unit, such as \"42GB\" or \"16MiB\", from {least} to {most} bytes"
        );
        let range = least as f64..=most as f64;
        let bytes = self.parsed(key, value::bytes, range, &allowed)?;
        Ok(bytes.map(|bytes| bytes as u64))
    }

    pub(super) fn needed_bytes(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<u64, ProfileError> {
        let allowed = "every profile has it, as a text such as \"42GB\"";
        self.bytes(key, range)?
            .ok_or_else(|| self.missing(key, allowed))
    }

    pub(super) fn capacity(&mut self) -> Result<u64, ProfileError> {
        const KEY: &str = "capacity";
        let bytes = self.needed_bytes(KEY, CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX)?;
        if bytes.is_multiple_of(CAPACITY_BYTES_UNIT) {
            return Ok(bytes);
        }
        let what = format!("capacity is {bytes} bytes");
        self.wrong(&[KEY], &what, "it is a multiple of 4096 bytes")
    }

    pub(super) fn rate(&mut self, key: &'static str) -> Result<Option<f64>, ProfileError> {
        self.parsed(
            key,
            value::rate,
            RATES,
            "it is a text such as \"1.6GB/s\", from 1B/s to 10TB/s",
        )
    }

    pub(super) fn needed_rate(&mut self, key: &'static str) -> Result<f64, ProfileError> {
        let allowed = "every profile has it, as a text such as \"1.6GB/s\"";
        self.rate(key)?.ok_or_else(|| self.missing(key, allowed))
    }

    /// In nanoseconds.
    pub(super) fn time(&mut self, key: &'static str) -> Result<Option<f64>, ProfileError> {
        self.parsed(
            key,
            value::nanoseconds,
            0.0..=TIME_MAX,
            "it is a text with ns, us, ms, s or min, such as \"20us\", up to a day",
        )
    }

    fn needed_time(&mut self, key: &'static str) -> Result<f64, ProfileError> {
        let allowed = "it is needed here, as a text such as \"20us\"";
        self.time(key)?.ok_or_else(|| self.missing(key, allowed))
    }

    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, ProfileError> {
        let allowed = format!("it is a number from {} to {}", range.start(), range.end());
        self.made(key, allowed, |value| {
            number_of(value).filter(|number| range.contains(number))
        })
    }

    fn needed_number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<f64, ProfileError> {
        let allowed = "it is needed here, as a number";
        self.number(key, range)?
            .ok_or_else(|| self.missing(key, allowed))
    }

    pub(super) fn bits(&mut self, key: &'static str) -> Result<u32, ProfileError> {
        let is_whole = |bits: &f64| (1.0..=5.0).contains(bits) && bits.fract() == 0.0;
        let bits = self.made(key, "it is a whole number from 1 to 5", |value| {
            number_of(value).filter(is_whole)
        })?;
        Ok(bits.map_or(1, |bits| bits as u32))
    }

    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, ProfileError> {
        let words = choices.iter().map(|(word, _)| format!("\"{word}\""));
        let allowed = format!("it is {}", words.collect::<Vec<_>>().join(" or "));
        self.made(key, allowed, |value| {
            let found = choices
                .iter()
                .find(|(word, _)| Some(*word) == value.as_str());
            found.map(|(_, choice)| *choice)
        })
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, ProfileError> {
        self.made(key, "it is true or false, without quotes", |value| {
            value.as_bool()
        })
    }

    pub(super) fn latency(
        &mut self,
        minimum: &'static str,
        jitter: &'static str,
    ) -> Result<Latency, ProfileError> {
        Ok(Latency {
            minimum_nanoseconds: self.needed_time(minimum)?,
            jitter_nanoseconds: self.time(jitter)?.unwrap_or(0.0),
        })
    }

    pub(super) fn cache(&mut self, program: f64) -> Result<Option<Cache>, ProfileError> {
        let sizes = 0..=CAPACITY_BYTES_MAX;
        let static_bytes = self.bytes("cache_static", sizes.clone())?.unwrap_or(0);
        let dynamic_bytes = self.bytes("cache_dynamic", sizes)?.unwrap_or(0);
        let rate = self.rate("cache_rate")?;
        let choices = [("direct", WhenFull::Direct), ("folding", WhenFull::Folding)];
        let when_full = self.choice("cache_when_full", &choices)?;
        let fold = self.rate("fold_rate")?;
        if static_bytes == 0 && dynamic_bytes == 0 {
            let useless = ["cache_rate", "cache_when_full", "fold_rate"];
            if let Some(key) = useless.into_iter().find(|key| self.has(key)) {
                let what = format!("{key} is given, and there is no cache");
                let allowed = "give cache_static or cache_dynamic too, or leave it out";
                return self.wrong(&[key], &what, allowed);
            }
            return Ok(None);
        }
        let allowed = "a profile with a cache has it";
        Ok(Some(Cache {
            static_bytes,
            dynamic_bytes,
            bytes_per_second: rate.ok_or_else(|| self.missing("cache_rate", allowed))?,
            when_full: when_full.ok_or_else(|| self.missing("cache_when_full", allowed))?,
            fold_bytes_per_second: fold.unwrap_or(program),
        }))
    }

    pub(super) fn background(&mut self) -> Result<Option<Background>, ProfileError> {
        let sizes = 1..=CAPACITY_BYTES_MAX;
        let every = self.bytes("background_every", sizes.clone())?;
        let length = self.bytes("background_length", sizes)?;
        let rate = self.rate("background_rate")?;
        match (every, length, rate) {
            (None, None, None) => Ok(None),
            (Some(every_bytes), Some(length_bytes), Some(bytes_per_second))
                if length_bytes < every_bytes =>
            {
                Ok(Some(Background {
                    every_bytes,
                    length_bytes,
                    bytes_per_second,
                }))
            }
            _ => self.wrong(
                &["background_every", "background_length", "background_rate"],
                "background work is not described",
                "it has background_every, background_length, which is shorter, and background_rate",
            ),
        }
    }

    pub(super) fn stall(&mut self) -> Result<Option<Stall>, ProfileError> {
        let (every, mean) = (self.time("stall_every")?, self.time("stall_mean")?);
        match (every, mean) {
            (None, None) => Ok(None),
            (Some(every_nanoseconds), Some(mean_nanoseconds))
                if every_nanoseconds >= STALL_EVERY_MIN =>
            {
                Ok(Some(Stall {
                    every_nanoseconds,
                    mean_nanoseconds,
                }))
            }
            _ => self.wrong(
                &["stall_every", "stall_mean"],
                "stalls are not described",
                "they have stall_every, of at least 1ms, and stall_mean",
            ),
        }
    }

    pub(super) fn heat(&mut self) -> Result<Heat, ProfileError> {
        let mut heat = Heat {
            idle_celsius: self.needed_number("idle_celsius", CELSIUS)?,
            rise_kelvin: self.needed_number("rise_kelvin", 0.0..=200.0)?,
            time_constant_nanoseconds: self.needed_time("thermal_time")?,
            throttle: None,
        };
        if heat.time_constant_nanoseconds < 1e6 {
            let what = "thermal_time is too short";
            return self.wrong(&["thermal_time"], what, "it is at least 1ms");
        }
        let at = self.number("throttle_celsius", CELSIUS)?;
        let hysteresis = self.number("throttle_hysteresis_kelvin", 0.1..=100.0)?;
        let rate = self.rate("throttle_rate")?;
        heat.throttle = match (at, hysteresis, rate) {
            (None, None, None) => None,
            (Some(at_celsius), Some(hysteresis_kelvin), Some(bytes_per_second)) => Some(Throttle {
                at_celsius,
                hysteresis_kelvin,
                bytes_per_second,
            }),
            _ => {
                return self.wrong(
                    &["throttle_celsius", "throttle_hysteresis_kelvin", "throttle_rate"],
                    "what heat slows down is not described",
                    "throttle_celsius, throttle_hysteresis_kelvin and throttle_rate are needed together",
                );
            }
        };
        if let Some(throttle) = heat.throttle
            && throttle.at_celsius - throttle.hysteresis_kelvin <= heat.idle_celsius
        {
            let what = format!("throttle_celsius is {}", throttle.at_celsius);
            let allowed = "it is above idle_celsius by more than throttle_hysteresis_kelvin, so that the drive can cool";
            return self.wrong(&["throttle_celsius"], &what, allowed);
        }
        Ok(heat)
    }

    /// Refuses keys that nobody asked for.
    pub(super) fn no_other_keys(&self) -> Result<(), ProfileError> {
        let mut unknown: Vec<_> = self
            .table
            .keys()
            .filter(|key| !self.known.contains(&key.get_ref().as_ref()))
            .collect();
        unknown.sort_by_key(|key| key.span().start);
        let Some(key) = unknown.first() else {
            return Ok(());
        };
        let what = format!("a profile has no key '{}'", key.get_ref());
        let line = line_of(self.text, key.span().start);
        Err(self.error(line, what, format!("it has {}", self.known.join(", "))))
    }

    /// What must hold between several keys.
    pub(super) fn check(&self, profile: &Profile) -> Result<(), ProfileError> {
        if profile.program_bytes_per_second < profile.direct_bytes_per_second {
            let what = "program_rate is less than direct_rate";
            let allowed = "the dies write at least what hosts can";
            return self.wrong(&["program_rate"], what, allowed);
        }
        let in_place = profile.media == Media::InPlace;
        if in_place && (profile.cache.is_some() || profile.erase_bytes_per_second.is_some()) {
            let what = "media that are written in place have neither a cache nor erasing";
            let allowed = "leave out cache_... and erase_rate, or say \"flash\"";
            return self.wrong(&["media"], what, allowed);
        }
        const OF_FLASH: [&str; 5] = [
            "spare",
            "superblock",
            "bits_per_cell",
            "program_rate",
            "idle_delay",
        ];
        let mut ignored = OF_FLASH.into_iter().filter(|key| self.has(key));
        if let Some(key) = ignored.next().filter(|_| in_place) {
            let what = format!("{key} is given, and media that are written in place have none");
            let allowed = "leave it out, or say media is \"flash\"";
            return self.wrong(&[key], &what, allowed);
        }
        let often = |background: &Background| {
            background.every_bytes < profile.capacity_bytes / BACKGROUND_TIMES_MAX
        };
        if profile.background.as_ref().is_some_and(often) {
            let what = "background work comes back too often";
            let allowed = "background_every is at least a hundredth of the capacity";
            return self.wrong(&["background_every"], what, allowed);
        }
        let Some(cache) = profile.cache else {
            return Ok(());
        };
        let bits = f64::from(profile.bits_per_cell);
        if cache.dynamic_bytes > 0 && profile.bits_per_cell < 2 {
            let what = "a dynamic cache is made of cells of several bits";
            return self.wrong(&["bits_per_cell"], what, "it is at least 2 then");
        }
        if cache.dynamic_bytes as f64 * bits > profile.capacity_bytes as f64 {
            let what = "the dynamic cache takes more than the whole drive";
            let allowed = "cache_dynamic is at most capacity / bits_per_cell";
            return self.wrong(&["cache_dynamic"], what, allowed);
        }
        if cache.static_bytes > profile.capacity_bytes / 2 {
            let what = "the static cache is more than half of the drive";
            let allowed = "it is at most half the capacity";
            return self.wrong(&["cache_static"], what, allowed);
        }
        Ok(())
    }
}

fn number_of(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(of) => of.to_string(),
        other => format!("a TOML {}", other.type_str()),
    }
}
