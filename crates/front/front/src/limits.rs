//! What is fixed when a front end starts.

use std::time::Duration;

/// The limits of a front end's connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at most, of all hosts. Those above are closed when they arrive.
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
