//! Messages: pairing, tags, sizes on both sides of every limit, floods.

use super::build::{blank, chain, exact, parts, pattern, world};
use crate::conformance::engine::Round;
use crate::conformance::vector::Vector;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Graph};

pub(super) fn vectors() -> Vec<Vector> {
    let mut vectors = vec![
        self_send(),
        tags(),
        reversed_chain("messages: same tag, sent against vertex order", true, false),
        reversed_chain("messages: same tag, received against vertex order", false, true),
        reversed_chain("messages: same tag, both against vertex order", true, true),
        flood(),
        ping_pong(),
        tree_gather(),
    ];
    vectors.extend(SIZES.map(exchange));
    vectors.extend([1, 2, 3, 4, 7].map(ring));
    vectors.extend([2, 3, 4, 6].map(all_to_all));
    vectors
}

/// Sizes around the usual limits of engines.
const SIZES: [u64; 20] = [
    0, 1, 7, 8, 9, 56, 63, 64, 65, 255, 256, 257, 4096, 4097, 16384, 16385, 65536, 65537, 262_145,
    1_048_579,
];

/// Two ranks send to each other at once.
fn exchange(size: u64) -> Vector {
    let mut program = world(2);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, size);
        let output = graph.buffer(Access::Output, size);
        graph.send(input, 1 - rank, 3);
        graph.receive(output, 1 - rank, 3);
    }
    exact(format!("messages: exchange of {size} bytes"), program, move |round| {
        let bytes = [0, 1].map(|rank| pattern(size as usize, 2 * round + rank));
        let buffers = |rank: usize, output: Vec<u8>| vec![bytes[rank].clone(), output];
        let before = (0..2).map(|rank| buffers(rank, blank(size as usize))).collect();
        (before, (0..2).map(|rank| buffers(rank, bytes[1 - rank].clone())).collect())
    })
}

/// A rank sends to itself, short and long, the receive posted before and after.
fn self_send() -> Vector {
    let mut program = world(1);
    let graph = &mut program[0];
    let sizes = [8, 100_000, 8, 100_000];
    let inputs = sizes.map(|size| graph.buffer(Access::Input, size));
    let outputs = sizes.map(|size| graph.buffer(Access::Output, size));
    for index in 0..2 {
        let receive = graph.receive(outputs[index], 0, 0);
        let send = graph.send(inputs[index], 0, 0);
        graph.irequires(send, receive);
    }
    for index in 2..4 {
        let send = graph.send(inputs[index], 0, 1);
        let receive = graph.receive(outputs[index], 0, 1);
        graph.irequires(receive, send);
    }
    exact("messages: a rank sends to itself", program, move |round| {
        let bytes: Vec<Vec<u8>> = (0..)
            .zip(sizes)
            .map(|(index, size)| pattern(size as usize, 4 * round + index))
            .collect();
        let blanks: Vec<Vec<u8>> = sizes.iter().map(|size| blank(*size as usize)).collect();
        (vec![[bytes.clone(), blanks].concat()], vec![[bytes.clone(), bytes].concat()])
    })
}

/// The same messages with three tags, received in another order of tags.
fn tags() -> Vector {
    let mut program = world(2);
    let input = program[0].buffer(Access::Input, 48);
    let sent = [7, 0, u32::MAX - 1, 7, 0, u32::MAX - 1];
    for (part, tag) in parts(input, 6).into_iter().zip(sent) {
        program[0].send(part, 1, tag);
    }
    let output = program[1].buffer(Access::Output, 48);
    let received = [u32::MAX - 1, u32::MAX - 1, 0, 7, 0, 7];
    for (part, tag) in parts(output, 6).into_iter().zip(received) {
        program[1].receive(part, 0, tag);
    }
    exact("messages: tags", program, |round| {
        let bytes = pattern(48, round);
        let result =
            [2, 5, 1, 0, 4, 3].map(|message: usize| &bytes[8 * message..8 * message + 8]).concat();
        (vec![vec![bytes.clone()], vec![blank(48)]], vec![vec![bytes], vec![result]])
    })
}

