//! No write over a path that was replaced: once the gateway knows that a host's path was lost, and a later request of the host over its
//! other path to the same blocks was acknowledged, no volume is at work on these for the lost path.
//!
//! An execution is of a connection that was there when it began. Where all connections of its path that began before it had ended at the
//! gateway, its path was lost; what the initiator repeats over the path's next connection begins after that one.

use std::time::Duration;

use weir_block::OperationKind;

use super::{Check, Violation};
use crate::journal::{Execution, History, Op, Order};

pub(crate) fn check(history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for (number, execution) in &history.executions {
        let Some(op) = execution.of.and_then(|of| history.ops.get(of as usize - 1)) else {
            continue;
        };
        let Some(lost) = lost_at(history, op, execution) else {
            continue;
        };
        let over = execution.over.unwrap_or(Order::MAX);
        let replaces = |(before, other): &(usize, &Op)| {
            let ended = other.ended.map_or(Order::MAX, |ended| ended.order);
            is_over_another_path(op, other)
                && overlaps(execution, other)
                && other.succeeded()
                && ended < over
                && history.time(other.asked) > lost
                && did_something(history, before + 1, other)
        };
        if let Some((_, later)) = history.ops.iter().enumerate().find(replaces) {
            let message = format!(
                "{op} lost its path at {:.6}, {later} was acknowledged, and execution {number} went on: {execution:?}",
                lost.as_secs_f64()
            );
            found.push(Violation::new(Check::ReplacedPath, message));
        }
    }
    found
}

/// When the gateway knew that the path of an execution was lost; none where it did not.
fn lost_at(history: &History, op: &Op, execution: &Execution) -> Option<Duration> {
    let began = history.time(execution.began);
    let mut lost = None;
    for connection in &history.connections {
        let is_its = connection.host == op.ask.host
            && connection.path == op.ask.path
            && connection.namespace == op.ask.namespace
            && connection.from <= began;
        if is_its {
            lost = lost.max(Some(connection.until?));
        }
    }
    lost
}

/// Whether a command did anything. A Deallocate is a hint: one that fills no block of the medium has no effect, and waits for none.
fn did_something(history: &History, number: usize, op: &Op) -> bool {
    let is_its = |execution: &Execution| execution.of.is_some_and(|of| of as usize == number);
    op.ask.kind != OperationKind::Deallocate || history.executions.values().any(is_its)
}

fn is_over_another_path(op: &Op, other: &Op) -> bool {
    other.ask.host == op.ask.host
        && other.ask.life == op.ask.life
        && other.ask.namespace == op.ask.namespace
        && other.ask.path != op.ask.path
}

fn overlaps(execution: &Execution, op: &Op) -> bool {
    let (start, end) = (execution.lba, execution.lba + execution.blocks);
    op.ask.lba < end && start < op.ask.lba + op.ask.blocks
}
