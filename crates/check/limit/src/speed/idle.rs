//! An idle gateway with many namespaces and connected hosts: what it costs to have it.

use std::time::Duration;

use anyhow::Context;

use super::gateway::{Gateway, Plan, SUBSYSTEM};
use super::hosts;
use super::options::Options;
use super::run::Field;
use crate::processor;

/// Namespaces of the gateway.
const NAMESPACES: usize = 100;
/// Hosts that are connected, and I/O queues of each: with the admin queues 64 connections.
const HOSTS: u8 = 16;
const QUEUES_OF_HOST: u16 = 3;
/// How long it is left alone before it is looked at.
const SETTLES: Duration = Duration::from_secs(3);

/// What an idle gateway uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Idle {
    /// Percent of a processor.
    pub(super) busy_percent: f64,
    /// Resident memory in MiB.
    pub(super) resident_mib: f64,
}

/// Looks at an idle gateway once.
pub(super) fn look(field: &Field<'_>, options: &Options) -> anyhow::Result<Idle> {
    let folder = field.temporary()?;
    let images = field.temporary()?;
    let volumes = (0..NAMESPACES)
        .map(|number| format!("file:{}/image{number}?size=64M", images.path().display()))
        .collect();
    let plan = Plan {
        weir: &options.weir,
        processors: options.target_processor.to_string(),
        reactors: 1,
        volumes,
        protocol: super::rows::Protocol::Nvme,
    };
    let gateway = Gateway::start(&plan, folder)?;
    let connected = (1..=HOSTS)
        .map(|number| hosts::connect(gateway.port, SUBSYSTEM, number, QUEUES_OF_HOST))
        .collect::<Result<Vec<_>, _>>()
        .context("a host cannot connect")?;
    std::thread::sleep(SETTLES);
    let before = processor::time_of(gateway.id())?;
    std::thread::sleep(Duration::from_secs(u64::from(options.idle_seconds)));
    let used = processor::time_of(gateway.id())? - before;
    let resident = processor::resident_bytes(gateway.id())?;
    drop(connected);
    Ok(Idle {
        busy_percent: 100.0 * used.as_secs_f64() / f64::from(options.idle_seconds),
        resident_mib: resident as f64 / f64::from(1 << 20),
    })
}
