//! Get and Set Features (NVMe Base 2.0c, sections 5.15 and 5.27). No feature can be saved.

use std::collections::BTreeMap;

use weir_memory::Views;
use weir_nvme::Status;
use weir_nvme::command::{FeatureSelect, GetFeatures, SetFeatures};
use weir_nvme::feature::{
    AsynchronousEventConfiguration, ErrorRecovery, FeatureCapabilities, FeatureId,
    HostBehaviorSupport, HostIdentifier, IoCommandSetProfile, NumberOfQueues, PowerManagement,
    ReservationNotificationMask, ReservationPersistence, TemperatureThreshold, ThresholdType,
};
use weir_nvme::identify::NSID_ALL;
use weir_reservation::Operation;

use super::controller::{AdminOutcome, AdminView, Controller, ControllerKind};
use crate::namespaces::{Attached, Namespaces};

/// TMPSEL that means every sensor, in Set Features.
const ALL_SENSORS: u8 = 0xf;
/// The threshold of over temperature until it is set: the highest.
const OVER_TEMPERATURE_DEFAULT: u16 = 0xffff;

/// Feature values of one controller.
#[derive(Debug, Clone)]
pub(super) struct Features {
    arbitration: u32,
    over_temperature: u16,
    under_temperature: u16,
    error_recovery: u32,
    write_atomicity: u32,
    pub(super) events: AsynchronousEventConfiguration,
    pub(super) host_behavior: HostBehaviorSupport,
    /// I/O queues that were granted; none until the host asked.
    pub(super) io_queues: Option<u16>,
    /// Notifications that the host does not want, by NSID.
    silenced: BTreeMap<u32, ReservationNotificationMask>,
}

/// Bytes of the masks of one namespace.
pub(super) const MASK_BYTES: usize = 4 * size_of::<(u32, ReservationNotificationMask)>();

impl Features {
    /// Notifications of a namespace that the host does not want.
    pub(super) fn silenced(&self, nsid: u32) -> ReservationNotificationMask {
        let mask = self.silenced.get(&nsid).copied();
        mask.unwrap_or(ReservationNotificationMask::NONE)
    }
}

impl Default for Features {
    fn default() -> Self {
        Features {
            arbitration: 0,
            over_temperature: OVER_TEMPERATURE_DEFAULT,
            under_temperature: 0,
            error_recovery: 0,
            write_atomicity: 0,
            events: AsynchronousEventConfiguration::NONE,
            host_behavior: HostBehaviorSupport::default(),
            io_queues: None,
            silenced: BTreeMap::new(),
        }
    }
}

fn refuse<T>(status: Status) -> Result<T, Status> {
    Err(status.with_do_not_retry())
}

/// Bytes that Set Features of this feature brings.
pub(super) fn data_length(feature: FeatureId) -> u32 {
    match feature {
        FeatureId::HostBehaviorSupport => HostBehaviorSupport::SIZE as u32,
        _ => 0,
    }
}

/// The events that a controller of this kind can be asked to tell of.
fn events_supported(kind: ControllerKind) -> AsynchronousEventConfiguration {
    match kind {
        ControllerKind::Io => AsynchronousEventConfiguration::NAMESPACE_ATTRIBUTE
            .with(AsynchronousEventConfiguration::ANA_CHANGE)
            .with(AsynchronousEventConfiguration::NORMAL_SUBSYSTEM_SHUTDOWN)
            .with(AsynchronousEventConfiguration::CRITICAL_WARNINGS),
        ControllerKind::Discovery => AsynchronousEventConfiguration::DISCOVERY_LOG_CHANGE,
    }
}

