//! Identify Controller, CNS 01h (NVMe Base 2.0c section 5.17.2.1).

use crate::nqn::{NQN_FIELD_SIZE, Nqn, NqnError};
use crate::property::Version;
use crate::wire::{Field, flags, open_enum, wire_struct};

impl Field for Version {
    const LENGTH: usize = 4;
    fn get(bytes: &[u8]) -> Self {
        Self(u32::get(bytes))
    }
    fn put(&self, bytes: &mut [u8]) {
        self.0.put(bytes);
    }
}

open_enum! {
    /// Controller Type (CNTRLTYPE).
    pub enum ControllerType: u8 {
        /// 00h: not reported.
        NotReported = 0x00 => "not reported",
        /// 01h.
        Io = 0x01 => "I/O controller",
        /// 02h.
        Discovery = 0x02 => "Discovery controller",
        /// 03h.
        Administrative = 0x03 => "Administrative controller",
    }
}

flags! {
    /// Controller Multi-Path I/O and Namespace Sharing Capabilities (CMIC).
    pub struct ControllerMultipath: u8 {
        /// Bit 0: the subsystem may have more than one port.
        MULTIPLE_PORTS = 1 << 0,
        /// Bit 1: the subsystem may have two or more controllers.
        MULTIPLE_CONTROLLERS = 1 << 1,
        /// Bit 2: the controller belongs to an SR-IOV virtual function.
        VIRTUAL_FUNCTION = 1 << 2,
        /// Bit 3: the subsystem reports asymmetric namespace access.
        ANA_REPORTING = 1 << 3,
    }
}

flags! {
    /// Optional Asynchronous Events Supported (OAES); the bits are those of the Asynchronous Event
    /// Configuration feature.
    pub struct AsynchronousEventsSupported: u32 {
        /// Bit 8: Namespace Attribute Notices.
        NAMESPACE_ATTRIBUTE = 1 << 8,
        /// Bit 9: Firmware Activation Notices.
        FIRMWARE_ACTIVATION = 1 << 9,
        /// Bit 11: Asymmetric Namespace Access Change Notices.
        ANA_CHANGE = 1 << 11,
        /// Bit 15: Normal NVM Subsystem Shutdown.
        NORMAL_SUBSYSTEM_SHUTDOWN = 1 << 15,
        /// Bit 31: Discovery Log Page Change Notification.
        DISCOVERY_LOG_CHANGE = 1 << 31,
    }
}

flags! {
    /// Controller Attributes (CTRATT).
    pub struct ControllerAttributes: u32 {
        /// Bit 0: 128-bit Host Identifiers.
        HOST_IDENTIFIER_128 = 1 << 0,
        /// Bit 4: Endurance Groups.
        ENDURANCE_GROUPS = 1 << 4,
        /// Bit 6: Traffic Based Keep Alive Support (TBKAS).
        TRAFFIC_BASED_KEEP_ALIVE = 1 << 6,
        /// Bit 7: Namespace Granularity.
        NAMESPACE_GRANULARITY = 1 << 7,
        /// Bit 9: UUID List.
        UUID_LIST = 1 << 9,
        /// Bit 10: Multi-Domain Subsystem.
        MULTI_DOMAIN = 1 << 10,
        /// Bit 15: Extended LBA Formats Supported (ELBAS).
        EXTENDED_LBA_FORMATS = 1 << 15,
    }
}

flags! {
    /// Optional Admin Command Support (OACS).
    pub struct OptionalAdminCommands: u16 {
        /// Bit 0: Security Send and Receive.
        SECURITY = 1 << 0,
        /// Bit 1: Format NVM.
        FORMAT_NVM = 1 << 1,
        /// Bit 2: Firmware Commit and Image Download.
        FIRMWARE = 1 << 2,
        /// Bit 3: Namespace Management and Attachment.
        NAMESPACE_MANAGEMENT = 1 << 3,
        /// Bit 4: Device Self-test.
        DEVICE_SELF_TEST = 1 << 4,
        /// Bit 5: Directives.
        DIRECTIVES = 1 << 5,
        /// Bit 9: Get LBA Status.
        GET_LBA_STATUS = 1 << 9,
        /// Bit 10: Command and Feature Lockdown.
        LOCKDOWN = 1 << 10,
    }
}

