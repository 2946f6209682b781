//! What is told of the gateway's part in Ceph: its clients, what each costs, which images share it, and where the time of an image's
//! commands goes.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_front::{CommandKind, Latency, Stage};
use weir_rbd::{ClientReport, LibrbdTimes, RbdHost, Reason, Taken, VolumeReport};
use weir_volume::VolumeUrl;

use super::{ApiError, Context};
use crate::kinds::images_below;
use crate::metrics::{Family, Kind};
use crate::name::VolumeName;
use crate::state::ExportName;

/// A client of a Ceph cluster, which images share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CephClientView {
    /// Its name at the cluster, without `client.`.
    pub id: String,
    /// Its address, as the cluster has it.
    pub address: String,
    /// The cluster's configuration file, where a URL named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conf: Option<String>,
    /// How many images it serves.
    pub images: u32,
    /// How many it would serve at most.
    pub images_max: u32,
    /// Whether it is the own client of a volume that shared one before.
    pub own: bool,
    /// Whether it is for images whose writes were not answered again and again, which are kept apart from others.
    #[serde(default)]
    pub apart: bool,
    /// The busiest of its threads when it was last looked at for `bdevs_per_cluster=auto`; missing where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest_thread: Option<CephThread>,
    /// Its threads and receives, by the names of Ceph's options.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The volumes that it serves.
    pub volumes: Vec<VolumeName>,
    /// Whether the cluster was told to refuse it; it is gone when librbd has let go of what it was lent.
    pub fenced: bool,
    /// What it has added to the process, as the system told before it connected and when its first image was open; missing where another
    /// one connected at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<CephClientCost>,
}

/// What a client of a Ceph cluster has added to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CephClientCost {
    /// Threads.
    pub threads: u32,
    /// Memory in the machine's, in bytes.
    pub resident_bytes: u64,
    /// Descriptors.
    pub descriptors: u32,
}

/// A thread of a client of a Ceph cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CephThread {
    /// Its name.
    pub name: String,
    /// How much of a processor it had.
    pub percent: u32,
}

/// Why a volume has a client of its own: what was measured of the client that it shared, and the limit that this reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CephOwnClient {
    /// `thread` (percent of a processor), `operations` or `bytes` (under way at once), `watch` (it was lost on the client before), or `asked`.
    pub limit: String,
    /// What was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<u64>,
    /// From when on that is a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// The same in words.
    pub text: String,
}

impl From<&Reason> for CephOwnClient {
    fn from(reason: &Reason) -> Self {
        let (limit, figures) = match *reason {
            Reason::Thread {
                percent,
                bound_percent,
                ..
            } => ("thread", Some((percent.into(), bound_percent.into()))),
            Reason::Operations { mean, bound } => ("operations", Some((mean, bound))),
            Reason::Bytes { mean, bound } => ("bytes", Some((mean, bound))),
            Reason::Unwatched => ("watch", None),
            Reason::Asked => ("asked", None),
        };
        CephOwnClient {
            limit: limit.to_owned(),
            measured: figures.map(|(measured, _)| measured),
            bound: figures.map(|(_, bound)| bound),
            text: reason.to_string(),
        }
    }
}

/// An image that a volume is made of. One that is made of several has each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CephImageView {
    /// The volume.
    pub volume: VolumeName,
    /// The image: `POOL/[NAMESPACE/]IMAGE[@SNAPSHOT]`.
    pub image: String,
    /// Whether it is below what the volume is (`stripe:`, `ssd:`), and not the volume itself.
    pub part: bool,
    /// What it is doing: `serving`, `moving`, `fencing`, `reopening`, `gone` or `closed`.
    pub phase: String,
    /// The address of the client that serves it, while one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// How often it was opened again, on another client, because one was cut off.
    pub reopened: u64,
    /// Why it was opened again the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened_why: Option<String>,
    /// Why it has a client of its own, where it moved to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_client: Option<CephOwnClient>,
    /// How often it has moved to a client of its own.
    pub moves: u64,
    /// How often that was called off.
    pub moves_called_off: u64,
    /// Operations that were answered while librbd has their buffers still.
    pub orphans: u32,
    /// What is wrong with it now: it is out of reach, operations of some kind fail, or its watch is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Where the time of commands that read went, where there were any. Of a part that is not known: a command may be of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads: Option<TimeSplit>,
    /// Likewise of commands that write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<TimeSplit>,
}

