//! The kinds that pass the contract: alone and behind a guard, on the real system and on the simulated one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use weir_block::{BlockSize, Volume};
use weir_reactor::sim::DiskConfig;
use weir_volume::{Guard, GuardConfig};

use crate::file::open_again;
use weir_testing::contract::{Kind, contract};
use weir_testing::harness::{Harness, seed};

const RETAINS: Kind = Kind { retains: true };

fn guarded(volume: Arc<dyn Volume>) -> Arc<dyn Volume> {
    Guard::new(volume, GuardConfig::default()).unwrap()
}

fn sub_block(volume: Arc<dyn Volume>) -> Arc<dyn Volume> {
    let config = GuardConfig {
        block_size: Some(BlockSize::B512),
        ..GuardConfig::default()
    };
    Guard::new(volume, config).unwrap()
}

/// The contract on a volume as it is, and behind a guard.
fn both(harness: &Harness, url: &str, kind: Kind, seed: u64) {
    println!("{url}");
    let volume = open_again(harness, url);
    contract(harness, &volume, kind, seed);
    contract(harness, &guarded(volume), kind, seed.wrapping_add(1));
}

#[test]
fn null_reads_as_zeroes() {
    let seed = seed("null_reads_as_zeroes");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    for url in [
        "null:?size=8M",
        "null:?size=1000k&block_size=512",
        "null:?size=8M&rate=100000&delay=200us",
    ] {
        both(&harness, url, Kind { retains: false }, seed);
    }
}

#[test]
fn mem_on_the_real_system() {
    let seed = seed("mem_on_the_real_system");
    let harness = Harness::real(1);
    both(&harness, "mem:?size=20M", RETAINS, seed);
    both(&harness, "mem:?size=6300k&block_size=512", RETAINS, seed);
}

#[test]
fn mem_on_the_simulated_system() {
    let seed = seed("mem_on_the_simulated_system");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    both(&harness, "mem:?size=8M&block_size=4k", RETAINS, seed);
    contract(
        &harness,
        &sub_block(harness.open("mem:?size=8M")),
        RETAINS,
        seed,
    );
}

/// A directory on the file system that the build is on, which has direct I/O as a rule, or in memory, which has not.
fn directory(on: Option<&Path>) -> tempfile::TempDir {
    match on {
        Some(on) => tempfile::tempdir_in(on).unwrap(),
        None => tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
    }
}

#[test]
fn files_on_the_real_system() {
    let seed = seed("files_on_the_real_system");
    let harness = Harness::real(1);
    let shm = PathBuf::from("/dev/shm");
    for (number, on) in [None, shm.is_dir().then_some(shm.as_path())]
        .into_iter()
        .enumerate()
    {
        let directory = directory(on);
        for (index, parameters) in [
            "size=5M",
            "size=3M&block_size=512",
            "size=3M&block_size=512&direct=never",
        ]
        .into_iter()
        .enumerate()
        {
            let path = directory.path().join(format!("{number}-{index}"));
            let url = format!("file:{}?{parameters}", path.display());
            both(&harness, &url, RETAINS, seed);
        }
    }
}

#[test]
fn files_on_the_simulated_system() {
    let seed = seed("files_on_the_simulated_system");
    let plain = DiskConfig::default();
    let disks = [
        plain,
        DiskConfig {
            direct: false,
            ..plain
        },
        DiskConfig {
            punch_hole: false,
            memory_alignment: 4096,
            ..plain
        },
        DiskConfig {
            zero_range: false,
            ..plain
        },
        DiskConfig {
            punch_hole: false,
            zero_range: false,
            ..plain
        },
        // Blocks of 512 bytes are made by reading and writing 4096.
        DiskConfig {
            offset_alignment: 4096,
            memory_alignment: 512,
            physical_block: 4096,
            ..plain
        },
    ];
    for disk in disks {
        println!("{disk:?}");
        let harness = Harness::simulated(seed, disk, 1);
        both(&harness, "file:/a?size=5M", RETAINS, seed);
        both(&harness, "file:/b?size=3M&block_size=512", RETAINS, seed);
        if let Some(simulation) = &harness.simulation {
            simulation.add_block_device(0, "/dev/x", 5 << 20);
        }
        both(&harness, "file:/dev/x", RETAINS, seed);
    }
}

