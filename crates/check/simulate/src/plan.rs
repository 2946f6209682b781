//! The plan of a seed: the system, what clients do with it, and what goes wrong. Each seed switches some of all that there is
//! on, so that what one fault or operation hides in a thousand seeds another thousand show.
//!
//! The section of `docs/fault-model.md` on whole systems says what limits the faults.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use weir_block::OperationKind;
use weir_front::Limits;
use weir_iscsi_target::IscsiConfig;
use weir_nvme_target::TargetConfig;
use weir_reactor::sim::{DiskConfig, Faults};

use crate::random::Random;

/// The time that the initiator waits after the keep-alive timeouts of a controller that it lost (decision 0010).
const QUIET_MARGIN: Duration = Duration::from_secs(1);
/// One request may be as many disk operations one after another, each of which may stall: a compare-and-write of 512-byte
/// blocks on a medium of 4096 reads, reads both ends, and writes.
const STALLS_IN_A_ROW: u32 = 4;
/// The longest that a disk is silent.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// Bytes of a segment that is not short.
const USUAL_SEGMENT_BYTES: f64 = 1460.0;
/// Requests of one seed at least.
pub(crate) const COMMANDS_MIN: u64 = 1_000;
/// Requests of one seed at most, without those after the faults.
const COMMANDS_MAX: u64 = 1_400;

/// Something that is done to the system while it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A connection is cut.
    Cut,
    /// A connection falls silent.
    Silence,
    /// A host and the gateway are parted for a time.
    Partition,
    /// All reactors of a machine stand still.
    Stall,
    /// The gateway's process is killed.
    KillGateway,
    /// The gateway's power fails.
    GatewayPower,
    /// The gateway is shut down in an orderly way, and started again.
    RestartGateway,
    /// The process of a host is killed.
    KillHost,
    /// The power of a host fails.
    HostPower,
    /// A namespace is taken away for a time.
    RemoveNamespace,
    /// A namespace may only be read for a time.
    SetReadOnly,
    /// A namespace grows or shrinks behind what clients use.
    Resize,
    /// A host may not connect for a time.
    RemoveHost,
    /// A connection is ended by command.
    Disconnect,
    /// The disks that a namespace is on are silent for a time.
    SilentVolume,
    /// A path of a host with another one to the namespace is cut, while what it wrote is kept back by silent disks.
    ReplacePath,
}

impl Trouble {
    /// All of them.
    pub(crate) const ALL: [Trouble; 16] = [
        Trouble::Cut,
        Trouble::Silence,
        Trouble::Partition,
        Trouble::Stall,
        Trouble::KillGateway,
        Trouble::GatewayPower,
        Trouble::RestartGateway,
        Trouble::KillHost,
        Trouble::HostPower,
        Trouble::RemoveNamespace,
        Trouble::SetReadOnly,
        Trouble::Resize,
        Trouble::RemoveHost,
        Trouble::Disconnect,
        Trouble::SilentVolume,
        Trouble::ReplacePath,
    ];
}

/// The kind of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Medium {
    Memory,
    File,
    Device,
    /// Of so many files: a stripe with chunks of so many bytes, or one file behind the other.
    Set {
        members: u32,
        chunk: Option<u64>,
        devices: bool,
    },
}

/// One namespace.
#[derive(Debug, Clone)]
pub(crate) struct VolumePlan {
    pub(crate) medium: Medium,
    /// Bytes of a block.
    pub(crate) block: u32,
    /// Blocks that clients use.
    pub(crate) used: u64,
    /// Blocks behind these, which resizing takes and gives.
    pub(crate) tail: u64,
}

/// Protocol of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Nvme,
    Iscsi,
}

