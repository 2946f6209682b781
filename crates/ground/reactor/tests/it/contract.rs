//! What every driver of the reactor must do: a suite that runs on any [`System`].
//!
//! The test of a driver makes a [`Ground`] and calls [`suite`]. Nothing here looks at a clock other than the reactor's.

#![allow(
    dead_code,
    reason = "each driver's tests use the parts of this that they need"
)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use weir_memory::{Gather, Segment, Segments, View, Views};
use weir_reactor::{
    AllocateMode, Amount, Handler, Listener, LocalFile, Op, OpenOptions, Outcome, PanicPolicy,
    Reactor, ReactorConfig, ReactorId, ReceiveInto, Received, SharedSection, SocketOptions, System,
    TcpListener, TcpStream, Timer, oneshot, panic_is_contained,
};

/// Where tests happen; they take it to their reactors.
#[derive(Clone)]
pub(crate) struct Place {
    /// The system under test.
    pub(crate) system: Arc<dyn System>,
    /// An address of the system's own, with port 0.
    pub(crate) address: SocketAddr,
    /// A directory for files of the tests.
    pub(crate) directory: PathBuf,
}

/// Waits, or lets simulated time pass, until the given condition holds.
pub(crate) type Drive = Box<dyn Fn(&mut dyn FnMut() -> bool)>;

/// A system under test, and how to wait for what its reactors do.
pub(crate) struct Ground {
    /// Where.
    pub(crate) place: Place,
    /// How to wait.
    pub(crate) drive: Drive,
}

/// Sets a flag when dropped, so that a panic ends the wait too.
struct Finished(Arc<AtomicBool>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

static NEXT_NUMBER: AtomicU32 = AtomicU32::new(1);

/// The configuration of one more reactor.
pub(crate) fn config() -> ReactorConfig {
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    ReactorConfig {
        id: ReactorId(number),
        name: format!("test-{number}"),
        on_panic: PanicPolicy::Unwind,
        pool_bytes: 16 << 20,
        ..ReactorConfig::default()
    }
}

impl Ground {
    /// Runs `test` on a reactor of its own, to its end. A panic of the test goes on here.
    pub(crate) fn run<F: Future<Output = ()> + 'static>(
        &self,
        test: impl FnOnce(Reactor, Place) -> F + Send + 'static,
    ) {
        let finished = Arc::new(AtomicBool::new(false));
        let guard = Finished(finished.clone());
        let place = self.place.clone();
        let main = move |reactor| {
            let test = test(reactor, place);
            Box::pin(async move {
                let _guard = guard;
                test.await;
            }) as weir_reactor::LocalFuture<()>
        };
        let system = self.place.system.clone();
        let thread = system
            .start_reactor(config(), Box::new(main))
            .expect("a reactor starts");
        (self.drive)(&mut || finished.load(Ordering::SeqCst));
        thread.join();
    }
}

impl Place {
    /// Runs `work` on another reactor; its result comes through the future, `None` when it panicked.
    pub(crate) fn elsewhere<T: Send + 'static, F: Future<Output = T> + 'static>(
        &self,
        work: impl FnOnce(Reactor, Place) -> F + Send + 'static,
    ) -> impl Future<Output = Option<T>> {
        let (sender, receiver) = oneshot();
        let place = self.clone();
        let main = move |reactor| {
            let work = work(reactor, place);
            Box::pin(async move { sender.send(work.await) }) as weir_reactor::LocalFuture<()>
        };
        let system = self.system.clone();
        let thread = system.start_reactor(config(), Box::new(main));
        drop(thread.expect("a reactor starts"));
        receiver
    }

    fn listener(&self, reactor: &Reactor) -> TcpListener {
        TcpListener::new(reactor, self.listen())
    }

    fn listen(&self) -> Listener {
        let options = SocketOptions::default();
        self.system
            .clone()
            .listen(self.address, &options)
            .expect("listens")
    }

    /// Two ends of one connection.
    pub(crate) async fn pair(&self, reactor: &Reactor) -> (TcpStream, TcpStream) {
        self.pair_with(reactor, &SocketOptions::default()).await
    }

    /// Two ends of one connection; `options` are set on both.
    pub(crate) async fn pair_with(
        &self,
        reactor: &Reactor,
        options: &SocketOptions,
    ) -> (TcpStream, TcpStream) {
        let listener = self
            .system
            .clone()
            .listen(self.address, options)
            .expect("listens");
        let listener = TcpListener::new(reactor, listener);
        let address = listener.address();
        let connect = reactor.spawn({
            let (reactor, options) = (reactor.clone(), options.clone());
            async move { TcpStream::connect(&reactor, address, &options).await }
        });
        let accepted = listener.accept().await.expect("accepts");
        (connect.await.expect("connects"), accepted)
    }

