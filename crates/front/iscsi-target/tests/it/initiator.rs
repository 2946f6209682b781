//! A front end to try, and a small initiator for it.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_block::Volume;
use weir_digest::Digest;
use weir_front::{HubLimits, Hubs};
use weir_iscsi::login::{
    InitiatorChap, InitiatorLogin, InitiatorLoginError, InitiatorSettings, InitiatorStep, LoggedIn,
    SessionType,
};
use weir_iscsi::names::Name;
use weir_iscsi::negotiation::{DigestPolicy, Offer};
use weir_iscsi::pdu::{
    Cid, DataIn, DataOut, Header, Isid, Itt, NopOut, Pdu, Residual, ScsiCommand, Side,
    TaskAttribute, TaskFunction, TaskManagementRequest, TaskResponse, Tsih, Ttt, parse_sense,
};
use weir_iscsi::reader::{Event, Reader};
use weir_iscsi::serial::Serial;
use weir_iscsi::writer::{HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};
use weir_iscsi_target::{Iscsi, IscsiConfig, ListenerConfig, Lun, Portal, Snapshot, Target};
use weir_memory::{Gather, View};
use weir_reactor::{SocketOptions, TcpStream};
use weir_scsi::sense::{Sense, Status};
use weir_testing::world::World;
use weir_volume::{Access, Guard, GuardConfig, MemVolume};

pub(crate) const TARGET: &str = "iqn.2026-01.org.example:disks";
pub(crate) const INITIATOR: &str = "iqn.2026-01.org.example:host";
/// Bytes of a block of every volume here.
pub(crate) const BLOCK: usize = 4096;

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A volume of 4 MiB.
pub(crate) fn memory() -> Arc<dyn Volume> {
    let url = "mem:?size=4M&block_size=4096".parse().expect("a URL");
    let volume = MemVolume::open(&url, Access { read_only: false }).expect("memory");
    Guard::new(volume, GuardConfig::default()).expect("a guard")
}

/// A target with one logical unit on memory, and with what `change` makes of it.
pub(crate) fn served(change: impl FnOnce(&mut Target)) -> Snapshot {
    let mut target = Target::new(name(TARGET));
    target.luns = vec![Lun::new(0, memory(), [7; 16])];
    change(&mut target);
    Snapshot {
        targets: vec![target],
        portals: Vec::new(),
    }
}

/// A front end that serves something, and its address.
pub(crate) async fn serve(
    world: &World,
    config: IscsiConfig,
    snapshot: Snapshot,
) -> (Iscsi, SocketAddr) {
    serve_on(world, &hubs(world), config, snapshot).await
}

/// The hubs of a front end.
pub(crate) fn hubs(world: &World) -> Hubs {
    Hubs::new(&world.remotes, &HubLimits::default()).expect("reactors run")
}

/// The same as [`serve`], on hubs that are there.
pub(crate) async fn serve_on(
    world: &World,
    hubs: &Hubs,
    config: IscsiConfig,
    mut snapshot: Snapshot,
) -> (Iscsi, SocketAddr) {
    let iscsi = Iscsi::on(hubs, config).await.expect("it starts");
    let listener = ListenerConfig::new(SocketAddr::new(world.ip, 0));
    let address = iscsi.add_listener(listener).await.expect("it listens");
    snapshot.portals.push(Portal {
        address,
        advertise: None,
    });
    iscsi.apply(snapshot).await.expect("it serves");
    (iscsi, address)
}

/// How an initiator logs in.
pub(crate) fn settings() -> InitiatorSettings {
    InitiatorSettings {
        initiator: name(INITIATOR),
        alias: Some("a test".to_owned()),
        session: SessionType::Normal(name(TARGET)),
        isid: Isid::random([1, 2, 3], 1),
        tsih: Tsih::NONE,
        cid: Cid(1),
        itt: Itt(1),
        cmd_sn: Serial(u32::MAX - 2),
        chap: None,
        offer: Offer {
            max_recv_data_segment_length: 65_536,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            max_outstanding_r2t: 2,
            ..Offer::default()
        },
    }
}

/// The same, with CHAP.
pub(crate) fn settings_with(chap: InitiatorChap) -> InitiatorSettings {
    InitiatorSettings {
        chap: Some(chap),
        ..settings()
    }
}

/// The same, with both digests.
pub(crate) fn settings_with_digests() -> InitiatorSettings {
    let mut settings = settings();
    settings.offer.header_digest = DigestPolicy::Required;
    settings.offer.data_digest = DigestPolicy::Required;
    settings
}

