//! Images of a Ceph cluster by way of a real gateway, on the library that stands for Ceph's.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use weir_volume::VolumeUrl;

use crate::common::gateway::{Gateway, Load, WEIR, recovering, url};
use crate::common::{by_night, free_port, nightly, until};

const SUBSYSTEM: &str = "nqn.2026-01.com.example:s";

/// A gateway whose Ceph is the library that cargo has built beside this test.
struct WithCeph {
    gateway: Gateway,
    conf: PathBuf,
    library: PathBuf,
}

/// The library that stands for Ceph's.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test is a file");
    let library = test.with_file_name("libweir_fake_librbd.so");
    assert!(library.is_file(), "{} was not built", library.display());
    library
}

impl WithCeph {
    fn started() -> Self {
        let library = library();
        let gateway = Gateway::prepared("");
        let (conf, commands) = (gateway.path("ceph.conf"), gateway.path("commands"));
        let text = format!(
            "[global]\nmon host = test\nfake commands = {}\n",
            commands.display()
        );
        std::fs::write(&conf, text).expect("it can be written to");
        let mut ceph = WithCeph {
            gateway,
            conf,
            library,
        };
        ceph.start();
        ceph
    }

    /// The cluster is in the gateway's process, and as new where that is.
    fn start(&mut self) {
        let mut command = self.gateway.serving(WEIR);
        command
            .env("WEIR_LIBRADOS", &self.library)
            .env("WEIR_LIBRBD", &self.library);
        self.gateway.start_with(command);
    }

    /// `weir image ...` on this cluster.
    fn image(&self, arguments: &str) -> String {
        format!("image {arguments} --conf {}", self.conf.display())
    }

    #[track_caller]
    fn ok(&self, arguments: &str) -> String {
        self.gateway.ok(&self.image(arguments))
    }

    /// Deletes an image whose volume was removed: it is closed by a thread, some time later.
    #[track_caller]
    fn delete_closed(&self, image: &str) {
        until("the image is closed", || {
            let deleted = self.gateway.weir(&self.image(&format!("delete {image}")));
            let text = String::from_utf8_lossy(&deleted.stderr);
            let is_open = text.contains("it is in use");
            assert!(deleted.status.success() || is_open, "{text}");
            !is_open
        });
    }

    #[track_caller]
    fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{arguments} --json"))).expect("JSON")
    }

    #[track_caller]
    fn fails(&self, arguments: &str, pieces: &[&str]) {
        let output = self.gateway.weir(&self.image(arguments));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments}: {output:?}");
        for piece in pieces {
            assert!(text.contains(piece), "{arguments}: no {piece:?}:\n{text}");
        }
    }

    fn url(&self, image: &str, more: &str) -> String {
        format!("rbd:{image}?conf={}{more}", self.conf.display())
    }

    /// Serves a new image `rbd/a` as volume `v`; the URL of its namespace.
    fn serve(&self, more: &str) -> String {
        let gateway = &self.gateway;
        self.ok("create rbd/a --size 4M");
        gateway.ok(&format!("volume add v {}", self.url("rbd/a", more)));
        gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} v"));
        let port = free_port();
        gateway.ok(&format!("listener add 127.0.0.1:{port}"));
        recovering(&url(port, SUBSYSTEM, 1))
    }

    /// Tells the cluster what to do wrong.
    fn tell(&self, command: &str) {
        let file = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.gateway.path("commands"));
        let line = format!("{command}\n");
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        written.expect("it can be written to");
    }
}

