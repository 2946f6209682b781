//! `weir file`.

use weir_block::size::Size;
use weir_gateway::api::views::{ExportView, FileView};
use weir_gateway::name::ExportPath;
use weir_gateway::state::FileSpec;

use super::Asked;
use super::namespace::{access, limits, qos, status};
use super::status::throttled_text;
use crate::cli::FileCommand;
use crate::client::{Failure, segment};
use crate::table::{or_dash, table, values, yes};

fn path(export: &ExportPath) -> String {
    format!("/v1/nfs/exports/{}/files", segment(export))
}

pub(crate) fn run(asked: &Asked, command: FileCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        FileCommand::List { path: Some(export) } => asked.show(&client.get(&path(&export))?, list),
        FileCommand::List { path: None } => {
            asked.show_members("/v1/nfs/exports", |view: ExportView| view.files, list)
        }
        FileCommand::Show {
            path: export,
            volume,
        } => {
            let at = format!("{}/{}", path(&export), segment(&volume));
            asked.show(&client.get(&at)?, show)
        }
        FileCommand::Add {
            path: export,
            volume,
            read_only,
            limits,
        } => {
            let spec = FileSpec {
                read_only: read_only.then_some(true),
                qos: qos(&limits),
            };
            let at = format!("{}/{}", path(&export), segment(&volume));
            let answer = client.put(&at, &spec)?;
            asked.show_added(&answer, &format!("file {volume} of export {export}"), show)
        }
        FileCommand::Set {
            path: export,
            volume,
            read_only,
            limits,
        } => {
            let patch = FileSpec {
                read_only,
                qos: qos(&limits),
            };
            if patch == FileSpec::default() {
                let message = "nothing to change was given";
                let hint = "use --read-only or a limit such as --read-iops";
                return Err(Failure::new(message).hint(hint));
            }
            let at = format!("{}/{}", path(&export), segment(&volume));
            asked.show(&client.patch(&at, &patch)?, show)
        }
        FileCommand::Remove {
            path: export,
            volume,
        } => {
            client.delete(&format!("{}/{}", path(&export), segment(&volume)))?;
            let done = format!("removed file {volume} of export {export}; the volume stays");
            Ok(asked.show_done(&done))
        }
    }
}

fn list(views: Vec<FileView>) -> String {
    let row = |view: &FileView| {
        [
            view.export.to_string(),
            view.volume.to_string(),
            or_dash(view.size_bytes.map(Size)),
            access(view.read_only),
            status(view.online),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(["EXPORT", "VOLUME", "SIZE", "ACCESS", "STATUS"], &rows)
}

fn show(view: FileView) -> String {
    values(&[
        ("export", view.export.to_string()),
        ("volume", view.volume.to_string()),
        ("status", status(view.online)),
        ("size", or_dash(view.size_bytes.map(Size))),
        ("read-only", yes(view.read_only)),
        ("limits", limits(&view.qos)),
        (
            "throttled",
            or_dash(view.throttled.as_ref().map(throttled_text)),
        ),
    ])
}
