//! Who is let in: how many connections there may be, and how many of them that have not said yet what they are for.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::hub::Common;
use crate::limits::Limits;

/// Share of all connections that those of one source may have that are half open or wait, and that all may have that wait to be
/// served: one in so many. So there is room for others whatever one source does, and for hosts that come back.
const NEWCOMERS_SHARE: u32 = 4;
/// Share of the half-open connections that is kept for sources that have only few: one in so many.
const KEPT_SHARE: u32 = 4;
/// Share of what is kept that is few: one in so many. A host opens all its connections before it establishes the first, so these
/// must be more than one or two.
const FEW_SHARE: u32 = 2;

/// Where a connection comes from: an IPv4 address, or an IPv6 network of 64 bits, all of which one host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Source(IpAddr);

impl Source {
    pub(crate) fn of(peer: SocketAddr) -> Self {
        const HOST_BITS: u32 = 64;
        Source(match peer.ip().to_canonical() {
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> HOST_BITS << HOST_BITS).into(),
            ip => ip,
        })
    }
}

/// Connections of one source that are not established yet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Newcomers {
    pub(crate) half_open: u32,
    pub(crate) waiting: u32,
}

/// Connections that are not established yet.
#[derive(Debug, Default)]
struct Arrivals {
    all: Newcomers,
    by_source: HashMap<Source, Newcomers>,
}

impl Arrivals {
    fn of(&self, source: Source) -> Newcomers {
        self.by_source.get(&source).copied().unwrap_or_default()
    }

    fn change(&mut self, source: Source, change: impl Fn(&mut Newcomers)) {
        change(&mut self.all);
        let of_source = self.by_source.entry(source).or_default();
        change(of_source);
        if of_source.half_open == 0 && of_source.waiting == 0 {
            self.by_source.remove(&source);
        }
    }

    /// Whether one more of this source may be half open. The last places are for sources that have few: two that take all
    /// that one may have do not keep a third out.
    fn may_serve(&self, source: Source, limits: &Limits) -> bool {
        let of_source = self.of(source).half_open;
        let kept = limits.max_half_open / KEPT_SHARE;
        let has_few = of_source < (kept / FEW_SHARE).max(1);
        let places = match has_few {
            true => limits.max_half_open,
            false => limits.max_half_open - kept,
        };
        self.all.half_open < places && of_source < limits.max_half_open_per_address
    }
}

/// What becomes of a connection that was accepted.
pub(crate) enum Arrival {
    Serve,
    Wait,
    /// There are as many connections as there may be.
    Full,
    /// As many wait as may.
    RefuseAny,
    /// Its source has as many that are not established yet as it may have.
    RefuseSource,
}

/// The count of all connections of a front end, on every reactor.
#[derive(Debug)]
pub(crate) struct Admission {
    /// Counts of all front ends on the same hubs: the limit of connections is theirs.
    common: Arc<Common>,
    connections: AtomicU32,
    arrivals: Mutex<Arrivals>,
}

