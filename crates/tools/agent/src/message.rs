//! What coordinator and agent say to each other: [`crate::PROTOCOL`].
//!
//! Hello, Welcome; Open, Opened; Check, Checked, where there are several runs to come; then for each run Run, Ready, Start, Began, Progress with
//! Intervals again and again, and a Report and the last Intervals for each job, Ended. Where blocks are checked, Distinct stands before the run, and behind it
//! Conclude, Concluding again and again, Concluded. A
//! coordinator pings all the while. Refused may stand in place of any answer; after that of Hello, and of what was not understood, the connection
//! ends. Fields that a later version adds are passed over.

use serde::{Deserialize, Serialize};
use weir_lab::document::{Machine, Volume};

use crate::plain::plain;
use crate::wire::{ConclusionOnWire, IntervalOnWire, JobOnWire, ReportOnWire};

/// From the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToAgent {
    /// The first: who it is.
    Hello {
        /// [`crate::PROTOCOL`].
        protocol: String,
        /// The coordinator's version of Weir.
        version: String,
        /// What to call it where it is in another one's way.
        name: String,
        /// The token that both know.
        token: String,
    },
    /// Open volumes for all runs to come; once.
    Open(Open),
    /// Say whether this could be run.
    Check {
        /// As in a run.
        side: usize,
        /// As in a run.
        jobs: Vec<JobOnWire>,
    },
    /// Get ready for a run.
    Run {
        /// Which of [`Open::sides`].
        side: usize,
        /// What to do on each volume of the side.
        jobs: Vec<JobOnWire>,
        /// Whether every block is checked; then each agent has blocks of its own.
        #[serde(default)]
        verify: Option<Verify>,
    },
    /// Find out whether two volumes of a side are one medium. Their first blocks are written to for that: asked of one agent at a time.
    Distinct {
        /// As in a run.
        side: usize,
    },
    /// Read everything once more that was written in the run that ended, and say what was found.
    Conclude,
    /// Begin so long after this was received.
    Start {
        /// In nanoseconds.
        after_ns: u64,
    },
    /// End the run, or the conclusion, and tell what it came to.
    Stop,
    /// Are you there?
    Ping {
        /// What the answer repeats.
        number: u64,
    },
    /// No more.
    Goodbye,
}

/// What to open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// Each is opened once.
    pub volumes: Vec<OpenVolume>,
    /// What is driven together, by its place among the volumes: a list for each side of a comparison, or each phase of a job file; one list where there is
    /// neither. A volume that several jobs of a phase drive stands there for each.
    pub sides: Vec<Vec<usize>>,
    /// Queues that are driven together, those of all volumes and hosts; the most of any side.
    pub queues: u32,
    /// Reactors; where none are named as many as there are queues and processors.
    #[serde(default)]
    pub reactors: Option<u32>,
    /// Whether a schedule is to be kept, so that reactors must not sleep much.
    pub by_rate: bool,
}

/// A volume to open.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenVolume {
    /// Its URL.
    pub url: String,
    /// NVMe hosts that the agent acts as.
    pub hosts: u32,
    /// What is to be done with it.
    pub usage: Usage,
    /// Whether it may be overwritten though it carries data.
    pub destroy_data: bool,
}

impl Open {
    /// Sides of volumes that are each opened for themselves, as so many hosts, of which each volume has so many queues. None where these are more queues than
    /// can be counted.
    #[must_use]
    pub fn of_sides(sides: &[Vec<String>], hosts: u32, queues: u32, usage: Usage) -> Option<Self> {
        let together = sides.iter().map(Vec::len).max().unwrap_or(0);
        let mut next = 0..;
        let places = sides
            .iter()
            .map(|side| next.by_ref().take(side.len()).collect());
        let volume = |url: &String| OpenVolume {
            url: url.clone(),
            hosts,
            usage,
            destroy_data: false,
        };
        Some(Open {
            sides: places.collect(),
            volumes: sides.iter().flatten().map(volume).collect(),
            queues: queues
                .checked_mul(hosts)?
                .checked_mul(u32::try_from(together).ok()?)?,
            reactors: None,
            by_rate: false,
        })
    }

    /// Hosts of volumes that are driven together, the most of any side; each stands there as often as its volume. None where that is more than can be counted, or
    /// where a side has a volume that is not there.
    #[must_use]
    pub fn hosts_together(&self) -> Option<u32> {
        let of_side = |side: &Vec<usize>| {
            let mut places = side.iter();
            places.try_fold(0u32, |sum, &place| {
                sum.checked_add(self.volumes.get(place)?.hosts)
            })
        };
        let sums: Option<Vec<u32>> = self.sides.iter().map(of_side).collect();
        sums?.into_iter().max()
    }
}

/// How blocks are checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verify {
    /// The seed of what is written, for each job: the same for all agents.
    pub seeds: Vec<u64>,
    /// Which agent this is, from 1 on.
    pub writer: u16,
}

/// What load does with volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Usage {
    /// Reads them.
    Reads,
    /// Flushes them too.
    Flushes,
    /// Changes them.
    Overwrites,
}

