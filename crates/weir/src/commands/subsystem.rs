//! `weir subsystem`.

use weir_gateway::api::views::{NamespaceView, SubsystemView};
use weir_gateway::name::{HostName, Nqn};
use weir_gateway::state::{SubsystemPatch, SubsystemSpec};

use super::Asked;
use crate::cli::SubsystemCommand;
use crate::client::{Failure, segment};
use crate::table::{lines, table, values};

const PATH: &str = "/v1/subsystems";

fn path(nqn: &Nqn) -> String {
    format!("{PATH}/{}", segment(nqn))
}

fn host_path(nqn: &Nqn, host: &HostName) -> String {
    format!("{}/hosts/{}", path(nqn), segment(host))
}

pub(crate) fn run(asked: &Asked, command: SubsystemCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        SubsystemCommand::List => asked.show(&client.get(PATH)?, list),
        SubsystemCommand::Show { nqn } => asked.show(&client.get(&path(&nqn))?, show),
        SubsystemCommand::Add {
            nqn,
            serial,
            model,
            allow_any_host,
            controller_ids,
        } => {
            let allow_any_host = allow_any_host.then_some(true);
            let spec = SubsystemSpec {
                serial,
                model,
                allow_any_host,
                controller_ids,
            };
            let answer = client.put(&path(&nqn), &spec)?;
            asked.show_added(&answer, &format!("subsystem {nqn}"), show)
        }
        SubsystemCommand::Remove { nqn, force } => {
            client.delete(&format!("{}?force={force}", path(&nqn)))?;
            Ok(asked.show_done(&format!("removed subsystem {nqn}")))
        }
        SubsystemCommand::AllowHost { nqn, host } => {
            let answer = client.put(&host_path(&nqn, &host), &serde_json::json!({}))?;
            asked.show(&answer, show)
        }
        SubsystemCommand::DisallowHost { nqn, host } => {
            client.delete(&host_path(&nqn, &host))?;
            Ok(asked.show_done(&format!("host {host} may not connect to {nqn} any more")))
        }
        SubsystemCommand::AllowAnyHost { nqn, switch } => {
            let patch = SubsystemPatch {
                allow_any_host: Some(switch),
            };
            asked.show(&client.patch(&path(&nqn), &patch)?, show)
        }
    }
}

fn list(views: Vec<SubsystemView>) -> String {
    let row = |view: &SubsystemView| {
        let hosts = match view.allow_any_host {
            true => "any".to_owned(),
            false => view.allowed_hosts.len().to_string(),
        };
        let namespaces = view.namespaces.len().to_string();
        [
            view.nqn.to_string(),
            view.serial.to_string(),
            hosts,
            namespaces,
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["NQN", "SERIAL", "HOSTS", "NAMESPACES"], &rows)
}

fn show(view: SubsystemView) -> String {
    let hosts = match view.allow_any_host {
        true => "any".to_owned(),
        false => lines(&view.allowed_hosts),
    };
    let namespace = |view: &NamespaceView| {
        let state = if view.online { "online" } else { "offline" };
        format!("{} {} {state}", view.nsid, view.volume)
    };
    values(&[
        ("nqn", view.nqn.to_string()),
        ("serial", view.serial.to_string()),
        ("model", view.model.to_string()),
        ("hosts", hosts),
        (
            "controller IDs",
            format!("{}-{}", view.controller_ids.min, view.controller_ids.max),
        ),
        ("namespaces", lines(view.namespaces.iter().map(namespace))),
    ])
}
