//! The initiator against a scripted controller, in a simulated world.

use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::fake::*;
use weir_block::{Operation, ReadBuffers, ResizeError, Volume, VolumeError, VolumeEvent};
use weir_initiator::options::CommonOptions;
use weir_nvme::event::EventType;
use weir_nvme::identify::OptionalNvmCommands;
use weir_nvme::opcode::NvmOpcode;
use weir_nvme::sqe::Fuse;
use weir_nvme::tcp::DigestOptions;
use weir_nvme::{Nqn, Status};
use weir_nvme_host::{ConnectError, HostIdentity, NvmeHost, NvmeVolume, Options, discover};
use weir_reactor::Reactor;
use weir_testing::initiator::*;

const BLOCKS: usize = 4096;

fn host() -> Arc<NvmeHost> {
    NvmeHost::new(HostIdentity::from_random([7; 16]), 1)
}

fn options() -> Options {
    Options::new("127.0.0.1", PORT, Nqn::new(SUBSYSTEM).unwrap())
}

/// Runs `test` with a fake controller on the same reactor.
fn with_fake<F: Future<Output = ()> + 'static>(
    script: Script,
    test: impl FnOnce(Reactor, Rc<Fake>) -> F + 'static,
) {
    let simulation = weir_testing::initiator::simulation();
    simulation.run(0, move |reactor| async move {
        let fake = Fake::new(BLOCKS, script);
        fake.listen(&reactor);
        test(reactor, fake).await;
    });
}

async fn open(reactor: &Reactor, options: Options) -> Arc<dyn Volume> {
    let volume: Arc<NvmeVolume> = host().open(reactor, options, false).await.unwrap();
    volume
}

#[test]
fn what_is_written_is_read_back() {
    with_fake(Script::default(), |reactor, fake| async move {
        let volume = open(&reactor, options()).await;
        let geometry = volume.geometry();
        assert_eq!(geometry.blocks, BLOCKS as u64);
        assert_eq!(geometry.transfer_blocks_max, 256);
        let mut client = Client::new(&volume, &reactor, 32);
        let data = pattern(8192, 1);
        client.write(8, &data, 512).await.unwrap();
        assert_eq!(fake.media.borrow()[4096..][..8192], data);
        assert_eq!(client.read(8, 16).await.unwrap(), data);
        // Nothing else was touched.
        assert!(
            client
                .read(24, 8)
                .await
                .unwrap()
                .iter()
                .all(|&byte| byte == 0)
        );
        let flush = client.call(Operation::Flush).await;
        assert_eq!(flush.result, Ok(()));
    });
}

/// One request of every kind, and what it does.
async fn every_operation(reactor: &Reactor, fake: &Fake, options: Options) {
    let volume = open(reactor, options).await;
    let mut client = Client::new(&volume, reactor, 32);
    // Longer than MDTS: it is split.
    let data = pattern(300 * 512, 3);
    client.write(100, &data, 512).await.unwrap();
    assert_eq!(fake.media.borrow()[100 * 512..][..data.len()], data);
    assert!(fake.longest.get() <= 256);
    assert_eq!(client.read(100, 300).await.unwrap(), data);
    let into = Operation::Read {
        lba: 101,
        blocks: 7,
        buffers: ReadBuffers::Into(segments(7 * 512)),
    };
    let completion = client.call(into).await;
    assert_eq!(completion.result, Ok(()));
    assert_eq!(data_of(&completion.operation), data[512..8 * 512]);

    let compare = |lba, data: &[u8]| Operation::Compare {
        lba,
        blocks: (data.len() / 512) as u32,
        data: views(data),
    };
    assert_eq!(
        client.call(compare(100, &data[..4096])).await.result,
        Ok(())
    );
    let miscompare = client.call(compare(101, &data[..4096])).await.result;
    assert!(matches!(miscompare, Err(VolumeError::Miscompare { .. })));

    let zeroes = Operation::WriteZeroes {
        lba: 102,
        blocks: 290,
        deallocate: true,
        fua: true,
    };
    assert_eq!(client.call(zeroes).await.result, Ok(()));
    let mut expected = data.clone();
    expected[2 * 512..292 * 512].fill(0);
    assert_eq!(client.read(100, 300).await.unwrap(), expected);

    let verify = Operation::Verify {
        lba: 0,
        blocks: BLOCKS as u64,
    };
    assert_eq!(client.call(verify).await.result, Ok(()));
    let beyond = Operation::Verify {
        lba: 1,
        blocks: BLOCKS as u64,
    };
    assert_eq!(
        client.call(beyond).await.result,
        Err(VolumeError::OutOfRange)
    );
    assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
}

#[test]
fn every_operation_under_every_way_to_move_data() {
    for digests in [0, 1, 2, 3] {
        for (in_capsule_bytes, r2t_bytes, c2h_bytes, alignment) in [
            (0, u32::MAX, u32::MAX, 0),
            (4096, 4096, 512, 31),
            (8192, 5000, 3000, 6),
            (1 << 20, u32::MAX, 65536, 0),
        ] {
            for success_flag in [false, true] {
                let script = Script {
                    in_capsule_bytes,
                    r2t_bytes,
                    c2h_bytes,
                    alignment,
                    success_flag,
                    maximum_h2c_data: 4096,
                    ..Script::default()
                };
                with_fake(script, move |reactor, fake| async move {
                    let options = Options {
                        host_data_alignment: alignment,
                        common: CommonOptions {
                            header_digest: digests & 1 != 0,
                            data_digest: digests & 2 != 0,
                            ..options().common
                        },
                        ..options()
                    };
                    every_operation(&reactor, &fake, options).await;
                    let seen = fake.seen.borrow();
                    for opcode in [
                        NvmOpcode::Compare,
                        NvmOpcode::WriteZeroes,
                        NvmOpcode::Verify,
                    ] {
                        assert!(seen.contains_key(&opcode.value()), "{opcode}");
                    }
                });
            }
        }
    }
}