impl Admission {
    pub(crate) fn new(common: Arc<Common>) -> Self {
        Admission {
            common,
            connections: AtomicU32::new(0),
            arrivals: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arrivals> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections now, those that wait included.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Connections that are not established yet.
    pub(crate) fn newcomers(&self) -> Newcomers {
        self.lock().all
    }

    /// Counts a connection that was accepted, and says what becomes of it. All reactors count under one lock: else each of
    /// them could have the last half-open place.
    pub(crate) fn arrive(&self, source: Source, limits: &Limits) -> Arrival {
        let mut arrivals = self.lock();
        if self.common.connections.load(Ordering::Relaxed) >= limits.max_connections {
            return Arrival::Full;
        }
        let newcomers_max = (limits.max_connections / NEWCOMERS_SHARE).max(1);
        let of_source = arrivals.of(source);
        // Who comes later is not served before those of its source that wait.
        let is_first = of_source.waiting == 0;
        if of_source.half_open + of_source.waiting >= newcomers_max {
            return Arrival::RefuseSource;
        }
        let is_served = is_first && arrivals.may_serve(source, limits);
        if !is_served && arrivals.all.waiting >= newcomers_max {
            return Arrival::RefuseAny;
        }
        // Another front end may have taken the last place meanwhile.
        if !self.enter(limits.max_connections) {
            return Arrival::Full;
        }
        if is_served {
            arrivals.change(source, |newcomers| newcomers.half_open += 1);
            return Arrival::Serve;
        }
        arrivals.change(source, |newcomers| newcomers.waiting += 1);
        Arrival::Wait
    }

    /// Counts one more connection, unless all front ends together have `most`.
    fn enter(&self, most: u32) -> bool {
        let one_more = |all| (all < most).then_some(all + 1);
        let all = &self.common.connections;
        let entered = all.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        if entered.is_ok() {
            self.connections.fetch_add(1, Ordering::Relaxed);
        }
        entered.is_ok()
    }

    /// Takes those out of `waiting` that may be served now; they are counted as half open.
    pub(crate) fn call_in<T>(
        &self,
        waiting: &mut VecDeque<T>,
        source_of: impl Fn(&T) -> Source,
        limits: &Limits,
    ) -> Vec<T> {
        // Once for all: many may wait, on every reactor.
        let mut arrivals = self.lock();
        let mut called = Vec::new();
        if arrivals.all.half_open >= limits.max_half_open {
            return called;
        }
        let mut left = VecDeque::with_capacity(waiting.len());
        for one in waiting.drain(..) {
            let source = source_of(&one);
            if arrivals.may_serve(source, limits) {
                arrivals.change(source, |newcomers| {
                    newcomers.waiting -= 1;
                    newcomers.half_open += 1;
                });
                called.push(one);
            } else {
                left.push_back(one);
            }
        }
        *waiting = left;
        called
    }

    /// A connection that was accepted waits no longer, and is closed.
    pub(crate) fn waits_no_longer(&self, source: Source) {
        self.lock()
            .change(source, |newcomers| newcomers.waiting -= 1);
        self.connection_ended();
    }

    /// A connection is established, or ended before it was.
    pub(crate) fn half_open_ended(&self, source: Source) {
        self.lock()
            .change(source, |newcomers| newcomers.half_open -= 1);
    }

    /// A connection is gone.
    pub(crate) fn connection_ended(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.common.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reactors_that_accept_at_once_have_no_connection_too_many() {
        const MOST: u32 = 2;
        const REACTORS: u8 = 4;
        let limits = Limits {
            max_connections: MOST,
            ..Limits::default()
        };
        // Two front ends have the places together.
        let common = Arc::<Common>::default();
        let both = [(); 2].map(|()| Admission::new(Arc::clone(&common)));
        std::thread::scope(|scope| {
            for number in 0..REACTORS {
                let (admission, limits) = (&both[usize::from(number % 2)], &limits);
                let common = &common;
                scope.spawn(move || {
                    let source = Source(IpAddr::from([192, 0, 2, number]));
                    for _ in 0..100_000 {
                        if let Arrival::Serve = admission.arrive(source, limits) {
                            let now = common.connections.load(Ordering::Relaxed);
                            admission.half_open_ended(source);
                            admission.connection_ended();
                            assert!(now <= MOST, "{now} connections");
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn a_source_is_an_ipv4_address_however_it_is_written_or_an_ipv6_network() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.1:1"), of("192.0.2.1:2"));
        assert_eq!(of("192.0.2.1:1"), of("[::ffff:192.0.2.1]:1"));
        assert_ne!(of("192.0.2.1:1"), of("192.0.2.2:1"));
        assert_eq!(of("[2001:db8::1]:1"), of("[2001:db8::ffff:0:0:1]:1"));
        assert_ne!(of("[2001:db8::1]:1"), of("[2001:db8:0:1::1]:1"));
    }
}