/// The end of a command.
#[derive(Debug, PartialEq)]
pub(crate) struct Ended {
    pub(crate) status: Status,
    pub(crate) sense: Option<Sense>,
    pub(crate) residual: Residual,
    pub(crate) data: Vec<u8>,
}

impl Ended {
    /// The data of a command that ended well.
    pub(crate) fn good(self) -> Vec<u8> {
        assert_eq!(self.status, Status::Good, "{:?}", self.sense);
        self.data
    }

    /// The sense data of one that did not.
    pub(crate) fn sense(self) -> Sense {
        assert_eq!(self.status, Status::CheckCondition);
        self.sense.expect("it has some")
    }
}

/// A command to be sent.
pub(crate) struct Command<'a> {
    pub(crate) cdb: [u8; 16],
    pub(crate) lun: u64,
    pub(crate) attribute: TaskAttribute,
    /// Bytes that are expected from the target; none: data goes there, or nothing.
    pub(crate) reads: u32,
    pub(crate) data: &'a [u8],
    /// Bytes of the data that come with the command, and whether more comes unasked.
    pub(crate) immediate: usize,
    pub(crate) is_final: bool,
}

impl Command<'_> {
    pub(crate) fn new(cdb: &[u8]) -> Self {
        let mut whole = [0; 16];
        whole[..cdb.len()].copy_from_slice(cdb);
        Command {
            cdb: whole,
            lun: 0,
            attribute: TaskAttribute::Simple,
            reads: 0,
            data: &[],
            immediate: 0,
            is_final: true,
        }
    }
}

/// Of a READ (16).
pub(crate) fn read(lba: u64, blocks: u32) -> Command<'static> {
    let mut command = Command::new(&[0x88]);
    command.cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    command.cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    command.reads = blocks * BLOCK as u32;
    command
}

/// Of a WRITE (16), whose data is asked for.
pub(crate) fn write(lba: u64, data: &[u8]) -> Command<'_> {
    let mut command = Command::new(&[0x8a]);
    command.cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    let blocks = (data.len() / BLOCK) as u32;
    command.cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    command.data = data;
    command
}

/// One session.
pub(crate) struct Initiator {
    stream: TcpStream,
    reader: Reader,
    writer: Writer,
    input: View,
    pub(crate) agreed: LoggedIn,
    cmd_sn: Serial,
    last_itt: u32,
    /// The window as the target told it last.
    pub(crate) max_cmd_sn: Serial,
    /// The number that the next answer must have.
    exp_stat_sn: Serial,
    send_segment: usize,
}

impl Initiator {
    pub(crate) async fn login(world: &World, address: SocketAddr) -> Self {
        let session = Self::try_login(world, address, settings()).await;
        session.expect("it logs in")
    }

    pub(crate) async fn try_login(
        world: &World,
        address: SocketAddr,
        settings: InitiatorSettings,
    ) -> Result<Self, InitiatorLoginError> {
        let mut initiator = Self::connect(world, address).await;
        let mut login = InitiatorLogin::new(settings);
        let mut request = login.start();
        loop {
            initiator.send(&request.header, &request.text).await;
            let (pdu, text) = initiator.receive().await.expect("an answer");
            let Pdu::LoginResponse(response) = pdu else {
                panic!("{pdu:?} answers a login");
            };
            let mut random = |bytes: &mut [u8]| bytes.fill(world.reactor.random() as u8);
            match login.receive(&response, &text, &mut random)? {
                InitiatorStep::Send(next) => request = next,
                InitiatorStep::Complete(agreed) => {
                    initiator.begin(*agreed);
                    return Ok(initiator);
                }
            }
        }
    }

    /// A connection without a login.
    pub(crate) async fn connect(world: &World, address: SocketAddr) -> Self {
        let options = SocketOptions::default();
        let stream = TcpStream::connect(&world.reactor, address, &options).await;
        Initiator {
            stream: stream.expect("it connects"),
            reader: Reader::new(Side::Initiator),
            writer: Writer::default(),
            input: View::empty(),
            agreed: nobody(),
            cmd_sn: Serial(0),
            last_itt: 1,
            max_cmd_sn: Serial(0),
            exp_stat_sn: Serial(0),
            send_segment: 0,
        }
    }

    fn begin(&mut self, agreed: LoggedIn) {
        self.writer = agreed.parameters.writer();
        self.reader.establish(agreed.parameters.receive());
        self.cmd_sn = agreed.cmd_sn;
        self.max_cmd_sn = agreed.max_cmd_sn;
        self.exp_stat_sn = agreed.stat_sn;
        self.send_segment = agreed.parameters.peer_max_recv_data_segment_length as usize;
        self.agreed = agreed;
    }

