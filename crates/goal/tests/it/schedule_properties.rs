//! Random graphs become schedules that say what the graphs said.

use goal::check;
use goal::compile::{compile, decompile};
use goal::graph::{Block, Blocks, Edge, Graph, Memory, Operation, Until, Vertex};
use goal::schedule::{BlockRecord, Kind, OperationRecord, SCRATCHPAD, Schedule, ScheduleView};
use proptest::prelude::*;
use std::collections::HashMap;

fn edges_as_numbers(edges: impl IntoIterator<Item = Edge>) -> Vec<(u32, u32, bool)> {
    let mut edges: Vec<_> = edges
        .into_iter()
        .map(|edge| (edge.before.0, edge.after.0, edge.until == Until::Complete))
        .collect();
    edges.sort_unstable();
    edges
}

/// The edges that the records encode, between vertices.
fn decoded_edges(view: &ScheduleView<'_>) -> Vec<Edge> {
    let vertex = |operation: u32| Vertex(view.operations()[operation as usize].vertex);
    let mut edges = Vec::new();
    for record in view.operations() {
        let before = Vertex(record.vertex);
        edges.extend(view.successors(record).map(|to| Edge {
            after: vertex(to),
            before,
            until: Until::Complete,
        }));
        edges.extend(view.start_successors(record).map(|to| Edge {
            after: vertex(to),
            before,
            until: Until::Started,
        }));
    }
    edges
}

fn blocks(records: &[BlockRecord]) -> Blocks {
    let block = |record: &BlockRecord| Block {
        memory: if record.memory == SCRATCHPAD {
            Memory::Scratchpad
        } else {
            Memory::Buffer(record.memory)
        },
        offset: record.offset,
        length: record.length,
    };
    records.iter().map(block).collect::<Vec<_>>().into()
}

fn without_empty(blocks: &Blocks) -> Blocks {
    blocks.0.iter().copied().filter(|block| block.length > 0).collect::<Vec<_>>().into()
}

/// Whether a record says what the vertex said; joins are compared by their lists.
fn same(view: &ScheduleView<'_>, record: &OperationRecord, operation: &Operation) -> bool {
    let lists = [view.destination(record), view.left(record), view.right(record)].map(blocks);
    let [destination, left, right] = &lists;
    let is = |found: &Blocks, expected: &Blocks| *found == without_empty(expected);
    match operation {
        Operation::Send { data, peer, tag } => {
            record.kind() == Kind::Send
                && (record.peer, record.tag) == (*peer, *tag)
                && is(destination, data)
        }
        Operation::Receive { data, source, tag } => {
            record.kind() == Kind::Receive
                && (record.peer(), record.tag()) == (*source, *tag)
                && is(destination, data)
        }
        Operation::Local { operation, data_type, left: a, right: b, destination: to } => {
            record.arithmetic() == Some((*operation, *data_type))
                && is(left, a)
                && is(right, b)
                && is(destination, to)
        }
        Operation::Copy { source, destination: to } => {
            record.kind() == Kind::Copy && is(left, source) && is(destination, to)
        }
        Operation::Timestamp { destination: to } => {
            record.kind() == Kind::Timestamp && is(destination, &Blocks::from(*to))
        }
        Operation::Calc { nanoseconds } => {
            record.kind() == Kind::Calc && record.bytes == *nanoseconds
        }
        Operation::Join { contribution, result, .. } => {
            record.kind() == Kind::Join && is(left, contribution) && is(destination, result)
        }
    }
}

/// The k of the matching rule, counted the slow way.
fn ordinal(graph: &Graph, vertex: usize) -> u32 {
    let key = |operation: &Operation| match operation {
        Operation::Send { peer, tag, .. } => Some((0, *peer, *tag)),
        Operation::Receive { source: Some(source), tag: Some(tag), .. } => Some((1, *source, *tag)),
        Operation::Join { .. } => Some((2, 0, 0)),
        _ => None,
    };
    let mine = key(&graph.vertices()[vertex].operation);
    let earlier =
        graph.vertices()[..vertex].iter().filter(|entry| key(&entry.operation) == mine).count();
    if mine.is_some() { earlier as u32 } else { 0 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_schedule_says_what_its_graph_said(graph in crate::random_graphs::placed_graph(40)) {
        let checked = check::graph(&graph);
        prop_assert!(checked.is_ok(), "{}", check::list(&checked.unwrap_err()));
        let schedule = compile(&graph).unwrap();
        let view = schedule.view();
        prop_assert_eq!(edges_as_numbers(decoded_edges(&view)), edges_as_numbers(graph.edges().iter().copied()));
        prop_assert_eq!(view.operations().len(), graph.vertices().len());
        for record in view.operations() {
            let entry = &graph.vertices()[record.vertex as usize];
            prop_assert!(same(&view, record, &entry.operation), "{:?} for {:?}", record, entry);
            prop_assert_eq!((record.cpu, record.nic), (entry.cpu, entry.nic));
            prop_assert_eq!(record.ordinal, ordinal(&graph, record.vertex as usize));
        }
    }

    #[test]
    fn independent_operations_come_first_and_edges_lead_forward(graph in crate::random_graphs::placed_graph(40)) {
        let schedule = compile(&graph).unwrap();
        let view = schedule.view();
        let mut seen = HashMap::new();
        for (index, record) in view.operations().iter().enumerate() {
            let independent = (index as u32) < view.header().independent_count;
            prop_assert_eq!(record.dependencies == 0, independent);
            prop_assert_eq!(seen.get(&(index as u32)).copied().unwrap_or(0), record.dependencies);
            prop_assert_eq!(record.is_sink(), record.edge_count == 0);
            for target in view.successors(record).chain(view.start_successors(record)) {
                prop_assert!(target > index as u32);
                *seen.entry(target).or_insert(0) += 1;
            }
        }
    }

    #[test]
    fn a_schedule_survives_being_copied(graph in crate::random_graphs::placed_graph(20)) {
        let schedule = compile(&graph).unwrap();
        prop_assert_eq!(Schedule::from_bytes(schedule.as_bytes()).unwrap(), schedule);
    }

    #[test]
    fn a_schedule_becomes_a_graph_and_the_same_schedule_again(graph in crate::random_graphs::placed_graph(40)) {
        let schedule = compile(&graph).unwrap();
        prop_assert_eq!(compile(&decompile(&schedule)).unwrap(), schedule);
    }
}
