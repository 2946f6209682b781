//! What goes wrong with a cluster, and what becomes of requests then. On the library that stands for Ceph's.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_block::{Operation, Volume, VolumeError, VolumeEvent, Watcher};
use weir_rbd::{CephError, Libraries, Options, RbdHost, RbdVolume};
use weir_testing::ceph::{Cluster, host, open, try_open, undisturbed, until};
use weir_testing::harness::{self, Client, Harness};
use weir_volume::{Access, OpenError};

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
/// For how long it is watched that something does not happen.
const MOMENT: Duration = Duration::from_millis(100);

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

/// Submits an operation on reactor 0 and lets it be; what it ended with appears where this points.
fn begin(
    harness: &Harness,
    volume: &Arc<dyn Volume>,
    operation: impl FnOnce() -> Operation + Send + 'static,
) -> Arc<Mutex<Option<Result<(), VolumeError>>>> {
    let ended = Arc::new(Mutex::new(None));
    let (volume, result) = (Arc::clone(volume), Arc::clone(&ended));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 8);
        drop(volume);
        let task = async move {
            let answer = client.done(operation()).await;
            *result.lock().unwrap() = Some(answer);
        };
        reactor.spawn(task).detach();
    });
    ended
}

fn write(byte: u8) -> impl FnOnce() -> Operation + Send + 'static {
    move || harness::write(0, 1, &block(byte))
}

fn wait(ended: &Mutex<Option<Result<(), VolumeError>>>) -> Result<(), VolumeError> {
    until("an answer comes", || ended.lock().unwrap().is_some());
    ended.lock().unwrap().take().unwrap()
}

fn do_now(harness: &Harness, volume: &Arc<dyn Volume>, byte: u8) -> Result<(), VolumeError> {
    wait(&begin(harness, volume, write(byte)))
}

fn close(harness: &Harness, host: Arc<RbdHost>) {
    harness.run(0, move |_| async move { host.close_all().await });
}

#[derive(Default)]
struct Events(Mutex<Vec<VolumeEvent>>);

impl Watcher for Events {
    fn notice(&self, event: VolumeEvent) {
        self.0.lock().unwrap().push(event);
    }
}

#[test]
fn a_write_that_timed_out_is_answered_only_when_it_can_no_longer_land() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(
        &harness,
        &host,
        &cluster.url("&io_timeout=200ms&fence_timeout=1s"),
    );
    let events = Arc::new(Events::default());
    let watcher: Arc<dyn Watcher> = events.clone();
    volume.watch(Arc::downgrade(&watcher));
    let client = host.clients()[0].address.clone();
    // Nobody can be cut off while the monitors are away.
    cluster.tell("hang write");
    cluster.tell("monitors down");
    let ended = begin(&harness, &volume, write(0x11));
    until("it times out", || host.volumes()[0].phase == "fencing");
    // The second bound.
    until("the volume is lost", || {
        events.0.lock().unwrap().contains(&VolumeEvent::Lost)
    });
    until("it is said that the fence does not hold", || {
        events.0.lock().unwrap().contains(&VolumeEvent::Unfenced)
    });
    assert_eq!(*ended.lock().unwrap(), None, "it may land still");
    let queue = {
        let volume = Arc::clone(&volume);
        harness.run(0, move |reactor| async move {
            let sink = weir_block::Completions::new();
            volume.open_queue(&reactor, 1, sink).err()
        })
    };
    assert_eq!(
        queue,
        Some(VolumeError::Lost),
        "no queue is opened until the fence holds"
    );
    assert_eq!(cluster.ask(&format!("is_blocklisted {client}")), 0);
    cluster.tell("monitors up");
    assert_eq!(wait(&ended), Err(VolumeError::TimedOut));
    assert_eq!(
        cluster.ask(&format!("is_blocklisted {client}")),
        1,
        "answered before the fence"
    );
    until("it serves again", || host.volumes()[0].phase == "serving");
    until("it is said", || {
        events.0.lock().unwrap().contains(&VolumeEvent::Restored)
    });
    let said = events.0.lock().unwrap().clone();
    assert_eq!(
        said,
        [
            VolumeEvent::Lost,
            VolumeEvent::Unfenced,
            VolumeEvent::Fenced,
            VolumeEvent::Restored
        ]
    );
    assert_eq!(host.volumes()[0].orphans, 1, "librbd has its buffer still");
    // What hung goes on now: too late, and nothing is changed by it.
    cluster.tell("release");
    until("the orphan comes home", || host.volumes()[0].orphans == 0);
    assert_eq!(
        cluster.ask("byte rbd/image 0"),
        0,
        "it landed after its answer"
    );
    // It may time out again while the machine stands still.
    until("it is written", || do_now(&harness, &volume, 0x22).is_ok());
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x22);
    until("the old client is gone", || host.clients().len() == 1);
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_write_that_lands_late_but_before_the_fence_is_answered_as_done() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(
        &harness,
        &host,
        &cluster.url("&io_timeout=100ms&fence_timeout=600s"),
    );
    cluster.tell("hang write");
    cluster.tell("monitors down");
    let ended = begin(&harness, &volume, write(0x33));
    until("it times out", || host.volumes()[0].phase == "fencing");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(*ended.lock().unwrap(), None);
    cluster.tell("release");
    assert_eq!(wait(&ended), Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x33);
    cluster.tell("monitors up");
    until("it serves again", || host.volumes()[0].phase == "serving");
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_write_that_librados_gave_up_is_fenced_before_it_is_answered() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let client = host.clients()[0].address.clone();
    // It ends with ETIMEDOUT, and would be done a while later.
    cluster.tell("done_later write 700 1");
    assert_eq!(do_now(&harness, &volume, 0x44), Err(VolumeError::TimedOut));
    assert_eq!(cluster.ask(&format!("is_blocklisted {client}")), 1);
    // It is 0, except where the fence took longer than the write.
    let answered = cluster.ask("byte rbd/image 0");
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(
        cluster.ask("byte rbd/image 0"),
        answered,
        "it landed after its answer"
    );
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_read_that_times_out_is_answered_and_keeps_its_buffer() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&io_timeout=200ms"));
    let client = host.clients()[0].address.clone();
    cluster.tell("hang read");
    let read = || Operation::Read {
        lba: 0,
        blocks: 1,
        buffers: weir_block::ReadBuffers::Lend,
    };
    assert_eq!(
        wait(&begin(&harness, &volume, read)),
        Err(VolumeError::TimedOut)
    );
    assert_eq!(host.volumes()[0].orphans, 1);
    let trouble = host.volumes()[0].trouble.clone().unwrap();
    assert!(
        trouble.contains("Read of rbd/image failed: the cluster did not answer in time"),
        "{trouble}"
    );
    let used = harness.run(
        0,
        |reactor| async move { reactor.pool().usage().used_bytes },
    );
    assert!(used >= BLOCK, "the buffer is lent still");
    assert_eq!(
        cluster.ask(&format!("is_blocklisted {client}")),
        0,
        "a read needs no fence"
    );
    cluster.tell("release");
    until("the orphan comes home", || host.volumes()[0].orphans == 0);
    let used = harness.run(
        0,
        |reactor| async move { reactor.pool().usage().used_bytes },
    );
    assert_eq!(used, 0);
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_blocklisted_client_is_replaced() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    assert_eq!(do_now(&harness, &volume, 0x55), Ok(()));
    let client = host.clients()[0].address.clone();
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &volume, 0x66), Err(VolumeError::TimedOut));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x55);
    assert_eq!(
        do_now(&harness, &volume, 0x77),
        Ok(()),
        "it waits for the new client"
    );
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x77);
    let report = &host.volumes()[0];
    assert_eq!((report.reopened, &report.trouble), (1, &None));
    let why = report.reopened_why.as_ref().unwrap();
    assert!(why.contains("blocklisted"), "{why}");
    drop(volume);
    close(&harness, host);
}

