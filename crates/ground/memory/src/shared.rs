//! Memory that several reactors may read at once.

use std::alloc::dealloc;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::View;
use crate::buffer::{allocate_zeroed, heap_layout};

/// An aligned buffer that is only read while it is shared, on any thread. Whoever has it alone ([`Arc::get_mut`]) may write it
/// again: no view of it is left then.
pub struct SharedBuffer {
    memory: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is owned.
unsafe impl Send for SharedBuffer {}
// SAFETY: shared access only reads; writing takes exclusive access.
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
        // SAFETY: allocated with this length, initialised, and not written while it is borrowed.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.length) }
    }
}

impl DerefMut for SharedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for Deref. It is borrowed mutably, and a view of it would hold a count that excludes this.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.length) }
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
