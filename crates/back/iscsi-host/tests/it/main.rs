//! The initiator against the target of this workspace, in a simulated world and over the machine's loopback.

mod scene;
mod trouble;
mod units;
