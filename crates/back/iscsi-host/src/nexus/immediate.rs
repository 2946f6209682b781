//! What is under way and is no task: pings, aborts, logouts, texts.

use weir_iscsi::pdu::{
    LogoutReason, LogoutRequest, NopOut, TaskFunction, TaskManagementRequest, TextRequest,
};
use weir_iscsi::writer::Writer;
use weir_iscsi::{Cid, Itt, Serial, Ttt};
use weir_memory::{Gather, View};

use super::framing::push;

/// Something that is not a task. All of it is immediate: it takes no place in the order of commands, nor in the window.
pub(super) struct Immediate {
    pub(super) user: u64,
    pub(super) kind: ImmediateKind,
    /// CmdSN: that of the next command.
    pub(super) cmd_sn: Serial,
    /// Whether it was handed to a send.
    pub(super) sent: bool,
}

pub(super) enum ImmediateKind {
    Abort {
        task: Itt,
        lun: u64,
        ref_cmd_sn: Serial,
    },
    Nop,
    Logout,
    Text(Box<TextExchange>),
}

/// A text, and its answer as far as it came.
pub(super) struct TextExchange {
    pub(super) request: Vec<u8>,
    /// What the last response wants back.
    pub(super) lun: u64,
    pub(super) ttt: Ttt,
    pub(super) answer: Vec<u8>,
}

impl Immediate {
    /// Adds its PDU. It counts as sent.
    pub(super) fn transmit(
        &mut self,
        itt: Itt,
        exp_stat_sn: Serial,
        writer: &Writer,
        gather: &mut Gather,
    ) {
        self.sent = true;
        let cmd_sn = self.cmd_sn;
        match &self.kind {
            ImmediateKind::Abort {
                task,
                lun,
                ref_cmd_sn,
            } => {
                let header = TaskManagementRequest {
                    immediate: true,
                    function: TaskFunction::AbortTask,
                    lun: *lun,
                    itt,
                    referenced: *task,
                    cmd_sn,
                    exp_stat_sn,
                    ref_cmd_sn: *ref_cmd_sn,
                    exp_data_sn: Serial(0),
                    data_length: 0,
                };
                push(writer, &header, &[], gather);
            }
            ImmediateKind::Nop => {
                let header = nop_out(itt, 0, Ttt::RESERVED, cmd_sn, exp_stat_sn);
                push(writer, &header, &[], gather);
            }
            ImmediateKind::Logout => {
                let header = LogoutRequest {
                    immediate: true,
                    reason: LogoutReason::CloseSession,
                    itt,
                    cid: Cid(0),
                    cmd_sn,
                    exp_stat_sn,
                    data_length: 0,
                };
                push(writer, &header, &[], gather);
            }
            ImmediateKind::Text(exchange) => {
                let header = TextRequest {
                    immediate: true,
                    is_final: true,
                    continues: false,
                    lun: exchange.lun,
                    itt,
                    ttt: exchange.ttt,
                    cmd_sn,
                    exp_stat_sn,
                    data_length: exchange.request.len() as u32,
                };
                let text = View::copy_of(&exchange.request);
                push(writer, &header, &[text], gather);
            }
        }
    }
}

/// A ping, or the answer to one.
pub(super) fn nop_out(itt: Itt, lun: u64, ttt: Ttt, cmd_sn: Serial, exp_stat_sn: Serial) -> NopOut {
    NopOut {
        immediate: true,
        lun,
        itt,
        ttt,
        cmd_sn,
        exp_stat_sn,
        data_length: 0,
    }
}
