//! Clusters, their clients and images, and what goes wrong with them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::ffi::{c_char, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) const EPERM: i64 = 1;
pub(crate) const ENOENT: i64 = 2;
pub(crate) const EBUSY: i64 = 16;
pub(crate) const EEXIST: i64 = 17;
pub(crate) const EINVAL: i64 = 22;
pub(crate) const ENOSPC: i64 = 28;
pub(crate) const EROFS: i64 = 30;
pub(crate) const ERANGE: i64 = 34;
pub(crate) const EILSEQ: i64 = 84;
pub(crate) const ESHUTDOWN: i64 = 108;
pub(crate) const ETIMEDOUT: i64 = 110;

/// The monitors' `mon_osd_blocklist_default_expire`.
pub(crate) const BLOCKLIST_SECONDS: u32 = 3600;
/// As librbd's `rbd_discard_granularity_bytes`: less is skipped.
const DISCARD_BYTES: u64 = 64 << 10;
pub(crate) const OBJECT_BYTES: u64 = 4 << 20;

/// How an image's data is spread over objects: so many of them take turns, each with so much.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Striping {
    pub(crate) unit_bytes: u64,
    pub(crate) count: u64,
}

impl Default for Striping {
    fn default() -> Self {
        Striping {
            unit_bytes: OBJECT_BYTES,
            count: 1,
        }
    }
}

impl Striping {
    /// Which object has a byte of the image, and where in it.
    fn place_of(self, byte: u64) -> (u64, u64) {
        let (unit, within) = (byte / self.unit_bytes, byte % self.unit_bytes);
        let (stripe, turn) = (unit / self.count, unit % self.count);
        let stripes = OBJECT_BYTES / self.unit_bytes;
        let object = stripe / stripes * self.count + turn;
        (object, stripe % stripes * self.unit_bytes + within)
    }

