//! The target's side of the login phase (RFC 7143 sections 6.3, 11.12, 11.13 and 12.1).

mod error;
mod security;

pub use error::{LoginError, Refusal};
pub use security::{Authentication, ChapAuthentication};

use super::{LoggedIn, Received, Response, SessionType, Text, VERSION, is_transition};
use crate::keys::{NOT_UNDERSTOOD, OutgoingText, REJECT, TextBuffer, TextWriter};
use crate::names::Name;
use crate::negotiation::{Key, Negotiator, Offer};
use crate::pdu::{Cid, Isid, LoginRequest, LoginResponse, ResponseSerials, Side, Stage, Tsih};
use crate::reader::LOGIN_DATA_SEGMENT_MAX;
use crate::serial::Serial;
use crate::status::LoginStatus;
use security::Security;

/// Bounds of one login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoginLimits {
    /// Login Requests.
    pub requests_max: u32,
    /// Bytes of text in one exchange, over all of its PDUs.
    pub text_max: usize,
}

impl Default for LoginLimits {
    /// 64 requests, where hosts send three to six, and 16 KiB of text, where hosts send less than 1 KiB.
    fn default() -> Self {
        Self {
            requests_max: 64,
            text_max: 16 * 1024,
        }
    }
}

/// Identity that an initiator claims in its first request, which is not proven yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    /// InitiatorName.
    pub initiator: &'a Name,
    /// InitiatorAlias, where there is one.
    pub alias: Option<&'a str>,
    /// Session type, with TargetName.
    pub session: &'a SessionType,
    /// Initiator Session ID.
    pub isid: Isid,
    /// Target Session Identifying Handle: 0 for a new session.
    pub tsih: Tsih,
    /// Connection ID.
    pub cid: Cid,
}

/// Terms on which an initiator may go on.
#[derive(Debug, Clone)]
pub struct Admission {
    /// Proof of its identity that it must give.
    pub authentication: Authentication,
    /// Offer of this side in the negotiation.
    pub offer: Offer,
    /// TargetPortalGroupTag of the portal that the connection came to.
    pub portal_group: u16,
    /// TargetAlias, for people to read.
    pub target_alias: Option<String>,
}

/// Surroundings of a login, which answer its questions.
pub trait LoginEnvironment {
    /// Judges a first request: whether the initiator may log in there, and how. For a TSIH that is not 0 it says, too, whether there is
    /// such a session ([`Refusal::SessionDoesNotExist`]) and whether it takes another connection ([`Refusal::TooManyConnections`]).
    ///
    /// # Errors
    /// The login is refused.
    fn admit(&mut self, claim: &Claim<'_>) -> Result<Admission, Refusal>;

    /// Fills `bytes` with random numbers that nobody can foretell.
    fn random(&mut self, bytes: &mut [u8]);
}

/// Next step after a request.
#[derive(Debug)]
pub enum TargetStep {
    /// The response is sent, and another request awaited.
    Respond(Response),
    /// The initiator may log in, and waits: [`TargetLogin::accept`] or [`TargetLogin::refuse`] has the last response.
    Complete(Box<LoggedIn>),
    /// The response is sent and the connection closed.
    Refused {
        /// The response.
        response: Response,
        /// The error.
        error: LoginError,
    },
}

/// Fields that are the same in all requests of a login (section 11.12).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Constant {
    isid: Isid,
    tsih: Tsih,
    cid: Cid,
    itt: crate::pdu::Itt,
    cmd_sn: Serial,
}

impl Constant {
    const fn of(request: &LoginRequest) -> Self {
        Self {
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
            itt: request.itt,
            cmd_sn: request.cmd_sn,
        }
    }

    /// The name of the first field that is another than in `request`.
    fn difference(&self, request: &LoginRequest) -> Option<&'static str> {
        let fields = [
            (self.isid != request.isid, "ISID"),
            (self.tsih != request.tsih, "TSIH"),
            (self.cid != request.cid, "CID"),
            (self.itt != request.itt, "Initiator Task Tag"),
            (self.cmd_sn != request.cmd_sn, "CmdSN"),
        ];
        let different = fields.into_iter().find(|(different, _)| *different);
        different.map(|(_, name)| name)
    }
}

