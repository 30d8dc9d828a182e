//! Invalid events are refused, each with its own error, without an effect on the run.

mod borrowed_buffers;

use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::compile;
use goal::graph::{Access, Block, Graph, JoinMode};
use interpreter::{
    Effect, Event, EventError, Failure, Handle, Interpreter, Limits, Packet, StartError,
};
use proptest::prelude::*;
use std::sync::Arc;

fn interpreter(graph: &Graph, limits: Limits) -> Interpreter {
    Interpreter::new(Arc::new(compile(graph).expect("the graph is valid")), limits)
        .expect("it fits into memory")
}

fn started(graph: &Graph, limits: Limits) -> Interpreter {
    let buffers = graph.buffers().iter().map(|buffer| vec![0; buffer.length as usize]).collect();
    started_with(graph, limits, buffers)
}

fn started_with(graph: &Graph, limits: Limits, buffers: Vec<Vec<u8>>) -> Interpreter {
    let mut interpreter = interpreter(graph, limits);
    interpreter.start(buffers, 0).expect("the buffers are as declared");
    interpreter
}

fn effects(interpreter: &mut Interpreter) -> Vec<Effect> {
    std::iter::from_fn(|| interpreter.poll()).collect()
}

fn packet(source: u32, packet: Packet) -> Event {
    Event::Packet { source, packet }
}

fn eager(source: u32, tag: u32, ordinal: u32, payload: &[u8]) -> Event {
    packet(source, Packet::Eager { tag, ordinal, payload: payload.to_vec() })
}

const RENDEZVOUS: Limits =
    Limits { unexpected_bytes: 1000, unexpected_messages: 10, ..Limits::new(0) };

/// Rank 0 of 3 with one receive from rank 1 and one send to rank 2.
fn one_of_each() -> Graph {
    let mut graph = Graph::new(0, 3);
    let input = graph.buffer(Access::Input, 8);
    let output = graph.buffer(Access::Output, 8);
    graph.send(input, 2, 5);
    graph.receive(output, 1, 4);
    graph
}

#[test]
fn messages_without_a_receive_are_refused() {
    let mut interpreter = started(&one_of_each(), RENDEZVOUS);
    let refused = |interpreter: &mut Interpreter, event| {
        interpreter.handle(event, 0).expect_err("no such receive")
    };
    let none =
        |source_rank, tag, ordinal| EventError::NoReceive { rank: 0, source_rank, tag, ordinal };
    assert_eq!(refused(&mut interpreter, eager(2, 4, 0, &[1; 8])), none(2, 4, 0));
    assert_eq!(refused(&mut interpreter, eager(1, 5, 0, &[1; 8])), none(1, 5, 0));
    assert_eq!(refused(&mut interpreter, eager(1, 4, 1, &[1; 8])), none(1, 4, 1));
    let unknown = EventError::UnknownSource { source_rank: 3, ranks: 3 };
    assert_eq!(refused(&mut interpreter, eager(3, 4, 0, &[1; 8])), unknown);
    // The one message with a receive is accepted, once.
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[1; 8]), 0), Ok(()));
    let twice = EventError::Duplicate { source_rank: 1, tag: 4, ordinal: 0 };
    assert_eq!(refused(&mut interpreter, eager(1, 4, 0, &[2; 8])), twice);
}

#[test]
fn duplicate_unexpected_messages_are_refused() {
    let mut interpreter = interpreter(&one_of_each(), RENDEZVOUS);
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[1; 8]), 0), Ok(()));
    let request = Packet::RequestToSend { tag: 4, ordinal: 0, bytes: 8, send: Handle(0) };
    let twice = EventError::Duplicate { source_rank: 1, tag: 4, ordinal: 0 };
    assert_eq!(interpreter.handle(packet(1, request), 0), Err(twice));
}

