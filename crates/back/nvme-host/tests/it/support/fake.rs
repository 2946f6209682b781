//! A scripted controller: enough of a target to answer this initiator, and to misbehave as a test wishes. It is written
//! from the specification alone, so that initiator and target cannot agree on an error.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use weir_digest::Digest;
use weir_memory::{Gather, Segment};
use weir_nvme::command::{
    AdminCommand, ConnectData, ConnectResponse, DatasetManagementRange, FabricsCommand, NvmCommand,
};
use weir_nvme::event::{AsynchronousEvent, EventType};
use weir_nvme::feature::{FeatureId, NumberOfQueues};
use weir_nvme::identify::{
    AsynchronousEventsSupported, Cns, CommandSetController, ControllerAttributes, ControllerType,
    DeallocateFeatures, FusedOperations, IdentifyController, IdentifyNamespace, LbaFormat,
    NamespaceDescriptors, OptionalFabricsCommands, OptionalNvmCommands, SglSupport, VolatileCache,
};
use weir_nvme::log::{
    AddressFamily, DiscoveryLogEntry, DiscoveryLogHeader, LogId, SubsystemType, TransportType,
};
use weir_nvme::property::{Capabilities, Configuration, Property, ShutdownNotification};
use weir_nvme::sgl::Payload;
use weir_nvme::sqe::Fuse;
use weir_nvme::tcp::{
    Alignment, C2hData, DataPdu, DigestOptions, Event, HEADER_SIZE_MAX, InitializeResponse, Pdu,
    R2t, Reader, ReceiveParameters, Side, Writer,
};
use weir_nvme::{Cqe, Nqn, Sqe, Status};
use weir_reactor::{Amount, Reactor, ReceiveInto, Received, SocketOptions, TcpListener, TcpStream};

/// The subsystem that the fake is.
pub(crate) const SUBSYSTEM: &str = "nqn.2024-01.com.example:fake";
/// Its port.
pub(crate) const PORT: u16 = 4420;

/// What the fake does with a command that it got whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Carries it out and answers.
    Serve,
    /// Answers with this and does nothing.
    Answer(Status),
    /// Does nothing, ever.
    Swallow,
    /// Closes the connection without carrying it out.
    Cut,
    /// Carries it out, and closes the connection instead of answering.
    ServeAndCut,
}

type Hook = Box<dyn FnMut(u16, &Sqe) -> Action>;

/// How the fake is.
pub(crate) struct Script {
    pub(crate) block_size: usize,
    pub(crate) in_capsule_bytes: u32,
    pub(crate) maximum_h2c_data: u32,
    pub(crate) alignment: u8,
    /// An R2T asks for so much at most.
    pub(crate) r2t_bytes: u32,
    /// A C2HData carries so much at most.
    pub(crate) c2h_bytes: u32,
    pub(crate) success_flag: bool,
    pub(crate) digests: DigestOptions,
    pub(crate) maximum_data_transfer_size: u8,
    pub(crate) queues: u16,
    pub(crate) optional_commands: OptionalNvmCommands,
    pub(crate) fused: bool,
    pub(crate) traffic_based: bool,
    pub(crate) queue_entries: u32,
    /// Damages the digest of this many C2HData.
    pub(crate) damage: u32,
    /// Whether keep-alives and property commands of old controllers are answered.
    pub(crate) answer_admin: bool,
    /// Every byte of the namespace's NGUID.
    pub(crate) nguid: u8,
    /// What Identify answers for the namespace's descriptors. None: they are there, and hold a UUID.
    pub(crate) descriptors: Option<Status>,
    /// Whether controllers stay ready when they are reset, as those whose commands take long.
    pub(crate) busy: bool,
    /// Whether Connect of an I/O queue is refused.
    pub(crate) refuse_io: bool,
    /// Whether Connect is refused.
    pub(crate) refuse: bool,
    pub(crate) volatile_cache: bool,
    /// Power fails before the next controller is made: every other one ends.
    pub(crate) power_fails_at_connect: bool,
    pub(crate) hook: Hook,
    pub(crate) discovery: Vec<DiscoveryLogEntry>,
}

