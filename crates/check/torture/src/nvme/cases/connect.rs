//! Connect: what is wrong in its fields and its data, and at the wrong time (groups 16 and 17).

use std::time::{Duration, Instant};

use weir_nvme::command::{AdminCommand, ConnectData, ConnectParameter, FabricsCommand, Identify};
use weir_nvme::command::{PropertyGet, PropertySize};
use weir_nvme::identify::Cns;
use weir_nvme::nqn::DISCOVERY_NQN;
use weir_nvme::property::{Capabilities, ControllerStatus, Property};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::{HostId, Sqe, Status};

use super::hosts::{
    Attempt, Disk, NO_NQN, SEQUENCE_ERROR, block_of, connect_refused, connect_refused_by,
    discovery, expect_any, has_disconnect, read_sqe, set_queues, write_sqe,
};
use crate::case::{Failure, Needs};
use crate::nvme::context::Context;
use crate::nvme::peer::{Answer, Got, Peer};
use crate::nvme::queue::{Controller, Queue, enabled};

cases! {
    16 connect_data_too_short [] "NVMe Base 2.0c 6.3, 3.3.3.2.1"
        : "a Connect whose SGL says 512 bytes" => "Data SGL Length Invalid, or Invalid Field in Command";
    16 connect_data_too_long [] "NVMe Base 2.0c 6.3, 3.3.3.2.1"
        : "a Connect whose SGL says 2048 bytes" => "Data SGL Length Invalid, or Invalid Field in Command";
    16 connect_without_data [] "NVMe Base 2.0c 6.3, 3.3.3.2.1"
        : "a Connect without data" => "Data SGL Length Invalid, or an SGL status, or Invalid Field in Command";
    16 connect_record_format [] "NVMe Base 2.0c 6.3"
        : "a Connect with RECFMT 1" => "Connect Incompatible Format";
    16 connect_queue_size_zero [] "NVMe Base 2.0c 6.3"
        : "SQSIZE 0" => "Connect Invalid Parameters, IPO 44";
    16 admin_queue_size_above_maximum [] "NVMe Base 2.0c 6.3"
        : "SQSIZE FFFFh for the admin queue" => "Connect Invalid Parameters, IPO 44, or a queue: MQES is of I/O queues";
    16 io_queue_size_above_maximum [] "NVMe Base 2.0c 6.3, 3.1.3.1"
        : "SQSIZE above CAP.MQES for an I/O queue" => "Connect Invalid Parameters, IPO 44";
    16 queue_identifier_above_maximum [] "NVMe Base 2.0c 6.3"
        : "QID FFFFh" => "Connect Invalid Parameters, IPO 42, or Invalid Queue Identifier";
    16 queue_identifier_above_granted [] "NVMe Base 2.0c 6.3, 5.27.1.5"
        : "a QID above the Number of Queues that was granted" => "Connect Invalid Parameters, IPO 42, or Invalid Queue Identifier";
    16 queue_identifier_in_use [] "NVMe Base 2.0c 6.3"
        : "a QID twice" => "Invalid Queue Identifier, Command Sequence Error or Connect Invalid Parameters, and the queue that is there goes on";
    16 admin_controller_by_number [] "NVMe Base 2.0c 6.3"
        : "CNTLID 1 for an admin queue, of a subsystem with dynamic controllers" => "Connect Invalid Parameters, IPO 16 in the data";
    16 admin_controller_any_static [] "NVMe Base 2.0c 6.3"
        : "CNTLID FFFEh, of a subsystem with dynamic controllers" => "Connect Invalid Parameters, IPO 16 in the data";
    16 io_controller_unknown [] "NVMe Base 2.0c 6.3"
        : "an I/O queue of a controller that is not there" => "Connect Invalid Parameters, IPO 16 in the data";
    16 io_controller_any [] "NVMe Base 2.0c 6.3"
        : "an I/O queue with CNTLID FFFFh" => "Connect Invalid Parameters, IPO 16 in the data";
    16 io_host_nqn_differs [] "NVMe Base 2.0c 6.3"
        : "an I/O queue with another HOSTNQN than the admin queue's" => "Connect Invalid Parameters, IPO 512 in the data, or Connect Invalid Host";
    16 io_host_identifier_differs [] "NVMe Base 2.0c 6.3"
        : "an I/O queue with another HOSTID than the admin queue's" => "a queue, for targets go by HOSTNQN and CNTLID; else Connect Invalid Parameters or Connect Invalid Host";
    16 io_subsystem_differs [] "NVMe Base 2.0c 6.3"
        : "an I/O queue with the discovery subsystem's name" => "Connect Invalid Parameters, IPO 42, 16 or 256";
    16 subsystem_nqn_unterminated [] "NVMe Base 2.0c 4.5, 6.3 (CVE-2023-6121)"
        : "a SUBNQN of 256 bytes without a NUL" => "Connect Invalid Parameters, IPO 256 in the data";
    16 subsystem_nqn_too_long [] "NVMe Base 2.0c 4.5, 6.3"
        : "a SUBNQN of 224 bytes" => "Connect Invalid Parameters, IPO 256 in the data";
    16 subsystem_nqn_empty [] "NVMe Base 2.0c 4.5, 6.3"
        : "an empty SUBNQN" => "Connect Invalid Parameters, IPO 256 in the data";
    16 subsystem_nqn_unknown [] "NVMe Base 2.0c 6.3"
        : "a SUBNQN that nobody has" => "Connect Invalid Parameters, IPO 256 in the data";
    16 subsystem_nqn_not_text [] "NVMe Base 2.0c 4.5, 6.3"
        : "a SUBNQN that is not UTF-8" => "Connect Invalid Parameters, IPO 256 in the data";
    16 host_nqn_unterminated [] "NVMe Base 2.0c 4.5, 6.3 (CVE-2023-6121)"
        : "a HOSTNQN of 256 bytes without a NUL" => "Connect Invalid Parameters, IPO 512 in the data, or Connect Invalid Host";
    16 host_nqn_empty [] "NVMe Base 2.0c 4.5, 6.3"
        : "an empty HOSTNQN" => "a controller where any host may connect, because some hosts send none; else Connect Invalid Parameters or Connect Invalid Host";
    16 io_queue_of_discovery [] "NVMe Base 2.0c 3.1.2.3, 6.3"
        : "an I/O queue of a discovery controller" => "Connect Invalid Parameters, IPO 42, or another refusal of Connect";
    16 a_refused_connect_can_be_repeated [] "NVMe Base 2.0c 6.3"
        : "a refused Connect, and a good one on the same connection" => "the refusal, then the controller; or the refusal and the end of the connection";

    17 two_connects_in_one_segment [] "NVMe Base 2.0c 6.3"
        : "two Connects of an admin queue in one segment" => "a controller, then Command Sequence Error or Connect Controller Busy";
    17 two_io_connects_in_one_segment [] "NVMe Base 2.0c 6.3"
        : "two Connects of one I/O queue in one segment" => "a queue, then Command Sequence Error or Connect Controller Busy";
    17 connect_twice [] "NVMe Base 2.0c 6.3"
        : "a Connect on an admin queue" => "Command Sequence Error or Connect Controller Busy, and the queue goes on";
    17 connect_twice_on_an_io_queue [] "NVMe Base 2.0c 6.3"
        : "a Connect on an I/O queue" => "Command Sequence Error or Connect Controller Busy, and the queue goes on";
    17 read_before_connect [] "NVMe Base 2.0c 3.3.1, 6.3"
        : "a Read as the first command" => "Command Sequence Error, or the end of the connection";
    17 identify_before_connect [] "NVMe Base 2.0c 3.3.1, 6.3"
        : "an Identify as the first command" => "Command Sequence Error, or the end of the connection";
    17 property_get_before_connect [] "NVMe Base 2.0c 3.3.1, 6.3"
        : "a Property Get as the first command" => "Command Sequence Error, or the end of the connection";
    17 a_command_behind_connect_in_one_segment [] "NVMe Base 2.0c 3.3.1, 6.3"
        : "a Connect of an I/O queue and a Read in one segment" => "a queue, then data; or Command Sequence Error to the Read";
    17 io_queue_before_enable [] "NVMe Base 2.0c 3.5.1, 6.3"
        : "an I/O queue of a controller whose CC.EN is 0" => "Command Sequence Error, or another refusal of Connect";
    17 io_queue_on_another_listener [SECOND_LISTENER] "NVMe Base 2.0c 3.3.1, 6.3"
        : "an I/O queue on another port than the admin queue" => "Connect Invalid Parameters, IPO 16 in the data, or another refusal of Connect";
    17 admin_queue_gone [] "NVMe Base 2.0c 3.3.1, 6.3"
        : "an I/O queue after the admin queue's connection was reset" => "Connect Invalid Parameters, IPO 16 in the data; what was granted before ends";
    17 admin_queue_going [] "NVMe Base 2.0c 3.3.1, 6.3"
        : "the Connect of an I/O queue while the admin queue is reset, 30 times" => "Connect Invalid Parameters, or a queue that then ends";
    17 queue_identifier_reused_while_closing [] "NVMe Base 2.0c 6.3 (CVE-2026-90206)"
        : "a QID of a queue that was just reset with writes in flight, 30 times" => "a queue, at once or after Invalid Queue Identifier; never more queues than were granted";
    17 queue_identifier_wanted_by_two [] "NVMe Base 2.0c 6.3 (CVE-2026-90206)"
        : "one QID in Connects of two connections at the same moment, 30 times" => "one queue; Invalid Queue Identifier, Command Sequence Error or Connect Invalid Parameters to the other";
    17 connect_racing_a_reset [] "NVMe Base 2.0c 3.7.2, 6.3"
        : "the Connect of an I/O queue and CC.EN 0 at the same moment, 30 times" => "Command Sequence Error, or a queue that then ends; CSTS.RDY 0, and CC.EN 1 works";
    17 queue_identifier_reused_after_disconnect [] "NVMe Base 2.0c 3.3.2.4, 6.3"
        : "a QID right after the answer to its Disconnect" => "a queue";
}

