//! One connection's session: its login, its framing, its commands, and what its initiator sees.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use weir_block::{Announcement, Completion, Completions};
use weir_front::{Attached, Awaited, Commands, End, Line, News, Progress, Room, Session, Wants};
use weir_iscsi::pdu::{
    Cid, Itt, LogoutReason, LogoutRequest, LogoutResponseCode, NopOut, Pdu, RejectReason,
    TaskFunction, TaskManagementRequest, TaskResponse, TextRequest,
};
use weir_memory::{Gather, Segment, View};
use weir_reactor::Amount;
use weir_reservation::Operation;
use weir_scsi::sense::AdditionalSense;

use crate::framing::{DirectReturn, Framing, ReceiveError, Received};
use crate::login::{self, Granted, Login, LoginStep};
use crate::protocol::{About, IscsiProtocol, IscsiShared};
use crate::registry::{LostSession, Message, ResetWait, number_of};
use crate::scene::Scene;
use crate::served::Lun;
use crate::tasks::device;
use crate::tasks::task::{Answer, Task};
use crate::tasks::{Agreed, Extent, Tasks};
use crate::text::Texts;

/// How far a connection has come.
enum Stage {
    /// It logs in.
    Login(Box<Login>),
    /// Its session is granted, and begins with the login's last answer.
    Granted(Box<Granted>),
    /// The same, on another reactor.
    Moving(usize, Box<Granted>),
    /// The session is there.
    Open,
    /// The initiator logs out, and is answered when nothing of it is under way.
    LoggingOut(Itt),
}

/// A session on its way to another reactor.
pub(crate) type Moving = Box<Granted>;

/// What a logical unit was like when the initiator was told of it last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    number: u16,
    identity: [u8; 16],
    blocks: u64,
    read_only: bool,
}

/// One connection, which is one session.
pub(crate) struct IscsiSession {
    scene: Scene,
    framing: Framing,
    tasks: Tasks,
    stage: Stage,
    /// What the initiator calls its connection.
    cid: Cid,
    texts: Texts,
    /// What the initiator knows of its logical units; none before it has seen any.
    told: Option<Vec<Told>>,
    /// Something came since the last look.
    was_heard: bool,
    /// It was asked whether it is there, and has not answered.
    is_asked: bool,
    /// What comes late and is not to be answered before all has ended.
    late: Vec<Message>,
    /// Held from the session's end until what ends with it is no longer reserved: its initiator logs in anew after that.
    lost: Option<Arc<LostSession>>,
    /// Where the segment goes back to that is received into.
    direct: Option<DirectReturn>,
}

impl IscsiSession {
    fn new(line: Line<IscsiProtocol>, stage: Stage) -> Self {
        let config = &line.shard.shared.own.config;
        let account = &line.shard.hub.account;
        let (all, one) = (
            config.bytes_in_flight_per_session,
            config.transfer_bytes_max,
        );
        let room = Room::new(account, all.into(), one);
        IscsiSession {
            tasks: Tasks::new(line.entry.owner, room),
            framing: Framing::new(),
            scene: Scene::new(line),
            stage,
            cid: Cid(0),
            texts: Texts::default(),
            told: None,
            was_heard: true,
            is_asked: false,
            late: Vec::new(),
            lost: None,
            direct: None,
        }
    }

    /// The login goes on with a request that has come whole.
    fn login(&mut self, step: impl FnOnce(&mut Login, &Scene) -> LoginStep) -> Result<(), End> {
        let Stage::Login(login) = &mut self.stage else {
            unreachable!("the reader takes logins before their end alone")
        };
        match step(login, &self.scene) {
            LoginStep::Goes | LoginStep::Waits => Ok(()),
            LoginStep::Refused(error) => {
                self.scene.line.shard.counters.refused.add(1);
                Err(End::Refused(error))
            }
            LoginStep::Granted(granted) => {
                self.granted(granted);
                Ok(())
            }
        }
    }

