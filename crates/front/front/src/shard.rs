//! What a front end has on one reactor: its view of what is served, its connections, its listeners.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Weak};

use weir_block::Volume;
use weir_reactor::{Instant, Receiver, SocketOptions, Task, TcpStream, oneshot};

use crate::arrivals::Source;
use crate::counters::ConnectionCounters;
use crate::entry::{Entry, Message};
use crate::hub::{Hub, Told, VolumeKey, key_of};
use crate::latency::{Latency, Run};
use crate::parts::{Inbox, Parts};
use crate::protocol::Protocol;
use crate::reservations::News;
use crate::shared::Shared;
use crate::volumes::{Attached, Export};

/// Histograms of one export on one reactor.
type SharedLatency = Rc<RefCell<Latency>>;

/// An export: its group and its number there.
pub type ExportKey<P> = (<P as Protocol>::Group, u32);

/// The exports of each group on one reactor, in the order of the snapshot.
type Exports<P> = HashMap<<P as Protocol>::Group, Vec<Rc<Attached<<P as Protocol>::Export>>>>;

/// Latencies of a volume that are in no histogram of an export that is served: of its removed exports, and of commands whose
/// connection was lost.
struct VolumeRecord {
    /// Keeps its address from becoming another volume's.
    volume: Weak<dyn Volume>,
    latency: Latency,
}

/// A listener on this reactor; dropped, it stops listening.
pub(crate) struct Listening {
    pub(crate) _accepting: Task<()>,
    /// Options of the connections that are accepted next.
    pub(crate) options: Rc<RefCell<SocketOptions>>,
}

/// A connection that was accepted and waits until it may be served: nothing is received of it, and it is closed when it has
/// waited for too long.
pub(crate) struct Waiting<P: Protocol> {
    pub(crate) stream: TcpStream,
    pub(crate) local: std::net::SocketAddr,
    pub(crate) port: P::Port,
    pub(crate) source: Source,
    pub(crate) until: Instant,
    /// When it is looked next whether its host has hung up.
    pub(crate) look_at: Instant,
}

/// One reactor's part of a front end.
pub struct Shard<P: Protocol> {
    /// Which of the front end's reactors it is.
    pub index: usize,
    /// What the reactor has for all that is served there.
    pub hub: Rc<Hub>,
    /// What all reactors share.
    pub shared: Arc<Shared<P>>,
    /// The shards of all reactors.
    pub(crate) parts: Arc<Parts<Shard<P>>>,
    /// What happened to the connections here.
    pub counters: Arc<ConnectionCounters>,
    /// What the protocol made of the snapshot for all connections here; empty with each new one.
    pub local: RefCell<P::Local>,
    snapshot: RefCell<Arc<P::Snapshot>>,
    /// Grows with every change of what connections see.
    generation: Cell<u64>,
    exports: RefCell<Exports<P>>,
    /// Latencies of the removed exports of groups that are served.
    retired: RefCell<HashMap<P::Group, Latency>>,
    /// As long as somebody holds the volume.
    volume_records: RefCell<HashMap<VolumeKey, VolumeRecord>>,
    pub(crate) connections: RefCell<BTreeMap<u64, Rc<Entry<P>>>>,
    pub(crate) listeners: RefCell<BTreeMap<u64, Listening>>,
    /// Connections that were accepted and wait until they may be served.
    pub(crate) waiting: RefCell<VecDeque<Waiting<P>>>,
    pub(crate) stopped: Cell<bool>,
}

impl<P: Protocol> Shard<P> {
    pub(crate) fn new(
        index: usize,
        hub: Rc<Hub>,
        shared: Arc<Shared<P>>,
        parts: Arc<Parts<Shard<P>>>,
    ) -> Rc<Self> {
        let shard = Rc::new(Shard {
            index,
            hub,
            counters: Arc::clone(&shared.counters[index]),
            shared,
            parts,
            local: RefCell::default(),
            snapshot: RefCell::default(),
            generation: Cell::new(1),
            exports: RefCell::default(),
            retired: RefCell::default(),
            volume_records: RefCell::default(),
            connections: RefCell::default(),
            listeners: RefCell::default(),
            waiting: RefCell::default(),
            stopped: Cell::new(false),
        });
        let told: Rc<dyn Told> = shard.clone();
        shard.hub.enter(Rc::downgrade(&told));
        shard
    }

    /// Does what is sent to this reactor's part, until it is told to stop, or the reactor stops.
    pub(crate) async fn run(self: Rc<Self>, inbox: Inbox<Self>) {
        while !self.stopped.get() {
            let work = inbox.next().await;
            work(&self);
        }
    }

