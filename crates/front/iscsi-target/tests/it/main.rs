//! The iSCSI target with a small initiator, in the simulator and over sockets.

mod commands;
mod hostile;
mod initiator;
mod login;
mod reservations;
mod transfers;