    /// The path of a file that does not exist.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        self.directory.join(format!("{name}-{number}"))
    }

    async fn file(&self, length: u64) -> Rc<LocalFile> {
        let options = OpenOptions {
            write: true,
            create: Some(length),
            ..OpenOptions::default()
        };
        let (file, info) = self
            .system
            .clone()
            .open_file(&self.path("file"), &options)
            .expect("opens");
        assert!(info.created && info.length == length);
        LocalFile::new(file)
    }
}

/// Bytes that tell where they are.
pub(crate) fn pattern(start: usize, length: usize) -> Vec<u8> {
    /// Which bits of the product a byte is made of decides after how many bytes they repeat.
    const PERIOD: usize = 1 << 21;
    let mut bytes: Vec<u8> = (start..start + length.min(PERIOD))
        .map(|position| (position.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    while bytes.len() < length {
        bytes.extend_from_within(..bytes.len().min(length - bytes.len()));
    }
    bytes
}

pub(crate) fn gather_of(bytes: &[u8]) -> Gather {
    let mut gather = Gather::new();
    gather.push_view(View::copy_of(bytes));
    gather
}

/// Sends all of `bytes`.
pub(crate) async fn send(stream: &TcpStream, bytes: &[u8]) {
    let (result, gather) = stream.send(gather_of(bytes)).await;
    result.expect("sends");
    assert_eq!(gather.len(), bytes.len(), "the gather list comes back");
}

/// Receives exactly `length` bytes by ring receives.
pub(crate) async fn receive_exactly(stream: &TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length);
    while bytes.len() < length {
        let view = stream.receive().await.expect("receives");
        assert!(!view.is_empty(), "the stream ended at {}", bytes.len());
        bytes.extend_from_slice(&view);
    }
    assert_eq!(bytes.len(), length, "no more was sent");
    bytes
}

/// Fills a segment of `length` bytes from `from` on.
pub(crate) async fn receive_segment(
    stream: &TcpStream,
    length: usize,
    from: usize,
) -> io::Result<(Segment, usize)> {
    let segment = Segment::heap(length);
    stream.start_receive(ReceiveInto::Segment { segment, from });
    match std::future::poll_fn(|context| stream.poll_received(context)).await? {
        Received::Segment(segment, count) => Ok((segment, count)),
        Received::Ring(_) => panic!("a receive into a segment yields it"),
    }
}

/// Runs other tasks and the driver for a while: until every other task waits for something. In many short pauses, so that there are turns
/// between them though the machine may have stood still for longer than all of them take.
pub(crate) async fn settle(reactor: &Reactor) {
    for _ in 0..20 {
        reactor.sleep(Duration::from_millis(1)).await;
    }
}

/// Waits until something is so. The limit only ends a test that hangs.
pub(crate) async fn until(reactor: &Reactor, what: &str, mut is: impl FnMut() -> bool) {
    let began = reactor.now();
    while !is() {
        assert!(reactor.now().since(began) < LIMIT, "{what}");
        settle(reactor).await;
    }
}

/// Longer than anything takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);

fn assert_cancelled<T: std::fmt::Debug>(result: io::Result<T>) {
    let error = result.expect_err("it was cancelled");
    assert_eq!(error.raw_os_error(), Some(ECANCELED), "{error}");
}

/// `ECANCELED` of Linux.
const ECANCELED: i32 = 125;

/// Remembers the outcomes of operations.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) outcomes: RefCell<Vec<(u64, Outcome)>>,
}

impl Handler for Recorder {
    fn complete(&self, user: u64, outcome: Outcome) {
        self.outcomes.borrow_mut().push((user, outcome));
    }
}

