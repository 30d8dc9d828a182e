//! Runs on buffers that their owner keeps, and messages that stay in them.

use super::{eager, effects, interpreter, one_of_each, started_with};
use crate::external_buffer::SharedBuffer;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Graph};
use interpreter::{Effect, Event, Failure, Incoming, Limits, Outgoing, Packet, StartError};
use std::sync::{Arc, Mutex};

#[test]
fn borrowed_buffers_are_used_in_place() {
    let mut graph = one_of_each();
    graph.buffer(Access::Output, 4);
    let mut interpreter = interpreter(&graph, Limits::new(16 << 10));
    let elsewhere = |bytes: &[u8]| SharedBuffer(Arc::new(Mutex::new(bytes.to_vec())));
    let [input, output] = [elsewhere(b"eastward"), elsewhere(&[0; 8])];
    for buffer in [3, usize::MAX] {
        let refused = interpreter.borrow_buffer(buffer, Box::new(elsewhere(&[0; 4])));
        assert_eq!(refused, Err(StartError::NotBorrowable { buffer }), "it does not exist");
    }
    let length = StartError::BufferLength { buffer: 1, expected: 8, found: 7 };
    assert_eq!(interpreter.borrow_buffer(1, Box::new(elsewhere(&[0; 7]))), Err(length));
    for (number, buffer) in [(0, &input), (1, &output)] {
        interpreter
            .borrow_buffer(number, Box::new(buffer.clone()))
            .expect("only messages touch it");
    }
    let twice = StartError::BufferLength { buffer: 0, expected: 0, found: 8 };
    assert_eq!(
        interpreter.start(vec![vec![0; 8], vec![0; 8], vec![0; 4]], 0),
        Err(twice),
        "it is borrowed"
    );
    assert_eq!(interpreter.reset(), Vec::<Vec<u8>>::new(), "the borrow has ended");

    for (number, buffer) in [(0, &input), (1, &output)] {
        interpreter
            .borrow_buffer(number, Box::new(buffer.clone()))
            .expect("only messages touch it");
    }
    interpreter.start(vec![vec![], vec![], vec![0; 4]], 0).expect("two are borrowed");
    let sent = Packet::Eager { tag: 5, ordinal: 0, payload: b"eastward".to_vec() };
    assert_eq!(effects(&mut interpreter), [Effect::Transmit { peer: 2, packet: sent }]);
    interpreter.handle(eager(1, 4, 0, b"westward"), 0).expect("it is waited for");
    assert_eq!(output.bytes().as_slice(), b"westward");
    assert_eq!(interpreter.reset(), [vec![], vec![], vec![0; 4]]);
    assert_eq!(input.bytes().as_slice(), b"eastward");
    interpreter.start(vec![vec![0; 8], vec![0; 8], vec![0; 4]], 0).expect("no buffer is borrowed");
}

#[test]
fn long_copies_between_borrowed_buffers_are_complete() {
    const BYTES: u64 = 40_001;
    let mut graph = Graph::new(0, 1);
    let input = graph.buffer(Access::Input, BYTES);
    let output = graph.buffer(Access::InOut, BYTES + 7);
    let own = graph.buffer(Access::Output, BYTES);
    let first = graph.copy(input, output.part(7, BYTES));
    let second = graph.copy(output.part(3, BYTES), own);
    graph.requires(second, first);
    let mut interpreter = interpreter(&graph, Limits::new(16 << 10));
    let given: Vec<u8> = (0..BYTES).map(|byte| (byte % 251) as u8).collect();
    let input = SharedBuffer(Arc::new(Mutex::new(given.clone())));
    let output = SharedBuffer(Arc::new(Mutex::new(vec![255; BYTES as usize + 7])));
    for (number, buffer) in [(0, &input), (1, &output)] {
        interpreter.borrow_buffer(number, Box::new(buffer.clone())).expect("only copies touch it");
    }
    interpreter.start(vec![vec![], vec![], vec![0; BYTES as usize]], 0).expect("two are borrowed");
    let own = interpreter.reset().remove(2);
    assert_eq!(own[..4], [255; 4]);
    assert_eq!(own[4..], given[..BYTES as usize - 4]);
    assert_eq!(output.bytes()[7..], given);
}

