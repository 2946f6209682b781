//! Every command, log page and feature, as one host sees them.

use std::sync::Arc;

use crate::common::*;
use weir_block::{BlockSize, Volume};
use weir_nvme::command::{
    Abort, AdminCommand, Blocks, ConnectData, CopyCommand, CopyRange, DatasetManagement,
    DatasetManagementRange, FabricsCommand, FeatureSelect, GetFeatures, GetLogPage, Identify,
    NvmCommand, SetFeatures, Verify, WriteZeroes,
};
use weir_nvme::feature::{FeatureId, HostBehaviorSupport, NumberOfQueues};
use weir_nvme::identify::{
    COMMAND_SET_NVM, Cns, CommandSetCombination, CommandSetVector, ControllerType,
    IdentifyNamespace, IndependentNamespace, NamespaceDescriptors, decode_namespace_list,
};
use weir_nvme::log::{
    CommandEffects, CommandsSupportedAndEffects, DiscoveryLogEntry, DiscoveryLogHeader,
    ErrorInformation, LogId, SmartHealth, SupportedLogPages, decode_ana_log,
};
use weir_nvme::nqn::DISCOVERY_NQN;
use weir_nvme::opcode::{AdminOpcode, NvmOpcode};
use weir_nvme::property::{Capabilities, Configuration, Property, ShutdownNotification, Version};
use weir_nvme::sgl::SglDescriptor;
use weir_nvme::sqe::Fuse;
use weir_nvme::{Cqe, HostId, Sqe, Status};
use weir_nvme_target::{Allowed, Port, Target, TargetConfig};
use weir_reactor::Reactor;
use weir_volume::Guard;

const BLOCK: usize = 512;
const BLOCKS: u64 = 8192;

/// A host with an admin queue and one I/O queue.
struct Connected {
    reactor: Reactor,
    target: Target,
    address: std::net::SocketAddr,
    volumes: Vec<Arc<Guard>>,
    admin: Queue,
    io: Queue,
}

/// Runs `test` with namespaces 1 (512-byte blocks) and 2 (4096-byte blocks).
fn with_target<F: Future<Output = ()>>(test: impl FnOnce(Connected) -> F + 'static) {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = vec![memory_volume("4M", 512), memory_volume("4M", 4096)];
        let config = TargetConfig::default();
        let (target, address) = serve(remotes, config, &volumes, server).await;
        let options = HostOptions::default();
        let (admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let io = io_queue(&reactor, address, id, 1, options).await;
        test(Connected {
            reactor,
            target,
            address,
            volumes,
            admin,
            io,
        })
        .await;
    });
}

fn assert_status(cqe: &Cqe, expected: Status) {
    assert!(
        cqe.status.is(expected),
        "{:?} where {expected:?} was expected",
        cqe.status
    );
}

impl Connected {
    async fn write(&mut self, lba: u64, data: &[u8]) {
        let blocks = Blocks::new(lba, (data.len() / BLOCK) as u32);
        let (cqe, _) = self.io.nvm(NvmCommand::Write(blocks), 1, data, 0).await;
        assert_status(&cqe, Status::SUCCESS);
    }

    async fn read(&mut self, lba: u64, blocks: u32) -> Vec<u8> {
        let command = NvmCommand::Read(Blocks::new(lba, blocks));
        let length = blocks * BLOCK as u32;
        let (cqe, data) = self.io.nvm(command, 1, &[], length).await;
        assert_status(&cqe, Status::SUCCESS);
        data
    }

    async fn log(&mut self, log: LogId, length: u64) -> (Cqe, Vec<u8>) {
        let get = GetLogPage::new(log, 0, length);
        self.admin
            .admin(AdminCommand::GetLogPage(get), &[], length as u32)
            .await
    }

    async fn get_feature(&mut self, get: GetFeatures, reads: u32) -> (Cqe, Vec<u8>) {
        self.admin
            .admin(AdminCommand::GetFeatures(get), &[], reads)
            .await
    }

    async fn set_feature(&mut self, feature: FeatureId, value: u32) -> Cqe {
        let set = AdminCommand::SetFeatures(SetFeatures::new(feature, value));
        self.admin.admin(set, &[], 0).await.0
    }
}

#[test]
fn what_may_not_be_read_or_written_is_refused() {
    with_target(|mut host| async move {
        let data = pattern(1, 2 * BLOCK);
        let io = &mut host.io;
        for (command, nsid, data, reads, status) in [
            (
                NvmCommand::Read(Blocks::new(BLOCKS - 1, 2)),
                1,
                &[][..],
                1024,
                Status::LBA_OUT_OF_RANGE,
            ),
            (
                NvmCommand::Read(Blocks::new(u64::MAX, 2)),
                1,
                &[],
                1024,
                Status::LBA_OUT_OF_RANGE,
            ),
            (
                NvmCommand::Write(Blocks::new(BLOCKS - 1, 2)),
                1,
                &data,
                0,
                Status::LBA_OUT_OF_RANGE,
            ),
            (
                NvmCommand::Read(Blocks::new(0, 2)),
                1,
                &[],
                512,
                Status::DATA_SGL_LENGTH_INVALID,
            ),
            (
                NvmCommand::Write(Blocks::new(0, 3)),
                1,
                &data,
                0,
                Status::DATA_SGL_LENGTH_INVALID,
            ),
            (
                NvmCommand::Read(Blocks::new(0, 4096)),
                1,
                &[],
                4096 * 512,
                Status::INVALID_FIELD_IN_COMMAND,
            ),
            (
                NvmCommand::Read(Blocks::new(0, 2)),
                0,
                &[],
                1024,
                Status::INVALID_NAMESPACE_OR_FORMAT,
            ),
            (
                NvmCommand::Read(Blocks::new(0, 2)),
                3,
                &[],
                1024,
                Status::INVALID_NAMESPACE_OR_FORMAT,
            ),
            (
                NvmCommand::Flush,
                0xffff_ffff,
                &[],
                0,
                Status::INVALID_NAMESPACE_OR_FORMAT,
            ),
            (
                NvmCommand::WriteUncorrectable { lba: 0, blocks: 1 },
                1,
                &[],
                0,
                Status::INVALID_COMMAND_OPCODE,
            ),
            (
                NvmCommand::ReservationReport,
                1,
                &[],
                64,
                Status::INVALID_COMMAND_OPCODE,
            ),
        ] {
            let (cqe, read) = io.nvm(command, nsid, data, reads).await;
            assert!(cqe.status.is(status), "{command:?}: {:?}", cqe.status);
            assert!(cqe.status.do_not_retry() && cqe.status.more());
            assert!(read.is_empty());
        }
        // The data of the refused writes was skipped, and nothing was written.
        assert_eq!(host.read(BLOCKS - 1, 1).await, vec![0; BLOCK]);
        let errors = host.log(LogId::ErrorInformation, 64 * 64).await.1;
        let newest = ErrorInformation::parse(&errors[..64]).expect("an entry");
        assert_eq!((newest.error_count, newest.sqid), (11, 1));
        assert!(newest.status().is(Status::INVALID_COMMAND_OPCODE));
    });
}

