//! The login of one connection: who it is, what it may, and what is agreed (RFC 7143, section 6.3).

use std::sync::Arc;

use weir_digest::Digest;
use weir_front::Line;
use weir_iscsi::chap::{self, ChapAlgorithm};
use weir_iscsi::login::{
    Admission, Authentication as Proof, ChapAuthentication, Claim, LoggedIn, LoginEnvironment,
    LoginLimits, Refusal, Response, SessionType, TargetLogin, TargetStep,
};
use weir_iscsi::negotiation::{Offer, Parameters};
use weir_iscsi::pdu::{Cid, LoginRequest, Tsih};
use weir_iscsi::serial::Serial;
use weir_iscsi::writer::{HEADER_SIZE_MAX, TRAILER_SIZE_MAX, Writer};
use weir_memory::Gather;

use crate::config::{IscsiConfig, PORTAL_GROUP};
use crate::protocol::{IscsiProtocol, SessionInfo};
use crate::registry::{Grant, Nexus, Shared};
use crate::scene::Scene;
use crate::served::{Authentication, Credentials, Target};
use crate::tasks::FIRST_WINDOW;

/// What became of a request.
pub(crate) enum LoginStep {
    /// It goes on.
    Goes,
    /// It waits for what earlier sessions of the initiator have left.
    Waits,
    /// It is over.
    Refused(Box<dyn std::error::Error>),
    /// The session is there.
    Granted(Box<Granted>),
}

/// A login that ended well, but for its last answer.
pub(crate) struct Granted {
    pub(crate) info: Arc<SessionInfo>,
    /// The session; none of a discovery session.
    pub(crate) shared: Option<Arc<Shared>>,
    pub(crate) parameters: Parameters,
    /// The connection as the initiator calls it.
    pub(crate) cid: Cid,
    pub(crate) cmd_sn: Serial,
    pub(crate) stat_sn: Serial,
    /// Answers that are not written yet.
    pub(crate) answers: Vec<Response>,
}

impl Granted {
    /// The reactor that it belongs on. None: any.
    pub(crate) fn reactor(&self) -> Option<usize> {
        self.shared.as_ref().map(|shared| shared.reactor)
    }
}

/// A login that is under way.
pub(crate) struct Login {
    machine: TargetLogin,
    /// All is agreed, but for the session.
    agreed: Option<Box<LoggedIn>>,
    answers: Vec<Response>,
}

impl Login {
    pub(crate) fn new(line: &Line<IscsiProtocol>) -> Self {
        let first = Serial(line.entry.owner);
        Login {
            machine: TargetLogin::new(first, FIRST_WINDOW, LoginLimits::default()),
            agreed: None,
            answers: Vec::new(),
        }
    }

    /// Tells whether it waits for others, so that nothing more is taken in.
    pub(crate) fn waits(&self) -> bool {
        self.agreed.is_some()
    }

    /// Takes a request that has come whole.
    pub(crate) fn request(
        &mut self,
        request: &LoginRequest,
        text: &[u8],
        scene: &Scene,
    ) -> LoginStep {
        match self.machine.receive(request, text, &mut Environment(scene)) {
            TargetStep::Respond(answer) => {
                self.answers.push(answer);
                LoginStep::Goes
            }
            TargetStep::Refused { response, error } => {
                self.answers.push(response);
                LoginStep::Refused(Box::new(error))
            }
            TargetStep::Complete(agreed) => {
                self.agreed = Some(agreed);
                self.retry(scene)
            }
        }
    }

    /// Tries to enter the session, now that all else is agreed.
    pub(crate) fn retry(&mut self, scene: &Scene) -> LoginStep {
        let Some(agreed) = self.agreed.take() else {
            return LoginStep::Goes;
        };
        let SessionType::Normal(target) = &agreed.session else {
            // It is known by its connection alone.
            let number = scene.line.entry.handle.id % u64::from(u16::MAX) + 1;
            return self.grant(*agreed, None, Tsih(number as u16));
        };
        let nexus = Nexus {
            initiator: agreed.initiator.clone(),
            isid: agreed.isid,
            target: target.clone(),
        };
        let own = &scene.line.shard.shared.own;
        let handle = &scene.line.entry.handle;
        match own.registry.enter(&nexus, handle, &own.config) {
            Grant::Granted(shared) => {
                let tsih = shared.tsih;
                self.grant(*agreed, Some(shared), tsih)
            }
            Grant::Wait => {
                self.agreed = Some(agreed);
                LoginStep::Waits
            }
            Grant::Full(reason) => {
                scene.line.shard.counters.over_sessions.add(1);
                self.answers
                    .push(self.machine.refuse(Refusal::OutOfResources));
                LoginStep::Refused(reason.into())
            }
        }
    }

