//! Vital product data (SPC-4 section 7.8, SBC-3 section 6.6).

#[cfg(test)]
mod tests;

use crate::inquiry::Peripheral;
use crate::wire::{TooShort, at_least, bit, flag, length_16, put, u16_at, u32_at, u64_at};

/// PAGE CODEs.
pub mod page {
    /// Supported VPD pages.
    pub const SUPPORTED_PAGES: u8 = 0x00;
    /// Unit serial number.
    pub const SERIAL_NUMBER: u8 = 0x80;
    /// Device identification.
    pub const DEVICE_IDENTIFICATION: u8 = 0x83;
    /// Extended INQUIRY data.
    pub const EXTENDED_INQUIRY: u8 = 0x86;
    /// Mode page policy.
    pub const MODE_PAGE_POLICY: u8 = 0x87;
    /// SCSI ports.
    pub const SCSI_PORTS: u8 = 0x88;
    /// Block limits.
    pub const BLOCK_LIMITS: u8 = 0xb0;
    /// Block device characteristics.
    pub const BLOCK_CHARACTERISTICS: u8 = 0xb1;
    /// Logical block provisioning.
    pub const PROVISIONING: u8 = 0xb2;
}

/// Bytes before the data of a page.
pub const PAGE_HEADER_LENGTH: usize = 4;

/// CODE SET of binary data, and of text in UTF-8.
pub const CODE_SET_BINARY: u8 = 1;
const CODE_SET_ASCII: u8 = 2;
const CODE_SET_UTF_8: u8 = 3;

/// DESIGNATOR TYPE of NAA identifiers.
pub const DESIGNATOR_NAA: u8 = 3;
/// DESIGNATOR TYPE of T10 vendor identifications.
pub const DESIGNATOR_T10_VENDOR: u8 = 1;
/// DESIGNATOR TYPE of EUI-64 identifiers.
pub const DESIGNATOR_EUI_64: u8 = 2;
const DESIGNATOR_RELATIVE_PORT: u8 = 4;
const DESIGNATOR_PORT_GROUP: u8 = 5;
/// DESIGNATOR TYPE of SCSI name strings.
pub const DESIGNATOR_SCSI_NAME: u8 = 8;

/// PROTOCOL IDENTIFIER of iSCSI.
const PROTOCOL_ISCSI: u8 = 0x5;

/// A page of a block device with its header.
fn page_of(code: u8, data: &[u8]) -> Vec<u8> {
    let [high, low] = length_16(data.len());
    let mut bytes = vec![Peripheral::BLOCK_DEVICE.encode(), code, high, low];
    bytes.extend(data);
    bytes
}

/// The data of a page as an initiator gets it: its code, and what follows the header as far as it was not cut.
///
/// # Errors
/// The bytes end within the header.
pub fn parse_page(bytes: &[u8]) -> Result<(u8, &[u8]), TooShort> {
    at_least("a VPD page", bytes, PAGE_HEADER_LENGTH)?;
    let end = bytes
        .len()
        .min(PAGE_HEADER_LENGTH + usize::from(u16_at(bytes, 2)));
    Ok((bytes[1], &bytes[PAGE_HEADER_LENGTH..end]))
}

/// Supported VPD pages, which are to be in order.
pub fn supported_pages(codes: &[u8]) -> Vec<u8> {
    page_of(page::SUPPORTED_PAGES, codes)
}

/// Unit serial number, of ASCII text.
pub fn serial_number(serial: &str) -> Vec<u8> {
    page_of(page::SERIAL_NUMBER, serial.as_bytes())
}

/// An NAA identifier of 16 bytes (NAA 6h) that is made of the 16 bytes of an identity.
///
/// The first half byte says the format, and the 24 bits behind it would be the maker's number, which Weir has not. They are bits of the
/// identity too, as those of other software targets are, with the one that marks locally administered numbers set, so that no maker's
/// numbers are taken.
pub fn naa(identity: [u8; 16]) -> [u8; 16] {
    let mut bytes = identity;
    // The maker's number begins with the low half of the first byte: its locally administered bit is the second lowest of its first
    // byte (IEEE 802-2014, section 8.2), which ends in the high half of the second byte.
    bytes[0] = 0x60 | identity[0] & 0x0f;
    bytes[1] |= 0x20;
    bytes
}

/// A target port of iSCSI: a target in one portal group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port<'a> {
    /// The target's iSCSI name.
    pub target: &'a str,
    /// TARGET PORTAL GROUP TAG.
    pub portal_group: u16,
    /// RELATIVE TARGET PORT IDENTIFIER.
    pub relative: u16,
    /// TARGET PORT GROUP, of asymmetric access.
    pub port_group: u16,
}

impl Port<'_> {
    /// SCSI name string of the port (RFC 7143 section 4.4.3), filled to words with zeroes of which there is one at least.
    fn name(&self) -> Vec<u8> {
        terminated(&format!("{},t,0x{:04x}", self.target, self.portal_group))
    }
}

