//! Every operation on every data type: results of the kernel's program compared with
//! `goal::arithmetic`.

use crate::world::World;
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, apply};
use goal::graph::{Access, Graph};
use kernel::Fault;
use network::backend::{Backend, CommunicatorContext};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

testing::tests![needs(Nodes, Bpf):
    arithmetic_is_that_of_goal,
    other_types_are_refused,
];

/// Elements of a run: more than one piece, and a part of a word at the end.
const ELEMENTS: usize = 1203;

/// Bit patterns of boundary cases of floating-point numbers and integers of this many bits.
fn peculiar(data_type: DataType) -> Vec<u64> {
    let (fraction, exponent) = match data_type {
        DataType::F32 => (23, 8),
        _ => (52, 11),
    };
    let width = 8 * data_type.bytes() as u32;
    let infinity = ((1u64 << exponent) - 1) << fraction;
    let one = ((1u64 << (exponent - 1)) - 1) << fraction;
    let mut bits: Vec<u64> = Vec::new();
    for base in [
        0,
        1 << fraction,
        infinity,
        one,
        one + (u64::from(fraction as u32) << fraction),
        1 << (fraction - 1),
    ] {
        bits.extend([base.wrapping_sub(2), base.wrapping_sub(1), base, base + 1, base + 2]);
    }
    bits.extend((0..width).flat_map(|shift| [1u64 << shift, (1u64 << shift).wrapping_sub(1)]));
    let signs: Vec<u64> = bits.iter().map(|bits| bits ^ 1 << (width - 1)).collect();
    [bits, signs].concat()
}

/// An element: arbitrary, a boundary case, or close to one; for floating-point numbers also numbers
/// of similar size: their sums cancel, and their quotients are close to ties.
fn element(random: &mut StdRng, data_type: DataType, peculiar: &[u64]) -> u64 {
    let boundary = peculiar[random.random_range(0..peculiar.len())];
    match random.random_range(0..8) {
        0 | 1 => random.random(),
        2 | 3 => boundary,
        4 => boundary.wrapping_add_signed(random.random_range(-3..4)),
        _ => {
            let fraction = if data_type == DataType::F32 { 23 } else { 52 };
            let bias = if fraction == 23 { 127 } else { 1023 };
            let exponent: u64 = random.random_range(0..64);
            let bits: u64 = random.random();
            // Half of the fractions end in zeros.
            let zeros = if bits & 4 == 0 { 0 } else { bits >> 3 & 63 };
            let fraction_bits = bits.rotate_left(9) & !((1 << zeros) - 1);
            (bits & 1) << (if fraction == 23 { 31 } else { 63 })
                | (bias - 32 + exponent) << fraction
                | fraction_bits & ((1 << fraction) - 1)
        }
    }
}

fn operand(random: &mut StdRng, data_type: DataType, peculiar: &[u64]) -> Vec<u8> {
    let mut element = || element(random, data_type, peculiar).to_le_bytes();
    (0..ELEMENTS).flat_map(|_| element().into_iter().take(data_type.bytes())).collect()
}

/// Blocks that coincide: none, the left operand and the destination, the right one and the
/// destination, all.
#[derive(Clone, Copy, Debug)]
enum Form {
    Apart,
    InPlaceLeft,
    InPlaceRight,
    AllOne,
}

impl Form {
    const ALL: [Form; 4] = [Form::Apart, Form::InPlaceLeft, Form::InPlaceRight, Form::AllOne];
}

