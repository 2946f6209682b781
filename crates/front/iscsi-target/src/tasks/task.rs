//! One SCSI command of a session, and what is to be sent because of commands.

use weir_front::{AtVolume, Slot};
use weir_iscsi::pdu::{
    BasicHeader, Itt, LogoutResponseCode, RejectReason, Residual, TaskAttribute, TaskResponse, Ttt,
};
use weir_memory::{Segment, Segments, View, Views, views_len};
use weir_scsi::sense::{Sense, Status};

use crate::served::Lun;
use crate::tasks::device::Work;

/// Index of a task's slot.
pub(crate) type SlotIndex = u16;

/// How far a task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Free,
    /// It stands behind an ordered one, or is one and stands behind others. Its unsolicited data may come meanwhile.
    Barred,
    /// It waits for room: for what it reads, or for the rest of the data that it is to be sent.
    WaitsForRoom,
    /// Its data comes.
    Filling,
    /// The volume works for it.
    Running,
    /// Its answer is known. What the initiator sends unasked is not all here yet.
    Swallowing,
    /// It was aborted, and has no answer: the volume still has requests of it.
    Aborted,
}

/// The place of the data that a command brings.
#[derive(Default)]
pub(crate) enum Incoming {
    /// Nowhere: there is none, or it is of no use.
    #[default]
    Nowhere,
    /// Where it was received: all of it is there.
    AsReceived(Views),
    /// Here.
    Landing(Segments),
}

impl Incoming {
    pub(crate) fn length(&self) -> usize {
        match self {
            Incoming::Nowhere => 0,
            Incoming::AsReceived(views) => views_len(views),
            Incoming::Landing(segments) => weir_memory::segments_len(segments),
        }
    }

    /// Takes the data out.
    pub(crate) fn take(&mut self) -> Views {
        match std::mem::take(self) {
            Incoming::Nowhere => Views::new(),
            Incoming::AsReceived(views) => views,
            Incoming::Landing(segments) => segments.into_iter().map(Segment::freeze).collect(),
        }
    }
}

/// What a command is answered.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    pub(crate) sense: Option<Box<Sense>>,
    pub(crate) data: Views,
    pub(crate) data_bytes: u32,
}

impl Outcome {
    pub(crate) fn good() -> Self {
        Outcome {
            status: Status::Good,
            sense: None,
            data: Views::new(),
            data_bytes: 0,
        }
    }

    pub(crate) fn data(data: Views, data_bytes: u32) -> Self {
        Outcome {
            data,
            data_bytes,
            ..Outcome::good()
        }
    }

    pub(crate) fn status(status: Status) -> Self {
        Outcome {
            status,
            ..Outcome::good()
        }
    }

    /// The reservations of the logical unit do not let the initiator do it.
    pub(crate) fn conflict() -> Self {
        Outcome::status(Status::ReservationConflict)
    }

    pub(crate) fn check(sense: Sense) -> Self {
        Outcome {
            status: Status::CheckCondition,
            sense: Some(Box::new(sense)),
            ..Outcome::good()
        }
    }
}

impl From<Sense> for Outcome {
    fn from(sense: Sense) -> Self {
        Outcome::check(sense)
    }
}

