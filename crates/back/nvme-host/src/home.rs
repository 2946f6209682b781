//! The home of a volume: the task that owns its admin queue and decides about associations.
//!
//! An association is one unit: when any of its connections ends, or a command of it does not, all of them are closed and a
//! new association is made. Reads are retried at once on the new one. What may have changed the volume is retried, or
//! reported as failed, only when the old controller surely cannot execute it any more, which is when
//!
//! * the old controller said so: it was reset over its admin queue (CC.EN cleared) and reported CSTS.RDY clear, so that it
//!   has deleted its I/O queues. One that answers and stays ready still executes commands: it goes on being asked for as long as
//!   it answers, while the next association is made; or
//! * it must have ended by itself: since this host closed its last connection to it, the Keep Alive Timeout has passed
//!   (twice, where I/O counts as keep-alive, since a timer that saw traffic runs once more), and a margin.
//!
//! The second relies on the controller keeping time. What this host had handed to its sockets and did not reach the controller
//! yet is dropped with them: they are closed by a reset. So nothing reaches it later than what was in the network already,
//! for which the margin stands.
//!
//! Writes that a lost controller acknowledged and no Flush covered may be gone with it. They are safe if the old controller answers over
//! its admin queue after the next association was made: it was there all the time, and its write cache with it. Otherwise every
//! Flush fails from then on ([`crate::durability`]).

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{FenceReply, VolumeEvent};
use weir_nvme::command::GetLogPage;
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::log::LogId;
use weir_reactor::{Instant, Mailbox, Reactor, Sender, Task, Timer};

use crate::admin::CommandFailure;
use crate::association::{self, Admin, ConnectError, Established, WayOut, establish};
use crate::profile::Profile;
use crate::shared::{HomeMessage, QueueMessage, Shared};

/// The first pause between two attempts to connect; each next one is twice as long, up to `reconnect_delay`.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(100);
/// For how long a fence waits for requests to end by themselves before it ends the association.
const FENCE_PATIENCE: Duration = Duration::from_secs(2);

/// Lost controllers that go on being asked whether they have ended; of others only the time is known.
const OUTLIVING_MAX: usize = 4;

/// What the tasks of this home tell it.
enum Local {
    Connected {
        result: Result<Box<Established>, ConnectError>,
        /// The previous controller answered until then.
        survived: bool,
    },
    AdminFailed {
        generation: u64,
        reason: String,
    },
    Ended {
        generation: u64,
        ended: association::Ended,
    },
    /// A controller that had not ended in time has, or is heard no more.
    Outlived {
        generation: u64,
        confirmed: bool,
    },
    Namespace {
        generation: u64,
        profile: Option<Profile>,
    },
}

enum Phase {
    /// An association is being made.
    Connecting { _task: Task<()> },
    /// The last attempt failed; the next one is at this time.
    Pausing { until: Instant },
    /// There is an association.
    Up(Up),
    /// The association is being taken down.
    Ending(Ending),
    /// There will be none any more.
    Ended,
}

struct Up {
    established: Rc<Established>,
    /// Keep-alive, events, and the end of the admin queue.
    _tasks: Vec<Task<()>>,
    aborts: Vec<Task<()>>,
}

struct Ending {
    generation: u64,
    /// Queues that have not closed their connections yet.
    open: BTreeSet<u64>,
    /// What the controller said; none while it is asked.
    ended: Option<association::Ended>,
    _task: Option<Task<()>>,
    /// The admin queue, kept open until the I/O queues are closed.
    admin: Rc<Established>,
}

/// A lost association whose controller says that it still executes commands.
struct Outliving {
    generation: u64,
    quiet: Duration,
    _task: Task<()>,
}

struct PendingFence {
    id: u64,
    waiting: BTreeSet<u64>,
    /// When the association is ended for it; none when that was done.
    patience: Option<Instant>,
    reply: FenceReply,
}

