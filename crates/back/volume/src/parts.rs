//! What volumes are made of: for kinds of volume in other crates as well.

pub use crate::lane::{BackEnd, Below, Fences, Lane, LaneQueue, Next, Turn, Work};
pub use crate::support::{
    FailedSync, LiveGeometry, Watchers, check, check_range, check_resize, compare_views, fill,
    freeze, lock, pool_landing, pool_segments,
};
pub use crate::when_all::WhenAll;
