//! The agent: waits for coordinators, lets one at a time have it, and has its [`Worker`] do what that one asks.
//!
//! Whoever connects is a stranger until TLS stands and the token was shown; strangers are few, have little time and are heard for little
//! ([`HALF_OPEN_MAX`], [`HANDSHAKE`], [`crate::frame::FIRST_BYTES_MAX`]). A coordinator that says nothing for [`KEEP_ALIVE`] is gone, and its run
//! ends.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, mpsc as blocking};
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weir_lab::document::{Machine, Volume};
use weir_load::Stop;
use weir_load::bench::{BenchConfig, BenchProgress, BenchReport, Interval};
use weir_load::verified::ConclusionProgress;
use weir_reactor::{Receiver, Sender, oneshot};

use crate::frame::{FrameError, Frames, encode};
use crate::message::{Code, Concluding, Open, Progress, ToAgent, ToCoordinator, Verify, WrongJob};
use crate::plain::plain;
use crate::tls::is_agreed;
use crate::token::Token;
use crate::wire::{Conclusion, ConclusionOnWire, JobOnWire, ReportOnWire, in_parts};
use crate::{KEEP_ALIVE, PROTOCOL, VOLUMES_MAX};

/// Connections at most, the coordinator's and those of strangers.
pub const CONNECTIONS_MAX: usize = 32;
/// Connections that have not shown the token.
pub const HALF_OPEN_MAX: usize = 16;
/// For how long a stranger may take to show it.
pub const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long a wrong token is left without an answer; its connection counts as half open meanwhile.
const WRONG_TOKEN_PAUSE: Duration = Duration::from_millis(500);
/// For how long what a refused peer still sends is read away, at most so often as [`LINGER_READS`] says.
const LINGER: Duration = Duration::from_secs(1);
/// See [`LINGER`].
const LINGER_READS: usize = 256;
/// How long after the word to start a run may begin: nobody else has the agent until then.
const START_AFTER_MAX: Duration = Duration::from_secs(60);
/// How long it is waited after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Letters of a coordinator's name that are kept.
const NAME_MAX: usize = 200;
/// Lines about strangers at most in [`LINES_PERIOD`].
const LINES_MAX: u32 = 10;
/// See [`LINES_MAX`].
const LINES_PERIOD: Duration = Duration::from_secs(10);
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// What will not be done, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people.
    pub text: String,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Refusal {
            code,
            text: text.into(),
        }
    }
}

/// Opens volumes and drives them, in a thread of its own, for one coordinator. Dropped, it lets go of all.
pub trait Worker {
    /// Opens what is asked for; once. What the volumes are.
    ///
    /// # Errors
    /// [`Refusal`].
    fn open(&mut self, asked: &Open) -> Result<Vec<Volume>, Refusal>;

    /// The first job of a run that could not be run, where there is one.
    ///
    /// # Errors
    /// [`Refusal`], where there are no such volumes.
    fn check(
        &mut self,
        side: usize,
        configs: Vec<BenchConfig>,
    ) -> Result<Option<WrongJob>, Refusal>;

    /// Runs a job on each volume of a side, and reports on each. To be told [`Conductor::ready`], and to begin when that says so. Where blocks are checked, the
    /// first thing wrong ends it.
    ///
    /// # Errors
    /// [`Refusal`].
    fn run(
        &mut self,
        side: usize,
        configs: Vec<BenchConfig>,
        verify: Option<Verify>,
        conductor: Conductor,
    ) -> Result<Ran, Refusal>;

    /// Which two volumes of a side are one medium, where two are.
    ///
    /// # Errors
    /// [`Refusal`].
    fn distinct(&mut self, side: usize) -> Result<Option<(usize, usize)>, Refusal>;

    /// Reads everything once more that the last run wrote, where that was checked, and says for each job what was found. `stop` ends it early.
    ///
    /// # Errors
    /// [`Refusal`].
    fn conclude(&mut self, stop: &Stop, teller: &Teller) -> Result<Vec<Conclusion>, Refusal>;
}

/// What came of a run.
#[derive(Debug)]
pub struct Ran {
    /// Of each job.
    pub reports: Vec<BenchReport>,
    /// Whether blocks were found that are not as they should be.
    pub is_wrong: bool,
}

/// When to begin.
#[derive(Debug, Clone, Copy)]
pub struct Beginning {
    /// When the word came.
    pub heard: Instant,
    /// How long after that.
    pub after: Duration,
}

