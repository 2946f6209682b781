//! Identity of the command line towards NVMe targets and Ceph clusters.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use weir_nvme_host::{HostIdentity, NvmeHost};
use weir_rbd::{Identity, Libraries, RbdHost};
use weir_reactor::System;

/// Where nvme-cli keeps the name and identifier of this machine as an NVMe host.
const HOST_NQN_FILE: &str = "/etc/nvme/hostnqn";
const HOST_ID_FILE: &str = "/etc/nvme/hostid";

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

fn configured(path: &str) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(Path::new(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}
