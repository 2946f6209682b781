//! Files, block devices, and their faults.

use std::cell::RefCell;

use super::*;
use crate::{AllocateMode, FileKind};

#[test]
fn a_file_keeps_what_was_written() {
    for_seeds(4, |config| {
        let simulation = Simulation::new(config);
        simulation.run(0, |reactor| async move {
            let (file, info) = open(reactor.system(), "/volume", &create(1 << 20)).unwrap();
            assert!(info.created && info.direct && info.volatile_cache);
            assert_eq!((info.kind, info.length), (FileKind::Regular, 1 << 20));
            let bytes = pattern(1, 8192);
            let written = write(&file, &reactor, 4096, &bytes, false).await;
            assert_eq!(written.unwrap(), 8192);
            file.sync(&reactor).await.unwrap();
            let into = [Segment::heap(4096), Segment::heap(12288)];
            let (read, into) = file.read(&reactor, 0, into.into_iter().collect()).await;
            assert_eq!(read.unwrap(), 16384);
            assert!(into[0].iter().all(|&byte| byte == 0));
            assert!(into[1][..8192] == bytes);
            assert!(into[1][8192..].iter().all(|&byte| byte == 0));
        });
    });
}

#[test]
fn a_silent_file_does_nothing_and_then_all_in_any_order() {
    const SECOND: Duration = Duration::from_secs(1);
    let seen = RefCell::new([false; 2]);
    for_seeds(32, |config| {
        let simulation = Simulation::new(config);
        let world = simulation.world();
        let overtaken = simulation.run(0, move |reactor| async move {
            let (silent, _) = open(reactor.system(), "/silent", &create(8192)).unwrap();
            let (other, _) = open(reactor.system(), "/other", &create(8192)).unwrap();
            let write_to = |file: &Rc<LocalFile>, byte: u8| {
                let (file, reactor, world) = (Rc::clone(file), reactor.clone(), world.clone());
                reactor.clone().spawn(async move {
                    let written = write(&file, &reactor, 0, &[byte; 512], false).await;
                    assert_eq!(written.unwrap(), 512);
                    world.elapsed()
                })
            };
            // One is in flight when the silence begins.
            let first = write_to(&silent, 1);
            reactor.sleep(Duration::ZERO).await;
            let began = world.elapsed();
            world.silence_disk(0, "/silent", 2 * SECOND);
            let second = write_to(&silent, 2);
            assert!(write_to(&other, 3).await < began + SECOND);
            let fault = world.injected().remove(0);
            assert_eq!(fault.kind, FaultKind::SilentDisk);
            assert_eq!(fault.path.as_deref(), Some(Path::new("/silent")));
            let (first, second) = (first.await, second.await);
            let working_off = began + SECOND..=began + 2 * SECOND;
            assert!(working_off.contains(&first) && working_off.contains(&second));
            reactor.sleep(SECOND).await;
            let then = world.elapsed();
            assert!(write_to(&silent, 4).await < then + SECOND);
            first > second
        });
        seen.borrow_mut()[usize::from(overtaken)] = true;
    });
    assert_eq!(seen.into_inner(), [true; 2]);
}

#[test]
fn a_file_has_one_writer_by_whatever_name() {
    let simulation = Simulation::new(Config::default());
    let (here, elsewhere) = (simulation.system(0), simulation.system(1));
    let (file, info) = open(&here, "/a", &create(4096)).unwrap();
    simulation.link(0, "/a", "/b");
    let busy = open(&here, "/b", &create(4096)).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    assert!(busy.to_string().contains("/b"), "{busy}");
    let (_reader, seen) = open(&here, "/b", &OpenOptions::default()).unwrap();
    assert_eq!(seen.identity, info.identity);
    assert!(!seen.created);
    let (_other, other) = open(&elsewhere, "/a", &create(4096)).unwrap();
    assert_ne!(other.identity, info.identity);
    drop(file);
    open(&here, "/b", &create(4096)).unwrap();
    let missing = open(&here, "/c", &OpenOptions::default()).unwrap_err();
    assert_eq!(missing.kind(), io::ErrorKind::NotFound);
}

