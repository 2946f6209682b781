//! What hosts did with each subsystem.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use weir_front::{IoCounters, IoTotals};
use weir_nvme::Nqn;

use crate::snapshot::Snapshot;

/// Counts of one subsystem on every reactor.
pub struct SubsystemCounters {
    /// In the order of the reactors.
    pub by_reactor: Box<[IoCounters]>,
}

impl SubsystemCounters {
    /// The sums over all reactors.
    pub fn totals(&self) -> IoTotals {
        let mut totals = IoTotals::default();
        for counters in &self.by_reactor {
            totals.add(counters);
        }
        totals
    }
}

/// The counts of all subsystems, those included that were removed.
#[derive(Default)]
pub struct Subsystems(Mutex<HashMap<Nqn, Arc<SubsystemCounters>>>);

impl Subsystems {
    /// The counts of one.
    pub fn get(&self, nqn: &Nqn) -> Option<Arc<SubsystemCounters>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(nqn).cloned()
    }

    /// Makes counters for those of a snapshot that are new.
    pub fn add_new(&self, snapshot: &Snapshot, reactors: usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for subsystem in &snapshot.subsystems {
            all.entry(subsystem.nqn.clone()).or_insert_with(|| {
                let by_reactor = (0..reactors).map(|_| IoCounters::default()).collect();
                Arc::new(SubsystemCounters { by_reactor })
            });
        }
    }

    /// The totals of all, in the order of their NQNs.
    pub fn totals(&self) -> Vec<(Nqn, IoTotals)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals: Vec<_> = all
            .iter()
            .map(|(nqn, counters)| (nqn.clone(), counters.totals()))
            .collect();
        totals.sort_by(|(one, _), (other, _)| one.cmp(other));
        totals
    }
}
