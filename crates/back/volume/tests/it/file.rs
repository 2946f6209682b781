//! Files and devices: how they are opened and refused, and what their failures become.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{
    BlockSize, DeallocatedRead, HealthReport, Operation, ReadBuffers, ResizeError, Volume,
    VolumeError,
};
use weir_memory::View;
use weir_reactor::sim::DiskConfig;
use weir_testing::harness::{self, Client, Harness, seed, views_of, write};
use weir_volume::{Access, OpenError, Registry};

/// Opens a medium that was in use until just now. What was in flight has to end, and a child that another test starts has every descriptor,
/// and with that its lock, until it executes its program. The limit only ends a test that hangs.
pub(crate) fn try_open_again(harness: &Harness, url: &str) -> Result<Arc<dyn Volume>, OpenError> {
    const PAUSE: Duration = Duration::from_millis(10);
    const ATTEMPTS: u32 = 30_000;
    for _ in 0..ATTEMPTS {
        match harness.try_open(url, Access::READ_WRITE) {
            Err(error) if error.in_use() => {
                harness.run(0, |reactor| async move { reactor.sleep(PAUSE).await });
            }
            opened => return opened,
        }
    }
    harness.try_open(url, Access::READ_WRITE)
}

pub(crate) fn open_again(harness: &Harness, url: &str) -> Arc<dyn Volume> {
    try_open_again(harness, url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refusal(harness: &Harness, url: &str) -> String {
    match try_open_again(harness, url) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_file_is_created_on_request_and_never_changed_by_opening() {
    let seed = seed("a_file_is_created_on_request_and_never_changed_by_opening");
    let simulated = Harness::simulated(seed, DiskConfig::default(), 1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (harness, path) in [
        (simulated, "/images/a".to_owned()),
        (
            Harness::real(1),
            directory.path().join("a").display().to_string(),
        ),
    ] {
        let error = refusal(&harness, &format!("file:{path}"));
        assert!(error.contains("with size= it is created"), "{error}");
        let missing = harness.try_open(&format!("file:{path}?size=1M"), Access::READ_ONLY);
        assert!(missing.is_err(), "reading only creates nothing");

        let volume = harness.open(&format!("file:{path}?size=1M"));
        assert_eq!(volume.geometry().length_bytes(), 1 << 20);
        let shared = Arc::clone(&volume);
        harness.run(0, move |reactor| async move {
            let client = Client::open(&shared, &reactor, 1);
            assert_eq!(client.write(3, 1, &[7; 4096]).await, Ok(()));
        });
        drop(volume);

        let error = refusal(&harness, &format!("file:{path}?size=2M"));
        assert!(
            error.contains("1048576") && error.contains("2097152"),
            "both sizes: {error}"
        );
        let error = refusal(&harness, &format!("file:{path}?size=1000"));
        assert!(error.contains("size=1000 is not allowed"), "{error}");
        for url in [format!("file:{path}?size=1M"), format!("file:{path}")] {
            let volume = open_again(&harness, &url);
            let kept = harness.run(0, move |reactor| async move {
                Client::open(&volume, &reactor, 1).read(3, 1).await
            });
            assert_eq!(kept, Ok(vec![7; 4096]));
        }
    }
}

#[test]
fn a_second_writer_is_refused_whatever_the_path_is_called() {
    let seed = seed("a_second_writer_is_refused_whatever_the_path_is_called");
    let simulated = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = simulated.simulation.as_ref().unwrap().world();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let real = directory.path().join("a");
    let link = directory.path().join("b");
    for (harness, path, other) in [
        (
            simulated,
            Path::new("/a").to_owned(),
            Path::new("/b").to_owned(),
        ),
        (Harness::real(1), real, link),
    ] {
        let url = format!("file:{}?size=1M", path.display());
        let first = harness.open(&url);
        if harness.simulation.is_some() {
            world.link(0, &path, &other);
        } else {
            std::fs::hard_link(&path, &other).unwrap();
        }
        for path in [&path, &other] {
            let second = harness.try_open(&format!("file:{}", path.display()), Access::READ_WRITE);
            let error = second.err().expect("it is open for writing");
            assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
        }
        drop(first);
        drop(open_again(&harness, &url));
    }
}

#[test]
fn what_a_url_asks_for_and_cannot_have_is_said_with_numbers() {
    let seed = seed("what_a_url_asks_for_and_cannot_have_is_said_with_numbers");
    let disk = DiskConfig {
        offset_alignment: 16384,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, disk, 1);
    let error = refusal(&harness, "file:/a?size=1M&direct=always");
    assert!(error.contains("16384") && error.contains("4096"), "{error}");
    let registry = Registry::standard();
    let opened = harness.open_with(&registry, "file:/b?size=1M", Access::READ_WRITE);
    assert!(opened.is_ok());
    let notices = registry.take_notices();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(notices[0].to_string().contains("page cache"), "{notices:?}");
    assert!(registry.take_notices().is_empty());

    let plain = DiskConfig {
        direct: false,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, plain, 1);
    let opened = harness.open_with(&registry, "file:/a?size=1M", Access::READ_WRITE);
    assert!(opened.is_ok());
    let notices = registry.take_notices();
    assert!(notices[0].text.contains("no direct I/O"), "{notices:?}");
    let opened = harness.open_with(
        &registry,
        "file:/b?size=1M&direct=never",
        Access::READ_WRITE,
    );
    assert!(opened.is_ok());
    assert!(registry.take_notices().is_empty(), "it was asked for");
    assert!(refusal(&harness, "file:/c?size=1M&direct=always").contains("direct"));

    let wide = DiskConfig {
        offset_alignment: 4096,
        physical_block: 4096,
        ..DiskConfig::default()
    };
    let harness = Harness::simulated(seed, wide, 1);
    let url = "file:/a?size=1M&block_size=512";
    let volume = harness
        .open_with(&registry, url, Access::READ_WRITE)
        .unwrap();
    let geometry = volume.geometry();
    assert_eq!(geometry.transfer_blocks_optimal, 8, "what it likes is said");
    assert_eq!(geometry.atomic_blocks_power_fail, 1);
    assert!(registry.take_notices()[0].text.contains("read first"));
    let error = refusal(&harness, "file:/b?size=1000k&block_size=512&bloksize=3");
    assert!(error.contains("block_size="), "{error}");
    let odd = refusal(&harness, "file:/c?size=66048&block_size=512&direct=always");
    assert!(odd.contains("66048") && odd.contains("4096"), "{odd}");

    assert!(refusal(&harness, "file://host/a").contains("no host"));
    assert!(refusal(&harness, "file:?size=1M").contains("a path"));
    assert!(refusal(&harness, "flie:/a").contains("did you mean file:?"));
    assert!(refusal(&harness, "mem:?size=32T").contains("16 TiB"));
    assert!(refusal(&harness, "mem:?block_size=512").contains("need size="));
}

/// A host takes one block at least for whole after a power failure, and no block size is too long to say so.
#[test]
fn blocks_that_the_medium_does_not_write_whole_are_told_of() {
    let seed = seed("blocks_that_the_medium_does_not_write_whole_are_told_of");
    for (physical_block, offset_alignment, block_size, is_torn) in [
        (512, 512, 4096, true),
        (512, 512, 512, false),
        (512, 4096, 4096, true),
        // A block's neighbours are written again as they were.
        (512, 4096, 512, false),
        (4096, 512, 4096, false),
        (4096, 512, 512, false),
    ] {
        let disk = DiskConfig {
            physical_block,
            offset_alignment,
            ..DiskConfig::default()
        };
        let harness = Harness::simulated(seed, disk, 1);
        let registry = Registry::standard();
        let told = || {
            let notices = registry.take_notices();
            notices.iter().any(|notice| {
                notice.text.contains("half written") && notice.text.contains("512 at a time whole")
            })
        };
        let url = format!("file:/a?size=1M&block_size={block_size}");
        let opened = harness.open_with(&registry, &url, Access::READ_WRITE);
        drop(opened.unwrap());
        assert_eq!(told(), is_torn, "{disk:?}");
        let opened = harness.open_with(&registry, &url, Access::READ_ONLY);
        drop(opened.unwrap());
        assert!(!told(), "who only reads tears nothing");
    }
}

#[test]
fn the_block_size_follows_what_is_there_unless_told() {
    let harness = Harness::real(1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("odd");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(512 * 9)
        .unwrap();
    let url = format!("file:{}", path.display());
    let geometry = harness.open(&format!("{url}?direct=never")).geometry();
    assert_eq!((geometry.block_size, geometry.blocks), (BlockSize::B512, 9));
    assert!(
        geometry.volatile_cache,
        "a file is a cache until it is synced"
    );
    assert_eq!(geometry.deallocated_read, DeallocatedRead::Zeroes);
    let error = refusal(&harness, &format!("{url}?block_size=4096"));
    assert!(
        error.contains("4608") && error.contains("block_size=512 fits"),
        "{error}"
    );
    std::fs::File::create(&path).unwrap();
    assert!(refusal(&harness, &url).contains("empty"));
    std::fs::write(&path, [1; 100]).unwrap();
    assert!(refusal(&harness, &url).contains("100"));
}

/// A file system of a few mebibytes, where the machine lets us mount one.
struct Small {
    directory: tempfile::TempDir,
}

impl Small {
    fn mount() -> Option<Self> {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(directory.path())
            .output()
            .ok()?;
        mounted.status.success().then_some(Small { directory })
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.directory.path()).status();
    }
}

#[test]
fn a_regular_file_has_no_health_and_says_why() {
    let harness = Harness::real(1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("a");
    let volume = harness.open(&format!("file:{}?size=1M", path.display()));
    let report = harness.run(
        0,
        move |reactor| async move { volume.health(&reactor).await },
    );
    let reason = "it is a regular file, not an NVMe drive";
    assert_eq!(report, HealthReport::unknown(reason.to_owned()));
}

async fn fill_up(client: &Client, blocks: u64) -> u64 {
    let data = vec![0xAB; 64 << 10];
    let mut failed = 0;
    for lba in (0..blocks).step_by(16) {
        match client.write(lba, 16, &data).await {
            Ok(()) => assert_eq!(client.read(lba, 16).await.as_deref(), Ok(&*data)),
            Err(VolumeError::NoSpace) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    failed
}

/// A full medium fails the writes that need room, and nothing else; room that is given back can be used again.
fn full(harness: &Harness, url: &str) {
    let volume = harness.open(url);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        let failed = fill_up(&client, 1024).await;
        assert!(failed > 0, "4 MiB do not fit in 2");
        let hint = Operation::Deallocate {
            lba: 0,
            blocks: 1024,
        };
        assert_eq!(client.done(hint).await, Ok(()));
        assert_eq!(client.write(1000, 1, &[1; 4096]).await, Ok(()));
        assert_eq!(client.read(1000, 1).await, Ok(vec![1; 4096]));
    });
}

#[test]
fn a_full_medium_has_no_space() {
    let seed = seed("a_full_medium_has_no_space");
    let disk = DiskConfig {
        capacity: 2 << 20,
        ..DiskConfig::default()
    };
    full(&Harness::simulated(seed, disk, 1), "file:/a?size=4M");
    match Small::mount() {
        Some(small) => {
            let path = small.directory.path().join("a");
            full(
                &Harness::real(1),
                &format!("file:{}?size=4M", path.display()),
            );
        }
        None => println!("skipped on the real system: nothing can be mounted here"),
    }
}

#[test]
fn what_the_disk_fails_with_is_told_and_leaves_the_volume_alive() {
    let seed = seed("what_the_disk_fails_with_is_told_and_leaves_the_volume_alive");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let volume = harness.open("file:/a?size=1M");
    let (read, write_, sync) = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        assert_eq!(client.write(0, 1, &[1; 4096]).await, Ok(()));
        world.change_faults(|faults| {
            faults.read_error_probability = 1.0;
            faults.write_error_probability = 1.0;
            faults.sync_error_probability = 1.0;
        });
        let failed = (
            client.read(0, 1).await.err(),
            client.write(1, 1, &[2; 4096]).await.err(),
            client.done(Operation::Flush).await.err(),
        );
        let verify = Operation::Verify { lba: 0, blocks: 9 };
        assert_eq!(client.done(verify).await, Err(VolumeError::Medium));
        for (deallocate, fua) in [(true, false), (false, true)] {
            let zero = Operation::WriteZeroes {
                lba: 4,
                blocks: 4,
                deallocate,
                fua,
            };
            assert_eq!(client.done(zero).await, Err(VolumeError::Medium));
        }
        world.change_faults(|faults| {
            faults.read_error_probability = 0.0;
            faults.write_error_probability = 0.0;
            faults.sync_error_probability = 0.0;
        });
        assert_eq!(client.read(0, 1).await, Ok(vec![1; 4096]));
        assert_eq!(client.write(1, 1, &[3; 4096]).await, Ok(()));
        // What the failed sync should have made durable no later one makes so.
        let flush = client.done(Operation::Flush).await;
        assert_eq!(flush, Err(VolumeError::Medium));
        failed
    });
    let medium = Some(VolumeError::Medium);
    assert_eq!((read, write_, sync), (medium, medium, medium));
}

/// A flush that succeeds says that everything written before is durable, also what a failed one before it did not reach.
#[test]
fn no_flush_succeeds_after_one_that_failed_until_the_volume_is_opened_again() {
    let seed = seed("no_flush_succeeds_after_one_that_failed_until_the_volume_is_opened_again");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let volume = harness.open("file:/a?size=1M");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        let other = Client::open(&volume, &reactor, 4);
        assert_eq!(client.write(0, 1, &[1; 4096]).await, Ok(()));
        assert_eq!(client.done(Operation::Flush).await, Ok(()));
        world.change_faults(|faults| faults.sync_error_probability = 1.0);
        let failed = client.done(Operation::Flush).await;
        world.change_faults(|faults| faults.sync_error_probability = 0.0);
        let zero = Operation::WriteZeroes {
            lba: 4,
            blocks: 4,
            deallocate: true,
            fua: true,
        };
        assert_eq!(failed, Err(VolumeError::Medium));
        for client in [&client, &other] {
            let flush = client.done(Operation::Flush).await;
            assert_eq!(flush, Err(VolumeError::Medium));
        }
        assert_eq!(client.done(zero).await, Err(VolumeError::Medium));
    });
    let volume = harness.open("file:/a");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        assert_eq!(client.read(0, 1).await, Ok(vec![1; 4096]));
        assert_eq!(client.done(Operation::Flush).await, Ok(()));
    });
}

