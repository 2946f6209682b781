//! The coordinator: has several agents make one load, at the same time, and merges what they measured.
//!
//! Each agent has a task that reads and one that writes. Nothing is presumed of clocks: each agent is told how long after it hears of it to begin, half
//! of its round trip less, and what is known of when it did is in the result. An agent that is lost, or refuses, ends the run on all of them; what was
//! measured until then is kept, and the error with it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use weir_lab::document::{Machine, Volume};
use weir_load::Stop;
use weir_load::bench::{BenchConfig, BenchReport, Interval};

use crate::frame::{Frames, encode};
use crate::merge::{self, Began, ShareError, Spread, from_intervals, merged};
use crate::message::{Code, Concluding, Open, Progress, ToAgent, ToCoordinator, Verify, WrongJob};
use crate::plain::plain;
use crate::tls::{TlsError, Trust, is_agreed};
use crate::token::Token;
use crate::wire::{Conclusion, ConclusionOnWire, JobOnWire, Most, ReportOnWire, Told, WireError};
use crate::{AGENTS_MAX, KEEP_ALIVE, PING_INTERVAL, PROTOCOL};

/// For how long an agent may take to be reached and to say who it is.
const REACH: Duration = Duration::from_secs(10);
/// Round trips that are measured before a run; the shortest counts.
const ROUND_TRIPS: u64 = 8;
/// Between the word to start and the beginning at least, beside several round trips.
const LEAD: Duration = Duration::from_millis(20);
/// For how long agents may take to end a run that was stopped.
const WIND_DOWN: Duration = Duration::from_secs(30);
/// How often it is looked whether the user wants an end.
const LOOK: Duration = Duration::from_millis(100);
/// For how long agents may take to open volumes, and for how long to be ready for a run.
const PREPARE: Duration = Duration::from_secs(120);
/// For how long an agent whose connection lives may tell nothing of its run.
const PROGRESS: Duration = Duration::from_secs(3 * KEEP_ALIVE.as_secs());
/// Messages of agents that wait to be taken up; who sends more waits itself.
const HEARD_MAX: usize = 64;
/// How long agents that were told goodbye are waited for.
const PARTING: Duration = Duration::from_secs(5);
/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Where an agent is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    host: String,
    port: u16,
}

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no agent's address: HOST:PORT is, and an IPv6 address stands in brackets, as in [::1]:4440"
)]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let port = port.parse().map_err(|_| wrong())?;
        let host = bare.unwrap_or(host);
        if host.is_empty() || port == 0 || (bare.is_none() && host.contains(':')) {
            return Err(wrong());
        }
        ServerName::try_from(host.to_owned()).map_err(|_| wrong())?;
        Ok(Address {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(formatter, "[{}]:{}", self.host, self.port),
            false => write!(formatter, "{}:{}", self.host, self.port),
        }
    }
}

/// What is wrong with one agent, or with what was asked of all.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// It cannot be reached.
    #[error("agent {agent} cannot be reached: {source}; is `weir agent` running there?")]
    Reach {
        /// Which.
        agent: String,
        /// Why.
        source: io::Error,
    },
    /// It does not say anything in time.
    #[error("agent {agent} did not answer within {} seconds", REACH.as_secs())]
    Silent {
        /// Which.
        agent: String,
    },
    /// It is not who it should be.
    #[error(
        "agent {agent} shows a certificate that is not trusted ({reason}), fingerprint {fingerprint}; if that is what `weir agent` printed there, say --agent-fingerprint {fingerprint}"
    )]
    Certificate {
        /// Which.
        agent: String,
        /// What is wrong with the certificate.
        reason: String,
        /// The certificate's.
        fingerprint: String,
    },
    /// What is there is no agent.
    #[error("what listens at {agent} does not speak TLS as `weir agent` does: {source}")]
    Tls {
        /// Which.
        agent: String,
        /// What went wrong.
        source: io::Error,
    },
    /// It will not do what was asked of it.
    #[error("agent {agent} refuses: {text}{}", hint(*code))]
    Refused {
        /// Which.
        agent: String,
        /// Why.
        code: Code,
        /// In words.
        text: String,
    },
    /// It said something else than it should.
    #[error("agent {agent} does not keep to the protocol: {text}")]
    Protocol {
        /// Which.
        agent: String,
        /// What it said.
        text: String,
    },
    /// It is gone.
    #[error("agent {agent} is lost: {text}")]
    Lost {
        /// Which.
        agent: String,
        /// How that was seen.
        text: String,
    },
    /// It did not end in time.
    #[error("agent {agent} was told to stop and did not end the run within {} seconds", WIND_DOWN.as_secs())]
    Endless {
        /// Which.
        agent: String,
    },
    /// Agents that see different volumes.
    #[error("agents see different volumes: {text}")]
    Different {
        /// How they differ.
        text: String,
    },
    /// The same one twice, or too many.
    #[error("{0}")]
    Agents(String),
    /// It could not run a job that is to come.
    #[error("agent {agent} cannot run this: {text}")]
    Job {
        /// Which.
        agent: String,
        /// The job, by its place in its side.
        job: usize,
        /// Why.
        text: String,
    },
    /// For it, two volumes are one medium.
    #[error("for agent {agent} the volumes {one} and {other} are the same medium")]
    Same {
        /// Which.
        agent: String,
        /// A volume, by its place in its side.
        one: usize,
        /// The other one.
        other: usize,
    },
    /// The user ended it, and nothing was measured.
    #[error("it was interrupted before the agents began: nothing was measured")]
    Interrupted,
    /// There are more queues than can be counted.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// Nothing to trust, or what is to be trusted cannot be read.
    #[error(transparent)]
    Trust(#[from] TlsError),
}

fn hint(code: Code) -> &'static str {
    match code {
        Code::Token => {
            "; both sides need a token file with the same line (--agent-token-file here, --token-file there)"
        }
        Code::Protocol => "; run the same version of Weir on all machines",
        Code::Busy => "; wait until it is done, or stop it",
        _ => "",
    }
}

