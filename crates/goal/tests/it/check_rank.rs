//! The checker on one rank's graph: every rule has a graph that breaks it, and a message that says
//! where.

use goal::arithmetic::{Arithmetic, DataType};
use goal::check::{self, List, Problem};
use goal::graph::{Access, Block, Blocks, Graph, JoinMode, Memory, Vertex};

/// The only problem of a graph on rank 0 of 4 with 64 bytes each of buffer 0 (in and out), buffer 1
/// (input), buffer 2 (output) and scratchpad.
fn problem(build: impl FnOnce(&mut Graph, [Block; 4])) -> Problem {
    let mut problems = problems(build);
    assert_eq!(problems.len(), 1, "{}", check::list(&problems));
    problems.remove(0)
}

fn problems(build: impl FnOnce(&mut Graph, [Block; 4])) -> Vec<Problem> {
    let mut graph = Graph::new(0, 4);
    let blocks = [
        graph.buffer(Access::InOut, 64),
        graph.buffer(Access::Input, 64),
        graph.buffer(Access::Output, 64),
        graph.scratchpad(64),
    ];
    build(&mut graph, blocks);
    check::graph(&graph).err().unwrap_or_default()
}

fn accepted(build: impl FnOnce(&mut Graph, [Block; 4])) {
    let problems = problems(build);
    assert!(problems.is_empty(), "{}", check::list(&problems));
}

#[test]
fn the_empty_graph_is_sound() {
    accepted(|_, _| {});
}

#[test]
fn a_rank_is_one_of_the_ranks() {
    for (rank, ranks) in [(0, 0), (4, 4), (7, 4)] {
        assert_eq!(
            check::graph(&Graph::new(rank, ranks)),
            Err(vec![Problem::Rank { rank, ranks }])
        );
    }
}

#[test]
fn edges_lead_between_vertices() {
    let found = problem(|graph, _| {
        let calc = graph.calc(1);
        graph.requires(calc, Vertex(3));
    });
    assert!(matches!(
        found,
        Problem::MissingVertex { edge: 0, before: Vertex(3), vertices: 1, .. }
    ));
}

#[test]
fn a_cycle_names_its_vertices_and_no_others() {
    let found = problem(|graph, _| {
        let [first, a, b, c, last] = [1, 2, 3, 4, 5].map(|nanoseconds| graph.calc(nanoseconds));
        graph.vertex_mut(b).unwrap().label = Some("bee".into());
        graph.vertex_mut(b).unwrap().line = Some(77);
        graph.requires(a, first);
        graph.requires(b, a);
        graph.irequires(c, b);
        graph.requires(a, c);
        graph.requires(last, c);
    });
    let Problem::Cycle { cycle } = &found else { panic!("{found}") };
    assert_eq!(cycle.iter().map(|place| place.vertex.0).collect::<Vec<_>>(), [1, 2, 3]);
    let text = found.to_string();
    assert!(
        text.contains("[rank 0, line 77, bee: calc 3], then [rank 0, vertex 3: calc 4]"),
        "{text}"
    );
}

#[test]
fn a_long_cycle_is_cut_in_the_message() {
    let found = problem(|graph, _| {
        let all: Vec<Vertex> = (0..1000).map(|_| graph.calc(1)).collect();
        for pair in all.windows(2) {
            graph.requires(pair[1], pair[0]);
        }
        graph.requires(all[0], all[999]);
    });
    assert!(matches!(&found, Problem::Cycle { cycle } if cycle.len() == 1000));
    assert!(found.to_string().len() < 1000 && found.to_string().contains("988 more"), "{found}");
}

#[test]
fn peers_are_ranks() {
    let send = problem(|graph, [buffer, ..]| drop_vertex(graph.send(buffer, 4, 0)));
    assert!(matches!(send, Problem::Peer { peer: 4, ranks: 4, .. }));
    let receive = problem(|graph, [buffer, ..]| drop_vertex(graph.receive(buffer, 9, 0)));
    assert_eq!(
        receive.to_string(),
        "rank 0, vertex 0: recv 64b from 9 tag 0: there is no rank 9; the 4 ranks are numbered from 0"
    );
    accepted(|graph, [buffer, ..]| drop_vertex(graph.receive(buffer, None, None)));
}

/// Closures that build a graph return nothing.
fn drop_vertex(_: Vertex) {}

#[test]
fn blocks_lie_in_their_memory() {
    for (offset, length) in [(0, 65), (64, 1), (65, 0), (u64::MAX, 1), (1, u64::MAX)] {
        for list in 0..4 {
            let found = problem(|graph, blocks| {
                let block = Block { memory: blocks[list].memory, offset, length };
                if list == 1 {
                    graph.send(block, 1, 0)
                } else {
                    graph.receive(block, 1, 0)
                };
            });
            assert!(
                matches!(found, Problem::OutOfRange { list: List::Data, limit: 64, .. }),
                "{found}"
            );
        }
    }
    accepted(|graph, [buffer, ..]| {
        drop_vertex(graph.send([buffer.part(64, 0), buffer.part(63, 1)], 1, 0))
    });
    let missing = problem(|graph, _| {
        graph.send(Block { memory: Memory::Buffer(3), offset: 0, length: 1 }, 1, 0);
    });
    assert!(matches!(missing, Problem::MissingBuffer { buffer: 3, buffers: 3, .. }));
}

