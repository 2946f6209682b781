//! The initiator's side of one iSCSI connection: commands in, PDUs out; bytes in, data and answers out.
//!
//! A state machine without socket, clock or randomness (RFC 7143, at error recovery level 0, with one connection a session). It
//! logs in by itself, and then holds what a command sends until the command is answered, and never what a command receives: that
//! is handed on as it arrives. Data that the target may still wait for is sent though the command was answered meanwhile.
//!
//! What the target asks of the session (a logout, the end of the connection) is a fault here: to connect again is the caller's.

mod fault;
mod framing;
mod immediate;
mod login;
mod numbers;
mod table;
mod task;

use std::collections::VecDeque;

use weir_digest::DataDigest;
use weir_initiator::wire::{Commands, Exposure, Payload, Wire};
use weir_iscsi::login::{InitiatorSettings, LoggedIn, SessionType};
use weir_iscsi::negotiation::Parameters;
use weir_iscsi::pdu::{
    AsyncEvent, AsyncMessage, DataIn, LoginResponse, LogoutResponse, LogoutResponseCode, NopIn,
    Opcode, Pdu, R2t, Reject, RejectReason, Residual, ResponseCode, ResponseSerials, ScsiResponse,
    TaskManagementResponse, TaskResponse, TextResponse,
};
use weir_iscsi::reader::{Event, Reader};
use weir_iscsi::writer::Writer;
use weir_iscsi::{Itt, Serial, Side, Ttt};
use weir_memory::Gather;
use weir_scsi::{Sense, Status};

pub(crate) use fault::{Fault, Violation};
use framing::{ResponseData, push};
use immediate::{Immediate, ImmediateKind, TextExchange, nop_out};
pub(crate) use login::CHALLENGE_BYTES;
use login::LoginPhase;
use numbers::Numbers;
use table::Table;
use task::Task;

/// About so many bytes are handed to one send, so that what is ready later does not wait long behind it.
const SEND_BYTES: usize = 512 * 1024;
/// So many pieces of memory are handed to one send at most, a PDU more or less.
const SEND_SLICES: usize = 192;
/// Slots beyond those of tasks, for what is immediate: it must be possible when tasks fill all of theirs.
const IMMEDIATE_SLOTS: u32 = 8;
/// Most pings of the target that are answered at once. None has more than one under way.
const PINGS_MAX: usize = 16;
/// Most bytes of the text that answers a request. Ten thousand targets fit.
const TEXT_MAX: usize = 1024 * 1024;
/// Most bytes of a text that asks: every target takes so many in one PDU (RFC 7143 section 13.12).
pub(crate) const TEXT_REQUEST_MAX: usize = 512;

/// What a nexus is made with.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The login, of a normal session or of one of discovery. It must offer data in order and error recovery level 0.
    pub(crate) login: InitiatorSettings,
    /// Outstanding tasks that are wanted. The target's window may allow fewer.
    pub(crate) slots: u16,
    /// Random bytes for the challenge by which the target must prove itself.
    pub(crate) challenge: [u8; CHALLENGE_BYTES],
}

/// The end of something that was submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A task: the target's status. Where it is GOOD its data moved whole, but for what `residual` says.
    Scsi {
        /// SAM status.
        status: u8,
        /// Sense data, where there is some that can be read.
        sense: Option<Sense>,
        /// Bytes that moved less, or would have been more, than were expected.
        residual: Residual,
    },
    /// A task: GOOD, but its data was damaged or did not move whole.
    Damaged,
    /// A task: it was ended by an abort of this side.
    Aborted,
    /// An abort: the target's response.
    Function(TaskResponse),
    /// A ping came back.
    Nop,
    /// A logout: the target's response.
    LoggedOut(LogoutResponseCode),
    /// A text: all of the target's answer.
    Text(Vec<u8>),
    /// The target rejected a ping, an abort, a logout or a text.
    Rejected(RejectReason),
}

