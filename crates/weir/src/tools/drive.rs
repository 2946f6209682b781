//! `weir drive`: what drives sustain when they are written from end to end.

mod holds;
mod keeper;
mod modelled;
mod show;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use weir_block::Volume;
use weir_drive::config::{BLOCK_BYTES, Config, DEPTH, DEPTH_MAX, IDLE, Limits};
use weir_drive::data::BLOCK_BYTES_MAX;
use weir_drive::real::{self, Held, Subject};
use weir_drive::{Document, DriveState, Identity, PassKind, State};
use weir_lab::document::Machine;
use weir_lab::secret::{without, without_in_text};
use weir_load::Stop;
use weir_volume::{Access, VolumeUrl};

use super::destroy::DestroyArguments;
use super::interrupt::end_on_interrupt;
use super::present::Progress;
use super::report::{put, refuse_replacing, try_put};
use super::session::Session;
use super::{ReactorArguments, duration, print, size};

use keeper::{Keep, Keeper, kept_beside};

/// Qualify drives: fill each, write it again, and find what it sustains
#[derive(Debug, clap::Args)]
pub(crate) struct DriveArguments {
    /// The drives, such as file:/dev/nvme1n1. Several are written at the same time. What they hold is lost
    #[arg(value_name = "URL", required = true)]
    urls: Vec<VolumeUrl>,
    /// Bytes per write
    #[arg(long, short = 'b', value_name = "SIZE", default_value_t = BLOCK_BYTES, hide_default_value = true, value_parser = size, help = "Bytes per write [default: 256k]")]
    block_size: u64,
    /// Writes in flight on each drive
    #[arg(long, short = 'd', visible_alias = "queue-depth", value_name = "N", default_value_t = DEPTH, value_parser = clap::value_parser!(u32).range(1..=i64::from(DEPTH_MAX)))]
    depth: u32,
    /// The passes, in this order: fill, overwrite, overwrite-trimmed (what lies ahead of the writes is deallocated) and recovery (idle, then a burst)
    #[arg(long, value_name = "PASS,...", value_delimiter = ',', value_parser = pass, default_value = "fill,overwrite,overwrite-trimmed,recovery")]
    passes: Vec<PassKind>,
    /// Write only the first so many bytes of each drive
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Overwrite-trimmed: deallocate for so many bytes ahead of the writes [default: a hundredth of what is written]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    trim_ahead: Option<u64>,
    /// Recovery: ask nothing of the drive for so long before the burst [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    idle: Option<Duration>,
    /// Deallocate everything first
    #[arg(long)]
    purge: bool,
    #[command(flatten)]
    destroy: DestroyArguments,
    /// Measure the drives as one stripe: of them (RAID 0), which leaves its label on each
    #[arg(long)]
    stripe: bool,
    /// With --stripe: bytes on one drive before the next one
    #[arg(long, value_name = "SIZE", requires = "stripe", default_value = "128k", value_parser = size)]
    chunk: u64,
    /// Take modelled drives (ssd:) on a clock of their own, so that hours take seconds; nothing is written anywhere
    #[arg(long, conflicts_with_all = ["resume", "destroy_data", "seed"])]
    simulated: bool,
    /// What the data comes from that is written (a modelled drive has its seed in its URL)
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Store the whole result in this file, for `weir plan`; beside it the run is kept while it goes on (FILE.kept), to be taken up again
    #[arg(long, short = 'o', value_name = "FILE")]
    output: Option<PathBuf>,
    /// Take up the run that was interrupted, with the same drives and options
    #[arg(long, requires = "output")]
    resume: bool,
    /// Write a report with drawings, as one HTML file
    #[arg(long, visible_alias = "html", value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Why there is no run to take up.
#[derive(Debug, thiserror::Error)]
enum ResumeError {
    /// None was kept.
    #[error("there is no run to take up: {} is not there; begin one without --resume", kept.display())]
    Nothing { kept: PathBuf },
    /// It has ended.
    #[error(
        "the run has ended, and there is nothing of it to take up: {output} holds its whole result, and {} is not there; \
         weir report {output} and weir plan record --drive {output} read it, and without --resume a new run takes its place",
        kept.display(),
        output = output.display()
    )]
    Ended { output: PathBuf, kept: PathBuf },
}

/// The whole result in this file of a run that has ended; none where one is kept beside it that goes on, or the file has none.
pub(super) fn ended(output: &Path) -> Option<Document> {
    if kept_beside(output).exists() {
        return None;
    }
    let file = std::fs::File::open(output).ok()?;
    let document = Document::read(std::io::BufReader::new(file)).ok()?;
    document.complete.then_some(document)
}

