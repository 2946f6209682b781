//! Operations: what hosts ask of a table, in the words of neither protocol.

use crate::registrant::Nexus;
use crate::rights::ReservationType;

/// Key with which a registrant shows that it is the one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// RESERVATION KEY, or CRKEY; zero is the key of one that has not registered.
    Key(u64),
    /// REGISTER AND IGNORE EXISTING KEY, or IEKEY: no key is looked at.
    Ignored,
}

/// An operation of a host. Keys are numbers: big-endian in SCSI, little-endian in NVMe.
///
/// Where there is `persistence`, it is APTPL or CPTPL: `None` leaves the volume's bit as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Registers a key (NVMe: RREGA 000b). One that is registered must give its key again.
    Register {
        /// NRKEY.
        key: u64,
        /// CPTPL.
        persistence: Option<bool>,
    },
    /// Ends the registration (NVMe: RREGA 001b).
    Unregister {
        /// CRKEY and IEKEY.
        proof: Proof,
        /// CPTPL.
        persistence: Option<bool>,
    },
    /// Changes the key of the registration (NVMe: RREGA 010b). With IEKEY it registers one that has not.
    Replace {
        /// CRKEY and IEKEY.
        proof: Proof,
        /// NRKEY.
        key: u64,
        /// CPTPL.
        persistence: Option<bool>,
    },
    /// Registers, changes the key, or with key zero ends the registration (SCSI: REGISTER and REGISTER AND
    /// IGNORE EXISTING KEY; SPC-4 section 5.12.7).
    Enroll {
        /// RESERVATION KEY.
        proof: Proof,
        /// SERVICE ACTION RESERVATION KEY.
        key: u64,
        /// APTPL.
        persistence: Option<bool>,
    },
    /// Acquires the reservation.
    Reserve {
        /// Key of the registrant.
        key: u64,
        /// Type of the reservation; `None`: a reserved value.
        kind: Option<ReservationType>,
    },
    /// Releases the reservation. Of a registrant that is no holder it does nothing.
    Release {
        /// Key of the registrant.
        key: u64,
        /// Type of the reservation that is held; `None`: a reserved value.
        kind: Option<ReservationType>,
    },
    /// Ends the reservation and every registration.
    Clear {
        /// Key of the registrant.
        key: u64,
    },
    /// Ends registrations, and takes over the reservation where it was theirs.
    Preempt {
        /// Key of the registrant.
        key: u64,
        /// Key of the registrations that end, of both protocols. Zero, where all registrants hold the
        /// reservation: all others.
        victims: u64,
        /// Type of the reservation if it is taken over, otherwise not looked at; `None`: a reserved value.
        kind: Option<ReservationType>,
        /// Commands of those whose registrations end are aborted.
        aborts: bool,
    },
    /// Hands the reservation to another nexus, which is registered with it (SCSI: REGISTER AND MOVE; SPC-4
    /// section 5.12.8).
    Move {
        /// RESERVATION KEY.
        key: u64,
        /// SERVICE ACTION RESERVATION KEY: that of the other nexus.
        other_key: u64,
        /// The other nexus.
        other: Nexus,
        /// UNREG: the registration of the one that asks ends.
        unregisters: bool,
        /// APTPL.
        persistence: Option<bool>,
    },
    /// Says whether registrations and reservation outlast a loss of power (NVMe: the feature Reservation
    /// Persistence). Anybody may.
    SetPersistence(bool),
    /// Shuts the unit for all others (SCSI: RESERVE (6) and (10)).
    ReserveUnit,
    /// Opens the unit (SCSI: RELEASE (6) and (10)). Of one that has not shut it, it does nothing.
    ReleaseUnit,
    /// Ends what goes with the I_T nexus: its RESERVE (6) or (10).
    LoseNexus,
    /// Ends what a reset of the logical unit ends: everybody's RESERVE (6) or (10).
    ResetUnit,
}
