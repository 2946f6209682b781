//! Memory that clients can make the front end keep.

use weir_front::{MemoryNeeds, REACTOR_BYTES_MAX, connection_bytes_max};
use weir_memory::View;

use crate::config::NfsConfig;
use crate::replies::REPLY_BYTES_MAX;
use crate::session::{NfsSession, READING_CALL_BYTES_MAX};
use crate::state::{SLOT_BYTES, STATE_BYTES};

/// Bytes of a call that is under way, beside its record and its data, about.
const CALL_BYTES: usize = 3072;
/// Calls of a connection that are counted: a client's slots bound those of all its connections.
const CALLS: usize = 64;

impl NfsConfig {
    /// Bytes that a front end with this configuration keeps at worst.
    #[must_use]
    pub fn memory_needs(&self) -> MemoryNeeds {
        /// A page: the least that data of any length is kept in.
        const DATA_BYTES_MIN: u64 = 4096;
        /// Lists grow to twice what is in them at most, and data is in an answer, in a send, and as the kernel is told.
        const VIEWS: usize = 2 * 3;
        let slot = SLOT_BYTES + Self::KEPT_BYTES_MAX as usize;
        let replies = Self::REPLIES_PER_CLIENT as usize * REPLY_BYTES_MAX;
        let client = Self::PER_CLIENT as usize * (slot + STATE_BYTES) + replies;
        MemoryNeeds {
            connection_bytes: (connection_bytes_max::<NfsSession>()
                + READING_CALL_BYTES_MAX
                + CALLS * CALL_BYTES) as u64,
            session_bytes: client as u64,
            reactor_bytes: REACTOR_BYTES_MAX as u64,
            list_share: DATA_BYTES_MIN / (VIEWS * size_of::<View>()) as u64,
        }
    }
}
