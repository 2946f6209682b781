//! The C interface: as in librados.h and librbd.h of Ceph 16.2, whose documentation is that of these functions.

#![allow(
    missing_docs,
    clippy::missing_safety_doc,
    reason = "the headers of librados and librbd describe these functions"
)]

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{
    BLOCKLIST_SECONDS, Client, Cluster, Completion, EBUSY, EEXIST, EINVAL, ENOENT, EPERM, ERANGE,
    EROFS, ESHUTDOWN, ETIMEDOUT, Image, OBJECT_BYTES, Op, Open, Owner, What, cluster, lock,
    next_number, text,
};

type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void);

struct Rados {
    configuration: Mutex<HashMap<String, String>>,
    connected: Mutex<Option<Arc<Client>>>,
}

struct IoContext {
    client: Arc<Client>,
    pool: String,
    namespace: Mutex<String>,
}

struct Handle {
    open: Arc<Open>,
}

struct Aio {
    callback: Callback,
    argument: *mut c_void,
    result: i64,
}

/// What a handle points to.
unsafe fn at<'handle, T>(handle: *mut c_void) -> &'handle T {
    // SAFETY: handles come from `handle_of`, and are used until they are closed.
    unsafe { &*handle.cast::<T>() }
}

fn handle_of<T>(value: T) -> *mut c_void {
    Box::into_raw(Box::new(value)).cast()
}

fn result(result: Result<(), i64>) -> c_int {
    result.map_or_else(|errno| -(errno as c_int), |()| 0)
}

fn c_text(text: &str) -> *mut c_char {
    CString::new(text).unwrap_or_default().into_raw()
}

unsafe fn free_text(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: made by `c_text`.
        drop(unsafe { CString::from_raw(text) });
    }
}

pub(crate) fn complete(completion: Completion, value: i64) {
    let aio = completion.0 as *mut Aio;
    // SAFETY: made by `rbd_aio_create_completion`, and released by the callback at the earliest.
    unsafe {
        (*aio).result = value;
        let (callback, argument) = ((*aio).callback, (*aio).argument);
        callback(aio.cast(), argument);
    }
}

/// Tells a cluster what to do wrong, or asks it something.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fake_librbd_command(name: *const c_char, command: *const c_char) -> i64 {
    // SAFETY: strings that end.
    unsafe { cluster(&text(name)).command(&text(command)) }
}