pub(crate) struct Home {
    reactor: Reactor,
    shared: Arc<Shared>,
    local: Arc<Mailbox<Local>>,
    timer: Timer,
    phase: Phase,
    generation: u64,
    /// Attempts in a row that came to nothing: that made no association, or one that was lost again before it was of use.
    attempts: u32,
    /// When the last association was lost that was of use.
    lost_at: Instant,
    /// When the last association was made.
    up_at: Instant,
    /// The lost association whose controller is to say that it survived, until the next attempt to connect.
    witness: Option<Rc<Established>>,
    /// Lost associations, and when they have surely ended.
    quiet: Vec<(u64, Instant)>,
    /// Lost associations that go on being asked.
    outliving: Vec<Outliving>,
    fences: Vec<PendingFence>,
    next_fence: u64,
    /// Set by a wish to end; told when it has.
    closing: Option<Vec<Sender<()>>>,
}

/// What the home waits for.
enum Next {
    Message(HomeMessage),
    Local(Local),
    Time,
}

impl Home {
    /// Starts the home of a volume whose first association was made.
    pub(crate) fn start(reactor: &Reactor, shared: Arc<Shared>, first: Established) {
        let mut home = Home {
            reactor: reactor.clone(),
            local: Mailbox::new(),
            timer: Timer::new(reactor),
            phase: Phase::Ended,
            generation: first.association.generation,
            attempts: 0,
            lost_at: reactor.now(),
            up_at: reactor.now(),
            witness: None,
            quiet: Vec::new(),
            outliving: Vec::new(),
            fences: Vec::new(),
            next_fence: 0,
            closing: None,
            shared,
        };
        home.up(first);
        reactor.spawn(home.run()).detach();
    }

    async fn run(mut self) {
        while !self.is_finished() {
            let next = poll_fn(|context| self.poll_next(context)).await;
            match next {
                Next::Message(message) => self.message(message),
                Next::Local(local) => self.local(local),
                Next::Time => {}
            }
            self.look_at_clock();
        }
        for sender in self.closing.take().into_iter().flatten() {
            sender.send(());
        }
    }

    /// Whether the volume was to end, and nothing waits for the home any more.
    fn is_finished(&self) -> bool {
        self.closing.is_some()
            && matches!(self.phase, Phase::Ended)
            && self.fences.is_empty()
            && (self.quiet.is_empty() && self.outliving.is_empty()
                || self.shared.members().is_empty())
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if let Poll::Ready(local) = self.local.poll_next(context) {
            return Poll::Ready(Next::Local(local));
        }
        if let Poll::Ready(message) = self.shared.home.poll_next(context) {
            return Poll::Ready(Next::Message(message));
        }
        match self.next_time() {
            Some(time) => self.timer.set(time),
            None => self.timer.clear(),
        }
        self.timer.poll_elapsed(context).map(|()| Next::Time)
    }

    fn next_time(&self) -> Option<Instant> {
        let pause = match self.phase {
            Phase::Pausing { until } => Some(until),
            _ => None,
        };
        let quiet = self.quiet.iter().map(|(_, at)| *at);
        let patience = self.fences.iter().filter_map(|fence| fence.patience);
        pause.into_iter().chain(quiet).chain(patience).min()
    }

    /// Does what is due.
    fn look_at_clock(&mut self) {
        let now = self.reactor.now();
        if matches!(self.phase, Phase::Pausing { until } if until <= now) {
            self.connect();
        }
        let due: Vec<u64> = self
            .quiet
            .extract_if(.., |(_, at)| *at <= now)
            .map(|(generation, _)| generation)
            .collect();
        for generation in due {
            self.shared.broadcast(&QueueMessage::Fenced(generation));
        }
        let mut cut_off = false;
        for fence in &mut self.fences {
            if fence.patience.is_some_and(|patience| patience <= now) {
                fence.patience = None;
                cut_off = true;
            }
        }
        if cut_off {
            self.fail(self.generation, "a fence cuts off what does not end");
        }
    }

