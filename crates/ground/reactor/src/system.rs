//! What does not belong to one reactor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::net::Shutdown;
use crate::{
    AdminQuery, File, FileInfo, Handle, Listener, OpenOptions, ReactorConfig, ReactorMain,
    ReactorThread, Socket, SocketOptions, SocketReport, Sought,
};

fn no_ranges() -> io::Error {
    let text = "the files of this system have no such ranges";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// The machine that reactors run on: the real one, or a simulated one. Its calls may block for a short time and are not
/// for the I/O path.
pub trait System: Send + Sync + 'static {
    /// Time since the Unix epoch.
    fn wall_clock(&self) -> Duration;

    /// Fills `bytes` with randomness fit for identifiers.
    fn random_bytes(&self, bytes: &mut [u8]);

    /// Processors that the process may run on.
    fn processors(&self) -> Vec<usize>;

    /// Processor time that the process has used so far, all threads and the kernel's work for it together. `None` where a system does
    /// not count it.
    fn processor_time(&self) -> Option<Duration> {
        None
    }

    /// Starts a reactor.
    ///
    /// # Errors
    /// What its driver needs and the machine does not offer.
    fn start_reactor(
        self: Arc<Self>,
        config: ReactorConfig,
        main: ReactorMain,
    ) -> io::Result<ReactorThread>;

    /// Runs blocking work where it holds no reactor up.
    fn offload(&self, work: Box<dyn FnOnce() + Send>);

    /// Opens a file or block device.
    ///
    /// # Errors
    /// The system's; `ResourceBusy` when it is open for writing already.
    fn open_file(
        self: Arc<Self>,
        path: &Path,
        options: &OpenOptions,
    ) -> io::Result<(Arc<File>, FileInfo)>;

    /// Takes over a file that is open already, of a directory that this machine serves.
    ///
    /// # Errors
    /// `Unsupported` where the system's files are no descriptors.
    fn adopt_file(self: Arc<Self>, _descriptor: OwnedFd) -> io::Result<Arc<File>> {
        let text = "this system has no file descriptors";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// What has hold of the file or device at `path` on this machine, in words: mounts, swap, devices that are made of it. Programs that
    /// only have it open are not told. A system that has no such things says nothing. Blocks: call it through [`crate::Reactor::offload`].
    ///
    /// # Errors
    /// It cannot be told, which does not mean that nothing has hold of it.
    fn holders_of_file(&self, _path: &Path) -> io::Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// The length of a file or device, in bytes.
    ///
    /// # Errors
    /// The system's.
    fn file_length(&self, file: Handle) -> io::Result<u64>;

    /// See [`File::status`].
    ///
    /// # Errors
    /// As there.
    fn file_status(&self, _file: Handle) -> io::Result<rustix::fs::Stat> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Sets the length of a regular file. It is durable once the file is synced.
    ///
    /// # Errors
    /// The system's.
    fn set_file_length(&self, file: Handle, length: u64) -> io::Result<()>;

    /// Makes durable what was written to a file, and its length.
    ///
    /// # Errors
    /// The system's.
    fn sync_file(&self, file: Handle) -> io::Result<()>;

    /// See [`File::find`]. A system whose files have no holes says so.
    ///
    /// # Errors
    /// As there.
    fn find_in_file(
        &self,
        _file: Handle,
        _offset: u64,
        _sought: Sought,
    ) -> io::Result<Option<u64>> {
        Err(no_ranges())
    }

    /// See [`File::copy_to`]. A system that has no such call says so.
    ///
    /// # Errors
    /// As there.
    fn copy_in_files(
        &self,
        _from: (Handle, u64),
        _to: (Handle, u64),
        _bytes: u64,
    ) -> io::Result<u64> {
        Err(no_ranges())
    }

    /// See [`File::share_with`]. A system that has no such call says so.
    ///
    /// # Errors
    /// As there.
    fn share_in_files(
        &self,
        _from: (Handle, u64),
        _to: (Handle, u64),
        _bytes: u64,
    ) -> io::Result<()> {
        Err(no_ranges())
    }

    /// Has a query carried out by the NVMe drive that a file is or lies on as its partition; see [`File::query_nvme`]. A system without such drives says so.
    ///
    /// # Errors
    /// As there.
    fn query_nvme(&self, _file: Handle, _query: &AdminQuery, _data: &mut [u8]) -> io::Result<u16> {
        let text = "this system has no NVMe drives";
        Err(io::Error::new(io::ErrorKind::Unsupported, text))
    }

    /// Listens for TCP connections. Port 0: one that is free; see [`Listener::address`].
    ///
    /// # Errors
    /// The system's.
    fn listen(
        self: Arc<Self>,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<Listener>;

    /// A TCP socket for connecting to an address of the same family as `address`.
    ///
    /// # Errors
    /// The system's.
    fn socket(self: Arc<Self>, address: SocketAddr, options: &SocketOptions) -> io::Result<Socket>;

    /// The addresses of a host. Blocks: call it through [`crate::Reactor::offload`] or off a reactor.
    ///
    /// # Errors
    /// The system's.
    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;

    /// Sets options of a socket that is open.
    ///
    /// # Errors
    /// The system's.
    fn set_socket_options(&self, socket: Handle, options: &SocketOptions) -> io::Result<()>;

    /// What the system says of a socket.
    ///
    /// # Errors
    /// The system's.
    fn socket_report(&self, socket: Handle) -> io::Result<SocketReport>;

    /// Whether the peer of a connection has ended its direction of it, or the connection is over. A system that cannot tell
    /// without receiving says no.
    fn has_peer_ended(&self, _socket: Handle) -> bool {
        false
    }

    /// The address of a socket's own end.
    ///
    /// # Errors
    /// The system's.
    fn local_address(&self, socket: Handle) -> io::Result<SocketAddr>;

    /// Ends one or both directions of a connection; errors mean that it has ended already.
    fn shutdown(&self, socket: Handle, how: Shutdown);

    /// Ends a connection without delivering what it still has to send: the peer sees a reset. It is to be closed next. Where a
    /// system cannot, it ends both directions.
    fn abort(&self, socket: Handle) {
        self.shutdown(socket, Shutdown::Both);
    }

    /// Closes a handle. No operation on it is in flight.
    fn close(&self, handle: Handle);
}
