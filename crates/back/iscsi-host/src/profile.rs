//! A logical unit's answers about itself, as a geometry and as limits for commands.
//!
//! Nothing is asked here. A question that the target refused has no answer, and what nobody said is taken for what is safe.

use weir_block::{BlockSize, DeallocatedRead, Geometry};
use weir_initiator::plan::Limits;
use weir_memory::Pool;
use weir_scsi::TooShort;
use weir_scsi::capacity::Capacity;
use weir_scsi::inquiry::{DeviceType, Inquiry, PeripheralQualifier};
use weir_scsi::mode::SensedMode;
use weir_scsi::opcodes::Support;
use weir_scsi::vpd::{self, BlockLimits, Provisioning, page};

/// The longest command that moves data, whatever more the target takes, in bytes.
const TRANSFER_BYTES_MAX: u64 = Pool::LONGEST as u64;
/// The longest range of a command that moves none, in bytes: longer ones could take longer than commands are waited for.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// The longest COMPARE AND WRITE: its number of blocks has one byte.
const COMPARE_AND_WRITE_BLOCKS_MAX: u32 = u8::MAX as u32;

/// BYTCHK 01b in byte 1 of VERIFY, and NDOB in that of WRITE SAME (16).
const BYTE_CHECK_DATA: u8 = 0x02;
const NO_DATA_OUT: u8 = 0x01;

/// DESIGNATOR TYPEs that tell a unit from all others, the best first.
const DESIGNATORS: [u8; 4] = [
    vpd::DESIGNATOR_NAA,
    vpd::DESIGNATOR_EUI_64,
    vpd::DESIGNATOR_SCSI_NAME,
    vpd::DESIGNATOR_T10_VENDOR,
];

/// Reason for which a logical unit cannot be a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It is not there, or not visible to this initiator.
    #[error("LUN {lun} is not there, or not for this host; see the target's LUNs on the target")]
    Absent {
        /// Its number.
        lun: u16,
    },
    /// It is no disk.
    #[error("LUN {lun} is no disk: it is a {device_type}")]
    NotADisk {
        /// Its number.
        lun: u16,
        /// PERIPHERAL DEVICE TYPE.
        device_type: DeviceType,
    },
    /// Its block size is not one of Weir's.
    #[error("LUN {lun} has blocks of {bytes} bytes; Weir takes 512 and 4096")]
    BlockSize {
        /// Its number.
        lun: u16,
        /// Its block size.
        bytes: u32,
    },
    /// It has protection information.
    #[error(
        "LUN {lun} is formatted with protection information, and Weir takes none; format it without"
    )]
    Protection {
        /// Its number.
        lun: u16,
    },
    /// Another unit is there than before.
    #[error("LUN {lun} is another unit than before: its identifier or its block size changed")]
    Other {
        /// Its number.
        lun: u16,
    },
    /// It claims to be longer than any volume can be.
    #[error(
        "LUN {lun} claims that its last block is {last_lba}, which is more bytes than can be counted"
    )]
    Size {
        /// Its number.
        lun: u16,
        /// Its last block, as it claims.
        last_lba: u64,
    },
    /// An answer that it must give is cut.
    #[error("LUN {lun} gave an answer that cannot be read: {error}")]
    Answer {
        /// Its number.
        lun: u16,
        /// The answer, and its length.
        #[source]
        error: TooShort,
    },
}

/// Identifier that tells a logical unit from others, wherever it is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// DESIGNATOR TYPE and DESIGNATOR of device identification.
    Designator(u8, Vec<u8>),
    /// Unit serial number.
    Serial(Vec<u8>),
    /// The unit has no identifier.
    Unknown,
}

impl Identity {
    /// The best identifier of those that the pages have. Of several of one type it is the longest.
    fn new(identification: Option<&[u8]>, serial: Option<&[u8]>) -> Identity {
        let designators = vpd::designators(identification.unwrap_or_default());
        for wanted in DESIGNATORS {
            let of_type = designators
                .iter()
                .filter(|one| one.is_of_unit() && one.designator_type == wanted);
            let longest = of_type.map(|one| one.value).max_by_key(|value| value.len());
            if let Some(value) = longest.filter(|value| !value.is_empty()) {
                return Identity::Designator(wanted, value.to_vec());
            }
        }
        let serial = serial.unwrap_or_default().trim_ascii();
        match serial.is_empty() {
            true => Identity::Unknown,
            false => Identity::Serial(serial.to_vec()),
        }
    }
}

/// A logical unit as a volume.
pub(crate) type Profile = weir_initiator::Profile<Identity>;

