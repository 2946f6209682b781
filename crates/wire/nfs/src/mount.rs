//! The MOUNT protocol, version 3, by which clients of version 3 come to their first handle (RFC 1813, appendix I).

use weir_open_enum::open_enum;

/// The number of the program.
pub const PROGRAM: u32 = 100_005;
/// The version.
pub const VERSION: u32 = 3;
/// Bytes of a path at most (MNTPATHLEN).
pub const PATH_BYTES_MAX: u32 = 1024;

open_enum! {
    /// Number of a procedure.
    pub enum Procedure: u32 {
        /// Does nothing.
        Null = 0 => "NULL",
        /// Yields the handle of a path.
        Mnt = 1 => "MNT",
        /// Lists what is mounted.
        Dump = 2 => "DUMP",
        /// Says that something is mounted no more.
        Umnt = 3 => "UMNT",
        /// Says that nothing is.
        Umntall = 4 => "UMNTALL",
        /// Lists exports.
        Export = 5 => "EXPORT",
    }
}
