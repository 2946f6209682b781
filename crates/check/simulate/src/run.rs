//! One seed, from the first connection to the last check.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use weir_initiator::options::CommonOptions;
use weir_iscsi_host::IscsiHost;
use weir_nvme::Nqn;
use weir_nvme_host::{HostIdentity, NvmeHost, Options};
use weir_reactor::sim::{Accepted, Config, Crash, Faults, Injected, Simulation, World};
use weir_reactor::{Reactor, Remote, System};

use crate::check::exercised::Exercised;
use crate::check::{self, Promise};
use crate::client::{self, Initiator, Open, Progress, Setting, Source};
use crate::gateway::{
    GATEWAY, Gateway, Running, SUBSYSTEM, TARGET, host_iqn, host_nqn, media_of, port_of,
    start_reactors, ways,
};
use crate::journal::{Ask, Cause, Connection, History, Incident, Journal, Note};
use crate::plan::{Medium, Plan, Protocol, Trouble, VolumePlan};
use crate::plant::Plant;
use crate::random::Random;
use crate::violation::{Check, Violation};

/// The host that runs the run. It never fails.
const CONDUCTOR: usize = 0;
/// The first host with clients.
const FIRST_HOST: usize = 2;
/// Memory of a client's reactor, in bytes.
const CLIENT_POOL_BYTES: usize = 64 << 20;
/// Faults go on for so long at most, in simulated time; what clients have left they do afterwards.
const CHAOS_MAX: Duration = Duration::from_secs(1800);
/// Time between two looks of the conductor at how far clients are.
const POLL: Duration = Duration::from_millis(50);
/// Troubles of one kind of one seed at most, so that most requests meet none.
const TROUBLES_MAX: u32 = 40;
/// Deaths of one host, or of the gateway, in one seed at most.
const DEATHS_MAX: u32 = 10;
/// For so long what came back is left alone at least, and twice as long at most.
const RECOVERY: Duration = Duration::from_millis(300);
/// Resizes of a volume in one series.
const RESIZES: usize = 16;
/// For how long it then keeps each size.
const RESIZE_REST: Duration = Duration::from_millis(20);
/// Time that writes take meanwhile, so that some are in flight behind the new end.
const SLOW_WRITES: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(50);
/// The pause after a silence of a disk, in longest silences: one request meets two at most.
const SILENCE_REST: u32 = 4;
/// The part of a silence in which writes gather before their path is cut.
const WRITES_COME: u32 = 8;
/// Time between two looks at bounds.
const WATCH: Duration = Duration::from_millis(100);
/// A life that begins so much later than the quiet time after the last one's end begins when the gateway surely noticed that.
const NOTICE_MARGIN: Duration = Duration::from_secs(10);
/// Rounds of the simulation at most; a seed takes some hundred thousand.
const ROUNDS_MAX: u64 = 50_000_000;
/// Memory that one reactor's receives fill, in bytes.
const RECEIVE_POOL_BYTES: usize = 8 << 20;

/// The result of a seed.
#[derive(Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The violations that were found.
    pub violations: Vec<Violation>,
    /// Requests that clients made.
    pub commands: u64,
    /// Faults and troubles that its plan switches on, and their counts.
    pub exercised: Vec<Exercised>,
    /// Simulated time.
    pub simulated: Duration,
    /// Steps of the world's trace.
    pub steps: u64,
    /// A hash of the history and of the world's trace.
    pub hash: u64,
    history: History,
}

impl Report {
    /// The lines of the history, in the order of what happened: its place, the simulated time in seconds, and what.
    pub fn history(&self) -> impl Iterator<Item = String> {
        self.history.lines()
    }
}