#[test]
fn what_the_controller_lacks_is_done_with_what_it_has() {
    let script = Script {
        optional_commands: OptionalNvmCommands::NONE,
        fused: false,
        ..Script::default()
    };
    with_fake(script, |reactor, fake| async move {
        every_operation(&reactor, &fake, options()).await;
        let seen: Vec<u8> = fake.seen.borrow().keys().copied().collect();
        assert_eq!(seen, [0, 1, 2], "only Flush, Write and Read");
        let volume = open(&reactor, options()).await;
        assert_eq!(volume.geometry().compare_write_blocks, 0);
        assert_eq!(volume.geometry().deallocate_blocks, 0);
        let mut client = Client::new(&volume, &reactor, 4);
        let deallocate = Operation::Deallocate { lba: 0, blocks: 1 };
        let result = client.call(deallocate).await.result;
        assert_eq!(result, Err(VolumeError::Unsupported));
        let resized = Arc::clone(&volume).resize(&reactor, 1, true).await;
        assert!(matches!(resized, Err(ResizeError::Unsupported { .. })));
    });
}

#[test]
fn compare_and_write_is_a_fused_pair() {
    with_fake(Script::default(), |reactor, fake| async move {
        let pairs = Rc::new(std::cell::Cell::new(0));
        let (count, mut first) = (Rc::clone(&pairs), false);
        fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
            match sqe.fuse {
                Fuse::First => first = true,
                Fuse::Second => {
                    assert!(first, "the second follows the first at once");
                    first = false;
                    count.set(count.get() + 1);
                }
                _ => assert!(!first, "nothing comes between a pair"),
            }
            Action::Serve
        });
        let volume = open(&reactor, options()).await;
        assert_eq!(volume.geometry().compare_write_blocks, 16);
        let mut client = Client::new(&volume, &reactor, 64);
        let (old, new) = (vec![0; 8192], pattern(8192, 9));
        let swap = |compare: &[u8], data: &[u8]| Operation::CompareWrite {
            lba: 4,
            blocks: 16,
            data: views(&[compare, data].concat()),
            fua: false,
        };
        // Among others, so that a pair could be torn apart.
        for lba in 0..20 {
            client.submit(Operation::Read {
                lba,
                blocks: 200,
                buffers: ReadBuffers::Lend,
            });
        }
        let wins = client.submit(swap(&old, &new));
        for _ in 0..21 {
            let completion = client.next().await;
            assert_eq!(completion.result, Ok(()), "{:?}", completion.token == wins);
        }
        assert_eq!(client.read(4, 16).await.unwrap(), new);
        let lost = client.call(swap(&old, &old)).await.result;
        assert!(
            matches!(lost, Err(VolumeError::Miscompare { .. })),
            "{lost:?}"
        );
        assert_eq!(client.read(4, 16).await.unwrap(), new);
        assert_eq!(pairs.get(), 2);
    });
}

#[test]
fn a_fused_pair_fails_as_its_command_that_says_why() {
    let aborted = Status::ABORTED_FAILED_FUSED_COMMAND;
    let failed = Status::LBA_OUT_OF_RANGE;
    for (first, second, error) in [
        (failed, aborted, VolumeError::OutOfRange),
        (aborted, failed, VolumeError::OutOfRange),
        (aborted, aborted, VolumeError::Medium),
    ] {
        with_fake(Script::default(), move |reactor, fake| async move {
            fake.script.borrow_mut().hook = Box::new(move |_, sqe| match sqe.fuse {
                Fuse::First => Action::Answer(first),
                Fuse::Second => Action::Answer(second),
                _ => Action::Serve,
            });
            let volume = open(&reactor, options()).await;
            let mut client = Client::new(&volume, &reactor, 64);
            let swap = Operation::CompareWrite {
                lba: 4,
                blocks: 1,
                data: views(&[0; 1024]),
                fua: false,
            };
            let result = client.call(swap).await.result;
            assert_eq!(result, Err(error), "{first}, then {second}");
        });
    }
}

#[test]
fn a_piece_that_may_have_been_done_is_told_of_whichever_fails_first() {
    let script = Script {
        maximum_data_transfer_size: 1,
        ..Script::default()
    };
    with_fake(script, |reactor, fake| async move {
        let mut refused = false;
        fake.script.borrow_mut().hook = Box::new(move |qid, sqe| {
            if qid == 0 || sqe.opcode != NvmOpcode::Write.value() {
                return Action::Serve;
            }
            match std::mem::replace(&mut refused, true) {
                false => Action::Answer(Status::NAMESPACE_IS_WRITE_PROTECTED),
                true => Action::Answer(Status::WRITE_FAULT),
            }
        });
        let volume = open(&reactor, options()).await;
        let mut client = Client::new(&volume, &reactor, 64);
        let both = write(0, &pattern(16 << 10, 1), 512);
        let result = client.call(both).await.result;
        assert_eq!(result, Err(VolumeError::TimedOut));
    });
}

#[test]
fn one_queue_spreads_over_its_connections() {
    with_fake(Script::default(), |reactor, fake| async move {
        let options = Options {
            queues: Some(4),
            common: CommonOptions {
                depth: 2,
                ..options().common
            },
            ..options()
        };
        let volume = open(&reactor, options).await;
        let mut client = Client::new(&volume, &reactor, 64);
        for lba in 0..64 {
            client.submit(write(lba, &pattern(512, lba as u8), 512));
        }
        for _ in 0..64 {
            assert_eq!(client.next().await.result, Ok(()));
        }
        let mut connected = fake.connects.borrow().clone();
        connected.sort_unstable();
        assert_eq!(connected, [0, 1, 2, 3, 4]);
        for lba in 0..64 {
            assert_eq!(client.read(lba, 1).await.unwrap(), pattern(512, lba as u8));
        }
    });
}

