//! The checker on the graphs of all ranks: messages, wildcards, joins, and operations that wait for
//! each other.

use crate::random_graphs::Sequence;
use goal::arithmetic::{Arithmetic, DataType};
use goal::check::{self, GlobalOptions, Problem};
use goal::graph::{Block, Blocks, Graph, JoinMode, Operation, Until, Vertex};
use goal::matching::{Endpoint, pair};
use proptest::prelude::*;

const LIMIT: u64 = 32;

fn empty(ranks: u32) -> Vec<Graph> {
    (0..ranks).map(|rank| Graph::new(rank, ranks)).collect()
}

fn bytes(length: u64) -> Block {
    Block::unplaced(length)
}

fn problems(graphs: &[Graph]) -> Vec<Problem> {
    check::global(graphs, &GlobalOptions { eager_limit: LIMIT }).err().unwrap_or_default()
}

fn problem(graphs: &[Graph]) -> Problem {
    let mut problems = problems(graphs);
    assert_eq!(problems.len(), 1, "{}", check::list(&problems));
    problems.remove(0)
}

#[test]
fn graphs_are_those_of_all_ranks_in_order() {
    assert!(problems(&[]).is_empty());
    assert!(problems(&empty(3)).is_empty());
    let twice = [Graph::new(0, 2), Graph::new(0, 2)];
    assert_eq!(problem(&twice), Problem::Position { position: 1, graphs: 2, rank: 0, ranks: 2 });
    assert_eq!(
        problem(&[Graph::new(0, 2)]),
        Problem::Position { position: 0, graphs: 1, rank: 0, ranks: 2 }
    );
}

#[test]
fn problems_of_one_rank_are_reported_too() {
    let mut graphs = empty(2);
    graphs[1].send(bytes(1), 2, 0);
    assert!(
        problems(&graphs).iter().any(|problem| matches!(problem, Problem::Peer { peer: 2, .. }))
    );
}

#[test]
fn a_flood_of_problems_is_cut() {
    let mut graphs = empty(2);
    for tag in 0..5000 {
        graphs[0].send(bytes(8), 1, tag);
    }
    let found = problems(&graphs);
    assert!(found.len() < 5000 && matches!(found.last(), Some(Problem::More { left_out: 4000 })));
}

#[test]
fn every_send_has_a_receive_and_the_reverse() {
    let mut graphs = empty(3);
    graphs[0].send(bytes(8), 1, 7);
    let message = problem(&graphs).to_string();
    assert_eq!(
        message,
        "[rank 0, vertex 0: send 8b to 1 tag 7] has no receive: rank 1 lacks one from rank 0 with this tag: add it or \
         remove the send"
    );
    graphs[1].receive(bytes(8), 0, 8);
    let found = problems(&graphs);
    assert!(matches!(
        &found[..],
        [
            Problem::ReceiveWithoutSend { source_rank: Some(0), .. },
            Problem::SendWithoutReceive { peer: 1, .. }
        ]
    ));
    graphs[1].receive(bytes(8), 0, 7);
    graphs[0].send(bytes(8), 1, 8);
    assert!(problems(&graphs).is_empty());
}

#[test]
fn sizes_are_equal() {
    for (sent, expected) in [(8, 9), (9, 8), (0, 1)] {
        let mut graphs = empty(2);
        graphs[0].send(bytes(sent), 1, 0);
        graphs[1].receive([bytes(expected), bytes(0)], 0, 0);
        let found = problem(&graphs);
        assert!(
            matches!(found, Problem::SizesDiffer { sent: s, expected: e, .. } if (s, e) == (sent, expected))
        );
        assert!(found.to_string().contains("[rank 0, vertex 0: send"), "{found}");
        assert!(found.to_string().contains("[rank 1, vertex 0: recv"), "{found}");
    }
}

#[test]
fn messages_pair_in_vertex_order_whatever_the_edges_say() {
    let mut graphs = empty(2);
    let late = graphs[0].send(bytes(1), 1, 0);
    let early = graphs[0].send(bytes(2), 1, 0);
    graphs[0].requires(late, early);
    graphs[1].receive(bytes(1), 0, 0);
    graphs[1].receive(bytes(2), 0, 0);
    assert!(problems(&graphs).is_empty());
}

