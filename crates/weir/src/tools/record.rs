//! `weir record`: streams onto a ring of volumes, and back by time.

mod control;
mod metrics;
mod planned;
mod privilege;
mod report;
mod simulated;
mod source;
mod status;
mod streams;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, bail};
use serde_json::json;
use uuid::Uuid;
use weir_block::Volume;
use weir_block::size::Size;
use weir_lab::secret::without_in_text;
use weir_load::Stop;
use weir_plan::units;
use weir_reactor::Reactor;
use weir_record::{
    ClockSteps, Content, Counts, Damage, Ended, Extract, Extracted, Listed, Progress as Figures,
    RecordConfig, Recorded, Ring, RingConfig, RingError, VolumeFigures, WhenFull, extract, follow,
    list,
};
use weir_volume::{Access, VolumeUrl};

use super::destroy::DestroyArguments;
use super::interrupt::end_on_interrupt;
use super::present::{self, Progress, grouped};
use super::session::Session;
use super::{ReactorArguments, duration, size};
use crate::table::table;
use report::Report;
use status::{About, View, holds_seconds};

/// Shortest time without a free buffer or segment that the summary mentions.
const HELD_UP_MIN: Duration = Duration::from_millis(10);
/// Time after which it is looked whether something was committed.
const FOLLOW: Duration = Duration::from_millis(200);

/// Record packets or bytes onto a ring of volumes, and read them back by time
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct RecordArguments {
    #[command(subcommand)]
    command: Option<RecordCommand>,
    /// Source: interface:NAME, pcap:FILE (pcap or pcapng), bytes:FILE (- is standard input), tcp:ADDRESS:PORT,
    /// udp:ADDRESS:PORT, generate:packets or generate:bytes; see docs/record.md
    #[arg(required = true)]
    source: Option<VolumeUrl>,
    /// The volumes of the ring, all of them
    #[arg(required = true, value_name = "VOLUME")]
    volumes: Vec<VolumeUrl>,
    /// Make a new ring on the volumes; what they hold is lost
    #[arg(long)]
    new: bool,
    /// With --new: bytes of a segment, each of which lies on one volume: 4M to 1G
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size, requires = "new")]
    segment_size: u64,
    /// When the ring is full: overwrite the oldest segments (round), or end the recording (stop)
    #[arg(long, value_name = "round|stop", default_value = "round", value_parser = parse_when_full)]
    when_full: WhenFull,
    /// Interval at which packets are committed to stable storage; a crash loses at most about as much
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    sync: Duration,
    /// Memory that buffers data for the volumes, for each reactor. When it is full, a source with rate= or pace=own loses data, an
    /// interface's packets and UDP datagrams wait in the kernel, and other sources wait
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    buffer: u64,
    /// Record only packets that match this filter, as tcpdump takes it (man 7 pcap-filter; needs libpcap); for interfaces, UDP and packet files
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
    /// Keep only the first SIZE bytes of each packet; for interfaces and UDP
    #[arg(long, value_name = "SIZE", value_parser = size)]
    snap_length: Option<u64>,
    /// Threads that record an interface or a UDP port; the kernel divides the packets among them by flow. Each has its own kernel
    /// ring or socket, and its own --buffer
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    reactors: u16,
    /// Serve Prometheus metrics of the recording at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "simulated")]
    metrics: Option<String>,
    /// Write an HTML report with charts, in one file, when the recording ends
    #[arg(long, visible_alias = "html", value_name = "FILE")]
    report: Option<PathBuf>,
    /// Run in simulated time on modelled drives (ssd:PROFILE), with a generate: source; nothing is stored
    #[arg(long, requires = "new")]
    simulated: bool,
    #[command(flatten)]
    planned: planned::PlanArguments,
    #[command(flatten)]
    destroy: DestroyArguments,
}

#[derive(Debug, clap::Subcommand)]
enum RecordCommand {
    /// List the recordings of a ring
    List {
        /// Volumes of the ring; what is on volumes that are not named is left out, with a warning
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<VolumeUrl>,
    },
    /// Extract packets as a pcapng file, or bytes as they came
    Extract {
        /// Volumes of the ring; what is on volumes that are not named is left out, with a warning
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<VolumeUrl>,
        /// The file that is made, for its owner alone; - is standard output
        #[arg(long, short = 'o', value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        which: Which,
    },
    /// Extract what is recorded from now on, as it is committed, until it is interrupted
    Follow {
        /// The volumes of the ring
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<VolumeUrl>,
        /// The file that is made, for its owner alone; - is standard output, for `| tshark -r -`
        #[arg(long, short = 'o', value_name = "FILE", default_value = "-")]
        out: PathBuf,
        #[command(flatten)]
        packets: Packets,
    },
    /// Read all that was recorded, and compare it with its checksums
    Verify {
        /// Volumes of the ring; what is on volumes that are not named is left out, with a warning
        #[arg(required = true, value_name = "VOLUME")]
        volumes: Vec<VolumeUrl>,
    },
}