/// One initiator.
#[derive(Debug, Clone)]
pub(crate) struct HostPlan {
    pub(crate) protocol: Protocol,
    pub(crate) reactors: u16,
    pub(crate) queues: u16,
    pub(crate) depth: u16,
    /// Ways to each namespace, each an association of its own.
    pub(crate) paths: u16,
    /// Clients on each reactor.
    pub(crate) lanes: u32,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    pub(crate) alignment: u8,
    pub(crate) keep_alive: Duration,
    pub(crate) io_timeout: Duration,
    pub(crate) reconnect_delay: Duration,
}

impl HostPlan {
    /// Returns the number of its clients.
    pub(crate) fn clients(&self) -> u32 {
        u32::from(self.reactors) * self.lanes
    }
}

/// The requests that clients make.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    pub(crate) kinds: Vec<(OperationKind, u32)>,
    pub(crate) fua_percent: u64,
    pub(crate) cancel_percent: u64,
    /// Queues that are dropped with requests in flight, of a thousand requests.
    pub(crate) drops_per_thousand: u64,
    pub(crate) blocks_max: u64,
    pub(crate) long_percent: u64,
    pub(crate) long_blocks_max: u64,
    pub(crate) compare_blocks_max: u64,
    pub(crate) think: Duration,
    pub(crate) tail_percent: u64,
}

/// The plan of a seed.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) seed: u64,
    pub(crate) gateway_reactors: u32,
    pub(crate) gateway_pool: usize,
    pub(crate) target: TargetConfig,
    pub(crate) iscsi: IscsiConfig,
    pub(crate) hosts: Vec<HostPlan>,
    pub(crate) volumes: Vec<VolumePlan>,
    pub(crate) mix: Mix,
    /// Requests of each client.
    pub(crate) quota: u64,
    pub(crate) disk: DiskConfig,
    pub(crate) faults: Faults,
    pub(crate) socket_buffer: usize,
    pub(crate) network_troubles: Vec<(Trouble, u32)>,
    pub(crate) gateway_troubles: Vec<(Trouble, u32)>,
    pub(crate) host_troubles: Vec<(Trouble, u32)>,
    pub(crate) disk_troubles: Vec<(Trouble, u32)>,
    /// Between two troubles of one kind.
    pub(crate) pause: RangeInclusive<Duration>,
    /// For how long what goes away stays away.
    pub(crate) absence: RangeInclusive<Duration>,
    /// The longest that all reactors of a machine stand still.
    pub(crate) stall_max: Duration,
    /// For how long a disk is silent, and works off what it kept back.
    pub(crate) silence: RangeInclusive<Duration>,
    /// Power fails once more when all is done, before everything is read.
    pub(crate) power_failure_at_end: bool,
}