/// Another gateway leaves word that it has the lock.
const OTHER_SIGNS: &str = "metadata rbd/image weir.owner 1 b 10.9.9.9:0/1 gateway-b";

/// Opens what is given up again, as `weir volume retry` does.
fn open_gone(harness: &Harness, host: &Arc<RbdHost>, url: &str) -> Result<(), CephError> {
    let (host, url) = (Arc::clone(host), url.to_owned());
    harness.run(0, move |_| async move { host.open_gone(&url).await })
}

#[test]
fn an_image_that_another_gateway_took_over_is_lost_until_someone_asks_for_it() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let url = cluster.url("");
    let volume = open(&harness, &host, &url);
    cluster.tell(OTHER_SIGNS);
    cluster.tell("lock rbd/image 10.9.9.9:0/1 alive");
    assert_eq!(do_now(&harness, &volume, 0x88), Err(VolumeError::Lost));
    until("it is given up", || host.volumes()[0].phase == "gone");
    let trouble = || host.volumes()[0].trouble.clone().unwrap_or_default();
    let told = "gateway gateway-b (client 10.9.9.9:0/1) has the image's lock";
    assert!(trouble().contains(told), "{}", trouble());
    assert!(trouble().contains("`weir volume retry`"), "{}", trouble());
    assert_eq!(cluster.ask("byte rbd/image 0"), 0);
    let refused = open_gone(&harness, &host, &url).unwrap_err().to_string();
    assert!(refused.contains(told), "{refused}");
    assert!(trouble().contains(told), "{}", trouble());
    assert_eq!(host.volumes()[0].phase, "gone");
    assert_eq!(cluster.ask("is_blocklisted 10.9.9.9:0/1"), 0);
    cluster.tell("unlock rbd/image 10.9.9.9:0/1");
    std::thread::sleep(MOMENT);
    assert_eq!(host.volumes()[0].phase, "gone", "nobody has asked for it");
    open_gone(&harness, &host, &url).unwrap();
    assert_eq!(host.volumes()[0].phase, "serving");
    assert_eq!(do_now(&harness, &volume, 0x89), Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x89);
    // It leaves alone what serves.
    open_gone(&harness, &host, &url).unwrap();
    assert_eq!(host.volumes()[0].reopened, 1);
    drop(volume);
    close(&harness, host);
}

/// As `rbd resize` or `rbd snap create`, which may come in between when a client is cut off.
#[test]
fn who_has_the_lock_for_a_moment_and_is_no_gateway_is_waited_for() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&fence_timeout=600s"));
    assert_eq!(do_now(&harness, &volume, 0x8a), Ok(()));
    cluster.tell("lock rbd/image 10.9.9.9:0/1 alive");
    let waits = begin(&harness, &volume, write(0x8b));
    let trouble = || host.volumes()[0].trouble.clone().unwrap_or_default();
    until("it is waited for", || {
        trouble().contains("10.9.9.9:0/1 has it, is alive, and is no gateway")
    });
    std::thread::sleep(MOMENT);
    assert_eq!(host.volumes()[0].phase, "reopening");
    assert_eq!(*waits.lock().unwrap(), None);
    assert_eq!(cluster.ask("is_blocklisted 10.9.9.9:0/1"), 0);
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x8a);
    cluster.tell("unlock rbd/image 10.9.9.9:0/1");
    assert_eq!(wait(&waits), Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x8b);
    drop(volume);
    close(&harness, host);
}

/// librbd says EROFS where another client has the lock, which may have let go of it when that is looked at.
#[test]
fn a_lock_that_someone_had_for_a_moment_while_it_was_taken_is_taken_after_all() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let client = host.clients()[0].address.clone();
    cluster.tell("acquire_fails 30");
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::TimedOut));
    assert_eq!(do_now(&harness, &volume, 2), Ok(()));
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_second_gateway_is_refused_and_a_dead_self_taken_over() {
    let cluster = Cluster::with_image(4 * MIB);
    let harness = Harness::real(1);
    let first = host("a");
    let volume = open(&harness, &first, &cluster.url(""));
    assert_eq!(do_now(&harness, &volume, 0x01), Ok(()));
    let refused = try_open(&harness, &host("b"), &cluster.url(""), Access::READ_WRITE);
    let Err(OpenError::InUse { reason, .. }) = refused.map(drop) else {
        panic!("two gateways write to one image")
    };
    assert!(reason.contains("gateway gateway-a"), "{reason}");
    let again = try_open(&harness, &first, &cluster.url(""), Access::READ_WRITE);
    let again = again.map(drop).unwrap_err();
    assert!(
        again.in_use() && again.to_string().contains("this process"),
        "{again}"
    );
    // To read it is open to all.
    drop(try_open(&harness, &host("b"), &cluster.url(""), Access::READ_ONLY).unwrap());
    // The same gateway after a kill: its earlier life's lock is there, and its watch is not over.
    let client = first.clients()[0].address.clone();
    let second = host("a");
    let taken = open(&harness, &second, &cluster.url(""));
    assert_eq!(cluster.ask(&format!("is_blocklisted {client}")), 1);
    assert_eq!(do_now(&harness, &taken, 0x02), Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x02);
    // Was it not dead after all, it does not take the lock back.
    assert_eq!(do_now(&harness, &volume, 0x03), Err(VolumeError::TimedOut));
    until("it is given up", || first.volumes()[0].phase == "gone");
    assert_eq!(do_now(&harness, &taken, 0x04), Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x04);
    drop(taken);
    close(&harness, second);
    assert_eq!(
        cluster.ask("is_locked rbd/image"),
        0,
        "a lock is given up in order"
    );
    drop(volume);
    close(&harness, first);
}

