//! How the space of a drive is divided: units that are mapped, and superblocks of so many units that are erased together.

use crate::profile::Profile;

/// Units are as large as it takes for a drive to have no more of them: the map of any drive stays within a few MiB.
const UNITS_MAX: u64 = 1 << 20;
/// The smallest unit, in bytes.
const UNIT_BYTES_MIN: u64 = 4096;
/// The fewest units of a superblock.
const SUPERBLOCK_UNITS_MIN: u64 = 8;
/// The fewest superblocks that a capacity fills, so that one of them is a small part of a drive.
const SUPERBLOCKS_MIN: u64 = 64;
/// The fewest spare superblocks: those being filled, and those that garbage collection keeps free.
pub(crate) const SPARE_SUPERBLOCKS_MIN: u64 = 12;

/// The division of one drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes of a unit: a power of two.
    pub(crate) unit_bytes: u64,
    /// Units that hosts can write.
    pub(crate) units: u64,
    /// Units of a superblock.
    pub(crate) superblock_units: u64,
    /// Superblocks, spare ones included.
    pub(crate) superblocks: u64,
    /// Units of the cache that are always there.
    pub(crate) static_units: u64,
    /// Units of the cache that are made of free superblocks, at most.
    pub(crate) dynamic_units: u64,
}

impl Layout {
    pub(crate) fn of(profile: &Profile) -> Self {
        let capacity = profile.capacity_bytes;
        let unit_bytes = capacity
            .div_ceil(UNITS_MAX)
            .next_power_of_two()
            .max(UNIT_BYTES_MIN);
        let units = capacity.div_ceil(unit_bytes);
        let most = (units / SUPERBLOCKS_MIN).max(SUPERBLOCK_UNITS_MIN);
        let superblock_units =
            (profile.superblock_bytes / unit_bytes).clamp(SUPERBLOCK_UNITS_MIN, most);
        let wanted = (units as f64 * (1.0 + profile.spare) / superblock_units as f64) as u64;
        let least = units.div_ceil(superblock_units) + SPARE_SUPERBLOCKS_MIN;
        let cache = |bytes: Option<u64>| bytes.unwrap_or(0) / unit_bytes;
        Layout {
            unit_bytes,
            units,
            superblock_units,
            superblocks: wanted.max(least),
            static_units: cache(profile.cache.map(|cache| cache.static_bytes)),
            dynamic_units: cache(profile.cache.map(|cache| cache.dynamic_bytes)),
        }
    }

    /// Units of all superblocks.
    pub(crate) fn physical_units(&self) -> u64 {
        self.superblocks * self.superblock_units
    }

    /// Units beyond those that hosts can write.
    pub(crate) fn spare_units(&self) -> u64 {
        self.physical_units() - self.units
    }
}