#[test]
fn bytes_without_a_place_conflict_with_none() {
    accepted(|graph, _| {
        graph.receive(Block::unplaced(u64::MAX), 1, 0);
        graph.receive(Block::unplaced(u64::MAX), 1, 0);
    });
}

#[test]
fn sums_are_counted_in_64_bits() {
    let found = problem(|graph, _| {
        graph.send([Block::unplaced(u64::MAX), Block::unplaced(1)], 1, 0);
    });
    assert!(matches!(found, Problem::TooManyBytes { list: List::Data, .. }));
    let gather = problem(|graph, _| {
        graph.join(JoinMode::Gather, Block::unplaced(u64::MAX), Blocks::none());
    });
    assert!(matches!(gather, Problem::TooManyBytes { list: List::JoinResult, .. }));
}

#[test]
fn lists_of_a_local_operation_are_equally_long() {
    let found = problem(|graph, [a, b, c, _]| {
        graph.local(
            Arithmetic::Add,
            DataType::U8,
            b.part(0, 8),
            [a.part(0, 4), a.part(4, 3)],
            c.part(0, 8),
        );
    });
    assert!(matches!(
        found,
        Problem::LengthsDiffer { list: List::Right, found: 7, expected: 8, .. }
    ));
    let copy = problem(|graph, [a, b, ..]| drop_vertex(graph.copy(b, a.part(0, 8))));
    assert!(matches!(
        copy,
        Problem::LengthsDiffer { list: List::Source, found: 64, expected: 8, .. }
    ));
}

#[test]
fn every_block_holds_whole_elements() {
    let found = problem(|graph, [a, b, c, _]| {
        let left = [b.part(0, 6), b.part(6, 2)];
        graph.local(Arithmetic::Add, DataType::U32, left, a.part(0, 8), c.part(0, 8));
    });
    assert!(matches!(
        found,
        Problem::BrokenElement { list: List::Left, data_type: DataType::U32, .. }
    ));
    assert!(found.to_string().contains("6 bytes from byte 0 of buffer 1"), "{found}");
}

#[test]
fn arithmetic_applies_to_its_type() {
    let local = problem(|graph, [a, b, c, _]| {
        drop_vertex(graph.local(Arithmetic::Xor, DataType::F32, a, b, c))
    });
    assert!(matches!(
        local,
        Problem::NotApplicable { operation: Arithmetic::Xor, data_type: DataType::F32, .. }
    ));
    let mode = JoinMode::Reduce { operation: Arithmetic::And, data_type: DataType::F64 };
    let join = problem(|graph, [a, b, ..]| drop_vertex(graph.join(mode, b, a)));
    assert!(matches!(join, Problem::NotApplicable { operation: Arithmetic::And, .. }));
}

#[test]
fn a_timestamp_has_eight_bytes() {
    let found = problem(|graph, [buffer, ..]| drop_vertex(graph.timestamp(buffer.part(0, 4))));
    assert!(matches!(found, Problem::TimestampLength { found: 4, .. }));
}

#[test]
fn inputs_are_not_written() {
    let receive = problem(|graph, [_, input, ..]| drop_vertex(graph.receive(input, 1, 0)));
    assert!(matches!(receive, Problem::WriteToInput { list: List::Data, buffer: 1, .. }));
    let copy = problem(|graph, [a, input, ..]| drop_vertex(graph.copy(a, input)));
    assert!(matches!(copy, Problem::WriteToInput { list: List::Destination, .. }));
    let join =
        problem(|graph, [a, input, ..]| drop_vertex(graph.join(JoinMode::Exchange, a, input)));
    assert!(matches!(join, Problem::WriteToInput { list: List::JoinResult, .. }));
    accepted(|graph, [_, _, output, _]| drop_vertex(graph.send(output, 1, 0)));
}

#[test]
fn a_local_operation_may_work_in_place_exactly() {
    let add = |graph: &mut Graph, left: Blocks, right: Blocks, destination: Blocks| {
        drop_vertex(graph.local(Arithmetic::Add, DataType::U8, left, right, destination));
    };
    accepted(|graph, [a, b, ..]| add(graph, a.into(), b.into(), a.into()));
    accepted(|graph, [a, b, ..]| add(graph, b.into(), a.into(), a.into()));
    accepted(|graph, [a, ..]| add(graph, a.into(), a.into(), a.into()));
    accepted(|graph, [a, ..]| {
        add(graph, a.part(0, 32).into(), a.part(0, 32).into(), a.part(32, 32).into())
    });
    // Blocks without bytes make no difference.
    accepted(|graph, [a, b, ..]| add(graph, [a, a.part(3, 0)].into(), b.into(), a.into()));
    let shifted = problem(|graph, [a, b, ..]| {
        add(graph, a.part(0, 32).into(), b.part(0, 32).into(), a.part(31, 32).into());
    });
    assert!(matches!(
        shifted,
        Problem::OverlapBetween { read: List::Left, written: List::Destination, .. }
    ));
    // The same bytes in other blocks are not the same list: engines go through both block by block.
    let cut = problem(|graph, [a, b, ..]| {
        add(graph, b.into(), [a.part(0, 32), a.part(32, 32)].into(), a.into())
    });
    assert!(matches!(cut, Problem::OverlapBetween { read: List::Right, .. }));
}