/// The initiator's name and what it wants, after the first request.
#[derive(Debug)]
struct Identity {
    initiator: Name,
    alias: Option<String>,
    session: SessionType,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Requests are awaited.
    Open,
    /// The last response waits for [`TargetLogin::accept`].
    Complete,
    /// Nothing is awaited.
    Ended,
}

/// A target's side of one connection's login.
///
/// Give [`TargetLogin::receive`] each Login Request with its text; it says what to send and when the login is complete.
#[derive(Debug)]
pub struct TargetLogin {
    limits: LoginLimits,
    state: State,
    requests: u32,
    stat_sn: Serial,
    /// Commands that the session takes at once.
    command_window: u32,
    /// Fields of the first request.
    constant: Option<Constant>,
    /// The last request's header, which the next response answers.
    request: Option<LoginRequest>,
    stage: Stage,
    incoming: TextBuffer,
    outgoing: OutgoingText,
    received: Received,
    identity: Option<Identity>,
    security: Security,
    negotiator: Negotiator,
}

impl TargetLogin {
    /// A login whose first response has `stat_sn`, into a session that takes `command_window` commands at once.
    pub fn new(stat_sn: Serial, command_window: u32, limits: LoginLimits) -> Self {
        Self {
            limits,
            state: State::Open,
            requests: 0,
            stat_sn,
            command_window,
            constant: None,
            request: None,
            stage: Stage::Security,
            incoming: TextBuffer::new(limits.text_max),
            outgoing: OutgoingText::new(),
            received: Received::default(),
            identity: None,
            security: Security::Unknown,
            negotiator: Negotiator::new(Side::Target, Offer::default()),
        }
    }

    /// The initiator's name, once it said it, proven or not.
    pub fn initiator(&self) -> Option<&Name> {
        self.identity.as_ref().map(|identity| &identity.initiator)
    }

    /// Session type and target, once the initiator said them.
    pub fn session(&self) -> Option<&SessionType> {
        self.identity.as_ref().map(|identity| &identity.session)
    }

    /// Takes a request with its text.
    ///
    /// Panics after [`TargetStep::Complete`] or [`TargetStep::Refused`].
    pub fn receive(
        &mut self,
        request: &LoginRequest,
        text: &[u8],
        environment: &mut impl LoginEnvironment,
    ) -> TargetStep {
        assert_eq!(self.state, State::Open, "the login ended");
        self.request = Some(*request);
        match self.advance(request, text, environment) {
            Ok(step) => step,
            Err(error) => self.end(error),
        }
    }

    /// Ends the login well: the connection belongs to session `tsih` and is in the full feature phase when the response is sent.
    ///
    /// Panics unless [`TargetStep::Complete`] was the last step.
    pub fn accept(&mut self, tsih: Tsih) -> Response {
        assert_eq!(self.state, State::Complete, "the login is not complete");
        self.state = State::Ended;
        let mut response = self.respond(true);
        response.header.tsih = tsih;
        response
    }

    /// Refuses an initiator that could log in but for something that only the caller knows.
    ///
    /// Panics unless [`TargetStep::Complete`] was the last step.
    pub fn refuse(&mut self, refusal: Refusal) -> Response {
        assert_eq!(self.state, State::Complete, "the login is not complete");
        self.refusal(&LoginError::Refused(refusal))
    }

    fn end(&mut self, error: LoginError) -> TargetStep {
        let response = self.refusal(&error);
        TargetStep::Refused { response, error }
    }

    fn refusal(&mut self, error: &LoginError) -> Response {
        self.state = State::Ended;
        self.outgoing = OutgoingText::new();
        if let Some(address) = error.moved_to() {
            let mut text = TextWriter::new();
            text.push(Key::TargetAddress.name(), address);
            self.outgoing.add(text.bytes());
        }
        let mut response = self.respond(false);
        response.header.status = error.status();
        response.header.continues = false;
        response
    }

