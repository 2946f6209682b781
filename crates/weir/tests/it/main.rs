//! Integration tests of weir.

mod agents;
mod agents_job;
mod agents_verify;
mod bench;
mod both_protocols;
mod common;
mod control;
mod datagrams;
mod dependencies;
mod drawn;
mod drive;
mod gateway;
mod images;
mod interfaces;
mod iscsi;
mod laboratory;
mod nfs;
mod panics;
mod plan;
mod privileges;
mod record;
mod report;
mod serve;
mod tidy;
mod torture;
mod verify;
