//! A volume's queue as a test of an initiator uses it, and what every initiator must do: against a volume whose medium the test sees
//! behind the target's back, on a network that fails.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_block::{
    Completion, Completions, Operation, Queue, ReadBuffers, Request, Token, Volume, VolumeError,
    VolumeEvent, Watcher,
};
use weir_memory::{Segment, Segments, Views};
use weir_reactor::linux::{LinuxConfig, LinuxSystem};
use weir_reactor::sim::{Config, Connection, Simulation, World, seed_from_env_or_random};
use weir_reactor::{LocalFuture, PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, System};

/// A queue of a volume as a test uses it: one request at a time, or several.
pub struct Client {
    pub queue: Box<dyn Queue>,
    pub completions: Rc<Completions>,
    next: u32,
}

impl Client {
    pub fn new(volume: &Arc<dyn Volume>, reactor: &Reactor, depth: u32) -> Client {
        let completions = Completions::new();
        let queue = Arc::clone(volume)
            .open_queue(reactor, depth, completions.clone())
            .unwrap();
        Client {
            queue,
            completions,
            next: 0,
        }
    }

    /// Submits a request; its token. There must be room.
    pub fn submit(&mut self, operation: Operation) -> Token {
        let token = Token {
            owner: 0,
            slot: self.next,
            generation: 0,
        };
        self.next += 1;
        let mut batch = VecDeque::from([Request { token, operation }]);
        self.completions.submit(&mut *self.queue, &mut batch);
        assert!(batch.is_empty(), "there is room");
        token
    }

    /// The slot of the next request's token.
    pub fn next_slot(&self) -> u32 {
        self.next
    }

    pub async fn next(&mut self) -> Completion {
        self.completions.next().await
    }

    pub async fn call(&mut self, operation: Operation) -> Completion {
        let token = self.submit(operation);
        let completion = self.next().await;
        assert_eq!(completion.token, token);
        completion
    }

    pub async fn write(&mut self, lba: u64, data: &[u8], size: usize) -> Result<(), VolumeError> {
        self.call(write(lba, data, size)).await.result
    }

    pub async fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, VolumeError> {
        let completion = self
            .call(Operation::Read {
                lba,
                blocks,
                buffers: ReadBuffers::Lend,
            })
            .await;
        completion.result.map(|()| data_of(&completion.operation))
    }
}

pub fn write(lba: u64, data: &[u8], size: usize) -> Operation {
    Operation::Write {
        lba,
        blocks: (data.len() / size) as u32,
        data: views(data),
        fua: false,
    }
}

/// Data in uneven pieces, as it may come from anywhere.
pub fn views(data: &[u8]) -> Views {
    let cut = data.len() / 3;
    [&data[..cut], &data[cut..]]
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| Segment::copy_of(part).freeze())
        .collect()
}

/// Segments of uneven lengths, for `length` bytes.
pub fn segments(length: usize) -> Segments {
    let cut = length / 3;
    [cut, length - cut]
        .into_iter()
        .filter(|&length| length > 0)
        .map(Segment::heap)
        .collect()
}

pub fn data_of(operation: &Operation) -> Vec<u8> {
    let Operation::Read {
        buffers: ReadBuffers::Filled(views),
        ..
    } = operation
    else {
        panic!("a read that succeeded has data: {operation:?}")
    };
    views.iter().flat_map(|view| view.iter().copied()).collect()
}

/// Bytes that differ from those of another seed, and from their neighbours.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|index| (index as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed)
        .collect()
}

/// What a watcher was told.
pub struct Events(Mutex<Vec<VolumeEvent>>);

impl Events {
    pub fn watch(volume: &Arc<dyn Volume>) -> Arc<Events> {
        let events = Arc::new(Events(Mutex::default()));
        let watcher: Arc<dyn Watcher> = events.clone();
        volume.watch(Arc::downgrade(&watcher));
        events
    }

    pub fn seen(&self) -> Vec<VolumeEvent> {
        self.0.lock().unwrap().clone()
    }
}

impl Watcher for Events {
    fn notice(&self, event: VolumeEvent) {
        self.0.lock().unwrap().push(event);
    }
}

