//! What a logical unit says about itself.

use std::rc::Rc;

use weir_block::BlockSize;
use weir_scsi::capacity::Capacity;
use weir_scsi::cdb::ModeSense;
use weir_scsi::copy::CopyTarget;
use weir_scsi::inquiry::Inquiry;
use weir_scsi::mode::Mode;
use weir_scsi::ports::{
    AccessState, GroupsFormat, PortGroup, StateChange, SupportedStates, report_groups,
};
use weir_scsi::sense::{FieldPointer, Sense};
use weir_scsi::text_field;
use weir_scsi::vpd::{self, BlockLimits, Port, Provisioning, page};

use super::media::Bounds;
use super::{NO_SUCH_LUN, unmap};
use crate::config::PORTAL_GROUP;
use crate::scene::{AttachedLun, Scene};

/// The longest mode parameter list, in bytes.
pub(super) const MODE_LIST_BYTES_MAX: u32 = 512;

const VENDOR: &str = "WEIR";
const PRODUCT: &str = "VOLUME";
/// The one port of a target, and the group of asymmetric access that it is in. All portals are of one portal group.
pub(super) const PORT: u16 = 1;
const PORT_GROUP: u16 = 1;
/// Blocks of more bytes than this are not told as physical ones: hosts would align partitions to them, and refuse to write less at once.
const PHYSICAL_BLOCK_BYTES_MAX: u32 = BlockSize::B4096.bytes();

const PAGES: [u8; 9] = [
    page::SUPPORTED_PAGES,
    page::SERIAL_NUMBER,
    page::DEVICE_IDENTIFICATION,
    page::EXTENDED_INQUIRY,
    page::MODE_PAGE_POLICY,
    page::SCSI_PORTS,
    page::BLOCK_LIMITS,
    page::BLOCK_CHARACTERISTICS,
    page::PROVISIONING,
];

/// INQUIRY data, or a page of vital product data.
pub(super) fn inquiry(
    page: Option<u8>,
    lun: Option<&Rc<AttachedLun>>,
    scene: &Scene,
) -> Result<Vec<u8>, Sense> {
    match (page, lun) {
        (None, lun) => {
            let revision = env!("CARGO_PKG_VERSION");
            let all = Inquiry {
                implicit_port_groups: true,
                third_party_copy: true,
                ..Inquiry::block_device(
                    text_field(VENDOR),
                    text_field(PRODUCT),
                    text_field(revision),
                )
            };
            let one = if lun.is_some() { all } else { all.absent() };
            Ok(one.encode().to_vec())
        }
        (Some(page), Some(lun)) => vital_product_data(page, lun, scene),
        (Some(_), None) => Err(NO_SUCH_LUN),
    }
}

fn vital_product_data(code: u8, lun: &AttachedLun, scene: &Scene) -> Result<Vec<u8>, Sense> {
    let target = scene.target().map(|name| name.as_str());
    let port = Port {
        target: target.unwrap_or_default(),
        portal_group: PORTAL_GROUP,
        relative: PORT,
        port_group: PORT_GROUP,
    };
    let geometry = lun.geometry.get();
    Ok(match code {
        page::SUPPORTED_PAGES => vpd::supported_pages(&PAGES),
        page::SERIAL_NUMBER => vpd::serial_number(&serial(lun)),
        page::DEVICE_IDENTIFICATION => vpd::device_identification(
            text_field(VENDOR),
            &serial(lun),
            &vpd::naa(lun.export.identity),
            &port,
        ),
        page::EXTENDED_INQUIRY => vpd::extended_inquiry(geometry.volatile_cache),
        page::MODE_PAGE_POLICY => vpd::mode_page_policy(),
        page::SCSI_PORTS => vpd::scsi_ports(&port),
        page::BLOCK_LIMITS => block_limits(lun, scene).encode(),
        page::BLOCK_CHARACTERISTICS => vpd::block_characteristics(),
        page::PROVISIONING => {
            let deallocates = geometry.deallocate_blocks > 0;
            let provisioning = Provisioning {
                unmap: deallocates,
                write_same: deallocates,
                reads_zeroes: deallocates && Bounds::of(lun, scene).deallocated_reads_zeroes(),
                thin: deallocates,
            };
            provisioning.encode()
        }
        _ => return Err(Sense::invalid_field(FieldPointer::cdb(2))),
    })
}