#[test]
fn bad_data_pointers_are_refused_and_the_connection_goes_on() {
    with_target(|mut host| async move {
        let read = NvmCommand::Read(Blocks::new(0, 1));
        let write = NvmCommand::Write(Blocks::new(0, 1));
        let keyed = SglDescriptor::Keyed {
            address: 0,
            length: 512,
            key: 1,
            sub_type: 0,
        };
        let cases = [
            (read, keyed, Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (
                read,
                SglDescriptor::InCapsule {
                    offset: 0,
                    length: 512,
                },
                Status::SGL_DESCRIPTOR_TYPE_INVALID,
            ),
            (
                write,
                SglDescriptor::InCapsule {
                    offset: 4,
                    length: 512,
                },
                Status::SGL_OFFSET_INVALID,
            ),
            (
                write,
                SglDescriptor::Transport { length: u32::MAX },
                Status::DATA_SGL_LENGTH_INVALID,
            ),
            (
                write,
                SglDescriptor::InCapsule {
                    offset: 0,
                    length: 512,
                },
                Status::DATA_SGL_LENGTH_INVALID,
            ),
            (
                write,
                SglDescriptor::DataBlock {
                    address: 4096,
                    length: 512,
                },
                Status::SGL_DESCRIPTOR_TYPE_INVALID,
            ),
        ];
        for (command, sgl, status) in cases {
            let cid = 0x7000;
            let sqe = command.sqe(cid, 1, sgl);
            host.io.expect_answer_for(cid);
            // No data follows, whatever the descriptor says.
            let bytes = host.io.capsule(&sqe, &[]);
            host.io.send_bytes(&bytes).await.expect("connected");
            let (cqe, _) = host.io.answer(cid).await.expect("connected");
            assert!(cqe.status.is(status), "{sgl:?}: {:?}", cqe.status);
        }
        host.write(0, &pattern(9, BLOCK)).await;
    });
}

#[test]
fn compare_tells_equal_from_different() {
    with_target(|mut host| async move {
        let data = pattern(5, 4 * BLOCK);
        host.write(100, &data).await;
        let command = NvmCommand::Compare(Blocks::new(100, 4));
        let (cqe, _) = host.io.nvm(command, 1, &data, 0).await;
        assert_status(&cqe, Status::SUCCESS);
        let mut other = data.clone();
        other[1000] ^= 1;
        let (cqe, _) = host.io.nvm(command, 1, &other, 0).await;
        assert_status(&cqe, Status::COMPARE_FAILURE);
    });
}

/// Sends a fused pair and yields both answers.
async fn fused(io: &mut Queue, lba: u64, compare: &[u8], write: &[u8]) -> (Cqe, Cqe) {
    let blocks = |data: &[u8]| Blocks::new(lba, (data.len() / BLOCK) as u32);
    let mut first = NvmCommand::Compare(blocks(compare)).sqe(0, 1, SglDescriptor::NONE);
    first.fuse = Fuse::First;
    let mut second = NvmCommand::Write(blocks(write)).sqe(0, 1, SglDescriptor::NONE);
    second.fuse = Fuse::Second;
    let first = io.submit(first, compare, 0).await.expect("connected");
    let second = io.submit(second, write, 0).await.expect("connected");
    let first = io.answer(first).await.expect("connected").0;
    let second = io.answer(second).await.expect("connected").0;
    (first, second)
}

#[test]
fn a_fused_pair_writes_where_the_data_is_as_expected() {
    with_target(|mut host| async move {
        let (old, new) = (pattern(1, BLOCK), pattern(2, BLOCK));
        host.write(7, &old).await;
        for in_capsule in [8192, 0] {
            host.io.options.in_capsule = in_capsule;
            let (first, second) = fused(&mut host.io, 7, &new, &old).await;
            assert_status(&first, Status::COMPARE_FAILURE);
            assert_status(&second, Status::ABORTED_FAILED_FUSED_COMMAND);
            assert_eq!(host.read(7, 1).await, old);
            let (first, second) = fused(&mut host.io, 7, &old, &new).await;
            assert_status(&first, Status::SUCCESS);
            assert_status(&second, Status::SUCCESS);
            assert_eq!(host.read(7, 1).await, new);
            host.write(7, &old).await;
        }
    });
}

#[test]
fn halves_of_fused_pairs_do_not_run_alone() {
    with_target(|mut host| async move {
        let data = pattern(1, BLOCK);
        let blocks = Blocks::new(7, 1);
        let mut first = NvmCommand::Compare(blocks).sqe(0, 1, SglDescriptor::NONE);
        first.fuse = Fuse::First;
        let mut second = NvmCommand::Write(blocks).sqe(0, 1, SglDescriptor::NONE);
        second.fuse = Fuse::Second;

        let (cqe, _) = host.io.command(second, &data, 0).await;
        assert_status(&cqe, Status::ABORTED_MISSING_FUSED_COMMAND);

        for in_capsule in [8192, 0] {
            host.io.options.in_capsule = in_capsule;
            let lonely = host.io.submit(first, &data, 0).await.expect("connected");
            let (cqe, _) = host.io.nvm(NvmCommand::Flush, 1, &[], 0).await;
            assert_status(&cqe, Status::SUCCESS);
            let (cqe, _) = host.io.answer(lonely).await.expect("connected");
            assert_status(&cqe, Status::ABORTED_MISSING_FUSED_COMMAND);

            // Different ranges.
            let mut other = NvmCommand::Write(Blocks::new(8, 1)).sqe(0, 1, SglDescriptor::NONE);
            other.fuse = Fuse::Second;
            let one = host.io.submit(first, &data, 0).await.expect("connected");
            let two = host.io.submit(other, &data, 0).await.expect("connected");
            for cid in [one, two] {
                let (cqe, _) = host.io.answer(cid).await.expect("connected");
                assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
            }
        }

        // The first is refused, so that the second is too.
        let mut refused = first;
        refused.nsid = 9;
        let one = host.io.submit(refused, &data, 0).await.expect("connected");
        let two = host.io.submit(second, &data, 0).await.expect("connected");
        let (cqe, _) = host.io.answer(one).await.expect("connected");
        assert_status(&cqe, Status::INVALID_NAMESPACE_OR_FORMAT);
        let (cqe, _) = host.io.answer(two).await.expect("connected");
        assert_status(&cqe, Status::ABORTED_FAILED_FUSED_COMMAND);
        assert_eq!(host.read(7, 1).await, vec![0; BLOCK]);
    });
}

#[test]
fn zeroes_deallocation_verify_and_flush() {
    with_target(|mut host| async move {
        let data = pattern(3, 64 * BLOCK);
        host.write(0, &data).await;
        let zeroes = NvmCommand::WriteZeroes(WriteZeroes {
            lba: 8,
            blocks: 8,
            deallocate: true,
            ..WriteZeroes::default()
        });
        assert_status(&host.io.nvm(zeroes, 1, &[], 0).await.0, Status::SUCCESS);
        assert_eq!(host.read(8, 8).await, vec![0; 8 * BLOCK]);

        let ranges = [(16_u64, 8_u32), (0, 0), (32, 8)];
        let mut list: Vec<u8> = Vec::new();
        for (lba, blocks) in ranges {
            list.extend(
                DatasetManagementRange {
                    context_attributes: 0,
                    blocks,
                    lba,
                }
                .encode(),
            );
        }
        // As some hosts do, a whole page for a few ranges.
        list.resize(4096, 0xee);
        let deallocate = DatasetManagement {
            ranges: 3,
            deallocate: true,
            ..DatasetManagement::default()
        };
        let command = NvmCommand::DatasetManagement(deallocate);
        assert_status(&host.io.nvm(command, 1, &list, 0).await.0, Status::SUCCESS);
        assert_eq!(host.read(16, 8).await, vec![0; 8 * BLOCK]);
        assert_eq!(host.read(24, 8).await, data[24 * BLOCK..32 * BLOCK]);

        // One range is past the end: none is deallocated.
        list[..16].copy_from_slice(
            &DatasetManagementRange {
                context_attributes: 0,
                blocks: 8,
                lba: 24,
            }
            .encode(),
        );
        list[32..48].copy_from_slice(
            &DatasetManagementRange {
                context_attributes: 0,
                blocks: 2,
                lba: BLOCKS - 1,
            }
            .encode(),
        );
        let (cqe, _) = host.io.nvm(command, 1, &list, 0).await;
        assert_status(&cqe, Status::LBA_OUT_OF_RANGE);
        assert_eq!(host.read(24, 8).await, data[24 * BLOCK..32 * BLOCK]);
        // A list that is shorter than its ranges.
        let (cqe, _) = host.io.nvm(command, 1, &list[..32], 0).await;
        assert_status(&cqe, Status::DATA_SGL_LENGTH_INVALID);

        let verify = |lba| {
            NvmCommand::Verify(Verify {
                lba,
                blocks: 8,
                ..Verify::default()
            })
        };
        assert_status(&host.io.nvm(verify(0), 1, &[], 0).await.0, Status::SUCCESS);
        let (cqe, _) = host.io.nvm(verify(BLOCKS - 7), 1, &[], 0).await;
        assert_status(&cqe, Status::LBA_OUT_OF_RANGE);
        let (cqe, _) = host.io.nvm(NvmCommand::Flush, 1, &[], 0).await;
        assert_status(&cqe, Status::SUCCESS);
    });
}

#[test]
fn copy_gathers_ranges_or_does_nothing() {
    with_target(|mut host| async move {
        let data = pattern(4, 1200 * BLOCK);
        for (index, chunk) in data.chunks(400 * BLOCK).enumerate() {
            host.write(index as u64 * 400, chunk).await;
        }
        let copy = |ranges: &[(u64, u32)]| {
            let list: Vec<u8> = ranges
                .iter()
                .flat_map(|&(lba, blocks)| CopyRange::new(lba, blocks).encode())
                .collect();
            let command = NvmCommand::Copy(CopyCommand {
                destination_lba: 4000,
                ranges: ranges.len() as u16,
                ..CopyCommand::default()
            });
            (command, list)
        };
        let (command, list) = copy(&[(10, 1000), (0, 3)]);
        assert_status(&host.io.nvm(command, 1, &list, 0).await.0, Status::SUCCESS);
        assert!(host.read(4000, 1000).await == data[10 * BLOCK..1010 * BLOCK]);
        assert!(host.read(5000, 3).await == data[..3 * BLOCK]);

        let (command, list) = copy(&[(20, 3), (BLOCKS - 1, 2)]);
        let (cqe, _) = host.io.nvm(command, 1, &list, 0).await;
        assert_status(&cqe, Status::LBA_OUT_OF_RANGE);
        assert!(host.read(4000, 3).await == data[10 * BLOCK..13 * BLOCK]);
        let (command, list) = copy(&[(0, 4096)]);
        let (cqe, _) = host.io.nvm(command, 1, &list, 0).await;
        assert_status(&cqe, Status::COMMAND_SIZE_LIMIT_EXCEEDED);
    });
}

#[test]
fn a_read_only_namespace_refuses_what_writes() {
    with_target(|mut host| async move {
        let mut read_only = subsystem(&host.volumes);
        read_only.namespaces[0].read_only = true;
        host.target
            .apply(snapshot(2, vec![read_only], host.address))
            .await
            .expect("applied");
        let data = pattern(1, BLOCK);
        let (cqe, _) = host
            .io
            .nvm(NvmCommand::Write(Blocks::new(0, 1)), 1, &data, 0)
            .await;
        assert_status(&cqe, Status::NAMESPACE_IS_WRITE_PROTECTED);
        assert_eq!(host.read(0, 1).await, vec![0; BLOCK]);
        let (_, data) = host.admin.identify(Cns::Namespace, 1).await;
        let namespace = IdentifyNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(namespace.attributes.0, 1);
    });
}

#[test]
fn identify_follows_the_rules_of_each_structure() {
    with_target(|mut host| async move {
        let controller = host.admin.identify_controller().await;
        assert_eq!(controller.controller_type, ControllerType::Io);
        assert_eq!(controller.version, Version::V2_0);
        assert_eq!(
            controller.maximum_transfer_bytes(0),
            Some(1 << 20),
            "MDTS is 1 MiB"
        );
        assert_eq!(controller.in_capsule_data_bytes(), 16_384);
        assert_eq!(controller.fused_operations.0, 1);

        let admin = &mut host.admin;
        let (_, data) = admin.identify(Cns::Namespace, 2).await;
        let namespace = IdentifyNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(namespace.format().block_size(), Some(4096));
        assert_eq!(namespace.size, 1024);
        assert_eq!(namespace.nguid, [2; 16]);
        assert_eq!(namespace.ana_group_id, 1);

        // A valid number without a namespace; numbers that are not valid.
        let (cqe, data) = admin.identify(Cns::Namespace, 3).await;
        assert_status(&cqe, Status::SUCCESS);
        assert_eq!(data, vec![0; 4096]);
        for nsid in [0, 1025, 0xffff_fffe, 0xffff_ffff] {
            for cns in [
                Cns::Namespace,
                Cns::NamespaceDescriptors,
                Cns::CommandSetNamespace,
                Cns::IndependentNamespace,
            ] {
                let (cqe, _) = admin.identify(cns, nsid).await;
                assert_status(&cqe, Status::INVALID_NAMESPACE_OR_FORMAT);
            }
        }
        let (cqe, _) = admin.identify(Cns::NamespaceDescriptors, 3).await;
        assert_status(&cqe, Status::INVALID_NAMESPACE_OR_FORMAT);

        let list = |data: &[u8]| -> Vec<u32> {
            let list: &[u8; 4096] = data.try_into().expect("4096 bytes");
            decode_namespace_list(list).collect()
        };
        for cns in [Cns::ActiveNamespaceList, Cns::CommandSetActiveNamespaceList] {
            assert_eq!(list(&admin.identify(cns, 0).await.1), [1, 2]);
            assert_eq!(list(&admin.identify(cns, 1).await.1), [2]);
            assert_eq!(list(&admin.identify(cns, 2).await.1), [0; 0]);
            let (cqe, _) = admin.identify(cns, 0xffff_fffe).await;
            assert_status(&cqe, Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        let (_, data) = admin.identify(Cns::NamespaceDescriptors, 1).await;
        let data: [u8; 4096] = data.try_into().expect("4096 bytes");
        let descriptors = NamespaceDescriptors::decode(&data).expect("a good list");
        assert_eq!(descriptors.uuid, Some([1; 16]));
        assert_eq!(descriptors.eui64, None);
        let (_, data) = admin.identify(Cns::IndependentNamespace, 1).await;
        let independent = IndependentNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(independent.status.0, 1);
        for (controller_id, expected) in [
            (controller.controller_id, Status::SUCCESS),
            (0xffff, Status::SUCCESS),
            (0x1234, Status::INVALID_FIELD_IN_COMMAND),
        ] {
            let vector = Identify {
                controller_id,
                ..Identify::new(Cns::CommandSetVector, 0)
            };
            let (cqe, data) = admin.admin(AdminCommand::Identify(vector), &[], 4096).await;
            assert_status(&cqe, expected);
            if let Ok(vector) = <[u8; 4096]>::try_from(data) {
                assert_eq!(CommandSetVector::decode(&vector).count(), 1);
            }
        }
        for cns in [Cns::AllocatedNamespaceList, Cns::UuidList, Cns::Other(0xc0)] {
            let (cqe, _) = admin.identify(cns, 1).await;
            assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
        }
    });
}

#[test]
fn log_pages_say_what_is_so() {
    with_target(|mut host| async move {
        let (_, data) = host.log(LogId::SupportedLogPages, 1024).await;
        let supported = SupportedLogPages::parse(&data).expect("1024 bytes");
        for page in LogId::NAMED {
            let (cqe, _) = host.log(*page, 512).await;
            assert_eq!(
                cqe.status.is_success(),
                supported.supports(*page),
                "{page}: {:?}",
                cqe.status
            );
            if !cqe.status.is_success() {
                assert_status(&cqe, Status::INVALID_LOG_PAGE);
            }
        }

        host.write(0, &pattern(1, 2048 * BLOCK)).await;
        host.read(0, 1).await;
        let (_, data) = host.log(LogId::SmartHealth, 512).await;
        let health = SmartHealth::parse(&data).expect("512 bytes");
        assert_eq!((health.host_writes, health.host_reads), (1, 1));
        assert_eq!(health.data_units_written, 3);
        let (_, long) = host.log(LogId::SmartHealth, 256 << 10).await;
        assert_eq!(long[..512], data, "the page");
        assert_eq!(long[512..], vec![0; (256 << 10) - 512], "nothing behind it");

        let (_, data) = host.log(LogId::AsymmetricNamespaceAccess, 4096).await;
        let (_, groups) = decode_ana_log(&data).expect("a good page");
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].namespaces, [1, 2]);

        let (_, data) = host.log(LogId::CommandsSupportedAndEffects, 4096).await;
        let effects = CommandsSupportedAndEffects::parse(&data).expect("4096 bytes");
        let supported = |effects: CommandEffects| effects.contains(CommandEffects::SUPPORTED);
        assert!(supported(effects.io[usize::from(NvmOpcode::Copy.value())]));
        assert!(!supported(
            effects.io[usize::from(NvmOpcode::WriteUncorrectable.value())]
        ));
        assert!(supported(
            effects.admin[usize::from(AdminOpcode::Abort.value())]
        ));

        // Offsets: not in dwords, past the end; a length above MDTS; a buffer that is too short.
        let mut get = GetLogPage::new(LogId::SmartHealth, 2, 512);
        let refused = async |admin: &mut Queue, get, reads| {
            admin
                .admin(AdminCommand::GetLogPage(get), &[], reads)
                .await
                .0
        };
        let cqe = refused(&mut host.admin, get, 512).await;
        assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
        get.offset = 516;
        let cqe = refused(&mut host.admin, get, 512).await;
        assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
        get.offset = u64::MAX - 3;
        let cqe = refused(&mut host.admin, get, 512).await;
        assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
        let huge = GetLogPage {
            dwords_zero_based: u32::MAX,
            ..GetLogPage::new(LogId::SmartHealth, 0, 512)
        };
        let cqe = refused(&mut host.admin, huge, 512).await;
        assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
        let cqe = refused(
            &mut host.admin,
            GetLogPage::new(LogId::SmartHealth, 0, 512),
            256,
        )
        .await;
        assert_status(&cqe, Status::DATA_SGL_LENGTH_INVALID);
    });
}

#[test]
fn features_are_read_and_set() {
    with_target(|mut host| async move {
        for (feature, value, kept) in [
            (FeatureId::Arbitration, 0x0102_0307, 0x0102_0307),
            (FeatureId::TemperatureThreshold, 0x0150, 0x0150),
            (FeatureId::ErrorRecovery, 5, 5),
            (FeatureId::WriteAtomicityNormal, 1, 1),
            (FeatureId::VolatileWriteCache, 1, 1),
            (FeatureId::PowerManagement, 0, 0),
            (FeatureId::AsynchronousEventConfiguration, 0x900, 0x900),
            (FeatureId::KeepAliveTimer, 1550, 1600),
        ] {
            assert_status(&host.set_feature(feature, value).await, Status::SUCCESS);
            let (cqe, _) = host.get_feature(GetFeatures::new(feature), 0).await;
            assert_eq!(cqe.dw0(), kept, "{feature}");
        }
        for (feature, value, status) in [
            (
                FeatureId::VolatileWriteCache,
                0,
                Status::FEATURE_NOT_CHANGEABLE,
            ),
            (
                FeatureId::PowerManagement,
                1,
                Status::INVALID_FIELD_IN_COMMAND,
            ),
            (
                FeatureId::ErrorRecovery,
                1 << 16,
                Status::INVALID_FIELD_IN_COMMAND,
            ),
            (FeatureId::NumberOfQueues, 0, Status::COMMAND_SEQUENCE_ERROR),
            (
                FeatureId::NumberOfQueues,
                0xffff,
                Status::INVALID_FIELD_IN_COMMAND,
            ),
            (
                FeatureId::KeepAliveTimer,
                u32::MAX,
                Status::KEEP_ALIVE_TIMEOUT_INVALID,
            ),
            (FeatureId::HostIdentifier, 1, Status::COMMAND_SEQUENCE_ERROR),
            (
                FeatureId::InterruptCoalescing,
                0,
                Status::INVALID_FIELD_IN_COMMAND,
            ),
            (FeatureId::Timestamp, 0, Status::INVALID_FIELD_IN_COMMAND),
        ] {
            assert_status(&host.set_feature(feature, value).await, status);
        }
        let saved = SetFeatures {
            save: true,
            ..SetFeatures::new(FeatureId::Arbitration, 0)
        };
        let (cqe, _) = host
            .admin
            .admin(AdminCommand::SetFeatures(saved), &[], 0)
            .await;
        assert_status(&cqe, Status::FEATURE_IDENTIFIER_NOT_SAVEABLE);
        let of_namespace = SetFeatures {
            nsid: 1,
            ..SetFeatures::new(FeatureId::Arbitration, 0)
        };
        let (cqe, _) = host
            .admin
            .admin(AdminCommand::SetFeatures(of_namespace), &[], 0)
            .await;
        assert_status(&cqe, Status::FEATURE_NOT_NAMESPACE_SPECIFIC);

        let behavior = HostBehaviorSupport {
            advanced_command_retry: 1,
            ..HostBehaviorSupport::default()
        };
        let set = AdminCommand::SetFeatures(SetFeatures::new(FeatureId::HostBehaviorSupport, 0));
        let (cqe, _) = host.admin.admin(set, &behavior.encode(), 0).await;
        assert_status(&cqe, Status::SUCCESS);
        let get = GetFeatures::new(FeatureId::HostBehaviorSupport);
        let (_, data) = host.get_feature(get, 512).await;
        assert_eq!(data, behavior.encode());

        let identifier = GetFeatures {
            cdw11: 1,
            ..GetFeatures::new(FeatureId::HostIdentifier)
        };
        assert_eq!(host.get_feature(identifier, 16).await.1, [7; 16]);
        let capabilities = GetFeatures {
            select: FeatureSelect::SupportedCapabilities,
            ..GetFeatures::new(FeatureId::ErrorRecovery)
        };
        assert_eq!(host.get_feature(capabilities, 0).await.0.dw0(), 6);
        let default = GetFeatures {
            select: FeatureSelect::Default,
            ..GetFeatures::new(FeatureId::Arbitration)
        };
        assert_eq!(host.get_feature(default, 0).await.0.dw0(), 0);
    });
}

#[test]
fn no_more_data_is_sent_than_the_host_has_room_for() {
    with_target(|mut host| async move {
        for (feature, bytes) in [
            (
                FeatureId::HostBehaviorSupport,
                HostBehaviorSupport::SIZE as u32,
            ),
            (FeatureId::HostIdentifier, 16),
        ] {
            let get = GetFeatures {
                cdw11: 1,
                ..GetFeatures::new(feature)
            };
            for reads in [0, bytes - 4] {
                let (cqe, data) = host.get_feature(get, reads).await;
                assert_status(&cqe, Status::DATA_SGL_LENGTH_INVALID.with_do_not_retry());
                assert!(data.is_empty());
            }
            let (cqe, data) = host.get_feature(get, bytes).await;
            assert!(cqe.status.is_success());
            assert_eq!(data.len(), bytes as usize);
        }
    });
}

/// FFFFh in SQHD of Connect's answer grants a host's wish for no SQ flow control.
#[test]
fn a_long_read_comes_in_several_pdus_in_order() {
    const PDU_BYTES: u32 = 4096;
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let config = TargetConfig {
            max_c2h_data: PDU_BYTES,
            ..TargetConfig::default()
        };
        let volumes = [memory_volume("1M", 512)];
        let (_target, address) = serve(remotes, config, &volumes, server).await;
        for flow_control_off in [false, true] {
            let options = HostOptions {
                flow_control_off,
                ..HostOptions::default()
            };
            let (_admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
            let mut io = io_queue(&reactor, address, id, 1, options).await;
            let data = pattern(3, 20 * BLOCK);
            let write = NvmCommand::Write(Blocks::new(1, 20));
            assert_status(&io.nvm(write, 1, &data, 0).await.0, Status::SUCCESS);
            let read = NvmCommand::Read(Blocks::new(1, 20));
            let (cqe, there) = io.nvm(read, 1, &[], data.len() as u32).await;
            assert_status(&cqe, Status::SUCCESS);
            assert_eq!(there, data);
            assert_eq!(io.c2h_pdus, (data.len() as u32).div_ceil(PDU_BYTES));
        }
    });
}

