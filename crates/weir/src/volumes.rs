//! The kinds of volume that the command line opens, and who it is to NVMe targets.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use weir_nvme_host::options::host_id;
use weir_nvme_host::{HostIdentity, NvmeHost, SCHEME};
use weir_reactor::System;
use weir_volume::Registry;

/// Where nvme-cli keeps the name and identifier of this machine as an NVMe host.
const HOST_NQN_FILE: &str = "/etc/nvme/hostnqn";
const HOST_ID_FILE: &str = "/etc/nvme/hostid";

/// Every kind of volume. Remote ones are used through up to `queues` queues.
pub(crate) fn registry(nvme: &Arc<NvmeHost>) -> Registry {
    let mut registry = Registry::standard();
    registry.register(SCHEME, nvme.factory());
    registry
}

/// This machine as an NVMe host: as nvme-cli and the kernel name it where that was set up, and otherwise by a name made for this
/// run. A URL's `hostnqn=` and `hostid=` say otherwise.
pub(crate) fn nvme_host(system: &dyn System, queues: u16) -> anyhow::Result<Arc<NvmeHost>> {
    match (configured(HOST_NQN_FILE)?, configured(HOST_ID_FILE)?) {
        (Some(nqn), Some(id)) => {
            let nqn = weir_nvme::Nqn::new(&nqn).with_context(|| {
                format!(
                    "{HOST_NQN_FILE} holds '{nqn}', which is not a host's NQN; mend or remove it"
                )
            })?;
            let Some(id) = host_id(&id) else {
                bail!("{HOST_ID_FILE} holds '{id}', which is not a UUID; mend or remove it");
            };
            Ok(NvmeHost::new(HostIdentity { nqn, id }, queues))
        }
        _ => Ok(NvmeHost::random(system, queues)),
    }
}

fn configured(path: &str) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(Path::new(path)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
    }
}
