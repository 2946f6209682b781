//! The io_uring driver and the real system, on the real kernel.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::contract::{
    self, Ground, LIMIT, Place, Recorder, config, gather_of, pattern, receive_exactly,
    receive_segment, reopened, send, settle, until,
};
use weir_memory::{Gather, Segment, Segments, View, Views};
use weir_reactor::linux::{
    Feature, LinuxConfig, LinuxSystem, ReceiveBuffers, Unavailable, start_thread,
};
use weir_reactor::{
    AllocateMode, Amount, FileKind, Instant, LocalFile, Op, OpenOptions, PanicPolicy, Reactor,
    ReactorConfig, ReactorThread, ReceiveInto, Received, SocketOptions, Spin, System, TcpListener,
    TcpStream, UseDirect, oneshot,
};

fn linux(config: LinuxConfig) -> Arc<LinuxSystem> {
    LinuxSystem::new(config).expect("io_uring works here")
}

fn system() -> Arc<LinuxSystem> {
    linux(LinuxConfig::default())
}

fn ground_at(config: LinuxConfig, address: SocketAddr, directory: &Path) -> Ground {
    Ground {
        place: Place {
            system: linux(config),
            address,
            directory: directory.to_owned(),
        },
        drive: Box::new(|done| {
            while !done() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
    }
}

fn v4() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, 0))
}

fn v6() -> SocketAddr {
    SocketAddr::from((Ipv6Addr::LOCALHOST, 0))
}

fn ground(config: LinuxConfig) -> (Ground, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    (ground_at(config, v4(), directory.path()), directory)
}

/// A ring that is always too small, with few and short receive buffers.
fn tiny() -> LinuxConfig {
    LinuxConfig {
        ring_entries: 2,
        receive_buffers: ReceiveBuffers {
            count: 2,
            bytes: 4096,
        },
        ..LinuxConfig::default()
    }
}

/// Starts a reactor that serves calls until it is stopped.
fn serve(system: &Arc<LinuxSystem>, config: ReactorConfig) -> ReactorThread {
    let main = |_: Reactor| Box::pin(std::future::pending()) as weir_reactor::LocalFuture<()>;
    Arc::clone(system)
        .start_reactor(config, Box::new(main))
        .expect("a reactor starts")
}

/// Runs this very test again in a process of its own, with `role` in its environment.
fn again(test: &str, role: &str) -> Output {
    Command::new(std::env::current_exe().expect("has a path"))
        .args(["--exact", &format!("linux::{test}"), "--nocapture"])
        .env(ROLE, role)
        .output()
        .expect("runs")
}

const ROLE: &str = "WEIR_TEST_ROLE";

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

#[test]
fn contract_holds() {
    let (ground, _directory) = ground(LinuxConfig::default());
    contract::suite(&ground);
}

#[test]
fn contract_holds_without_newer_features() {
    let (ground, _directory) = ground(LinuxConfig {
        forced_off: Feature::ALL.to_vec(),
        ..LinuxConfig::default()
    });
    contract::suite(&ground);
}

#[test]
fn contract_holds_on_a_tiny_ring_over_v6_and_tmpfs() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    contract::suite(&ground_at(tiny(), v6(), directory.path()));
}

#[test]
fn sixty_four_mebibytes_reach_a_slow_reader() {
    const TOTAL: usize = 64 << 20;
    let (ground, _directory) = ground(LinuxConfig::default());
    ground.run(|reactor, place| async move {
        let small = SocketOptions {
            send_buffer: Some(65536),
            receive_buffer: Some(65536),
            ..SocketOptions::default()
        };
        let (client, server) = place.pair_with(&reactor, &small).await;
        let bytes = pattern(0, TOTAL);
        let mut gather = weir_memory::Gather::new();
        // Runs of every length, headers between them.
        let whole = View::copy_of(&bytes);
        let mut at = 0;
        while at < TOTAL {
            let header = 24.min(TOTAL - at);
            gather.push_header(&bytes[at..at + header]);
            let data = (1 + at * 7 % 200_000).min(TOTAL - at - header);
            gather.push_view(whole.slice(at + header..at + header + data));
            at += header + data;
        }
        client.start_send(gather);
        let mut at = 0;
        while at < TOTAL {
            let view = server.receive().await.expect("receives");
            assert!(view[..] == bytes[at..at + view.len()], "at {at}");
            at += view.len();
        }
        let (result, _) = std::future::poll_fn(|context| client.poll_sent(context)).await;
        result.expect("sends");
    });
}

