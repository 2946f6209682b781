//! A minimal host for the target's tests, and the simulated world that both live in.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use weir_block::Volume;
use weir_digest::Digest;
use weir_memory::{Gather, View};
use weir_nvme::command::{
    AdminCommand, Connect, ConnectAttributes, ConnectData, FabricsCommand, Identify, NvmCommand,
    PropertyGet, PropertySet, PropertySize,
};
use weir_nvme::identify::{Cns, IdentifyController};
use weir_nvme::property::{Configuration, Property};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::tcp::{
    DataPdu, DigestOptions, Event, H2cData, HEADER_SIZE_MAX, InitializeRequest, InitializeResponse,
    Pdu, Reader, ReceiveParameters, Side, TerminationRequest, Writer,
};
use weir_nvme::{Cqe, HostId, Nqn, Sqe, Status};
use weir_nvme_target::{
    ListenerConfig, Namespace, Port, Snapshot, Subsystem, Target, TargetConfig,
};
use weir_reactor::sim::{Config, Simulation, seed_from_env_or_random};
use weir_reactor::{
    PanicPolicy, Reactor, ReactorConfig, ReactorId, Remote, SocketOptions, TcpStream,
};
use weir_volume::{Access, Guard, GuardConfig, MemVolume, NullVolume};

pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.org.weir:test";
pub(crate) const HOST: &str = "nqn.2024-01.org.weir:host";
const HOST_ID: HostId = HostId([7; 16]);
/// The host of the simulated world that the target runs on.
pub(crate) const SERVER: usize = 0;
/// The host of the simulated world that the initiator runs on.
pub(crate) const CLIENT: usize = 1;

pub(crate) fn nqn(name: &str) -> Nqn {
    Nqn::new(name).expect("an NQN")
}

/// A world that prints its seed when a test fails.
pub(crate) fn simulation() -> Simulation {
    Simulation::new(Config {
        seed: seed_from_env_or_random(),
        ..Config::default()
    })
}

/// Starts reactors on the server that run until they are stopped.
pub(crate) fn start_reactors(simulation: &Simulation, count: u32) -> Vec<Remote> {
    let start = |number| {
        let config = ReactorConfig {
            id: ReactorId(number),
            name: format!("server-{number}"),
            on_panic: PanicPolicy::Unwind,
            pool_bytes: 32 << 20,
            ..ReactorConfig::default()
        };
        let main = Box::new(|_: Reactor| -> weir_reactor::LocalFuture<()> {
            Box::pin(std::future::pending())
        });
        let thread = simulation
            .system(SERVER)
            .start_reactor(config, main)
            .expect("a simulated reactor starts");
        thread.remote.clone()
    };
    (0..count).map(start).collect()
}

/// A guarded volume in memory.
pub(crate) fn memory_volume(size: &str, block_size: u32) -> Arc<Guard> {
    let url = format!("mem:?size={size}&block_size={block_size}");
    let url = url.parse().expect("a URL");
    let volume = MemVolume::open(&url, Access { read_only: false }).expect("memory");
    Guard::new(volume, GuardConfig::default()).expect("a guard")
}

/// A guarded volume of 64 MiB and blocks of 4096 bytes, of this kind: `mem` or `null`.
pub(crate) fn volume(kind: &str) -> Arc<Guard> {
    let url = format!("{kind}:?size=64M&block_size=4096");
    let url = url.parse().expect("a URL");
    let access = Access { read_only: false };
    let volume: Arc<dyn Volume> = match kind {
        "mem" => MemVolume::open(&url, access).expect("memory"),
        _ => NullVolume::open(&url, access).expect("nothing"),
    };
    Guard::new(volume, GuardConfig::default()).expect("a guard")
}

/// A subsystem with these volumes as namespaces 1, 2 and so on.
pub(crate) fn subsystem(volumes: &[Arc<Guard>]) -> Subsystem {
    let mut subsystem = Subsystem::new(nqn(SUBSYSTEM), "WEIR-TEST-1");
    for (index, volume) in volumes.iter().enumerate() {
        let volume: Arc<dyn Volume> = volume.clone();
        let nsid = index as u32 + 1;
        subsystem
            .namespaces
            .push(Namespace::new(nsid, volume, [nsid as u8; 16]));
    }
    subsystem
}

pub(crate) fn snapshot(generation: u64, subsystems: Vec<Subsystem>, port: SocketAddr) -> Snapshot {
    Snapshot {
        generation,
        subsystems,
        hosts: Vec::new(),
        ports: vec![Port {
            address: port,
            id: 1,
            discovery_only: false,
        }],
    }
}

