//! The thread that looks at shared clients for `bdevs_per_cluster=auto`, and has volumes move.
//!
//! There is one while such a volume is open. While operations flow on a client of which a volume could go it looks once in
//! [`AutoLimits::look`]; otherwise ever more seldom, and then at what the queues count alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weir_volume::parts::lock;

use crate::auto::{AutoLimits, Busy, Judge, Load, Look, Reason, Share, percent};
use crate::cluster::{Client, let_go};
use crate::host::{RbdHost, attend};
use crate::options::Sharing;
use crate::threads::{self, Thread};
use crate::usage::BusiestThread;
use crate::volume::{Phase, Shared};

/// The longest time between two looks, when nothing flows.
const IDLE_LOOK_MAX: Duration = Duration::from_secs(8);
/// Looks that do not count after a volume has left a client or come to it: what was seen before was another client's load.
const SETTLE_LOOKS: u32 = 3;

/// Has the shared clients of a host looked at, if they are not yet.
pub(crate) fn begin(host: &Arc<RbdHost>) {
    let (limits, mut seen) = (host.auto_limits, Seen::default());
    let longest = IDLE_LOOK_MAX.max(limits.look);
    attend(
        host,
        |host| &host.looking,
        "weir-rbd-auto",
        is_auto,
        limits.look,
        move |host, volumes, pause| {
            if seen.look(host, volumes, &limits) {
                limits.look
            } else {
                (pause * 2).clamp(limits.look, longest)
            }
        },
    );
}

fn is_auto(volume: &Shared) -> bool {
    volume.options.sharing == Sharing::Auto
        && !volume.has_volatile_cache()
        && lock(&volume.state).phase != Phase::Closed
}

/// What was seen of clients the last time, by address.
#[derive(Default)]
struct Seen {
    clients: BTreeMap<String, SeenClient>,
    /// It was said that there are no more clients for volumes of their own.
    told_bound: bool,
}

struct SeenClient {
    at: u64,
    /// What each image had done.
    loads: BTreeMap<u64, Load>,
    /// For how long each thread had had a processor, in ticks.
    busy: BTreeMap<Thread, u64>,
    /// Looks that do not count yet.
    settling: u32,
    judge: Judge,
}

/// A client that is shared, and whom by.
struct SharedClient<'volumes> {
    client: Arc<Client>,
    volumes: Vec<&'volumes Arc<Shared>>,
}

/// The clients of which a volume could go, by address.
fn candidates(volumes: &[Arc<Shared>]) -> BTreeMap<String, SharedClient<'_>> {
    let mut found: BTreeMap<String, SharedClient<'_>> = BTreeMap::new();
    for volume in volumes {
        let Some(client) = volume.client() else {
            continue;
        };
        let entry = found.entry(client.address.clone());
        let entry = entry.or_insert_with(|| SharedClient {
            client,
            volumes: Vec::new(),
        });
        entry.volumes.push(volume);
    }
    let may = |shared: &SharedClient<'_>| {
        let client = &shared.client;
        let may = !client.is_own() && !client.is_fenced() && client.images() > 1;
        may && shared.volumes.iter().any(|volume| is_auto(volume))
    };
    let (found, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        found.into_iter().partition(|(_, shared)| may(shared));
    let_all_go(others);
    found
}

/// Its volumes may have left a client meanwhile, which ends with the last who has it: not on this thread, as that waits for the cluster.
fn let_all_go(clients: BTreeMap<String, SharedClient<'_>>) {
    clients
        .into_values()
        .for_each(|shared| let_go(shared.client));
}

impl Seen {
    /// Whether operations flow on a client of which a volume could go.
    fn look(&mut self, host: &RbdHost, volumes: &[Arc<Shared>], limits: &AutoLimits) -> bool {
        let candidates = candidates(volumes);
        self.clients
            .retain(|address, _| candidates.contains_key(address));
        let mut flows = false;
        for (address, shared) in &candidates {
            let mut before = self.clients.remove(address);
            let verdict = self.look_at(&mut before, shared, host, limits);
            flows |= verdict.flows;
            self.clients
                .extend(before.map(|seen| (address.clone(), seen)));
            if let Some((volume, reason)) = verdict.moves {
                tracing::info!(volume = %volume.name, %reason, "the volume is to have a client of its own");
                volume.begin_move(reason);
            }
        }
        let_all_go(candidates);
        flows
    }
}