/// Something to be sent, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outgoing {
    Command(Itt),
    /// Data that is owed.
    Data(Itt),
    Immediate(Itt),
    /// The answer to a ping of the target.
    Pong {
        lun: u64,
        ttt: Ttt,
        cmd_sn: Serial,
    },
}

enum Phase {
    Login(Box<LoginPhase>),
    FullFeature(Box<LoggedIn>),
}

/// See the module.
pub struct Nexus {
    phase: Phase,
    parameters: Parameters,
    numbers: Numbers,
    reader: Reader,
    writer: Writer,
    tasks: Table<Task>,
    immediates: Table<Immediate>,
    outgoing: VecDeque<Outgoing>,
    /// Answers to pings that are in `outgoing`.
    pongs: usize,
    /// The PDU whose data is being received, and whose it is where it is a Data-In.
    current: Pdu,
    current_user: u64,
    response_data: ResponseData,
    /// A logout was submitted: no task follows it.
    leaving: bool,
    fault: Option<Fault>,
    /// TargetPortalGroupTag.
    portal_group: Option<u16>,
}

impl Nexus {
    /// A connection whose login was not begun.
    ///
    /// # Panics
    /// When no slots are wanted, or the login offers what is not done here.
    pub(crate) fn new(settings: Settings) -> Nexus {
        let offer = &settings.login.offer;
        assert!(settings.slots > 0, "a nexus has a slot");
        assert!(
            offer.data_pdu_in_order && offer.data_sequence_in_order,
            "data comes in order"
        );
        assert_eq!(offer.error_recovery_level, 0, "a fault ends the session");
        let slots = u32::from(settings.slots);
        let all = slots + IMMEDIATE_SLOTS;
        Nexus {
            phase: Phase::Login(Box::new(LoginPhase::new(
                settings.login,
                settings.challenge,
            ))),
            parameters: Parameters::default(),
            numbers: Numbers::default(),
            reader: Reader::new(Side::Initiator),
            writer: Writer::default(),
            tasks: Table::new(0, slots, all),
            immediates: Table::new(slots, IMMEDIATE_SLOTS, all),
            outgoing: VecDeque::new(),
            pongs: 0,
            current: NO_PDU,
            current_user: 0,
            response_data: ResponseData::default(),
            leaving: false,
            portal_group: None,
            fault: None,
        }
    }

    /// What was agreed, once the login is complete.
    pub(crate) fn logged_in(&self) -> Option<&LoggedIn> {
        match &self.phase {
            Phase::Login(_) => None,
            Phase::FullFeature(logged_in) => Some(logged_in),
        }
    }

    /// The target's portal group, once the login is complete and where the target said it.
    pub(crate) fn portal_group(&self) -> Option<u16> {
        self.portal_group
    }

    /// Takes a SCSI command with the attribute Simple; its tag.
    ///
    /// # Panics
    /// When there is no room.
    pub(crate) fn submit_task(
        &mut self,
        lun: u64,
        cdb: [u8; 16],
        payload: Payload,
        user: u64,
    ) -> Itt {
        assert!(
            self.room() > 0,
            "a command is submitted where there is room"
        );
        let cmd_sn = self.numbers.take_command();
        let task = Task::new(lun, cdb, payload, user, cmd_sn);
        let itt = self.tasks.insert(task).expect("there is room");
        self.outgoing.push_back(Outgoing::Command(itt));
        itt
    }

    /// Asks the target to abort a task. False, and nothing is done, where the task has ended, or too many immediate things are
    /// under way. Where the target did it, the task is answered with [`Answer::Aborted`] before this is answered.
    pub(crate) fn submit_abort(&mut self, itt: Itt, user: u64) -> bool {
        let Some(task) = self.tasks.get(itt).filter(|task| !task.answered) else {
            return false;
        };
        let kind = ImmediateKind::Abort {
            task: itt,
            lun: task.lun,
            ref_cmd_sn: task.cmd_sn,
        };
        self.submit_immediate(kind, user)
    }