/// Selection of packets
#[derive(Debug, Default, clap::Args)]
struct Which {
    /// From this time on: 2026-11-28T19:30:00Z, or seconds since the beginning of 1970
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    from: Option<u64>,
    /// Before this time
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    to: Option<u64>,
    /// Only the last DURATION before the newest packet, such as 1m
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["from", "to"])]
    last: Option<Duration>,
    /// Only this recording; `weir record list` shows the IDs
    #[arg(long, value_name = "ID")]
    recording: Option<Uuid>,
    #[command(flatten)]
    packets: Packets,
}

/// Selection of packets by what they are
#[derive(Debug, Default, clap::Args)]
struct Packets {
    /// Packets at most
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Only packets that match this filter, as tcpdump takes it (man 7 pcap-filter; needs libpcap)
    #[arg(long, value_name = "EXPRESSION")]
    filter: Option<String>,
}

fn parse_when_full(text: &str) -> Result<WhenFull, String> {
    match text {
        "round" => Ok(WhenFull::GoRound),
        "stop" => Ok(WhenFull::Stop),
        _ => Err("say round or stop".to_owned()),
    }
}

/// A time in nanoseconds since the beginning of 1970.
fn parse_time(text: &str) -> Result<u64, String> {
    let nanoseconds = |since: Duration| u64::try_from(since.as_nanos()).ok();
    let seconds = text.parse::<f64>().ok();
    let seconds = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = match seconds {
        Some(since) => nanoseconds(since),
        None => humantime::parse_rfc3339_weak(text)
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .and_then(nanoseconds),
    };
    time.ok_or_else(|| {
        format!("'{text}' is no time: write 2026-11-28T19:30:00Z (UTC), or seconds since the beginning of 1970")
    })
}

fn time_text(nanoseconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_nanos(nanoseconds);
    humantime::format_rfc3339_nanos(time).to_string()
}

pub(crate) fn run(arguments: RecordArguments, json: bool) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Some(RecordCommand::List { volumes }) => run_list(&volumes, json),
        Some(RecordCommand::Extract {
            volumes,
            out,
            which,
        }) => run_read(&volumes, Some(&out), &which, false, json),
        Some(RecordCommand::Follow {
            volumes,
            out,
            packets,
        }) => {
            let which = Which {
                packets,
                ..Which::default()
            };
            run_read(&volumes, Some(&out), &which, true, json)
        }
        Some(RecordCommand::Verify { volumes }) => {
            run_read(&volumes, None, &Which::default(), false, json)
        }
        None => run_record(arguments, json),
    }
}

fn open_all(
    session: &Session,
    urls: &[VolumeUrl],
    access: Access,
) -> anyhow::Result<Vec<Arc<dyn Volume>>> {
    urls.iter().map(|url| session.open(url, access)).collect()
}

