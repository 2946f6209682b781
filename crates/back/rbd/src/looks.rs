//! The thread that looks at shared clients for `bdevs_per_cluster=auto`, and has volumes move.
//!
//! There is one while such a volume is open. While operations flow on a client of which a volume could go it looks once in
//! [`AutoLimits::look`]; otherwise ever more seldom, and then at what the queues count alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_volume::parts::lock;

use crate::auto::{AutoLimits, Busy, Judge, Load, Look, Share, percent};
use crate::cluster::{Client, let_go};
use crate::host::{RbdHost, attend, by_client};
use crate::options::Sharing;
use crate::threads::{self, Thread, Told};
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

impl Seen {
    /// Whether operations flow on a client of which a volume could go.
    fn look(&mut self, host: &RbdHost, volumes: &[Arc<Shared>], limits: &AutoLimits) -> bool {
        self.tell_bound(host, limits);
        let mut before = std::mem::take(&mut self.clients);
        let mut flows = false;
        for (address, volumes) in by_client(volumes, |_| true) {
            let Some(client) = volumes[0].client() else {
                continue;
            };
            // Its volumes may have left it meanwhile.
            let may = client.address == address
                && !client.is_own()
                && !client.is_fenced()
                && client.images() > 1
                && volumes.iter().any(|volume| is_auto(volume));
            // When this client's loads are read: what was done at those before it took its time.
            if let Some(now) = threads::now().filter(|_| may) {
                let loads = volumes.iter().map(|volume| (volume.id, volume.load()));
                let loads: BTreeMap<u64, Load> = loads.collect();
                let before = before.remove(&address);
                let mut before = before.filter(|seen| seen.loads.keys().eq(loads.keys()));
                flows |= match &mut before {
                    Some(seen) => seen.look(now, loads, &client, &volumes, limits),
                    None => {
                        before = Some(SeenClient::new(now, loads, &client));
                        true
                    }
                };
                self.clients.extend(before.map(|seen| (address, seen)));
            }
            let_go(client);
        }
        flows
    }

    /// Says that no more volumes move, when that begins.
    fn tell_bound(&mut self, host: &RbdHost, limits: &AutoLimits) {
        let (own, bound) = (host.own_clients(), limits.own_clients_max);
        if own >= bound && !self.told_bound {
            tracing::info!(
                own,
                bound,
                "as many volumes have clients of their own as may: no more move"
            );
        }
        self.told_bound = own >= bound;
    }
}

impl SeenClient {
    /// Takes another look, and has a volume move where that is to be; whether operations flow.
    fn look(
        &mut self,
        now: u64,
        loads: BTreeMap<u64, Load>,
        client: &Client,
        volumes: &[Arc<Shared>],
        limits: &AutoLimits,
    ) -> bool {
        let elapsed = threads::time_of(now.saturating_sub(self.at));
        if elapsed.is_zero() {
            return true;
        }
        let shares = volumes.iter().map(|volume| Share {
            volume: volume.id,
            load: loads[&volume.id].since(&self.loads[&volume.id]),
            may_move: is_auto(volume) && volume.may_move(now),
        });
        let shares: Vec<_> = shares.collect();
        let flows = shares.iter().any(|share| share.load.operations > 0);
        // What there is of the system to ask is asked where there is something to see.
        if !flows {
            self.busy.clear();
        }
        let busiest = flows.then(|| self.busiest(client)).flatten();
        *lock(&client.busiest_thread) = busiest.as_ref().map(|busy| BusiestThread {
            name: busy.name.clone(),
            percent: percent(busy.time, elapsed),
        });
        let look = Look {
            elapsed,
            busiest,
            in_flight_max: client.in_flight_max,
            shares,
        };
        (self.at, self.loads) = (now, loads);
        if self.settling > 0 {
            self.settling -= 1;
        } else if let Some((id, reason)) = self.judge.look(&look, limits)
            && let Some(volume) = volumes.iter().find(|volume| volume.id == id)
        {
            tracing::info!(volume = %volume.name, %reason, "the volume is to have a client of its own");
            volume.begin_move(reason);
        }
        flows
    }

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
        let told = threads::tell_of(lock(&client.threads).as_ref()?);
        let busy = |thread: &Told| {
            let before = self.busy.get(&thread.thread);
            before.map_or(0, |before| thread.busy.saturating_sub(*before))
        };
        let busiest = told.iter().max_by_key(|thread| busy(thread));
        let busiest = busiest.map(|thread| Busy {
            name: thread.name.clone(),
            time: threads::time_of(busy(thread)),
        });
        self.busy = told.iter().map(|told| (told.thread, told.busy)).collect();
        busiest
    }
}
