//! Drops the capability that a recorder needs only to open its source.

use anyhow::Context;
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

/// Drops CAP_NET_RAW. To be called before other threads start: they inherit what this thread has.
pub(super) fn drop_net_raw() -> anyhow::Result<()> {
    let raw = CapabilitySet::NET_RAW;
    let mut sets = capabilities(None).context("the capabilities cannot be read")?;
    if !(sets.permitted | sets.inheritable).contains(raw) {
        return Ok(());
    }
    // Needs CAP_SETPCAP. Without it this fails and does no harm: the sets below decide.
    let _ = remove_capability_from_bounding_set(raw);
    for set in [
        &mut sets.effective,
        &mut sets.permitted,
        &mut sets.inheritable,
    ] {
        set.remove(raw);
    }
    set_capabilities(None, sets).context("CAP_NET_RAW cannot be given up")
}