    /// All that is served, as this reactor knows it.
    pub fn snapshot(&self) -> Arc<P::Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// The exports of a group here.
    pub fn exports_of(&self, group: &P::Group) -> Vec<Rc<Attached<P::Export>>> {
        let exports = self.exports.borrow();
        exports.get(group).cloned().unwrap_or_default()
    }

    /// Has every connection take over what it sees now; each receiver ends when one has.
    fn changed(&self) -> Vec<Receiver<()>> {
        self.generation.set(self.generation.get() + 1);
        let connections = self.connections.borrow();
        let look = |entry: &Rc<Entry<P>>| {
            let (sender, receiver) = oneshot();
            let _ = entry.handle.mailbox.send(Message::Look(sender));
            receiver
        };
        connections.values().map(look).collect()
    }

    /// The requests of the connections here that are under way though their hosts may not do this any more: by connection and
    /// number of the export.
    pub(crate) fn revoked(&self) -> Vec<(P::About, u32, u64)> {
        let mut all = Vec::new();
        for entry in self.connections.borrow().values() {
            let revoked = entry.revoked.borrow();
            let about = entry.about.borrow();
            let of_entry = revoked.iter().map(|(&number, &requests)| {
                let about = P::About::clone(&about);
                (about, number, requests)
            });
            all.extend(of_entry);
        }
        all
    }

    /// A connection is here no more, or under another entry: it was moved to the reactor that it was on.
    pub(crate) fn forget(&self, entry: &Rc<Entry<P>>) {
        let mut connections = self.connections.borrow_mut();
        let id = entry.handle.id;
        if connections
            .get(&id)
            .is_some_and(|now| Rc::ptr_eq(now, entry))
        {
            connections.remove(&id);
        }
    }

    /// Sends a message to every connection here.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message<P::Message>) {
        for entry in self.connections.borrow().values() {
            let _ = entry.handle.mailbox.send(message());
        }
    }

    /// Takes a new snapshot over. Queues of volumes that stay are kept; others go with their last request. Each receiver ends
    /// when one connection holds nothing of the old one any more.
    pub(crate) fn apply(&self, snapshot: Arc<P::Snapshot>) -> Vec<Receiver<()>> {
        let mut exports = HashMap::new();
        for (group, of_group) in P::exports(&snapshot) {
            let latencies = self.latencies_of(group);
            let attached = of_group
                .iter()
                .map(|export| self.attach(export, &latencies))
                .collect();
            exports.insert(group.clone(), attached);
        }
        let before = self.exports.replace(exports);
        self.retire(&before);
        self.local.take();
        *self.snapshot.borrow_mut() = snapshot;
        self.changed()
    }

    /// Keeps what was recorded of exports that are served no more, so that the counts of a group and of a volume only grow.
    fn retire(&self, before: &Exports<P>) {
        let served = self.exports.borrow();
        let mut retired = self.retired.borrow_mut();
        retired.retain(|group, _| served.contains_key(group));
        self.volume_records
            .borrow_mut()
            .retain(|_, record| record.volume.strong_count() > 0);
        for (group, exports) in before {
            let now = served.get(group);
            let still_served = now.into_iter().flatten();
            let kept: HashSet<_> = still_served.map(|one| Rc::as_ptr(&one.latency)).collect();
            for gone in exports {
                let latency = gone.latency.borrow();
                if latency.is_empty() || kept.contains(&Rc::as_ptr(&gone.latency)) {
                    continue;
                }
                self.record_of(gone.export.counted(), |record| record.merge(&latency));
                if now.is_some() {
                    retired.entry(group.clone()).or_default().merge(&latency);
                }
            }
        }
    }

    /// Adds to the record of a volume.
    fn record_of(&self, volume: &Arc<dyn Volume>, add: impl FnOnce(&mut Latency)) {
        let mut records = self.volume_records.borrow_mut();
        let record = records
            .entry(key_of(volume))
            .or_insert_with(|| VolumeRecord {
                volume: Arc::downgrade(volume),
                latency: Latency::default(),
            });
        add(&mut record.latency);
    }

    /// Records commands on an export whose connection was lost. They are in no count of answered commands.
    pub fn record_lost(&self, attached: &Attached<P::Export>, run: &Run) {
        let now = self.hub.reactor.now();
        self.record_of(attached.export.counted(), |record| record.record(run, now));
    }

    /// Where the time of exports' commands went on this reactor: of one export, or of all.
    pub(crate) fn export_latencies(
        &self,
        only: Option<&ExportKey<P>>,
    ) -> Vec<(ExportKey<P>, Latency)> {
        let served = self.exports.borrow();
        let mut all = Vec::new();
        for (group, exports) in &*served {
            for attached in exports {
                let number = attached.export.number();
                if only.is_none_or(|(of, wanted)| of == group && *wanted == number) {
                    all.push(((group.clone(), number), attached.latency.borrow().clone()));
                }
            }
        }
        all
    }

    /// Where the time of connections' commands went: of one connection, or of all.
    pub(crate) fn connection_latencies(&self, only: Option<u64>) -> Vec<(u64, Latency)> {
        let connections = self.connections.borrow();
        let wanted = connections
            .iter()
            .filter(|(id, _)| only.is_none_or(|only| only == **id));
        wanted
            .map(|(&id, entry)| (id, entry.latency.borrow().clone()))
            .collect()
    }

    /// Where the time of groups' commands went on this reactor, those on removed exports included.
    pub(crate) fn group_latencies(&self) -> Vec<(P::Group, Latency)> {
        let (served, retired) = (self.exports.borrow(), self.retired.borrow());
        let all = served.iter().map(|(group, exports)| {
            let mut latency = retired.get(group).cloned().unwrap_or_default();
            for attached in exports {
                latency.merge(&attached.latency.borrow());
            }
            (group.clone(), latency)
        });
        all.collect()
    }

    /// Latencies of volumes on this reactor, those of removed exports and of lost connections included. A volume may be there
    /// several times.
    pub(crate) fn volume_latencies(&self) -> Vec<(VolumeKey, Latency)> {
        let (served, records) = (self.exports.borrow(), self.volume_records.borrow());
        let served = served.values().flatten().map(|attached| {
            let key = key_of(attached.export.counted());
            (key, attached.latency.borrow().clone())
        });
        let records = records.iter().map(|(&key, one)| (key, one.latency.clone()));
        served.chain(records).collect()
    }

    /// The latencies of a group's exports as they are served now: identities and histograms by number.
    fn latencies_of(&self, group: &P::Group) -> HashMap<u32, ([u8; 16], SharedLatency)> {
        let served = self.exports.borrow();
        let of = |attached: &Rc<Attached<P::Export>>| {
            let latency = Rc::clone(&attached.latency);
            let export = &attached.export;
            (export.number(), (export.identity(), latency))
        };
        let exports = served.get(group).into_iter().flatten();
        exports.map(of).collect()
    }

    fn attach(
        &self,
        export: &P::Export,
        latencies: &HashMap<u32, ([u8; 16], SharedLatency)>,
    ) -> Rc<Attached<P::Export>> {
        let latency = match latencies.get(&export.number()) {
            Some((identity, latency)) if *identity == export.identity() => Rc::clone(latency),
            _ => Rc::default(),
        };
        Rc::new(Attached {
            latency,
            export: export.clone(),
            geometry: Cell::new(export.volume().geometry()),
            queue: self.hub.queue_of(export.volume()),
            changes: Some(self.hub.count_changes(export.counted())),
        })
    }

    /// Looks at the volumes' geometry again.
    pub(crate) fn renew_geometry(&self) {
        for attached in self.exports.borrow().values().flatten() {
            attached.geometry.set(attached.export.volume().geometry());
        }
        self.changed();
    }
}

