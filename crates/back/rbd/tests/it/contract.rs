//! The contract of volumes on images: of the library that stands for Ceph's always, of a cluster where `CEPH_CONF` names one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_block::{BlockSize, Operation, Volume};
use weir_rbd::{
    AutoLimits, Ceph, Credentials, Images, Libraries, NewImage, NotMoved, RbdHost, Reason,
    WatchLimits,
};
use weir_testing::ceph::{self, Cluster, host, open, try_open};
use weir_testing::contract::{Kind, contract};
use weir_testing::harness::{self, Client, Harness, seed};
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

/// What is deallocated in whole units reads as zeroes, wherever it lies on objects.
fn whole_units_read_as_zeroes(harness: &Harness, host: &Arc<RbdHost>, url: &str, unit_bytes: u64) {
    let volume = open(harness, host, url);
    let geometry = volume.geometry();
    let unit = geometry.deallocate_blocks;
    assert_eq!(u64::from(unit) << geometry.block_size.shift(), unit_bytes);
    let opened = Arc::clone(&volume);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&opened, &reactor, 1);
        let data = vec![0xa5; unit as usize * geometry.block_size.bytes() as usize];
        for number in 0..8 {
            let written = client.write(number * u64::from(unit), unit, &data).await;
            assert_eq!(written, Ok(()));
        }
        let deallocate = |lba, blocks| client.done(Operation::Deallocate { lba, blocks });
        assert_eq!(deallocate(u64::from(unit), u64::from(unit)).await, Ok(()));
        assert_eq!(
            deallocate(u64::from(unit) * 3, u64::from(unit) * 2).await,
            Ok(())
        );
        for number in 0..8 {
            let read = client.read(number * u64::from(unit), unit).await.unwrap();
            let is_zero = matches!(number, 1 | 3 | 4);
            let byte = if is_zero { 0 } else { 0xa5 };
            assert!(read.iter().all(|&read| read == byte), "unit {number}");
        }
    });
    drop(volume);
    let host = Arc::clone(host);
    harness.run(0, move |_| async move { host.close_all().await });
}

/// Stripes smaller than what librbd discards in, and no power of two of objects.
#[test]
fn a_striped_image_of_the_fake_library() {
    let seed = seed("a_striped_image_of_the_fake_library");
    let cluster = Cluster::with_image(6 << 20);
    let harness = Harness::real(1);
    whole_units_read_as_zeroes(&harness, &host("a"), &cluster.url(""), 64 << 10);
    cluster.tell("stripe rbd/image 16384 3");
    whole_units_read_as_zeroes(&harness, &host("a"), &cluster.url(""), 192 << 10);
    all(&harness, &host("a"), &cluster.url(""), seed);
    // A block that is on two objects is none.
    cluster.tell("stripe rbd/image 2048 2");
    let refused = try_open(
        &harness,
        &host("a"),
        &cluster.url("&block_size=4096"),
        Access::READ_WRITE,
    );
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("stripe unit of 2048 bytes"), "{refused}");
    let volume = open(&harness, &host("a"), &cluster.url(""));
    assert_eq!(volume.geometry().block_size, BlockSize::B512);
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
    assert_eq!(write(&taken), Ok(()));
    // It was cut off: had the end of its watch been waited for, that would not have been needed.
    assert_eq!(write(&volume), Err(weir_block::VolumeError::TimedOut));
    ceph::until("it is given up", || host.volumes()[0].phase == "gone");
    assert_eq!(write(&taken), Ok(()));
    // Blocklisted by hand it comes back by itself.
    let client = again.clients()[0].address.clone();
    println!("client {client}");
    let client = client.trim_start_matches("v2:").trim_start_matches("v1:");
    let listed = std::process::Command::new("ceph")
        .args(["osd", "blocklist", "add", client, "60"])
        .status();
    assert!(listed.unwrap().success());
    ceph::until("it is noticed", || write(&taken).is_err());
    assert_eq!(write(&taken), Ok(()), "{:?}", again.volumes());
    assert_eq!(again.volumes()[0].reopened, 1);
    drop((volume, taken));
    harness.run(0, move |_| async move { again.close_all().await });
}

/// Images of the cluster that `CEPH_CONF` names, made for one test.
struct Real {
    images: Images,
    pool: String,
    conf: String,
    made: Vec<String>,
}

