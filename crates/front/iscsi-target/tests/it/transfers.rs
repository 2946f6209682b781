//! Data on its way: how it comes, what order commands have, and how they are ended.

use std::sync::Arc;
use std::time::Duration;

use weir_iscsi::pdu::{DataOut, Pdu, TaskAttribute, TaskFunction, TaskResponse, Ttt};
use weir_iscsi::serial::Serial;
use weir_iscsi_target::{IscsiConfig, Lun, Snapshot};
use weir_scsi::lun::Lun as Address;
use weir_scsi::sense::AdditionalSense;
use weir_testing::harness::Client;
use weir_testing::late::Late;
use weir_testing::world::{World, everywhere, simulated};
use weir_volume::{Access, Guard, GuardConfig, NullVolume};

use crate::initiator::{
    BLOCK, Command, Initiator, memory, pattern, read, serve, served, settings,
    settings_with_digests, write,
};

/// Blocks of which the largest transfer is.
const BLOCKS: usize = 300;

async fn with(
    world: &World,
    config: IscsiConfig,
    change: impl FnOnce(&mut weir_iscsi::login::InitiatorSettings),
) -> Initiator {
    let (iscsi, address) = serve(world, config, served(|_| {})).await;
    // It serves to the end of the case.
    std::mem::forget(iscsi);
    let mut settings = settings();
    change(&mut settings);
    let session = Initiator::try_login(world, address, settings).await;
    session.expect("it logs in")
}

/// A volume whose every request takes so long.
fn slow(delay: &str) -> Lun {
    let url = format!("null:?size=4M&block_size=4096&delay={delay}");
    let url = url.parse().expect("a URL");
    let volume = NullVolume::open(&url, Access { read_only: false }).expect("a volume");
    let volume = Guard::new(volume, GuardConfig::default()).expect("a guard");
    Lun::new(0, volume, [7; 16])
}

pub(crate) fn slowly(delay: &str) -> Snapshot {
    served(|target| target.luns = vec![slow(delay)])
}

#[test]
fn data_comes_with_its_command_and_behind_it_and_as_it_is_asked_for() {
    everywhere(|world| async move {
        let mut initiator = with(&world, IscsiConfig::default(), |_| {}).await;
        let agreed = initiator.agreed.parameters;
        assert!(agreed.immediate_data && !agreed.initial_r2t);
        let first_burst = agreed.first_burst_length as usize;
        // All with the command; a part with it; a part behind it unasked; and nothing before it is asked for.
        for (seed, blocks, immediate, unasked) in [
            (1, 2, 2 * BLOCK, 0),
            (2, BLOCKS, 5000, 0),
            (3, BLOCKS, 5000, first_burst - 5000),
            (4, BLOCKS, 0, first_burst),
            (5, BLOCKS, 0, 0),
        ] {
            let data = pattern(blocks * BLOCK, seed);
            let command = Command {
                immediate,
                is_final: unasked == 0,
                ..write(7, &data)
            };
            let itt = initiator.begin_command(&command).await;
            if unasked > 0 {
                let part = &data[immediate..immediate + unasked];
                initiator
                    .send_data(itt, Ttt::RESERVED, immediate, part)
                    .await;
            }
            initiator.finish(itt, &data).await.good();
            let back = initiator.run(&read(7, blocks as u32)).await.good();
            assert!(back == data, "{immediate} {unasked}");
        }
    });
}

#[test]
fn data_goes_both_ways_with_digests_and_small_bursts() {
    everywhere(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), served(|_| {})).await;
        let mut settings = settings_with_digests();
        settings.offer.max_recv_data_segment_length = 512;
        settings.offer.max_burst_length = 4096;
        settings.offer.first_burst_length = 512;
        let session = Initiator::try_login(&world, address, settings).await;
        let mut initiator = session.expect("it logs in");
        let data = pattern(40 * BLOCK, 6);
        let command = Command {
            immediate: 512,
            ..write(0, &data)
        };
        initiator.run(&command).await.good();
        assert!(initiator.run(&read(0, 40)).await.good() == data);
    });
}

