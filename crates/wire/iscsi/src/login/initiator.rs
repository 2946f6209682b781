//! The initiator's side of the login phase (RFC 7143 sections 6.3, 11.12, 11.13 and 12.1).

use super::{
    ChapError, LoggedIn, Received, Request, SessionType, Text, VERSION, algorithm_list,
    is_transition, push_challenge, push_response, read_challenge, read_response,
};
use crate::chap::{Challenge, ChapAlgorithm, Credentials, is_same_name};
use crate::keys::{NOT_UNDERSTOOD, OutgoingText, TextBuffer, TextError, TextWriter, parse_number};
use crate::names::Name;
use crate::negotiation::{Key, NegotiationError, Negotiator, Offer};
use crate::pdu::{Cid, Isid, Itt, LoginRequest, LoginResponse, Side, Stage, Tsih};
use crate::reader::LOGIN_DATA_SEGMENT_MAX;
use crate::serial::Serial;
use crate::status::LoginStatus;
use thiserror::Error;

/// Most responses of a login.
const RESPONSES_MAX: u32 = 64;
/// Most bytes of one exchange's text.
const TEXT_MAX: usize = 16 * 1024;

/// Credentials by which an initiator proves who it is.
#[derive(Debug, Clone)]
pub struct InitiatorChap {
    /// Name and secret of this initiator.
    pub initiator: Credentials,
    /// The target's, where it must prove itself, too. The secret must not be the initiator's.
    pub target: Option<Credentials>,
    /// Algorithms, in order of preference.
    pub algorithms: Vec<ChapAlgorithm>,
}

/// Settings of a login.
#[derive(Debug, Clone)]
pub struct InitiatorSettings {
    /// InitiatorName.
    pub initiator: Name,
    /// InitiatorAlias.
    pub alias: Option<String>,
    /// Session type, with the target.
    pub session: SessionType,
    /// Initiator Session ID.
    pub isid: Isid,
    /// Target Session Identifying Handle: 0 for a new session.
    pub tsih: Tsih,
    /// Connection ID.
    pub cid: Cid,
    /// Initiator Task Tag of the login.
    pub itt: Itt,
    /// CmdSN of the session's first command.
    pub cmd_sn: Serial,
    /// CHAP; without it the initiator offers none.
    pub chap: Option<InitiatorChap>,
    /// Offer of this side in the negotiation.
    pub offer: Offer,
}

/// Next step after a response.
#[derive(Debug)]
pub enum InitiatorStep {
    /// The request is sent, and another response awaited.
    Send(Request),
    /// The connection is in the full feature phase.
    Complete(Box<LoggedIn>),
}