    /// Pings the target. False where too many immediate things are under way.
    pub(crate) fn submit_nop(&mut self, user: u64) -> bool {
        self.submit_immediate(ImmediateKind::Nop, user)
    }

    /// Asks for the end of the session; no task can be submitted any more. False where too many immediate things are under way.
    pub(crate) fn submit_logout(&mut self, user: u64) -> bool {
        let submitted = self.submit_immediate(ImmediateKind::Logout, user);
        self.leaving |= submitted;
        submitted
    }

    /// Sends a text of `key=value` pairs, of [`TEXT_REQUEST_MAX`] bytes at most. False where too many immediate things are under
    /// way.
    ///
    /// # Panics
    /// When the text is longer.
    pub(crate) fn submit_text(&mut self, text: &[u8], user: u64) -> bool {
        assert!(text.len() <= TEXT_REQUEST_MAX, "a text fits one PDU");
        let exchange = TextExchange {
            request: text.to_vec(),
            lun: 0,
            ttt: Ttt::RESERVED,
            answer: Vec::new(),
        };
        self.submit_immediate(ImmediateKind::Text(Box::new(exchange)), user)
    }

    fn submit_immediate(&mut self, kind: ImmediateKind, user: u64) -> bool {
        if self.fault.is_some() || self.logged_in().is_none() {
            return false;
        }
        let immediate = Immediate {
            user,
            kind,
            cmd_sn: self.numbers.cmd_sn(),
            sent: false,
        };
        let itt = self.immediates.insert(immediate);
        self.outgoing.extend(itt.map(Outgoing::Immediate));
        itt.is_some()
    }

    fn send_command(&mut self, itt: Itt, gather: &mut Gather) {
        let Some(task) = self.tasks.get(itt) else {
            unreachable!("a command that was not sent is not answered");
        };
        let (header, data) = task.command(itt, self.numbers.exp_stat_sn(), &self.parameters);
        // Unsolicited data comes in the order of its commands (RFC 7143 section 4.2.5.2): all of it before the next command.
        if task.owes() {
            self.outgoing.push_front(Outgoing::Data(itt));
        }
        push(&self.writer, &header, &data, gather);
    }

    /// Sends one Data-Out of what is owed to a command.
    fn send_data(&mut self, itt: Itt, gather: &mut Gather) {
        let Some(task) = self.tasks.get(itt) else {
            unreachable!("a command stays until what is owed was sent");
        };
        let (header, data) = task.data_out(
            itt,
            self.numbers.exp_stat_sn(),
            self.parameters.peer_max_recv_data_segment_length,
        );
        push(&self.writer, &header, &data, gather);
        if task.owes_unsolicited() {
            self.outgoing.push_front(Outgoing::Data(itt));
        } else if task.owes() {
            self.outgoing.push_back(Outgoing::Data(itt));
        } else if task.answered {
            self.tasks.release(itt);
        }
    }

    fn send_immediate(&mut self, itt: Itt, gather: &mut Gather) {
        let Some(immediate) = self.immediates.get(itt) else {
            unreachable!("what was not sent is not answered");
        };
        immediate.transmit(itt, self.numbers.exp_stat_sn(), &self.writer, gather);
    }

    fn event(
        &mut self,
        event: &Event,
        taken: &[u8],
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        match event {
            Event::Pdu(pdu) => {
                self.begin(pdu)?;
                if pdu.data_length() == 0 {
                    return self.finish(pdu, commands);
                }
                self.current = *pdu;
                Ok(())
            }
            Event::Data { offset } => {
                self.data(*offset, taken, commands);
                Ok(())
            }
            Event::DataEnd { digest } => {
                let pdu = self.current;
                self.judge(&pdu, *digest)?;
                self.finish(&pdu, commands)
            }
        }
    }