    /// The parts of a range of the image of `length` bytes that a discard reaches: what of an object is no whole [`DISCARD_BYTES`] is skipped.
    fn discarded(self, from: u64, to: u64, length: u64) -> Vec<Range<usize>> {
        let piece = DISCARD_BYTES.min(self.unit_bytes);
        let pieces = (from / piece..to.div_ceil(piece)).map(|number| {
            let at = number * piece;
            (at.max(from), (at + piece).min(to))
        });
        let pieces: Vec<_> = pieces.collect();
        let mut extents = BTreeMap::<u64, (u64, u64)>::new();
        for &(from, to) in &pieces {
            let (object, at) = self.place_of(from);
            let extent = extents.entry(object).or_insert((at, at));
            // The rest of an image's last part counts as there.
            let end = if to == length {
                OBJECT_BYTES
            } else {
                at + (to - from)
            };
            *extent = (extent.0.min(at), extent.1.max(end));
        }
        let is_reached = |&(from, to): &(u64, u64)| {
            let (object, at) = self.place_of(from);
            let (start, end) = extents[&object];
            at >= start.next_multiple_of(DISCARD_BYTES)
                && at + (to - from) <= end / DISCARD_BYTES * DISCARD_BYTES
        };
        let reached = pieces.iter().filter(|piece| is_reached(piece));
        reached
            .map(|&(from, to)| from as usize..to as usize)
            .collect()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

static CLUSTERS: LazyLock<Mutex<HashMap<String, Arc<Cluster>>>> = LazyLock::new(Mutex::default);

/// The cluster of a name; made where it is new.
pub(crate) fn cluster(name: &str) -> Arc<Cluster> {
    let mut clusters = lock(&CLUSTERS);
    let found = clusters.entry(name.to_owned()).or_insert_with(|| {
        Arc::new(Cluster {
            name: name.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
            ended: AtomicU64::new(0),
            spent_ns: AtomicU64::new(0),
        })
    });
    Arc::clone(found)
}

/// Calls that can be told to hang (`connect_hangs on`), whose waiting ones can be counted (`connecting`), and that can be told to fail
/// (`connect_fails 5`).
const CALLS: [(&str, &str); 8] = [
    ("connect", "connecting"),
    ("open", "opening"),
    ("close", "closing"),
    ("acquire", "acquiring"),
    ("break", "breaking"),
    ("metadata", "signing"),
    ("resize", "resizing"),
    ("size", "sizing"),
];

#[derive(Default)]
pub(crate) struct State {
    pub(crate) images: BTreeMap<String, Arc<Image>>,
    pub(crate) trash: BTreeMap<String, (String, Arc<Image>)>,
    /// The pools whose numbers someone asked for: the first has number 1.
    pools: Vec<String>,
    /// For how many seconds each is refused.
    pub(crate) blocklist: HashMap<String, u32>,
    /// Calls of one of [`CALLS`] that wait, how many do, and errors with which the next ones end.
    hangs: BTreeSet<String>,
    waiting: HashMap<String, u64>,
    fails: HashMap<String, Vec<i64>>,
    /// Who asks for the watchers of an image waits; and who does of one of these, when that was answered so often.
    pub(crate) watchers_hang: bool,
    pub(crate) watchers_hang_of: Vec<(Arc<Image>, u64)>,
    /// How often they were asked for, and how long an image is.
    pub(crate) watchers_asked: u64,
    pub(crate) sizes_asked: u64,
    /// How many wait so.
    pub(crate) asking: u64,
    pub(crate) clients: u64,
    /// What the client that connected last has configured.
    configured: HashMap<String, String>,
    latency: Duration,
    /// What each operation takes of a processor, on its client's thread.
    work: Duration,
    hung: HashSet<Class>,
    /// The same of one image.
    hung_images: Vec<(Class, Arc<Image>)>,
    held: Vec<(Arc<Client>, Op)>,
    rules: Vec<Rule>,
    pub(crate) monitors_down: bool,
    /// Values of `ceph config` for clients.
    pub(crate) config: HashMap<String, String>,
    pub(crate) key_refused: bool,
    full: bool,
    /// A file of commands is being read.
    followed: bool,
    performed: HashMap<Class, u64>,
}

impl State {
    /// Number of calls of a kind that hang.
    pub(crate) fn waiting(&self, call: &str) -> u64 {
        self.waiting.get(call).copied().unwrap_or(0)
    }

    fn image(&self, name: &str) -> Result<Arc<Image>, i64> {
        self.images.get(name).cloned().ok_or(ENOENT)
    }

    /// A pool's number; it has one from the first question on.
    pub(crate) fn number_of(&mut self, pool: &str) -> i64 {
        let known = self.pools.iter().position(|known| known == pool);
        let at = known.unwrap_or_else(|| {
            self.pools.push(pool.to_owned());
            self.pools.len() - 1
        });
        at as i64 + 1
    }

    /// The pool with a number.
    pub(crate) fn pool_of(&self, number: i64) -> Option<String> {
        let at = usize::try_from(number).ok()?.checked_sub(1)?;
        self.pools.get(at).cloned()
    }
}

pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Condvar,
    /// Operations that nothing went wrong with, and nanoseconds from when they came to when their callers were told.
    ended: AtomicU64,
    spent_ns: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Read,
    Write,
    Flush,
}

struct Rule {
    class: Class,
    left: u64,
    action: Action,
}

#[derive(Clone, Copy)]
enum Action {
    /// It ends with this, and nothing is done.
    Fail(i64),
    /// It is done at once, and ends so much later.
    Late(Duration),
    /// It ends with `ETIMEDOUT`, and is done so much later.
    DoneLater(Duration),
}

/// What is called when an image changes: function and argument, which its watcher keeps until it ends the watch.
pub(crate) type Watch = (unsafe extern "C" fn(*mut c_void), usize);

#[derive(Default)]
pub(crate) struct Image {
    pub(crate) data: Mutex<Vec<u8>>,
    pub(crate) metadata: Mutex<BTreeMap<String, String>>,
    pub(crate) owner: Mutex<Option<Owner>>,
    /// Clients that have it open for writing.
    pub(crate) watchers: Mutex<Vec<String>>,
    pub(crate) watches: Mutex<BTreeMap<u64, Watch>>,
    /// Of both, those that the cluster has lost.
    pub(crate) lost_watchers: Mutex<Vec<String>>,
    pub(crate) lost_watches: Mutex<BTreeMap<u64, Watch>>,
    /// How often its watchers were told.
    pub(crate) watchers_asked: AtomicU64,
    pub(crate) snapshots: Mutex<BTreeMap<String, Vec<u8>>>,
    pub(crate) features: AtomicU64,
    pub(crate) id: u64,
    pub(crate) striping: Mutex<Striping>,
    /// The pool of its data.
    pub(crate) data_pool: Mutex<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) address: String,
    /// Whether it was asked for, and is not given up when another asks.
    pub(crate) kept: bool,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

pub(crate) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Image {
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        let image = Image {
            id: next_number(),
            ..Image::default()
        };
        lock(&image.data).resize(bytes as usize, 0);
        // Layering and exclusive-lock.
        image.features.store(5, Ordering::Relaxed);
        Arc::new(image)
    }

