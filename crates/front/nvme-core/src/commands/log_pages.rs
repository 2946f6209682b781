//! Get Log Page (NVMe Base 2.0c, section 5.16).

use std::collections::BTreeMap;
use std::sync::PoisonError;

use weir_memory::{Segment, View, Views};
use weir_nvme::command::GetLogPage;
use weir_nvme::event::EventType;
use weir_nvme::identify::{COMMAND_SET_NVM, NSID_ALL};
use weir_nvme::log::{
    ANA_DESCRIPTOR_SIZE, ANA_HEADER_SIZE, AnaGroup, CommandEffects, CommandsSupportedAndEffects,
    ErrorInformation, FirmwareSlot, LogId, SmartHealth, SupportedLogPages, encode_ana_log,
    encode_changed_namespaces, read_at,
};
use weir_nvme::opcode::{AdminOpcode, NvmOpcode};
use weir_nvme::{Status, ascii};

use super::controller::{AdminOutcome, AdminView, Controller, ControllerKind};
use super::error_log::ErrorLog;
use super::features;
use super::identify::ANA_GROUPS_MAX;
use super::queue_pair::Env;
use crate::namespaces::Namespaces;
use crate::snapshot::{AnaState, Subsystem};

/// Pages of an I/O controller.
const IO_PAGES: &[LogId] = &[
    LogId::SupportedLogPages,
    LogId::ErrorInformation,
    LogId::SmartHealth,
    LogId::FirmwareSlot,
    LogId::ChangedNamespaceList,
    LogId::CommandsSupportedAndEffects,
    LogId::AsymmetricNamespaceAccess,
    LogId::FeatureIdentifiersSupportedAndEffects,
    LogId::ReservationNotification,
];
/// Pages of a discovery controller.
const DISCOVERY_PAGES: &[LogId] = &[
    LogId::SupportedLogPages,
    LogId::ErrorInformation,
    LogId::Discovery,
];
/// Return Groups Only, of the ANA log's LSP.
const RETURN_GROUPS_ONLY: u8 = 1;

/// Bytes of the ANA log with as many groups and namespaces as there can be.
const ANA_PAGE_BYTES_MAX: usize = ANA_HEADER_SIZE
    + ANA_GROUPS_MAX as usize * ANA_DESCRIPTOR_SIZE
    + Subsystem::NAMESPACES_MAX as usize * size_of::<u32>();

fn refuse<T>(status: Status) -> Result<T, Status> {
    Err(status.with_do_not_retry())
}

