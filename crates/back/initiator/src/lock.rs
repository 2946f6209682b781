//! One way to lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. All that it guards is consistent between statements, so that a panic elsewhere does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