impl Plan {
    /// Returns the plan of seed `seed`.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let random = &mut Random::new(seed, 1);
        let mut troubles = Troubles::draw(random);
        // Of a stream of its own: what seeds are otherwise stays as it was.
        let rights = &mut Random::new(seed, 3);
        if !troubles.gateway.is_empty() && rights.percent(50) {
            let weight = rights.within(1..=4) as u32;
            troubles.gateway.push((Trouble::SetReadOnly, weight));
        }
        let keep_alive = Duration::from_secs(random.pick(&[1, 1, 2, 5, 15]));
        let quiet = keep_alive * 2 + QUIET_MARGIN;
        // What the initiator's retry of writes relies on (decision 0010): a controller that it lost has ended all commands by the
        // end of the quiet time.
        let late = match troubles.is_unheard() {
            true => QUIET_MARGIN,
            false => quiet,
        };
        let mut hosts: Vec<HostPlan> = (0..random.within(1..=3))
            .map(|_| host(random, keep_alive))
            .collect();
        let (volumes, disk) = media(random, troubles.gateway_dies());
        let segment_bytes_max = random.pick(&[1, 7, 100, 1000, 1460, 9000, 64 << 10, 64 << 10]);
        let segment_bytes_max = affordable(segment_bytes_max, &volumes);
        let mut mix = mix(random, &volumes, segment_bytes_max);
        let lanes: u32 = hosts.iter().map(HostPlan::clients).sum();
        let commands = random.within(COMMANDS_MIN..=COMMANDS_MAX);
        let (mut faults, stall_max) = faults(random, late, segment_bytes_max);
        // Of streams of their own: what seeds are otherwise stays as it was.
        if troubles.has(Trouble::Resize) {
            mix.tail_percent = Random::new(seed, 3).pick(&[3, 30]);
        }
        let writeback = &mut Random::new(seed, 2);
        // What is lost shows when power fails.
        let percent = match troubles.has(Trouble::GatewayPower) {
            true => 80,
            false => 20,
        };
        if writeback.percent(percent) {
            faults.writeback_error_probability = writeback.pick(&[0.01, 0.1]);
        }
        if troubles.has(Trouble::KillGateway) {
            // What a failed sync left undone, the next process cannot know.
            faults.sync_error_probability = 0.0;
            faults.writeback_error_probability = 0.0;
        }
        let paths = &mut Random::new(seed, 4);
        if paths.percent(40) {
            for host in &mut hosts {
                host.paths = paths.within(1..=2) as u16;
            }
        }
        let iscsi = &mut Random::new(seed, 6);
        if iscsi.percent(40) {
            for host in &mut hosts {
                host.protocol = iscsi.pick(&[Protocol::Nvme, Protocol::Iscsi, Protocol::Iscsi]);
            }
        }
        let pause = random.magnitude(Duration::from_millis(3), Duration::from_secs(1));
        let absence = random.magnitude(Duration::from_millis(5), Duration::from_secs(6));
        let makes_trouble = !troubles.is_empty();
        let mut plan = Plan {
            seed,
            gateway_reactors: random.within(1..=3) as u32,
            gateway_pool: random.pick(&[8, 16, 64]) << 20,
            target: target(random, &hosts, volumes.len()),
            iscsi: IscsiConfig::default(),
            hosts,
            mix,
            quota: commands.div_ceil(lanes.into()),
            power_failure_at_end: troubles.gateway_dies() && random.percent(50),
            volumes,
            disk,
            faults,
            socket_buffer: random.pick(&[8 << 10, 32 << 10, 128 << 10]),
            network_troubles: troubles.network,
            gateway_troubles: troubles.gateway,
            host_troubles: troubles.host,
            disk_troubles: Vec::new(),
            pause: pause / 2..=pause * 2,
            absence: absence / 4..=absence,
            stall_max,
            silence: Duration::ZERO..=Duration::ZERO,
        };
        if makes_trouble {
            plan.draw_disk_troubles(late);
        }
        plan.iscsi = iscsi_target(iscsi, &plan.target, keep_alive);
        plan
    }

    /// Draws whether disks are silent, and for how long: no longer than one disk operation stalls, so that both together are no later than
    /// decision 0010 allows.
    fn draw_disk_troubles(&mut self, late: Duration) {
        // Of a stream of its own: what seeds are otherwise stays as it was.
        let random = &mut Random::new(self.seed, 5);
        let is_on_disk = |volume: &VolumePlan| volume.medium != Medium::Memory;
        if !random.percent(40) || !self.volumes.iter().any(is_on_disk) {
            return;
        }
        let longest = (late / (2 * STALLS_IN_A_ROW)).min(SILENCE_MAX);
        self.silence = longest / 2..=longest;
        self.disk_troubles.push((Trouble::SilentVolume, 1));
        if self.paths_max() > 1 {
            self.disk_troubles.push((Trouble::ReplacePath, 3));
        }
    }

    /// Returns the time after which an initiator takes a controller for gone, from when its last connection was closed.
    pub(crate) fn quiet(&self) -> Duration {
        self.hosts[0].keep_alive * 2 + QUIET_MARGIN
    }

    /// Within this simulated time after what kept a host from the gateway is over, it is connected again: it has given up what it had,
    /// its old controller has ended, and its pauses between attempts are over.
    pub(crate) fn reconnect_limit(&self, host: usize) -> Duration {
        let host = &self.hosts[host];
        self.quiet() * 2 + host.reconnect_delay * 2 + host.io_timeout + Duration::from_secs(20)
    }

    /// Within this simulated time after the last fault everything outstanding ends: what fell silent is noticed, what was lost
    /// is surely gone, and commands are tried again after their pauses.
    #[must_use]
    pub fn progress_limit(&self) -> Duration {
        self.quiet() * 4 + Duration::from_secs(120)
    }

    /// Tells whether `trouble` may happen.
    pub(crate) fn has(&self, trouble: Trouble) -> bool {
        let all = [
            &self.network_troubles,
            &self.gateway_troubles,
            &self.host_troubles,
            &self.disk_troubles,
        ];
        all.iter()
            .any(|some| some.iter().any(|(other, _)| *other == trouble))
    }

    /// Tells whether hosts go on over another path while what they wrote over one that was cut is kept back.
    #[must_use]
    pub fn replaces_paths(&self) -> bool {
        self.has(Trouble::ReplacePath)
    }

    /// Tells whether hosts speak it.
    pub(crate) fn speaks(&self, protocol: Protocol) -> bool {
        self.hosts.iter().any(|host| host.protocol == protocol)
    }

    /// The most paths that a host has.
    pub(crate) fn paths_max(&self) -> u32 {
        paths_max(&self.hosts)
    }

    pub(crate) fn has_disk_errors(&self) -> bool {
        self.faults.read_error_probability > 0.0
            || self.faults.write_error_probability > 0.0
            || self.faults.sync_error_probability > 0.0
            || self.faults.writeback_error_probability > 0.0
    }

    /// Tells whether acknowledged writes may not be written back, so that the gateway's power failure loses them.
    #[must_use]
    pub fn loses_unwritten_data(&self) -> bool {
        self.faults.writeback_error_probability > 0.0 && self.has(Trouble::GatewayPower)
    }
}

