//! The simulated TCP network: listeners, connections, and what can happen to them.
//!
//! Bytes arrive in order and once, as TCP promises, in segments of random size after random delays. Both directions of a
//! connection are bounded by the socket buffers of their ends. Acknowledgements take no time and are never lost alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::injected::FaultKind;
use super::random::nanoseconds;
use super::schedule::{Event, Schedule, Step, Waiter};
use super::settings::HostId;
use crate::net::Shutdown;
use crate::{Handle, SocketOptions, SocketReport};

/// First wait before an unanswered connection request is repeated; doubled each time.
const REQUEST_RETRY: Duration = Duration::from_secs(1);
/// The most times that the wait before a repetition is doubled.
const REQUEST_DOUBLINGS_MAX: u32 = 6;
/// Connections that a listener holds where its options say nothing.
const BACKLOG: u32 = 1024;
/// First port that is given where none was asked for.
const FREE_PORT_MIN: u16 = 32768;
/// The longest time until the first repetition passes after a path is whole again.
const REPETITION_MAX: Duration = Duration::from_millis(200);
/// Smallest buffer that a socket has (Linux: SOCK_MIN_SNDBUF, rounded).
const BUFFER_MIN: u32 = 4096;

/// The place of a host in the network.
pub(super) fn address_v4(host: HostId) -> Ipv4Addr {
    let number = u16::try_from(host.0 + 1).expect("a world has at most 65534 hosts");
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(10, 0, high, low)
}

pub(super) fn address_v6(host: HostId) -> Ipv6Addr {
    let number = u16::try_from(host.0 + 1).expect("a world has at most 65534 hosts");
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, number)
}

fn is_own(host: HostId, ip: IpAddr) -> bool {
    ip.is_loopback() || ip == IpAddr::V4(address_v4(host)) || ip == IpAddr::V6(address_v6(host))
}

pub(super) fn failure(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segment {
    /// The client's last word of the handshake.
    Handshake,
    Data(usize),
    Finish,
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not connected.
    Fresh,
    Connecting(Waiter),
    Connected,
    /// The attempt to connect failed.
    Failed,
}

struct Endpoint {
    host: HostId,
    /// Set while a program holds it.
    open: bool,
    /// Its host has forgotten it: whatever arrives is answered with a reset.
    forgotten: bool,
    phase: Phase,
    settings: SocketReport,
    user_timeout: Option<Duration>,
    /// When something of its peer arrived last.
    heard_at: u64,
    /// A look at whether its peer is alive is to come.
    alive_checked: bool,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
    peer: Option<Handle>,

    /// Bytes that arrived (the first `arrived`) or are on the way.
    stream: VecDeque<u8>,
    arrived: usize,
    in_flight: VecDeque<Segment>,
    /// Segments in flight that wait for a path.
    held_up: usize,
    last_arrival: u64,
    finished: bool,
    receive_shut: bool,

    unsent: VecDeque<u8>,
    send_shut: bool,
    finish_sent: bool,
    /// When sent data was last acknowledged, or began to wait for it.
    progress_at: u64,
    progress_checked: bool,

    /// Why the connection failed, until a program is told.
    error: Option<i32>,
    failed: bool,
    /// A reset is on its way: data that is sent goes nowhere.
    severed: bool,
    /// It has reset the connection: nothing that it sent is repeated, the reset neither.
    has_reset: bool,
    /// Its place in the record of accepted connections.
    accepted: Option<usize>,
    receivers: VecDeque<Waiter>,
    senders: VecDeque<Waiter>,
}

impl Endpoint {
    /// Set once nothing can be sent or received any more.
    fn is_over(&self) -> bool {
        self.failed || self.has_reset
    }

    /// Segments on their way here never arrive.
    fn lose_in_flight(&mut self) {
        self.in_flight.clear();
        self.held_up = 0;
        self.stream.truncate(self.arrived);
    }
}

struct Listener {
    host: HostId,
    address: SocketAddr,
    settings: SocketReport,
    only_v6: bool,
    backlog: usize,
    /// Requested, and not established yet.
    coming: usize,
    /// Established, and not accepted yet.
    queue: VecDeque<Handle>,
    waiters: VecDeque<Waiter>,
    shut: bool,
}

/// The result of a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readable {
    Bytes(usize),
    End,
    Nothing,
}

/// A connection as [`super::World::connections`] tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The end that connected.
    pub client: SocketAddr,
    /// Its host.
    pub client_host: HostId,
    /// The end that accepted.
    pub server: SocketAddr,
    /// Its host.
    pub server_host: HostId,
    ends: (Handle, Handle),
}

/// The life of a connection at the end that accepted it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// The end that connected.
    pub client: SocketAddr,
    /// Its host.
    pub client_host: HostId,
    /// The end that accepted.
    pub server: SocketAddr,
    /// When it was requested.
    pub from: Duration,
    /// When no program held it any more; none while one does, or may accept it yet.
    pub until: Option<Duration>,
}

pub(super) struct Network {
    socket_buffer: u32,
    connect_timeout: Duration,
    retransmission_timeout: Duration,
    endpoints: BTreeMap<Handle, Endpoint>,
    listeners: BTreeMap<Handle, Listener>,
    /// Pairs of hosts (lower first) between which nothing passes.
    parted: BTreeSet<(HostId, HostId)>,
    /// Ends of connections on which nothing arrives any more, and the silence's place in the record of faults.
    silent: BTreeMap<Handle, usize>,
    down: BTreeSet<HostId>,
    next_port: u16,
    /// All that were requested, in order.
    accepted: Vec<Accepted>,
}

impl Network {
    pub(super) fn new(
        socket_buffer: usize,
        connect_timeout: Duration,
        retransmission_timeout: Duration,
    ) -> Self {
        Network {
            socket_buffer: u32::try_from(socket_buffer).expect("a socket buffer is below 4 GiB"),
            connect_timeout,
            retransmission_timeout,
            endpoints: BTreeMap::new(),
            listeners: BTreeMap::new(),
            parted: BTreeSet::new(),
            silent: BTreeMap::new(),
            down: BTreeSet::new(),
            next_port: FREE_PORT_MIN,
            accepted: Vec::new(),
        }
    }

    // Sockets and their options.

    pub(super) fn socket(
        &mut self,
        schedule: &mut Schedule,
        host: HostId,
        options: &SocketOptions,
    ) -> io::Result<Handle> {
        let mut endpoint = self.endpoint(host);
        apply(options, &mut endpoint.settings, &mut endpoint.user_timeout)?;
        let handle = schedule.new_handle();
        self.endpoints.insert(handle, endpoint);
        Ok(handle)
    }

