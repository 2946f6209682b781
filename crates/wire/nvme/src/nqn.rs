//! Names of hosts and subsystems: NVMe Qualified Names and host identifiers (NVMe Base 2.0c section
//! 4.5).

use crate::wire::Field;
use core::fmt;
use core::str::FromStr;
use thiserror::Error;

/// Bytes of the field that holds an NQN in a structure.
pub const NQN_FIELD_SIZE: usize = 256;
/// Longest NQN in bytes, the terminating NUL not counted (NVMe Base 2.0c section 4.5).
pub const NQN_LENGTH_MAX: usize = 223;
/// The well-known NQN of a discovery subsystem (NVMe Base 2.0c section 3.1.2.3).
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// What an NQN that is made from a UUID starts with (NVMe Base 2.0c section 4.5).
pub const UUID_NQN_PREFIX: &str = "nqn.2014-08.org.nvmexpress:uuid:";

/// What is wrong with an NQN.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NqnError {
    /// No bytes before the NUL.
    #[error("the NQN is empty: write one like nqn.2024-01.com.example:name")]
    Empty,
    /// More than [`NQN_LENGTH_MAX`] bytes.
    #[error("the NQN is {length} bytes long: shorten it to at most {NQN_LENGTH_MAX}")]
    TooLong {
        /// Bytes of the name.
        length: usize,
    },
    /// A 256-byte field without a NUL.
    #[error("the NQN field has no NUL in its {NQN_FIELD_SIZE} bytes")]
    NotTerminated,
    /// Not UTF-8.
    #[error("the NQN is not UTF-8")]
    NotUtf8,
    /// A control character or a space.
    #[error("the NQN {name:?} has a control character or space at byte {position}: leave it out")]
    BadCharacter {
        /// The name.
        name: String,
        /// Byte offset of the character.
        position: usize,
    },
    /// Neither a date and domain name, nor a UUID, follows `nqn.`.
    #[error(
        "{name:?} is not an NQN: write nqn.YYYY-MM.REVERSED-DOMAIN[:NAME], for example \
         nqn.2024-01.com.example:name, or {UUID_NQN_PREFIX}UUID"
    )]
    BadFormat {
        /// The name.
        name: String,
    },
}

/// An NVMe Qualified Name: 1 to 223 bytes of UTF-8 of one of the two forms in NVMe Base 2.0c
/// section 4.5, `nqn.YYYY-MM.REVERSED-DOMAIN[:ANYTHING]` or
/// `nqn.2014-08.org.nvmexpress:uuid:UUID`. Names compare byte by byte, as the specification says.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(Box<str>);

impl Nqn {
    /// Checks a name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(name: &str) -> Result<Self, NqnError> {
        if name.is_empty() {
            return Err(NqnError::Empty);
        }
        if name.len() > NQN_LENGTH_MAX {
            return Err(NqnError::TooLong { length: name.len() });
        }
        if let Some(position) =
            name.find(|character: char| character.is_control() || character == ' ')
        {
            return Err(NqnError::BadCharacter {
                name: name.to_owned(),
                position,
            });
        }
        if !is_uuid_form(name) && !is_domain_form(name) {
            return Err(NqnError::BadFormat {
                name: name.to_owned(),
            });
        }
        Ok(Self(name.into()))
    }

    /// The well-known NQN of a discovery subsystem.
    pub fn discovery() -> Self {
        Self(DISCOVERY_NQN.into())
    }

    /// Whether this is the well-known discovery NQN.
    pub fn is_discovery(&self) -> bool {
        &*self.0 == DISCOVERY_NQN
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Reads a NUL-terminated name from a structure's field; what follows the NUL is ignored.
    ///
    /// # Errors
    /// No NUL in the field, not UTF-8, or not a valid name.
    pub fn parse_field(field: &[u8; NQN_FIELD_SIZE]) -> Result<Self, NqnError> {
        let length = field
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(NqnError::NotTerminated)?;
        let name = core::str::from_utf8(&field[..length]).map_err(|_| NqnError::NotUtf8)?;
        Self::new(name)
    }

    /// The name as a structure's field, filled with NULs.
    pub fn to_field(&self) -> [u8; NQN_FIELD_SIZE] {
        let mut field = [0; NQN_FIELD_SIZE];
        field[..self.0.len()].copy_from_slice(self.0.as_bytes());
        field
    }
}

