//! The C interfaces of librados and librbd, loaded at run time, and the little that makes them safe to call.
//!
//! All unsafe code of this crate is here. A handle is closed when it is dropped; what librbd was lent stays lent until its callback
//! was delivered ([`Lent`]); nothing here decides anything. Calls that are not named `submit` block, and belong on threads that may.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

use weir_memory::{Segments, Views};
use weir_reactor::{Delivery, Ticket};

use crate::error::ENOENT;
use crate::images::{Snapshot, Trashed};

/// The lowest version of librbd that is used: that of Ceph 16.2.
pub(crate) const RBD_VERSION_MIN: (i32, i32) = (1, 16);

/// `RBD_LOCK_MODE_EXCLUSIVE` (librbd.h).
const LOCK_MODE_EXCLUSIVE: c_int = 0;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION` (librbd.h).
const WRITE_ZEROES_THICK: c_int = 1;
/// `RBD_IMAGE_OPTION_ORDER` (librbd.h): object size as a power of two.
pub(crate) const OPTION_ORDER: c_int = 2;
/// `RBD_IMAGE_OPTION_DATA_POOL` (librbd.h).
pub(crate) const OPTION_DATA_POOL: c_int = 10;
/// `RBD_IMAGE_OPTION_CLONE_FORMAT` (librbd.h).
pub(crate) const OPTION_CLONE_FORMAT: c_int = 12;
/// `RBD_FEATURE_EXCLUSIVE_LOCK` (features.h).
pub(crate) const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_FEATURE_DIRTY_CACHE` (features.h).
pub(crate) const FEATURE_DIRTY_CACHE: u64 = 1 << 11;
/// `RBD_CONFIG_SOURCE_POOL` (librbd.h).
pub(crate) const CONFIG_SOURCE_POOL: c_int = 1;
/// `RBD_CONFIG_SOURCE_IMAGE` (librbd.h).
pub(crate) const CONFIG_SOURCE_IMAGE: c_int = 2;
/// Bytes that one native compare-and-write takes, all within one sector.
pub(crate) const COMPARE_WRITE_BYTES: usize = 512;

/// What longer lists than this may have is asked for again.
const LIST_FIRST: usize = 64;
/// First room for a text, in bytes, and the most.
const TEXT_BYTES: (usize, usize) = (4096, 1 << 20);
/// `ERANGE`: a buffer was too small.
const ERANGE: i32 = 34;
/// `ENOMEM`.
const ENOMEM: i32 = 12;

/// Why a library cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LibraryError {
    /// It is not there, or is none.
    #[error(
        "{library} cannot be loaded ({reason}): install Ceph's client libraries, version 16.2 or later (Debian and Ubuntu: librbd1 and librados2; Fedora, RHEL and SUSE: librbd1 and librados2 of the ceph packages)"
    )]
    Missing {
        /// The file that was tried.
        library: String,
        /// What the system's loader said.
        reason: String,
    },
    /// It is older than what is needed.
    #[error(
        "{library} is too old ({reason}): install librbd1 and librados2 of Ceph 16.2 (librbd 1.16) or later"
    )]
    TooOld {
        /// The file.
        library: String,
        /// What it has or lacks.
        reason: String,
    },
}

/// Opaque handles, as the headers have them.
type Handle = *mut c_void;
type Callback = unsafe extern "C" fn(Handle, *mut c_void);
type Updated = unsafe extern "C" fn(*mut c_void);
type Progress = unsafe extern "C" fn(u64, u64, *mut c_void) -> c_int;

/// `struct iovec` (POSIX).
#[repr(C)]
pub(crate) struct IoVec {
    base: *mut c_void,
    length: usize,
}

/// `rbd_image_spec_t` (librbd.h).
#[repr(C)]
struct ImageSpec {
    id: *mut c_char,
    name: *mut c_char,
}

/// `rbd_snap_info_t` (librbd.h).
#[repr(C)]
struct SnapInfo {
    id: u64,
    size: u64,
    name: *const c_char,
}

/// `rbd_trash_image_info_t` (librbd.h).
#[repr(C)]
struct TrashInfo {
    id: *mut c_char,
    name: *mut c_char,
    source: c_int,
    deletion_time: i64,
    deferment_end_time: i64,
}

/// `rbd_image_watcher_t` (librbd.h).
#[repr(C)]
struct WatcherInfo {
    address: *mut c_char,
    id: i64,
    cookie: u64,
}

/// `rbd_config_option_t` (librbd.h).
#[repr(C)]
struct ConfigOption {
    name: *mut c_char,
    value: *mut c_char,
    source: c_int,
}

