//! Random sequences of changes keep the rules, and each rule refuses what breaks it.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;

/// A reproducible source of "random" bits.
struct Sequence(u64);

impl Sequence {
    fn fill(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            self.0 = self
                .0
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *byte = (self.0 >> 33) as u8;
        }
    }
}

pub(super) fn apply(state: &State, change: &Change) -> Result<Outcome, StateError> {
    let mut sequence = Sequence(state.revision);
    state.changed_by(change, &mut |bytes| sequence.fill(bytes))
}

pub(super) fn applied(state: State, changes: &[Change]) -> State {
    changes
        .iter()
        .fold(state, |state, change| apply(&state, change).unwrap().state)
}

pub(super) fn nqn(text: &str) -> Nqn {
    format!("nqn.2026-01.com.example:{text}").parse().unwrap()
}

pub(super) fn volume(text: &str) -> VolumeName {
    text.parse().unwrap()
}

pub(super) fn add_volume(name: &str) -> Change {
    Change::AddVolume {
        name: volume(name),
        url: format!("mem:{name}?size=1M"),
    }
}

fn add_subsystem(name: &str) -> Change {
    Change::Nvme(NvmeChange::AddSubsystem {
        nqn: nqn(name),
        spec: SubsystemSpec::default(),
    })
}

pub(super) fn add_host(name: &str) -> Change {
    Change::AddHost {
        name: nqn(name).into(),
        spec: HostSpec::default(),
    }
}

fn namespace_spec(name: &str) -> NamespaceSpec {
    NamespaceSpec {
        volume: volume(name),
        uuid: None,
        nguid: None,
        eui64: None,
        read_only: None,
        visible_to: None,
        qos: None,
    }
}

fn add_namespace(subsystem: &str, nsid: Option<u32>, name: &str) -> Change {
    Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn(subsystem),
        nsid,
        spec: namespace_spec(name),
    })
}

#[test]
fn adding_again_changes_nothing_and_differing_is_a_conflict() {
    let state = applied(State::default(), &[add_volume("v"), add_subsystem("s")]);
    let again = apply(&state, &add_volume("v")).unwrap();
    assert!(!again.changed);
    assert_eq!(again.state, state);
    let other = Change::AddVolume {
        name: volume("v"),
        url: "null:?size=1M".into(),
    };
    assert_eq!(apply(&state, &other).unwrap_err().code(), "exists");
    let spec = SubsystemSpec {
        allow_any_host: Some(true),
        ..Default::default()
    };
    let other = Change::Nvme(NvmeChange::AddSubsystem {
        nqn: nqn("s"),
        spec,
    });
    let error = apply(&state, &other).unwrap_err();
    assert_eq!(
        error.to_string(),
        "subsystem nqn.2026-01.com.example:s exists, with allow_any_host false instead of true"
    );
}

#[test]
fn unknown_names_say_what_was_meant() {
    let state = applied(
        State::default(),
        &[add_volume("images"), add_subsystem("s")],
    );
    let error = apply(&state, &add_namespace("s", None, "imagse")).unwrap_err();
    assert_eq!(error.to_string(), "there is no volume imagse");
    assert_eq!(error.hint().unwrap(), "did you mean images?");
    let far = apply(&state, &add_namespace("s", None, "backups")).unwrap_err();
    assert_eq!(far.hint().unwrap(), "see what there is: weir volume list");
}

#[test]
fn namespaces_get_the_lowest_free_nsid_once() {
    let changes = [add_volume("a"), add_volume("b"), add_subsystem("s")];
    let state = applied(State::default(), &changes);
    let state = applied(state, &[add_namespace("s", Some(2), "a")]);
    let first = apply(&state, &add_namespace("s", None, "b")).unwrap();
    assert_eq!(first.nsid, NonZeroU32::new(1));
    let again = apply(&first.state, &add_namespace("s", None, "b")).unwrap();
    assert_eq!((again.nsid, again.changed), (first.nsid, false));
    let mut spec = namespace_spec("b");
    spec.read_only = Some(true);
    let other = Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn("s"),
        nsid: None,
        spec,
    });
    let third = apply(&first.state, &other).unwrap();
    assert_eq!((third.nsid, third.changed), (NonZeroU32::new(3), true));
    for nsid in [0, NSID_MAX + 1, u32::MAX] {
        let error = apply(&state, &add_namespace("s", Some(nsid), "a")).unwrap_err();
        assert_eq!(error.code(), "nsid_out_of_range");
    }
}

