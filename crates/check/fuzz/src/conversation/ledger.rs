//! What was sent, what reached the volumes, what they hold and held: by it everything that the target does is judged.
//!
//! Commands are those that stand in the bytes that were sent, as they were sent: after a damage too. What a volume is asked
//! to change must be what one of them says, while it is outstanding; what is read must have been there meanwhile.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_nvme::Sqe;
use weir_nvme::command::{CopyCommand, NvmCommand, copy_ranges, dataset_management_ranges};

/// Findings that are kept; one is enough to fail.
const FINDINGS_MAX: usize = 8;

/// The number of a connection, in the order in which they are made.
pub(super) type PeerId = usize;
/// Index of a command in the ledger.
pub(super) type CommandIndex = usize;

/// Which command a block is written by, as far as its bytes tell.
#[derive(Debug, Clone, Copy)]
pub(super) struct Author {
    command: CommandIndex,
    /// A command of another connection says the same: it may be that one.
    ambiguous: bool,
}

/// Data that was sent for a command.
#[derive(Debug, Clone, Default)]
pub(super) struct Transfer {
    pub(super) bytes: Vec<u8>,
    /// Its digest says so.
    pub(super) damaged: bool,
}

/// A command that was sent.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) peer: PeerId,
    pub(super) sqe: Sqe,
    pub(super) in_capsule: Option<Transfer>,
    pub(super) sent: u64,
    pub(super) answered: Option<u64>,
    /// Another one was outstanding under its CID.
    pub(super) ambiguous: bool,
    /// Its blocks that a volume was asked to write, and has written.
    submitted: Vec<bool>,
    written: Vec<bool>,
}

/// A connection as far as it matters to what volumes are asked.
#[derive(Debug, Default)]
pub(super) struct PeerRecord {
    /// Which host's it is.
    pub(super) host: usize,
    /// A Connect of an I/O queue was sent on it.
    pub(super) io: bool,
    /// Who it is a connection of may not be what was meant: its bytes were damaged.
    pub(super) soiled: bool,
    /// It has ended, for one side at least.
    pub(super) ended: bool,
    /// When the target was seen to have ended it.
    ended_by_target: Option<u64>,
    /// When the same host got an I/O queue after the target had ended it: what that host does from then on comes after it.
    stale: Option<u64>,
}

/// What a block held, since when.
#[derive(Debug, Clone, Copy)]
struct Version {
    sum: u32,
    since: u64,
}

/// What one namespace holds and held.
struct Space {
    bytes: Vec<u8>,
    versions: Vec<Vec<Version>>,
    writable: bool,
}

/// See the module.
pub(super) struct Ledger {
    clock: u64,
    block_bytes: usize,
    spaces: Vec<Space>,
    pub(super) commands: Vec<Command>,
    /// Data of H2CData, by connection and CID.
    transfers: HashMap<(PeerId, u16), Vec<Transfer>>,
    pub(super) peers: Vec<PeerRecord>,
    /// Set where a guard keeps what a lost connection left apart from what its host does next.
    guarded: bool,
    /// When the latest command was sent of those with which a host read or wrote a block: by host, namespace and block.
    touched: HashMap<(usize, u32, u64), u64>,
    findings: Vec<String>,
    /// A request was made to fail, or cancelled.
    pub(super) failures_made: bool,
    /// Requests that volumes have.
    pub(super) in_flight: usize,
}

/// A ledger that volumes on reactors share with the hosts. Nobody ever waits for it.
#[derive(Clone)]
pub(super) struct SharedLedger(Arc<Mutex<Ledger>>);

