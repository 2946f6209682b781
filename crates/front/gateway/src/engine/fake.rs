//! An engine without a data path, for tests of what stands on engines.
//!
//! It keeps the books that a real one would, asserts that it is driven by the rules, and can be
//! told to fail. Volumes are what their URL's `size=` says; nothing is served.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use weir_front::Kept;
use weir_reservation::StoredTable;

use super::{
    ConnectionReport, Engine, EngineError, Latency, ListenerReport, Opening, ReactorReport, Reply,
    RevokedReport, ThrottledReport, ToKeep, VolumeReport,
};
use crate::metrics::{Family, Kind};
use crate::name::{ListenerAddress, VolumeName};
use crate::state::{ExportName, Portal, State};

/// An engine without a data path.
#[derive(Default)]
pub struct FakeEngine {
    books: Mutex<Books>,
    /// Something that hung goes on.
    released: tokio::sync::Notify,
    /// A host waits for reservations to be stored.
    reserved: tokio::sync::Notify,
}

#[derive(Default)]
struct Books {
    volumes: BTreeMap<VolumeName, VolumeReport>,
    listeners: BTreeSet<ListenerAddress>,
    connections: Vec<ConnectionReport>,
    export_latencies: BTreeMap<ExportName, Latency>,
    connection_latencies: BTreeMap<u64, Latency>,
    throttled: BTreeMap<ExportName, ThrottledReport>,
    revoked: Vec<RevokedReport>,
    applied: Option<Arc<State>>,
    failing_urls: BTreeSet<String>,
    hanging_urls: BTreeSet<String>,
    failing_listeners: BTreeSet<ListenerAddress>,
    refusals_as_used: u32,
    applies_to_fail: u32,
    created: Vec<VolumeName>,
    to_keep: VecDeque<ToKeep>,
    shut_down: Option<Duration>,
}

impl Books {
    /// Whether this call is one of those that find what they open in use.
    fn takes_refusal(&mut self) -> bool {
        let refuses = self.refusals_as_used > 0;
        self.refusals_as_used -= u32::from(refuses);
        refuses
    }
}

impl FakeEngine {
    /// An engine with nothing open.
    pub fn new() -> Self {
        Self::default()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books
            .lock()
            .expect("no test panics with the books open")
    }

    /// Makes opening `url` fail, or succeed again.
    pub fn fail_url(&self, url: &str, fails: bool) {
        let mut books = self.books();
        if fails {
            books.failing_urls.insert(url.to_owned());
        } else {
            books.failing_urls.remove(url);
        }
    }

    /// Has a host wait for reservations of a volume to be stored. Yields whether they were.
    pub async fn reserve(&self, volume: &VolumeName, table: Option<StoredTable>) -> bool {
        let (sender, stored) = tokio::sync::oneshot::channel();
        let kept = Kept::new(move |is_stored| {
            let _ = sender.send(is_stored);
        });
        self.books().to_keep.push_back(ToKeep {
            volume: volume.clone(),
            table,
            kept,
        });
        self.reserved.notify_one();
        stored.await.expect("it is told")
    }

    /// Makes opening `url`, and resizing what it opens, wait until it hangs no longer.
    pub fn hang_url(&self, url: &str, hangs: bool) {
        let mut books = self.books();
        if hangs {
            books.hanging_urls.insert(url.to_owned());
        } else {
            books.hanging_urls.remove(url);
        }
        drop(books);
        self.released.notify_waiters();
    }

    fn hangs(&self, url: &str) -> bool {
        self.books().hanging_urls.contains(url)
    }

    /// Returns when `url` hangs no longer.
    async fn while_it_hangs(&self, url: &str) {
        loop {
            let released = self.released.notified();
            if !self.hangs(url) {
                return;
            }
            released.await;
        }
    }

    /// Has these requests under way from now on, which hosts may not do any more.
    pub fn set_revoked(&self, revoked: Vec<RevokedReport>) {
        self.books().revoked = revoked;
    }

