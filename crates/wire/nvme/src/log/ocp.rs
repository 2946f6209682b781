//! The vendor specific log page that drives of data centres have in common: SMART / Health Information Extended, C0h (Open Compute Project,
//! Datacenter NVMe SSD Specification 2.0, section "SMART / Health Information Extended (Log Identifier C0h)"; its first form is that of the NVMe Cloud SSD
//! Specification 1.0).

use crate::log::LogId;
use crate::wire::wire_struct;

/// The UUID by which a UUID List (Identify, CNS 17h) says that vendor specific log pages are the Open Compute Project's:
/// c194d55b-e094-4794-a21d-29998f56be6f.
pub const OCP_UUID: [u8; 16] = [
    0xc1, 0x94, 0xd5, 0x5b, 0xe0, 0x94, 0x47, 0x94, 0xa2, 0x1d, 0x29, 0x99, 0x8f, 0x56, 0xbe, 0x6f,
];

wire_struct! {
    /// SMART / Health Information Extended: of its fields those that tell what was written and what heat does.
    pub struct OcpSmart[512] {
        /// Physical Media Units Written: bytes written to the media, for hosts and on the drive's own account (SMART-1).
        0 => media_bytes_written: u128,
        /// Physical Media Units Read, in bytes (SMART-2).
        16 => media_bytes_read: u128,
        /// Number of Thermal Throttling Events.
        96 => thermal_throttling_events: u8,
        /// Current Throttling Status: 0 is not throttled, 1 to 3 are levels of it.
        97 => throttling_status: u8,
        /// Log Page Version.
        494 => log_page_version: u16,
        /// Log Page GUID: see [`OcpSmart::GUID`].
        496 => log_page_guid: u128,
    }
}

impl OcpSmart {
    /// Its log page.
    pub const LOG: LogId = LogId::Other(0xc0);
    /// What the page says that it is.
    pub const GUID: u128 = 0xafd5_14c9_7c6f_4f9c_a4f2_bfea_2810_afc5;
    /// The first version that is laid out like this.
    pub const VERSION_LEAST: u16 = 2;
    /// The highest level of throttling that has a meaning.
    pub const THROTTLING_MAX: u8 = 3;

    /// Whether the page is what it is taken for: other vendors have other things at C0h.
    pub const fn is_known(&self) -> bool {
        self.log_page_guid == Self::GUID && self.log_page_version >= Self::VERSION_LEAST
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;

    #[test]
    fn the_extended_smart_log_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 512];
        bytes[..8].copy_from_slice(&[1, 2, 0, 0, 0, 0, 0, 0]);
        bytes[15] = 0x10;
        bytes[16] = 3;
        bytes[96] = 4;
        bytes[97] = 2;
        bytes[494] = 3;
        // The GUID's least significant byte comes first.
        let guid = [
            0xc5, 0xaf, 0x10, 0x28, 0xea, 0xbf, 0xf2, 0xa4, 0x9c, 0x4f, 0x6f, 0x7c, 0xc9, 0x14,
            0xd5, 0xaf,
        ];
        bytes[496..].copy_from_slice(&guid);
        let smart = OcpSmart {
            media_bytes_written: 0x10 << 120 | 0x0201,
            media_bytes_read: 3,
            thermal_throttling_events: 4,
            throttling_status: 2,
            log_page_version: 3,
            log_page_guid: OcpSmart::GUID,
        };
        assert_eq!(OcpSmart::decode(&bytes), smart);
        assert_eq!(smart.encode(), bytes);
        assert!(smart.is_known());
        bytes[511] ^= 1;
        assert!(!OcpSmart::decode(&bytes).is_known());
        let first = OcpSmart {
            log_page_version: 1,
            ..smart
        };
        assert!(!first.is_known());
        round_trip::<OcpSmart>();
    }
}