/// Data that a logical unit answered with. A page of vital product data has its header; those that are not among the supported pages,
/// or were refused, are absent.
#[derive(Clone, Copy)]
pub(crate) struct Answers<'data> {
    pub(crate) lun: u16,
    /// INQUIRY.
    pub(crate) inquiry: &'data [u8],
    /// READ CAPACITY (16).
    pub(crate) capacity: &'data [u8],
    /// VPD page 80h.
    pub(crate) serial: Option<&'data [u8]>,
    /// VPD page 83h.
    pub(crate) identification: Option<&'data [u8]>,
    /// VPD page B0h.
    pub(crate) block_limits: Option<&'data [u8]>,
    /// VPD page B2h.
    pub(crate) provisioning: Option<&'data [u8]>,
    /// MODE SENSE (10) of the caching page, or of all pages.
    pub(crate) mode: Option<&'data [u8]>,
    /// REPORT SUPPORTED OPERATION CODES of WRITE SAME (16).
    pub(crate) write_same: Option<&'data [u8]>,
    /// REPORT SUPPORTED OPERATION CODES of VERIFY (16).
    pub(crate) verify: Option<&'data [u8]>,
}

/// Tells whether supported VPD pages (page 00h, with its header) list a page.
pub(crate) fn lists_page(supported: &[u8], code: u8) -> bool {
    data_of(Some(supported), page::SUPPORTED_PAGES).is_some_and(|codes| codes.contains(&code))
}

impl Answers<'_> {
    /// The volume that the unit is.
    ///
    /// # Errors
    /// [`UnitError`].
    pub(crate) fn profile(&self) -> Result<Profile, UnitError> {
        let answers = self;
        let lun = answers.lun;
        let cut = |error| UnitError::Answer { lun, error };
        expect_inquiry_of_disk(lun, answers.inquiry)?;
        let capacity = Capacity::parse_16(answers.capacity).map_err(cut)?;
        let (block_size, blocks) = size(lun, &capacity)?;
        let told = Told::new(answers, &capacity);
        let limits = told.limits(block_size);
        Ok(Profile {
            identity: Identity::new(
                data_of(answers.identification, page::DEVICE_IDENTIFICATION),
                data_of(answers.serial, page::SERIAL_NUMBER),
            ),
            geometry: told.geometry(blocks, &limits),
            limits,
        })
    }
}

/// Refuses a unit whose INQUIRY data is not that of a disk.
///
/// # Errors
/// [`UnitError`].
pub(crate) fn expect_inquiry_of_disk(lun: u16, inquiry: &[u8]) -> Result<(), UnitError> {
    let inquiry = Inquiry::parse(inquiry).map_err(|error| UnitError::Answer { lun, error })?;
    expect_disk(lun, &inquiry)
}

fn expect_disk(lun: u16, inquiry: &Inquiry) -> Result<(), UnitError> {
    let peripheral = inquiry.peripheral;
    if peripheral.qualifier != PeripheralQualifier::Connected
        || peripheral.device_type == DeviceType::Unknown
    {
        return Err(UnitError::Absent { lun });
    }
    match peripheral.device_type {
        DeviceType::DirectAccessBlock => Ok(()),
        device_type => Err(UnitError::NotADisk { lun, device_type }),
    }
}

fn size(lun: u16, capacity: &Capacity) -> Result<(BlockSize, u64), UnitError> {
    let bytes = capacity.block_length;
    let block_size =
        BlockSize::from_bytes(bytes.into()).ok_or(UnitError::BlockSize { lun, bytes })?;
    if capacity.has_protection {
        return Err(UnitError::Protection { lun });
    }
    let last_lba = capacity.last_lba;
    let blocks = last_lba.checked_add(1);
    let blocks = blocks.filter(|&blocks| blocks <= u64::MAX >> block_size.shift());
    let blocks = blocks.ok_or(UnitError::Size { lun, last_lba })?;
    Ok((block_size, blocks))
}

/// The data of a page of vital product data. Old devices answer with another one where they do not know a page.
fn data_of(bytes: Option<&[u8]>, code: u8) -> Option<&[u8]> {
    let (found, data) = vpd::parse_page(bytes?).ok()?;
    (found == code).then_some(data)
}

fn support(answer: Option<&[u8]>) -> Support<'_> {
    let parsed = answer.map(Support::parse);
    parsed.and_then(Result::ok).unwrap_or(Support::Unknown)
}

/// Answers that can be missing, as far as they could be read.
struct Told<'data> {
    capacity: &'data Capacity,
    block_limits: BlockLimits,
    provisioning: Option<Provisioning>,
    mode: Option<SensedMode>,
    write_same: Support<'data>,
    verify: Support<'data>,
}

impl<'data> Told<'data> {
    fn new(answers: &Answers<'data>, capacity: &'data Capacity) -> Self {
        let block_limits = data_of(answers.block_limits, page::BLOCK_LIMITS)
            .and_then(|data| BlockLimits::parse(data).ok());
        Told {
            capacity,
            block_limits: block_limits.unwrap_or_default(),
            provisioning: data_of(answers.provisioning, page::PROVISIONING)
                .and_then(|data| Provisioning::parse(data).ok()),
            mode: answers
                .mode
                .and_then(|data| SensedMode::parse(data, true).ok()),
            write_same: support(answers.write_same),
            verify: support(answers.verify),
        }
    }

    /// LBPRZ. READ CAPACITY (16) and the page say the same; where they do not, nothing is promised.
    fn reads_zeroes(&self) -> bool {
        self.capacity.unmapped_reads_zeroes
            && self.provisioning.is_none_or(|page| page.reads_zeroes)
    }

