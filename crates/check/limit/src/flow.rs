//! One connection on which units of fixed length go each way.
//!
//! What arrives is counted and thrown away; what is owed is sent from one small buffer again and again, gathered into as few
//! calls as possible, so that neither side touches more memory than TCP makes it.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// Slices of one send.
const SLICES_MAX: usize = 64;
/// The buffer that is sent from holds whole units, as many as fit here, or one: it stays in the first level cache.
const PATTERN_BYTES: usize = 16 << 10;

/// What a receive found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// So many units are complete now.
    Units {
        /// How many were completed by this receive.
        units: u64,
        /// Whether the buffer was filled, and more may be waiting.
        filled: bool,
    },
    /// Nothing is there yet; only of a socket that does not block.
    Nothing,
    /// The peer closed.
    Closed,
}

/// A connection, what is incomplete on the way in and owed on the way out.
pub(crate) struct Flow {
    stream: TcpStream,
    in_unit: usize,
    /// Bytes of a unit that is not complete.
    in_partial: usize,
    pattern: Vec<u8>,
    out_unit: usize,
    /// Where in the pattern the next byte is.
    out_position: usize,
    /// Bytes that are to be sent.
    out_owed: usize,
}

impl Flow {
    /// `in_unit` and `out_unit` are the lengths of what comes and goes, at least one byte.
    pub(crate) fn new(stream: TcpStream, in_unit: usize, out_unit: usize) -> io::Result<Self> {
        assert!(in_unit > 0 && out_unit > 0, "a unit has bytes");
        stream.set_nodelay(true)?;
        Ok(Flow {
            stream,
            in_unit,
            in_partial: 0,
            pattern: vec![0x5a; (PATTERN_BYTES / out_unit).max(1) * out_unit],
            out_unit,
            out_position: 0,
            out_owed: 0,
        })
    }

    pub(crate) fn set_nonblocking(&self) -> io::Result<()> {
        self.stream.set_nonblocking(true)
    }

    /// Whether everything that was owed was sent.
    pub(crate) fn is_even(&self) -> bool {
        self.out_owed == 0
    }

    /// Whether part of a unit arrived and its rest did not.
    pub(crate) fn is_inside_unit(&self) -> bool {
        self.in_partial != 0
    }

    /// Owes so many more units.
    pub(crate) fn owe(&mut self, units: u64) {
        self.out_owed += units as usize * self.out_unit;
    }

    /// One receive.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let bytes = loop {
            match (&self.stream).read(buffer) {
                Ok(0) => return Ok(Received::Closed),
                Ok(bytes) => break bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Received::Nothing);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let total = self.in_partial + bytes;
        self.in_partial = total % self.in_unit;
        Ok(Received::Units {
            units: (total / self.in_unit) as u64,
            filled: bytes == buffer.len(),
        })
    }

    /// Sends what is owed, all of it or until the socket takes no more.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        while self.out_owed > 0 {
            let sent = {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.gather(&mut slices);
                (&self.stream).write_vectored(&slices[..count])
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => {
                    self.out_owed -= bytes;
                    self.out_position = (self.out_position + bytes) % self.pattern.len();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut position, mut left) = (self.out_position, self.out_owed);
        let mut count = 0;
        while left > 0 && count < SLICES_MAX {
            let length = left.min(self.pattern.len() - position);
            slices[count] = IoSlice::new(&self.pattern[position..position + length]);
            (position, left) = (0, left - length);
            count += 1;
        }
        count
    }
}

impl AsFd for Flow {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn units_are_counted_in_whatever_pieces_they_come() {
        let (mut near, far) = pair();
        let mut flow = Flow::new(far, 10, 1).unwrap();
        let mut buffer = [0; 64];
        let mut take = |bytes: usize| {
            near.write_all(&vec![0; bytes]).unwrap();
            match flow.receive(&mut buffer).unwrap() {
                Received::Units { units, .. } => (units, flow.is_inside_unit()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(take(9), (0, true));
        assert_eq!(take(1), (1, false));
        assert_eq!(take(25), (2, true));
        assert_eq!(take(5), (1, false));
    }

    #[test]
    fn a_full_buffer_and_an_end_are_told() {
        let (near, far) = pair();
        let mut flow = Flow::new(far, 4, 1).unwrap();
        flow.set_nonblocking().unwrap();
        let mut buffer = [0; 8];
        assert_eq!(flow.receive(&mut buffer).unwrap(), Received::Nothing);
        (&near).write_all(&[0; 8]).unwrap();
        let both = Received::Units {
            units: 2,
            filled: true,
        };
        assert_eq!(flow.receive(&mut buffer).unwrap(), both);
        drop(near);
        assert_eq!(flow.receive(&mut buffer).unwrap(), Received::Closed);
    }

    #[test]
    fn exactly_what_is_owed_is_sent_whatever_the_socket_takes_at_once() {
        let (mut near, far) = pair();
        let unit = 5000;
        let mut flow = Flow::new(far, 1, unit).unwrap();
        flow.set_nonblocking().unwrap();
        let units = 10_000;
        flow.owe(units);
        flow.send().unwrap();
        assert!(!flow.is_even(), "50 MB fit no socket");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            near.read_to_end(&mut bytes).unwrap();
            bytes.len()
        });
        while !flow.is_even() {
            flow.send().unwrap();
            std::thread::yield_now();
        }
        drop(flow);
        assert_eq!(reader.join().unwrap(), units as usize * unit);
    }
}
