//! The simulation keeps its own promises.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;

use std::sync::Arc;

use std::time::Duration;

use weir_memory::{Gather, Segment, View};

use super::*;
use crate::{
    Listener, LocalFile, OpenOptions, ReceiveInto, Received, Shutdown, SocketOptions, TcpListener,
    TcpStream, UseDirect,
};

/// A world for each of a few seeds, one of them new each time.
fn for_seeds(count: u64, test: impl Fn(Config)) {
    let first = seed_from_env_or_random();
    let seeds = (0..count).map(|number| first.wrapping_add(number));
    for seed in seeds {
        test(Config {
            seed,
            ..Config::default()
        });
    }
}

fn options() -> SocketOptions {
    SocketOptions::default()
}

fn listen(system: &Arc<dyn System>, port: u16) -> Listener {
    let address = SocketAddr::new("0.0.0.0".parse().unwrap(), port);
    Arc::clone(system).listen(address, &options()).unwrap()
}

fn gather(bytes: &[u8]) -> Gather {
    let mut gather = Gather::new();
    let (head, tail) = bytes.split_at(bytes.len() / 3);
    gather.push_header(head);
    gather.push_view(View::copy_of(tail));
    gather
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    random::Random::new(seed).fill(&mut bytes);
    bytes
}

/// Sends back what comes until the end of the stream.
async fn echo(stream: &TcpStream) -> std::io::Result<usize> {
    let mut echoed = 0;
    loop {
        let view = stream.receive().await?;
        if view.is_empty() {
            return Ok(echoed);
        }
        echoed += view.len();
        let mut gather = Gather::new();
        gather.push_view(view);
        stream.send(gather).await.0?;
    }
}

async fn receive_exactly(stream: &TcpStream, length: usize) -> std::io::Result<Vec<u8>> {
    let segment = Segment::heap(length);
    stream.start_receive(ReceiveInto::Segment { segment, from: 0 });
    match std::future::poll_fn(|context| stream.poll_received(context)).await? {
        Received::Segment(segment, count) => Ok(segment[..count].to_vec()),
        Received::Ring(_) => unreachable!("a segment was given"),
    }
}

#[test]
fn the_clock_moves_only_to_timers() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        let (slept, twice) = simulation.run(0, |reactor| async move {
            let began = reactor.now();
            reactor.sleep(Duration::from_secs(3600)).await;
            let slept = reactor.now() - began;
            let other = reactor.clone();
            let task = reactor.spawn(async move { other.sleep(Duration::from_millis(1)).await });
            reactor.sleep(Duration::from_millis(2)).await;
            task.await;
            (slept, reactor.now() - began)
        });
        assert_eq!(slept, Duration::from_secs(3600));
        assert_eq!(twice, Duration::from_secs(3600) + Duration::from_millis(2));
        assert_eq!(simulation.elapsed(), twice);
    });
}

#[test]
fn bytes_arrive_in_order_whatever_the_segments() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let (server, client) = (simulation.system(0), HostId(1));
        let listener = listen(&server, 7);
        let address = SocketAddr::new(simulation.address(0), 7);
        let started = server
            .start_reactor(
                ReactorConfig::default(),
                Box::new(move |reactor| {
                    Box::pin(async move {
                        let listener = TcpListener::new(&reactor, listener);
                        let stream = listener.accept().await.unwrap();
                        assert_eq!(echo(&stream).await.unwrap(), 1_000_000);
                    })
                }),
            )
            .unwrap();
        let sent = pattern(simulation.seed(), 1_000_000);
        let expected = sent.clone();
        let received = simulation.run(client, move |reactor| async move {
            let stream = TcpStream::connect(&reactor, address, &options())
                .await
                .unwrap();
            assert_eq!(stream.peer_address(), address);
            stream.start_send(gather(&sent));
            let received = receive_exactly(&stream, sent.len()).await.unwrap();
            std::future::poll_fn(|context| stream.poll_sent(context))
                .await
                .0
                .unwrap();
            stream.shutdown(Shutdown::Write);
            assert!(stream.receive().await.unwrap().is_empty());
            received
        });
        assert!(received == expected, "what was echoed is what was sent");
        started.join();
    });
}

#[test]
fn a_file_keeps_what_was_written() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let create = OpenOptions {
                write: true,
                create: Some(1 << 20),
                direct: UseDirect::Auto,
            };
            let system = reactor.system();
            let (file, info) = Arc::clone(system)
                .open_file(Path::new("/volume"), &create)
                .unwrap();
            assert!(info.created && info.direct && info.length == 1 << 20);
            let again = Arc::clone(system).open_file(Path::new("/volume"), &create);
            assert_eq!(again.unwrap_err().kind(), ErrorKind::ResourceBusy);
            let file = LocalFile::new(file);
            let bytes = pattern(1, 8192);
            let views = [View::copy_of(&bytes)].into_iter().collect();
            let (written, _) = file.write(&reactor, 4096, views, false).await;
            assert_eq!(written.unwrap(), 8192);
            file.sync(&reactor).await.unwrap();
            let into = [Segment::heap(4096), Segment::heap(12288)]
                .into_iter()
                .collect();
            let (read, into) = file.read(&reactor, 0, into).await;
            assert_eq!(read.unwrap(), 16384);
            assert!(into[0].iter().all(|&byte| byte == 0));
            assert!(into[1][..8192] == bytes);
            assert!(into[1][8192..].iter().all(|&byte| byte == 0));
        });
    });
}

/// A run with everything in it; the hash of its trace.
fn busy_run(seed: u64) -> (u64, u64) {
    let simulation = Simulation::new(Config {
        seed,
        ..Config::default()
    });
    let server = simulation.system(0);
    let listener = listen(&server, 7);
    let address = SocketAddr::new(simulation.address(0), 7);
    server
        .start_reactor(
            ReactorConfig::default(),
            Box::new(move |reactor| {
                Box::pin(async move {
                    let listener = TcpListener::new(&reactor, listener);
                    loop {
                        let stream = listener.accept().await.unwrap();
                        reactor
                            .spawn(async move { echo(&stream).await.map(drop) })
                            .detach();
                    }
                })
            }),
        )
        .unwrap();
    for client in 1..4 {
        simulation.run(client, move |reactor| async move {
            let stream = TcpStream::connect(&reactor, address, &options())
                .await
                .unwrap();
            stream.send(gather(&[1; 5000])).await.0.unwrap();
            receive_exactly(&stream, 5000).await.unwrap();
            reactor.offload(|| ()).await.unwrap();
            reactor
                .sleep(Duration::from_nanos(reactor.random() % 1000))
                .await;
        });
    }
    (simulation.trace_hash(), simulation.steps())
}

#[test]
fn one_seed_gives_one_run() {
    let seed = seed_from_env_or_random();
    let first = busy_run(seed);
    assert_eq!(first, busy_run(seed), "seed {seed}");
    assert_ne!(first, busy_run(seed.wrapping_add(1)), "seed {seed}");
}