/// Where the mean time of a command went, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TimeSplit {
    /// How many commands there were since the image's namespaces are served.
    pub commands: u64,
    /// On the wire: until all of a command had come, and until the kernel had taken the last of its answer.
    pub network_ns: u64,
    /// In the gateway: for a slot, a buffer, a limit, a lock, a client that is to be opened again.
    pub reactor_ns: u64,
    /// In librbd, from the turn of the reactor in which it had the operation until that in which its end was seen.
    pub librbd_ns: u64,
}

/// What the gateway has of Ceph.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CephView {
    /// Its clients.
    pub clients: Vec<CephClientView>,
    /// The images that volumes are made of, those among them that cannot be reached for now.
    pub images: Vec<CephImageView>,
}

/// An image, and the volume that is made of it.
struct Used {
    volume: VolumeName,
    part: bool,
    report: VolumeReport,
}

/// An image, and how its commands did.
struct Image {
    volume: VolumeName,
    /// What it is called among those of the volume.
    name: String,
    part: bool,
    report: VolumeReport,
    /// Nothing of a part.
    latency: Latency,
    /// What librbd took for the reads and writes that are in it.
    reads_librbd_ns: u64,
    writes_librbd_ns: u64,
}

/// What is known of the images that volumes are made of, whether they can be reached or not.
fn reports(context: &Context, ceph: &RbdHost) -> Vec<Used> {
    // What is only read may be open more than once.
    let mut reports: BTreeMap<String, Vec<VolumeReport>> = BTreeMap::new();
    for report in ceph.volumes() {
        reports.entry(report.url.clone()).or_default().push(report);
    }
    let state = context.control.state();
    let mut all = Vec::new();
    for (name, volume) in &state.volumes {
        let Ok(whole) = volume.url.as_str().parse::<VolumeUrl>() else {
            continue;
        };
        for url in images_below(&whole) {
            let report = reports.get_mut(&url.to_string()).and_then(Vec::pop);
            all.extend(report.map(|report| Used {
                volume: name.clone(),
                part: url != whole,
                report,
            }));
        }
    }
    all
}

/// What is wrong with images now, by volume.
pub(super) fn troubles(context: &Context) -> BTreeMap<VolumeName, String> {
    let Some(ceph) = context.ceph.as_ref() else {
        return BTreeMap::new();
    };
    let mut troubles: BTreeMap<VolumeName, Vec<String>> = BTreeMap::new();
    for Used {
        volume,
        part,
        report,
    } in reports(context, ceph)
    {
        let trouble = report.trouble.map(|trouble| match part {
            true => format!("{}: {trouble}", report.image),
            false => trouble,
        });
        if let Some(trouble) = trouble {
            troubles.entry(volume).or_default().push(trouble);
        }
    }
    let together = |(volume, troubles): (_, Vec<String>)| (volume, troubles.join("; "));
    troubles.into_iter().map(together).collect()
}

/// The images of volumes, and how their commands did.
async fn images(context: &Context, ceph: &RbdHost) -> Result<Vec<Image>, ApiError> {
    let used = reports(context, ceph);
    if used.is_empty() {
        context.told.retain(&[]);
        return Ok(Vec::new());
    }
    let engine = context.control.engine();
    let latencies = engine.export_latencies(None).await?;
    let state = context.control.state();
    let names = names(&used);
    let image = |(used, name): (Used, String)| {
        let own: BTreeMap<_, _> = state
            .exports()
            .filter(|export| !used.part && *export.volume == used.volume)
            .filter_map(|export| {
                let own = latencies.get(&export.name)?;
                Some((export.name, own))
            })
            .collect();
        let mut latency = Latency::default();
        own.values().for_each(|own| latency.merge(own));
        let LibrbdTimes { reads, writes, .. } = used.report.times;
        let took = |kind, librbd: Taken| {
            if used.part {
                return 0;
            }
            let commands = |(export, own): (&ExportName, &&Latency)| {
                let commands = own.kind(kind).map_or(0, |times| times.count());
                (export.clone(), commands)
            };
            let commands = own.iter().map(commands).collect();
            context
                .told
                .librbd_ns(&used.volume, kind, commands, librbd.nanoseconds)
        };
        Image {
            reads_librbd_ns: took(CommandKind::Read, reads),
            writes_librbd_ns: took(CommandKind::Write, writes),
            volume: used.volume,
            name,
            part: used.part,
            report: used.report,
            latency,
        }
    };
    let images: Vec<_> = used.into_iter().zip(names).map(image).collect();
    context.told.retain(&images);
    Ok(images)
}

