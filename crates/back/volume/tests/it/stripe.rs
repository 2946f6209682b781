//! Stripes: labels, and what they keep from happening.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_block::{Volume, VolumeError};
use weir_reactor::sim::DiskConfig;
use weir_testing::harness::{Client, Harness, seed, write};
use weir_volume::{Access, Guard, GuardConfig, OpenError, OpenRequest, Registry, VolumeUrl, probe};

fn member(name: &str) -> String {
    format!("file:/{name}?size=3M")
}

fn stripe(members: &[String], parameters: &[(&str, &str)]) -> String {
    let mut url = VolumeUrl::new("stripe", "");
    for (name, value) in parameters {
        url = url.with(name, value);
    }
    for member in members {
        url = url.with("member", member);
    }
    url.to_string()
}

fn refusal(harness: &Harness, url: &str) -> String {
    match harness.try_open(url, Access::READ_WRITE) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

fn write_at(harness: &Harness, volume: &Arc<dyn Volume>, lba: u64, blocks: u32, byte: u8) {
    let volume = Arc::clone(volume);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 2);
        let data = vec![byte; blocks as usize * volume.geometry().block_size.bytes() as usize];
        assert_eq!(client.write(lba, blocks, &data).await, Ok(()));
    });
}

#[test]
fn members_are_found_by_their_labels_in_any_order() {
    let seed = seed("members_are_found_by_their_labels_in_any_order");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let members = ["a", "b", "c"].map(member);
    let create = [("create", "1"), ("chunk", "8k")];
    let volume = harness.open(&stripe(&members, &create));
    // Two chunks of data for each member are left behind the label's area.
    assert_eq!(volume.geometry().blocks, 3 * 512);
    write_at(&harness, &volume, 0, 100, 1);
    write_at(&harness, &volume, 3, 1, 2);
    drop(volume);
    let orders = [[0, 1, 2], [2, 1, 0], [1, 2, 0]];
    for order in orders {
        let members = order.map(|index: usize| members[index].clone());
        // Made already: create=1 finds it so.
        for parameters in [&[][..], &create] {
            let volume = harness.open(&stripe(&members, parameters));
            let read = harness.run(0, move |reactor| async move {
                Client::open(&volume, &reactor, 1).read(2, 3).await
            });
            let expected = [vec![1; 4096], vec![2; 4096], vec![1; 4096]].concat();
            assert_eq!(read, Ok(expected));
        }
    }
}

#[test]
fn which_member_does_not_say_how_it_is_is_told_by_name() {
    let seed = seed("which_member_does_not_say_how_it_is_is_told_by_name");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let set = harness.open(&stripe(&["a", "b"].map(member), &[("create", "1")]));
    let report = harness.run(0, move |reactor| async move { set.health(&reactor).await });
    assert_eq!(report.health, None);
    let expected = ["a", "b"].map(|name| {
        let reason = "this system has no NVMe drives";
        format!("{}: {reason}", member(name))
    });
    assert_eq!(report.unknown, expected);
}

#[test]
fn a_wrong_member_is_refused_by_name() {
    let seed = seed("a_wrong_member_is_refused_by_name");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let [a, b, c, d, e] = ["a", "b", "c", "d", "e"].map(member);
    let create = [("create", "1")];
    drop(harness.open(&stripe(&[a.clone(), b.clone(), c.clone()], &create)));
    drop(harness.open(&stripe(&[d.clone(), e.clone()], &create)));

    let missing = refusal(&harness, &stripe(&[a.clone(), c.clone()], &[]));
    assert!(missing.contains("lacks member 1"), "{missing}");
    let foreign = refusal(&harness, &stripe(&[a.clone(), b.clone(), d.clone()], &[]));
    assert!(
        foreign.contains("/d") && foreign.contains("belongs to the stripe"),
        "{foreign}"
    );
    let twice = refusal(&harness, &stripe(&[a.clone(), a.clone()], &[]));
    assert!(twice.contains("in use"), "{twice}");
    let chunk = refusal(
        &harness,
        &stripe(&[a.clone(), b.clone(), c.clone()], &[("chunk", "64k")]),
    );
    assert!(
        chunk.contains("chunk=65536") && chunk.contains("128 KiB"),
        "{chunk}"
    );
    let fresh = refusal(&harness, &stripe(&[member("f")], &[]));
    assert!(
        fresh.contains("no label of a set") && fresh.contains("create=1"),
        "{fresh}"
    );
    let blocks = refusal(
        &harness,
        &stripe(
            &[a.clone(), "mem:?size=3M&block_size=512".to_owned()],
            &create,
        ),
    );
    assert!(
        blocks.contains("512") && blocks.contains("4096"),
        "{blocks}"
    );
    let short = refusal(&harness, &stripe(&["mem:?size=1M".to_owned()], &create));
    assert!(short.contains("1048576"), "{short}");
    let other = harness.try_open(
        &stripe(&[a.clone(), "mem:?sise=1M".to_owned()], &[]),
        Access::READ_WRITE,
    );
    let error = other.err().unwrap();
    assert!(
        matches!(error, OpenError::Member { member: 1, .. }),
        "{error}"
    );
    let said = error.to_string();
    assert!(
        said.contains("no parameter 'sise'; did you mean size=?"),
        "{said}"
    );
    assert!(refusal(&harness, "stripe:?chunk=128k").contains("need member="));
    assert!(refusal(&harness, &stripe(&[a], &[("chunk", "5000")])).contains("4096"));

    // Damaged: a label with one byte changed.
    let volume = harness.open("file:/b?size=3M");
    let damaged = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 1);
        let mut label = client.read(0, 1).await.unwrap();
        label[24] ^= 1;
        client.write(0, 1, &label).await
    });
    assert_eq!(damaged, Ok(()));
    let error = refusal(&harness, &stripe(&["a", "b", "c"].map(member), &[]));
    assert!(
        error.contains("/b") && error.contains("checksum"),
        "{error}"
    );
}