    /// Takes a header whose data is to be taken.
    fn begin(&mut self, pdu: &Pdu) -> Result<(), Fault> {
        match pdu {
            Pdu::DataIn(data) => {
                let task = find_sent(&mut self.tasks, Opcode::DataIn, data.itt)?;
                task.data_in(data)?;
                self.current_user = task.user;
            }
            Pdu::TextResponse(response) => {
                let exchange = self.text_exchange(response)?;
                if exchange.answer.len() + response.data_length as usize > TEXT_MAX {
                    return Err(Violation::TooMuchText { maximum: TEXT_MAX }.into());
                }
            }
            Pdu::ScsiResponse(_) | Pdu::Reject(_) => self.response_data.clear(),
            _ => {}
        }
        Ok(())
    }

    fn data(&mut self, offset: u32, bytes: &[u8], commands: &dyn Commands<Answer>) {
        match &self.current {
            Pdu::DataIn(data) => {
                commands.data(self.current_user, data.buffer_offset + offset, bytes);
            }
            Pdu::ScsiResponse(_) | Pdu::Reject(_) => self.response_data.add(bytes),
            Pdu::TextResponse(TextResponse { itt, .. }) => {
                if let Some(Immediate {
                    kind: ImmediateKind::Text(exchange),
                    ..
                }) = self.immediates.get(*itt)
                {
                    exchange.answer.extend_from_slice(bytes);
                }
            }
            Pdu::LoginResponse(_) => {
                if let Phase::Login(login) = &mut self.phase {
                    login.text(bytes);
                }
            }
            // Pings bring nothing, and events are known by their headers.
            _ => {}
        }
    }

    /// Judges data by its digest. Damaged data of a read fails its command, when that ends; any other PDU would have to be sent
    /// again, which at error recovery level 0 it is not: the session ends (RFC 7143 section 7.8).
    fn judge(&mut self, pdu: &Pdu, digest: DataDigest) -> Result<(), Fault> {
        if digest.is_good() {
            return Ok(());
        }
        match pdu {
            Pdu::DataIn(data) => {
                find_sent(&mut self.tasks, Opcode::DataIn, data.itt)?.damaged = true;
                Ok(())
            }
            other => Err(Fault::Digest(other.opcode())),
        }
    }

    /// Takes a PDU whose data came.
    fn finish(&mut self, pdu: &Pdu, commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        match pdu {
            Pdu::DataIn(data) => self.data_in(data, commands),
            Pdu::ScsiResponse(response) => self.scsi_response(response, commands),
            Pdu::R2t(r2t) => self.ready_to_transfer(r2t),
            Pdu::NopIn(nop) => self.nop_in(nop, commands),
            Pdu::TaskManagementResponse(response) => self.function_response(response, commands),
            Pdu::TextResponse(response) => self.text_response(response, commands),
            Pdu::LogoutResponse(response) => self.logout_response(response, commands),
            Pdu::AsyncMessage(message) => self.async_message(message),
            Pdu::Reject(reject) => self.reject(reject, commands),
            Pdu::LoginResponse(response) => self.login_response(response),
            other => Err(Violation::Unexpected(other.opcode()).into()),
        }
    }

    fn login_response(&mut self, response: &LoginResponse) -> Result<(), Fault> {
        let Phase::Login(login) = &mut self.phase else {
            return Err(Violation::Unexpected(Opcode::LoginResponse).into());
        };
        let Some(logged_in) = login.response(response)? else {
            return Ok(());
        };
        self.parameters = logged_in.parameters;
        self.numbers = Numbers::new(&logged_in);
        self.reader.establish(logged_in.parameters.receive());
        self.writer = logged_in.parameters.writer();
        self.portal_group = login.portal_group();
        self.phase = Phase::FullFeature(logged_in);
        Ok(())
    }

    fn data_in(&mut self, data: &DataIn, commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        self.numbers.hear(data.exp_cmd_sn, data.max_cmd_sn);
        let Some(end) = &data.status else {
            return Ok(());
        };
        self.numbers.status(end.stat_sn)?;
        let task = find_sent(&mut self.tasks, Opcode::DataIn, data.itt)?;
        let answer = task_answer(task, end.status, None, end.residual);
        self.end_task(data.itt, answer, commands);
        Ok(())
    }

