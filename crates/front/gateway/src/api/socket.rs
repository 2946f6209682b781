//! The control socket, and serving on it.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Mode of the socket: the owner and the group may use it.
const MODE: u32 = 0o660;
/// Mode of a directory that had to be made for it.
const DIRECTORY_MODE: u32 = 0o755;
/// Connections to the API at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 64;
/// Time without a byte in either direction after which a connection is given up, so that a client
/// that forgot it does not hold its slot for ever. Longer than any call takes.
const SILENCE_MAX: Duration = Duration::from_secs(300);

/// Why the control socket cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody answers there.
    #[error(
        "another gateway answers at the control socket {}: stop that one, or give this one another \
         `control.socket`", path.display()
    )]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// There is something else of this name.
    #[error(
        "{} is there and is not a socket: move it away, or choose another `control.socket`",
        path.display()
    )]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused.
    #[error("cannot {step} the control socket {}: {source}", path.display())]
    System {
        /// What was to be done.
        step: &'static str,
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The control socket; its name is removed when it is dropped, if it made the name.
pub struct ControlSocket {
    listener: UnixListener,
    path: Option<PathBuf>,
}

impl ControlSocket {
    /// Makes the socket at `path`. One that a dead gateway left there is replaced.
    ///
    /// # Errors
    /// Somebody answers there, something else is there, or the system refuses.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        let fail = |step| {
            move |source| SocketError::System {
                step,
                path: path.to_owned(),
                source,
            }
        };
        if let Some(directory) = path.parent().filter(|parent| !parent.exists()) {
            fs::create_dir_all(directory).map_err(fail("make the directory of"))?;
            let mode = Permissions::from_mode(DIRECTORY_MODE);
            fs::set_permissions(directory, mode).map_err(fail("make the directory of"))?;
        }
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(SocketError::NotASocket {
                    path: path.to_owned(),
                });
            }
            match UnixStream::connect(path) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(fail("see who answers at")(error)),
                Ok(_) => {
                    return Err(SocketError::InUse {
                        path: path.to_owned(),
                    });
                }
            }
        }
        // Under another name until it has its mode; the rename replaces a stale one in one step.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(fail("prepare")(error));
            }
            _ => {}
        }
        let listener = UnixListener::bind(&new).map_err(fail("bind"))?;
        fs::set_permissions(&new, Permissions::from_mode(MODE)).map_err(fail("set the mode of"))?;
        fs::rename(&new, path).map_err(fail("name"))?;
        Ok(Self {
            listener,
            path: Some(path.to_owned()),
        })
    }

    /// Takes a socket that the service manager opened; its name is the service manager's.
    pub fn inherited(listener: UnixListener) -> Self {
        Self {
            listener,
            path: None,
        }
    }

    /// Answers requests with `router` until `end` is done, and those under way to their end.
    ///
    /// # Errors
    /// The system's.
    pub async fn serve(
        &self,
        router: Router,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let listener = self.listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        axum::serve(Bounded { listener, slots }, router)
            .with_graceful_shutdown(end)
            .await
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // The name may be gone or taken by now, which is as good.
            let _ = fs::remove_file(path);
        }
    }
}

/// A listener that accepts only while there is a slot.
struct Bounded {
    listener: tokio::net::UnixListener,
    slots: Arc<Semaphore>,
}

impl axum::serve::Listener for Bounded {
    type Io = Slotted;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Slotted, Self::Addr) {
        let slots = self.slots.clone();
        let slot = slots
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        let (stream, address) = axum::serve::Listener::accept(&mut self.listener).await;
        (
            Slotted {
                stream,
                silence: Box::pin(sleep(SILENCE_MAX)),
                _slot: slot,
            },
            address,
        )
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that holds its slot, and gives it up when nothing happens for too long.
struct Slotted {
    stream: tokio::net::UnixStream,
    silence: Pin<Box<Sleep>>,
    _slot: OwnedSemaphorePermit,
}

impl Slotted {
    /// Starts the time of silence anew where something happened, and ends it where it is over.
    fn heard<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.silence.as_mut().reset(Instant::now() + SILENCE_MAX);
            return result;
        }
        match self.silence.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Slotted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.heard(context, result)
    }
}

impl AsyncWrite for Slotted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.heard(context, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run/weir.sock");
        let first = ControlSocket::bind(&path).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        let error = ControlSocket::bind(&path).err().unwrap();
        assert!(matches!(error, SocketError::InUse { .. }), "{error}");
        // A gateway that dies leaves the name without the listener.
        let ControlSocket {
            listener,
            path: made,
        } = &first;
        assert_eq!(made.as_deref(), Some(path.as_path()));
        let _ = listener;
        let stale = directory.path().join("stale.sock");
        drop(UnixListener::bind(&stale).unwrap());
        // A child that another test starts has the listener too, until it executes its program.
        let second = loop {
            match ControlSocket::bind(&stale) {
                Err(SocketError::InUse { .. }) => std::thread::sleep(Duration::from_millis(10)),
                bound => break bound.unwrap(),
            }
        };
        UnixStream::connect(&stale).unwrap();
        drop(second);
        assert!(!stale.exists());
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weir.sock");
        fs::write(&path, "precious").unwrap();
        let error = ControlSocket::bind(&path).err().unwrap();
        assert!(matches!(error, SocketError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let long = directory.path().join("x".repeat(120));
        assert!(matches!(
            ControlSocket::bind(&long),
            Err(SocketError::System { .. })
        ));
    }

    /// With every slot held by a silent client, another waits, and is answered when the silence of
    /// these is over.
    #[test]
    fn silent_clients_lose_their_slots() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weir.sock");
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap().block_on(async {
            let socket = ControlSocket::bind(&path).unwrap();
            let hello = axum::routing::get(|| async { "hello" });
            let router = Router::new().route("/", hello);
            let serving = tokio::spawn(async move {
                socket.serve(router, std::future::pending()).await.unwrap();
            });
            let mut silent = Vec::new();
            for _ in 0..CONNECTIONS_MAX {
                silent.push(tokio::net::UnixStream::connect(&path).await.unwrap());
            }
            let asking = tokio::spawn(async move {
                use tokio::io::{AsyncReadExt, AsyncWriteExt};
                let mut stream = tokio::net::UnixStream::connect(&path).await.unwrap();
                let request = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer
            });
            // Everyone is accepted who will be; then time runs by leaps.
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(
                !asking.is_finished(),
                "a client more than there are slots was answered"
            );
            tokio::time::pause();
            let answer = asking.await.unwrap();
            assert!(answer.ends_with("hello"), "{answer}");
            serving.abort();
        });
    }
}