/// A target on `reactors` that serves `volumes` at the address returned.
pub(crate) async fn serve(
    reactors: Vec<Remote>,
    config: TargetConfig,
    volumes: &[Arc<Guard>],
    server: std::net::IpAddr,
) -> (Target, SocketAddr) {
    serve_at(reactors, config, volumes, server, 4420).await
}

/// As [`serve`], at a port of choice; 0: any.
pub(crate) async fn serve_at(
    reactors: Vec<Remote>,
    config: TargetConfig,
    volumes: &[Arc<Guard>],
    server: std::net::IpAddr,
    port: u16,
) -> (Target, SocketAddr) {
    let target = Target::new(reactors, config).await.expect("a target");
    let listener = ListenerConfig::new(SocketAddr::new(server, port));
    let address = target.add_listener(listener).await.expect("a listener");
    target
        .apply(snapshot(1, vec![subsystem(volumes)], address))
        .await
        .expect("applied");
    (target, address)
}

/// How a queue is connected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostOptions {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    pub(crate) alignment: u8,
    pub(crate) flow_control_off: bool,
    pub(crate) entries: u16,
    pub(crate) keep_alive_ms: u32,
    /// Data of up to so many bytes goes in the capsule.
    pub(crate) in_capsule: u32,
}

impl Default for HostOptions {
    fn default() -> Self {
        HostOptions {
            header_digest: false,
            data_digest: false,
            alignment: 0,
            flow_control_off: true,
            entries: 32,
            keep_alive_ms: 0,
            in_capsule: 8192,
        }
    }
}

#[derive(Default)]
struct Pending {
    data_out: Vec<u8>,
    data_in: Vec<u8>,
    done: Option<Cqe>,
}

/// What came in place of an answer.
#[derive(Debug)]
pub(crate) enum Broken {
    Closed,
    Terminated(TerminationRequest),
    Lost(std::io::Error),
}

/// One connection of a host.
pub(crate) struct Queue {
    pub(crate) stream: TcpStream,
    pub(crate) options: HostOptions,
    reader: Reader,
    writer: Writer,
    input: View,
    current: Option<u16>,
    pending: HashMap<u16, Pending>,
    pub(crate) next_cid: u16,
    pub maximum_h2c_data: u32,
    /// PDUs of H2CData that were sent.
    pub h2c_pdus: u32,
    /// PDUs of C2HData that came.
    pub c2h_pdus: u32,
    /// Answers that came as the success flag of data.
    pub(crate) success_flags: u32,
}

impl Queue {
    /// Connects, and says nothing yet.
    pub(crate) async fn raw(reactor: &Reactor, address: SocketAddr) -> Self {
        let options = SocketOptions::default();
        let stream = TcpStream::connect(reactor, address, &options).await;
        Queue::over(stream.expect("it listens"), HostOptions::default())
    }

    fn over(stream: TcpStream, options: HostOptions) -> Self {
        Queue {
            stream,
            options,
            reader: Reader::new(Side::Host),
            writer: Writer::default(),
            input: View::empty(),
            current: None,
            pending: HashMap::new(),
            next_cid: 0,
            maximum_h2c_data: 0,
            h2c_pdus: 0,
            c2h_pdus: 0,
            success_flags: 0,
        }
    }

    /// Connects and exchanges ICReq and ICResp.
    pub(crate) async fn open(
        reactor: &Reactor,
        address: SocketAddr,
        options: HostOptions,
    ) -> Result<Self, Broken> {
        let stream = TcpStream::connect(reactor, address, &SocketOptions::default())
            .await
            .map_err(Broken::Lost)?;
        let mut digests = DigestOptions::NONE;
        if options.header_digest {
            digests = digests | DigestOptions::HEADER;
        }
        if options.data_digest {
            digests = digests | DigestOptions::DATA;
        }
        let request = InitializeRequest {
            alignment: options.alignment,
            ..InitializeRequest::new(digests)
        };
        let mut queue = Queue::over(stream, options);
        queue.send_bytes(&request.encode()).await?;
        let Event::Pdu(Pdu::InitializeResponse(response)) = queue.next_event().await? else {
            panic!("ICResp answers ICReq");
        };
        queue.established(&request, &response);
        Ok(queue)
    }

