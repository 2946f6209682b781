//! `weir record --simulated`: generated packets or bytes onto modelled drives, in simulated time.
//!
//! It is the recorder itself that runs: only the clock and the drives are not those of a machine. So minutes pass as fast as one core can
//! write what is recorded to memory.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use weir_block::Volume;
use weir_load::Stop;
use weir_reactor::Reactor;
use weir_reactor::sim::{Config, Simulation};
use weir_record::{Progress, RecordConfig, Recorded, Ring, RingConfig, record};
use weir_ssd::{SCHEME, SsdVolume};
use weir_volume::{Access, Guard, GuardConfig, Registry, VolumeUrl};

use super::source::Made;
use super::status::About;

/// The longest recording: longer than drives last.
const TIME_MAX: Duration = Duration::from_secs(3600 * 24 * 365);

/// Records on a new ring of modelled drives: the ring, and the recording.
pub(super) fn run(
    volumes: &[VolumeUrl],
    ring: RingConfig,
    source: Made,
    config: RecordConfig,
    stop: &Stop,
    mut show: impl FnMut(&About, &Progress) + 'static,
) -> anyhow::Result<(About, Recorded)> {
    if let Some(other) = volumes.iter().find(|url| url.scheme() != SCHEME) {
        bail!(
            "--simulated needs modelled drives, such as ssd:consumer-tlc?size=4GiB; {other} is not one"
        );
    }
    let simulation = Simulation::new(Config {
        rounds_max: u64::MAX,
        time_max: TIME_MAX,
        ..Config::default()
    });
    let (volumes, stop) = (volumes.to_vec(), stop.clone());
    simulation.run(0, move |reactor: Reactor| async move {
        let mut registry = Registry::standard();
        registry.register(SCHEME, SsdVolume::factory());
        let mut opened: Vec<Arc<dyn Volume>> = Vec::new();
        for url in &volumes {
            let access = Access::READ_WRITE;
            let volume = registry.open(&reactor, url, access).await?;
            let guard = Guard::new(volume, GuardConfig::default());
            opened.push(guard.with_context(|| format!("{url} cannot be recorded on"))?);
        }
        let ring = Ring::make(&reactor, &opened, &ring).await?;
        let about = About::of(&ring, config.when_full, None);
        let mut source = source.make();
        let report = |progress| show(&about, &progress);
        let recorded = record(ring, &mut source, &config, &stop, report).await?;
        Ok((about, recorded))
    })
}
