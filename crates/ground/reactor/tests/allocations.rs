//! The steady state allocates nothing: neither a connection that carries bytes, nor a file that is read and written.

#[path = "it/contract.rs"]
mod contract;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use contract::{Ground, Place};
use weir_memory::{Gather, Segments, View, Views};
use weir_reactor::heap::{CountingHeap, allocations};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{LocalFile, OpenOptions, ReceiveInto, Received, TcpStream};

#[global_allocator]
static HEAP: CountingHeap = CountingHeap;

const WARM_UP: usize = 300;
const ROUNDS: usize = 3000;

fn ground(directory: &tempfile::TempDir) -> Ground {
    Ground {
        place: Place {
            system: LinuxSystem::new(LinuxConfig::default()).expect("io_uring works here"),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            directory: directory.path().to_owned(),
        },
        drive: Box::new(|done| {
            while !done() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }),
    }
}

/// Bytes of one message: a header and data.
const MESSAGE: usize = 2024;

async fn receive_all(stream: &TcpStream) {
    let mut length = 0;
    while length < MESSAGE {
        length += stream.receive().await.expect("receives").len();
    }
    assert_eq!(length, MESSAGE);
}

/// Sends a header and two pieces of data, whose gather list comes back empty.
async fn send(stream: &TcpStream, mut gather: Gather, data: &View) -> Gather {
    gather.push_header(&[1; 24]);
    gather.push_view(data.slice(0..100));
    gather.push_view(data.slice(100..data.len()));
    let (result, mut gather) = stream.send(gather).await;
    result.expect("sends");
    gather.clear();
    gather
}

#[test]
fn a_connection_allocates_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    ground(&directory).run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        let pool = reactor.pool().clone();
        let echo = reactor.spawn(async move {
            let mut gather = Gather::new();
            for round in 0..WARM_UP + ROUNDS {
                // By turns into the driver's buffers and into one of the pool.
                let data = if round % 2 == 0 {
                    receive_all(&server).await;
                    pool.segment(MESSAGE).expect("there is room")
                } else {
                    let segment = pool.segment(4096 + MESSAGE).expect("there is room");
                    server.start_receive(ReceiveInto::Segment {
                        segment,
                        from: 4096,
                    });
                    let received = std::future::poll_fn(|context| server.poll_received(context));
                    let Received::Segment(segment, MESSAGE) = received.await.expect("receives")
                    else {
                        panic!("the segment is filled")
                    };
                    segment
                };
                gather = send(&server, gather, &data.freeze().slice(0..MESSAGE - 24)).await;
            }
        });
        let data = View::copy_of(&[5; MESSAGE - 24]);
        let mut gather = Gather::new();
        let mut before = 0;
        for round in 0..WARM_UP + ROUNDS {
            if round == WARM_UP {
                before = allocations();
            }
            gather = send(&client, gather, &data).await;
            receive_all(&client).await;
        }
        assert_eq!(allocations() - before, 0, "in {ROUNDS} rounds");
        echo.await;
    });
}

#[test]
fn a_file_allocates_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    ground(&directory).run(|reactor, place| async move {
        let options = OpenOptions {
            write: true,
            create: Some(1 << 20),
            ..OpenOptions::default()
        };
        let (file, _) = place
            .system
            .clone()
            .open_file(&place.path("file"), &options)
            .expect("opens");
        let file = LocalFile::new(file);
        let mut before = 0;
        for round in 0..WARM_UP + ROUNDS {
            if round == WARM_UP {
                before = allocations();
            }
            let segment = |length| reactor.pool().segment(length).expect("there is room");
            let data: Views = [segment(4096), segment(8192)]
                .into_iter()
                .map(weir_memory::Segment::freeze)
                .collect();
            let (written, data) = file.write(&reactor, 4096, data, false).await;
            assert_eq!(written.expect("writes"), 12_288);
            drop(data);
            let into: Segments = [segment(4096), segment(4096)].into_iter().collect();
            let (read, into) = file.read(&reactor, 8192, into).await;
            assert_eq!(read.expect("reads"), 8192);
            drop(into);
        }
        assert_eq!(allocations() - before, 0, "in {ROUNDS} rounds");
    });
}
