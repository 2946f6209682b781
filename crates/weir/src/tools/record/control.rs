//! The control socket of a recorder, its page of metrics, and readers that listen to the socket.
//!
//! Readers of a ring read its volumes themselves. Over the control socket the recorder sends each of them one byte for each change of its
//! back-pressure, `1` when it is high and `0` when it is not. When the connection ends, no recorder runs.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use uuid::Uuid;
use weir_record::{Pressure, Progress};

use super::metrics;
use super::status::About;

/// Connections served at once, of readers and of metrics clients; more wait to be accepted.
const READERS_MAX: usize = 64;
const PAGES_MAX: usize = 8;
/// Longest time that one page takes.
const PAGE_TIME: Duration = Duration::from_secs(5);
/// Pause before a connection is accepted again after an error.
const RETRY: Duration = Duration::from_secs(1);
/// Interval at which a reader looks for a recorder that starts. Until it is found, reads take bandwidth from it.
const LOOK_FOR_RECORDER: Duration = Duration::from_millis(50);

/// Paths at which the recorder of a ring may have its control socket.
fn paths(ring: Uuid) -> impl Iterator<Item = PathBuf> {
    let named = |name| {
        let first = std::env::split_paths(&std::env::var_os(name)?).next()?;
        first.is_absolute().then_some(first)
    };
    let folders = [
        named("RUNTIME_DIRECTORY"),
        Some(PathBuf::from("/run/weir-record")),
        named("XDG_RUNTIME_DIR").map(|folder| folder.join("weir-record")),
    ];
    let folders = folders.into_iter().flatten();
    folders.map(move |folder| folder.join(format!("{ring}.sock")))
}

/// Makes a socket that only this user may use; a stale one is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().expect("it is in a folder");
    match DirBuilder::new().mode(0o755).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    if fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(_) => {}
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes the socket at the first path that works.
fn bind_any(ring: Uuid) -> anyhow::Result<(UnixListener, PathBuf)> {
    let mut failed = None;
    for path in paths(ring) {
        match bind(&path) {
            Ok(listener) => return Ok((listener, path)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                bail!(
                    "{} exists and cannot be replaced; if no recorder of this ring runs, remove it",
                    path.display()
                )
            }
            Err(error) => {
                failed = Some(anyhow::Error::from(error).context(path.display().to_string()))
            }
        }
    }
    Err(failed.expect("there is a path"))
}

/// The latest figures; `None` before the first.
pub(super) type Latest = Arc<Mutex<Option<Arc<Progress>>>>;

/// The control socket and the page of metrics, served on a thread of their own until this is dropped.
pub(super) struct Control {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

impl Control {
    /// Starts serving. If one of them cannot be served, a note says so and the recording goes on.
    pub(super) fn start(
        about: &About,
        pressure: &Pressure,
        latest: Latest,
        pages: Option<TcpListener>,
    ) -> Self {
        let (sender, changes) = watch::channel(pressure.is_high());
        // Read under the channel's lock, so that the last value is the one that holds.
        pressure
            .on_change(move |pressure| sender.send_modify(|is_high| *is_high = pressure.is_high()));
        let (listener, socket) = match bind_any(about.ring) {
            Ok((listener, socket)) => (Some(listener), Some(socket)),
            Err(error) => {
                eprintln!(
                    "warning: no control socket ({error:#}), so reads of this ring take bandwidth from the recorder; set RUNTIME_DIRECTORY, here and for readers, to a folder that the recorder can write to"
                );
                (None, None)
            }
        };
        let (end, ended) = oneshot::channel();
        let about = Arc::new(about.clone());
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let served = runtime.and_then(|runtime| {
                runtime.block_on(async {
                    if let Some(listener) = listener {
                        let listener = tokio::net::UnixListener::from_std(listener)?;
                        tokio::spawn(serve_readers(listener, changes));
                    }
                    if let Some(pages) = pages {
                        announce(&pages)?;
                        let pages = tokio::net::TcpListener::from_std(pages)?;
                        tokio::spawn(serve_pages(pages, about, latest));
                    }
                    // Until the sender is dropped. All tasks end with the runtime.
                    let _ = ended.await;
                    Ok(())
                })
            });
            if let Err(error) = served {
                eprintln!("note: the control socket and the metrics cannot be served: {error}");
            }
        };
        let thread = std::thread::Builder::new().name("record-control".to_owned());
        let thread = thread.spawn(work).inspect_err(|error| {
            eprintln!("note: the control socket and the metrics cannot be served: {error}");
        });
        Control {
            end: Some(end),
            thread: thread.ok(),
            socket,
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(socket) = &self.socket {
            // It may be gone already.
            let _ = fs::remove_file(socket);
        }
    }
}

fn announce(pages: &TcpListener) -> io::Result<()> {
    eprintln!("metrics at http://{}/metrics", pages.local_addr()?);
    Ok(())
}

/// Listens at the address of `--metrics`.
pub(super) fn listen(address: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("--metrics {address}: cannot listen there; use a free ADDRESS:PORT of this machine")
    })?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve_readers(listener: tokio::net::UnixListener, changes: watch::Receiver<bool>) {
    let mut readers = JoinSet::new();
    loop {
        while readers.len() >= READERS_MAX {
            readers.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                readers.spawn(serve_reader(stream, changes.clone()));
            }
            // For lack of descriptors, for example.
            Err(_) => tokio::time::sleep(RETRY).await,
        }
        while readers.try_join_next().is_some() {}
    }
}