#[test]
fn a_queue_beyond_those_granted_is_refused_and_a_dropped_one_makes_room() {
    with_fake(
        Script {
            queues: 1,
            ..Script::default()
        },
        |reactor, fake| async move {
            let volume = open(
                &reactor,
                Options {
                    queues: Some(1),
                    ..options()
                },
            )
            .await;
            let mut client = Client::new(&volume, &reactor, 4);
            client.write(0, &pattern(512, 1), 512).await.unwrap();
            let second =
                Arc::clone(&volume).open_queue(&reactor, 4, weir_block::Completions::new());
            assert_eq!(second.err(), Some(VolumeError::Busy));
            drop(client);
            reactor.sleep(Duration::from_secs(1)).await;
            assert_eq!(fake.disconnects.get(), 1);
            let mut client = Client::new(&volume, &reactor, 4);
            assert_eq!(client.read(0, 1).await.unwrap(), pattern(512, 1));
        },
    );
}

#[test]
fn leaving_is_orderly() {
    with_fake(Script::default(), |reactor, fake| async move {
        let host = host();
        let volume = host.open(&reactor, options(), false).await.unwrap();
        let dynamic: Arc<dyn Volume> = volume.clone();
        let mut client = Client::new(&dynamic, &reactor, 4);
        client.write(0, &pattern(512, 1), 512).await.unwrap();
        drop((client, dynamic));
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!((fake.disconnects.get(), fake.shutdowns.get()), (1, 0));
        drop(volume);
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!((fake.shutdowns.get(), fake.resets.get()), (1, 0));
        // Closing is the same, and is waited for.
        let volume: Arc<dyn Volume> = host.open(&reactor, options(), false).await.unwrap();
        let mut client = Client::new(&volume, &reactor, 4);
        host.close_all().await;
        assert_eq!(fake.shutdowns.get(), 2);
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
    });
}

#[test]
fn a_lost_read_is_retried_at_once() {
    with_fake(Script::default(), |reactor, fake| async move {
        let mut cuts = 1;
        fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
            if sqe.opcode == NvmOpcode::Read.value() && cuts > 0 {
                cuts -= 1;
                return Action::Cut;
            }
            Action::Serve
        });
        let volume = open(&reactor, options()).await;
        let events = Events::watch(&volume);
        let mut client = Client::new(&volume, &reactor, 4);
        let began = reactor.now();
        assert!(client.read(5, 1).await.is_ok());
        assert!(reactor.now() - began < Duration::from_secs(1));
        assert_eq!(fake.resets.get(), 1);
        assert_eq!(events.seen(), [VolumeEvent::Lost, VolumeEvent::Restored]);
    });
}

/// A write whose answer is lost is written once more only after its controller ended: by its word, or by its time.
#[test]
fn a_lost_write_waits_for_the_end_of_its_controller() {
    for confirmed in [true, false] {
        let script = Script {
            in_capsule_bytes: 8192,
            ..Script::default()
        };
        with_fake(script, move |reactor, fake| async move {
            let mut cuts = 1;
            fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
                if sqe.opcode == NvmOpcode::Write.value() && cuts > 0 {
                    cuts -= 1;
                    return Action::ServeAndCut;
                }
                Action::Serve
            });
            let volume = open(&reactor, options()).await;
            let mut client = Client::new(&volume, &reactor, 4);
            client.read(0, 1).await.unwrap();
            fake.script.borrow_mut().answer_admin = confirmed;
            let began = reactor.now();
            let token = client.submit(write(3, &pattern(1024, 1), 512));
            if !confirmed {
                // The reset is not answered; the next association's properties are.
                reactor.sleep(Duration::from_secs(6)).await;
                fake.script.borrow_mut().answer_admin = true;
                // Reads go on meanwhile.
                let read = Operation::Read {
                    lba: 9,
                    blocks: 1,
                    buffers: ReadBuffers::Lend,
                };
                client.submit(read);
                let completion = client.next().await;
                assert_ne!(completion.token, token, "the write waits");
                assert_eq!(completion.result, Ok(()));
            }
            let completion = client.next().await;
            assert_eq!((completion.token, completion.result), (token, Ok(())));
            assert_eq!(*fake.writes.borrow(), [(3, 2), (3, 2)]);
            let took = reactor.now() - began;
            // Twice the keep-alive timeout of 5 s, since I/O counts as keep-alive.
            assert_eq!(took >= Duration::from_secs(10), !confirmed, "{took:?}");
        });
    }
}

/// What ends the wait for a controller that says that it is not done.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Done,
    FallsSilent,
    Closed,
}

/// A controller that says that it is not done is believed, however long that takes; one that falls silent is waited for as long as
/// any other, and so is every one when the volume is closed.
#[test]
fn a_lost_write_waits_for_a_controller_that_says_it_is_busy() {
    for wait in [Wait::Done, Wait::FallsSilent, Wait::Closed] {
        with_fake(Script::default(), move |reactor, fake| async move {
            let mut cuts = 1;
            fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
                if sqe.opcode == NvmOpcode::Write.value() && cuts > 0 {
                    cuts -= 1;
                    return Action::ServeAndCut;
                }
                Action::Serve
            });
            let opened = host().open(&reactor, options(), false).await.unwrap();
            let volume: Arc<dyn Volume> = opened.clone();
            let mut client = Client::new(&volume, &reactor, 4);
            client.read(0, 1).await.unwrap();
            fake.script.borrow_mut().busy = true;
            let token = client.submit(write(3, &pattern(1024, 1), 512));
            for _ in 0..12 {
                // Reads go on meanwhile.
                reactor.sleep(Duration::from_secs(5)).await;
                client.submit(Operation::Read {
                    lba: 9,
                    blocks: 1,
                    buffers: ReadBuffers::Lend,
                });
                let completion = client.next().await;
                assert_ne!(completion.token, token, "the write waits");
                assert_eq!(completion.result, Ok(()));
            }
            assert_eq!(*fake.writes.borrow(), [(3, 2)]);
            let began = reactor.now();
            match wait {
                Wait::Done => fake.script.borrow_mut().busy = false,
                Wait::FallsSilent => fake.end_controllers(),
                Wait::Closed => {
                    opened.close().await;
                    assert!(reactor.now() - began < Duration::from_secs(20));
                }
            }
            let completion = client.next().await;
            let closed = wait == Wait::Closed;
            let result = if closed {
                Err(VolumeError::TimedOut)
            } else {
                Ok(())
            };
            assert_eq!((completion.token, completion.result), (token, result));
            let writes = if closed { 1 } else { 2 };
            assert_eq!(*fake.writes.borrow(), [(3, 2); 2][..writes]);
            let took = reactor.now() - began;
            assert_eq!(
                took < Duration::from_secs(10),
                wait == Wait::Done,
                "{took:?}"
            );
        });
    }
}

