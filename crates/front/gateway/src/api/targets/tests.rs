//! Targets, logical units, CHAP and sessions over a real Unix socket.

use serde_json::{Value, json};

use super::super::tests::{Client, with_api};
use crate::engine::{CommandKind, ConnectionReport, Latency, SessionReport, ThrottledReport};
use crate::state::ExportName;

const IQN: &str = "iqn.2026-01.com.example:t";
const TARGET: &str = "/v1/iscsi/targets/iqn.2026-01.com.example:t";
const INITIATOR: &str = "iqn.1993-08.org.debian:01:abc";
const SECRET: &str = "a secret of one";
const OTHER: &str = "a secret of two";

async fn add_volume(api: &mut Client) {
    let spec = json!({"url": "mem:?size=1M"});
    api.put("/v1/volumes/a", spec).await.expect(201);
}

fn lun(lun: u16) -> ExportName {
    ExportName::Lun {
        target: IQN.parse().unwrap(),
        lun,
    }
}

#[test]
fn from_a_target_to_a_lun_and_back() {
    with_api(|mut api, engine| async move {
        add_volume(&mut api).await;
        let target = api
            .put(TARGET, json!({"alias": "rack 7"}))
            .await
            .expect(201);
        assert_eq!(
            (&target["name"], &target["allow_any_host"]),
            (&json!(IQN), &json!(false))
        );
        api.put(TARGET, json!({})).await.expect(200);
        let conflict = api.put(TARGET, json!({"alias": "rack 8"})).await;
        conflict.refused(409, "exists", "alias");
        let set = api.patch(TARGET, json!({"alias": ""})).await.expect(200);
        assert_eq!(set["alias"], "");

        let allow = format!("{TARGET}/hosts/rack-7");
        api.put(&allow, json!({}))
            .await
            .refused(404, "not_found", "weir host add rack-7");
        let nameless = api.put("/v1/hosts/rack-7", json!({})).await;
        nameless.refused(
            400,
            "invalid",
            "host rack-7 has no name under which it connects",
        );
        let host = json!({"iqns": [INITIATOR]});
        let added = api.put("/v1/hosts/rack-7", host).await.expect(201);
        assert_eq!(
            (&added["name"], &added["iqns"], &added["nqns"]),
            (&json!("rack-7"), &json!([INITIATOR]), &json!([]))
        );
        api.put(&allow, json!({})).await.expect(201);
        let again = api.put(&allow, json!({})).await.expect(200);
        assert_eq!(again["allowed_hosts"], json!(["rack-7"]));
        let host = api.get("/v1/hosts/rack-7").await.expect(200);
        assert_eq!(host["targets"], json!([IQN]));

        let luns = format!("{TARGET}/luns");
        let spec = json!({"volume": "a", "visible_to": {"hosts": ["rack-7"]}});
        let added = api.post(&luns, spec.clone()).await.expect(201);
        assert_eq!((&added["lun"], &added["online"]), (&json!(0), &json!(true)));
        assert_eq!(api.post(&luns, spec).await.expect(200), added);
        let first = format!("{luns}/0");
        let patch = json!({"read_only": true, "qos": {"read_iops": {"limit": 100}}});
        let set = api.patch(&first, patch).await.expect(200);
        assert_eq!(
            (&set["read_only"], &set["uuid"]),
            (&json!(true), &added["uuid"])
        );
        assert_eq!(set["qos"]["read_iops"]["limit"], 100);
        let other = api
            .put(&format!("{luns}/7"), json!({"volume": "a"}))
            .await
            .expect(201);
        assert_eq!(other["uuid"], added["uuid"], "one volume is one disk");
        assert_eq!(
            api.get(&luns).await.expect(200).as_array().unwrap().len(),
            2
        );
        let volume = api.get("/v1/volumes/a").await.expect(200);
        assert_eq!(volume["uuid"], added["uuid"]);
        assert_eq!(volume["luns"][1], json!({"target": IQN, "lun": 7}));
        let exports: Vec<_> = engine
            .applied()
            .unwrap()
            .exports()
            .map(|of| of.name)
            .collect();
        assert_eq!(exports, [lun(0), lun(7)]);

        for (answer, status, code, piece) in [
            (
                api.put(&format!("{luns}/1024"), json!({"volume": "a"}))
                    .await,
                400,
                "lun_out_of_range",
                "0 to 1023",
            ),
            (
                api.get(&format!("{luns}/9")).await,
                404,
                "not_found",
                "weir lun list",
            ),
            (
                api.post(&luns, json!({"volume": "b"})).await,
                404,
                "not_found",
                "volume",
            ),
            (
                api.post(
                    &luns,
                    json!({"volume": "a", "visible_to": {"hosts": ["x"]}}),
                )
                .await,
                404,
                "not_found",
                "host x",
            ),
            (
                api.put("/v1/iscsi/targets/nqn.2026-01.a:b", json!({}))
                    .await,
                400,
                "invalid",
                "iqn.YYYY-MM",
            ),
            (
                api.delete("/v1/volumes/a").await,
                409,
                "in_use",
                "LUN 0 of target iqn.2026-01",
            ),
            (api.delete(TARGET).await, 409, "in_use", "LUN 0"),
            (
                api.delete("/v1/hosts/rack-7").await,
                409,
                "in_use",
                "target iqn.2026-01",
            ),
        ] {
            answer.refused(status, code, piece);
        }
        api.delete(&first).await.expect(204);
        api.delete(&first)
            .await
            .refused(404, "not_found", "no LUN 0");
        api.delete(&allow).await.expect(204);
        api.delete(&format!("{TARGET}?force=true"))
            .await
            .expect(204);
        api.delete(TARGET).await.refused(404, "not_found", "target");
        api.delete("/v1/volumes/a").await.expect(204);
    });
}

