//! The API over a real Unix socket, with an engine that has no data path.

use std::path::Path;

use axum::http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::socket::ControlSocket;
use super::*;
use crate::engine::fake::FakeEngine;
use crate::engine::{CommandKind, ConnectionReport, Latency, QueueReport, RevokedReport};
use crate::state::{ExportName, InitiatorName};
use crate::store::FileStore;
use weir_testing::exposition::assert_scrapes;

const SUBSYSTEM: &str = "/v1/subsystems/nqn.2026-01.com.example:s";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11";

pub(super) struct Client {
    path: std::path::PathBuf,
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
}

pub(super) struct Answer {
    status: u16,
    pub(super) text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// A refusal: its status and code, and a piece of its message and hint.
    #[track_caller]
    pub(super) fn refused(self, status: u16, code: &str, piece: &str) {
        let body = self.expect(status);
        assert_eq!(body["error"]["code"], code, "{body}");
        assert!(body.to_string().contains(piece), "{body} without {piece:?}");
        assert!(
            body["error"]["message"]
                .as_str()
                .is_some_and(|text| !text.is_empty())
        );
    }
}

impl Client {
    async fn connect(path: &Path) -> Self {
        let stream = tokio::net::UnixStream::connect(path).await.unwrap();
        let io = TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        Self {
            path: path.to_owned(),
            sender,
        }
    }

    async fn send(&mut self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        let request = request.header("content-type", "application/json");
        let request = request.body(Full::new(body.into())).unwrap();
        let response = self.sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        Answer {
            status,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    pub(super) async fn put(&mut self, path: &str, body: Value) -> Answer {
        self.send(Method::PUT, path, body.to_string()).await
    }

    pub(super) async fn patch(&mut self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, body.to_string()).await
    }

    pub(super) async fn post(&mut self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, body.to_string()).await
    }

    pub(super) async fn delete(&mut self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "").await
    }
}

/// Runs `test` against a served API.
pub(super) fn with_api<F: Future<Output = ()>>(test: impl FnOnce(Client, Arc<FakeEngine>) -> F) {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let engine = Arc::new(FakeEngine::new());
        let store = FileStore::open(&directory.path().join("state.json")).unwrap();
        let control = Control::start(engine.clone(), Box::new(store))
            .await
            .unwrap();
        let about = About {
            budget: crate::limits::Budget::default(),
            version: "0.0.0",
            state: "here".into(),
            started: Instant::now(),
        };
        let path = directory.path().join("weir.sock");
        let socket = ControlSocket::bind(&path).unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let router = router(control, about);
        let serving = tokio::spawn(async move {
            socket
                .serve(router, async { drop(ended.await) })
                .await
                .unwrap();
        });
        test(Client::connect(&path).await, engine).await;
        drop(end);
        serving.await.unwrap();
    });
}

#[test]
fn a_volume_is_added_served_resized_and_removed() {
    with_api(|mut api, engine| async move {
        let spec = json!({"url": "mem:?size=1M"});
        let added = api.put("/v1/volumes/a", spec.clone()).await.expect(201);
        assert_eq!(
            (&added["name"], &added["status"]),
            (&json!("a"), &json!("online"))
        );
        assert_eq!(added["report"]["size_bytes"], 1 << 20);
        assert_eq!(api.put("/v1/volumes/a", spec).await.expect(200), added);
        api.put(SUBSYSTEM, json!({})).await.expect(201);
        let namespaces = format!("{SUBSYSTEM}/namespaces");
        let namespace = api
            .post(&namespaces, json!({"volume": "a"}))
            .await
            .expect(201);
        assert_eq!(
            (&namespace["nsid"], &namespace["online"]),
            (&json!(1), &json!(true))
        );
        let again = api
            .post(&namespaces, json!({"volume": "a"}))
            .await
            .expect(200);
        assert_eq!(again, namespace);
        let found = api.get(&format!("{namespaces}/1")).await.expect(200);
        assert_eq!(found, namespace);
        let resized = api
            .post("/v1/volumes/a/resize", json!({"size": "2M"}))
            .await
            .expect(200);
        assert_eq!(resized["report"]["size_bytes"], 2 << 20);
        assert_eq!(resized["namespaces"][0]["nsid"], 1);
        let shrink = api
            .post("/v1/volumes/a/resize", json!({"size": 1 << 20}))
            .await;
        shrink.refused(409, "would_shrink", "--force");
        let shrink = json!({"size": 1 << 20, "force": true});
        api.post("/v1/volumes/a/resize", shrink).await.expect(200);
        api.delete("/v1/volumes/a").await.refused(
            409,
            "in_use",
            "namespace 1 of subsystem nqn.2026-01",
        );
        api.delete(&format!("{namespaces}/1")).await.expect(204);
        api.delete("/v1/volumes/a").await.expect(204);
        api.delete("/v1/volumes/a")
            .await
            .refused(404, "not_found", "weir volume list");
        assert!(engine.open_volumes().is_empty());
        assert_eq!(api.get("/v1/volumes").await.expect(200), json!([]));
    });
}

