//! A file as a volume: what it holds, and how it may be opened.

use std::time::Duration;

use weir_block::{BlockSize, Operation, VolumeError};
use weir_nfs_host::{ConnectError, Options, Version};
use weir_nfs_server::NfsConfig;
use weir_testing::initiator::{Client, foreign_commands, foreign_random_requests, pattern, write};

use crate::scene::*;

#[test]
fn every_command_and_random_requests() {
    type Change = (Serves, fn(&mut NfsConfig), fn(&mut Options));
    let (file, volume) = (Serves::File, Serves::Volume);
    let ways: [Change; 8] = [
        (file, |_| {}, |_| {}),
        (volume, |_| {}, |_| {}),
        (
            volume,
            |_| {},
            |options| {
                options.version = Version::V3;
                options.block_size = Some(BlockSize::B512);
            },
        ),
        (
            file,
            |config| config.transfer_bytes_max = 16 << 10,
            |options| {
                options.version = Version::V41;
                options.block_size = Some(BlockSize::B512);
            },
        ),
        (
            file,
            |config| config.slots_max = 16,
            |options| options.connections = Some(1),
        ),
        (
            file,
            |_| {},
            |options| {
                options.connections = Some(16);
                options.common.depth = 2;
            },
        ),
        (file, |_| {}, |options| options.version = Version::V3),
        (
            file,
            |config| config.transfer_bytes_max = 16 << 10,
            |options| {
                options.version = Version::V3;
                options.connections = Some(16);
                options.block_size = Some(BlockSize::B512);
            },
        ),
    ];
    for (serves, server, client) in ways {
        let mut config = config();
        server(&mut config);
        simulated_with(config, serves, move |reactor, server, _| async move {
            let mut options = server.options();
            client(&mut options);
            let volume = open(&reactor, options).await;
            foreign_commands(&reactor, &volume).await;
            foreign_random_requests(&reactor, &volume).await;
        });
    }
}

#[test]
fn what_is_flushed_is_in_the_file() {
    simulated(config(), |reactor, server, _| async move {
        let volume = open(&reactor, server.options()).await;
        let geometry = volume.geometry();
        assert_eq!(
            (geometry.length_bytes(), geometry.block_size),
            (BYTES, BlockSize::B4096)
        );
        let mut client = Client::new(&volume, &reactor, 32);
        let data = pattern(BYTES as usize, 3);
        for (index, piece) in data.chunks(1 << 20).enumerate() {
            client.write(index as u64 * 256, piece, 4096).await.unwrap();
        }
        assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
        assert!(server.behind().await == data);
    });
}

/// More than is retained without a COMMIT: writes are followed by one.
#[test]
fn much_is_committed_though_nobody_flushes() {
    simulated(config(), |reactor, server, _| async move {
        let volume = open(&reactor, server.options()).await;
        let mut client = Client::new(&volume, &reactor, 32);
        let rounds = (100 << 20) / BYTES;
        for round in 0..rounds {
            let data = pattern(1 << 20, round as u8);
            for piece in 0..8 {
                client.submit(write(piece * 256, &data, 4096));
            }
            for _ in 0..8 {
                assert_eq!(client.next().await.result, Ok(()));
            }
        }
        drop(client);
        let last = pattern(1 << 20, (rounds - 1) as u8);
        let mut client = Client::new(&volume, &reactor, 4);
        assert!(client.read(0, 256).await.unwrap() == last);
    });
}

#[test]
fn errors_say_what_to_do() {
    for version in [Version::V42, Version::V3] {
        errors_of(version);
    }
}

fn errors_of(version: Version) {
    simulated(config(), move |reactor, server, _| async move {
        let options = Options {
            version,
            ..server.options()
        };
        let refused = async |options: Options| {
            let error = try_open(&reactor, options).await.map(drop);
            error.expect_err("it does not open")
        };
        let absent = Options {
            size: None,
            ..options.clone()
        };
        let error = refused(absent).await;
        assert!(matches!(error, ConnectError::NoFile { .. }), "{error}");
        let place = |path: &[&str]| Options {
            path: path.iter().map(|&name| name.to_owned()).collect(),
            ..options.clone()
        };
        let error = refused(place(&["exports", "other", "a"])).await;
        let text = error.to_string();
        assert!(text.contains("no /exports/other"), "{text}");
        if version == Version::V3 {
            // At the port that is named nobody listens.
            let error = refused(Options {
                mount_port: Some(1),
                ..options.clone()
            });
            let text = error.await.to_string();
            assert!(text.contains(":1"), "{text}");
        }
        drop(open(&reactor, options.clone()).await);
        let error = refused(Options {
            size: Some(BYTES / 2),
            ..options.clone()
        });
        assert!(matches!(error.await, ConnectError::OtherSize { .. }));
        let error = refused(place(&["exports"])).await;
        assert!(
            matches!(
                error,
                ConnectError::NotAFile { .. }
                    | ConnectError::OtherSize { .. }
                    // What leads to an export is not seen.
                    | ConnectError::NoDirectory { .. }
            ),
            "{error}"
        );
        let error = refused(Options {
            port: 1,
            ..options.clone()
        });
        assert!(matches!(error.await, ConnectError::Connect(_)));
        // As it is there now, it need not be made.
        let there = Options {
            size: None,
            ..options
        };
        let host = host(1);
        let read_only = host.open(&reactor, there, true).await.expect("it opens");
        let volume: std::sync::Arc<dyn weir_block::Volume> = read_only;
        let mut client = Client::new(&volume, &reactor, 1);
        let refused = client.write(0, &[1; 4096], 4096).await;
        assert_eq!(refused, Err(VolumeError::ReadOnly));
        assert!(client.read(0, 1).await.is_ok());
        drop((client, volume));
        host.close_all().await;
        reactor.sleep(Duration::from_secs(1)).await;
    });
}
