//! Names and identifiers of the control plane, each a type that only holds valid values.
//!
//! All of them are text in JSON, in URLs and on the command line, by `Display` and `FromStr`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a text is not the name or identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} {problem}")]
pub struct NameError {
    /// What the text should have been, such as "volume name".
    pub kind: &'static str,
    /// The text as given, cut to [`NameError::TEXT_CHARS_MAX`] characters.
    pub text: String,
    /// What is wrong with it and what would be right.
    pub problem: String,
}

impl NameError {
    /// Longest piece of a refused text that an error repeats.
    pub const TEXT_CHARS_MAX: usize = 256;

    fn new(kind: &'static str, text: &str, problem: impl Into<String>) -> Self {
        let text = text.chars().take(Self::TEXT_CHARS_MAX).collect();
        Self {
            kind,
            text,
            problem: problem.into(),
        }
    }
}

/// Implements the text forms of a type that has `FromStr` and `Display`.
macro_rules! text_forms {
    ($type:ty) => {
        impl TryFrom<String> for $type {
            type Error = NameError;

            fn try_from(text: String) -> Result<Self, NameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> String {
                value.to_string()
            }
        }
    };
}

/// A volume's name: 1 to 64 letters, digits, `.`, `_` or `-`, the first a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "vm-images")]
pub struct VolumeName(String);

