//! Configuration to running system: state store, control API, metrics.
#![forbid(unsafe_code)]
