//! An image as a volume: what all reactors see of it, and how it survives that its client is cut off.
//!
//! A volume has one life of its image after another. A life ends when a write stays unanswered for too long, or when the cluster
//! says that it refuses the client or has given the lock to another. Then, on a thread of its own:
//!
//! 1. no queue submits to that life any more;
//! 2. the client is cut off: the cluster is told, by way of another client, to refuse it;
//! 3. queues answer what was left of its writes: it can no longer land;
//! 4. the image is opened on another client, which takes the lock over, and queues go on with the new life.
//!
//! Where that takes too long the volume is lost meanwhile: what comes fails, and no queue can be opened.
//!
//! A life also ends when the volume moves to a client of its own ([`crate::moving`]).

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::{
    BlockSize, CompletionSink, DeallocatedRead, FenceReply, Geometry, OperationKind, Queue,
    ResizeError, ResizeFuture, Volume, VolumeError, VolumeEvent, Watcher,
};
use weir_reactor::{Instant, Mailbox, Reactor};
use weir_volume::parts::{FailedSync, LiveGeometry, Watchers, WhenAll, check_resize, lock};

use crate::auto::{Load, Reason};
use crate::cluster::{Client, let_go};
use crate::error::{CephError, EINVAL, ENOENT, EPERM, EROFS};
use crate::host::{Claim, Opened, RbdHost, elsewhere, in_background};
use crate::lane::RbdQueue;
use crate::options::{Options, Sharing};
use crate::silence::Silence;
use crate::sizes::{Asked, Sizes};
use crate::sys::{RawImage, Shape};
use crate::threads;
use crate::usage::{LibrbdTimes, QueueTimes};
use crate::watches::{UNCHECKED, Watched};

/// The longest transfer, in bytes.
const TRANSFER_BYTES_MAX: u64 = 4 << 20;
/// Deallocation works in multiples of this, in bytes, where objects are not smaller: librbd skips what is less
/// (`rbd_discard_granularity_bytes`).
pub(crate) const DEALLOCATE_BYTES: u64 = 64 << 10;
/// What writes are best aligned to, in bytes: what OSDs on flash allocate.
const OPTIMAL_BYTES: u64 = 4 << 10;
/// The first and the longest pause between two attempts to cut a client off, or to open an image again.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// For how long operations of a kind must not have failed until one that succeeds says that their trouble is over.
const TROUBLE_TIME: Duration = Duration::from_secs(1);

/// Why a life ends whose client is to be cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// A write of the image was not answered in time.
    TimedOut,
    /// librados gave up on a write of the image.
    InDoubt,
    /// The cluster refuses the client, for whatever reason.
    Blocklisted,
    /// The lock is not the client's any more.
    LockLost,
}

impl End {
    /// Whether the image has brought it about itself, as the cluster did not answer an operation of it.
    fn is_unanswered(self) -> bool {
        matches!(self, End::TimedOut | End::InDoubt)
    }

    fn text(self) -> &'static str {
        match self {
            End::TimedOut => "a write was not answered in time",
            End::InDoubt => "librados gave up on a write that may be done still",
            End::Blocklisted => "the cluster refuses this client: it is blocklisted",
            End::LockLost => "the image's lock was lost",
        }
    }
}

/// What a queue is told.
pub(crate) enum Message {
    /// The volume's state is another one.
    Changed,
    /// Reply when all that was taken before has ended.
    Drain(Arc<WhenAll>),
}

/// One life of an image: it is open, on a client. The image is closed in the background when nobody has it any more.
pub(crate) struct Life {
    pub(crate) number: u64,
    opened: Option<Opened>,
}

impl Life {
    pub(crate) fn opened(&self) -> &Opened {
        let opened = self.opened.as_ref();
        opened.expect("it is open until it is dropped")
    }

    pub(crate) fn image(&self) -> &RawImage {
        &self.opened().image
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.opened().seat.client
    }

    /// Ends it without closing the image.
    pub(crate) fn into_opened(mut self) -> Opened {
        let opened = self.opened.take();
        opened.expect("it is open until it is dropped")
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.take() {
            in_background("weir-rbd-close", move || drop(opened));
        }
    }
}

/// Where a volume stands.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    /// The image is open.
    #[default]
    Serving,
    /// It goes to another client, and requests wait.
    Moving,
    /// A client is being cut off.
    Fencing,
    /// The image is being opened again.
    Reopening,
    /// It will not be opened again by itself.
    Gone,
    /// Nobody wants it any more.
    Closed,
}

