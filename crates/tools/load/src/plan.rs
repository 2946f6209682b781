//! What bench and verify have in common: requests that fit the volume, and lanes on several reactors driven to their end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use weir_block::{Geometry, Volume};
use weir_reactor::{Call, Reactor};

use crate::PROGRESS_INTERVAL;
use crate::lane::LaneError;

/// Why a tool did not start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The request size does not fit the volume.
    #[error(
        "requests of {request_bytes} bytes do not fit {volume}: it takes multiples of {block_bytes} bytes, at most {max_bytes}, and each queue works within {length_bytes} bytes"
    )]
    RequestSize {
        /// What was asked for.
        request_bytes: u64,
        /// The volume's name.
        volume: String,
        /// The volume's block size.
        block_bytes: u64,
        /// The longest request.
        max_bytes: u64,
        /// The length of the part of the volume that each queue works on.
        length_bytes: u64,
    },
    /// Writes were asked for and the volume is read-only.
    #[error("{volume} is read-only; only reading it is possible")]
    ReadOnly {
        /// The volume's name.
        volume: String,
    },
    /// Deallocations were asked for and the volume has none.
    #[error("{volume} cannot deallocate; only reads, writes and flushes are possible")]
    NoDeallocate {
        /// The volume's name.
        volume: String,
    },
    /// A length that the volume's blocks do not divide.
    #[error("{what} is {bytes} bytes, and {volume} takes multiples of {block_bytes} bytes")]
    Multiple {
        /// Which.
        what: &'static str,
        /// What was asked for.
        bytes: u64,
        /// The volume's name.
        volume: String,
        /// The volume's block size.
        block_bytes: u64,
    },
    /// A number that must not be zero.
    #[error("{what} must be at least 1")]
    Zero {
        /// Which.
        what: &'static str,
    },
}

/// What a tool asks of a volume.
pub(crate) struct Plan {
    pub(crate) request_bytes: u64,
    /// The longest request that the tool makes, whatever the volume takes.
    pub(crate) request_bytes_max: u64,
    pub(crate) writes: bool,
    /// Blocks that each queue works on.
    pub(crate) part_blocks: u64,
}

impl Plan {
    pub(crate) fn check(
        &self,
        volume: &Arc<dyn Volume>,
        geometry: &Geometry,
    ) -> Result<(), PlanError> {
        if geometry.read_only && self.writes {
            return Err(PlanError::ReadOnly {
                volume: volume.name(),
            });
        }
        let block_bytes = u64::from(geometry.block_size.bytes());
        let transfer_bytes = u64::from(geometry.transfer_blocks_max) * block_bytes;
        let max_bytes = transfer_bytes.min(self.request_bytes_max);
        let length_bytes = self.part_blocks * block_bytes;
        let request_bytes = self.request_bytes;
        let fits = request_bytes > 0
            && request_bytes.is_multiple_of(block_bytes)
            && request_bytes <= max_bytes.min(length_bytes);
        if fits {
            return Ok(());
        }
        let volume = volume.name();
        Err(PlanError::RequestSize {
            request_bytes,
            volume,
            block_bytes,
            max_bytes,
            length_bytes,
        })
    }
}

/// Refuses a zero among numbers that must not be.
pub(crate) fn refuse_zero(numbers: &[(&'static str, u64)]) -> Result<(), PlanError> {
    match numbers.iter().find(|(_, number)| *number == 0) {
        Some(&(what, _)) => Err(PlanError::Zero { what }),
        None => Ok(()),
    }
}

/// Blocks of the volume that are used when only its first `range_bytes` are.
pub(crate) fn range_blocks(geometry: &Geometry, range_bytes: Option<u64>) -> u64 {
    let blocks = |bytes: u64| (bytes >> geometry.block_size.shift()).min(geometry.blocks);
    range_bytes.map_or(geometry.blocks, blocks)
}

/// Drives lanes to their end, calling `tick` at every progress interval. Ends early with the first lane that fails.
pub(crate) async fn drive<T: Send + 'static, E: From<LaneError> + Send + 'static>(
    control: &Reactor,
    mut lanes: Vec<Call<Result<T, E>>>,
    mut tick: impl FnMut(),
) -> Result<Vec<T>, E> {
    let mut timer = control.sleep(PROGRESS_INTERVAL);
    let mut finished = Vec::new();
    std::future::poll_fn(|context| {
        let mut failed = None;
        lanes.retain_mut(|lane| match Pin::new(lane).poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(Ok(result))) => {
                finished.push(result);
                false
            }
            Poll::Ready(Ok(Err(error))) => {
                failed = Some(error);
                false
            }
            Poll::Ready(Err(stopped)) => {
                failed = Some(LaneError::from(stopped).into());
                false
            }
        });
        if let Some(error) = failed {
            return Poll::Ready(Err(error));
        }
        if lanes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while Pin::new(&mut timer).poll(context).is_ready() {
            tick();
            timer = control.sleep(PROGRESS_INTERVAL);
        }
        Poll::Pending
    })
    .await?;
    Ok(finished)
}