/// `rbd_image_info_t` (librbd.h).
#[repr(C)]
struct ImageInfo {
    size: u64,
    object_size: u64,
    objects: u64,
    order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

macro_rules! functions {
    ($($library:ident { $($name:ident($($argument:ty),*) $(-> $result:ty)?;)* })*) => {
        /// Both libraries: the functions that are used.
        pub(crate) struct Api {
            $($($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*)*
        }

        impl Api {
            fn resolve($($library: &Loaded),*) -> Result<Self, LibraryError> {
                Ok(Api {
                    $($($name: {
                        // SAFETY: the type is that of the function of this name in the library's header.
                        unsafe { $library.symbol(stringify!($name))? }
                    },)*)*
                })
            }
        }
    };
}

functions! {
    rados {
        rados_create2(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        rados_conf_read_file(Handle, *const c_char) -> c_int;
        rados_conf_set(Handle, *const c_char, *const c_char) -> c_int;
        rados_conf_get(Handle, *const c_char, *mut c_char, usize) -> c_int;
        rados_connect(Handle) -> c_int;
        rados_shutdown(Handle);
        rados_ioctx_create(Handle, *const c_char, *mut Handle) -> c_int;
        rados_ioctx_destroy(Handle);
        rados_ioctx_set_namespace(Handle, *const c_char);
        rados_set_pool_full_try(Handle);
        rados_getaddrs(Handle, *mut *mut c_char) -> c_int;
        rados_buffer_free(*mut c_char);
        rados_blocklist_add(Handle, *mut c_char, u32) -> c_int;
        rados_wait_for_latest_osdmap(Handle) -> c_int;
        rados_cluster_fsid(Handle, *mut c_char, usize) -> c_int;
        rados_pool_reverse_lookup(Handle, i64, *mut c_char, usize) -> c_int;
    }
    rbd {
        rbd_version(*mut c_int, *mut c_int, *mut c_int);
        rbd_open(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_open_read_only(Handle, *const c_char, *mut Handle, *const c_char) -> c_int;
        rbd_close(Handle) -> c_int;
        rbd_stat(Handle, *mut ImageInfo, usize) -> c_int;
        rbd_get_size(Handle, *mut u64) -> c_int;
        rbd_get_features(Handle, *mut u64) -> c_int;
        rbd_get_id(Handle, *mut c_char, usize) -> c_int;
        rbd_get_stripe_unit(Handle, *mut u64) -> c_int;
        rbd_get_stripe_count(Handle, *mut u64) -> c_int;
        rbd_get_data_pool_id(Handle) -> i64;
        rbd_resize2(Handle, u64, bool, Progress, *mut c_void) -> c_int;
        rbd_image_options_create(*mut Handle);
        rbd_image_options_destroy(Handle);
        rbd_image_options_set_uint64(Handle, c_int, u64) -> c_int;
        rbd_image_options_set_string(Handle, c_int, *const c_char) -> c_int;
        rbd_create4(Handle, *const c_char, u64, Handle) -> c_int;
        rbd_list2(Handle, *mut ImageSpec, *mut usize) -> c_int;
        rbd_image_spec_list_cleanup(*mut ImageSpec, usize);
        rbd_trash_move(Handle, *const c_char, u64) -> c_int;
        rbd_trash_list(Handle, *mut TrashInfo, *mut usize) -> c_int;
        rbd_trash_list_cleanup(*mut TrashInfo, usize);
        rbd_trash_restore(Handle, *const c_char, *const c_char) -> c_int;
        rbd_snap_create(Handle, *const c_char) -> c_int;
        rbd_snap_remove(Handle, *const c_char) -> c_int;
        rbd_snap_list(Handle, *mut SnapInfo, *mut c_int) -> c_int;
        rbd_snap_list_end(*mut SnapInfo);
        rbd_clone3(Handle, *const c_char, *const c_char, Handle, *const c_char, Handle) -> c_int;
        rbd_lock_acquire(Handle, c_int) -> c_int;
        rbd_lock_get_owners(Handle, *mut c_int, *mut *mut c_char, *mut usize) -> c_int;
        rbd_lock_get_owners_cleanup(*mut *mut c_char, usize);
        rbd_list_lockers(Handle, *mut c_int, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize, *mut c_char, *mut usize) -> isize;
        rbd_lock_break(Handle, c_int, *const c_char) -> c_int;
        rbd_metadata_set(Handle, *const c_char, *const c_char) -> c_int;
        rbd_metadata_get(Handle, *const c_char, *mut c_char, *mut usize) -> c_int;
        rbd_watchers_list(Handle, *mut WatcherInfo, *mut usize) -> c_int;
        rbd_watchers_list_cleanup(*mut WatcherInfo, usize);
        rbd_config_image_list(Handle, *mut ConfigOption, *mut c_int) -> c_int;
        rbd_config_image_list_cleanup(*mut ConfigOption, c_int);
        rbd_update_watch(Handle, *mut u64, Updated, *mut c_void) -> c_int;
        rbd_update_unwatch(Handle, u64) -> c_int;
        rbd_aio_create_completion(*mut c_void, Callback, *mut Handle) -> c_int;
        rbd_aio_get_return_value(Handle) -> isize;
        rbd_aio_release(Handle);
        rbd_aio_readv(Handle, *const IoVec, c_int, u64, Handle) -> c_int;
        rbd_aio_writev(Handle, *const IoVec, c_int, u64, Handle) -> c_int;
        rbd_aio_discard(Handle, u64, u64, Handle) -> c_int;
        rbd_aio_write_zeroes(Handle, u64, usize, Handle, c_int, c_int) -> c_int;
        rbd_aio_compare_and_write(Handle, u64, usize, *const c_char, *const c_char, Handle, *mut u64, c_int) -> isize;
        rbd_aio_flush(Handle, Handle) -> c_int;
    }
}

/// A library that stays loaded for as long as the process runs: it has threads and destructors of its own.
struct Loaded {
    name: String,
    library: libloading::Library,
}

impl Loaded {
    fn open(name: &str) -> Result<Self, LibraryError> {
        // SAFETY: what a library does when it is loaded cannot be known; those that are named here are Ceph's, or whatever the
        // user put in their place.
        let library = unsafe { libloading::Library::new(name) };
        let library = library.map_err(|error| LibraryError::Missing {
            library: name.to_owned(),
            reason: root_of(&error),
        })?;
        Ok(Loaded {
            name: name.to_owned(),
            library,
        })
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `F` must be the type of a pointer to it.
    unsafe fn symbol<F: Copy>(&self, name: &str) -> Result<F, LibraryError> {
        // SAFETY: by the caller's promise.
        let found = unsafe { self.library.get::<F>(name) };
        found
            .map(|symbol| *symbol)
            .map_err(|_| LibraryError::TooOld {
                library: self.name.clone(),
                reason: format!("it has no {name}"),
            })
    }
}

fn root_of(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), root_of)
}

impl Api {
    /// Loads the libraries, for good.
    pub(crate) fn load(rados: &str, rbd: &str) -> Result<&'static Api, LibraryError> {
        let (rados, rbd) = (Loaded::open(rados)?, Loaded::open(rbd)?);
        let api = Api::resolve(&rados, &rbd)?;
        let (mut major, mut minor, mut extra) = (0, 0, 0);
        // SAFETY: it writes three numbers.
        unsafe { (api.rbd_version)(&raw mut major, &raw mut minor, &raw mut extra) };
        if (major, minor) < RBD_VERSION_MIN {
            return Err(LibraryError::TooOld {
                library: rbd.name,
                reason: format!("it is librbd {major}.{minor}.{extra}"),
            });
        }
        std::mem::forget((rados, rbd));
        Ok(Box::leak(Box::new(api)))
    }
}

/// A call's result: an errno, positive, where it failed.
pub(crate) type Errno = i32;

fn done(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(-result) } else { Ok(()) }
}

/// Text for C. What holds a zero byte names nothing there.
fn text(text: &str) -> Result<CString, Errno> {
    CString::new(text).map_err(|_| ENOENT)
}

/// # Safety
/// `text` is null, or points to a string that ends.
unsafe fn owned(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}

/// A list that the library fills, and frees when it was copied. It says how long it would be where the room is too small.
fn list<T, R>(
    mut fill: impl FnMut(*mut T, &mut usize) -> c_int,
    copy: impl FnMut(&T) -> R,
    free: impl FnOnce(*mut T, usize),
) -> Result<Vec<R>, Errno> {
    let mut room = LIST_FIRST;
    loop {
        let mut items: Vec<T> = Vec::with_capacity(room);
        let mut count = room;
        match done(fill(items.as_mut_ptr(), &mut count)) {
            Ok(()) => {
                // SAFETY: so many were written.
                let written = unsafe { std::slice::from_raw_parts(items.as_ptr(), count) };
                let copies = written.iter().map(copy).collect();
                free(items.as_mut_ptr(), count);
                return Ok(copies);
            }
            Err(ERANGE) => room = count.max(room * 2),
            Err(error) => return Err(error),
        }
    }
}

/// A text that the library writes. It may say how long it would be where the room is too small.
fn written(mut fill: impl FnMut(*mut c_char, &mut usize) -> c_int) -> Result<String, Errno> {
    let mut room = TEXT_BYTES.0;
    loop {
        // It ends with a zero byte, whatever is written.
        let mut text = vec![0 as c_char; room + 1];
        let mut length = room;
        match done(fill(text.as_mut_ptr(), &mut length)) {
            // SAFETY: a string that ends.
            Ok(()) => return Ok(unsafe { owned(text.as_ptr()) }),
            Err(ERANGE) if room < TEXT_BYTES.1 => room = length.max(room * 2),
            Err(error) => return Err(error),
        }
    }
}

/// A client of a cluster.
pub(crate) struct Rados {
    api: &'static Api,
    raw: Handle,
}

// SAFETY: librados' cluster handle may be used by any thread, and by several at once (librados.h).
unsafe impl Send for Rados {}
// SAFETY: as above.
unsafe impl Sync for Rados {}

impl Rados {
    pub(crate) fn create(api: &'static Api, name: &str) -> Result<Self, Errno> {
        let name = text(name)?;
        let mut raw = null_mut();
        // SAFETY: strings that end; the handle is written where that succeeds.
        done(unsafe { (api.rados_create2)(&raw mut raw, c"ceph".as_ptr(), name.as_ptr(), 0) })?;
        Ok(Rados { api, raw })
    }