    fn scsi_response(
        &mut self,
        response: &ScsiResponse,
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        self.answered(&response.serials)?;
        let task = find_sent(&mut self.tasks, Opcode::ScsiResponse, response.itt)?;
        let answer = match response.response {
            ResponseCode::CommandCompleted => {
                let sense = self.response_data.sense();
                task_answer(task, response.status, sense, response.residual)
            }
            // There is neither status nor sense data (RFC 7143 section 11.4.3): these say the same.
            _ => Answer::Scsi {
                status: Status::CheckCondition.value(),
                sense: Some(Sense::internal_failure()),
                residual: Residual::None,
            },
        };
        self.end_task(response.itt, answer, commands);
        Ok(())
    }

    /// Answers a task. What is owed of it is sent all the same.
    fn end_task(&mut self, itt: Itt, answer: Answer, commands: &dyn Commands<Answer>) {
        let task = self.tasks.get(itt).expect("a task is answered once");
        let user = task.user;
        task.answered = true;
        if !task.owes() {
            self.tasks.release(itt);
        }
        commands.answer(user, answer);
    }

    fn ready_to_transfer(&mut self, r2t: &R2t) -> Result<(), Fault> {
        self.hear(&r2t.serials);
        let task = find_sent(&mut self.tasks, Opcode::R2t, r2t.itt)?;
        let waits = task.owes();
        task.ready_to_transfer(r2t, &self.parameters)?;
        if !waits {
            self.outgoing.push_back(Outgoing::Data(r2t.itt));
        }
        Ok(())
    }

    /// Takes an answer to a ping, or a ping, or news of the window.
    fn nop_in(&mut self, nop: &NopIn, commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        if nop.itt != Itt::RESERVED {
            self.answered(&nop.serials)?;
            let user = self.end_immediate(Opcode::NopIn, nop.itt, |kind| {
                matches!(kind, ImmediateKind::Nop)
            })?;
            commands.answer(user, Answer::Nop);
            return Ok(());
        }
        self.hear(&nop.serials);
        if nop.ttt == Ttt::RESERVED {
            return Ok(());
        }
        if self.pongs == PINGS_MAX {
            return Err(Violation::TooManyPings { maximum: PINGS_MAX }.into());
        }
        self.pongs += 1;
        self.outgoing.push_back(Outgoing::Pong {
            lun: nop.lun,
            ttt: nop.ttt,
            cmd_sn: self.numbers.cmd_sn(),
        });
        Ok(())
    }

    fn function_response(
        &mut self,
        response: &TaskManagementResponse,
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        let opcode = Opcode::TaskManagementResponse;
        self.answered(&response.serials)?;
        let mut aborted = None;
        let user = self.end_immediate(opcode, response.itt, |kind| match kind {
            ImmediateKind::Abort { task, .. } => {
                aborted = Some(*task);
                true
            }
            _ => false,
        })?;
        // A task that does not exist there will not be answered either.
        let is_gone = matches!(
            response.response,
            TaskResponse::Complete | TaskResponse::TaskDoesNotExist
        );
        if let Some(itt) = aborted.filter(|_| is_gone) {
            self.end_aborted(itt, commands);
        }
        commands.answer(user, Answer::Function(response.response));
        Ok(())
    }

    /// Ends a task that the target aborted, unless it was answered before. Nobody waits for its data.
    fn end_aborted(&mut self, itt: Itt, commands: &dyn Commands<Answer>) {
        let task = self.tasks.get(itt).filter(|task| !task.answered);
        if let Some(user) = task.map(|task| task.user) {
            self.outgoing
                .retain(|outgoing| *outgoing != Outgoing::Data(itt));
            self.tasks.release(itt);
            commands.answer(user, Answer::Aborted);
        }
    }