/// Runs a seed, with a defect planted or without.
#[must_use]
pub fn run(plan: &Plan, plant: Option<Plant>) -> Report {
    let simulation = Simulation::new(Config {
        seed: plan.seed,
        faults: Faults::default(),
        socket_buffer: plan.socket_buffer,
        receive_pool_bytes: RECEIVE_POOL_BYTES,
        disk: plan.disk,
        rounds_max: ROUNDS_MAX,
        ..Config::default()
    });
    let (world, journal) = (simulation.world(), Journal::new(simulation.world()));
    let (plan, kept) = (Arc::new(plan.clone()), journal.clone());
    let promises = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&promises);
    let ended = {
        let plan = Arc::clone(&plan);
        catch_unwind(AssertUnwindSafe(move || {
            let context = Context::new(&plan, &simulation, &journal, plant);
            simulation.run(CONDUCTOR, move |reactor| async move {
                context.conduct(reactor).await;
                *seen.borrow_mut() = context.gateway.promises();
            });
        }))
    };
    if let Err(panic) = ended {
        let message = what_panicked(&panic);
        kept.accuse(Violation::new(Check::Invariants, message));
    }
    let mut history = kept.take();
    let felt = world.injected();
    history
        .incidents
        .extend(felt.iter().filter_map(|fault| incident_of(fault, &plan)));
    history.connections = (world.accepted().into_iter())
        .filter_map(|accepted| connection_of(&accepted, &plan))
        .collect();
    let promises: Vec<Promise> = promises.take();
    let violations = match promises.is_empty() {
        true => history.wrong.clone(),
        false => check::all(&plan, &promises, &history),
    };
    Report {
        seed: plan.seed,
        violations,
        commands: history.ops.len() as u64,
        exercised: check::exercised::exercised(&plan, &history),
        simulated: world.elapsed(),
        steps: world.steps(),
        hash: history.hash() ^ world.trace_hash().rotate_left(32),
        history,
    }
}

/// Returns a fault of the world as hosts with clients feel it; none where they feel nothing of it.
fn incident_of(fault: &Injected, plan: &Plan) -> Option<Incident> {
    let (one, other) = (fault.hosts.0.0, fault.hosts.1.0);
    if one.max(other) < GATEWAY {
        return None;
    }
    let namespace = |path: &PathBuf| {
        let volumes = plan.volumes.iter().enumerate();
        let has = |(index, volume): &(usize, &VolumePlan)| {
            let media = media_of(*index, volume);
            media
                .iter()
                .any(|(of_volume, _)| Path::new(of_volume) == path)
        };
        volumes.clone().find(has).map(|(index, _)| index)
    };
    Some(Incident {
        cause: Cause::Fault(fault.kind),
        host: one.max(other).checked_sub(FIRST_HOST),
        namespace: fault.path.as_ref().and_then(namespace),
        from: fault.from,
        until: fault.until,
    })
}

/// Whose connection it was, as the gateway knows it.
fn connection_of(accepted: &Accepted, plan: &Plan) -> Option<Connection> {
    let port = accepted.server.port();
    let protocols = [Protocol::Nvme, Protocol::Iscsi];
    let is_meant = |&(path, namespace): &(usize, usize)| {
        let port_of = |protocol| port_of(plan, protocol, path, namespace);
        protocols
            .into_iter()
            .any(|protocol| port_of(protocol) == port)
    };
    let (path, namespace) = ways(plan).find(is_meant)?;
    Some(Connection {
        host: accepted.client_host.0.checked_sub(FIRST_HOST)?,
        path,
        namespace,
        from: accepted.from,
        until: accepted.until,
    })
}

fn what_panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without words".to_owned())
}

/// State that the tasks of the conductor share.
struct Context {
    plan: Arc<Plan>,
    world: World,
    journal: Journal,
    progress: Arc<Progress>,
    gateway: Gateway,
    systems: Vec<Arc<dyn System>>,
    /// By host: whether it is up, and when it last went down.
    up: Vec<Cell<bool>>,
    down_at: Vec<Cell<Option<Duration>>>,
    /// No more trouble is made.
    stopping: Cell<bool>,
    plant: Option<Plant>,
}

impl Context {
    fn new(
        plan: &Arc<Plan>,
        simulation: &Simulation,
        journal: &Journal,
        plant: Option<Plant>,
    ) -> Rc<Self> {
        let hosts = plan.hosts.len();
        let world = simulation.world();
        // Hosts are numbered in the order in which they are made.
        let _ = simulation.system(CONDUCTOR);
        let gateway = Gateway::new(
            plan,
            journal,
            &world,
            simulation.system(GATEWAY),
            simulation.address(GATEWAY),
            plant,
        );
        Rc::new(Context {
            plan: Arc::clone(plan),
            journal: journal.clone(),
            progress: Progress::new(plan),
            gateway,
            systems: (0..hosts)
                .map(|host| simulation.system(FIRST_HOST + host))
                .collect(),
            up: (0..hosts).map(|_| Cell::new(true)).collect(),
            down_at: (0..hosts).map(|_| Cell::new(None)).collect(),
            stopping: Cell::new(false),
            plant,
            world,
        })
    }

    fn accuse(&self, check: Check, message: String) {
        self.journal.accuse(Violation::new(check, message));
    }

