//! Volumes that move to a client of their own: nothing is lost, whatever happens meanwhile. On the library that stands for Ceph's.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_block::{Operation, ReadBuffers, Volume, VolumeError, VolumeEvent, Watcher};
use weir_rbd::{NotMoved, RbdHost, Reason, SCHEME, VolumeReport};
use weir_testing::ceph::{Cluster, host, open, try_open, undisturbed, until};
use weir_testing::contract::{Kind, contract};
use weir_testing::harness::{self, Client, Harness, seed};
use weir_volume::{Access, OpenError, Registry, VolumeUrl};

mod failures;

const MIB: u64 = 1 << 20;
/// Another gateway leaves word that it has the lock.
const OTHER_SIGNS: &str = "metadata rbd/image weir.owner 1 b 10.9.9.9:0/1 gateway-b";
const BLOCK: usize = 4096;
const AUTO: &str = "&bdevs_per_cluster=auto";
/// For how long it is watched that something does not happen.
const WHILE: Duration = Duration::from_millis(100);

type Ended = Arc<Mutex<Option<Result<(), VolumeError>>>>;

/// A cluster with an image, and a volume of it.
struct Served {
    cluster: Cluster,
    harness: Harness,
    host: Arc<RbdHost>,
    url: String,
    volume: Option<Arc<dyn Volume>>,
    /// Moves that were called off and tried again.
    again: Arc<AtomicU64>,
}

/// Has a volume move. Requests are waited for only so long; where the machine stands still meanwhile, the move is called off though
/// nothing keeps it, and it is tried again.
fn give_own_client(host: &RbdHost, url: &str, again: &AtomicU64) -> Result<(), NotMoved> {
    const ATTEMPTS: u32 = 20;
    for _ in 0..ATTEMPTS {
        match host.give_own_client(url) {
            Err(NotMoved::InFlight(_)) => again.fetch_add(1, Ordering::Relaxed),
            result => return result,
        };
    }
    panic!("{ATTEMPTS} attempts in a row were called off");
}

impl Served {
    fn new(more: &str) -> Self {
        let cluster = Cluster::with_image(4 * MIB);
        let (harness, host) = (Harness::real(2), host("a"));
        let url = cluster.url(&format!("{AUTO}{more}"));
        let volume = Some(open(&harness, &host, &url));
        Served {
            cluster,
            harness,
            host,
            url,
            volume,
            again: Arc::default(),
        }
    }

    fn volume(&self) -> &Arc<dyn Volume> {
        self.volume.as_ref().unwrap()
    }

    fn report(&self) -> VolumeReport {
        self.host.volumes().remove(0)
    }

    fn is(&self, phase: &str) -> bool {
        self.report().phase == phase
    }

    /// Submits an operation on a queue of its own, and lets it be; what it ended with appears where this points.
    fn begin(
        &self,
        reactor: usize,
        operation: impl FnOnce() -> Operation + Send + 'static,
    ) -> Ended {
        let ended = Ended::default();
        let (volume, result) = (Arc::clone(self.volume()), Arc::clone(&ended));
        self.harness.run(reactor, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 8);
            drop(volume);
            let token = client.submit(operation());
            let task = async move {
                let answer = client.completion(token).await.0;
                *result.lock().unwrap() = Some(answer);
            };
            reactor.spawn(task).detach();
        });
        ended
    }

    fn write(&self, byte: u8) -> Result<(), VolumeError> {
        wait(&self.begin(0, write(byte)))
    }

    fn byte(&self) -> i64 {
        self.cluster.ask("byte rbd/image 0")
    }

    fn moved(&self) -> Result<(), NotMoved> {
        give_own_client(&self.host, &self.url, &self.again)
    }

    /// Has it move on a thread of its own.
    fn begin_move(&self) -> JoinHandle<Result<(), NotMoved>> {
        let (host, url) = (Arc::clone(&self.host), self.url.clone());
        let again = Arc::clone(&self.again);
        std::thread::spawn(move || give_own_client(&host, &url, &again))
    }

    /// Begins a move, and waits until the image is being closed on its client, which hangs.
    fn begin_closing(&self) -> JoinHandle<Result<(), NotMoved>> {
        self.cluster.tell("close_hangs on");
        let moved = self.begin_move();
        until("it is closed", || self.cluster.ask("closing") == 1);
        moved
    }

    /// As [`Served::begin_move`], where something in flight does keep it.
    fn begin_move_once(&self) -> JoinHandle<Result<(), NotMoved>> {
        let (host, url) = (Arc::clone(&self.host), self.url.clone());
        std::thread::spawn(move || host.give_own_client(&url))
    }

    fn client(&self) -> String {
        self.report().client.unwrap()
    }

    fn is_blocklisted(&self, client: &str) -> bool {
        self.cluster.ask(&format!("is_blocklisted {client}")) == 1
    }

    /// It serves with the client that it had, which nobody was told to refuse, and the other is gone.
    fn goes_on_with(&self, client: &str, called_off: u64) {
        let report = self.report();
        assert_eq!(report.client.as_deref(), Some(client));
        assert_eq!(
            (report.phase, report.reopened, report.moves),
            ("serving", 0, 0)
        );
        let called_off = called_off + self.again.load(Ordering::Relaxed);
        assert_eq!(
            (report.moves_called_off, report.own_client),
            (called_off, None)
        );
        assert!(!self.is_blocklisted(client));
        until("the other client is gone", || {
            self.host.clients().len() == 1
        });
        assert_eq!(self.write(0xc1), Ok(()));
        assert_eq!(self.byte(), 0xc1);
    }

    /// Everything is closed: the lock is free, and no client is left.
    fn end(mut self) {
        drop(self.volume.take());
        let host = Arc::clone(&self.host);
        self.harness
            .run(0, move |_| async move { host.close_all().await });
        until("the lock is free", || {
            self.cluster.ask("is_locked rbd/image") == 0
        });
        until("clients end", || self.host.clients().is_empty());
    }
}

