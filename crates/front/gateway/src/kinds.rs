//! The kinds of volume that the programs of Weir open.

use std::sync::Arc;

use weir_nvme_host::NvmeHost;
use weir_rbd::RbdHost;
use weir_ssd::SsdVolume;
use weir_volume::Registry;

/// Every kind of volume. Remote ones are reached by these hosts.
#[must_use]
pub fn registry(nvme: &Arc<NvmeHost>, rbd: &Arc<RbdHost>) -> Registry {
    let mut registry = Registry::standard();
    registry.register(weir_nvme_host::SCHEME, nvme.factory());
    registry.register(weir_rbd::SCHEME, rbd.factory());
    registry.register(weir_ssd::SCHEME, SsdVolume::factory());
    #[cfg(feature = "planted-faults")]
    weir_faulty::register(&mut registry);
    registry
}
