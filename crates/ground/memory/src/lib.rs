//! Buffers: where the bytes of a request live, who may write them, and when they are free again.
//!
//! * [`Segment`] is a buffer that one owner may write: to receive into, to read a medium into.
//! * [`View`] is a range of immutable bytes that may be shared: to send, to write to a medium, to lend.
//!   A segment becomes a view by [`Segment::freeze`]; nothing is copied.
//! * [`Pool`] hands out segments from a bounded amount of memory that belongs to one reactor.
//! * [`SharedBuffer`] is immutable memory that several reactors may lend at once.
//! * [`Gather`] is what one send transmits: protocol headers and views, in order.
//!
//! Buffers of a pool never leave their thread. This crate does no I/O and knows no protocol.

mod buffer;
mod gather;
mod pool;
mod shared;
mod view;

pub use buffer::Segment;
pub use gather::Gather;
pub use pool::{Exhausted, Pool, PoolUse};
pub use shared::SharedBuffer;
pub use view::View;

/// Alignment of every buffer, in bytes: what direct I/O asks for on every medium known to us.
pub const ALIGNMENT: usize = 4096;

/// The segments of one transfer, in order.
pub type Segments = smallvec::SmallVec<[Segment; 2]>;

/// The views of one transfer, in order.
pub type Views = smallvec::SmallVec<[View; 2]>;

/// The number of bytes in `segments`.
#[must_use]
pub fn segments_len(segments: &[Segment]) -> usize {
    segments.iter().map(|segment| segment.len()).sum()
}

/// The number of bytes in `views`.
#[must_use]
pub fn views_len(views: &[View]) -> usize {
    views.iter().map(|view| view.len()).sum()
}

/// The `length` bytes of `views` that start `from` bytes from their beginning. Nothing is copied.
///
/// # Panics
/// When there are fewer.
#[must_use]
pub fn slice_views(views: &[View], from: usize, length: usize) -> Views {
    let mut slices = Views::new();
    let (mut skip, mut left) = (from, length);
    for view in views {
        if left == 0 {
            break;
        }
        if skip >= view.len() {
            skip -= view.len();
            continue;
        }
        let taken = left.min(view.len() - skip);
        slices.push(view.slice(skip..skip + taken));
        (skip, left) = (0, left - taken);
    }
    assert_eq!(left, 0, "a slice lies within the views");
    slices
}

/// Copies `views` end to end into `target`, which must be exactly as long as they are together.
///
/// # Panics
/// When the lengths differ.
pub fn copy_views(views: &[View], target: &mut [u8]) {
    assert_eq!(
        views_len(views),
        target.len(),
        "views and target must be of one length"
    );
    let mut rest = target;
    for view in views {
        let (head, tail) = rest.split_at_mut(view.len());
        head.copy_from_slice(view);
        rest = tail;
    }
}

#[cfg(test)]
mod tests;