/// Another image on the client that a volume shares.
struct Neighbour {
    url: String,
    volume: Arc<dyn Volume>,
}

impl Neighbour {
    fn new(served: &Served) -> Self {
        served.cluster.tell(&format!("image rbd/other {MIB}"));
        let url = served.url.replace("rbd:rbd/image", "rbd:rbd/other");
        let volume = open(&served.harness, &served.host, &url);
        let neighbour = Neighbour { url, volume };
        assert_eq!(neighbour.client(&served.host), served.client());
        neighbour
    }

    fn client(&self, host: &RbdHost) -> String {
        let mut reports = host.volumes().into_iter();
        let report = reports.find(|report| report.url == self.url).unwrap();
        assert_eq!((report.phase, report.reopened), ("serving", 0));
        report.client.unwrap()
    }

    fn write(&self, served: &Served, byte: u8) -> Result<(), VolumeError> {
        let volume = Arc::clone(&self.volume);
        served.harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 1);
            client.write(0, 1, &[byte; BLOCK]).await
        })
    }
}

fn write(byte: u8) -> impl FnOnce() -> Operation + Send + 'static {
    move || harness::write(0, 1, &vec![byte; BLOCK])
}

fn read() -> Operation {
    Operation::Read {
        lba: 0,
        blocks: 1,
        buffers: ReadBuffers::Lend,
    }
}

fn wait(ended: &Mutex<Option<Result<(), VolumeError>>>) -> Result<(), VolumeError> {
    until("an answer comes", || ended.lock().unwrap().is_some());
    ended.lock().unwrap().take().unwrap()
}

#[test]
fn a_volume_moves_and_has_everything_with_it() {
    let served = Served::new("");
    let shared = served.client();
    assert_eq!(served.write(0x01), Ok(()));
    assert_eq!(served.moved().map_err(|error| error.to_string()), Ok(()));
    let report = served.report();
    assert_eq!(
        (report.phase, report.moves, report.reopened),
        ("serving", 1, 0)
    );
    assert_eq!(report.own_client, Some(Reason::Asked));
    let own = report.client.unwrap();
    assert_ne!(own, shared);
    until("the shared client has nothing left", || {
        served.host.clients().len() == 1
    });
    let client = &served.host.clients()[0];
    assert!(client.own && client.address == own, "{client:?}");
    assert_eq!((client.images, client.images_max), (1, 1));
    assert!(
        !served.is_blocklisted(&shared),
        "nothing is cut off for a move"
    );
    assert_eq!(served.write(0x02), Ok(()));
    assert_eq!(served.byte(), 0x02);
    // Whoever opens the image finds whom it belongs to.
    let other = try_open(&served.harness, &host("b"), &served.url, Access::READ_WRITE);
    let Err(OpenError::InUse { reason, .. }) = other.map(drop) else {
        panic!("two gateways write to one image")
    };
    assert!(
        reason.contains(&format!("gateway gateway-a (client {own})")),
        "{reason}"
    );
    // The watch has come along.
    served
        .cluster
        .tell(&format!("resize rbd/image {}", 8 * MIB));
    until("it is seen", || {
        served.volume().geometry().length_bytes() == 8 * MIB
    });
    // What happens to a client of its own is as with any.
    served.cluster.tell(&format!("blocklist {own}"));
    assert_eq!(served.write(0x03), Err(VolumeError::TimedOut));
    assert_eq!(served.write(0x04), Ok(()));
    let report = served.report();
    assert_eq!((report.moves, report.reopened), (1, 1));
    assert_eq!(report.own_client, None, "it is on a shared client again");
    served.end();
}