    fn grant(&mut self, agreed: LoggedIn, shared: Option<Arc<Shared>>, tsih: Tsih) -> LoginStep {
        let answer = self.machine.accept(tsih);
        let is_discovery = agreed.session == SessionType::Discovery;
        let info = SessionInfo {
            initiator: agreed.initiator,
            alias: agreed.initiator_alias,
            isid: agreed.isid,
            target: match agreed.session {
                SessionType::Normal(target) => Some(target),
                SessionType::Discovery => None,
            },
            tsih: if is_discovery { Tsih::NONE } else { tsih },
            user: agreed.user,
            header_digest: agreed.parameters.header_digest,
            data_digest: agreed.parameters.data_digest,
        };
        let stat_sn = answer.header.serials.stat_sn.next();
        self.answers.push(answer);
        LoginStep::Granted(Box::new(Granted {
            info: Arc::new(info),
            shared,
            parameters: agreed.parameters,
            cid: agreed.cid,
            cmd_sn: agreed.cmd_sn,
            stat_sn,
            answers: std::mem::take(&mut self.answers),
        }))
    }

    /// Writes the answers that are ready.
    pub(crate) fn write(&mut self, out: &mut Gather) {
        for answer in self.answers.drain(..) {
            write_answer(&answer, out);
        }
    }
}

/// Writes an answer of a login, which has no digests.
pub(crate) fn write_answer(answer: &Response, out: &mut Gather) {
    let writer = Writer::default();
    let mut header = [0; HEADER_SIZE_MAX];
    let written = writer.header(&mut header, &answer.header);
    out.push_header(&header[..written]);
    if !answer.text.is_empty() {
        out.push_header(&answer.text);
        let mut trailer = [0; TRAILER_SIZE_MAX];
        let written = writer.trailer(&mut trailer, answer.text.len() as u32, Digest::new());
        out.push_header(&trailer[..written]);
    }
}

/// What a login asks of its surroundings.
struct Environment<'a>(&'a Scene);

impl Environment<'_> {
    /// Tells whether the target has a volume that has left commands unanswered, which may take effect still.
    fn has_unfenced(&self, target: &Target) -> bool {
        self.0.line.shard.shared.watches.any_unfenced(|volume| {
            let mut luns = target.luns.iter();
            luns.any(|lun| std::ptr::addr_eq(Arc::as_ptr(volume), Arc::as_ptr(&lun.volume)))
        })
    }
}

impl LoginEnvironment for Environment<'_> {
    fn admit(&mut self, claim: &Claim<'_>) -> Result<Admission, Refusal> {
        let own = &self.0.line.shard.shared.own;
        let mut admission = Admission {
            authentication: Proof::None,
            offer: offer_of(&own.config),
            portal_group: PORTAL_GROUP,
            target_alias: None,
        };
        let SessionType::Normal(name) = claim.session else {
            return Ok(admission);
        };
        if claim.tsih != Tsih::NONE {
            // A session has one connection.
            return Err(match own.registry.has(claim.tsih) {
                true => Refusal::TooManyConnections,
                false => Refusal::SessionDoesNotExist,
            });
        }
        let snapshot = self.0.line.shard.snapshot();
        let target = snapshot.target(name).ok_or(Refusal::NotFound)?;
        if !target.allowed.allows(claim.initiator) {
            return Err(Refusal::Forbidden);
        }
        if self.has_unfenced(target) {
            return Err(Refusal::Unavailable);
        }
        admission.target_alias.clone_from(&target.alias);
        admission.authentication = proof_of(&target.authentication)?;
        Ok(admission)
    }

    fn random(&mut self, bytes: &mut [u8]) {
        let system = self.0.line.shard.hub.reactor.system();
        system.random_bytes(bytes);
    }
}

/// What this side offers.
fn offer_of(config: &IscsiConfig) -> Offer {
    Offer {
        initial_r2t: config.initial_r2t,
        immediate_data: config.immediate_data,
        max_recv_data_segment_length: config.receive_segment_bytes,
        max_burst_length: config.max_burst_bytes,
        first_burst_length: config.first_burst_bytes,
        max_outstanding_r2t: config.outstanding_r2t.into(),
        // Nothing is kept for an initiator that comes back.
        default_time_to_wait: 0,
        default_time_to_retain: 0,
        ..Offer::default()
    }
}

fn proof_of(authentication: &Authentication) -> Result<Proof, Refusal> {
    let Authentication::Chap { initiator, target } = authentication else {
        return Ok(Proof::None);
    };
    let credentials = |of: &Credentials| {
        let secret = chap::Secret::new(of.secret.as_bytes());
        let name = of.user.clone();
        // Whoever set it checked its length.
        let secret = secret.map_err(|_| Refusal::Unavailable)?;
        Ok(chap::Credentials { name, secret })
    };
    Ok(Proof::Chap(Box::new(ChapAuthentication {
        initiator: credentials(initiator)?,
        target: target.as_ref().map(credentials).transpose()?,
        algorithms: ChapAlgorithm::ALL.to_vec(),
    })))
}