/// How often a race is run.
const RACES: usize = 30;

fn connect_data_too_short(context: &mut Context) -> Result<(), Failure> {
    connect_with_data_of(context, 512)
}

fn connect_data_too_long(context: &mut Context) -> Result<(), Failure> {
    connect_with_data_of(context, 2048)
}

/// A Connect with so many bytes of data, all of which are in its capsule.
fn connect_with_data_of(context: &mut Context, length: usize) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let attempt = Attempt::admin(context);
    let mut data = attempt.data.encode().to_vec();
    data.resize(length, 0);
    let mut sqe = attempt.sqe(1);
    sqe.sgl = SglDescriptor::InCapsule {
        offset: 0,
        length: length as u32,
    };
    peer.send(&peer.format.capsule(&sqe, &data))?;
    expect_any(
        &mut peer,
        &format!("a Connect with {length} bytes of data"),
        1,
        &[
            Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry(),
            Status::INVALID_FIELD_IN_COMMAND,
            Status::CONNECT_INVALID_PARAMETERS,
        ],
    )
    .map(drop)
}

fn connect_without_data(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut sqe = Attempt::admin(context).sqe(1);
    sqe.sgl = SglDescriptor::NONE;
    peer.send(&peer.format.capsule(&sqe, &[]))?;
    expect_any(
        &mut peer,
        "a Connect without data",
        1,
        &[
            Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry(),
            Status::INVALID_FIELD_IN_COMMAND,
            Status::SGL_DESCRIPTOR_TYPE_INVALID,
            Status::CONNECT_INVALID_PARAMETERS,
        ],
    )
    .map(drop)
}

