//! A bounded pool of aligned buffers for one reactor.
//!
//! Buffers come in size classes, each twice the one before. A class grows by chunks when it has no free buffer, and
//! [`Pool::trim`] gives chunks back in which every buffer is free. The bound counts chunks, so the memory of a pool
//! never passes it, whatever mixture of sizes is asked for.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::rc::Rc;

use crate::buffer::{Header, Origin, Reference, allocate_zeroed, heap_layout};
use crate::{ALIGNMENT, Segment, View, Views};

/// The smallest buffer, in bytes.
const SMALLEST: usize = ALIGNMENT;
/// Size classes: 4 KiB to 4 MiB.
const CLASSES: usize = 11;
/// A chunk holds at least this many bytes.
const CHUNK_BYTES_MIN: usize = 256 * 1024;

/// Lists of views that a pool keeps for their next use at most: as many as complete at once on a busy reactor.
const LISTS_KEPT: usize = 256;

/// A bounded pool of buffers. Clones share one pool.
#[derive(Clone)]
pub struct Pool {
    inner: Rc<PoolInner>,
}

/// The pool's bound does not leave room for a buffer now; try again when one came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the buffer pool is at its bound of {limit_bytes} bytes")]
pub struct Exhausted {
    /// The pool's bound.
    pub limit_bytes: usize,
}

/// How much of a pool is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// Bytes in buffers that are handed out, by their capacity.
    pub used_bytes: usize,
    /// Bytes in chunks, handed out or not.
    pub held_bytes: usize,
    /// The bound on `held_bytes`.
    pub limit_bytes: usize,
}

pub(crate) struct PoolInner {
    classes: [RefCell<Class>; CLASSES],
    limit_bytes: usize,
    held_bytes: Cell<usize>,
    used_bytes: Cell<usize>,
    releases: Cell<u64>,
    /// Empty lists with room on the heap.
    lists: RefCell<Vec<Views>>,
}

#[derive(Default)]
struct Class {
    chunks: Vec<Option<Chunk>>,
    free: Vec<(u32, u32)>,
}

struct Chunk {
    memory: NonNull<u8>,
    length: usize,
    headers: Box<[Header]>,
    used: u32,
}

impl Pool {
    /// An empty pool that will hold at most `limit_bytes`.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        let inner = PoolInner {
            classes: Default::default(),
            limit_bytes,
            held_bytes: Cell::new(0),
            used_bytes: Cell::new(0),
            releases: Cell::new(0),
            lists: RefCell::default(),
        };
        Pool {
            inner: Rc::new(inner),
        }
    }

    /// The longest segment that a pool hands out, in bytes.
    pub const LONGEST: usize = SMALLEST << (CLASSES - 1);

    /// Bytes by which a pool grows at least: with a bound below this it hands out nothing.
    pub const CHUNK: usize = CHUNK_BYTES_MIN;

    /// A segment of `length` bytes, aligned to [`ALIGNMENT`]. It returns to the pool when it, or the last view made
    /// from it, is dropped.
    ///
    /// # Errors
    /// [`Exhausted`] when the bound leaves no room.
    ///
    /// # Panics
    /// When `length` is above [`Pool::LONGEST`].
    pub fn segment(&self, length: usize) -> Result<Segment, Exhausted> {
        assert!(
            length <= Pool::LONGEST,
            "a pool's segments are at most {} bytes",
            Pool::LONGEST
        );
        let class = class_of(length);
        if self.inner.classes[class].borrow().free.is_empty() {
            self.grow(class)?;
        }
        let header = self.inner.hand_out(class);
        // The buffer holds a strong count on its pool until it is released.
        let _ = Rc::into_raw(Rc::clone(&self.inner));
        // SAFETY: the chunk outlives its handed-out buffers, and this one was free.
        let reference = unsafe { Reference::first(header) };
        Ok(Segment::new(reference, length))
    }

    /// An empty list of views with room for `count`, on the heap only where they do not fit into the list itself.
    #[must_use]
    pub fn list(&self, count: usize) -> Views {
        if count <= Views::new().inline_size() {
            return Views::new();
        }
        let mut list = self.inner.lists.borrow_mut().pop().unwrap_or_default();
        list.reserve_exact(count);
        list
    }

    /// Drops what is left in a list, and keeps its room for [`Pool::list`] where it is on the heap.
    pub fn keep_list(&self, mut list: Views) {
        list.clear();
        if list.spilled() {
            let mut lists = self.inner.lists.borrow_mut();
            if lists.len() < LISTS_KEPT {
                lists.push(list);
            }
        }
    }

    /// Gives back the memory of chunks in which every buffer is free, and of lists.
    pub fn trim(&self) {
        self.inner.lists.take();
        for class in &self.inner.classes {
            let class = &mut *class.borrow_mut();
            for index in 0..class.chunks.len() {
                if class.chunks[index]
                    .as_ref()
                    .is_some_and(|chunk| chunk.used == 0)
                {
                    let chunk = class.chunks[index].take().expect("just seen");
                    class.free.retain(|&(of, _)| of != index as u32);
                    self.inner
                        .held_bytes
                        .set(self.inner.held_bytes.get() - chunk.length);
                }
            }
        }
    }

    /// How much is in use.
    #[must_use]
    pub fn usage(&self) -> PoolUse {
        PoolUse {
            used_bytes: self.inner.used_bytes.get(),
            held_bytes: self.inner.held_bytes.get(),
            limit_bytes: self.inner.limit_bytes,
        }
    }

    /// How many buffers have come back so far. After [`Exhausted`], trying again is in vain until this has changed.
    #[must_use]
    pub fn releases(&self) -> u64 {
        self.inner.releases.get()
    }

    /// Whether `view` occupies a buffer of another pool than this: one that its users may be waiting for.
    #[must_use]
    pub fn is_of_another(&self, view: &View) -> bool {
        let own = Rc::as_ptr(&self.inner);
        view.pool()
            .is_some_and(|pool| pool.as_ptr().cast_const() != own)
    }

    fn grow(&self, class: usize) -> Result<(), Exhausted> {
        let size = size_of_class(class);
        let length = CHUNK_BYTES_MIN.max(size);
        let inner = &self.inner;
        if inner.held_bytes.get() + length > inner.limit_bytes {
            self.trim();
        }
        if inner.held_bytes.get() + length > inner.limit_bytes {
            return Err(Exhausted {
                limit_bytes: inner.limit_bytes,
            });
        }
        inner.held_bytes.set(inner.held_bytes.get() + length);
        let pool = NonNull::new(Rc::as_ptr(inner).cast_mut()).expect("an Rc is never null");
        inner.classes[class]
            .borrow_mut()
            .add_chunk(pool, class, length);
        Ok(())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Pool({:?})", self.usage())
    }
}