impl Beginning {
    /// How long it is until then.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.after.saturating_sub(self.heard.elapsed())
    }
}

/// What tells a worker when to begin, and hears from it how it goes.
pub struct Conductor {
    events: mpsc::UnboundedSender<Event>,
    beginning: Option<Receiver<Beginning>>,
}

impl Conductor {
    /// Says that every queue is open, and yields when to begin; nothing where the run is not to be.
    pub async fn ready(&mut self) -> Option<Beginning> {
        self.tell(Event::Ready);
        self.beginning.take()?.await
    }

    /// Another one who tells of the same run.
    #[must_use]
    pub fn teller(&self) -> Teller {
        Teller(self.events.clone())
    }

    fn tell(&self, event: Event) {
        // Who has gone is told nothing.
        let _ = self.events.send(event);
    }
}

/// Hears from a worker how it goes.
#[derive(Clone)]
pub struct Teller(mpsc::UnboundedSender<Event>);

impl Teller {
    /// The run begins at this moment.
    pub fn began(&self, beginning: Beginning) {
        let _ = self.0.send(Event::Began {
            after: beginning.heard.elapsed(),
            at: Instant::now(),
        });
    }

    /// How it goes on.
    pub fn progress(&self, progress: BenchProgress) {
        let _ = self.0.send(Event::Progress(progress));
    }

    /// How the conclusion about a job goes on.
    pub fn concluding(&self, job: usize, progress: &ConclusionProgress) {
        let _ = self.0.send(Event::Concluding(Concluding {
            job,
            block: progress.block,
            blocks: progress.blocks,
            is_searching: progress.searching,
        }));
    }
}

enum Event {
    Opened(Result<Vec<Volume>, Refusal>),
    Checked(Result<Option<WrongJob>, Refusal>),
    Ready,
    Began { after: Duration, at: Instant },
    Progress(BenchProgress),
    Ended(Result<Ran, Refusal>),
    Distinct(Result<Option<(usize, usize)>, Refusal>),
    Concluding(Concluding),
    Concluded(Result<Vec<Conclusion>, Refusal>),
}

/// What a worker is to do.
enum Work {
    Open(Open),
    Check {
        side: usize,
        configs: Vec<BenchConfig>,
    },
    Run {
        side: usize,
        configs: Vec<BenchConfig>,
        verify: Option<Verify>,
        beginning: Receiver<Beginning>,
    },
    Distinct {
        side: usize,
    },
    Conclude {
        stop: Stop,
    },
}

/// Makes a worker for each coordinator.
pub type Factory = Arc<dyn Fn() -> Box<dyn Worker> + Send + Sync>;
/// Takes lines about what happens.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// An agent, before it waits for coordinators.
pub struct Agent {
    /// What coordinators must show.
    pub token: Token,
    /// Who it is.
    pub tls: Arc<ServerConfig>,
    /// Its version of Weir.
    pub version: String,
    /// What it runs on.
    pub machine: Machine,
    /// Who does the work.
    pub workers: Factory,
    /// Where it says what happens.
    pub log: Log,
}

impl fmt::Debug for Agent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Agent").finish_non_exhaustive()
    }
}

/// Who has the agent.
#[derive(Debug, Clone)]
struct Holder {
    name: String,
    address: SocketAddr,
    since: Instant,
}

struct Shared {
    agent: Agent,
    acceptor: TlsAcceptor,
    holder: Mutex<Option<Holder>>,
    lines: Mutex<(Instant, u32)>,
}

impl Agent {
    /// Serves coordinators until `end`; then ends the run that there is, and returns when its worker has let go of everything.
    ///
    /// # Errors
    /// None once it listens: a connection that cannot be accepted is tried again.
    pub async fn serve(self, listener: TcpListener, end: impl Future<Output = ()>) {
        let shared = Arc::new(Shared {
            acceptor: TlsAcceptor::from(Arc::clone(&self.tls)),
            agent: self,
            holder: Mutex::new(None),
            lines: Mutex::new((Instant::now(), 0)),
        });
        let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let half_open = Arc::new(Semaphore::new(HALF_OPEN_MAX));
        let (ending, is_ending) = watch::channel(false);
        tokio::pin!(end);
        loop {
            let accepted = tokio::select! {
                () = &mut end => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, address)) = accepted else {
                sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let permits = Arc::clone(&connections)
                .try_acquire_owned()
                .ok()
                .zip(Arc::clone(&half_open).try_acquire_owned().ok());
            let Some((connection, stranger)) = permits else {
                shared.say_of_stranger(&format!("{address}: too many connections, closed"));
                continue;
            };
            let (shared, is_ending) = (Arc::clone(&shared), is_ending.clone());
            tokio::spawn(async move {
                shared
                    .connection(stream, address, stranger, is_ending)
                    .await;
                drop(connection);
            });
        }
        drop(listener);
        // Nobody listens where there is no connection.
        let _ = ending.send(true);
        // All permits together are to be had when no connection is left.
        let _ = connections.acquire_many(CONNECTIONS_MAX as u32).await;
    }
}

