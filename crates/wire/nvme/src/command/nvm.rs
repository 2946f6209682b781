//! Commands of an I/O queue: the NVM command set (NVM Command Set 1.0c section 3.2) and Flush
//! (NVMe Base 2.0c section 7.1).

use super::CommandError;
use crate::opcode::NvmOpcode;
use crate::sgl::SglDescriptor;
use crate::sqe::Sqe;
use crate::wire::{WrongLength, bit, bits, wire_struct};

/// Bit of CDW12: Limited Retry (LR).
const LIMITED_RETRY: u32 = 31;
/// Bit of CDW12: Force Unit Access (FUA).
const FORCE_UNIT_ACCESS: u32 = 30;
/// Lowest bit of CDW12's Protection Information (PRINFO), four bits.
const PROTECTION_INFORMATION: u32 = 26;
/// Bit of CDW12 of Write Zeroes: Deallocate (DEAC).
const DEALLOCATE: u32 = 25;
/// Bit of CDW12: Storage Tag Check (STC).
const STORAGE_TAG_CHECK: u32 = 24;
/// Lowest bit of CDW12's Directive Type (DTYPE), four bits.
const DIRECTIVE_TYPE: u32 = 20;

/// Largest number of logical blocks that a 0's based 16-bit NLB says.
pub const BLOCKS_PER_COMMAND_MAX: u32 = 0x1_0000;
/// Largest number of ranges that an 0's based 8-bit NR says.
pub const RANGES_MAX: u16 = 256;

/// A command that reads, writes or compares a run of logical blocks: Read, Write and Compare share
/// this form (NVM Command Set 1.0c sections 3.2.4, 3.2.6 and 3.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Blocks {
    /// Starting LBA (SLBA).
    pub lba: u64,
    /// Logical blocks, 1 to 65536: NLB + 1.
    pub blocks: u32,
    /// Force Unit Access (FUA).
    pub force_unit_access: bool,
    /// Limited Retry (LR).
    pub limited_retry: bool,
    /// Protection Information (PRINFO): PRACT bit 3, PRCHK bits 2:0.
    pub protection_information: u8,
    /// Storage Tag Check (STC).
    pub storage_tag_check: bool,
    /// Directive Type (DTYPE), of Write; 0 is none.
    pub directive_type: u8,
    /// Directive Specific (DSPEC), of Write.
    pub directive_specific: u16,
    /// Dataset Management hints (DSM), of Read and Write.
    pub dataset_management: u8,
    /// CDW14: (expected) initial logical block reference or storage tag.
    pub initial_tag: u32,
    /// CDW15: application tag mask, bits 31:16, and application tag.
    pub application_tags: u32,
}

/// Write Zeroes (NVM Command Set 1.0c section 3.2.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WriteZeroes {
    /// Starting LBA (SLBA).
    pub lba: u64,
    /// Logical blocks, 1 to 65536: NLB + 1.
    pub blocks: u32,
    /// Force Unit Access (FUA).
    pub force_unit_access: bool,
    /// Limited Retry (LR).
    pub limited_retry: bool,
    /// Deallocate (DEAC): the host would rather have the blocks deallocated.
    pub deallocate: bool,
    /// Protection Information (PRINFO): PRACT bit 3, PRCHK bits 2:0.
    pub protection_information: u8,
    /// Storage Tag Check (STC).
    pub storage_tag_check: bool,
}

/// Verify (NVM Command Set 1.0c section 3.2.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Verify {
    /// Starting LBA (SLBA).
    pub lba: u64,
    /// Logical blocks, 1 to 65536: NLB + 1.
    pub blocks: u32,
    /// Force Unit Access (FUA): what a cache holds is made non-volatile first.
    pub force_unit_access: bool,
    /// Limited Retry (LR).
    pub limited_retry: bool,
    /// Protection Information (PRINFO): PRACT bit 3, PRCHK bits 2:0.
    pub protection_information: u8,
    /// Storage Tag Check (STC).
    pub storage_tag_check: bool,
}

/// Dataset Management (NVM Command Set 1.0c section 3.2.3). Its data is an array of
/// [`DatasetManagementRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DatasetManagement {
    /// Ranges, 1 to 256: NR + 1.
    pub ranges: u16,
    /// Attribute Deallocate (AD).
    pub deallocate: bool,
    /// Attribute Integral Dataset for Write (IDW).
    pub integral_write: bool,
    /// Attribute Integral Dataset for Read (IDR).
    pub integral_read: bool,
}