/// Event between an acknowledged write and the flush that follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Between {
    /// The target's power fails.
    Power,
    /// An I/O queue is lost; its controller lives on.
    Cut,
    /// An I/O queue is lost, and then the target's power fails, before the next association is made.
    CutAndPower,
    /// An I/O queue is lost, and the first attempt to connect again fails.
    CutAndRefusal,
    /// The write is flushed, and then the target's power fails.
    FlushAndPower,
    /// The target's power fails while the flush is at it.
    PowerDuringFlush,
}

async fn lose(reactor: &Reactor, fake: &Rc<Fake>, client: &mut Client, between: Between) {
    let cut_once = |opcode: NvmOpcode, action: Action| {
        let mut cuts = 1;
        fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
            if sqe.opcode == opcode.value() && cuts > 0 {
                cuts -= 1;
                return action;
            }
            Action::Serve
        });
    };
    match between {
        Between::Power => fake.end_controllers(),
        Between::FlushAndPower => {
            assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
            fake.end_controllers();
        }
        Between::Cut => cut_once(NvmOpcode::Read, Action::Cut),
        Between::CutAndPower => {
            fake.script.borrow_mut().power_fails_at_connect = true;
            cut_once(NvmOpcode::Read, Action::Cut);
        }
        Between::CutAndRefusal => {
            fake.script.borrow_mut().refuse = true;
            cut_once(NvmOpcode::Read, Action::Cut);
            let (fake, on) = (Rc::clone(fake), reactor.clone());
            let attempts = |fake: &Fake| {
                let connects = fake.connects.borrow();
                connects.iter().filter(|qid| **qid == 0).count()
            };
            let before = attempts(&fake);
            let relent = async move {
                while attempts(&fake) == before {
                    on.sleep(Duration::from_millis(1)).await;
                }
                fake.script.borrow_mut().refuse = false;
            };
            reactor.spawn(relent).detach();
        }
        Between::PowerDuringFlush => {
            fake.script.borrow_mut().power_fails_at_connect = true;
            cut_once(NvmOpcode::Flush, Action::Cut);
            return;
        }
    }
    client.read(0, 1).await.unwrap();
}

#[test]
fn what_was_not_flushed_when_the_target_was_lost_fails_every_flush() {
    use Between::{Cut, CutAndPower, CutAndRefusal, FlushAndPower, Power, PowerDuringFlush};
    let written: fn() -> Operation = || write(3, &pattern(1024, 1), 512);
    let through: fn() -> Operation = || Operation::Write {
        lba: 3,
        blocks: 2,
        data: views(&pattern(1024, 1)),
        fua: true,
    };
    let zeroes: fn() -> Operation = || Operation::WriteZeroes {
        lba: 3,
        blocks: 2,
        deallocate: false,
        fua: false,
    };
    let swap: fn() -> Operation = || Operation::CompareWrite {
        lba: 3,
        blocks: 2,
        data: views(&[vec![0; 1024], pattern(1024, 1)].concat()),
        fua: false,
    };
    let read: fn() -> Operation = || Operation::Read {
        lba: 3,
        blocks: 2,
        buffers: ReadBuffers::Lend,
    };
    let refused = Err(VolumeError::Medium);
    // (What is done, what happens, whether there is a volatile cache, whether the target is trusted, how flushes end).
    let cases = [
        (written, Power, true, false, refused),
        (zeroes, Power, true, false, refused),
        (swap, Power, true, false, refused),
        (written, PowerDuringFlush, true, false, refused),
        (written, CutAndPower, true, false, refused),
        (written, CutAndRefusal, true, false, refused),
        (written, Cut, true, false, Ok(())),
        (written, FlushAndPower, true, false, Ok(())),
        (written, Power, false, false, Ok(())),
        (written, Power, true, true, Ok(())),
        (through, Power, true, false, Ok(())),
        (read, Power, true, false, Ok(())),
    ];
    for (operation, between, volatile_cache, trust, expected) in cases {
        let script = Script {
            volatile_cache,
            ..Script::default()
        };
        let operation = operation();
        let kind = operation.kind();
        let case = format!("{kind:?}, {between:?}, cache {volatile_cache}, trust {trust}");
        with_fake(script, move |reactor, fake| async move {
            println!("{case}");
            let options = Options {
                common: CommonOptions {
                    flush_after_reconnect: trust,
                    ..options().common
                },
                ..options()
            };
            let volume = open(&reactor, options.clone()).await;
            let events = Events::watch(&volume);
            let mut client = Client::new(&volume, &reactor, 4);
            // Queues of one volume know of each other's writes.
            let mut other = Client::new(&volume, &reactor, 4);
            assert_eq!(client.call(operation).await.result, Ok(()), "{case}");
            lose(&reactor, &fake, &mut client, between).await;
            for _ in 0..2 {
                assert_eq!(
                    client.call(Operation::Flush).await.result,
                    expected,
                    "{case}"
                );
                assert_eq!(
                    other.call(Operation::Flush).await.result,
                    expected,
                    "{case}"
                );
            }
            assert_eq!(
                events.seen().contains(&VolumeEvent::CacheLost),
                expected.is_err(),
                "{case}"
            );
            // Reads and writes go on, and a later association changes nothing.
            client.write(9, &pattern(512, 2), 512).await.unwrap();
            fake.script.borrow_mut().power_fails_at_connect = false;
            lose(&reactor, &fake, &mut client, Cut).await;
            assert_eq!(
                client.call(Operation::Flush).await.result,
                expected,
                "{case}"
            );
            // Until the volume is opened again.
            let volume = open(&reactor, options).await;
            let mut client = Client::new(&volume, &reactor, 4);
            client.write(9, &pattern(512, 3), 512).await.unwrap();
            assert_eq!(client.call(Operation::Flush).await.result, Ok(()), "{case}");
        });
    }
}

