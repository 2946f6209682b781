//! This program as an NVMe host: who opens volumes.

use std::sync::Arc;

use weir_block::Volume;
use weir_initiator::{Opening, RemoteVolume, Volumes};
use weir_reactor::{Reactor, System};
use weir_volume::{Factory, OpenError, OpenRequest};

use crate::association::ConnectError;
use crate::options::{HostIdentity, Options};
use crate::protocol::NvmeTcp;

/// A namespace of a remote subsystem.
pub type NvmeVolume = RemoteVolume<NvmeTcp>;

/// This program as an NVMe host: who it says it is, and what it has open.
pub struct NvmeHost {
    identity: HostIdentity,
    reactors: u16,
    volumes: Volumes<NvmeTcp>,
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
            volumes: Volumes::default(),
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
        let opening = Opening {
            queues: options.queues,
            options,
            host: identity,
            reactors: self.reactors,
            read_only,
        };
        self.volumes.open(reactor, opening).await
    }

    /// Opens `nvme+tcp:` volumes for a [`weir_volume::Registry`], under [`SCHEME`](crate::SCHEME).
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

    /// Disconnects everything in an orderly way, and waits until that is done. Requests fail with [`weir_block::VolumeError::Lost`]
    /// from now on.
    pub async fn close_all(&self) {
        self.volumes.close_all().await;
    }
}
