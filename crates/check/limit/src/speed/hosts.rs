//! Hosts that connect and then say nothing: what an idle gateway has to bear.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, ensure};
use weir_nvme::command::{
    AdminCommand, Connect, ConnectAttributes, ConnectData, FabricsCommand, PropertyGet,
    PropertySet, PropertySize, SetFeatures,
};
use weir_nvme::feature::{FeatureId, NumberOfQueues};
use weir_nvme::property::{Configuration, ControllerStatus, Property};
use weir_nvme::tcp::{
    CommonHeader, DigestOptions, HEADER_SIZE_MAX, InitializeRequest, InitializeResponse, Writer,
};
use weir_nvme::{Cqe, HostId, Nqn, SglDescriptor, Sqe};

/// How long the gateway may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often a controller is asked whether it is ready.
const READY_ASKED_MAX: u32 = 100;

/// Connects a host with an admin queue and `io_queues` I/O queues to a subsystem on 127.0.0.1. No keep-alive is agreed on.
pub(super) fn connect(
    port: u16,
    subsystem: &str,
    number: u8,
    io_queues: u16,
) -> anyhow::Result<Vec<TcpStream>> {
    let host = Host {
        port,
        subsystem: Nqn::new(subsystem)?,
        name: Nqn::new(&format!("nqn.2026-01.org.example:host{number}"))?,
        id: HostId([number.max(1); 16]),
    };
    let (mut admin, controller) = host.queue(0, ConnectData::ANY_CONTROLLER)?;
    enable(&mut admin)?;
    let queues = NumberOfQueues {
        submission: u32::from(io_queues),
        completion: u32::from(io_queues),
    };
    let set = SetFeatures::new(FeatureId::NumberOfQueues, queues.to_dword());
    ask(
        &mut admin,
        &AdminCommand::SetFeatures(set).sqe(0, SglDescriptor::NONE),
        &[],
    )?;
    let mut streams = vec![admin];
    for qid in 1..=io_queues {
        streams.push(host.queue(qid, controller)?.0);
    }
    Ok(streams)
}

struct Host {
    port: u16,
    subsystem: Nqn,
    name: Nqn,
    id: HostId,
}

impl Host {
    /// Connects one queue; its controller.
    fn queue(&self, qid: u16, controller: u16) -> anyhow::Result<(TcpStream, u16)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.write_all(&InitializeRequest::new(DigestOptions::NONE).encode())?;
        let mut response = [0; InitializeResponse::SIZE];
        stream.read_exact(&mut response).context("no ICResp")?;
        let connect = Connect {
            qid,
            sqsize: 31,
            attributes: ConnectAttributes::DISABLE_SQ_FLOW_CONTROL,
            ..Connect::default()
        };
        let data = ConnectData::new(self.id, controller, &self.subsystem, &self.name).encode();
        let sgl = SglDescriptor::InCapsule {
            offset: 0,
            length: data.len() as u32,
        };
        let sqe = FabricsCommand::Connect(connect).sqe(0, sgl);
        let cqe = ask(&mut stream, &sqe, &data)?;
        Ok((stream, cqe.dw0() as u16))
    }
}

fn enable(admin: &mut TcpStream) -> anyhow::Result<()> {
    let configuration = Configuration::default()
        .with_entry_sizes(
            Configuration::SUBMISSION_ENTRY_SIZE,
            Configuration::COMPLETION_ENTRY_SIZE,
        )
        .with_enabled(true);
    let set = PropertySet {
        size: PropertySize::FourBytes,
        offset: Property::Configuration.value(),
        value: u64::from(configuration.0),
    };
    ask(
        admin,
        &FabricsCommand::PropertySet(set).sqe(0, SglDescriptor::NONE),
        &[],
    )?;
    let get = PropertyGet {
        size: PropertySize::FourBytes,
        offset: Property::Status.value(),
    };
    let get = FabricsCommand::PropertyGet(get).sqe(0, SglDescriptor::NONE);
    for _ in 0..READY_ASKED_MAX {
        if ControllerStatus(ask(admin, &get, &[])?.dw0()).ready() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    anyhow::bail!("the controller does not become ready")
}

/// Sends one command, and takes its answer: a capsule without data.
fn ask(stream: &mut TcpStream, sqe: &Sqe, data: &[u8]) -> anyhow::Result<Cqe> {
    let mut header = [0; HEADER_SIZE_MAX];
    let length = Writer::default().capsule_command(&mut header, sqe, data.len() as u32);
    let capsule = [&header[..length], data].concat();
    stream.write_all(&capsule)?;
    let mut answer = [0; CommonHeader::SIZE + Cqe::SIZE];
    stream.read_exact(&mut answer).context("no answer")?;
    let (_, cqe) = answer
        .split_last_chunk()
        .context("an answer ends with its entry")?;
    let cqe = Cqe::decode(cqe);
    ensure!(
        cqe.status.is_success(),
        "a command was refused: {:?}",
        cqe.status
    );
    Ok(cqe)
}
