//! Standard INQUIRY data (SPC-4 section 6.4.2), and the peripheral byte with which vital product
//! data begins too.

use crate::wire::{TooShort, array_at, at_least, bit, flag, put, u16_at};
use weir_open_enum::open_enum;

/// Bytes of the data, without vendor specific parameters.
pub const INQUIRY_LENGTH: usize = 96;
/// Fewest bytes of the data: up to PRODUCT REVISION LEVEL.
pub const INQUIRY_LENGTH_MIN: usize = 36;
/// Version descriptors that the data has room for.
pub const VERSION_DESCRIPTORS_MAX: usize = 8;
/// VERSION of a device that conforms to SPC-4.
pub const VERSION_SPC_4: u8 = 0x06;

const RESPONSE_DATA_FORMAT: u8 = 0x02;
const VERSION_DESCRIPTORS_OFFSET: usize = 58;
/// ADDITIONAL LENGTH counts the bytes behind itself.
const ADDITIONAL_LENGTH_OFFSET: usize = 5;

open_enum! {
    /// PERIPHERAL QUALIFIER, three bits.
    pub enum PeripheralQualifier: u8 {
        /// A device of the type is there, or the target cannot tell.
        Connected = 0b000 => "connected",
        /// A device of the type could be there, but is not.
        NotConnected = 0b001 => "not connected",
        /// The target can have no device at this LUN.
        NotSupported = 0b011 => "not supported",
    }
}

open_enum! {
    /// PERIPHERAL DEVICE TYPE, five bits.
    pub enum DeviceType: u8 {
        /// SBC-3.
        DirectAccessBlock = 0x00 => "direct access block device",
        /// SCC-2.
        StorageArrayController = 0x0c => "storage array controller device",
        /// SPC-4 section 8.
        WellKnown = 0x1e => "well known logical unit",
        /// Unknown, or no device.
        Unknown = 0x1f => "unknown or no device type",
    }
}

open_enum! {
    /// VERSION DESCRIPTOR: a standard to which the device conforms, with no version claimed.
    pub enum VersionDescriptor: u16 {
        /// There is no descriptor.
        None = 0x0000 => "none",
        /// Architecture.
        Sam5 = 0x00a0 => "SAM-5",
        /// Primary commands.
        Spc4 = 0x0460 => "SPC-4",
        /// Block commands.
        Sbc3 = 0x04c0 => "SBC-3",
        /// Transport.
        Iscsi = 0x0960 => "iSCSI",
    }
}

/// First byte of INQUIRY data and of vital product data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Peripheral {
    /// PERIPHERAL QUALIFIER.
    pub qualifier: PeripheralQualifier,
    /// PERIPHERAL DEVICE TYPE.
    pub device_type: DeviceType,
}

impl Peripheral {
    /// A block device that is there.
    pub const BLOCK_DEVICE: Self = Self {
        qualifier: PeripheralQualifier::Connected,
        device_type: DeviceType::DirectAccessBlock,
    };

    /// The REPORT LUNS well-known logical unit.
    pub const WELL_KNOWN: Self = Self {
        qualifier: PeripheralQualifier::Connected,
        device_type: DeviceType::WellKnown,
    };

    /// A LUN that has no unit.
    pub const ABSENT: Self = Self {
        qualifier: PeripheralQualifier::NotSupported,
        device_type: DeviceType::Unknown,
    };

    /// The byte.
    pub const fn encode(self) -> u8 {
        self.qualifier.value() << 5 | self.device_type.value() & 0x1f
    }

    /// Reads the byte.
    pub const fn parse(byte: u8) -> Self {
        Self {
            qualifier: PeripheralQualifier::from_value(byte >> 5),
            device_type: DeviceType::from_value(byte & 0x1f),
        }
    }
}

/// Standard INQUIRY data. RESPONSE DATA FORMAT is 2; what has no field here is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Inquiry {
    /// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE.
    pub peripheral: Peripheral,
    /// VERSION.
    pub version: u8,
    /// LUNs are assigned as SAM-5 says (HISUP).
    pub hierarchical: bool,
    /// The device changes access states of target port groups (TPGS 01b).
    pub implicit_port_groups: bool,
    /// SET TARGET PORT GROUPS changes them (TPGS 10b).
    pub explicit_port_groups: bool,
    /// The device has third-party copy commands (3PC).
    pub third_party_copy: bool,
    /// The device has several ports (MULTIP).
    pub multiple_ports: bool,
    /// The device has SAM-5's command management (CMDQUE).
    pub command_queuing: bool,
    /// T10 VENDOR IDENTIFICATION; see [`crate::text_field`].
    pub vendor: [u8; 8],
    /// PRODUCT IDENTIFICATION.
    pub product: [u8; 16],
    /// PRODUCT REVISION LEVEL.
    pub revision: [u8; 4],
    /// VERSION DESCRIPTORs.
    pub version_descriptors: [VersionDescriptor; VERSION_DESCRIPTORS_MAX],
}