/// Sends each change to a reader until it closes its end.
async fn serve_reader(mut stream: tokio::net::UnixStream, mut changes: watch::Receiver<bool>) {
    let mut byte = [0];
    loop {
        let is_high = *changes.borrow_and_update();
        if stream
            .write_all(if is_high { b"1" } else { b"0" })
            .await
            .is_err()
        {
            return;
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            // Readers send nothing, so the connection has ended.
            _ = stream.read(&mut byte) => return,
        }
    }
}

async fn serve_pages(listener: tokio::net::TcpListener, about: Arc<About>, latest: Latest) {
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= PAGES_MAX {
            connections.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve_page(stream, Arc::clone(&about), Arc::clone(&latest)));
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
        while connections.try_join_next().is_some() {}
    }
}

/// Answers one request.
async fn serve_page(stream: tokio::net::TcpStream, about: Arc<About>, latest: Latest) {
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let is_read = [Method::GET, Method::HEAD].contains(request.method());
        let is_known = request.uri().path() == "/metrics" && is_read;
        let mut response = if is_known {
            let latest = latest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            Response::new(metrics::page(&about, latest.as_deref()))
        } else {
            let mut response = Response::new("There is only GET /metrics here.\n".to_owned());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        };
        let kind = hyper::header::HeaderValue::from_static(weir_gateway::metrics::CONTENT_TYPE);
        response.headers_mut().insert(CONTENT_TYPE, kind);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    let connection = http
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    // A client that is slow, or silent, does not keep others out.
    let _ = tokio::time::timeout(PAGE_TIME, connection).await;
}

/// Paths at which a reader looks for the control socket: for root, those of other users, too.
fn reader_paths(ring: Uuid) -> impl Iterator<Item = PathBuf> {
    let is_root = rustix::process::geteuid().is_root();
    let users = is_root.then(|| fs::read_dir("/run/user").ok()).flatten();
    let users = users.into_iter().flatten().flatten();
    let users = users.map(move |user| {
        let folder = user.path().join("weir-record");
        folder.join(format!("{ring}.sock"))
    });
    paths(ring).chain(users)
}

/// A reader's connection to the recorder of a ring.
fn connect(ring: Uuid, is_warned: &mut bool) -> Option<UnixStream> {
    let mut forbidden = None;
    for path in reader_paths(ring) {
        match UnixStream::connect(&path) {
            Ok(stream) => return Some(stream),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => forbidden = Some(path),
            Err(_) => {}
        }
    }
    if let Some(path) = forbidden
        && !std::mem::replace(is_warned, true)
    {
        eprintln!(
            "warning: no permission to open the control socket {}: if a recorder of this ring runs, reads take bandwidth from it; run as the recorder's user, or as root",
            path.display()
        );
    }
    None
}

/// Passes on what a recorder sends, until the connection ends.
fn follow(stream: &mut impl Read, pressure: &Pressure) {
    let (mut byte, mut is_high) = ([0], false);
    pressure.set_recording(true);
    while stream.read_exact(&mut byte).is_ok() {
        match (byte[0] == b'1', is_high) {
            (true, false) => pressure.raise(),
            (false, true) => pressure.lower(),
            _ => {}
        }
        is_high = byte[0] == b'1';
    }
    pressure.set_recording(false);
    if is_high {
        pressure.lower();
    }
}

/// Follows the pressure of the ring's recorder as long as this process runs, across its restarts.
pub(super) fn pressure_of(ring: Uuid) -> Arc<Pressure> {
    let pressure = Arc::new(Pressure::default());
    let followed = Arc::clone(&pressure);
    let work = move || {
        let (mut is_new, mut is_warned) = (true, false);
        loop {
            match connect(ring, &mut is_warned) {
                Some(mut stream) => {
                    if std::mem::take(&mut is_new) {
                        eprintln!("note: a recorder is writing to this ring; reads yield to it");
                    }
                    follow(&mut stream, &followed);
                }
                None => followed.set_recording(false),
            }
            std::thread::sleep(LOOK_FOR_RECORDER);
        }
    };
    let thread = std::thread::Builder::new().name("recorder".to_owned());
    if let Err(error) = thread.spawn(work) {
        eprintln!("note: reads do not yield to a recorder: {error}");
        pressure.set_recording(false);
    }
    pressure
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields one byte per read, and notes the pressure before it.
    struct Bytes<'a> {
        left: &'static [u8],
        seen: Vec<bool>,
        pressure: &'a Pressure,
    }

    impl Read for Bytes<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.seen.push(self.pressure.is_high());
            Read::read(&mut self.left, &mut buffer[..1])
        }
    }

    #[test]
    fn readers_follow_what_the_recorder_sends() {
        let pressure = Pressure::default();
        let mut bytes = Bytes {
            left: b"011011",
            seen: Vec::new(),
            pressure: &pressure,
        };
        follow(&mut bytes, &pressure);
        assert_eq!(bytes.seen, [false, false, true, true, false, true, true]);
        assert!(!pressure.is_high(), "it has ended");
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("here.sock");
        fs::write(&path, "precious").unwrap();
        assert_eq!(bind(&path).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