    fn established(&mut self, request: &InitializeRequest, response: &InitializeResponse) {
        assert_eq!(
            response.digests, request.digests,
            "the digests asked for are granted"
        );
        let alignment = response.check(request).expect("a good ICResp");
        self.maximum_h2c_data = response.maximum_h2c_data;
        self.writer = Writer {
            header_digest: self.options.header_digest,
            data_digest: self.options.data_digest,
            alignment,
        };
        self.reader.establish(ReceiveParameters {
            header_digest: self.options.header_digest,
            data_digest: self.options.data_digest,
            alignment: weir_nvme::tcp::Alignment::from_wire(self.options.alignment)
                .expect("an alignment"),
            maximum_in_capsule: 0,
            maximum_data: u32::MAX,
        });
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let mut gather = Gather::new();
        gather.push_header(bytes);
        let (result, _) = self.stream.send(gather).await;
        result.map_err(Broken::Lost)
    }

    pub(crate) async fn next_event(&mut self) -> Result<Event, Broken> {
        loop {
            let fed = self
                .reader
                .feed(&self.input)
                .unwrap_or_else(|error| panic!("the target's PDUs are good: {error}"));
            let taken = self.input.split_to(fed.consumed);
            if let Some(Event::Data { .. }) = fed.event {
                let cid = self.current.expect("data has a header");
                let pending = self.pending.get_mut(&cid).expect("a command of ours");
                pending.data_in.extend_from_slice(&taken);
                continue;
            }
            if let Some(event) = fed.event {
                return Ok(event);
            }
            self.input = self.stream.receive().await.map_err(Broken::Lost)?;
            if self.input.is_empty() {
                return Err(Broken::Closed);
            }
        }
    }