#[test]
fn direct_io_is_aligned_and_buffered_io_need_not_be() {
    let simulation = Simulation::new(Config {
        disk: DiskConfig {
            offset_alignment: 4096,
            ..DiskConfig::default()
        },
        ..Config::default()
    });
    let world = simulation.world();
    simulation.run(0, move |reactor| async move {
        let (file, info) = open(reactor.system(), "/a", &create(1 << 20)).unwrap();
        assert_eq!((info.memory_alignment, info.offset_alignment), (512, 4096));
        let refused = |result: io::Result<usize>| {
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        };
        refused(write(&file, &reactor, 512, &[0; 4096], false).await);
        refused(write(&file, &reactor, 0, &[0; 512], false).await);
        refused(read(&file, &reactor, 0, 100).await.map(|bytes| bytes.len()));
        let view = View::copy_of(&[0; 8192]).slice(100..4196);
        let skewed = [view].into_iter().collect();
        refused(file.write(&reactor, 0, skewed, false).await.0);
        drop(file);

        let buffered = OpenOptions {
            direct: UseDirect::Never,
            ..create(0)
        };
        let (file, info) = open(reactor.system(), "/a", &buffered).unwrap();
        assert_eq!((info.memory_alignment, info.offset_alignment), (1, 1));
        assert_eq!(
            write(&file, &reactor, 511, &[7; 3], false).await.unwrap(),
            3
        );
        let around = read(&file, &reactor, 510, 5).await.unwrap();
        assert_eq!(around, [0, 7, 7, 7, 0]);
        drop(file);

        world.change_disks(|disks| disks.direct = false);
        assert!(!open(reactor.system(), "/a", &create(0)).unwrap().1.direct);
        let always = OpenOptions {
            direct: UseDirect::Always,
            ..create(0)
        };
        let refused = open(reactor.system(), "/a", &always).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    });
}

#[test]
fn files_end_and_devices_are_full() {
    let simulation = Simulation::new(Config::default());
    let _ = simulation.system(0);
    simulation.add_block_device(0, "/dev/sda", 1 << 20);
    simulation.run(0, |reactor| async move {
        let (file, _) = open(reactor.system(), "/a", &create(1024)).unwrap();
        assert_eq!(read(&file, &reactor, 512, 1024).await.unwrap().len(), 512);
        assert_eq!(read(&file, &reactor, 4096, 512).await.unwrap().len(), 0);
        write(&file, &reactor, 4096, &[1; 512], false)
            .await
            .unwrap();
        assert_eq!(file.length().unwrap(), 4608);
        file.set_length(512).unwrap();
        file.set_length(8192).unwrap();
        let zeroes = read(&file, &reactor, 4096, 512).await.unwrap();
        assert_eq!(zeroes, [0; 512], "what was cut off does not come back");

        let (device, info) = open(reactor.system(), "/dev/sda", &create(0)).unwrap();
        assert_eq!((info.kind, info.length), (FileKind::BlockDevice, 1 << 20));
        let beyond = write(&device, &reactor, (1 << 20) - 512, &[1; 1024], false).await;
        assert_eq!(number(&beyond.unwrap_err()), libc::ENOSPC);
        assert!(device.set_length(1).is_err());

        let (reader, _) = open(reactor.system(), "/a", &OpenOptions::default()).unwrap();
        let refused = write(&reader, &reactor, 0, &[1; 512], false).await;
        assert_eq!(number(&refused.unwrap_err()), libc::EBADF);
    });
}

#[test]
fn a_full_disk_refuses_new_blocks_until_some_are_given_back() {
    let simulation = Simulation::new(Config::default());
    let world = simulation.world();
    simulation.run(0, move |reactor| async move {
        world.change_disks(|disks| disks.capacity = 8192);
        let (file, _) = open(reactor.system(), "/a", &create(1 << 20)).unwrap();
        write(&file, &reactor, 0, &[1; 8192], false).await.unwrap();
        let full = write(&file, &reactor, 8192, &[1; 512], false).await;
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::StorageFull);
        write(&file, &reactor, 4096, &[2; 4096], false)
            .await
            .unwrap();
        let punched = file.allocate(&reactor, 0, 4096, AllocateMode::PunchHole);
        punched.await.unwrap();
        write(&file, &reactor, 8192, &[3; 512], false)
            .await
            .unwrap();
        let zero = file.allocate(&reactor, 1 << 19, 8192, AllocateMode::ZeroRange);
        assert_eq!(zero.await.unwrap_err().kind(), io::ErrorKind::StorageFull);
    });
}

