//! Every operation on every data type: results of the kernel's program compared with
//! `goal::arithmetic`.

use crate::world::World;
use goal::arithmetic::{Arithmetic, ArithmeticError, DataType, apply};
use goal::graph::{Access, Graph};
use kernel::Fault;
use network::backend::{Backend, CommunicatorContext};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::sync::Arc;

testing::tests![needs(Nodes, Bpf):
    arithmetic_is_that_of_goal,
];

/// Elements of a run: more than one piece.
const ELEMENTS: usize = 1200;

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
fn element(data_type: DataType) -> impl Strategy<Value = u64> {
    let close = (prop::sample::select(peculiar(data_type)), -3i64..4)
        .prop_map(|(bits, by)| bits.wrapping_add_signed(by));
    let fraction = if data_type == DataType::F32 { 23 } else { 52 };
    let like = (0u64..64, any::<u64>()).prop_map(move |(exponent, bits)| {
        let bias = if fraction == 23 { 127 } else { 1023 };
        let places = bits >> 3 & 63;
        let fraction_bits = if bits & 4 == 0 {
            bits.rotate_left(9)
        } else {
            bits.rotate_left(9) & !((1 << places) - 1)
        };
        (bits & 1) << (if fraction == 23 { 31 } else { 63 })
            | (bias - 32 + exponent) << fraction
            | fraction_bits & ((1 << fraction) - 1)
    });
    prop_oneof![2 => any::<u64>(), 2 => prop::sample::select(peculiar(data_type)), 1 => close, 3 => like]
}

fn operand(data_type: DataType) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(element(data_type), ELEMENTS).prop_map(move |elements| {
        elements.iter().flat_map(|bits| bits.to_le_bytes()[..data_type.bytes()].to_vec()).collect()
    })
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
    let all = DataType::ALL
        .into_iter()
        .flat_map(|data_type| Arithmetic::ALL.map(|operation| (operation, data_type)));
    for (operation, data_type) in
        all.filter(|(operation, data_type)| operation.applies_to(*data_type))
    {
        let cases = if data_type.is_float() { 24 } else { 4 };
        let config = ProptestConfig {
            cases,
            failure_persistence: None,
            max_shrink_iters: 2000,
            ..ProptestConfig::default()
        };
        let forms = prop::sample::select(vec![
            Form::Apart,
            Form::InPlaceLeft,
            Form::InPlaceRight,
            Form::AllOne,
        ]);
        let strategy = (operand(data_type), operand(data_type), forms);
        let outcome = TestRunner::new(config).run(&strategy, |(left, right, form)| {
            let right = if matches!(form, Form::AllOne) { left.clone() } else { right };
            let mut expected = vec![0; left.len()];
            let divided = match apply(operation, data_type, &left, &right, &mut expected) {
                Err(ArithmeticError::DivisionByZero { element }) => Some(element as u64),
                outcome => outcome.map(|()| None).expect("the blocks fit"),
            };
            let (found, fault) = compute(&world, (operation, data_type), form, &left, &right);
            let width = data_type.bytes();
            for (index, (expected, found)) in
                expected.chunks(width).zip(found.chunks(width)).enumerate()
            {
                let [left, right] =
                    [&left, &right].map(|bytes| &bytes[width * index..width * (index + 1)]);
                prop_assert_eq!(
                    expected,
                    found,
                    "element {} of {:?}, {:02x?} and {:02x?}",
                    index,
                    form,
                    left,
                    right
                );
            }
            prop_assert_eq!(divided, fault);
            Ok(())
        });
        if let Err(difference) = outcome {
            panic!("{operation} on {data_type}: {difference}");
        }
    }
}
