//! One SCSI command: its data both ways, and what is owed of it.

use smallvec::SmallVec;
use weir_initiator::wire::{Exposure, Payload};
use weir_iscsi::negotiation::Parameters;
use weir_iscsi::pdu::{DataIn, DataOut, Opcode, R2t, Residual, ScsiCommand, TaskAttribute};
use weir_iscsi::{Itt, Serial, Ttt};
use weir_memory::{Views, slice_views, views_len};

use super::fault::{Violation, same};

/// A command that was not answered yet, or whose data is owed still.
pub(super) struct Task {
    pub(super) user: u64,
    pub(super) lun: u64,
    pub(super) cmd_sn: Serial,
    cdb: [u8; 16],
    payload: Payload,
    /// Expected Data Transfer Length.
    length: u32,
    /// Whether its command was handed to a send.
    pub(super) sent: bool,
    /// Whether data of it was.
    data_sent: bool,
    /// It was answered. It keeps its slot until what is owed was handed to a send: a target that answers too early may wait for
    /// it all the same.
    pub(super) answered: bool,
    /// Whether data of it came damaged.
    pub(super) damaged: bool,
    /// Bytes of its data that came, that are sent without having been asked for, or that the target asked for.
    transferred: u32,
    /// DataSN of the next Data-In, or R2TSN of the next R2T.
    next_sn: Serial,
    /// DataSN of the next Data-Out of what is owed first.
    data_sn: Serial,
    /// Sequences of Data-Out that were not handed to a send yet, in order: the one that nobody asks for, and those of R2Ts.
    owed: SmallVec<[Sequence; 2]>,
}

/// The rest of a sequence of Data-Out PDUs.
struct Sequence {
    /// Of the R2T that asked for it; reserved for unsolicited data.
    ttt: Ttt,
    offset: u32,
    left: u32,
}

impl Task {
    /// Panics where the data has 4 GiB or more.
    pub(super) fn new(
        lun: u64,
        cdb: [u8; 16],
        payload: Payload,
        user: u64,
        cmd_sn: Serial,
    ) -> Task {
        let length = match &payload {
            Payload::None => 0,
            Payload::In(length) => *length,
            Payload::Out(views) => {
                u32::try_from(views_len(views)).expect("a command moves less than 4 GiB")
            }
        };
        Task {
            user,
            lun,
            cmd_sn,
            cdb,
            payload,
            length,
            sent: false,
            data_sent: false,
            answered: false,
            damaged: false,
            transferred: 0,
            next_sn: Serial(0),
            data_sn: Serial(0),
            owed: SmallVec::new(),
        }
    }

    /// Returns whether data is owed.
    #[inline]
    pub(super) fn owes(&self) -> bool {
        !self.owed.is_empty()
    }

    /// Returns whether the data that is owed first was not asked for.
    #[inline]
    pub(super) fn owes_unsolicited(&self) -> bool {
        self.owed
            .first()
            .is_some_and(|sequence| sequence.ttt == Ttt::RESERVED)
    }

    /// Makes the command's PDU, with its immediate data. Where unsolicited data is agreed, the command owes all that there may be:
    /// a target may insist on it.
    pub(super) fn command(
        &mut self,
        itt: Itt,
        exp_stat_sn: Serial,
        parameters: &Parameters,
    ) -> (ScsiCommand, Views) {
        let write = matches!(self.payload, Payload::Out(_)) && self.length > 0;
        let (immediate, unsolicited) = if write {
            unsolicited(self.length, parameters)
        } else {
            (0, 0)
        };
        self.sent = true;
        self.data_sent = immediate > 0;
        self.transferred = immediate + unsolicited;
        if unsolicited > 0 {
            self.owed.push(Sequence {
                ttt: Ttt::RESERVED,
                offset: immediate,
                left: unsolicited,
            });
        }
        let header = ScsiCommand {
            immediate: false,
            is_final: unsolicited == 0,
            read: matches!(self.payload, Payload::In(_)) && self.length > 0,
            write,
            attribute: TaskAttribute::Simple,
            lun: self.lun,
            itt,
            expected_data_length: self.length,
            cmd_sn: self.cmd_sn,
            exp_stat_sn,
            cdb: self.cdb,
            additional: Default::default(),
            data_length: immediate,
        };
        (header, self.part(0, immediate))
    }