#[derive(Default)]
pub(crate) struct State {
    /// The last life.
    pub(crate) number: u64,
    pub(crate) life: Option<Arc<Life>>,
    pub(crate) phase: Phase,
    /// A move has taken its life, and the next has not begun.
    pub(crate) drained: bool,
    /// Time by which the next life must begin, or the image is lost. Set by the first queue that sees the drain's end.
    pub(crate) moved_by: Option<Instant>,
    /// Why this life has a client of its own.
    pub(crate) own_client: Option<Reason>,
    /// Times that it was opened again, as a client was cut off or a move failed.
    pub(crate) reopened: u64,
    /// How often it has moved to a client of its own, and how often that was called off.
    pub(crate) moves: (u64, u64),
    /// It does not move again before this time, in ticks.
    pub(crate) move_not_before: u64,
    /// The last life of which the client is cut off, or being cut off.
    ended: u64,
    /// The last of which nothing can land any more.
    pub(crate) fenced: u64,
    /// Whether it belongs apart from others.
    silence: Silence,
    /// Watchers were told that it is lost.
    pub(crate) lost: bool,
    /// Watchers were told that what is unanswered may land still.
    unfenced: bool,
    trouble: Option<Trouble>,
    /// Why the last life but this one ended.
    reopened_why: Option<String>,
    /// Of an image that is gone, and may be opened again when someone asks for it.
    left: Option<Vec<String>>,
    pub(crate) claim: Option<Arc<Claim>>,
}

impl State {
    /// Returns whether it has no life, and waits for the cluster to have another.
    fn is_out_of_reach(&self) -> bool {
        match self.phase {
            Phase::Moving => self.drained,
            Phase::Fencing | Phase::Reopening => true,
            Phase::Serving | Phase::Gone | Phase::Closed => false,
        }
    }

    /// The life has ended for this reason, or none came of it. It is to be dropped when nothing is locked.
    pub(crate) fn end(&mut self, why: &str) -> Option<Arc<Life>> {
        self.own_client = None;
        self.trouble = Some(Trouble {
            text: why.to_owned(),
            of: None,
        });
        self.reopened_why = Some(why.to_owned());
        self.life.take()
    }
}

/// What is wrong with an image now.
struct Trouble {
    text: String,
    /// Operations of this kind fail so, the last one at this time; none: the image as a whole is out of reach.
    of: Option<(OperationKind, Instant)>,
}

/// What is known of an open image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeReport {
    /// Its URL.
    pub url: String,
    /// The image's name, as [`crate::ImageName`] is written.
    pub image: String,
    /// What it is doing: `serving`, `moving`, `fencing`, `reopening`, `gone` or `closed`.
    pub phase: &'static str,
    /// The address of the client that serves it, while one does.
    pub client: Option<String>,
    /// Number of times that it was opened again, because a client was cut off or a move failed.
    pub reopened: u64,
    /// Why it was opened again the last time.
    pub reopened_why: Option<String>,
    /// Why it has a client of its own now, where it moved to one.
    pub own_client: Option<Reason>,
    /// How often it has moved to a client of its own.
    pub moves: u64,
    /// How often that was called off.
    pub moves_called_off: u64,
    /// Operations that were answered, or given up, while librbd has their buffers still.
    pub orphans: u32,
    /// What is wrong with it now: it is out of reach, operations of some kind fail, or its watch is lost or not looked
    /// at.
    pub trouble: Option<String>,
    /// How long librbd took.
    pub times: LibrbdTimes,
}

