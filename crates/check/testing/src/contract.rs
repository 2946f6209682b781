//! The contract itself, for the kinds of this crate and of others.

use std::rc::Rc;
use std::sync::Arc;

use weir_block::{Landing, Operation, ReadBuffers, Volume, VolumeError};
use weir_memory::{Segments, View, Views};
use weir_reactor::Reactor;
use weir_reactor::random::Random;

use self::oracle::Oracle;
use crate::harness::{self, Client, Harness};

mod control;
mod oracle;

/// Rounds of concurrent requests.
const ROUNDS: usize = 24;
/// Requests at once.
const AT_ONCE_MAX: u64 = 12;
const DEPTH: u32 = 8;

/// What is known of a kind beyond its geometry.
#[derive(Clone, Copy)]
pub struct Kind {
    /// Whether it stores anything.
    pub retains: bool,
}

/// Runs the contract on one volume.
pub fn contract(harness: &Harness, volume: &Arc<dyn Volume>, kind: Kind, seed: u64) {
    check_geometry(volume);
    let volume = Arc::clone(volume);
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, DEPTH);
        let mut run = Run {
            random: Random::new(seed),
            oracle: Oracle::read(&client, volume.geometry(), kind.retains).await,
            client,
            volume,
        };
        run.refusals().await;
        for _ in 0..ROUNDS {
            run.round().await;
        }
        run.oracle.check_all(&run.client).await;
        run.landing().await;
        run.control(&reactor).await;
    });
}

fn check_geometry(volume: &Arc<dyn Volume>) {
    let geometry = volume.geometry();
    assert!(geometry.blocks > 0, "{geometry:?}");
    assert!(geometry.transfer_blocks_max > 0, "{geometry:?}");
    assert!(geometry.transfer_blocks_optimal > 0, "{geometry:?}");
    assert!(geometry.memory_alignment.is_power_of_two(), "{geometry:?}");
    assert!(geometry.atomic_blocks > 0, "{geometry:?}");
    assert!(geometry.atomic_blocks_power_fail > 0, "{geometry:?}");
    assert!(
        geometry.atomic_blocks <= geometry.transfer_blocks_max,
        "{geometry:?}"
    );
    // NVMe: AWUPF is not above AWUN.
    assert!(
        geometry.atomic_blocks_power_fail <= geometry.atomic_blocks,
        "{geometry:?}"
    );
    assert!(
        volume.name().parse::<weir_volume::VolumeUrl>().is_ok(),
        "{} is no URL",
        volume.name()
    );
}

struct Run {
    random: Random,
    oracle: Oracle,
    client: Rc<Client>,
    volume: Arc<dyn Volume>,
}

/// A request whose outcome is known before it is made.
struct Planned {
    operation: Operation,
    expected: Result<(), VolumeError>,
    /// For a read: what it yields. For a write: what is there afterwards.
    data: Vec<u8>,
}

impl Run {
    fn block_bytes(&self) -> usize {
        self.volume.geometry().block_size.bytes() as usize
    }

    /// What breaks a rule is refused, and changes nothing.
    async fn refusals(&mut self) {
        let geometry = self.volume.geometry();
        let (blocks, block) = (geometry.blocks, self.block_bytes());
        let filled = vec![0xAA; 2 * block];
        let lend = || ReadBuffers::Lend;
        let cases = [
            (
                harness::write(blocks - 1, 2, &filled),
                VolumeError::OutOfRange,
            ),
            (
                harness::write(u64::MAX, 2, &filled),
                VolumeError::OutOfRange,
            ),
            (harness::write(0, 1, &filled), VolumeError::Invalid),
            (harness::write(0, 0, &[]), VolumeError::Invalid),
            (
                Operation::Read {
                    lba: blocks,
                    blocks: 1,
                    buffers: lend(),
                },
                VolumeError::OutOfRange,
            ),
            (
                Operation::Read {
                    lba: 0,
                    blocks: geometry.transfer_blocks_max + 1,
                    buffers: lend(),
                },
                if u64::from(geometry.transfer_blocks_max) < blocks {
                    VolumeError::Invalid
                } else {
                    VolumeError::OutOfRange
                },
            ),
            (
                Operation::Read {
                    lba: 0,
                    blocks: 1,
                    buffers: ReadBuffers::Into(std::iter::once(harness::segment(100)).collect()),
                },
                VolumeError::Invalid,
            ),
            (
                Operation::WriteZeroes {
                    lba: 1,
                    blocks,
                    deallocate: true,
                    fua: false,
                },
                VolumeError::OutOfRange,
            ),
            (
                Operation::Deallocate {
                    lba: 1,
                    blocks: u64::MAX,
                },
                VolumeError::OutOfRange,
            ),
            (
                Operation::Verify { lba: 0, blocks: 0 },
                VolumeError::Invalid,
            ),
        ];
        for (operation, expected) in cases {
            let what = format!("{operation:?}");
            let (result, _) = self.client.call(operation).await;
            assert_eq!(result, Err(expected), "{what}");
        }
        let too_long = geometry.compare_write_blocks + 1;
        if u64::from(too_long) < blocks {
            let data = vec![0; too_long as usize * block];
            let operation = harness::compare_write(0, too_long, &data, &data);
            let result = self.client.done(operation).await;
            assert_eq!(result, Err(VolumeError::Unsupported));
        }
        self.oracle.check_all(&self.client).await;
    }