#[test]
fn a_connect_that_hangs_is_cancelled() {
    let (ground, _directory) = ground(LinuxConfig::default());
    ground.run(|reactor, place| async move {
        // Once the queue of a listener is full, the kernel leaves further attempts unanswered.
        let narrow = SocketOptions {
            backlog: Some(1),
            ..SocketOptions::default()
        };
        let listener = Arc::clone(&place.system)
            .listen(place.address, &narrow)
            .expect("listens");
        let address = listener.address();
        let recorder = Rc::new(Recorder::default());
        let tokens: Vec<_> = (0..8)
            .map(|number| {
                let socket = Arc::clone(&place.system).socket(address, &SocketOptions::default());
                let op = Op::Connect {
                    socket: Rc::new(socket.expect("a socket")),
                    address,
                };
                reactor.submit(op, recorder.clone(), number)
            })
            .collect();
        settle(&reactor).await;
        let connected: Vec<u64> = recorder
            .outcomes
            .take()
            .into_iter()
            .map(|(number, outcome)| {
                outcome.result.expect("there was room");
                number
            })
            .collect();
        for (number, &token) in (0..).zip(&tokens) {
            if !connected.contains(&number) {
                reactor.cancel(token);
            }
        }
        let left = tokens.len() - connected.len();
        until(&reactor, "all end", || {
            recorder.outcomes.borrow().len() == left
        })
        .await;
        // There may have been room for one that took its time.
        let (late, cancelled): (Vec<_>, Vec<_>) = recorder
            .outcomes
            .take()
            .into_iter()
            .partition(|(_, outcome)| outcome.result.is_ok());
        assert!(connected.len() + late.len() > 0, "{cancelled:?}");
        assert!(!cancelled.is_empty(), "{connected:?} {late:?}");
        for (_, outcome) in cancelled {
            let error = outcome.result.expect_err("cancelled");
            assert_eq!(error.raw_os_error(), Some(libc::ECANCELED), "{error}");
        }
    });
}

#[test]
fn receives_wait_for_buffers_and_go_on() {
    const CONNECTIONS: usize = 8;
    let (ground, _directory) = ground(tiny());
    ground.run(|reactor, place| async move {
        let mut pairs = Vec::new();
        for _ in 0..CONNECTIONS {
            pairs.push(place.pair(&reactor).await);
        }
        let (client, server) = &pairs[0];
        let mut held = Vec::new();
        let bound = tiny().receive_buffers.memory_bytes_max() / 4096;
        while held.len() < bound {
            send(client, &[held.len() as u8]).await;
            server.start_receive(ReceiveInto::Ring(Amount::Usual));
            match std::future::poll_fn(|context| server.poll_received(context)).await {
                Ok(Received::Ring(view)) => held.push(view),
                other => panic!("{other:?}"),
            }
        }
        send(client, &[bound as u8]).await;
        server.start_receive(ReceiveInto::Ring(Amount::Usual));
        settle(&reactor).await;
        let received =
            std::future::poll_fn(|context| Poll::Ready(server.poll_received(context))).await;
        assert!(received.is_pending(), "every buffer is held");
        // Others starve too; idle while they do, the reactor sleeps.
        for (client, server) in &pairs[1..] {
            send(client, b"x").await;
            server.start_receive(ReceiveInto::Ring(Amount::Usual));
        }
        settle(&reactor).await;
        let before = reactor.stats();
        reactor.sleep(Duration::from_millis(100)).await;
        let turns = reactor.stats().sleeps - before.sleeps;
        assert!(turns < 10, "a starved reactor sleeps: {turns} turns");
        // A starved receive can be cancelled.
        let (_, cancelled) = &pairs[1];
        cancelled.cancel_receive();
        let result = std::future::poll_fn(|context| cancelled.poll_received(context)).await;
        assert_eq!(
            result.expect_err("cancelled").raw_os_error(),
            Some(libc::ECANCELED)
        );
        // Segments are not concerned.
        let (segment, _) = receive_segment(cancelled, 1, 0).await.expect("receives");
        assert_eq!(segment[..], *b"x");
        // One buffer comes back: one receive goes on, the first that waited.
        assert_eq!(held.pop().as_deref(), Some(&[bound as u8 - 1][..]));
        let result = std::future::poll_fn(|context| server.poll_received(context)).await;
        match result.expect("receives") {
            Received::Ring(view) => assert_eq!(view[..], [bound as u8]),
            other => panic!("{other:?}"),
        }
        // Its view was dropped at once: the buffer goes round.
        for (_, server) in &pairs[2..] {
            let result = std::future::poll_fn(|context| server.poll_received(context)).await;
            match result.expect("receives") {
                Received::Ring(view) => assert_eq!(view[..], *b"x"),
                other => panic!("{other:?}"),
            }
        }
        held.clear();
        for (client, server) in &pairs {
            send(client, &pattern(0, 30_000)).await;
            assert!(receive_exactly(server, 30_000).await == pattern(0, 30_000));
        }
    });
}

#[test]
fn no_wake_is_lost_in_a_storm() {
    const THREADS: usize = 4;
    const WAKES: usize = 20_000;
    let system = system();
    // Without spinning, so that the reactor is always about to fall asleep.
    let thread = serve(
        &system,
        ReactorConfig {
            spin: Spin::For(Duration::ZERO),
            ..config()
        },
    );
    let seen = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let (remote, seen) = (thread.remote.clone(), seen.clone());
            scope.spawn(move || {
                for wake in 0..WAKES {
                    let seen = seen.clone();
                    remote
                        .run(move |_| {
                            seen.fetch_add(1, Ordering::Relaxed);
                        })
                        .expect("it runs");
                    if wake % (number + 2) == 0 {
                        // Whoever waits for an answer would wait for ever for a lost one.
                        let answer = remote.call_blocking(move |_| async move { wake });
                        assert_eq!(answer, Ok(wake));
                    }
                }
            });
        }
    });
    let all = remote_count(&thread, &seen);
    assert_eq!(all, THREADS * WAKES);
    thread.remote.stop();
    thread.join();
}