#[test]
fn a_volume_is_a_namespace_and_a_lun_at_once() {
    with_api(|mut api, _| async move {
        add_volume(&mut api).await;
        let subsystem = "/v1/subsystems/nqn.2026-01.com.example:s";
        api.put(subsystem, json!({})).await.expect(201);
        let namespace = format!("{subsystem}/namespaces/1");
        api.put(&namespace, json!({"volume": "a"}))
            .await
            .expect(201);
        api.put(TARGET, json!({})).await.expect(201);
        api.put(&format!("{TARGET}/luns/0"), json!({"volume": "a"}))
            .await
            .expect(201);
        api.delete("/v1/volumes/a").await.refused(
            409,
            "in_use",
            "namespace 1 of subsystem nqn.2026-01.com.example:s, LUN 0 of target iqn.2026-01.com.example:t",
        );
    });
}

#[test]
fn secrets_are_written_and_never_read() {
    with_api(|mut api, engine| async move {
        api.put(TARGET, json!({"allow_any_host": true}))
            .await
            .expect(201);
        let chap = format!("{TARGET}/chap");
        let both =
            json!({"user": "u", "secret": SECRET, "mutual_user": "m", "mutual_secret": OTHER});
        let mut answers = vec![api.put(&chap, both.clone()).await.expect(201)];
        answers.push(api.put(&chap, both).await.expect(200));
        let state = engine.applied().unwrap();
        let secrets = &state.secrets.chap[&IQN.parse().unwrap()];
        assert_eq!(secrets.initiator.expose(), SECRET);
        assert_eq!(
            secrets.target.as_ref().map(crate::state::Secret::expose),
            Some(OTHER)
        );
        for path in [TARGET, "/v1/iscsi/targets", "/v1/status", "/v1/hosts"] {
            answers.push(api.get(path).await.expect(200));
        }
        assert_eq!(answers[0]["chap"], json!({"user": "u", "mutual_user": "m"}));
        api.get(&chap)
            .await
            .refused(405, "no_such_method", "openapi");
        let with = |changes: Value| {
            let mut spec = json!({"user": "u", "secret": SECRET});
            spec.as_object_mut()
                .unwrap()
                .extend(changes.as_object().unwrap().clone());
            spec
        };
        for (changes, piece) in [
            (
                json!({"secret": "short"}),
                "secret must have 12 to 255 bytes",
            ),
            (json!({"user": ""}), "user must have 1 to 255 bytes"),
            (json!({"mutual_user": "m"}), "mutual_secret is missing"),
            (json!({"mutual_secret": OTHER}), "mutual_user is missing"),
            (
                json!({"mutual_user": "m", "mutual_secret": SECRET}),
                "mutual_secret must differ",
            ),
            (
                json!({"mutual_user": "m", "mutual_secret": "short"}),
                "mutual_secret must have 12",
            ),
            (json!({"password": "x"}), "password"),
        ] {
            let answer = api.put(&chap, with(changes)).await;
            assert!(!answer.text.contains(SECRET), "{}", answer.text);
            answer.refused(400, "invalid", piece);
        }
        for answer in answers {
            let text = answer.to_string();
            assert!(!text.contains(SECRET) && !text.contains(OTHER), "{text}");
        }
        api.delete(&chap).await.expect(204);
        api.delete(&chap).await.expect(204);
        assert!(engine.applied().unwrap().secrets.is_empty());
        let view = api.get(TARGET).await.expect(200);
        assert_eq!(view.get("chap"), None);
    });
}

