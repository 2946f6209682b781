//! An echo server of three reactors and twenty clients, while everything goes wrong.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::{DetachedStream, Remote};

const CLIENTS: u64 = 20;
const MESSAGES: u64 = 20;
const PORT: u16 = 4420;

fn everything() -> Faults {
    Faults {
        segment_bytes_max: 700,
        delay_spike_probability: 0.01,
        cut_probability: 0.002,
        accept_error_probability: 0.1,
        reactor_stall_probability: 0.001,
        ..Faults::default()
    }
}

fn config(id: u32) -> ReactorConfig {
    ReactorConfig {
        id: ReactorId(id),
        ..ReactorConfig::default()
    }
}

/// Hands the connections that it accepts to the other reactors in turn, and keeps every third.
async fn accept_and_spread(reactor: Reactor, listener: Listener, others: [Remote; 2]) {
    let listener = TcpListener::new(&reactor, listener);
    for number in 0usize.. {
        let Ok(stream) = listener.accept().await else {
            continue;
        };
        match others.get(number % 3) {
            Some(other) => {
                let detached: DetachedStream = stream.detach();
                let serve = move |there: &Reactor| serve(there, detached.attach(there));
                other.run(serve).expect("the others outlive the first");
            }
            None => serve(&reactor, stream),
        }
    }
}

fn serve(reactor: &Reactor, stream: TcpStream) {
    let task = async move { echo(&stream).await.map(drop) };
    reactor.spawn(task).detach();
}

fn start_server(simulation: &Simulation) -> SocketAddr {
    let system = simulation.system(0);
    let listener = listen(&system, PORT);
    let others = [1, 2].map(|id| {
        let idle: crate::ReactorMain = Box::new(|_| Box::pin(std::future::pending()));
        let started = Arc::clone(&system).start_reactor(config(id), idle);
        started.unwrap().remote
    });
    let main: crate::ReactorMain =
        Box::new(move |reactor| Box::pin(accept_and_spread(reactor, listener, others)));
    system.start_reactor(config(0), main).unwrap();
    SocketAddr::new(simulation.address(0), PORT)
}

/// One message there and back.
async fn exchange(stream: &TcpStream, message: &[u8]) -> io::Result<()> {
    stream.start_send(gather(message));
    let received = receive_exactly(stream, message.len()).await;
    let sent = std::future::poll_fn(|context| stream.poll_sent(context)).await;
    let received = received?;
    sent.0?;
    match received.len() {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length if length < message.len() => {
            assert!(
                message.starts_with(&received),
                "a beginning of what was sent"
            );
            Err(io::ErrorKind::UnexpectedEof.into())
        }
        _ => {
            assert!(received == message, "exactly what was sent");
            Ok(())
        }
    }
}

/// Sends its messages one after another, anew over a new connection where one fails.
async fn client(reactor: Reactor, number: u64, address: SocketAddr, failures: Arc<AtomicU64>) {
    let mut stream = None;
    for message in 0..MESSAGES {
        let bytes = pattern(
            number * MESSAGES + message,
            1 + (reactor.random() % 9000) as usize,
        );
        loop {
            if stream.is_none() {
                stream = connect(&reactor, address).await.ok();
            }
            if let Some(stream) = &stream
                && exchange(stream, &bytes).await.is_ok()
            {
                break;
            }
            stream = None;
            failures.fetch_add(1, Ordering::Relaxed);
            reactor
                .sleep(Duration::from_millis(reactor.random() % 100))
                .await;
        }
    }
}

fn run(simulation: &Simulation) -> u64 {
    let address = start_server(simulation);
    let (done, failures): (Arc<AtomicU64>, Arc<AtomicU64>) = Default::default();
    for number in 0..CLIENTS {
        let (done, failures) = (Arc::clone(&done), Arc::clone(&failures));
        let main: crate::ReactorMain = Box::new(move |reactor| {
            Box::pin(async move {
                client(reactor, number, address, failures).await;
                done.fetch_add(1, Ordering::Relaxed);
            })
        });
        let host = 1 + number as usize % 4;
        simulation
            .system(host)
            .start_reactor(config(number as u32), main)
            .unwrap();
    }
    // Hosts are parted from the server and joined again while the clients are at it.
    while done.load(Ordering::Relaxed) < CLIENTS {
        let host = 1 + (simulation.random() % 4) as usize;
        simulation.partition(0, host);
        simulation.run_for(Duration::from_millis(simulation.random() % 300));
        simulation.heal(0, host);
        simulation.run_for(Duration::from_millis(simulation.random() % 300));
        assert!(
            simulation.elapsed() < Duration::from_secs(3600),
            "it gets on"
        );
    }
    failures.load(Ordering::Relaxed)
}

#[test]
fn every_echo_comes_back_whatever_goes_wrong() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(Config {
            faults: everything(),
            ..config
        });
        let failures = run(&simulation);
        assert!(
            failures > 0,
            "seed {}: nothing went wrong",
            simulation.seed()
        );
        // With the clients gone the server's connections end, and nothing is left of them.
        simulation.set_faults(Faults::default());
        simulation.run_for(Duration::from_secs(2000));
        assert_eq!(simulation.connections(), []);
    });
}

#[test]
fn without_faults_nothing_fails() {
    for_seeds(2, |config| {
        let simulation = Simulation::new(config);
        let address = start_server(&simulation);
        let failures = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&failures);
        simulation.run(1, move |reactor| client(reactor, 1, address, counted));
        assert_eq!(failures.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn the_same_storm_twice() {
    let seed = seed_from_env_or_random();
    let storm = || {
        let simulation = Simulation::new(Config {
            seed,
            faults: everything(),
            ..Config::default()
        });
        (run(&simulation), simulation.trace_hash())
    };
    assert_eq!(storm(), storm(), "seed {seed}");
}
