//! Joins in all modes.

use super::build::{UNWRITTEN, blank, chain, checked, exact, number, parts, pattern, world};
use crate::conformance::engine::Round;
use crate::conformance::vector::Vector;
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Blocks, Graph, JoinMode};

pub(super) fn vectors() -> Vec<Vector> {
    let mut vectors = vec![
        reduce_floats_in_order(),
        reduce_wraps(),
        several_joins(),
        lists(),
        between_messages(),
        without_result(),
        broadcast_to_the_root_too(),
        in_place(),
        no_bytes(),
        large(),
    ];
    for ranks in [1, 2, 3, 4, 6] {
        vectors.extend([barrier(ranks), gather(ranks), exchange(ranks)]);
        vectors.extend((0..ranks).map(|root| broadcast(ranks, root)));
        vectors.extend(Arithmetic::ALL.map(|operation| reduce(ranks, operation)));
    }
    vectors
}

fn words<const N: usize>(values: [i32; N]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Buffers of all ranks, two each.
fn pairs(ranks: u32, buffers: impl Fn(u32) -> [Vec<u8>; 2]) -> Round {
    (0..ranks).map(|rank| buffers(rank).to_vec()).collect()
}

/// Returns a program with one join: sizes of input and output.
fn single(ranks: u32, mode: JoinMode, contribution: u64, result: u64) -> Vec<Graph> {
    let mut program = world(ranks);
    for graph in &mut program {
        let input = graph.buffer(Access::Input, contribution);
        let output = graph.buffer(Access::Output, result);
        graph.join(mode, input, output);
    }
    program
}

fn barrier(ranks: u32) -> Vector {
    let mut program = world(ranks);
    for (rank, graph) in (0..ranks).zip(&mut program) {
        let output = graph.buffer(Access::Output, 16);
        let late = graph.calc(u64::from(rank * 5 % ranks) * 10_000);
        let enter = graph.timestamp(output.part(0, 8));
        let join = graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
        let leave = graph.timestamp(output.part(8, 8));
        chain(graph, &[late, enter, join, leave]);
    }
    let inputs = move |_| (0..ranks).map(|_| vec![vec![0; 16]]).collect();
    checked(format!("joins: barrier of {ranks}"), program, inputs, |_, buffers| {
        let entered = buffers.iter().map(|rank| number(&rank[0][..8])).max();
        let left = buffers.iter().map(|rank| number(&rank[0][8..])).min();
        if entered <= left {
            Ok(())
        } else {
            Err(format!("a rank left at {left:?}, another entered at {entered:?}"))
        }
    })
}

/// The fold starts at rank 0 and goes up; subtraction and division detect another order.
fn reduce(ranks: u32, operation: Arithmetic) -> Vector {
    let rule: fn(i32, i32) -> i32 = match operation {
        Arithmetic::Add => |left, right| left + right,
        Arithmetic::Subtract => |left, right| left - right,
        Arithmetic::Multiply => |left, right| left * right,
        Arithmetic::Divide => |left, right| left / right,
        Arithmetic::Minimum => |left, right| if left < right { left } else { right },
        Arithmetic::Maximum => |left, right| if left > right { left } else { right },
        Arithmetic::And => |left, right| left & right,
        Arithmetic::Or => |left, right| left | right,
        Arithmetic::Xor => |left, right| left ^ right,
    };
    let program = single(ranks, JoinMode::Reduce { operation, data_type: DataType::I32 }, 12, 12);
    exact(format!("joins: reduce by {operation} over {ranks}"), program, move |round| {
        let own = |rank: u32| {
            let rank = rank as i32;
            let round = round as i32;
            if rank == 0 {
                [100_000 + round, -700, 12]
            } else {
                [2 + rank + round, 3 - 7 * rank, rank]
            }
        };
        let fold = |index: usize| {
            (1..ranks).fold(own(0)[index], |left, rank| rule(left, own(rank)[index]))
        };
        let result = [fold(0), fold(1), fold(2)];
        let before = pairs(ranks, |rank| [words(own(rank)), blank(12)]);
        (before, pairs(ranks, |rank| [words(own(rank)), words(result)]))
    })
}

/// Sums that depend on the order: 2^53 + 1 − 2^53 and the like.
fn reduce_floats_in_order() -> Vector {
    let mode = JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::F64 };
    let program = single(4, mode, 16, 16);
    exact("joins: floating-point sums in rank order", program, |_| {
        let big = 9_007_199_254_740_992.0_f64;
        let own = [[big, 1.0], [1.0, big], [-big, -big], [1.0, f64::NAN]];
        let bytes = |values: [f64; 2]| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
        };
        // (2^53 + 1) rounds to 2^53; minus 2^53 is 0; plus 1 is 1.
        let canonical = f64::from_bits(0x7ff8_0000_0000_0000);
        let result = bytes([1.0, canonical]);
        let before = pairs(4, |rank| [bytes(own[rank as usize]), blank(16)]);
        (before, pairs(4, |rank| [bytes(own[rank as usize]), result.clone()]))
    })
}