#[test]
fn a_gateway_that_was_killed_after_a_move_takes_over_from_itself() {
    let served = Served::new("");
    served.moved().unwrap();
    let own = served.client();
    assert_eq!(served.write(0xd1), Ok(()));
    let again = host("a");
    let volume = open(&served.harness, &again, &served.url);
    assert!(served.is_blocklisted(&own));
    let there = served.harness.run(0, move |reactor| async move {
        Client::open(&volume, &reactor, 1).read(0, 1).await
    });
    assert_eq!(there.unwrap()[0], 0xd1);
    served
        .harness
        .run(0, move |_| async move { again.close_all().await });
    served.end();
}

/// The volume's contract, with everything that it checks, while the volume moves all the time.
#[test]
fn the_contract_holds_while_the_volume_moves() {
    let seed = seed("the_contract_holds_while_the_volume_moves");
    for (number, more) in ["", "&block_size=512", "&cache=writethrough"]
        .into_iter()
        .enumerate()
    {
        println!("{more}");
        let served = Served::new(more);
        served.cluster.tell("latency_us 300");
        let end = Arc::new(AtomicBool::new(false));
        let (host, url, stop) = (
            Arc::clone(&served.host),
            served.url.clone(),
            Arc::clone(&end),
        );
        let moves = Arc::new(AtomicU64::new(0));
        let moved = Arc::clone(&moves);
        let mover = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                match host.give_own_client(&url) {
                    Ok(()) => {
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                    // A resize, a machine that stands still, or what a dropped queue left.
                    Err(NotMoved::Busy | NotMoved::InFlight(_) | NotMoved::Orphans(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        // Once more where all was over before it moved.
        undisturbed(|| {
            contract(
                &served.harness,
                served.volume(),
                Kind { retains: true },
                seed.wrapping_add(number as u64),
            );
            moves.load(Ordering::Relaxed) > 0
        });
        end.store(true, Ordering::Relaxed);
        mover.join().unwrap();
        let moves = moves.load(Ordering::Relaxed);
        println!("{moves} moves");
        let report = served.report();
        assert_eq!(
            (report.moves, report.reopened, report.orphans),
            (moves, 0, 0)
        );
        assert_eq!(report.trouble, None);
        served.end();
    }
}

/// Writers of every reactor write numbers that grow, each to blocks of its own, and read back what they wrote, while the volume moves.
#[test]
fn what_is_written_through_moves_is_read_back() {
    const BLOCKS: u64 = 64;
    let seed = seed("what_is_written_through_moves_is_read_back");
    let served = Served::new("");
    served.cluster.tell("latency_us 200");
    let (end, written) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut writers = Vec::new();
    for reactor in 0..2 {
        let (volume, stop) = (Arc::clone(served.volume()), Arc::clone(&end));
        let written = Arc::clone(&written);
        let (sender, done) = weir_reactor::oneshot();
        served.harness.run(reactor, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 16);
            drop(volume);
            let first = u64::from(reactor.id().0) * BLOCKS;
            let task = async move {
                let mut random = seed ^ first;
                let mut last = vec![0u64; BLOCKS as usize];
                while !stop.load(Ordering::Relaxed) {
                    // Several under way at once, each of another block.
                    let mut tokens = Vec::new();
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    for step in 0..8 {
                        let block = ((random >> 40) + step * 7) % BLOCKS;
                        let number = written.fetch_add(1, Ordering::Relaxed) + 1;
                        if tokens.iter().any(|&(other, _, _)| other == block) {
                            continue;
                        }
                        let data: Vec<u8> = number.to_le_bytes().repeat(BLOCK / 8);
                        let operation = harness::write(first + block, 1, &data);
                        tokens.push((block, number, client.submit(operation)));
                    }
                    for (block, number, token) in tokens {
                        assert_eq!(client.completion(token).await.0, Ok(()));
                        last[block as usize] = number;
                    }
                    let block = (random >> 20) % BLOCKS;
                    let there = client.read(first + block, 1).await.unwrap();
                    assert_eq!(there, last[block as usize].to_le_bytes().repeat(BLOCK / 8));
                }
                for block in 0..BLOCKS {
                    let there = client.read(first + block, 1).await.unwrap();
                    assert_eq!(there, last[block as usize].to_le_bytes().repeat(BLOCK / 8));
                }
                sender.send(());
            };
            reactor.spawn(task).detach();
        });
        writers.push(done);
    }
    for _ in 0..50 {
        let before = written.load(Ordering::Relaxed);
        served.moved().unwrap();
        until("it is written on", || {
            written.load(Ordering::Relaxed) > before + 16
        });
    }
    end.store(true, Ordering::Relaxed);
    for done in writers {
        assert_eq!(done.wait(), Some(()), "a writer has failed");
    }
    let report = served.report();
    let again = served.again.load(Ordering::Relaxed);
    assert_eq!(
        (report.moves, report.moves_called_off, report.reopened),
        (50, again, 0)
    );
    served.end();
}

#[test]
fn a_move_is_called_off_when_something_in_flight_does_not_end() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("hang write");
    let hung = served.begin(0, write(0x11));
    until("it hangs", || served.cluster.ask("held") == 1);
    let moved = served.begin_move_once();
    until("it moves", || served.is("moving") || moved.is_finished());
    // It waits for the end of the move, whichever that is; a queue that is opened now does so too.
    let waits = [served.begin(0, read), served.begin(1, read)];
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::InFlight(_)), "{error}");
    assert_eq!(wait(&waits[0]), Ok(()));
    assert_eq!(wait(&waits[1]), Ok(()));
    assert_eq!(*hung.lock().unwrap(), None);
    served.cluster.tell("release");
    assert_eq!(wait(&hung), Ok(()));
    served.goes_on_with(&shared, 1);
    // Another time it does move.
    served.moved().unwrap();
    served.end();
}