    fn message(&mut self, message: HomeMessage) {
        match message {
            HomeMessage::Failed { generation, reason } => self.fail(generation, &reason),
            HomeMessage::Closed { member, generation } => {
                if let Phase::Ending(ending) = &mut self.phase
                    && ending.generation == generation
                {
                    ending.open.remove(&member);
                    self.advance_ending();
                }
            }
            HomeMessage::Abort {
                generation,
                qid,
                cid,
            } => self.abort(generation, qid, cid),
            HomeMessage::FenceDone { member, fence } => {
                self.fence_advance(member, |pending| pending.id == fence);
            }
            HomeMessage::Left { member } => {
                self.fence_advance(member, |_| true);
                if let Phase::Ending(ending) = &mut self.phase {
                    ending.open.remove(&member);
                    self.advance_ending();
                }
            }
            HomeMessage::Fence(reply) => self.fence(reply),
            HomeMessage::Close(sender) => self.close(sender),
        }
    }

    fn local(&mut self, local: Local) {
        match local {
            Local::Connected {
                result: Ok(established),
                survived,
            } => {
                if !survived {
                    self.judge_unflushed();
                }
                self.up(*established);
            }
            Local::Connected {
                result: Err(error), ..
            } => self.attempt_failed(&error),
            Local::AdminFailed { generation, reason } => self.fail(generation, &reason),
            Local::Ended { generation, ended } => {
                if let Phase::Ending(ending) = &mut self.phase
                    && ending.generation == generation
                {
                    ending.ended = Some(ended);
                    self.advance_ending();
                }
            }
            Local::Outlived {
                generation,
                confirmed,
            } => {
                let of = |one: &Outliving| one.generation == generation;
                if let Some(index) = self.outliving.iter().position(of) {
                    let quiet = self.outliving.swap_remove(index).quiet;
                    self.has_ended(generation, confirmed, quiet);
                }
            }
            Local::Namespace {
                generation,
                profile,
            } => {
                if generation == self.generation && matches!(self.phase, Phase::Up(_)) {
                    self.namespace(profile);
                }
            }
        }
    }

    /// The target may have lost its power since the last association.
    fn judge_unflushed(&self) {
        if !self.shared.durability.has_unflushed() {
            return;
        }
        if self.shared.options.flush_after_reconnect {
            tracing::warn!(
                volume = %self.shared.name(),
                "the target was lost with writes that were not flushed; flush_after_reconnect=trust trusts it to have kept them"
            );
            return;
        }
        self.shared.fail_flushes(
            "the target was lost with writes that were not flushed, and did not prove that it kept them \
             (flush_after_reconnect=trust in the URL says that it always does)",
        );
    }

    fn up(&mut self, established: Established) {
        let association = Arc::clone(&established.association);
        let established = Rc::new(established);
        tracing::info!(
            volume = %self.shared.name(), address = %association.address, controller = association.controller_id,
            queues = association.queues, "connected"
        );
        let first = association.generation == 1;
        let changed = self.shared.set_up(&association);
        self.up_at = self.reactor.now();
        any_active(&self.shared);
        self.phase = Phase::Up(Up {
            _tasks: self.start_tasks(&established),
            established,
            aborts: Vec::new(),
        });
        if first {
            return;
        }
        if changed {
            self.shared.tell_watchers(VolumeEvent::Resized);
        }
        self.shared.tell_watchers(VolumeEvent::Restored);
    }

    fn start_tasks(&self, established: &Rc<Established>) -> Vec<Task<()>> {
        let spawn_keep_alive = {
            let (shared, established) = (Arc::clone(&self.shared), Rc::clone(established));
            let local = Arc::clone(&self.local);
            self.reactor.spawn(async move {
                let reason = keep_alive(&shared, &established).await;
                local.post(Local::AdminFailed {
                    generation: established.association.generation,
                    reason,
                });
            })
        };
        let spawn_end = {
            let (local, established) = (Arc::clone(&self.local), Rc::clone(established));
            self.reactor.spawn(async move {
                let reason = established.admin.caller.calls.end().await;
                local.post(Local::AdminFailed {
                    generation: established.association.generation,
                    reason: format!("admin queue: {reason}"),
                });
            })
        };
        let spawn_events = {
            let (local, established) = (Arc::clone(&self.local), Rc::clone(established));
            let shared = Arc::clone(&self.shared);
            self.reactor
                .spawn(async move { events(&established, &shared, &local).await })
        };
        vec![spawn_keep_alive, spawn_end, spawn_events]
    }