#[test]
fn subsystems_hosts_and_visibility() {
    with_api(|mut api, engine| async move {
        api.put("/v1/volumes/a", json!({"url": "mem:?size=1M"}))
            .await
            .expect(201);
        let subsystem = api.put(SUBSYSTEM, json!({"model": "M"})).await.expect(201);
        assert_eq!(subsystem["serial"].as_str().unwrap().len(), 20);
        assert_eq!(subsystem["allow_any_host"], false);
        let conflict = api.put(SUBSYSTEM, json!({"model": "N"})).await;
        conflict.refused(409, "exists", "model number");
        let allow = format!("{SUBSYSTEM}/hosts/{HOST}");
        api.put(&allow, json!({}))
            .await
            .refused(404, "not_found", "weir host add");
        let host = format!("/v1/hosts/{HOST}");
        api.put(&host, json!({"note": "rack 7"})).await.expect(201);
        api.put(&allow, json!({})).await.expect(201);
        assert_eq!(
            api.put(&allow, json!({})).await.expect(200)["allowed_hosts"],
            json!([HOST])
        );
        assert_eq!(
            api.get(&host).await.expect(200)["subsystems"][0],
            subsystem["nqn"]
        );
        let options = json!({"socket_options": {"dscp": 10, "congestion_control": "reno"}});
        let set = api.patch(&host, options).await.expect(200);
        assert_eq!(
            (&set["note"], &set["socket_options"]["dscp"]),
            (&json!("rack 7"), &json!(10))
        );
        let namespace = format!("{SUBSYSTEM}/namespaces/7");
        let spec = json!({"volume": "a", "visible_to": {"hosts": [HOST]}});
        let added = api.put(&namespace, spec).await.expect(201);
        assert_eq!(added["visible_to"], json!({"hosts": [HOST]}));
        let set = api
            .patch(&namespace, json!({"visible_to": "all", "read_only": true}))
            .await;
        let set = set.expect(200);
        assert_eq!(
            (&set["visible_to"], &set["read_only"]),
            (&json!("all"), &json!(true))
        );
        assert_eq!(set["uuid"], added["uuid"]);
        let nameless = json!({"visible_to": {"hosts": ["not-an-nqn"]}});
        let answer = api.patch(&namespace, nameless).await;
        answer.refused(400, "invalid", "visible_to");
        let nameless = json!({"volume": "a", "visible_to": {"hosts": ["not-an-nqn"]}});
        let answer = api.put(&namespace, nameless.clone()).await;
        answer.refused(400, "invalid", "visible_to");
        let answer = api.post(&format!("{SUBSYSTEM}/namespaces"), nameless).await;
        answer.refused(400, "invalid", "not-an-nqn");
        api.delete(&host)
            .await
            .refused(409, "in_use", "subsystem nqn.2026-01");
        api.delete(&format!("{host}?force=true")).await.expect(204);
        api.delete(SUBSYSTEM)
            .await
            .refused(409, "in_use", "namespace 7");
        api.delete(&format!("{SUBSYSTEM}?force=true"))
            .await
            .expect(204);
        assert!(engine.applied().unwrap().subsystems.is_empty());
        let any = api
            .put(SUBSYSTEM, json!({"allow_any_host": true}))
            .await
            .expect(201);
        assert_eq!(any["allow_any_host"], true);
        let none = api
            .patch(SUBSYSTEM, json!({"allow_any_host": false}))
            .await
            .expect(200);
        assert_eq!(none["allow_any_host"], false);
    });
}

