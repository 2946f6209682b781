//! The buffers from which the ring chooses one when bytes arrive (IORING_REGISTER_PBUF_RING).
//!
//! They come from a pool of their own, so that data buffers which wait for bytes from the network never take the memory
//! through which these bytes come. A buffer that was received into leaves as a view, and a fresh one takes its place;
//! when readers hold so many views that the pool is at its bound, its place stays empty until one comes back.
//!
//! No more buffers are offered than are used at once, so that those in use stay in the processor's cache. Who expects more
//! than a buffer holds receives into a large one of its own. These are few, and have a bound of their own, so that they take
//! nothing from the others.

use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use weir_memory::{ALIGNMENT, Pool, Segment, View};

/// The one group of buffers that a ring has.
pub(super) const GROUP: u16 = 0;

/// Buffers that are offered at least.
const OFFERED_MIN: usize = 8;
/// Turns over which it is seen how many buffers are used at once.
const TURNS_OBSERVED: u32 = 1024;
/// Bytes of a large buffer.
const BULK_BYTES: usize = 256 * 1024;
/// Bytes that a receive for headers takes at most.
pub(super) const HEADERS_BYTES: u32 = 4096;

/// Buffers for receives into [`crate::ReceiveInto::Ring`], for each reactor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiveBuffers {
    /// Buffers that wait for bytes, a power of two up to 32768. At least as many again may be held by readers, as views.
    pub count: u16,
    /// Bytes in a buffer, which is what one receive yields at most. A view pins the whole of it, however few bytes came.
    pub bytes: u32,
}

impl Default for ReceiveBuffers {
    /// 128 buffers of 32 KiB: a capsule with 16 KiB of data in it arrives in one piece, and 4 MiB may wait.
    fn default() -> Self {
        ReceiveBuffers {
            count: 128,
            bytes: 32 * 1024,
        }
    }
}

impl ReceiveBuffers {
    /// The most memory that they take, for each reactor, on top of its own pool: those that wait and at least as many
    /// held, in the chunks by which a pool grows, and half as much for large buffers.
    #[must_use]
    pub fn memory_bytes_max(&self) -> usize {
        self.ring_bytes_max() + self.bulk_bytes_max()
    }

    fn ring_bytes_max(&self) -> usize {
        (2 * self.waiting_bytes()).next_multiple_of(Pool::CHUNK)
    }

    /// None where there is no room for one.
    fn bulk_bytes_max(&self) -> usize {
        self.waiting_bytes() / BULK_BYTES * BULK_BYTES
    }

    fn waiting_bytes(&self) -> usize {
        let buffer = (self.bytes as usize).next_power_of_two().max(ALIGNMENT);
        usize::from(self.count) * buffer
    }

    pub(super) fn check(&self) -> io::Result<()> {
        let fits = self.count.is_power_of_two() && self.count <= 1 << 15;
        if !fits || self.bytes == 0 || self.bytes as usize > Pool::LONGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "receive buffers: {} of {} bytes; their number is a power of two up to 32768, their size 1 to {} bytes",
                    self.count,
                    self.bytes,
                    Pool::LONGEST
                ),
            ));
        }
        Ok(())
    }
}

/// A ring of provided buffers, registered with the kernel.
pub(super) struct BufferRing {
    /// The ring that the kernel reads: an entry for each buffer.
    memory: Segment,
    pool: Pool,
    /// Large buffers.
    bulk: Pool,
    /// By buffer number: the buffer while the kernel may choose it.
    segments: Vec<Option<Segment>>,
    /// Numbers of buffers that are not offered.
    missing: Vec<u16>,
    /// How many buffers are offered.
    wanted: usize,
    /// Buffers taken since the last refill, and the most at once in the turns that were observed.
    taken: usize,
    taken_max: usize,
    turns: u32,
    /// How many buffers had come back to the pool when it was last found empty.
    releases_when_empty: u64,
    tail: u16,
    bytes: u32,
}

