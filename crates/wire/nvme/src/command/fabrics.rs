//! Fabrics commands: Connect, Property Get and Set, Disconnect; authentication is recognised
//! (NVMe Base 2.0c section 6).

use super::CommandError;
use crate::nqn::{HostId, NQN_FIELD_SIZE, Nqn, NqnError};
use crate::opcode::{FABRICS_OPCODE, FabricsType};
use crate::sgl::SglDescriptor;
use crate::sqe::Sqe;
use crate::wire::{bits, flags, wire_struct};

flags! {
    /// Connect attributes (CATTR), byte 46 of Connect (NVMe Base 2.0c section 6.3).
    pub struct ConnectAttributes: u8 {
        /// Bits 1:0: the queue's priority class, for weighted round robin.
        PRIORITY_CLASS = 0b11,
        /// Bit 2: the host asks for submission queue flow control to be off.
        DISABLE_SQ_FLOW_CONTROL = 1 << 2,
        /// Bit 3: the host supports deleting single I/O queues.
        INDIVIDUAL_IO_QUEUE_DELETION = 1 << 3,
    }
}

/// Connect (NVMe Base 2.0c section 6.3). Its data is [`ConnectData`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Connect {
    /// Record Format (RECFMT); only 0 is defined.
    pub record_format: u16,
    /// Queue Identifier (QID); 0 is the admin queue.
    pub qid: u16,
    /// Submission Queue Size (SQSIZE), 0's based, as on the wire; see [`Connect::queue_entries`].
    pub sqsize: u16,
    /// Connect attributes (CATTR).
    pub attributes: ConnectAttributes,
    /// Keep Alive Timeout (KATO) in milliseconds, on the admin queue; 0 is off.
    pub keep_alive_timeout_ms: u32,
}

impl Connect {
    /// RECFMT that this form has.
    pub const RECORD_FORMAT: u16 = 0;

    /// Entries of the submission queue: SQSIZE + 1.
    pub const fn queue_entries(&self) -> u32 {
        self.sqsize as u32 + 1
    }
}

wire_struct! {
    /// Connect's data (NVMe Base 2.0c section 6.3). The names are raw fields; see
    /// [`ConnectData::subsystem`] and [`ConnectData::host`].
    pub struct ConnectData[1024] {
        /// Host Identifier (HOSTID).
        0 => host_id: HostId,
        /// Controller ID (CNTLID): FFFFh asks for any controller (dynamic model), FFFEh for any
        /// static one.
        16 => controller_id: u16,
        /// NVM Subsystem NVMe Qualified Name (SUBNQN), NUL-terminated.
        256 => subsystem_nqn: [u8; NQN_FIELD_SIZE],
        /// Host NVMe Qualified Name (HOSTNQN), NUL-terminated.
        512 => host_nqn: [u8; NQN_FIELD_SIZE],
    }
}

impl ConnectData {
    /// CNTLID of a Connect to the dynamic controller model.
    pub const ANY_CONTROLLER: u16 = 0xffff;
    /// CNTLID of a Connect to any static controller.
    pub const ANY_STATIC_CONTROLLER: u16 = 0xfffe;

    /// The data of a Connect.
    pub fn new(host_id: HostId, controller_id: u16, subsystem: &Nqn, host: &Nqn) -> Self {
        Self {
            host_id,
            controller_id,
            subsystem_nqn: subsystem.to_field(),
            host_nqn: host.to_field(),
        }
    }

    /// The subsystem's name.
    ///
    /// # Errors
    /// The field holds no valid name; [`ConnectParameter::SUBSYSTEM_NQN`] is where.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::parse_field(&self.subsystem_nqn)
    }

    /// The host's name. A host that sends none, as load generators do, is called by its identifier.
    ///
    /// # Errors
    /// The field holds no valid name, and is not empty beside an identifier that is not zero;
    /// [`ConnectParameter::HOST_NQN`] is where.
    pub fn host(&self) -> Result<Nqn, NqnError> {
        match Nqn::parse_field(&self.host_nqn) {
            Err(NqnError::Empty) if !self.host_id.is_zero() => Ok(self.host_id.nqn()),
            result => result,
        }
    }
}

/// A parameter that Connect Invalid Parameters complains about: its byte offset (IPO), in the
/// command or in the data (IATTR) (NVMe Base 2.0c section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectParameter {
    /// Invalid Parameter Offset (IPO): byte where the parameter starts.
    pub offset: u16,
    /// Invalid Attributes (IATTR) bit 0: the offset is in the Connect data, not in the command.
    pub in_data: bool,
}