    fn endpoint(&self, host: HostId) -> Endpoint {
        Endpoint {
            host,
            open: true,
            forgotten: false,
            phase: Phase::Fresh,
            settings: self.settings(),
            user_timeout: None,
            heard_at: 0,
            alive_checked: false,
            local: None,
            remote: None,
            peer: None,
            stream: VecDeque::new(),
            arrived: 0,
            in_flight: VecDeque::new(),
            held_up: 0,
            last_arrival: 0,
            finished: false,
            receive_shut: false,
            unsent: VecDeque::new(),
            send_shut: false,
            finish_sent: false,
            progress_at: 0,
            progress_checked: false,
            error: None,
            failed: false,
            severed: false,
            has_reset: false,
            accepted: None,
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
        }
    }

    fn settings(&self) -> SocketReport {
        SocketReport {
            send_buffer: self.socket_buffer,
            receive_buffer: self.socket_buffer,
            congestion_control: "cubic".to_owned(),
            no_delay: true,
            congestion_window: 10,
            ..SocketReport::default()
        }
    }

    pub(super) fn set_options(
        &mut self,
        schedule: &mut Schedule,
        handle: Handle,
        options: &SocketOptions,
    ) -> io::Result<()> {
        if let Some(listener) = self.listeners.get_mut(&handle) {
            return apply(options, &mut listener.settings, &mut None);
        }
        let endpoint = self
            .endpoints
            .get_mut(&handle)
            .ok_or_else(|| failure(libc::EBADF))?;
        apply(options, &mut endpoint.settings, &mut endpoint.user_timeout)?;
        self.watch_peer(schedule, handle);
        Ok(())
    }

    pub(super) fn report(&self, handle: Handle) -> io::Result<SocketReport> {
        let settings = match self.listeners.get(&handle) {
            Some(listener) => &listener.settings,
            None => &self.open_endpoint(handle)?.settings,
        };
        Ok(settings.clone())
    }

    pub(super) fn has_peer_ended(&self, handle: Handle) -> io::Result<bool> {
        let endpoint = self.open_endpoint(handle)?;
        Ok(endpoint.finished || endpoint.is_over() || endpoint.error.is_some())
    }

