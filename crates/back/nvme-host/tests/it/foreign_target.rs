//! The initiator against a target that is not Weir's, over real sockets.
//!
//! It needs such a target, so that it is run by name: `tests/vm/run foreign-target` does, against the Linux kernel's, in a virtual
//! machine. `WEIR_TEST_URL` is a namespace whose content may be destroyed.

use std::sync::Arc;

use weir_block::{Operation, ReadBuffers, Volume, VolumeError};
use weir_nvme_host::{HostIdentity, NvmeHost, Options, discover};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::{LocalFuture, PanicPolicy, Reactor, ReactorConfig, System};
use weir_testing::initiator::*;
use weir_volume::VolumeUrl;

/// The namespace to test against; without one the test says that it was skipped.
fn url() -> Option<VolumeUrl> {
    let Ok(url) = std::env::var("WEIR_TEST_URL") else {
        eprintln!("skipped: needs a foreign target; tests/vm/run foreign-target brings one");
        return None;
    };
    Some(url.parse().expect("WEIR_TEST_URL is a volume's URL"))
}

/// Runs `test` on a reactor of this machine.
fn on_machine<F: Future<Output = ()> + 'static>(test: impl FnOnce(Reactor) -> F + Send + 'static) {
    let system: Arc<dyn System> = LinuxSystem::new(LinuxConfig::default()).unwrap();
    let config = ReactorConfig {
        on_panic: PanicPolicy::Unwind,
        ..ReactorConfig::default()
    };
    let (sender, done) = weir_reactor::oneshot();
    let main = Box::new(move |reactor: Reactor| -> LocalFuture<()> {
        Box::pin(async move {
            test(reactor).await;
            sender.send(());
        })
    });
    let thread = system.start_reactor(config, main).unwrap();
    assert_eq!(done.wait(), Some(()), "the test ended without a panic");
    thread.join();
}

fn host() -> Arc<NvmeHost> {
    NvmeHost::new(HostIdentity::from_random([0x51; 16]), 1)
}

#[test]
fn every_command_and_random_requests() {
    let Some(url) = url() else { return };
    for (queues, digests) in [(1, 0), (4, 0), (1, 3), (4, 3), (2, 1), (2, 2)] {
        let url = url.clone();
        on_machine(move |reactor| async move {
            let options = Options {
                queues: Some(queues),
                header_digest: digests & 1 != 0,
                data_digest: digests & 2 != 0,
                ..Options::from_url(&url).unwrap()
            };
            let host = host();
            let volume: Arc<dyn Volume> = host.open(&reactor, options, false).await.unwrap();
            println!(
                "{queues} queues, digests {digests}: {:?}",
                volume.geometry()
            );
            every_command(&reactor, &volume).await;
            random_requests(&reactor, &volume).await;
            host.close_all().await;
        });
    }
}

async fn every_command(reactor: &Reactor, volume: &Arc<dyn Volume>) {
    let geometry = volume.geometry();
    let size = geometry.block_size.bytes() as usize;
    let mut client = Client::new(volume, reactor, 64);
    for (index, bytes) in [4096, 8192, 12_288, 16_384, 20_480, 65_536, 1 << 20, 3 << 20]
        .into_iter()
        .enumerate()
    {
        let data = pattern(bytes, index as u8);
        client.write(index as u64, &data, size).await.unwrap();
        let read = client.read(index as u64, (bytes / size) as u32).await;
        assert!(read.unwrap() == data, "{bytes} bytes");
    }
    let data = pattern(16 * size, 99);
    let durable = Operation::Write {
        lba: 3,
        blocks: 16,
        data: views(&data),
        fua: true,
    };
    assert_eq!(client.call(durable).await.result, Ok(()));
    let compare = |lba| Operation::Compare {
        lba,
        blocks: 16,
        data: views(&data),
    };
    assert_eq!(client.call(compare(3)).await.result, Ok(()));
    let differs = client.call(compare(4)).await.result;
    assert!(matches!(differs, Err(VolumeError::Miscompare { .. })));
    let zeroes = Operation::WriteZeroes {
        lba: 5,
        blocks: 4,
        deallocate: false,
        fua: false,
    };
    assert_eq!(client.call(zeroes).await.result, Ok(()));
    let found = client.read(3, 16).await.unwrap();
    assert!(found[2 * size..6 * size].iter().all(|&byte| byte == 0));
    assert!(found[..2 * size] == data[..2 * size] && found[6 * size..] == data[6 * size..]);
    let verify = Operation::Verify {
        lba: 0,
        blocks: 1024,
    };
    assert_eq!(client.call(verify).await.result, Ok(()));
    let deallocate = Operation::Deallocate {
        lba: 0,
        blocks: 1024,
    };
    let expected = match geometry.deallocate_blocks {
        0 => Err(VolumeError::Unsupported),
        _ => Ok(()),
    };
    assert_eq!(client.call(deallocate).await.result, expected);
    assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
    let end = geometry.blocks;
    assert_eq!(client.read(end, 1).await, Err(VolumeError::OutOfRange));
    assert!(client.read(end - 1, 1).await.is_ok());
}

/// Random requests, many at a time, against plain memory.
async fn random_requests(reactor: &Reactor, volume: &Arc<dyn Volume>) {
    const LANES: u64 = 16;
    const LANE_BYTES: usize = 128 << 10;
    let size = volume.geometry().block_size.bytes() as usize;
    let lane_blocks = (LANE_BYTES / size) as u64;
    let mut client = Client::new(volume, reactor, 64);
    let mut oracle = pattern((LANES * lane_blocks) as usize * size, 1);
    client.write(0, &oracle, size).await.unwrap();
    for round in 0..20u64 {
        let mut expected = Vec::new();
        for lane in 0..LANES {
            let lba = lane * lane_blocks + reactor.random() % (lane_blocks / 2);
            let blocks = 1 + reactor.random() % (lane_blocks / 2);
            let range = lba as usize * size..(lba + blocks) as usize * size;
            let operation = match reactor.random() % 2 {
                0 => {
                    let data = pattern(range.len(), (round * LANES + lane) as u8);
                    oracle[range].copy_from_slice(&data);
                    write(lba, &data, size)
                }
                _ => {
                    expected.push((client.next_slot(), oracle[range].to_vec()));
                    let buffers = ReadBuffers::Lend;
                    Operation::Read {
                        lba,
                        blocks: blocks as u32,
                        buffers,
                    }
                }
            };
            client.submit(operation);
        }
        for _ in 0..LANES {
            let completion = client.next().await;
            assert_eq!(
                completion.result,
                Ok(()),
                "{:?}",
                completion.operation.kind()
            );
            let wanted = expected
                .iter()
                .find(|(slot, _)| *slot == completion.token.slot);
            if let Some((_, data)) = wanted {
                assert!(data_of(&completion.operation) == *data, "round {round}");
            }
        }
    }
    let found = client.read(0, (LANES * lane_blocks) as u32).await.unwrap();
    assert!(found == oracle);
}

#[test]
fn discovery_finds_the_subsystem() {
    let Some(url) = url() else { return };
    on_machine(move |reactor| async move {
        let options = Options::from_url(&url).unwrap();
        let identity = host().identity().clone();
        let found = discover(&reactor, &options.host, Some(options.port), &identity).await;
        let found = found.unwrap();
        let here = found
            .iter()
            .filter(|entry| entry.subsystem == options.subsystem);
        assert_eq!(here.count(), 1, "{found:?}");
    });
}