impl ConnectParameter {
    /// Record Format.
    pub const RECORD_FORMAT: Self = Self {
        offset: 40,
        in_data: false,
    };
    /// Queue Identifier.
    pub const QUEUE_ID: Self = Self {
        offset: 42,
        in_data: false,
    };
    /// Submission Queue Size.
    pub const QUEUE_SIZE: Self = Self {
        offset: 44,
        in_data: false,
    };
    /// Connect attributes.
    pub const ATTRIBUTES: Self = Self {
        offset: 46,
        in_data: false,
    };
    /// Keep Alive Timeout.
    pub const KEEP_ALIVE_TIMEOUT: Self = Self {
        offset: 48,
        in_data: false,
    };
    /// Host Identifier.
    pub const HOST_ID: Self = Self {
        offset: 0,
        in_data: true,
    };
    /// Controller ID.
    pub const CONTROLLER_ID: Self = Self {
        offset: 16,
        in_data: true,
    };
    /// Subsystem NQN.
    pub const SUBSYSTEM_NQN: Self = Self {
        offset: 256,
        in_data: true,
    };
    /// Host NQN.
    pub const HOST_NQN: Self = Self {
        offset: 512,
        in_data: true,
    };

    /// Completion dword 0 of Connect Invalid Parameters.
    pub const fn to_result(self) -> u32 {
        (self.in_data as u32) << 16 | self.offset as u32
    }

    /// From completion dword 0 of Connect Invalid Parameters.
    pub const fn from_result(dw0: u32) -> Self {
        Self {
            offset: dw0 as u16,
            in_data: dw0 & 1 << 16 != 0,
        }
    }

    /// The parameter's name; `None` where the offset is none of this type's constants.
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::RECORD_FORMAT => "Record Format",
            Self::QUEUE_ID => "Queue Identifier",
            Self::QUEUE_SIZE => "Submission Queue Size",
            Self::ATTRIBUTES => "Connect Attributes",
            Self::KEEP_ALIVE_TIMEOUT => "Keep Alive Timeout",
            Self::HOST_ID => "Host Identifier",
            Self::CONTROLLER_ID => "Controller ID",
            Self::SUBSYSTEM_NQN => "NVM Subsystem NQN",
            Self::HOST_NQN => "Host NQN",
            _ => return None,
        })
    }
}

/// Bits of AUTHREQ in a Connect's answer: the host must authenticate before other commands.
/// Bit 1 asks for authentication, bit 2 for authentication over a secure channel (NVMe Base 2.0c
/// section 6.3).
pub const AUTHENTICATION_REQUIRED: u16 = 0b110;

/// Completion dword 0 of a Connect that succeeded (NVMe Base 2.0c section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ConnectResponse {
    /// Controller ID (CNTLID) that was allocated or found.
    pub controller_id: u16,
    /// Authentication Requirements (AUTHREQ), see [`AUTHENTICATION_REQUIRED`]; 0 is none.
    pub authentication: u16,
}

impl ConnectResponse {
    /// As completion dword 0.
    pub const fn to_result(self) -> u32 {
        (self.authentication as u32) << 16 | self.controller_id as u32
    }

    /// From completion dword 0.
    pub const fn from_result(dw0: u32) -> Self {
        Self {
            controller_id: dw0 as u16,
            authentication: (dw0 >> 16) as u16,
        }
    }
}

/// Size of a property (ATTRIB bits 2:0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum PropertySize {
    /// 000b.
    #[default]
    FourBytes,
    /// 001b.
    EightBytes,
}

/// Property Get (NVMe Base 2.0c section 6.5); the answer's result is the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PropertyGet {
    /// Size of the property.
    pub size: PropertySize,
    /// Offset of the property (OFST), see [`crate::property`].
    pub offset: u32,
}

/// Property Set (NVMe Base 2.0c section 6.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PropertySet {
    /// Size of the property.
    pub size: PropertySize,
    /// Offset of the property (OFST), see [`crate::property`].
    pub offset: u32,
    /// Value; bits 63:32 mean nothing for a property of four bytes.
    pub value: u64,
}

/// Authentication Send or Receive (NVMe Base 2.0c sections 6.2 and 6.1): recognised, the exchange is
/// not read here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecurityTransfer {
    /// Security Protocol Specific (SPSP0, SPSP1).
    pub protocol_specific: [u8; 2],
    /// Security Protocol (SECP).
    pub protocol: u8,
    /// Transfer Length (TL) of a Send, Allocation Length (AL) of a Receive, in bytes.
    pub length: u32,
}

