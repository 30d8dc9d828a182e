//! Ranks that leave, corrupt their memory or call something else, and nodes that end: runs of the
//! agent end with an error that names the rank or the node, and never hang.

use crate::jobs::{Wires, connect, deadline, nodes, register, run, run_job, world};
use collectives::{Algorithm, barrier};
use goal::graph::{Access, Graph};
use network::agent::shared_region::{SharedRegion, notifier};
use network::agent::{Agent, AgentClient, Limits};
use network::backend::{Backend, ExitedRank, RankExits};
use network::error::{Error, RankExit};
use network::local::{self, connect_over};
use network::node_map::NodeMap;
use network::transport::{Transport, memory};
use proptest::prelude::*;
use shm::segment::Offset;
use shm::sync::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

testing::tests![
    leaving_after_starting_its_part_fails_no_rank,
    leaving_without_its_part_is_reported_to_all_ranks,
    every_start_after_the_exit_of_a_rank_fails,
    a_rank_far_ahead_on_its_own_node_is_held_back,
    ranks_in_different_collectives_are_told_apart,
    a_node_that_ends_without_a_word_is_unreachable,
    a_corrupt_rank_harms_no_other_rank,
    wrong_calls_are_refused,
    a_run_names_the_ranks_it_waits_for,
    ranks_that_have_exited_are_listed,
    a_start_that_breaks_the_rules_does_not_count,
];

pub(crate) fn barrier_of(rank: u32, ranks: u32) -> Graph {
    barrier::graph(Algorithm::Dissemination, rank, ranks).expect("in range")
}

/// Waits for a run that must end.
pub(crate) fn end(client: &AgentClient, run: network::backend::RunId) -> Result<(), Error> {
    assert!(client.wait(run, deadline()).expect("the agent lives"), "the run does not end");
    client.fetch(run, &mut [])
}

/// A rank may leave as soon as it has started its part, without waiting: its agent carries it
/// through.
fn leaving_after_starting_its_part_fails_no_rank() {
    for each in [1, 2] {
        let outcomes = run_job(&nodes(4, each), Wires::Tcp, |rank, client| {
            let prepared = register(&client, &world(0, rank, 4), &barrier_of(rank, 4));
            if rank % 2 == 1 {
                client.discard(client.start(prepared, 0, &[]).expect("memory"));
                return Ok(());
            }
            run(&client, prepared, 0, &[], &mut [])
        });
        assert_eq!(outcomes, [Ok(()), Ok(()), Ok(()), Ok(())]);
    }
}

/// Those who wait for a rank that has left learn so, also those who wait for it through others
/// only.
fn leaving_without_its_part_is_reported_to_all_ranks() {
    for wires in [Wires::Memory, Wires::Tcp] {
        let outcomes = run_job(&nodes(5, 1), wires, |rank, client| {
            let prepared = register(&client, &world(0, rank, 5), &barrier_of(rank, 5));
            run(&client, prepared, 0, &[], &mut [])?;
            if rank == 3 { Ok(()) } else { run(&client, prepared, 1, &[], &mut []) }
        });
        let failed = Err(Error::RankFailed { rank: 3, how: RankExit::Left });
        assert_eq!(outcomes, [failed.clone(), failed.clone(), failed.clone(), Ok(()), failed]);
    }
}

/// Runs that fail before their start leave the schedule usable.
fn every_start_after_the_exit_of_a_rank_fails() {
    let mut clients =
        connect(&nodes(2, 1), &Wires::Memory, Limits::new(16 << 10)).expect("threads and memory");
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Input, 100);
    graph.send(block, 1, 0);
    let block = graph.buffer(Access::Output, 8);
    graph.receive(block, 1, 0);
    drop(clients.pop());
    let client = &clients[0];
    let prepared = register(client, &world(0, 0, 2), &graph);
    // The first run may start before the exit is known. The others fail before their start.
    for sequence in 0..3 {
        let outcome = run(client, prepared, sequence, &[&[1; 100], &[]], &mut [&mut [], &mut []]);
        let failed = Error::RankFailed { rank: 1, how: RankExit::Left };
        assert_eq!(outcome, Err(failed), "run {sequence}");
    }
}

