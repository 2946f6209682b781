//! An answer that many hold back. Control path only: it locks.

use std::sync::{Arc, Mutex};

use weir_block::{FenceReply, VolumeError};

use crate::support::lock;

/// Replies to a fence when its last clone is dropped: everybody who had to wait for something holds one.
pub struct WhenAll {
    reply: Mutex<Option<FenceReply>>,
    result: Mutex<Result<(), VolumeError>>,
}

impl WhenAll {
    /// The first of those who hold `reply` back.
    pub fn new(reply: FenceReply) -> Arc<Self> {
        Arc::new(WhenAll {
            reply: Mutex::new(Some(reply)),
            result: Mutex::new(Ok(())),
        })
    }

    /// One of those waited for failed.
    pub fn fail(&self, error: VolumeError) {
        *lock(&self.result) = Err(error);
    }
}

impl Drop for WhenAll {
    fn drop(&mut self) {
        if let Some(reply) = lock(&self.reply).take() {
            reply(*lock(&self.result));
        }
    }
}