fn remote_count(thread: &ReactorThread, seen: &Arc<AtomicUsize>) -> usize {
    let seen = seen.clone();
    thread
        .remote
        .call_blocking(move |_| async move { seen.load(Ordering::Relaxed) })
        .expect("it runs")
}

#[test]
fn tasks_are_woken_by_foreign_threads() {
    const ROUNDS: usize = 5_000;
    let system = system();
    let thread = serve(&system, config());
    let (sender, receiver) = std::sync::mpsc::channel::<weir_reactor::Sender<usize>>();
    let waker = std::thread::spawn(move || {
        for (round, answer) in receiver.into_iter().enumerate() {
            answer.send(round);
        }
    });
    let sum = thread.remote.call_blocking(move |_| async move {
        let mut sum = 0;
        for _ in 0..ROUNDS {
            let (answer, coming) = oneshot();
            sender.send(answer).expect("taken");
            sum += coming.await.expect("answered");
        }
        sum
    });
    assert_eq!(sum, Ok(ROUNDS * (ROUNDS - 1) / 2));
    waker.join().expect("no panic");
    thread.remote.stop();
    thread.join();
}

#[test]
fn an_idle_reactor_sleeps() {
    let system = system();
    let thread = serve(
        &system,
        ReactorConfig {
            spin: Spin::For(Duration::ZERO),
            ..config()
        },
    );
    let stats = || {
        thread
            .remote
            .call_blocking(|reactor| async move { reactor.stats() })
            .expect("it runs")
    };
    // Idle connections and listeners cost nothing either.
    let address = v4();
    let held = thread.remote.call_blocking(move |reactor| async move {
        let system = Arc::clone(reactor.system());
        let listener = system
            .listen(address, &SocketOptions::default())
            .expect("listens");
        let listener = TcpListener::new(&reactor, listener);
        reactor
            .spawn(async move { while listener.accept().await.is_ok() {} })
            .detach();
    });
    assert_eq!(held, Ok(()));
    let before = stats();
    std::thread::sleep(Duration::from_millis(200));
    let after = stats();
    let turns = after.turns - before.turns;
    assert!(turns <= 10, "{turns} turns while idle");
    assert!(after.sleeps > before.sleeps);
    thread.remote.stop();
    thread.join();
}

#[test]
fn options_are_read_back_and_inherited() {
    for address in [v4(), v6()] {
        let directory = tempfile::tempdir().expect("a directory");
        let ground = ground_at(LinuxConfig::default(), address, directory.path());
        ground.run(|reactor, place| async move {
            let options = SocketOptions {
                send_buffer: Some(300_000),
                receive_buffer: Some(200_000),
                congestion_control: Some("reno".to_owned()),
                dscp: Some(26),
                priority: Some(5),
                user_timeout: Some(Duration::from_millis(7500)),
                keep_alive: Some(Duration::from_secs(40)),
                backlog: Some(16),
                only_v6: Some(true),
            };
            let (client, server) = place.pair_with(&reactor, &options).await;
            for (end, stream) in [("client", &client), ("server", &server)] {
                let report = stream.report().expect("a report");
                assert_eq!(report.send_buffer, 600_000, "{end}");
                assert_eq!(report.receive_buffer, 400_000, "{end}");
                assert_eq!(report.congestion_control, "reno", "{end}");
                assert_eq!(report.dscp, 26, "{end}");
                assert_eq!(report.priority, 5, "{end}");
                assert_eq!(report.user_timeout, Duration::from_millis(7500), "{end}");
                // The probes have to fit before the user time-out.
                assert_eq!(report.keep_alive, Duration::from_secs(2), "{end}");
                assert!(report.no_delay, "{end}");
                assert!(report.congestion_window > 0, "{end}");
            }
            let later = SocketOptions {
                dscp: Some(8),
                ..SocketOptions::default()
            };
            server.set_options(&later).expect("sets");
            assert_eq!(server.report().expect("a report").dscp, 8);
            // What came and what the other end has are told apart from what was said.
            let mut gather = Gather::new();
            gather.push_header(&[7; 1000]);
            client.send(gather).await.0.expect("sent");
            let mut taken = 0;
            while taken < 1000 {
                taken += server.receive().await.expect("bytes").len();
            }
            assert_eq!(server.report().expect("a report").bytes_received, 1000);
            assert!(client.report().expect("a report").bytes_acknowledged <= 1001);
            let off = SocketOptions {
                keep_alive: Some(Duration::ZERO),
                ..SocketOptions::default()
            };
            server.set_options(&off).expect("sets");
            assert_eq!(
                server.report().expect("a report").keep_alive,
                Duration::ZERO
            );
        });
    }
}

