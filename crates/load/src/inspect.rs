//! What a volume carries, before it is overwritten.

use std::sync::Arc;

use weir_block::{Operation, ReadBuffers, Volume};
use weir_reactor::Reactor;
use weir_volume::probe::{HEAD_BYTES, TAIL_BYTES, contents};

use crate::lane::{Lane, LaneError};

/// Reads the places where partition tables, file systems and volume managers leave their marks, and says what was found first.
///
/// # Errors
/// [`LaneError`] when they cannot be read.
pub async fn inspect(
    reactor: &Reactor,
    volume: &Arc<dyn Volume>,
) -> Result<Option<&'static str>, LaneError> {
    let mut lane = Lane::open(reactor, volume, 1)?;
    let geometry = volume.geometry();
    let shift = geometry.block_size.shift();
    let blocks = |bytes: usize| (bytes as u64 >> shift).min(geometry.blocks);
    let head = read(
        &mut lane,
        0,
        blocks(HEAD_BYTES),
        geometry.transfer_blocks_max,
        shift,
    )
    .await?;
    let tail_blocks = blocks(TAIL_BYTES);
    let tail_start = geometry.blocks - tail_blocks;
    let tail = read(
        &mut lane,
        tail_start,
        tail_blocks,
        geometry.transfer_blocks_max,
        shift,
    )
    .await?;
    Ok(contents(&head, &tail))
}

async fn read(
    lane: &mut Lane<()>,
    first: u64,
    blocks: u64,
    blocks_max: u32,
    shift: u32,
) -> Result<Vec<u8>, LaneError> {
    let mut bytes = Vec::with_capacity((blocks << shift) as usize);
    let mut done = 0;
    while done < blocks {
        let step = (blocks - done).min(u64::from(blocks_max)) as u32;
        let operation = Operation::Read {
            lba: first + done,
            blocks: step,
            buffers: ReadBuffers::Lend,
        };
        let Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } = lane.alone((), operation).await?
        else {
            unreachable!("a read that succeeded is filled")
        };
        data.iter().for_each(|view| bytes.extend_from_slice(view));
        done += u64::from(step);
    }
    Ok(bytes)
}