fn run_record(arguments: RecordArguments, json: bool) -> anyhow::Result<ExitCode> {
    let url = arguments.source.expect("it is asked for");
    arguments.destroy.check(&arguments.volumes)?;
    if arguments.sync.is_zero() {
        bail!("--sync 0 would put each packet on stable storage by itself; say 100ms or more");
    }
    let segment_bytes = u32::try_from(arguments.segment_size).unwrap_or(u32::MAX);
    if !RingConfig::SEGMENT_BYTES.contains(&segment_bytes) || segment_bytes % 4096 != 0 {
        bail!("--segment-size is 4M to 1G, and a multiple of 4k");
    }
    let report = arguments
        .report
        .map(|file| Report::new(file, &url, &arguments.volumes));
    let report = report.transpose()?;
    let wanted = source::Wanted {
        filter: arguments.filter,
        snap_length: arguments.snap_length,
        streams: arguments.reactors,
    };
    let mut opened = source::open(&url, &wanted)?;
    let content = opened.content;
    let note_when_ready = opened.note.take();
    // The sockets are open: CAP_NET_RAW is no longer needed.
    privilege::drop_net_raw()?;
    let config = RecordConfig {
        when_full: arguments.when_full,
        sync: arguments.sync,
        buffer_bytes: arguments.buffer,
    };
    let retain = arguments.planned.retain;
    let planned = arguments.planned.read(opened.line, config.when_full)?;
    let new = arguments.new.then_some(RingConfig {
        content,
        segment_bytes,
    });
    if arguments.simulated {
        if url.scheme() != "generate" {
            bail!(
                "--simulated runs in simulated time and needs a generate: source, such as generate:packets?rate=10Gb/s, not {url}"
            );
        }
        let stop = Stop::new();
        end_on_interrupt(&stop)?;
        let progress = Progress::start();
        let (mut sink, mut note) = (progress.sink(), progress.notes());
        let mut view = View::default();
        let kept = report.clone();
        let show = move |about: &About, figures: &Figures| {
            let (line, warnings) = view.line(about, figures);
            sink(line);
            warnings.into_iter().for_each(&mut note);
            if let Some(report) = &kept {
                report.add(figures);
            }
        };
        let ring = new.expect("it requires --new");
        let (about, recorded) = simulated::run(
            &arguments.volumes,
            ring,
            opened.parts.remove(0),
            config,
            &stop,
            show,
        )?;
        drop(progress);
        return finish(&about, &recorded, report.as_ref(), json);
    }
    let pages = arguments
        .metrics
        .as_deref()
        .map(control::listen)
        .transpose()?;
    let reactors = ReactorArguments::of(Some(arguments.reactors.into()));
    let session = Session::start(&reactors, arguments.reactors.into())?;
    let volumes = open_all(&session, &arguments.volumes, Access::READ_WRITE)?;
    if arguments.new {
        for (volume, url) in volumes.iter().zip(&arguments.volumes) {
            session.check_overwritable(volume, url, arguments.destroy.names(url))?;
        }
    } else {
        for (volume, url) in volumes.iter().zip(&arguments.volumes) {
            session.check_not_held(volume, url)?;
        }
    }
    let ready = session.run(move |reactor| async move {
        let ring = match new {
            Some(config) => Ring::make(&reactor, &volumes, &config).await,
            None => Ring::open(&reactor, &volumes, true).await,
        };
        ring.map(|ring| {
            let about = About::of(&ring, config.when_full, retain);
            let ready = streams::Prepared::of(&ring, opened.parts);
            (ready, about, ring.ahead_bytes())
        })
    })?;
    let (ready, about, ahead) = ready.map_err(|error| match error {
        RingError::NoRing { .. } => {
            anyhow::Error::from(error).context("to make a ring on these volumes, say --new")
        }
        _ => error.into(),
    })?;
    if let Some(planned) = planned {
        planned.print(arguments.volumes.len(), config.buffer_bytes, ahead)?;
    }
    let progress = Progress::start();
    let (mut sink, mut note) = (progress.sink(), progress.notes());
    let (mut view, shown) = (View::default(), about.clone());
    let latest = control::Latest::default();
    let (served, kept) = (Arc::clone(&latest), report.clone());
    let show = move |figures: &Figures| {
        let (line, warnings) = view.line(&shown, figures);
        sink(line);
        warnings.into_iter().for_each(&mut note);
        if let Some(report) = &kept {
            report.add(figures);
        }
        *served.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(figures.clone()));
    };
    if let Some(note) = note_when_ready {
        eprintln!("{note}");
    }
    let control = control::Control::start(&about, ready.streams.pressure(), latest, pages);
    let recorded = streams::record(&session, ready, config, show);
    drop(control);
    drop(progress);
    let recorded = match (recorded, &report) {
        (Err(error), Some(report)) => {
            report.write(&about, Err(&error))?;
            return Err(error);
        }
        (recorded, _) => recorded?,
    };
    finish(&about, &recorded, report.as_ref(), json)
}

/// Prints how a recording went, and writes its report.
fn finish(
    about: &About,
    recorded: &Recorded,
    report: Option<&Report>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    for failure in &recorded.failures {
        eprintln!("warning: {}", without_in_text(&failure.to_string()));
    }
    if json {
        println!(
            "{}",
            serde_json::to_string_pretty(&record_json(about, recorded))?
        );
    } else {
        super::print(&record_text(about, recorded))?;
    }
    if let Some(report) = report {
        report.write(about, Ok(recorded))?;
    }
    let is_well = recorded.ended != Ended::Failed && recorded.failures.is_empty();
    Ok(if is_well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn ended_word(ended: Ended) -> &'static str {
    match ended {
        Ended::Source => "source",
        Ended::Stopped => "stopped",
        Ended::Full => "full",
        Ended::Failed => "failed",
    }
}

fn ended_text(ended: Ended) -> &'static str {
    match ended {
        Ended::Source => "the source has no more",
        Ended::Stopped => "stopped",
        Ended::Full => "the ring is full",
        Ended::Failed => "every volume of the ring failed",
    }
}