#[test]
fn options_that_cannot_be_are_told() {
    let system = system();
    let listen = |options| {
        let error = Arc::clone(&system).listen(v4(), &options);
        error.expect_err("refused").to_string()
    };
    let told = listen(SocketOptions {
        congestion_control: Some("no-such".to_owned()),
        ..SocketOptions::default()
    });
    assert!(
        told.contains("\"no-such\"") && told.contains("cubic"),
        "{told}"
    );
    let told = listen(SocketOptions {
        dscp: Some(64),
        ..SocketOptions::default()
    });
    assert!(told.contains("0 to 63"), "{told}");
    let taken = Arc::clone(&system)
        .listen(v4(), &SocketOptions::default())
        .expect("listens");
    let error = Arc::clone(&system)
        .listen(taken.address(), &SocketOptions::default())
        .expect_err("taken");
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(
        error.to_string().contains(&taken.address().to_string()),
        "{error}"
    );
}

#[test]
fn v6_wildcard_serves_both_or_one() {
    let (ground, _directory) = ground(LinuxConfig::default());
    ground.run(|reactor, place| async move {
        for (only_v6, v4_connects) in [(false, true), (true, false)] {
            let options = SocketOptions {
                only_v6: Some(only_v6),
                ..SocketOptions::default()
            };
            let wildcard = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
            let listener = Arc::clone(&place.system)
                .listen(wildcard, &options)
                .expect("listens");
            let port = listener.address().port();
            let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            let connected = TcpStream::connect(&reactor, v4, &SocketOptions::default()).await;
            assert_eq!(connected.is_ok(), v4_connects);
            if v4_connects {
                let accepted = TcpListener::new(&reactor, listener)
                    .accept()
                    .await
                    .expect("accepts");
                let local = accepted.local_address().expect("has one");
                assert_eq!(local.ip().to_canonical(), Ipv4Addr::LOCALHOST);
            }
        }
    });
}

/// Whoever opened it did not want to wait for the opening; who reads and writes waits.
#[test]
fn an_adopted_file_waits_for_its_device() {
    use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
    let folder = tempfile::tempdir().unwrap();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK;
    let descriptor = open(folder.path().join("file"), flags, Mode::RUSR | Mode::WUSR).unwrap();
    let same = descriptor.try_clone().unwrap();
    let system: Arc<dyn System> = LinuxSystem::new(LinuxConfig::default()).unwrap();
    let _file = system.adopt_file(descriptor).unwrap();
    let flags = fcntl_getfl(same).unwrap();
    assert!(!flags.contains(OFlags::NONBLOCK) && flags.contains(OFlags::RDWR));
}

#[test]
fn an_inherited_listener_is_adopted() {
    let system = system();
    let inherited = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    // As service managers hand them on.
    inherited.set_nonblocking(true).expect("sets");
    let address = inherited.local_addr().expect("has one");
    let listener = system
        .adopt_listener(OwnedFd::from(inherited))
        .expect("adopted");
    assert_eq!(listener.address(), address);
    let thread = serve(&system, config());
    let (waits, waiting) = std::sync::mpsc::channel();
    let client = std::thread::spawn(move || {
        waiting.recv().expect("sent");
        let mut client = std::net::TcpStream::connect(address).expect("connects");
        let mut byte = [0];
        client.read_exact(&mut byte).expect("receives");
        byte
    });
    let served = thread.remote.call_blocking(move |reactor| async move {
        let listener = TcpListener::new(&reactor, listener);
        reactor
            .spawn(async move { waits.send(()).expect("taken") })
            .detach();
        let stream = listener.accept().await.expect("waits, and accepts");
        assert!(stream.report().expect("a report").no_delay);
        send(&stream, b"!").await;
    });
    assert_eq!(served, Ok(()));
    assert_eq!(client.join().expect("no panic"), *b"!");
    thread.remote.stop();
    thread.join();
}

#[test]
fn what_is_no_listener_is_not_adopted() {
    let system = system();
    let file = tempfile::tempfile().expect("a file");
    assert!(system.adopt_listener(OwnedFd::from(file)).is_err());
    let bound = std::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
    let error = system
        .adopt_listener(OwnedFd::from(bound))
        .expect_err("no stream");
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    let directory = tempfile::tempdir().expect("a directory");
    let local = std::os::unix::net::UnixListener::bind(directory.path().join("s")).expect("binds");
    let error = system
        .adopt_listener(OwnedFd::from(local))
        .expect_err("no IP");
    assert!(error.to_string().contains("IP address"), "{error}");
}

