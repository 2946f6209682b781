//! `weir status`.

use weir_block::size::Size;
use weir_gateway::api::ceph::{CephClientView, CephImageView, TimeSplit};
use weir_gateway::api::views::StatusView;
use weir_gateway::engine::ThrottledReport;

use super::Asked;
use crate::client::Failure;
use crate::table::{lines, values};

pub(crate) fn run(asked: &Asked) -> Result<String, Failure> {
    asked.show(&asked.client.get("/v1/status")?, show)
}

fn uptime(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {seconds} s"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// What waited for limits.
pub(super) fn throttled_text(throttled: &ThrottledReport) -> String {
    let ThrottledReport {
        requests,
        waited_ns,
        waiting,
    } = throttled;
    let seconds = *waited_ns as f64 / 1e9;
    format!("{requests} requests waited {seconds:.3} s in all; {waiting} wait now")
}

fn limits(view: &StatusView) -> String {
    let counts = [
        (view.limited_namespaces, "namespaces"),
        (view.limited_luns, "LUNs"),
        (view.limited_files, "files"),
    ];
    let limited = counts.iter().filter(|(count, _)| *count > 0);
    let limited: Vec<_> = limited
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if limited.is_empty() {
        return "none".to_owned();
    }
    format!(
        "{}; {}",
        limited.join(", "),
        throttled_text(&view.throttled)
    )
}

/// What is used now, and what it may come to.
fn memory(view: &StatusView) -> String {
    let now = match view.resident_bytes {
        Some(bytes) => format!("{} now; ", Size(bytes)),
        None => String::new(),
    };
    format!("{now}{}", view.memory)
}

/// A client of Ceph: what it costs, and who shares it.
fn ceph_client(client: &CephClientView) -> String {
    let cost = match &client.cost {
        Some(cost) => format!(
            "{} threads, {}, {} descriptors",
            cost.threads,
            Size(cost.resident_bytes),
            cost.descriptors
        ),
        None => "cost not measured".to_owned(),
    };
    let fenced = if client.fenced { "; cut off" } else { "" };
    let busiest = match &client.busiest_thread {
        Some(thread) => format!(", thread {} at {}%", thread.name, thread.percent),
        None => String::new(),
    };
    let own = match (client.own, client.apart) {
        (true, _) => " (own)",
        (false, true) => " (apart)",
        (false, false) => "",
    };
    let volumes = client.volumes.iter().map(ToString::to_string);
    let volumes = match volumes.collect::<Vec<_>>() {
        none if none.is_empty() => String::new(),
        some => format!(": {}", some.join(", ")),
    };
    format!(
        "client.{} at {}: {cost}{busiest}; {} of {} images{own}{volumes}{fenced}",
        client.id, client.address, client.images, client.images_max
    )
}

/// What an image does, what is wrong with it, and where the mean time of its commands went.
fn ceph_image(image: &CephImageView) -> String {
    let micros = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let split = |what, split: Option<TimeSplit>| {
        let TimeSplit {
            network_ns,
            reactor_ns,
            librbd_ns,
            ..
        } = split?;
        Some(format!(
            "; {what} network {} us, reactor {} us, librbd {} us",
            micros(network_ns),
            micros(reactor_ns),
            micros(librbd_ns)
        ))
    };
    let orphans = (image.orphans > 0).then(|| format!("; {} orphans", image.orphans));
    let own = image.own_client.as_ref();
    let own = own.map(|own| format!("; own client: {}", own.text));
    let called_off = (image.moves_called_off > 0).then(|| {
        let count = image.moves_called_off;
        format!("; {count} moves to an own client called off")
    });
    let trouble = image.trouble.as_ref();
    let trouble = trouble.map(|trouble| format!(": {trouble}"));
    let why = image.reopened_why.as_deref();
    let why = why.map_or_else(String::new, |why| format!(", the last time because {why}"));
    let times = |count| match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let reopened =
        (image.reopened > 0).then(|| format!("; opened again {}{why}", times(image.reopened)));
    let parts = [
        trouble,
        split("reads", image.reads),
        split("writes", image.writes),
        orphans,
        own,
        called_off,
        reopened,
    ];
    let parts: String = parts.into_iter().flatten().collect();
    let part = match image.part {
        true => format!(", {}", image.image),
        false => String::new(),
    };
    format!("{}{part}: {}{parts}", image.volume, image.phase)
}

fn show(view: StatusView) -> String {
    let mut ceph = Vec::new();
    if !view.ceph.clients.is_empty() {
        ceph.push(("ceph", lines(view.ceph.clients.iter().map(ceph_client))));
    }
    // Where all clients are gone the images say why.
    if !view.ceph.images.is_empty() {
        ceph.push(("images", lines(view.ceph.images.iter().map(ceph_image))));
    }
    let problems = match view.problems.is_empty() {
        true => "none".to_owned(),
        false => view.problems.join("\n"),
    };
    let (memory, limits) = (memory(&view), limits(&view));
    let mut pairs = vec![
        ("version", view.version),
        ("process", view.process.to_string()),
        ("up", uptime(view.uptime_seconds)),
        (
            "state",
            format!("{}, revision {}", view.state, view.revision),
        ),
        ("volumes", view.volumes.to_string()),
        ("subsystems", view.subsystems.to_string()),
        ("namespaces", view.namespaces.to_string()),
        ("targets", view.targets.to_string()),
        ("LUNs", view.luns.to_string()),
        ("exports", view.exports.to_string()),
        ("files", view.files.to_string()),
        ("limits", limits),
        ("hosts", view.hosts.to_string()),
        ("listeners", view.listeners.to_string()),
        ("connections", view.connections.to_string()),
        ("sessions", view.sessions.to_string()),
        ("reactors", view.reactors.to_string()),
        ("memory", memory),
    ];
    pairs.extend(ceph);
    pairs.push(("problems", problems));
    values(&pairs)
}

#[cfg(test)]
mod tests {
    use weir_gateway::api::ceph::{CephClientView, CephImageView, CephOwnClient};

    #[test]
    fn whom_a_client_is_for_is_shown() {
        let client = |own, apart| CephClientView {
            id: "weir".to_owned(),
            address: "10.0.0.1:0/7".to_owned(),
            conf: None,
            images: 1,
            images_max: 32,
            own,
            apart,
            busiest_thread: None,
            settings: Default::default(),
            volumes: vec!["v".parse().expect("a name")],
            fenced: apart,
            cost: None,
        };
        let head = "client.weir at 10.0.0.1:0/7: cost not measured; 1 of 32 images";
        for (own, apart, told) in [
            (false, false, ": v"),
            (true, false, " (own): v"),
            (false, true, " (apart): v; cut off"),
        ] {
            let shown = super::ceph_client(&client(own, apart));
            assert_eq!(shown, format!("{head}{told}"));
        }
    }

    #[test]
    fn why_an_image_has_its_own_client_is_shown() {
        let image = CephImageView {
            volume: "v".parse().expect("a name"),
            image: "rbd/a".to_owned(),
            part: false,
            phase: "serving".to_owned(),
            client: Some("10.0.0.1:0/7".to_owned()),
            reopened: 0,
            reopened_why: None,
            own_client: Some(CephOwnClient {
                limit: "operations".to_owned(),
                measured: Some(1100),
                bound: Some(1024),
                text: "1100 operations were under way".to_owned(),
            }),
            moves: 1,
            moves_called_off: 2,
            orphans: 0,
            trouble: None,
            reads: None,
            writes: None,
        };
        assert_eq!(
            super::ceph_image(&image),
            "v: serving; own client: 1100 operations were under way; 2 moves to an own client called off"
        );
    }

    #[test]
    fn what_is_wrong_with_an_image_is_shown_without_a_client_too() {
        let image = |reopened, why: Option<&str>, trouble: Option<&str>| CephImageView {
            volume: "v".parse().expect("a name"),
            image: "rbd/a".to_owned(),
            part: false,
            phase: "reopening".to_owned(),
            client: None,
            reopened,
            reopened_why: why.map(str::to_owned),
            own_client: None,
            moves: 0,
            moves_called_off: 0,
            orphans: 0,
            trouble: trouble.map(str::to_owned),
            reads: None,
            writes: None,
        };
        assert_eq!(
            super::ceph_image(&image(1, Some("it was late"), Some("no monitor answers"))),
            "v: reopening: no monitor answers; opened again once, the last time because it was late"
        );
        assert_eq!(
            super::ceph_image(&image(2, None, None)),
            "v: reopening; opened again 2 times"
        );
        let part = CephImageView {
            part: true,
            ..image(0, None, None)
        };
        assert_eq!(super::ceph_image(&part), "v, rbd/a: reopening");
    }

    #[test]
    fn uptimes() {
        let cases = [
            (5, "5 s"),
            (65, "1 min 5 s"),
            (3661, "1 h 1 min"),
            (90_000, "1 d 1 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(super::uptime(seconds), text);
        }
    }
}
