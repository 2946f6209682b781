//! The real machine: Linux with io_uring.