flags! {
    /// Firmware Updates (FRMW): bits 3:1 are the number of slots.
    pub struct FirmwareUpdates: u8 {
        /// Bit 0: slot 1 is read only.
        FIRST_SLOT_READ_ONLY = 1 << 0,
        /// Bits 3:1 = 001b: one slot.
        ONE_SLOT = 1 << 1,
        /// Bit 4: activation without a reset.
        ACTIVATION_WITHOUT_RESET = 1 << 4,
    }
}

flags! {
    /// Log Page Attributes (LPA).
    pub struct LogPageAttributes: u8 {
        /// Bit 0: SMART / Health for a single namespace.
        SMART_PER_NAMESPACE = 1 << 0,
        /// Bit 1: Commands Supported and Effects.
        COMMANDS_SUPPORTED_AND_EFFECTS = 1 << 1,
        /// Bit 2: extended data for Get Log Page: NUMDU, log page offset.
        EXTENDED_DATA = 1 << 2,
        /// Bit 3: Telemetry.
        TELEMETRY = 1 << 3,
        /// Bit 4: Persistent Event.
        PERSISTENT_EVENT = 1 << 4,
        /// Bit 5: Supported Log Pages, and the effects scope in several log pages.
        SUPPORTED_LOG_PAGES = 1 << 5,
    }
}

flags! {
    /// Asymmetric Namespace Access Capabilities (ANACAP).
    pub struct AnaCapabilities: u8 {
        /// Bit 0: reports the optimized state.
        OPTIMIZED = 1 << 0,
        /// Bit 1: reports the non-optimized state.
        NON_OPTIMIZED = 1 << 1,
        /// Bit 2: reports the inaccessible state.
        INACCESSIBLE = 1 << 2,
        /// Bit 3: reports the persistent loss state.
        PERSISTENT_LOSS = 1 << 3,
        /// Bit 4: reports the change state.
        CHANGE = 1 << 4,
        /// Bit 6: a namespace's ANAGRPID does not change while it is attached.
        GROUP_DOES_NOT_CHANGE = 1 << 6,
        /// Bit 7: ANAGRPID is not 0 in namespace management.
        NON_ZERO_GROUP = 1 << 7,
    }
}

flags! {
    /// Optional NVM Command Support (ONCS).
    pub struct OptionalNvmCommands: u16 {
        /// Bit 0: Compare.
        COMPARE = 1 << 0,
        /// Bit 1: Write Uncorrectable.
        WRITE_UNCORRECTABLE = 1 << 1,
        /// Bit 2: Dataset Management.
        DATASET_MANAGEMENT = 1 << 2,
        /// Bit 3: Write Zeroes.
        WRITE_ZEROES = 1 << 3,
        /// Bit 4: a Save field in Set Features that is not 0.
        SAVE_FEATURES = 1 << 4,
        /// Bit 5: reservations.
        RESERVATIONS = 1 << 5,
        /// Bit 6: Timestamp.
        TIMESTAMP = 1 << 6,
        /// Bit 7: Verify.
        VERIFY = 1 << 7,
        /// Bit 8: Copy.
        COPY = 1 << 8,
    }
}

flags! {
    /// Fused Operation Support (FUSES).
    pub struct FusedOperations: u16 {
        /// Bit 0: Compare and Write.
        COMPARE_AND_WRITE = 1 << 0,
    }
}

flags! {
    /// Volatile Write Cache (VWC).
    pub struct VolatileCache: u8 {
        /// Bit 0: there is one.
        PRESENT = 1 << 0,
        /// Bits 2:1 = 10b: Flush with NSID FFFFFFFFh is not supported.
        FLUSH_ALL_NOT_SUPPORTED = 0b10 << 1,
        /// Bits 2:1 = 11b: Flush with NSID FFFFFFFFh is supported.
        FLUSH_ALL_SUPPORTED = 0b11 << 1,
    }
}