/// What a look at one client comes to.
#[derive(Default)]
struct Verdict<'volumes> {
    flows: bool,
    moves: Option<(&'volumes Arc<Shared>, Reason)>,
}

impl Seen {
    fn look_at<'volumes>(
        &mut self,
        before: &mut Option<SeenClient>,
        shared: &SharedClient<'volumes>,
        host: &RbdHost,
        limits: &AutoLimits,
    ) -> Verdict<'volumes> {
        // When this client's loads are read: what was done at those before it took its time.
        let Some(now) = threads::now() else {
            return Verdict::default();
        };
        let loads: BTreeMap<u64, Load> = shared
            .volumes
            .iter()
            .map(|volume| (volume.id, volume.load()))
            .collect();
        let same = |seen: &SeenClient| seen.loads.keys().eq(loads.keys());
        let Some(seen) = before.as_mut().filter(|seen| same(seen)) else {
            *before = Some(SeenClient::new(now, loads, &shared.client));
            return Verdict {
                flows: true,
                moves: None,
            };
        };
        let elapsed = now.saturating_sub(seen.at);
        if elapsed == 0 {
            return Verdict {
                flows: true,
                moves: None,
            };
        }
        let done = |id: &u64| loads[id].since(&seen.loads[id]);
        let done: BTreeMap<u64, Load> = loads.keys().map(|id| (*id, done(id))).collect();
        let flows = done.values().any(|load| load.operations > 0);
        // What there is of the system to ask is asked where there is something to see.
        if !flows {
            seen.busy.clear();
        }
        let busiest = flows.then(|| seen.busiest(&shared.client)).flatten();
        *lock(&shared.client.busiest_thread) = busiest.as_ref().map(|busy| BusiestThread {
            name: busy.name.clone(),
            percent: percent(busy.time, threads::time_of(elapsed)),
        });
        let may = self.may_move(host, shared, now);
        let shares = shared.volumes.iter().map(|volume| Share {
            volume: volume.id,
            load: done[&volume.id],
            may_move: may && is_auto(volume) && now >= lock(&volume.state).move_not_before,
        });
        let look = Look {
            elapsed: threads::time_of(elapsed),
            busiest,
            in_flight_max: shared.client.in_flight_max,
            shares: shares.collect(),
        };
        (seen.at, seen.loads) = (now, loads);
        if seen.settling > 0 {
            seen.settling -= 1;
            return Verdict { flows, moves: None };
        }
        let judged = seen.judge.look(&look, limits);
        let volume = |id| shared.volumes.iter().find(|volume| volume.id == id);
        Verdict {
            flows,
            moves: judged.and_then(|(id, reason)| Some((*volume(id)?, reason))),
        }
    }

    /// Whether a client of its own can be had for a volume now.
    fn may_move(&mut self, host: &RbdHost, shared: &SharedClient<'_>, now: u64) -> bool {
        let group = shared.client.group();
        let own = host.own_clients();
        let bound = host.auto_limits.own_clients_max;
        let room = own < bound;
        if !room && !self.told_bound {
            tracing::info!(
                own,
                bound,
                "as many volumes have clients of their own as may: no more move"
            );
        }
        self.told_bound = !room;
        room && !group.moving.load(Ordering::Acquire)
            && now >= group.move_not_before.load(Ordering::Relaxed)
            && !host.has_fenced(&shared.volumes[0].options)
    }
}

impl SeenClient {
    fn new(at: u64, loads: BTreeMap<u64, Load>, client: &Client) -> Self {
        let mut seen = SeenClient {
            at,
            loads,
            busy: BTreeMap::new(),
            settling: SETTLE_LOOKS,
            judge: Judge::default(),
        };
        seen.busiest(client);
        seen
    }

    /// The thread of a client that had a processor for longest since the last time; none where they cannot be told.
    fn busiest(&mut self, client: &Client) -> Option<Busy> {
        let told = threads::tell_of(&client.threads()?);
        let mut busiest: Option<(u64, &str)> = None;
        for thread in &told {
            let before = self.busy.get(&thread.thread).copied();
            let busy = before.map_or(0, |before| thread.busy.saturating_sub(before));
            if busiest.is_none_or(|(most, _)| busy > most) {
                busiest = Some((busy, &thread.name));
            }
        }
        let busiest = busiest.map(|(ticks, name)| Busy {
            name: name.to_owned(),
            time: threads::time_of(ticks),
        });
        self.busy = told.iter().map(|told| (told.thread, told.busy)).collect();
        busiest
    }
}
