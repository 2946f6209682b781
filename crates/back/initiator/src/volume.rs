//! The volume that a remote medium is, and those that this program has open.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, InFlight, Landing, Queue, Request,
    ResizeError, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_memory::{Pool, Segments};
use weir_reactor::{Reactor, oneshot};

use crate::home::Home;
use crate::lock::lock;
use crate::protocol::{Association, Next, Protocol};
use crate::queue::IoQueue;
use crate::shared::{HomeMessage, Shared};

/// A volume that is to be opened.
pub struct Opening<P: Protocol> {
    /// Where to connect, and how.
    pub options: P::Options,
    /// This host, as it says to targets who it is.
    pub host: P::Host,
    /// Connections for I/O that are spread over the reactors; `None`: one for each.
    pub queues: Option<u16>,
    /// Reactors on which the volume is used, at most.
    pub reactors: u16,
    /// Whether nothing may be written.
    pub read_only: bool,
}

/// The volumes that one initiator has open.
pub struct Volumes<P: Protocol>(Mutex<Vec<Weak<Shared<P>>>>);

impl<P: Protocol> Default for Volumes<P> {
    fn default() -> Self {
        Volumes(Mutex::default())
    }
}

impl<P: Protocol> Volumes<P> {
    /// Makes the first association of a volume. `reactor` becomes its home: what keeps the association stays there.
    ///
    /// # Errors
    /// The first association is tried once.
    pub async fn open(
        &self,
        reactor: &Reactor,
        opening: Opening<P>,
    ) -> Result<Arc<RemoteVolume<P>>, P::ConnectError> {
        let Opening {
            options,
            host,
            queues,
            reactors,
            read_only,
        } = opening;
        let shared = Arc::new(Shared::new(options, host, queues, reactors, read_only));
        let next = Next {
            generation: 1,
            queues_used: 0,
        };
        let first = P::establish(reactor, &shared.remote, next).await?;
        Home::start(reactor, Arc::clone(&shared), first);
        let mut open = lock(&self.0);
        open.retain(|volume| volume.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        Ok(Arc::new(RemoteVolume { shared }))
    }

    /// Disconnects everything in an orderly way, and waits until that is done. Requests fail with [`VolumeError::Lost`]
    /// from now on.
    pub async fn close_all(&self) {
        let open: Vec<_> = lock(&self.0).drain(..).collect();
        let closing = open.iter().filter_map(Weak::upgrade).map(|shared| {
            let (sender, receiver) = oneshot();
            shared.home.post(HomeMessage::Close(Some(sender)));
            receiver
        });
        for receiver in closing.collect::<Vec<_>>() {
            receiver.await;
        }
    }
}

/// A remote medium.
///
/// Dropping it, when no queue of it is left, disconnects: the target is told, then the connections are closed.
pub struct RemoteVolume<P: Protocol> {
    shared: Arc<Shared<P>>,
}

impl<P: Protocol> RemoteVolume<P> {
    /// Disconnects in an orderly way, and waits until that is done. Requests fail with [`VolumeError::Lost`] from now on.
    pub async fn close(&self) {
        let (sender, receiver) = oneshot();
        self.shared.home.post(HomeMessage::Close(Some(sender)));
        receiver.await;
    }

    /// The association in use; none while the target is lost.
    #[must_use]
    pub fn association(&self) -> Option<Arc<Association<P>>> {
        self.shared.association()
    }

    /// Where it is, and how it is reached.
    #[must_use]
    pub fn options(&self) -> &P::Options {
        &self.shared.remote.options
    }
}

impl<P: Protocol> Drop for RemoteVolume<P> {
    fn drop(&mut self) {
        self.shared.home.post(HomeMessage::Close(None));
    }
}

impl<P: Protocol> Volume for RemoteVolume<P> {
    fn geometry(&self) -> Geometry {
        self.shared.geometry()
    }

    fn name(&self) -> String {
        self.shared.name()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.shared.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let member = self.shared.join()?;
        let shared = Arc::clone(&self.shared);
        let shift = shared.geometry().block_size.shift();
        let queue = IoQueue::start(reactor, &shared, member, depth, sink, self);
        Ok(Box::new(RemoteQueue {
            queue,
            reactor: reactor.clone(),
            shift,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.shared.home.post(HomeMessage::Fence(reply));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        // The size is the target's to change; this volume sees it change.
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: P::SCHEME,
        })))
    }
}

struct RemoteQueue<P: Protocol> {
    queue: Rc<IoQueue<P>>,
    reactor: Reactor,
    shift: u32,
}

impl<P: Protocol> Queue for RemoteQueue<P> {
    fn landing(&mut self, _: u64, blocks: u32) -> Landing {
        let mut left = (blocks as usize) << self.shift;
        let mut segments = Segments::new();
        while left > 0 {
            let length = left.min(Pool::LONGEST);
            match self.reactor.pool().segment(length) {
                Ok(segment) => segments.push(segment),
                Err(_) => return Landing::Wait,
            }
            left -= length;
        }
        Landing::Ready(segments)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        self.queue.submit(batch, done);
    }

    fn cancel(&mut self, token: Token) {
        self.queue.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        self.queue.in_flight(visit);
    }
}

impl<P: Protocol> Drop for RemoteQueue<P> {
    fn drop(&mut self) {
        self.queue.leave();
    }
}
