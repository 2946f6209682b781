//! Records in received bytes (RFC 5531, section 11).
//!
//! A record is received into a segment of the reactor's pool, without a copy of what has not come yet.

use weir_block::Landing;
use weir_front::Room;
use weir_memory::{Pool, Segment, View};
use weir_nfs::record::{Fragment, HEADER_BYTES};

/// A reason for which a connection's bytes are not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FramingError {
    /// A record is longer than any call.
    #[error("a record of more than {max} bytes")]
    TooLong {
        /// Bytes that it may have.
        max: usize,
    },
    /// A record or a fragment before a record's last has no bytes.
    #[error("a fragment without bytes")]
    Empty,
}

/// Outcome of [`Framing::next`].
pub(crate) enum Next {
    /// A record, and the bytes that were taken for it.
    Record(View, u64),
    /// There is no more input.
    Hungry,
    /// There is no room for the record now.
    Blocked,
}

/// A record that has come in part.
struct Arriving {
    /// None while it is lent.
    segment: Option<Segment>,
    filled: usize,
    /// Bytes of the fragments so far.
    length: usize,
    is_last: bool,
    taken: u64,
}

/// The records of one connection.
pub(crate) struct Framing {
    max: usize,
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    /// A fragment whose bytes were not begun.
    fragment: Option<Fragment>,
    arriving: Option<Arriving>,
    /// Counts records.
    count: u64,
}

impl Framing {
    /// Records of at most `max` bytes.
    pub(crate) fn new(max: u32) -> Self {
        Framing {
            max: max as usize,
            header: [0; HEADER_BYTES],
            header_bytes: 0,
            fragment: None,
            arriving: None,
            count: 0,
        }
    }

    /// The number of the record that has come in part.
    pub(crate) fn arriving(&self) -> Option<u64> {
        let begun = self.header_bytes > 0 || self.fragment.is_some() || self.arriving.is_some();
        begun.then_some(self.count)
    }

    /// Tells whether `input` begins with a whole record, and nothing was taken before.
    pub(crate) fn has_whole_record(&self, input: &View) -> bool {
        let Some((header, rest)) = input.split_first_chunk() else {
            return false;
        };
        let fragment = Fragment::parse(*header);
        self.arriving().is_none() && fragment.is_last && rest.len() >= fragment.length as usize
    }

    /// Takes bytes from the front of `input`, up to the end of a record.
    pub(crate) fn next(
        &mut self,
        input: &mut View,
        pool: &Pool,
        room: &mut Room,
    ) -> Result<Next, FramingError> {
        loop {
            if self.is_lent() {
                return Ok(Next::Hungry);
            }
            if let Some(record) = self.take_arrived(input) {
                return Ok(record);
            }
            if self.arriving.as_ref().is_some_and(Arriving::wants_bytes) {
                return Ok(Next::Hungry);
            }
            let Some(fragment) = self.fragment(input)? else {
                return Ok(Next::Hungry);
            };
            let length = fragment.length as usize;
            if self.arriving.is_none() {
                // How long the whole will be nobody knows before its last fragment.
                let bytes = if fragment.is_last { length } else { self.max };
                if !room.may_take_buffers() || !room.take(bytes as u64) {
                    return Ok(Next::Blocked);
                }
                let Some(place) = room.place(Landing::Anywhere, bytes, pool) else {
                    room.give_back(bytes as u64);
                    return Ok(Next::Blocked);
                };
                room.grant();
                self.arriving = Some(Arriving {
                    segment: place.into_iter().next(),
                    filled: 0,
                    length: 0,
                    is_last: false,
                    taken: bytes as u64,
                });
            }
            self.fragment = None;
            let arriving = self.arriving.as_mut().expect("it was just there");
            arriving.length += length;
            arriving.is_last = fragment.is_last;
        }
    }

    /// The next fragment's header, once it is there.
    fn fragment(&mut self, input: &mut View) -> Result<Option<Fragment>, FramingError> {
        if self.fragment.is_none() {
            let count = input.len().min(HEADER_BYTES - self.header_bytes);
            self.header[self.header_bytes..][..count].copy_from_slice(&input[..count]);
            input.advance(count);
            self.header_bytes += count;
            if self.header_bytes < HEADER_BYTES {
                return Ok(None);
            }
            self.header_bytes = 0;
            let fragment = Fragment::parse(self.header);
            let before = self.arriving.as_ref().map_or(0, |arriving| arriving.length);
            if fragment.length == 0 {
                return Err(FramingError::Empty);
            }
            if before + fragment.length as usize > self.max {
                return Err(FramingError::TooLong { max: self.max });
            }
            self.fragment = Some(fragment);
        }
        Ok(self.fragment)
    }

