//! Identify (NVMe Base 2.0c, section 5.17; NVM Command Set 1.0c, section 4.1.5).

use std::rc::Rc;

use weir_block::Geometry;
use weir_nvme::command::Identify;
use weir_nvme::identify::{
    AnaCapabilities, AsynchronousEventsSupported, COMMAND_SET_NVM, Cns, CommandSetCombination,
    CommandSetController, CommandSetNamespace, CommandSetVector, ControllerAttributes,
    ControllerMultipath, ControllerType, DeallocateFeatures, FabricsAttributes, FirmwareUpdates,
    FusedOperations, IDENTIFY_SIZE, IdentifyController, IdentifyNamespace, IndependentNamespace,
    LbaFormat, LogPageAttributes, MultipathCapabilities, NSID_ALL, NamespaceAttributes,
    NamespaceDescriptors, NamespaceFeatures, NamespaceStatus, OptionalFabricsCommands,
    OptionalNvmCommands, VolatileCache, encode_namespace_list,
};
use weir_nvme::{Sqe, Status, ascii};

use super::controller::{ABORTS_MAX, AdminOutcome, AdminView, Controller, ControllerKind};
use super::error_log::ErrorLog;
use super::events::EVENT_REQUESTS_MAX;
use super::nvm::{COPY_BYTES_MAX, COPY_RANGE_BYTES_MAX, COPY_RANGES_MAX, deallocate_features};
use super::properties::VERSION;
use super::reserve;
use crate::namespaces::{Attached, Namespaces};
use crate::snapshot::{ControllerModel, Subsystem};

/// ANA groups at most, and the largest group identifier.
pub(super) const ANA_GROUPS_MAX: u32 = 128;
/// Seconds that a change of ANA state may take (ANATT).
const ANA_TRANSITION_SECONDS: u8 = 10;
/// CRDT1: how long a host waits before it repeats an interrupted command, in units of 100 ms.
const COMMAND_RETRY_DELAY_100MS: u16 = 1;
/// Bytes of a response capsule, in units of 16.
const RESPONSE_CAPSULE_16: u32 = 1;
/// What a discovery controller calls itself.
const DISCOVERY_MODEL: &str = "Weir discovery";

fn refuse<T>(status: Status) -> Result<T, Status> {
    Err(status.with_do_not_retry())
}

/// What an NSID of an Identify command names.
enum Named<'a> {
    Active(&'a Rc<Attached>),
    /// A valid number without a namespace: the data is zeroes.
    Inactive,
}

