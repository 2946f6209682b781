//! Memory that several reactors may read at once.

use std::alloc::dealloc;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::View;
use crate::buffer::{allocate_zeroed, heap_layout};

/// An aligned buffer that is written once, when it is made, and from then on only read, on any thread.
pub struct SharedBuffer {
    memory: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is owned, and never written after `new` returned.
unsafe impl Send for SharedBuffer {}
// SAFETY: as above: shared access only reads.
unsafe impl Sync for SharedBuffer {}

impl SharedBuffer {
    /// A buffer of `length` bytes as `fill` leaves it; it starts as zeroes.
    pub fn new(length: usize, fill: impl FnOnce(&mut [u8])) -> Arc<Self> {
        let buffer = SharedBuffer {
            memory: allocate_zeroed(length),
            length,
        };
        // SAFETY: the memory was just allocated with this length, and nobody else knows it yet.
        fill(unsafe { std::slice::from_raw_parts_mut(buffer.memory.as_ptr(), length) });
        Arc::new(buffer)
    }

    /// A view of the whole buffer.
    #[must_use]
    pub fn view(self: &Arc<Self>) -> View {
        View::shared(Arc::clone(self))
    }

    pub(crate) fn as_ptr(&self) -> *const u8 {
        self.memory.as_ptr()
    }
}

impl Deref for SharedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: allocated with this length, initialised, and immutable.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl Drop for SharedBuffer {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, and dropped once.
        unsafe { dealloc(self.memory.as_ptr(), heap_layout(self.length)) };
    }
}

impl fmt::Debug for SharedBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SharedBuffer({} bytes)", self.length)
    }
}
