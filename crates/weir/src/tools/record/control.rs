//! Words between a recorder and others while it records. Over the control socket it tells readers of its ring whether its buffers fill; over HTTP
//! it tells anybody its figures.
//!
//! Readers read by themselves. Each change is one byte to each of them, `1` when the buffers fill and `0` when they do so no more. When the
//! connection ends the recorder has ended, and nobody waits for it.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use uuid::Uuid;
use weir_record::{Crowd, Progress};

use super::metrics;
use super::standing::About;

/// Readers that are told at a time; more wait to be accepted.
const READERS_MAX: usize = 64;
/// Time after which something that failed is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// Paths at which the recorder of a ring may have its control socket.
fn paths(ring: Uuid) -> impl Iterator<Item = PathBuf> {
    let named = |name| {
        let first = std::env::split_paths(&std::env::var_os(name)?).next()?;
        first.is_absolute().then_some(first)
    };
    let is_root = rustix::process::geteuid().is_root();
    let folders = [
        named("RUNTIME_DIRECTORY"),
        is_root.then(|| PathBuf::from("/run/weir-record")),
        named("XDG_RUNTIME_DIR").map(|folder| folder.join("weir-record")),
    ];
    let folders = folders.into_iter().flatten();
    folders.map(move |folder| folder.join(format!("{ring}.sock")))
}

/// Makes a socket that nobody else may use. One that a recorder left there that was killed is replaced.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let folder = path.parent().expect("it is in a folder");
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(folder)?;
    match UnixStream::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes the socket at the first path where that works.
fn bind_any(ring: Uuid) -> anyhow::Result<(UnixListener, PathBuf)> {
    let mut failed = anyhow::anyhow!("there is no folder for it; set XDG_RUNTIME_DIR");
    for path in paths(ring) {
        match bind(&path) {
            Ok(listener) => return Ok((listener, path)),
            Err(error) => failed = anyhow::Error::from(error).context(path.display().to_string()),
        }
    }
    Err(failed)
}

/// The figures that are told last; none yet.
pub(super) type Latest = Arc<Mutex<Option<Progress>>>;

/// Tells others what they may know, from a thread of its own, until it is dropped.
pub(super) struct Control {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    socket: Option<PathBuf>,
}

impl Control {
    /// Begins; figures are told where there is a socket for that.
    ///
    /// # Errors
    /// The system's. Without a control socket it goes on, with a note.
    pub(super) fn start(
        about: &About,
        crowd: &Crowd,
        latest: Latest,
        pages: Option<TcpListener>,
    ) -> anyhow::Result<Self> {
        let (tell, told) = watch::channel(crowd.is_there());
        // Under the channel's lock, so that the last change is what is told in the end.
        crowd.on_change(move |crowd| tell.send_modify(|is_there| *is_there = crowd.is_there()));
        let (listener, socket) = bind_any(about.ring)
            .inspect_err(|error| {
                eprintln!("note: no control socket: {error:#}; reads of the ring will not wait for its writes");
            })
            .ok()
            .unzip();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (end, ended) = oneshot::channel();
        let about = about.clone();
        let work = async move {
            if let Some(listener) =
                listener.and_then(|one| tokio::net::UnixListener::from_std(one).ok())
            {
                tokio::spawn(tell_readers(listener, told));
            }
            if let Some(pages) = pages.and_then(|one| tokio::net::TcpListener::from_std(one).ok()) {
                let page = get(async move || {
                    let latest = latest
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .clone();
                    let page = metrics::page(&about, latest.as_ref());
                    ([(CONTENT_TYPE, weir_gateway::metrics::CONTENT_TYPE)], page)
                });
                let router = Router::new().route("/metrics", page);
                tokio::spawn(axum::serve(pages, router).into_future());
            }
            // Ends when the sender is dropped; all tasks end with the runtime.
            let _ = ended.await;
        };
        let thread = std::thread::Builder::new()
            .name("record-control".to_owned())
            .spawn(move || runtime.block_on(work))
            .context("a thread cannot be started")?;
        Ok(Control {
            end: Some(end),
            thread: Some(thread),
            socket,
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(socket) = &self.socket {
            // It may be gone, which is as good.
            let _ = fs::remove_file(socket);
        }
    }
}

/// Accepts readers.
async fn tell_readers(listener: tokio::net::UnixListener, told: watch::Receiver<bool>) {
    let mut readers = JoinSet::new();
    loop {
        while readers.len() >= READERS_MAX {
            readers.join_next().await;
        }
        match listener.accept().await {
            Ok((stream, _)) => {
                readers.spawn(tell_reader(stream, told.clone()));
            }
            // For want of descriptors, say.
            Err(_) => tokio::time::sleep(AGAIN).await,
        }
        while readers.try_join_next().is_some() {}
    }
}

/// Tells a reader of each change until it has no more to read.
async fn tell_reader(mut stream: tokio::net::UnixStream, mut told: watch::Receiver<bool>) {
    let mut nothing = [0];
    loop {
        let byte = if *told.borrow_and_update() {
            b'1'
        } else {
            b'0'
        };
        if stream.write_all(&[byte]).await.is_err() {
            return;
        }
        tokio::select! {
            changed = told.changed() => if changed.is_err() { return },
            // It says nothing: it has ended.
            _ = stream.read(&mut nothing) => return,
        }
    }
}

/// A reader's connection to a recorder, and the first byte that came by it.
fn connect(ring: Uuid) -> Option<(UnixStream, u8)> {
    let mut stream = paths(ring).find_map(|path| UnixStream::connect(path).ok())?;
    let mut first = [0];
    stream.set_read_timeout(Some(AGAIN)).ok()?;
    stream.read_exact(&mut first).ok()?;
    stream.set_read_timeout(None).ok()?;
    Some((stream, first[0]))
}

/// Follows whether the buffers of the ring's recorder fill, as long as this process runs, and through whatever recorders come and go.
pub(super) fn follow_recorder(ring: Uuid) -> Option<Arc<Crowd>> {
    let crowd = Arc::new(Crowd::default());
    let mut connection = connect(ring);
    if connection.is_some() {
        eprintln!("note: a recorder writes to this ring; reads wait while its buffers fill");
    }
    let told = Arc::clone(&crowd);
    let mut is_there = false;
    let mut tell = move |now: bool| {
        if std::mem::replace(&mut is_there, now) != now {
            told.change(now);
        }
    };
    let listen = move || {
        loop {
            if let Some((mut stream, mut byte)) = connection.take() {
                loop {
                    tell(byte == b'1');
                    let mut next = [0];
                    match stream.read_exact(&mut next) {
                        Ok(()) => byte = next[0],
                        Err(_) => break,
                    }
                }
                tell(false);
            }
            std::thread::sleep(AGAIN);
            connection = connect(ring);
        }
    };
    let thread = std::thread::Builder::new().name("recorder".to_owned());
    thread.spawn(listen).ok()?;
    Some(crowd)
}
