//! NVMe and NVMe-oF wire types, TCP framing and digests.
#![forbid(unsafe_code)]