flags! {
    /// SGL Support (SGLS). Bits 1:0 must not be 0 on Fabrics.
    pub struct SglSupport: u32 {
        /// Bits 1:0 = 01b: SGLs, of any alignment and granularity.
        SUPPORTED = 0b01,
        /// Bits 1:0 = 10b: SGLs, aligned to dwords.
        SUPPORTED_DWORD_ALIGNED = 0b10,
        /// Bit 2: Keyed SGL Data Block descriptors.
        KEYED_DATA_BLOCK = 1 << 2,
        /// Bit 16: SGL Bit Bucket descriptors.
        BIT_BUCKET = 1 << 16,
        /// Bit 18: an SGL longer than the data.
        LONGER_THAN_DATA = 1 << 18,
        /// Bit 20: the address field as an offset, as in-capsule data has it.
        OFFSET_ADDRESS = 1 << 20,
        /// Bit 21: Transport SGL Data Block descriptors.
        TRANSPORT_DATA_BLOCK = 1 << 21,
    }
}

flags! {
    /// Fabrics Controller Attributes (FCATT).
    pub struct FabricsAttributes: u8 {
        /// Bit 0: the controller follows the static model; clear is dynamic.
        STATIC_CONTROLLERS = 1 << 0,
    }
}

flags! {
    /// Optional Fabrics Commands Support (OFCS).
    pub struct OptionalFabricsCommands: u16 {
        /// Bit 0: Disconnect.
        DISCONNECT = 1 << 0,
    }
}

wire_struct! {
    /// A power state descriptor (NVMe Base 2.0c section 5.17.2.1).
    pub struct PowerState[32] {
        /// Maximum Power (MP), in the scale that `flags` bit 0 says.
        0 => maximum_power: u16,
        /// Bit 0 Max Power Scale (MXPS): set 0.0001 W, clear 0.01 W; bit 1 Non-Operational State.
        3 => flags: u8,
        /// Entry Latency (ENLAT) in microseconds.
        4 => entry_latency_us: u32,
        /// Exit Latency (EXLAT) in microseconds.
        8 => exit_latency_us: u32,
        /// Relative Read Throughput (RRT).
        12 => relative_read_throughput: u8,
        /// Relative Read Latency (RRL).
        13 => relative_read_latency: u8,
        /// Relative Write Throughput (RWT).
        14 => relative_write_throughput: u8,
        /// Relative Write Latency (RWL).
        15 => relative_write_latency: u8,
        /// Idle Power (IDLP).
        16 => idle_power: u16,
        /// Idle Power Scale (IPS), bits 7:6.
        18 => idle_power_scale: u8,
        /// Active Power (ACTP).
        20 => active_power: u16,
        /// Active Power Workload, bits 2:0, and Scale, bits 7:6 (APW, APS).
        22 => active_power_workload_and_scale: u8,
    }
}