#[test]
fn limits_of_a_namespace_are_set_one_by_one() {
    with_api(|mut api, engine| async move {
        let volume = json!({"url": "mem:?size=1M"});
        api.put("/v1/volumes/a", volume).await.expect(201);
        api.put(SUBSYSTEM, json!({})).await.expect(201);
        let namespace = format!("{SUBSYSTEM}/namespaces/1");
        let spec = json!({"volume": "a", "qos": {"read_iops": {"limit": 1000}}});
        let added = api.put(&namespace, spec.clone()).await.expect(201);
        let reads = json!({"limit": 1000, "burst": 100});
        assert_eq!(added["qos"], json!({"read_iops": reads}));
        api.put(&namespace, spec).await.expect(200);
        let differs = json!({"volume": "a", "qos": {"read_iops": {"limit": 1001}}});
        api.put(&namespace, differs)
            .await
            .refused(409, "exists", "qos");
        let silent = json!({"volume": "a"});
        api.put(&namespace, silent).await.expect(200);

        let patch = json!({"qos": {"total_bandwidth": {"limit": 1 << 20, "burst": 4096 * 16}}});
        let set = api.patch(&namespace, patch).await.expect(200);
        let total = json!({"limit": 1 << 20, "burst": 65536});
        assert_eq!(
            set["qos"],
            json!({"read_iops": reads, "total_bandwidth": total})
        );
        let nqn = added["subsystem"].as_str().unwrap().parse().unwrap();
        let waited = crate::engine::ThrottledReport {
            requests: 3,
            waited_ns: 5_000_000,
            waiting: 1,
        };
        let subsystem = nqn;
        engine.set_throttled(ExportName::Namespace { subsystem, nsid: 1 }, waited);
        let status = api.get("/v1/status").await.expect(200);
        assert_eq!(
            (
                &status["limited_namespaces"],
                &status["throttled"]["requests"]
            ),
            (&json!(1), &json!(3))
        );
        let page = api.get("/metrics").await.text;
        assert_scrapes(&page);
        assert!(
            page.contains("weir_namespace_throttled_seconds_total{subsystem="),
            "{page}"
        );
        assert!(page.contains("} 0.005"), "{page}");

        let patch = json!({"qos": {"read_iops": {"limit": 0}, "total_bandwidth": {"limit": 0}}});
        let set = api.patch(&namespace, patch).await.expect(200);
        assert_eq!(set["qos"], json!({}));
        for (limit, burst, says) in [
            (1_u64 << 51, 1_u64 << 50, "must be 1 to"),
            (u64::MAX, 1, "must be 1 to"),
            (1000, 9, "at least a hundredth"),
            (1000, 0, "at least a hundredth"),
            (1000, u64::MAX, "at least a hundredth"),
        ] {
            let patch = json!({"qos": {"write_iops": {"limit": limit, "burst": burst}}});
            api.patch(&namespace, patch)
                .await
                .refused(400, "invalid", says);
        }
        let patch = json!({"qos": {"write_iops": {"limit": -1}}});
        api.patch(&namespace, patch)
            .await
            .refused(400, "invalid", "-1");
        let patch = json!({"qos": {"reads": {"limit": 1}}});
        api.patch(&namespace, patch)
            .await
            .refused(400, "invalid", "reads");
        assert!(
            engine
                .applied()
                .unwrap()
                .namespaces()
                .all(|(_, _, one)| one.qos.is_empty())
        );
    });
}