/// Every test of the contract, by name.
pub(crate) fn suite(ground: &Ground) {
    type Test = fn(&Ground);
    let tests: [(&str, Test); 33] = [
        ("echo", echo),
        ("end_of_stream", end_of_stream),
        ("segment_is_filled", segment_is_filled),
        ("segment_at_end_of_stream", segment_at_end_of_stream),
        ("nothing_to_do", nothing_to_do),
        ("slow_reader", slow_reader),
        ("thousands_of_slices", thousands_of_slices),
        ("connection_refused", connection_refused),
        ("cancel_accept", cancel_accept),
        ("cancel_receives", cancel_receives),
        ("cancel_blocked_send", cancel_blocked_send),
        ("cancel_before_submission", cancel_before_submission),
        ("cancel_of_what_is_done", cancel_of_what_is_done),
        ("dropped_receive_goes_on", dropped_receive_goes_on),
        ("dropped_stream_ends", dropped_stream_ends),
        ("aborted_stream_is_reset", aborted_stream_is_reset),
        (
            "peers_end_is_noticed_without_receiving",
            peers_end_is_noticed_without_receiving,
        ),
        ("stream_moves", stream_moves),
        ("both_directions_at_once", both_directions_at_once),
        ("many_connections", many_connections),
        ("timers", timers),
        ("timer_moves", timer_moves),
        ("wakes_from_elsewhere", wakes_from_elsewhere),
        ("calls_are_answered", calls_are_answered),
        ("isolated_panic", isolated_panic),
        ("stop_drops_everything", stop_drops_everything),
        ("offload", offload),
        ("file_holds_bytes", file_holds_bytes),
        ("file_ends", file_ends),
        ("file_many_segments", file_many_segments),
        ("file_ranges", file_ranges),
        (
            "cancelled_file_operations_end_once",
            cancelled_file_operations_end_once,
        ),
        ("one_writer", one_writer),
    ];
    for (name, test) in tests {
        println!("contract: {name}");
        test(ground);
    }
}

fn echo(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        let bytes = pattern(0, 3000);
        send(&client, &bytes).await;
        assert_eq!(receive_exactly(&server, 3000).await, bytes);
        send(&server, &bytes[..10]).await;
        assert_eq!(receive_exactly(&client, 10).await, bytes[..10]);
        assert_eq!(
            client.peer_address(),
            server.local_address().expect("has one")
        );
        assert_eq!(
            server.peer_address(),
            client.local_address().expect("has one")
        );
    });
}

fn end_of_stream(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        send(&client, b"last").await;
        client.shutdown(weir_reactor::Shutdown::Write);
        assert_eq!(receive_exactly(&server, 4).await, b"last");
        assert!(server.receive().await.expect("ends in order").is_empty());
        // The other direction goes on.
        send(&server, b"answer").await;
        assert_eq!(receive_exactly(&client, 6).await, b"answer");
    });
}

fn segment_is_filled(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        let bytes = pattern(7, 9000);
        let sender = reactor.spawn({
            let (reactor, bytes) = (reactor.clone(), bytes.clone());
            async move {
                for part in bytes.chunks(1000) {
                    send(&client, part).await;
                    settle(&reactor).await;
                }
                client
            }
        });
        let (segment, count) = receive_segment(&server, 9100, 100).await.expect("receives");
        assert_eq!(count, 9000);
        assert_eq!(segment[100..], bytes[..]);
        drop(sender.await);
    });
}

fn segment_at_end_of_stream(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        send(&client, b"abc").await;
        drop(client);
        let (segment, count) = receive_segment(&server, 8, 1).await.expect("receives");
        assert_eq!((count, &segment[1..4]), (3, &b"abc"[..]));
        let (_, count) = receive_segment(&server, 8, 0).await.expect("receives");
        assert_eq!(count, 0);
    });
}

fn nothing_to_do(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        send(&client, &[]).await;
        let (_, count) = receive_segment(&server, 16, 16).await.expect("receives");
        assert_eq!(count, 0);
        let file = place.file(4096).await;
        let (read, _) = file.read(&reactor, 0, Segments::new()).await;
        assert_eq!(read.expect("reads"), 0);
        let (written, _) = file.write(&reactor, 0, Views::new(), true).await;
        assert_eq!(written.expect("writes"), 0);
    });
}

fn slow_reader(ground: &Ground) {
    const TOTAL: usize = 8 << 20;
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        let sender = reactor.spawn(async move {
            send(&client, &pattern(0, TOTAL)).await;
            client
        });
        settle(&reactor).await;
        let mut position = 0;
        while position < TOTAL {
            let (segment, count) = receive_segment(&server, 1 << 20, 0)
                .await
                .expect("receives");
            assert_eq!(count, 1 << 20);
            assert!(segment[..] == pattern(position, count)[..], "at {position}");
            position += count;
            if position == 1 << 20 {
                settle(&reactor).await;
            }
        }
        drop(sender.await);
    });
}

fn thousands_of_slices(ground: &Ground) {
    const SLICES: usize = 5000;
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        let bytes = pattern(0, 12 * SLICES);
        let mut gather = Gather::new();
        let whole = View::copy_of(&bytes);
        for slice in 0..SLICES {
            let start = 12 * slice;
            gather.push_header(&bytes[start..start + 5]);
            gather.push_view(whole.slice(start + 5..start + 12));
        }
        assert_eq!(gather.slice_count(), 2 * SLICES);
        client.start_send(gather);
        assert!(receive_exactly(&server, bytes.len()).await == bytes);
        let (result, gather) = std::future::poll_fn(|context| client.poll_sent(context)).await;
        result.expect("sends");
        assert_eq!(gather.len(), bytes.len());
    });
}