    /// Moves input into the record that is arriving; the record, when it is whole.
    fn take_arrived(&mut self, input: &mut View) -> Option<Next> {
        let arriving = self.arriving.as_mut()?;
        let segment = arriving.segment.as_mut().expect("it is not lent");
        let count = input.len().min(arriving.length - arriving.filled);
        if count > 0 {
            segment[arriving.filled..][..count].copy_from_slice(&input[..count]);
            input.advance(count);
            arriving.filled += count;
        }
        if arriving.filled < arriving.length || !arriving.is_last {
            return None;
        }
        let arrived = self.arriving.take().expect("it is there");
        self.count += 1;
        let mut segment = arrived.segment.expect("it is not lent");
        segment.set_len(arrived.filled);
        Some(Next::Record(segment.freeze(), arrived.taken))
    }

    fn is_lent(&self) -> bool {
        let arriving = self.arriving.as_ref();
        arriving.is_some_and(|arriving| arriving.segment.is_none())
    }

    /// Lends the segment that a record is received into, where all that is missing of it goes there.
    pub(crate) fn lend(&mut self) -> Option<(Segment, usize)> {
        let arriving = self.arriving.as_mut()?;
        let segment = arriving.segment.as_ref()?;
        let is_all = arriving.is_last && arriving.length == segment.len();
        if !is_all || arriving.filled == arriving.length {
            return None;
        }
        let segment = arriving.segment.take()?;
        Some((segment, arriving.filled))
    }

    /// A segment comes back into which `count` bytes were received.
    pub(crate) fn returned(&mut self, segment: Segment, count: usize) {
        let arriving = self.arriving.as_mut().expect("its segment was lent");
        arriving.segment = Some(segment);
        arriving.filled += count;
    }
}

impl Arriving {
    /// Tells whether bytes of a fragment that was begun are missing.
    fn wants_bytes(&self) -> bool {
        self.filled < self.length
    }
}

#[cfg(test)]
mod tests {
    use weir_front::Account;

    use super::*;

    /// The records that come out of a stream that arrives in pieces.
    fn records(stream: &[u8], piece: usize, max: u32) -> Result<Vec<Vec<u8>>, FramingError> {
        let pool = Pool::new(16 << 20);
        let account = Account::new(16 << 20);
        let mut room = Room::new(&account, 16 << 20, 16 << 20);
        let mut framing = Framing::new(max);
        let mut found = Vec::new();
        for piece in stream.chunks(piece) {
            let mut input = View::copy_of(piece);
            loop {
                match framing.next(&mut input, &pool, &mut room)? {
                    Next::Record(record, taken) => {
                        found.push(record.to_vec());
                        room.give_back(taken);
                    }
                    Next::Hungry => break,
                    Next::Blocked => panic!("there is room"),
                }
            }
            assert!(input.is_empty(), "all was taken");
        }
        assert_eq!(framing.arriving(), None, "the stream ends with a record");
        assert_eq!(account.used(), 0);
        Ok(found)
    }

    fn add(stream: &mut Vec<u8>, bytes: &[u8], is_last: bool) {
        let fragment = Fragment {
            length: bytes.len() as u32,
            is_last,
        };
        stream.extend_from_slice(&fragment.to_bytes());
        stream.extend_from_slice(bytes);
    }

    #[test]
    fn records_are_found_however_they_arrive() {
        let mut stream = Vec::new();
        let (short, long) = (vec![1; 100], vec![2; 5000]);
        add(&mut stream, &short, true);
        add(&mut stream, &long, true);
        add(&mut stream, &[3; 10], false);
        add(&mut stream, &[4; 3000], false);
        add(&mut stream, &[5], true);
        add(&mut stream, &short, true);
        let parts = [vec![3; 10], vec![4; 3000], vec![5]].concat();
        let expected = vec![short.clone(), long, parts, short];
        for piece in [1, 2, 3, 7, 100, 1000, 4096, 100_000] {
            assert_eq!(
                records(&stream, piece, 8192).as_ref(),
                Ok(&expected),
                "in {piece}s"
            );
        }
    }

    #[test]
    fn records_that_no_call_has_are_refused() {
        let mut long = Vec::new();
        add(&mut long, &[0; 100], false);
        add(&mut long, &[0; 100], true);
        let refused = FramingError::TooLong { max: 150 };
        assert_eq!(records(&long, 64, 150), Err(refused));
        assert_eq!(records(&[0x80, 0, 0, 0], 4, 150), Err(FramingError::Empty));
        assert_eq!(records(&[0, 0, 0, 0], 4, 150), Err(FramingError::Empty));
    }
}