impl Default for Script {
    fn default() -> Self {
        Script {
            block_size: 512,
            in_capsule_bytes: 8192,
            maximum_h2c_data: 131_072,
            alignment: 0,
            r2t_bytes: u32::MAX,
            c2h_bytes: u32::MAX,
            success_flag: true,
            digests: DigestOptions(3),
            maximum_data_transfer_size: 5,
            queues: 64,
            optional_commands: OptionalNvmCommands(0xffff),
            fused: true,
            traffic_based: true,
            queue_entries: 1024,
            damage: 0,
            answer_admin: true,
            nguid: 1,
            // As of a controller before NVMe 1.3.
            descriptors: Some(Status::INVALID_FIELD_IN_COMMAND),
            busy: false,
            refuse_io: false,
            refuse: false,
            volatile_cache: true,
            power_fails_at_connect: false,
            hook: Box::new(|_, _| Action::Serve),
            discovery: Vec::new(),
        }
    }
}

/// One controller of the fake.
struct Controller {
    id: u16,
    configuration: Cell<u32>,
    /// I/O queues and the admin queue end when this is cleared.
    alive: Cell<bool>,
    events: RefCell<VecDeque<u16>>,
}

/// The fake's state: what a test looks at and changes.
pub(crate) struct Fake {
    pub(crate) script: RefCell<Script>,
    pub(crate) media: RefCell<Vec<u8>>,
    /// Writes carried out: first block, blocks.
    pub(crate) writes: RefCell<Vec<(u64, u32)>>,
    /// Commands seen by opcode, on I/O queues.
    pub(crate) seen: RefCell<BTreeMap<u8, u32>>,
    /// The longest run of blocks seen in a command.
    pub(crate) longest: Cell<u32>,
    pub(crate) keep_alives: Cell<u32>,
    pub(crate) aborts: RefCell<Vec<(u16, u16)>>,
    pub(crate) connects: RefCell<Vec<u16>>,
    pub(crate) disconnects: Cell<u32>,
    pub(crate) shutdowns: Cell<u32>,
    pub(crate) resets: Cell<u32>,
    pub(crate) generation: Cell<u64>,
    /// Shows another generation for each look at the discovery log.
    pub(crate) restless: Cell<u32>,
    controllers: RefCell<BTreeMap<u16, Rc<Controller>>>,
    next_controller: Cell<u16>,
    pending_events: RefCell<VecDeque<EventType>>,
}

impl Fake {
    pub(crate) fn new(blocks: usize, script: Script) -> Rc<Fake> {
        Rc::new(Fake {
            media: RefCell::new(vec![0; blocks * script.block_size]),
            script: RefCell::new(script),
            writes: RefCell::default(),
            seen: RefCell::default(),
            longest: Cell::default(),
            keep_alives: Cell::default(),
            aborts: RefCell::default(),
            connects: RefCell::default(),
            disconnects: Cell::default(),
            shutdowns: Cell::default(),
            resets: Cell::default(),
            generation: Cell::new(1),
            restless: Cell::default(),
            controllers: RefCell::default(),
            next_controller: Cell::new(1),
            pending_events: RefCell::default(),
        })
    }

    /// Serves on `reactor` from now on.
    pub(crate) fn listen(self: &Rc<Self>, reactor: &Reactor) {
        let address = format!("0.0.0.0:{PORT}").parse().unwrap();
        let options = SocketOptions::default();
        let listener = Arc::clone(reactor.system())
            .listen(address, &options)
            .unwrap();
        let listener = TcpListener::new(reactor, listener);
        let (fake, on) = (Rc::clone(self), reactor.clone());
        let accept = async move {
            loop {
                let stream = listener.accept().await.unwrap();
                on.spawn(Rc::clone(&fake).connection(stream)).detach();
            }
        };
        reactor.spawn(accept).detach();
    }

    /// Tells the hosts of every controller.
    pub(crate) fn send_event(&self, event: EventType) {
        self.pending_events.borrow_mut().push_back(event);
    }