/// Linux before 5.18 answers an R2T with one H2CData, whatever MAXH2CDATA is.
#[test]
fn an_r2t_can_be_answered_with_one_pdu() {
    with_target(|mut host| async move {
        let longest = host.admin.identify_controller().await;
        let longest = longest.maximum_transfer_bytes(0).expect("MDTS");
        let data = pattern(5, longest as usize);
        host.io.maximum_h2c_data = u32::MAX;
        host.write(3, &data).await;
        assert_eq!(host.io.h2c_pdus, 1);
        assert_eq!(host.read(3, (data.len() / BLOCK) as u32).await, data);
    });
}

#[test]
fn flow_control_is_off_where_the_host_wishes_so() {
    with_target(|host| async move {
        for flow_control_off in [true, false] {
            let options = HostOptions {
                flow_control_off,
                ..HostOptions::default()
            };
            let head = if flow_control_off { 0xffff } else { 1 };
            let open = async || Queue::open(&host.reactor, host.address, options).await;
            let mut admin = open().await.expect("a connection");
            let any = connect_data(ConnectData::ANY_CONTROLLER, SUBSYSTEM);
            let cqe = admin.connect_as(0, &any).await.expect("an answer");
            assert_eq!((cqe.status, cqe.sqhd), (Status::SUCCESS, head));
            admin.set_configuration(enabled()).await;
            let data = connect_data(cqe.dw0() as u16, SUBSYSTEM);
            // One of the two is on the other reactor.
            let mut queues = Vec::new();
            for qid in 1..=2 {
                let mut io = open().await.expect("a connection");
                let cqe = io.connect_as(qid, &data).await.expect("an answer");
                assert_eq!((cqe.status, cqe.sqhd), (Status::SUCCESS, head));
                queues.push(io);
            }
        }
    });
}

