//! TransportIDs: names of initiator ports (SPC-4 section 7.6.4).

use thiserror::Error;

use crate::wire::{length_16, put, u16_at};

/// Bytes of the longest iSCSI name (RFC 7143 section 4.2.7.2).
pub const ISCSI_NAME_LENGTH_MAX: usize = 223;

/// PROTOCOL IDENTIFIER of iSCSI (SPC-4 table 379).
const ISCSI: u8 = 0x5;
/// PROTOCOL IDENTIFIER: no specific protocol.
const NO_PROTOCOL: u8 = 0xf;
/// Bytes before the name of an iSCSI TransportID, which ADDITIONAL LENGTH does not count.
const HEADER_LENGTH: usize = 4;
/// Smallest ADDITIONAL LENGTH.
const ADDITIONAL_LENGTH_MIN: usize = 20;
/// Text between name and ISID (SPC-4 table 392).
const SEPARATOR: &str = ",i,0x";
const ISID_DIGITS: usize = 12;

/// Bytes of the TransportID of an NVMe host, and the text in its bytes 4 to 7.
const NVME_HOST_LENGTH: usize = 24;
const NVME_HOST_MARK: &[u8; 4] = b"NVMe";

/// Name of an initiator port or device.
///
/// SPC-4 has no form for hosts of NVMe, which share reservations with SCSI hosts here. Theirs is one of no specific
/// protocol (Fh), of 24 bytes: in byte 1 the length of the Host Identifier in bytes, 8 or 16; in bytes 4 to 7 the text
/// `NVMe`; from byte 8 on the Host Identifier in the order of NVMe's wire, and zeroes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TransportId {
    /// An iSCSI initiator port (TPID FORMAT 01b).
    IscsiPort {
        /// Name of the initiator, of at most [`ISCSI_NAME_LENGTH_MAX`] bytes.
        name: Box<str>,
        /// ISID of the session.
        isid: [u8; 6],
    },
    /// An iSCSI initiator, with any of its ports (TPID FORMAT 00b).
    IscsiDevice {
        /// Name of the initiator, of at most [`ISCSI_NAME_LENGTH_MAX`] bytes.
        name: Box<str>,
    },
    /// A host of NVMe with a Host Identifier of 64 bits.
    NvmeHost([u8; 8]),
    /// A host of NVMe with a Host Identifier of 128 bits.
    NvmeHostExtended([u8; 16]),
}

/// Bytes that are no TransportID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum TransportIdError {
    /// The bytes end within it, go on behind it, or their number is no multiple of four.
    #[error("a TransportID does not take {0} bytes")]
    Length(usize),
    /// The protocol, or its form, is not known here.
    #[error("a TransportID that begins with byte {0:#04x} is not supported")]
    Format(u8),
    /// The name does not end, is empty or too long, or is no text.
    #[error("the TransportID holds no iSCSI name")]
    Name,
    /// No ISID of one to twelve hexadecimal digits follows the name.
    #[error("the TransportID holds no ISID")]
    Isid,
    /// An initiator port is needed.
    #[error("the TransportID does not name one iSCSI initiator port")]
    NoPort,
}

impl TransportId {
    /// Reads a TransportID that takes all of the bytes.
    ///
    /// # Errors
    /// The reason why they are none.
    pub fn parse(bytes: &[u8]) -> Result<Self, TransportIdError> {
        let &[first, second, ..] = bytes else {
            return Err(TransportIdError::Length(bytes.len()));
        };
        match (first >> 6, first & 0xf) {
            (0, NO_PROTOCOL) => parse_nvme_host(second, bytes),
            (0, ISCSI) => Ok(Self::IscsiDevice {
                name: name(text(bytes)?)?,
            }),
            (1, ISCSI) => {
                let (before, digits) = text(bytes)?
                    .rsplit_once(SEPARATOR)
                    .ok_or(TransportIdError::Isid)?;
                Ok(Self::IscsiPort {
                    name: name(before)?,
                    isid: isid(digits)?,
                })
            }
            _ => Err(TransportIdError::Format(first)),
        }
    }

    /// Bytes of the TransportID, a multiple of four and at least 24.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::IscsiPort { name, isid } => {
                let digits: String = isid.iter().map(|byte| format!("{byte:02x}")).collect();
                iscsi(1, &format!("{name}{SEPARATOR}{digits}"))
            }
            Self::IscsiDevice { name } => iscsi(0, name),
            Self::NvmeHost(identifier) => nvme_host(identifier),
            Self::NvmeHostExtended(identifier) => nvme_host(identifier),
        }
    }
}

fn iscsi(format: u8, text: &str) -> Vec<u8> {
    // The text ends with a NUL at least.
    let additional = (text.len() + 1)
        .next_multiple_of(4)
        .max(ADDITIONAL_LENGTH_MIN);
    let mut bytes = vec![format << 6 | ISCSI, 0, 0, 0];
    put(&mut bytes, 2, length_16(additional));
    bytes.extend(text.as_bytes());
    bytes.resize(HEADER_LENGTH + additional, 0);
    bytes
}

/// Text of an iSCSI TransportID, up to its NUL.
fn text(bytes: &[u8]) -> Result<&str, TransportIdError> {
    let wrong_length = TransportIdError::Length(bytes.len());
    let (header, text) = bytes.split_at_checked(HEADER_LENGTH).ok_or(wrong_length)?;
    let additional = usize::from(u16_at(header, 2));
    let is_allowed = additional >= ADDITIONAL_LENGTH_MIN && additional.is_multiple_of(4);
    if !is_allowed || additional != text.len() {
        return Err(wrong_length);
    }
    let end = text.iter().position(|&byte| byte == 0);
    let end = end.ok_or(TransportIdError::Name)?;
    str::from_utf8(&text[..end]).map_err(|_| TransportIdError::Name)
}

fn name(text: &str) -> Result<Box<str>, TransportIdError> {
    if text.is_empty() || text.len() > ISCSI_NAME_LENGTH_MAX {
        return Err(TransportIdError::Name);
    }
    Ok(text.into())
}

fn isid(digits: &str) -> Result<[u8; 6], TransportIdError> {
    let are_digits = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if digits.len() > ISID_DIGITS || !are_digits {
        return Err(TransportIdError::Isid);
    }
    let number = u64::from_str_radix(digits, 16).map_err(|_| TransportIdError::Isid)?;
    let [_, _, isid @ ..] = number.to_be_bytes();
    Ok(isid)
}

fn nvme_host(identifier: &[u8]) -> Vec<u8> {
    let mut bytes = vec![NO_PROTOCOL, identifier.len() as u8, 0, 0];
    bytes.extend(NVME_HOST_MARK);
    bytes.extend(identifier);
    bytes.resize(NVME_HOST_LENGTH, 0);
    bytes
}

fn parse_nvme_host(length: u8, bytes: &[u8]) -> Result<TransportId, TransportIdError> {
    if bytes.len() != NVME_HOST_LENGTH {
        return Err(TransportIdError::Length(bytes.len()));
    }
    let unknown = TransportIdError::Format(bytes[0]);
    let identifier = bytes[HEADER_LENGTH..]
        .strip_prefix(NVME_HOST_MARK)
        .ok_or(unknown)?;
    match (length, identifier.first_chunk(), identifier.first_chunk()) {
        (8, Some(&identifier), _) => Ok(TransportId::NvmeHost(identifier)),
        (16, _, Some(&identifier)) => Ok(TransportId::NvmeHostExtended(identifier)),
        _ => Err(unknown),
    }
}