/// Ceph's defaults of options that are asked for.
const USUAL: [(&str, &str); 3] = [
    ("librados_thread_count", "2"),
    ("ms_async_op_threads", "3"),
    ("ms_tcp_prefetch_max_size", "4096"),
];

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_create2(
    handle: *mut *mut c_void,
    _cluster: *const c_char,
    _name: *const c_char,
    _flags: u64,
) -> c_int {
    let usual = USUAL.map(|(option, value)| (option.to_owned(), value.to_owned()));
    let rados = Rados {
        configuration: Mutex::new(usual.into()),
        connected: Mutex::default(),
    };
    // SAFETY: the caller's variable.
    unsafe { *handle = handle_of(rados) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_conf_read_file(rados: *mut c_void, path: *const c_char) -> c_int {
    // SAFETY: as in librados.h.
    let (rados, path) = unsafe { (at::<Rados>(rados), text(path)) };
    let Ok(file) = std::fs::read_to_string(path) else {
        return -(ENOENT as c_int);
    };
    let pairs = file.lines().filter_map(|line| line.split_once('='));
    lock(&rados.configuration).extend(pairs.map(|(key, value)| {
        let key = key.trim().replace(' ', "_");
        (key, value.trim().to_owned())
    }));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_conf_set(
    rados: *mut c_void,
    option: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: as in librados.h.
    let (rados, option, value) = unsafe { (at::<Rados>(rados), text(option), text(value)) };
    lock(&rados.configuration).insert(option, value);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_conf_get(
    rados: *mut c_void,
    option: *const c_char,
    buffer: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: as in librados.h.
    let (rados, option) = unsafe { (at::<Rados>(rados), text(option)) };
    let value = lock(&rados.configuration).get(&option).cloned();
    // SAFETY: the buffer is as long as said.
    value.map_or(-(ENOENT as c_int), |value| unsafe {
        copy(&value, buffer, length)
    })
}

unsafe fn copy(value: &str, buffer: *mut c_char, length: usize) -> c_int {
    if value.len() >= length {
        return -(ERANGE as c_int);
    }
    // SAFETY: there is room for it and the zero byte.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr().cast(), buffer, value.len());
        *buffer.add(value.len()) = 0;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_connect(rados: *mut c_void) -> c_int {
    // SAFETY: as in librados.h.
    let rados = unsafe { at::<Rados>(rados) };
    let Some(name) = lock(&rados.configuration).get("mon_host").cloned() else {
        return -(ENOENT as c_int);
    };
    let cluster = cluster(&name);
    if let Err(errno) = cluster.pass("connect") {
        return -(errno as c_int);
    }
    let state = lock(&cluster.state);
    if state.monitors_down {
        return -(ETIMEDOUT as c_int);
    }
    if state.key_refused {
        return -(EPERM as c_int);
    }
    // What nobody has set is as the monitors say.
    let mut configuration = lock(&rados.configuration);
    for (option, usual) in USUAL {
        if let (Some(has), Some(said)) = (configuration.get_mut(option), state.config.get(option))
            && has == usual
        {
            has.clone_from(said);
        }
    }
    drop(state);
    let configuration = configuration.clone();
    if let Some(file) = configuration.get("fake_commands") {
        cluster.follow(file);
    }
    *lock(&rados.connected) = Some(Client::connect(&cluster, configuration));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_shutdown(rados: *mut c_void) {
    // SAFETY: made by `rados_create2`, and closed once.
    let rados = unsafe { Box::from_raw(rados.cast::<Rados>()) };
    if let Some(client) = &*lock(&rados.connected) {
        client.end();
    }
}

fn client_of(rados: &Rados) -> Result<Arc<Client>, i64> {
    lock(&rados.connected).clone().ok_or(EINVAL)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_ioctx_create(
    rados: *mut c_void,
    pool: *const c_char,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: as in librados.h.
    let (rados, pool) = unsafe { (at::<Rados>(rados), text(pool)) };
    if pool.starts_with("missing") {
        return -(ENOENT as c_int);
    }
    result(client_of(rados).map(|client| {
        let io = IoContext {
            client,
            pool,
            namespace: Mutex::default(),
        };
        // SAFETY: the caller's variable.
        unsafe { *context = handle_of(io) };
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_ioctx_destroy(context: *mut c_void) {
    // SAFETY: made by `rados_ioctx_create`, and destroyed once.
    drop(unsafe { Box::from_raw(context.cast::<IoContext>()) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_ioctx_set_namespace(context: *mut c_void, name: *const c_char) {
    // SAFETY: as in librados.h.
    unsafe { *lock(&at::<IoContext>(context).namespace) = text(name) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_pool_reverse_lookup(
    rados: *mut c_void,
    number: i64,
    buffer: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: as in librados.h.
    let rados = unsafe { at::<Rados>(rados) };
    let Ok(client) = client_of(rados) else {
        return -(EINVAL as c_int);
    };
    let found = lock(&client.cluster.state).pool_of(number);
    match found {
        // SAFETY: the buffer is as long as said.
        Some(name) => match unsafe { copy(&name, buffer, length) } {
            0 => name.len() as c_int,
            error => error,
        },
        None => -(ENOENT as c_int),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_get_data_pool_id(image: *mut c_void) -> i64 {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let pool = lock(&open.image.data_pool).clone();
    lock(&open.client.cluster.state).number_of(&pool)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_set_pool_full_try(_context: *mut c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_getaddrs(rados: *mut c_void, addresses: *mut *mut c_char) -> c_int {
    // SAFETY: as in librados.h.
    let rados = unsafe { at::<Rados>(rados) };
    result(client_of(rados).map(|client| {
        // SAFETY: the caller's variable.
        unsafe { *addresses = c_text(&client.address) };
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_buffer_free(buffer: *mut c_char) {
    // SAFETY: as in librados.h.
    unsafe { free_text(buffer) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_cluster_fsid(
    rados: *mut c_void,
    buffer: *mut c_char,
    length: usize,
) -> c_int {
    // SAFETY: as in librados.h.
    let rados = unsafe { at::<Rados>(rados) };
    match client_of(rados) {
        // SAFETY: the buffer is as long as said.
        Ok(client) => unsafe { copy(&client.cluster.name, buffer, length) },
        Err(errno) => -(errno as c_int),
    }
}

/// Waits for as long as the monitors are down.
fn ask_monitors(cluster: &Cluster) {
    let state = lock(&cluster.state);
    let waited = cluster
        .changed
        .wait_while(state, |state| state.monitors_down);
    drop(waited.unwrap_or_else(PoisonError::into_inner));
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_blocklist_add(
    rados: *mut c_void,
    address: *mut c_char,
    seconds: u32,
) -> c_int {
    // SAFETY: as in librados.h.
    let (rados, address) = unsafe { (at::<Rados>(rados), text(address)) };
    result(client_of(rados).map(|client| {
        ask_monitors(&client.cluster);
        let mut state = lock(&client.cluster.state);
        state.blocklist.insert(address, seconds);
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rados_wait_for_latest_osdmap(rados: *mut c_void) -> c_int {
    // SAFETY: as in librados.h.
    let rados = unsafe { at::<Rados>(rados) };
    result(client_of(rados).map(|client| ask_monitors(&client.cluster)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_version(major: *mut c_int, minor: *mut c_int, extra: *mut c_int) {
    let told = std::env::var("FAKE_LIBRBD_VERSION").unwrap_or_default();
    let mut numbers = told.split('.').map_while(|number| number.parse().ok());
    let version = match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(first), Some(second), Some(third)) => (first, second, third),
        _ => (1, 16, 0),
    };
    // SAFETY: the caller's variables.
    unsafe { (*major, *minor, *extra) = version };
}

impl IoContext {
    fn path(&self, image: &str) -> String {
        match &**lock(&self.namespace) {
            "" => format!("{}/{image}", self.pool),
            namespace => format!("{}/{namespace}/{image}", self.pool),
        }
    }

    fn image(&self, name: &str) -> Result<Arc<Image>, i64> {
        if self.client.is_blocklisted() {
            return Err(ESHUTDOWN);
        }
        let state = lock(&self.client.cluster.state);
        state.images.get(&self.path(name)).cloned().ok_or(ENOENT)
    }
}

unsafe fn open(
    context: *mut c_void,
    name: *const c_char,
    image: *mut *mut c_void,
    snapshot: *const c_char,
    read_only: bool,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (context, name) = unsafe { (at::<IoContext>(context), text(name)) };
    let passed = context.client.cluster.pass("open");
    let opened = passed
        .and_then(|()| context.image(&name))
        .and_then(|stored| {
            let held = match snapshot.is_null() {
                true => None,
                false => {
                    // SAFETY: a string that ends.
                    let snapshot = unsafe { text(snapshot) };
                    let held = lock(&stored.snapshots).get(&snapshot).cloned();
                    Some(held.ok_or(ENOENT)?)
                }
            };
            let read_only = read_only || held.is_some();
            if !read_only {
                lock(&stored.watchers).push(context.client.address.clone());
            }
            Ok(Open {
                image: stored,
                client: Arc::clone(&context.client),
                read_only,
                snapshot: held,
                asked: AtomicBool::new(false),
            })
        });
    result(opened.map(|open| {
        let open = Arc::new(open);
        // SAFETY: the caller's variable.
        unsafe { *image = handle_of(Handle { open }) };
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_open(
    context: *mut c_void,
    name: *const c_char,
    image: *mut *mut c_void,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { open(context, name, image, snapshot, false) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_open_read_only(
    context: *mut c_void,
    name: *const c_char,
    image: *mut *mut c_void,
    snapshot: *const c_char,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { open(context, name, image, snapshot, true) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_close(image: *mut c_void) -> c_int {
    // SAFETY: made by `open`, and closed once.
    let handle = unsafe { Box::from_raw(image.cast::<Handle>()) };
    let closed = handle.open.client.cluster.pass("close");
    let (open, address) = (&handle.open, &handle.open.client.address);
    // In this order, as librbd: who watches no more has no lock. A client that is refused, or is not answered, cannot give it up.
    let gives_up = closed.is_ok() && !open.read_only && !open.client.is_blocklisted();
    lock(&open.image.owner).take_if(|owner| gives_up && owner.address == *address);
    let (mut watchers, mut lost) = (lock(&open.image.watchers), lock(&open.image.lost_watchers));
    for watchers in [&mut watchers, &mut lost] {
        if !open.read_only
            && let Some(at) = watchers.iter().position(|watcher| watcher == address)
        {
            watchers.swap_remove(at);
            break;
        }
    }
    result(closed)
}

/// `rbd_image_info_t`.
#[repr(C)]
pub struct ImageInfo {
    size: u64,
    obj_size: u64,
    num_objs: u64,
    order: c_int,
    block_name_prefix: [c_char; 24],
    parent_pool: i64,
    parent_name: [c_char; 96],
}

unsafe fn opened<'handle>(image: *mut c_void) -> &'handle Arc<Open> {
    // SAFETY: as in librbd.h.
    unsafe { &at::<Handle>(image).open }
}

fn bytes_of(open: &Open) -> u64 {
    match &open.snapshot {
        Some(snapshot) => snapshot.len() as u64,
        None => lock(&open.image.data).len() as u64,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_stat(
    image: *mut c_void,
    info: *mut ImageInfo,
    _length: usize,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe {
        (*info).size = bytes_of(opened(image));
        (*info).obj_size = OBJECT_BYTES;
        (*info).order = 22;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_get_size(image: *mut c_void, size: *mut u64) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let bytes = bytes_of(open);
    let cluster = &open.client.cluster;
    let mut state = lock(&cluster.state);
    state.sizes_asked += 1;
    let hangs = state.waiting("size") == 0;
    drop(state);
    let passed = if hangs { cluster.pass("size") } else { Ok(()) };
    // SAFETY: the caller's variable.
    unsafe { *size = bytes };
    result(passed)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_get_features(image: *mut c_void, features: *mut u64) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { *features = opened(image).image.features.load(Ordering::Relaxed) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_get_id(image: *mut c_void, id: *mut c_char, length: usize) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { copy(&format!("{:x}", opened(image).image.id), id, length) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_get_stripe_unit(image: *mut c_void, bytes: *mut u64) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { *bytes = lock(&opened(image).image.striping).unit_bytes };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_get_stripe_count(image: *mut c_void, count: *mut u64) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { *count = lock(&opened(image).image.striping).count };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_resize2(
    image: *mut c_void,
    size: u64,
    may_shrink: bool,
    _progress: *const c_void,
    _argument: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    if open.read_only {
        return -(EROFS as c_int);
    }
    if size < bytes_of(open) && !may_shrink {
        return -(EINVAL as c_int);
    }
    if let Err(errno) = open.client.cluster.pass("resize") {
        return -(errno as c_int);
    }
    open.image.resize(size);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_image_options_create(options: *mut *mut c_void) {
    // SAFETY: the caller's variable.
    unsafe { *options = handle_of(NewImage::default()) };
}

/// What a new image is to be like.
#[derive(Default)]
struct NewImage {
    data_pool: Mutex<Option<String>>,
}

/// `RBD_IMAGE_OPTION_DATA_POOL`.
const DATA_POOL: c_int = 10;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_image_options_destroy(options: *mut c_void) {
    // SAFETY: made by `rbd_image_options_create`, and destroyed once.
    drop(unsafe { Box::from_raw(options.cast::<NewImage>()) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_image_options_set_uint64(
    _options: *mut c_void,
    _option: c_int,
    _value: u64,
) -> c_int {
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_image_options_set_string(
    options: *mut c_void,
    option: c_int,
    value: *const c_char,
) -> c_int {
    if option == DATA_POOL {
        // SAFETY: as in librbd.h.
        let (new, value) = unsafe { (at::<NewImage>(options), text(value)) };
        *lock(&new.data_pool) = Some(value);
    }
    0
}

fn add(context: &IoContext, name: &str, image: Arc<Image>) -> Result<(), i64> {
    let mut state = lock(&context.client.cluster.state);
    let path = context.path(name);
    if state.images.contains_key(&path) {
        return Err(EEXIST);
    }
    let mut data_pool = lock(&image.data_pool);
    if data_pool.is_empty() {
        data_pool.clone_from(&context.pool);
    }
    drop(data_pool);
    state.images.insert(path, image);
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_create4(
    context: *mut c_void,
    name: *const c_char,
    size: u64,
    options: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (context, name) = unsafe { (at::<IoContext>(context), text(name)) };
    // SAFETY: as in librbd.h.
    let asked = lock(&unsafe { at::<NewImage>(options) }.data_pool).clone();
    let image = Image::new(size);
    *lock(&image.data_pool) = asked.unwrap_or_default();
    result(add(context, &name, image))
}

/// `rbd_image_spec_t`.
#[repr(C)]
pub struct ImageSpec {
    id: *mut c_char,
    name: *mut c_char,
}

/// Writes a list where there is room for it, and says how long it is.
unsafe fn write_list<T>(list: Vec<T>, items: *mut T, count: *mut usize) -> c_int {
    // SAFETY: the caller says how much room there is.
    unsafe {
        let room = *count;
        *count = list.len();
        if room < list.len() {
            return -(ERANGE as c_int);
        }
        for (at, item) in list.into_iter().enumerate() {
            items.add(at).write(item);
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_list2(
    context: *mut c_void,
    images: *mut ImageSpec,
    count: *mut usize,
) -> c_int {
    // SAFETY: as in librbd.h.
    let context = unsafe { at::<IoContext>(context) };
    let prefix = context.path("");
    let state = lock(&context.client.cluster.state);
    let names = state
        .images
        .keys()
        .filter_map(|path| path.strip_prefix(&prefix));
    let names: Vec<_> = names.filter(|name| !name.contains('/')).collect();
    // SAFETY: the caller says how much room there is.
    unsafe {
        if *count < names.len() {
            *count = names.len();
            return -(ERANGE as c_int);
        }
        let spec = |name: &&str| ImageSpec {
            id: c_text("1"),
            name: c_text(name),
        };
        write_list(names.iter().map(spec).collect(), images, count)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_image_spec_list_cleanup(images: *mut ImageSpec, count: usize) {
    // SAFETY: written by `rbd_list2`.
    for spec in unsafe { std::slice::from_raw_parts(images, count) } {
        // SAFETY: as above.
        unsafe {
            free_text(spec.id);
            free_text(spec.name);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_trash_move(
    context: *mut c_void,
    name: *const c_char,
    _seconds: u64,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (context, name) = unsafe { (at::<IoContext>(context), text(name)) };
    let mut state = lock(&context.client.cluster.state);
    let path = context.path(&name);
    let Some(image) = state.images.get(&path) else {
        return -(ENOENT as c_int);
    };
    if !lock(&image.watchers).is_empty() {
        return -(EBUSY as c_int);
    }
    let image = state.images.remove(&path).expect("it is there");
    let id = format!("{:x}", next_number());
    state.trash.insert(id, (name, image));
    0
}

/// `rbd_trash_image_info_t`.
#[repr(C)]
pub struct TrashInfo {
    id: *mut c_char,
    name: *mut c_char,
    source: c_int,
    deletion_time: i64,
    deferment_end_time: i64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_trash_list(
    context: *mut c_void,
    entries: *mut TrashInfo,
    count: *mut usize,
) -> c_int {
    // SAFETY: as in librbd.h.
    let context = unsafe { at::<IoContext>(context) };
    let state = lock(&context.client.cluster.state);
    let info = |(id, (name, _)): (&String, &(String, Arc<Image>))| TrashInfo {
        id: c_text(id),
        name: c_text(name),
        source: 0,
        deletion_time: 0,
        deferment_end_time: 0,
    };
    // SAFETY: the caller says how much room there is.
    unsafe { write_list(state.trash.iter().map(info).collect(), entries, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_trash_list_cleanup(entries: *mut TrashInfo, count: usize) {
    // SAFETY: written by `rbd_trash_list`.
    for info in unsafe { std::slice::from_raw_parts(entries, count) } {
        // SAFETY: as above.
        unsafe {
            free_text(info.id);
            free_text(info.name);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_trash_restore(
    context: *mut c_void,
    id: *const c_char,
    name: *const c_char,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (context, id, name) = unsafe { (at::<IoContext>(context), text(id), text(name)) };
    let cluster = &context.client.cluster;
    let found = lock(&cluster.state).trash.get(&id).cloned();
    let restored = found
        .ok_or(ENOENT)
        .and_then(|(_, image)| add(context, &name, image));
    if restored.is_ok() {
        lock(&cluster.state).trash.remove(&id);
    }
    result(restored)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_snap_create(image: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: as in librbd.h.
    let (open, name) = unsafe { (opened(image), text(name)) };
    let data = lock(&open.image.data).clone();
    lock(&open.image.snapshots).insert(name, data);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_snap_remove(image: *mut c_void, name: *const c_char) -> c_int {
    // SAFETY: as in librbd.h.
    let (open, name) = unsafe { (opened(image), text(name)) };
    let removed = lock(&open.image.snapshots).remove(&name);
    result(removed.map(drop).ok_or(ENOENT))
}

/// `rbd_snap_info_t`.
#[repr(C)]
pub struct SnapInfo {
    id: u64,
    size: u64,
    name: *const c_char,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_snap_list(
    image: *mut c_void,
    snaps: *mut SnapInfo,
    count: *mut c_int,
) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let snapshots = lock(&open.image.snapshots);
    let needed = snapshots.len() + 1;
    // SAFETY: the caller says how much room there is; the list ends with one without a name.
    unsafe {
        if (*count as usize) < needed {
            *count = needed as c_int;
            return -(ERANGE as c_int);
        }
        for (at, (name, data)) in snapshots.iter().enumerate() {
            snaps.add(at).write(SnapInfo {
                id: at as u64 + 1,
                size: data.len() as u64,
                name: c_text(name),
            });
        }
        snaps.add(snapshots.len()).write(SnapInfo {
            id: 0,
            size: 0,
            name: std::ptr::null(),
        });
    }
    snapshots.len() as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_snap_list_end(snaps: *mut SnapInfo) {
    let mut snap = snaps;
    // SAFETY: written by `rbd_snap_list`, which ends the list with one without a name.
    unsafe {
        while !(*snap).name.is_null() {
            free_text((*snap).name.cast_mut());
            snap = snap.add(1);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_clone3(
    from: *mut c_void,
    image: *const c_char,
    snapshot: *const c_char,
    to: *mut c_void,
    name: *const c_char,
    _options: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (from, to) = unsafe { (at::<IoContext>(from), at::<IoContext>(to)) };
    // SAFETY: strings that end.
    let (image, snapshot, name) = unsafe { (text(image), text(snapshot), text(name)) };
    result(from.image(&image).and_then(|stored| {
        let data = lock(&stored.snapshots).get(&snapshot).cloned();
        let data = data.ok_or(ENOENT)?;
        let made = Image::new(0);
        *lock(&made.data) = data;
        add(to, &name, made)
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_lock_acquire(image: *mut c_void, _mode: c_int) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    if open.client.is_blocklisted() {
        return -(ESHUTDOWN as c_int);
    }
    if let Err(errno) = open.client.cluster.pass("acquire") {
        return -(errno as c_int);
    }
    open.asked.store(true, Ordering::Relaxed);
    let mut owner = lock(&open.image.owner);
    if owner
        .as_ref()
        .is_some_and(|owner| owner.kept && owner.address != open.client.address)
    {
        return -(EROFS as c_int);
    }
    *owner = Some(Owner {
        address: open.client.address.clone(),
        kept: true,
    });
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_list_lockers(
    image: *mut c_void,
    exclusive: *mut c_int,
    tag: *mut c_char,
    tag_length: *mut usize,
    clients: *mut c_char,
    clients_length: *mut usize,
    cookies: *mut c_char,
    cookies_length: *mut usize,
    addresses: *mut c_char,
    addresses_length: *mut usize,
) -> isize {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let owner = lock(&open.image.owner).clone();
    let texts = match &owner {
        Some(owner) => ["internal", "client.1", "auto 1", owner.address.as_str()],
        None => [""; 4],
    };
    let buffers = [
        (tag, tag_length),
        (clients, clients_length),
        (cookies, cookies_length),
        (addresses, addresses_length),
    ];
    let mut result = isize::from(owner.is_some());
    for (text, (buffer, length)) in texts.into_iter().zip(buffers) {
        // SAFETY: the caller says how much room there is.
        unsafe {
            *exclusive = 1;
            if copy(text, buffer, *length) != 0 {
                result = -(ERANGE as isize);
            }
            *length = text.len() + 1;
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_lock_get_owners(
    image: *mut c_void,
    mode: *mut c_int,
    owners: *mut *mut c_char,
    count: *mut usize,
) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    if open.read_only {
        // librbd has no exclusive lock of such an image.
        return -(EINVAL as c_int);
    }
    let owner = lock(&open.image.owner).clone();
    let Some(owner) = owner else {
        return -(ENOENT as c_int);
    };
    // SAFETY: the caller says how much room there is.
    unsafe {
        *mode = 0;
        write_list(vec![c_text(&owner.address)], owners, count)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_lock_get_owners_cleanup(owners: *mut *mut c_char, count: usize) {
    // SAFETY: written by `rbd_lock_get_owners`.
    for &owner in unsafe { std::slice::from_raw_parts(owners, count) } {
        // SAFETY: as above.
        unsafe { free_text(owner) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_lock_break(
    image: *mut c_void,
    _mode: c_int,
    holder: *const c_char,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (open, holder) = unsafe { (opened(image), text(holder)) };
    if let Err(errno) = open.client.cluster.pass("break") {
        // It has been given up meanwhile.
        if errno == ENOENT {
            lock(&open.image.owner).take();
        }
        return -(errno as c_int);
    }
    let taken = lock(&open.image.owner).take_if(|owner| owner.address == holder);
    if taken.is_none() {
        return -(ENOENT as c_int);
    }
    let options = open.configuration();
    let option = |name| options.get(name).map(|(value, _)| &**value);
    if option("rbd_blocklist_on_break_lock") != Some("false") {
        // As librbd 16 does: monitors refuse what it makes of the option.
        if option("rbd_blocklist_expire_seconds").is_some_and(|seconds| seconds != "0") {
            lock(&open.image.owner).clone_from(&taken);
            return -(EINVAL as c_int);
        }
        let mut state = lock(&open.client.cluster.state);
        state.blocklist.insert(holder, BLOCKLIST_SECONDS);
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_is_exclusive_lock_owner(
    image: *mut c_void,
    owns: *mut c_int,
) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let owner = lock(&open.image.owner);
    let own = owner
        .as_ref()
        .is_some_and(|owner| owner.address == open.client.address);
    // SAFETY: the caller's variable.
    unsafe { *owns = c_int::from(own) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_metadata_set(
    image: *mut c_void,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (open, key, value) = unsafe { (opened(image), text(key), text(value)) };
    if let Err(errno) = open.client.cluster.pass("metadata") {
        return -(errno as c_int);
    }
    lock(&open.image.metadata).insert(key, value);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_metadata_get(
    image: *mut c_void,
    key: *const c_char,
    value: *mut c_char,
    length: *mut usize,
) -> c_int {
    // SAFETY: as in librbd.h.
    let (open, key) = unsafe { (opened(image), text(key)) };
    let Some(stored) = lock(&open.image.metadata).get(&key).cloned() else {
        return -(ENOENT as c_int);
    };
    // SAFETY: the buffer is as long as said.
    unsafe {
        let room = *length;
        *length = stored.len() + 1;
        copy(&stored, value, room)
    }
}

/// `rbd_image_watcher_t`.
#[repr(C)]
pub struct WatcherInfo {
    addr: *mut c_char,
    id: i64,
    cookie: u64,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_watchers_list(
    image: *mut c_void,
    watchers: *mut WatcherInfo,
    count: *mut usize,
) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let cluster = &open.client.cluster;
    let mut state = lock(&cluster.state);
    state.watchers_asked += 1;
    state.asking += 1;
    let waited = cluster.changed.wait_while(state, |state| {
        let answered = open.image.watchers_asked.load(Ordering::Relaxed);
        let of = &mut state.watchers_hang_of.iter();
        let hangs = of.any(|(hung, after)| Arc::ptr_eq(hung, &open.image) && answered >= *after);
        state.watchers_hang || hangs
    });
    let mut state = waited.unwrap_or_else(PoisonError::into_inner);
    state.asking -= 1;
    drop(state);
    open.image.watchers_asked.fetch_add(1, Ordering::Relaxed);
    if open.client.is_blocklisted() {
        return -(ESHUTDOWN as c_int);
    }
    let list = lock(&open.image.watchers).clone();
    let info = |address: &String| WatcherInfo {
        addr: c_text(address),
        id: 1,
        cookie: 1,
    };
    // SAFETY: the caller says how much room there is.
    unsafe { write_list(list.iter().map(info).collect(), watchers, count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_watchers_list_cleanup(watchers: *mut WatcherInfo, count: usize) {
    // SAFETY: written by `rbd_watchers_list`.
    for info in unsafe { std::slice::from_raw_parts(watchers, count) } {
        // SAFETY: as above.
        unsafe { free_text(info.addr) };
    }
}

/// `rbd_config_option_t`.
#[repr(C)]
pub struct ConfigOption {
    name: *mut c_char,
    value: *mut c_char,
    source: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_config_image_list(
    image: *mut c_void,
    options: *mut ConfigOption,
    count: *mut c_int,
) -> c_int {
    // SAFETY: as in librbd.h.
    let configuration = unsafe { opened(image) }.configuration();
    // SAFETY: the caller says how much room there is.
    unsafe {
        if (*count as usize) < configuration.len() {
            *count = configuration.len() as c_int;
            return -(ERANGE as c_int);
        }
        *count = configuration.len() as c_int;
        for (at, (name, (value, of_image))) in configuration.iter().enumerate() {
            options.add(at).write(ConfigOption {
                name: c_text(name),
                value: c_text(value),
                source: if *of_image { 2 } else { 0 },
            });
        }
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_config_image_list_cleanup(options: *mut ConfigOption, count: c_int) {
    // SAFETY: written by `rbd_config_image_list`.
    for option in unsafe { std::slice::from_raw_parts(options, count as usize) } {
        // SAFETY: as above.
        unsafe {
            free_text(option.name);
            free_text(option.value);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_update_watch(
    image: *mut c_void,
    handle: *mut u64,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let number = next_number();
    lock(&open.image.watches).insert(number, (function, argument as usize));
    // SAFETY: the caller's variable.
    unsafe { *handle = number };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_update_unwatch(image: *mut c_void, handle: u64) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    let mut watches = lock(&open.image.watches);
    watches.remove(&handle);
    lock(&open.image.lost_watches).remove(&handle);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_create_completion(
    argument: *mut c_void,
    callback: Callback,
    completion: *mut *mut c_void,
) -> c_int {
    let aio = Aio {
        callback,
        argument,
        result: 0,
    };
    // SAFETY: the caller's variable.
    unsafe { *completion = handle_of(aio) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_get_return_value(completion: *mut c_void) -> isize {
    // SAFETY: as in librbd.h.
    unsafe { at::<Aio>(completion).result as isize }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_release(completion: *mut c_void) {
    // SAFETY: made by `rbd_aio_create_completion`, and released once.
    drop(unsafe { Box::from_raw(completion.cast::<Aio>()) });
}

unsafe fn start(image: *mut c_void, offset: u64, what: What, completion: *mut c_void) -> c_int {
    // SAFETY: as in librbd.h.
    let open = unsafe { opened(image) };
    open.client.start(Op {
        open: Arc::clone(open),
        offset,
        what,
        completion: Completion(completion as usize),
    });
    0
}

unsafe fn pieces(vectors: *const libc::iovec, count: c_int) -> Vec<(usize, usize)> {
    // SAFETY: so many are there.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count as usize) };
    let piece = |vector: &libc::iovec| (vector.iov_base as usize, vector.iov_len);
    vectors.iter().map(piece).collect()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_read(
    image: *mut c_void,
    offset: u64,
    length: usize,
    buffer: *mut c_char,
    completion: *mut c_void,
) -> c_int {
    let what = What::Read(vec![(buffer as usize, length)]);
    // SAFETY: as in librbd.h.
    unsafe { start(image, offset, what, completion) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_readv(
    image: *mut c_void,
    vectors: *const libc::iovec,
    count: c_int,
    offset: u64,
    completion: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe {
        start(
            image,
            offset,
            What::Read(pieces(vectors, count)),
            completion,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_write(
    image: *mut c_void,
    offset: u64,
    length: usize,
    buffer: *const c_char,
    completion: *mut c_void,
) -> c_int {
    let what = What::Write(vec![(buffer as usize, length)]);
    // SAFETY: as in librbd.h.
    unsafe { start(image, offset, what, completion) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_writev(
    image: *mut c_void,
    vectors: *const libc::iovec,
    count: c_int,
    offset: u64,
    completion: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe {
        start(
            image,
            offset,
            What::Write(pieces(vectors, count)),
            completion,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_discard(
    image: *mut c_void,
    offset: u64,
    length: u64,
    completion: *mut c_void,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { start(image, offset, What::Discard(length), completion) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_write_zeroes(
    image: *mut c_void,
    offset: u64,
    length: usize,
    completion: *mut c_void,
    _zero_flags: c_int,
    _op_flags: c_int,
) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { start(image, offset, What::Zero(length as u64), completion) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_compare_and_write(
    image: *mut c_void,
    offset: u64,
    length: usize,
    compare: *const c_char,
    data: *const c_char,
    completion: *mut c_void,
    mismatch: *mut u64,
    _op_flags: c_int,
) -> isize {
    let what = What::CompareWrite {
        length,
        compare: compare as usize,
        data: data as usize,
        mismatch: mismatch as usize,
    };
    // SAFETY: as in librbd.h.
    unsafe { start(image, offset, what, completion) as isize }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rbd_aio_flush(image: *mut c_void, completion: *mut c_void) -> c_int {
    // SAFETY: as in librbd.h.
    unsafe { start(image, 0, What::Flush, completion) }
}