/// One request of every kind, and what it does.
pub async fn every_command(reactor: Reactor, volume: Arc<dyn Volume>, direct: Arc<dyn Volume>) {
    let geometry = volume.geometry();
    let size = geometry.block_size.bytes() as usize;
    assert_eq!(geometry.blocks, direct.geometry().blocks);
    assert_eq!(geometry.block_size, direct.geometry().block_size);
    let mut client = Client::new(&volume, &reactor, 64);
    let mut behind = Client::new(&direct, &reactor, 64);

    // Of lengths around the in-capsule data, an R2T and MDTS.
    for (index, bytes) in [4096, 8192, 12_288, 65_536, 69_632, 1 << 20, 3 << 20]
        .into_iter()
        .enumerate()
    {
        let data = pattern(bytes, index as u8);
        let lba = index as u64 * 3;
        client.write(lba, &data, size).await.unwrap();
        let blocks = (bytes / size) as u32;
        assert!(
            client.read(lba, blocks).await.unwrap() == data,
            "{bytes} bytes"
        );
        let first = blocks.min(8);
        let found = behind.read(lba, first).await.unwrap();
        assert!(found == data[..first as usize * size]);
    }
    let data = pattern(64 * size, 77);
    client
        .call(Operation::Write {
            lba: 5,
            blocks: 64,
            data: views(&data),
            fua: true,
        })
        .await
        .result
        .unwrap();
    let into = Operation::Read {
        lba: 6,
        blocks: 30,
        buffers: ReadBuffers::Into(segments(30 * size)),
    };
    let completion = client.call(into).await;
    assert_eq!(completion.result, Ok(()));
    assert!(data_of(&completion.operation) == data[size..31 * size]);

    let compare = |lba, data: &[u8]| Operation::Compare {
        lba,
        blocks: (data.len() / size) as u32,
        data: views(data),
    };
    assert_eq!(client.call(compare(5, &data)).await.result, Ok(()));
    let differs = client.call(compare(6, &data)).await.result;
    assert!(
        matches!(differs, Err(VolumeError::Miscompare { .. })),
        "{differs:?}"
    );

    let pieces = geometry.compare_write_blocks as usize;
    assert!(pieces >= 1, "the target does Compare and Write");
    let new = pattern(pieces * size, 78);
    let swap = |compare: &[u8]| Operation::CompareWrite {
        lba: 5,
        blocks: pieces as u32,
        data: views(&[compare, &new].concat()),
        fua: true,
    };
    let old = client.read(5, pieces as u32).await.unwrap();
    assert_eq!(client.call(swap(&old)).await.result, Ok(()));
    assert!(client.read(5, pieces as u32).await.unwrap() == new);
    let lost = client.call(swap(&old)).await.result;
    assert!(
        matches!(lost, Err(VolumeError::Miscompare { .. })),
        "{lost:?}"
    );

    for deallocate in [false, true] {
        client.write(10, &data, size).await.unwrap();
        let zeroes = Operation::WriteZeroes {
            lba: 12,
            blocks: 40,
            deallocate,
            fua: false,
        };
        assert_eq!(client.call(zeroes).await.result, Ok(()));
        let found = client.read(10, 64).await.unwrap();
        assert!(found[..2 * size] == data[..2 * size] && found[42 * size..] == data[42 * size..]);
        assert!(found[2 * size..42 * size].iter().all(|&byte| byte == 0));
    }
    let whole = Operation::Deallocate {
        lba: 0,
        blocks: geometry.blocks,
    };
    assert_eq!(client.call(whole).await.result, Ok(()));
    assert!(
        client
            .read(0, 64)
            .await
            .unwrap()
            .iter()
            .all(|&byte| byte == 0)
    );
    let verify = Operation::Verify {
        lba: 0,
        blocks: geometry.blocks,
    };
    assert_eq!(client.call(verify).await.result, Ok(()));
    assert_eq!(client.call(Operation::Flush).await.result, Ok(()));
    assert_eq!(
        client.read(geometry.blocks, 1).await,
        Err(VolumeError::OutOfRange)
    );
}

