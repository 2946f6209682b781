//! Runs cases one after the other and judges them: the answer, the witness, the target's resources.

use std::time::{Duration, Instant};

use crate::case::{Case, Failure, Needs, Run};
use crate::connection::Manner;
use crate::context::{Context, Facts, Protocol, ShortLimits};
use crate::gateway::{Gateway, Resources};
use crate::witness::{PATIENCE, Seen, Witness};

/// How long a target has after a case to give everything back.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Blocks that are written before the first case, where resources are looked at.
const FILLED_BLOCKS_MAX: u64 = 32 << 10;
/// How long a target that was started again has until it serves.
const RESTART_TIME_MAX: Duration = Duration::from_secs(30);
/// A pause between two looks at the resources.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How the suite runs.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Longest time that an answer may take.
    pub patience: Duration,
    /// The namespace may be overwritten.
    pub destroy_data: bool,
    /// The longest time that a command of the witness may take: a stall, no measure of speed.
    pub stall_max: Duration,
    /// By how much resident memory of a gateway under our control may exceed what it was before the first case, in bytes.
    pub growth_max: u64,
    /// Whether the target is Weir; none: found out.
    pub own: Option<bool>,
    /// Limits that the gateway under our control was given so that cases can reach them.
    pub limits: Option<ShortLimits>,
    /// Whether the namespace keeps what is written to it; `null:` does not.
    pub keeps_data: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            patience: Duration::from_secs(5),
            destroy_data: false,
            stall_max: Duration::from_secs(1),
            growth_max: 16 << 20,
            own: None,
            limits: None,
            keeps_data: true,
        }
    }
}

fn given_all<P: Protocol>(context: &Context<P>, needs: Needs) -> bool {
    needs.without(context.given).is_nothing()
}

/// Writes to every block that cases use, so that a volume in memory has its memory before that of the gateway is looked at.
fn fill<P: Protocol>(context: &Context<P>) -> Result<(), Failure> {
    const BLOCKS: u32 = 16;
    let mut host = P::host(context, false, context.manner)?;
    let data = vec![0xa5; (BLOCKS * context.facts.block_bytes()) as usize];
    let whole = context.case_blocks().min(FILLED_BLOCKS_MAX) / u64::from(BLOCKS);
    for index in 0..whole {
        host.write(index * u64::from(BLOCKS), &data)?;
    }
    Ok(())
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The answer that the specification names, nobody disturbed, nothing left behind.
    Ok,
    /// Another answer.
    Differs,
    /// No answer.
    NoAnswer,
    /// The well-behaved part of the case could not be done.
    Preparation,
    /// The witness noticed.
    Disturbed,
    /// Something was left behind.
    LeftBehind,
    /// A fresh connection is not served any more.
    TargetGone,
    /// It was not run.
    Skipped,
    /// It cannot apply to any target yet.
    NotApplicable,
}

impl Outcome {
    /// In a word or two.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Differs => "differs",
            Self::NoAnswer => "no answer",
            Self::Preparation => "not prepared",
            Self::Disturbed => "disturbed others",
            Self::LeftBehind => "left behind",
            Self::TargetGone => "target gone",
            Self::Skipped => "skipped",
            Self::NotApplicable => "not applicable",
        }
    }

    /// Whether the case was run and did not end as it should.
    pub const fn is_failure(&self) -> bool {
        !matches!(self, Self::Ok | Self::Skipped | Self::NotApplicable)
    }
}

/// One case that was run, or why it was not.
#[derive(Debug)]
pub struct Record<P: Protocol> {
    /// The case.
    pub case: &'static Case<Context<P>>,
    /// What became of it.
    pub outcome: Outcome,
    /// What came, or why it was not run.
    pub got: String,
    /// What the witness saw.
    pub seen: Seen,
    /// How long it took.
    pub took: Duration,
}

/// A target and what is needed to run cases against it.
pub struct Runner<P: Protocol> {
    /// What cases work with.
    pub context: Context<P>,
    settings: Settings,
    witness: Option<Witness>,
    before: Option<Resources>,
    gone: bool,
    restart: Option<Restart>,
}

/// Starts a target again that a case has ended, or says why it cannot.
pub type Restart = Box<dyn FnMut() -> Result<(), String>>;