impl Real {
    /// None where no cluster is named.
    fn new() -> Option<Self> {
        let Ok(conf) = std::env::var("CEPH_CONF") else {
            println!("skipped: CEPH_CONF names no cluster");
            return None;
        };
        let pool = std::env::var("WEIR_TEST_POOL").unwrap_or_else(|_| "weir".to_owned());
        let credentials = Credentials {
            conf: Some(conf.clone()),
            ..Credentials::default()
        };
        let ceph = Ceph::new(Libraries::default());
        let images = Images::connect(&ceph, &credentials, &pool, "").unwrap();
        Some(Real {
            images,
            pool,
            conf,
            made: Vec::new(),
        })
    }

    /// A new image; its URL.
    fn image(&mut self, name: &str) -> String {
        self.image_with(name, &[])
    }

    /// With what `rbd create` takes beside; made with a client of its own where that is anything.
    fn image_with(&mut self, name: &str, options: &[&str]) -> String {
        let name = format!("{name}-{}", std::process::id());
        let new = NewImage {
            bytes: 9 << 20,
            ..NewImage::default()
        };
        if options.is_empty() {
            self.images.create(&name, &new).unwrap();
        } else {
            let mut command = std::process::Command::new("rbd");
            command.args(["create", "--size", "9M"]).args(options);
            let made = command.arg(format!("{}/{name}", self.pool)).status();
            assert!(made.unwrap().success());
        }
        let url = format!("rbd:{}/{name}?conf={}", self.pool, self.conf);
        self.made.push(name);
        url
    }

    /// Everything was closed: nothing is in use.
    fn end(self) {
        for name in &self.made {
            self.images.trash(name, 0).unwrap();
        }
    }
}

fn identity(name: &str) -> weir_rbd::Identity {
    weir_rbd::Identity {
        id: format!("{name}-{}", std::process::id()),
        name: "contract test".to_owned(),
    }
}

#[test]
fn images_of_a_real_cluster() {
    let _others = ceph::connects();
    let Some(mut real) = Real::new() else { return };
    let seed = seed("images_of_a_real_cluster");
    let url = real.image("contract");
    let host = RbdHost::new(identity("contract"), Libraries::default());
    let harness = Harness::real(1);
    all(&harness, &host, &url, seed);
    whole_units_read_as_zeroes(&harness, &host, &url, 64 << 10);
    // A log of writes on this machine, as it may be configured for an image.
    let logged = real.image("logged");
    let name = format!("{}/{}", real.pool, real.made.last().unwrap());
    let configure = |arguments: &[&str]| {
        let mut command = std::process::Command::new("rbd");
        let configured = command.args(["config", "image"]).args(arguments).status();
        assert!(configured.unwrap().success());
    };
    configure(&["set", &name, "rbd_persistent_cache_mode", "ssd"]);
    let refused = try_open(&harness, &host, &logged, Access::READ_WRITE);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(
        refused.contains(&format!(
            "`rbd config image rm {name} rbd_persistent_cache_mode`"
        )),
        "{refused}"
    );
    configure(&["rm", &name, "rbd_persistent_cache_mode"]);
    drop(open(&harness, &host, &logged));
    let striped = real.image_with("striped", &["--stripe-unit", "16K", "--stripe-count", "3"]);
    whole_units_read_as_zeroes(&harness, &host, &striped, 192 << 10);
    ownership(&harness, &host, &url);
    let read_only = try_open(&harness, &host, &url, Access::READ_ONLY).unwrap();
    assert!(read_only.geometry().read_only);
    drop(read_only);
    harness.run(0, move |_| async move { host.close_all().await });
    real.end();
}

