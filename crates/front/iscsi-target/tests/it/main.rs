//! The iSCSI target with a small initiator, in the simulator and over sockets.

mod initiator;
mod login;
