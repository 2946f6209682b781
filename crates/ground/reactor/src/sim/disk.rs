//! The simulated disks: files and block devices by path, and the operations in flight on them.
//!
//! An operation takes effect in one or two parts at random times between its submission and its end, so that operations
//! in flight together are reordered and torn against one another. There are no directories: every path has a parent.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::injected::FaultKind;
use super::medium::{Fill, Mark, Medium};
use super::network::failure;
use super::schedule::{Event, Schedule, Waiter};
use super::settings::{DiskConfig, HostId};
use crate::{AllocateMode, FileInfo, FileKind, Handle, OpenOptions, UseDirect};

struct Stored {
    host: HostId,
    path: PathBuf,
    kind: FileKind,
    number: u64,
    medium: Medium,
    silence: Silence,
}

/// For how long a file or device is silent; both moments are past where it is not.
#[derive(Clone, Copy, Default)]
struct Silence {
    /// Until then nothing takes effect or is done.
    until: u64,
    /// By then all that was kept back is done.
    worked_off: u64,
}

struct OpenFile {
    host: HostId,
    stored: usize,
    write: bool,
    direct: bool,
    /// Something was not written back, of which this file's next sync or durable write tells.
    writeback_failed: bool,
}

/// The action of an operation.
#[derive(Debug)]
pub(super) enum Work {
    Read,
    Write { durable: bool },
    Sync(Mark),
    Allocate(AllocateMode),
}

/// The parameters of an operation. For a read `data` is as long as what is to be read.
pub(super) struct Request {
    pub(super) work: Work,
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) data: Vec<u8>,
}

struct Flight {
    host: HostId,
    file: Handle,
    stored: usize,
    request: Request,
    /// Names the write among all of the world.
    number: u64,
    /// Parts that have not taken effect; relative to the offset.
    parts: Vec<Option<(u64, u64)>>,
    begun: bool,
    /// The disk reports a failure in the end.
    fails: bool,
    error: Option<i32>,
    done: Option<io::Result<u64>>,
}

pub(super) struct Disks {
    config: DiskConfig,
    stored: Vec<Stored>,
    paths: BTreeMap<(HostId, PathBuf), usize>,
    open: BTreeMap<Handle, OpenFile>,
    flights: BTreeMap<Waiter, Flight>,
    writes: u64,
}

impl Disks {
    pub(super) fn new(config: DiskConfig) -> Self {
        Disks {
            config,
            stored: Vec::new(),
            paths: BTreeMap::new(),
            open: BTreeMap::new(),
            flights: BTreeMap::new(),
            writes: 0,
        }
    }

    fn store(&mut self, host: HostId, path: &Path, kind: FileKind, length: u64) -> usize {
        let index = self.stored.len();
        self.stored.push(Stored {
            host,
            path: path.to_owned(),
            kind,
            number: index as u64 + 1,
            medium: Medium::new(self.config.physical_block, length),
            silence: Silence::default(),
        });
        self.paths.insert((host, path.to_owned()), index);
        index
    }

    /// A block device of `length` bytes, all zeroes.
    pub(super) fn add_device(&mut self, host: HostId, path: &Path, length: u64) {
        let key = (host, path.to_owned());
        assert!(!self.paths.contains_key(&key), "{path:?} exists already");
        self.store(host, path, FileKind::BlockDevice, length);
    }

    /// Gives a file another name, as a hard link.
    pub(super) fn link(&mut self, host: HostId, path: &Path, name: &Path) {
        let stored = self.paths[&(host, path.to_owned())];
        self.paths.insert((host, name.to_owned()), stored);
    }

    /// Keeps operations on a file back for the first half of `duration`; they end in the second.
    pub(super) fn silence(
        &mut self,
        schedule: &mut Schedule,
        host: HostId,
        path: &Path,
        duration: u64,
    ) {
        let stored = self.paths[&(host, path.to_owned())];
        self.stored[stored].silence = Silence {
            until: schedule.now.saturating_add(duration / 2),
            worked_off: schedule.now.saturating_add(duration),
        };
        self.inject(schedule, FaultKind::SilentDisk, stored, duration);
    }

    /// The moment to which an event is put off, when it is of an operation on what is silent.
    pub(super) fn kept_back(&self, schedule: &mut Schedule, event: Event) -> Option<u64> {
        let (Event::DiskEffect { of, .. } | Event::DiskDone(of)) = event else {
            return None;
        };
        let Silence { until, worked_off } = self.stored[self.flights.get(&of)?.stored].silence;
        (schedule.now < until).then(|| schedule.random.within(&(until..=worked_off)))
    }

