//! Headers from the target to the initiator (RFC 7143 sections 11.4, 11.6 to 11.9, 11.11, 11.13, 11.15, 11.17 and 11.19).

use super::request::{login_flags, put_u32, when};
use super::{
    BasicHeader, CONTINUE, CommonHeader, FINAL, Header, Isid, Itt, Opcode, Stage, Tsih, Ttt,
    offset, sealed::Sealed,
};
use crate::serial::Serial;
use crate::status::LoginStatus;
use crate::wire::{array_at, get_u16, get_u32, get_u64, open_enum, put};

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

impl ResponseSerials {
    #[inline]
    fn read(bytes: &BasicHeader) -> Self {
        Self {
            stat_sn: Serial(get_u32(bytes, offset::STAT_SN)),
            exp_cmd_sn: Serial(get_u32(bytes, offset::EXP_CMD_SN)),
            max_cmd_sn: Serial(get_u32(bytes, offset::MAX_CMD_SN)),
        }
    }

    #[inline]
    fn put(&self, bytes: &mut BasicHeader) {
        put_u32(bytes, offset::STAT_SN, self.stat_sn.0);
        put_u32(bytes, offset::EXP_CMD_SN, self.exp_cmd_sn.0);
        put_u32(bytes, offset::MAX_CMD_SN, self.max_cmd_sn.0);
    }
}

/// Bytes that were transferred less, or would have been more, than the initiator expected (sections 11.4.1 and 11.4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Residual {
    /// As many as expected.
    #[default]
    None,
    /// So many bytes were not transferred, as more were there than expected.
    Overflow(u32),
    /// So many bytes were expected and not transferred.
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
            serials: ResponseSerials::read(bytes),
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
        self.serials.put(bytes);
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

/// Task Management Function Response (section 11.6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// Response.
    pub response: TaskResponse,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// Bytes of data, which this PDU should not have.
    pub data_length: u32,
}

impl TaskManagementResponse {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            response: TaskResponse::from_value(bytes[2]),
            itt: common.itt,
            serials: ResponseSerials::read(bytes),
            data_length: common.data_length,
        }
    }
}

impl Sealed for TaskManagementResponse {}
impl Header for TaskManagementResponse {
    const OPCODE: Opcode = Opcode::TaskManagementResponse;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL;
        bytes[2] = self.response.value();
        put_u32(bytes, offset::ITT, self.itt.0);
        self.serials.put(bytes);
    }

    fn data_length(&self) -> u32 {
        self.data_length
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

/// Ready To Transfer (section 11.8). Its StatSN is the next, which it does not use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct R2t {
    /// Logical Unit Number.
    pub lun: u64,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Target Transfer Tag, which Data-Out brings back.
    pub ttt: Ttt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// R2TSN: the R2T's number among those of its command, from 0.
    pub r2t_sn: Serial,
    /// Buffer Offset in bytes from the start of the command's data.
    pub buffer_offset: u32,
    /// Desired Data Transfer Length in bytes; never 0.
    pub desired_length: u32,
    /// Bytes of data, which this PDU should not have.
    pub data_length: u32,
}

impl R2t {
    /// Reads a header.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            serials: ResponseSerials::read(bytes),
            r2t_sn: Serial(get_u32(bytes, 36)),
            buffer_offset: get_u32(bytes, 40),
            desired_length: get_u32(bytes, 44),
            data_length: common.data_length,
        }
    }
}

impl Sealed for R2t {}
impl Header for R2t {
    const OPCODE: Opcode = Opcode::R2t;

    #[inline]
    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        self.serials.put(bytes);
        put_u32(bytes, 36, self.r2t_sn.0);
        put_u32(bytes, 40, self.buffer_offset);
        put_u32(bytes, 44, self.desired_length);
    }

    #[inline]
    fn data_length(&self) -> u32 {
        self.data_length
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

/// Asynchronous Message (section 11.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AsyncMessage {
    /// Logical Unit Number, for the events that have one.
    pub lun: u64,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// AsyncEvent.
    pub event: AsyncEvent,
    /// AsyncVCode.
    pub vendor_code: u8,
    /// Parameter1 to Parameter3.
    pub parameters: [u16; 3],
    /// Bytes of data: sense data and event data.
    pub data_length: u32,
}

impl AsyncMessage {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        Self {
            lun: get_u64(bytes, offset::LUN),
            serials: ResponseSerials::read(bytes),
            event: AsyncEvent::from_value(bytes[36]),
            vendor_code: bytes[37],
            parameters: [38, 40, 42].map(|offset| get_u16(bytes, offset)),
            data_length: CommonHeader::read(bytes).data_length,
        }
    }
}

impl Sealed for AsyncMessage {}
impl Header for AsyncMessage {
    const OPCODE: Opcode = Opcode::AsyncMessage;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, Itt::RESERVED.0);
        self.serials.put(bytes);
        bytes[36] = self.event.value();
        bytes[37] = self.vendor_code;
        for (index, parameter) in self.parameters.iter().enumerate() {
            put(bytes, 38 + 2 * index, &parameter.to_be_bytes());
        }
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// Text Response (section 11.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextResponse {
    /// F: the exchange of text is complete.
    pub is_final: bool,
    /// C: the text is not complete in this PDU.
    pub continues: bool,
    /// Logical Unit Number, which the initiator brings back.
    pub lun: u64,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// Target Transfer Tag, which the next request brings back; reserved with `is_final`.
    pub ttt: Ttt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// Bytes of text.
    pub data_length: u32,
}

