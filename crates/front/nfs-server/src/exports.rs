//! Exports as one reactor serves them.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use weir_front::{Attached, GroupCounters, IoCounters};

use crate::volumes::VolumeFile;

/// Exports as a reactor serves them, for all its connections.
#[derive(Default)]
pub(crate) struct Exports {
    /// Volumes that are served as files, by the numbers of these.
    pub(crate) files: BTreeMap<u32, Rc<Attached<VolumeFile>>>,
    /// Counts of what clients do, by the numbers of the exports.
    pub(crate) counters: BTreeMap<u32, Arc<GroupCounters>>,
}

impl Exports {
    /// The counts of an export on reactor `index`.
    pub(crate) fn counters(&self, export: u32, index: usize) -> Option<&IoCounters> {
        let counters = self.counters.get(&export);
        counters.map(|counters| &counters.by_reactor[index])
    }
}