    fn granted(&mut self, granted: Box<Granted>) {
        let Line { shard, entry } = &self.scene.line;
        let (info, here) = (&granted.info, shard.index);
        let reactor = granted.reactor().unwrap_or(here);
        tracing::info!(
            connection = entry.handle.id, peer = %entry.peer, initiator = %info.initiator,
            target = info.target.as_ref().map(tracing::field::display), session = info.tsih.0,
            reactor, "logged in"
        );
        let about = About {
            session: Some(Arc::clone(info)),
        };
        *entry.about.borrow_mut() = about;
        self.scene.line.established();
        self.stage = match reactor == here {
            true => Stage::Granted(granted),
            false => Stage::Moving(reactor, granted),
        };
    }

    /// Begins the session on the reactor that it belongs on. What is written next follows the login's last answer.
    fn open(&mut self, granted: Granted, out: &mut Gather) {
        for answer in &granted.answers {
            login::write_answer(answer, out);
        }
        let (info, parameters) = (granted.info, granted.parameters);
        let config = self.scene.config();
        let send_segment = config
            .send_segment_bytes
            .min(parameters.peer_max_recv_data_segment_length);
        let commands_max = match info.target {
            Some(_) => config.commands_max,
            None => DISCOVERY_COMMANDS,
        };
        let agreed = Agreed {
            first_burst: parameters.first_burst_length,
            max_burst: parameters.max_burst_length,
            outstanding_r2t: parameters.max_outstanding_r2t as u16,
            immediate_data: parameters.immediate_data,
            initial_r2t: parameters.initial_r2t,
        };
        let Line { shard, entry } = &self.scene.line;
        let number = number_of(&info.initiator);
        shard.hub.router.set_host(entry.owner, number);
        let about = About {
            session: Some(Arc::clone(&info)),
        };
        *entry.about.borrow_mut() = about;
        self.tasks.begin(granted.cmd_sn, commands_max, agreed);
        let receive = parameters.receive();
        self.framing
            .establish(granted.stat_sn, receive, send_segment, agreed.max_burst);
        self.scene.enter(info, granted.shared);
        self.cid = granted.cid;
        self.stage = Stage::Open;
        // The next round renews what it sees, or ends it.
        self.scene.line.look_again();
    }

    /// What a PDU asks for that is no command and no data of one.
    fn other(&mut self, pdu: Pdu, data: &[u8]) -> Result<(), End> {
        let (number, is_immediate) = match &pdu {
            Pdu::LoginRequest(request) => {
                let request = *request;
                return self.login(|login, scene| login.request(&request, data, scene));
            }
            Pdu::NopOut(nop) => (nop.cmd_sn, nop.immediate),
            Pdu::TaskManagementRequest(request) => (request.cmd_sn, request.immediate),
            Pdu::TextRequest(request) => (request.cmd_sn, request.immediate),
            Pdu::LogoutRequest(request) => (request.cmd_sn, request.immediate),
            Pdu::Snack(_) => {
                self.reject(RejectReason::SnackReject);
                return Ok(());
            }
            _ => {
                self.reject(RejectReason::CommandNotSupported);
                return Ok(());
            }
        };
        if !Framing::is_next(number, is_immediate, &mut self.tasks).map_err(broken)? {
            return Ok(());
        }
        match pdu {
            Pdu::NopOut(nop) => self.nop_out(&nop, data),
            Pdu::TaskManagementRequest(_) if self.scene.target().is_none() => {
                self.reject(RejectReason::CommandNotSupported);
            }
            Pdu::TaskManagementRequest(request) => self.manage(&request),
            Pdu::TextRequest(request) => self.text(&request, data),
            Pdu::LogoutRequest(request) => self.log_out(&request),
            _ => unreachable!("handled before"),
        }
        Ok(())
    }

