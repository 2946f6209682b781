//! Inputs to begin with, for every target: good ones, from which a fuzzer finds the bad ones.

use weir_digest::Digest;
use weir_nvme::command::{
    AdminCommand, Blocks, Connect, ConnectData, CopyRange, DatasetManagementRange, FabricsCommand,
    GetFeatures, GetLogPage, Identify, NvmCommand, PropertyGet, PropertySize, WriteZeroes,
};
use weir_nvme::feature::FeatureId;
use weir_nvme::identify::{
    Cns, IdentifyController, IdentifyNamespace, LbaFormat, NamespaceDescriptors,
    OptionalNvmCommands,
};
use weir_nvme::log::{AnaGroup, AnaState, DiscoveryLogEntry, LogId, encode_ana_log};
use weir_nvme::tcp::{
    C2hData, DigestOptions, H2cData, HEADER_SIZE_MAX, InitializeRequest, InitializeResponse, R2t,
    Side, TERMINATION_SIZE_MAX, Termination, Writer, encode_termination,
};
use weir_nvme::{Cqe, HostId, Nqn, SglDescriptor, Sqe, Status};

/// An input: its target, its name and its bytes.
pub type Seed = (&'static str, String, Vec<u8>);

/// Inputs for every target.
#[must_use]
pub fn seeds() -> Vec<Seed> {
    let mut seeds = Vec::new();
    for (name, data) in crate::iscsi_conversation_seeds() {
        seeds.push(("iscsi_conversation", name, data));
    }
    for (name, data) in crate::conversation_seeds() {
        seeds.push(("conversation", name, data));
    }
    add(&mut seeds, "initiator", crate::initiator::seeds());
    add(&mut seeds, "pdu", pdus());
    add(&mut seeds, "commands", commands());
    add(&mut seeds, "structures", structures());
    add(&mut seeds, "ranges", ranges());
    add(&mut seeds, "iscsi_pdu", crate::iscsi::pdu_seeds());
    add(&mut seeds, "iscsi_login", crate::iscsi::login_seeds());
    add(&mut seeds, "scsi", crate::scsi::seeds());
    add(&mut seeds, "nfs", crate::nfs::seeds());
    add(&mut seeds, "packets", crate::packets::seeds());
    add(&mut seeds, "rings", crate::rings::seeds());
    add(&mut seeds, "names", lines(NAMES));
    add(&mut seeds, "url", lines(URLS));
    add(&mut seeds, "label", labels());
    #[cfg(feature = "gateway")]
    {
        add(&mut seeds, "configuration", lines(CONFIGURATIONS));
        add(&mut seeds, "state", lines(STATES));
        add(&mut seeds, "api", lines(REQUESTS));
    }
    seeds
}

fn add(seeds: &mut Vec<Seed>, target: &'static str, inputs: Vec<Vec<u8>>) {
    for (number, data) in inputs.into_iter().enumerate() {
        seeds.push((target, format!("seed-{number}"), data));
    }
}

fn lines(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn entries() -> Vec<Sqe> {
    let at = Blocks::new(7, 2);
    let transport = SglDescriptor::Transport { length: 1024 };
    let in_capsule = SglDescriptor::InCapsule {
        offset: 0,
        length: 1024,
    };
    let get = PropertyGet {
        size: PropertySize::EightBytes,
        offset: 0,
    };
    let zeroes = WriteZeroes {
        lba: 1,
        blocks: 1,
        ..WriteZeroes::default()
    };
    vec![
        NvmCommand::Read(at).sqe(1, 1, transport),
        NvmCommand::Write(at).sqe(2, 1, in_capsule),
        NvmCommand::Compare(at).sqe(3, 1, transport),
        NvmCommand::WriteZeroes(zeroes).sqe(4, 1, SglDescriptor::NONE),
        NvmCommand::Flush.sqe(5, 1, SglDescriptor::NONE),
        AdminCommand::Identify(Identify::new(Cns::Controller, 0)).sqe(6, transport),
        AdminCommand::GetLogPage(GetLogPage::new(LogId::Discovery, 0, 1024)).sqe(7, transport),
        AdminCommand::GetFeatures(GetFeatures::new(FeatureId::NumberOfQueues))
            .sqe(8, SglDescriptor::NONE),
        AdminCommand::KeepAlive.sqe(9, SglDescriptor::NONE),
        FabricsCommand::Connect(Connect::default()).sqe(10, in_capsule),
        FabricsCommand::PropertyGet(get).sqe(11, SglDescriptor::NONE),
    ]
}

fn commands() -> Vec<Vec<u8>> {
    entries().iter().map(|sqe| sqe.encode().to_vec()).collect()
}

fn with_data(writer: &Writer, header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = [header, data].concat();
    if writer.data_digest_length(data.len() as u32) > 0 {
        bytes.extend(Digest::of(data).to_bytes());
    }
    bytes
}

/// Streams of PDUs for both sides, with each choice of digests.
fn pdus() -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for digests in 0..4_u8 {
        let writer = Writer {
            header_digest: digests & 1 != 0,
            data_digest: digests & 2 != 0,
            ..Writer::default()
        };
        let mut buffer = [0; HEADER_SIZE_MAX];
        let data = [0x5a; 48];
        let mut to_controller = vec![digests << 1, 0, 3];
        for sqe in entries().iter().take(4) {
            let length = writer.capsule_command(&mut buffer, sqe, 48);
            to_controller.extend(with_data(&writer, &buffer[..length], &data));
        }
        let transfer = H2cData {
            cid: 3,
            transfer_tag: 1,
            offset: 0,
            length: 48,
            last: true,
        };
        let length = writer.h2c_data(&mut buffer, &transfer);
        to_controller.extend(with_data(&writer, &buffer[..length], &data));
        let mut to_host = vec![digests << 1 | 1, 0, 3];
        let length = writer.capsule_response(&mut buffer, &Cqe::new(1, 2, Status::SUCCESS));
        to_host.extend(&buffer[..length]);
        let r2t = R2t {
            cid: 3,
            transfer_tag: 1,
            offset: 0,
            length: 1024,
        };
        let length = writer.r2t(&mut buffer, &r2t);
        to_host.extend(&buffer[..length]);
        let read = C2hData {
            cid: 1,
            offset: 0,
            length: 48,
            last: true,
            success: true,
        };
        let length = writer.c2h_data(&mut buffer, &read);
        to_host.extend(with_data(&writer, &buffer[..length], &data));
        for (side, stream) in [
            (Side::Host, &mut to_controller),
            (Side::Controller, &mut to_host),
        ] {
            inputs.push(stream.clone());
            let mut buffer = [0; TERMINATION_SIZE_MAX];
            let reason = Termination::invalid_field(2);
            let length = encode_termination(side, &reason, &data, &mut buffer);
            stream.extend(&buffer[..length]);
            inputs.push(stream.clone());
        }
    }
    let request = InitializeRequest::new(DigestOptions::HEADER).encode();
    let response = InitializeResponse::new(DigestOptions::HEADER, 8192).encode();
    inputs.push([&[8, 0, 0][..], &request].concat());
    inputs.push([&[9, 0, 0][..], &response].concat());
    inputs
}

fn ranges() -> Vec<Vec<u8>> {
    let managed = DatasetManagementRange {
        lba: 8,
        blocks: 16,
        ..DatasetManagementRange::default()
    };
    let copied = CopyRange::new(8, 16);
    vec![
        [&[2, 0][..], &managed.encode(), &managed.encode()].concat(),
        [&[1, 0][..], &copied.encode()].concat(),
    ]
}

/// The front of a structure as far as it says something: what follows is zero.
fn cut(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|&byte| byte != 0);
    &bytes[..end.map_or(0, |end| end + 1)]
}