impl VolumeName {
    /// Longest volume name, in bytes.
    pub const LENGTH_MAX: usize = 64;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |problem: &str| Err(NameError::new("volume name", text, problem));
        if text.is_empty() || text.len() > Self::LENGTH_MAX {
            return refuse("must have 1 to 64 characters");
        }
        if !text.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return refuse("must start with a letter or a digit");
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !text.chars().all(allowed) {
            return refuse("may hold only letters, digits, '.', '_' and '-'");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

text_forms!(VolumeName);

/// An export's path: where NFS clients see it, such as `/exports/vm-images`. Each of its names has 1 to 255 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "/exports/vm-images")]
pub struct ExportPath(String);

impl ExportPath {
    /// Longest path, in bytes.
    pub const LENGTH_MAX: usize = 1024;
    /// Longest name in it, in bytes.
    pub const NAME_LENGTH_MAX: usize = 255;

    /// The path as text, with a slash before each name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether it is `other`, or within it.
    pub fn is_within(&self, other: &Self) -> bool {
        is_path_within(&self.0, &other.0)
    }
}

/// Tells whether a path is another one, or within it. Both begin with a slash, and end with none.
pub(crate) fn is_path_within(path: &str, other: &str) -> bool {
    let rest = path.strip_prefix(other.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl FromStr for ExportPath {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |problem: &str| Err(NameError::new("export path", text, problem));
        let Some(names) = text.strip_prefix('/') else {
            return refuse("must begin with a slash, as in /exports/vm-images");
        };
        if text.len() > Self::LENGTH_MAX {
            return refuse("must have at most 1024 bytes");
        }
        for name in names.split('/') {
            if name.is_empty() || name.len() > Self::NAME_LENGTH_MAX {
                return refuse(
                    "must have names of 1 to 255 bytes between its slashes, and none at its end",
                );
            }
            if matches!(name, "." | "..") || name.chars().any(char::is_control) {
                return refuse("must not hold the names '.' and '..', nor control characters");
            }
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ExportPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

text_forms!(ExportPath);

/// A range of addresses, such as `192.0.2.0/24`, or one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressRange {
    address: IpAddr,
    prefix: u8,
}

impl AddressRange {
    /// Its first address.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The bits that all its addresses have in common.
    pub fn prefix(self) -> u8 {
        self.prefix
    }

    fn bits(address: IpAddr) -> u8 {
        match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        }
    }

    /// The address without the bits behind the prefix.
    fn first(address: IpAddr, prefix: u8) -> IpAddr {
        let left = u32::from(Self::bits(address) - prefix);
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(left).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(left).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        }
    }
}

impl FromStr for AddressRange {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |problem: String| NameError::new("address range", text, problem);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| {
            refuse("must be an address or a range of them, as in 192.0.2.0/24".to_owned())
        })?;
        let bits = Self::bits(address);
        let prefix = match prefix {
            None => bits,
            Some(prefix) => prefix
                .parse()
                .ok()
                .filter(|&prefix| prefix <= bits)
                .ok_or_else(|| refuse(format!("must have a prefix of 0 to {bits} bits")))?,
        };
        if Self::first(address, prefix) != address {
            let first = Self::first(address, prefix);
            return Err(refuse(format!(
                "has bits behind its prefix: write {first}/{prefix}"
            )));
        }
        Ok(Self { address, prefix })
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix == Self::bits(self.address) {
            return write!(formatter, "{}", self.address);
        }
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

text_forms!(AddressRange);

/// An NVMe Qualified Name: of a subsystem or of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "nqn.2026-01.com.example:vm-images")]
pub struct Nqn(weir_nvme::nqn::Nqn);

impl Nqn {
    /// The well-known NQN of every discovery subsystem (NVMe Base 2.0, 4.5).
    pub const DISCOVERY: &'static str = weir_nvme::nqn::DISCOVERY_NQN;

    /// The NQN as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The NQN as the protocol crates have it.
    pub fn wire(&self) -> &weir_nvme::nqn::Nqn {
        &self.0
    }

    /// Whether this is the well-known discovery NQN.
    pub fn is_discovery(&self) -> bool {
        self.0.is_discovery()
    }
}

impl From<weir_nvme::nqn::Nqn> for Nqn {
    fn from(nqn: weir_nvme::nqn::Nqn) -> Self {
        Self(nqn)
    }
}

impl FromStr for Nqn {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        use weir_nvme::nqn::NqnError;
        weir_nvme::nqn::Nqn::new(text).map(Self).map_err(|error| {
            let problem = match error {
                NqnError::Empty | NqnError::TooLong { .. } => "must have 1 to 223 bytes",
                NqnError::BadCharacter { .. } => "must not hold spaces or control characters",
                NqnError::NotTerminated | NqnError::NotUtf8 | NqnError::BadFormat { .. } => {
                    "must have the form nqn.YYYY-MM.REVERSED.DOMAIN:NAME, such as \
                     nqn.2026-01.com.example:storage, or nqn.2014-08.org.nvmexpress:uuid:UUID"
                }
            };
            NameError::new("NQN", text, problem)
        })
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str())
    }
}

text_forms!(Nqn);

/// The name of an iSCSI target or initiator: iqn., eui. or naa. (RFC 7143, 4.2.7), in lower case, as names are compared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "iqn.2026-01.com.example:vm-images")]
pub struct IscsiName(weir_iscsi::names::Name);

impl IscsiName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The name as the protocol crates have it.
    pub fn wire(&self) -> &weir_iscsi::names::Name {
        &self.0
    }
}

impl From<weir_iscsi::names::Name> for IscsiName {
    fn from(name: weir_iscsi::names::Name) -> Self {
        Self(name)
    }
}

impl FromStr for IscsiName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        use weir_iscsi::names::NameError as Wrong;
        text.parse().map(Self).map_err(|error: Wrong| {
            let problem = match error {
                Wrong::TooLong { .. } => "must have at most 223 bytes",
                Wrong::Character { .. } => "may hold only letters, digits, '-', '.', ':' and '_'",
                Wrong::Eui => "must have 16 hexadecimal digits after eui.",
                Wrong::Naa => "must have 16 or 32 hexadecimal digits after naa.",
                Wrong::UnknownFormat | Wrong::Date | Wrong::Authority => {
                    "must have the form iqn.YYYY-MM.REVERSED.DOMAIN:NAME, such as \
                     iqn.2026-01.com.example:storage, or eui.DIGITS or naa.DIGITS"
                }
            };
            NameError::new("iSCSI name", text, problem)
        })
    }
}