    /// Several requests at once, on ranges that do not overlap (but for reads among each other).
    async fn round(&mut self) {
        let at_once = 1 + self.random.below(AT_ONCE_MAX);
        let geometry = self.volume.geometry();
        // Slots of the volume, so that ranges are disjoint.
        let share = geometry.blocks / at_once;
        let mut in_flight = Vec::new();
        for slot in 0..at_once {
            let planned = self.plan(slot * share, share);
            let token = self.client.submit(planned.operation);
            in_flight.push((token, planned.expected, planned.data));
        }
        for (token, expected, data) in in_flight {
            let (result, operation) = self.client.completion(token).await;
            let what = format!("{:?} {:?}", operation.kind(), operation.range());
            assert_eq!(result, expected, "{what}");
            self.check(operation, &data).await;
        }
        if self.random.one_in(4) {
            self.oracle.check_all(&self.client).await;
        }
    }

    async fn check(&mut self, operation: Operation, data: &[u8]) {
        match operation {
            Operation::Read { lba, .. } => {
                let read = harness::data_of(&operation);
                assert!(read == data, "read at {lba} differs");
            }
            Operation::Deallocate { lba, blocks } => {
                self.oracle.resolve(&self.client, lba, blocks).await;
            }
            _ => {}
        }
    }

    fn plan(&mut self, from: u64, share: u64) -> Planned {
        let geometry = self.volume.geometry();
        let random = &mut self.random;
        let longest = share.min(u64::from(geometry.transfer_blocks_max));
        let length = |random: &mut Random, longest: u64| match random.below(4) {
            0 => 1 + random.below(longest),
            1 => 1 + random.below(longest.min(64)),
            _ => 1 + random.below(longest.min(10)),
        };
        let kind = random.below(20);
        let blocks = match kind {
            15 | 16 if geometry.compare_write_blocks > 0 => length(
                random,
                longest.min(u64::from(geometry.compare_write_blocks)),
            ),
            17.. => length(random, share),
            _ => length(random, longest),
        };
        let lba = from + random.below(share - blocks + 1);
        match kind {
            0..=4 => self.plan_read(lba, blocks as u32),
            5..=11 => self.plan_write(lba, blocks as u32),
            12..=14 => self.plan_compare(lba, blocks as u32),
            15 | 16 if geometry.compare_write_blocks > 0 => {
                self.plan_compare_write(lba, blocks as u32)
            }
            15 | 16 => self.plan_read(lba, blocks as u32),
            17 => self.plan_zeroes(lba, blocks),
            18 => Planned {
                operation: Operation::Deallocate { lba, blocks },
                expected: Ok(()),
                data: Vec::new(),
            },
            _ if random.one_in(2) => Planned {
                operation: Operation::Flush,
                expected: Ok(()),
                data: Vec::new(),
            },
            _ => Planned {
                operation: Operation::Verify { lba, blocks },
                expected: Ok(()),
                data: Vec::new(),
            },
        }
    }

    fn plan_read(&mut self, lba: u64, blocks: u32) -> Planned {
        let data = self.oracle.data(lba, u64::from(blocks)).to_vec();
        let buffers = if self.random.one_in(2) {
            ReadBuffers::Lend
        } else {
            ReadBuffers::Into(self.segments(data.len()))
        };
        Planned {
            operation: Operation::Read {
                lba,
                blocks,
                buffers,
            },
            expected: Ok(()),
            data,
        }
    }

