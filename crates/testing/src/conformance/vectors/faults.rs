//! Programs with an error: division by zero, sizes that differ.

use super::build::{ROUNDS, blank, chain, exact, pattern, world};
use crate::conformance::engine::Fault;
use crate::conformance::vector::{Expected, Vector};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, JoinMode, Vertex};

pub(super) fn vectors() -> Vec<Vector> {
    vec![
        division_by_zero(),
        division_by_zero_in_join(),
        float_division_is_no_fault(),
        sizes_differ(8, 12),
        sizes_differ(100_000, 8),
        sizes_differ(0, 1),
    ]
}

/// Returns a vector with these results and one of these faults.
fn faulty(mut vector: Vector, faults: Vec<Fault>) -> Vector {
    if let Expected::Bytes(rounds) = vector.expected {
        vector.expected = Expected::Faults(rounds, faults);
    }
    vector
}

fn words<const N: usize>(values: [i32; N]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The run completes nevertheless: later messages arrive, and the result of a division by 0 is 0.
fn division_by_zero() -> Vector {
    let mut program = world(2);
    let [left, right] = [(); 2].map(|()| program[0].buffer(Access::Input, 12));
    let result = program[0].buffer(Access::Output, 12);
    let before = program[0].copy(left, result);
    let divide = program[0].local(Arithmetic::Divide, DataType::I32, left, right, result);
    let send = program[0].send(result, 1, 0);
    chain(&mut program[0], &[before, divide, send]);
    let output = program[1].buffer(Access::Output, 12);
    program[1].receive(output, 0, 0);
    let vector = exact("faults: division by zero", program, |round| {
        let left = [90 + round as i32, -7, i32::MIN];
        let right = [0, 2, -1];
        let result = words([0, -3, i32::MIN]);
        let before = vec![vec![words(left), words(right), blank(12)], vec![blank(12)]];
        (before, vec![vec![words(left), words(right), result.clone()], vec![result]])
    });
    faulty(vector, vec![Fault { rank: 0, vertex: divide.0 }])
}

/// A division by zero in a join of all ranks; one report suffices.
fn division_by_zero_in_join() -> Vector {
    const RANKS: u32 = 3;
    let mut program = world(RANKS);
    for graph in &mut program {
        let input = graph.buffer(Access::Input, 4);
        let output = graph.buffer(Access::Output, 4);
        graph.calc(10);
        graph.join(
            JoinMode::Reduce { operation: Arithmetic::Divide, data_type: DataType::U8 },
            input,
            output,
        );
    }
    let vector = exact("faults: division by zero in a join", program, |_| {
        let own: [[u8; 4]; 3] = [[100, 100, 100, 0], [7, 0, 3, 1], [2, 5, 0, 1]];
        let buffers =
            |result: [u8; 4]| own.iter().map(|own| vec![own.to_vec(), result.to_vec()]).collect();
        (buffers([9; 4]), buffers([7, 0, 0, 0]))
    });
    faulty(vector, (0..RANKS).map(|rank| Fault { rank, vertex: 1 }).collect())
}

fn float_division_is_no_fault() -> Vector {
    let mut program = world(1);
    let [left, right] = [(); 2].map(|()| program[0].buffer(Access::Input, 12));
    let result = program[0].buffer(Access::Output, 12);
    program[0].local(Arithmetic::Divide, DataType::F32, left, right, result);
    exact("faults: dividing a floating-point number by zero is none", program, |_| {
        let words = |values: [f32; 3]| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
        };
        let operands = [words([1.0, -1.0, 0.0]), words([0.0; 3])];
        let result = words([f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7fc0_0000)]);
        (
            vec![[operands.to_vec(), vec![blank(12)]].concat()],
            vec![[operands.to_vec(), vec![result]].concat()],
        )
    })
}

/// Rank 0 sends a number of bytes, rank 1 receives another number; the error names both.
fn sizes_differ(sent: u64, received: u64) -> Vector {
    let mut program = world(2);
    let input = program[0].buffer(Access::Input, sent);
    program[0].send(input, 1, 0);
    let output = program[1].buffer(Access::Output, received);
    program[1].calc(1);
    let receive: Vertex = program[1].receive(output, 0, 0);
    assert_eq!(receive, Vertex(1), "the failure is to name it");
    let inputs = (0..ROUNDS)
        .map(|round| vec![vec![pattern(sent as usize, round)], vec![blank(received as usize)]]);
    Vector {
        name: format!("faults: {sent} bytes sent, {received} received"),
        program,
        inputs: inputs.collect(),
        expected: Expected::SizesDiffer(vec![
            "rank 0".into(),
            "rank 1".into(),
            "vertex 1".into(),
            sent.to_string(),
            received.to_string(),
        ]),
    }
}