#[test]
fn data_that_was_not_asked_for_ends_the_session() {
    simulated(|world| async move {
        let data = pattern(BLOCKS * BLOCK, 7);
        for (offset, length) in [(BLOCK, BLOCK), (0, 2 << 20)] {
            let mut initiator = with(&world, IscsiConfig::default(), |_| {}).await;
            let itt = initiator.begin_command(&write(0, &data)).await;
            let (pdu, _) = initiator.receive().await.expect("an R2T");
            let Pdu::R2t(r2t) = pdu else {
                panic!("{pdu:?} asks for data")
            };
            // At another place than the next, and more than was asked for.
            let header = DataOut {
                is_final: true,
                lun: 0,
                itt,
                ttt: r2t.ttt,
                exp_stat_sn: Serial(0),
                data_sn: Serial(0),
                buffer_offset: offset as u32,
                data_length: length.min(65_536) as u32,
            };
            let part = vec![0; length.min(65_536)];
            let mut header = header;
            let mut is_over = false;
            for _ in 0..32 {
                initiator.send(&header, &part).await;
                header.buffer_offset += header.data_length;
                header.is_final = false;
                if offset > 0 {
                    break;
                }
            }
            while let Some((pdu, _)) = initiator.receive().await {
                is_over |= matches!(pdu, Pdu::Reject(_));
            }
            assert!(is_over, "it is told with a Reject, and the connection ends");
        }
    });
}

#[test]
fn an_ordered_command_is_a_barrier() {
    simulated(|world| async move {
        let mut initiator = with(&world, IscsiConfig::default(), |_| {}).await;
        let (first, second) = (pattern(BLOCK, 8), pattern(BLOCK, 9));
        // The first answer opens the window.
        initiator.run(&read(0, 1)).await.good();
        for round in 0..20 {
            // Data of the first is asked for: the one behind it waits, though it could be read at once.
            let one = initiator.begin_command(&write(3, &first)).await;
            let ordered = Command {
                attribute: TaskAttribute::Ordered,
                ..read(3, 1)
            };
            let reading = initiator.begin_command(&ordered).await;
            let overwrite = Command {
                immediate: BLOCK,
                ..write(3, &second)
            };
            let two = initiator.begin_command(&overwrite).await;
            initiator.finish(one, &first).await.good();
            let seen = initiator.finish(reading, &[]).await.good();
            assert!(seen == first, "round {round}");
            initiator.finish(two, &[]).await.good();
            assert!(initiator.run(&read(3, 1)).await.good() == second);
        }
    });
}

#[test]
fn what_was_aborted_is_answered_no_more_and_others_go_on() {
    everywhere(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), slowly("50ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        // The first answer opens the window.
        initiator.run(&read(0, 1)).await.good();
        let one = initiator.begin_command(&read(0, 1)).await;
        let two = initiator.begin_command(&read(1, 1)).await;
        let function = initiator.manage(TaskFunction::AbortTask, 0, one).await;
        let mut ended = Vec::new();
        while ended.len() < 2 {
            let (pdu, _) = initiator.receive().await.expect("an answer");
            match pdu {
                Pdu::TaskManagementResponse(response) => {
                    assert_eq!(response.itt, function);
                    initiator.answered(response.serials.stat_sn);
                    assert_eq!(response.response, TaskResponse::Complete);
                    ended.push(function);
                }
                Pdu::DataIn(data) => {
                    assert_eq!(data.itt, two);
                    if let Some(end) = data.status {
                        initiator.answered(end.stat_sn);
                        ended.push(two);
                    }
                }
                other => panic!("{other:?} was not expected"),
            }
        }
        // It is not there any more.
        let again = initiator.manage(TaskFunction::AbortTask, 0, one).await;
        assert_eq!(
            initiator.managed(again).await,
            TaskResponse::TaskDoesNotExist
        );
        for function in [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet] {
            initiator.begin_command(&read(0, 1)).await;
            let all = initiator.manage(function, 0, one).await;
            assert_eq!(initiator.managed(all).await, TaskResponse::Complete);
        }
        initiator.run(&read(0, 1)).await.good();
        let absent = u64::from_be_bytes(Address::Unit(9).encode());
        let refused = [
            (
                TaskFunction::LogicalUnitReset,
                absent,
                TaskResponse::LunDoesNotExist,
            ),
            (
                TaskFunction::TaskReassign,
                0,
                TaskResponse::ReassignmentNotSupported,
            ),
            (TaskFunction::ClearAca, 0, TaskResponse::NotSupported),
        ];
        for (function, lun, response) in refused {
            let itt = initiator.manage(function, lun, one).await;
            assert_eq!(initiator.managed(itt).await, response);
        }
    });
}