fn connection_refused(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let options = SocketOptions::default();
        let began = reactor.now();
        let error = loop {
            let listener = place.listen();
            let address = listener.address();
            drop(listener);
            // Another test may listen there now, and a child that one starts has the listener until it executes its program.
            match TcpStream::connect(&reactor, address, &options).await {
                Ok(_) => assert!(reactor.now().since(began) < LIMIT, "nobody listens"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    });
}

fn cancel_accept(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let listener = Rc::new(place.listen());
        let recorder = Rc::new(Recorder::default());
        let op = Op::Accept {
            listener: listener.clone(),
        };
        let token = reactor.submit(op, recorder.clone(), 7);
        settle(&reactor).await;
        assert!(recorder.outcomes.borrow().is_empty());
        reactor.cancel(token);
        until(&reactor, "it ends", || {
            !recorder.outcomes.borrow().is_empty()
        })
        .await;
        let (user, outcome) = recorder.outcomes.take().pop().expect("it ended");
        assert_eq!(user, 7);
        assert_cancelled(outcome.result);
        drop(outcome.op);
        // The listener accepts on.
        let listener = Rc::try_unwrap(listener).expect("the outcome gave the operation back");
        let listener = TcpListener::new(&reactor, listener);
        drop(std::future::poll_fn(|context| {
            let accept = std::pin::pin!(listener.accept());
            assert!(accept.poll(context).is_pending());
            Poll::Ready(())
        }));
        let address = listener.address();
        let connect = reactor.spawn({
            let reactor = reactor.clone();
            async move { TcpStream::connect(&reactor, address, &SocketOptions::default()).await }
        });
        let accepted = listener.accept().await.expect("accepts");
        let connected = connect.await.expect("connects");
        send(&connected, b"x").await;
        assert_eq!(receive_exactly(&accepted, 1).await, b"x");
    });
}

fn cancel_receives(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        server.start_receive(ReceiveInto::Ring(Amount::Usual));
        settle(&reactor).await;
        server.cancel_receive();
        let result = std::future::poll_fn(|context| server.poll_received(context)).await;
        assert_cancelled(result);
        // The connection goes on, and no byte is lost.
        send(&client, b"abc").await;
        assert_eq!(receive_exactly(&server, 3).await, b"abc");
        let segment = Segment::heap(4096);
        server.start_receive(ReceiveInto::Segment { segment, from: 0 });
        settle(&reactor).await;
        server.cancel_receive();
        let result = std::future::poll_fn(|context| server.poll_received(context)).await;
        assert_cancelled(result);
    });
}

fn cancel_blocked_send(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let listener = place.listener(&reactor);
        let address = listener.address();
        let options = SocketOptions::default();
        let socket = Rc::new(
            place
                .system
                .clone()
                .socket(address, &options)
                .expect("a socket"),
        );
        let connect = reactor.start(Op::Connect {
            socket: socket.clone(),
            address,
        });
        let accept = listener.accept();
        connect.await.result.expect("connects");
        let accepted = accept.await.expect("accepts");
        let recorder = Rc::new(Recorder::default());
        let op = Op::Send {
            socket: socket.clone(),
            gather: gather_of(&pattern(0, 64 << 20)),
        };
        let token = reactor.submit(op, recorder.clone(), 0);
        settle(&reactor).await;
        assert!(recorder.outcomes.borrow().is_empty(), "nobody reads");
        reactor.cancel(token);
        until(&reactor, "it ends", || {
            !recorder.outcomes.borrow().is_empty()
        })
        .await;
        let (_, outcome) = recorder.outcomes.take().pop().expect("it ended");
        assert_cancelled(outcome.result);
        let Op::Send { gather, .. } = outcome.op else {
            panic!("an outcome gives its operation back")
        };
        assert_eq!(gather.len(), 64 << 20);
        drop(accepted);
    });
}

fn cancel_before_submission(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (_client, server) = place.pair(&reactor).await;
        // Within one turn: the driver has not seen the kernel, or the network, in between.
        server.start_receive(ReceiveInto::Ring(Amount::Usual));
        server.cancel_receive();
        let result = std::future::poll_fn(|context| server.poll_received(context)).await;
        assert_cancelled(result);
    });
}

