//! The other end: writes PDUs as a target does, and reads what the nexus sends.

use std::cell::RefCell;

use weir_digest::Digest;
use weir_initiator::wire::{Commands, Payload, Wire};
use weir_iscsi::login::{
    Admission, Authentication, Claim, LoggedIn, LoginEnvironment, LoginLimits, Refusal,
    SessionType, TargetLogin, TargetStep,
};
use weir_iscsi::negotiation::Offer;
use weir_iscsi::pdu::{
    DataIn, DataInStatus, DataOut, Header, Isid, LoginRequest, Pdu, R2t, Residual, ResponseCode,
    ResponseSerials, ScsiResponse, TaskManagementResponse, TaskResponse, Tsih,
};
use weir_iscsi::reader::{Event, Reader};
use weir_iscsi::writer::{HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};
use weir_iscsi::{Cid, Itt, Name, Serial, Side, Ttt};
use weir_memory::{Gather, View};

use super::super::{Answer, CHALLENGE_BYTES, Fault, InitiatorSettings, Nexus, Settings};

pub(super) const STAT_SN: Serial = Serial(u32::MAX - 1);
pub(super) const CMD_SN: Serial = Serial(u32::MAX - 2);
pub(super) const SLOTS: u16 = 4;

/// What came of commands, in order; data of one command put together.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) data: RefCell<Vec<(u64, u32, Vec<u8>)>>,
    pub(super) answers: RefCell<Vec<(u64, Answer)>>,
}

impl Commands<Answer> for Seen {
    fn data(&self, user: u64, offset: u32, bytes: &[u8]) {
        self.data.borrow_mut().push((user, offset, bytes.to_vec()));
    }
    fn answer(&self, user: u64, answer: Answer) {
        self.answers.borrow_mut().push((user, answer));
    }
}

impl Seen {
    pub(super) fn whole(&self, user: u64) -> Vec<u8> {
        let data = self.data.borrow();
        let mut whole = Vec::new();
        for (_, offset, bytes) in data.iter().filter(|(of, ..)| *of == user) {
            assert_eq!(*offset as usize, whole.len());
            whole.extend_from_slice(bytes);
        }
        whole
    }

    pub(super) fn take(&self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut *self.answers.borrow_mut())
    }
}

pub(super) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

pub(super) fn login_settings() -> InitiatorSettings {
    InitiatorSettings {
        initiator: name("iqn.2026-01.org.example:host"),
        alias: None,
        session: SessionType::Normal(name("iqn.2026-01.org.example:disks")),
        isid: Isid::random([1, 2, 3], 4),
        tsih: Tsih::NONE,
        cid: Cid(1),
        itt: Itt(9),
        cmd_sn: CMD_SN,
        chap: None,
        offer: Offer {
            max_recv_data_segment_length: 65_536,
            max_burst_length: 1 << 20,
            first_burst_length: 1 << 20,
            max_outstanding_r2t: 8,
            ..Offer::default()
        },
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        login: login_settings(),
        slots: SLOTS,
        challenge: [0x5a; CHALLENGE_BYTES],
    }
}

/// Admits as it is told.
pub(super) struct Door {
    pub(super) admission: Result<Admission, Refusal>,
}

impl Door {
    pub(super) fn open(offer: Offer) -> Door {
        Door::asking(Authentication::None, offer)
    }

    pub(super) fn asking(authentication: Authentication, offer: Offer) -> Door {
        Door {
            admission: Ok(Admission {
                authentication,
                offer,
                portal_group: 1,
                target_alias: None,
            }),
        }
    }
}

impl LoginEnvironment for Door {
    fn admit(&mut self, _: &Claim<'_>) -> Result<Admission, Refusal> {
        self.admission.clone()
    }

    fn random(&mut self, bytes: &mut [u8]) {
        bytes.fill(0x33);
    }
}

/// Everything that the nexus sends now.
pub(super) fn sent(nexus: &mut Nexus) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut gather = Gather::new();
    while nexus.has_output() {
        nexus.transmit(&mut gather);
        assert!(!gather.is_empty(), "what has output sends something");
        bytes.extend(gather.slices().flatten());
        gather.clear();
    }
    bytes
}

/// A header and its data as bytes.
pub(super) fn bytes_of<H: Header>(writer: &Writer, header: &H, data: &[u8]) -> Vec<u8> {
    let mut bytes = [0; HEADER_SIZE_MAX];
    let length = writer.header(&mut bytes, header);
    let mut pdu = bytes[..length].to_vec();
    if !data.is_empty() {
        pdu.extend_from_slice(data);
        let mut trailer = [0; TRAILER_SIZE_MAX];
        let length = writer.trailer(&mut trailer, data.len() as u32, Digest::of(data));
        pdu.extend_from_slice(&trailer[..length]);
    }
    pdu
}