/// A controller may tell once that it could not keep what it had acknowledged.
#[test]
fn a_durable_write_or_flush_that_failed_fails_every_flush() {
    for (opcode, fua, expected) in [
        (NvmOpcode::Flush, false, Err(VolumeError::Medium)),
        (NvmOpcode::Write, true, Err(VolumeError::Medium)),
        (NvmOpcode::Write, false, Ok(())),
    ] {
        with_fake(Script::default(), move |reactor, fake| async move {
            let volume = open(&reactor, options()).await;
            let mut client = Client::new(&volume, &reactor, 4);
            client.write(0, &pattern(512, 1), 512).await.unwrap();
            let mut failures = 1;
            fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
                if sqe.opcode == opcode.value() && failures > 0 {
                    failures -= 1;
                    return Action::Answer(Status::WRITE_FAULT);
                }
                Action::Serve
            });
            let failing = match opcode {
                NvmOpcode::Flush => Operation::Flush,
                _ => Operation::Write {
                    lba: 1,
                    blocks: 1,
                    data: views(&pattern(512, 2)),
                    fua,
                },
            };
            let failed = client.call(failing).await.result;
            assert_eq!(failed, Err(VolumeError::Medium));
            for _ in 0..2 {
                assert_eq!(
                    client.call(Operation::Flush).await.result,
                    expected,
                    "{opcode}"
                );
            }
        });
    }
}

#[test]
fn a_compare_and_write_whose_outcome_is_lost_says_so() {
    with_fake(Script::default(), |reactor, fake| async move {
        let mut cuts = 1;
        fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
            if sqe.fuse == Fuse::Second && cuts > 0 {
                cuts -= 1;
                return Action::ServeAndCut;
            }
            Action::Serve
        });
        let volume = open(&reactor, options()).await;
        let mut client = Client::new(&volume, &reactor, 4);
        let new = pattern(512, 4);
        let swap = Operation::CompareWrite {
            lba: 0,
            blocks: 1,
            data: views(&[&[0; 512], &new[..]].concat()),
            fua: false,
        };
        // It was carried out; tried again it differs, and that must not be told as a miscompare.
        assert_eq!(client.call(swap).await.result, Err(VolumeError::TimedOut));
        assert_eq!(client.read(0, 1).await.unwrap(), new);
    });
}

/// What an interrupted write, or one whose connection was lost, has done nobody knows: no error says that it did nothing.
#[test]
fn an_error_after_an_uncertain_try_does_not_say_that_nothing_was_done() {
    for (first, then) in [
        (
            Action::Answer(Status::COMMAND_INTERRUPTED),
            Action::Answer(Status::COMMAND_INTERRUPTED),
        ),
        (
            Action::ServeAndCut,
            Action::Answer(Status::INVALID_NAMESPACE_OR_FORMAT),
        ),
        (
            Action::ServeAndCut,
            Action::Answer(Status::NAMESPACE_NOT_READY),
        ),
    ] {
        with_fake(Script::default(), move |reactor, fake| async move {
            let mut tries = 0;
            fake.script.borrow_mut().hook = Box::new(move |_, sqe| {
                if sqe.opcode != NvmOpcode::Write.value() {
                    return Action::Serve;
                }
                tries += 1;
                if tries == 1 { first } else { then }
            });
            let volume = open(&reactor, options()).await;
            let mut client = Client::new(&volume, &reactor, 4);
            let token = client.submit(write(3, &pattern(1024, 1), 512));
            if first == then {
                reactor.sleep(Duration::from_millis(100)).await;
                client.queue.cancel(token);
            }
            let result = client.next().await.result;
            assert_eq!(result, Err(VolumeError::TimedOut), "{first:?}, {then:?}");
        });
    }
}

#[test]
fn a_command_that_does_not_end_is_aborted_and_then_cut_off() {
    with_fake(Script::default(), |reactor, fake| async move {
        fake.script.borrow_mut().hook =
            Box::new(|_, sqe| match sqe.opcode == NvmOpcode::Write.value() {
                true => Action::Swallow,
                false => Action::Serve,
            });
        let options = Options {
            common: CommonOptions {
                io_timeout: Duration::from_secs(1),
                ..options().common
            },
            ..options()
        };
        let volume = open(&reactor, options).await;
        let mut client = Client::new(&volume, &reactor, 4);
        let result = client.write(0, &pattern(512, 1), 512).await;
        assert_eq!(result, Err(VolumeError::TimedOut));
        assert_eq!(fake.aborts.borrow().len(), 1);
        assert_eq!(fake.aborts.borrow()[0].0, 1, "the queue of the command");
        assert_eq!(fake.resets.get(), 1);
        // The volume goes on.
        assert!(client.read(0, 1).await.is_ok());
    });
}

#[test]
fn keep_alives_are_sent_when_nothing_else_is_and_their_absence_is_noticed() {
    with_fake(Script::default(), |reactor, fake| async move {
        let volume = open(&reactor, options()).await;
        let mut client = Client::new(&volume, &reactor, 4);
        for _ in 0..20 {
            reactor.sleep(Duration::from_secs(1)).await;
            client.read(0, 1).await.unwrap();
        }
        assert_eq!(fake.keep_alives.get(), 0, "I/O counts as keep-alive");
        reactor.sleep(Duration::from_secs(20)).await;
        assert!(fake.keep_alives.get() >= 7, "{}", fake.keep_alives.get());
        let events = Events::watch(&volume);
        fake.script.borrow_mut().answer_admin = false;
        reactor.sleep(Duration::from_secs(9)).await;
        assert_eq!(events.seen().first(), Some(&VolumeEvent::Lost));
        fake.script.borrow_mut().answer_admin = true;
        reactor.sleep(Duration::from_secs(30)).await;
        assert_eq!(events.seen().last(), Some(&VolumeEvent::Restored));
        client.read(0, 1).await.unwrap();
    });
}