#[test]
fn a_holder_that_is_dead_is_no_obstacle() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    cluster.tell("lock rbd/image 10.9.9.9:0/1 dead");
    let volume = open(&harness, &host, &cluster.url(""));
    assert_eq!(cluster.ask("is_blocklisted 10.9.9.9:0/1"), 1);
    assert_eq!(do_now(&harness, &volume, 1), Ok(()));
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_full_pool_fails_writes_and_nothing_else() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    cluster.tell("full on");
    assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::NoSpace));
    let trouble = || host.volumes()[0].trouble.clone();
    let is_full = |trouble: Option<String>| {
        trouble
            .is_some_and(|trouble| trouble.contains("Write of rbd/image failed: the pool is full"))
    };
    assert!(is_full(trouble()));
    let read = || Operation::Read {
        lba: 0,
        blocks: 1,
        buffers: weir_block::ReadBuffers::Lend,
    };
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(wait(&begin(&harness, &volume, read)), Ok(()));
    assert!(is_full(trouble()), "that reads succeed says nothing of it");
    cluster.tell("full off");
    assert_eq!(do_now(&harness, &volume, 1), Ok(()));
    assert_eq!(trouble(), None, "its trouble is over");
    // A second without a failure ends it: where the machine has taken so long meanwhile, it is done again.
    let first = Instant::now();
    loop {
        cluster.tell("full on");
        let failed = Instant::now();
        assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::NoSpace));
        assert!(is_full(trouble()));
        cluster.tell("full off");
        assert_eq!(do_now(&harness, &volume, 1), Ok(()));
        let is_kept = is_full(trouble());
        if failed.elapsed() < Duration::from_secs(1) {
            assert!(
                is_kept,
                "one that succeeds between others that fail ends nothing"
            );
            break;
        }
        assert!(
            first.elapsed() < Duration::from_secs(300),
            "it always takes a second"
        );
    }
    drop(volume);
    close(&harness, host);
}

