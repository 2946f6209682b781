//! The libraries, the clients of clusters, how images share them, and how a client is cut off.
//!
//! Everything here blocks, and belongs on threads that may.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};

use weir_volume::parts::lock;

use crate::auto::InFlightMax;
use crate::error::CephError;
use crate::host::in_background;
use crate::options::{Cache, Options, Settings};
use crate::sys::{Api, LibraryError, Pool, Rados};
use crate::threads::{self, Thread};
use crate::tuning::{OPTIONS, Tuned, choose, tune};
use crate::usage::{BusiestThread, ClientCost};

/// How long the cluster refuses a client that was cut off, in seconds: five years. librados keeps what was not answered, and sends it
/// again for as long as the client is there, which may be one that was paused with its whole machine: no time that is short
/// against the life of a process is long enough. The time at which it ends must fit the cluster's 32 bits of seconds.
const BLOCKLIST_SECONDS: u32 = 5 * 365 * 24 * 3600;
/// librbd skips parts of discards that are not multiples of this, in bytes: [`crate::volume::DEALLOCATE_BYTES`].
const DISCARD_BYTES: &str = "65536";
/// How long connecting waits for the monitors, in seconds.
const CONNECT_SECONDS: &str = "30";

/// Which libraries are loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    /// librados: a file name that the system's loader finds, or a path.
    pub rados: String,
    /// librbd, likewise.
    pub rbd: String,
}

impl Default for Libraries {
    /// Those of the system; `WEIR_LIBRADOS` and `WEIR_LIBRBD` name others.
    fn default() -> Self {
        let named = |variable: &str, usual: &str| {
            let given = std::env::var(variable).ok();
            given.unwrap_or_else(|| usual.to_owned())
        };
        Libraries {
            rados: named("WEIR_LIBRADOS", "librados.so.2"),
            rbd: named("WEIR_LIBRBD", "librbd.so.1"),
        }
    }
}

/// Ceph's client libraries, loaded when they are first needed, for good.
pub struct Ceph {
    libraries: Libraries,
    api: OnceLock<Result<&'static Api, LibraryError>>,
}

impl Ceph {
    /// Libraries that are not loaded yet.
    #[must_use]
    pub fn new(libraries: Libraries) -> Arc<Self> {
        Arc::new(Ceph {
            libraries,
            api: OnceLock::new(),
        })
    }

    pub(crate) fn api(&self) -> Result<&'static Api, LibraryError> {
        let load = || Api::load(&self.libraries.rados, &self.libraries.rbd);
        self.api.get_or_init(load).clone()
    }
}

/// How a client reaches its cluster, and who it is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Credentials {
    /// The cluster's configuration file; none: the one that Ceph's tools read.
    pub conf: Option<String>,
    /// The client's name, without `client.`.
    pub id: String,
    /// The file with the client's key; none: where the configuration says.
    pub keyring: Option<String>,
}

impl Default for Credentials {
    /// As Ceph's own tools: `client.admin`, with what the default configuration says.
    fn default() -> Self {
        Credentials {
            conf: None,
            id: "admin".to_owned(),
            keyring: None,
        }
    }
}

/// What clients must have in common to be shared.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) credentials: Credentials,
    pub(crate) cache: Cache,
    pub(crate) images_max: u32,
    pub(crate) settings: Settings,
}

impl GroupKey {
    pub(crate) fn of(options: &Options) -> Self {
        GroupKey {
            credentials: Credentials {
                conf: options.conf.clone(),
                id: options.id.clone(),
                keyring: options.keyring.clone(),
            },
            cache: options.cache,
            images_max: options.sharing.images_max(),
            settings: options.settings,
        }
    }
}