fn named(namespaces: &Namespaces, nsid: u32) -> Result<Named<'_>, Status> {
    if nsid == 0 || nsid > Subsystem::NAMESPACES_MAX {
        return refuse(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    Ok(match namespaces.get(nsid) {
        Some(attached) => Named::Active(attached),
        None => Named::Inactive,
    })
}

impl Controller {
    pub(super) fn identify(
        &self,
        identify: &Identify,
        buffer: u32,
        namespaces: &Namespaces,
        view: &AdminView<'_>,
    ) -> Result<AdminOutcome, Status> {
        let data = self.identify_data(identify, namespaces, view)?;
        // A longer buffer keeps what it has behind the structure.
        if (buffer as usize) < IDENTIFY_SIZE {
            return refuse(Status::DATA_SGL_LENGTH_INVALID);
        }
        Ok(AdminOutcome::bytes(&data))
    }

    fn identify_data(
        &self,
        identify: &Identify,
        namespaces: &Namespaces,
        view: &AdminView<'_>,
    ) -> Result<[u8; IDENTIFY_SIZE], Status> {
        if self.identity.kind == ControllerKind::Discovery {
            return match identify.cns {
                Cns::Controller => Ok(self.identify_discovery(view).encode()),
                _ => refuse(Status::INVALID_FIELD_IN_COMMAND),
            };
        }
        let nvm = identify.command_set == COMMAND_SET_NVM;
        let of_set = |data: [u8; IDENTIFY_SIZE]| {
            if nvm {
                Ok(data)
            } else {
                refuse(Status::INVALID_IO_COMMAND_SET)
            }
        };
        match identify.cns {
            Cns::Namespace => Ok(match named(namespaces, identify.nsid)? {
                Named::Active(attached) => identify_namespace(attached).encode(),
                Named::Inactive => [0; IDENTIFY_SIZE],
            }),
            Cns::Controller => Ok(self.identify_controller(view).encode()),
            Cns::ActiveNamespaceList => active_list(namespaces, identify.nsid),
            Cns::NamespaceDescriptors => match named(namespaces, identify.nsid)? {
                Named::Active(attached) => Ok(descriptors(attached)),
                Named::Inactive => refuse(Status::INVALID_NAMESPACE_OR_FORMAT),
            },
            Cns::CommandSetNamespace => {
                named(namespaces, identify.nsid)?;
                of_set(CommandSetNamespace::default().encode())
            }
            Cns::CommandSetController => of_set(CommandSetController::default().encode()),
            Cns::CommandSetActiveNamespaceList => of_set(active_list(namespaces, identify.nsid)?),
            Cns::IndependentNamespace => Ok(match named(namespaces, identify.nsid)? {
                Named::Active(attached) => independent_namespace(attached).encode(),
                Named::Inactive => [0; IDENTIFY_SIZE],
            }),
            Cns::CommandSetVector => {
                let mine = [self.identity.id, 0xffff].contains(&identify.controller_id);
                if !mine {
                    return refuse(Status::INVALID_FIELD_IN_COMMAND);
                }
                Ok(CommandSetVector::encode(&[CommandSetCombination::NVM]))
            }
            _ => refuse(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    /// What controllers of both kinds say.
    fn identify_common(&self, view: &AdminView<'_>) -> IdentifyController {
        IdentifyController {
            maximum_data_transfer_size: view.config.mdts(),
            controller_id: self.identity.id,
            version: VERSION,
            attributes: ControllerAttributes::HOST_IDENTIFIER_128
                | ControllerAttributes::TRAFFIC_BASED_KEEP_ALIVE,
            asynchronous_event_request_limit: (EVENT_REQUESTS_MAX - 1) as u8,
            log_page_attributes: LogPageAttributes::EXTENDED_DATA
                | LogPageAttributes::SUPPORTED_LOG_PAGES,
            error_log_entries: (ErrorLog::ENTRIES - 1) as u8,
            keep_alive_granularity: 1,
            maximum_commands: view.config.queue_depth,
            sgl_support: view.config.sgl_support,
            subsystem_nqn: self.identity.subsystem_nqn.to_field(),
            ..IdentifyController::default()
        }
    }

    fn identify_discovery(&self, view: &AdminView<'_>) -> IdentifyController {
        IdentifyController {
            model_number: ascii(DISCOVERY_MODEL),
            serial_number: ascii(""),
            firmware_revision: ascii(env!("CARGO_PKG_VERSION")),
            controller_type: ControllerType::Discovery,
            asynchronous_events: AsynchronousEventsSupported::DISCOVERY_LOG_CHANGE,
            discovery_controller_type: 1,
            ..self.identify_common(view)
        }
    }

    fn identify_controller(&self, view: &AdminView<'_>) -> IdentifyController {
        let subsystem = view
            .snapshot
            .subsystem(self.identity.subsystem_nqn.as_str());
        let text = |text: fn(&Subsystem) -> &String| subsystem.map_or("", |s| text(s).as_str());
        let model = subsystem.map_or(ControllerModel::Dynamic, |s| s.controller_model);
        IdentifyController {
            serial_number: ascii(text(|s| &s.serial)),
            model_number: ascii(text(|s| &s.model)),
            firmware_revision: ascii(text(|s| &s.firmware)),
            recommended_arbitration_burst: 6,
            multipath: ControllerMultipath::MULTIPLE_PORTS
                | ControllerMultipath::MULTIPLE_CONTROLLERS
                | ControllerMultipath::ANA_REPORTING,
            asynchronous_events: AsynchronousEventsSupported::NAMESPACE_ATTRIBUTE
                | AsynchronousEventsSupported::ANA_CHANGE
                | AsynchronousEventsSupported::NORMAL_SUBSYSTEM_SHUTDOWN,
            controller_type: ControllerType::Io,
            command_retry_delay_1: COMMAND_RETRY_DELAY_100MS,
            abort_command_limit: ABORTS_MAX - 1,
            firmware_updates: FirmwareUpdates::FIRST_SLOT_READ_ONLY | FirmwareUpdates::ONE_SLOT,
            log_page_attributes: LogPageAttributes::COMMANDS_SUPPORTED_AND_EFFECTS
                | LogPageAttributes::EXTENDED_DATA
                | LogPageAttributes::SUPPORTED_LOG_PAGES,
            ana_transition_seconds: ANA_TRANSITION_SECONDS,
            ana_capabilities: AnaCapabilities::OPTIMIZED
                | AnaCapabilities::NON_OPTIMIZED
                | AnaCapabilities::INACCESSIBLE
                | AnaCapabilities::PERSISTENT_LOSS
                | AnaCapabilities::CHANGE,
            ana_group_id_maximum: ANA_GROUPS_MAX,
            ana_group_ids: ANA_GROUPS_MAX,
            submission_entry_size: 0x66,
            completion_entry_size: 0x44,
            namespaces: Subsystem::NAMESPACES_MAX,
            optional_nvm_commands: OptionalNvmCommands::COMPARE
                | OptionalNvmCommands::DATASET_MANAGEMENT
                | OptionalNvmCommands::WRITE_ZEROES
                | OptionalNvmCommands::RESERVATIONS
                | OptionalNvmCommands::VERIFY
                | OptionalNvmCommands::COPY,
            fused_operations: FusedOperations::COMPARE_AND_WRITE,
            // A namespace with a volatile cache may be added at any time.
            volatile_write_cache: VolatileCache::PRESENT | VolatileCache::FLUSH_ALL_NOT_SUPPORTED,
            copy_descriptor_formats: 1,
            maximum_allowed_namespaces: Subsystem::NAMESPACES_MAX,
            io_command_capsule_size: (Sqe::SIZE as u32 + view.config.in_capsule_bytes) / 16,
            io_response_capsule_size: RESPONSE_CAPSULE_16,
            fabrics_attributes: match model {
                ControllerModel::Dynamic => FabricsAttributes::NONE,
                ControllerModel::Static => FabricsAttributes::STATIC_CONTROLLERS,
            },
            maximum_sgl_descriptors: 1,
            optional_fabrics_commands: OptionalFabricsCommands::DISCONNECT,
            ..self.identify_common(view)
        }
    }
}

fn active_list(namespaces: &Namespaces, after: u32) -> Result<[u8; IDENTIFY_SIZE], Status> {
    if after >= NSID_ALL - 1 {
        return refuse(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    let active = namespaces.iter().map(|attached| attached.export.nsid);
    Ok(encode_namespace_list(active, after))
}

fn descriptors(attached: &Attached) -> [u8; IDENTIFY_SIZE] {
    let namespace = &attached.export;
    NamespaceDescriptors::nvm(namespace.uuid, namespace.nguid, namespace.eui64).encode()
}

/// A 0's based number of blocks in 16 bits.
fn zero_based(blocks: u32) -> u16 {
    u16::try_from(blocks.max(1) - 1).unwrap_or(u16::MAX)
}

fn attributes(attached: &Attached) -> NamespaceAttributes {
    if attached.is_read_only() {
        NamespaceAttributes::WRITE_PROTECTED
    } else {
        NamespaceAttributes::NONE
    }
}

/// RESCAP: what hosts can reserve.
fn reservation_capabilities(attached: &Attached) -> u8 {
    match attached.export.reservations {
        Some(_) => reserve::CAPABILITIES,
        None => 0,
    }
}

fn identify_namespace(attached: &Attached) -> IdentifyNamespace {
    let geometry: Geometry = attached.geometry.get();
    let namespace = &attached.export;
    let shift = geometry.block_size.shift();
    let optimal = zero_based(geometry.transfer_blocks_optimal);
    let deallocate = zero_based(geometry.deallocate_blocks);
    let mut data = IdentifyNamespace {
        size: geometry.blocks,
        capacity: geometry.blocks,
        utilization: geometry.blocks,
        features: NamespaceFeatures::ATOMIC_UNITS
            | NamespaceFeatures::IDENTIFIERS_NOT_REUSED
            | NamespaceFeatures::OPTIMAL_PERFORMANCE,
        multipath: MultipathCapabilities::SHARED,
        reservation_capabilities: reservation_capabilities(attached),
        deallocate_features: DeallocateFeatures(deallocate_features(geometry.deallocated_read)),
        atomic_write_unit: zero_based(geometry.atomic_blocks),
        atomic_write_unit_power_fail: zero_based(geometry.atomic_blocks_power_fail),
        atomic_compare_and_write_unit: zero_based(geometry.compare_write_blocks),
        nvm_capacity: u128::from(geometry.length_bytes()),
        preferred_write_granularity: optimal,
        preferred_write_alignment: optimal,
        preferred_deallocate_granularity: deallocate,
        preferred_deallocate_alignment: deallocate,
        optimal_write_size: optimal,
        copy_source_range_maximum: (COPY_RANGE_BYTES_MAX >> shift) as u16,
        copy_maximum: COPY_BYTES_MAX >> shift,
        copy_source_ranges: (COPY_RANGES_MAX - 1) as u8,
        ana_group_id: namespace.ana_group,
        attributes: attributes(attached),
        nguid: namespace.nguid,
        eui64: namespace.eui64,
        ..IdentifyNamespace::default()
    };
    data.lba_formats[0] = LbaFormat::new(shift as u8);
    data
}

fn independent_namespace(attached: &Attached) -> IndependentNamespace {
    IndependentNamespace {
        features: NamespaceFeatures::IDENTIFIERS_NOT_REUSED.0,
        multipath: MultipathCapabilities::SHARED,
        reservation_capabilities: reservation_capabilities(attached),
        ana_group_id: attached.export.ana_group,
        attributes: attributes(attached),
        status: NamespaceStatus::READY,
        ..IndependentNamespace::default()
    }
}