    fn reject(&mut self, reason: RejectReason) {
        let header = self.framing.rejected_header();
        self.tasks.push(Answer::Reject { reason, header });
    }

    fn nop_out(&mut self, nop: &NopOut, data: &[u8]) {
        if nop.itt != Itt::RESERVED {
            let length = data.len().min(self.framing.send_segment() as usize);
            self.tasks.ping(nop.itt, &data[..length]);
        }
    }

    fn text(&mut self, request: &TextRequest, data: &[u8]) {
        let answered = self.texts.request(
            request,
            data,
            &self.scene,
            self.framing.send_segment() as usize,
        );
        match answered {
            Ok(answer) => self.tasks.push(answer),
            Err(reason) => self.reject(reason),
        }
    }

    fn log_out(&mut self, request: &LogoutRequest) {
        let itt = request.itt;
        let refused = match request.reason {
            LogoutReason::CloseSession => None,
            LogoutReason::CloseConnection if request.cid == self.cid => None,
            LogoutReason::CloseConnection => Some(LogoutResponseCode::CidNotFound),
            LogoutReason::RemoveForRecovery => Some(LogoutResponseCode::RecoveryNotSupported),
            _ => return self.reject(RejectReason::InvalidPduField),
        };
        if let Some(response) = refused {
            return self.tasks.push(Answer::Logout { itt, response });
        }
        self.tasks.abort_all(&self.scene);
        self.stage = Stage::LoggingOut(itt);
    }

    /// Does a task management function (RFC 7143, section 11.5).
    fn manage(&mut self, request: &TaskManagementRequest) {
        let itt = request.itt;
        let number = device::lun_number(request.lun);
        let lun = number.filter(|&number| self.scene.lun(number).is_some());
        let refused = match (request.function, lun) {
            _ if !self.tasks.may_begin_function() => Some(TaskResponse::Rejected),
            (TaskFunction::AbortTask | TaskFunction::TargetWarmReset, _) => None,
            (
                TaskFunction::AbortTaskSet
                | TaskFunction::ClearTaskSet
                | TaskFunction::LogicalUnitReset,
                lun,
            ) => lun.is_none().then_some(TaskResponse::LunDoesNotExist),
            (TaskFunction::TaskReassign, _) => Some(TaskResponse::ReassignmentNotSupported),
            _ => Some(TaskResponse::NotSupported),
        };
        if let Some(response) = refused {
            return self.tasks.push(Answer::Management { itt, response });
        }
        let scene = &self.scene;
        match (request.function, lun) {
            (TaskFunction::AbortTask, _) => {
                let extent = Extent::Task(request.referenced);
                self.tasks.end_for_initiator(itt, extent, false, scene);
            }
            (TaskFunction::LogicalUnitReset, Some(lun)) => self.reset(itt, Some(lun)),
            (TaskFunction::TargetWarmReset, _) => self.reset(itt, None),
            (_, Some(lun)) => {
                // Each I_T nexus has a task set of its own, as the control mode page says.
                let extent = Extent::Lun(lun);
                self.tasks.end_for_initiator(itt, extent, false, scene);
            }
            (_, None) => unreachable!("refused before"),
        }
    }

    /// Resets a logical unit, or all of them, for all initiators of the target.
    fn reset(&mut self, itt: Itt, lun: Option<u16>) {
        let (line, scene) = (&self.scene.line, &self.scene);
        let shared = scene.shared.as_ref().expect("it has logical units");
        let others = line.shard.shared.own.registry.others(shared);
        let extent = lun.map_or(Extent::All, Extent::Lun);
        let number = self.tasks.end_for_initiator(itt, extent, true, scene);
        let wait = Arc::new(ResetWait {
            asked_by: line.entry.handle.clone(),
            number,
        });
        for other in others {
            let wait = Arc::clone(&wait);
            // One that has ended has done its part.
            let _ = other.tell(Message::Reset { lun, wait });
        }
        // RESERVE (6) and (10) end, whoever asked for them (SPC-2, section 5.5.1).
        let registrant = scene.registrant.as_ref().expect("it has logical units");
        for attached in scene.luns() {
            let is_meant = lun.is_none_or(|lun| lun == attached.export.number);
            if let Some(reservations) = &attached.export.reservations
                && is_meant
            {
                let wait = Arc::clone(&wait);
                let operation = Operation::ResetUnit;
                reservations.ask(registrant.clone(), operation, move |_| drop(wait));
            }
        }
        self.attend_to_reset(lun);
    }