#[test]
fn invalid_handles_and_peers_are_refused() {
    let mut interpreter = started(&one_of_each(), RENDEZVOUS);
    let [Effect::Transmit { peer: 2, packet: Packet::RequestToSend { send, bytes: 8, .. } }] =
        effects(&mut interpreter)[..]
    else {
        panic!("one request to send")
    };
    let request = |source, send| packet(source, Packet::ClearToSend { send, receive: Handle(7) });
    let receive = Handle(1 - send.0);
    let not_a_send = "a send that waits for clearance";
    let unknown =
        |operation, expected| Err(EventError::UnknownHandle { rank: 0, operation, expected });
    assert_eq!(interpreter.handle(request(2, Handle(9)), 0), unknown(9, not_a_send));
    assert_eq!(interpreter.handle(request(2, receive), 0), unknown(receive.0, not_a_send));
    let wrong = |operation, expected, found| {
        Err(EventError::WrongPeer { rank: 0, operation, expected, found })
    };
    assert_eq!(interpreter.handle(request(1, send), 0), wrong(send.0, 2, 1));
    assert_eq!(interpreter.handle(request(2, send), 0), Ok(()));
    let data = Packet::Data { receive: Handle(7), payload: vec![0; 8] };
    assert_eq!(effects(&mut interpreter), [Effect::Transmit { peer: 2, packet: data }]);
    assert_eq!(interpreter.handle(request(2, send), 0), unknown(send.0, not_a_send));

    let data = |source, length| packet(source, Packet::Data { receive, payload: vec![3; length] });
    assert_eq!(
        interpreter.handle(data(1, 8), 0),
        unknown(receive.0, "a receive that requested its payload")
    );
    let request = Packet::RequestToSend { tag: 4, ordinal: 0, bytes: 8, send: Handle(55) };
    assert_eq!(interpreter.handle(packet(1, request), 0), Ok(()));
    let request = Packet::ClearToSend { send: Handle(55), receive };
    assert_eq!(effects(&mut interpreter), [Effect::Transmit { peer: 1, packet: request }]);
    assert_eq!(interpreter.handle(data(2, 8), 0), wrong(receive.0, 1, 2));
    let short = EventError::Length { rank: 0, operation: receive.0, expected: 8, found: 7 };
    assert_eq!(interpreter.handle(data(1, 7), 0), Err(short));
    assert_eq!(interpreter.handle(data(1, 8), 0), Ok(()));
    assert_eq!(effects(&mut interpreter), [Effect::Completed(Ok(()))]);
    assert_eq!(interpreter.handle(data(1, 8), 0), Err(EventError::Over { rank: 0 }));
    assert_eq!(interpreter.reset(), [[0; 8], [3; 8]]);
}

#[test]
fn wildcard_receives_accept_payloads_from_their_sender_only() {
    let mut graph = Graph::new(0, 3);
    let output = graph.buffer(Access::Output, 8);
    graph.receive(output, None, 4);
    let mut interpreter = started(&graph, RENDEZVOUS);
    let request = Packet::RequestToSend { tag: 4, ordinal: 0, bytes: 8, send: Handle(0) };
    assert_eq!(interpreter.handle(packet(2, request), 0), Ok(()));
    let data = |source| packet(source, Packet::Data { receive: Handle(0), payload: vec![3; 8] });
    let wrong = EventError::WrongPeer { rank: 0, operation: 0, expected: 2, found: 1 };
    assert_eq!(interpreter.handle(data(1), 0), Err(wrong));
    assert_eq!(interpreter.handle(data(2), 0), Ok(()));
    assert!(interpreter.is_over());
}

#[test]
fn computations_and_joins_finish_once() {
    let mut graph = Graph::new(1, 2);
    let input = graph.buffer(Access::Input, 2);
    let output = graph.buffer(Access::Output, 4);
    let calc = graph.calc(17);
    let join = graph.join(JoinMode::Gather, input, output);
    graph.requires(join, calc);
    let mut interpreter = started(&graph, Limits::new(16 << 10));
    let calc = Handle(0);
    let join = Handle(1);
    assert_eq!(
        effects(&mut interpreter),
        [Effect::Calc { operation: calc, nanoseconds: 17, cpu: 0 }]
    );
    let joined = |length| Event::JoinFinished {
        operation: join,
        result: vec![1; length],
        divided_by_zero: None,
    };
    let unknown = |operation: Handle, expected| {
        Err(EventError::UnknownHandle { rank: 1, operation: operation.0, expected })
    };
    assert_eq!(interpreter.handle(joined(4), 0), unknown(join, "a join that was entered"));
    assert_eq!(interpreter.handle(Event::CalcFinished { operation: calc }, 0), Ok(()));
    let again = interpreter.handle(Event::CalcFinished { operation: calc }, 0);
    assert_eq!(again, unknown(calc, "a computation that has begun"));
    let entered = Effect::Join {
        operation: join,
        ordinal: 0,
        mode: JoinMode::Gather,
        contribution: vec![0; 2],
    };
    assert_eq!(effects(&mut interpreter), [entered]);
    let short = EventError::Length { rank: 1, operation: 1, expected: 4, found: 3 };
    assert_eq!(interpreter.handle(joined(3), 0), Err(short));
    assert_eq!(interpreter.handle(joined(4), 0), Ok(()));
    assert!(interpreter.is_over());
}