/// Who the agents are, and how they are trusted.
#[derive(Debug, Clone)]
pub struct Agents {
    /// Where they are.
    pub addresses: Vec<Address>,
    /// What proves to them who asks.
    pub token: Token,
    /// What proves to us who they are.
    pub trust: Trust,
    /// How this coordinator is called where it is in another one's way.
    pub name: String,
    /// This version of Weir.
    pub version: String,
    /// For how long they are waited for.
    pub patience: Patience,
}

/// For how long agents are waited for that answer and get nowhere.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Until volumes are open, and again until queues are.
    pub prepare: Duration,
    /// Between two words about a run, from its beginning to its end.
    pub progress: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            prepare: PREPARE,
            progress: PROGRESS,
        }
    }
}

/// An agent that answers.
#[derive(Debug)]
struct Link {
    name: String,
    version: String,
    machine: Machine,
    /// To the task that writes.
    writer: mpsc::UnboundedSender<Outgoing>,
    tasks: [JoinHandle<()>; 2],
    /// Once this is there, nothing more is heard from it.
    lost: Option<String>,
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

enum Outgoing {
    Message(ToAgent),
    /// Begin at this moment, as this side's clock has it, told so much earlier.
    Start {
        at: Instant,
        half_round_trip: Duration,
        /// Told when it is on its way.
        sent: mpsc::Sender<(usize, Heard)>,
        agent: usize,
    },
}

/// What comes from an agent, or is found out about it.
#[derive(Debug)]
enum Heard {
    Said(Box<ToCoordinator>, Instant),
    Started(Instant),
    Broken(AgentError),
}

/// Several agents that one coordinator has to itself.
#[derive(Debug)]
pub struct Coordinator {
    links: Vec<Link>,
    heard: mpsc::Receiver<(usize, Heard)>,
    teller: mpsc::Sender<(usize, Heard)>,
    version: String,
    patience: Patience,
    pings: u64,
    /// Of the last run.
    jobs: usize,
}

/// One agent's part in a run.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its address.
    pub name: String,
    /// Its version of Weir.
    pub version: String,
    /// Its machine.
    pub machine: Machine,
    /// What randomness started from, on the first volume; each agent's queues draw their own from it.
    pub seed: u64,
    /// By how much later than the first it began.
    pub start_offset: Option<Duration>,
    /// The shortest round trip.
    pub round_trip: Option<Duration>,
    /// What it measured on each volume; of a lost one what it had told. Empty where it did not begin.
    pub reports: Vec<BenchReport>,
    /// Why its part is not whole.
    pub error: Option<String>,
}

/// What several agents made of a run.
#[derive(Debug)]
pub struct Outcome {
    /// All of them together, for each volume. Where there is an error they are of what was measured until then.
    pub merged: Vec<BenchReport>,
    /// In the order in which they were named.
    pub parts: Vec<Part>,
    /// How far apart they began; none where one did not.
    pub spread: Option<Spread>,
    /// The first thing that went wrong.
    pub error: Option<AgentError>,
}

/// How far an agent is.
#[derive(Debug)]
pub struct Tick {
    /// Which, by its place.
    pub agent: usize,
    /// Since the beginning.
    pub elapsed: Duration,
    /// Whether it is not measured yet.
    pub ramping: bool,
    /// Since it was last told.
    pub interval: Duration,
    /// Requests of all its volumes that ended well.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// What was measured on any volume in the intervals that are over since.
    pub intervals: Vec<Interval>,
}

impl Coordinator {
    /// Reaches all agents, and has each to itself. Where one cannot be had, none is. `stop` gives up.
    ///
    /// # Errors
    /// [`AgentError`].
    pub async fn connect(agents: &Agents, stop: &Stop) -> Result<Self, AgentError> {
        let different: BTreeSet<_> = agents.addresses.iter().collect();
        if different.len() < agents.addresses.len() {
            return Err(AgentError::Agents(
                "an agent is named twice; each makes its part of the load once".to_owned(),
            ));
        }
        if agents.addresses.len() > AGENTS_MAX {
            return Err(AgentError::Agents(format!(
                "{} agents are too many; {AGENTS_MAX} are possible",
                agents.addresses.len()
            )));
        }
        let (teller, heard) = mpsc::channel(HEARD_MAX);
        let mut coordinator = Coordinator {
            links: Vec::new(),
            heard,
            teller,
            version: agents.version.clone(),
            patience: agents.patience,
            pings: 0,
            jobs: 0,
        };
        for address in &agents.addresses {
            let place = coordinator.links.len();
            let link = reach(agents, address, place, &coordinator.teller);
            let link = tokio::select! {
                link = timeout(REACH, link) => link,
                () = asked(stop) => return Err(AgentError::Interrupted),
            };
            let silent = |_| AgentError::Silent {
                agent: address.to_string(),
            };
            coordinator.links.push(link.map_err(silent)??);
        }
        Ok(coordinator)
    }

    /// Their addresses, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// Agents of another version of Weir than this one, with their version.
    pub fn strangers(&self) -> impl Iterator<Item = (&str, &str)> {
        let other = |link: &&Link| link.version != self.version;
        let each = self.links.iter().filter(other);
        each.map(|link| (link.name.as_str(), link.version.as_str()))
    }

    /// Has all of them open volumes; what they are, for each side. `stop` gives up.
    ///
    /// # Errors
    /// [`AgentError`], where one cannot, or volumes of one URL are not alike.
    pub async fn open(&mut self, open: &Open, stop: &Stop) -> Result<Vec<Vec<Volume>>, AgentError> {
        self.tell_all(|_| ToAgent::Open(open.clone()));
        let late = "did not open its volumes";
        let all = 0..self.links.len();
        let opened = self.answers(all, late, stop, |said| match *said {
            ToCoordinator::Opened { volumes } => Ok(volumes),
            other => Err(Box::new(other)),
        });
        let opened = opened.await?;
        self.alike(open, &opened)?;
        let seen = opened.into_iter().next().unwrap_or_default();
        let of_side = |side: &Vec<usize>| {
            let volumes = side.iter().filter_map(|&place| seen.get(place).cloned());
            volumes.collect()
        };
        Ok(open.sides.iter().map(of_side).collect())
    }