/// The serial number: the identity of the volume, the same under every target.
fn serial(lun: &AttachedLun) -> String {
    lun.export
        .identity
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Tells whether a descriptor of an EXTENDED COPY means this logical unit.
pub(super) fn is_designated(lun: &AttachedLun, target: &CopyTarget<'_>) -> bool {
    target.association == 0
        && target.designator_type == vpd::DESIGNATOR_NAA
        && target.code_set == vpd::CODE_SET_BINARY
        && target.designator == vpd::naa(lun.export.identity)
}

fn block_limits(lun: &AttachedLun, scene: &Scene) -> BlockLimits {
    let geometry = lun.geometry.get();
    let bounds = Bounds::of(lun, scene);
    let transfer_max = bounds.transfer_blocks_max();
    let optimal = geometry.transfer_blocks_optimal.max(1);
    let deallocates = geometry.deallocate_blocks > 0;
    BlockLimits {
        write_same_not_zero: true,
        compare_and_write_max: bounds.compare_write_blocks_max(),
        granularity: u16::try_from(optimal).unwrap_or(0),
        transfer_max,
        transfer_optimal: transfer_max - transfer_max % optimal.min(transfer_max),
        unmap_max: if deallocates {
            bounds.range_blocks_max()
        } else {
            0
        },
        unmap_descriptors_max: if deallocates { unmap::RANGES_MAX } else { 0 },
        unmap_granularity: geometry.deallocate_blocks,
        unmap_alignment: deallocates.then_some(0),
        write_same_max: bounds.range_blocks_max().into(),
    }
}

/// What READ CAPACITY says.
pub(super) fn capacity(lun: &AttachedLun) -> Capacity {
    let geometry = lun.geometry.get();
    let block_length = geometry.block_size.bytes();
    let physical = geometry
        .transfer_blocks_optimal
        .max(1)
        .saturating_mul(block_length);
    let physical = match physical.is_power_of_two() {
        true => physical.min(PHYSICAL_BLOCK_BYTES_MAX),
        false => block_length,
    };
    let deallocates = geometry.deallocate_blocks > 0;
    Capacity {
        last_lba: geometry.blocks.saturating_sub(1),
        block_length,
        physical_block_exponent: (physical / block_length).ilog2() as u8,
        lowest_aligned_lba: 0,
        provisioning_managed: deallocates,
        unmapped_reads_zeroes: deallocates
            && geometry.deallocated_read == weir_block::DeallocatedRead::Zeroes,
        has_protection: false,
    }
}

fn mode(lun: &AttachedLun) -> Mode {
    let geometry = lun.geometry.get();
    Mode {
        write_protected: lun.is_read_only(),
        write_cache: geometry.volatile_cache,
        blocks: geometry.blocks,
        block_length: geometry.block_size.bytes(),
    }
}

/// MODE SENSE data.
pub(super) fn mode_sense(asked: &ModeSense, lun: &AttachedLun) -> Result<Vec<u8>, Sense> {
    mode(lun).sense(asked)
}

/// Takes a mode parameter list, which may change nothing.
pub(super) fn mode_select(list: &[u8], is_long: bool, lun: &AttachedLun) -> Result<(), Sense> {
    mode(lun).select(list, is_long).map_err(Sense::from)
}

/// REPORT TARGET PORT GROUPS data: the one port is active and optimized.
pub(super) fn port_groups(extended: bool) -> Vec<u8> {
    let group = PortGroup {
        group: PORT_GROUP,
        state: AccessState::ActiveOptimized,
        preferred: false,
        supported: SupportedStates {
            active_optimized: true,
            ..SupportedStates::default()
        },
        change: StateChange::None,
        ports: vec![PORT],
    };
    let format = match extended {
        true => GroupsFormat::Extended {
            implicit_transition_seconds: 0,
        },
        false => GroupsFormat::LengthOnly,
    };
    report_groups(&[group], format)
}
