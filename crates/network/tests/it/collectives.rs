//! The agent engine at work: sizes, nodes, many runs and communicators at once.

use crate::jobs::{Wires, nodes, register, run, run_job, world};
use collectives::{Algorithm, Reduction, allreduce, barrier};
use goal::arithmetic::{Arithmetic, DataType};
use goal::graph::{Access, Graph};
use network::agent::AgentClient;
use network::backend::{Backend, ScheduleId};

testing::tests![
    messages_of_all_sizes_arrive,
    nodes_and_ranks_in_all_numbers,
    many_runs_of_many_communicators_are_under_way_at_once,
    a_number_may_be_used_by_communicators_apart,
    a_sender_ahead_of_its_receiver_is_held_back,
    a_schedule_may_be_released_while_its_runs_go_on,
];

/// Every rank sends so many bytes to the next and receives as many from the one before.
fn shift(rank: u32, ranks: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, ranks);
    let (input, output) = (graph.buffer(Access::Input, bytes), graph.buffer(Access::Output, bytes));
    graph.send(input, (rank + 1) % ranks, 5);
    graph.receive(output, (rank + ranks - 1) % ranks, 5);
    graph
}

fn pattern(rank: u32, bytes: u64, round: u64) -> Vec<u8> {
    (0..bytes)
        .map(|place| (place * 31 + u64::from(rank) * 7 + round * 13 + (place >> 8)) as u8)
        .collect()
}

fn sum(rank: u32, ranks: u32, elements: u64) -> Graph {
    let reduction = Reduction::new(Arithmetic::Add, DataType::U64);
    allreduce::graph(Algorithm::RecursiveDoubling, rank, ranks, 8 * elements, reduction)
        .expect("in range")
}

fn words(values: impl Iterator<Item = u64>) -> Vec<u8> {
    values.flat_map(u64::to_le_bytes).collect()
}

fn messages_of_all_sizes_arrive() {
    for sizes in [
        &[0, 1, 8, 4095, 4096, 4097, 16 << 10, (16 << 10) + 1, 1 << 20, 5_000_001][..],
        &[64 << 20],
    ] {
        run_job(&nodes(2, 1), Wires::Tcp, |rank, client| {
            let context = world(0, rank, 2);
            for (sequence, bytes) in (0..).zip(sizes) {
                let prepared = register(&client, &context, &shift(rank, 2, *bytes));
                let input = pattern(rank, *bytes, sequence);
                let mut output = vec![0; *bytes as usize];
                run(&client, prepared, sequence, &[&input, &[]], &mut [&mut [], &mut output])
                    .expect("no rank fails");
                assert!(
                    output == pattern(1 - rank, *bytes, sequence),
                    "{bytes} bytes to rank {rank}"
                );
                client.release(prepared);
            }
        });
    }
}

fn nodes_and_ranks_in_all_numbers() {
    for (count, each) in [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1), (8, 2)] {
        let ranks = count * each;
        run_job(&nodes(ranks, each), Wires::Tcp, |rank, client| {
            let context = world(0, rank, ranks);
            let prepared = register(&client, &context, &sum(rank, ranks, 1000));
            for sequence in 0..20 {
                let input = words((0..1000).map(|element| element * sequence + u64::from(rank)));
                let mut output = vec![0; 8000];
                run(&client, prepared, sequence, &[&input, &[]], &mut [&mut [], &mut output])
                    .expect("no rank fails");
                let of_ranks = u64::from(ranks * (ranks - 1) / 2);
                let all = u64::from(ranks);
                assert!(
                    output == words((0..1000).map(|element| all * element * sequence + of_ranks))
                );
            }
        });
    }
}

