//! The contract beside requests: fences, wishes that requests end, sizes, events, health.

use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use weir_block::{InFlight, Operation, ReadBuffers, ResizeError, Token, VolumeEvent, Watcher};
use weir_reactor::oneshot;

use super::{Arc, Client, DEPTH, Reactor, Run, VolumeError, harness};

/// Time within which a fence, a resize and a drive answer, or never will.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time in which what was given up would have taken effect if it could.
const LATER: Duration = Duration::from_millis(50);
/// Bytes that a volume grows by.
const GROWTH_BYTES: u64 = 1 << 20;

#[derive(Default)]
struct Seen(Mutex<Vec<VolumeEvent>>);

impl Watcher for Seen {
    fn notice(&self, event: VolumeEvent) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        events.push(event);
    }
}

impl Seen {
    fn resizes(&self) -> usize {
        let events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let resizes = events
            .iter()
            .filter(|&&event| event == VolumeEvent::Resized);
        resizes.count()
    }
}

async fn within<T>(reactor: &Reactor, what: &str, answer: impl Future<Output = T>) -> T {
    let (mut answer, mut late) = (pin!(answer), reactor.sleep(PATIENCE));
    std::future::poll_fn(|context| {
        if let Poll::Ready(answered) = answer.as_mut().poll(context) {
            return Poll::Ready(answered);
        }
        assert!(
            Pin::new(&mut late).poll(context).is_pending(),
            "{what} does not end"
        );
        Poll::Pending
    })
    .await
}

impl Run {
    pub(super) async fn control(&mut self, reactor: &Reactor) {
        let health = self.volume.health(reactor);
        within(reactor, "asking for health", health).await;
        for is_dropped in [false, true, false, true] {
            self.fence(reactor, is_dropped).await;
        }
        self.cancel(reactor).await;
        self.in_flight(reactor).await;
        self.resize(reactor).await;
        self.oracle.check_all(&self.client).await;
    }

    fn data(&mut self, blocks: u32) -> Vec<u8> {
        self.random.bytes(blocks as usize * self.block_bytes())
    }

    /// Writes that were under way at a fence have no effect after it, whether their queue is there still or not.
    async fn fence(&mut self, reactor: &Reactor, is_dropped: bool) {
        const BLOCKS: u32 = 4;
        let old = Client::open(&self.volume, reactor, DEPTH);
        let (before, after) = (self.data(BLOCKS), self.data(BLOCKS));
        let blocks = (0..).zip(before.chunks(self.block_bytes()));
        let tokens: Vec<_> = blocks
            .map(|(lba, data)| old.submit(harness::write(lba, 1, data)))
            .collect();
        if old.untaken() > 0 {
            // What the queue has not taken was not submitted, and is nothing to a fence.
            for token in tokens {
                assert_eq!(old.completion(token).await.0, Ok(()));
            }
            self.oracle.write(0, &before);
            return;
        }
        let old = (!is_dropped).then_some(old);
        let (sender, receiver) = oneshot();
        self.volume.fence(Box::new(|result| sender.send(result)));
        let fenced = within(reactor, "a fence", receiver).await;
        assert_eq!(fenced, Some(Ok(())), "a fence ends, and well");
        let left = self.client.read(0, BLOCKS).await.unwrap();
        reactor.sleep(LATER).await;
        let later = self.client.read(0, BLOCKS).await.unwrap();
        assert!(left == later, "a write had an effect after a fence");
        assert_eq!(
            self.client.done(harness::write(0, BLOCKS, &after)).await,
            Ok(())
        );
        self.oracle.write(0, &after);
        if let Some(old) = old {
            for token in tokens {
                drop(within(reactor, "a fenced write", old.completion(token)).await);
            }
        }
        self.oracle.check_all(&self.client).await;
    }

    /// Wishes that requests end. Each is completed once, and has done what its completion says.
    async fn cancel(&mut self, reactor: &Reactor) {
        let blocks = DEPTH.min(self.volume.geometry().blocks as u32 / 2);
        let data = self.data(blocks);
        let block = self.block_bytes();
        let mut writes = Vec::new();
        for (lba, data) in (0..).zip(data.chunks(block)) {
            let write = self.client.submit(harness::write(lba, 1, data));
            let read = self.client.submit(Operation::Read {
                lba: u64::from(blocks),
                blocks: 1,
                buffers: ReadBuffers::Lend,
            });
            self.client.cancel(write);
            self.client.cancel(read);
            writes.push((lba, write, read));
        }
        for (lba, write, read) in writes {
            let written = within(reactor, "a cancelled write", self.client.completion(write));
            let (result, _) = written.await;
            let new = &data[lba as usize * block..][..block];
            match result {
                Ok(()) => self.oracle.write(lba, new),
                Err(error) if error.had_no_effect() => {}
                Err(_) => {
                    let there = self.client.read(lba, 1).await.expect("it can be read");
                    let is_known = there == new || there == self.oracle.data(lba, 1);
                    assert!(is_known, "block {lba} is neither old nor new");
                    self.oracle.write(lba, &there);
                }
            }
            let read = within(reactor, "a cancelled read", self.client.completion(read));
            let (result, operation) = read.await;
            if result.is_ok() {
                let there = harness::data_of(&operation);
                assert!(there == self.oracle.data(u64::from(blocks), 1));
            }
            // Both have ended: nothing happens.
            self.client.cancel(write);
        }
        self.client.cancel(Token::default());
        self.oracle.check_all(&self.client).await;
    }