fn cancel_of_what_is_done(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        let listener = Rc::new(place.listen());
        send(&client, b"abc").await;
        settle(&reactor).await;
        // Whichever comes first, the answer is one of the two, once.
        server.start_receive(ReceiveInto::Ring(Amount::Usual));
        server.cancel_receive();
        match std::future::poll_fn(|context| server.poll_received(context)).await {
            Ok(Received::Ring(view)) => assert!(b"abc".starts_with(&view) && !view.is_empty()),
            other => assert_cancelled(other),
        }
        // A future that is dropped unpolled is cancelled.
        for _ in 0..100 {
            let op = Op::Accept {
                listener: listener.clone(),
            };
            drop(reactor.start(op));
        }
        until(&reactor, "every operation comes back", || {
            Rc::strong_count(&listener) == 1
        })
        .await;
    });
}

fn dropped_receive_goes_on(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        std::future::poll_fn(|context| {
            let receive = std::pin::pin!(server.receive());
            assert!(receive.poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        send(&client, b"abc").await;
        settle(&reactor).await;
        assert_eq!(receive_exactly(&server, 3).await, b"abc");
    });
}

fn dropped_stream_ends(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        client.start_receive(ReceiveInto::Ring(Amount::Usual));
        settle(&reactor).await;
        drop(client);
        assert!(server.receive().await.expect("ends in order").is_empty());

        let (client, server) = place.pair(&reactor).await;
        client.start_receive(ReceiveInto::Ring(Amount::Usual));
        client.start_send(gather_of(&pattern(0, 64 << 20)));
        settle(&reactor).await;
        drop(client);
        loop {
            match server.receive().await {
                Ok(view) if view.is_empty() => break,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                    break;
                }
            }
        }
    });
}

fn aborted_stream_is_reset(ground: &Ground) {
    ground.run(|reactor, place| async move {
        for sending in [true, false] {
            let (client, server) = place.pair(&reactor).await;
            client.start_receive(ReceiveInto::Ring(Amount::Usual));
            if sending {
                client.start_send(gather_of(&pattern(0, 64 << 20)));
            }
            settle(&reactor).await;
            client.abort();
            drop(client);
            let mut received = 0;
            let error = loop {
                match server.receive().await {
                    Ok(view) => {
                        assert!(!view.is_empty(), "a reset is no end in order");
                        received += view.len();
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            assert!(received < 64 << 20);
        }
    });
}

fn peers_end_is_noticed_without_receiving(ground: &Ground) {
    ground.run(|reactor, place| async move {
        for abort in [true, false] {
            let (client, server) = place.pair(&reactor).await;
            send(&client, b"something").await;
            settle(&reactor).await;
            assert!(!server.has_peer_ended() && !client.has_peer_ended());
            if abort {
                client.abort();
            }
            drop(client);
            let what = format!("the end is noticed, abort: {abort}");
            until(&reactor, &what, || server.has_peer_ended()).await;
        }
    });
}

fn stream_moves(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        send(&client, b"one").await;
        assert_eq!(receive_exactly(&server, 3).await, b"one");
        // Bytes that are in the socket already move along.
        send(&client, b"two").await;
        settle(&reactor).await;
        let moved = server.detach();
        let there = place.elsewhere(move |reactor, _| async move {
            let server = moved.attach(&reactor);
            let bytes = receive_exactly(&server, 3).await;
            send(&server, b"three").await;
            (bytes, server.detach())
        });
        assert_eq!(receive_exactly(&client, 5).await, b"three");
        let (bytes, back) = there.await.expect("no panic there");
        assert_eq!(bytes, b"two");
        let server = back.attach(&reactor);
        send(&client, b"four").await;
        assert_eq!(receive_exactly(&server, 4).await, b"four");
    });
}

fn both_directions_at_once(ground: &Ground) {
    const TOTAL: usize = 2 << 20;
    ground.run(|reactor, place| async move {
        let (client, server) = place.pair(&reactor).await;
        client.start_send(gather_of(&pattern(0, TOTAL)));
        server.start_send(gather_of(&pattern(1, TOTAL)));
        let server = Rc::new(server);
        let receiver = reactor.spawn({
            let server = server.clone();
            async move { receive_exactly(&server, TOTAL).await }
        });
        assert!(receive_exactly(&client, TOTAL).await == pattern(1, TOTAL));
        assert!(receiver.await == pattern(0, TOTAL));
        for stream in [&client, &*server] {
            let (result, _) = std::future::poll_fn(|context| stream.poll_sent(context)).await;
            result.expect("sends");
        }
    });
}

fn many_connections(ground: &Ground) {
    const CONNECTIONS: usize = 200;
    const ROUNDS: usize = 5;
    ground.run(|reactor, place| async move {
        let listener = place.listener(&reactor);
        let address = listener.address();
        let server = reactor.spawn({
            let reactor = reactor.clone();
            async move {
                for _ in 0..CONNECTIONS {
                    let stream = listener.accept().await.expect("accepts");
                    let echo = async move {
                        loop {
                            let view = stream.receive().await.expect("receives");
                            if view.is_empty() {
                                return;
                            }
                            send(&stream, &view).await;
                        }
                    };
                    reactor.spawn(echo).detach();
                }
            }
        });
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let client = {
                    let reactor = reactor.clone();
                    async move {
                        let options = SocketOptions::default();
                        let stream = TcpStream::connect(&reactor, address, &options)
                            .await
                            .expect("connects");
                        for round in 0..ROUNDS {
                            let bytes = pattern(number * 1000 + round, 100 + number);
                            send(&stream, &bytes).await;
                            assert_eq!(receive_exactly(&stream, bytes.len()).await, bytes);
                        }
                    }
                };
                reactor.spawn(client)
            })
            .collect();
        for client in clients {
            client.await;
        }
        server.await;
    });
}