    /// Ends every controller: its connections close.
    pub(crate) fn end_controllers(&self) {
        for controller in self.controllers.borrow().values() {
            controller.alive.set(false);
        }
    }

    pub(crate) fn blocks(&self) -> u64 {
        (self.media.borrow().len() / self.script.borrow().block_size) as u64
    }

    pub(crate) fn resize(&self, blocks: usize) {
        let size = self.script.borrow().block_size;
        self.media.borrow_mut().resize(blocks * size, 0);
    }

    async fn connection(self: Rc<Self>, stream: TcpStream) {
        let mut peer = Peer {
            fake: Rc::clone(&self),
            reader: Reader::new(Side::Controller),
            writer: Writer::default(),
            out: Gather::new(),
            controller: None,
            qid: 0,
            incoming: None,
            transfers: BTreeMap::new(),
            next_tag: 1,
            compare: None,
            closing: false,
        };
        loop {
            if !stream.is_receiving() {
                stream.start_receive(ReceiveInto::Ring(Amount::Usual));
            }
            let mut nap = pin!(stream.reactor().sleep(Duration::from_millis(5)));
            let received = poll_fn(|context| {
                if let Poll::Ready(received) = stream.poll_received(context) {
                    return Poll::Ready(Some(received));
                }
                nap.as_mut().poll(context).map(|()| None)
            })
            .await;
            // What a controller gets after its end it does not answer.
            if peer.has_ended() {
                return;
            }
            match received {
                Some(Ok(Received::Ring(bytes))) if bytes.is_empty() => return,
                Some(Ok(Received::Ring(bytes))) => peer.receive(&bytes),
                Some(_) => return,
                None => {}
            }
            peer.tell_events();
            if !peer.out.is_empty() {
                let gather = std::mem::take(&mut peer.out);
                if stream.send(gather).await.0.is_err() {
                    return;
                }
            }
            if peer.closing || peer.has_ended() {
                return;
            }
        }
    }
}

/// A command whose data is coming.
struct Incoming {
    sqe: Sqe,
    data: Vec<u8>,
    received: usize,
}

struct Peer {
    fake: Rc<Fake>,
    reader: Reader,
    writer: Writer,
    out: Gather,
    controller: Option<Rc<Controller>>,
    qid: u16,
    incoming: Option<Incoming>,
    /// By transfer tag.
    transfers: BTreeMap<u16, Incoming>,
    next_tag: u16,
    /// The first command of a fused pair, and how its comparison went.
    compare: Option<(u16, Status)>,
    closing: bool,
}

impl Peer {
    /// Its controller has ended.
    fn has_ended(&self) -> bool {
        let controller = self.controller.as_ref();
        controller.is_some_and(|controller| !controller.alive.get())
    }

    fn receive(&mut self, mut bytes: &[u8]) {
        while !self.closing {
            let fed = self
                .reader
                .feed(bytes)
                .expect("the initiator speaks the protocol");
            let (taken, rest) = bytes.split_at(fed.consumed);
            bytes = rest;
            match fed.event {
                None => return,
                Some(Event::Pdu(pdu)) => self.pdu(pdu),
                Some(Event::Data { .. }) => {
                    let incoming = self.incoming.as_mut().expect("data follows its PDU");
                    let start = incoming.received;
                    incoming.data[start..start + taken.len()].copy_from_slice(taken);
                    incoming.received += taken.len();
                }
                Some(Event::DataEnd { pdu, digest }) => {
                    assert!(digest.is_good(), "the initiator's data digests are right");
                    let incoming = self.incoming.take().expect("data follows its PDU");
                    match pdu {
                        DataPdu::H2cData(data) if incoming.received < incoming.data.len() => {
                            if data.last {
                                self.ask(incoming);
                            } else {
                                self.transfers.insert(data.transfer_tag, incoming);
                            }
                        }
                        _ => self.command(&incoming.sqe, &incoming.data),
                    }
                }
            }
        }
    }

