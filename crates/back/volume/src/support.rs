//! Parts of every kind of volume: a geometry that several threads see, watchers, and the checks of a request.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_block::{
    Geometry, Landing, Operation, ReadBuffers, ResizeError, VolumeError, VolumeEvent, Watcher,
};
use weir_memory::{
    Pool, Segment, Segments, View, Views, copy_views, segments_len, slice_views, views_len,
};

/// The longest transfer that the volumes of this crate take in one request, in bytes.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// Locks a mutex. A panic elsewhere does not spoil what this crate guards: every change is made in one step.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A geometry of which the number of blocks may change. Reading it takes no lock and writes nothing shared.
#[derive(Debug)]
pub struct LiveGeometry {
    fixed: Geometry,
    blocks: AtomicU64,
    generation: AtomicU64,
}

impl LiveGeometry {
    /// Starts as `geometry`.
    pub fn new(geometry: Geometry) -> Self {
        LiveGeometry {
            fixed: geometry,
            blocks: AtomicU64::new(geometry.blocks),
            generation: AtomicU64::new(geometry.generation),
        }
    }

    /// As it is now.
    pub fn get(&self) -> Geometry {
        let generation = self.generation.load(Ordering::Acquire);
        Geometry {
            generation,
            blocks: self.blocks.load(Ordering::Acquire),
            ..self.fixed
        }
    }

    /// Sets the number of blocks; whether it is another one than before.
    pub fn set_blocks(&self, blocks: u64) -> bool {
        if self.blocks.swap(blocks, Ordering::AcqRel) == blocks {
            return false;
        }
        self.generation.fetch_add(1, Ordering::AcqRel);
        true
    }
}

/// Those who are told what happens to a volume.
#[derive(Default)]
pub struct Watchers(Mutex<Vec<Weak<dyn Watcher>>>);

impl Watchers {
    /// Adds one, for as long as it lives.
    pub fn add(&self, watcher: Weak<dyn Watcher>) {
        let mut watchers = lock(&self.0);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        watchers.push(watcher);
    }

    /// Tells everyone, outside the lock: a watcher may ask the volume something.
    pub fn tell(&self, event: VolumeEvent) {
        let watchers: Vec<_> = lock(&self.0).iter().filter_map(Weak::upgrade).collect();
        watchers.iter().for_each(|watcher| watcher.notice(event));
    }
}

/// Flag that a sync or a durable change of a volume failed.
///
/// The medium tells of a loss once, by whichever of them comes first, and says neither which writes are gone nor that a later sync does not bring
/// them back. So once one failed every later sync fails, until the volume is opened again.
#[derive(Debug, Default)]
pub struct FailedSync(AtomicBool);

impl FailedSync {
    /// One failed with `error`.
    pub fn note(&self, volume: &str, error: &dyn std::fmt::Display) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::error!(
                %volume, %error,
                "a sync or durable write failed: what was written before may be lost; every flush fails until the volume is opened again"
            );
        }
    }

    /// Answer to a sync that did not fail by itself.
    ///
    /// # Errors
    /// [`VolumeError::Medium`] once one failed.
    pub fn check(&self) -> Result<(), VolumeError> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(VolumeError::Medium),
            false => Ok(()),
        }
    }
}

/// Whether a volume of this geometry can do an operation at all.
pub fn check(geometry: &Geometry, operation: &Operation) -> Result<(), VolumeError> {
    check_range(geometry, operation)?;
    if !operation.buffers_fit(geometry.block_size) {
        return Err(VolumeError::Invalid);
    }
    let blocks_max = match operation {
        Operation::Read { .. } | Operation::Write { .. } | Operation::Compare { .. } => {
            geometry.transfer_blocks_max
        }
        Operation::CompareWrite { blocks, .. } if *blocks > geometry.compare_write_blocks => {
            return Err(VolumeError::Unsupported);
        }
        _ => return Ok(()),
    };
    let (_, blocks) = operation.range().expect("a transfer has a range");
    if blocks > u64::from(blocks_max) {
        return Err(VolumeError::Invalid);
    }
    Ok(())
}

/// Whether an operation's range lies within the volume, and it may be done there.
pub fn check_range(geometry: &Geometry, operation: &Operation) -> Result<(), VolumeError> {
    let Some((lba, blocks)) = operation.range() else {
        return Ok(());
    };
    if blocks == 0 {
        return Err(VolumeError::Invalid);
    }
    if !geometry.contains(lba, blocks) {
        return Err(VolumeError::OutOfRange);
    }
    if operation.modifies() && geometry.read_only {
        return Err(VolumeError::ReadOnly);
    }
    Ok(())
}

/// Refuses a new number of blocks that would cut off what was not meant to be cut off, or that is none.
pub fn check_resize(geometry: &Geometry, blocks: u64, force: bool) -> Result<(), ResizeError> {
    let bytes = |blocks: u64| blocks.saturating_mul(u64::from(geometry.block_size.bytes()));
    if blocks == 0 || blocks > u64::MAX >> geometry.block_size.shift() {
        return Err(ResizeError::Medium {
            reason: format!("a volume cannot have {blocks} blocks"),
        });
    }
    if blocks < geometry.blocks && !force {
        return Err(ResizeError::WouldShrink {
            from_bytes: bytes(geometry.blocks),
            to_bytes: bytes(blocks),
        });
    }
    Ok(())
}

