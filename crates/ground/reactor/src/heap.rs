//! A heap that counts, for tests which hold that a steady state allocates nothing. It is not part of a reactor.
//!
//! A test program installs it and asks on the thread that matters:
//!
//! ```
//! use weir_reactor::heap::{CountingHeap, allocations};
//!
//! #[global_allocator]
//! static HEAP: CountingHeap = CountingHeap;
//!
//! let before = allocations();
//! let list = vec![1, 2, 3];
//! assert_eq!(allocations() - before, 1);
//! # drop(list);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static TO_TELL: Cell<u32> = const { Cell::new(0) };
}

/// The system's heap, which counts what each thread asks of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountingHeap;

/// Blocks that this thread has asked for so far, those that it made longer included.
#[must_use]
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Has this thread say on standard error where each of its next `count` allocations comes from; 0: none any more.
pub fn tell_next(count: u32) {
    TO_TELL.set(count);
}

fn count(bytes: usize) {
    // A thread that ends has no counter any more, and nobody who looks at it.
    let counted = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
    if counted.is_ok() && TO_TELL.get() > 0 {
        // Telling allocates too.
        let left = TO_TELL.replace(0) - 1;
        eprintln!("{bytes} bytes:\n{}", Backtrace::force_capture());
        TO_TELL.set(left);
    }
}

// SAFETY: every call is passed on as it came.
unsafe impl GlobalAlloc for CountingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: by the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: by the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: by the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }
}
