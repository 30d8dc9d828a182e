//! After an allreduce all ranks have the same bits, and they are the sum, the maximum, ….

use crate::{rank_counts, run};
use collectives::allreduce::{Algorithm, join, recursive_doubling};
use goal::arithmetic::{Arithmetic, DataType, apply};
use goal::graph::{Graph, Operation};
use proptest::prelude::*;

const ASSOCIATIVE: [Arithmetic; 7] = [
    Arithmetic::Add,
    Arithmetic::Multiply,
    Arithmetic::Minimum,
    Arithmetic::Maximum,
    Arithmetic::And,
    Arithmetic::Or,
    Arithmetic::Xor,
];

/// Little-endian bytes of small integers in the given type, with which floating-point arithmetic is exact: their sum
/// and product stay below 2^24 for up to 32 ranks.
fn exact(data_type: DataType, rank: u32, elements: u64) -> Vec<u8> {
    let number = |element: u64| match (u64::from(rank) * 7 + element * 5) % 11 {
        0 | 4 => 2,
        7 if data_type.is_float() || data_type >= DataType::I8 => -1,
        _ => 1,
    };
    let bytes = |number: i64| match data_type {
        DataType::F32 => (number as f32).to_le_bytes().to_vec(),
        DataType::F64 => (number as f64).to_le_bytes().to_vec(),
        _ => number.to_le_bytes()[..data_type.bytes()].to_vec(),
    };
    (0..elements).flat_map(|element| bytes(number(element))).collect()
}

/// Contribution 0 ∘ contribution 1 ∘ …, from the left.
fn fold(operation: Arithmetic, data_type: DataType, inputs: &[Vec<u8>]) -> Vec<u8> {
    inputs[1..].iter().fold(inputs[0].clone(), |sum, next| {
        let mut result = vec![0; sum.len()];
        apply(operation, data_type, &sum, next, &mut result).unwrap();
        result
    })
}

fn results(algorithm: Algorithm, inputs: &[Vec<u8>], operation: Arithmetic, data_type: DataType) -> Vec<Vec<u8>> {
    let (ranks, bytes) = (inputs.len() as u32, inputs[0].len() as u64);
    let graph = |rank| algorithm.graph(rank, ranks, bytes, operation, data_type).unwrap();
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    run(&graphs, inputs).into_iter().map(|mut buffers| buffers.remove(1)).collect()
}

#[test]
fn every_operation_on_every_type_gives_every_rank_the_exact_result() {
    for ranks in rank_counts() {
        for data_type in DataType::ALL {
            for operation in ASSOCIATIVE.into_iter().filter(|operation| operation.applies_to(data_type)) {
                let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| exact(data_type, rank, 3)).collect();
                let expected = fold(operation, data_type, &inputs);
                for algorithm in Algorithm::ALL {
                    for (rank, result) in results(*algorithm, &inputs, operation, data_type).iter().enumerate() {
                        let case = format!("{algorithm}, {operation} of {data_type}: rank {rank} of {ranks}");
                        assert_eq!(*result, expected, "{case}");
                    }
                }
            }
        }
    }
}

#[test]
fn any_number_of_elements_will_do() {
    for elements in [0, 1, 2, 9, 100] {
        let inputs: Vec<Vec<u8>> = (0..6).map(|rank| exact(DataType::I16, rank, elements)).collect();
        let expected = fold(Arithmetic::Add, DataType::I16, &inputs);
        for algorithm in Algorithm::ALL {
            let results = results(*algorithm, &inputs, Arithmetic::Add, DataType::I16);
            assert!(results.iter().all(|result| *result == expected), "{algorithm}, {elements} elements");
        }
    }
}

#[test]
fn a_join_folds_in_rank_order_whatever_the_operation() {
    let inputs: Vec<Vec<u8>> = (0..7).map(|rank| exact(DataType::F64, rank, 3)).collect();
    for operation in [Arithmetic::Subtract, Arithmetic::Divide] {
        let expected = fold(operation, DataType::F64, &inputs);
        let results = results(Algorithm::Join, &inputs, operation, DataType::F64);
        assert!(results.iter().all(|result| *result == expected), "{operation}");
    }
}