pub(super) struct Target {
    pub(super) nexus: Nexus,
    pub(super) seen: Seen,
    pub(super) writer: Writer,
    reader: Reader,
    /// StatSN of the next response.
    pub(super) stat_sn: Serial,
    /// ExpCmdSN.
    pub(super) exp_cmd_sn: Serial,
    pub(super) max_cmd_sn: Serial,
    pub(super) agreed: Option<LoggedIn>,
    /// Bytes of one receive; 0: all at once.
    pub(super) cut: usize,
}

impl Target {
    /// A target that logged an initiator in.
    pub(super) fn new(offer: Offer) -> Target {
        Target::with(settings(), offer)
    }

    pub(super) fn with(settings: Settings, offer: Offer) -> Target {
        let mut target = Target::connect(settings);
        target.log_in(Door::open(offer), 32);
        assert_eq!(target.nexus.fault(), None);
        assert!(target.agreed.is_some());
        target
    }

    /// One whose initiator has no login yet.
    pub(super) fn connect(settings: Settings) -> Target {
        Target {
            nexus: Nexus::new(settings),
            seen: Seen::default(),
            writer: Writer::default(),
            reader: Reader::new(Side::Target),
            stat_sn: STAT_SN,
            exp_cmd_sn: CMD_SN,
            max_cmd_sn: CMD_SN.minus(1),
            agreed: None,
            cut: 0,
        }
    }

    /// Answers a login to its end.
    pub(super) fn log_in(&mut self, mut door: Door, window: u32) {
        let mut login = TargetLogin::new(STAT_SN, window, LoginLimits::default());
        loop {
            let Some((header, text)) = self.hear_login() else {
                return;
            };
            match login.receive(&header, &text, &mut door) {
                TargetStep::Respond(response) | TargetStep::Refused { response, .. } => {
                    self.say(&response.header, &response.text);
                }
                TargetStep::Complete(agreed) => {
                    let response = login.accept(Tsih(1));
                    self.say(&response.header, &response.text);
                    self.writer = agreed.parameters.writer();
                    self.reader.establish(agreed.parameters.receive());
                    self.stat_sn = agreed.stat_sn;
                    self.max_cmd_sn = agreed.max_cmd_sn;
                    self.agreed = Some(*agreed);
                    return;
                }
            }
        }
    }

    pub(super) fn hear_login(&mut self) -> Option<(LoginRequest, Vec<u8>)> {
        assert_eq!(self.nexus.room(), 0, "nothing is taken before the login");
        match self.hear_all().pop()? {
            (Pdu::LoginRequest(header), text) => Some((header, text)),
            other => panic!("{other:?} is no login"),
        }
    }

    /// What the nexus sends now, with checks of what every PDU has.
    pub(super) fn hear(&mut self) -> Vec<(Pdu, Vec<u8>)> {
        let heard = self.hear_all();
        for (pdu, data) in &heard {
            let header: Option<_> = pdu.encode();
            let header = header.expect("an initiator's PDUs are known");
            let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
            assert_eq!(word(28), self.stat_sn.0, "ExpStatSN of {pdu:?}");
            let longest = self.agreed.as_ref().expect("a login came first");
            assert!(data.len() as u32 <= longest.parameters.max_recv_data_segment_length);
            match pdu {
                Pdu::ScsiCommand(command) => {
                    assert_eq!(command.cmd_sn, self.exp_cmd_sn, "commands come in order");
                    assert!(!command.immediate);
                    assert!(!self.max_cmd_sn.is_before(command.cmd_sn), "in the window");
                    self.exp_cmd_sn = self.exp_cmd_sn.next();
                }
                Pdu::DataOut(_) => {}
                _ => {
                    assert_eq!(word(24), self.exp_cmd_sn.0, "the CmdSN of {pdu:?}");
                    assert_eq!(header[0] & 0x40, 0x40, "{pdu:?} is immediate");
                }
            }
        }
        heard
    }

    fn hear_all(&mut self) -> Vec<(Pdu, Vec<u8>)> {
        let bytes = sent(&mut self.nexus);
        let (mut rest, mut heard, mut data) = (&bytes[..], Vec::new(), Vec::new());
        let mut last = None;
        loop {
            let fed = self
                .reader
                .feed(rest)
                .expect("the initiator's PDUs are right");
            let (taken, left) = rest.split_at(fed.consumed);
            rest = left;
            match fed.event {
                None => {
                    assert_eq!(last, None, "PDUs are sent whole");
                    return heard;
                }
                Some(Event::Data { .. }) => data.extend_from_slice(taken),
                Some(Event::Pdu(pdu)) if pdu.data_length() == 0 => heard.push((pdu, Vec::new())),
                Some(Event::Pdu(pdu)) => last = Some(pdu),
                Some(Event::DataEnd { digest }) => {
                    assert!(digest.is_good());
                    let pdu = last.take().expect("data has a header");
                    heard.push((pdu, std::mem::take(&mut data)));
                }
            }
        }
    }

    pub(super) fn say_bytes(&mut self, bytes: &[u8]) {
        let cut = if self.cut == 0 { bytes.len() } else { self.cut };
        for piece in bytes.chunks(cut.max(1)) {
            self.nexus.receive(piece, &self.seen);
        }
    }

