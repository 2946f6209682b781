//! `mem:` keeps blocks in memory. It forgets everything when it is closed.
//!
//! Data is in pages of 4 KiB, which a read lends without copying. A send may still refer to a page that was lent: a write
//! replaces it then, and changes it in place when nobody has it. A page that was never written takes no memory and reads as
//! zeroes.
//!
//! Each page has a lock of its own, which is held while its reference is copied or the page is written. So reactors meet only where they use the same page at the same
//! moment, and there is no line of memory that every request writes. The price is 16 bytes for each page of a touched
//! table. One page is what this volume reads, writes, and compares-and-writes atomically.
//!
//! A resize is the one thing that excludes everything else: each queue holds a lane, locked (by nobody else, as a rule)
//! while it submits, and a resize takes every lane.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use weir_block::{
    CompletionSink, FenceReply, Geometry, Landing, Operation, Queue, ResizeError, ResizeFuture,
    Volume, VolumeError, VolumeEvent, Watcher, compare_write_halves,
};
use weir_memory::{Pool, SharedBuffer, View, Views, copy_views, slice_views};
use weir_reactor::{Key, Reactor};

use crate::lane::{BackEnd, Lane, LaneQueue, Next, Turn, Work};
use crate::pace::{Pace, Wanted};
use crate::support::{
    LiveGeometry, SharedLive, Watchers, check_resize, compare_bytes, compare_views, fill, lock,
};
use crate::{Access, UrlError, VolumeUrl};

const PAGE_SHIFT: u32 = 12;
const PAGE_BYTES: usize = 1 << PAGE_SHIFT;
/// Pages of one table; a table is made when the first of its pages is written.
const TABLE_PAGES: usize = 4096;
/// Replaced pages that a queue keeps at most, to be written again when no send refers to them any more.
const SPARE_PAGES: usize = 256;
/// The largest volume, in bytes: its directory of tables takes some 48 MiB then.
pub const MEM_BYTES_MAX: u64 = 16 << 40;

type Page = Option<Arc<SharedBuffer>>;
type Table = OnceLock<Box<[Mutex<Page>]>>;
type Directory = Arc<[Arc<Table>]>;

/// A volume in memory. See the module.
pub struct MemVolume {
    name: String,
    pace: Option<Arc<Pace>>,
    geometry: SharedLive,
    watchers: Watchers,
    lanes: Mutex<Lanes>,
}

struct Lanes {
    directory: Directory,
    /// One for each queue, with the directory that it uses. Locked in this order by a resize.
    lanes: Vec<Weak<Mutex<Directory>>>,
}

impl MemVolume {
    /// The volume that `mem:?size=...&block_size=...&rate=...&delay=...&stall=...` names. The block size is 4096 unless told.
    ///
    /// # Errors
    /// [`UrlError`].
    pub fn open(url: &VolumeUrl, access: Access) -> Result<Arc<Self>, UrlError> {
        let wanted = Wanted::of(url, "64M", MEM_BYTES_MAX)?;
        let page_blocks = (PAGE_BYTES as u32) >> wanted.block_size.shift();
        let geometry = Geometry {
            transfer_blocks_optimal: page_blocks,
            deallocate_blocks: page_blocks,
            atomic_blocks: 1,
            atomic_blocks_power_fail: 1,
            compare_write_blocks: 1,
            ..wanted.geometry(access)
        };
        let directory = (0..tables(geometry.length_bytes()))
            .map(|_| Arc::default())
            .collect();
        let lanes = Lanes {
            directory,
            lanes: Vec::new(),
        };
        Ok(Arc::new(MemVolume {
            name: url.to_string(),
            pace: wanted.pace,
            geometry: Arc::new(LiveGeometry::new(geometry)),
            watchers: Watchers::default(),
            lanes: Mutex::new(lanes),
        }))
    }
}

/// Tables for so many bytes.
fn tables(bytes: u64) -> usize {
    bytes.div_ceil((TABLE_PAGES * PAGE_BYTES) as u64) as usize
}

