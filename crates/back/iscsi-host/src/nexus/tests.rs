//! Tests of the nexus against a scripted target.

mod hostile;
mod login;
mod others;
mod reads;
mod target;
mod writes;