/// A client that has its configuration and is not connected yet.
fn configured(ceph: &Ceph, credentials: &Credentials, cache: Cache) -> Result<Rados, CephError> {
    let id = &credentials.id;
    let rados = Rados::create(ceph.api()?, &format!("client.{id}"))
        .map_err(CephError::of("cannot make a client of Ceph", id))?;
    let conf = credentials.conf.as_deref();
    rados.read_configuration(conf).map_err(|errno| {
        let file = conf.unwrap_or("ceph.conf ($CEPH_CONF, or in /etc/ceph)");
        CephError::new(format!("cannot read {file}"), id, errno)
    })?;
    let policy = cache.policy();
    let is_cached = if policy.is_some() { "true" } else { "false" };
    for (option, value) in [
        ("keyring", credentials.keyring.as_deref()),
        ("rbd_cache", Some(is_cached)),
        ("rbd_cache_policy", policy),
    ] {
        let Some(value) = value else { continue };
        let set = rados.set(option, value);
        set.map_err(CephError::of(format!("cannot set {option}={value}"), id))?;
    }
    for (option, value) in [
        // It is used whatever `rbd_cache` says.
        ("rbd_persistent_cache_mode", "disabled"),
        ("client_mount_timeout", CONNECT_SECONDS),
        // Data that is being written does not change: it need not be copied.
        ("rbd_disable_zero_copy_writes", "false"),
        // As the geometry says.
        ("rbd_discard_granularity_bytes", DISCARD_BYTES),
        // Or operations would be done on the reactor's thread.
        ("rbd_non_blocking_aio", "true"),
        // Where librbd breaks a lock by itself, as one whose holder is dead.
        ("rbd_blocklist_on_break_lock", "true"),
        // For how long is said by who takes a lock over: librbd 16 writes a time of its own to the monitors as a string, which they
        // refuse, and then the lock cannot be broken.
        ("rbd_blocklist_expire_seconds", "0"),
    ] {
        if rados.set(option, value).is_err() {
            tracing::debug!(option, value, "this version of Ceph has no such option");
        }
    }
    Ok(rados)
}

/// Connects a client that has its configuration.
fn connected(rados: Rados, credentials: &Credentials) -> Result<Rados, CephError> {
    let _connecting = Connecting::begin();
    let from = credentials.conf.as_deref();
    let from = from.unwrap_or("the default ceph.conf");
    let action = format!("cannot connect to the cluster of {from}");
    let done = rados.connect();
    done.map_err(|errno| CephError::connecting(action, &credentials.id, errno))?;
    Ok(rados)
}

/// A connection to a cluster, for something else than images.
pub(crate) fn connect(
    ceph: &Ceph,
    credentials: &Credentials,
    cache: Cache,
) -> Result<Rados, CephError> {
    connected(configured(ceph, credentials, cache)?, credentials)
}

/// Clients of one cluster that are alike, for images to share.
pub(crate) struct Group {
    ceph: Arc<Ceph>,
    pub(crate) key: GroupKey,
    /// Options to set in its clients. Known when the first of them connects.
    tuned: OnceLock<Vec<Tuned>>,
    /// Never held while anything waits for the cluster: reports take it too.
    clients: Mutex<Clients>,
    /// One that was to be shared is connected, or could not be.
    connected: Condvar,
    /// A volume of it is moving to a client of its own: one at a time.
    pub(crate) moving: AtomicBool,
    /// No volume of it moves before this time, in ticks: a client could not be had.
    pub(crate) move_not_before: AtomicU64,
}

/// The clients of a group.
#[derive(Default)]
struct Clients {
    all: Vec<Weak<Client>>,
    /// One connects that is to be shared: the next image waits for it.
    connecting: bool,
    /// How many of those could not connect, and why the last one could not: who waited for it need not find out again.
    failed: (u64, Option<CephError>),
}

/// That a client connects which is to be shared. Those who wait for it go on when this ends, however it does.
struct ConnectingShared<'group>(&'group Group);

impl Drop for ConnectingShared<'_> {
    fn drop(&mut self) {
        lock(&self.0.clients).connecting = false;
        self.0.connected.notify_all();
    }
}

