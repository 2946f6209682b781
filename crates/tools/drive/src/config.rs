//! What is asked for, and what it comes to on a drive.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::document::PassKind;

/// Writes are so long unless something else is asked for: what the white paper takes for drives of PCIe 4.
pub const BLOCK_BYTES: u64 = 256 << 10;
/// Writes in flight unless something else is asked for.
pub const DEPTH: u32 = 32;
/// The most writes that may be in flight.
pub const DEPTH_MAX: u32 = 4096;
/// For how long nothing is asked of a drive before the burst that measures its recovery.
pub const IDLE: Duration = Duration::from_secs(60);
/// Where nothing else is asked for, what lies ahead of the writes is deallocated for this part of what is written.
const TRIM_AHEAD_PART: u64 = 100;
/// What lies ahead is deallocated in so many pieces.
pub(crate) const TRIM_PIECES: u64 = 4;
/// A burst after the recovery is so many times as long as the cache that the fill showed.
const BURST_CACHES: u64 = 2;
/// A burst is at least this part of what is written; it is that where the fill showed no cache.
const BURST_PART: u64 = 20;

/// How drives are qualified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Bytes of each write: a multiple of the drive's block.
    pub block_bytes: u64,
    /// Writes in flight.
    pub depth: u32,
    /// How much of the drive is written, from its beginning; none: all.
    pub size_bytes: Option<u64>,
    /// In the order in which they are made.
    pub passes: Vec<PassKind>,
    /// For how many bytes ahead of the writes a pass with deallocation deallocates; none: a hundredth of what is written.
    pub trim_ahead_bytes: Option<u64>,
    /// For how long nothing is asked of the drive before its recovery is measured.
    pub idle: Duration,
    /// Whether everything is deallocated first.
    pub purge: bool,
    /// What the data that is written comes from.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            block_bytes: BLOCK_BYTES,
            depth: DEPTH,
            size_bytes: None,
            passes: PassKind::ALL.to_vec(),
            trim_ahead_bytes: None,
            idle: IDLE,
            purge: false,
            seed: 1,
        }
    }
}

/// Why drives are not qualified as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The length of writes does not fit.
    #[error(
        "writes of {block_bytes} bytes do not fit {drive}: it takes multiples of {multiple} bytes, at most {max_bytes}"
    )]
    Block {
        /// The drive.
        drive: String,
        /// What was asked for.
        block_bytes: u64,
        /// What it must be a multiple of.
        multiple: u64,
        /// The longest.
        max_bytes: u64,
    },
    /// Less than one write, or more than the drive.
    #[error(
        "{drive} has {capacity_bytes} bytes, and {size_bytes} of them cannot be written in blocks of {block_bytes}: say a --size from one block to the whole drive"
    )]
    Size {
        /// The drive.
        drive: String,
        /// Its length.
        capacity_bytes: u64,
        /// What was asked for.
        size_bytes: u64,
        /// Bytes of a write.
        block_bytes: u64,
    },
    /// No write in flight, or too many.
    #[error("{depth} writes in flight are not from 1 to {DEPTH_MAX}")]
    Depth {
        /// What was asked for.
        depth: u32,
    },
    /// No pass, or one twice.
    #[error("the passes must be at least one, and none of them twice")]
    Passes,
    /// Too little ahead of the writes.
    #[error(
        "deallocating {trim_ahead_bytes} bytes ahead of the writes is less than one block of {block_bytes} bytes"
    )]
    TrimAhead {
        /// What was asked for.
        trim_ahead_bytes: u64,
        /// Bytes of a write.
        block_bytes: u64,
    },
    /// The drive cannot be written.
    #[error("{drive} is read-only")]
    ReadOnly {
        /// The drive.
        drive: String,
    },
    /// The drive cannot deallocate, and a pass or a purge needs it to.
    #[error(
        "{drive} cannot deallocate: leave out --purge, and choose --passes without overwrite-trimmed"
    )]
    NoDeallocate {
        /// The drive.
        drive: String,
    },
}

/// What a drive takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// What it is called.
    pub drive: String,
    /// Its length.
    pub capacity_bytes: u64,
    /// What a write must be a multiple of.
    pub multiple: u64,
    /// The longest write.
    pub block_bytes_max: u64,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Whether it can deallocate.
    pub deallocates: bool,
}

