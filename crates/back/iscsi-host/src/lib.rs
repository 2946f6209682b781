//! The iSCSI initiator, as a volume.

#![forbid(unsafe_code)]
