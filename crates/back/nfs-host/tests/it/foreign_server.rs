//! The client against a server that is not Weir's, over real sockets.
//!
//! It needs such a server, so that it is run by name: `tests/vm/run foreign-nfs` does, against the Linux kernel's, in a virtual machine.
//! `WEIR_TEST_NFS_URL` is a file whose content may be destroyed.

use std::sync::Arc;

use weir_block::{Operation, Volume};
use weir_nfs_host::{Options, Version};
use weir_testing::initiator::{
    Client, foreign_commands, foreign_random_requests, on_machine, pattern,
};
use weir_volume::VolumeUrl;

use crate::scene::host;

/// The file to test against; without one the test says that it was skipped.
fn options() -> Option<Options> {
    let Ok(url) = std::env::var("WEIR_TEST_NFS_URL") else {
        eprintln!("skipped: needs a foreign server; tests/vm/run foreign-nfs brings one");
        return None;
    };
    let url: VolumeUrl = url.parse().expect("WEIR_TEST_NFS_URL is a volume's URL");
    Some(Options::from_url(&url).expect("it is a file's"))
}

#[test]
fn every_command_and_random_requests_at_another_server() {
    let Some(options) = options() else { return };
    let mut ways: Vec<fn(&mut Options)> = vec![|_| {}, |options| options.connections = Some(16)];
    // A path of version 3 need not be one of version 4.
    if options.version != Version::V3 {
        ways.push(|options| options.version = Version::V41);
    }
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

/// `RESTART` starts the server anew.
#[test]
fn a_server_that_starts_anew() {
    let Some(options) = options() else { return };
    on_machine(move |reactor| async move {
        let host = host(1);
        let volume: Arc<dyn Volume> = host.open(&reactor, options, false).await.unwrap();
        let mut client = Client::new(&volume, &reactor, 4);
        let size = volume.geometry().block_size.bytes() as usize;
        for round in 0..3 {
            let data = pattern(64 * size, round);
            client.write(7, &data, size).await.unwrap();
            let script = std::env::var("RESTART").expect("a script");
            let restarted = reactor.offload(move || {
                let mut shell = std::process::Command::new("bash");
                shell.args(["-c", &script]).status()
            });
            let status = restarted.await.expect("it runs").expect("there is a shell");
            assert!(status.success());
            assert!(client.read(7, 64).await.unwrap() == data, "round {round}");
            assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
            assert!(client.read(7, 64).await.unwrap() == data, "round {round}");
        }
        host.close_all().await;
    });
}