/// Which troubles are on.
struct Troubles {
    network: Vec<(Trouble, u32)>,
    gateway: Vec<(Trouble, u32)>,
    host: Vec<(Trouble, u32)>,
}

impl Troubles {
    fn draw(random: &mut Random) -> Self {
        use Trouble::{
            Cut, Disconnect, GatewayPower, HostPower, KillGateway, KillHost, Partition, RemoveHost,
            RemoveNamespace, Resize, RestartGateway, Silence, Stall,
        };
        // One seed in sixteen has none.
        let some = random.below(16) > 0;
        let mut draw = |of: &[Trouble]| -> Vec<(Trouble, u32)> {
            let on = some && random.percent(70);
            of.iter()
                .filter_map(|trouble| {
                    let weight = random.within(1..=4) as u32;
                    (random.percent(50) && on).then_some((*trouble, weight))
                })
                .collect()
        };
        Troubles {
            network: draw(&[Cut, Silence, Partition, Stall, Disconnect]),
            gateway: draw(&[
                KillGateway,
                GatewayPower,
                RestartGateway,
                RemoveNamespace,
                Resize,
                RemoveHost,
            ]),
            host: draw(&[KillHost, HostPower]),
        }
    }

    fn has(&self, trouble: Trouble) -> bool {
        let all = [&self.network, &self.gateway, &self.host];
        all.iter()
            .any(|some| some.iter().any(|(other, _)| *other == trouble))
    }

    fn is_empty(&self) -> bool {
        self.network.is_empty() && self.gateway.is_empty() && self.host.is_empty()
    }

    fn gateway_dies(&self) -> bool {
        self.has(Trouble::KillGateway) || self.has(Trouble::GatewayPower)
    }

    /// Tells whether a connection may end without the gateway being told.
    fn is_unheard(&self) -> bool {
        self.has(Trouble::Silence) || self.has(Trouble::Partition) || self.has(Trouble::HostPower)
    }
}

