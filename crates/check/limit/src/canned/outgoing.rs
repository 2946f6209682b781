//! What a connection of the canned responder is to send: PDUs by copy, data as zeroes that are in no buffer of its own.

use std::io::{self, ErrorKind, IoSlice, Write};
use std::net::TcpStream;

use weir_nvme::Cqe;
use weir_nvme::tcp::{C2hData, HEADER_SIZE_MAX, R2t, Writer};

/// Slices of one send.
const SLICES_MAX: usize = 256;
/// What data is sent from, again and again: it stays in the first level cache.
static ZEROES: [u8; 16 << 10] = [0; 16 << 10];

/// A stretch of what is to be sent.
#[derive(Debug, Clone, Copy)]
enum Piece {
    /// So many bytes of `Outgoing::bytes`, after those of the pieces before.
    Bytes(usize),
    /// So many zeroes.
    Zeroes(usize),
}

/// What is to be sent, in order.
#[derive(Default)]
pub(super) struct Outgoing {
    writer: Writer,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pieces, and bytes of `bytes`, that were sent; what was sent of the next piece is taken off it.
    pieces_sent: usize,
    bytes_sent: usize,
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces_sent == self.pieces.len()
    }

    /// CapsuleResp.
    pub(super) fn response(&mut self, cqe: &Cqe) {
        let mut header = [0; HEADER_SIZE_MAX];
        let length = self.writer.capsule_response(&mut header, cqe);
        self.append(&header[..length]);
    }

    /// R2T.
    pub(super) fn ready_to_transfer(&mut self, r2t: &R2t) {
        let mut header = [0; HEADER_SIZE_MAX];
        let length = self.writer.r2t(&mut header, r2t);
        self.append(&header[..length]);
    }

    /// C2HData with all the data of a command: `length` zeroes.
    pub(super) fn zeroes(&mut self, cid: u16, length: u32, success: bool) {
        self.data_header(cid, length, success);
        self.pieces.push(Piece::Zeroes(length as usize));
    }

    /// C2HData with all the data of a command.
    pub(super) fn data(&mut self, cid: u16, data: &[u8]) {
        self.data_header(cid, data.len() as u32, false);
        self.append(data);
    }

    fn data_header(&mut self, cid: u16, length: u32, success: bool) {
        let mut header = [0; HEADER_SIZE_MAX];
        let data = C2hData {
            cid,
            offset: 0,
            length,
            last: true,
            success,
        };
        let length = self.writer.c2h_data(&mut header, &data);
        self.append(&header[..length]);
    }

    /// Bytes of one's own, by copy.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let unsent = !self.is_empty();
        match self.pieces.last_mut() {
            // A piece that was sent is not opened again.
            Some(Piece::Bytes(length)) if unsent => *length += bytes.len(),
            _ => self.pieces.push(Piece::Bytes(bytes.len())),
        }
    }

    /// Sends all of it, or until the socket takes no more.
    pub(super) fn send(&mut self, mut stream: &TcpStream) -> io::Result<()> {
        while !self.is_empty() {
            let sent = {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let count = self.gather(&mut slices);
                stream.write_vectored(&slices[..count])
            };
            match sent {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(bytes) => self.sent(bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        self.pieces.clear();
        (self.pieces_sent, self.bytes_sent) = (0, 0);
        Ok(())
    }

    fn gather<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let (mut count, mut position) = (0, self.bytes_sent);
        for piece in &self.pieces[self.pieces_sent..] {
            match *piece {
                Piece::Bytes(length) => {
                    if count == SLICES_MAX {
                        return count;
                    }
                    slices[count] = IoSlice::new(&self.bytes[position..position + length]);
                    (count, position) = (count + 1, position + length);
                }
                Piece::Zeroes(mut length) => {
                    while length > 0 {
                        if count == SLICES_MAX {
                            return count;
                        }
                        let taken = length.min(ZEROES.len());
                        slices[count] = IoSlice::new(&ZEROES[..taken]);
                        (count, length) = (count + 1, length - taken);
                    }
                }
            }
        }
        count
    }

    fn sent(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let taken = match &mut self.pieces[self.pieces_sent] {
                Piece::Bytes(length) => {
                    let taken = bytes.min(*length);
                    *length -= taken;
                    self.bytes_sent += taken;
                    self.pieces_sent += usize::from(*length == 0);
                    taken
                }
                Piece::Zeroes(length) => {
                    let taken = bytes.min(*length);
                    *length -= taken;
                    self.pieces_sent += usize::from(*length == 0);
                    taken
                }
            };
            bytes -= taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;

    #[test]
    fn everything_arrives_in_order_whatever_the_socket_takes_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        let mut outgoing = Outgoing::default();
        let mut expected = Vec::new();
        for index in 0..100_u32 {
            let own = vec![1 + (index % 250) as u8; 1 + index as usize * 7];
            outgoing.append(&own);
            outgoing.pieces.push(Piece::Zeroes(100_000));
            expected.extend_from_slice(&own);
            expected.resize(expected.len() + 100_000, 0);
        }
        outgoing.send(&near).unwrap();
        assert!(!outgoing.is_empty(), "10 MB fit no socket");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            bytes
        });
        outgoing.append(b"later");
        expected.extend_from_slice(b"later");
        while !outgoing.is_empty() {
            outgoing.send(&near).unwrap();
            std::thread::yield_now();
        }
        assert!(outgoing.bytes.is_empty() && outgoing.pieces.is_empty());
        drop(near);
        assert!(reader.join().unwrap() == expected);
    }
}
