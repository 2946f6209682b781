//! What an `nvme+tcp:` URL says, and who the host says it is.
//!
//! Text in, typed values out; nothing is opened here.

use weir_initiator::options::CommonOptions;
pub use weir_initiator::options::{AddressError, host_and_port};
use weir_nvme::{HostId, Nqn};
use weir_volume::url::value_error;
use weir_volume::{UrlError, VolumeUrl};

/// The scheme of the URLs of this crate's volumes.
pub const SCHEME: &str = "nvme+tcp";
/// The port of NVMe over TCP I/O controllers (NVMe/TCP Transport 1.0 section 3.1.1).
pub const PORT: u16 = 4420;
/// The port of discovery controllers (NVMe/TCP Transport 1.0 section 3.1.1).
pub const DISCOVERY_PORT: u16 = 8009;
/// The most I/O queues that may be asked for.
pub const QUEUES_MAX: u16 = 1024;

/// The parameters of an `nvme+tcp:` URL that have a value, and are not flags.
const VALUES: [&str; 5] = ["nsid", "queues", "hpda", "hostnqn", "hostid"];

/// Why what a machine says of itself was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// Its NQN is not one.
    #[error("host NQN: {0}")]
    Nqn(weir_nvme::nqn::NqnError),
    /// Its identifier is not one.
    #[error("host identifier: '{text}' is not a UUID of 32 hexadecimal digits, not all zero")]
    Id {
        /// What it says.
        text: String,
    },
}

/// Who the host is to controllers: the same NQN and identifier on every connection (NVMe Base 2.0c section 4.5 and
/// section 5.27.1.25).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostIdentity {
    /// HOSTNQN.
    pub nqn: Nqn,
    /// HOSTID.
    pub id: HostId,
}

impl HostIdentity {
    /// The host that a machine says it is, in the files that Linux tools use: what `/etc/nvme/hostnqn` and `/etc/nvme/hostid`
    /// hold, where they exist. Without an identifier it is the UUID of the name, if that has one; what is missing then is made
    /// of 16 random bytes, and is another one each time.
    ///
    /// # Errors
    /// [`IdentityError`] says which of them is wrong.
    pub fn from_texts(
        nqn: Option<&str>,
        id: Option<&str>,
        random: [u8; 16],
    ) -> Result<Self, IdentityError> {
        let stated = |text: &'_ str| {
            let text = text.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let nqn = nqn
            .and_then(stated)
            .map(|text| Nqn::new(&text).map_err(IdentityError::Nqn))
            .transpose()?;
        let id = id
            .and_then(stated)
            .map(|text| host_id(&text).ok_or(IdentityError::Id { text }))
            .transpose()?;
        let Some(nqn) = nqn else {
            let made = HostIdentity::from_random(random);
            // The name and the identifier of one host are of one UUID.
            return Ok(id.map_or(made, HostIdentity::from_id));
        };
        let of_name = nqn
            .as_str()
            .strip_prefix(weir_nvme::nqn::UUID_NQN_PREFIX)
            .and_then(host_id);
        let id = id
            .or(of_name)
            .unwrap_or_else(|| HostIdentity::from_random(random).id);
        Ok(HostIdentity { nqn, id })
    }

    /// The host whose UUID (version 4) is made of 16 random bytes.
    #[must_use]
    pub fn from_random(mut bytes: [u8; 16]) -> Self {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        HostIdentity::from_id(HostId(bytes))
    }

    fn from_id(id: HostId) -> Self {
        HostIdentity { nqn: id.nqn(), id }
    }
}

/// Where to connect, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Name or address of the target, without brackets.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// NQN of the subsystem.
    pub subsystem: Nqn,
    /// The namespace that becomes the volume.
    pub nsid: u32,
    /// I/O queues to ask the controller for; `None`: one for each reactor.
    pub queues: Option<u16>,
    /// HPDA: data in PDUs from the controller starts at multiples of `4 * (hpda + 1)` bytes; 0 to 31.
    pub host_data_alignment: u8,
    /// The host's NQN, in place of the one that the program has.
    pub host_nqn: Option<Nqn>,
    /// The host's identifier, in place of the one that the program has.
    pub host_id: Option<HostId>,
    /// What every initiator has.
    pub common: CommonOptions,
}

