//! Reservation Notification, page 80h (NVMe Base 2.0c section 5.16.1.24).

use crate::wire::{open_enum, wire_struct};

open_enum! {
    /// Reservation Notification Log Page Type.
    pub enum ReservationNotificationType: u8 {
        /// 00h: nothing is waiting.
        Empty = 0x00 => "Empty Log Page",
        /// 01h.
        RegistrationPreempted = 0x01 => "Registration Preempted",
        /// 02h.
        ReservationReleased = 0x02 => "Reservation Released",
        /// 03h.
        ReservationPreempted = 0x03 => "Reservation Preempted",
    }
}

wire_struct! {
    /// Reservation Notification: the oldest event that is waiting. All zeroes where none is.
    pub struct ReservationNotification[64] {
        /// Log Page Count: number of events since the controller was made, from 1; a jump says that some were lost.
        0 => count: u64,
        /// Type of the event.
        8 => event: ReservationNotificationType,
        /// Number of Available Log Pages: events that wait behind this one; 255 is that many or more.
        9 => available: u8,
        /// Namespace.
        12 => nsid: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;

    #[test]
    fn the_page_is_laid_out_as_the_specification_says() {
        let page = ReservationNotification {
            count: 0x0102,
            event: ReservationNotificationType::ReservationReleased,
            available: 3,
            nsid: 0x0405_0607,
        };
        let mut expected = [0; 64];
        expected[..16].copy_from_slice(&[2, 1, 0, 0, 0, 0, 0, 0, 2, 3, 0, 0, 7, 6, 5, 4]);
        assert_eq!(page.encode(), expected);
        let empty = ReservationNotification::default();
        assert_eq!(empty.event, ReservationNotificationType::Empty);
        assert_eq!(empty.encode(), [0; 64]);
        round_trip::<ReservationNotification>();
    }
}
