//! Images of a pool: made, listed, resized, put into the trash and taken out of it, snapshots and clones.
//!
//! For the control path: everything blocks until the cluster has answered. Data is not touched here.

use std::sync::Arc;

use crate::cluster::{Ceph, Credentials, connect};
use crate::error::CephError;
use crate::options::Cache;
use crate::sys::{Errno, Pool, Rados, RawImage};

/// The images of one pool, or of one namespace in it.
pub struct Images {
    rados: Arc<Rados>,
    pool: Pool,
    id: String,
    /// `POOL` or `POOL/NAMESPACE`.
    name: String,
}

/// What a new image is like.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewImage {
    /// Its length in bytes.
    pub bytes: u64,
    /// The size of its objects in bytes, a power of two from 4 KiB to 32 MiB; none: as the cluster has it (4 MiB).
    pub object_bytes: Option<u64>,
    /// A pool for its data; none: the pool that it is in.
    pub data_pool: Option<String>,
}

/// What an image is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageInfo {
    /// Its name.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
    /// The size of its objects in bytes.
    pub object_bytes: u64,
    /// The address of the client that holds its lock, where one does.
    pub locked_by: Option<String>,
}

/// A snapshot of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// The image's length then, in bytes.
    pub bytes: u64,
}

/// An image in the trash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trashed {
    /// What it is known by there.
    pub id: String,
    /// The name that it had.
    pub name: String,
    /// Before this time (seconds since the Unix epoch) it is not deleted without force.
    pub kept_until: i64,
}