/// What all queues of a volume have in common.
pub(crate) struct Shared {
    pub(crate) host: Arc<RbdHost>,
    pub(crate) options: Options,
    pub(crate) name: String,
    pub(crate) read_only: bool,
    /// Which volume of this process it is.
    pub(crate) id: u64,
    pub(crate) geometry: LiveGeometry,
    watchers: Watchers,
    /// Of a volume with a volatile cache.
    pub(crate) failed_sync: FailedSync,
    mailboxes: Mutex<Vec<Arc<Mailbox<Message>>>>,
    pub(crate) state: Mutex<State>,
    /// Held while it moves, and while it is resized.
    pub(crate) changing: Mutex<()>,
    /// Held while watchers are told that the image is lost or back, so that they hear it in the order in which it came about. Taken before `state`.
    pub(crate) telling: Mutex<()>,
    /// Operations that were answered while librbd has their buffers.
    pub(crate) orphans: AtomicU32,
    /// How long librbd took, by queue; and of the queues that are gone.
    times: Mutex<(Vec<Arc<QueueTimes>>, LibrbdTimes)>,
    /// Of which kind the operations are whose trouble is noted; see [`mark_of`].
    troubled: AtomicU8,
    /// What checks have found of its watch.
    pub(crate) watched: Mutex<Watched>,
    /// There are none, as too many images of its client are silent.
    pub(crate) unchecked: AtomicBool,
    /// Something is about to ask for the image's size.
    looking: AtomicBool,
    /// Held while an answer to that is taken, and never while one is waited for.
    sizes: Mutex<Sizes>,
    tail_bytes: u64,
    /// What the image is called among all that there ever were.
    image_id: String,
}

/// How many volumes there have been in this process.
static VOLUMES: AtomicU64 = AtomicU64::new(0);

/// An image of a Ceph cluster.
///
/// Dropping it, when no queue of it is left, closes the image and frees its lock.
pub struct RbdVolume {
    shared: Arc<Shared>,
}

impl RbdVolume {
    pub(crate) fn open(
        host: &Arc<RbdHost>,
        options: Options,
        read_only: bool,
        name: String,
    ) -> Result<Arc<Self>, CephError> {
        let read_only = read_only || options.name.snapshot.is_some();
        let opened = host.attach_first(&options, read_only)?;
        let geometry = geometry_of(&opened.shape, &options, read_only)?;
        let tail_bytes = opened.shape.bytes % u64::from(geometry.block_size.bytes());
        let shared = Arc::new(Shared {
            host: Arc::clone(host),
            options,
            name,
            read_only,
            id: VOLUMES.fetch_add(1, Ordering::Relaxed),
            geometry: LiveGeometry::new(geometry),
            watchers: Watchers::default(),
            failed_sync: FailedSync::default(),
            mailboxes: Mutex::default(),
            state: Mutex::new(State {
                claim: opened.claim.clone(),
                ..State::default()
            }),
            changing: Mutex::default(),
            telling: Mutex::default(),
            orphans: AtomicU32::new(0),
            times: Mutex::default(),
            troubled: AtomicU8::new(0),
            watched: Mutex::default(),
            unchecked: AtomicBool::new(false),
            looking: AtomicBool::new(false),
            sizes: Mutex::default(),
            tail_bytes,
            image_id: opened.image.id(),
        });
        shared.begin_life(opened, |_| ());
        Ok(Arc::new(RbdVolume { shared }))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What its user should know.
    pub(crate) fn notices(&self) -> Vec<String> {
        let tail = self.shared.tail_bytes;
        let tail = (tail > 0).then(|| {
            let block = self.shared.geometry.get().block_size.bytes();
            format!("the last {tail} bytes of the image are not a whole block of {block} bytes, and out of reach")
        });
        let is_auto = self.shared.options.sharing == Sharing::Auto;
        let stays = (is_auto && self.shared.has_volatile_cache()).then(|| {
            "a volume whose writes end before they are durable does not move to a client of its own: with this cache, bdevs_per_cluster=auto is as 32; bdevs_per_cluster=1 gives it one from the start".to_owned()
        });
        tail.into_iter().chain(stays).collect()
    }
}

impl Drop for RbdVolume {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// What is deallocated in: of each object that it is on, [`DEALLOCATE_BYTES`].
fn deallocate_bytes(shape: &Shape) -> u64 {
    let of_an_object = DEALLOCATE_BYTES.min(shape.object_bytes);
    if shape.stripe_unit_bytes >= of_an_object {
        return of_an_object;
    }
    // Stripe units are powers of two, as parts of an object: so many of them are of one object.
    of_an_object * shape.stripe_count.max(1)
}

fn geometry_of(shape: &Shape, options: &Options, read_only: bool) -> Result<Geometry, CephError> {
    let fits = |size: BlockSize| shape.bytes.is_multiple_of(u64::from(size.bytes()));
    // A block on two objects is written in two writes.
    let is_whole = |size: BlockSize| shape.stripe_unit_bytes >= u64::from(size.bytes());
    let is_large = fits(BlockSize::B4096) && is_whole(BlockSize::B4096);
    let usual = if is_large {
        BlockSize::B4096
    } else {
        BlockSize::B512
    };
    let block_size = options.block_size.unwrap_or(usual);
    let refused = |reason| {
        let action = format!("cannot open image {}", options.name);
        Err(CephError::other(action, reason))
    };
    if !is_whole(block_size) {
        return refused(format!(
            "its stripe unit of {} bytes is less than a block of {}, which would lie on more than one object; without block_size= it has blocks of 512 bytes where these fit",
            shape.stripe_unit_bytes,
            block_size.bytes()
        ));
    }
    let shift = block_size.shift();
    if shape.bytes >> shift == 0 {
        return refused(format!(
            "its {} bytes are less than a block of {}",
            shape.bytes,
            block_size.bytes()
        ));
    }
    let volatile_cache = options.cache.is_volatile();
    Ok(Geometry {
        generation: 1,
        block_size,
        blocks: shape.bytes >> shift,
        transfer_blocks_max: (TRANSFER_BYTES_MAX >> shift) as u32,
        transfer_blocks_optimal: (OPTIMAL_BYTES >> shift).max(1) as u32,
        memory_alignment: 1,
        deallocate_blocks: u32::try_from((deallocate_bytes(shape) >> shift).max(1))
            .unwrap_or(u32::MAX),
        deallocated_read: DeallocatedRead::Zeroes,
        volatile_cache,
        read_only,
        // A write may cross the edge of an object anywhere, and each object is written by itself.
        atomic_blocks: 1,
        atomic_blocks_power_fail: 1,
        compare_write_blocks: match (block_size, volatile_cache) {
            (BlockSize::B512, false) => 1,
            _ => 0,
        },
    })
}

impl Shared {
    fn life_of(self: &Arc<Self>, mut opened: Opened, number: u64) -> Arc<Life> {
        let shared = Arc::downgrade(self);
        let watched = opened.image.watch(Box::new(move || {
            if let Some(shared) = shared.upgrade() {
                shared.look_soon();
            }
        }));
        if let Err(errno) = watched {
            tracing::warn!(volume = %self.name, errno, "the image cannot be watched: that it is resized elsewhere will not be seen");
        }
        Arc::new(Life {
            number,
            opened: Some(opened),
        })
    }

