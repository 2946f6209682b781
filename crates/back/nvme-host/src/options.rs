//! What an `nvme+tcp:` URL says, and who the host says it is.
//!
//! Text in, typed values out; nothing is opened here.

use std::time::Duration;

use weir_nvme::{HostId, Nqn};
use weir_volume::url::value_error;
use weir_volume::{UrlError, VolumeUrl};

/// The port of NVMe over TCP I/O controllers (NVMe/TCP Transport 1.0 section 3.1.1).
pub const PORT: u16 = 4420;
/// The port of discovery controllers (NVMe/TCP Transport 1.0 section 3.1.1).
pub const DISCOVERY_PORT: u16 = 8009;
/// Outstanding commands per I/O queue, where the URL does not say.
pub const DEPTH: u16 = 128;
/// The most outstanding commands per I/O queue that may be asked for.
pub const DEPTH_MAX: u16 = 1024;
/// The most I/O queues that may be asked for.
pub const QUEUES_MAX: u16 = 1024;
/// Keep Alive Timeout, where the URL does not say.
pub const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// For how long a lost controller is tried to be reached again, where the URL does not say.
pub const CONTROLLER_LOSS_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest pause between two attempts to reach a lost controller, where the URL does not say.
pub const RECONNECT_DELAY: Duration = Duration::from_secs(2);
/// After how long a command is aborted, where the URL does not say.
pub const IO_TIMEOUT: Duration = Duration::from_secs(30);
/// The smallest and the largest socket buffer that may be asked for, in bytes.
pub const SOCKET_BUFFER_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;
/// The longest name of a congestion control algorithm, in bytes (Linux, `TCP_CA_NAME_MAX` less its NUL).
pub const CONGESTION_CONTROL_LENGTH_MAX: usize = 15;
/// The largest differentiated services code point (RFC 2474 section 3).
pub const DSCP_MAX: u8 = 63;

/// The parameters of an `nvme+tcp:` URL that have a value, and are not flags.
const VALUES: [&str; 15] = [
    "nsid",
    "queues",
    "depth",
    "hpda",
    "kato",
    "hostnqn",
    "hostid",
    "ctrl_loss_timeout",
    "reconnect_delay",
    "io_timeout",
    "flush_after_reconnect",
    "sndbuf",
    "rcvbuf",
    "congestion",
    "dscp",
];