    /// Reads a configuration file; none: the one that Ceph's tools would read.
    pub(crate) fn read_configuration(&self, path: Option<&str>) -> Result<(), Errno> {
        let path = path.map(text).transpose()?;
        let pointer = path.as_ref().map_or(null(), |path| path.as_ptr());
        // SAFETY: the handle is open; a string that ends, or null for the default.
        done(unsafe { (self.api.rados_conf_read_file)(self.raw, pointer) })
    }

    pub(crate) fn set(&self, option: &str, value: &str) -> Result<(), Errno> {
        let (option, value) = (text(option)?, text(value)?);
        // SAFETY: the handle is open; strings that end.
        done(unsafe { (self.api.rados_conf_set)(self.raw, option.as_ptr(), value.as_ptr()) })
    }

    /// What an option is set to.
    pub(crate) fn get(&self, option: &str) -> Result<String, Errno> {
        let option = text(option)?;
        // SAFETY: the handle is open; a string that ends, and a buffer as long as said.
        written(|to, room| unsafe {
            (self.api.rados_conf_get)(self.raw, option.as_ptr(), to, *room)
        })
    }

    pub(crate) fn connect(&self) -> Result<(), Errno> {
        // SAFETY: the handle is open, and connected once.
        done(unsafe { (self.api.rados_connect)(self.raw) })
    }

