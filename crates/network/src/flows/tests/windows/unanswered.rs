//! Commands without answers, and the commands behind them that report them.

use super::*;
use std::ops::Range;

/// Number of a command without an answer.
const UNANSWERED: u64 = u64::MAX;

/// Stores a value. Nothing answers.
fn put(at: u64, value: u64) -> Line {
    line(UNANSWERED, PUT, at, 0, value)
}

/// Sends commands that store the numbers of a range, in several records. Returns the refused ones.
fn send_numbers(node: &mut WindowNode, numbers: Range<u64>) -> u64 {
    let lines: Vec<Line> = numbers.map(|number| put(0, number)).collect();
    lines.chunks(400).map(|lines| node.send(1, lines)).sum()
}

/// A load of no bytes: all commands before have been executed when it is answered.
fn flush(number: u64) -> Line {
    line(number, GET, 0, 0, 0)
}

#[test]
fn a_flush_is_the_one_answer_to_all_commands_before() {
    let mut node = node();
    assert_eq!(node.send(1, &[put(0, 1), put(8, 2), put(0, 3)]), 0);
    assert_eq!(node.received(1), []);
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(3), "in their order");
    assert!(node.sleeps(), "nothing is left to do");
    assert_eq!(node.send(1, &[put(16, 4), flush(0), put(16, 5), flush(1)]), 0);
    assert_eq!(node.received(1), [answer(0, DONE), answer(1, DONE)]);
    assert_eq!(node.window.local().get_value::<u64>(16), Ok(5));
    // A command of two lines that arrive one after the other.
    assert_eq!(node.send(1, &[[UNANSWERED, 64, 0, 40, 0, 0, 0, 0]]), 0);
    assert_eq!(node.received(1), []);
    assert_eq!(node.send(1, &[[6; 8], flush(2)]), 0);
    assert_eq!(node.received(1), [answer(2, DONE)]);
    assert_eq!(node.window.local().get_value::<u64>(96), Ok(6));
}

#[test]
fn commands_without_answers_return_their_credit_and_need_none() {
    let mut node = node();
    let mut in_flight = 0;
    for number in 0..20 * SLOTS {
        assert_eq!(node.send(1, &[put(0, number)]), 0);
        in_flight += 1;
        for one in node.received_with_credit(1) {
            let Received::Credit(bytes) = one else { panic!("{one:?}") };
            in_flight -= bytes / LINE_BYTES as u64;
        }
        assert!(in_flight < SLOTS / 4, "a quarter is returned at once");
        assert_eq!(node.window.local().get_value::<u64>(0), Ok(number));
    }
    assert!(node.sleeps());
}

#[test]
fn commands_beyond_their_credit_end_the_link() {
    let mut node = node();
    assert_eq!(send_numbers(&mut node, 1..SLOTS + 1), 0, "as many as there is credit for");
    assert_eq!(node.send(1, &[put(0, 1)]), 1);
    assert!(is_end(&node.received(1)));
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(0));
    assert_eq!(node.send(2, &[put(0, 1), flush(0)]), 0, "the other rank goes on");
    assert_eq!(node.received(2), [answer(0, DONE)]);
}

#[test]
fn nothing_is_executed_behind_a_command_that_has_failed_without_an_answer() {
    let mut node = node();
    let failed = put(BYTES - 4, 1);
    assert_eq!(node.send(1, &[put(0, 1), failed, put(0, 2), line(0, PUT, 0, 0, 3)]), 0);
    assert_eq!(node.received(1), [answer(0, REFUSED)]);
    assert_eq!(node.send(1, &[put(0, 4), flush(1), line(2, AWAIT, 0, 1, 0), flush(3)]), 0);
    let expected = [1, 2, 3].map(|number| answer(number, REFUSED));
    assert_eq!(node.received(1), expected, "each flush reports it");
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(1));
    assert_eq!(node.send(2, &[put(0, 5), flush(0)]), 0, "the other rank goes on");
    assert_eq!(node.received(2), [answer(0, DONE)]);
}

/// The space of its answer bounds the cost of a load for the node service.
#[test]
fn a_load_or_a_wait_without_an_answer_ends_the_link() {
    for command in [line(UNANSWERED, AWAIT, 8, 1, 0), line(UNANSWERED, GET, 0, 8, 0)] {
        let mut node = node();
        assert_eq!(node.send(2, &[put(0, 5), command, put(0, 6), flush(1)]), 0);
        assert!(is_end(&node.received(2)));
        assert_eq!(node.window.local().get_value::<u64>(0), Ok(5));
        assert_eq!(node.send(1, &[put(0, 7), flush(0)]), 0, "the other rank goes on");
        assert_eq!(node.received(1), [answer(0, DONE)]);
    }
}

#[test]
fn commands_without_answers_come_from_the_nodes_of_their_ranks() {
    let mut node = node();
    let bytes: Vec<u8> = put(0, 9).iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut send = |from: u32, id: FlowId| node.receive(from, id, Content::Data(&bytes));
    assert_eq!([send(2, commands(1)), send(1, commands(4)), send(0, commands(0))], [1; 3]);
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(0));
    // Credit for answers that were never sent.
    assert_eq!(node.send(1, &[put(0, 1)]), 0);
    assert_eq!(node.release(1, 1), 1);
}

#[test]
fn a_window_that_is_withdrawn_ends_what_follows() {
    let mut node = node();
    assert_eq!(node.send(1, &[put(0, 1)]), 0);
    node.turn();
    // Commands that have arrived and were not executed are lost.
    assert_eq!(node.send(1, &[put(0, 2), flush(0)]), 0);
    node.flows.close_window(0, PORT);
    assert!(is_end(&node.received(1)));
    assert_eq!(node.window.local().get_value::<u64>(0), Ok(1));
    assert_eq!(node.send(1, &[put(0, 3), flush(1)]), 0);
    assert!(is_end(&node.received(1)));
    // One that is withdrawn before its node service knows.
    let mut node = self::node();
    assert_eq!(node.send(1, &[put(0, 1)]), 0);
    node.turn();
    let WindowNode { mut node, window } = node;
    drop(window);
    let lines: Vec<u8> =
        [put(0, 2), flush(0)].iter().flatten().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(node.receive(1, commands(1), Content::Data(&lines)), 0);
    node.turn();
    let frame = node.sent_to(1);
    let data = records(&frame).find_map(|(_, content)| match content {
        Content::Data(bytes) => Some(Received::answers(bytes)),
        _ => None,
    });
    assert_eq!(data, Some(vec![answer(0, WITHDRAWN)]));
}

#[test]
fn the_end_of_a_rank_follows_its_last_command() {
    for takes_answers in [false, true] {
        let mut node = node();
        assert_eq!(send_numbers(&mut node, 0..SLOTS), 0);
        if !takes_answers {
            assert_eq!(node.receive(1, answers(1), Content::ReceiverClosed), 0);
        }
        assert_eq!(node.receive(1, commands(1), Content::SenderClosed), 0);
        assert_eq!(node.window.local().get_value::<u64>(0), Ok(SLOTS - 1));
        assert_eq!(node.received(1), []);
        assert!(!node.flows.inbound.ends.contains(&commands(1)), "the flow has gone");
        assert!(node.sleeps());
    }
}
