//! Receives from any source or of any tag with one outcome, or a known set of possible outcomes.

use super::build::{blank, chain, checked, exact, number, parts, pattern, world};
use crate::conformance::engine::Round;
use crate::conformance::vector::Vector;
use goal::graph::{Access, Blocks, Graph, Vertex};

pub(super) fn vectors() -> Vec<Vector> {
    vec![
        leftover_after_names(),
        any_source(8),
        any_source(40_000),
        any_tag(),
        any_message(),
        first_posted_in_vertex_order(),
        unexpected_self_sends(),
        classes_side_by_side(),
        unexpected_then_posted(),
    ]
}

fn word(value: u64) -> Vec<u8> {
    value.to_le_bytes().to_vec()
}

/// Receives that name their sender claim the first messages in vertex order; the wildcard matches
/// the remaining one, even if that arrives first.
fn leftover_after_names() -> Vector {
    let mut program = world(2);
    let input = program[1].buffer(Access::Input, 24);
    let sends: Vec<_> =
        parts(input, 3).into_iter().map(|part| program[1].send(part, 0, 4)).collect();
    program[1].irequires(sends[1], sends[2]);
    program[1].irequires(sends[0], sends[1]);
    let output = program[0].buffer(Access::Output, 24);
    let [wild, first, second] = [0, 1, 2].map(|index| parts(output, 3)[index]);
    program[0].receive(wild, None, 4);
    program[0].receive(first, 1, 4);
    program[0].receive(second, 1, 4);
    exact("wildcards: what named receives leave", program, |round| {
        let bytes = pattern(24, round);
        let result = [&bytes[16..], &bytes[..16]].concat();
        (vec![vec![blank(24)], vec![bytes.clone()]], vec![vec![result], vec![bytes]])
    })
}

/// Three ranks send four messages each to rank 0, which receives from any source.
fn any_source(length: u64) -> Vector {
    const RANKS: u32 = 4;
    const EACH: u64 = 4;
    let mut program = world(RANKS);
    let count = u64::from(RANKS - 1) * EACH;
    let output = program[0].buffer(Access::Output, count * length);
    for part in parts(output, count) {
        program[0].receive(part, None, 7);
    }
    for graph in &mut program[1..] {
        let input = graph.buffer(Access::Input, EACH * length);
        for part in parts(input, EACH) {
            graph.send(part, 0, 7);
        }
    }
    let input = move |round: u64, rank: u32| {
        pattern((EACH * length) as usize, 10 * round + u64::from(rank))
    };
    let inputs = move |round| {
        let senders = (1..RANKS).map(move |rank| vec![input(round, rank)]);
        std::iter::once(vec![blank((count * length) as usize)]).chain(senders).collect::<Round>()
    };
    checked(
        format!("wildcards: any source, {length} bytes"),
        program,
        inputs,
        move |round, buffers| {
            let sent = (1..RANKS).flat_map(|rank| chunks(&input(round, rank), length)).collect();
            same_set(sent, chunks(&buffers[0][0], length))
        },
    )
}

/// One rank sends with five tags; the other receives any tag.
fn any_tag() -> Vector {
    let mut program = world(2);
    let output = program[0].buffer(Access::Output, 40);
    for part in parts(output, 5) {
        program[0].receive(part, 1, None);
    }
    let input = program[1].buffer(Access::Input, 40);
    for (tag, part) in (0..).zip(parts(input, 5)) {
        program[1].send(part, 0, tag);
    }
    let inputs = |round| vec![vec![blank(40)], vec![pattern(40, round)]];
    checked("wildcards: any tag", program, inputs, |round, buffers| {
        same_set(chunks(&pattern(40, round), 8), chunks(&buffers[0][0], 8))
    })
}

/// Messages with different tags from different ranks, the receiver itself included.
fn any_message() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    let output = program[0].buffer(Access::Output, 48);
    for part in parts(output, 6) {
        program[0].receive(part, None, None);
    }
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 16);
        graph.send(input.part(0, 8), 0, rank);
        graph.send(input.part(8, 8), 0, 100 - rank);
    }
    let input = |round: u64, rank: u64| pattern(16, 10 * round + rank);
    let inputs = move |round| {
        vec![vec![blank(48), input(round, 0)], vec![input(round, 1)], vec![input(round, 2)]]
    };
    checked("wildcards: any source and any tag", program, inputs, move |round, buffers| {
        let sent = (0..3).flat_map(|rank| chunks(&input(round, rank), 8)).collect();
        same_set(sent, chunks(&buffers[0][0], 8))
    })
}

/// Three receives are posted before rank 1 sends one message after the other: they match in vertex
/// order, independent of the order in which they were posted.
fn first_posted_in_vertex_order() -> Vector {
    let mut program = world(2);
    let output = program[0].buffer(Access::Output, 24);
    let slots = parts(output, 3);
    let receives = [(None, Some(0)), (Some(1), None), (None, None)]
        .into_iter()
        .zip(&slots)
        .map(|((source, tag), slot)| program[0].receive(*slot, source, tag))
        .collect::<Vec<_>>();
    let go = program[0].send(Blocks::none(), 1, 9);
    program[0].irequires(receives[1], receives[2]);
    program[0].irequires(receives[0], receives[1]);
    receives.iter().for_each(|receive| program[0].irequires(go, *receive));
    for (tag, receive) in (10..).zip(&receives) {
        let acknowledgement = program[0].send(Blocks::none(), 1, tag);
        program[0].requires(acknowledgement, *receive);
    }
    let input = program[1].buffer(Access::Input, 24);
    let mut vertices = vec![program[1].receive(Blocks::none(), 0, 9)];
    for (tag, part) in (10..).zip(parts(input, 3)) {
        vertices.push(program[1].send(part, 0, 0));
        vertices.push(program[1].receive(Blocks::none(), 0, tag));
    }
    chain(&mut program[1], &vertices);
    exact("wildcards: the first posted in vertex order", program, |round| {
        let bytes = pattern(24, round);
        (vec![vec![blank(24)], vec![bytes.clone()]], vec![vec![bytes.clone()], vec![bytes]])
    })
}