#[test]
fn images_are_made_listed_resized_deleted_and_restored() {
    let ceph = WithCeph::started();
    let made = ceph.json("create rbd/a --size 8M");
    assert_eq!((&made["pool"], &made["name"]), (&json!("rbd"), &json!("a")));
    assert_eq!(made["size_bytes"], 8 << 20);
    assert!(
        ceph.ok("create rbd/b --size 1M")
            .starts_with("added image rbd/b")
    );
    let again = ceph.ok("create rbd/b --size 1M");
    assert!(again.starts_with("nothing to do"), "{again}");
    ceph.fails(
        "create rbd/b --size 2M",
        &["rbd/b", "1048576", "weir image resize"],
    );
    ceph.ok("create rbd/d --size 1M --data-pool fast");
    let again = ceph.ok("create rbd/d --size 1M --data-pool fast");
    assert!(again.starts_with("nothing to do"), "{again}");
    let elsewhere = ["rbd/d", "its data in pool fast", "not in pool slow"];
    ceph.fails("create rbd/d --size 1M --data-pool slow", &elsewhere);
    // Who does not ask takes it as it is, and the image's own pool is one like others.
    let again = ceph.ok("create rbd/d --size 1M");
    assert!(again.starts_with("nothing to do"), "{again}");
    let again = ceph.ok("create rbd/b --size 1M --data-pool rbd");
    assert!(again.starts_with("nothing to do"), "{again}");
    let elsewhere = ["rbd/b", "its data in pool rbd", "not in pool fast"];
    ceph.fails("create rbd/b --size 1M --data-pool fast", &elsewhere);
    ceph.ok("delete rbd/d");
    ceph.fails("create rbd/c --size 0", &["no bytes"]);
    ceph.fails(
        "create rbd/c --size 1M --object-size 5000",
        &["5000", "power of two"],
    );
    // A namespace has images of its own.
    ceph.ok("create rbd/n/a --size 2M");
    assert_eq!(ceph.json("show rbd/n/a")["size_bytes"], 2 << 20);
    let names = |pool: &str| {
        let all = ceph.json(&format!("list {pool}"));
        let all = all.as_array().expect("a list").iter();
        all.map(|image| image["name"].as_str().expect("a name").to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("rbd"), ["a", "b"]);
    assert_eq!(names("rbd/n"), ["a"]);

    assert_eq!(ceph.json("resize rbd/b 4M")["size_bytes"], 4 << 20);
    ceph.fails("resize rbd/b 1M", &["rbd/b", "4194304", "--force"]);
    assert_eq!(ceph.json("resize rbd/b 1M --force")["size_bytes"], 1 << 20);

    let done = ceph.ok("delete rbd/b");
    assert!(done.contains("weir image trash rbd"), "{done}");
    assert_eq!(names("rbd"), ["a"]);
    let trash = ceph.json("trash rbd");
    let trash = trash.as_array().expect("a list").iter();
    let mut trash = trash.filter(|image| image["name"] == "b");
    let id = &trash.next().expect("it is there")["id"];
    let id = id.as_str().expect("an identifier");
    ceph.fails(&format!("restore rbd {id} a"), &["rbd/a", "exists already"]);
    ceph.ok(&format!("restore rbd {id} c"));
    assert_eq!(names("rbd"), ["a", "c"]);

    for arguments in [
        "show rbd/x",
        "delete rbd/x",
        "resize rbd/x 1M",
        "snapshot list rbd/x",
    ] {
        ceph.fails(arguments, &["rbd/x", "does not exist"]);
    }
    ceph.tell("key refused");
    until("the key is refused", || {
        !ceph.gateway.weir(&ceph.image("list rbd")).status.success()
    });
    ceph.fails("list rbd", &["client.admin", "ceph auth get"]);
    ceph.fails("list rbd --id client.admin", &["without 'client.'"]);
}

#[test]
fn a_library_that_is_too_old_is_told_with_what_is_needed() {
    let fake = library();
    let other = PathBuf::from("libc.so.6");
    for (rbd, version, told) in [
        (&fake, "1.15.9", Some("it is librbd 1.15.9")),
        (&fake, "0.99.0", Some("it is librbd 0.99.0")),
        // One that lacks what later ones have.
        (&other, "1.16.0", Some("it has no rbd_")),
        (&fake, "1.16.0", None),
        (&fake, "2.0.0", None),
    ] {
        let output = Command::new(WEIR)
            .args(["bench", "--duration", "1", "rbd:rbd/a?conf=/nowhere"])
            .env("WEIR_LIBRADOS", &fake)
            .env("WEIR_LIBRBD", rbd)
            .env("FAKE_LIBRBD_VERSION", version)
            .output()
            .expect("the command runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        match told {
            Some(told) => {
                let name = rbd.to_str().expect("UTF-8");
                for piece in [told, name, "16.2", "librbd1"] {
                    assert!(text.contains(piece), "{version}: no {piece:?}:\n{text}");
                }
            }
            // It is taken, and then the configuration is missed.
            None => assert!(text.contains("/nowhere"), "{version}: {text}"),
        }
    }
}

#[test]
fn snapshots_are_made_listed_cloned_and_deleted() {
    let ceph = WithCeph::started();
    ceph.ok("create rbd/a --size 4M");
    let made = ceph.ok("snapshot create rbd/a@one");
    assert!(made.starts_with("added snapshot rbd/a@one"), "{made}");
    ceph.ok("resize rbd/a 8M");
    ceph.ok("snapshot create rbd/a@two");
    let all = ceph.json("snapshot list rbd/a");
    assert_eq!(
        (&all[0]["name"], &all[0]["size_bytes"]),
        (&json!("one"), &json!(4 << 20))
    );
    assert_eq!(
        (&all[1]["name"], &all[1]["size_bytes"]),
        (&json!("two"), &json!(8 << 20))
    );
    let clone = ceph.json("clone rbd/a@one other/n/b");
    assert_eq!(clone["size_bytes"], 4 << 20);
    assert_eq!(ceph.json("show other/n/b")["namespace"], "n");
    ceph.fails("clone rbd/a@one other/n/b", &["exists already"]);
    ceph.fails(
        "clone rbd/a@three rbd/c",
        &["no snapshot rbd/a@three", "snapshot list rbd/a"],
    );
    // A snapshot is a volume to read, a clone one to write.
    let gateway = &ceph.gateway;
    gateway.ok(&format!("volume add then {}", ceph.url("rbd/a@one", "")));
    gateway.ok(&format!("volume add copy {}", ceph.url("other/n/b", "")));
    let report = |name: &str| -> Value {
        let text = gateway.ok(&format!("volume show {name} --json"));
        serde_json::from_str::<Value>(&text).expect("JSON")["report"].clone()
    };
    assert_eq!(report("then")["read_only"], true);
    assert_eq!(report("copy")["read_only"], false);
    ceph.fails(
        "snapshot delete rbd/a@one",
        &["rbd/a@one", "volume then", "weir volume remove then"],
    );
    ceph.ok("snapshot delete rbd/a@two");
    ceph.fails("snapshot delete rbd/a@two", &["no snapshot rbd/a@two"]);
    gateway.ok("volume remove then");
    ceph.ok("snapshot delete rbd/a@one");
    assert_eq!(ceph.json("snapshot list rbd/a"), json!([]));
}

#[test]
fn an_image_that_is_served_is_not_deleted_and_is_resized_with_its_volume() {
    let ceph = WithCeph::started();
    ceph.ok("create rbd/a --size 4M");
    ceph.gateway
        .ok(&format!("volume add v {}", ceph.url("rbd/a", "")));
    assert_eq!(ceph.json("list rbd")[0]["volumes"], json!(["v"]));
    let shown = ceph.json("show rbd/a");
    assert_eq!(shown["volumes"], json!(["v"]));
    assert!(shown["locked_by"].is_string(), "{shown}");
    let status = || -> Value {
        let text = ceph.gateway.ok("status --json");
        serde_json::from_str::<Value>(&text).expect("JSON")["ceph"].clone()
    };
    let client = status()["clients"][0].clone();
    assert_eq!(client["volumes"], json!(["v"]));
    assert_eq!(
        (&client["images"], &client["images_max"]),
        (&json!(1), &json!(32))
    );
    assert!(client["cost"]["threads"].is_u64(), "{client}");
    assert_eq!(client["own"], false);
    assert_eq!(
        (
            &status()["images"][0]["moves"],
            &status()["images"][0]["own_client"]
        ),
        (&json!(0), &Value::Null)
    );
    // One that may have its own begins on the same.
    ceph.ok("create rbd/b --size 4M");
    let auto = ceph.url("rbd/b", "&bdevs_per_cluster=auto");
    ceph.gateway.ok(&format!("volume add w {auto}"));
    assert_eq!(status()["clients"][0]["volumes"], json!(["v", "w"]));
    assert_eq!(status()["clients"].as_array().map(Vec::len), Some(1));
    ceph.gateway.ok("volume remove w");
    assert_eq!(status()["images"][0]["client"], client["address"]);
    assert_eq!(status()["images"][0]["phase"], "serving");
    let refusal = ["rbd/a", "volume v", "weir volume remove v"];
    ceph.fails("delete rbd/a", &refusal);
    assert_eq!(ceph.json("resize rbd/a 8M")["size_bytes"], 8 << 20);
    let volume = ceph.gateway.ok("volume show v --json");
    let volume: Value = serde_json::from_str(&volume).expect("JSON");
    assert_eq!(
        volume["report"]["size_bytes"],
        8 << 20,
        "the volume knows at once"
    );
    ceph.fails("resize rbd/a 4M", &["--force"]);
    // By another name of the same file, it is the same cluster; what the gateway does not see, librbd refuses.
    let link = ceph.gateway.path("link.conf");
    std::os::unix::fs::symlink(&ceph.conf, &link).expect("a link");
    let by = |conf: &str| {
        ceph.gateway
            .weir(&format!("image delete rbd/a --conf {conf}"))
    };
    let said = |output: std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let refused = said(by(link.to_str().expect("UTF-8")));
    assert!(
        refusal.iter().all(|piece| refused.contains(piece)),
        "{refused}"
    );
    let copy = ceph.gateway.path("copy.conf");
    std::fs::copy(&ceph.conf, &copy).expect("a copy");
    let refused = said(by(copy.to_str().expect("UTF-8")));
    assert!(refused.contains("in use"), "{refused}");
    ceph.gateway.ok("volume remove v");
    ceph.delete_closed("rbd/a");
}

#[test]
fn images_below_a_stripe_are_told_and_neither_deleted_nor_cut() {
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let mut set = VolumeUrl::new("stripe", "").with("create", 1);
    for image in ["rbd/a", "rbd/b"] {
        ceph.ok(&format!("create {image} --size 4M"));
        set = set.with("member", ceph.url(image, ""));
    }
    gateway.ok(&format!("volume add s {set}"));
    // Nothing is made of this one.
    ceph.ok("create rbd/c --size 4M");
    let status = || -> Value { serde_json::from_str(&gateway.ok("status --json")).expect("JSON") };
    let ceph_of = status()["ceph"].clone();
    assert_eq!(ceph_of["clients"][0]["volumes"], json!(["s"]));
    let images: Vec<_> = ceph_of["images"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|image| {
            (
                &image["volume"],
                &image["image"],
                &image["part"],
                &image["phase"],
            )
        })
        .collect();
    let serving = json!("serving");
    assert_eq!(
        images,
        [
            (&json!("s"), &json!("rbd/a"), &json!(true), &serving),
            (&json!("s"), &json!("rbd/b"), &json!(true), &serving),
        ]
    );
    let text = gateway.ok("status");
    assert!(text.contains("s, rbd/b: serving"), "{text}");
    let page = gateway.page();
    for image in ["rbd/a", "rbd/b"] {
        let series = format!("weir_image_troubled{{volume=\"s\",image=\"{image}\"}} 0");
        assert!(page.contains(&series), "no {series}:\n{page}");
    }
    assert_eq!(ceph.json("list rbd")[1]["volumes"], json!(["s"]));
    assert_eq!(ceph.json("list rbd")[2]["volumes"], json!([]));
    let refusal = ["rbd/b", "volume s", "weir volume remove s"];
    ceph.fails("delete rbd/b", &refusal);
    // Shrunk it would lose what the set has there, and grown it is no worse.
    ceph.fails("resize rbd/b 1M --force", &refusal);
    assert_eq!(ceph.json("resize rbd/b 8M")["size_bytes"], 8 << 20);
    // What is wrong with one of them is told by its name. A gateway looks for watches every ten seconds.
    if nightly() {
        ceph.tell("watch rbd/b lost");
        let trouble = |at: usize| status()["ceph"]["images"][at]["trouble"].clone();
        until("it is told", || !trouble(1).is_null());
        assert_eq!(trouble(0), Value::Null);
        let problems = status()["problems"].to_string();
        assert!(
            problems.contains("volume s: rbd/b: the image's watch"),
            "{problems}"
        );
        assert!(gateway.metric("weir_image_troubled") == 1.0);
    }
    gateway.ok("volume remove s");
    ceph.delete_closed("rbd/a");
    assert_eq!(status()["ceph"]["images"], json!([]));
}

/// A scrape that finds two samples of one series takes nothing of the page.
#[test]
fn images_of_one_name_have_series_of_their_own_and_none_is_in_a_volume_twice() {
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    ceph.ok("create rbd/a --size 4M");
    let twice = |part: &str| {
        let set = VolumeUrl::new("stripe", "");
        set.with("member", part).with("member", part)
    };
    let refused = |url: VolumeUrl, why: &str| {
        let output = gateway.weir(&format!("volume add twice {url}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    };
    let part = ceph.url("rbd/a", "");
    refused(
        twice(&part).with("create", 1),
        "this process has the image's lock",
    );
    // Of another cluster, one is called the same.
    let conf = gateway.path("other.conf");
    let text = std::fs::read_to_string(&ceph.conf).expect("it is there");
    let text = text.replace("mon host = test", "mon host = other");
    std::fs::write(&conf, text).expect("it can be written to");
    gateway.ok(&format!(
        "image create rbd/a --size 4M --conf {}",
        conf.display()
    ));
    let other = format!("rbd:rbd/a?conf={}", conf.display());
    let both = |suffix: &str| {
        let with = |url: &str| url.replace("rbd/a", &format!("rbd/a{suffix}"));
        let set = VolumeUrl::new("stripe", "");
        let set = set.with("member", with(&ceph.url("rbd/a", "")));
        set.with("member", with(&other))
    };
    // The set that was refused lets go of its first member after the answer.
    let add = format!("volume add s {}", both("").with("create", 1));
    until("the image is free", || gateway.weir(&add).status.success());
    let troubled = |volume: &str| {
        let page = gateway.page();
        let of = format!("weir_image_troubled{{volume=\"{volume}\",image=\"");
        let images = page.lines().filter_map(|line| line.strip_prefix(&*of));
        let names = images.filter_map(|line| line.split('"').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(troubled("s"), [ceph.url("rbd/a", ""), other.clone()]);
    // To be read, an image may be open any number of times, and so in several volumes.
    gateway.ok(&format!(
        "image snapshot create rbd/a@one --conf {}",
        conf.display()
    ));
    ceph.ok("snapshot create rbd/a@one");
    for volume in ["t", "u"] {
        gateway.ok(&format!("volume add {volume} {}", both("@one")));
        assert_eq!(troubled(volume).len(), 2);
    }
    gateway.ok(&format!("volume add v {}", ceph.url("rbd/a@one", "")));
    assert_eq!(troubled("v"), ["rbd/a@one"]);
    // But not twice in one.
    let part = ceph.url("rbd/a@one", "");
    refused(twice(&part), "lacks member 1");
    let other = other.replace("rbd/a", "rbd/a@one");
    refused(twice(&part).with("member", other), "one is a copy");
    assert_eq!(troubled("s").len(), 2);
}

#[test]
fn a_volume_moves_to_a_client_of_its_own_under_load_and_status_tells_why() {
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let mut conf = std::fs::read_to_string(&ceph.conf).expect("it is there");
    conf.push_str("objecter inflight ops = 4\n");
    std::fs::write(&ceph.conf, conf).expect("it can be written to");
    ceph.tell("latency_us 16000");
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    for (image, volume) in [("a", "much"), ("b", "less")] {
        ceph.ok(&format!("create rbd/{image} --size 4M"));
        let url = ceph.url(&format!("rbd/{image}"), "&bdevs_per_cluster=auto");
        gateway.ok(&format!("volume add {volume} {url}"));
        gateway.ok(&format!("namespace add {SUBSYSTEM} {volume}"));
    }
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    let load = |nsid: usize, depth: u32| {
        let target = recovering(&url(port, SUBSYSTEM, nsid));
        let bench = format!(
            "bench --read-percent 50 --queue-depth {depth} --duration 900 --verify --json {target} --destroy-data {target}"
        );
        let load = Command::new(WEIR)
            .args(bench.split_whitespace())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        load.expect("the command runs")
    };
    let loads = [load(1, 16), load(2, 3)];
    let images = || -> Value {
        let text = gateway.ok("status --json");
        serde_json::from_str::<Value>(&text).expect("JSON")["ceph"]["images"].clone()
    };
    let image = |name: &str| -> Value {
        let images = images();
        let mut all = images.as_array().expect("a list").iter();
        let found = all.find(|image| image["volume"] == name);
        found.expect("it is served").clone()
    };
    until("one moves", || image("much")["moves"] == 1);
    let own = image("much")["own_client"].clone();
    assert_eq!(
        (&own["limit"], &own["bound"]),
        (&json!("operations"), &json!(4))
    );
    assert!(own["measured"].as_u64() >= Some(4), "{own}");
    assert_eq!(image("less")["own_client"], Value::Null);
    assert_ne!(image("less")["client"], image("much")["client"]);
    let shown = gateway.ok("status");
    assert!(
        shown.contains("own client: ") && shown.contains("(own): much"),
        "{shown}"
    );
    assert!(gateway.log().contains("has moved to a client of its own"));
    assert!(gateway.metric("weir_image_own_client") == 1.0);
    assert!(gateway.metric("weir_image_moves_total") == 1.0);
    // An interrupt ends a load, and what was written until then is checked.
    for load in loads {
        kill_process(Pid::from_child(&load), Signal::INT).expect("it goes on");
        let output = load.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {said}", output.status);
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(result["errors"], 0, "{result}");
        let verified = result["verification"].as_array().expect("a list");
        assert!(
            verified
                .iter()
                .all(|of| of["ok"] == true && of["whole"] == true),
            "{result}"
        );
    }
    assert_eq!(image("much")["reopened"], 0);
    assert_eq!(image("much")["moves"], 1);
}

#[test]
fn status_says_what_is_wrong_with_an_image() {
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let target = ceph.serve("");
    let write = || {
        let bench = "bench --read-percent 0 --rate 50 --duration 200ms --destroy-data";
        // Whether it succeeds is not what is asked.
        gateway.weir(&format!("{bench} {target} {target}"));
    };
    let shown = |text: &str| gateway.ok("status").contains(text);
    let logged = |text: &str| {
        let log = gateway.log();
        log.lines().filter(|line| line.contains(text)).count()
    };
    let full = "Write of rbd/a failed: the pool is full";
    write();
    assert!(shown("v: serving;") && shown("problems"));
    assert!(gateway.metric("weir_image_troubled") == 0.0);
    for times in [1, 2] {
        ceph.tell("full on");
        until("it is seen that the pool is full", || {
            write();
            shown(&format!("v: serving: {full}"))
        });
        assert!(shown(&format!("volume v: {full}")), "it is a problem");
        assert!(gateway.metric("weir_image_troubled") == 1.0);
        assert_eq!(logged(full), times, "it is logged each time it begins");
        ceph.tell("full off");
        until("it is over", || {
            write();
            shown("v: serving;")
        });
        assert!(!shown(full));
    }
}

#[test]
fn status_says_what_is_wrong_with_an_image_also_when_no_client_is_left() {
    by_night!("what was lost shows in a write that has waited");
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let target = ceph.serve("");
    let write = || {
        let bench = "bench --read-percent 0 --rate 50 --duration 200ms --destroy-data";
        // Whether it succeeds is not what is asked.
        gateway.weir(&format!("{bench} {target} {target}"));
    };
    let shown = |text: &str| gateway.ok("status").contains(text);
    ceph.tell("metadata rbd/a weir.owner 1 b 10.9.9.9:0/1 gateway-b");
    ceph.tell("lock rbd/a 10.9.9.9:0/1 alive");
    until("it is lost", || {
        write();
        shown("v: gone: ")
    });
    until("its client ends", || {
        let text = gateway.ok("status --json");
        let status: Value = serde_json::from_str(&text).expect("JSON");
        status["ceph"]["clients"] == json!([])
    });
    let holder = "gateway gateway-b (client 10.9.9.9:0/1) has the image's lock";
    let status = gateway.ok("status");
    let line = |start: &str| {
        let mut lines = status.lines().filter(|line| line.contains(start));
        let line = lines.next();
        line.is_some_and(|line| line.contains(holder))
    };
    assert!(line("v: gone: "), "{status}");
    assert!(
        line("the medium of volume v cannot be reached: "),
        "{status}"
    );
    assert!(gateway.metric("weir_image_troubled") == 1.0);
    assert!(gateway.metric("weir_image_librbd_operations_total") > 0.0);
}

#[test]
fn a_watch_that_is_lost_is_told_everywhere_until_it_is_back() {
    by_night!("a gateway looks for watches every ten seconds");
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    ceph.ok("create rbd/a --size 4M");
    gateway.ok(&format!("volume add v {}", ceph.url("rbd/a", "")));
    let status = || -> Value { serde_json::from_str(&gateway.ok("status --json")).expect("JSON") };
    let trouble = || status()["ceph"]["images"][0]["trouble"].clone();
    assert_eq!(trouble(), Value::Null);
    ceph.tell("watch rbd/a lost");
    until("it is told", || !trouble().is_null());
    let lost = "the image's watch is lost";
    let text = gateway.ok("status");
    for line in [format!("v: serving: {lost}"), format!("volume v: {lost}")] {
        assert!(text.contains(&line), "no {line:?}:\n{text}");
    }
    assert!(gateway.metric("weir_image_troubled") == 1.0);
    assert!(gateway.log().contains(lost));
    let shown: Value = serde_json::from_str(&gateway.ok("volume show v --json")).expect("JSON");
    assert_eq!(shown["status"], "online");
    ceph.tell("watch rbd/a back");
    until("it is over", || trouble().is_null());
    assert!(gateway.metric("weir_image_troubled") == 0.0);
    assert_eq!(status()["problems"], json!([]));
    assert!(gateway.log().contains("the image is watched again"));
}

#[test]
fn a_cluster_that_does_not_answer_keeps_the_gateway_from_nothing_else() {
    by_night!("it waits until what hangs has been given up");
    let mut ceph = WithCeph::started();
    ceph.tell("image rbd/a 4194304");
    ceph.tell("image rbd/b 4194304");
    let image = ceph.url("rbd/a", "");
    let gateway = &ceph.gateway;
    // It may be read a moment later.
    until("the image is there", || {
        gateway
            .weir(&format!("volume add v {image}"))
            .status
            .success()
    });
    gateway.ok("volume add m mem:?size=4M");
    gateway.ok(&format!("subsystem add {SUBSYSTEM} --allow-any-host"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} v"));
    gateway.ok(&format!("namespace add {SUBSYSTEM} m"));
    let port = free_port();
    gateway.ok(&format!("listener add 127.0.0.1:{port}"));
    assert_eq!(ceph.gateway.end(), Some(0));
    ceph.tell("open_hangs on");
    ceph.start();
    let status = |name: &str| {
        let shown = ceph.gateway.ok(&format!("volume show {name} --json"));
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        (
            shown["status"].as_str().expect("a status").to_owned(),
            shown["reason"].as_str().unwrap_or_default().to_owned(),
        )
    };
    let gateway = &ceph.gateway;
    assert_eq!(status("m").0, "online");
    let (v, reason) = status("v");
    assert_eq!(v, "failed");
    assert!(reason.contains("not answered"), "{reason}");
    let target = |nsid| recovering(&url(port, SUBSYSTEM, nsid));
    gateway.ok(&format!("bench --duration 100ms {}", target(2)));
    // Another image is being added, and all else goes on.
    let other = ceph.url("rbd/b", "");
    let asked = |arguments: [&str; 4]| gateway.background(&arguments.join(" "));
    // What sees whether a volume is busy keeps it busy for a moment, and so may have what it looks for refused: that is
    // asked again.
    let hangs = |what: &str, arguments: [&str; 4], is_busy: &dyn Fn() -> bool| {
        let mut child = asked(arguments);
        until(what, || {
            if child.has_ended() {
                child = asked(arguments);
            }
            is_busy()
        });
        child
    };
    let refused = |arguments: &str| {
        let output = gateway.weir(arguments);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // What is asked only to see whether it is busy is refused otherwise, too, and never waits for the cluster.
    let opens = || {
        let refused = refused(&format!("volume add w {other}&nothing=1"));
        refused.contains("volume w is being opened by another")
    };
    let resizes = || {
        let refused = refused("volume resize v 2M");
        refused.contains("volume v is being resized by another")
    };
    let adding = hangs(
        "the other is opened",
        ["volume", "add", "w", &other],
        &opens,
    );
    assert!(refused("volume retry v").contains("volume v is being opened by another"));
    gateway.ok("volume add n mem:?size=4M");
    gateway.ok("volume resize n 8M");
    gateway.ok("volume remove n");
    gateway.ok(&format!("namespace remove {SUBSYSTEM} 2"));
    assert!(opens(), "something has waited until the other was given up");
    // And when the cluster answers, it is served.
    ceph.tell("open_hangs off");
    until("it is open", || status("v").0 == "online");
    gateway.ok(&format!("bench --duration 100ms {}", target(1)));
    until("the other is added", || {
        gateway.weir("volume show w").status.success()
    });
    drop(adding);
    // A resize that is not done keeps nothing else from being done either.
    ceph.tell("resize_hangs on");
    // It is read a moment later: this is enough by far.
    let moment = || std::thread::sleep(Duration::from_millis(300));
    moment();
    let resizing = hangs("it is resized", ["volume", "resize", "v", "8M"], &resizes);
    gateway.ok("volume add n mem:?size=4M");
    ceph.tell("resize_hangs off");
    until("it is done", || {
        let shown = gateway.ok("volume show v --json");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["report"]["size_bytes"] == 8 << 20
    });
    drop(resizing);
    // The end waits neither for one nor for the other: it would be for as long as a volume may take to be opened or resized.
    const OPEN_TIME_MAX: Duration = Duration::from_secs(40);
    ceph.tell("open_hangs on");
    ceph.tell("resize_hangs on");
    gateway.ok("volume remove w");
    moment();
    let _adding = hangs("one hangs", ["volume", "add", "w", &other], &opens);
    let _resizing = hangs("both hang", ["volume", "resize", "v", "16M"], &resizes);
    let began = Instant::now();
    assert_eq!(ceph.gateway.end(), Some(0));
    let took = began.elapsed();
    assert!(took < OPEN_TIME_MAX, "the end took {took:?}");
}

#[test]
fn where_the_time_of_an_image_goes_is_in_status_and_metrics() {
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let target = ceph.serve("");
    let bench = format!("bench --read-percent 0 --duration 900 {target} --destroy-data {target}");
    let _load: Load = gateway.background(&bench);
    until("it writes", || {
        gateway.metric("weir_subsystem_writes_total") > 0.0
    });
    until("it is told where the time goes", || {
        let shown: Value = serde_json::from_str(&gateway.ok("status --json")).expect("JSON");
        let writes = &shown["ceph"]["images"][0]["writes"];
        writes["commands"].as_u64() > Some(0) && writes["librbd_ns"].as_u64() > Some(0)
    });
    assert!(gateway.ok("status").contains("writes network "));
    assert!(gateway.metric("weir_image_librbd_operations_total") > 0.0);
    let of_writes = |name: &str| {
        let series =
            format!("weir_image_{name}_total{{volume=\"v\",image=\"rbd/a\",operation=\"write\"}} ");
        let page = gateway.page();
        let mut values = page.lines().filter_map(|line| line.strip_prefix(&series));
        values
            .next()
            .map(|value| value.parse::<f64>().expect("a number"))
    };
    for name in ["commands", "network_seconds", "reactor_seconds"] {
        until(name, || of_writes(name) > Some(0.0));
    }
    assert!(gateway.metric("weir_ceph_client_images") > 0.0);
    assert!(gateway.metric("weir_image_own_client") == 0.0);
    assert!(gateway.metric("weir_image_moves_total") == 0.0);
}

#[test]
fn what_cannot_be_fenced_ends_its_connections_and_queues_are_refused_until_it_is() {
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let target = ceph.serve("&io_timeout=200ms&fence_timeout=300ms");
    let bench = format!("bench --read-percent 0 --duration 900 {target} --destroy-data {target}");
    let load: Load = gateway.background(&bench);
    let log = |text: &str| gateway.log().contains(text);
    until("it writes", || {
        gateway.metric("weir_subsystem_writes_total") > 0.0
    });
    ceph.tell("monitors down");
    ceph.tell("hang write");
    until("its connection ends", || {
        log("connection ended: a lost volume has not answered commands of this connection")
    });
    let refused =
        "Connect refused: commands that a volume has left unanswered may take effect still";
    until("its host is refused", || log(refused));
    let status = || {
        let shown = gateway.ok("volume show v --json");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["status"].as_str().expect("a status").to_owned()
    };
    assert_eq!(status(), "lost");
    drop(load);
    ceph.tell("monitors up");
    ceph.tell("release");
    until("it is back", || status() == "online");
    // Where the gateway is stopped for as long as a request may take, one more may fail.
    until("it serves", || {
        let bench = gateway.weir(&format!("bench --rate 50 --duration 200ms {target}"));
        bench.status.success()
    });
}

#[test]
fn an_image_that_another_gateway_took_over_is_opened_again_when_someone_asks_for_it() {
    by_night!("what was lost shows in a write that has waited");
    let ceph = WithCeph::started();
    let gateway = &ceph.gateway;
    let target = ceph.serve("");
    let writes = format!(
        "bench --read-percent 0 --rate 50 --duration 200ms {target} --destroy-data {target}"
    );
    gateway.ok(&writes);
    let status = || {
        let shown = gateway.ok("volume show v --json");
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        shown["status"].as_str().expect("a status").to_owned()
    };
    ceph.tell("metadata rbd/a weir.owner 1 b 10.9.9.9:0/1 gateway-b");
    ceph.tell("lock rbd/a 10.9.9.9:0/1 alive");
    // Something is written at last when the lock is another's.
    until("it is lost", || {
        let _refused = gateway.weir(&writes);
        status() == "lost"
    });
    let refused = gateway.weir("volume retry v");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(
        text.contains("gateway gateway-b (client 10.9.9.9:0/1) has the image's lock"),
        "{text}"
    );
    assert_eq!(status(), "lost");
    let told = gateway.ok("status");
    assert!(
        told.contains("`weir volume retry` opens it again"),
        "{told}"
    );
    ceph.tell("unlock rbd/a 10.9.9.9:0/1");
    until("it is opened again", || {
        gateway.weir("volume retry v").status.success()
    });
    assert_eq!(status(), "online");
    gateway.ok(&writes);
}