fn counts_json(counts: &Counts) -> serde_json::Value {
    json!({
        "received": counts.received,
        "received_bytes": counts.received_bytes,
        "kept": counts.kept,
        "lost_before": counts.source_lost,
        "lost_slow": counts.slow_lost,
        "lost_failed": counts.failed_lost,
        "lost_socket": counts.socket_lost,
        "lost_interface": counts.interface_lost,
        "filtered": counts.filtered,
    })
}

fn record_json(about: &About, recorded: &Recorded) -> serde_json::Value {
    let seconds = recorded.elapsed.as_secs_f64();
    let volume = |(name, figures): (&String, &VolumeFigures)| {
        json!({
            "name": name,
            "written_bytes": figures.written_bytes,
            "waited_seconds": figures.waited.as_secs_f64(),
            "held_up_seconds": figures.held_up.as_secs_f64(),
            "has_failed": figures.has_failed,
        })
    };
    let volumes = about.volumes.iter().zip(&recorded.volumes).map(volume);
    json!({
        "ring": about.ring,
        "recording": recorded.recording,
        "ended": ended_word(recorded.ended),
        "counts": counts_json(&recorded.counts),
        "committed_bytes": recorded.committed_bytes,
        "ring_holds_seconds": holds_seconds(about.capacity_bytes, recorded.committed_bytes, seconds),
        "elapsed_seconds": seconds,
        "first_lost_seconds": recorded.first_lost.map(|at| at.as_secs_f64()),
        "bytes_per_second": recorded.committed_bytes as f64 / seconds.max(1e-9),
        "no_segment_seconds": recorded.no_segment.as_secs_f64(),
        "clock_steps": clock_json(recorded.clock_steps),
        "volumes": volumes.collect::<Vec<_>>(),
        "failures": recorded.failures.iter().map(|one| without_in_text(&one.to_string())).collect::<Vec<_>>(),
    })
}

fn clock_json(steps: ClockSteps) -> serde_json::Value {
    json!({ "count": steps.count, "seconds": steps.seconds() })
}

fn things(content: Content) -> &'static str {
    match content {
        Content::Packets => "packets",
        Content::Bytes => "reads",
    }
}

fn record_text(about: &About, recorded: &Recorded) -> String {
    let counts = &recorded.counts;
    let seconds = recorded.elapsed.as_secs_f64().max(1e-9);
    let why = ended_text(recorded.ended);
    let mut text = format!(
        "recorded {} of {} {} in {seconds:.1} s, {} at {}; {why}\n",
        grouped(counts.kept),
        grouped(counts.received),
        things(about.content),
        Size(recorded.committed_bytes),
        present::rate(recorded.committed_bytes as f64 / seconds),
    );
    for (count, words) in [
        (
            counts.source_lost,
            "before the recorder, as the source reports",
        ),
        (
            counts.interface_lost,
            "by the interface, as the kernel counts (rx_dropped)",
        ),
        (
            counts.socket_lost,
            "because the recorder was too slow to empty the kernel's buffer; a larger buffer (ring= for interfaces, receive-buffer= for UDP) or more --reactors may help",
        ),
        (
            counts.slow_lost,
            "because the volumes were too slow; more volumes or a larger --buffer help",
        ),
        (counts.failed_lost, "on volumes that failed"),
    ] {
        if count > 0 {
            text.push_str(&format!("lost     {} {words}\n", grouped(count)));
        }
    }
    if let Some(at) = recorded.first_lost {
        text.push_str(&format!("first loss after {:.3} s\n", at.as_secs_f64()));
    }
    let held_up: Duration = recorded.volumes.iter().map(|one| one.held_up).sum();
    if held_up >= HELD_UP_MIN {
        let seconds = held_up.as_secs_f64();
        text.push_str(&format!("no free buffer for {seconds:.3} s"));
        let parts = recorded.volumes.iter().map(|one| one.held_up.as_secs_f64());
        if let Some(name) = about.behind(&recorded.volumes, &parts.collect::<Vec<_>>()) {
            text.push_str(&format!("; the slowest volume was {name}"));
        }
        text.push('\n');
    }
    if recorded.no_segment >= HELD_UP_MIN {
        let seconds = recorded.no_segment.as_secs_f64();
        text.push_str(&format!(
            "no free segment for {seconds:.3} s, because the oldest were not freed fast enough\n"
        ));
    }
    let capacity = about.capacity_bytes;
    if let Some(holds) = holds_seconds(capacity, recorded.committed_bytes, seconds) {
        let holds = units::time_text(holds);
        text.push_str(&format!("at this rate the ring holds {holds}\n"));
    }
    if recorded.clock_steps.count > 0 {
        text.push_str(&format!("{}\n", recorded.clock_steps));
    }
    text.push_str(&format!("recording {}\n", recorded.recording));
    text
}