/// What is known of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientReport {
    /// The client's name at the cluster, without `client.`.
    pub id: String,
    /// Its configuration file, where one was named.
    pub conf: Option<String>,
    /// Its address, as the cluster has it.
    pub address: String,
    /// Images that it serves.
    pub images: u32,
    /// Images that it would serve at most.
    pub images_max: u32,
    /// Whether it is a volume's own, which measurement or someone gave it.
    pub own: bool,
    /// Whether it is for images of which operations were not answered again and again, which others are kept from.
    pub apart: bool,
    /// The busiest of its threads when it was last looked at; none where it is not looked at, or its threads cannot be told apart.
    pub busiest_thread: Option<BusiestThread>,
    /// Its values of the options that Weir sets on small machines.
    pub settings: BTreeMap<String, String>,
    /// Whether the cluster was told to refuse it. It is gone as soon as librbd has let go of what it was lent.
    pub fenced: bool,
    /// What it has added to this process; none where that could not be told apart from other clients that connected at the same time,
    /// or its first image is not open yet.
    pub cost: Option<ClientCost>,
}

impl Group {
    pub(crate) fn new(ceph: Arc<Ceph>, key: GroupKey) -> Arc<Self> {
        Arc::new(Group {
            ceph,
            key,
            tuned: OnceLock::new(),
            clients: Mutex::default(),
            connected: Condvar::new(),
            moving: AtomicBool::new(false),
            move_not_before: AtomicU64::new(0),
        })
    }

    /// A seat at a client that has one free, or at a new one, among those that are apart or among the others. It knows of every
    /// client that was cut off before.
    pub(crate) fn seat(self: &Arc<Self>, apart: bool) -> Result<Seat, CephError> {
        let role = if apart { Role::Apart } else { Role::Shared };
        self.informed(self.take_seat(role)?)
    }

    /// The seat of a new client that has no other. It knows of every client that was cut off before.
    pub(crate) fn own_seat(self: &Arc<Self>) -> Result<Seat, CephError> {
        let client = Arc::new(self.connect(Role::Own)?);
        lock(&self.clients).all.push(Arc::downgrade(&client));
        self.informed(Seat::at(client))
    }

    /// What a client asks from now on tells the OSDs too which clients were cut off.
    fn informed(&self, seat: Seat) -> Result<Seat, CephError> {
        let id = &self.key.credentials.id;
        let learnt = seat.client.rados.wait_for_latest_map();
        learnt.map_err(CephError::of("cannot learn the state of the cluster", id))?;
        Ok(seat)
    }

    fn take_seat(self: &Arc<Self>, role: Role) -> Result<Seat, CephError> {
        let mut clients = lock(&self.clients);
        let failed_before = clients.failed.0;
        loop {
            if let Some(seat) = self.free_seat(role, &mut clients) {
                return Ok(seat);
            }
            if !clients.connecting {
                break;
            }
            let waited = self.connected.wait(clients);
            clients = waited.unwrap_or_else(PoisonError::into_inner);
            if clients.failed.0 > failed_before
                && let Some(error) = &clients.failed.1
            {
                return Err(error.clone());
            }
        }
        clients.connecting = true;
        drop(clients);
        let connecting = ConnectingShared(self);
        let connected = self.connect(role).map(Arc::new);
        let mut clients = lock(&self.clients);
        let seated = match connected {
            Ok(client) => {
                clients.all.push(Arc::downgrade(&client));
                Ok(Seat::at(client))
            }
            Err(error) => {
                clients.failed = (clients.failed.0 + 1, Some(error.clone()));
                Err(error)
            }
        };
        drop(clients);
        drop(connecting);
        seated
    }

    /// A seat at a client of this kind that has one free.
    fn free_seat(&self, role: Role, clients: &mut Clients) -> Option<Seat> {
        clients.all.retain(|client| client.strong_count() > 0);
        let mut free = None;
        for client in clients.all.iter().filter_map(Weak::upgrade) {
            let has_room =
                client.role == role && !client.is_fenced() && client.images() < self.key.images_max;
            match free {
                None if has_room => free = Some(client),
                _ => let_go(client),
            }
        }
        free.map(Seat::at)
    }

    fn configured(&self) -> Result<Rados, CephError> {
        configured(&self.ceph, &self.key.credentials, self.key.cache)
    }