/// There is no error log before there is a controller: nothing says that more is to be read there, and nothing is.
#[test]
fn a_refused_connect_is_not_in_the_error_log() {
    with_target(|host| async move {
        let options = HostOptions::default();
        let mut admin = Queue::open(&host.reactor, host.address, options)
            .await
            .expect("a connection");
        let missing = connect_data(ConnectData::ANY_CONTROLLER, "nqn.2024-01.org.weir:none");
        let cqe = admin.connect_as(0, &missing).await.expect("an answer");
        assert_status(&cqe, Status::CONNECT_INVALID_PARAMETERS);
        assert!(!cqe.status.more());
        let any = connect_data(ConnectData::ANY_CONTROLLER, SUBSYSTEM);
        let cqe = admin.connect_as(0, &any).await.expect("an answer");
        assert!(cqe.status.is_success());
        admin.set_configuration(enabled()).await;
        let log = GetLogPage::new(LogId::ErrorInformation, 0, 64);
        let log = AdminCommand::GetLogPage(log);
        let (cqe, data) = admin.admin(log, &[], 64).await;
        assert!(cqe.status.is_success());
        let first = ErrorInformation::parse(&data).expect("64 bytes");
        assert_eq!(first.error_count, 0);
    });
}

/// A reset ends the requests for events, and unmasks the events.
#[test]
fn a_reset_forgets_asynchronous_events() {
    with_target(|mut host| async move {
        let reactor = host.reactor.clone();
        let (volume, admin) = (host.volumes[0].clone(), &mut host.admin);
        for blocks in [BLOCKS + 8, BLOCKS + 16] {
            let namespaces = AdminCommand::SetFeatures(SetFeatures::new(
                FeatureId::AsynchronousEventConfiguration,
                1 << 8,
            ));
            assert!(admin.admin(namespaces, &[], 0).await.0.status.is_success());
            let mut requests = Vec::new();
            for _ in 0..8 {
                let request = AdminCommand::AsynchronousEventRequest;
                let sqe = request.sqe(0, SglDescriptor::NONE);
                requests.push(admin.submit(sqe, &[], 0).await.expect("connected"));
            }
            let grown = Arc::clone(&volume).resize(&reactor, blocks, false);
            grown.await.expect("it grows");
            // Its log is not read.
            let (cqe, _) = admin.answer(requests.remove(0)).await.expect("connected");
            assert_eq!((cqe.status, cqe.dw0()), (Status::SUCCESS, 0x04_0002));
            let cqe = admin.set_configuration(enabled().with_enabled(false)).await;
            assert_status(&cqe, Status::SUCCESS);
            eventually(&reactor, "the end of the reset", async || {
                admin.property(Property::Status).await == 0
            })
            .await;
            for request in requests {
                let (cqe, _) = admin.answer(request).await.expect("connected");
                assert_status(&cqe, Status::COMMAND_ABORT_REQUESTED);
            }
            admin.set_configuration(enabled()).await;
        }
    });
}

