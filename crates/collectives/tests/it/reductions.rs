//! Every collective that reduces against a fold of the contributions from the left.

use crate::evaluator::Apply;
use crate::reference::{SHORT_SUM, SUM, all_exact, all_functions, apply, compose, fold};
use crate::{UNTOUCHED, rank_counts, roots, run_with, tuning};
use collectives::{
    Algorithm, Collective, CollectiveError, Reduction, Sizes, allreduce, exscan, reduce,
    reduce_scatter, scan,
};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::Graph;
use std::ops::Range;

/// Collectives that reduce.
const REDUCTIONS: [Collective; 5] = [
    Collective::Allreduce,
    Collective::Reduce,
    Collective::ReduceScatter,
    Collective::Scan,
    Collective::Exscan,
];

/// A call: its root, where it has one, and the bytes of every rank's block, of which all but a
/// reduce-scatter take the sum.
struct Call {
    ranks: u32,
    root: u32,
    blocks: Vec<u64>,
}

impl Call {
    fn bytes(&self) -> u64 {
        self.blocks.iter().sum()
    }

    fn graph(
        &self,
        (collective, algorithm): (Collective, Algorithm),
        rank: u32,
        reduction: Reduction,
    ) -> Result<Graph, CollectiveError> {
        let ranks = self.ranks;
        let bytes = self.bytes();
        match collective {
            Collective::Allreduce => allreduce::graph(algorithm, rank, ranks, bytes, reduction),
            Collective::Scan => scan::graph(algorithm, rank, ranks, bytes, reduction),
            Collective::Exscan => exscan::graph(algorithm, rank, ranks, bytes, reduction),
            Collective::Reduce => {
                let tuning = tuning(20, 3);
                reduce::graph(algorithm, rank, ranks, self.root, bytes, reduction, tuning)
            }
            _ => reduce_scatter::graph(algorithm, rank, &Sizes::each(&self.blocks)?, reduction),
        }
    }

    /// The ranks whose contributions a rank gets, and which bytes of them.
    fn result(&self, collective: Collective, rank: u32) -> (Range<u32>, Range<usize>) {
        let all = 0..self.bytes() as usize;
        match collective {
            Collective::Scan => (0..rank + 1, all),
            Collective::Exscan => (0..rank, all),
            Collective::Reduce if rank != self.root => (0..1, 0..0),
            Collective::ReduceScatter => {
                let until = |rank: u32| self.blocks[..rank as usize].iter().sum::<u64>() as usize;
                (0..self.ranks, until(rank)..until(rank + 1))
            }
            _ => (0..self.ranks, all),
        }
    }

    fn check(
        &self,
        (collective, algorithm): (Collective, Algorithm),
        apply: Apply,
        reduction: Reduction,
        inputs: &[Vec<u8>],
    ) {
        let graph = |rank| self.graph((collective, algorithm), rank, reduction).unwrap();
        let graphs: Vec<Graph> = (0..self.ranks).map(graph).collect();
        for (rank, buffers) in (0..).zip(run_with(apply, &graphs, inputs)) {
            let (contributors, bytes) = self.result(collective, rank);
            let expected = match contributors.len() {
                0 => vec![UNTOUCHED; bytes.len()],
                count => fold(apply, reduction, &inputs[..count])[bytes].to_vec(),
            };
            assert_eq!(
                buffers[1], expected,
                "{collective} by {algorithm}: rank {rank} of {}, root {}, blocks {:?}",
                self.ranks, self.root, self.blocks
            );
        }
    }
}

/// Calls of a collective with so many elements of so many bytes; blocks of a reduce-scatter also
/// differ, and some are empty.
fn calls(collective: Collective, ranks: u32, lengths: &[u64], unit: u64) -> Vec<Call> {
    let with = |root, blocks| Call { ranks, root, blocks };
    if collective == Collective::ReduceScatter {
        let different = (0..u64::from(ranks)).map(|rank| (rank * 3 + 1) % 4 * unit).collect();
        let equal = [0, 1, 3].map(|length| with(0, vec![length * unit; ranks as usize]));
        return equal.into_iter().chain([with(0, different)]).collect();
    }
    let roots: Vec<u32> = match collective {
        Collective::Reduce => roots(ranks).collect(),
        _ => vec![0],
    };
    let of_root = |root: u32| lengths.iter().map(move |length| with(root, vec![length * unit]));
    roots.into_iter().flat_map(of_root).collect()
}

/// All algorithms of all collectives that reduce.
fn algorithms() -> impl Iterator<Item = (Collective, Algorithm)> {
    REDUCTIONS.into_iter().flat_map(|collective| {
        collective.algorithms().iter().map(move |algorithm| (collective, *algorithm))
    })
}

#[test]
fn any_number_of_elements_is_added() {
    for (collective, algorithm) in algorithms() {
        for ranks in rank_counts() {
            for call in calls(collective, ranks, &[0, 1, 3, 9, 25], 2) {
                let inputs = all_exact(DataType::I16, ranks, call.bytes() / 2);
                call.check((collective, algorithm), apply, SHORT_SUM, &inputs);
            }
        }
    }
}

#[test]
fn contributions_are_combined_in_rank_order_where_that_is_claimed() {
    for collective in [Collective::Reduce, Collective::Scan, Collective::Exscan] {
        assert!(collective.algorithms().iter().all(|one| collective.keeps_rank_order(*one)));
    }
    for (collective, algorithm) in algorithms() {
        if !collective.keeps_rank_order(algorithm) {
            continue;
        }
        for ranks in rank_counts() {
            for call in calls(collective, ranks, &[1, 5, 40], 8) {
                let inputs = all_functions(ranks, call.bytes() / 8);
                call.check((collective, algorithm), compose, SUM, &inputs);
            }
        }
    }
}

#[test]
fn every_root_will_do() {
    for algorithm in Collective::Reduce.algorithms() {
        for root in 0..13 {
            let call = Call { ranks: 13, root, blocks: vec![32] };
            let which = (Collective::Reduce, *algorithm);
            call.check(which, compose, SUM, &all_functions(13, 4));
        }
    }
}

#[test]
fn what_is_not_associative_is_folded_from_the_left_or_refused() {
    let call = Call { ranks: 7, root: 3, blocks: vec![24; 7] };
    let inputs = all_exact(DataType::F64, 7, 21);
    for (collective, algorithm) in algorithms() {
        for operation in [Arithmetic::Subtract, Arithmetic::Divide] {
            let reduction = Reduction::new(operation, DataType::F64);
            if collective.folds_from_left(algorithm) {
                call.check((collective, algorithm), apply, reduction, &inputs);
            } else {
                let error = call.graph((collective, algorithm), 0, reduction).unwrap_err();
                assert!(error.to_string().contains(algorithm.name()), "{collective}: {error}");
            }
        }
    }
}