    /// The cluster's identifier.
    pub(crate) fn cluster(&self) -> Result<String, Errno> {
        // SAFETY: the handle is connected; the buffer is as long as said.
        written(|to, room| unsafe { (self.api.rados_cluster_fsid)(self.raw, to, *room) })
    }

    /// The name of the pool with this number.
    pub(crate) fn pool_name(&self, number: i64) -> Result<String, Errno> {
        let lookup = self.api.rados_pool_reverse_lookup;
        // SAFETY: the handle is connected; the buffer is as long as said.
        written(|to, room| unsafe { lookup(self.raw, number, to, *room) })
    }

    /// The addresses under which the cluster knows this client, as blocklists take them.
    pub(crate) fn addresses(&self) -> Result<String, Errno> {
        let mut addresses = null_mut();
        // SAFETY: the handle is connected; what is yielded is copied and freed.
        unsafe {
            done((self.api.rados_getaddrs)(self.raw, &raw mut addresses))?;
            let copy = owned(addresses);
            (self.api.rados_buffer_free)(addresses);
            Ok(copy)
        }
    }

    /// Has the cluster refuse another client from now on, for so many seconds; zero: as long as is usual.
    pub(crate) fn blocklist(&self, address: &str, seconds: u32) -> Result<(), Errno> {
        let address = text(address)?.into_raw();
        // SAFETY: the handle is connected; the string is only read, and comes back.
        unsafe {
            let result = (self.api.rados_blocklist_add)(self.raw, address, seconds);
            drop(CString::from_raw(address));
            done(result)
        }
    }

    /// Learns of everything that the monitors know now.
    pub(crate) fn wait_for_latest_map(&self) -> Result<(), Errno> {
        // SAFETY: the handle is connected.
        done(unsafe { (self.api.rados_wait_for_latest_osdmap)(self.raw) })
    }

    pub(crate) fn pool(self: &Arc<Self>, pool: &str, namespace: &str) -> Result<Pool, Errno> {
        let (pool, namespace) = (text(pool)?, text(namespace)?);
        let mut raw = null_mut();
        // SAFETY: the handle is connected; strings that end. The context is new and nobody else's.
        unsafe {
            done((self.api.rados_ioctx_create)(
                self.raw,
                pool.as_ptr(),
                &raw mut raw,
            ))?;
            (self.api.rados_ioctx_set_namespace)(raw, namespace.as_ptr());
            // A write to a full pool fails, in place of waiting until there is room.
            (self.api.rados_set_pool_full_try)(raw);
        }
        Ok(Pool {
            rados: Arc::clone(self),
            raw,
        })
    }
}

impl Drop for Rados {
    fn drop(&mut self) {
        // SAFETY: nothing of it is left: pools and images hold a count on it.
        unsafe { (self.api.rados_shutdown)(self.raw) };
    }
}

/// A pool, with the namespace in it that is meant.
pub(crate) struct Pool {
    rados: Arc<Rados>,
    raw: Handle,
}

// SAFETY: what is set of it is set before it is shared; librbd's functions copy it (librados.h warns of settings alone).
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

/// What a new image or clone is like, beyond its size.
struct ImageOptions {
    api: &'static Api,
    raw: Handle,
}

impl ImageOptions {
    fn new(api: &'static Api) -> Self {
        let mut raw = null_mut();
        // SAFETY: it makes a handle.
        unsafe { (api.rbd_image_options_create)(&raw mut raw) };
        ImageOptions { api, raw }
    }

    fn number(&self, option: c_int, value: u64) -> Result<(), Errno> {
        // SAFETY: the handle is there until it is dropped.
        done(unsafe { (self.api.rbd_image_options_set_uint64)(self.raw, option, value) })
    }

    fn text(&self, option: c_int, value: &str) -> Result<(), Errno> {
        let value = text(value)?;
        // SAFETY: as above; the string ends and is copied.
        done(unsafe { (self.api.rbd_image_options_set_string)(self.raw, option, value.as_ptr()) })
    }
}

impl Drop for ImageOptions {
    fn drop(&mut self) {
        // SAFETY: made by `rbd_image_options_create`, destroyed once.
        unsafe { (self.api.rbd_image_options_destroy)(self.raw) };
    }
}

impl Pool {
    fn api(&self) -> &'static Api {
        self.rados.api
    }

    pub(crate) fn create(
        &self,
        name: &str,
        bytes: u64,
        order: Option<u8>,
        data_pool: Option<&str>,
    ) -> Result<(), Errno> {
        let name = text(name)?;
        let options = ImageOptions::new(self.rados.api);
        if let Some(order) = order {
            options.number(OPTION_ORDER, u64::from(order))?;
        }
        if let Some(pool) = data_pool {
            options.text(OPTION_DATA_POOL, pool)?;
        }
        let create = self.api().rbd_create4;
        // SAFETY: open handles, a string that ends.
        done(unsafe { create(self.raw, name.as_ptr(), bytes, options.raw) })
    }

