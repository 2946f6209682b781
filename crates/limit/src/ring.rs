//! The bare server on Weir's reactor: io_uring in place of one call for each receive and send.
//!
//! Which of the two servers is faster depends on connections and depth; the better one is the limit. This one also tells what
//! the reactor costs when there is no protocol above it.

use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use weir_memory::{Gather, Segment, View};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{
    Listener, LocalFuture, Reactor, ReactorConfig, Spin, System, TcpListener as ReactorListener,
    TcpStream,
};

use crate::processor;
use crate::server::{ServerConfig, ServerReport};
use crate::work::Work;

/// A view that is sent from holds whole answers, as many as fit here, or one.
const PATTERN_BYTES: usize = 16 << 10;
/// For how long a reactor waits awake when it is to spin: for ever, in effect.
const SPIN: Duration = Duration::from_secs(3600);

/// Serves the connections that come to `listener`, as [`crate::server::serve`] does.
///
/// # Errors
/// There is no io_uring, or a connection failed, or was closed inside a request.
pub fn serve(listener: &TcpListener, config: &ServerConfig) -> io::Result<ServerReport> {
    assert!(config.connections > 0, "somebody is to be served");
    let system = LinuxSystem::new(LinuxConfig::default()).map_err(io::Error::other)?;
    let adopted = system.adopt_listener(listener.try_clone()?.into())?;
    let reactor = ReactorConfig {
        name: "weir-limit".to_owned(),
        spin: Spin::For(if config.spin { SPIN } else { Duration::ZERO }),
        ..ReactorConfig::default()
    };
    let main = Box::new(|_| -> LocalFuture<()> { Box::pin(std::future::pending()) });
    let thread = system.start_reactor(reactor, main)?;
    let config = config.clone();
    let served = thread
        .remote
        .call_blocking(move |reactor| async move { serve_all(&reactor, adopted, &config).await });
    thread.remote.stop();
    thread.join();
    served.map_err(io::Error::other)?
}

async fn serve_all(
    reactor: &Reactor,
    listener: Listener,
    config: &ServerConfig,
) -> io::Result<ServerReport> {
    let listener = ReactorListener::new(reactor, listener);
    let mut streams = Vec::with_capacity(config.connections);
    for _ in 0..config.connections {
        streams.push(listener.accept().await?);
    }
    let (began, processor_began) = (Instant::now(), processor::own_time());
    let work = config.work;
    let tasks: Vec<_> = streams
        .into_iter()
        .map(|stream| reactor.spawn(async move { serve_one(&stream, work).await }))
        .collect();
    let mut operations = 0;
    for task in tasks {
        operations += task.await?;
    }
    let processor = processor::own_time() - processor_began;
    Ok(ServerReport::new(operations, began.elapsed(), processor))
}

/// Answers what arrives, until the peer closes; how many requests that was.
async fn serve_one(stream: &TcpStream, work: Work) -> io::Result<u64> {
    let (incoming, outgoing) = (work.request_bytes(), work.answer_bytes());
    let answers = (PATTERN_BYTES / outgoing).max(1);
    let mut pattern = Segment::heap(answers * outgoing);
    pattern.fill(0x5a);
    let pattern = pattern.freeze();
    let mut gather = Gather::new();
    let (mut partial, mut operations) = (0, 0);
    loop {
        let received = stream.receive().await?.len();
        if received == 0 && partial == 0 {
            return Ok(operations);
        }
        if received == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let total = partial + received;
        let units = total / incoming;
        partial = total % incoming;
        if units == 0 {
            continue;
        }
        operations += units as u64;
        answer(&mut gather, &pattern, units * outgoing);
        let (sent, used) = stream.send(gather).await;
        sent?;
        gather = used;
        gather.clear();
    }
}

/// Appends `bytes` of answers.
fn answer(gather: &mut Gather, pattern: &View, mut bytes: usize) {
    while bytes > 0 {
        let taken = bytes.min(pattern.len());
        gather.push_view(pattern.slice(0..taken));
        bytes -= taken;
    }
}
