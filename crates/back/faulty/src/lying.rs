//! `lying:` keeps blocks in memory as `mem:` does, and lies once: a write that it acknowledges is lost, a read yields what was there
//! before, and so on. For tests of what finds that out.
//!
//! `lying:?size=1M&block_size=4096&lie=lost-write&block=77&write=2&to=90&reads=1`: it lies about the second write that has block 77 in it, or
//! about the first read of that after it. `to` is where what is misdirected goes to or comes from.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, Weak};

use weir_block::{
    Completion, CompletionSink, FenceReply, Geometry, HealthFuture, InFlight, Landing, Operation,
    Queue, ReadBuffers, Request, ResizeFuture, Token, Volume, VolumeError, Watcher,
};
use weir_memory::{Segment, View, Views, copy_views, slice_views, views_len};
use weir_reactor::Reactor;
use weir_volume::parts::lock;
use weir_volume::{Access, MemVolume, UrlError, VolumeUrl};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    LostWrite,
    /// The first half of the blocks is written, of one block the first half of it.
    TornWrite,
    /// The first half of the block is.
    TornBlock,
    StaleRead,
    MisdirectedWrite,
    /// It is written where it belongs, and the block once more elsewhere.
    DuplicatedWrite,
    /// The last block of it is written once more, behind it.
    OverrunningWrite,
    MisdirectedRead,
    /// One bit of what is written.
    BitFlip,
    /// One bit of what is read.
    BitFlipInRead,
    Honest,
}

const WORDS: [(&str, How); 11] = [
    ("lost-write", How::LostWrite),
    ("torn-write", How::TornWrite),
    ("torn-block", How::TornBlock),
    ("stale-read", How::StaleRead),
    ("misdirected-write", How::MisdirectedWrite),
    ("duplicated-write", How::DuplicatedWrite),
    ("overrunning-write", How::OverrunningWrite),
    ("misdirected-read", How::MisdirectedRead),
    ("bit-flip", How::BitFlip),
    ("bit-flip-in-read", How::BitFlipInRead),
    ("honest", How::Honest),
];

#[derive(Debug, Clone, Copy)]
struct Lie {
    how: How,
    block: u64,
    /// Which of the writes to the block, from 1 on.
    write: u64,
    to: u64,
    /// How many reads are lied about.
    reads: u64,
    block_bytes: usize,
}

/// What is known of the block lied about, and of the other one.
#[derive(Debug, Clone, Default)]
struct Memory {
    /// Writes to the block so far.
    writes: u64,
    /// What the two blocks were last written with.
    contents: HashMap<u64, Vec<u8>>,
    /// What the block held before the write that it is about.
    before: Vec<u8>,
    /// Whether that write has ended, so that reads must yield it.
    written: bool,
    reads: u64,
}

/// See the module.
pub(crate) struct LyingVolume {
    name: String,
    inner: Arc<MemVolume>,
    lie: Lie,
    memory: Arc<Mutex<Memory>>,
}

pub(crate) fn open(url: &VolumeUrl, access: Access) -> Result<Arc<LyingVolume>, UrlError> {
    url.expect_no_place()?;
    let parameters = url.parameters();
    let size = parameters.size("size")?;
    let block_size = parameters.block_size()?;
    let number = |name| parameters.number(name, 0..=u64::MAX);
    let mut lie = Lie {
        how: parameters.choice("lie", &WORDS)?.unwrap_or(How::Honest),
        block: number("block")?.unwrap_or(0),
        write: number("write")?.unwrap_or(2),
        to: number("to")?.unwrap_or(1),
        reads: number("reads")?.unwrap_or(1),
        block_bytes: 0,
    };
    let size = parameters.required("size", size, "its size, such as 1M")?;
    parameters.finish()?;
    let mut inner = VolumeUrl::new("mem", "").with("size", size);
    if let Some(block_size) = block_size {
        inner = inner.with("block_size", block_size.bytes());
    }
    let inner = MemVolume::open(&inner, access)?;
    lie.block_bytes = inner.geometry().block_size.bytes() as usize;
    Ok(Arc::new(LyingVolume {
        name: url.to_string(),
        inner,
        lie,
        memory: Arc::default(),
    }))
}

