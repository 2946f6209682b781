//! The client against the server of this workspace and others, in a simulated world and over the machine's loopback.

mod files;
mod foreign_server;
mod scene;
mod trouble;
mod volumes;