wire_struct! {
    /// Identify Controller (NVMe Base 2.0c section 5.17.2.1). Text fields are ASCII padded with
    /// spaces: see [`crate::ascii`].
    pub struct IdentifyController[4096] {
        /// PCI Vendor ID (VID); 0 where there is none.
        0 => pci_vendor_id: u16,
        /// PCI Subsystem Vendor ID (SSVID).
        2 => pci_subsystem_vendor_id: u16,
        /// Serial Number (SN).
        4 => serial_number: [u8; 20],
        /// Model Number (MN).
        24 => model_number: [u8; 40],
        /// Firmware Revision (FR).
        64 => firmware_revision: [u8; 8],
        /// Recommended Arbitration Burst (RAB), a power of two.
        72 => recommended_arbitration_burst: u8,
        /// IEEE OUI Identifier (IEEE), least significant byte first.
        73 => ieee_oui: [u8; 3],
        /// Multi-path and sharing capabilities (CMIC).
        76 => multipath: ControllerMultipath,
        /// Maximum Data Transfer Size (MDTS): 2^this times the minimum memory page; 0 is no limit.
        77 => maximum_data_transfer_size: u8,
        /// Controller ID (CNTLID).
        78 => controller_id: u16,
        /// Version (VER).
        80 => version: Version,
        /// RTD3 Resume Latency (RTD3R) in microseconds.
        84 => rtd3_resume_latency_us: u32,
        /// RTD3 Entry Latency (RTD3E) in microseconds: how long a normal shutdown may take.
        88 => rtd3_entry_latency_us: u32,
        /// Optional Asynchronous Events Supported (OAES).
        92 => asynchronous_events: AsynchronousEventsSupported,
        /// Controller Attributes (CTRATT).
        96 => attributes: ControllerAttributes,
        /// Read Recovery Levels Supported (RRLS).
        100 => read_recovery_levels: u16,
        /// Controller Type (CNTRLTYPE).
        111 => controller_type: ControllerType,
        /// FRU Globally Unique Identifier (FGUID), 0 where there is none.
        112 => fru_guid: [u8; 16],
        /// Command Retry Delay Time 1 (CRDT1) in units of 100 ms.
        128 => command_retry_delay_1: u16,
        /// Command Retry Delay Time 2 (CRDT2) in units of 100 ms.
        130 => command_retry_delay_2: u16,
        /// Command Retry Delay Time 3 (CRDT3) in units of 100 ms.
        132 => command_retry_delay_3: u16,
        /// NVM Subsystem Report (NVMSR): bit 0 an NVMe storage device.
        253 => nvm_subsystem_report: u8,
        /// VPD Write Cycle Information (VWCI).
        254 => vpd_write_cycles: u8,
        /// Management Endpoint Capabilities (MEC).
        255 => management_endpoint: u8,
        /// Optional Admin Command Support (OACS).
        256 => optional_admin_commands: OptionalAdminCommands,
        /// Abort Command Limit (ACL), 0's based.
        258 => abort_command_limit: u8,
        /// Asynchronous Event Request Limit (AERL), 0's based.
        259 => asynchronous_event_request_limit: u8,
        /// Firmware Updates (FRMW).
        260 => firmware_updates: FirmwareUpdates,
        /// Log Page Attributes (LPA).
        261 => log_page_attributes: LogPageAttributes,
        /// Error Log Page Entries (ELPE), 0's based.
        262 => error_log_entries: u8,
        /// Number of Power States Support (NPSS), 0's based.
        263 => power_states: u8,
        /// Admin Vendor Specific Command Configuration (AVSCC).
        264 => admin_vendor_specific_commands: u8,
        /// Autonomous Power State Transition Attributes (APSTA).
        265 => autonomous_power_state_transitions: u8,
        /// Warning Composite Temperature Threshold (WCTEMP) in kelvin; 0 is not reported.
        266 => warning_temperature_kelvin: u16,
        /// Critical Composite Temperature Threshold (CCTEMP) in kelvin; 0 is not reported.
        268 => critical_temperature_kelvin: u16,
        /// Maximum Time for Firmware Activation (MTFA) in units of 100 ms.
        270 => firmware_activation_time: u16,
        /// Host Memory Buffer Preferred Size (HMPRE).
        272 => host_memory_buffer_preferred: u32,
        /// Host Memory Buffer Minimum Size (HMMIN).
        276 => host_memory_buffer_minimum: u32,
        /// Total NVM Capacity (TNVMCAP) in bytes; 0 is not reported.
        280 => total_nvm_capacity: u128,
        /// Unallocated NVM Capacity (UNVMCAP) in bytes.
        296 => unallocated_nvm_capacity: u128,
        /// Replay Protected Memory Block Support (RPMBS).
        312 => replay_protected_memory: u32,
        /// Extended Device Self-test Time (EDSTT) in minutes.
        316 => extended_self_test_minutes: u16,
        /// Device Self-test Options (DSTO).
        318 => self_test_options: u8,
        /// Firmware Update Granularity (FWUG).
        319 => firmware_update_granularity: u8,
        /// Keep Alive Support (KAS): granularity in units of 100 ms; 0 is no keep alive.
        320 => keep_alive_granularity: u16,
        /// Host Controlled Thermal Management Attributes (HCTMA).
        322 => thermal_management: u16,
        /// Minimum Thermal Management Temperature (MNTMT) in kelvin.
        324 => thermal_minimum_kelvin: u16,
        /// Maximum Thermal Management Temperature (MXTMT) in kelvin.
        326 => thermal_maximum_kelvin: u16,
        /// Sanitize Capabilities (SANICAP).
        328 => sanitize_capabilities: u32,
        /// Host Memory Buffer Minimum Descriptor Entry Size (HMMINDS).
        332 => host_memory_buffer_descriptor_minimum: u32,
        /// Host Memory Maximum Descriptors Entries (HMMAXD).
        336 => host_memory_buffer_descriptors: u16,
        /// NVM Set Identifier Maximum (NSETIDMAX).
        338 => nvm_set_id_maximum: u16,
        /// Endurance Group Identifier Maximum (ENDGIDMAX).
        340 => endurance_group_id_maximum: u16,
        /// ANA Transition Time (ANATT) in seconds.
        342 => ana_transition_seconds: u8,
        /// Asymmetric Namespace Access Capabilities (ANACAP).
        343 => ana_capabilities: AnaCapabilities,
        /// ANA Group Identifier Maximum (ANAGRPMAX).
        344 => ana_group_id_maximum: u32,
        /// Number of ANA Group Identifiers (NANAGRPID).
        348 => ana_group_ids: u32,
        /// Persistent Event Log Size (PELS) in units of 64 KiB.
        352 => persistent_event_log_size: u32,
        /// Domain Identifier.
        356 => domain_id: u16,
        /// Max Endurance Group Capacity (MEGCAP) in bytes.
        368 => endurance_group_capacity: u128,
        /// Submission Queue Entry Size (SQES): required in bits 3:0, maximum in bits 7:4; 66h.
        512 => submission_entry_size: u8,
        /// Completion Queue Entry Size (CQES): required in bits 3:0, maximum in bits 7:4; 44h.
        513 => completion_entry_size: u8,
        /// Maximum Outstanding Commands (MAXCMD) per queue; mandatory on Fabrics.
        514 => maximum_commands: u16,
        /// Number of Namespaces (NN): the largest NSID.
        516 => namespaces: u32,
        /// Optional NVM Command Support (ONCS).
        520 => optional_nvm_commands: OptionalNvmCommands,
        /// Fused Operation Support (FUSES).
        522 => fused_operations: FusedOperations,
        /// Format NVM Attributes (FNA).
        524 => format_attributes: u8,
        /// Volatile Write Cache (VWC).
        525 => volatile_write_cache: VolatileCache,
        /// Atomic Write Unit Normal (AWUN) in logical blocks, 0's based.
        526 => atomic_write_unit: u16,
        /// Atomic Write Unit Power Fail (AWUPF) in logical blocks, 0's based.
        528 => atomic_write_unit_power_fail: u16,
        /// I/O Command Set Vendor Specific Command Configuration (ICSVSCC).
        530 => io_vendor_specific_commands: u8,
        /// Namespace Write Protection Capabilities (NWPC): bit 0 basic, bit 1 until power cycle, bit 2
        /// permanent.
        531 => namespace_write_protection: u8,
        /// Atomic Compare and Write Unit (ACWU) in logical blocks, 0's based.
        532 => atomic_compare_and_write_unit: u16,
        /// Copy Descriptor Formats Supported (OCFS in revision 1.4, CDFS since): bit N is format N.
        534 => copy_descriptor_formats: u16,
        /// SGL Support (SGLS).
        536 => sgl_support: SglSupport,
        /// Maximum Number of Allowed Namespaces (MNAN); 0 is NN.
        540 => maximum_allowed_namespaces: u32,
        /// Maximum Domain Namespace Attachments (MAXDNA).
        544 => domain_namespace_attachments: u128,
        /// Maximum I/O Controller Namespace Attachments (MAXCNA).
        560 => controller_namespace_attachments: u32,
        /// NVM Subsystem NVMe Qualified Name (SUBNQN), NUL-terminated; see
        /// [`IdentifyController::subsystem`].
        768 => subsystem_nqn: [u8; NQN_FIELD_SIZE],
        /// I/O Queue Command Capsule Supported Size (IOCCSZ) in units of 16 bytes: entry and data.
        1792 => io_command_capsule_size: u32,
        /// I/O Queue Response Capsule Supported Size (IORCSZ) in units of 16 bytes.
        1796 => io_response_capsule_size: u32,
        /// In Capsule Data Offset (ICDOFF) in units of 16 bytes; 0 for TCP.
        1800 => in_capsule_data_offset: u16,
        /// Fabrics Controller Attributes (FCATT).
        1802 => fabrics_attributes: FabricsAttributes,
        /// Maximum SGL Data Block Descriptors (MSDBD); 0 is no limit.
        1803 => maximum_sgl_descriptors: u8,
        /// Optional Fabrics Commands Support (OFCS).
        1804 => optional_fabrics_commands: OptionalFabricsCommands,
        /// Discovery Controller Type (DCTYPE): 0 not reported, 1 direct, 2 central.
        1806 => discovery_controller_type: u8,
        /// Power state 0 (PSD0).
        2048 => power_state_0: PowerState,
    }
}