impl Volume for LyingVolume {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.inner.watch(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let covers = Rc::new(Covers {
            sink,
            lie: self.lie,
            memory: Arc::clone(&self.memory),
            asked: RefCell::default(),
        });
        let open = |depth, sink| Arc::clone(&self.inner).open_queue(reactor, depth, sink);
        Ok(Box::new(LyingQueue {
            inner: open(depth, Rc::clone(&covers) as _)?,
            copies: RefCell::new(open(1, Rc::new(Nobody))?),
            covers,
        }))
    }

    fn fence(&self, reply: FenceReply) {
        self.inner.fence(reply);
    }

    fn resize(self: Arc<Self>, reactor: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Arc::clone(&self.inner).resize(reactor, blocks, force)
    }

    fn health(&self, reactor: &Reactor) -> HealthFuture {
        self.inner.health(reactor)
    }
}

/// What was asked for, where something else is done.
enum Asked {
    /// This write, of which the end makes reads due to see it.
    Write(Operation),
    /// This read is lied about.
    Read,
}

/// Gives completions the look of what was asked for.
struct Covers {
    sink: Rc<dyn CompletionSink>,
    lie: Lie,
    memory: Arc<Mutex<Memory>>,
    asked: RefCell<HashMap<Token, Asked>>,
}

impl CompletionSink for Covers {
    fn complete(&self, mut completion: Completion) {
        self.cover(&mut completion);
        self.sink.complete(completion);
    }
}

impl Covers {
    fn cover(&self, completion: &mut Completion) {
        match self.asked.borrow_mut().remove(&completion.token) {
            None => {}
            Some(Asked::Write(operation)) => {
                lock(&self.memory).written = true;
                completion.operation = operation;
            }
            Some(Asked::Read) => self.falsify(&mut completion.operation),
        }
    }

    fn falsify(&self, operation: &mut Operation) {
        let Operation::Read {
            lba,
            buffers: ReadBuffers::Filled(data),
            ..
        } = operation
        else {
            return;
        };
        let memory = lock(&self.memory);
        let at = self.lie.place_in(*lba);
        *data = changed(data, at, |block| match self.lie.how {
            How::StaleRead => block.copy_from_slice(&memory.before),
            How::MisdirectedRead => match memory.contents.get(&self.lie.to) {
                Some(other) => block.copy_from_slice(other),
                None => block.fill(0),
            },
            _ => self.lie.flip(block),
        });
    }
}

impl Lie {
    /// Where the block is in a request that begins at `lba`.
    fn place_in(&self, lba: u64) -> Range<usize> {
        let start = (self.block - lba) as usize * self.block_bytes;
        start..start + self.block_bytes
    }

    fn flip(&self, block: &mut [u8]) {
        block[self.block_bytes / 3] ^= 0x10;
    }
}

/// A copy of `data` with a part changed.
fn changed(data: &[View], at: Range<usize>, change: impl FnOnce(&mut [u8])) -> Views {
    let mut bytes = Segment::heap(views_len(data));
    copy_views(data, &mut bytes);
    change(&mut bytes[at]);
    Views::from_iter([bytes.freeze()])
}

/// Waits for nothing: memory does at once what it is asked for.
struct Nobody;

impl CompletionSink for Nobody {
    fn complete(&self, completion: Completion) {
        unreachable!("{completion:?} comes late");
    }
}

struct LyingQueue {
    inner: Box<dyn Queue>,
    /// For what nobody asked for.
    copies: RefCell<Box<dyn Queue>>,
    covers: Rc<Covers>,
}

impl Queue for LyingQueue {
    fn landing(&mut self, lba: u64, blocks: u32) -> Landing {
        self.inner.landing(lba, blocks)
    }