/// A rank that is far ahead of another one of its node is held back: what it has sent takes memory
/// of their agent.
fn a_rank_far_ahead_on_its_own_node_is_held_back() {
    const BYTES: usize = 8 << 10;
    // Twice a window.
    const RUNS: u64 = 2048;
    let clients =
        connect(&nodes(2, 2), &Wires::Memory, Limits::new(16 << 10)).expect("threads and memory");
    let (mut sends, mut receives) = (Graph::new(0, 2), Graph::new(1, 2));
    let block = sends.buffer(Access::Input, BYTES as u64);
    sends.send(block, 1, 0);
    let block = receives.buffer(Access::Output, BYTES as u64);
    receives.receive(block, 0, 0);
    let sending = register(&clients[0], &world(0, 0, 2), &sends);
    let message = [7; BYTES];
    let runs: Vec<_> = (0..RUNS)
        .map(|sequence| clients[0].start(sending, sequence, &[&message]).expect("memory"))
        .collect();
    // It needs no other rank, and all runs started before it have been tried when it has ended.
    let alone = register(&clients[0], &world(9, 0, 1), &barrier_of(0, 1));
    run(&clients[0], alone, 0, &[], &mut []).expect("no other rank is needed");
    assert!(clients[0].is_complete(runs[0]) && !clients[0].is_complete(runs[RUNS as usize - 1]));
    let receiving = register(&clients[1], &world(0, 1, 2), &receives);
    for sequence in 0..RUNS {
        let mut received = [0; BYTES];
        run(&clients[1], receiving, sequence, &[&[]], &mut [&mut received]).expect("it was sent");
        assert_eq!(received, message);
    }
    for run in runs {
        assert!(clients[0].wait(run, deadline()).expect("the agent lives"));
        clients[0].fetch(run, &mut [&mut []]).expect("it was received");
    }
}

fn ranks_in_different_collectives_are_told_apart() {
    let outcomes = run_job(&nodes(3, 1), Wires::Memory, |rank, client| {
        let schedule = goal::compile::compile(&barrier_of(rank, 3)).expect("in order");
        let signature = if rank == 1 { 8 } else { 7 };
        let prepared = client.register(&world(0, rank, 3), &schedule, signature).expect("memory");
        let outcome = run(&client, prepared, 5, &[], &mut []);
        // No rank exits before all have seen it.
        (outcome, client)
    });
    let signatures = |outcome: &Result<(), Error>| match outcome {
        Err(Error::Mismatch { sequence: 5, ours, theirs, rank }) => (*ours, *theirs, *rank),
        other => panic!("{other:?}"),
    };
    let seen: Vec<_> = outcomes.iter().map(|(outcome, _)| signatures(outcome)).collect();
    assert_eq!((seen[0], seen[2]), ((7, 8, 1), (7, 8, 1)));
    assert!(seen[1] == (8, 7, 0) || seen[1] == (8, 7, 2), "{seen:?}");
}