#[test]
fn a_writer_in_another_process_is_respected() {
    let (ground, _directory) = ground(LinuxConfig::default());
    let path = ground.place.path("medium");
    std::fs::write(&path, [0; 4096]).expect("written");
    if let Some(path) = role() {
        // In the other process: hold the file, and tell.
        let options = OpenOptions {
            write: true,
            ..OpenOptions::default()
        };
        let held = Arc::clone(&ground.place.system).open_file(Path::new(&path), &options);
        println!("{}", if held.is_ok() { "held" } else { "refused" });
        io::stdout().flush().expect("flushes");
        let _ = io::stdin().read(&mut [0]);
        return;
    }
    let mut other = Command::new(std::env::current_exe().expect("has a path"))
        .args([
            "--exact",
            "linux::a_writer_in_another_process_is_respected",
            "--nocapture",
        ])
        .env(ROLE, &path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let mut told = String::new();
    let mut out = other.stdout.take().expect("piped");
    while !told.contains("held") {
        let mut bytes = [0; 256];
        let count = out.read(&mut bytes).expect("reads");
        assert!(count > 0, "the other process ended: {told}");
        told.push_str(&String::from_utf8_lossy(&bytes[..count]));
        assert!(!told.contains("refused"), "{told}");
    }
    let open = |write| {
        let options = OpenOptions {
            write,
            ..OpenOptions::default()
        };
        Arc::clone(&ground.place.system).open_file(&path, &options)
    };
    let error = open(true).expect_err("has a writer");
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
    let message = error.to_string();
    assert!(
        message.contains("another process") && message.contains(path.to_str().expect("text")),
        "{message}"
    );
    open(false).expect("reading is free");
    drop(other.stdin.take());
    assert!(other.wait().expect("ends").success());
    reopened(|| open(true)).expect("free again");
}

#[test]
fn a_hard_link_is_the_same_medium() {
    let (ground, _directory) = ground(LinuxConfig::default());
    let (path, link) = (ground.place.path("medium"), ground.place.path("link"));
    let options = OpenOptions {
        write: true,
        create: Some(8192),
        ..OpenOptions::default()
    };
    let system = &ground.place.system;
    let (_file, info) = Arc::clone(system)
        .open_file(&path, &options)
        .expect("opens");
    std::fs::hard_link(&path, &link).expect("links");
    let error = Arc::clone(system)
        .open_file(&link, &options)
        .expect_err("has a writer");
    assert!(error.to_string().contains("this process"), "{error}");
    let (_reader, again) = Arc::clone(system)
        .open_file(&link, &OpenOptions::default())
        .expect("opens");
    assert_eq!(again.identity, info.identity);
}

#[test]
fn a_file_beneath_a_folder_is_not_where_links_lead_out_of_it() {
    use std::os::unix::fs::symlink;
    let (ground, _directory) = ground(LinuxConfig::default());
    let (folder, outside) = (ground.place.path("folder"), ground.place.path("outside"));
    std::fs::create_dir_all(folder.join("inner")).expect("made");
    std::fs::create_dir(&outside).expect("made");
    std::fs::write(outside.join("secret"), [0; 4096]).expect("written");
    std::fs::write(folder.join("image"), [0; 4096]).expect("written");
    symlink("../image", folder.join("inner/link")).expect("linked");
    symlink("../outside/secret", folder.join("out")).expect("linked");
    symlink("../outside/new", folder.join("nowhere")).expect("linked");
    symlink("../outside", folder.join("away")).expect("linked");
    symlink(outside.join("secret"), folder.join("far")).expect("linked");
    symlink("/proc/self/cwd", folder.join("magic")).expect("linked");
    let open = |path: &Path, create: Option<u64>| {
        let options = OpenOptions {
            write: true,
            create,
            beneath: Some(folder.clone()),
            ..OpenOptions::default()
        };
        Arc::clone(&ground.place.system).open_file(path, &options)
    };
    for name in ["image", "inner/link"] {
        reopened(|| open(&folder.join(name), None)).expect("it is in the folder");
    }
    for name in ["new", "inner/new"] {
        let (_file, info) = open(&folder.join(name), Some(8192)).expect("it is made");
        assert!(info.created && folder.join(name).exists(), "{name}");
    }
    for name in [
        "out",
        "nowhere",
        "away/secret",
        "away/new",
        "far",
        "magic/new",
        "inner/../../outside/secret",
    ] {
        for create in [None, Some(8192)] {
            let refused = open(&folder.join(name), create).err();
            let text = refused.map(|error| error.to_string());
            assert!(
                text.is_some_and(|text| text.contains("leads out of")),
                "{name}"
            );
        }
    }
    let beside = open(&outside.join("secret"), None).expect_err("it is not in the folder");
    assert_eq!(beside.kind(), io::ErrorKind::PermissionDenied);
    assert!(!outside.join("new").exists());
}

#[test]
fn what_is_no_medium_is_told() {
    let (ground, directory) = ground(LinuxConfig::default());
    let open = |path: &Path, create| {
        let options = OpenOptions {
            write: true,
            create,
            ..OpenOptions::default()
        };
        let opened = Arc::clone(&ground.place.system).open_file(path, &options);
        opened.map(drop).expect_err("refused")
    };
    let error = open(directory.path(), None);
    assert!(error.to_string().contains("a directory"), "{error}");
    let error = open(Path::new("/dev/null"), None);
    assert!(error.to_string().contains("a character device"), "{error}");
    let fifo = directory.path().join("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .expect("runs")
            .success()
    );
    let error = open(&fifo, None);
    assert!(error.to_string().contains("neither"), "{error}");
    let error = open(Path::new("/no/such/place"), Some(4096));
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(error.to_string().contains("/no/such/place"), "{error}");
    let too_long = directory.path().join("too-long");
    let error = open(&too_long, Some(u64::MAX));
    assert!(error.to_string().contains("too-long"), "{error}");
    assert!(!too_long.exists(), "what could not be made is gone");
}

#[test]
fn a_file_is_known_as_it_is() {
    let (ground, directory) = ground(LinuxConfig::default());
    ground.run({
        let path = directory.path().join("medium");
        move |reactor, place| async move {
            let options = |direct| OpenOptions {
                write: true,
                create: Some(1 << 20),
                direct,
                ..OpenOptions::default()
            };
            let open = |direct| {
                let open = || Arc::clone(&place.system).open_file(&path, &options(direct));
                reopened(open).expect("opens")
            };
            let (file, info) = open(UseDirect::Never);
            assert!(info.created && !info.direct && info.volatile_cache);
            assert_eq!((info.memory_alignment, info.offset_alignment), (1, 1));
            assert_eq!((info.kind, info.length), (FileKind::Regular, 1 << 20));
            drop(file);
            let (file, info) = open(UseDirect::Auto);
            if info.direct {
                assert!(info.memory_alignment <= 4096 && info.offset_alignment <= 4096);
                assert!(info.offset_alignment.is_power_of_two());
                // What it promises, it keeps.
                let unit = info.offset_alignment as usize;
                let file = LocalFile::new(file);
                let data: Views = std::iter::once(View::copy_of(&pattern(0, unit))).collect();
                let (written, _) = file.write(&reactor, unit as u64, data, true).await;
                assert_eq!(written.expect("writes"), unit);
                assert_eq!(
                    std::fs::read(&path).expect("reads")[unit..2 * unit],
                    pattern(0, unit)
                );
            }
        }
    });
}

#[test]
fn a_file_that_ends_at_an_odd_byte_is_read_to_its_end() {
    let (ground, directory) = ground(LinuxConfig::default());
    for direct in [UseDirect::Auto, UseDirect::Never] {
        let path = directory.path().join("odd");
        std::fs::write(&path, pattern(0, 10_000)).expect("written");
        ground.run(move |reactor, place| async move {
            let options = OpenOptions {
                direct,
                ..OpenOptions::default()
            };
            let (file, info) = Arc::clone(&place.system)
                .open_file(&path, &options)
                .expect("opens");
            assert_eq!((info.length, info.deallocate_granularity), (10_000, 0));
            // Of the device below, where the file system is on one.
            let is_sectors = |bytes: u32| bytes >= 512 && bytes.is_power_of_two();
            assert!(info.atomic_bytes.is_none_or(is_sectors), "{info:?}");
            let into: Segments = (0..4).map(|_| Segment::heap(4096)).collect();
            let (read, into) = LocalFile::new(file).read(&reactor, 0, into).await;
            assert_eq!(read.expect("reads"), 10_000);
            let bytes: Vec<u8> = into.iter().flat_map(|segment| segment.to_vec()).collect();
            assert!(bytes[..10_000] == pattern(0, 10_000));
        });
    }
}

#[test]
fn a_write_that_stops_halfway_is_an_error() {
    const LIMIT: u64 = 12_288;
    if role().is_none() {
        let output = again("a_write_that_stops_halfway_is_an_error", "limited");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let (ground, _directory) = ground(LinuxConfig::default());
    let limit = libc::rlimit {
        rlim_cur: LIMIT,
        rlim_max: LIMIT,
    };
    // SAFETY: the structure is valid; this process does nothing else.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    ground.run(|reactor, place| async move {
        let options = OpenOptions {
            write: true,
            create: Some(4096),
            direct: UseDirect::Never,
            ..OpenOptions::default()
        };
        let path = place.path("limited");
        let (file, _) = Arc::clone(&place.system)
            .open_file(&path, &options)
            .expect("opens");
        let file = LocalFile::new(file);
        let data: Views = (0..4).map(|_| View::copy_of(&[1; 4096])).collect();
        let (written, data) = file.write(&reactor, 4096, data, false).await;
        let error = written.expect_err("two of four blocks fit");
        assert_eq!(error.raw_os_error(), Some(libc::EFBIG), "{error}");
        assert_eq!(data.len(), 4, "the data comes back");
        assert_eq!(std::fs::metadata(&path).expect("is there").len(), LIMIT);
    });
}