    fn limits(&self, block_size: BlockSize) -> Limits {
        let blocks = |bytes: u64| (bytes >> block_size.shift()) as u32;
        let transfer_blocks_max =
            or_unlimited(self.block_limits.transfer_max).min(blocks(TRANSFER_BYTES_MAX));
        let range_blocks_max = blocks(RANGE_BYTES_MAX);
        let compare_and_write = u32::from(self.block_limits.compare_and_write_max);
        let verifies = matches!(self.verify, Support::Supported(_));
        Limits {
            block_size,
            transfer_blocks_max,
            write_zeroes_blocks_max: self
                .write_same_blocks(transfer_blocks_max)
                .min(range_blocks_max),
            write_zeroes_deallocates: self.capacity.provisioning_managed
                && self.provisioning.is_some_and(|page| page.write_same)
                && self.reads_zeroes(),
            write_zeroes_without_data: self.write_same.heeds(1, NO_DATA_OUT),
            force_unit_access: self.mode.is_some_and(|mode| mode.force_unit_access),
            // WRITE SAME has no FUA.
            write_zeroes_force_unit_access: false,
            verify_blocks_max: match verifies {
                true => transfer_blocks_max,
                false => 0,
            },
            deallocate_blocks_max: self.unmap_blocks().min(range_blocks_max),
            // Targets are known that answer such a VERIFY without having compared anything.
            compare: self.verify.heeds(1, BYTE_CHECK_DATA),
            compare_write_blocks_max: compare_and_write
                .min(COMPARE_AND_WRITE_BLOCKS_MAX)
                .min(transfer_blocks_max / 2),
        }
    }

    /// The longest WRITE SAME (16). Where its support is not known, its limits or its use for unmapping show it. Without a limit of its
    /// own, that of transfers is the safe one.
    fn write_same_blocks(&self, transfer_blocks_max: u32) -> u32 {
        let limit = self.block_limits.write_same_max;
        let shown = limit > 0 || self.provisioning.is_some_and(|page| page.write_same);
        let supported = match self.write_same {
            Support::Supported(_) => true,
            Support::Unsupported => false,
            Support::Unknown => shown,
        };
        match (supported, limit) {
            (false, _) => 0,
            (true, 0) => transfer_blocks_max,
            (true, limit) => u32::try_from(limit).unwrap_or(u32::MAX),
        }
    }

    /// The longest range of an UNMAP of one descriptor.
    fn unmap_blocks(&self) -> u32 {
        let unmaps = self.capacity.provisioning_managed
            && self.provisioning.is_none_or(|page| page.unmap)
            && self.block_limits.unmap_descriptors_max > 0;
        match unmaps {
            true => self.block_limits.unmap_max,
            false => 0,
        }
    }

    fn geometry(&self, blocks: u64, limits: &Limits) -> Geometry {
        let physical = 1 << self.capacity.physical_block_exponent;
        let optimal = match u32::from(self.block_limits.granularity) {
            0 => physical,
            granularity => granularity,
        };
        Geometry {
            generation: 0,
            block_size: limits.block_size,
            blocks,
            transfer_blocks_max: limits.transfer_blocks_max,
            transfer_blocks_optimal: optimal.min(limits.transfer_blocks_max),
            memory_alignment: 1,
            deallocate_blocks: match limits.deallocate_blocks_max {
                0 => 0,
                _ => self.block_limits.unmap_granularity.max(1),
            },
            deallocated_read: match self.reads_zeroes() {
                true => DeallocatedRead::Zeroes,
                false => DeallocatedRead::Unknown,
            },
            // Nobody flushes a cache that is said not to be there.
            volatile_cache: self.mode.and_then(|mode| mode.write_cache).unwrap_or(true),
            read_only: self.mode.is_some_and(|mode| mode.write_protected),
            // WRITE (16) promises nothing of more than a block: the atomic lengths of the block limits are those of WRITE ATOMIC.
            atomic_blocks: 1,
            atomic_blocks_power_fail: 1,
            compare_write_blocks: limits.compare_write_blocks_max,
        }
    }
}

/// A limit of which zero says that there is none.
fn or_unlimited(limit: u32) -> u32 {
    match limit {
        0 => u32::MAX,
        limit => limit,
    }
}

/// Geometry of a logical unit that answers so, in the order of INQUIRY, READ CAPACITY (16), VPD pages 80h, 83h, B0h and B2h, MODE SENSE
/// (10), and what is supported of WRITE SAME (16) and VERIFY (16). For fuzzing.
#[doc(hidden)]
#[must_use]
pub fn geometry_of(answers: [&[u8]; 9]) -> Option<Geometry> {
    let [inquiry, capacity, rest @ ..] = answers;
    let [
        serial,
        identification,
        block_limits,
        provisioning,
        mode,
        write_same,
        verify,
    ] = rest.map(Some);
    let answers = Answers {
        lun: 0,
        inquiry,
        capacity,
        serial,
        identification,
        block_limits,
        provisioning,
        mode,
        write_same,
        verify,
    };
    Some(answers.profile().ok()?.geometry)
}

#[cfg(test)]
mod tests;