fn timers(ground: &Ground) {
    ground.run(|reactor, _| async move {
        // Each pause begins when its task has its first turn, and the machine may stand still between two of these.
        let began = reactor.now();
        while !timers_in_order(&reactor).await {
            assert!(reactor.now().since(began) < LIMIT, "it always stands still");
        }
    });
}

/// Says no where the pauses did not begin together.
async fn timers_in_order(reactor: &Reactor) -> bool {
    let order = Rc::new(RefCell::new(Vec::new()));
    let began = reactor.now();
    let last_began = Rc::new(Cell::new(began));
    let sleepers: Vec<_> = [30_u64, 10, 20, 0]
        .into_iter()
        .map(|milliseconds| {
            let (sleeper, order) = (reactor.clone(), order.clone());
            let last_began = last_began.clone();
            reactor.spawn(async move {
                let pause = Duration::from_millis(milliseconds);
                last_began.set(sleeper.now());
                sleeper.sleep(pause).await;
                assert!(sleeper.now() >= began + pause, "never early");
                order.borrow_mut().push(milliseconds);
            })
        })
        .collect();
    for sleeper in sleepers {
        sleeper.await;
    }
    if last_began.get().since(began) >= Duration::from_millis(5) {
        return false;
    }
    assert_eq!(*order.borrow(), [0, 10, 20, 30]);
    true
}

fn timer_moves(ground: &Ground) {
    ground.run(|reactor, _| async move {
        let mut timer = Timer::new(&reactor);
        let began = reactor.now();
        timer.set(began + Duration::from_secs(3600));
        let mut late = Timer::new(&reactor);
        late.set(began + Duration::from_millis(5));
        std::future::poll_fn(|context| {
            assert!(timer.poll_elapsed(context).is_pending());
            late.poll_elapsed(context)
        })
        .await;
        timer.set(reactor.now() + Duration::from_millis(5));
        std::future::poll_fn(|context| timer.poll_elapsed(context)).await;
        assert_eq!(timer.deadline(), None);
        timer.set(reactor.now());
        timer.clear();
        std::future::poll_fn(|context| {
            assert!(timer.poll_elapsed(context).is_pending());
            Poll::Ready(())
        })
        .await;
    });
}

fn wakes_from_elsewhere(ground: &Ground) {
    const ROUNDS: usize = 2000;
    ground.run(|reactor, place| async move {
        // Two reactors hand a token back and forth; each is asleep, or falling asleep, when it comes.
        let (home, counted) = (reactor.remote(), Arc::new(AtomicUsize::new(0)));
        let there = place.elsewhere({
            let counted = counted.clone();
            move |_, _| async move {
                for round in 0..ROUNDS {
                    let counted = counted.clone();
                    let answer = home.call(move |_| async move {
                        counted.fetch_add(1, Ordering::Relaxed);
                        round
                    });
                    assert_eq!(answer.await, Ok(round));
                }
            }
        });
        there.await.expect("no panic there");
        assert_eq!(counted.load(Ordering::Relaxed), ROUNDS);
    });
}

fn calls_are_answered(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let (sender, receiver) = oneshot();
        let (stop, stopped) = oneshot::<()>();
        let there = place.elsewhere(move |reactor, _| async move {
            sender.send(reactor.remote());
            stopped.await;
        });
        let remote = receiver.await.expect("sent");
        let at = reactor.remote();
        let id = remote
            .call(move |there| async move {
                // And back, before the answer.
                let here = at.call(|here| async move { here.id() }).await;
                (there.id(), here)
            })
            .await
            .expect("answered");
        assert_eq!(id, (remote.id(), Ok(reactor.id())));
        stop.send(());
        there.await.expect("no panic there");
        while remote.run(|_| ()).is_ok() {
            settle(&reactor).await;
        }
        let refused = remote.call(|_| async {}).await;
        assert_eq!(refused.expect_err("it stopped").reactor, remote.id());
    });
}