#[test]
fn listeners_by_every_kind_of_address() {
    with_api(|mut api, engine| async move {
        for path in [
            "*:4420",
            "10.0.0.1:4421",
            "%5B::1%5D:4422",
            "gw.example.com:8009",
        ] {
            let path = format!("/v1/listeners/{path}");
            let added = api
                .put(&path, json!({"kind": "discovery"}))
                .await
                .expect(201);
            assert_eq!(
                (&added["status"], &added["kind"]),
                (&json!("listening"), &json!("discovery"))
            );
            assert_eq!(api.get(&path).await.expect(200), added);
            let options = json!({"socket_options": {"send_buffer": 65536}});
            let set = api.patch(&path, options).await.expect(200);
            assert_eq!(set["socket_options"]["send_buffer"], 65536);
            api.post(&format!("{path}/retry"), json!({}))
                .await
                .expect(200);
            api.delete(&path).await.expect(204);
        }
        let address = "*:4420".parse().unwrap();
        engine.fail_listener(&address, true);
        let failed = api.put("/v1/listeners/*:4420", json!({})).await;
        failed.refused(422, "listen_failed", "ss -ltn");
        assert_eq!(api.get("/v1/listeners").await.expect(200), json!([]));
    });
}

#[test]
fn wrong_requests_are_refused_in_the_apis_own_way() {
    with_api(|mut api, engine| async move {
        api.get("/v1/nothing")
            .await
            .refused(404, "no_such_path", "openapi.json");
        api.post("/v1/volumes/a", json!({}))
            .await
            .refused(405, "no_such_method", "openapi.json");
        let put = |body: &'static str| (Method::PUT, "/v1/volumes/a", body);
        let cases = [
            (put("{"), "EOF"),
            (put(""), "missing field `url`"),
            (put("{\"url\": 1}"), "expected a string"),
            (
                put("{\"url\": \"mem:\", \"size\": 1}"),
                "unknown field `size`",
            ),
            (
                put("{\"url\": \"nothing\"}"),
                "must start with the kind of volume",
            ),
            (
                (Method::PUT, "/v1/volumes/-a", "{\"url\": \"mem:\"}"),
                "must start with a letter",
            ),
            (
                (Method::GET, "/v1/subsystems/iqn.x", ""),
                "must have the form nqn.",
            ),
            ((Method::GET, "/v1/listeners/4420", ""), "has no port"),
            ((Method::GET, "/v1/connections/x", ""), "Cannot parse"),
            (
                (Method::DELETE, "/v1/hosts/nqn.2026-01.a:b?force=si", ""),
                "force",
            ),
            (
                (Method::DELETE, "/v1/hosts/nqn.2026-01.a:b?fierce=true", ""),
                "unknown field",
            ),
            (
                (Method::POST, "/v1/volumes/a/resize", "{\"size\": \"10X\"}"),
                "'10X' is not a size",
            ),
            (
                (Method::POST, "/v1/volumes/a/resize", "{\"size\": -1}"),
                "a size such as",
            ),
        ];
        for ((method, path, body), piece) in cases {
            api.send(method, path, body)
                .await
                .refused(400, "invalid", piece);
        }
        let huge = "x".repeat(BODY_LENGTH_MAX + 1);
        let huge = api.send(Method::PUT, "/v1/volumes/a", huge).await;
        assert_eq!(huge.status, 413, "{}", huge.text);
        assert_eq!(engine.applied().unwrap().revision, 0);
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    with_api(|mut api, engine| async move {
        engine.fail_url("mem:", true);
        let failed = api.put("/v1/volumes/a", json!({"url": "mem:"})).await;
        failed.refused(422, "volume_open_failed", "told to fail");
        api.post("/v1/volumes/a/retry", json!({}))
            .await
            .refused(404, "not_found", "volume a");
        engine.fail_applies(1);
        let failed = api.put("/v1/volumes/a", json!({"url": "null:"})).await;
        failed.refused(500, "reactor_lost", "restart");
        assert_eq!(api.get("/v1/volumes").await.expect(200), json!([]));
    });
}

#[test]
fn connections_reactors_status_and_metrics() {
    with_api(|mut api, engine| async move {
        engine.add_connection(ConnectionReport {
            id: 7,
            peer: "192.0.2.1:50000".parse().unwrap(),
            local: "192.0.2.2:4420".parse().unwrap(),
            reactor: 1,
            session: None,
            client: None,
            queue: Some(QueueReport {
                host: HOST.parse().unwrap(),
                subsystem: "nqn.2026-01.com.example:s".parse().unwrap(),
                controller_id: 1,
                queue_id: 2,
                queue_depth: 32,
                flow_control: false,
                header_digest: true,
                data_digest: false,
            }),
            in_flight: 3,
            received_bytes: 4,
            sent_bytes: 5,
            socket: None,
        });
        let listed = api.get("/v1/connections").await.expect(200);
        assert_eq!(listed[0]["queue"]["host"], HOST);
        assert_eq!(api.get("/v1/connections/7").await.expect(200), listed[0]);
        assert_eq!(api.get("/v1/reactors").await.expect(200)[1]["id"], 1);
        api.put(SUBSYSTEM, json!({})).await.expect(201);
        let status = api.get("/v1/status").await.expect(200);
        assert_eq!(
            (&status["connections"], &status["subsystems"]),
            (&json!(1), &json!(1))
        );
        let problems = status["problems"].to_string();
        assert!(problems.contains("no host may connect"), "{problems}");
        assert!(problems.contains("no listener"), "{problems}");
        let page = api.get("/metrics").await;
        assert_eq!(page.status, 200);
        assert_scrapes(&page.text);
        for line in [
            "weir_subsystems 1",
            "weir_reactor_turns_total{reactor=\"0\"} 1000",
        ] {
            assert!(
                page.text.lines().any(|found| found == line),
                "{}",
                page.text
            );
        }
        api.delete("/v1/connections/7").await.expect(204);
        api.delete("/v1/connections/7")
            .await
            .refused(404, "not_found", "weir connection list");
    });
}

#[test]
fn changes_that_come_together_happen_one_after_another() {
    with_api(|mut api, engine| async move {
        let mut clients = Vec::new();
        for index in 0..30 {
            let mut client = Client::connect(&api.path).await;
            clients.push(tokio::spawn(async move {
                let path = format!("/v1/volumes/v{index}");
                client
                    .put(&path, json!({"url": "mem:?size=1M"}))
                    .await
                    .expect(201);
                // All of them want the same one, and exactly one of them adds it.
                client
                    .put("/v1/volumes/same", json!({"url": "mem:?size=1M"}))
                    .await
                    .status
            }));
        }
        let mut added = 0;
        for client in clients {
            added += u32::from(client.await.unwrap() == 201);
        }
        assert_eq!(added, 1);
        assert_eq!(
            api.get("/v1/volumes")
                .await
                .expect(200)
                .as_array()
                .unwrap()
                .len(),
            31
        );
        assert_eq!(engine.applied().unwrap().revision, 31);
    });
}

fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let text = prop_oneof![
        Just("mem:?size=1M".to_owned()),
        Just(SUBSYSTEM.trim_start_matches("/v1/subsystems/").to_owned()),
        Just("all".to_owned()),
        ".{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u32..5).prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("url".to_owned()),
        Just("volume".to_owned()),
        Just("visible_to".to_owned()),
        Just("hosts".to_owned()),
        Just("size".to_owned()),
        Just("force".to_owned()),
        Just("socket_options".to_owned()),
        Just("controller_ids".to_owned()),
        Just("min".to_owned()),
        ".{0,6}",
    ];
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_request() -> impl proptest::strategy::Strategy<Value = (Method, String, String)> {
    use proptest::prelude::*;
    let method = prop_oneof![
        Just(Method::GET),
        Just(Method::PUT),
        Just(Method::PATCH),
        Just(Method::POST),
        Just(Method::DELETE)
    ];
    let segment = || {
        prop_oneof![
            Just("a".to_owned()),
            Just("1".to_owned()),
            Just("*:4420".to_owned()),
            Just(HOST.to_owned()),
            Just("nqn.2026-01.com.example:s".to_owned()),
            Just("resize".to_owned()),
            Just("namespaces".to_owned()),
            Just("hosts".to_owned()),
            "[a-zA-Z0-9:._%-]{1,8}",
        ]
    };
    let kind = prop_oneof![
        Just("volumes"),
        Just("subsystems"),
        Just("hosts"),
        Just("listeners"),
        Just("connections"),
        Just("status")
    ];
    let body = prop_oneof![
        4 => any_json().prop_map(|value| value.to_string()),
        1 => ".{0,30}",
    ];
    let path = (kind, proptest::collection::vec(segment(), 0..4));
    let path = path.prop_map(|(kind, rest)| {
        let parts: Vec<_> = [kind.to_owned()].into_iter().chain(rest).collect();
        format!("/v1/{}", parts.join("/"))
    });
    (method, path, body)
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(48))]

    /// Whatever is asked: the answer is a success, or a refusal of the API's own form, and never a
    /// failure of the gateway; the state that comes of it is right and is in force.
    #[test]
    fn any_request_is_answered_in_the_apis_own_way(
        requests in proptest::collection::vec(any_request(), 1..40),
    ) {
        with_api(|mut api, engine| async move {
            for (method, path, body) in requests {
                let answer = api.send(method.clone(), &path, body.clone()).await;
                let context = format!("{method} {path} {body}: {} {}", answer.status, answer.text);
                match answer.status {
                    200 | 201 | 204 => {}
                    400 | 404 | 405 | 409 | 422 => {
                        let refusal: error::ErrorBody = serde_json::from_str(&answer.text)
                            .unwrap_or_else(|error| panic!("{error}: {context}"));
                        assert!(!refusal.error.message.is_empty(), "{context}");
                    }
                    _ => panic!("{context}"),
                }
            }
            engine.applied().unwrap().check().unwrap();
        });
    }
}

