//! `weir bench --verify --agent`: each agent checks the blocks that it alone writes to, and this says what they found.

use std::time::Instant;

use serde_json::{Map, Value, json};
use weir_agent::coordinator::{AgentError, Coordinator};
use weir_agent::message::{Concluding, OpenVolume};
use weir_agent::wire::{Conclusion, Unsound};
use weir_lab::secret::without_in_text;
use weir_load::Stop;
use weir_load::verified::{ConclusionProgress, VerifiedReport};
use weir_reactor::System;
use weir_reactor::linux::{LinuxConfig, LinuxSystem};

use super::super::show::Driven;
use crate::tools::checked::{self, Announced};
use crate::tools::present::Line;
use crate::tools::verify::finding_json;

/// What was found of one volume.
pub(super) struct Verdict {
    /// Whether every agent checked its blocks, and found nothing wrong.
    pub(super) is_sound: bool,
    /// What a program is told of it.
    pub(super) json: Value,
}

/// One for each of so many volumes, that nobody has used before.
pub(super) fn seeds(volumes: usize) -> anyhow::Result<Vec<u64>> {
    let system = LinuxSystem::new(LinuxConfig::default())?;
    let seed = |_| {
        let mut bytes = [0; 8];
        system.random_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    };
    Ok((0..volumes).map(seed).collect())
}

/// Refuses volumes of which two are the same medium for an agent.
pub(super) async fn refuse_same_medium(
    coordinator: &mut Coordinator,
    volumes: &[OpenVolume],
    stop: &Stop,
) -> anyhow::Result<()> {
    if volumes.len() < 2 {
        return Ok(());
    }
    let checked = coordinator.check_distinct(0, stop).await;
    let Err(AgentError::Same { agent, one, other }) = &checked else {
        return Ok(checked?);
    };
    let url = |place: usize| volumes.get(place).map_or("a volume", |of| of.url.as_str());
    let why = checked::same_medium(url(*one), url(*other));
    anyhow::bail!("for agent {agent}, {why}")
}

/// Has the agents read everything once more, and says on standard error what is wrong, of each volume.
pub(super) async fn conclude(
    coordinator: &mut Coordinator,
    driven: &[Driven],
    seeds: &[u64],
    stop: &Stop,
    sink: &mut impl FnMut(Line),
) -> Vec<Verdict> {
    let names: Vec<String> = coordinator.names().map(str::to_owned).collect();
    let began = Instant::now();
    let mut far: Vec<Option<Concluding>> = vec![None; names.len()];
    let mut announced = Announced::new();
    let mut tell = |agent: usize, progress: Concluding| {
        far[agent] = Some(progress);
        let each = || far.iter().flatten();
        let sum = |of: fn(&Concluding) -> u64| each().map(of).fold(0, u64::saturating_add);
        let line = checked::line(&ConclusionProgress {
            elapsed: began.elapsed(),
            block: sum(|of| of.block),
            blocks: sum(|of| of.blocks),
            searching: each().any(|of| of.is_searching),
        });
        announced.hear(&line);
        sink(line);
    };
    let concluded = coordinator.conclude(stop, &mut tell).await;
    for error in concluded.iter().filter_map(|of| of.as_ref().err()) {
        let error = without_in_text(&error.to_string());
        eprintln!("weir: blocks of an agent are not checked to the end: {error}");
    }
    let volumes = driven.iter().zip(seeds).enumerate();
    let verdict = |(job, (driven, seed)): (usize, (&Driven, &u64))| {
        let found = concluded.iter().map(|of| of.as_ref().map(|of| &of[job]));
        let found: Vec<_> = names.iter().map(String::as_str).zip(found).collect();
        verdict(&driven.name, *seed, &found)
    };
    volumes.map(verdict).collect()
}

/// What all agents found of one volume.
fn verdict(volume: &str, seed: u64, found: &[(&str, Result<&Conclusion, &AgentError>)]) -> Verdict {
    let mut sum = VerifiedReport {
        written_blocks: 0,
        compared_blocks: 0,
        whole: true,
    };
    let (mut each, mut findings, mut requests) = (Vec::new(), Vec::new(), 0u64);
    for (agent, concluded) in found {
        each.push(match concluded {
            Ok(Ok(report)) => {
                sum.written_blocks += report.written_blocks;
                sum.compared_blocks += report.compared_blocks;
                sum.whole &= report.whole;
                json!({
                    "agent": agent,
                    "ok": true,
                    "written_blocks": report.written_blocks,
                    "compared_blocks": report.compared_blocks,
                    "whole": report.whole,
                })
            }
            Ok(Err(Unsound::Unread(error))) => {
                sum.whole = false;
                let error = without_in_text(error);
                eprintln!("weir: {volume} is not checked to the end by agent {agent}: {error}");
                json!({"agent": agent, "ok": false, "error": error})
            }
            Ok(Err(Unsound::Wrong(wrong))) => {
                eprintln!(
                    "weir: {volume} is at fault, as agent {agent} found (seed {seed:#018x}):"
                );
                for finding in &wrong.findings {
                    eprintln!("  {finding}");
                    findings.push(finding);
                }
                requests += wrong.requests;
                sum.whole = false;
                json!({
                    "agent": agent,
                    "ok": false,
                    "wrong_requests": wrong.requests,
                    "findings": wrong.findings.iter().map(finding_json).collect::<Vec<_>>(),
                })
            }
            Err(error) => {
                sum.whole = false;
                let error = without_in_text(&error.to_string());
                json!({"agent": agent, "ok": false, "error": error})
            }
        });
    }
    let is_sound = each.iter().all(|of| of["ok"] == true);
    if is_sound {
        eprintln!("{}", checked::sound(&sum));
    }
    let mut json = Map::new();
    let mut put = |name: &str, value| json.insert(name.to_owned(), value);
    put("ok", json!(is_sound));
    put("seed", json!(seed));
    put("written_blocks", json!(sum.written_blocks));
    put("compared_blocks", json!(sum.compared_blocks));
    put("whole", json!(sum.whole));
    if let Some(first) = findings.first() {
        put("fault", json!(first.fault.code()));
        put("wrong_requests", json!(requests));
        let findings: Vec<_> = findings.iter().map(|of| finding_json(of)).collect();
        put("findings", json!(findings));
    }
    put("agents", json!(each));
    Verdict {
        is_sound,
        json: Value::Object(json),
    }
}
