//! After an allreduce all ranks have the same bits, and they are the sum, the maximum, ….

use crate::reference::{self, ASSOCIATIVE, SUM, exact};
use crate::run;
use collectives::{Algorithm, Collective, Reduction, allreduce};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;
use proptest::prelude::*;

fn fold(operation: Arithmetic, data_type: DataType, inputs: &[Vec<u8>]) -> Vec<u8> {
    reference::fold(reference::apply, Reduction::new(operation, data_type), inputs)
}

fn results(
    algorithm: Algorithm,
    inputs: &[Vec<u8>],
    operation: Arithmetic,
    data_type: DataType,
) -> Vec<Vec<u8>> {
    let ranks = inputs.len() as u32;
    let bytes = inputs[0].len() as u64;
    let graph = |rank| {
        allreduce::graph(algorithm, rank, ranks, bytes, Reduction::new(operation, data_type))
            .unwrap()
    };
    let graphs: Vec<Graph> = (0..ranks).map(graph).collect();
    run(&graphs, inputs).into_iter().map(|mut buffers| buffers.remove(1)).collect()
}

/// The algorithms that accept a reduction.
fn algorithms(operation: Arithmetic, data_type: DataType) -> impl Iterator<Item = Algorithm> {
    let depends_on_order = Reduction::new(operation, data_type).depends_on_order();
    let all = Collective::Allreduce.algorithms().iter().copied();
    all.filter(move |one| !depends_on_order || Collective::Allreduce.has_common_order(*one))
}

#[test]
fn every_operation_on_every_type_gives_every_rank_the_exact_result() {
    for ranks in [1, 2, 3, 6, 8, 13] {
        for data_type in DataType::ALL {
            for operation in
                ASSOCIATIVE.into_iter().filter(|operation| operation.applies_to(data_type))
            {
                let inputs: Vec<Vec<u8>> =
                    (0..ranks).map(|rank| exact(data_type, rank, 3)).collect();
                let expected = fold(operation, data_type, &inputs);
                for algorithm in algorithms(operation, data_type) {
                    for (rank, result) in
                        results(algorithm, &inputs, operation, data_type).iter().enumerate()
                    {
                        let case = format!(
                            "{algorithm}, {operation} of {data_type}: rank {rank} of {ranks}"
                        );
                        assert_eq!(*result, expected, "{case}");
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Rounding differs with the order of additions: the same bits everywhere mean the same order
    /// everywhere.
    #[test]
    fn floating_point_sums_are_the_same_bits_on_all_ranks(
        values in (1usize..=17).prop_flat_map(|ranks| {
            prop::collection::vec(prop::collection::vec(any::<f64>(), 3), ranks)
        }),
        algorithm in prop::sample::select(Collective::Allreduce.algorithms()),
        operation in prop::sample::select(&ASSOCIATIVE[..4]),
    ) {
        let wide: Vec<Vec<u8>> = values.iter().map(|row| row.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
        let narrow: Vec<Vec<u8>> =
            values.iter().map(|row| row.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect()).collect();
        for (data_type, inputs) in [(DataType::F64, wide), (DataType::F32, narrow)] {
            if !algorithms(operation, data_type).any(|one| one == algorithm) {
                continue;
            }
            let results = results(algorithm, &inputs, operation, data_type);
            prop_assert!(results.iter().all(|result| *result == results[0]));
            if operation == Arithmetic::Minimum || operation == Arithmetic::Maximum || Collective::Allreduce.folds_from_left(algorithm) {
                prop_assert_eq!(&results[0], &fold(operation, data_type, &inputs));
            }
        }
    }

    /// Sums of numbers of one sign are off by no more than the rounding of each addition.
    #[test]
    fn floating_point_sums_are_close_to_the_plain_sum(values in prop::collection::vec(0.0f64..1e6, 1..18), algorithm in prop::sample::select(algorithms(Arithmetic::Add, DataType::F64).collect::<Vec<_>>())) {
        let inputs: Vec<Vec<u8>> = values.iter().map(|value| value.to_le_bytes().to_vec()).collect();
        let plain: f64 = values.iter().sum();
        for result in results(algorithm, &inputs, Arithmetic::Add, DataType::F64) {
            let sum = f64::from_le_bytes(result.try_into().unwrap());
            prop_assert!((sum - plain).abs() <= 32.0 * f64::EPSILON * plain);
        }
    }
}

#[test]
fn an_order_of_its_own_on_every_rank_needs_an_operation_that_does_not_depend_on_it() {
    use collectives::CollectiveError::DependsOnOrder;
    let graph = |operation, data_type| {
        allreduce::graph(Algorithm::Dissemination, 0, 3, 16, Reduction::new(operation, data_type))
    };
    for (operation, data_type) in
        [Arithmetic::Add, Arithmetic::Multiply].into_iter().flat_map(|operation| {
            [DataType::F32, DataType::F64].map(|data_type| (operation, data_type))
        })
    {
        let algorithm = "dissemination";
        let expected = DependsOnOrder { operation, data_type, algorithm };
        assert_eq!(graph(operation, data_type), Err(expected));
        assert!(graph(Arithmetic::Minimum, data_type).is_ok());
        assert!(graph(operation, DataType::U32).is_ok());
    }
}

#[test]
fn two_ranks_need_one_block_of_scratchpad_and_a_join_none() {
    let scratchpad = |algorithm: Algorithm| {
        allreduce::graph(algorithm, 0, 2, 1 << 20, SUM).unwrap().scratchpad_bytes()
    };
    assert_eq!(scratchpad(Algorithm::RecursiveDoubling), 1 << 20);
    assert_eq!(scratchpad(Algorithm::Ring), 1 << 19);
    assert_eq!(scratchpad(Algorithm::Join), 0);
}
