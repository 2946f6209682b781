//! Workloads that people know by a name.

use super::{Access, HotArea, Operations, SizeShare, Stream, Workload, WorkloadError};

const KIB: u64 = 1 << 10;
/// What a read hit reads from: vdbench's default hit area.
const HIT_AREA_BYTES: u64 = 1 << 20;

const FOUR_CORNERS: &str = "the usual four corners";
const VDBENCH: &str = "a public vdbench script that uses these names; that published comparisons of the same names used just these numbers is an assumption";

/// A workload that has a name.
#[derive(Debug, Clone, Copy)]
pub struct Named {
    /// What it is called.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Where the definition is from, and what is assumed. To be told with results.
    pub source: &'static str,
    make: fn() -> Workload,
}

impl Named {
    /// The workload itself.
    #[must_use]
    pub fn workload(&self) -> Workload {
        Workload {
            name: Some(self.name),
            round_up: true,
            ..(self.make)()
        }
    }
}

/// All of them.
pub const NAMED: &[Named] = &[
    Named {
        name: "4k-random-read",
        about: "100% read, 4 KiB, random",
        source: FOUR_CORNERS,
        make: || Workload::simple(4 * KIB, 100, Access::Random),
    },
    Named {
        name: "4k-random-write",
        about: "100% write, 4 KiB, random",
        source: FOUR_CORNERS,
        make: || Workload::simple(4 * KIB, 0, Access::Random),
    },
    Named {
        name: "64k-sequential-read",
        about: "100% read, 64 KiB, sequential",
        source: FOUR_CORNERS,
        make: || Workload::simple(64 * KIB, 100, Access::Sequential),
    },
    Named {
        name: "64k-sequential-write",
        about: "100% write, 64 KiB, sequential",
        source: FOUR_CORNERS,
        make: || Workload::simple(64 * KIB, 0, Access::Sequential),
    },
    Named {
        name: "16k-70-30",
        about: "70% read, 16 KiB, random",
        source: "published tests of Ceph's NVMe-oF gateway",
        make: || Workload::simple(16 * KIB, 70, Access::Random),
    },
    Named {
        name: "128k-sequential-read",
        about: "100% read, 128 KiB, sequential",
        source: "published tests of NFS",
        make: || Workload::simple(128 * KIB, 100, Access::Sequential),
    },
    Named {
        name: "sql",
        about: "97% read, 8 KiB, random",
        source: VDBENCH,
        make: || Workload::simple(8 * KIB, 97, Access::Random),
    },
    Named {
        name: "sql-90-10",
        about: "90% read, 8 KiB, random",
        source: VDBENCH,
        make: || Workload::simple(8 * KIB, 90, Access::Random),
    },
    Named {
        name: "sql-80-20",
        about: "80% read, 8 KiB, random",
        source: VDBENCH,
        make: || Workload::simple(8 * KIB, 80, Access::Random),
    },
    Named {
        name: "oracle",
        about: "99%: 80% read, 8 KiB, random; 1%: 1% read, 64 KiB, 0.1% random",
        source: VDBENCH,
        make: oracle,
    },
    Named {
        name: "oracle-90-10",
        about: "90% read, 8 KiB, random (in its source it differs from sql-90-10 in threads only)",
        source: VDBENCH,
        make: || Workload::simple(8 * KIB, 90, Access::Random),
    },
    Named {
        name: "oracle-80-20",
        about: "80% read, 8 KiB, random (in its source it differs from sql-80-20 in threads only)",
        source: VDBENCH,
        make: || Workload::simple(8 * KIB, 80, Access::Random),
    },
    Named {
        name: "oltp1",
        about: "4 KiB: 10% read hits (of the first 1 MiB), 35% random read, 35% random write, 5% sequential read, 15% sequential write",
        source: "Red Hat; the area of the read hits is vdbench's default",
        make: oltp1,
    },
    Named {
        name: "jesd219",
        about: "40% read; 512 to 3584 bytes 10%, 4 KiB 67%, 8 KiB 10%, 16 KiB 7%, 32 and 64 KiB 3% each; half of it to 5% of the space",
        source: "JEDEC JESD219, by fio's example of it; requests shorter than the volume's block are made as long as one",
        make: jesd219,
    },
];

