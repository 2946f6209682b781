//! Sets whose members follow one another, of any lengths. What all sets keep from happening is in `stripe`.

use weir_reactor::sim::DiskConfig;
use weir_testing::harness::{Client, Harness, seed};
use weir_volume::{Access, VolumeUrl};

/// Behind the label's area 1 MiB, 16 KiB and 2 MiB.
const SIZES: [&str; 3] = ["2M", "1040k", "3M"];

fn url(scheme: &str, order: &[usize], parameters: &[(&str, &str)]) -> String {
    let mut url = VolumeUrl::new(scheme, "");
    for (name, value) in parameters {
        url = url.with(name, value);
    }
    for &index in order {
        url = url.with("member", format!("file:/{index}?size={}", SIZES[index]));
    }
    url.to_string()
}

#[test]
fn members_of_any_length_follow_one_another_in_the_order_in_which_they_were_named_first() {
    let seed = seed("members_of_any_length_follow_one_another");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    let volume = harness.open(&url("concat", &[0, 1, 2], &[("create", "1")]));
    assert_eq!(volume.geometry().blocks, 256 + 4 + 512);
    // Across both seams at once.
    let data: Vec<u8> = (0..8_u8).flat_map(|block| [block; 4096]).collect();
    let written = data.clone();
    harness.run(0, move |reactor| async move {
        let client = Client::open(&volume, &reactor, 2);
        assert_eq!(client.write(254, 8, &written).await, Ok(()));
        assert_eq!(client.write(771, 1, &[9; 4096]).await, Ok(()));
    });
    for order in [[0, 1, 2], [2, 0, 1]] {
        let volume = harness.open(&url("concat", &order, &[]));
        let read = harness.run(0, move |reactor| async move {
            let client = Client::open(&volume, &reactor, 2);
            (client.read(254, 8).await, client.read(771, 1).await)
        });
        assert_eq!(read, (Ok(data.clone()), Ok(vec![9; 4096])), "{order:?}");
    }
    // The second member has its four blocks behind its label.
    let second = harness.open("file:/1?size=1040k");
    let read = harness.run(0, move |reactor| async move {
        Client::open(&second, &reactor, 1).read(256, 4).await
    });
    assert_eq!(read, Ok(data[2 * 4096..6 * 4096].to_vec()));
}

#[test]
fn what_is_another_kind_of_set_or_not_all_of_one_is_refused_by_name() {
    let seed = seed("what_is_another_kind_of_set_or_not_all_of_one_is_refused_by_name");
    let harness = Harness::simulated(seed, DiskConfig::default(), 1);
    drop(harness.open(&url("concat", &[0, 1, 2], &[("create", "1")])));
    let refusal = |url: &str| match harness.try_open(url, Access::READ_WRITE) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    };
    let kind = refusal(&url("stripe", &[0, 1, 2], &[]));
    assert!(
        kind.contains("belongs to the concat") && kind.contains("concat: opens that"),
        "{kind}"
    );
    let anew = refusal(&url("stripe", &[0, 1], &[("create", "1")]));
    assert!(anew.contains("destroy_data=1"), "{anew}");
    let missing = refusal(&url("concat", &[0, 2], &[]));
    assert!(missing.contains("lacks member 1"), "{missing}");
    let chunk = refusal(&url("concat", &[0, 1, 2], &[("chunk", "64k")]));
    assert!(chunk.contains("chunk"), "{chunk}");
    drop(harness.open(&url("concat", &[2, 1, 0], &[])));
}
