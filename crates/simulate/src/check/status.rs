//! Honest statuses: requests end as they may end under what went wrong, and none is left without an end.

use weir_block::{OperationKind, VolumeError};

use super::{Check, Promise, Violation};
use crate::journal::{History, Op};
use crate::plan::{Plan, Trouble};

/// Whether an error says that nothing was done.
pub(crate) fn says_nothing_was_done(error: VolumeError) -> bool {
    match error {
        VolumeError::OutOfRange
        | VolumeError::ReadOnly
        | VolumeError::Miscompare { .. }
        | VolumeError::Unsupported
        | VolumeError::Invalid
        | VolumeError::Lost
        | VolumeError::Cancelled
        | VolumeError::Busy => true,
        VolumeError::NoSpace | VolumeError::Medium | VolumeError::TimedOut => false,
    }
}

pub(crate) fn check(plan: &Plan, promises: &[Promise], history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for op in &history.ops {
        let reason = match op.ended.map(|ended| ended.result) {
            None => continue,
            Some(Ok(())) => why_not_well(promises, op),
            Some(Err(error)) => why_not(plan, promises, op, error),
        };
        if let Some(reason) = reason {
            let result = op.ended.map(|ended| ended.result);
            let message = format!("{op} ended as {result:?}: {reason}");
            found.push(Violation::new(Check::HonestStatus, message));
        }
        if says_so_wrongly(history, op) {
            let message = format!(
                "{op} ended as {:?}, which says that nothing was done, and it was done",
                op.ended.map(|ended| ended.result)
            );
            found.push(Violation::new(Check::HonestStatus, message));
        }
    }
    found
}

/// Whether it ended with an error that says that nothing was done, and a read found its data.
fn says_so_wrongly(history: &History, op: &Op) -> bool {
    let error = op.ended.and_then(|ended| ended.result.err());
    let writes = matches!(
        op.ask.kind,
        OperationKind::Write | OperationKind::CompareWrite
    );
    if !writes || !op.ask.whole || !error.is_some_and(says_nothing_was_done) {
        return false;
    }
    let reads = history
        .ops
        .iter()
        .filter(|other| other.ask.kind == OperationKind::Read);
    reads
        .filter(|other| other.ask.namespace == op.ask.namespace)
        .any(|read| read.found.contains(&op.id))
}

fn why_not_well(promises: &[Promise], op: &Op) -> Option<String> {
    let blocks = promises[op.ask.namespace].blocks_most;
    (op.ask.lba + op.ask.blocks > blocks)
        .then(|| format!("the namespace never had more than {blocks} blocks"))
}

/// Why a request cannot have ended so.
fn why_not(plan: &Plan, promises: &[Promise], op: &Op, error: VolumeError) -> Option<String> {
    let promise = &promises[op.ask.namespace];
    let end = op.ask.lba + op.ask.blocks;
    let compares = !op.ask.expected.is_empty();
    // A fence ends what was asked before it.
    let cut_off = op.cancelled || plan.mix.drops_per_thousand > 0;
    let (may, because) = match error {
        VolumeError::OutOfRange => (
            end > promise.blocks_least,
            "the namespace always had these blocks",
        ),
        VolumeError::ReadOnly => (
            plan.has(Trouble::SetReadOnly),
            "nothing is read-only in this seed",
        ),
        VolumeError::Miscompare { .. } => (compares, "it compares nothing"),
        VolumeError::Unsupported | VolumeError::Invalid => (false, "it is as the geometry allows"),
        VolumeError::NoSpace => (false, "no medium is full"),
        VolumeError::Medium => (
            // A gateway that is lost may lose what was not flushed, and flushes say so.
            plan.has_disk_errors() || op.ask.kind == OperationKind::Flush && !plan.is_calm(),
            "no medium fails in this seed",
        ),
        VolumeError::Lost => (
            plan.has(Trouble::RemoveNamespace) || plan.has(Trouble::RemoveHost),
            "no namespace is taken away in this seed",
        ),
        VolumeError::TimedOut => (
            // What is cancelled, or cut off, when a part of it was done ends so too.
            !plan.is_calm() || cut_off,
            "nothing takes long in this seed",
        ),
        VolumeError::Cancelled => (cut_off, "nobody wished that it end"),
        VolumeError::Busy => (!plan.is_calm(), "nothing fails in this seed"),
    };
    (!may).then(|| because.to_owned())
}
