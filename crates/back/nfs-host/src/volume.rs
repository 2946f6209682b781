//! This program as an NFS client: who opens volumes.

use std::sync::{Arc, Mutex, OnceLock};

use weir_block::Volume;
use weir_initiator::{Opening, RemoteVolume, Volumes};
use weir_reactor::Reactor;
use weir_volume::{Factory, OpenError, OpenRequest};

use crate::asking::{ConnectError, Identity, Lasting};
use crate::options::Options;
use crate::protocol::Nfs;

/// A file on a server.
pub type NfsVolume = RemoteVolume<Nfs>;

/// The user that this program is for servers (AUTH_SYS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The machine's name.
    pub machine: String,
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
}

impl User {
    /// The user of this process, on this machine.
    #[must_use]
    pub fn of_this_process() -> User {
        let machine = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        User {
            // More would not fit a credential.
            machine: machine.chars().filter(char::is_ascii).take(255).collect(),
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
        }
    }
}

/// This program as an NFS client: its user, and what it has open.
pub struct NfsHost {
    user: User,
    reactors: u16,
    volumes: Volumes<Nfs>,
}

impl NfsHost {
    /// A client of this user, whose volumes are used on up to `reactors` reactors.
    ///
    /// # Panics
    /// When `reactors` is 0.
    #[must_use]
    pub fn new(user: User, reactors: u16) -> Arc<NfsHost> {
        assert!(reactors > 0, "a volume is used on a reactor");
        Arc::new(NfsHost {
            user,
            reactors,
            volumes: Volumes::default(),
        })
    }

    /// Opens a file, under a session of its own. `reactor` becomes the home of the volume: the connection that keeps watch stays there.
    ///
    /// # Errors
    /// [`ConnectError`]. The first association is tried once.
    pub async fn open(
        &self,
        reactor: &Reactor,
        options: Options,
        read_only: bool,
    ) -> Result<Arc<NfsVolume>, ConnectError> {
        let (mut name, mut verifier) = ([0; 16], [0; 8]);
        reactor.system().random_bytes(&mut name);
        reactor.system().random_bytes(&mut verifier);
        let name = u128::from_ne_bytes(name);
        let identity = Identity {
            machine: self.user.machine.clone(),
            uid: options.uid.unwrap_or(self.user.uid),
            gid: options.gid.unwrap_or(self.user.gid),
            owner: format!("weir {} {name:032x}", self.user.machine).into_bytes(),
            read_only,
            revoked: Arc::default(),
            block_size: OnceLock::new(),
            table: Arc::default(),
            lasting: Mutex::new(Lasting::new(verifier)),
        };
        let opening = Opening {
            queues: options.connections,
            options,
            host: identity,
            reactors: self.reactors,
            read_only,
        };
        self.volumes.open(reactor, opening).await
    }

    /// Slots that a server grants a session of this client, which all connections of a volume share; none in version 3.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn slots(
        &self,
        reactor: &Reactor,
        options: Options,
    ) -> Result<Option<u32>, ConnectError> {
        let volume = self.open(reactor, options, true).await?;
        let association = volume.association();
        volume.close().await;
        Ok(association.and_then(|association| association.details.slots()))
    }

    /// Opens `nfs:` volumes for a [`weir_volume::Registry`], under [`SCHEME`](crate::SCHEME).
    #[must_use]
    pub fn factory(self: &Arc<Self>) -> Factory {
        let host = Arc::clone(self);
        Arc::new(move |request: OpenRequest| {
            let host = Arc::clone(&host);
            Box::pin(async move { host.open_url(request).await })
        })
    }

    async fn open_url(&self, request: OpenRequest) -> Result<Arc<dyn Volume>, OpenError> {
        let mut options = Options::from_url(&request.url)?;
        if request.registry.is_existing_only() {
            options.size = None;
        }
        let read_only = request.access.read_only;
        let opened = self.open(&request.reactor, options, read_only);
        let volume = opened.await.map_err(|error| OpenError::Medium {
            url: request.url.to_string(),
            reason: error.to_string(),
        })?;
        Ok(volume)
    }

    /// Takes leave of all servers in an orderly way, and waits until that is done. Requests fail with
    /// [`weir_block::VolumeError::Lost`] from now on.
    pub async fn close_all(&self) {
        self.volumes.close_all().await;
    }
}
