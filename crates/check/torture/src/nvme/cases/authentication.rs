//! In-band authentication, of a target that has none (group 19).
//!
//! What a target must do with these commands while it says that it wants no authentication. The inputs that need the protocol itself are
//! listed, and do not apply yet.

use weir_nvme::command::{AdminCommand, ConnectResponse, FabricsCommand, SecurityTransfer};
use weir_nvme::identify::OptionalAdminCommands;
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{Sqe, Status};

use super::hosts::{Attempt, INVALID_FIELD, INVALID_OPCODE, SEQUENCE_ERROR, refused};
use crate::case::{Failure, check};
use crate::nvme::context::Context;
use crate::nvme::peer::Answer;

cases! {
    19 connect_asks_for_no_authentication [] "NVMe Base 2.0c 6.3"
        : "a Connect" => "AUTHREQ 0, from a target that knows no authentication";
    19 authentication_send [] "NVMe Base 2.0c 6.2, 3.3.3.2.1.1"
        : "Authentication Send of 64 bytes in its capsule" => "Invalid Field in Command (of FCTYPE), or Invalid Command Opcode";
    19 authentication_receive [] "NVMe Base 2.0c 6.1, 3.3.3.2.1.1"
        : "Authentication Receive of 4096 bytes" => "Invalid Field in Command (of FCTYPE), or Invalid Command Opcode";
    19 authentication_lengths [] "NVMe Base 2.0c 6.1, 6.2 (CVE-2026-90230)"
        : "Authentication Send and Receive whose TL or AL is 0, 1, below and above the SGL's, and 2^32 - 1" => "Invalid Field in Command, Invalid Command Opcode, or Data SGL Length Invalid";
    19 authentication_unknown_protocol [] "NVMe Base 2.0c 6.2"
        : "Authentication Send of SECP FFh" => "Invalid Field in Command, or Invalid Command Opcode";
    19 authentication_before_connect [] "NVMe Base 2.0c 6.3"
        : "Authentication Send as the first command" => "Command Sequence Error, another refusal, or the end of the connection";
    19 authentication_on_an_io_queue [] "NVMe Base 2.0c 6.2"
        : "Authentication Send on an I/O queue" => "Invalid Field in Command, or Invalid Command Opcode";
    19 security_send [] "NVMe Base 2.0c 5.25"
        : "Security Send and Receive, which OACS does not offer" => "Invalid Command Opcode";
    19 authentication_message_lengths not applicable "DH-HMAC-CHAP is not implemented: no message of it is parsed"
        : "each length field of each DH-HMAC-CHAP message short and long" => "AUTH_Failure2, and the end of the connection";
    19 authentication_wrong_order not applicable "DH-HMAC-CHAP is not implemented: no message of it is parsed"
        : "messages in the wrong order" => "AUTH_Failure, and the end of the connection";
    19 authentication_transaction_identifier not applicable "DH-HMAC-CHAP is not implemented: no message of it is parsed"
        : "another T_ID than the transaction's" => "AUTH_Failure";
    19 authentication_sequence_number not applicable "DH-HMAC-CHAP is not implemented: no message of it is parsed"
        : "S2 repeated, and 0 where it may not be" => "AUTH_Failure";
    19 authentication_again_in_the_middle not applicable "DH-HMAC-CHAP is not implemented: no message of it is parsed"
        : "a second negotiation while one is under way" => "AUTH_Failure";
    19 authentication_timeout_racing_close not applicable "DH-HMAC-CHAP is not implemented: there is no such time-out"
        : "the end of the connection while the authentication timer expires (CVE-2026-89970)" => "the end of the connection, once";
    19 authentication_constant_time not applicable "DH-HMAC-CHAP is not implemented: no response is compared"
        : "responses that differ in the first and in the last byte" => "AUTH_Failure after the same time";
    19 io_before_authentication not applicable "DH-HMAC-CHAP is not implemented: no queue waits for it"
        : "other commands before authentication is done" => "Authentication Required";
}

/// NVMe authentication's Security Protocol (SECP).
const PROTOCOL: u8 = 0xe9;

const REFUSALS: [Status; 2] = [INVALID_FIELD, Status::INVALID_COMMAND_OPCODE];

fn transfer(length: u32) -> SecurityTransfer {
    SecurityTransfer {
        protocol_specific: [1, 1],
        protocol: PROTOCOL,
        length,
    }
}

fn send(length: u32) -> Sqe {
    FabricsCommand::AuthenticationSend(transfer(length)).sqe(0, SglDescriptor::NONE)
}

fn receive(length: u32) -> Sqe {
    FabricsCommand::AuthenticationReceive(transfer(length)).sqe(0, SglDescriptor::NONE)
}

/// AUTH_Negotiate of one protocol, DH-HMAC-CHAP with SHA-256 and no group (NVMe Base 2.0c section 8.13.5.2).
fn negotiate() -> [u8; 72] {
    let mut message = [0; 72];
    // T_ID 1, one protocol descriptor: DH-HMAC-CHAP, one hash, one group.
    message[4] = 1;
    message[7] = 1;
    message[8] = 1;
    message[10] = 1;
    message[11] = 1;
    message[12] = 1;
    message
}