/// A loop device over a file, for as long as it lives.
struct LoopDevice(String);

impl LoopDevice {
    /// None where the process may not make one.
    fn new(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=off"])
            .arg(file)
            .output()
            .ok()?;
        let name = String::from_utf8(made.stdout).expect("text");
        made.status
            .success()
            .then(|| LoopDevice(name.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device_is_served() {
    for forced_off in [Vec::new(), Feature::ALL.to_vec()] {
        let (ground, directory) = ground(LinuxConfig {
            forced_off,
            ..LinuxConfig::default()
        });
        let image = directory.path().join("image");
        std::fs::write(&image, pattern(0, 4 << 20)).expect("written");
        let Some(device) = LoopDevice::new(&image) else {
            println!("skipped: making a loop device takes root and the loop driver");
            return;
        };
        let path = device.0.clone();
        ground.run(move |reactor, place| async move {
            let options = OpenOptions {
                write: true,
                ..OpenOptions::default()
            };
            let open = || Arc::clone(&place.system).open_file(Path::new(&path), &options);
            let (file, info) = open().expect("opens");
            assert_eq!((info.kind, info.length), (FileKind::BlockDevice, 4 << 20));
            assert_eq!(info.atomic_bytes, Some(info.physical_block));
            assert!(info.direct && info.offset_alignment == 512 && info.deallocate_granularity > 0);
            assert_eq!(
                open().expect_err("one writer").kind(),
                io::ErrorKind::ResourceBusy
            );
            // Another opening that is not ours meets the exclusive one.
            let claimed = std::fs::File::options()
                .read(true)
                .custom_flags_exclusive()
                .open(&path);
            assert_eq!(
                claimed.expect_err("claimed").raw_os_error(),
                Some(libc::EBUSY)
            );
            let file = LocalFile::new(file);
            for (number, mode) in [
                AllocateMode::Discard,
                AllocateMode::PunchHole,
                AllocateMode::ZeroRange,
            ]
            .into_iter()
            .enumerate()
            {
                let at = (number << 20) as u64;
                file.allocate(&reactor, at, 65536, mode)
                    .await
                    .unwrap_or_else(|error| panic!("{mode:?}: {error}"));
                let into: Segments = std::iter::once(Segment::heap(131_072)).collect();
                let (read, into) = file.read(&reactor, at, into).await;
                assert_eq!(read.expect("reads"), 131_072);
                // A loop device discards by punching holes: zeroes, too.
                assert!(into[0][..65536].iter().all(|&byte| byte == 0), "{mode:?}");
                assert!(into[0][65536..] == pattern((number << 20) + 65536, 65536)[..]);
            }
            let data: Views = std::iter::once(View::copy_of(&pattern(9, 512))).collect();
            let (written, _) = file.write(&reactor, 512, data, true).await;
            assert_eq!(written.expect("writes"), 512);
            file.sync(&reactor).await.expect("syncs");
        });
        let mut back = vec![0; 512];
        let file = std::fs::File::open(&image).expect("opens");
        file.read_exact_at(&mut back, 512).expect("reads");
        assert_eq!(back, pattern(9, 512));
    }
}

trait ExclusiveOpen {
    fn custom_flags_exclusive(&mut self) -> &mut Self;
}

impl ExclusiveOpen for std::fs::OpenOptions {
    fn custom_flags_exclusive(&mut self) -> &mut Self {
        std::os::unix::fs::OpenOptionsExt::custom_flags(self, libc::O_EXCL)
    }
}

#[test]
fn a_panic_unwinds_to_whoever_joins_and_leaves_nothing_behind() {
    let system = system();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("has one");
    let main = move |reactor: Reactor| {
        Box::pin(async move {
            let stream = TcpStream::connect(&reactor, address, &SocketOptions::default())
                .await
                .expect("connects");
            reactor
                .spawn(async move {
                    stream.start_send(gather_of(&pattern(0, 16 << 20)));
                    let _ = stream.receive().await;
                })
                .detach();
            reactor.sleep(Duration::from_millis(20)).await;
            if reactor.now() > Instant::default() {
                panic!("on purpose");
            }
        }) as weir_reactor::LocalFuture<()>
    };
    let thread = system
        .start_reactor(config(), Box::new(main))
        .expect("a reactor starts");
    let (mut stream, _) = listener.accept().expect("accepts");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.join()));
    let payload = panic.expect_err("the panic goes on");
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"on purpose"));
    // The connection is closed: reading comes to an end.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 16 << 20);
}