#[test]
fn wildcards_take_what_is_left() {
    let mut graphs = empty(3);
    graphs[1].send(bytes(8), 0, 1);
    graphs[1].send(bytes(8), 0, 2);
    graphs[2].send(bytes(8), 0, 2);
    // Only (any, 2) admits rank 2's message, so (1, any) must take the other.
    graphs[0].receive(bytes(8), 1, None);
    graphs[0].receive(bytes(8), None, 2);
    graphs[0].receive(bytes(8), 1, 2);
    assert!(problems(&graphs).is_empty());
    graphs[0].receive(bytes(8), None, None);
    assert!(matches!(problem(&graphs), Problem::ReceiveWithoutSend { source_rank: None, .. }));
    graphs[0].send(bytes(9), 0, 0);
    assert!(matches!(problem(&graphs), Problem::SizesDiffer { sent: 9, expected: 8, .. }));
}

#[test]
fn a_hundred_thousand_wildcards_are_assigned_in_time() {
    const COUNT: u32 = 50_000;
    let mut graphs = empty(2);
    for tag in 0..COUNT {
        graphs[1].send(bytes(8), 0, tag);
        graphs[1].send(bytes(8), 0, tag);
        graphs[0].receive(bytes(8), None, tag);
        graphs[0].receive(bytes(8), 1, None);
    }
    assert!(problems(&graphs).is_empty());
}

#[test]
fn joins_are_the_same_everywhere() {
    let barrier = |graph: &mut Graph| graph.join(JoinMode::Barrier, Blocks::none(), Blocks::none());
    let mut graphs = empty(3);
    barrier(&mut graphs[0]);
    barrier(&mut graphs[1]);
    assert_eq!(problem(&graphs), Problem::JoinCounts { rank: 2, count: 0, expected: 1 });
    barrier(&mut graphs[2]);
    barrier(&mut graphs[2]);
    assert_eq!(problem(&graphs), Problem::JoinCounts { rank: 2, count: 2, expected: 1 });
    graphs[2] = Graph::new(2, 3);
    graphs[2].join(JoinMode::Gather, bytes(8), Blocks::none());
    assert!(matches!(
        problem(&graphs),
        Problem::JoinModes { number: 0, found: JoinMode::Gather, .. }
    ));

    let reduce = JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::U8 };
    for (mode, length) in [(reduce, 6), (JoinMode::Gather, 6), (JoinMode::Exchange, 6)] {
        let mut graphs = empty(3);
        for (rank, graph) in graphs.iter_mut().enumerate() {
            graph.join(mode, bytes(length * (1 + rank as u64 / 2)), Blocks::none());
        }
        assert!(matches!(
            problem(&graphs),
            Problem::JoinSizes { number: 0, found: 12, expected: 6, .. }
        ));
    }
}

#[test]
fn a_broadcast_has_its_roots_length() {
    let mut graphs = empty(3);
    let mode = JoinMode::Broadcast { root: 1 };
    graphs[0].join(mode, Blocks::none(), Blocks::none());
    graphs[1].join(mode, bytes(8), Blocks::none());
    graphs[2].join(mode, Blocks::none(), bytes(8));
    assert!(problems(&graphs).is_empty());
    graphs[0].vertex_mut(Vertex(0)).unwrap().operation =
        Operation::Join { mode, contribution: Blocks::none(), result: bytes(9).into() };
    assert!(matches!(problem(&graphs), Problem::JoinSizes { found: 9, expected: 8, .. }));
}

/// Both ranks send to each other before they receive.
fn exchange(length: u64) -> Vec<Graph> {
    let mut graphs = empty(2);
    for (rank, graph) in graphs.iter_mut().enumerate() {
        let send = graph.send(bytes(length), 1 - rank as u32, 0);
        let receive = graph.receive(bytes(length), 1 - rank as u32, 0);
        graph.requires(receive, send);
    }
    graphs
}

