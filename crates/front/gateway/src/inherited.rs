//! Sockets that the service manager opened (systemd socket activation).
//!
//! Names decide (`FileDescriptorName=`): a Unix socket named `control` is the control API's; TCP
//! sockets of any name are listeners for hosts.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;

/// The name of the control socket.
pub const CONTROL: &str = "control";

/// What the service manager handed over.
#[derive(Debug, Default)]
pub struct Inherited {
    /// The control API's socket.
    pub control: Option<UnixListener>,
    /// Listeners for hosts, with their names.
    pub listeners: Vec<(String, TcpListener)>,
}

/// A socket that was handed over and has no use here.
#[derive(Debug, thiserror::Error)]
#[error(
    "the service manager handed over a socket named {name:?} that is neither a listening TCP \
     socket nor a Unix socket named {CONTROL:?}: {source}"
)]
pub struct InheritedError {
    name: String,
    source: std::io::Error,
}

impl Inherited {
    /// Takes what was handed over to this process. To be called once.
    ///
    /// # Errors
    /// One of the sockets has no use here.
    pub fn take() -> Result<Self, InheritedError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        Self::from(ListenFd::from_env(), &names)
    }

    fn from(mut handed: ListenFd, names: &str) -> Result<Self, InheritedError> {
        let mut names = names.split(':');
        let mut inherited = Self::default();
        for index in 0..handed.len() {
            let name = names
                .next()
                .filter(|name| !name.is_empty())
                .unwrap_or("unknown");
            let fail = |source| InheritedError {
                name: name.to_owned(),
                source,
            };
            if name == CONTROL && inherited.control.is_none() {
                inherited.control = handed.take_unix_listener(index).map_err(fail)?;
            } else if let Some(listener) = handed.take_tcp_listener(index).map_err(fail)? {
                inherited.listeners.push((name.to_owned(), listener));
            }
        }
        Ok(inherited)
    }
}