impl fmt::Display for IscsiName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.as_str())
    }
}

text_forms!(IscsiName);

/// A host's name: 1 to 223 bytes without spaces and control characters. A host that was registered by an NQN or an iSCSI name is named
/// like it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "nqn.2026-01.com.example:rack-7")]
pub struct HostName(String);

impl HostName {
    /// Longest host name, in bytes: that of an NQN.
    pub const LENGTH_MAX: usize = 223;

    /// The NQN or iSCSI name that it is, if it is one.
    ///
    /// # Errors
    /// It begins like one, and is none.
    pub fn own_name(&self) -> Result<Option<OwnName>, NameError> {
        let text = self.0.as_str();
        if text.starts_with("nqn.") {
            return Ok(Some(OwnName::Nqn(text.parse()?)));
        }
        let lower = text.to_ascii_lowercase();
        if ["iqn.", "eui.", "naa."]
            .iter()
            .any(|format| lower.starts_with(format))
        {
            return Ok(Some(OwnName::Iscsi(text.parse()?)));
        }
        Ok(None)
    }
}

/// A name under which a host connects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnName {
    /// That of an NVMe host.
    Nqn(Nqn),
    /// That of an iSCSI initiator.
    Iscsi(IscsiName),
}

impl From<Nqn> for HostName {
    fn from(nqn: Nqn) -> Self {
        Self(nqn.to_string())
    }
}

impl From<IscsiName> for HostName {
    fn from(name: IscsiName) -> Self {
        Self(name.to_string())
    }
}

impl FromStr for HostName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let refuse = |problem: &str| Err(NameError::new("host name", text, problem));
        if text.is_empty() || text.len() > Self::LENGTH_MAX {
            return refuse("must have 1 to 223 bytes");
        }
        if text.chars().any(|c| c == ' ' || c.is_control()) {
            return refuse("must not hold spaces or control characters");
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

text_forms!(HostName);

/// Checks the text of an Identify Controller string field: ASCII without control characters, at
/// least one character, no space at the ends, at most `length_max` bytes.
fn check_identify_text(kind: &'static str, text: &str, length_max: usize) -> Result<(), NameError> {
    if text.is_empty() || text.len() > length_max {
        let problem = format!("must have 1 to {length_max} characters");
        return Err(NameError::new(kind, text, problem));
    }
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(NameError::new(
            kind,
            text,
            "may hold only printable ASCII characters",
        ));
    }
    if text.starts_with(' ') || text.ends_with(' ') {
        return Err(NameError::new(
            kind,
            text,
            "must not start or end with a space",
        ));
    }
    Ok(())
}

/// A subsystem's serial number (NVMe Base 2.0, Identify Controller bytes 23:04).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "WEIR6D2A90F41C3B7E58")]
pub struct Serial(String);

impl Serial {
    /// Longest serial number, in bytes.
    pub const LENGTH_MAX: usize = 20;

    /// The serial number as text, without padding.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A serial number made of 64 random bits.
    pub fn from_random(random: [u8; 8]) -> Self {
        Self(format!("WEIR{:016X}", u64::from_be_bytes(random)))
    }
}

impl FromStr for Serial {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_identify_text("serial number", text, Self::LENGTH_MAX)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

text_forms!(Serial);

/// A subsystem's model number (NVMe Base 2.0, Identify Controller bytes 63:24).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "Weir")]
pub struct Model(String);

impl Model {
    /// Longest model number, in bytes.
    pub const LENGTH_MAX: usize = 40;

