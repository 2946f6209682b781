//! What an `rbd:` URL says.
//!
//! Text in, typed values out; nothing is opened here.

use std::fmt;
use std::time::Duration;

use weir_block::BlockSize;
use weir_volume::url::value_error;
use weir_volume::{Parameters, UrlError, VolumeUrl};

/// Images that share a client, where the URL does not say, or leaves it to measurement.
pub(crate) const IMAGES_PER_CLIENT: u32 = 32;
/// The most images that may share a client.
pub(crate) const IMAGES_PER_CLIENT_MAX: u32 = 1024;
/// After how long a request has timed out, where the URL does not say. More than the 27 s for which a hung OSD was seen to hold
/// requests up.
pub(crate) const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a fence may take before the volume counts as lost, where the URL does not say.
pub(crate) const FENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time-out that may be asked for.
pub(crate) const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);
/// The shortest.
pub(crate) const TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// What may be cached by librbd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Cache {
    /// Nothing: a write that ended is durable.
    #[default]
    Off,
    /// Reads; a write that ended is durable.
    WriteThrough,
    /// Writes in flight, which end before they are durable.
    WriteAround,
    /// Reads and writes; writes end before they are durable.
    WriteBack,
}

impl Cache {
    const NAMES: [(&'static str, Cache); 4] = [
        ("off", Cache::Off),
        ("writethrough", Cache::WriteThrough),
        ("writearound", Cache::WriteAround),
        ("writeback", Cache::WriteBack),
    ];

    /// Whether a write may end before it is durable.
    #[must_use]
    pub fn is_volatile(self) -> bool {
        matches!(self, Cache::WriteAround | Cache::WriteBack)
    }

    /// librbd's `rbd_cache_policy`, where there is a cache.
    pub(crate) fn policy(self) -> Option<&'static str> {
        let name = Cache::NAMES.iter().find(|&&(_, cache)| cache == self);
        name.map(|&(name, _)| name).filter(|_| self != Cache::Off)
    }
}

/// How many images share the client that an image is opened on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// So many at most.
    Images(u32),
    /// As many as usual, until measurement says that the client is this image's limit: then it has one of its own.
    Auto,
}

impl Sharing {
    /// The most images that share a client at first.
    pub(crate) fn images_max(self) -> u32 {
        match self {
            Sharing::Images(images) => images,
            Sharing::Auto => IMAGES_PER_CLIENT,
        }
    }

    fn from_url(parameters: &Parameters<'_>) -> Result<Self, UrlError> {
        const NAME: &str = "bdevs_per_cluster";
        let Some(text) = parameters.text(NAME)? else {
            return Ok(Sharing::Images(IMAGES_PER_CLIENT));
        };
        match text.parse() {
            _ if text == "auto" => Ok(Sharing::Auto),
            Ok(images @ 1..=IMAGES_PER_CLIENT_MAX) => Ok(Sharing::Images(images)),
            _ => {
                let allowed = format!("a whole number from 1 to {IMAGES_PER_CLIENT_MAX}, or auto");
                Err(value_error(NAME, text, allowed))
            }
        }
    }
}

/// The threads and receives of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Settings {
    /// Ceph's own, or fewer threads and longer receives on a machine of few processors where nobody has configured them.
    #[default]
    Auto,
    /// Ceph's own, or what is configured.
    Ceph,
}

impl Settings {
    const NAMES: [(&'static str, Settings); 2] =
        [("auto", Settings::Auto), ("ceph", Settings::Ceph)];
}

/// The name of an image: `POOL[/NAMESPACE]/IMAGE[@SNAPSHOT]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageName {
    /// The pool.
    pub pool: String,
    /// The namespace in the pool; empty for that without a name.
    pub namespace: String,
    /// The image.
    pub image: String,
    /// A snapshot of it.
    pub snapshot: Option<String>,
}

impl ImageName {
    /// What a name looks like.
    pub const FORM: &'static str =
        "POOL/IMAGE or POOL/NAMESPACE/IMAGE, with @SNAPSHOT behind it for a snapshot";

    /// Takes a name apart; none where it is not [`ImageName::FORM`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (path, snapshot) = match text.split_once('@') {
            Some((path, snapshot)) => (path, Some(snapshot)),
            None => (text, None),
        };
        let parts: Vec<&str> = path.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, "", image),
            [pool, namespace, image] if !namespace.is_empty() => (pool, namespace, image),
            _ => return None,
        };
        let wrong = |name: &str| name.is_empty() || name.contains(['@', '\0']);
        if wrong(pool) || wrong(image) || namespace.contains('\0') || snapshot.is_some_and(wrong) {
            return None;
        }
        Some(ImageName {
            pool: pool.to_owned(),
            namespace: namespace.to_owned(),
            image: image.to_owned(),
            snapshot: snapshot.map(str::to_owned),
        })
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/", self.pool)?;
        if !self.namespace.is_empty() {
            write!(formatter, "{}/", self.namespace)?;
        }
        formatter.write_str(&self.image)?;
        match &self.snapshot {
            Some(snapshot) => write!(formatter, "@{snapshot}"),
            None => Ok(()),
        }
    }
}

/// What a URL says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which image.
    pub name: ImageName,
    /// The cluster's configuration file; none: the one that Ceph's tools read.
    pub conf: Option<String>,
    /// The client's name, without `client.`.
    pub id: String,
    /// The file with the client's key; none: where the configuration says.
    pub keyring: Option<String>,
    /// What librbd may cache.
    pub cache: Cache,
    /// Images that share a client.
    pub sharing: Sharing,
    /// The threads and receives of its client.
    pub settings: Settings,
    /// The size of the blocks; none: what fits the image.
    pub block_size: Option<BlockSize>,
    /// After how long a request has timed out.
    pub io_timeout: Duration,
    /// How long a fence may take before the volume counts as lost.
    pub fence_timeout: Duration,
}