#[test]
fn what_an_operation_fails_with_is_told_to_its_host_and_to_the_operator() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&id=weir"));
    let read = || Operation::Read {
        lba: 0,
        blocks: 1,
        buffers: weir_block::ReadBuffers::Lend,
    };
    let key = "refuses the key of client.weir";
    for (class, errno, ends_with, told) in [
        // ENOSPC, EDQUOT, EPERM, EACCES, ENOENT, EIO, EINVAL, E2BIG; and of reads EROFS and ETIMEDOUT too.
        ("write", 28, VolumeError::NoSpace, "the pool is full"),
        ("write", 122, VolumeError::NoSpace, "at its quota"),
        ("write", 1, VolumeError::ReadOnly, key),
        ("read", 28, VolumeError::NoSpace, "the pool is full"),
        ("write", 13, VolumeError::ReadOnly, key),
        ("write", 2, VolumeError::Lost, "does not exist"),
        ("write", 5, VolumeError::Medium, "failed to read or write"),
        (
            "write",
            22,
            VolumeError::Medium,
            "finds the request invalid",
        ),
        ("write", 7, VolumeError::Medium, "errno 7"),
        ("read", 1, VolumeError::Lost, key),
        ("read", 2, VolumeError::Lost, "does not exist"),
        ("read", 5, VolumeError::Medium, "failed to read or write"),
        ("read", 30, VolumeError::Medium, "cannot be written to"),
        ("read", 110, VolumeError::TimedOut, "did not answer in time"),
    ] {
        let begin_one = || match class {
            "read" => begin(&harness, &volume, read),
            _ => begin(&harness, &volume, write(1)),
        };
        cluster.tell(&format!("fail {class} {errno} 1"));
        assert_eq!(wait(&begin_one()), Err(ends_with), "{class} {errno}");
        let trouble = host.volumes()[0].trouble.clone().unwrap();
        let kind = if class == "read" { "Read" } else { "Write" };
        assert!(
            trouble.contains(told) && trouble.contains(&format!("{kind} of rbd/image failed")),
            "{class} {errno}: {trouble}"
        );
        assert_eq!(wait(&begin_one()), Ok(()), "{class} {errno}");
    }
    assert_eq!(host.volumes()[0].phase, "serving");
    assert_eq!(host.volumes()[0].reopened, 0);
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_resize_by_someone_else_is_announced() {
    struct Count(AtomicU64);
    impl Watcher for Count {
        fn notice(&self, event: VolumeEvent) {
            assert_eq!(event, VolumeEvent::Resized);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let count = Arc::new(Count(AtomicU64::new(0)));
    let watcher: Arc<dyn Watcher> = count.clone();
    volume.watch(Arc::downgrade(&watcher));
    cluster.images().resize("image", 8 * MIB, false).unwrap();
    until("it is seen", || volume.geometry().length_bytes() == 8 * MIB);
    until("it is told", || count.0.load(Ordering::Relaxed) == 1);
    assert_eq!(volume.geometry().generation, 2);
    // And by us.
    harness
        .resize(&volume, 3 * MIB / BLOCK as u64, true)
        .unwrap();
    assert_eq!(cluster.images().info("image").unwrap().bytes, 3 * MIB);
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_fence_waits_and_then_cuts_off() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    cluster.tell("hang write");
    let ended = begin(&harness, &volume, write(0x99));
    until("it hangs", || cluster.ask("held") == 1);
    let (sender, fenced) = weir_reactor::oneshot();
    volume.fence(Box::new(move |result| sender.send(result)));
    assert_eq!(fenced.wait(), Some(Ok(())));
    assert_eq!(wait(&ended), Err(VolumeError::TimedOut));
    cluster.tell("release");
    until("the orphan comes home", || host.volumes()[0].orphans == 0);
    assert_eq!(
        cluster.ask("byte rbd/image 0"),
        0,
        "it landed after the fence"
    );
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_fence_cuts_no_neighbour_off_before_a_time_out() {
    let cluster = Cluster::with_image(4 * MIB);
    cluster.tell(&format!("image rbd/other {MIB}"));
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&io_timeout=600s"));
    let other = format!("rbd:rbd/other?conf={}", cluster.conf.display());
    let neighbour = open(&harness, &host, &other);
    let clients = host.clients();
    assert_eq!((clients.len(), clients[0].images), (1, 2));
    cluster.tell("hang write rbd/image");
    let ended = begin(&harness, &volume, write(1));
    until("it hangs", || cluster.ask("held") == 1);
    let (sender, fenced) = weir_reactor::oneshot();
    volume.fence(Box::new(move |result| sender.send(result)));
    // Longer than a fence waits where nobody shares the client.
    std::thread::sleep(Duration::from_secs(3));
    let cut_off = cluster.ask(&format!("is_blocklisted {}", clients[0].address));
    assert_eq!(cut_off, 0, "the neighbour is cut off");
    assert_eq!(*ended.lock().unwrap(), None);
    assert_eq!(do_now(&harness, &neighbour, 2), Ok(()));
    cluster.tell("release");
    assert_eq!(fenced.wait(), Some(Ok(())));
    assert_eq!(wait(&ended), Ok(()));
    assert!(host.volumes().iter().all(|image| image.reopened == 0));
    drop((volume, neighbour));
    close(&harness, host);
}

#[test]
fn an_image_that_hangs_slows_no_other() {
    /// Writes to each of the others while the image hangs.
    const WRITES: u32 = 50;
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(
        &harness,
        &host,
        // What waits for its fence waits for longer than this test does.
        &cluster.url("&io_timeout=300ms&fence_timeout=600s"),
    );
    let [same, other] = [("same", ""), ("other", "&bdevs_per_cluster=1")].map(|(name, more)| {
        cluster.tell(&format!("image rbd/{name} {MIB}"));
        let conf = cluster.conf.display();
        open(
            &harness,
            &host,
            &format!("rbd:rbd/{name}?conf={conf}{more}"),
        )
    });
    assert_eq!(host.clients().len(), 2);
    let begin_all = |volumes: &[&Arc<dyn Volume>], when: &str| {
        for _ in 0..WRITES {
            for volume in volumes {
                assert_eq!(do_now(&harness, volume, 2), Ok(()), "{when}");
            }
        }
    };
    let report = |name: &str| {
        let mut all = host.volumes().into_iter();
        let url = format!("rbd:rbd/{name}?");
        all.find(|image| image.url.starts_with(&url)).unwrap()
    };
    cluster.tell("hang read rbd/image");
    let read = || Operation::Read {
        lba: 0,
        blocks: 1,
        buffers: weir_block::ReadBuffers::Lend,
    };
    assert_eq!(
        wait(&begin(&harness, &volume, read)),
        Err(VolumeError::TimedOut)
    );
    assert_eq!(report("image").orphans, 1);
    begin_all(&[&same, &other], "a read is an orphan");
    // No client can be cut off.
    cluster.tell("monitors down");
    cluster.tell("hang write rbd/image");
    let ended = begin(&harness, &volume, write(1));
    until("it times out", || report("image").phase == "fencing");
    begin_all(&[&same, &other], "a fence is waited for");
    assert_eq!(*ended.lock().unwrap(), None);
    cluster.tell("monitors up");
    assert_eq!(wait(&ended), Err(VolumeError::TimedOut));
    begin_all(&[&other], "a client was cut off");
    // Who shared it was cut off with it, and goes on.
    until("it goes on", || do_now(&harness, &same, 3).is_ok());
    begin_all(&[&same, &other], "all are served again");
    assert_eq!(report("same").reopened, 1);
    let other_report = report("other");
    assert_eq!((other_report.reopened, other_report.trouble), (0, None));
    cluster.tell("release");
    until("the orphans come home", || report("image").orphans == 0);
    drop((volume, same, other));
    close(&harness, host);
}

/// As with one silent placement group that the image has data in: it can be opened, and its writes are never answered.
#[test]
fn an_image_that_is_silent_again_and_again_leaves_its_neighbours_alone() {
    let cluster = Cluster::with_image(4 * MIB);
    cluster.tell(&format!("image rbd/other {MIB}"));
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(
        &harness,
        &host,
        &cluster.url("&io_timeout=1s&fence_timeout=600s"),
    );
    let conf = cluster.conf.display();
    let neighbour = open(&harness, &host, &format!("rbd:rbd/other?conf={conf}"));
    assert_eq!(host.clients().len(), 1, "they share a client");
    let report = |name: &str| {
        let mut all = host.volumes().into_iter();
        let url = format!("rbd:rbd/{name}?");
        all.find(|image| image.url.starts_with(&url)).unwrap()
    };
    cluster.tell("hang write rbd/image");
    // A host that tries again.
    for round in 1..=5 {
        // Or it would time out while it waits, and cut nothing off.
        until("it is open", || report("image").phase == "serving");
        assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::TimedOut));
        if round <= 2 {
            until("the neighbour goes on", || {
                do_now(&harness, &neighbour, 2) == Ok(())
            });
        }
        for _ in 0..5 {
            assert_eq!(do_now(&harness, &neighbour, 2), Ok(()), "round {round}");
        }
        let reopened = report("other").reopened;
        assert!(reopened <= 2, "round {round}: {reopened}");
    }
    let trouble = || report("image").trouble.unwrap_or_default();
    until("its bound is told", || {
        trouble().contains("more than 4 clients that were cut off")
    });
    let (apart, shared): (Vec<_>, Vec<_>) =
        host.clients().into_iter().partition(|client| client.apart);
    assert_eq!(apart.len(), 3, "{apart:?}");
    assert!(apart.iter().all(|client| client.fenced), "{apart:?}");
    let of_neighbour = shared.iter().filter(|client| !client.fenced);
    assert_eq!(of_neighbour.map(|client| client.images).sum::<u32>(), 1);
    // Who is cut off for another reason waits for nothing of the image that is silent.
    let client = report("other").client.unwrap();
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &neighbour, 3), Err(VolumeError::TimedOut));
    assert_eq!(do_now(&harness, &neighbour, 3), Ok(()));
    cluster.tell("release");
    until("it goes on", || do_now(&harness, &volume, 4) == Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 4);
    let apart = host
        .clients()
        .into_iter()
        .find(|client| client.images == 1 && client.apart && !client.fenced);
    assert!(apart.is_some_and(|client| Some(client.address) == report("image").client));
    drop((volume, neighbour));
    close(&harness, host);
}

#[test]
fn an_image_that_was_made_anew_is_not_the_one_that_was_served() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    assert_eq!(do_now(&harness, &volume, 1), Ok(()));
    cluster.tell(&format!("image rbd/image {}", 4 * MIB));
    cluster.tell(&format!("blocklist {}", host.clients()[0].address));
    assert_eq!(do_now(&harness, &volume, 2), Err(VolumeError::TimedOut));
    let report = || host.volumes().remove(0);
    until("it is given up", || report().phase == "gone");
    let (asked, url) = (Arc::clone(&host), report().url);
    let retried = harness.run(0, move |_| async move { asked.open_gone(&url).await });
    for told in [retried.unwrap_err().to_string(), report().trouble.unwrap()] {
        assert!(told.contains("is another one than it was"), "{told}");
    }
    assert_eq!(cluster.ask("byte rbd/image 0"), 0);
    drop(volume);
    close(&harness, host);
}

#[test]
fn an_image_with_writes_in_a_log_elsewhere_is_not_written_to() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    // Layering, exclusive-lock and dirty-cache.
    cluster.tell("features rbd/image 2053");
    let refused = try_open(&harness, &host, &cluster.url(""), Access::READ_WRITE);
    let refused = refused.map(drop).unwrap_err().to_string();
    assert!(
        refused.contains("`rbd persistent-cache flush rbd/image`"),
        "{refused}"
    );
    close(&harness, host);
}

