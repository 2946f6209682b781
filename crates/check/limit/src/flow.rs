//! One connection on which units of fixed length go each way.
//!
//! What arrives is counted and thrown away; what is owed is sent from one small buffer again and again, gathered into as few
//! calls as possible, so that neither side touches more memory than TCP makes it. Where it comes from a file it is read before it is sent.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Slices of one send.
const SLICES_MAX: usize = 64;
/// The buffer that is sent from holds whole units, as many as fit here, or one: it stays in the first level cache.
const PATTERN_BYTES: usize = 16 << 10;
/// The same where what is sent is read first: as much as one receive may ask for.
const READ_BYTES: usize = 256 << 10;

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
    /// Origin of the data of units; none: they are all the same.
    source: Option<Source>,
}

/// The file that data is read from, at places all over it.
struct Source {
    file: Arc<File>,
    /// Bytes of a unit before its data.
    header_bytes: usize,
    blocks: u64,
    /// The next block, before it is spread.
    next: u64,
    /// Bytes of the pattern from the position on that were read and not sent.
    ready: usize,
}

impl Source {
    /// An odd number: its multiples visit all blocks before one comes again.
    const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

    /// Reads the data of `units`, which are whole.
    fn fill(&mut self, units: &mut [u8], unit: usize) -> io::Result<()> {
        for unit in units.chunks_exact_mut(unit) {
            let data = &mut unit[self.header_bytes..];
            let block = self.next.wrapping_mul(Self::STRIDE) % self.blocks;
            self.file.read_exact_at(data, block * data.len() as u64)?;
            self.next += 1;
        }
        self.ready = units.len();
        Ok(())
    }
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
            source: None,
        })
    }

    /// Reads the data of each unit from `file`, behind `header_bytes` that are always the same.
    ///
    /// # Errors
    /// The file has not one block of that length.
    pub(crate) fn read_from(&mut self, file: &Arc<File>, header_bytes: usize) -> io::Result<()> {
        let data_bytes = self.out_unit - header_bytes;
        let blocks = file.metadata()?.len() / data_bytes as u64;
        if blocks == 0 {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the file is shorter than what one request reads",
            ));
        }
        self.pattern = vec![0x5a; (READ_BYTES / self.out_unit).max(1) * self.out_unit];
        self.source = Some(Source {
            file: Arc::clone(file),
            header_bytes,
            blocks,
            next: 0,
            ready: 0,
        });
        Ok(())
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
            if let Some(source) = self.source.as_mut().filter(|source| source.ready == 0) {
                let units = self.out_owed.div_ceil(self.out_unit) * self.out_unit;
                let length = units.min(self.pattern.len());
                source.fill(&mut self.pattern[..length], self.out_unit)?;
                self.out_position = 0;
            }
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
                    if let Some(source) = &mut self.source {
                        source.ready -= bytes;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let ready = self
            .source
            .as_ref()
            .map_or(usize::MAX, |source| source.ready);
        let (mut position, mut left) = (self.out_position, self.out_owed.min(ready));
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
    fn what_is_sent_was_read() {
        let (mut near, far) = pair();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let blocks = 7;
        let content: Vec<u8> = (0..blocks).flat_map(|block| [block; 1000]).collect();
        std::fs::write(&path, content).unwrap();
        let mut flow = Flow::new(far, 1, 1024).unwrap();
        flow.read_from(&Arc::new(File::open(&path).unwrap()), 24)
            .unwrap();
        let units = 700;
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            near.read_to_end(&mut bytes).unwrap();
            bytes
        });
        for _ in 0..units / 7 {
            flow.owe(7);
            flow.send().unwrap();
        }
        drop(flow);
        let sent = reader.join().unwrap();
        assert_eq!(sent.len(), units * 1024);
        let mut times = [0; 7];
        for unit in sent.chunks_exact(1024) {
            assert!(unit[..24] == [0x5a; 24] && unit[25..].iter().all(|&byte| byte == unit[24]));
            times[usize::from(unit[24])] += 1;
        }
        assert!(times.iter().all(|&times| times > 50), "{times:?}");
        let (_near, far) = pair();
        let mut flow = Flow::new(far, 1, 8192).unwrap();
        assert!(
            flow.read_from(&Arc::new(File::open(&path).unwrap()), 24)
                .is_err()
        );
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
