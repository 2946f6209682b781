//! What hosts can make a target keep.

use weir_front::{REACTOR_BYTES_MAX, connection_bytes_max};
use weir_memory::View;
use weir_nvme_core::{Controller, DiscoveryLogs, QueuePair, Subsystem};

use crate::config::TargetConfig;
use crate::framing::Framing;
use crate::session::NvmeSession;

/// What hosts can make a target keep at worst, in bytes, beside the reactors' pools and receive buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeeds {
    /// Each connection: its queue's slots and answers, its lists, what it keeps of its input, its histograms.
    pub connection_bytes: u64,
    /// Each controller, beside its admin queue's connection.
    pub controller_bytes: u64,
    /// Each reactor: large receives that are kept, discovery logs.
    pub reactor_bytes: u64,
    /// Lists of data in flight take one part in so many of the data itself.
    pub list_share: u64,
}

impl TargetConfig {
    /// What a target with this configuration keeps at worst.
    #[must_use]
    pub fn memory_needs(&self) -> MemoryNeeds {
        /// Lists grow to twice what is in them at most.
        const SLACK: usize = 2;
        /// A page: the least that data of any length is kept in.
        const DATA_BYTES_MIN: u64 = 4096;
        let queue = QueuePair::memory_bytes(usize::from(self.queue_depth), SLACK);
        let framing = SLACK * Framing::memory_bytes(usize::from(self.queue_depth));
        let namespaces = Subsystem::NAMESPACES_MAX as usize * size_of::<usize>();
        let lists = queue + framing + namespaces;
        MemoryNeeds {
            connection_bytes: (connection_bytes_max::<NvmeSession>() + lists) as u64,
            controller_bytes: Controller::memory_bytes(SLACK) as u64,
            reactor_bytes: (REACTOR_BYTES_MAX + DiscoveryLogs::BYTES_MAX) as u64,
            // In an answer, in a send, and as the kernel is told.
            list_share: DATA_BYTES_MIN / (SLACK * 3 * size_of::<View>()) as u64,
        }
    }
}
