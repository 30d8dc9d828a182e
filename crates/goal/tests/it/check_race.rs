//! The checker on operations that use the same bytes without an order, against a plain reference.

use goal::arithmetic::{Arithmetic, DataType};
use goal::check::{self, Problem};
use goal::graph::{Access, Block, Graph, JoinMode, Operation, Until, Vertex};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn unordered(graph: &Graph) -> BTreeSet<(u32, u32)> {
    let problems = check::graph(graph).err().unwrap_or_default();
    let pair = |problem: &Problem| match problem {
        Problem::Unordered { first, second, .. } => Some((first.vertex.0, second.vertex.0)),
        Problem::MoreUnordered { .. } => None,
        other => panic!("{other}"),
    };
    problems.iter().filter_map(pair).collect()
}

fn buffer() -> (Graph, Block) {
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::InOut, 64);
    (graph, block)
}

#[test]
fn two_writes_need_an_order() {
    let (mut graph, block) = buffer();
    let first = graph.receive(block, 1, 0);
    let second = graph.receive(block.part(63, 1), 1, 1);
    let problems = check::graph(&graph).unwrap_err();
    assert!(
        matches!(&problems[..], [Problem::Unordered { block, both_write: true, .. }] if *block == Block {
            memory: block.memory,
            offset: 63,
            length: 1
        })
    );
    assert_eq!(
        check::list(&problems),
        "[rank 0, vertex 0: recv 64b from 1 tag 0] and [rank 0, vertex 1: recv 1b from 1 tag 1] may run at the same \
         time, and both use 1 bytes from byte 63 of buffer 0 (both write): let one require the other (irequires does \
         not wait for completion)"
    );
    graph.requires(second, first);
    assert!(unordered(&graph).is_empty());
}

#[test]
fn a_write_and_a_read_need_an_order_and_two_reads_do_not() {
    let (mut graph, block) = buffer();
    graph.send(block, 1, 0);
    graph.send(block, 1, 1);
    assert!(unordered(&graph).is_empty());
    graph.receive(block.part(0, 1), 1, 2);
    assert_eq!(unordered(&graph), [(0, 2), (1, 2)].into());
}

#[test]
fn having_started_is_not_having_completed() {
    let (mut graph, block) = buffer();
    let first = graph.send(block, 1, 0);
    let second = graph.receive(block, 1, 1);
    graph.irequires(second, first);
    assert_eq!(unordered(&graph), [(0, 1)].into());
}

#[test]
fn a_start_edge_behind_a_completion_is_enough_and_before_it_is_not() {
    for (first_complete, expected) in [(true, 0), (false, 1)] {
        let (mut graph, block) = buffer();
        let first = graph.send(block, 1, 0);
        let middle = graph.calc(1);
        let last = graph.receive(block, 1, 1);
        if first_complete {
            graph.requires(middle, first);
            graph.irequires(last, middle);
        } else {
            graph.irequires(middle, first);
            graph.requires(last, middle);
        }
        assert_eq!(unordered(&graph).len(), expected);
    }
}

#[test]
fn a_local_operation_in_place_is_no_race_with_itself() {
    let (mut graph, block) = buffer();
    let other = graph.buffer(Access::Input, 64);
    let first = graph.local(Arithmetic::Add, DataType::U8, block, other, block);
    let second = graph.local(Arithmetic::Add, DataType::U8, other, block, block);
    assert_eq!(unordered(&graph), [(0, 1)].into());
    graph.requires(second, first);
    assert!(unordered(&graph).is_empty());
}

#[test]
fn joins_timestamps_and_the_scratchpad_count_too() {
    let mut graph = Graph::new(0, 2);
    let temporary = graph.scratchpad(64);
    graph.join(JoinMode::Exchange, temporary.part(0, 16), temporary.part(16, 16));
    graph.timestamp(temporary.part(8, 8));
    graph.timestamp(temporary.part(16, 8));
    graph.timestamp(temporary.part(32, 8));
    assert_eq!(unordered(&graph), [(0, 1), (0, 2)].into());
}

#[test]
fn a_flood_of_pairs_is_cut() {
    let (mut graph, block) = buffer();
    for tag in 0..500 {
        graph.receive(block, 1, tag);
    }
    let problems = check::graph(&graph).unwrap_err();
    assert!(problems.len() < 50);
    assert!(matches!(problems.last(), Some(Problem::MoreUnordered { rank: 0, left_out: 400.. })));
}

/// 10^5 operations in the shapes that would be quadratic if all that share bytes were compared.
#[test]
fn large_graphs_are_checked_in_time() {
    const COUNT: u32 = 100_000;
    // A chain in which everybody updates the same bytes.
    let (mut graph, block) = buffer();
    let all: Vec<Vertex> = (0..COUNT).map(|_| graph.receive(block, 1, 0)).collect();
    for pair in all.windows(2) {
        graph.requires(pair[1], pair[0]);
    }
    assert!(unordered(&graph).is_empty());
    // Half of them read the same bytes, before one vertex, the others overwrite parts of it.
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::InOut, u64::from(COUNT));
    let middle = graph.calc(1);
    for part in 0..COUNT / 2 {
        let read = graph.send(block, 1, 0);
        graph.requires(middle, read);
        let write = graph.receive(block.part(u64::from(part), 1), 1, 0);
        graph.requires(write, middle);
    }
    assert!(unordered(&graph).is_empty());
    // Each waits for the one a thousand before it.
    let (mut graph, block) = buffer();
    for index in 0..COUNT {
        let update = graph.timestamp(block.part(0, 8));
        if index >= 1 {
            graph.requires(update, Vertex(index - 1));
        }
        if index >= 1000 {
            graph.requires(update, Vertex(index - 1000));
        }
    }
    assert!(unordered(&graph).is_empty());
}