#[test]
fn identifiers_are_unique_and_stay() {
    let changes = [add_volume("a"), add_subsystem("s"), add_subsystem("t")];
    let state = applied(State::default(), &changes);
    let state = applied(
        state,
        &[add_namespace("s", None, "a"), add_namespace("t", None, "a")],
    );
    let uuid = state.namespace(&nqn("s"), 1).unwrap().uuid;
    assert_ne!(uuid, state.namespace(&nqn("t"), 1).unwrap().uuid);
    let mut spec = namespace_spec("a");
    spec.uuid = Some(uuid);
    let copy = Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn("t"),
        nsid: Some(9),
        spec,
    });
    assert_eq!(apply(&state, &copy).unwrap_err().code(), "identifier_taken");
    let patch = NamespacePatch {
        read_only: Some(true),
        visible_to: None,
        qos: None,
    };
    let set = Change::Nvme(NvmeChange::SetNamespace {
        nqn: nqn("s"),
        nsid: 1,
        patch,
    });
    assert_eq!(
        applied(state, &[set]).namespace(&nqn("s"), 1).unwrap().uuid,
        uuid
    );
}

#[test]
fn what_is_in_use_stays() {
    let changes = [add_volume("a"), add_subsystem("s"), add_host("h")];
    let allow = Change::Nvme(NvmeChange::AllowHost {
        nqn: nqn("s"),
        host: nqn("h").into(),
    });
    let state = applied(State::default(), &changes);
    let state = applied(state, &[add_namespace("s", None, "a"), allow]);
    let volume = Change::RemoveVolume { name: volume("a") };
    let error = apply(&state, &volume).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("namespace 1 of subsystem nqn.2026-01.com.example:s"),
        "{error}"
    );
    let subsystem = |force| {
        Change::Nvme(NvmeChange::RemoveSubsystem {
            nqn: nqn("s"),
            force,
        })
    };
    assert_eq!(
        apply(&state, &subsystem(false)).unwrap_err().code(),
        "in_use"
    );
    let host = |force| Change::RemoveHost {
        name: nqn("h").into(),
        force,
    };
    assert_eq!(apply(&state, &host(false)).unwrap_err().code(), "in_use");
    let state = applied(state, &[host(true)]);
    assert!(state.subsystems[&nqn("s")].allowed_hosts.is_empty());
    let state = applied(state, &[subsystem(true), volume]);
    assert!(state.volumes.is_empty() && state.subsystems.is_empty());
}

#[test]
fn hosts_are_registered_before_they_are_allowed() {
    let state = applied(State::default(), &[add_subsystem("s")]);
    let allow = Change::Nvme(NvmeChange::AllowHost {
        nqn: nqn("s"),
        host: nqn("h").into(),
    });
    let error = apply(&state, &allow).unwrap_err();
    assert_eq!(
        error.hint().unwrap(),
        "register it first: weir host add nqn.2026-01.com.example:h"
    );
    let state = applied(state, &[add_host("h"), allow]);
    let allowed = &state.subsystems[&nqn("s")].allowed_hosts;
    assert!(state.nqns(allowed).eq([&nqn("h")]));
}

