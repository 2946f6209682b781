//! Asynchronous events: completion dword 0 of an Asynchronous Event Request (NVMe Base 2.0c section
//! 5.2).
//!
//! When an event is sent, masked and unmasked is the controller's affair.

use crate::log::LogId;
use crate::wire::{bits, open_enum};

open_enum! {
    /// An event: its type in the low and its information in the high byte.
    pub enum EventType: u16 {
        /// Error status 00h; not for Fabrics.
        WriteToInvalidDoorbell = 0x0000 => "Write to Invalid Doorbell Register",
        /// Error status 01h; not for Fabrics.
        InvalidDoorbellValue = 0x0100 => "Invalid Doorbell Write Value",
        /// Error status 02h.
        DiagnosticFailure = 0x0200 => "Diagnostic Failure",
        /// Error status 03h.
        PersistentInternalError = 0x0300 => "Persistent Internal Error",
        /// Error status 04h.
        TransientInternalError = 0x0400 => "Transient Internal Error",
        /// Error status 05h.
        FirmwareImageLoadError = 0x0500 => "Firmware Image Load Error",
        /// SMART / Health status 00h.
        SubsystemReliability = 0x0001 => "NVM subsystem Reliability",
        /// SMART / Health status 01h.
        TemperatureThreshold = 0x0101 => "Temperature Threshold",
        /// SMART / Health status 02h.
        SpareBelowThreshold = 0x0201 => "Spare Below Threshold",
        /// Notice 00h: the Changed Namespace List log says which.
        NamespaceAttributeChanged = 0x0002 => "Namespace Attribute Changed",
        /// Notice 01h.
        FirmwareActivationStarting = 0x0102 => "Firmware Activation Starting",
        /// Notice 02h.
        TelemetryLogChanged = 0x0202 => "Telemetry Log Changed",
        /// Notice 03h: the ANA log says what.
        AnaChange = 0x0302 => "Asymmetric Namespace Access Change",
        /// Notice 04h.
        PredictableLatencyChange = 0x0402 => "Predictable Latency Event Aggregate Log Change",
        /// Notice 05h.
        LbaStatusInformationAlert = 0x0502 => "LBA Status Information Alert",
        /// Notice 06h.
        EnduranceGroupChange = 0x0602 => "Endurance Group Event Aggregate Log Page Change",
        /// Notice F0h: the Discovery log changed.
        DiscoveryLogChange = 0xf002 => "Discovery Log Page Change",
        /// Immediate 00h: every controller of the subsystem is shutting down.
        NormalSubsystemShutdown = 0x0003 => "Normal NVM Subsystem Shutdown",
        /// I/O command set status 00h.
        ReservationLogAvailable = 0x0006 => "Reservation Log Page Available",
        /// I/O command set status 01h.
        SanitizeCompleted = 0x0106 => "Sanitize Operation Completed",
        /// I/O command set status 02h.
        SanitizeCompletedWithUnexpectedDeallocation = 0x0206 =>
            "Sanitize Operation Completed With Unexpected Deallocation",
    }
}

impl EventType {
    /// Asynchronous Event Type, bits 2:0 of the dword: 0 error, 1 SMART / Health, 2 notice, 3
    /// immediate, 6 I/O command set, 7 vendor specific. Events of one type are masked together.
    pub const fn kind(self) -> u8 {
        self.value() as u8 & 7
    }

    /// Asynchronous Event Information.
    pub const fn information(self) -> u8 {
        (self.value() >> 8) as u8
    }

    /// The log page that is read to clear the event; `None` for events that have none or are not
    /// known here.
    pub const fn log(self) -> Option<LogId> {
        match self {
            Self::WriteToInvalidDoorbell
            | Self::InvalidDoorbellValue
            | Self::DiagnosticFailure
            | Self::PersistentInternalError
            | Self::TransientInternalError
            | Self::FirmwareImageLoadError => Some(LogId::ErrorInformation),
            Self::SubsystemReliability | Self::TemperatureThreshold | Self::SpareBelowThreshold => {
                Some(LogId::SmartHealth)
            }
            Self::NamespaceAttributeChanged => Some(LogId::ChangedNamespaceList),
            Self::FirmwareActivationStarting => Some(LogId::FirmwareSlot),
            Self::AnaChange => Some(LogId::AsymmetricNamespaceAccess),
            Self::DiscoveryLogChange => Some(LogId::Discovery),
            Self::ReservationLogAvailable => Some(LogId::ReservationNotification),
            _ => None,
        }
    }
}

/// An event as it is sent: completion dword 0, and dword 1 where the event defines it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AsynchronousEvent {
    /// What happened.
    pub event: EventType,
    /// Log Page Identifier, bits 23:16; 0 where the event has no log.
    pub log_id: u8,
}

impl AsynchronousEvent {
    /// An event with the log page that belongs to it.
    pub const fn new(event: EventType) -> Self {
        let log_id = match event.log() {
            Some(log) => log.value(),
            None => 0,
        };
        Self { event, log_id }
    }

    /// As completion dword 0.
    pub const fn to_dword(self) -> u32 {
        (self.log_id as u32) << 16
            | (self.event.information() as u32) << 8
            | self.event.kind() as u32
    }

    /// From completion dword 0.
    pub const fn from_dword(dword: u32) -> Self {
        let event = bits(dword, 15, 8) << 8 | bits(dword, 2, 0);
        Self {
            event: EventType::from_value(event as u16),
            log_id: bits(dword, 23, 16) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_are_laid_out_as_the_specification_says() {
        for (event, dword) in [
            (EventType::NamespaceAttributeChanged, 0x0004_0002),
            (EventType::AnaChange, 0x000c_0302),
            (EventType::DiscoveryLogChange, 0x0070_f002),
            (EventType::FirmwareActivationStarting, 0x0003_0102),
            (EventType::PersistentInternalError, 0x0001_0300),
            (EventType::SpareBelowThreshold, 0x0002_0201),
            (EventType::NormalSubsystemShutdown, 0x0000_0003),
        ] {
            assert_eq!(AsynchronousEvent::new(event).to_dword(), dword, "{event}");
            assert_eq!(
                AsynchronousEvent::from_dword(dword),
                AsynchronousEvent::new(event)
            );
        }
        let unknown = AsynchronousEvent::from_dword(0x00c0_ab07);
        assert_eq!(
            (unknown.event.kind(), unknown.event.information()),
            (7, 0xab)
        );
        assert_eq!(unknown.log_id, 0xc0);
    }

    proptest! {
        #[test]
        fn any_dword_reads_and_survives(dword: u32) {
            let event = AsynchronousEvent::from_dword(dword);
            prop_assert_eq!(event.to_dword(), dword & 0x00ff_ff07);
        }
    }
}