#[test]
fn a_length_mismatch_ends_the_run_and_names_both_ranks() {
    let mut graph = one_of_each();
    let time = graph.buffer(Access::Output, 8);
    let after = graph.timestamp(time);
    graph.requires(after, goal::graph::Vertex(1));
    let mut interpreter = started(&graph, Limits::new(16 << 10));
    effects(&mut interpreter);
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[9; 12]), 77), Ok(()));
    let failure = Failure::SizesDiffer {
        source_rank: 1,
        tag: 4,
        ordinal: 0,
        sent: 12,
        rank: 0,
        vertex: 1,
        expected: 8,
    };
    assert_eq!(
        failure.to_string(),
        "rank 1 sends 12 bytes to rank 0 (message 0 with tag 4), but rank 0, vertex 1, receives 8; \
         make both lengths equal"
    );
    assert_eq!(effects(&mut interpreter), [Effect::Completed(Err(failure))]);
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[9; 8]), 0), Err(EventError::Over { rank: 0 }));
    assert_eq!(interpreter.reset(), [[0; 8], [0; 8], [0; 8]], "nothing was written");
}

#[test]
fn the_first_division_by_zero_is_reported() {
    let mut graph = Graph::new(0, 1);
    let left = graph.buffer(Access::Input, 3);
    let right = graph.buffer(Access::Input, 3);
    let result = graph.buffer(Access::Output, 3);
    graph.calc(0);
    let list = |block: Block| [block.part(0, 1), block.part(1, 2)];
    graph.local(Arithmetic::Divide, DataType::U8, list(left), list(right), result);
    let mut interpreter = interpreter(&graph, Limits::new(16 << 10));
    interpreter.start(vec![vec![9, 9, 9], vec![1, 3, 0], vec![5; 3]], 0).expect("the buffers fit");
    assert_eq!(interpreter.handle(Event::CalcFinished { operation: Handle(0) }, 0), Ok(()));
    let failure = Failure::DivisionByZero {
        rank: 0,
        vertex: 1,
        operation: Arithmetic::Divide,
        data_type: DataType::U8,
        element: 2,
    };
    assert_eq!(effects(&mut interpreter).last(), Some(&Effect::Completed(Err(failure))));
    assert_eq!(interpreter.reset()[2], [9, 3, 0]);
    // A second division by zero follows the first one and is not reported.
    let again = graph.buffer(Access::Output, 3);
    let second = graph.local(Arithmetic::Divide, DataType::U8, left, right, again);
    graph.requires(second, goal::graph::Vertex(1));
    let mut interpreter = self::interpreter(&graph, Limits::new(16 << 10));
    interpreter
        .start(vec![vec![9; 3], vec![1, 0, 0], vec![5; 3], vec![5; 3]], 0)
        .expect("the buffers fit");
    assert_eq!(interpreter.handle(Event::CalcFinished { operation: Handle(0) }, 0), Ok(()));
    let Some(Effect::Completed(Err(Failure::DivisionByZero { vertex, element, .. }))) =
        effects(&mut interpreter).pop()
    else {
        panic!("the run completes with a failure")
    };
    assert_eq!((vertex, element), (1, 1));
}

#[test]
fn buffers_must_be_as_declared() {
    let mut interpreter = interpreter(&one_of_each(), Limits::new(16 << 10));
    let count = StartError::BufferCount { expected: 2, found: 1 };
    assert_eq!(interpreter.start(vec![vec![0; 8]], 0), Err(count));
    let length = StartError::BufferLength { buffer: 1, expected: 8, found: 9 };
    assert_eq!(interpreter.start(vec![vec![0; 8], vec![0; 9]], 0), Err(length));
    assert_eq!(interpreter.start(vec![vec![0; 8], vec![0; 8]], 0), Ok(()));
    assert_eq!(interpreter.start(vec![vec![0; 8], vec![0; 8]], 0), Err(StartError::Started));
}