#[test]
fn allocation_changes_read_as_zeroes_where_the_medium_can() {
    for_seeds(8, |config| {
        let simulation = Simulation::new(config);
        let world = simulation.world();
        simulation.run(0, move |reactor| async move {
            let (file, _) = open(reactor.system(), "/a", &create(1 << 20)).unwrap();
            for mode in [
                AllocateMode::PunchHole,
                AllocateMode::ZeroRange,
                AllocateMode::Discard,
            ] {
                write(&file, &reactor, 0, &[9; 8192], false).await.unwrap();
                file.allocate(&reactor, 100, 5000, mode).await.unwrap();
                let bytes = read(&file, &reactor, 0, 8192).await.unwrap();
                assert!(bytes[100..5100].iter().all(|&byte| byte == 0));
                assert!(
                    bytes[..100]
                        .iter()
                        .chain(&bytes[5100..])
                        .all(|&byte| byte == 9)
                );
            }
            let huge = file.allocate(&reactor, 0, 1 << 60, AllocateMode::PunchHole);
            huge.await.unwrap();
            assert_eq!(file.length().unwrap(), 1 << 20);
            world.change_disks(|disks| disks.punch_hole = false);
            let refused = file.allocate(&reactor, 0, 4096, AllocateMode::PunchHole);
            assert_eq!(number(&refused.await.unwrap_err()), libc::EOPNOTSUPP);
        });
    });
}

#[test]
fn a_device_may_ignore_a_discard() {
    let kept = (0..32).filter(|&seed| {
        let simulation = Simulation::new(Config {
            seed,
            ..Config::default()
        });
        let _ = simulation.system(0);
        simulation.add_block_device(0, "/dev/sda", 1 << 20);
        let byte = simulation.run(0, |reactor| async move {
            let (device, _) = open(reactor.system(), "/dev/sda", &create(0)).unwrap();
            write(&device, &reactor, 0, &[9; 512], false).await.unwrap();
            let discard = device.allocate(&reactor, 0, 512, AllocateMode::Discard);
            discard.await.unwrap();
            read(&device, &reactor, 0, 512).await.unwrap()[0]
        });
        assert!(byte == 0 || byte == 9);
        byte == 9
    });
    assert!((4..=28).contains(&kept.count()));
}

#[test]
fn writes_in_flight_together_are_reordered_and_torn() {
    let outcomes: Vec<Vec<u8>> = (0..200)
        .map(|seed| {
            let simulation = Simulation::new(Config {
                seed,
                ..Config::default()
            });
            simulation.run(0, |reactor| async move {
                let (file, _) = open(reactor.system(), "/a", &create(8192)).unwrap();
                let writes = [1, 2].map(|stamp| {
                    let (file, there) = (Rc::clone(&file), reactor.clone());
                    reactor.spawn(async move {
                        let bytes = [stamp; 8192];
                        write(&file, &there, 0, &bytes, false).await.unwrap();
                    })
                });
                for write in writes {
                    write.await;
                }
                read(&file, &reactor, 0, 8192).await.unwrap()
            })
        })
        .collect();
    let all = |stamp: u8| {
        let whole = |bytes: &&Vec<u8>| bytes.iter().all(|&byte| byte == stamp);
        outcomes.iter().filter(whole).count()
    };
    assert!(all(1) > 20 && all(2) > 20, "{} {}", all(1), all(2));
    assert!(all(1) + all(2) < 190, "some are torn");
    for bytes in &outcomes {
        assert!(
            bytes
                .chunks(512)
                .all(|block| block.iter().all(|byte| *byte == block[0]))
        );
    }
}

