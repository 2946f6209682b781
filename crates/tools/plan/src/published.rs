//! What others published, kept as data with its source: the drives of a recorder, the curves of a gateway cluster, and the differences of two protocols.

use serde::Deserialize;

use crate::drive::{Drive, DriveError, Window};
use crate::sheet::Source;
use crate::units;

const DRIVES: &str = include_str!("../published/drives.toml");
const PROTOCOLS: &str = include_str!("../published/vsphere.toml");
const CONNECTIONS: &str = include_str!("../published/nfs.toml");

/// The published drives.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drives {
    line_rate: String,
    /// Who published it.
    pub source: String,
    /// In the order of the table.
    #[serde(rename = "drive")]
    pub drives: Vec<PublishedDrive>,
}

/// A published drive.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedDrive {
    /// What it is asked for by.
    pub name: String,
    /// In words.
    pub title: String,
    capacity: String,
    data_sheet: String,
    peak: String,
    sustained: String,
    rated_writes: Option<String>,
    dips: Option<PublishedDips>,
    /// Findings of its tests, in Weir's words.
    pub found: String,
    /// Drives that are needed, as published.
    pub needed: u64,
}

/// Dips of a drive to its lowest rate: their length and period are assumed, as nobody published them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedDips {
    /// Bytes that are written at the lowest rate.
    length: String,
    /// Bytes from the beginning of one to that of the next.
    every: String,
}

fn rate(text: &str) -> f64 {
    units::rate(text).expect("the published data is well formed")
}

impl PublishedDrive {
    /// Bytes per second of the data sheet.
    #[must_use]
    pub fn data_sheet(&self) -> f64 {
        rate(&self.data_sheet)
    }

    /// Bytes per second at first.
    #[must_use]
    pub fn peak(&self) -> f64 {
        rate(&self.peak)
    }

    /// The lowest measured bytes per second.
    #[must_use]
    pub fn sustained(&self) -> f64 {
        rate(&self.sustained)
    }

    /// Bytes.
    #[must_use]
    pub fn capacity(&self) -> f64 {
        units::bytes(&self.capacity).expect("the published data is well formed")
    }

    /// Windows by the assumed length of its dips: that of one, at the lowest rate, and one without end, at the mean of both rates.
    fn assumed_windows(&self) -> Vec<Window> {
        let Some(dips) = &self.dips else {
            return Vec::new();
        };
        let bytes = |text| units::bytes(text).expect("the published data is well formed");
        let (length, every) = (bytes(&dips.length), bytes(&dips.every));
        let slow = length / self.sustained();
        let cycle = slow + (every - length) / self.peak();
        vec![
            Window {
                seconds: slow,
                rate: self.sustained(),
            },
            Window {
                seconds: f64::INFINITY,
                rate: every / cycle,
            },
        ]
    }

    /// As a drive to plan with, whose lowest rate holds for ever.
    #[must_use]
    pub fn drive(&self) -> Drive {
        Drive {
            data_sheet: Some(self.data_sheet()),
            rated_writes: (self.rated_writes.as_ref()).map(|text| {
                let bytes = units::bytes(text).expect("the published data is well formed");
                (bytes, Source::Published)
            }),
            assumed_windows: self.assumed_windows(),
            ..Drive::steady(
                &self.name,
                self.sustained(),
                Some(self.capacity()),
                Source::Published,
            )
        }
    }
}

impl Drives {
    /// Bytes per second of the published line.
    #[must_use]
    pub fn line(&self) -> f64 {
        rate(&self.line_rate)
    }
}

/// The published drives.
///
/// # Panics
/// Never: the data is part of the program, and tested.
#[must_use]
pub fn drives() -> Drives {
    toml::from_str(DRIVES).expect("the published data is well formed")
}

/// The published drive of this name, or all of them.
///
/// # Errors
/// [`DriveError::Unknown`].
pub fn drives_named(name: &str) -> Result<Vec<Drive>, DriveError> {
    let all = drives().drives;
    let found: Vec<Drive> = all
        .iter()
        .filter(|drive| name == "all" || drive.name == name)
        .map(PublishedDrive::drive)
        .collect();
    if found.is_empty() {
        let names: Vec<&str> = all.iter().map(|drive| drive.name.as_str()).collect();
        return Err(DriveError::Unknown {
            name: name.to_owned(),
            there: names.join(", "),
        });
    }
    Ok(found)
}

/// Two protocols under a hypervisor, as published.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocols {
    /// Who published it.
    pub source: String,
    /// Machines and link of the test.
    pub setup: Setup,
    /// Figures that the article brings from elsewhere.
    pub background: Background,
    /// Differences of NVMe over RoCE v2 from iSCSI.
    #[serde(rename = "difference")]
    pub differences: Vec<PublishedDifference>,
}

/// Machines and link of the published test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Hosts of the hypervisor.
    pub hosts: u32,
    /// Virtual machines on all hosts.
    pub machines: u32,
    /// Virtual machines on each host.
    pub machines_per_host: u32,
    /// Gigabytes of a virtual machine's disk.
    pub machine_gigabytes: f64,
    /// Gigabytes of all disks.
    pub gigabytes: f64,
    /// Gb/s of a link.
    pub link_gigabits: f64,
}