impl SharedLedger {
    pub(super) fn new(block_bytes: usize, spaces: &[(u64, bool)], guarded: bool) -> Self {
        let zero = crc32c::crc32c(&vec![0; block_bytes]);
        let first = Version {
            sum: zero,
            since: 0,
        };
        let spaces = spaces.iter().map(|&(blocks, writable)| Space {
            bytes: vec![0; blocks as usize * block_bytes],
            versions: vec![vec![first]; blocks as usize],
            writable,
        });
        SharedLedger(Arc::new(Mutex::new(Ledger {
            clock: 1,
            block_bytes,
            spaces: spaces.collect(),
            commands: Vec::new(),
            transfers: HashMap::new(),
            peers: Vec::new(),
            guarded,
            touched: HashMap::new(),
            findings: Vec::new(),
            failures_made: false,
            in_flight: 0,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    /// A rule was broken.
    pub(super) fn finding(&mut self, text: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(text);
        }
    }

    /// What was found, if anything was.
    pub(super) fn report(&self) -> Option<String> {
        if self.findings.is_empty() {
            return None;
        }
        let mut text = String::new();
        for finding in &self.findings {
            let _ = writeln!(text, "- {finding}");
        }
        Some(text)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub(super) fn add_peer(&mut self) -> PeerId {
        self.peers.push(PeerRecord::default());
        self.peers.len() - 1
    }

    /// The target was seen to have ended a connection.
    pub(super) fn ended(&mut self, peer: PeerId) {
        let now = self.tick();
        let record = &mut self.peers[peer];
        record.ended = true;
        record.ended_by_target.get_or_insert(now);
    }

    /// An I/O queue of `host` was granted, whose Connect was sent at `sent`: what the target ended before does not come between what
    /// the host does next.
    pub(super) fn queue_granted(&mut self, host: usize, sent: u64) {
        let now = self.tick();
        for peer in &mut self.peers {
            let before = peer.ended_by_target.is_some_and(|ended| ended < sent);
            if peer.host == host && before && !peer.soiled {
                peer.stale.get_or_insert(now);
            }
        }
    }

    /// A command was sent.
    pub(super) fn sent(&mut self, peer: PeerId, sqe: Sqe) -> CommandIndex {
        let sent = self.tick();
        self.commands.push(Command {
            peer,
            sqe,
            in_capsule: None,
            sent,
            answered: None,
            ambiguous: false,
            submitted: Vec::new(),
            written: Vec::new(),
        });
        self.commands.len() - 1
    }

    /// A PDU of H2CData was sent. One that does not follow on begins anew.
    pub(super) fn sent_data(
        &mut self,
        peer: PeerId,
        cid: u16,
        offset: u32,
        bytes: &[u8],
        good: bool,
    ) {
        let transfers = self.transfers.entry((peer, cid)).or_default();
        let follows = |transfer: &&mut Transfer| transfer.bytes.len() == offset as usize;
        match transfers.iter_mut().rev().find(follows) {
            Some(transfer) if offset > 0 => {
                transfer.bytes.extend_from_slice(bytes);
                transfer.damaged |= !good;
            }
            _ if offset == 0 => transfers.push(Transfer {
                bytes: bytes.to_vec(),
                damaged: !good,
            }),
            _ => {}
        }
    }

    /// A command was answered: `done` with success, beyond doubt.
    pub(super) fn answered(&mut self, index: CommandIndex, done: bool) {
        let now = self.tick();
        self.commands[index].answered = Some(now);
        let command = &self.commands[index];
        let peer = &self.peers[command.peer];
        if !done || !peer.io || peer.soiled || command.sqe.is_fabrics() {
            return;
        }
        let (lba, blocks) = match NvmCommand::parse(&command.sqe) {
            Ok(NvmCommand::Read(blocks) | NvmCommand::Write(blocks)) => (blocks.lba, blocks.blocks),
            Ok(NvmCommand::WriteZeroes(zeroes)) => (zeroes.lba, zeroes.blocks),
            _ => return,
        };
        for block in lba..lba.saturating_add(u64::from(blocks)) {
            let key = (peer.host, command.sqe.nsid, block);
            let touched = self.touched.entry(key).or_default();
            *touched = command.sent.max(*touched);
        }
    }

    /// Returns whether the host of a connection that was lost has read or written this block since over another, so that nothing of that
    /// connection may change it any more.
    fn is_over(&self, peer: PeerId, nsid: u32, block: u64) -> bool {
        let record = &self.peers[peer];
        let touched = self.touched.get(&(record.host, nsid, block));
        let later = |stale| touched.is_some_and(|&sent| sent > stale);
        self.guarded && record.stale.is_some_and(later)
    }

    fn data_of<'a>(&'a self, command: &'a Command) -> impl Iterator<Item = &'a Transfer> {
        let later = self.transfers.get(&(command.peer, command.sqe.cid));
        let later = later.into_iter().flatten();
        command.in_capsule.iter().chain(later)
    }

    /// Commands of I/O queues on a namespace that may still take effect.
    fn candidates(&self, nsid: u32) -> impl Iterator<Item = (CommandIndex, &Command)> {
        self.commands
            .iter()
            .enumerate()
            .filter(move |(_, command)| {
                let peer = &self.peers[command.peer];
                let open = command.answered.is_none() || command.ambiguous || peer.ended;
                peer.io && open && command.sqe.nsid == nsid && !command.sqe.is_fabrics()
            })
    }

    /// Which command says that this block is to be written like this.
    fn author(&self, nsid: u32, lba: u64, bytes: &[u8]) -> Option<Author> {
        let size = self.block_bytes;
        let says = |command: &Command| match NvmCommand::parse(&command.sqe) {
            Ok(NvmCommand::Write(write)) => {
                let Some(block) = within(lba, write.lba, u64::from(write.blocks)) else {
                    return false;
                };
                let taken = command.submitted.get(block).copied().unwrap_or(false);
                let range = block * size..(block + 1) * size;
                let is_it = |transfer: &Transfer| {
                    !transfer.damaged && transfer.bytes.get(range.clone()) == Some(bytes)
                };
                !taken && self.data_of(command).any(is_it)
            }
            Ok(NvmCommand::WriteZeroes(zeroes)) => {
                within(lba, zeroes.lba, u64::from(zeroes.blocks)).is_some()
                    && bytes.iter().all(|&byte| byte == 0)
            }
            Ok(NvmCommand::Copy(copy)) => self.copies(command, &copy, nsid, lba, bytes),
            _ => false,
        };
        let mut authors = self.candidates(nsid).filter(|(_, command)| says(command));
        let (command, Command { peer, .. }) = authors.next()?;
        let ambiguous = authors.any(|(_, other)| other.peer != *peer);
        Some(Author { command, ambiguous })
    }

    /// Whether a Copy writes `bytes` to this block: its source held them once.
    fn copies(
        &self,
        command: &Command,
        copy: &CopyCommand,
        nsid: u32,
        lba: u64,
        bytes: &[u8],
    ) -> bool {
        let sum = crc32c::crc32c(bytes);
        let space = &self.spaces[nsid as usize - 1];
        self.data_of(command).any(|transfer| {
            let Ok(ranges) = copy_ranges(&transfer.bytes, copy.ranges) else {
                return false;
            };
            let mut destination = copy.destination_lba;
            for range in ranges {
                let blocks = u64::from(range.blocks());
                if let Some(block) = within(lba, destination, blocks) {
                    let source = range.lba.checked_add(block as u64);
                    let held = source.and_then(|source| space.versions.get(source as usize));
                    return held.is_some_and(|held| held.iter().any(|version| version.sum == sum));
                }
                destination = destination.saturating_add(blocks);
            }
            false
        })
    }

    /// A volume was asked to write: by which command, for each block.
    pub(super) fn write_submitted(
        &mut self,
        nsid: u32,
        lba: u64,
        bytes: &[u8],
    ) -> Vec<Option<Author>> {
        self.check_range(nsid, lba, (bytes.len() / self.block_bytes) as u64, true);
        let mut authors = Vec::new();
        for (block, bytes) in (lba..).zip(bytes.chunks(self.block_bytes)) {
            let author = self.author(nsid, block, bytes);
            match author {
                Some(author) => self.mark(author.command, block, false),
                None => self.finding(format!(
                    "namespace {nsid}: block {block} is to be written, and no outstanding command says so (it begins {:02x?})",
                    &bytes[..16]
                )),
            }
            authors.push(author);
        }
        authors
    }

    fn mark(&mut self, index: CommandIndex, lba: u64, written: bool) {
        let command = &mut self.commands[index];
        if let Ok(NvmCommand::Write(write)) = NvmCommand::parse(&command.sqe)
            && let Some(block) = within(lba, write.lba, u64::from(write.blocks))
        {
            let flags = match written {
                true => &mut command.written,
                false => &mut command.submitted,
            };
            if flags.len() <= block {
                flags.resize(block + 1, false);
            }
            flags[block] = true;
        }
    }

    /// A volume was asked to zero or deallocate a range.
    pub(super) fn zero_submitted(&mut self, nsid: u32, lba: u64, blocks: u64, deallocate: bool) {
        self.check_range(nsid, lba, blocks, true);
        for block in lba..lba.saturating_add(blocks) {
            let says = |command: &Command| match NvmCommand::parse(&command.sqe) {
                Ok(NvmCommand::WriteZeroes(zeroes)) => {
                    (!deallocate || zeroes.deallocate)
                        && within(block, zeroes.lba, u64::from(zeroes.blocks)).is_some()
                }
                Ok(NvmCommand::DatasetManagement(management)) => {
                    let named = |transfer: &Transfer| {
                        dataset_management_ranges(&transfer.bytes, management.ranges).is_ok_and(
                            |mut ranges| {
                                ranges.any(|range| {
                                    within(block, range.lba, u64::from(range.blocks)).is_some()
                                })
                            },
                        )
                    };
                    deallocate && management.deallocate && self.data_of(command).any(named)
                }
                _ => false,
            };
            if !self.candidates(nsid).any(|(_, command)| says(command)) {
                return self.finding(format!(
                    "namespace {nsid}: block {block} is to be zeroed or deallocated, and no outstanding command says so"
                ));
            }
        }
    }

    /// A volume was asked for a range.
    pub(super) fn check_range(&mut self, nsid: u32, lba: u64, blocks: u64, changes: bool) {
        let space = &self.spaces[nsid as usize - 1];
        let held = space.versions.len() as u64;
        let writable = space.writable;
        if lba.checked_add(blocks).is_none_or(|end| end > held) || blocks == 0 {
            self.finding(format!(
                "namespace {nsid}: a volume of {held} blocks is asked for {blocks} from {lba}"
            ));
        }
        if changes && !writable {
            self.finding(format!(
                "namespace {nsid} is read-only, and is to be changed"
            ));
        }
    }

    /// A write took effect.
    pub(super) fn write(&mut self, nsid: u32, lba: u64, bytes: &[u8], authors: &[Option<Author>]) {
        let size = self.block_bytes;
        for (index, (block, bytes)) in (lba..).zip(bytes.chunks(size)).enumerate() {
            if let Some(author) = authors.get(index).copied().flatten() {
                let peer = self.commands[author.command].peer;
                if self.is_over(peer, nsid, block) && !author.ambiguous {
                    self.finding(format!(
                        "namespace {nsid}: block {block} is written by a connection that was lost, after the same host read or wrote it over another"
                    ));
                }
                self.mark(author.command, block, true);
            }
            let since = self.tick();
            let space = &mut self.spaces[nsid as usize - 1];
            let at = block as usize * size;
            let Some(place) = space.bytes.get_mut(at..at + size) else {
                return;
            };
            place.copy_from_slice(bytes);
            let sum = crc32c::crc32c(bytes);
            space.versions[block as usize].push(Version { sum, since });
        }
    }

    /// What a range holds now.
    pub(super) fn read(&self, nsid: u32, lba: u64, blocks: u64) -> &[u8] {
        let (from, length) = (
            lba as usize * self.block_bytes,
            blocks as usize * self.block_bytes,
        );
        &self.spaces[nsid as usize - 1].bytes[from..from + length]
    }

    /// Data that a successful Read yielded, or a successful Compare compared with: each block must have held it at some time
    /// since the command was sent.
    pub(super) fn check_seen(&mut self, index: CommandIndex, lba: u64, blocks: u32, data: &[u8]) {
        let command = &self.commands[index];
        let (nsid, sent, what) = (command.sqe.nsid, command.sent, command.sqe.opcode);
        let size = self.block_bytes;
        if data.len() != blocks as usize * size {
            let length = data.len();
            return self.finding(format!(
                "opcode {what:#04x} on {blocks} blocks of {size} bytes succeeded with {length} bytes"
            ));
        }
        for (block, bytes) in (lba..).zip(data.chunks(size)) {
            let held = self
                .spaces
                .get(nsid.wrapping_sub(1) as usize)
                .and_then(|space| space.versions.get(block as usize));
            let Some(held) = held else {
                return self.finding(format!(
                    "opcode {what:#04x} succeeded on block {block} of namespace {nsid}, which there is not"
                ));
            };
            let sum = crc32c::crc32c(bytes);
            let fits = |(at, version): (usize, &Version)| {
                let ended = held.get(at + 1).map(|next| next.since);
                version.sum == sum && ended.is_none_or(|ended| ended > sent)
            };
            if !held.iter().enumerate().any(fits) {
                return self.finding(format!(
                    "opcode {what:#04x} saw in block {block} of namespace {nsid} what it never held since the command was sent (it begins {:02x?})",
                    &bytes[..16]
                ));
            }
        }
    }

    /// A Write succeeded: all its blocks must have been written.
    pub(super) fn check_written(&mut self, index: CommandIndex, blocks: u32) {
        let command = &self.commands[index];
        if command.ambiguous {
            return;
        }
        let written = command.written.iter().filter(|written| **written).count();
        if written != blocks as usize {
            let cid = command.sqe.cid;
            self.finding(format!(
                "a Write of {blocks} blocks (CID {cid}) was acknowledged with {written} of them written"
            ));
        }
    }

    /// The data that was compared by a command, as it was sent.
    pub(super) fn compared(&self, index: CommandIndex) -> Option<Vec<u8>> {
        let command = &self.commands[index];
        let mut transfers = self.data_of(command).filter(|transfer| !transfer.damaged);
        let (only, more) = (transfers.next(), transfers.next());
        match more {
            Some(_) => None,
            None => only.map(|transfer| transfer.bytes.clone()),
        }
    }
}

/// The place of a block in a range.
fn within(lba: u64, start: u64, blocks: u64) -> Option<usize> {
    let place = lba.checked_sub(start)?;
    (place < blocks).then_some(place as usize)
}
