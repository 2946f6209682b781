//! Counts of the commands of each group of exports: an NVMe subsystem, an iSCSI target.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use crate::counters::{IoCounters, IoTotals};

/// Counts of one group on every reactor.
pub struct GroupCounters {
    /// In the order of the reactors.
    pub by_reactor: Box<[IoCounters]>,
}

impl GroupCounters {
    /// The sums over all reactors.
    pub fn totals(&self) -> IoTotals {
        let mut totals = IoTotals::default();
        for counters in &self.by_reactor {
            totals.add(counters);
        }
        totals
    }
}

/// The counts of all groups, those included that were removed.
pub struct Groups<G>(Mutex<HashMap<G, Arc<GroupCounters>>>);

impl<G> Default for Groups<G> {
    fn default() -> Self {
        Groups(Mutex::default())
    }
}

impl<G: Clone + Ord + Hash> Groups<G> {
    /// The counts of one.
    pub fn get(&self, group: &G) -> Option<Arc<GroupCounters>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(group).cloned()
    }

    /// Makes counters for those that are new, of a front end on so many reactors.
    pub fn add_new<'a>(&self, groups: impl Iterator<Item = &'a G>, reactors: usize)
    where
        G: 'a,
    {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for group in groups {
            all.entry(group.clone()).or_insert_with(|| {
                let by_reactor = (0..reactors).map(|_| IoCounters::default()).collect();
                Arc::new(GroupCounters { by_reactor })
            });
        }
    }

    /// The totals of all, in order.
    pub fn totals(&self) -> Vec<(G, IoTotals)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut totals: Vec<_> = all
            .iter()
            .map(|(group, counters)| (group.clone(), counters.totals()))
            .collect();
        totals.sort_by(|(one, _), (other, _)| one.cmp(other));
        totals
    }
}