#[test]
fn errors_come_as_often_as_they_are_asked_for() {
    let simulation = Simulation::new(Config::default());
    let world = simulation.world();
    simulation.run(0, move |reactor| async move {
        let (file, _) = open(reactor.system(), "/a", &create(1 << 20)).unwrap();
        let is_io_error = |error: io::Error| number(&error) == libc::EIO;
        world.change_faults(|faults| faults.read_error_probability = 1.0);
        assert!(is_io_error(
            read(&file, &reactor, 0, 512).await.unwrap_err()
        ));
        write(&file, &reactor, 0, &[1; 512], false).await.unwrap();
        world.change_faults(|faults| faults.write_error_probability = 0.5);
        let mut failed = 0;
        for _ in 0..100 {
            failed += i32::from(write(&file, &reactor, 0, &[1; 512], false).await.is_err());
        }
        assert!((25..=75).contains(&failed), "{failed}");
        world.set_faults(Faults {
            sync_error_probability: 1.0,
            ..Faults::default()
        });
        assert!(is_io_error(file.sync(&reactor).await.unwrap_err()));
        world.set_faults(Faults::default());
        file.sync(&reactor).await.unwrap();
    });
}

/// As the kernel does (errseq_t): the failure is told once by each open file, and what was not written back stays so.
#[test]
fn a_write_that_is_not_written_back_is_told_of_once_by_each_open_file() {
    let lost = (0..100).filter(|&seed| {
        let simulation = Simulation::new(Config {
            seed,
            ..Config::default()
        });
        let world = simulation.world();
        let disks = world.clone();
        simulation.run(0, move |reactor| async move {
            let (file, _) = open(reactor.system(), "/a", &create(1024)).unwrap();
            let (reader, _) = open(reactor.system(), "/a", &OpenOptions::default()).unwrap();
            disks.change_faults(|faults| faults.writeback_error_probability = 1.0);
            write(&file, &reactor, 0, &[1; 512], false).await.unwrap();
            disks.change_faults(|faults| faults.writeback_error_probability = 0.0);
            if seed % 3 == 0 {
                assert!(file.sync(&reactor).await.is_err());
            } else if seed % 3 == 1 {
                assert!(file.sync_all().is_err());
            } else {
                let durable = write(&file, &reactor, 512, &[2; 512], true).await;
                assert_eq!(number(&durable.unwrap_err()), libc::EIO);
            }
            write(&file, &reactor, 512, &[2; 512], true).await.unwrap();
            file.sync(&reactor).await.unwrap();
            file.sync_all().unwrap();
            assert!(reader.sync_all().is_err(), "it has not told yet");
            reader.sync_all().unwrap();
        });
        world.crash(0, Crash::Power);
        world.restart(0);
        let left = simulation.run(0, move |reactor| async move {
            let (file, _) = open(reactor.system(), "/a", &create(1024)).unwrap();
            read(&file, &reactor, 0, 1024).await.unwrap()
        });
        assert_eq!(left[512..], [2; 512]);
        left[0] == 0
    });
    assert!((10..=90).contains(&lost.count()));
}

#[test]
fn a_failed_write_may_have_been_done_in_part() {
    let done = RefCell::new([0; 3]);
    for seed in 0..200 {
        let simulation = Simulation::new(Config {
            seed,
            ..Config::default()
        });
        let world = simulation.world();
        let bytes = simulation.run(0, move |reactor| async move {
            let (file, _) = open(reactor.system(), "/a", &create(4096)).unwrap();
            world.change_faults(|faults| faults.write_error_probability = 1.0);
            write(&file, &reactor, 0, &[1; 4096], false)
                .await
                .unwrap_err();
            read(&file, &reactor, 0, 4096).await.unwrap()
        });
        let sum: usize = bytes.iter().map(|&byte| byte as usize).sum();
        let kind = match sum {
            0 => 0,
            4096 => 2,
            _ => 1,
        };
        done.borrow_mut()[kind] += 1;
    }
    let [none, part, all] = done.into_inner();
    assert!(none > 20 && part > 10 && all > 20, "{none} {part} {all}");
}