impl Inquiry {
    /// Data of a block device on iSCSI that has command queuing, and no other feature.
    pub const fn block_device(vendor: [u8; 8], product: [u8; 16], revision: [u8; 4]) -> Self {
        Self {
            peripheral: Peripheral::BLOCK_DEVICE,
            version: VERSION_SPC_4,
            hierarchical: true,
            implicit_port_groups: false,
            explicit_port_groups: false,
            third_party_copy: false,
            multiple_ports: false,
            command_queuing: true,
            vendor,
            product,
            revision,
            version_descriptors: [
                VersionDescriptor::Sam5,
                VersionDescriptor::Spc4,
                VersionDescriptor::Sbc3,
                VersionDescriptor::Iscsi,
                VersionDescriptor::None,
                VersionDescriptor::None,
                VersionDescriptor::None,
                VersionDescriptor::None,
            ],
        }
    }

    /// The same for a LUN of this target that has no unit.
    #[must_use]
    pub const fn absent(self) -> Self {
        Self {
            peripheral: Peripheral::ABSENT,
            implicit_port_groups: false,
            explicit_port_groups: false,
            third_party_copy: false,
            ..self
        }
    }

    /// The data; the caller cuts it to the ALLOCATION LENGTH.
    pub fn encode(&self) -> [u8; INQUIRY_LENGTH] {
        let mut bytes = [0; INQUIRY_LENGTH];
        bytes[0] = self.peripheral.encode();
        bytes[2] = self.version;
        bytes[3] = flag(self.hierarchical, 4) | RESPONSE_DATA_FORMAT;
        bytes[4] = (INQUIRY_LENGTH - ADDITIONAL_LENGTH_OFFSET) as u8;
        bytes[5] = flag(self.explicit_port_groups, 5)
            | flag(self.implicit_port_groups, 4)
            | flag(self.third_party_copy, 3);
        bytes[6] = flag(self.multiple_ports, 4);
        bytes[7] = flag(self.command_queuing, 1);
        put(&mut bytes, 8, self.vendor);
        put(&mut bytes, 16, self.product);
        put(&mut bytes, 32, self.revision);
        for (index, descriptor) in self.version_descriptors.iter().enumerate() {
            let offset = VERSION_DESCRIPTORS_OFFSET + 2 * index;
            put(&mut bytes, offset, descriptor.value().to_be_bytes());
        }
        bytes
    }

    /// Reads the data. Version descriptors beyond its end are taken for absent.
    ///
    /// # Errors
    /// The data ends before that of [`INQUIRY_LENGTH_MIN`] bytes does.
    pub fn parse(bytes: &[u8]) -> Result<Self, TooShort> {
        at_least("INQUIRY data", bytes, INQUIRY_LENGTH_MIN)?;
        let end = ADDITIONAL_LENGTH_OFFSET + usize::from(bytes[4]);
        let available = &bytes[..bytes.len().min(end)];
        at_least("INQUIRY data", available, INQUIRY_LENGTH_MIN)?;
        let mut version_descriptors = [VersionDescriptor::None; VERSION_DESCRIPTORS_MAX];
        let rest = available.get(VERSION_DESCRIPTORS_OFFSET..);
        let values = rest.unwrap_or_default().chunks_exact(2);
        for (descriptor, value) in version_descriptors.iter_mut().zip(values) {
            *descriptor = VersionDescriptor::from_value(u16_at(value, 0));
        }
        Ok(Self {
            peripheral: Peripheral::parse(bytes[0]),
            version: bytes[2],
            hierarchical: bit(bytes[3], 4),
            implicit_port_groups: bit(bytes[5], 4),
            explicit_port_groups: bit(bytes[5], 5),
            third_party_copy: bit(bytes[5], 3),
            multiple_ports: bit(bytes[6], 4),
            command_queuing: bit(bytes[7], 1),
            vendor: *array_at(bytes, 8),
            product: *array_at(bytes, 16),
            revision: *array_at(bytes, 32),
            version_descriptors,
        })
    }
}

#[cfg(test)]
mod tests;
