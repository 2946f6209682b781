//! `null:` discards what is written and reads as zeroes. It measures everything but storage; with a limit to its speed, it
//! shows what everything else makes of storage that is slow.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::{
    BlockSize, Completion, CompletionSink, DeallocatedRead, FenceReply, Geometry, InFlight,
    Landing, Operation, Queue, ReadBuffers, Request, ResizeFuture, Token, Volume, VolumeError,
    VolumeEvent, Watcher, compare_write_halves,
};
use weir_memory::{View, Views};
use weir_reactor::Reactor;

use crate::pace::{Ends, Pace};
use crate::support::{
    SharedLive, TRANSFER_BYTES_MAX, Watchers, blocks_of_size, check, check_resize, compare_views,
    freeze,
};
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
        url.expect_no_place()?;
        let parameters = url.parameters();
        let size = parameters.size("size")?;
        let block_size = parameters.block_size()?.unwrap_or(BlockSize::B4096);
        let size = parameters.required("size", size, "its size, such as 1G")?;
        let pace = Pace::of(&parameters)?;
        parameters.finish()?;
        let blocks = blocks_of_size(size, block_size)?;
        Ok(NullVolume::new(
            url.to_string(),
            block_size,
            blocks,
            access.read_only,
            pace,
        ))
    }

    fn new(
        name: String,
        block_size: BlockSize,
        blocks: u64,
        read_only: bool,
        pace: Option<Arc<Pace>>,
    ) -> Arc<Self> {
        let transfer_blocks_max = TRANSFER_BYTES_MAX >> block_size.shift();
        let geometry = Geometry {
            generation: 0,
            block_size,
            blocks,
            transfer_blocks_max,
            transfer_blocks_optimal: 1,
            memory_alignment: 1,
            deallocate_blocks: 1,
            deallocated_read: DeallocatedRead::Zeroes,
            volatile_cache: false,
            read_only,
            atomic_blocks: transfer_blocks_max,
            atomic_blocks_power_fail: transfer_blocks_max,
            compare_write_blocks: transfer_blocks_max,
        };
        Arc::new(NullVolume {
            name,
            pace,
            geometry: Arc::new(crate::support::LiveGeometry::new(geometry)),
            watchers: Watchers::default(),
        })
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
        Ok(Box::new(NullQueue {
            geometry: Arc::clone(&self.geometry),
            ends: Ends::new(reactor, depth, sink, self.pace.as_ref()),
        }))
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

struct NullQueue {
    geometry: SharedLive,
    ends: Ends,
}

impl Queue for NullQueue {
    fn landing(&mut self, _lba: u64, _blocks: u32) -> Landing {
        Landing::Anywhere
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        let geometry = self.geometry.get();
        let taken = self.ends.room().min(batch.len());
        for Request {
            token,
            mut operation,
        } in batch.drain(..taken)
        {
            let result = check(&geometry, &operation)
                .and_then(|()| execute(&mut operation, geometry.block_size));
            let completion = Completion {
                token,
                result,
                operation,
            };
            self.ends.push(completion, done);
        }
    }

    fn cancel(&mut self, _token: Token) {
        // Whatever was taken is done already, or ends when it is due.
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.ends.in_flight(visit);
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
