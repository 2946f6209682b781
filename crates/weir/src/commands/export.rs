//! `weir export`.

use weir_gateway::api::views::ExportView;
use weir_gateway::name::ExportPath;
use weir_gateway::state::{ExportPatch, ExportSpec, VOLUMES_SOURCE};

use super::Asked;
use crate::cli::ExportCommand;
use crate::client::{Failure, segment};
use crate::table::{lines, table, values};

const PATH: &str = "/v1/nfs/exports";

fn path(export: &ExportPath) -> String {
    format!("{PATH}/{}", segment(export))
}

pub(crate) fn run(asked: &Asked, command: ExportCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        ExportCommand::List => asked.show(&client.get(PATH)?, list),
        ExportCommand::Show { path: export } => asked.show(&client.get(&path(&export))?, show),
        ExportCommand::Add {
            path: export,
            source,
            read_only,
            allow,
            allow_any_host,
        } => {
            let spec = ExportSpec {
                source,
                read_only: read_only.then_some(true),
                allow_any_host: allow_any_host.then_some(true),
                allowed_addresses: (!allow.is_empty()).then(|| allow.into_iter().collect()),
            };
            let answer = client.put(&path(&export), &spec)?;
            asked.show_added(&answer, &format!("export {export}"), show)
        }
        ExportCommand::Set {
            path: export,
            read_only,
            allow,
            allow_any_host,
        } => {
            let patch = ExportPatch {
                read_only,
                allow_any_host,
                allowed_addresses: (!allow.is_empty()).then(|| allow.into_iter().collect()),
            };
            if patch == ExportPatch::default() {
                let message = "nothing to change was given";
                let hint = "use --read-only, --allow or --allow-any-host";
                return Err(Failure::new(message).hint(hint));
            }
            asked.show(&client.patch(&path(&export), &patch)?, show)
        }
        ExportCommand::Remove { path: export } => {
            client.delete(&path(&export))?;
            Ok(asked.show_done(&format!("removed export {export}; what it served stays")))
        }
    }
}

fn access(view: &ExportView) -> &'static str {
    match view.read_only {
        true => "read only",
        false => "read and write",
    }
}

fn state(view: &ExportView) -> String {
    view.problem.clone().unwrap_or_else(|| "served".to_owned())
}

fn list(views: Vec<ExportView>) -> String {
    let row = |view: &ExportView| {
        let clients = match view.allow_any_host {
            true => "any".to_owned(),
            false => view.allowed_addresses.len().to_string(),
        };
        [
            view.path.to_string(),
            view.source.clone(),
            access(view).to_owned(),
            clients,
            state(view),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["EXPORT", "SOURCE", "ACCESS", "CLIENTS", "STATE"], &rows)
}

fn show(view: ExportView) -> String {
    let clients = match view.allow_any_host {
        true => "any".to_owned(),
        false => lines(&view.allowed_addresses),
    };
    let files: Vec<_> = view.files.iter().map(|file| &file.volume).collect();
    let files = match &view.source[..] {
        VOLUMES_SOURCE if files.is_empty() => {
            "none: `weir file add` makes volumes files".to_owned()
        }
        VOLUMES_SOURCE => lines(files),
        _ => "those of the directory".to_owned(),
    };
    values(&[
        ("path", view.path.to_string()),
        ("source", view.source.clone()),
        ("UUID", view.uuid.to_string()),
        ("access", access(&view).to_owned()),
        ("clients", clients),
        ("files", files),
        ("state", state(&view)),
    ])
}
