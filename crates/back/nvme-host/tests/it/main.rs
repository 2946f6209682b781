//! Integration tests of weir-nvme-host.

mod foreign_target;
mod scripted;
mod support;
mod two_weirs;
