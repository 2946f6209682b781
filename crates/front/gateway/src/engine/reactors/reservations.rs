//! Reservations of volumes in force: as many as the state has volumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;
use weir_front::{Hubs, Keeper, Kept, Reservations};
use weir_reservation::StoredTable;

use super::Books;
use crate::engine::ToKeep;
use crate::name::VolumeName;
use crate::state::State;

/// Hands what is to be stored of a volume's reservations to the control plane.
struct ForControl {
    volume: VolumeName,
    to_keep: mpsc::UnboundedSender<ToKeep>,
}

impl Keeper for ForControl {
    fn keep(&self, table: Option<StoredTable>, kept: Kept) {
        // Each volume has one operation at a time, so that the line is no longer than there are volumes. What nobody takes any more
        // is not stored.
        let _ = self.to_keep.send(ToKeep {
            volume: self.volume.clone(),
            table,
            kept,
        });
    }
}

/// Has reservations for each volume of `state`. A volume that was there before keeps its own.
pub(super) fn take_over(
    books: &mut Books,
    state: &State,
    hubs: &Hubs,
    to_keep: &mpsc::UnboundedSender<ToKeep>,
) {
    let mut before = std::mem::take(&mut books.reservations);
    let of = |(name, volume): (&VolumeName, &crate::state::Volume)| {
        let kept = before.remove(name);
        let reservations = kept.unwrap_or_else(|| {
            let keeper = ForControl {
                volume: name.clone(),
                to_keep: to_keep.clone(),
            };
            Reservations::new(hubs, volume.reservations.clone(), keeper)
        });
        (name.clone(), reservations)
    };
    books.reservations = state.volumes.iter().map(of).collect();
}

/// Reservations by volume.
pub(super) type ByVolume = BTreeMap<VolumeName, Arc<Reservations>>;
