//! Configuration to running system: the state store, the control API, metrics and logs.
//!
//! - [`config`]: what is fixed at start, from a TOML file.
//! - [`state`]: what changes live, as a value with pure changes; [`store`] keeps it over restarts.
//! - [`engine`]: what the control plane needs of the data path.
//! - [`control`]: carries a change through validation, opening, storing and applying, in this order.
//! - [`kinds`]: the kinds of volume, for the command line too.
//! - [`privileges`]: which user it is.
//! - [`panics`]: a broken invariant ends one connection or the process.
//! - [`api`]: the HTTP+JSON face of it on a Unix socket; [`metrics`]: its Prometheus text.
//!
//! Nothing here runs on the data path: it is one thread beside the reactors.
#![forbid(unsafe_code)]

pub mod api;
pub mod config;
pub mod control;
mod digits;
pub mod engine;
pub mod inherited;
pub mod kinds;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod name;
pub mod panics;
pub mod privileges;
pub mod serve;
pub mod state;
pub mod store;