    /// A queue tells of each request that it has taken once, with its blocks, until that has ended.
    async fn in_flight(&mut self, reactor: &Reactor) {
        let client = Client::open(&self.volume, reactor, 2 * DEPTH);
        let blocks = DEPTH.min(self.volume.geometry().blocks as u32 / 2);
        let data = self.data(blocks);
        let mut requests = Vec::new();
        let mut submit = |operation: Operation| {
            let request = InFlight::of(Token::default(), &operation);
            let token = client.submit(operation);
            requests.push(InFlight { token, ..request });
        };
        for (lba, data) in (0..).zip(data.chunks(self.block_bytes())) {
            submit(harness::write(lba, 1, data));
            submit(Operation::Read {
                lba: u64::from(blocks),
                blocks,
                buffers: ReadBuffers::Lend,
            });
        }
        submit(Operation::Flush);
        self.oracle.write(0, &data);
        let (sort_key, volume) = (|one: &InFlight| one.token, self.volume.name());
        while let Some(request) = requests.first() {
            let mut expected: Vec<_> = requests.clone();
            expected.retain(|one| client.is_under_way(one.token));
            let mut told = Vec::new();
            let tell = &mut |one| told.push(one);
            client.queue().in_flight(tell);
            told.sort_by_key(sort_key);
            assert_eq!(told, expected, "of {volume}");
            let completion = client.completion(request.token);
            let completion = within(reactor, "a request", completion).await;
            assert_eq!(completion.0, Ok(()));
            requests.remove(0);
        }
    }

    /// A volume that can be resized has the size that it says, and tells so; another one says that it cannot.
    async fn resize(&mut self, reactor: &Reactor) {
        let seen = Arc::new(Seen::default());
        let watcher: std::sync::Weak<Seen> = Arc::downgrade(&seen);
        self.volume.watch(watcher);
        let before = self.volume.geometry();
        let (blocks, growth) = (
            before.blocks,
            GROWTH_BYTES >> self.volume.geometry().block_size.shift(),
        );
        let volume = Arc::clone(&self.volume);
        let resize = |blocks, force| {
            let resize = Arc::clone(&volume).resize(reactor, blocks, force);
            within(reactor, "a resize", resize)
        };
        let grown = match resize(blocks + growth, false).await {
            Ok(grown) => grown,
            Err(error) => {
                let name = self.volume.name();
                if let ResizeError::Unsupported { kind } = error {
                    assert!(name.starts_with(&format!("{kind}:")), "{kind} of {name}");
                }
                assert_eq!(self.volume.geometry(), before, "{name}: {error}");
                assert_eq!(seen.resizes(), 0, "{name}: {error}");
                return;
            }
        };
        assert_eq!(grown.blocks, blocks + growth);
        assert_eq!(self.volume.geometry(), grown);
        assert_ne!(grown.generation, before.generation);
        assert!(seen.resizes() > 0, "nobody was told of the size");
        let last = blocks + growth - 1;
        let zeroes = vec![0; self.block_bytes()];
        assert!(self.client.read(last, 1).await.unwrap() == zeroes);
        let data = self.data(1);
        assert_eq!(self.client.write(last, 1, &data).await, Ok(()));
        self.oracle.check_all(&self.client).await;
        let refused = resize(blocks, false).await;
        assert!(
            matches!(refused, Err(ResizeError::WouldShrink { .. })),
            "{refused:?}"
        );
        assert_eq!(self.volume.geometry(), grown);
        let told = seen.resizes();
        let shrunk = resize(blocks, true).await.expect("it shrinks");
        assert_eq!(shrunk.blocks, blocks);
        assert_eq!(self.volume.geometry(), shrunk);
        assert!(seen.resizes() > told, "nobody was told of the smaller size");
        let cut_off = self.client.read(last, 1).await;
        assert_eq!(cut_off, Err(VolumeError::OutOfRange));
        // Blocks that were cut off do not come back.
        resize(blocks + growth, false)
            .await
            .expect("it grows again");
        assert!(self.client.read(last, 1).await.unwrap() == zeroes);
        resize(blocks, true).await.expect("it shrinks again");
    }
}