/// A message in place needs its owner's report at both ends, and its memory only until then.
#[test]
fn messages_in_place_complete_when_their_owner_reports_it() {
    let mut graph = Graph::new(0, 2);
    let input = graph.buffer(Access::Input, 8);
    let output = graph.buffer(Access::Output, 8);
    graph.send(input, 1, 5);
    graph.receive(output, 1, 6);
    let limits = Limits::new(100).with_in_place(8);
    let mut interpreter = started_with(&graph, limits, vec![b"eastward".to_vec(), vec![0; 8]]);
    let packet = Packet::Eager { tag: 5, ordinal: 0, payload: Vec::new() };
    let [Effect::TransmitInPlace { peer: 1, packet: sent, send, bytes: 8 }] =
        &effects(&mut interpreter)[..]
    else {
        panic!("the message is long enough");
    };
    assert_eq!(*sent, packet);
    assert_eq!(interpreter.outgoing(*send), Some(Outgoing::Own(b"eastward")));
    let arriving = Packet::Eager { tag: 6, ordinal: 0, payload: Vec::new() };
    assert_eq!(interpreter.admit(1, &arriving, 7), None, "another length");
    assert_eq!(interpreter.admit(1, &packet, 8), None, "another tag");
    let receive = interpreter.admit(1, &arriving, 8).expect("the receive is posted");
    assert_eq!(interpreter.admit(1, &arriving, 8), None, "it is admitted already");
    let on_its_way: Vec<bool> =
        interpreter.outstanding().map(|operation| operation.is_on_its_way).collect();
    assert_eq!(on_its_way.iter().filter(|sent| **sent).count(), 1);
    let Some(Incoming::Own(place)) = interpreter.incoming(receive) else {
        panic!("no buffer is borrowed");
    };
    place.copy_from_slice(b"westward");
    interpreter.handle(Event::Received { receive }, 0).expect("it was admitted");
    assert!(interpreter.incoming(receive).is_none() && !interpreter.is_over());
    interpreter.handle(Event::Sent { send: *send }, 0).expect("it is being sent");
    assert!(interpreter.outgoing(*send).is_none() && interpreter.is_over());
    assert_eq!(interpreter.reset(), [b"eastward", b"westward"]);
}

/// Divisions report the element of the whole operation, not of a piece.
#[test]
fn operations_compute_on_borrowed_buffers() {
    const ELEMENTS: usize = 10_001;
    let bytes = 8 * ELEMENTS as u64;
    let mut graph = Graph::new(0, 1);
    let input = graph.buffer(Access::Input, bytes);
    let output = graph.buffer(Access::InOut, bytes);
    graph.local(Arithmetic::Divide, DataType::U64, output, input, output);
    let mut interpreter = interpreter(&graph, Limits::new(100));
    let words = |word: &dyn Fn(usize) -> u64| {
        let bytes = (0..ELEMENTS).flat_map(|element| word(element).to_le_bytes()).collect();
        SharedBuffer(Arc::new(Mutex::new(bytes)))
    };
    let divisors = words(&|element| u64::from(element != 9000) * 3);
    let dividends = words(&|element| 3 * element as u64);
    for (number, buffer) in [(0, &divisors), (1, &dividends)] {
        interpreter.borrow_buffer(number, Box::new(buffer.clone())).expect("it exists");
    }
    interpreter.start(vec![vec![], vec![]], 0).expect("both are borrowed");
    let [Effect::Completed(Err(Failure::DivisionByZero { element: 9000, .. }))] =
        &effects(&mut interpreter)[..]
    else {
        panic!("one element is divided by zero");
    };
    let expected = words(&|element| if element == 9000 { 0 } else { element as u64 });
    assert_eq!(*dividends.bytes(), *expected.bytes());
}