wire_struct! {
    /// One range of Dataset Management (NVM Command Set 1.0c section 3.2.3.1).
    pub struct DatasetManagementRange[16] {
        /// Context attributes: hints on access frequency and latency.
        0 => context_attributes: u32,
        /// Length in logical blocks, not 0's based; 0 is an empty range.
        4 => blocks: u32,
        /// Starting LBA.
        8 => lba: u64,
    }
}

/// Copy (NVM Command Set 1.0c section 3.2.2). Its data is an array of source ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CopyCommand {
    /// Starting Destination LBA (SDLBA).
    pub destination_lba: u64,
    /// Source ranges, 1 to 256: NR + 1.
    pub ranges: u16,
    /// Descriptor Format (DESFMT): 0h is [`CopyRange`].
    pub descriptor_format: u8,
    /// Protection Information Read (PRINFOR): PRACT bit 3, PRCHK bits 2:0.
    pub protection_information_read: u8,
    /// Protection Information Write (PRINFOW).
    pub protection_information_write: u8,
    /// Storage Tag Check Read (STCR).
    pub storage_tag_check_read: bool,
    /// Storage Tag Check Write (STCW).
    pub storage_tag_check_write: bool,
    /// Directive Type (DTYPE); 0 is none.
    pub directive_type: u8,
    /// Directive Specific (DSPEC).
    pub directive_specific: u16,
    /// Force Unit Access (FUA).
    pub force_unit_access: bool,
    /// Limited Retry (LR).
    pub limited_retry: bool,
    /// CDW14: initial logical block reference or storage tag of the destination.
    pub initial_tag: u32,
    /// CDW15: application tag mask, bits 31:16, and application tag.
    pub application_tags: u32,
}

wire_struct! {
    /// A source range of Copy in descriptor format 0h (NVM Command Set 1.0c section 3.2.2).
    pub struct CopyRange[32] {
        /// Starting LBA (SLBA).
        8 => lba: u64,
        /// Number of logical blocks, 0's based (NLB).
        16 => blocks_zero_based: u16,
        /// Expected initial logical block reference tag (EILBRT).
        24 => expected_reference_tag: u32,
        /// Expected logical block application tag (ELBAT).
        28 => expected_application_tag: u16,
        /// Expected logical block application tag mask (ELBATM).
        30 => expected_application_tag_mask: u16,
    }
}

impl CopyRange {
    /// A range of `blocks` logical blocks from `lba`, without protection information.
    ///
    /// Panics where `blocks` is not 1 to 65536.
    pub fn new(lba: u64, blocks: u32) -> Self {
        Self {
            lba,
            blocks_zero_based: zero_based(blocks),
            ..Self::default()
        }
    }

    /// Logical blocks, 1 to 65536.
    pub fn blocks(&self) -> u32 {
        u32::from(self.blocks_zero_based) + 1
    }
}

/// A command of an I/O queue. Reservation commands are recognised; [`crate::reservation`] reads their fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NvmCommand {
    /// Flush.
    Flush,
    /// Write.
    Write(Blocks),
    /// Read.
    Read(Blocks),
    /// Write Uncorrectable: `lba`, `blocks`.
    WriteUncorrectable {
        /// Starting LBA.
        lba: u64,
        /// Logical blocks, 1 to 65536.
        blocks: u32,
    },
    /// Compare.
    Compare(Blocks),
    /// Write Zeroes.
    WriteZeroes(WriteZeroes),
    /// Dataset Management.
    DatasetManagement(DatasetManagement),
    /// Verify.
    Verify(Verify),
    /// Copy.
    Copy(CopyCommand),
    /// Reservation Register.
    ReservationRegister,
    /// Reservation Report.
    ReservationReport,
    /// Reservation Acquire.
    ReservationAcquire,
    /// Reservation Release.
    ReservationRelease,
}

