//! `null:` discards what is written and reads as zeroes. It measures everything but storage; with a limit to its speed, it
//! shows what everything else makes of storage that is slow.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{
    BlockSize, CompletionSink, FenceReply, Geometry, Landing, Operation, Queue, ReadBuffers,
    ResizeFuture, Volume, VolumeError, VolumeEvent, Watcher, compare_write_halves,
};
use weir_memory::{View, Views};
use weir_reactor::{Key, Reactor};

use crate::lane::{BackEnd, Lane, LaneQueue, Next, Turn, Work};
use crate::pace::{Pace, Wanted};
use crate::support::{LiveGeometry, SharedLive, Watchers, check_resize, compare_views, freeze};
use crate::{Access, UrlError, VolumeUrl};

/// A volume that stores nothing and holds no memory. Everything succeeds, at once unless a limit was asked for; a comparison is
/// with zeroes.
pub struct NullVolume {
    name: String,
    pace: Option<Arc<Pace>>,
    geometry: SharedLive,
    watchers: Watchers,
}

impl NullVolume {
    /// The volume that `null:?size=...&block_size=...&rate=...&delay=...&stall=...` names. The block size is 4096 unless told.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn open(url: &VolumeUrl, access: Access) -> Result<Arc<Self>, UrlError> {
        let wanted = Wanted::of(url, "1G", u64::MAX)?;
        Ok(Arc::new(NullVolume {
            name: url.to_string(),
            geometry: Arc::new(LiveGeometry::new(wanted.geometry(access))),
            pace: wanted.pace,
            watchers: Watchers::default(),
        }))
    }
}

impl Volume for NullVolume {
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
        let lane = NullLane {
            geometry: Arc::clone(&self.geometry),
            pace: self.pace.clone(),
        };
        Ok(Box::new(LaneQueue::new(lane, reactor, depth, sink)))
    }

    fn fence(&self, reply: FenceReply) {
        // Nothing ever takes effect.
        reply(Ok(()));
    }

    fn resize(self: Arc<Self>, _: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        let resized = check_resize(&self.geometry(), blocks, force).map(|()| {
            if self.geometry.set_blocks(blocks) {
                self.watchers.tell(VolumeEvent::Resized);
            }
            self.geometry()
        });
        Box::pin(std::future::ready(resized))
    }
}

struct NullLane {
    geometry: SharedLive,
    pace: Option<Arc<Pace>>,
}

impl BackEnd for NullLane {
    type State = ();
    type Action = Infallible;
    type Held<'a> = ();

    fn hold(&self) -> (Geometry, ()) {
        (self.geometry.get(), ())
    }

    fn landing(&self, _: &Lane<Self>, _lba: u64, _blocks: u32) -> Landing {
        Landing::Anywhere
    }

    #[inline]
    fn start(&self, turn: &Turn<'_>, (): &(), work: Work<'_, ()>) -> Next<Infallible> {
        let result = execute(work.operation, turn.geometry.block_size);
        Pace::next(self.pace.as_ref(), turn.reactor, result)
    }

    fn run(&self, _: &Lane<Self>, _: Key, never: Infallible) {
        match never {}
    }
}

fn execute(operation: &mut Operation, block_size: BlockSize) -> Result<(), VolumeError> {
    match operation {
        Operation::Read {
            blocks, buffers, ..
        } => {
            let bytes = (*blocks as usize) << block_size.shift();
            let filled = match std::mem::replace(buffers, ReadBuffers::Lend) {
                ReadBuffers::Into(mut segments) => {
                    segments.iter_mut().for_each(|segment| segment.fill(0));
                    freeze(segments)
                }
                _ => zeroes(bytes),
            };
            *buffers = ReadBuffers::Filled(filled);
            Ok(())
        }
        Operation::Compare { data, .. } => compare_with_zeroes(data),
        Operation::CompareWrite { data, .. } => compare_with_zeroes(&compare_write_halves(data).0),
        Operation::Write { .. }
        | Operation::WriteZeroes { .. }
        | Operation::Deallocate { .. }
        | Operation::Verify { .. }
        | Operation::Flush => Ok(()),
    }
}

fn compare_with_zeroes(data: &Views) -> Result<(), VolumeError> {
    compare_views(data, &zeroes(weir_memory::views_len(data)))
}

/// One view as a rule: that is pushed, since collecting costs more than the rest of a read.
fn zeroes(bytes: usize) -> Views {
    let mut views = Views::new();
    View::zeroes(bytes).for_each(|view| views.push(view));
    views
}
