//! Reasons for which a connection cannot go on.

use thiserror::Error;
use weir_iscsi::Itt;
use weir_iscsi::login::InitiatorLoginError;
use weir_iscsi::pdu::{AsyncEvent, Opcode, RejectReason};
use weir_iscsi::reader::FramingError;

/// Reason for which a connection cannot go on. At error recovery level 0 every one of them ends the session.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// The login failed.
    #[error(transparent)]
    Login(InitiatorLoginError),
    /// The stream of bytes is no iSCSI, or damaged.
    #[error("the target broke the protocol: {0}")]
    Framing(#[from] FramingError),
    /// A PDU that has no place here.
    #[error("the target broke the protocol: {0}")]
    Protocol(#[from] Violation),
    /// The data of a response is damaged, of which the target would send none again.
    #[error("the data of a {0} came damaged")]
    Digest(Opcode),
    /// The target says that a PDU of this side is wrong.
    #[error("the target rejected a PDU: {0}")]
    Rejected(RejectReason),
    /// The target ends the session, or asks for its end.
    #[error("the target sent an asynchronous message: {0}")]
    Asked(AsyncEvent),
}

/// A PDU that breaks the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// Nothing of its Initiator Task Tag is under way that it could answer.
    #[error("a {opcode} for task {itt}, which awaits none")]
    NothingSuch {
        /// The PDU's opcode.
        opcode: Opcode,
        /// Its Initiator Task Tag.
        itt: Itt,
    },
    /// A number that counts PDUs or bytes has another value than the one that comes next.
    #[error("{field} is {received:#x}, where {expected:#x} comes next")]
    WrongNumber {
        /// The field.
        field: &'static str,
        /// Its value.
        received: u32,
        /// The value that comes next.
        expected: u32,
    },
    /// Data beyond that of the command.
    #[error(
        "a {opcode} for {length} bytes at offset {offset} goes beyond the command's {expected}"
    )]
    Beyond {
        /// The PDU's opcode.
        opcode: Opcode,
        /// Buffer Offset.
        offset: u32,
        /// Bytes.
        length: u32,
        /// Bytes of the command's data.
        expected: u32,
    },
    /// An R2T for nothing, or for more than MaxBurstLength.
    #[error("an R2T for {length} bytes, where 1 to {maximum} may be asked for")]
    WrongBurst {
        /// Desired Data Transfer Length.
        length: u32,
        /// MaxBurstLength.
        maximum: u32,
    },
    /// More R2Ts of one command at once than MaxOutstandingR2T.
    #[error("more than {maximum} R2Ts of one command at once")]
    TooManyR2ts {
        /// MaxOutstandingR2T.
        maximum: u32,
    },
    /// A PDU lacks a Target Transfer Tag that it must have.
    #[error("a {0} without a Target Transfer Tag")]
    NoTransferTag(Opcode),
    /// A Data-In with a status that is not the last of its sequence.
    #[error("a status in a Data-In PDU that is not final")]
    StatusNotFinal,
    /// More pings than are answered at once.
    #[error("more than {maximum} pings at once")]
    TooManyPings {
        /// Pings that are answered at once.
        maximum: usize,
    },
    /// More text than is taken.
    #[error("more than {maximum} bytes of text")]
    TooMuchText {
        /// Bytes that are taken.
        maximum: usize,
    },
    /// A PDU that an initiator does not know, or does not expect.
    #[error("a {0}, which was not expected")]
    Unexpected(Opcode),
}

/// Checks that a field of a PDU has the value that comes next.
#[inline]
pub(super) fn same(field: &'static str, received: u32, expected: u32) -> Result<(), Violation> {
    if received == expected {
        return Ok(());
    }
    Err(Violation::WrongNumber {
        field,
        received,
        expected,
    })
}