    /// Takes the association of `generation` down, if it is still in use, for another to follow.
    fn fail(&mut self, generation: u64, reason: &str) {
        if generation != self.generation || !matches!(self.phase, Phase::Up(_)) {
            return;
        }
        tracing::warn!(volume = %self.shared.name(), reason, "connection lost");
        let now = self.reactor.now();
        let lasted = now - self.up_at >= self.shared.options.reconnect_delay;
        if lasted || any_active(&self.shared) {
            self.attempts = 0;
            self.lost_at = now;
        } else {
            self.attempts += 1;
        }
        self.take_down(false);
        self.shared.tell_watchers(VolumeEvent::Lost);
    }

    /// Takes the association down: by a shutdown where that is wished, else by a reset.
    fn take_down(&mut self, orderly: bool) {
        let Phase::Up(up) = std::mem::replace(&mut self.phase, Phase::Ended) else {
            unreachable!("only what is up is taken down");
        };
        let established = up.established;
        let generation = self.generation;
        let open = self.shared.set_down(generation).into_iter().collect();
        let task = {
            let (local, established) = (Arc::clone(&self.local), Rc::clone(&established));
            self.reactor.spawn(async move {
                let ended = end_controller(&established.admin, orderly).await;
                local.post(Local::Ended { generation, ended });
            })
        };
        self.phase = Phase::Ending(Ending {
            generation,
            open,
            ended: None,
            _task: Some(task),
            admin: established,
        });
        self.advance_ending();
    }

    /// Goes on when every connection is closed and the controller was heard, or cannot be.
    fn advance_ending(&mut self) {
        let Phase::Ending(ending) = &self.phase else {
            return;
        };
        let (true, Some(ended)) = (ending.open.is_empty(), ending.ended) else {
            return;
        };
        let (generation, admin) = (ending.generation, Rc::clone(&ending.admin));
        self.phase = Phase::Ended;
        let witness = match ended {
            association::Ended::NotYet(way)
                if self.closing.is_none() && self.outliving.len() < OUTLIVING_MAX =>
            {
                self.outlive(generation, way, Rc::clone(&admin));
                Some(admin)
            }
            _ => {
                let (confirmed, quiet) = (ended == association::Ended::Surely, admin.quiet);
                let witness = confirmed.then_some(admin);
                self.has_ended(generation, confirmed, quiet);
                witness
            }
        };
        if self.closing.is_none() && self.shared.durability.has_unflushed() {
            self.witness = witness;
        }
        match self.closing {
            Some(_) => {}
            None if self.attempts == 0 => self.connect(),
            None => self.pause_or_give_up(),
        }
    }

    /// Goes on asking a controller that says that it has not ended. The next association does not wait for it; what may still be
    /// executed on it does.
    fn outlive(&mut self, generation: u64, way: WayOut, admin: Rc<Established>) {
        tracing::warn!(
            volume = %self.shared.name(), controller = admin.association.controller_id,
            "the lost controller still executes commands"
        );
        let (local, quiet) = (Arc::clone(&self.local), admin.quiet);
        let task = self.reactor.spawn(async move {
            let confirmed = admin.admin.outlive(way, admin.keep_alive).await;
            // Its time counts from now, whoever else holds it.
            admin.admin.caller.connection.close();
            drop(admin);
            local.post(Local::Outlived {
                generation,
                confirmed,
            });
        });
        self.outliving.push(Outliving {
            generation,
            quiet,
            _task: task,
        });
    }

    /// The last connection to a controller is closed, or it said that it has ended.
    fn has_ended(&mut self, generation: u64, confirmed: bool, quiet: Duration) {
        if confirmed {
            self.shared.broadcast(&QueueMessage::Fenced(generation));
        } else {
            self.quiet.push((generation, self.reactor.now() + quiet));
        }
    }