/// `nqn.2014-08.org.nvmexpress:uuid:` and a UUID in its 8-4-4-4-12 form.
fn is_uuid_form(name: &str) -> bool {
    let Some(uuid) = name.strip_prefix(UUID_NQN_PREFIX) else {
        return false;
    };
    let lengths = uuid.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12])
        && uuid
            .bytes()
            .all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// `nqn.`, a year and month, `.`, a reversed domain name and, optionally, `:` and a name.
fn is_domain_form(name: &str) -> bool {
    let Some(rest) = name.strip_prefix("nqn.") else {
        return false;
    };
    // The UUID prefix is reserved for real UUIDs.
    if name.starts_with(UUID_NQN_PREFIX) {
        return false;
    }
    let Some((date, rest)) = rest.split_once('.') else {
        return false;
    };
    let domain = rest.split_once(':').map_or(rest, |(domain, _)| domain);
    is_year_and_month(date) && domain.split('.').all(is_domain_label)
}

fn is_year_and_month(date: &str) -> bool {
    let bytes = date.as_bytes();
    let digits = |range: &[u8]| range.iter().all(u8::is_ascii_digit);
    bytes.len() == 7
        && digits(&bytes[..4])
        && bytes[4] == b'-'
        && digits(&bytes[5..])
        && matches!(&bytes[5..], [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2'])
}

fn is_domain_label(label: &str) -> bool {
    // Names in use contain underscores too, which a host name would not.
    !label.is_empty()
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

impl FromStr for Nqn {
    type Err = NqnError;
    fn from_str(name: &str) -> Result<Self, NqnError> {
        Self::new(name)
    }
}

impl AsRef<str> for Nqn {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl core::borrow::Borrow<str> for Nqn {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Nqn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Nqn({})", self.0)
    }
}

/// A host identifier, 128 bits (NVMe Base 2.0c section 5.27.1, feature 81h). Fabrics hosts always use
/// the extended form.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct HostId(pub [u8; 16]);

impl HostId {
    /// Whether every byte is zero, which names no host.
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 16]
    }

    /// The name of a host that has none but this: the UUID's form of an NQN.
    pub fn nqn(&self) -> Nqn {
        Nqn(format!("{UUID_NQN_PREFIX}{self}").into())
    }
}

impl fmt::Display for HostId {
    /// In a UUID's form, bytes in the order of the wire.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                formatter.write_str("-")?;
            }
            write!(formatter, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "HostId({self})")
    }
}