#[test]
fn a_reactor_that_stops_leaves_what_librbd_has_alone() {
    let cluster = Cluster::with_image(4 * MIB);
    let host = host("a");
    let harness = Harness::real(1);
    let volume = open(&harness, &host, &cluster.url(""));
    cluster.tell("hang read");
    let read = || Operation::Read {
        lba: 0,
        blocks: 256,
        buffers: weir_block::ReadBuffers::Lend,
    };
    let ended = begin(&harness, &volume, read);
    until("it hangs", || cluster.ask("held") == 1);
    drop(volume);
    drop(harness);
    assert_eq!(*ended.lock().unwrap(), None);
    until("its client is gone", || cluster.ask("clients") == 0);
    // librbd writes to the buffer now.
    cluster.tell("release");
    until("it was read", || cluster.ask("performed read") == 1);
}

#[test]
fn clients_are_shared_by_as_many_images_as_is_said() {
    let cluster = Cluster::new();
    let (harness, host) = (Harness::real(1), host("a"));
    let images = cluster.images();
    let mut volumes = Vec::new();
    for number in 0..5 {
        let name = format!("image{number}");
        let new = weir_rbd::NewImage {
            bytes: MIB,
            ..Default::default()
        };
        images.create(&name, &new).unwrap();
        let url = format!(
            "rbd:rbd/{name}?conf={}&bdevs_per_cluster=2",
            cluster.conf.display()
        );
        volumes.push(open(&harness, &host, &url));
    }
    let mut shares: Vec<_> = host.clients().iter().map(|client| client.images).collect();
    shares.sort_unstable();
    assert_eq!(shares, [1, 2, 2]);
    drop(volumes);
    close(&harness, Arc::clone(&host));
    until("clients end with their images", || {
        host.clients().is_empty()
    });
}

#[test]
fn a_client_has_the_threads_and_receives_that_are_configured() {
    const OPTIONS: [&str; 3] = [
        "librados_thread_count",
        "ms_async_op_threads",
        "ms_tcp_prefetch_max_size",
    ];
    let (harness, host) = (Harness::real(1), host("a"));
    let processors = std::thread::available_parallelism().unwrap().get();
    let has = |configured: &str, monitors: &[&str], url: &str| {
        let cluster = Cluster::with_image(MIB);
        let conf = std::fs::read_to_string(&cluster.conf).unwrap();
        std::fs::write(&cluster.conf, conf + configured).unwrap();
        for said in monitors {
            cluster.tell(&format!("config {said}"));
        }
        let volume = open(&harness, &host, &cluster.url(url));
        let has = OPTIONS.map(|option| cluster.ask(&format!("configured {option}")));
        let told = host.clients().remove(0).settings;
        assert_eq!(OPTIONS.map(|option| told[option].parse()), has.map(Ok));
        drop(volume);
        until("the client ends", || host.clients().is_empty());
        has
    };
    let own = match processors {
        1 | 2 => [1, 1, 65_536],
        3 => [1, 2, 65_536],
        _ => [2, 3, 4096],
    };
    assert_eq!(has("", &[], ""), own, "{processors} processors");
    assert_eq!(has("", &[], "&client_settings=ceph"), [2, 3, 4096]);
    let configured =
        "librados_thread_count = 4\nms_async_op_threads = 5\nms_tcp_prefetch_max_size = 8192\n";
    assert_eq!(has(configured, &[], ""), [4, 5, 8192]);
    // What the monitors say is left too, and the file is before them.
    let monitors = ["librados_thread_count 6", "ms_async_op_threads 7"];
    assert_eq!(has("", &monitors, ""), [6, 7, own[2]]);
    let both = has("librados_thread_count = 4\n", &monitors, "");
    assert_eq!(both, [4, 7, own[2]]);
    close(&harness, host);
}

/// What an attempt to open an image has ended with, once it has.
type Opening = Arc<Mutex<Option<Result<Arc<RbdVolume>, CephError>>>>;

/// Opens an image on a thread of its own.
fn begin_open(host: &Arc<RbdHost>, url: &str) -> Opening {
    let opened = Opening::default();
    let (host, result) = (Arc::clone(host), Arc::clone(&opened));
    let options = Options::from_url(&url.parse().unwrap()).unwrap();
    let name = url.to_owned();
    std::thread::spawn(move || {
        let answer = host.open(options, false, name);
        *result.lock().unwrap() = Some(answer);
    });
    opened
}

#[test]
fn what_is_told_of_clients_waits_for_none_that_connects() {
    let cluster = Cluster::with_image(4 * MIB);
    cluster.tell(&format!("image rbd/other {MIB}"));
    let (harness, host) = (Harness::real(1), host("a"));
    let other = format!("rbd:rbd/other?conf={}", cluster.conf.display());
    cluster.tell("connect_hangs on");
    let opening = [
        begin_open(&host, &cluster.url("")),
        begin_open(&host, &other),
    ];
    until("one connects", || cluster.ask("connecting") == 1);
    let (sender, told) = std::sync::mpsc::channel();
    let asked = Arc::clone(&host);
    std::thread::spawn(move || sender.send((asked.clients(), asked.volumes())));
    let told = told.recv_timeout(Duration::from_secs(300));
    let (clients, volumes) = told.expect("a report waits for a client that connects");
    assert_eq!((clients.len(), volumes.len()), (0, 0));
    assert_eq!(
        cluster.ask("connecting"),
        1,
        "the other waits for the client that it is to share"
    );
    cluster.tell("connect_hangs off");
    for opened in &opening {
        until("it is open", || opened.lock().unwrap().is_some());
    }
    let shares: Vec<_> = host.clients().iter().map(|client| client.images).collect();
    assert_eq!(shares, [2]);
    drop(opening);
    close(&harness, host);
}

#[test]
fn who_waited_for_a_client_that_could_not_connect_does_not_try_again() {
    undisturbed(|| {
        let cluster = Cluster::with_image(4 * MIB);
        cluster.tell(&format!("image rbd/other {MIB}"));
        let (harness, host) = (Harness::real(1), host("a"));
        let other = format!("rbd:rbd/other?conf={}", cluster.conf.display());
        cluster.tell("connect_hangs on");
        let first = begin_open(&host, &cluster.url(""));
        until("it connects", || cluster.ask("connecting") == 1);
        let second = begin_open(&host, &other);
        // Where it has not come to wait after a moment, it connects by itself, and nothing is learnt.
        std::thread::sleep(Duration::from_millis(300));
        cluster.tell("connect_fails 110");
        cluster.tell("connect_hangs off");
        let [first, second] = [first, second].map(|opened| {
            until("it has ended", || opened.lock().unwrap().is_some());
            opened.lock().unwrap().take().unwrap().map(drop)
        });
        let failed = |result: Result<(), CephError>| {
            let error = result.unwrap_err();
            assert!(
                error.to_string().contains("did not answer in time"),
                "{error}"
            );
        };
        failed(first);
        let has_waited = second.is_err();
        if has_waited {
            failed(second);
        }
        drop(open(&harness, &host, &other));
        close(&harness, host);
        has_waited
    });
}