/// And nothing waits for that, as it may take for ever.
#[test]
fn a_read_that_was_answered_and_hangs_keeps_a_volume_where_it_is() {
    let served = Served::new("&io_timeout=200ms");
    let shared = served.client();
    served.cluster.tell("hang read");
    assert_eq!(wait(&served.begin(0, read)), Err(VolumeError::TimedOut));
    assert_eq!(served.report().orphans, 1);
    let error = served.moved().unwrap_err();
    assert!(matches!(error, NotMoved::Orphans(1)), "{error}");
    served.cluster.tell("release");
    until("the orphan comes home", || served.report().orphans == 0);
    served.goes_on_with(&shared, 1);
    served.end();
}

#[test]
fn requests_wait_for_the_end_of_a_move_and_go_to_the_new_client() {
    let served = Served::new("");
    let shared = served.client();
    let moved = served.begin_closing();
    let waits = [served.begin(0, write(0x21)), served.begin(1, read)];
    served.cluster.tell("acquire_hangs on");
    served.cluster.tell("close_hangs off");
    until("the lock is taken", || served.cluster.ask("acquiring") == 1);
    assert_eq!(served.cluster.ask("is_locked rbd/image"), 0);
    // Nobody has the lock now, and nobody else gets it.
    let other = try_open(&served.harness, &host("b"), &served.url, Access::READ_WRITE);
    let Err(OpenError::InUse { reason, .. }) = other.map(drop) else {
        panic!("two gateways write to one image")
    };
    assert!(
        reason.contains(&format!("gateway gateway-a (client {shared},")),
        "{reason}"
    );
    assert!(waits.iter().all(|ended| ended.lock().unwrap().is_none()));
    served.cluster.tell("acquire_hangs off");
    moved.join().unwrap().unwrap();
    assert_eq!(wait(&waits[0]), Ok(()));
    assert_eq!(wait(&waits[1]), Ok(()));
    assert_eq!(served.byte(), 0x21);
    assert_ne!(served.client(), shared);
    served.end();
}

/// What is only looked at has no part in it: as long as the image's watchers are not told, as where its header is silent, it has moved all
/// the same.
#[test]
fn a_lock_that_was_passed_on_is_enough() {
    let served = Served::new("&fence_timeout=600s");
    let shared = served.client();
    served.cluster.tell("acquire_hangs on");
    let moved = served.begin_move();
    until("the lock is taken", || served.cluster.ask("acquiring") == 1);
    let waits = served.begin(0, write(0x22));
    served.cluster.tell("watchers_hang on");
    served.cluster.tell("acquire_hangs off");
    let moved = moved.join().unwrap();
    assert!(moved.is_ok(), "{moved:?}");
    assert_eq!(wait(&waits), Ok(()));
    assert_eq!(served.byte(), 0x22);
    assert_ne!(served.client(), shared);
    served.cluster.tell("watchers_hang off");
    served.end();
}

#[test]
fn a_client_that_is_refused_while_its_volume_moves_ends_the_move() {
    undisturbed(|| {
        let served = Served::new("");
        let shared = served.client();
        assert_eq!(served.write(0x31), Ok(()));
        served.cluster.tell("hang write");
        let hung = served.begin(0, write(0x32));
        until("it hangs", || served.cluster.ask("held") == 1);
        let moved = served.begin_move_once();
        until("it moves", || served.is("moving") || moved.is_finished());
        served.cluster.tell(&format!("blocklist {shared}"));
        served.cluster.tell("release");
        assert_eq!(wait(&hung), Err(VolumeError::TimedOut));
        let error = moved.join().unwrap().unwrap_err();
        let is_disturbed = matches!(error, NotMoved::InFlight(_));
        assert!(
            is_disturbed || matches!(error, NotMoved::Overtaken),
            "{error}"
        );
        assert_eq!(served.byte(), 0x31);
        assert_eq!(served.write(0x33), Ok(()));
        assert_eq!(served.byte(), 0x33);
        let report = served.report();
        assert_eq!((report.moves, report.reopened), (0, 1));
        served.end();
        !is_disturbed
    });
}

