//! The NFS server over sockets, with a small client of its own.
//!
//! A machine on which the process may not open files by their handles (CAP_DAC_READ_SEARCH) skips what needs it.

mod client;
mod files;
mod hostile;
mod ranges;
mod scene;
mod sessions;
mod states;
mod version3;
mod volumes;