/// A login that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InitiatorLoginError {
    /// The target refused.
    #[error("the target refused the login: {0}")]
    Refused(LoginStatus),
    /// The target is somewhere else.
    #[error("{status}: {address}")]
    Moved {
        /// For now, or for good.
        status: LoginStatus,
        /// TargetAddress.
        address: String,
    },
    /// The target speaks another version.
    #[error("the target speaks iSCSI version {active}, not 0")]
    UnsupportedVersion {
        /// Version-active.
        active: u8,
    },
    /// A field is not that of the request.
    #[error("{field} is not that of the request")]
    WrongField {
        /// The field.
        field: &'static str,
    },
    /// A stage that was not asked for.
    #[error("the target goes to stage {next}, which was not asked for")]
    WrongTransition {
        /// NSG.
        next: Stage,
    },
    /// The target chose a method that was not offered, or none.
    #[error("the target chose AuthMethod={chosen}, which was not offered")]
    WrongMethod {
        /// The method that it chose.
        chosen: String,
    },
    /// The target did not prove who it is.
    #[error("the target went on without having authenticated itself")]
    TargetNotAuthenticated,
    /// CHAP failed.
    #[error(transparent)]
    Chap(#[from] ChapError),
    /// Text that is no text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The negotiation failed.
    #[error(transparent)]
    Negotiation(#[from] NegotiationError),
    /// More responses than a login has.
    #[error("more than {RESPONSES_MAX} responses")]
    TooManyResponses,
    /// The target gave the session no handle.
    #[error("the last response has no TSIH")]
    NoHandle,
}

/// Progress of CHAP.
#[derive(Debug)]
enum Security {
    /// AuthMethod was offered.
    Method,
    /// CHAP_A was offered.
    Algorithm,
    /// The response was sent, and perhaps a challenge.
    Response(Option<Challenge>),
    /// Nothing is left. By CHAP, where it is set.
    Done(bool),
}

/// An initiator's side of one connection's login.
///
/// [`InitiatorLogin::start`] makes the first request; [`InitiatorLogin::receive`] takes each response and makes the next.
#[derive(Debug)]
pub struct InitiatorLogin {
    settings: InitiatorSettings,
    stage: Stage,
    /// The last request's.
    transit: Option<Stage>,
    responses: u32,
    exp_stat_sn: Serial,
    incoming: TextBuffer,
    outgoing: OutgoingText,
    received: Received,
    security: Security,
    negotiator: Negotiator,
    /// The keys of the operational stage were sent.
    proposed: bool,
    portal_group: Option<u16>,
}

impl InitiatorLogin {
    /// A login that has not begun.
    pub fn new(settings: InitiatorSettings) -> Self {
        let mut negotiator = Negotiator::new(Side::Initiator, settings.offer);
        if settings.session == SessionType::Discovery {
            negotiator.set_discovery();
        }
        Self {
            stage: Stage::Security,
            transit: None,
            responses: 0,
            exp_stat_sn: Serial(0),
            incoming: TextBuffer::new(TEXT_MAX),
            outgoing: OutgoingText::new(),
            received: Received::default(),
            security: Security::Method,
            negotiator,
            proposed: false,
            portal_group: None,
            settings,
        }
    }

    /// TargetPortalGroupTag, once the target said it.
    pub const fn portal_group(&self) -> Option<u16> {
        self.portal_group
    }

    /// The first request: names, and the methods of authentication.
    pub fn start(&mut self) -> Request {
        let mut text = TextWriter::new();
        text.push(Key::InitiatorName.name(), &self.settings.initiator);
        if let Some(alias) = &self.settings.alias {
            text.push(Key::InitiatorAlias.name(), alias);
        }
        match &self.settings.session {
            SessionType::Normal(target) => {
                text.push(Key::SessionType.name(), "Normal");
                text.push(Key::TargetName.name(), target);
            }
            SessionType::Discovery => text.push(Key::SessionType.name(), "Discovery"),
        }
        let methods = match &self.settings.chap {
            // A target that need not know is not told.
            Some(InitiatorChap { target: None, .. }) => "CHAP,None",
            Some(_) => "CHAP",
            None => "None",
        };
        text.push(Key::AuthMethod.name(), methods);
        self.outgoing.add(text.bytes());
        let transit = self.settings.chap.is_none().then_some(Stage::Operational);
        self.request(transit)
    }

    /// Takes a response with its text. `random` fills the bytes of a challenge, where the target must prove itself.
    ///
    /// # Errors
    /// The login failed; the connection is closed.
    pub fn receive(
        &mut self,
        response: &LoginResponse,
        text: &[u8],
        random: &mut dyn FnMut(&mut [u8]),
    ) -> Result<InitiatorStep, InitiatorLoginError> {
        self.check_header(response, text)?;
        self.exp_stat_sn = response.serials.stat_sn.next();
        if !self.outgoing.is_empty() {
            return Ok(InitiatorStep::Send(self.request(None)));
        }
        let Some(text) = self.incoming.add(text, response.continues)? else {
            return Ok(InitiatorStep::Send(self.request(None)));
        };
        let text = text.to_vec();
        let mut answers = TextWriter::new();
        self.answer(&text, random, &mut answers)?;
        if response.transit {
            self.check_transition(response)?;
            if response.next_stage == Stage::FullFeature {
                return self.complete(response);
            }
            self.stage = response.next_stage;
        }
        if self.stage == Stage::Operational && !core::mem::replace(&mut self.proposed, true) {
            self.negotiator.propose(&mut answers);
        }
        self.outgoing.add(answers.bytes());
        let transit = match (self.stage, &self.security) {
            (Stage::Security, Security::Response(_) | Security::Done(_)) => {
                Some(Stage::Operational)
            }
            (Stage::Security, _) => None,
            _ => Some(Stage::FullFeature),
        };
        Ok(InitiatorStep::Send(self.request(transit)))
    }

    fn check_header(
        &mut self,
        response: &LoginResponse,
        text: &[u8],
    ) -> Result<(), InitiatorLoginError> {
        self.responses += 1;
        if self.responses > RESPONSES_MAX {
            return Err(InitiatorLoginError::TooManyResponses);
        }
        if !response.status.is_success() {
            return Err(refused(response.status, text));
        }
        let active = response.version_active;
        if active != VERSION {
            return Err(InitiatorLoginError::UnsupportedVersion { active });
        }
        let wrong = [
            (response.isid != self.settings.isid, "ISID"),
            (response.itt != self.settings.itt, "Initiator Task Tag"),
            (response.current_stage != self.stage, "CSG"),
            (
                self.responses > 1 && response.serials.stat_sn != self.exp_stat_sn,
                "StatSN",
            ),
            (response.transit && response.continues, "T with C"),
        ];
        match wrong.into_iter().find(|(wrong, _)| *wrong) {
            Some((_, field)) => Err(InitiatorLoginError::WrongField { field }),
            None => Ok(()),
        }
    }

    fn check_transition(&self, response: &LoginResponse) -> Result<(), InitiatorLoginError> {
        let next = response.next_stage;
        if self.transit != Some(next) || !is_transition(self.stage, next) {
            return Err(InitiatorLoginError::WrongTransition { next });
        }
        let wants_proof = self
            .settings
            .chap
            .as_ref()
            .is_some_and(|chap| chap.target.is_some());
        if wants_proof && !matches!(self.security, Security::Done(true)) {
            return Err(InitiatorLoginError::TargetNotAuthenticated);
        }
        Ok(())
    }

    fn answer(
        &mut self,
        text: &[u8],
        random: &mut dyn FnMut(&mut [u8]),
        answers: &mut TextWriter,
    ) -> Result<(), InitiatorLoginError> {
        let text = Text::parse(text)?;
        for (key, value) in &text.known {
            if !self.negotiator.receive(*key, value, answers)? {
                self.received.known(*key)?;
            }
        }
        for key in &text.unknown {
            self.received.unknown(key)?;
            answers.push(key, NOT_UNDERSTOOD);
        }
        if let Some(group) = text.get(Key::TargetPortalGroupTag) {
            self.portal_group = parse_number(group).and_then(|group| u16::try_from(group).ok());
        }
        if self.stage == Stage::Security {
            self.answer_security(&text, random, answers)?;
        }
        Ok(())
    }

    fn answer_security(
        &mut self,
        text: &Text<'_>,
        random: &mut dyn FnMut(&mut [u8]),
        answers: &mut TextWriter,
    ) -> Result<(), InitiatorLoginError> {
        let chap = self.settings.chap.as_ref();
        let state = core::mem::replace(&mut self.security, Security::Done(false));
        self.security = match (state, chap) {
            (Security::Method, chap) => choose_method(text, chap, answers)?,
            (Security::Algorithm, Some(chap)) => answer_challenge(text, chap, random, answers)?,
            (Security::Response(challenge), Some(chap)) => {
                judge_target(text, chap, challenge)?;
                Security::Done(true)
            }
            (done @ Security::Done(_), _) => done,
            (Security::Algorithm | Security::Response(_), None) => unreachable!("CHAP was offered"),
        };
        Ok(())
    }

    fn complete(&self, response: &LoginResponse) -> Result<InitiatorStep, InitiatorLoginError> {
        if response.tsih == Tsih::NONE {
            return Err(InitiatorLoginError::NoHandle);
        }
        let settings = &self.settings;
        Ok(InitiatorStep::Complete(Box::new(LoggedIn {
            initiator: settings.initiator.clone(),
            initiator_alias: settings.alias.clone(),
            session: settings.session.clone(),
            isid: settings.isid,
            tsih: response.tsih,
            cid: settings.cid,
            parameters: self.negotiator.finish()?,
            cmd_sn: settings.cmd_sn,
            stat_sn: self.exp_stat_sn,
            max_cmd_sn: response.serials.max_cmd_sn,
            user: self.user(),
        })))
    }

    /// CHAP_N, where the target asked for it.
    fn user(&self) -> Option<String> {
        let chap = self.settings.chap.as_ref()?;
        matches!(self.security, Security::Done(true)).then(|| chap.initiator.name.clone())
    }

    fn request(&mut self, transit: Option<Stage>) -> Request {
        let peer = self
            .negotiator
            .parameters()
            .peer_max_recv_data_segment_length;
        let maximum = peer.min(LOGIN_DATA_SEGMENT_MAX) as usize;
        let text = self.outgoing.take(maximum).to_vec();
        let continues = !self.outgoing.is_empty();
        // The stage is left with the last of the text.
        self.transit = transit.filter(|_| !continues);
        let settings = &self.settings;
        let header = LoginRequest {
            transit: self.transit.is_some(),
            continues,
            current_stage: self.stage,
            next_stage: self.transit.unwrap_or(Stage::Security),
            version_max: VERSION,
            version_min: VERSION,
            isid: settings.isid,
            tsih: settings.tsih,
            itt: settings.itt,
            cid: settings.cid,
            cmd_sn: settings.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            data_length: text.len() as u32,
        };
        Request { header, text }
    }
}

/// The error of a response that refuses, with the address where it says one.
fn refused(status: LoginStatus, text: &[u8]) -> InitiatorLoginError {
    let address = Text::parse(text)
        .ok()
        .and_then(|text| text.get(Key::TargetAddress).map(str::to_owned));
    match address {
        Some(address) if status.class() == 1 => InitiatorLoginError::Moved { status, address },
        _ => InitiatorLoginError::Refused(status),
    }
}

/// Takes the method that the target chose. One that chooses nothing wants none.
fn choose_method(
    text: &Text<'_>,
    chap: Option<&InitiatorChap>,
    answers: &mut TextWriter,
) -> Result<Security, InitiatorLoginError> {
    match (text.get(Key::AuthMethod).unwrap_or("None"), chap) {
        ("CHAP", Some(chap)) => {
            answers.push(Key::ChapAlgorithm.name(), algorithm_list(&chap.algorithms));
            Ok(Security::Algorithm)
        }
        ("None", None | Some(InitiatorChap { target: None, .. })) => Ok(Security::Done(false)),
        (chosen, _) => Err(InitiatorLoginError::WrongMethod {
            chosen: chosen.to_owned(),
        }),
    }
}

/// Answers the target's challenge, and challenges it where it must prove itself.
fn answer_challenge(
    text: &Text<'_>,
    chap: &InitiatorChap,
    random: &mut dyn FnMut(&mut [u8]),
    answers: &mut TextWriter,
) -> Result<Security, InitiatorLoginError> {
    let chosen = text
        .get(Key::ChapAlgorithm)
        .ok_or(ChapError::Missing(Key::ChapAlgorithm))?;
    let algorithm =
        ChapAlgorithm::choose(chosen, &chap.algorithms).ok_or_else(|| ChapError::NoAlgorithm {
            offered: chosen.to_owned(),
            allowed: algorithm_list(&chap.algorithms),
        })?;
    if let Some(target) = &chap.target
        && target.secret.is_same(&chap.initiator.secret)
    {
        return Err(ChapError::SameSecret.into());
    }
    let theirs = read_challenge(text, algorithm)?;
    let response = theirs.response(&chap.initiator.secret);
    push_response(answers, &chap.initiator.name, &response);
    if chap.target.is_none() {
        return Ok(Security::Response(None));
    }
    let ours = Challenge::draw(algorithm, random);
    push_challenge(answers, &ours);
    Ok(Security::Response(Some(ours)))
}

/// Judges the target's response to this side's challenge.
fn judge_target(
    text: &Text<'_>,
    chap: &InitiatorChap,
    challenge: Option<Challenge>,
) -> Result<(), InitiatorLoginError> {
    let (Some(challenge), Some(target)) = (challenge, &chap.target) else {
        return Ok(());
    };
    let (name, response) = read_response(text)?;
    let right_name = is_same_name(name, &target.name);
    if challenge.is_answered_by(&response, &target.secret) & right_name {
        return Ok(());
    }
    let name = name.to_owned();
    Err(ChapError::Wrong { name }.into())
}
