//! The client against a server that is not Weir's, over real sockets.
//!
//! It needs such a server, so that it is run by name: `tests/vm/run foreign-nfs` does, against the Linux kernel's, in a virtual machine.
//! `WEIR_TEST_NFS_URL` is a file whose content may be destroyed.

use std::sync::Arc;

use weir_block::Volume;
use weir_nfs_host::{MinorVersion, Options};
use weir_testing::initiator::{foreign_commands, foreign_random_requests, on_machine};
use weir_volume::VolumeUrl;

use crate::scene::host;

#[test]
fn every_command_and_random_requests_at_another_server() {
    let Ok(url) = std::env::var("WEIR_TEST_NFS_URL") else {
        eprintln!("skipped: needs a foreign server; tests/vm/run foreign-nfs brings one");
        return;
    };
    let url: VolumeUrl = url.parse().expect("WEIR_TEST_NFS_URL is a volume's URL");
    let options = Options::from_url(&url).expect("it is a file's");
    let ways: [fn(&mut Options); 3] = [
        |_| {},
        |options| options.version = MinorVersion::One,
        |options| options.connections = Some(16),
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
