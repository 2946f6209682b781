//! Needs of a case, and reasons for its failure.

use std::fmt;
use std::time::Duration;

/// Needs of a case that its target must meet; without them it is skipped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Needs(u8);

impl Needs {
    /// A target that listens.
    pub const NOTHING: Self = Self(0);
    /// A namespace that may be overwritten.
    pub const WRITES: Self = Self(1 << 0);
    /// Header and data digests.
    pub const DIGESTS: Self = Self(1 << 1);
    /// A second address of the same subsystem.
    pub const SECOND_LISTENER: Self = Self(1 << 2);
    /// A gateway whose configuration may be changed, and whose resources can be looked at.
    pub const GATEWAY: Self = Self(1 << 3);
    /// The short handshake limit of a gateway that was set up for this.
    pub const SHORT_LIMITS: Self = Self(1 << 4);

    const NAMES: [(Self, &str); 5] = [
        (Self::WRITES, "leave to write"),
        (Self::DIGESTS, "digests"),
        (Self::SECOND_LISTENER, "a second listener"),
        (Self::GATEWAY, "a gateway under our control"),
        (
            Self::SHORT_LIMITS,
            "a gateway with short limits under our control",
        ),
    ];

    /// What either needs.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What of this is not among `given`.
    #[must_use]
    pub const fn without(self, given: Self) -> Self {
        Self(self.0 & !given.0)
    }

    /// Whether nothing is needed.
    pub const fn is_nothing(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` is in this.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Needs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (need, name) in Self::NAMES {
            if self.contains(need) {
                write!(formatter, "{separator}{name}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Needs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Needs({self})")
    }
}

/// Why a case did not end as it should.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Another answer than the specification names.
    #[error("{what}: expected {expected}, got {got}")]
    Differs {
        /// What was asked.
        what: String,
        /// What should have come.
        expected: String,
        /// What came.
        got: String,
    },
    /// Nothing came in time.
    #[error("{what}: expected {expected}, but nothing came within {waited:?}")]
    NoAnswer {
        /// What was asked.
        what: String,
        /// What should have come.
        expected: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The well-behaved part of the case could not be done.
    #[error("{what}: {why}")]
    Preparation {
        /// What was to be done.
        what: String,
        /// What went wrong.
        why: String,
    },
    /// The target does not offer what the case needs, as it is configured, so that the case says nothing and counts as skipped.
    #[error("the target does not offer {0}")]
    NotOffered(String),
}

impl Failure {
    /// An answer that is not the one expected.
    pub fn differs(
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl ToString,
    ) -> Self {
        Self::Differs {
            what: what.into(),
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    /// The well-behaved part went wrong.
    pub fn preparation(what: impl Into<String>, why: impl ToString) -> Self {
        Self::Preparation {
            what: what.into(),
            why: why.to_string(),
        }
    }

    /// What came in place of the answer, in a few words.
    pub fn got(&self) -> String {
        match self {
            Self::Differs { got, .. } => got.clone(),
            Self::NoAnswer { waited, .. } => format!("nothing within {waited:?}"),
            Self::Preparation { what, why } => format!("{what}: {why}"),
            Self::NotOffered(what) => format!("{what} is not offered"),
        }
    }
}

/// Fails unless `holds`: what was looked at, what should be, what is.
///
/// # Errors
/// [`Failure::Differs`].
pub fn check(
    holds: bool,
    what: impl Into<String>,
    expected: impl Into<String>,
    got: impl ToString,
) -> Result<(), Failure> {
    if holds {
        Ok(())
    } else {
        Err(Failure::differs(what, expected, got))
    }
}
