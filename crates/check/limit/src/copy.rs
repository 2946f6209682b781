//! Copies of one processor, with a checksum: a recorder cannot do without them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use serde::Serialize;
use weir_digest::Digest;

/// Bytes of a block, and of the buffers that it is copied to, as a recorder has them.
const BLOCK_BYTES: usize = 64 << 10;
const BUFFER_BYTES: usize = 1 << 20;
/// Buffers, which take turns.
const BUFFERS: usize = 4;

/// The rate of the copies.
#[derive(Debug, Serialize)]
pub struct Copied {
    /// Bytes that were copied and checked.
    pub bytes: u64,
    /// Of these in a second.
    pub bytes_per_second: f64,
}

/// Copies for so long.
#[must_use]
pub fn run(time: Duration) -> Copied {
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|index| (index % 251) as u8).collect();
    let mut buffers = vec![vec![0_u8; BUFFER_BYTES]; BUFFERS];
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        for buffer in &mut buffers {
            for part in buffer.chunks_exact_mut(BLOCK_BYTES) {
                part.copy_from_slice(black_box(&block));
            }
            black_box(Digest::of(buffer));
            bytes += BUFFER_BYTES as u64;
        }
    }
    Copied {
        bytes,
        bytes_per_second: bytes as f64 / began.elapsed().as_secs_f64(),
    }
}
