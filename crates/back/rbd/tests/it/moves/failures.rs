//! Failures on the way, step by step.

use super::*;

/// As little as may be asked for: a cluster that hangs is silent for longer, whatever the machine does.
const SHORT: &str = "&io_timeout=600s&fence_timeout=100ms";

#[derive(Default)]
struct Events(Mutex<Vec<VolumeEvent>>);

impl Watcher for Events {
    fn notice(&self, event: VolumeEvent) {
        self.0.lock().unwrap().push(event);
    }
}

impl Served {
    /// The address of the client that a move has connected.
    fn own(&self) -> String {
        let clients = self.host.clients();
        let own = clients.iter().find(|client| client.own);
        own.unwrap().address.clone()
    }

    fn resize(&self, bytes: u64) -> harness::Resized {
        let blocks = bytes / BLOCK as u64;
        self.harness.begin_resize(self.volume(), blocks, false)
    }

    /// Closes the volume on a thread of its own.
    fn begin_close(&self) -> JoinHandle<()> {
        let host = Arc::clone(&self.host);
        std::thread::spawn(move || {
            let harness = Harness::real(1);
            harness.run(0, move |_| async move { host.close_all().await });
        })
    }

    /// Opens a queue in which nothing is under way, unless the volume is lost by now. It is closed when the sender is dropped.
    fn idle(&self) -> Result<weir_reactor::Sender<()>, VolumeError> {
        let volume = Arc::clone(self.volume());
        let (sender, end) = weir_reactor::oneshot();
        self.harness.run(1, move |reactor| async move {
            let sink = weir_block::Completions::new();
            let queue = volume.open_queue(&reactor, 1, sink)?;
            let task = async move {
                end.await;
                drop(queue);
            };
            reactor.spawn(task).detach();
            Ok(sender)
        })
    }

    fn opens_queues(&self) -> Result<(), VolumeError> {
        let volume = Arc::clone(self.volume());
        self.harness.run(0, move |reactor| async move {
            let sink = weir_block::Completions::new();
            volume.open_queue(&reactor, 1, sink).map(drop)
        })
    }
}

/// It comes back by itself. Nobody is cut off for it, and who shares the client serves on.
#[test]
fn a_cluster_that_is_silent_for_too_long_on_the_way_loses_the_volume_for_as_long() {
    for (hangs, waits) in [("close_hangs", "closing"), ("acquire_hangs", "acquiring")] {
        for is_idle in [false, true] {
            let served = Served::new(SHORT);
            let (shared, neighbour) = (served.client(), Neighbour::new(&served));
            let events = Arc::new(Events::default());
            let watcher: Arc<dyn Watcher> = events.clone();
            served.volume().watch(Arc::downgrade(&watcher));
            let idle = is_idle.then(|| served.idle().unwrap());
            served.cluster.tell(&format!("{hangs} on"));
            let moved = served.begin_move();
            until("it hangs", || served.cluster.ask(waits) == 1);
            if !is_idle {
                // The first queue: before there is one, nobody can be told.
                let waits = served.begin(0, write(0xf1));
                assert_eq!(wait(&waits), Err(VolumeError::Lost), "{hangs}");
            }
            until("it is told", || !events.0.lock().unwrap().is_empty());
            assert_eq!(served.opens_queues(), Err(VolumeError::Lost), "{hangs}");
            assert!(served.is("moving"), "{hangs}");
            let trouble = served.report().trouble.unwrap();
            assert!(trouble.contains("lost while it moves"), "{trouble}");
            assert_eq!(neighbour.write(&served, 0xf2), Ok(()), "{hangs}");
            served.cluster.tell(&format!("{hangs} off"));
            moved.join().unwrap().unwrap();
            assert_eq!(
                *events.0.lock().unwrap(),
                [VolumeEvent::Lost, VolumeEvent::Restored],
                "{hangs}"
            );
            assert_eq!(served.write(0xf3), Ok(()), "{hangs}");
            assert_eq!(served.byte(), 0xf3, "{hangs}");
            let report = served.report();
            assert_eq!((report.moves, report.reopened), (1, 0), "{hangs}");
            assert_eq!(report.trouble, None, "{hangs}");
            assert!(!served.is_blocklisted(&shared), "{hangs}");
            assert_eq!(neighbour.client(&served.host), shared, "{hangs}");
            drop((neighbour, idle));
            served.end();
        }
    }
}