impl NvmCommand {
    /// Reads an entry as a command of an I/O queue.
    ///
    /// # Errors
    /// The opcode is not one of this type's; Fabrics commands are read by
    /// [`FabricsCommand`](super::FabricsCommand).
    pub fn parse(sqe: &Sqe) -> Result<Self, CommandError> {
        Ok(match NvmOpcode::from_value(sqe.opcode) {
            NvmOpcode::Flush => Self::Flush,
            NvmOpcode::Write => Self::Write(Blocks::from_sqe(sqe)),
            NvmOpcode::Read => Self::Read(Blocks::from_sqe(sqe)),
            NvmOpcode::Compare => Self::Compare(Blocks::from_sqe(sqe)),
            NvmOpcode::WriteUncorrectable => Self::WriteUncorrectable {
                lba: starting_lba(sqe),
                blocks: blocks(sqe),
            },
            NvmOpcode::WriteZeroes => Self::WriteZeroes(WriteZeroes::from_sqe(sqe)),
            NvmOpcode::DatasetManagement => {
                Self::DatasetManagement(DatasetManagement::from_sqe(sqe))
            }
            NvmOpcode::Verify => Self::Verify(Verify::from_sqe(sqe)),
            NvmOpcode::Copy => Self::Copy(CopyCommand::from_sqe(sqe)),
            NvmOpcode::ReservationRegister => Self::ReservationRegister,
            NvmOpcode::ReservationReport => Self::ReservationReport,
            NvmOpcode::ReservationAcquire => Self::ReservationAcquire,
            NvmOpcode::ReservationRelease => Self::ReservationRelease,
            NvmOpcode::Fabrics | NvmOpcode::Other(_) => {
                return Err(CommandError::Opcode { opcode: sqe.opcode });
            }
        })
    }

    /// The command's opcode.
    pub const fn opcode(&self) -> NvmOpcode {
        match self {
            Self::Flush => NvmOpcode::Flush,
            Self::Write(_) => NvmOpcode::Write,
            Self::Read(_) => NvmOpcode::Read,
            Self::WriteUncorrectable { .. } => NvmOpcode::WriteUncorrectable,
            Self::Compare(_) => NvmOpcode::Compare,
            Self::WriteZeroes(_) => NvmOpcode::WriteZeroes,
            Self::DatasetManagement(_) => NvmOpcode::DatasetManagement,
            Self::Verify(_) => NvmOpcode::Verify,
            Self::Copy(_) => NvmOpcode::Copy,
            Self::ReservationRegister => NvmOpcode::ReservationRegister,
            Self::ReservationReport => NvmOpcode::ReservationReport,
            Self::ReservationAcquire => NvmOpcode::ReservationAcquire,
            Self::ReservationRelease => NvmOpcode::ReservationRelease,
        }
    }

    /// The entry for this command. Fused operations set [`Sqe::fuse`] afterwards.
    ///
    /// Panics where a count or a field of less than eight bits is out of its range.
    pub fn sqe(&self, cid: u16, nsid: u32, sgl: SglDescriptor) -> Sqe {
        let mut sqe = Sqe {
            opcode: self.opcode().value(),
            cid,
            nsid,
            sgl,
            ..Sqe::default()
        };
        match self {
            Self::Flush
            | Self::ReservationRegister
            | Self::ReservationReport
            | Self::ReservationAcquire
            | Self::ReservationRelease => {}
            Self::Write(command) | Self::Read(command) | Self::Compare(command) => {
                command.fill(&mut sqe);
            }
            Self::WriteUncorrectable { lba, blocks } => {
                fill_lba(&mut sqe, *lba);
                sqe.cdw12 = u32::from(zero_based(*blocks));
            }
            Self::WriteZeroes(command) => command.fill(&mut sqe),
            Self::DatasetManagement(command) => command.fill(&mut sqe),
            Self::Verify(command) => command.fill(&mut sqe),
            Self::Copy(command) => command.fill(&mut sqe),
        }
        sqe
    }
}

fn starting_lba(sqe: &Sqe) -> u64 {
    u64::from(sqe.cdw11) << 32 | u64::from(sqe.cdw10)
}

fn blocks(sqe: &Sqe) -> u32 {
    bits(sqe.cdw12, 15, 0) + 1
}

fn fill_lba(sqe: &mut Sqe, lba: u64) {
    sqe.cdw10 = lba as u32;
    sqe.cdw11 = (lba >> 32) as u32;
}

/// NLB, 0's based, of 1 to 65536 blocks.
fn zero_based(blocks: u32) -> u16 {
    assert!(
        (1..=BLOCKS_PER_COMMAND_MAX).contains(&blocks),
        "a command takes 1 to 65536 blocks"
    );
    (blocks - 1) as u16
}