    pub(super) fn local_address(&self, handle: Handle) -> io::Result<SocketAddr> {
        if let Some(listener) = self.listeners.get(&handle) {
            return Ok(listener.address);
        }
        let unbound = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0);
        Ok(self.open_endpoint(handle)?.local.unwrap_or(unbound))
    }

    fn open_endpoint(&self, handle: Handle) -> io::Result<&Endpoint> {
        self.endpoints
            .get(&handle)
            .filter(|endpoint| endpoint.open)
            .ok_or_else(|| failure(libc::EBADF))
    }

    fn free_port(&mut self, host: HostId) -> u16 {
        loop {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(FREE_PORT_MIN);
            let listening = self
                .listeners
                .values()
                .any(|listener| listener.host == host && listener.address.port() == port);
            if !listening {
                return port;
            }
        }
    }

    // Listening.

    pub(super) fn listen(
        &mut self,
        schedule: &mut Schedule,
        host: HostId,
        address: SocketAddr,
        options: &SocketOptions,
    ) -> io::Result<(Handle, SocketAddr)> {
        if !address.ip().is_unspecified() && !is_own(host, address.ip()) {
            return Err(failure(libc::EADDRNOTAVAIL));
        }
        let mut settings = self.settings();
        apply(options, &mut settings, &mut None)?;
        let only_v6 = options.only_v6.unwrap_or(false);
        let port = match address.port() {
            0 => self.free_port(host),
            port => port,
        };
        let address = SocketAddr::new(address.ip(), port);
        let taken = self.listeners.values().any(|listener| {
            let (other, other_only_v6) = (listener.address, listener.only_v6);
            listener.host == host
                && !listener.shut
                && (covers(other, other_only_v6, address) || covers(address, only_v6, other))
        });
        if taken {
            return Err(failure(libc::EADDRINUSE));
        }
        let listener = Listener {
            host,
            address,
            settings,
            only_v6,
            backlog: options.backlog.unwrap_or(BACKLOG).max(1) as usize,
            coming: 0,
            queue: VecDeque::new(),
            waiters: VecDeque::new(),
            shut: false,
        };
        let handle = schedule.new_handle();
        self.listeners.insert(handle, listener);
        Ok((handle, address))
    }

    fn listener_at(&self, host: HostId, target: SocketAddr) -> Option<Handle> {
        let matching = |wildcard: bool| {
            self.listeners.iter().find(|(_, listener)| {
                listener.host == host
                    && !listener.shut
                    && listener.address.ip().is_unspecified() == wildcard
                    && covers(listener.address, listener.only_v6, target)
            })
        };
        matching(false)
            .or_else(|| matching(true))
            .map(|(handle, _)| *handle)
    }

    /// The next connection, or nothing yet: `waiter` is woken then.
    pub(super) fn accept(
        &mut self,
        schedule: &mut Schedule,
        listener: Handle,
        waiter: Waiter,
    ) -> Option<io::Result<(Handle, SocketAddr)>> {
        let Some(found) = self.listeners.get_mut(&listener) else {
            return Some(Err(failure(libc::EBADF)));
        };
        if found.shut {
            return Some(Err(failure(libc::EINVAL)));
        }
        if found.queue.is_empty() {
            if !found.waiters.contains(&waiter) {
                found.waiters.push_back(waiter);
            }
            return None;
        }
        found.waiters.retain(|waiting| *waiting != waiter);
        if schedule
            .random
            .chance(schedule.faults.accept_error_probability)
        {
            schedule.inject(FaultKind::AcceptError, (found.host, found.host), Some(0));
            return Some(Err(failure(libc::EMFILE)));
        }
        let accepted = found.queue.pop_front().expect("seen not to be empty");
        let endpoint = self
            .endpoints
            .get_mut(&accepted)
            .expect("a connection in a queue exists");
        endpoint.open = true;
        let peer = endpoint.remote.expect("an accepted connection has a peer");
        Some(Ok((accepted, peer)))
    }

    // Connecting.

    pub(super) fn connect(
        &mut self,
        schedule: &mut Schedule,
        client: Handle,
        address: SocketAddr,
        waiter: Waiter,
    ) -> io::Result<()> {
        let phase = self.open_endpoint(client)?.phase;
        if phase != Phase::Fresh {
            return Err(failure(libc::EISCONN));
        }
        let from = self.endpoints[&client].host;
        let address = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => {
                SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port())
            }
            IpAddr::V6(ip) if ip.is_unspecified() => {
                SocketAddr::new(Ipv6Addr::LOCALHOST.into(), address.port())
            }
            _ => address,
        };
        let Some(to) = host_at(from, address.ip()) else {
            return Err(failure(libc::EHOSTUNREACH));
        };
        let source: IpAddr = match address.ip() {
            ip if ip.is_loopback() => ip,
            IpAddr::V4(_) => address_v4(from).into(),
            IpAddr::V6(_) => address_v6(from).into(),
        };
        let port = self.free_port(from);
        let endpoint = self.endpoints.get_mut(&client).expect("looked up above");
        endpoint.local = Some(SocketAddr::new(source, port));
        endpoint.remote = Some(address);
        endpoint.phase = Phase::Connecting(waiter);
        let delay = schedule.network_delay((from, to));
        schedule.after(delay, Event::Request { client, attempt: 0 });
        let limit = match endpoint.user_timeout {
            Some(user_timeout) => user_timeout.min(self.connect_timeout),
            None => self.connect_timeout,
        };
        schedule.after(nanoseconds(limit), Event::ConnectTimeout(client));
        Ok(())
    }

    /// Returns the result of the attempt; `None` while it goes on.
    pub(super) fn connected(&mut self, client: Handle) -> Option<io::Result<()>> {
        let Some(endpoint) = self.endpoints.get_mut(&client) else {
            return Some(Err(failure(libc::EBADF)));
        };
        match endpoint.phase {
            Phase::Connected => Some(Ok(())),
            Phase::Connecting(_) => None,
            Phase::Fresh | Phase::Failed => {
                let number = endpoint.error.take().unwrap_or(libc::ECONNABORTED);
                Some(Err(failure(number)))
            }
        }
    }

    fn is_connecting(&self, client: Handle) -> bool {
        self.endpoints
            .get(&client)
            .is_some_and(|endpoint| endpoint.open && matches!(endpoint.phase, Phase::Connecting(_)))
    }

    pub(super) fn on_request(&mut self, schedule: &mut Schedule, client: Handle, attempt: u32) {
        if !self.is_connecting(client) {
            return;
        }
        let endpoint = &self.endpoints[&client];
        let target = endpoint.remote.expect("set by connect");
        let source = endpoint.local.expect("set by connect");
        let from = endpoint.host;
        let host = host_at(from, target.ip()).expect("checked by connect");
        if !self.is_open(from, host) {
            return retry_request(schedule, client, attempt);
        }
        let Some(listener) = self.listener_at(host, target) else {
            let delay = schedule.network_delay((from, host));
            return schedule.after(delay, Event::Refused(client));
        };
        let found = self.listeners.get_mut(&listener).expect("just found");
        if found.queue.len() + found.coming >= found.backlog {
            return retry_request(schedule, client, attempt);
        }
        found.coming += 1;
        let mapped = found.address.is_ipv6() && target.is_ipv4();
        let settings = found.settings.clone();
        let mut server = self.endpoint(host);
        server.open = false;
        server.settings = settings;
        server.user_timeout = Some(server.settings.user_timeout).filter(|limit| !limit.is_zero());
        server.phase = Phase::Connected;
        server.local = Some(if mapped { map(target) } else { target });
        server.remote = Some(if mapped { map(source) } else { source });
        server.peer = Some(client);
        server.accepted = Some(self.accepted.len());
        self.accepted.push(Accepted {
            client: source,
            client_host: from,
            server: target,
            from: Duration::from_nanos(schedule.now),
            until: None,
        });
        let handle = schedule.new_handle();
        self.endpoints.insert(handle, server);
        let endpoint = self.endpoints.get_mut(&client).expect("is connecting");
        endpoint.peer = Some(handle);
        let delay = schedule.network_delay((from, host));
        schedule.after(delay, Event::Established(client));
    }

    pub(super) fn on_established(&mut self, schedule: &mut Schedule, client: Handle) {
        let Some(endpoint) = self.endpoints.get(&client) else {
            return;
        };
        let Some(server) = endpoint.peer else {
            return;
        };
        let server_host = self.endpoints[&server].host;
        if !self.is_connecting(client) {
            return self.withdraw(server);
        }
        if !self.is_open(endpoint.host, server_host) {
            return schedule.after(nanoseconds(REQUEST_RETRY), Event::Established(client));
        }
        let endpoint = self.endpoints.get_mut(&client).expect("is connecting");
        let Phase::Connecting(waiter) = endpoint.phase else {
            unreachable!("is connecting")
        };
        endpoint.phase = Phase::Connected;
        schedule.wake(waiter);
        self.watch_peer(schedule, client);
        self.transmit(schedule, server, Segment::Handshake);
    }

    pub(super) fn on_refused(&mut self, schedule: &mut Schedule, client: Handle) {
        self.fail_connecting(schedule, client, libc::ECONNREFUSED);
    }

    pub(super) fn on_connect_timeout(&mut self, schedule: &mut Schedule, client: Handle) {
        self.fail_connecting(schedule, client, libc::ETIMEDOUT);
    }

    fn fail_connecting(&mut self, schedule: &mut Schedule, client: Handle, number: i32) {
        if !self.is_connecting(client) {
            return;
        }
        let endpoint = self.endpoints.get_mut(&client).expect("is connecting");
        let Phase::Connecting(waiter) = endpoint.phase else {
            unreachable!("is connecting")
        };
        endpoint.phase = Phase::Failed;
        endpoint.error = Some(number);
        schedule.wake(waiter);
        if let Some(server) = endpoint.peer {
            self.withdraw(server);
        }
    }

    /// Forgets the server's end of a connection that its client gave up before it was established.
    fn withdraw(&mut self, server: Handle) {
        self.never_held(server);
        let Some(endpoint) = self.endpoints.remove(&server) else {
            return;
        };
        let local = endpoint.local.expect("a server's end has an address");
        if let Some(listener) = self.listener_at(endpoint.host, local) {
            let listener = self.listeners.get_mut(&listener).expect("just found");
            listener.coming = listener.coming.saturating_sub(1);
        }
        let Some(client) = endpoint.peer else { return };
        let client_end = self
            .endpoints
            .get_mut(&client)
            .expect("a client's end stays while its server's does");
        client_end.peer = None;
        if !client_end.open {
            self.endpoints.remove(&client);
        }
    }

    // Paths.

    fn is_open(&self, one: HostId, other: HostId) -> bool {
        let pair = (one.min(other), one.max(other));
        !self.parted.contains(&pair) && !self.down.contains(&one) && !self.down.contains(&other)
    }

    /// Tells whether a segment can reach `to` now. A host that lost its power sends nothing; what it had sent is lost with it.
    fn reaches(&self, to: Handle) -> bool {
        let endpoint = &self.endpoints[&to];
        let from_host = endpoint
            .peer
            .and_then(|peer| self.endpoints.get(&peer))
            .map_or(endpoint.host, |peer| peer.host);
        !self.silent.contains_key(&to) && self.is_open(endpoint.host, from_host)
    }

    pub(super) fn part(&mut self, schedule: &mut Schedule, one: HostId, other: HostId) {
        self.parted.insert((one.min(other), one.max(other)));
        schedule.inject(FaultKind::Partition, (one, other), None);
    }

    pub(super) fn heal(&mut self, schedule: &mut Schedule, one: HostId, other: HostId) {
        self.parted.remove(&(one.min(other), one.max(other)));
        schedule.end_injected(|_, injected| {
            let (from, to) = injected.hosts;
            injected.kind == FaultKind::Partition
                && [(from, to), (to, from)].contains(&(one, other))
        });
        self.resume(schedule);
    }

    pub(super) fn heal_all(&mut self, schedule: &mut Schedule) {
        self.parted.clear();
        schedule.end_injected(|_, injected| injected.kind == FaultKind::Partition);
        self.resume(schedule);
    }

    pub(super) fn host_up(&mut self, schedule: &mut Schedule, host: HostId) {
        self.down.remove(&host);
        schedule.end_injected(|_, injected| {
            injected.kind == FaultKind::Crash && injected.hosts.0 == host
        });
        self.resume(schedule);
    }

    /// Repeats what was held up and can pass now.
    fn resume(&mut self, schedule: &mut Schedule) {
        let waiting: Vec<Handle> = self
            .endpoints
            .iter()
            .filter(|(_, endpoint)| endpoint.held_up > 0)
            .map(|(handle, _)| *handle)
            .collect();
        for to in waiting {
            if !self.reaches(to) {
                continue;
            }
            let repetition = schedule.random.below(nanoseconds(REPETITION_MAX));
            let endpoint = self.endpoints.get_mut(&to).expect("listed above");
            let at = endpoint.last_arrival.max(schedule.now + repetition);
            endpoint.last_arrival = at;
            for _ in 0..std::mem::take(&mut endpoint.held_up) {
                schedule.at(at, Event::Arrive(to));
            }
        }
    }

    /// The host of one end of a connection, and that of the other.
    fn hosts_of(&self, end: Handle) -> (HostId, HostId) {
        let endpoint = &self.endpoints[&end];
        let peer = endpoint.peer.and_then(|peer| self.endpoints.get(&peer));
        (endpoint.host, peer.map_or(endpoint.host, |peer| peer.host))
    }

    // Segments.

    /// Sends a segment to `to`, behind all that is on its way.
    fn transmit(&mut self, schedule: &mut Schedule, to: Handle, segment: Segment) {
        let at = schedule.now + schedule.network_delay(self.hosts_of(to));
        let endpoint = self
            .endpoints
            .get_mut(&to)
            .expect("both ends stay until both are closed");
        endpoint.last_arrival = endpoint.last_arrival.max(at);
        endpoint.in_flight.push_back(segment);
        schedule.at(endpoint.last_arrival, Event::Arrive(to));
    }

    /// Sends what `from` has to send and its peer has room for.
    fn pump(&mut self, schedule: &mut Schedule, from: Handle) {
        let endpoint = &self.endpoints[&from];
        let Some(to) = endpoint.peer else { return };
        if endpoint.is_over() || endpoint.severed || endpoint.phase != Phase::Connected {
            return;
        }
        while let Some(count) = self.next_segment(schedule, from, to) {
            let endpoint = self.endpoints.get_mut(&from).expect("looked up above");
            let mut unsent = std::mem::take(&mut endpoint.unsent);
            let peer = self.endpoints.get_mut(&to).expect("both ends stay");
            let (first, second) = unsent.as_slices();
            let split = count.min(first.len());
            peer.stream.extend(&first[..split]);
            peer.stream.extend(&second[..count - split]);
            unsent.drain(..count);
            let endpoint = self.endpoints.get_mut(&from).expect("looked up above");
            endpoint.unsent = unsent;
            self.transmit(schedule, to, Segment::Data(count));
        }
        let endpoint = self.endpoints.get_mut(&from).expect("looked up above");
        if endpoint.send_shut && endpoint.unsent.is_empty() && !endpoint.finish_sent {
            endpoint.finish_sent = true;
            self.transmit(schedule, to, Segment::Finish);
        }
        self.watch_progress(schedule, from);
        self.wake_senders(schedule, from);
    }

    fn next_segment(&self, schedule: &mut Schedule, from: Handle, to: Handle) -> Option<usize> {
        /// Payload of an Ethernet frame.
        const ORDINARY: usize = 1448;
        const TINY: usize = 8;
        let peer = &self.endpoints[&to];
        let window = (peer.settings.receive_buffer as usize).saturating_sub(peer.stream.len());
        let most = window
            .min(self.endpoints[&from].unsent.len())
            .min(schedule.faults.segment_bytes_max.max(1));
        if most == 0 {
            return None;
        }
        let shape = schedule.random.below(8);
        let most = match shape {
            0 => most.min(TINY),
            1 | 2 => most.min(ORDINARY),
            _ => return Some(most),
        };
        Some(1 + schedule.random.below(most as u64) as usize)
    }

    pub(super) fn on_arrive(&mut self, schedule: &mut Schedule, to: Handle) {
        if !self.endpoints.contains_key(&to) {
            return;
        }
        if !self.reaches(to) {
            return self.hold_up(to);
        }
        let endpoint = self.endpoints.get_mut(&to).expect("seen above");
        let Some(segment) = endpoint.in_flight.pop_front() else {
            return;
        };
        let (peer, severed) = (endpoint.peer, endpoint.severed);
        if !severed
            && segment != Segment::Handshake
            && schedule.random.chance(schedule.faults.cut_probability)
            && let Some(peer) = peer
        {
            return self.cut_ends(schedule, to, peer);
        }
        endpoint.heard_at = schedule.now;
        let bytes = match segment {
            Segment::Data(count) => count as u64,
            _ => 0,
        };
        endpoint.settings.bytes_received += bytes;
        self.take_segment(schedule, to, segment);
        if let Some(peer) = peer {
            if let Some(sender) = self.endpoints.get_mut(&peer) {
                sender.progress_at = schedule.now;
                sender.settings.bytes_acknowledged += bytes;
            }
            self.reap(to, peer);
        }
    }

    /// A segment finds no path: it will be repeated, unless its sender has forgotten the connection.
    fn hold_up(&mut self, to: Handle) {
        let endpoint = self.endpoints.get_mut(&to).expect("seen by on_arrive");
        let sender = endpoint.peer;
        endpoint.held_up += 1;
        let Some(sender) = sender.and_then(|sender| self.endpoints.get_mut(&sender)) else {
            return;
        };
        if sender.has_reset {
            // Whatever the other end says later is answered anew.
            (sender.failed, sender.forgotten) = (false, true);
            let endpoint = self.endpoints.get_mut(&to).expect("seen by on_arrive");
            endpoint.lose_in_flight();
        }
    }

    fn take_segment(&mut self, schedule: &mut Schedule, to: Handle, segment: Segment) {
        let endpoint = self.endpoints.get_mut(&to).expect("seen by on_arrive");
        if segment == Segment::Handshake {
            return self.enqueue(schedule, to);
        }
        if endpoint.failed {
            return;
        }
        let unwanted = endpoint.forgotten || (!endpoint.open && !self.is_queued(to));
        let endpoint = self.endpoints.get_mut(&to).expect("seen by on_arrive");
        match segment {
            Segment::Handshake => unreachable!("taken above"),
            Segment::Data(_) if unwanted => self.refuse_data(schedule, to),
            Segment::Finish if endpoint.forgotten => self.refuse_data(schedule, to),
            Segment::Data(count) => {
                endpoint.arrived += count;
                wake_all(schedule, &endpoint.receivers);
            }
            Segment::Finish => {
                endpoint.finished = true;
                wake_all(schedule, &endpoint.receivers);
            }
            Segment::Reset => self.fail(schedule, to, libc::ECONNRESET),
        }
    }

    fn is_queued(&self, server: Handle) -> bool {
        self.listeners
            .values()
            .any(|listener| listener.queue.contains(&server))
    }

    /// A connection is established at the server's end.
    fn enqueue(&mut self, schedule: &mut Schedule, server: Handle) {
        self.watch_peer(schedule, server);
        let endpoint = &self.endpoints[&server];
        let local = endpoint.local.expect("a server's end has an address");
        let listener = match endpoint.forgotten {
            true => None,
            false => self.listener_at(endpoint.host, local),
        };
        match listener {
            Some(listener) => {
                let listener = self.listeners.get_mut(&listener).expect("just found");
                listener.coming = listener.coming.saturating_sub(1);
                listener.queue.push_back(server);
                wake_all(schedule, &listener.waiters);
            }
            None => self.refuse_data(schedule, server),
        }
    }

    /// Answers a segment that nobody wants with a reset.
    fn refuse_data(&mut self, schedule: &mut Schedule, at: Handle) {
        let endpoint = self.endpoints.get_mut(&at).expect("seen by the caller");
        endpoint.failed = true;
        endpoint.has_reset = true;
        endpoint.unsent.clear();
        let Some(peer) = endpoint.peer else { return };
        let held_up = self.endpoints[&peer].held_up > 0;
        self.transmit(schedule, peer, Segment::Reset);
        if held_up {
            self.hold_up(peer);
        }
    }

    fn fail(&mut self, schedule: &mut Schedule, at: Handle, number: i32) {
        let endpoint = self.endpoints.get_mut(&at).expect("seen by the caller");
        if endpoint.failed {
            return;
        }
        endpoint.failed = true;
        endpoint.error = Some(number);
        endpoint.unsent.clear();
        wake_all(schedule, &endpoint.receivers);
        wake_all(schedule, &endpoint.senders);
    }

    // Unacknowledged data.

    fn watch_progress(&mut self, schedule: &mut Schedule, from: Handle) {
        let limit = self.progress_limit(from);
        let waiting = self.is_unacknowledged(from);
        let endpoint = self.endpoints.get_mut(&from).expect("looked up by pump");
        if waiting && !endpoint.progress_checked {
            endpoint.progress_checked = true;
            endpoint.progress_at = schedule.now;
            schedule.after(nanoseconds(limit), Event::CheckProgress(from));
        }
    }

    fn progress_limit(&self, from: Handle) -> Duration {
        self.endpoints[&from]
            .user_timeout
            .unwrap_or(self.retransmission_timeout)
    }

    /// Tells whether `from` waits for its peer to take data. A peer that is alive may keep its window closed for as long as it
    /// likes, unless TCP_USER_TIMEOUT says otherwise.
    fn is_unacknowledged(&self, from: Handle) -> bool {
        let endpoint = &self.endpoints[&from];
        let Some(peer) = endpoint.peer.and_then(|peer| self.endpoints.get(&peer)) else {
            return false;
        };
        let closed_window = endpoint.user_timeout.is_some() && !endpoint.unsent.is_empty();
        !endpoint.failed && (!peer.in_flight.is_empty() || closed_window)
    }

    pub(super) fn on_check_progress(&mut self, schedule: &mut Schedule, from: Handle) {
        if !self.endpoints.contains_key(&from) {
            return;
        }
        let (limit, waiting) = (self.progress_limit(from), self.is_unacknowledged(from));
        let endpoint = self.endpoints.get_mut(&from).expect("seen above");
        let deadline = endpoint.progress_at.saturating_add(nanoseconds(limit));
        if !waiting {
            endpoint.progress_checked = false;
        } else if deadline > schedule.now {
            schedule.at(deadline, Event::CheckProgress(from));
        } else {
            self.fail(schedule, from, libc::ETIMEDOUT);
            let peer = self.endpoints[&from].peer;
            if let Some(peer) = peer {
                self.transmit(schedule, peer, Segment::Reset);
            }
        }
    }

    // SO_KEEPALIVE.

    /// Begins to look now and then whether the peer is alive, where that is wanted.
    fn watch_peer(&mut self, schedule: &mut Schedule, of: Handle) {
        let endpoint = self.endpoints.get_mut(&of).expect("seen by the caller");
        let idle = endpoint.settings.keep_alive;
        if endpoint.phase != Phase::Connected || idle.is_zero() || endpoint.alive_checked {
            return;
        }
        endpoint.alive_checked = true;
        endpoint.heard_at = schedule.now;
        schedule.after(nanoseconds(idle), Event::CheckAlive(of));
    }

    /// A peer that is alive answers a probe at once; one that is not has as long again to come back.
    pub(super) fn on_check_alive(&mut self, schedule: &mut Schedule, of: Handle) {
        let Some(endpoint) = self.endpoints.get(&of) else {
            return;
        };
        let idle = nanoseconds(endpoint.settings.keep_alive);
        if idle == 0 || !endpoint.open && !self.is_queued(of) || endpoint.is_over() {
            let endpoint = self.endpoints.get_mut(&of).expect("seen above");
            endpoint.alive_checked = false;
            return;
        }
        let (peer, heard_at) = (endpoint.peer, endpoint.heard_at);
        let probed_at = heard_at.saturating_add(idle);
        if probed_at > schedule.now {
            return schedule.at(probed_at, Event::CheckAlive(of));
        }
        let answers = |peer: &Handle| self.reaches(*peer) && self.reaches(of);
        match peer.filter(answers) {
            Some(peer) if self.endpoints[&peer].forgotten => {
                self.fail(schedule, of, libc::ECONNRESET);
            }
            Some(_) => {
                let endpoint = self.endpoints.get_mut(&of).expect("seen above");
                endpoint.heard_at = schedule.now;
                schedule.after(idle, Event::CheckAlive(of));
            }
            None if probed_at.saturating_add(idle) > schedule.now => {
                schedule.after(idle, Event::CheckAlive(of));
            }
            None => self.fail(schedule, of, libc::ETIMEDOUT),
        }
    }

    // Receiving and sending.

    /// Receives for `waiter`; with nothing there, wakes it when that changes.
    pub(super) fn readable(&mut self, of: Handle, waiter: Waiter) -> io::Result<Readable> {
        let endpoint = self
            .endpoints
            .get_mut(&of)
            .filter(|endpoint| endpoint.open)
            .ok_or_else(|| failure(libc::EBADF))?;
        if endpoint.phase != Phase::Connected {
            return Err(failure(libc::ENOTCONN));
        }
        if endpoint
            .receivers
            .front()
            .is_some_and(|first| *first != waiter)
        {
            wait_in(&mut endpoint.receivers, waiter);
            return Ok(Readable::Nothing);
        }
        if endpoint.arrived > 0 {
            return Ok(Readable::Bytes(endpoint.arrived));
        }
        if let Some(number) = endpoint.error.take() {
            return Err(failure(number));
        }
        if endpoint.finished || endpoint.receive_shut || endpoint.is_over() {
            return Ok(Readable::End);
        }
        wait_in(&mut endpoint.receivers, waiter);
        Ok(Readable::Nothing)
    }

    /// Takes bytes that arrived; as many as `target` has room for.
    pub(super) fn take(&mut self, schedule: &mut Schedule, of: Handle, target: &mut [u8]) -> usize {
        let endpoint = self.endpoints.get_mut(&of).expect("seen to be readable");
        let count = endpoint.arrived.min(target.len());
        let (first, second) = endpoint.stream.as_slices();
        let split = count.min(first.len());
        target[..split].copy_from_slice(&first[..split]);
        target[split..count].copy_from_slice(&second[..count - split]);
        endpoint.stream.drain(..count);
        endpoint.arrived -= count;
        if let Some(peer) = endpoint.peer
            && self.endpoints.contains_key(&peer)
        {
            self.pump(schedule, peer);
        }
        count
    }

    /// Buffers bytes to be sent; how many of `parts`, from byte `from` on. Where that is not all, `waiter` is woken when
    /// there is room.
    pub(super) fn send<'a>(
        &mut self,
        schedule: &mut Schedule,
        of: Handle,
        waiter: Waiter,
        parts: impl Iterator<Item = &'a [u8]>,
        from: usize,
    ) -> io::Result<usize> {
        let endpoint = self
            .endpoints
            .get_mut(&of)
            .filter(|endpoint| endpoint.open)
            .ok_or_else(|| failure(libc::EBADF))?;
        if endpoint.phase != Phase::Connected {
            return Err(failure(libc::ENOTCONN));
        }
        if let Some(number) = endpoint.error.take() {
            return Err(failure(number));
        }
        if endpoint.is_over() || endpoint.send_shut {
            return Err(failure(libc::EPIPE));
        }
        if endpoint
            .senders
            .front()
            .is_some_and(|first| *first != waiter)
        {
            wait_in(&mut endpoint.senders, waiter);
            return Ok(0);
        }
        let room = (endpoint.settings.send_buffer as usize).saturating_sub(endpoint.unsent.len());
        let mut skip = from;
        let mut taken = 0;
        for part in parts {
            let skipped = skip.min(part.len());
            skip -= skipped;
            let part = &part[skipped..];
            let count = part.len().min(room - taken);
            endpoint.unsent.extend(&part[..count]);
            taken += count;
        }
        wait_in(&mut endpoint.senders, waiter);
        self.pump(schedule, of);
        Ok(taken)
    }

    fn wake_senders(&self, schedule: &mut Schedule, of: Handle) {
        let endpoint = &self.endpoints[&of];
        if endpoint.unsent.len() < endpoint.settings.send_buffer as usize {
            wake_all(schedule, &endpoint.senders);
        }
    }

    /// An operation on `of` is over: it waits no more.
    pub(super) fn forget_waiter(&mut self, schedule: &mut Schedule, of: Handle, waiter: Waiter) {
        if let Some(listener) = self.listeners.get_mut(&of) {
            listener.waiters.retain(|waiting| *waiting != waiter);
        }
        if let Some(endpoint) = self.endpoints.get_mut(&of) {
            endpoint.receivers.retain(|waiting| *waiting != waiter);
            endpoint.senders.retain(|waiting| *waiting != waiter);
            wake_all(schedule, &endpoint.receivers);
            wake_all(schedule, &endpoint.senders);
            if endpoint.phase == Phase::Connecting(waiter) {
                endpoint.phase = Phase::Failed;
            }
        }
    }

    // Ending.

    pub(super) fn shutdown(&mut self, schedule: &mut Schedule, of: Handle, how: Shutdown) {
        if let Some(listener) = self.listeners.get_mut(&of) {
            listener.shut = true;
            wake_all(schedule, &listener.waiters);
            return;
        }
        let Some(endpoint) = self.endpoints.get_mut(&of) else {
            return;
        };
        if endpoint.phase != Phase::Connected {
            return;
        }
        if how != Shutdown::Write {
            endpoint.receive_shut = true;
            wake_all(schedule, &endpoint.receivers);
        }
        if how != Shutdown::Read {
            endpoint.send_shut = true;
            wake_all(schedule, &endpoint.senders);
            self.pump(schedule, of);
        }
    }

    /// Resets a connection now: what it has to send is dropped, and what waits for it fails.
    pub(super) fn abort(&mut self, schedule: &mut Schedule, of: Handle) {
        let Some(endpoint) = self.endpoints.get_mut(&of) else {
            return;
        };
        if endpoint.phase == Phase::Connected && !endpoint.failed && !endpoint.has_reset {
            endpoint.error = Some(libc::ECONNRESET);
            wake_all(schedule, &endpoint.receivers);
            wake_all(schedule, &endpoint.senders);
            self.refuse_data(schedule, of);
        }
    }

    /// Returns whether there was such a socket or listener.
    pub(super) fn close(&mut self, schedule: &mut Schedule, handle: Handle) -> bool {
        if let Some(listener) = self.listeners.remove(&handle) {
            for waiting in listener.queue {
                self.refuse_data(schedule, waiting);
            }
            return true;
        }
        let Some(endpoint) = self.endpoints.get_mut(&handle) else {
            return false;
        };
        if !std::mem::replace(&mut endpoint.open, false) {
            return false;
        }
        self.end_silence(schedule, handle);
        self.end_accepted(schedule, handle);
        let endpoint = self.endpoints.get_mut(&handle).expect("looked up above");
        let Some(peer) = endpoint.peer else {
            self.endpoints.remove(&handle);
            return true;
        };
        match endpoint.phase {
            Phase::Connected if endpoint.arrived > 0 && !endpoint.is_over() => {
                self.refuse_data(schedule, handle);
            }
            Phase::Connected => {
                endpoint.send_shut = true;
                self.pump(schedule, handle);
            }
            Phase::Fresh | Phase::Connecting(_) | Phase::Failed => {}
        }
        self.reap(handle, peer);
        true
    }

    /// Forgets a connection of which nobody can see anything any more.
    fn reap(&mut self, one: Handle, other: Handle) {
        let is_over = |handle: Handle| {
            self.endpoints.get(&handle).is_none_or(|endpoint| {
                let quiet = endpoint.in_flight.is_empty() && endpoint.unsent.is_empty();
                let ended = endpoint.failed || endpoint.forgotten || endpoint.finish_sent;
                !endpoint.open && (quiet || endpoint.failed) && ended
            })
        };
        if is_over(one) && is_over(other) && !self.is_queued(one) && !self.is_queued(other) {
            for handle in [one, other] {
                self.never_held(handle);
                self.endpoints.remove(&handle);
                self.silent.remove(&handle);
            }
        }
    }

    // Faults.

    pub(super) fn connections(&self) -> Vec<Connection> {
        let of_client = |(handle, endpoint): (&Handle, &Endpoint)| {
            let peer = endpoint.peer.filter(|peer| handle < peer)?;
            let server = self.endpoints.get(&peer)?;
            (endpoint.phase == Phase::Connected && !endpoint.failed && !server.failed).then_some(
                Connection {
                    client: endpoint.local?,
                    client_host: endpoint.host,
                    server: endpoint.remote?,
                    server_host: server.host,
                    ends: (*handle, peer),
                },
            )
        };
        self.endpoints.iter().filter_map(of_client).collect()
    }

    pub(super) fn cut(&mut self, schedule: &mut Schedule, connection: &Connection) {
        self.cut_ends(schedule, connection.ends.0, connection.ends.1);
    }

    /// Both ends see a reset, each at a time of its own; what was on its way is lost.
    fn cut_ends(&mut self, schedule: &mut Schedule, one: Handle, other: Handle) {
        schedule.record(Step::Control("cut", one.0.into(), other.0.into()));
        let mut known_at = None;
        for end in [one, other] {
            let Some(endpoint) = self.endpoints.get_mut(&end) else {
                continue;
            };
            let kept_handshake = endpoint.in_flight.front() == Some(&Segment::Handshake);
            endpoint.in_flight.clear();
            if kept_handshake {
                endpoint.in_flight.push_back(Segment::Handshake);
            }
            endpoint.unsent.clear();
            endpoint.severed = true;
            endpoint.stream.truncate(endpoint.arrived);
            self.transmit(schedule, end, Segment::Reset);
            known_at = known_at.max(Some(self.endpoints[&end].last_arrival));
        }
        if let Some(known_at) = known_at {
            let duration = known_at.saturating_sub(schedule.now);
            schedule.inject(FaultKind::Cut, self.hosts_of(one), Some(duration));
        }
    }

    /// From now on nothing arrives at either end, and neither is told.
    pub(super) fn silence(&mut self, schedule: &mut Schedule, connection: &Connection) {
        let (one, other) = connection.ends;
        schedule.record(Step::Control("silence", one.0.into(), other.0.into()));
        let hosts = (connection.client_host, connection.server_host);
        let place = schedule.inject(FaultKind::Silence, hosts, None);
        self.silent.extend([(one, place), (other, place)]);
        self.end_silence(schedule, one);
    }

    /// Records that no program holds an accepted connection any more.
    fn end_accepted(&mut self, schedule: &Schedule, end: Handle) {
        let endpoint = self.endpoints.get(&end);
        if let Some(place) = endpoint.and_then(|endpoint| endpoint.accepted) {
            let now = Duration::from_nanos(schedule.now);
            self.accepted[place].until.get_or_insert(now);
        }
    }

    /// Records that no program will hold an accepted connection that none has held so far.
    fn never_held(&mut self, end: Handle) {
        let endpoint = self.endpoints.get(&end);
        if let Some(place) = endpoint.and_then(|endpoint| endpoint.accepted) {
            let accepted = &mut self.accepted[place];
            accepted.until.get_or_insert(accepted.from);
        }
    }

    /// The life of each accepted connection.
    pub(super) fn accepted(&self) -> Vec<Accepted> {
        self.accepted.clone()
    }

    /// Records the end of a silence, where no program holds either end of the connection any more.
    fn end_silence(&self, schedule: &mut Schedule, end: Handle) {
        let Some(silence) = self.silent.get(&end) else {
            return;
        };
        let is_open = |end: &Handle| {
            let endpoint = self.endpoints.get(end);
            endpoint.is_some_and(|endpoint| endpoint.open)
        };
        let of_this = self.silent.iter().filter(|(_, other)| *other == silence);
        if !of_this.map(|(end, _)| end).any(is_open) {
            schedule.end_injected(|place, _| place == *silence);
        }
    }

    /// The host's kernel closes what its killed processes held.
    pub(super) fn kill(&mut self, schedule: &mut Schedule, host: HostId) -> Vec<Handle> {
        let handles = self.open_handles(host);
        for handle in &handles {
            self.close(schedule, *handle);
        }
        handles
    }

    /// The host is gone without a word.
    pub(super) fn lose_power(&mut self, schedule: &mut Schedule, host: HostId) -> Vec<Handle> {
        let handles = self.open_handles(host);
        self.down.insert(host);
        self.listeners.retain(|_, listener| listener.host != host);
        for endpoint in self.endpoints.values_mut() {
            if endpoint.host == host {
                endpoint.open = false;
                endpoint.forgotten = true;
                endpoint.failed = false;
                endpoint.unsent.clear();
                endpoint.receivers.clear();
                endpoint.senders.clear();
                if let Phase::Connecting(_) = endpoint.phase {
                    endpoint.phase = Phase::Failed;
                }
            }
        }
        let ends = handles
            .iter()
            .filter(|end| self.endpoints.contains_key(end));
        for end in ends {
            self.end_silence(schedule, *end);
        }
        for end in &handles {
            self.end_accepted(schedule, *end);
        }
        self.lose_in_flight_from(host);
        handles
    }

    /// Drops what `host` had sent and its peers had not received: nobody repeats it.
    fn lose_in_flight_from(&mut self, host: HostId) {
        let ends: Vec<_> = self.endpoints.iter().collect();
        let from_host = |end: &Endpoint| {
            let peer = end.peer.and_then(|peer| self.endpoints.get(&peer));
            peer.is_some_and(|peer| peer.host == host)
        };
        let peers: Vec<Handle> = ends
            .into_iter()
            .filter(|(_, end)| end.host != host && from_host(end))
            .map(|(handle, _)| *handle)
            .collect();
        for peer in peers {
            let endpoint = self.endpoints.get_mut(&peer).expect("listed above");
            let unborn = endpoint.in_flight.front() == Some(&Segment::Handshake);
            endpoint.lose_in_flight();
            if unborn {
                self.withdraw(peer);
            }
        }
    }

    fn open_handles(&self, host: HostId) -> Vec<Handle> {
        let listeners = self
            .listeners
            .iter()
            .filter(|(_, listener)| listener.host == host)
            .map(|(handle, _)| *handle);
        let endpoints = self
            .endpoints
            .iter()
            .filter(|(_, endpoint)| endpoint.host == host && endpoint.open)
            .map(|(handle, _)| *handle);
        listeners.chain(endpoints).collect()
    }
}

