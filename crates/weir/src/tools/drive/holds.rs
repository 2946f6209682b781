//! Whether a drive holds anything: what has hold of it, the marks of what is known, and then any byte that is not zero at places all over it.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, bail};
use weir_block::{Operation, ReadBuffers, Volume};
use weir_lab::secret::without_in_text;
use weir_load::{Lane, LaneError};
use weir_reactor::Reactor;
use weir_volume::VolumeUrl;

use crate::tools::session::Session;

/// Places that are looked at, evenly over the drive, its first and last bytes among them.
const PLACES: u64 = 1024;
/// What is read at each.
const PLACE_BYTES: u64 = 4096;
/// Reads in flight.
const DEPTH: u32 = 32;

/// Refuses a drive that holds anything. Of a stripe there are several URLs.
pub(super) fn check_holds_nothing(
    session: &Session,
    volume: &Arc<dyn Volume>,
    urls: &[VolumeUrl],
) -> anyhow::Result<()> {
    let way = || {
        let each = urls.iter().map(|url| {
            let url = without_in_text(&url.to_string());
            format!("--destroy-data '{url}'")
        });
        let each = each.collect::<Vec<_>>().join(" ");
        format!("to overwrite it all the same, say {each}")
    };
    if let Some(what) = session.what_is_on(volume, &urls[0])? {
        bail!(
            "{} {what}, and would be overwritten; {}",
            volume.name(),
            way()
        );
    }
    let looked_at = Arc::clone(volume);
    let found = session.run(move |reactor| async move { data_at(&reactor, &looked_at).await })?;
    match found.with_context(|| format!("cannot tell whether {} is empty", volume.name()))? {
        None => Ok(()),
        Some(offset) => bail!(
            "{} holds data: what is at byte {offset} is not zero, and would be overwritten; {}",
            volume.name(),
            way()
        ),
    }
}

/// The first of the places at which there is something.
async fn data_at(reactor: &Reactor, volume: &Arc<dyn Volume>) -> Result<Option<u64>, LaneError> {
    let geometry = volume.geometry();
    let block = u64::from(geometry.block_size.bytes());
    let blocks = (PLACE_BYTES / block).clamp(1, geometry.blocks);
    let last = geometry.blocks - blocks;
    let mut places: VecDeque<u64> = (0..PLACES)
        .map(|place| (u128::from(last) * u128::from(place) / u128::from(PLACES - 1)) as u64)
        .collect();
    let mut lane = Lane::open(reactor, volume, DEPTH)?;
    let mut first: Option<u64> = None;
    loop {
        while first.is_none() && lane.has_room() {
            let Some(lba) = places.pop_front() else {
                break;
            };
            let read = Operation::Read {
                lba,
                blocks: blocks as u32,
                buffers: ReadBuffers::Lend,
            };
            lane.push(lba, read);
        }
        if lane.is_idle() {
            return Ok(first.map(|lba| lba * block));
        }
        let ended = lane.next().await;
        if let Err(error) = ended.result {
            return Err(lane.error(&ended.operation, error));
        }
        if let Operation::Read {
            buffers: ReadBuffers::Filled(data),
            ..
        } = &ended.operation
            && data.iter().any(|view| view.iter().any(|&byte| byte != 0))
        {
            first = Some(first.map_or(ended.tag, |first| first.min(ended.tag)));
        }
    }
}
