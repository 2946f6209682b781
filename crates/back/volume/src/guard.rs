//! Wraps every served volume: checks, limits, range locks, emulation, counting, removal.
//!
//! A guard is a volume itself. An ordinary request passes: it goes below as it is, under its user's token, and is entered in no table
//! here. It costs one look at an empty list of locks, and counters: the volume below checks its range and its buffers. What the volume
//! below cannot do as it was asked is checked here, and becomes several requests to it, under tokens of the guard's own:
//!
//! * transfers longer than it takes are split (each part is as atomic as the volume makes it);
//! * compare-and-write, where the volume has none of its own of that length, is a read and a write under a range lock,
//!   which excludes every overlapping request on every reactor (see [`table`]);
//! * blocks of 512 bytes on a volume of 4096: unaligned writes read first, under a range lock;
//! * compare, write zeroes and verify, where the volume says that it does not support them, are reads and writes.
//!
//! What a namespace's limits do not allow yet waits here before it is checked against any lock (see [`limits`]). A fence ends
//! such requests, which have had no effect.
//!
//! It does no I/O of its own, and orders nothing that does not overlap a lock.

mod complex;
mod lane;
mod limited;
mod limits;
mod meter;
mod statistics;
mod table;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    BlockSize, CompletionSink, FenceReply, Geometry, HealthFuture, Queue, ResizeError,
    ResizeFuture, Volume, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::{Reactor, Receiver};

use crate::support::{LiveGeometry, Watchers, check_resize, lock};
use crate::when_all::WhenAll;
pub use limited::LimitedVolume;
pub use limits::{Limits, RateLimit, RateLimitError, Throttled};
use statistics::Gathering;
pub use statistics::{KINDS, KindStatistics, VolumeStatistics};
use table::{Message, Table};

/// The longest transfer that a guard takes, in bytes; it splits what the volume below does not take.
pub const GUARD_TRANSFER_BYTES_MAX: u32 = 4 << 20;
/// The longest compare-and-write that a guard emulates, in bytes.
pub const COMPARE_WRITE_BYTES_MAX: u32 = 64 << 10;

/// How a volume is guarded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuardConfig {
    /// Refuse whatever changes the volume.
    pub read_only: bool,
    /// The size of the blocks that it presents; none: the volume's own. They may be smaller than the volume's.
    pub block_size: Option<BlockSize>,
}

/// Why a volume cannot be guarded as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "blocks of {presented} bytes cannot be made of blocks of {native} bytes; they may only be smaller"
)]
pub struct GuardError {
    /// The block size that was asked for, in bytes.
    pub presented: u32,
    /// The volume's, in bytes.
    pub native: u32,
}

/// A guarded volume. See the module.
pub struct Guard {
    inner: Arc<dyn Volume>,
    config: GuardConfig,
    /// The size of a block below as a power of two.
    inner_shift: u32,
    /// The longest transfer below, in blocks there.
    inner_transfer_blocks_max: u32,
    /// The longest native compare-and-write below, in blocks there.
    inner_compare_write_blocks: u32,
    /// Blocks presented for each block below, as a power of two.
    ratio_shift: u32,
    geometry: LiveGeometry,
    /// Held from where the size below is read until it is the guard's, or an earlier one might come last.
    sizes: Mutex<()>,
    watchers: Watchers,
    table: Table,
    retired: AtomicBool,
}

impl Guard {
    /// Guards a volume.
    ///
    /// # Errors
    /// [`GuardError`] when the volume's blocks are smaller than those to be presented.
    pub fn new(inner: Arc<dyn Volume>, config: GuardConfig) -> Result<Arc<Self>, GuardError> {
        let below = inner.geometry();
        let presented = config.block_size.unwrap_or(below.block_size);
        if presented > below.block_size {
            return Err(GuardError {
                presented: presented.bytes(),
                native: below.block_size.bytes(),
            });
        }
        let ratio_shift = below.block_size.shift() - presented.shift();
        let geometry = presented_geometry(&below, presented, ratio_shift, config.read_only);
        let guard = Arc::new(Guard {
            inner_shift: below.block_size.shift(),
            inner_transfer_blocks_max: below.transfer_blocks_max,
            inner_compare_write_blocks: below.compare_write_blocks,
            ratio_shift,
            geometry: LiveGeometry::new(geometry),
            sizes: Mutex::default(),
            watchers: Watchers::default(),
            table: Table::default(),
            retired: AtomicBool::new(false),
            config,
            inner,
        });
        let watcher: Weak<Guard> = Arc::downgrade(&guard);
        guard.inner.watch(watcher);
        Ok(guard)
    }