    pub(crate) async fn send<H: Header>(&mut self, header: &H, data: &[u8]) {
        let mut gather = Gather::new();
        let mut bytes = [0; HEADER_SIZE_MAX];
        let written = self.writer.header(&mut bytes, header);
        gather.push_header(&bytes[..written]);
        if !data.is_empty() {
            gather.push_view(View::copy_of(data));
            let mut trailer = [0; TRAILER_SIZE_MAX];
            let digest = Digest::of(data);
            let written = self.writer.trailer(&mut trailer, data.len() as u32, digest);
            gather.push_header(&trailer[..written]);
        }
        // It may have been closed: whoever waits for an answer finds out.
        let _ = self.stream.send(gather).await;
    }

    /// The bytes of a PDU whose data has this digest, where data has one.
    pub(crate) fn encode<H: Header>(&self, header: &H, data: &[u8], digest: Digest) -> Vec<u8> {
        let mut bytes = [0; HEADER_SIZE_MAX];
        let written = self.writer.header(&mut bytes, header);
        let mut whole = bytes[..written].to_vec();
        whole.extend_from_slice(data);
        let mut trailer = [0; TRAILER_SIZE_MAX];
        let written = self.writer.trailer(&mut trailer, data.len() as u32, digest);
        whole.extend_from_slice(&trailer[..written]);
        whole
    }