/// A Fabrics command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FabricsCommand {
    /// Property Set.
    PropertySet(PropertySet),
    /// Connect.
    Connect(Connect),
    /// Property Get.
    PropertyGet(PropertyGet),
    /// Authentication Send.
    AuthenticationSend(SecurityTransfer),
    /// Authentication Receive.
    AuthenticationReceive(SecurityTransfer),
    /// Disconnect: deletes the I/O queue that it is sent on.
    Disconnect {
        /// Record Format (RECFMT); only 0 is defined.
        record_format: u16,
    },
}

impl FabricsCommand {
    /// Reads an entry as a Fabrics command.
    ///
    /// # Errors
    /// The opcode is not 7Fh, the type is unknown, or a property's size is reserved.
    pub fn parse(sqe: &Sqe) -> Result<Self, CommandError> {
        if !sqe.is_fabrics() {
            return Err(CommandError::Opcode { opcode: sqe.opcode });
        }
        let fabrics_type = sqe.fabrics_type();
        Ok(match FabricsType::from_value(fabrics_type) {
            FabricsType::PropertySet => Self::PropertySet(PropertySet {
                size: property_size(sqe)?,
                offset: sqe.cdw11,
                value: u64::from(sqe.cdw13) << 32 | u64::from(sqe.cdw12),
            }),
            FabricsType::PropertyGet => Self::PropertyGet(PropertyGet {
                size: property_size(sqe)?,
                offset: sqe.cdw11,
            }),
            FabricsType::Connect => Self::Connect(Connect {
                record_format: bits(sqe.cdw10, 15, 0) as u16,
                qid: bits(sqe.cdw10, 31, 16) as u16,
                sqsize: bits(sqe.cdw11, 15, 0) as u16,
                attributes: ConnectAttributes(bits(sqe.cdw11, 23, 16) as u8),
                keep_alive_timeout_ms: sqe.cdw12,
            }),
            FabricsType::AuthenticationSend => {
                Self::AuthenticationSend(SecurityTransfer::from_sqe(sqe))
            }
            FabricsType::AuthenticationReceive => {
                Self::AuthenticationReceive(SecurityTransfer::from_sqe(sqe))
            }
            FabricsType::Disconnect => Self::Disconnect {
                record_format: bits(sqe.cdw10, 15, 0) as u16,
            },
            FabricsType::Other(_) => return Err(CommandError::FabricsType { fabrics_type }),
        })
    }

    /// The command's type.
    pub const fn fabrics_type(&self) -> FabricsType {
        match self {
            Self::PropertySet(_) => FabricsType::PropertySet,
            Self::Connect(_) => FabricsType::Connect,
            Self::PropertyGet(_) => FabricsType::PropertyGet,
            Self::AuthenticationSend(_) => FabricsType::AuthenticationSend,
            Self::AuthenticationReceive(_) => FabricsType::AuthenticationReceive,
            Self::Disconnect { .. } => FabricsType::Disconnect,
        }
    }

    /// The entry for this command.
    pub fn sqe(&self, cid: u16, sgl: SglDescriptor) -> Sqe {
        let nsid = u32::from(self.fabrics_type().value());
        let mut sqe = Sqe {
            opcode: FABRICS_OPCODE,
            cid,
            nsid,
            sgl,
            ..Sqe::default()
        };
        match self {
            Self::PropertySet(set) => {
                sqe.cdw10 = set.size as u32;
                sqe.cdw11 = set.offset;
                sqe.cdw12 = set.value as u32;
                sqe.cdw13 = (set.value >> 32) as u32;
            }
            Self::PropertyGet(get) => {
                sqe.cdw10 = get.size as u32;
                sqe.cdw11 = get.offset;
            }
            Self::Connect(connect) => {
                sqe.cdw10 = u32::from(connect.qid) << 16 | u32::from(connect.record_format);
                sqe.cdw11 = u32::from(connect.attributes.0) << 16 | u32::from(connect.sqsize);
                sqe.cdw12 = connect.keep_alive_timeout_ms;
            }
            Self::AuthenticationSend(transfer) | Self::AuthenticationReceive(transfer) => {
                transfer.fill(&mut sqe);
            }
            Self::Disconnect { record_format } => sqe.cdw10 = u32::from(*record_format),
        }
        sqe
    }
}

