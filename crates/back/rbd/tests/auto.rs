//! Volumes with `bdevs_per_cluster=auto`: which of them gets a client of its own by what is measured. On the library that stands for
//! Ceph's.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weir_block::Volume;
use weir_rbd::{AutoLimits, RbdHost, Reason, VolumeReport};
use weir_testing::ceph::{Cluster, host_with, open, undisturbed, until};
use weir_testing::harness::{Client, Harness};

const BLOCK: usize = 4096;
/// Operations under way at once of the volume that does most, and of the others.
const DEPTHS: [u32; 3] = [1, 16, 2];

/// What the one thread that a client has there is called.
const CLIENT_THREAD: &str = "fake-librbd";

/// One test at a time: the threads of clients that connect at the same time cannot be told apart.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Three images of one client under load.
struct Loaded {
    cluster: Cluster,
    harness: Harness,
    host: Arc<RbdHost>,
    volumes: Vec<Arc<dyn Volume>>,
    end: Arc<AtomicBool>,
}

impl Loaded {
    fn new(cluster: Cluster, limits: AutoLimits, sharing: [&str; 3]) -> Self {
        let (harness, host) = (Harness::real(1), host_with("a", limits));
        let mut loaded = Loaded {
            cluster,
            harness,
            host,
            volumes: Vec::new(),
            end: Arc::default(),
        };
        loaded.open(sharing, "");
        assert_eq!(loaded.host.clients().len(), 1, "they share one");
        loaded.begin(0);
        loaded
    }

    /// Opens three more images.
    fn open(&mut self, sharing: [&str; 3], more: &str) {
        for sharing in sharing {
            let number = self.volumes.len();
            self.cluster
                .tell(&format!("image rbd/image{number} {}", 64 * BLOCK));
            let conf = self.cluster.conf.display();
            let url =
                format!("rbd:rbd/image{number}?conf={conf}&bdevs_per_cluster={sharing}{more}");
            self.volumes.push(open(&self.harness, &self.host, &url));
        }
    }

    /// Begins to write to three of them.
    fn begin(&self, first: usize) {
        for (volume, depth) in self.volumes[first..].iter().zip(DEPTHS) {
            let (volume, stop) = (Arc::clone(volume), Arc::clone(&self.end));
            self.harness.run(0, move |reactor| async move {
                for lane in 0..depth {
                    let (stop, client) = (Arc::clone(&stop), Client::open(&volume, &reactor, 1));
                    let task = async move {
                        while !stop.load(Ordering::Relaxed) {
                            let data = vec![lane as u8; BLOCK];
                            assert_eq!(client.write(u64::from(lane), 1, &data).await, Ok(()));
                        }
                    };
                    reactor.spawn(task).detach();
                }
            });
        }
    }

    fn report(&self, number: usize) -> VolumeReport {
        let name = self.volumes[number].name();
        let mut reports = self.host.volumes().into_iter();
        reports.find(|report| report.url == name).unwrap()
    }

    fn reason(&self, number: usize) -> Option<Reason> {
        self.report(number).own_client
    }

    /// Waits until a volume has moved. Says no where the attempt does not count: the machine stood still, so that what was in flight did
    /// not end in time, or one look saw only a part of what was done.
    fn has_moved(&self, number: usize) -> bool {
        let is_disturbed = || {
            let others = (0..self.volumes.len()).filter(|&other| other != number);
            self.report(number).moves_called_off > 0
                || others.into_iter().any(|other| self.reason(other).is_some())
        };
        until("it moves", || {
            self.reason(number).is_some() || is_disturbed()
        });
        self.reason(number).is_some()
    }

    /// Everything goes on for so many more looks.
    fn goes_on(&self) {
        let ended = self.cluster.ask("performed write");
        std::thread::sleep(Duration::from_secs(2));
        until("it goes on", || self.cluster.ask("performed write") > ended);
    }

    fn end(self) {
        self.end.store(true, Ordering::Relaxed);
        // Each writer has it: what one submits while all is closed fails.
        until("the writers end", || Arc::strong_count(&self.end) == 1);
        let (host, volumes) = (self.host, self.volumes);
        drop(volumes);
        let closed = Arc::clone(&host);
        self.harness
            .run(0, move |_| async move { closed.close_all().await });
        until("clients end", || host.clients().is_empty());
    }
}