/// The system tells once that a write could not be written back, also by what is no flush.
#[test]
fn no_flush_succeeds_after_a_durable_change_that_failed_until_the_volume_is_opened_again() {
    let seed = seed(
        "no_flush_succeeds_after_a_durable_change_that_failed_until_the_volume_is_opened_again",
    );
    // Zeroes are written here.
    let disk = DiskConfig {
        punch_hole: false,
        zero_range: false,
        ..DiskConfig::default()
    };
    for what in ["a write", "a write of zeroes", "a resize"] {
        let harness = Harness::simulated(seed, disk, 1);
        let world = harness.simulation.as_ref().unwrap().world();
        let volume = harness.open("file:/a?size=1M");
        harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 4);
            let other = Client::open(&volume, &reactor, 4);
            world.change_faults(|faults| faults.writeback_error_probability = 1.0);
            assert_eq!(client.write(0, 1, &[1; 4096]).await, Ok(()));
            world.change_faults(|faults| faults.writeback_error_probability = 0.0);
            let failed = match what {
                "a write" => client.done(Operation::Write {
                    lba: 1,
                    blocks: 1,
                    data: views_of(&[2; 4096]),
                    fua: true,
                }),
                "a write of zeroes" => client.done(Operation::WriteZeroes {
                    lba: 1,
                    blocks: 1,
                    deallocate: false,
                    fua: true,
                }),
                _ => {
                    let grown = Arc::clone(&volume).resize(&reactor, 512, false).await;
                    assert!(
                        matches!(grown, Err(ResizeError::Medium { .. })),
                        "{grown:?}"
                    );
                    client.done(Operation::Flush)
                }
            };
            assert_eq!(failed.await, Err(VolumeError::Medium), "{what}");
            for client in [&client, &other] {
                let flush = client.done(Operation::Flush).await;
                assert_eq!(flush, Err(VolumeError::Medium), "{what}");
            }
        });
        let volume = harness.open("file:/a");
        harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 4);
            assert_eq!(client.done(Operation::Flush).await, Ok(()));
        });
    }
}