/// Computes one operation in the kernel. Returns the result, and the first element that was divided
/// by zero.
fn compute(
    world: &World,
    (operation, data_type): (Arithmetic, DataType),
    form: Form,
    left: &[u8],
    right: &[u8],
) -> (Vec<u8>, Option<u64>) {
    let mut graph = Graph::new(0, 1);
    let bytes = left.len() as u64;
    let blocks = [(); 3].map(|()| graph.buffer(Access::InOut, bytes));
    let (first, second, destination) = match form {
        Form::Apart => (0, 1, 2),
        Form::InPlaceLeft => (0, 1, 0),
        Form::InPlaceRight => (0, 1, 1),
        Form::AllOne => (0, 0, 0),
    };
    graph.local(operation, data_type, blocks[first], blocks[second], blocks[destination]);
    let schedule = goal::compile::compile(&graph).expect("the graph is right");
    let inputs = Arc::new((left.to_vec(), right.to_vec()));
    let unset = vec![0; left.len()];
    let context =
        CommunicatorContext { number: world.communicator(), members: [0].into(), rank: 0 };
    let results = world.run(1, move |_, rank| {
        let prepared = rank.register(&context, &schedule, 0).expect("it is small");
        let run_id = rank.start(prepared, 0, &[&inputs.0, &inputs.1, &unset]).expect("it starts");
        assert!(rank.wait(run_id, None).expect("it can be waited for"));
        let fault = rank.fault(run_id).map(|fault| match fault {
            Fault::Division { element, .. } => element,
            other => panic!("{other:?}"),
        });
        let mut results =
            [vec![0; bytes as usize], vec![0; bytes as usize], vec![0; bytes as usize]];
        let fetched = rank.fetch(run_id, &mut results.each_mut().map(Vec::as_mut_slice));
        assert_eq!(fetched.is_err(), fault.is_some());
        rank.release(prepared);
        (results[destination].clone(), fault)
    });
    results.into_iter().next().expect("one rank ran")
}

fn arithmetic_is_that_of_goal() {
    let world = World::new(1, 1, 1500);
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    for data_type in DataType::ALL.into_iter().filter(|one| one.is_basic()) {
        let peculiar = peculiar(data_type);
        let applies = |operation: &Arithmetic| operation.applies_to(data_type);
        for operation in Arithmetic::ALL.into_iter().filter(applies) {
            let cases = if data_type.is_float() { 24 } else { 4 };
            for case in 0..cases {
                let left = operand(&mut random, data_type, &peculiar);
                let right = operand(&mut random, data_type, &peculiar);
                compare(&world, (operation, data_type), Form::ALL[case % 4], (left, right));
            }
        }
    }
}

/// The program takes the codes of types that it does not know for those of numbers that it knows.
fn other_types_are_refused() {
    let world = World::new(1, 1, 1500);
    for data_type in DataType::ALL {
        let operation = Arithmetic::ALL.into_iter().find(|one| one.applies_to(data_type));
        let mut graph = Graph::new(0, 1);
        let [left, right, destination] = [(); 3].map(|()| graph.buffer(Access::InOut, 16));
        graph.local(operation.expect("each has one"), data_type, left, right, destination);
        let schedule = goal::compile::compile(&graph).expect("the graph is right");
        assert_eq!(world.ranks[0].supports(&schedule), data_type.is_basic(), "{data_type}");
    }
}

/// Compares one operation in the kernel with the arithmetic of `goal`.
fn compare(
    world: &World,
    (operation, data_type): (Arithmetic, DataType),
    form: Form,
    (left, right): (Vec<u8>, Vec<u8>),
) {
    let right = if matches!(form, Form::AllOne) { left.clone() } else { right };
    let mut expected = vec![0; left.len()];
    let divided = match apply(operation, data_type, &left, &right, &mut expected) {
        Err(ArithmeticError::DivisionByZero { element }) => Some(element as u64),
        outcome => outcome.map(|()| None).expect("the blocks fit"),
    };
    let (found, fault) = compute(world, (operation, data_type), form, &left, &right);
    let width = data_type.bytes();
    let results = expected.chunks(width).zip(found.chunks(width));
    for (index, (expected, found)) in results.enumerate() {
        let operands = [&left, &right].map(|bytes| &bytes[width * index..width * (index + 1)]);
        assert_eq!(
            expected, found,
            "{operation} on {data_type}, element {index} of {form:?}: {operands:02x?}"
        );
    }
    assert_eq!(divided, fault, "{operation} on {data_type}, {form:?}");
}