    pub(crate) fn images(&self) -> Result<Vec<String>, Errno> {
        let api = self.api();
        list(
            // SAFETY: there is room for as many as is said.
            |items, count| unsafe { (api.rbd_list2)(self.raw, items, count) },
            // SAFETY: a string that ends.
            |spec: &ImageSpec| unsafe { owned(spec.name) },
            // SAFETY: as it was filled.
            |items, count| unsafe { (api.rbd_image_spec_list_cleanup)(items, count) },
        )
    }

    /// Moves an image to the trash, where it stays for so many seconds at least.
    pub(crate) fn trash(&self, name: &str, seconds: u64) -> Result<(), Errno> {
        let name = text(name)?;
        // SAFETY: an open handle, a string that ends.
        done(unsafe { (self.api().rbd_trash_move)(self.raw, name.as_ptr(), seconds) })
    }

    pub(crate) fn trashed(&self) -> Result<Vec<Trashed>, Errno> {
        let api = self.api();
        list(
            // SAFETY: there is room for as many as is said.
            |items, count| unsafe { (api.rbd_trash_list)(self.raw, items, count) },
            |info: &TrashInfo| Trashed {
                // SAFETY: a string that ends.
                id: unsafe { owned(info.id) },
                // SAFETY: likewise.
                name: unsafe { owned(info.name) },
                kept_until: info.deferment_end_time,
            },
            // SAFETY: as it was filled.
            |items, count| unsafe { (api.rbd_trash_list_cleanup)(items, count) },
        )
    }

    pub(crate) fn restore(&self, id: &str, name: &str) -> Result<(), Errno> {
        let (id, name) = (text(id)?, text(name)?);
        // SAFETY: an open handle, strings that end.
        done(unsafe { (self.api().rbd_trash_restore)(self.raw, id.as_ptr(), name.as_ptr()) })
    }

    /// Makes a writable image of a snapshot. It depends on the snapshot, which need not be protected (clone format 2).
    pub(crate) fn clone_image(
        &self,
        image: &str,
        snapshot: &str,
        to: &Pool,
        name: &str,
    ) -> Result<(), Errno> {
        let (image, snapshot, name) = (text(image)?, text(snapshot)?, text(name)?);
        let options = ImageOptions::new(self.rados.api);
        options.number(OPTION_CLONE_FORMAT, 2)?;
        let (image, snapshot, name) = (image.as_ptr(), snapshot.as_ptr(), name.as_ptr());
        let clone = self.api().rbd_clone3;
        // SAFETY: open handles, strings that end.
        done(unsafe { clone(self.raw, image, snapshot, to.raw, name, options.raw) })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: created once, and destroyed once; images that were opened through it have copies of their own.
        unsafe { (self.api().rados_ioctx_destroy)(self.raw) };
    }
}

/// Is told that something about an image may have changed, on a thread of librbd's: it must not block or call librbd.
pub(crate) type OnUpdate = Box<dyn Fn() + Send + Sync>;

/// An open image.
pub(crate) struct RawImage {
    pool: Pool,
    raw: Handle,
    /// The watch's handle, and what its callback's argument points to.
    watch: Option<(u64, NonNull<OnUpdate>)>,
}

// SAFETY: librbd's image handle may be used by any thread, and by several at once; so may what the watch points to.
unsafe impl Send for RawImage {}
// SAFETY: as above; the watch is changed by who owns the image alone.
unsafe impl Sync for RawImage {}

/// An option of librbd's, as it is for an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    /// `rbd_config_source_t`: the image, its pool, or something else. The nearest to the image wins.
    pub(crate) source: c_int,
}

/// What an image is like.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Shape {
    pub(crate) bytes: u64,
    pub(crate) object_bytes: u64,
    /// So many bytes follow each other in an object before the next object has some; an object's where data is not striped.
    pub(crate) stripe_unit_bytes: u64,
    /// How many objects take turns; one where data is not striped.
    pub(crate) stripe_count: u64,
    pub(crate) features: u64,
}

impl RawImage {
    pub(crate) fn open(
        pool: Pool,
        name: &str,
        snapshot: Option<&str>,
        read_only: bool,
    ) -> Result<Self, Errno> {
        let (name, snapshot) = (text(name)?, snapshot.map(text).transpose()?);
        let api = pool.api();
        let open = if read_only {
            api.rbd_open_read_only
        } else {
            api.rbd_open
        };
        let snapshot = snapshot.as_ref().map_or(null(), |name| name.as_ptr());
        let mut raw = null_mut();
        // SAFETY: an open handle; strings that end, or null for no snapshot.
        done(unsafe { open(pool.raw, name.as_ptr(), &raw mut raw, snapshot) })?;
        let watch = None;
        Ok(RawImage { pool, raw, watch })
    }

