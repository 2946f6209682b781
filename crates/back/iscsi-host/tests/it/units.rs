//! A unit as a volume: every command in every way, who is let in, and what there is.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Volume, VolumeError, VolumeEvent};
use weir_initiator::within;
use weir_iscsi_host::{ChapOptions, ConnectError, Options, UnitError, discover};
use weir_iscsi_target::{Allowed, Authentication, Credentials, IscsiConfig, Lun};
use weir_testing::initiator::{Client, Events, every_command, pattern, random_requests};

use crate::scene::*;

/// A change of how a target or an initiator is made.
type Change<T> = fn(&mut T);

fn every_way() -> Vec<(Shape, Change<Options>)> {
    let ways: [(Change<IscsiConfig>, Change<Options>, u32); 6] = [
        (|_| {}, |_| {}, 512),
        (
            |_| {},
            |options| {
                options.common.header_digest = true;
                options.common.data_digest = true;
                options.sessions = Some(3);
            },
            4096,
        ),
        (|_| {}, |options| options.immediate_data = false, 512),
        (
            |_| {},
            |options| {
                options.initial_r2t = true;
                options.outstanding_r2t = 1;
                options.common.data_digest = true;
            },
            4096,
        ),
        (
            |config| config.receive_segment_bytes = 4096,
            |options| {
                options.initial_r2t = true;
                options.immediate_data = false;
                options.max_burst = 16 << 10;
            },
            512,
        ),
        (
            |config| {
                config.send_segment_bytes = 8192;
                config.commands_max = 3;
            },
            |options| {
                options.first_burst = 8192;
                options.max_burst = 32 << 10;
                options.common.header_digest = true;
            },
            512,
        ),
    ];
    let way = |(target, initiator, block_size): (Change<IscsiConfig>, _, _)| {
        let mut shape = Shape {
            block_size,
            ..Shape::default()
        };
        target(&mut shape.config);
        (shape, initiator)
    };
    ways.into_iter().map(way).collect()
}

#[test]
fn every_command_in_every_way_simulated() {
    for (shape, change) in every_way() {
        simulated(shape, move |reactor, served, _| async move {
            let mut options = served.options();
            change(&mut options);
            let volume = open(&reactor, options).await;
            every_command(reactor, volume, served.volume.clone()).await;
        });
    }
}

#[test]
fn every_command_in_every_way_over_loopback() {
    for (shape, change) in every_way() {
        on_loopback(shape, move |reactor, served| async move {
            let mut options = patient(served.options());
            change(&mut options);
            let volume = open(&reactor, options).await;
            every_command(reactor, volume, served.volume.clone()).await;
        });
    }
}

#[test]
fn random_requests_simulated() {
    for sessions in [1, 8] {
        simulated(Shape::default(), move |reactor, served, _| async move {
            let mut options = served.options();
            options.sessions = Some(sessions);
            options.common.data_digest = true;
            let volume = open(&reactor, options).await;
            random_requests(reactor, volume, served.volume.clone(), 40).await;
        });
    }
}

#[test]
fn random_requests_over_loopback() {
    on_loopback(Shape::default(), |reactor, served| async move {
        let mut options = patient(served.options());
        options.sessions = Some(4);
        options.common.header_digest = true;
        let volume = open(&reactor, options).await;
        random_requests(reactor, volume, served.volume.clone(), 20).await;
    });
}

#[test]
fn a_unit_that_grows_or_goes_is_seen() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = open(&reactor, served.options()).await;
        let events = Events::watch(&volume);
        let grown = Arc::clone(&served.volume).resize(&reactor, 32_768, false);
        grown.await.expect("memory grows");
        while volume.geometry().blocks != 32_768 {
            reactor.sleep(Duration::from_millis(100)).await;
        }
        let mut client = Client::new(&volume, &reactor, 4);
        let data = pattern(4096, 5);
        client.write(32_760, &data, 512).await.expect("it is there");
        served.apply(|target| target.luns.clear()).await;
        while !events.seen().contains(&VolumeEvent::Lost) {
            reactor.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
        served.apply(|_| {}).await;
        while !events.seen().contains(&VolumeEvent::Restored) {
            reactor.sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(client.read(32_760, 8).await, Ok(data));
        assert!(events.seen().contains(&VolumeEvent::Resized));
    });
}

#[test]
fn a_unit_that_comes_and_goes_is_opened_as_what_it_is() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let whole = open(&reactor, served.options()).await.geometry();
        let comes_and_goes = {
            let (reactor, served) = (reactor.clone(), served.clone());
            async move {
                for round in 0_u64.. {
                    reactor
                        .sleep(Duration::from_micros(round * 37 % 4000))
                        .await;
                    served.apply(|target| target.luns.clear()).await;
                    reactor
                        .sleep(Duration::from_micros(round * 53 % 2000))
                        .await;
                    served.apply(|_| {}).await;
                }
            }
        };
        let toggling = reactor.spawn(comes_and_goes);
        let (mut opened, mut failed) = (0, 0);
        while opened < 20 || failed < 20 {
            match host(1).open(&reactor, served.options(), false).await {
                Ok(volume) => {
                    assert_eq!(volume.geometry(), whole);
                    opened += 1;
                }
                Err(ConnectError::Unit(UnitError::Absent { lun: 0 })) => failed += 1,
                Err(other) => panic!("it is there or not, and not {other}"),
            }
        }
        drop(toggling);
    });
}