/// A write that times out while the volume moves is fenced before it is answered, as ever.
#[test]
fn a_write_that_times_out_while_its_volume_moves_is_fenced() {
    undisturbed(|| {
        let served = Served::new("&io_timeout=600ms&fence_timeout=600s");
        let shared = served.client();
        served.cluster.tell("hang write");
        let hung = served.begin(0, write(0x41));
        until("it hangs", || served.cluster.ask("held") == 1);
        // Again and again, so that one is under way at that moment, and the fence cannot hold then.
        let ended = loop {
            let moved = served.begin_move_once();
            until("it moves, or cannot", || {
                moved.is_finished() || !served.is("serving")
            });
            served.cluster.tell("monitors down");
            match moved.join().unwrap() {
                // The second: the monitors were down before it had a client, as its thread stood still.
                Err(NotMoved::InFlight(_) | NotMoved::NoClient(_)) => {
                    served.cluster.tell("monitors up");
                }
                ended => break ended,
            }
        };
        std::thread::sleep(WHILE);
        if hung.lock().unwrap().is_some() {
            // It has timed out between two moves, while the monitors were up.
            served.cluster.tell("monitors up");
            served.cluster.tell("release");
            until("it serves again", || served.is("serving"));
            served.end();
            return false;
        }
        assert!(
            matches!(ended, Err(NotMoved::Overtaken | NotMoved::NotServing)),
            "{ended:?}"
        );
        assert!(served.is("fencing") && !served.is_blocklisted(&shared));
        served.cluster.tell("monitors up");
        assert_eq!(wait(&hung), Err(VolumeError::TimedOut));
        assert!(served.is_blocklisted(&shared));
        served.cluster.tell("release");
        until("it serves again", || served.is("serving"));
        assert_eq!(served.byte(), 0, "it landed after its answer");
        until("the orphan comes home", || served.report().orphans == 0);
        // It may time out again while the machine stands still.
        until("it is written", || served.write(0x42).is_ok());
        served.end();
        true
    });
}

#[test]
fn a_fence_while_the_volume_moves_waits_as_ever() {
    let served = Served::new("");
    let moved = served.begin_closing();
    let waits = served.begin(0, write(0x51));
    let ended = Arc::new(AtomicBool::new(false));
    let (sender, fenced) = weir_reactor::oneshot();
    let answered = Arc::clone(&ended);
    let began = Instant::now();
    served.volume().fence(Box::new(move |result| {
        answered.store(true, Ordering::Relaxed);
        sender.send(result);
    }));
    std::thread::sleep(WHILE);
    // A fence has this patience with what waits, and the machine may stand still for longer.
    let is_early = ended.load(Ordering::Relaxed) && began.elapsed() < Duration::from_secs(2);
    assert!(!is_early, "a write that came before it is open");
    assert_eq!(served.cluster.ask("closing"), 1);
    served.cluster.tell("close_hangs off");
    assert_eq!(fenced.wait(), Some(Ok(())));
    moved.join().unwrap().unwrap();
    // A fence has little patience with what waits.
    let answer = wait(&waits);
    assert!(
        matches!(answer, Ok(()) | Err(VolumeError::TimedOut)),
        "{answer:?}"
    );
    assert_eq!(served.report().reopened, 0);
    served.end();
}

