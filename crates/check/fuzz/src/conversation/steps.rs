//! What each step of a program does.

use std::time::Duration;

use weir_block::VolumeError;
use weir_nvme::command::{
    Abort, AdminCommand, Blocks, Connect, ConnectAttributes, ConnectData, CopyCommand, CopyRange,
    DatasetManagement, DatasetManagementRange, FabricsCommand, GetFeatures, GetLogPage, Identify,
    NvmCommand, PropertyGet, PropertySet, PropertySize, SetFeatures, Verify, WriteZeroes,
};
use weir_nvme::feature::FeatureId;
use weir_nvme::identify::Cns;
use weir_nvme::log::LogId;
use weir_nvme::property::{Configuration, Property};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::{DataTransfer, Fuse};
use weir_nvme::tcp::{
    DigestOptions, FatalErrorStatus, H2cData, InitializeRequest, Side, TERMINATION_SIZE_MAX,
    Termination, encode_termination,
};
use weir_nvme::{Nqn, Sqe};

use super::medium::{BLOCKS, Fate};
use super::peer::Peer;
use super::program::{Kind, PEERS, Step};
use super::{Run, SUBSYSTEM, WITNESS, Wishes, connect_data, enabled, nqn};
use crate::link::Farewell;

/// What time passes after a step that says nothing of it.
const USUAL_PAUSE: Duration = Duration::from_micros(300);
/// Hosts that programs speak for.
const HOSTS: u8 = 2;
/// Commands of a burst at most.
const BURST_MAX: u8 = 80;

/// Times that may pass.
const PAUSES: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_micros(50),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(200),
    Duration::from_secs(2),
    Duration::from_secs(12),
    Duration::from_secs(130),
];
/// How late volumes answer.
const DELAYS: [Duration; 8] = [
    Duration::ZERO,
    Duration::from_micros(10),
    Duration::from_micros(400),
    Duration::from_millis(3),
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(11),
    Duration::from_secs(29),
];

/// Data that tells whose it is: no two commands, and no two blocks of one, have the same.
pub(super) fn pattern(serial: u64, length: usize) -> Vec<u8> {
    let mut data = Vec::with_capacity(length + 8);
    let mut word = serial.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while data.len() < length {
        word = word
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        data.extend(word.to_le_bytes());
    }
    data.truncate(length);
    data
}

/// A namespace, there or not.
fn namespace(byte: u8) -> u32 {
    match byte % 16 {
        0..=9 => 1,
        10 | 11 => 2,
        12 => 0,
        13 => 4,
        14 => u32::MAX,
        _ => u32::MAX - 1,
    }
}

/// A range of blocks, mostly within a namespace.
fn range(lba: u8, blocks: u8) -> (u64, u32) {
    let blocks = match blocks {
        0..=200 => u32::from(blocks % 24) + 1,
        201..=240 => u32::from(blocks) - 200 + 24,
        241..=250 => BLOCKS as u32,
        _ => 0x1_0000,
    };
    let lba = match lba {
        255 => u64::MAX,
        254 => BLOCKS,
        253 => u64::from(u32::MAX),
        _ => u64::from(lba),
    };
    (lba, blocks)
}

impl Run {
    pub(super) async fn step(&mut self, step: &Step) {
        self.carry_out(step).await;
        if !step.hold {
            self.flush(step.peer, usize::MAX);
            self.pass(USUAL_PAUSE).await;
        }
    }

    fn flush(&mut self, place: usize, piece: usize) {
        if let Some(peer) = &mut self.peers[place] {
            let bytes: usize = peer.staged.iter().map(Vec::len).sum();
            if bytes > self.bytes_left {
                // What is said after that is not what was meant to be said.
                peer.staged.clear();
                peer.soil();
                return;
            }
            self.bytes_left -= bytes;
            peer.flush(piece);
        }
    }