fn reduce_wraps() -> Vector {
    let mode = JoinMode::Reduce { operation: Arithmetic::Multiply, data_type: DataType::U8 };
    let program = single(3, mode, 4, 4);
    exact("joins: products that wrap", program, |_| {
        let own =
            [[200, 3, 0, 255], [2, 100, 9, 255], [3, 1, 9, 2]].map(|bytes: [u8; 4]| bytes.to_vec());
        let before = pairs(3, |rank| [own[rank as usize].clone(), blank(4)]);
        // 200 · 2 = 400 = 144, · 3 = 432 = 176; 255 · 255 = 1, · 2 = 2.
        (before, pairs(3, |rank| [own[rank as usize].clone(), vec![176, 44, 0, 2]]))
    })
}

fn gather(ranks: u32) -> Vector {
    let program = single(ranks, JoinMode::Gather, 5, 5 * u64::from(ranks));
    exact(format!("joins: gather over {ranks}"), program, move |round| {
        let own = |rank: u32| pattern(5, 10 * round + u64::from(rank));
        let all: Vec<u8> = (0..ranks).flat_map(own).collect();
        let before = pairs(ranks, |rank| [own(rank), blank(all.len())]);
        (before, pairs(ranks, |rank| [own(rank), all.clone()]))
    })
}

fn exchange(ranks: u32) -> Vector {
    let length = 6 * u64::from(ranks);
    let program = single(ranks, JoinMode::Exchange, length, length);
    exact(format!("joins: exchange over {ranks}"), program, move |round| {
        let own = |rank: u32| pattern(length as usize, 10 * round + u64::from(rank));
        let part = |rank: u32, of: u32| own(of)[6 * rank as usize..6 * rank as usize + 6].to_vec();
        let before = pairs(ranks, |rank| [own(rank), blank(length as usize)]);
        let result = |rank| (0..ranks).flat_map(|of| part(rank, of)).collect();
        (before, pairs(ranks, |rank| [own(rank), result(rank)]))
    })
}

fn broadcast(ranks: u32, root: u32) -> Vector {
    let mut program = world(ranks);
    for (rank, graph) in (0..).zip(&mut program) {
        let data = graph.buffer(if rank == root { Access::Input } else { Access::Output }, 20);
        let (contribution, result) = if rank == root {
            (data.into(), Blocks::none())
        } else {
            (Blocks::none(), data.into())
        };
        graph.join(JoinMode::Broadcast { root }, contribution, result);
    }
    exact(format!("joins: broadcast from {root} to {ranks}"), program, move |round| {
        let bytes = pattern(20, round);
        let data = |rank: u32| if rank == root { bytes.clone() } else { blank(20) };
        let before = (0..ranks).map(|rank| vec![data(rank)]).collect();
        (before, (0..ranks).map(|_| vec![bytes.clone()]).collect())
    })
}

