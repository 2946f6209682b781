//! An image whose watch is lost, or that others have taken while nothing was asked of it. On the library that stands for Ceph's.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Volume, VolumeError};
use weir_rbd::{AutoLimits, RbdHost, Reason, VolumeReport, WatchLimits};
use weir_testing::ceph::{Cluster, host_with_limits, open, undisturbed, until};
use weir_testing::harness::{self, Client, Harness};

const MIB: u64 = 1 << 20;
/// How many checks must miss a watch until that is told.
const TOLD_AFTER: u32 = 2;
/// Never, in a test.
const NEVER: u32 = 1_000_000;

fn host(moved_after: u32) -> Arc<RbdHost> {
    let auto = AutoLimits {
        own_clients_max: 1,
        ..AutoLimits::default()
    };
    let watch = WatchLimits {
        check: Duration::from_millis(10),
        told_after: TOLD_AFTER,
        moved_after,
    };
    host_with_limits("a", auto, watch)
}

/// Waits until so many checks of an image that began from now on have ended, and what they came to is known.
fn until_checked(cluster: &Cluster, name: &str, checks: i64) {
    let answered = || cluster.ask(&format!("watchers_asked {name}"));
    // One may be under way, and another begins when the last has been judged.
    let enough = answered() + 1 + checks + 1;
    until("it is checked", || answered() >= enough);
}

/// An image that is made and opened.
fn opened(
    cluster: &Cluster,
    harness: &Harness,
    host: &Arc<RbdHost>,
    name: &str,
) -> Arc<dyn Volume> {
    cluster.tell(&format!("image {name} {}", 4 * MIB));
    open(harness, host, &cluster.url("").replace("rbd/image", name))
}

fn write(harness: &Harness, volume: &Arc<dyn Volume>, byte: u8) {
    let volume = Arc::clone(volume);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 1);
        let operation = harness::write(0, 1, &vec![byte; 4096]);
        assert_eq!(client.done(operation).await, Ok(()));
    });
}

fn close(harness: &Harness, host: Arc<RbdHost>) {
    harness.run(0, move |_| async move { host.close_all().await });
}

#[test]
fn a_lost_watch_is_told_until_it_is_back_and_what_was_missed_is_seen_then() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host(NEVER));
    let volume = open(&harness, &host, &cluster.url(""));
    let report = || host.volumes()[0].clone();
    until_checked(&cluster, "rbd/image", 1);
    assert_eq!(report().trouble, None);
    cluster.tell("watch rbd/image lost");
    until("it is told", || report().trouble.is_some());
    let trouble = report().trouble.unwrap();
    assert!(trouble.contains("watch is lost"), "{trouble}");
    // Nothing else has happened.
    write(&harness, &volume, 0x11);
    cluster.tell("resize rbd/image 8388608");
    until_checked(&cluster, "rbd/image", 1);
    let VolumeReport {
        phase,
        reopened,
        moves,
        moves_called_off,
        ..
    } = report();
    assert_eq!(
        (phase, reopened, moves, moves_called_off),
        ("serving", 0, 0, 0)
    );
    assert_eq!(volume.geometry().length_bytes(), 4 * MIB);
    cluster.tell("watch rbd/image back");
    until("it is over", || report().trouble.is_none());
    until("its size is seen", || {
        volume.geometry().length_bytes() == 8 * MIB
    });
    write(&harness, &volume, 0x22);
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x22);
    drop(volume);
    close(&harness, host);
}

