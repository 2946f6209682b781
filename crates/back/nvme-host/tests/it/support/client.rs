//! A volume's queue as a test uses it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use weir_block::{
    Completion, Completions, Operation, Queue, ReadBuffers, Request, Token, Volume, VolumeError,
    VolumeEvent, Watcher,
};
use weir_memory::{Segment, Segments, Views};
use weir_reactor::Reactor;

/// A queue of a volume as a test uses it: one request at a time, or several.
pub(crate) struct Client {
    pub(crate) queue: Box<dyn Queue>,
    pub(crate) completions: Rc<Completions>,
    next: u32,
}

impl Client {
    pub(crate) fn new(volume: &Arc<dyn Volume>, reactor: &Reactor, depth: u32) -> Client {
        let completions = Completions::new();
        let queue = Arc::clone(volume)
            .open_queue(reactor, depth, completions.clone())
            .unwrap();
        Client {
            queue,
            completions,
            next: 0,
        }
    }

    /// Submits a request; its token. There must be room.
    pub(crate) fn submit(&mut self, operation: Operation) -> Token {
        let token = Token {
            owner: 0,
            slot: self.next,
            generation: 0,
        };
        self.next += 1;
        let mut batch = VecDeque::from([Request { token, operation }]);
        self.completions.submit(&mut *self.queue, &mut batch);
        assert!(batch.is_empty(), "there is room");
        token
    }

    /// The slot of the next request's token.
    pub(crate) fn next_slot(&self) -> u32 {
        self.next
    }

    pub(crate) async fn next(&mut self) -> Completion {
        self.completions.next().await
    }

    pub(crate) async fn call(&mut self, operation: Operation) -> Completion {
        let token = self.submit(operation);
        let completion = self.next().await;
        assert_eq!(completion.token, token);
        completion
    }

    pub(crate) async fn write(
        &mut self,
        lba: u64,
        data: &[u8],
        size: usize,
    ) -> Result<(), VolumeError> {
        self.call(write(lba, data, size)).await.result
    }

    pub(crate) async fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, VolumeError> {
        let completion = self
            .call(Operation::Read {
                lba,
                blocks,
                buffers: ReadBuffers::Lend,
            })
            .await;
        completion.result.map(|()| data_of(&completion.operation))
    }
}

pub(crate) fn write(lba: u64, data: &[u8], size: usize) -> Operation {
    Operation::Write {
        lba,
        blocks: (data.len() / size) as u32,
        data: views(data),
        fua: false,
    }
}

/// Data in uneven pieces, as it may come from anywhere.
pub(crate) fn views(data: &[u8]) -> Views {
    let cut = data.len() / 3;
    [&data[..cut], &data[cut..]]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| Segment::copy_of(part).freeze())
        .collect()
}

/// Segments of uneven lengths, for `length` bytes.
pub(crate) fn segments(length: usize) -> Segments {
    let cut = length / 3;
    [cut, length - cut]
        .into_iter()
        .filter(|&length| length > 0)
        .map(Segment::heap)
        .collect()
}

pub(crate) fn data_of(operation: &Operation) -> Vec<u8> {
    let Operation::Read {
        buffers: ReadBuffers::Filled(views),
        ..
    } = operation
    else {
        panic!("a read that succeeded has data: {operation:?}")
    };
    views.iter().flat_map(|view| view.iter().copied()).collect()
}

/// Bytes that differ from those of another seed, and from their neighbours.
pub(crate) fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed)
        .collect()
}

/// What a watcher was told.
pub(crate) struct Events(Mutex<Vec<VolumeEvent>>);

impl Events {
    pub(crate) fn watch(volume: &Arc<dyn Volume>) -> Arc<Events> {
        let events = Arc::new(Events(Mutex::default()));
        let watcher: Arc<dyn Watcher> = events.clone();
        volume.watch(Arc::downgrade(&watcher));
        events
    }

    pub(crate) fn seen(&self) -> Vec<VolumeEvent> {
        self.0.lock().unwrap().clone()
    }
}

impl Watcher for Events {
    fn notice(&self, event: VolumeEvent) {
        self.0.lock().unwrap().push(event);
    }
}
