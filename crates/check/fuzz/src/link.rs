//! A TCP connection as bytes that are to be sent and bytes that came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use weir_memory::Gather;
use weir_reactor::{Amount, Reactor, ReceiveInto, Received, Shutdown, SocketOptions, TcpStream};

/// Whom one end tells the other that it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Farewell {
    /// All is sent, and no more comes; what the other end sends is still read.
    Finish,
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Link {
    outgoing: RefCell<VecDeque<Vec<u8>>>,
    incoming: RefCell<Vec<u8>>,
    /// Nothing is read for now.
    paused: Cell<bool>,
    farewell: Cell<Option<Farewell>>,
    finished: Cell<bool>,
    /// The other end ended it.
    gone: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Link {
    /// Connects. None where the target does not take the connection.
    pub(crate) async fn connect(reactor: &Reactor, address: SocketAddr) -> Option<Rc<Link>> {
        let options = SocketOptions::default();
        let stream = TcpStream::connect(reactor, address, &options).await.ok()?;
        let link = Rc::new(Link::default());
        let task = {
            let link = Rc::clone(&link);
            async move {
                std::future::poll_fn(|context| link.poll(&stream, context)).await;
                if link.farewell.get() == Some(Farewell::Reset) {
                    stream.abort();
                }
                link.gone.set(true);
            }
        };
        reactor.spawn(task).detach();
        Some(link)
    }

    /// Has a piece sent, in a send of its own.
    pub(crate) fn send(&self, piece: Vec<u8>) {
        self.outgoing.borrow_mut().push_back(piece);
        self.wake();
    }

    /// What came since the last call.
    pub(crate) fn take_incoming(&self) -> Vec<u8> {
        std::mem::take(&mut *self.incoming.borrow_mut())
    }

    pub(crate) fn pause(&self, paused: bool) {
        self.paused.set(paused);
        self.wake();
    }

    pub(crate) fn end(&self, farewell: Farewell) {
        self.farewell.set(Some(farewell));
        self.wake();
    }

    /// Whether the connection is at its end.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.get()
    }

    fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when the connection is to be closed.
    fn poll(&self, stream: &TcpStream, context: &mut Context<'_>) -> Poll<()> {
        *self.waker.borrow_mut() = Some(context.waker().clone());
        if matches!(self.farewell.get(), Some(Farewell::Close | Farewell::Reset)) {
            return Poll::Ready(());
        }
        while self.poll_send(stream, context) || self.poll_receive(stream, context) {}
        let all_sent = !stream.is_sending() && self.outgoing.borrow().is_empty();
        if self.farewell.get() == Some(Farewell::Finish) && all_sent && !self.finished.replace(true)
        {
            stream.shutdown(Shutdown::Write);
        }
        if self.gone.get() {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    fn poll_send(&self, stream: &TcpStream, context: &mut Context<'_>) -> bool {
        if !stream.is_sending()
            && let Some(piece) = self.outgoing.borrow_mut().pop_front()
        {
            let mut gather = Gather::new();
            gather.push_header(&piece);
            stream.start_send(gather);
        }
        // What cannot be sent any more is not missed: receiving tells of the end.
        stream.is_sending() && stream.poll_sent(context).is_ready()
    }

    fn poll_receive(&self, stream: &TcpStream, context: &mut Context<'_>) -> bool {
        if self.gone.get() {
            return false;
        }
        if !stream.is_receiving() {
            if self.paused.get() {
                return false;
            }
            stream.start_receive(ReceiveInto::Ring(Amount::Usual));
        }
        match stream.poll_received(context) {
            Poll::Pending => false,
            Poll::Ready(Ok(Received::Ring(view))) if !view.is_empty() => {
                self.incoming.borrow_mut().extend_from_slice(&view);
                true
            }
            Poll::Ready(_) => {
                self.gone.set(true);
                false
            }
        }
    }
}
