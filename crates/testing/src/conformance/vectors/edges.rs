//! Dependencies: on completion, on a start, across ranks; completion of the run; timestamps and
//! computations.

use super::build::{blank, chain, checked, exact, number, parts, pattern, world};
use crate::conformance::vector::Vector;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Blocks, Vertex};

pub(super) fn vectors() -> Vec<Vector> {
    let mut vectors = vec![
        posted_before_sent(),
        started_is_not_complete(),
        unmatched_send_is_started(),
        begun_is_started(),
        diamond(),
        long_chain(),
        backwards(),
        calculations(),
        timestamps_in_order(),
    ];
    vectors.extend([2, 3, 4, 7, 8].map(dissemination));
    vectors
}

/// A request that is sent once the receive for its answer is posted: with a dependency on
/// completion, both ranks would wait forever.
fn posted_before_sent() -> Vector {
    let mut program = world(2);
    let question = program[0].buffer(Access::Input, 8);
    let answer = program[0].buffer(Access::Output, 8);
    let receive = program[0].receive(answer, 1, 0);
    let send = program[0].send(question, 1, 0);
    program[0].irequires(send, receive);
    let both = program[1].buffer(Access::InOut, 8);
    let receive = program[1].receive(both, 0, 0);
    let double = program[1].local(Arithmetic::Add, DataType::U64, both, both, both);
    let send = program[1].send(both, 0, 0);
    chain(&mut program[1], &[receive, double, send]);
    exact("edges: sent once the receive is posted", program, |round| {
        let once = (1 + round).to_le_bytes().to_vec();
        let twice = (2 + 2 * round).to_le_bytes().to_vec();
        (
            vec![vec![once.clone(), blank(8)], vec![blank(8)]],
            vec![vec![once, twice.clone()], vec![twice]],
        )
    })
}

/// The receive has only an edge from its start, and completes last: the run ends no earlier.
fn started_is_not_complete() -> Vector {
    let mut program = world(2);
    let output = program[0].buffer(Access::Output, 8);
    let receive = program[0].receive(output, 1, 0);
    let go = program[0].send(Blocks::none(), 1, 1);
    program[0].irequires(go, receive);
    let input = program[1].buffer(Access::Input, 8);
    let go = program[1].receive(Blocks::none(), 0, 1);
    let wait = program[1].calc(200_000);
    let send = program[1].send(input, 0, 0);
    chain(&mut program[1], &[go, wait, send]);
    exact(
        "edges: a run ends when a receive that others only saw started is complete",
        program,
        |round| {
            let bytes = pattern(8, round);
            (vec![vec![blank(8)], vec![bytes.clone()]], vec![vec![bytes.clone()], vec![bytes]])
        },
    )
}

/// A send, short or too long to be eager, has started before it is complete: its receiver posts
/// only after a message that waits for that start.
fn unmatched_send_is_started() -> Vector {
    const LENGTHS: [u64; 2] = [8, 300_000];
    let mut program = world(2);
    for (tag, length) in (0..).zip(LENGTHS) {
        let input = program[0].buffer(Access::Input, length);
        let send = program[0].send(input, 1, tag);
        let go = program[0].send(Blocks::none(), 1, tag + 10);
        program[0].irequires(go, send);
        let output = program[1].buffer(Access::Output, length);
        let go = program[1].receive(Blocks::none(), 0, tag + 10);
        let receive = program[1].receive(output, 0, tag);
        chain(&mut program[1], &[go, receive]);
    }
    exact("edges: a send starts before its receive is posted", program, |round| {
        let bytes = LENGTHS.map(|length| pattern(length as usize, round)).to_vec();
        let blanks = LENGTHS.map(|length| blank(length as usize)).to_vec();
        (vec![bytes.clone(), blanks], vec![bytes.clone(), bytes])
    })
}