#[test]
fn a_host_has_several_nqns_and_shares_none() {
    let mut state = applied(State::default(), &[add_host("h"), add_host("other")]);
    let named = HostName::from(nqn("h"));
    let host = state.hosts.get_mut(&named).unwrap();
    assert!(host.nqns.iter().eq([&nqn("h")]));
    host.nqns.insert(nqn("also-h"));
    state.check().unwrap();
    let all = BTreeSet::from([named.clone(), nqn("other").into()]);
    assert!(
        state
            .nqns(&all)
            .eq([&nqn("also-h"), &nqn("h"), &nqn("other")])
    );
    state
        .hosts
        .get_mut(&named)
        .unwrap()
        .nqns
        .insert(nqn("other"));
    let error = state.check().unwrap_err().to_string();
    let taken = format!(
        "HOSTNQN {0} already belongs to host {1}",
        nqn("other"),
        nqn("h")
    );
    assert_eq!(error, taken);
}

#[test]
fn a_host_that_is_called_by_an_nqn_connects_with_it() {
    let mut state = applied(State::default(), &[add_host("h")]);
    let host = state.hosts.get_mut(&HostName::from(nqn("h"))).unwrap();
    host.nqns = [nqn("another")].into();
    let error = state.check().unwrap_err().to_string();
    assert!(error.contains("an NQN that is none of its own"), "{error}");
    let host = state.hosts.get_mut(&HostName::from(nqn("h"))).unwrap();
    host.nqns = [nqn("h"), Nqn::DISCOVERY.parse().unwrap()].into();
    let error = state.check().unwrap_err().to_string();
    assert!(error.contains("the discovery subsystem's"), "{error}");
}

#[test]
fn the_discovery_subsystem_is_not_for_sale() {
    let discovery: Nqn = Nqn::DISCOVERY.parse().unwrap();
    let spec = SubsystemSpec::default();
    let add = Change::Nvme(NvmeChange::AddSubsystem {
        nqn: discovery.clone(),
        spec,
    });
    assert_eq!(
        apply(&State::default(), &add).unwrap_err().code(),
        "invalid"
    );
    let add = Change::AddHost {
        name: discovery.into(),
        spec: HostSpec::default(),
    };
    assert_eq!(
        apply(&State::default(), &add).unwrap_err().code(),
        "invalid"
    );
}

#[test]
fn ranges_are_checked() {
    let bad_ids = [(0, 1), (2, 1), (1, 0xfff0)];
    for (min, max) in bad_ids {
        let controller_ids = Some(ControllerIds { min, max });
        let spec = SubsystemSpec {
            controller_ids,
            ..Default::default()
        };
        let add = Change::Nvme(NvmeChange::AddSubsystem {
            nqn: nqn("s"),
            spec,
        });
        assert_eq!(
            apply(&State::default(), &add).unwrap_err().code(),
            "invalid"
        );
    }
    let bad_options = [
        SocketOptions {
            send_buffer: Some(1),
            ..Default::default()
        },
        SocketOptions {
            receive_buffer: Some(u32::MAX),
            ..Default::default()
        },
        SocketOptions {
            congestion_control: Some("a b".into()),
            ..Default::default()
        },
        SocketOptions {
            congestion_control: Some("x".repeat(16)),
            ..Default::default()
        },
        SocketOptions {
            dscp: Some(64),
            ..Default::default()
        },
        SocketOptions {
            priority: Some(16),
            ..Default::default()
        },
    ];
    for options in bad_options {
        let spec = ListenerSpec {
            socket_options: Some(options),
            ..Default::default()
        };
        let add = Change::AddListener {
            address: "*:4420".parse().unwrap(),
            spec,
        };
        assert_eq!(
            apply(&State::default(), &add).unwrap_err().code(),
            "invalid"
        );
    }
    for url in ["", "nothing", ":x", "a b:", "mem:\n"] {
        let add = Change::AddVolume {
            name: volume("v"),
            url: url.into(),
        };
        assert_eq!(
            apply(&State::default(), &add).unwrap_err().code(),
            "invalid",
            "{url:?}"
        );
    }
}