    /// Makes listening at `address` fail, or succeed again.
    pub fn fail_listener(&self, address: &ListenerAddress, fails: bool) {
        let mut books = self.books();
        if fails {
            books.failing_listeners.insert(address.clone());
        } else {
            books.failing_listeners.remove(address);
        }
    }

    /// Makes the next `count` calls that open something find it in use.
    pub fn refuse_as_used(&self, count: u32) {
        self.books().refusals_as_used = count;
    }

    /// How many of those calls are still to come.
    pub fn refusals_left(&self) -> u32 {
        self.books().refusals_as_used
    }

    /// Makes the next `count` calls of apply fail.
    pub fn fail_applies(&self, count: u32) {
        self.books().applies_to_fail = count;
    }

    /// Pretends that a host has connected.
    pub fn add_connection(&self, connection: ConnectionReport) {
        self.books().connections.push(connection);
    }

    /// Pretends that this is where the time of an export's commands went.
    pub fn set_export_latency(&self, export: ExportName, latency: Latency) {
        self.books().export_latencies.insert(export, latency);
    }

    /// Pretends that this is where the time of a connection's commands went.
    pub fn set_connection_latency(&self, id: u64, latency: Latency) {
        self.books().connection_latencies.insert(id, latency);
    }

    /// Pretends that this much waited for an export's limits.
    pub fn set_throttled(&self, export: ExportName, throttled: ThrottledReport) {
        self.books().throttled.insert(export, throttled);
    }

    /// The state that was applied last.
    pub fn applied(&self) -> Option<Arc<State>> {
        self.books().applied.clone()
    }

    /// The names of the open volumes.
    pub fn open_volumes(&self) -> Vec<VolumeName> {
        self.books().volumes.keys().cloned().collect()
    }

    /// The volumes that were opened with leave to make them, in order.
    pub fn created(&self) -> Vec<VolumeName> {
        self.books().created.clone()
    }

    /// The addresses of the open listeners.
    pub fn open_listeners(&self) -> Vec<ListenerAddress> {
        self.books().listeners.iter().cloned().collect()
    }

    /// For how long shutdown was to wait, once it was called.
    pub fn shut_down(&self) -> Option<Duration> {
        self.books().shut_down
    }
}

/// An answer that is there at once.
fn ready<'a, T: Send + 'a>(answer: Result<T, EngineError>) -> Reply<'a, T> {
    Box::pin(std::future::ready(answer))
}

/// The size that a URL asks for; 1 GiB where it does not.
fn size_of(url: &str) -> Result<u64, String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let size = query.split('&').find_map(|pair| pair.strip_prefix("size="));
    size.map_or(Ok(1 << 30), |text| {
        weir_block::size::parse(text).map_err(|error| error.to_string())
    })
}

impl FakeEngine {
    fn open_now(&self, name: &VolumeName, url: &str, opening: Opening) -> Result<(), EngineError> {
        let mut books = self.books();
        assert!(
            !books.volumes.contains_key(name),
            "volume {name} is opened twice"
        );
        let in_use = books.takes_refusal();
        let refuse = |reason: String| {
            Err(EngineError::OpenVolume {
                name: name.clone(),
                reason,
                in_use,
            })
        };
        if in_use {
            return refuse("it was told to be in use".into());
        }
        if books.failing_urls.contains(url) {
            return refuse("it was told to fail".into());
        }
        let size_bytes = match size_of(url) {
            Ok(size_bytes) => size_bytes,
            Err(reason) => return refuse(reason),
        };
        if opening == Opening::Create {
            books.created.push(name.clone());
        }
        let report = VolumeReport {
            size_bytes,
            block_size: 4096,
            read_only: false,
            volatile_cache: false,
            lost: false,
            notices: Vec::new(),
            reservations: None,
        };
        books.volumes.insert(name.clone(), report);
        Ok(())
    }