#[test]
fn a_controller_that_stays_away_ends_the_volume() {
    with_fake(Script::default(), |reactor, fake| async move {
        let options = Options {
            common: CommonOptions {
                controller_loss_timeout: Some(Duration::from_secs(3)),
                ..options().common
            },
            ..options()
        };
        let volume = open(&reactor, options).await;
        let mut client = Client::new(&volume, &reactor, 4);
        client.read(0, 1).await.unwrap();
        fake.script.borrow_mut().refuse = true;
        fake.end_controllers();
        reactor.sleep(Duration::from_millis(50)).await;
        let began = reactor.now();
        client.submit(Operation::Flush);
        client.submit(write(0, &pattern(512, 1), 512));
        for _ in 0..2 {
            assert_eq!(client.next().await.result, Err(VolumeError::Lost));
        }
        assert!(reactor.now() - began < Duration::from_secs(20));
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
        let late = volume.open_queue(&reactor, 1, weir_block::Completions::new());
        assert_eq!(late.err(), Some(VolumeError::Lost));
    });
}

#[test]
fn associations_without_io_queues_are_not_made_without_pause_or_end() {
    with_fake(Script::default(), |reactor, fake| async move {
        let options = Options {
            common: CommonOptions {
                controller_loss_timeout: Some(Duration::from_secs(30)),
                ..options().common
            },
            ..options()
        };
        let volume = open(&reactor, options).await;
        fake.script.borrow_mut().refuse_io = true;
        let mut client = Client::new(&volume, &reactor, 4);
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
        let connects = fake.connects.borrow();
        let associations = connects.iter().filter(|qid| **qid == 0).count();
        assert!((3..40).contains(&associations), "{associations}");
    });
}

#[test]
fn a_resize_is_seen_and_so_is_a_removal() {
    with_fake(Script::default(), |reactor, fake| async move {
        let volume = open(&reactor, options()).await;
        let events = Events::watch(&volume);
        let mut client = Client::new(&volume, &reactor, 4);
        let last = BLOCKS as u64;
        assert_eq!(client.read(last, 1).await, Err(VolumeError::OutOfRange));
        let before = volume.geometry().generation;
        fake.resize(BLOCKS + 8);
        fake.send_event(EventType::NamespaceAttributeChanged);
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(volume.geometry().blocks, last + 8);
        assert!(volume.geometry().generation > before);
        assert!(client.read(last, 8).await.is_ok());
        assert_eq!(events.seen(), [VolumeEvent::Resized]);
        fake.resize(0);
        fake.send_event(EventType::NamespaceAttributeChanged);
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
        fake.resize(BLOCKS + 8);
        fake.send_event(EventType::NamespaceAttributeChanged);
        reactor.sleep(Duration::from_secs(1)).await;
        assert!(client.read(0, 1).await.is_ok());
        let expected = [
            VolumeEvent::Resized,
            VolumeEvent::Lost,
            VolumeEvent::Restored,
        ];
        assert_eq!(events.seen(), expected);
    });
}

#[test]
fn another_namespace_is_not_taken_for_the_same() {
    with_fake(Script::default(), |reactor, fake| async move {
        let volume = open(&reactor, options()).await;
        let mut client = Client::new(&volume, &reactor, 4);
        client.read(0, 1).await.unwrap();
        fake.script.borrow_mut().nguid = 2;
        fake.end_controllers();
        reactor.sleep(Duration::from_millis(50)).await;
        let token = client.submit(write(0, &pattern(512, 1), 512));
        reactor.sleep(Duration::from_secs(30)).await;
        assert!(client.completions.is_empty() && fake.writes.borrow().is_empty());
        fake.script.borrow_mut().nguid = 1;
        let completion = client.next().await;
        assert_eq!((completion.token, completion.result), (token, Ok(())));
        // So too where an event says that something changed.
        fake.script.borrow_mut().nguid = 2;
        fake.send_event(EventType::NamespaceAttributeChanged);
        reactor.sleep(Duration::from_secs(1)).await;
        assert_eq!(client.read(0, 1).await, Err(VolumeError::Lost));
    });
}

#[test]
fn a_namespace_that_goes_while_it_is_identified_is_not_another_one() {
    let gone = Some(Status::INVALID_NAMESPACE_OR_FORMAT);
    with_fake(Script::default(), move |reactor, fake| async move {
        let change = |descriptors| fake.script.borrow_mut().descriptors = descriptors;
        change(gone);
        let host = host();
        let first = host.open(&reactor, options(), false).await;
        assert!(matches!(first, Err(ConnectError::Namespace(_))));
        change(None);
        let volume: Arc<dyn Volume> = host.open(&reactor, options(), false).await.unwrap();
        let mut client = Client::new(&volume, &reactor, 4);
        client.read(0, 1).await.unwrap();
        for (descriptors, result) in [(gone, Err(VolumeError::Lost)), (None, Ok(()))] {
            change(descriptors);
            fake.send_event(EventType::NamespaceAttributeChanged);
            reactor.sleep(Duration::from_secs(1)).await;
            assert_eq!(client.read(0, 1).await.map(drop), result);
        }
    });
}

#[test]
fn damaged_data_is_read_again() {
    with_fake(
        Script {
            damage: 3,
            ..Script::default()
        },
        |reactor, fake| async move {
            let volume = open(
                &reactor,
                Options {
                    common: CommonOptions {
                        data_digest: true,
                        ..options().common
                    },
                    ..options()
                },
            )
            .await;
            let mut client = Client::new(&volume, &reactor, 4);
            let data = pattern(4096, 5);
            client.write(0, &data, 512).await.unwrap();
            assert_eq!(client.read(0, 8).await.unwrap(), data);
            assert_eq!(fake.seen.borrow()[&NvmOpcode::Read.value()], 4);
            assert_eq!(
                fake.resets.get(),
                0,
                "a data digest error is its command's alone"
            );
        },
    );
}