    fn text_exchange(&mut self, response: &TextResponse) -> Result<&mut TextExchange, Violation> {
        let nothing = Violation::NothingSuch {
            opcode: Opcode::TextResponse,
            itt: response.itt,
        };
        let immediate = self.immediates.get(response.itt).filter(|one| one.sent);
        match immediate.map(|immediate| &mut immediate.kind) {
            Some(ImmediateKind::Text(exchange)) => Ok(exchange),
            _ => Err(nothing),
        }
    }

    fn text_response(
        &mut self,
        response: &TextResponse,
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        self.answered(&response.serials)?;
        let exchange = self.text_exchange(response)?;
        if response.is_final {
            let answer = Answer::Text(std::mem::take(&mut exchange.answer));
            let user = self.end_immediate(Opcode::TextResponse, response.itt, |_| true)?;
            commands.answer(user, answer);
            return Ok(());
        }
        if response.ttt == Ttt::RESERVED {
            return Err(Violation::NoTransferTag(Opcode::TextResponse).into());
        }
        // The rest is asked for by an empty text.
        exchange.request.clear();
        (exchange.lun, exchange.ttt) = (response.lun, response.ttt);
        let cmd_sn = self.numbers.cmd_sn();
        if let Some(immediate) = self.immediates.get(response.itt) {
            (immediate.sent, immediate.cmd_sn) = (false, cmd_sn);
        }
        self.outgoing.push_back(Outgoing::Immediate(response.itt));
        Ok(())
    }

    fn logout_response(
        &mut self,
        response: &LogoutResponse,
        commands: &dyn Commands<Answer>,
    ) -> Result<(), Fault> {
        self.answered(&response.serials)?;
        let user = self.end_immediate(Opcode::LogoutResponse, response.itt, |kind| {
            matches!(kind, ImmediateKind::Logout)
        })?;
        commands.answer(user, Answer::LoggedOut(response.response));
        Ok(())
    }

    fn async_message(&mut self, message: &AsyncMessage) -> Result<(), Fault> {
        self.answered(&message.serials)?;
        match message.event {
            AsyncEvent::LogoutRequest
            | AsyncEvent::DropConnection
            | AsyncEvent::DropSession
            | AsyncEvent::Negotiate => Err(Fault::Asked(message.event)),
            // What the others concern is found out by the commands that they concern.
            _ => Ok(()),
        }
    }

    /// Takes a rejection: that of an immediate thing is its answer. A task has lost its place in the order of commands then, and
    /// data that was rejected does not come again.
    fn reject(&mut self, reject: &Reject, commands: &dyn Commands<Answer>) -> Result<(), Fault> {
        let fault = Fault::Rejected(reject.reason);
        if self.logged_in().is_none() {
            return Err(fault);
        }
        self.answered(&reject.serials)?;
        let itt = self.response_data.header().ok_or(fault.clone())?.itt;
        let user = self.end_immediate(Opcode::Reject, itt, |_| true);
        commands.answer(user.map_err(|_| fault)?, Answer::Rejected(reject.reason));
        Ok(())
    }

    /// Ends something immediate that was sent and that `is_it`; whose it is.
    fn end_immediate(
        &mut self,
        opcode: Opcode,
        itt: Itt,
        is_it: impl FnOnce(&ImmediateKind) -> bool,
    ) -> Result<u64, Violation> {
        let found = self.immediates.get(itt);
        let found = found.filter(|immediate| immediate.sent && is_it(&immediate.kind));
        let user = found.ok_or(Violation::NothingSuch { opcode, itt })?.user;
        self.immediates.release(itt);
        Ok(user)
    }

    fn hear(&mut self, serials: &ResponseSerials) {
        self.numbers.hear(serials.exp_cmd_sn, serials.max_cmd_sn);
    }

    /// Takes the numbers of a PDU that uses up a StatSN. R2Ts and pings of the target tell the next and do not use it up: theirs is
    /// not judged.
    fn answered(&mut self, serials: &ResponseSerials) -> Result<(), Violation> {
        self.hear(serials);
        self.numbers.status(serials.stat_sn)
    }
}

