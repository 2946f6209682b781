//! Log pages: what Get Log Page returns (NVMe Base 2.0c section 5.16.1).
//!
//! Each page is built or read whole; cutting out what a command's offset and length ask for is
//! [`read_at`]. What the pages say is the controller's to know.

mod ana;
mod controller;
mod discovery;
mod namespaces;
mod ocp;
mod reservation;
mod support;

pub use ana::{
    ANA_DESCRIPTOR_SIZE, ANA_HEADER_SIZE, AnaGroup, AnaLogError, AnaState, decode_ana_log,
    encode_ana_log,
};
pub use controller::{CriticalWarning, ErrorInformation, FirmwareSlot, SmartHealth};
pub use discovery::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, EntryFlags, SecurityType, SubsystemType,
    TransportRequirements, TransportType,
};
pub use namespaces::{
    CHANGED_NAMESPACES_MAX, decode_changed_namespaces, encode_changed_namespaces,
};
pub use ocp::{OCP_UUID, OcpSmart};
pub use reservation::{ReservationNotification, ReservationNotificationType};
pub use support::{CommandEffects, CommandsSupportedAndEffects, LogSupport, SupportedLogPages};

use crate::wire::open_enum;

open_enum! {
    /// Log Page Identifier, LID (NVMe Base 2.0c section 5.16.1).
    pub enum LogId: u8 {
        /// 00h; see [`SupportedLogPages`].
        SupportedLogPages = 0x00 => "Supported Log Pages",
        /// 01h; see [`ErrorInformation`].
        ErrorInformation = 0x01 => "Error Information",
        /// 02h; see [`SmartHealth`].
        SmartHealth = 0x02 => "SMART / Health Information",
        /// 03h; see [`FirmwareSlot`].
        FirmwareSlot = 0x03 => "Firmware Slot Information",
        /// 04h; see [`encode_changed_namespaces`].
        ChangedNamespaceList = 0x04 => "Changed Namespace List",
        /// 05h; see [`CommandsSupportedAndEffects`].
        CommandsSupportedAndEffects = 0x05 => "Commands Supported and Effects",
        /// 06h.
        DeviceSelfTest = 0x06 => "Device Self-test",
        /// 07h.
        TelemetryHostInitiated = 0x07 => "Telemetry Host-Initiated",
        /// 08h.
        TelemetryControllerInitiated = 0x08 => "Telemetry Controller-Initiated",
        /// 09h.
        EnduranceGroup = 0x09 => "Endurance Group Information",
        /// 0Ah.
        PredictableLatencyPerNvmSet = 0x0a => "Predictable Latency Per NVM Set",
        /// 0Bh.
        PredictableLatencyEventAggregate = 0x0b => "Predictable Latency Event Aggregate",
        /// 0Ch; see [`encode_ana_log`].
        AsymmetricNamespaceAccess = 0x0c => "Asymmetric Namespace Access",
        /// 0Dh.
        PersistentEvent = 0x0d => "Persistent Event Log",
        /// 0Eh.
        LbaStatusInformation = 0x0e => "LBA Status Information",
        /// 0Fh.
        EnduranceGroupEventAggregate = 0x0f => "Endurance Group Event Aggregate",
        /// 10h.
        MediaUnitStatus = 0x10 => "Media Unit Status",
        /// 11h.
        SupportedCapacityConfigurationList = 0x11 => "Supported Capacity Configuration List",
        /// 12h.
        FeatureIdentifiersSupportedAndEffects = 0x12 => "Feature Identifiers Supported and Effects",
        /// 13h.
        NvmeMiCommandsSupportedAndEffects = 0x13 => "NVMe-MI Commands Supported and Effects",
        /// 14h.
        CommandAndFeatureLockdown = 0x14 => "Command and Feature Lockdown",
        /// 15h.
        BootPartition = 0x15 => "Boot Partition",
        /// 70h; see [`DiscoveryLogHeader`] and [`DiscoveryLogEntry`].
        Discovery = 0x70 => "Discovery",
        /// 80h; see [`ReservationNotification`].
        ReservationNotification = 0x80 => "Reservation Notification",
        /// 81h.
        SanitizeStatus = 0x81 => "Sanitize Status",
    }
}

/// Fills `target` with the bytes of `page` from `offset` on, zeroes after its end; returns the bytes
/// that came from the page. `None` where the offset is past the page's end, which a controller
/// answers with Invalid Field in Command (NVMe Base 2.0c section 5.16).
pub fn read_at(page: &[u8], offset: u64, target: &mut [u8]) -> Option<usize> {
    let rest = page.get(usize::try_from(offset).ok()?..)?;
    let copied = rest.len().min(target.len());
    let (filled, beyond) = target.split_at_mut(copied);
    filled.copy_from_slice(&rest[..copied]);
    beyond.fill(0);
    Some(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_from_any_offset_and_never_past_its_end() {
        let page = [1, 2, 3, 4];
        let mut target = [9; 3];
        assert_eq!(read_at(&page, 0, &mut target), Some(3));
        assert_eq!(target, [1, 2, 3]);
        assert_eq!(read_at(&page, 2, &mut target), Some(2));
        assert_eq!(target, [3, 4, 0]);
        assert_eq!(read_at(&page, 4, &mut target), Some(0));
        assert_eq!(target, [0; 3]);
        assert_eq!(read_at(&page, 5, &mut target), None);
        assert_eq!(read_at(&page, u64::MAX, &mut target), None);
    }
}
