//! Volumes: null, mem, file, stripe, and Guard, which wraps every served one.
#![forbid(unsafe_code)]