fn connect_record_format(context: &mut Context) -> Result<(), Failure> {
    let mut attempt = Attempt::admin(context);
    attempt.connect.record_format = 1;
    let expected = [Status::CONNECT_INCOMPATIBLE_FORMAT.with_do_not_retry()];
    connect_refused(context, "RECFMT 1", &attempt, &expected).map(drop)
}

fn connect_queue_size_zero(context: &mut Context) -> Result<(), Failure> {
    let mut attempt = Attempt::admin(context);
    attempt.connect.sqsize = 0;
    connect_refused_by(
        context,
        "SQSIZE 0",
        &attempt,
        ConnectParameter::QUEUE_SIZE,
        &[],
    )
}

fn admin_queue_size_above_maximum(context: &mut Context) -> Result<(), Failure> {
    let mut attempt = Attempt::admin(context);
    attempt.connect.sqsize = u16::MAX;
    let parameter = ConnectParameter::QUEUE_SIZE;
    connect_refused_by(
        context,
        "SQSIZE FFFFh",
        &attempt,
        parameter,
        &[Status::SUCCESS],
    )
}

fn io_queue_size_above_maximum(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let capabilities = Capabilities(controller.admin.property(Property::Capabilities)?);
    let mut attempt = Attempt::io(context, controller.id, 1);
    // SQSIZE is 0's based: this is one entry more than there may be.
    let Ok(sqsize) = u16::try_from(capabilities.maximum_queue_entries()) else {
        return Err(Failure::NotOffered("a CAP.MQES below the largest".into()));
    };
    attempt.connect.sqsize = sqsize;
    let parameter = ConnectParameter::QUEUE_SIZE;
    connect_refused_by(context, "SQSIZE of MQES + 1", &attempt, parameter, &[])
}

