//! What all reactors share of a front end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_reactor::Instant;

use crate::arrivals::Admission;
use crate::counters::ConnectionCounters;
use crate::limits::Limits;
use crate::protocol::Protocol;
use crate::watches::Watches;

/// What all reactors share of a front end.
pub struct Shared<P: Protocol> {
    /// Its limits.
    pub limits: Limits,
    /// The protocol's own.
    pub own: Arc<P::Shared>,
    /// When it started.
    pub started: Instant,
    /// What changes of its volumes.
    pub watches: Watches,
    /// What happened to its connections, by reactor.
    pub counters: Vec<Arc<ConnectionCounters>>,
    pub(crate) admission: Admission,
    next_id: AtomicU64,
}

impl<P: Protocol> Shared<P> {
    pub(crate) fn new(
        limits: Limits,
        own: Arc<P::Shared>,
        reactors: usize,
        started: Instant,
    ) -> Arc<Self> {
        Arc::new(Shared {
            limits,
            own,
            started,
            watches: Watches::default(),
            counters: std::iter::repeat_with(Arc::default)
                .take(reactors)
                .collect(),
            admission: Admission::default(),
            next_id: AtomicU64::new(1),
        })
    }

    /// A number that nothing of this front end had before.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
