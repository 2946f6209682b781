//! Honest statuses: requests end as they may end under what went wrong, and none is left without an end.

use std::fmt;
use std::time::Duration;

use weir_block::{OperationKind, VolumeError};
use weir_reactor::sim::FaultKind;

use super::{Check, Promise, Violation};
use crate::journal::{Cause, History, Incident, Op};
use crate::plan::{Plan, Protocol, Trouble};

/// The time after which a host that is connected has surely heard of a change of its namespaces, and has asked what they are.
const NOTICE: Duration = Duration::from_secs(1);
/// Segments that an incident leaves on their way to a host, and that may come one after another.
const SEGMENTS: u32 = 4;
/// Incidents that a report shows.
const SHOWN: usize = 5;

/// Tells whether an error says that nothing was done.
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
            Some(Err(error)) => why_not(plan, promises, history, op, error),
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

/// Tells whether it ended with an error that says that nothing was done, and a read found its data.
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
fn why_not(
    plan: &Plan,
    promises: &[Promise],
    history: &History,
    op: &Op,
    error: VolumeError,
) -> Option<String> {
    let promise = &promises[op.ask.namespace];
    let end = op.ask.lba + op.ask.blocks;
    let compares = !op.ask.expected.is_empty();
    let window = Window::of(plan, history, op);
    // A fence ends what was asked before it.
    let cut_off = || op.cancelled || window.meets(|cause| cause == Cause::Fence);
    let (may, because) = match error {
        VolumeError::OutOfRange => (
            end > promise.blocks_first || end > promise.blocks_least && window.was_resized(),
            "the namespace had these blocks",
        ),
        VolumeError::ReadOnly => (
            window.follows(|cause| cause == Cause::Trouble(Trouble::SetReadOnly)),
            "the namespace could be written",
        ),
        VolumeError::Miscompare { .. } => (compares, "it compares nothing"),
        VolumeError::Unsupported | VolumeError::Invalid => (false, "it is as the geometry allows"),
        VolumeError::NoSpace => (false, "no medium is full"),
        VolumeError::Medium => (window.fails_media(), "nothing failed on its medium"),
        VolumeError::Lost => (
            window.follows(|cause| {
                matches!(
                    cause,
                    Cause::Trouble(Trouble::RemoveNamespace | Trouble::RemoveHost)
                )
            }),
            "neither its namespace nor its host was taken away",
        ),
        VolumeError::TimedOut => (
            // What is cancelled, or cut off, when a part of it was done ends so too; and what is not done twice, when the host finds that
            // the connection is no more on which it was sent.
            cut_off()
                || window.is_delayed()
                || op.ask.kind == OperationKind::CompareWrite && window.follows(breaks_connections),
            "nothing held it up",
        ),
        VolumeError::Cancelled => (cut_off(), "nobody wished that it end"),
        VolumeError::Busy => (window.is_delayed(), "nothing held it up"),
    };
    (!may).then(|| format!("{because}; {window}"))
}

/// The time of a request, and what was done to its host and its namespace.
struct Window<'a> {
    plan: &'a Plan,
    history: &'a History,
    op: &'a Op,
    from: Duration,
    until: Duration,
}

impl<'a> Window<'a> {
    fn of(plan: &'a Plan, history: &'a History, op: &'a Op) -> Self {
        let ended = op.ended.map_or(op.asked, |ended| ended.order);
        Window {
            plan,
            history,
            op,
            from: history.time(op.asked),
            until: history.time(ended),
        }
    }

