//! A recording: from a source onto a ring, until one of them ends.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use uuid::Uuid;
use weir_load::{LaneError, PROGRESS_INTERVAL, Stop};
use weir_pcap::Statistics;
use weir_reactor::{Instant, Reactor, Timer};

use crate::format::{Content, Counts};
use crate::ring::{Ring, WhenFull};
use crate::source::{Next, Source, SourceError};
use crate::writer::{CHUNK_BYTES, Refused, Writer};

/// Bytes that are taken in one go before others have their turn.
const TURN_BYTES: usize = 256 << 10;
/// Time after which it is looked whether the recording is to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Settings of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordConfig {
    /// The fate of a ring that is full.
    pub when_full: WhenFull,
    /// Time after which what came is on stable storage.
    pub sync: Duration,
    /// Bytes that wait for volumes at most.
    pub buffer_bytes: u64,
}

impl Default for RecordConfig {
    fn default() -> Self {
        RecordConfig {
            when_full: WhenFull::default(),
            sync: Duration::from_secs(1),
            buffer_bytes: 64 << 20,
        }
    }
}

/// Why a recording could not begin, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The ring is of another content than the source.
    #[error("the ring holds {}, and {source_name} yields {}", words(*.ring), words(*.source_content))]
    Content {
        /// The ring's.
        ring: Content,
        /// The source.
        source_name: String,
        /// The source's.
        source_content: Content,
    },
    /// The source failed. What came before is recorded.
    #[error(transparent)]
    Source(#[from] SourceError),
}

fn words(content: Content) -> &'static str {
    match content {
        Content::Packets => "packets",
        Content::Bytes => "bytes",
    }
}

/// Why a recording ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The source has no more.
    Source,
    /// It was asked to.
    Stopped,
    /// The ring is full.
    Full,
    /// Every volume failed.
    Failed,
}

/// Figures of a recording under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Since it began.
    pub elapsed: Duration,
    /// Counts of what came, and of what became of it.
    pub counts: Counts,
    /// Bytes on the volumes.
    pub written_bytes: u64,
    /// Buffers in use, and all.
    pub buffers: (usize, usize),
    /// Volumes that failed.
    pub failed: usize,
}

/// A recording that has ended.
#[derive(Debug)]
pub struct Recorded {
    /// Its identity.
    pub recording: Uuid,
    /// Why it ended.
    pub ended: Ended,
    /// Counts of what came, and of what became of it.
    pub counts: Counts,
    /// Bytes of chunks that commit records name.
    pub committed_bytes: u64,
    /// Time that it took.
    pub elapsed: Duration,
    /// Volumes that failed, and how.
    pub failures: Vec<LaneError>,
}

/// Records what a source yields.
///
/// # Errors
/// [`RecordError`]. What came before a source failed is recorded.
pub async fn record(
    ring: Ring,
    source: &mut Source,
    config: &RecordConfig,
    stop: &Stop,
    mut progress: impl FnMut(Progress),
) -> Result<Recorded, RecordError> {
    if ring.content() != source.content() {
        return Err(RecordError::Content {
            ring: ring.content(),
            source_name: source.name().to_owned(),
            source_content: source.content(),
        });
    }
    let reactor = ring.reactor.clone();
    let buffers = (config.buffer_bytes as usize / CHUNK_BYTES).max(4);
    let mut run = Run {
        writer: Writer::new(ring, config.when_full, buffers, config.sync),
        began: reactor.now(),
        told: reactor.now(),
        has_interfaces: false,
        reactor,
    };
    run.writer.begin().await;
    let ended = run.take_all(source, stop, &mut progress).await;
    run.tell_counts();
    run.writer.finish().await;
    let figures = run.writer.figures();
    let ended = ended?;
    Ok(Recorded {
        recording: run.writer.recording(),
        ended,
        counts: figures.counts,
        committed_bytes: figures.committed_bytes,
        elapsed: run.reactor.now() - run.began,
        failures: run.writer.take_failures(),
    })
}

struct Run {
    reactor: Reactor,
    writer: Writer,
    began: Instant,
    told: Instant,
    has_interfaces: bool,
}