    fn api(&self) -> &'static Api {
        self.pool.api()
    }

    pub(crate) fn shape(&self) -> Result<Shape, Errno> {
        let mut info = std::mem::MaybeUninit::<ImageInfo>::zeroed();
        let (mut features, mut stripe_unit_bytes, mut stripe_count) = (0, 0, 0);
        let api = self.api();
        // SAFETY: an open handle; zeroes are a value of the structure, which is as long as said.
        let info = unsafe {
            done((api.rbd_stat)(
                self.raw,
                info.as_mut_ptr(),
                size_of::<ImageInfo>(),
            ))?;
            done((api.rbd_get_features)(self.raw, &raw mut features))?;
            done((api.rbd_get_stripe_unit)(
                self.raw,
                &raw mut stripe_unit_bytes,
            ))?;
            done((api.rbd_get_stripe_count)(self.raw, &raw mut stripe_count))?;
            info.assume_init()
        };
        Ok(Shape {
            bytes: info.size,
            object_bytes: info.object_size,
            stripe_unit_bytes,
            stripe_count,
            features,
        })
    }

    pub(crate) fn bytes(&self) -> Result<u64, Errno> {
        let mut bytes = 0;
        // SAFETY: an open handle.
        done(unsafe { (self.api().rbd_get_size)(self.raw, &raw mut bytes) })?;
        Ok(bytes)
    }

    pub(crate) fn resize(&self, bytes: u64, may_shrink: bool) -> Result<(), Errno> {
        let resize = self.api().rbd_resize2;
        // SAFETY: an open handle; there is nobody to tell of the progress.
        done(unsafe { resize(self.raw, bytes, may_shrink, no_progress, null_mut()) })
    }

    /// The number of the pool that has the image's data.
    pub(crate) fn data_pool(&self) -> Result<i64, Errno> {
        // SAFETY: an open handle.
        let number = unsafe { (self.api().rbd_get_data_pool_id)(self.raw) };
        // An error is as small as any.
        c_int::try_from(number).map_or(Ok(()), done)?;
        Ok(number)
    }

    pub(crate) fn create_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = text(name)?;
        // SAFETY: an open handle, a string that ends.
        done(unsafe { (self.api().rbd_snap_create)(self.raw, name.as_ptr()) })
    }

    pub(crate) fn remove_snapshot(&self, name: &str) -> Result<(), Errno> {
        let name = text(name)?;
        // SAFETY: an open handle, a string that ends.
        done(unsafe { (self.api().rbd_snap_remove)(self.raw, name.as_ptr()) })
    }

    pub(crate) fn snapshots(&self) -> Result<Vec<Snapshot>, Errno> {
        let api = self.api();
        list(
            |items, count| {
                let mut room = *count as c_int;
                // SAFETY: there is room for as many as is said. The result is how many there are.
                let result = unsafe { (api.rbd_snap_list)(self.raw, items, &raw mut room) };
                *count = if result < 0 { room } else { result } as usize;
                result
            },
            |info: &SnapInfo| Snapshot {
                // SAFETY: a string that ends.
                name: unsafe { owned(info.name) },
                bytes: info.size,
            },
            |items, count| {
                if count > 0 {
                    // SAFETY: as it was filled; a list of none has nothing to free.
                    unsafe { (api.rbd_snap_list_end)(items) };
                }
            },
        )
    }

    /// The address of the client that holds the image's exclusive lock, if one does.
    pub(crate) fn lock_owner(&self) -> Result<Option<String>, Errno> {
        let api = self.api();
        let (get, mut mode) = (api.rbd_lock_get_owners, LOCK_MODE_EXCLUSIVE);
        let owners = list(
            // SAFETY: there is room for as many as is said.
            |items, count| unsafe { get(self.raw, &raw mut mode, items, count) },
            // SAFETY: a string that ends.
            |name: &*mut c_char| unsafe { owned(*name) },
            // SAFETY: as it was filled.
            |items, count| unsafe { (api.rbd_lock_get_owners_cleanup)(items, count) },
        );
        match owners {
            Err(ENOENT) => Ok(None),
            owners => Ok(owners?.into_iter().next()),
        }
    }

    /// The same, of an image that is open to be read alone too, where librbd refuses the question of [`RawImage::lock_owner`].
    pub(crate) fn locker(&self) -> Result<Option<String>, Errno> {
        let list = self.api().rbd_list_lockers;
        // The first of them is at the start.
        let locker = written(|addresses, room| {
            let (mut exclusive, mut lengths) = (0, [*room; 4]);
            let [mut tag, mut clients, mut cookies] = [(); 3].map(|()| vec![0 as c_char; *room]);
            let [of_tag, of_clients, of_cookies, of_addresses] = &mut lengths;
            // SAFETY: an open handle; the buffers are as long as said.
            let count = unsafe {
                list(
                    self.raw,
                    &raw mut exclusive,
                    tag.as_mut_ptr(),
                    of_tag,
                    clients.as_mut_ptr(),
                    of_clients,
                    cookies.as_mut_ptr(),
                    of_cookies,
                    addresses,
                    of_addresses,
                )
            };
            *room = lengths.into_iter().fold(0, usize::max);
            count as c_int
        })?;
        Ok(Some(locker).filter(|locker| !locker.is_empty()))
    }

    pub(crate) fn acquire_lock(&self) -> Result<(), Errno> {
        // SAFETY: an open handle.
        done(unsafe { (self.api().rbd_lock_acquire)(self.raw, LOCK_MODE_EXCLUSIVE) })
    }

    /// Takes the lock away from a client, which the cluster refuses from then on.
    pub(crate) fn break_lock(&self, owner: &str) -> Result<(), Errno> {
        let (owner, mode) = (text(owner)?, LOCK_MODE_EXCLUSIVE);
        // SAFETY: an open handle, a string that ends.
        done(unsafe { (self.api().rbd_lock_break)(self.raw, mode, owner.as_ptr()) })
    }

    pub(crate) fn set_metadata(&self, key: &str, value: &str) -> Result<(), Errno> {
        let (key, value) = (text(key)?, text(value)?);
        // SAFETY: an open handle, strings that end.
        done(unsafe { (self.api().rbd_metadata_set)(self.raw, key.as_ptr(), value.as_ptr()) })
    }

    pub(crate) fn metadata(&self, key: &str) -> Result<Option<String>, Errno> {
        let (key, get) = (text(key)?, self.api().rbd_metadata_get);
        // SAFETY: an open handle; a string that ends, and a buffer as long as said.
        match written(|to, room| unsafe { get(self.raw, key.as_ptr(), to, room) }) {
            Err(ENOENT) => Ok(None),
            value => value.map(Some),
        }
    }

    /// The addresses of the clients that watch the image: those that have it open for writing, the dead for some time too.
    pub(crate) fn watchers(&self) -> Result<Vec<String>, Errno> {
        let api = self.api();
        list(
            // SAFETY: there is room for as many as is said.
            |items, count| unsafe { (api.rbd_watchers_list)(self.raw, items, count) },
            // SAFETY: a string that ends.
            |info: &WatcherInfo| unsafe { owned(info.address) },
            // SAFETY: as it was filled.
            |items, count| unsafe { (api.rbd_watchers_list_cleanup)(items, count) },
        )
    }

    /// What it is called among all images that there ever were in its pool; empty where it has no such name, as of the first format.
    pub(crate) fn id(&self) -> String {
        // SAFETY: an open handle, and as much room as is said.
        let id = written(|to, room| unsafe { (self.api().rbd_get_id)(self.raw, to, *room) });
        id.unwrap_or_default()
    }

    /// What librbd's options are for this image.
    pub(crate) fn configuration(&self) -> Result<Vec<Setting>, Errno> {
        let api = self.api();
        list(
            |items, count| {
                let mut room = *count as c_int;
                // SAFETY: there is room for as many as is said.
                let result = unsafe { (api.rbd_config_image_list)(self.raw, items, &raw mut room) };
                *count = room as usize;
                result
            },
            |option: &ConfigOption| Setting {
                // SAFETY: a string that ends.
                name: unsafe { owned(option.name) },
                // SAFETY: likewise.
                value: unsafe { owned(option.value) },
                source: option.source,
            },
            // SAFETY: as it was filled.
            |items, count| unsafe { (api.rbd_config_image_list_cleanup)(items, count as c_int) },
        )
    }

    /// Has `on_update` called whenever something about the image may have changed, until it is closed.
    pub(crate) fn watch(&mut self, on_update: OnUpdate) -> Result<(), Errno> {
        assert!(self.watch.is_none(), "an image is watched once");
        let target = NonNull::from(Box::leak(Box::new(on_update)));
        let (mut handle, argument) = (0, target.as_ptr().cast());
        let watch = self.api().rbd_update_watch;
        // SAFETY: an open handle. The target lives until the image is closed, after the watch has ended.
        done(unsafe { watch(self.raw, &raw mut handle, updated, argument) }).inspect_err(|_| {
            // SAFETY: leaked above, and nobody was told of it.
            drop(unsafe { Box::from_raw(target.as_ptr()) });
        })?;
        self.watch = Some((handle, target));
        Ok(())
    }

    /// Starts an operation. Its result (bytes read, or 0, or an errno below 0) is delivered through the ticket, always. A frame of an earlier
    /// one is used again.
    pub(crate) fn submit(
        &self,
        ticket: Ticket,
        user: u64,
        io: Io,
        frame: Option<FreeFrame>,
    ) -> Lent {
        let api = self.api();
        let mut frame = frame.unwrap_or_else(|| {
            FreeFrame(Box::new(Frame {
                api,
                ticket: null_mut(),
                vectors: Vec::new(),
                io: Io::Flush,
            }))
        });
        (frame.0.api, frame.0.ticket, frame.0.io) = (api, ticket.into_raw(), io);
        frame.0.point();
        let frame = NonNull::from(Box::leak(frame.0));
        let (mut completion, create) = (null_mut(), api.rbd_aio_create_completion);
        // SAFETY: the frame stays where it is until the callback was delivered.
        let created = unsafe { create(frame.as_ptr().cast(), completed, &raw mut completion) };
        let started = match done(created) {
            // SAFETY: all pointers are into the frame or what it owns, which stays until the callback.
            Ok(()) => unsafe { self.start(frame, completion) },
            Err(error) => Err(error.max(ENOMEM)),
        };
        if let Err(error) = started {
            // SAFETY: librbd has refused it, and calls nobody back. The ticket was put there above.
            unsafe {
                if !completion.is_null() {
                    (api.rbd_aio_release)(completion);
                }
                Ticket::from_raw((*frame.as_ptr()).ticket).deliver(-i64::from(error));
            }
        }
        Lent { frame, user }
    }

    /// # Safety
    /// The frame must stay, with what it owns, until the completion was called back.
    unsafe fn start(&self, frame: NonNull<Frame>, completion: Handle) -> Result<(), Errno> {
        let (api, image) = (self.api(), self.raw);
        // SAFETY: an open handle, and the caller's promise; nobody else has these two parts of the frame until the callback was delivered.
        done(unsafe {
            let vectors = &(*frame.as_ptr()).vectors;
            let (first, count) = (vectors.as_ptr(), vectors.len() as c_int);
            match &mut (*frame.as_ptr()).io {
                Io::Read { offset, .. } => {
                    (api.rbd_aio_readv)(image, first, count, *offset, completion)
                }
                Io::Write { offset, .. } => {
                    (api.rbd_aio_writev)(image, first, count, *offset, completion)
                }
                Io::CompareWrite { offset, what } => {
                    let at: *mut CompareWrite = &raw mut **what;
                    (api.rbd_aio_compare_and_write)(
                        image,
                        *offset,
                        COMPARE_WRITE_BYTES,
                        (&raw const (*at).compare).cast(),
                        (&raw const (*at).data).cast(),
                        completion,
                        &raw mut (*at).mismatch,
                        0,
                    ) as c_int
                }
                &mut Io::WriteZeroes {
                    offset,
                    length,
                    thick,
                } => {
                    let flags = if thick { WRITE_ZEROES_THICK } else { 0 };
                    (api.rbd_aio_write_zeroes)(image, offset, length, completion, flags, 0)
                }
                &mut Io::Discard { offset, length } => {
                    (api.rbd_aio_discard)(image, offset, length, completion)
                }
                Io::Flush => (api.rbd_aio_flush)(image, completion),
            }
        })
    }
}

