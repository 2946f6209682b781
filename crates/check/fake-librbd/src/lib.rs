//! A library with the C interface of librados and librbd that keeps images in memory and fails as it is told, for tests.
//!
//! It is loaded as the real ones are, by path. A cluster is named by `mon_host` in the configuration file, and lives as long as the
//! process. Each client has a thread that ends its operations. [`fake_librbd_command`] tells a cluster what to do wrong: how long
//! operations take, which of them hang or fail, whom it refuses; so do the lines of the file that `fake commands` names in the configuration. It knows no network, no placement and no replicas.

mod c;
mod cluster;

pub use c::*;