/// A length that the file system refuses says nothing of what was written.
#[test]
fn a_resize_that_is_refused_leaves_flushes_alone() {
    let harness = Harness::real(1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("a");
    let volume = harness.open(&format!("file:{}?size=1M", path.display()));
    // More bytes than a file of any file system can have.
    let blocks = 1 << 51;
    let grown = harness.resize(&volume, blocks, false);
    assert!(
        matches!(grown, Err(ResizeError::Medium { .. })),
        "{grown:?}"
    );
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        assert_eq!(client.write(0, 1, &[1; 4096]).await, Ok(()));
        assert_eq!(client.done(Operation::Flush).await, Ok(()));
    });
}

/// Buffers come back from a request that failed, as they were given.
#[test]
fn a_failed_read_gives_its_buffers_back() {
    let seed = seed("a_failed_read_gives_its_buffers_back");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let volume = harness.open("file:/a?size=1M");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        world.change_faults(|faults| faults.read_error_probability = 1.0);
        let read = Operation::Read {
            lba: 0,
            blocks: 1,
            buffers: ReadBuffers::Into(std::iter::once(harness::segment(4096)).collect()),
        };
        let (result, operation) = client.call(read).await;
        assert_eq!(result, Err(VolumeError::Medium));
        let Operation::Read {
            buffers: ReadBuffers::Into(segments),
            ..
        } = operation
        else {
            panic!("{operation:?}")
        };
        assert_eq!(segments.len(), 1);
    });
}

