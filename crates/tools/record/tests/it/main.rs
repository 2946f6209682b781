//! Recordings on volumes in memory, and in a simulated world whose power fails.

mod cuts;
mod rings;
mod scene;
mod streams;