#[test]
fn the_number_of_queues_is_granted_up_to_the_limit() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 1);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let config = TargetConfig {
            io_queues_max: 3,
            ..TargetConfig::default()
        };
        let volumes = [memory_volume("1M", 512)];
        let (_target, address) = serve(remotes, config, &volumes, server).await;
        let options = HostOptions::default();
        let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let queues = |count| {
            let queues = NumberOfQueues {
                submission: count,
                completion: count,
            };
            AdminCommand::SetFeatures(SetFeatures::new(
                FeatureId::NumberOfQueues,
                queues.to_dword(),
            ))
        };
        let (cqe, _) = admin.admin(queues(65535), &[], 0).await;
        assert_eq!(NumberOfQueues::from_dword(cqe.dw0()).submission, 3);
        let (cqe, _) = admin.admin(queues(2), &[], 0).await;
        assert_eq!(NumberOfQueues::from_dword(cqe.dw0()).submission, 2);
        let mut queue = Queue::open(&reactor, address, options)
            .await
            .expect("a connection");
        let cqe = queue
            .connect_as(3, &connect_data(id, SUBSYSTEM))
            .await
            .expect("an answer");
        assert_status(&cqe, Status::CONNECT_INVALID_PARAMETERS);
        let _two = io_queue(&reactor, address, id, 2, options).await;
    });
}