fn reads(spent_ns: [u64; 4], count: u64) -> Latency {
    let mut latency = Latency::default();
    latency.add(CommandKind::Read, spent_ns, count);
    latency
}

#[test]
fn latencies_of_namespaces_and_connections() {
    with_api(|mut api, engine| async move {
        let nqn: crate::name::Nqn = "nqn.2026-01.com.example:s".parse().unwrap();
        api.put(SUBSYSTEM, json!({})).await.expect(201);
        let volume = json!({"url": "mem:?size=1G"});
        api.put("/v1/volumes/one", volume).await.expect(201);
        let path = format!("{SUBSYSTEM}/namespaces/1");
        api.put(&path, json!({"volume": "one"})).await.expect(201);

        let path = format!("{path}/latency");
        let nothing = json!({"subsystem": nqn, "nsid": 1, "commands": []});
        assert_eq!(api.get(&path).await.expect(200), nothing);
        let export = ExportName::Namespace {
            subsystem: nqn.clone(),
            nsid: 1,
        };
        engine.set_export_latency(export, reads([0, 1_000, 64_000, 3_000], 10));
        engine.set_connection_latency(7, Latency::default());
        let shown = api.get(&path).await.expect(200);
        let of = &shown["commands"][0];
        assert_eq!((&of["command"], &of["count"]), (&json!("read"), &json!(10)));
        let same = |ns: u64| json!({"mean_ns": ns, "p50_ns": ns, "p99_ns": ns, "p999_ns": ns, "max_ns": ns});
        assert_eq!(of["wire_in"], same(0));
        assert_eq!(of["queue"], same(1_000));
        assert_eq!(of["volume"], same(64_000));
        assert_eq!(of["wire_out"], same(3_000));
        assert_eq!(of["total"], same(68_000));
        let listed = api.get("/v1/latency/namespaces").await.expect(200);
        assert_eq!(listed, json!([shown]));
        let idle = json!({"connection": 7, "commands": []});
        assert_eq!(api.get("/v1/connections/7/latency").await.expect(200), idle);
        let listed = api.get("/v1/latency/connections").await.expect(200);
        assert_eq!(listed, json!([idle]));

        let missing = format!("{SUBSYSTEM}/namespaces/2/latency");
        api.get(&missing)
            .await
            .refused(404, "not_found", "namespace");
        let missing = api.get("/v1/connections/8/latency").await;
        missing.refused(404, "not_found", "weir connection list");
        for (wrong, piece) in [
            ("interval=0", "1 to 60 seconds"),
            ("interval=61", "1 to 60 seconds"),
            ("interval=x", "invalid digit"),
            ("seconds=1", "unknown field"),
        ] {
            let answer = api.get(&format!("/v1/latency/namespaces?{wrong}")).await;
            answer.refused(400, "invalid", piece);
        }
    });
}

