//! Immutable bytes that may be shared.

use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::buffer::Reference;
use crate::pool::PoolInner;
use crate::{Segment, SharedBuffer};

/// A range of immutable bytes. Cloning and slicing copy nothing.
#[derive(Clone)]
pub struct View {
    start: *const u8,
    length: usize,
    owner: Owner,
}

#[derive(Clone)]
enum Owner {
    Static,
    Buffer(Reference),
    Shared(#[expect(dead_code, reason = "keeps the bytes alive")] Arc<SharedBuffer>),
}

/// Bytes in one view of zeroes at most.
const ZEROES_LEN: usize = 128 * 1024;

#[repr(align(4096))]
struct Zeroes([u8; ZEROES_LEN]);

static ZEROES: Zeroes = Zeroes([0; ZEROES_LEN]);

impl View {
    /// A view of bytes that live as long as the program.
    #[must_use]
    pub fn from_static(bytes: &'static [u8]) -> Self {
        View {
            start: bytes.as_ptr(),
            length: bytes.len(),
            owner: Owner::Static,
        }
    }

    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        View::from_static(&[])
    }

    /// A copy of `bytes` outside any pool.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        Segment::copy_of(bytes).freeze()
    }

    /// Views of `length` zero bytes together. They occupy no memory of their own.
    pub fn zeroes(length: usize) -> impl Iterator<Item = View> {
        let whole = length / ZEROES_LEN;
        let rest = length % ZEROES_LEN;
        std::iter::repeat_n(ZEROES_LEN, whole)
            .chain((rest > 0).then_some(rest))
            .map(|length| View::from_static(&ZEROES.0[..length]))
    }

    pub(crate) fn buffer(start: *const u8, length: usize, reference: Reference) -> Self {
        View {
            start,
            length,
            owner: Owner::Buffer(reference),
        }
    }

    pub(crate) fn shared(buffer: Arc<SharedBuffer>) -> Self {
        View {
            start: buffer.as_ptr(),
            length: buffer.len(),
            owner: Owner::Shared(buffer),
        }
    }

    /// The part of this view at `range`.
    ///
    /// # Panics
    /// When the range is not within the view.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> View {
        let part = &self[range];
        View {
            start: part.as_ptr(),
            length: part.len(),
            owner: self.owner.clone(),
        }
    }

    /// Splits off the first `length` bytes; they are returned, the rest stays.
    ///
    /// # Panics
    /// When the view is shorter.
    #[must_use]
    pub fn split_to(&mut self, length: usize) -> View {
        if length == self.length {
            return std::mem::replace(self, View::empty());
        }
        let head = View {
            start: self.start,
            length,
            owner: self.owner.clone(),
        };
        self.advance(length);
        head
    }

    /// Gives up the first `length` bytes. A view that has none left keeps no buffer.
    ///
    /// # Panics
    /// When the view is shorter.
    pub fn advance(&mut self, length: usize) {
        if length == self.length {
            *self = View::empty();
            return;
        }
        self.start = self[length..].as_ptr();
        self.length -= length;
    }

    /// The pool whose buffer it occupies, if it does.
    pub(crate) fn pool(&self) -> Option<NonNull<PoolInner>> {
        match &self.owner {
            Owner::Buffer(reference) => reference.pool(),
            Owner::Static | Owner::Shared(_) => None,
        }
    }

    /// The bytes as a segment again, when this is the last view of a buffer; the view itself otherwise.
    pub fn try_into_segment(self) -> Result<Segment, View> {
        match self.owner {
            Owner::Buffer(reference) if reference.count() == 1 => {
                Ok(Segment::thaw(reference, self.start, self.length))
            }
            owner => Err(View { owner, ..self }),
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the owner keeps the bytes alive and nobody may write them while a view exists.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl fmt::Debug for View {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "View({} bytes)", self.length)
    }
}
