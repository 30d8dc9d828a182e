//! Every algorithm against the plain meaning of its collective, for many numbers of ranks, sizes
//! and orders of execution.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod allreduce;
mod alltoall;
mod arguments;
mod barrier;
mod bcast;
mod blocks;
mod choice;
mod depth;
mod evaluator;
mod grid;
mod neighbor;
mod reductions;
mod reference;
mod two_level;

use collectives::Tuning;
use evaluator::{Apply, Evaluation, Protocol};
use goal::check::{self, GlobalOptions};
use goal::graph::Graph;
use std::collections::BTreeSet;

/// The numbers of ranks that every algorithm is tried with.
fn rank_counts() -> impl Iterator<Item = u32> {
    (1..=17).chain([32, 33])
}

/// Some roots among them: the first, the last and one between.
fn roots(ranks: u32) -> impl Iterator<Item = u32> {
    BTreeSet::from([0, ranks / 2, ranks - 1]).into_iter()
}

/// Segments of this many bytes, trees of this degree.
fn tuning(segment_bytes: u64, degree: u32) -> Tuning {
    Tuning { segment_bytes: segment_bytes.try_into().unwrap(), degree: degree.try_into().unwrap() }
}

/// Fill of every byte that must stay unchanged, and of every output before a run.
const UNTOUCHED: u8 = 0xA5;

/// Checks and compiles all ranks' graphs, runs them in several random orders, with eager and with
/// rendezvous messages, and returns each rank's buffers afterwards, which must be the same each
/// time. `inputs` holds each rank's input, if it has one.
fn run(graphs: &[Graph], inputs: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    run_with(reference::apply, graphs, inputs)
}

/// As [`run`], with another meaning of local operations.
fn run_with(apply: Apply, graphs: &[Graph], inputs: &[Vec<u8>]) -> Vec<Vec<Vec<u8>>> {
    for graph in graphs {
        check::graph(graph).unwrap_or_else(|problems| panic!("{}", check::list(&problems)));
        goal::compile::compile(graph).unwrap();
    }
    for eager_limit in [0, u64::MAX] {
        check::global(graphs, &GlobalOptions { eager_limit }).unwrap_or_else(|problems| {
            panic!("eager limit {eager_limit}: {}", check::list(&problems))
        });
    }
    let mut results = [
        (Protocol::Eager, 1),
        (Protocol::Rendezvous, 2),
        (Protocol::Eager, 3),
        (Protocol::Rendezvous, 4),
    ]
    .map(|(protocol, seed)| {
        let mut evaluation = Evaluation::new(graphs, inputs, protocol, apply, seed);
        evaluation.run(None);
        evaluation.finish()
    })
    .into_iter();
    let first = results.next().unwrap();
    for other in results {
        assert!(first == other, "the result depends on the order of execution");
    }
    first
}

/// A byte that differs by sender, receiver and position.
fn pattern(from: u32, to: u32, position: u64) -> u8 {
    (from.wrapping_mul(89)
        ^ to.wrapping_mul(151).rotate_left(3)
        ^ (position as u32).wrapping_mul(29)) as u8
}

/// A block of such bytes.
fn block(from: u32, to: u32, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|position| pattern(from, to, position)).collect()
}
