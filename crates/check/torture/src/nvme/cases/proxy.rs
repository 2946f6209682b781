//! A path between a gateway and its volume that can be held up: what is slow about a volume, for as long as a case wants it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::case::Failure;

/// A pause between two looks at what the case wants.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Bytes moved at a time.
const PIECE: usize = 64 << 10;

#[derive(Default)]
struct Wish {
    held: AtomicBool,
    ended: AtomicBool,
}

/// Takes connections and passes them on.
pub(super) struct Proxy {
    /// Address at which it listens.
    pub(super) address: SocketAddr,
    wish: Arc<Wish>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Listens on loopback, and passes on to `target`.
    pub(super) fn start(target: SocketAddr) -> Result<Self, Failure> {
        let listen = || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            listener.set_nonblocking(true)?;
            Ok::<_, std::io::Error>((listener.local_addr()?, listener))
        };
        let (address, listener) =
            listen().map_err(|error| Failure::preparation("a path of our own", error))?;
        let wish = Arc::new(Wish::default());
        let theirs = Arc::clone(&wish);
        let thread = std::thread::spawn(move || accept(&listener, target, &theirs));
        Ok(Proxy {
            address,
            wish,
            thread: Some(thread),
        })
    }

    /// What comes from now on waits, towards the target.
    pub(super) fn hold(&self) {
        self.wish.held.store(true, Ordering::SeqCst);
    }

    /// All of it goes on.
    pub(super) fn release(&self) {
        self.wish.held.store(false, Ordering::SeqCst);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.release();
        self.wish.ended.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed; the case fails by what it misses.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, target: SocketAddr, wish: &Arc<Wish>) {
    let mut threads = Vec::new();
    while !wish.ended.load(Ordering::SeqCst) {
        match listener.accept() {
            Ok((stream, _)) => threads.extend(pass(stream, target, wish)),
            Err(_) => std::thread::sleep(LOOK_AGAIN),
        }
    }
    for thread in threads {
        let _ = thread.join();
    }
}

/// Two threads, one for each direction; none where the target does not take the connection.
fn pass(host: TcpStream, target: SocketAddr, wish: &Arc<Wish>) -> Vec<JoinHandle<()>> {
    let open = || {
        let towards = TcpStream::connect(target)?;
        for stream in [&host, &towards] {
            stream.set_nonblocking(false)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK_AGAIN * 10))?;
        }
        Ok::<_, std::io::Error>((host.try_clone()?, towards.try_clone()?, towards))
    };
    let Ok((host_again, towards_again, towards)) = open() else {
        return Vec::new();
    };
    let (up, down) = (Arc::clone(wish), Arc::clone(wish));
    vec![
        std::thread::spawn(move || copy(host, towards, &up, true)),
        std::thread::spawn(move || copy(towards_again, host_again, &down, false)),
    ]
}

fn copy(mut from: TcpStream, mut to: TcpStream, wish: &Wish, can_hold: bool) {
    let mut buffer = vec![0; PIECE];
    while !wish.ended.load(Ordering::SeqCst) {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if is_pause(&error) => continue,
            Err(_) => break,
        };
        while can_hold && wish.held.load(Ordering::SeqCst) {
            std::thread::sleep(LOOK_AGAIN);
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // One end is gone, and takes the other with it.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn is_pause(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}