/// A transport whose agent is not there: it ends as a node does that is switched off.
fn a_node_that_ends_without_a_word_is_unreachable() {
    let mut transports = memory::connect(3).expect("descriptors");
    let vanishing = transports.pop().expect("three");
    let boxed =
        transports.into_iter().map(|transport| Box::new(transport) as Box<dyn Transport>).collect();
    let clients = connect_over(&nodes(3, 1), boxed, Limits::new(16 << 10)).expect("memory");
    let runs: Vec<_> = (0..)
        .zip(&clients)
        .map(|(rank, client)| {
            let prepared = register(client, &world(0, rank, 3), &barrier_of(rank, 3));
            (prepared, client.start(prepared, 0, &[]).expect("memory"))
        })
        .collect();
    drop(vanishing);
    for (client, (prepared, run)) in clients.iter().zip(runs) {
        let unreachable = |outcome| matches!(outcome, Err(Error::NodeUnreachable { node: 2, .. }));
        assert!(unreachable(end(client, run)));
        assert!(
            unreachable(end(client, client.start(prepared, 1, &[]).expect("memory"))),
            "later runs end, too"
        );
    }
    // What needs the lost node for nothing goes on.
    std::thread::scope(|scope| {
        for (rank, client) in (0..).zip(&clients) {
            scope.spawn(move || {
                let prepared = register(client, &world(9, rank, 2), &barrier_of(rank, 2));
                run(client, prepared, 0, &[], &mut []).expect("both are there");
            });
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    /// A rank that writes anything into its region harms neither its agent nor the other ranks
    /// there.
    fn a_corrupt_rank_harms_no_other_rank(
        entries in proptest::collection::vec(any::<[u8; 4]>(), 1..20),
        words in proptest::collection::vec(any::<u64>(), 160),
        published in prop_oneof![0..20u64, any::<u64>()],
    ) {
        let transport = memory::connect(1).expect("descriptors").remove(0);
        let agent = Agent::start(NodeMap::new(["a", "a", "a"]), Box::new(transport), Limits::new(16 << 10), || {}).expect("a thread");
        let area = || SharedRegion::create().expect("memory");
        let open = |rank: u32, area: &SharedRegion| {
            let wakeup = notifier().expect("a descriptor");
            let ours = SharedRegion::open(Arc::clone(area.segment())).expect("an area");
            agent.open(rank, ours, wakeup.try_clone().expect("a descriptor"));
            wakeup
        };
        let bad = area();
        let bad_wakeup = open(2, &bad);
        let clients: Vec<AgentClient> = (0..2)
            .map(|rank| {
                let area = area();
                let wakeup = open(rank, &area);
                let home = network::agent::AgentAddress { node: 0, address: String::new() };
                AgentClient::new(area, wakeup, home, None).expect("an area")
            })
            .collect();
        // Entries that look like some, with numbers that are likely to be taken for something.
        let likely = |byte: u8, other: u64| match byte % 6 { 0 => 0, 1 => 1, 2 => 80_000_000, 3 => other, 4 => 3, _ => u64::MAX - 7 };
        for (place, kinds) in entries.iter().enumerate() {
            for word in 0..8 {
                let value = match word { 0 => u64::from(kinds[0] % 6), word => likely(kinds[word % 4], words[8 * place + word]) };
                let at = Offset(4096 + 64 * place as u64 + 8 * word as u64);
                bad.segment().at::<AtomicU64>(at).expect("inside").store(value, Ordering::Relaxed);
            }
        }
        bad.segment().at::<AtomicU64>(Offset(0)).expect("inside").store(published, Ordering::Release);
        rustix::io::write(&bad_wakeup, &1u64.to_ne_bytes()).expect("there is space");
        std::thread::scope(|scope| {
            for (rank, client) in (0..).zip(&clients) {
                scope.spawn(move || {
                    let prepared = register(client, &world(1, rank, 2), &barrier_of(rank, 2));
                    (0..20).for_each(|sequence| run(client, prepared, sequence, &[], &mut []).expect("both are well"));
                });
            }
        });
        agent.exit(2, RankExit::Failed("is gone".into()));
        drop(clients);
    }
}

/// Wrong calls are refused by words that say what to do.
fn wrong_calls_are_refused() {
    let clients = local::connect(&nodes(2, 1)).expect("sockets");
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Input, 4);
    graph.send(block, 1, 0);
    let prepared = register(&clients[0], &world(0, 0, 2), &graph);
    let refused = clients[0].start(prepared, 0, &[&[1, 2, 3]]);
    assert_eq!(refused, Err(Error::Length { buffer: 0, expected: 4, found: 3 }));
    let refused = clients[0].start(prepared, 0, &[&[]]);
    assert_eq!(refused, Err(Error::Length { buffer: 0, expected: 4, found: 0 }));
    assert!(matches!(
        clients[0].start(prepared, 0, &[]),
        Err(Error::BufferCount { expected: 1, found: 0 })
    ));
    let run = clients[0].start(prepared, 0, &[&[1, 2, 3, 4]]).expect("now it is right");
    assert!(clients[0].wait(run, deadline()).expect("the agent lives"));
    clients[0].fetch(run, &mut [&mut []]).expect("sent");
    let twice = clients[0].start(prepared, 0, &[&[1, 2, 3, 4]]).expect("the agent notices");
    assert!(
        matches!(end_with(&clients[0], twice), Err(Error::Operation(why)) if why.contains("before"))
    );
    let schedule = goal::compile::compile(&graph).expect("in order");
    assert!(
        clients[1].register(&world(0, 1, 2), &schedule, 0).is_err(),
        "the schedule of another rank"
    );
    drop(connect(&nodes(1, 1), &Wires::Memory, Limits::new(16 << 10)));
}

fn end_with(client: &AgentClient, run: network::backend::RunId) -> Result<(), Error> {
    assert!(client.wait(run, deadline()).expect("the agent lives"));
    client.fetch(run, &mut [&mut []])
}

fn a_run_names_the_ranks_it_waits_for() {
    let clients = local::connect(&nodes(4, 2)).expect("sockets");
    let start = |rank: u32| {
        let prepared = register(&clients[rank as usize], &world(0, rank, 4), &barrier_of(rank, 4));
        clients[rank as usize].start(prepared, 0, &[]).expect("memory")
    };
    let runs = [0, 1, 2].map(start);
    // What comes from rank 2 in the second round of a dissemination barrier comes soon, rank 3 has
    // not started.
    let begun = Instant::now();
    while clients[0].waiting_for(runs[0]) != [3] {
        assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", clients[0].waiting_for(runs[0]));
        std::thread::yield_now();
    }
    let last = start(3);
    for (client, run) in clients.iter().zip(runs.into_iter().chain([last])) {
        assert_eq!(end(client, run), Ok(()));
        assert!(client.waiting_for(run).is_empty());
    }
}

/// The list is longer than one answer of the agent.
fn ranks_that_have_exited_are_listed() {
    const RANKS: u32 = 300;
    let node_of_rank = (0..RANKS).map(|rank| rank % 2);
    let mut clients = local::connect(&NodeMap::new(node_of_rank)).expect("sockets");
    clients.truncate(2);
    let expected: Vec<ExitedRank> =
        (2..RANKS).map(|rank| ExitedRank { rank, has_failed: false }).collect();
    for client in &clients {
        let begun = Instant::now();
        while client.exited() != expected {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", client.exited());
            std::thread::yield_now();
        }
    }
}

/// Rank 1 claims memory that it does not have, in the run for which rank 0 waits.
fn a_start_that_breaks_the_rules_does_not_count() {
    const CLAIMED: u64 = 1 << 30;
    let transport = memory::connect(1).expect("descriptors").remove(0);
    let nodes = NodeMap::new(["a", "a"]);
    let agent = Agent::start(nodes, Box::new(transport), Limits::new(16 << 10), || {});
    let agent = agent.expect("a thread");
    let open = |rank: u32| {
        let region = SharedRegion::create().expect("memory");
        let wakeup = notifier().expect("a descriptor");
        let ours = SharedRegion::open(Arc::clone(region.segment())).expect("a region");
        agent.open(rank, ours, wakeup.try_clone().expect("a descriptor"));
        let (segment, copy) = (Arc::clone(region.segment()), wakeup.try_clone());
        let home = network::agent::AgentAddress { node: 0, address: String::new() };
        let client = AgentClient::new(region, wakeup, home, None).expect("a region");
        (client, segment, copy.expect("a descriptor"))
    };
    let [(honest, ..), (other, segment, wakeup)] = [0, 1].map(open);
    let mut graph = Graph::new(1, 2);
    let block = graph.buffer(Access::Input, 8);
    graph.send(block, 0, 0);
    graph.buffer(Access::Output, CLAIMED);
    let prepared = register(&other, &world(0, 1, 2), &graph);
    // The entry of a start behind that of the registration.
    let words = [3, prepared.0, 0, 1 << 20, 0, 0, 0, 0];
    for (at, word) in (4096 + 64..).step_by(8).map(Offset).zip(words) {
        segment.at::<AtomicU64>(at).expect("inside").store(word, Ordering::Relaxed);
    }
    segment.at::<AtomicU64>(Offset(0)).expect("inside").store(2, Ordering::Release);
    rustix::io::write(&wakeup, &1u64.to_ne_bytes()).expect("there is space");
    let mut graph = Graph::new(0, 2);
    let block = graph.buffer(Access::Output, 8);
    graph.receive(block, 1, 0);
    let prepared = register(&honest, &world(0, 0, 2), &graph);
    let run = honest.start(prepared, 0, &[&[]]).expect("memory");
    let error = end_with(&honest, run).expect_err("rank 1 sends nothing");
    assert!(error.to_string().contains("has corrupted the memory"), "{error}");
}
