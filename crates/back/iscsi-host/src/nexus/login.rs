//! The login of a connection, between its bytes and the state machine of [`weir_iscsi::login`].

use weir_iscsi::login::{InitiatorLogin, InitiatorSettings, InitiatorStep, LoggedIn, Request};
use weir_iscsi::pdu::{LoginResponse, Opcode};
use weir_iscsi::writer::{HEADER_SIZE_MAX, Writer, padding_length};
use weir_memory::Gather;

use super::fault::{Fault, Violation};

/// Random bytes that a CHAP challenge takes at most: those of the longest digest, and CHAP_I.
pub(crate) const CHALLENGE_BYTES: usize = 33;

/// A login that is not complete.
pub(super) struct LoginPhase {
    login: InitiatorLogin,
    /// The request that is to be sent.
    request: Option<Request>,
    /// Text of the response that is being received.
    text: Vec<u8>,
    challenge: [u8; CHALLENGE_BYTES],
}

impl LoginPhase {
    pub(super) fn new(settings: InitiatorSettings, challenge: [u8; CHALLENGE_BYTES]) -> LoginPhase {
        let mut login = InitiatorLogin::new(settings);
        let request = Some(login.start());
        LoginPhase {
            login,
            request,
            text: Vec::new(),
            challenge,
        }
    }

    pub(super) fn has_output(&self) -> bool {
        self.request.is_some()
    }

    pub(super) fn transmit(&mut self, gather: &mut Gather) {
        let Some(Request { header, text }) = self.request.take() else {
            return;
        };
        // A login has no digests.
        let mut bytes = [0; HEADER_SIZE_MAX];
        let length = Writer::default().header(&mut bytes, &header);
        gather.push_header(&bytes[..length]);
        gather.push_header(&text);
        gather.push_header(&[0; 3][..padding_length(header.data_length)]);
    }

    /// TargetPortalGroupTag, once the target said it.
    pub(super) fn portal_group(&self) -> Option<u16> {
        self.login.portal_group()
    }

    /// Takes text of a response, which the reader bounds.
    pub(super) fn text(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
    }

    /// Takes a response whose text is here; what was agreed, where it is the last one.
    pub(super) fn response(
        &mut self,
        response: &LoginResponse,
    ) -> Result<Option<Box<LoggedIn>>, Fault> {
        if self.request.is_some() {
            return Err(Violation::Unexpected(Opcode::LoginResponse).into());
        }
        let text = std::mem::take(&mut self.text);
        let challenge = &self.challenge;
        let mut random = |bytes: &mut [u8]| bytes.copy_from_slice(&challenge[..bytes.len()]);
        match self.login.receive(response, &text, &mut random) {
            Ok(InitiatorStep::Send(request)) => {
                self.request = Some(request);
                Ok(None)
            }
            Ok(InitiatorStep::Complete(logged_in)) => Ok(Some(logged_in)),
            Err(error) => Err(Fault::Login(error)),
        }
    }
}