#[test]
fn errors_say_what_to_do() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let refused = |url: &str| {
        let opened = try_open(&harness, &host, url, Access::READ_WRITE);
        opened.map(drop).unwrap_err().to_string()
    };
    let conf = cluster.conf.display();
    let error = refused(&format!("rbd:rbd/other?conf={conf}"));
    assert!(
        error.contains("image rbd/other: it does not exist"),
        "{error}"
    );
    let error = refused(&format!("rbd:missing/image?conf={conf}"));
    assert!(error.contains("pool missing: it does not exist"), "{error}");
    let error = refused("rbd:rbd/image?conf=/nowhere/ceph.conf");
    assert!(error.contains("cannot read /nowhere/ceph.conf"), "{error}");
    cluster.tell("features rbd/image 1");
    let error = refused(&cluster.url(""));
    assert!(
        error.contains("rbd feature enable rbd/image exclusive-lock"),
        "{error}"
    );
    cluster.tell("key refused");
    let error = refused(&cluster.url("&id=weir"));
    assert!(error.contains("refuses the key of client.weir"), "{error}");
    cluster.tell("monitors down");
    let error = refused(&cluster.url("&id=weir"));
    assert!(error.contains("did not answer in time"), "{error}");
    let missing = RbdHost::new(
        host.identity().clone(),
        Libraries {
            rados: "librados-of-nobody.so.2".to_owned(),
            rbd: "librbd-of-nobody.so.1".to_owned(),
        },
    );
    let error = try_open(&harness, &missing, &cluster.url(""), Access::READ_WRITE);
    let error = error.map(drop).unwrap_err().to_string();
    assert!(
        error.contains("librbd1") && error.contains("16.2"),
        "{error}"
    );
}

#[test]
fn snapshots_are_read_only_and_clones_are_not() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    assert_eq!(do_now(&harness, &volume, 0x0a), Ok(()));
    let images = cluster.images();
    images.create_snapshot("image", "then").unwrap();
    assert_eq!(do_now(&harness, &volume, 0x0b), Ok(()));
    assert_eq!(images.snapshots("image").unwrap()[0].name, "then");
    let url = format!("rbd:rbd/image@then?conf={}", cluster.conf.display());
    let snapshot = open(&harness, &host, &url);
    assert!(snapshot.geometry().read_only);
    assert_eq!(do_now(&harness, &snapshot, 1), Err(VolumeError::ReadOnly));
    let held = harness.run(0, move |reactor| async move {
        Client::open(&snapshot, &reactor, 1).read(0, 1).await
    });
    assert_eq!(held.unwrap(), block(0x0a));
    images.clone_of("image", "then", "rbd", "", "copy").unwrap();
    let copy = open(
        &harness,
        &host,
        &format!("rbd:rbd/copy?conf={}", cluster.conf.display()),
    );
    assert_eq!(do_now(&harness, &copy, 0x0c), Ok(()));
    assert_eq!(cluster.ask("byte rbd/image 0"), 0x0b);
    drop((copy, volume));
    close(&harness, host);
    assert_eq!(images.list().unwrap(), ["copy", "image"]);
    images.trash("copy", 0).unwrap();
    let trashed = images.trashed().unwrap();
    assert_eq!((trashed.len(), &*trashed[0].name), (1, "copy"));
    images.restore(&trashed[0].id, "back").unwrap();
    assert_eq!(images.list().unwrap(), ["back", "image"]);
}

const YEAR_SECONDS: i64 = 365 * 24 * 3600;

#[test]
fn a_holder_is_refused_for_years_whatever_is_configured() {
    for value in ["true", "false"] {
        let cluster = Cluster::with_image(4 * MIB);
        let (harness, host) = (Harness::real(1), host("a"));
        cluster.tell("lock rbd/image 10.9.9.9:0/1 dead");
        cluster.tell(&format!(
            "configure rbd/image rbd_blocklist_on_break_lock {value}"
        ));
        let volume = open(&harness, &host, &cluster.url(""));
        let seconds = cluster.ask("blocklisted_seconds 10.9.9.9:0/1");
        assert!(seconds > YEAR_SECONDS, "{value}: {seconds} s");
        drop(volume);
        close(&harness, host);
    }
}

#[test]
fn a_lock_that_librbd_cannot_break_is_told_with_the_way_out() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    cluster.tell("lock rbd/image 10.9.9.9:0/1 dead");
    cluster.tell("configure rbd/image rbd_blocklist_expire_seconds 60");
    let refused = try_open(&harness, &host, &cluster.url(""), Access::READ_WRITE);
    let refused = refused.map(drop).unwrap_err().to_string();
    let way_out = "rbd config image rm rbd/image rbd_blocklist_expire_seconds";
    assert!(refused.contains(way_out), "{refused}");
    cluster.tell("unconfigure rbd/image rbd_blocklist_expire_seconds");
    drop(open(&harness, &host, &cluster.url("")));
    close(&harness, host);
}

#[test]
fn a_lock_that_changes_hands_is_looked_at_again() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    cluster.tell("lock rbd/image 10.9.9.9:0/1 dead");
    // ENOENT, EBUSY, EAGAIN.
    for errno in [2, 16, 11] {
        cluster.tell(&format!("break_fails {errno}"));
    }
    let volume = open(&harness, &host, &cluster.url(""));
    assert_eq!(do_now(&harness, &volume, 1), Ok(()));
    drop(volume);
    close(&harness, host);
}

#[test]
fn the_lock_is_kept_until_the_fence_holds() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&fence_timeout=600s"));
    let client = host.clients()[0].address.clone();
    assert_eq!(do_now(&harness, &volume, 1), Ok(()));
    cluster.tell("done_later write 700 1");
    cluster.tell("monitors down");
    let ended = begin(&harness, &volume, write(2));
    until("it is in doubt", || host.volumes()[0].phase == "fencing");
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(
        cluster.ask("is_locked rbd/image"),
        1,
        "others could write now"
    );
    assert_eq!(*ended.lock().unwrap(), None);
    cluster.tell("monitors up");
    assert_eq!(wait(&ended), Err(VolumeError::TimedOut));
    let seconds = cluster.ask(&format!("blocklisted_seconds {client}"));
    assert!(seconds > YEAR_SECONDS, "{seconds} s");
    until("it serves again", || host.volumes()[0].phase == "serving");
    drop(volume);
    close(&harness, host);
}

#[test]
fn what_a_closed_volume_left_in_doubt_is_fenced_too() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let client = host.clients()[0].address.clone();
    cluster.tell("latency_us 500000");
    cluster.tell("done_later write 60000 1");
    let ended = begin(&harness, &volume, write(1));
    drop(volume);
    close(&harness, host);
    assert_eq!(wait(&ended), Err(VolumeError::TimedOut));
    assert_eq!(cluster.ask(&format!("is_blocklisted {client}")), 1);
}

