//! Ceph RBD images as volumes, through librbd.
//!
//! librados and librbd are loaded at run time ([`Ceph`]), so that one program runs with and without them. [`Images`] makes, lists and
//! removes images; [`RbdHost`] opens them as volumes (`rbd:POOL/IMAGE`), shares clients of a cluster between them, holds each
//! image's lock in the name of this gateway, and makes sure that what timed out cannot land any more before it is answered.
//!
//! It speaks no protocol, and knows nothing of groups of gateways: an image is written by one.

#![deny(unsafe_code)]

mod auto;
mod cluster;
mod error;
mod host;
mod images;
mod lane;
mod looks;
mod moving;
mod options;
mod owner;
mod settings;
mod silence;
mod sizes;
#[allow(unsafe_code)]
mod sys;
mod threads;
mod tuning;
mod usage;
mod volume;
mod watches;

pub use auto::{AutoLimits, Reason};
pub use cluster::{Ceph, ClientReport, Credentials, Libraries};
pub use error::CephError;
pub use host::{Identity, RbdHost, SCHEME};
pub use images::{ImageInfo, Images, NewImage, Snapshot, Trashed};
pub use moving::NotMoved;
pub use options::{Cache, ImageName, Options, Settings, Sharing};
pub use sys::LibraryError;
pub use usage::{BusiestThread, ClientCost, LibrbdTimes, Taken};
pub use volume::{RbdVolume, VolumeReport};
pub use watches::WatchLimits;
