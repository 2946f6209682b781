//! `weir host`.

use std::collections::BTreeSet;

use weir_gateway::api::views::HostView;
use weir_gateway::name::HostName;
use weir_gateway::state::{HostPatch, HostSpec};

use super::{Asked, merged, socket_options};
use crate::cli::HostCommand;
use crate::client::{Failure, segment};
use crate::table::{lines, table, values};

const PATH: &str = "/v1/hosts";

fn path(name: &HostName) -> String {
    format!("{PATH}/{}", segment(name))
}

pub(crate) fn run(asked: &Asked, command: HostCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        HostCommand::List => asked.show(&client.get(PATH)?, list),
        HostCommand::Show { name } => asked.show(&client.get(&path(&name))?, show),
        HostCommand::Add {
            name,
            nqn,
            iqn,
            note,
            socket_options,
        } => {
            let spec = HostSpec {
                nqns: given(nqn),
                iqns: given(iqn),
                note,
                socket_options: socket_options.given(),
            };
            let answer = client.put(&path(&name), &spec)?;
            asked.show_added(&answer, &format!("host {name}"), show)
        }
        HostCommand::Set {
            name,
            nqn,
            iqn,
            note,
            socket_options,
            reset_socket_options: reset,
        } => {
            let (nqns, iqns, options) = (given(nqn), given(iqn), socket_options.given());
            let is_named = nqns.is_some() || iqns.is_some();
            if note.is_none() && options.is_none() && !is_named && !reset {
                let message = "nothing to change was given";
                let hint = "use --note, --nqn, --iqn or a socket option";
                return Err(Failure::new(message).hint(hint));
            }
            let present: HostView = client.get(&path(&name))?.read()?;
            let options = merged(present.socket_options, options, reset);
            let patch = HostPatch {
                nqns,
                iqns,
                note,
                socket_options: Some(options),
            };
            asked.show(&client.patch(&path(&name), &patch)?, show)
        }
        HostCommand::Remove { name, force } => {
            client.delete(&format!("{}?force={force}", path(&name)))?;
            Ok(asked.show_done(&format!("removed host {name}")))
        }
    }
}

/// What was given several times; none where it was not.
fn given<T: Ord>(values: Vec<T>) -> Option<BTreeSet<T>> {
    (!values.is_empty()).then(|| values.into_iter().collect())
}

fn list(views: Vec<HostView>) -> String {
    let row = |view: &HostView| {
        [
            view.name.to_string(),
            view.subsystems.len().to_string(),
            view.targets.len().to_string(),
            view.note.clone(),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["HOST", "SUBSYSTEMS", "TARGETS", "NOTE"], &rows)
}

fn show(view: HostView) -> String {
    values(&[
        ("name", view.name.to_string()),
        ("nqn", lines(&view.nqns)),
        ("iqn", lines(&view.iqns)),
        ("note", view.note),
        ("subsystems", lines(&view.subsystems)),
        ("targets", lines(&view.targets)),
        ("socket options", socket_options(&view.socket_options)),
    ])
}