    /// The model number as text, without padding.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Model {
    fn default() -> Self {
        Self("Weir".to_owned())
    }
}

impl FromStr for Model {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_identify_text("model number", text, Self::LENGTH_MAX)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

text_forms!(Model);

/// Bit 1 of an OUI's first octet: the identifier is locally administered (IEEE 802, 8.2.2).
const LOCALLY_ADMINISTERED: u8 = 0x02;
/// Bit 0 of an OUI's first octet: a group address, which an identifier must not be.
const GROUP: u8 = 0x01;

/// Marks a random OUI octet as locally administered and not a group: Weir owns no OUI.
fn local_octet(random: u8) -> u8 {
    (random | LOCALLY_ADMINISTERED) & !GROUP
}

/// Reads exactly `N` bytes of hexadecimal digits; `-`, `:` and a leading `0x` or `eui.` are let by.
fn parse_hexadecimal<const N: usize>(kind: &'static str, text: &str) -> Result<[u8; N], NameError> {
    let stripped = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("eui."))
        .unwrap_or(text);
    let digits: Vec<u8> = stripped
        .bytes()
        .filter(|byte| !matches!(byte, b'-' | b':'))
        .collect();
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    let mut bytes = [0; N];
    let mut valid = digits.len() == 2 * N;
    if valid {
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            match (nibble(pair[0]), nibble(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => valid = false,
            }
        }
    }
    if !valid {
        let problem = format!("must have {} hexadecimal digits", 2 * N);
        return Err(NameError::new(kind, text, problem));
    }
    if bytes == [0; N] {
        return Err(NameError::new(
            kind,
            text,
            "must not be all zero: zero means none",
        ));
    }
    Ok(bytes)
}

/// A namespace's NGUID (NVMe Base 2.0, 4.7.1.4), never all zero.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "5c1b2d8e90a4f7360236bd1e5f8a9c04")]
pub struct Nguid([u8; 16]);

impl Nguid {
    /// The bytes in the order of the Identify Namespace structure.
    pub fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// An NGUID of random bits whose OUI (bytes 10:08) is locally administered.
    pub fn from_random(mut random: [u8; 16]) -> Self {
        random[8] = local_octet(random[8]);
        Self(random)
    }
}

impl FromStr for Nguid {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        parse_hexadecimal("NGUID", text).map(Self)
    }
}

impl fmt::Display for Nguid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

text_forms!(Nguid);

/// A namespace's EUI-64 (NVMe Base 2.0, 4.7.1.3), never all zero.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "0236bd1e5f8a9c04")]
pub struct Eui64([u8; 8]);

impl Eui64 {
    /// The bytes in the order of the Identify Namespace structure.
    pub fn bytes(&self) -> [u8; 8] {
        self.0
    }

    /// An EUI-64 of random bits whose OUI (bytes 02:00) is locally administered.
    pub fn from_random(mut random: [u8; 8]) -> Self {
        random[0] = local_octet(random[0]);
        Self(random)
    }
}

impl FromStr for Eui64 {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        parse_hexadecimal("EUI-64", text).map(Self)
    }
}

impl fmt::Display for Eui64 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

text_forms!(Eui64);

/// Where a listener listens, without its port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenerHost {
    /// Every address, IPv4 and IPv6 (`*`).
    Any,
    /// One address, or the wildcard of one family (`0.0.0.0`, `::`).
    Address(IpAddr),
    /// A host name, resolved when the listener is opened.
    Name(String),
}

/// A listener's address and its name in the API: `ADDRESS:PORT`, `[IPV6]:PORT`, `NAME:PORT` or
/// `*:PORT`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ListenerAddress {
    host: ListenerHost,
    port: u16,
}

impl ListenerAddress {
    /// The IANA port of NVMe/TCP I/O controllers (NVMe/TCP 1.0, 3.1.1).
    pub const IO_PORT: u16 = 4420;
    /// The IANA port of NVMe/TCP discovery controllers (NVMe/TCP 1.0, 3.1.1).
    pub const DISCOVERY_PORT: u16 = 8009;
    /// The IANA port of NFS (RFC 8881, 2.9).
    pub const NFS_PORT: u16 = 2049;
    /// The IANA port of iSCSI targets (RFC 7143, 14).
    pub const ISCSI_PORT: u16 = 3260;
    const KIND: &'static str = "listener address";