/// What images are called: by their names, and by their URLs where a volume has two of one name, as of several clusters.
fn names(used: &[Used]) -> Vec<String> {
    let is_alone = |one: &Used| {
        let same =
            |other: &&Used| other.volume == one.volume && other.report.image == one.report.image;
        used.iter().filter(same).count() == 1
    };
    let name = |one: &Used| match is_alone(one) {
        true => one.report.image.clone(),
        false => one.report.url.clone(),
    };
    used.iter().map(name).collect()
}

/// What commands of one kind took on the wire, in all, and how many there were.
struct Spent {
    commands: u64,
    network_ns: u64,
    total_ns: u64,
}

fn spent(latency: &Latency, kind: CommandKind) -> Option<Spent> {
    let times = latency.kind(kind)?;
    let sum = |stage| times.stage(stage).sum_ns();
    (times.count() > 0).then(|| Spent {
        commands: times.count(),
        network_ns: sum(Stage::WireIn) + sum(Stage::WireOut),
        total_ns: sum(Stage::Total),
    })
}

impl Spent {
    /// What of it was neither on the wire nor in librbd, and what was in librbd. librbd has orphans for longer than their commands
    /// took.
    fn inside_ns(&self, librbd_ns: u64) -> (u64, u64) {
        let inside_ns = self.total_ns.saturating_sub(self.network_ns);
        let librbd_ns = librbd_ns.min(inside_ns);
        (inside_ns - librbd_ns, librbd_ns)
    }
}

/// librbd's share is that of all its operations on the image, by command: those that ended with no command's answer are among them.
fn split(latency: &Latency, kind: CommandKind, librbd_ns: u64) -> Option<TimeSplit> {
    let spent = spent(latency, kind)?;
    let (reactor_ns, librbd_ns) = spent.inside_ns(librbd_ns);
    let commands = spent.commands;
    Some(TimeSplit {
        commands,
        network_ns: spent.network_ns / commands,
        reactor_ns: reactor_ns / commands,
        librbd_ns: librbd_ns / commands,
    })
}

/// What was said of images before.
///
/// librbd's times are those of a volume since it was opened, and commands' those of the exports that there are. The time in the gateway
/// itself is their difference: so it must be known what librbd took for exports that are gone. And as librbd's part is counted a moment
/// before the rest, the difference may fall a little; a counter must not, or its reader takes it for one that began anew.
#[derive(Default)]
pub(super) struct Told(Mutex<BTreeMap<(VolumeName, CommandKind), ToldLast>>);

#[derive(Default)]
struct ToldLast {
    /// Of each export.
    commands: BTreeMap<ExportName, u64>,
    /// What librbd had taken in all.
    librbd_ns: u64,
    /// The part of it that was for exports that are gone.
    gone_ns: u64,
    /// What the metrics page said: of how many commands, and how long.
    page: (u64, u64),
}

impl Told {
    fn with<T>(
        &self,
        volume: &VolumeName,
        kind: CommandKind,
        of: impl FnOnce(&mut ToldLast) -> T,
    ) -> T {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        of(told.entry((volume.clone(), kind)).or_default())
    }

    /// Time that librbd took for the exports that there are, of all that it took. An export that is gone, or began anew with fewer
    /// commands than it had, takes with it as large a part as it had of the commands.
    fn librbd_ns(
        &self,
        volume: &VolumeName,
        kind: CommandKind,
        commands: BTreeMap<ExportName, u64>,
        librbd_ns: u64,
    ) -> u64 {
        self.with(volume, kind, |last| {
            if librbd_ns < last.librbd_ns {
                // The volume was opened anew.
                (last.librbd_ns, last.gone_ns) = (0, 0);
            }
            let before: u64 = last.commands.values().sum();
            let is_gone = |(export, had): &(&ExportName, &u64)| {
                commands.get(*export).is_none_or(|has| has < *had)
            };
            let gone: u64 = last
                .commands
                .iter()
                .filter(is_gone)
                .map(|(_, had)| had)
                .sum();
            if gone > 0 {
                let theirs = (last.librbd_ns - last.gone_ns) as f64 * (gone as f64 / before as f64);
                last.gone_ns = last.librbd_ns.min(last.gone_ns + theirs as u64);
            }
            last.commands = commands;
            last.librbd_ns = librbd_ns;
            librbd_ns - last.gone_ns
        })
    }