#[test]
fn properties_enable_reset_and_shut_down() {
    with_target(|mut host| async move {
        let admin = &mut host.admin;
        let capabilities = Capabilities(admin.property(Property::Capabilities).await);
        assert_eq!(capabilities.maximum_queue_entries(), 128);
        assert_eq!(admin.property(Property::Version).await, 0x0002_0000);

        // A reset ends the I/O queue, and the controller is not ready any more.
        let cqe = admin.set_configuration(enabled().with_enabled(false)).await;
        assert_status(&cqe, Status::SUCCESS);
        let reactor = host.reactor.clone();
        eventually(&reactor, "the end of the reset", async || {
            admin.property(Property::Status).await == 0
        })
        .await;
        assert!(matches!(
            host.io.step().await,
            Err(Broken::Closed | Broken::Lost(_))
        ));
        let (cqe, _) = admin.identify(Cns::Controller, 0).await;
        assert_status(&cqe, Status::COMMAND_SEQUENCE_ERROR);
        let (cqe, _) = admin.admin(AdminCommand::KeepAlive, &[], 0).await;
        assert_status(&cqe, Status::SUCCESS);

        // A configuration that cannot be.
        admin.set_configuration(enabled().with_command_set(5)).await;
        assert_eq!(admin.property(Property::Status).await, 0b10);
        admin.set_configuration(enabled().with_enabled(false)).await;
        eventually(&reactor, "the end of the reset", async || {
            admin.property(Property::Status).await == 0
        })
        .await;
        admin.set_configuration(enabled()).await;
        assert_eq!(admin.property(Property::Status).await, 1);

        // Shut down, twice.
        for _ in 0..2 {
            admin
                .set_configuration(enabled().with_shutdown(ShutdownNotification::Normal))
                .await;
            eventually(&reactor, "the end of the shutdown", async || {
                admin.property(Property::Status).await == 0b1001
            })
            .await;
        }
        // A reset and a shutdown by one write, and a shutdown of a controller that is not enabled.
        for _ in 0..2 {
            let both = enabled()
                .with_enabled(false)
                .with_shutdown(ShutdownNotification::Normal);
            admin.set_configuration(both).await;
            eventually(&reactor, "the end of both", async || {
                admin.property(Property::Status).await == 0b1000
            })
            .await;
        }
        admin.set_configuration(enabled()).await;
        assert_eq!(admin.property(Property::Status).await, 1);
        // Only CC may be written, in four bytes.
        use weir_nvme::command::{PropertySet, PropertySize};
        for (size, offset) in [
            (PropertySize::EightBytes, 0x14),
            (PropertySize::FourBytes, 0x1c),
            (PropertySize::FourBytes, 0x00),
        ] {
            let set = FabricsCommand::PropertySet(PropertySet {
                size,
                offset,
                value: 0,
            });
            let (cqe, _) = admin.command(set.sqe(0, SglDescriptor::NONE), &[], 0).await;
            assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);
        }
    });
}

#[test]
fn a_host_may_enable_all_command_sets() {
    with_target(|mut host| async move {
        let admin = &mut host.admin;
        let capabilities = Capabilities(admin.property(Property::Capabilities).await);
        let offered = Capabilities::COMMAND_SETS_NVM | Capabilities::COMMAND_SETS_SELECTABLE;
        assert_eq!(capabilities.command_sets(), offered);
        let all = enabled().with_command_set(Configuration::COMMAND_SET_ALL);
        admin.set_configuration(all.with_enabled(false)).await;
        eventually(&host.reactor, "the end of the reset", async || {
            admin.property(Property::Status).await == 0
        })
        .await;
        admin.set_configuration(all).await;
        assert_eq!(admin.property(Property::Status).await, 1);

        // The one combination that Identify names may be selected, and no other.
        let own = Identify {
            controller_id: 0xffff,
            ..Identify::new(Cns::CommandSetVector, 0)
        };
        let (_, data) = admin.admin(AdminCommand::Identify(own), &[], 4096).await;
        let vector: [u8; 4096] = data.try_into().expect("4096 bytes");
        let combinations: Vec<_> = CommandSetVector::decode(&vector).collect();
        assert_eq!(combinations, [CommandSetCombination::NVM]);
        let profile = FeatureId::IoCommandSetProfile;
        assert_status(&host.set_feature(profile, 0).await, Status::SUCCESS);
        for index in [1, 511] {
            assert_status(
                &host.set_feature(profile, index).await,
                Status::IO_COMMAND_SET_COMBINATION_REJECTED,
            );
        }
        let (cqe, _) = host.get_feature(GetFeatures::new(profile), 0).await;
        assert_status(&cqe, Status::SUCCESS);
        assert_eq!(cqe.dw0(), 0);

        // Namespaces say which command set they have; its structures are there.
        let (_, data) = host.admin.identify(Cns::NamespaceDescriptors, 1).await;
        let data: [u8; 4096] = data.try_into().expect("4096 bytes");
        let descriptors = NamespaceDescriptors::decode(&data).expect("a good list");
        assert_eq!(descriptors.command_set, Some(COMMAND_SET_NVM));
        for cns in [
            Cns::CommandSetNamespace,
            Cns::CommandSetController,
            Cns::CommandSetActiveNamespaceList,
        ] {
            let (cqe, _) = host.admin.identify(cns, 1).await;
            assert_status(&cqe, Status::SUCCESS);
        }
        // Of a command set that no namespace has, no command is supported.
        let zoned = GetLogPage {
            command_set: 2,
            ..GetLogPage::new(LogId::CommandsSupportedAndEffects, 0, 4096)
        };
        let (_, data) = host
            .admin
            .admin(AdminCommand::GetLogPage(zoned), &[], 4096)
            .await;
        let effects = CommandsSupportedAndEffects::parse(&data).expect("4096 bytes");
        assert!(
            effects
                .io
                .iter()
                .all(|effects| *effects == CommandEffects::NONE)
        );
        let identify = effects.admin[usize::from(AdminOpcode::Identify.value())];
        assert!(identify.contains(CommandEffects::SUPPORTED));
    });
}

