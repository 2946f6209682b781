//! Parts and parameters of an `nfs:` URL.
//!
//! Text in, typed values out; nothing is opened here.

use std::fmt;

use weir_block::BlockSize;
use weir_initiator::options::{CommonOptions, number, refused};
use weir_nfs::types::NAME_BYTES_MAX;
use weir_volume::{UrlError, VolumeUrl};

/// The scheme of the URLs of this crate's volumes.
pub const SCHEME: &str = "nfs";
/// The port of NFS servers (RFC 8881, section 2.9.2).
pub const PORT: u16 = 2049;
/// The most connections that may be asked for.
pub const CONNECTIONS_MAX: u16 = 256;

/// Version of NFS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// 3: without sessions.
    V3,
    /// 4.1.
    V41,
    /// 4.2.
    #[default]
    V42,
}

impl Version {
    const ALL: [(&str, Version); 3] = [
        ("3", Version::V3),
        ("4.1", Version::V41),
        ("4.2", Version::V42),
    ];

    /// Its name, as a URL has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        let known = Version::ALL.iter().find(|(_, version)| *version == self);
        known.expect("all are there").0
    }

    /// The minor version of version 4.
    pub(crate) fn minor(self) -> Option<u32> {
        match self {
            Version::V3 => None,
            Version::V41 => Some(1),
            Version::V42 => Some(2),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Address of a file, and the way to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Name or address of the server, without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// Names of the directories from the server's root on, and of the file.
    pub path: Vec<String>,
    /// Version.
    pub version: Version,
    /// Port of MOUNT, for version 3; `None`: that of NFS, or the one that the server's rpcbind tells.
    pub mount_port: Option<u16>,
    /// Connections for I/O; `None`: one for each reactor.
    pub connections: Option<u16>,
    /// Bytes of the file, which is made where it is not there; `None`: it is there, and is taken as it is.
    pub size: Option<u64>,
    /// The block size that is presented; `None`: the one that fits.
    pub block_size: Option<BlockSize>,
    /// User as whom the file is used; `None`: the program's.
    pub uid: Option<u32>,
    /// Group; `None`: the program's.
    pub gid: Option<u32>,
    /// Options of every initiator.
    pub common: CommonOptions,
}

impl Options {
    /// Everything as by default, for the file at `path` of `host`.
    #[must_use]
    pub fn new(host: &str, port: u16, path: &[&str]) -> Self {
        Options {
            host: host.to_owned(),
            port,
            path: path.iter().map(|&name| name.to_owned()).collect(),
            version: Version::default(),
            mount_port: None,
            connections: None,
            size: None,
            block_size: None,
            uid: None,
            gid: None,
            common: CommonOptions::default(),
        }
    }

    /// Reads an `nfs:` URL: `nfs://HOST:PORT/EXPORT/FILE?connections=16&...`. Without a port it is [`PORT`].
    ///
    /// # Errors
    /// [`UrlError`] names what is wrong and what may be written.
    pub fn from_url(url: &VolumeUrl) -> Result<Self, UrlError> {
        const PLACE: &str =
            "//HOST:PORT/EXPORT/FILE, with the path that the server exports and the file in it";
        let place = || url.place_error(PLACE);
        let authority = url.authority().ok_or_else(place)?;
        let path: Vec<&str> = url
            .path()
            .split('/')
            .filter(|name| !name.is_empty())
            .collect();
        let is_name =
            |name: &&str| !matches!(*name, "." | "..") && name.len() <= NAME_BYTES_MAX as usize;
        if authority.host.is_empty() || path.is_empty() || !path.iter().all(is_name) {
            return Err(place());
        }
        let port = authority.port.unwrap_or(PORT);
        let parameters = url.parameters();
        let mut options = Options {
            common: CommonOptions::from_parameters(&parameters)?,
            size: parameters.size("size")?,
            block_size: parameters.block_size()?,
            ..Options::new(&authority.host, port, &path)
        };
        for name in ["hdgst", "ddgst"] {
            if parameters.flag(name)? {
                return Err(refused(name, "", "leave it out: NFS has no digests"));
            }
        }
        if options.common.flush_after_reconnect {
            let allowed = "leave it out: an NFS server proves what it kept, and what it lost is written again";
            return Err(refused("flush_after_reconnect", "trust", allowed));
        }
        if let Some(value) = parameters.text("version")? {
            let known = Version::ALL.iter().find(|(name, _)| *name == value);
            let refused = || refused("version", value, "3, 4.1 or 4.2");
            options.version = known.ok_or_else(refused)?.1;
        }
        if let Some(value) = parameters.text("mountport")? {
            if options.version != Version::V3 {
                let allowed = "leave it out: version 4 has no MOUNT; or say version=3";
                return Err(refused("mountport", value, allowed));
            }
            let port = number(
                "mountport",
                value,
                1..=u16::MAX.into(),
                "a port, 1 to 65535",
            )?;
            options.mount_port = Some(port as u16);
        }
        if let Some(value) = parameters.text("connections")? {
            let allowed = "connections for I/O, 1 to 256";
            let connections = number("connections", value, 1..=CONNECTIONS_MAX.into(), allowed)?;
            options.connections = Some(connections as u16);
        }
        for (name, id) in [("uid", &mut options.uid), ("gid", &mut options.gid)] {
            if let Some(value) = parameters.text(name)? {
                let allowed = "a number, 0 to 4294967294";
                *id = Some(number(name, value, 0..=u32::MAX - 1, allowed)?);
            }
        }
        parameters.finish()?;
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<(), UrlError> {
        let Some(size) = self.size else {
            return Ok(());
        };
        let block = self.block_size.unwrap_or(BlockSize::B512).bytes();
        if size == 0 || !size.is_multiple_of(u64::from(block)) {
            let allowed = format!("a multiple of the block size, {block} bytes");
            return Err(refused("size", &size.to_string(), &allowed));
        }
        Ok(())
    }

    /// The path from the server's root on.
    pub(crate) fn path_text(&self) -> String {
        format!("/{}", self.path.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Options, String> {
        let url: VolumeUrl = url.parse().expect("a URL");
        Options::from_url(&url).map_err(|error| error.to_string())
    }

    #[test]
    fn everything_is_read() {
        let expected = Options::new("server", PORT, &["exports", "share", "disk.img"]);
        assert_eq!(
            parse("nfs://server/exports/share/disk.img"),
            Ok(expected.clone())
        );
        assert_eq!(parse("nfs://server//exports/share//disk.img"), Ok(expected));
        let expected = Options {
            version: Version::V41,
            connections: Some(16),
            size: Some(1 << 30),
            block_size: Some(BlockSize::B4096),
            uid: Some(1000),
            gid: Some(0),
            common: CommonOptions {
                depth: 64,
                ..CommonOptions::default()
            },
            ..Options::new("fd00::1", 20049, &["a b"])
        };
        let of_version_3 = Options {
            version: Version::V3,
            mount_port: Some(20048),
            ..Options::new("server", PORT, &["a"])
        };
        let url = "nfs://server/a?version=3&mountport=20048";
        assert_eq!(parse(url), Ok(of_version_3));
        let url = "nfs://[fd00::1]:20049/a%20b?version=4.1&connections=16&size=1G&block_size=4k&uid=1000&gid=0&depth=64";
        assert_eq!(parse(url), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, named) in [
            ("nfs:/srv/file", "EXPORT/FILE"),
            ("nfs://server", "EXPORT/FILE"),
            ("nfs://server/", "EXPORT/FILE"),
            ("nfs://server/a/../b", "EXPORT/FILE"),
            ("nfs://server/a?version=4", "3, 4.1 or 4.2"),
            ("nfs://server/a?mountport=111", "version=3"),
            ("nfs://server/a?version=3&mountport=0", "mountport"),
            ("nfs://server/a?connections=0", "connections"),
            ("nfs://server/a?connections=257", "connections"),
            ("nfs://server/a?uid=-1", "uid"),
            ("nfs://server/a?gid=4294967295", "gid"),
            ("nfs://server/a?size=1000", "512"),
            ("nfs://server/a?size=512&block_size=4096", "4096"),
            ("nfs://server/a?hdgst", "digests"),
            (
                "nfs://server/a?flush_after_reconnect=trust",
                "written again",
            ),
            ("nfs://server/a?conections=2", "connections"),
        ] {
            let error = parse(url).expect_err(url);
            assert!(error.contains(named), "{url}: {error}");
        }
    }
}