    /// Looks at the size in the background, unless something is about to.
    pub(crate) fn look_soon(self: &Arc<Self>) {
        if !self.looking.swap(true, Ordering::AcqRel) {
            let shared = Arc::clone(self);
            in_background("weir-rbd-look", move || shared.look_at_size());
        }
    }

    /// Asks the image how long it is, and tells who watches where that is new. Blocks.
    pub(crate) fn look_at_size(&self) {
        // What changes from now on asks again.
        self.looking.store(false, Ordering::Release);
        let life = lock(&self.state).life.clone();
        let Some(life) = life else { return };
        let asked = lock(&self.sizes).ask(life.number);
        match life.image().bytes() {
            Ok(bytes) => self.set_bytes(asked, bytes),
            Err(errno) => {
                tracing::warn!(volume = %self.name, errno, "the size of the image cannot be learnt");
            }
        }
    }

    fn set_bytes(&self, asked: Asked, bytes: u64) {
        let before = self.geometry.get().length_bytes();
        if self.settle(asked, bytes) {
            let now = self.geometry.get().length_bytes();
            tracing::info!(volume = %self.name, before, now, "resized, in bytes");
            self.watchers.tell(VolumeEvent::Resized);
        }
    }

    /// Takes an answer to how long the image is, if it counts; whether that is new.
    fn settle(&self, asked: Asked, bytes: u64) -> bool {
        let shift = self.geometry.get().block_size.shift();
        let mut sizes = lock(&self.sizes);
        let blocks = sizes.settle(asked, bytes >> shift);
        blocks.is_some_and(|blocks| self.geometry.set_blocks(blocks))
    }

    /// Where a new queue counts how long librbd takes.
    pub(crate) fn new_times(&self) -> Arc<QueueTimes> {
        let times = Arc::default();
        lock(&self.times).0.push(Arc::clone(&times));
        times
    }

    /// A queue is gone.
    pub(crate) fn retire_times(&self, gone: &Arc<QueueTimes>) {
        let (queues, past) = &mut *lock(&self.times);
        queues.retain(|times| !Arc::ptr_eq(times, gone));
        past.add(&mut gone.read());
    }