/// Background figures of the published test.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Background {
    /// 4 KiB reads a second that a SATA SSD stays below.
    pub sata_reads: f64,
    /// 4 KiB reads a second of an NVMe SSD.
    pub nvme_reads: f64,
    /// Microseconds of pooled NVMe, about.
    pub nvme_microseconds: f64,
    /// Microseconds of all-flash behind iSCSI, at least.
    pub iscsi_microseconds: f64,
}

/// A published difference of NVMe over RoCE v2 from iSCSI.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublishedDifference {
    /// The workload, by the name that `weir bench --workload` takes.
    pub workload: String,
    /// The workload in words.
    pub title: String,
    /// Percent of each side's own maximum.
    pub load_percent: u32,
    /// Percent of throughput; none where it was not published.
    pub throughput_percent: Option<f64>,
    /// Percent of latency.
    pub latency_percent: f64,
}

impl PublishedDifference {
    /// Latency as a multiple of iSCSI's.
    #[must_use]
    pub fn latency(&self) -> f64 {
        1.0 + self.latency_percent / 100.0
    }

    /// Throughput as a multiple of iSCSI's; none where it was not published.
    #[must_use]
    pub fn throughput(&self) -> Option<f64> {
        self.throughput_percent.map(|percent| 1.0 + percent / 100.0)
    }
}

impl Protocols {
    /// The published difference of a workload at so many percent of each side's maximum.
    #[must_use]
    pub fn difference(&self, workload: &str, load_percent: u32) -> Option<&PublishedDifference> {
        let mut all = self.differences.iter();
        all.find(|of| of.workload == workload && of.load_percent == load_percent)
    }
}

/// The published differences of two protocols.
///
/// # Panics
/// Never: the data is part of the program, and tested.
#[must_use]
pub fn protocols() -> Protocols {
    toml::from_str(PROTOCOLS).expect("the published data is well formed")
}

/// One NFS mount over one connection and over several, as published.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connections {
    /// Publisher.
    pub source: String,
    /// The load of both runs.
    pub load: ConnectionsLoad,
    /// Statements.
    pub claims: ConnectionsClaims,
    /// The runs: over one connection, and over several.
    #[serde(rename = "run")]
    pub runs: Vec<ConnectionsRun>,
}

/// The load of the runs over connections.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsLoad {
    /// KiB of a read.
    pub block_kibibytes: f64,
    /// Reads in flight of a job.
    pub depth: f64,
    /// GiB of the file.
    pub file_gibibytes: f64,
    /// Seconds of a run.
    pub seconds: f64,
}

/// Statements on connections.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsClaims {
    /// Gb/s of the link.
    pub link_gigabits: f64,
    /// GB/s at which reads over one connection stall, about.
    pub read_gigabytes: f64,
    /// GB/s at which writes do, about.
    pub write_gigabytes: f64,
}

/// One published run.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConnectionsRun {
    /// Connections of the mount.
    pub connections: u32,
    /// Jobs, each with reads of its own in flight.
    pub jobs: u32,
    /// MiB a second.
    pub mebibytes_per_second: f64,
    /// Thousands of reads a second, where they are printed.
    pub kilo_iops: Option<f64>,
    /// Mean latency.
    pub mean_milliseconds: f64,
    /// Latency that 99 of 100 reads do not exceed.
    pub p99_milliseconds: f64,
    /// Percent of a processor's time in the kernel.
    pub system_percent: f64,
    /// GiB read in all, where they are printed.
    pub gibibytes_read: Option<f64>,
}

impl Connections {
    /// Reads in flight of a run.
    #[must_use]
    pub fn in_flight(&self, run: &ConnectionsRun) -> f64 {
        self.load.depth * f64::from(run.jobs)
    }

    /// Reads a second of a run, by its throughput.
    #[must_use]
    pub fn iops(&self, run: &ConnectionsRun) -> f64 {
        run.mebibytes_per_second * 1024.0 / self.load.block_kibibytes
    }
}

/// The published runs over connections.
///
/// # Panics
/// Never: the data is part of the program, and tested.
#[must_use]
pub fn connections() -> Connections {
    toml::from_str(CONNECTIONS).expect("the published data is well formed")
}

#[cfg(test)]
mod tests {
    use weir_ssd::Profile;

    use super::*;

    /// The models of these drives take the same ratings, and assume the same dips.
    #[test]
    fn ratings_and_dips_are_those_of_the_models() {
        let drives = drives().drives;
        let of = |name: &str| {
            drives
                .iter()
                .find(|of| of.name == name)
                .expect("it is there")
        };
        for (name, model) in [
            ("970-evo-plus", "970-evo-plus-1tb"),
            ("1725b", "1725b-1.6tb"),
        ] {
            let profile = Profile::builtin(model).expect("a model");
            let (bytes, _) = of(name).drive().rated_writes.expect("it is rated");
            assert_eq!(bytes, profile.rated_write_bytes as f64, "{name}");
        }
        let profile = Profile::builtin("1725b-1.6tb").expect("a model");
        let background = profile.background.expect("it has dips");
        let dips = of("1725b").dips.as_ref().expect("it has dips");
        let bytes = |text| units::bytes(text).expect("a size") as u64;
        assert_eq!(bytes(&dips.every), background.every_bytes);
        assert_eq!(bytes(&dips.length), background.length_bytes);
    }
}