impl Options {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn from_url(url: &VolumeUrl) -> Result<Self, UrlError> {
        let name = match url.authority() {
            None => ImageName::parse(url.path()),
            Some(_) => None,
        };
        let name = name.ok_or_else(|| url.place_error(ImageName::FORM))?;
        let parameters = url.parameters();
        let path = |name| -> Result<Option<String>, UrlError> {
            match parameters.text(name)? {
                Some("") => Err(value_error(name, "", "the path of a file".to_owned())),
                text => Ok(text.map(str::to_owned)),
            }
        };
        let timeout = |name, usual| -> Result<Duration, UrlError> {
            let given = parameters.duration(name, TIMEOUT_MAX)?.unwrap_or(usual);
            if given < TIMEOUT_MIN {
                let allowed = format!("at least {} ms", TIMEOUT_MIN.as_millis());
                return Err(value_error(name, &format!("{given:?}"), allowed));
            }
            Ok(given)
        };
        let options = Options {
            name,
            conf: path("conf")?,
            id: client_id(parameters.text("id")?)?,
            keyring: path("keyring")?,
            cache: parameters
                .choice("cache", &Cache::NAMES)?
                .unwrap_or_default(),
            sharing: Sharing::from_url(&parameters)?,
            settings: parameters
                .choice("client_settings", &Settings::NAMES)?
                .unwrap_or_default(),
            block_size: parameters.block_size()?,
            io_timeout: timeout("io_timeout", IO_TIMEOUT)?,
            fence_timeout: timeout("fence_timeout", FENCE_TIMEOUT)?,
        };
        parameters.finish()?;
        Ok(options)
    }
}

fn client_id(given: Option<&str>) -> Result<String, UrlError> {
    let id = given.unwrap_or("admin");
    if id.is_empty() || id.starts_with("client.") || id.contains('\0') {
        let allowed = "the client's name without 'client.', such as admin".to_owned();
        return Err(value_error("id", id, allowed));
    }
    Ok(id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(url: &str) -> Result<Options, UrlError> {
        Options::from_url(&url.parse().unwrap())
    }

    #[test]
    fn a_url_names_pool_namespace_image_and_snapshot() {
        let cases = [
            ("rbd:p/i", ("p", "", "i", None)),
            ("rbd:p/n/i", ("p", "n", "i", None)),
            ("rbd:p/i@s", ("p", "", "i", Some("s"))),
            ("rbd:p/n/i@s/t", ("p", "n", "i", Some("s/t"))),
        ];
        for (url, (pool, namespace, image, snapshot)) in cases {
            let name = options(url).unwrap().name;
            assert_eq!(
                (
                    &*name.pool,
                    &*name.namespace,
                    &*name.image,
                    name.snapshot.as_deref()
                ),
                (pool, namespace, image, snapshot),
                "{url}"
            );
            assert_eq!(format!("rbd:{name}"), url);
        }
        for url in [
            "rbd:",
            "rbd:p",
            "rbd:p/",
            "rbd:/i",
            "rbd:p//i",
            "rbd:p/i@",
            "rbd:a/b/c/d",
            "rbd:p/i@s@t",
            "rbd://host/p/i",
        ] {
            let error = options(url).unwrap_err();
            assert!(matches!(error, UrlError::Place { .. }), "{url}: {error}");
        }
    }

    #[test]
    fn what_is_not_said_is_as_a_gateway_wants_it() {
        let plain = options("rbd:p/i").unwrap();
        assert_eq!(
            (plain.cache, plain.sharing, plain.settings),
            (Cache::Off, Sharing::Images(32), Settings::Auto)
        );
        assert_eq!(
            (&*plain.id, plain.conf, plain.keyring),
            ("admin", None, None)
        );
        let said = options(
            "rbd:p/i?cache=writeback&bdevs_per_cluster=1&id=weir&client_settings=ceph&conf=/c&keyring=/k&io_timeout=500ms&block_size=512",
        );
        let said = said.unwrap();
        assert!(said.cache.is_volatile());
        assert_eq!(
            (said.sharing, said.settings, said.io_timeout),
            (
                Sharing::Images(1),
                Settings::Ceph,
                Duration::from_millis(500)
            )
        );
        let auto = options("rbd:p/i?bdevs_per_cluster=auto").unwrap().sharing;
        assert_eq!((auto, auto.images_max()), (Sharing::Auto, 32));
        assert_eq!(
            (said.conf.as_deref(), said.keyring.as_deref()),
            (Some("/c"), Some("/k"))
        );
        assert_eq!(said.block_size, Some(BlockSize::B512));
    }

    #[test]
    fn what_is_not_allowed_is_refused_by_name() {
        for (url, told) in [
            ("rbd:p/i?bdevs_per_cluster=0", "from 1 to 1024, or auto"),
            ("rbd:p/i?bdevs_per_cluster=1025", "from 1 to 1024, or auto"),
            ("rbd:p/i?bdevs_per_cluster=Auto", "from 1 to 1024, or auto"),
            ("rbd:p/i?cache=on", "one of off, writethrough"),
            ("rbd:p/i?client_settings=own", "one of auto, ceph"),
            ("rbd:p/i?id=client.admin", "without 'client.'"),
            ("rbd:p/i?io_timeout=1ms", "at least 100 ms"),
            ("rbd:p/i?conf=", "the path of a file"),
            ("rbd:p/i?pool=x", "no parameter 'pool'"),
        ] {
            let error = options(url).unwrap_err().to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }
}