fn queue_identifier_above_maximum(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let attempt = Attempt::io(context, controller.id, u16::MAX);
    let others = [Status::INVALID_QUEUE_IDENTIFIER];
    connect_refused_by(
        context,
        "QID FFFFh",
        &attempt,
        ConnectParameter::QUEUE_ID,
        &others,
    )
}

fn queue_identifier_above_granted(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let granted = set_queues(&mut controller.admin, 1)?;
    let attempt = Attempt::io(context, controller.id, granted + 1);
    let what = format!("QID {} of {granted}", granted + 1);
    let others = [Status::INVALID_QUEUE_IDENTIFIER];
    connect_refused_by(
        context,
        &what,
        &attempt,
        ConnectParameter::QUEUE_ID,
        &others,
    )
}

fn queue_identifier_in_use(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let attempt = Attempt::io(context, disk.controller.id, 1);
    let expected = [
        Status::INVALID_QUEUE_IDENTIFIER.with_do_not_retry(),
        Status::COMMAND_SEQUENCE_ERROR,
        Status::CONNECT_INVALID_PARAMETERS,
        Status::CONNECT_CONTROLLER_BUSY,
    ];
    connect_refused(context, "a QID that is in use", &attempt, &expected)?;
    disk.still_works()
}

fn admin_controller_by_number(context: &mut Context) -> Result<(), Failure> {
    let mut attempt = Attempt::admin(context);
    attempt.data.controller_id = 1;
    let parameter = ConnectParameter::CONTROLLER_ID;
    connect_refused_by(context, "CNTLID 1", &attempt, parameter, &[])
}

fn admin_controller_any_static(context: &mut Context) -> Result<(), Failure> {
    let mut attempt = Attempt::admin(context);
    attempt.data.controller_id = ConnectData::ANY_STATIC_CONTROLLER;
    let parameter = ConnectParameter::CONTROLLER_ID;
    connect_refused_by(context, "CNTLID FFFEh", &attempt, parameter, &[])
}

fn io_controller_unknown(context: &mut Context) -> Result<(), Failure> {
    // The identifiers that are given out rise: half the range away there is none.
    let controller = context.controller()?;
    let attempt = Attempt::io(context, (controller.id ^ 0x7000).max(1), 1);
    let parameter = ConnectParameter::CONTROLLER_ID;
    connect_refused_by(
        context,
        "a CNTLID that nobody has",
        &attempt,
        parameter,
        &[],
    )
}

fn io_controller_any(context: &mut Context) -> Result<(), Failure> {
    let _controller = context.controller()?;
    let attempt = Attempt::io(context, ConnectData::ANY_CONTROLLER, 1);
    let parameter = ConnectParameter::CONTROLLER_ID;
    connect_refused_by(context, "CNTLID FFFFh", &attempt, parameter, &[])
}

fn io_host_nqn_differs(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let attempt =
        Attempt::io(context, controller.id, 1).with_host(b"nqn.2026-01.com.example:somebody-else");
    let others = [Status::CONNECT_INVALID_HOST];
    connect_refused_by(
        context,
        "another HOSTNQN",
        &attempt,
        ConnectParameter::HOST_NQN,
        &others,
    )
}

fn io_host_identifier_differs(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let attempt = Attempt::io(context, controller.id, 1).with_host_identifier(HostId([0xee; 16]));
    let statuses = [
        Status::SUCCESS,
        Status::CONNECT_INVALID_PARAMETERS,
        Status::CONNECT_INVALID_HOST,
    ];
    connect_refused(context, "another HOSTID", &attempt, &statuses).map(drop)
}

fn io_subsystem_differs(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let attempt = Attempt::io(context, controller.id, 1).with_subsystem(DISCOVERY_NQN.as_bytes());
    let others = [
        Status::CONNECT_INVALID_PARAMETERS,
        Status::INVALID_QUEUE_IDENTIFIER,
    ];
    connect_refused_by(
        context,
        "another SUBNQN",
        &attempt,
        ConnectParameter::QUEUE_ID,
        &others,
    )
}