    fn connect(&mut self) {
        self.generation += 1;
        let (reactor, shared) = (self.reactor.clone(), Arc::clone(&self.shared));
        let (local, generation) = (Arc::clone(&self.local), self.generation);
        let witness = self.witness.take();
        let task = self.reactor.spawn(async move {
            let result = establish(&reactor, &shared, generation).await;
            let survived = match (&result, witness) {
                // The new association waits for it, and must not expire meanwhile.
                (Ok(established), Some(witness)) => {
                    witness.admin.answers(established.keep_alive / 2).await
                }
                _ => false,
            };
            local.post(Local::Connected {
                result: result.map(Box::new),
                survived,
            });
        });
        self.phase = Phase::Connecting { _task: task };
    }

    fn attempt_failed(&mut self, error: &ConnectError) {
        self.attempts += 1;
        tracing::warn!(volume = %self.shared.name(), %error, attempts = self.attempts, "cannot reconnect yet");
        self.pause_or_give_up();
    }

    fn pause_or_give_up(&mut self) {
        let until = self.reactor.now() + self.pause();
        let limit = self.shared.options.controller_loss_timeout;
        if limit.is_some_and(|limit| until > self.lost_at + limit) {
            tracing::error!(volume = %self.shared.name(), "gave up to reconnect");
            self.phase = Phase::Ended;
            self.witness = None;
            self.shared.set_ended();
            return;
        }
        self.phase = Phase::Pausing { until };
    }

    /// The pause before the next attempt: twice as long each time, up to the limit, and a little random, so that hosts that
    /// lost one target together do not return together.
    fn pause(&self) -> Duration {
        let longest = self.shared.options.reconnect_delay;
        let doubled = RECONNECT_DELAY_MIN * (1 << self.attempts.min(16));
        let pause = doubled.min(longest);
        let quarter = (pause / 4).as_nanos() as u64;
        pause - Duration::from_nanos(self.reactor.random() % (quarter + 1))
    }

    fn namespace(&mut self, profile: Option<Profile>) {
        let (changed, before) = self.shared.set_profile(profile);
        match (before, profile.is_some()) {
            (true, false) => self.shared.tell_watchers(VolumeEvent::Lost),
            (false, true) => self.shared.tell_watchers(VolumeEvent::Restored),
            _ => {}
        }
        if changed {
            self.shared.tell_watchers(VolumeEvent::Resized);
        }
    }

    fn abort(&mut self, generation: u64, qid: u16, cid: u16) {
        let Phase::Up(up) = &mut self.phase else {
            return;
        };
        if generation != self.generation {
            return;
        }
        up.aborts.retain(|abort| !abort.is_finished());
        let established = Rc::clone(&up.established);
        up.aborts.push(self.reactor.spawn(async move {
            // Whether the command ends is seen by its completion, or by its absence.
            let result = established.admin.caller.abort(qid, cid).await;
            tracing::debug!(qid, cid, ?result, "aborted");
        }));
    }

    fn fence(&mut self, reply: FenceReply) {
        self.next_fence += 1;
        let id = self.next_fence;
        let waiting: BTreeSet<u64> = self
            .shared
            .broadcast(&QueueMessage::Fence(id))
            .into_iter()
            .collect();
        if waiting.is_empty() {
            return reply(Ok(()));
        }
        self.fences.push(PendingFence {
            id,
            waiting,
            patience: Some(self.reactor.now() + FENCE_PATIENCE),
            reply,
        });
    }

    /// Member `member` has done its part of the fences that `of` names.
    fn fence_advance(&mut self, member: u64, of: impl Fn(&PendingFence) -> bool) {
        for fence in &mut self.fences {
            if of(fence) {
                fence.waiting.remove(&member);
            }
        }
        for fence in self.fences.extract_if(.., |fence| fence.waiting.is_empty()) {
            (fence.reply)(Ok(()));
        }
    }

