//! Integration tests of weir-nvme-target.

mod commands;
mod common;
mod faults;
mod latency;
mod limits;
mod paths;
mod peers;
mod reservations;
mod rights;
mod serve;
mod slow;
mod sockets;
mod volumes;
