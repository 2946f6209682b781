//! Rights: which commands a reservation refuses to whom.

use serde::{Deserialize, Serialize};

/// Type of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReservationType {
    /// The holder alone writes.
    WriteExclusive,
    /// The holder alone reads and writes.
    ExclusiveAccess,
    /// Registrants write.
    WriteExclusiveRegistrantsOnly,
    /// Registrants read and write.
    ExclusiveAccessRegistrantsOnly,
    /// Registrants write, and each of them is a holder.
    WriteExclusiveAllRegistrants,
    /// Registrants read and write, and each of them is a holder.
    ExclusiveAccessAllRegistrants,
}

impl ReservationType {
    /// Every type, in the order of NVMe's numbers.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// Name of the type in both protocols' standards.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteExclusive => "Write Exclusive",
            Self::ExclusiveAccess => "Exclusive Access",
            Self::WriteExclusiveRegistrantsOnly => "Write Exclusive, Registrants Only",
            Self::ExclusiveAccessRegistrantsOnly => "Exclusive Access, Registrants Only",
            Self::WriteExclusiveAllRegistrants => "Write Exclusive, All Registrants",
            Self::ExclusiveAccessAllRegistrants => "Exclusive Access, All Registrants",
        }
    }

    /// RTYPE of NVMe (Base 2.0c section 8.19): 1 to 6.
    pub const fn to_nvme(self) -> u8 {
        self as u8 + 1
    }

    /// TYPE of SCSI (SPC-4 section 6.15.3.4): 1, 3, 5, 6, 7, 8.
    pub const fn to_scsi(self) -> u8 {
        match self {
            Self::WriteExclusive => 1,
            Self::ExclusiveAccess => 3,
            Self::WriteExclusiveRegistrantsOnly => 5,
            Self::ExclusiveAccessRegistrantsOnly => 6,
            Self::WriteExclusiveAllRegistrants => 7,
            Self::ExclusiveAccessAllRegistrants => 8,
        }
    }

    /// Reads RTYPE; `None` where the value is reserved.
    pub fn from_nvme(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.to_nvme() == value)
    }

    /// Reads TYPE; `None` where the value is reserved or obsolete.
    pub fn from_scsi(value: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.to_scsi() == value)
    }

    /// Says that each registrant is a holder.
    pub const fn is_all_registrants(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants
        )
    }

    /// Says that registrants have the holder's access to blocks.
    pub const fn admits_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Column of the verdict table.
    const fn column(self) -> u32 {
        match self {
            Self::WriteExclusive => 0,
            Self::ExclusiveAccess => 1,
            Self::WriteExclusiveRegistrantsOnly | Self::WriteExclusiveAllRegistrants => 2,
            Self::ExclusiveAccessRegistrantsOnly | Self::ExclusiveAccessAllRegistrants => 3,
        }
    }
}

impl std::fmt::Display for ReservationType {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Class of a command, as reservations tell commands apart (SPC-4 tables 66 and 67, SBC-3 table 16,
/// NVMe Base 2.0c section 8.19.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// No reservation refuses it: INQUIRY, REPORT LUNS, REQUEST SENSE, Identify.
    Exempt,
    /// RESERVE (6) and (10) alone refuse it: TEST UNIT READY, READ CAPACITY.
    Status,
    /// Reads blocks, or settings of the unit: READ, VERIFY, MODE SENSE, Read, Compare.
    Read,
    /// Changes blocks or settings, or makes them durable: WRITE, UNMAP, SYNCHRONIZE CACHE, Write, Flush.
    Write,
    /// PERSISTENT RESERVE IN, Reservation Report.
    Report,
    /// REGISTER, REGISTER AND IGNORE EXISTING KEY, Reservation Register.
    Register,
    /// RESERVE of PERSISTENT RESERVE OUT, Acquire of Reservation Acquire.
    Reserve,
    /// RELEASE of PERSISTENT RESERVE OUT, Release of Reservation Release.
    Release,
    /// PREEMPT, PREEMPT AND ABORT, and those of Reservation Acquire.
    Preempt,
    /// CLEAR, Clear of Reservation Release.
    Clear,
    /// REGISTER AND MOVE.
    Move,
    /// RESERVE (6) and (10).
    ReserveUnit,
    /// RELEASE (6) and (10).
    ReleaseUnit,
}

impl Access {
    /// Every class.
    pub const ALL: [Self; 13] = [
        Self::Exempt,
        Self::Status,
        Self::Read,
        Self::Write,
        Self::Report,
        Self::Register,
        Self::Reserve,
        Self::Release,
        Self::Preempt,
        Self::Clear,
        Self::Move,
        Self::ReserveUnit,
        Self::ReleaseUnit,
    ];

    /// Row of the verdict table: a bit that is set allows. From the left, in pairs for a stranger and a
    /// registrant: write exclusive, exclusive access, and both for registrants.
    const fn row(self) -> u8 {
        match self {
            Self::Exempt | Self::Status | Self::Report | Self::Register => 0b11_11_11_11,
            Self::Read => 0b11_00_11_01,
            Self::Write => 0b00_00_01_01,
            Self::Release | Self::Preempt | Self::Clear => 0b01_01_01_01,
            Self::Reserve | Self::Move | Self::ReserveUnit | Self::ReleaseUnit => 0,
        }
    }
}

/// Relation of a registrant to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// Not registered.
    Stranger,
    /// Registered, and no holder.
    Registered,
    /// A holder of the reservation, or of the unit.
    Holder,
}

/// What a table says of commands. A reactor keeps a copy, and a [`Standing`] for each that it serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Rights {
    /// Nothing is reserved.
    #[default]
    Free,
    /// A reservation of this type is held.
    Held(ReservationType),
    /// RESERVE (6) or (10) shuts the unit.
    Unit,
}

impl Rights {
    /// Verdict on a command. With the commands of reservations it is the table that decides in the end,
    /// which knows keys: it refuses all that is refused here, and more.
    pub const fn allows(self, access: Access, standing: Standing) -> bool {
        match self {
            Self::Free => true,
            Self::Held(kind) => held(kind, access, standing),
            Self::Unit => unit(access, standing),
        }
    }
}

const fn held(kind: ReservationType, access: Access, standing: Standing) -> bool {
    let of_pair = match standing {
        Standing::Holder => return holder(kind, access),
        Standing::Registered => 0,
        Standing::Stranger => 1,
    };
    let position = 6 - 2 * kind.column() + of_pair;
    access.row() & (1 << position) != 0
}

const fn holder(kind: ReservationType, access: Access) -> bool {
    match access {
        // A reservation that all hold is nobody's to move (SPC-4 section 5.12.8).
        Access::Move => !kind.is_all_registrants(),
        // RESERVE (6) and (10) conflict with any registration (SPC-2 section 5.5.1).
        Access::ReserveUnit | Access::ReleaseUnit => false,
        _ => true,
    }
}

/// Verdict while RESERVE (6) or (10) shuts the unit (SPC-2 section 5.5.1): commands of persistent
/// reservations conflict from everybody, and RELEASE of a stranger does nothing.
const fn unit(access: Access, standing: Standing) -> bool {
    match access {
        Access::Exempt | Access::ReleaseUnit => true,
        Access::Status | Access::Read | Access::Write | Access::ReserveUnit => {
            matches!(standing, Standing::Holder)
        }
        _ => false,
    }
}
