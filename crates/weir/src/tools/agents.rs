//! What tools that have agents make their load have in common: who the agents are, and what is told of their parts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use weir_agent::coordinator::{Address, AgentError, Agents, Outcome, Part, Patience, Tick};
use weir_agent::message::Usage as Asked;
use weir_agent::tls::{Fingerprint, Trust};
use weir_agent::token::Token;
use weir_lab::convert;
use weir_lab::document::{self, Caveat};
use weir_load::bench::BenchReport;

use super::laboratory::{Usage, grouped};
use super::{live, present};
use weir_lab::secret::without_in_text;

/// Beginnings that are further apart than this are worth a word.
const SPREAD_MAX: Duration = Duration::from_millis(10);

/// Which machines make the load.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Several machines")]
pub(crate) struct AgentsArguments {
    /// Make the load where `weir agent` listens here; may be given several times. Each has the whole depth and every queue and host; a rate is shared
    /// out
    #[arg(long, value_name = "HOST:PORT", requires = "agent_token_file")]
    agent: Vec<Address>,
    /// The file with the token that the agents know
    #[arg(long, value_name = "FILE", requires = "agent")]
    agent_token_file: Option<PathBuf>,
    /// Trust agents whose certificate was signed for their name by an authority of this PEM file
    #[arg(long, value_name = "FILE", requires = "agent")]
    agent_ca: Option<PathBuf>,
    /// Trust agents whose certificate has this fingerprint, which they print; may be given several times
    #[arg(long, value_name = "SHA256", requires = "agent")]
    agent_fingerprint: Vec<Fingerprint>,
}

impl AgentsArguments {
    /// Whether the load comes from elsewhere.
    pub(super) fn are_named(&self) -> bool {
        !self.agent.is_empty()
    }

    /// Machines that make the load.
    pub(super) fn count(&self) -> u32 {
        self.agent.len().max(1) as u32
    }

    /// Who the agents are.
    pub(super) fn agents(&self) -> anyhow::Result<Agents> {
        let Some(token) = &self.agent_token_file else {
            bail!("--agent needs --agent-token-file");
        };
        Ok(Agents {
            addresses: self.agent.clone(),
            token: Token::from_file(token)?,
            trust: Trust {
                fingerprints: self.agent_fingerprint.clone(),
                authorities: self.agent_ca.clone(),
            },
            name: own_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            patience: Patience::default(),
        })
    }
}

/// How this coordinator is called: who runs it, and where.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    format!("{user}@{}, process {}", host.trim(), std::process::id())
}

/// What load does with volumes, for agents.
pub(super) fn usage(of: Usage) -> Asked {
    match of {
        Usage::Reads => Asked::Reads,
        Usage::Flushes => Asked::Flushes,
        Usage::Overwrites => Asked::Overwrites,
    }
}

/// What runs what talks to agents.
pub(super) fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the coordinator's event loop cannot be made")
}

/// What the live view is told of an agent.
pub(super) fn tick(of: &Tick, total: Duration) -> live::Tick {
    let gathered = of
        .intervals
        .iter()
        .map(|interval| interval.latency())
        .reduce(|sum, next| sum.merged(&next));
    live::Tick {
        job: of.agent,
        elapsed: of.elapsed,
        total,
        ramping: of.ramping,
        interval: of.interval,
        requests: of.requests,
        bytes: of.bytes,
        errors: of.errors,
        latency_ns: gathered
            .filter(|latencies| !latencies.is_empty())
            .map(|latencies| latencies.histogram()),
    }
}

/// Fails where nothing at all was measured, because of an agent.
pub(super) fn check(outcome: Outcome) -> Result<Outcome, AgentError> {
    let is_nothing = outcome.parts.iter().all(|part| part.reports.is_empty());
    match outcome.error {
        Some(error) if is_nothing => Err(error),
        error => Ok(Outcome { error, ..outcome }),
    }
}

/// What agents did: with one job, by its place and its seed, or with all.
#[derive(Debug, Clone, Copy)]
pub(super) enum With {
    All,
    Job(usize, u64),
}

impl With {
    fn reports(self, part: &Part) -> &[BenchReport] {
        match self {
            With::All => &part.reports,
            // Of what did not begin there is none.
            With::Job(job, _) => part.reports.get(job..=job).unwrap_or_default(),
        }
    }
}

/// The agents of a run, as they are stored.
pub(super) fn stored(outcome: &Outcome, with: With) -> document::Agents {
    let seconds = |of: &Duration| of.as_secs_f64();
    let each = outcome.parts.iter().map(|part| {
        let agent = document::Agent {
            name: part.name.clone(),
            version: part.version.clone(),
            machine: part.machine.clone(),
            seed: match with {
                With::All => part.seed,
                With::Job(_, seed) => seed,
            },
            start_offset_seconds: part.start_offset.as_ref().map(seconds),
            round_trip_seconds: part.round_trip.as_ref().map(seconds),
            error: part.error.as_deref().map(without_in_text),
            ..document::Agent::default()
        };
        convert::agent(agent, with.reports(part))
    });
    let spread = outcome.spread.as_ref();
    document::Agents {
        each: each.collect(),
        start_spread_seconds: spread.map(|of| seconds(&of.spread)),
        start_uncertainty_seconds: spread.map(|of| seconds(&of.uncertainty)),
        error: outcome
            .error
            .as_ref()
            .map(|error| without_in_text(&error.to_string())),
    }
}

