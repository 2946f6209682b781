//! Headers from the initiator to the target (RFC 7143 sections 11.3, 11.5, 11.7, 11.10, 11.12, 11.14, 11.16 and 11.18).

use super::{
    AdditionalSummary, BasicHeader, CONTINUE, Cid, CommonHeader, FINAL, Header, IMMEDIATE, Isid,
    Itt, Opcode, Stage, Tsih, Ttt, offset, sealed::Sealed,
};
use crate::serial::Serial;
use crate::wire::{array_at, get_u16, get_u32, get_u64, open_enum, put};

open_enum! {
    /// ATTR of a SCSI Command: the task attribute (section 11.3.1).
    pub enum TaskAttribute: u8 {
        /// Untagged.
        Untagged = 0 => "Untagged",
        /// Simple.
        Simple = 1 => "Simple",
        /// Ordered.
        Ordered = 2 => "Ordered",
        /// Head of queue.
        HeadOfQueue = 3 => "Head of queue",
        /// ACA.
        Aca = 4 => "ACA",
    }
}

/// SCSI Command (section 11.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I: delivered at once, out of the order of CmdSN.
    pub immediate: bool,
    /// F: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R: the command is expected to input data.
    pub read: bool,
    /// W: the command is expected to output data.
    pub write: bool,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Logical Unit Number, as SAM has it.
    pub lun: u64,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Expected Data Transfer Length in bytes.
    pub expected_data_length: u32,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// The CDB, or its first 16 bytes.
    pub cdb: [u8; 16],
    /// Additional Header Segments.
    pub additional: AdditionalSummary,
    /// Bytes of immediate data.
    pub data_length: u32,
}

const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE: u8 = 0x07;

impl ScsiCommand {
    /// Reads a header; [`ScsiCommand::additional`] is not in it.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        let flags = bytes[offset::FLAGS];
        Self {
            immediate: common.immediate,
            is_final: flags & FINAL != 0,
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            attribute: TaskAttribute::from_value(flags & ATTRIBUTE),
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            expected_data_length: get_u32(bytes, 20),
            cmd_sn: Serial(get_u32(bytes, offset::CMD_SN)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            cdb: array_at(bytes, 32),
            additional: AdditionalSummary::default(),
            data_length: common.data_length,
        }
    }
}

impl Sealed for ScsiCommand {}
impl Header for ScsiCommand {
    const OPCODE: Opcode = Opcode::ScsiCommand;

    #[inline]
    fn put(&self, bytes: &mut BasicHeader) {
        put_immediate(bytes, self.immediate);
        bytes[offset::FLAGS] = when(self.is_final, FINAL)
            | when(self.read, READ)
            | when(self.write, WRITE)
            | self.attribute.value() & ATTRIBUTE;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, 20, self.expected_data_length);
        put_u32(bytes, offset::CMD_SN, self.cmd_sn.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
        put(bytes, 32, &self.cdb);
    }

    #[inline]
    fn data_length(&self) -> u32 {
        self.data_length
    }
}

open_enum! {
    /// Function of a Task Management Function Request (section 11.5.1; RFC 7144 section 4.1.2 from 9 on).
    pub enum TaskFunction: u8 {
        /// ABORT TASK.
        AbortTask = 1 => "ABORT TASK",
        /// ABORT TASK SET.
        AbortTaskSet = 2 => "ABORT TASK SET",
        /// CLEAR ACA.
        ClearAca = 3 => "CLEAR ACA",
        /// CLEAR TASK SET.
        ClearTaskSet = 4 => "CLEAR TASK SET",
        /// LOGICAL UNIT RESET.
        LogicalUnitReset = 5 => "LOGICAL UNIT RESET",
        /// TARGET WARM RESET.
        TargetWarmReset = 6 => "TARGET WARM RESET",
        /// TARGET COLD RESET.
        TargetColdReset = 7 => "TARGET COLD RESET",
        /// TASK REASSIGN.
        TaskReassign = 8 => "TASK REASSIGN",
        /// QUERY TASK.
        QueryTask = 9 => "QUERY TASK",
        /// QUERY TASK SET.
        QueryTaskSet = 10 => "QUERY TASK SET",
        /// I_T NEXUS RESET.
        NexusReset = 11 => "I_T NEXUS RESET",
        /// QUERY ASYNCHRONOUS EVENT.
        QueryAsynchronousEvent = 12 => "QUERY ASYNCHRONOUS EVENT",
    }
}