const LIMITS: AutoLimits = AutoLimits {
    look: Duration::from_millis(100),
    looks: 2,
    // Whatever else runs on this machine.
    busy_percent: 5,
    own_clients_max: 1,
};

#[test]
fn the_volume_that_does_most_on_a_busy_client_gets_its_own() {
    let _turn = turn();
    undisturbed(|| {
        let cluster = Cluster::new();
        cluster.tell("work_us 500");
        let loaded = Loaded::new(cluster, LIMITS, ["auto", "auto", "auto"]);
        if !loaded.has_moved(1) {
            loaded.end();
            return false;
        }
        let reason = loaded.reason(1).unwrap();
        let Reason::Thread {
            name,
            percent,
            bound_percent: 5,
        } = &reason
        else {
            panic!("{reason}")
        };
        assert!(*percent >= 5, "{reason}");
        assert_eq!(name, CLIENT_THREAD);
        assert_eq!(loaded.host.clients().len(), 2);
        let own = loaded.report(1).client.unwrap();
        let shared = || {
            let mut clients = loaded.host.clients().into_iter();
            clients.find(|client| !client.own).unwrap()
        };
        assert_ne!(shared().address, own);
        until("its image there is closed", || shared().images == 2);
        until("it is told what its threads do", || {
            let busiest = shared().busiest_thread;
            busiest.is_some_and(|thread| thread.name == CLIENT_THREAD)
        });
        // As many have a client of their own as may: the others stay, however busy theirs is. Nothing moves twice.
        loaded.goes_on();
        assert_eq!((loaded.reason(0), loaded.reason(2)), (None, None));
        assert_eq!(loaded.report(1).moves, 1);
        assert_eq!(loaded.host.clients().len(), 2);
        for number in 0..3 {
            let report = loaded.report(number);
            assert_eq!((report.reopened, report.moves_called_off), (0, 0));
            assert_eq!(report.trouble, None);
        }
        loaded.end();
        true
    });
}

#[test]
fn what_is_under_way_at_once_is_a_limit_as_the_client_is_configured() {
    let _turn = turn();
    undisturbed(|| {
        let cluster = Cluster::new();
        let mut conf = std::fs::OpenOptions::new();
        let mut conf = conf.append(true).open(&cluster.conf).unwrap();
        conf.write_all(b"objecter inflight ops = 8\n").unwrap();
        cluster.tell("latency_us 5000");
        let limits = AutoLimits {
            busy_percent: u32::MAX,
            ..LIMITS
        };
        // The one that does most is not to go.
        let loaded = Loaded::new(cluster, limits, ["auto", "32", "auto"]);
        if !loaded.has_moved(2) {
            loaded.end();
            return false;
        }
        let reason = loaded.reason(2).unwrap();
        assert!(
            matches!(
                reason,
                Reason::Operations {
                    bound: 8,
                    mean: 8..
                }
            ),
            "{reason}"
        );
        loaded.goes_on();
        assert_eq!((loaded.reason(0), loaded.reason(1)), (None, None));
        loaded.end();
        true
    });
}

/// Where another client connected before the first image was open nobody knows whose threads are whose, and none are looked at.
#[test]
fn threads_that_came_together_with_anothers_are_not_told() {
    let _turn = turn();
    undisturbed(|| {
        let cluster = Cluster::new();
        let mut conf = std::fs::OpenOptions::new();
        let mut conf = conf.append(true).open(&cluster.conf).unwrap();
        conf.write_all(b"objecter_inflight_ops = 4\n").unwrap();
        cluster.tell("latency_us 5000");
        cluster.tell("work_us 500");
        cluster.tell("image rbd/first 4096");
        let (harness, host) = (Harness::real(1), host_with("a", LIMITS));
        cluster.tell("open_hangs on");
        let first = std::thread::scope(|scope| {
            scope.spawn(|| {
                until("it is being opened", || cluster.ask("opening") == 1);
                drop(Cluster::new().images());
                cluster.tell("open_hangs off");
            });
            let url = cluster.url("&bdevs_per_cluster=auto");
            open(&harness, &host, &url.replace("rbd/image", "rbd/first"))
        });
        let mut loaded = Loaded {
            cluster,
            harness,
            host,
            volumes: Vec::new(),
            end: Arc::default(),
        };
        loaded.open(["auto", "auto", "auto"], "");
        assert_eq!(loaded.host.clients().len(), 1, "they share one");
        loaded.begin(0);
        if !loaded.has_moved(1) {
            drop(first);
            loaded.end();
            return false;
        }
        let reason = loaded.reason(1).unwrap();
        assert!(matches!(reason, Reason::Operations { .. }), "{reason}");
        let clients = loaded.host.clients();
        let shared = clients.iter().find(|client| !client.own).unwrap();
        assert_eq!((&shared.busiest_thread, shared.cost), (&None, None));
        drop(first);
        loaded.end();
        true
    });
}

