//! Kernel features beyond Linux 6.1: each is used where a probe finds it, and can be forced off.

use std::fmt;
use std::io;
use std::str::FromStr;

use io_uring::IoUring;

use crate::linux::ring;

/// A feature of the kernel beyond Linux 6.1 that the driver uses where it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// IORING_SETUP_NO_SQARRAY, Linux 6.6: submissions without an index array, a cache line less per submission.
    NoSubmissionArray,
    /// IORING_ENTER_ABS_TIMER, Linux 6.12: deadlines go to the kernel as they are, without another look at the clock.
    AbsoluteTimeout,
    /// BLOCK_URING_CMD_DISCARD, Linux 6.12: block devices discard without blocking a worker thread.
    BlockDiscard,
    /// IORING_ENTER_NO_IOWAIT, Linux 6.15: a sleeping reactor is not shown as waiting for I/O.
    NoIowait,
}

impl Feature {
    /// All of them.
    pub const ALL: [Feature; 4] = [
        Feature::NoSubmissionArray,
        Feature::AbsoluteTimeout,
        Feature::BlockDiscard,
        Feature::NoIowait,
    ];

    /// Its name in configurations and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Feature::NoSubmissionArray => "no-submission-array",
            Feature::AbsoluteTimeout => "absolute-timeout",
            Feature::BlockDiscard => "block-discard",
            Feature::NoIowait => "no-iowait",
        }
    }

    /// The first Linux that has it: major and minor version.
    #[must_use]
    pub const fn since(self) -> (u32, u32) {
        match self {
            Feature::NoSubmissionArray => (6, 6),
            Feature::AbsoluteTimeout | Feature::BlockDiscard => (6, 12),
            Feature::NoIowait => (6, 15),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that no [`Feature`] has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no kernel feature is named {name:?}; there are {}", names())]
pub struct UnknownFeature {
    /// The name.
    pub name: String,
}

fn names() -> String {
    Feature::ALL.map(Feature::name).join(", ")
}

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(name: &str) -> Result<Self, UnknownFeature> {
        Feature::ALL
            .into_iter()
            .find(|feature| feature.name() == name)
            .ok_or_else(|| UnknownFeature {
                name: name.to_owned(),
            })
    }
}

/// What a probe made of a [`Feature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeatureState {
    /// It is there and used.
    Used,
    /// The kernel does not have it.
    Absent,
    /// The configuration forbids it; it was not probed.
    ForcedOff,
}

/// The state of every [`Feature`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    states: [FeatureState; Feature::ALL.len()],
}

impl Features {
    /// Probes every feature that is not in `forced_off`. `has_block_discard`: whether the kernel's own list of operations
    /// and its version promise it, for it cannot be tried without a device.
    pub(super) fn probe(forced_off: &[Feature], has_block_discard: bool) -> Self {
        let state = |feature: Feature| {
            let there = || match feature {
                Feature::NoSubmissionArray => has_no_submission_array(),
                Feature::AbsoluteTimeout => accepts_enter_flag(ring::ENTER_ABS_TIMER),
                Feature::NoIowait => accepts_enter_flag(ring::ENTER_NO_IOWAIT),
                Feature::BlockDiscard => has_block_discard,
            };
            if forced_off.contains(&feature) {
                FeatureState::ForcedOff
            } else if there() {
                FeatureState::Used
            } else {
                FeatureState::Absent
            }
        };
        Features {
            states: Feature::ALL.map(state),
        }
    }

    /// What the probe made of `feature`.
    #[must_use]
    pub fn state(&self, feature: Feature) -> FeatureState {
        let index = Feature::ALL.iter().position(|&known| known == feature);
        self.states[index.expect("every feature is in ALL")]
    }

    /// Whether `feature` is used.
    #[must_use]
    pub fn uses(&self, feature: Feature) -> bool {
        self.state(feature) == FeatureState::Used
    }

    /// Every feature with its state.
    pub fn iter(&self) -> impl Iterator<Item = (Feature, FeatureState)> {
        Feature::ALL.into_iter().zip(self.states)
    }
}

/// Entries of a ring that is only made to see whether it can be.
const PROBE_ENTRIES: u32 = 4;

fn has_no_submission_array() -> bool {
    ring::builder(PROBE_ENTRIES)
        .setup_no_sqarray()
        .build(PROBE_ENTRIES)
        .is_ok()
}

/// Whether io_uring_enter knows `flag`: the kernel refuses flags that it does not know before it does anything.
fn accepts_enter_flag(flag: u32) -> bool {
    let Ok(uring) = IoUring::new(PROBE_ENTRIES) else {
        return false;
    };
    // SAFETY: nothing is submitted or waited for, and there is no argument.
    let entered: io::Result<usize> =
        unsafe { uring.submitter().enter::<libc::sigset_t>(0, 0, flag, None) };
    entered.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_and_unknown_ones_told() {
        for feature in Feature::ALL {
            assert_eq!(feature.name().parse(), Ok(feature));
        }
        let error = "no-such".parse::<Feature>().expect_err("unknown");
        let told = error.to_string();
        assert!(told.contains("no-such"), "{told}");
        for feature in Feature::ALL {
            assert!(told.contains(feature.name()), "{told}");
        }
    }

    #[test]
    fn what_is_forced_off_is_not_used() {
        let features = Features::probe(&[Feature::BlockDiscard, Feature::NoIowait], true);
        assert_eq!(
            features.state(Feature::BlockDiscard),
            FeatureState::ForcedOff
        );
        assert_eq!(features.state(Feature::NoIowait), FeatureState::ForcedOff);
        assert!(!features.uses(Feature::NoIowait));
        let all_off = Features::probe(&Feature::ALL, true);
        assert!(
            all_off
                .iter()
                .all(|(_, state)| state == FeatureState::ForcedOff)
        );
    }

    #[test]
    fn the_running_kernel_has_what_its_version_promises() {
        let release = rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned();
        let running = crate::linux::unavailable::version(&release).expect("a version");
        let features = Features::probe(&[], running >= Feature::BlockDiscard.since());
        for (feature, state) in features.iter() {
            if running >= feature.since() {
                assert_eq!(state, FeatureState::Used, "{feature} on {release}");
            }
        }
    }
}