fn terminated(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// What a designator is associated with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Association {
    /// 00b: the logical unit.
    Unit,
    /// 01b: the port that received the command.
    Port,
    /// 10b: the target device.
    Target,
}

/// A designator as an initiator reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Designator<'a> {
    /// CODE SET.
    pub code_set: u8,
    /// DESIGNATOR TYPE.
    pub designator_type: u8,
    /// ASSOCIATION, two bits.
    pub association: u8,
    /// DESIGNATOR.
    pub value: &'a [u8],
}

impl Designator<'_> {
    /// Tells whether it designates the logical unit, and not a port or the target.
    pub const fn is_of_unit(&self) -> bool {
        self.association == 0
    }
}

fn designate(code_set: u8, association: Association, designator_type: u8, value: &[u8]) -> Vec<u8> {
    let association = match association {
        Association::Unit => 0,
        Association::Port => 1 << 4,
        Association::Target => 2 << 4,
    };
    // PIV: the protocol is that of ports and targets.
    let protocol = match association {
        0 => 0,
        _ => PROTOCOL_ISCSI << 4,
    };
    let mut bytes = vec![
        protocol | code_set,
        flag(association != 0, 7) | association | designator_type,
        0,
        value.len() as u8,
    ];
    bytes.extend(value);
    bytes
}

/// Device identification: the unit's T10 vendor identification and NAA identifier, and what its port and its target are called.
pub fn device_identification(
    vendor: [u8; 8],
    serial: &str,
    naa: &[u8; 16],
    port: &Port<'_>,
) -> Vec<u8> {
    let mut data = designate(CODE_SET_BINARY, Association::Unit, DESIGNATOR_NAA, naa);
    let vendor = [&vendor[..], serial.as_bytes()].concat();
    let unit = Association::Unit;
    data.extend(designate(
        CODE_SET_ASCII,
        unit,
        DESIGNATOR_T10_VENDOR,
        &vendor,
    ));
    let number = |number: u16| [0, 0, number.to_be_bytes()[0], number.to_be_bytes()[1]];
    let of_port = Association::Port;
    let relative = number(port.relative);
    data.extend(designate(
        CODE_SET_BINARY,
        of_port,
        DESIGNATOR_RELATIVE_PORT,
        &relative,
    ));
    let group = number(port.port_group);
    data.extend(designate(
        CODE_SET_BINARY,
        of_port,
        DESIGNATOR_PORT_GROUP,
        &group,
    ));
    data.extend(designate(
        CODE_SET_UTF_8,
        of_port,
        DESIGNATOR_SCSI_NAME,
        &port.name(),
    ));
    let target = terminated(port.target);
    data.extend(designate(
        CODE_SET_UTF_8,
        Association::Target,
        DESIGNATOR_SCSI_NAME,
        &target,
    ));
    page_of(page::DEVICE_IDENTIFICATION, &data)
}

/// Reads the designators of device identification data, without its header. Those that are cut are left out.
pub fn designators(mut data: &[u8]) -> Vec<Designator<'_>> {
    let mut designators = Vec::new();
    while let Some((header, rest)) = data.split_at_checked(4) {
        let Some((value, rest)) = rest.split_at_checked(header[3].into()) else {
            break;
        };
        designators.push(Designator {
            code_set: header[0] & 0xf,
            designator_type: header[1] & 0xf,
            association: header[1] >> 4 & 0x3,
            value,
        });
        data = rest;
    }
    designators
}

/// Extended INQUIRY data of a unit without protection information that knows simple, ordered and head of queue tasks, and has a volatile
/// cache or none.
pub fn extended_inquiry(volatile_cache: bool) -> Vec<u8> {
    let mut data = [0; 60];
    // HEADSUP, ORDSUP and SIMPSUP.
    data[1] = 0b111;
    // V_SUP.
    data[2] = flag(volatile_cache, 0);
    // LUICLR: an I_T nexus loss of one initiator clears nothing of another.
    data[3] = flag(true, 0);
    page_of(page::EXTENDED_INQUIRY, &data)
}

/// Mode page policy: all pages are shared by all initiators.
pub fn mode_page_policy() -> Vec<u8> {
    // POLICY PAGE CODE 3Fh and subpage FFh: every page.
    page_of(page::MODE_PAGE_POLICY, &[0x3f, 0xff, 0, 0])
}

/// SCSI ports: the one that there is.
pub fn scsi_ports(port: &Port<'_>) -> Vec<u8> {
    let name = port.name();
    let name = designate(
        CODE_SET_UTF_8,
        Association::Port,
        DESIGNATOR_SCSI_NAME,
        &name,
    );
    let mut data = vec![0; 12];
    put(&mut data, 2, port.relative.to_be_bytes());
    put(&mut data, 10, length_16(name.len()));
    data.extend(name);
    page_of(page::SCSI_PORTS, &data)
}