/// Requests that hold memory, as those do that bring data to be compared, could wait for each other's: one of them always has
/// a buffer.
#[test]
fn requests_that_hold_memory_end_though_the_pool_is_exhausted() {
    let seed = seed("requests_that_hold_memory_end_though_the_pool_is_exhausted");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = harness.open("file:/a?size=4M");
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 16);
        let mut taken = Vec::new();
        for length in [1 << 20, 64 << 10, 4096, 512] {
            while let Ok(segment) = reactor.pool().segment(length) {
                taken.push(segment);
            }
        }
        let compare = |lba| Operation::Compare {
            lba,
            blocks: 16,
            data: views_of(&[0; 16 * 4096]),
        };
        // It holds nothing, and waits.
        let read = client.submit(Operation::Read {
            lba: 0,
            blocks: 1,
            buffers: ReadBuffers::Lend,
        });
        let tokens: Vec<_> = (0..8).map(|lba| client.submit(compare(lba))).collect();
        for token in tokens {
            assert_eq!(client.completion(token).await.0, Ok(()));
        }
        // Data that is not as the disk wants it goes through a buffer too.
        let mut data = View::copy_of(&[7; 4097]);
        data.advance(1);
        let write = Operation::Write {
            lba: 5,
            blocks: 1,
            data: std::iter::once(data).collect(),
            fua: false,
        };
        assert_eq!(client.done(write).await, Ok(()));
        drop(taken);
        assert_eq!(client.completion(read).await.0, Ok(()));
    });
}