impl Volume for MemVolume {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.watchers.add(watcher);
    }

    fn open_queue(
        self: Arc<Self>,
        reactor: &Reactor,
        depth: u32,
        sink: Rc<dyn CompletionSink>,
    ) -> Result<Box<dyn Queue>, VolumeError> {
        let mut lanes = lock(&self.lanes);
        let lane = Arc::new(Mutex::new(Arc::clone(&lanes.directory)));
        lanes.lanes.retain(|lane| lane.strong_count() > 0);
        lanes.lanes.push(Arc::downgrade(&lane));
        let lane = MemLane {
            geometry: Arc::clone(&self.geometry),
            lane,
            pace: self.pace.clone(),
            spare: Spare::default(),
        };
        Ok(Box::new(LaneQueue::new(lane, reactor, depth, sink)))
    }

    /// What was submitted has taken effect when the submission returned; one that goes on now holds its lane.
    fn fence(&self, reply: FenceReply) {
        let lanes: Vec<_> = lock(&self.lanes)
            .lanes
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        lanes.iter().for_each(|lane| drop(lock(lane)));
        reply(Ok(()));
    }

    fn resize(self: Arc<Self>, _: &Reactor, blocks: u64, force: bool) -> ResizeFuture {
        Box::pin(std::future::ready(self.resize_now(blocks, force)))
    }
}

impl MemVolume {
    fn resize_now(&self, blocks: u64, force: bool) -> Result<Geometry, ResizeError> {
        let mut state = lock(&self.lanes);
        let geometry = self.geometry();
        check_resize(&geometry, blocks, force)?;
        let bytes = blocks << geometry.block_size.shift();
        if bytes > MEM_BYTES_MAX {
            return Err(ResizeError::Medium {
                reason: format!("a mem: volume has at most {MEM_BYTES_MAX} bytes"),
            });
        }
        let lanes: Vec<_> = state.lanes.iter().filter_map(Weak::upgrade).collect();
        let mut held: Vec<_> = lanes.iter().map(|lane| lock(lane)).collect();
        state.directory = resized(&state.directory, bytes);
        held.iter_mut()
            .for_each(|lane| **lane = Arc::clone(&state.directory));
        let changed = self.geometry.set_blocks(blocks);
        drop(held);
        drop(state);
        if changed {
            self.watchers.tell(VolumeEvent::Resized);
        }
        Ok(self.geometry())
    }
}

/// A directory for `bytes`, with what the old one holds before that, and nothing behind it. Nobody uses the old one now.
fn resized(old: &Directory, bytes: u64) -> Directory {
    let kept = tables(bytes).min(old.len());
    let directory: Directory = old[..kept]
        .iter()
        .cloned()
        .chain((kept..tables(bytes)).map(|_| Arc::default()))
        .collect();
    let end = bytes.div_ceil(PAGE_BYTES as u64) as usize;
    let Some(last) = directory.last().and_then(|table| table.get()) else {
        return directory;
    };
    let behind = end - (directory.len() - 1) * TABLE_PAGES;
    last[behind..].iter().for_each(|page| *lock(page) = None);
    let in_page = bytes as usize % PAGE_BYTES;
    if in_page > 0 {
        let mut page = lock(&last[behind - 1]);
        Spare::default().change(&mut page, in_page..PAGE_BYTES, |part| part.fill(0));
    }
    directory
}

struct MemLane {
    geometry: SharedLive,
    lane: Arc<Mutex<Directory>>,
    pace: Option<Arc<Pace>>,
    spare: Spare,
}

impl BackEnd for MemLane {
    type State = ();
    type Action = Infallible;
    type Held<'a> = MutexGuard<'a, Directory>;

    /// The lock comes first: a resize has all of them while it changes the geometry.
    fn hold(&self) -> (Geometry, MutexGuard<'_, Directory>) {
        let held = lock(&self.lane);
        (self.geometry.get(), held)
    }

    fn landing(&self, _: &Lane<Self>, _lba: u64, _blocks: u32) -> Landing {
        Landing::Anywhere
    }

