//! Commands that no honest node sends, and those on a window that is withdrawn.

use super::*;

/// Commands wait behind one that waits for a value, and for the next turn.
#[test]
fn commands_beyond_their_credit_end_those_before_them() {
    let mut node = node();
    let mut lines = vec![line(0, AWAIT, 8, 1, 0)];
    lines.extend((1..SLOTS).map(|number| line(number, PUT, 0, 0, 5)));
    for lines in lines.chunks(400) {
        assert_eq!(node.send(1, lines), 0, "there is credit for all");
    }
    assert_eq!(node.send(1, &[line(SLOTS, PUT, 0, 0, 5)]), 1);
    assert!(is_end(&node.received(1)));
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(0), "none was executed");
}

#[test]
fn part_of_a_command_keeps_the_node_service_from_no_sleep() {
    let mut node = node();
    assert_eq!(node.send(1, &[[3, 64, 0, 40, 0, 0, 0, 0]]), 0);
    assert_eq!(node.received(1), []);
    assert!(node.sleeps());
    assert_eq!(node.flows.inbound.ends.active(), 0, "its rest arrives as a record");
}

#[test]
fn a_window_that_its_owner_withdraws_first_says_so() {
    let mut node = node();
    node.window = Window::create(&node.arena, 8).expect("memory");
    assert_eq!(node.send(1, &[line(0, PUT, 0, 0, 1)]), 0);
    assert_eq!(node.received(1), [answer(0, WITHDRAWN)]);
}