/// Messages of a rank to itself, sent before any receive is posted where they are eager.
fn unexpected_self_sends() -> Vector {
    let mut program = world(1);
    let graph: &mut Graph = &mut program[0];
    let input = graph.buffer(Access::Input, 24);
    let output = graph.buffer(Access::Output, 24);
    for (tag, part) in (0..).zip(parts(input, 3)) {
        graph.send(part, 0, tag);
    }
    for part in parts(output, 3) {
        let receive = graph.receive(part, 0, None);
        (0..3).for_each(|send| graph.irequires(receive, Vertex(send)));
    }
    let inputs = |round| vec![vec![pattern(24, round), blank(24)]];
    checked("wildcards: unexpected messages, each taken once", program, inputs, |round, buffers| {
        same_set(chunks(&pattern(24, round), 8), chunks(&buffers[0][1], 8))
    })
}

/// Receives of every class at once; each matches an admissible message.
fn classes_side_by_side() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    let output = program[0].buffer(Access::Output, 32);
    let slots = parts(output, 4);
    program[0].receive(slots[0], 1, None);
    program[0].receive(slots[1], None, 5);
    program[0].receive(slots[2], 2, 6);
    let others: Vec<_> =
        program[0].vertices().iter().enumerate().map(|(index, _)| index as u32).collect();
    let last = program[0].receive(slots[3], None, None);
    // The receive that admits every message comes last; otherwise it could match the only
    // message that another receive admits.
    others.into_iter().for_each(|before| program[0].requires(last, Vertex(before)));
    // The words encode their origin: source · 100 + tag.
    for (graph, messages) in program[1..].iter_mut().zip([vec![1], vec![5, 6, 7]]) {
        let input = graph.buffer(Access::Input, 8 * messages.len() as u64);
        for (part, tag) in parts(input, messages.len() as u64).into_iter().zip(messages) {
            graph.send(part, 0, tag);
        }
    }
    let inputs = |round: u64| {
        let offset = 1000 * round;
        let second = [205, 206, 207].map(|value| word(offset + value)).concat();
        vec![vec![blank(32)], vec![word(offset + 101)], vec![second]]
    };
    checked("wildcards: all classes side by side", program, inputs, |round, buffers| {
        let words: Vec<u64> = buffers[0][0].chunks(8).map(number).collect();
        let expected = [101, 205, 206, 207].map(|value| 1000 * round + value);
        if words == expected {
            Ok(())
        } else {
            Err(format!("received {words:?} instead of {expected:?}"))
        }
    })
}

/// Many messages arrive before any receive is posted.
fn unexpected_then_posted() -> Vector {
    const MESSAGES: u64 = 300;
    let mut program = world(2);
    let output = program[0].buffer(Access::Output, 8 * MESSAGES);
    let go = program[0].receive(Blocks::none(), 1, 1);
    for (index, part) in (0u32..).zip(parts(output, MESSAGES)) {
        let receive = program[0].receive(part, if index % 2 == 0 { None } else { Some(1) }, None);
        program[0].requires(receive, go);
    }
    let input = program[1].buffer(Access::Input, 8 * MESSAGES);
    for (index, part) in (0u32..).zip(parts(input, MESSAGES)) {
        program[1].send(part, 0, 2 + index % 3);
    }
    program[1].send(Blocks::none(), 0, 1);
    let input = |round: u64| {
        (0..MESSAGES).flat_map(|index| word(10_000 * round + index)).collect::<Vec<u8>>()
    };
    let inputs = move |round| vec![vec![blank(8 * MESSAGES as usize)], vec![input(round)]];
    checked("wildcards: flood of unexpected messages", program, inputs, move |round, buffers| {
        same_set(chunks(&input(round), 8), chunks(&buffers[0][0], 8))
    })
}

fn chunks(bytes: &[u8], length: u64) -> Vec<Vec<u8>> {
    bytes.chunks(length as usize).map(<[u8]>::to_vec).collect()
}

/// Returns true if the same messages were sent and received, in any order.
fn same_set(mut sent: Vec<Vec<u8>>, mut received: Vec<Vec<u8>>) -> Result<(), String> {
    sent.sort_unstable();
    received.sort_unstable();
    match sent.iter().zip(&received).find(|(sent, received)| sent != received) {
        _ if sent.len() != received.len() => {
            Err(format!("{} messages instead of {}", received.len(), sent.len()))
        }
        Some((sent, received)) => {
            let start = |bytes: &[u8]| format!("{:02x?}", &bytes[..bytes.len().min(8)]);
            Err(format!(
                "not the messages that were sent: in sorted order, {} was received where {} was sent",
                start(received),
                start(sent)
            ))
        }
        None => Ok(()),
    }
}
