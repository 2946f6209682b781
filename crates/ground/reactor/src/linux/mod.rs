//! The real machine: Linux with io_uring, 6.1 or newer.
//!
//! [`LinuxSystem`] opens files and sockets and starts reactors, each with a ring of its own. What of the kernel is newer
//! than Linux 6.1 is a [`Feature`]: probed once, used where it is there, and possible to force off. Where io_uring is missing
//! or forbidden, [`Unavailable`] says which of the reasons it is and how to mend it.

mod buffers;
mod capture;
mod card;
mod datagrams;
mod feature;
mod file;
pub mod handles;
mod holders;
pub mod limits;
mod notify;
mod nvme;
mod offload;
mod ranges;
mod ring;
mod schedule;
mod slot;
mod socket;
mod unavailable;
mod uring;

use std::collections::{HashMap, HashSet};
use std::fs::File as StdFile;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::OFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use weir_memory::Pool;

pub use buffers::ReceiveBuffers;
pub use capture::{Capture, CaptureOptions, FilterInstruction, Frame, InterfaceInfo};
pub use datagrams::{Datagram, DatagramOptions, DatagramSocket};
pub use feature::{Feature, FeatureState, Features, UnknownFeature};
pub use unavailable::{KERNEL_NEEDED, Unavailable};

use crate::{
    AdminQuery, File, FileInfo, Handle, Instant, Listener, OpenOptions, ReactorConfig, ReactorMain,
    ReactorThread, Remote, Runner, Shutdown, Socket, SocketOptions, SocketReport, Sought, System,
};
use offload::Offload;
use uring::Uring;

/// How a [`LinuxSystem`] makes its rings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinuxConfig {
    /// Features that are not used even where they are there.
    pub forced_off: Vec<Feature>,
    /// Submissions that a ring holds, a power of two up to 32768. More in one turn take another system call.
    pub ring_entries: u32,
    /// The buffers of each reactor for receives without a buffer of their own.
    pub receive_buffers: ReceiveBuffers,
}

impl Default for LinuxConfig {
    fn default() -> Self {
        LinuxConfig {
            forced_off: Vec::new(),
            ring_entries: 512,
            receive_buffers: ReceiveBuffers::default(),
        }
    }
}

/// The most entries of a ring (IORING_MAX_ENTRIES).
const RING_ENTRIES_MAX: u32 = 32768;

/// What names one medium: (device, inode), or (0, device number) of a block device.
type Identity = (u64, u64);

/// The media that this process has open for writing.
#[derive(Default)]
struct Written {
    media: HashSet<Identity>,
    by_handle: HashMap<Handle, Identity>,
}

/// The machine that the process runs on.
pub struct LinuxSystem {
    config: LinuxConfig,
    features: Features,
    written: Mutex<Written>,
    offload: Arc<Offload>,
}

impl std::fmt::Debug for LinuxSystem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("LinuxSystem")
            .field("config", &self.config)
            .field("features", &self.features)
            .finish_non_exhaustive()
    }
}

impl LinuxSystem {
    /// Checks that io_uring works as the driver needs it, and probes the features beyond.
    ///
    /// # Errors
    /// [`Unavailable`]: why io_uring cannot be used, or what of the configuration cannot be.
    pub fn new(config: LinuxConfig) -> Result<Arc<Self>, Unavailable> {
        let entries = config.ring_entries;
        if !entries.is_power_of_two() || entries > RING_ENTRIES_MAX {
            return Err(Unavailable::Configuration(format!(
                "ring entries are a power of two up to {RING_ENTRIES_MAX}, and {entries} is not"
            )));
        }
        unavailable::check(config.receive_buffers)?;
        let features = Features::probe(&config.forced_off, unavailable::has_block_discard());
        Ok(Arc::new(LinuxSystem {
            config,
            features,
            written: Mutex::default(),
            offload: Arc::default(),
        }))
    }

    /// How it makes its rings.
    #[must_use]
    pub fn config(&self) -> &LinuxConfig {
        &self.config
    }

    /// Which features beyond Linux 6.1 are used.
    #[must_use]
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Takes over a listening socket that another process opened and handed on (as systemd does).
    ///
    /// # Errors
    /// `InvalidInput` when it is not a TCP socket that listens; or the system's.
    pub fn adopt_listener(self: &Arc<Self>, descriptor: OwnedFd) -> io::Result<Listener> {
        let (descriptor, address) = socket::adopt(descriptor)?;
        Ok(Listener::new(self.socket_of(descriptor), address))
    }

