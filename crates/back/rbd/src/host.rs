//! This program as a user of Ceph: who it is to images, its clients, and what it has open.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use weir_block::Volume;
use weir_reactor::linux::start_thread;
use weir_reactor::{System, oneshot};
use weir_volume::parts::lock;
use weir_volume::{Factory, OpenError, OpenRequest};

use crate::auto::{AutoLimits, Reason};
use crate::cluster::{
    Ceph, ClientReport, Credentials, Group, GroupKey, Libraries, Seat, is_same_client,
};
use crate::error::CephError;
use crate::images::Images;
use crate::looks;
use crate::moving::NotMoved;
use crate::options::{Options, Sharing};
use crate::owner;
use crate::settings;
use crate::sys::{RawImage, Shape};
use crate::volume::{RbdVolume, Shared, VolumeReport};
use crate::watches::{self, WatchLimits};

/// The scheme of the URLs of this crate's volumes.
pub const SCHEME: &str = "rbd";

/// Clients that were cut off and of which something is left, at most, before an image waits with being opened again: such as were cut off
/// for what they left unanswered of this image, and of all images. Images that are apart stop at half of these, so that
/// they do not take others' part.
pub(crate) const FENCED_OF_IMAGE_MAX: usize = 4;
const FENCED_MAX: usize = 16;
/// Time for which closing everything waits for the cluster, and pause between two looks at how many images are left.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(8);
const CLOSE_LOOK: Duration = Duration::from_millis(5);

/// Who writes to images. Kept with each image's lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The same after each start, and nobody else's at the same time. Without blanks.
    pub id: String,
    /// What people call it.
    pub name: String,
}

impl Identity {
    /// An identity that nobody had before, for a program that is not started again as the same.
    #[must_use]
    pub fn random(system: &dyn System, name: &str) -> Self {
        let mut bytes = [0; 16];
        system.random_bytes(&mut bytes);
        Identity {
            id: bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            name: name.to_owned(),
        }
    }
}

/// Does something on a thread of its own, if one can be had.
pub(crate) fn try_in_background(
    name: &str,
    work: impl FnOnce() + Send + 'static,
) -> std::io::Result<()> {
    start_thread(name, work).map(drop)
}

/// Does what may wait for the cluster on a thread of its own, which begins at once. Yields the result, or why there is none.
pub(crate) fn elsewhere<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, String>> {
    let (sender, ended) = oneshot();
    let started = try_in_background(name, move || sender.send(work()));
    async move {
        started.map_err(|error| format!("no thread can be had for it: {error}"))?;
        let ended = ended.await;
        ended.ok_or_else(|| "its thread ended without an answer; see the log".to_owned())
    }
}

/// Does what may wait for the cluster on a thread of its own, so that no cluster holds up another.
pub(crate) fn in_background(name: &str, work: impl FnOnce() + Send + 'static) {
    let slot = Arc::new(Mutex::new(Some(work)));
    let work = move || {
        let work = lock(&slot).take();
        if let Some(work) = work {
            work();
        }
    };
    if let Err(error) = try_in_background(name, work.clone()) {
        tracing::warn!(%error, name, "no thread can be had: what waits for the cluster holds up its caller");
        work();
    }
}

/// Starts a thread that takes turns for as long as one of a host's volumes wants that, unless it runs. A turn yields the pause until the next.
/// `there_is` is held while that is decided.
pub(crate) fn attend(
    host: &Arc<RbdHost>,
    there_is: fn(&RbdHost) -> &Mutex<bool>,
    name: &'static str,
    wants: fn(&Shared) -> bool,
    mut pause: Duration,
    mut turn: impl FnMut(&RbdHost, &[Arc<Shared>], Duration) -> Duration + Send + 'static,
) {
    let mut is_there = lock(there_is(host));
    if *is_there {
        return;
    }
    let host = Arc::downgrade(host);
    let started = try_in_background(name, move || {
        loop {
            std::thread::sleep(pause);
            let Some(host) = host.upgrade() else { return };
            let mut is_there = lock(there_is(&host));
            let volumes = host.open_volumes();
            if !volumes.iter().any(|volume| wants(volume)) {
                *is_there = false;
                return;
            }
            drop(is_there);
            pause = turn(&host, &volumes, pause);
        }
    });
    if let Err(error) = &started {
        tracing::warn!(%error, name, "no thread can be had: what it looks after is not looked after until another image is opened");
    }
    *is_there = started.is_ok();
}

