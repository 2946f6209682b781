//! The home of a volume: the task that keeps its association and decides about the next.
//!
//! An association is one unit: when any of its connections ends, or a command of it does not, all of them are closed and a
//! new association is made. Reads are retried at once on the new one. What may have changed the volume is retried, or
//! reported as failed, only when the target surely cannot execute it any more, which is when
//!
//! * the target said so ([`Ended::Surely`]). One that answers and has not ended the association still executes commands: it goes on
//!   being asked for as long as it answers, while the next association is made;
//! * the connection for I/O was made again, where the protocol says that this ends what its last one had
//!   ([`Protocol::replaces`]); or
//! * it must have ended by itself: a time has passed since this host closed its last connection to it
//!   ([`Established::quiet`]).
//!
//! Writes that a lost target acknowledged and no flush covered may be gone with it. They are safe if the target still answers over the
//! connection of the old association after the next one was made: it was there all the time, and its write cache with it.
//! Otherwise every flush fails from then on ([`crate::durability`]).

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use weir_block::{FenceReply, VolumeEvent};
use weir_reactor::{Instant, Mailbox, Reactor, Sender, Task, Timer};

use crate::protocol::{Ended, Established, Next, Protocol};
use crate::remote::Profile;
use crate::shared::{HomeMessage, QueueMessage, Shared};

/// The first pause between two attempts to connect; each next one is twice as long, up to `reconnect_delay`.
const RECONNECT_DELAY_MIN: Duration = Duration::from_millis(100);
/// For how long a fence waits for requests to end by themselves before it ends the association.
const FENCE_PATIENCE: Duration = Duration::from_secs(2);

/// Lost controllers that go on being asked whether they have ended; of others only the time is known.
const OUTLIVING_MAX: usize = 4;

/// Messages of this home's tasks.
enum Local<P: Protocol> {
    Connected {
        result: Result<Box<Established<P>>, P::ConnectError>,
        /// The previous controller answered until then.
        survived: bool,
    },
    AdminFailed {
        generation: u64,
        reason: String,
    },
    Ended {
        generation: u64,
        ended: Ended<P::WayOut>,
    },
    /// A target that had not ended in time has, or is heard no more.
    Outlived {
        generation: u64,
        confirmed: bool,
    },
    Medium {
        generation: u64,
        profile: Option<Profile<P::Identity>>,
    },
}

enum Phase<P: Protocol> {
    /// An association is being made.
    Connecting { _task: Task<()> },
    /// The last attempt failed; the next one is at this time.
    Pausing { until: Instant },
    /// There is an association.
    Up(Up<P>),
    /// The association is being taken down.
    Ending(Ending<P>),
    /// There will be none any more.
    Ended,
}

struct Up<P: Protocol> {
    established: Rc<Established<P>>,
    /// Keep-alive, events, and the end of the admin queue.
    _tasks: Vec<Task<()>>,
    aborts: Vec<Task<()>>,
    /// A look at the medium that was asked for.
    look: Option<Task<()>>,
}