/// The workload of this name.
///
/// # Errors
/// [`WorkloadError::Unknown`] says which there are.
pub fn named(name: &str) -> Result<&'static Named, WorkloadError> {
    let unknown = || WorkloadError::Unknown {
        name: name.to_owned(),
    };
    NAMED.iter().find(|of| of.name == name).ok_or_else(unknown)
}

/// All names, for an error.
pub(super) fn names() -> String {
    let names: Vec<_> = NAMED.iter().map(|of| of.name).collect();
    names.join(", ")
}

fn stream(share_percent: f64, bytes: u64, read_percent: f64, access: Access) -> Stream {
    Stream {
        share_percent,
        operations: Operations::read_write(read_percent),
        sizes: vec![SizeShare {
            bytes,
            percent: 100.0,
        }],
        align_bytes: None,
        access,
        range_bytes: None,
    }
}

fn oracle() -> Workload {
    let log = Access::Mixed {
        random_percent: 0.1,
    };
    Workload {
        streams: vec![
            stream(99.0, 8 * KIB, 80.0, Access::Random),
            stream(1.0, 64 * KIB, 1.0, log),
        ],
        ..Workload::simple(8 * KIB, 80, Access::Random)
    }
}

fn oltp1() -> Workload {
    let hits = Stream {
        range_bytes: Some(HIT_AREA_BYTES),
        ..stream(10.0, 4 * KIB, 100.0, Access::Random)
    };
    Workload {
        streams: vec![
            hits,
            stream(35.0, 4 * KIB, 100.0, Access::Random),
            stream(35.0, 4 * KIB, 0.0, Access::Random),
            stream(5.0, 4 * KIB, 100.0, Access::Sequential),
            stream(15.0, 4 * KIB, 0.0, Access::Sequential),
        ],
        ..Workload::simple(4 * KIB, 50, Access::Random)
    }
}

fn jesd219() -> Workload {
    const SIZES: [(u64, f64); 12] = [
        (512, 4.0),
        (1024, 1.0),
        (1536, 1.0),
        (2048, 1.0),
        (2560, 1.0),
        (3072, 1.0),
        (3584, 1.0),
        (4 * KIB, 67.0),
        (8 * KIB, 10.0),
        (16 * KIB, 7.0),
        (32 * KIB, 3.0),
        (64 * KIB, 3.0),
    ];
    const AREAS: [(f64, f64); 3] = [(50.0, 5.0), (30.0, 15.0), (20.0, 80.0)];
    let areas = AREAS.map(|(requests_percent, space_percent)| HotArea {
        requests_percent,
        space_percent,
    });
    Workload::of(Stream {
        sizes: SIZES
            .map(|(bytes, percent)| SizeShare { bytes, percent })
            .to_vec(),
        align_bytes: Some(4 * KIB),
        ..stream(
            100.0,
            4 * KIB,
            40.0,
            Access::Hot {
                areas: areas.to_vec(),
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Kind;

    #[test]
    fn every_named_workload_is_sound_and_known_by_its_name() {
        for of in NAMED {
            let workload = of.workload();
            workload
                .check()
                .unwrap_or_else(|error| panic!("{}: {error}", of.name));
            assert_eq!(workload.name, Some(of.name));
            assert_eq!(named(of.name).expect("it is known").name, of.name);
            let total: f64 = Kind::ALL.iter().map(|&kind| workload.percent(kind)).sum();
            assert!((total - 100.0).abs() < 1e-9, "{}: {total}", of.name);
        }
        let error = named("sql-70-30").expect_err("there is none").to_string();
        assert!(
            error.contains("sql-90-10") && error.contains("jesd219"),
            "{error}"
        );
    }

    #[test]
    fn named_workloads_read_as_much_as_their_definitions_say() {
        for (name, reads) in [
            ("4k-random-read", 100.0),
            ("4k-random-write", 0.0),
            ("16k-70-30", 70.0),
            ("sql", 97.0),
            ("oracle-80-20", 80.0),
            ("oltp1", 50.0),
            ("jesd219", 40.0),
        ] {
            let workload = named(name).expect("it is known").workload();
            assert!(
                (workload.percent(Kind::Read) - reads).abs() < 1e-9,
                "{name}"
            );
        }
    }
}