/// Over an interval only what came in it is shown.
#[test]
fn latencies_over_an_interval() {
    with_api(|mut api, engine| async move {
        const ATTEMPTS: u32 = 20;
        let slow = reads([0, 0, 9_000_000, 0], 5);
        engine.set_connection_latency(8, slow.clone());
        let mut now = slow.clone();
        now.merge(&reads([0, 0, 500, 0], 3));
        let mut shown = Value::Null;
        for _ in 0..ATTEMPTS {
            engine.set_connection_latency(7, slow.clone());
            let later = async {
                tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                engine.set_connection_latency(7, now.clone());
            };
            let asked = api.get("/v1/latency/connections?interval=1");
            let (answer, ()) = tokio::join!(asked, later);
            shown = answer.expect(200);
            // Nothing is shown where the machine stood still, so that both came before the interval or after it.
            if shown[0]["commands"] != json!([]) {
                break;
            }
        }
        let of = &shown[0]["commands"][0];
        assert_eq!(
            (&of["count"], &of["volume"]["mean_ns"]),
            (&json!(3), &json!(500))
        );
        assert!(of["volume"]["max_ns"].as_u64().unwrap() < 600, "{of}");
        assert_eq!(shown[1], json!({"connection": 8, "commands": []}));
    });
}

/// The description in the tree is the one that the program gives; `WEIR_UPDATE=1` writes it anew.
#[test]
fn the_committed_description_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/openapi.json");
    let current = open_api();
    if std::env::var_os("WEIR_UPDATE").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == current,
        "docs/openapi.json is not current: run WEIR_UPDATE=1 cargo test -p weir-gateway description"
    );
}

