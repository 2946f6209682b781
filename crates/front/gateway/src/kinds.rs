//! The kinds of volume that the programs of Weir open.

use std::sync::Arc;

use weir_iscsi_host::IscsiHost;
use weir_nfs_host::NfsHost;
use weir_nvme_host::NvmeHost;
use weir_rbd::RbdHost;
use weir_ssd::SsdVolume;
use weir_volume::{Registry, VolumeUrl};

/// Every kind of volume. Remote ones are reached by these hosts.
#[must_use]
pub fn registry(
    nvme: &Arc<NvmeHost>,
    iscsi: &Arc<IscsiHost>,
    nfs: &Arc<NfsHost>,
    rbd: &Arc<RbdHost>,
) -> Registry {
    let mut registry = Registry::standard();
    registry.register(weir_nvme_host::SCHEME, nvme.factory());
    registry.register(weir_iscsi_host::SCHEME, iscsi.factory());
    registry.register(weir_nfs_host::SCHEME, nfs.factory());
    registry.register(weir_rbd::SCHEME, rbd.factory());
    registry.register(weir_ssd::SCHEME, SsdVolume::factory());
    #[cfg(feature = "planted-faults")]
    weir_faulty::register(&mut registry);
    registry
}

/// URLs of the images that a volume is made of: its own, or those of what it is made of.
pub(crate) fn images_below(url: &VolumeUrl) -> Vec<VolumeUrl> {
    match url.scheme() == weir_rbd::SCHEME {
        true => vec![url.clone()],
        false => url.nested().flat_map(|url| images_below(&url)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_images_of_a_volume_are_found_however_deep_they_are() {
        let of = |url: &VolumeUrl| -> Vec<String> {
            let below = images_below(url).into_iter();
            below.map(|url| url.to_string()).collect()
        };
        let rbd = |name| VolumeUrl::new("rbd", name).with("conf", "mem:x");
        assert_eq!(of(&rbd("p/a")), [rbd("p/a").to_string()]);
        let drive = VolumeUrl::new("ssd", "x").with("over", rbd("p/b"));
        let set = VolumeUrl::new("stripe", "")
            .with("member", rbd("p/a"))
            .with("member", VolumeUrl::new("mem", "").with("size", "4M"))
            .with("chunk", "128k")
            .with("member", drive);
        let both = [rbd("p/a").to_string(), rbd("p/b").to_string()];
        assert_eq!(of(&set), both);
        assert!(of(&VolumeUrl::new("file", "/srv/rbd:p/a")).is_empty());
    }
}