#[test]
fn a_copy_does_not_overlap_itself() {
    let shifted = problem(|graph, [a, ..]| drop_vertex(graph.copy(a.part(0, 32), a.part(31, 32))));
    assert!(matches!(shifted, Problem::OverlapBetween { read: List::Source, .. }));
    let same = problem(|graph, [a, ..]| drop_vertex(graph.copy(a, a)));
    assert!(matches!(same, Problem::OverlapBetween { read: List::Source, .. }));
    accepted(|graph, [a, ..]| drop_vertex(graph.copy(a.part(0, 32), a.part(32, 32))));
}

#[test]
fn no_byte_is_written_twice_by_one_operation() {
    let found =
        problem(|graph, [a, ..]| drop_vertex(graph.receive([a.part(8, 8), a.part(0, 9)], 1, 0)));
    assert!(matches!(found, Problem::OverlapWithin { list: List::Data, .. }));
    accepted(|graph, [a, ..]| drop_vertex(graph.send([a, a], 1, 0)));
}

#[test]
fn joins_have_the_lengths_of_their_modes() {
    let join = |mode: JoinMode, given: u64, result: u64| {
        problems(|graph, [_, input, output, _]| {
            drop_vertex(graph.join(mode, input.part(0, given), output.part(0, result)))
        })
    };
    let reduce = JoinMode::Reduce { operation: Arithmetic::Add, data_type: DataType::U32 };
    let mine = JoinMode::Broadcast { root: 0 };
    let other = JoinMode::Broadcast { root: 3 };
    for (mode, given, result) in [
        (JoinMode::Barrier, 0, 0),
        (reduce, 8, 8),
        (reduce, 8, 0),
        (JoinMode::Gather, 8, 32),
        (JoinMode::Gather, 8, 0),
        (JoinMode::Gather, 0, 0),
        (JoinMode::Exchange, 8, 8),
        (JoinMode::Exchange, 8, 0),
        (mine, 8, 0),
        (mine, 8, 8),
        (other, 0, 8),
        (other, 0, 0),
    ] {
        let found = join(mode, given, result);
        assert!(found.is_empty(), "{mode:?} {given} {result}: {}", check::list(&found));
    }
    let only = |mode, given, result| {
        let mut found = join(mode, given, result);
        assert_eq!(found.len(), 1, "{mode:?} {given} {result}");
        found.remove(0)
    };
    assert!(matches!(only(JoinMode::Barrier, 8, 0), Problem::BarrierBytes { contribution: 8, .. }));
    assert!(matches!(only(JoinMode::Barrier, 0, 8), Problem::BarrierBytes { result: 8, .. }));
    assert!(matches!(only(reduce, 8, 4), Problem::JoinResult { found: 4, expected: 8, .. }));
    assert!(matches!(only(reduce, 6, 0), Problem::BrokenElement { list: List::Contribution, .. }));
    assert!(matches!(
        only(JoinMode::Gather, 8, 8),
        Problem::JoinResult { found: 8, expected: 32, .. }
    ));
    assert!(matches!(
        only(JoinMode::Exchange, 6, 0),
        Problem::ExchangeParts { contribution: 6, ranks: 4, .. }
    ));
    assert!(matches!(
        only(JoinMode::Exchange, 8, 4),
        Problem::JoinResult { found: 4, expected: 8, .. }
    ));
    assert!(matches!(only(other, 8, 8), Problem::NotTheRoot { root: 3, contribution: 8, .. }));
    assert!(matches!(only(mine, 8, 4), Problem::JoinResult { found: 4, expected: 8, .. }));
    let nobody = JoinMode::Broadcast { root: 4 };
    assert!(matches!(only(nobody, 0, 8), Problem::Root { root: 4, ranks: 4, .. }));
}

#[test]
fn a_join_may_work_in_place_exactly() {
    accepted(|graph, [a, ..]| drop_vertex(graph.join(JoinMode::Exchange, a, a)));
    let shifted = problem(|graph, [a, ..]| {
        graph.join(JoinMode::Exchange, a.part(0, 32), a.part(16, 32));
    });
    assert!(matches!(
        shifted,
        Problem::OverlapBetween { read: List::Contribution, written: List::JoinResult, .. }
    ));
}

#[test]
fn every_problem_is_listed() {
    let found = problems(|graph, [a, input, ..]| {
        graph.send(a, 9, 0);
        graph.receive(input, 9, 0);
        graph.timestamp(a.part(60, 8));
    });
    let text = check::list(&found);
    assert_eq!(
        text.lines().count(),
        4 + 1,
        "two peers, an input, a range, a pair of vertices: {text}"
    );
}