    /// Options to set in its clients.
    fn tuned(&self) -> Result<&[Tuned], CephError> {
        if let Some(known) = self.tuned.get() {
            return Ok(known);
        }
        let chosen = match self.key.settings {
            Settings::Ceph => Vec::new(),
            Settings::Auto => {
                let connect = |rados| connected(rados, &self.key.credentials);
                choose(self.configured()?, connect)?
            }
        };
        Ok(self.tuned.get_or_init(|| chosen))
    }

    fn connect(self: &Arc<Self>, role: Role) -> Result<Client, CephError> {
        let Credentials { id, .. } = &self.key.credentials;
        let tuned = self.tuned()?;
        let before = Before::now();
        let rados = self.configured()?;
        tune(&rados, tuned);
        let rados = connected(rados, &self.key.credentials)?;
        let failed = |errno| CephError::new("cannot learn this client's address", id, errno);
        Ok(Client {
            address: rados.addresses().map_err(failed)?,
            cluster: rados.cluster().map_err(failed)?,
            in_flight_max: in_flight_max(&rados),
            settings: settings(&rados),
            threads: Mutex::new(before.since().map(|(_, threads)| threads)),
            busiest_thread: Mutex::default(),
            rados: Arc::new(rados),
            role,
            images: AtomicU32::new(0),
            fenced: AtomicBool::new(false),
            silent: Mutex::default(),
            cut_off: Mutex::new(false),
            before,
            cost: OnceLock::new(),
            group: Arc::clone(self),
        })
    }

    /// What a question yields for each client.
    fn of_each<T>(&self, mut ask: impl FnMut(&Client) -> T) -> Vec<T> {
        let clients: Vec<_> = {
            let clients = lock(&self.clients);
            clients.all.iter().filter_map(Weak::upgrade).collect()
        };
        let answers = clients.iter().map(|client| ask(client)).collect();
        clients.into_iter().for_each(let_go);
        answers
    }

    pub(crate) fn report(&self) -> Vec<ClientReport> {
        self.of_each(|client| ClientReport {
            id: self.key.credentials.id.clone(),
            conf: self.key.credentials.conf.clone(),
            address: client.address.clone(),
            images: client.images(),
            images_max: match client.role {
                Role::Own => 1,
                Role::Shared | Role::Apart => self.key.images_max,
            },
            own: client.is_own(),
            apart: client.role == Role::Apart,
            busiest_thread: lock(&client.busiest_thread).clone(),
            settings: client.settings.clone(),
            fenced: client.is_fenced(),
            cost: client.cost.get().copied().flatten(),
        })
    }

    /// Clients that were cut off and of which something is left: of them all those that this says yes to.
    pub(crate) fn fenced(&self, counts: impl Fn(&Client) -> bool) -> usize {
        self.count(|client| client.is_fenced() && counts(client))
    }

    /// Clients that are a volume's own.
    pub(crate) fn own(&self) -> usize {
        self.count(|client| client.is_own() && !client.is_fenced())
    }

    fn count(&self, counts: impl Fn(&Client) -> bool) -> usize {
        let counted = self.of_each(counts);
        counted.into_iter().filter(|counts| *counts).count()
    }
}

/// Lets go of a client that was only looked at, or is done with. Where nobody else has it any more it ends here, which waits for the cluster.
pub(crate) fn let_go(client: Arc<Client>) {
    if let Some(last) = Arc::into_inner(client) {
        in_background("weir-rbd-close", move || drop(last));
    }
}

/// A client's values of the options that Weir sets on small machines.
fn settings(rados: &Rados) -> BTreeMap<String, String> {
    let of = |option: &str| Some((option.to_owned(), rados.get(option).ok()?.trim().to_owned()));
    OPTIONS.into_iter().filter_map(of).collect()
}

