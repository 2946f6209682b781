//! The initiator against a target that is not Weir's, over real sockets.
//!
//! It needs such a target, so that it is run by name: `tests/vm/run foreign-iscsi` does, against the Linux kernel's, in a virtual
//! machine. `WEIR_TEST_ISCSI_URL` is a logical unit whose content may be destroyed.

use std::sync::Arc;

use weir_block::Volume;
use weir_iscsi_host::{Options, discover};
use weir_testing::initiator::{foreign_commands, foreign_random_requests, on_machine};
use weir_volume::VolumeUrl;

use crate::scene::{INITIATOR, host, name};

/// The unit to test against; without one the test says that it was skipped.
fn options() -> Option<Options> {
    let Ok(url) = std::env::var("WEIR_TEST_ISCSI_URL") else {
        eprintln!("skipped: needs a foreign target; tests/vm/run foreign-iscsi brings one");
        return None;
    };
    let url: VolumeUrl = url.parse().expect("WEIR_TEST_ISCSI_URL is a volume's URL");
    Some(Options::from_url(&url).expect("it is a logical unit's"))
}

#[test]
fn every_command_and_random_requests() {
    let Some(options) = options() else { return };
    let ways: [fn(&mut Options); 4] = [
        |_| {},
        |options| {
            options.sessions = Some(4);
            options.immediate_data = false;
        },
        |options| {
            options.initial_r2t = true;
            options.outstanding_r2t = 1;
            options.max_burst = 64 << 10;
        },
        |options| options.first_burst = 4096,
    ];
    for (index, change) in ways.into_iter().enumerate() {
        let mut options = options.clone();
        change(&mut options);
        on_machine(move |reactor| async move {
            let host = host(1);
            let volume: Arc<dyn Volume> = host.open(&reactor, options, false).await.unwrap();
            println!("way {index}: {:?}", volume.geometry());
            foreign_commands(&reactor, &volume).await;
            foreign_random_requests(&reactor, &volume).await;
            host.close_all().await;
        });
    }
}

/// For a target that does digests.
#[test]
fn digests() {
    let Some(options) = options() else { return };
    for (header, data) in [(true, false), (false, true), (true, true)] {
        let mut options = options.clone();
        options.common.header_digest = header;
        options.common.data_digest = data;
        on_machine(move |reactor| async move {
            let host = host(1);
            let volume: Arc<dyn Volume> = host.open(&reactor, options, false).await.unwrap();
            foreign_random_requests(&reactor, &volume).await;
            host.close_all().await;
        });
    }
}

#[test]
fn discovery_finds_the_target() {
    let Some(options) = options() else { return };
    on_machine(move |reactor| async move {
        let initiator = options.initiator.unwrap_or_else(|| name(INITIATOR));
        let port = Some(options.port);
        let found = discover(&reactor, &options.host, port, &initiator, options.chap).await;
        let found = found.unwrap();
        let here = found.iter().filter(|entry| entry.target == options.target);
        assert_eq!(here.count(), 1, "{found:?}");
    });
}