    fn socket_of(self: &Arc<Self>, descriptor: OwnedFd) -> Socket {
        let system: Arc<dyn System> = Arc::clone(self) as Arc<dyn System>;
        Socket::new(Handle(descriptor.into_raw_fd() as u32), system)
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Time on CLOCK_MONOTONIC.
fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// A file that is another's to close.
fn borrow(handle: Handle) -> ManuallyDrop<StdFile> {
    // SAFETY: the handle is open as long as its owner, who is the caller's caller, and is not closed here.
    ManuallyDrop::new(unsafe { StdFile::from_raw_fd(handle.0 as RawFd) })
}

impl System for LinuxSystem {
    fn processor_time(&self) -> Option<Duration> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
    }

    fn wall_clock(&self) -> Duration {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
    }

    fn random_bytes(&self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            let flags = rustix::rand::GetRandomFlags::empty();
            match rustix::rand::getrandom(&mut bytes[filled..], flags) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("the kernel gives no randomness: {error}"),
            }
        }
    }

    fn processors(&self) -> Vec<usize> {
        let Ok(allowed) = sched_getaffinity(None) else {
            // More processors than the set can name: any will do, and the kernel places the threads.
            let count = std::thread::available_parallelism().map_or(1, |count| count.get());
            return (0..count).collect();
        };
        (0..CpuSet::MAX_CPU)
            .filter(|&processor| allowed.is_set(processor))
            .collect()
    }

    fn start_reactor(
        self: Arc<Self>,
        config: ReactorConfig,
        main: ReactorMain,
    ) -> io::Result<ReactorThread> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let name = config.name.clone();
        if name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a thread cannot be named {name:?}: it holds a zero byte"),
            ));
        }
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            match prepare(self, &config, main) {
                Ok(runner) => {
                    // The starter waits for this answer.
                    let _ = sender.send(Ok(runner.remote()));
                    runner.run_to_end();
                }
                Err(error) => {
                    let _ = sender.send(Err(error));
                }
            }
        })?;
        let remote: Remote = receiver
            .recv()
            .map_err(|_| io::Error::other("the reactor's thread ended as it started"))??;
        let join = move || {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        };
        Ok(ReactorThread::new(remote, Box::new(join)))
    }

    fn offload(&self, work: Box<dyn FnOnce() + Send>) {
        self.offload.run(work);
    }

    fn open_file(
        self: Arc<Self>,
        path: &Path,
        options: &OpenOptions,
    ) -> io::Result<(Arc<File>, FileInfo)> {
        let is_written_here = || {
            let identity = file::identity(path, options);
            identity.is_some_and(|identity| self.written().media.contains(&identity))
        };
        if options.write && is_written_here() {
            return Err(file::busy_here(path));
        }
        let opened = file::open(path, options).map_err(|error| {
            let lost_a_race = error.kind() == io::ErrorKind::ResourceBusy && is_written_here();
            if lost_a_race {
                file::busy_here(path)
            } else {
                error
            }
        })?;
        let identity = opened.info.identity;
        if options.write && !self.written().media.insert(identity) {
            return Err(file::busy_here(path));
        }
        let handle = Handle(opened.file.into_raw_fd() as u32);
        if options.write {
            self.written().by_handle.insert(handle, identity);
        }
        Ok((File::new(handle, self), opened.info))
    }

    fn adopt_file(self: Arc<Self>, descriptor: OwnedFd) -> io::Result<Arc<File>> {
        // With it the ring answers EAGAIN in place of waiting, where the device below cannot say at once that it would (dm-crypt): the
        // operation would be asked again and again.
        let flags = rustix::fs::fcntl_getfl(&descriptor)?;
        if flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_setfl(&descriptor, flags.difference(OFlags::NONBLOCK))?;
        }
        Ok(File::new(Handle(descriptor.into_raw_fd() as u32), self))
    }

    fn holders_of_file(&self, path: &Path) -> io::Result<Vec<String>> {
        holders::of_path(path)
    }

    fn file_length(&self, file: Handle) -> io::Result<u64> {
        file::length(&borrow(file))
    }

    fn file_status(&self, file: Handle) -> io::Result<rustix::fs::Stat> {
        Ok(rustix::fs::fstat(&*borrow(file))?)
    }

    fn set_file_length(&self, file: Handle, length: u64) -> io::Result<()> {
        borrow(file).set_len(length)
    }

    fn sync_file(&self, file: Handle) -> io::Result<()> {
        borrow(file).sync_all()
    }

    fn find_in_file(&self, file: Handle, offset: u64, sought: Sought) -> io::Result<Option<u64>> {
        ranges::find(&borrow(file), offset, sought)
    }

    fn copy_in_files(&self, from: (Handle, u64), to: (Handle, u64), bytes: u64) -> io::Result<u64> {
        let (source, destination) = (borrow(from.0), borrow(to.0));
        ranges::copy((&source, from.1), (&destination, to.1), bytes)
    }

    fn share_in_files(&self, from: (Handle, u64), to: (Handle, u64), bytes: u64) -> io::Result<()> {
        let (source, destination) = (borrow(from.0), borrow(to.0));
        ranges::share((&source, from.1), (&destination, to.1), bytes)
    }

    fn query_nvme(&self, file: Handle, query: &AdminQuery, data: &mut [u8]) -> io::Result<u16> {
        nvme::query(&borrow(file), query, data)
    }

    fn listen(
        self: Arc<Self>,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Listener> {
        let (descriptor, address) = socket::listening(address, options)?;
        Ok(Listener::new(self.socket_of(descriptor), address))
    }

    fn socket(self: Arc<Self>, address: SocketAddr, options: &SocketOptions) -> io::Result<Socket> {
        let descriptor = socket::connecting(address, options)?;
        Ok(self.socket_of(descriptor))
    }

    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // An IPv6 address may stand in brackets, as in URLs.
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let addresses: Vec<SocketAddr> = (bare, port)
            .to_socket_addrs()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("cannot resolve {host:?}: {error}"))
            })?
            .collect();
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{host:?} has no address"),
            ));
        }
        Ok(addresses)
    }

    fn set_socket_options(&self, socket: Handle, options: &SocketOptions) -> io::Result<()> {
        socket::set_options(socket, options)
    }

    fn socket_report(&self, socket: Handle) -> io::Result<SocketReport> {
        socket::report(socket)
    }

    fn has_peer_ended(&self, socket: Handle) -> bool {
        socket::has_peer_ended(socket)
    }

    fn local_address(&self, socket: Handle) -> io::Result<SocketAddr> {
        socket::local_address(socket)
    }

    fn shutdown(&self, socket: Handle, how: Shutdown) {
        socket::shutdown(socket, how);
    }

    fn abort(&self, socket: Handle) {
        socket::abort(socket);
    }

    fn close(&self, handle: Handle) {
        // The descriptor's number is free for others as soon as it is closed: forgotten first, and the medium free last.
        let identity = self.written().by_handle.remove(&handle);
        drop(ManuallyDrop::into_inner(borrow(handle)));
        if let Some(identity) = identity {
            self.written().media.remove(&identity);
        }
    }
}