    fn close(&mut self, sender: Option<Sender<()>>) {
        let first = self.closing.is_none();
        self.closing.get_or_insert_default().extend(sender);
        if !first {
            return;
        }
        self.shared.set_ended();
        self.witness = None;
        // Whoever closes the volume is not held up for as long as a drive likes.
        for outliving in std::mem::take(&mut self.outliving) {
            self.has_ended(outliving.generation, false, outliving.quiet);
        }
        match self.phase {
            Phase::Up(_) => self.take_down(true),
            Phase::Connecting { .. } | Phase::Pausing { .. } => self.phase = Phase::Ended,
            Phase::Ending(_) | Phase::Ended => {}
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // A reactor that stops takes the home with it: nobody would answer its queues any more.
        self.shared.set_ended();
    }
}

async fn end_controller(admin: &Admin, orderly: bool) -> association::Ended {
    match orderly {
        true => admin.shut_down().await,
        false => admin.reset().await,
    }
}

/// Sends Keep Alive at half the timeout, unless I/O did it; why it failed. Where I/O may have, it is looked at twice as often:
/// the I/O may have been at the very beginning of the time since the last look.
async fn keep_alive(shared: &Shared, established: &Established) -> String {
    let reactor = &established.admin.caller.reactor;
    let interval = match established.traffic_based {
        true => established.keep_alive / 4,
        false => established.keep_alive / 2,
    };
    loop {
        reactor.sleep(interval).await;
        if established.traffic_based && any_active(shared) {
            continue;
        }
        let answer = established
            .admin
            .caller
            .keep_alive(established.keep_alive)
            .await;
        if let Err(failure) = answer {
            return failure.to_string();
        }
    }
}

/// Whether any queue saw an answer since this was last asked. Every queue's mark is taken.
fn any_active(shared: &Shared) -> bool {
    let members = shared.members();
    let marks = members
        .iter()
        .map(|member| member.active.swap(false, Ordering::Relaxed));
    marks.fold(false, |any, active| any | active)
}

/// Keeps one Asynchronous Event Request at the controller, and sees after what it tells.
async fn events(established: &Established, shared: &Shared, local: &Mailbox<Local>) {
    loop {
        let event = match established.admin.caller.event().await {
            Ok(event) => event,
            Err(CommandFailure::Status { status, .. }) => {
                tracing::debug!(%status, "no more events");
                return;
            }
            // The end of the connection is noticed elsewhere.
            Err(_) => return,
        };
        if let Err(failure) = see_after(established, shared, event, local).await {
            tracing::warn!(%failure, event = %event.event, "an event could not be seen after");
        }
    }
}

/// Reads the log that an event is about, which lets the controller send the next one of its kind.
async fn see_after(
    established: &Established,
    shared: &Shared,
    event: AsynchronousEvent,
    local: &Mailbox<Local>,
) -> Result<(), ConnectError> {
    let caller = &established.admin.caller;
    tracing::debug!(event = %event.event, "event");
    match event.event {
        EventType::NamespaceAttributeChanged => {
            let log = LogId::ChangedNamespaceList;
            caller.log_page(GetLogPage::new(log, 0, 4096)).await?;
            let profile = established
                .admin
                .profile(
                    shared.options.nsid,
                    established.capabilities,
                    &established.controller,
                )
                .await
                .and_then(|profile| {
                    shared.recognise(&profile)?;
                    Ok(profile)
                });
            let profile = match profile {
                Ok(profile) => Some(profile),
                Err(ConnectError::Namespace(error)) => {
                    tracing::warn!(%error, "the namespace is gone");
                    None
                }
                Err(error) => return Err(error),
            };
            local.post(Local::Namespace {
                generation: established.association.generation,
                profile,
            });
        }
        other => {
            let Some(log) = other.log() else {
                return Ok(());
            };
            let length = match log {
                LogId::AsymmetricNamespaceAccess => 4096,
                LogId::ErrorInformation => 64,
                _ => 512,
            };
            if matches!(log, LogId::ErrorInformation | LogId::SmartHealth) {
                tracing::warn!(event = %other, "the controller reports trouble");
            }
            caller.log_page(GetLogPage::new(log, 0, length)).await?;
        }
    }
    Ok(())
}