    /// A time as the metrics page tells it. With fewer commands than before, those of an export that is gone are missing: it does begin
    /// anew.
    fn never_less(
        &self,
        volume: &VolumeName,
        kind: CommandKind,
        commands: u64,
        nanoseconds: u64,
    ) -> u64 {
        self.with(volume, kind, |last| {
            let (commands_before, told) = last.page;
            let told = match commands >= commands_before {
                true => nanoseconds.max(told),
                false => nanoseconds,
            };
            last.page = (commands, told);
            told
        })
    }

    /// Forgets volumes that are gone.
    fn retain(&self, images: &[Image]) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|(volume, _), _| images.iter().any(|image| image.volume == *volume));
    }
}

fn image_view(image: &Image) -> CephImageView {
    let report = &image.report;
    CephImageView {
        volume: image.volume.clone(),
        image: image.name.clone(),
        part: image.part,
        phase: report.phase.to_owned(),
        client: report.client.clone(),
        reopened: report.reopened,
        reopened_why: report.reopened_why.clone(),
        own_client: report.own_client.as_ref().map(CephOwnClient::from),
        moves: report.moves,
        moves_called_off: report.moves_called_off,
        orphans: report.orphans,
        trouble: report.trouble.clone(),
        reads: split(&image.latency, CommandKind::Read, image.reads_librbd_ns),
        writes: split(&image.latency, CommandKind::Write, image.writes_librbd_ns),
    }
}

fn client_view(client: ClientReport, images: &[Image]) -> CephClientView {
    let served = images
        .iter()
        .filter(|image| image.report.client.as_deref() == Some(client.address.as_str()));
    let mut volumes: Vec<_> = served.map(|image| image.volume.clone()).collect();
    // Those of a volume stand together.
    volumes.dedup();
    CephClientView {
        volumes,
        id: client.id,
        address: client.address,
        conf: client.conf,
        images: client.images,
        images_max: client.images_max,
        own: client.own,
        apart: client.apart,
        busiest_thread: client.busiest_thread.map(|thread| CephThread {
            name: thread.name,
            percent: thread.percent,
        }),
        settings: client.settings,
        fenced: client.fenced,
        cost: client.cost.map(|cost| CephClientCost {
            threads: cost.threads,
            resident_bytes: cost.resident_bytes,
            descriptors: cost.descriptors,
        }),
    }
}

/// What the gateway has of Ceph now.
pub(super) async fn view(context: &Context) -> Result<CephView, ApiError> {
    let Some(ceph) = context.ceph.as_ref() else {
        return Ok(CephView::default());
    };
    let images = images(context, ceph).await?;
    let clients = ceph.clients().into_iter();
    Ok(CephView {
        clients: clients.map(|client| client_view(client, &images)).collect(),
        images: images.iter().map(image_view).collect(),
    })
}

/// The same for the metrics page; nothing where there is no Ceph.
pub(super) async fn families(context: &Context) -> Result<Vec<Family>, ApiError> {
    let Some(ceph) = context.ceph.as_ref() else {
        return Ok(Vec::new());
    };
    let (clients, images) = (ceph.clients(), images(context, ceph).await?);
    let mut all = Vec::new();
    if !clients.is_empty() {
        all.extend(client_families(&clients));
    }
    // No client is there while all that are lost wait for one.
    if !images.is_empty() {
        all.extend(image_families(&images));
        all.extend(time_families(&images, &context.told));
    }
    Ok(all)
}

