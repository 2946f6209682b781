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
    /// For how long a connection may take from being accepted until it is established.
    pub handshake_timeout: Duration,
    /// How long a host may take to move on with what it began to send, was asked to send, or is sent. It has twice as long at
    /// most; then its connection ends. By 16 KiB or by what is left, and by more where so much is held for it that it would take
    /// longer than ten minutes.
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