    async fn conduct(self: &Rc<Self>, reactor: Reactor) {
        self.gateway.make_media();
        self.gateway.start(true, &reactor).await;
        self.world.set_faults(self.plan.faults.clone());
        self.journal.with(|history, now| history.faults_began = now);
        if self.plant == Some(Plant::Coin) {
            let keys = std::hash::RandomState::new();
            let coin = std::hash::BuildHasher::hash_one(&keys, 0);
            self.journal.say(format!("a coin fell: {}", coin % 1000));
        }
        let hosts: Vec<_> = (0..self.plan.hosts.len())
            .map(|host| reactor.spawn(Rc::clone(self).live(reactor.clone(), host)))
            .collect();
        let watch = reactor.spawn(Rc::clone(self).watch(reactor.clone()));
        let troubles = [
            reactor.spawn(Rc::clone(self).trouble_network(reactor.clone())),
            reactor.spawn(Rc::clone(self).trouble_gateway(reactor.clone())),
            reactor.spawn(Rc::clone(self).trouble_hosts(reactor.clone())),
            reactor.spawn(Rc::clone(self).trouble_disks(reactor.clone())),
        ];
        let chaos_end = self.journal.elapsed() + CHAOS_MAX;
        while self.progress.left() > 0 && self.journal.elapsed() < chaos_end {
            reactor.sleep(POLL).await;
        }
        self.stopping.set(true);
        self.journal.await_no_write();
        self.journal.with(|history, now| {
            let stopped = history.note(now, Note::Words("no more faults".to_owned()));
            history.faults_stopped = Some(stopped);
        });
        let limit = self.plan.progress_limit();
        let restored = async {
            for trouble in troubles {
                trouble.await;
            }
        };
        if within(&reactor, limit, restored).await.is_none() {
            let what = format!("a change of what is served does not end within {limit:?}");
            return self.accuse(Check::Progress, what);
        }
        self.calm_down();
        let Some(lives) = self.all_end(&reactor, hosts).await else {
            return;
        };
        self.read_back(&reactor, &lives).await;
        drop(watch);
        self.leave_nothing(&reactor, lives).await;
    }

    /// Nothing goes wrong from now on; things still take the time that they take.
    fn calm_down(&self) {
        self.world.heal_all();
        self.world.change_faults(|faults| {
            faults.delay_spike_probability = 0.0;
            faults.cut_probability = 0.0;
            faults.accept_error_probability = 0.0;
            faults.disk_stall_probability = 0.0;
            faults.read_error_probability = 0.0;
            faults.write_error_probability = 0.0;
            faults.sync_error_probability = 0.0;
            faults.writeback_error_probability = 0.0;
            faults.reactor_stall_probability = 0.0;
        });
        self.progress.calm.store(true, Ordering::Relaxed);
    }

    /// Waits until every client has ended.
    async fn all_end(
        &self,
        reactor: &Reactor,
        hosts: Vec<weir_reactor::Task<Life>>,
    ) -> Option<Vec<Life>> {
        // What clients had left they do now; that too ends.
        let left = self.progress.left();
        let limit = self.plan.progress_limit() + Duration::from_millis(200) * left as u32;
        let ended = async {
            let mut lives = Vec::new();
            for host in hosts {
                lives.push(host.await);
            }
            lives
        };
        let lives = within(reactor, limit, ended).await;
        if lives.is_none() {
            let outstanding = self.journal.with(|history, _| {
                let open = history.ops.iter().filter(|op| op.until() == u64::MAX);
                let open: Vec<String> = open.take(10).map(ToString::to_string).collect();
                open.join("; ")
            });
            self.accuse(
                Check::Progress,
                format!("{limit:?} after the last fault there are requests without an end, or clients that cannot connect: {outstanding}"),
            );
        }
        lives
    }

    /// Everything is read once more, after a last power failure or without.
    async fn read_back(&self, reactor: &Reactor, lives: &[Life]) {
        self.gateway.check_lengths();
        if self.plan.power_failure_at_end {
            self.gateway.crash(Crash::Power);
            self.gateway.come_back(reactor).await;
        }
        let life = &lives[0];
        let setting = life.setting.clone();
        let read =
            life.remotes[0].call(move |reactor: Reactor| client::read_everything(reactor, setting));
        let limit = self.plan.progress_limit();
        if within(reactor, limit, read).await.is_none() {
            self.accuse(
                Check::Progress,
                format!("not everything could be read within {limit:?}"),
            );
        }
    }

