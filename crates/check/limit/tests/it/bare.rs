//! Bare servers and clients move exactly what they are to move.

use std::net::TcpListener;
use std::time::Duration;

use weir_limit::client::{ClientConfig, ClientReport, Until, drive};
use weir_limit::server::{ServerConfig, ServerReport, serve};
use weir_limit::work::Work;

struct Case {
    work: &'static str,
    connections: usize,
    depth: u64,
    until: Until,
    spin: bool,
}

fn exchange(case: &Case) -> (ServerReport, ClientReport) {
    let work: Work = case.work.parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = ServerConfig {
        work,
        connections: case.connections,
        spin: case.spin,
        file: None,
    };
    let client = ClientConfig {
        address,
        work,
        connections: case.connections,
        depth: case.depth,
        until: case.until,
        spin: case.spin,
    };
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(&listener, &server));
        let driven = drive(&client).unwrap();
        (served.join().unwrap().unwrap(), driven)
    })
}

#[test]
fn a_bounded_number_of_operations_is_moved_exactly() {
    for (work, connections, depth, spin) in [
        ("read:4k", 1, 128, false),
        ("read:4k", 1, 1, false),
        ("read:4k", 1, 1, true),
        ("read:16k", 8, 32, false),
        ("read:128k", 1, 32, false),
        ("write:4k", 1, 128, false),
        ("write:4k", 64, 16, false),
        ("write:128k", 2, 32, false),
        ("read:700", 3, 7, true),
    ] {
        let until = Until::Operations(1_003);
        let (served, driven) = exchange(&Case {
            work,
            connections,
            depth,
            until,
            spin,
        });
        assert_eq!(
            (served.operations, driven.operations),
            (1_003, 1_003),
            "{work} {connections} {depth}"
        );
        assert!(driven.elapsed_seconds > 0.0 && served.processor_seconds > 0.0);
        assert_eq!(driven.latency_us.is_some(), connections == 1 && depth == 1);
        if let Some(latency) = driven.latency_us {
            assert!(latency.mean > 0.0 && latency.p99 > 0.0);
        }
    }
}

#[test]
fn fewer_operations_than_the_depth_are_moved_too() {
    let (served, driven) = exchange(&Case {
        work: "read:4k",
        connections: 4,
        depth: 32,
        until: Until::Operations(33),
        spin: false,
    });
    assert_eq!((served.operations, driven.operations), (33, 33));
}

#[test]
fn a_time_ends_with_everything_answered() {
    let (served, driven) = exchange(&Case {
        work: "read:4k",
        connections: 4,
        depth: 32,
        until: Until::Elapsed(Duration::from_millis(50)),
        spin: false,
    });
    assert!(driven.operations >= 4 * 32 && driven.elapsed_seconds >= 0.05);
    assert_eq!(served.operations, driven.operations);
}

#[test]
fn ends_that_disagree_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = ServerConfig {
        work: "write:4k".parse().unwrap(),
        connections: 1,
        spin: false,
        file: None,
    };
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve(&listener, &server));
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(&[0; 100]).unwrap();
        drop(stream);
        let error = served.join().unwrap().unwrap_err();
        assert!(error.to_string().contains("same work"), "{error}");
    });
}