impl<P: Protocol> Runner<P> {
    /// Finds out about the target and starts the witness.
    ///
    /// # Errors
    /// A well-behaved host cannot use the target.
    pub fn new(
        target: P::Target,
        settings: Settings,
        gateway: Option<Box<dyn Gateway>>,
    ) -> Result<Self, Failure> {
        let mut given = Needs::ALONE;
        if settings.destroy_data {
            given = given.and(Needs::WRITES);
        }
        if settings.limits.is_some() {
            given = given.and(Needs::SHORT_LIMITS);
        }
        let mut context = Context::new(target, settings.patience, given, settings.own, gateway)?;
        context.limits = settings.limits;
        if given_all(&context, Needs::GATEWAY.and(Needs::WRITES)) {
            fill(&context)?;
        }
        let mut runner = Self {
            context,
            settings,
            witness: None,
            before: None,
            gone: false,
            restart: None,
        };
        runner.start_witness()?;
        runner.before = runner.settled_resources()?;
        Ok(runner)
    }

    /// What starts the target again where a case has ended it, for the cases that follow to be run. Without it they are skipped.
    pub fn set_restart(&mut self, restart: Restart) {
        self.restart = Some(restart);
    }

    /// Starts a target again that is gone. What happened is told with the case that is skipped if it does not come back.
    fn revive(&mut self) -> Result<(), String> {
        let Some(restart) = self.restart.as_mut().filter(|_| self.gone) else {
            return Ok(());
        };
        restart()?;
        let began = Instant::now();
        while let Err(failure) = self.serves() {
            if began.elapsed() > RESTART_TIME_MAX {
                return Err(failure.to_string());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        self.gone = false;
        self.begin_anew();
        Ok(())
    }

    /// Whether a fresh connection is served.
    fn serves(&self) -> Result<(), Failure> {
        P::serves(&self.context)
    }

    fn start_witness(&mut self) -> Result<(), Failure> {
        let writes = self.settings.destroy_data && self.settings.keeps_data;
        let context = &self.context;
        let manner = Manner {
            patience: PATIENCE,
            exact: context.manner.exact,
        };
        let host = P::host(context, true, manner)?;
        let block = context.facts.block_bytes();
        let started = Witness::start(host, context.case_blocks(), block, writes)?;
        self.witness = Some(started);
        Ok(())
    }

    /// The resources once nothing but the witness is there: what earlier connections held is given back.
    fn settled_resources(&mut self) -> Result<Option<Resources>, Failure> {
        if !self.context.has_gateway() {
            return Ok(None);
        }
        let began = Instant::now();
        loop {
            let resources = self.context.gateway()?.resources();
            let resources =
                resources.map_err(|why| Failure::preparation("the gateway's resources", why))?;
            if resources.connections == P::WITNESS_CONNECTIONS && resources.commands == 0 {
                return Ok(Some(resources));
            }
            if began.elapsed() > SETTLE_TIME_MAX {
                let why = format!("other hosts use it: {resources}");
                return Err(Failure::preparation("a gateway of our own", why));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Runs one case.
    pub fn run(&mut self, case: &'static Case<Context<P>>) -> Record<P> {
        let began = Instant::now();
        let mut record = Record {
            case,
            outcome: Outcome::Ok,
            got: "as expected".into(),
            seen: Seen::default(),
            took: Duration::ZERO,
        };
        let revived = self.revive();
        match self.reason_to_skip(case) {
            Some((outcome, why)) => {
                record.outcome = outcome;
                record.got = match revived {
                    Ok(()) => why,
                    Err(failure) => format!("{why}, and it did not come back: {failure}"),
                };
            }
            None => {
                let Run::Now(run) = case.run else {
                    unreachable!("what cannot apply is skipped")
                };
                self.run_and_judge(run, case.needs, &mut record);
            }
        }
        record.took = began.elapsed();
        record
    }

    fn reason_to_skip(&self, case: &Case<Context<P>>) -> Option<(Outcome, String)> {
        if let Run::NotApplicable(why) = case.run {
            return Some((Outcome::NotApplicable, why.into()));
        }
        if self.gone {
            let why = "an earlier case ended the target".to_owned();
            return Some((Outcome::Skipped, why));
        }
        let missing = case.needs.without(self.context.given);
        (!missing.is_nothing()).then(|| (Outcome::Skipped, format!("needs {missing}")))
    }

    fn run_and_judge(
        &mut self,
        run: fn(&mut Context<P>) -> Result<(), Failure>,
        needs: Needs,
        record: &mut Record<P>,
    ) {
        // What is to be alone is watched from its end on: the witness must not notice what is left of it.
        let is_alone = needs.contains(Needs::ALONE);
        let watch = |witness: &Option<Witness>| witness.iter().for_each(Witness::begin);
        if !is_alone {
            watch(&self.witness);
        }
        let done = run(&mut self.context);
        if is_alone {
            watch(&self.witness);
        }
        let seen = self.witness.as_ref().map(Witness::end);
        let answer = self.of_answer(done);
        // Of several things that are wrong the gravest is told; it may explain the others.
        let judged = self
            .of_life()
            .and(answer)
            .and_then(|()| self.of_witness(seen, record))
            .and_then(|()| self.of_resources());
        if let Err((outcome, got)) = judged {
            record.outcome = outcome;
            record.got = got;
        }
        if record.outcome.is_failure() && !self.gone {
            self.begin_anew();
        }
    }

    /// What a case says of the answer.
    fn of_answer(&self, done: Result<(), Failure>) -> Result<(), (Outcome, String)> {
        let Err(failure) = done else { return Ok(()) };
        let outcome = match &failure {
            Failure::Differs { .. } => Outcome::Differs,
            Failure::NoAnswer { .. } => Outcome::NoAnswer,
            Failure::NotOffered(_) => Outcome::Skipped,
            Failure::Preparation { .. } => Outcome::Preparation,
        };
        Err((outcome, failure.to_string()))
    }

    /// Whether a fresh connection is served, once what the case left has been cleared away.
    fn of_life(&mut self) -> Result<(), (Outcome, String)> {
        let began = Instant::now();
        loop {
            let Err(failure) = self.serves() else {
                return Ok(());
            };
            if began.elapsed() > SETTLE_TIME_MAX {
                self.gone = !self.context.listens();
                return Err((Outcome::TargetGone, failure.to_string()));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn of_witness(
        &self,
        seen: Option<Result<Seen, String>>,
        record: &mut Record<P>,
    ) -> Result<(), (Outcome, String)> {
        let seen = match seen {
            None => return Ok(()),
            Some(Err(wrong)) => return Err((Outcome::Disturbed, wrong)),
            Some(Ok(seen)) => seen,
        };
        record.seen = seen;
        let bound = self.settings.stall_max;
        if seen.worst > bound {
            let got = format!(
                "a command of the witness took {:?}, above {bound:?}",
                seen.worst
            );
            return Err((Outcome::Disturbed, got));
        }
        Ok(())
    }

    /// Whether a gateway of ours has everything back, a moment after the case.
    fn of_resources(&mut self) -> Result<(), (Outcome, String)> {
        let Some(before) = self.before else {
            return Ok(());
        };
        let growth_max = self.settings.growth_max;
        // Who waits longer for an answer waits as long for this.
        let settle_time_max = SETTLE_TIME_MAX.max(self.settings.patience);
        let began = Instant::now();
        loop {
            let now = self
                .context
                .gateway()
                .map_err(|failure| failure.to_string())
                .and_then(|gateway| gateway.resources())
                .map_err(|why| (Outcome::TargetGone, why))?;
            let differences = now.compare(&before, growth_max);
            if differences.is_empty() {
                // What was there only for a moment leaves no room for what a later case leaves behind.
                self.before = Some(Resources {
                    descriptors: now.descriptors.min(before.descriptors),
                    buffer_bytes: now.buffer_bytes.min(before.buffer_bytes),
                    ..before
                });
                return Ok(());
            }
            if began.elapsed() > settle_time_max {
                return Err((Outcome::LeftBehind, differences.join("; ")));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// After a failure the next case is judged by itself: with a witness that knows nothing of it, and from what there is now.
    fn begin_anew(&mut self) {
        self.witness = None;
        // Without a witness or a baseline the cases that follow tell less, and the failure before them says why.
        let _ = self.start_witness();
        if let Ok(resources) = self.settled_resources() {
            self.before = resources;
        }
    }
}