/// A subtraction in place of the addition makes visible who stands on the left: if both partners did not compute the
/// same expression, they would get different differences.
#[test]
fn partners_compute_the_same_expression_with_the_lower_rank_on_the_left() {
    for ranks in rank_counts() {
        let graphs: Vec<Graph> = (0..ranks)
            .map(|rank| {
                let mut graph = recursive_doubling(rank, ranks, 8, Arithmetic::Add, DataType::I64).unwrap();
                for vertex in (0..graph.vertices().len() as u32).map(goal::graph::Vertex) {
                    if let Operation::Local { operation, .. } = &mut graph.vertex_mut(vertex).unwrap().operation {
                        *operation = Arithmetic::Subtract;
                    }
                }
                graph
            })
            .collect();
        let inputs: Vec<Vec<u8>> = (0..ranks).map(|rank| (1i64 << rank).to_le_bytes().to_vec()).collect();
        let results = run(&graphs, &inputs);
        assert!(results.iter().all(|buffers| buffers[1] == results[0][1]), "{ranks} ranks");
        // Rank 0 is always the leftmost operand, and every rank takes part exactly once, as itself or its negative.
        let result = i64::from_le_bytes(results[0][1].as_slice().try_into().unwrap());
        let everybody = (1i64 << ranks) - 1;
        let subtracted = (everybody - result) / 2;
        assert_eq!((everybody - result) % 2, 0);
        assert!((0..=everybody).contains(&subtracted) && subtracted & 1 == 0, "{ranks} ranks: {result}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Rounding differs with the order of additions: the same bits everywhere mean the same order everywhere.
    #[test]
    fn floating_point_sums_are_the_same_bits_on_all_ranks(
        values in (1usize..=17).prop_flat_map(|ranks| {
            prop::collection::vec(prop::collection::vec(any::<f64>(), 3), ranks)
        }),
        algorithm in prop::sample::select(Algorithm::ALL),
        operation in prop::sample::select(&ASSOCIATIVE[..4]),
    ) {
        let wide: Vec<Vec<u8>> = values.iter().map(|row| row.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
        let narrow: Vec<Vec<u8>> =
            values.iter().map(|row| row.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect()).collect();
        for (data_type, inputs) in [(DataType::F64, wide), (DataType::F32, narrow)] {
            let results = results(algorithm, &inputs, operation, data_type);
            prop_assert!(results.iter().all(|result| *result == results[0]));
            if operation == Arithmetic::Minimum || operation == Arithmetic::Maximum || algorithm == Algorithm::Join {
                prop_assert_eq!(&results[0], &fold(operation, data_type, &inputs));
            }
        }
    }

    /// Sums of numbers of one sign are off by no more than the rounding of each addition.
    #[test]
    fn floating_point_sums_are_close_to_the_plain_sum(values in prop::collection::vec(0.0f64..1e6, 1..18)) {
        let inputs: Vec<Vec<u8>> = values.iter().map(|value| value.to_le_bytes().to_vec()).collect();
        let plain: f64 = values.iter().sum();
        for result in results(Algorithm::RecursiveDoubling, &inputs, Arithmetic::Add, DataType::F64) {
            let sum = f64::from_le_bytes(result.try_into().unwrap());
            prop_assert!((sum - plain).abs() <= 32.0 * f64::EPSILON * plain);
        }
    }
}

#[test]
fn two_ranks_need_one_block_of_scratchpad_and_a_join_none() {
    let graph = recursive_doubling(0, 2, 1 << 20, Arithmetic::Add, DataType::F64).unwrap();
    assert_eq!(graph.scratchpad_bytes(), 1 << 20);
    assert_eq!(join(0, 2, 1 << 20, Arithmetic::Add, DataType::F64).unwrap().scratchpad_bytes(), 0);
}