    /// The address part.
    pub fn host(&self) -> &ListenerHost {
        &self.host
    }

    /// The TCP port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Reads an address whose port may be missing: `default_port` then takes its place.
    ///
    /// # Errors
    /// The text is neither an address nor a name, or the port is not 1 to 65535.
    pub fn parse(text: &str, default_port: u16) -> Result<Self, NameError> {
        let (host, port) = Self::split(text)?;
        let port = match port {
            None => default_port,
            Some(digits) => Self::parse_port(text, digits)?,
        };
        Ok(Self {
            host: Self::parse_host(text, host)?,
            port,
        })
    }

    /// Splits the port off, minding that a bare IPv6 address holds colons too.
    fn split(text: &str) -> Result<(&str, Option<&str>), NameError> {
        if let Some(rest) = text.strip_prefix('[') {
            let Some((host, rest)) = rest.split_once(']') else {
                return Err(NameError::new(Self::KIND, text, "has '[' without ']'"));
            };
            return match rest.strip_prefix(':') {
                Some(port) => Ok((host, Some(port))),
                None if rest.is_empty() => Ok((host, None)),
                None => Err(NameError::new(
                    Self::KIND,
                    text,
                    "has text after ']': want ':PORT'",
                )),
            };
        }
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok((text, None));
        }
        Ok(match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        })
    }

    fn parse_port(text: &str, digits: &str) -> Result<u16, NameError> {
        match digits.parse() {
            Ok(port) if port != 0 => Ok(port),
            _ => Err(NameError::new(
                Self::KIND,
                text,
                "has a port that is not 1 to 65535",
            )),
        }
    }

    fn parse_host(text: &str, host: &str) -> Result<ListenerHost, NameError> {
        if host == "*" {
            return Ok(ListenerHost::Any);
        }
        if let Ok(address) = host.parse() {
            return Ok(ListenerHost::Address(address));
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        // All digits and dots is a mistyped IPv4 address, never a name that would resolve.
        let numeric = host
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.');
        if host.len() > 253 || numeric || !host.split('.').all(label) {
            let problem = "is not an address: give an IPv4 address, an IPv6 address in [], \
                           a host name, or * for all addresses, then :PORT";
            return Err(NameError::new(Self::KIND, text, problem));
        }
        Ok(ListenerHost::Name(host.to_ascii_lowercase()))
    }
}

impl FromStr for ListenerAddress {
    type Err = NameError;

    /// Reads an address with its port; the port must be given.
    fn from_str(text: &str) -> Result<Self, NameError> {
        if let (_, None) = Self::split(text)? {
            return Err(NameError::new(Self::KIND, text, "has no port: add :PORT"));
        }
        Self::parse(text, Self::IO_PORT)
    }
}

impl fmt::Display for ListenerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            ListenerHost::Any => write!(formatter, "*:{}", self.port),
            ListenerHost::Address(IpAddr::V4(address)) => {
                write!(formatter, "{address}:{}", self.port)
            }
            ListenerHost::Address(IpAddr::V6(address)) => {
                write!(formatter, "[{address}]:{}", self.port)
            }
            ListenerHost::Name(name) => write!(formatter, "{name}:{}", self.port),
        }
    }
}

text_forms!(ListenerAddress);

impl utoipa::PartialSchema for ListenerAddress {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        utoipa::openapi::schema::ObjectBuilder::new()
            .schema_type(utoipa::openapi::schema::Type::String)
            .description(Some(
                "ADDRESS:PORT, [IPV6]:PORT, NAME:PORT, or *:PORT for all addresses.",
            ))
            .examples(["192.0.2.10:4420"])
            .into()
    }
}

impl ToSchema for ListenerAddress {}