    /// Takes over the size of what is below.
    fn follow_size(&self) {
        let _reading = lock(&self.sizes);
        let blocks = self.inner.geometry().blocks << self.ratio_shift;
        self.geometry.set_blocks(blocks);
    }

    /// The volume below.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Volume> {
        &self.inner
    }

    /// Takes the volume out of service: requests that come from now on fail with [`VolumeError::Lost`], those in flight
    /// go on. Replies when these have ended on every reactor.
    pub fn retire(&self, reply: FenceReply) {
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.watchers.tell(VolumeEvent::Lost);
        }
        let all = WhenAll::new(reply);
        self.drain(&all);
    }

    /// Whether it was retired.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    /// The counters of all queues, gathered by message. To be awaited, or waited for off the reactors.
    #[must_use]
    pub fn statistics(&self) -> Receiver<VolumeStatistics> {
        let (queues, past) = self.table.counted();
        let (gathering, receiver) = Gathering::new(past);
        for queue in queues {
            queue.post(Message::Count(Arc::clone(&gathering)));
        }
        receiver
    }

    fn drain(&self, all: &Arc<WhenAll>) {
        for queue in self.table.queues() {
            queue.post(Message::Drain(Arc::clone(all)));
        }
    }
}

/// What a volume with this geometry is like behind a guard.
fn presented_geometry(
    below: &Geometry,
    block_size: BlockSize,
    ratio_shift: u32,
    read_only: bool,
) -> Geometry {
    let bytes_max =
        (below.transfer_blocks_max << below.block_size.shift()).max(GUARD_TRANSFER_BYTES_MAX);
    let emulated = COMPARE_WRITE_BYTES_MAX >> block_size.shift();
    Geometry {
        block_size,
        blocks: below.blocks << ratio_shift,
        transfer_blocks_max: bytes_max >> block_size.shift(),
        transfer_blocks_optimal: below.transfer_blocks_optimal << ratio_shift,
        deallocate_blocks: below.deallocate_blocks << ratio_shift,
        read_only: below.read_only || read_only,
        atomic_blocks: below.atomic_blocks << ratio_shift,
        // An unaligned write rewrites its neighbours: what holds for a block below holds for one here.
        atomic_blocks_power_fail: if ratio_shift > 0 {
            1
        } else {
            below.atomic_blocks_power_fail
        },
        compare_write_blocks: (below.compare_write_blocks << ratio_shift).max(emulated),
        ..*below
    }
}

impl Watcher for Guard {
    fn notice(&self, event: VolumeEvent) {
        if event == VolumeEvent::Resized {
            self.follow_size();
        }
        self.watchers.tell(event);
    }
}

impl Volume for Guard {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn name(&self) -> String {
        self.inner.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.watchers.add(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        if self.is_retired() {
            return Err(VolumeError::Lost);
        }
        Ok(Box::new(lane::GuardQueue::open(
            self, None, reactor, depth, sink,
        )?))
    }

    /// Waits for everything that was taken before; the volume below is fenced meanwhile, which cuts off what hangs there.
    fn fence(&self, reply: FenceReply) {
        let all = WhenAll::new(reply);
        self.drain(&all);
        self.inner.fence(Box::new(move |result| {
            if let Err(error) = result {
                all.fail(error);
            }
        }));
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        let reactor = reactor.clone();
        Box::pin(async move {
            let geometry = self.geometry();
            check_resize(&geometry, blocks, force)?;
            let ratio = 1u64 << self.ratio_shift;
            if !blocks.is_multiple_of(ratio) {
                return Err(ResizeError::Unaligned {
                    bytes: blocks << geometry.block_size.shift(),
                    multiple: 1 << self.inner_shift,
                });
            }
            if blocks < geometry.blocks {
                // What is changed or kept back here is not submitted behind the new end any more; the volume below sees to what passes.
                self.geometry.set_blocks(blocks);
            }
            let inner = Arc::clone(&self.inner);
            let resized = inner.resize(&reactor, blocks >> self.ratio_shift, force);
            let resized = resized.await;
            self.follow_size();
            resized.map(|_| self.geometry())
        })
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.inner.health(reactor)
    }
}