/// A coordinator whose token was right.
struct Known {
    stream: TlsStream<TcpStream>,
    frames: Frames,
    name: String,
    version: String,
}

/// Lets go of the agent.
struct Hold<'a>(&'a Shared);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        *lock(&self.0.holder) = None;
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn say(&self, line: &str) {
        (self.agent.log)(&plain(line));
    }

    /// Says a line that anybody can cause, and not too many of them.
    fn say_of_stranger(&self, line: &str) {
        let mut lines = lock(&self.lines);
        if lines.0.elapsed() > LINES_PERIOD {
            *lines = (Instant::now(), 0);
        }
        lines.1 = lines.1.saturating_add(1);
        match lines.1 {
            ..=LINES_MAX => self.say(line),
            count if count == LINES_MAX + 1 => {
                self.say("more like that, which are not told for a while")
            }
            _ => {}
        }
    }

    async fn connection(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        stranger: OwnedSemaphorePermit,
        mut is_ending: watch::Receiver<bool>,
    ) {
        let met = tokio::select! {
            met = timeout(HANDSHAKE, self.meet(stream)) => met,
            () = ends(&mut is_ending) => return,
        };
        let mut known = match met {
            Ok(Ok(known)) => known,
            Ok(Err(why)) => {
                self.say_of_stranger(&format!("{address}: {why}"));
                return;
            }
            Err(_) => {
                let seconds = HANDSHAKE.as_secs();
                self.say_of_stranger(&format!("{address}: no token within {seconds} seconds"));
                return;
            }
        };
        drop(stranger);
        let hold = match self.hold(&known.name, address) {
            Ok(hold) => hold,
            Err(refusal) => {
                self.say(&format!(
                    "{} ({address}): refused, {}",
                    known.name, refusal.text
                ));
                refuse(&mut known.stream, refusal.code, &refusal.text).await;
                return;
            }
        };
        self.say(&format!(
            "{} ({address}) has this agent now (Weir {})",
            known.name, known.version
        ));
        let name = known.name.clone();
        let (why, parting) = self.serve(known, is_ending).await;
        drop(hold);
        self.say(&format!("{name} ({address}): {why}"));
        // Who said goodbye sees by this that the agent is free.
        if let Some(mut stream) = parting {
            let _ = timeout(KEEP_ALIVE, stream.shutdown()).await;
        }
    }

    /// Takes the agent for a coordinator.
    fn hold(&self, name: &str, address: SocketAddr) -> Result<Hold<'_>, Refusal> {
        let mut holder = lock(&self.holder);
        if let Some(holder) = &*holder {
            return Err(Refusal::new(
                Code::Busy,
                format!(
                    "it works for {} ({}) since {} seconds",
                    holder.name,
                    holder.address,
                    holder.since.elapsed().as_secs()
                ),
            ));
        }
        *holder = Some(Holder {
            name: name.to_owned(),
            address,
            since: Instant::now(),
        });
        Ok(Hold(self))
    }

    /// Finds out who it is.
    async fn meet(&self, stream: TcpStream) -> Result<Known, String> {
        let text = |error: &dyn fmt::Display| error.to_string();
        stream.set_nodelay(true).map_err(|error| text(&error))?;
        let mut stream = self
            .acceptor
            .accept(stream)
            .await
            .map_err(|error| format!("no TLS as it is spoken here: {error}"))?;
        if !is_agreed(stream.get_ref().1.alpn_protocol()) {
            return Err(format!("does not ask for {PROTOCOL}"));
        }
        let mut frames = Frames::of_stranger();
        let hello = match read(&mut stream, &mut frames).await {
            Ok(Some(hello)) => hello,
            Ok(None) => return Err("hung up without a word".to_owned()),
            Err(error) => {
                refuse(&mut stream, Code::Message, &error.to_string()).await;
                return Err(error.to_string());
            }
        };
        let ToAgent::Hello {
            protocol,
            version,
            name,
            token,
        } = hello
        else {
            refuse(
                &mut stream,
                Code::Message,
                "the first message must be a hello",
            )
            .await;
            return Err("did not begin with a hello".to_owned());
        };
        if protocol != PROTOCOL {
            let text = format!(
                "it speaks {PROTOCOL}, as Weir {} does, and not {}, as Weir {} does",
                self.agent.version,
                named(&protocol),
                named(&version)
            );
            refuse(&mut stream, Code::Protocol, &text).await;
            return Err(format!("refused, {text}"));
        }
        if !self.agent.token.is(&token) {
            sleep(WRONG_TOKEN_PAUSE).await;
            refuse(&mut stream, Code::Token, "the token is not its own").await;
            return Err("refused, wrong token".to_owned());
        }
        frames.trust();
        Ok(Known {
            stream,
            frames,
            name: named(&name),
            version: named(&version),
        })
    }

    /// Does what the coordinator asks until one of the two has enough; why. Also the connection to one who said goodbye, and waits for the
    /// agent to be free.
    async fn serve(
        &self,
        known: Known,
        mut is_ending: watch::Receiver<bool>,
    ) -> (String, Option<TlsStream<TcpStream>>) {
        let Known {
            mut stream,
            mut frames,
            ..
        } = known;
        let welcome = ToCoordinator::Welcome {
            version: self.agent.version.clone(),
            machine: self.agent.machine.clone(),
        };
        if let Err(why) = write(&mut stream, &welcome).await {
            return (why, None);
        }
        let mut service = Service::start(&self.agent.workers);
        let mut heard = tokio::time::Instant::now();
        let mut bytes = vec![0; READ_BYTES];
        let why = loop {
            match frames.take::<ToAgent>() {
                Ok(Some(said)) => {
                    heard = tokio::time::Instant::now();
                    match service.take(said) {
                        Ok(Reply::Nothing) => {}
                        Ok(Reply::Say(answer)) => {
                            if let Err(why) = write(&mut stream, &answer).await {
                                break why;
                            }
                        }
                        Ok(Reply::Goodbye) => {
                            service.end().await;
                            return ("it is done".to_owned(), Some(stream));
                        }
                        Err(text) => {
                            refuse(&mut stream, Code::Message, &text).await;
                            break format!("refused, {text}");
                        }
                    }
                    continue;
                }
                Ok(None) => {}
                Err(error) => {
                    refuse(&mut stream, Code::Message, &error.to_string()).await;
                    break error.to_string();
                }
            }
            tokio::select! {
                // What has come is read before it is looked whether nothing came.
                biased;
                () = ends(&mut is_ending) => {
                    refuse(&mut stream, Code::Ending, "it was told to end").await;
                    break "this agent ends".to_owned();
                }
                read = stream.read(&mut bytes) => match read {
                    Ok(0) => break match frames.finish() {
                        Ok(()) => "it hung up".to_owned(),
                        Err(error) => error.to_string(),
                    },
                    Ok(read) => frames.push(&bytes[..read]),
                    Err(error) => break format!("the connection broke: {error}"),
                },
                event = service.events.recv() => match event {
                    Some(event) => {
                        if let Err(why) = service.tell(event, &mut stream).await {
                            break why;
                        }
                    }
                    None => {
                        let text = "its worker ended, which is a defect; its log says more";
                        refuse(&mut stream, Code::Run, text).await;
                        break text.to_owned();
                    }
                },
                () = sleep_until(heard + KEEP_ALIVE) => {
                    break format!("nothing was heard of it for {} seconds", KEEP_ALIVE.as_secs());
                }
            }
        };
        // Nobody waits for what the worker still does but the next coordinator.
        let _ = timeout(KEEP_ALIVE, stream.shutdown()).await;
        drop(stream);
        service.end().await;
        (why, None)
    }
}

