//! What a target has on one reactor: its view of the snapshot, the queues of the volumes, its connections.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weir_block::{Router, Volume};
use weir_nvme::Nqn;
use weir_reactor::{Instant, Mailbox, Reactor, Receiver, oneshot};

use crate::account::{Account, Turns};
use crate::connection::{Entry, Message};
use crate::core::DiscoveryLogs;
use crate::counters::ConnectionCounters;
use crate::latency::{Latency, Run};
use crate::snapshot::{Namespace, Snapshot};
use crate::target::{Revoked, TargetShared, Waiting};
use crate::volumes::{Attached, Namespaces, VolumeQueue};

/// How often it is told at most that commands wait for buffers.
const TELL_AGAIN: Duration = Duration::from_secs(10);

/// Something to do on a reactor's part of a target.
pub(crate) type Work = Box<dyn FnOnce(&Rc<Shard>) + Send>;

/// The reader's end of what a shard is sent: when it is dropped nobody reads any more, and what was not taken is dropped with it.
pub(crate) struct Inbox(pub(crate) Arc<Mailbox<Work>>);

impl Drop for Inbox {
    fn drop(&mut self) {
        drop(self.0.close());
    }
}

/// Histograms of one namespace on one reactor.
type SharedLatency = Rc<RefCell<Latency>>;

/// A namespace: its subsystem and NSID.
pub(crate) type NamespaceKey = (Nqn, u32);

/// Identity of a volume while somebody holds it.
pub(crate) type VolumeKey = usize;

pub(crate) fn key_of(volume: &Arc<dyn Volume>) -> VolumeKey {
    Arc::as_ptr(volume).cast::<()>() as usize
}

fn queue_of(queues: &[(VolumeKey, Rc<VolumeQueue>)], key: VolumeKey) -> Option<Rc<VolumeQueue>> {
    let found = queues.iter().find(|(other, _)| *other == key);
    found.map(|(_, queue)| Rc::clone(queue))
}

/// Latencies of a volume that are in no histogram of a namespace that is served: of its removed namespaces, and of commands whose
/// connection was lost.
struct VolumeRecord {
    /// Keeps its address from becoming another volume's.
    volume: Weak<dyn Volume>,
    latency: Latency,
}

/// A listener on this reactor; dropped, it stops listening.
pub(crate) struct Listening {
    pub(crate) _accepting: weir_reactor::Task<()>,
    /// Options of the connections that are accepted next.
    pub(crate) options: Rc<RefCell<weir_reactor::SocketOptions>>,
}

/// One reactor's part of a target.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) reactor: Reactor,
    pub(crate) target: Arc<TargetShared>,
    pub(crate) router: Rc<Router>,
    pub(crate) counters: Arc<ConnectionCounters>,
    snapshot: RefCell<Arc<Snapshot>>,
    /// Grows with every change of what connections see.
    generation: Cell<u64>,
    /// In the order of the snapshot: what a reactor does follows from what it was told, and not from where memory lies.
    queues: RefCell<Vec<(VolumeKey, Rc<VolumeQueue>)>>,
    attached: RefCell<HashMap<Nqn, Vec<Rc<Attached>>>>,
    /// Latencies of the removed namespaces of subsystems that are served.
    retired: RefCell<HashMap<Nqn, Latency>>,
    /// As long as somebody holds the volume.
    volume_records: RefCell<HashMap<VolumeKey, VolumeRecord>>,
    pub(crate) connections: RefCell<BTreeMap<u64, Rc<Entry>>>,
    pub(crate) listeners: RefCell<BTreeMap<u64, Listening>>,
    /// Connections that were accepted and wait until they may be served.
    pub(crate) waiting: RefCell<VecDeque<Waiting>>,
    /// Data in flight of all connections here.
    pub(crate) account: Rc<Account>,
    /// The discovery logs of the snapshot.
    pub(crate) discovery: RefCell<DiscoveryLogs>,
    /// Whose turn it is to take buffers.
    pub(crate) turns: Turns,
    /// Whose turn it is to take room in the account.
    pub(crate) account_turns: Turns,
    /// Bytes of input that connections keep outside of all pools.
    pub(crate) kept: Rc<Cell<usize>>,
    /// When it was last told that commands wait for buffers, and how often they had by then.
    told_of_waits: Cell<Option<(Instant, u64)>>,
    pub(crate) stopped: Cell<bool>,
}

impl Shard {
    pub(crate) fn new(index: usize, reactor: &Reactor, target: Arc<TargetShared>) -> Rc<Self> {
        Rc::new(Shard {
            index,
            reactor: reactor.clone(),
            counters: Arc::clone(&target.shards[index].counters),
            account: Account::new(target.config.bytes_in_flight),
            discovery: RefCell::default(),
            turns: Turns::default(),
            account_turns: Turns::default(),
            kept: Rc::default(),
            told_of_waits: Cell::new(None),
            waiting: RefCell::default(),
            target,
            router: Router::new(),
            snapshot: RefCell::default(),
            generation: Cell::new(1),
            queues: RefCell::default(),
            attached: RefCell::default(),
            retired: RefCell::default(),
            volume_records: RefCell::default(),
            connections: RefCell::default(),
            listeners: RefCell::default(),
            stopped: Cell::new(false),
        })
    }