/// The contract, with everything that it checks, while the volume moves from one client to the next all the time.
#[test]
fn an_image_of_a_real_cluster_moves_under_load() {
    let _others = ceph::connects();
    let Some(mut real) = Real::new() else { return };
    let seed = seed("an_image_of_a_real_cluster_moves_under_load");
    let url = format!("{}&bdevs_per_cluster=auto", real.image("moves"));
    let host = RbdHost::new(identity("moves"), Libraries::default());
    let harness = Harness::real(1);
    let volume = open(&harness, &host, &url);
    let end = Arc::new(AtomicBool::new(false));
    let (stop, mover, moving) = (Arc::clone(&end), Arc::clone(&host), url.clone());
    let mover = std::thread::spawn(move || {
        let (mut moves, mut longest) = (0u64, std::time::Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let began = std::time::Instant::now();
            match mover.give_own_client(&moving) {
                Ok(()) => moves += 1,
                // It is resized, what is in flight takes long, or librbd has buffers still of commands that were cancelled.
                Err(NotMoved::Busy | NotMoved::InFlight(_) | NotMoved::Orphans(_)) => continue,
                Err(error) => panic!("{error}"),
            }
            longest = longest.max(began.elapsed());
        }
        println!("{moves} moves, the longest took {longest:?} with all that belongs to it");
        moves
    });
    contract(&harness, &volume, RETAINS, seed);
    let guarded = guarded(Arc::clone(&volume), Some(BlockSize::B512));
    contract(&harness, &guarded, RETAINS, seed.wrapping_add(1));
    drop(guarded);
    end.store(true, Ordering::Relaxed);
    let moves = mover.join().unwrap();
    assert!(moves > 0);
    let report = &host.volumes()[0];
    assert_eq!(
        (report.moves, report.reopened, report.orphans),
        (moves, 0, 0)
    );
    assert_eq!(report.own_client, Some(Reason::Asked));
    let stranger = RbdHost::new(identity("stranger"), Libraries::default());
    let refused = try_open(&harness, &stranger, &url, Access::READ_WRITE);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(refused.contains("gateway contract test"), "{refused}");
    drop(volume);
    harness.run(0, move |_| async move { host.close_all().await });
    real.end();
}

/// By measurement, with a limit that every load reaches.
#[test]
fn an_image_of_a_real_cluster_gets_its_own_client_when_the_shared_one_is_busy() {
    // Without a cluster it is skipped, and need not wait for other tests.
    let _alone = std::env::var_os("CEPH_CONF").map(|_| ceph::connects_alone());
    let Some(mut real) = Real::new() else { return };
    let limits = AutoLimits {
        look: std::time::Duration::from_millis(500),
        looks: 2,
        busy_percent: 0,
        own_clients_max: 1,
    };
    let host = RbdHost::with_limits(
        identity("auto"),
        Libraries::default(),
        limits,
        WatchLimits::default(),
    );
    let harness = Harness::real(1);
    let end = Arc::new(AtomicBool::new(false));
    let mut volumes = Vec::new();
    let mut loads = Vec::new();
    for (name, depth) in [("auto-much", 16u64), ("auto-less", 4)] {
        let url = format!("{}&bdevs_per_cluster=auto", real.image(name));
        let volume = open(&harness, &host, &url);
        let (sender, done) = weir_reactor::oneshot();
        let (loaded, stop) = (Arc::clone(&volume), Arc::clone(&end));
        harness.run(0, move |reactor| async move {
            let client = Client::open(&loaded, &reactor, depth as u32);
            drop(loaded);
            let task = async move {
                let mut round = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let data = round.to_le_bytes().repeat(4096 / 8);
                    let write = |block| client.submit(harness::write(block, 1, &data));
                    let tokens: Vec<_> = (0..depth).map(write).collect();
                    for token in tokens {
                        assert_eq!(client.completion(token).await.0, Ok(()));
                    }
                    let there = client.read(round % depth, 1).await.unwrap();
                    assert_eq!(there, data, "round {round}");
                }
                sender.send(round);
            };
            reactor.spawn(task).detach();
        });
        volumes.push(volume);
        loads.push(done);
    }
    let own = |number: usize| host.volumes()[number].own_client.clone();
    ceph::until("one moves", || own(0).is_some() || own(1).is_some());
    std::thread::sleep(std::time::Duration::from_secs(2));
    end.store(true, Ordering::Relaxed);
    let rounds: Vec<_> = loads.into_iter().map(|done| done.wait()).collect();
    println!("rounds {rounds:?}; {:?}, {:?}", own(0), own(1));
    assert!(
        rounds
            .iter()
            .all(|round| round.is_some_and(|round| round > 1))
    );
    assert!(
        matches!(own(0), Some(Reason::Thread { .. })),
        "{:?}",
        own(0)
    );
    assert_eq!(own(1), None);
    for client in host.clients() {
        println!("{client:?}");
    }
    assert_eq!(host.clients().len(), 2);
    drop(volumes);
    harness.run(0, move |_| async move { host.close_all().await });
    real.end();
}