#[test]
fn a_panic_outside_any_connection_ends_the_process() {
    if role().is_some() {
        let thread = serve(
            &system(),
            ReactorConfig {
                on_panic: PanicPolicy::Abort,
                ..config()
            },
        );
        let _ = thread
            .remote
            .call_blocking(|_| async { panic!("not to be survived") });
        thread.join();
        println!("survived");
        return;
    }
    let output = again("a_panic_outside_any_connection_ends_the_process", "panic");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("survived"));
}

#[test]
fn a_seccomp_filter_is_named() {
    let refused = std::thread::spawn(|| {
        refuse(libc::SYS_io_uring_setup as u32, libc::EPERM as u32);
        LinuxSystem::new(LinuxConfig::default()).expect_err("filtered")
    });
    let refused = refused.join().expect("no panic");
    assert!(matches!(refused, Unavailable::Seccomp { .. }), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("seccomp=weir.json"), "{told}");
}

/// Puts a seccomp filter on this thread that refuses one system call.
fn refuse(call: u32, errno: u32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let statement = |code, k| libc::sock_filter {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let mut filter = [
        statement(LOAD_WORD, 0),
        libc::sock_filter {
            code: JUMP_IF_EQUAL,
            jt: 0,
            jf: 1,
            k: call,
        },
        statement(RETURN, libc::SECCOMP_RET_ERRNO | errno),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: both calls concern this thread only; the program is valid during the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &program), 0);
    }
}

#[test]
fn running_out_of_descriptors_is_named() {
    if role().is_some() {
        let limit = libc::rlimit {
            rlim_cur: 3,
            rlim_max: 3,
        };
        // SAFETY: the structure is valid; this process has nothing else to do.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        let error = LinuxSystem::new(LinuxConfig::default()).expect_err("no descriptor is left");
        println!("{error}");
        return;
    }
    let output = again("running_out_of_descriptors_is_named", "few");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("RLIMIT_NOFILE) is 3"), "{output:?}");
}