/// Block limits. Lengths are in blocks; zero says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BlockLimits {
    /// WSNZ: WRITE SAME of zero blocks is refused.
    pub write_same_not_zero: bool,
    /// MAXIMUM COMPARE AND WRITE LENGTH.
    pub compare_and_write_max: u8,
    /// OPTIMAL TRANSFER LENGTH GRANULARITY.
    pub granularity: u16,
    /// MAXIMUM TRANSFER LENGTH.
    pub transfer_max: u32,
    /// OPTIMAL TRANSFER LENGTH.
    pub transfer_optimal: u32,
    /// MAXIMUM UNMAP LBA COUNT.
    pub unmap_max: u32,
    /// MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT.
    pub unmap_descriptors_max: u32,
    /// OPTIMAL UNMAP GRANULARITY.
    pub unmap_granularity: u32,
    /// UNMAP GRANULARITY ALIGNMENT, where it is valid (UGAVALID).
    pub unmap_alignment: Option<u32>,
    /// MAXIMUM WRITE SAME LENGTH.
    pub write_same_max: u64,
}

const BLOCK_LIMITS_LENGTH: usize = 60;
/// Bytes of the page's data in SBC-2, which ends with OPTIMAL TRANSFER LENGTH.
const BLOCK_LIMITS_LENGTH_MIN: usize = 12;

impl BlockLimits {
    /// The page.
    pub fn encode(&self) -> Vec<u8> {
        let mut data = [0; BLOCK_LIMITS_LENGTH];
        data[0] = flag(self.write_same_not_zero, 0);
        data[1] = self.compare_and_write_max;
        put(&mut data, 2, self.granularity.to_be_bytes());
        put(&mut data, 4, self.transfer_max.to_be_bytes());
        put(&mut data, 8, self.transfer_optimal.to_be_bytes());
        put(&mut data, 16, self.unmap_max.to_be_bytes());
        put(&mut data, 20, self.unmap_descriptors_max.to_be_bytes());
        put(&mut data, 24, self.unmap_granularity.to_be_bytes());
        if let Some(alignment) = self.unmap_alignment {
            put(&mut data, 28, (alignment | 1 << 31).to_be_bytes());
        }
        put(&mut data, 32, self.write_same_max.to_be_bytes());
        page_of(page::BLOCK_LIMITS, &data)
    }

    /// Reads the page's data, without its header. Fields that older standards do not have say nothing where the data ends before them.
    ///
    /// # Errors
    /// The data ends before OPTIMAL TRANSFER LENGTH does.
    pub fn parse(data: &[u8]) -> Result<Self, TooShort> {
        at_least("block limits", data, BLOCK_LIMITS_LENGTH_MIN)?;
        let mut whole = [0; BLOCK_LIMITS_LENGTH];
        let length = data.len().min(BLOCK_LIMITS_LENGTH);
        whole[..length].copy_from_slice(&data[..length]);
        let data = &whole;
        let alignment = u32_at(data, 28);
        Ok(Self {
            write_same_not_zero: bit(data[0], 0),
            compare_and_write_max: data[1],
            granularity: u16_at(data, 2),
            transfer_max: u32_at(data, 4),
            transfer_optimal: u32_at(data, 8),
            unmap_max: u32_at(data, 16),
            unmap_descriptors_max: u32_at(data, 20),
            unmap_granularity: u32_at(data, 24),
            unmap_alignment: (alignment >> 31 == 1).then_some(alignment & !(1 << 31)),
            write_same_max: u64_at(data, 32),
        })
    }
}

/// Block device characteristics of a medium that does not rotate.
pub fn block_characteristics() -> Vec<u8> {
    let mut data = [0; 60];
    // MEDIUM ROTATION RATE.
    put(&mut data, 0, 1_u16.to_be_bytes());
    page_of(page::BLOCK_CHARACTERISTICS, &data)
}

/// Logical block provisioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Provisioning {
    /// LBPU: UNMAP unmaps.
    pub unmap: bool,
    /// LBPWS and LBPWS10: WRITE SAME with UNMAP does.
    pub write_same: bool,
    /// LBPRZ: what is unmapped reads as zeroes.
    pub reads_zeroes: bool,
    /// PROVISIONING TYPE 010b: blocks have room on the medium only where they are mapped.
    pub thin: bool,
}

impl Provisioning {
    /// The page.
    pub fn encode(&self) -> Vec<u8> {
        let flags = flag(self.unmap, 7)
            | flag(self.write_same, 6)
            | flag(self.write_same, 5)
            | flag(self.reads_zeroes, 2);
        page_of(page::PROVISIONING, &[0, flags, flag(self.thin, 1), 0])
    }

    /// Reads the page's data, without its header.
    ///
    /// # Errors
    /// The data is too short.
    pub fn parse(data: &[u8]) -> Result<Self, TooShort> {
        at_least("logical block provisioning", data, 4)?;
        Ok(Self {
            unmap: bit(data[1], 7),
            write_same: bit(data[1], 6),
            reads_zeroes: bit(data[1], 2),
            thin: data[2] & 0x7 == 2,
        })
    }
}