fn client_families(clients: &[ClientReport]) -> Vec<Family> {
    let gauge = |name, help| Family::new(name, Kind::Gauge, help);
    let mut count = gauge("weir_ceph_client_images", "Images that a client serves.");
    let mut threads = gauge(
        "weir_ceph_client_threads",
        "Threads that a client has added to the process.",
    );
    let mut memory = gauge(
        "weir_ceph_client_resident_bytes",
        "Memory that a client has added to the process.",
    );
    let mut fenced = gauge(
        "weir_ceph_client_fenced",
        "Whether the cluster was told to refuse a client.",
    );
    let mut busiest = gauge(
        "weir_ceph_client_busiest_thread_ratio",
        "Part of a processor that the busiest thread of a client had when it was last looked at.",
    );
    for client in clients {
        let labels = || {
            [
                ("client", client.address.as_str()),
                ("id", client.id.as_str()),
            ]
        };
        count.add(labels(), client.images);
        fenced.add(labels(), u64::from(client.fenced));
        if let Some(thread) = &client.busiest_thread {
            busiest.add(labels(), f64::from(thread.percent) / 100.0);
        }
        if let Some(cost) = client.cost {
            threads.add(labels(), cost.threads);
            memory.add(labels(), cost.resident_bytes);
        }
    }
    vec![count, threads, memory, fenced, busiest]
}

fn image_families(images: &[Image]) -> Vec<Family> {
    let mut orphans = Family::new(
        "weir_image_orphans",
        Kind::Gauge,
        "Operations that were answered while librbd has their buffers still.",
    );
    let mut troubled = Family::new(
        "weir_image_troubled",
        Kind::Gauge,
        "Whether an image is out of reach, operations of it fail, or its watch is lost.",
    );
    let mut reopened = Family::new(
        "weir_image_reopened_total",
        Kind::Counter,
        "Times that an image was opened again on another client.",
    );
    let mut own = Family::new(
        "weir_image_own_client",
        Kind::Gauge,
        "Whether an image has moved to a client of its own.",
    );
    let mut moves = Family::new(
        "weir_image_moves_total",
        Kind::Counter,
        "Times that an image has moved to a client of its own, or that this was called off.",
    );
    let mut seconds = Family::new(
        "weir_image_librbd_seconds_total",
        Kind::Counter,
        "Time that librbd had operations of an image, by what they do.",
    );
    let mut operations = Family::new(
        "weir_image_librbd_operations_total",
        Kind::Counter,
        "Operations of an image that librbd had, by what they do.",
    );
    for Image {
        volume,
        name,
        report,
        ..
    } in images
    {
        let volume = [("volume", volume.as_str()), ("image", name.as_str())];
        orphans.add(volume, report.orphans);
        troubled.add(volume, u64::from(report.trouble.is_some()));
        reopened.add(volume, report.reopened);
        own.add(volume, u64::from(report.own_client.is_some()));
        for (result, count) in [
            ("done", report.moves),
            ("called_off", report.moves_called_off),
        ] {
            moves.add(volume.into_iter().chain([("result", result)]), count);
        }
        let LibrbdTimes {
            reads,
            writes,
            others,
            ..
        } = report.times;
        for (name, taken) in [("read", reads), ("write", writes), ("other", others)] {
            let with = || volume.into_iter().chain([("operation", name)]);
            seconds.add(with(), taken.nanoseconds as f64 / 1e9);
            operations.add(with(), taken.operations);
        }
    }
    vec![orphans, troubled, reopened, own, moves, seconds, operations]
}