/// From the agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum ToCoordinator {
    /// The coordinator has the agent to itself.
    Welcome {
        /// The agent's version of Weir.
        version: String,
        /// The machine.
        machine: Machine,
    },
    /// It will not be done.
    Refused {
        /// Why.
        code: Code,
        /// In words.
        text: String,
    },
    /// The volumes stand ready.
    Opened {
        /// What they are.
        volumes: Vec<Volume>,
    },
    /// Whether it could be run.
    Checked {
        /// The first job that could not.
        wrong: Option<WrongJob>,
    },
    /// Every queue is open.
    Ready,
    /// The run began.
    Began {
        /// So long after the word to start was received, in nanoseconds.
        after_ns: u64,
        /// So long before this is sent, in nanoseconds.
        ago_ns: u64,
    },
    /// How it goes on.
    Progress(Progress),
    /// What came out of one volume; the rest of its intervals follows.
    Report {
        /// Which, by its place.
        job: usize,
        /// Without intervals.
        report: Box<ReportOnWire>,
    },
    /// Intervals of the measured time that are over: while it runs before the Progress that goes with them, and at the end what was not told or became
    /// otherwise.
    Intervals {
        /// Of which.
        job: usize,
        /// Where they stand among them. What was told of them before holds up to here, and no further.
        first: usize,
        /// One after the other.
        intervals: Vec<IntervalOnWire>,
    },
    /// All reports were told.
    Ended {
        /// Whether it was because blocks were not as they should be.
        #[serde(default)]
        is_wrong: bool,
    },
    /// Whether volumes are one medium.
    Distinct {
        /// The first two that are, by their places in the side.
        same: Option<(usize, usize)>,
    },
    /// How the conclusion goes on.
    Concluding(Concluding),
    /// What it came to, for each job.
    Concluded {
        /// In their order.
        jobs: Vec<ConclusionOnWire>,
    },
    /// Yes.
    Pong {
        /// As it was asked.
        number: u64,
    },
}

impl ToCoordinator {
    /// With texts that may be printed.
    #[must_use]
    pub(crate) fn plain(mut self) -> Self {
        let clean = |text: &mut String| *text = plain(text);
        match &mut self {
            ToCoordinator::Welcome { version, machine } => {
                clean(version);
                clean(&mut machine.processor);
                clean(&mut machine.kernel);
                clean(&mut machine.operating_system);
                clean(&mut machine.clock_source);
            }
            ToCoordinator::Refused { text, .. } => clean(text),
            ToCoordinator::Opened { volumes } => {
                for volume in volumes {
                    clean(&mut volume.url);
                    clean(&mut volume.name);
                }
            }
            ToCoordinator::Checked { wrong } => {
                wrong.iter_mut().for_each(|wrong| clean(&mut wrong.text));
            }
            ToCoordinator::Report { report, .. } => report.first_error.iter_mut().for_each(clean),
            ToCoordinator::Ready
            | ToCoordinator::Began { .. }
            | ToCoordinator::Progress(_)
            | ToCoordinator::Intervals { .. }
            | ToCoordinator::Ended { .. }
            | ToCoordinator::Distinct { .. }
            | ToCoordinator::Concluding(_)
            // Its texts are made plain when it is read.
            | ToCoordinator::Concluded { .. }
            | ToCoordinator::Pong { .. } => {}
        }
        self
    }
}

/// How far a conclusion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concluding {
    /// Of which job.
    pub job: usize,
    /// The block that it is at, and where it ends.
    pub block: u64,
    /// See there.
    pub blocks: u64,
    /// Whether something was wrong, and where it went is being searched for.
    pub is_searching: bool,
}

/// A job that cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongJob {
    /// Which, by its place.
    pub job: usize,
    /// Why, in words.
    pub text: String,
}

/// What happened on one volume since it was last told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Progress {
    /// Which, by its place.
    pub job: usize,
    /// Since the beginning of the ramp.
    pub elapsed_ns: u64,
    /// Whether it is not measured yet.
    pub ramping: bool,
    /// Since it was last told.
    pub interval_ns: u64,
    /// Requests that ended well.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
}

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// It does not speak this protocol.
    Protocol,
    /// The token is another one.
    Token,
    /// Somebody else has the agent.
    Busy,
    /// The agent may not open this.
    Address,
    /// It cannot be opened, or carries something.
    Open,
    /// It cannot be run.
    Run,
    /// What was said made no sense.
    Message,
    /// The agent ends.
    Ending,
    /// A word of a later version.
    #[serde(other)]
    Other,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_message_are_plain() {
        let refused = ToCoordinator::Refused {
            code: Code::Run,
            text: "\u{7}no".to_owned(),
        };
        let ToCoordinator::Refused { text, .. } = refused.plain() else {
            panic!("it is another message");
        };
        assert_eq!(text, " no");
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let text = r#"{"message": "ping", "number": 7, "mood": "good"}"#;
        let read: ToAgent = serde_json::from_str(text).expect("it is a message");
        assert!(matches!(read, ToAgent::Ping { number: 7 }));
        let text = r#"{"message": "refused", "code": "weather", "text": "rain"}"#;
        let read: ToCoordinator = serde_json::from_str(text).expect("it is a message");
        assert!(matches!(
            read,
            ToCoordinator::Refused {
                code: Code::Other,
                ..
            }
        ));
    }
}