    fn start(
        &self,
        turn: &Turn<'_>,
        directory: &MutexGuard<'_, Directory>,
        work: Work<'_, ()>,
    ) -> Next<Infallible> {
        let pages = Pages {
            directory,
            block_shift: turn.geometry.block_size.shift(),
            spare: &self.spare,
            pool: turn.reactor.pool(),
        };
        let result = pages.execute(work.operation);
        Pace::next(self.pace.as_ref(), turn.reactor, result)
    }

    fn run(&self, _: &Lane<Self>, _: Key, never: Infallible) {
        match never {}
    }
}

/// The pages while a lane is held.
struct Pages<'lane> {
    directory: &'lane Directory,
    block_shift: u32,
    spare: &'lane Spare,
    pool: &'lane Pool,
}

/// The part of a range that lies in one page.
struct Part {
    page: usize,
    within: Range<usize>,
    /// Where it lies in the range, in bytes.
    offset: usize,
}

impl Part {
    fn is_whole_page(&self) -> bool {
        self.within.len() == PAGE_BYTES
    }
}

impl Pages<'_> {
    fn execute(&self, operation: &mut Operation) -> Result<(), VolumeError> {
        match operation {
            Operation::Read {
                lba,
                blocks,
                buffers,
            } => {
                let data = self.read(*lba, *blocks);
                fill(buffers, data);
                Ok(())
            }
            Operation::Write {
                lba, blocks, data, ..
            } => {
                self.write(*lba, *blocks, data);
                Ok(())
            }
            Operation::WriteZeroes { lba, blocks, .. } => {
                self.zero(*lba, *blocks);
                Ok(())
            }
            Operation::Deallocate { lba, blocks } => {
                self.deallocate(*lba, *blocks);
                Ok(())
            }
            Operation::Compare { lba, blocks, data } => {
                let there = self.read(*lba, *blocks);
                let result = compare_views(data, &there);
                self.pool.keep_list(there);
                result
            }
            Operation::CompareWrite {
                lba, blocks, data, ..
            } => {
                let (compare, data) = compare_write_halves(data);
                self.compare_write(*lba, *blocks, &compare, &data)
            }
            Operation::Verify { .. } | Operation::Flush => Ok(()),
        }
    }

    fn parts(&self, lba: u64, blocks: u64) -> impl Iterator<Item = Part> + use<> {
        let start = lba << self.block_shift;
        let end = start + (blocks << self.block_shift);
        let pages = start >> PAGE_SHIFT..end.div_ceil(PAGE_BYTES as u64);
        pages.map(move |page| {
            let base = page << PAGE_SHIFT;
            let (from, to) = (start.max(base), end.min(base + PAGE_BYTES as u64));
            Part {
                page: page as usize,
                within: (from - base) as usize..(to - base) as usize,
                offset: (from - start) as usize,
            }
        })
    }

    /// The same, but for tables that were never written: what is large and sparse is passed over quickly.
    fn parts_in_tables(&self, lba: u64, blocks: u64) -> impl Iterator<Item = Part> {
        let table_blocks = ((TABLE_PAGES * PAGE_BYTES) as u64) >> self.block_shift;
        let end = lba + blocks;
        let tables = lba / table_blocks..end.div_ceil(table_blocks);
        let written = tables.filter(|&table| self.directory[table as usize].get().is_some());
        written.flat_map(move |table| {
            let from = lba.max(table * table_blocks);
            let to = end.min((table + 1) * table_blocks);
            self.parts(from, to - from)
        })
    }

    /// The lock of a page; none when its table was never written.
    fn page(&self, page: usize) -> Option<&Mutex<Page>> {
        let table = self.directory[page / TABLE_PAGES].get()?;
        Some(&table[page % TABLE_PAGES])
    }

    fn page_to_write(&self, page: usize) -> &Mutex<Page> {
        let table = &self.directory[page / TABLE_PAGES];
        let table = table.get_or_init(|| (0..TABLE_PAGES).map(|_| Mutex::default()).collect());
        &table[page % TABLE_PAGES]
    }

    fn read(&self, lba: u64, blocks: u32) -> Views {
        let parts = self.parts(lba, u64::from(blocks));
        let mut views = self.pool.list(parts.size_hint().0);
        for part in parts {
            let page = self.page(part.page).and_then(|page| lock(page).clone());
            match page {
                Some(page) => views.push(page.view().slice(part.within)),
                None => views.extend(View::zeroes(part.within.len())),
            }
        }
        views
    }

    fn write(&self, lba: u64, blocks: u32, data: &[View]) {
        for part in self.parts(lba, u64::from(blocks)) {
            let views = slice_views(data, part.offset, part.within.len());
            let mut page = lock(self.page_to_write(part.page));
            self.spare
                .change(&mut page, part.within, |bytes| copy_views(&views, bytes));
        }
    }

    fn zero(&self, lba: u64, blocks: u64) {
        for part in self.parts_in_tables(lba, blocks) {
            let Some(page) = self.page(part.page) else {
                continue;
            };
            let mut page = lock(page);
            if part.is_whole_page() {
                *page = None;
            } else if page.is_some() {
                self.spare
                    .change(&mut page, part.within, |bytes| bytes.fill(0));
            }
        }
    }

    fn deallocate(&self, lba: u64, blocks: u64) {
        let parts = self.parts_in_tables(lba, blocks);
        for part in parts.filter(Part::is_whole_page) {
            if let Some(page) = self.page(part.page) {
                *lock(page) = None;
            }
        }
    }

    fn compare_write(
        &self,
        lba: u64,
        blocks: u32,
        compare: &[View],
        data: &[View],
    ) -> Result<(), VolumeError> {
        let mut parts = self.parts(lba, u64::from(blocks));
        let part = parts.next().expect("a range is not empty");
        assert!(parts.next().is_none(), "one block lies in one page");
        let mut page = lock(self.page_to_write(part.page));
        let mut expected = [0; PAGE_BYTES];
        let expected = &mut expected[..part.within.len()];
        copy_views(compare, expected);
        match &*page {
            Some(page) => compare_bytes(expected, &page[part.within.clone()], 0)?,
            None => {
                let zeroes: Views = View::zeroes(expected.len()).collect();
                compare_bytes(expected, &zeroes[0], 0)?;
            }
        }
        self.spare
            .change(&mut page, part.within, |bytes| copy_views(data, bytes));
        Ok(())
    }
}

