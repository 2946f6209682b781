//! Identity of the command line towards NVMe and iSCSI targets and Ceph clusters.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use weir_iscsi_host::{IscsiHost, initiator_name};
use weir_nvme_host::{HostIdentity, NvmeHost};
use weir_rbd::{Identity, Libraries, RbdHost};
use weir_reactor::System;

/// Where nvme-cli keeps the name and identifier of this machine as an NVMe host.
const HOST_NQN_FILE: &str = "/etc/nvme/hostnqn";
const HOST_ID_FILE: &str = "/etc/nvme/hostid";
/// Where open-iscsi keeps the name of this machine as an initiator.
const INITIATOR_FILE: &str = "/etc/iscsi/initiatorname.iscsi";

/// This run of the program as a user of Ceph. It is another one each time: two tools beside each other are two writers.
pub(crate) fn rbd_host(system: &dyn System) -> Arc<RbdHost> {
    let name = format!("weir, process {}", std::process::id());
    RbdHost::new(Identity::random(system, &name), Libraries::default())
}

/// This machine as an NVMe host: as nvme-cli and the kernel name it where that was set up; what is missing is made for this run. A
/// URL's `hostnqn=` and `hostid=` say otherwise.
pub(crate) fn nvme_host(system: &dyn System, queues: u16) -> anyhow::Result<Arc<NvmeHost>> {
    let (nqn, id) = (configured(HOST_NQN_FILE)?, configured(HOST_ID_FILE)?);
    let mut random = [0; 16];
    system.random_bytes(&mut random);
    let identity = HostIdentity::from_texts(nqn.as_deref(), id.as_deref(), random)
        .with_context(|| format!("mend {HOST_NQN_FILE} or {HOST_ID_FILE}, or remove it"))?;
    Ok(NvmeHost::new(identity, queues))
}

/// This machine as an iSCSI initiator: as open-iscsi names it where that was set up and may be read; else a name is made for this run. A URL's
/// `initiator=` says otherwise.
pub(crate) fn iscsi_host(system: &dyn System, sessions: u16) -> anyhow::Result<Arc<IscsiHost>> {
    let file = match std::fs::read_to_string(INITIATOR_FILE) {
        // Open-iscsi keeps it from all but root.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => None,
        _ => configured(INITIATOR_FILE)?,
    };
    let mut random = [0; 16];
    system.random_bytes(&mut random);
    let name = initiator_name(file.as_deref(), random)
        .with_context(|| format!("mend {INITIATOR_FILE}, or remove it"))?;
    Ok(IscsiHost::new(name, sessions))
}

fn configured(path: &str) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(Path::new(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}