fn subsystem_nqn_unterminated(context: &mut Context) -> Result<(), Failure> {
    bad_subsystem_nqn(context, "256 bytes without a NUL", &NO_NQN)
}

fn subsystem_nqn_too_long(context: &mut Context) -> Result<(), Failure> {
    bad_subsystem_nqn(context, "224 bytes", &NO_NQN[..224])
}

fn subsystem_nqn_empty(context: &mut Context) -> Result<(), Failure> {
    bad_subsystem_nqn(context, "nothing", &[])
}

fn subsystem_nqn_unknown(context: &mut Context) -> Result<(), Failure> {
    bad_subsystem_nqn(context, "nobody's name", b"nqn.2026-01.com.example:nobody")
}

fn subsystem_nqn_not_text(context: &mut Context) -> Result<(), Failure> {
    bad_subsystem_nqn(context, "no UTF-8", b"nqn.2026-01.com.example:\xff\xfe\x80")
}

fn bad_subsystem_nqn(context: &mut Context, what: &str, name: &[u8]) -> Result<(), Failure> {
    let attempt = Attempt::admin(context).with_subsystem(name);
    let what = format!("a SUBNQN of {what}");
    connect_refused_by(
        context,
        &what,
        &attempt,
        ConnectParameter::SUBSYSTEM_NQN,
        &[],
    )
}

fn host_nqn_unterminated(context: &mut Context) -> Result<(), Failure> {
    bad_host_nqn(context, "256 bytes without a NUL", &NO_NQN)
}

fn host_nqn_empty(context: &mut Context) -> Result<(), Failure> {
    let attempt = Attempt::admin(context).with_host(&[]);
    // Weir calls such a host by its identifier.
    let statuses = [
        Status::SUCCESS,
        Status::CONNECT_INVALID_PARAMETERS,
        Status::CONNECT_INVALID_HOST,
    ];
    connect_refused(context, "an empty HOSTNQN", &attempt, &statuses).map(drop)
}

fn bad_host_nqn(context: &mut Context, what: &str, name: &[u8]) -> Result<(), Failure> {
    let attempt = Attempt::admin(context).with_host(name);
    let what = format!("a HOSTNQN of {what}");
    let others = [Status::CONNECT_INVALID_HOST];
    connect_refused_by(
        context,
        &what,
        &attempt,
        ConnectParameter::HOST_NQN,
        &others,
    )
}

fn io_queue_of_discovery(context: &mut Context) -> Result<(), Failure> {
    let controller = discovery(context)?;
    let attempt = Attempt::io(context, controller.id, 1).with_subsystem(DISCOVERY_NQN.as_bytes());
    let others = [
        Status::INVALID_QUEUE_IDENTIFIER,
        Status::CONNECT_CONTROLLER_BUSY,
        Status::COMMAND_SEQUENCE_ERROR,
    ];
    let what = "an I/O queue of a discovery controller";
    connect_refused_by(context, what, &attempt, ConnectParameter::QUEUE_ID, &others)
}

fn a_refused_connect_can_be_repeated(context: &mut Context) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut attempt = Attempt::admin(context);
    attempt.connect.sqsize = 0;
    peer.send(&attempt.capsule(&peer, 1))?;
    let refusal = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
    peer.expect_status("SQSIZE 0", 1, refusal)?;
    attempt = Attempt::admin(context);
    peer.send(&attempt.capsule(&peer, 2))?;
    let answers = [Answer::Status(2, Status::SUCCESS), Answer::End];
    peer.expect("a good Connect after a refused one", &answers)
        .map(drop)
}

/// Weir's own refusal of a Connect on a queue that is connected, and those of others.
const CONNECTED_ALREADY: [Status; 3] = [
    SEQUENCE_ERROR,
    Status::CONNECT_CONTROLLER_BUSY,
    Status::CONNECT_INVALID_PARAMETERS,
];

fn two_connects_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    let attempt = Attempt::admin(context);
    two_at_once(context, &attempt)
}

fn two_io_connects_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let attempt = Attempt::io(context, controller.id, 1);
    two_at_once(context, &attempt)
}

fn two_at_once(context: &mut Context, attempt: &Attempt) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    let mut bytes = attempt.capsule(&peer, 1);
    bytes.extend(attempt.capsule(&peer, 2));
    peer.send(&bytes)?;
    peer.expect_status("the first of two Connects", 1, Status::SUCCESS)?;
    expect_any(
        &mut peer,
        "the second of two Connects",
        2,
        &CONNECTED_ALREADY,
    )
    .map(drop)
}

