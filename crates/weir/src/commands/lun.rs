//! `weir lun`.

use weir_block::size::Size;
use weir_gateway::api::views::{LunView, TargetView};
use weir_gateway::name::IscsiName;
use weir_gateway::state::{LunPatch, LunSpec, Visibility};

use super::Asked;
use super::namespace::{access, limits, qos, status, visibility, visible};
use super::status::throttled_text;
use crate::cli::LunCommand;
use crate::client::{Failure, segment};
use crate::table::{lines, or_dash, table, values, yes};

fn path(iqn: &IscsiName) -> String {
    format!("/v1/iscsi/targets/{}/luns", segment(iqn))
}

pub(crate) fn run(asked: &Asked, command: LunCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        LunCommand::List { iqn: Some(iqn) } => asked.show(&client.get(&path(&iqn))?, list),
        LunCommand::List { iqn: None } => {
            asked.show_members("/v1/iscsi/targets", |view: TargetView| view.luns, list)
        }
        LunCommand::Show { iqn, lun } => {
            asked.show(&client.get(&format!("{}/{lun}", path(&iqn)))?, show)
        }
        LunCommand::Add {
            iqn,
            volume,
            lun,
            read_only,
            visible,
            limits,
        } => {
            let spec = LunSpec {
                volume,
                read_only: read_only.then_some(true),
                visible_to: visibility(visible),
                qos: qos(&limits),
            };
            let path = path(&iqn);
            let answer = match lun {
                Some(lun) => client.put(&format!("{path}/{lun}"), &spec)?,
                None => client.post(&path, &spec)?,
            };
            asked.show_added(&answer, &format!("LUN of target {iqn}"), show)
        }
        LunCommand::Set {
            iqn,
            lun,
            read_only,
            visible,
            limits,
        } => {
            let patch = LunPatch {
                read_only,
                visible_to: visibility(visible),
                qos: qos(&limits),
            };
            if patch == LunPatch::default() {
                let message = "nothing to change was given";
                let hint = "use --read-only, --visible-to, --visible-to-all or a limit such as --read-iops";
                return Err(Failure::new(message).hint(hint));
            }
            asked.show(
                &client.patch(&format!("{}/{lun}", path(&iqn)), &patch)?,
                show,
            )
        }
        LunCommand::Remove { iqn, lun } => {
            client.delete(&format!("{}/{lun}", path(&iqn)))?;
            Ok(asked.show_done(&format!("removed LUN {lun} of {iqn}; its volume stays")))
        }
    }
}

fn list(views: Vec<LunView>) -> String {
    let row = |view: &LunView| {
        [
            view.target.to_string(),
            view.lun.to_string(),
            view.volume.to_string(),
            or_dash(view.size_bytes.map(Size)),
            access(view.read_only),
            visible(&view.visible_to),
            status(view.online),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    table(
        [
            "TARGET", "LUN", "VOLUME", "SIZE", "ACCESS", "VISIBLE", "STATUS",
        ],
        &rows,
    )
}

fn show(view: LunView) -> String {
    let visible_to = match &view.visible_to {
        Visibility::All => "all hosts of the target".to_owned(),
        Visibility::Hosts(hosts) => lines(hosts),
    };
    values(&[
        ("target", view.target.to_string()),
        ("LUN", view.lun.to_string()),
        ("volume", view.volume.to_string()),
        ("status", status(view.online)),
        ("size", or_dash(view.size_bytes.map(Size))),
        ("read-only", yes(view.read_only)),
        ("visible to", visible_to),
        ("limits", limits(&view.qos)),
        (
            "throttled",
            or_dash(view.throttled.as_ref().map(throttled_text)),
        ),
        ("uuid", or_dash(view.uuid)),
    ])
}
