//! What the fuzzers run, as plain functions: ordinary tests run every kept input through them too.
//!
//! Each takes any bytes, and panics when a rule is broken. [`TARGETS`] names them; `fuzz/` has a fuzzer for each, and
//! `docs/fuzzing.md` says how they are used. Nothing here is part of `weir`.

#![forbid(unsafe_code)]

#[cfg(feature = "gateway")]
mod control;
mod conversation;
mod initiator;
mod iscsi;
mod iscsi_conversation;
mod link;
mod nfs;
mod packets;
mod readers;
mod rings;
mod scsi;
mod seeds;
mod text;
mod wire;

#[cfg(feature = "gateway")]
pub use control::{api, configuration, state};
pub use conversation::{conversation, seeds as conversation_seeds};
pub use initiator::initiator;
pub use iscsi::{iscsi_login, iscsi_pdu};
pub use iscsi_conversation::{iscsi_conversation, seeds as iscsi_conversation_seeds};
pub use nfs::nfs;
pub use packets::packets;
pub use rings::rings;
pub use scsi::scsi;
pub use seeds::{Seed, seeds};
pub use text::{label, names, url};
pub use wire::{commands, pdu, ranges, structures};

/// A target: any bytes, and a panic when a rule is broken.
pub type Target = fn(&[u8]);

/// Every target with its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("conversation", conversation),
    ("iscsi_conversation", iscsi_conversation),
    ("initiator", initiator),
    ("pdu", pdu),
    ("commands", commands),
    ("structures", structures),
    ("ranges", ranges),
    ("iscsi_pdu", iscsi_pdu),
    ("iscsi_login", iscsi_login),
    ("scsi", scsi),
    ("nfs", nfs),
    ("packets", packets),
    ("rings", rings),
    ("names", names),
    ("url", url),
    ("label", label),
    #[cfg(feature = "gateway")]
    ("configuration", configuration),
    #[cfg(feature = "gateway")]
    ("state", state),
    #[cfg(feature = "gateway")]
    ("api", api),
];