    async fn carry_out(&mut self, step: &Step) {
        match step.kind {
            Kind::Up => self.step_up(step).await,
            Kind::Open => self.step_open(step).await,
            Kind::Wait => self.pass(PAUSES[usize::from(step.bytes[0]) % 8]).await,
            Kind::Fate => self.step_fate(step),
            Kind::Owner => self.step_owner(step).await,
            Kind::Flush => self.step_flush(step).await,
            Kind::Abort => self.step_abort(step),
            Kind::End => self.step_end(step),
            _ => {}
        }
        self.serial += 1;
        let (serial, block) = (self.serial, self.head.block_bytes());
        let guarded = !self.hidden;
        let Some(peer) = &mut self.peers[step.peer] else {
            return;
        };
        let mut at = Speaker {
            peer,
            block,
            serial,
            visible: guarded,
            mdts: self.head.mdts,
        };
        match step.kind {
            Kind::Initialize => at.initialize(step),
            Kind::Connect => {
                let host = usize::from(step.bytes[4] % HOSTS);
                let known = self.controllers.get(&host).copied().unwrap_or(1);
                at.connect(step, host, known);
            }
            Kind::Property => {
                if at.property(step)
                    && let Some(granted) = at.peer.granted
                {
                    self.disturbed.insert(granted.controller);
                }
            }
            Kind::Admin => at.admin(step),
            Kind::Read => at.read(step),
            Kind::Write => at.write(step),
            Kind::Nvm => at.nvm(step),
            Kind::Fused => at.fused(step),
            Kind::Data => at.data(step),
            Kind::WrongData => at.wrong_data(step),
            Kind::Entry => at.entry(step),
            Kind::Pdu => at.pdu(step),
            Kind::Damage => at.damage(step),
            Kind::Pause => at.peer.pause(step.bytes[0] & 1 == 0),
            Kind::Burst => at.burst(step),
            _ => {}
        }
    }

    async fn step_up(&mut self, step: &Step) {
        let [queue, digests, size, flags, r2ts, host] = step.bytes;
        let request = InitializeRequest {
            alignment: digests >> 2 & 31,
            maximum_r2t_zero_based: u32::from(r2ts & 3),
            ..InitializeRequest::new(DigestOptions(digests & 3))
        };
        let wishes = Wishes {
            host: usize::from(host % HOSTS),
            qid: u16::from(queue % 4),
            sqsize: [31, 1, 3, 7][usize::from(size % 4)],
            request,
            flow_control_off: flags & 1 == 0,
            keep_alive_ms: if flags & 0x30 == 0x30 { 5000 } else { 0 },
        };
        self.bring_up(step.peer, &wishes).await;
    }

    async fn step_open(&mut self, step: &Step) {
        self.forget(step.peer, Farewell::Close);
        let host = usize::from(step.bytes[0] % HOSTS);
        self.peers[step.peer] = self.open(host).await;
    }

    fn step_fate(&mut self, step: &Step) {
        let [delay, result, times, done, flags, _] = step.bytes;
        let result = match result % 16 {
            0 => Err(VolumeError::OutOfRange),
            1 => Err(VolumeError::ReadOnly),
            2 => Err(VolumeError::Unsupported),
            3 => Err(VolumeError::Invalid),
            4 => Err(VolumeError::NoSpace),
            5 => Err(VolumeError::Medium),
            6 => Err(VolumeError::Lost),
            7 => Err(VolumeError::TimedOut),
            8 => Err(VolumeError::Cancelled),
            9 => Err(VolumeError::Busy),
            _ => Ok(()),
        };
        let fate = Fate {
            delay: DELAYS[usize::from(delay) % 8],
            result,
            done,
            cancellable: flags & 1 != 0,
        };
        self.fates.push(fate, usize::from(times % 16) + 1);
    }

    async fn step_owner(&mut self, step: &Step) {
        match step.bytes[0] % 4 {
            0 => {
                self.hidden = !self.hidden;
                for peer in self.peers.iter_mut().flatten() {
                    peer.sound.clear();
                }
                self.apply().await;
            }
            1 => self.apply().await,
            _ => {
                let connections = self.target.connections().await;
                let witness = super::host_nqn(WITNESS);
                let mut others = connections.iter().filter(|connection| {
                    let association = connection.association.as_ref();
                    association.is_none_or(|association| association.host_nqn != witness)
                });
                let which = usize::from(step.bytes[1]) % PEERS;
                if let Some(connection) = others.nth(which) {
                    // Which of the peers it is is not known here.
                    for peer in self.peers.iter_mut().flatten() {
                        peer.may_end = true;
                    }
                    // It may have ended meanwhile.
                    let _ = self.target.disconnect(connection.id).await;
                }
            }
        }
    }

