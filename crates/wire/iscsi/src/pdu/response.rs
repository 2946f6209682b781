//! Headers from the target to the initiator (RFC 7143 sections 11.4, 11.6 to 11.9, 11.11, 11.13, 11.15, 11.17 and 11.19).

use super::request::{put_u32, when};
use super::{
    BasicHeader, CONTINUE, CURRENT_STAGE, CommonHeader, FINAL, Header, Isid, Itt, NEXT_STAGE,
    Opcode, Stage, Tsih, Ttt, offset, sealed::Sealed,
};
use crate::serial::Serial;
use crate::status::LoginStatus;
use crate::wire::{Field, get_u32, get_u64, open_enum, put};

/// StatSN, ExpCmdSN and MaxCmdSN, which nearly every response has (section 11.2.1, and 4.2.2 for their meaning).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseSerials {
    /// StatSN.
    pub stat_sn: Serial,
    /// ExpCmdSN.
    pub exp_cmd_sn: Serial,
    /// MaxCmdSN.
    pub max_cmd_sn: Serial,
}

impl Field for ResponseSerials {
    #[inline]
    fn get(bytes: &BasicHeader, offset: usize) -> Self {
        Self {
            stat_sn: Field::get(bytes, offset),
            exp_cmd_sn: Field::get(bytes, offset + 4),
            max_cmd_sn: Field::get(bytes, offset + 8),
        }
    }

    #[inline]
    fn put(&self, bytes: &mut BasicHeader, offset: usize) {
        self.stat_sn.put(bytes, offset);
        self.exp_cmd_sn.put(bytes, offset + 4);
        self.max_cmd_sn.put(bytes, offset + 8);
    }
}

/// Sets what PDUs have that answer no task: F, and the reserved Initiator Task Tag.
fn no_task(bytes: &mut BasicHeader) {
    bytes[offset::FLAGS] = FINAL;
    Itt::RESERVED.put(bytes, offset::ITT);
}

/// Bytes that were transferred less, or would have been more, than the initiator expected (sections 11.4.1 and 11.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Residual {
    /// As many as expected.
    #[default]
    None,
    /// Number of bytes that were there and not transferred, for they were more than expected.
    Overflow(u32),
    /// Number of bytes that were expected and not transferred.
    Underflow(u32),
}

impl Residual {
    /// The residual of a transfer of `actual` bytes where `expected` were expected.
    #[inline]
    pub const fn of(expected: u32, actual: u64) -> Self {
        let expected_wide = expected as u64;
        if actual == expected_wide {
            Self::None
        } else if actual < expected_wide {
            Self::Underflow((expected_wide - actual) as u32)
        } else {
            let over = actual - expected_wide;
            Self::Overflow(if over > u32::MAX as u64 {
                u32::MAX
            } else {
                over as u32
            })
        }
    }

    #[inline]
    const fn read(overflow: bool, underflow: bool, count: u32) -> Self {
        match (overflow, underflow) {
            (true, _) => Self::Overflow(count),
            (false, true) => Self::Underflow(count),
            (false, false) => Self::None,
        }
    }

    #[inline]
    const fn flags(self, overflow: u8, underflow: u8) -> u8 {
        match self {
            Self::None => 0,
            Self::Overflow(_) => overflow,
            Self::Underflow(_) => underflow,
        }
    }

    /// The count on the wire.
    #[inline]
    pub const fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Overflow(count) | Self::Underflow(count) => count,
        }
    }
}

const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;
const READ_OVERFLOW: u8 = 0x10;
const READ_UNDERFLOW: u8 = 0x08;

open_enum! {
    /// Response of a SCSI Response: of iSCSI's service, not of the command (section 11.4.3).
    pub enum ResponseCode: u8 {
        /// The status is the command's.
        CommandCompleted = 0 => "Command Completed at Target",
        /// The target could not complete the command; there is no status.
        TargetFailure = 1 => "Target Failure",
    }
}

/// SCSI Response (section 11.4). Its data is sense data after its length ([`parse_sense`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScsiResponse {
    /// Response.
    pub response: ResponseCode,
    /// SCSI status, as SAM has it.
    pub status: u8,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// SNACK Tag; 0 but in recovery.
    pub snack_tag: u32,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// ExpDataSN: how many Data-In and R2T PDUs the command had.
    pub exp_data_sn: Serial,
    /// Residual of a bidirectional command's read.
    pub read_residual: Residual,
    /// Residual of the transfer; of the write where the command is bidirectional.
    pub residual: Residual,
    /// Bytes of data: sense length, sense and response data.
    pub data_length: u32,
}

