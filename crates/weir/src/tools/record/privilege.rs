//! Rights that a recorder needs to open a source are given up once it is open.

use anyhow::Context;
use rustix::thread::{
    CapabilitySet, capabilities, remove_capability_from_bounding_set, set_capabilities,
};

/// Gives CAP_NET_RAW up, which opened the packet sockets. Threads that are started later do not have it either; there are no others yet.
pub(super) fn drop_packet_sockets() -> anyhow::Result<()> {
    let raw = CapabilitySet::NET_RAW;
    let mut sets = capabilities(None).context("the capabilities cannot be read")?;
    if !(sets.permitted | sets.inheritable).contains(raw) {
        return Ok(());
    }
    // Only who has CAP_SETPCAP may, and for who has not the sets below are all that counts.
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
