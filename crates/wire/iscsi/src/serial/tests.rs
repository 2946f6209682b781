//! Tests of serial numbers around the wrap, and of the window of commands against a plain model.

use super::*;
use proptest::prelude::*;

#[test]
fn numbers_wrap_around() {
    let last = Serial(u32::MAX);
    assert_eq!(last.next(), Serial(0));
    assert_eq!(Serial(0).minus(1), last);
    assert!(last.is_before(Serial(0)));
    assert!(!Serial(0).is_before(last));
    assert!(!last.is_before(last));
    assert_eq!(Serial(2).since(last), 3);
    // RFC 1982 leaves it undefined; here neither comes first.
    let opposite = Serial(1 << 31);
    assert!(!Serial(0).is_before(opposite) && !opposite.is_before(Serial(0)));
}

#[test]
fn a_window_takes_what_is_in_it() {
    let mut window = CommandWindow::new(Serial(u32::MAX), 3);
    assert_eq!((window.maximum(), window.size()), (Serial(1), 3));
    assert_eq!(window.order(Serial(u32::MAX)), CommandOrder::Next);
    assert_eq!(window.order(Serial(0)), CommandOrder::Ahead { gap: 1 });
    assert_eq!(window.order(Serial(1)), CommandOrder::Ahead { gap: 2 });
    assert_eq!(window.order(Serial(2)), CommandOrder::Outside);
    assert_eq!(window.order(Serial(u32::MAX - 1)), CommandOrder::Duplicate);
    window.advance();
    assert_eq!(window.order(Serial(u32::MAX)), CommandOrder::Duplicate);
    assert_eq!((window.expected(), window.size()), (Serial(0), 2));
    window.open(3);
    assert_eq!(window.maximum(), Serial(2));
    window.open(0);
    assert_eq!(window.maximum(), Serial(2), "it does not go back");
}

#[test]
fn a_closed_window_takes_nothing() {
    let mut window = CommandWindow::new(Serial(7), 1);
    window.advance();
    assert_eq!((window.size(), window.maximum()), (0, Serial(7)));
    assert_eq!(window.order(Serial(8)), CommandOrder::Outside);
    assert_eq!(window.order(Serial(7)), CommandOrder::Duplicate);
}

#[test]
#[should_panic(expected = "the window is closed")]
fn advancing_a_closed_window_is_a_bug() {
    CommandWindow::new(Serial(7), 0).advance();
}

proptest! {
    /// The same order as in numbers that do not wrap, wherever the window begins.
    #[test]
    fn order_is_that_of_plain_numbers(start: u32, size in 0_u32..1000, offset in -2000_i64..2000) {
        let window = CommandWindow::new(Serial(start), size);
        let cmd_sn = Serial(start.wrapping_add(offset as u32));
        let expected = match offset {
            _ if offset >= i64::from(size) => CommandOrder::Outside,
            0 => CommandOrder::Next,
            1.. => CommandOrder::Ahead { gap: offset as u32 },
            _ => CommandOrder::Duplicate,
        };
        prop_assert_eq!(window.order(cmd_sn), expected);
    }
}