impl ScsiResponse {
    /// Reads a header.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        let flags = bytes[offset::FLAGS];
        let has = |flag| flags & flag != 0;
        Self {
            response: ResponseCode::from_value(bytes[2]),
            status: bytes[3],
            itt: common.itt,
            snack_tag: get_u32(bytes, 20),
            serials: Field::get(bytes, offset::STAT_SN),
            exp_data_sn: Serial(get_u32(bytes, 36)),
            read_residual: Residual::read(
                has(READ_OVERFLOW),
                has(READ_UNDERFLOW),
                get_u32(bytes, 40),
            ),
            residual: Residual::read(has(OVERFLOW), has(UNDERFLOW), get_u32(bytes, 44)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for ScsiResponse {}
impl Header for ScsiResponse {
    const OPCODE: Opcode = Opcode::ScsiResponse;

    #[inline]
    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL
            | self.read_residual.flags(READ_OVERFLOW, READ_UNDERFLOW)
            | self.residual.flags(OVERFLOW, UNDERFLOW);
        bytes[2] = self.response.value();
        bytes[3] = self.status;
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, 20, self.snack_tag);
        self.serials.put(bytes, offset::STAT_SN);
        put_u32(bytes, 36, self.exp_data_sn.0);
        put_u32(bytes, 40, self.read_residual.count());
        put_u32(bytes, 44, self.residual.count());
    }

    #[inline]
    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// SenseLength, which comes before `length` bytes of sense data (section 11.4.7).
pub const fn sense_prefix(length: u16) -> [u8; 2] {
    length.to_be_bytes()
}

/// Sense data and response data of a SCSI Response's data segment (section 11.4.7); `None` where SenseLength goes beyond it.
pub fn parse_sense(data: &[u8]) -> Option<(&[u8], &[u8])> {
    if data.is_empty() {
        return Some((data, data));
    }
    let (length, rest) = data.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

open_enum! {
    /// Response of a Task Management Function Response (section 11.6.1; RFC 7144 section 4.1.3 for 7).
    pub enum TaskResponse: u8 {
        /// Function complete.
        Complete = 0 => "Function complete",
        /// Task does not exist.
        TaskDoesNotExist = 1 => "Task does not exist",
        /// LUN does not exist.
        LunDoesNotExist = 2 => "LUN does not exist",
        /// Task still allegiant.
        TaskStillAllegiant = 3 => "Task still allegiant",
        /// Task allegiance reassignment not supported.
        ReassignmentNotSupported = 4 => "Task allegiance reassignment not supported",
        /// Task management function not supported.
        NotSupported = 5 => "Task management function not supported",
        /// Function authorization failed.
        AuthorizationFailed = 6 => "Function authorization failed",
        /// Function succeeded: what was asked for is there.
        Succeeded = 7 => "Function succeeded",
        /// Function rejected.
        Rejected = 255 => "Function rejected",
    }
}

header! {
    /// Task Management Function Response (section 11.6).
    pub struct TaskManagementResponse, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// Response.
        response: TaskResponse [2],
        /// Initiator Task Tag of the request.
        itt: Itt [offset::ITT],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
    }
}

/// The end of a command, in the last Data-In PDU of its data: S bit (section 11.7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataInStatus {
    /// SCSI status; one without sense data.
    pub status: u8,
    /// StatSN.
    pub stat_sn: Serial,
    /// Residual of the transfer.
    pub residual: Residual,
}

/// SCSI Data-In (section 11.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataIn {
    /// F: the last of its sequence.
    pub is_final: bool,
    /// A: the target wants a SNACK that acknowledges; at error recovery level 0 never.
    pub acknowledge: bool,
    /// S and what comes with it; `is_final` must be set.
    pub status: Option<DataInStatus>,
    /// Logical Unit Number, with `acknowledge`.
    pub lun: u64,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Target Transfer Tag, with `acknowledge`; reserved otherwise.
    pub ttt: Ttt,
    /// ExpCmdSN.
    pub exp_cmd_sn: Serial,
    /// MaxCmdSN.
    pub max_cmd_sn: Serial,
    /// DataSN: the PDU's number among those of its command, from 0.
    pub data_sn: Serial,
    /// Buffer Offset in bytes from the start of the command's data.
    pub buffer_offset: u32,
    /// Bytes of data.
    pub data_length: u32,
}

