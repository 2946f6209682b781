//! Headers from the initiator to the target (RFC 7143 sections 11.3, 11.5, 11.7, 11.10, 11.12, 11.14, 11.16 and 11.18).

use super::{
    AdditionalSummary, BasicHeader, CONTINUE, CURRENT_STAGE, Cid, CommonHeader, FINAL, Header,
    IMMEDIATE, Isid, Itt, NEXT_STAGE, Opcode, Stage, Tsih, Ttt, offset, sealed::Sealed,
};
use crate::serial::Serial;
use crate::wire::{array_at, get_u32, get_u64, open_enum, put};

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

header! {
    /// Task Management Function Request (section 11.5).
    pub struct TaskManagementRequest, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// I.
        immediate: bool [0, IMMEDIATE],
        /// Function.
        function: TaskFunction [offset::FLAGS, !FINAL],
        /// Logical Unit Number, for the functions that have one.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag of this request.
        itt: Itt [offset::ITT],
        /// Referenced Task Tag, of ABORT TASK, TASK REASSIGN and QUERY TASK.
        referenced: Itt [20],
        /// CmdSN.
        cmd_sn: Serial [offset::CMD_SN],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
        /// RefCmdSN: the CmdSN of the referenced task.
        ref_cmd_sn: Serial [32],
        /// ExpDataSN, of TASK REASSIGN.
        exp_data_sn: Serial [36],
    }
}

header! {
    /// SCSI Data-Out (section 11.7).
    pub struct DataOut {
        /// F: the last of its sequence: of the unsolicited data, or of an R2T.
        is_final: bool [offset::FLAGS, FINAL],
        /// Logical Unit Number, where the transfer tag is not reserved.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag of the command.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag of the R2T; reserved for unsolicited data.
        ttt: Ttt [offset::TTT],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
        /// DataSN: the PDU's number in its sequence, from 0.
        data_sn: Serial [36],
        /// Buffer Offset in bytes from the start of the command's data.
        buffer_offset: u32 [40],
    }
}

header! {
    /// Text Request (section 11.10).
    pub struct TextRequest {
        /// I.
        immediate: bool [0, IMMEDIATE],
        /// F: the last of the initiator's text.
        is_final: bool [offset::FLAGS, FINAL],
        /// C: the text is not complete in this PDU.
        continues: bool [offset::FLAGS, CONTINUE],
        /// Logical Unit Number that came with the transfer tag.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag of the last response; reserved at the start.
        ttt: Ttt [offset::TTT],
        /// CmdSN.
        cmd_sn: Serial [offset::CMD_SN],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
    }
}

header! {
    /// Login Request (section 11.12). It is always immediate.
    pub struct LoginRequest, with |bytes| bytes[0] |= IMMEDIATE, {
        /// T: the initiator is ready to go on to the next stage.
        transit: bool [offset::FLAGS, FINAL],
        /// C: the text is not complete in this PDU.
        continues: bool [offset::FLAGS, CONTINUE],
        /// CSG: the current stage.
        current_stage: Stage [offset::FLAGS, CURRENT_STAGE],
        /// NSG: the next stage, where `transit` is set.
        next_stage: Stage [offset::FLAGS, NEXT_STAGE],
        /// Version-max.
        version_max: u8 [2],
        /// Version-min.
        version_min: u8 [3],
        /// Initiator Session ID.
        isid: Isid [8],
        /// Target Session Identifying Handle; 0 for a new session.
        tsih: Tsih [14],
        /// Initiator Task Tag, the same in all requests of a login.
        itt: Itt [offset::ITT],
        /// Connection ID.
        cid: Cid [20],
        /// CmdSN.
        cmd_sn: Serial [offset::CMD_SN],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
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

header! {
    /// Logout Request (section 11.14).
    pub struct LogoutRequest, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// I.
        immediate: bool [0, IMMEDIATE],
        /// Reason.
        reason: LogoutReason [offset::FLAGS, !FINAL],
        /// Initiator Task Tag.
        itt: Itt [offset::ITT],
        /// Connection that is closed; reserved where the session is.
        cid: Cid [20],
        /// CmdSN.
        cmd_sn: Serial [offset::CMD_SN],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
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

header! {
    /// SNACK Request (section 11.16). At error recovery level 0 a target rejects it.
    pub struct Snack, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// Type.
        snack_type: SnackType [offset::FLAGS, 0x0f],
        /// Logical Unit Number.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag, or SNACK Tag.
        ttt: Ttt [offset::TTT],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
        /// BegRun: first DataSN, R2TSN or StatSN.
        begin: Serial [40],
        /// RunLength: how many; 0 for all from the first on.
        length: u32 [44],
    }
}

header! {
    /// NOP-Out (section 11.18).
    pub struct NopOut, with |bytes| bytes[offset::FLAGS] = FINAL, {
        /// I.
        immediate: bool [0, IMMEDIATE],
        /// Logical Unit Number that came with the transfer tag.
        lun: u64 [offset::LUN],
        /// Initiator Task Tag; reserved where no answer is wanted.
        itt: Itt [offset::ITT],
        /// Target Transfer Tag of the NOP-In that this answers; reserved otherwise.
        ttt: Ttt [offset::TTT],
        /// CmdSN.
        cmd_sn: Serial [offset::CMD_SN],
        /// ExpStatSN.
        exp_stat_sn: Serial [offset::EXP_STAT_SN],
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

#[inline]
fn put_immediate(bytes: &mut BasicHeader, immediate: bool) {
    bytes[0] |= when(immediate, IMMEDIATE);
}