    fn resize_now(
        &self,
        name: &VolumeName,
        url: &str,
        size_bytes: u64,
        force: bool,
    ) -> Result<String, EngineError> {
        let mut books = self.books();
        let Some(volume) = books.volumes.get_mut(name) else {
            return Err(EngineError::VolumeNotOpen { name: name.clone() });
        };
        if !size_bytes.is_multiple_of(u64::from(volume.block_size)) {
            let reason = format!("{size_bytes} bytes is not a whole number of blocks");
            return Err(EngineError::ResizeVolume {
                name: name.clone(),
                reason,
            });
        }
        if size_bytes < volume.size_bytes && !force {
            return Err(EngineError::WouldShrink {
                name: name.clone(),
                from_bytes: volume.size_bytes,
                to_bytes: size_bytes,
            });
        }
        volume.size_bytes = size_bytes;
        let base = url.split_once('?').map_or(url, |(base, _)| base);
        Ok(format!("{base}?size={size_bytes}"))
    }
}

impl Engine for FakeEngine {
    fn open_volume<'a>(
        &'a self,
        name: &'a VolumeName,
        url: &'a str,
        opening: Opening,
    ) -> Reply<'a, ()> {
        if self.hangs(url) {
            return Box::pin(async move {
                self.while_it_hangs(url).await;
                self.open_now(name, url, opening)
            });
        }
        ready(self.open_now(name, url, opening))
    }

    fn close_volume<'a>(&'a self, name: &'a VolumeName) -> Reply<'a, ()> {
        let mut books = self.books();
        let used = books
            .applied
            .as_ref()
            .is_some_and(|state| state.exports().any(|export| export.volume == name));
        assert!(!used, "volume {name} is closed while it is served");
        books.volumes.remove(name);
        ready(Ok(()))
    }

    fn discard_reservations<'a>(&'a self, name: &'a VolumeName) -> Reply<'a, ()> {
        Box::pin(async move {
            match self.reserve(name, None).await {
                true => Ok(()),
                false => Err(EngineError::Failed {
                    reason: "it could not be stored".to_owned(),
                }),
            }
        })
    }

    fn next_to_keep(&self) -> Pin<Box<dyn Future<Output = ToKeep> + Send + '_>> {
        Box::pin(async {
            loop {
                let next = self.books().to_keep.pop_front();
                match next {
                    Some(next) => return next,
                    None => self.reserved.notified().await,
                }
            }
        })
    }

    fn resize_volume<'a>(
        &'a self,
        name: &'a VolumeName,
        url: &'a str,
        size_bytes: u64,
        force: bool,
    ) -> Reply<'a, String> {
        if self.hangs(url) {
            return Box::pin(async move {
                self.while_it_hangs(url).await;
                self.resize_now(name, url, size_bytes, force)
            });
        }
        ready(self.resize_now(name, url, size_bytes, force))
    }

    fn volume(&self, name: &VolumeName) -> Option<VolumeReport> {
        self.books().volumes.get(name).cloned()
    }

    fn reopen_volume<'a>(&'a self, _name: &'a VolumeName, _url: &'a str) -> Reply<'a, ()> {
        ready(Ok(()))
    }

    fn open_listener<'a>(
        &'a self,
        address: &'a ListenerAddress,
        _listener: &'a Portal,
    ) -> Reply<'a, ()> {
        let mut books = self.books();
        let in_use = books.takes_refusal();
        if in_use || books.failing_listeners.contains(address) {
            let reason = "it was told to fail".to_owned();
            return ready(Err(EngineError::Listen {
                address: address.clone(),
                reason,
                in_use,
            }));
        }
        assert!(
            books.listeners.insert(address.clone()),
            "{address} is opened twice"
        );
        ready(Ok(()))
    }

    fn close_listener<'a>(&'a self, address: &'a ListenerAddress) -> Reply<'a, ()> {
        self.books().listeners.remove(address);
        ready(Ok(()))
    }

    fn look_at_directory<'a>(&'a self, path: &'a str) -> Reply<'a, String> {
        let fails = self.books().failing_urls.contains(path);
        let answer = match fails {
            true => Err(EngineError::OpenDirectory {
                path: path.to_owned(),
                reason: "it was told to fail".to_owned(),
                needs_right: true,
            }),
            false => Ok("1:00".to_owned()),
        };
        Box::pin(std::future::ready(answer))
    }

    fn listeners(&self) -> Vec<ListenerReport> {
        let report = |address: &ListenerAddress| ListenerReport {
            address: Some(address.clone()),
            inherited: None,
            bound: vec![([0, 0, 0, 0], address.port()).into()],
        };
        self.books().listeners.iter().map(report).collect()
    }

    fn apply(&self, state: Arc<State>) -> Reply<'_, ()> {
        let mut books = self.books();
        if books.applies_to_fail > 0 {
            books.applies_to_fail -= 1;
            return ready(Err(EngineError::ReactorLost { id: 0 }));
        }
        let last = books.applied.as_ref().map_or(0, |applied| applied.revision);
        assert!(
            state.revision >= last,
            "revision {} is applied after {last}",
            state.revision
        );
        books.applied = Some(state);
        ready(Ok(()))
    }

    fn revoked(&self) -> Reply<'_, Vec<RevokedReport>> {
        ready(Ok(self.books().revoked.clone()))
    }

    fn connections(&self) -> Reply<'_, Vec<ConnectionReport>> {
        ready(Ok(self.books().connections.clone()))
    }

    fn disconnect(&self, id: u64) -> Reply<'_, ()> {
        let mut books = self.books();
        let before = books.connections.len();
        books.connections.retain(|connection| connection.id != id);
        let found = books.connections.len() < before;
        ready(if found {
            Ok(())
        } else {
            Err(EngineError::UnknownConnection { id })
        })
    }

    fn reactors(&self) -> Reply<'_, Vec<ReactorReport>> {
        let report = |id| ReactorReport {
            id,
            processor: Some(id),
            connections: 0,
            turns: 1000,
            busy_turns: 100,
            sleeps: 900,
            busy_ns: 1_000_000,
            spin_ns: 0,
            sleep_ns: 0,
            pause_ns: 0,
            wake_up_ns: 0,
            processor_wait_ns: 0,
            operations: 0,
            pool_used_bytes: 0,
            pool_held_bytes: 0,
            pool_limit_bytes: 1 << 20,
        };
        ready(Ok(vec![report(0), report(1)]))
    }

    fn export_latencies(
        &self,
        only: Option<ExportName>,
    ) -> Reply<'_, BTreeMap<ExportName, Latency>> {
        let mut all = self.books().export_latencies.clone();
        all.retain(|key, _| only.as_ref().is_none_or(|only| only == key));
        ready(Ok(all))
    }

    fn throttled(&self, export: &ExportName) -> Option<ThrottledReport> {
        self.books().throttled.get(export).copied()
    }

    fn connection_latencies(&self, only: Option<u64>) -> Reply<'_, BTreeMap<u64, Latency>> {
        let mut all = self.books().connection_latencies.clone();
        all.retain(|id, _| only.is_none_or(|only| only == *id));
        ready(Ok(all))
    }

    fn counters(&self) -> Reply<'_, Vec<Family>> {
        let mut turns = Family::new(
            "weir_reactor_turns_total",
            Kind::Counter,
            "Turns of the loop.",
        );
        turns.add([("reactor", "0")], 1000_u64);
        ready(Ok(vec![turns]))
    }

    fn shutdown(&self, drain: Duration) -> Reply<'_, ()> {
        self.books().shut_down = Some(drain);
        ready(Ok(()))
    }
}