/// Whether a controller of this kind has the feature.
fn is_supported(kind: ControllerKind, feature: FeatureId) -> bool {
    let both = matches!(
        feature,
        FeatureId::AsynchronousEventConfiguration
            | FeatureId::KeepAliveTimer
            | FeatureId::HostIdentifier
    );
    let io = matches!(
        feature,
        FeatureId::Arbitration
            | FeatureId::PowerManagement
            | FeatureId::TemperatureThreshold
            | FeatureId::ErrorRecovery
            | FeatureId::VolatileWriteCache
            | FeatureId::NumberOfQueues
            | FeatureId::WriteAtomicityNormal
            | FeatureId::HostBehaviorSupport
            | FeatureId::IoCommandSetProfile
            | FeatureId::ReservationNotificationMask
            | FeatureId::ReservationPersistence
    );
    both || (io && kind == ControllerKind::Io)
}

/// Every feature of a controller of this kind.
pub(super) fn supported(kind: ControllerKind) -> impl Iterator<Item = FeatureId> {
    FeatureId::NAMED
        .iter()
        .copied()
        .filter(move |feature| is_supported(kind, *feature))
}

impl Controller {
    pub(super) fn get_features(
        &self,
        get: &GetFeatures,
        namespaces: &Namespaces,
        view: &AdminView<'_>,
    ) -> Result<AdminOutcome, Status> {
        if !is_supported(self.identity.kind, get.feature) {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        if get.select == FeatureSelect::SupportedCapabilities {
            return Ok(AdminOutcome::Result(u64::from(capabilities(get.feature).0)));
        }
        let fresh = Features::default();
        let current = get.select == FeatureSelect::Current;
        let features = if current { &self.features } else { &fresh };
        let value = match get.feature {
            FeatureId::Arbitration => features.arbitration,
            FeatureId::PowerManagement | FeatureId::IoCommandSetProfile => 0,
            FeatureId::TemperatureThreshold => temperature(features, get.cdw11)?,
            FeatureId::ErrorRecovery => features.error_recovery,
            FeatureId::VolatileWriteCache => 1,
            FeatureId::NumberOfQueues => {
                queues_dword(features.io_queues.unwrap_or(view.config.io_queues_max))
            }
            FeatureId::WriteAtomicityNormal => features.write_atomicity,
            FeatureId::AsynchronousEventConfiguration => features.events.0,
            FeatureId::KeepAliveTimer if current => self.keep_alive_ms,
            FeatureId::KeepAliveTimer => 0,
            FeatureId::HostBehaviorSupport => {
                return Ok(AdminOutcome::bytes(&features.host_behavior.encode()));
            }
            FeatureId::ReservationNotificationMask => {
                reservable(namespaces, get.nsid)?;
                features.silenced(get.nsid).0
            }
            FeatureId::ReservationPersistence => {
                let namespace = reservable(namespaces, get.nsid)?;
                let reservations = namespace.export.reservations.as_ref();
                let persists = reservations.is_some_and(|of| of.table().is_persistent());
                ReservationPersistence {
                    persist_through_power_loss: persists && current,
                }
                .to_dword()
            }
            FeatureId::HostIdentifier => {
                if !HostIdentifier::is_extended(get.cdw11) {
                    return refuse(Status::INVALID_FIELD_IN_COMMAND);
                }
                return Ok(AdminOutcome::bytes(&self.identity.host_id.0));
            }
            _ => return refuse(Status::INVALID_FIELD_IN_COMMAND),
        };
        Ok(AdminOutcome::Result(u64::from(value)))
    }

    pub(super) fn set_features(
        &mut self,
        set: &SetFeatures,
        data: &Views,
        namespaces: &Namespaces,
        view: &AdminView<'_>,
    ) -> Result<AdminOutcome, Status> {
        if !is_supported(self.identity.kind, set.feature) {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        if set.save {
            return refuse(Status::FEATURE_IDENTIFIER_NOT_SAVEABLE);
        }
        let of_namespace = set.nsid != 0 && set.nsid != NSID_ALL;
        if of_namespace && !is_of_namespaces(set.feature) {
            return refuse(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        match set.feature {
            FeatureId::Arbitration => self.features.arbitration = set.cdw11 & 0xffff_ff07,
            FeatureId::PowerManagement => {
                if PowerManagement::from_dword(set.cdw11).power_state != 0 {
                    return refuse(Status::INVALID_FIELD_IN_COMMAND);
                }
            }
            FeatureId::TemperatureThreshold => self.set_temperature(set.cdw11)?,
            FeatureId::ErrorRecovery => self.set_error_recovery(set.cdw11)?,
            FeatureId::VolatileWriteCache => {
                // The cache belongs to the medium; it cannot be turned off from here.
                if set.cdw11 & 1 == 0 {
                    return refuse(Status::FEATURE_NOT_CHANGEABLE);
                }
            }
            FeatureId::NumberOfQueues => return self.set_number_of_queues(set.cdw11, view),
            FeatureId::WriteAtomicityNormal => self.features.write_atomicity = set.cdw11 & 1,
            FeatureId::AsynchronousEventConfiguration => {
                let wanted = set.cdw11 & events_supported(self.identity.kind).0;
                self.features.events = AsynchronousEventConfiguration(wanted);
            }
            FeatureId::KeepAliveTimer => self.set_keep_alive(set.cdw11, view)?,
            FeatureId::HostBehaviorSupport => self.set_host_behavior(data)?,
            // Identify names one combination.
            FeatureId::IoCommandSetProfile => {
                if IoCommandSetProfile::from_dword(set.cdw11).combination_index != 0 {
                    return refuse(Status::IO_COMMAND_SET_COMBINATION_REJECTED);
                }
            }
            FeatureId::ReservationNotificationMask => {
                let mask = ReservationNotificationMask(set.cdw11 & NOTIFICATIONS.0);
                if set.nsid == NSID_ALL {
                    let all = namespaces.iter().filter(|one| is_reservable(one));
                    let all = all.map(|one| (one.export.nsid, mask));
                    self.features.silenced.extend(all);
                } else {
                    let namespace = reservable(namespaces, set.nsid)?;
                    self.features.silenced.insert(namespace.export.nsid, mask);
                }
            }
            FeatureId::ReservationPersistence => {
                let namespace = reservable(namespaces, set.nsid)?;
                let reservations = namespace.export.reservations.clone();
                let reservations = reservations.expect("it is reservable");
                let persists = ReservationPersistence::from_dword(set.cdw11);
                let operation = Operation::SetPersistence(persists.persist_through_power_loss);
                return Ok(AdminOutcome::Reserve(reservations, operation));
            }
            // The identifier came with Connect, and stays.
            FeatureId::HostIdentifier => return refuse(Status::COMMAND_SEQUENCE_ERROR),
            _ => return refuse(Status::INVALID_FIELD_IN_COMMAND),
        }
        Ok(AdminOutcome::Status(Status::SUCCESS))
    }

    fn set_temperature(&mut self, cdw11: u32) -> Result<(), Status> {
        let threshold = TemperatureThreshold::from_dword(cdw11);
        if threshold.sensor != 0 && threshold.sensor != ALL_SENSORS {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        match threshold.kind {
            ThresholdType::Over => self.features.over_temperature = threshold.kelvin,
            ThresholdType::Under => self.features.under_temperature = threshold.kelvin,
            ThresholdType::Reserved(_) => return refuse(Status::INVALID_FIELD_IN_COMMAND),
        }
        Ok(())
    }

    fn set_error_recovery(&mut self, cdw11: u32) -> Result<(), Status> {
        if ErrorRecovery::from_dword(cdw11).deallocated_block_error {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.features.error_recovery = cdw11 & 0xffff;
        Ok(())
    }

    fn set_number_of_queues(
        &mut self,
        cdw11: u32,
        view: &AdminView<'_>,
    ) -> Result<AdminOutcome, Status> {
        const RESERVED: u32 = 0x1_0000;
        let asked = NumberOfQueues::from_dword(cdw11);
        if asked.submission == RESERVED || asked.completion == RESERVED {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        if view.io_queues > 0 {
            return refuse(Status::COMMAND_SEQUENCE_ERROR);
        }
        // A queue pair has one of each.
        let granted = asked
            .submission
            .min(asked.completion)
            .min(u32::from(view.config.io_queues_max)) as u16;
        self.features.io_queues = Some(granted);
        Ok(AdminOutcome::Result(u64::from(queues_dword(granted))))
    }

    fn set_keep_alive(&mut self, timeout_ms: u32, view: &AdminView<'_>) -> Result<(), Status> {
        if u128::from(timeout_ms) > view.config.keep_alive_max.as_millis() {
            return refuse(Status::KEEP_ALIVE_TIMEOUT_INVALID);
        }
        self.keep_alive_ms = super::controller::keep_alive_used(timeout_ms, view.config);
        Ok(())
    }

    fn set_host_behavior(&mut self, data: &Views) -> Result<(), Status> {
        let mut bytes = [0; HostBehaviorSupport::SIZE];
        weir_memory::copy_views(data, &mut bytes);
        let behavior = HostBehaviorSupport::decode(&bytes);
        if behavior.advanced_command_retry > 1 {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.features.host_behavior = behavior;
        Ok(())
    }
}

/// Notifications that a host can silence.
const NOTIFICATIONS: ReservationNotificationMask =
    ReservationNotificationMask::REGISTRATION_PREEMPTED
        .with(ReservationNotificationMask::RESERVATION_RELEASED)
        .with(ReservationNotificationMask::RESERVATION_PREEMPTED);

/// Whether each namespace has a value of its own.
fn is_of_namespaces(feature: FeatureId) -> bool {
    matches!(
        feature,
        FeatureId::ErrorRecovery
            | FeatureId::ReservationNotificationMask
            | FeatureId::ReservationPersistence
    )
}

fn is_reservable(namespace: &Attached) -> bool {
    namespace.export.reservations.is_some()
}

/// The namespace of that number, which has reservations.
fn reservable(namespaces: &Namespaces, nsid: u32) -> Result<&Attached, Status> {
    match namespaces.get(nsid) {
        Some(namespace) if is_reservable(namespace) => Ok(namespace),
        Some(_) => refuse(Status::INVALID_FIELD_IN_COMMAND),
        None if nsid == NSID_ALL => refuse(Status::INVALID_FIELD_IN_COMMAND),
        None => refuse(Status::INVALID_NAMESPACE_OR_FORMAT),
    }
}

fn capabilities(feature: FeatureId) -> FeatureCapabilities {
    match feature {
        FeatureId::PowerManagement | FeatureId::VolatileWriteCache | FeatureId::HostIdentifier => {
            FeatureCapabilities::NONE
        }
        feature if is_of_namespaces(feature) => {
            FeatureCapabilities::CHANGEABLE.with(FeatureCapabilities::NAMESPACE_SPECIFIC)
        }
        _ => FeatureCapabilities::CHANGEABLE,
    }
}

fn temperature(features: &Features, cdw11: u32) -> Result<u32, Status> {
    let threshold = TemperatureThreshold::from_dword(cdw11);
    if threshold.sensor != 0 {
        return refuse(Status::INVALID_FIELD_IN_COMMAND);
    }
    match threshold.kind {
        ThresholdType::Over => Ok(u32::from(features.over_temperature)),
        ThresholdType::Under => Ok(u32::from(features.under_temperature)),
        ThresholdType::Reserved(_) => refuse(Status::INVALID_FIELD_IN_COMMAND),
    }
}

fn queues_dword(queues: u16) -> u32 {
    NumberOfQueues {
        submission: u32::from(queues),
        completion: u32::from(queues),
    }
    .to_dword()
}