/// Random requests, many at a time, against plain memory.
pub async fn random_requests(
    reactor: Reactor,
    volume: Arc<dyn Volume>,
    direct: Arc<dyn Volume>,
    rounds: u32,
) {
    let size = volume.geometry().block_size.bytes() as usize;
    let mut client = Client::new(&volume, &reactor, 64);
    let mut oracle = vec![0; volume.geometry().length_bytes() as usize];
    const LANES: u64 = 16;
    for round in 0..rounds {
        let mut expected = Vec::new();
        for lane in 0..LANES {
            // Within a round requests do not overlap, so that their order does not matter.
            let lba = lane * 1024 + reactor.random() % 700;
            let blocks = 1 + reactor.random() % 324;
            let range = lba as usize * size..(lba + blocks) as usize * size;
            let operation = match reactor.random() % 6 {
                0 | 1 => {
                    let data = pattern(range.len(), (u64::from(round) * LANES + lane) as u8);
                    oracle[range].copy_from_slice(&data);
                    write(lba, &data, size)
                }
                2 => {
                    oracle[range].fill(0);
                    Operation::WriteZeroes {
                        lba,
                        blocks,
                        deallocate: round % 2 == 0,
                        fua: false,
                    }
                }
                3 => Operation::Compare {
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
    drop(client);
    let mut behind = Client::new(&direct, &reactor, 4);
    for lba in (0..volume.geometry().blocks).step_by(1024) {
        let found = behind.read(lba, 1024).await.unwrap();
        assert!(found == oracle[lba as usize * size..][..found.len()]);
    }
}

/// Each lane writes growing numbers to a block of its own, each after the one before was acknowledged, and reads them back.
/// However the network fails, an acknowledged number is never followed by an older one.
pub async fn registers(
    reactor: Reactor,
    volume: Arc<dyn Volume>,
    direct: Arc<dyn Volume>,
    world: World,
    trouble: fn(&Reactor, &World),
) {
    const LANES: usize = 6;
    const NUMBERS: u32 = 40;
    let size = volume.geometry().block_size.bytes() as usize;
    let lanes = (0..LANES).map(|lane| {
        let (volume, on) = (Arc::clone(&volume), reactor.clone());
        let direct = Arc::clone(&direct);
        reactor.spawn(async move {
            let mut client = Client::new(&volume, &on, 4);
            let mut behind = Client::new(&direct, &on, 4);
            let lba = lane as u64 * 100;
            // A short write goes in the capsule, a long one is asked for.
            let blocks = if lane % 2 == 0 { 1 } else { 100 };
            let block = |number: u32| number.to_le_bytes().repeat(blocks * size / 4);
            for number in 1..=NUMBERS {
                client.write(lba, &block(number), size).await.unwrap();
                on.sleep(Duration::from_millis(on.random() % 30)).await;
                let found = behind.read(lba, blocks as u32).await.unwrap();
                assert!(
                    found == block(number),
                    "lane {lane}: an older write than {number} was carried out late"
                );
                let found = client.read(lba, blocks as u32).await.unwrap();
                assert!(
                    found == block(number),
                    "lane {lane}: {number} is not read back"
                );
            }
        })
    });
    let lanes: Vec<_> = lanes.collect();
    let done = Rc::new(std::cell::Cell::new(false));
    let (stop, on) = (Rc::clone(&done), reactor.clone());
    let mischief = reactor.spawn(async move {
        while !stop.get() {
            on.sleep(Duration::from_millis(100 + on.random() % 900))
                .await;
            trouble(&on, &world);
        }
        world.heal_all();
    });
    for lane in lanes {
        lane.await;
    }
    done.set(true);
    mischief.await;
}

/// A connection of the host that the initiator is on, at random.
pub fn some_connection(reactor: &Reactor, world: &World, client: usize) -> Option<Connection> {
    let connections = world.connections();
    let of_client = connections
        .into_iter()
        .filter(|connection| connection.client_host.0 == client);
    let all: Vec<_> = of_client.collect();
    (!all.is_empty()).then(|| all[reactor.random() as usize % all.len()])
}

/// Starts reactors of a host that serves, and that a test's panic does not end.
pub fn start_reactors(system: &Arc<dyn System>, count: u32) -> Vec<Remote> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("reactor-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes: 64 << 20,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> LocalFuture<()> { Box::pin(std::future::pending()) });
        let thread = Arc::clone(system).start_reactor(config, main).unwrap();
        thread.remote.clone()
    };
    (0..count).map(start).collect()
}

/// A simulated world, of a seed that a failure prints.
pub fn simulation() -> Simulation {
    let seed = seed_from_env_or_random();
    println!("WEIR_SEED={seed}");
    Simulation::new(Config {
        seed,
        ..Config::default()
    })
}

/// Runs `test` on a reactor of this machine.
pub fn on_machine<F: Future<Output = ()> + 'static>(
    test: impl FnOnce(Reactor) -> F + Send + 'static,
) {
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

/// One request of every kind that a target may do otherwise than Weir's, where nothing is seen behind its back. The first 4 MiB are written.
pub async fn foreign_commands(reactor: &Reactor, volume: &Arc<dyn Volume>) {
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

/// Random requests, many at a time, against plain memory, where nothing is seen behind the target's back.
pub async fn foreign_random_requests(reactor: &Reactor, volume: &Arc<dyn Volume>) {
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