    /// Sends what is staged in pieces, with time in between.
    async fn step_flush(&mut self, step: &Step) {
        let piece = match step.bytes[0] % 8 {
            0 => 1,
            1 => 7,
            2 => 8,
            3 => 72,
            4 => 128,
            5 => 1000,
            6 => 4096,
            _ => usize::from(step.bytes[1]) + 1,
        };
        self.flush(step.peer, piece);
        self.pass(PAUSES[usize::from(step.bytes[2]) % 4]).await;
    }

    fn step_abort(&mut self, step: &Step) {
        let [of, which, how, ..] = step.bytes;
        let of = usize::from(of) % PEERS;
        let (mut cids, qid) = match &self.peers[of] {
            Some(peer) => (
                peer.outstanding_cids(),
                peer.granted.map_or(0, |granted| granted.qid),
            ),
            None => (Vec::new(), 0),
        };
        if cids.is_empty() || how & 7 == 7 {
            cids = vec![step.word(3)];
        }
        let abort = AdminCommand::Abort(Abort {
            sqid: if how & 0x38 == 0x38 { 3 } else { qid },
            cid: cids[usize::from(which) % cids.len()],
        });
        if let Some(peer) = &mut self.peers[of] {
            peer.sound.clear();
        }
        if let Some(peer) = &mut self.peers[step.peer] {
            peer.stage_command(abort.sqe(0, SglDescriptor::NONE), None, false, 0);
        }
    }

    fn step_end(&mut self, step: &Step) {
        match step.bytes[0] % 5 {
            0 => self.forget(step.peer, Farewell::Close),
            1 => self.forget(step.peer, Farewell::Reset),
            2 => {
                self.flush(step.peer, usize::MAX);
                if let Some(peer) = &mut self.peers[step.peer] {
                    peer.may_end = true;
                    peer.link.end(Farewell::Finish);
                }
            }
            3 => {
                if let Some(peer) = &mut self.peers[step.peer] {
                    let mut buffer = [0; TERMINATION_SIZE_MAX];
                    let reason = Termination {
                        status: FatalErrorStatus::from_value(u16::from(step.bytes[1])),
                        information: u32::from(step.bytes[2]),
                    };
                    let header = [step.bytes[3]; 24];
                    let length = encode_termination(Side::Host, &reason, &header, &mut buffer);
                    peer.stage(buffer[..length].to_vec());
                    peer.may_end = true;
                }
            }
            _ => {
                if let Some(peer) = &mut self.peers[step.peer] {
                    let disconnect = FabricsCommand::Disconnect { record_format: 0 };
                    let sqe = disconnect.sqe(0, SglDescriptor::NONE);
                    peer.stage_command(sqe, None, false, 0);
                }
            }
        }
    }
}

/// A peer that says something.
struct Speaker<'a> {
    peer: &'a mut Peer,
    block: usize,
    serial: u64,
    /// The first namespace is there.
    visible: bool,
    mdts: u32,
}