/// What has to be said of a run, with the agents that it is about.
pub(super) fn caveats(outcome: &Outcome) -> Vec<Caveat> {
    let mut all = of_versions(outcome);
    all.extend(of_parts(outcome, With::All));
    let mut caveats = grouped(&all);
    caveats.extend(of_beginning(outcome));
    if let Some(error) = &outcome.error {
        caveats.insert(0, of_loss("the run", error));
    }
    caveats
}

fn about(part: &Part) -> String {
    format!("agent {}", part.name)
}

/// Agents of another version, and that they are.
pub(super) fn of_versions(outcome: &Outcome) -> Vec<(String, Caveat)> {
    let own = env!("CARGO_PKG_VERSION");
    let others = outcome.parts.iter().filter(|part| part.version != own);
    let each = others.map(|part| {
        let text = format!("it runs Weir {}, and the coordinator {own}", part.version);
        (about(part), Caveat::new("agent-version", text))
    });
    each.collect()
}

/// What each agent says of what it did.
pub(super) fn of_parts(outcome: &Outcome, with: With) -> Vec<(String, Caveat)> {
    let of_part = |part| {
        let caveats = convert::caveats(with.reports(part)).into_iter();
        caveats.map(|caveat| (about(part), caveat))
    };
    outcome.parts.iter().flat_map(of_part).collect()
}

/// That they did not begin together, where they did not.
pub(super) fn of_beginning(outcome: &Outcome) -> Option<Caveat> {
    let spread = outcome.spread.as_ref();
    let spread = spread.filter(|of| of.spread > SPREAD_MAX)?;
    let text = format!(
        "the agents began {:.1} ms apart: their intervals are not quite of the same time",
        spread.spread.as_secs_f64() * 1e3
    );
    Some(Caveat::new("agents-not-together", text))
}

/// That what is called so is not whole.
pub(super) fn of_loss(what: &str, error: &AgentError) -> Caveat {
    let text = format!(
        "{what} is not whole: {}. Its numbers are of what was measured until then, and no result",
        without_in_text(&error.to_string())
    );
    Caveat::new("agent-lost", text)
}

/// A row for each agent.
pub(super) fn table(agents: &document::Agents) -> anyhow::Result<String> {
    let heads = [
        "agent",
        "IOPS",
        "bandwidth",
        "p50",
        "p99",
        "max",
        "errors",
        "processors",
        "began",
    ];
    let mut rows = vec![heads.map(str::to_owned).to_vec()];
    for agent in &agents.each {
        let mut row = vec![
            agent.name.clone(),
            present::grouped(agent.rate() as u64),
            present::rate(agent.bytes_per_second()),
        ];
        match felt(agent)? {
            None => row.extend(["-", "-", "-"].map(str::to_owned)),
            Some(latency) => {
                for percentile in [50.0, 99.0] {
                    row.push(present::latency(latency.percentile_ns(percentile)? as f64));
                }
                row.push(present::latency(latency.max_ns as f64));
            }
        }
        row.push(present::grouped(agent.operations.errors()));
        let busy = agent
            .processor
            .generator_seconds
            .filter(|_| agent.elapsed_seconds > 0.0);
        row.push(busy.map_or("-".to_owned(), |seconds| {
            format!("{:.2}", seconds / agent.elapsed_seconds)
        }));
        let began = agent.start_offset_seconds;
        row.push(began.map_or("-".to_owned(), |seconds| {
            format!("+{}", present::latency(seconds * 1e9))
        }));
        rows.push(row);
    }
    let mut text = present::table(&rows);
    for agent in &agents.each {
        if let Some(error) = &agent.error {
            text += &format!("{}: {error}\n", agent.name);
        }
    }
    Ok(text)
}

fn felt(agent: &document::Agent) -> anyhow::Result<Option<document::Latency>> {
    Ok(match agent.operations.response()? {
        Some(response) => Some(response),
        None => agent.operations.service()?,
    })
}

/// The agents, for programs.
pub(super) fn json(agents: &document::Agents) -> anyhow::Result<Value> {
    let mut each = Vec::new();
    for agent in &agents.each {
        let latency = felt(agent)?.map(
            |of| json!({"mean": of.mean_ns, "max": of.max_ns, "percentile": of.percentiles_ns}),
        );
        each.push(json!({
            "agent": agent.name,
            "version": agent.version,
            "machine": agent.machine,
            "seed": agent.seed,
            "start_offset_seconds": agent.start_offset_seconds,
            "round_trip_seconds": agent.round_trip_seconds,
            "elapsed_seconds": agent.elapsed_seconds,
            "requests": agent.operations.requests(),
            "bytes": agent.operations.bytes(),
            "errors": agent.operations.errors(),
            "iops": agent.rate(),
            "bytes_per_second": agent.bytes_per_second(),
            "latency_ns": latency,
            "unsent": agent.unsent,
            "processor_seconds": agent.processor.generator_seconds,
            "error": agent.error,
        }));
    }
    Ok(json!({
        "each": each,
        "start_spread_seconds": agents.start_spread_seconds,
        "start_uncertainty_seconds": agents.start_uncertainty_seconds,
        "error": agents.error,
    }))
}