fn pass(text: &str) -> Result<PassKind, String> {
    PassKind::ALL
        .into_iter()
        .find(|pass| pass.name() == text)
        .ok_or_else(|| {
            let names = PassKind::ALL.map(PassKind::name);
            format!("'{text}' is no pass; there are {}", names.join(", "))
        })
}

pub(crate) fn run(arguments: DriveArguments, json: bool) -> anyhow::Result<ExitCode> {
    let started = SystemTime::now();
    arguments.check()?;
    let config = arguments.config();
    let state = match arguments.simulated {
        true => (arguments.simulated(&config, started)?, None),
        false => {
            let (state, keeper) = arguments.really(&config, started)?;
            (state, Some(keeper))
        }
    };
    let (state, keeper) = state;
    let document = Document {
        simulated: arguments.simulated,
        ..document(&state)
    };
    // What took hours to measure is told and stored wherever it can be, and what was kept is removed only after that.
    let stored = arguments.store(&document);
    if let (Err(_), Some(keeper)) = (&stored, &keeper) {
        keeper.keep(&state);
    }
    let reported = arguments.report(&document);
    let printed = match json {
        true => serde_json::to_string_pretty(&document)
            .map_err(anyhow::Error::from)
            .and_then(|text| print(&(text + "\n"))),
        false => print(&show::text(&document)),
    };
    if let (Ok(()), Some(keeper)) = (&stored, &keeper) {
        match state.is_complete() {
            true => keeper.remove(),
            false => keeper.keep(&state),
        }
    }
    let judged = arguments.judge(&state);
    let errors = [stored, reported, printed]
        .into_iter()
        .filter_map(Result::err);
    let errors: Vec<_> = errors.collect();
    for error in errors.iter().skip(1) {
        eprintln!("weir: {error:#}");
    }
    errors.into_iter().next().map_or(Ok(judged), Err)
}

/// The result of what was measured so far.
fn document(state: &State) -> Document {
    let drives = state.drives.iter().map(|drive| drive.drive(&state.config));
    let arguments: Vec<String> = std::env::args().collect();
    Document {
        together: state.together(),
        command: without(&arguments),
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        started: state.started.clone(),
        machine: Machine::this(std::thread::available_parallelism().map_or(1, usize::from) as u32),
        complete: state.is_complete(),
        caveats: state.caveats(),
        ..Document::new(drives.collect())
    }
}

impl DriveArguments {
    /// Refuses what cannot be meant, before anything is opened.
    fn check(&self) -> anyhow::Result<()> {
        let twice = (1..self.urls.len()).find(|&at| self.urls[..at].contains(&self.urls[at]));
        if let Some(at) = twice {
            bail!("{} is named twice; name each drive once", self.urls[at]);
        }
        self.destroy.check(&self.urls)?;
        if self.stripe && self.urls.len() < 2 {
            bail!("--stripe needs two drives at least");
        }
        if self.stripe && self.chunk == 0 {
            bail!("--chunk must be at least one block");
        }
        for (option, is_said, pass) in [
            (
                "--trim-ahead",
                self.trim_ahead.is_some(),
                PassKind::OverwriteTrimmed,
            ),
            ("--idle", self.idle.is_some(), PassKind::Recovery),
        ] {
            if is_said && !self.passes.contains(&pass) {
                let pass = pass.name();
                bail!(
                    "{option} is of the pass {pass}, which --passes leaves out: leave the option out too, or add {pass} to the passes"
                );
            }
        }
        let mut others: Vec<&Path> = Vec::new();
        for file in self.output.iter().chain(&self.report) {
            refuse_replacing(file, &others)?;
            others.push(file);
            try_put(file).with_context(|| format!("{} cannot be written", file.display()))?;
        }
        let Some(output) = &self.output else {
            return Ok(());
        };
        let kept = kept_beside(output);
        if self.resume && !kept.exists() {
            let output = output.clone();
            bail!(match ended(&output) {
                Some(_) => ResumeError::Ended { output, kept },
                None => ResumeError::Nothing { kept },
            });
        }
        if !self.resume && !self.simulated && kept.exists() {
            bail!(
                "{} keeps a run that was interrupted: take it up with --resume, or remove that file to begin anew",
                kept.display()
            );
        }
        Ok(())
    }

    fn config(&self) -> Config {
        Config {
            block_bytes: self.block_size,
            depth: self.depth,
            size_bytes: self.size,
            passes: self.passes.clone(),
            trim_ahead_bytes: self.trim_ahead,
            idle: self.idle.unwrap_or(IDLE),
            purge: self.purge,
            seed: self.seed,
        }
    }