impl Run {
    async fn take_all(
        &mut self,
        source: &mut Source,
        stop: &Stop,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Ended, RecordError> {
        let is_live = source.is_live();
        let mut turn = 0;
        let mut wall = self.reactor.system().wall_clock();
        loop {
            let now = self.reactor.now();
            self.writer.tick(now);
            if now >= self.told + PROGRESS_INTERVAL {
                self.told = now;
                progress(self.progress(now));
            }
            if stop.is_asked() {
                return Ok(Ended::Stopped);
            }
            if turn >= TURN_BYTES {
                turn = 0;
                yield_now().await;
                wall = self.reactor.system().wall_clock();
                continue;
            }
            // Its fate, its bytes, and the packets that the source lost before it.
            let (taken, length, lost_before) = match source.next(now, wall)? {
                Next::End => return Ok(Ended::Source),
                Next::Wait(until) => {
                    let until = until.min(self.wakes_at(now));
                    self.reactor.sleep_until(until).await;
                    wall = self.reactor.system().wall_clock();
                    turn = 0;
                    continue;
                }
                Next::Read => {
                    let until = self.wakes_at(now);
                    if let Some(read) =
                        before(&self.reactor, until, source.read(&self.reactor)).await
                    {
                        read?;
                    }
                    wall = self.reactor.system().wall_clock();
                    continue;
                }
                Next::Interfaces(all) => {
                    self.has_interfaces = true;
                    if !self.writer.set_interfaces(all) {
                        let name = source.name().to_owned();
                        return Err(SourceError::Interfaces { name }.into());
                    }
                    continue;
                }
                Next::Packet(packet) => {
                    let length = packet.data.len();
                    let take = |writer: &mut Writer| writer.packet(&packet).map(|()| length);
                    let lost_before = packet.dropped.unwrap_or_default();
                    (self.take(is_live, stop, take).await, length, lost_before)
                }
                Next::Bytes(bytes) => {
                    let time = wall.as_nanos() as u64;
                    let take = |writer: &mut Writer| writer.bytes(bytes, time);
                    (self.take(is_live, stop, take).await, bytes.len(), 0)
                }
            };
            let (bytes, is_lost) = match taken {
                Ok(bytes) => (bytes, false),
                Err(Refused::Later) if is_live => (length, true),
                Err(Refused::Later) => return Ok(Ended::Stopped),
                Err(Refused::Full) => return Ok(Ended::Full),
                Err(Refused::Failed) => return Ok(Ended::Failed),
            };
            self.writer.count(|counts| {
                counts.received += 1;
                counts.received_bytes += bytes as u64;
                counts.source_lost += lost_before;
                counts.slow_lost += u64::from(is_lost);
            });
            source.taken(bytes);
            turn += bytes.max(64);
        }
    }

    /// Has something taken. What can wait, does, until the recording is to stop.
    async fn take(
        &mut self,
        is_live: bool,
        stop: &Stop,
        take: impl Fn(&mut Writer) -> Result<usize, Refused>,
    ) -> Result<usize, Refused> {
        loop {
            match take(&mut self.writer) {
                Err(Refused::Later) if !is_live && !stop.is_asked() => self.wait_for_room().await,
                done => return done,
            }
        }
    }

    /// When something is to be looked at, whatever the source does.
    fn wakes_at(&self, now: Instant) -> Instant {
        self.writer.next_sync().min(now + LOOK)
    }

    async fn wait_for_room(&mut self) {
        let now = self.reactor.now();
        let until = self.wakes_at(now);
        before(&self.reactor, until, self.writer.room()).await;
        self.writer.tick(self.reactor.now());
    }

    /// Writes what became of all, as the last thing of the recording.
    fn tell_counts(&mut self) {
        let counts = self.writer.figures().counts;
        if !self.has_interfaces {
            return;
        }
        // Those of all interfaces, at the first one.
        let statistics = Statistics {
            interface: 0,
            time: self.reactor.system().wall_clock().as_nanos() as u64,
            received: Some(counts.received),
            interface_dropped: Some(counts.source_lost),
            system_dropped: Some(counts.slow_lost + counts.failed_lost),
            delivered: Some(counts.kept),
            ..Statistics::default()
        };
        // They are in the commit records, too.
        let _ = self.writer.statistics(&statistics);
    }

    fn progress(&self, now: Instant) -> Progress {
        let figures = self.writer.figures();
        Progress {
            elapsed: now - self.began,
            counts: figures.counts,
            written_bytes: figures.written_bytes,
            buffers: figures.buffers,
            failed: figures.failed,
        }
    }
}

/// Lets others have their turn.
async fn yield_now() {
    let mut is_over = false;
    poll_fn(|context| {
        if std::mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for something until then; what is dropped is asked for again.
async fn before<T>(reactor: &Reactor, until: Instant, what: impl Future<Output = T>) -> Option<T> {
    let mut timer = Timer::new(reactor);
    timer.set(until);
    let mut what = pin!(what);
    poll_fn(|context| {
        if let Poll::Ready(done) = what.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        timer.poll_elapsed(context).map(|_| None)
    })
    .await
}