    /// The length of what is at a path.
    pub(super) fn length_at(&self, host: HostId, path: &Path) -> Option<u64> {
        let stored = self.paths.get(&(host, path.to_owned()))?;
        Some(self.stored[*stored].medium.length())
    }

    pub(super) fn set_config(&mut self, change: impl FnOnce(&mut DiskConfig)) {
        let physical_block = self.config.physical_block;
        change(&mut self.config);
        assert_eq!(
            self.config.physical_block, physical_block,
            "the physical block is fixed"
        );
    }

    /// The alignment that direct I/O needs of a buffer's address and length.
    pub(super) fn memory_alignment(&self) -> u32 {
        self.config.memory_alignment
    }

    // Opening and closing.

    pub(super) fn open(
        &mut self,
        schedule: &mut Schedule,
        host: HostId,
        path: &Path,
        options: &OpenOptions,
    ) -> io::Result<(Handle, FileInfo)> {
        if options.direct == UseDirect::Always && !self.config.direct {
            return Err(failure(libc::EINVAL));
        }
        // There are no links here.
        if let Some(beneath) = &options.beneath
            && !path.starts_with(beneath)
        {
            return Err(failure(libc::EXDEV));
        }
        let existing = self.paths.get(&(host, path.to_owned())).copied();
        let (stored, created) = match (existing, options.create) {
            (Some(stored), _) => (stored, false),
            (None, Some(_)) if !options.write => return Err(failure(libc::EINVAL)),
            (None, Some(length)) => (self.store(host, path, FileKind::Regular, length), true),
            (None, None) => return Err(failure(libc::ENOENT)),
        };
        if options.write && self.is_open_for_writing(stored) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("{} is open for writing already", path.display()),
            ));
        }
        let direct = options.direct != UseDirect::Never && self.config.direct;
        let handle = schedule.new_handle();
        let open = OpenFile {
            host,
            stored,
            write: options.write,
            direct,
            writeback_failed: false,
        };
        let info = self.info(&open, created);
        self.open.insert(handle, open);
        Ok((handle, info))
    }

    fn is_open_for_writing(&self, stored: usize) -> bool {
        self.open
            .values()
            .any(|open| open.write && open.stored == stored)
    }

    fn info(&self, open: &OpenFile, created: bool) -> FileInfo {
        let config = &self.config;
        let stored = &self.stored[open.stored];
        let alignment = |bytes: u32| if open.direct { bytes } else { 1 };
        let is_device = stored.kind == FileKind::BlockDevice;
        let device = if is_device { 0 } else { open.host.0 as u64 + 1 };
        FileInfo {
            kind: stored.kind,
            length: stored.medium.length(),
            created,
            direct: open.direct,
            memory_alignment: alignment(config.memory_alignment),
            offset_alignment: alignment(config.offset_alignment),
            physical_block: config.physical_block,
            atomic_bytes: Some(config.physical_block),
            deallocate_granularity: if config.punch_hole {
                config.physical_block
            } else {
                0
            },
            volatile_cache: !is_device || config.volatile_cache,
            identity: (device, stored.number),
        }
    }

    pub(super) fn close(&mut self, handle: Handle) -> bool {
        self.open.remove(&handle).is_some()
    }

    fn opened(&self, handle: Handle) -> io::Result<&OpenFile> {
        self.open.get(&handle).ok_or_else(|| failure(libc::EBADF))
    }

    pub(super) fn length(&self, handle: Handle) -> io::Result<u64> {
        Ok(self.stored[self.opened(handle)?.stored].medium.length())
    }

    pub(super) fn set_length(&mut self, handle: Handle, length: u64) -> io::Result<()> {
        let open = self.opened(handle)?;
        let stored = open.stored;
        if !open.write || self.stored[stored].kind == FileKind::BlockDevice {
            return Err(failure(libc::EINVAL));
        }
        self.stored[stored].medium.set_length(length);
        Ok(())
    }

    /// Makes all that was written so far durable, and the length.
    pub(super) fn sync(&mut self, schedule: &mut Schedule, handle: Handle) -> io::Result<()> {
        let stored = self.opened(handle)?.stored;
        let mark = self.stored[stored].medium.mark();
        let fails = fails(schedule, &Work::Sync(mark));
        self.end_sync(schedule, handle, stored, mark, fails)
    }

    fn end_sync(
        &mut self,
        schedule: &mut Schedule,
        handle: Handle,
        stored: usize,
        mark: Mark,
        fails: bool,
    ) -> io::Result<()> {
        let medium = &mut self.stored[stored].medium;
        if fails {
            medium.doom_up_to(mark);
            self.inject(schedule, FaultKind::SyncError, stored, 0);
        }
        // One failure tells of both.
        if self.take_writeback_failure(handle) || fails {
            return Err(failure(libc::EIO));
        }
        self.stored[stored].medium.make_durable_up_to(mark);
        Ok(())
    }

    /// A write was not written back, and this open file has not reported it.
    fn take_writeback_failure(&mut self, handle: Handle) -> bool {
        let open = self.open.get_mut(&handle);
        open.is_some_and(|open| std::mem::take(&mut open.writeback_failed))
    }

    /// Decides whether a write that ended well is written back.
    fn write_back(&mut self, schedule: &mut Schedule, flight: &Flight) {
        let probability = schedule.faults.writeback_error_probability;
        if probability == 0.0 || !schedule.random.chance(probability) {
            return;
        }
        let (offset, length) = (flight.request.offset, flight.request.length);
        let medium = &mut self.stored[flight.stored].medium;
        medium.doom(flight.number, offset, length);
        self.open
            .values_mut()
            .filter(|open| open.stored == flight.stored)
            .for_each(|open| open.writeback_failed = true);
        self.inject(schedule, FaultKind::WritebackError, flight.stored, 0);
    }

    /// Records a fault of a file or device that is over after `duration`.
    fn inject(&self, schedule: &mut Schedule, kind: FaultKind, stored: usize, duration: u64) {
        let Stored { host, path, .. } = &self.stored[stored];
        let place = schedule.inject(kind, (*host, *host), Some(duration));
        schedule.injected[place].path = Some(path.clone());
    }

    // Operations.

    /// Starts an operation; `waiter` is woken when it is done.
    pub(super) fn start(
        &mut self,
        schedule: &mut Schedule,
        waiter: Waiter,
        file: Handle,
        mut request: Request,
        misaligned: bool,
    ) -> io::Result<()> {
        let open = self.opened(file)?;
        let (host, stored) = (open.host, open.stored);
        self.check(open, &request, misaligned)?;
        if let Work::Sync(mark) = &mut request.work {
            *mark = self.stored[stored].medium.mark();
        }
        let fails = fails(schedule, &request.work);
        let parts = split(schedule, &request, self.config.physical_block)
            .into_iter()
            // A write that fails may have been done all the same, or in part.
            .map(|part| (!fails || schedule.random.coin()).then_some(part))
            .collect();
        self.writes += 1;
        let flight = Flight {
            host,
            file,
            stored,
            number: self.writes,
            parts,
            begun: false,
            fails,
            error: None,
            done: None,
            request,
        };
        self.plan(schedule, waiter, &flight);
        let before = self.flights.insert(waiter, flight);
        assert!(before.is_none(), "an operation was started twice");
        Ok(())
    }

    /// Decides when a request takes effect and when it is done.
    fn plan(&self, schedule: &mut Schedule, waiter: Waiter, flight: &Flight) {
        let faults = schedule.faults.clone();
        let range = match flight.request.work {
            Work::Read => &faults.read_delay,
            Work::Write { .. } | Work::Allocate(_) => &faults.write_delay,
            Work::Sync(_) => &faults.sync_delay,
        };
        let mut delay = schedule.random.span(range);
        if schedule.random.chance(faults.disk_stall_probability) {
            delay += schedule.random.span(&faults.disk_stall);
            self.inject(schedule, FaultKind::DiskStall, flight.stored, delay);
        }
        for part in 0..flight.parts.len() {
            let effect = schedule.random.within(&(0..=delay));
            schedule.after(effect, Event::DiskEffect { of: waiter, part });
        }
        schedule.after(delay, Event::DiskDone(waiter));
    }

    fn check(&self, open: &OpenFile, request: &Request, misaligned: bool) -> io::Result<()> {
        let is_device = self.stored[open.stored].kind == FileKind::BlockDevice;
        let length = self.stored[open.stored].medium.length();
        let end = request
            .offset
            .checked_add(request.length)
            .filter(|end| i64::try_from(*end).is_ok())
            .ok_or_else(|| failure(libc::EINVAL))?;
        let alignment = u64::from(self.config.offset_alignment);
        let aligned = request.offset.is_multiple_of(alignment)
            && request.length.is_multiple_of(alignment)
            && !misaligned;
        let refuse = |number| Err(failure(number));
        match &request.work {
            Work::Read if open.direct && !aligned => refuse(libc::EINVAL),
            Work::Read => Ok(()),
            _ if !open.write => refuse(libc::EBADF),
            Work::Write { .. } if open.direct && !aligned => refuse(libc::EINVAL),
            Work::Write { .. } if is_device && end > length => refuse(libc::ENOSPC),
            Work::Allocate(_) if request.length == 0 => refuse(libc::EINVAL),
            Work::Allocate(_) if is_device && (!aligned || end > length) => refuse(libc::EINVAL),
            // Room that was not written is not counted.
            Work::Allocate(AllocateMode::Reserve) => refuse(libc::EOPNOTSUPP),
            Work::Allocate(AllocateMode::ZeroRange) if !self.config.zero_range => {
                refuse(libc::EOPNOTSUPP)
            }
            Work::Allocate(AllocateMode::PunchHole | AllocateMode::Discard)
                if !self.config.punch_hole =>
            {
                refuse(libc::EOPNOTSUPP)
            }
            Work::Write { .. } | Work::Sync(_) | Work::Allocate(_) => Ok(()),
        }
    }

    pub(super) fn on_effect(&mut self, schedule: &mut Schedule, waiter: Waiter, part: usize) {
        let Some(mut flight) = self.flights.remove(&waiter) else {
            return;
        };
        flight.begun = true;
        self.take_effect(schedule, &mut flight, part);
        self.flights.insert(waiter, flight);
    }

    fn take_effect(&mut self, schedule: &mut Schedule, flight: &mut Flight, part: usize) {
        let Some((at, length)) = flight.parts[part].take() else {
            return;
        };
        if flight.error.is_some() {
            return;
        }
        let range = at as usize..(at + length) as usize;
        let offset = flight.request.offset + at;
        let is_device = self.stored[flight.stored].kind == FileKind::BlockDevice;
        match &flight.request.work {
            Work::Read => {
                let medium = &self.stored[flight.stored].medium;
                medium.read(offset, &mut flight.request.data[range]);
            }
            Work::Sync(_) => {}
            Work::Write { .. } => {
                let fill = Fill::Bytes(&flight.request.data[range]);
                flight.error = self.change(flight.stored, flight.number, offset, length, fill);
            }
            Work::Allocate(mode) => {
                let fill = match mode {
                    AllocateMode::ZeroRange => Fill::Zeroes,
                    // A device may take a discard as a hint, and leave what was there.
                    AllocateMode::Discard if is_device && schedule.random.coin() => return,
                    AllocateMode::PunchHole | AllocateMode::Discard => Fill::Hole,
                    AllocateMode::Reserve => unreachable!("it is refused"),
                };
                let end = self.stored[flight.stored].medium.length();
                let length = length.min(end.saturating_sub(offset));
                flight.error = self.change(flight.stored, flight.number, offset, length, fill);
            }
        }
    }

    /// Changes a medium, unless its host's disk is full.
    fn change(
        &mut self,
        stored: usize,
        number: u64,
        offset: u64,
        length: u64,
        fill: Fill<'_>,
    ) -> Option<i32> {
        let is_file = self.stored[stored].kind == FileKind::Regular;
        if is_file && fill != Fill::Hole {
            let used = self.used(self.stored[stored].host);
            let needed = self.stored[stored].medium.needs(offset, length);
            if needed > 0 && used + needed > self.config.capacity {
                return Some(libc::ENOSPC);
            }
        }
        let medium = &mut self.stored[stored].medium;
        medium.change(number, offset, length, fill);
        if let Fill::Bytes(_) = fill {
            medium.grow(offset + length);
        }
        None
    }

    /// Bytes that the files of a host occupy.
    fn used(&self, host: HostId) -> u64 {
        self.stored
            .iter()
            .filter(|stored| stored.host == host && stored.kind == FileKind::Regular)
            .map(|stored| stored.medium.allocated())
            .sum()
    }

    pub(super) fn on_done(&mut self, schedule: &mut Schedule, waiter: Waiter) {
        let Some(mut flight) = self.flights.remove(&waiter) else {
            return;
        };
        let result = self.finish(schedule, &mut flight);
        flight.done = Some(result);
        self.flights.insert(waiter, flight);
        schedule.wake(waiter);
    }

    fn finish(&mut self, schedule: &mut Schedule, flight: &mut Flight) -> io::Result<u64> {
        (0..flight.parts.len()).for_each(|part| self.take_effect(schedule, flight, part));
        if let Some(number) = flight.error {
            return Err(failure(number));
        }
        let is_device = self.stored[flight.stored].kind == FileKind::BlockDevice;
        let writes_through = is_device && !self.config.volatile_cache;
        let (offset, length) = (flight.request.offset, flight.request.length);
        if let Work::Sync(mark) = flight.request.work {
            self.end_sync(schedule, flight.file, flight.stored, mark, flight.fails)?;
        } else if flight.fails {
            let kind = match flight.request.work {
                Work::Read => FaultKind::ReadError,
                _ => FaultKind::WriteError,
            };
            self.inject(schedule, kind, flight.stored, 0);
            return Err(failure(libc::EIO));
        }
        let durable = match flight.request.work {
            Work::Write { durable: true } if self.take_writeback_failure(flight.file) => {
                return Err(failure(libc::EIO));
            }
            Work::Write { durable } => durable || writes_through,
            Work::Allocate(_) => writes_through,
            Work::Read | Work::Sync(_) => false,
        };
        if let (Work::Write { .. }, false) = (&flight.request.work, durable) {
            self.write_back(schedule, flight);
        }
        let medium = &mut self.stored[flight.stored].medium;
        if durable {
            medium.make_durable(flight.number, offset, length);
        }
        Ok(match flight.request.work {
            Work::Read => length.min(medium.length().saturating_sub(offset)),
            Work::Write { .. } => length,
            Work::Sync(_) | Work::Allocate(_) => 0,
        })
    }

    /// The result of an operation that is done, with its data.
    pub(super) fn take_done(&mut self, waiter: Waiter) -> Option<(io::Result<u64>, Vec<u8>)> {
        self.flights.get(&waiter)?.done.as_ref()?;
        let flight = self.flights.remove(&waiter)?;
        Some((flight.done?, flight.request.data))
    }

    /// Tries to end an operation that has not begun; whether it has thereby ended, with no effect.
    pub(super) fn cancel(&mut self, schedule: &mut Schedule, waiter: Waiter) -> bool {
        let waits = self
            .flights
            .get(&waiter)
            .is_some_and(|flight| !flight.begun && flight.done.is_none());
        let ended = waits && schedule.random.coin();
        if ended {
            self.flights.remove(&waiter);
        }
        ended
    }

    /// Ends an operation at once, as it would have ended later.
    pub(super) fn hasten(&mut self, schedule: &mut Schedule, waiter: Waiter) {
        if self
            .flights
            .get(&waiter)
            .is_some_and(|flight| flight.done.is_none())
        {
            self.on_done(schedule, waiter);
        }
    }

    // Crashes.

    /// The processes of a host are gone, and their files closed. What was in flight was done, in part, or not at all.
    pub(super) fn kill(&mut self, schedule: &mut Schedule, host: HostId) -> Vec<Handle> {
        let gone: Vec<Waiter> = self
            .flights
            .iter()
            .filter(|(_, flight)| flight.host == host)
            .map(|(waiter, _)| *waiter)
            .collect();
        for waiter in gone {
            let mut flight = self.flights.remove(&waiter).expect("listed above");
            for part in 0..flight.parts.len() {
                if schedule.random.coin() {
                    self.take_effect(schedule, &mut flight, part);
                }
            }
        }
        let handles: BTreeSet<Handle> = self
            .open
            .iter()
            .filter(|(_, open)| open.host == host)
            .map(|(handle, _)| *handle)
            .collect();
        self.open.retain(|_, open| open.host != host);
        handles.into_iter().collect()
    }

    pub(super) fn lose_power(&mut self, schedule: &mut Schedule, host: HostId) {
        for stored in self.stored.iter_mut().filter(|stored| stored.host == host) {
            stored.medium.lose_power(&mut schedule.random);
        }
    }
}

/// The parts in which a request takes effect: of more than one block, one or two.
fn split(schedule: &mut Schedule, request: &Request, block: u32) -> Vec<(u64, u64)> {
    let block = u64::from(block);
    let first = block - request.offset % block;
    if request.length <= first || schedule.random.coin() {
        return vec![(0, request.length)];
    }
    let boundaries = (request.length - first).div_ceil(block);
    let middle = first + schedule.random.below(boundaries) * block;
    vec![(0, middle), (middle, request.length - middle)]
}

/// Decides whether a request fails.
fn fails(schedule: &mut Schedule, work: &Work) -> bool {
    let faults = &schedule.faults;
    let probability = match work {
        Work::Read => faults.read_error_probability,
        Work::Write { .. } | Work::Allocate(_) => faults.write_error_probability,
        Work::Sync(_) => faults.sync_error_probability,
    };
    schedule.random.chance(probability)
}