#[test]
fn a_reset_ends_commands_of_all_initiators_and_tells_them() {
    everywhere(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), slowly("50ms")).await;
        let mut one = Initiator::login(&world, address).await;
        let mut settings = settings();
        settings.isid = weir_iscsi::pdu::Isid::random([1, 2, 3], 2);
        let other = Initiator::try_login(&world, address, settings).await;
        let mut other = other.expect("it logs in");
        for function in [
            TaskFunction::LogicalUnitReset,
            TaskFunction::TargetWarmReset,
        ] {
            let lost = other.begin_command(&read(0, 1)).await;
            // It has come before the reset begins.
            other.ping(b"here").await;
            let reset = one.manage(function, 0, lost).await;
            assert_eq!(one.managed(reset).await, TaskResponse::Complete);
            let told = AdditionalSense::BUS_DEVICE_RESET_FUNCTION_OCCURRED;
            assert_eq!(one.run(&read(0, 1)).await.sense().additional, told);
            // Its command was answered before, or never is.
            let again = other.begin_command(&read(0, 1)).await;
            loop {
                let (pdu, _) = other.receive().await.expect("an answer");
                match pdu {
                    Pdu::ScsiResponse(response) => {
                        assert_eq!(response.itt, again);
                        other.answered(response.serials.stat_sn);
                        assert_eq!(response.status, 0x02);
                        break;
                    }
                    Pdu::DataIn(data) => {
                        assert_eq!(data.itt, lost);
                        if let Some(end) = data.status {
                            other.answered(end.stat_sn);
                        }
                    }
                    pdu => panic!("{pdu:?} was not expected"),
                }
            }
            other.run(&read(0, 1)).await.good();
            one.run(&read(0, 1)).await.good();
        }
    });
}