fn connect_twice(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let attempt = Attempt::admin(context);
    again(&attempt, &mut controller.admin)?;
    controller.admin.still_works(0, 0)
}

fn connect_twice_on_an_io_queue(context: &mut Context) -> Result<(), Failure> {
    let mut disk = Disk::new(context)?;
    let attempt = Attempt::io(context, disk.controller.id, 1);
    again(&attempt, &mut disk.io)?;
    disk.still_works()
}

/// The CID of what is sent past the queue that a connection has become.
const ASIDE: u16 = 0x7ff0;

fn again(attempt: &Attempt, peer: &mut Peer) -> Result<(), Failure> {
    peer.send(&attempt.capsule(peer, ASIDE))?;
    let what = "a Connect on a queue that is connected";
    expect_any(peer, what, ASIDE, &CONNECTED_ALREADY).map(drop)
}

fn read_before_connect(context: &mut Context) -> Result<(), Failure> {
    before_connect(context, "a Read", read_sqe(1, 0, 1))
}

fn identify_before_connect(context: &mut Context) -> Result<(), Failure> {
    let identify = AdminCommand::Identify(Identify::new(Cns::Controller, 0));
    before_connect(context, "an Identify", identify.sqe(0, SglDescriptor::NONE))
}

fn property_get_before_connect(context: &mut Context) -> Result<(), Failure> {
    let get = FabricsCommand::PropertyGet(PropertyGet {
        size: PropertySize::FourBytes,
        offset: Property::Status.value(),
    });
    before_connect(context, "a Property Get", get.sqe(0, SglDescriptor::NONE))
}

fn before_connect(context: &mut Context, what: &str, mut sqe: Sqe) -> Result<(), Failure> {
    let mut peer = context.initialized()?;
    sqe.cid = 9;
    if !sqe.is_fabrics() {
        sqe.sgl = SglDescriptor::Transport { length: 4096 };
    }
    peer.send(&peer.format.capsule(&sqe, &[]))?;
    let answers = [Answer::Status(9, SEQUENCE_ERROR), Answer::End];
    peer.expect(&format!("{what} before Connect"), &answers)
        .map(drop)
}

fn a_command_behind_connect_in_one_segment(context: &mut Context) -> Result<(), Failure> {
    let block = context.facts.block_bytes;
    let controller = context.controller()?;
    let mut peer = context.initialized()?;
    let attempt = Attempt::io(context, controller.id, 1);
    let mut sqe = read_sqe(context.target.nsid, 0, 1);
    sqe.cid = 2;
    sqe.sgl = SglDescriptor::Transport { length: block };
    let mut bytes = attempt.capsule(&peer, 1);
    bytes.extend(peer.format.capsule(&sqe, &[]));
    peer.send(&bytes)?;
    // The Read may be refused before the Connect is answered.
    let (mut connected, mut answered) = (false, false);
    while !connected || !answered {
        let got = peer.receive();
        match &got {
            Got::Response(cqe) if cqe.cid == 1 && cqe.status.is_success() => connected = true,
            Got::Response(cqe) if cqe.cid == 2 && cqe.status.is_success() => answered = true,
            Got::Data(data, _) if data.cid == 2 && connected => answered = data.success,
            _ => {
                let answers = [Answer::Status(2, SEQUENCE_ERROR)];
                peer.judge("a Connect and a Read behind it", &answers, got)?;
                answered = true;
            }
        }
    }
    Ok(())
}

fn io_queue_before_enable(context: &mut Context) -> Result<(), Failure> {
    let controller =
        Controller::connected(context.target.address, &context.options(), context.manner)?;
    let attempt = Attempt::io(context, controller.id, 1);
    let expected = [
        SEQUENCE_ERROR,
        Status::CONNECT_INVALID_PARAMETERS,
        Status::CONNECT_CONTROLLER_BUSY,
    ];
    connect_refused(context, "an I/O queue before CC.EN", &attempt, &expected).map(drop)
}