    fn pdu(&mut self, pdu: Pdu) {
        match pdu {
            Pdu::InitializeRequest(request) => {
                let script = self.fake.script.borrow();
                let digests = DigestOptions(request.digests.0 & script.digests.0);
                let mut response = InitializeResponse::new(digests, script.maximum_h2c_data);
                response.alignment = script.alignment;
                self.out.push_header(&response.encode());
                let (header, data) = (
                    digests.contains(DigestOptions::HEADER),
                    digests.contains(DigestOptions::DATA),
                );
                self.writer = Writer {
                    header_digest: header,
                    data_digest: data,
                    alignment: Alignment::from_wire(request.alignment).unwrap(),
                };
                self.reader.establish(ReceiveParameters {
                    header_digest: header,
                    data_digest: data,
                    alignment: Alignment::from_wire(script.alignment).unwrap(),
                    maximum_in_capsule: script.in_capsule_bytes.max(8192),
                    maximum_data: script.maximum_h2c_data,
                });
            }
            Pdu::CapsuleCommand(capsule) => self.capsule(capsule.sqe, capsule.data_length),
            Pdu::H2cData(data) => {
                let incoming = self.transfers.remove(&data.transfer_tag);
                let incoming = incoming.expect("the tag is one that was given");
                assert_eq!(incoming.sqe.cid, data.cid);
                assert_eq!(
                    incoming.received, data.offset as usize,
                    "data comes in order"
                );
                self.incoming = Some(incoming);
            }
            Pdu::Termination(request) => panic!("the initiator terminates: {request:?}"),
            other => panic!("not for a controller: {other:?}"),
        }
    }

    fn capsule(&mut self, sqe: Sqe, data_length: u32) {
        let data = sqe.tcp_data().expect("the initiator's SGLs are right");
        match data {
            Payload::InCapsule { length, .. } if length > 0 => {
                assert_eq!(length, data_length);
                let script = self.fake.script.borrow();
                assert!(self.qid == 0 || sqe.is_fabrics() || length <= script.in_capsule_bytes);
                self.incoming = Some(Incoming {
                    sqe,
                    data: vec![0; length as usize],
                    received: 0,
                });
            }
            Payload::Transport { length }
                if length > 0
                    && sqe.data_direction()
                        == weir_nvme::opcode::DataDirection::HostToController =>
            {
                self.ask(Incoming {
                    sqe,
                    data: vec![0; length as usize],
                    received: 0,
                });
            }
            _ => self.command(&sqe, &[]),
        }
    }

    /// Asks for the next part of a command's data.
    fn ask(&mut self, incoming: Incoming) {
        let left = (incoming.data.len() - incoming.received) as u32;
        let r2t = R2t {
            cid: incoming.sqe.cid,
            transfer_tag: self.next_tag,
            offset: incoming.received as u32,
            length: left.min(self.fake.script.borrow().r2t_bytes),
        };
        self.transfers.insert(self.next_tag, incoming);
        self.next_tag = self.next_tag.wrapping_add(1);
        let mut header = [0; HEADER_SIZE_MAX];
        let length = self.writer.r2t(&mut header, &r2t);
        self.out.push_header(&header[..length]);
    }

    fn command(&mut self, sqe: &Sqe, data: &[u8]) {
        let action = match self.qid {
            0 => Action::Serve,
            _ => (self.fake.script.borrow_mut().hook)(self.qid, sqe),
        };
        let fabrics = sqe.is_fabrics();
        if self.qid > 0 && !fabrics {
            *self.fake.seen.borrow_mut().entry(sqe.opcode).or_default() += 1;
        }
        match action {
            _ if fabrics => self.fabrics(sqe, data),
            Action::Serve if self.qid == 0 => self.admin(sqe),
            Action::Serve => {
                let (status, data) = self.nvm(sqe, data);
                self.answer_with(sqe, status, data);
            }
            Action::Answer(status) => self.answer(sqe, status, 0),
            Action::Swallow => {}
            Action::Cut => self.closing = true,
            Action::ServeAndCut => {
                self.nvm(sqe, data);
                self.closing = true;
            }
        }
    }

