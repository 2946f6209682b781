//! Text requests after the login: which targets there are, and where (RFC 7143, sections 11.10, 13.3 and appendix C).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weir_iscsi::keys::{NOT_UNDERSTOOD, Pairs, REJECT, TextBuffer, TextError};
use weir_iscsi::names::Name;
use weir_iscsi::pdu::{RejectReason, TextRequest, Ttt};
use weir_iscsi::send_targets::{PairCutter, SendTargets};
use weir_memory::View;

use crate::config::PORTAL_GROUP;
use crate::scene::Scene;
use crate::served::Snapshot;
use crate::tasks::task::Answer;

/// Text of one request at most, in bytes.
const REQUEST_BYTES_MAX: usize = 4096;

type Records = Box<dyn Iterator<Item = String>>;

/// The exchange of text that is under way.
pub(crate) struct Texts {
    request: TextBuffer,
    answer: Option<PairCutter<Records>>,
    /// The tag of the answer that is not complete.
    tag: u32,
}

impl Default for Texts {
    fn default() -> Self {
        Texts {
            request: TextBuffer::new(REQUEST_BYTES_MAX),
            answer: None,
            tag: 0,
        }
    }
}

impl Texts {
    /// Answers a request. `maximum`: bytes of text that an answer may have.
    pub(crate) fn request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        scene: &Scene,
        maximum: usize,
    ) -> Result<Answer, RejectReason> {
        if request.continues && request.is_final {
            // The last part is not followed by another one (RFC 7143, section 11.10.2).
            return Err(RejectReason::ProtocolError);
        }
        let is_new = request.ttt == Ttt::RESERVED;
        if !is_new && request.ttt != Ttt(self.tag) {
            return Err(RejectReason::InvalidPduField);
        }
        if is_new {
            self.answer = None;
            self.request = TextBuffer::new(REQUEST_BYTES_MAX);
        }
        if self.answer.is_none() {
            let text = self.request.add(data, request.continues);
            let text = text.map_err(|_| RejectReason::ProtocolError)?;
            let Some(text) = text else {
                // The initiator goes on.
                return Ok(self.part(request, Vec::new(), false, false));
            };
            let records = records_of(text, scene).map_err(|_| RejectReason::ProtocolError)?;
            self.answer = Some(PairCutter::new(records));
        }
        let mut text = Vec::new();
        let answer = self.answer.as_mut().expect("it was just set");
        let has_more = answer.fill(&mut text, maximum);
        if !has_more {
            self.answer = None;
        }
        // An initiator that has more to say is not answered that all is said (RFC 7143, section 11.11.1).
        let is_final = request.is_final && !has_more;
        Ok(self.part(request, text, is_final, has_more))
    }

    fn part(
        &mut self,
        request: &TextRequest,
        text: Vec<u8>,
        is_final: bool,
        continues: bool,
    ) -> Answer {
        // Not the reserved one.
        self.tag = self.tag % 0x7fff_ffff + 1;
        Answer::Text {
            itt: request.itt,
            tag: match is_final {
                true => Ttt::RESERVED,
                false => Ttt(self.tag),
            },
            data: View::copy_of(&text),
            is_final,
            continues,
        }
    }
}

/// What answers some text.
fn records_of(text: &[u8], scene: &Scene) -> Result<Records, TextError> {
    // In a list, and not one chained behind the other: a text may have thousands of keys.
    let mut records = Vec::new();
    for pair in Pairs::new(text) {
        let pair = pair?;
        records.push(match pair.key {
            "SendTargets" => targets(pair.value, scene),
            key => one(format!("{key}={NOT_UNDERSTOOD}\0")),
        });
    }
    Ok(Box::new(records.into_iter().flatten()))
}

fn one(record: String) -> Records {
    Box::new(std::iter::once(record))
}

/// The targets that SendTargets asks for: in a discovery session those that the initiator may use, and in another one its own.
fn targets(value: &str, scene: &Scene) -> Records {
    let Ok(asked) = SendTargets::parse(value) else {
        return one(format!("SendTargets={REJECT}\0"));
    };
    let own = scene.target().cloned();
    let wanted = match (asked, own) {
        (SendTargets::All, None) => None,
        (SendTargets::Target(name), None) => Some(name),
        (SendTargets::Session, Some(own)) => Some(own),
        (SendTargets::Target(name), Some(own)) if name == own => Some(own),
        (SendTargets::All | SendTargets::Session | SendTargets::Target(_), _) => {
            return one(format!("SendTargets={REJECT}\0"));
        }
    };
    let snapshot = scene.line.shard.snapshot();
    let initiator = scene.initiator().cloned();
    let reached = scene.line.entry.local;
    let count = snapshot.targets.len();
    let of_target = move |index: usize| -> Vec<String> {
        let target = &snapshot.targets[index];
        let is_wanted = wanted.as_ref().is_none_or(|name| *name == target.name);
        let is_allowed = initiator
            .as_ref()
            .is_some_and(|initiator| target.allowed.allows(initiator));
        match is_wanted && is_allowed {
            true => records(&target.name, &snapshot, reached),
            false => Vec::new(),
        }
    };
    Box::new((0..count).flat_map(of_target))
}

/// A target and where it is, as an initiator reaches it that has reached `reached`.
fn records(target: &Name, snapshot: &Arc<Snapshot>, reached: SocketAddr) -> Vec<String> {
    let mut records = vec![format!("TargetName={target}\0")];
    for portal in &snapshot.portals {
        let address = portal.address;
        let place = match &portal.advertise {
            Some(place) => place.clone(),
            None if address.ip().is_unspecified() => {
                // Of both families where it listens on both.
                if is_ipv4(reached.ip()) != address.is_ipv4() && address.is_ipv4() {
                    continue;
                }
                SocketAddr::new(reached.ip().to_canonical(), address.port()).to_string()
            }
            None => address.to_string(),
        };
        records.push(format!("TargetAddress={place},{PORTAL_GROUP}\0"));
    }
    records
}

fn is_ipv4(address: IpAddr) -> bool {
    address.to_canonical().is_ipv4()
}