#[test]
fn generations_count_what_hosts_can_see() {
    let seen = |state: &State| state.discovery_generation;
    let state = applied(State::default(), &[add_volume("a"), add_host("h")]);
    assert_eq!(
        seen(&state),
        0,
        "volumes and hosts are not in the discovery log"
    );
    let state = applied(state, &[add_subsystem("s")]);
    assert_eq!(seen(&state), 1);
    let state = applied(state, &[add_namespace("s", None, "a")]);
    assert_eq!(seen(&state), 1, "namespaces are not in the discovery log");
    assert_eq!(state.subsystems[&nqn("s")].ana_changes, 1);
    let state = applied(
        state,
        &[Change::Nvme(NvmeChange::AllowHost {
            nqn: nqn("s"),
            host: nqn("h").into(),
        })],
    );
    assert_eq!(seen(&state), 2);
    let address: ListenerAddress = "*:4420".parse().unwrap();
    let spec = ListenerSpec::default();
    let state = applied(
        state,
        &[Change::AddListener {
            address: address.clone(),
            spec,
        }],
    );
    assert_eq!(seen(&state), 3);
    let socket_options = Some(SocketOptions {
        dscp: Some(8),
        ..Default::default()
    });
    let patch = ListenerPatch { socket_options };
    let state = applied(state, &[Change::SetListener { address, patch }]);
    assert_eq!(
        seen(&state),
        3,
        "socket options are not in the discovery log"
    );
    assert_eq!(state.revision, 7);
}

#[test]
fn every_limit_is_reached_and_held() {
    let mut state = State::default();
    for index in 0..PORTALS_MAX as u16 {
        let address = ListenerAddress::parse("*", index + 1).unwrap();
        let portal = Portal {
            advertise: None,
            protocol: Protocol::Nvme {
                kind: ListenerKind::All,
            },
            socket_options: SocketOptions::default(),
        };
        state.portals.insert(address, portal);
    }
    state.check().unwrap();
    let address = "*:9999".parse().unwrap();
    let add = Change::AddListener {
        address,
        spec: ListenerSpec::default(),
    };
    assert_eq!(apply(&state, &add).unwrap_err().code(), "limit_reached");
    let mut state = applied(State::default(), &[add_volume("a"), add_subsystem("s")]);
    for nsid in 1..=NSID_MAX {
        let mut random = |bytes: &mut [u8]| {
            bytes.fill(0);
            bytes[4..8].copy_from_slice(&nsid.to_be_bytes());
        };
        let change = add_namespace("s", Some(nsid), "a");
        // Straight into the map: checking all identifiers each time would take minutes.
        let mut fresh = state.clone();
        fresh
            .subsystems
            .get_mut(&nqn("s"))
            .unwrap()
            .namespaces
            .clear();
        let added = fresh.changed_by(&change, &mut random).unwrap().state;
        let namespace = added.namespace(&nqn("s"), nsid).unwrap().clone();
        let nsid = NonZeroU32::new(nsid).unwrap();
        state
            .subsystems
            .get_mut(&nqn("s"))
            .unwrap()
            .namespaces
            .insert(nsid, namespace);
    }
    state.check().unwrap();
    let mut spec = namespace_spec("a");
    spec.read_only = Some(true);
    let one_more = Change::Nvme(NvmeChange::AddNamespace {
        nqn: nqn("s"),
        nsid: None,
        spec,
    });
    assert_eq!(
        apply(&state, &one_more).unwrap_err().code(),
        "limit_reached"
    );
}

fn any_name() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c")]
}

fn any_visibility() -> impl Strategy<Value = Visibility> {
    prop_oneof![
        Just(Visibility::All),
        proptest::collection::btree_set(any_name().prop_map(|name| nqn(name).into()), 0..3)
            .prop_map(Visibility::Hosts),
    ]
}