/// Communicators whose runs are all started before any is waited for, from several threads of each
/// rank.
fn many_runs_of_many_communicators_are_under_way_at_once() {
    const COMMUNICATORS: u32 = 12;
    const RUNS: u64 = 200;
    run_job(&nodes(4, 2), Wires::Tcp, |rank, client| {
        let client = &client;
        std::thread::scope(|scope| {
            for half in 0..2 {
                scope.spawn(move || {
                    for number in (0..COMMUNICATORS).filter(|number| number % 2 == half) {
                        let context = world(number, rank, 4);
                        let prepared = register(client, &context, &sum(rank, 4, 1));
                        let value = |sequence: u64, rank: u32| {
                            u64::from(number) * 1_000_000 + sequence * 10 + u64::from(rank)
                        };
                        let start = |sequence| {
                            let input = words(std::iter::once(value(sequence, rank)));
                            client.start(prepared, sequence, &[&input, &[]]).expect("memory")
                        };
                        let runs: Vec<_> = (0..RUNS).map(start).collect();
                        for (sequence, run) in (0..).zip(runs) {
                            assert!(
                                client.wait(run, crate::jobs::deadline()).expect("no rank fails")
                            );
                            let mut output = vec![0; 8];
                            client.fetch(run, &mut [&mut [], &mut output]).expect("no rank fails");
                            let expected = (0..4).map(|rank| value(sequence, rank)).sum();
                            assert_eq!(output, words(std::iter::once(expected)));
                        }
                    }
                });
            }
        });
    });
}

/// Two communicators of one number that have no rank in common never meet.
fn a_number_may_be_used_by_communicators_apart() {
    run_job(&nodes(4, 1), Wires::Memory, |rank, client| {
        let members: std::sync::Arc<[u32]> = if rank < 2 { [0, 1].into() } else { [3, 2].into() };
        let own = members.iter().position(|member| *member == rank).expect("a member") as u32;
        let context = network::backend::CommunicatorContext { number: 3, members, rank: own };
        let prepared = register(&client, &context, &sum(own, 2, 1));
        let mut output = [0; 8];
        let input = u64::from(rank).to_le_bytes();
        run(&client, prepared, 0, &[&input, &[]], &mut [&mut [], &mut output])
            .expect("no rank fails");
        assert_eq!(u64::from_le_bytes(output), if rank < 2 { 1 } else { 5 });
    });
}

/// A rank far ahead of another is held back: what it sends beyond the window stays with it.
fn a_sender_ahead_of_its_receiver_is_held_back() {
    const RUNS: u64 = 3000;
    const BYTES: u64 = 8 << 10;
    let far_ahead = std::sync::Barrier::new(2);
    run_job(&nodes(2, 1), Wires::Tcp, |rank, client| {
        let mut graph = Graph::new(rank, 2);
        let access = if rank == 0 { Access::Input } else { Access::Output };
        let buffer = graph.buffer(access, BYTES);
        if rank == 0 {
            graph.send(buffer, 1, 0)
        } else {
            graph.receive(buffer, 0, 0)
        };
        let prepared = register(&client, &world(0, rank, 2), &graph);
        if rank == 1 {
            far_ahead.wait();
            for sequence in 0..RUNS {
                let mut output = vec![0; BYTES as usize];
                run(&client, prepared, sequence, &[&[]], &mut [&mut output])
                    .expect("no rank fails");
                assert!(output == pattern(0, BYTES, sequence), "run {sequence}");
            }
            return;
        }
        let start = |sequence| {
            client.start(prepared, sequence, &[&pattern(0, BYTES, sequence)]).expect("memory")
        };
        let runs: Vec<_> = (0..RUNS).map(start).collect();
        // Eager until the window is used up: these runs end though no rank receives.
        assert!(client.wait(runs[500], crate::jobs::deadline()).expect("no rank fails"));
        assert!(
            !client.is_complete(runs[RUNS as usize - 1]),
            "24 MiB were sent to a rank that receives nothing"
        );
        far_ahead.wait();
        for run in runs {
            assert!(client.wait(run, crate::jobs::deadline()).expect("no rank fails"));
            client.fetch(run, &mut [&mut []]).expect("no rank fails");
        }
    });
}

fn a_schedule_may_be_released_while_its_runs_go_on() {
    run_job(&nodes(2, 1), Wires::Memory, |rank, client: AgentClient| {
        let graph = barrier::graph(Algorithm::Dissemination, rank, 2).expect("in range");
        let prepared: ScheduleId = register(&client, &world(0, rank, 2), &graph);
        let runs: Vec<_> = (0..10)
            .map(|sequence| client.start(prepared, sequence, &[]).expect("memory"))
            .collect();
        client.release(prepared);
        for run in runs {
            assert!(client.wait(run, crate::jobs::deadline()).expect("no rank fails"));
            client.fetch(run, &mut []).expect("no rank fails");
            assert!(client.fetch(run, &mut []).is_err(), "the run has ended");
        }
        assert!(client.start(prepared, 10, &[]).is_err(), "it was released");
    });
}
