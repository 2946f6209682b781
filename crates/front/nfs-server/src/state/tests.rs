//! Locks against a model that knows every byte, and clients that come and go.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use weir_files::FileId;
use weir_nfs::Status;
use weir_nfs::operation::{CreateSession, ExchangeId, Lock, LockRange, Locker};
use weir_nfs::types::ChannelAttributes;
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{File, System};

use super::*;

struct Nothing;

impl Keeper for Nothing {
    fn keep(&self, _: &BTreeSet<Vec<u8>>) -> io::Result<()> {
        Ok(())
    }
}

const START: Instant = Instant::from_nanos(1_000_000_000);

fn state(config: NfsConfig) -> State {
    State::new(config, Arc::new(Nothing), BTreeSet::new(), START, 7, 8)
}

fn file() -> Arc<File> {
    let system: Arc<dyn System> = LinuxSystem::new(LinuxConfig::default()).unwrap();
    system
        .adopt_file(tempfile::tempfile().unwrap().into())
        .unwrap()
}

fn key() -> FileKey {
    let id = FileId::new(1, b"file").unwrap();
    FileKey { export: 1, id }
}

/// A client with a session.
fn client(state: &State, name: &str, slots: u32, now: Instant) -> Result<u64, Status> {
    let request = ExchangeId {
        verifier: [1; 8],
        owner: name.as_bytes(),
        flags: 0,
        protection: 0,
        implementation: b"",
    };
    let (principal, address) = (Principal(Some(0)), IpAddr::from([127, 0, 0, 1]));
    let introduced = state.introduce(&request, principal, address, now)?;
    let channel = ChannelAttributes {
        header_pad: 0,
        request_bytes_max: 4096,
        reply_bytes_max: 4096,
        kept_reply_bytes_max: 4096,
        operations_max: 8,
        slots,
    };
    let request = CreateSession {
        client: introduced.client,
        sequence: introduced.sequence,
        flags: 0,
        fore: channel,
        back: channel,
        program: 0,
    };
    let drawn = introduced.client;
    state.create_session(&request, principal, drawn, now)?;
    state.complete(introduced.client, now)?;
    Ok(introduced.client)
}

fn open(state: &State, client: u64, file: &Arc<File>) -> StateId {
    let request = OpenRequest {
        client,
        owner: b"owner",
        key: key(),
        access: 3,
        deny: 0,
        is_reclaimed: false,
        file: Opened::File(Arc::clone(file)),
        is_writable: true,
    };
    state.open(request, START).unwrap()
}

/// A step of one of three owners: what it locks or unlocks, and whether alone.
#[derive(Debug, Clone)]
struct Step {
    owner: usize,
    offset: u64,
    length: u64,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Shared,
    Exclusive,
    Unlock,
}

fn any_step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(Kind::Shared),
        Just(Kind::Exclusive),
        Just(Kind::Unlock)
    ];
    (0..3_usize, 0..24_u64, 1..10_u64, kind).prop_map(|(owner, offset, length, kind)| Step {
        owner,
        offset,
        // Some to the end.
        length: if length == 9 { u64::MAX } else { length },
        kind,
    })
}

/// Bytes that the model looks at.
const BYTES: u64 = 40;

proptest! {
    /// Locks are granted, refused and given back as where each byte has its holders.
    #[test]
    fn locks_are_those_of_a_model_of_bytes(steps in proptest::collection::vec(any_step(), 1..40)) {
        let state = state(NfsConfig::default());
        let file = file();
        // Two owners of one client, and one of another.
        let clients = [client(&state, "one", 4, START).unwrap(), client(&state, "two", 4, START).unwrap()];
        let opens = clients.map(|client| open(&state, client, &file));
        let of = |owner: usize| (clients[owner / 2], opens[owner / 2], [b"a", b"b", b"a"][owner]);
        let mut held: BTreeMap<(usize, u64), bool> = BTreeMap::new();
        let mut stateids = [None; 3];
        for step in steps {
            let (client, open, name) = of(step.owner);
            let last = step.offset.saturating_add(step.length - 1).min(BYTES - 1);
            let bytes = step.offset..=last;
            let range = LockRange {
                offset: step.offset,
                length: step.length,
                is_exclusive: step.kind == Kind::Exclusive,
            };
            if step.kind == Kind::Unlock {
                let Some(stateid) = stateids[step.owner] else { continue };
                let now = state.unlock_range(client, &key(), &stateid, &range);
                stateids[step.owner] = Some(now.unwrap());
                bytes.for_each(|byte| {
                    held.remove(&(step.owner, byte));
                });
                continue;
            }
            let is_free = bytes.clone().all(|byte| (0..3).all(|other| {
                let there = held.get(&(other, byte));
                other == step.owner || there.is_none_or(|&alone| !alone && !range.is_exclusive)
            }));
            let request = Lock {
                range,
                is_reclaimed: false,
                locker: Locker::New { open, owner: name },
            };
            match state.lock_range(client, &key(), &request, START).unwrap() {
                Locked::Held(stateid) => {
                    prop_assert!(is_free, "{step:?}");
                    stateids[step.owner] = Some(stateid);
                    bytes.for_each(|byte| {
                        held.insert((step.owner, byte), range.is_exclusive);
                    });
                }
                Locked::Denied(conflict) => {
                    prop_assert!(!is_free, "{step:?}");
                    prop_assert!((clients[0], b"a".to_vec()) != (client, name.to_vec())
                        || conflict.client != client || conflict.owner != name);
                }
            }
        }
    }
}

