//! Integration tests of weir-volume.

mod concat;
mod contract;
mod file;
mod guard;
mod holds;
mod limits;
mod locks;
mod null;
mod stripe;
