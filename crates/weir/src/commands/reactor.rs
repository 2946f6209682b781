//! `weir reactor`.

use weir_block::size::Size;
use weir_gateway::engine::ReactorReport;

use super::Asked;
use crate::cli::ReactorCommand;
use crate::client::Failure;
use crate::table::{or_dash, table};

pub(crate) fn run(asked: &Asked, command: ReactorCommand) -> Result<String, Failure> {
    match command {
        ReactorCommand::List => asked.show(&asked.client.get("/v1/reactors")?, list),
    }
}

fn list(views: Vec<ReactorReport>) -> String {
    let row = |view: &ReactorReport| {
        [
            view.id.to_string(),
            or_dash(view.processor),
            view.connections.to_string(),
            format!("{:.1} s", view.busy_ns as f64 / 1e9),
            view.turns.to_string(),
            view.sleeps.to_string(),
            format!(
                "{} of {}",
                Size(view.pool_used_bytes),
                Size(view.pool_limit_bytes)
            ),
        ]
    };
    let rows: Vec<_> = views.iter().map(row).collect();
    let heading = [
        "ID",
        "PROCESSOR",
        "CONNECTIONS",
        "BUSY",
        "TURNS",
        "SLEEPS",
        "BUFFERS",
    ];
    table(heading, &rows)
}