impl PoolInner {
    fn hand_out(&self, class: usize) -> NonNull<Header> {
        self.used_bytes
            .set(self.used_bytes.get() + size_of_class(class));
        let class = &mut *self.classes[class].borrow_mut();
        let (chunk, slot) = class.free.pop().expect("grow made a free buffer");
        let chunk = class.chunks[chunk as usize]
            .as_mut()
            .expect("free buffers are in live chunks");
        chunk.used += 1;
        NonNull::from(&chunk.headers[slot as usize])
    }

    pub(crate) fn take_back(&self, class: u8, chunk: u32, slot: u32) {
        let size = size_of_class(class as usize);
        self.used_bytes.set(self.used_bytes.get() - size);
        self.releases.set(self.releases.get() + 1);
        let class = &mut *self.classes[class as usize].borrow_mut();
        class.free.push((chunk, slot));
        let chunk = class.chunks[chunk as usize]
            .as_mut()
            .expect("a used chunk is live");
        chunk.used -= 1;
    }
}

impl Class {
    fn add_chunk(&mut self, pool: NonNull<PoolInner>, class: usize, length: usize) {
        let size = size_of_class(class);
        let memory = allocate_zeroed(length);
        let index = match self.chunks.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.chunks.push(None);
                self.chunks.len() - 1
            }
        };
        let slots = length / size;
        let headers = (0..slots)
            .map(|slot| {
                let origin = Origin::Pool {
                    pool,
                    class: class as u8,
                    chunk: index as u32,
                    slot: slot as u32,
                };
                // SAFETY: slot < length / size, so the offset is within the chunk.
                let memory = unsafe { memory.add(slot * size) };
                Header::new(memory, size as u32, origin)
            })
            .collect();
        self.chunks[index] = Some(Chunk {
            memory,
            length,
            headers,
            used: 0,
        });
        self.free
            .extend((0..slots as u32).rev().map(|slot| (index as u32, slot)));
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        assert_eq!(self.used, 0, "a chunk was freed under a buffer");
        // SAFETY: allocated with this layout, and no buffer of it is in use.
        unsafe { dealloc_chunk(self.memory, self.length) };
    }
}

/// # Safety
/// `memory` must come from `allocate_zeroed(length)` and not be used afterwards.
unsafe fn dealloc_chunk(memory: NonNull<u8>, length: usize) {
    // SAFETY: by the caller's promise.
    unsafe { std::alloc::dealloc(memory.as_ptr(), heap_layout(length)) };
}

fn size_of_class(class: usize) -> usize {
    SMALLEST << class
}

fn class_of(length: usize) -> usize {
    let units = length.max(1).div_ceil(SMALLEST).next_power_of_two();
    units.trailing_zeros() as usize
}
