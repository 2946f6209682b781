//! Tests of text after the login.

use super::*;

fn answer(text: &str) -> Result<(TextAnswer, Parameters), TextRequestError> {
    let mut parameters = Parameters::default();
    let answer = answer_text(text.as_bytes(), &mut parameters)?;
    Ok((answer, parameters))
}

#[test]
fn targets_are_asked_for() {
    let (answer, parameters) = answer("SendTargets=All\0").expect("well formed");
    assert_eq!(answer.send_targets, Some(SendTargets::All));
    assert_eq!(answer.answers.bytes(), b"");
    assert_eq!(parameters, Parameters::default());
}

#[test]
fn a_length_is_declared_anew() {
    let (answer, parameters) = answer("MaxRecvDataSegmentLength=65536\0").expect("well formed");
    assert_eq!(parameters.peer_max_recv_data_segment_length, 65536);
    assert_eq!(answer, TextAnswer::default());
}

#[test]
fn other_keys_are_rejected_or_not_understood() {
    let (answer, parameters) =
        answer("MaxBurstLength=512\0X-com.example=1\0InitiatorAlias=host\0").expect("well formed");
    assert_eq!(
        answer.answers.bytes(),
        b"MaxBurstLength=Reject\0X-com.example=NotUnderstood\0"
    );
    assert_eq!(parameters, Parameters::default());
}

#[test]
fn what_is_wrong_changes_nothing() {
    let mut parameters = Parameters::default();
    for (text, error) in [
        (
            "MaxRecvDataSegmentLength=1024\0MaxRecvDataSegmentLength=2048\0",
            "MaxRecvDataSegmentLength came twice",
        ),
        (
            "MaxRecvDataSegmentLength=511\0",
            "MaxRecvDataSegmentLength=511 is out of range",
        ),
        (
            "MaxRecvDataSegmentLength=1024\0SendTargets=all\0",
            "SendTargets: an iSCSI name begins with iqn., eui. or naa., as in iqn.2026-01.org.example:disk1",
        ),
        (
            "MaxRecvDataSegmentLength=1024\0SendTargets=All",
            "the last key=value pair does not end with a zero byte",
        ),
    ] {
        let said = answer_text(text.as_bytes(), &mut parameters).expect_err(text);
        assert_eq!(said.to_string(), error);
        assert_eq!(parameters, Parameters::default());
    }
}
