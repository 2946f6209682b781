//! Sizing from what was measured: how many drives a line takes, what a cluster of gateways will do, and published tests beside their own figures.
//!
//! Every answer is a [`sheet::Sheet`]: sections of figures, each with where it comes from (measured, given, published, fitted, assumed, derived) and
//! the rule that made it. What shows or compares plans ([`text`], [`page`], [`diff`]) works from that alone. This crate measures nothing, opens no
//! file, reads no clock and knows no terminal.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod diff;
pub mod drive;
mod matrix;
pub mod network;
pub mod page;
pub mod points;
pub mod published;
pub mod record;
pub mod reproduce;
pub mod scalability;
pub mod sheet;
pub mod text;
pub mod units;
