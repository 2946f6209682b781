//! Cases: their needs, their work, and reasons for failure.

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

    /// The target without the witness: what is done ends commands of others, who get no answer.
    pub const ALONE: Self = Self(1 << 5);

    const NAMES: [(Self, &str); 6] = [
        (Self::WRITES, "leave to write"),
        (Self::DIGESTS, "digests"),
        (Self::SECOND_LISTENER, "a second listener"),
        (Self::GATEWAY, "a gateway under our control"),
        (
            Self::SHORT_LIMITS,
            "a gateway with short limits under our control",
        ),
        (Self::ALONE, "the target without the witness"),
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

/// The work of a case.
pub enum Run<C> {
    /// This.
    Now(fn(&mut C) -> Result<(), Failure>),
    /// Nothing: it cannot apply to any target yet, for this reason. Never counted as passed.
    NotApplicable(&'static str),
}

/// One input or race, and what answers it.
pub struct Case<C> {
    /// The group of inputs that it belongs to, from 1 on.
    pub group: u8,
    /// Its name, which is that of its function, and no other case's.
    pub name: &'static str,
    /// Describes the input or race.
    pub summary: &'static str,
    /// The answer that the specifications name; all of them where they allow several.
    pub expected: &'static str,
    /// Document and section that name it.
    pub specification: &'static str,
    /// Needs without which it is skipped.
    pub needs: Needs,
    /// The work, or the reason for having none.
    pub run: Run<C>,
}

impl<C> fmt::Debug for Case<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Case({} {})", self.group, self.name)
    }
}

/// Makes a file's table: `group function [needs] "specification": "what is done" => "what answers it";`, where the function's name is
/// the case's. What cannot apply yet has no function: `group name not applicable "why": "what is done" => "what answers it";`.
macro_rules! cases {
    ($(
        $group:literal $name:ident $([$($need:ident),*] $specification:literal)? $(not applicable $why:literal)?
            : $summary:literal => $expected:literal;
    )*) => {
        /// The cases of this file.
        pub(super) const CASES: &[super::Case] = &[$(
            $crate::case::Case {
                group: $group,
                name: stringify!($name),
                summary: $summary,
                expected: $expected,
                specification: cases!(@specification $($specification)?),
                needs: $crate::case::Needs::NOTHING $($(.and($crate::case::Needs::$need))*)?,
                run: cases!(@run $name $($why)?),
            }
        ),*];
    };
    (@specification) => { "" };
    (@specification $specification:literal) => { $specification };
    (@run $name:ident) => { $crate::case::Run::Now($name) };
    (@run $name:ident $why:literal) => { $crate::case::Run::NotApplicable($why) };
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::context::{Context, Protocol};
    use crate::iscsi::Iscsi;
    use crate::nvme::Nvme;

    fn check_tables<P: Protocol>(names: &mut BTreeSet<&'static str>) {
        let cases: Vec<&Case<Context<P>>> = P::cases();
        for case in &cases {
            assert!(names.insert(case.name), "{} is there twice", case.name);
            assert!(!case.summary.is_empty() && !case.expected.is_empty());
            let applies = matches!(case.run, Run::Now(_));
            assert_eq!(
                applies,
                !case.specification.is_empty(),
                "{}: what applies cites its section",
                case.name
            );
        }
        let groups: BTreeSet<_> = cases.iter().map(|case| usize::from(case.group)).collect();
        assert_eq!(groups, (1..=P::GROUPS.len()).collect());
    }

    #[test]
    fn names_are_unique_and_every_row_says_what_it_is() {
        let mut names = BTreeSet::new();
        check_tables::<Nvme>(&mut names);
        check_tables::<Iscsi>(&mut names);
    }
}