fn any_change() -> impl Strategy<Value = Change> {
    let address = || (1_u16..4).prop_map(|port| ListenerAddress::parse("*", port).unwrap());
    let options = || {
        proptest::option::of(
            proptest::option::of(0_u8..66).prop_map(|dscp| SocketOptions {
                dscp,
                ..Default::default()
            }),
        )
    };
    prop_oneof![
        any_name().prop_map(add_volume),
        (any_name(), any_name()).prop_map(|(name, size)| Change::SetVolumeUrl {
            name: volume(name),
            url: format!("mem:?size={size}"),
        }),
        any_name().prop_map(|name| Change::SetReservations {
            name: volume(name),
            table: None,
        }),
        any_name().prop_map(|name| Change::RemoveVolume { name: volume(name) }),
        any_name().prop_map(add_host),
        (any_name(), options()).prop_map(|(name, socket_options)| Change::SetHost {
            name: nqn(name).into(),
            patch: HostPatch {
                socket_options,
                ..HostPatch::default()
            },
        }),
        (any_name(), any::<bool>()).prop_map(|(name, force)| Change::RemoveHost {
            name: nqn(name).into(),
            force
        }),
        (any_name(), proptest::option::of(any::<bool>())).prop_map(|(name, allow_any_host)| {
            let spec = SubsystemSpec {
                allow_any_host,
                ..Default::default()
            };
            Change::Nvme(NvmeChange::AddSubsystem {
                nqn: nqn(name),
                spec,
            })
        }),
        (any_name(), proptest::option::of(any::<bool>())).prop_map(|(name, allow_any_host)| {
            Change::Nvme(NvmeChange::SetSubsystem {
                nqn: nqn(name),
                patch: SubsystemPatch { allow_any_host },
            })
        }),
        (any_name(), any::<bool>()).prop_map(|(name, force)| Change::Nvme(
            NvmeChange::RemoveSubsystem {
                nqn: nqn(name),
                force
            }
        )),
        (any_name(), any_name()).prop_map(|(name, host)| Change::Nvme(NvmeChange::AllowHost {
            nqn: nqn(name),
            host: nqn(host).into()
        })),
        (any_name(), any_name()).prop_map(|(name, host)| Change::Nvme(NvmeChange::DisallowHost {
            nqn: nqn(name),
            host: nqn(host).into()
        })),
        (
            any_name(),
            proptest::option::of(0_u32..5),
            any_name(),
            any_visibility()
        )
            .prop_map(|(name, nsid, volume, visible_to)| {
                let mut spec = namespace_spec(volume);
                spec.visible_to = Some(visible_to);
                Change::Nvme(NvmeChange::AddNamespace {
                    nqn: nqn(name),
                    nsid,
                    spec,
                })
            }),
        (any_name(), 0_u32..5, any::<bool>(), any_visibility()).prop_map(
            |(name, nsid, read_only, visible_to)| {
                let patch = NamespacePatch {
                    read_only: Some(read_only),
                    visible_to: Some(visible_to),
                    qos: None,
                };
                Change::Nvme(NvmeChange::SetNamespace {
                    nqn: nqn(name),
                    nsid,
                    patch,
                })
            }
        ),
        (any_name(), 0_u32..5).prop_map(|(name, nsid)| Change::Nvme(NvmeChange::RemoveNamespace {
            nqn: nqn(name),
            nsid
        })),
        (address(), options()).prop_map(|(address, socket_options)| Change::AddListener {
            address,
            spec: ListenerSpec {
                socket_options,
                ..ListenerSpec::default()
            },
        }),
        (address(), options()).prop_map(|(address, socket_options)| Change::SetListener {
            address,
            patch: ListenerPatch { socket_options },
        }),
        address().prop_map(|address| Change::RemoveListener { address }),
        any_iscsi_change().prop_map(Change::Iscsi),
    ]
}

fn iqn(text: &str) -> IscsiName {
    format!("iqn.2026-01.com.example:{text}").parse().unwrap()
}

fn any_chap() -> impl Strategy<Value = Option<Chap>> {
    let credentials = |secret: u8| Credentials {
        user: "u".to_owned(),
        secret: Secret::new("secret", format!("a secret of {secret}")).unwrap(),
    };
    proptest::option::of((0_u8..3, proptest::option::of(0_u8..3))).prop_map(move |chap| {
        let (initiator, target) = chap?;
        Some(Chap {
            initiator: credentials(initiator),
            target: target.map(credentials),
        })
    })
}