/// NR, 0's based, of 1 to 256 ranges.
fn zero_based_ranges(ranges: u16) -> u32 {
    assert!(
        (1..=RANGES_MAX).contains(&ranges),
        "a command takes 1 to 256 ranges"
    );
    u32::from(ranges - 1)
}

/// Four bits of a word at `low`.
fn nibble(value: u8, low: u32) -> u32 {
    assert!(value <= 0xf, "the field has four bits");
    u32::from(value) << low
}

impl Blocks {
    /// A command on `blocks` blocks from `lba`, with every option off.
    pub fn new(lba: u64, blocks: u32) -> Self {
        Self {
            lba,
            blocks,
            ..Self::default()
        }
    }

    /// Reads the fields of an entry, whose opcode says that it has this form.
    #[inline]
    pub fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            lba: starting_lba(sqe),
            blocks: blocks(sqe),
            force_unit_access: bit(sqe.cdw12, FORCE_UNIT_ACCESS),
            limited_retry: bit(sqe.cdw12, LIMITED_RETRY),
            protection_information: bits(sqe.cdw12, 29, PROTECTION_INFORMATION) as u8,
            storage_tag_check: bit(sqe.cdw12, STORAGE_TAG_CHECK),
            directive_type: bits(sqe.cdw12, 23, DIRECTIVE_TYPE) as u8,
            directive_specific: bits(sqe.cdw13, 31, 16) as u16,
            dataset_management: bits(sqe.cdw13, 7, 0) as u8,
            initial_tag: sqe.cdw14,
            application_tags: sqe.cdw15,
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        fill_lba(sqe, self.lba);
        sqe.cdw12 = u32::from(zero_based(self.blocks))
            | u32::from(self.force_unit_access) << FORCE_UNIT_ACCESS
            | u32::from(self.limited_retry) << LIMITED_RETRY
            | nibble(self.protection_information, PROTECTION_INFORMATION)
            | u32::from(self.storage_tag_check) << STORAGE_TAG_CHECK
            | nibble(self.directive_type, DIRECTIVE_TYPE);
        sqe.cdw13 = u32::from(self.directive_specific) << 16 | u32::from(self.dataset_management);
        sqe.cdw14 = self.initial_tag;
        sqe.cdw15 = self.application_tags;
    }
}

impl WriteZeroes {
    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            lba: starting_lba(sqe),
            blocks: blocks(sqe),
            force_unit_access: bit(sqe.cdw12, FORCE_UNIT_ACCESS),
            limited_retry: bit(sqe.cdw12, LIMITED_RETRY),
            deallocate: bit(sqe.cdw12, DEALLOCATE),
            protection_information: bits(sqe.cdw12, 29, PROTECTION_INFORMATION) as u8,
            storage_tag_check: bit(sqe.cdw12, STORAGE_TAG_CHECK),
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        fill_lba(sqe, self.lba);
        sqe.cdw12 = u32::from(zero_based(self.blocks))
            | u32::from(self.force_unit_access) << FORCE_UNIT_ACCESS
            | u32::from(self.limited_retry) << LIMITED_RETRY
            | u32::from(self.deallocate) << DEALLOCATE
            | nibble(self.protection_information, PROTECTION_INFORMATION)
            | u32::from(self.storage_tag_check) << STORAGE_TAG_CHECK;
    }
}

impl Verify {
    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            lba: starting_lba(sqe),
            blocks: blocks(sqe),
            force_unit_access: bit(sqe.cdw12, FORCE_UNIT_ACCESS),
            limited_retry: bit(sqe.cdw12, LIMITED_RETRY),
            protection_information: bits(sqe.cdw12, 29, PROTECTION_INFORMATION) as u8,
            storage_tag_check: bit(sqe.cdw12, STORAGE_TAG_CHECK),
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        fill_lba(sqe, self.lba);
        sqe.cdw12 = u32::from(zero_based(self.blocks))
            | u32::from(self.force_unit_access) << FORCE_UNIT_ACCESS
            | u32::from(self.limited_retry) << LIMITED_RETRY
            | nibble(self.protection_information, PROTECTION_INFORMATION)
            | u32::from(self.storage_tag_check) << STORAGE_TAG_CHECK;
    }
}