    /// Whether its client may have what is not durable, though it was answered.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        self.options.cache.is_volatile() && !self.read_only
    }

    /// Its life, while it serves.
    pub(crate) fn serving(&self) -> Option<Arc<Life>> {
        let state = lock(&self.state);
        state.life.clone().filter(|_| state.phase == Phase::Serving)
    }

    /// The client that serves it, while it serves.
    pub(crate) fn client(&self) -> Option<Arc<Client>> {
        self.serving().map(|life| Arc::clone(life.client()))
    }

    /// What it has done, all in all.
    pub(crate) fn load(&self) -> Load {
        self.times().load()
    }

    fn times(&self) -> LibrbdTimes {
        let times = lock(&self.times);
        let mut all = times.1;
        for queue in &times.0 {
            all.add(&mut queue.read());
        }
        all
    }

    pub(crate) fn report(&self) -> VolumeReport {
        let times = self.times();
        let state = lock(&self.state);
        let trouble = state.trouble.as_ref().map(|trouble| trouble.text.as_str());
        let unwatched = lock(&self.watched).trouble(state.number);
        let is_unchecked = self.unchecked.load(Ordering::Relaxed);
        let unwatched = unwatched.or(is_unchecked.then_some(UNCHECKED));
        VolumeReport {
            url: self.name.clone(),
            image: self.options.name.to_string(),
            phase: match state.phase {
                Phase::Serving => "serving",
                Phase::Moving => "moving",
                Phase::Fencing => "fencing",
                Phase::Reopening => "reopening",
                Phase::Gone => "gone",
                Phase::Closed => "closed",
            },
            client: state
                .life
                .as_ref()
                .map(|life| life.client().address.clone()),
            reopened: state.reopened,
            reopened_why: state.reopened_why.clone(),
            own_client: state.own_client.clone(),
            moves: state.moves.0,
            moves_called_off: state.moves.1,
            orphans: self.orphans.load(Ordering::Relaxed),
            trouble: trouble.or(unwatched).map(str::to_owned),
            times,
        }
    }

    fn post(&self, message: impl Fn() -> Message) {
        let mailboxes = lock(&self.mailboxes).clone();
        mailboxes.iter().for_each(|mailbox| mailbox.post(message()));
    }

    /// Has queues look at the state.
    pub(crate) fn changed(&self) {
        self.post(|| Message::Changed);
    }