    /// The initiator is to be told that a logical unit was reset, or all of them.
    fn attend_to_reset(&mut self, lun: Option<u16>) {
        for attached in self.scene.luns() {
            let number = attached.export.number;
            if lun.is_none_or(|lun| lun == number) {
                let reset = AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED;
                self.tasks.attentions.replace(number, reset);
            }
        }
    }

    /// What the initiator sees now.
    fn sees(&self) -> Vec<Told> {
        let of = |attached: &Rc<Attached<Lun>>| Told {
            number: attached.export.number,
            identity: attached.export.identity,
            blocks: attached.geometry.get().blocks,
            read_only: attached.is_read_only(),
        };
        self.scene.luns().iter().map(of).collect()
    }
}

/// Commands that may be under way in a discovery session.
const DISCOVERY_COMMANDS: u16 = 4;

fn broken(error: ReceiveError) -> End {
    End::Broken(Box::new(error))
}

impl Session for IscsiSession {
    type Protocol = IscsiProtocol;
    type Slot = Task;
    type Moving = Moving;

    const HANDSHAKE_TIMEOUT: &'static str = "its login did not end in time";

    fn accepted(line: Line<IscsiProtocol>) -> Self {
        let login = Login::new(&line);
        IscsiSession::new(line, Stage::Login(Box::new(login)))
    }

    fn moved_in(line: Line<IscsiProtocol>, moving: Moving, out: &mut Gather) -> Self {
        let mut session = IscsiSession::new(line, Stage::Open);
        session.open(*moving, out);
        session
    }

    fn lost_on_the_way(own: &IscsiShared, moving: Moving) {
        if let Some(shared) = &moving.shared {
            drop(LostSession::new(&own.registry, shared));
            own.registry.ended(shared);
        }
    }

    fn commands(&mut self) -> &mut Commands<Task> {
        self.tasks.commands()
    }

    fn room(&mut self) -> &mut Room {
        self.tasks.room()
    }

    fn message(&mut self, message: Message) -> Result<(), End> {
        match message {
            Message::Retry => {
                if matches!(self.stage, Stage::Login(_)) {
                    self.login(|login, scene| login.retry(scene))?;
                }
            }
            Message::Reinstated => {
                return Err(End::Dismissed("the initiator logged in anew in its place"));
            }
            Message::Reset { lun, wait } => {
                let extent = lun.map_or(Extent::All, Extent::Lun);
                self.tasks.end_for_other(extent, wait, &self.scene);
                self.attend_to_reset(lun);
            }
            Message::ResetEnded { number } => self.tasks.others_ended(number),
            Message::Reserved { slot, uses, result } => {
                self.tasks.reserved(slot, uses, result, &self.scene);
            }
        }
        Ok(())
    }

    fn rights_changed(&mut self, news: &Arc<News>) {
        self.tasks.rights_changed(news, &self.scene);
    }

    fn late_message(&mut self, message: Message) {
        self.late.push(message);
    }