impl DatasetManagement {
    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            ranges: bits(sqe.cdw10, 7, 0) as u16 + 1,
            deallocate: bit(sqe.cdw11, 2),
            integral_write: bit(sqe.cdw11, 1),
            integral_read: bit(sqe.cdw11, 0),
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        sqe.cdw10 = zero_based_ranges(self.ranges);
        sqe.cdw11 = u32::from(self.deallocate) << 2
            | u32::from(self.integral_write) << 1
            | u32::from(self.integral_read);
    }

    /// Bytes of the range list that the command's data must hold.
    pub const fn data_length(&self) -> u32 {
        self.ranges as u32 * DatasetManagementRange::SIZE as u32
    }
}

impl CopyCommand {
    fn from_sqe(sqe: &Sqe) -> Self {
        Self {
            destination_lba: starting_lba(sqe),
            ranges: bits(sqe.cdw12, 7, 0) as u16 + 1,
            descriptor_format: bits(sqe.cdw12, 11, 8) as u8,
            protection_information_read: bits(sqe.cdw12, 15, 12) as u8,
            protection_information_write: bits(sqe.cdw12, 29, PROTECTION_INFORMATION) as u8,
            storage_tag_check_read: bit(sqe.cdw12, 25),
            storage_tag_check_write: bit(sqe.cdw12, STORAGE_TAG_CHECK),
            directive_type: bits(sqe.cdw12, 23, DIRECTIVE_TYPE) as u8,
            directive_specific: bits(sqe.cdw13, 31, 16) as u16,
            force_unit_access: bit(sqe.cdw12, FORCE_UNIT_ACCESS),
            limited_retry: bit(sqe.cdw12, LIMITED_RETRY),
            initial_tag: sqe.cdw14,
            application_tags: sqe.cdw15,
        }
    }

    fn fill(&self, sqe: &mut Sqe) {
        fill_lba(sqe, self.destination_lba);
        sqe.cdw12 = zero_based_ranges(self.ranges)
            | nibble(self.descriptor_format, 8)
            | nibble(self.protection_information_read, 12)
            | nibble(self.directive_type, DIRECTIVE_TYPE)
            | u32::from(self.storage_tag_check_write) << STORAGE_TAG_CHECK
            | u32::from(self.storage_tag_check_read) << 25
            | nibble(self.protection_information_write, PROTECTION_INFORMATION)
            | u32::from(self.force_unit_access) << FORCE_UNIT_ACCESS
            | u32::from(self.limited_retry) << LIMITED_RETRY;
        sqe.cdw13 = u32::from(self.directive_specific) << 16;
        sqe.cdw14 = self.initial_tag;
        sqe.cdw15 = self.application_tags;
    }

    /// Bytes of the range list that the command's data must hold in descriptor format 0h.
    pub const fn data_length(&self) -> u32 {
        self.ranges as u32 * CopyRange::SIZE as u32
    }
}

/// The ranges of a Dataset Management command, from its data.
///
/// # Errors
/// The data is shorter than `ranges` ranges; what is longer is ignored.
pub fn dataset_management_ranges(
    data: &[u8],
    ranges: u16,
) -> Result<impl Iterator<Item = DatasetManagementRange> + '_, WrongLength> {
    let list = list_of(
        data,
        usize::from(ranges),
        DatasetManagementRange::SIZE,
        "range list",
    )?;
    let (chunks, _) = list.as_chunks();
    Ok(chunks.iter().map(DatasetManagementRange::decode))
}

/// The source ranges of a Copy command in descriptor format 0h, from its data.
///
/// # Errors
/// The data is shorter than `ranges` ranges; what is longer is ignored.
pub fn copy_ranges(
    data: &[u8],
    ranges: u16,
) -> Result<impl Iterator<Item = CopyRange> + '_, WrongLength> {
    let list = list_of(
        data,
        usize::from(ranges),
        CopyRange::SIZE,
        "source range list",
    )?;
    let (chunks, _) = list.as_chunks();
    Ok(chunks.iter().map(CopyRange::decode))
}