#[test]
fn an_image_whose_watch_does_not_come_back_moves_and_nobody_is_cut_off() {
    undisturbed(|| {
        let cluster = Cluster::with_image(4 * MIB);
        cluster.tell("image rbd/beside 4194304");
        let (harness, host) = (Harness::real(1), host(4));
        let volume = open(&harness, &host, &cluster.url(""));
        let beside = cluster.url("").replace("rbd/image", "rbd/beside");
        let beside = open(&harness, &host, &beside);
        let report = |name: &str| {
            let all = host.volumes().into_iter();
            let mut found = all.filter(|report| report.url.contains(name));
            found.next().unwrap()
        };
        let shared = report("rbd/image").client.unwrap();
        for name in ["rbd/image", "rbd/beside"] {
            until_checked(&cluster, name, 1);
        }
        cluster.tell("watch rbd/image lost");
        // It is called off where the machine stands still just then, and not tried again for long.
        until("it moves, or cannot", || {
            let report = report("rbd/image");
            report.moves + report.moves_called_off > 0
        });
        if report("rbd/image").moves == 0 {
            drop((volume, beside));
            close(&harness, host);
            return false;
        }
        let VolumeReport {
            phase,
            reopened,
            own_client,
            client,
            ..
        } = report("rbd/image");
        assert_eq!((phase, reopened), ("serving", 0));
        assert_eq!(own_client, Some(Reason::Unwatched));
        let own = client.unwrap();
        assert_ne!(own, shared);
        assert_eq!(cluster.ask(&format!("is_blocklisted {shared}")), 0);
        let watches = |client: &str| cluster.ask(&format!("is_watched rbd/image {client}"));
        assert_eq!((watches(&own), watches(&shared)), (1, 0));
        // As many as would tell that it does not.
        until_checked(&cluster, "rbd/image", TOLD_AFTER.into());
        assert_eq!(report("rbd/image").trouble, None);
        write(&harness, &volume, 0x11);
        write(&harness, &beside, 0x22);
        let beside = report("rbd/beside");
        assert_eq!((beside.moves, beside.reopened), (0, 0));
        assert_eq!(beside.client, Some(shared));
        drop(volume);
        close(&harness, host);
        true
    });
}

/// What was there when the image was opened has no need of a check to have been there.
#[test]
fn a_watch_and_a_lock_that_are_lost_before_the_first_check_are_missed_all_the_same() {
    undisturbed(|| {
        let cluster = Cluster::with_image(4 * MIB);
        let (harness, host) = (Harness::real(1), host(4));
        // When it is opened that is answered, and then no more.
        cluster.tell("watchers_hang rbd/image 1");
        let volume = open(&harness, &host, &cluster.url(""));
        until("the first check hangs", || cluster.ask("asking") == 1);
        assert_eq!(cluster.ask("watchers_asked rbd/image"), 1);
        cluster.tell("watch rbd/image lost");
        cluster.tell("acquire_hangs on");
        cluster.tell("watchers_hang rbd/image off");
        // It is called off where the machine stands still just then, and not tried again for long.
        let is_called_off = || host.volumes()[0].moves_called_off > 0;
        until("it moves, or cannot", || {
            cluster.ask("acquiring") == 1 || is_called_off()
        });
        if is_called_off() {
            cluster.tell("acquire_hangs off");
            drop(volume);
            close(&harness, host);
            return false;
        }
        // The life on the client of its own, which has the lock before it can be checked.
        cluster.tell("watchers_hang rbd/image on");
        cluster.tell("acquire_hangs off");
        until("it has moved", || host.volumes()[0].moves == 1);
        cluster.tell("watch rbd/image lost");
        cluster.tell("lock rbd/image 10.9.9.9:0/1 dead");
        cluster.tell("watchers_hang rbd/image off");
        until("it is seen that the lock is another's", || {
            let why = host.volumes()[0].reopened_why.clone();
            why.is_some_and(|why| why.contains("lock was lost"))
        });
        drop(volume);
        close(&harness, host);
        true
    });
}