/// Every path that is described is served, and every operation has a name and a summary.
#[test]
fn the_description_is_served_and_complete() {
    with_api(|mut api, _engine| async move {
        let description = api.get("/v1/openapi.json").await.expect(200);
        let paths = description["paths"].as_object().unwrap();
        assert!(paths.len() > 15, "{}", paths.len());
        for (path, operations) in paths {
            for (method, operation) in operations.as_object().unwrap() {
                assert!(operation["operationId"].is_string(), "{method} {path}");
                assert!(operation["summary"].is_string(), "{method} {path}");
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let answer = api.send(method.clone(), path, "").await;
                assert_ne!(answer.status, 405, "{method} {path}");
                assert!(!answer.text.contains("no_such_path"), "{method} {path}");
            }
        }
    });
}

/// Everything that the description refers to is in it.
#[test]
fn the_description_refers_to_nothing_missing() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    found.push(reference.clone());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let description: Value = serde_json::from_str(&open_api()).unwrap();
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(found.len() > 50, "{}", found.len());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(
            description.pointer(pointer).is_some(),
            "{reference} is missing"
        );
    }
}

#[test]
fn what_was_taken_away_and_has_not_ended_is_told_and_shown() {
    with_api(|mut api, engine| async move {
        let volume = json!({"url": "mem:a?size=1M"});
        api.put("/v1/volumes/a", volume).await.expect(201);
        api.put(SUBSYSTEM, json!({})).await.expect(201);
        let namespace = format!("{SUBSYSTEM}/namespaces/1");
        api.put(&namespace, json!({"volume": "a"}))
            .await
            .expect(201);
        engine.set_revoked(vec![RevokedReport {
            host: InitiatorName::Nqn(HOST.parse().unwrap()),
            export: ExportName::Namespace {
                subsystem: "nqn.2026-01.com.example:s".parse().unwrap(),
                nsid: 1,
            },
            requests: 7,
        }]);
        let read_only = json!({"read_only": true});
        let answer = api.patch(&namespace, read_only.clone()).await;
        answer.refused(504, "under_way", "7 of host");
        let shown = api.get(&namespace).await.expect(200);
        assert_eq!(shown["read_only"], true, "it is in force");
        let problems = api.get("/v1/status").await.expect(200)["problems"].to_string();
        assert!(problems.contains("7 of host"), "{problems}");
        engine.set_revoked(Vec::new());
        api.patch(&namespace, read_only).await.expect(200);
        let problems = api.get("/v1/status").await.expect(200)["problems"].to_string();
        assert!(!problems.contains("of host"), "{problems}");
    });
}