    /// Does what is sent to this reactor's part, until it is told to stop, or the reactor stops.
    pub(crate) async fn run(self: Rc<Self>, work: Inbox) {
        while !self.stopped.get() {
            let work = work.0.next().await;
            work(&self);
        }
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.snapshot.borrow())
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// Has every connection take over what it sees now; each receiver ends when one has.
    fn changed(&self) -> Vec<Receiver<()>> {
        self.generation.set(self.generation.get() + 1);
        let connections = self.connections.borrow();
        let look = |entry: &Rc<Entry>| {
            let (sender, receiver) = oneshot();
            let _ = entry.handle.mailbox.send(Message::Look(sender));
            receiver
        };
        connections.values().map(look).collect()
    }

    /// The requests of the connections here that are under way though their hosts may not do this any more.
    pub(crate) fn revoked(&self) -> Vec<(Revoked, u64)> {
        let mut all = Vec::new();
        for entry in self.connections.borrow().values() {
            let association = entry.association.borrow();
            let Some((shared, _)) = &*association else {
                continue;
            };
            let revoked = entry.revoked.borrow();
            all.extend(revoked.iter().map(|(&nsid, &requests)| {
                let revoked = Revoked {
                    host_nqn: shared.host.nqn.clone(),
                    subsystem_nqn: shared.subsystem_nqn.clone(),
                    nsid,
                };
                (revoked, requests)
            }));
        }
        all
    }

    /// Sends a message to every connection here.
    pub(crate) fn tell_all(&self, message: impl Fn() -> Message) {
        for entry in self.connections.borrow().values() {
            let _ = entry.handle.mailbox.send(message());
        }
    }

    /// Takes a new snapshot over. Queues of volumes that stay are kept; others go with their last request. Each receiver ends
    /// when one connection holds nothing of the old one any more.
    pub(crate) fn apply(&self, snapshot: Arc<Snapshot>) -> Vec<Receiver<()>> {
        let mut kept = Vec::new();
        let mut attached = HashMap::new();
        for subsystem in &snapshot.subsystems {
            let latencies = self.latencies_of(&subsystem.nqn);
            let namespaces = subsystem
                .namespaces
                .iter()
                .map(|namespace| self.attach(namespace, &mut kept, &latencies))
                .collect();
            attached.insert(subsystem.nqn.clone(), namespaces);
        }
        *self.queues.borrow_mut() = kept;
        let before = self.attached.replace(attached);
        self.retire(&before);
        self.discovery.take();
        *self.snapshot.borrow_mut() = snapshot;
        self.changed()
    }

