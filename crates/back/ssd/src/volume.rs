//! `ssd:` a modelled drive as a volume, over another one or over none.
//!
//! A request goes to the volume below at once, with its data, and the model is told of it; the completion is held until the model says that
//! the drive is done, or the volume below is, whichever is later. The drive is new each time that it is opened, whatever the volume below
//! holds. All queues, on whatever reactors, share one model, under a lock: `docs/decisions/0031-modelled-drive.md` says why.

mod lane;
mod open;

use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    CompletionSink, FenceReply, Geometry, Health, HealthFuture, HealthReport, Queue, ResizeError,
    ResizeFuture, Volume, VolumeError, Watcher,
};
use weir_reactor::{Instant, Reactor};
use weir_volume::Factory;
use weir_volume::parts::{Fences, LaneQueue, lock};

use crate::{Model, Smart};

/// The scheme of its URLs.
pub const SCHEME: &str = "ssd";

/// Which clock the drive goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// The reactors': a request ends when the drive is done.
    Real,
    /// One of its own, which stands still until a request ends and then is as late as that: nothing waits for the drive.
    Model,
}

/// The drive that all queues share.
struct Drive {
    model: Mutex<Driven>,
    clock: Clock,
}

struct Driven {
    model: Model,
    /// The model's own clock, in nanoseconds.
    own_now: u64,
}

impl Drive {
    fn new(model: Model, clock: Clock) -> Arc<Self> {
        Arc::new(Drive {
            model: Mutex::new(Driven { model, own_now: 0 }),
            clock,
        })
    }

    /// Asks the model something, at the time that it goes by.
    fn ask<T>(&self, now: Instant, ask: impl FnOnce(&mut Model, u64) -> T) -> T {
        let driven = &mut *lock(&self.model);
        let now = match self.clock {
            Clock::Real => now.as_nanos(),
            Clock::Model => driven.own_now,
        };
        ask(&mut driven.model, now)
    }

    /// A request ended that the model took until `at`.
    fn ended(&self, at: Instant) {
        if self.clock == Clock::Model {
            let mut driven = lock(&self.model);
            driven.own_now = driven.own_now.max(at.as_nanos());
        }
    }
}

/// A modelled drive. See the module.
pub struct SsdVolume {
    name: String,
    inner: Arc<dyn Volume>,
    geometry: Geometry,
    /// Whether the volume below deallocates too.
    passes_deallocations: bool,
    drive: Arc<Drive>,
    fences: Fences,
}

impl SsdVolume {
    /// Opens `ssd:` volumes, for a registry.
    #[must_use]
    pub fn factory() -> Factory {
        Arc::new(|request| Box::pin(open::open(request)))
    }

    /// What the drive's log says now.
    #[must_use]
    pub fn smart(&self, reactor: &Reactor) -> Smart {
        self.drive.ask(reactor.now(), |model, now| model.smart(now))
    }
}

impl Volume for SsdVolume {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let (lane, inner) = (lane::SsdLane::new(&self), [&self.inner]);
        let queue = LaneQueue::above(lane, inner, reactor, depth, sink)?;
        self.fences.add(&queue);
        Ok(Box::new(queue))
    }

    /// Waits until every request taken before is with the volume below, and fences that.
    fn fence(&self, reply: FenceReply) {
        let inner = Arc::clone(&self.inner);
        self.fences.fence(Box::new(move |_| inner.fence(reply)));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: SCHEME,
        })))
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        let report = HealthReport::from(Health::from(self.smart(reactor)));
        Box::pin(std::future::ready(report))
    }
}

impl From<Smart> for Health {
    fn from(smart: Smart) -> Health {
        let own = |bytes| smart.has_own_counters.then_some(bytes);
        Health {
            data_units_written_bytes: Some(smart.data_units_written_bytes),
            data_units_read_bytes: Some(smart.data_units_read_bytes),
            host_write_commands: Some(smart.host_write_commands),
            host_read_commands: Some(smart.host_read_commands),
            percentage_used: Some(smart.percentage_used),
            // No block of a modelled drive goes bad.
            available_spare_percent: Some(100.0),
            temperature_kelvin: Some(smart.temperature_kelvin),
            thermal_throttle_nanoseconds: Some(smart.thermal_throttle_nanoseconds),
            thermal_throttle_transitions: Some(smart.thermal_throttle_transitions),
            media_bytes_written: Some(smart.media_bytes_written),
            folded_bytes: own(smart.folded_bytes),
            collected_bytes: own(smart.collected_bytes),
            cache_bytes_used: own(smart.cache_bytes_used),
            cache_bytes_size: own(smart.cache_bytes_size),
            // It has no thresholds that it could warn of.
            ..Health::default()
        }
    }
}
