//! `weir agent`: makes load on this machine for a coordinator on another one.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use weir_agent::allow::{Allowed, Rule};
use weir_agent::message::{Code, Open, OpenVolume, Usage as Asked, Verify, WrongJob};
use weir_agent::server::{Agent, Conductor, Ran, Refusal, Teller, Worker};
use weir_agent::tls::Identity;
use weir_agent::token::Token;
use weir_agent::wire::{Conclusion, Unsound, Wrong};
use weir_block::Volume;
use weir_lab::convert;
use weir_lab::document::{self, Machine};
use weir_load::PROGRESS_INTERVAL;
use weir_load::Stop;
use weir_load::bench::{self, BenchConfig, Job};
use weir_load::verified::{self, Blocks, ConclusionProgress, Verification, VerifiedError};
use weir_volume::{Gate, VolumeUrl};

use super::ReactorArguments;
use super::laboratory::{Usage, open_as_hosts};
use super::session::Session;

/// What a process that was killed by an interrupt ends with.
const INTERRUPTED: i32 = 130;

/// Make load on this machine for a coordinator on another one: weir bench --agent
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArguments {
    /// Where to wait for coordinators, such as 192.0.2.7:4440 (an IPv6 address in brackets); port 0 takes one that is free, and prints it
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// A file with the token that coordinators must show: one line of 16 letters or more, readable by its owner only. `openssl rand -hex 32` makes one
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The certificate that this agent shows, and those of its authorities, in PEM [default: one that it makes and keeps, whose
    /// fingerprint it prints]
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The key of that certificate, in PEM, readable by its owner only
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Where the certificate that it makes is kept [default: $STATE_DIRECTORY, for root /var/lib/weir-agent, for others
    /// $XDG_STATE_HOME/weir-agent or ~/.local/state/weir-agent]
    #[arg(long, value_name = "FOLDER", conflicts_with = "tls_certificate")]
    state_folder: Option<PathBuf>,
    /// Open volumes whose URL begins so, such as nvme+tcp://192.0.2.1 or file:/data/; may be given several times. Of rbd: it also says
    /// which conf, id and keyring, as in rbd:pool/?id=bench, and of nvme+tcp: which hostnqn and hostid, as in nvme+tcp:?hostnqn=NQN
    /// [default: null:]
    #[arg(long, value_name = "PREFIX")]
    allow: Vec<Rule>,
}

pub(crate) fn run(arguments: AgentArguments, json: bool) -> anyhow::Result<ExitCode> {
    let token = Token::from_file(&arguments.token_file)?;
    let identity = arguments.identity()?;
    let fingerprint = identity.fingerprint();
    let allowed = Arc::new(Allowed::new(arguments.allow));
    let gate = Arc::clone(&allowed);
    let agent = Agent {
        token,
        tls: identity.server()?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::this(std::thread::available_parallelism().map_or(1, usize::from) as u32),
        workers: Arc::new(move || Box::new(LoadWorker::new(Arc::clone(&gate)))),
        log: Arc::new(|line| eprintln!("{line}")),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("the agent's event loop cannot be made")?;
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen).await;
        let listener = listener.with_context(|| format!("cannot listen on {}", arguments.listen))?;
        let address = listener.local_addr()?;
        let signals = Signals::new().context("cannot listen for signals")?;
        let text = match json {
            true => json!({"address": address.to_string(), "fingerprint": fingerprint.to_string(), "allowed": allowed.to_string()}).to_string(),
            false => format!("listening on {address}\ncertificate  {fingerprint}\nopens        {allowed}"),
        };
        println!("{text}");
        std::io::stdout().flush()?;
        agent.serve(listener, signals.end()).await;
        Ok(ExitCode::SUCCESS)
    })
}

