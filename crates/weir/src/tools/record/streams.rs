//! A recording on several reactors: each records a stream of it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use weir_record::{
    Counts, Ended, Progress, RecordConfig, Recorded, Ring, SharedRing, Streams, VolumeFigures,
    record_stream,
};

use super::source::Made;
use crate::tools::session::Session;

/// A ring that was opened, with what is to be recorded on each reactor.
pub(super) struct Prepared {
    pub(super) streams: Arc<Streams>,
    parts: Vec<(SharedRing, Made)>,
}

impl Prepared {
    /// Of a ring, for these parts of a source.
    pub(super) fn of(ring: &Ring, parts: Vec<Made>) -> Self {
        Prepared {
            streams: Arc::new(Streams::new(ring, parts.len() as u32)),
            parts: parts.into_iter().map(|made| (ring.share(), made)).collect(),
        }
    }
}

fn sum(latest: &[Option<Progress>]) -> Option<Progress> {
    let add = |sum: Progress, one: Progress| {
        let mut counts = sum.counts;
        counts += one.counts;
        Progress {
            elapsed: sum.elapsed.max(one.elapsed),
            counts,
            written_bytes: sum.written_bytes + one.written_bytes,
            buffers: (sum.buffers.0 + one.buffers.0, sum.buffers.1 + one.buffers.1),
            volumes: added(sum.volumes, &one.volumes),
            no_segment: sum.no_segment + one.no_segment,
            // Of one ring.
            room_bytes: sum.room_bytes.min(one.room_bytes),
            is_live: one.is_live,
            clock_steps: sum.clock_steps.later(one.clock_steps),
            has_ended: sum.has_ended && one.has_ended,
            source_fill: sum
                .source_fill
                .into_iter()
                .chain(one.source_fill)
                .reduce(f64::max),
        }
    };
    latest.iter().flatten().cloned().reduce(add)
}

fn added(mut sum: Vec<VolumeFigures>, others: &[VolumeFigures]) -> Vec<VolumeFigures> {
    for (sum, other) in sum.iter_mut().zip(others) {
        *sum += *other;
    }
    sum
}

/// Records all parts, each on a reactor, until all have ended.
pub(super) fn record(
    session: &Session,
    prepared: Prepared,
    config: RecordConfig,
    show: impl FnMut(&Progress) + Send + 'static,
) -> anyhow::Result<Recorded> {
    let Prepared { streams, parts, .. } = prepared;
    let latest = Arc::new(Mutex::new(vec![None; parts.len()]));
    // The first stream shows the sum of all.
    let mut show = Some(show);
    let remotes = session.remotes();
    let mut calls = Vec::new();
    for (number, (part, remote)) in parts.into_iter().zip(&remotes).enumerate() {
        let (ring, made) = part;
        let stream = (Arc::clone(&streams), number as u32);
        let (latest, stop) = (Arc::clone(&latest), session.stop.clone());
        let mut show = show.take();
        let report = move |progress: Progress| {
            let sum = {
                let mut latest = latest.lock().unwrap_or_else(PoisonError::into_inner);
                latest[number] = Some(progress);
                show.as_ref().and_then(|_| sum(&latest))
            };
            if let Some((show, sum)) = show.as_mut().zip(sum) {
                show(&sum);
            }
        };
        let work = move |reactor: weir_reactor::Reactor| async move {
            let recorded = async {
                let ring = ring.open(&reactor)?;
                let mut source = made.make();
                let recorded = record_stream(ring, stream, &mut source, &config, &stop, report);
                Ok::<_, anyhow::Error>(recorded.await?)
            };
            let recorded = recorded.await;
            if recorded.is_err() {
                // Without one of them it is not the recording that was asked for.
                stop.stop();
            }
            recorded
        };
        calls.push(remote.call(work));
    }
    let ended = session.run(|_| async move {
        let mut ended = Vec::new();
        for call in calls {
            ended.push(call.await);
        }
        ended
    })?;
    let mut all = Vec::new();
    let mut error = None;
    for one in ended {
        match one.context("the recorder's reactor stopped early")? {
            Ok(recorded) => all.push(recorded),
            Err(of) => error = Some(of),
        }
    }
    let recorded = all.into_iter().reduce(add);
    match error {
        Some(error) => {
            if let Some(others) = recorded {
                let kept = others.counts.kept;
                eprintln!("note: the other reactors recorded {kept} packets until then");
            }
            Err(error)
        }
        None => recorded.context("there is a stream at least"),
    }
}

fn add(mut sum: Recorded, one: Recorded) -> Recorded {
    let mut counts: Counts = sum.counts;
    counts += one.counts;
    sum.failures.extend(one.failures);
    let lost: Option<Duration> = sum.first_lost.into_iter().chain(one.first_lost).min();
    Recorded {
        recording: sum.recording,
        // A source that ends does so everywhere.
        ended: match sum.ended {
            Ended::Source => one.ended,
            other => other,
        },
        counts,
        committed_bytes: sum.committed_bytes + one.committed_bytes,
        elapsed: sum.elapsed.max(one.elapsed),
        first_lost: lost,
        volumes: added(sum.volumes, &one.volumes),
        no_segment: sum.no_segment + one.no_segment,
        clock_steps: sum.clock_steps.later(one.clock_steps),
        failures: sum.failures,
    }
}