fn structures() -> Vec<Vec<u8>> {
    let name = Nqn::new("nqn.2024-01.org.weir:s").expect("an NQN");
    let connect = ConnectData::new(HostId([1; 16]), 0xffff, &name, &name);
    let controller = IdentifyController {
        maximum_data_transfer_size: 5,
        optional_nvm_commands: OptionalNvmCommands(0xffff),
        atomic_write_unit: 7,
        ..IdentifyController::default()
    };
    let mut namespace = IdentifyNamespace {
        size: 1000,
        ..IdentifyNamespace::default()
    };
    namespace.lba_formats[0] = LbaFormat::new(12);
    let descriptors = NamespaceDescriptors::nvm([1; 16], [2; 16], [3; 8]);
    let group = AnaGroup {
        id: 1,
        change_count: 2,
        state: AnaState::Optimized,
        namespaces: vec![1, 2],
    };
    let mut entry = DiscoveryLogEntry {
        subsystem_nqn: name.to_field(),
        ..DiscoveryLogEntry::default()
    };
    entry.set_address("192.0.2.1", "4420");
    let input = |which: u8, bytes: &[u8]| [&[which][..], bytes].concat();
    let part = |bytes: &[u8]| bytes[..512].to_vec();
    let profile = [
        vec![0; 8],
        part(&controller.encode()),
        vec![0; 512],
        part(&namespace.encode()),
        part(&descriptors.encode()),
    ];
    vec![
        input(0, cut(&connect.encode())),
        input(1, cut(&controller.encode())),
        input(2, cut(&namespace.encode())),
        input(3, &[1, 2, 3]),
        input(4, &[1; 16]),
        input(5, &[1; 32]),
        input(6, cut(&descriptors.encode())),
        input(7, &[1, 0, 0, 0, 2]),
        input(8, &encode_ana_log(9, &[group], false)),
        input(9, &[1; 18]),
        input(10, cut(&entry.encode())),
        input(11, &[1; 44]),
        input(12, &[1; 200]),
        input(13, &[1; 64]),
        input(14, cut(&profile.concat())),
    ]
}