/// Many messages with one tag. Their sends or receives execute from the last in vertex order to the
/// first; vertex order determines the pairs nevertheless. Every fourth message is a long one.
fn reversed_chain(name: &str, reverse_sends: bool, reverse_receives: bool) -> Vector {
    const MESSAGES: u64 = 32;
    const LONG: u64 = 20_000;
    let lengths: Vec<u64> =
        (0..MESSAGES).map(|index| if index % 4 == 3 { LONG } else { 8 + index }).collect();
    let mut program = world(2);
    let inputs: Vec<_> =
        lengths.iter().map(|length| program[0].buffer(Access::Input, *length)).collect();
    let mut sends: Vec<_> = inputs.iter().map(|input| program[0].send(*input, 1, 0)).collect();
    let outputs: Vec<_> =
        lengths.iter().map(|length| program[1].buffer(Access::Output, *length)).collect();
    let mut receives: Vec<_> =
        outputs.iter().map(|output| program[1].receive(*output, 0, 0)).collect();
    // Only the start of one waits for that of another: with completion, opposite orders would wait
    // for each other.
    let order = |graph: &mut Graph, vertices: &[_]| {
        vertices
            .windows(2)
            .for_each(|pair: &[goal::graph::Vertex]| graph.irequires(pair[1], pair[0]));
    };
    if reverse_sends {
        sends.reverse();
    }
    if reverse_receives {
        receives.reverse();
    }
    order(&mut program[0], &sends);
    order(&mut program[1], &receives);
    exact(name, program, move |round| {
        let bytes: Vec<_> = (0..)
            .zip(&lengths)
            .map(|(index, length)| pattern(*length as usize, 50 * round + index))
            .collect();
        let blanks = lengths.iter().map(|length| blank(*length as usize)).collect();
        (vec![bytes.clone(), blanks], vec![bytes.clone(), bytes])
    })
}

/// Three ranks flood the first. It posts no receive until a message of each has arrived, and then
/// one receive after the other, the last first.
fn flood() -> Vector {
    const RANKS: u32 = 4;
    const MESSAGES: u64 = 200;
    const BYTES: u64 = 16;
    let mut program = world(RANKS);
    for graph in &mut program[1..] {
        let input = graph.buffer(Access::Input, MESSAGES * BYTES);
        for part in parts(input, MESSAGES) {
            graph.send(part, 0, 1);
        }
        graph.send(input.part(0, 0), 0, 2);
    }
    let mut before = Vec::new();
    for source in 1..RANKS {
        before.push(program[0].receive(goal::graph::Blocks::none(), source, 2));
    }
    for source in 1..RANKS {
        let output = program[0].buffer(Access::Output, MESSAGES * BYTES);
        let mut receives: Vec<_> = parts(output, MESSAGES)
            .into_iter()
            .map(|part| program[0].receive(part, source, 1))
            .collect();
        receives.reverse();
        chain(&mut program[0], &receives);
        for first in &before {
            program[0].requires(receives[0], *first);
        }
    }
    exact("messages: flood of unexpected messages", program, |round| {
        let length = (MESSAGES * BYTES) as usize;
        let bytes: Round =
            (1..RANKS).map(|rank| vec![pattern(length, 10 * round + u64::from(rank))]).collect();
        let before = [vec![(1..RANKS).map(|_| blank(length)).collect()], bytes.clone()].concat();
        (before, [vec![bytes.concat()], bytes].concat())
    })
}

/// A counter is passed back and forth; each rank adds its own number before it sends.
fn ping_pong() -> Vector {
    const TURNS: u64 = 20;
    let mut program = world(2);
    for (rank, graph) in (0..).zip(&mut program) {
        let counter = graph.buffer(Access::InOut, 8);
        let step = graph.buffer(Access::Input, 8);
        let mut vertices = Vec::new();
        for turn in 0..TURNS {
            if turn % 2 == rank {
                vertices.push(graph.local(Arithmetic::Add, DataType::U64, counter, step, counter));
                vertices.push(graph.send(counter, 1 - rank as u32, 0));
            } else {
                vertices.push(graph.receive(counter, 1 - rank as u32, 0));
            }
        }
        chain(graph, &vertices);
    }
    exact("messages: ping-pong", program, |round| {
        let words = |counter: u64, step: u64| {
            vec![counter.to_le_bytes().to_vec(), step.to_le_bytes().to_vec()]
        };
        let start = 1000 * round;
        let first = 3 + round;
        let second = 1 << 40;
        let sum = start + TURNS / 2 * (first + second);
        (vec![words(start, first), words(77, second)], vec![words(sum, first), words(sum, second)])
    })
}

