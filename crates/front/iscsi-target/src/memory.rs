//! What initiators can make the front end keep.

use weir_front::{MemoryNeeds, REACTOR_BYTES_MAX, connection_bytes_max};
use weir_memory::View;

use crate::config::IscsiConfig;
use crate::framing::Framing;
use crate::served::Target;
use crate::session::IscsiSession;
use crate::tasks::Tasks;

impl IscsiConfig {
    /// What a front end with this configuration keeps at worst.
    #[must_use]
    pub fn memory_needs(&self) -> MemoryNeeds {
        /// Lists grow to twice what is in them at most.
        const SLACK: usize = 2;
        /// A page: the least that data of any length is kept in.
        const DATA_BYTES_MIN: u64 = 4096;
        let commands = usize::from(self.commands_max);
        let tasks = Tasks::memory_bytes(commands, SLACK);
        let framing = SLACK * Framing::memory_bytes(commands);
        let luns = usize::from(Target::LUNS_MAX) * (size_of::<usize>() + SEEN_BYTES);
        // A command may always come with its data, whatever else is in flight; and one that is no SCSI command, with its own.
        let data = self.first_burst_bytes + self.receive_segment_bytes;
        let lists = tasks + framing + luns + data as usize;
        MemoryNeeds {
            connection_bytes: (connection_bytes_max::<IscsiSession>() + lists) as u64,
            session_bytes: 0,
            reactor_bytes: REACTOR_BYTES_MAX as u64,
            // In an answer, in a send, and as the kernel is told.
            list_share: DATA_BYTES_MIN / (SLACK * 3 * size_of::<View>()) as u64,
        }
    }
}

/// What a session remembers of each logical unit that it sees: twice, while it compares.
const SEEN_BYTES: usize = 2 * size_of::<crate::session::Told>();