    /// Makes the next Data-Out of what is owed.
    ///
    /// Panics where nothing is.
    pub(super) fn data_out(
        &mut self,
        itt: Itt,
        exp_stat_sn: Serial,
        segment_max: u32,
    ) -> (DataOut, Views) {
        let sequence = &mut self.owed[0];
        let length = sequence.left.min(segment_max);
        let header = DataOut {
            is_final: length == sequence.left,
            lun: if sequence.ttt == Ttt::RESERVED {
                0
            } else {
                self.lun
            },
            itt,
            ttt: sequence.ttt,
            exp_stat_sn,
            data_sn: self.data_sn,
            buffer_offset: sequence.offset,
            data_length: length,
        };
        sequence.offset += length;
        sequence.left -= length;
        self.data_sn = self.data_sn.next();
        self.data_sent = true;
        if header.is_final {
            self.owed.remove(0);
            self.data_sn = Serial(0);
        }
        (header, self.part(header.buffer_offset, length))
    }

    fn part(&self, offset: u32, length: u32) -> Views {
        match &self.payload {
            Payload::Out(views) => slice_views(views, offset as usize, length as usize),
            Payload::In(_) | Payload::None => Views::new(),
        }
    }

    /// Takes the header of data that comes: in order, and not more than the command asked for.
    #[inline]
    pub(super) fn data_in(&mut self, data: &DataIn) -> Result<(), Violation> {
        let Payload::In(expected) = self.payload else {
            return Err(Violation::NothingSuch {
                opcode: Opcode::DataIn,
                itt: data.itt,
            });
        };
        same("DataSN", data.data_sn.0, self.next_sn.0)?;
        same("Buffer Offset", data.buffer_offset, self.transferred)?;
        if data.data_length > expected - self.transferred {
            return Err(Violation::Beyond {
                opcode: Opcode::DataIn,
                offset: data.buffer_offset,
                length: data.data_length,
                expected,
            });
        }
        if data.status.is_some() && !data.is_final {
            return Err(Violation::StatusNotFinal);
        }
        self.next_sn = self.next_sn.next();
        self.transferred += data.data_length;
        Ok(())
    }

    /// Takes a request for data: in order, and within what was agreed.
    pub(super) fn ready_to_transfer(
        &mut self,
        r2t: &R2t,
        parameters: &Parameters,
    ) -> Result<(), Violation> {
        let Payload::Out(_) = self.payload else {
            return Err(Violation::NothingSuch {
                opcode: Opcode::R2t,
                itt: r2t.itt,
            });
        };
        if r2t.ttt == Ttt::RESERVED {
            return Err(Violation::NoTransferTag(Opcode::R2t));
        }
        same("R2TSN", r2t.r2t_sn.0, self.next_sn.0)?;
        same("Buffer Offset", r2t.buffer_offset, self.transferred)?;
        let length = r2t.desired_length;
        if length == 0 || length > parameters.max_burst_length {
            return Err(Violation::WrongBurst {
                length,
                maximum: parameters.max_burst_length,
            });
        }
        if length > self.length - self.transferred {
            return Err(Violation::Beyond {
                opcode: Opcode::R2t,
                offset: r2t.buffer_offset,
                length,
                expected: self.length,
            });
        }
        let outstanding = self.owed.len() - usize::from(self.owes_unsolicited());
        if outstanding >= parameters.max_outstanding_r2t as usize {
            return Err(Violation::TooManyR2ts {
                maximum: parameters.max_outstanding_r2t,
            });
        }
        self.next_sn = self.next_sn.next();
        self.transferred += length;
        self.owed.push(Sequence {
            ttt: r2t.ttt,
            offset: r2t.buffer_offset,
            left: length,
        });
        Ok(())
    }

    /// Returns whether its data moved as a success with this residual says: all of it, but for what the target says that it did
    /// not transfer. A write whose data is owed still cannot have succeeded.
    #[inline]
    pub(super) fn is_whole(&self, residual: Residual) -> bool {
        let missing = match residual {
            Residual::None | Residual::Overflow(_) => 0,
            Residual::Underflow(count) => count,
        };
        match self.payload {
            Payload::None => true,
            Payload::In(_) | Payload::Out(_) => {
                !self.damaged
                    && !self.owes()
                    && u64::from(self.transferred) + u64::from(missing) == u64::from(self.length)
            }
        }
    }

    /// Tells whether the target may have carried it out.
    pub(super) fn exposure(&self) -> Exposure {
        let moved = match self.payload {
            Payload::Out(_) => self.data_sent || self.length == 0,
            Payload::In(_) | Payload::None => true,
        };
        if self.sent && moved {
            Exposure::Possible
        } else {
            Exposure::Never
        }
    }
}

/// Bytes of a command of `length` bytes that go with it, and those that follow without having been asked for (RFC 7143 sections
/// 13.10, 13.11 and 13.14).
fn unsolicited(length: u32, parameters: &Parameters) -> (u32, u32) {
    let burst = length.min(parameters.first_burst_length);
    let immediate = if parameters.immediate_data {
        burst.min(parameters.peer_max_recv_data_segment_length)
    } else {
        0
    };
    let rest = if parameters.initial_r2t {
        0
    } else {
        burst - immediate
    };
    (immediate, rest)
}