fn labels() -> Vec<Vec<u8>> {
    let mut label = vec![1];
    label.extend(1_u32.to_le_bytes());
    label.extend(*b"0123456789abcdef");
    label.extend(3_u32.to_le_bytes());
    label.extend(4096_u32.to_le_bytes());
    label.extend(131_072_u64.to_le_bytes());
    label.extend((1_u64 << 30).to_le_bytes());
    label.extend((1_u64 << 20).to_le_bytes());
    vec![label, b"\0Weir stripe\0\r\n\x1a\n\x01\0\0\0".to_vec()]
}

const NAMES: &[&str] = &[
    "nqn.2024-01.org.weir:s",
    "nqn.2014-08.org.nvmexpress:uuid:4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11",
    "nqn.2014-08.org.nvmexpress.discovery\0rest",
    "4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11",
    "[fd00::1]:4420",
    "storage.example:4420",
    "fd00::1",
    "1.5GiB",
    "16k",
];

const URLS: &[&str] = &[
    "null:?size=1G&block_size=512",
    "mem:?size=64M&block_size=4096",
    "file:/srv/volume?size=1G&create=1",
    "stripe:?member=file%3A/a&member=file%3A/b&chunk=128k",
    "concat:?member=file%3A/a&member=file%3A/b",
    "nvme+tcp://192.0.2.1:4420/nqn.2024-01.org.weir:s?nsid=1&hdgst=1&queues=4&depth=64&kato=5s",
    "nvme+tcp://[fd00::1]/nqn.2024-01.org.weir:s?hostid=4a1f6b62-6d8d-4f0e-8b5e-0d6f5f2f7a11&ctrl_loss_timeout=-1",
    "iscsi://192.0.2.1:3260/iqn.2026-01.org.weir:s/0?user=a&secret_file=/s&sessions=4&hdgst&first_burst=64k&max_burst=1M",
    "iscsi://[fd00::1]/iqn.2026-01.org.weir:s/16383?immediate_data=no&initial_r2t&outstanding_r2t=1&initiator=iqn.2026-01.org.weir:h",
];

#[cfg(feature = "gateway")]
const CONFIGURATIONS: &[&str] = &[
    include_str!("../../../../docs/weir.toml"),
    "reactors = 2\n[limits]\nconnections = 10\nhalf_open_connections = 20\n",
    "[transport]\nin_capsule_size = \"16k\"\ndata_transfer_size_max = \"1M\"\n",
    "10s",
    "127.0.0.1:4420",
    "nqn.2024-01.org.weir:s",
];

#[cfg(feature = "gateway")]
const STATES: &[&str] = &[
    "0{\"format\": 1, \"crc32c\": \"00000000\", \"state\": {}}",
    "1{\"revision\": 1, \"discovery_generation\": 1, \"volumes\": {}, \"hosts\": {}, \"subsystems\": {}, \"listeners\": {}}",
    "1{\"revision\": 3, \"discovery_generation\": 1, \"volumes\": {\"a\": {\"url\": \"mem:?size=1M\"}}, \"hosts\": {}, \"subsystems\": {}, \"listeners\": {}}",
    "3{\"revision\": 1, \"discovery_generation\": 1, \"volumes\": {}, \"hosts\": {\"nqn.2026-01.a:h\": {\"note\": \"\", \"socket_options\": {}}}, \"subsystems\": {}, \"listeners\": {\"*:8009\": {\"kind\": \"discovery\", \"socket_options\": {}}}}",
    "5{\"revision\": 1, \"discovery_generation\": 1, \"volumes\": {}, \"hosts\": {\"h\": {\"nqns\": [\"nqn.2026-01.a:h\"], \"note\": \"\", \"socket_options\": {}}}, \"subsystems\": {}, \"portals\": {\"*:4420\": {\"protocol\": {\"nvme\": {\"kind\": \"all\"}}, \"socket_options\": {}}}}",
];

#[cfg(feature = "gateway")]
const REQUESTS: &[&str] = &[
    "G/v1/status\0G/v1/volumes\0G/metrics\0G/v1/openapi.json",
    "P/v1/volumes/a\n{\"url\": \"mem:?size=1M\"}\0G/v1/volumes/a\0D/v1/volumes/a",
    "P/v1/volumes/a\n{\"url\": \"mem:?size=1M\"}\0P/v1/subsystems/nqn.2026-01.com.example:s\n{\"allow_any_host\": true}\0O/v1/subsystems/nqn.2026-01.com.example:s/namespaces\n{\"volume\": \"a\"}\0A/v1/subsystems/nqn.2026-01.com.example:s/namespaces/1\n{\"read_only\": true}\0D/v1/subsystems/nqn.2026-01.com.example:s",
    "P/v1/hosts/nqn.2026-01.com.example:h\n{\"note\": \"x\"}\0A/v1/hosts/nqn.2026-01.com.example:h\n{\"socket_options\": {}}\0D/v1/hosts/nqn.2026-01.com.example:h",
    "P/v1/listeners/127.0.0.1:4420\n{}\0G/v1/listeners\0D/v1/listeners/127.0.0.1:4420",
    "G/v1/latency/namespaces\0G/v1/connections",
];
