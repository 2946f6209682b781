//! Who this machine is to the targets whose namespaces it serves on.
//!
//! A target may allow hosts by name, so the name must be the same after a restart: it is that of
//! nvme-cli and the kernel where there is one, else one made of the machine's identifier, and only
//! where there is none either, one made for this run.

use std::io;
use std::path::Path;

use uuid::Uuid;
use weir_iscsi_host::initiator_name;
use weir_nvme_host::HostIdentity;
use weir_nvme_host::options::IdentityError;
use weir_reactor::System;

/// The host's NQN, as Linux tools keep it.
const NQN_FILE: &str = "/etc/nvme/hostnqn";
/// The host's identifier, as Linux tools keep it.
const ID_FILE: &str = "/etc/nvme/hostid";
/// The machine's name as an iSCSI initiator, as open-iscsi keeps it.
const INITIATOR_FILE: &str = "/etc/iscsi/initiatorname.iscsi";
/// The machine's identifier (machine-id(5)), which is not to be shown as it is.
const MACHINE_FILE: &str = "/etc/machine-id";
/// What the kernel calls this machine.
const HOST_NAME_FILE: &str = "/proc/sys/kernel/hostname";
/// Makes of a machine's identifier the one that Weir shows: a UUID of this name space (RFC 9562,
/// 5.5).
const NAME_SPACE: Uuid = Uuid::from_u128(0x7c4f_3f0e_53a1_4d0a_9e55_6f0a_2b1c_8d37);

/// Why it is not known who this machine is.
#[derive(Debug, thiserror::Error)]
pub(super) enum MachineError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        path: &'static str,
        source: io::Error,
    },
    /// A file holds what it should not.
    #[error("{NQN_FILE} or {ID_FILE} is wrong: {0}; mend it, or remove both")]
    Identity(#[from] IdentityError),
    /// The initiator's name is none.
    #[error("{INITIATOR_FILE} is wrong: {0}; mend it, or remove it")]
    Initiator(#[from] weir_iscsi_host::IdentityError),
}

/// Who this machine is.
pub(super) fn of_this_machine(system: &dyn System) -> Result<HostIdentity, MachineError> {
    let (nqn, id) = (read(NQN_FILE)?, read(ID_FILE)?);
    let fallback = fallback(system)?;
    Ok(HostIdentity::from_texts(
        nqn.as_deref(),
        id.as_deref(),
        fallback,
    )?)
}

/// This machine's name as an iSCSI initiator.
pub(super) fn initiator(system: &dyn System) -> Result<weir_iscsi::Name, MachineError> {
    let file = match read(INITIATOR_FILE) {
        // Open-iscsi keeps it from all but root.
        Err(MachineError::Read { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied =>
        {
            tracing::info!(
                "{INITIATOR_FILE} is not for this user: to iSCSI targets this machine has a name of its own"
            );
            None
        }
        read => read?,
    };
    Ok(initiator_name(file.as_deref(), fallback(system)?)?)
}

/// Bytes of which a name is made where the machine has none.
fn fallback(system: &dyn System) -> Result<[u8; 16], MachineError> {
    if let Some(machine) = read(MACHINE_FILE)? {
        return Ok(of_machine(&machine));
    }
    let mut random = [0; 16];
    system.random_bytes(&mut random);
    Ok(random)
}

/// Who this gateway is to images that it writes to: the same after each start, and another one than a gateway beside it on this
/// machine, which keeps its state elsewhere.
pub(super) fn of_this_gateway(
    system: &dyn System,
    state: &Path,
) -> Result<weir_rbd::Identity, MachineError> {
    let name = read(HOST_NAME_FILE)?.unwrap_or_default();
    let name = name.trim().to_owned();
    let Some(machine) = read(MACHINE_FILE)? else {
        return Ok(weir_rbd::Identity::random(system, &name));
    };
    // Two gateways may name theirs alike, from where each was started.
    let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let gateway = format!("{} {}", machine.trim(), state.display());
    let id = Uuid::new_v5(&NAME_SPACE, gateway.as_bytes());
    Ok(weir_rbd::Identity {
        id: id.to_string(),
        name,
    })
}

/// Bytes that are the same for the same machine, and do not tell its identifier.
fn of_machine(machine: &str) -> [u8; 16] {
    Uuid::new_v5(&NAME_SPACE, machine.trim().as_bytes()).into_bytes()
}

fn read(path: &'static str) -> Result<Option<String>, MachineError> {
    match std::fs::read_to_string(Path::new(path)) {
        Ok(text) => Ok(Some(text).filter(|text| !text.trim().is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(MachineError::Read { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_the_same_host_each_time_and_another_is_another() {
        let machine = "0123456789abcdef0123456789abcdef\n";
        assert_eq!(of_machine(machine), of_machine(machine.trim()));
        assert_ne!(
            of_machine(machine),
            of_machine("fedcba9876543210fedcba9876543210")
        );
        assert!(!machine.contains(&Uuid::from_bytes(of_machine(machine)).simple().to_string()));
    }
}