/// Reads how much a client's configuration lets be under way; Ceph's defaults where it does not say.
fn in_flight_max(rados: &Rados) -> InFlightMax {
    let configured = |option, usual| {
        let value = rados.get(option).ok();
        match value.and_then(|value| value.trim().parse().ok()) {
            // It has no bound.
            Some(0) => u64::MAX,
            value => value.unwrap_or(usual),
        }
    };
    InFlightMax {
        operations: configured("objecter_inflight_ops", 1024),
        bytes: configured("objecter_inflight_op_bytes", 100 << 20),
    }
}

/// Whom a client serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Any images.
    Shared,
    /// Images that are silent again and again, [`crate::silence`].
    Apart,
    /// One image, which no other joins.
    Own,
}

/// A client of a cluster that images share.
pub(crate) struct Client {
    rados: Arc<Rados>,
    pub(crate) address: String,
    /// The cluster's identifier.
    pub(crate) cluster: String,
    pub(crate) role: Role,
    pub(crate) in_flight_max: InFlightMax,
    settings: BTreeMap<String, String>,
    /// Its threads; none where they could not be told from those of others that came at the same time.
    pub(crate) threads: Mutex<Option<Vec<Thread>>>,
    pub(crate) busiest_thread: Mutex<Option<BusiestThread>>,
    images: AtomicU32,
    /// No image joins it any more.
    fenced: AtomicBool,
    /// The volumes of which it left operations unanswered, for which it is cut off.
    pub(crate) silent: Mutex<BTreeSet<u64>>,
    /// Whether the cluster refuses it. Held while that is brought about.
    cut_off: Mutex<bool>,
    before: Before,
    /// Set when its first image is open.
    cost: OnceLock<Option<ClientCost>>,
    group: Arc<Group>,
}

/// The process before a client connected.
struct Before {
    /// Its usage and its threads; none where another client was connecting, or the system does not tell.
    process: Option<(ClientCost, BTreeSet<Thread>)>,
    begun: u64,
}

/// How many clients have begun to connect in this process, ever, and how many are at it.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static CONNECTING: AtomicU64 = AtomicU64::new(0);

/// A client that connects.
struct Connecting;

