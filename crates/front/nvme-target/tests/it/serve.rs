//! Reads and writes through the target under the deterministic driver.

use crate::common::*;
use weir_nvme::command::{Blocks, NvmCommand};
use weir_nvme::identify::{Cns, IdentifyNamespace};
use weir_nvme_target::TargetConfig;

const BLOCK: usize = 512;

/// One admin queue and `queues` I/O queues; data of several sizes goes out and comes back on each.
fn round_trips(reactors: u32, queues: u16, options: HostOptions) {
    let simulation = simulation();
    let remotes = start_reactors(&simulation, reactors);
    let server = simulation.address(SERVER);
    simulation.run(CLIENT, move |reactor| async move {
        let volume = memory_volume("64M", BLOCK as u32);
        let (target, address) = serve(remotes, TargetConfig::default(), &[volume], server).await;
        let (mut admin, id) = admin_queue(&reactor, address, SUBSYSTEM, options).await;
        let controller = admin.identify_controller().await;
        assert_eq!(controller.controller_id, id);
        let (_, data) = admin.identify(Cns::Namespace, 1).await;
        let namespace = IdentifyNamespace::parse(&data).expect("4096 bytes");
        assert_eq!(namespace.size, (64 << 20) / BLOCK as u64);

        for qid in 1..=queues {
            let mut queue = io_queue(&reactor, address, id, qid, options).await;
            for (index, blocks) in [1_u32, 8, 16, 17, 256, 2048].into_iter().enumerate() {
                let lba = u64::from(qid) * 8192 + index as u64 * 1000;
                let data = pattern(lba, blocks as usize * BLOCK);
                let at = Blocks::new(lba, blocks);
                let (cqe, _) = queue.nvm(NvmCommand::Write(at), 1, &data, 0).await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                let (cqe, read) = queue
                    .nvm(NvmCommand::Read(at), 1, &[], data.len() as u32)
                    .await;
                assert!(cqe.status.is_success(), "{:?}", cqe.status);
                assert!(read == data, "{blocks} blocks came back changed");
            }
            let expected = if options.flow_control_off { 6 } else { 0 };
            assert_eq!(queue.success_flags, expected);
        }
        let stats = target.stats();
        let totals = stats.subsystems[0].1;
        assert_eq!(totals.reads, 6 * u64::from(queues));
        assert_eq!(totals.writes, 6 * u64::from(queues));
    });
}

#[test]
fn one_queue_reads_what_it_wrote() {
    round_trips(1, 1, HostOptions::default());
}

#[test]
fn eight_queues_over_three_reactors_read_what_they_wrote() {
    round_trips(3, 8, HostOptions::default());
}

#[test]
fn digests_and_alignment_change_nothing() {
    let options = HostOptions {
        header_digest: true,
        data_digest: true,
        alignment: 31,
        flow_control_off: false,
        ..HostOptions::default()
    };
    round_trips(2, 2, options);
}

#[test]
fn data_is_fetched_where_it_is_not_in_the_capsule() {
    let options = HostOptions {
        in_capsule: 1024,
        data_digest: true,
        ..HostOptions::default()
    };
    round_trips(2, 1, options);
}