fn io_queue_on_another_listener(context: &mut Context) -> Result<(), Failure> {
    let Some(second) = context.target.second else {
        return Err(Failure::NotOffered("a second listener".into()));
    };
    let controller = context.controller()?;
    let mut peer = Peer::connect(second, context.manner)?;
    peer.initialize(&context.options().request())?;
    let attempt = Attempt::io(context, controller.id, 1);
    peer.send(&attempt.capsule(&peer, 1))?;
    let expected = [
        Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry(),
        Status::CONNECT_INVALID_HOST,
        Status::CONNECT_CONTROLLER_BUSY,
        Status::COMMAND_SEQUENCE_ERROR,
    ];
    expect_any(&mut peer, "an I/O queue on another port", 1, &expected).map(drop)
}

fn admin_queue_gone(context: &mut Context) -> Result<(), Failure> {
    let controller = context.controller()?;
    let id = controller.id;
    controller.admin.into_peer().reset();
    let until = Instant::now() + context.manner.patience;
    let attempt = Attempt::io(context, id, 1);
    loop {
        let mut peer = context.initialized()?;
        peer.send(&attempt.capsule(&peer, 1))?;
        match peer.receive() {
            // The target has not seen the end yet: it grants the queue, and ends it with the controller.
            Got::Response(cqe) if cqe.status.is_success() && Instant::now() < until => {
                peer.expect_end("an I/O queue whose admin queue is gone")?;
            }
            got => {
                let refusal = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
                let answers = [
                    Answer::Status(1, refusal),
                    Answer::Status(1, Status::CONNECT_CONTROLLER_BUSY),
                    Answer::Status(1, Status::COMMAND_SEQUENCE_ERROR),
                ];
                let what = "an I/O queue after its admin queue";
                return peer.judge(what, &answers, got).map(drop);
            }
        }
    }
}

fn admin_queue_going(context: &mut Context) -> Result<(), Failure> {
    for _ in 0..RACES {
        let controller = context.controller()?;
        let mut peer = context.initialized()?;
        let attempt = Attempt::io(context, controller.id, 1);
        let capsule = attempt.capsule(&peer, 1);
        let admin = controller.admin.into_peer();
        std::thread::scope(|scope| {
            scope.spawn(|| admin.reset());
            peer.send(&capsule)
        })?;
        match peer.receive() {
            Got::Response(cqe) if cqe.status.is_success() => {
                peer.expect_end("an I/O queue whose admin queue goes")?;
            }
            // Granted, and ended before the answer was sent.
            Got::Closed | Got::Reset => {}
            got => {
                let refusal = Status::CONNECT_INVALID_PARAMETERS.with_do_not_retry();
                let answers = [
                    Answer::Status(1, refusal),
                    Answer::Status(1, Status::CONNECT_CONTROLLER_BUSY),
                    Answer::Status(1, Status::COMMAND_SEQUENCE_ERROR),
                ];
                peer.judge("an I/O queue whose admin queue goes", &answers, got)?;
            }
        }
    }
    Ok(())
}

fn queue_identifier_reused_while_closing(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    let granted = set_queues(&mut controller.admin, 1)?;
    let mut queue = controller.io(1)?;
    let nsid = context.target.nsid;
    for round in 0..RACES {
        if context.given.contains(Needs::WRITES) {
            // In flight, all of them: nobody waits for their answers.
            let data = block_of(context, round as u8);
            let mut bytes = Vec::new();
            for lba in 0..8 {
                let (_, capsule) = queue.prepare(write_sqe(nsid, lba, 1), &data, 0);
                bytes.extend(capsule);
            }
            queue.send(&bytes)?;
        }
        queue.into_peer().reset();
        queue = reconnected(context, controller.id, 1)?;
    }
    // However often it was reused, there are no more queues than were granted.
    let attempt = Attempt::io(context, controller.id, granted + 1);
    let others = [Status::INVALID_QUEUE_IDENTIFIER];
    let what = "a queue more than was granted";
    connect_refused_by(context, what, &attempt, ConnectParameter::QUEUE_ID, &others)?;
    queue.still_works(nsid, context.facts.block_bytes)
}