#[test]
fn a_file_that_shrinks_underneath_fails_reads_behind_its_end() {
    let harness = Harness::real(1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("a");
    let volume = harness.open(&format!("file:{}?size=1M", path.display()));
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        assert_eq!(client.read(200, 1).await, Ok(vec![0; 4096]));
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(100 * 4096).unwrap();
        assert_eq!(client.read(200, 1).await, Err(VolumeError::Medium));
        assert_eq!(client.read(99, 2).await, Err(VolumeError::Medium));
        assert_eq!(client.read(99, 1).await, Ok(vec![0; 4096]));
    });
}

/// A write that lands behind the new end after the cut would make the file longer, and a restart take that for its size.
#[test]
fn a_shrink_waits_for_what_is_in_flight_behind_the_new_end() {
    let seed = seed("a_shrink_waits_for_what_is_in_flight_behind_the_new_end");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let volume = harness.open("file:/a?size=1M");
    let ended = harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        world.change_faults(|faults| {
            faults.read_delay = Duration::from_millis(10)..=Duration::from_millis(10);
            faults.write_delay = faults.read_delay.clone();
        });
        let verify = Operation::Verify {
            lba: 0,
            blocks: 256,
        };
        let in_flight = [
            client.submit(write(200, 1, &[1; 4096])),
            client.submit(verify),
            client.submit(write(99, 2, &[1; 8192])),
        ];
        reactor.sleep(Duration::from_millis(1)).await;
        let cut = Arc::clone(&volume).resize(&reactor, 100, true).await;
        assert_eq!(cut.unwrap().blocks, 100);
        let refused = client.write(100, 1, &[1; 4096]).await;
        assert_eq!(refused, Err(VolumeError::OutOfRange));
        let mut ended = Vec::new();
        for token in in_flight {
            ended.push(client.completion(token).await.0);
        }
        ended
    });
    let volume = open_again(&harness, "file:/a");
    assert_eq!(volume.geometry().blocks, 100);
    assert_eq!(ended, [Ok(()); 3]);
    let grown = harness.resize(&volume, 256, false);
    assert_eq!(grown.unwrap().blocks, 256);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 4);
        assert_eq!(client.read(99, 1).await, Ok(vec![1; 4096]));
        assert_eq!(client.read(200, 1).await, Ok(vec![0; 4096]));
    });
}