#[test]
fn digests_that_the_controller_does_not_do_are_not_gone_without() {
    let script = Script {
        digests: DigestOptions::NONE,
        ..Script::default()
    };
    with_fake(script, |reactor, _| async move {
        let host = host();
        let opened = host.open(
            &reactor,
            Options {
                common: CommonOptions {
                    header_digest: true,
                    ..options().common
                },
                ..options()
            },
            false,
        );
        let error = opened.await.err().unwrap().to_string();
        assert!(error.contains("header digests"), "{error}");
    });
}

#[test]
fn statuses_that_allow_it_are_retried_and_others_are_not() {
    with_fake(Script::default(), |reactor, fake| async move {
        let volume = open(&reactor, options()).await;
        let mut client = Client::new(&volume, &reactor, 4);
        for (status, times, expected) in [
            (Status::NAMESPACE_NOT_READY, 3, Ok(())),
            (
                Status::NAMESPACE_NOT_READY.with_do_not_retry(),
                1,
                Err(VolumeError::Busy),
            ),
            (Status::NAMESPACE_NOT_READY, 1000, Err(VolumeError::Busy)),
            (Status::CAPACITY_EXCEEDED, 1, Err(VolumeError::NoSpace)),
            (Status::WRITE_FAULT, 1, Err(VolumeError::Medium)),
            (
                Status::NAMESPACE_IS_WRITE_PROTECTED,
                1,
                Err(VolumeError::ReadOnly),
            ),
        ] {
            let mut left = times;
            fake.script.borrow_mut().hook = Box::new(move |_, _| match left {
                0 => Action::Serve,
                _ => {
                    left -= 1;
                    Action::Answer(status)
                }
            });
            assert_eq!(
                client.write(0, &pattern(512, 1), 512).await,
                expected,
                "{status}"
            );
        }
    });
}

#[test]
fn a_cancelled_request_ends_once() {
    with_fake(Script::default(), |reactor, fake| async move {
        fake.script.borrow_mut().hook = Box::new(|_, _| Action::Swallow);
        let options = Options {
            common: CommonOptions {
                depth: 1,
                io_timeout: Duration::from_secs(3600),
                ..options().common
            },
            ..options()
        };
        let volume = open(&reactor, options).await;
        let mut client = Client::new(&volume, &reactor, 4);
        let read = || Operation::Read {
            lba: 0,
            blocks: 1,
            buffers: ReadBuffers::Lend,
        };
        let first = client.submit(read());
        let second = client.submit(read());
        reactor.sleep(Duration::from_secs(1)).await;
        // The second waits for the first: it ends at once. The first is aborted, and ends with its association.
        client.queue.cancel(second);
        let completion = client.next().await;
        assert_eq!(
            (completion.token, completion.result),
            (second, Err(VolumeError::Cancelled))
        );
        client.queue.cancel(first);
        client.queue.cancel(first);
        let completion = client.next().await;
        assert_eq!(
            (completion.token, completion.result),
            (first, Err(VolumeError::Cancelled))
        );
        assert_eq!(fake.aborts.borrow().len(), 1);
        reactor.sleep(Duration::from_secs(10)).await;
        assert!(client.completions.is_empty());
    });
}

/// A request of several commands whose cancellation comes before some of them were sent: those that were sent may all succeed,
/// and the request must not.
#[test]
fn a_cancelled_request_that_was_not_sent_whole_does_not_succeed() {
    for modifies in [false, true] {
        with_fake(Script::default(), move |reactor, fake| async move {
            let options = Options {
                common: CommonOptions {
                    depth: 1,
                    ..options().common
                },
                ..options()
            };
            let volume = open(&reactor, options).await;
            let mut client = Client::new(&volume, &reactor, 4);
            client.read(0, 1).await.unwrap();
            // MDTS is 256 blocks.
            let token = match modifies {
                true => client.submit(write(0, &pattern(600 * 512, 1), 512)),
                false => client.submit(Operation::Read {
                    lba: 0,
                    blocks: 600,
                    buffers: ReadBuffers::Lend,
                }),
            };
            client.queue.cancel(token);
            let result = client.next().await.result;
            // A part of the write was done.
            let expected = match modifies {
                true => VolumeError::TimedOut,
                false => VolumeError::Cancelled,
            };
            assert_eq!(result, Err(expected));
            let written: &[_] = if modifies { &[(0, 256)] } else { &[] };
            assert_eq!(*fake.writes.borrow(), written);
        });
    }
}

#[test]
fn a_fence_waits_for_what_ends_and_cuts_off_what_does_not() {
    for stuck in [false, true] {
        with_fake(Script::default(), move |reactor, fake| async move {
            let volume = open(&reactor, options()).await;
            let mut client = Client::new(&volume, &reactor, 8);
            client.read(0, 1).await.unwrap();
            let mut left = u32::from(stuck);
            fake.script.borrow_mut().hook =
                Box::new(
                    move |_, sqe| match left > 0 && sqe.opcode == NvmOpcode::Write.value() {
                        true => {
                            left -= 1;
                            Action::Swallow
                        }
                        false => Action::Serve,
                    },
                );
            client.submit(write(0, &pattern(512, 1), 512));
            let (sender, receiver) = weir_reactor::oneshot();
            volume.fence(Box::new(move |result| sender.send(result)));
            assert_eq!(receiver.await, Some(Ok(())));
            let completion = client
                .completions
                .pop()
                .expect("what the fence is about has ended");
            let expected = if stuck {
                Err(VolumeError::TimedOut)
            } else {
                Ok(())
            };
            assert_eq!(completion.result, expected);
            let count = fake.writes.borrow().len();
            reactor.sleep(Duration::from_secs(60)).await;
            assert_eq!(
                fake.writes.borrow().len(),
                count,
                "nothing takes effect after a fence"
            );
            client.write(0, &pattern(512, 2), 512).await.unwrap();
        });
    }
}