    /// Sends bytes as they are.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let mut gather = Gather::new();
        gather.push_view(View::copy_of(bytes));
        let _ = self.stream.send(gather).await;
    }

    /// The next PDU with its data; none: the connection has ended.
    pub(crate) async fn receive(&mut self) -> Option<(Pdu, Vec<u8>)> {
        let mut pdu: Option<Pdu> = None;
        let mut data = Vec::new();
        loop {
            let fed = self
                .reader
                .feed(&self.input)
                .expect("the target's PDUs are right");
            if let Some(Event::Data { .. }) = fed.event {
                data.extend_from_slice(&self.input[..fed.consumed]);
            }
            self.input.advance(fed.consumed);
            match fed.event {
                Some(Event::Pdu(header)) if header.data_length() == 0 => {
                    return Some((header, data));
                }
                Some(Event::Pdu(header)) => pdu = Some(header),
                Some(Event::Data { .. }) => {}
                Some(Event::DataEnd { digest }) => {
                    assert!(digest.is_good(), "the data came as it was sent");
                    return Some((pdu.expect("data has a header"), data));
                }
                None => {
                    self.input = self.stream.receive().await.ok()?;
                    if self.input.is_empty() {
                        return None;
                    }
                }
            }
        }
    }

    /// Sends a command, and returns its tag.
    pub(crate) async fn begin_command(&mut self, command: &Command<'_>) -> Itt {
        self.last_itt += 1;
        let itt = Itt(self.last_itt);
        let length = command.data.len() as u32;
        let header = ScsiCommand {
            immediate: false,
            is_final: command.is_final,
            read: command.reads > 0,
            write: length > 0,
            attribute: command.attribute,
            lun: command.lun,
            itt,
            expected_data_length: length.max(command.reads),
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: command.cdb,
            additional: Default::default(),
            data_length: command.immediate as u32,
        };
        self.cmd_sn = self.cmd_sn.next();
        self.send(&header, &command.data[..command.immediate]).await;
        itt
    }

    /// Sends data of a command in PDUs of its own.
    pub(crate) async fn send_data(&mut self, itt: Itt, ttt: Ttt, offset: usize, data: &[u8]) {
        let mut sent = 0;
        for (number, part) in data.chunks(self.send_segment).enumerate() {
            let header = DataOut {
                is_final: sent + part.len() == data.len(),
                lun: 0,
                itt,
                ttt,
                exp_stat_sn: self.exp_stat_sn,
                data_sn: Serial(number as u32),
                buffer_offset: (offset + sent) as u32,
                data_length: part.len() as u32,
            };
            self.send(&header, part).await;
            sent += part.len();
        }
    }

    fn count_answer(&mut self, stat_sn: Serial) {
        assert_eq!(
            stat_sn, self.exp_stat_sn,
            "answers are numbered without a gap"
        );
        self.exp_stat_sn = stat_sn.next();
    }

    /// Does a command to its end, while no other one is under way.
    pub(crate) async fn run(&mut self, command: &Command<'_>) -> Ended {
        let itt = self.begin_command(command).await;
        self.finish(itt, command.data).await
    }

    /// Answers what is asked for, until the command ends.
    pub(crate) async fn finish(&mut self, itt: Itt, data: &[u8]) -> Ended {
        let mut came: Vec<u8> = Vec::new();
        let mut numbers = 0;
        loop {
            let (pdu, bytes) = self.receive().await.expect("an answer");
            match pdu {
                Pdu::R2t(r2t) => {
                    assert_eq!(r2t.itt, itt);
                    let from = r2t.buffer_offset as usize;
                    let to = from + r2t.desired_length as usize;
                    self.send_data(itt, r2t.ttt, from, &data[from..to]).await;
                }
                Pdu::DataIn(part) => {
                    self.check_data_in(&part, itt, numbers, came.len());
                    numbers += 1;
                    came.extend(bytes);
                    if let Some(end) = part.status {
                        self.count_answer(end.stat_sn);
                        self.max_cmd_sn = part.max_cmd_sn;
                        return Ended {
                            status: Status::from_value(end.status),
                            sense: None,
                            residual: end.residual,
                            data: came,
                        };
                    }
                }
                Pdu::ScsiResponse(response) => {
                    assert_eq!(response.itt, itt);
                    self.count_answer(response.serials.stat_sn);
                    self.max_cmd_sn = response.serials.max_cmd_sn;
                    let (sense, _) = parse_sense(&bytes).expect("sense data");
                    return Ended {
                        status: Status::from_value(response.status),
                        sense: Sense::parse(sense).ok(),
                        residual: response.residual,
                        data: came,
                    };
                }
                other => panic!("{other:?} was not expected"),
            }
        }
    }

    fn check_data_in(&self, part: &DataIn, itt: Itt, number: u32, offset: usize) {
        assert_eq!(part.itt, itt);
        assert_eq!(part.data_sn, Serial(number), "data is numbered");
        assert_eq!(part.buffer_offset as usize, offset, "data comes in order");
        let most = self.agreed.parameters.max_recv_data_segment_length;
        assert!(part.data_length <= most, "no more than was declared");
    }

    /// Asks for a task management function, and returns the request's tag.
    pub(crate) async fn manage(&mut self, function: TaskFunction, lun: u64, of: Itt) -> Itt {
        self.last_itt += 1;
        let itt = Itt(self.last_itt);
        let header = TaskManagementRequest {
            immediate: true,
            function,
            lun,
            itt,
            referenced: of,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn: self.cmd_sn,
            exp_data_sn: Serial(0),
            data_length: 0,
        };
        self.send(&header, &[]).await;
        itt
    }

    /// The answer to a task management function.
    pub(crate) async fn managed(&mut self, itt: Itt) -> TaskResponse {
        let (pdu, _) = self.receive().await.expect("an answer");
        let Pdu::TaskManagementResponse(response) = pdu else {
            panic!("{pdu:?} answers a task management function");
        };
        assert_eq!(response.itt, itt);
        self.count_answer(response.serials.stat_sn);
        response.response
    }

    /// Sends a ping with data, and returns what comes back.
    pub(crate) async fn ping(&mut self, data: &[u8]) -> Vec<u8> {
        self.last_itt += 1;
        let itt = Itt(self.last_itt);
        let header = NopOut {
            immediate: true,
            lun: 0,
            itt,
            ttt: Ttt::RESERVED,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_length: data.len() as u32,
        };
        self.send(&header, data).await;
        let (pdu, data) = self.receive().await.expect("an answer");
        let Pdu::NopIn(nop) = pdu else {
            panic!("{pdu:?} answers a ping");
        };
        assert_eq!(nop.itt, itt);
        self.count_answer(nop.serials.stat_sn);
        data
    }

    /// Tells whether the window admits another command.
    pub(crate) fn may_begin(&self) -> bool {
        self.cmd_sn.0.wrapping_sub(self.max_cmd_sn.0) as i32 <= 0
    }

    /// The number of the next command, which an immediate one has too.
    pub(crate) fn next_number(&self) -> Serial {
        self.cmd_sn
    }

    pub(crate) fn next_numbers(&mut self) -> (Serial, Serial) {
        let number = self.cmd_sn;
        self.cmd_sn = number.next();
        (number, self.exp_stat_sn)
    }

    pub(crate) fn answered(&mut self, stat_sn: Serial) {
        self.count_answer(stat_sn);
    }
}

/// Bytes that differ from block to block.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    let byte = |at: usize| (at / 97) as u8 ^ seed;
    (0..bytes).map(byte).collect()
}

/// What is agreed before anybody has logged in: nothing.
fn nobody() -> LoggedIn {
    LoggedIn {
        initiator: name(INITIATOR),
        initiator_alias: None,
        session: SessionType::Discovery,
        isid: Isid([0; 6]),
        tsih: Tsih::NONE,
        cid: Cid(0),
        parameters: Default::default(),
        cmd_sn: Serial(0),
        stat_sn: Serial(0),
        max_cmd_sn: Serial(0),
        user: None,
    }
}
