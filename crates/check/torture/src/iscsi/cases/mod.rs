//! The cases, by the groups of `docs/torture.md`, each file with a table of its own.

use super::Context;

/// A case of this suite.
pub type Case = crate::case::Case<Context>;

mod commands;
mod data;
mod discovery;
mod endings;
mod login;
mod management;
mod numbers;
mod requests;

/// Every file's table.
const TABLES: &[&[Case]] = &[
    login::CASES,
    requests::CASES,
    numbers::CASES,
    data::CASES,
    commands::CASES,
    management::CASES,
    endings::CASES,
    discovery::CASES,
];

/// Every case, by group.
pub fn all() -> Vec<&'static Case> {
    let mut cases: Vec<_> = TABLES.iter().flat_map(|table| table.iter()).collect();
    cases.sort_by_key(|case| case.group);
    cases
}

/// Names of the groups, from 1 on.
pub const GROUPS: [&str; 11] = [
    "Login Requests",
    "the text of a login",
    "PDUs at the wrong time or of no kind",
    "PDU lengths and digests",
    "CmdSN, and task tags",
    "data that was not asked for",
    "transfer lengths and residuals",
    "commands",
    "task management",
    "connections and sessions that end",
    "discovery and text requests",
];