/// Opens a ring for reading. Reads yield to a recorder of it.
async fn open_to_read(
    reactor: &Reactor,
    volumes: &[Arc<dyn Volume>],
    stop: &Stop,
) -> Result<Ring, RingError> {
    Ring::open_behind(reactor, volumes, control::pressure_of, stop).await
}

fn run_list(urls: &[VolumeUrl], json: bool) -> anyhow::Result<ExitCode> {
    let session = Session::start(&ReactorArguments { reactors: Some(1) }, 1)?;
    let volumes = open_all(&session, urls, Access::READ_ONLY)?;
    let stop = session.stop.clone();
    let found = session.run(move |reactor| async move {
        let ring = open_to_read(&reactor, &volumes, &stop).await?;
        let about = (ring.id(), ring.content(), ring.capacity_bytes());
        Ok::<_, RingError>((about, ring.missing(), list(&ring)))
    })?;
    let ((id, content, capacity), missing, listed) = found?;
    warn_of_missing(&missing);
    if json {
        let recordings: Vec<_> = listed.iter().map(listed_json).collect();
        let listed = json!({
            "ring": id,
            "content": things(content),
            "capacity_bytes": capacity,
            "missing": missing,
            "recordings": recordings,
        });
        println!("{}", serde_json::to_string_pretty(&listed)?);
        return Ok(ExitCode::SUCCESS);
    }
    let row = |one: &Listed| {
        let state = match (one.is_cut, one.is_closed) {
            (false, true) => "whole",
            (true, true) => "its beginning was given up",
            (_, false) => "did not end in order",
        };
        let clock = match one.clock_steps.count {
            0 => String::new(),
            _ => format!("; {}", one.clock_steps),
        };
        [
            one.recording.to_string(),
            time_text(one.first),
            time_text(one.last),
            grouped(one.packets),
            Size(one.bytes).to_string(),
            grouped(one.counts.lost()),
            format!("{state}{clock}"),
        ]
    };
    let rows: Vec<_> = listed.iter().map(row).collect();
    let heading = match content {
        Content::Packets => "PACKETS",
        Content::Bytes => "READS",
    };
    let columns = [
        "RECORDING",
        "FIRST",
        "LAST",
        heading,
        "SIZE",
        "LOST",
        "STATE",
    ];
    super::print(&table(columns, &rows))?;
    Ok(ExitCode::SUCCESS)
}

fn listed_json(one: &Listed) -> serde_json::Value {
    json!({
        "recording": one.recording,
        "first": time_text(one.first),
        "last": time_text(one.last),
        "packets": one.packets,
        "bytes": one.bytes,
        "segments": one.segments,
        "is_cut": one.is_cut,
        "is_closed": one.is_closed,
        "counts": counts_json(&one.counts),
        "clock_steps": clock_json(one.clock_steps),
    })
}

fn warn_of_missing(missing: &[u32]) {
    if !missing.is_empty() {
        let numbers: Vec<_> = missing.iter().map(u32::to_string).collect();
        eprintln!(
            "warning: volumes of the ring are missing (numbers {}): what is on them is left out",
            numbers.join(", ")
        );
    }
}

/// Nothing is kept of what is only checked.
struct Nothing;

impl Write for Nothing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn output_of(path: &Path) -> anyhow::Result<Box<dyn Write + Send>> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdout()));
    }
    let mut options = File::options();
    // Recordings may be what nobody else is to see.
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    match opened {
        Ok(file) => Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            bail!("{} exists; name another file, or remove it", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
    }
}

