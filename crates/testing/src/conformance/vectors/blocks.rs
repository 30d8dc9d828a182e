//! Scatter/gather lists, the scratchpad, zero bytes, bytes that no operation writes.

use super::build::{UNWRITTEN, blank, chain, exact, parts, pattern, world};
use crate::conformance::vector::Vector;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Block, Blocks};

pub(super) fn vectors() -> Vec<Vector> {
    vec![
        copy_lists(),
        local_lists(),
        message_lists(),
        scratchpad_transpose(),
        unwritten_bytes(),
        nothing(),
        empty_program(),
    ]
}

/// Lists with different boundaries on both sides.
fn copy_lists() -> Vector {
    let mut program = world(1);
    let source = program[0].buffer(Access::Input, 64);
    let destination = program[0].buffer(Access::Output, 64);
    program[0].copy(
        [source.part(40, 24), source.part(0, 8), source.part(8, 0), source.part(8, 32)],
        [destination.part(0, 1), destination.part(33, 31), destination.part(1, 32)],
    );
    exact("blocks: copy between lists cut at different places", program, |round| {
        let bytes = pattern(64, round);
        let sequence = [&bytes[40..64], &bytes[0..40]].concat();
        let result = [&sequence[..1], &sequence[32..], &sequence[1..32]].concat();
        (vec![vec![bytes.clone(), blank(64)]], vec![vec![bytes, result]])
    })
}

fn local_lists() -> Vector {
    let mut program = world(1);
    let [left, right] = [(); 2].map(|()| program[0].buffer(Access::Input, 32));
    let result = program[0].buffer(Access::Output, 32);
    program[0].local(
        Arithmetic::Subtract,
        DataType::U16,
        [left.part(16, 16), left.part(0, 16)],
        [right.part(0, 2), right.part(2, 30)],
        [result.part(24, 8), result.part(0, 24)],
    );
    exact("blocks: local operation on lists cut at different places", program, |round| {
        let left = pattern(32, 2 * round);
        let right = pattern(32, 2 * round + 1);
        let shuffled = [&left[16..], &left[..16]].concat();
        let word = |bytes: &[u8], index: usize| {
            u16::from_le_bytes([bytes[2 * index], bytes[2 * index + 1]])
        };
        let difference =
            |index| word(&shuffled, index).wrapping_sub(word(&right, index)).to_le_bytes();
        let sequence: Vec<u8> = (0..16).flat_map(difference).collect();
        let result = [&sequence[8..], &sequence[..8]].concat();
        (vec![vec![left.clone(), right.clone(), blank(32)]], vec![vec![left, right, result]])
    })
}

/// A message gathered on one side and scattered on the other.
fn message_lists() -> Vector {
    let mut program = world(2);
    let data = program[0].buffer(Access::Input, 60);
    program[0].send([data.part(50, 10), data.part(0, 25), data.part(25, 25)], 1, 0);
    let data = program[1].buffer(Access::Output, 60);
    program[1].receive([data.part(20, 40), data.part(0, 20)], 0, 0);
    exact("blocks: message gathered and scattered", program, |round| {
        let bytes = pattern(60, round);
        let sequence = [&bytes[50..], &bytes[..50]].concat();
        let result = [&sequence[40..], &sequence[..40]].concat();
        (vec![vec![bytes.clone()], vec![blank(60)]], vec![vec![bytes], vec![result]])
    })
}

/// Every rank transposes a matrix through the scratchpad on its way to the next rank.
fn scratchpad_transpose() -> Vector {
    const RANKS: u32 = 4;
    let mut program = world(RANKS);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 64);
        let output = graph.buffer(Access::Output, 64);
        let outgoing = graph.scratchpad(64);
        let incoming = graph.scratchpad(64);
        let columns: Vec<Block> = (0..8)
            .flat_map(|column| (0..8).map(move |row| input.part(8 * row + column, 1)))
            .collect();
        let transpose = graph.copy(columns, outgoing);
        let send = graph.send(outgoing, (rank + 1) % RANKS, 5);
        let receive = graph.receive(incoming, (rank + RANKS - 1) % RANKS, 5);
        let copy = graph.copy(incoming, output);
        chain(graph, &[transpose, send]);
        chain(graph, &[receive, copy]);
    }
    exact("blocks: transposed through the scratchpad", program, |round| {
        let input = |rank: u32| pattern(64, 10 * round + u64::from(rank));
        let transposed = |bytes: Vec<u8>| {
            (0..64).map(|index| bytes[8 * (index % 8) + index / 8]).collect::<Vec<u8>>()
        };
        let before = (0..RANKS).map(|rank| vec![input(rank), blank(64)]).collect();
        let after = (0..RANKS)
            .map(|rank| vec![input(rank), transposed(input((rank + RANKS - 1) % RANKS))])
            .collect();
        (before, after)
    })
}

/// Bytes that no operation writes keep their values, in every kind of buffer.
fn unwritten_bytes() -> Vector {
    let mut program = world(2);
    let output = program[0].buffer(Access::Output, 32);
    let both = program[0].buffer(Access::InOut, 32);
    program[0].receive(parts(output, 4)[1], 1, 0);
    program[0].receive(parts(both, 4)[2], 1, 0);
    let input = program[1].buffer(Access::Input, 16);
    program[1].send(input.part(0, 8), 0, 0);
    program[1].send(input.part(8, 8), 0, 0);
    exact("blocks: bytes that no rank writes stay", program, |round| {
        let input = pattern(16, round);
        let both = pattern(32, 100 + round);
        let written = |before: &[u8], place: usize, bytes: &[u8]| {
            [&before[..place], bytes, &before[place + 8..]].concat()
        };
        let output = written(&[UNWRITTEN; 32], 8, &input[..8]);
        let after = vec![vec![output, written(&both, 16, &input[8..])], vec![input.clone()]];
        (vec![vec![blank(32), both], vec![input]], after)
    })
}

/// Operations on zero bytes order other operations.
fn nothing() -> Vector {
    let mut program = world(2);
    let input = program[0].buffer(Access::Input, 8);
    let scratchpad = program[0].scratchpad(0);
    let copy = program[0].copy(Blocks::none(), Blocks::none());
    let local = program[0].local(
        Arithmetic::Add,
        DataType::U64,
        scratchpad,
        Blocks::none(),
        input.part(8, 0),
    );
    let empty = program[0].send(Blocks::none(), 1, 0);
    let send = program[0].send(input, 1, 0);
    chain(&mut program[0], &[copy, local, empty, send]);
    let output = program[1].buffer(Access::Output, 8);
    let empty = program[1].receive(output.part(3, 0), 0, 0);
    let receive = program[1].receive(output, 0, 0);
    chain(&mut program[1], &[empty, receive]);
    exact("blocks: operations on zero bytes", program, |round| {
        let bytes = pattern(8, round);
        (vec![vec![bytes.clone()], vec![blank(8)]], vec![vec![bytes.clone()], vec![bytes]])
    })
}

/// The empty program.
fn empty_program() -> Vector {
    let mut program = world(2);
    program[1].buffer(Access::InOut, 8);
    exact("blocks: ranks that do nothing", program, |round| {
        let buffers = vec![vec![], vec![pattern(8, round)]];
        (buffers.clone(), buffers)
    })
}