/// Groups volumes that are served by the client that serves them.
pub(crate) fn by_client(
    volumes: &[Arc<Shared>],
    counts: impl Fn(&Shared) -> bool,
) -> BTreeMap<String, Vec<Arc<Shared>>> {
    let mut all: BTreeMap<String, Vec<Arc<Shared>>> = BTreeMap::new();
    for volume in volumes.iter().filter(|volume| counts(volume)) {
        if let Some(life) = volume.serving() {
            let of_client = all.entry(life.client().address.clone());
            of_client.or_default().push(Arc::clone(volume));
        }
    }
    all
}

/// This program as a user of Ceph.
pub struct RbdHost {
    pub(crate) ceph: Arc<Ceph>,
    pub(crate) identity: Identity,
    groups: Mutex<BTreeMap<GroupKey, Arc<Group>>>,
    open: Mutex<Vec<Weak<Shared>>>,
    /// Images that this process has open for writing, by cluster and name.
    written: Mutex<HashSet<String>>,
    /// Each image that is open, or is being closed, has this too. librbd's own close waits for the cluster.
    open_images: Arc<()>,
    pub(crate) auto_limits: AutoLimits,
    /// There is a thread that looks at shared clients, see [`attend`].
    pub(crate) looking: Mutex<bool>,
    pub(crate) watch_limits: WatchLimits,
    /// And one that looks after images that are open for writing.
    pub(crate) checking: Mutex<bool>,
}

/// An image that was opened, and what it needs, which is let go of in this order: the image is closed, which waits for the cluster, then
/// the client has a seat free, then another volume may write to the image.
pub(crate) struct Opened {
    pub(crate) image: RawImage,
    pub(crate) seat: Seat,
    /// Right of this process to write to the image; none where it only reads.
    pub(crate) claim: Option<Arc<Claim>>,
    _counted: Arc<()>,
    pub(crate) shape: Shape,
    /// Its watch was seen to be this client's, as an image's is that is open for writing.
    pub(crate) watched: bool,
}

impl Opened {
    /// Notes whether the client watches the image.
    pub(crate) fn see_watch(&mut self) {
        let own = &self.seat.client.address;
        let watchers = self.image.watchers();
        self.watched = watchers.is_ok_and(|all| all.iter().any(|of| is_same_client(of, own)));
    }

    /// Closes the image. Its seat is left.
    pub(crate) fn close(self) -> Seat {
        drop(self.image);
        self.seat
    }
}

/// That this process writes to an image, for as long as it does.
pub(crate) struct Claim {
    host: Weak<RbdHost>,
    image: String,
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(host) = self.host.upgrade() {
            lock(&host.written).remove(&self.image);
        }
    }
}

impl RbdHost {
    /// A user of Ceph that is `identity` to images. The libraries are loaded with the first volume.
    #[must_use]
    pub fn new(identity: Identity, libraries: Libraries) -> Arc<RbdHost> {
        let (auto, watch) = (AutoLimits::default(), WatchLimits::default());
        RbdHost::with_limits(identity, libraries, auto, watch)
    }

    /// The same, with other limits of when a volume gets a client of its own (`bdevs_per_cluster=auto`), and of when an image's watch counts
    /// as lost, than those of users.
    #[must_use]
    pub fn with_limits(
        identity: Identity,
        libraries: Libraries,
        auto_limits: AutoLimits,
        watch_limits: WatchLimits,
    ) -> Arc<RbdHost> {
        Arc::new(RbdHost {
            ceph: Ceph::new(libraries),
            identity,
            groups: Mutex::default(),
            open: Mutex::default(),
            written: Mutex::default(),
            open_images: Arc::default(),
            auto_limits,
            looking: Mutex::default(),
            watch_limits,
            checking: Mutex::default(),
        })
    }

    /// Who it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Opens `rbd:` volumes for a [`weir_volume::Registry`], under [`SCHEME`].
    #[must_use]
    pub fn factory(self: &Arc<Self>) -> Factory {
        let host = Arc::clone(self);
        Arc::new(move |request: OpenRequest| {
            let host = Arc::clone(&host);
            Box::pin(async move { host.open_url(request).await })
        })
    }

    async fn open_url(self: Arc<Self>, request: OpenRequest) -> Result<Arc<dyn Volume>, OpenError> {
        let url = request.url.to_string();
        let options = Options::from_url(&request.url)?;
        let name = url.clone();
        let opened = elsewhere("weir-rbd-open", move || {
            self.open(options, request.access.read_only, name)
        });
        let opened = opened.await;
        let opened =
            opened.unwrap_or_else(|reason| Err(CephError::other("cannot open it", reason)));
        let volume = opened.map_err(|error| {
            let reason = error.to_string();
            match error {
                CephError::Locked { .. } => OpenError::InUse { url, reason },
                _ => OpenError::Medium { url, reason },
            }
        })?;
        for text in volume.notices() {
            request.registry.notice(&request.url, text);
        }
        Ok(volume)
    }

