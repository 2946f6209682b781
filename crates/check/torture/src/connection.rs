//! One TCP connection of a scripted host: it sends any bytes in any pieces, and keeps what comes until somebody takes it.
//!
//! Bytes that a target no longer takes are no failure of the send, because what it said about it is read next.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::case::Failure;

/// Time that a connection may take to be made, and a send to be taken.
const SEND_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes that one read takes at most.
const READ_BYTES: usize = 64 << 10;

/// Manner in which a peer waits and judges.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Longest time that an answer may take.
    pub patience: Duration,
    /// The target is Weir: of several answers that are allowed only the first is right, and what the specifications leave open counts too.
    pub exact: bool,
}

/// Manner in which a target ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// In order.
    Closed,
    /// By RST.
    Reset,
}

/// A connection, and what came on it.
pub struct Connection {
    stream: TcpStream,
    /// Bytes that came and were not taken.
    pub received: Vec<u8>,
    end: Option<End>,
}

impl Connection {
    /// Connects, and says nothing yet.
    ///
    /// # Errors
    /// The target does not take the connection.
    pub fn new(address: SocketAddr) -> Result<Self, Failure> {
        let connect = || {
            let stream = TcpStream::connect_timeout(&address, SEND_TIME_MAX)?;
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(SEND_TIME_MAX))?;
            Ok::<_, std::io::Error>(stream)
        };
        let stream = connect()
            .map_err(|error| Failure::preparation(format!("a connection to {address}"), error))?;
        Ok(Self {
            stream,
            received: Vec::new(),
            end: None,
        })
    }

    /// The socket itself, for options that only one case sets.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Its end by the target, if it has come.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Sends bytes. What a target that has ended the connection does not take is dropped: what it said is read next.
    ///
    /// # Errors
    /// The target does not read.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match self.stream.write_all(bytes) {
            Ok(()) => Ok(()),
            Err(error) if is_end(error.kind()) => Ok(()),
            Err(error) if is_timeout(error.kind()) => Err(Failure::NoAnswer {
                what: format!("sending {} bytes", bytes.len()),
                expected: "a target that reads".into(),
                waited: SEND_TIME_MAX,
            }),
            Err(error) => Err(Failure::preparation("sending", error)),
        }
    }

    /// Ends this direction of the connection (FIN).
    pub fn finish_sending(&self) {
        // A connection that is gone already needs no end.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Ends the connection with RST, whatever is unsent.
    pub fn reset(self) {
        // Where the option cannot be set, the close that follows is an ordinary one; the case still ends the connection.
        let _ = socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }

    /// Reads what there is; false: nothing came. The end of the connection is something that comes.
    pub fn read_more(&mut self, patience: Duration) -> bool {
        let mut buffer = [0; READ_BYTES];
        // A patience of zero would mean for ever; the caller has looked.
        let read = self
            .stream
            .set_read_timeout(Some(patience.max(Duration::from_millis(1))))
            .and_then(|()| self.stream.read(&mut buffer));
        match read {
            Ok(0) => {
                self.end = Some(End::Closed);
                true
            }
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                true
            }
            Err(error) if is_timeout(error.kind()) => false,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(_) => {
                self.end = Some(End::Reset);
                true
            }
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted
    )
}