impl Options {
    /// Everything as by default, for namespace 1 of `subsystem` at `host`.
    #[must_use]
    pub fn new(host: &str, port: u16, subsystem: Nqn) -> Self {
        Options {
            host: host.to_owned(),
            port,
            subsystem,
            nsid: 1,
            queues: None,
            host_data_alignment: 0,
            host_nqn: None,
            host_id: None,
            common: CommonOptions::default(),
        }
    }

    /// Reads an `nvme+tcp:` URL: `nvme+tcp://HOST:PORT/NQN?nsid=1&queues=4&...`. Without a port it is [`PORT`].
    ///
    /// # Errors
    /// [`UrlError`] names what is wrong and what may be written.
    pub fn from_url(url: &VolumeUrl) -> Result<Self, UrlError> {
        const PLACE: &str = "//HOST:PORT/NQN-OF-THE-SUBSYSTEM";
        let authority = url.authority().ok_or_else(|| url.place_error(PLACE))?;
        let subsystem = url.path().strip_prefix('/').unwrap_or("");
        if authority.host.is_empty() || subsystem.is_empty() {
            return Err(url.place_error(PLACE));
        }
        let subsystem = nqn("the subsystem", subsystem)?;
        let port = authority.port.unwrap_or(PORT);
        let mut options = Options::new(&authority.host, port, subsystem);
        let parameters = url.parameters();
        options.common = CommonOptions::from_parameters(&parameters)?;
        for name in VALUES {
            if let Some(value) = parameters.text(name)? {
                options.set(name, value)?;
            }
        }
        parameters.finish()?;
        Ok(options)
    }

    fn set(&mut self, name: &'static str, value: &str) -> Result<(), UrlError> {
        let refuse = |allowed: &str| value_error(name, value, allowed.to_owned());
        match name {
            "nsid" => {
                self.nsid = number(value, 1, 0xffff_fffe)
                    .ok_or_else(|| refuse("a namespace identifier from 1 to 4294967294"))?;
            }
            "queues" => {
                let queues = number(value, 1, QUEUES_MAX.into())
                    .ok_or_else(|| refuse("a number of I/O queues from 1 to 1024"))?;
                self.queues = Some(queues as u16);
            }
            "hpda" => {
                self.host_data_alignment = number(value, 0, 31)
                    .ok_or_else(|| refuse("a data alignment, in dwords less one, 0 to 31"))?
                    as u8;
            }
            "hostnqn" => {
                self.host_nqn = Some(nqn(name, value)?);
            }
            "hostid" => {
                self.host_id = Some(
                    host_id(value)
                        .ok_or_else(|| refuse("a UUID of 32 hexadecimal digits, not all zero"))?,
                );
            }
            other => unreachable!("{other} is not in VALUES"),
        }
        Ok(())
    }
}

fn nqn(name: &str, value: &str) -> Result<Nqn, UrlError> {
    Nqn::new(value).map_err(|error| value_error(name, value, error.to_string()))
}

fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse().ok()?;
    (least..=most).contains(&number).then_some(number)
}