/// Segments of `bytes` together from a pool; none when it is exhausted for now.
pub fn pool_segments(pool: &Pool, bytes: usize) -> Option<Segments> {
    let mut segments = Segments::new();
    let mut left = bytes;
    while left > 0 {
        let length = left.min(Pool::LONGEST);
        segments.push(pool.segment(length).ok()?);
        left -= length;
    }
    Some(segments)
}

/// Where a volume without wishes of its own has data received: in the reactor's pool.
pub fn pool_landing(pool: &Pool, bytes: usize) -> Landing {
    pool_segments(pool, bytes).map_or(Landing::Wait, Landing::Ready)
}

/// Gives the data of a read to whoever asked for it: into the buffers of the request, or as it is.
pub fn fill(buffers: &mut ReadBuffers, data: Views) {
    let filled = match std::mem::replace(buffers, ReadBuffers::Lend) {
        ReadBuffers::Lend => data,
        ReadBuffers::Into(mut segments) => {
            let lengths = (views_len(&data), segments_len(&segments));
            assert_eq!(lengths.0, lengths.1, "data and buffers are of one length");
            copy_at(&data, &mut segments, 0);
            freeze(segments)
        }
        ReadBuffers::Filled(_) => unreachable!("a request's buffers are not filled"),
    };
    *buffers = ReadBuffers::Filled(filled);
}

/// Makes filled segments the data of a completed read.
pub fn freeze(segments: Segments) -> Views {
    segments.into_iter().map(Segment::freeze).collect()
}

/// Copies views into segments, from their byte `at` on.
pub(crate) fn copy_at(views: &[View], segments: &mut [Segment], at: usize) {
    let (bytes, mut copied, mut skipped) = (views_len(views), 0, 0);
    for segment in segments {
        let from = (at - skipped).min(segment.len());
        skipped += from;
        let target = &mut segment[from..];
        let length = target.len().min(bytes - copied);
        let part = slice_views(views, copied, length);
        copy_views(&part, &mut target[..length]);
        copied += length;
    }
    assert_eq!(copied, bytes, "what is copied lies within the segments");
}

/// Compares two sequences of views of one length.
pub fn compare_views(left: &[View], right: &[View]) -> Result<(), VolumeError> {
    let mut offset = 0;
    let mut others = right.iter().map(|view| &**view);
    let mut other: &[u8] = &[];
    for view in left {
        let mut rest: &[u8] = view;
        while !rest.is_empty() {
            while other.is_empty() {
                other = others.next().expect("what is compared is of one length");
            }
            let length = rest.len().min(other.len());
            compare_bytes(&rest[..length], &other[..length], offset)?;
            (rest, other) = (&rest[length..], &other[length..]);
            offset += length as u64;
        }
    }
    Ok(())
}

/// Compares bytes; a difference is counted from `offset`.
pub(crate) fn compare_bytes(left: &[u8], right: &[u8], offset: u64) -> Result<(), VolumeError> {
    if left == right {
        return Ok(());
    }
    let differs = |(left, right): (&u8, &u8)| left != right;
    let at = left.iter().zip(right).position(differs);
    let at = at.expect("what is not equal differs somewhere") as u64;
    Err(VolumeError::Miscompare {
        offset: offset + at,
    })
}

/// Moves a request to another range. Its data stays as it is.
pub(crate) fn change_range(operation: &mut Operation, change: impl FnOnce(u64, u64) -> (u64, u64)) {
    match operation {
        Operation::Read { lba, blocks, .. }
        | Operation::Write { lba, blocks, .. }
        | Operation::Compare { lba, blocks, .. }
        | Operation::CompareWrite { lba, blocks, .. } => {
            let (to, length) = change(*lba, u64::from(*blocks));
            *lba = to;
            *blocks = u32::try_from(length).expect("a transfer stays one");
        }
        Operation::WriteZeroes { lba, blocks, .. }
        | Operation::Deallocate { lba, blocks }
        | Operation::Verify { lba, blocks } => (*lba, *blocks) = change(*lba, *blocks),
        Operation::Flush => {}
    }
}

/// So many blocks as a multiple of `bytes`, for `size=`: sizes are whole blocks and not zero.
pub(crate) fn blocks_of_size(
    bytes: u64,
    block_size: weir_block::BlockSize,
) -> Result<u64, crate::UrlError> {
    let block_bytes = u64::from(block_size.bytes());
    if bytes == 0 || !bytes.is_multiple_of(block_bytes) {
        let allowed = format!("a multiple of the block size of {block_bytes} bytes, and not 0");
        return Err(crate::url::value_error("size", &bytes.to_string(), allowed));
    }
    Ok(bytes >> block_size.shift())
}

pub(crate) type SharedLive = Arc<LiveGeometry>;
