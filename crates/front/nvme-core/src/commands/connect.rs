//! What a Connect must say (NVMe Base 2.0c, section 6.3). Whether there is a controller for it is the registry's affair.

use weir_nvme::command::{Connect, ConnectAttributes, ConnectData, ConnectParameter};
use weir_nvme::{HostId, Nqn, Status};

use crate::config::CoreConfig;
use crate::snapshot::{ControllerModel, Snapshot, Subsystem};

/// Entries of an admin queue at least (NVMe Base 2.0c, section 3.3.3.1: 0 is no queue).
const SQSIZE_MIN: u16 = 1;

/// Why a Connect is refused: status and dword 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectRefusal {
    /// The status.
    pub status: Status,
    /// Dword 0 of the answer.
    pub result: u32,
    /// In words, for the log.
    pub reason: &'static str,
}

impl ConnectRefusal {
    /// A parameter of it is wrong.
    pub fn parameter(parameter: ConnectParameter, reason: &'static str) -> Self {
        ConnectRefusal {
            status: Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry(),
            result: parameter.to_result(),
            reason,
        }
    }

    /// It is refused with this status.
    pub fn status(status: Status, reason: &'static str) -> Self {
        ConnectRefusal {
            status,
            result: 0,
            reason,
        }
    }
}

/// Checks the fields of the command itself.
pub fn check_connect_fields(connect: &Connect, config: &CoreConfig) -> Result<(), ConnectRefusal> {
    if connect.record_format != Connect::RECORD_FORMAT {
        return Err(ConnectRefusal {
            status: Status::CONNECT_INCOMPATIBLE_FORMAT.with_do_not_retry(),
            result: ConnectParameter::RECORD_FORMAT.to_result(),
            reason: "the record format is not 0",
        });
    }
    if connect.sqsize < SQSIZE_MIN || connect.sqsize > config.queue_depth - 1 {
        return Err(ConnectRefusal::parameter(
            ConnectParameter::QUEUE_SIZE,
            "the queue size is 0 or above the maximum",
        ));
    }
    if connect.qid > config.io_queues_max {
        return Err(ConnectRefusal::parameter(
            ConnectParameter::QUEUE_ID,
            "the queue identifier is above the maximum",
        ));
    }
    if u128::from(connect.keep_alive_timeout_ms) > config.keep_alive_max.as_millis() {
        return Err(ConnectRefusal::parameter(
            ConnectParameter::KEEP_ALIVE_TIMEOUT,
            "the keep-alive timeout is above the maximum",
        ));
    }
    Ok(())
}

/// Whether the host wants SQ flow control off.
pub fn flow_control_off(connect: &Connect) -> bool {
    connect
        .attributes
        .contains(ConnectAttributes::DISABLE_SQ_FLOW_CONTROL)
}

/// What the data of a Connect says, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectIdentity {
    /// The host.
    pub host_nqn: Nqn,
    /// The host's identifier.
    pub host_id: HostId,
    /// The subsystem.
    pub subsystem_nqn: Nqn,
    /// The controller; of an admin queue, the one that it asks for.
    pub controller_id: u16,
}

/// Checks the data against what is served. A discovery controller has no subsystem.
pub fn check_connect_data<'a>(
    connect: &Connect,
    data: &ConnectData,
    snapshot: &'a Snapshot,
    discovery_only: bool,
) -> Result<(ConnectIdentity, Option<&'a Subsystem>), ConnectRefusal> {
    let host_nqn = data.host().map_err(|_| {
        ConnectRefusal::parameter(ConnectParameter::HOST_NQN, "the host NQN is no NQN")
    })?;
    let no_subsystem = |reason| ConnectRefusal::parameter(ConnectParameter::SUBSYSTEM_NQN, reason);
    let subsystem_nqn = data
        .subsystem()
        .map_err(|_| no_subsystem("the subsystem NQN is no NQN"))?;
    let identity = ConnectIdentity {
        host_nqn,
        host_id: data.host_id,
        subsystem_nqn,
        controller_id: data.controller_id,
    };
    let subsystem = if identity.subsystem_nqn.is_discovery() {
        None
    } else if discovery_only {
        return Err(no_subsystem("only discovery is served on this port"));
    } else {
        let subsystem = snapshot.subsystem(identity.subsystem_nqn.as_str());
        Some(subsystem.ok_or_else(|| no_subsystem("there is no such subsystem"))?)
    };
    if let Some(subsystem) = subsystem
        && !subsystem.allowed.allows(&identity.host_nqn)
    {
        return Err(ConnectRefusal {
            status: Status::CONNECT_INVALID_HOST.with_do_not_retry(),
            result: 0,
            reason: "the host is not allowed to connect to the subsystem",
        });
    }
    if connect.qid == 0 {
        check_controller_id(&identity, subsystem)?;
    } else if subsystem.is_none() {
        return Err(ConnectRefusal::parameter(
            ConnectParameter::QUEUE_ID,
            "a discovery controller has no I/O queues",
        ));
    }
    Ok((identity, subsystem))
}

/// Which controller an admin queue may ask for depends on the subsystem's model (NVMe Base 2.0c, section 6.3).
fn check_controller_id(
    identity: &ConnectIdentity,
    subsystem: Option<&Subsystem>,
) -> Result<(), ConnectRefusal> {
    let model = subsystem.map_or(ControllerModel::Dynamic, |subsystem| {
        subsystem.controller_model
    });
    let holds = match (model, identity.controller_id) {
        (ControllerModel::Dynamic, id) => id == ConnectData::ANY_CONTROLLER,
        (ControllerModel::Static, ConnectData::ANY_STATIC_CONTROLLER) => true,
        (ControllerModel::Static, id) => {
            subsystem.is_some_and(|subsystem| subsystem.controller_ids.contains(&id))
        }
    };
    if holds {
        return Ok(());
    }
    Err(ConnectRefusal::parameter(
        ConnectParameter::CONTROLLER_ID,
        "the controller identifier does not fit the subsystem's controller model",
    ))
}