#[test]
fn reset_discards_the_run() {
    let mut interpreter = started(&one_of_each(), RENDEZVOUS);
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[1; 8]), 0), Ok(()));
    let waiting: Vec<_> =
        interpreter.outstanding().map(|operation| (operation.vertex, operation.peer)).collect();
    assert_eq!(waiting, [(0, Some(2))], "the send that waits");
    assert_eq!(interpreter.reset(), [[0; 8], [1; 8]]);
    assert_eq!(interpreter.poll(), None);
    assert_eq!(interpreter.reset(), Vec::<Vec<u8>>::new());
    // Messages of a discarded run do not reach the next run.
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[9; 8]), 0), Ok(()));
    interpreter.reset();
    interpreter.start(vec![vec![0; 8], vec![0; 8]], 0).expect("the buffers are as declared");
    assert_eq!(interpreter.outstanding().count(), 2, "the send and the receive");
    assert_eq!(interpreter.reset(), [[0; 8], [0; 8]]);
    // The same message of the next run arrives before it starts.
    assert_eq!(interpreter.handle(eager(1, 4, 0, &[2; 8]), 0), Ok(()));
    interpreter.start(vec![vec![0; 8], vec![0; 8]], 0).expect("the buffers are as declared");
    assert_eq!(interpreter.reset(), [[0; 8], [2; 8]]);
}

/// A run reset before its end leaves no message, no failure and no memory in use.
#[test]
fn reset_of_a_partial_run_discards_everything() {
    let mut graph = Graph::new(0, 2);
    let values = graph.buffer(Access::InOut, 3);
    let output = graph.buffer(Access::Output, 2);
    let waits = graph.calc(1);
    let first = graph.receive(output.part(0, 1), 1, 0);
    graph.receive(output.part(1, 1), None, 1);
    graph.requires(first, waits);
    graph.local(
        Arithmetic::Divide,
        DataType::U8,
        values.part(0, 1),
        values.part(1, 1),
        values.part(2, 1),
    );
    let limits = Limits { unexpected_bytes: 1, ..Limits::new(16 << 10) };
    let mut interpreter = interpreter(&graph, limits);
    for value in [1, 2] {
        // The divisor is zero in the first run only.
        interpreter
            .start(vec![vec![8, value - 1, 0], vec![0; 2]], 0)
            .expect("the buffers are as declared");
        let [Effect::Calc { operation, .. }] = effects(&mut interpreter)[..] else {
            panic!("a computation begins")
        };
        assert_eq!(interpreter.handle(eager(1, 0, 0, &[value]), 0), Ok(()));
        assert_eq!(effects(&mut interpreter), [], "there is memory for one byte");
        if value == 2 {
            assert_eq!(interpreter.handle(Event::CalcFinished { operation }, 0), Ok(()));
            assert_eq!(interpreter.handle(eager(1, 1, 0, &[9]), 0), Ok(()));
            assert_eq!(effects(&mut interpreter), [Effect::Completed(Ok(()))]);
            assert_eq!(interpreter.reset(), [vec![8, 1, 8], vec![2, 9]]);
        } else {
            interpreter.reset();
            // The message does not count as a duplicate either.
            assert_eq!(interpreter.handle(eager(1, 0, 0, &[value]), 0), Ok(()));
            interpreter.reset();
        }
    }
}

#[test]
fn the_eager_limit_is_the_longest_eager_message() {
    let mut graph = Graph::new(0, 2);
    let input = graph.buffer(Access::Input, 9);
    graph.send(input.part(0, 8), 1, 0);
    graph.send(input.part(0, 9), 1, 1);
    let mut interpreter = started(&graph, Limits { eager_limit: 8, ..Limits::new(16 << 10) });
    let packets: Vec<Effect> = effects(&mut interpreter);
    let eager = Packet::Eager { tag: 0, ordinal: 0, payload: vec![0; 8] };
    let request = Packet::RequestToSend { tag: 1, ordinal: 0, bytes: 9, send: Handle(1) };
    assert_eq!(packets, [eager, request].map(|packet| Effect::Transmit { peer: 1, packet }));
}