/// Dependencies on the starts of computations and timestamps.
fn begun_is_started() -> Vector {
    let mut program = world(1);
    let graph = &mut program[0];
    let input = graph.buffer(Access::Input, 8);
    let output = graph.buffer(Access::Output, 8);
    let scratchpad = graph.scratchpad(16);
    let calc = graph.calc(1000);
    let timestamp = graph.timestamp(scratchpad.part(0, 8));
    let first = graph.copy(input, scratchpad.part(8, 8));
    let second = graph.copy(scratchpad.part(8, 8), output);
    graph.irequires(timestamp, calc);
    graph.irequires(first, timestamp);
    graph.requires(second, first);
    exact("edges: starts of computations and timestamps", program, |round| {
        let bytes = pattern(8, round);
        (vec![vec![bytes.clone(), blank(8)]], vec![vec![bytes.clone(), bytes]])
    })
}

/// Two branches that fork and merge on every rank, with an exchange in one of them.
fn diamond() -> Vector {
    const RANKS: u32 = 4;
    let mut program = world(RANKS);
    for (rank, graph) in (0..).zip(&mut program) {
        let value = graph.buffer(Access::Input, 8);
        let sum = graph.buffer(Access::Output, 8);
        let left = graph.scratchpad(8);
        let right = graph.scratchpad(8);
        let top = graph.copy(value, sum);
        let send = graph.send(sum, (rank + 1) % RANKS, 0);
        let receive = graph.receive(left, (rank + RANKS - 1) % RANKS, 0);
        let double = graph.local(Arithmetic::Add, DataType::U64, sum, sum, right);
        let bottom = graph.local(Arithmetic::Add, DataType::U64, left, right, sum);
        for (after, before) in
            [(send, top), (receive, top), (double, top), (bottom, receive), (bottom, double)]
        {
            graph.requires(after, before);
        }
        graph.requires(bottom, send);
    }
    exact("edges: diamond", program, |round| {
        let value = |rank: u64| 100 * round + rank;
        let word = |value: u64| value.to_le_bytes().to_vec();
        let before = (0..4).map(|rank| vec![word(value(rank)), blank(8)]).collect();
        (
            before,
            (0..4)
                .map(|rank| vec![word(value(rank)), word(2 * value(rank) + value((rank + 3) % 4))])
                .collect(),
        )
    })
}

/// A chain of operations long enough to overflow a stack if each called the next.
fn long_chain() -> Vector {
    const LENGTH: u64 = 20_000;
    let mut program = world(1);
    let sum = program[0].buffer(Access::InOut, 8);
    let step = program[0].buffer(Access::Input, 8);
    let vertices: Vec<Vertex> = (0..LENGTH)
        .map(|_| program[0].local(Arithmetic::Add, DataType::U64, sum, step, sum))
        .collect();
    chain(&mut program[0], &vertices);
    exact("edges: chain of 20,000 operations", program, |round| {
        let words = |sum: u64, step: u64| {
            vec![vec![sum.to_le_bytes().to_vec(), step.to_le_bytes().to_vec()]]
        };
        (words(round, 3 + round), words(round + LENGTH * (3 + round), 3 + round))
    })
}

/// Edges from later to earlier vertices.
fn backwards() -> Vector {
    let mut program = world(2);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 8);
        let output = graph.buffer(Access::Output, 8);
        let there = graph.scratchpad(8);
        let back = graph.scratchpad(8);
        let last = graph.copy(back, output);
        let receive = graph.receive(back, 1 - rank, 0);
        let send = graph.send(there, 1 - rank, 0);
        let first = graph.copy(input, there);
        // Rank 1 receives first, so that no send waits for a receive that waits for another send in
        // turn.
        if rank == 0 {
            chain(graph, &[first, send, receive, last]);
        } else {
            chain(graph, &[receive, first, send, last]);
        }
    }
    exact("edges: from later to earlier vertices", program, |round| {
        let first = pattern(8, 2 * round);
        let second = pattern(8, 2 * round + 1);
        let before = vec![vec![first.clone(), blank(8)], vec![second.clone(), blank(8)]];
        (before, vec![vec![first.clone(), second.clone()], vec![second, first]])
    })
}