/// Where the time of commands went, in all: librbd's part is that of [`image_families`].
fn time_families(images: &[Image], told: &Told) -> Vec<Family> {
    let counter = |name, help| Family::new(name, Kind::Counter, help);
    let mut commands = counter(
        "weir_image_commands_total",
        "Commands to the namespaces of an image that have ended, by what they do.",
    );
    let mut network = counter(
        "weir_image_network_seconds_total",
        "Time that commands to an image were on the wire, by what they do.",
    );
    let mut reactor = counter(
        "weir_image_reactor_seconds_total",
        "Time that commands to an image were in the gateway, and neither on the wire nor in librbd, by what they do.",
    );
    for image in images {
        for (name, kind, librbd_ns) in [
            ("read", CommandKind::Read, image.reads_librbd_ns),
            ("write", CommandKind::Write, image.writes_librbd_ns),
        ] {
            let Some(spent) = spent(&image.latency, kind) else {
                continue;
            };
            let volume = &image.volume;
            let with = || {
                [
                    ("volume", volume.as_str()),
                    ("image", image.name.as_str()),
                    ("operation", name),
                ]
            };
            let (reactor_ns, _) = spent.inside_ns(librbd_ns);
            let reactor_ns = told.never_less(volume, kind, spent.commands, reactor_ns);
            commands.add(with(), spent.commands);
            network.add(with(), spent.network_ns as f64 / 1e9);
            reactor.add(with(), reactor_ns as f64 / 1e9);
        }
    }
    vec![commands, network, reactor]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_is_told_falls_with_its_commands_alone() {
        let (told, volume) = (Told::default(), "v".parse().expect("a name"));
        use CommandKind::{Read, Write};
        for (kind, commands, nanoseconds, expected) in [
            (Read, 10, 500, 500),
            // librbd has counted what the command has not.
            (Read, 10, 400, 500),
            (Read, 11, 450, 500),
            (Write, 3, 70, 70),
            (Read, 12, 600, 600),
            // The namespace is another.
            (Read, 2, 20, 20),
            (Read, 3, 30, 30),
        ] {
            let is = told.never_less(&volume, kind, commands, nanoseconds);
            assert_eq!(is, expected, "{kind:?} {commands} {nanoseconds}");
        }
        told.retain(&[]);
        assert_eq!(told.never_less(&volume, Read, 3, 1), 1);
    }

    #[test]
    fn what_librbd_took_for_namespaces_that_are_gone_is_not_taken_from_the_others() {
        let (told, volume) = (Told::default(), "v".parse().expect("a name"));
        let nqn: crate::name::Nqn = "nqn.2026-01.com.example:a".parse().expect("a name");
        let look = |namespaces: &[(u32, u64)], librbd_ns| {
            let of = |&(nsid, commands): &(u32, u64)| {
                let subsystem = nqn.clone();
                (ExportName::Namespace { subsystem, nsid }, commands)
            };
            let commands = namespaces.iter().map(of).collect();
            told.librbd_ns(&volume, CommandKind::Read, commands, librbd_ns)
        };
        assert_eq!(look(&[(1, 10)], 1000), 1000);
        assert_eq!(look(&[(1, 30), (2, 10)], 4000), 4000);
        // Three quarters of the commands were the first one's. It is there again, and has read anew.
        assert_eq!(look(&[(1, 2), (2, 12)], 4400), 1400);
        assert_eq!(look(&[(1, 4), (2, 12)], 4600), 1600);
        // The second one is gone.
        assert_eq!(look(&[(1, 4)], 4600), 400);
        assert_eq!(look(&[], 4600), 0);
        assert_eq!(look(&[(3, 5)], 5200), 600);
        // The volume was opened anew.
        assert_eq!(look(&[(3, 1)], 90), 90);
        // Another kind, and another volume, have their own.
        let own = told.librbd_ns(&volume, CommandKind::Write, BTreeMap::new(), 50);
        assert_eq!(own, 50);
    }

    #[test]
    fn why_a_volume_has_its_own_client_is_told_in_figures_and_words() {
        let thread = Reason::Thread {
            name: "msgr-worker-1".to_owned(),
            percent: 83,
            bound_percent: 75,
        };
        let told = CephOwnClient::from(&thread);
        assert_eq!(
            (&*told.limit, told.measured, told.bound),
            ("thread", Some(83), Some(75))
        );
        assert!(told.text.contains("msgr-worker-1"), "{told:?}");
        let asked = CephOwnClient::from(&Reason::Asked);
        assert_eq!((&*asked.limit, asked.measured), ("asked", None));
    }

    #[test]
    fn the_parts_of_a_commands_time_are_all_of_it() {
        let mut latency = Latency::default();
        // Ten reads: 1 us in, 2 us queued, 90 us in the volume, 4 us out.
        latency.add(CommandKind::Read, [1000, 2000, 90_000, 4000], 10);
        let split = |librbd_ns| super::split(&latency, CommandKind::Read, librbd_ns);
        assert_eq!(
            split(800_000),
            Some(TimeSplit {
                commands: 10,
                network_ns: 5000,
                reactor_ns: 12_000,
                librbd_ns: 80_000
            })
        );
        // Orphans took longer than their commands.
        let all = split(80_000_000).expect("there were some");
        assert_eq!((all.reactor_ns, all.librbd_ns), (0, 92_000));
        assert_eq!(super::split(&latency, CommandKind::Write, 800_000), None);
    }
}
