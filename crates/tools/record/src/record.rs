//! A recording: from a source onto a ring, until one of them ends.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use uuid::Uuid;
use weir_load::{LaneError, PROGRESS_INTERVAL, Stop};
use weir_pcap::{Packet, Statistics};
use weir_reactor::{Instant, Reactor, Timer};

use crate::format::{ClockSteps, Content, Counts};
use crate::losses::Losses;
use crate::ring::{Ring, WhenFull};
use crate::source::Source;
use crate::streams::{Streams, WallClock};
use crate::supply::{LeftOut, Next, SourceError};
use crate::writer::{CHUNK_BYTES, Gauge, Refused, VolumeFigures, Writer, WriterConfig};

/// Bytes that are taken in one go before others have their turn.
const TURN_BYTES: usize = 256 << 10;
/// Interval between checks for a stop request, losses in the kernel and steps of the clock.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between checks while waiting for room, which another stream may make.
const LOOK_FOR_TAIL: Duration = Duration::from_millis(5);

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
    /// The ring and the source differ in content.
    #[error(
        "the ring holds {}, and {source_name} yields {}; record to another ring, or make a new one of these volumes with --new",
        words(*.ring),
        words(*.source_content)
    )]
    Content {
        /// The ring's.
        ring: Content,
        /// The source.
        source_name: String,
        /// The source's.
        source_content: Content,
    },
    /// Each stream has a segment open, and the ring has none for what comes next.
    #[error(
        "the ring has {segments} segments, too few for {streams} reactors; use fewer --reactors, more or larger volumes, or make a new ring (--new) of smaller segments (--segment-size)"
    )]
    Segments {
        /// The ring's.
        segments: u64,
        /// Streams of the recording.
        streams: u32,
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
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Since it began.
    pub elapsed: Duration,
    /// Counts of what came, and of what became of it.
    pub counts: Counts,
    /// Bytes on the volumes.
    pub written_bytes: u64,
    /// Buffers in use, and all.
    pub buffers: (usize, usize),
    /// Figures of each volume, in the ring's order.
    pub volumes: Vec<VolumeFigures>,
    /// Time for which there was no segment to write to, because the oldest ones were not given up yet.
    pub no_segment: Duration,
    /// Bytes that can be written until the ring is full, or its oldest segments must be given up.
    pub room_bytes: u64,
    /// Slow volumes may cost data: in the recorder, in the kernel, or at the sender.
    pub is_live: bool,
    /// Nothing more is taken; the volumes may still be written to.
    pub has_ended: bool,
    /// Share of the source's own buffer that waits to be taken, from 0 to 1, where it has one.
    pub source_fill: Option<f64>,
    /// Steps of the wall clock.
    pub clock_steps: ClockSteps,
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
    /// Time from the start to the first packet lost in the recorder or the kernel's ring; none if none was.
    pub first_lost: Option<Duration>,
    /// Figures of each volume, in the ring's order.
    pub volumes: Vec<VolumeFigures>,
    /// Time for which there was no segment to write to, because the oldest ones were not given up yet.
    pub no_segment: Duration,
    /// Steps of the wall clock.
    pub clock_steps: ClockSteps,
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
    progress: impl FnMut(Progress),
) -> Result<Recorded, RecordError> {
    let streams = Arc::new(Streams::new(&ring, 1));
    record_stream(ring, (streams, 0), source, config, stop, progress).await
}