    pub(super) fn say<H: Header>(&mut self, header: &H, data: &[u8]) {
        let bytes = bytes_of(&self.writer, header, data);
        self.say_bytes(&bytes);
    }

    /// Numbers of a PDU that uses up no StatSN.
    pub(super) fn serials(&self) -> ResponseSerials {
        ResponseSerials {
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
        }
    }

    /// Numbers of one that does.
    pub(super) fn next_serials(&mut self) -> ResponseSerials {
        let serials = self.serials();
        self.stat_sn = self.stat_sn.next();
        serials
    }

    pub(super) fn response(&mut self, itt: Itt, status: u8, residual: Residual) -> ScsiResponse {
        ScsiResponse {
            response: ResponseCode::CommandCompleted,
            status,
            itt,
            snack_tag: 0,
            serials: self.next_serials(),
            exp_data_sn: Serial(0),
            read_residual: Residual::None,
            residual,
            data_length: 0,
        }
    }

    pub(super) fn say_status(&mut self, itt: Itt, status: u8, residual: Residual) {
        let response = self.response(itt, status, residual);
        self.say(&response, &[]);
    }

    pub(super) fn say_good(&mut self, itt: Itt) {
        self.say_status(itt, 0, Residual::None);
    }

    pub(super) fn data_in(&self, itt: Itt, data_sn: u32, offset: u32, length: usize) -> DataIn {
        DataIn {
            is_final: false,
            acknowledge: false,
            status: None,
            lun: 0,
            itt,
            ttt: Ttt::RESERVED,
            exp_cmd_sn: self.exp_cmd_sn,
            max_cmd_sn: self.max_cmd_sn,
            data_sn: Serial(data_sn),
            buffer_offset: offset,
            data_length: length as u32,
        }
    }

    pub(super) fn say_data(&mut self, itt: Itt, data_sn: u32, offset: u32, data: &[u8]) {
        let header = self.data_in(itt, data_sn, offset, data.len());
        self.say(&header, data);
    }

    /// Data with GOOD, and a residual.
    pub(super) fn say_last_data(
        &mut self,
        itt: Itt,
        (data_sn, offset): (u32, u32),
        data: &[u8],
        residual: Residual,
    ) {
        let mut header = self.data_in(itt, data_sn, offset, data.len());
        header.is_final = true;
        header.status = Some(DataInStatus {
            status: 0,
            stat_sn: self.next_serials().stat_sn,
            residual,
        });
        self.say(&header, data);
    }

    pub(super) fn r2t(&self, itt: Itt, r2t_sn: u32, offset: u32, length: u32) -> R2t {
        R2t {
            lun: LUN,
            itt,
            ttt: Ttt(0x7000 + r2t_sn),
            serials: self.serials(),
            r2t_sn: Serial(r2t_sn),
            buffer_offset: offset,
            desired_length: length,
            data_length: 0,
        }
    }

    pub(super) fn say_r2t(&mut self, itt: Itt, r2t_sn: u32, offset: u32, length: u32) {
        let header = self.r2t(itt, r2t_sn, offset, length);
        self.say(&header, &[]);
    }

    pub(super) fn say_function(&mut self, itt: Itt, response: TaskResponse) {
        let header = TaskManagementResponse {
            response,
            itt,
            serials: self.next_serials(),
            data_length: 0,
        };
        self.say(&header, &[]);
    }

    pub(super) fn submit(&mut self, payload: Payload, user: u64) -> Itt {
        self.nexus.submit_task(LUN, CDB, payload, user)
    }

    pub(super) fn read(&mut self, length: u32, user: u64) -> Itt {
        self.submit(Payload::In(length), user)
    }

    #[track_caller]
    pub(super) fn assert_fault(&mut self) -> Fault {
        let fault = self.nexus.fault().expect("it cannot go on").clone();
        assert_eq!(self.nexus.room(), 0);
        assert!(!self.nexus.has_output());
        assert!(!fault.to_string().is_empty());
        fault
    }
}

pub(super) const LUN: u64 = 0x4005_0000_0000_0000;
pub(super) const CDB: [u8; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16];
/// GOOD without anything else.
pub(super) const GOOD: Answer = Answer::Scsi {
    status: 0,
    sense: None,
    residual: Residual::None,
};

/// Data to be written, in several pieces of memory, and the same in one.
pub(super) fn out(length: usize) -> (Payload, Vec<u8>) {
    let data: Vec<u8> = (0..length)
        .map(|index| (index * 7 + index / 256) as u8)
        .collect();
    let (one, other) = data.split_at(length / 3);
    let views = [one, other].map(View::copy_of);
    (Payload::Out(views.into_iter().collect()), data)
}

/// The header of a Data-Out.
pub(super) fn data_out(pdu: &Pdu) -> &DataOut {
    match pdu {
        Pdu::DataOut(header) => header,
        other => panic!("{other:?} is no Data-Out"),
    }
}