    /// Has all of them say whether they could run these jobs on a side. `stop` gives up.
    ///
    /// # Errors
    /// [`AgentError::Job`] where one could not, and others.
    pub async fn check(
        &mut self,
        side: usize,
        configs: &[BenchConfig],
        stop: &Stop,
    ) -> Result<(), AgentError> {
        self.check_all_there()?;
        let shares = self.shares(configs, false)?;
        self.tell_all(|agent| ToAgent::Check {
            side,
            jobs: shares[agent].iter().map(JobOnWire::of).collect(),
        });
        let late = "did not say whether it could run a job";
        let all = 0..self.links.len();
        let checked = self.answers(all, late, stop, |said| match *said {
            ToCoordinator::Checked { wrong } => Ok(wrong),
            other => Err(Box::new(other)),
        });
        let checked = checked.await?;
        for (link, wrong) in self.links.iter().zip(checked) {
            let agent = link.name.clone();
            match wrong {
                None => {}
                Some(WrongJob { job, text }) if job < configs.len() => {
                    return Err(AgentError::Job { agent, job, text });
                }
                Some(WrongJob { job, .. }) => {
                    let text = format!("it tells of a job {job} that was not asked for");
                    return Err(AgentError::Protocol { agent, text });
                }
            }
        }
        Ok(())
    }

    /// Fails where two volumes of a side are one medium for an agent: what is written through one would be wrong for the other. The first block of each is written to for
    /// that, by one agent after the other, and holds afterwards what it held before. `stop` gives up.
    ///
    /// # Errors
    /// [`AgentError::Same`], and others.
    pub async fn check_distinct(&mut self, side: usize, stop: &Stop) -> Result<(), AgentError> {
        self.check_all_there()?;
        for agent in 0..self.links.len() {
            self.links[agent].tell(ToAgent::Distinct { side });
            let late = "did not say whether volumes are one medium";
            let one = agent..agent + 1;
            let answers = self.answers(one, late, stop, |said| match *said {
                ToCoordinator::Distinct { same } => Ok(same),
                other => Err(Box::new(other)),
            });
            if let Some(&Some((one, other))) = answers.await?.first() {
                let agent = self.links[agent].name.clone();
                return Err(AgentError::Same { agent, one, other });
            }
        }
        Ok(())
    }

    /// After [`Coordinator::run_verified`], when no agent writes any more: has each read everything once more that it wrote, and say for each job what was found. `stop` ends that early; where it is
    /// the one that ended the run, give [`Stop::for_what_follows`]. An error stands in place of what an agent that was lost found.
    pub async fn conclude(
        &mut self,
        stop: &Stop,
        tell: &mut dyn FnMut(usize, Concluding),
    ) -> Vec<Result<Vec<Conclusion>, AgentError>> {
        let (agents, jobs) = (self.links.len(), self.jobs);
        let mut concluded: Vec<Option<Result<_, AgentError>>> = Vec::with_capacity(agents);
        for link in &self.links {
            concluded.push(link.is_there().err().map(Err));
            link.tell(ToAgent::Conclude);
        }
        let mut told = vec![Instant::now(); agents];
        // From when on nobody may go on; none while nobody wants an end.
        let mut deadline = None;
        while concluded.iter().any(Option::is_none) {
            if deadline.is_none() && stop.is_asked() {
                self.tell_all(|_| ToAgent::Stop);
                deadline = Some(Instant::now() + WIND_DOWN);
            }
            for (agent, of) in concluded.iter_mut().enumerate() {
                let name = self.links[agent].name.clone();
                if deadline.is_some_and(|deadline| Instant::now() > deadline) {
                    of.get_or_insert(Err(AgentError::Endless { agent: name }));
                } else if told[agent].elapsed() > self.patience.progress {
                    let error = self.slow(agent, "told nothing", self.patience.progress);
                    of.get_or_insert(Err(error));
                }
            }
            let Some((agent, heard)) = self.next().await else {
                continue;
            };
            if concluded[agent].is_some() {
                continue;
            }
            concluded[agent] = match heard {
                Heard::Started(_) => None,
                Heard::Broken(error) => Some(Err(error)),
                Heard::Said(said, at) => match *said {
                    ToCoordinator::Pong { .. } => None,
                    ToCoordinator::Concluding(progress) => {
                        told[agent] = at.max(told[agent]);
                        tell(agent, progress);
                        None
                    }
                    ToCoordinator::Concluded { jobs: told } => {
                        let most = Most::of(agents, jobs);
                        Some(self.concluded(agent, told, jobs, most))
                    }
                    other => Some(Err(self.unexpected(agent, &other))),
                },
            };
        }
        concluded.into_iter().flatten().collect()
    }

    fn concluded(
        &self,
        agent: usize,
        told: Vec<ConclusionOnWire>,
        jobs: usize,
        most: Most,
    ) -> Result<Vec<Conclusion>, AgentError> {
        let wrong = |text: String| AgentError::Protocol {
            agent: self.links[agent].name.clone(),
            text,
        };
        if told.len() != jobs {
            return Err(wrong("it checked another number of volumes".to_owned()));
        }
        let read = told.into_iter().map(|of| of.conclusion(most));
        read.collect::<Result<_, _>>()
            .map_err(|error| wrong(error.to_string()))
    }

    /// What each of them does of a job on each volume.
    fn shares(
        &self,
        configs: &[BenchConfig],
        apart: bool,
    ) -> Result<Vec<Vec<BenchConfig>>, ShareError> {
        let agents = self.links.len() as u32;
        let of_agent = |index| {
            let each = configs.iter();
            let each = each.map(|of| merge::share(of, index, agents, apart));
            each.collect()
        };
        (0..agents).map(of_agent).collect()
    }

