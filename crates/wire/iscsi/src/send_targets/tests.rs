//! Tests of the answer to SendTargets, whole and cut.

use super::*;
use proptest::prelude::*;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

#[test]
fn the_key_asks_for_all_one_or_the_sessions_own() {
    assert_eq!(SendTargets::parse("All"), Ok(SendTargets::All));
    assert_eq!(SendTargets::parse(""), Ok(SendTargets::Session));
    let target = SendTargets::Target(name("iqn.2001-04.com.example:disk1"));
    assert_eq!(
        SendTargets::parse("iqn.2001-04.com.example:disk1"),
        Ok(target)
    );
    assert_eq!(SendTargets::parse("all"), Err(NameError::UnknownFormat));
}

#[test]
fn each_target_has_its_addresses_after_its_name() {
    let address = |portal: &str, group| TargetAddress {
        portal: portal.parse().expect("an address"),
        group,
    };
    let first = name("iqn.2001-04.com.example:disk1");
    let second = name("iqn.2001-04.com.example:disk2");
    let targets = [
        (
            &first,
            vec![
                address("192.0.2.1:3260", 1),
                address("[2001:db8::1]:3261", 2),
            ],
        ),
        (&second, vec![]),
    ];
    let text: String = target_records(targets).collect();
    assert_eq!(
        text,
        "TargetName=iqn.2001-04.com.example:disk1\0\
         TargetAddress=192.0.2.1:3260,1\0\
         TargetAddress=[2001:db8::1]:3261,2\0\
         TargetName=iqn.2001-04.com.example:disk2\0"
    );
}

proptest! {
    /// However pairs are cut, together they are the same, and each PDU but the last is full.
    #[test]
    fn cut_pairs_are_whole_again(
        pairs in proptest::collection::vec("[a-z=]{0,20}\0", 0..12),
        maximum in 1_usize..40,
    ) {
        let mut cutter = PairCutter::new(pairs.clone());
        let (mut whole, mut more) = (vec![], true);
        while more {
            let mut text = vec![];
            more = cutter.fill(&mut text, maximum);
            prop_assert!(text.len() == maximum || !more);
            prop_assert!(!text.is_empty() || pairs.is_empty());
            whole.extend(text);
        }
        prop_assert_eq!(whole, pairs.concat().into_bytes());
        prop_assert!(!cutter.fill(&mut vec![], maximum));
    }
}
