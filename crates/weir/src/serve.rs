//! `weir serve`.

use std::path::{Path, PathBuf};

use weir_gateway::config::{Config, Environment};
use weir_gateway::engine::reactors::memory_needs;
use weir_gateway::limits::{self, Plan};
use weir_gateway::privileges::Identity;
use weir_gateway::serve;

use crate::cli::Serve;
use crate::client::Failure;

/// Runs the gateway until it is told to end, or checks its configuration.
pub(crate) fn serve(
    arguments: &Serve,
    socket: Option<PathBuf>,
    json: bool,
) -> Result<String, Failure> {
    if json && !arguments.check {
        let message = "--json goes with --check: a gateway that serves prints nothing";
        return Err(Failure::new(message).hint("for log lines as JSON, say log.format = \"json\""));
    }
    let mut config = read(arguments.config.as_deref())?;
    config.control.socket = socket.or(config.control.socket);
    if arguments.check {
        return check(&config, json);
    }
    crate::tools::interrupt::end_with_what_runs_this()
        .map_err(|error| Failure::new(format!("{error:#}")))?;
    weir_gateway::panics::end_the_process_on_any();
    let version = env!("CARGO_PKG_VERSION");
    serve::serve(&config, version, weir_gateway::engine::reactors::start)
        .map_err(|error| Failure::new(error.to_string()))?;
    Ok(String::new())
}

fn read(path: Option<&Path>) -> Result<Config, Failure> {
    let Some(path) = path else {
        return Ok(Config::default());
    };
    Config::read(path).map_err(|error| {
        Failure::new(error.to_string())
            .hint("docs/weir.toml shows every key with its default and its meaning")
    })
}

/// Says what the configuration comes to on this machine.
fn check(config: &Config, json: bool) -> Result<String, Failure> {
    let fail = |error: limits::LimitsError| Failure::new(error.to_string());
    let plan = Plan::here(config, memory_needs(config)).map_err(fail)?;
    if let Some(user) = &config.user {
        Identity::find(user, config.group.as_deref())
            .map_err(|error| Failure::new(error.to_string()))?;
    }
    let environment = Environment::of_this_process();
    let state = config.state_path(&environment).display().to_string();
    let socket = config.control_socket(&environment).display().to_string();
    if json {
        let answer = serde_json::json!({
            "state": state,
            "control_socket": socket,
            "reactors": plan.reactors,
            "connections": plan.connections,
            "buffer_bytes_per_reactor": plan.pool_bytes,
            "memory": plan.budget,
        });
        return Ok(format!("{answer:#}\n"));
    }
    let buffers = format!(
        "{} for each reactor",
        weir_block::size::Size(plan.pool_bytes)
    );
    Ok(crate::table::values(&[
        ("configuration", "right".into()),
        ("state", state),
        ("control socket", socket),
        ("reactors", plan.reactors.to_string()),
        ("buffers", buffers),
        ("connections", plan.connections.to_string()),
        ("memory", plan.budget.to_string()),
    ]))
}
