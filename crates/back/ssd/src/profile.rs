//! Profiles: what is to be known of a drive to model it, and where each figure is from.
//!
//! A profile is a TOML file. `name` and `description` are texts; every other key is a parameter, written as
//! `key = { value = "42GB", source = "published", note = "where it is from" }`. `docs/drives.md` lists the keys.

mod reader;

use std::fmt;

use weir_volume::{Parameters, UrlError};

use reader::Reader;

/// The smallest drive that is modelled: below it there are too few superblocks for garbage collection to mean anything.
pub const CAPACITY_BYTES_MIN: u64 = 16 << 20;
/// The largest.
pub const CAPACITY_BYTES_MAX: u64 = 1 << 50;
/// Capacities are multiples of this.
pub const CAPACITY_BYTES_UNIT: u64 = 4096;

/// Embeds the profiles of these names.
macro_rules! built_in {
    ($($name:literal),*) => {
        /// The names of the profiles that are built in.
        const BUILTIN_NAMES: &[&str] = &[$($name),*];
        /// Their texts.
        const BUILTIN_TEXTS: &[&str] = &[$(include_str!(concat!("../profiles/", $name, ".toml"))),*];
    };
}

built_in!(
    "970-evo-plus-1tb",
    "970-pro-512gb",
    "1725b-1.6tb",
    "optane-480gb",
    "p5510-3.84tb",
    "consumer-tlc",
    "consumer-qlc",
    "enterprise-tlc",
    "optane"
);

/// Why a text is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {what}; {allowed}")]
pub struct ProfileError {
    /// The file, as it was named to [`Profile::parse`].
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// What is allowed there.
    pub allowed: String,
}

/// Why a drive cannot be modelled at another size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "a modelled drive cannot have {bytes} bytes; it may have from 16 MiB to 1 PiB, in multiples of 4 KiB"
)]
pub struct SizeError {
    /// The size that was asked for.
    pub bytes: u64,
}

/// Where a figure is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Somebody published it: the note says who.
    Published,
    /// Chosen so that the model does what somebody published.
    Fitted,
    /// Neither: usual for such drives, or a guess.
    Assumed,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Source::Published => "published",
            Source::Fitted => "fitted",
            Source::Assumed => "assumed",
        })
    }
}

/// One figure of a profile, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Its key.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where it is from.
    pub source: Source,
    /// Whose it is, or why it was chosen. Empty where nothing is said.
    pub note: String,
}

/// What the drive stores in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// Flash: written in pages, erased in blocks.
    Flash,
    /// Written in place, as 3D XPoint is: nothing is erased, collected or folded.
    InPlace,
}

/// What happens to writes when the cache is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// They go past it, and it is emptied when the drive is idle.
    Direct,
    /// They still go through it, and what is oldest in it makes room.
    Folding,
}

/// The cache: blocks that are written with one bit in a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cache {
    /// The part that is always there, in blocks of its own.
    pub static_bytes: u64,
    /// The part that is made of free blocks, while there are as many.
    pub dynamic_bytes: u64,
    /// What goes into it, in bytes a second.
    pub bytes_per_second: f64,
    /// What happens when it is full.
    pub when_full: WhenFull,
    /// How fast it is emptied when nothing else is done, erasing included, in bytes a second.
    pub fold_bytes_per_second: f64,
}

/// Work of the drive's own that comes back after so many bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Background {
    /// From the beginning of one to that of the next, in bytes that hosts write. The first begins `length_bytes` before so many were written.
    pub every_bytes: u64,
    /// How long it takes, in bytes that hosts write.
    pub length_bytes: u64,
    /// What is left for hosts meanwhile, in bytes a second.
    pub bytes_per_second: f64,
}

/// How long an operation takes that waits for nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// At least, in nanoseconds.
    pub minimum_nanoseconds: f64,
    /// The mean of what comes on top, exponentially distributed, in nanoseconds.
    pub jitter_nanoseconds: f64,
}

/// Times in which the drive stands still.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stall {
    /// The mean time of writing between two, in nanoseconds, exponentially distributed.
    pub every_nanoseconds: f64,
    /// The mean of how long one takes, in nanoseconds, exponentially distributed, and never more than [`Stall::LONGEST`] times as long.
    pub mean_nanoseconds: f64,
}

impl Stall {
    /// The longest stall, in means.
    pub const LONGEST: f64 = 8.0;
}