enum Reply {
    Nothing,
    Say(ToCoordinator),
    Goodbye,
}

/// How far a coordinator has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Begins,
    Opening,
    Checking,
    Idle,
    Running,
    Concluding,
}

/// A worker in its thread, and what it is at.
struct Service {
    stage: Stage,
    work: Option<blocking::Sender<Work>>,
    events: mpsc::UnboundedReceiver<Event>,
    thread: Option<std::thread::JoinHandle<()>>,
    stop: Stop,
    start: Option<Sender<Beginning>>,
    /// Of each volume, how many intervals were told.
    told: Vec<usize>,
}

impl Service {
    fn start(workers: &Factory) -> Self {
        let (work, to_do) = blocking::channel();
        let (done, events) = mpsc::unbounded_channel();
        let workers = Arc::clone(workers);
        let thread = std::thread::spawn(move || work_off(&mut *workers(), &to_do, &done));
        Service {
            stage: Stage::Begins,
            work: Some(work),
            events,
            thread: Some(thread),
            stop: Stop::new(),
            start: None,
            told: Vec::new(),
        }
    }

    /// Does what was said; fails where it made no sense.
    fn take(&mut self, said: ToAgent) -> Result<Reply, String> {
        match (said, self.stage) {
            (ToAgent::Ping { number }, _) => Ok(Reply::Say(ToCoordinator::Pong { number })),
            (ToAgent::Goodbye, _) => Ok(Reply::Goodbye),
            (ToAgent::Stop, _) => {
                self.halt();
                Ok(Reply::Nothing)
            }
            (ToAgent::Open(open), Stage::Begins) => {
                let jobs: usize = open.sides.iter().map(Vec::len).sum();
                let most = jobs.max(open.volumes.len());
                let has_nothing = jobs == 0 || open.sides.iter().any(Vec::is_empty);
                let is_there = |place: &usize| *place < open.volumes.len();
                if most > VOLUMES_MAX || has_nothing || !open.sides.iter().flatten().all(is_there) {
                    return Err(format!(
                        "1 to {VOLUMES_MAX} volumes can be opened, and each side has one of them"
                    ));
                }
                self.stage = Stage::Opening;
                self.ask(Work::Open(open));
                Ok(Reply::Nothing)
            }
            (ToAgent::Check { side, jobs }, Stage::Idle) => {
                let configs = self.configs(&jobs)?;
                self.stage = Stage::Checking;
                self.ask(Work::Check { side, configs });
                Ok(Reply::Nothing)
            }
            (ToAgent::Distinct { side }, Stage::Idle) => {
                self.stage = Stage::Checking;
                self.ask(Work::Distinct { side });
                Ok(Reply::Nothing)
            }
            (ToAgent::Conclude, Stage::Idle) => {
                self.stop = Stop::new();
                self.stage = Stage::Concluding;
                let stop = self.stop.clone();
                self.ask(Work::Conclude { stop });
                Ok(Reply::Nothing)
            }
            (ToAgent::Run { side, jobs, verify }, Stage::Idle) => {
                self.stop = Stop::new();
                let configs = self.configs(&jobs)?;
                if let Some(verify) = &verify {
                    check_verify(verify, &configs)?;
                }
                let (start, beginning) = oneshot();
                self.start = Some(start);
                self.told = vec![0; configs.len()];
                self.stage = Stage::Running;
                self.ask(Work::Run {
                    side,
                    configs,
                    verify,
                    beginning,
                });
                Ok(Reply::Nothing)
            }
            (ToAgent::Start { after_ns }, Stage::Running) => {
                let after = Duration::from_nanos(after_ns);
                if after > START_AFTER_MAX {
                    let seconds = START_AFTER_MAX.as_secs();
                    return Err(format!(
                        "a run begins within {seconds} seconds of the word to start"
                    ));
                }
                if let Some(start) = self.start.take() {
                    start.send(Beginning {
                        heard: Instant::now(),
                        after,
                    });
                }
                Ok(Reply::Nothing)
            }
            // It was stopped, or failed, before it heard that it should begin.
            (ToAgent::Start { .. }, Stage::Idle) => Ok(Reply::Nothing),
            (said, stage) => Err(format!("{} makes no sense now ({stage:?})", name(&said))),
        }
    }

