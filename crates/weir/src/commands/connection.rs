//! `weir connection`.

use weir_block::size::Size;
use weir_gateway::engine::{
    ClientReport, ConnectionReport, QueueReport, SessionReport, SocketReport,
};

use super::Asked;
use crate::cli::ConnectionCommand;
use crate::client::Failure;
use crate::table::{or_dash, table, values, yes};

const PATH: &str = "/v1/connections";

pub(crate) fn run(asked: &Asked, command: ConnectionCommand) -> Result<String, Failure> {
    let client = &asked.client;
    match command {
        ConnectionCommand::List => asked.show(&client.get(PATH)?, list),
        ConnectionCommand::Show { id } => asked.show(&client.get(&format!("{PATH}/{id}"))?, show),
        ConnectionCommand::Disconnect { id } => {
            client.delete(&format!("{PATH}/{id}"))?;
            Ok(asked.show_done(&format!("ended connection {id}")))
        }
    }
}

fn list(views: Vec<ConnectionReport>) -> String {
    let row = |view: &ConnectionReport| {
        let (queue, session) = (view.queue.as_ref(), view.session.as_ref());
        let digests = match (queue, session) {
            (Some(queue), _) => Some(digests(queue.header_digest, queue.data_digest)),
            (_, Some(session)) => Some(digests(session.header_digest, session.data_digest)),
            _ => None,
        };
        let host = queue.map(|queue| queue.host.to_string());
        let subsystem = queue.map(|queue| queue.subsystem.to_string());
        let target = session.map(|session| or_dash(session.target.as_ref()));
        [
            view.id.to_string(),
            view.peer.to_string(),
            view.reactor.to_string(),
            or_dash(queue.map(|queue| queue.controller_id)),
            or_dash(queue.map(|queue| queue.queue_id)),
            view.in_flight.to_string(),
            or_dash(queue.map(|queue| queue.queue_depth)),
            or_dash(digests),
            or_dash(
                host.or(session.map(|session| session.initiator.to_string()))
                    .or(view.client.as_ref().map(|client| client.name.clone())),
            ),
            or_dash(subsystem.or(target)),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    let heading = [
        "ID",
        "PEER",
        "REACTOR",
        "CONTROLLER",
        "QUEUE",
        "IN FLIGHT",
        "DEPTH",
        "DIGESTS",
        "HOST",
        "SUBSYSTEM OR TARGET",
    ];
    table(heading, &rows)
}

/// What has digests.
pub(super) fn digests(header: bool, data: bool) -> &'static str {
    match (header, data) {
        (false, false) => "none",
        (true, false) => "header",
        (false, true) => "data",
        (true, true) => "header, data",
    }
}

fn show(view: ConnectionReport) -> String {
    let mut pairs = vec![
        ("id", view.id.to_string()),
        ("peer", view.peer.to_string()),
        ("local", view.local.to_string()),
        ("reactor", view.reactor.to_string()),
    ];
    match (&view.session, &view.client) {
        (Some(session), _) => pairs.extend(session_pairs(session)),
        (None, Some(client)) => pairs.extend(client_pairs(client)),
        (None, None) => pairs.extend(queue_pairs(view.queue.as_ref())),
    }
    pairs.extend([
        ("in flight", view.in_flight.to_string()),
        ("received", Size(view.received_bytes).to_string()),
        ("sent", Size(view.sent_bytes).to_string()),
    ]);
    if let Some(socket) = &view.socket {
        pairs.extend(socket_pairs(socket));
    }
    values(&pairs)
}

fn queue_pairs(queue: Option<&QueueReport>) -> [(&'static str, String); 7] {
    let has = |queue: &QueueReport| digests(queue.header_digest, queue.data_digest);
    [
        ("host", or_dash(queue.map(|queue| &queue.host))),
        ("subsystem", or_dash(queue.map(|queue| &queue.subsystem))),
        (
            "controller",
            or_dash(queue.map(|queue| queue.controller_id)),
        ),
        ("queue", or_dash(queue.map(|queue| queue.queue_id))),
        ("queue depth", or_dash(queue.map(|queue| queue.queue_depth))),
        (
            "flow control",
            or_dash(queue.map(|queue| yes(queue.flow_control))),
        ),
        ("digests", or_dash(queue.map(has))),
    ]
}

fn session_pairs(session: &SessionReport) -> [(&'static str, String); 7] {
    [
        ("initiator", session.initiator.to_string()),
        ("alias", or_dash(session.alias.as_ref())),
        ("ISID", session.isid.clone()),
        ("target", or_dash(session.target.as_ref())),
        ("TSIH", session.tsih.to_string()),
        ("user", or_dash(session.user.as_ref())),
        (
            "digests",
            digests(session.header_digest, session.data_digest).to_owned(),
        ),
    ]
}

fn client_pairs(client: &ClientReport) -> [(&'static str, String); 4] {
    [
        ("client", client.name.clone()),
        ("implementation", or_dash(client.implementation.as_ref())),
        ("sessions", client.sessions.to_string()),
        ("opens and locks", client.states.to_string()),
    ]
}

fn socket_pairs(socket: &SocketReport) -> [(&'static str, String); 8] {
    let size = |bytes| Size(u64::from(bytes)).to_string();
    [
        ("send buffer", size(socket.send_buffer)),
        ("receive buffer", size(socket.receive_buffer)),
        ("congestion control", socket.congestion_control.clone()),
        ("dscp", socket.dscp.to_string()),
        ("priority", socket.priority.to_string()),
        ("round trip", format!("{} us", socket.round_trip_us)),
        ("retransmits", socket.retransmits.to_string()),
        (
            "congestion window",
            format!("{} segments", socket.congestion_window),
        ),
    ]
}