#[test]
fn what_a_member_carries_is_destroyed_only_when_told() {
    let seed = seed("what_a_member_carries_is_destroyed_only_when_told");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = harness.open("file:/b?size=3M");
    let recognised = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 1);
        let mut block = vec![0; 4096];
        block[1080..1082].copy_from_slice(&[0x53, 0xEF]);
        assert_eq!(client.write(0, 1, &block).await, Ok(()));
        drop(client);
        probe::contents_of(&reactor, &volume).await
    });
    assert!(recognised.unwrap().unwrap().contains("ext4"));
    let members = ["a", "b"].map(member);
    let error = refusal(&harness, &stripe(&members, &[("create", "1")]));
    assert!(error.contains("/b") && error.contains("ext4"), "{error}");
    assert!(error.contains("destroy_data=1"), "{error}");
    // The refusal left the other member as it was.
    let error = refusal(&harness, &stripe(&members, &[]));
    assert!(
        error.contains("/a") && error.contains("no label of a set"),
        "{error}"
    );
    let read_only = harness.try_open(&stripe(&members, &[("create", "1")]), Access::READ_ONLY);
    assert!(read_only.is_err());
    let destroy = [("create", "1"), ("destroy_data", "1")];
    drop(harness.open(&stripe(&members, &destroy)));
    let again = harness.open("file:/a?size=3M");
    let found = harness.run(0, move |reactor| async move {
        probe::contents_of(&reactor, &again).await
    });
    assert_eq!(found, Ok(Some("a member of a set of Weir's")));
    drop(harness.open(&stripe(&members, &[])));
}

/// One member fails: so does every request that touches it, once, and no other.
#[test]
fn the_error_of_a_part_is_the_error_of_the_whole() {
    let seed = seed("the_error_of_a_part_is_the_error_of_the_whole");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let members = [member("a"), "mem:?size=3M".to_owned()];
    let create = [("create", "1"), ("chunk", "4k")];
    let volume = harness.open(&stripe(&members, &create));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        world.change_faults(|faults| {
            faults.read_error_probability = 1.0;
            faults.write_error_probability = 1.0;
        });
        assert_eq!(
            client.write(0, 2, &[1; 8192]).await,
            Err(VolumeError::Medium)
        );
        assert_eq!(client.read(0, 8).await, Err(VolumeError::Medium));
        assert_eq!(client.write(1, 1, &[1; 4096]).await, Ok(()));
        assert_eq!(client.read(1, 1).await, Ok(vec![1; 4096]));
    });
}