    pub(crate) fn resize(&self, bytes: u64) {
        lock(&self.data).resize(bytes as usize, 0);
        // Held while they are called, so that a watch has ended when ending it returns.
        let watches = lock(&self.watches);
        for &(function, argument) in watches.values() {
            // SAFETY: its watcher keeps the argument until it has ended the watch.
            unsafe { function(argument as *mut c_void) };
        }
    }
}

/// A client: its thread ends operations when they are due.
pub(crate) struct Client {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) address: String,
    pub(crate) configuration: HashMap<String, String>,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    /// In the order in which they are due, where all take the same time; others are found by looking through.
    due: VecDeque<(Instant, Step)>,
    ended: bool,
}

enum Step {
    /// With when it came.
    Perform(Op, Instant),
    End(Completion, i64),
    /// Do it, and tell nobody.
    Quietly(Op),
}

/// An image as a client has it open.
pub(crate) struct Open {
    pub(crate) image: Arc<Image>,
    pub(crate) client: Arc<Client>,
    pub(crate) read_only: bool,
    /// What a snapshot holds.
    pub(crate) snapshot: Option<Vec<u8>>,
    /// The lock was asked for by name: it is not taken by itself any more.
    pub(crate) asked: AtomicBool,
}

/// Memory of the caller's, which it lends until the completion.
pub(crate) type Pieces = Vec<(usize, usize)>;

pub(crate) enum What {
    Read(Pieces),
    Write(Pieces),
    Zero(u64),
    Discard(u64),
    CompareWrite {
        length: usize,
        compare: usize,
        data: usize,
        mismatch: usize,
    },
    Flush,
}

pub(crate) struct Op {
    pub(crate) open: Arc<Open>,
    pub(crate) offset: u64,
    pub(crate) what: What,
    pub(crate) completion: Completion,
}

/// Who is told.
#[derive(Clone, Copy)]
pub(crate) struct Completion(pub(crate) usize);

impl What {
    fn class(&self) -> Class {
        match self {
            What::Read(_) => Class::Read,
            What::Flush => Class::Flush,
            _ => Class::Write,
        }
    }
}

impl Client {
    pub(crate) fn connect(
        cluster: &Arc<Cluster>,
        configuration: HashMap<String, String>,
    ) -> Arc<Self> {
        let number = next_number();
        let mut state = lock(&cluster.state);
        state.clients += 1;
        state.configured.clone_from(&configuration);
        drop(state);
        let client = Arc::new(Client {
            cluster: Arc::clone(cluster),
            address: format!("127.0.0.1:0/{number}"),
            configuration,
            queue: Mutex::default(),
            arrived: Condvar::new(),
        });
        let served = Arc::clone(&client);
        let thread = std::thread::Builder::new().name("fake-librbd".to_owned());
        thread
            .spawn(move || served.serve())
            .expect("a thread can be had");
        client
    }

    pub(crate) fn end(&self) {
        lock(&self.cluster.state).clients -= 1;
        lock(&self.queue).ended = true;
        self.arrived.notify_all();
    }

    pub(crate) fn is_blocklisted(&self) -> bool {
        let state = lock(&self.cluster.state);
        state.blocklist.contains_key(&self.address)
    }

    /// Takes an operation, as the cluster was told to.
    pub(crate) fn start(self: &Arc<Self>, op: Op) {
        let class = op.what.class();
        let mut state = lock(&self.cluster.state);
        let image = &op.open.image;
        let hangs = |(of, hung): &(Class, Arc<Image>)| *of == class && Arc::ptr_eq(hung, image);
        if state.hung.contains(&class) || state.hung_images.iter().any(hangs) {
            state.held.push((Arc::clone(self), op));
            return;
        }
        let now = Instant::now();
        let due = now + state.latency;
        let rule = state
            .rules
            .iter_mut()
            .find(|rule| rule.class == class && rule.left > 0);
        let action = rule.map(|rule| {
            rule.left -= 1;
            rule.action
        });
        drop(state);
        match action {
            None => self.put(due, Step::Perform(op, now)),
            Some(Action::Fail(errno)) => self.put(due, Step::End(op.completion, -errno)),
            Some(Action::Late(by)) => {
                let (completion, result) = (op.completion, self.perform(&op));
                self.put(due + by, Step::End(completion, result));
            }
            Some(Action::DoneLater(by)) => {
                self.put(due, Step::End(op.completion, -ETIMEDOUT));
                // What it is to write is copied: the caller has its memory back.
                self.put(due + by, Step::Quietly(op.copied()));
            }
        }
    }