fn property_size(sqe: &Sqe) -> Result<PropertySize, CommandError> {
    match bits(sqe.cdw10, 2, 0) {
        0 => Ok(PropertySize::FourBytes),
        1 => Ok(PropertySize::EightBytes),
        value => Err(CommandError::ReservedValue {
            field: "property size",
            value,
            byte: 40,
        }),
    }
}

impl SecurityTransfer {
    fn from_sqe(sqe: &Sqe) -> Self {
        let [_, spsp0, spsp1, protocol] = sqe.cdw10.to_le_bytes();
        Self {
            protocol_specific: [spsp0, spsp1],
            protocol,
            length: sqe.cdw11,
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        let [spsp0, spsp1] = self.protocol_specific;
        sqe.cdw10 = u32::from_le_bytes([0, spsp0, spsp1, self.protocol]);
        sqe.cdw11 = self.length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;
    use proptest::prelude::*;

    const CONNECT_SGL: SglDescriptor = SglDescriptor::InCapsule {
        offset: 0,
        length: 1024,
    };

    #[test]
    fn a_host_without_a_name_is_called_by_its_identifier() {
        let id = HostId([0xab; 16]);
        let mut data = ConnectData::new(id, 0xffff, &Nqn::discovery(), &Nqn::discovery());
        data.host_nqn.fill(0);
        assert_eq!(data.host(), Ok(id.nqn()));
        data.host_id = HostId::default();
        assert_eq!(data.host(), Err(NqnError::Empty));
        data.host_nqn.fill(b'n');
        assert_eq!(data.host(), Err(NqnError::NotTerminated));
    }

    #[test]
    fn connect_is_laid_out_as_the_specification_says() {
        let connect = FabricsCommand::Connect(Connect {
            record_format: 0x0201,
            qid: 0x0403,
            sqsize: 0x007f,
            attributes: ConnectAttributes::DISABLE_SQ_FLOW_CONTROL,
            keep_alive_timeout_ms: 15_000,
        });
        let bytes = connect.sqe(0x1211, CONNECT_SGL).encode();
        assert_eq!(bytes[..8], [0x7f, 0x40, 0x11, 0x12, 0x01, 0, 0, 0]);
        assert_eq!(bytes[8..24], [0; 16]);
        assert_eq!(
            bytes[24..40],
            [0, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x04, 0, 0, 0, 0, 0, 0x01]
        );
        assert_eq!(
            bytes[40..48],
            [0x01, 0x02, 0x03, 0x04, 0x7f, 0x00, 0x04, 0x00]
        );
        assert_eq!(bytes[48..52], [0x98, 0x3a, 0, 0]);
        assert_eq!(bytes[52..], [0; 12]);
        assert_eq!(FabricsCommand::parse(&Sqe::decode(&bytes)), Ok(connect));
        assert_eq!(
            Connect {
                sqsize: u16::MAX,
                ..Connect::default()
            }
            .queue_entries(),
            65536
        );
    }

    #[test]
    fn connect_data_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 1024];
        bytes[..16].copy_from_slice(b"0123456789abcdef");
        bytes[16..18].copy_from_slice(&[0xff, 0xff]);
        bytes[256..279].copy_from_slice(b"nqn.2024-01.com.example");
        bytes[512..537].copy_from_slice(b"nqn.2024-01.com.example:h");
        let subsystem = Nqn::new("nqn.2024-01.com.example").expect("a name");
        let host = Nqn::new("nqn.2024-01.com.example:h").expect("a name");
        let data = ConnectData::new(
            HostId(*b"0123456789abcdef"),
            ConnectData::ANY_CONTROLLER,
            &subsystem,
            &host,
        );
        assert_eq!(data.encode(), bytes);
        assert_eq!(ConnectData::parse(&bytes), Ok(data));
        assert_eq!((data.subsystem(), data.host()), (Ok(subsystem), Ok(host)));
        assert!(ConnectData::parse(&bytes[..1023]).is_err());
    }

    #[test]
    fn properties_are_laid_out_as_the_specification_says() {
        let set = FabricsCommand::PropertySet(PropertySet {
            size: PropertySize::EightBytes,
            offset: 0x14,
            value: 0x1122_3344_5566_7788,
        });
        let bytes = set.sqe(1, SglDescriptor::NONE).encode();
        assert_eq!(bytes[4], 0x00);
        assert_eq!(bytes[40..48], [0x01, 0, 0, 0, 0x14, 0, 0, 0]);
        assert_eq!(
            bytes[48..56],
            [0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11]
        );
        assert_eq!(FabricsCommand::parse(&Sqe::decode(&bytes)), Ok(set));

        let get = PropertyGet {
            size: PropertySize::FourBytes,
            offset: 0x1c,
        };
        let bytes = FabricsCommand::PropertyGet(get)
            .sqe(1, SglDescriptor::NONE)
            .encode();
        assert_eq!(bytes[4], 0x04);
        assert_eq!(bytes[40..48], [0, 0, 0, 0, 0x1c, 0, 0, 0]);
    }