fn queue_identifier_wanted_by_two(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    set_queues(&mut controller.admin, 1)?;
    for _ in 0..RACES {
        let attempt = Attempt::io(context, controller.id, 1);
        let mut peers = [context.initialized()?, context.initialized()?];
        let capsules = peers.each_ref().map(|peer| attempt.capsule(peer, 1));
        std::thread::scope(|scope| {
            let sent = peers
                .iter_mut()
                .zip(&capsules)
                .map(|(peer, capsule)| scope.spawn(|| peer.send(capsule)))
                .collect::<Vec<_>>();
            sent.into_iter()
                .try_for_each(|thread| thread.join().expect("a peer does not panic"))
        })?;
        let mut granted = None;
        for mut peer in peers {
            match peer.receive() {
                Got::Response(cqe) if cqe.status.is_success() && granted.is_none() => {
                    granted = Some(attempt.granted(peer));
                }
                got => {
                    let answers = [
                        Answer::Status(1, Status::INVALID_QUEUE_IDENTIFIER.with_do_not_retry()),
                        Answer::Status(1, Status::COMMAND_SEQUENCE_ERROR),
                        Answer::Status(1, Status::CONNECT_INVALID_PARAMETERS),
                    ];
                    peer.judge("the other of two Connects of one QID", &answers, got)?;
                }
            }
        }
        let Some(mut queue) = granted else {
            let got = "both were refused";
            return Err(Failure::differs(
                "two Connects of one QID",
                "one queue",
                got,
            ));
        };
        queue.still_works(context.target.nsid, context.facts.block_bytes)?;
        queue.into_peer().reset();
        controller = context.controller()?;
        set_queues(&mut controller.admin, 1)?;
    }
    Ok(())
}

fn connect_racing_a_reset(context: &mut Context) -> Result<(), Failure> {
    let mut controller = context.controller()?;
    for _ in 0..RACES {
        let attempt = Attempt::io(context, controller.id, 1);
        let mut peer = context.initialized()?;
        let capsule = attempt.capsule(&peer, 1);
        let admin = &mut controller.admin;
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| peer.send(&capsule));
            let reset = admin.configure(enabled().with_enabled(false));
            sent.join().expect("a peer does not panic").and(reset)
        })?;
        match peer.receive() {
            Got::Response(cqe) if cqe.status.is_success() => {
                peer.expect_end("an I/O queue of a controller that was reset")?;
            }
            Got::Closed | Got::Reset => {}
            got => {
                let answers = [
                    Answer::Status(1, SEQUENCE_ERROR),
                    Answer::Status(1, Status::CONNECT_INVALID_PARAMETERS),
                    Answer::Status(1, Status::CONNECT_CONTROLLER_BUSY),
                ];
                peer.judge("a Connect that races a reset", &answers, got)?;
            }
        }
        let admin = &mut controller.admin;
        admin.await_status("CSTS.RDY 0", |status| !status.ready())?;
        admin.configure(enabled())?;
        admin.await_status("CSTS.RDY", ControllerStatus::ready)?;
    }
    let mut queue = controller.io(1)?;
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}

/// Connects an I/O queue whose predecessor is closing: as long as the target has not seen its end, the QID is in use.
pub(super) fn reconnected(context: &Context, controller: u16, qid: u16) -> Result<Queue, Failure> {
    let until = Instant::now() + context.manner.patience;
    loop {
        let mut peer = context.initialized()?;
        let attempt = Attempt::io(context, controller, qid);
        peer.send(&attempt.capsule(&peer, 1))?;
        match peer.receive() {
            Got::Response(cqe) if cqe.status.is(Status::SUCCESS) => {
                return Ok(attempt.granted(peer));
            }
            Got::Response(cqe)
                if (cqe.status.is(Status::INVALID_QUEUE_IDENTIFIER)
                    || cqe.status.is(Status::COMMAND_SEQUENCE_ERROR))
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            got => {
                let expected = "a queue, or Invalid Queue Identifier while it closes";
                return Err(Failure::differs("a QID that closes", expected, got));
            }
        }
    }
}

fn queue_identifier_reused_after_disconnect(context: &mut Context) -> Result<(), Failure> {
    has_disconnect(context)?;
    let Disk {
        controller, mut io, ..
    } = Disk::new(context)?;
    let disconnect = FabricsCommand::Disconnect { record_format: 0 };
    let sqe = disconnect.sqe(0, SglDescriptor::NONE);
    io.succeed("a Disconnect", sqe, &[], 0)?;
    let mut peer = context.initialized()?;
    let attempt = Attempt::io(context, controller.id, 1);
    peer.send(&attempt.capsule(&peer, 1))?;
    drop(io);
    peer.expect_status("a Connect after the Disconnect", 1, Status::SUCCESS)?;
    let mut queue = attempt.granted(peer);
    queue.still_works(context.target.nsid, context.facts.block_bytes)
}