/// What keeps one image from being opened on another client keeps no other.
#[test]
fn an_image_that_cannot_be_opened_on_another_client_stays_alone() {
    let _turn = turn();
    undisturbed(|| {
        let cluster = Cluster::new();
        let mut conf = std::fs::OpenOptions::new();
        let mut conf = conf.append(true).open(&cluster.conf).unwrap();
        conf.write_all(b"objecter_inflight_ops = 4\n").unwrap();
        cluster.tell("latency_us 5000");
        let limits = AutoLimits {
            busy_percent: u32::MAX,
            ..LIMITS
        };
        let loaded = Loaded::new(cluster, limits, ["auto", "auto", "auto"]);
        loaded
            .cluster
            .tell("configure rbd/image1 rbd_cache_policy writeback");
        loaded.cluster.tell("configure rbd/image1 rbd_cache true");
        if !loaded.has_moved(2) {
            loaded.end();
            return false;
        }
        assert_eq!(loaded.reason(1), None);
        assert_eq!(loaded.report(1).moves_called_off, 1);
        loaded.end();
        true
    });
}

/// As many have a client of their own as may, also where several are about to have one at the same time.
#[test]
fn clients_that_connect_count() {
    let _turn = turn();
    undisturbed(|| {
        let cluster = Cluster::new();
        let mut conf = std::fs::OpenOptions::new();
        let mut conf = conf.append(true).open(&cluster.conf).unwrap();
        conf.write_all(b"objecter_inflight_ops = 4\n").unwrap();
        cluster.tell("latency_us 5000");
        let limits = AutoLimits {
            busy_percent: u32::MAX,
            ..LIMITS
        };
        let mut loaded = Loaded::new(cluster, limits, ["auto", "auto", "auto"]);
        loaded.open(["auto", "auto", "auto"], "&cache=writethrough");
        // None is connected before both are found to be busy.
        loaded.cluster.tell("connect_hangs on");
        if loaded.host.clients().len() > 2 {
            // The machine stood still: one of the first has moved.
            loaded.cluster.tell("connect_hangs off");
            loaded.end();
            return false;
        }
        loaded.begin(3);
        loaded.goes_on();
        loaded.cluster.tell("connect_hangs off");
        let all = || loaded.host.volumes();
        let moved = || all().iter().any(|volume| volume.moves > 0);
        let called_off = || {
            all()
                .iter()
                .map(|volume| volume.moves_called_off)
                .sum::<u64>()
        };
        // One of the two finds no room. The machine stood still where neither does better.
        until("one moves", || moved() || called_off() > 1);
        if !moved() {
            loaded.end();
            return false;
        }
        loaded.goes_on();
        let moved = loaded.host.volumes();
        let moved: Vec<_> = moved.iter().filter(|volume| volume.moves > 0).collect();
        assert_eq!(moved.len(), 1, "{moved:?}");
        loaded.end();
        true
    });
}

#[test]
fn a_client_that_cannot_be_had_is_not_tried_again_at_once() {
    let _turn = turn();
    let cluster = Cluster::new();
    cluster.tell("latency_us 5000");
    let limits = AutoLimits {
        busy_percent: u32::MAX,
        own_clients_max: 3,
        ..LIMITS
    };
    let mut conf = std::fs::OpenOptions::new();
    let mut conf = conf.append(true).open(&cluster.conf).unwrap();
    conf.write_all(b"objecter_inflight_ops = 4\n").unwrap();
    let loaded = Loaded::new(cluster, limits, ["auto", "auto", "auto"]);
    loaded.cluster.tell("connect_fails 111");
    until("it is called off", || {
        loaded.report(1).moves_called_off == 1
    });
    loaded.goes_on();
    for number in 0..3 {
        assert_eq!(loaded.reason(number), None);
        assert_eq!(
            loaded.report(number).moves_called_off,
            u64::from(number == 1)
        );
    }
    assert_eq!(loaded.host.clients().len(), 1);
    loaded.end();
}