    fn answer(&mut self, sqe: &Sqe, status: Status, result: u64) {
        let cqe = Cqe::new(sqe.cid, 0, status).with_result(result);
        let mut header = [0; HEADER_SIZE_MAX];
        let length = self.writer.capsule_response(&mut header, &cqe);
        self.out.push_header(&header[..length]);
    }

    fn answer_with(&mut self, sqe: &Sqe, status: Status, data: Vec<u8>) {
        if !status.is_success() || data.is_empty() {
            return self.answer(sqe, status, 0);
        }
        let (success_flag, chunk) = {
            let script = self.fake.script.borrow();
            (script.success_flag, script.c2h_bytes as usize)
        };
        let chunks = data.chunks(chunk).count();
        let mut offset = 0;
        for (index, part) in data.chunks(chunk).enumerate() {
            let last = index + 1 == chunks;
            let pdu = C2hData {
                cid: sqe.cid,
                offset,
                length: part.len() as u32,
                last,
                success: last && success_flag,
            };
            let mut header = [0; HEADER_SIZE_MAX];
            let length = self.writer.c2h_data(&mut header, &pdu);
            self.out.push_header(&header[..length]);
            self.out.push_view(Segment::copy_of(part).freeze());
            if self.writer.data_digest {
                let mut digest = Digest::of(part).to_bytes();
                let mut script = self.fake.script.borrow_mut();
                if self.qid > 0 && script.damage > 0 {
                    script.damage -= 1;
                    digest[0] ^= 1;
                }
                self.out.push_header(&digest);
            }
            offset += part.len() as u32;
        }
        if !success_flag {
            self.answer(sqe, status, 0);
        }
    }

    fn fabrics(&mut self, sqe: &Sqe, data: &[u8]) {
        match FabricsCommand::parse(sqe).expect("a command that exists") {
            FabricsCommand::Connect(connect) => {
                let data = ConnectData::parse(data).expect("1024 bytes");
                let subsystem = data.subsystem().unwrap();
                if subsystem.as_str() != SUBSYSTEM && !subsystem.is_discovery() {
                    return self.answer(sqe, Status::CONNECT_INVALID_PARAMETERS, 0x1_0100);
                }
                assert!(!data.host_id.is_zero());
                self.fake.connects.borrow_mut().push(connect.qid);
                let refuse_io = self.fake.script.borrow().refuse_io && connect.qid > 0;
                if self.fake.script.borrow().refuse || refuse_io {
                    return self.answer(sqe, Status::CONNECT_CONTROLLER_BUSY, 0);
                }
                self.qid = connect.qid;
                let controller = if connect.qid == 0 {
                    if self.fake.script.borrow().power_fails_at_connect {
                        self.fake.end_controllers();
                    }
                    self.new_controller()
                } else {
                    let known = self.fake.controllers.borrow();
                    let found = known.get(&data.controller_id).cloned();
                    drop(known);
                    match found.filter(|controller| controller.alive.get()) {
                        Some(controller) => controller,
                        None => {
                            return self.answer(sqe, Status::CONNECT_INVALID_PARAMETERS, 0x1_0010);
                        }
                    }
                };
                let response = ConnectResponse {
                    controller_id: controller.id,
                    authentication: 0,
                };
                self.controller = Some(controller);
                self.answer(sqe, Status::SUCCESS, response.to_result().into());
            }
            FabricsCommand::PropertyGet(get) => {
                let value = self.property(Property::from_value(get.offset));
                self.answer(sqe, Status::SUCCESS, value);
            }
            FabricsCommand::PropertySet(set) => {
                assert_eq!(Property::from_value(set.offset), Property::Configuration);
                self.configure(set.value as u32);
                if self.fake.script.borrow().answer_admin {
                    self.answer(sqe, Status::SUCCESS, 0);
                }
            }
            FabricsCommand::Disconnect { .. } => {
                assert!(self.qid > 0, "the admin queue is not disconnected");
                self.fake.disconnects.set(self.fake.disconnects.get() + 1);
                self.answer(sqe, Status::SUCCESS, 0);
            }
            other => panic!("not expected: {other:?}"),
        }
    }

