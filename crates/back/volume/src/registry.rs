//! From URLs to volumes.
//!
//! A registry knows the schemes of this crate; others are added by the binary, so that what is below never knows what is
//! above it. A volume that is made of volumes opens them through the registry that opens it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use weir_block::{Volume, VolumeError};
use weir_reactor::{File, FileInfo, LocalFuture, OpenOptions, Reactor};

use crate::support::lock;
use crate::{MemVolume, NullVolume, UrlError, VolumeUrl, set, url};

/// How a volume is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Access {
    /// Only to read. Otherwise the medium is taken for writing, and nobody else may have it so.
    pub read_only: bool,
}

impl Access {
    /// To read only.
    pub const READ_ONLY: Access = Access { read_only: true };
    /// To read and write.
    pub const READ_WRITE: Access = Access { read_only: false };
}

/// Why a volume was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Its URL is wrong.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// There is no such kind of volume.
    #[error("there are no {scheme}: volumes{}; there are {}", .closest.as_ref().map(|closest| format!("; did you mean {closest}:?")).unwrap_or_default(), .known.join(", "))]
    Scheme {
        /// The scheme.
        scheme: String,
        /// A similar one.
        closest: Option<String>,
        /// All that there are.
        known: Vec<String>,
    },
    /// The medium is open for writing already.
    #[error("{url} is in use: {reason}; a medium is opened for writing once")]
    InUse {
        /// The volume.
        url: String,
        /// What said so.
        reason: String,
    },
    /// The system refused.
    #[error("{url} cannot be opened: {source}")]
    System {
        /// The volume.
        url: String,
        /// Why.
        source: std::io::Error,
    },
    /// The medium is not as the URL says, or cannot do what it asks for.
    #[error("{url} cannot be opened: {reason}")]
    Medium {
        /// The volume.
        url: String,
        /// What does not fit, and what to do about it.
        reason: String,
    },
    /// A volume that it is made of could not be opened.
    #[error("member {member} of {url}: {source}")]
    Member {
        /// The volume.
        url: String,
        /// The member, counted from 0 in the order of the URL.
        member: usize,
        /// Why.
        source: Box<OpenError>,
    },
    /// It was opened, and reading or writing it failed.
    #[error("{url} cannot be opened: {action} failed: {source}")]
    Volume {
        /// The volume.
        url: String,
        /// What was tried.
        action: &'static str,
        /// How it failed.
        source: VolumeError,
    },
}

impl OpenError {
    /// The medium of this volume is not as its URL says, or cannot do what it asks for.
    pub fn medium(url: &VolumeUrl, reason: impl Into<String>) -> Self {
        OpenError::Medium {
            url: url.to_string(),
            reason: reason.into(),
        }
    }

    /// Whether someone else has the medium, or that of a volume that it is made of, and may let go of it.
    pub fn in_use(&self) -> bool {
        match self {
            Self::InUse { .. } => true,
            Self::Member { source, .. } => source.in_use(),
            _ => false,
        }
    }
}

/// What a factory is given.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The registry that opens it; members are opened through it.
    pub registry: Registry,
    /// The reactor that the factory runs on.
    pub reactor: Reactor,
    /// What to open.
    pub url: VolumeUrl,
    /// How.
    pub access: Access,
    /// The folder that a file that the URL's path names must lie in, where links lead ([`Gate`]).
    pub beneath: Option<PathBuf>,
}

impl OpenRequest {
    /// Opens a volume that this one is made of; members count from 0 in the order of the URL.
    ///
    /// # Errors
    /// [`OpenError::Member`].
    pub async fn open_member(
        &self,
        member: usize,
        url: &VolumeUrl,
    ) -> Result<Arc<dyn Volume>, OpenError> {
        let opened = self.registry.open(&self.reactor, url, self.access);
        opened.await.map_err(|source| OpenError::Member {
            url: self.url.to_string(),
            member,
            source: Box::new(source),
        })
    }

    /// Opens a file on a thread for blocking work, where the URL's volume may lie.
    ///
    /// # Errors
    /// Those of [`weir_reactor::System::open_file`].
    pub async fn open_file(
        &self,
        path: impl Into<PathBuf>,
        options: OpenOptions,
    ) -> io::Result<(Arc<File>, FileInfo)> {
        let (system, path) = (Arc::clone(self.reactor.system()), path.into());
        let options = OpenOptions {
            beneath: self.beneath.clone(),
            ..options
        };
        let opened = self
            .reactor
            .offload(move || system.open_file(&path, &options));
        let panicked = || Err(io::Error::other("opening it panicked"));
        opened.await.unwrap_or_else(panicked)
    }
}

/// Opens the volumes of one scheme.
pub type Factory =
    Arc<dyn Fn(OpenRequest) -> LocalFuture<Result<Arc<dyn Volume>, OpenError>> + Send + Sync>;

/// Something a user should know about a volume that was opened all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// The volume.
    pub url: String,
    /// What it is.
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.url, self.text)
    }
}

