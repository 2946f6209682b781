//! Buffers keep their contents, come back to their pool, and never pass its bound.

use proptest::prelude::*;

use super::*;

#[test]
fn a_segment_is_aligned_and_its_bytes_survive_freezing() {
    let pool = Pool::new(1 << 20);
    for length in [1, 512, 4096, 4097, 65536] {
        let mut segment = pool.segment(length).unwrap();
        assert_eq!(segment.as_mut_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(segment.len(), length);
        segment.fill(7);
        let view = segment.freeze();
        assert!(view.iter().all(|&byte| byte == 7));
        assert_eq!(view.len(), length);
    }
}

#[test]
fn a_buffer_returns_with_its_last_view() {
    let pool = Pool::new(1 << 20);
    let view = pool.segment(8192).unwrap().freeze();
    let part = view.slice(100..200);
    drop(view);
    assert_eq!(pool.usage().used_bytes, 8192);
    drop(part);
    assert_eq!(pool.usage().used_bytes, 0);
}

#[test]
fn a_view_becomes_a_segment_again_only_when_it_is_the_last() {
    let view = View::copy_of(b"hello world");
    let other = view.slice(6..11);
    let view = view.try_into_segment().unwrap_err();
    drop(view);
    let mut segment = other.try_into_segment().unwrap();
    assert_eq!(&*segment, b"world");
    segment[0] = b'W';
    assert_eq!(&*segment.freeze(), b"World");
    assert!(View::from_static(b"x").try_into_segment().is_err());
}

#[test]
fn buffers_outlive_the_handle_of_their_pool() {
    let pool = Pool::new(1 << 20);
    let mut segment = pool.segment(4096).unwrap();
    drop(pool);
    segment.fill(1);
    assert_eq!(
        segment.iter().map(|&byte| u32::from(byte)).sum::<u32>(),
        4096
    );
}

#[test]
fn the_bound_refuses_and_trim_makes_room_for_another_class() {
    let pool = Pool::new(512 * 1024);
    let big: Vec<_> = (0..2).map(|_| pool.segment(256 * 1024).unwrap()).collect();
    assert_eq!(
        pool.segment(1).unwrap_err(),
        Exhausted {
            limit_bytes: 512 * 1024
        }
    );
    drop(big);
    let small: Vec<_> = (0..128).map(|_| pool.segment(4096).unwrap()).collect();
    assert!(pool.segment(4096).is_err());
    drop(small);
    pool.trim();
    assert_eq!(
        pool.usage(),
        PoolUse {
            used_bytes: 0,
            held_bytes: 0,
            limit_bytes: 512 * 1024
        }
    );
}

#[test]
fn zeroes_have_any_length() {
    for length in [0, 1, 4096, 128 * 1024, 1 << 20, (1 << 20) + 5] {
        let views: Views = View::zeroes(length).collect();
        assert_eq!(views_len(&views), length);
        assert!(views.iter().all(|view| view.iter().all(|&byte| byte == 0)));
    }
}

#[test]
fn a_shared_buffer_is_read_on_another_thread() {
    let buffer = SharedBuffer::new(4096, |bytes| bytes.fill(9));
    let there = std::sync::Arc::clone(&buffer);
    let sum = std::thread::spawn(move || {
        there
            .view()
            .iter()
            .map(|&byte| u64::from(byte))
            .sum::<u64>()
    });
    assert_eq!(sum.join().unwrap(), 9 * 4096);
    assert_eq!(buffer.view().slice(1..3).len(), 2);
}

#[test]
fn a_shared_buffer_is_written_again_once_nobody_looks_at_it() {
    let mut buffer = SharedBuffer::new(4096, |bytes| bytes.fill(9));
    let view = buffer.view().slice(1..3);
    assert!(std::sync::Arc::get_mut(&mut buffer).is_none());
    drop(view);
    let bytes = std::sync::Arc::get_mut(&mut buffer).expect("nobody else has it");
    bytes[1] = 7;
    assert_eq!(buffer.view()[..3], [9, 7, 9]);
}

#[test]
fn a_pool_keeps_the_room_of_lists() {
    let pool = Pool::new(1 << 20);
    assert!(!pool.list(2).spilled());
    let mut list = pool.list(32);
    list.extend(std::iter::repeat_n(View::from_static(b"a"), 32));
    let room = list.as_ptr();
    pool.keep_list(list);
    let list = pool.list(20);
    assert!(list.is_empty() && list.capacity() == 32);
    assert_eq!(list.as_ptr(), room);
    let longer = pool.list(33);
    assert!(longer.capacity() >= 33);
    pool.keep_list(list);
    pool.trim();
    assert_eq!(pool.list(3).capacity(), 3);
}

#[test]
fn a_view_that_was_used_up_keeps_no_buffer() {
    let pool = Pool::new(1 << 20);
    let mut view = pool.segment(100).expect("there is room").freeze();
    let head = view.split_to(40);
    view.advance(59);
    assert_eq!((head.len(), view.len()), (40, 1));
    assert_eq!(head.as_ptr().wrapping_add(99), view.as_ptr());
    drop(head);
    assert_eq!(pool.usage().used_bytes, 4096);
    view.advance(1);
    assert!(view.is_empty());
    assert_eq!(pool.usage().used_bytes, 0);
    let mut view = pool.segment(100).expect("there is room").freeze();
    let all = view.split_to(100);
    assert!(view.is_empty() && all.try_into_segment().is_ok());
}

#[test]
fn a_gather_keeps_order_and_joins_adjacent_headers() {
    let mut gather = Gather::new();
    gather.push_header(b"ab");
    gather.push_header(b"cd");
    gather.push_view(View::from_static(b"data"));
    gather.push_view(View::empty());
    gather.push_header(b"ef");
    let bytes: Vec<u8> = gather.slices().flatten().copied().collect();
    assert_eq!(bytes, b"abcddataef");
    assert_eq!((gather.len(), gather.slice_count()), (10, 3));
    gather.clear();
    assert!(gather.is_empty());
}

/// Looks at both ends and at samples between: buffers that overlap do so by whole pages.
fn holds_only(view: &View, stamp: u8) -> bool {
    view.iter()
        .step_by(509)
        .chain(view.last())
        .all(|&byte| byte == stamp)
}

#[derive(Debug, Clone)]
enum Step {
    Take(usize),
    Share(usize),
    Drop(usize),
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1usize..300_000).prop_map(Step::Take),
        2 => any::<usize>().prop_map(Step::Share),
        4 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Every live view keeps the stamp that its buffer was given, so no buffer is handed out twice; the bound holds.
    #[test]
    fn live_buffers_never_overlap(steps in prop::collection::vec(step(), 1..200)) {
        let pool = Pool::new(2 << 20);
        let mut live: Vec<(View, u8)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let stamp = number as u8;
            match step {
                Step::Take(length) => if let Ok(mut segment) = pool.segment(length) {
                    segment.fill(stamp);
                    live.push((segment.freeze(), stamp));
                },
                Step::Share(at) if !live.is_empty() => {
                    let (view, stamp) = &live[at % live.len()];
                    let part = view.slice(view.len() / 2..view.len());
                    let stamp = *stamp;
                    live.push((part, stamp));
                }
                Step::Drop(at) if !live.is_empty() => { live.swap_remove(at % live.len()); }
                Step::Trim => pool.trim(),
                _ => {}
            }
            prop_assert!(live.iter().all(|(view, stamp)| holds_only(view, *stamp)));
            let usage = pool.usage();
            prop_assert!(usage.used_bytes <= usage.held_bytes && usage.held_bytes <= usage.limit_bytes);
        }
        drop(live);
        pool.trim();
        prop_assert_eq!(pool.usage().held_bytes, 0);
    }
}