    #[test]
    fn authentication_and_disconnect_are_recognised() {
        let transfer = SecurityTransfer {
            protocol_specific: [0x01, 0x02],
            protocol: 0xe9,
            length: 0x400,
        };
        let bytes = FabricsCommand::AuthenticationSend(transfer)
            .sqe(1, CONNECT_SGL)
            .encode();
        assert_eq!(bytes[4], 0x05);
        assert_eq!(bytes[40..48], [0, 0x01, 0x02, 0xe9, 0x00, 0x04, 0, 0]);
        let disconnect = FabricsCommand::Disconnect { record_format: 0 };
        assert_eq!(disconnect.sqe(1, SglDescriptor::NONE).encode()[4], 0x08);
    }

    #[test]
    fn what_is_reserved_is_refused() {
        let unknown = Sqe {
            opcode: 0x7f,
            nsid: 0xc1,
            ..Sqe::default()
        };
        let error = FabricsCommand::parse(&unknown).expect_err("an unknown type");
        assert_eq!(error, CommandError::FabricsType { fabrics_type: 0xc1 });
        assert_eq!(error.byte(), 4);
        let size = Sqe {
            opcode: 0x7f,
            nsid: 4,
            cdw10: 2,
            ..Sqe::default()
        };
        assert!(matches!(
            FabricsCommand::parse(&size),
            Err(CommandError::ReservedValue {
                value: 2,
                byte: 40,
                ..
            })
        ));
        let not_fabrics = Sqe {
            opcode: 0x02,
            ..Sqe::default()
        };
        assert_eq!(
            FabricsCommand::parse(&not_fabrics),
            Err(CommandError::Opcode { opcode: 2 })
        );
    }

    #[test]
    fn answers_are_laid_out_as_the_specification_says() {
        let response = ConnectResponse {
            controller_id: 0x1234,
            authentication: 0x0002,
        };
        assert_eq!(response.to_result(), 0x0002_1234);
        assert_eq!(ConnectResponse::from_result(0x0002_1234), response);
        assert_eq!(ConnectParameter::SUBSYSTEM_NQN.to_result(), 0x0001_0100);
        assert_eq!(ConnectParameter::QUEUE_SIZE.to_result(), 0x0000_002c);
        let parameter = ConnectParameter::from_result(0x0001_0200);
        assert_eq!(parameter.name(), Some("Host NQN"));
        assert_eq!(ConnectParameter::from_result(0x0001_0201).name(), None);
    }

    #[test]
    fn structures_survive() {
        round_trip::<ConnectData>();
    }

    /// Bits of command dwords 10 to 13 that the command's table defines.
    fn defined_bits(command: &FabricsCommand) -> [u32; 4] {
        const ALL: u32 = u32::MAX;
        match command {
            FabricsCommand::Connect(_) => [ALL, 0x00ff_ffff, ALL, 0],
            FabricsCommand::PropertySet(_) => [0b111, ALL, ALL, ALL],
            FabricsCommand::PropertyGet(_) => [0b111, ALL, 0, 0],
            FabricsCommand::AuthenticationSend(_) | FabricsCommand::AuthenticationReceive(_) => {
                [0xffff_ff00, ALL, 0, 0]
            }
            FabricsCommand::Disconnect { .. } => [0xffff, 0, 0, 0],
        }
    }

    proptest! {
        #[test]
        fn any_entry_is_refused_or_survives(
            fabrics_type in prop_oneof![0_u32..0x10, any::<u32>()],
            cdw: [u32; 4],
        ) {
            let [cdw10, cdw11, cdw12, cdw13] = cdw;
            let sqe = Sqe {
                opcode: 0x7f, nsid: fabrics_type, cdw10, cdw11, cdw12, cdw13, ..Sqe::default()
            };
            if let Ok(command) = FabricsCommand::parse(&sqe) {
                let built = command.sqe(3, CONNECT_SGL);
                prop_assert_eq!(FabricsCommand::parse(&built), Ok(command));
                let kept = core::array::from_fn(|index| cdw[index] & defined_bits(&command)[index]);
                prop_assert_eq!([built.cdw10, built.cdw11, built.cdw12, built.cdw13], kept);
            }
        }
    }
}