    /// The bytes of a command capsule.
    pub(crate) fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let mut buffer = [0; HEADER_SIZE_MAX];
        let length = self
            .writer
            .capsule_command(&mut buffer, sqe, data.len() as u32);
        let mut bytes = buffer[..length].to_vec();
        bytes.extend_from_slice(data);
        if self.writer.data_digest_length(data.len() as u32) > 0 {
            bytes.extend(Digest::of(data).to_bytes());
        }
        bytes
    }

    /// The bytes of an H2CData PDU.
    pub(crate) fn h2c_data(&self, header: &H2cData, data: &[u8]) -> Vec<u8> {
        let mut buffer = [0; HEADER_SIZE_MAX];
        let length = self.writer.h2c_data(&mut buffer, header);
        let mut bytes = buffer[..length].to_vec();
        bytes.extend_from_slice(data);
        if self.writer.data_digest_length(data.len() as u32) > 0 {
            bytes.extend(Digest::of(data).to_bytes());
        }
        bytes
    }

    /// Sends a command; `data` goes in the capsule or waits for R2Ts. The SGL is set here.
    pub(crate) async fn submit(
        &mut self,
        sqe: Sqe,
        data: &[u8],
        reads: u32,
    ) -> Result<u16, Broken> {
        let mut bytes = Vec::new();
        let cid = self.prepare(sqe, data, reads, &mut bytes);
        self.send_bytes(&bytes).await?;
        Ok(cid)
    }

    /// As [`Queue::submit`], but the command is only added to `bytes`, to be sent by the caller.
    pub(crate) fn prepare(
        &mut self,
        mut sqe: Sqe,
        data: &[u8],
        reads: u32,
        bytes: &mut Vec<u8>,
    ) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1);
        sqe.cid = cid;
        let length = data.len() as u32;
        let in_capsule = length > 0 && length <= self.options.in_capsule;
        sqe.sgl = match (length, reads) {
            (0, 0) => SglDescriptor::NONE,
            (0, reads) => SglDescriptor::Transport { length: reads },
            _ if in_capsule => SglDescriptor::InCapsule { offset: 0, length },
            _ => SglDescriptor::Transport { length },
        };
        bytes.extend(self.capsule(&sqe, if in_capsule { data } else { &[] }));
        let data_out = if in_capsule {
            Vec::new()
        } else {
            data.to_vec()
        };
        let pending = Pending {
            data_out,
            ..Pending::default()
        };
        self.pending.insert(cid, pending);
        cid
    }

    /// Waits for the answer to a command and takes its data.
    pub(crate) async fn answer(&mut self, cid: u16) -> Result<(Cqe, Vec<u8>), Broken> {
        loop {
            let pending = self.pending.get_mut(&cid).expect("a command of ours");
            if let Some(cqe) = pending.done {
                let pending = self.pending.remove(&cid).expect("just seen");
                return Ok((cqe, pending.data_in));
            }
            self.step().await?;
        }
    }

    /// A command with this CID is about to be sent by hand.
    pub(crate) fn expect_answer_for(&mut self, cid: u16) {
        self.pending.insert(cid, Pending::default());
    }

    /// Waits for an R2T without answering it.
    pub(crate) async fn receive_r2t(&mut self) -> weir_nvme::tcp::R2t {
        match self.next_event().await.expect("connected") {
            Event::Pdu(Pdu::R2t(r2t)) => r2t,
            event => panic!("{event:?} is no R2T"),
        }
    }

    /// Whether the answer to a command has come.
    pub(crate) fn is_answered(&self, cid: u16) -> bool {
        self.pending[&cid].done.is_some()
    }

    /// Works on the next PDU.
    pub(crate) async fn step(&mut self) -> Result<(), Broken> {
        match self.next_event().await? {
            Event::Pdu(Pdu::CapsuleResponse(cqe)) => self.complete(cqe),
            Event::Pdu(Pdu::R2t(r2t)) => self.send_data(&r2t).await?,
            Event::Pdu(Pdu::C2hData(data)) => {
                let here = self.pending.get(&data.cid).expect("a command of ours");
                let next = here.data_in.len() as u32;
                assert_eq!(data.offset, next, "data comes in order, and once");
                self.c2h_pdus += 1;
                self.current = Some(data.cid);
            }
            Event::Pdu(Pdu::Termination(request)) => return Err(Broken::Terminated(request)),
            Event::DataEnd { pdu, digest } => {
                assert!(digest.is_good(), "the target's data is whole");
                if let DataPdu::C2hData(data) = pdu
                    && data.success
                {
                    self.success_flags += 1;
                    self.complete(Cqe::new(data.cid, 0, Status::SUCCESS));
                }
            }
            event => panic!("{event:?} was not expected"),
        }
        Ok(())
    }

    fn complete(&mut self, cqe: Cqe) {
        let pending = self.pending.get_mut(&cqe.cid).expect("a command of ours");
        assert!(pending.done.is_none(), "a command is answered once");
        pending.done = Some(cqe);
    }

    pub(crate) async fn send_data(&mut self, r2t: &weir_nvme::tcp::R2t) -> Result<(), Broken> {
        let data = self.pending[&r2t.cid].data_out.clone();
        let mut offset = r2t.offset;
        let end = r2t.offset + r2t.length;
        while offset < end {
            let length = (end - offset).min(self.maximum_h2c_data);
            let header = H2cData {
                cid: r2t.cid,
                transfer_tag: r2t.transfer_tag,
                offset,
                length,
                last: offset + length == end,
            };
            let part = &data[offset as usize..(offset + length) as usize];
            let bytes = self.h2c_data(&header, part);
            self.h2c_pdus += 1;
            self.send_bytes(&bytes).await?;
            offset += length;
        }
        Ok(())
    }

    /// A command and its answer.
    pub(crate) async fn command(&mut self, sqe: Sqe, data: &[u8], reads: u32) -> (Cqe, Vec<u8>) {
        let cid = self.submit(sqe, data, reads).await.expect("connected");
        self.answer(cid).await.expect("connected")
    }

    /// A command that must succeed.
    pub(crate) async fn expect(&mut self, sqe: Sqe, data: &[u8], reads: u32) -> (Cqe, Vec<u8>) {
        let (cqe, read) = self.command(sqe, data, reads).await;
        assert!(cqe.status.is_success(), "{:?} of {sqe:?}", cqe.status);
        (cqe, read)
    }

    /// Connect, with the answer as it is.
    pub(crate) async fn connect_as(&mut self, qid: u16, data: &ConnectData) -> Result<Cqe, Broken> {
        let attributes = if self.options.flow_control_off {
            ConnectAttributes::DISABLE_SQ_FLOW_CONTROL
        } else {
            ConnectAttributes::NONE
        };
        let connect = FabricsCommand::Connect(Connect {
            record_format: 0,
            qid,
            sqsize: self.options.entries - 1,
            attributes,
            keep_alive_timeout_ms: self.options.keep_alive_ms,
        });
        let sqe = connect.sqe(0, SglDescriptor::NONE);
        let cid = self.submit(sqe, &data.encode(), 0).await?;
        Ok(self.answer(cid).await?.0)
    }

    pub(crate) async fn property(&mut self, property: Property) -> u64 {
        let size = if property == Property::Capabilities {
            PropertySize::EightBytes
        } else {
            PropertySize::FourBytes
        };
        let get = FabricsCommand::PropertyGet(PropertyGet {
            size,
            offset: property.value(),
        });
        let (cqe, _) = self.expect(get.sqe(0, SglDescriptor::NONE), &[], 0).await;
        cqe.result
    }

    pub(crate) async fn set_configuration(&mut self, configuration: Configuration) -> Cqe {
        let set = FabricsCommand::PropertySet(PropertySet {
            size: PropertySize::FourBytes,
            offset: Property::Configuration.value(),
            value: u64::from(configuration.0),
        });
        self.command(set.sqe(0, SglDescriptor::NONE), &[], 0)
            .await
            .0
    }

    pub(crate) async fn admin(
        &mut self,
        command: AdminCommand,
        data: &[u8],
        reads: u32,
    ) -> (Cqe, Vec<u8>) {
        self.command(command.sqe(0, SglDescriptor::NONE), data, reads)
            .await
    }

    pub(crate) async fn identify(&mut self, cns: Cns, nsid: u32) -> (Cqe, Vec<u8>) {
        let identify = AdminCommand::Identify(Identify::new(cns, nsid));
        self.admin(identify, &[], 4096).await
    }

    pub(crate) async fn identify_controller(&mut self) -> IdentifyController {
        let (cqe, data) = self.identify(Cns::Controller, 0).await;
        assert!(cqe.status.is_success(), "{:?}", cqe.status);
        IdentifyController::parse(&data).expect("4096 bytes")
    }

    pub(crate) async fn nvm(
        &mut self,
        command: NvmCommand,
        nsid: u32,
        data: &[u8],
        reads: u32,
    ) -> (Cqe, Vec<u8>) {
        self.command(command.sqe(0, nsid, SglDescriptor::NONE), data, reads)
            .await
    }
}