/// The first `count` entries of `size` bytes.
fn list_of<'a>(
    data: &'a [u8],
    count: usize,
    size: usize,
    structure: &'static str,
) -> Result<&'a [u8], WrongLength> {
    let expected = count * size;
    data.get(..expected).ok_or(WrongLength {
        structure,
        expected,
        actual: data.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::check::round_trip;
    use proptest::prelude::*;

    const DATA: SglDescriptor = SglDescriptor::Transport { length: 4096 };

    /// CDW10 to CDW15 of an encoded entry.
    fn dwords(command: &NvmCommand) -> [[u8; 4]; 6] {
        let bytes = command.sqe(0, 1, DATA).encode();
        core::array::from_fn(|index| {
            let start = 40 + 4 * index;
            bytes[start..start + 4].try_into().expect("four bytes")
        })
    }

    #[test]
    fn read_and_write_are_laid_out_as_the_specification_says() {
        let write = NvmCommand::Write(Blocks {
            lba: 0x1122_3344_5566_7788,
            blocks: 0x1_0000,
            force_unit_access: true,
            limited_retry: false,
            protection_information: 0b1010,
            storage_tag_check: true,
            directive_type: 0x5,
            directive_specific: 0xaabb,
            dataset_management: 0xcc,
            initial_tag: 0x0102_0304,
            application_tags: 0x0506_0708,
        });
        let expected = [
            [0x88, 0x77, 0x66, 0x55],
            [0x44, 0x33, 0x22, 0x11],
            [0xff, 0xff, 0x50, 0x69], // FUA, PRINFO 1010b, STC, DTYPE 5h, NLB FFFFh
            [0xcc, 0x00, 0xbb, 0xaa],
            [0x04, 0x03, 0x02, 0x01],
            [0x08, 0x07, 0x06, 0x05],
        ];
        assert_eq!(dwords(&write), expected);
        assert_eq!(NvmCommand::parse(&write.sqe(0, 1, DATA)), Ok(write));

        let read = NvmCommand::Read(Blocks {
            limited_retry: true,
            ..Blocks::new(7, 1)
        });
        assert_eq!(dwords(&read)[2], [0, 0, 0, 0x80]);
        let entry = read.sqe(0x0102, 0x0304_0506, DATA).encode();
        assert_eq!(entry[..8], [0x02, 0x40, 0x02, 0x01, 0x06, 0x05, 0x04, 0x03]);
        assert_eq!(
            NvmCommand::Compare(Blocks::new(0, 1))
                .sqe(0, 1, DATA)
                .opcode,
            0x05
        );
    }

    #[test]
    fn write_zeroes_and_verify_are_laid_out_as_the_specification_says() {
        let zeroes = WriteZeroes {
            lba: 1,
            blocks: 3,
            deallocate: true,
            ..WriteZeroes::default()
        };
        assert_eq!(dwords(&NvmCommand::WriteZeroes(zeroes))[2], [2, 0, 0, 0x02]);
        let verify = Verify {
            lba: 1,
            blocks: 256,
            force_unit_access: true,
            ..Verify::default()
        };
        assert_eq!(dwords(&NvmCommand::Verify(verify))[2], [0xff, 0, 0, 0x40]);
        assert_eq!(NvmCommand::Verify(verify).opcode().value(), 0x0c);
    }

    #[test]
    fn dataset_management_is_laid_out_as_the_specification_says() {
        let command = DatasetManagement {
            ranges: 256,
            deallocate: true,
            integral_write: false,
            integral_read: true,
        };
        let [cdw10, cdw11, ..] = dwords(&NvmCommand::DatasetManagement(command));
        assert_eq!((cdw10, cdw11), ([0xff, 0, 0, 0], [0x05, 0, 0, 0]));
        assert_eq!(command.data_length(), 4096);

        let range = [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0x80];
        let data = [range, range].concat();
        let ranges: Vec<_> = dataset_management_ranges(&data, 1)
            .expect("long enough")
            .collect();
        assert_eq!(
            ranges,
            [DatasetManagementRange {
                context_attributes: 1,
                blocks: 2,
                lba: 0x8000_0000_0000_0003
            }]
        );
        assert_eq!(ranges[0].encode(), range);
        assert!(dataset_management_ranges(&data[..31], 2).is_err());
    }

    #[test]
    fn copy_is_laid_out_as_the_specification_says() {
        let copy = CopyCommand {
            destination_lba: 0x10,
            ranges: 128,
            descriptor_format: 0x1,
            protection_information_read: 0x2,
            protection_information_write: 0x9,
            storage_tag_check_read: true,
            storage_tag_check_write: false,
            directive_type: 0x3,
            directive_specific: 0x0405,
            force_unit_access: false,
            limited_retry: true,
            initial_tag: 6,
            application_tags: 7,
        };
        let expected = [
            [0x10, 0, 0, 0],
            [0; 4],
            [0x7f, 0x21, 0x30, 0xa6], // LR, PRINFOW 1001b, STCR | DTYPE | PRINFOR, DESFMT | NR
            [0, 0, 0x05, 0x04],
            [6, 0, 0, 0],
            [7, 0, 0, 0],
        ];
        assert_eq!(dwords(&NvmCommand::Copy(copy)), expected);
        assert_eq!(copy.data_length(), 4096);

        let mut range = [0; 32];
        range[8] = 9;
        range[16..18].copy_from_slice(&[0xff, 0xff]);
        range[24..28].copy_from_slice(&[1, 0, 0, 0]);
        range[28..30].copy_from_slice(&[2, 0]);
        range[30..32].copy_from_slice(&[3, 0]);
        let decoded: Vec<_> = copy_ranges(&range, 1).expect("long enough").collect();
        assert_eq!((decoded[0].lba, decoded[0].blocks()), (9, 65536));
        assert_eq!(decoded[0].expected_reference_tag, 1);
        assert_eq!(decoded[0].expected_application_tag, 2);
        assert_eq!(decoded[0].expected_application_tag_mask, 3);
        assert_eq!(decoded[0].encode(), range);
        assert_eq!(CopyRange::new(9, 65536).blocks(), 65536);
        assert!(copy_ranges(&range[..31], 1).is_err());
    }

    #[test]
    fn unknown_opcodes_are_refused() {
        for opcode in [0x03, 0x7f, 0x80, 0xff] {
            let error = NvmCommand::parse(&Sqe {
                opcode,
                ..Sqe::default()
            });
            assert_eq!(error, Err(CommandError::Opcode { opcode }));
        }
    }

    #[test]
    fn structures_survive() {
        round_trip::<DatasetManagementRange>();
        round_trip::<CopyRange>();
    }

    /// Command dwords 10 to 15.
    fn command_dwords(sqe: &Sqe) -> [u32; 6] {
        [
            sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15,
        ]
    }

    /// Bits of command dwords 10 to 15 that are read: those that the command's table defines, the
    /// tags of Write Zeroes and Verify left out.
    fn defined_bits(command: &NvmCommand) -> [u32; 6] {
        const ALL: u32 = u32::MAX;
        match command {
            NvmCommand::Read(_) | NvmCommand::Write(_) | NvmCommand::Compare(_) => {
                [ALL, ALL, 0xfdf0_ffff, 0xffff_00ff, ALL, ALL]
            }
            NvmCommand::WriteUncorrectable { .. } => [ALL, ALL, 0xffff, 0, 0, 0],
            NvmCommand::WriteZeroes(_) => [ALL, ALL, 0xff00_ffff, 0, 0, 0],
            NvmCommand::Verify(_) => [ALL, ALL, 0xfd00_ffff, 0, 0, 0],
            NvmCommand::DatasetManagement(_) => [0xff, 0b111, 0, 0, 0, 0],
            NvmCommand::Copy(_) => [ALL, ALL, 0xfff0_ffff, 0xffff_0000, ALL, ALL],
            NvmCommand::Flush
            | NvmCommand::ReservationRegister
            | NvmCommand::ReservationReport
            | NvmCommand::ReservationAcquire
            | NvmCommand::ReservationRelease => [0; 6],
        }
    }

    proptest! {
        #[test]
        fn any_entry_is_refused_or_survives(
            opcode in prop_oneof![0_u8..0x20, any::<u8>()],
            cdw: [u32; 6],
            data in proptest::collection::vec(any::<u8>(), 0..100),
            ranges: u16,
        ) {
            let [cdw10, cdw11, cdw12, cdw13, cdw14, cdw15] = cdw;
            let sqe = Sqe { opcode, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15, ..Sqe::default() };
            if let Ok(command) = NvmCommand::parse(&sqe) {
                let built = command.sqe(3, 4, DATA);
                prop_assert_eq!(built.opcode, opcode);
                prop_assert_eq!(NvmCommand::parse(&built), Ok(command));
                let kept = core::array::from_fn(|index| cdw[index] & defined_bits(&command)[index]);
                prop_assert_eq!(command_dwords(&built), kept);
            }
            let fits = data.len() >= usize::from(ranges) * 16;
            prop_assert_eq!(dataset_management_ranges(&data, ranges).is_ok(), fits);
        }
    }
}