    fn new_controller(&self) -> Rc<Controller> {
        let id = self.fake.next_controller.get();
        self.fake.next_controller.set(id + 1);
        let controller = Rc::new(Controller {
            id,
            configuration: Cell::new(0),
            alive: Cell::new(true),
            events: RefCell::default(),
        });
        self.fake
            .controllers
            .borrow_mut()
            .insert(id, Rc::clone(&controller));
        controller
    }

    fn property(&self, property: Property) -> u64 {
        let configuration = self
            .controller
            .as_ref()
            .expect("connected")
            .configuration
            .get();
        let configuration = Configuration(configuration);
        match property {
            Property::Capabilities => {
                Capabilities(0)
                    .with_maximum_queue_entries(self.fake.script.borrow().queue_entries)
                    .with_contiguous_queues_required(true)
                    .with_timeout_500ms(2)
                    .with_command_sets(Capabilities::COMMAND_SETS_NVM)
                    .0
            }
            Property::Status => {
                let shut = configuration.shutdown() != ShutdownNotification::None;
                let ready = configuration.enabled() || self.fake.script.borrow().busy;
                u64::from(ready) | if shut { 0b10 << 2 } else { 0 }
            }
            other => panic!("{other} is not asked for"),
        }
    }

    fn configure(&mut self, value: u32) {
        let controller = self.controller.as_ref().expect("connected");
        let (before, after) = (
            Configuration(controller.configuration.get()),
            Configuration(value),
        );
        controller.configuration.set(value);
        if after.shutdown() == ShutdownNotification::Normal {
            self.fake.shutdowns.set(self.fake.shutdowns.get() + 1);
        } else if before.enabled() && !after.enabled() {
            self.fake.resets.set(self.fake.resets.get() + 1);
            // The I/O queues end; the admin queue lives to say so.
            let fresh = Rc::new(Controller {
                id: controller.id,
                configuration: Cell::new(value),
                alive: Cell::new(true),
                events: RefCell::default(),
            });
            controller.alive.set(false);
            self.fake
                .controllers
                .borrow_mut()
                .insert(fresh.id, Rc::clone(&fresh));
            self.controller = Some(fresh);
        }
    }

    fn admin(&mut self, sqe: &Sqe) {
        match AdminCommand::parse(sqe).expect("a command that exists") {
            AdminCommand::Identify(identify) => {
                let data = match identify.cns {
                    Cns::Controller => self.identify_controller(),
                    Cns::Namespace => self.identify_namespace(identify.nsid),
                    Cns::CommandSetController => CommandSetController::default().encode().to_vec(),
                    Cns::NamespaceDescriptors => {
                        let (refusal, nguid) = {
                            let script = self.fake.script.borrow();
                            (script.descriptors, script.nguid)
                        };
                        if let Some(status) = refusal {
                            return self.answer(sqe, status, 0);
                        }
                        let ids = NamespaceDescriptors::nvm([nguid; 16], [nguid; 16], [0; 8]);
                        ids.encode().to_vec()
                    }
                    _ => return self.answer(sqe, Status::INVALID_FIELD_IN_COMMAND, 0),
                };
                self.answer_with(sqe, Status::SUCCESS, data);
            }
            AdminCommand::SetFeatures(set) => {
                let result = match set.feature {
                    FeatureId::NumberOfQueues => {
                        let asked = NumberOfQueues::from_dword(set.cdw11);
                        let granted = asked
                            .submission
                            .min(self.fake.script.borrow().queues.into());
                        NumberOfQueues {
                            submission: granted,
                            completion: granted,
                        }
                        .to_dword()
                    }
                    _ => 0,
                };
                self.answer(sqe, Status::SUCCESS, result.into());
            }
            AdminCommand::GetFeatures(_) => {
                self.answer(sqe, Status::INVALID_FIELD_IN_COMMAND, 0);
            }
            AdminCommand::KeepAlive => {
                self.fake.keep_alives.set(self.fake.keep_alives.get() + 1);
                if self.fake.script.borrow().answer_admin {
                    self.answer(sqe, Status::SUCCESS, 0);
                }
            }
            AdminCommand::Abort(abort) => {
                self.fake.aborts.borrow_mut().push((abort.sqid, abort.cid));
                self.answer(sqe, Status::SUCCESS, 1);
            }
            AdminCommand::AsynchronousEventRequest => {
                let controller = self.controller.as_ref().expect("connected");
                controller.events.borrow_mut().push_back(sqe.cid);
            }
            AdminCommand::GetLogPage(get) => {
                let log = match get.log_id {
                    LogId::Discovery => self.discovery_log(),
                    _ => vec![0; 4096],
                };
                let start = get.offset as usize;
                let data = log[start..start + get.length() as usize].to_vec();
                self.answer_with(sqe, Status::SUCCESS, data);
            }
        }
    }

