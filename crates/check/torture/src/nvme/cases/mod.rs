//! The cases, by the groups of `docs/torture.md`, each file with a table of its own.

use super::Context;

/// A case of this suite.
pub type Case = crate::case::Case<Context>;

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

/// Names of the groups, from 1 on.
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
