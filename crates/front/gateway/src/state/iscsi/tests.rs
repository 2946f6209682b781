//! Rules of targets and logical units, and that secrets are shown nowhere.

use super::super::tests::{add_host, add_volume, applied, apply, nqn, volume};
use super::super::{
    Change, HostPatch, HostSpec, InitiatorName, ListenerSpec, Protocol, ProtocolName, Volume,
};
use super::*;

const SECRET: &str = "a secret of one";
const OTHER: &str = "a secret of two";

fn iqn(text: &str) -> IscsiName {
    format!("iqn.2026-01.com.example:{text}").parse().unwrap()
}

fn host(name: &str) -> HostName {
    name.parse().unwrap()
}

fn of(change: IscsiChange) -> Change {
    Change::Iscsi(change)
}

fn add_target(name: &str) -> Change {
    of(IscsiChange::AddTarget {
        target: iqn(name),
        spec: TargetSpec::default(),
    })
}

fn lun_spec(name: &str) -> LunSpec {
    LunSpec {
        volume: volume(name),
        read_only: None,
        visible_to: None,
        qos: None,
    }
}

fn add_lun(target: &str, lun: Option<u16>, name: &str) -> Change {
    of(IscsiChange::AddLun {
        target: iqn(target),
        lun,
        spec: lun_spec(name),
    })
}

fn add_initiator(name: &str, iqns: &[&str]) -> Change {
    Change::AddHost {
        name: host(name),
        spec: HostSpec {
            iqns: Some(iqns.iter().map(|text| iqn(text)).collect()),
            ..HostSpec::default()
        },
    }
}

fn credentials(user: &str, secret: &str) -> Credentials {
    Credentials {
        user: user.to_owned(),
        secret: Secret::new("secret", secret.to_owned()).unwrap(),
    }
}

fn chap(target: &str, secret: &str, mutual: Option<&str>) -> Change {
    of(IscsiChange::SetChap {
        target: iqn(target),
        chap: Some(Chap {
            initiator: credentials("u", secret),
            target: mutual.map(|secret| credentials("t", secret)),
        }),
    })
}

#[test]
fn luns_get_the_lowest_free_number_once() {
    let changes = [add_volume("a"), add_volume("b"), add_target("t")];
    let state = applied(State::default(), &changes);
    let state = applied(state, &[add_lun("t", Some(1), "a")]);
    let first = apply(&state, &add_lun("t", None, "b")).unwrap();
    assert_eq!((first.lun, first.changed), (Some(0), true));
    let again = apply(&first.state, &add_lun("t", None, "b")).unwrap();
    assert_eq!((again.lun, again.changed), (Some(0), false));
    let error = apply(&state, &add_lun("t", Some(1), "b")).unwrap_err();
    assert_eq!(error.code(), "exists");
    let error = apply(&state, &add_lun("t", Some(LUN_MAX + 1), "b")).unwrap_err();
    assert_eq!(error.code(), "lun_out_of_range");
    let remove = of(IscsiChange::RemoveLun {
        target: iqn("t"),
        lun: 7,
    });
    let error = apply(&state, &remove).unwrap_err();
    assert_eq!(
        error.to_string(),
        "target iqn.2026-01.com.example:t has no LUN 7"
    );
    assert_eq!(
        error.hint().unwrap(),
        "see what there is: weir lun list iqn.2026-01.com.example:t"
    );
}

#[test]
fn a_volume_is_one_disk_under_every_target() {
    let changes = [
        add_volume("a"),
        add_target("s"),
        add_target("t"),
        add_lun("s", None, "a"),
    ];
    let state = applied(State::default(), &changes);
    let identity = state.volumes[&volume("a")].uuid;
    assert!(identity.is_some());
    let resized = Change::SetVolumeUrl {
        name: volume("a"),
        url: "mem:a?size=2M".to_owned(),
    };
    let remove = |target| {
        of(IscsiChange::RemoveLun {
            target: iqn(target),
            lun: 0,
        })
    };
    let changes = [
        add_lun("t", None, "a"),
        resized,
        remove("s"),
        remove("t"),
        add_lun("s", None, "a"),
    ];
    let later = applied(state, &changes);
    let expected = Volume {
        uuid: identity,
        ..Volume::new("mem:a?size=2M")
    };
    assert_eq!(later.volumes[&volume("a")], expected);
    let mut twice = applied(later, &[add_volume("b")]);
    let other = twice.volumes.get_mut(&volume("b")).unwrap();
    other.uuid = identity;
    assert_eq!(twice.check().unwrap_err().code(), "identifier_taken");
    let mut without = twice.clone();
    for volume in without.volumes.values_mut() {
        volume.uuid = None;
    }
    assert_eq!(without.check().unwrap_err().code(), "invalid");
}