fn retry_request(schedule: &mut Schedule, client: Handle, attempt: u32) {
    let wait = REQUEST_RETRY * (1 << attempt.min(REQUEST_DOUBLINGS_MAX));
    let next = Event::Request {
        client,
        attempt: attempt + 1,
    };
    schedule.after(nanoseconds(wait), next);
}

fn wait_in(queue: &mut VecDeque<Waiter>, waiter: Waiter) {
    if !queue.contains(&waiter) {
        queue.push_back(waiter);
    }
}

fn wake_all(schedule: &mut Schedule, waiters: &VecDeque<Waiter>) {
    waiters.iter().for_each(|waiter| schedule.wake(*waiter));
}

/// Which host has `ip`, seen from `from`.
fn host_at(from: HostId, ip: IpAddr) -> Option<HostId> {
    if ip.is_loopback() {
        return Some(from);
    }
    let number = match ip {
        IpAddr::V4(ip) => match ip.octets() {
            [10, 0, high, low] => u16::from_be_bytes([high, low]),
            _ => return None,
        },
        IpAddr::V6(ip) => match ip.segments() {
            [0xfd00, 0, 0, 0, 0, 0, 0, number] => number,
            _ => return None,
        },
    };
    (number > 0).then(|| HostId(usize::from(number) - 1))
}