/// The bound is the move's: hosts that connect again and again meanwhile do not put it off.
#[test]
fn queues_that_come_and_go_do_not_keep_a_move_from_its_bound() {
    let served = Served::new("&io_timeout=600s&fence_timeout=1s");
    let events = Arc::new(Events::default());
    let watcher: Arc<dyn Watcher> = events.clone();
    served.volume().watch(Arc::downgrade(&watcher));
    served.cluster.tell("close_hangs on");
    let moved = served.begin_move();
    until("it hangs", || served.cluster.ask("closing") == 1);
    until("it is told", || {
        let queue = served.idle();
        std::thread::sleep(Duration::from_millis(50));
        drop(queue);
        !events.0.lock().unwrap().is_empty()
    });
    assert_eq!(*events.0.lock().unwrap(), [VolumeEvent::Lost]);
    served.cluster.tell("close_hangs off");
    moved.join().unwrap().unwrap();
    assert_eq!(served.write(0xf4), Ok(()));
    served.end();
}

/// The way back from a move that was called off is bounded too.
#[test]
fn an_image_that_is_opened_again_after_a_move_is_lost_when_that_takes_too_long() {
    let served = Served::new(SHORT);
    let events = Arc::new(Events::default());
    let watcher: Arc<dyn Watcher> = events.clone();
    served.volume().watch(Arc::downgrade(&watcher));
    served.cluster.tell("acquire_hangs on");
    let moved = served.begin_move();
    until("it hangs", || served.cluster.ask("acquiring") == 1);
    // Neither client gets the lock, and the image is not opened on a third.
    for _ in 0..2 {
        served.cluster.tell("acquire_fails 5");
    }
    served.cluster.tell("connect_hangs on");
    served.cluster.tell("acquire_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Lost(_)), "{error}");
    until("it connects", || served.cluster.ask("connecting") == 1);
    let idle = served.idle();
    until("it is told", || !events.0.lock().unwrap().is_empty());
    drop(idle);
    assert_eq!(served.opens_queues(), Err(VolumeError::Lost));
    assert!(served.is("reopening"));
    let trouble = served.report().trouble.unwrap();
    assert!(
        trouble.contains("could be opened on no client"),
        "{trouble}"
    );
    served.cluster.tell("connect_hangs off");
    until("it is back", || {
        *events.0.lock().unwrap() == [VolumeEvent::Lost, VolumeEvent::Restored]
    });
    assert_eq!(served.write(0xf4), Ok(()));
    assert_eq!(served.report().trouble, None);
    served.end();
}

#[test]
fn what_fails_in_flight_fails_for_its_host_and_not_for_the_move() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("hang flush");
    let flushed = served.begin(0, || Operation::Flush);
    until("it hangs", || served.cluster.ask("held") == 1);
    let moved = served.begin_move_once();
    until("it moves", || served.is("moving") || moved.is_finished());
    served.cluster.tell("release 5");
    assert_eq!(wait(&flushed), Err(VolumeError::Medium));
    match moved.join().unwrap() {
        Ok(()) => assert_ne!(served.client(), shared),
        // The machine stood still.
        Err(error) => assert!(matches!(error, NotMoved::InFlight(_)), "{error}"),
    }
    assert_eq!(wait(&served.begin(0, || Operation::Flush)), Ok(()));
    assert_eq!(served.report().reopened, 0);
    served.end();
}

