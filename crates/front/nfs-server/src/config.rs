//! Settings that are fixed when the front end starts.

use std::time::Duration;

use weir_front::Limits;

/// Limits and sizes of the front end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsConfig {
    /// Limits of connections, and of the time that they may take.
    pub connections: Limits,
    /// Clients at most.
    pub clients_max: u32,
    /// Sessions at most of one client.
    pub sessions_per_client_max: u32,
    /// Slots that a session has at most: requests of one client under way, over all connections.
    pub slots_max: u32,
    /// Bytes that one READ yields and one WRITE takes at most.
    pub transfer_bytes_max: u32,
    /// Opens and owners of locks at most of one client.
    pub states_per_client_max: u32,
    /// Locked ranges at most of one file.
    pub locks_per_file_max: u32,
    /// Data of one connection's requests at once, in bytes. Further requests wait.
    pub bytes_in_flight_per_connection: u32,
    /// Time for which what a client has is kept when it is silent.
    pub lease: Duration,
}

impl Default for NfsConfig {
    fn default() -> Self {
        NfsConfig {
            connections: Limits::default(),
            clients_max: 4096,
            sessions_per_client_max: 8,
            slots_max: 1024,
            transfer_bytes_max: 1 << 20,
            states_per_client_max: 4096,
            locks_per_file_max: 4096,
            bytes_in_flight_per_connection: 64 << 20,
            lease: Duration::from_secs(45),
        }
    }
}

impl NfsConfig {
    /// Bytes of a request or a reply beside its data at most.
    pub(crate) const OTHER_BYTES_MAX: u32 = 16 << 10;
    /// Bytes of a reply that is kept at most.
    pub(crate) const KEPT_BYTES_MAX: u32 = 2048;
    /// Slots at most of all sessions, and opens and owners of locks at most of all clients, for each client that there may be. One client
    /// may have more while others have less.
    pub(crate) const PER_CLIENT: u32 = 64;
    /// Replies to clients of version 3 that are kept at most, for each client that there may be: of the newest calls of all.
    pub(crate) const REPLIES_PER_CLIENT: u32 = 16;
    /// Operations of a COMPOUND at most.
    pub(crate) const OPERATIONS_MAX: u32 = 64;

    /// Slots of all sessions at most; so many opens and owners of locks too.
    pub(crate) fn all_max(&self) -> usize {
        self.clients_max as usize * Self::PER_CLIENT as usize
    }

    /// Replies to clients of version 3 that are kept at most.
    pub(crate) fn replies_max(&self) -> usize {
        self.clients_max as usize * Self::REPLIES_PER_CLIENT as usize
    }

    /// Bytes of a call, or of a reply, at most.
    pub(crate) fn message_bytes_max(&self) -> u32 {
        self.transfer_bytes_max + Self::OTHER_BYTES_MAX
    }
}