/// Removes an output that nothing was written to, so that the same command can be given again.
fn remove_empty(path: &Path) {
    let is_empty = |file: std::fs::Metadata| file.is_file() && file.len() == 0;
    if path != Path::new("-") && std::fs::symlink_metadata(path).is_ok_and(is_empty) {
        // If it cannot be removed, the next run says that it exists.
        let _ = std::fs::remove_file(path);
    }
}

fn run_read(
    urls: &[VolumeUrl],
    out: Option<&Path>,
    which: &Which,
    follows: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    if json && out == Some(Path::new("-")) {
        bail!("--json and --out - both want standard output; name a file");
    }
    let session = Session::start(&ReactorArguments { reactors: Some(1) }, 1)?;
    let volumes = open_all(&session, urls, Access::READ_ONLY)?;
    let writer: Box<dyn Write + Send> = match out {
        None => Box::new(Nothing),
        Some(path) => output_of(path)?,
    };
    let (stop, last) = (session.stop.clone(), which.last);
    let (from, to) = (which.from.unwrap_or(0), which.to.unwrap_or(u64::MAX));
    let mut what = Extract {
        times: from..to,
        recording: which.recording,
        count: which.packets.count,
        filter: which.packets.filter.clone(),
    };
    let extracted = session.run(move |reactor| async move {
        let ring = open_to_read(&reactor, &volumes, &stop).await?;
        let listed = list(&ring);
        if let Some(only) = what.recording
            && !listed.iter().any(|one| one.recording == only)
        {
            bail!(
                "there is no recording {only} in the ring; `weir record list` lists what there is"
            );
        }
        if let Some(last) = last {
            let of = listed
                .iter()
                .filter(|one| what.recording.is_none_or(|only| only == one.recording));
            let newest = of.map(|one| one.last).max().unwrap_or_default();
            what.times.start = newest.saturating_sub(last.as_nanos() as u64);
        }
        let mut writer = BufWriter::with_capacity(1 << 20, writer);
        let (missing, things) = (ring.missing(), things(ring.content()));
        let done = match follows {
            true => follow(ring, &what, FOLLOW, &stop, &mut writer).await?,
            false => extract(&ring, &what, &stop, &mut writer).await?,
        };
        writer.flush()?;
        Ok((things, missing, done))
    })?;
    if let (Err(_), Some(path)) = (&extracted, out) {
        remove_empty(path);
    }
    let (things, missing, done) = extracted?;
    warn_of_missing(&missing);
    for damage in &done.damaged {
        eprintln!("warning: {}", without_in_text(&damage_text(damage)));
    }
    if json {
        println!(
            "{}",
            serde_json::to_string_pretty(&extracted_json(&done, &missing))?
        );
    } else {
        let verb = if out.is_some() {
            "extracted"
        } else {
            "checked"
        };
        let damaged = match done.damaged.len() {
            0 => String::new(),
            count => format!("; {count} chunks are damaged"),
        };
        let given_up = match done.given_up {
            0 => String::new(),
            count => format!("; {count} were given up meanwhile"),
        };
        let filtered = match done.filtered {
            0 => String::new(),
            count => format!("; {} did not match the filter", grouped(count)),
        };
        let text = format!(
            "{verb} {} {things}, {} in {} chunks{filtered}{damaged}{given_up}\n",
            grouped(done.packets),
            Size(done.bytes),
            grouped(done.chunks),
        );
        // Standard output has what was extracted.
        match out == Some(Path::new("-")) {
            true => eprint!("{text}"),
            false => super::print(&text)?,
        }
    }
    Ok(match done.damaged.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn damage_text(damage: &Damage) -> String {
    format!(
        "{} packets from {} to {} are left out: the chunk at byte {} of {} cannot be read as it was written: {}",
        damage.packets,
        time_text(damage.times.start),
        time_text(damage.times.end.saturating_sub(1)),
        damage.at,
        damage.volume,
        damage.why
    )
}

fn extracted_json(done: &Extracted, missing: &[u32]) -> serde_json::Value {
    let damage = |one: &Damage| {
        json!({
            "volume": without_in_text(&one.volume),
            "at": one.at,
            "packets": one.packets,
            "first": time_text(one.times.start),
            "last": time_text(one.times.end.saturating_sub(1)),
            "why": one.why,
        })
    };
    json!({
        "packets": done.packets,
        "filtered": done.filtered,
        "bytes": done.bytes,
        "chunks": done.chunks,
        "given_up": done.given_up,
        "missing": missing,
        "damaged": done.damaged.iter().map(damage).collect::<Vec<_>>(),
    })
}