/// Its watch is gone with the image, and yet it lives: others use it.
#[test]
fn a_client_that_keeps_the_lock_is_not_cut_off_while_others_use_it() {
    let served = Served::new("");
    let (shared, neighbour) = (served.client(), Neighbour::new(&served));
    served.cluster.tell("close_fails 5");
    let error = served.moved().unwrap_err();
    assert!(matches!(error, NotMoved::NotOpened(_)), "{error}");
    assert!(
        error.to_string().contains("has not let go of it"),
        "{error}"
    );
    assert!(!served.is_blocklisted(&shared));
    assert_eq!(neighbour.write(&served, 0xa2), Ok(()));
    drop(neighbour);
    served.goes_on_with(&shared, 1);
    served.end();
}

/// It would be waited for for ever.
#[test]
fn a_client_that_has_died_with_the_lock_is_cut_off() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("acquire_hangs on");
    let moved = served.begin_move();
    until("the lock is taken", || served.cluster.ask("acquiring") == 1);
    let own = served.own();
    let waits = served.begin(0, write(0xa3));
    // It gets the lock, does not hear of it, and does not let go.
    served.cluster.tell(&format!("lock rbd/image {own} alive"));
    served.cluster.tell("acquire_fails 110");
    served.cluster.tell("close_fails 110");
    served.cluster.tell("acquire_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::NotOpened(_)), "{error}");
    assert_eq!(wait(&waits), Ok(()));
    assert!(served.is_blocklisted(&own));
    served.goes_on_with(&shared, 1);
    served.end();
}

/// Nor does it leave its own word with that.
#[test]
fn an_image_that_another_gateway_has_taken_does_not_move() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell(OTHER_SIGNS);
    served.cluster.tell("lock rbd/image 10.9.9.9:0/1 alive");
    let error = served.moved().unwrap_err();
    assert!(matches!(error, NotMoved::NotOpened(_)), "{error}");
    assert!(
        error.to_string().contains("another client has its lock"),
        "{error}"
    );
    let report = served.report();
    assert_eq!((report.phase, report.client), ("serving", Some(shared)));
    let other = try_open(&served.harness, &host("c"), &served.url, Access::READ_WRITE);
    let Err(OpenError::InUse { reason, .. }) = other.map(drop) else {
        panic!("two gateways write to one image")
    };
    assert!(
        reason.contains("gateway gateway-b (client 10.9.9.9:0/1)"),
        "{reason}"
    );
    // A write finds it out, as ever.
    assert_eq!(served.write(0xa4), Err(VolumeError::Lost));
    until("it is given up", || served.is("gone"));
    let trouble = served.report().trouble.unwrap();
    assert!(trouble.contains("gateway gateway-b"), "{trouble}");
    assert_eq!(served.byte(), 0);
}

#[test]
fn a_volume_that_is_resized_does_not_move() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("resize_hangs on");
    let resized = served.resize(6 * MIB);
    until("it hangs", || served.cluster.ask("resizing") == 1);
    let error = served.begin_move_once().join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Busy), "{error}");
    assert_eq!(served.write(0xa5), Ok(()));
    served.cluster.tell("resize_hangs off");
    until("it is resized", || resized.lock().unwrap().is_some());
    assert_eq!(served.volume().geometry().length_bytes(), 6 * MIB);
    served.goes_on_with(&shared, 1);
    served.moved().unwrap();
    served.end();
}

#[test]
fn a_resize_does_not_wait_for_the_client_of_a_move() {
    for (hangs, waits) in [("connect_hangs", "connecting"), ("open_hangs", "opening")] {
        let served = Served::new("");
        served.cluster.tell(&format!("{hangs} on"));
        let moved = served.begin_move();
        until("it hangs", || served.cluster.ask(waits) == 1);
        let resized = served.resize(6 * MIB);
        until("it is resized", || resized.lock().unwrap().is_some());
        assert_eq!(served.volume().geometry().length_bytes(), 6 * MIB);
        assert_eq!(served.cluster.ask(waits), 1, "{hangs}");
        served.cluster.tell(&format!("{hangs} off"));
        moved.join().unwrap().unwrap();
        assert_eq!(served.volume().geometry().length_bytes(), 6 * MIB);
        served.end();
    }
}

