//! A seed is worth its time: clients are served while things go wrong, and what its plan switches on really happens.

use std::fmt;
use std::time::Duration;

use weir_block::VolumeError;
use weir_reactor::sim::FaultKind;

use super::{Check, Promise, Violation};
use crate::journal::{Cause, History, Incident};
use crate::plan::{Plan, Trouble};

/// Of so many requests that were made while things went wrong one succeeded at least; a system that times out on everything has none.
const SERVED_ONE_IN: u64 = 200;
/// Of so many requests to other volumes that were made while one was silent and nothing else went wrong one was answered meanwhile at least.
const ANSWERED_BESIDE_ONE_IN: u64 = 10;

pub(crate) fn check(plan: &Plan, promises: &[Promise], history: &History) -> Vec<Violation> {
    let Some(stopped) = history.faults_stopped else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut accuse = |message| found.push(Violation::new(Check::Exercised, message));
    let (asked, served) = served(promises, history);
    if served * SERVED_ONE_IN < asked {
        accuse(format!(
            "of {asked} requests {served} succeeded while things went wrong, fewer than one in {SERVED_ONE_IN}"
        ));
    }
    let lasted = history.time(stopped).saturating_sub(history.faults_began);
    for group in [
        &plan.network_troubles,
        &plan.gateway_troubles,
        &plan.host_troubles,
        &plan.disk_troubles,
    ] {
        let kinds: Vec<Trouble> = group.iter().map(|(trouble, _)| *trouble).collect();
        let was_made = |trouble: &Trouble| history.happened(Cause::Trouble(*trouble)) > 0;
        if is_sure(&kinds, lasted, plan) && !kinds.iter().any(was_made) {
            accuse(format!(
                "none of {kinds:?} was made within {lasted:?}, and a pause is {:?} at most",
                plan.pause.end()
            ));
        }
    }
    let (asked, answered) = answered_beside(history);
    if answered < asked / ANSWERED_BESIDE_ONE_IN {
        accuse(format!(
            "of {asked} requests to other volumes than the silent one {answered} were answered while nothing else went wrong, fewer than one in {ANSWERED_BESIDE_ONE_IN}"
        ));
    }
    let on = kinds(plan);
    for incident in &history.incidents {
        if incident.cause != Cause::Fence && !on.contains(&incident.cause) {
            accuse(format!("{incident}: that is not on in this seed"));
        }
    }
    found
}

/// Requests that were made before the faults stopped and that nothing but a fault or trouble could keep from success, and how many
/// succeeded: all but those that their client cancelled, those for blocks that resizing may take, and those that were refused because a
/// right was taken away, whose reason is checked. A comparison that finds another value has succeeded at comparing.
fn served(promises: &[Promise], history: &History) -> (u64, u64) {
    let mut counts = (0, 0);
    for op in &history.ops {
        let is_late = history
            .faults_stopped
            .is_none_or(|stopped| op.asked > stopped);
        let used = promises[op.ask.namespace].used;
        if is_late || op.cancelled || op.ask.lba + op.ask.blocks > used {
            continue;
        }
        let result = op.ended.map(|ended| ended.result);
        if matches!(result, Some(Err(VolumeError::ReadOnly | VolumeError::Lost))) {
            continue;
        }
        let well = matches!(result, Some(Ok(()) | Err(VolumeError::Miscompare { .. })));
        counts = (counts.0 + 1, counts.1 + u64::from(well));
    }
    counts
}

/// Requests to other volumes than one that was silent, which were asked while it was and nothing else went wrong, and how many were
/// answered before it had worked off what it kept back.
fn answered_beside(history: &History) -> (u64, u64) {
    let is_silence = |incident: &&Incident| incident.cause == Cause::Fault(FaultKind::SilentDisk);
    let mut counts = (0, 0);
    let mut silences: Vec<&Incident> = history.incidents.iter().filter(is_silence).collect();
    // The disks of one volume are silent together.
    silences.dedup_by_key(|silence| (silence.from, silence.namespace));
    for silence in silences {
        let until = silence.until.unwrap_or(Duration::MAX);
        let is_another = |incident: &Incident| {
            let is_beside = incident
                .namespace
                .is_none_or(|other| Some(other) != silence.namespace);
            is_beside && incident.from <= until && incident.is_under_way(silence.from)
        };
        if history.incidents.iter().any(is_another) {
            continue;
        }
        let half = silence.from + until.saturating_sub(silence.from) / 2;
        for op in &history.ops {
            let asked = history.time(op.asked);
            let is_beside = Some(op.ask.namespace) != silence.namespace && !op.cancelled;
            if is_beside && (silence.from..half).contains(&asked) {
                let ended = op
                    .ended
                    .map_or(Duration::MAX, |ended| history.time(ended.order));
                counts = (counts.0 + 1, counts.1 + u64::from(ended <= until));
            }
        }
    }
    counts
}

