//! Unit attention conditions of one I_T nexus (SAM-5, section 5.14).

use std::collections::{BTreeMap, VecDeque};

use weir_scsi::sense::AdditionalSense;

/// Conditions of one logical unit that wait to be told. More than these, and the oldest is lost: it says less than the newer ones.
const PENDING_MAX: usize = 8;

/// What the initiator has not been told yet, by logical unit.
#[derive(Debug, Default)]
pub(crate) struct Attentions {
    pending: BTreeMap<u16, VecDeque<AdditionalSense>>,
}

impl Attentions {
    /// Tells whether there is nothing to tell.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a condition, where it does not wait already.
    pub(crate) fn add(&mut self, lun: u16, condition: AdditionalSense) {
        let of_lun = self.pending.entry(lun).or_default();
        if of_lun.contains(&condition) {
            return;
        }
        if of_lun.len() == PENDING_MAX {
            of_lun.pop_front();
        }
        of_lun.push_back(condition);
    }

    /// Drops all of a logical unit for one that says more: its reset.
    pub(crate) fn replace(&mut self, lun: u16, condition: AdditionalSense) {
        self.pending.insert(lun, VecDeque::from([condition]));
    }

    /// The oldest condition of a logical unit, which is told now.
    pub(crate) fn take(&mut self, lun: u16) -> Option<AdditionalSense> {
        let of_lun = self.pending.get_mut(&lun)?;
        let first = of_lun.pop_front();
        if of_lun.is_empty() {
            self.pending.remove(&lun);
        }
        first
    }

    /// Drops a condition everywhere: the initiator has learnt of it otherwise.
    pub(crate) fn forget(&mut self, condition: AdditionalSense) {
        self.pending.retain(|_, of_lun| {
            of_lun.retain(|other| *other != condition);
            !of_lun.is_empty()
        });
    }

    /// Drops those of logical units that the initiator does not see any more.
    pub(crate) fn retain(&mut self, sees: impl Fn(u16) -> bool) {
        self.pending.retain(|&lun, _| sees(lun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESIZED: AdditionalSense = AdditionalSense::CAPACITY_DATA_HAS_CHANGED;
    const LUNS: AdditionalSense = AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED;

    #[test]
    fn conditions_are_told_once_and_in_order() {
        let mut attentions = Attentions::default();
        attentions.add(1, RESIZED);
        attentions.add(1, LUNS);
        attentions.add(1, RESIZED);
        attentions.add(2, LUNS);
        assert_eq!(attentions.take(1), Some(RESIZED));
        attentions.forget(LUNS);
        assert!(attentions.is_empty());
        assert_eq!(attentions.take(1), None);
    }

    #[test]
    fn a_reset_says_more_than_what_came_before() {
        let mut attentions = Attentions::default();
        attentions.add(1, RESIZED);
        attentions.replace(1, AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED);
        assert_eq!(
            attentions.take(1),
            Some(AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED)
        );
        assert_eq!(attentions.take(1), None);
        attentions.add(3, RESIZED);
        attentions.retain(|lun| lun != 3);
        assert!(attentions.is_empty());
    }

    #[test]
    fn no_initiator_makes_a_target_keep_more_than_a_few() {
        let mut attentions = Attentions::default();
        for &condition in AdditionalSense::NAMED {
            attentions.add(0, condition);
        }
        let told = std::iter::from_fn(|| attentions.take(0)).count();
        assert_eq!(told, PENDING_MAX);
    }
}