#[test]
fn slots_and_clients_are_bounded_for_all_together() {
    let config = NfsConfig {
        clients_max: 3,
        ..NfsConfig::default()
    };
    let lease = config.lease;
    let state = state(config);
    client(&state, "greedy", 1000, START).unwrap();
    // Three times 64 are there for all.
    assert_eq!(client(&state, "late", 8, START), Err(Status::Delay));
    // Those that were never heard of again give way.
    let later = START + lease + Duration::from_secs(1);
    client(&state, "late", 8, later).unwrap();
    assert_eq!(state.clients().len(), 1);
    for name in ["two", "three"] {
        client(&state, name, 8, later).unwrap();
    }
    assert_eq!(client(&state, "four", 8, later), Err(Status::Delay));
}

#[test]
fn a_client_that_makes_no_session_takes_nobodys_place() {
    let config = NfsConfig {
        clients_max: 2,
        ..NfsConfig::default()
    };
    let state = state(config);
    for number in 0..100 {
        let name = format!("client {number}");
        let request = ExchangeId {
            verifier: [1; 8],
            owner: name.as_bytes(),
            flags: 0,
            protection: 0,
            implementation: b"",
        };
        let address = IpAddr::from([127, 0, 0, 1]);
        let introduced = state.introduce(&request, Principal(None), address, START);
        assert!(introduced.is_ok(), "{number}");
    }
    assert!(client(&state, "real", 8, START).is_ok());
}

#[test]
fn another_user_does_not_take_a_client_over() {
    let state = state(NfsConfig::default());
    let own = client(&state, "one", 4, START).unwrap();
    open(&state, own, &file());
    let request = ExchangeId {
        verifier: [2; 8],
        owner: b"one",
        flags: 0,
        protection: 0,
        implementation: b"",
    };
    let address = IpAddr::from([127, 0, 0, 1]);
    let taken = state.introduce(&request, Principal(Some(4711)), address, START);
    assert_eq!(taken, Err(Status::ClidInuse));
    // What needs a session's protection is refused.
    let protected = ExchangeId {
        protection: 1,
        ..request
    };
    let refused = state.introduce(&protected, Principal(Some(0)), address, START);
    assert_eq!(refused, Err(Status::Inval));
}

#[test]
fn a_lease_and_a_time_of_grace_last_as_long_as_they_say() {
    let config = NfsConfig::default();
    let lease = config.lease;
    let state = state(config.clone());
    let (one, two) = (
        client(&state, "one", 4, START),
        client(&state, "two", 4, START),
    );
    open(&state, one.unwrap(), &file());
    let second = Duration::from_secs(1);
    let exclusive = |now| state.check_share((two.unwrap(), b"owner"), &key(), 3, 3, now);
    assert_eq!(exclusive(START + lease), Err(Status::ShareDenied));
    // Both are silent by then, and the other one's open is gone.
    assert_eq!(exclusive(START + lease + second), Ok(()));
    let names = BTreeSet::from([b"gone".to_vec()]);
    let state = State::new(config, Arc::new(Nothing), names, START, 7, 8);
    let new = client(&state, "new", 4, START).unwrap();
    let (before, end) = (START + (lease - second), START + lease);
    assert_eq!(state.may_open(new, false, before), Err(Status::Grace));
    assert_eq!(state.may_open(new, true, before), Err(Status::NoGrace));
    assert_eq!(state.may_open(new, false, end), Ok(()));
}