#[test]
fn a_lock_that_is_taken_is_seen_though_nothing_is_asked_of_the_image() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host(NEVER));
    let volume = open(&harness, &host, &cluster.url(""));
    until_checked(&cluster, "rbd/image", 1);
    cluster.tell("metadata rbd/image weir.owner 1 b 10.9.9.9:0/1 gateway-b");
    cluster.tell("lock rbd/image 10.9.9.9:0/1 alive");
    until("it is lost", || host.volumes()[0].phase == "gone");
    let trouble = host.volumes()[0].trouble.clone();
    assert!(trouble.is_some_and(|trouble| trouble.contains("10.9.9.9:0/1")));
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_client_that_is_blocklisted_is_seen_though_nothing_is_asked_of_the_image() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host(NEVER));
    let volume = open(&harness, &host, &cluster.url(""));
    let client = host.volumes()[0].client.clone().unwrap();
    cluster.tell(&format!("blocklist {client}"));
    until("it is opened again", || {
        let report = &host.volumes()[0];
        report.reopened == 1 && report.phase == "serving"
    });
    let why = host.volumes()[0].reopened_why.clone();
    assert!(why.is_some_and(|why| why.contains("blocklisted")));
    write(&harness, &volume, 0x11);
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_check_that_hangs_holds_nothing_up_and_is_alone() {
    let (silent, other) = (Cluster::with_image(4 * MIB), Cluster::with_image(4 * MIB));
    let (harness, host) = (Harness::real(1), host(NEVER));
    let hangs = open(&harness, &host, &silent.url(""));
    let checked = open(&harness, &host, &other.url(""));
    silent.tell("watchers_hang on");
    until("a check hangs", || silent.ask("asking") == 1);
    // An image of another cluster is checked all the same, more than once.
    other.tell("watch rbd/image lost");
    until("it is told", || {
        host.volumes().iter().any(|report| report.trouble.is_some())
    });
    assert_eq!(silent.ask("asking"), 1, "one waits, and no more come");
    write(&harness, &hangs, 0x11);
    write(&harness, &checked, 0x22);
    let address = host.volumes()[0].client.clone();
    // What it says when it comes back is about an image that nobody has any more.
    drop(hangs);
    until("it is closed", || host.volumes().len() == 1);
    silent.tell("watchers_hang off");
    until("it is let go", || {
        host.clients()
            .iter()
            .all(|client| Some(&client.address) != address.as_ref())
    });
    drop(checked);
    close(&harness, host);
}

/// As an image's placement group may be silent while the others of its pool answer.
#[test]
fn an_image_of_which_nothing_is_answered_holds_up_none_of_its_client() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host(NEVER));
    let names = [
        "rbd/image",
        "rbd/silent",
        "rbd/third",
        "rbd/mute",
        "rbd/last",
    ];
    let volumes: Vec<_> = names
        .map(|name| opened(&cluster, &harness, &host, name))
        .into();
    let clients: BTreeSet<_> = host
        .volumes()
        .into_iter()
        .map(|report| report.client)
        .collect();
    assert_eq!(clients.len(), 1, "they share a client");
    let silent = ["rbd/silent", "rbd/mute"];
    for name in silent {
        cluster.tell(&format!("watchers_hang {name} on"));
    }
    until("two hang", || cluster.ask("asking") == 2);
    let answered = |name: &str| cluster.ask(&format!("watchers_asked {name}"));
    let before = silent.map(answered);
    for name in names {
        cluster.tell(&format!("watch {name} lost"));
    }
    let told = || {
        let all = host.volumes().into_iter();
        let told = all.filter(|report| report.trouble.is_some());
        told.map(|report| report.image).collect::<Vec<_>>()
    };
    until("it is told of the others", || told().len() == 3);
    for name in names {
        cluster.tell(&format!("watch {name} back"));
    }
    until("it is over", || told().is_empty());
    assert_eq!(silent.map(answered), before);
    assert_eq!(
        cluster.ask("asking"),
        2,
        "of each one waits, and no more come"
    );
    // What is answered again is checked as before.
    for name in silent {
        cluster.tell(&format!("watchers_hang {name} off"));
    }
    for name in silent {
        cluster.tell(&format!("watch {name} lost"));
        until("it is told", || told() == [name]);
        cluster.tell(&format!("watch {name} back"));
        until("it is over", || told().is_empty());
    }
    drop(volumes);
    close(&harness, host);
}