    fn advance(
        &mut self,
        request: &LoginRequest,
        text: &[u8],
        environment: &mut impl LoginEnvironment,
    ) -> Result<TargetStep, LoginError> {
        self.check_header(request)?;
        if !self.outgoing.is_empty() {
            return self.go_on_sending(request, text);
        }
        let Some(text) = self.incoming.add(text, request.continues)? else {
            return Ok(TargetStep::Respond(self.respond(false)));
        };
        let text = text.to_vec();
        let answers = self.answer(&text, request.transit, environment)?;
        self.outgoing.add(answers.bytes());
        self.transit(request)
    }

    /// The initiator asks for the rest of a text that did not fit one PDU.
    fn go_on_sending(
        &mut self,
        request: &LoginRequest,
        text: &[u8],
    ) -> Result<TargetStep, LoginError> {
        if !text.is_empty() {
            return Err(LoginError::TextInsideText);
        }
        self.transit(request)
    }

    fn check_header(&mut self, request: &LoginRequest) -> Result<(), LoginError> {
        self.requests += 1;
        if self.requests > self.limits.requests_max {
            let maximum = self.limits.requests_max;
            return Err(LoginError::TooManyRequests { maximum });
        }
        if request.version_min > VERSION {
            return Err(LoginError::UnsupportedVersion {
                minimum: request.version_min,
                maximum: request.version_max,
            });
        }
        let first = self.constant.is_none();
        let constant = *self.constant.get_or_insert(Constant::of(request));
        if let Some(field) = constant.difference(request) {
            return Err(LoginError::FieldChanged { field });
        }
        let current = request.current_stage;
        if first && matches!(current, Stage::Security | Stage::Operational) {
            self.stage = current;
        }
        if current != self.stage {
            return Err(LoginError::WrongStage {
                expected: self.stage,
                current,
            });
        }
        if request.transit && request.continues {
            return Err(LoginError::TransitInsideText);
        }
        if request.transit && !is_transition(current, request.next_stage) {
            let next = request.next_stage;
            return Err(LoginError::WrongTransition { current, next });
        }
        Ok(())
    }

    /// Answers a complete text.
    fn answer(
        &mut self,
        text: &[u8],
        transit: bool,
        environment: &mut impl LoginEnvironment,
    ) -> Result<TextWriter, LoginError> {
        let text = Text::parse(text)?;
        let mut answers = TextWriter::new();
        if self.identity.is_none() {
            self.identify(&text, environment, &mut answers)?;
        }
        for (key, value) in &text.known {
            if !self.negotiator.receive(*key, value, &mut answers)? {
                self.received.known(*key)?;
                self.reject_misplaced(*key, &mut answers);
            }
        }
        for key in &text.unknown {
            self.received.unknown(key)?;
            answers.push(key, NOT_UNDERSTOOD);
        }
        if self.stage == Stage::Security {
            let mut random = |bytes: &mut [u8]| environment.random(bytes);
            self.security.answer(&text, &mut random, &mut answers)?;
            return Ok(answers);
        }
        self.security.check_open()?;
        // An initiator that stays in the stage may have more to propose.
        if transit {
            self.negotiator.propose(&mut answers);
        } else {
            self.negotiator.declare(&mut answers);
        }
        Ok(answers)
    }

    /// Answers a key that has no place in this stage.
    fn reject_misplaced(&self, key: Key, answers: &mut TextWriter) {
        let late = key == Key::AuthMethod && self.stage != Stage::Security;
        if late || key == Key::SendTargets {
            answers.push(key.name(), REJECT);
        }
    }

    /// Takes the keys of the first text that say who wants what, and asks for admission.
    fn identify(
        &mut self,
        text: &Text<'_>,
        environment: &mut impl LoginEnvironment,
        answers: &mut TextWriter,
    ) -> Result<(), LoginError> {
        let identity = Identity::read(text)?;
        let constant = self.constant.expect("a request came");
        let admission = environment.admit(&Claim {
            initiator: &identity.initiator,
            alias: identity.alias.as_deref(),
            session: &identity.session,
            isid: constant.isid,
            tsih: constant.tsih,
            cid: constant.cid,
        })?;
        self.negotiator.set_offer(admission.offer);
        match &identity.session {
            SessionType::Discovery => self.negotiator.set_discovery(),
            SessionType::Normal(_) => {
                let group = Key::TargetPortalGroupTag.name();
                answers.push(group, admission.portal_group);
                if let Some(alias) = &admission.target_alias {
                    answers.push(Key::TargetAlias.name(), alias);
                }
            }
        }
        self.security = Security::new(admission.authentication);
        self.identity = Some(identity);
        Ok(())
    }