/// How warm the drive gets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heat {
    /// In the end, when it does nothing, in degrees Celsius.
    pub idle_celsius: f64,
    /// How much warmer in the end, when its dies write without a pause.
    pub rise_kelvin: f64,
    /// The time in which the way to the end gets shorter by a factor of e, in nanoseconds.
    pub time_constant_nanoseconds: f64,
    /// What it does against it.
    pub throttle: Option<Throttle>,
}

/// How heat slows the drive down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// From this temperature on, in degrees Celsius.
    pub at_celsius: f64,
    /// Until it is so much cooler.
    pub hysteresis_kelvin: f64,
    /// What hosts can write meanwhile, in bytes a second.
    pub bytes_per_second: f64,
}

/// A drive.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// What hosts can store.
    pub capacity_bytes: u64,
    /// What it stores in.
    pub media: Media,
    /// Flash beyond the capacity, as a share of the capacity.
    pub spare: f64,
    /// Bits that a cell holds where data stays.
    pub bits_per_cell: u32,
    /// What is erased together: a block of every die.
    pub superblock_bytes: u64,
    /// What the link carries in one direction, in bytes a second.
    pub interface_bytes_per_second: f64,
    /// What hosts can write past the cache, in bytes a second.
    pub direct_bytes_per_second: f64,
    /// What all dies together write where data stays, in bytes a second: for hosts, for folding and for garbage collection. Not less
    /// than `direct_bytes_per_second`.
    pub program_bytes_per_second: f64,
    /// How fast blocks are erased when nothing else is done, in bytes a second. `None`: the rates of writing include it.
    pub erase_bytes_per_second: Option<f64>,
    /// What hosts can read, in bytes a second.
    pub read_bytes_per_second: f64,
    /// The cache, where there is one.
    pub cache: Option<Cache>,
    /// How long there must be nothing to do before the drive tidies up, in nanoseconds.
    pub idle_delay_nanoseconds: f64,
    /// Work of its own.
    pub background: Option<Background>,
    /// Standard deviation of the rate of writing from one second to the next, as a share of it.
    pub noise: f64,
    /// Correlation of that with the second before, from 0 to 0.9. No profile has one.
    pub noise_correlation: f64,
    /// The drive reports counters that no standard has: cache, folding, garbage collection. Every profile sets it.
    pub has_own_counters: bool,
    /// Of writes, beyond the time of their data.
    pub write_latency: Latency,
    /// Of reads, beyond the time of their data.
    pub read_latency: Latency,
    /// A read that comes while the dies write waits for up to so long, in nanoseconds.
    pub program_nanoseconds: f64,
    /// Times in which it stands still.
    pub stall: Option<Stall>,
    /// How warm it gets.
    pub heat: Heat,
    /// What its vendor lets hosts write to it in its life (TBW).
    pub rated_write_bytes: u64,
    /// Whether what was written and not flushed may be lost at a power failure.
    pub volatile_cache: bool,
    /// All of the above as it is written in the profile, each with where it is from.
    pub parameters: Vec<Parameter>,
}

/// Noise that can be asked for, in percent.
const NOISE_PERCENT_MAX: u64 = 50;
/// Its correlation from one second to the next, in percent.
const NOISE_CORRELATION_PERCENT_MAX: u64 = 90;

/// Changes to a profile that a URL asks for, except its size: `noise`, `noise_correlation` and `counters`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adjustments {
    noise: Option<f64>,
    noise_correlation: Option<f64>,
    has_own_counters: Option<bool>,
}

impl Adjustments {
    /// As they are told.
    ///
    /// # Errors
    /// [`UrlError`] with what is allowed.
    pub fn of(parameters: &Parameters<'_>) -> Result<Adjustments, UrlError> {
        let share = |name, percent_max| {
            let percent = parameters.number(name, 0..=percent_max)?;
            Ok::<_, UrlError>(percent.map(|percent| percent as f64 / 100.0))
        };
        let counters = [("own", true), ("standard", false)];
        Ok(Adjustments {
            noise: share("noise", NOISE_PERCENT_MAX)?,
            noise_correlation: share("noise_correlation", NOISE_CORRELATION_PERCENT_MAX)?,
            has_own_counters: parameters.choice("counters", &counters)?,
        })
    }

    /// Makes them.
    pub fn apply(self, profile: &mut Profile) {
        profile.noise = self.noise.unwrap_or(profile.noise);
        profile.noise_correlation = self.noise_correlation.unwrap_or(profile.noise_correlation);
        profile.has_own_counters = self.has_own_counters.unwrap_or(profile.has_own_counters);
    }
}