#[test]
fn commands_beyond_the_memory_that_there_is_wait_and_all_are_done() {
    everywhere(|world| async move {
        let config = IscsiConfig {
            bytes_in_flight_per_session: 4 << 20,
            ..IscsiConfig::default()
        };
        let (_iscsi, address) = serve(&world, config, slowly("1ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        let mut wanted = std::collections::BTreeSet::new();
        let mut left = 60;
        while left > 0 || !wanted.is_empty() {
            // As many as the window admits.
            while left > 0 && initiator.may_begin() {
                wanted.insert(initiator.begin_command(&read(0, 256)).await.0);
                left -= 1;
            }
            let (pdu, _) = initiator.receive().await.expect("an answer");
            let Pdu::DataIn(data) = pdu else {
                panic!("{pdu:?} was not expected")
            };
            if let Some(end) = data.status {
                initiator.answered(end.stat_sn);
                initiator.max_cmd_sn = data.max_cmd_sn;
                assert!(wanted.remove(&data.itt.0));
            }
        }
    });
}

#[test]
fn a_command_as_long_as_all_that_may_be_in_flight_is_done_beside_an_open_window() {
    everywhere(|world| async move {
        let config = IscsiConfig {
            bytes_in_flight_per_session: 64 << 10,
            transfer_bytes_max: 64 << 10,
            first_burst_bytes: 4096,
            ..IscsiConfig::default()
        };
        let (_iscsi, address) = serve(&world, config, slowly("1ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        let most = (64 << 10) / BLOCK as u32;
        for blocks in [1, most, 1, most] {
            initiator.run(&read(0, blocks)).await.good();
        }
    });
}

#[test]
fn commands_whose_first_data_fills_the_memory_are_done_one_after_another() {
    everywhere(|world| async move {
        let config = IscsiConfig {
            bytes_in_flight_per_session: 64 << 10,
            transfer_bytes_max: 64 << 10,
            first_burst_bytes: 16 << 10,
            ..IscsiConfig::default()
        };
        let (_iscsi, address) = serve(&world, config, slowly("1ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        initiator.run(&read(0, 1)).await.good();
        let data = Arc::new(pattern(64 << 10, 12));
        // They come while it has all the memory.
        let mut begun = vec![initiator.begin_command(&read(0, 16)).await];
        while initiator.may_begin() {
            let mut command = write(16 * begun.len() as u64, &data);
            command.immediate = 16 << 10;
            begun.push(initiator.begin_command(&command).await);
        }
        assert!(begun.len() > 2, "the window is open");
        for itt in begun {
            initiator.finish(itt, &data).await.good();
        }
    });
}

#[test]
fn a_logical_unit_that_goes_takes_its_commands_with_it() {
    everywhere(|world| async move {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), slowly("20ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        let data = Arc::new(pattern(2 * BLOCK, 11));
        let waiting = initiator.begin_command(&write(0, &data)).await;
        let (pdu, _) = initiator.receive().await.expect("an R2T");
        assert!(matches!(pdu, Pdu::R2t(_)));
        iscsi
            .apply(served(|target| target.luns = Vec::new()))
            .await
            .expect("it serves");
        world.reactor.sleep(Duration::from_millis(1)).await;
        let ended = initiator.finish(waiting, &data).await;
        let absent = AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED;
        assert_eq!(ended.sense().additional, absent);
        let sense = initiator.run(&read(0, 1)).await.sense();
        assert_eq!(sense.additional, absent);
    });
}

#[test]
fn a_session_is_made_again_once_nothing_of_the_old_one_takes_effect_any_more() {
    simulated(|world| async move {
        let below = memory();
        let late = Late::over(Arc::clone(&below), Duration::from_millis(80));
        let volume = Guard::new(late, GuardConfig::default()).expect("a guard");
        let units = served(|target| target.luns = vec![Lun::new(0, volume, [7; 16])]);
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), units).await;
        let behind = Client::open(&below, &world.reactor, 1);
        for round in 1..20 {
            let mut initiator = Initiator::login(&world, address).await;
            let at_first = behind.read(0, 1).await.expect("it is memory");
            let data = Arc::new(pattern(BLOCK, round));
            let mut begun = write(0, &data);
            begun.immediate = data.len();
            initiator.begin_command(&begun).await;
            // It comes, and is not carried out yet most often.
            world.reactor.sleep(Duration::from_millis(10)).await;
            drop(initiator);
            let again = Initiator::login(&world, address).await;
            let then = behind.read(0, 1).await.expect("it is memory");
            world.reactor.sleep(Duration::from_millis(200)).await;
            let now = behind.read(0, 1).await.expect("it is memory");
            assert!(now == then, "round {round}: it was carried out later");
            assert!(now == *data || now == at_first);
            drop(again);
        }
    });
}

#[test]
fn a_logical_unit_that_may_only_be_read_any_more_ends_writes_as_such() {
    everywhere(|world| async move {
        let volume = slow("20ms").volume;
        let serves = |read_only| {
            let mut lun = Lun::new(0, Arc::clone(&volume), [7; 16]);
            lun.read_only = read_only;
            served(|target| target.luns = vec![lun])
        };
        let (iscsi, address) = serve(&world, IscsiConfig::default(), serves(false)).await;
        let mut initiator = Initiator::login(&world, address).await;
        let data = Arc::new(pattern(2 * BLOCK, 11));
        let waiting = initiator.begin_command(&write(0, &data)).await;
        let (pdu, _) = initiator.receive().await.expect("an R2T");
        assert!(matches!(pdu, Pdu::R2t(_)));
        iscsi.apply(serves(true)).await.expect("it serves");
        world.reactor.sleep(Duration::from_millis(1)).await;
        let ended = initiator.finish(waiting, &data).await;
        assert_eq!(ended.sense().additional, AdditionalSense::WRITE_PROTECTED);
    });
}

/// As Linux does after a new login: it keeps the window of the one before.
#[test]
fn commands_that_come_in_order_are_taken_in_beyond_the_window() {
    everywhere(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), slowly("1ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        let mut wanted = std::collections::BTreeSet::new();
        for lba in 0..100 {
            wanted.insert(initiator.begin_command(&read(lba, 1)).await.0);
        }
        while !wanted.is_empty() {
            let (pdu, _) = initiator.receive().await.expect("an answer");
            let Pdu::DataIn(data) = pdu else {
                panic!("{pdu:?} was not expected")
            };
            let end = data.status.expect("it is the last of its command");
            initiator.answered(end.stat_sn);
            assert!(wanted.remove(&data.itt.0));
        }
    });
}