/// It times out in a life that is over for new requests, and that nobody has ended.
#[test]
fn what_a_closed_volume_left_unanswered_is_fenced_too() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&io_timeout=200ms"));
    let client = host.clients()[0].address.clone();
    cluster.tell("monitors down");
    cluster.tell("hang write");
    let ended = begin(&harness, &volume, write(1));
    until("it hangs", || cluster.ask("held") == 1);
    let (sender, fenced) = weir_reactor::oneshot();
    volume.fence(Box::new(move |result| sender.send(result)));
    drop(volume);
    let closing = std::thread::spawn(move || close(&Harness::real(1), host));
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(*ended.lock().unwrap(), None, "it may land still");
    cluster.tell("monitors up");
    assert_eq!(wait(&ended), Err(VolumeError::TimedOut));
    assert_eq!(cluster.ask(&format!("is_blocklisted {client}")), 1);
    assert_eq!(fenced.wait(), Some(Ok(())));
    cluster.tell("release");
    closing.join().unwrap();
    assert_eq!(cluster.ask("byte rbd/image 0"), 0);
}

#[test]
fn what_a_cache_may_have_lost_is_not_flushed() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&cache=writeback"));
    let client = host.clients()[0].address.clone();
    assert_eq!(do_now(&harness, &volume, 1), Ok(()));
    cluster.tell("hang flush");
    let flushed = begin(&harness, &volume, || Operation::Flush);
    until("it hangs", || cluster.ask("held") == 1);
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &volume, 2), Err(VolumeError::TimedOut));
    until("it is given up", || host.volumes()[0].phase == "gone");
    let trouble = host.volumes()[0].trouble.clone().unwrap();
    assert!(trouble.contains("the cache"), "{trouble}");
    let refused = open_gone(&harness, &host, &cluster.url("&cache=writeback"));
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("remove the volume and add it"),
        "{refused}"
    );
    assert_eq!(host.volumes()[0].phase, "gone");
    cluster.tell("release");
    assert_eq!(wait(&flushed), Err(VolumeError::Lost));
    drop(volume);
    close(&harness, host);
}

/// librbd tells of a cached write that failed in one flush, also in that of a write with FUA.
#[test]
fn no_flush_of_a_cache_succeeds_after_one_that_failed_until_the_volume_is_opened_again() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let flush = || Operation::Flush;
    let durable = || Operation::Write {
        lba: 1,
        blocks: 1,
        data: harness::views_of(&block(1)),
        fua: true,
    };
    for cache in ["&cache=writeback", "&cache=writearound"] {
        for with_fua in [true, false] {
            let volume = open(&harness, &host, &cluster.url(cache));
            assert_eq!(do_now(&harness, &volume, 1), Ok(()));
            assert_eq!(wait(&begin(&harness, &volume, flush)), Ok(()));
            cluster.tell("fail flush 5 1");
            let failed = match with_fua {
                true => begin(&harness, &volume, durable),
                false => begin(&harness, &volume, flush),
            };
            assert_eq!(wait(&failed), Err(VolumeError::Medium));
            for _ in 0..2 {
                let flushed = wait(&begin(&harness, &volume, flush));
                assert_eq!(flushed, Err(VolumeError::Medium), "{cache}");
            }
            drop(volume);
            close(&harness, Arc::clone(&host));
        }
    }
}

#[test]
fn what_is_configured_of_an_image_is_looked_at() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    cluster.tell("configure rbd/image rbd_cache true");
    let refused = try_open(&harness, &host, &cluster.url(""), Access::READ_WRITE);
    let error = refused.map(drop).unwrap_err().to_string();
    assert!(
        error.contains("`rbd config image rm rbd/image rbd_cache`"),
        "{error}"
    );
    cluster.tell("unconfigure rbd/image rbd_cache");
    let volume = open(&harness, &host, &cluster.url(""));
    drop(volume);
    close(&harness, host);
}

#[test]
fn what_waits_is_checked_again_when_the_image_has_become_shorter() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url("&fence_timeout=600s"));
    let client = host.clients()[0].address.clone();
    cluster.tell("monitors down");
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::TimedOut));
    let waiting = begin(&harness, &volume, || harness::write(1023, 1, &block(2)));
    cluster.tell(&format!("resize rbd/image {MIB}"));
    assert_eq!(*waiting.lock().unwrap(), None);
    cluster.tell("monitors up");
    assert_eq!(wait(&waiting), Err(VolumeError::OutOfRange));
    drop(volume);
    close(&harness, host);
}

