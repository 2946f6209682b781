//! Counts of the changes of what volumes store, by whatever front end and on whatever reactor.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use weir_block::Volume;

use crate::counters::Counter;

/// Changes of what a volume stores, counted when they have ended and before their hosts are told.
pub struct Changes {
    of: Weak<dyn Volume>,
    /// When the count began, in nanoseconds since the beginning of 1970.
    since: u64,
    by_reactor: Box<[Arc<OfReactor>]>,
}

/// A count of one reactor; on a cache line of its own.
#[derive(Default)]
#[repr(align(128))]
struct OfReactor(Counter);

impl Changes {
    /// A number that grows with each change: also from one count of a volume to its next one, as long as a volume is not changed more
    /// than a billion times a second. It is about the nanoseconds from the beginning of 1970 to when the count began.
    #[must_use]
    pub fn value(&self) -> u64 {
        let counts = self.by_reactor.iter().map(|one| one.0.get());
        self.since + counts.sum::<u64>()
    }
}

/// The count of a volume's changes, as one reactor counts.
pub struct ChangeCount {
    own: Arc<OfReactor>,
    /// Keeps the others', too.
    _all: Arc<Changes>,
}

impl ChangeCount {
    /// As reactor `index` counts.
    pub(crate) fn new(changes: Arc<Changes>, index: usize) -> Self {
        ChangeCount {
            own: Arc::clone(&changes.by_reactor[index]),
            _all: changes,
        }
    }

    /// Counts one. Only its reactor may call this.
    #[inline]
    pub(crate) fn count(&self) {
        self.own.0.add(1);
    }
}

/// The counts of all volumes that somebody counts.
#[derive(Default)]
pub(crate) struct AllChanges(Mutex<Vec<Weak<Changes>>>);

impl AllChanges {
    /// The count of a volume on so many reactors, which begins `now` where there is none.
    pub(crate) fn of(
        &self,
        volume: &Arc<dyn Volume>,
        reactors: usize,
        now: Duration,
    ) -> Arc<Changes> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|one| one.strong_count() > 0);
        let is_of_volume =
            |one: &Arc<Changes>| std::ptr::addr_eq(one.of.as_ptr(), Arc::as_ptr(volume));
        if let Some(found) = all.iter().filter_map(Weak::upgrade).find(is_of_volume) {
            return found;
        }
        let changes = Arc::new(Changes {
            of: Arc::downgrade(volume),
            since: now.as_nanos() as u64,
            by_reactor: std::iter::repeat_with(Arc::default)
                .take(reactors)
                .collect(),
        });
        all.push(Arc::downgrade(&changes));
        changes
    }
}