    fn configs(&self, jobs: &[JobOnWire]) -> Result<Vec<BenchConfig>, String> {
        let configs = jobs.iter().map(|job| job.config(&self.stop));
        let configs = configs.collect::<Result<Vec<_>, _>>();
        configs.map_err(|error| error.to_string())
    }

    fn ask(&self, work: Work) {
        if let Some(sender) = &self.work {
            // A worker that has ended is noticed by its events.
            let _ = sender.send(work);
        }
    }

    fn halt(&mut self) {
        self.stop.stop();
        self.start = None;
    }

    async fn tell(
        &mut self,
        event: Event,
        stream: &mut TlsStream<TcpStream>,
    ) -> Result<(), String> {
        match event {
            Event::Opened(Ok(volumes)) => {
                self.stage = Stage::Idle;
                write(stream, &ToCoordinator::Opened { volumes }).await
            }
            Event::Opened(Err(refusal)) => {
                self.stage = Stage::Begins;
                write(stream, &refused(refusal)).await
            }
            Event::Checked(checked) => {
                self.stage = Stage::Idle;
                let answer = match checked {
                    Ok(wrong) => ToCoordinator::Checked { wrong },
                    Err(refusal) => refused(refusal),
                };
                write(stream, &answer).await
            }
            Event::Distinct(distinct) => {
                self.stage = Stage::Idle;
                let answer = match distinct {
                    Ok(same) => ToCoordinator::Distinct { same },
                    Err(refusal) => refused(refusal),
                };
                write(stream, &answer).await
            }
            Event::Concluding(concluding) => {
                write(stream, &ToCoordinator::Concluding(concluding)).await
            }
            Event::Concluded(concluded) => {
                self.stage = Stage::Idle;
                let answer = match concluded {
                    Ok(jobs) => ToCoordinator::Concluded {
                        jobs: jobs.iter().map(ConclusionOnWire::of).collect(),
                    },
                    Err(refusal) => refused(refusal),
                };
                write(stream, &answer).await
            }
            Event::Ready => write(stream, &ToCoordinator::Ready).await,
            Event::Began { after, at } => {
                let nanoseconds = |of: Duration| u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
                let began = ToCoordinator::Began {
                    after_ns: nanoseconds(after),
                    ago_ns: nanoseconds(at.elapsed()),
                };
                write(stream, &began).await
            }
            Event::Progress(progress) => self.progress(progress, stream).await,
            Event::Ended(Ok(Ran { reports, is_wrong })) => {
                self.stage = Stage::Idle;
                for (job, report) in reports.iter().enumerate() {
                    self.report(job, report, stream).await?;
                }
                write(stream, &ToCoordinator::Ended { is_wrong }).await
            }
            Event::Ended(Err(refusal)) => {
                self.stage = Stage::Idle;
                write(stream, &refused(refusal)).await
            }
        }
    }