/// There is no life to ask when it is told.
#[test]
fn a_size_that_changes_in_a_move_that_is_called_off_is_seen() {
    undisturbed(|| {
        let served = Served::new("");
        let shared = served.client();
        served.cluster.tell("hang write");
        let hung = served.begin(0, write(0xa6));
        until("it hangs", || served.cluster.ask("held") == 1);
        let asked = served.cluster.ask("sizes_asked");
        let moved = served.begin_move_once();
        until("it moves", || served.is("moving") || moved.is_finished());
        served
            .cluster
            .tell(&format!("resize rbd/image {}", 6 * MIB));
        // Whoever was told looks meanwhile, and asks nobody.
        std::thread::sleep(WHILE);
        let is_disturbed = !served.is("moving") || served.cluster.ask("sizes_asked") != asked;
        let error = moved.join().unwrap().unwrap_err();
        assert!(matches!(error, NotMoved::InFlight(_)), "{error}");
        until("it is seen", || {
            served.volume().geometry().length_bytes() == 6 * MIB
        });
        served.cluster.tell("release");
        assert_eq!(wait(&hung), Ok(()));
        served.goes_on_with(&shared, 1);
        served.end();
        !is_disturbed
    });
}

/// Another gateway may have one that nobody watches.
#[test]
fn an_image_that_goes_back_is_watched_all_the_time() {
    let served = Served::new("");
    let shared = served.client();
    served.cluster.tell("acquire_hangs on");
    let moved = served.begin_move();
    until("the lock is taken", || served.cluster.ask("acquiring") == 1);
    let own = served.own();
    served.cluster.tell("acquire_fails 5");
    served.cluster.tell("open_hangs on");
    served.cluster.tell("acquire_hangs off");
    until("it goes back", || served.cluster.ask("opening") == 1);
    let watched = format!("is_watched rbd/image {own}");
    assert_eq!(served.cluster.ask(&watched), 1);
    served.cluster.tell("open_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::NotOpened(_)), "{error}");
    served.goes_on_with(&shared, 1);
    served.end();
}

#[test]
fn a_volume_that_is_closed_while_it_moves_takes_no_lock() {
    let served = Served::new("");
    let moved = served.begin_closing();
    let waits = served.begin(0, write(0xa7));
    let closing = served.begin_close();
    assert_eq!(wait(&waits), Err(VolumeError::Lost));
    served.cluster.tell("acquire_hangs on");
    served.cluster.tell("close_hangs off");
    until("it ends, or takes the lock", || {
        moved.is_finished() || served.cluster.ask("acquiring") == 1
    });
    assert_eq!(served.cluster.ask("acquiring"), 0);
    served.cluster.tell("acquire_hangs off");
    let error = moved.join().unwrap().unwrap_err();
    assert!(matches!(error, NotMoved::Overtaken), "{error}");
    closing.join().unwrap();
    served.end();
}

#[test]
fn what_a_volume_left_unanswered_that_was_closed_while_it_moved_is_fenced() {
    let served = Served::new("&io_timeout=2s");
    let shared = served.client();
    served.cluster.tell("hang write");
    let hung = served.begin(0, write(0xa8));
    until("it hangs", || served.cluster.ask("held") == 1);
    let moved = served.begin_move_once();
    until("it moves", || served.is("moving") || moved.is_finished());
    let closing = served.begin_close();
    // Or what is in flight has not ended in time, where the machine stood still.
    let error = moved.join().unwrap().unwrap_err();
    assert!(
        matches!(error, NotMoved::Overtaken | NotMoved::InFlight(_)),
        "{error}"
    );
    assert_eq!(wait(&hung), Err(VolumeError::TimedOut));
    assert!(served.is_blocklisted(&shared), "answered before the fence");
    served.cluster.tell("release");
    closing.join().unwrap();
    assert_eq!(served.byte(), 0);
    // A client that is refused keeps its lock.
    until("clients end", || served.host.clients().is_empty());
}