#[test]
fn what_is_served_is_not_removed_by_mistake() {
    let changes = [
        add_volume("a"),
        add_target("t"),
        add_lun("t", None, "a"),
        add_initiator("rack-7", &["h"]),
        of(IscsiChange::AllowHost {
            target: iqn("t"),
            host: host("rack-7"),
        }),
    ];
    let state = applied(State::default(), &changes);
    let error = apply(&state, &Change::RemoveVolume { name: volume("a") }).unwrap_err();
    let expected = "volume a is in use by LUN 0 of target iqn.2026-01.com.example:t";
    assert_eq!(error.to_string(), expected);
    let remove = |force| {
        of(IscsiChange::RemoveTarget {
            target: iqn("t"),
            force,
        })
    };
    let error = apply(&state, &remove(false)).unwrap_err();
    assert_eq!(error.code(), "in_use");
    assert!(error.hint().unwrap().contains("LUNs"));
    let remove_host = |force| Change::RemoveHost {
        name: host("rack-7"),
        force,
    };
    let error = apply(&state, &remove_host(false)).unwrap_err();
    assert!(error.to_string().contains("target iqn.2026-01"), "{error}");
    let state = applied(state, &[remove_host(true), remove(true)]);
    assert!(state.targets.is_empty() && state.hosts.is_empty());
    applied(state, &[Change::RemoveVolume { name: volume("a") }]);
}

#[test]
fn a_host_has_names_of_both_protocols_and_shares_none() {
    let both = Change::AddHost {
        name: host("rack-7"),
        spec: HostSpec {
            nqns: Some([nqn("h")].into()),
            iqns: Some([iqn("h")].into()),
            ..HostSpec::default()
        },
    };
    let state = applied(State::default(), std::slice::from_ref(&both));
    assert!(!apply(&state, &both).unwrap().changed);
    for name in [InitiatorName::Nqn(nqn("h")), InitiatorName::Iqn(iqn("h"))] {
        assert!(state.hosts[&host("rack-7")].is(&name), "{name}");
    }
    let error = apply(&state, &add_initiator("rack-8", &["h"])).unwrap_err();
    assert_eq!(error.code(), "identifier_taken");
    let error = apply(&state, &add_host("h")).unwrap_err();
    assert_eq!(error.code(), "identifier_taken");
    let named = Change::AddHost {
        name: iqn("i").into(),
        spec: HostSpec::default(),
    };
    let state = applied(state, &[named]);
    assert!(state.hosts[&iqn("i").into()].iqns.contains(&iqn("i")));
    for (name, spec) in [
        ("rack-9", HostSpec::default()),
        ("nqn.2026-13.com.example:h", HostSpec::default()),
        ("iqn.2026-13.com.example:h", HostSpec::default()),
        (
            "iqn.2026-01.com.example:j",
            HostSpec {
                iqns: Some([iqn("k")].into()),
                ..HostSpec::default()
            },
        ),
    ] {
        let name = host(name);
        let add = Change::AddHost { name, spec };
        assert_eq!(apply(&state, &add).unwrap_err().code(), "invalid", "{add}");
    }
}

#[test]
fn a_change_takes_the_right_from_those_whom_it_concerns() {
    let changes = [
        add_volume("a"),
        add_target("t"),
        add_lun("t", None, "a"),
        add_initiator("rack-7", &["h", "i"]),
    ];
    let state = applied(State::default(), &changes);
    let export = ExportName::Lun {
        target: iqn("t"),
        lun: 0,
    };
    let takes = |change: &Change, name: &str| {
        change.takes_from(&state, &InitiatorName::Iqn(iqn(name)), &export)
    };
    let deny = of(IscsiChange::DisallowHost {
        target: iqn("t"),
        host: host("rack-7"),
    });
    assert!(takes(&deny, "h") && takes(&deny, "i") && !takes(&deny, "j"));
    let patch = |iqns: &[&str]| Change::SetHost {
        name: host("rack-7"),
        patch: HostPatch {
            iqns: Some(iqns.iter().map(|text| iqn(text)).collect()),
            ..HostPatch::default()
        },
    };
    assert!(takes(&patch(&["h"]), "i") && !takes(&patch(&["h"]), "h"));
    let set = |lun, read_only| {
        of(IscsiChange::SetLun {
            target: iqn("t"),
            lun,
            patch: LunPatch {
                read_only: Some(read_only),
                ..LunPatch::default()
            },
        })
    };
    assert!(takes(&set(0, true), "h"));
    assert!(!takes(&set(0, false), "h") && !takes(&set(1, true), "h"));
    let only = |allow_any_host| {
        of(IscsiChange::SetTarget {
            target: iqn("t"),
            patch: TargetPatch {
                alias: None,
                allow_any_host,
            },
        })
    };
    assert!(takes(&only(Some(false)), "h") && !takes(&only(None), "h"));
    assert!(!takes(&chap("t", SECRET, None), "h") && !takes(&add_lun("t", None, "a"), "h"));
    let namespace = ExportName::Namespace {
        subsystem: nqn("t"),
        nsid: 1,
    };
    assert!(!deny.takes_from(&state, &InitiatorName::Iqn(iqn("h")), &namespace));
}