    fn plan_write(&mut self, lba: u64, blocks: u32) -> Planned {
        let data = self.random.bytes(blocks as usize * self.block_bytes());
        self.oracle.write(lba, &data);
        Planned {
            operation: Operation::Write {
                lba,
                blocks,
                data: self.views(&data),
                fua: self.random.one_in(16),
            },
            expected: Ok(()),
            data: Vec::new(),
        }
    }

    /// A comparison with what is there, or with that but for one byte.
    fn plan_compare(&mut self, lba: u64, blocks: u32) -> Planned {
        let (data, expected) = self.comparison(lba, blocks);
        Planned {
            operation: Operation::Compare {
                lba,
                blocks,
                data: self.views(&data),
            },
            expected,
            data: Vec::new(),
        }
    }

    fn plan_compare_write(&mut self, lba: u64, blocks: u32) -> Planned {
        let (compare, expected) = self.comparison(lba, blocks);
        let data = self.random.bytes(compare.len());
        let operation = Operation::CompareWrite {
            lba,
            blocks,
            data: self.views(&[&compare[..], &data].concat()),
            fua: self.random.one_in(16),
        };
        if expected.is_ok() {
            self.oracle.write(lba, &data);
        }
        Planned {
            operation,
            expected,
            data: Vec::new(),
        }
    }

    fn comparison(&mut self, lba: u64, blocks: u32) -> (Vec<u8>, Result<(), VolumeError>) {
        let mut data = self.oracle.data(lba, u64::from(blocks)).to_vec();
        if self.random.one_in(2) {
            return (data, Ok(()));
        }
        let at = self.random.below(data.len() as u64);
        data[at as usize] ^= 1 + self.random.below(255) as u8;
        (data, Err(VolumeError::Miscompare { offset: at }))
    }

    fn plan_zeroes(&mut self, lba: u64, blocks: u64) -> Planned {
        let zeroes = vec![0; blocks as usize * self.block_bytes()];
        self.oracle.write(lba, &zeroes);
        Planned {
            operation: Operation::WriteZeroes {
                lba,
                blocks,
                deallocate: self.random.one_in(2),
                fua: self.random.one_in(4),
            },
            expected: Ok(()),
            data: Vec::new(),
        }
    }

    /// Data in one view, or in several that are cut anywhere, at any address.
    fn views(&mut self, data: &[u8]) -> Views {
        let mut views = Views::new();
        let mut rest = data;
        while !rest.is_empty() {
            let length = if self.random.one_in(2) {
                rest.len()
            } else {
                1 + self.random.below(rest.len() as u64) as usize
            };
            let (head, tail) = rest.split_at(length);
            let skip = self.random.below(3) as usize;
            let padded = [&vec![0; skip], head].concat();
            views.push(View::copy_of(&padded).slice(skip..skip + length));
            rest = tail;
        }
        views
    }

    fn segments(&mut self, bytes: usize) -> Segments {
        let mut segments = Segments::new();
        let mut left = bytes;
        while left > 0 {
            let length = if self.random.one_in(2) {
                left
            } else {
                1 + self.random.below(left as u64) as usize
            };
            segments.push(harness::segment(length));
            left -= length;
        }
        segments
    }

    /// What is received into a landing can be written from there.
    async fn landing(&mut self) {
        let landing = self.client.queue().landing(0, 1);
        let mut segments = match landing {
            Landing::Ready(segments) => segments,
            Landing::Anywhere => Segments::from_iter([harness::segment(self.block_bytes())]),
            Landing::Wait => panic!("an idle volume has room to land in"),
        };
        segments.iter_mut().for_each(|segment| segment.fill(0x5A));
        let data: Views = segments
            .into_iter()
            .map(weir_memory::Segment::freeze)
            .collect();
        let write = Operation::Write {
            lba: 0,
            blocks: 1,
            data,
            fua: true,
        };
        assert_eq!(self.client.done(write).await, Ok(()));
        let filled = vec![0x5A; self.block_bytes()];
        self.oracle.write(0, &filled);
        self.oracle.check_all(&self.client).await;
    }
}