impl Profile {
    /// One that is built in.
    ///
    /// # Panics
    /// When the built-in profile is wrong, which a test rules out.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Profile> {
        let at = BUILTIN_NAMES.iter().position(|known| *known == name)?;
        match Profile::parse(BUILTIN_TEXTS[at], &format!("{name}.toml")) {
            Ok(profile) => Some(profile),
            Err(error) => panic!("a built-in profile is wrong: {error}"),
        }
    }

    /// The names of those that are built in.
    #[must_use]
    pub fn builtins() -> &'static [&'static str] {
        BUILTIN_NAMES
    }

    /// Reads a profile. `file` is what errors call it.
    ///
    /// # Errors
    /// [`ProfileError`] with the line.
    pub fn parse(text: &str, file: &str) -> Result<Profile, ProfileError> {
        let tree = Reader::tree(text, file)?;
        let mut reader = Reader::new(text, file, tree.get_ref());
        let profile = Profile {
            name: reader.text("name")?,
            description: reader.text("description")?,
            capacity_bytes: reader.capacity()?,
            media: reader
                .choice(
                    "media",
                    &[("flash", Media::Flash), ("in-place", Media::InPlace)],
                )?
                .unwrap_or(Media::Flash),
            spare: reader.number("spare", 0.0..=4.0)?.unwrap_or(0.0),
            bits_per_cell: reader.bits("bits_per_cell")?,
            superblock_bytes: reader
                .bytes("superblock", 4096..=1 << 40)?
                .unwrap_or(1 << 30),
            interface_bytes_per_second: reader.needed_rate("interface_rate")?,
            direct_bytes_per_second: reader.needed_rate("direct_rate")?,
            program_bytes_per_second: 0.0,
            erase_bytes_per_second: reader.rate("erase_rate")?,
            read_bytes_per_second: reader.needed_rate("read_rate")?,
            cache: None,
            idle_delay_nanoseconds: reader.time("idle_delay")?.unwrap_or(1e9),
            background: None,
            noise: reader.number("noise", 0.0..=0.5)?.unwrap_or(0.0),
            noise_correlation: 0.0,
            has_own_counters: true,
            write_latency: reader.latency("write_latency", "write_jitter")?,
            read_latency: reader.latency("read_latency", "read_jitter")?,
            program_nanoseconds: reader.time("program_time")?.unwrap_or(0.0),
            stall: None,
            heat: reader.heat()?,
            rated_write_bytes: reader.needed_bytes("rated_writes", 1..=1 << 62)?,
            volatile_cache: reader.flag("volatile_cache")?.unwrap_or(false),
            parameters: Vec::new(),
        };
        let program = reader.rate("program_rate")?;
        let profile = Profile {
            program_bytes_per_second: program.unwrap_or(profile.direct_bytes_per_second),
            cache: reader.cache(program.unwrap_or(profile.direct_bytes_per_second))?,
            background: reader.background()?,
            stall: reader.stall()?,
            ..profile
        };
        reader.no_other_keys()?;
        reader.check(&profile)?;
        Ok(Profile {
            parameters: reader.parameters,
            ..profile
        })
    }

    /// The same drive with another capacity. What is counted in bytes changes with it: the cache, superblocks, the endurance,
    /// the distance between two times of background work. Rates, latencies and temperatures stay as they are, so that all takes
    /// less time by the same factor.
    ///
    /// # Errors
    /// [`SizeError`].
    pub fn scaled(&self, capacity_bytes: u64) -> Result<Profile, SizeError> {
        let fits = (CAPACITY_BYTES_MIN..=CAPACITY_BYTES_MAX).contains(&capacity_bytes)
            && capacity_bytes.is_multiple_of(CAPACITY_BYTES_UNIT);
        if !fits {
            return Err(SizeError {
                bytes: capacity_bytes,
            });
        }
        let scale = |bytes: u64| {
            let scaled =
                u128::from(bytes) * u128::from(capacity_bytes) / u128::from(self.capacity_bytes);
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        Ok(Profile {
            capacity_bytes,
            superblock_bytes: scale(self.superblock_bytes).max(1),
            cache: self.cache.map(|cache| Cache {
                static_bytes: scale(cache.static_bytes),
                dynamic_bytes: scale(cache.dynamic_bytes),
                ..cache
            }),
            background: self.background.map(|background| Background {
                every_bytes: scale(background.every_bytes).max(1),
                length_bytes: scale(background.length_bytes),
                ..background
            }),
            rated_write_bytes: scale(self.rated_write_bytes).max(1),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests;