    /// The hosts disconnect, and the gateway keeps nothing of them.
    async fn leave_nothing(&self, reactor: &Reactor, lives: Vec<Life>) {
        let remotes: Vec<Remote> = lives
            .iter()
            .flat_map(|life| life.remotes.iter().cloned())
            .collect();
        drop(lives);
        let Some(running) = self.gateway.running() else {
            return;
        };
        let limit = self.plan.progress_limit();
        let end = self.journal.elapsed() + limit;
        loop {
            let left = self.left_behind(&running).await;
            if left.is_empty() {
                break;
            }
            if self.journal.elapsed() >= end {
                let left = left.join(", ");
                let what = format!("{limit:?} after the last host left the gateway has {left}");
                self.accuse(Check::Bounds, what);
                break;
            }
            reactor.sleep(WATCH).await;
        }
        remotes
            .iter()
            .chain(&running.remotes)
            .for_each(Remote::stop);
    }

    async fn left_behind(&self, running: &Running) -> Vec<String> {
        let stats = running.target.stats();
        let held = self.world.receive_bytes_held(GATEWAY);
        let mut left = vec![
            (u64::from(stats.connections), "connections"),
            (u64::from(stats.half_open), "half-open connections"),
            (u64::from(stats.controllers), "controllers"),
            (held as u64, "bytes received and held"),
        ];
        if let Some(iscsi) = &running.iscsi {
            let stats = iscsi.stats();
            left.extend([
                (u64::from(stats.connections), "connections of iSCSI"),
                (u64::from(stats.sessions), "sessions"),
            ]);
        }
        for used in pools(&running.remotes).await {
            left.push((used.used_bytes as u64, "bytes of a pool in use"));
        }
        let some = left.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, what)| format!("{count} {what}"))
            .collect()
    }

    // Hosts.

    /// A host with its clients, started again whenever it died, until they have done what they were to do.
    async fn live(self: Rc<Self>, reactor: Reactor, host: usize) -> Life {
        let mut number = 0;
        loop {
            if !self.up[host].get() {
                reactor.sleep(POLL).await;
                continue;
            }
            if let Some(life) = self.one_life(host, number).await {
                return life;
            }
            self.journal.say(format!("host {host} is gone"));
            number += 1;
            // Its end is seen before it is up again.
            reactor.sleep(Duration::from_millis(1)).await;
        }
    }

    /// None when the host dies on the way.
    async fn one_life(&self, host: usize, number: u32) -> Option<Life> {
        let plan = &self.plan.hosts[host];
        let count = u32::from(plan.reactors);
        let remotes = start_reactors(&self.systems[host], count, CLIENT_POOL_BYTES).ok()?;
        let now = self.journal.elapsed();
        let surely = self.plan.quiet() + NOTICE_MARGIN;
        let fences = self.down_at[host].get().is_none_or(|at| now >= at + surely);
        self.journal.say(format!("host {host} starts"));
        let (plan, address) = (Arc::clone(&self.plan), self.gateway.address);
        let (journal, plant) = (self.journal.clone(), self.plant);
        let open = remotes[0]
            .call(move |reactor: Reactor| open_all(reactor, plan, journal, host, address, plant))
            .await
            .ok()?;
        self.journal.say(format!("host {host} is connected"));
        let served = Arc::new(AtomicBool::new(false));
        let setting = |reactor| Setting {
            plan: Arc::clone(&self.plan),
            journal: self.journal.clone(),
            progress: Arc::clone(&self.progress),
            host,
            life: number,
            open: open.clone(),
            reactor,
            served: Arc::clone(&served),
            fences,
        };
        let calls: Vec<_> = remotes
            .iter()
            .enumerate()
            .map(|(index, remote)| {
                let setting = setting(index);
                remote.call(move |reactor: Reactor| client::run(reactor, setting))
            })
            .collect();
        let mut ended = true;
        for call in calls {
            ended &= call.await.is_ok();
        }
        ended.then(|| Life {
            setting: setting(0),
            remotes,
        })
    }

    // Trouble.

    async fn next_trouble(
        &self,
        reactor: &Reactor,
        random: &mut Random,
        of: &[(Trouble, u32)],
        left: &mut u32,
    ) -> Option<Trouble> {
        if of.is_empty() || *left == 0 || self.plant == Some(Plant::SkipTroubles) {
            return None;
        }
        *left -= 1;
        reactor.sleep(random.time(self.plan.pause.clone())).await;
        (!self.stopping.get()).then(|| random.weighted(of))
    }

    fn absence(&self, random: &mut Random) -> Duration {
        random.time(self.plan.absence.clone())
    }

    /// Rests for `duration`, or until no more trouble is made.
    async fn rest(&self, reactor: &Reactor, duration: Duration) {
        let end = self.journal.elapsed() + duration;
        while self.journal.elapsed() < end && !self.stopping.get() {
            let left = end.saturating_sub(self.journal.elapsed());
            reactor.sleep(left.min(POLL)).await;
        }
    }

    async fn trouble_network(self: Rc<Self>, reactor: Reactor) {
        let random = &mut Random::new(self.plan.seed, 10);
        let (of, mut left) = (&self.plan.network_troubles, TROUBLES_MAX);
        while let Some(trouble) = self.next_trouble(&reactor, random, of, &mut left).await {
            let host = random.below(self.plan.hosts.len() as u64) as usize;
            match trouble {
                Trouble::Cut | Trouble::Silence => self.break_connection(random, trouble),
                Trouble::Partition => {
                    let incident = self.journal.trouble(trouble, Some(host), None);
                    self.journal.say(format!("host {host} is parted"));
                    self.world.partition(GATEWAY, FIRST_HOST + host);
                    let absence = self.absence(random);
                    self.rest(&reactor, absence).await;
                    self.world.heal(GATEWAY, FIRST_HOST + host);
                    self.journal.say(format!("host {host} is reached again"));
                    self.journal.over(incident);
                }
                Trouble::Stall => {
                    let machine = GATEWAY + random.below(self.plan.hosts.len() as u64 + 1) as usize;
                    let time = random.time(Duration::ZERO..=self.plan.stall_max);
                    self.journal
                        .say(format!("machine {machine} stands still for {time:?}"));
                    let host = machine.checked_sub(FIRST_HOST);
                    let incident = self.journal.trouble(trouble, host, None);
                    self.journal.over(incident);
                    self.world.stall(machine, time);
                }
                Trouble::Disconnect => self.disconnect(&reactor, random).await,
                _ => unreachable!("it is not of the network"),
            }
        }
    }

    fn break_connection(&self, random: &mut Random, trouble: Trouble) {
        let connections = self.world.connections();
        if connections.is_empty() {
            return;
        }
        let connection = &connections[random.below(connections.len() as u64) as usize];
        let host = connection.client_host.0;
        let incident = self
            .journal
            .trouble(trouble, host.checked_sub(FIRST_HOST), None);
        self.journal.over(incident);
        if trouble == Trouble::Cut {
            self.journal
                .say(format!("a connection of machine {host} is cut"));
            self.world.cut(connection);
        } else {
            self.journal
                .say(format!("a connection of machine {host} falls silent"));
            self.world.silence(connection);
        }
    }

    /// Returns the gateway's answer to `asked`; also one that died meanwhile says so in time.
    async fn answer_of<T>(&self, reactor: &Reactor, asked: impl Future<Output = T>) -> Option<T> {
        let limit = self.plan.progress_limit();
        let answer = within(reactor, limit, asked).await;
        if answer.is_none() {
            let message = format!("the gateway did not answer a command within {limit:?}");
            self.accuse(Check::Progress, message);
        }
        answer
    }

    async fn disconnect(&self, reactor: &Reactor, random: &mut Random) {
        let Some(running) = self.gateway.running() else {
            return;
        };
        let connections = self.answer_of(reactor, running.connections()).await;
        let connections = connections.unwrap_or_default();
        if connections.is_empty() {
            return;
        }
        let (id, host) = &connections[random.below(connections.len() as u64) as usize];
        let mut hosts = 0..self.plan.hosts.len();
        let host = host.as_ref();
        let host = host.and_then(|name| hosts.find(|host| names_of(*host).contains(name)));
        let incident = self.journal.trouble(Trouble::Disconnect, host, None);
        self.journal
            .say(format!("connection {} is disconnected", id.1));
        // It may have ended meanwhile.
        self.answer_of(reactor, running.disconnect(*id)).await;
        self.journal.over(incident);
    }

    async fn trouble_gateway(self: Rc<Self>, reactor: Reactor) {
        let random = &mut Random::new(self.plan.seed, 11);
        let (of, mut left) = (&self.plan.gateway_troubles, TROUBLES_MAX);
        while let Some(trouble) = self.next_trouble(&reactor, random, of, &mut left).await {
            let absence = self.absence(random);
            match trouble {
                Trouble::KillGateway | Trouble::GatewayPower => {
                    let incident = self.journal.trouble(trouble, None, None);
                    self.gateway.crash(match trouble {
                        Trouble::KillGateway => Crash::Process,
                        _ => Crash::Power,
                    });
                    self.rest(&reactor, absence).await;
                    self.gateway.come_back(&reactor).await;
                    self.journal.over(incident);
                    left = left.saturating_sub(TROUBLES_MAX / DEATHS_MAX);
                    let recovery = random.time(RECOVERY..=RECOVERY * 2);
                    self.rest(&reactor, recovery).await;
                }
                Trouble::RestartGateway => {
                    let incident = self.journal.trouble(trouble, None, None);
                    self.gateway.restart(&reactor, absence).await;
                    self.journal.over(incident);
                }
                Trouble::RemoveNamespace => {
                    let index = random.below(self.plan.volumes.len() as u64) as usize;
                    let incident = self.journal.trouble(trouble, None, Some(index));
                    self.gateway.set_present(&reactor, index, false).await;
                    self.rest(&reactor, absence).await;
                    self.gateway.set_present(&reactor, index, true).await;
                    self.journal.over(incident);
                }
                Trouble::SetReadOnly => {
                    let index = random.below(self.plan.volumes.len() as u64) as usize;
                    let incident = self.journal.trouble(trouble, None, Some(index));
                    self.gateway.set_read_only(&reactor, index, true).await;
                    self.rest(&reactor, absence).await;
                    self.gateway.set_read_only(&reactor, index, false).await;
                    self.journal.over(incident);
                }
                Trouble::Resize => {
                    let index = random.below(self.plan.volumes.len() as u64) as usize;
                    let volume = &self.plan.volumes[index];
                    // A multiple of what any medium's blocks are to blocks of 512 bytes.
                    let mut tail = || random.below(volume.tail / 4) * 8;
                    let tails: [u64; RESIZES] = std::array::from_fn(|_| tail());
                    if matches!(volume.medium, Medium::File | Medium::Memory) {
                        let (context, own) = (Rc::clone(&self), reactor.clone());
                        let resize = reactor.spawn(async move {
                            // Slow writes are felt everywhere.
                            let incident = context.journal.trouble(trouble, None, None);
                            let usual = context.plan.faults.write_delay.clone();
                            context
                                .world
                                .change_faults(|faults| faults.write_delay = SLOW_WRITES);
                            for tail in tails {
                                let resized = context.gateway.resize(index, tail);
                                context.answer_of(&own, resized).await;
                                own.sleep(RESIZE_REST).await;
                            }
                            context
                                .world
                                .change_faults(|faults| faults.write_delay = usual);
                            context.journal.over(incident);
                        });
                        // What comes next comes after it, or beside it.
                        if random.percent(50) {
                            resize.await;
                        } else {
                            resize.detach();
                        }
                    }
                }
                Trouble::RemoveHost => {
                    let host = random.below(self.plan.hosts.len() as u64) as usize;
                    let incident = self.journal.trouble(trouble, Some(host), None);
                    self.gateway.set_allowed(&reactor, host, false).await;
                    self.rest(&reactor, absence).await;
                    self.gateway.set_allowed(&reactor, host, true).await;
                    self.journal.over(incident);
                }
                _ => unreachable!("it is not of the gateway"),
            }
        }
    }

    async fn trouble_hosts(self: Rc<Self>, reactor: Reactor) {
        let random = &mut Random::new(self.plan.seed, 12);
        let (of, mut left) = (&self.plan.host_troubles, DEATHS_MAX);
        while let Some(trouble) = self.next_trouble(&reactor, random, of, &mut left).await {
            let host = random.below(self.plan.hosts.len() as u64) as usize;
            let crash = match trouble {
                Trouble::KillHost => Crash::Process,
                _ => Crash::Power,
            };
            let incident = self.journal.trouble(trouble, Some(host), None);
            self.journal.say(format!("host {host} dies ({crash:?})"));
            self.up[host].set(false);
            self.world.crash(FIRST_HOST + host, crash);
            self.down_at[host].set(Some(self.journal.elapsed()));
            let mut absence = self.absence(random);
            if random.percent(50) {
                absence += self.plan.quiet() + NOTICE_MARGIN;
            }
            self.rest(&reactor, absence).await;
            self.world.restart(FIRST_HOST + host);
            self.up[host].set(true);
            self.journal.over(incident);
            // Its clients come to do something.
            let recovery = random.time(RECOVERY..=RECOVERY * 2);
            self.rest(&reactor, recovery).await;
        }
    }

    async fn trouble_disks(self: Rc<Self>, reactor: Reactor) {
        let random = &mut Random::new(self.plan.seed, 13);
        let (of, mut left) = (&self.plan.disk_troubles, TROUBLES_MAX);
        while let Some(trouble) = self.next_trouble(&reactor, random, of, &mut left).await {
            let plan = Arc::clone(&self.plan);
            let is_meant = move |ask: &Ask| {
                let has_paths = trouble != Trouble::ReplacePath || plan.hosts[ask.host].paths > 1;
                has_paths && plan.volumes[ask.namespace].medium != Medium::Memory
            };
            // Where nothing is under way nothing is kept back.
            let Some(write) = self.journal.next_write(is_meant).await else {
                return;
            };
            let (namespace, silence) = (write.namespace, random.time(self.plan.silence.clone()));
            self.journal.say(format!(
                "the disks of namespace {} are silent, for {silence:?} in all",
                namespace + 1
            ));
            let incident = self.journal.trouble(trouble, None, Some(namespace));
            for (path, _) in media_of(namespace, &self.plan.volumes[namespace]) {
                self.world.silence_disk(GATEWAY, path, silence);
            }
            if trouble == Trouble::ReplacePath {
                self.rest(&reactor, silence / WRITES_COME).await;
                self.cut_path(&write);
            }
            self.rest(&reactor, silence).await;
            self.journal.over(incident);
            let rest = *self.plan.silence.end() * SILENCE_REST;
            self.rest(&reactor, rest).await;
        }
    }

    /// Cuts the path of a write.
    fn cut_path(&self, write: &Ask) {
        let (host, path, namespace) = (write.host, write.path, write.namespace);
        self.journal.say(format!(
            "path {path} of host {host} to namespace {} is cut",
            namespace + 1
        ));
        let protocol = self.plan.hosts[host].protocol;
        let port = port_of(&self.plan, protocol, path, namespace);
        let connections = self.world.connections().into_iter();
        connections
            .filter(|connection| connection.client_host.0 == FIRST_HOST + host)
            .filter(|connection| connection.server.port() == port)
            .for_each(|connection| self.world.cut(&connection));
    }

    // Bounds.

    async fn watch(self: Rc<Self>, reactor: Reactor) {
        loop {
            reactor.sleep(WATCH).await;
            if let Some(running) = self.gateway.running() {
                let looked = self.check_bounds(&running);
                self.answer_of(&reactor, looked).await;
            }
        }
    }

    async fn check_bounds(&self, running: &Running) {
        let Running {
            target, remotes, ..
        } = running;
        let config = &self.plan.target;
        let stats = target.stats();
        let at_most = |what: &str, found: u64, bound: u64| {
            if found > bound {
                self.accuse(
                    Check::Bounds,
                    format!("the gateway has {found} {what}, and its bound is {bound}"),
                );
            }
        };
        let connections = match self.plant {
            Some(Plant::LooseBounds) => 1,
            _ => config.max_connections,
        };
        at_most("connections", stats.connections.into(), connections.into());
        at_most(
            "half-open connections",
            stats.half_open.into(),
            config.max_half_open.into(),
        );
        let mut reactors = stats.reactors;
        if let Some(iscsi) = &running.iscsi {
            let stats = iscsi.stats();
            let bound = self.plan.iscsi.connections.max_connections;
            at_most(
                "connections of iSCSI",
                stats.connections.into(),
                bound.into(),
            );
            reactors.extend(stats.reactors);
            for connection in iscsi.connections().await {
                // Beside the window there are immediate ones, of which initiators send none.
                let bound = self.plan.iscsi.commands_max;
                at_most(
                    "commands in one session",
                    connection.in_flight.into(),
                    bound.into(),
                );
            }
        }
        for (what, of) in [
            (
                "broken invariants",
                reactors.iter().map(|r| r.panics).sum::<u64>(),
            ),
            (
                "connections that it ended for breaking a rule",
                reactors.iter().map(|r| r.terminated).sum(),
            ),
            (
                "PDUs with damaged data",
                reactors.iter().map(|r| r.data_digest_errors).sum(),
            ),
        ] {
            at_most(what, of, 0);
        }
        let controllers = target.controllers();
        for controller in &controllers {
            let same =
                |other: &&weir_nvme_target::ControllerInfo| other.host_nqn == controller.host_nqn;
            let of_host = controllers.iter().filter(same).count();
            at_most(
                "controllers of one host",
                of_host as u64,
                config.controllers_per_host_max.into(),
            );
            at_most(
                "I/O queues of one controller",
                controller.io_queues.len() as u64,
                config.io_queues_max.into(),
            );
        }
        for connection in target.connections().await {
            let entries = connection.queue.map_or(1, |queue| queue.entries);
            at_most(
                "commands in one queue",
                connection.in_flight.into(),
                entries.into(),
            );
        }
        for pool in pools(remotes).await {
            at_most(
                "bytes in a pool",
                pool.held_bytes as u64,
                pool.limit_bytes as u64,
            );
        }
        let held = self.world.receive_bytes_held(GATEWAY);
        let bound = RECEIVE_POOL_BYTES * self.plan.gateway_reactors as usize;
        at_most("bytes received and held", held as u64, bound as u64);
    }
}

