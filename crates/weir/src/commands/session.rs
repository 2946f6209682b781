//! `weir session`.

use weir_gateway::api::views::SessionView;

use super::Asked;
use super::connection::digests;
use crate::cli::SessionCommand;
use crate::client::Failure;
use crate::table::{or_dash, table};

pub(crate) fn run(asked: &Asked, command: SessionCommand) -> Result<String, Failure> {
    match command {
        SessionCommand::List => asked.show(&asked.client.get("/v1/iscsi/sessions")?, list),
    }
}

fn list(views: Vec<SessionView>) -> String {
    let row = |view: &SessionView| {
        let session = &view.session;
        let target = session.target.as_ref().map(ToString::to_string);
        [
            view.connection.to_string(),
            view.peer.to_string(),
            view.reactor.to_string(),
            session.isid.clone(),
            view.in_flight.to_string(),
            digests(session.header_digest, session.data_digest).to_owned(),
            or_dash(session.user.as_ref()),
            session.initiator.to_string(),
            target.unwrap_or_else(|| "discovery".to_owned()),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    let heading = [
        "CONNECTION",
        "PEER",
        "REACTOR",
        "ISID",
        "IN FLIGHT",
        "DIGESTS",
        "USER",
        "INITIATOR",
        "TARGET",
    ];
    table(heading, &rows)
}
