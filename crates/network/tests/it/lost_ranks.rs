//! Runs of the direct engine beside ranks that are lost, or stop waiting.

use crate::jobs::{deadline, world};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use network::backend::{Backend, RunId};
use network::direct::DirectBackend;
use network::error::Error;
use network::local;
use std::time::{Duration, Instant};

testing::tests![
    a_lost_rank_ends_the_wait_of_a_rank_that_waits_for_another_one,
    a_failed_write_loses_nothing_that_the_lost_rank_has_sent,
    a_request_to_send_to_a_lost_rank_fails_the_run_for_all_ranks,
    a_rank_that_abandons_a_run_fails_no_rank_that_has_its_messages,
    a_run_names_the_ranks_it_waits_for_while_another_thread_executes_it,
];

/// Starts run 0 of rank 0 of 3, which waits for a message of rank 1.
fn receive_from_1(backend: &DirectBackend) -> RunId {
    let mut graph = Graph::new(0, 3);
    let block = graph.buffer(Access::Output, 8);
    graph.receive(block, 1, 0);
    start(backend, 0, &graph, &[&[]])
}

fn start(backend: &DirectBackend, sequence: u64, graph: &Graph, inputs: &[&[u8]]) -> RunId {
    let schedule = compile(graph).expect("in order");
    let context = world(0, graph.rank(), graph.ranks());
    let prepared = backend.register(&context, &schedule, 0).expect("it is small");
    backend.start(prepared, sequence, inputs).expect("memory")
}

fn outcome(backend: &DirectBackend, run: RunId) -> Result<(), Error> {
    let deadline = deadline();
    // A lost connection ends a wait, whether or not the run needs it.
    while !backend.wait(run, deadline)? {
        assert!(deadline.is_none_or(|deadline| Instant::now() < deadline), "the run ends");
    }
    backend.fetch(run, &mut [])
}

/// The caller then checks why the rank is gone, and need not wait for its next regular check.
fn a_lost_rank_ends_the_wait_of_a_rank_that_waits_for_another_one() {
    let mut ranks = local::connect_directly(3).expect("sockets");
    let run = receive_from_1(&ranks[0]);
    drop(ranks.pop());
    let limit = deadline();
    assert_eq!(ranks[0].wait(run, limit), Ok(false));
    assert!(limit.is_some_and(|limit| Instant::now() < limit), "the wait ends before its deadline");
    let lost: Vec<u32> = ranks[0].lost().into_iter().map(|lost| lost.rank).collect();
    assert_eq!((lost, ranks[0].waiting_for(run)), (vec![2], vec![1]));
    ranks[0].discard(run);
}

/// The system of rank 1, which is gone, answers the first bytes of rank 0 with a reset, which the next
/// write reports. Long messages, because starts of short ones read what has arrived.
fn a_failed_write_loses_nothing_that_the_lost_rank_has_sent() {
    const LONG: u64 = 100 << 10;
    let mut ranks = local::connect_directly(2).expect("sockets");
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Output, LONG);
    graph.receive(block, 1, 0);
    let receiving = start(&ranks[0], 0, &graph, &[&[]]);
    let send_to = |other: u32| {
        let mut graph = Graph::new(1 - other, 2);
        let block = graph.buffer(Access::Input, LONG);
        graph.send(block, other, 0);
        graph
    };
    let bytes = vec![7; LONG as usize];
    start(&ranks[1], 0, &send_to(0), &[&bytes]);
    drop(ranks.pop());
    for sequence in 1..=2 {
        start(&ranks[0], sequence, &send_to(1), &[&bytes]);
    }
    let limit = deadline();
    while !ranks[0].wait(receiving, limit).expect("the system reads") {
        assert!(limit.is_none_or(|limit| Instant::now() < limit), "the message has arrived");
    }
    let mut received = vec![0; LONG as usize];
    assert_eq!(ranks[0].fetch(receiving, &mut [&mut received]), Ok(()));
    assert_eq!(received, bytes);
}

/// Rank 1 has been asked whether it takes a message of rank 0, when rank 0 finds that rank 2 takes
/// none any more.
fn a_request_to_send_to_a_lost_rank_fails_the_run_for_all_ranks() {
    const LONG: u64 = 4 << 20;
    let mut ranks = local::connect_directly(3).expect("sockets");
    drop(ranks.pop());
    let waiting = receive_from_1(&ranks[0]);
    while ranks[0].lost().is_empty() {
        assert_eq!(ranks[0].wait(waiting, deadline()), Ok(false));
    }
    ranks[0].discard(waiting);
    let mut graph = Graph::new(1, 3);
    let block = graph.buffer(Access::Output, LONG);
    graph.receive(block, 0, 0);
    let receiver = start(&ranks[1], 1, &graph, &[&[]]);
    let mut graph = Graph::new(0, 3);
    let block = graph.buffer(Access::Input, LONG);
    graph.send(block, 1, 0);
    graph.send(block, 2, 0);
    let sender = start(&ranks[0], 1, &graph, &[&vec![1; LONG as usize]]);
    for (rank, run) in [sender, receiver].into_iter().enumerate() {
        let error = outcome(&ranks[rank], run).expect_err("rank 2 is gone");
        assert!(matches!(error, Error::RankFailed { rank: 2, .. }), "rank {rank}: {error}");
    }
}

/// Rank 0 has sent its message, and stops waiting for that of rank 2, which comes later.
fn a_rank_that_abandons_a_run_fails_no_rank_that_has_its_messages() {
    let ranks = local::connect_directly(3).expect("sockets");
    let graph_of = |rank: u32| {
        let mut graph = Graph::new(rank, 3);
        let given = graph.buffer(Access::Input, 8);
        for other in (0..3).filter(|other| *other != rank) {
            let taken = graph.buffer(Access::Output, 8);
            graph.send(given, other, 0);
            graph.receive(taken, other, 0);
        }
        graph
    };
    let inputs: [&[u8]; 3] = [&[7; 8], &[], &[]];
    let abandoned = start(&ranks[0], 0, &graph_of(0), &inputs);
    ranks[0].abandon(abandoned);
    ranks[0].discard(abandoned);
    let run = start(&ranks[1], 0, &graph_of(1), &inputs);
    let last = start(&ranks[2], 0, &graph_of(2), &inputs);
    assert_eq!(outcome(&ranks[1], run), Ok(()));
    assert_eq!(outcome(&ranks[2], last), Ok(()));
}

fn a_run_names_the_ranks_it_waits_for_while_another_thread_executes_it() {
    let ranks = local::connect_directly(3).expect("sockets");
    let waiting = receive_from_1(&ranks[0]);
    std::thread::scope(|scope| {
        let limit = Some(Instant::now() + Duration::from_millis(100));
        let backend = &ranks[0];
        let other = scope.spawn(move || backend.wait(waiting, limit));
        while !other.is_finished() {
            assert_eq!(ranks[0].waiting_for(waiting), [1]);
        }
    });
    ranks[0].discard(waiting);
}