fn host(random: &mut Random, keep_alive: Duration) -> HostPlan {
    let reactors = random.within(1..=2) as u16;
    HostPlan {
        protocol: Protocol::Nvme,
        reactors,
        queues: random.within(1..=4) as u16,
        depth: random.pick(&[2, 4, 16, 128]),
        paths: 1,
        lanes: random.within(1..=4) as u32,
        header_digest: random.percent(40),
        data_digest: random.percent(40),
        alignment: random.pick(&[0, 0, 0, 1, 7, 31]),
        keep_alive,
        io_timeout: random.magnitude(Duration::from_millis(200), Duration::from_secs(30)),
        reconnect_delay: random.magnitude(Duration::from_millis(20), Duration::from_secs(2)),
    }
}

/// The volumes, and the disks that they are on. A physical block is no shorter than a block of a volume: no target can say
/// that less than one block is written atomically.
fn media(random: &mut Random, must_stay: bool) -> (Vec<VolumePlan>, DiskConfig) {
    let physical = random.pick(&[512, 4096, 4096]);
    let disk = DiskConfig {
        physical_block: physical,
        offset_alignment: if physical == 4096 {
            random.pick(&[512, 4096])
        } else {
            512
        },
        memory_alignment: random.pick(&[4, 512]),
        volatile_cache: random.percent(80),
        punch_hole: random.percent(80),
        zero_range: random.percent(80),
        ..DiskConfig::default()
    };
    let count = random.pick(&[1, 1, 2]);
    let volumes = (0..count).map(|_| volume(random, physical, must_stay));
    (volumes.collect(), disk)
}

fn volume(random: &mut Random, physical: u32, must_stay: bool) -> VolumePlan {
    let set = |random: &mut Random| Medium::Set {
        members: random.within(2..=3) as u32,
        chunk: random.pick(&[Some(4096), Some(8192), None]),
        devices: random.percent(30),
    };
    let medium = match random.below(10) {
        0..=1 if !must_stay => Medium::Memory,
        0..=4 => Medium::File,
        5..=6 => Medium::Device,
        _ => set(random),
    };
    let block = match (medium, physical) {
        (Medium::Memory, _) => random.pick(&[512, 4096]),
        (_, 512) => 512,
        _ => random.pick(&[512, 4096]),
    };
    VolumePlan {
        medium,
        block,
        used: random.pick(&[16, 48, 96, 160]),
        tail: 64,
    }
}

/// Delivers only short blocks byte by byte, or a seed takes minutes.
fn affordable(segment_bytes_max: usize, volumes: &[VolumePlan]) -> usize {
    let long = volumes.iter().any(|volume| volume.block > 512);
    match long {
        true => segment_bytes_max.max(61),
        false => segment_bytes_max,
    }
}

fn mix(random: &mut Random, volumes: &[VolumePlan], segment_bytes_max: usize) -> Mix {
    use OperationKind::{
        Compare, CompareWrite, Deallocate, Flush, Read, Verify, Write, WriteZeroes,
    };
    let others = [
        (Flush, 10, 70),
        (CompareWrite, 25, 50),
        (Compare, 8, 40),
        (WriteZeroes, 8, 40),
        (Deallocate, 8, 30),
        (Verify, 5, 30),
    ];
    let mut kinds = vec![(Read, random.within(20..=60) as u32)];
    kinds.push((Write, random.within(20..=60) as u32));
    for (kind, most, percent) in others {
        let weight = random.within(1..=most) as u32;
        if random.percent(percent) {
            kinds.push((kind, weight));
        }
    }
    let slow = segment_bytes_max < 100;
    let used = volumes.iter().map(|volume| volume.used).min().unwrap_or(16);
    let short = random.pick(&[1, 4, 8, 16]).min(used);
    Mix {
        kinds,
        fua_percent: random.pick(&[0, 10, 50]),
        cancel_percent: random.pick(&[0, 0, 2, 10]),
        drops_per_thousand: random.pick(&[0, 0, 5]),
        blocks_max: if slow { 1 } else { short },
        long_percent: if slow { 0 } else { random.pick(&[0, 2, 8]) },
        long_blocks_max: used,
        compare_blocks_max: random.pick(&[1, 2, 8]),
        think: random.magnitude(Duration::from_micros(100), Duration::from_millis(20)),
        tail_percent: random.pick(&[0, 3]),
    }
}

