//! Reservations of one volume, shared by NVMe and SCSI hosts.
//!
//! A [`Table`] holds the registrants of a volume, the reservation, and the unit that RESERVE (6) or
//! (10) shuts. An [`Operation`] yields a [`Change`]: the table as it is to be, and what follows for
//! other hosts. The table that was asked stays as it is, so that a change that cannot be stored is
//! dropped without a trace. [`StoredTable`] is what of it is stored. [`Rights`] is the copy of it that the data path asks for each command.
//!
//! No I/O, no clock, no locks. Waiting for commands of a loser, storing a table and telling hosts
//! are a front end's concern.
//!
//! Sections cited are those of SPC-4 revision 37, SBC-3 revision 36, SPC-2 revision 20 and NVM
//! Express Base 2.0c.
#![forbid(unsafe_code)]

mod change;
mod operation;
mod refused;
mod registrant;
mod report;
mod rights;
mod stored;
mod table;

pub use change::{Change, Notice};
pub use operation::{Operation, Proof};
pub use refused::Refused;
pub use registrant::{Nexus, Registrant};
pub use rights::{Access, ReservationType, Rights, Standing};
pub use stored::{StoredTable, StoredTableError};
pub use table::{REGISTRANTS_MAX, Registration, Reservation, Table};