#[test]
fn an_io_queue_may_carry_another_host_identifier() {
    with_target(|mut host| async move {
        let mut data = connect_data(
            host.admin.identify_controller().await.controller_id,
            SUBSYSTEM,
        );
        data.host_id.0[0] ^= 1;
        let mut queue = Queue::open(&host.reactor, host.address, HostOptions::default())
            .await
            .expect("a connection");
        let cqe = queue.connect_as(2, &data).await.expect("an answer");
        assert_status(&cqe, Status::SUCCESS);
        let read = NvmCommand::Read(Blocks::new(0, 1));
        let (cqe, _) = queue.nvm(read, 1, &[], BLOCK as u32).await;
        assert_status(&cqe, Status::SUCCESS);
        // The controller keeps that of its admin queue.
        let identifier = GetFeatures {
            cdw11: 1,
            ..GetFeatures::new(FeatureId::HostIdentifier)
        };
        assert_eq!(host.get_feature(identifier, 16).await.1, [7; 16]);
        let ids = host
            .target
            .controllers()
            .into_iter()
            .map(|found| found.host_id);
        assert!(ids.eq([HostId([7; 16])]));
    });
}

#[test]
fn commands_of_the_wrong_queue_are_refused() {
    with_target(|mut host| async move {
        for opcode in [0x00, 0x01, 0x04, 0x05, 0x0d, 0x10, 0x80, 0x84, 0xc1] {
            let sqe = Sqe {
                opcode,
                ..Sqe::default()
            };
            let (cqe, _) = host.admin.command(sqe, &[], 0).await;
            assert_status(&cqe, Status::INVALID_COMMAND_OPCODE);
        }
        let disconnect = FabricsCommand::Disconnect { record_format: 0 };
        let disconnect = disconnect.sqe(0, SglDescriptor::NONE);
        let (cqe, _) = host.admin.command(disconnect, &[], 0).await;
        assert_status(&cqe, Status::INVALID_QUEUE_TYPE);
        // A second Connect on a queue that is connected.
        for queue in [&mut host.admin, &mut host.io] {
            let data = connect_data(ConnectData::ANY_CONTROLLER, SUBSYSTEM);
            let cqe = queue.connect_as(0, &data).await.expect("an answer");
            assert_status(&cqe, Status::COMMAND_SEQUENCE_ERROR);
        }
        // Disconnect of an I/O queue is answered, and then the connection ends; its identifier is free again.
        let (cqe, _) = host.io.command(disconnect, &[], 0).await;
        assert_status(&cqe, Status::SUCCESS);
        assert!(matches!(host.io.step().await, Err(Broken::Closed)));
        let controller = host.target.controllers()[0].id;
        drop(host.io);
        io_queue(
            &host.reactor,
            host.address,
            controller,
            1,
            HostOptions::default(),
        )
        .await;
    });
}

#[test]
fn aborts_reach_what_still_waits() {
    with_target(|mut host| async move {
        let abort = |sqid, cid| AdminCommand::Abort(Abort { sqid, cid });
        // An event request.
        let event = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
        let event = host.admin.submit(event, &[], 0).await.expect("connected");
        let (cqe, _) = host.admin.admin(abort(0, event), &[], 0).await;
        assert_eq!(cqe.result, 0);
        let (cqe, _) = host.admin.answer(event).await.expect("connected");
        assert_status(&cqe, Status::COMMAND_ABORT_REQUESTED);
        // Commands and queues that are not there.
        for (sqid, cid) in [(0, 999), (1, 999), (77, 0)] {
            let (cqe, _) = host.admin.admin(abort(sqid, cid), &[], 0).await;
            assert_eq!((cqe.result, cqe.status), (1, Status::SUCCESS));
        }
        // A write whose data was asked for and is late: it is aborted, and the late data does no harm.
        host.io.options.in_capsule = 0;
        let data = pattern(1, 8 * BLOCK);
        let write = NvmCommand::Write(Blocks::new(0, 8)).sqe(0, 1, SglDescriptor::NONE);
        let cid = host.io.submit(write, &data, 0).await.expect("connected");
        let r2t = host.io.receive_r2t().await;
        let (cqe, _) = host.admin.admin(abort(1, cid), &[], 0).await;
        assert_eq!(cqe.result, 0);
        host.io.send_data(&r2t).await.expect("connected");
        let (cqe, _) = host.io.answer(cid).await.expect("connected");
        assert_status(&cqe, Status::COMMAND_ABORT_REQUESTED);
        assert_eq!(host.read(0, 8).await, vec![0; 8 * BLOCK]);
    });
}

/// A CID is the command's that has it now, wherever one that had it before was.
#[test]
fn an_abort_reaches_the_command_that_has_the_cid_now() {
    with_target(|mut host| async move {
        host.io.options.in_capsule = 0;
        let data = pattern(1, BLOCK);
        let write = |lba| NvmCommand::Write(Blocks::new(lba, 1)).sqe(0, 1, SglDescriptor::NONE);
        // Two at once: the slot of the one that ends last is the next to be used.
        let first = host.io.submit(write(0), &data, 0).await.expect("connected");
        let second = host.io.submit(write(1), &data, 0).await.expect("connected");
        for cid in [first, second] {
            let (cqe, _) = host.io.answer(cid).await.expect("connected");
            assert_status(&cqe, Status::SUCCESS);
        }
        host.io.next_cid = first;
        let again = host.io.submit(write(2), &data, 0).await.expect("connected");
        assert_eq!(again, first);
        let r2t = host.io.receive_r2t().await;
        let abort = AdminCommand::Abort(Abort {
            sqid: 1,
            cid: again,
        });
        let (cqe, _) = host.admin.admin(abort, &[], 0).await;
        assert_eq!((cqe.result, cqe.status), (0, Status::SUCCESS));
        host.io.send_data(&r2t).await.expect("connected");
        let (cqe, _) = host.io.answer(again).await.expect("connected");
        assert_status(&cqe, Status::COMMAND_ABORT_REQUESTED);
        host.io.next_cid = second + 1;
        assert_eq!(host.read(2, 1).await, vec![0; BLOCK]);
    });
}