impl<P: Protocol> Told for Shard<P> {
    fn rights_changed(&self, news: &Arc<News>) {
        self.tell_all(|| Message::Rights(Arc::clone(news)));
    }
}

/// What a connection's session has to do with the rest: its entry, and its reactor's shard.
pub struct Line<P: Protocol> {
    /// The part of the front end on its reactor.
    pub shard: Rc<Shard<P>>,
    /// What others see of it.
    pub entry: Rc<Entry<P>>,
}

impl<P: Protocol> Line<P> {
    /// The time, as of this turn of the reactor's loop.
    pub fn now(&self) -> Instant {
        self.shard.hub.reactor.now()
    }

    /// The connection has said what it is for, and was let in: its handshake is over.
    pub fn established(&self) {
        self.leave_half_open();
    }

    /// Counts the connection no more among those that are not established.
    pub(crate) fn leave_half_open(&self) {
        if let Some(source) = self.entry.half_open.take() {
            self.shard.shared.admission.half_open_ended(source);
        }
    }

    /// Has the session look again at what it sees, or end, in the next round.
    pub fn look_again(&self) {
        self.entry.seen.set(0);
    }

    /// Has the socket get these options, before anything more is sent.
    pub fn set_options(&self, options: &SocketOptions) {
        *self.entry.options.borrow_mut() = Some(options.clone());
    }

    /// Records commands whose answers have left `now`. An export that was removed meanwhile has nobody who would ask.
    pub fn record(&self, run: &Run, attached: Option<&Attached<P::Export>>, now: Instant) {
        self.entry.latency.borrow_mut().record(run, now);
        if let Some(attached) = attached {
            attached.latency.borrow_mut().record(run, now);
        }
    }
}

impl<P: Protocol> Clone for Line<P> {
    fn clone(&self) -> Self {
        Line {
            shard: Rc::clone(&self.shard),
            entry: Rc::clone(&self.entry),
        }
    }
}