/// The images that are left to a round when they get another client are that one's.
#[test]
fn a_round_looks_at_images_of_its_client_alone() {
    const STAND: i64 = 8;
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host(NEVER));
    let names: Vec<_> = (0..=STAND).map(|number| format!("rbd/{number}")).collect();
    let open = |name: &String| opened(&cluster, &harness, &host, name);
    let volumes: Vec<_> = names.iter().map(open).collect();
    let (last, stand) = names.split_last().unwrap();
    for name in stand {
        cluster.tell(&format!("watchers_hang {name} on"));
    }
    // The last of these rounds has the last image left.
    until("as many stand as may", || cluster.ask("asking") == STAND);
    let report = |name: &str| {
        let mut all = host.volumes().into_iter();
        all.find(|report| report.image == *name).unwrap()
    };
    let shared = report(last).client.unwrap();
    cluster.tell(&format!("blocklist {shared}"));
    let volume = Arc::clone(volumes.last().unwrap());
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 1);
        let operation = harness::write(0, 1, &[0x11; 4096]);
        assert_eq!(client.done(operation).await, Err(VolumeError::TimedOut));
    });
    until("it is opened again", || report(last).phase == "serving");
    assert_ne!(report(last).client.unwrap(), shared);
    cluster.tell(&format!("watchers_hang {last} on"));
    until("its new client stands at it", || {
        cluster.ask("asking") == STAND + 1
    });
    // The last round goes on, and the next finds that its client is refused.
    let answered = &stand[STAND as usize - 1];
    cluster.tell(&format!("watchers_hang {answered} off"));
    until("it is opened again", || {
        let report = report(answered);
        report.reopened == 1 && report.phase == "serving"
    });
    assert_eq!(cluster.ask("asking"), STAND, "the last is looked at twice");
    for name in &names {
        cluster.tell(&format!("watchers_hang {name} off"));
    }
    drop(volumes);
    close(&harness, host);
}

#[test]
fn checks_that_hang_are_bounded_and_go_on_when_they_are_answered() {
    const AT_ONCE: i64 = 8;
    let (silent, other) = (Cluster::with_image(4 * MIB), Cluster::with_image(4 * MIB));
    let (harness, host) = (Harness::real(1), host(NEVER));
    let names: Vec<_> = (0..AT_ONCE + 3)
        .map(|number| format!("rbd/{number}"))
        .collect();
    let open = |name: &String| opened(&silent, &harness, &host, name);
    let mut volumes: Vec<_> = names.iter().map(open).collect();
    volumes.push(opened(&other, &harness, &host, "rbd/image"));
    silent.tell("watchers_hang on");
    until("as many hang as may", || silent.ask("asking") == AT_ONCE);
    let before = other.ask("watchers_asked");
    until("the other goes on", || {
        other.ask("watchers_asked") > before + 30
    });
    assert_eq!(silent.ask("asking"), AT_ONCE);
    // That is told of all of its client, and of no other's.
    let told = || {
        let all = host.volumes().into_iter();
        let told = all.filter_map(|report| Some((report.url, report.trouble?)));
        told.collect::<Vec<_>>()
    };
    until("it is told", || told().len() == names.len());
    let conf = silent.conf.to_str().unwrap();
    for (url, trouble) in told() {
        assert!(url.contains(conf), "{url}");
        assert!(trouble.contains("not looked at"), "{trouble}");
    }
    silent.tell("watchers_hang off");
    until("it is over", || told().is_empty());
    let answered = |name: &String| silent.ask(&format!("watchers_asked {name}"));
    let before: Vec<_> = names.iter().map(answered).collect();
    until("all are checked again", || {
        let mut now = names.iter().map(answered).zip(&before);
        now.all(|(now, before)| now > before + 1)
    });
    drop(volumes);
    close(&harness, host);
}