const ACKNOWLEDGE: u8 = 0x40;
const STATUS: u8 = 0x01;

impl DataIn {
    /// Reads a header.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        let flags = bytes[offset::FLAGS];
        let has = |flag| flags & flag != 0;
        let status = has(STATUS).then(|| DataInStatus {
            status: bytes[3],
            stat_sn: Serial(get_u32(bytes, offset::STAT_SN)),
            residual: Residual::read(has(OVERFLOW), has(UNDERFLOW), get_u32(bytes, 44)),
        });
        Self {
            is_final: has(FINAL),
            acknowledge: has(ACKNOWLEDGE),
            status,
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            exp_cmd_sn: Serial(get_u32(bytes, offset::EXP_CMD_SN)),
            max_cmd_sn: Serial(get_u32(bytes, offset::MAX_CMD_SN)),
            data_sn: Serial(get_u32(bytes, 36)),
            buffer_offset: get_u32(bytes, 40),
            data_length: common.data_length,
        }
    }
}

impl Sealed for DataIn {}
impl Header for DataIn {
    const OPCODE: Opcode = Opcode::DataIn;

    #[inline]
    fn put(&self, bytes: &mut BasicHeader) {
        let mut flags = when(self.is_final, FINAL) | when(self.acknowledge, ACKNOWLEDGE);
        if let Some(end) = &self.status {
            flags |= STATUS | end.residual.flags(OVERFLOW, UNDERFLOW);
            bytes[3] = end.status;
            put_u32(bytes, offset::STAT_SN, end.stat_sn.0);
            put_u32(bytes, 44, end.residual.count());
        }
        bytes[offset::FLAGS] = flags;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        put_u32(bytes, offset::EXP_CMD_SN, self.exp_cmd_sn.0);
        put_u32(bytes, offset::MAX_CMD_SN, self.max_cmd_sn.0);
        put_u32(bytes, 36, self.data_sn.0);
        put_u32(bytes, 40, self.buffer_offset);
    }

    #[inline]
    fn data_length(&self) -> u32 {
        self.data_length
    }
}

header! {
    /// Ready To Transfer (section 11.8). Its StatSN is the next, which it does not use up.
    pub struct R2t, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// Logical Unit Number.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag, which Data-Out brings back.
        ttt: Ttt [offset::TTT],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
        /// R2TSN: the R2T's number among those of its command, from 0.
        r2t_sn: Serial [36],
        /// Buffer Offset in bytes from the start of the command's data.
        buffer_offset: u32 [40],
        /// Desired Data Transfer Length in bytes; never 0.
        desired_length: u32 [44],
    }
}

open_enum! {
    /// AsyncEvent of an Asynchronous Message (section 11.9.1).
    pub enum AsyncEvent: u8 {
        /// A SCSI event, with sense data.
        Scsi = 0 => "SCSI asynchronous event",
        /// The target asks for a logout; Parameter3 is the time in seconds until it ends the connection.
        LogoutRequest = 1 => "target requests Logout",
        /// The target will drop a connection; Parameter1 is its CID.
        DropConnection = 2 => "target will drop the connection",
        /// The target will drop all connections of the session.
        DropSession = 3 => "target will drop all connections of the session",
        /// The target asks for a negotiation; Parameter3 is the time in seconds until it ends the connection.
        Negotiate = 4 => "target requests parameter negotiation",
        /// All tasks of the LUN are being ended.
        TasksTerminated = 5 => "all active tasks of the logical unit are being terminated",
        /// Vendor specific; AsyncVCode says more.
        Vendor = 255 => "vendor-specific event",
    }
}

header! {
    /// Asynchronous Message (section 11.9).
    pub struct AsyncMessage, with |bytes| no_task(bytes), {
        /// Logical Unit Number, for the events that have one.
        lun: u64 [offset::LUN],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
        /// AsyncEvent.
        event: AsyncEvent [36],
        /// AsyncVCode.
        vendor_code: u8 [37],
        /// Parameter1 to Parameter3.
        parameters: [u16; 3] [38],
    }
}