/// Why `HOST:PORT` was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// There is no host, or a bracket without its other.
    #[error(
        "'{text}' is not an address: write HOST, HOST:PORT, or an IPv6 address in brackets, such as [fd00::1]:{PORT}"
    )]
    Host {
        /// What was written.
        text: String,
    },
    /// The port is no port.
    #[error("'{text}' is not a port: write a number from 1 to 65535, or leave it out")]
    Port {
        /// What was written.
        text: String,
    },
}

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
    /// Outstanding commands per I/O queue.
    pub depth: u16,
    /// Whether PDU headers carry a digest.
    pub header_digest: bool,
    /// Whether PDU data carries a digest.
    pub data_digest: bool,
    /// HPDA: data in PDUs from the controller starts at multiples of `4 * (hpda + 1)` bytes; 0 to 31.
    pub host_data_alignment: u8,
    /// Keep Alive Timeout.
    pub keep_alive: Duration,
    /// The host's NQN, in place of the one that the program has.
    pub host_nqn: Option<Nqn>,
    /// The host's identifier, in place of the one that the program has.
    pub host_id: Option<HostId>,
    /// For how long a lost controller is tried to be reached again; `None`: for ever.
    pub controller_loss_timeout: Option<Duration>,
    /// The longest pause between two attempts.
    pub reconnect_delay: Duration,
    /// After how long a command is aborted.
    pub io_timeout: Duration,
    /// Trusts the target to keep what it acknowledged: Flush succeeds also after a reconnect over which writes may have been
    /// lost.
    pub flush_after_reconnect: bool,
    /// SO_SNDBUF of every connection, in bytes; `None`: as the system has it.
    pub send_buffer: Option<u32>,
    /// SO_RCVBUF of every connection, in bytes; `None`: as the system has it.
    pub receive_buffer: Option<u32>,
    /// TCP_CONGESTION of every connection; `None`: as the system has it.
    pub congestion_control: Option<String>,
    /// Differentiated services code point of every connection; `None`: as the system has it.
    pub dscp: Option<u8>,
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
            depth: DEPTH,
            header_digest: false,
            data_digest: false,
            host_data_alignment: 0,
            keep_alive: KEEP_ALIVE,
            host_nqn: None,
            host_id: None,
            controller_loss_timeout: Some(CONTROLLER_LOSS_TIMEOUT),
            reconnect_delay: RECONNECT_DELAY,
            io_timeout: IO_TIMEOUT,
            flush_after_reconnect: false,
            send_buffer: None,
            receive_buffer: None,
            congestion_control: None,
            dscp: None,
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
        options.header_digest = parameters.flag("hdgst")?;
        options.data_digest = parameters.flag("ddgst")?;
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
            "depth" => {
                self.depth = number(value, 1, DEPTH_MAX.into())
                    .ok_or_else(|| refuse("outstanding commands per queue, from 1 to 1024"))?
                    as u16;
            }
            "hpda" => {
                self.host_data_alignment = number(value, 0, 31)
                    .ok_or_else(|| refuse("a data alignment, in dwords less one, 0 to 31"))?
                    as u8;
            }
            "kato" => {
                self.keep_alive = duration(value, Duration::from_secs(1))
                    .ok_or_else(|| refuse("a keep-alive timeout of 1 s to 1 hour, such as 5s; without one a write could never be retried safely"))?;
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
            "ctrl_loss_timeout" => {
                self.controller_loss_timeout = match value {
                    "-1" => None,
                    value => Some(long_duration(value).ok_or_else(|| {
                        refuse("how long to try to reconnect, such as 600s, or -1 for ever")
                    })?),
                };
            }
            "reconnect_delay" => {
                self.reconnect_delay =
                    duration(value, Duration::from_millis(10)).ok_or_else(|| {
                        refuse("the longest pause between attempts, 10ms to 1 hour, such as 2s")
                    })?;
            }
            "io_timeout" => {
                self.io_timeout = duration(value, Duration::from_millis(100)).ok_or_else(|| {
                    refuse("after how long a command is aborted, 100ms to 1 hour, such as 30s")
                })?;
            }
            "flush_after_reconnect" => {
                self.flush_after_reconnect = match value {
                    "trust" => true,
                    _ => {
                        return Err(refuse(
                            "trust: the target keeps what it acknowledged, also when its power fails; without it flushes fail after a reconnect that may have lost writes",
                        ));
                    }
                };
            }
            "sndbuf" => self.send_buffer = Some(socket_buffer(name, value)?),
            "rcvbuf" => self.receive_buffer = Some(socket_buffer(name, value)?),
            "congestion" => {
                self.congestion_control = Some(congestion_control(value).ok_or_else(|| {
                    refuse("a name from /proc/sys/net/ipv4/tcp_available_congestion_control, such as cubic")
                })?);
            }
            "dscp" => {
                let dscp = number(value, 0, DSCP_MAX.into());
                let dscp =
                    dscp.ok_or_else(|| refuse("a differentiated services code point, 0 to 63"))?;
                self.dscp = Some(dscp as u8);
            }
            other => unreachable!("{other} is not in VALUES"),
        }
        Ok(())
    }
}

fn nqn(name: &str, value: &str) -> Result<Nqn, UrlError> {
    Nqn::new(value).map_err(|error| value_error(name, value, error.to_string()))
}

