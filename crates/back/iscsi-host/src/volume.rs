//! This program as an iSCSI initiator: who opens volumes.

use std::path::PathBuf;
use std::sync::Arc;

use weir_block::Volume;
use weir_initiator::{Opening, RemoteVolume, Volumes};
use weir_iscsi::Name;
use weir_reactor::Reactor;
use weir_volume::{Factory, OpenError, OpenRequest};

use crate::options::Options;
use crate::protocol::Iscsi;
use crate::session::{ConnectError, identity};

/// A logical unit of a remote target.
pub type IscsiVolume = RemoteVolume<Iscsi>;

/// This program as an iSCSI initiator: its name, and what it has open.
pub struct IscsiHost {
    name: Name,
    reactors: u16,
    volumes: Volumes<Iscsi>,
}

impl IscsiHost {
    /// An initiator of this name, whose volumes are used on up to `reactors` reactors.
    ///
    /// # Panics
    /// When `reactors` is 0.
    #[must_use]
    pub fn new(name: Name, reactors: u16) -> Arc<IscsiHost> {
        assert!(reactors > 0, "a volume is used on a reactor");
        Arc::new(IscsiHost {
            name,
            reactors,
            volumes: Volumes::default(),
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Logs in to a target. `reactor` becomes the home of the unit: the session that keeps the association stays there.
    ///
    /// # Errors
    /// [`ConnectError`]. The first login is tried once.
    pub async fn open(
        &self,
        reactor: &Reactor,
        options: Options,
        read_only: bool,
    ) -> Result<Arc<IscsiVolume>, ConnectError> {
        self.open_beneath(reactor, options, read_only, None).await
    }

    async fn open_beneath(
        &self,
        reactor: &Reactor,
        options: Options,
        read_only: bool,
        beneath: Option<PathBuf>,
    ) -> Result<Arc<IscsiVolume>, ConnectError> {
        let identity = identity(reactor, &options, &self.name, beneath).await?;
        let opening = Opening {
            queues: options.sessions,
            options,
            host: identity,
            reactors: self.reactors,
            read_only,
        };
        self.volumes.open(reactor, opening).await
    }

    /// Opens `iscsi:` volumes for a [`weir_volume::Registry`], under [`SCHEME`](crate::SCHEME).
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
        let read_only = request.access.read_only;
        let opened = self.open_beneath(&request.reactor, options, read_only, request.beneath);
        let volume = opened.await.map_err(|error| OpenError::Medium {
            url: request.url.to_string(),
            reason: error.to_string(),
        })?;
        Ok(volume)
    }

    /// Logs out of everything in an orderly way, and waits until that is done. Requests fail with
    /// [`weir_block::VolumeError::Lost`] from now on.
    pub async fn close_all(&self) {
        self.volumes.close_all().await;
    }
}