header! {
    /// Text Response (section 11.11).
    pub struct TextResponse {
        /// F: the exchange of text is complete.
        is_final: bool [offset::FLAGS, FINAL],
        /// C: the text is not complete in this PDU.
        continues: bool [offset::FLAGS, CONTINUE],
        /// Logical Unit Number, which the initiator brings back.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag of the request.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag, which the next request brings back; reserved with `is_final`.
        ttt: Ttt [offset::TTT],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
    }
}

header! {
    /// Login Response (section 11.13).
    pub struct LoginResponse {
        /// T: the target goes on to the next stage.
        transit: bool [offset::FLAGS, FINAL],
        /// C: the text is not complete in this PDU.
        continues: bool [offset::FLAGS, CONTINUE],
        /// CSG: the current stage.
        current_stage: Stage [offset::FLAGS, CURRENT_STAGE],
        /// NSG: the next stage, where `transit` is set.
        next_stage: Stage [offset::FLAGS, NEXT_STAGE],
        /// Version-max.
        version_max: u8 [2],
        /// Version-active.
        version_active: u8 [3],
        /// Initiator Session ID of the request.
        isid: Isid [8],
        /// Target Session Identifying Handle: that of the session in the last response, of the request before.
        tsih: Tsih [14],
        /// Initiator Task Tag of the request.
        itt: Itt [offset::ITT],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
        /// Status-Class and Status-Detail.
        status: LoginStatus [36],
    }
}

open_enum! {
    /// Response of a Logout Response (section 11.15.1).
    pub enum LogoutResponseCode: u8 {
        /// The connection or session is closed.
        Closed = 0 => "closed successfully",
        /// There is no such connection.
        CidNotFound = 1 => "CID was not found",
        /// Recovery is not supported.
        RecoveryNotSupported = 2 => "connection recovery is not supported",
        /// The cleanup failed.
        CleanupFailed = 3 => "cleanup failed",
    }
}

header! {
    /// Logout Response (section 11.15).
    pub struct LogoutResponse, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// Response.
        response: LogoutResponseCode [2],
        /// Initiator Task Tag of the request.
        itt: Itt [offset::ITT],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
        /// Time2Wait in seconds.
        time_to_wait: u16 [40],
        /// Time2Retain in seconds.
        time_to_retain: u16 [42],
    }
}

open_enum! {
    /// Reason of a Reject (section 11.17.1).
    pub enum RejectReason: u8 {
        /// Data digest error: the PDU may be sent again.
        DataDigestError = 0x02 => "Data Digest Error",
        /// SNACK Reject.
        SnackReject = 0x03 => "SNACK Reject",
        /// Protocol Error.
        ProtocolError = 0x04 => "Protocol Error",
        /// Command not supported.
        CommandNotSupported = 0x05 => "Command not supported",
        /// Too many immediate commands.
        TooManyImmediateCommands = 0x06 => "Immediate command reject - too many immediate commands",
        /// Task in progress.
        TaskInProgress = 0x07 => "Task in progress",
        /// Invalid data ACK.
        InvalidDataAck = 0x08 => "Invalid data ACK",
        /// Invalid PDU field.
        InvalidPduField = 0x09 => "Invalid PDU field",
        /// Long operation reject: no Target Transfer Tag can be given out.
        LongOperationReject = 0x0a => "Long op reject - Can't generate Target Transfer Tag - out of resources",
        /// Deprecated: negotiation reset.
        NegotiationReset = 0x0b => "Deprecated reason code 0bh",
        /// Waiting for Logout.
        WaitingForLogout = 0x0c => "Waiting for Logout",
    }
}

header! {
    /// Reject (section 11.17). Its data is the header that was rejected.
    pub struct Reject, with |bytes| no_task(bytes), {
        /// Reason.
        reason: RejectReason [2],
        /// StatSN, ExpCmdSN and MaxCmdSN.
        serials: ResponseSerials [offset::STAT_SN],
        /// DataSN or R2TSN: the next of the rejected command's, where the reason is a protocol error or a SNACK.
        data_sn: Serial [36],
    }
}

header! {
    /// NOP-In (section 11.19).
    pub struct NopIn, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// Logical Unit Number, with a transfer tag.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag of the NOP-Out that this answers; reserved otherwise.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag, which the answer brings back; reserved where none is wanted.
        ttt: Ttt [offset::TTT],
        /// StatSN, ExpCmdSN and MaxCmdSN. StatSN is used up only where this answers a NOP-Out.
        serials: ResponseSerials [offset::STAT_SN],
    }
}