    fn put(&self, due: Instant, step: Step) {
        let mut queue = lock(&self.queue);
        if queue.ended {
            // Its thread is gone, or about to be: what hung until now is done by whoever lets it go.
            drop(queue);
            return self.take(step);
        }
        let at = queue
            .due
            .iter()
            .rposition(|(other, _)| *other <= due)
            .map_or(0, |at| at + 1);
        queue.due.insert(at, (due, step));
        drop(queue);
        self.arrived.notify_one();
    }

    fn serve(&self) {
        let mut queue = lock(&self.queue);
        loop {
            let now = Instant::now();
            match queue.due.front() {
                Some(&(due, _)) if due <= now => {
                    let Some((_, step)) = queue.due.pop_front() else {
                        continue;
                    };
                    drop(queue);
                    self.take(step);
                    queue = lock(&self.queue);
                }
                Some(&(due, _)) => {
                    let waited = self.arrived.wait_timeout(queue, due - now);
                    queue = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None if queue.ended => return,
                None => {
                    let waited = self.arrived.wait(queue);
                    queue = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn take(&self, step: Step) {
        match step {
            Step::Perform(op, came) => {
                let result = self.perform(&op);
                self.cluster.ended.fetch_add(1, Ordering::Relaxed);
                let spent = came.elapsed().as_nanos() as u64;
                self.cluster.spent_ns.fetch_add(spent, Ordering::Relaxed);
                crate::c::complete(op.completion, result);
            }
            Step::End(completion, result) => crate::c::complete(completion, result),
            Step::Quietly(op) => {
                self.perform(&op);
                op.free_copies();
            }
        }
    }

    /// Does an operation; its result as librbd has it.
    fn perform(&self, op: &Op) -> i64 {
        let class = op.what.class();
        let mut state = lock(&self.cluster.state);
        if state.blocklist.contains_key(&self.address) {
            return -ESHUTDOWN;
        }
        if state.full && class == Class::Write {
            return -ENOSPC;
        }
        *state.performed.entry(class).or_default() += 1;
        let work = state.work;
        drop(state);
        let end = Instant::now() + work;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        if class == Class::Write {
            if op.open.read_only {
                return -EROFS;
            }
            let mut owner = lock(&op.open.image.owner);
            match &*owner {
                Some(owner) if owner.address != self.address => return -EROFS,
                Some(_) => {}
                None if op.open.asked.load(Ordering::Relaxed) => return -EROFS,
                None => {
                    *owner = Some(Owner {
                        address: self.address.clone(),
                        kept: false,
                    });
                }
            }
        }
        op.perform()
    }
}

impl Open {
    /// librbd's options: what is configured of the image wins.
    pub(crate) fn configuration(&self) -> BTreeMap<String, (String, bool)> {
        let client = self.client.configuration.iter();
        let client = client.filter(|(key, _)| key.starts_with("rbd_"));
        let mut options: BTreeMap<_, _> = client
            .map(|(key, value)| (key.clone(), (value.clone(), false)))
            .collect();
        for (key, value) in &*lock(&self.image.metadata) {
            if let Some(key) = key.strip_prefix("conf_") {
                options.insert(key.to_owned(), (value.clone(), true));
            }
        }
        options
    }
}

impl Op {
    fn perform(&self) -> i64 {
        if let (What::Read(pieces), Some(snapshot)) = (&self.what, &self.open.snapshot) {
            return read(snapshot, self.offset, pieces);
        }
        let mut data = lock(&self.open.image.data);
        let length = data.len();
        let start = (self.offset as usize).min(length);
        let end = |bytes: u64| (self.offset.saturating_add(bytes) as usize).min(length);
        match &self.what {
            What::Read(pieces) => return read(&data, self.offset, pieces),
            What::Flush => {}
            _ if self.offset as usize >= length => return -EINVAL,
            What::Write(pieces) => {
                let mut at = start;
                for &(memory, bytes) in pieces {
                    // What lies behind the end is dropped in silence, as librbd does.
                    let bytes = bytes.min(length - at);
                    // SAFETY: the caller lends this memory until the completion, and does not change it.
                    let from = unsafe { std::slice::from_raw_parts(memory as *const u8, bytes) };
                    data[at..at + bytes].copy_from_slice(from);
                    at += bytes;
                }
            }
            What::Zero(bytes) => data[start..end(*bytes)].fill(0),
            What::Discard(bytes) => {
                let striping = *lock(&self.open.image.striping);
                let to = end(*bytes) as u64;
                for part in striping.discarded(self.offset, to, length as u64) {
                    data[part].fill(0);
                }
            }
            &What::CompareWrite {
                length: bytes,
                compare,
                data: write,
                mismatch,
            } => {
                if bytes > 512 || self.offset % 512 + bytes as u64 > 512 {
                    return -EINVAL;
                }
                // SAFETY: the caller lends this memory until the completion.
                let (compare, write, mismatch) = unsafe {
                    (
                        std::slice::from_raw_parts(compare as *const u8, bytes),
                        std::slice::from_raw_parts(write as *const u8, bytes),
                        &mut *(mismatch as *mut u64),
                    )
                };
                let there = &mut data[start..start + bytes];
                if let Some(at) = there.iter().zip(compare).position(|(a, b)| a != b) {
                    *mismatch = self.offset + at as u64;
                    return -EILSEQ;
                }
                there.copy_from_slice(write);
            }
        }
        0
    }

    /// The same with memory of its own.
    fn copied(self) -> Op {
        let what = match self.what {
            What::Write(pieces) => {
                let copy = |(memory, bytes): (usize, usize)| {
                    // SAFETY: the caller lends this memory until the completion, which comes later.
                    let from = unsafe { std::slice::from_raw_parts(memory as *const u8, bytes) };
                    (
                        Box::leak(from.to_vec().into_boxed_slice()).as_ptr() as usize,
                        bytes,
                    )
                };
                What::Write(pieces.into_iter().map(copy).collect())
            }
            other => other,
        };
        Op { what, ..self }
    }

    fn free_copies(self) {
        if let What::Write(pieces) = self.what {
            for (memory, bytes) in pieces {
                let slice = std::ptr::slice_from_raw_parts_mut(memory as *mut u8, bytes);
                // SAFETY: leaked by `copied`.
                drop(unsafe { Box::from_raw(slice) });
            }
        }
    }
}

fn read(data: &[u8], offset: u64, pieces: &Pieces) -> i64 {
    let mut at = (offset as usize).min(data.len());
    let mut count = 0;
    for &(memory, bytes) in pieces {
        let bytes = bytes.min(data.len() - at);
        // SAFETY: the caller lends this memory, to be written to, until the completion.
        let into = unsafe { std::slice::from_raw_parts_mut(memory as *mut u8, bytes) };
        into.copy_from_slice(&data[at..at + bytes]);
        (at, count) = (at + bytes, count + bytes);
    }
    count as i64
}

impl Cluster {
    /// Does what is written to a file, line by line, for as long as the process lives: for those who cannot call it.
    pub(crate) fn follow(self: &Arc<Self>, file: &str) {
        const PAUSE: Duration = Duration::from_millis(5);
        if std::mem::replace(&mut lock(&self.state).followed, true) {
            return;
        }
        let (cluster, file) = (Arc::clone(self), file.to_owned());
        let mut done = 0;
        let mut read = move || {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            // What is not a whole line yet is being written.
            let whole = text.rfind('\n').map_or(0, |at| at + 1);
            for line in text[..whole].lines().skip(done) {
                cluster.command(line);
                done += 1;
            }
        };
        // What is there already is done before anyone has connected.
        read();
        let read = move || loop {
            std::thread::sleep(PAUSE);
            read();
        };
        let thread = std::thread::Builder::new().name("fake-commands".to_owned());
        thread.spawn(read).expect("a thread can be had");
    }

    /// Waits for as long as calls of a kind hang, and fails where the next one is to.
    pub(crate) fn pass(&self, call: &str) -> Result<(), i64> {
        let mut state = lock(&self.state);
        *state.waiting.entry(call.to_owned()).or_default() += 1;
        let waited = self
            .changed
            .wait_while(state, |state| state.hangs.contains(call));
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        *state.waiting.entry(call.to_owned()).or_default() -= 1;
        let fails = state.fails.get_mut(call);
        fails.and_then(Vec::pop).map_or(Ok(()), Err)
    }

    /// What goes wrong from now on, or a question. See the branches.
    pub(crate) fn command(&self, command: &str) -> i64 {
        self.try_command(command).unwrap_or_else(|errno| -errno)
    }

    fn try_command(&self, command: &str) -> Result<i64, i64> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok());
        let class = |at: usize| match words.get(at) {
            Some(&"read") => Ok(Class::Read),
            Some(&"write") => Ok(Class::Write),
            Some(&"flush") => Ok(Class::Flush),
            _ => Err(EINVAL),
        };
        let mut state = lock(&self.state);
        if let [what] = words[..]
            && let Some((call, _)) = CALLS.iter().find(|(_, waiting)| *waiting == what)
        {
            return Ok(state.waiting(call) as i64);
        }
        if let [what, value] = words[..]
            && let Some((call, verb)) = what.rsplit_once('_')
            && CALLS.iter().any(|(name, _)| *name == call)
        {
            match verb {
                "hangs" if value == "on" => drop(state.hangs.insert(call.to_owned())),
                "hangs" => drop(state.hangs.remove(call)),
                "fails" => {
                    let errno = value.parse().map_err(|_| EINVAL)?;
                    state.fails.entry(call.to_owned()).or_default().push(errno);
                }
                _ => return Err(EINVAL),
            }
            self.changed.notify_all();
            return Ok(0);
        }
        match words[..] {
            ["work_us", _] => state.work = Duration::from_micros(number(1).unwrap_or(0)),
            ["latency_us", _] => state.latency = Duration::from_micros(number(1).unwrap_or(0)),
            ["ended"] => return Ok(self.ended.load(Ordering::Relaxed) as i64),
            ["spent_ns"] => return Ok(self.spent_ns.load(Ordering::Relaxed) as i64),
            ["hang", _] => {
                state.hung.insert(class(1)?);
            }
            ["hang", _, name] => {
                let image = state.image(name)?;
                state.hung_images.push((class(1)?, image));
            }
            // What hung is done now, where its client is not refused; or fails so.
            ["release", ..] => {
                state.hung.clear();
                state.hung_images.clear();
                let held = std::mem::take(&mut state.held);
                drop(state);
                for (client, op) in held {
                    let now = Instant::now();
                    let step = match number(1) {
                        Some(errno) => Step::End(op.completion, -(errno as i64)),
                        None => Step::Perform(op, now),
                    };
                    client.put(now, step);
                }
            }
            [what @ ("fail" | "late" | "done_later"), _, value, count] => {
                let class = class(1)?;
                let (Ok(value), Ok(left)) = (value.parse(), count.parse()) else {
                    return Err(EINVAL);
                };
                let action = match what {
                    "fail" => Action::Fail(value as i64),
                    "late" => Action::Late(Duration::from_millis(value)),
                    _ => Action::DoneLater(Duration::from_millis(value)),
                };
                state.rules.push(Rule {
                    class,
                    left,
                    action,
                });
            }
            ["monitors", what] => {
                state.monitors_down = what == "down";
                self.changed.notify_all();
            }
            ["key", what] => state.key_refused = what == "refused",
            ["full", what] => state.full = what == "on",
            ["blocklist", address] => {
                state
                    .blocklist
                    .insert(address.to_owned(), BLOCKLIST_SECONDS);
            }
            ["is_blocklisted", address] => {
                return Ok(i64::from(state.blocklist.contains_key(address)));
            }
            ["blocklisted_seconds", address] => {
                return Ok(state.blocklist.get(address).copied().map_or(0, i64::from));
            }
            ["watchers_hang", what] => {
                state.watchers_hang = what == "on";
                self.changed.notify_all();
            }
            // The placement group of its header does not answer; or answers so often yet.
            ["watchers_hang", name, what] => {
                let image = state.image(name)?;
                state
                    .watchers_hang_of
                    .retain(|(hung, _)| !Arc::ptr_eq(hung, &image));
                match (what, number(2)) {
                    ("on", _) => state.watchers_hang_of.push((image, 0)),
                    ("off", _) => {}
                    (_, Some(after)) => state.watchers_hang_of.push((image, after)),
                    _ => return Err(EINVAL),
                }
                self.changed.notify_all();
            }
            ["watchers_asked"] => return Ok(state.watchers_asked as i64),
            ["watchers_asked", name] => {
                let image = state.image(name)?;
                return Ok(image.watchers_asked.load(Ordering::Relaxed) as i64);
            }
            ["asking"] => return Ok(state.asking as i64),
            ["sizes_asked"] => return Ok(state.sizes_asked as i64),
            // Those that watch the image now do so no more, until they do again.
            ["watch", name, what] => {
                let image = state.image(name)?;
                // In this order, and both at once, as where they are given up.
                let (mut watchers, mut lost) = (lock(&image.watchers), lock(&image.lost_watchers));
                let (mut watches, mut unwatched) =
                    (lock(&image.watches), lock(&image.lost_watches));
                match what {
                    "lost" => {
                        lost.append(&mut watchers);
                        unwatched.append(&mut watches);
                    }
                    _ => {
                        watchers.append(&mut lost);
                        watches.append(&mut unwatched);
                    }
                }
            }
            ["is_watched", name, address] => {
                let image = state.image(name)?;
                return Ok(i64::from(
                    lock(&image.watchers).iter().any(|of| of == address),
                ));
            }
            // As `ceph config set client`.
            ["config", key, value] => {
                state.config.insert(key.to_owned(), value.to_owned());
            }
            // As `rbd config image set` and `rbd config image rm`.
            ["configure", name, key, value] => {
                let image = state.image(name)?;
                lock(&image.metadata).insert(format!("conf_{key}"), value.to_owned());
            }
            ["unconfigure", name, key] => {
                let image = state.image(name)?;
                lock(&image.metadata).remove(&format!("conf_{key}"));
            }
            ["image", name, _] => {
                let image = Image::new(number(2).unwrap_or(0));
                let pool = name.split('/').next().unwrap_or_default();
                pool.clone_into(&mut lock(&image.data_pool));
                state.images.insert(name.to_owned(), image);
            }
            ["resize", name, _] => {
                let image = state.image(name)?;
                drop(state);
                image.resize(number(2).unwrap_or(0));
            }
            // Another client takes the lock: by force, as when it believes the holder dead.
            ["metadata", name, key, ref value @ ..] => {
                let image = state.image(name)?;
                lock(&image.metadata).insert(key.to_owned(), value.join(" "));
            }
            ["unlock", name, address] => {
                let image = state.image(name)?;
                *lock(&image.owner) = None;
                lock(&image.watchers).retain(|watcher| watcher != address);
            }
            ["lock", name, address, alive] => {
                let image = state.image(name)?;
                *lock(&image.owner) = Some(Owner {
                    address: address.to_owned(),
                    kept: true,
                });
                let mut watchers = lock(&image.watchers);
                watchers.retain(|watcher| watcher != address);
                if alive == "alive" {
                    watchers.push(address.to_owned());
                }
            }
            ["features", name, _] => {
                let image = state.image(name)?;
                image
                    .features
                    .store(number(2).unwrap_or(0), Ordering::Relaxed);
            }
            // As `rbd create --stripe-unit BYTES --stripe-count COUNT`.
            ["stripe", name, _, _] => {
                let image = state.image(name)?;
                let (unit_bytes, count) = (number(2).unwrap_or(0), number(3).unwrap_or(0));
                *lock(&image.striping) = Striping { unit_bytes, count };
            }
            ["byte", name, _] => {
                let image = state.image(name)?;
                let at = number(2).unwrap_or(0) as usize;
                let byte = lock(&image.data).get(at).copied();
                return byte.map(i64::from).ok_or(EINVAL);
            }
            ["is_locked", name] => {
                let image = state.image(name)?;
                return Ok(i64::from(lock(&image.owner).is_some()));
            }
            ["held"] => return Ok(state.held.len() as i64),
            ["clients"] => return Ok(state.clients as i64),
            ["configured", option] => {
                let value = state.configured.get(option);
                return value.and_then(|value| value.parse().ok()).ok_or(EINVAL);
            }
            ["performed", _] => {
                return Ok(state.performed.get(&class(1)?).copied().unwrap_or(0) as i64);
            }
            _ => return Err(EINVAL),
        }
        Ok(0)
    }
}

/// A C string's text.
///
/// # Safety
/// `text` is null, or points to a string that ends.
pub(crate) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    unsafe { std::ffi::CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
