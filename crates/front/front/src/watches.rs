//! What changes of the volumes that are served, whoever serves them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_block::{Volume, VolumeEvent, Watcher};

/// What a front end does about a volume's events.
pub(crate) trait Concerned: Send + Sync {
    /// Its geometry changed.
    fn resized(&self);

    /// Commands on it stay unanswered, and no time can be named.
    fn unfenced(&self, volume: &Arc<dyn Volume>);
}

/// Tells a front end when a volume changes.
struct VolumeWatch {
    concerned: Box<dyn Concerned>,
    volume: Arc<dyn Volume>,
    /// What the volume has left unanswered may take effect still.
    unfenced: AtomicBool,
}

impl VolumeWatch {
    fn is_of(&self, volume: &Arc<dyn Volume>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.volume), Arc::as_ptr(volume))
    }
}

impl Watcher for VolumeWatch {
    fn notice(&self, event: VolumeEvent) {
        match event {
            VolumeEvent::Resized => self.concerned.resized(),
            // Requests say so themselves.
            VolumeEvent::Lost | VolumeEvent::Restored | VolumeEvent::CacheLost => {}
            VolumeEvent::Unfenced => {
                self.unfenced.store(true, Ordering::Release);
                self.concerned.unfenced(&self.volume);
            }
            VolumeEvent::Fenced => self.unfenced.store(false, Ordering::Release),
        }
    }
}

/// Watches on the volumes that are served.
#[derive(Default)]
pub struct Watches {
    watches: Mutex<Vec<Arc<VolumeWatch>>>,
}

impl Watches {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<VolumeWatch>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches these from now on, and no others. A volume that is among them already keeps its watch.
    pub(crate) fn take_over<'a, C: Concerned + 'static>(
        &self,
        volumes: impl Iterator<Item = &'a Arc<dyn Volume>>,
        concerned: impl Fn() -> C,
    ) {
        let mut watches = self.lock();
        let mut now: Vec<Arc<VolumeWatch>> = Vec::new();
        for volume in volumes {
            if now.iter().any(|watch| watch.is_of(volume)) {
                continue;
            }
            let kept = watches.iter().find(|watch| watch.is_of(volume)).cloned();
            now.push(kept.unwrap_or_else(|| watch(volume, Box::new(concerned()))));
        }
        *watches = now;
    }

    /// Tells whether any of the volumes that `is_meant` has left commands unanswered that may take effect still.
    pub fn any_unfenced(&self, is_meant: impl Fn(&Arc<dyn Volume>) -> bool) -> bool {
        let watches = self.lock();
        let mut unfenced = watches
            .iter()
            .filter(|watch| watch.unfenced.load(Ordering::Acquire));
        unfenced.any(|watch| is_meant(&watch.volume))
    }
}

fn watch(volume: &Arc<dyn Volume>, concerned: Box<dyn Concerned>) -> Arc<VolumeWatch> {
    let watch = Arc::new(VolumeWatch {
        concerned,
        volume: Arc::clone(volume),
        unfenced: AtomicBool::new(false),
    });
    let watcher: Arc<dyn Watcher> = watch.clone();
    volume.watch(Arc::downgrade(&watcher));
    watch
}