/// Records stream number `stream` of a recording that has several, each on a reactor of its own, with the same ring and configuration. The
/// buffer is each stream's.
///
/// # Errors
/// As for [`record()`].
pub async fn record_stream(
    ring: Ring,
    stream: (Arc<Streams>, u32),
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
    let (segments, streams) = (ring.superblock.capacity(), stream.0.count);
    if segments <= u64::from(streams) {
        return Err(RecordError::Segments { segments, streams });
    }
    let reactor = ring.reactor.clone();
    let shared = Arc::clone(&stream.0);
    let settings = WriterConfig {
        when_full: config.when_full,
        sync: config.sync,
        buffers: (config.buffer_bytes as usize / CHUNK_BYTES).max(4),
        has_pressure: source.is_live(),
    };
    let mut run = Run {
        writer: Writer::new(ring, stream, &settings),
        began: reactor.now(),
        shown: reactor.now(),
        has_interfaces: false,
        is_behind: false,
        left_out: LeftOut::default(),
        reported_counts: Counts::default(),
        stops_at: None,
        stops_before: None,
        first_lost: None,
        lost_since: 0,
        kernel_losses: Losses::default(),
        is_live: source.is_live(),
        counted: reactor.now(),
        clock: shared.clock(),
        reported_steps: ClockSteps::default(),
        streams: shared,
        reactor,
    };
    let watch = run.watch();
    watch
        .until_done(run.writer.begin(), source, &mut progress)
        .await;
    // The volumes are to blame for what the kernel had no room for meanwhile.
    run.is_behind = true;
    run.count_left_out(source);
    run.is_behind = false;
    let ended = run.take_all(source, stop, &mut progress).await;
    run.compare_clocks();
    run.report_counts(source, true);
    let watch = Watch {
        has_ended: true,
        ..run.watch()
    };
    watch
        .until_done(run.writer.finish(), source, &mut progress)
        .await;
    progress(watch.progress(source));
    let figures = run.writer.figures();
    let ended = ended?;
    Ok(Recorded {
        recording: run.writer.recording(),
        ended,
        counts: figures.counts,
        committed_bytes: figures.committed_bytes,
        elapsed: run.reactor.now() - run.began,
        first_lost: run.first_lost,
        volumes: figures.volumes,
        no_segment: figures.no_segment,
        clock_steps: run.clock.steps,
        failures: run.writer.take_failures(),
    })
}

/// A packet, or bytes, that came from a source.
#[derive(Clone, Copy)]
struct Item {
    /// Its bytes, and the bytes that it had where it came from.
    length: usize,
    came: usize,
    /// Packets that the source lost before it, and those lost in the kernel that it reports.
    lost_before: u64,
    kernel_lost: u64,
    is_packet: bool,
}

/// The reason for which a turn of taking packets ended.
enum Turn {
    /// Enough was taken: other tasks run now.
    Over,
    /// The source has nothing before this time.
    Wait(Instant),
    /// The source must be read.
    Read,
    /// There is no room yet for something from a source that waits.
    Held(Box<Held>),
    /// The recording ends.
    Ended(Ended),
}

/// A packet, or bytes, to be taken when there is room.
struct Held {
    item: Item,
    data: Vec<u8>,
    content: HeldContent,
}

enum HeldContent {
    Packet(Packet<'static>),
    /// Bytes with their time.
    Bytes(u64),
}

impl Held {
    /// Copies the packet, so that the source can be asked for its counts while the packet waits.
    #[cold]
    fn packet(item: Item, packet: &Packet<'_>) -> Box<Self> {
        Box::new(Held {
            item,
            data: packet.data.to_vec(),
            content: HeldContent::Packet(Packet {
                data: &[],
                interface: packet.interface,
                time: packet.time,
                length: packet.length,
                flags: packet.flags,
                dropped: packet.dropped,
            }),
        })
    }

    #[cold]
    fn bytes(item: Item, bytes: &[u8], time: u64) -> Box<Self> {
        Box::new(Held {
            item,
            data: bytes.to_vec(),
            content: HeldContent::Bytes(time),
        })
    }

