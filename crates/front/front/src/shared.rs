//! What all reactors share of a front end.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use weir_reactor::Instant;

use crate::arrivals::Admission;
use crate::counters::ConnectionCounters;
use crate::hub::{Common, Hubs};
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
    common: Arc<Common>,
}

impl<P: Protocol> Shared<P> {
    pub(crate) fn new(
        limits: Limits,
        own: Arc<P::Shared>,
        hubs: &Hubs,
        started: Instant,
    ) -> Arc<Self> {
        Arc::new(Shared {
            limits,
            own,
            started,
            watches: Watches::default(),
            counters: std::iter::repeat_with(Arc::default)
                .take(hubs.reactors())
                .collect(),
            admission: Admission::new(hubs.common()),
            common: hubs.common(),
        })
    }

    /// A number that no connection or listener on the same hubs had before.
    pub(crate) fn next_id(&self) -> u64 {
        self.common.next_id.fetch_add(1, Ordering::Relaxed)
    }
}
