//! The initiator against a target that is not Weir's, over real sockets.
//!
//! It needs such a target, so that it is run by name: `tests/vm/run foreign-target` does, against the Linux kernel's, in a virtual
//! machine. `WEIR_TEST_URL` is a namespace whose content may be destroyed.

use std::sync::Arc;

use weir_block::Volume;
use weir_initiator::options::CommonOptions;
use weir_nvme_host::{HostIdentity, NvmeHost, Options, discover};
use weir_testing::initiator::{foreign_commands, foreign_random_requests, on_machine};
use weir_volume::VolumeUrl;

/// The namespace to test against; without one the test says that it was skipped.
fn url() -> Option<VolumeUrl> {
    let Ok(url) = std::env::var("WEIR_TEST_URL") else {
        eprintln!("skipped: needs a foreign target; tests/vm/run foreign-target brings one");
        return None;
    };
    Some(url.parse().expect("WEIR_TEST_URL is a volume's URL"))
}

fn host() -> Arc<NvmeHost> {
    NvmeHost::new(HostIdentity::from_random([0x51; 16]), 1)
}

#[test]
fn every_command_and_random_requests() {
    let Some(url) = url() else { return };
    for (queues, digests) in [(1, 0), (4, 0), (1, 3), (4, 3), (2, 1), (2, 2)] {
        let url = url.clone();
        on_machine(move |reactor| async move {
            let options = Options {
                queues: Some(queues),
                common: CommonOptions {
                    header_digest: digests & 1 != 0,
                    data_digest: digests & 2 != 0,
                    ..Options::from_url(&url).unwrap().common
                },
                ..Options::from_url(&url).unwrap()
            };
            let host = host();
            let volume: Arc<dyn Volume> = host.open(&reactor, options, false).await.unwrap();
            println!(
                "{queues} queues, digests {digests}: {:?}",
                volume.geometry()
            );
            foreign_commands(&reactor, &volume).await;
            foreign_random_requests(&reactor, &volume).await;
            host.close_all().await;
        });
    }
}

#[test]
fn discovery_finds_the_subsystem() {
    let Some(url) = url() else { return };
    on_machine(move |reactor| async move {
        let options = Options::from_url(&url).unwrap();
        let identity = host().identity().clone();
        let found = discover(&reactor, &options.host, Some(options.port), &identity).await;
        let found = found.unwrap();
        let here = found
            .iter()
            .filter(|entry| entry.subsystem == options.subsystem);
        assert_eq!(here.count(), 1, "{found:?}");
    });
}