    /// Returns the incidents that concerned the request and had begun when it ended.
    fn incidents(&self) -> impl Iterator<Item = &'a Incident> {
        let (host, namespace, until) = (self.op.ask.host, self.op.ask.namespace, self.until);
        let concerns = move |incident: &&Incident| {
            incident.from <= until
                && incident.host.is_none_or(|other| other == host)
                && incident.namespace.is_none_or(|other| other == namespace)
        };
        self.history.incidents.iter().filter(concerns)
    }

    /// Tells whether such an incident was under way while the request was, or what it sent to the host was still on its way.
    fn meets(&self, is_meant: impl Fn(Cause) -> bool) -> bool {
        let on_its_way = *self.plan.faults.network_delay.end() * SEGMENTS;
        let from = self.from.saturating_sub(on_its_way);
        self.incidents()
            .any(|incident| is_meant(incident.cause) && incident.is_under_way(from))
    }

    /// Tells whether such an incident was under way when the host was told last: it learns of its end only over a connection.
    fn follows(&self, is_meant: impl Fn(Cause) -> bool) -> bool {
        let mut meant = self.incidents().filter(|incident| is_meant(incident.cause));
        meant.any(|incident| match incident.until {
            None => true,
            Some(until) => self.told_after(until) >= self.from,
        })
    }

    /// When the host had surely heard of what happened at `moment`: over the connection that it had, or over its next one.
    fn told_after(&self, moment: Duration) -> Duration {
        let reconnect = self.plan.reconnect_limit(self.op.ask.host);
        let host = &self.plan.hosts[self.op.ask.host];
        let asks_after = match host.protocol {
            Protocol::Nvme => Duration::ZERO,
            // It is told when it asks for something, which it does so often.
            Protocol::Iscsi => host.keep_alive / 2,
        };
        let mut told = moment + asks_after + NOTICE;
        for incident in self.incidents() {
            if breaks_connections(incident.cause) && incident.from <= told {
                let until = incident.until.unwrap_or(self.until);
                told = told.max(until.saturating_add(reconnect));
            }
        }
        told
    }

    /// Tells whether a namespace began to be resized before the request ended.
    fn was_resized(&self) -> bool {
        let resizes = |incident: &Incident| incident.cause == Cause::Trouble(Trouble::Resize);
        self.incidents().any(resizes)
    }

    /// Tells whether something made the request take long, or cut it off.
    fn is_delayed(&self) -> bool {
        let delays = |cause| match cause {
            Cause::Trouble(_) | Cause::Fence => true,
            Cause::Fault(kind) => holds_up(kind),
        };
        self.meets(delays)
    }

    /// Tells whether its medium failed; or what may not have been flushed was lost with a connection.
    fn fails_media(&self) -> bool {
        let ask = &self.op.ask;
        let of_disk = |cause| {
            matches!(
                cause,
                Cause::Fault(
                    FaultKind::ReadError
                        | FaultKind::WriteError
                        | FaultKind::SyncError
                        | FaultKind::WritebackError
                )
            )
        };
        // SCSI's WRITE SAME has no forced unit access: what is to be durable is flushed.
        let is_flushed = ask.fua
            && ask.kind == OperationKind::WriteZeroes
            && self.plan.hosts[ask.host].protocol == Protocol::Iscsi;
        if ask.kind == OperationKind::Flush || is_flushed {
            let opened = self.history.opened(ask.opening);
            let is_lost = |incident: &Incident| {
                breaks_connections(incident.cause) && incident.is_under_way(opened)
            };
            return self
                .incidents()
                .any(|incident| of_disk(incident.cause) || is_lost(incident));
        }
        // One that is durable reports what other writes met.
        match ask.fua {
            true => self.incidents().any(|incident| of_disk(incident.cause)),
            false => self.meets(of_disk),
        }
    }
}

impl fmt::Display for Window<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.from.as_secs_f64(), self.until.as_secs_f64());
        write!(formatter, "it took from {from:.6} to {until:.6}, and ")?;
        let mut last: Vec<_> = self.incidents().collect();
        last.sort_by_key(|incident| incident.until.unwrap_or(Duration::MAX));
        if last.is_empty() {
            return write!(formatter, "there was nothing before");
        }
        write!(formatter, "the last that there was: ")?;
        for incident in last.iter().rev().take(SHOWN) {
            write!(formatter, "{incident}; ")?;
        }
        Ok(())
    }
}

/// Tells whether it may end connections of hosts.
fn breaks_connections(cause: Cause) -> bool {
    match cause {
        Cause::Trouble(trouble) => !matches!(
            trouble,
            Trouble::Resize | Trouble::SetReadOnly | Trouble::RemoveNamespace
        ),
        Cause::Fault(kind) => holds_up(kind),
        Cause::Fence => true,
    }
}

/// Tells whether a fault holds requests up, so that they time out, or their connections end.
fn holds_up(kind: FaultKind) -> bool {
    match kind {
        FaultKind::DelaySpike
        | FaultKind::Cut
        | FaultKind::Silence
        | FaultKind::Partition
        | FaultKind::ReactorStall
        | FaultKind::DiskStall
        | FaultKind::SilentDisk
        | FaultKind::Crash => true,
        FaultKind::AcceptError
        | FaultKind::ReadError
        | FaultKind::WriteError
        | FaultKind::SyncError
        | FaultKind::WritebackError => false,
    }
}