/// A file that was cut off, and not durably, is no longer than it is.
#[test]
fn a_shrink_that_is_not_durable_is_done_and_told() {
    let seed = seed("a_shrink_that_is_not_durable_is_done_and_told");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let world = harness.simulation.as_ref().unwrap().world();
    let volume = harness.open("file:/a?size=1M");
    world.change_faults(|faults| faults.sync_error_probability = 1.0);
    let cut = harness.resize(&volume, 100, true);
    assert!(matches!(cut, Err(ResizeError::Medium { .. })), "{cut:?}");
    assert_eq!(volume.geometry().blocks, 100);
}

#[test]
fn a_file_that_grew_outside_is_taken_at_its_new_size() {
    let harness = Harness::real(1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("a");
    let volume = harness.open(&format!("file:{}?size=1M", path.display()));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[8; 4096], 300 * 4096).unwrap();
    let unaligned = harness.resize(&volume, 0, true);
    assert!(matches!(unaligned, Err(ResizeError::Medium { .. })));
    assert_eq!(harness.resize(&volume, 301, false).unwrap().blocks, 301);
    let read = harness.run(0, move |reactor| async move {
        Client::open(&volume, &reactor, 1).read(300, 1).await
    });
    assert_eq!(read, Ok(vec![8; 4096]), "what came with the growth is kept");
}

/// What was acknowledged and then flushed, or written with FUA, is there after a power failure.
#[test]
fn what_is_durable_survives_a_power_failure() {
    use weir_reactor::sim::{Config, Crash, Simulation};
    let seed = seed("what_is_durable_survives_a_power_failure");
    for round in 0..10 {
        let simulation = Simulation::new(Config {
            seed: seed.wrapping_add(round),
            ..Config::default()
        });
        let world = simulation.world();
        let open = |reactor: weir_reactor::Reactor, url: &'static str| async move {
            let url = url.parse().unwrap();
            let registry = Registry::standard();
            registry
                .open(&reactor, &url, Access::READ_WRITE)
                .await
                .unwrap()
        };
        simulation.run(0, move |reactor| async move {
            let volume = open(reactor.clone(), "file:/a?size=1M").await;
            let client = Client::open(&volume, &reactor, 8);
            assert_eq!(client.write(0, 2, &[1; 8192]).await, Ok(()));
            let zero = Operation::WriteZeroes {
                lba: 1,
                blocks: 1,
                deallocate: true,
                fua: false,
            };
            assert_eq!(client.done(zero).await, Ok(()));
            assert_eq!(client.done(Operation::Flush).await, Ok(()));
            let Operation::Write { data, .. } = write(2, 1, &[2; 4096]) else {
                unreachable!("it is a write")
            };
            let durable = Operation::Write {
                lba: 2,
                blocks: 1,
                data,
                fua: true,
            };
            assert_eq!(client.done(durable).await, Ok(()));
            // This one may be lost.
            assert_eq!(client.write(3, 1, &[3; 4096]).await, Ok(()));
        });
        world.crash(0, Crash::Power);
        world.restart(0);
        let there = simulation.run(0, move |reactor| async move {
            let volume = open(reactor.clone(), "file:/a").await;
            Client::open(&volume, &reactor, 8).read(0, 3).await.unwrap()
        });
        let expected = [vec![1; 4096], vec![0; 4096], vec![2; 4096]].concat();
        assert!(there == expected, "round {round}");
    }
}

