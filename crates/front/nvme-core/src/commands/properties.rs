//! Controller properties over Fabrics (NVMe Base 2.0c, sections 3.1.3, 6.5 and 6.6), and enabling, resetting and shutting
//! down a controller by them.

use weir_nvme::Status;
use weir_nvme::command::{PropertyGet, PropertySet, PropertySize};
use weir_nvme::property::{
    Capabilities, Configuration, ControllerStatus, Property, ReadyTimeouts, ShutdownNotification,
    ShutdownStatus, Version,
};

use super::controller::{AdminOutcome, Controller};
use super::queue_pair::SlotIndex;

/// The version of the specification that controllers claim.
pub(super) const VERSION: Version = Version::V2_0;
/// CAP.TO and CRTO.CRWMT: for how long enabling or a reset may take, in units of 500 ms.
const READY_TIMEOUT_500MS: u8 = 30;

/// CAP of controllers whose queues have up to `queue_entries` entries.
pub(super) fn capabilities(queue_entries: u16) -> Capabilities {
    Capabilities::default()
        .with_maximum_queue_entries(u32::from(queue_entries))
        .with_contiguous_queues_required(true)
        .with_timeout_500ms(READY_TIMEOUT_500MS)
        .with_command_sets(Capabilities::COMMAND_SETS_NVM | Capabilities::COMMAND_SETS_SELECTABLE)
        .with_ready_modes(Capabilities::READY_WITH_MEDIA)
}

fn refuse() -> AdminOutcome {
    AdminOutcome::Status(Status::INVALID_FIELD_IN_COMMAND.with_do_not_retry())
}

/// Whether a host may enable a controller with this configuration.
fn is_valid(configuration: Configuration) -> bool {
    let command_sets = [
        Configuration::COMMAND_SET_NVM,
        Configuration::COMMAND_SET_ALL,
    ];
    command_sets.contains(&configuration.command_set())
        && configuration.memory_page_size() == 0
        && configuration.arbitration_mechanism() == 0
        && configuration.submission_entry_size() == Configuration::SUBMISSION_ENTRY_SIZE
        && configuration.completion_entry_size() == Configuration::COMPLETION_ENTRY_SIZE
        && !configuration.ready_independent_of_media()
}

impl Controller {
    pub(super) fn property_get(&self, get: PropertyGet) -> AdminOutcome {
        let property = Property::from_value(get.offset);
        let value = match property {
            Property::Capabilities => capabilities(self.queue_entries).0,
            Property::Version => u64::from(VERSION.0),
            Property::Configuration => u64::from(self.configuration.0),
            Property::Status => u64::from(self.status.0),
            Property::ReadyTimeouts => {
                let timeouts = ReadyTimeouts {
                    with_media_500ms: u16::from(READY_TIMEOUT_500MS),
                    independent_of_media_500ms: 0,
                };
                u64::from(timeouts.to_dword())
            }
            Property::SubsystemReset | Property::Other(_) => return refuse(),
        };
        if property.size() != Some(size_bytes(get.size)) {
            return refuse();
        }
        AdminOutcome::Result(value)
    }

    pub(super) fn property_set(&mut self, set: PropertySet) -> AdminOutcome {
        let writes_configuration = Property::from_value(set.offset) == Property::Configuration;
        if !writes_configuration || set.size != PropertySize::FourBytes {
            return refuse();
        }
        let before = self.configuration;
        self.configuration = Configuration(set.value as u32);
        let mut end_queues = false;
        if before.enabled() && !self.configuration.enabled() {
            end_queues = true;
        } else if !before.enabled() && self.configuration.enabled() {
            self.enable();
        }
        if self.configuration.shutdown() != ShutdownNotification::None
            && self.status.shutdown() == ShutdownStatus::Normal
        {
            self.status = self.status.with_shutdown(ShutdownStatus::Occurring);
            end_queues = true;
        }
        if end_queues {
            AdminOutcome::EndQueues
        } else {
            AdminOutcome::Status(Status::SUCCESS)
        }
    }

    fn enable(&mut self) {
        if self.status.ready() {
            // A reset is still under way: its end would clear what is set now.
            self.status = self.status.with_fatal(true);
        } else if is_valid(self.configuration) {
            self.status = ControllerStatus::default().with_ready(true);
        } else {
            self.status = self.status.with_fatal(true);
        }
    }

    /// The I/O queues have ended, as a reset or a shutdown asked. The Asynchronous Event Requests that a reset aborts.
    pub fn queues_ended(&mut self) -> Vec<SlotIndex> {
        let shuts_down = self.configuration.shutdown() != ShutdownNotification::None;
        let disabled = !self.configuration.enabled();
        if disabled {
            self.status = ControllerStatus::default();
        }
        // One write may ask for both a reset and a shutdown (NVMe Base 2.0c, section 3.1.3.5, SHN).
        if shuts_down {
            self.status = self.status.with_shutdown(ShutdownStatus::Complete);
        }
        if !disabled {
            return Vec::new();
        }
        self.reset_features();
        self.events.reset()
    }

    /// Whether I/O queues may be made.
    pub fn accepts_queues(&self) -> bool {
        self.status.ready()
            && self.configuration.enabled()
            && !self.status.fatal()
            && self.status.shutdown() == ShutdownStatus::Normal
    }
}

fn size_bytes(size: PropertySize) -> usize {
    match size {
        PropertySize::FourBytes => 4,
        PropertySize::EightBytes => 8,
    }
}
