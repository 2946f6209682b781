//! What commands do: the device server (SPC-4, SBC-3).

mod status;
mod unmap;
mod work;

use weir_scsi::lun::Lun as Address;
use weir_scsi::sense::{AdditionalSense, Sense};

pub(crate) use work::{REQUESTS_MAX, Work, completed, run};

use crate::attention::Attentions;
use crate::scene::Scene;
use crate::task::{Outcome, Task};

/// What commands for a logical unit are answered that is not there.
pub(crate) const NO_SUCH_LUN: Sense = Sense::unit_not_supported();

/// The number of a logical unit as an initiator wrote it.
#[inline]
pub(crate) fn lun_number(lun: u64) -> Option<u16> {
    match Address::parse(&lun.to_be_bytes()) {
        Ok(Address::Unit(number)) => Some(number),
        _ => None,
    }
}

pub(crate) fn plan(
    task: &mut Task,
    scene: &Scene,
    attentions: &mut Attentions,
) -> Result<(), Outcome> {
    let _ = (task, scene, attentions);
    Err(Outcome::check(NO_SUCH_LUN))
}