/// The most paths that a host has.
fn paths_max(hosts: &[HostPlan]) -> u32 {
    let paths = hosts.iter().map(|host| u32::from(host.paths));
    paths.max().unwrap_or(1)
}

fn target(random: &mut Random, hosts: &[HostPlan], volumes: usize) -> TargetConfig {
    // What clients need, three lives of each at once, and a few that are refused.
    let of_path = |host: &HostPlan| (1 + u32::from(host.queues.max(host.reactors)) + 2) * 3;
    let of_host = |host: &HostPlan| of_path(host) * u32::from(host.paths);
    let connections: u32 = hosts.iter().map(of_host).sum::<u32>() * volumes as u32;
    let mdts_bytes = random.pick(&[16 << 10, 128 << 10, 1 << 20]);
    TargetConfig {
        max_connections: connections + random.within(4..=40) as u32,
        max_half_open: random.pick(&[8, 64]),
        handshake_timeout: Duration::from_secs(random.within(2..=10)),
        queue_depth: random.pick(&[32, 128]),
        io_queues_max: random.pick(&[8, 128]),
        // Each life has one for each path and namespace, and those of three lives may be there at once.
        controllers_per_host_max: random.pick(&[8, 16]) * paths_max(hosts) as u16,
        in_capsule_bytes: random.pick(&[0, 4096, 8192, 16_384]),
        bytes_in_flight_per_connection: mdts_bytes << random.within(0..=4),
        mdts_bytes,
        max_c2h_data: random.pick(&[4096, 64 << 10, 1 << 20]),
        volume_queue_depth: random.pick(&[2, 8, 64, 512]),
        ..TargetConfig::default()
    }
}

/// The iSCSI target beside NVMe's, for as many connections.
fn iscsi_target(random: &mut Random, nvme: &TargetConfig, keep_alive: Duration) -> IscsiConfig {
    let max_burst_bytes = random.pick(&[8 << 10, 64 << 10, 1 << 20]);
    let transfer_bytes_max = nvme.mdts_bytes;
    IscsiConfig {
        connections: Limits {
            max_connections: nvme.max_connections,
            max_half_open: nvme.max_half_open,
            handshake_timeout: nvme.handshake_timeout,
            ..Limits::default()
        },
        // Each life has one and one for each of its reactors, for each path and namespace; those of three lives may be there.
        sessions_per_initiator_max: 256,
        commands_max: random.pick(&[1, 4, 32, 128]),
        receive_segment_bytes: random.pick(&[512, 8 << 10, 256 << 10]),
        send_segment_bytes: random.pick(&[512, 8 << 10, 256 << 10]),
        first_burst_bytes: random
            .pick(&[512, 8 << 10, 64 << 10])
            .min(max_burst_bytes)
            .min(transfer_bytes_max),
        max_burst_bytes,
        outstanding_r2t: random.pick(&[1, 4]),
        immediate_data: random.percent(70),
        initial_r2t: random.percent(30),
        transfer_bytes_max,
        bytes_in_flight_per_session: nvme.bytes_in_flight_per_connection,
        nop_interval: keep_alive,
        ..IscsiConfig::default()
    }
}

