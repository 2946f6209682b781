//! What the canned responder's controllers say of themselves: just enough that any host goes on to I/O.

use weir_nvme::command::{
    AdminCommand, FabricsCommand, GetLogPage, Identify, PropertyGet, PropertySet, SetFeatures,
};
use weir_nvme::feature::{FeatureId, NumberOfQueues};
use weir_nvme::identify::{
    Cns, CommandSetCombination, CommandSetController, CommandSetNamespace, CommandSetVector,
    ControllerAttributes, ControllerType, IdentifyController, IdentifyNamespace, LbaFormat,
    LogPageAttributes, NamespaceDescriptors, SglSupport, encode_namespace_list,
};
use weir_nvme::nqn::Nqn;
use weir_nvme::property::{
    Capabilities, Configuration, ControllerStatus, Property, ShutdownNotification, ShutdownStatus,
    Version,
};
use weir_nvme::{Sqe, Status, ascii};

/// The name of the only subsystem; a Connect to any other is answered as well.
pub const SUBSYSTEM: &str = "nqn.2026-01.org.example:canned";
/// The only namespace.
pub const NSID: u32 = 1;
/// Bytes of a block.
pub const BLOCK_BYTES: u32 = 512;
/// Length of the namespace.
pub const NAMESPACE_BYTES: u64 = 1 << 40;
/// Every controller has this identifier: a host's I/O queues come to whom its admin queue came.
pub(super) const CONTROLLER_ID: u16 = 1;
/// The most data of one command, and of one PDU.
pub(super) const DATA_BYTES_MAX: u32 = 1 << 20;
/// MDTS: 2^8 pages of 4 KiB.
const MDTS: u8 = 8;
/// The most data inside the capsule of an I/O command; Connect's fit too.
pub(super) const IN_CAPSULE_BYTES_MAX: u32 = 16 << 10;
/// I/O queues of a controller at most.
const QUEUES_MAX: u32 = 1024;
/// Entries of a queue at most.
const ENTRIES_MAX: u16 = 1024;
/// Asynchronous Event Requests at once; none is ever answered.
const EVENT_REQUESTS_MAX: u8 = 8;
/// CAP.TO, in units of 500 ms.
const READY_TIMEOUT_500MS: u8 = 10;

const _: () = assert!(4096 << MDTS == DATA_BYTES_MAX);

/// What becomes of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// Success with data.
    Data(Vec<u8>),
    /// A status alone.
    Status(Status),
    /// Success with a result.
    Result(u64),
    /// Nothing, for ever: an event that does not come.
    Never,
}

fn refuse(status: Status) -> Answer {
    Answer::Status(status.with_do_not_retry())
}

/// What a controller remembers.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Controller {
    configuration: Configuration,
}

impl Controller {
    /// Carries out a command of the admin queue.
    pub(super) fn command(&mut self, sqe: &Sqe) -> Answer {
        if sqe.is_fabrics() {
            return match FabricsCommand::parse(sqe) {
                Ok(FabricsCommand::PropertyGet(get)) => self.property_get(get),
                Ok(FabricsCommand::PropertySet(set)) => self.property_set(set),
                Ok(_) => refuse(Status::COMMAND_SEQUENCE_ERROR),
                Err(error) => refuse(error.status()),
            };
        }
        match AdminCommand::parse(sqe) {
            Ok(AdminCommand::Identify(identify)) => identify_data(&identify),
            Ok(AdminCommand::GetLogPage(page)) => log_page(&page),
            Ok(AdminCommand::SetFeatures(set)) => set_features(&set),
            Ok(AdminCommand::GetFeatures(get)) if get.feature == FeatureId::NumberOfQueues => {
                Answer::Result(u64::from(queues(QUEUES_MAX).to_dword()))
            }
            Ok(AdminCommand::GetFeatures(_)) => refuse(Status::INVALID_FIELD_IN_COMMAND),
            // Completion dword 0 bit 0: the command was not aborted.
            Ok(AdminCommand::Abort(_)) => Answer::Result(1),
            Ok(AdminCommand::AsynchronousEventRequest) => Answer::Never,
            Ok(AdminCommand::KeepAlive) => Answer::Result(0),
            Err(error) => refuse(error.status()),
        }
    }

