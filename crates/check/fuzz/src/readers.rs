//! Readers of streams of PDUs, whatever the protocol: the same is read wherever the bytes are cut, and however the data is received.

use std::fmt::Debug;

/// A reader, as far as those of all protocols are alike.
pub(crate) trait StreamReader {
    /// An event that is no data.
    type Event: Debug + PartialEq;
    /// The end of a stream that cannot go on.
    type Error: Debug + PartialEq + Clone;

    /// Takes bytes up to the next event; returns how many, and the event.
    fn feed(&mut self, bytes: &[u8]) -> Result<(usize, Found<Self::Event>), Self::Error>;

    /// Bytes of data that come next, where data does.
    fn data_left(&self) -> Option<u32>;

    /// Takes data past [`StreamReader::feed`].
    fn data_received(&mut self, bytes: &[u8]);
}

/// An event of a reader.
pub(crate) enum Found<E> {
    /// None: all bytes were taken.
    Nothing,
    /// The bytes that were taken are data.
    Data,
    /// Another one.
    Event(E),
}

/// A stream as it was read: its events, the data of all PDUs joined, and its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading<E, F> {
    pub(crate) events: Vec<E>,
    pub(crate) data: Vec<u8>,
    error: Option<F>,
}

/// A way to hand bytes to a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pieces {
    Whole,
    /// In pieces, by this seed.
    Cut(u64),
    /// In pieces, and data past the reader.
    Direct(u64),
}

/// Reads a stream in every way, by the readers that `new` makes, and returns what all of them found.
pub(crate) fn read_everyhow<R: StreamReader>(
    bytes: &[u8],
    seed: u8,
    new: impl Fn() -> R,
) -> Reading<R::Event, R::Error> {
    let whole = read(bytes, new(), Pieces::Whole);
    let seed = u64::from(seed);
    for pieces in [Pieces::Cut(seed), Pieces::Direct(seed)] {
        assert_eq!(read(bytes, new(), pieces), whole, "{pieces:?}");
    }
    whole
}

fn read<R: StreamReader>(
    bytes: &[u8],
    mut reader: R,
    pieces: Pieces,
) -> Reading<R::Event, R::Error> {
    let mut reading = Reading {
        events: Vec::new(),
        data: Vec::new(),
        error: None,
    };
    let mut seed = match pieces {
        Pieces::Whole => 0,
        Pieces::Cut(seed) | Pieces::Direct(seed) => seed,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        seed = seed
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        let length = match pieces {
            Pieces::Whole => rest.len(),
            _ => (1 + (seed >> 33) as usize % 90).min(rest.len()),
        };
        let (mut piece, after) = rest.split_at(length);
        rest = after;
        if let (Pieces::Direct(_), Some(left)) = (pieces, reader.data_left()) {
            let (direct, back) = piece.split_at(piece.len().min(left as usize));
            piece = back;
            reading.data.extend_from_slice(direct);
            reader.data_received(direct);
        }
        if !feed(&mut reader, piece, &mut reading) {
            return reading;
        }
    }
    reading
}

/// Feeds one piece; false: the stream is at its end.
fn feed<R: StreamReader>(
    reader: &mut R,
    mut piece: &[u8],
    reading: &mut Reading<R::Event, R::Error>,
) -> bool {
    loop {
        let (taken, found) = match reader.feed(piece) {
            Ok(fed) => fed,
            Err(error) => {
                let again = reader.feed(&[]).err();
                assert_eq!(again.as_ref(), Some(&error), "an error is final");
                reading.error = Some(error);
                return false;
            }
        };
        let (taken, rest) = piece.split_at(taken);
        piece = rest;
        match found {
            Found::Nothing => {
                assert!(piece.is_empty(), "all is taken where nothing is found");
                return true;
            }
            Found::Data => {
                assert!(!taken.is_empty(), "data is of bytes");
                reading.data.extend_from_slice(taken);
            }
            Found::Event(event) => reading.events.push(event),
        }
    }
}

/// Implements [`StreamReader`] for the reader in a field of a structure; `after` sees each event.
macro_rules! stream_reader {
    ($name:ident, $event:ident, $error:ident, $wanted:ident, |$self:ident, $seen:ident| $after:block) => {
        impl $crate::readers::StreamReader for $name {
            type Event = $event;
            type Error = $error;

            fn feed(
                &mut self,
                bytes: &[u8],
            ) -> Result<(usize, $crate::readers::Found<$event>), $error> {
                use $crate::readers::Found;
                let fed = self.reader.feed(bytes)?;
                if let Some($seen) = &fed.event {
                    let $self = self;
                    $after
                }
                let found = match fed.event {
                    None => Found::Nothing,
                    Some($event::Data { .. }) => Found::Data,
                    Some(event) => Found::Event(event),
                };
                Ok((fed.consumed, found))
            }

            fn data_left(&self) -> Option<u32> {
                match self.reader.wanted() {
                    $wanted::Data(left) => Some(left),
                    _ => None,
                }
            }

            fn data_received(&mut self, bytes: &[u8]) {
                match self.reader.has_data_digest() {
                    true => self.reader.data_received(bytes),
                    false => self.reader.data_received_unseen(bytes.len()),
                }
            }
        }
    };
}
pub(crate) use stream_reader;