    /// What those say to the question that they were asked. `read` says what is an answer.
    async fn answers<T>(
        &mut self,
        who: Range<usize>,
        late: &str,
        stop: &Stop,
        read: impl Fn(Box<ToCoordinator>) -> Result<T, Box<ToCoordinator>>,
    ) -> Result<Vec<T>, AgentError> {
        let mut answers: Vec<Option<T>> = who.clone().map(|_| None).collect();
        let end = Instant::now() + self.patience.prepare;
        while let Some(missing) = answers.iter().position(Option::is_none) {
            if stop.is_asked() {
                return Err(AgentError::Interrupted);
            }
            if Instant::now() > end {
                return Err(self.slow(who.start + missing, late, self.patience.prepare));
            }
            let Some((agent, heard)) = self.next().await else {
                continue;
            };
            match heard {
                Heard::Said(said, _) => match read(said) {
                    Ok(answer) if who.contains(&agent) => {
                        answers[agent - who.start] = Some(answer);
                    }
                    Ok(_) => {
                        let text = "it answers what it was not asked".to_owned();
                        let agent = self.links[agent].name.clone();
                        return Err(AgentError::Protocol { agent, text });
                    }
                    Err(other) if matches!(*other, ToCoordinator::Pong { .. }) => {}
                    Err(other) => return Err(self.unexpected(agent, &other)),
                },
                Heard::Started(_) => {}
                Heard::Broken(error) => return Err(error),
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Whether all see what the first one sees.
    fn alike(&self, open: &Open, opened: &[Vec<Volume>]) -> Result<(), AgentError> {
        for (link, volumes) in self.links.iter().zip(opened) {
            if volumes.len() != open.volumes.len() {
                return Err(AgentError::Protocol {
                    agent: link.name.clone(),
                    text: "it opened another number of volumes".to_owned(),
                });
            }
            for (own, first) in volumes.iter().zip(&opened[0]) {
                let shape = |of: &Volume| (of.block_size_bytes, of.length_bytes);
                if shape(own) != shape(first) {
                    let said = |of: &Volume| {
                        format!(
                            "{} bytes in {}-byte blocks",
                            of.length_bytes, of.block_size_bytes
                        )
                    };
                    return Err(AgentError::Different {
                        text: format!(
                            "{} is {} at {}, and {} at {}",
                            own.url,
                            said(first),
                            self.links[0].name,
                            said(own),
                            link.name
                        ),
                    });
                }
            }
        }
        Ok(())
    }

    /// Runs a job on each volume of a side, on all agents at the same time. `stop` ends it early, which is no error. There is an outcome
    /// also where an agent is lost; then it says so.
    ///
    /// # Errors
    /// [`AgentError::Share`], [`AgentError::Lost`] where an agent was lost before, and [`AgentError::Interrupted`] where `stop` came before the
    /// beginning; nothing is measured then.
    pub async fn run(
        &mut self,
        side: usize,
        configs: &[BenchConfig],
        stop: &Stop,
        tell: &mut dyn FnMut(Tick),
    ) -> Result<Outcome, AgentError> {
        self.run_as(side, configs, None, stop, tell).await
    }

    /// As [`Coordinator::run`], but every block is checked, and each agent has blocks of its own. There is a seed of what is written for each job, which nobody has used before. The first
    /// thing wrong ends the run on all of them, and is no error; [`Coordinator::conclude`] tells it.
    ///
    /// # Errors
    /// As [`Coordinator::run`].
    pub async fn run_verified(
        &mut self,
        side: usize,
        configs: &[BenchConfig],
        seeds: &[u64],
        stop: &Stop,
        tell: &mut dyn FnMut(Tick),
    ) -> Result<Outcome, AgentError> {
        self.run_as(side, configs, Some(seeds), stop, tell).await
    }

    async fn run_as(
        &mut self,
        side: usize,
        configs: &[BenchConfig],
        seeds: Option<&[u64]>,
        stop: &Stop,
        tell: &mut dyn FnMut(Tick),
    ) -> Result<Outcome, AgentError> {
        self.check_all_there()?;
        let shares = self.shares(configs, seeds.is_some())?;
        self.jobs = configs.len();
        let mut run = Running::new(&shares);
        let jobs = |agent: usize| shares[agent].iter().map(JobOnWire::of).collect();
        let verify = |agent: usize, seeds: &[u64]| Verify {
            seeds: seeds.to_vec(),
            writer: agent as u16 + 1,
        };
        self.tell_all(|agent| ToAgent::Run {
            side,
            jobs: jobs(agent),
            verify: seeds.map(|seeds| verify(agent, seeds)),
        });
        if self.all_ready(&mut run, stop).await {
            self.measure_round_trips(&mut run, stop).await;
        }
        if run.error.is_none() && !stop.is_asked() {
            self.start(&mut run);
            run.is_started = true;
        }
        self.finish(&mut run, stop, tell).await;
        if run.error.is_none() && !run.is_started {
            return Err(AgentError::Interrupted);
        }
        Ok(self.outcome(run))
    }

    /// Says goodbye, and waits for the agents to be free for others: each closes its volumes, and then the connection. Not for
    /// long; one that takes longer is told by the connection's end.
    pub async fn close(mut self) {
        self.tell_all(|_| ToAgent::Goodbye);
        let end = Instant::now() + PARTING;
        for link in &mut self.links {
            // Its reader ends with the connection.
            let left = end.saturating_duration_since(Instant::now());
            let _ = timeout(left, &mut link.tasks[0]).await;
        }
    }

    /// Fails where an agent was lost before: it does not come back.
    fn check_all_there(&self) -> Result<(), AgentError> {
        self.links.iter().try_for_each(Link::is_there)
    }

    fn tell_all(&self, message: impl Fn(usize) -> ToAgent) {
        for (agent, link) in self.links.iter().enumerate() {
            link.tell(message(agent));
        }
    }

    /// What is heard next; none where that is nothing for a while.
    async fn next(&mut self) -> Option<(usize, Heard)> {
        let heard = timeout(LOOK, self.heard.recv()).await.ok()?;
        let (agent, heard) = heard.expect("the coordinator itself holds a sender");
        if let Heard::Broken(error) = &heard {
            let lost = &mut self.links[agent].lost;
            lost.get_or_insert_with(|| error.to_string());
        }
        Some((agent, heard))
    }

    /// An agent that is there and does not do what it should.
    fn slow(&self, agent: usize, what: &str, within: Duration) -> AgentError {
        AgentError::Lost {
            agent: self.links[agent].name.clone(),
            text: format!("it {what} within {within:?}"),
        }
    }

    /// Nothing more is expected of an agent in a run.
    fn lose(&mut self, run: &mut Running, agent: usize, error: AgentError) {
        self.links[agent].lost.get_or_insert(error.to_string());
        run.agents[agent].error.get_or_insert(error.to_string());
        run.error.get_or_insert(error);
    }

    fn unexpected(&self, agent: usize, said: &ToCoordinator) -> AgentError {
        let agent = self.links[agent].name.clone();
        match said {
            ToCoordinator::Refused { code, text } => AgentError::Refused {
                agent,
                code: *code,
                text: text.clone(),
            },
            _ => AgentError::Protocol {
                agent,
                text: "its answer is of another question".to_owned(),
            },
        }
    }

    /// Whether all have opened their queues.
    async fn all_ready(&mut self, run: &mut Running, stop: &Stop) -> bool {
        let end = Instant::now() + self.patience.prepare;
        while let Some(missing) = run.agents.iter().position(|of| !of.is_ready) {
            if stop.is_asked() {
                return false;
            }
            if Instant::now() > end {
                let error = self.slow(missing, "was not ready", self.patience.prepare);
                self.lose(run, missing, error);
                return false;
            }
            let Some((agent, heard)) = self.next().await else {
                continue;
            };
            self.take(run, agent, heard, &mut |_| {});
            if run.error.is_some() {
                return false;
            }
        }
        true
    }

    async fn measure_round_trips(&mut self, run: &mut Running, stop: &Stop) {
        let end = Instant::now() + self.patience.prepare;
        for _ in 0..ROUND_TRIPS {
            self.pings += 1;
            let number = self.pings;
            for (link, of) in self.links.iter().zip(&mut run.agents) {
                of.pinged = Some((number, Instant::now()));
                link.tell(ToAgent::Ping { number });
            }
            while let Some(missing) = run.agents.iter().position(|of| of.pinged.is_some()) {
                if run.error.is_some() || stop.is_asked() {
                    return;
                }
                if Instant::now() > end {
                    let error = self.slow(missing, "answered no ping", self.patience.prepare);
                    self.lose(run, missing, error);
                    return;
                }
                let Some((agent, heard)) = self.next().await else {
                    continue;
                };
                self.take(run, agent, heard, &mut |_| {});
            }
        }
    }

    fn start(&self, run: &mut Running) {
        let longest = run.agents.iter().filter_map(|of| of.round_trip).max();
        let at = Instant::now() + LEAD + 4 * longest.unwrap_or_default();
        for (agent, (link, of)) in self.links.iter().zip(&mut run.agents).enumerate() {
            of.told = Some(at);
            // Where nobody writes any more, the agent is lost, and that is heard of.
            let _ = link.writer.send(Outgoing::Start {
                at,
                half_round_trip: of.round_trip.unwrap_or_default() / 2,
                sent: self.teller.clone(),
                agent,
            });
        }
    }

    /// Until every agent has told all, or is lost. Where one is lost, or has found what is wrong, or the user wants it, the others are stopped.
    async fn finish(&mut self, run: &mut Running, stop: &Stop, tell: &mut dyn FnMut(Tick)) {
        // From when on nobody may go on; none while all is well.
        let mut deadline = None;
        while run.is_open(&self.links) {
            let is_over = run.error.is_some() || run.agents.iter().any(|of| of.is_wrong);
            if deadline.is_none() && (is_over || stop.is_asked()) {
                self.tell_all(|_| ToAgent::Stop);
                deadline = Some(Instant::now() + WIND_DOWN);
            }
            match deadline {
                None => self.lose_who_stands_still(run),
                Some(deadline) if Instant::now() > deadline => {
                    self.give_up(run);
                    return;
                }
                Some(_) => {}
            }
            if let Some((agent, heard)) = self.next().await {
                self.take(run, agent, heard, tell);
            }
        }
    }

    /// An agent may answer pings and do nothing else.
    fn lose_who_stands_still(&mut self, run: &mut Running) {
        for agent in 0..self.links.len() {
            let of = &run.agents[agent];
            let still = of.told.map(|told| told.elapsed()).unwrap_or_default();
            let is_open = self.links[agent].lost.is_none() && !of.has_ended;
            if is_open && still > self.patience.progress {
                let error = self.slow(agent, "made no progress", self.patience.progress);
                self.lose(run, agent, error);
            }
        }
    }

    /// Of those that go on although they were stopped nothing more is heard.
    fn give_up(&mut self, run: &mut Running) {
        for agent in 0..self.links.len() {
            if self.links[agent].lost.is_none() && !run.agents[agent].has_ended {
                let error = AgentError::Endless {
                    agent: self.links[agent].name.clone(),
                };
                self.lose(run, agent, error);
            }
        }
    }

    /// Takes up what was heard of an agent in a run.
    fn take(&mut self, run: &mut Running, agent: usize, heard: Heard, tell: &mut dyn FnMut(Tick)) {
        let of = &mut run.agents[agent];
        let failed = match heard {
            Heard::Started(at) => {
                of.started = Some(at);
                None
            }
            Heard::Broken(error) => Some(error),
            Heard::Said(said, at) => match of.hear(agent, *said, at, tell) {
                Ok(()) => None,
                Err(Misheard::Refused(code, text)) => {
                    // It keeps its connection; the run is over for it.
                    of.has_ended = true;
                    Some(AgentError::Refused {
                        agent: self.links[agent].name.clone(),
                        code,
                        text,
                    })
                }
                Err(Misheard::Senseless(text)) => {
                    self.links[agent].lost.get_or_insert_with(|| text.clone());
                    Some(AgentError::Protocol {
                        agent: self.links[agent].name.clone(),
                        text,
                    })
                }
            },
        };
        if let Some(error) = failed {
            run.agents[agent]
                .error
                .get_or_insert_with(|| error.to_string());
            run.error.get_or_insert(error);
        }
    }

    fn outcome(&self, run: Running) -> Outcome {
        let began: Option<Vec<Began>> = run.agents.iter().map(Hearing::began).collect();
        let spread = began
            .filter(|all| !all.is_empty())
            .map(|all| merge::spread(&all));
        let volumes = run.volumes;
        let is_whole = run.error.is_none();
        let mut parts: Vec<Part> = Vec::new();
        for (place, (link, of)) in self.links.iter().zip(run.agents).enumerate() {
            let offset = spread.as_ref().map(|spread| spread.offsets[place]);
            parts.push(Part {
                name: link.name.clone(),
                version: link.version.clone(),
                machine: link.machine.clone(),
                seed: of.seed,
                start_offset: offset,
                round_trip: of.round_trip,
                error: of.error.clone(),
                reports: of.reports(),
            });
        }
        let of_volume = |volume: usize| {
            let reports = parts.iter().filter_map(|part| part.reports.get(volume));
            let mut sum =
                merged(reports).unwrap_or_else(|| from_intervals(Vec::new(), run.is_open_loop));
            if !is_whole {
                // What a lost agent had in flight is not known.
                sum.littles_law = Default::default();
            }
            sum
        };
        Outcome {
            merged: (0..volumes).map(of_volume).collect(),
            parts,
            spread,
            error: run.error,
        }
    }
}

impl Link {
    /// Fails where it was lost before: it does not come back.
    fn is_there(&self) -> Result<(), AgentError> {
        let Some(why) = self.lost.as_deref() else {
            return Ok(());
        };
        let own = format!("agent {} is lost: ", self.name);
        Err(AgentError::Lost {
            agent: self.name.clone(),
            text: format!("before this run, {}", why.strip_prefix(&own).unwrap_or(why)),
        })
    }

    fn tell(&self, message: ToAgent) {
        // Where nobody writes any more, the agent is lost, and that is heard of.
        let _ = self.writer.send(Outgoing::Message(message));
    }
}

/// A run, as far as it is known.
struct Running {
    agents: Vec<Hearing>,
    volumes: usize,
    is_open_loop: bool,
    is_started: bool,
    error: Option<AgentError>,
}

impl Running {
    fn new(shares: &[Vec<BenchConfig>]) -> Self {
        let open = |config: &BenchConfig| config.load.rate().is_some();
        Running {
            agents: shares
                .iter()
                .map(|configs| Hearing::new(configs, Most::of(shares.len(), configs.len())))
                .collect(),
            volumes: shares.first().map_or(0, Vec::len),
            is_open_loop: shares.iter().flatten().any(open),
            is_started: false,
            error: None,
        }
    }

    /// Whether anything is to be heard yet.
    fn is_open(&self, links: &[Link]) -> bool {
        let mut each = links.iter().zip(&self.agents);
        each.any(|(link, of)| link.lost.is_none() && !of.has_ended)
    }
}

/// What was heard of one agent in a run.
struct Hearing {
    seed: u64,
    /// Of any figure of a volume.
    most: Most,
    is_ready: bool,
    pinged: Option<(u64, Instant)>,
    round_trip: Option<Duration>,
    /// When the word to start left.
    started: Option<Instant>,
    /// When it was last told how the run goes on; from the beginning on.
    told: Option<Instant>,
    /// How long after it came the agent began; and when that was known here, less what telling took.
    began: Option<(Duration, Instant)>,
    volumes: Vec<VolumeHearing>,
    /// What the volumes did since the last tick.
    tick: [u64; 3],
    tick_intervals: Vec<Interval>,
    has_ended: bool,
    /// Whether it did because blocks are not as they should be.
    is_wrong: bool,
    error: Option<String>,
}

#[derive(Default)]
struct VolumeHearing {
    open: bool,
    intervals: Told,
    /// Intervals that ticks have told of.
    ticked: usize,
    report: Option<BenchReport>,
}

enum Misheard {
    Refused(Code, String),
    Senseless(String),
}

impl Misheard {
    fn of(error: WireError) -> Self {
        Misheard::Senseless(error.to_string())
    }
}

impl Hearing {
    fn new(configs: &[BenchConfig], most: Most) -> Self {
        let volume = |config: &BenchConfig| VolumeHearing {
            open: config.load.rate().is_some(),
            ..VolumeHearing::default()
        };
        Hearing {
            seed: configs.first().map_or(0, |config| config.seed),
            most,
            is_ready: false,
            pinged: None,
            round_trip: None,
            started: None,
            told: None,
            began: None,
            volumes: configs.iter().map(volume).collect(),
            tick: [0; 3],
            tick_intervals: Vec::new(),
            has_ended: false,
            is_wrong: false,
            error: None,
        }
    }

    fn hear(
        &mut self,
        agent: usize,
        said: ToCoordinator,
        at: Instant,
        tell: &mut dyn FnMut(Tick),
    ) -> Result<(), Misheard> {
        if let (Some(told), false) = (&mut self.told, matches!(said, ToCoordinator::Pong { .. })) {
            *told = at.max(*told);
        }
        match said {
            ToCoordinator::Pong { number } => {
                if let Some((_, sent)) = self.pinged.take_if(|(pinged, _)| *pinged == number) {
                    let took = at - sent;
                    self.round_trip = Some(self.round_trip.map_or(took, |least| least.min(took)));
                }
            }
            ToCoordinator::Ready => self.is_ready = true,
            ToCoordinator::Began { after_ns, ago_ns } => {
                let known = at.checked_sub(Duration::from_nanos(ago_ns)).unwrap_or(at);
                self.began = Some((Duration::from_nanos(after_ns), known));
            }
            ToCoordinator::Progress(progress) => self.progress(agent, &progress, tell)?,
            ToCoordinator::Report { job, report } => self.report(job, *report)?,
            ToCoordinator::Intervals {
                job,
                first,
                intervals,
            } => {
                let most = self.most;
                let told = &mut self.volume(job)?.intervals;
                told.put(first, intervals, most).map_err(Misheard::of)?;
            }
            ToCoordinator::Ended { is_wrong } => {
                self.is_wrong = is_wrong;
                if !self.volumes.iter().all(|volume| volume.report.is_some()) {
                    return Err(Misheard::Senseless(
                        "it ended without a report of each volume".to_owned(),
                    ));
                }
                self.has_ended = true;
            }
            ToCoordinator::Refused { code, text } => return Err(Misheard::Refused(code, text)),
            ToCoordinator::Welcome { .. }
            | ToCoordinator::Opened { .. }
            | ToCoordinator::Checked { .. }
            | ToCoordinator::Distinct { .. }
            | ToCoordinator::Concluding(_)
            | ToCoordinator::Concluded { .. } => {
                return Err(Misheard::Senseless(
                    "its answer is of another question".to_owned(),
                ));
            }
        }
        Ok(())
    }

    fn volume(&mut self, job: usize) -> Result<&mut VolumeHearing, Misheard> {
        let missing =
            || Misheard::Senseless(format!("it tells of a volume {job} that was not asked for"));
        self.volumes.get_mut(job).ok_or_else(missing)
    }

    fn report(&mut self, job: usize, report: ReportOnWire) -> Result<(), Misheard> {
        let report = report.report(self.most).map_err(Misheard::of)?;
        self.volume(job)?.report = Some(report);
        Ok(())
    }

    /// A tick for all volumes of the agent, when the last of them was told of.
    fn progress(
        &mut self,
        agent: usize,
        progress: &Progress,
        tell: &mut dyn FnMut(Tick),
    ) -> Result<(), Misheard> {
        for (what, figure) in [
            ("the requests since it was last told", progress.requests),
            ("the bytes since it was last told", progress.bytes),
            ("the failures since it was last told", progress.errors),
        ] {
            self.most.check(what, figure).map_err(Misheard::of)?;
        }
        let volume = self.volume(progress.job)?;
        let told = volume.intervals.intervals();
        let fresh = told[volume.ticked.min(told.len())..].to_vec();
        // Those that were taken back are not told of again, however often they come.
        volume.ticked = volume.ticked.max(told.len());
        self.tick_intervals.extend(fresh);
        for (sum, more) in
            self.tick
                .iter_mut()
                .zip([progress.requests, progress.bytes, progress.errors])
        {
            *sum = sum.saturating_add(more);
        }
        if progress.job + 1 == self.volumes.len() {
            let [requests, bytes, errors] = std::mem::take(&mut self.tick);
            tell(Tick {
                agent,
                elapsed: Duration::from_nanos(progress.elapsed_ns),
                ramping: progress.ramping,
                interval: Duration::from_nanos(progress.interval_ns),
                requests,
                bytes,
                errors,
                intervals: std::mem::take(&mut self.tick_intervals),
            });
        }
        Ok(())
    }

    /// When it began, as far as can be said.
    fn began(&self) -> Option<Began> {
        let ((started, round_trip), (after, known)) =
            self.started.zip(self.round_trip).zip(self.began)?;
        // Nothing is before the word to start left; that moment is the same for all only as a distance from some other one.
        let base = *BASE;
        Some(Began {
            earliest: started.saturating_duration_since(base) + after,
            latest: known.saturating_duration_since(base),
            round_trip,
        })
    }

    fn reports(self) -> Vec<BenchReport> {
        let each = self.volumes.into_iter().map(|volume| {
            let intervals = volume.intervals.into_intervals();
            match volume.report {
                Some(report) if self.has_ended => BenchReport {
                    intervals,
                    ..report
                },
                _ => from_intervals(intervals, volume.open),
            }
        });
        match self.started {
            Some(_) => each.collect(),
            None => Vec::new(),
        }
    }
}

/// A moment that others are measured from.
static BASE: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);

/// Until the user wants an end.
async fn asked(stop: &Stop) {
    while !stop.is_asked() {
        sleep(LOOK).await;
    }
}

async fn reach(
    agents: &Agents,
    address: &Address,
    place: usize,
    teller: &mpsc::Sender<(usize, Heard)>,
) -> Result<Link, AgentError> {
    // That there is a moment to measure from before anything is measured.
    let _ = *BASE;
    let mut stream = secure(agents, address).await?;
    let agent = || address.to_string();
    let hello = ToAgent::Hello {
        protocol: PROTOCOL.to_owned(),
        version: agents.version.clone(),
        name: agents.name.clone(),
        token: agents.token.reveal().to_owned(),
    };
    let mut frames = Frames::of_stranger();
    let lost = |error: io::Error| AgentError::Lost {
        agent: agent(),
        text: error.to_string(),
    };
    write(&mut stream, &hello).await.map_err(lost)?;
    let said = loop {
        let next = frames.take::<ToCoordinator>();
        if let Some(said) = next.map_err(|error| AgentError::Protocol {
            agent: agent(),
            text: error.to_string(),
        })? {
            break said.plain();
        }
        let mut bytes = vec![0; READ_BYTES];
        let read = stream.read(&mut bytes).await.map_err(lost)?;
        if read == 0 {
            return Err(AgentError::Lost {
                agent: agent(),
                text: "it hung up before it answered".to_owned(),
            });
        }
        frames.push(&bytes[..read]);
    };
    let (version, machine) = match said {
        ToCoordinator::Welcome { version, machine } => (version, machine),
        ToCoordinator::Refused { code, text } => {
            return Err(AgentError::Refused {
                agent: agent(),
                code,
                text,
            });
        }
        _ => {
            return Err(AgentError::Protocol {
                agent: agent(),
                text: "it began with something else than a welcome".to_owned(),
            });
        }
    };
    frames.trust();
    let (reader, writer) = tokio::io::split(stream);
    let (to_writer, outgoing) = mpsc::unbounded_channel();
    let reading = read_all(reader, frames, place, agent(), teller.clone());
    let writing = write_all(writer, outgoing, place, agent(), teller.clone());
    Ok(Link {
        name: address.to_string(),
        version,
        machine,
        writer: to_writer,
        tasks: [tokio::spawn(reading), tokio::spawn(writing)],
        lost: None,
    })
}

async fn secure(agents: &Agents, address: &Address) -> Result<TlsStream<TcpStream>, AgentError> {
    let agent = address.to_string();
    let (config, seen): (Arc<ClientConfig>, _) = agents.trust.client()?;
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
    let stream = stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
    let stream = stream.map_err(|source| AgentError::Reach {
        agent: agent.clone(),
        source,
    })?;
    let name = ServerName::try_from(address.host.clone());
    let name = name.expect("an address was checked when it was read");
    let secured = TlsConnector::from(config).connect(name, stream).await;
    let secured =
        secured.map_err(
            |source| match (certificate_error(&source), seen.fingerprint()) {
                (Some(reason), Some(fingerprint)) => AgentError::Certificate {
                    agent: agent.clone(),
                    reason,
                    fingerprint: fingerprint.to_string(),
                },
                _ => AgentError::Tls {
                    agent: agent.clone(),
                    source,
                },
            },
        )?;
    if !is_agreed(secured.get_ref().1.alpn_protocol()) {
        let text = format!("it has not agreed to speak {PROTOCOL}");
        return Err(AgentError::Tls {
            agent,
            source: io::Error::other(text),
        });
    }
    Ok(secured)
}

/// What is wrong with a certificate, where that is what is wrong.
fn certificate_error(error: &io::Error) -> Option<String> {
    use rustls::CertificateError;
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    match inner {
        rustls::Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            Some("its fingerprint is none of those that were named".to_owned())
        }
        rustls::Error::InvalidCertificate(error) => Some(plain(&error.to_string())),
        _ => None,
    }
}

async fn write(stream: &mut (impl AsyncWriteExt + Unpin), message: &ToAgent) -> io::Result<()> {
    let frame = encode(message).map_err(io::Error::other)?;
    stream.write_all(&frame).await?;
    stream.flush().await
}

async fn read_all(
    mut reader: ReadHalf<TlsStream<TcpStream>>,
    mut frames: Frames,
    place: usize,
    agent: String,
    teller: mpsc::Sender<(usize, Heard)>,
) {
    let mut bytes = vec![0; READ_BYTES];
    let error = loop {
        let read = match timeout(KEEP_ALIVE, reader.read(&mut bytes)).await {
            Err(_) => {
                break AgentError::Lost {
                    agent,
                    text: format!(
                        "nothing was heard of it for {} seconds",
                        KEEP_ALIVE.as_secs()
                    ),
                };
            }
            Ok(Err(error)) => {
                break AgentError::Lost {
                    agent,
                    text: format!("the connection broke: {error}"),
                };
            }
            Ok(Ok(0)) => {
                break AgentError::Lost {
                    agent,
                    text: "it closed the connection".to_owned(),
                };
            }
            Ok(Ok(read)) => read,
        };
        let at = Instant::now();
        frames.push(&bytes[..read]);
        let broken = loop {
            match frames.take::<ToCoordinator>() {
                Ok(None) => break None,
                // The answer to what only says that the coordinator is there.
                Ok(Some(ToCoordinator::Pong { number: 0 })) => {}
                Ok(Some(said)) => {
                    let said = Heard::Said(Box::new(said.plain()), at);
                    // Where nobody listens any more, the task is being ended.
                    let _ = teller.send((place, said)).await;
                }
                Err(error) => break Some(error.to_string()),
            }
        };
        if let Some(text) = broken {
            break AgentError::Protocol { agent, text };
        }
    };
    let _ = teller.send((place, Heard::Broken(error))).await;
}

/// Writes what is told it, and in between that the coordinator is there. Ends with a goodbye.
async fn write_all(
    mut writer: WriteHalf<TlsStream<TcpStream>>,
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    place: usize,
    agent: String,
    teller: mpsc::Sender<(usize, Heard)>,
) {
    loop {
        let next = tokio::select! {
            next = outgoing.recv() => match next {
                Some(next) => next,
                None => return,
            },
            () = sleep(PING_INTERVAL) => Outgoing::Message(ToAgent::Ping { number: 0 }),
        };
        let is_last = matches!(next, Outgoing::Message(ToAgent::Goodbye));
        let (message, sent) = match next {
            Outgoing::Message(message) => (message, None),
            Outgoing::Start {
                at,
                half_round_trip,
                sent,
                agent,
            } => {
                let now = Instant::now();
                let after = at.saturating_duration_since(now + half_round_trip);
                let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
                (ToAgent::Start { after_ns }, Some((sent, agent, now)))
            }
        };
        if let Some((sent, agent, now)) = sent {
            let _ = sent.send((agent, Heard::Started(now))).await;
        }
        let written = timeout(KEEP_ALIVE, write(&mut writer, &message)).await;
        let failed = match written {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("the connection broke: {error}")),
            Err(_) => Some(format!(
                "it took nothing for {} seconds",
                KEEP_ALIVE.as_secs()
            )),
        };
        if let Some(text) = failed {
            let lost = Heard::Broken(AgentError::Lost { agent, text });
            let _ = teller.send((place, lost)).await;
            return;
        }
        if is_last {
            // Whoever reads on the other side sees the end of it.
            let _ = timeout(PING_INTERVAL, writer.shutdown()).await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::IntervalOnWire;
    use weir_load::bench::Load;
    use weir_load::workload::{Access, Workload};

    fn hearing(volumes: usize) -> Hearing {
        let config = BenchConfig {
            workload: Workload::simple(4096, 100, Access::Random),
            load: Load::Closed { depth: 1 },
            queues: 1,
            among: None,
            duration: Duration::from_secs(1),
            ramp: Duration::ZERO,
            interval: Duration::from_secs(1),
            seed: 7,
            stop: Stop::new(),
        };
        Hearing::new(&vec![config; volumes], Most::of(1, volumes))
    }

    fn progress(job: usize, requests: u64) -> ToCoordinator {
        ToCoordinator::Progress(Progress {
            job,
            elapsed_ns: 1,
            ramping: false,
            interval_ns: 1,
            requests,
            bytes: 0,
            errors: 0,
        })
    }

    fn intervals(first: usize, count: usize) -> ToCoordinator {
        ToCoordinator::Intervals {
            job: 0,
            first,
            intervals: vec![IntervalOnWire::of(&Interval::default()); count],
        }
    }

    /// An agent that takes back what it told and tells it again makes nobody keep more.
    #[test]
    fn intervals_that_are_told_again_are_not_kept_for_the_user() {
        let mut hearing = hearing(2);
        for _ in 0..5 {
            for said in [
                intervals(0, 0),
                progress(0, 1),
                intervals(0, 3),
                progress(0, 1),
            ] {
                let heard = hearing.hear(0, said, Instant::now(), &mut |_| {});
                assert!(heard.is_ok());
            }
        }
        assert_eq!(hearing.tick_intervals.len(), 3);
    }

    #[test]
    fn progress_that_cannot_be_is_senseless() {
        let mut hearing = hearing(1);
        let heard = hearing.hear(0, progress(0, u64::MAX), Instant::now(), &mut |_| {});
        let Err(Misheard::Senseless(text)) = heard else {
            panic!("it was heard");
        };
        assert!(text.contains("the requests since"), "{text}");
    }
}
