//! The contract of volumes on images: of the library that stands for Ceph's always, of a cluster where `CEPH_CONF` names one.

#[path = "../../volume/tests/common/mod.rs"]
mod common;
mod fake;
#[path = "../../volume/tests/contract/oracle.rs"]
mod oracle;
#[path = "../../volume/tests/contract/run.rs"]
mod run;

use std::sync::Arc;

use common::{Client, Harness, seed};
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

/// Who is let at an image that is open: addresses are as a cluster writes them.
fn ownership(harness: &Harness, host: &Arc<RbdHost>, url: &str) {
    let write = |volume: &Arc<dyn Volume>| {
        let volume = Arc::clone(volume);
        harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 1);
            let data = vec![7; volume.geometry().block_size.bytes() as usize];
            client.write(0, 1, &data).await
        })
    };
    let volume = open(harness, host, url);
    assert_eq!(write(&volume), Ok(()));
    let stranger = weir_rbd::Identity {
        id: "stranger".to_owned(),
        name: "another gateway".to_owned(),
    };
    let stranger = RbdHost::new(stranger, Libraries::default());
    let refused = try_open(harness, &stranger, url, Access::READ_WRITE);
    let refused = refused.map(drop).unwrap_err();
    assert!(
        refused.in_use() && refused.to_string().contains("gateway contract test"),
        "{refused}"
    );
    // The same after a kill: the lock is its dead self's, and is taken over without waiting for the watch to end.
    let again = RbdHost::new(host.identity().clone(), Libraries::default());
    let began = std::time::Instant::now();
    let taken = open(harness, &again, url);
    println!("taken over within {:?}", began.elapsed());
    assert!(began.elapsed().as_secs() < 20, "it waited for the watch");
    assert_eq!(write(&taken), Ok(()));
    assert_eq!(write(&volume), Err(weir_block::VolumeError::TimedOut));
    fake::until("it is given up", || host.volumes()[0].phase == "gone");
    assert_eq!(write(&taken), Ok(()));
    // Blocklisted by hand it comes back by itself.
    let client = again.clients()[0].address.clone();
    println!("client {client}");
    let client = client.trim_start_matches("v2:").trim_start_matches("v1:");
    let listed = std::process::Command::new("ceph")
        .args(["osd", "blocklist", "add", client, "60"])
        .status();
    assert!(listed.unwrap().success());
    fake::until("it is noticed", || write(&taken).is_err());
    assert_eq!(write(&taken), Ok(()), "{:?}", again.volumes());
    assert_eq!(again.volumes()[0].reopened, 1);
    drop((volume, taken));
    harness.run(0, move |_| async move { again.close_all().await });
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
    ownership(&harness, &host, &url);
    let read_only = try_open(&harness, &host, &url, Access::READ_ONLY).unwrap();
    assert!(read_only.geometry().read_only);
    drop(read_only);
    harness.run(0, move |_| async move { host.close_all().await });
    images.trash(&name, 0).unwrap();
}
