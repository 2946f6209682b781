//! A remote medium: where it is, as whom this host reaches it, and which one it is.

use std::sync::OnceLock;

use weir_block::{BlockSize, Geometry};

use crate::plan::Limits;

/// The remote medium as a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile<Identity> {
    /// What tells it from others.
    pub identity: Identity,
    /// Without its generation, which the volume counts.
    pub geometry: Geometry,
    /// Commands that it takes.
    pub limits: Limits,
}

/// A remote medium, which may not have been reached yet.
pub struct Remote<Options, Host, Identity> {
    /// Where to connect, and how.
    pub options: Options,
    /// This host, as it says to targets who it is.
    pub host: Host,
    /// Connections for I/O that are spread over the queues of the volume; each of these has at least one, also when there are more.
    pub queues_wanted: u16,
    /// The medium that the volume is; it stays that one.
    recognised: OnceLock<(Identity, BlockSize)>,
}

impl<Options, Host, Identity: Clone + PartialEq> Remote<Options, Host, Identity> {
    pub(crate) fn new(options: Options, host: Host, queues_wanted: u16) -> Self {
        Remote {
            options,
            host,
            queues_wanted,
            recognised: OnceLock::new(),
        }
    }

    /// Returns whether the medium is the one that was seen first, as which it stays.
    pub fn recognise(&self, profile: &Profile<Identity>) -> bool {
        let found = (profile.identity.clone(), profile.geometry.block_size);
        let first = self.recognised.get_or_init(|| found);
        first.0 == profile.identity && first.1 == profile.geometry.block_size
    }
}