/// One member is lost: what the other has done of a write is not told as not done.
#[test]
fn what_one_member_did_is_not_told_as_not_done() {
    let seed = seed("what_one_member_did_is_not_told_as_not_done");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let guards = Arc::new(Mutex::new(Vec::<Arc<Guard>>::new()));
    let mut registry = Registry::standard();
    let made = Arc::clone(&guards);
    registry.register(
        "guarded",
        Arc::new(move |request: OpenRequest| {
            let made = Arc::clone(&made);
            Box::pin(async move {
                let url = "mem:?size=3M".parse().unwrap();
                let opened = request
                    .registry
                    .open(&request.reactor, &url, request.access);
                let guard = Guard::new(opened.await?, GuardConfig::default()).unwrap();
                made.lock().unwrap().push(Arc::clone(&guard));
                Ok::<Arc<dyn Volume>, _>(guard)
            })
        }),
    );
    let members = [member("a"), "guarded:".to_owned()];
    let url = stripe(&members, &[("create", "1"), ("chunk", "4k")]);
    let volume = harness
        .open_with(&registry, &url, Access::READ_WRITE)
        .unwrap();
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        assert_eq!(client.write(0, 2, &[1; 8192]).await, Ok(()));
        guards.lock().unwrap()[0].retire(Box::new(|_| {}));
        let both = client.write(0, 2, &[2; 8192]).await;
        assert_eq!(both, Err(VolumeError::TimedOut));
        assert_eq!(client.read(0, 1).await, Ok(vec![2; 4096]));
        let lost = client.write(1, 1, &[3; 4096]).await;
        assert_eq!(lost, Err(VolumeError::Lost));
    });
}

/// Whatever interrupts the making of a set, what is left is no set, or a whole one; and where there is none it can be made after all.
#[test]
fn a_set_is_made_whole_or_not_at_all() {
    use weir_reactor::sim::{Config, Crash, Simulation};
    let seed = seed("a_set_is_made_whole_or_not_at_all");
    let (mut whole, mut none) = (0, 0);
    for round in 0..30_u64 {
        let simulation = Simulation::new(Config {
            seed: seed.wrapping_add(round),
            ..Config::default()
        });
        let world = simulation.world();
        let _ = simulation.host("host");
        let open = |reactor: weir_reactor::Reactor, url: String| async move {
            let url = url.parse().unwrap();
            weir_volume::Registry::standard()
                .open(&reactor, &url, Access::READ_WRITE)
                .await
        };
        let making = stripe(&["a", "b", "c"].map(member), &[("create", "1")]);
        // What was labelled before is said to be somebody's.
        let again = stripe(
            &["a", "b", "c"].map(member),
            &[("create", "1"), ("destroy_data", "1")],
        );
        let config = weir_reactor::ReactorConfig::default();
        let started = simulation.system(0).start_reactor(
            config,
            Box::new(move |reactor| {
                Box::pin(async move {
                    let _ = open(reactor, making).await;
                })
            }),
        );
        drop(started.unwrap());
        simulation.run_for(std::time::Duration::from_micros(400 * round));
        world.crash(0, Crash::Power);
        world.restart(0);
        let opening = stripe(&["a", "b", "c"].map(|name| format!("file:/{name}")), &[]);
        let first = "file:/a".to_owned();
        let (opened, labelled) = simulation.run(0, move |reactor| async move {
            let labelled = match open(reactor.clone(), first).await {
                Ok(volume) => probe::contents_of(&reactor, &volume)
                    .await
                    .unwrap()
                    .is_some(),
                Err(_) => false,
            };
            let opened = match open(reactor.clone(), opening).await {
                Ok(_) => return (None, labelled),
                Err(error) => error.to_string(),
            };
            open(reactor, again).await.unwrap_or_else(|error| {
                panic!("round {round}: {opened}, and it cannot be made either: {error}")
            });
            (Some(opened), labelled)
        });
        // The first member's label is the last to be written, and may be cut off as any write.
        let is_cut_off = |error: &String| labelled && error.contains("its stripe label is damaged");
        assert!(
            opened
                .as_ref()
                .map_or(labelled, |error| !labelled || is_cut_off(error)),
            "round {round}: member 0 tells whether there is a set: {opened:?}, {labelled}"
        );
        let opened = opened.is_none();
        if opened { whole += 1 } else { none += 1 }
    }
    assert!(whole > 0 && none > 0, "{whole} whole, {none} not");
}

#[test]
fn a_cancelled_write_of_which_a_part_failed_does_not_say_that_nothing_was_done() {
    let seed = seed("a_cancelled_write_of_which_a_part_failed_does_not_say_that_nothing_was_done");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let members = ["a", "b"].map(member);
    let volume = harness.open(&stripe(&members, &[("create", "1"), ("chunk", "4k")]));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        let usual = world.faults();
        for round in 1..=200u8 {
            let before = client.read(0, 2).await.unwrap();
            world.change_faults(|faults| faults.write_error_probability = 0.5);
            let token = client.submit(write(0, 2, &[round; 8192]));
            reactor
                .sleep(Duration::from_micros(world.random() % 300))
                .await;
            client.cancel(token);
            let result = client.completion(token).await.0;
            world.set_faults(usual.clone());
            if result.is_err_and(VolumeError::had_no_effect) {
                let after = client.read(0, 2).await.unwrap();
                assert!(
                    after == before,
                    "round {round}: {result:?}, and it was done"
                );
            }
        }
    });
}