    /// Has the models of the drives do what the drives would.
    fn simulated(&self, config: &Config, started: SystemTime) -> anyhow::Result<State> {
        let stop = Stop::new();
        end_on_interrupt(&stop)?;
        let progress = Progress::start();
        let chunk = self.stripe.then_some(self.chunk);
        let drives = modelled::run(&self.urls, chunk, config, &stop, progress.sink())?;
        drop(progress);
        let started = humantime::format_rfc3339_seconds(started).to_string();
        Ok(State::new(config.clone(), started, drives))
    }

    /// Writes the drives. What is kept of that stays, until the result is stored.
    fn really(&self, config: &Config, started: SystemTime) -> anyhow::Result<(State, Keeper)> {
        let queues = if self.stripe {
            1
        } else {
            self.urls.len() as u32
        };
        let session = Session::start_for(&ReactorArguments::of(None), queues, queues)?;
        let kept = match (&self.output, self.resume) {
            (Some(output), true) => Some(keeper::read(&kept_beside(output))?),
            _ => None,
        };
        let drives = match &kept {
            // Nothing is written before it is known that these are the drives of the run.
            Some(_) => self.open_again(&session)?,
            None => self.open(&session, config)?,
        };
        let identities: Vec<Identity> = drives
            .iter()
            .map(|drive| real::identity(&drive.volume, drive.url.clone()))
            .collect();
        let state = match kept {
            Some(kept) => {
                kept.check(config, &identities)?;
                self.check_held(&session, config, &kept.drives, &drives)?;
                kept
            }
            None => {
                let count = drives.len();
                let marks = session.run(move |reactor| async move {
                    (0..count).map(|_| real::mark(&reactor)).collect::<Vec<_>>()
                })?;
                let each = drives.iter().zip(identities).zip(marks);
                let fresh = each.map(|((drive, identity), mark)| {
                    let size = config.check(&real::limits(&drive.volume))?;
                    let name = without_in_text(&drive.volume.name());
                    Ok(DriveState {
                        members: drive.members.clone(),
                        mark: Some(mark),
                        rated_write_bytes: modelled::rated_write_bytes(&drive.url),
                        ..DriveState::new(identity, name, size)
                    })
                });
                let fresh: anyhow::Result<Vec<_>> = fresh.collect();
                let started = humantime::format_rfc3339_seconds(started).to_string();
                State::new(config.clone(), started, fresh?)
            }
        };
        let keeper = Keeper::start(self.output.as_deref(), state.clone())?;
        let subjects: Vec<Subject> = drives
            .iter()
            .zip(&state.drives)
            .map(|(drive, state)| Subject {
                volume: Arc::clone(&drive.volume),
                state: state.clone(),
            })
            .collect();
        let view = show::View::new(config, &state);
        let progress = Progress::start();
        let (remotes, stop) = (session.remotes(), session.stop.clone());
        let (config, began) = (config.clone(), Instant::now());
        let (lines, parts, wholes) = (progress.sink(), keeper.sink(), keeper.sink());
        let observe = show::observer(view, lines, parts, began);
        let drives = session.run(move |control| async move {
            real::run(
                &control,
                &remotes,
                subjects,
                &config,
                &stop,
                observe,
                |states| {
                    wholes(Keep::All(states.to_vec()));
                },
            )
            .await
        })?;
        drop(progress);
        let mut state = state;
        state.drives = drives;
        let mut keeper = keeper;
        keeper.join();
        Ok((state, keeper))
    }

    /// Opens the drives, of which nothing may have hold, and of which each must hold nothing, or have been named.
    fn open(&self, session: &Session, config: &Config) -> anyhow::Result<Vec<Opened>> {
        let drives = self.open_each(session)?;
        for (drive, url) in drives.iter().zip(&self.urls) {
            // Who agrees to the loss of data does not agree to that of what is mounted from it.
            session.check_not_held(&drive.volume, url)?;
            if !self.destroy.names(url) {
                holds::check_holds_nothing(session, &drive.volume, std::slice::from_ref(url))?;
            }
        }
        if !self.stripe {
            return Ok(drives);
        }
        // What cannot be asked of the stripe is refused before its label is on its members.
        config.check(&limits_of_stripe(&drives))?;
        let stripe = self.stripe_of(drives, |url| {
            let url = url.clone().with("create", "1").with("destroy_data", "1");
            session.open(&url, Access::READ_WRITE)
        })?;
        Ok(vec![stripe])
    }

    /// Opens the drives of a run that is taken up; what is on them is not looked at.
    fn open_again(&self, session: &Session) -> anyhow::Result<Vec<Opened>> {
        let drives = self.open_each(session)?;
        for (drive, url) in drives.iter().zip(&self.urls) {
            session.check_not_held(&drive.volume, url)?;
        }
        if !self.stripe {
            return Ok(drives);
        }
        let stripe = self.stripe_of(drives, |url| session.open(url, Access::READ_WRITE))?;
        Ok(vec![stripe])
    }

