//! Reservations of volumes in force: as many as the state has volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use weir_front::{Hubs, Kept, Reservations};

use super::Books;
use crate::engine::ToKeep;
use crate::name::VolumeName;
use crate::state::{State, Volume};

/// Has reservations for each volume of `state`. A volume that was there before keeps its own.
pub(super) fn take_over(
    books: &mut Books,
    state: &State,
    hubs: &Hubs,
    to_keep: &mpsc::UnboundedSender<ToKeep>,
) {
    let mut before = std::mem::take(&mut books.reservations);
    let of = |(name, volume): (&VolumeName, &Volume)| {
        let reservations = before.remove(name).unwrap_or_else(|| {
            let (volume_name, to_keep) = (name.clone(), to_keep.clone());
            let keeper = move |table, kept: Kept| {
                // Each volume has one operation at a time, so that the line is no longer than there are volumes. What nobody takes
                // any more is not stored.
                let _ = to_keep.send(ToKeep {
                    volume: volume_name.clone(),
                    table,
                    kept,
                });
            };
            hubs.reservations(volume.reservations.clone(), keeper)
        });
        (name.clone(), reservations)
    };
    books.reservations = state.volumes.iter().map(of).collect();
}

/// Reservations by volume.
pub(super) type ByVolume = BTreeMap<VolumeName, Arc<Reservations>>;