    async fn progress(
        &mut self,
        progress: BenchProgress,
        stream: &mut TlsStream<TcpStream>,
    ) -> Result<(), String> {
        let job = progress.job;
        if let Some(told) = self.told.get_mut(job) {
            let first = *told;
            *told += progress.intervals.len();
            intervals(job, first, &progress.intervals, stream).await?;
        }
        let nanoseconds = |of: Duration| u64::try_from(of.as_nanos()).unwrap_or(u64::MAX);
        let progress = Progress {
            job,
            elapsed_ns: nanoseconds(progress.elapsed),
            ramping: progress.ramping,
            interval_ns: nanoseconds(progress.interval),
            requests: progress.requests,
            bytes: progress.bytes,
            errors: progress.errors,
        };
        write(stream, &ToCoordinator::Progress(progress)).await
    }

    async fn report(
        &mut self,
        job: usize,
        report: &BenchReport,
        stream: &mut TlsStream<TcpStream>,
    ) -> Result<(), String> {
        let message = ToCoordinator::Report {
            job,
            report: Box::new(ReportOnWire::of(report)),
        };
        write(stream, &message).await?;
        // The last one that was told may have become shorter, and those behind it may have gone.
        let told = self.told.get(job).copied().unwrap_or(0);
        let first = told.min(report.intervals.len()).saturating_sub(1);
        intervals(job, first, &report.intervals[first..], stream).await
    }

    /// Ends what runs, and waits until the worker has let go of everything.
    async fn end(mut self) {
        self.halt();
        self.work = None;
        while self.events.recv().await.is_some() {}
        if let Some(thread) = self.thread.take() {
            // It has dropped its sender last, or panicked, which was printed.
            let _ = thread.join();
        }
    }
}

/// Whether each agent has blocks of its own to check.
fn check_verify(verify: &Verify, configs: &[BenchConfig]) -> Result<(), String> {
    let is_apart = |config: &BenchConfig| config.among().apart;
    let is_sound = verify.seeds.len() == configs.len() && verify.writer > 0;
    match is_sound && configs.iter().all(is_apart) {
        true => Ok(()),
        false => Err("what is checked has a seed for each job, and each agent has a number and blocks of its own".to_owned()),
    }
}

