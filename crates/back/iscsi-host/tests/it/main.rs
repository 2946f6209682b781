//! The initiator against the target of this workspace and others, in a simulated world and over the machine's loopback.

mod foreign_target;
mod scene;
mod trouble;
mod units;