#[test]
fn who_gives_up_to_open_a_unit_leaves_no_session() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let mut opened = 0;
        for round in 0_u64.. {
            let patience = Duration::from_micros(20 * round);
            let host = host(1);
            let opening = host.open(&reactor, served.options(), false);
            if let Some(volume) = within(&reactor, patience, opening).await {
                drop(volume);
                opened += 1;
            }
            reactor.sleep(Duration::from_secs(20)).await;
            let stats = served.iscsi.stats();
            let left = (stats.sessions, stats.connections);
            assert_eq!(left, (0, 0), "after {patience:?}");
            if opened == 3 {
                break;
            }
        }
    });
}

#[test]
fn another_unit_is_not_taken_for_the_same() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = open(&reactor, served.options()).await;
        let events = Events::watch(&volume);
        let other = memory(512, 16_384);
        let luns = vec![Lun::new(0, other, [8; 16])];
        served.apply(|target| target.luns = luns).await;
        while !events.seen().contains(&VolumeEvent::Lost) {
            reactor.sleep(Duration::from_millis(100)).await;
        }
        let mut client = Client::new(&volume, &reactor, 4);
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
    });
}

#[test]
fn a_read_only_unit_is_not_written() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let volume = host(1).open(&reactor, served.options(), true).await;
        let volume: Arc<dyn Volume> = volume.expect("it opens");
        assert!(volume.geometry().read_only);
        let mut client = Client::new(&volume, &reactor, 4);
        let refused = client.write(0, &[0; 512], 512).await;
        assert_eq!(refused, Err(VolumeError::ReadOnly));
    });
}

#[test]
fn what_is_not_there_is_told() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let try_open = async |options| host(1).open(&reactor, options, false).await.err();
        let absent = Options {
            lun: 5,
            ..served.options()
        };
        let error = try_open(absent).await;
        assert_eq!(
            error,
            Some(ConnectError::Unit(UnitError::Absent { lun: 5 }))
        );
        let other = Options {
            target: name("iqn.2026-01.org.example:none"),
            ..served.options()
        };
        let error = try_open(other).await.expect("it is not there");
        assert!(matches!(error, ConnectError::NoTarget { .. }), "{error}");
        served
            .apply(|target| target.allowed = Allowed::List(BTreeSet::new()))
            .await;
        let error = try_open(served.options()).await.expect("it is refused");
        assert!(error.to_string().contains(INITIATOR), "{error}");
        let nowhere = Options {
            port: 1,
            ..served.options()
        };
        let error = try_open(nowhere).await.expect("nothing listens");
        assert!(matches!(error, ConnectError::Connect(_)), "{error}");
    });
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials {
        user: name.to_owned(),
        secret: secret.to_owned(),
    }
}

#[test]
fn both_sides_prove_who_they_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, secret: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, secret).expect("it is written");
        Some(path)
    };
    let (right, wrong) = (file("a", "the-first-secret"), file("c", "another-secret"));
    let mutual = file("b", "the-second-secret");
    simulated(Shape::default(), move |reactor, served, _| async move {
        served
            .apply(|target| {
                target.authentication = Authentication::Chap {
                    initiator: credentials("alice", "the-first-secret"),
                    target: Some(credentials("gw", "the-second-secret")),
                };
            })
            .await;
        let with = |chap| Options {
            chap,
            ..served.options()
        };
        let one_way = ChapOptions {
            user: Some("alice".to_owned()),
            secret_file: right.clone(),
            ..ChapOptions::default()
        };
        let both = ChapOptions {
            mutual_user: Some("gw".to_owned()),
            mutual_secret_file: mutual.clone(),
            ..one_way.clone()
        };
        for chap in [one_way.clone(), both.clone()] {
            let volume = open(&reactor, with(chap)).await;
            let mut client = Client::new(&volume, &reactor, 4);
            assert!(client.read(0, 1).await.is_ok());
        }
        let false_host = ChapOptions {
            secret_file: wrong.clone(),
            ..one_way
        };
        let false_target = ChapOptions {
            mutual_secret_file: wrong.clone(),
            ..both
        };
        for chap in [ChapOptions::default(), false_host, false_target] {
            let refused = host(1).open(&reactor, with(chap), false).await.err();
            let error = refused.expect("somebody did not prove who it is");
            assert!(
                matches!(error, ConnectError::NotAuthenticated { .. }),
                "{error}"
            );
        }
    });
}

#[test]
fn discovery_lists_what_there_is() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let host = served.address.ip().to_string();
        let port = Some(served.address.port());
        let chap = ChapOptions::default();
        let found = discover(&reactor, &host, port, &name(INITIATOR), chap.clone()).await;
        let found = found.expect("it answers");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].target, name(TARGET));
        assert_eq!(found[0].addresses, [format!("{},1", served.address)]);
        served
            .apply(|target| target.allowed = Allowed::List(BTreeSet::new()))
            .await;
        let found = discover(&reactor, &host, port, &name(INITIATOR), chap).await;
        assert_eq!(found.expect("it answers"), []);
    });
}

#[test]
fn leaving_logs_out() {
    simulated(Shape::default(), |reactor, served, _| async move {
        let host = host(1);
        let volume = host.open(&reactor, served.options(), false).await;
        let volume: Arc<dyn Volume> = volume.expect("it opens");
        let mut client = Client::new(&volume, &reactor, 4);
        client.read(0, 8).await.expect("it is there");
        assert_eq!(served.iscsi.stats().sessions, 2);
        drop(client);
        host.close_all().await;
        while served.iscsi.stats().sessions > 0 {
            reactor.sleep(Duration::from_millis(10)).await;
        }
    });
}