/// A host that has done what it was to do.
struct Life {
    setting: Setting,
    remotes: Vec<Remote>,
}

async fn pools(remotes: &[Remote]) -> Vec<weir_memory::PoolUse> {
    let mut all = Vec::new();
    for remote in remotes {
        let of_one = remote.call(|reactor| async move { reactor.pool().usage() });
        // One that stopped has none.
        all.extend(of_one.await.ok());
    }
    all
}

/// Opens every namespace, as soon as that is possible.
async fn open_all(
    reactor: Reactor,
    plan: Arc<Plan>,
    journal: Journal,
    host: usize,
    address: std::net::IpAddr,
    plant: Option<Plant>,
) -> Vec<Open> {
    let of_host = &plan.hosts[host];
    let common = CommonOptions {
        depth: of_host.depth,
        header_digest: of_host.header_digest,
        data_digest: of_host.data_digest,
        keep_alive: of_host.keep_alive,
        controller_loss_timeout: None,
        reconnect_delay: of_host.reconnect_delay,
        io_timeout: of_host.io_timeout,
        flush_after_reconnect: plant == Some(Plant::TrustReconnect),
        ..CommonOptions::default()
    };
    let identity = HostIdentity::from_random([host as u8 + 1; 16]);
    let nvme = NvmeHost::new(identity, of_host.reactors);
    let iscsi = IscsiHost::new(host_iqn(host), of_host.reactors);
    let address = address.to_string();
    let mut open = Vec::new();
    for path in 0..usize::from(of_host.paths) {
        for (namespace, volume) in plan.volumes.iter().enumerate() {
            let port = port_of(&plan, of_host.protocol, path, namespace);
            let initiator = match of_host.protocol {
                Protocol::Nvme => {
                    let nqn = Nqn::new(SUBSYSTEM).expect("a valid name");
                    let options = Options {
                        nsid: namespace as u32 + 1,
                        queues: Some(of_host.queues),
                        host_data_alignment: of_host.alignment,
                        common: common.clone(),
                        ..Options::new(&address, port, nqn)
                    };
                    Initiator::Nvme(Arc::clone(&nvme), options)
                }
                Protocol::Iscsi => {
                    let target = TARGET.parse().expect("a valid name");
                    let lun = namespace as u16;
                    let options = weir_iscsi_host::Options {
                        sessions: Some(of_host.queues),
                        common: common.clone(),
                        ..weir_iscsi_host::Options::new(&address, port, target, lun)
                    };
                    Initiator::Iscsi(Arc::clone(&iscsi), options)
                }
            };
            let source = Source {
                initiator,
                journal: journal.clone(),
                plant: plant.filter(|plant| plant.is_at_the_client()),
            };
            open.push(Open {
                opened: source.open(&reactor).await,
                source,
                path,
                namespace,
                block: volume.block as usize,
            });
        }
    }
    open
}