impl Controller {
    pub(super) fn get_log_page(
        &mut self,
        get: &GetLogPage,
        buffer: u32,
        env: &Env<'_>,
        view: &AdminView<'_>,
    ) -> Result<AdminOutcome, Status> {
        let pages = match self.identity.kind {
            ControllerKind::Io => IO_PAGES,
            ControllerKind::Discovery => DISCOVERY_PAGES,
        };
        if !pages.contains(&get.log_id) {
            return refuse(Status::INVALID_LOG_PAGE);
        }
        let length = get.length();
        if get.offset_is_index || !get.offset.is_multiple_of(4) {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        if length > u64::from(env.transfer_bytes_max) {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        if length > u64::from(buffer) {
            return refuse(Status::DATA_SGL_LENGTH_INVALID);
        }
        let (shared, own);
        let page = if get.log_id == LogId::Discovery {
            shared = self.discovery_log(view);
            shared.page()
        } else {
            own = self.log_page(get, env.namespaces, view)?;
            &own[..]
        };
        // What lies behind the page's end reads as zeroes, and takes no memory however much is asked for.
        let filled = (length as usize).min(page.len());
        let mut front = Segment::heap(filled);
        if read_at(page, get.offset, &mut front).is_none() {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        let mut data = Views::from_iter([front.freeze()]);
        data.extend(View::zeroes(length as usize - filled));
        if !get.retain_asynchronous_event {
            self.log_was_read(get.log_id);
        }
        Ok(AdminOutcome::Data(data, 0))
    }

    fn log_was_read(&mut self, log: LogId) {
        if log == LogId::ChangedNamespaceList {
            self.events.clear_changed_namespaces();
        }
        self.events.log_read(log);
        if log == LogId::ReservationNotification && self.notifications.read() {
            self.events.raise(EventType::ReservationLogAvailable);
        }
    }

    fn log_page(
        &self,
        get: &GetLogPage,
        namespaces: &Namespaces,
        view: &AdminView<'_>,
    ) -> Result<Vec<u8>, Status> {
        Ok(match get.log_id {
            LogId::SupportedLogPages => {
                let pages = match self.identity.kind {
                    ControllerKind::Io => IO_PAGES,
                    ControllerKind::Discovery => DISCOVERY_PAGES,
                };
                SupportedLogPages::of(pages).encode().to_vec()
            }
            LogId::ErrorInformation => error_information(view),
            LogId::SmartHealth => {
                // One for the whole controller: LPA says that there is none for a single namespace.
                if get.nsid != 0 && get.nsid != NSID_ALL {
                    return refuse(Status::INVALID_FIELD_IN_COMMAND);
                }
                smart_health(view).encode().to_vec()
            }
            LogId::FirmwareSlot => self.firmware_slot(view).encode().to_vec(),
            LogId::ChangedNamespaceList => {
                encode_changed_namespaces(&self.events.changed_namespaces()).to_vec()
            }
            LogId::CommandsSupportedAndEffects => {
                commands_supported(get.command_set).encode().to_vec()
            }
            LogId::AsymmetricNamespaceAccess => {
                let groups_only = get.log_specific & RETURN_GROUPS_ONLY != 0;
                let groups = ana_groups(namespaces);
                let mut page = encode_ana_log(self.ana_changes, &groups, groups_only);
                // Hosts read as much as Identify says that there can be, some of them in pieces.
                page.resize(page.len().max(ANA_PAGE_BYTES_MAX), 0);
                page
            }
            LogId::FeatureIdentifiersSupportedAndEffects => self.features_supported(),
            LogId::ReservationNotification => self.notifications.page().encode().to_vec(),
            _ => return refuse(Status::INVALID_LOG_PAGE),
        })
    }

    fn firmware_slot(&self, view: &AdminView<'_>) -> FirmwareSlot {
        let subsystem = view
            .snapshot
            .subsystem(self.identity.subsystem_nqn.as_str());
        let mut slot = FirmwareSlot {
            active: 1,
            ..FirmwareSlot::default()
        };
        slot.revisions[0] = ascii(subsystem.map_or("", |subsystem| &subsystem.firmware));
        slot
    }

    /// Feature Identifiers Supported and Effects (section 5.16.1.18): a dword for each feature.
    fn features_supported(&self) -> Vec<u8> {
        const SUPPORTED: u32 = 1 << 0;
        const CONTROLLER_CAPABILITY_CHANGE: u32 = 1 << 4;
        let mut page = vec![0; 256 * 4];
        for feature in features::supported(self.identity.kind) {
            let at = usize::from(feature.value()) * 4;
            let effects = SUPPORTED | CONTROLLER_CAPABILITY_CHANGE;
            page[at..at + 4].copy_from_slice(&effects.to_le_bytes());
        }
        page
    }
}

fn error_information(view: &AdminView<'_>) -> Vec<u8> {
    let log = view.errors.lock().unwrap_or_else(PoisonError::into_inner);
    let mut page = Vec::with_capacity(ErrorLog::ENTRIES * ErrorInformation::SIZE);
    for (count, failure) in log.iter() {
        let entry = ErrorInformation {
            error_count: *count,
            sqid: failure.qid,
            cid: failure.cid,
            status_field: failure.status.to_completion(false),
            parameter_error_location: failure.parameter,
            lba: failure.lba,
            nsid: failure.nsid,
            vendor_log: 0,
            transport_type: view.config.transport,
            command_specific: 0,
            transport_specific: 0,
        };
        page.extend(entry.encode());
    }
    page.resize(ErrorLog::ENTRIES * ErrorInformation::SIZE, 0);
    page
}

/// What is counted, and zero (which means not reported) for what a software target has not: temperature, wear.
fn smart_health(view: &AdminView<'_>) -> SmartHealth {
    let totals = (view.totals)();
    let errors = view.errors.lock().unwrap_or_else(PoisonError::into_inner);
    SmartHealth {
        available_spare: 100,
        data_units_read: SmartHealth::data_units(u128::from(totals.bytes_read)),
        data_units_written: SmartHealth::data_units(u128::from(totals.bytes_written)),
        host_reads: u128::from(totals.reads),
        host_writes: u128::from(totals.writes),
        power_cycles: 1,
        power_on_hours: u128::from(view.up.as_secs() / 3600),
        media_errors: u128::from(totals.media_errors),
        error_log_entries: u128::from(errors.count()),
        ..SmartHealth::default()
    }
}

/// Which commands there are, and what they do: of I/O commands, those of `command_set`.
fn commands_supported(command_set: u8) -> CommandsSupportedAndEffects {
    let mut page = CommandsSupportedAndEffects::default();
    let supported = CommandEffects::SUPPORTED;
    for opcode in [
        AdminOpcode::GetLogPage,
        AdminOpcode::Identify,
        AdminOpcode::Abort,
        AdminOpcode::SetFeatures,
        AdminOpcode::GetFeatures,
        AdminOpcode::AsynchronousEventRequest,
        AdminOpcode::KeepAlive,
        AdminOpcode::Fabrics,
    ] {
        page.set_admin(opcode, supported);
    }
    if command_set != COMMAND_SET_NVM {
        return page;
    }
    for opcode in [
        NvmOpcode::Flush,
        NvmOpcode::Read,
        NvmOpcode::Compare,
        NvmOpcode::Verify,
        NvmOpcode::ReservationRegister,
        NvmOpcode::ReservationReport,
        NvmOpcode::ReservationAcquire,
        NvmOpcode::ReservationRelease,
        NvmOpcode::Fabrics,
    ] {
        page.set_io(opcode, supported);
    }
    for opcode in [
        NvmOpcode::Write,
        NvmOpcode::WriteZeroes,
        NvmOpcode::DatasetManagement,
        NvmOpcode::Copy,
    ] {
        page.set_io(opcode, supported | CommandEffects::CHANGES_BLOCKS);
    }
    page
}

/// The groups of the namespaces that the host sees, rising.
fn ana_groups(namespaces: &Namespaces) -> Vec<AnaGroup> {
    let mut groups: BTreeMap<u32, AnaGroup> = BTreeMap::new();
    for attached in namespaces.iter() {
        let namespace = &attached.export;
        let group = groups
            .entry(namespace.ana_group)
            .or_insert_with(|| AnaGroup {
                id: namespace.ana_group,
                change_count: 0,
                state: wire_state(namespace.ana_state),
                namespaces: Vec::new(),
            });
        group.namespaces.push(namespace.nsid);
    }
    groups.into_values().collect()
}

fn wire_state(state: AnaState) -> weir_nvme::log::AnaState {
    match state {
        AnaState::Optimized => weir_nvme::log::AnaState::Optimized,
        AnaState::NonOptimized => weir_nvme::log::AnaState::NonOptimized,
        AnaState::Inaccessible => weir_nvme::log::AnaState::Inaccessible,
        AnaState::PersistentLoss => weir_nvme::log::AnaState::PersistentLoss,
        AnaState::Change => weir_nvme::log::AnaState::Change,
    }
}