    /// Closes the image as soon as what is in flight has ended.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed {
            return;
        }
        state.phase = Phase::Closed;
        let (life, claim) = (state.life.take(), state.claim.take());
        drop(state);
        self.changed();
        drop((life, claim));
    }

    /// Ends a life whose writes may not be answered, or are refused; nothing where another has begun already. What a volume that is
    /// closed left in doubt is fenced too.
    pub(crate) fn end_life(self: &Arc<Self>, life: &Arc<Life>, end: End) {
        let number = life.number;
        let mut state = lock(&self.state);
        if state.number != number || state.ended == number {
            return;
        }
        match state.phase {
            // A move ends where it is.
            Phase::Serving | Phase::Moving => state.phase = Phase::Fencing,
            Phase::Closed => {}
            Phase::Fencing | Phase::Reopening | Phase::Gone => return,
        }
        state.ended = number;
        let why = end.text();
        let own = state.end(why);
        drop(state);
        drop(own);
        tracing::error!(
            volume = %self.name, client = %life.client().address, why,
            "the image's client is cut off"
        );
        self.changed();
        let (shared, life) = (Arc::clone(self), Arc::clone(life));
        in_background("weir-rbd-fence", move || shared.recover(life, end));
    }

    /// Cuts the client off, then opens the image again. Blocks for as long as that takes.
    fn recover(self: &Arc<Self>, life: Arc<Life>, end: End) {
        let client = Arc::clone(life.client());
        if end.is_unanswered() {
            lock(&client.silent).insert(self.id);
        }
        let (unanswered, now) = (end.is_unanswered(), threads::now());
        let io_timeout = self.options.io_timeout;
        if lock(&self.state).silence.ended(unanswered, now, io_timeout) {
            tracing::warn!(volume = %self.name, "the cluster did not answer the image again: from now on it has no clients that others share");
        }
        let mut pause = RETRY.0;
        while let Err(error) = client.cut_off() {
            self.note(&format!("the client cannot be cut off yet: {error}"));
            wait(&mut pause);
        }
        lock(&self.state).fenced = life.number;
        self.changed();
        // Not before: an image that is closed gives up its lock, and another would write while what is in doubt may land still.
        drop(life);
        tracing::warn!(volume = %self.name, client = %client.address, "the client is cut off: what it left unanswered can no longer land");
        let mut state = lock(&self.state);
        let goes_on = state.phase != Phase::Closed;
        if goes_on {
            state.phase = Phase::Reopening;
        }
        drop(state);
        self.say_fenced();
        if !goes_on {
            return;
        }
        if self.has_volatile_cache() {
            self.give_up(&self.cache_lost(), None);
            return;
        }
        let former = vec![client.address.clone()];
        // Who waits until little is left of clients that were cut off keeps none of them.
        let_go(client);
        self.open_again(&former);
    }

    /// Refuses an image that has the name of the one that was served, and is another: hosts know what was in that one.
    pub(crate) fn same(&self, opened: Opened) -> Result<Opened, CephError> {
        if opened.image.id() == self.image_id {
            return Ok(opened);
        }
        Err(CephError::Failed {
            action: format!("cannot go on with {}", self.options.name),
            reason: "the image that has its name is another one than it was; to serve that, remove the volume and add it again".to_owned(),
            errno: ENOENT,
        })
    }

    fn cache_lost(&self) -> CephError {
        CephError::other(
            format!("cannot go on with {}", self.options.name),
            "its client was cut off, and with it what was written to the cache and not flushed may be lost; when its users know, remove the volume and add it again, or start the gateway again",
        )
    }

    /// Opens an image again that is gone, if it is. Blocks until it is open, or cannot be opened; where that may change by itself, it is
    /// tried on in the background.
    pub(crate) fn open_gone(self: &Arc<Self>) -> Result<(), CephError> {
        let left = {
            let mut state = lock(&self.state);
            if matches!(
                state.phase,
                Phase::Moving | Phase::Fencing | Phase::Reopening
            ) {
                let trouble = state.trouble.as_ref().map(|trouble| trouble.text.clone());
                return Err(
                    self.not_yet(trouble.unwrap_or_else(|| "that is being tried".to_owned()))
                );
            }
            if state.phase != Phase::Gone {
                return Ok(());
            }
            let Some(left) = state.left.take() else {
                return Err(self.cache_lost());
            };
            state.phase = Phase::Reopening;
            left
        };
        tracing::info!(volume = %self.name, "the image is opened again, as someone asks for it");
        let opened = self.try_open_again(&left);
        if opened.as_ref().is_err_and(|error| !error.is_final()) {
            let shared = Arc::clone(self);
            in_background("weir-rbd-reopen", move || shared.open_again(&left));
        }
        opened
    }

    fn not_yet(&self, reason: String) -> CephError {
        CephError::other(
            format!("cannot open {} again yet", self.options.name),
            reason,
        )
    }

    /// Opens the image again, until that is done, or is in vain. Blocks for as long as that takes.
    pub(crate) fn open_again(self: &Arc<Self>, former: &[String]) {
        let mut pause = RETRY.0;
        while let Err(error) = self.try_open_again(former)
            && !error.is_final()
        {
            wait(&mut pause);
        }
    }

    /// Tries once to open the image again, if someone wants it still. It is given up after an error that is final.
    fn try_open_again(self: &Arc<Self>, former: &[String]) -> Result<(), CephError> {
        // Kept until the image is open, or is not going to be, also where the volume is closed meanwhile: nobody else in this process opens it
        // before that, who would take the lock of this client for that of an earlier life.
        let (claim, apart) = {
            let state = lock(&self.state);
            if state.phase == Phase::Closed {
                return Ok(());
            }
            (state.claim.clone(), state.silence.is_apart())
        };
        let (host, options) = (&self.host, &self.options);
        if let Some(why) = host.has_too_many_fenced(options, self.id, apart) {
            self.note(&why);
            return Err(self.not_yet(why));
        }
        let seat = host.group(options).seat(apart);
        let opened = seat.and_then(|seat| host.attach(seat, options, claim, Some(former)));
        match opened.and_then(|opened| self.same(opened)) {
            Ok(opened) => {
                if self.begin_life(opened, |state| state.reopened += 1) {
                    tracing::warn!(volume = %self.name, "the image is open again");
                }
                Ok(())
            }
            Err(error) => {
                if error.is_final() {
                    self.give_up(&error, Some(former.to_vec()));
                } else {
                    self.note(&format!("it cannot be opened again yet: {error}"));
                }
                Err(error)
            }
        }
    }

    /// Notes why the image is out of reach; in the log where it is new.
    pub(crate) fn note(&self, trouble: &str) {
        self.set_trouble(&mut lock(&self.state), trouble.to_owned(), None);
    }

    fn set_trouble(&self, state: &mut State, text: String, of: Option<(OperationKind, Instant)>) {
        let known = state.trouble.as_ref();
        if known.is_none_or(|known| known.text != text) {
            tracing::warn!(volume = %self.name, "{text}");
        }
        state.trouble = Some(Trouble { text, of });
    }

    /// An operation failed, for a reason that is the cluster's. In the log where it is new.
    pub(crate) fn failed(&self, kind: OperationKind, errno: i32, now: Instant) {
        let (id, name) = (&self.options.id, &self.options.name);
        let error = CephError::new(format!("{kind:?} of {name} failed"), id, errno);
        let text = error.to_string();
        let mut state = lock(&self.state);
        if state.lost || !matches!(state.phase, Phase::Serving | Phase::Moving) {
            // Why the image is out of reach says more.
            return;
        }
        self.set_trouble(&mut state, text, Some((kind, now)));
        self.troubled.store(mark_of(kind), Ordering::Relaxed);
    }

    /// An operation succeeded. Where such had failed until a while ago, their trouble is over.
    pub(crate) fn succeeded(&self, kind: OperationKind, now: Instant) {
        if self.troubled.load(Ordering::Relaxed) != mark_of(kind) {
            return;
        }
        let mut state = lock(&self.state);
        let over = |trouble: &mut Trouble| {
            trouble
                .of
                .is_some_and(|(of, at)| of == kind && now.since(at) >= TROUBLE_TIME)
        };
        if state.trouble.take_if(over).is_some() {
            self.troubled.store(0, Ordering::Relaxed);
            tracing::info!(volume = %self.name, "{kind:?} succeeds again");
        }
    }

    /// Has queues go on with an image that was opened, and notes why; no where nobody wants it any more.
    pub(crate) fn begin_life(
        self: &Arc<Self>,
        opened: Opened,
        note: impl FnOnce(&mut State),
    ) -> bool {
        let number = lock(&self.state).number + 1;
        let bytes = opened.shape.bytes;
        let life = self.life_of(opened, number);
        let asked = lock(&self.sizes).ask(number);
        self.set_bytes(asked, bytes);
        let now = threads::now();
        let telling = lock(&self.telling);
        let mut state = lock(&self.state);
        if state.phase == Phase::Closed {
            return false;
        }
        state.phase = Phase::Serving;
        (state.drained, state.moved_by) = (false, None);
        state.number = number;
        state.life = Some(life);
        state.silence.opened(now);
        state.trouble = None;
        note(&mut state);
        self.troubled.store(0, Ordering::Relaxed);
        let was_lost = std::mem::replace(&mut state.lost, false);
        drop(state);
        self.changed();
        if was_lost {
            self.watchers.tell(VolumeEvent::Restored);
        }
        drop(telling);
        // It may have been resized before it was watched.
        self.look_at_size();
        true
    }

    /// The image is gone; with what is left it may be opened again when someone asks for it.
    fn give_up(&self, error: &CephError, left: Option<Vec<String>>) {
        let mut text = error.to_string();
        if left.is_some() {
            text += "; when that is over, `weir volume retry` opens it again";
        }
        tracing::error!(volume = %self.name, "the image is lost: {text}");
        {
            let mut state = lock(&self.state);
            if state.phase == Phase::Closed {
                return;
            }
            state.phase = Phase::Gone;
            state.trouble = Some(Trouble { text, of: None });
            state.left = left;
        }
        self.lose(|state| state.phase == Phase::Gone);
    }

    /// The image was out of reach for too long: what comes fails until it is back.
    pub(crate) fn overdue(&self) {
        self.lose(State::is_out_of_reach);
    }

    /// Says that the image is lost, where it is.
    fn lose(&self, is_lost: impl FnOnce(&State) -> bool) {
        if lock(&self.state).lost {
            return;
        }
        let _telling = lock(&self.telling);
        let mut state = lock(&self.state);
        if state.lost || !is_lost(&state) {
            return;
        }
        state.lost = true;
        if state.phase == Phase::Moving {
            let text = format!(
                "the image is lost while it moves: the cluster has not answered for {:?}; it comes back when that does",
                self.options.fence_timeout
            );
            self.set_trouble(&mut state, text, None);
        }
        state.unfenced = state.phase == Phase::Fencing;
        let unfenced = state.unfenced;
        drop(state);
        self.changed();
        self.watchers.tell(VolumeEvent::Lost);
        if unfenced {
            self.watchers.tell(VolumeEvent::Unfenced);
        }
    }

    /// Says that the fence holds, to those who were told that it did not. Nobody is told so any more.
    fn say_fenced(&self) {
        let _telling = lock(&self.telling);
        let unfenced = std::mem::take(&mut lock(&self.state).unfenced);
        if unfenced {
            self.watchers.tell(VolumeEvent::Fenced);
        }
    }
}