fn socket_buffer(name: &str, value: &str) -> Result<u32, UrlError> {
    let bytes = weir_block::size::parse(value);
    let bytes = bytes.map_err(|error| value_error(name, value, error.to_string()))?;
    match u32::try_from(bytes) {
        Ok(bytes) if SOCKET_BUFFER_BYTES.contains(&bytes.into()) => Ok(bytes),
        _ => {
            let allowed =
                "a socket buffer of 4k to 1G; the kernel doubles it for its own bookkeeping";
            Err(value_error(name, value, allowed.to_owned()))
        }
    }
}

fn congestion_control(name: &str) -> Option<String> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    let fits = (1..=CONGESTION_CONTROL_LENGTH_MAX).contains(&name.len());
    (fits && name.bytes().all(is_allowed)).then(|| name.to_owned())
}

/// The longest time that a parameter takes where no other bound is said.
const DURATION_MAX: Duration = Duration::from_secs(3600);

/// Takes `HOST`, `HOST:PORT`, `[V6]`, `[V6]:PORT` or a bare IPv6 address apart.
///
/// # Errors
/// [`AddressError`].
pub fn host_and_port(text: &str) -> Result<(&str, Option<u16>), AddressError> {
    let no_host = || AddressError::Host {
        text: text.to_owned(),
    };
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(no_host)?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(no_host()),
            }
        }
        // An IPv6 address without brackets has no room for a port.
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(no_host());
    }
    let port = port.map(|port| match number(port, 1, u16::MAX.into()) {
        Some(number) => Ok(number as u16),
        None => Err(AddressError::Port {
            text: port.to_owned(),
        }),
    });
    Ok((host, port.transpose()?))
}

fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = text.parse().ok()?;
    (least..=most).contains(&number).then_some(number)
}

/// Seconds, or a number with `ms`, `s`, `m` or `h`.
fn any_duration(text: &str) -> Option<Duration> {
    let digits = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let (value, unit) = text.split_at(digits);
    let value: u64 = value.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    value.checked_mul(milliseconds).map(Duration::from_millis)
}

fn duration(text: &str, least: Duration) -> Option<Duration> {
    any_duration(text).filter(|duration| (least..=DURATION_MAX).contains(duration))
}

fn long_duration(text: &str) -> Option<Duration> {
    any_duration(text).filter(|duration| *duration <= 24 * 365 * DURATION_MAX)
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
            (options.nsid, options.queues, options.depth),
            (7, Some(4), 32)
        );
        assert!(options.header_digest && options.data_digest);
        assert_eq!(options.host_data_alignment, 31);
        assert_eq!(options.keep_alive, Duration::from_secs(15));
        assert_eq!(
            options.host_nqn.unwrap().as_str(),
            "nqn.2024-01.com.example:me"
        );
        assert_eq!(options.host_id.unwrap().0[15], 0xff);
        assert_eq!(options.controller_loss_timeout, None);
        assert_eq!(options.reconnect_delay, Duration::from_millis(250));
        assert_eq!(options.io_timeout, Duration::from_secs(60));
        assert!(options.flush_after_reconnect);
        assert_eq!(
            (options.send_buffer, options.receive_buffer),
            (Some(256 << 10), Some(4 << 20))
        );
        assert_eq!(
            (options.congestion_control.as_deref(), options.dscp),
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
    fn addresses_are_taken_apart() {
        assert_eq!(host_and_port("h"), Ok(("h", None)));
        assert_eq!(host_and_port("10.0.0.1:8009"), Ok(("10.0.0.1", Some(8009))));
        assert_eq!(host_and_port("[fd00::1]:1"), Ok(("fd00::1", Some(1))));
        assert_eq!(host_and_port("[fd00::1]"), Ok(("fd00::1", None)));
        assert_eq!(host_and_port("fd00::1"), Ok(("fd00::1", None)));
        for text in ["", ":1", "h:0", "h:70000", "h:x", "[::1", "[::1]x", "[]"] {
            assert!(host_and_port(text).is_err(), "{text}");
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
