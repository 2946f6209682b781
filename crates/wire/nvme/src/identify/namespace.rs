//! Identify Namespace in its forms: CNS 00h (NVM Command Set 1.0c section 4.1.5.1), 05h and 06h for
//! the NVM command set (sections 4.1.5.3 and 4.1.5.4), and 08h, independent of the command set (NVMe
//! Base 2.0c section 5.17.2.8).

use crate::wire::{flags, wire_struct};

/// LBA formats that a namespace can list.
pub const LBA_FORMATS: usize = 64;

flags! {
    /// Namespace Features (NSFEAT).
    pub struct NamespaceFeatures: u8 {
        /// Bit 0: thin provisioning: NCAP may be less than NSZE.
        THIN_PROVISIONING = 1 << 0,
        /// Bit 1: NAWUN, NAWUPF and NACWU are this namespace's own (NSABP).
        ATOMIC_UNITS = 1 << 1,
        /// Bit 2: Deallocated or Unwritten Logical Block Error (DAE).
        DEALLOCATED_BLOCK_ERROR = 1 << 2,
        /// Bit 3: NGUID and EUI64 are never reused (UIDREUSE).
        IDENTIFIERS_NOT_REUSED = 1 << 3,
        /// Bit 4: NPWG, NPWA, NPDG, NPDA and NOWS are given (OPTPERF).
        OPTIMAL_PERFORMANCE = 1 << 4,
    }
}

flags! {
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities (NMIC).
    pub struct MultipathCapabilities: u8 {
        /// Bit 0: may be attached to two or more controllers at once.
        SHARED = 1 << 0,
    }
}

flags! {
    /// Deallocate Logical Block Features (DLFEAT): bits 2:0 say what deallocated blocks read as.
    pub struct DeallocateFeatures: u8 {
        /// Bits 2:0 = 001b: all bytes 00h.
        READS_ZEROES = 0b001,
        /// Bits 2:0 = 010b: all bytes FFh.
        READS_ONES = 0b010,
        /// Bit 3: Deallocate in Write Zeroes is supported.
        WRITE_ZEROES_DEALLOCATES = 1 << 3,
        /// Bit 4: the guard of deallocated blocks is the CRC of what they read as.
        GUARD_IS_CRC = 1 << 4,
    }
}

flags! {
    /// Namespace Attributes (NSATTR).
    pub struct NamespaceAttributes: u8 {
        /// Bit 0: currently write protected.
        WRITE_PROTECTED = 1 << 0,
    }
}

flags! {
    /// Namespace Status (NSTAT).
    pub struct NamespaceStatus: u8 {
        /// Bit 0: Namespace Ready (NRDY).
        READY = 1 << 0,
    }
}

wire_struct! {
    /// An LBA format: metadata size, data size, relative performance (NVM Command Set 1.0c section
    /// 4.1.5.1).
    pub struct LbaFormat[4] {
        /// Metadata Size (MS) in bytes.
        0 => metadata_size: u16,
        /// LBA Data Size (LBADS): 2^this bytes; 0 is not used.
        2 => data_size_exponent: u8,
        /// Relative Performance (RP), bits 1:0: 0 best, 3 degraded.
        3 => relative_performance: u8,
    }
}

impl LbaFormat {
    /// A format of 2^`data_size_exponent` bytes without metadata.
    pub const fn new(data_size_exponent: u8) -> Self {
        Self {
            metadata_size: 0,
            data_size_exponent,
            relative_performance: 0,
        }
    }

    /// Bytes of a logical block's data; `None` where the format is unused or beyond any size.
    pub const fn block_size(&self) -> Option<u64> {
        match self.data_size_exponent {
            0 => None,
            exponent => 1_u64.checked_shl(exponent as u32),
        }
    }
}

