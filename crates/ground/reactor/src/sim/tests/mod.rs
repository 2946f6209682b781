//! The simulation keeps its own promises, and breaks everything else on request.

mod disk;
mod end_to_end;
mod injected;
mod network;
mod running;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_memory::{Gather, Segment, View};

use super::*;
use crate::{
    File, FileInfo, Listener, LocalFile, OpenOptions, ReactorThread, ReceiveInto, Received,
    Shutdown, SocketOptions, TcpListener, TcpStream, UseDirect,
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
async fn echo(stream: &TcpStream) -> io::Result<usize> {
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

async fn receive_exactly(stream: &TcpStream, length: usize) -> io::Result<Vec<u8>> {
    let segment = Segment::heap(length);
    stream.start_receive(ReceiveInto::Segment { segment, from: 0 });
    match std::future::poll_fn(|context| stream.poll_received(context)).await? {
        Received::Segment(segment, count) => Ok(segment[..count].to_vec()),
        Received::Ring(_) => unreachable!("a segment was given"),
    }
}

/// Starts a server on `host` that sends back what it receives; where it listens.
fn start_echo(simulation: &Simulation, host: usize, port: u16) -> (SocketAddr, ReactorThread) {
    let system = simulation.system(host);
    let listener = listen(&system, port);
    let main: crate::ReactorMain = Box::new(move |reactor| {
        Box::pin(async move {
            let listener = TcpListener::new(&reactor, listener);
            loop {
                if let Ok(stream) = listener.accept().await {
                    let serve = async move { echo(&stream).await.map(drop) };
                    reactor.spawn(serve).detach();
                }
            }
        })
    });
    let thread = system.start_reactor(ReactorConfig::default(), main);
    let address = SocketAddr::new(simulation.address(host), port);
    (address, thread.unwrap())
}

async fn connect(reactor: &Reactor, address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect(reactor, address, &options()).await
}

/// Both ends of a connection within one host.
async fn pair(reactor: &Reactor, options: &SocketOptions) -> (TcpStream, TcpStream) {
    let any = SocketAddr::new("127.0.0.1".parse().unwrap(), 0);
    let listener = Arc::clone(reactor.system()).listen(any, options).unwrap();
    let listener = TcpListener::new(reactor, listener);
    let client = TcpStream::connect(reactor, listener.address(), options);
    let client = client.await.unwrap();
    (client, listener.accept().await.unwrap())
}

async fn send_all(stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.send(gather(bytes)).await.0
}

fn open(
    system: &Arc<dyn System>,
    path: &str,
    options: &OpenOptions,
) -> io::Result<(Rc<LocalFile>, FileInfo)> {
    let (file, info): (Arc<File>, _) = Arc::clone(system).open_file(Path::new(path), options)?;
    Ok((LocalFile::new(file), info))
}

/// For writing; made with `length` bytes where it does not exist.
fn create(length: u64) -> OpenOptions {
    OpenOptions {
        write: true,
        create: Some(length),
        direct: UseDirect::Auto,
        ..OpenOptions::default()
    }
}

async fn write(
    file: &Rc<LocalFile>,
    reactor: &Reactor,
    offset: u64,
    bytes: &[u8],
    durable: bool,
) -> io::Result<usize> {
    let views = [View::copy_of(bytes)].into_iter().collect();
    file.write(reactor, offset, views, durable).await.0
}

async fn read(
    file: &Rc<LocalFile>,
    reactor: &Reactor,
    offset: u64,
    length: usize,
) -> io::Result<Vec<u8>> {
    let into = [Segment::heap(length)].into_iter().collect();
    let (count, segments) = file.read(reactor, offset, into).await;
    count.map(|count| segments[0][..count].to_vec())
}

fn number(error: &io::Error) -> i32 {
    error
        .raw_os_error()
        .unwrap_or_else(|| panic!("{error} has a number"))
}
