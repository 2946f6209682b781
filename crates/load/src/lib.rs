//! Load, copy and verification on any volume.
#![forbid(unsafe_code)]