impl Images {
    /// Connects to a cluster for a pool, with a client of its own.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn connect(
        ceph: &Ceph,
        credentials: &Credentials,
        pool: &str,
        namespace: &str,
    ) -> Result<Self, CephError> {
        let rados = Arc::new(connect(ceph, credentials, Cache::Off)?);
        let name = if namespace.is_empty() {
            pool.to_owned()
        } else {
            format!("{pool}/{namespace}")
        };
        let id = credentials.id.clone();
        let opened = rados.pool(pool, namespace);
        let pool = opened.map_err(CephError::of(format!("cannot open pool {pool}"), &id))?;
        Ok(Images {
            rados,
            pool,
            id,
            name,
        })
    }

    /// Does something with an image.
    fn with<T>(
        &self,
        name: &str,
        read_only: bool,
        action: &str,
        work: impl FnOnce(&RawImage) -> Result<T, Errno>,
    ) -> Result<T, CephError> {
        work(&self.open(name, read_only)?).map_err(self.failed(action, name))
    }

    fn failed(&self, action: &str, image: &str) -> impl FnOnce(Errno) -> CephError {
        let action = format!("cannot {action} {}/{image}", self.name);
        let id = self.id.clone();
        move |errno| CephError::new(action, &id, errno)
    }

    /// Makes an image.
    ///
    /// # Errors
    /// [`CephError`]; see [`CephError::exists`].
    pub fn create(&self, name: &str, new: &NewImage) -> Result<(), CephError> {
        let order = match new.object_bytes {
            None => None,
            Some(bytes) if bytes.is_power_of_two() && (1 << 12..=1 << 25).contains(&bytes) => {
                Some(bytes.trailing_zeros() as u8)
            }
            Some(bytes) => {
                return Err(CephError::other(
                    format!("cannot make {}/{name}", self.name),
                    format!(
                        "objects of {bytes} bytes are not possible; a power of two from 4096 to 33554432 is"
                    ),
                ));
            }
        };
        self.pool
            .create(name, new.bytes, order, new.data_pool.as_deref())
            .map_err(self.failed("make", name))
    }

    /// The names of all images, in order.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn list(&self) -> Result<Vec<String>, CephError> {
        let action = format!("cannot list the images of {}", self.name);
        let names = self.pool.images();
        let mut names = names.map_err(CephError::of(action, &self.id))?;
        names.sort();
        Ok(names)
    }

    /// What an image is like.
    ///
    /// # Errors
    /// [`CephError`]; see [`CephError::is_missing`].
    pub fn info(&self, name: &str) -> Result<ImageInfo, CephError> {
        self.with(name, true, "look at", |image| {
            let shape = image.shape()?;
            Ok(ImageInfo {
                name: name.to_owned(),
                bytes: shape.bytes,
                object_bytes: shape.object_bytes,
                locked_by: image.locker()?,
            })
        })
    }

    /// The pool that has an image's data: its own, or another.
    ///
    /// # Errors
    /// [`CephError`]; see [`CephError::is_missing`].
    pub fn data_pool(&self, name: &str) -> Result<String, CephError> {
        self.with(name, true, "learn the pool of the data of", |image| {
            self.rados.pool_name(image.data_pool()?)
        })
    }

    /// Changes an image's length. Shrinking destroys what lies behind the new end.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn resize(&self, name: &str, bytes: u64, may_shrink: bool) -> Result<(), CephError> {
        self.with(name, false, "resize", |image| {
            image.resize(bytes, may_shrink)
        })
    }

    /// Moves an image to the trash, from which it can be restored. It is not deleted before `keep_seconds` have passed.
    ///
    /// # Errors
    /// [`CephError`]; an image that is open for writing somewhere is in use.
    pub fn trash(&self, name: &str, keep_seconds: u64) -> Result<(), CephError> {
        let moved = self.pool.trash(name, keep_seconds);
        moved.map_err(self.failed("move to the trash", name))
    }

    /// What is in the trash.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn trashed(&self) -> Result<Vec<Trashed>, CephError> {
        let action = format!("cannot list the trash of {}", self.name);
        let trashed = self.pool.trashed();
        trashed.map_err(CephError::of(action, &self.id))
    }

    /// Takes an image out of the trash, by its identifier there, under a name that is free.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn restore(&self, id: &str, name: &str) -> Result<(), CephError> {
        let restored = self.pool.restore(id, name);
        restored.map_err(self.failed(&format!("restore {id} from the trash as"), name))
    }

    /// The snapshots of an image, from the oldest on.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn snapshots(&self, name: &str) -> Result<Vec<Snapshot>, CephError> {
        self.with(name, true, "list the snapshots of", RawImage::snapshots)
    }

    /// Makes a snapshot: what is acknowledged by then is in it.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn create_snapshot(&self, name: &str, snapshot: &str) -> Result<(), CephError> {
        self.with(name, false, "make a snapshot of", |image| {
            image.create_snapshot(snapshot)
        })
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn remove_snapshot(&self, name: &str, snapshot: &str) -> Result<(), CephError> {
        self.with(name, false, "remove a snapshot of", |image| {
            image.remove_snapshot(snapshot)
        })
    }

    /// Makes an image of a snapshot, in this pool or another of the same cluster. It can be written to, and needs the snapshot.
    ///
    /// # Errors
    /// [`CephError`].
    pub fn clone_of(
        &self,
        name: &str,
        snapshot: &str,
        pool: &str,
        namespace: &str,
        to: &str,
    ) -> Result<(), CephError> {
        let target = self.rados.pool(pool, namespace);
        let target = target.map_err(CephError::of(format!("cannot open pool {pool}"), &self.id))?;
        let cloned = self.pool.clone_image(name, snapshot, &target, to);
        cloned.map_err(self.failed(&format!("make {to} of snapshot {snapshot} of"), name))
    }

    fn open(&self, name: &str, read_only: bool) -> Result<RawImage, CephError> {
        let (pool, namespace) = self.name.split_once('/').unwrap_or((&self.name, ""));
        let again = self.rados.pool(pool, namespace);
        let opened = again.and_then(|pool| RawImage::open(pool, name, None, read_only));
        opened.map_err(self.failed("open", name))
    }
}