impl Drop for RawImage {
    /// Blocks until librbd has let go of the image.
    fn drop(&mut self) {
        let api = self.api();
        // SAFETY: an open handle, closed once; nothing of it is in flight, for who submits keeps the image. The watch has ended
        // when its target is freed: where ending it failed, it is librbd's still, and leaked.
        unsafe {
            if let Some((handle, target)) = self.watch.take()
                && (api.rbd_update_unwatch)(self.raw, handle) >= 0
            {
                drop(Box::from_raw(target.as_ptr()));
            }
            (api.rbd_close)(self.raw);
        }
    }
}

unsafe extern "C" fn no_progress(_: u64, _: u64, _: *mut c_void) -> c_int {
    0
}

/// Something about an image may have changed.
unsafe extern "C" fn updated(target: *mut c_void) {
    // SAFETY: it is what was given to `rbd_update_watch`, and lives until the watch has ended.
    let on_update = unsafe { &*target.cast_const().cast::<OnUpdate>() };
    on_update();
}

/// One operation has ended. On a thread of librbd's: it does not block, allocate or unwind.
unsafe extern "C" fn completed(completion: Handle, frame: *mut c_void) {
    // SAFETY: it is what was given to `rbd_aio_create_completion`, and lives until the ticket is delivered; until then nobody else
    // touches these two fields. The completion is this callback's to release.
    unsafe {
        let frame = frame.cast_const().cast::<Frame>();
        let ticket = Ticket::from_raw((*frame).ticket);
        let api = (*frame).api;
        let value = (api.rbd_aio_get_return_value)(completion);
        (api.rbd_aio_release)(completion);
        ticket.deliver(value as i64);
    }
}