wire_struct! {
    /// Identify Namespace for the NVM command set, CNS 00h.
    pub struct IdentifyNamespace[4096] {
        /// Namespace Size (NSZE) in logical blocks.
        0 => size: u64,
        /// Namespace Capacity (NCAP) in logical blocks.
        8 => capacity: u64,
        /// Namespace Utilization (NUSE) in logical blocks.
        16 => utilization: u64,
        /// Namespace Features (NSFEAT).
        24 => features: NamespaceFeatures,
        /// Number of LBA Formats (NLBAF), 0's based.
        25 => lba_format_count: u8,
        /// Formatted LBA Size (FLBAS): index in bits 3:0, its high bits in 6:5, metadata at the end
        /// of the data in bit 4; see [`IdentifyNamespace::format`].
        26 => formatted_lba_size: u8,
        /// Metadata Capabilities (MC).
        27 => metadata_capabilities: u8,
        /// End-to-end Data Protection Capabilities (DPC).
        28 => protection_capabilities: u8,
        /// End-to-end Data Protection Type Settings (DPS).
        29 => protection_settings: u8,
        /// Multi-path and sharing capabilities (NMIC).
        30 => multipath: MultipathCapabilities,
        /// Reservation Capabilities (RESCAP).
        31 => reservation_capabilities: u8,
        /// Format Progress Indicator (FPI).
        32 => format_progress: u8,
        /// Deallocate Logical Block Features (DLFEAT).
        33 => deallocate_features: DeallocateFeatures,
        /// Namespace Atomic Write Unit Normal (NAWUN) in logical blocks, 0's based.
        34 => atomic_write_unit: u16,
        /// Namespace Atomic Write Unit Power Fail (NAWUPF) in logical blocks, 0's based.
        36 => atomic_write_unit_power_fail: u16,
        /// Namespace Atomic Compare & Write Unit (NACWU) in logical blocks, 0's based.
        38 => atomic_compare_and_write_unit: u16,
        /// Namespace Atomic Boundary Size Normal (NABSN) in logical blocks, 0's based; 0 is none.
        40 => atomic_boundary: u16,
        /// Namespace Atomic Boundary Offset (NABO) in logical blocks.
        42 => atomic_boundary_offset: u16,
        /// Namespace Atomic Boundary Size Power Fail (NABSPF) in logical blocks, 0's based; 0 is none.
        44 => atomic_boundary_power_fail: u16,
        /// Namespace Optimal I/O Boundary (NOIOB) in logical blocks; 0 is none.
        46 => optimal_io_boundary: u16,
        /// NVM Capacity (NVMCAP) in bytes.
        48 => nvm_capacity: u128,
        /// Namespace Preferred Write Granularity (NPWG) in logical blocks, 0's based.
        64 => preferred_write_granularity: u16,
        /// Namespace Preferred Write Alignment (NPWA) in logical blocks, 0's based.
        66 => preferred_write_alignment: u16,
        /// Namespace Preferred Deallocate Granularity (NPDG) in logical blocks, 0's based.
        68 => preferred_deallocate_granularity: u16,
        /// Namespace Preferred Deallocate Alignment (NPDA) in logical blocks, 0's based.
        70 => preferred_deallocate_alignment: u16,
        /// Namespace Optimal Write Size (NOWS) in logical blocks, 0's based.
        72 => optimal_write_size: u16,
        /// Maximum Single Source Range Length (MSSRL) of Copy in logical blocks.
        74 => copy_source_range_maximum: u16,
        /// Maximum Copy Length (MCL) in logical blocks.
        76 => copy_maximum: u32,
        /// Maximum Source Range Count (MSRC) of Copy, 0's based.
        80 => copy_source_ranges: u8,
        /// Number of Unique Capability LBA Formats (NULBAF).
        82 => unique_lba_formats: u8,
        /// ANA Group Identifier (ANAGRPID).
        92 => ana_group_id: u32,
        /// Namespace Attributes (NSATTR).
        99 => attributes: NamespaceAttributes,
        /// NVM Set Identifier (NVMSETID).
        100 => nvm_set_id: u16,
        /// Endurance Group Identifier (ENDGID).
        102 => endurance_group_id: u16,
        /// Namespace Globally Unique Identifier (NGUID), most significant byte first; 0 is none.
        104 => nguid: [u8; 16],
        /// IEEE Extended Unique Identifier (EUI64), most significant byte first; 0 is none.
        120 => eui64: [u8; 8],
        /// LBA formats; `lba_format_count` + 1 of them count.
        128 => lba_formats: [LbaFormat; LBA_FORMATS],
    }
}

impl IdentifyNamespace {
    /// Index of the format that the namespace has (FLBAS bits 6:5 and 3:0).
    pub const fn format_index(&self) -> usize {
        let flbas = self.formatted_lba_size as usize;
        (flbas >> 5 & 0b11) << 4 | flbas & 0xf
    }

    /// The format that the namespace has.
    pub const fn format(&self) -> LbaFormat {
        self.lba_formats[self.format_index()]
    }
}

wire_struct! {
    /// I/O Command Set specific Identify Namespace for the NVM command set, CNS 05h.
    pub struct CommandSetNamespace[4096] {
        /// Logical Block Storage Tag Mask (LBSTM).
        0 => storage_tag_mask: u64,
        /// Protection Information Capabilities (PIC).
        8 => protection_information: u8,
        /// Extended LBA formats (ELBAF), parallel to the LBA formats.
        12 => extended_lba_formats: [u32; LBA_FORMATS],
    }
}