/// Tells whether a listener at `listening` takes connections to `target`.
fn covers(listening: SocketAddr, only_v6: bool, target: SocketAddr) -> bool {
    let target_ip = target.ip().to_canonical();
    let ip_matches = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => target_ip.is_ipv4(),
        IpAddr::V6(ip) if ip.is_unspecified() => target_ip.is_ipv6() || !only_v6,
        ip => ip == target_ip,
    };
    listening.port() == target.port() && ip_matches
}

fn map(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

fn apply(
    options: &SocketOptions,
    settings: &mut SocketReport,
    user_timeout: &mut Option<Duration>,
) -> io::Result<()> {
    /// The values that a Linux kernel offers as a rule.
    const CONGESTION_CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];
    const DSCP_MAX: u8 = 63;
    if options.dscp.is_some_and(|dscp| dscp > DSCP_MAX) {
        return Err(failure(libc::EINVAL));
    }
    if let Some(name) = &options.congestion_control {
        if !CONGESTION_CONTROLS.contains(&name.as_str()) {
            return Err(failure(libc::ENOENT));
        }
        settings.congestion_control.clone_from(name);
    }
    let doubled = |bytes: u32| bytes.saturating_mul(2).max(BUFFER_MIN);
    if let Some(bytes) = options.send_buffer {
        settings.send_buffer = doubled(bytes);
    }
    if let Some(bytes) = options.receive_buffer {
        settings.receive_buffer = doubled(bytes);
    }
    settings.dscp = options.dscp.unwrap_or(settings.dscp);
    settings.priority = options.priority.unwrap_or(settings.priority);
    if let Some(limit) = options.user_timeout {
        settings.user_timeout = limit;
        *user_timeout = Some(limit).filter(|limit| !limit.is_zero());
    }
    settings.keep_alive = options.keep_alive.unwrap_or(settings.keep_alive);
    Ok(())
}