/// Draws what goes wrong by itself, and the longest time for which a machine stands still.
fn faults(random: &mut Random, late: Duration, segment_bytes_max: usize) -> (Faults, Duration) {
    let disk_stall = late / (2 * STALLS_IN_A_ROW);
    let machine_stall = late / 10;
    let spike = (late / 10).min(Duration::from_secs(1));
    let short = Duration::from_micros(100);
    let often = |random: &mut Random, percent: u64, rates: &[f64]| match random.percent(percent) {
        true => random.pick(rates),
        false => 0.0,
    };
    let network = random.magnitude(Duration::from_micros(20), Duration::from_millis(3));
    let disk = random.magnitude(Duration::from_micros(20), Duration::from_millis(5));
    let faults = Faults {
        network_delay: network / 20..=network,
        segment_bytes_max,
        delay_spike_probability: often(random, 40, &[0.0005, 0.01]),
        delay_spike: short..=spike,
        // As many bytes pass between two cuts: of Identify alone four thousand must.
        cut_probability: often(random, 20, &[0.000_05, 0.0005])
            * (segment_bytes_max as f64 / USUAL_SEGMENT_BYTES).min(1.0),
        accept_error_probability: often(random, 20, &[0.1]),
        read_delay: disk / 20..=disk,
        write_delay: disk / 20..=disk,
        sync_delay: disk / 10..=disk * 4,
        disk_stall_probability: often(random, 40, &[0.001, 0.02]),
        disk_stall: short..=disk_stall,
        read_error_probability: often(random, 20, &[0.002, 0.02]),
        write_error_probability: often(random, 20, &[0.002, 0.02]),
        sync_error_probability: often(random, 12, &[0.01, 0.1]),
        reactor_stall_probability: often(random, 20, &[0.0001, 0.001]),
        reactor_stall: short..=(machine_stall / 4).min(Duration::from_millis(50)),
        ..Faults::default()
    };
    (faults, machine_stall)
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self:#?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tells whether nothing can make a connection end, a command fail, or take long.
    fn is_calm(plan: &Plan) -> bool {
        plan.network_troubles.is_empty()
            && plan.gateway_troubles.is_empty()
            && plan.host_troubles.is_empty()
            && plan.faults.cut_probability == 0.0
            && plan.faults.disk_stall_probability == 0.0
            && plan.faults.delay_spike_probability == 0.0
            && plan.faults.reactor_stall_probability == 0.0
            && !plan.has_disk_errors()
    }

    #[test]
    fn plans_are_allowed_and_of_many_kinds() {
        let plans: Vec<Plan> = (0..2000).map(Plan::of).collect();
        for plan in &plans {
            assert_eq!(plan.target.check(), Ok(()), "seed {}", plan.seed);
            let clients: u32 = plan.hosts.iter().map(HostPlan::clients).sum();
            assert!(u64::from(clients) * plan.quota >= COMMANDS_MIN);
            let largest = plan.volumes.iter().map(|volume| volume.block).max();
            assert!(
                plan.volumes
                    .iter()
                    .all(|volume| volume.medium == Medium::Memory
                        || Some(plan.disk.physical_block) >= largest
                        || volume.block <= plan.disk.physical_block)
            );
            if plan.has(Trouble::GatewayPower) {
                let lasting = |volume: &VolumePlan| volume.medium != Medium::Memory;
                assert!(plan.volumes.iter().all(lasting), "seed {}", plan.seed);
            }
        }
        let some = |what: &dyn Fn(&Plan) -> bool| plans.iter().any(what);
        for trouble in Trouble::ALL {
            assert!(some(&|plan| plan.has(trouble)), "{trouble:?}");
            assert!(some(&|plan| !plan.has(trouble)), "{trouble:?}");
        }
        assert!(some(&is_calm));
        assert!(some(&|plan| plan.paths_max() == 1) && some(&|plan| plan.paths_max() == 2));
        assert!(some(&|plan| plan.has_disk_errors()));
        assert!(some(&|plan| plan.faults.writeback_error_probability > 0.0
            && plan.has(Trouble::GatewayPower)));
    }
}