/// Computations between messages.
fn calculations() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 8);
        let output = graph.buffer(Access::Output, 8);
        let compute = graph.calc(u64::from(rank) * 20_000);
        let nothing = graph.calc(0);
        let send = graph.send(input, (rank + 1) % RANKS, 0);
        let receive = graph.receive(output, (rank + RANKS - 1) % RANKS, 0);
        let end = graph.calc(1);
        chain(graph, &[compute, nothing, send]);
        chain(graph, &[receive, end]);
        if let Some(entry) = graph.vertex_mut(end) {
            entry.cpu = 1;
        }
    }
    exact("edges: computations", program, |round| {
        let input = |rank: u64| pattern(8, 10 * round + rank);
        let before = (0..3).map(|rank| vec![input(rank), blank(8)]).collect();
        (before, (0..3).map(|rank| vec![input(rank), input((rank + 2) % 3)]).collect())
    })
}

/// A chain of timestamps does not run backwards.
fn timestamps_in_order() -> Vector {
    const TIMESTAMPS: u64 = 8;
    let mut program = world(1);
    let output = program[0].buffer(Access::Output, 8 * TIMESTAMPS);
    let timestamps: Vec<Vertex> =
        parts(output, TIMESTAMPS).into_iter().map(|part| program[0].timestamp(part)).collect();
    chain(&mut program[0], &timestamps);
    let inputs = |_| vec![vec![vec![0xff; 8 * TIMESTAMPS as usize]]];
    checked("edges: timestamps in order", program, inputs, |_, buffers| {
        let timestamps: Vec<u64> = buffers[0][0].chunks(8).map(number).collect();
        if timestamps.contains(&u64::MAX) {
            return Err(format!("a timestamp was not written: {timestamps:?}"));
        }
        if timestamps.is_sorted() {
            Ok(())
        } else {
            Err(format!("timestamps run backwards: {timestamps:?}"))
        }
    })
}

/// A dissemination barrier between two timestamps: no rank leaves before the last has entered. The
/// ranks enter at different times.
fn dissemination(ranks: u32) -> Vector {
    let mut program = world(ranks);
    for (rank, graph) in (0..ranks).zip(&mut program) {
        let output = graph.buffer(Access::Output, 16);
        let late = graph.calc(u64::from(rank * 7 % ranks) * 10_000);
        let enter = graph.timestamp(output.part(0, 8));
        graph.requires(enter, late);
        let mut last = vec![enter];
        let mut distance = 1;
        while distance < ranks {
            let send = graph.send(Blocks::none(), (rank + distance) % ranks, distance);
            let receive =
                graph.receive(Blocks::none(), (rank + ranks - distance) % ranks, distance);
            last.iter().for_each(|before| graph.requires(send, *before));
            last = vec![send, receive];
            distance *= 2;
        }
        // A rank needs the messages of all rounds, not only those of the last.
        let receives: Vec<Vertex> = (0..graph.vertices().len() as u32).map(Vertex).collect();
        let leave = graph.timestamp(output.part(8, 8));
        receives.into_iter().for_each(|before| graph.requires(leave, before));
    }
    let inputs = move |_| (0..ranks).map(|_| vec![vec![0; 16]]).collect();
    checked(
        format!("edges: dissemination barrier of {ranks}"),
        program,
        inputs,
        move |_, buffers| {
            let entered = buffers.iter().map(|rank| number(&rank[0][..8])).max();
            let left = buffers.iter().map(|rank| number(&rank[0][8..])).min();
            if entered <= left {
                Ok(())
            } else {
                Err(format!("a rank left at {left:?}, another entered at {entered:?}"))
            }
        },
    )
}