impl BufferRing {
    /// Registers and fills a ring of buffers.
    pub(super) fn new(submitter: &Submitter<'_>, config: ReceiveBuffers) -> io::Result<Self> {
        config.check()?;
        let count = usize::from(config.count);
        let mut memory = Segment::heap(count * size_of::<BufRingEntry>());
        let address = memory.as_mut_ptr() as u64;
        // SAFETY: the memory is page-aligned, holds `count` entries, and lives until `BufferRing::unregister`.
        unsafe { submitter.register_buf_ring_with_flags(address, config.count, GROUP, 0)? };
        let mut ring = BufferRing {
            memory,
            pool: Pool::new(config.ring_bytes_max()),
            bulk: Pool::new(config.bulk_bytes_max()),
            segments: (0..count).map(|_| None).collect(),
            missing: (0..config.count).rev().collect(),
            wanted: OFFERED_MIN.min(count),
            taken: 0,
            taken_max: 0,
            turns: 0,
            releases_when_empty: u64::MAX,
            tail: 0,
            bytes: config.bytes,
        };
        ring.refill();
        Ok(ring)
    }

    /// Bytes in one buffer.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Buffers that the kernel may choose.
    pub(super) fn available(&self) -> usize {
        self.segments.len() - self.missing.len()
    }

    /// Offers as many buffers as are wanted, as far as the pool allows.
    pub(super) fn refill(&mut self) {
        self.observe();
        if self.available() >= self.wanted || self.pool.releases() == self.releases_when_empty {
            return;
        }
        while self.available() < self.wanted {
            let Ok(segment) = self.pool.segment(self.bytes as usize) else {
                self.releases_when_empty = self.pool.releases();
                return;
            };
            let number = self.missing.pop().expect("not all are offered");
            self.provide(number, segment);
        }
    }

    /// Follows what is used at once: twice as many are wanted.
    fn observe(&mut self) {
        if self.taken == 0 {
            return;
        }
        self.taken_max = self.taken_max.max(self.taken);
        self.taken = 0;
        self.turns += 1;
        if self.turns == TURNS_OBSERVED {
            let wanted = (2 * self.taken_max).max(OFFERED_MIN);
            self.wanted = self.wanted.min(wanted);
            (self.turns, self.taken_max) = (0, 0);
        }
    }

    /// A receive found no buffer: more are wanted.
    pub(super) fn ran_out(&mut self) {
        self.wanted = (2 * self.wanted).min(self.segments.len());
        self.taken_max = self.taken_max.max(self.wanted / 2);
    }

    /// A large buffer, where there is one.
    pub(super) fn bulk(&mut self) -> Option<Segment> {
        if BULK_BYTES <= self.bytes as usize {
            return None;
        }
        self.bulk.segment(BULK_BYTES).ok()
    }

    /// Takes the buffer that the kernel chose and filled with `length` bytes.
    pub(super) fn take(&mut self, number: u16, length: usize) -> View {
        let mut segment = self.segments[usize::from(number)]
            .take()
            .expect("the kernel chooses among the buffers that it was given");
        segment.set_len(length);
        self.missing.push(number);
        self.taken += 1;
        segment.freeze()
    }

    /// Takes back a buffer that the kernel chose and did not fill.
    pub(super) fn put_back(&mut self, number: u16) {
        let segment = self.segments[usize::from(number)]
            .take()
            .expect("the kernel chooses among the buffers that it was given");
        self.provide(number, segment);
    }

    fn provide(&mut self, number: u16, mut segment: Segment) {
        let index = usize::from(self.tail) & (self.segments.len() - 1);
        let entries = self.memory.as_mut_ptr().cast::<BufRingEntry>();
        // SAFETY: `index` is below the number of entries that the memory holds, and between head and tail the kernel
        // looks at no other: this one is beyond the tail. Only the three fields are set, for the tail itself lies in what
        // is left of the first entry.
        unsafe {
            let entry = &mut *entries.add(index);
            entry.set_addr(segment.as_mut_ptr() as u64);
            entry.set_len(self.bytes);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is a 16-bit word within the first entry, aligned, and written only here.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
        self.segments[usize::from(number)] = Some(segment);
    }

    /// Takes the ring back from the kernel. No receive that could choose a buffer may be in flight.
    pub(super) fn unregister(self, submitter: &Submitter<'_>) {
        if submitter.unregister_buf_ring(GROUP).is_err() {
            // The kernel may still look: its memory is never given back.
            std::mem::forget(self);
        }
    }
}