    fn discovery_log(&self) -> Vec<u8> {
        if self.fake.restless.get() > 0 {
            self.fake.restless.set(self.fake.restless.get() - 1);
            self.fake.generation.set(self.fake.generation.get() + 1);
        }
        let script = self.fake.script.borrow();
        let header = DiscoveryLogHeader {
            generation: self.fake.generation.get(),
            records: script.discovery.len() as u64,
            record_format: 0,
        };
        let entries = script.discovery.iter().flat_map(|entry| entry.encode());
        header.encode().into_iter().chain(entries).collect()
    }

    fn tell_events(&mut self) {
        if self.qid != 0 {
            return;
        }
        let Some(controller) = self.controller.clone() else {
            return;
        };
        if controller.events.borrow().is_empty() {
            return;
        }
        let Some(event) = self.fake.pending_events.borrow_mut().pop_front() else {
            return;
        };
        let cid = controller.events.borrow_mut().pop_front().unwrap();
        let sqe = Sqe {
            cid,
            ..Sqe::default()
        };
        let dword = AsynchronousEvent::new(event).to_dword();
        self.answer(&sqe, Status::SUCCESS, dword.into());
    }

    fn identify_controller(&self) -> Vec<u8> {
        let script = self.fake.script.borrow();
        IdentifyController {
            controller_id: self.controller.as_ref().expect("connected").id,
            maximum_data_transfer_size: script.maximum_data_transfer_size,
            asynchronous_events: AsynchronousEventsSupported::NAMESPACE_ATTRIBUTE,
            attributes: match script.traffic_based {
                true => ControllerAttributes::TRAFFIC_BASED_KEEP_ALIVE,
                false => ControllerAttributes::NONE,
            },
            controller_type: match script.discovery.is_empty() {
                true => ControllerType::Io,
                false => ControllerType::Discovery,
            },
            keep_alive_granularity: 10,
            optional_nvm_commands: script.optional_commands,
            fused_operations: match script.fused {
                true => FusedOperations::COMPARE_AND_WRITE,
                false => FusedOperations::NONE,
            },
            volatile_write_cache: match script.volatile_cache {
                true => VolatileCache::PRESENT,
                false => VolatileCache::NONE,
            },
            atomic_write_unit: 15,
            atomic_compare_and_write_unit: 15,
            sgl_support: SglSupport::SUPPORTED,
            io_command_capsule_size: (64 + script.in_capsule_bytes) / 16,
            io_response_capsule_size: 1,
            optional_fabrics_commands: OptionalFabricsCommands::DISCONNECT,
            subsystem_nqn: Nqn::new(SUBSYSTEM).unwrap().to_field(),
            ..IdentifyController::default()
        }
        .encode()
        .to_vec()
    }

    fn identify_namespace(&self, nsid: u32) -> Vec<u8> {
        if nsid != 1 {
            return vec![0; 4096];
        }
        let mut namespace = IdentifyNamespace {
            size: self.fake.blocks(),
            capacity: self.fake.blocks(),
            deallocate_features: DeallocateFeatures(0b1001),
            nguid: [self.fake.script.borrow().nguid; 16],
            ..IdentifyNamespace::default()
        };
        let exponent = self.fake.script.borrow().block_size.trailing_zeros() as u8;
        namespace.lba_formats[0] = LbaFormat::new(exponent);
        namespace.encode().to_vec()
    }