#[test]
fn sends_above_the_limit_wait_for_their_receives() {
    assert!(problems(&exchange(LIMIT)).is_empty());
    let found = problem(&exchange(LIMIT + 1));
    let Problem::Deadlock { cycle, eager_limit: LIMIT, least } = &found else { panic!("{found}") };
    assert_eq!(*least, Some(LIMIT + 1), "{found}");
    let places: Vec<_> = cycle.iter().map(|place| (place.rank, place.vertex.0)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert!(check::global(&exchange(1 << 40), &GlobalOptions::default()).is_ok());
}

/// Both ranks receive before they send.
fn answers(length: u64) -> Vec<Graph> {
    let mut graphs = empty(2);
    for (rank, graph) in graphs.iter_mut().enumerate() {
        let receive = graph.receive(bytes(length), 1 - rank as u32, 0);
        let send = graph.send(bytes(length), 1 - rank as u32, 0);
        graph.requires(send, receive);
    }
    graphs
}

#[test]
fn receives_that_wait_for_answers_to_later_sends_wait_for_ever() {
    let graphs = answers(1);
    let found = problem(&graphs);
    assert!(matches!(&found, Problem::Deadlock { cycle, .. } if cycle.len() == 4), "{found}");
    assert!(found.to_string().contains("with every eager limit"), "{found}");
    assert_eq!(check::least_eager_limit(&graphs), None);
}

#[test]
fn the_least_eager_limit_is_the_longest_message_that_must_not_wait() {
    assert_eq!(check::least_eager_limit(&empty(3)), Some(0));
    // One exchange after the other: each waits for itself only.
    let mut graphs = exchange(300);
    for (rank, graph) in graphs.iter_mut().enumerate() {
        let peer = 1 - rank as u32;
        let receive = graph.receive(bytes(9000), peer, 1);
        let send = graph.send(bytes(9000), peer, 1);
        let short = graph.send(bytes(7), peer, 2);
        let last = graph.receive(bytes(7), peer, 2);
        graph.requires(receive, Vertex(1));
        graph.requires(send, Vertex(1));
        graph.requires(short, send);
        graph.requires(last, short);
    }
    // The long messages are received at once, whatever the limit.
    assert_eq!(check::least_eager_limit(&graphs), Some(300));
    for limit in [0, 6, 7, 299, 300, 301, 9000, u64::MAX] {
        let outcome = check::global(&graphs, &GlobalOptions { eager_limit: limit });
        assert_eq!(outcome.is_ok(), limit >= 300, "{limit}: {outcome:?}");
    }
}

#[test]
fn a_cycle_that_no_limit_breaks_is_named_before_others() {
    let mut graphs = exchange(300);
    for (rank, graph) in graphs.iter_mut().enumerate() {
        let receive = graph.receive(bytes(1), 1 - rank as u32, 1);
        let send = graph.send(bytes(1), 1 - rank as u32, 1);
        graph.requires(send, receive);
    }
    let found = check::global(&graphs, &GlobalOptions { eager_limit: 0 }).expect_err("two cycles");
    let [Problem::Deadlock { cycle, least: None, .. }] = &found[..] else { panic!("{found:?}") };
    let mut vertices: Vec<_> = cycle.iter().map(|place| place.vertex.0).collect();
    vertices.sort_unstable();
    assert_eq!(vertices, [2, 2, 3, 3], "{found:?}");
}

#[test]
fn joins_wait_for_everyone_and_a_broadcast_for_its_root() {
    let cross = |mode: JoinMode| {
        let mut graphs = empty(2);
        let length = if mode == JoinMode::Barrier { 0 } else { 8 };
        graphs[0].join(mode, bytes(length), Blocks::none());
        let join = graphs[1].join(mode, Blocks::none(), bytes(length));
        // Rank 1 comes to the join when rank 0 has left it.
        let send = graphs[0].send(bytes(1), 1, 0);
        let receive = graphs[1].receive(bytes(1), 0, 0);
        graphs[0].requires(send, Vertex(0));
        graphs[1].requires(join, receive);
        graphs
    };
    assert!(matches!(problem(&cross(JoinMode::Barrier)), Problem::Deadlock { .. }));
    assert!(problems(&cross(JoinMode::Broadcast { root: 0 })).is_empty());
}

#[test]
fn wildcards_raise_no_false_alarm() {
    let mut graphs = exchange(LIMIT + 1);
    for graph in &mut graphs {
        graph.vertex_mut(Vertex(1)).unwrap().operation =
            Operation::Receive { data: bytes(LIMIT + 1).into(), source: None, tag: Some(0) };
    }
    assert!(problems(&graphs).is_empty());
}

/// Whether the receives can take the sends, one each, by trying all ways.
fn assignable(sends: &[Endpoint], receives: &mut Vec<Endpoint>) -> bool {
    let Some((send, rest)) = sends.split_first() else { return receives.is_empty() };
    (0..receives.len()).any(|index| {
        let receive = receives.remove(index);
        let fits =
            receive.admits(send) && receive.bytes == send.bytes && assignable(rest, receives);
        receives.insert(index, receive);
        fits
    })
}

/// Messages to and from wildcards, often of a number that fits.
fn wildcard_graphs(seed: u64) -> Vec<Graph> {
    let mut sequence = Sequence(seed);
    let mut graphs = empty(3);
    for _ in 0..1 + sequence.below(5) {
        let (from, tag, length) =
            (sequence.below(3), sequence.below(3) as u32, 1 + sequence.below(2) as u64);
        graphs[from].send(bytes(length), 0, tag);
        let [source, received_tag] = [from as u32, tag].map(|value| match sequence.below(8) {
            0 => Some((value + 1) % 3),
            1 | 2 => Some(value),
            _ => None,
        });
        graphs[0].receive(
            bytes(if sequence.below(10) == 0 { 3 - length } else { length }),
            source,
            received_tag,
        );
    }
    graphs
}

/// What must hold: vertex order pairs those that are named, and the rest can be assigned.
fn matches(graphs: &[Graph]) -> bool {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for graph in graphs {
        for (index, entry) in graph.vertices().iter().enumerate() {
            let rank = graph.rank();
            let operation = index as u32;
            match &entry.operation {
                Operation::Send { data, peer, tag } => {
                    let peer = Some(*peer);
                    let tag = Some(*tag);
                    let bytes = data.bytes().unwrap();
                    sends.push(Endpoint { rank, operation, peer, tag, bytes });
                }
                Operation::Receive { data, source, tag } => {
                    let bytes = data.bytes().unwrap();
                    receives.push(Endpoint { rank, operation, peer: *source, tag: *tag, bytes });
                }
                _ => {}
            }
        }
    }
    let mut pairing = pair(&sends, &receives);
    pairing.pairs.iter().all(|(send, receive)| send.bytes == receive.bytes)
        && pairing.lonely_receives.is_empty()
        && assignable(&pairing.open_sends, &mut pairing.wildcards)
}

/// Messages between named ranks, joins and edges; lengths on both sides of the limit.
fn waiting_graphs(seed: u64) -> Vec<Graph> {
    let mut sequence = Sequence(seed);
    let mut graphs = empty(2 + sequence.below(2) as u32);
    for number in 0..1 + sequence.below(6) as u32 {
        let from = sequence.below(graphs.len());
        let to = sequence.below(graphs.len());
        let length = [LIMIT, LIMIT + 1][sequence.below(2)];
        match sequence.below(5) {
            0 => graphs.iter_mut().for_each(|graph| {
                drop_vertex(graph.join(JoinMode::Gather, bytes(4), Blocks::none()))
            }),
            1 => graphs.iter_mut().for_each(|graph| {
                let contribution =
                    if graph.rank() == from as u32 { bytes(4).into() } else { Blocks::none() };
                graph.join(JoinMode::Broadcast { root: from as u32 }, contribution, Blocks::none());
            }),
            _ => {
                graphs[from].send(bytes(length), to as u32, number);
                graphs[to].receive(bytes(length), from as u32, number);
            }
        }
    }
    for graph in &mut graphs {
        let count = graph.vertices().len();
        // Forward in an order that has nothing to do with the vertices' numbers: no cycle within
        // the rank.
        let order = crate::random_graphs::shuffled(count, sequence.next());
        for _ in 0..if count > 1 { sequence.below(2 * count) } else { 0 } {
            let left = sequence.below(count - 1);
            let right = left + 1 + sequence.below(count - left - 1);
            let before = Vertex(order[left] as u32);
            let after = Vertex(order[right] as u32);
            if sequence.below(4) > 0 {
                graph.requires(after, before)
            } else {
                graph.irequires(after, before)
            }
        }
    }
    graphs
}

fn drop_vertex(_: Vertex) {}

/// Runs the graphs until nothing moves, and says whether everything has completed.
fn completes(graphs: &[Graph]) -> bool {
    let mut started: Vec<Vec<bool>> =
        graphs.iter().map(|graph| vec![false; graph.vertices().len()]).collect();
    let mut completed = started.clone();
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (rank, graph) in graphs.iter().enumerate() {
            for index in 0..graph.vertices().len() {
                let ready =
                    graph.edges().iter().filter(|edge| edge.after.index() == index).all(|edge| {
                        let list =
                            if edge.until == Until::Complete { &completed } else { &started };
                        list[rank][edge.before.index()]
                    });
                if ready && !started[rank][index] {
                    started[rank][index] = true;
                    moved = true;
                }
                if started[rank][index]
                    && !completed[rank][index]
                    && may_complete(graphs, &started, rank, index)
                {
                    completed[rank][index] = true;
                    moved = true;
                }
            }
        }
    }
    completed.iter().flatten().all(|completed| *completed)
}