impl Wire for Nexus {
    type Answer = Answer;
    type Fault = Fault;

    fn room(&self) -> usize {
        match &self.phase {
            Phase::FullFeature(logged_in)
                if self.fault.is_none()
                    && !self.leaving
                    && logged_in.session != SessionType::Discovery =>
            {
                self.tasks.room().min(self.numbers.window() as usize)
            }
            _ => 0,
        }
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn has_output(&self) -> bool {
        self.fault.is_none()
            && match &self.phase {
                Phase::Login(login) => login.has_output(),
                Phase::FullFeature(_) => !self.outgoing.is_empty(),
            }
    }

    fn transmit(&mut self, gather: &mut Gather) {
        if self.fault.is_some() {
            return;
        }
        if let Phase::Login(login) = &mut self.phase {
            return login.transmit(gather);
        }
        while gather.len() < SEND_BYTES && gather.slice_count() < SEND_SLICES {
            match self.outgoing.pop_front() {
                Some(Outgoing::Command(itt)) => self.send_command(itt, gather),
                Some(Outgoing::Data(itt)) => self.send_data(itt, gather),
                Some(Outgoing::Immediate(itt)) => self.send_immediate(itt, gather),
                Some(Outgoing::Pong { lun, ttt, cmd_sn }) => {
                    self.pongs -= 1;
                    let exp_stat_sn = self.numbers.exp_stat_sn();
                    let header = nop_out(Itt::RESERVED, lun, ttt, cmd_sn, exp_stat_sn);
                    push(&self.writer, &header, &[], gather);
                }
                None => return,
            }
        }
    }

    fn receive(&mut self, mut bytes: &[u8], commands: &dyn Commands<Answer>) {
        while self.fault.is_none() {
            // By reference: an event is as long as the longest PDU's header.
            match &self.reader.feed(bytes) {
                Ok(fed) => {
                    let (taken, rest) = bytes.split_at(fed.consumed);
                    bytes = rest;
                    let Some(event) = &fed.event else {
                        return;
                    };
                    if let Err(fault) = self.event(event, taken, commands) {
                        self.fault = Some(fault);
                    }
                }
                Err(error) => self.fault = Some(Fault::Framing(*error)),
            }
        }
    }

    /// What is not a task is told of, too.
    fn take_unanswered(&mut self) -> Vec<(u64, Exposure)> {
        self.outgoing.clear();
        let tasks = self.tasks.drain().filter(|task| !task.answered);
        let tasks = tasks.map(|task| (task.user, task.exposure()));
        let immediates = self.immediates.drain().map(|immediate| {
            let exposure = if immediate.sent {
                Exposure::Possible
            } else {
                Exposure::Never
            };
            (immediate.user, exposure)
        });
        tasks.chain(immediates).collect()
    }
}

/// Stands where no PDU's data is received.
const NO_PDU: Pdu = Pdu::NopIn(NopIn {
    lun: 0,
    itt: Itt::RESERVED,
    ttt: Ttt::RESERVED,
    serials: ResponseSerials {
        stat_sn: Serial(0),
        exp_cmd_sn: Serial(0),
        max_cmd_sn: Serial(0),
    },
    data_length: 0,
});

/// The task that a PDU is of: one that the target may say something of.
#[inline]
fn find_sent(tasks: &mut Table<Task>, opcode: Opcode, itt: Itt) -> Result<&mut Task, Violation> {
    tasks
        .get(itt)
        .filter(|task| task.sent && !task.answered)
        .ok_or(Violation::NothingSuch { opcode, itt })
}

/// The answer of a task that the target ended.
#[inline]
fn task_answer(task: &Task, status: u8, sense: Option<Sense>, residual: Residual) -> Answer {
    if status == Status::Good.value() && !task.is_whole(residual) {
        return Answer::Damaged;
    }
    Answer::Scsi {
        status,
        sense,
        residual,
    }
}

#[cfg(test)]
mod tests;