/// A slot for one SCSI command.
pub(crate) struct Task {
    pub(crate) at: AtVolume<Lun>,
    pub(crate) phase: Phase,
    pub(crate) itt: Itt,
    /// The logical unit as the initiator wrote it.
    pub(crate) lun: u64,
    /// Its number. None: no number that a logical unit can have.
    pub(crate) number: Option<u16>,
    pub(crate) attribute: TaskAttribute,
    /// It came beside the window.
    pub(crate) immediate: bool,
    pub(crate) cdb: [u8; 16],
    /// Which command of the session it is.
    pub(crate) order: u64,
    /// Bytes that the initiator expects to be transferred.
    pub(crate) expected: u32,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) work: Work,
    /// Bytes of data that the command says it brings.
    pub(crate) brings: u32,
    /// Bytes of data that it waits for.
    pub(crate) wanted: u32,
    /// Bytes that have come, in order, those included that are of no use.
    pub(crate) received: u32,
    pub(crate) incoming: Incoming,
    /// More is to come that was not asked for.
    pub(crate) is_unsolicited: bool,
    /// Bytes of it that may come.
    pub(crate) unsolicited_max: u32,
    /// Its data was damaged on its way.
    pub(crate) is_damaged: bool,
    /// Up to which byte data was asked for.
    pub(crate) asked: u32,
    /// R2Ts so far, and those whose data has not come.
    pub(crate) r2ts: u32,
    pub(crate) outstanding: u16,
    /// Where the data of the oldest of these ends.
    pub(crate) sequence_end: u32,
    /// Bytes that it has in the session's room.
    pub(crate) held: u32,
    /// Those of them that are set aside there, until it has room for all.
    pub(crate) aside: u32,
    /// What it is answered when all that comes unasked is here.
    pub(crate) outcome: Option<Outcome>,
    /// How often the slot was used before.
    pub(crate) uses: u16,
}

impl Default for Task {
    fn default() -> Self {
        Task {
            at: AtVolume::default(),
            phase: Phase::Free,
            itt: Itt::RESERVED,
            lun: 0,
            number: None,
            attribute: TaskAttribute::Simple,
            immediate: false,
            cdb: [0; 16],
            order: 0,
            expected: 0,
            reads: false,
            writes: false,
            work: Work::None,
            brings: 0,
            wanted: 0,
            received: 0,
            incoming: Incoming::Nowhere,
            is_unsolicited: false,
            unsolicited_max: 0,
            is_damaged: false,
            asked: 0,
            r2ts: 0,
            outstanding: 0,
            sequence_end: 0,
            held: 0,
            aside: 0,
            outcome: None,
            uses: 0,
        }
    }
}

impl Slot for Task {
    type Export = Lun;

    #[inline]
    fn at_volume(&self) -> &AtVolume<Lun> {
        &self.at
    }

    #[inline]
    fn at_volume_mut(&mut self) -> &mut AtVolume<Lun> {
        &mut self.at
    }
}

impl Task {
    /// The tag under which it asks for data.
    pub(crate) fn transfer_tag(&self, slot: SlotIndex) -> Ttt {
        Ttt(u32::from(self.uses & 0x7fff) << 16 | u32::from(slot))
    }

    /// Tells whether the initiator owes it data that was asked for.
    pub(crate) fn is_owed(&self) -> bool {
        self.phase == Phase::Filling && self.outstanding > 0
    }
}

/// Which slot a transfer tag names.
pub(crate) fn slot_of(tag: Ttt) -> SlotIndex {
    tag.0 as SlotIndex
}

/// What is to be sent.
pub(crate) enum Answer {
    /// The end of a command. Its slot is free again.
    Command {
        itt: Itt,
        status: Status,
        sense: Option<Box<Sense>>,
        residual: Residual,
        data: Views,
        /// Bytes of `data`. They are in the session's room until they have left.
        data_bytes: u32,
        /// R2Ts that the command had.
        r2ts: u32,
    },
    /// Data is asked for.
    R2t {
        itt: Itt,
        tag: Ttt,
        lun: u64,
        number: u32,
        offset: u32,
        length: u32,
    },
    /// An answer to a ping, with what came with it.
    NopIn { itt: Itt, data: View },
    /// A ping.
    Ping,
    /// The end of a task management function.
    Management { itt: Itt, response: TaskResponse },
    /// An answer to a text request: as much as fits.
    Text {
        itt: Itt,
        tag: Ttt,
        data: View,
        is_final: bool,
        /// The rest is to be asked for.
        continues: bool,
    },
    /// The answer to a logout.
    Logout {
        itt: Itt,
        response: LogoutResponseCode,
    },
    /// A PDU is refused.
    Reject {
        reason: RejectReason,
        header: Box<BasicHeader>,
    },
    /// The initiator is asked to log out.
    AskForLogout,
}