/// Tells whether one of these troubles was surely made within `lasted`. Some need something that may not be there: a connection, a
/// volume of a kind that can be resized, a gateway that is up.
fn is_sure(kinds: &[Trouble], lasted: Duration, plan: &Plan) -> bool {
    let needs_nothing = |trouble: &Trouble| {
        !matches!(
            trouble,
            Trouble::Cut
                | Trouble::Silence
                | Trouble::Disconnect
                | Trouble::Resize
                | Trouble::RestartGateway
                | Trouble::SilentVolume
                | Trouble::ReplacePath
        )
    };
    !kinds.is_empty() && kinds.iter().all(needs_nothing) && lasted > *plan.pause.end()
}

/// Everything that a plan switches on.
fn kinds(plan: &Plan) -> Vec<Cause> {
    let is_on = |kind: FaultKind| {
        let faults = &plan.faults;
        let by_chance = match kind {
            FaultKind::DelaySpike => faults.delay_spike_probability,
            FaultKind::Cut => faults.cut_probability,
            FaultKind::AcceptError => faults.accept_error_probability,
            FaultKind::ReactorStall => faults.reactor_stall_probability,
            FaultKind::DiskStall => faults.disk_stall_probability,
            FaultKind::ReadError => faults.read_error_probability,
            FaultKind::WriteError => faults.write_error_probability,
            FaultKind::SyncError => faults.sync_error_probability,
            FaultKind::WritebackError => faults.writeback_error_probability,
            FaultKind::Silence
            | FaultKind::Partition
            | FaultKind::SilentDisk
            | FaultKind::Crash => 0.0,
        };
        let by: &[Trouble] = match kind {
            FaultKind::Cut => &[Trouble::Cut, Trouble::ReplacePath],
            FaultKind::Silence => &[Trouble::Silence],
            FaultKind::Partition => &[Trouble::Partition],
            FaultKind::ReactorStall => &[Trouble::Stall],
            FaultKind::SilentDisk => &[Trouble::SilentVolume, Trouble::ReplacePath],
            FaultKind::Crash => &[
                Trouble::KillGateway,
                Trouble::GatewayPower,
                Trouble::KillHost,
                Trouble::HostPower,
            ],
            _ => &[],
        };
        // Power fails once more at the end of some seeds.
        let at_end = kind == FaultKind::Crash && plan.power_failure_at_end;
        by_chance > 0.0 || at_end || by.iter().any(|trouble| plan.has(*trouble))
    };
    let faults = FaultKind::ALL.into_iter().filter(|kind| is_on(*kind));
    let troubles = Trouble::ALL
        .into_iter()
        .filter(|trouble| plan.has(*trouble));
    let faults = faults.map(Cause::Fault);
    faults.chain(troubles.map(Cause::Trouble)).collect()
}

/// A fault or trouble that a seed switches on, and its count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exercised {
    pub(crate) cause: Cause,
    /// The number of times that it happened.
    pub times: u64,
}

impl Exercised {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> String {
        self.cause.to_string()
    }
}

/// Everything that a plan switches on, and how often it happened.
pub(crate) fn exercised(plan: &Plan, history: &History) -> Vec<Exercised> {
    let on = kinds(plan).into_iter();
    on.map(|cause| Exercised {
        cause,
        times: history.happened(cause),
    })
    .collect()
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Fault(kind) => write!(formatter, "fault {kind:?}"),
            Cause::Trouble(trouble) => write!(formatter, "trouble {trouble:?}"),
            Cause::Fence => write!(formatter, "fence"),
        }
    }
}