#[test]
fn a_volume_that_is_closed_while_it_moves_is_closed() {
    // While something is in flight.
    let mut served = Served::new("");
    served.cluster.tell("hang write");
    let hung = served.begin(0, write(0x61));
    until("it hangs", || served.cluster.ask("held") == 1);
    let moved = served.begin_move();
    until("it moves", || served.is("moving"));
    let host = Arc::clone(&served.host);
    drop(served.volume.take());
    let closed = std::thread::spawn(move || host);
    served.cluster.tell("release");
    assert_eq!(wait(&hung), Ok(()));
    drop(closed.join().unwrap());
    // The queue's client kept it open until its write had ended.
    let result = moved.join().unwrap();
    assert!(
        matches!(
            result,
            Ok(()) | Err(NotMoved::Overtaken | NotMoved::NotServing)
        ),
        "{result:?}"
    );
    served.end();
    // While it is closed on one client, and while the other takes its lock.
    for hangs in ["close_hangs", "acquire_hangs"] {
        let served = Served::new("");
        served.cluster.tell(&format!("{hangs} on"));
        let moved = served.begin_move();
        until("it hangs", || {
            served.cluster.ask("closing") + served.cluster.ask("acquiring") == 1
        });
        let waits = served.begin(0, write(0x62));
        let host = Arc::clone(&served.host);
        let closing = std::thread::spawn(move || {
            let harness = Harness::real(1);
            harness.run(0, move |_| async move { host.close_all().await });
        });
        assert_eq!(
            wait(&waits),
            Err(VolumeError::Lost),
            "what waits for a closed volume"
        );
        served.cluster.tell(&format!("{hangs} off"));
        closing.join().unwrap();
        let error = moved.join().unwrap().unwrap_err();
        assert!(matches!(error, NotMoved::Overtaken), "{error}");
        assert_eq!(served.byte(), 0);
        served.end();
    }
}

#[test]
fn a_client_that_cannot_be_had_changes_nothing() {
    let served = Served::new("");
    let shared = served.client();
    for trouble in ["connect_fails 111", "connect_fails 12"] {
        served.cluster.tell(trouble);
        let error = served.moved().unwrap_err();
        assert!(matches!(error, NotMoved::NoClient(_)), "{error}");
        assert!(
            error.to_string().contains("cannot connect to the cluster"),
            "{error}"
        );
    }
    served.goes_on_with(&shared, 2);
    served.end();
}

#[test]
fn an_image_that_the_new_client_cannot_have_is_opened_on_the_old_one_again() {
    // The new client does not get the lock, or cannot leave word that it has it.
    for trouble in ["acquire_fails 5", "metadata_fails 5"] {
        let served = Served::new("");
        let (shared, neighbour) = (served.client(), Neighbour::new(&served));
        served.cluster.tell("acquire_hangs on");
        let moved = served.begin_move();
        until("the lock is taken", || served.cluster.ask("acquiring") == 1);
        let waits = served.begin(1, write(0x71));
        served.cluster.tell(trouble);
        served.cluster.tell("acquire_hangs off");
        let error = moved.join().unwrap().unwrap_err();
        assert!(
            matches!(error, NotMoved::NotOpened(_)),
            "{trouble}: {error}"
        );
        assert_eq!(wait(&waits), Ok(()));
        assert_eq!(neighbour.client(&served.host), shared);
        drop(neighbour);
        served.goes_on_with(&shared, 1);
        served.end();
    }
}

/// Without it another gateway would take the image for free on the way.
#[test]
fn an_image_with_which_no_word_can_be_left_stays_where_it_was() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("metadata_fails 5");
    let error = served.moved().unwrap_err();
    assert!(matches!(error, NotMoved::NotOpened(_)), "{error}");
    served.goes_on_with(&shared, 1);
    served.end();
}

#[test]
fn an_image_that_neither_client_can_have_is_opened_again() {
    let served = Served::new("");
    let (shared, neighbour) = (served.client(), Neighbour::new(&served));
    served.cluster.tell("acquire_fails 5");
    served.cluster.tell("acquire_fails 5");
    let error = served.moved().unwrap_err();
    assert!(matches!(error, NotMoved::Lost(_)), "{error}");
    assert_eq!(served.write(0x81), Ok(()));
    assert_eq!(served.byte(), 0x81);
    let report = served.report();
    assert_eq!(
        (report.phase, report.moves, report.reopened),
        ("serving", 0, 1)
    );
    assert_eq!(report.moves_called_off, 1);
    let why = report.reopened_why.unwrap();
    assert!(why.contains("while it moved"), "{why}");
    // Nothing was in flight, so that nobody was cut off: neither this one nor who shares its client.
    assert!(!served.is_blocklisted(&shared));
    assert_eq!(neighbour.client(&served.host), shared);
    assert_eq!(neighbour.write(&served, 0x82), Ok(()));
    assert_eq!(report.own_client, None);
    drop(neighbour);
    served.end();
}