/// Until the agent is to end.
async fn ends(is_ending: &mut watch::Receiver<bool>) {
    // Where nobody can say so any more, it has ended.
    let _ = is_ending.wait_for(|ending| *ending).await;
}

fn refused(refusal: Refusal) -> ToCoordinator {
    ToCoordinator::Refused {
        code: refusal.code,
        text: refusal.text,
    }
}

fn name(said: &ToAgent) -> &'static str {
    match said {
        ToAgent::Hello { .. } => "hello",
        ToAgent::Open(_) => "open",
        ToAgent::Check { .. } => "check",
        ToAgent::Run { .. } => "run",
        ToAgent::Distinct { .. } => "distinct",
        ToAgent::Conclude => "conclude",
        ToAgent::Start { .. } => "start",
        ToAgent::Stop => "stop",
        ToAgent::Ping { .. } => "ping",
        ToAgent::Goodbye => "goodbye",
    }
}

async fn intervals(
    job: usize,
    first: usize,
    all: &[Interval],
    stream: &mut TlsStream<TcpStream>,
) -> Result<(), String> {
    for (first, intervals) in in_parts(first, all) {
        let message = ToCoordinator::Intervals {
            job,
            first,
            intervals,
        };
        write(stream, &message).await?;
    }
    Ok(())
}

fn work_off(
    worker: &mut dyn Worker,
    to_do: &blocking::Receiver<Work>,
    done: &mpsc::UnboundedSender<Event>,
) {
    for work in to_do {
        let event = match work {
            Work::Open(open) => Event::Opened(worker.open(&open)),
            Work::Check { side, configs } => Event::Checked(worker.check(side, configs)),
            Work::Run {
                side,
                configs,
                verify,
                beginning,
            } => {
                let conductor = Conductor {
                    events: done.clone(),
                    beginning: Some(beginning),
                };
                Event::Ended(worker.run(side, configs, verify, conductor))
            }
            Work::Distinct { side } => Event::Distinct(worker.distinct(side)),
            Work::Conclude { stop } => {
                let teller = Teller(done.clone());
                Event::Concluded(worker.conclude(&stop, &teller))
            }
        };
        // Who has gone is told nothing.
        let _ = done.send(event);
    }
}

/// The next message; none where the peer has ended.
async fn read(
    stream: &mut TlsStream<TcpStream>,
    frames: &mut Frames,
) -> Result<Option<ToAgent>, FrameError> {
    let mut bytes = vec![0; READ_BYTES];
    loop {
        if let Some(message) = frames.take()? {
            return Ok(Some(message));
        }
        // A connection that broke ends like one that was closed: nothing of either is kept.
        match stream.read(&mut bytes).await.unwrap_or(0) {
            0 => return frames.finish().map(|()| None),
            read => frames.push(&bytes[..read]),
        }
    }
}

async fn write(stream: &mut TlsStream<TcpStream>, message: &ToCoordinator) -> Result<(), String> {
    let frame = encode(message).map_err(|error| error.to_string())?;
    let written = timeout(KEEP_ALIVE, async {
        stream.write_all(&frame).await?;
        stream.flush().await
    });
    let seconds = KEEP_ALIVE.as_secs();
    let late = |_| io::Error::other(format!("it took nothing for {seconds} seconds"));
    written
        .await
        .map_err(late)
        .and_then(|written| written)
        .map_err(|error| format!("the connection broke: {error}"))
}

/// Says that something will not be done, and hangs up. Who does not read that is told by the connection's end.
async fn refuse(stream: &mut TlsStream<TcpStream>, code: Code, text: &str) {
    let message = ToCoordinator::Refused {
        code,
        text: text.to_owned(),
    };
    let _ = write(stream, &message).await;
    let _ = timeout(LINGER, async {
        let _ = stream.shutdown().await;
        // Bytes that nobody has read when a socket is closed take with them what was said last.
        let (socket, _) = stream.get_mut();
        let mut bytes = [0; 4 << 10];
        for _ in 0..LINGER_READS {
            if socket.read(&mut bytes).await.unwrap_or(0) == 0 {
                return;
            }
        }
    })
    .await;
}

/// A name from elsewhere.
fn named(text: &str) -> String {
    plain(text).chars().take(NAME_MAX).collect()
}