struct Ending<P: Protocol> {
    generation: u64,
    /// Queues that have not closed their connections yet.
    open: BTreeSet<u64>,
    /// What the controller said; none while it is asked.
    ended: Option<Ended<P::WayOut>>,
    _task: Option<Task<()>>,
    /// The admin queue, kept open until the I/O queues are closed.
    admin: Rc<Established<P>>,
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

pub(crate) struct Home<P: Protocol> {
    reactor: Reactor,
    shared: Arc<Shared<P>>,
    local: Arc<Mailbox<Local<P>>>,
    timer: Timer,
    phase: Phase<P>,
    generation: u64,
    /// Attempts in a row that came to nothing: that made no association, or one that was lost again before it was of use.
    attempts: u32,
    /// When the last association was lost that was of use.
    lost_at: Instant,
    /// When the last association was made.
    up_at: Instant,
    /// The lost association whose controller is to say that it survived, until the next attempt to connect.
    witness: Option<Rc<Established<P>>>,
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
enum Event<P: Protocol> {
    Message(HomeMessage<P>),
    Local(Local<P>),
    Time,
}

impl<P: Protocol> Home<P> {
    /// Starts the home of a volume whose first association was made.
    pub(crate) fn start(reactor: &Reactor, shared: Arc<Shared<P>>, first: Established<P>) {
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
                Event::Message(message) => self.message(message),
                Event::Local(local) => self.local(local),
                Event::Time => {}
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

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Event<P>> {
        if let Poll::Ready(local) = self.local.poll_next(context) {
            return Poll::Ready(Event::Local(local));
        }
        if let Poll::Ready(message) = self.shared.home.poll_next(context) {
            return Poll::Ready(Event::Message(message));
        }
        match self.next_time() {
            Some(time) => self.timer.set(time),
            None => self.timer.clear(),
        }
        self.timer.poll_elapsed(context).map(|()| Event::Time)
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

    fn message(&mut self, message: HomeMessage<P>) {
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
                tag,
            } => self.abort(generation, qid, tag),
            HomeMessage::Attention { generation } => self.look(generation),
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

    fn local(&mut self, local: Local<P>) {
        match local {
            Local::Connected {
                result: Ok(established),
                survived,
            } => {
                if !survived && !P::RETAINS {
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
            Local::Medium {
                generation,
                profile,
            } => {
                if generation == self.generation && matches!(self.phase, Phase::Up(_)) {
                    self.medium(profile);
                }
            }
        }
    }

    /// The target may have lost its power since the last association.
    fn judge_unflushed(&self) {
        if !self.shared.durability.has_unflushed() {
            return;
        }
        if self.shared.patience.trusts_after_reconnect {
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

    fn up(&mut self, established: Established<P>) {
        let association = Arc::clone(&established.association);
        let established = Rc::new(established);
        tracing::info!(
            volume = %self.shared.name(), address = %association.address, queues = association.queues, "connected"
        );
        let first = association.generation == 1;
        let changed = self.shared.set_up(&association);
        self.up_at = self.reactor.now();
        any_active(&self.shared);
        self.phase = Phase::Up(Up {
            _tasks: self.start_tasks(&established),
            established,
            aborts: Vec::new(),
            look: None,
        });
        if first {
            return;
        }
        if changed {
            self.shared.tell_watchers(VolumeEvent::Resized);
        }
        self.shared.tell_watchers(VolumeEvent::Restored);
    }

    fn start_tasks(&self, established: &Rc<Established<P>>) -> Vec<Task<()>> {
        let spawn_keep_alive = {
            let (shared, established) = (Arc::clone(&self.shared), Rc::clone(established));
            let (local, reactor) = (Arc::clone(&self.local), self.reactor.clone());
            self.reactor.spawn(async move {
                let reason = keep_alive(&reactor, &shared, &established).await;
                local.post(Local::AdminFailed {
                    generation: established.association.generation,
                    reason,
                });
            })
        };
        let spawn_end = {
            let (local, established) = (Arc::clone(&self.local), Rc::clone(established));
            self.reactor.spawn(async move {
                let reason = P::end_of(&established.admin).await;
                local.post(Local::AdminFailed {
                    generation: established.association.generation,
                    reason,
                });
            })
        };
        let spawn_events = {
            let (local, established) = (Arc::clone(&self.local), Rc::clone(established));
            let shared = Arc::clone(&self.shared);
            self.reactor.spawn(async move {
                let generation = established.association.generation;
                let changed = |profile| {
                    local.post(Local::Medium {
                        generation,
                        profile,
                    });
                };
                P::events(&established, &shared.remote, &changed).await;
            })
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
        let lasted = now - self.up_at >= self.shared.patience.reconnect_delay;
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
                let ended = P::end(&established.admin, orderly).await;
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
            Ended::NotYet(way)
                if self.closing.is_none() && self.outliving.len() < OUTLIVING_MAX =>
            {
                self.outlive(generation, way, Rc::clone(&admin));
                Some(admin)
            }
            _ => {
                let (confirmed, quiet) = (ended == Ended::Surely, admin.quiet);
                let witness = (confirmed || ended == Ended::Alive).then_some(admin);
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
    fn outlive(&mut self, generation: u64, way: P::WayOut, admin: Rc<Established<P>>) {
        tracing::warn!(
            volume = %self.shared.name(),
            "the lost target still executes commands"
        );
        let (local, quiet) = (Arc::clone(&self.local), admin.quiet);
        let task = self.reactor.spawn(async move {
            let confirmed = P::outlive(&admin, way).await;
            // Its time counts from now, whoever else holds it.
            P::close(&admin.admin);
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
            let next = Next {
                generation,
                queues_used: shared.queues_used(),
            };
            let mut result = P::establish(&reactor, &shared.remote, next).await;
            if let (true, Ok(established)) = (P::RETAINS, &result)
                && let Err(error) = restore(&shared, established).await
            {
                result = Err(error);
            }
            let survived = match (&result, witness) {
                // The new association waits for it, and must not expire meanwhile.
                (Ok(established), Some(witness)) => {
                    P::answers(&witness.admin, established.keep_alive / 2).await
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

    fn attempt_failed(&mut self, error: &P::ConnectError) {
        self.attempts += 1;
        tracing::warn!(volume = %self.shared.name(), %error, attempts = self.attempts, "cannot reconnect yet");
        self.pause_or_give_up();
    }

    fn pause_or_give_up(&mut self) {
        let until = self.reactor.now() + self.pause();
        let limit = self.shared.patience.loss_timeout;
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
        let longest = self.shared.patience.reconnect_delay;
        let doubled = RECONNECT_DELAY_MIN * (1 << self.attempts.min(16));
        let pause = doubled.min(longest);
        let quarter = (pause / 4).as_nanos() as u64;
        pause - Duration::from_nanos(self.reactor.random() % (quarter + 1))
    }

    /// Looks at the medium, which may have changed.
    fn look(&mut self, generation: u64) {
        let Phase::Up(up) = &mut self.phase else {
            return;
        };
        if generation != self.generation {
            return;
        }
        let (local, shared) = (Arc::clone(&self.local), Arc::clone(&self.shared));
        let established = Rc::clone(&up.established);
        // The last look may have come too early for this.
        up.look = Some(self.reactor.spawn(async move {
            match P::look(&established, &shared.remote).await {
                Ok(profile) => local.post(Local::Medium {
                    generation,
                    profile,
                }),
                Err(error) => {
                    tracing::warn!(volume = %shared.name(), %error, "cannot look at the volume")
                }
            }
        }));
    }

    fn medium(&mut self, profile: Option<Profile<P::Identity>>) {
        let is_there = profile.is_some();
        let (changed, before) = self.shared.set_profile(profile);
        match (before, is_there) {
            (true, false) => self.shared.tell_watchers(VolumeEvent::Lost),
            (false, true) => self.shared.tell_watchers(VolumeEvent::Restored),
            _ => {}
        }
        if changed {
            self.shared.tell_watchers(VolumeEvent::Resized);
        }
    }

    fn abort(&mut self, generation: u64, qid: u16, tag: P::Tag) {
        let Phase::Up(up) = &mut self.phase else {
            return;
        };
        if generation != self.generation {
            return;
        }
        up.aborts.retain(|abort| !abort.is_finished());
        let established = Rc::clone(&up.established);
        let abort = P::abort(established, qid, tag);
        up.aborts.push(self.reactor.spawn(abort));
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

impl<P: Protocol> Drop for Home<P> {
    fn drop(&mut self) {
        // A reactor that stops takes the home with it: nobody would answer its queues any more.
        self.shared.set_ended();
    }
}

/// Makes durable what no flush has covered.
async fn restore<P: Protocol>(
    shared: &Shared<P>,
    established: &Established<P>,
) -> Result<(), P::ConnectError> {
    let durability = &shared.durability;
    let writes = durability.retained();
    if !writes.is_empty() {
        P::restore(established, &shared.remote, &writes).await?;
        durability.note_all();
    }
    Ok(())
}

/// Sends Keep Alive at half the timeout, unless I/O did it; why it failed. Where I/O may have, it is looked at twice as often:
/// the I/O may have been at the very beginning of the time since the last look.
async fn keep_alive<P: Protocol>(
    reactor: &Reactor,
    shared: &Shared<P>,
    established: &Established<P>,
) -> String {
    let interval = match established.traffic_based {
        true => established.keep_alive / 4,
        false => established.keep_alive / 2,
    };
    loop {
        reactor.sleep(interval).await;
        if established.traffic_based && any_active(shared) {
            continue;
        }
        if let Err(reason) = P::keep_alive(established).await {
            return reason;
        }
    }
}

/// Returns whether any queue saw an answer since this was last asked. Every queue's mark is taken.
fn any_active<P: Protocol>(shared: &Shared<P>) -> bool {
    let members = shared.members();
    let marks = members
        .iter()
        .map(|member| member.active.swap(false, Ordering::Relaxed));
    marks.fold(false, |any, active| any | active)
}