/// Where hosts reach a portal, as they are told: `ADDRESS:PORT`, `[IPV6]:PORT` or `NAME:PORT`, where that is not its own address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "198.51.100.7:3260")]
pub struct Advertised(ListenerAddress);

impl FromStr for Advertised {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let address: ListenerAddress = text.parse()?;
        let is_wildcard = match address.host() {
            ListenerHost::Any => true,
            ListenerHost::Address(address) => address.is_unspecified(),
            ListenerHost::Name(_) => false,
        };
        if is_wildcard {
            let problem = "must be one that hosts can connect to, not a wildcard";
            return Err(NameError::new("advertised address", text, problem));
        }
        Ok(Self(address))
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

text_forms!(Advertised);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_paths() {
        for good in [
            "/a",
            "/exports/vm images/ä",
            "/...",
            &format!("/{}", "x".repeat(255)),
        ] {
            assert_eq!(good.parse::<ExportPath>().unwrap().as_str(), good);
        }
        let long = format!("/{}", "x".repeat(256));
        for bad in [
            "", "/", "a", "/a/", "//a", "/a//b", "/.", "/a/..", "/a\nb", &long,
        ] {
            assert!(bad.parse::<ExportPath>().is_err(), "{bad:?} was accepted");
        }
        let path = |text: &str| text.parse::<ExportPath>().unwrap();
        assert!(path("/a/b").is_within(&path("/a")) && path("/a").is_within(&path("/a")));
        assert!(!path("/ab").is_within(&path("/a")) && !path("/a").is_within(&path("/a/b")));
        assert!(is_path_within("/a", "/"));
    }