/// Zeroes with FUA are durable, also those that the medium made before it said in the middle of a request that it cannot.
#[test]
fn zeroes_made_in_two_ways_are_durable() {
    use std::time::Duration;
    use weir_reactor::sim::{Config, Crash, Faults, Simulation};
    /// One deallocation makes so many zeroes at most.
    const PIECE: u64 = 1 << 30;
    let delay = Duration::from_millis(10);
    let simulation = Simulation::new(Config {
        seed: seed("zeroes_made_in_two_ways_are_durable"),
        faults: Faults {
            write_delay: delay..=delay,
            ..Faults::default()
        },
        ..Config::default()
    });
    let world = simulation.world();
    let open = |reactor: weir_reactor::Reactor, url: &'static str| async move {
        let (registry, url) = (Registry::standard(), url.parse().unwrap());
        let opened = registry.open(&reactor, &url, Access::READ_WRITE).await;
        Client::open(&opened.unwrap(), &reactor, 8)
    };
    let disks = world.clone();
    simulation.run(0, move |reactor| async move {
        let client = open(reactor.clone(), "file:/a?size=2G").await;
        assert_eq!(client.write(0, 64, &[1; 64 * 4096]).await, Ok(()));
        assert_eq!(client.done(Operation::Flush).await, Ok(()));
        let token = client.submit(Operation::WriteZeroes {
            lba: 0,
            blocks: PIECE / 4096 + 1,
            deallocate: true,
            fua: true,
        });
        // The first piece has begun.
        reactor.sleep(delay / 2).await;
        disks.change_disks(|disk| (disk.punch_hole, disk.zero_range) = (false, false));
        assert_eq!(client.completion(token).await.0, Ok(()));
    });
    world.crash(0, Crash::Power);
    world.restart(0);
    let there = simulation.run(0, move |reactor| async move {
        open(reactor, "file:/a").await.read(0, 64).await.unwrap()
    });
    assert!(there.iter().all(|byte| *byte == 0));
}

/// A medium is let go when its last queue is dropped and what that had in flight has ended: nothing keeps it.
#[test]
fn a_medium_is_let_go_when_its_volume_is_dropped() {
    let seed = seed("a_medium_is_let_go_when_its_volume_is_dropped");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("a").display().to_string();
    for (harness, path) in [
        (
            Harness::simulated(seed, DiskConfig::default(), 2),
            "/a".to_owned(),
        ),
        (Harness::real(2), path),
    ] {
        let url = format!("file:{path}?size=1M");
        let outer = weir_volume::VolumeUrl::new("stripe", "")
            .with("create", 1)
            .with("destroy_data", 1)
            .with("member", format!("file:{path}-2?size=2M"))
            .to_string();
        for url in [&url, &outer] {
            for round in 0..3 {
                let opened = open_again(&harness, url);
                let volume: Arc<dyn Volume> =
                    weir_volume::Guard::new(opened, Default::default()).unwrap();
                harness.run_all(move |_, reactor| {
                    let volume = Arc::clone(&volume);
                    async move {
                        let client = Client::open(&volume, &reactor, 8);
                        for block in 0..8 {
                            client.submit(write(block, 1, &[round; 4096]));
                        }
                    }
                });
                drop(open_again(&harness, url));
            }
        }
    }
}