/// Joins of one run: numbered by vertex order, started in the opposite order, of different modes.
fn several_joins() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    for graph in &mut program {
        let input = graph.buffer(Access::Input, 12);
        let output = graph.buffer(Access::Output, 12 + 36 + 12);
        let sum = JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::I32 };
        let joins = [
            graph.join(sum, input, output.part(0, 12)),
            graph.join(JoinMode::Gather, input, output.part(12, 36)),
            graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none()),
            graph.join(JoinMode::Exchange, input, output.part(48, 12)),
        ];
        for pair in joins.windows(2) {
            graph.irequires(pair[0], pair[1]);
        }
    }
    exact("joins: several at once", program, |round| {
        let own = |rank: u32| [1, 10, 100].map(|factor| factor * (1 + rank as i32 + round as i32));
        let first = own(0);
        let second = own(1);
        let third = own(2);
        let sum = words([0, 1, 2].map(|index| first[index] + second[index] + third[index]));
        let gathered = [words(first), words(second), words(third)].concat();
        let before = pairs(RANKS, |rank| [words(own(rank)), blank(60)]);
        let result = |rank: u32| {
            let parts = words([first, second, third].map(|values| values[rank as usize]));
            [sum.clone(), gathered.clone(), parts].concat()
        };
        (before, pairs(RANKS, |rank| [words(own(rank)), result(rank)]))
    })
}

/// Contribution and result in pieces.
fn lists() -> Vector {
    let mut program = world(2);
    for graph in &mut program {
        let input = graph.buffer(Access::Input, 16);
        let output = graph.buffer(Access::Output, 40);
        let [first, second] = [0, 1].map(|index| parts(input, 2)[index]);
        graph.join(JoinMode::Gather, [second, first], [output.part(30, 10), output.part(0, 22)]);
    }
    exact("joins: lists of blocks", program, |round| {
        let own = |rank: u32| pattern(16, 10 * round + u64::from(rank));
        let swapped = |rank| [&own(rank)[8..], &own(rank)[..8]].concat();
        let all = [swapped(0), swapped(1)].concat();
        let result = [&all[10..], &[UNWRITTEN; 8], &all[..10]].concat();
        (pairs(2, |rank| [own(rank), blank(40)]), pairs(2, |rank| [own(rank), result.clone()]))
    })
}

/// A join between messages: it waits for some, and others wait for it.
fn between_messages() -> Vector {
    const RANKS: u32 = 4;
    let mut program = world(RANKS);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 8);
        let output = graph.buffer(Access::Output, 8);
        let left = graph.scratchpad(8);
        let sum = graph.scratchpad(8);
        let [next, previous] = [(rank + 1) % RANKS, (rank + RANKS - 1) % RANKS];
        graph.send(input, next, 0);
        let receive = graph.receive(left, previous, 0);
        let mode = JoinMode::Reduce { operation: Arithmetic::Subtract, data_type: DataType::U64 };
        let join = graph.join(mode, left, sum);
        let send = graph.send(sum, previous, 1);
        graph.receive(output, next, 1);
        chain(graph, &[receive, join, send]);
    }
    exact("joins: between messages", program, |round| {
        let word = |value: u64| value.to_le_bytes().to_vec();
        let own = |rank: u32| 1000 + 10 * round + u64::from(rank) * u64::from(rank);
        // Rank 0 contributes what rank 3 sent.
        let result = own(3).wrapping_sub(own(0)).wrapping_sub(own(1)).wrapping_sub(own(2));
        let before = pairs(RANKS, |rank| [word(own(rank)), blank(8)]);
        (before, pairs(RANKS, |rank| [word(own(rank)), word(result)]))
    })
}

/// Only one rank receives the sum.
fn without_result() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 2);
        let output = graph.buffer(Access::Output, 2);
        let result = if rank == 1 { output.into() } else { Blocks::none() };
        graph.join(
            JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::U16 },
            input,
            result,
        );
    }
    exact("joins: a result for one rank only", program, |round| {
        let word = |value: u16| value.to_le_bytes().to_vec();
        let own = |rank: u32| 30_000 + round as u16 + rank as u16;
        let sum = (0..RANKS).map(own).fold(0, u16::wrapping_add);
        let before = pairs(RANKS, |rank| [word(own(rank)), blank(2)]);
        (
            before,
            pairs(RANKS, |rank| [word(own(rank)), if rank == 1 { word(sum) } else { blank(2) }]),
        )
    })
}