/// What a reactor's thread does before it runs.
fn prepare(
    system: Arc<LinuxSystem>,
    config: &ReactorConfig,
    main: ReactorMain,
) -> io::Result<Runner> {
    if let Some(processor) = config.processor {
        bind_to(processor)?;
    }
    let driver = Uring::new(Arc::clone(&system)).map_err(unavailable::explain)?;
    let pool = Pool::new(config.pool_bytes);
    Ok(Runner::new(config, pool, Box::new(driver), system, main))
}

/// The processors that a thread had before it was bound to one.
static BEFORE_BINDING: OnceLock<CpuSet> = OnceLock::new();

/// Starts a thread that may run on every processor of the process. A thread has those of its starter, which where that is a bound
/// reactor is one: what works beside reactors, and all that a library starts from there, would take turns with it.
///
/// # Errors
/// No thread can be had.
pub fn start_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(move || {
        if let Some(before) = BEFORE_BINDING.get() {
            // Where these are not the process's any more it runs where its starter does.
            let _ = sched_setaffinity(None, before);
        }
        work()
    })
}

fn bind_to(processor: usize) -> io::Result<()> {
    let refused = |error: &dyn std::fmt::Display| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("cannot run a reactor on processor {processor}: {error}"),
        )
    };
    if processor >= CpuSet::MAX_CPU {
        return Err(refused(&"there is none of this number"));
    }
    let before = sched_getaffinity(None);
    let mut set = CpuSet::new();
    set.set(processor);
    sched_setaffinity(None, &set).map_err(|error| refused(&error))?;
    if let Ok(before) = before {
        // Whoever is bound first is so from a thread that is not.
        BEFORE_BINDING.get_or_init(|| before);
    }
    Ok(())
}