/// A loop device over a file, where the machine lets us have one.
struct Loop {
    device: String,
    _directory: tempfile::TempDir,
}

impl Loop {
    fn new(sector: u32) -> Option<Self> {
        let directory = directory(None);
        let path = directory.path().join("backing");
        std::fs::File::create(&path)
            .unwrap()
            .set_len(3 << 20)
            .unwrap();
        let output = Command::new("losetup")
            .args(["--find", "--show", "--direct-io=on", "--sector-size"])
            .arg(sector.to_string())
            .arg(&path)
            .output()
            .ok()?;
        let device = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        output.status.success().then_some(Loop {
            device,
            _directory: directory,
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .status();
    }
}

#[test]
fn block_devices_on_the_real_system() {
    let seed = seed("block_devices_on_the_real_system");
    for sector in [512, 4096] {
        let Some(device) = Loop::new(sector) else {
            println!("skipped: no loop device of {sector}-byte sectors can be had here");
            continue;
        };
        let harness = Harness::real(1);
        let url = format!("file:{}", device.device);
        assert_eq!(
            open_again(&harness, &url).geometry().block_size.bytes(),
            sector
        );
        both(&harness, &url, RETAINS, seed);
        both(&harness, &format!("{url}?block_size=512"), RETAINS, seed);
        drop(harness);
    }
}

/// The URL of a new stripe over these members.
fn stripe_of(chunk: &str, members: &[String]) -> String {
    let url = weir_volume::VolumeUrl::new("stripe", "").with("chunk", chunk);
    set_of(url, members)
}

fn set_of(url: weir_volume::VolumeUrl, members: &[String]) -> String {
    let new = url.with("create", 1);
    let all = members
        .iter()
        .fold(new, |url, member| url.with("member", member));
    all.to_string()
}

#[test]
fn stripes_on_the_simulated_system() {
    let seed = seed("stripes_on_the_simulated_system");
    let disk = DiskConfig {
        punch_hole: !seed.is_multiple_of(3),
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 1);
    let mem = |size: &str| format!("mem:?size={size}");
    let file = |name: &str, parameters: &str| format!("file:/{name}?{parameters}");
    for url in [
        stripe_of("4k", &[mem("2M"), mem("2100k"), mem("3M")]),
        stripe_of("64k", &[mem("3M")]),
        stripe_of("12k", &[file("a", "size=3M"), mem("2M")]),
        stripe_of(
            "32k",
            &[
                file("b", "size=2M&block_size=512"),
                file("c", "size=2M&block_size=512"),
                file("d", "size=2M&block_size=512"),
                file("e", "size=2M&block_size=512"),
            ],
        ),
        // A stripe of stripes.
        stripe_of(
            "16k",
            &[
                stripe_of("4k", &[mem("3M"), mem("3M")]),
                stripe_of("8k", &[file("f", "size=3M"), mem("3M")]),
            ],
        ),
    ] {
        both(&harness, &url, RETAINS, seed);
    }
}

#[test]
fn concatenations() {
    let seed = seed("concatenations");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let concat = |members: &[String]| set_of(weir_volume::VolumeUrl::new("concat", ""), members);
    let mem = |size: &str| format!("mem:?size={size}");
    for url in [
        concat(&[mem("3M")]),
        concat(&[mem("1040k"), mem("2M"), mem("1028k"), mem("2100k")]),
        concat(&[
            "file:/a?size=2M&block_size=512".to_owned(),
            "file:/b?size=1100k&block_size=512".to_owned(),
        ]),
        concat(&[stripe_of("8k", &[mem("2M"), mem("3M")]), mem("2M")]),
    ] {
        both(&harness, &url, RETAINS, seed);
    }
}

#[test]
fn stripes_on_the_real_system() {
    let seed = seed("stripes_on_the_real_system");
    let harness = Harness::real(1);
    let directory = directory(None);
    let member = |name: &str| format!("file:{}?size=3M", directory.path().join(name).display());
    let url = stripe_of("128k", &[member("a"), member("b"), member("c")]);
    both(&harness, &url, RETAINS, seed);
}