#[test]
fn zeroes_that_are_written_are_written_in_pieces() {
    let cluster = Cluster::with_image(16 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let zeroes = || Operation::WriteZeroes {
        lba: 0,
        blocks: 4096,
        deallocate: false,
        fua: false,
    };
    assert_eq!(wait(&begin(&harness, &volume, zeroes)), Ok(()));
    assert_eq!(cluster.ask("performed write"), 4);
    drop(volume);
    close(&harness, host);
}

#[test]
fn a_queue_has_no_more_orphans_than_it_is_deep_and_goes_on_after_them() {
    const DEPTH: u32 = 2;
    undisturbed(|| {
        let cluster = Cluster::with_image(4 * MIB);
        let (harness, host) = (Harness::real(1), host("a"));
        let volume = open(&harness, &host, &cluster.url("&io_timeout=200ms"));
        cluster.tell("hang read");
        let answers = Arc::new(Mutex::new(Vec::new()));
        let (shared, results) = (Arc::clone(&volume), Arc::clone(&answers));
        harness.run(0, move |reactor| async move {
            let client = Client::open(&shared, &reactor, DEPTH);
            drop(shared);
            let read = || Operation::Read {
                lba: 0,
                blocks: 1,
                buffers: weir_block::ReadBuffers::Lend,
            };
            let tokens: Vec<_> = (0..5).map(|_| client.submit(read())).collect();
            let task = async move {
                for token in tokens {
                    let (result, _) = client.completion(token).await;
                    results.lock().unwrap().push(result);
                }
            };
            reactor.spawn(task).detach();
        });
        until("two time out", || answers.lock().unwrap().len() == 2);
        until("two more hang", || cluster.ask("held") == 4);
        std::thread::sleep(Duration::from_millis(600));
        assert_eq!(host.volumes()[0].orphans, DEPTH);
        assert_eq!(answers.lock().unwrap().len(), 2);
        cluster.tell("release");
        until("all are answered", || answers.lock().unwrap().len() == 5);
        // It is submitted after that, and may time out by itself while the machine stands still.
        let last = answers.lock().unwrap()[4];
        let is_disturbed = last == Err(VolumeError::TimedOut);
        assert!(is_disturbed || last == Ok(()), "{last:?}");
        until("the orphans come home", || host.volumes()[0].orphans == 0);
        drop(volume);
        close(&harness, host);
        !is_disturbed
    });
}

/// As when the whole cluster was gone for longer than requests wait: each waits with being opened again until little is left of clients
/// that were cut off, and must not count as left what it looks at itself.
#[test]
fn images_that_lose_clients_of_their_own_together_are_all_opened_again() {
    const IMAGES: u64 = 7;
    let cluster = Cluster::new();
    let (harness, host) = (Harness::real(1), host("a"));
    let open = |number: u64| {
        cluster.tell(&format!("image rbd/{number} {MIB}"));
        let url = cluster.url("&bdevs_per_cluster=1");
        open(
            &harness,
            &host,
            &url.replace("rbd/image", &format!("rbd/{number}")),
        )
    };
    let volumes: Vec<_> = (0..IMAGES).map(open).collect();
    let all_are = |phase: &str| host.volumes().iter().all(|report| report.phase == phase);
    cluster.tell("monitors down");
    cluster.tell(&format!("done_later write 200 {IMAGES}"));
    let writes: Vec<_> = volumes
        .iter()
        .map(|volume| begin(&harness, volume, write(1)))
        .collect();
    until("all are to be cut off", || all_are("fencing"));
    cluster.tell("monitors up");
    for ended in &writes {
        assert_eq!(wait(ended), Err(VolumeError::TimedOut));
    }
    until("all are open again", || all_are("serving"));
    for volume in &volumes {
        assert_eq!(do_now(&harness, volume, 2), Ok(()));
    }
    let reopened = host.volumes().into_iter().map(|report| report.reopened);
    assert_eq!(reopened.collect::<Vec<_>>(), [1; IMAGES as usize]);
    until("the old clients end", || {
        cluster.ask("clients") == IMAGES as i64
    });
    drop(volumes);
    close(&harness, host);
}

/// An image that is being opened again is this process's until that is over, though nobody wants it any more: who opened it meanwhile would
/// take the lock for that of an earlier life of this process, and have the client cut off that others share.
#[test]
fn an_image_that_is_closed_while_it_is_opened_again_is_not_opened_beside_that() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let url = cluster.url("&bdevs_per_cluster=1");
    let volume = open(&harness, &host, &url);
    let client = host.clients()[0].address.clone();
    cluster.tell("acquire_hangs on");
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::TimedOut));
    until("it is opened again", || cluster.ask("acquiring") == 1);
    drop(volume);
    until("it is closed", || {
        host.volumes().iter().all(|report| report.phase == "closed")
    });
    // It may wait for what hangs; it must not.
    let refused = begin_open(&host, &url);
    until("it is refused", || refused.lock().unwrap().is_some());
    let refused = refused.lock().unwrap().take().unwrap().err();
    let refused = refused.expect("it is open still").to_string();
    assert!(
        refused.contains("this process has the image's lock"),
        "{refused}"
    );
    cluster.tell("acquire_hangs off");
    let mut opened = None;
    until("it is let go of", || {
        opened = try_open(&harness, &host, &url, Access::READ_WRITE).ok();
        opened.is_some()
    });
    assert_eq!(do_now(&harness, &opened.unwrap(), 2), Ok(()));
    close(&harness, host);
}

/// It is closed before it counts as that.
#[test]
fn an_image_that_is_too_small_is_not_opened_beside_that() {
    let cluster = Cluster::with_image(100);
    let (harness, host) = (Harness::real(1), host("a"));
    let url = cluster.url("");
    cluster.tell("close_hangs on");
    let small = begin_open(&host, &url);
    until("it is closed", || cluster.ask("closing") == 1);
    let beside = begin_open(&host, &url);
    until("it is refused", || beside.lock().unwrap().is_some());
    let refused = beside.lock().unwrap().take().unwrap().err().unwrap();
    let refused = refused.to_string();
    assert!(
        refused.contains("this process has the image's lock"),
        "{refused}"
    );
    cluster.tell("close_hangs off");
    until("it is refused", || small.lock().unwrap().is_some());
    let refused = small.lock().unwrap().take().unwrap().err().unwrap();
    let refused = refused.to_string();
    assert!(refused.contains("less than a block"), "{refused}");
    close(&harness, host);
}

#[test]
fn of_two_answers_to_how_long_an_image_is_that_to_the_later_question_counts() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    cluster.tell("size_hangs on");
    cluster.tell("resize rbd/image 8388608");
    until("an answer hangs", || cluster.ask("sizing") == 1);
    cluster.tell("resize rbd/image 12582912");
    until("its size is seen", || {
        volume.geometry().length_bytes() == 12 * MIB
    });
    cluster.tell("size_hangs off");
    until("the other answer is there", || cluster.ask("sizing") == 0);
    std::thread::sleep(MOMENT);
    assert_eq!(volume.geometry().length_bytes(), 12 * MIB);
    drop(volume);
    close(&harness, host);
}

/// What is submitted behind the new end would be cut off.
#[test]
fn an_image_that_is_being_cut_off_is_seen_no_longer_than_it_is_going_to_be() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let length = || volume.geometry().length_bytes();
    cluster.tell("resize_hangs on");
    let shrinks = harness.begin_resize(&volume, 2 * MIB / BLOCK as u64, true);
    until("it is about to be cut off", || length() == 2 * MIB);
    let asked = cluster.ask("sizes_asked");
    cluster.tell("resize rbd/image 4194304");
    until("its size is asked for", || {
        cluster.ask("sizes_asked") > asked
    });
    std::thread::sleep(MOMENT);
    assert_eq!(length(), 2 * MIB);
    cluster.tell("resize_hangs off");
    until("it is cut off", || shrinks.lock().unwrap().is_some());
    let geometry = shrinks.lock().unwrap().take().unwrap().unwrap();
    assert_eq!(geometry.length_bytes(), 2 * MIB);
    // What others make of it afterwards is seen.
    cluster.tell("resize rbd/image 8388608");
    until("its size is seen", || length() == 8 * MIB);
    drop(volume);
    close(&harness, host);
}

#[test]
fn what_is_resized_while_the_image_is_opened_again_is_seen() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    let volume = open(&harness, &host, &cluster.url(""));
    let client = host.clients()[0].address.clone();
    cluster.tell("acquire_hangs on");
    cluster.tell(&format!("blocklist {client}"));
    assert_eq!(do_now(&harness, &volume, 1), Err(VolumeError::TimedOut));
    until("its lock is taken", || cluster.ask("acquiring") == 1);
    // Its size is known when it is seen who watches it, and it is not told of others' resizes yet.
    cluster.tell("watchers_hang on");
    cluster.tell("acquire_hangs off");
    until("it is looked at", || cluster.ask("asking") == 1);
    cluster.tell("resize rbd/image 8388608");
    cluster.tell("watchers_hang off");
    until("its size is seen", || {
        volume.geometry().length_bytes() == 8 * MIB
    });
    assert_eq!(host.volumes()[0].reopened, 1);
    drop(volume);
    close(&harness, host);
}