    /// Goes to the stage that the initiator wants, where nothing is left to say in this one.
    fn transit(&mut self, request: &LoginRequest) -> Result<TargetStep, LoginError> {
        let text_fits = self.outgoing.rest() <= self.text_max();
        let security_done = self.stage != Stage::Security || self.security.is_done();
        let ready = text_fits && security_done && self.negotiator.is_settled();
        if !request.transit || !ready {
            return Ok(TargetStep::Respond(self.respond(false)));
        }
        if self.stage == Stage::Security {
            // An initiator that never offered a method is not asked for one.
            self.security.check_open()?;
        }
        if request.next_stage == Stage::FullFeature {
            let logged_in = self.logged_in()?;
            self.state = State::Complete;
            return Ok(TargetStep::Complete(Box::new(logged_in)));
        }
        let response = self.respond(true);
        self.stage = request.next_stage;
        Ok(TargetStep::Respond(response))
    }

    fn logged_in(&self) -> Result<LoggedIn, LoginError> {
        let identity = self.identity.as_ref().expect("the first text came");
        let constant = self.constant.expect("a request came");
        Ok(LoggedIn {
            initiator: identity.initiator.clone(),
            initiator_alias: identity.alias.clone(),
            session: identity.session.clone(),
            isid: constant.isid,
            tsih: constant.tsih,
            cid: constant.cid,
            parameters: self.negotiator.finish()?,
            cmd_sn: constant.cmd_sn,
            // The last response takes one.
            stat_sn: self.stat_sn.next(),
            max_cmd_sn: self.serials(constant.cmd_sn).max_cmd_sn,
            user: self.security.user().map(str::to_owned),
        })
    }

    /// Most bytes of text in one response.
    fn text_max(&self) -> usize {
        let peer = self
            .negotiator
            .parameters()
            .peer_max_recv_data_segment_length;
        peer.min(LOGIN_DATA_SEGMENT_MAX) as usize
    }

    const fn serials(&self, cmd_sn: Serial) -> ResponseSerials {
        ResponseSerials {
            stat_sn: self.stat_sn,
            exp_cmd_sn: cmd_sn,
            max_cmd_sn: cmd_sn.plus(self.command_window).minus(1),
        }
    }

    /// The response to the last request, with the text that is next.
    fn respond(&mut self, transit: bool) -> Response {
        let request = self.request.expect("a request came");
        let maximum = self.text_max();
        let text = self.outgoing.take(maximum).to_vec();
        let header = LoginResponse {
            transit,
            continues: !self.outgoing.is_empty(),
            current_stage: request.current_stage,
            next_stage: if transit {
                request.next_stage
            } else {
                Stage::Security
            },
            version_max: VERSION,
            version_active: VERSION,
            isid: request.isid,
            tsih: request.tsih,
            itt: request.itt,
            serials: self.serials(request.cmd_sn),
            status: LoginStatus::Success,
            data_length: text.len() as u32,
        };
        self.stat_sn = self.stat_sn.next();
        Response { header, text }
    }
}

impl Identity {
    fn read(text: &Text<'_>) -> Result<Self, LoginError> {
        let name = |key: Key, missing: LoginError| {
            let name: Result<Name, _> = text.get(key).ok_or(missing)?.parse();
            name.map_err(|error| LoginError::Name { key, error })
        };
        let initiator = name(Key::InitiatorName, LoginError::MissingInitiatorName)?;
        let session = match text.get(Key::SessionType).unwrap_or("Normal") {
            "Normal" => SessionType::Normal(name(Key::TargetName, LoginError::MissingTargetName)?),
            "Discovery" => SessionType::Discovery,
            other => {
                return Err(LoginError::UnsupportedSessionType {
                    value: other.to_owned(),
                });
            }
        };
        let alias = text.get(Key::InitiatorAlias).map(str::to_owned);
        Ok(Self {
            initiator,
            alias,
            session,
        })
    }
}
