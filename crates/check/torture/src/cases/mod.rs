//! The cases, by the groups of `docs/torture.md`, each file with a table of its own.

use std::fmt;

use crate::case::{Failure, Needs};
use crate::context::Context;

/// The work of a case.
#[derive(Clone, Copy)]
pub enum Run {
    /// This.
    Now(fn(&mut Context) -> Result<(), Failure>),
    /// Nothing: it cannot apply to any target yet, for this reason. Never counted as passed.
    NotApplicable(&'static str),
}

/// One input or race, and what answers it.
#[derive(Clone, Copy)]
pub struct Case {
    /// The group of inputs that it belongs to, 1 to 30.
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
    pub run: Run,
}

impl fmt::Debug for Case {
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
        pub(super) const CASES: &[$crate::cases::Case] = &[$(
            $crate::cases::Case {
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
    (@run $name:ident) => { $crate::cases::Run::Now($name) };
    (@run $name:ident $why:literal) => { $crate::cases::Run::NotApplicable($why) };
}

mod abort;
mod admin;
mod authentication;
mod connect;
mod deliveries;
mod digests;
mod discovery;
mod endings;
mod events;
mod fused;
mod guests;
mod handshake;
mod hosts;
mod io;
mod lengths;
mod properties;
mod proxy;
mod queue_depth;
mod reconfiguration;
mod reservations;
mod sgl;
mod terminations;
mod transfers;
mod turmoil;

/// Every file's table.
const TABLES: &[&[Case]] = &[
    handshake::CASES,
    deliveries::CASES,
    lengths::CASES,
    digests::CASES,
    terminations::CASES,
    endings::CASES,
    transfers::CASES,
    sgl::CASES,
    queue_depth::CASES,
    connect::CASES,
    discovery::CASES,
    authentication::CASES,
    properties::CASES,
    events::CASES,
    admin::CASES,
    io::CASES,
    fused::CASES,
    reservations::CASES,
    abort::CASES,
    reconfiguration::CASES,
    turmoil::CASES,
];

/// Every case, by group.
pub fn all() -> Vec<&'static Case> {
    let mut cases: Vec<_> = TABLES.iter().flat_map(|table| table.iter()).collect();
    cases.sort_by_key(|case| case.group);
    cases
}

/// What the groups are, from 1 on.
pub const GROUPS: [&str; 30] = [
    "ICReq fields",
    "the first PDU, and a second ICReq",
    "bytes in pieces, and silence",
    "ICReq racing close",
    "data alignment and offset",
    "PDU lengths and digest flags",
    "digests",
    "termination requests",
    "connections that break off, and other protocols",
    "data that was not asked for",
    "data offsets and lengths",
    "abort while data is awaited",
    "in-capsule data",
    "SGL descriptors and transfer sizes",
    "more commands than the queue holds",
    "Connect",
    "Connect races",
    "the Discovery log",
    "authentication",
    "properties",
    "keep alive",
    "asynchronous events",
    "Identify",
    "Number of Queues",
    "ranges of logical blocks",
    "fused commands",
    "reservations",
    "Abort, and command identifiers",
    "stale writes",
    "changes under I/O",
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_every_row_says_what_it_is() {
        let mut names = BTreeSet::new();
        for case in all() {
            assert!(names.insert(case.name), "{} is there twice", case.name);
            assert!((1..=GROUPS.len()).contains(&usize::from(case.group)));
            assert!(!case.summary.is_empty() && !case.expected.is_empty());
            let applies = matches!(case.run, Run::Now(_));
            assert_eq!(
                applies,
                !case.specification.is_empty(),
                "{}: what applies cites its section",
                case.name
            );
        }
    }
}
