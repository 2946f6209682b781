//! Initiators that mean harm, or count wrong: what they can make a target keep, and what it owes them all the same.

use std::time::Duration;

use weir_digest::Digest;
use weir_iscsi::negotiation::DigestPolicy;
use weir_iscsi::pdu::{
    Cid, DataOut, Itt, LogoutReason, LogoutRequest, Pdu, RejectReason, ScsiCommand, TaskAttribute,
    TaskFunction, TaskResponse, Ttt,
};
use weir_iscsi::serial::Serial;
use weir_iscsi_target::IscsiConfig;
use weir_testing::world::simulated;

use crate::initiator::{
    BLOCK, Initiator, pattern, read, serve, served, settings, settings_with_digests, write,
};
use crate::transfers::slowly;

/// Data-Outs of one byte, each damaged: more than fit into what a network keeps of their answers.
const DAMAGED: usize = 20_000;

#[test]
fn damaged_data_of_one_that_reads_no_answers_is_answered_a_bounded_number_of_times() {
    simulated(|world| async move {
        let (iscsi, address) = serve(&world, IscsiConfig::default(), served(|_| {})).await;
        let mut settings = settings_with_digests();
        settings.offer.header_digest = DigestPolicy::Refused;
        let mut initiator = Initiator::try_login(&world, address, settings)
            .await
            .expect("it logs in");
        let data = pattern(8 * BLOCK, 1);
        let mut command = write(0, &data);
        command.is_final = false;
        let itt = initiator.begin_command(&command).await;
        let mut bytes = Vec::new();
        for offset in 0..DAMAGED {
            let header = DataOut {
                is_final: offset + 1 == DAMAGED,
                lun: 0,
                itt,
                ttt: Ttt::RESERVED,
                exp_stat_sn: Serial(0),
                data_sn: Serial(offset as u32),
                buffer_offset: offset as u32,
                data_length: 1,
            };
            bytes.extend(initiator.encode(&header, &[7], Digest::of(&[8])));
        }
        initiator.send_bytes(&bytes).await;
        let mut rejects = 0;
        loop {
            let (pdu, _) = initiator.receive().await.expect("an answer");
            match pdu {
                Pdu::Reject(reject) => {
                    assert_eq!(reject.reason, RejectReason::DataDigestError);
                    rejects += 1;
                }
                Pdu::R2t(r2t) => {
                    // The rest, as it should be.
                    let from = r2t.buffer_offset as usize;
                    let to = from + r2t.desired_length as usize;
                    initiator
                        .send_data(itt, r2t.ttt, from, &data[from..to])
                        .await;
                }
                Pdu::ScsiResponse(response) => {
                    assert_eq!(response.status, 0x02, "its data was damaged");
                    break;
                }
                other => panic!("{other:?} was not expected"),
            }
        }
        assert!(
            (1..DAMAGED / 2).contains(&rejects),
            "{rejects} answers to one that read none"
        );
        assert_eq!(iscsi.stats().connections, 1);
    });
}

#[test]
fn immediate_commands_take_no_slot_that_the_window_promised() {
    simulated(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), slowly("100ms")).await;
        let mut initiator = Initiator::login(&world, address).await;
        const IMMEDIATE: u32 = 40;
        let immediate = |number: u32, cmd_sn: Serial| {
            let mut cdb = [0; 16];
            (cdb[0], cdb[13]) = (0x88, 1);
            ScsiCommand {
                immediate: true,
                is_final: true,
                read: true,
                write: false,
                attribute: TaskAttribute::Simple,
                lun: 0,
                itt: Itt(1000 + number),
                expected_data_length: BLOCK as u32,
                cmd_sn,
                exp_stat_sn: Serial(0),
                cdb,
                additional: Default::default(),
                data_length: 0,
            }
        };
        for number in 0..IMMEDIATE {
            let command = immediate(number, initiator.next_number());
            initiator.send(&command, &[]).await;
        }
        // All that the window admits.
        let mut numbered = 0;
        while initiator.may_begin() {
            initiator.begin_command(&read(0, 1)).await;
            numbered += 1;
        }
        let (mut good, mut rejected) = (0, 0);
        while good + rejected < IMMEDIATE + numbered {
            let (pdu, _) = initiator.receive().await.expect("an answer");
            match pdu {
                Pdu::DataIn(data) => {
                    let end = data.status.expect("one PDU each");
                    assert_eq!(end.status, 0);
                    good += 1;
                }
                Pdu::Reject(reject) => {
                    assert_eq!(reject.reason, RejectReason::TooManyImmediateCommands);
                    rejected += 1;
                }
                other => panic!("{other:?} was not expected"),
            }
        }
        assert_eq!(good, numbered + 8, "the window's, and the spare ones");
    });
}

#[test]
fn a_reset_is_answered_before_the_logout_behind_it() {
    simulated(|world| async move {
        let (_iscsi, address) = serve(&world, IscsiConfig::default(), slowly("100ms")).await;
        let mut one = Initiator::login(&world, address).await;
        let mut settings = settings();
        settings.isid = weir_iscsi::pdu::Isid::random([1, 2, 3], 2);
        let other = Initiator::try_login(&world, address, settings).await;
        let mut other = other.expect("it logs in");
        other.begin_command(&read(0, 1)).await;
        world.reactor.sleep(Duration::from_millis(10)).await;
        let reset = one.manage(TaskFunction::LogicalUnitReset, 0, Itt(0)).await;
        let logout = LogoutRequest {
            immediate: true,
            reason: LogoutReason::CloseSession,
            itt: Itt(77),
            cid: Cid(0),
            cmd_sn: one.next_number(),
            exp_stat_sn: Serial(0),
            data_length: 0,
        };
        one.send(&logout, &[]).await;
        assert_eq!(one.managed(reset).await, TaskResponse::Complete);
        let (pdu, _) = one.receive().await.expect("an answer");
        assert!(matches!(pdu, Pdu::LogoutResponse(_)), "{pdu:?}");
    });
}