/// The root may have its own bytes as a result, like every rank.
fn broadcast_to_the_root_too() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    for (rank, graph) in (0..).zip(&mut program) {
        let input = graph.buffer(Access::Input, 12);
        let output = graph.buffer(Access::Output, 12);
        let contribution = if rank == 2 { input.into() } else { Blocks::none() };
        graph.join(JoinMode::Broadcast { root: 2 }, contribution, output);
    }
    exact("joins: broadcast whose root wants a result", program, |round| {
        let own = |rank: u32| pattern(12, 10 * round + u64::from(rank));
        (pairs(RANKS, |rank| [own(rank), blank(12)]), pairs(RANKS, |rank| [own(rank), own(2)]))
    })
}

/// The result overwrites the contribution.
fn in_place() -> Vector {
    const RANKS: u32 = 4;
    let mut program = world(RANKS);
    for graph in &mut program {
        let [first, second] = [0, 1].map(|_| graph.buffer(Access::InOut, 16));
        graph.join(
            JoinMode::Reduce { operation: Arithmetic::Subtract, data_type: DataType::U32 },
            first,
            first,
        );
        graph.join(JoinMode::Exchange, second, second);
    }
    exact("joins: in place", program, |round| {
        let word = |rank: u32, index: u32| 1000 * (round as u32 + 1) + 17 * rank * rank + 5 * index;
        let bytes = |word: &dyn Fn(u32) -> u32| {
            (0..4).flat_map(|index| word(index).to_le_bytes()).collect::<Vec<u8>>()
        };
        let own = |rank| bytes(&|index| word(rank, index));
        let fold = |index| {
            (1..RANKS).fold(word(0, index), |left, rank| left.wrapping_sub(word(rank, index)))
        };
        let part = |rank| bytes(&|of| word(of, rank));
        (
            pairs(RANKS, |rank| [own(rank), own(rank)]),
            pairs(RANKS, |rank| [bytes(&fold), part(rank)]),
        )
    })
}

/// Contributions of zero bytes.
fn no_bytes() -> Vector {
    let mut program = world(3);
    for graph in &mut program {
        let output = graph.buffer(Access::Output, 8);
        let sum = JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::F32 };
        for mode in [JoinMode::Gather, JoinMode::Exchange, sum, JoinMode::Broadcast { root: 1 }] {
            graph.join(mode, Blocks::none(), output.part(4, 0));
        }
    }
    exact("joins: zero bytes", program, |_| {
        let buffers: Round = vec![vec![blank(8)]; 3];
        (buffers.clone(), buffers)
    })
}

/// Contributions longer than an eager message.
fn large() -> Vector {
    const RANKS: u32 = 4;
    const BYTES: u64 = 200_000;
    let mode = JoinMode::Reduce { operation: Arithmetic::Subtract, data_type: DataType::U16 };
    let program = single(RANKS, mode, BYTES, BYTES);
    exact("joins: large reduction", program, |round| {
        let own = |rank: u32| pattern(BYTES as usize, 10 * round + u64::from(rank));
        let values = |rank: u32| -> Vec<u16> {
            own(rank).chunks(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]])).collect()
        };
        let minus = |left: Vec<u16>, rank| -> Vec<u16> {
            left.into_iter()
                .zip(values(rank))
                .map(|(left, right)| left.wrapping_sub(right))
                .collect()
        };
        let result: Vec<u8> =
            (1..RANKS).fold(values(0), minus).into_iter().flat_map(u16::to_le_bytes).collect();
        let before = pairs(RANKS, |rank| [own(rank), blank(BYTES as usize)]);
        (before, pairs(RANKS, |rank| [own(rank), result.clone()]))
    })
}
