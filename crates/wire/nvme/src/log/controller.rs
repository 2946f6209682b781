//! Log pages on a controller's health: Error Information 01h, SMART / Health 02h, Firmware Slot 03h
//! (NVMe Base 2.0c sections 5.16.1.2 to 5.16.1.4).

use crate::log::TransportType;
use crate::status::Status;
use crate::wire::{flags, wire_struct};

wire_struct! {
    /// An entry of the Error Information log (NVMe Base 2.0c section 5.16.1.2). The page is an array
    /// of these, newest first; one whose count is 0 is empty.
    pub struct ErrorInformation[64] {
        /// Error Count: this error's number since the controller was made, from 1.
        0 => error_count: u64,
        /// Submission Queue ID; FFFFh where the error is no command's.
        8 => sqid: u16,
        /// Command ID; FFFFh where the error is no command's.
        10 => cid: u16,
        /// Status field with the phase tag in bit 0; see [`ErrorInformation::status`].
        12 => status_field: u16,
        /// Parameter Error Location: byte in bits 7:0, bit in bits 10:8; FFFFh is not known.
        14 => parameter_error_location: u16,
        /// First LBA of the error, where it is about one.
        16 => lba: u64,
        /// Namespace.
        24 => nsid: u32,
        /// Vendor specific log page with more on this; 0 is none.
        28 => vendor_log: u8,
        /// Transport Type (TRTYPE).
        29 => transport_type: TransportType,
        /// Command specific information.
        32 => command_specific: u64,
        /// Transport type specific information.
        40 => transport_specific: u16,
    }
}

impl ErrorInformation {
    /// Queue and command of an error that is no command's, and a location that is not known.
    pub const NOT_KNOWN: u16 = 0xffff;

    /// The status that the command was answered with.
    pub const fn status(&self) -> Status {
        Status::from_completion(self.status_field)
    }

    /// A parameter's location: a byte of the command, and the bit where it starts.
    pub const fn location(byte: u8, bit: u8) -> u16 {
        assert!(bit < 8, "a byte has eight bits");
        (bit as u16) << 8 | byte as u16
    }
}

flags! {
    /// Critical Warning of the SMART / Health log.
    pub struct CriticalWarning: u8 {
        /// Bit 0: the spare is below its threshold.
        SPARE = 1 << 0,
        /// Bit 1: a temperature is beyond a threshold.
        TEMPERATURE = 1 << 1,
        /// Bit 2: the subsystem's reliability is degraded.
        RELIABILITY = 1 << 2,
        /// Bit 3: all media are read only.
        READ_ONLY = 1 << 3,
        /// Bit 4: the volatile memory backup failed.
        VOLATILE_MEMORY_BACKUP = 1 << 4,
        /// Bit 5: the persistent memory region is read only or unreliable.
        PERSISTENT_MEMORY_REGION = 1 << 5,
    }
}

wire_struct! {
    /// SMART / Health Information (NVMe Base 2.0c section 5.16.1.3).
    pub struct SmartHealth[512] {
        /// Critical Warning.
        0 => critical_warning: CriticalWarning,
        /// Composite Temperature in kelvin.
        1 => temperature_kelvin: u16,
        /// Available Spare, 0 to 100 percent.
        3 => available_spare: u8,
        /// Available Spare Threshold, 0 to 100 percent.
        4 => available_spare_threshold: u8,
        /// Percentage Used; 255 is 255 or more.
        5 => percentage_used: u8,
        /// Endurance Group Critical Warning Summary.
        6 => endurance_group_warning: u8,
        /// Data Units Read: thousands of 512 bytes, rounded up.
        32 => data_units_read: u128,
        /// Data Units Written: thousands of 512 bytes, rounded up.
        48 => data_units_written: u128,
        /// Host Read Commands.
        64 => host_reads: u128,
        /// Host Write Commands.
        80 => host_writes: u128,
        /// Controller Busy Time in minutes.
        96 => busy_minutes: u128,
        /// Power Cycles.
        112 => power_cycles: u128,
        /// Power On Hours.
        128 => power_on_hours: u128,
        /// Unsafe Shutdowns.
        144 => unsafe_shutdowns: u128,
        /// Media and Data Integrity Errors.
        160 => media_errors: u128,
        /// Number of Error Information Log Entries over the controller's life.
        176 => error_log_entries: u128,
        /// Warning Composite Temperature Time in minutes.
        192 => warning_temperature_minutes: u32,
        /// Critical Composite Temperature Time in minutes.
        196 => critical_temperature_minutes: u32,
        /// Temperature Sensors 1 to 8 in kelvin; 0 is none.
        200 => temperature_sensors_kelvin: [u16; 8],
        /// Thermal Management Temperature 1 and 2 Transition Count.
        216 => thermal_transitions: [u32; 2],
        /// Total Time For Thermal Management Temperature 1 and 2 in seconds.
        224 => thermal_seconds: [u32; 2],
    }
}