#[test]
fn a_portal_says_what_is_spoken_there() {
    with_api(|mut api, _| async move {
        let path = "/v1/listeners/*:3260";
        let spec = json!({"protocol": "iscsi", "advertise": "198.51.100.7:3260"});
        let added = api.put(path, spec.clone()).await.expect(201);
        assert_eq!(
            (&added["protocol"], &added["advertise"], added.get("kind")),
            (&json!("iscsi"), &json!("198.51.100.7:3260"), None)
        );
        api.put(path, spec).await.expect(200);
        api.put(path, json!({"protocol": "nvme"}))
            .await
            .refused(409, "exists", "protocol");
        for (spec, piece) in [
            (json!({"protocol": "smb"}), "protocol"),
            (
                json!({"protocol": "iscsi", "kind": "discovery"}),
                "kind is for",
            ),
            (json!({"advertise": "198.51.100.7:1"}), "advertise is for"),
            (
                json!({"protocol": "iscsi", "advertise": "*:3260"}),
                "not a wildcard",
            ),
        ] {
            let answer = api.put("/v1/listeners/*:3261", spec).await;
            answer.refused(400, "invalid", piece);
        }
        let nvme = api.put("/v1/listeners/*:4420", json!({})).await.expect(201);
        assert_eq!(
            (&nvme["protocol"], &nvme["kind"]),
            (&json!("nvme"), &json!("all"))
        );
    });
}

fn session(id: u64, target: Option<&str>) -> ConnectionReport {
    ConnectionReport {
        id,
        peer: "192.0.2.1:50000".parse().unwrap(),
        local: "192.0.2.2:3260".parse().unwrap(),
        reactor: 1,
        queue: None,
        client: None,
        session: Some(SessionReport {
            initiator: INITIATOR.parse().unwrap(),
            alias: Some("rack-7".to_owned()),
            isid: "00023d000001".to_owned(),
            target: target.map(|name| name.parse().unwrap()),
            tsih: 4,
            user: Some("u".to_owned()),
            header_digest: true,
            data_digest: false,
        }),
        in_flight: 3,
        received_bytes: 4,
        sent_bytes: 5,
        socket: None,
    }
}

#[test]
fn sessions_limits_and_times_are_shown() {
    with_api(|mut api, engine| async move {
        add_volume(&mut api).await;
        api.put(TARGET, json!({})).await.expect(201);
        let spec = json!({"volume": "a", "qos": {"read_iops": {"limit": 100}}});
        api.put(&format!("{TARGET}/luns/0"), spec).await.expect(201);
        engine.add_connection(session(7, Some(IQN)));
        engine.add_connection(session(8, None));
        let mut unknown = session(9, None);
        unknown.session = None;
        engine.add_connection(unknown);
        let sessions = api.get("/v1/iscsi/sessions").await.expect(200);
        assert_eq!(sessions.as_array().unwrap().len(), 2);
        let expected = json!({
            "connection": 7, "peer": "192.0.2.1:50000", "reactor": 1, "in_flight": 3, "initiator": INITIATOR, "alias": "rack-7",
            "isid": "00023d000001", "target": IQN, "tsih": 4, "user": "u", "header_digest": true, "data_digest": false
        });
        assert_eq!(sessions[0], expected);
        assert_eq!(sessions[1].get("target"), None);

        let throttled = ThrottledReport {
            requests: 5,
            waited_ns: 1_000_000_000,
            waiting: 1,
        };
        engine.set_throttled(lun(0), throttled);
        let mut latency = Latency::default();
        latency.add(CommandKind::Read, [1, 2, 3, 4], 1);
        engine.set_export_latency(lun(0), latency);
        let status = api.get("/v1/status").await.expect(200);
        for (field, value) in [
            ("targets", 1),
            ("luns", 1),
            ("limited_luns", 1),
            ("limited_namespaces", 0),
            ("sessions", 2),
        ] {
            assert_eq!(status[field], value, "{field}");
        }
        assert_eq!(status["throttled"]["requests"], 5);
        let problems = status["problems"].to_string();
        assert!(
            problems.contains(&format!("no host may log in to target {IQN}")),
            "{problems}"
        );
        assert!(
            problems.contains("there are targets, but no listener"),
            "{problems}"
        );
        let metrics = api.get("/metrics").await.text;
        for line in [
            format!("weir_lun_limit{{target=\"{IQN}\",lun=\"0\",limit=\"read_iops\"}} 100"),
            format!("weir_lun_throttled_requests_total{{target=\"{IQN}\",lun=\"0\"}} 5"),
            "weir_targets 1".to_owned(),
            "weir_luns 1".to_owned(),
        ] {
            assert!(metrics.contains(&line), "no {line:?} in:\n{metrics}");
        }
        let all = api.get("/v1/latency/luns").await.expect(200);
        assert_eq!(all[0]["commands"][0]["count"], 1);
        let one = api
            .get(&format!("{TARGET}/luns/0/latency"))
            .await
            .expect(200);
        assert_eq!(one, all[0]);
        api.get(&format!("{TARGET}/luns/1/latency"))
            .await
            .refused(404, "not_found", "no LUN 1");
        assert_eq!(
            api.get("/v1/latency/namespaces").await.expect(200),
            json!([])
        );
        api.put("/v1/listeners/*:3260", json!({"protocol": "iscsi"}))
            .await
            .expect(201);
        let status = api.get("/v1/status").await.expect(200);
        assert!(!status["problems"].to_string().contains("no listener"));
    });
}