/// The configuration that enables a controller.
pub(crate) fn enabled() -> Configuration {
    Configuration::default()
        .with_entry_sizes(6, 4)
        .with_enabled(true)
}

pub(crate) fn connect_data(controller_id: u16, subsystem: &str) -> ConnectData {
    connect_data_of(HOST_ID, controller_id, subsystem)
}

fn connect_data_of(host: HostId, controller_id: u16, subsystem: &str) -> ConnectData {
    ConnectData::new(host, controller_id, &nqn(subsystem), &nqn(HOST))
}

/// An admin queue of an enabled controller.
pub(crate) async fn admin_queue(
    reactor: &Reactor,
    address: SocketAddr,
    subsystem: &str,
    options: HostOptions,
) -> (Queue, u16) {
    admin_queue_of(reactor, address, HOST_ID, subsystem, options).await
}

/// As [`admin_queue`], of a host with this identifier.
pub(crate) async fn admin_queue_of(
    reactor: &Reactor,
    address: SocketAddr,
    host: HostId,
    subsystem: &str,
    options: HostOptions,
) -> (Queue, u16) {
    let mut queue = Queue::open(reactor, address, options)
        .await
        .expect("a connection");
    let data = connect_data_of(host, ConnectData::ANY_CONTROLLER, subsystem);
    let cqe = queue.connect_as(0, &data).await.expect("an answer");
    assert!(cqe.status.is_success(), "{:?}", cqe.status);
    let cqe_enabled = queue.set_configuration(enabled()).await;
    assert!(cqe_enabled.status.is_success());
    assert_eq!(
        queue.property(Property::Status).await & 1,
        1,
        "the controller is ready"
    );
    (queue, cqe.dw0() as u16)
}

/// An I/O queue of a controller.
pub(crate) async fn io_queue(
    reactor: &Reactor,
    address: SocketAddr,
    controller_id: u16,
    qid: u16,
    options: HostOptions,
) -> Queue {
    io_queue_of(reactor, address, HOST_ID, controller_id, qid, options).await
}

/// As [`io_queue`], of a host with this identifier.
pub(crate) async fn io_queue_of(
    reactor: &Reactor,
    address: SocketAddr,
    host: HostId,
    controller_id: u16,
    qid: u16,
    options: HostOptions,
) -> Queue {
    let mut queue = Queue::open(reactor, address, options)
        .await
        .expect("a connection");
    let data = connect_data_of(host, controller_id, SUBSYSTEM);
    let cqe = queue.connect_as(qid, &data).await.expect("an answer");
    assert!(cqe.status.is_success(), "{:?}", cqe.status);
    queue
}

/// Waits until `holds`, looking now and then.
pub(crate) async fn eventually(
    reactor: &Reactor,
    what: &str,
    mut holds: impl AsyncFnMut() -> bool,
) {
    for _ in 0..10_000 {
        if holds().await {
            return;
        }
        reactor.sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come true");
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|index| (seed.wrapping_mul(0x9e37_79b9) ^ index.wrapping_mul(0x85eb_ca6b) >> 7) as u8)
        .collect()
}