/// A host identifier as it is written: a UUID, with or without dashes.
#[must_use]
pub fn host_id(text: &str) -> Option<HostId> {
    let digits: Vec<u8> = text.bytes().filter(|&byte| byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high << 4 | low) as u8;
    }
    let id = HostId(bytes);
    (!id.is_zero()).then_some(id)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const NQN: &str = "nqn.2024-01.com.example:disk";

    fn parse(url: &str) -> Result<Options, String> {
        let url: VolumeUrl = url.parse().map_err(|error: UrlError| error.to_string())?;
        Options::from_url(&url).map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_and_every_parameter() {
        let options = parse(&format!("nvme+tcp://10.0.0.1/{NQN}")).unwrap();
        assert_eq!(
            options,
            Options::new("10.0.0.1", 4420, Nqn::new(NQN).unwrap())
        );
        let options = parse(&format!(
            "nvme+tcp://[fd00::1]:4421/{NQN}?nsid=7&queues=4&depth=32&hdgst=1&ddgst=yes&hpda=31&kato=15\
             &hostnqn=nqn.2024-01.com.example:me&hostid=00112233-4455-6677-8899-aabbccddeeff\
             &ctrl_loss_timeout=-1&reconnect_delay=250ms&io_timeout=1m&flush_after_reconnect=trust&sndbuf=256k&rcvbuf=4M&congestion=reno&dscp=46"
        ))
        .unwrap();
        assert_eq!((options.host.as_str(), options.port), ("fd00::1", 4421));
        assert_eq!(
            (options.nsid, options.queues, options.common.depth),
            (7, Some(4), 32)
        );
        assert!(options.common.header_digest && options.common.data_digest);
        assert_eq!(options.host_data_alignment, 31);
        assert_eq!(options.common.keep_alive, Duration::from_secs(15));
        assert_eq!(
            options.host_nqn.unwrap().as_str(),
            "nqn.2024-01.com.example:me"
        );
        assert_eq!(options.host_id.unwrap().0[15], 0xff);
        assert_eq!(options.common.controller_loss_timeout, None);
        assert_eq!(options.common.reconnect_delay, Duration::from_millis(250));
        assert_eq!(options.common.io_timeout, Duration::from_secs(60));
        assert!(options.common.flush_after_reconnect);
        assert_eq!(
            (options.common.send_buffer, options.common.receive_buffer),
            (Some(256 << 10), Some(4 << 20))
        );
        assert_eq!(
            (
                options.common.congestion_control.as_deref(),
                options.common.dscp
            ),
            (Some("reno"), Some(46))
        );
    }

    #[test]
    fn wrong_values_are_refused_by_name() {
        for (name, value) in [
            ("nsid", "0"),
            ("nsid", "4294967295"),
            ("queues", "0"),
            ("queues", "many"),
            ("depth", "1025"),
            ("depth", "-1"),
            ("hdgst", "2"),
            ("hpda", "32"),
            ("kato", "0"),
            ("kato", "10ms"),
            ("hostnqn", "me"),
            ("hostid", "00000000-0000-0000-0000-000000000000"),
            ("hostid", "1234"),
            ("ctrl_loss_timeout", "-2"),
            ("io_timeout", "1ms"),
            ("reconnect_delay", "5y"),
            ("flush_after_reconnect", "1"),
            ("flush_after_reconnect", "fail"),
            ("sndbuf", "4095"),
            ("sndbuf", "much"),
            ("rcvbuf", "2G"),
            ("congestion", ""),
            ("congestion", "../reno"),
            ("congestion", "sixteen-letters-"),
            ("dscp", "64"),
            ("dscp", "-1"),
        ] {
            let error = parse(&format!("nvme+tcp://h/{NQN}?{name}={value}")).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        let error = parse(&format!("nvme+tcp://h/{NQN}?quees=1")).unwrap_err();
        assert!(
            error.contains("quees") && error.contains("queues"),
            "{error}"
        );
        assert!(parse(&format!("nvme+tcp://h/{NQN}?nsid=1&nsid=2")).is_err());
    }

    #[test]
    fn wrong_places_are_refused() {
        for url in [
            "nvme+tcp:",
            "nvme+tcp://",
            "nvme+tcp://h",
            "nvme+tcp://h/",
            "nvme+tcp:h/nqn.2024-01.com.example:x",
            "nvme+tcp://h/not-an-nqn",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_machine_says_who_it_is() {
        const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
        let named = format!("nqn.2014-08.org.nvmexpress:uuid:{UUID}\n");
        let identity = |nqn, id| HostIdentity::from_texts(nqn, id, [5; 16]);
        let both = identity(Some(&named), Some("11111111-1111-1111-1111-111111111111\n")).unwrap();
        assert_eq!(
            (both.nqn.as_str(), both.id),
            (named.trim(), HostId([0x11; 16]))
        );
        let of_name = identity(Some(&named), None).unwrap();
        assert_eq!(of_name.id.to_string(), UUID);
        let of_id = identity(None, Some(UUID)).unwrap();
        assert_eq!((of_id.nqn.as_str(), of_id.id), (named.trim(), of_name.id));
        assert_eq!(
            identity(None, Some(" \n")).unwrap(),
            HostIdentity::from_random([5; 16])
        );
        let other = identity(Some("nqn.2024-01.com.example:me"), None).unwrap();
        assert_eq!(other.id, HostIdentity::from_random([5; 16]).id);
        assert!(matches!(
            identity(Some("me"), None),
            Err(IdentityError::Nqn(_))
        ));
        assert!(matches!(
            identity(None, Some("me")),
            Err(IdentityError::Id { .. })
        ));
    }

    #[test]
    fn a_host_made_of_randomness_has_a_valid_name() {
        let host = HostIdentity::from_random([0xff; 16]);
        assert_eq!(
            host.nqn.as_str(),
            "nqn.2014-08.org.nvmexpress:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
    }
}