impl TextResponse {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            is_final: bytes[offset::FLAGS] & FINAL != 0,
            continues: bytes[offset::FLAGS] & CONTINUE != 0,
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            serials: ResponseSerials::read(bytes),
            data_length: common.data_length,
        }
    }
}

impl Sealed for TextResponse {}
impl Header for TextResponse {
    const OPCODE: Opcode = Opcode::TextResponse;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = when(self.is_final, FINAL) | when(self.continues, CONTINUE);
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        self.serials.put(bytes);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// Login Response (section 11.13).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginResponse {
    /// T: the target goes on to the next stage.
    pub transit: bool,
    /// C: the text is not complete in this PDU.
    pub continues: bool,
    /// CSG: the current stage.
    pub current_stage: Stage,
    /// NSG: the next stage, where `transit` is set.
    pub next_stage: Stage,
    /// Version-max.
    pub version_max: u8,
    /// Version-active.
    pub version_active: u8,
    /// Initiator Session ID of the request.
    pub isid: Isid,
    /// Target Session Identifying Handle: that of the session in the last response, of the request before.
    pub tsih: Tsih,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// Status-Class and Status-Detail.
    pub status: LoginStatus,
    /// Bytes of text.
    pub data_length: u32,
}

impl LoginResponse {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        let flags = bytes[offset::FLAGS];
        Self {
            transit: flags & FINAL != 0,
            continues: flags & CONTINUE != 0,
            current_stage: Stage::from_value(flags >> 2 & 3),
            next_stage: Stage::from_value(flags & 3),
            version_max: bytes[2],
            version_active: bytes[3],
            isid: Isid(array_at(bytes, 8)),
            tsih: Tsih(get_u16(bytes, 14)),
            itt: common.itt,
            serials: ResponseSerials::read(bytes),
            status: LoginStatus::from_value(get_u16(bytes, 36)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for LoginResponse {}
impl Header for LoginResponse {
    const OPCODE: Opcode = Opcode::LoginResponse;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = login_flags(
            self.transit,
            self.continues,
            self.current_stage,
            self.next_stage,
        );
        bytes[2] = self.version_max;
        bytes[3] = self.version_active;
        put(bytes, 8, &self.isid.0);
        put(bytes, 14, &self.tsih.0.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        self.serials.put(bytes);
        put(bytes, 36, &self.status.value().to_be_bytes());
    }

    fn data_length(&self) -> u32 {
        self.data_length
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

/// Logout Response (section 11.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutResponse {
    /// Response.
    pub response: LogoutResponseCode,
    /// Initiator Task Tag of the request.
    pub itt: Itt,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// Time2Wait in seconds.
    pub time_to_wait: u16,
    /// Time2Retain in seconds.
    pub time_to_retain: u16,
    /// Bytes of data, which this PDU should not have.
    pub data_length: u32,
}

impl LogoutResponse {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            response: LogoutResponseCode::from_value(bytes[2]),
            itt: common.itt,
            serials: ResponseSerials::read(bytes),
            time_to_wait: get_u16(bytes, 40),
            time_to_retain: get_u16(bytes, 42),
            data_length: common.data_length,
        }
    }
}

impl Sealed for LogoutResponse {}
impl Header for LogoutResponse {
    const OPCODE: Opcode = Opcode::LogoutResponse;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL;
        bytes[2] = self.response.value();
        put_u32(bytes, offset::ITT, self.itt.0);
        self.serials.put(bytes);
        put(bytes, 40, &self.time_to_wait.to_be_bytes());
        put(bytes, 42, &self.time_to_retain.to_be_bytes());
    }

    fn data_length(&self) -> u32 {
        self.data_length
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

/// Reject (section 11.17). Its data is the header that was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reject {
    /// Reason.
    pub reason: RejectReason,
    /// StatSN, ExpCmdSN and MaxCmdSN.
    pub serials: ResponseSerials,
    /// DataSN or R2TSN: the next of the rejected command's, where the reason is a protocol error or a SNACK.
    pub data_sn: Serial,
    /// Bytes of data: the rejected header with its Additional Header Segments.
    pub data_length: u32,
}

impl Reject {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        Self {
            reason: RejectReason::from_value(bytes[2]),
            serials: ResponseSerials::read(bytes),
            data_sn: Serial(get_u32(bytes, 36)),
            data_length: CommonHeader::read(bytes).data_length,
        }
    }
}

impl Sealed for Reject {}
impl Header for Reject {
    const OPCODE: Opcode = Opcode::Reject;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL;
        bytes[2] = self.reason.value();
        put_u32(bytes, offset::ITT, Itt::RESERVED.0);
        self.serials.put(bytes);
        put_u32(bytes, 36, self.data_sn.0);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// NOP-In (section 11.19).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NopIn {
    /// Logical Unit Number, with a transfer tag.
    pub lun: u64,
    /// Initiator Task Tag of the NOP-Out that this answers; reserved otherwise.
    pub itt: Itt,
    /// Target Transfer Tag, which the answer brings back; reserved where none is wanted.
    pub ttt: Ttt,
    /// StatSN, ExpCmdSN and MaxCmdSN. StatSN is used up only where this answers a NOP-Out.
    pub serials: ResponseSerials,
    /// Bytes of ping data.
    pub data_length: u32,
}

impl NopIn {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            serials: ResponseSerials::read(bytes),
            data_length: common.data_length,
        }
    }
}

impl Sealed for NopIn {}
impl Header for NopIn {
    const OPCODE: Opcode = Opcode::NopIn;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        self.serials.put(bytes);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}
