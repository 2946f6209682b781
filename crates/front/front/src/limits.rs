//! What is fixed when a front end starts.

use std::time::Duration;

/// The limits of a front end's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at most, of all hosts and of all front ends on the same hubs. Those above are closed when they arrive.
    pub max_connections: u32,
    /// Connections at most that are served and not established. Those above wait, twice as long as `handshake_timeout` at most, and
    /// are closed then; a quarter of `max_connections` may wait, and further ones are closed when they arrive. The last quarter is
    /// for addresses that have fewer than an eighth.
    pub max_half_open: u32,
    /// Of these, those of one address (of one /64 with IPv6) at most. With those that wait, an address has a quarter of
    /// `max_connections` at most; further ones are closed when they arrive.
    pub max_half_open_per_address: u32,
    /// Longest time from accepting a connection until it is established.
    pub handshake_timeout: Duration,
    /// Time in which a host must make progress with a message that it began, data that it was asked for, or data that it is sent.
    /// Progress is 16 KiB, or the rest if that is less. Where so much is held for the host that this would take longer than ten
    /// minutes, more must move. A connection without progress ends after one to two of these times.
    pub progress_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            max_connections: 4096,
            max_half_open: 128,
            max_half_open_per_address: 64,
            handshake_timeout: Duration::from_secs(10),
            progress_timeout: Duration::from_secs(30),
        }
    }
}

/// Memory that hosts can make a front end keep at worst, in bytes, beside the reactors' pools and receive buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeeds {
    /// Each connection: its commands and answers, its lists, what it keeps of its input, its histograms.
    pub connection_bytes: u64,
    /// Each session (NVMe: controller), beside its connections.
    pub session_bytes: u64,
    /// Each reactor: large receives that are kept, and what the protocol keeps there.
    pub reactor_bytes: u64,
    /// Lists of data in flight take one part in so many of the data itself.
    pub list_share: u64,
}

impl MemoryNeeds {
    /// Adds another front end on the same hubs. The limit of connections is theirs together, so any connection may be the larger
    /// one; each has sessions of its own, and keeps its own on every reactor.
    #[must_use]
    pub fn with(self, other: MemoryNeeds) -> MemoryNeeds {
        MemoryNeeds {
            connection_bytes: self.connection_bytes.max(other.connection_bytes),
            session_bytes: self.session_bytes + other.session_bytes,
            reactor_bytes: self.reactor_bytes + other.reactor_bytes,
            list_share: self.list_share.min(other.list_share),
        }
    }
}