fn isolated_panic(ground: &Ground) {
    ground.run(|reactor, _| async move {
        let quiet = reactor.spawn_isolated(async { 5 });
        assert_eq!(quiet.await, Ok(5));
        let loud = reactor.spawn_isolated(async { panic!("number {}", 7) });
        let result: Result<(), _> = loud.await;
        assert_eq!(result.expect_err("it panicked").message, "number 7");
        let contained = reactor.spawn_isolated(async {
            let inside = panic_is_contained();
            let section = SharedSection::enter();
            let in_section = panic_is_contained();
            drop(section);
            (inside, in_section, panic_is_contained())
        });
        assert_eq!(contained.await, Ok((true, false, true)));
        assert!(!panic_is_contained(), "this is no isolated task");
    });
}

fn stop_drops_everything(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let listener = place.listener(&reactor);
        let address = listener.address();
        let (sender, receiver) = oneshot();
        let dropped = Arc::new(AtomicBool::new(false));
        let guard = Finished(dropped.clone());
        let there = place.elsewhere(move |reactor, _| async move {
            let options = SocketOptions::default();
            let stream = TcpStream::connect(&reactor, address, &options)
                .await
                .expect("connects");
            // A detached task that nobody will wake: it waits for its connection for ever.
            reactor
                .spawn(async move {
                    let _guard = guard;
                    stream.start_send(gather_of(&pattern(0, 64 << 20)));
                    let _ = stream.receive().await;
                })
                .detach();
            sender.send(reactor.remote());
            std::future::pending::<()>().await;
        });
        let stream = listener.accept().await.expect("accepts");
        let remote = receiver.await.expect("sent");
        settle(&reactor).await;
        remote.stop();
        assert!(there.await.is_none(), "it was stopped");
        loop {
            match stream.receive().await {
                Ok(view) if view.is_empty() => break,
                Ok(_) => {}
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
                    break;
                }
            }
        }
        assert!(dropped.load(Ordering::SeqCst), "its tasks are gone");
    });
}

fn offload(ground: &Ground) {
    ground.run(|reactor, _| async move {
        let works: Vec<_> = (0..50)
            .map(|number| {
                let there = reactor.clone();
                reactor.spawn(async move { there.offload(move || number * 2).await })
            })
            .collect();
        for (number, work) in works.into_iter().enumerate() {
            assert_eq!(work.await, Some(number * 2));
        }
    });
}

fn file_holds_bytes(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let file = place.file(1 << 20).await;
        for durable in [false, true] {
            let bytes = pattern(usize::from(durable), 16384);
            let data: Views = std::iter::once(View::copy_of(&bytes)).collect();
            let (written, data) = file.write(&reactor, 8192, data, durable).await;
            assert_eq!(written.expect("writes"), 16384);
            assert_eq!(data.len(), 1);
            file.sync(&reactor).await.expect("syncs");
            let into: Segments = std::iter::once(Segment::heap(24576)).collect();
            let (read, into) = file.read(&reactor, 4096, into).await;
            assert_eq!(read.expect("reads"), 24576);
            assert!(into[0][..4096].iter().all(|&byte| byte == 0));
            assert!(into[0][4096..20480] == bytes[..]);
            assert!(into[0][20480..].iter().all(|&byte| byte == 0));
        }
    });
}

fn file_ends(ground: &Ground) {
    ground.run(|reactor, place| async move {
        let file = place.file(8192).await;
        let into: Segments = (0..3).map(|_| Segment::heap(4096)).collect();
        let (read, into) = file.read(&reactor, 0, into).await;
        assert_eq!(read.expect("reads"), 8192);
        let (read, _) = file.read(&reactor, 8192, into).await;
        assert_eq!(read.expect("reads"), 0);
        assert_eq!(file.length().expect("has one"), 8192);
        file.set_length(16384).expect("grows");
        assert_eq!(file.length().expect("has one"), 16384);
        let into: Segments = (0..3).map(|_| Segment::heap(4096)).collect();
        let (read, _) = file.read(&reactor, 8192, into).await;
        assert_eq!(read.expect("reads"), 8192);
    });
}