impl IdentifyController {
    /// The subsystem's name.
    ///
    /// # Errors
    /// The field holds no valid name.
    pub fn subsystem(&self) -> Result<Nqn, NqnError> {
        Nqn::parse_field(&self.subsystem_nqn)
    }

    /// Largest data transfer in bytes with a minimum memory page of 2^(12 + `page_size_minimum`)
    /// bytes (CAP.MPSMIN); `None` is no limit.
    pub fn maximum_transfer_bytes(&self, page_size_minimum: u8) -> Option<u64> {
        match self.maximum_data_transfer_size {
            0 => None,
            // A shift past 63 bits is beyond any transfer: no limit.
            exponent => {
                let shift = u32::from(exponent) + 12 + u32::from(page_size_minimum);
                1_u64.checked_shl(shift)
            }
        }
    }

    /// Whether the controller supports host controlled thermal management: bit 0 of HCTMA.
    pub const fn manages_temperature(&self) -> bool {
        self.thermal_management & 1 != 0
    }

    /// Bytes of in-capsule data that an I/O queue takes, by IOCCSZ.
    pub fn in_capsule_data_bytes(&self) -> u64 {
        (u64::from(self.io_command_capsule_size) * 16).saturating_sub(crate::Sqe::SIZE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ascii;
    use crate::wire::check::round_trip;

    /// Writes `value` at `offset`.
    fn set(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    /// Each field holds a value of its own, so that a swap shows.
    #[test]
    fn the_structure_is_laid_out_as_the_specification_says() {
        let mut bytes = vec![0; 4096];
        set(&mut bytes, 0, &[0x01, 0x02, 0x03, 0x04]); // VID, SSVID
        set(&mut bytes, 4, b"SN123               ");
        set(&mut bytes, 24, b"Weir                                    ");
        set(&mut bytes, 64, b"0.1.0   ");
        set(&mut bytes, 72, &[6, 0xaa, 0xbb, 0xcc, 0x0b, 8]); // RAB, IEEE, CMIC, MDTS
        set(&mut bytes, 78, &[0x34, 0x12]); // CNTLID
        set(&mut bytes, 80, &[0, 0, 2, 0]); // VER 2.0.0
        set(&mut bytes, 84, &[0x11, 0, 0, 0]); // RTD3R
        set(&mut bytes, 88, &[0x12, 0, 0, 0]); // RTD3E
        set(&mut bytes, 92, &[0, 0x0b, 0, 0x80]); // OAES
        set(&mut bytes, 96, &[0x41, 0, 0, 0]); // CTRATT
        bytes[111] = 0x01; // CNTRLTYPE
        set(&mut bytes, 112, b"fedcba9876543210"); // FGUID
        set(&mut bytes, 128, &[1, 0, 2, 0, 3, 0]); // CRDT1-3
        set(&mut bytes, 256, &[0x02, 0x01]); // OACS
        set(&mut bytes, 258, &[3, 4, 0x03, 0x26, 127, 0]); // ACL, AERL, FRMW, LPA, ELPE, NPSS
        set(&mut bytes, 264, &[1, 2]); // AVSCC, APSTA
        set(&mut bytes, 266, &[0x57, 0x01, 0x61, 0x01]); // WCTEMP, CCTEMP
        set(&mut bytes, 320, &[0x0a, 0]); // KAS
        set(&mut bytes, 342, &[10, 0x5f]); // ANATT, ANACAP
        set(&mut bytes, 344, &[1, 0, 0, 0, 2, 0, 0, 0]); // ANAGRPMAX, NANAGRPID
        set(&mut bytes, 512, &[0x66, 0x44, 0x80, 0]); // SQES, CQES, MAXCMD
        set(&mut bytes, 516, &[0, 4, 0, 0]); // NN
        set(&mut bytes, 520, &[0x8d, 0x01, 0x01, 0]); // ONCS, FUSES
        set(&mut bytes, 524, &[0x01, 0x07]); // FNA, VWC
        set(&mut bytes, 526, &[0xff, 0, 0xfe, 0]); // AWUN, AWUPF
        set(&mut bytes, 530, &[0x01, 0x02]); // ICSVSCC, NWPC
        set(&mut bytes, 532, &[0x0c, 0, 0x01, 0]); // ACWU, OCFS
        set(&mut bytes, 536, &[0x01, 0, 0x30, 0]); // SGLS
        set(&mut bytes, 540, &[0, 2, 0, 0]); // MNAN
        set(&mut bytes, 768, b"nqn.2024-01.com.example:s");
        set(&mut bytes, 1792, &[0x04, 0x02, 0, 0, 0x01, 0, 0, 0]); // IOCCSZ, IORCSZ
        set(&mut bytes, 1800, &[0, 0, 0x01, 0x01, 0x01, 0]); // ICDOFF, FCATT, MSDBD, OFCS
        bytes[1806] = 1; // DCTYPE
        set(
            &mut bytes,
            2048,
            &[0xc4, 0x09, 0, 0x02, 5, 0, 0, 0, 6, 0, 0, 0, 1, 2, 3, 4],
        ); // PSD0
        let subsystem = Nqn::new("nqn.2024-01.com.example:s").expect("a name");
        let identify = IdentifyController {
            pci_vendor_id: 0x0201,
            pci_subsystem_vendor_id: 0x0403,
            serial_number: ascii("SN123"),
            model_number: ascii("Weir"),
            firmware_revision: ascii("0.1.0"),
            recommended_arbitration_burst: 6,
            ieee_oui: [0xaa, 0xbb, 0xcc],
            multipath: ControllerMultipath::MULTIPLE_PORTS
                | ControllerMultipath::MULTIPLE_CONTROLLERS
                | ControllerMultipath::ANA_REPORTING,
            maximum_data_transfer_size: 8,
            controller_id: 0x1234,
            version: Version::V2_0,
            rtd3_resume_latency_us: 0x11,
            rtd3_entry_latency_us: 0x12,
            asynchronous_events: AsynchronousEventsSupported::NAMESPACE_ATTRIBUTE
                | AsynchronousEventsSupported::FIRMWARE_ACTIVATION
                | AsynchronousEventsSupported::ANA_CHANGE
                | AsynchronousEventsSupported::DISCOVERY_LOG_CHANGE,
            attributes: ControllerAttributes::HOST_IDENTIFIER_128
                | ControllerAttributes::TRAFFIC_BASED_KEEP_ALIVE,
            controller_type: ControllerType::Io,
            fru_guid: *b"fedcba9876543210",
            command_retry_delay_1: 1,
            command_retry_delay_2: 2,
            command_retry_delay_3: 3,
            optional_admin_commands: OptionalAdminCommands(0x0102),
            abort_command_limit: 3,
            asynchronous_event_request_limit: 4,
            firmware_updates: FirmwareUpdates::FIRST_SLOT_READ_ONLY | FirmwareUpdates::ONE_SLOT,
            log_page_attributes: LogPageAttributes::COMMANDS_SUPPORTED_AND_EFFECTS
                | LogPageAttributes::EXTENDED_DATA
                | LogPageAttributes::SUPPORTED_LOG_PAGES,
            error_log_entries: 127,
            admin_vendor_specific_commands: 1,
            autonomous_power_state_transitions: 2,
            warning_temperature_kelvin: 343,
            critical_temperature_kelvin: 353,
            keep_alive_granularity: 10,
            ana_transition_seconds: 10,
            ana_capabilities: AnaCapabilities(0x5f),
            ana_group_id_maximum: 1,
            ana_group_ids: 2,
            submission_entry_size: 0x66,
            completion_entry_size: 0x44,
            maximum_commands: 128,
            namespaces: 1024,
            optional_nvm_commands: OptionalNvmCommands::COMPARE
                | OptionalNvmCommands::DATASET_MANAGEMENT
                | OptionalNvmCommands::WRITE_ZEROES
                | OptionalNvmCommands::VERIFY
                | OptionalNvmCommands::COPY,
            fused_operations: FusedOperations::COMPARE_AND_WRITE,
            format_attributes: 1,
            volatile_write_cache: VolatileCache::PRESENT | VolatileCache::FLUSH_ALL_SUPPORTED,
            atomic_write_unit: 0xff,
            atomic_write_unit_power_fail: 0xfe,
            io_vendor_specific_commands: 1,
            namespace_write_protection: 2,
            atomic_compare_and_write_unit: 12,
            copy_descriptor_formats: 1,
            sgl_support: SglSupport::SUPPORTED
                | SglSupport::OFFSET_ADDRESS
                | SglSupport::TRANSPORT_DATA_BLOCK,
            maximum_allowed_namespaces: 512,
            subsystem_nqn: subsystem.to_field(),
            io_command_capsule_size: 0x204,
            io_response_capsule_size: 1,
            fabrics_attributes: FabricsAttributes::STATIC_CONTROLLERS,
            maximum_sgl_descriptors: 1,
            optional_fabrics_commands: OptionalFabricsCommands::DISCONNECT,
            discovery_controller_type: 1,
            power_state_0: PowerState {
                maximum_power: 2500,
                flags: 2,
                entry_latency_us: 5,
                exit_latency_us: 6,
                relative_read_throughput: 1,
                relative_read_latency: 2,
                relative_write_throughput: 3,
                relative_write_latency: 4,
                ..PowerState::default()
            },
            ..IdentifyController::default()
        };
        assert_eq!(identify.encode()[..], bytes[..]);
        assert_eq!(IdentifyController::parse(&bytes), Ok(identify));
        assert_eq!(identify.subsystem(), Ok(subsystem));
        assert_eq!(identify.in_capsule_data_bytes(), 8192);
    }

    /// Fields that Weir leaves at zero.
    #[test]
    fn the_remaining_fields_are_where_the_specification_says() {
        let mut bytes = vec![0; 4096];
        let fields: &[(usize, usize)] = &[
            (100, 2),
            (253, 1),
            (254, 1),
            (255, 1),
            (270, 2),
            (272, 4),
            (276, 4),
            (280, 16),
            (296, 16),
            (312, 4),
            (316, 2),
            (318, 1),
            (319, 1),
            (322, 2),
            (324, 2),
            (326, 2),
            (328, 4),
            (332, 4),
            (336, 2),
            (338, 2),
            (340, 2),
            (352, 4),
            (356, 2),
            (368, 16),
            (544, 16),
            (560, 4),
        ];
        for (index, &(offset, _)) in fields.iter().enumerate() {
            bytes[offset] = index as u8 + 1;
        }
        let identify = IdentifyController::parse(&bytes).expect("4096 bytes");
        let values: [u128; 26] = [
            identify.read_recovery_levels.into(),
            identify.nvm_subsystem_report.into(),
            identify.vpd_write_cycles.into(),
            identify.management_endpoint.into(),
            identify.firmware_activation_time.into(),
            identify.host_memory_buffer_preferred.into(),
            identify.host_memory_buffer_minimum.into(),
            identify.total_nvm_capacity,
            identify.unallocated_nvm_capacity,
            identify.replay_protected_memory.into(),
            identify.extended_self_test_minutes.into(),
            identify.self_test_options.into(),
            identify.firmware_update_granularity.into(),
            identify.thermal_management.into(),
            identify.thermal_minimum_kelvin.into(),
            identify.thermal_maximum_kelvin.into(),
            identify.sanitize_capabilities.into(),
            identify.host_memory_buffer_descriptor_minimum.into(),
            identify.host_memory_buffer_descriptors.into(),
            identify.nvm_set_id_maximum.into(),
            identify.endurance_group_id_maximum.into(),
            identify.persistent_event_log_size.into(),
            identify.domain_id.into(),
            identify.endurance_group_capacity,
            identify.domain_namespace_attachments,
            identify.controller_namespace_attachments.into(),
        ];
        assert!(values.iter().copied().eq(1..=26));
        assert_eq!(identify.encode()[..], bytes[..]);
    }

    #[test]
    fn transfer_limits_are_powers_of_two_pages() {
        let with = |exponent| IdentifyController {
            maximum_data_transfer_size: exponent,
            ..IdentifyController::default()
        };
        assert_eq!(with(8).maximum_transfer_bytes(0), Some(1 << 20));
        assert_eq!(with(1).maximum_transfer_bytes(4), Some(1 << 17));
        assert_eq!(with(0).maximum_transfer_bytes(0), None);
        assert_eq!(with(255).maximum_transfer_bytes(15), None);
        assert_eq!(with(0).in_capsule_data_bytes(), 0);
    }

    #[test]
    fn structures_survive() {
        round_trip::<PowerState>();
        round_trip::<IdentifyController>();
    }
}
