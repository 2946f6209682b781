//! `weir host`.

use weir_gateway::api::views::HostView;
use weir_gateway::name::Nqn;
use weir_gateway::state::{HostPatch, HostSpec};

use super::{Asked, merged, socket_options};
use crate::cli::HostCommand;
use crate::client::{Failure, segment};
use crate::table::{lines, table, values};

const PATH: &str = "/v1/hosts";

fn path(nqn: &Nqn) -> String {
    format!("{PATH}/{}", segment(nqn))
}

pub(crate) fn run(asked: &Asked, command: HostCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        HostCommand::List => asked.show(&client.get(PATH)?, list),
        HostCommand::Show { nqn } => asked.show(&client.get(&path(&nqn))?, show),
        HostCommand::Add {
            nqn,
            note,
            socket_options,
        } => {
            let spec = HostSpec {
                note,
                socket_options: socket_options.given(),
            };
            let answer = client.put(&path(&nqn), &spec)?;
            asked.show_added(&answer, &format!("host {nqn}"), show)
        }
        HostCommand::Set {
            nqn,
            note,
            socket_options,
            reset_socket_options: reset,
        } => {
            let given = socket_options.given();
            if note.is_none() && given.is_none() && !reset {
                let message = "nothing to change was given";
                return Err(Failure::new(message).hint("use --note or a socket option"));
            }
            let present: HostView = client.get(&path(&nqn))?.read()?;
            let options = merged(present.socket_options, given, reset);
            let patch = HostPatch {
                note,
                socket_options: Some(options),
            };
            asked.show(&client.patch(&path(&nqn), &patch)?, show)
        }
        HostCommand::Remove { nqn, force } => {
            client.delete(&format!("{}?force={force}", path(&nqn)))?;
            Ok(asked.show_done(&format!("removed host {nqn}")))
        }
    }
}

fn list(views: Vec<HostView>) -> String {
    let row = |view: &HostView| {
        [
            view.nqn.to_string(),
            view.subsystems.len().to_string(),
            view.note.clone(),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NQN", "SUBSYSTEMS", "NOTE"], &rows)
}

fn show(view: HostView) -> String {
    values(&[
        ("nqn", view.nqn.to_string()),
        ("note", view.note),
        ("subsystems", lines(&view.subsystems)),
        ("socket options", socket_options(&view.socket_options)),
    ])
}