#[test]
fn secrets_are_shown_nowhere_and_have_a_generation() {
    let state = applied(State::default(), &[add_target("t")]);
    assert_eq!(state.secrets.generation, None);
    let set = chap("t", SECRET, Some(OTHER));
    let state = applied(state, std::slice::from_ref(&set));
    assert_eq!(state.secrets.generation, Some(state.revision));
    assert!(!apply(&state, &set).unwrap().changed);
    let json = serde_json::to_string_pretty(&state).unwrap();
    let shown = [
        format!("{state:?}"),
        format!("{set:?}"),
        set.to_string(),
        json.clone(),
    ];
    for text in shown {
        assert!(!text.contains(SECRET) && !text.contains(OTHER), "{text}");
    }
    assert!(set.to_string().contains("set_chap"), "{set}");
    let generation = format!("\"secrets\": {}", state.revision);
    assert!(json.contains(&generation), "{json}");
    // Other changes leave the generation alone.
    let later = applied(state.clone(), &[add_volume("a")]);
    assert_eq!(later.secrets, state.secrets);
    let another = applied(later, &[chap("t", OTHER, None)]);
    assert_eq!(another.secrets.generation, Some(another.revision));
    let none = of(IscsiChange::SetChap {
        target: iqn("t"),
        chap: None,
    });
    let none = applied(another.clone(), &[none]);
    assert_eq!(
        (none.secrets.generation, none.secrets.is_empty()),
        (None, true)
    );
    let removed = of(IscsiChange::RemoveTarget {
        target: iqn("t"),
        force: false,
    });
    assert!(applied(another, &[removed]).secrets.is_empty());
}

#[test]
fn a_pair_of_secrets_that_helps_nobody_is_refused() {
    let state = applied(State::default(), &[add_target("t")]);
    let error = apply(&state, &chap("t", SECRET, Some(SECRET))).unwrap_err();
    assert!(
        error.to_string().starts_with("mutual_secret must differ"),
        "{error}"
    );
    assert!(!error.to_string().contains(SECRET));
    for (length, is_allowed) in [(11, false), (12, true), (255, true), (256, false)] {
        let secret = Secret::new("secret", "x".repeat(length));
        assert_eq!(secret.is_ok(), is_allowed, "{length}");
    }
    let error = Secret::new("secret", "0123456789ab\n".to_owned()).unwrap_err();
    assert!(error.to_string().contains("end of a line"), "{error}");
    let mut state = applied(state, &[chap("t", SECRET, Some(OTHER))]);
    state
        .targets
        .get_mut(&iqn("t"))
        .unwrap()
        .chap
        .as_mut()
        .unwrap()
        .mutual_user = None;
    assert!(
        state
            .check()
            .unwrap_err()
            .to_string()
            .contains("do not fit")
    );
    state.targets.clear();
    assert!(
        state
            .check()
            .unwrap_err()
            .to_string()
            .contains("target is not")
    );
}

#[test]
fn a_portal_of_iscsi_is_no_news_for_nvme_hosts() {
    let add = |spec| Change::AddListener {
        address: "*:3260".parse().unwrap(),
        spec,
    };
    let spec = ListenerSpec {
        protocol: Some(ProtocolName::Iscsi),
        advertise: Some("198.51.100.7:3260".parse().unwrap()),
        ..ListenerSpec::default()
    };
    let state = applied(State::default(), &[add(spec.clone())]);
    assert_eq!((state.revision, state.discovery_generation), (1, 0));
    let portal = &state.portals[&"*:3260".parse().unwrap()];
    assert_eq!(portal.protocol, Protocol::Iscsi);
    assert_eq!(portal.advertise, spec.advertise);
    assert!(!apply(&state, &add(spec.clone())).unwrap().changed);
    let count = Change::CountListener {
        address: "*:3260".parse().unwrap(),
    };
    assert!(!apply(&state, &count).unwrap().changed);
    let nvme = ListenerSpec {
        protocol: Some(ProtocolName::Nvme),
        ..ListenerSpec::default()
    };
    let error = apply(&state, &add(nvme)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("with protocol \"iscsi\" instead of \"nvme\""),
        "{error}"
    );
    let discovery = ListenerSpec {
        kind: Some(super::super::ListenerKind::Discovery),
        ..spec.clone()
    };
    for state in [&state, &State::default()] {
        let error = apply(state, &add(discovery.clone())).unwrap_err();
        assert!(error.to_string().starts_with("kind is for"), "{error}");
    }
    let advertised = ListenerSpec {
        protocol: None,
        ..spec
    };
    let error = apply(&State::default(), &add(advertised)).unwrap_err();
    assert!(error.to_string().starts_with("advertise is for"), "{error}");
}