impl Connecting {
    fn begin() -> Self {
        CONNECTING.fetch_add(1, Ordering::Relaxed);
        BEGUN.fetch_add(1, Ordering::Relaxed);
        Connecting
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        CONNECTING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Before {
    fn now() -> Self {
        let begun = BEGUN.load(Ordering::Relaxed);
        let alone = CONNECTING.load(Ordering::Relaxed) == 0;
        let process = || Some((ClientCost::now()?, threads::all()?));
        Before {
            process: alone.then(process).flatten(),
            begun,
        }
    }

    /// Returns what the process has more now, and the threads that have come, if no other client has begun to connect since.
    fn since(&self) -> Option<(ClientCost, Vec<Thread>)> {
        let (usage, threads) = self.process.as_ref()?;
        let (now, all) = (ClientCost::now()?, threads::all()?);
        let is_alone = BEGUN.load(Ordering::Relaxed) == self.begun + 1;
        let come = all.difference(threads).copied().collect();
        is_alone.then(|| (usage.added_until(&now), come))
    }
}

impl Client {
    /// An image of it is open: where it is the first, the client is as large as it is going to be.
    pub(crate) fn has_image(&self) {
        self.cost.get_or_init(|| {
            let (cost, threads) = self.before.since().unzip();
            // Those that came with the image belong to it: a list without them would pass for the whole.
            *lock(&self.threads) = threads;
            cost
        });
    }

    pub(crate) fn images(&self) -> u32 {
        self.images.load(Ordering::Relaxed)
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced.load(Ordering::Relaxed)
    }

    /// Lets no image join it any more.
    pub(crate) fn retire(&self) {
        self.fenced.store(true, Ordering::Relaxed);
    }

    /// Returns whether this process has a client at an address, beside this one, that is not cut off. One that is gone can do nothing more.
    pub(crate) fn has_beside(&self, address: &str) -> bool {
        let is_it = |client: &Client| is_same_client(&client.address, address);
        let living = |client: &Client| is_it(client) && !client.is_fenced();
        self.group.count(living) > 0
    }

    pub(crate) fn is_own(&self) -> bool {
        self.role == Role::Own
    }

    pub(crate) fn pool(&self, pool: &str, namespace: &str) -> Result<Pool, CephError> {
        let id = &self.group.key.credentials.id;
        let opened = self.rados.pool(pool, namespace);
        opened.map_err(CephError::of(format!("cannot open pool {pool}"), id))
    }

    /// Has the cluster refuse this client, by way of another one. Afterwards nothing that it was asked before can change what
    /// is read by a client that came after.
    pub(crate) fn cut_off(&self) -> Result<(), CephError> {
        self.retire();
        let mut cut_off = lock(&self.cut_off);
        if *cut_off {
            return Ok(());
        }
        let Credentials { id, .. } = &self.group.key.credentials;
        let other = connect(&self.group.ceph, &self.group.key.credentials, Cache::Off)?;
        blocklist(&other, &self.address, id)?;
        *cut_off = true;
        Ok(())
    }

    /// Has the cluster refuse another client. Afterwards nothing of that one can change what this one reads.
    pub(crate) fn refuse(&self, other: &str) -> Result<(), CephError> {
        let id = &self.group.key.credentials.id;
        blocklist(&self.rados, other, id)?;
        let learnt = self.rados.wait_for_latest_map();
        learnt.map_err(CephError::of("cannot learn the state of the cluster", id))
    }
}

fn blocklist(rados: &Rados, addresses: &str, id: &str) -> Result<(), CephError> {
    for address in addresses_of(addresses) {
        let listed = rados.blocklist(address, BLOCKLIST_SECONDS);
        listed.map_err(CephError::of(format!("cannot blocklist {address}"), id))?;
    }
    Ok(())
}

/// One image's share of a client.
pub(crate) struct Seat {
    pub(crate) client: Arc<Client>,
}

impl Seat {
    fn at(client: Arc<Client>) -> Self {
        client.images.fetch_add(1, Ordering::Relaxed);
        Seat { client }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.client.images.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The addresses of a list such as `[v2:10.0.0.1:0/123,v1:10.0.0.1:0/123]`, as blocklists take them: the cluster knows a client by
/// address and nonce, whatever it speaks.
pub(crate) fn addresses_of(list: &str) -> impl Iterator<Item = &str> {
    // An IPv6 address has brackets of its own.
    let is_list = list.starts_with("[v");
    let inner = list.trim_matches(|of| is_list && ['[', ']'].contains(&of));
    let mut seen = Vec::new();
    inner.split(',').map(bare).filter(move |address| {
        let new = !seen.contains(address);
        seen.push(*address);
        new
    })
}

/// An address without the name of its protocol.
fn bare(address: &str) -> &str {
    ["v1:", "v2:", "any:"]
        .iter()
        .find_map(|protocol| address.strip_prefix(protocol))
        .unwrap_or(address)
}

/// Whether two lists of addresses are of one client.
pub(crate) fn is_same_client(one: &str, other: &str) -> bool {
    let others: Vec<&str> = addresses_of(other).collect();
    addresses_of(one).any(|address| others.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_known_by_address_and_nonce() {
        for (list, addresses) in [
            ("127.0.0.1:0/1", vec!["127.0.0.1:0/1"]),
            ("v2:127.0.0.1:0/1", vec!["127.0.0.1:0/1"]),
            ("[v2:127.0.0.1:0/1,v1:127.0.0.1:0/1]", vec!["127.0.0.1:0/1"]),
            ("v1:[::1]:0/7", vec!["[::1]:0/7"]),
            ("[::1]:0/7", vec!["[::1]:0/7"]),
        ] {
            assert_eq!(addresses_of(list).collect::<Vec<_>>(), addresses, "{list}");
        }
        assert!(is_same_client(
            "v2:10.0.0.1:0/5",
            "[v2:10.0.0.1:0/5,v1:10.0.0.1:0/5]"
        ));
        assert!(!is_same_client("10.0.0.1:0/5", "10.0.0.1:0/6"));
    }
}