wire_struct! {
    /// I/O Command Set specific Identify Controller for the NVM command set, CNS 06h. Sizes are powers
    /// of two minimum memory pages; 0 is no limit.
    pub struct CommandSetController[4096] {
        /// Verify Size Limit (VSL).
        0 => verify_size_limit: u8,
        /// Write Zeroes Size Limit (WZSL).
        1 => write_zeroes_size_limit: u8,
        /// Write Uncorrectable Size Limit (WUSL).
        2 => write_uncorrectable_size_limit: u8,
        /// Dataset Management Ranges Limit (DMRL).
        3 => dataset_management_ranges: u8,
        /// Dataset Management Range Size Limit (DMRSL) in logical blocks.
        4 => dataset_management_range_size: u32,
        /// Dataset Management Size Limit (DMSL) in logical blocks.
        8 => dataset_management_size: u64,
    }
}

wire_struct! {
    /// I/O Command Set Independent Identify Namespace, CNS 08h.
    pub struct IndependentNamespace[4096] {
        /// Common Namespace Features (NSFEAT); only bit 3, identifiers not reused, means here what it
        /// means in [`IdentifyNamespace`].
        0 => features: u8,
        /// Multi-path and sharing capabilities (NMIC).
        1 => multipath: MultipathCapabilities,
        /// Reservation Capabilities (RESCAP).
        2 => reservation_capabilities: u8,
        /// Format Progress Indicator (FPI).
        3 => format_progress: u8,
        /// ANA Group Identifier (ANAGRPID).
        4 => ana_group_id: u32,
        /// Namespace Attributes (NSATTR).
        8 => attributes: NamespaceAttributes,
        /// NVM Set Identifier (NVMSETID).
        10 => nvm_set_id: u16,
        /// Endurance Group Identifier (ENDGID).
        12 => endurance_group_id: u16,
        /// Namespace Status (NSTAT).
        14 => status: NamespaceStatus,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;

    fn set(bytes: &mut [u8], offset: usize, value: &[u8]) {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    }

    #[test]
    fn identify_namespace_is_laid_out_as_the_specification_says() {
        let mut bytes = vec![0; 4096];
        set(&mut bytes, 0, &[1, 0, 0, 0, 0, 0, 0, 0x10]); // NSZE
        set(&mut bytes, 8, &[2, 0, 0, 0, 0, 0, 0, 0x20]); // NCAP
        set(&mut bytes, 16, &[3, 0, 0, 0, 0, 0, 0, 0x30]); // NUSE
        set(&mut bytes, 24, &[0x12, 1, 0x21, 4, 5, 6, 1, 8, 9, 0x09]); // NSFEAT to DLFEAT
        set(
            &mut bytes,
            34,
            &[10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15, 0, 16, 0],
        ); // NAWUN to NOIOB
        set(
            &mut bytes,
            48,
            &[17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ); // NVMCAP
        set(&mut bytes, 64, &[18, 0, 19, 0, 20, 0, 21, 0, 22, 0]); // NPWG NPWA NPDG NPDA NOWS
        set(&mut bytes, 74, &[23, 0, 24, 0, 0, 0, 25]); // MSSRL MCL MSRC
        bytes[82] = 26; // NULBAF
        set(&mut bytes, 92, &[27, 0, 0, 0]); // ANAGRPID
        bytes[99] = 1; // NSATTR
        set(&mut bytes, 100, &[28, 0, 29, 0]); // NVMSETID ENDGID
        set(&mut bytes, 104, b"0123456789abcdef"); // NGUID
        set(&mut bytes, 120, b"ghijklmn"); // EUI64
        set(&mut bytes, 128, &[0, 0, 9, 2]); // LBAF0
        set(&mut bytes, 132, &[8, 0, 12, 0]); // LBAF1
        set(&mut bytes, 380, &[0, 0, 13, 3]); // LBAF63
        let mut lba_formats = [LbaFormat::default(); LBA_FORMATS];
        lba_formats[0] = LbaFormat {
            relative_performance: 2,
            ..LbaFormat::new(9)
        };
        lba_formats[1] = LbaFormat {
            metadata_size: 8,
            ..LbaFormat::new(12)
        };
        lba_formats[63] = LbaFormat {
            relative_performance: 3,
            ..LbaFormat::new(13)
        };
        let identify = IdentifyNamespace {
            size: 0x1000_0000_0000_0001,
            capacity: 0x2000_0000_0000_0002,
            utilization: 0x3000_0000_0000_0003,
            features: NamespaceFeatures::ATOMIC_UNITS | NamespaceFeatures::OPTIMAL_PERFORMANCE,
            lba_format_count: 1,
            formatted_lba_size: 0x21,
            metadata_capabilities: 4,
            protection_capabilities: 5,
            protection_settings: 6,
            multipath: MultipathCapabilities::SHARED,
            reservation_capabilities: 8,
            format_progress: 9,
            deallocate_features: DeallocateFeatures::READS_ZEROES
                | DeallocateFeatures::WRITE_ZEROES_DEALLOCATES,
            atomic_write_unit: 10,
            atomic_write_unit_power_fail: 11,
            atomic_compare_and_write_unit: 12,
            atomic_boundary: 13,
            atomic_boundary_offset: 14,
            atomic_boundary_power_fail: 15,
            optimal_io_boundary: 16,
            nvm_capacity: 1 << 120 | 17,
            preferred_write_granularity: 18,
            preferred_write_alignment: 19,
            preferred_deallocate_granularity: 20,
            preferred_deallocate_alignment: 21,
            optimal_write_size: 22,
            copy_source_range_maximum: 23,
            copy_maximum: 24,
            copy_source_ranges: 25,
            unique_lba_formats: 26,
            ana_group_id: 27,
            attributes: NamespaceAttributes::WRITE_PROTECTED,
            nvm_set_id: 28,
            endurance_group_id: 29,
            nguid: *b"0123456789abcdef",
            eui64: *b"ghijklmn",
            lba_formats,
        };
        assert_eq!(identify.encode()[..], bytes[..]);
        assert_eq!(IdentifyNamespace::parse(&bytes), Ok(identify));
        assert_eq!(identify.format_index(), 17);
        let plain = IdentifyNamespace {
            formatted_lba_size: 1,
            ..identify
        };
        assert_eq!(plain.format().block_size(), Some(4096));
        assert_eq!(LbaFormat::default().block_size(), None);
        assert_eq!(LbaFormat::new(64).block_size(), None);
    }

    #[test]
    fn the_other_forms_are_laid_out_as_the_specification_says() {
        let mut bytes = vec![0; 4096];
        set(
            &mut bytes,
            0,
            &[1, 2, 3, 4, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0x80],
        );
        assert_eq!(
            CommandSetController::parse(&bytes),
            Ok(CommandSetController {
                verify_size_limit: 1,
                write_zeroes_size_limit: 2,
                write_uncorrectable_size_limit: 3,
                dataset_management_ranges: 4,
                dataset_management_range_size: 5,
                dataset_management_size: 0x8000_0000_0000_0006,
            })
        );

        let mut bytes = vec![0; 4096];
        set(
            &mut bytes,
            0,
            &[0x08, 1, 2, 3, 4, 0, 0, 0, 1, 0, 5, 0, 6, 0, 1],
        );
        let independent = IndependentNamespace {
            features: 8,
            multipath: MultipathCapabilities::SHARED,
            reservation_capabilities: 2,
            format_progress: 3,
            ana_group_id: 4,
            attributes: NamespaceAttributes::WRITE_PROTECTED,
            nvm_set_id: 5,
            endurance_group_id: 6,
            status: NamespaceStatus::READY,
        };
        assert_eq!(IndependentNamespace::parse(&bytes), Ok(independent));
        assert_eq!(independent.encode()[..], bytes[..]);

        let mut bytes = vec![0; 4096];
        set(&mut bytes, 0, &[1, 0, 0, 0, 0, 0, 0, 0, 2]);
        set(&mut bytes, 12, &[3, 0, 0, 0]);
        set(&mut bytes, 264, &[4, 0, 0, 0]);
        let specific = CommandSetNamespace::parse(&bytes).expect("4096 bytes");
        assert_eq!(
            (specific.storage_tag_mask, specific.protection_information),
            (1, 2)
        );
        assert_eq!(
            (
                specific.extended_lba_formats[0],
                specific.extended_lba_formats[63]
            ),
            (3, 4)
        );
        assert_eq!(specific.encode()[..], bytes[..]);
    }

    #[test]
    fn structures_survive() {
        round_trip::<LbaFormat>();
        round_trip::<IdentifyNamespace>();
        round_trip::<CommandSetNamespace>();
        round_trip::<CommandSetController>();
        round_trip::<IndependentNamespace>();
    }
}
