//! From a listener to a connection that is served: how many there may be, and which of them wait.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_reactor::{Instant, Listener, SocketOptions, TcpListener, TcpStream};

use crate::arrivals::{Arrival, Source};
use crate::connection;
use crate::protocol::Protocol;
use crate::session::Session;
use crate::shard::{Listening, Shard, Waiting};

/// For how long a listener rests after an error that passes, such as no more descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(100);
/// How often it is looked whether connections that wait may be served.
const WAITING_LOOK: Duration = Duration::from_millis(5);
/// How often it is looked whether the host of a connection that waits has hung up.
const HUNG_UP_LOOK: Duration = Duration::from_secs(1);

/// Where a front end is to listen.
#[derive(Debug)]
pub struct ListenAt<O> {
    /// The address; port 0 takes one that is free.
    pub address: SocketAddr,
    /// Options of its connections.
    pub options: SocketOptions,
    /// What its connections are told of it.
    pub port: O,
    /// A socket that listens already, handed down by a service manager.
    pub inherited: Option<Listener>,
}

/// Opens a listener on this reactor and starts to accept.
pub(crate) fn listen<S: Session>(
    shard: &Rc<Shard<S::Protocol>>,
    id: u64,
    at: ListenAt<<S::Protocol as Protocol>::Port>,
) -> std::io::Result<SocketAddr> {
    let reactor = &shard.hub.reactor;
    let listener = match at.inherited {
        Some(listener) => listener,
        None => Arc::clone(reactor.system()).listen(at.address, &at.options)?,
    };
    let address = listener.address();
    let listener = TcpListener::new(reactor, listener);
    let options = Rc::new(RefCell::new(at.options));
    let accepting = accept::<S>(Rc::clone(shard), listener, Rc::clone(&options), at.port);
    let listening = Listening {
        _accepting: reactor.spawn(accepting),
        options,
    };
    shard.listeners.borrow_mut().insert(id, listening);
    Ok(address)
}

async fn accept<S: Session>(
    shard: Rc<Shard<S::Protocol>>,
    listener: TcpListener,
    options: Rc<RefCell<SocketOptions>>,
    port: <S::Protocol as Protocol>::Port,
) {
    loop {
        match listener.accept().await {
            Ok(stream) => admit::<S>(&shard, stream, &options.borrow(), port.clone()),
            Err(error) => {
                tracing::warn!(address = %listener.address(), %error, "a connection was not accepted");
                shard.hub.reactor.sleep(ACCEPT_REST).await;
            }
        }
    }
}

/// Serves connections that wait, as soon as they may be, or closes them when their host has hung up or they have waited for too
/// long.
async fn call_in<S: Session>(shard: Rc<Shard<S::Protocol>>) {
    let (admission, limits) = (&shard.shared.admission, &shard.shared.limits);
    loop {
        let now = shard.hub.reactor.now();
        let mut waiting = std::mem::take(&mut *shard.waiting.borrow_mut());
        waiting.retain_mut(|one| waits_on(&shard, one, now));
        for one in admission.call_in(&mut waiting, |one| one.source, limits) {
            serve::<S>(&shard, one);
        }
        let is_over = waiting.is_empty();
        *shard.waiting.borrow_mut() = waiting;
        if is_over {
            return;
        }
        shard.hub.reactor.sleep(WAITING_LOOK).await;
    }
}

/// Whether a connection goes on waiting; it is counted no more otherwise.
fn waits_on<P: Protocol>(shard: &Shard<P>, one: &mut Waiting<P>, now: Instant) -> bool {
    if one.until <= now {
        let limits = &shard.shared.limits;
        shard.counters.over_half_open.add(1);
        tracing::warn!(
            peer = %one.stream.peer_address(), limit = limits.max_half_open,
            limit_per_address = limits.max_half_open_per_address,
            "a connection was closed: it waited too long behind others that are not established yet"
        );
        shard.shared.admission.waits_no_longer(one.source);
        return false;
    }
    if one.look_at <= now {
        one.look_at = now + HUNG_UP_LOOK;
        if one.stream.has_peer_ended() {
            tracing::debug!(peer = %one.stream.peer_address(), "a host hung up before it was served");
            shard.shared.admission.waits_no_longer(one.source);
            return false;
        }
    }
    true
}

/// Closes the connections that wait to be served.
pub(crate) fn forget_waiting<P: Protocol>(shard: &Shard<P>) {
    for one in std::mem::take(&mut *shard.waiting.borrow_mut()) {
        shard.shared.admission.waits_no_longer(one.source);
    }
}

fn serve<S: Session>(shard: &Rc<Shard<S::Protocol>>, arrived: Waiting<S::Protocol>) {
    let Waiting {
        stream,
        local,
        port,
        source,
        ..
    } = arrived;
    connection::accepted::<S>(shard, stream, local, port, source);
}

/// Serves a new connection, has it wait, or closes it when there are too many.
fn admit<S: Session>(
    shard: &Rc<Shard<S::Protocol>>,
    stream: TcpStream,
    options: &SocketOptions,
    port: <S::Protocol as Protocol>::Port,
) {
    let (limits, counters) = (&shard.shared.limits, &shard.counters);
    counters.accepted.add(1);
    let peer = stream.peer_address();
    let local = match stream.local_address() {
        Ok(local) => local,
        Err(error) => {
            tracing::debug!(%peer, %error, "a connection was gone before it was served");
            return;
        }
    };
    if let Err(error) = stream.set_options(options) {
        tracing::warn!(%peer, %error, "the listener's socket options were not set");
    }
    let (source, now) = (Source::of(peer), shard.hub.reactor.now());
    let arrived = Waiting {
        stream,
        local,
        port,
        source,
        until: now + 2 * limits.handshake_timeout,
        look_at: now + HUNG_UP_LOOK,
    };
    match shard.shared.admission.arrive(source, limits) {
        Arrival::Serve => serve::<S>(shard, arrived),
        Arrival::Wait => {
            let mut waiting = shard.waiting.borrow_mut();
            waiting.push_back(arrived);
            if waiting.len() == 1 {
                let reactor = &shard.hub.reactor;
                reactor.spawn(call_in::<S>(Rc::clone(shard))).detach();
            }
        }
        Arrival::Full => {
            counters.refused.add(1);
            counters.over_connections.add(1);
            tracing::warn!(%peer, limit = limits.max_connections, "a connection too many was closed");
        }
        Arrival::RefuseAny => {
            counters.refused.add(1);
            counters.over_half_open.add(1);
            tracing::warn!(%peer, "a connection was closed: too many wait to be served");
        }
        Arrival::RefuseSource => {
            counters.refused.add(1);
            counters.over_address.add(1);
            tracing::warn!(%peer, "a connection too many of its address was closed");
        }
    }
}