impl SmartHealth {
    /// Bytes of a data unit.
    pub const DATA_UNIT_BYTES: u128 = 512 * 1000;

    /// Data units for a number of bytes: thousands of 512 bytes, rounded up.
    pub const fn data_units(bytes: u128) -> u128 {
        bytes.div_ceil(Self::DATA_UNIT_BYTES)
    }
}

wire_struct! {
    /// Firmware Slot Information (NVMe Base 2.0c section 5.16.1.4).
    pub struct FirmwareSlot[512] {
        /// Active Firmware Info (AFI): active slot in bits 2:0, that of the next reset in bits 6:4.
        0 => active: u8,
        /// Firmware Revision of slots 1 to 7 (FRS1 to FRS7), ASCII padded with spaces; zero is empty.
        8 => revisions: [[u8; 8]; 7],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii;
    use crate::wire::check::round_trip;

    fn set(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    #[test]
    fn error_information_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 64];
        set(&mut bytes, 0, &[1, 0, 0, 0, 0, 0, 0, 0x80]);
        set(&mut bytes, 8, &[2, 0, 3, 0, 0x04, 0x80, 40, 3]);
        set(&mut bytes, 16, &[5, 0, 0, 0, 0, 0, 0, 0x40]);
        set(&mut bytes, 24, &[6, 0, 0, 0, 7, 3]);
        set(&mut bytes, 32, &[8, 0, 0, 0, 0, 0, 0, 0, 9, 0]);
        let status = Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry();
        let entry = ErrorInformation {
            error_count: 0x8000_0000_0000_0001,
            sqid: 2,
            cid: 3,
            status_field: status.to_completion(false),
            parameter_error_location: ErrorInformation::location(40, 3),
            lba: 0x4000_0000_0000_0005,
            nsid: 6,
            vendor_log: 7,
            transport_type: TransportType::Tcp,
            command_specific: 8,
            transport_specific: 9,
        };
        assert_eq!(entry.encode(), bytes);
        assert_eq!(ErrorInformation::decode(&bytes), entry);
        assert_eq!(entry.status(), status);
    }

    #[test]
    fn smart_health_is_laid_out_as_the_specification_says() {
        let mut bytes = [0; 512];
        set(&mut bytes, 0, &[0x0c, 0x2c, 0x01, 100, 10, 1, 2]);
        for (index, offset) in (32..192).step_by(16).enumerate() {
            bytes[offset] = index as u8 + 1;
            bytes[offset + 15] = 0x10;
        }
        set(&mut bytes, 192, &[11, 0, 0, 0, 12, 0, 0, 0]);
        set(&mut bytes, 200, &[13, 0]);
        set(&mut bytes, 214, &[14, 0]);
        set(
            &mut bytes,
            216,
            &[15, 0, 0, 0, 16, 0, 0, 0, 17, 0, 0, 0, 18, 0, 0, 0],
        );
        let wide = |low: u128| 0x10 << 120 | low;
        let smart = SmartHealth {
            critical_warning: CriticalWarning::RELIABILITY | CriticalWarning::READ_ONLY,
            temperature_kelvin: 300,
            available_spare: 100,
            available_spare_threshold: 10,
            percentage_used: 1,
            endurance_group_warning: 2,
            data_units_read: wide(1),
            data_units_written: wide(2),
            host_reads: wide(3),
            host_writes: wide(4),
            busy_minutes: wide(5),
            power_cycles: wide(6),
            power_on_hours: wide(7),
            unsafe_shutdowns: wide(8),
            media_errors: wide(9),
            error_log_entries: wide(10),
            warning_temperature_minutes: 11,
            critical_temperature_minutes: 12,
            temperature_sensors_kelvin: [13, 0, 0, 0, 0, 0, 0, 14],
            thermal_transitions: [15, 16],
            thermal_seconds: [17, 18],
        };
        assert_eq!(smart.encode(), bytes);
        assert_eq!(SmartHealth::decode(&bytes), smart);
    }

    #[test]
    fn data_units_are_rounded_up() {
        assert_eq!(SmartHealth::data_units(0), 0);
        assert_eq!(SmartHealth::data_units(1), 1);
        assert_eq!(SmartHealth::data_units(512_000), 1);
        assert_eq!(SmartHealth::data_units(512_001), 2);
    }

    #[test]
    fn firmware_slots_are_laid_out_as_the_specification_says() {
        let mut bytes = [0; 512];
        bytes[0] = 0x11;
        set(&mut bytes, 8, b"0.1.0   ");
        set(&mut bytes, 56, b"7       ");
        let mut revisions = [[0; 8]; 7];
        revisions[0] = ascii("0.1.0");
        revisions[6] = ascii("7");
        assert_eq!(
            FirmwareSlot {
                active: 0x11,
                revisions
            }
            .encode(),
            bytes
        );
    }

    #[test]
    fn structures_survive() {
        round_trip::<ErrorInformation>();
        round_trip::<SmartHealth>();
        round_trip::<FirmwareSlot>();
    }
}