/// Returns what `work` yields, or none when it takes longer than `limit`.
async fn within<T>(reactor: &Reactor, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut sleep) = (pin!(work), pin!(reactor.sleep(limit)));
    poll_fn(|context| {
        if let Poll::Ready(value) = work.as_mut().poll(context) {
            return Poll::Ready(Some(value));
        }
        sleep.as_mut().poll(context).map(|()| None)
    })
    .await
}

/// The front end that has a connection, and what it calls it.
type ConnectionId = (Protocol, u64);

/// The names of a host, by protocol.
fn names_of(host: usize) -> [String; 2] {
    [host_nqn(host).to_string(), host_iqn(host).to_string()]
}

impl Running {
    /// Every connection, and its host's name where that is known.
    async fn connections(&self) -> Vec<(ConnectionId, Option<String>)> {
        let nvme = self.target.connections().await.into_iter();
        let nvme = nvme.map(|connection| {
            let association = connection.association;
            let host = association.map(|of| of.host_nqn.to_string());
            ((Protocol::Nvme, connection.id), host)
        });
        let mut all: Vec<_> = nvme.collect();
        if let Some(iscsi) = &self.iscsi {
            let connections = iscsi.connections().await.into_iter();
            all.extend(connections.map(|connection| {
                let host = connection.session.map(|of| of.initiator.to_string());
                ((Protocol::Iscsi, connection.id), host)
            }));
        }
        all
    }

    /// Ends a connection, which may have ended meanwhile.
    async fn disconnect(&self, (protocol, id): ConnectionId) {
        let _ = match (protocol, &self.iscsi) {
            (Protocol::Iscsi, Some(iscsi)) => iscsi.disconnect(id).await,
            _ => self.target.disconnect(id).await,
        };
    }
}
