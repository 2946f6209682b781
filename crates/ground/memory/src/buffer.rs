//! The counted memory behind segments and pooled views, and the segment itself.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::Rc;

use crate::pool::PoolInner;
use crate::{ALIGNMENT, View};

/// What is known of one buffer. It lives in its chunk (pooled) or in a box of its own (heap).
pub(crate) struct Header {
    /// Handles that refer to this buffer: one segment, or any number of views; 0 when free.
    references: Cell<u32>,
    /// First byte of the buffer.
    memory: NonNull<u8>,
    /// Bytes in the buffer.
    capacity: u32,
    origin: Origin,
}

pub(crate) enum Origin {
    /// Memory of its own, freed with the last handle.
    Heap,
    /// A slot of a pool. The pool is kept alive by a strong count that each handed-out buffer holds.
    Pool {
        pool: NonNull<PoolInner>,
        class: u8,
        chunk: u32,
        slot: u32,
    },
}

impl Header {
    pub(crate) fn new(memory: NonNull<u8>, capacity: u32, origin: Origin) -> Self {
        Header {
            references: Cell::new(0),
            memory,
            capacity,
            origin,
        }
    }
}

/// A counted reference to a [`Header`].
pub(crate) struct Reference(NonNull<Header>);

impl Reference {
    /// Takes the first reference to a free buffer.
    ///
    /// # Safety
    /// `header` must stay valid until [`release`] is called for it, and its buffer must be free.
    pub(crate) unsafe fn first(header: NonNull<Header>) -> Self {
        // SAFETY: valid by the caller's promise.
        let references = unsafe { &header.as_ref().references };
        assert_eq!(references.get(), 0, "a buffer was handed out twice");
        references.set(1);
        Reference(header)
    }

    fn header(&self) -> &Header {
        // SAFETY: a counted reference keeps its header alive.
        unsafe { self.0.as_ref() }
    }

    pub(crate) fn count(&self) -> u32 {
        self.header().references.get()
    }

    fn memory(&self) -> NonNull<u8> {
        self.header().memory
    }

    pub(crate) fn capacity(&self) -> usize {
        self.header().capacity as usize
    }

    /// The pool that the buffer belongs to; none: it has memory of its own.
    pub(crate) fn pool(&self) -> Option<NonNull<PoolInner>> {
        match self.header().origin {
            Origin::Heap => None,
            Origin::Pool { pool, .. } => Some(pool),
        }
    }
}

impl Clone for Reference {
    fn clone(&self) -> Self {
        let references = &self.header().references;
        references.set(
            references
                .get()
                .checked_add(1)
                .expect("references to one buffer overflow"),
        );
        Reference(self.0)
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        let references = &self.header().references;
        let left = references.get() - 1;
        references.set(left);
        if left == 0 {
            // SAFETY: this was the last handle, so nobody looks at the buffer any more.
            unsafe { release(self.0) };
        }
    }
}

/// Returns a buffer to where it came from.
///
/// # Safety
/// No handle to the buffer may be left.
unsafe fn release(header: NonNull<Header>) {
    // SAFETY: the header is valid until it is released here.
    match unsafe { &header.as_ref().origin } {
        Origin::Heap => {
            // SAFETY: `heap` made this header with Box::leak, and the memory with this layout.
            unsafe {
                let header = Box::from_raw(header.as_ptr());
                dealloc(
                    header.memory.as_ptr(),
                    heap_layout(header.capacity as usize),
                );
            }
        }
        &Origin::Pool {
            pool,
            class,
            chunk,
            slot,
        } => {
            // SAFETY: the buffer held a strong count on its pool, which is given up here.
            let pool = unsafe { Rc::from_raw(pool.as_ptr().cast_const()) };
            pool.take_back(class, chunk, slot);
        }
    }
}

/// The layout of an aligned block of `length` bytes.
pub(crate) fn heap_layout(length: usize) -> Layout {
    Layout::from_size_align(length.max(1), ALIGNMENT).expect("length fits the address space")
}

/// Zeroed, aligned memory.
pub(crate) fn allocate_zeroed(length: usize) -> NonNull<u8> {
    let layout = heap_layout(length);
    // SAFETY: the layout's size is not zero.
    let memory = unsafe { alloc_zeroed(layout) };
    NonNull::new(memory).unwrap_or_else(|| handle_alloc_error(layout))
}

/// A buffer with one owner, who may write it. Its memory is initialised from the start, though not with anything
/// meaningful: it may hold bytes of an earlier use.
pub struct Segment {
    reference: Reference,
    start: u32,
    length: u32,
}

impl Segment {
    /// A zeroed buffer of `length` bytes outside any pool, aligned to [`ALIGNMENT`].
    ///
    /// # Panics
    /// When `length` is 4 GiB or more.
    #[must_use]
    pub fn heap(length: usize) -> Self {
        let capacity = u32::try_from(length).expect("a segment is shorter than 4 GiB");
        let header = Header::new(allocate_zeroed(length), capacity, Origin::Heap);
        let header = NonNull::from(Box::leak(Box::new(header)));
        // SAFETY: the header is leaked until `release`, and new.
        let reference = unsafe { Reference::first(header) };
        Segment::new(reference, length)
    }

    /// A segment over the first `length` bytes of a buffer that nobody else refers to.
    pub(crate) fn new(reference: Reference, length: usize) -> Self {
        assert!(
            length <= reference.capacity(),
            "a segment lies within its buffer"
        );
        assert_eq!(
            reference.count(),
            1,
            "a segment is the only handle to its buffer"
        );
        Segment {
            reference,
            start: 0,
            length: length as u32,
        }
    }

    /// A copy of `bytes` outside any pool.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut segment = Segment::heap(bytes.len());
        segment.copy_from_slice(bytes);
        segment
    }

    /// Bytes from the segment's start to the end of its buffer.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.reference.capacity() - self.start as usize
    }

    /// Sets the length, anywhere up to [`Segment::capacity`].
    ///
    /// # Panics
    /// When `length` is above the capacity.
    pub fn set_len(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "a segment lies within its buffer"
        );
        self.length = length as u32;
    }

    /// Makes the bytes immutable and sharable.
    #[must_use]
    pub fn freeze(self) -> View {
        let memory = self.as_ptr();
        View::buffer(memory, self.length as usize, self.reference)
    }

    /// The buffer behind `reference` as a segment again, over the range that the view had.
    pub(crate) fn thaw(reference: Reference, start: *const u8, length: usize) -> Self {
        assert_eq!(
            reference.count(),
            1,
            "only the last view can become a segment"
        );
        let offset = start as usize - reference.memory().as_ptr() as usize;
        Segment {
            reference,
            start: offset as u32,
            length: length as u32,
        }
    }

    /// First byte, for the kernel to write to.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.as_ptr().cast_mut()
    }

    fn as_ptr(&self) -> *const u8 {
        // SAFETY: start is within the buffer.
        unsafe { self.reference.memory().as_ptr().add(self.start as usize) }
    }
}

impl Deref for Segment {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies within the buffer, whose memory is initialised and has no other handle.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.length as usize) }
    }
}

impl DerefMut for Segment {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for Deref; the only handle is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr(), self.length as usize) }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Segment({} bytes)", self.length)
    }
}
