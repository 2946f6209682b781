//! `file:` stores blocks in a regular file or on a block device, past the page cache where the file system allows.
//!
//! Each request is one operation of the reactor, or a short sequence of them (zeroes where the medium has no operation
//! for it, ranges that are too long for one). Nothing is allocated for a request in the steady state. It neither splits
//! transfers nor locks ranges: [`crate::Guard`] does.
//!
//! A regular file counts as a volatile cache, because only a sync reaches the device's own. Blocks that a hole was punched
//! for read as zeroes; what a device's discarded blocks read as is not promised.

mod health;
mod lane;
mod open;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use weir_block::{
    CompletionSink, FenceReply, Geometry, HealthFuture, HealthReport, Queue, ResizeError,
    ResizeFuture, Volume, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::{AllocateMode, File, FileKind, Reactor, oneshot};

use crate::lane::{Fences, LaneQueue};
use crate::support::{FailedSync, SharedLive, Watchers, check_resize};

pub(crate) use open::open;

/// A file or block device as a volume. See the module.
pub struct FileVolume {
    name: String,
    file: Arc<File>,
    kind: FileKind,
    /// Granularity of deallocation, in bytes; 0: not at all.
    deallocate_bytes: u64,
    geometry: SharedLive,
    watchers: Watchers,
    fences: Fences,
    unsupported: Unsupported,
    failed_sync: FailedSync,
    /// The drive that it is, if it is one.
    drive: Arc<health::Drive>,
}

/// Modes that the medium has refused, by [`AllocateMode`]; it is not asked again.
#[derive(Default)]
struct Unsupported([AtomicBool; AllocateMode::COUNT]);

impl Unsupported {
    fn is(&self, mode: AllocateMode) -> bool {
        self.0[mode as usize].load(Ordering::Relaxed)
    }

    fn set(&self, mode: AllocateMode) {
        self.0[mode as usize].store(true, Ordering::Relaxed);
    }
}

impl Volume for FileVolume {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn name(&self) -> String {
        self.name.clone()
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
        let lane = lane::FileLane::new(Arc::clone(&self));
        let queue = LaneQueue::new(lane, reactor, depth, sink);
        self.fences.add(&queue);
        Ok(Box::new(queue))
    }

    /// Operations on a file end by themselves, so a fence waits for them.
    fn fence(&self, reply: FenceReply) {
        self.fences.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        let reactor = reactor.clone();
        Box::pin(async move {
            let geometry = self.geometry();
            check_resize(&geometry, blocks, force)?;
            if blocks < geometry.blocks && !geometry.read_only {
                // What is in flight behind the new end would take effect there afterwards, and make a file longer again.
                self.geometry.set_blocks(blocks);
                self.drained().await;
            }
            let volume = Arc::clone(&self);
            let set = reactor.offload(move || volume.set_blocks(&geometry, blocks));
            let set = set.await.unwrap_or_else(|| {
                let reason = "setting its length panicked".to_owned();
                Err(ResizeError::Medium { reason })
            });
            let now = self.geometry();
            if now.blocks != geometry.blocks {
                let (before, now) = (geometry.length_bytes(), now.length_bytes());
                tracing::info!(volume = %self.name, before, now, "resized, in bytes");
                self.watchers.tell(VolumeEvent::Resized);
            }
            set.map(|()| now)
        })
    }

    /// Asked of the drive on a thread for blocking work.
    fn health(&self, reactor: &Reactor) -> HealthFuture {
        let (reactor, drive) = (reactor.clone(), Arc::clone(&self.drive));
        Box::pin(async move {
            let report = reactor.offload(move || drive.report()).await;
            report.unwrap_or_else(|| HealthReport::unknown("asking it panicked".to_owned()))
        })
    }
}

fn medium(error: &std::io::Error) -> ResizeError {
    ResizeError::Medium {
        reason: error.to_string(),
    }
}

impl FileVolume {
    /// Ends when all that was submitted before has ended.
    async fn drained(&self) {
        let (sender, drained) = oneshot();
        self.fence(Box::new(move |result| sender.send(result)));
        drained.await;
    }

    /// Sets the number of blocks. Blocks.
    fn set_blocks(&self, before: &Geometry, blocks: u64) -> Result<(), ResizeError> {
        let bytes = blocks << before.block_size.shift();
        let set = match self.kind {
            FileKind::Regular => self.resize_file(before, blocks, bytes),
            FileKind::BlockDevice => self.resize_device(bytes),
        };
        // A file that was cut off stays so, also where that could not be made durable.
        let is_cut = || self.file.length().is_ok_and(|length| length == bytes);
        if set.is_ok() {
            self.geometry.set_blocks(blocks);
        } else if blocks < before.blocks && !is_cut() {
            self.geometry.set_blocks(before.blocks);
        }
        set
    }

    fn resize_file(&self, before: &Geometry, blocks: u64, bytes: u64) -> Result<(), ResizeError> {
        let length = self.file.length().map_err(|error| medium(&error))?;
        if before.read_only && length != bytes {
            return Err(ResizeError::Medium {
                reason: "the file is open read-only".to_owned(),
            });
        }
        if length == bytes && blocks == before.blocks {
            return Ok(());
        }
        self.set_length(bytes)
    }

    /// Sets the file's length, durably.
    fn set_length(&self, bytes: u64) -> Result<(), ResizeError> {
        self.file
            .set_length(bytes)
            .map_err(|error| medium(&error))?;
        self.file.sync_all().map_err(|error| {
            self.failed_sync.note(&self.name, &error);
            medium(&error)
        })
    }

    /// A device has the size that it has; the volume can only follow it.
    fn resize_device(&self, bytes: u64) -> Result<(), ResizeError> {
        let length = self.file.length().map_err(|error| medium(&error))?;
        if bytes <= length {
            return Ok(());
        }
        Err(ResizeError::Medium {
            reason: format!("the device has {length} bytes, fewer than the {bytes} asked for"),
        })
    }
}