impl Speaker<'_> {
    fn initialize(&mut self, step: &Step) {
        let [digests, alignment, version, r2ts, ..] = step.bytes;
        let request = InitializeRequest {
            format_version: u16::from(version.saturating_sub(250)),
            alignment: alignment & 63,
            digests: DigestOptions(digests),
            maximum_r2t_zero_based: if r2ts == 255 {
                u32::MAX
            } else {
                u32::from(r2ts & 7)
            },
        };
        self.peer.stage_request(&request);
    }

    fn connect(&mut self, step: &Step, host: usize, known: u16) {
        let [queue, size, how, kato, ..] = step.bytes;
        let controller = match how & 7 {
            0..=4 if queue % 6 == 0 => ConnectData::ANY_CONTROLLER,
            0..=4 => known,
            5 => ConnectData::ANY_STATIC_CONTROLLER,
            6 => 0,
            _ => known.wrapping_add(1),
        };
        let subsystem = match how >> 3 & 3 {
            0 | 1 => nqn(SUBSYSTEM),
            2 => Nqn::discovery(),
            _ => nqn("nqn.2024-01.org.weir:none"),
        };
        let mut data = connect_data(host, controller, &subsystem);
        match how >> 5 {
            5 => data.host_nqn = [b'x'; 256],
            6 => data.subsystem_nqn = [0; 256],
            7 => data.host_id.0[3] ^= 1,
            _ => {}
        }
        if how >> 5 >= 5 {
            self.peer.soil();
        }
        let connect = Connect {
            record_format: u16::from(kato == 9),
            qid: [0, 1, 2, 3, 4, 9][usize::from(queue % 6)],
            sqsize: [31, 1, 0, 7, 32, 3][usize::from(size % 6)],
            attributes: ConnectAttributes(step.bytes[5]),
            keep_alive_timeout_ms: match kato {
                200..=219 => 1,
                220..=239 => 3000,
                240 => u32::MAX,
                _ => 0,
            },
        };
        let sqe = FabricsCommand::Connect(connect).sqe(0, SglDescriptor::NONE);
        let data = data.encode().to_vec();
        // One whose controller is another than is thought may end with that.
        self.peer.may_end |= host != self.peer.host || controller != known;
        self.peer.stage_command(sqe, Some(data), size < 128, 0);
    }

    /// Whether the controller may end its queues.
    fn property(&mut self, step: &Step) -> bool {
        let [what, offset, value, size, ..] = step.bytes;
        let size = if size & 1 == 0 {
            PropertySize::FourBytes
        } else {
            PropertySize::EightBytes
        };
        let offset = match offset % 6 {
            0 => Property::Configuration.value(),
            1 => Property::Status.value(),
            2 => Property::Capabilities.value(),
            3 => Property::Version.value(),
            4 => u32::from(step.word(4)),
            _ => Property::ReadyTimeouts.value(),
        };
        let command = if what & 1 == 0 {
            FabricsCommand::PropertyGet(PropertyGet { size, offset })
        } else {
            let value = match value % 6 {
                0 => enabled().0,
                1 => 0,
                2 => Configuration::default().0 | 1 << 14,
                3 => enabled().0 | 1 << 14,
                4 => enabled().0 | 2 << 14,
                _ => u32::from(step.word(4)) << 8 | u32::from(value),
            };
            FabricsCommand::PropertySet(PropertySet {
                size,
                offset,
                value: u64::from(value),
            })
        };
        let sqe = command.sqe(0, SglDescriptor::NONE);
        self.peer.stage_command(sqe, None, false, 0);
        what & 1 != 0
    }

    fn admin(&mut self, step: &Step) {
        let [what, one, two, three, ..] = step.bytes;
        let reads = [4096, 0, 512, 8192, 64, 1 << 20, 4, u32::MAX][usize::from(three) % 8];
        let (command, reads) = match what % 8 {
            0 => {
                let mut identify = Identify::new(Cns::from_value(one & 31), namespace(two));
                identify.controller_id = u16::from(step.bytes[4]);
                (AdminCommand::Identify(identify), reads)
            }
            1 => {
                let length = u64::from(reads).max(4) & !3;
                let offset = match two {
                    250.. => u64::MAX - u64::from(two),
                    _ => u64::from(two) * 4,
                };
                let id = if one < 128 { one & 31 } else { 0x70 };
                let mut get = GetLogPage::new(LogId::from_value(id), offset, length);
                get.log_specific = step.bytes[4] & 0x7f;
                get.nsid = if step.bytes[5] < 128 { u32::MAX } else { 1 };
                (AdminCommand::GetLogPage(get), reads)
            }
            2 => {
                let feature = FeatureId::from_value(one & 0x1f | (one & 0x80));
                (AdminCommand::GetFeatures(GetFeatures::new(feature)), reads)
            }
            3 => {
                let feature = FeatureId::from_value(one & 0x1f | (one & 0x80));
                // A keep-alive timer ends what is silent.
                self.peer.may_end |= feature == FeatureId::KeepAliveTimer;
                let dword = u32::from(step.word(4));
                let sqe = AdminCommand::SetFeatures(SetFeatures::new(feature, dword))
                    .sqe(0, SglDescriptor::NONE);
                let data = (two > 128).then(|| pattern(self.serial, 512));
                self.peer.stage_command(sqe, data, two & 1 == 0, 0);
                return;
            }
            4 | 5 => (AdminCommand::AsynchronousEventRequest, 0),
            6 => (AdminCommand::KeepAlive, 0),
            _ => {
                let abort = Abort {
                    sqid: u16::from(one & 3),
                    cid: u16::from(two),
                };
                (AdminCommand::Abort(abort), 0)
            }
        };
        let sqe = command.sqe(0, SglDescriptor::NONE);
        self.peer.stage_command(sqe, None, false, reads);
    }

    /// Whether a transfer breaks no rule of the first namespace.
    fn is_sound(&self, nsid: u32, lba: u64, blocks: u32) -> bool {
        nsid == 1
            && self.visible
            && lba
                .checked_add(u64::from(blocks))
                .is_some_and(|end| end <= BLOCKS)
            && u64::from(blocks) * self.block as u64 <= u64::from(self.mdts)
    }

    fn read(&mut self, step: &Step) {
        let [nsid, lba, blocks, length, ..] = step.bytes;
        let nsid = namespace(nsid);
        let (lba, blocks) = range(lba, blocks);
        let bytes = blocks.saturating_mul(self.block as u32);
        let bytes = match length {
            250 => 0,
            251 => bytes / 2,
            252 => u32::MAX,
            253 => bytes.saturating_add(512),
            _ => bytes,
        };
        let read = NvmCommand::Read(Blocks::new(lba, blocks));
        let sqe = read.sqe(0, nsid, SglDescriptor::NONE);
        let sound = length < 250 && self.is_sound(nsid, lba, blocks);
        let cid = self.peer.stage_command(sqe, None, false, bytes);
        if sound {
            self.peer.sound.insert(cid);
        }
    }

    fn write(&mut self, step: &Step) {
        let [nsid, lba, blocks, length, flags, _] = step.bytes;
        let nsid = namespace(nsid);
        let (lba, blocks) = range(lba, blocks);
        let bytes = (blocks as usize * self.block).min(self.mdts as usize);
        let (bytes, right) = match length {
            250 => (0, false),
            251 => (bytes / 2, false),
            253 => (bytes + 512, false),
            _ => (bytes, bytes == blocks as usize * self.block),
        };
        let write = NvmCommand::Write(Blocks {
            force_unit_access: flags & 2 != 0,
            ..Blocks::new(lba, blocks)
        });
        let sqe = write.sqe(0, nsid, SglDescriptor::NONE);
        let in_capsule = flags & 1 == 0;
        let data = pattern(self.serial, bytes);
        let cid = self.peer.stage_command(sqe, Some(data), in_capsule, 0);
        let staged = self.peer.staged.last().map_or(0, Vec::len);
        // Data in a capsule that admin queues take may be too long for this one.
        if right && staged < 256 && self.is_sound(nsid, lba, blocks) {
            self.peer.sound.insert(cid);
        }
    }

    fn nvm(&mut self, step: &Step) {
        let [what, nsid, lba, blocks, flags, count] = step.bytes;
        let nsid = namespace(nsid);
        let (lba, blocks) = range(lba, blocks);
        let in_capsule = flags & 1 == 0;
        let bytes = (blocks as usize * self.block).min(self.mdts as usize);
        let (command, data) = match what % 8 {
            0 => (NvmCommand::Flush, None),
            1 => {
                let zeroes = WriteZeroes {
                    lba,
                    blocks,
                    deallocate: flags & 2 != 0,
                    ..WriteZeroes::default()
                };
                (NvmCommand::WriteZeroes(zeroes), None)
            }
            2 => {
                let verify = Verify {
                    lba,
                    blocks,
                    ..Verify::default()
                };
                (NvmCommand::Verify(verify), None)
            }
            3 => {
                // Zeroes are there more often than anything else is.
                let data = match flags & 4 {
                    0 => vec![0; bytes],
                    _ => pattern(self.serial, bytes),
                };
                (NvmCommand::Compare(Blocks::new(lba, blocks)), Some(data))
            }
            4 | 5 => {
                let ranges = u16::from(count) + 1;
                let management = DatasetManagement {
                    ranges,
                    deallocate: flags & 2 == 0,
                    ..DatasetManagement::default()
                };
                let range = |index: u16| DatasetManagementRange {
                    lba: lba.wrapping_add(u64::from(index) * u64::from(flags >> 4)),
                    blocks: blocks % 32,
                    ..DatasetManagementRange::default()
                };
                let data = (0..ranges).flat_map(|index| range(index).encode());
                (
                    NvmCommand::DatasetManagement(management),
                    Some(data.collect()),
                )
            }
            6 => {
                let ranges = u16::from(count % 8) + 1;
                let copy = CopyCommand {
                    destination_lba: u64::from(step.bytes[4]),
                    ranges,
                    ..CopyCommand::default()
                };
                let range = |index: u16| {
                    let lba = lba.wrapping_add(u64::from(index) * 3);
                    CopyRange::new(lba, blocks)
                };
                let data = (0..ranges).flat_map(|index| range(index).encode());
                (NvmCommand::Copy(copy), Some(data.collect()))
            }
            _ => (NvmCommand::ReservationReport, None),
        };
        let sqe = command.sqe(0, nsid, SglDescriptor::NONE);
        self.peer.stage_command(sqe, data, in_capsule, 0);
    }

    fn fused(&mut self, step: &Step) {
        let [what, lba, blocks, flags, other, _] = step.bytes;
        let (lba, blocks) = (u64::from(lba), u32::from(blocks % 8) + 1);
        let bytes = blocks as usize * self.block;
        let differs = u64::from(other == 1);
        let compare = NvmCommand::Compare(Blocks::new(lba, blocks));
        let write = NvmCommand::Write(Blocks::new(lba + differs, blocks));
        let halves = [
            (compare, Fuse::First, vec![0; bytes], flags & 1),
            (write, Fuse::Second, pattern(self.serial, bytes), flags & 2),
        ];
        for (index, (command, fuse, data, fetched)) in halves.into_iter().enumerate() {
            // Halves that are alone, too.
            if what & 0x30 == 0x30 && usize::from(what & 1) == index {
                continue;
            }
            let sqe = Sqe {
                fuse,
                ..command.sqe(0, 1, SglDescriptor::NONE)
            };
            self.peer.stage_command(sqe, Some(data), fetched == 0, 0);
        }
    }

    fn data(&mut self, step: &Step) {
        let [which, length, pdus, ..] = step.bytes;
        let open = self.peer.r2ts.len();
        if open == 0 {
            return;
        }
        let length = [u32::MAX, 4096, 512, 1000, 8192, 1, 65_536, 16][usize::from(length) % 8];
        let pdus = [usize::MAX, 1, 2, 5][usize::from(pdus) % 4];
        // Pieces of a byte of a long transfer say nothing new.
        let pdus = if length < 512 { pdus.min(20) } else { pdus };
        self.peer
            .stage_data(usize::from(which) % open, length, pdus);
    }

    fn wrong_data(&mut self, step: &Step) {
        let [which, change, ..] = step.bytes;
        let open = self.peer.r2ts.get(usize::from(which) % 8).copied();
        let mut header = match open {
            Some(open) => H2cData {
                cid: open.r2t.cid,
                transfer_tag: open.r2t.transfer_tag,
                offset: open.r2t.offset + open.staged,
                length: (open.r2t.length - open.staged).clamp(1, 4096),
                last: open.r2t.length - open.staged <= 4096,
            },
            None => H2cData {
                cid: 0,
                transfer_tag: 0,
                offset: 0,
                length: 512,
                last: true,
            },
        };
        let value = step.word(2);
        match change % 6 {
            0 => header.cid = value,
            1 => header.transfer_tag = value,
            2 => header.offset = u32::from(value) << (step.bytes[4] % 17),
            3 => header.length = u32::from(value).clamp(1, 8192),
            4 => header.last = !header.last,
            _ => header.offset = u32::MAX - u32::from(step.bytes[4]),
        }
        self.peer.soil();
        self.peer.stage_transfer(&header);
    }

    /// An entry whose PDU is right, and whatever it says.
    fn entry(&mut self, step: &Step) {
        let [opcode, nsid, one, two, three, sgl] = step.bytes;
        let dword = u32::from(step.word(2));
        let length = [0, 4, 512, 4096, 1024, 16, 8192, u32::MAX][usize::from(three) % 8];
        let short = length.min(8192) as usize;
        let (sgl, data) = match sgl % 8 {
            0 | 1 => (SglDescriptor::NONE, None),
            2 | 3 => (SglDescriptor::Transport { length }, None),
            4 => {
                let length = short as u32;
                let sgl = SglDescriptor::InCapsule { offset: 0, length };
                (sgl, Some(pattern(self.serial, short)))
            }
            5 => {
                let sgl = SglDescriptor::InCapsule { offset: 8, length };
                (sgl, Some(pattern(self.serial, 512)))
            }
            6 => {
                let (address, key) = (u64::from(dword), dword);
                let length = length & 0xff_ffff;
                let sub_type = 0;
                let sgl = SglDescriptor::Keyed {
                    address,
                    length,
                    key,
                    sub_type,
                };
                (sgl, None)
            }
            _ => (SglDescriptor::Other([two; 16]), None),
        };
        let sqe = Sqe {
            opcode,
            fuse: [Fuse::Normal, Fuse::Normal, Fuse::First, Fuse::Reserved][usize::from(nsid >> 6)],
            data_transfer: if one == 255 {
                DataTransfer::Prp
            } else {
                DataTransfer::Sgl
            },
            nsid: u32::from(nsid & 15),
            sgl,
            cdw10: u32::from(one),
            cdw11: if two > 250 { u32::MAX } else { 0 },
            cdw12: u32::from(two),
            cdw13: dword << (three & 31),
            ..Sqe::default()
        };
        // It may be anything that ends a controller or a connection.
        self.peer.may_end = true;
        let has_data = data.is_some();
        self.peer.stage_entry(sqe, data, has_data);
    }

    fn pdu(&mut self, step: &Step) {
        let [kind, flags, header, offset, length, fill] = step.bytes;
        let mut bytes = vec![kind, flags, header, offset, length, 0, 0, 0];
        bytes.resize(usize::from(length).max(8), fill);
        self.peer.soil();
        self.peer.staged.push(bytes);
    }

    /// Damages what is staged, in bytes or in PDUs.
    fn damage(&mut self, step: &Step) {
        let [how, ..] = step.bytes;
        let (first, second) = (usize::from(step.word(1)), usize::from(step.word(3)));
        let value = step.bytes[5];
        let pdus = &mut self.peer.staged;
        if pdus.is_empty() {
            return;
        }
        let (one, other) = (first % pdus.len(), second % pdus.len());
        match how % 9 {
            0 => {
                let at = second % pdus[one].len();
                pdus[one][at] ^= 1 << (value & 7);
            }
            1 => {
                let at = second % pdus[one].len();
                pdus[one][at] = value;
            }
            2 => {
                let length = second % pdus[one].len();
                pdus[one].truncate(length);
            }
            3 => {
                let again = pdus[one].clone();
                pdus.insert(other, again);
            }
            4 => pdus.swap(one, other),
            5 => {
                // The front of one, the back of another.
                let front = usize::from(value) % pdus[one].len();
                let back = pdus[other][usize::from(value) % pdus[other].len()..].to_vec();
                pdus[one].truncate(front);
                pdus[one].extend(back);
            }
            6 => {
                let at = second % pdus[one].len();
                pdus[one].insert(at, value);
            }
            7 => {
                pdus.remove(one);
            }
            _ => {
                // Within the common header and the fields behind it, where it hurts.
                let at = second % pdus[one].len().min(24);
                pdus[one][at] = value;
            }
        }
        pdus.retain(|pdu| !pdu.is_empty());
        self.peer.soil();
    }

    fn burst(&mut self, step: &Step) {
        let [what, count, lba, flags, ..] = step.bytes;
        for index in 0..count % BURST_MAX {
            let at = Blocks::new(u64::from(lba.wrapping_add(index)), 1);
            let serial = self.serial << 8 | u64::from(index) | 1 << 63;
            let (sqe, data, reads) = match what % 6 {
                0 => (NvmCommand::Flush.sqe(0, 1, SglDescriptor::NONE), None, 0),
                1 => {
                    let sqe = NvmCommand::Read(at).sqe(0, 1, SglDescriptor::NONE);
                    (sqe, None, self.block as u32)
                }
                2 | 3 => {
                    let sqe = NvmCommand::Write(at).sqe(0, 1, SglDescriptor::NONE);
                    (sqe, Some(pattern(serial, self.block)), 0)
                }
                4 => {
                    let events = AdminCommand::AsynchronousEventRequest;
                    (events.sqe(0, SglDescriptor::NONE), None, 0)
                }
                _ => {
                    let keep_alive = AdminCommand::KeepAlive;
                    (keep_alive.sqe(0, SglDescriptor::NONE), None, 0)
                }
            };
            self.peer.stage_command(sqe, data, flags & 1 == 0, reads);
        }
    }
}