#[test]
fn a_stall_is_long_and_ends() {
    let simulation = Simulation::new(Config {
        faults: Faults {
            disk_stall_probability: 1.0,
            disk_stall: Duration::from_secs(40)..=Duration::from_secs(50),
            ..Faults::default()
        },
        ..Config::default()
    });
    let took = simulation.run(0, |reactor| async move {
        let (file, _) = open(reactor.system(), "/a", &create(4096)).unwrap();
        let began = reactor.now();
        write(&file, &reactor, 0, &[1; 4096], true).await.unwrap();
        reactor.now() - began
    });
    assert!((40..=50).contains(&took.as_secs()));
}

#[test]
fn a_cancelled_write_is_done_or_not_done() {
    let mut seen = [0; 2];
    for seed in 0..100 {
        let simulation = Simulation::new(Config {
            seed,
            ..Config::default()
        });
        let bytes = simulation.run(0, |reactor| async move {
            let (file, _) = open(reactor.system(), "/a", &create(4096)).unwrap();
            let (there, writing) = (reactor.clone(), Rc::clone(&file));
            let task = reactor.spawn(async move {
                let _ = write(&writing, &there, 0, &[1; 4096], false).await;
            });
            reactor.sleep(Duration::from_micros(20)).await;
            drop(task);
            reactor.sleep(Duration::from_secs(1)).await;
            read(&file, &reactor, 0, 4096).await.unwrap()
        });
        assert!(bytes.iter().all(|&byte| byte == bytes[0]));
        seen[usize::from(bytes[0])] += 1;
    }
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
}

/// Returns what is left of three stretches of a file: synced, written durably, and neither, when its host goes down.
fn left_after(crash: Crash, seed: u64, device: bool, volatile_cache: bool) -> [Vec<u8>; 3] {
    let simulation = Simulation::new(Config {
        seed,
        disk: DiskConfig {
            volatile_cache,
            ..DiskConfig::default()
        },
        ..Config::default()
    });
    let path = if device { "/dev/sda" } else { "/file" };
    if device {
        let _ = simulation.system(0);
        simulation.add_block_device(0, path, 1 << 20);
    }
    simulation.run(0, move |reactor| async move {
        let (file, _) = open(reactor.system(), path, &create(1 << 20)).unwrap();
        write(&file, &reactor, 0, &[1; 8192], false).await.unwrap();
        file.sync(&reactor).await.unwrap();
        write(&file, &reactor, 65536, &[2; 8192], true)
            .await
            .unwrap();
        write(&file, &reactor, 131072, &[3; 8192], false)
            .await
            .unwrap();
    });
    simulation.crash(0, crash);
    simulation.restart(0);
    simulation.run(0, move |reactor| async move {
        let (file, _) = open(reactor.system(), path, &OpenOptions::default()).unwrap();
        let mut left = [const { Vec::new() }; 3];
        for (offset, left) in [0, 65536, 131072].into_iter().zip(&mut left) {
            *left = read(&file, &reactor, offset, 8192).await.unwrap();
        }
        left
    })
}

#[test]
fn power_loss_takes_only_what_was_not_made_durable() {
    let (mut lost, mut torn, mut kept) = (0, 0, 0);
    for seed in 0..100 {
        let [synced, durable, neither] = left_after(Crash::Power, seed, seed % 2 == 0, true);
        assert_eq!(
            (synced, durable),
            (vec![1; 8192], vec![2; 8192]),
            "seed {seed}"
        );
        let blocks = neither.chunks(512);
        let whole = blocks.map(|block| {
            assert!(block.iter().all(|byte| *byte == block[0]), "seed {seed}");
            assert!(block[0] == 0 || block[0] == 3, "seed {seed}");
            usize::from(block[0] == 3)
        });
        match whole.sum::<usize>() {
            0 => lost += 1,
            16 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 10 && torn > 10 && kept > 10, "{lost} {torn} {kept}");
}

#[test]
fn without_a_volatile_cache_a_device_loses_nothing() {
    for seed in 0..20 {
        let left = left_after(Crash::Power, seed, true, false);
        assert_eq!(left, [vec![1; 8192], vec![2; 8192], vec![3; 8192]]);
    }
}

#[test]
fn a_killed_process_loses_nothing_that_it_had_written() {
    for seed in 0..20 {
        let left = left_after(Crash::Process, seed, false, true);
        assert_eq!(left, [vec![1; 8192], vec![2; 8192], vec![3; 8192]]);
    }
}