/// How [`Shared::troubled`] says of which kind operations are. 0 is none.
fn mark_of(kind: OperationKind) -> u8 {
    kind as u8 + 1
}

/// Waits between two attempts, each time twice as long as before.
fn wait(pause: &mut Duration) {
    std::thread::sleep(*pause);
    *pause = (*pause * 2).min(RETRY.1);
}

impl RbdVolume {
    /// Blocks until the cluster has answered.
    fn resize_now(&self, blocks: u64, force: bool) -> Result<Geometry, ResizeError> {
        let shared = &self.shared;
        let geometry = self.geometry();
        check_resize(&geometry, blocks, force)?;
        let refused = |reason: String| ResizeError::Medium { reason };
        if geometry.read_only {
            return Err(refused("the image is open read-only".to_owned()));
        }
        let _changing = lock(&shared.changing);
        let life = lock(&shared.state).life.clone();
        let life = life.ok_or_else(|| refused("the image is out of reach for now".to_owned()))?;
        let bytes = blocks << geometry.block_size.shift();
        if blocks < geometry.blocks {
            // Nothing is submitted behind the new end any more before it is cut off.
            let mut sizes = lock(&shared.sizes);
            sizes.shrink(life.number, blocks);
            shared.geometry.set_blocks(blocks);
        }
        let resized = life.image().resize(bytes, force);
        // It flushes, and may be what librbd told of a cached write that failed. A size that it refuses says nothing of writes.
        if let Err(errno) = &resized
            && geometry.volatile_cache
            && ![EINVAL, EROFS, EPERM].contains(errno)
        {
            shared.failed_sync.note(&shared.name, errno);
        }
        let asked = lock(&shared.sizes).resized(life.number);
        let now = life.image().bytes().unwrap_or(geometry.length_bytes());
        let was = geometry.blocks;
        shared.settle(asked, now);
        if self.geometry().blocks != was {
            shared.watchers.tell(VolumeEvent::Resized);
        }
        resized.map_err(|errno| {
            let id = &shared.options.id;
            refused(CephError::new("cannot resize the image", id, errno).to_string())
        })?;
        Ok(self.geometry())
    }
}

