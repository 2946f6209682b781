//! `weir listener`.

use weir_gateway::api::views::{ListenerStatus, ListenerView};
use weir_gateway::name::ListenerAddress;
use weir_gateway::state::{ListenerKind, ListenerPatch, ListenerSpec, ProtocolName};

use super::{Asked, merged, socket_options};
use crate::cli::{ListenerCommand, listener_address};
use crate::client::{Failure, segment};
use crate::table::{lines, table, values};

const PATH: &str = "/v1/listeners";

fn path(address: &ListenerAddress) -> String {
    format!("{PATH}/{}", segment(address))
}

pub(crate) fn run(asked: &Asked, command: ListenerCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        ListenerCommand::List => asked.show(&client.get(PATH)?, list),
        ListenerCommand::Show { address } => asked.show(&client.get(&path(&address))?, show),
        ListenerCommand::Add {
            address,
            protocol,
            discovery,
            advertise,
            socket_options,
        } => {
            let address = listener_address(&address, protocol.unwrap_or_default(), discovery)
                .map_err(|error| Failure::new(error.to_string()))?;
            let kind = discovery.then_some(ListenerKind::Discovery);
            let spec = ListenerSpec {
                protocol,
                kind,
                advertise,
                socket_options: socket_options.given(),
            };
            let answer = client.put(&path(&address), &spec)?;
            asked.show_added(&answer, &format!("listener {address}"), show)
        }
        ListenerCommand::Set {
            address,
            socket_options,
            reset_socket_options: reset,
        } => {
            let given = socket_options.given();
            if given.is_none() && !reset {
                let message = "nothing to change was given";
                return Err(Failure::new(message).hint("use a socket option: see --help"));
            }
            let present: ListenerView = client.get(&path(&address))?.read()?;
            let options = merged(present.socket_options, given, reset);
            let patch = ListenerPatch {
                socket_options: Some(options),
            };
            asked.show(&client.patch(&path(&address), &patch)?, show)
        }
        ListenerCommand::Remove { address } => {
            client.delete(&path(&address))?;
            Ok(asked.show_done(&format!("removed listener {address}")))
        }
        ListenerCommand::Retry { address } => {
            let nothing = serde_json::json!({});
            asked.show(
                &client.post(&format!("{}/retry", path(&address)), &nothing)?,
                show,
            )
        }
    }
}

fn status(view: &ListenerView) -> String {
    match view.status {
        ListenerStatus::Listening if view.inherited => "listening (inherited)",
        ListenerStatus::Listening => "listening",
        ListenerStatus::Failed => "failed",
    }
    .to_owned()
}

/// What hosts find there.
fn serves(view: &ListenerView) -> String {
    match (view.protocol, view.kind) {
        (ProtocolName::Nvme, Some(kind)) => kind.to_string(),
        (protocol, _) => protocol.to_string(),
    }
}

fn list(views: Vec<ListenerView>) -> String {
    let row = |view: &ListenerView| {
        let bound: Vec<_> = view.bound.iter().map(ToString::to_string).collect();
        [
            view.address.clone(),
            serves(view),
            status(view),
            bound.join(", "),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    let mut text = table(["ADDRESS", "SERVES", "STATUS", "BOUND"], &rows);
    for reason in views.iter().filter_map(|view| view.reason.as_ref()) {
        text.push_str(&format!("! {reason}\n"));
    }
    text
}

fn show(view: ListenerView) -> String {
    let mut pairs = vec![
        ("address", view.address.clone()),
        ("protocol", view.protocol.to_string()),
        ("serves", serves(&view)),
        ("status", status(&view)),
    ];
    if let Some(reason) = &view.reason {
        pairs.push(("reason", reason.clone()));
    }
    pairs.push(("bound", lines(&view.bound)));
    if let Some(advertise) = &view.advertise {
        pairs.push(("advertised as", advertise.to_string()));
    }
    pairs.push(("socket options", socket_options(&view.socket_options)));
    values(&pairs)
}
