//! The numbers of a connection: CmdSN, MaxCmdSN and ExpStatSN (RFC 7143 section 4.2.2).

use weir_iscsi::Serial;
use weir_iscsi::login::LoggedIn;

use super::fault::{Violation, same};

/// See the module.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Numbers {
    /// CmdSN of the next command.
    cmd_sn: Serial,
    /// MaxCmdSN.
    max_cmd_sn: Serial,
    /// ExpStatSN: the number that the next response must have.
    exp_stat_sn: Serial,
}

impl Numbers {
    /// Those with which a login ended.
    pub(super) fn new(logged_in: &LoggedIn) -> Numbers {
        let mut numbers = Numbers {
            cmd_sn: logged_in.cmd_sn,
            max_cmd_sn: logged_in.cmd_sn.minus(1),
            exp_stat_sn: logged_in.stat_sn,
        };
        numbers.hear(logged_in.cmd_sn, logged_in.max_cmd_sn);
        numbers
    }

    /// CmdSN of the next command, which immediate ones have, too, and do not use up.
    pub(super) fn cmd_sn(&self) -> Serial {
        self.cmd_sn
    }

    /// ExpStatSN.
    #[inline]
    pub(super) fn exp_stat_sn(&self) -> Serial {
        self.exp_stat_sn
    }

    /// Commands that the target takes beyond those that have a number.
    #[inline]
    pub(super) fn window(&self) -> u32 {
        self.max_cmd_sn.next().since(self.cmd_sn)
    }

    /// Takes the number of a command.
    #[inline]
    pub(super) fn take_command(&mut self) -> Serial {
        let number = self.cmd_sn;
        self.cmd_sn = number.next();
        number
    }

    /// Takes what a PDU says of the window. A window that cannot be, or that acknowledges what was not sent, is ignored, and
    /// none shrinks (section 4.2.2.1).
    #[inline]
    pub(super) fn hear(&mut self, exp_cmd_sn: Serial, max_cmd_sn: Serial) {
        let cannot_be =
            max_cmd_sn.next().is_before(exp_cmd_sn) || self.cmd_sn.is_before(exp_cmd_sn);
        if !cannot_be && self.max_cmd_sn.is_before(max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    /// Takes the StatSN of a response. At error recovery level 0 none is lost and the connection lives.
    #[inline]
    pub(super) fn status(&mut self, stat_sn: Serial) -> Result<(), Violation> {
        same("StatSN", stat_sn.0, self.exp_stat_sn.0)?;
        self.exp_stat_sn = stat_sn.next();
        Ok(())
    }
}