impl Volume for RbdVolume {
    fn geometry(&self) -> Geometry {
        self.shared.geometry.get()
    }

    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.shared.watchers.add(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let shared = &self.shared;
        {
            let state = lock(&shared.state);
            if state.lost || matches!(state.phase, Phase::Gone | Phase::Closed) {
                return Err(VolumeError::Lost);
            }
        }
        // Before it looks at the state: whoever changes that tells every mailbox that is there afterwards.
        let mailbox = Mailbox::new();
        let mut mailboxes = lock(&shared.mailboxes);
        mailboxes.retain(|mailbox| !mailbox.is_closed());
        mailboxes.push(Arc::clone(&mailbox));
        drop(mailboxes);
        Ok(Box::new(RbdQueue::new(self, reactor, depth, sink, mailbox)))
    }

    /// Waits for what is in flight; where that takes long, the client is cut off.
    fn fence(&self, reply: FenceReply) {
        let all = WhenAll::new(reply);
        self.shared.post(|| Message::Drain(Arc::clone(&all)));
    }

    /// On a thread of its own, and not one that is waited for at the end: a cluster may never answer.
    fn resize(self: Arc<Self>, _: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        let resized = elsewhere("weir-resize", move || self.resize_now(blocks, force));
        Box::pin(async move {
            let resized = resized.await;
            resized.unwrap_or_else(|reason| Err(ResizeError::Medium { reason }))
        })
    }
}