impl AgentArguments {
    fn identity(&self) -> anyhow::Result<Identity> {
        if let (Some(certificate), Some(key)) = (&self.tls_certificate, &self.tls_key) {
            return Ok(Identity::from_files(certificate, key)?);
        }
        let folder = match &self.state_folder {
            Some(folder) => folder.clone(),
            None => state_folder()?,
        };
        let mut names = vec!["localhost".to_owned()];
        let address = self.listen.ip();
        if !address.is_unspecified() {
            names.push(address.to_string());
        }
        if let Ok(name) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
            names.push(name.trim().to_owned());
        }
        Ok(Identity::own(&folder, &names)?)
    }
}

fn state_folder() -> anyhow::Result<PathBuf> {
    const NAME: &str = "weir-agent";
    let from = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    if let Some(folder) = from("STATE_DIRECTORY") {
        return Ok(folder);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib").join(NAME));
    }
    if let Some(folder) = from("XDG_STATE_HOME") {
        return Ok(folder.join(NAME));
    }
    match from("HOME") {
        Some(home) => Ok(home.join(".local/state").join(NAME)),
        None => bail!(
            "there is no home to keep a certificate in; name --state-folder, or --tls-certificate and --tls-key"
        ),
    }
}

/// The signals that end the agent.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Until the first one; a second one ends the process at once.
    async fn end(mut self) {
        self.next().await;
        eprintln!("ending");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Does what one coordinator asks.
struct LoadWorker {
    allowed: Arc<Allowed>,
    /// What is known of the blocks that the last run wrote, where they are checked; ends before the volumes do.
    verifications: Vec<Verification>,
    opened: Option<Opened>,
}

/// A volume as each host sees it, and its URL.
type Named = (String, Vec<Arc<dyn Volume>>);

struct Opened {
    volumes: Vec<Named>,
    /// Which of them are driven together, by their places.
    sides: Vec<Vec<usize>>,
    /// Ends when the volumes are gone.
    session: Session,
}

impl LoadWorker {
    fn new(allowed: Arc<Allowed>) -> Self {
        LoadWorker {
            allowed,
            verifications: Vec::new(),
            opened: None,
        }
    }

    /// The URLs, each of them allowed. Nothing is opened before all of them are.
    fn urls(&self, asked: &Open) -> Result<Vec<VolumeUrl>, Refusal> {
        let read = |of: &OpenVolume| {
            let url: VolumeUrl = of
                .url
                .parse()
                .map_err(|error| Refusal::new(Code::Open, format!("{error}")))?;
            let allowed = self.allowed.check(&url);
            allowed.map_err(|why| Refusal::new(Code::Address, format!("{url}: {why}")))?;
            Ok(url)
        };
        asked.volumes.iter().map(read).collect()
    }

    fn opened(&self, asked: &Open, urls: &[VolumeUrl]) -> anyhow::Result<Opened> {
        let hosts = asked.hosts_together();
        let hosts = hosts.context("these are too many hosts")?;
        let reactors = ReactorArguments::of(asked.reactors);
        let allowed = Arc::clone(&self.allowed);
        let gate: Gate = Arc::new(move |url| allowed.check(url));
        let session = Session::start_gated(&reactors, asked.queues, hosts, asked.by_rate, gate)?;
        let open = |(of, url): (&OpenVolume, &VolumeUrl)| {
            let usage = match of.usage {
                Asked::Reads => Usage::Reads,
                Asked::Flushes => Usage::Flushes,
                Asked::Overwrites => Usage::Overwrites,
            };
            let volumes = open_as_hosts(&session, url, of.hosts, usage, of.destroy_data)?;
            Ok((url.to_string(), volumes))
        };
        let volumes = asked.volumes.iter().zip(urls).map(open);
        Ok(Opened {
            volumes: volumes.collect::<anyhow::Result<_>>()?,
            sides: asked.sides.clone(),
            session,
        })
    }

    /// What was opened, with a job on each volume of a side.
    fn jobs(&self, side: usize, configs: Vec<BenchConfig>) -> Result<(&Opened, Vec<Job>), Refusal> {
        let refused = |text: String| Refusal::new(Code::Run, text);
        let opened = self.opened.as_ref();
        let opened = opened.ok_or_else(|| refused("no volume was opened".to_owned()))?;
        let places = opened.sides.get(side);
        let places = places.filter(|of| of.len() == configs.len());
        let places = places.ok_or_else(|| {
            refused(format!(
                "there is no side {side} of {} volumes",
                configs.len()
            ))
        })?;
        let job = |(&place, config): (&usize, BenchConfig)| {
            let (name, volumes) = &opened.volumes[place];
            Job {
                name: name.clone(),
                volumes: volumes.clone(),
                config,
            }
        };
        Ok((opened, places.iter().zip(configs).map(job).collect()))
    }
}

impl Worker for LoadWorker {
    fn open(&mut self, asked: &Open) -> Result<Vec<document::Volume>, Refusal> {
        const HOSTS_MAX: u32 = 1024;
        let is_possible = |of: &OpenVolume| (1..=HOSTS_MAX).contains(&of.hosts);
        if !asked.volumes.iter().all(is_possible) || asked.queues == 0 {
            let text = format!("1 to {HOSTS_MAX} hosts, and a queue at least, are possible");
            return Err(Refusal::new(Code::Open, text));
        }
        let urls = self.urls(asked)?;
        let opened = self.opened(asked, &urls);
        let opened = opened.map_err(|error| Refusal::new(Code::Open, format!("{error:#}")))?;
        let stored = |(url, volumes): &Named| {
            convert::volume(url, &volumes[0].name(), &volumes[0].geometry())
        };
        let told = opened.volumes.iter().map(stored).collect();
        self.opened = Some(opened);
        Ok(told)
    }

    fn check(
        &mut self,
        side: usize,
        configs: Vec<BenchConfig>,
    ) -> Result<Option<WrongJob>, Refusal> {
        let (opened, jobs) = self.jobs(side, configs)?;
        let reactors = opened.session.remotes().len();
        let wrong = |(job, of): (usize, &Job)| {
            let text = bench::check_job(of, reactors).err()?.to_string();
            Some(WrongJob { job, text })
        };
        Ok(jobs.iter().enumerate().find_map(wrong))
    }

    fn run(
        &mut self,
        side: usize,
        configs: Vec<BenchConfig>,
        verify: Option<Verify>,
        mut conductor: Conductor,
    ) -> Result<Ran, Refusal> {
        self.verifications.clear();
        let (opened, mut jobs) = self.jobs(side, configs)?;
        // What is found wrong ends the load, and must not be taken for the coordinator's wish.
        let asked = jobs.first().map(|job| job.config.stop.clone());
        let asked = asked.unwrap_or_default();
        let stop = asked.within();
        let verifications = match verify {
            None => Vec::new(),
            Some(verify) => checked(&mut jobs, &verify, &stop)
                .map_err(|error| Refusal::new(Code::Run, format!("{error:#}")))?,
        };
        let remotes = opened.session.remotes();
        let ran = opened.session.run(move |control| async move {
            let teller = conductor.teller();
            let progress = |progress| teller.progress(progress);
            let mut waiting = None;
            let beginning = async || {
                let beginning = conductor.ready().await?;
                let at = control.precise_now() + beginning.remaining();
                let (reactor, teller) = (control.clone(), teller.clone());
                waiting = Some(control.spawn(async move {
                    reactor.sleep_until(at).await;
                    teller.began(beginning);
                }));
                Some(at)
            };
            let reports =
                bench::run_jobs_from(&control, &remotes, &jobs, beginning, progress).await;
            drop(waiting);
            reports
        });
        let refused = |text: String| Refusal::new(Code::Run, text);
        let reports = ran.map_err(|error| refused(format!("{error:#}")))?;
        let reports = reports.map_err(|error| refused(error.to_string()))?;
        self.verifications = verifications;
        Ok(Ran {
            reports,
            is_wrong: stop.is_asked() && !asked.is_asked(),
        })
    }

    fn distinct(&mut self, side: usize) -> Result<Option<(usize, usize)>, Refusal> {
        let refused = |text: String| Refusal::new(Code::Run, text);
        let opened = self.opened.as_ref();
        let opened = opened.ok_or_else(|| refused("no volume was opened".to_owned()))?;
        let places = opened.sides.get(side);
        let places = places.ok_or_else(|| refused(format!("there is no side {side}")))?;
        let first = |&place: &usize| Arc::clone(&opened.volumes[place].1[0]);
        let volumes: Vec<_> = places.iter().map(first).collect();
        let same = opened
            .session
            .run(move |control| async move { verified::same_medium(&control, &volumes).await });
        let same = same.map_err(|error| refused(format!("{error:#}")))?;
        same.map_err(|error| refused(error.to_string()))
    }

    fn conclude(&mut self, stop: &Stop, teller: &Teller) -> Result<Vec<Conclusion>, Refusal> {
        let refused = |text: String| Refusal::new(Code::Run, text);
        let opened = self.opened.as_ref();
        let opened = opened.filter(|_| !self.verifications.is_empty());
        let opened = opened.ok_or_else(|| refused("nothing was checked".to_owned()))?;
        let mut concluded = Vec::with_capacity(self.verifications.len());
        for (job, verification) in self.verifications.drain(..).enumerate() {
            let stop = stop.clone();
            let tell = |progress: &_| teller.concluding(job, progress);
            let one = with_beats(PROGRESS_INTERVAL, tell, |far| {
                let conclude = move |control| async move {
                    let told =
                        |progress| *far.lock().unwrap_or_else(PoisonError::into_inner) = progress;
                    verification.conclude(&control, &stop, told).await
                };
                opened.session.run(conclude)
            });
            concluded.push(match one.map_err(|error| refused(format!("{error:#}")))? {
                Ok(report) => Ok(report),
                Err(VerifiedError::Wrong {
                    findings, requests, ..
                }) => Err(Unsound::Wrong(Wrong { requests, findings })),
                // Of the other volumes is told what was found of them.
                Err(error) => Err(Unsound::Unread(error.to_string())),
            });
        }
        Ok(concluded)
    }
}

/// Does `work`, which notes how far it is, and tells that at every beat meanwhile: also where nothing goes on because a volume answers nothing
/// for a while, and who is told takes silence for an agent that is lost.
fn with_beats<T>(
    interval: Duration,
    tell: impl Fn(&ConclusionProgress) + Send,
    work: impl FnOnce(Arc<Mutex<ConclusionProgress>>) -> T,
) -> T {
    let far = Arc::new(Mutex::new(ConclusionProgress::default()));
    let (over, is_over) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let told = Arc::clone(&far);
        scope.spawn(move || {
            while is_over.recv_timeout(interval) == Err(mpsc::RecvTimeoutError::Timeout) {
                let progress = *told.lock().unwrap_or_else(PoisonError::into_inner);
                tell(&progress);
            }
        });
        let done = work(far);
        drop(over);
        done
    })
}

/// Has every job's volume checked, the blocks that are this agent's. What is wrong asks for `stop`.
fn checked(jobs: &mut [Job], verify: &Verify, stop: &Stop) -> anyhow::Result<Vec<Verification>> {
    let mut verifications = Vec::with_capacity(jobs.len());
    for (job, &seed) in jobs.iter_mut().zip(&verify.seeds) {
        let blocks = Blocks {
            range: job.config.own_blocks(&job.volumes[0].geometry())?,
            writer: verify.writer,
        };
        let (wrapped, verification) = verified::wrap_blocks(&job.volumes, seed, &blocks, stop)?;
        job.volumes = wrapped;
        job.config.stop = stop.clone();
        verifications.push(verification);
    }
    Ok(verifications)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_goes_on_with_nothing_is_told_of_at_every_beat() {
        let (told, heard) = mpsc::channel();
        let tell = move |progress: &ConclusionProgress| {
            let _ = told.send(progress.block);
        };
        let done = with_beats(Duration::from_millis(1), tell, |far| {
            assert_eq!(heard.recv(), Ok(0));
            far.lock().unwrap().block = 7;
            while heard.recv().expect("it is told again and again") != 7 {}
            "done"
        });
        assert_eq!(done, "done");
    }
}
