//! A state as the target serves it.

use weir_volume::{Access, Guard, GuardConfig, LimitedVolume, NullVolume};

use super::*;
use crate::state::{Secret, Secrets};

const STATE: &str = r#"{"revision": 1, "discovery_generation": 1, "subsystems": {}, "portals": {},
    "volumes": {"a": {"url": "mem:", "uuid": "11111111-2222-4333-8444-555555555555"}, "b": {"url": "mem:", "uuid": "21111111-2222-4333-8444-555555555555"}},
    "hosts": {"m": {"nqns": [], "iqns": ["iqn.2026-01.a:h", "iqn.2026-01.a:i"], "note": "", "socket_options": {}}},
    "targets": {
        "iqn.2026-01.a:t": {"alias": "rack 7", "allow_any_host": false, "allowed_hosts": ["m"], "chap": {"user": "u", "mutual_user": "m"},
            "luns": {"3": {"volume": "a", "read_only": true, "visible_to": {"hosts": ["m"]}, "qos": {}},
                "4": {"volume": "b", "read_only": false, "visible_to": "all", "qos": {}}}},
        "iqn.2026-01.a:u": {"alias": "", "allow_any_host": true, "allowed_hosts": [],
            "luns": {"0": {"volume": "a", "read_only": false, "visible_to": "all", "qos": {}}}}}}"#;

fn name(text: &str) -> IscsiName {
    format!("iqn.2026-01.a:{text}").parse().unwrap()
}

fn served() -> Served {
    let mut state: State = serde_json::from_str(STATE).unwrap();
    let secret = |text: &str| Secret::new("secret", text.to_owned()).unwrap();
    let secrets = ChapSecrets {
        initiator: secret("a secret of one"),
        target: Some(secret("a secret of two")),
    };
    state.secrets = Secrets {
        generation: Some(1),
        chap: [(name("t"), secrets)].into(),
    };
    state.check().unwrap();
    let mut served = Served {
        state: Arc::new(state),
        ..Served::default()
    };
    // The volume b is not open.
    let url = "null:?size=1M".parse().unwrap();
    let volume = NullVolume::open(&url, Access::READ_WRITE).unwrap();
    let guard = Guard::new(volume, GuardConfig::default()).unwrap();
    for (target, lun) in [("t", 3), ("u", 0)] {
        let volume = LimitedVolume::new(guard.clone(), Default::default());
        served.exports.insert(export(name(target), lun), volume);
    }
    served
}

#[test]
fn a_state_is_served_with_all_that_it_says() {
    let served = served();
    let snapshot = snapshot(&served);
    let [first, second] = &snapshot.targets[..] else {
        panic!("{snapshot:?}");
    };
    let both = BTreeSet::from(["h", "i"].map(|host| name(host).wire().clone()));
    assert_eq!(
        (first.alias.as_deref(), second.alias.as_deref()),
        (Some("rack 7"), None)
    );
    assert_eq!(first.allowed, Allowed::List(both.clone()));
    assert_eq!(second.allowed, Allowed::Any);
    let credentials = |user: &str, secret: &str| Credentials {
        user: user.to_owned(),
        secret: secret.to_owned(),
    };
    let expected = Authentication::Chap {
        initiator: credentials("u", "a secret of one"),
        target: Some(credentials("m", "a secret of two")),
    };
    assert_eq!(first.authentication, expected);
    assert_eq!(second.authentication, Authentication::None);
    let [lun] = &first.luns[..] else {
        panic!("what is not open is not served: {first:?}");
    };
    assert_eq!((lun.number, lun.read_only), (3, true));
    assert_eq!(lun.visible_to, Allowed::List(both));
    assert_eq!(
        lun.identity, second.luns[0].identity,
        "one volume is one disk"
    );
    assert_eq!(lun.identity[..4], [0x11; 4]);
    assert!(
        !Arc::ptr_eq(&lun.volume, &second.luns[0].volume),
        "each has its limits"
    );
}

#[test]
fn discovery_tells_of_the_portals_of_iscsi_alone() {
    let mut served = served();
    let socket = |port, protocol, advertise: Option<&str>| Socket {
        address: ([127, 0, 0, 1], port).into(),
        protocol,
        advertise: advertise.map(|text| text.parse().unwrap()),
    };
    served.sockets = vec![
        socket(1, super::super::nvme::PROTOCOL, None),
        socket(2, Protocol::Iscsi, Some("198.51.100.7:3260")),
        socket(3, Protocol::Iscsi, None),
    ];
    let portal = |port, advertise: Option<&str>| Portal {
        address: ([127, 0, 0, 1], port).into(),
        advertise: advertise.map(str::to_owned),
    };
    let expected = [portal(2, Some("198.51.100.7:3260")), portal(3, None)];
    assert_eq!(snapshot(&served).portals, expected);
}

#[test]
fn every_configuration_that_nvme_takes_is_one_of_iscsi() {
    let small = "[transport]\nin_capsule_size = 0\ndata_transfer_size_max = \"8k\"\n[limits]\nqueue_depth = 32\nbytes_in_flight_per_connection = \"64k\"";
    let large = "[limits]\nqueue_depth = 4096\nbytes_in_flight_per_connection = \"1G\"";
    for text in ["", small, large] {
        let config = Config::parse(text, "weir.toml".as_ref()).unwrap();
        for in_flight in [64 << 10, config.limits.bytes_in_flight_per_connection] {
            iscsi_config(&config, in_flight).check().unwrap();
        }
    }
}

#[test]
fn nobody_is_let_in_where_the_secrets_of_a_target_are_missing() {
    let mut served = served();
    let mut state = State::clone(&served.state);
    state.secrets.chap.clear();
    served.state = Arc::new(state);
    let snapshot = snapshot(&served);
    assert_eq!(snapshot.targets[0].allowed, Allowed::List(BTreeSet::new()));
    assert_eq!(snapshot.targets[1].allowed, Allowed::Any);
}
