//! Two front ends of different protocols, which keep nothing but books.

use std::sync::{Mutex, MutexGuard};

use super::*;
use crate::state::{InitiatorName, ListenerKind};

/// A front end that notes what it is asked. Kinds of listener stand for protocols.
struct Fake {
    kind: ListenerKind,
    revision: Mutex<u64>,
    listening: Mutex<Vec<SocketAddr>>,
    revoked: Mutex<Vec<RevokedReport>>,
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().expect("no test panics with it")
}

fn ready<'a, T: Send + 'a>(answer: T) -> Answer<'a, T> {
    Box::pin(std::future::ready(answer))
}

impl FrontEnd for Arc<Fake> {
    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Nvme { kind: self.kind }
    }

    fn apply<'a>(&'a self, served: &'a Served) -> Answer<'a, Result<(), FrontError>> {
        *lock(&self.revision) = served.state.revision;
        ready(Ok(()))
    }

    fn revoked(&self) -> Answer<'_, Vec<RevokedReport>> {
        ready(lock(&self.revoked).clone())
    }

    fn listen(&self, at: ListenAt<Protocol>) -> Answer<'_, Result<SocketAddr, FrontError>> {
        lock(&self.listening).push(at.address);
        ready(Ok(at.address))
    }

    fn set_options(&self, _: SocketAddr, _: SocketOptions) -> Answer<'_, Result<(), FrontError>> {
        ready(Ok(()))
    }

    fn stop_listening(&self, address: SocketAddr) -> Answer<'_, Result<(), FrontError>> {
        lock(&self.listening).retain(|one| *one != address);
        ready(Ok(()))
    }

    fn connections(&self) -> Answer<'_, Vec<ConnectionReport>> {
        ready(Vec::new())
    }

    fn disconnect(&self, id: u64) -> Answer<'_, Result<(), FrontError>> {
        ready(Err(FrontError::NoConnection { id }))
    }

    fn export_latencies(&self, _: Option<ExportName>) -> Answer<'_, BTreeMap<ExportName, Latency>> {
        ready(BTreeMap::new())
    }

    fn connection_latencies(&self, _: Option<u64>) -> Answer<'_, BTreeMap<u64, Latency>> {
        ready(BTreeMap::new())
    }

    fn volume_latencies<'a>(&'a self, volumes: &'a [Arc<dyn Volume>]) -> Answer<'a, Vec<Latency>> {
        ready(vec![Latency::default(); volumes.len()])
    }

    fn counts(&self) -> Answer<'_, Counts> {
        unreachable!("no test asks")
    }

    fn shutdown(&self, _: Duration) -> Answer<'_, ()> {
        lock(&self.listening).clear();
        ready(())
    }
}

const KINDS: [ListenerKind; 2] = [ListenerKind::All, ListenerKind::Discovery];

fn two() -> ([Arc<Fake>; 2], FrontEnds) {
    let fake = |kind| {
        Arc::new(Fake {
            kind,
            revision: Mutex::default(),
            listening: Mutex::default(),
            revoked: Mutex::default(),
        })
    };
    let both = KINDS.map(fake);
    let boxed = both.clone().map(|one| Box::new(one) as Box<dyn FrontEnd>);
    (both, FrontEnds(boxed.into()))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.expect("a runtime").block_on(test)
}

#[test]
fn a_state_reaches_all_and_a_portal_the_one_of_its_protocol() {
    run(async {
        let (both, all) = two();
        let mut served = Served::default();
        Arc::make_mut(&mut served.state).revision = 7;
        all.apply(&served).await.expect("it is applied");
        assert_eq!(both.each_ref().map(|one| *lock(&one.revision)), [7, 7]);
        for (port, kind) in (1..).zip(KINDS) {
            let at = ListenAt {
                address: ([127, 0, 0, 1], port).into(),
                options: SocketOptions::default(),
                port: Protocol::Nvme { kind },
                inherited: None,
            };
            all.of(at.port).listen(at).await.expect("it listens");
        }
        let ports = |one: &Arc<Fake>| -> Vec<u16> {
            let listening = lock(&one.listening);
            listening.iter().map(SocketAddr::port).collect()
        };
        assert_eq!(both.each_ref().map(ports), [vec![1], vec![2]]);
        all.shutdown(Duration::ZERO).await;
        assert!(both.iter().all(|one| ports(one).is_empty()));
    });
}

#[test]
fn a_host_has_lost_its_right_when_no_front_end_has_anything_of_it_under_way() {
    let nqn = |name: &str| format!("nqn.2026-01.a:{name}").parse().expect("an NQN");
    let report = |nsid| RevokedReport {
        host: InitiatorName::Nqn(nqn("h")),
        export: ExportName::Namespace {
            subsystem: nqn("s"),
            nsid,
        },
        requests: 1,
    };
    run(async {
        let (both, all) = two();
        for (nsid, one) in (1..).zip(&both) {
            lock(&one.revoked).push(report(nsid));
        }
        assert_eq!(all.revoked().await, [report(1), report(2)]);
        lock(&both[0].revoked).clear();
        assert_eq!(all.revoked().await, [report(2)]);
        lock(&both[1].revoked).clear();
        assert_eq!(all.revoked().await, []);
    });
}

#[test]
fn needs_of_memory_add_up() {
    let kind = |memory_needs| FrontEndKind {
        memory_needs,
        start: |_, _, _| unreachable!("none is started"),
    };
    let kinds = [
        kind(|_| MemoryNeeds {
            connection_bytes: 5,
            session_bytes: 2,
            reactor_bytes: 10,
            list_share: 8,
        }),
        kind(|_| MemoryNeeds {
            connection_bytes: 4,
            session_bytes: 3,
            reactor_bytes: 20,
            list_share: 6,
        }),
    ];
    let expected = MemoryNeeds {
        // Front ends share the limit of connections: the larger ones count.
        connection_bytes: 5,
        session_bytes: 5,
        reactor_bytes: 30,
        list_share: 6,
    };
    assert_eq!(memory_needs_of(&kinds, &Config::default()), expected);
}