/// Nothing says beforehand whether a target knows authentication: one that takes the commands does.
fn has_no_authentication(context: &Context) -> Result<(), Failure> {
    if context.manner.exact {
        return Ok(());
    }
    let mut admin = context.controller()?.admin;
    let (cqe, _) = admin.command(receive(4096), &[], 4096)?;
    if cqe.status.is_success() {
        return Err(Failure::NotOffered(
            "a target without authentication".into(),
        ));
    }
    Ok(())
}

fn connect_asks_for_no_authentication(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let attempt = Attempt::admin(context);
    peer.send(&attempt.capsule(&peer, 1))?;
    let cqe = peer.expect_status("a Connect", 1, Status::SUCCESS)?;
    let required = ConnectResponse::from_result(cqe.dw0()).authentication;
    if required != 0 && !peer.manner.exact {
        return Err(Failure::NotOffered("access without authentication".into()));
    }
    check(required == 0, "AUTHREQ", "0", required)
}

fn authentication_send(context: &mut Context) -> Result<(), Failure> {
    has_no_authentication(context)?;
    let mut controller = context.controller()?;
    let message = negotiate();
    let sqe = send(message.len() as u32);
    let what = "Authentication Send";
    refused(&mut controller.admin, what, sqe, &message, 0, &REFUSALS)?;
    controller.admin.still_works(0, 0)
}

fn authentication_receive(context: &mut Context) -> Result<(), Failure> {
    has_no_authentication(context)?;
    let mut controller = context.controller()?;
    let what = "Authentication Receive";
    refused(
        &mut controller.admin,
        what,
        receive(4096),
        &[],
        4096,
        &REFUSALS,
    )?;
    controller.admin.still_works(0, 0)
}

fn authentication_lengths(context: &mut Context) -> Result<(), Failure> {
    has_no_authentication(context)?;
    let mut controller = context.controller()?;
    let refusals = [REFUSALS[0], REFUSALS[1], Status::DATA_SGL_LENGTH_INVALID];
    let message = negotiate();
    let own = message.len() as u32;
    for length in [0, 1, own - 1, own + 1, 8193, u32::MAX] {
        let what = format!("Authentication Send of TL {length}");
        let admin = &mut controller.admin;
        refused(admin, &what, send(length), &message, 0, &refusals)?;
        let what = format!("Authentication Receive of AL {length}");
        refused(admin, &what, receive(length), &[], 4096, &refusals)?;
    }
    controller.admin.still_works(0, 0)
}

fn authentication_unknown_protocol(context: &mut Context) -> Result<(), Failure> {
    has_no_authentication(context)?;
    let mut controller = context.controller()?;
    let command = FabricsCommand::AuthenticationSend(SecurityTransfer {
        protocol: 0xff,
        ..transfer(72)
    });
    let sqe = command.sqe(0, SglDescriptor::NONE);
    let what = "Authentication Send of SECP FFh";
    refused(&mut controller.admin, what, sqe, &negotiate(), 0, &REFUSALS).map(drop)
}

fn authentication_before_connect(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let message = negotiate();
    let mut sqe = send(message.len() as u32);
    sqe.cid = 3;
    sqe.sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: message.len() as u32,
    };
    peer.send(&peer.format.capsule(&sqe, &message))?;
    let answers = [
        Answer::Status(3, SEQUENCE_ERROR),
        Answer::Status(3, Status::INVALID_FIELD_IN_COMMAND),
        Answer::Status(3, Status::INVALID_COMMAND_OPCODE),
        Answer::End,
    ];
    peer.expect("Authentication Send before Connect", &answers)
        .map(drop)
}

fn authentication_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    has_no_authentication(context)?;
    let controller = context.controller()?;
    let mut queue = controller.io(1)?;
    let message = negotiate();
    let sqe = send(message.len() as u32);
    let what = "Authentication Send on an I/O queue";
    refused(&mut queue, what, sqe, &message, 0, &REFUSALS)?;
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}

fn security_send(context: &mut Context) -> Result<(), Failure> {
    const SECURITY_SEND: u8 = 0x81;
    const SECURITY_RECEIVE: u8 = 0x82;
    let mut controller = context.controller()?;
    let offered = context.facts.controller.optional_admin_commands;
    if offered.contains(OptionalAdminCommands::SECURITY) {
        return Err(Failure::NotOffered(
            "a controller without Security Send".into(),
        ));
    }
    for (what, opcode, data, reads) in [
        ("Security Send", SECURITY_SEND, &[0_u8; 64][..], 0),
        ("Security Receive", SECURITY_RECEIVE, &[], 512),
    ] {
        let sqe = Sqe {
            opcode,
            cdw11: 64,
            ..AdminCommand::KeepAlive.sqe(0, SglDescriptor::NONE)
        };
        let refusal = [INVALID_OPCODE];
        refused(&mut controller.admin, what, sqe, data, reads, &refusal)?;
    }
    controller.admin.still_works(0, 0)
}