fn file_many_segments(ground: &Ground) {
    const SEGMENTS: usize = 1500;
    ground.run(|reactor, place| async move {
        let file = place.file((SEGMENTS * 4096) as u64).await;
        let bytes = pattern(3, SEGMENTS * 4096);
        let data: Views = bytes.chunks(4096).map(View::copy_of).collect();
        let (written, _) = file.write(&reactor, 0, data, false).await;
        assert_eq!(written.expect("writes"), bytes.len());
        let into: Segments = (0..SEGMENTS).map(|_| Segment::heap(4096)).collect();
        let (read, into) = file.read(&reactor, 0, into).await;
        assert_eq!(read.expect("reads"), bytes.len());
        let same = into
            .iter()
            .zip(bytes.chunks(4096))
            .all(|(segment, chunk)| segment[..] == *chunk);
        assert!(same);
    });
}

fn file_ranges(ground: &Ground) {
    ground.run(|reactor, place| async move {
        for mode in [
            AllocateMode::PunchHole,
            AllocateMode::ZeroRange,
            AllocateMode::Discard,
        ] {
            let file = place.file(1 << 20).await;
            let bytes = pattern(0, 1 << 20);
            let data: Views = std::iter::once(View::copy_of(&bytes)).collect();
            let (written, _) = file.write(&reactor, 0, data, false).await;
            written.expect("writes");
            match file.allocate(&reactor, 65536, 131_072, mode).await {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(EOPNOTSUPP) => continue,
                Err(error) => panic!("{mode:?}: {error}"),
            }
            let into: Segments = std::iter::once(Segment::heap(1 << 20)).collect();
            let (read, into) = file.read(&reactor, 0, into).await;
            assert_eq!(read.expect("reads"), 1 << 20, "the length stays");
            assert!(into[0][..65536] == bytes[..65536]);
            assert!(into[0][65536..196_608].iter().all(|&byte| byte == 0));
            assert!(into[0][196_608..] == bytes[196_608..]);
        }
    });
}

/// `EOPNOTSUPP` of Linux.
const EOPNOTSUPP: i32 = 95;

fn cancelled_file_operations_end_once(ground: &Ground) {
    const OPERATIONS: u64 = 64;
    ground.run(|reactor, place| async move {
        let file = place.file(OPERATIONS * 8192).await;
        let recorder = Rc::new(Recorder::default());
        let tokens: Vec<_> = (0..OPERATIONS)
            .map(|number| {
                let (file, offset) = (file.clone(), number * 8192);
                let op = match number % 3 {
                    0 => Op::Read {
                        file,
                        offset,
                        into: std::iter::once(Segment::heap(8192)).collect(),
                    },
                    1 => Op::Write {
                        file,
                        offset,
                        data: std::iter::once(View::copy_of(&pattern(0, 8192))).collect(),
                        durable: number % 2 == 0,
                    },
                    _ => Op::Sync { file },
                };
                reactor.submit(op, recorder.clone(), number)
            })
            .collect();
        tokens.into_iter().for_each(|token| reactor.cancel(token));
        while recorder.outcomes.borrow().len() < OPERATIONS as usize {
            settle(&reactor).await;
        }
        settle(&reactor).await;
        let mut seen: Vec<u64> = Vec::new();
        for (number, outcome) in recorder.outcomes.take() {
            seen.push(number);
            match outcome.result {
                Ok(weir_reactor::Output::Count(count)) => assert_eq!(count, 8192),
                Ok(weir_reactor::Output::Done) => assert!(matches!(outcome.op, Op::Sync { .. })),
                other => assert_cancelled(other),
            }
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..OPERATIONS).collect::<Vec<_>>());
        assert_eq!(Rc::strong_count(&file), 1, "every operation came back");
    });
}

/// Opens a file that was just closed. A child that another test starts has its descriptor, and with that its lock, until it executes its
/// program.
pub(crate) fn reopened<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    const ATTEMPTS: u32 = 30_000;
    for _ in 0..ATTEMPTS {
        match open() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
    open()
}

fn one_writer(ground: &Ground) {
    ground.run(|_, place| async move {
        let path = place.path("medium");
        let options = |write, create| OpenOptions {
            write,
            create,
            ..OpenOptions::default()
        };
        let open = |options| place.system.clone().open_file(&path, &options);
        let missing = open(options(true, None)).expect_err("not there");
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let (first, info) = open(options(true, Some(4096))).expect("opens");
        assert!(info.created);
        let error = open(options(true, None)).expect_err("has a writer");
        assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
        let (reader, info) = open(options(false, None)).expect("opens");
        assert!(!info.created && info.length == 4096);
        drop(first);
        let (second, again) = reopened(|| open(options(true, Some(9999)))).expect("opens");
        assert_eq!((again.created, again.length), (false, 4096));
        assert_eq!(again.identity, info.identity);
        drop((reader, second));
    });
}