    /// Opens an image. Blocks until the cluster has answered. `name` is what it is called in messages.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn open(
        self: &Arc<Self>,
        options: Options,
        read_only: bool,
        name: String,
    ) -> Result<Arc<RbdVolume>, CephError> {
        let is_auto = options.sharing == Sharing::Auto;
        let volume = RbdVolume::open(self, options, read_only, name)?;
        let mut open = lock(&self.open);
        open.retain(|volume| volume.strong_count() > 0);
        open.push(Arc::downgrade(volume.shared()));
        drop(open);
        if is_auto {
            looks::begin(self);
        }
        if !volume.shared().read_only {
            watches::begin(self);
        }
        Ok(volume)
    }

    /// The images that are open.
    pub(crate) fn open_volumes(&self) -> Vec<Arc<Shared>> {
        lock(&self.open).iter().filter_map(Weak::upgrade).collect()
    }

    /// Clients that are a volume's own, and those that are about to be.
    pub(crate) fn own_clients(&self) -> usize {
        let groups: Vec<_> = lock(&self.groups).values().cloned().collect();
        // For a moment it is both.
        let moving = |group: &Group| usize::from(group.moving.load(Ordering::Acquire));
        groups.iter().map(|group| group.own() + moving(group)).sum()
    }

    /// Gives the volume with this URL a client of its own, or another one, as measurement does for `bdevs_per_cluster=auto`: its
    /// requests wait meanwhile, and none fails. Blocks until that is done, or has been called off.
    ///
    /// # Errors
    /// [`NotMoved`]: the volume goes on as before, unless that says otherwise.
    pub fn give_own_client(&self, url: &str) -> Result<(), NotMoved> {
        let open = self.open_volumes();
        let volume = open.iter().find(|shared| shared.name == url);
        let volume = volume.ok_or(NotMoved::NotServing)?;
        volume.move_to_own_client(Reason::Asked)
    }

    /// Opens the images with this URL again that are given up, as when another gateway has taken the lock. Others are left alone.
    ///
    /// # Errors
    /// [`CephError`]: it is out of reach still. Where that may change by itself it is tried on.
    pub async fn open_gone(&self, url: &str) -> Result<(), CephError> {
        let all = self.open_volumes();
        for shared in all.into_iter().filter(|shared| shared.name == url) {
            let opened = elsewhere("weir-rbd-retry", move || shared.open_gone());
            let opened = opened.await;
            opened.unwrap_or_else(|reason| {
                let action = format!("cannot open {url} again");
                Err(CephError::other(action, reason))
            })?;
        }
        Ok(())
    }

    pub(crate) fn group(&self, options: &Options) -> Arc<Group> {
        let key = GroupKey::of(options);
        let mut groups = lock(&self.groups);
        let group = groups
            .entry(key.clone())
            .or_insert_with(|| Group::new(Arc::clone(&self.ceph), key));
        Arc::clone(group)
    }

    /// Opens an image that this process may have open already: it writes to each once. (To the lock, what has it open already would look
    /// like an earlier life of this one.)
    pub(crate) fn attach_first(
        self: &Arc<Self>,
        options: &Options,
        read_only: bool,
    ) -> Result<Opened, CephError> {
        let seat = self.group(options).seat(false)?;
        if read_only {
            return self.attach(seat, options, None, None);
        }
        let name = &options.name;
        let image = format!(
            "{} {}/{}/{}",
            seat.client.cluster, name.pool, name.namespace, name.image
        );
        if !lock(&self.written).insert(image.clone()) {
            return Err(CephError::Locked {
                action: format!("cannot write to {name}"),
                owner: "this process".to_owned(),
            });
        }
        let claim = Arc::new(Claim {
            host: Arc::downgrade(self),
            image,
        });
        self.attach(seat, options, Some(claim), None)
    }

    /// Opens an image on a client, and takes its lock where it is to be written to. `former` is what this process had of it before.
    pub(crate) fn attach(
        &self,
        seat: Seat,
        options: &Options,
        claim: Option<Arc<Claim>>,
        former: Option<&[String]>,
    ) -> Result<Opened, CephError> {
        let mut opened = self.open_at(seat, options, claim)?;
        self.take_lock(&mut opened, options, former)?;
        Ok(opened)
    }

    /// Opens an image, and leaves its lock alone.
    pub(crate) fn open_at(
        &self,
        seat: Seat,
        options: &Options,
        claim: Option<Arc<Claim>>,
    ) -> Result<Opened, CephError> {
        let (name, id) = (&options.name, &options.id);
        let pool = seat.client.pool(&name.pool, &name.namespace)?;
        let snapshot = name.snapshot.as_deref();
        let image = RawImage::open(pool, &name.image, snapshot, claim.is_none())
            .map_err(CephError::of(format!("cannot open image {name}"), id))?;
        let mut opened = Opened {
            image,
            seat,
            claim,
            _counted: Arc::clone(&self.open_images),
            shape: Shape::default(),
            watched: false,
        };
        opened.seat.client.has_image();
        let action = format!("cannot look at the configuration of {name}");
        let settings = opened.image.configuration();
        let settings = settings.map_err(CephError::of(action, id))?;
        settings::check(&settings, name, options.cache)?;
        opened.shape = look(&opened.image, options)?;
        Ok(opened)
    }

    /// Takes the lock of an image that is to be written to.
    pub(crate) fn take_lock(
        &self,
        opened: &mut Opened,
        options: &Options,
        former: Option<&[String]>,
    ) -> Result<(), CephError> {
        if opened.claim.is_some() {
            owner::take(opened, options, &self.identity, former)?;
            // The one who had the lock may have changed it.
            opened.shape = look(&opened.image, options)?;
            if !opened.watched {
                opened.see_watch();
            }
        }
        Ok(())
    }

    /// Why an image should wait with being opened again, until less is left of clients that were cut off.
    pub(crate) fn has_too_many_fenced(
        &self,
        options: &Options,
        volume: u64,
        apart: bool,
    ) -> Option<String> {
        let group = self.group(options);
        if group.fenced(|client| lock(&client.silent).contains(&volume)) > FENCED_OF_IMAGE_MAX {
            return Some(format!(
                "the cluster does not answer operations of this image, which keep more than {FENCED_OF_IMAGE_MAX} clients that were cut off for them: it waits with being opened again"
            ));
        }
        let most = if apart { FENCED_MAX / 2 } else { FENCED_MAX };
        (group.fenced(|_| true) > most).then(|| {
            format!("more than {most} clients that were cut off are not gone: it waits with being opened again")
        })
    }

    /// The images of a pool, or of a namespace in it, by way of a client of their own. Blocks until the cluster has answered.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn images(
        &self,
        credentials: &Credentials,
        pool: &str,
        namespace: &str,
    ) -> Result<Images, CephError> {
        Images::connect(&self.ceph, credentials, pool, namespace)
    }

    /// The clients of clusters that there are, and what they serve.
    #[must_use]
    pub fn clients(&self) -> Vec<ClientReport> {
        let groups: Vec<_> = lock(&self.groups).values().cloned().collect();
        groups.iter().flat_map(|group| group.report()).collect()
    }

    /// The images that are open.
    #[must_use]
    pub fn volumes(&self) -> Vec<VolumeReport> {
        let open = self.open_volumes();
        open.iter().map(|shared| shared.report()).collect()
    }

    /// Closes everything, so that locks are free at once, and waits for that, though not for ever. Requests fail with
    /// [`weir_block::VolumeError::Lost`] from now on.
    pub async fn close_all(&self) {
        let open: Vec<_> = lock(&self.open).drain(..).collect();
        for shared in open.iter().filter_map(Weak::upgrade) {
            shared.close();
        }
        let images = Arc::downgrade(&self.open_images);
        // One is the host's own.
        let open = move || images.strong_count().saturating_sub(1);
        let closed = elsewhere("weir-rbd-close", move || {
            let mut looks = CLOSE_TIME_MAX.as_millis() / CLOSE_LOOK.as_millis();
            while open() > 0 && looks > 0 {
                std::thread::sleep(CLOSE_LOOK);
                looks -= 1;
            }
            if open() > 0 {
                tracing::warn!(
                    images = open(),
                    "images were not closed in time: their locks are held for a while"
                );
            }
        });
        if let Err(error) = closed.await {
            tracing::warn!(error, "images are not waited for that are being closed");
        }
    }
}

fn look(image: &RawImage, options: &Options) -> Result<Shape, CephError> {
    let action = format!("cannot look at image {}", options.name);
    let shape = image.shape();
    shape.map_err(CephError::of(action, &options.id))
}