#[test]
fn a_cid_in_flight_is_a_conflict() {
    with_target(|mut host| async move {
        let event = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
        let cid = host.admin.submit(event, &[], 0).await.expect("connected");
        let again = AdminCommand::KeepAlive.sqe(cid, SglDescriptor::NONE);
        for _ in 0..2 {
            host.admin.expect_answer_for(cid);
            let capsule = host.admin.capsule(&again, &[]);
            host.admin.send_bytes(&capsule).await.expect("connected");
            let (cqe, _) = host.admin.answer(cid).await.expect("connected");
            assert_status(&cqe, Status::COMMAND_ID_CONFLICT);
            assert!(!cqe.status.do_not_retry());
        }
        // The request itself still waits, and its CID is free once it is answered.
        host.admin.expect_answer_for(cid);
        let abort = AdminCommand::Abort(Abort { sqid: 0, cid });
        let (cqe, _) = host.admin.admin(abort, &[], 0).await;
        assert_eq!(cqe.result, 0);
        let (cqe, _) = host.admin.answer(cid).await.expect("connected");
        assert_status(&cqe, Status::COMMAND_ABORT_REQUESTED);
        host.admin.expect_answer_for(cid);
        let capsule = host.admin.capsule(&again, &[]);
        host.admin.send_bytes(&capsule).await.expect("connected");
        let (cqe, _) = host.admin.answer(cid).await.expect("connected");
        assert_status(&cqe, Status::SUCCESS);
    });
}

#[test]
fn discovery_shows_a_host_its_own() {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, 2);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volumes = [memory_volume("1M", 512)];
        let config = TargetConfig::default();
        let (target, address) = serve(remotes, config, &volumes, server).await;
        let mut open = subsystem(&volumes);
        let mut closed = open.clone();
        closed.nqn = nqn("nqn.2024-01.org.weir:closed");
        closed.allowed = Allowed::List([nqn("nqn.2024-01.org.weir:other")].into());
        let mut served = snapshot(2, vec![open.clone(), closed], address);
        served.ports.push(Port {
            address: "0.0.0.0:4421".parse().expect("an address"),
            id: 2,
            discovery_only: false,
        });
        target.apply(served.clone()).await.expect("applied");

        let options = HostOptions {
            keep_alive_ms: 120_000,
            ..HostOptions::default()
        };
        let (mut queue, id) = admin_queue(&reactor, address, DISCOVERY_NQN, options).await;
        let controller = queue.identify_controller().await;
        assert_eq!(controller.controller_type, ControllerType::Discovery);
        let read = async |queue: &mut Queue| {
            let get = GetLogPage::new(LogId::Discovery, 0, 8192);
            let (cqe, data) = queue.admin(AdminCommand::GetLogPage(get), &[], 8192).await;
            assert_status(&cqe, Status::SUCCESS);
            let header = DiscoveryLogHeader::parse(&data[..1024]).expect("a header");
            let entries: Vec<_> = data[1024..][..header.records as usize * 1024]
                .chunks(1024)
                .map(|entry| DiscoveryLogEntry::parse(entry).expect("an entry"))
                .collect();
            (header.generation, entries)
        };
        let (generation, entries) = read(&mut queue).await;
        assert_eq!(generation, 2);
        let names: Vec<_> = entries
            .iter()
            .map(|entry| entry.subsystem().expect("a name").to_string())
            .collect();
        assert_eq!(names, [DISCOVERY_NQN, DISCOVERY_NQN, SUBSYSTEM, SUBSYSTEM]);
        assert_eq!(entries[3].address_text(), server.to_string());
        assert_eq!(entries[3].service_text(), "4421");
        // A host that may not connect is told nothing, and is refused.
        let mut refused = Queue::open(&reactor, address, options)
            .await
            .expect("a connection");
        let data = connect_data(ConnectData::ANY_CONTROLLER, "nqn.2024-01.org.weir:closed");
        let cqe = refused.connect_as(0, &data).await.expect("an answer");
        assert_status(&cqe, Status::CONNECT_INVALID_HOST);
        // No I/O queue, no namespace.
        let data = connect_data(id, DISCOVERY_NQN);
        let cqe = refused.connect_as(1, &data).await.expect("an answer");
        assert_status(&cqe, Status::CONNECT_INVALID_PARAMETERS);
        let (cqe, _) = queue.identify(Cns::Namespace, 1).await;
        assert_status(&cqe, Status::INVALID_FIELD_IN_COMMAND);

        // A persistent discovery controller is told when what it sees changes, and only then.
        let set = SetFeatures::new(FeatureId::AsynchronousEventConfiguration, 1 << 31);
        let (cqe, _) = queue.admin(AdminCommand::SetFeatures(set), &[], 0).await;
        assert_status(&cqe, Status::SUCCESS);
        let event = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
        let event = queue.submit(event, &[], 0).await.expect("connected");
        served.generation = 3;
        served.subsystems.remove(1);
        target.apply(served.clone()).await.expect("applied");
        let (cqe, _) = queue.admin(AdminCommand::KeepAlive, &[], 0).await;
        assert_status(&cqe, Status::SUCCESS);
        assert!(!queue.is_answered(event), "nothing changed for this host");
        open.nqn = nqn("nqn.2024-01.org.weir:new");
        served.generation = 4;
        served.subsystems.push(open);
        target.apply(served).await.expect("applied");
        let (cqe, _) = queue.answer(event).await.expect("connected");
        assert_eq!(cqe.dw0(), 0x70_f002);
        let (generation, entries) = read(&mut queue).await;
        assert_eq!((generation, entries.len()), (4, 6));
    });
}

#[test]
fn a_grown_volume_is_seen_by_connected_hosts() {
    with_target(|mut host| async move {
        let set = SetFeatures::new(FeatureId::AsynchronousEventConfiguration, 1 << 8);
        let (cqe, _) = host
            .admin
            .admin(AdminCommand::SetFeatures(set), &[], 0)
            .await;
        assert_status(&cqe, Status::SUCCESS);
        let request = AdminCommand::AsynchronousEventRequest.sqe(0, SglDescriptor::NONE);
        let event = host.admin.submit(request, &[], 0).await.expect("connected");
        assert_eq!(host.volumes[0].geometry().block_size, BlockSize::B512);
        let grown = host.volumes[0]
            .clone()
            .resize(&host.reactor, 2 * BLOCKS, false);
        grown.await.expect("memory grows");
        let (cqe, _) = host.admin.answer(event).await.expect("connected");
        assert_eq!(cqe.dw0(), 0x04_0002);
        let (_, data) = host.log(LogId::ChangedNamespaceList, 4096).await;
        let list: [u8; 4096] = data.try_into().expect("4096 bytes");
        assert_eq!(decode_namespace_list(&list).collect::<Vec<_>>(), [1]);
        let (_, data) = host.admin.identify(Cns::Namespace, 1).await;
        let namespace = IdentifyNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(namespace.size, 2 * BLOCKS);
        host.write(2 * BLOCKS - 1, &pattern(1, BLOCK)).await;
        // The list is empty once it was read.
        let (_, data) = host.log(LogId::ChangedNamespaceList, 4096).await;
        assert_eq!(data, vec![0; 4096]);

        // One namespace goes, another comes.
        let event = host.admin.submit(request, &[], 0).await.expect("connected");
        let mut other = subsystem(&host.volumes);
        other.namespaces[1].nsid = 5;
        host.target
            .apply(snapshot(2, vec![other], host.address))
            .await
            .expect("applied");
        host.admin.answer(event).await.expect("connected");
        let (_, data) = host.log(LogId::ChangedNamespaceList, 4096).await;
        let list: [u8; 4096] = data.try_into().expect("4096 bytes");
        assert_eq!(decode_namespace_list(&list).collect::<Vec<_>>(), [2, 5]);
    });
}
