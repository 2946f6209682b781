//! The `weir` command: the gateway, its control, and the tools.
//!
//! Exit codes: 0 all is done; 1 it failed, with the reason and the way out on standard error; 2 the
//! command line is wrong.
#![forbid(unsafe_code)]

mod cli;
mod client;
mod commands;
mod serve;
mod table;
mod tools;
mod volumes;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::client::{Client, Failure};

fn main() -> ExitCode {
    let Cli { global, command } = Cli::parse();
    let command = match command {
        Command::Discover(arguments) => {
            return finish(tools::discover::run(arguments, global.json));
        }
        Command::Bench(arguments) => return finish(tools::bench::run(arguments, global.json)),
        Command::Curve(arguments) => return finish(tools::curve::run(arguments, global.json)),
        Command::Compare(arguments) => {
            return finish(tools::compare::run(arguments, global.json));
        }
        Command::Drive(arguments) => return finish(tools::drive::run(arguments, global.json)),
        Command::Agent(arguments) => return finish(tools::agent::run(arguments, global.json)),
        Command::Record(arguments) => return finish(tools::record::run(*arguments, global.json)),
        Command::Copy(arguments) => return finish(tools::copy::run(arguments, global.json)),
        Command::Verify(arguments) => return finish(tools::verify::run(arguments, global.json)),
        Command::Report(arguments) => {
            return finish(tools::report::run(&arguments, global.json));
        }
        Command::Plan(arguments) => return finish(tools::plan::run(&arguments, global.json)),
        Command::Reproduce(arguments) => {
            return finish(tools::reproduce::run(&arguments, global.json));
        }
        Command::Torture(arguments) => {
            return finish(tools::torture::run(&arguments, global.json));
        }
        command => command,
    };
    let asked = commands::Asked {
        json: global.json,
        client: Client::new(global.socket.clone()),
    };
    let result = match command {
        Command::Serve(arguments) => serve::serve(&arguments, global.socket, global.json),
        Command::Status => commands::status::run(&asked),
        Command::Volume(command) => commands::volume::run(&asked, command),
        Command::Image(arguments) => commands::image::run(&asked, arguments),
        Command::Subsystem(command) => commands::subsystem::run(&asked, command),
        Command::Namespace(command) => commands::namespace::run(&asked, command),
        Command::Export(command) => commands::export::run(&asked, command),
        Command::Target(command) => commands::target::run(&asked, command),
        Command::Lun(command) => commands::lun::run(&asked, command),
        Command::File(command) => commands::file::run(&asked, command),
        Command::Session(command) => commands::session::run(&asked, command),
        Command::Host(command) => commands::host::run(&asked, command),
        Command::Listener(command) => commands::listener::run(&asked, command),
        Command::Connection(command) => commands::connection::run(&asked, command),
        Command::Latency(arguments) => commands::latency::run(&asked, arguments),
        Command::Reactor(command) => commands::reactor::run(&asked, command),
        Command::Discover(_)
        | Command::Bench(_)
        | Command::Curve(_)
        | Command::Compare(_)
        | Command::Drive(_)
        | Command::Agent(_)
        | Command::Copy(_)
        | Command::Record(_)
        | Command::Verify(_)
        | Command::Report(_)
        | Command::Plan(_)
        | Command::Reproduce(_)
        | Command::Torture(_) => {
            unreachable!("the tools ask no gateway and have run already")
        }
    };
    match result.and_then(|text| print(&text)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { message, hint }) => {
            eprintln!("error: {message}");
            if let Some(hint) = hint {
                eprintln!("  hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Ends a tool: with its own exit code, or with its error in words.
fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!(
            "error: {}",
            weir_lab::secret::without_in_text(&in_words(&error))
        );
        ExitCode::FAILURE
    })
}

/// An error and what it came from, each once: some say themselves what they came from.
fn in_words(error: &anyhow::Error) -> String {
    let (mut text, mut last) = (String::new(), String::new());
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text.clone_from(&cause);
        } else if !last.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        last = cause;
    }
    text
}

/// Writes to standard output. A reader that has gone, as `head` does, is no failure.
fn print(text: &str) -> Result<(), Failure> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write the answer: {error}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[derive(Debug, thiserror::Error)]
    enum Wrong {
        #[error("no such file")]
        First,
        #[error("a cannot be opened: {source}")]
        Opening { source: Box<Wrong> },
        #[error("a was not read")]
        Reading { source: Box<Wrong> },
    }

    #[test]
    fn what_an_error_came_from_is_said_once() {
        let opening = || Wrong::Opening {
            source: Box::new(Wrong::First),
        };
        let said = |error: Wrong| in_words(&anyhow::Error::new(error).context("it failed"));
        assert_eq!(said(Wrong::First), "it failed: no such file");
        assert_eq!(
            said(opening()),
            "it failed: a cannot be opened: no such file"
        );
        let source = Box::new(opening());
        assert_eq!(
            said(Wrong::Reading { source }),
            "it failed: a was not read: a cannot be opened: no such file"
        );
    }
}