    #[test]
    fn address_ranges() {
        for good in [
            "192.0.2.0/24",
            "192.0.2.7",
            "0.0.0.0/0",
            "2001:db8::/32",
            "::/0",
            "::1",
        ] {
            assert_eq!(good.parse::<AddressRange>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "host",
            "192.0.2.0/33",
            "192.0.2.1/24",
            "::/129",
            "1.2.3.4/",
            "::1/64",
        ] {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn volume_names() {
        for good in ["a", "0", "vm-images.1_x", &"x".repeat(64)] {
            assert_eq!(good.parse::<VolumeName>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<VolumeName>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn nqns() {
        let uuid = "nqn.2014-08.org.nvmexpress:uuid:4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11";
        for good in ["nqn.2026-01.com.example:a", uuid, Nqn::DISCOVERY] {
            assert_eq!(good.parse::<Nqn>().unwrap().as_str(), good);
        }
        assert!(Nqn::DISCOVERY.parse::<Nqn>().unwrap().is_discovery());
        let long = format!("nqn.2026-01.com.example:{}", "x".repeat(200));
        for bad in [
            "",
            "iqn.2026-01.com.example:a",
            "nqn.2026-13.com.example:a",
            "nqn.",
            &long,
        ] {
            assert!(bad.parse::<Nqn>().is_err(), "{bad:?} was accepted");
        }
        assert!("nqn.2026-01.com.example:a b".parse::<Nqn>().is_err());
    }

    #[test]
    fn iscsi_names() {
        for good in [
            "iqn.2026-01.com.example:a",
            "eui.02004567a425678d",
            "naa.52004567ba64678d",
        ] {
            assert_eq!(good.parse::<IscsiName>().unwrap().as_str(), good);
        }
        let name: IscsiName = "IQN.2026-01.com.Example:A".parse().unwrap();
        assert_eq!(name.as_str(), "iqn.2026-01.com.example:a");
        let long = format!("iqn.2026-01.com.example:{}", "x".repeat(200));
        let bad = [
            "",
            "nqn.2026-01.com.example:a",
            "iqn.2026-13.com.example:a",
            "eui.1",
            "iqn.2026-01.a b",
            &long,
        ];
        for bad in bad {
            let error = bad.parse::<IscsiName>().unwrap_err();
            assert!(error.to_string().starts_with("iSCSI name"), "{error}");
        }
    }

    #[test]
    fn host_names_may_be_names_of_protocols() {
        let of = |text: &str| text.parse::<HostName>().unwrap().own_name();
        assert_eq!(of("rack-7"), Ok(None));
        let nqn = "nqn.2026-01.com.example:a";
        assert_eq!(of(nqn), Ok(Some(OwnName::Nqn(nqn.parse().unwrap()))));
        let iqn = OwnName::Iscsi("iqn.2026-01.com.example:a".parse().unwrap());
        assert_eq!(of("iqn.2026-01.com.example:A"), Ok(Some(iqn)));
        assert!(of("nqn.2026-13.com.example:a").is_err());
        assert!(of("iqn.2026-13.com.example:a").is_err());
    }

    #[test]
    fn what_is_advertised_can_be_connected_to() {
        for good in [
            "198.51.100.7:3260",
            "[2001:db8::1]:3260",
            "gw.example.com:3260",
        ] {
            assert_eq!(good.parse::<Advertised>().unwrap().to_string(), good);
        }
        for bad in ["*:3260", "0.0.0.0:3260", "[::]:3260", "198.51.100.7", ""] {
            assert!(bad.parse::<Advertised>().is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn identify_texts() {
        assert!("ABC 123".parse::<Serial>().is_ok());
        for bad in ["", " a", "a ", "é", "123456789012345678901"] {
            assert!(bad.parse::<Serial>().is_err(), "{bad:?} was accepted");
        }
        assert_eq!(
            Serial::from_random([0xab; 8]).as_str(),
            "WEIRABABABABABABABAB"
        );
        assert_eq!(
            Serial::from_random([0; 8]).as_str().len(),
            Serial::LENGTH_MAX
        );
    }

    #[test]
    fn identifiers_are_locally_administered() {
        let nguid = Nguid::from_random([0xff; 16]);
        assert_eq!(nguid.to_string(), "fffffffffffffffffeffffffffffffff");
        let eui64 = Eui64::from_random([0x00; 8]);
        assert_eq!(eui64.to_string(), "0200000000000000");
        assert_eq!(
            "eui.02-00-00-00-00-00-00-00".parse::<Eui64>().unwrap(),
            eui64
        );
        assert_eq!(nguid.to_string().parse::<Nguid>().unwrap(), nguid);
        assert!("0".repeat(32).parse::<Nguid>().is_err());
        assert!("123".parse::<Nguid>().is_err());
        assert!("g".repeat(16).parse::<Eui64>().is_err());
    }

    #[test]
    fn listener_addresses() {
        let same = [
            "*:4420",
            "0.0.0.0:1",
            "[::]:65535",
            "[fe80::1]:8009",
            "gw.example.com:4420",
        ];
        for text in same {
            assert_eq!(text.parse::<ListenerAddress>().unwrap().to_string(), text);
        }
        let defaulted = [
            ("::1", "[::1]:4420"),
            ("[::1]", "[::1]:4420"),
            ("10.0.0.1", "10.0.0.1:4420"),
            ("GW", "gw:4420"),
            ("*", "*:4420"),
        ];
        for (text, whole) in defaulted {
            let parsed = ListenerAddress::parse(text, ListenerAddress::IO_PORT).unwrap();
            assert_eq!(parsed.to_string(), whole);
        }
        let bad = [
            "",
            ":1",
            "1.2.3:4420",
            "a:0",
            "a:65536",
            "a:x",
            "[::1",
            "[::1]x",
            "a b:1",
            "-a:1",
        ];
        for text in bad {
            assert!(
                text.parse::<ListenerAddress>().is_err(),
                "{text:?} was accepted"
            );
        }
        assert!(
            "10.0.0.1".parse::<ListenerAddress>().is_err(),
            "a port must be given"
        );
    }
}
