//! The volume that a namespace is, and who opens it.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, InFlight, Landing, Queue, Request,
    ResizeError, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_memory::{Pool, Segments};
use weir_nvme::Nqn;
use weir_reactor::{Reactor, System, oneshot};
use weir_volume::{Factory, OpenError, OpenRequest};

use crate::association::{ConnectError, establish};
use crate::home::Home;
use crate::options::{HostIdentity, Options};
use crate::queue::IoQueue;
use crate::shared::lock;
use crate::shared::{HomeMessage, Shared};

/// The scheme of the URLs of this crate's volumes.
pub const SCHEME: &str = "nvme+tcp";

/// This program as an NVMe host: who it says it is, and what it has open.
pub struct NvmeHost {
    identity: HostIdentity,
    reactors: u16,
    open: Mutex<Vec<Weak<Shared>>>,
}

impl NvmeHost {
    /// A host that is `identity` to controllers, and whose volumes are used on up to `reactors` reactors.
    ///
    /// # Panics
    /// When `reactors` is 0.
    #[must_use]
    pub fn new(identity: HostIdentity, reactors: u16) -> Arc<NvmeHost> {
        assert!(reactors > 0, "a volume is used on a reactor");
        Arc::new(NvmeHost {
            identity,
            reactors,
            open: Mutex::default(),
        })
    }

    /// A host with a name of its own, made of the system's randomness: it is another one each time.
    #[must_use]
    pub fn random(system: &dyn System, reactors: u16) -> Arc<NvmeHost> {
        let mut bytes = [0; 16];
        system.random_bytes(&mut bytes);
        NvmeHost::new(HostIdentity::from_random(bytes), reactors)
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &HostIdentity {
        &self.identity
    }

    /// Who it is under `options`, which may say otherwise.
    #[must_use]
    pub fn identity_for(&self, options: &Options) -> HostIdentity {
        let Options {
            host_nqn, host_id, ..
        } = options;
        HostIdentity {
            nqn: host_nqn
                .clone()
                .unwrap_or_else(|| self.identity.nqn.clone()),
            id: host_id.unwrap_or(self.identity.id),
        }
    }

    /// Connects to a namespace. `reactor` becomes its home: the admin queue and what keeps the association alive stay there.
    ///
    /// # Errors
    /// [`ConnectError`]. The first connection is tried once.
    pub async fn open(
        &self,
        reactor: &Reactor,
        options: Options,
        read_only: bool,
    ) -> Result<Arc<NvmeVolume>, ConnectError> {
        let identity = self.identity_for(&options);
        let shared = Arc::new(Shared::new(options, identity, self.reactors, read_only));
        let first = establish(reactor, &shared, 1).await?;
        Home::start(reactor, Arc::clone(&shared), first);
        let mut open = lock(&self.open);
        open.retain(|volume| volume.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        Ok(Arc::new(NvmeVolume { shared }))
    }

    /// Opens `nvme+tcp:` volumes for a [`weir_volume::Registry`], under [`SCHEME`].
    #[must_use]
    pub fn factory(self: &Arc<Self>) -> Factory {
        let host = Arc::clone(self);
        Arc::new(move |request: OpenRequest| {
            let host = Arc::clone(&host);
            Box::pin(async move { host.open_url(request).await })
        })
    }

    async fn open_url(&self, request: OpenRequest) -> Result<Arc<dyn Volume>, OpenError> {
        let options = Options::from_url(&request.url)?;
        let opened = self.open(&request.reactor, options, request.access.read_only);
        let volume = opened.await.map_err(|error| OpenError::Medium {
            url: request.url.to_string(),
            reason: error.to_string(),
        })?;
        Ok(volume)
    }

    /// Disconnects everything in an orderly way, and waits until that is done. Requests fail with [`VolumeError::Lost`]
    /// from now on.
    pub async fn close_all(&self) {
        let open: Vec<_> = lock(&self.open).drain(..).collect();
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

/// A namespace of a remote subsystem.
///
/// Dropping it, when no queue of it is left, disconnects: the controller is shut down, then the connections are closed.
pub struct NvmeVolume {
    shared: Arc<Shared>,
}

impl NvmeVolume {
    /// Disconnects in an orderly way, and waits until that is done. Requests fail with [`VolumeError::Lost`] from now on.
    pub async fn close(&self) {
        let (sender, receiver) = oneshot();
        self.shared.home.post(HomeMessage::Close(Some(sender)));
        receiver.await;
    }

    /// NQN of the subsystem.
    #[must_use]
    pub fn subsystem(&self) -> &Nqn {
        &self.shared.options.subsystem
    }
}

impl Drop for NvmeVolume {
    fn drop(&mut self) {
        self.shared.home.post(HomeMessage::Close(None));
    }
}

impl Volume for NvmeVolume {
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
        Ok(Box::new(NvmeQueue {
            queue,
            reactor: reactor.clone(),
            shift,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.shared.home.post(HomeMessage::Fence(reply));
    }

    fn resize(self: Arc<Self>, _: &Reactor, _: u64, _: bool) -> ResizeFuture {
        // The size of a namespace is the target's to change; this volume sees it change.
        Box::pin(std::future::ready(Err(ResizeError::Unsupported {
            kind: "nvme+tcp",
        })))
    }
}

struct NvmeQueue {
    queue: Rc<IoQueue>,
    reactor: Reactor,
    shift: u32,
}

impl Queue for NvmeQueue {
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

impl Drop for NvmeQueue {
    fn drop(&mut self) {
        self.queue.leave();
    }
}