#[test]
fn runs_do_not_share_scratchpad_contents() {
    let mut graph = Graph::new(0, 1);
    let input = graph.buffer(Access::Input, 8);
    let output = graph.buffer(Access::Output, 16);
    let scratchpad = graph.scratchpad(16);
    let read = graph.copy(scratchpad, output);
    let write = graph.copy(input, scratchpad.part(8, 8));
    graph.requires(write, read);
    let mut interpreter = interpreter(&graph, Limits::new(16 << 10));
    for _ in 0..2 {
        interpreter.start(vec![vec![7; 8], vec![5; 16]], 0).expect("the buffers are as declared");
        assert_eq!(interpreter.reset(), [vec![7; 8], vec![0; 16]]);
    }
}

#[test]
fn a_scratchpad_larger_than_memory_is_refused() {
    let mut graph = Graph::new(0, 1);
    graph.scratchpad(1 << 62);
    let schedule = Arc::new(compile(&graph).expect("the graph is valid"));
    let error =
        Interpreter::new(schedule, Limits::new(16 << 10)).expect_err("there is not so much memory");
    assert_eq!(error, interpreter::ScheduleRefused::Scratchpad { bytes: 1 << 62 });
}

#[test]
fn wildcard_receives_bound_the_messages_accepted() {
    let mut graph = Graph::new(0, 3);
    let output = graph.buffer(Access::Output, 2);
    graph.receive(output.part(0, 1), None, 4);
    graph.receive(output.part(1, 1), 1, None);
    let mut interpreter = interpreter(&graph, Limits::new(16 << 10));
    let none = |source_rank, tag, ordinal| {
        Err(EventError::NoReceive { rank: 0, source_rank, tag, ordinal })
    };
    assert_eq!(interpreter.handle(eager(2, 5, 0, &[1]), 0), none(2, 5, 0), "of no class");
    assert_eq!(interpreter.handle(eager(2, 4, 0, &[1]), 0), Ok(()));
    assert_eq!(interpreter.handle(eager(2, 4, 0, &[1]), 0), {
        Err(EventError::Duplicate { source_rank: 2, tag: 4, ordinal: 0 })
    });
    assert_eq!(interpreter.handle(eager(1, 5, 0, &[1]), 0), Ok(()));
    assert_eq!(
        interpreter.handle(eager(1, 4, 0, &[1]), 0),
        none(1, 4, 0),
        "two receives, two messages"
    );
}

/// Any event, with small numbers, so that many are nearly valid.
fn any_event() -> impl Strategy<Value = Event> {
    let payload = || proptest::collection::vec(any::<u8>(), 0..200);
    let handle = || (0..12u32).prop_map(Handle);
    let packets = prop_oneof![
        4 => (0..4u32, 0..4u32, payload()).prop_map(|(tag, ordinal, payload)| {
            Packet::Eager { tag, ordinal, payload }
        }),
        4 => (0..4u32, 0..4u32, 0..200u64, handle())
            .prop_map(|(tag, ordinal, bytes, send)| Packet::RequestToSend { tag, ordinal, bytes, send }),
        2 => (handle(), handle()).prop_map(|(send, receive)| Packet::ClearToSend { send, receive }),
        2 => (handle(), payload()).prop_map(|(receive, payload)| Packet::Data { receive, payload }),
    ];
    prop_oneof![
        8 => (0..7u32, packets).prop_map(|(source, packet)| Event::Packet { source, packet }),
        1 => handle().prop_map(|operation| Event::CalcFinished { operation }),
        1 => (handle(), payload()).prop_map(|(operation, result)| Event::JoinFinished {
            operation,
            result,
            divided_by_zero: None,
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_event_panics(
        plan in testing::conformance::random::any_plans(),
        events in proptest::collection::vec(any_event(), 0..60),
        start in 0..60usize,
        eager_limit in 0..100u64,
    ) {
        let program = testing::conformance::random::lay_out(&plan);
        let limits = Limits { unexpected_bytes: 150, unexpected_messages: 3, ..Limits::new(eager_limit) };
        let mut interpreter = interpreter(&program.graphs[0], limits);
        for (number, event) in events.into_iter().enumerate() {
            if number == start {
                prop_assert_eq!(interpreter.start(program.inputs[0][0].clone(), 0), Ok(()));
            }
            let before = format!("{interpreter:?}");
            if interpreter.handle(event, 1).is_err() {
                prop_assert_eq!(before, format!("{interpreter:?}"), "a refused event changed something");
            }
        }
    }
}