    fn renew(&mut self) -> Result<(), &'static str> {
        if !self.scene.renew() {
            // The rest ends with the connection, without an answer.
            self.tasks.revoke(&self.scene);
            return Err("the initiator may not use the target");
        }
        self.tasks.let_go(&self.scene);
        if self.told.is_none() && self.scene.shared.is_some() {
            self.told = Some(self.sees());
        }
        Ok(())
    }

    fn announce(&mut self) {
        let Some(told) = &self.told else {
            return;
        };
        let now = self.sees();
        let is_same =
            |one: &Told, other: &Told| (one.number, one.identity) == (other.number, other.identity);
        let luns_changed = told.len() != now.len()
            || told
                .iter()
                .zip(&now)
                .any(|(one, other)| !is_same(one, other));
        for lun in &now {
            let before = told.iter().find(|before| is_same(before, lun));
            if luns_changed {
                let changed = AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED;
                self.tasks.attentions.add(lun.number, changed);
            }
            if before.is_some_and(|before| before.blocks != lun.blocks) {
                let changed = AdditionalSense::CAPACITY_DATA_HAS_CHANGED;
                self.tasks.attentions.add(lun.number, changed);
            }
            if before.is_some_and(|before| before.read_only != lun.read_only) {
                let changed = AdditionalSense::MODE_PARAMETERS_CHANGED;
                self.tasks.attentions.add(lun.number, changed);
            }
        }
        self.told = Some(now);
    }

    fn shutting_down(&mut self) {
        if matches!(self.stage, Stage::Open) {
            self.tasks.push(Answer::AskForLogout);
        }
    }

    fn completed(&mut self, first: Completion, others: &Completions) {
        self.tasks.completed(first, &self.scene);
        while let Some(completion) = others.pop() {
            self.tasks.completed(completion, &self.scene);
        }
    }

    fn heard(&mut self) {
        (self.was_heard, self.is_asked) = (true, false);
    }

    fn receive(&mut self, input: &mut View, _: &mut Gather) -> Result<Progress, End> {
        while self.takes_input() {
            let received = self.framing.receive(input, &mut self.tasks, &self.scene);
            let damaged = std::mem::take(&mut self.framing.damaged);
            if damaged > 0 {
                let counters = &self.scene.line.shard.counters;
                counters.data_digest_errors.add(damaged);
            }
            match received.map_err(broken)? {
                Received::Hungry => return Ok(Progress::Hungry),
                Received::Blocked => return Ok(Progress::Blocked),
                Received::Other(pdu, data) => self.other(pdu, &data)?,
            }
        }
        Ok(Progress::Hungry)
    }

    fn act(&mut self) -> Result<(), End> {
        if let Stage::LoggingOut(itt) = self.stage
            && self.tasks.in_flight() == 0
            && !self.tasks.has_functions()
        {
            let response = LogoutResponseCode::Closed;
            self.tasks.push(Answer::Logout { itt, response });
            return Err(End::Disconnected);
        }
        Ok(())
    }

    fn prepare(&mut self) {
        if self.tasks.lacks_something() {
            self.tasks.prepare(&self.scene);
        }
    }

    fn write(&mut self, out: &mut Gather) {
        match &mut self.stage {
            Stage::Login(login) => login.write(out),
            Stage::Granted(_) => {
                let stage = std::mem::replace(&mut self.stage, Stage::Open);
                if let Stage::Granted(granted) = stage {
                    self.open(*granted, out);
                }
            }
            _ => {}
        }
        if !self.tasks.answers().is_empty() {
            self.tasks.open_window();
            self.framing.write(&mut self.tasks, self.scene.pool(), out);
        }
    }

    fn wants(&mut self, _is_blocked: bool) -> Wants {
        // The end of a send clears a backlog and wakes this task. Nothing wakes it for buffers or for room of others: it retries.
        let waits = self.tasks.lacks_something();
        Wants {
            look_again: waits,
            is_starved: false,
            waits,
        }
    }

    fn in_flight(&self) -> u32 {
        self.tasks.in_flight()
    }

    fn takes_input(&self) -> bool {
        match &self.stage {
            Stage::Login(login) => !login.waits(),
            Stage::Open => true,
            Stage::Granted(_) | Stage::Moving(..) | Stage::LoggingOut(_) => false,
        }
    }

    fn direct(&mut self) -> Option<(Segment, usize)> {
        let (segment, back) = self.framing.direct(&mut self.tasks)?;
        let from = back.from();
        self.direct = Some(back);
        Some((segment, from))
    }

    fn received_directly(&mut self, segment: Segment, count: usize) {
        let back = self.direct.take().expect("it was lent");
        self.framing
            .received_directly(segment, &back, count, &mut self.tasks);
    }

    fn expects(&self, last: usize) -> Amount {
        self.framing.expected(last, &self.tasks)
    }

    fn send_began(&mut self) {
        self.framing.send_began();
    }

    fn send_ended(&mut self) {
        self.framing.send_ended();
    }

    fn attached(&self, number: u32) -> Option<&Rc<Attached<Lun>>> {
        let number = u16::try_from(number).ok()?;
        self.scene.lun(number)
    }

    fn arriving(&self) -> Option<u64> {
        self.framing.arriving()
    }

    fn look_at_awaited(&mut self) -> Option<Awaited> {
        self.framing.look_at_awaited(&self.tasks)
    }

    fn keep_alive(&mut self) -> Option<Duration> {
        Some(self.scene.config().nop_interval)
    }

    fn take_traffic(&mut self) -> bool {
        if std::mem::take(&mut self.was_heard) {
            return true;
        }
        if self.is_asked {
            return false;
        }
        if matches!(self.stage, Stage::Open) {
            self.is_asked = true;
            self.tasks.push(Answer::Ping);
        }
        true
    }

    fn moves_to(&self) -> Option<usize> {
        match &self.stage {
            Stage::Moving(reactor, _) => Some(*reactor),
            _ => None,
        }
    }

    fn move_out(&mut self) -> Moving {
        let stage = std::mem::replace(&mut self.stage, Stage::Open);
        let Stage::Moving(_, granted) = stage else {
            unreachable!("it is to be moved")
        };
        granted
    }

    fn last_words(&mut self, end: &End, out: &mut Gather) {
        if matches!(end, End::Broken(_)) && !matches!(self.stage, Stage::Login(_)) {
            self.reject(RejectReason::ProtocolError);
        }
        self.write(out);
    }

    fn announce_end(&mut self) -> Announcement {
        let shared = match &self.stage {
            Stage::Granted(granted) | Stage::Moving(_, granted) => granted.shared.clone(),
            _ => self.scene.shared.clone(),
        };
        let registry = &self.scene.line.shard.shared.own.registry;
        match shared {
            Some(shared) => {
                let lost = Arc::new(LostSession::new(registry, &shared));
                if !self.tasks.shut().is_empty() {
                    self.lost = Some(Arc::clone(&lost));
                }
                lost
            }
            None => {
                let connection = self.scene.line.entry.handle.id;
                registry.forget_waiting(connection);
                Arc::new(())
            }
        }
    }

    fn give_up(&mut self) {
        self.tasks.give_up();
    }

    fn revoke(&mut self) {
        // What its initiator sees is not renewed any more.
        self.scene.renew();
        self.tasks.revoke(&self.scene);
    }

    fn ended(&mut self) {
        self.late.clear();
        self.tasks.ended();
        let lost = self.lost.take();
        for reservations in self.tasks.shut() {
            let registrant = self.scene.registrant.clone();
            let registrant = registrant.expect("it had logical units");
            let lost = lost.clone();
            reservations.ask(registrant, Operation::LoseNexus, move |_| drop(lost));
        }
        let shared = match &self.stage {
            Stage::Granted(granted) | Stage::Moving(_, granted) => granted.shared.clone(),
            _ => self.scene.shared.take(),
        };
        if let Some(shared) = shared {
            self.scene.line.shard.shared.own.registry.ended(&shared);
        }
    }
}