/// Task Management Function Request (section 11.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskManagementRequest {
    /// I.
    pub immediate: bool,
    /// Function.
    pub function: TaskFunction,
    /// Logical Unit Number, for the functions that have one.
    pub lun: u64,
    /// Initiator Task Tag of this request.
    pub itt: Itt,
    /// Referenced Task Tag, of ABORT TASK, TASK REASSIGN and QUERY TASK.
    pub referenced: Itt,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// RefCmdSN: the CmdSN of the referenced task.
    pub ref_cmd_sn: Serial,
    /// ExpDataSN, of TASK REASSIGN.
    pub exp_data_sn: Serial,
    /// Bytes of data, which this PDU should not have.
    pub data_length: u32,
}

impl TaskManagementRequest {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            immediate: common.immediate,
            function: TaskFunction::from_value(bytes[offset::FLAGS] & !FINAL),
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            referenced: Itt(get_u32(bytes, 20)),
            cmd_sn: Serial(get_u32(bytes, offset::CMD_SN)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            ref_cmd_sn: Serial(get_u32(bytes, 32)),
            exp_data_sn: Serial(get_u32(bytes, 36)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for TaskManagementRequest {}
impl Header for TaskManagementRequest {
    const OPCODE: Opcode = Opcode::TaskManagementRequest;

    fn put(&self, bytes: &mut BasicHeader) {
        put_immediate(bytes, self.immediate);
        bytes[offset::FLAGS] = FINAL | self.function.value();
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, 20, self.referenced.0);
        put_u32(bytes, offset::CMD_SN, self.cmd_sn.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
        put_u32(bytes, 32, self.ref_cmd_sn.0);
        put_u32(bytes, 36, self.exp_data_sn.0);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// SCSI Data-Out (section 11.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataOut {
    /// F: the last of its sequence: of the unsolicited data, or of an R2T.
    pub is_final: bool,
    /// Logical Unit Number, where the transfer tag is not reserved.
    pub lun: u64,
    /// Initiator Task Tag of the command.
    pub itt: Itt,
    /// Target Transfer Tag of the R2T; reserved for unsolicited data.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// DataSN: the PDU's number in its sequence, from 0.
    pub data_sn: Serial,
    /// Buffer Offset in bytes from the start of the command's data.
    pub buffer_offset: u32,
    /// Bytes of data.
    pub data_length: u32,
}

impl DataOut {
    /// Reads a header.
    #[inline]
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            is_final: bytes[offset::FLAGS] & FINAL != 0,
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            data_sn: Serial(get_u32(bytes, 36)),
            buffer_offset: get_u32(bytes, 40),
            data_length: common.data_length,
        }
    }
}

impl Sealed for DataOut {}
impl Header for DataOut {
    const OPCODE: Opcode = Opcode::DataOut;

    #[inline]
    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = when(self.is_final, FINAL);
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
        put_u32(bytes, 36, self.data_sn.0);
        put_u32(bytes, 40, self.buffer_offset);
    }

    #[inline]
    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// Text Request (section 11.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRequest {
    /// I.
    pub immediate: bool,
    /// F: the last of the initiator's text.
    pub is_final: bool,
    /// C: the text is not complete in this PDU.
    pub continues: bool,
    /// Logical Unit Number that came with the transfer tag.
    pub lun: u64,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Target Transfer Tag of the last response; reserved at the start.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// Bytes of text.
    pub data_length: u32,
}

impl TextRequest {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            immediate: common.immediate,
            is_final: bytes[offset::FLAGS] & FINAL != 0,
            continues: bytes[offset::FLAGS] & CONTINUE != 0,
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            cmd_sn: Serial(get_u32(bytes, offset::CMD_SN)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for TextRequest {}
impl Header for TextRequest {
    const OPCODE: Opcode = Opcode::TextRequest;

    fn put(&self, bytes: &mut BasicHeader) {
        put_immediate(bytes, self.immediate);
        bytes[offset::FLAGS] = when(self.is_final, FINAL) | when(self.continues, CONTINUE);
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        put_u32(bytes, offset::CMD_SN, self.cmd_sn.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// Login Request (section 11.12). It is always immediate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginRequest {
    /// T: the initiator is ready to go on to the next stage.
    pub transit: bool,
    /// C: the text is not complete in this PDU.
    pub continues: bool,
    /// CSG: the current stage.
    pub current_stage: Stage,
    /// NSG: the next stage, where `transit` is set.
    pub next_stage: Stage,
    /// Version-max.
    pub version_max: u8,
    /// Version-min.
    pub version_min: u8,
    /// Initiator Session ID.
    pub isid: Isid,
    /// Target Session Identifying Handle; 0 for a new session.
    pub tsih: Tsih,
    /// Initiator Task Tag, the same in all requests of a login.
    pub itt: Itt,
    /// Connection ID.
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// Bytes of text.
    pub data_length: u32,
}

impl LoginRequest {
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
            version_min: bytes[3],
            isid: Isid(array_at(bytes, 8)),
            tsih: Tsih(get_u16(bytes, 14)),
            itt: common.itt,
            cid: Cid(get_u16(bytes, 20)),
            cmd_sn: Serial(get_u32(bytes, offset::CMD_SN)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for LoginRequest {}
impl Header for LoginRequest {
    const OPCODE: Opcode = Opcode::LoginRequest;

    fn put(&self, bytes: &mut BasicHeader) {
        put_immediate(bytes, true);
        bytes[offset::FLAGS] = login_flags(
            self.transit,
            self.continues,
            self.current_stage,
            self.next_stage,
        );
        bytes[2] = self.version_max;
        bytes[3] = self.version_min;
        put(bytes, 8, &self.isid.0);
        put(bytes, 14, &self.tsih.0.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put(bytes, 20, &self.cid.0.to_be_bytes());
        put_u32(bytes, offset::CMD_SN, self.cmd_sn.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

open_enum! {
    /// Reason of a Logout Request (section 11.14.1).
    pub enum LogoutReason: u8 {
        /// All connections of the session are closed.
        CloseSession = 0 => "close the session",
        /// The connection of the CID is closed.
        CloseConnection = 1 => "close the connection",
        /// The connection of the CID is removed, its tasks may be reassigned.
        RemoveForRecovery = 2 => "remove the connection for recovery",
    }
}

/// Logout Request (section 11.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I.
    pub immediate: bool,
    /// Reason.
    pub reason: LogoutReason,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Connection that is closed; reserved where the session is.
    pub cid: Cid,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// Bytes of data, which this PDU should not have.
    pub data_length: u32,
}

impl LogoutRequest {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            immediate: common.immediate,
            reason: LogoutReason::from_value(bytes[offset::FLAGS] & !FINAL),
            itt: common.itt,
            cid: Cid(get_u16(bytes, 20)),
            cmd_sn: Serial(get_u32(bytes, offset::CMD_SN)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for LogoutRequest {}
impl Header for LogoutRequest {
    const OPCODE: Opcode = Opcode::LogoutRequest;

    fn put(&self, bytes: &mut BasicHeader) {
        put_immediate(bytes, self.immediate);
        bytes[offset::FLAGS] = FINAL | self.reason.value();
        put_u32(bytes, offset::ITT, self.itt.0);
        put(bytes, 20, &self.cid.0.to_be_bytes());
        put_u32(bytes, offset::CMD_SN, self.cmd_sn.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

open_enum! {
    /// Type of a SNACK Request (section 11.16.1).
    pub enum SnackType: u8 {
        /// Data or R2Ts again.
        DataR2t = 0 => "Data/R2T SNACK",
        /// Statuses again.
        Status = 1 => "Status SNACK",
        /// Acknowledges Data-In.
        DataAck = 2 => "DataACK",
        /// Data again, cut anew.
        RData = 3 => "R-Data SNACK",
    }
}

/// SNACK Request (section 11.16). At error recovery level 0 a target rejects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snack {
    /// Type.
    pub snack_type: SnackType,
    /// Logical Unit Number.
    pub lun: u64,
    /// Initiator Task Tag.
    pub itt: Itt,
    /// Target Transfer Tag, or SNACK Tag.
    pub ttt: Ttt,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// BegRun: first DataSN, R2TSN or StatSN.
    pub begin: Serial,
    /// RunLength: how many; 0 for all from the first on.
    pub length: u32,
    /// Bytes of data, which this PDU should not have.
    pub data_length: u32,
}

impl Snack {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            snack_type: SnackType::from_value(bytes[offset::FLAGS] & 0x0f),
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            begin: Serial(get_u32(bytes, 40)),
            length: get_u32(bytes, 44),
            data_length: common.data_length,
        }
    }
}

impl Sealed for Snack {}
impl Header for Snack {
    const OPCODE: Opcode = Opcode::Snack;

    fn put(&self, bytes: &mut BasicHeader) {
        bytes[offset::FLAGS] = FINAL | self.snack_type.value() & 0x0f;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
        put_u32(bytes, 40, self.begin.0);
        put_u32(bytes, 44, self.length);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// NOP-Out (section 11.18).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NopOut {
    /// I.
    pub immediate: bool,
    /// Logical Unit Number that came with the transfer tag.
    pub lun: u64,
    /// Initiator Task Tag; reserved where no answer is wanted.
    pub itt: Itt,
    /// Target Transfer Tag of the NOP-In that this answers; reserved otherwise.
    pub ttt: Ttt,
    /// CmdSN.
    pub cmd_sn: Serial,
    /// ExpStatSN.
    pub exp_stat_sn: Serial,
    /// Bytes of ping data.
    pub data_length: u32,
}

impl NopOut {
    /// Reads a header.
    pub fn read(bytes: &BasicHeader) -> Self {
        let common = CommonHeader::read(bytes);
        Self {
            immediate: common.immediate,
            lun: get_u64(bytes, offset::LUN),
            itt: common.itt,
            ttt: Ttt(get_u32(bytes, offset::TTT)),
            cmd_sn: Serial(get_u32(bytes, offset::CMD_SN)),
            exp_stat_sn: Serial(get_u32(bytes, offset::EXP_STAT_SN)),
            data_length: common.data_length,
        }
    }
}

impl Sealed for NopOut {}
impl Header for NopOut {
    const OPCODE: Opcode = Opcode::NopOut;

    fn put(&self, bytes: &mut BasicHeader) {
        put_immediate(bytes, self.immediate);
        bytes[offset::FLAGS] = FINAL;
        put(bytes, offset::LUN, &self.lun.to_be_bytes());
        put_u32(bytes, offset::ITT, self.itt.0);
        put_u32(bytes, offset::TTT, self.ttt.0);
        put_u32(bytes, offset::CMD_SN, self.cmd_sn.0);
        put_u32(bytes, offset::EXP_STAT_SN, self.exp_stat_sn.0);
    }

    fn data_length(&self) -> u32 {
        self.data_length
    }
}

/// `flag` where it is set.
#[inline]
pub(super) const fn when(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

#[inline]
pub(super) fn put_u32(bytes: &mut [u8], offset: usize, value: u32) {
    put(bytes, offset, &value.to_be_bytes());
}

/// Byte 1 of the login PDUs (section 11.12.1 to 11.12.3).
pub(super) const fn login_flags(transit: bool, continues: bool, csg: Stage, nsg: Stage) -> u8 {
    when(transit, FINAL) | when(continues, CONTINUE) | (csg.value() & 3) << 2 | nsg.value() & 3
}

#[inline]
fn put_immediate(bytes: &mut BasicHeader, immediate: bool) {
    bytes[0] |= when(immediate, IMMEDIATE);
}
