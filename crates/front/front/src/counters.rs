//! Counters that one reactor writes and any thread reads. A count costs a load and a store, no read-modify-write.

use std::sync::atomic::{AtomicU64, Ordering};

/// A count with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `count`. Only the reactor that owns the counter may call this.
    pub fn add(&self, count: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it: a gauge. As for [`Counter::add`].
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Defines counters and the values that they have at one time.
macro_rules! counters {
    ($(#[doc = $of:literal])* $counters:ident, $(#[doc = $values_of:literal])* $values:ident {
        $($(#[doc = $doc:literal])* $name:ident,)*
    }) => {
        $(#[doc = $of])*
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct $counters {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        $(#[doc = $values_of])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $values {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl $values {
            /// Adds what the counters say now.
            pub fn add(&mut self, counters: &$counters) {
                $(self.$name += counters.$name.get();)*
            }
        }

        impl std::ops::AddAssign for $values {
            fn add_assign(&mut self, other: $values) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// What one reactor did for one group of exports; on cache lines of its own.
    IoCounters,
    /// What hosts did with a group of exports since the front end started.
    IoTotals {
        /// Commands that succeeded and read or checked data (NVMe: Read, Compare, Verify).
        reads,
        /// Commands that succeeded and wrote (NVMe: Write, Write Zeroes).
        writes,
        /// Other commands that ended well.
        other_commands,
        /// Bytes sent to hosts as data of Read commands.
        bytes_read,
        /// Bytes received from hosts as data of Write commands.
        bytes_written,
        /// Commands that failed because a medium did.
        media_errors,
        /// Commands that failed for any reason.
        failed_commands,
    }
}

counters! {
    /// What happened to the connections of one reactor since the front end started; on cache lines of its own.
    ConnectionCounters,
    /// Values of [`ConnectionCounters`].
    ConnectionCounts {
        /// Connections that were accepted.
        accepted,
        /// Hosts that were refused when they asked to be let in, and connections that were closed as they came.
        refused,
        /// Connections that were closed as they came: there were as many as there may be.
        over_connections,
        /// Connections that were closed as they came: too many of their address were not established yet.
        over_address,
        /// Connections that were closed as they came, because too many waited to be served, or when they had waited for too long:
        /// there were too many half-open ones.
        over_half_open,
        /// Hosts that were refused because there were as many sessions (NVMe: controllers) as there may be, of the host or in all.
        over_sessions,
        /// Times that a connection's commands had to wait for buffers, or for room in the reactor's account, that others had.
        buffer_waits,
        /// Times that a connection's commands had to wait because it had reached its own limit of data in flight.
        own_waits,
        /// Connections that were not established in time.
        handshake_timeouts,
        /// Connections whose host was silent for too long.
        keep_alive_expiries,
        /// Connections that broke a rule of the protocol.
        terminated,
        /// Connections that the system gave up: a reset, or a peer that is gone.
        lost,
        /// Connections whose host did not send the rest of a message in time.
        stalled_arriving,
        /// Connections whose host did not send data that it was asked for in time.
        stalled_awaited,
        /// Connections whose host did not take in time what it was sent.
        stalled_sending,
        /// Messages whose data was damaged on its way.
        data_digest_errors,
        /// Connections that ended by a broken invariant.
        panics,
        /// Bytes received.
        bytes_received,
        /// Bytes sent.
        bytes_sent,
        /// Sends; each may carry many messages.
        sends,
    }
}