    /// Carries an I/O command out.
    fn nvm(&mut self, sqe: &Sqe, data: &[u8]) -> (Status, Vec<u8>) {
        assert_eq!(sqe.nsid, 1);
        let command = NvmCommand::parse(sqe).expect("a command that exists");
        let size = self.fake.script.borrow().block_size;
        let total = self.fake.blocks();
        let range = |lba: u64, blocks: u32| {
            let longest = self.fake.longest.get().max(blocks);
            self.fake.longest.set(longest);
            let fits = lba
                .checked_add(blocks.into())
                .is_some_and(|end| end <= total);
            let start = lba as usize * size;
            fits.then(|| start..start + blocks as usize * size)
                .ok_or(Status::LBA_OUT_OF_RANGE)
        };
        let fail = |status| (status, Vec::new());
        let media = &self.fake.media;
        match command {
            NvmCommand::Flush => fail(Status::SUCCESS),
            NvmCommand::Read(blocks) => match range(blocks.lba, blocks.blocks) {
                Ok(range) => (Status::SUCCESS, media.borrow()[range].to_vec()),
                Err(status) => fail(status),
            },
            NvmCommand::Write(blocks) => {
                if sqe.fuse == Fuse::Second {
                    let (_, compared) = self.compare.take().expect("the first comes before");
                    if !compared.is_success() {
                        return fail(Status::ABORTED_FAILED_FUSED_COMMAND);
                    }
                }
                match range(blocks.lba, blocks.blocks) {
                    Ok(range) => {
                        assert_eq!(data.len(), range.len());
                        media.borrow_mut()[range].copy_from_slice(data);
                        self.fake
                            .writes
                            .borrow_mut()
                            .push((blocks.lba, blocks.blocks));
                        fail(Status::SUCCESS)
                    }
                    Err(status) => fail(status),
                }
            }
            NvmCommand::Compare(blocks) => {
                let status = match range(blocks.lba, blocks.blocks) {
                    Ok(range) if media.borrow()[range.clone()] == *data => Status::SUCCESS,
                    Ok(_) => Status::COMPARE_FAILURE,
                    Err(status) => status,
                };
                if sqe.fuse == Fuse::First {
                    self.compare = Some((sqe.cid, status));
                }
                fail(status)
            }
            NvmCommand::WriteZeroes(zeroes) => match range(zeroes.lba, zeroes.blocks) {
                Ok(range) => {
                    media.borrow_mut()[range].fill(0);
                    fail(Status::SUCCESS)
                }
                Err(status) => fail(status),
            },
            NvmCommand::Verify(verify) => fail(
                range(verify.lba, verify.blocks).map_or_else(|status| status, |_| Status::SUCCESS),
            ),
            NvmCommand::DatasetManagement(command) => {
                assert!(command.deallocate && command.ranges == 1);
                let listed = DatasetManagementRange::parse(data).expect("one range");
                match range(listed.lba, listed.blocks) {
                    Ok(range) => {
                        media.borrow_mut()[range].fill(0);
                        fail(Status::SUCCESS)
                    }
                    Err(status) => fail(status),
                }
            }
            other => panic!("not expected: {other:?}"),
        }
    }
}

/// An entry of a discovery log.
pub(crate) fn discovery_entry(subsystem: &str, address: &str, port: u16) -> DiscoveryLogEntry {
    let mut entry = DiscoveryLogEntry {
        transport_type: TransportType::Tcp,
        address_family: AddressFamily::Ipv4,
        subsystem_type: SubsystemType::Nvm,
        subsystem_nqn: Nqn::new(subsystem).unwrap().to_field(),
        ..DiscoveryLogEntry::default()
    };
    entry.set_address(address, &port.to_string());
    entry
}