impl Field for HostId {
    const LENGTH: usize = 16;
    fn get(bytes: &[u8]) -> Self {
        Self(<[u8; 16]>::get(bytes))
    }
    fn put(&self, bytes: &mut [u8]) {
        self.0.put(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_in_use_are_accepted() {
        for name in [
            DISCOVERY_NQN,
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2014-08.org.nvmexpress:uuid:F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6",
            "nqn.2014-08.com.example:nvme.host.sys.xyz",
            "nqn.2016-06.io.spdk:cnode1",
            "nqn.2016-06.io.spdk",
            "nqn.2024-12.com.example_lab:a/b:c",
            "nqn.2001-07.com.ceph:1718000000000.ns",
            "nqn.2024-01.com.example:größe",
        ] {
            let nqn = Nqn::new(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(nqn.as_str(), name);
            assert_eq!(Nqn::parse_field(&nqn.to_field()), Ok(nqn.clone()));
        }
        assert!(Nqn::discovery().is_discovery());
        assert_eq!(Nqn::new(DISCOVERY_NQN), Ok(Nqn::discovery()));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in [
            "nqn",
            "nqn.",
            "nqn.2024",
            "nqn.2024-01",
            "nqn.2024-01.",
            "nqn.2024-01..com",
            "nqn.2024-13.com.example",
            "nqn.2024-00.com.example",
            "nqn.24-01.com.example",
            "NQN.2024-01.com.example",
            "iqn.2024-01.com.example:disk",
            "nqn.2024-01.com.ex/ample",
            "nqn.2014-08.org.nvmexpress:uuid:",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae7dec11d0a76500a0c91e6bf6",
            "nqn.2014-08.org.nvmexpress:uuid:g81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ] {
            assert_eq!(
                Nqn::new(name),
                Err(NqnError::BadFormat { name: name.into() }),
                "{name}"
            );
        }
        assert_eq!(Nqn::new(""), Err(NqnError::Empty));
        assert_eq!(
            Nqn::new("nqn.2024-01.com.example:a b"),
            Err(NqnError::BadCharacter {
                name: "nqn.2024-01.com.example:a b".into(),
                position: 25
            })
        );
        assert!(matches!(
            Nqn::new("nqn.2024-01.com.example:a\n"),
            Err(NqnError::BadCharacter { .. })
        ));
    }

    #[test]
    fn the_longest_name_has_223_bytes() {
        let name = format!("nqn.2024-01.com.example:{}", "x".repeat(223 - 24));
        assert_eq!(name.len(), 223);
        assert!(Nqn::new(&name).is_ok());
        let longer = format!("{name}x");
        assert_eq!(Nqn::new(&longer), Err(NqnError::TooLong { length: 224 }));
    }

    #[test]
    fn a_field_without_a_nul_is_refused() {
        assert_eq!(Nqn::parse_field(&[b'n'; 256]), Err(NqnError::NotTerminated));
        assert_eq!(Nqn::parse_field(&[0; 256]), Err(NqnError::Empty));
        let mut field = [b'x'; 256];
        field[255] = 0;
        assert_eq!(
            Nqn::parse_field(&field),
            Err(NqnError::TooLong { length: 255 })
        );
        let mut field = [0; 256];
        field[..5].copy_from_slice(b"nqn.\xff");
        assert_eq!(Nqn::parse_field(&field), Err(NqnError::NotUtf8));
    }

    #[test]
    fn bytes_after_the_nul_are_ignored() {
        let mut field = Nqn::discovery().to_field();
        field[200..].fill(0xff);
        assert_eq!(Nqn::parse_field(&field), Ok(Nqn::discovery()));
    }

    #[test]
    fn a_host_identifier_is_shown_as_a_uuid() {
        let id = HostId(*b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff");
        assert_eq!(id.to_string(), "00112233-4455-6677-8899-aabbccddeeff");
        assert!(!id.is_zero() && HostId::default().is_zero());
        let name = format!("{UUID_NQN_PREFIX}00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(Nqn::new(&name), Ok(id.nqn()));
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_what_is_accepted_survives(
            bytes in proptest::collection::vec(any::<u8>(), 256),
            name in "nqn\\.[0-9]{4}-[01][0-9]\\.[a-z.]{0,12}(:[^\\x00]{0,40})?",
        ) {
            let mut field: [u8; 256] = bytes.try_into().expect("256 bytes");
            if let Ok(nqn) = Nqn::parse_field(&field) {
                prop_assert_eq!(Nqn::parse_field(&nqn.to_field()), Ok(nqn));
            }
            let length = name.len().min(255);
            field[..length].copy_from_slice(&name.as_bytes()[..length]);
            field[length] = 0;
            if let Ok(nqn) = Nqn::parse_field(&field) {
                prop_assert_eq!(nqn.as_str(), name);
            }
        }
    }
}
