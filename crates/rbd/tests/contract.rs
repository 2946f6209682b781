//! The contract of volumes on images: of the library that stands for Ceph's always, of a cluster where `CEPH_CONF` names one.

#[path = "../../volume/tests/common/mod.rs"]
mod common;
mod fake;
#[path = "../../volume/tests/contract/oracle.rs"]
mod oracle;
#[path = "../../volume/tests/contract/run.rs"]
mod run;

use std::sync::Arc;

use common::{Harness, seed};
use fake::{Cluster, host, open, try_open};
use run::{Kind, contract};
use weir_block::{BlockSize, Volume};
use weir_rbd::{Ceph, Credentials, Images, Libraries, NewImage, RbdHost};
use weir_volume::{Access, Guard, GuardConfig};

const RETAINS: Kind = Kind { retains: true };

fn guarded(volume: Arc<dyn Volume>, block_size: Option<BlockSize>) -> Arc<dyn Volume> {
    let config = GuardConfig {
        block_size,
        ..GuardConfig::default()
    };
    Guard::new(volume, config).unwrap()
}

fn all(harness: &Harness, host: &Arc<RbdHost>, url: &str, seed: u64) {
    for more in ["", "&block_size=512", "&cache=writeback"] {
        let url = format!("{url}{more}");
        println!("{url}");
        let volume = open(harness, host, &url);
        contract(harness, &volume, RETAINS, seed);
        let small = guarded(Arc::clone(&volume), Some(BlockSize::B512));
        contract(
            harness,
            &guarded(volume, None),
            RETAINS,
            seed.wrapping_add(1),
        );
        contract(harness, &small, RETAINS, seed.wrapping_add(2));
        drop(small);
        // The image is free for the next as soon as it is closed.
        let host = Arc::clone(host);
        harness.run(0, move |_| async move { host.close_all().await });
    }
}

#[test]
fn images_of_the_fake_library() {
    let seed = seed("images_of_the_fake_library");
    let cluster = Cluster::with_image(6 << 20);
    let harness = Harness::real(1);
    all(&harness, &host("a"), &cluster.url(""), seed);
}

#[test]
fn images_of_a_real_cluster() {
    let Ok(conf) = std::env::var("CEPH_CONF") else {
        println!("skipped: CEPH_CONF names no cluster");
        return;
    };
    let seed = seed("images_of_a_real_cluster");
    let pool = std::env::var("WEIR_TEST_POOL").unwrap_or_else(|_| "weir".to_owned());
    let credentials = Credentials {
        conf: Some(conf.clone()),
        ..Credentials::default()
    };
    let ceph = Ceph::new(Libraries::default());
    let images = Images::connect(&ceph, &credentials, &pool, "").unwrap();
    let name = format!("contract-{}", std::process::id());
    let new = NewImage {
        bytes: 9 << 20,
        ..NewImage::default()
    };
    images.create(&name, &new).unwrap();
    let identity = weir_rbd::Identity {
        id: name.clone(),
        name: "contract test".to_owned(),
    };
    let host = RbdHost::new(identity, Libraries::default());
    let harness = Harness::real(1);
    let url = format!("rbd:{pool}/{name}?conf={conf}");
    all(&harness, &host, &url, seed);
    let read_only = try_open(&harness, &host, &url, Access::READ_ONLY).unwrap();
    assert!(read_only.geometry().read_only);
    drop(read_only);
    harness.run(0, move |_| async move { host.close_all().await });
    images.trash(&name, 0).unwrap();
}