#[test]
fn a_host_without_a_namespace_or_subsystem_is_told_which() {
    with_fake(Script::default(), |reactor, _| async move {
        let absent = host()
            .open(
                &reactor,
                Options {
                    nsid: 5,
                    ..options()
                },
                false,
            )
            .await;
        let error = absent.err().unwrap();
        assert!(error.to_string().contains("namespace 5"), "{error}");
        let subsystem = Nqn::new("nqn.2024-01.com.example:other").unwrap();
        let other = host()
            .open(
                &reactor,
                Options {
                    subsystem,
                    ..options()
                },
                false,
            )
            .await;
        assert!(matches!(other, Err(ConnectError::SubsystemRefused { .. })));
        let nobody = host()
            .open(
                &reactor,
                Options {
                    port: 4,
                    ..options()
                },
                false,
            )
            .await;
        assert!(matches!(nobody, Err(ConnectError::Connect(_))));
        let nowhere = Options {
            host: "no.such.host.example".to_owned(),
            ..options()
        };
        let nowhere = host().open(&reactor, nowhere, false).await;
        assert!(matches!(nowhere, Err(ConnectError::Resolve { .. })));
    });
}

#[test]
fn read_only_is_the_hosts_wish_too() {
    with_fake(Script::default(), |reactor, fake| async move {
        let volume: Arc<dyn Volume> = host().open(&reactor, options(), true).await.unwrap();
        assert!(volume.geometry().read_only);
        let mut client = Client::new(&volume, &reactor, 4);
        let result = client.write(0, &pattern(512, 1), 512).await;
        assert_eq!(result, Err(VolumeError::ReadOnly));
        assert!(client.read(0, 1).await.is_ok());
        assert!(fake.writes.borrow().is_empty());
    });
}

#[test]
fn discovery_reads_a_log_that_changes_meanwhile() {
    let entries: Vec<_> = (0..50)
        .map(|index| {
            let subsystem = format!("nqn.2024-01.com.example:s{index}");
            discovery_entry(&subsystem, "10.1.2.3", 4420 + index)
        })
        .collect();
    let script = Script {
        discovery: entries,
        ..Script::default()
    };
    with_fake(script, |reactor, fake| async move {
        fake.restless.set(3);
        let identity = HostIdentity::from_random([1; 16]);
        // Nothing listens on the discovery port, so the other one is asked.
        let found = discover(&reactor, "127.0.0.1", None, &identity)
            .await
            .unwrap();
        assert_eq!(found.len(), 50);
        assert_eq!(found[49].subsystem.as_str(), "nqn.2024-01.com.example:s49");
        assert_eq!(
            found[49].url(1).unwrap(),
            "nvme+tcp://10.1.2.3:4469/nqn.2024-01.com.example:s49?nsid=1"
        );
        assert_eq!(fake.shutdowns.get(), 1);
        fake.restless.set(u32::MAX);
        let restless = discover(&reactor, "127.0.0.1", Some(PORT), &identity).await;
        assert!(matches!(restless, Err(ConnectError::Nonsense(_))));
    });
}

/// Random requests against plain memory, while connections are cut before and after commands are carried out. No write is
/// lost, none is carried out late, and every request ends once.
#[test]
fn random_requests_over_a_bad_connection() {
    with_fake(
        Script {
            in_capsule_bytes: 2048,
            ..Script::default()
        },
        |reactor, fake| async move {
            let dice = reactor.clone();
            fake.script.borrow_mut().hook = Box::new(move |_, _| match dice.random() % 50 {
                0 => Action::Cut,
                1 => Action::ServeAndCut,
                _ => Action::Serve,
            });
            let options = Options {
                queues: Some(3),
                common: CommonOptions {
                    data_digest: true,
                    ..options().common
                },
                ..options()
            };
            let volume = open(&reactor, options).await;
            let mut client = Client::new(&volume, &reactor, 16);
            let mut oracle = vec![0; BLOCKS * 512];
            for round in 0..60u32 {
                // Within a round requests do not overlap, so that their order does not matter.
                let lanes = 8;
                let mut expected = Vec::new();
                for lane in 0..lanes {
                    let lba = lane * 512 + reactor.random() % 200;
                    let blocks = 1 + reactor.random() % 300;
                    let range = lba as usize * 512..(lba + blocks) as usize * 512;
                    let operation = match reactor.random() % 4 {
                        0 => {
                            let data = pattern(range.len(), (round as u64 * lanes + lane) as u8);
                            oracle[range].copy_from_slice(&data);
                            write(lba, &data, 512)
                        }
                        1 => {
                            oracle[range].fill(0);
                            Operation::WriteZeroes {
                                lba,
                                blocks,
                                deallocate: true,
                                fua: false,
                            }
                        }
                        2 => Operation::Compare {
                            lba,
                            blocks: blocks as u32,
                            data: views(&oracle[range]),
                        },
                        _ => {
                            expected.push((client.next_slot(), oracle[range].to_vec()));
                            Operation::Read {
                                lba,
                                blocks: blocks as u32,
                                buffers: ReadBuffers::Lend,
                            }
                        }
                    };
                    client.submit(operation);
                }
                for _ in 0..lanes {
                    let completion = client.next().await;
                    assert_eq!(
                        completion.result,
                        Ok(()),
                        "{:?}",
                        completion.operation.kind()
                    );
                    let found = expected
                        .iter()
                        .find(|(slot, _)| *slot == completion.token.slot);
                    if let Some((_, data)) = found {
                        assert!(data_of(&completion.operation) == *data, "a read is current");
                    }
                }
                assert!(*fake.media.borrow() == oracle, "round {round}");
            }
            assert!(fake.resets.get() > 1);
            assert!(client.completions.is_empty());
        },
    );
}