    fn property_get(&self, get: PropertyGet) -> Answer {
        Answer::Result(match Property::from_value(get.offset) {
            Property::Capabilities => {
                Capabilities::default()
                    .with_maximum_queue_entries(u32::from(ENTRIES_MAX))
                    .with_contiguous_queues_required(true)
                    .with_timeout_500ms(READY_TIMEOUT_500MS)
                    .with_command_sets(Capabilities::COMMAND_SETS_NVM)
                    .0
            }
            Property::Version => u64::from(Version::V1_4.0),
            Property::Configuration => u64::from(self.configuration.0),
            Property::Status => u64::from(self.status().0),
            _ => return refuse(Status::INVALID_FIELD_IN_COMMAND),
        })
    }

    fn property_set(&mut self, set: PropertySet) -> Answer {
        if Property::from_value(set.offset) != Property::Configuration {
            return refuse(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.configuration = Configuration(set.value as u32);
        Answer::Result(0)
    }

    /// CSTS: whatever was asked for is done at once.
    fn status(&self) -> ControllerStatus {
        let status = ControllerStatus::default().with_ready(self.configuration.enabled());
        match self.configuration.shutdown() {
            ShutdownNotification::None => status,
            _ => status.with_shutdown(ShutdownStatus::Complete),
        }
    }
}

fn queues(count: u32) -> NumberOfQueues {
    NumberOfQueues {
        submission: count,
        completion: count,
    }
}

fn set_features(set: &SetFeatures) -> Answer {
    match set.feature {
        FeatureId::NumberOfQueues => {
            let asked = NumberOfQueues::from_dword(set.cdw11);
            let granted = asked.submission.min(asked.completion).min(QUEUES_MAX);
            Answer::Result(u64::from(queues(granted).to_dword()))
        }
        // There is nothing here that they would change.
        FeatureId::AsynchronousEventConfiguration
        | FeatureId::KeepAliveTimer
        | FeatureId::HostIdentifier
        | FeatureId::HostBehaviorSupport => Answer::Result(0),
        _ => refuse(Status::INVALID_FIELD_IN_COMMAND),
    }
}

/// Every log is empty.
fn log_page(page: &GetLogPage) -> Answer {
    match usize::try_from(page.length()) {
        Ok(length) if length <= DATA_BYTES_MAX as usize => Answer::Data(vec![0; length]),
        _ => refuse(Status::INVALID_FIELD_IN_COMMAND),
    }
}

fn identify_data(identify: &Identify) -> Answer {
    let ours = identify.nsid == NSID;
    let data = match identify.cns {
        Cns::Controller => identify_controller().encode(),
        Cns::Namespace if ours => identify_namespace().encode(),
        Cns::NamespaceDescriptors if ours => {
            NamespaceDescriptors::nvm(identifier(), [0; 16], [0; 8]).encode()
        }
        Cns::CommandSetNamespace if ours => CommandSetNamespace::default().encode(),
        Cns::Namespace | Cns::NamespaceDescriptors | Cns::CommandSetNamespace => {
            return refuse(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        Cns::ActiveNamespaceList | Cns::CommandSetActiveNamespaceList => {
            encode_namespace_list([NSID], identify.nsid)
        }
        Cns::CommandSetController => CommandSetController::default().encode(),
        Cns::CommandSetVector => CommandSetVector::encode(&[CommandSetCombination::NVM]),
        _ => return refuse(Status::INVALID_FIELD_IN_COMMAND),
    };
    Answer::Data(data.to_vec())
}

/// The namespace's UUID.
fn identifier() -> [u8; 16] {
    *b"weir canned name"
}

fn identify_controller() -> IdentifyController {
    let name = Nqn::new(SUBSYSTEM).expect("the constant is a name");
    IdentifyController {
        serial_number: ascii("CANNED"),
        model_number: ascii("Weir canned responder"),
        firmware_revision: ascii(env!("CARGO_PKG_VERSION")),
        maximum_data_transfer_size: MDTS,
        controller_id: CONTROLLER_ID,
        version: Version::V1_4,
        attributes: ControllerAttributes::HOST_IDENTIFIER_128,
        controller_type: ControllerType::Io,
        asynchronous_event_request_limit: EVENT_REQUESTS_MAX - 1,
        log_page_attributes: LogPageAttributes::EXTENDED_DATA,
        keep_alive_granularity: 1,
        submission_entry_size: 0x66,
        completion_entry_size: 0x44,
        maximum_commands: ENTRIES_MAX,
        namespaces: NSID,
        sgl_support: SglSupport::SUPPORTED
            | SglSupport::OFFSET_ADDRESS
            | SglSupport::TRANSPORT_DATA_BLOCK,
        subsystem_nqn: name.to_field(),
        io_command_capsule_size: (Sqe::SIZE as u32 + IN_CAPSULE_BYTES_MAX) / 16,
        io_response_capsule_size: 1,
        maximum_sgl_descriptors: 1,
        ..IdentifyController::default()
    }
}

fn identify_namespace() -> IdentifyNamespace {
    let blocks = NAMESPACE_BYTES / u64::from(BLOCK_BYTES);
    let mut namespace = IdentifyNamespace {
        size: blocks,
        capacity: blocks,
        utilization: blocks,
        ..IdentifyNamespace::default()
    };
    namespace.lba_formats[0] = LbaFormat::new(BLOCK_BYTES.trailing_zeros() as u8);
    namespace
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_nvme::SglDescriptor;
    use weir_nvme::command::PropertySize;

    fn run(controller: &mut Controller, command: AdminCommand) -> Answer {
        controller.command(&command.sqe(1, SglDescriptor::NONE))
    }

    #[test]
    fn a_controller_is_enabled_and_shut_down() {
        let mut controller = Controller::default();
        let mut set = |configuration: Configuration| {
            let set = PropertySet {
                size: PropertySize::FourBytes,
                offset: Property::Configuration.value(),
                value: u64::from(configuration.0),
            };
            let sqe = FabricsCommand::PropertySet(set).sqe(1, SglDescriptor::NONE);
            assert_eq!(controller.command(&sqe), Answer::Result(0));
            controller.status()
        };
        assert!(!set(Configuration::default()).ready());
        let enabled = Configuration::default().with_enabled(true);
        assert!(set(enabled).ready());
        let ending = enabled.with_shutdown(ShutdownNotification::Normal);
        assert_eq!(set(ending).shutdown(), ShutdownStatus::Complete);
    }

    #[test]
    fn queues_are_granted_as_asked_up_to_the_bound() {
        for (asked, granted) in [(1, 1), (64, 64), (5000, QUEUES_MAX)] {
            let set = SetFeatures::new(FeatureId::NumberOfQueues, queues(asked).to_dword());
            let answer = run(&mut Controller::default(), AdminCommand::SetFeatures(set));
            assert_eq!(
                answer,
                Answer::Result(u64::from(queues(granted).to_dword()))
            );
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let mut controller = Controller::default();
        let absent = Identify::new(Cns::Namespace, 2);
        let answer = run(&mut controller, AdminCommand::Identify(absent));
        assert_eq!(answer, refuse(Status::INVALID_NAMESPACE_OR_FORMAT));
        let sqe = Sqe {
            opcode: 0x80,
            ..Sqe::default()
        };
        assert_eq!(
            controller.command(&sqe),
            refuse(Status::INVALID_COMMAND_OPCODE)
        );
        let event = run(&mut controller, AdminCommand::AsynchronousEventRequest);
        assert_eq!(event, Answer::Never);
    }
}