impl Config {
    /// How much of such a drive is written: what was asked for in whole blocks of the drive.
    ///
    /// # Errors
    /// [`ConfigError`]: the first thing that does not fit.
    pub fn check(&self, drive: &Limits) -> Result<u64, ConfigError> {
        let name = || drive.drive.clone();
        if drive.read_only {
            return Err(ConfigError::ReadOnly { drive: name() });
        }
        let block_bytes = self.block_bytes;
        if block_bytes == 0
            || !block_bytes.is_multiple_of(drive.multiple)
            || block_bytes > drive.block_bytes_max
        {
            return Err(ConfigError::Block {
                drive: name(),
                block_bytes,
                multiple: drive.multiple,
                max_bytes: drive.block_bytes_max,
            });
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return Err(ConfigError::Depth { depth: self.depth });
        }
        let asked = self.size_bytes.unwrap_or(drive.capacity_bytes);
        let size_bytes = asked / drive.multiple * drive.multiple;
        if size_bytes < block_bytes || asked > drive.capacity_bytes {
            return Err(ConfigError::Size {
                drive: name(),
                capacity_bytes: drive.capacity_bytes,
                size_bytes: asked,
                block_bytes,
            });
        }
        let twice = (1..self.passes.len()).any(|at| self.passes[..at].contains(&self.passes[at]));
        if twice || self.passes.is_empty() {
            return Err(ConfigError::Passes);
        }
        let trims = self.passes.contains(&PassKind::OverwriteTrimmed);
        if (trims || self.purge) && !drive.deallocates {
            return Err(ConfigError::NoDeallocate { drive: name() });
        }
        if let Some(trim_ahead_bytes) = self.trim_ahead_bytes
            && trim_ahead_bytes < block_bytes
        {
            return Err(ConfigError::TrimAhead {
                trim_ahead_bytes,
                block_bytes,
            });
        }
        Ok(size_bytes)
    }

    /// For how many bytes ahead of the writes is deallocated where so many are written.
    #[must_use]
    pub fn trim_ahead(&self, size_bytes: u64) -> u64 {
        let part = size_bytes / TRIM_AHEAD_PART / self.block_bytes * self.block_bytes;
        let bytes = self.trim_ahead_bytes.unwrap_or(part);
        bytes.max(self.block_bytes).min(size_bytes)
    }

    /// The length of the burst after the recovery.
    pub(crate) fn burst(&self, size_bytes: u64, cache_bytes: Option<u64>) -> u64 {
        let part = size_bytes / BURST_PART;
        let caches = cache_bytes.unwrap_or_default().saturating_mul(BURST_CACHES);
        let blocks = caches.max(part).div_ceil(self.block_bytes).max(1);
        (blocks * self.block_bytes).min(size_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            drive: "file:/a".to_owned(),
            capacity_bytes: 10_000_000,
            multiple: 4096,
            block_bytes_max: 4 << 20,
            read_only: false,
            deallocates: true,
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_way_out() {
        let with = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.check(&limits()).unwrap_err().to_string()
        };
        for (error, part) in [
            (with(|of| of.block_bytes = 1000), "multiples of 4096 bytes"),
            (with(|of| of.block_bytes = 8 << 20), "at most 4194304"),
            (with(|of| of.block_bytes = 0), "multiples of 4096"),
            (with(|of| of.depth = 0), "from 1 to 4096"),
            (with(|of| of.depth = 5000), "5000 writes"),
            (with(|of| of.size_bytes = Some(5)), "--size"),
            (with(|of| of.size_bytes = Some(10_000_001)), "--size"),
            (with(|of| of.passes.clear()), "at least one"),
            (with(|of| of.passes = vec![PassKind::Fill; 2]), "twice"),
            (with(|of| of.trim_ahead_bytes = Some(4096)), "one block"),
        ] {
            assert!(error.contains(part), "{error}");
        }
        let mut drive = limits();
        drive.deallocates = false;
        let refused = Config::default().check(&drive);
        assert!(matches!(refused, Err(ConfigError::NoDeallocate { .. })));
        let fill_only = Config {
            passes: vec![PassKind::Fill],
            ..Config::default()
        };
        assert_eq!(fill_only.check(&drive), Ok(10_000_000 / 4096 * 4096));
        drive.read_only = true;
        let refused = fill_only.check(&drive);
        assert!(matches!(refused, Err(ConfigError::ReadOnly { .. })));
    }

    #[test]
    fn what_lies_ahead_and_the_burst_are_whole_blocks_within_the_drive() {
        let config = Config {
            block_bytes: 1000,
            ..Config::default()
        };
        assert_eq!(config.trim_ahead(1_000_000), 10_000);
        assert_eq!(config.trim_ahead(5_000), 1_000);
        assert_eq!(config.burst(1_000_000, None), 50_000);
        assert_eq!(config.burst(1_000_000, Some(100_500)), 201_000);
        assert_eq!(config.burst(1_000_000, Some(900_000)), 1_000_000);
    }
}