/// Pages of one queue that were replaced while a read had them, the oldest first: by the time that a page is needed, most
/// often nobody has them any more.
#[derive(Default)]
struct Spare(RefCell<VecDeque<Arc<SharedBuffer>>>);

impl Spare {
    /// Changes a part of a page: in place when nobody else has the page, in another one otherwise.
    fn change(&self, page: &mut Page, within: Range<usize>, change: impl FnOnce(&mut [u8])) {
        if let Some(bytes) = page.as_mut().and_then(Arc::get_mut) {
            return change(&mut bytes[within]);
        }
        let mut new = self.take();
        let bytes = Arc::get_mut(&mut new).expect("nobody else has a page that was just taken");
        if within.len() < PAGE_BYTES {
            match page {
                Some(old) => bytes.copy_from_slice(old),
                None => bytes.fill(0),
            }
        }
        change(&mut bytes[within]);
        if let Some(old) = page.replace(new) {
            self.keep(old);
        }
    }

    /// A page that nobody has, with anything in it.
    fn take(&self) -> Arc<SharedBuffer> {
        let mut pages = self.0.borrow_mut();
        if pages.front_mut().and_then(Arc::get_mut).is_some() {
            return pages.pop_front().expect("just seen");
        }
        SharedBuffer::new(PAGE_BYTES, |_| ())
    }

    fn keep(&self, page: Arc<SharedBuffer>) {
        let mut pages = self.0.borrow_mut();
        if pages.len() < SPARE_PAGES {
            pages.push_back(page);
        }
    }
}