/// This happens when a write of a neighbour is not answered. The client keeps the lock then.
#[test]
fn an_image_that_moves_from_a_client_that_is_refused_meanwhile_is_opened_again() {
    let served = Served::new("");
    let shared = served.client();
    let moved = served.begin_closing();
    let waits = served.begin(0, write(0x83));
    served.cluster.tell(&format!("blocklist {shared}"));
    served.cluster.tell("close_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Lost(_)), "{error}");
    assert_eq!(wait(&waits), Ok(()));
    assert_eq!(served.byte(), 0x83);
    let report = served.report();
    assert_eq!(
        (report.phase, report.moves, report.reopened),
        ("serving", 0, 1)
    );
    served.end();
}

/// Requests wait for the image and time out, which is told, and nobody else waits.
#[test]
fn a_cluster_that_does_not_answer_on_the_way_holds_nothing_else_up() {
    for (hangs, waits) in [("close_hangs", "closing"), ("acquire_hangs", "acquiring")] {
        let served = Served::new("&io_timeout=2s");
        let (shared, neighbour) = (served.client(), Neighbour::new(&served));
        served.cluster.tell(&format!("{hangs} on"));
        let moved = served.begin_move();
        until("it hangs", || served.cluster.ask(waits) == 1);
        let request = served.begin(0, write(0xe1));
        assert_eq!(wait(&request), Err(VolumeError::TimedOut), "{hangs}");
        assert!(served.is("moving"), "{hangs}");
        let trouble = served.report().trouble.unwrap();
        assert!(trouble.contains("did not answer in time"), "{trouble}");
        assert_eq!(neighbour.write(&served, 0xe2), Ok(()), "{hangs}");
        served.cluster.tell(&format!("{hangs} off"));
        moved.join().unwrap().unwrap();
        assert_eq!(served.write(0xe3), Ok(()), "{hangs}");
        assert_eq!(served.byte(), 0xe3, "{hangs}");
        let report = served.report();
        assert_eq!((report.moves, report.reopened), (1, 0), "{hangs}");
        assert_eq!(report.trouble, None, "{hangs}");
        assert!(!served.is_blocklisted(&shared), "{hangs}");
        assert_eq!(neighbour.client(&served.host), shared, "{hangs}");
        drop(neighbour);
        served.end();
    }
}

/// librbd may wait for ever for a lock that another client has.
#[test]
fn a_lock_that_another_takes_and_that_is_waited_for_is_the_others() {
    let served = Served::new("");
    let (shared, neighbour) = (served.client(), Neighbour::new(&served));
    served.cluster.tell("acquire_hangs on");
    let moved = served.begin_move();
    until("it hangs", || served.cluster.ask("acquiring") == 1);
    let request = served.begin(0, write(0xe6));
    served.cluster.tell(OTHER_SIGNS);
    served.cluster.tell("lock rbd/image 10.9.9.9:0/1 alive");
    served.cluster.tell("acquire_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Lost(_)), "{error}");
    assert_eq!(wait(&request), Err(VolumeError::Lost));
    until("it is given up", || served.is("gone"));
    let trouble = served.report().trouble.unwrap();
    assert!(
        trouble.contains("gateway gateway-b (client 10.9.9.9:0/1) has the image's lock"),
        "{trouble}"
    );
    until("both clients have let go", || {
        served.host.clients().len() == 1
    });
    assert_eq!(served.cluster.ask("is_locked rbd/image"), 1);
    assert!(!served.is_blocklisted("10.9.9.9:0/1") && !served.is_blocklisted(&shared));
    assert_eq!(neighbour.write(&served, 0xe7), Ok(()));
    assert_eq!(served.byte(), 0);
}

/// It is closed while nobody has the lock, and neither gets it back: it stays closed.
#[test]
fn a_lock_that_is_lost_while_the_volume_is_closed_cuts_nobody_off() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("acquire_hangs on");
    let moved = served.begin_move();
    until("it hangs", || served.cluster.ask("acquiring") == 1);
    let request = served.begin(0, write(0xe4));
    let host = Arc::clone(&served.host);
    let closing = std::thread::spawn(move || {
        let harness = Harness::real(1);
        harness.run(0, move |_| async move { host.close_all().await });
    });
    assert_eq!(wait(&request), Err(VolumeError::Lost));
    served.cluster.tell("acquire_fails 5");
    served.cluster.tell("acquire_fails 5");
    served.cluster.tell("acquire_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Overtaken), "{error}");
    closing.join().unwrap();
    assert!(!served.is_blocklisted(&shared));
    served.end();
}

/// A write that was answered may fail later, and closing the image would hear of it in place of the host.
#[test]
fn a_volume_with_a_volatile_cache_stays_on_its_client() {
    for cache in ["writeback", "writearound"] {
        let served = Served::new(&format!("&cache={cache}"));
        let shared = served.client();
        let error = served.moved().unwrap_err();
        assert!(matches!(error, NotMoved::VolatileCache), "{error}");
        served.goes_on_with(&shared, 1);
        served.end();
    }
}

#[test]
fn who_asks_for_a_client_by_measurement_and_a_volatile_cache_is_told() {
    let cluster = Cluster::with_image(4 * MIB);
    let (harness, host) = (Harness::real(1), host("a"));
    for (more, access, told) in [
        ("&cache=writeback", Access::READ_WRITE, true),
        ("&cache=writearound", Access::READ_WRITE, true),
        ("&cache=writeback", Access::READ_ONLY, false),
        ("&cache=writethrough", Access::READ_WRITE, false),
    ] {
        let mut registry = Registry::new();
        registry.register(SCHEME, host.factory());
        let url: VolumeUrl = cluster.url(&format!("{AUTO}{more}")).parse().unwrap();
        let notices = harness.run(0, move |reactor| async move {
            // The right to write to it is given back last, after its client.
            loop {
                match registry.open(&reactor, &url, access).await {
                    Err(error) if error.in_use() => reactor.sleep(Duration::from_millis(5)).await,
                    opened => {
                        drop(opened.unwrap());
                        break;
                    }
                }
            }
            registry.take_notices()
        });
        let said = notices
            .iter()
            .any(|notice| notice.text.contains("bdevs_per_cluster=1 gives it one"));
        assert_eq!(said, told, "{more}: {notices:?}");
        until("it is closed", || cluster.ask("is_locked rbd/image") == 0);
        until("nobody has it", || host.clients().is_empty());
    }
}

/// Who finds that the lock was given up while it looked at its holder looks anew whom the image belongs to.
#[test]
fn a_lock_that_is_free_while_its_gateway_is_there_is_not_taken() {
    let served = Served::new("");
    let client = served.client();
    served.cluster.tell("lock rbd/image 10.9.9.9:0/1 dead");
    served.cluster.tell("break_fails 2");
    let other = try_open(&served.harness, &host("b"), &served.url, Access::READ_WRITE);
    assert_eq!(served.cluster.ask("is_locked rbd/image"), 0);
    let Err(OpenError::InUse { reason, .. }) = other.map(drop) else {
        panic!("the lock was taken from a gateway that passes it on")
    };
    assert!(
        reason.contains(&format!("gateway gateway-a (client {client})")),
        "{reason}"
    );
    served.end();
}

#[test]
fn a_lock_that_another_takes_on_the_way_is_the_others() {
    let served = Served::new("");
    let moved = served.begin_closing();
    let waits = served.begin(0, write(0x91));
    served.cluster.tell(OTHER_SIGNS);
    served.cluster.tell("lock rbd/image 10.9.9.9:0/1 alive");
    served.cluster.tell("close_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Lost(_)), "{error}");
    assert_eq!(wait(&waits), Err(VolumeError::Lost));
    until("it is given up", || served.is("gone"));
    assert_eq!(served.byte(), 0);
    assert!(!served.is_blocklisted("10.9.9.9:0/1"));
    let report = served.report();
    let trouble = report.trouble.unwrap();
    assert!(
        trouble.contains("gateway gateway-b (client 10.9.9.9:0/1) has the image's lock"),
        "{trouble}"
    );
}

#[test]
fn a_resize_waits_for_a_move() {
    struct Count(AtomicU64);
    impl Watcher for Count {
        fn notice(&self, event: VolumeEvent) {
            assert_eq!(event, VolumeEvent::Resized);
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let served = Served::new("");
    let count = Arc::new(Count(AtomicU64::new(0)));
    let watcher: Arc<dyn Watcher> = count.clone();
    served.volume().watch(Arc::downgrade(&watcher));
    let moved = served.begin_closing();
    let resized = served
        .harness
        .begin_resize(served.volume(), 6 * MIB / BLOCK as u64, false);
    std::thread::sleep(WHILE);
    assert!(resized.lock().unwrap().is_none(), "it has not waited");
    assert_eq!(served.cluster.ask("closing"), 1);
    assert_eq!(served.volume().geometry().length_bytes(), 4 * MIB);
    served.cluster.tell("close_hangs off");
    moved.join().unwrap().unwrap();
    until("it is resized", || resized.lock().unwrap().is_some());
    let geometry = resized.lock().unwrap().take().unwrap().unwrap();
    assert_eq!(geometry.length_bytes(), 6 * MIB);
    // By the resize, or by what is seen of it, or both.
    until("it is told", || count.0.load(Ordering::Relaxed) > 0);
    assert_eq!(served.write(0xa1), Ok(()));
    served.end();
}

#[test]
fn a_volume_to_read_moves_without_a_lock() {
    let served = Served::new("");
    let reader = host("b");
    let volume = try_open(&served.harness, &reader, &served.url, Access::READ_ONLY).unwrap();
    reader.give_own_client(&served.url).unwrap();
    assert_eq!(reader.volumes()[0].own_client, Some(Reason::Asked));
    assert_eq!(served.write(0xb1), Ok(()), "the writer has its lock");
    let there = served.harness.run(0, move |reactor| async move {
        Client::open(&volume, &reactor, 1).read(0, 1).await
    });
    assert_eq!(there.unwrap()[0], 0xb1);
    served
        .harness
        .run(0, move |_| async move { reader.close_all().await });
    served.end();
}