    fn submit(&mut self, batch: &mut VecDeque<Request>, done: &mut VecDeque<Completion>) {
        while let Some(request) = batch.pop_front() {
            let token = request.token;
            let before = lock(&self.covers.memory).clone();
            let mut one = VecDeque::from([self.lie_about(request)]);
            let ended = done.len();
            self.inner.submit(&mut one, done);
            for completion in done.iter_mut().skip(ended) {
                self.covers.cover(completion);
            }
            if let Some(mut refused) = one.pop_front() {
                // There was no room: nothing has happened.
                *lock(&self.covers.memory) = before;
                if let Some(Asked::Write(operation)) = self.covers.asked.borrow_mut().remove(&token)
                {
                    refused.operation = operation;
                }
                batch.push_front(refused);
                return;
            }
        }
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn in_flight(&self, visit: &mut dyn FnMut(InFlight)) {
        let asked = self.covers.asked.borrow();
        self.inner
            .in_flight(&mut |request| match asked.get(&request.token) {
                Some(Asked::Write(operation)) => visit(InFlight::of(request.token, operation)),
                _ => visit(request),
            });
    }
}

impl LyingQueue {
    fn lie_about(&self, request: Request) -> Request {
        let lie = self.covers.lie;
        let Some((lba, blocks)) = request.operation.range() else {
            return request;
        };
        let has = |block: u64| (lba..lba + blocks).contains(&block);
        let mut memory = lock(&self.covers.memory);
        match &request.operation {
            Operation::Write { data, .. } => {
                let due = has(lie.block) && memory.writes + 1 == lie.write;
                memory.writes += u64::from(has(lie.block));
                if due {
                    memory.before = memory
                        .contents
                        .get(&lie.block)
                        .cloned()
                        .unwrap_or_else(|| vec![0; lie.block_bytes]);
                }
                for block in [lie.block, lie.to].into_iter().filter(|&block| has(block)) {
                    let start = (block - lba) as usize * lie.block_bytes;
                    let mut bytes = vec![0; lie.block_bytes];
                    copy_views(&slice_views(data, start, lie.block_bytes), &mut bytes);
                    memory.contents.insert(block, bytes);
                }
                match due {
                    true => self.lie_about_write(request, &memory),
                    false => request,
                }
            }
            Operation::Read { .. } => {
                let reads = matches!(
                    lie.how,
                    How::StaleRead | How::MisdirectedRead | How::BitFlipInRead
                );
                if reads && has(lie.block) && memory.written && memory.reads < lie.reads {
                    memory.reads += 1;
                    let mut asked = self.covers.asked.borrow_mut();
                    asked.insert(request.token, Asked::Read);
                }
                request
            }
            _ => request,
        }
    }

    fn lie_about_write(&self, request: Request, memory: &Memory) -> Request {
        let lie = self.covers.lie;
        let Request { token, operation } = request;
        let Operation::Write {
            lba,
            blocks,
            ref data,
            fua,
        } = operation
        else {
            unreachable!("it is asked about writes")
        };
        let write = |lba, blocks, data| Operation::Write {
            lba,
            blocks,
            data,
            fua,
        };
        let at = lie.place_in(lba);
        let done = match lie.how {
            How::LostWrite => Operation::Verify {
                lba,
                blocks: blocks.into(),
            },
            How::TornWrite if blocks > 1 => {
                let half = blocks / 2;
                let bytes = half as usize * lie.block_bytes;
                write(lba, half, slice_views(data, 0, bytes))
            }
            // Of one block half a block is written.
            How::TornBlock | How::TornWrite => {
                let half = lie.block_bytes / 2;
                let data = changed(data, at, |block| {
                    block[half..].copy_from_slice(&memory.before[half..]);
                });
                write(lba, blocks, data)
            }
            How::MisdirectedWrite => write(lie.to, blocks, data.clone()),
            How::DuplicatedWrite => {
                let copy = write(lie.to, 1, slice_views(data, at.start, lie.block_bytes));
                let mut copy = VecDeque::from([Request {
                    token: Token::default(),
                    operation: copy,
                }]);
                let done = &mut VecDeque::new();
                self.copies.borrow_mut().submit(&mut copy, done);
                assert_eq!(done.len(), 1, "memory does at once what it is asked for");
                write(lba, blocks, data.clone())
            }
            How::OverrunningWrite => {
                let mut more = data.clone();
                let last = views_len(data) - lie.block_bytes;
                more.extend(slice_views(data, last, lie.block_bytes));
                write(lba, blocks + 1, more)
            }
            How::BitFlip => write(lba, blocks, changed(data, at, |block| lie.flip(block))),
            How::StaleRead | How::MisdirectedRead | How::BitFlipInRead | How::Honest => {
                write(lba, blocks, data.clone())
            }
        };
        let mut asked = self.covers.asked.borrow_mut();
        asked.insert(token, Asked::Write(operation));
        Request {
            token,
            operation: done,
        }
    }
}