/// What the checker should find, by comparing all pairs.
fn reference(graph: &Graph) -> BTreeSet<(u32, u32)> {
    let count = graph.vertices().len();
    let mut started = vec![vec![false; count]; count];
    for edge in graph.edges() {
        started[edge.before.index()][edge.after.index()] = true;
    }
    for middle in 0..count {
        for from in 0..count {
            for to in 0..count {
                started[from][to] |= started[from][middle] && started[middle][to];
            }
        }
    }
    let mut completed = vec![vec![false; count]; count];
    for edge in graph.edges().iter().filter(|edge| edge.until == Until::Complete) {
        let from = edge.before.index();
        let over = edge.after.index();
        for (to, completed) in completed[from].iter_mut().enumerate() {
            *completed |= to == over || started[over][to];
        }
    }
    let is_race = |(left, right): &(usize, usize)| {
        !completed[*left][*right] && !completed[*right][*left] && conflict(graph, *left, *right)
    };
    let pairs = (0..count).flat_map(|right| (0..right).map(move |left| (left, right)));
    pairs.filter(is_race).map(|(left, right)| (left as u32, right as u32)).collect()
}

/// Whether one writes what the other uses; sends read, receives write, copies do both.
fn conflict(graph: &Graph, left: usize, right: usize) -> bool {
    let uses = |vertex: usize| -> (Vec<Block>, Vec<Block>) {
        match &graph.vertices()[vertex].operation {
            Operation::Send { data, .. } => (data.0.clone(), Vec::new()),
            Operation::Receive { data, .. } => (Vec::new(), data.0.clone()),
            Operation::Copy { source, destination } => (source.0.clone(), destination.0.clone()),
            _ => (Vec::new(), Vec::new()),
        }
    };
    let touch = |left: &[Block], right: &[Block]| {
        left.iter().any(|a| {
            right
                .iter()
                .any(|b| a.offset.max(b.offset) < (a.offset + a.length).min(b.offset + b.length))
        })
    };
    let ((left_reads, left_writes), (right_reads, right_writes)) = (uses(left), uses(right));
    touch(&left_writes, &right_writes)
        || touch(&left_writes, &right_reads)
        || touch(&left_reads, &right_writes)
}

type Draft = (Vec<(u8, u64, u64)>, Vec<(usize, usize, bool)>);

fn draft(most: usize) -> impl Strategy<Value = Draft> {
    (2..most).prop_flat_map(|count| {
        let vertices = prop::collection::vec((0u8..4, 0u64..24, 0u64..9), count);
        let edges =
            prop::collection::vec((0..count, 0..count, prop::bool::weighted(0.8)), 0..3 * count);
        (vertices, edges)
    })
}

fn drawn((vertices, edges): &Draft) -> Graph {
    let (mut graph, block) = buffer();
    for (kind, offset, length) in vertices {
        let low = block.part(*offset, *length);
        let high = block.part(32 + *offset, *length);
        match kind {
            0 => graph.send(low, 1, 0),
            1 => graph.receive([low, high], 1, 0),
            2 => graph.copy(low, high),
            _ => graph.calc(1),
        };
    }
    for (left, right, complete) in edges.iter().filter(|(left, right, _)| left != right) {
        let before = Vertex(*left.min(right) as u32);
        let after = Vertex(*left.max(right) as u32);
        if *complete { graph.requires(after, before) } else { graph.irequires(after, before) }
    }
    graph
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// Not every pair is reported (those that follow from others are not), but every one that is,
    /// is one, and if there is any, one is reported.
    #[test]
    fn races_are_found_and_only_races(draft in draft(14)) {
        let graph = drawn(&draft);
        let found = unordered(&graph);
        let expected = reference(&graph);
        prop_assert!(found.is_subset(&expected), "{found:?} not in {expected:?}");
        prop_assert_eq!(found.is_empty(), expected.is_empty(), "{:?}", expected);
    }

    /// Ordering what was reported, one pair after the other, leads to a graph without races.
    #[test]
    fn what_is_reported_leads_to_a_sound_graph(draft in draft(14)) {
        let mut graph = drawn(&draft);
        while let Some((first, second)) = unordered(&graph).first().copied() {
            graph.requires(Vertex(second), Vertex(first));
        }
        prop_assert!(reference(&graph).is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// More operations than are looked at in one pass.
    #[test]
    fn what_is_reported_of_a_large_graph_leads_to_a_sound_one(draft in draft(130)) {
        let mut graph = drawn(&draft);
        loop {
            let found = unordered(&graph);
            if found.is_empty() {
                break;
            }
            for (first, second) in found {
                graph.requires(Vertex(second), Vertex(first));
            }
        }
        prop_assert!(reference(&graph).is_empty());
    }
}