#[test]
fn configurations_that_cannot_be_are_told() {
    for config in [
        LinuxConfig {
            ring_entries: 3,
            ..LinuxConfig::default()
        },
        LinuxConfig {
            ring_entries: 0,
            ..LinuxConfig::default()
        },
        LinuxConfig {
            receive_buffers: ReceiveBuffers {
                count: 3,
                bytes: 4096,
            },
            ..LinuxConfig::default()
        },
        LinuxConfig {
            receive_buffers: ReceiveBuffers { count: 2, bytes: 0 },
            ..LinuxConfig::default()
        },
    ] {
        let refused = LinuxSystem::new(config).expect_err("refused");
        assert!(
            matches!(refused, Unavailable::Configuration(_)),
            "{refused}"
        );
    }
}

#[test]
fn a_processor_that_is_not_ours_is_told() {
    let system = system();
    let processors = system.processors();
    assert!(!processors.is_empty());
    let start = |processor| {
        let config = ReactorConfig {
            processor: Some(processor),
            ..config()
        };
        let main = |_: Reactor| Box::pin(async {}) as weir_reactor::LocalFuture<()>;
        Arc::clone(&system).start_reactor(config, Box::new(main))
    };
    for &processor in &processors {
        start(processor).expect("starts").join();
    }
    for processor in [1023, 100_000] {
        let error = start(processor).map(drop).expect_err("refused");
        assert!(
            error.to_string().contains(&processor.to_string()),
            "{error}"
        );
    }
}

#[test]
fn what_a_bound_reactor_has_others_do_is_not_bound() {
    let system = system();
    let all = system.processors();
    let bound = ReactorConfig {
        processor: Some(all[0]),
        ..config()
    };
    let thread = serve(&system, bound);
    let asked = thread.remote.call_blocking(move |_| async move {
        let (sender, offloaded) = oneshot();
        let there = Arc::clone(&system);
        system.offload(Box::new(move || sender.send(there.processors())));
        let there = Arc::clone(&system);
        let started = start_thread("started", move || there.processors());
        let started = started.expect("a thread can be had").join();
        let own = system.processors();
        (own, offloaded.await, started.expect("no panic"))
    });
    let (own, offloaded, started) = asked.expect("it runs");
    assert_eq!(own, [all[0]]);
    assert_eq!(offloaded.as_ref(), Some(&all));
    assert_eq!(started, all);
    thread.remote.stop();
    thread.join();
}

#[test]
fn offloaded_work_is_bounded_and_survives_panics() {
    let system = system();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (sender, receiver) = std::sync::mpsc::channel();
    let hook_lock = Arc::new(AtomicBool::new(false));
    for number in 0..200 {
        let (running, most, sender) = (running.clone(), most.clone(), sender.clone());
        let panics = number == 0 && !hook_lock.swap(true, Ordering::SeqCst);
        system.offload(Box::new(move || {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            running.fetch_sub(1, Ordering::SeqCst);
            sender.send(number).expect("taken");
            assert!(!panics, "on purpose");
        }));
    }
    let mut numbers: Vec<i32> = (0..200).map(|_| receiver.recv().expect("sent")).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    let most = most.load(Ordering::SeqCst);
    assert!((1..=16).contains(&most), "{most} at once");
}

#[test]
fn hosts_are_resolved() {
    let system = system();
    let addresses = system.resolve("localhost", 4420).expect("resolves");
    assert!(
        addresses
            .iter()
            .all(|address| address.ip().is_loopback() && address.port() == 4420)
    );
    let literal = system.resolve("::1", 8009).expect("resolves");
    assert_eq!(literal, [SocketAddr::from((Ipv6Addr::LOCALHOST, 8009))]);
    let bracketed = system.resolve("[::1]", 8009).expect("resolves");
    assert_eq!(bracketed, literal);
    let error = system.resolve("no-such-host.invalid", 1).expect_err("none");
    assert!(
        error.to_string().contains("no-such-host.invalid"),
        "{error}"
    );
}

#[test]
fn descriptors_are_closed_with_their_owners() {
    if role().is_none() {
        // In a process of its own: other tests open and close descriptors too.
        let output = again("descriptors_are_closed_with_their_owners", "count");
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let count = || std::fs::read_dir("/proc/self/fd").expect("reads").count();
    let (ground, _directory) = ground(LinuxConfig::default());
    let before = count();
    for _ in 0..3 {
        ground.run(move |reactor, place| async move {
            let mut servers = Vec::new();
            for _ in 0..20 {
                let (client, server) = place.pair(&reactor).await;
                client.start_receive(ReceiveInto::Ring(Amount::Usual));
                client.start_send(gather_of(&pattern(0, 1 << 20)));
                servers.push(server);
                // The client is dropped with both in flight.
            }
            let file = ground_file(&place);
            settle(&reactor).await;
            drop((servers, file));
        });
        let began = std::time::Instant::now();
        while count() > before && began.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(count(), before);
    }
}

fn ground_file(place: &Place) -> Rc<LocalFile> {
    let options = OpenOptions {
        write: true,
        create: Some(4096),
        ..OpenOptions::default()
    };
    let opened = Arc::clone(&place.system).open_file(&place.path("counted"), &options);
    LocalFile::new(opened.expect("opens").0)
}