    /// Keeps what was recorded of namespaces that are served no more, so that the counts of a subsystem and of a volume only grow.
    fn retire(&self, before: &HashMap<Nqn, Vec<Rc<Attached>>>) {
        let served = self.attached.borrow();
        let mut retired = self.retired.borrow_mut();
        retired.retain(|nqn, _| served.contains_key(nqn));
        self.volume_records
            .borrow_mut()
            .retain(|_, record| record.volume.strong_count() > 0);
        for (nqn, namespaces) in before {
            let now = served.get(nqn);
            let still_served = now.into_iter().flatten();
            let kept: HashSet<_> = still_served.map(|one| Rc::as_ptr(&one.latency)).collect();
            for gone in namespaces {
                let latency = gone.latency.borrow();
                if latency.is_empty() || kept.contains(&Rc::as_ptr(&gone.latency)) {
                    continue;
                }
                self.record_of(&gone.namespace.counted, |record| record.merge(&latency));
                if now.is_some() {
                    retired.entry(nqn.clone()).or_default().merge(&latency);
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

    /// Records commands on a namespace whose connection was lost. They are in no count of answered commands.
    pub(crate) fn record_lost(&self, attached: &Attached, run: &Run) {
        let now = self.reactor.now();
        self.record_of(&attached.namespace.counted, |record| {
            record.record(run, now);
        });
    }

    /// Where the time of namespaces' commands went on this reactor: of one namespace, or of all.
    pub(crate) fn namespace_latencies(
        &self,
        only: Option<&NamespaceKey>,
    ) -> Vec<(NamespaceKey, Latency)> {
        let served = self.attached.borrow();
        let all = served.iter().flat_map(|(nqn, namespaces)| {
            let key = move |attached: &Rc<Attached>| (nqn.clone(), attached.namespace.nsid);
            namespaces
                .iter()
                .filter(move |attached| {
                    only.is_none_or(|(subsystem, nsid)| {
                        subsystem == nqn && *nsid == attached.namespace.nsid
                    })
                })
                .map(move |attached| (key(attached), attached.latency.borrow().clone()))
        });
        all.collect()
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

    /// Where the time of subsystems' commands went on this reactor, those on removed namespaces included.
    pub(crate) fn subsystem_latencies(&self) -> Vec<(Nqn, Latency)> {
        let (served, retired) = (self.attached.borrow(), self.retired.borrow());
        let all = served.iter().map(|(nqn, namespaces)| {
            let mut latency = retired.get(nqn).cloned().unwrap_or_default();
            for attached in namespaces {
                latency.merge(&attached.latency.borrow());
            }
            (nqn.clone(), latency)
        });
        all.collect()
    }

    /// Latencies of volumes on this reactor, those of removed namespaces and of lost connections included. A volume may be there
    /// several times.
    pub(crate) fn volume_latencies(&self) -> Vec<(VolumeKey, Latency)> {
        let (served, records) = (self.attached.borrow(), self.volume_records.borrow());
        let served = served.values().flatten().map(|attached| {
            let key = key_of(&attached.namespace.counted);
            (key, attached.latency.borrow().clone())
        });
        let records = records.iter().map(|(&key, one)| (key, one.latency.clone()));
        served.chain(records).collect()
    }

    /// The latencies of a subsystem's namespaces as they are served now: UUIDs and histograms by NSID.
    fn latencies_of(&self, subsystem: &Nqn) -> HashMap<u32, ([u8; 16], SharedLatency)> {
        let served = self.attached.borrow();
        let of = |attached: &Rc<Attached>| {
            let namespace = &attached.namespace;
            let latency = Rc::clone(&attached.latency);
            (namespace.nsid, (namespace.uuid, latency))
        };
        let namespaces = served.get(subsystem).into_iter().flatten();
        namespaces.map(of).collect()
    }

    fn attach(
        &self,
        namespace: &Namespace,
        kept: &mut Vec<(VolumeKey, Rc<VolumeQueue>)>,
        latencies: &HashMap<u32, ([u8; 16], SharedLatency)>,
    ) -> Rc<Attached> {
        let key = key_of(&namespace.volume);
        let queue = queue_of(kept, key).unwrap_or_else(|| {
            let before = queue_of(&self.queues.borrow(), key);
            let queue = before.unwrap_or_else(|| {
                VolumeQueue::of_volume(
                    Arc::clone(&namespace.volume),
                    &self.reactor,
                    self.target.config.volume_queue_depth,
                    &self.router,
                )
            });
            kept.push((key, Rc::clone(&queue)));
            queue
        });
        let latency = match latencies.get(&namespace.nsid) {
            Some((uuid, latency)) if *uuid == namespace.uuid => Rc::clone(latency),
            _ => Rc::default(),
        };
        Rc::new(Attached {
            latency,
            namespace: namespace.clone(),
            geometry: Cell::new(namespace.volume.geometry()),
            queue,
        })
    }

    /// Looks at the volumes' geometry again.
    pub(crate) fn renew_geometry(&self) {
        for attached in self.attached.borrow().values().flatten() {
            attached.geometry.set(attached.namespace.volume.geometry());
        }
        self.changed();
    }

    /// What `host` sees of a subsystem; none when there is no such subsystem or the host may not connect.
    pub(crate) fn namespaces_for(&self, subsystem: &Nqn, host: &Nqn) -> Option<Namespaces> {
        let snapshot = self.snapshot.borrow();
        let found = snapshot.subsystem(subsystem.as_str())?;
        if !found.allowed.allows(host) {
            return None;
        }
        let attached = self.attached.borrow();
        let visible = attached
            .get(subsystem)?
            .iter()
            .filter(|attached| attached.namespace.visible_to.allows(host))
            .cloned()
            .collect();
        Some(Namespaces::new(visible))
    }

    /// Connection `id` waits for nothing any more.
    pub(crate) fn leave_turns(&self, id: u64) {
        self.turns.leave(id);
        self.account_turns.leave(id);
    }

    /// Tells that commands wait for buffers: the first time, and then now and then, with how often they did.
    pub(crate) fn tell_of_waits(&self) {
        let (now, waits) = (self.reactor.now(), self.counters.buffer_waits.get());
        let told = self.told_of_waits.get();
        if told.is_some_and(|(at, _)| now < at + TELL_AGAIN) {
            return;
        }
        self.told_of_waits.set(Some((now, waits)));
        let usage = self.reactor.pool().usage();
        tracing::warn!(
            reactor = self.index,
            times = waits - told.map_or(0, |(_, before)| before),
            used = usage.used_bytes,
            limit = usage.limit_bytes,
            in_flight = self.account.used(),
            "commands wait for memory: as much data is in flight on the reactor as may be, or all its buffers are in use (limits.memory)"
        );
    }

    /// Submits what waits in any volume's queue.
    pub(crate) fn pump_all(&self) {
        for (_, queue) in &*self.queues.borrow() {
            queue.pump(self.reactor.now());
        }
    }
}