/// Whether an operation that has started can complete. Tags are unique, so a message's ends find
/// each other by tag.
fn may_complete(graphs: &[Graph], started: &[Vec<bool>], rank: usize, index: usize) -> bool {
    let partner_started = |peer: u32, wanted: u32| {
        let of_message = |operation: &Operation| match operation {
            Operation::Send { tag, .. } => Some((true, *tag)),
            Operation::Receive { tag, .. } => tag.map(|tag| (false, tag)),
            _ => None,
        };
        let is_send = matches!(graphs[rank].vertices()[index].operation, Operation::Send { .. });
        let vertices = graphs[peer as usize].vertices();
        let at = vertices
            .iter()
            .position(|entry| of_message(&entry.operation) == Some((!is_send, wanted)))
            .unwrap();
        started[peer as usize][at]
    };
    let joins = |rank: usize| {
        let entries = graphs[rank].vertices().iter().enumerate();
        entries
            .filter(|(_, entry)| matches!(entry.operation, Operation::Join { .. }))
            .map(|(index, _)| index)
    };
    match &graphs[rank].vertices()[index].operation {
        Operation::Send { data, peer, tag } => {
            data.bytes().unwrap() <= LIMIT || partner_started(*peer, *tag)
        }
        Operation::Receive { source, tag, .. } => partner_started(source.unwrap(), tag.unwrap()),
        Operation::Join { mode, .. } => {
            let number = joins(rank).position(|vertex| vertex == index).unwrap();
            let has_started = |other: usize| started[other][joins(other).nth(number).unwrap()];
            match mode {
                JoinMode::Broadcast { root } => has_started(*root as usize),
                _ => (0..graphs.len()).all(has_started),
            }
        }
        _ => true,
    }
}

/// Whether each operation of a reported cycle is there once and they are more than one.
fn is_round(problem: &Problem) -> bool {
    let Problem::Deadlock { cycle, .. } = problem else { return false };
    let mut places: Vec<_> = cycle.iter().map(|place| (place.rank, place.vertex)).collect();
    places.sort_unstable();
    places.dedup();
    places.len() == cycle.len() && places.len() > 1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn wildcards_are_assigned_if_they_can_be(seed in any::<u64>()) {
        let graphs = wildcard_graphs(seed);
        let found = problems(&graphs);
        prop_assert_eq!(found.is_empty(), matches(&graphs), "{}", check::list(&found));
    }

    #[test]
    fn waiting_for_ever_is_found_and_only_that(seed in any::<u64>()) {
        let graphs = waiting_graphs(seed);
        let found = problems(&graphs);
        prop_assert_eq!(found.is_empty(), completes(&graphs), "{}", check::list(&found));
        prop_assert!(found.iter().all(is_round), "{}", check::list(&found));
    }
}
