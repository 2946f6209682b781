//! Atomicity within the advertised unit: a read that sees a part of such a write sees all of it that it looks at, and so does a
//! compare-and-write.
//!
//! Finds only what is certain: a block beside one of the write that holds what another write left which had ended
//! before this one was asked for.

use weir_block::OperationKind;

use super::{Check, Promise, Violation};
use crate::journal::{History, Op, Value};

pub(crate) fn check(promises: &[Promise], history: &History) -> Vec<Violation> {
    let mut found = Vec::new();
    for reader in &history.ops {
        let Some(seen) = what_it_saw(reader) else {
            continue;
        };
        for (index, &value) in seen.iter().enumerate() {
            if value == 0 || (index > 0 && seen[index - 1] == value) {
                continue;
            }
            let writer = history.op(value);
            if !is_whole(promises, reader, writer) {
                continue;
            }
            if let Some((block, older)) = torn(history, promises, reader, seen, writer) {
                found.push(Violation::new(
                    Check::Atomicity,
                    format!(
                        "{reader} saw a part of {writer}, and at block {block} what #{older} left before that was asked for"
                    ),
                ));
            }
        }
    }
    found
}

/// Blocks as a request surely found them at one moment.
fn what_it_saw(op: &Op) -> Option<&[Value]> {
    match op.ask.kind {
        OperationKind::Read if op.succeeded() => Some(&op.found),
        OperationKind::Compare | OperationKind::CompareWrite if op.succeeded() => {
            Some(&op.ask.expected)
        }
        _ => None,
    }
}

/// Tells whether `reader` must see all of `writer` or nothing: the volume says so of writes of that length; and a compare-and-write
/// excludes all others.
fn is_whole(promises: &[Promise], reader: &Op, writer: &Op) -> bool {
    let same = reader.ask.namespace == writer.ask.namespace;
    let unit = promises[writer.ask.namespace].atomic_blocks;
    let locked = [reader, writer]
        .iter()
        .any(|op| op.ask.kind == OperationKind::CompareWrite);
    same && reader.ask.whole && writer.ask.whole && (writer.ask.blocks <= unit || locked)
}

/// A block within both that surely holds what was there before `writer`.
fn torn(
    history: &History,
    promises: &[Promise],
    reader: &Op,
    seen: &[Value],
    writer: &Op,
) -> Option<(u64, Value)> {
    let start = reader.ask.lba.max(writer.ask.lba);
    let end = (reader.ask.lba + reader.ask.blocks).min(writer.ask.lba + writer.ask.blocks);
    // What failed may have been done in part, and what power took away too.
    if !writer.succeeded() || promises[writer.ask.namespace].used < end {
        return None;
    }
    let power_failed = history.notes.iter().any(|(order, note)| {
        *note == crate::journal::Note::PowerLoss
            && reader.ended.is_some_and(|ended| *order < ended.order)
    });
    if power_failed || was_tried_in_vain(history, writer, reader) {
        return None;
    }
    (start..end).find_map(|block| {
        let value = seen[(block - reader.ask.lba) as usize];
        let is_older = value != 0 && value != writer.id && {
            let other = history.op(value);
            other.until() < writer.asked
        };
        is_older.then_some((block, value))
    })
}

/// Tells whether the volume ended a try of `writer` before `reader` had its answer, and did not say that it was done. Such a try is a command that failed, of
/// which any part may be there, though the next one of the same request is done.
fn was_tried_in_vain(history: &History, writer: &Op, reader: &Op) -> bool {
    history.executions.values().any(|execution| {
        execution.of == Some(writer.id)
            && !execution.done
            && execution.over.is_some_and(|over| over < reader.until())
    })
}
