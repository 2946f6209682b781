//! What hosts can make a target keep.

use weir_front::{MemoryNeeds, REACTOR_BYTES_MAX, connection_bytes_max};
use weir_memory::View;
use weir_nvme_core::{Controller, DiscoveryLogs, QueuePair, Subsystem};

use crate::config::TargetConfig;
use crate::framing::Framing;
use crate::session::NvmeSession;

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
            session_bytes: Controller::memory_bytes(SLACK) as u64,
            reactor_bytes: (REACTOR_BYTES_MAX + DiscoveryLogs::BYTES_MAX) as u64,
            // In an answer, in a send, and as the kernel is told.
            list_share: DATA_BYTES_MIN / (SLACK * 3 * size_of::<View>()) as u64,
        }
    }
}