/// A ring shift by one: for one rank, a send to itself.
fn ring(ranks: u32) -> Vector {
    let mut program = world(ranks);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 24);
        let output = graph.buffer(Access::Output, 24);
        graph.send(input, (rank + 1) % ranks, 0);
        graph.receive(output, (rank + ranks - 1) % ranks, 0);
    }
    exact(format!("messages: ring of {ranks}"), program, move |round| {
        let input = |rank: u32| pattern(24, 10 * round + u64::from(rank));
        let before = (0..ranks).map(|rank| vec![input(rank), blank(24)]).collect();
        (
            before,
            (0..ranks).map(|rank| vec![input(rank), input((rank + ranks - 1) % ranks)]).collect(),
        )
    })
}

/// Every rank sends to every rank, itself included, twice with one tag.
fn all_to_all(ranks: u32) -> Vector {
    let mut program = world(ranks);
    let length = 16 * u64::from(ranks);
    for graph in &mut program {
        let input = graph.buffer(Access::Input, length);
        let output = graph.buffer(Access::Output, length);
        for (peer, part) in (0..).zip(parts(input, u64::from(ranks))) {
            graph.send(part.part(0, 8), peer, 9);
            graph.send(part.part(8, 8), peer, 9);
        }
        for (peer, part) in (0..ranks).zip(parts(output, u64::from(ranks))).rev() {
            graph.receive(part.part(0, 8), peer, 9);
            graph.receive(part.part(8, 8), peer, 9);
        }
    }
    exact(format!("messages: all to all of {ranks}"), program, move |round| {
        let input = |rank: u32| pattern(length as usize, 10 * round + u64::from(rank));
        let output = |rank: u32| {
            let place = 16 * rank as usize;
            (0..ranks).flat_map(|peer| input(peer)[place..place + 16].to_vec()).collect::<Vec<u8>>()
        };
        let before = (0..ranks).map(|rank| vec![input(rank), blank(length as usize)]).collect();
        (before, (0..ranks).map(|rank| vec![input(rank), output(rank)]).collect())
    })
}

/// A binomial gather; inner ranks collect in the scratchpad (Schneider et al. 2011, section 2.2).
fn tree_gather() -> Vector {
    const RANKS: u32 = 8;
    const BYTES: u64 = 12;
    let mut program = world(RANKS);
    for (rank, graph) in (0..RANKS).zip(&mut program) {
        // Rank r gathers for itself and the ranks after it, up to the lowest bit of its number.
        let span = if rank == 0 { RANKS } else { rank & rank.wrapping_neg() };
        let own = graph.buffer(Access::Input, BYTES);
        let all = if rank == 0 {
            graph.buffer(Access::Output, u64::from(RANKS) * BYTES)
        } else {
            graph.scratchpad(u64::from(span) * BYTES)
        };
        let mut ready = vec![graph.copy(own, all.part(0, BYTES))];
        let mut distance = 1;
        while distance < span {
            let part = all.part(u64::from(distance) * BYTES, u64::from(distance) * BYTES);
            ready.push(graph.receive(part, rank + distance, 0));
            distance *= 2;
        }
        if rank > 0 {
            let send = graph.send(all, rank - span, 0);
            ready.iter().for_each(|before| graph.requires(send, *before));
        }
    }
    exact("messages: binomial gather through scratchpads", program, |round| {
        let own = |rank: u32| pattern(BYTES as usize, 10 * round + u64::from(rank));
        let inputs = |first: Vec<u8>| -> Round {
            let others = (1..RANKS).map(|rank| vec![own(rank)]);
            std::iter::once(vec![own(0), first]).chain(others).collect()
        };
        let gathered = (0..RANKS).flat_map(own).collect();
        (inputs(blank((u64::from(RANKS) * BYTES) as usize)), inputs(gathered))
    })
}