    fn give(&self, writer: &mut Writer) -> Result<usize, Refused> {
        match &self.content {
            HeldContent::Packet(packet) => {
                let packet = Packet {
                    data: &self.data,
                    ..packet.clone()
                };
                writer.packet(&packet).map(|()| self.data.len())
            }
            HeldContent::Bytes(time) => writer.bytes(&self.data, *time),
        }
    }
}

struct Run {
    reactor: Reactor,
    writer: Writer,
    began: Instant,
    shown: Instant,
    has_interfaces: bool,
    /// The volumes held the source up, and what waited in its own buffer since was not all taken.
    is_behind: bool,
    /// Packets that the source left out, as last counted, and when.
    left_out: LeftOut,
    counted: Instant,
    /// The counts that were last written.
    reported_counts: Counts,
    /// It was asked to stop: when it does so at the latest, and the time from which on packets are not taken any more.
    stops_at: Option<Instant>,
    stops_before: Option<u64>,
    first_lost: Option<Duration>,
    /// Losses in the recorder since the last packet that was recorded, reported with the next one (epb_dropcount).
    lost_since: u64,
    kernel_losses: Losses,
    is_live: bool,
    streams: Arc<Streams>,
    /// The wall clock as this stream last saw it, and the steps that statistics have reported.
    clock: WallClock,
    reported_steps: ClockSteps,
}

impl Run {
    async fn take_all(
        &mut self,
        source: &mut Source,
        stop: &Stop,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Ended, RecordError> {
        let linger = source.linger();
        loop {
            let now = self.reactor.now();
            if self.look(now, source) {
                self.writer.make_way();
            }
            if now >= self.writer.next_sync() {
                self.report_counts(source, false);
                self.writer.tick(now);
            }
            self.show(now, source, progress);
            // A source that lingers ends when it has handed over what came before.
            if stop.is_asked() && self.has_lingered(linger, now) && linger.is_none() {
                return Ok(Ended::Stopped);
            }
            match self.take_turn(source, now)? {
                Turn::Over => yield_now().await,
                Turn::Wait(until) => {
                    let until = until.min(self.wakes_at(now));
                    self.reactor.sleep_until(until).await;
                }
                Turn::Read if stop.is_asked() && self.has_lingered(linger, now) => {
                    return Ok(Ended::Stopped);
                }
                Turn::Read => {
                    if self.is_behind {
                        self.count_left_out(source);
                        self.is_behind = false;
                    }
                    let until = self.wakes_at(now);
                    if let Some(read) =
                        before(&self.reactor, until, source.read(&self.reactor)).await
                    {
                        read?;
                    }
                }
                Turn::Held(held) => {
                    let taken = self.take_later(source, stop, &held, progress).await;
                    if let Some(ended) = self.note(source, held.item, taken) {
                        return Ok(ended);
                    }
                }
                Turn::Ended(ended) => return Ok(ended),
            }
        }
    }

    /// Takes what the source has now, for one turn.
    fn take_turn(&mut self, source: &mut Source, now: Instant) -> Result<Turn, RecordError> {
        let waits = !source.loses_when_late();
        let wall = self.reactor.system().wall_clock();
        let mut turn = 0;
        while turn < TURN_BYTES {
            let is_late = |time| self.stops_before.is_some_and(|end| time >= end);
            let (item, taken) = match source.next(now, wall)? {
                Next::End => return Ok(Turn::Ended(Ended::Source)),
                Next::Wait(until) => return Ok(Turn::Wait(until)),
                Next::Read => return Ok(Turn::Read),
                Next::Interfaces(all) => {
                    self.has_interfaces = true;
                    if !self.writer.set_interfaces(all) {
                        let name = source.name().to_owned();
                        return Err(SourceError::Interfaces { name }.into());
                    }
                    continue;
                }
                Next::LeftOut(_, time) if is_late(time) => return Ok(Turn::Ended(Ended::Stopped)),
                Next::LeftOut(bytes, _) => {
                    turn += bytes.max(64);
                    continue;
                }
                Next::Packet(packet) if is_late(packet.time) => {
                    return Ok(Turn::Ended(Ended::Stopped));
                }
                Next::Packet(mut packet) => {
                    let item = Item {
                        length: packet.data.len(),
                        came: packet.length as usize,
                        lost_before: packet.dropped.unwrap_or_default(),
                        kernel_lost: self.kernel_losses.before(packet.time),
                        is_packet: true,
                    };
                    // The source may report any number.
                    let lost = self.lost_since.saturating_add(item.kernel_lost);
                    let lost = lost.saturating_add(item.lost_before);
                    packet.dropped = (lost > 0).then_some(lost);
                    match self.writer.packet(&packet) {
                        Err(Refused::Later) if waits => {
                            return Ok(Turn::Held(Held::packet(item, &packet)));
                        }
                        taken => (item, taken.map(|()| item.length)),
                    }
                }
                Next::Bytes(_, Some(time)) if is_late(time) => {
                    return Ok(Turn::Ended(Ended::Stopped));
                }
                Next::Bytes(bytes, time) => {
                    let time = time.unwrap_or(wall.as_nanos() as u64);
                    let item = Item {
                        length: bytes.len(),
                        came: 0,
                        lost_before: 0,
                        kernel_lost: 0,
                        is_packet: false,
                    };
                    match self.writer.bytes(bytes, time) {
                        Err(Refused::Later) if waits => {
                            return Ok(Turn::Held(Held::bytes(item, bytes, time)));
                        }
                        taken => (item, taken),
                    }
                }
            };
            if let Some(ended) = self.note(source, item, taken) {
                return Ok(Turn::Ended(ended));
            }
            turn += taken.unwrap_or(item.length).max(item.came).max(64);
        }
        Ok(Turn::Over)
    }

    /// Counts an item that was taken or lost. Returns the reason if the recording ends here.
    fn note(
        &mut self,
        source: &mut Source,
        item: Item,
        taken: Result<usize, Refused>,
    ) -> Option<Ended> {
        let (bytes, is_lost) = match taken {
            Ok(bytes) => (bytes, false),
            Err(Refused::Later) if source.loses_when_late() => (item.length, true),
            Err(Refused::Later) => {
                self.count_rest(source);
                return Some(Ended::Stopped);
            }
            Err(Refused::Full) => return Some(Ended::Full),
            Err(Refused::Failed) => return Some(Ended::Failed),
        };
        if is_lost {
            self.lost_since = self
                .lost_since
                .saturating_add(item.lost_before)
                .saturating_add(1);
            self.first_lost
                .get_or_insert(self.reactor.now() - self.began);
        } else if item.is_packet {
            self.lost_since = 0;
            self.kernel_losses.report(item.kernel_lost);
        }
        self.writer.count(|counts| {
            counts.received += 1;
            counts.received_bytes += bytes as u64;
            counts.source_lost = counts.source_lost.saturating_add(item.lost_before);
            counts.slow_lost += u64::from(is_lost);
        });
        source.taken(bytes);
        None
    }

    /// Takes something for which there is no room yet, as soon as there is, until the recording is to stop.
    async fn take_later(
        &mut self,
        source: &mut Source,
        stop: &Stop,
        held: &Held,
        progress: &mut impl FnMut(Progress),
    ) -> Result<usize, Refused> {
        while self.may_wait(source.linger(), stop) {
            self.is_behind = true;
            self.wait_for_room().await;
            let now = self.reactor.now();
            self.look(now, source);
            self.show(now, source, progress);
            match held.give(&mut self.writer) {
                Err(Refused::Later) => {}
                done => return done,
            }
        }
        Err(Refused::Later)
    }

    /// Latest time to wake up, even if the source is idle.
    fn wakes_at(&self, now: Instant) -> Instant {
        let until = self.writer.next_sync().min(now + LOOK);
        self.stops_at.map_or(until, |stops_at| until.min(stops_at))
    }

    /// Tells whether the source has had its time since the stop request to hand over packets that came before it.
    fn has_lingered(&mut self, linger: Option<Duration>, now: Instant) -> bool {
        let Some(linger) = linger else {
            return true;
        };
        if self.stops_before.is_none() {
            self.stops_before = Some(self.wall_time());
        }
        now >= *self.stops_at.get_or_insert(now + linger)
    }

    /// Tells whether a packet may wait for room: until the recording is to stop, and for a source that lingers a little longer.
    fn may_wait(&mut self, linger: Option<Duration>, stop: &Stop) -> bool {
        if !stop.is_asked() {
            return true;
        }
        !self.has_lingered(linger, self.reactor.now())
    }

    /// Counts packets that came before the recording was to stop, and for which the volumes had no room until then: the one in hand, and what
    /// the source holds.
    fn count_rest(&mut self, source: &mut Source) {
        let Some(end) = self.stops_before else {
            return;
        };
        let rest = 1 + source.drain(end);
        self.first_lost
            .get_or_insert(self.reactor.now() - self.began);
        self.writer.count(|counts| {
            counts.received += rest;
            counts.slow_lost += rest;
        });
    }

    /// Compares the clocks and counts the source's losses, once every `LOOK`. Returns whether it did.
    fn look(&mut self, now: Instant, source: &mut Source) -> bool {
        if now < self.counted + LOOK {
            return false;
        }
        self.counted = now;
        self.compare_clocks();
        self.count_left_out(source);
        true
    }

    /// Looks for steps of the wall clock, and shifts stored times by them, so that these stay comparable with timestamps of packets.
    fn compare_clocks(&mut self) {
        let clock = self.streams.compare_clocks(&self.reactor);
        let before = std::mem::replace(&mut self.clock, clock);
        let step = clock.offset.wrapping_sub(before.offset) as i64;
        if step != 0 {
            self.kernel_losses.shift(step);
            let end = self.stops_before.as_mut();
            if let Some(end) = end {
                *end = end.saturating_add_signed(step);
            }
        }
    }

    /// Returns the wall clock's time in nanoseconds, after a check for steps.
    fn wall_time(&mut self) -> u64 {
        self.compare_clocks();
        self.reactor.system().wall_clock().as_nanos() as u64
    }

    async fn wait_for_room(&mut self) {
        let now = self.reactor.now();
        // Another stream may be what moves the tail.
        let until = self.wakes_at(now).min(now + LOOK_FOR_TAIL);
        // Others have their turn in any case: room is theirs to make.
        yield_now().await;
        before(&self.reactor, until, self.writer.room()).await;
        self.writer.tick(self.reactor.now());
        self.writer.make_way();
    }

    /// Counts what the source left out. Losses while the volumes held it up are theirs.
    fn count_left_out(&mut self, source: &mut Source) {
        let now = source.left_out();
        let before = std::mem::replace(&mut self.left_out, now);
        let lost = now.socket - before.socket;
        let is_behind = self.is_behind;
        if lost > 0 {
            let now = self.wall_time();
            self.kernel_losses.add(now, lost);
            self.first_lost
                .get_or_insert(self.reactor.now() - self.began);
        }
        self.writer.count(|counts| {
            counts.received += lost;
            *(match is_behind {
                true => &mut counts.slow_lost,
                false => &mut counts.socket_lost,
            }) += lost;
            counts.interface_lost = now.interface;
            counts.filtered = now.filtered;
        });
    }

    /// Writes the counts so far as statistics: for an interface or UDP when they changed, after a step of the clock, and at the end.
    fn report_counts(&mut self, source: &mut Source, is_last: bool) {
        self.count_left_out(source);
        let counts = self.writer.figures().counts;
        let has_changed = source.linger().is_some() && counts != self.reported_counts;
        let is_due = is_last || has_changed || self.clock.steps != self.reported_steps;
        if !self.has_interfaces || !is_due {
            return;
        }
        self.reported_counts = counts;
        let steps = self.clock.steps.since(self.reported_steps);
        let step = (steps.count > 0).then(|| format!("{steps}, since the previous statistics"));
        let comment: Vec<_> = step.into_iter().chain(source.named_counts()).collect();
        let comment = (!comment.is_empty()).then(|| comment.join("\n"));
        // Those of all interfaces, at the first one.
        let statistics = Statistics {
            interface: 0,
            time: self.reactor.system().wall_clock().as_nanos() as u64,
            received: Some(counts.received),
            interface_dropped: Some(counts.source_lost.saturating_add(counts.interface_lost)),
            system_dropped: Some(counts.socket_lost + counts.slow_lost + counts.failed_lost),
            delivered: Some(counts.kept),
            comment,
            ..Statistics::default()
        };
        // If there is no room, nothing is missing: commit records hold the same counts.
        if self.writer.statistics(&statistics).is_ok() {
            self.reported_steps = self.clock.steps;
        }
    }

    /// Shows figures where that is due.
    fn show(&mut self, now: Instant, source: &Source, progress: &mut impl FnMut(Progress)) {
        if now >= self.shown + PROGRESS_INTERVAL {
            self.shown = now;
            progress(self.watch().progress(source));
        }
    }

    fn watch(&self) -> Watch {
        Watch {
            reactor: self.reactor.clone(),
            gauge: self.writer.gauge(),
            began: self.began,
            is_live: self.is_live,
            has_ended: false,
            clock_steps: self.clock.steps,
        }
    }
}

/// Reads the figures of a recording, even while its writer begins or ends.
struct Watch {
    reactor: Reactor,
    gauge: Gauge,
    began: Instant,
    is_live: bool,
    has_ended: bool,
    clock_steps: ClockSteps,
}

impl Watch {
    /// Shows figures every `PROGRESS_INTERVAL` until `what` is done.
    async fn until_done(
        &self,
        what: impl Future<Output = ()>,
        source: &Source,
        progress: &mut impl FnMut(Progress),
    ) {
        let mut what = pin!(what);
        loop {
            let until = self.reactor.now() + PROGRESS_INTERVAL;
            if before(&self.reactor, until, what.as_mut()).await.is_some() {
                return;
            }
            progress(self.progress(source));
        }
    }

    fn progress(&self, source: &Source) -> Progress {
        let figures = self.gauge.figures();
        Progress {
            elapsed: self.reactor.now() - self.began,
            counts: figures.counts,
            written_bytes: figures.written_bytes,
            buffers: figures.buffers,
            volumes: figures.volumes,
            no_segment: figures.no_segment,
            room_bytes: figures.room_bytes,
            is_live: self.is_live,
            has_ended: self.has_ended,
            source_fill: source.fill(),
            clock_steps: self.clock_steps,
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

/// Waits for a future until a deadline, and drops it then: it must be safe to start again.
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