fn any_iscsi_change() -> impl Strategy<Value = IscsiChange> {
    let lun = || proptest::option::of(0_u16..4);
    prop_oneof![
        (any_name(), proptest::option::of(any::<bool>())).prop_map(|(name, allow_any_host)| {
            let spec = TargetSpec {
                allow_any_host,
                ..TargetSpec::default()
            };
            IscsiChange::AddTarget {
                target: iqn(name),
                spec,
            }
        }),
        (any_name(), any::<bool>()).prop_map(|(name, force)| IscsiChange::RemoveTarget {
            target: iqn(name),
            force
        }),
        (any_name(), any_name()).prop_map(|(name, host)| IscsiChange::AllowHost {
            target: iqn(name),
            host: nqn(host).into()
        }),
        (any_name(), any_chap()).prop_map(|(name, chap)| IscsiChange::SetChap {
            target: iqn(name),
            chap
        }),
        (any_name(), lun(), any_name(), any_visibility()).prop_map(
            |(name, lun, volume_name, visible_to)| {
                let spec = LunSpec {
                    volume: volume(volume_name),
                    read_only: None,
                    visible_to: Some(visible_to),
                    qos: None,
                };
                IscsiChange::AddLun {
                    target: iqn(name),
                    lun,
                    spec,
                }
            }
        ),
        (any_name(), 0_u16..4, any_visibility()).prop_map(|(name, lun, visible_to)| {
            let patch = LunPatch {
                visible_to: Some(visible_to),
                ..LunPatch::default()
            };
            IscsiChange::SetLun {
                target: iqn(name),
                lun,
                patch,
            }
        }),
        (any_name(), 0_u16..4).prop_map(|(name, lun)| IscsiChange::RemoveLun {
            target: iqn(name),
            lun
        }),
    ]
}

proptest! {
    /// Whatever is asked for, in whatever order: the rules hold, a refused change changes nothing,
    /// asking again changes nothing, identifiers never move, and JSON gives the same state back.
    #[test]
    fn random_changes_keep_the_rules(changes in proptest::collection::vec(any_change(), 1..80)) {
        let mut state = State::default();
        for change in &changes {
            let before = state.clone();
            let Ok(outcome) = apply(&state, change) else {
                prop_assert_eq!(&state, &before);
                continue;
            };
            state = outcome.state;
            state.check().unwrap();
            prop_assert_eq!(outcome.changed, state != before);
            prop_assert_eq!(state.revision, before.revision + u64::from(outcome.changed));
            prop_assert!(state.discovery_generation >= before.discovery_generation);
            if let Ok(again) = apply(&state, change) {
                prop_assert!(!again.changed, "{change:?} twice changes twice");
            }
            for (nqn, nsid, namespace) in state.namespaces() {
                if let Ok(old) = before.namespace(nqn, nsid.get()) {
                    prop_assert_eq!(
                        (old.uuid, old.nguid, old.eui64),
                        (namespace.uuid, namespace.nguid, namespace.eui64)
                    );
                }
            }
            for (name, volume) in &state.volumes {
                let old = before.volumes.get(name).and_then(|volume| volume.uuid);
                prop_assert!(old.is_none() || old == volume.uuid, "the identity of {name} moved");
            }
            let json = serde_json::to_string(&state).unwrap();
            prop_assert!(!json.contains("a secret"));
            let mut read: State = serde_json::from_str(&json).unwrap();
            read.secrets.chap.clone_from(&state.secrets.chap);
            prop_assert_eq!(&read, &state);
        }
    }
}

#[test]
fn a_change_is_told_by_its_own_name_whatever_its_protocol() {
    let remove = Change::Nvme(NvmeChange::RemoveNamespace {
        nqn: nqn("s"),
        nsid: 1,
    });
    let expected = format!(
        r#"{{"remove_namespace":{{"nqn":"{}","nsid":1}}}}"#,
        nqn("s")
    );
    assert_eq!(remove.to_string(), expected);
}