/// What an operation in flight has of ours, at one address until it ends.
struct Frame {
    api: &'static Api,
    ticket: *mut c_void,
    /// The memory of a transfer.
    vectors: Vec<IoVec>,
    io: Io,
}

impl Frame {
    /// Finds the memory of a transfer.
    fn point(&mut self) {
        self.vectors.clear();
        match &mut self.io {
            Io::Read { into, .. } => self.vectors.extend(into.iter_mut().map(|segment| IoVec {
                base: segment.as_mut_ptr().cast(),
                length: segment.len(),
            })),
            Io::Write { data, .. } => {
                let filled = data.iter().filter(|view| !view.is_empty());
                self.vectors.extend(filled.map(|view| IoVec {
                    base: view.as_ptr().cast_mut().cast(),
                    length: view.len(),
                }));
            }
            _ => {}
        }
    }
}

/// A frame that nothing is in flight with, to be used again.
pub(crate) struct FreeFrame(Box<Frame>);

/// What a native compare-and-write works on.
pub(crate) struct CompareWrite {
    pub(crate) compare: [u8; COMPARE_WRITE_BYTES],
    pub(crate) data: [u8; COMPARE_WRITE_BYTES],
    /// The first byte that differs, as librbd says it.
    pub(crate) mismatch: u64,
}

/// An operation, with its memory. Offsets and lengths are in bytes, and lie within the image.
pub(crate) enum Io {
    Read {
        offset: u64,
        into: Segments,
    },
    Write {
        offset: u64,
        data: Views,
    },
    CompareWrite {
        offset: u64,
        what: Box<CompareWrite>,
    },
    WriteZeroes {
        offset: u64,
        length: usize,
        thick: bool,
    },
    Discard {
        offset: u64,
        length: u64,
    },
    Flush,
}

/// What librbd has of ours until it has called back. Dropped before, it is leaked: librbd may write to it still.
#[must_use = "what is dropped here is lost"]
pub(crate) struct Lent {
    frame: NonNull<Frame>,
    user: u64,
}

impl Lent {
    /// What was lent, of which the operation has ended.
    ///
    /// # Panics
    /// When the delivery is of another operation.
    pub(crate) fn reclaim(self, delivery: &Delivery) -> (Io, FreeFrame) {
        assert_eq!(
            self.user,
            delivery.user(),
            "an operation is ended by its own delivery"
        );
        // SAFETY: leaked when it was submitted. The ticket that was delivered was the callback's, which has ended with it, or that
        // of an operation that librbd has refused.
        let mut frame = unsafe { Box::from_raw(self.frame.as_ptr()) };
        let io = std::mem::replace(&mut frame.io, Io::Flush);
        (io, FreeFrame(frame))
    }
}