    fn open_each(&self, session: &Session) -> anyhow::Result<Vec<Opened>> {
        let each = self.urls.iter().map(|url| {
            Ok(Opened {
                volume: session.open(url, Access::READ_WRITE)?,
                url: without_in_text(&url.to_string()),
                members: Vec::new(),
            })
        });
        each.collect()
    }

    fn stripe_of(
        &self,
        drives: Vec<Opened>,
        open: impl FnOnce(&VolumeUrl) -> anyhow::Result<Arc<dyn Volume>>,
    ) -> anyhow::Result<Opened> {
        let members = drives.into_iter().map(|drive| drive.url).collect();
        let stripe = VolumeUrl::new("stripe", "").with("chunk", self.chunk);
        let stripe = self
            .urls
            .iter()
            .fold(stripe, |stripe, url| stripe.with("member", url));
        Ok(Opened {
            url: without_in_text(&stripe.to_string()),
            volume: open(&stripe)?,
            members,
        })
    }

    /// Refuses drives that are not those of the run. Where nothing proves that one is, it must hold nothing, or have been named.
    fn check_held(
        &self,
        session: &Session,
        config: &Config,
        kept: &[DriveState],
        drives: &[Opened],
    ) -> anyhow::Result<()> {
        let data = real::data(config, kept);
        for (index, (drive, state)) in drives.iter().zip(kept).enumerate() {
            let (volume, config) = (Arc::clone(&drive.volume), config.clone());
            let (data, looked_at) = (data.clone(), state.clone());
            let held = session.run(move |reactor| async move {
                real::held(&reactor, &volume, &config, &data, &looked_at).await
            })?;
            let held = held.with_context(|| {
                format!(
                    "cannot tell whether {} is the same drive",
                    drive.volume.name()
                )
            })?;
            let foreign = |offset| real::DriveError::Foreign {
                drive: drive.volume.name(),
                offset,
            };
            match held {
                Held::Written => continue,
                Held::Zeroes if state.keeps_data == Some(true) => bail!(foreign(0)),
                Held::Other(offset) if state.is_begun() => bail!(foreign(offset)),
                Held::Zeroes | Held::Other(_) => {}
            }
            let urls = match self.stripe {
                true => &self.urls[..],
                false => &self.urls[index..=index],
            };
            if !urls.iter().all(|url| self.destroy.names(url)) {
                holds::check_holds_nothing(session, &drive.volume, urls)?;
            }
        }
        Ok(())
    }

    fn store(&self, document: &Document) -> anyhow::Result<()> {
        if let Some(file) = &self.output {
            let mut text = Vec::new();
            document.write(&mut text)?;
            put(file, &text)?;
        }
        Ok(())
    }

    fn report(&self, document: &Document) -> anyhow::Result<()> {
        if let Some(file) = &self.report {
            let mut text = Vec::new();
            weir_report::write_drives(document, &mut text)?;
            put(file, &text)?;
        }
        Ok(())
    }

    /// Whether all was measured, and what to do where not.
    fn judge(&self, state: &State) -> ExitCode {
        for caveat in state.caveats() {
            eprintln!("note: {}", without_in_text(&caveat.text));
        }
        if state.is_complete() {
            return ExitCode::SUCCESS;
        }
        let way = match &self.output {
            _ if self.simulated => String::new(),
            Some(output) => format!(
                "; the run is kept in {}: the same command with --resume takes it up",
                kept_beside(output).display()
            ),
            None => "; with --output it could be taken up again".to_owned(),
        };
        eprintln!("weir: not everything was measured{way}");
        ExitCode::FAILURE
    }
}

/// What a stripe of drives takes, as far as it can be told before there is one: its labels take a little of each.
fn limits_of_stripe(drives: &[Opened]) -> Limits {
    let each: Vec<Limits> = drives
        .iter()
        .map(|drive| real::limits(&drive.volume))
        .collect();
    let shortest = each.iter().map(|of| of.capacity_bytes).min().unwrap_or(0);
    Limits {
        drive: format!("the stripe of {} drives", drives.len()),
        capacity_bytes: shortest.saturating_mul(drives.len() as u64),
        multiple: each.iter().map(|of| of.multiple).max().unwrap_or(1),
        block_bytes_max: BLOCK_BYTES_MAX,
        read_only: each.iter().any(|of| of.read_only),
        deallocates: each.iter().all(|of| of.deallocates),
    }
}

/// A drive that is open.
struct Opened {
    volume: Arc<dyn Volume>,
    /// Without secrets.
    url: String,
    members: Vec<String>,
}