/// Notices kept for [`Registry::take_notices`]; older ones are dropped, having been logged.
const NOTICES_MAX: usize = 64;

/// The kinds of volume. Clones share their notices.
#[derive(Clone, Default)]
pub struct Registry {
    factories: BTreeMap<String, Factory>,
    notices: Arc<Mutex<Vec<Notice>>>,
    existing_only: bool,
    gate: Option<Gate>,
}

/// Says why a volume may not be opened; or the folder that its file must lie in when it is, where there is one.
pub type Gate = Arc<dyn Fn(&VolumeUrl) -> Result<Option<PathBuf>, String> + Send + Sync>;

impl Registry {
    /// Without any kind.
    #[must_use]
    pub fn new() -> Self {
        Registry::default()
    }

    /// With the kinds of this crate.
    #[must_use]
    pub fn standard() -> Self {
        let mut registry = Registry::new();
        registry.register_plain("null", NullVolume::open);
        registry.register_plain("mem", MemVolume::open);
        registry.register(
            "file",
            Arc::new(|request| Box::pin(crate::file::open(request))),
        );
        for &kind in set::KINDS {
            let open = move |request| -> LocalFuture<_> { Box::pin(set::open(kind, request)) };
            registry.register(kind.scheme(), Arc::new(open));
        }
        registry
    }

    /// The same kinds, but only media that are there: a file that is missing is an error and not made anew, so that an
    /// empty one never takes the place of data that was there before. A file that is longer than its `size=` is taken as it
    /// is: it grew after that was written.
    #[must_use]
    pub fn for_existing(&self) -> Self {
        Registry {
            existing_only: true,
            ..self.clone()
        }
    }

    /// The same kinds, with notices of its own: of what is opened by way of this one, and its clones, alone.
    #[must_use]
    pub fn with_own_notices(&self) -> Self {
        Registry {
            notices: Arc::default(),
            ..self.clone()
        }
    }

    /// The same kinds, but only volumes that `gate` lets pass, and only those of volumes made of volumes whose members it lets pass too.
    #[must_use]
    pub fn gated(&self, gate: Gate) -> Self {
        Registry {
            gate: Some(gate),
            ..self.clone()
        }
    }

    /// Whether media that are missing may not be made.
    #[must_use]
    pub fn is_existing_only(&self) -> bool {
        self.existing_only
    }

    /// Adds a kind, or replaces it.
    ///
    /// # Panics
    /// When `scheme` is not a scheme in lower case.
    pub fn register(&mut self, scheme: &str, factory: Factory) {
        assert_eq!(
            VolumeUrl::new(scheme, "").scheme(),
            scheme,
            "schemes are registered in lower case"
        );
        self.factories.insert(scheme.to_owned(), factory);
    }

    /// Adds a kind of volumes that need nothing but their URL, as [`Registry::register`].
    ///
    /// # Panics
    /// When `scheme` is not a scheme in lower case.
    pub fn register_plain<V: Volume + 'static>(
        &mut self,
        scheme: &str,
        open: fn(&VolumeUrl, Access) -> Result<Arc<V>, UrlError>,
    ) {
        let opened = move |request: OpenRequest| -> Result<Arc<dyn Volume>, OpenError> {
            Ok(open(&request.url, request.access)?)
        };
        self.register(
            scheme,
            Arc::new(move |request| Box::pin(std::future::ready(opened(request)))),
        );
    }

    /// The schemes that it knows.
    pub fn schemes(&self) -> impl Iterator<Item = &str> {
        self.factories.keys().map(String::as_str)
    }

    /// Opens a volume. `reactor` does the I/O that opening needs; queues may be opened on any reactor of its system.
    ///
    /// # Errors
    /// [`OpenError`].
    pub async fn open(
        &self,
        reactor: &Reactor,
        url: &VolumeUrl,
        access: Access,
    ) -> Result<Arc<dyn Volume>, OpenError> {
        let beneath = match &self.gate {
            None => None,
            Some(gate) => gate(url).map_err(|reason| OpenError::medium(url, reason))?,
        };
        let Some(factory) = self.factories.get(url.scheme()) else {
            let known: Vec<_> = self.schemes().collect();
            return Err(OpenError::Scheme {
                scheme: url.scheme().to_owned(),
                closest: url::closest(url.scheme(), &known),
                known: known.iter().map(|scheme| format!("{scheme}:")).collect(),
            });
        };
        let request = OpenRequest {
            registry: self.clone(),
            reactor: reactor.clone(),
            url: url.clone(),
            access,
            beneath,
        };
        factory(request).await
    }

    /// Says something about a volume: in the log, and to whoever takes the notices.
    pub fn notice(&self, url: &VolumeUrl, text: String) {
        let url = url.to_string();
        tracing::warn!(volume = %url, "{text}");
        let mut notices = lock(&self.notices);
        if notices.len() == NOTICES_MAX {
            notices.remove(0);
        }
        notices.push(Notice { url, text });
    }

    /// What was said about volumes since this was last asked, for a command line to show.
    #[must_use]
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut lock(&self.notices))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.schemes()).finish()
    }
}
