//! Measures Weir against the machine's limit and against a peer, at the command line.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use weir_limit::speed::{self, options::Options};

/// Nothing could be measured.
const NOTHING: u8 = 2;

fn main() -> ExitCode {
    match speed::run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-speed: {error:#}");
            ExitCode::from(NOTHING)
        }
    }
}
