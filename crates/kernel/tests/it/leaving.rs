//! The exit of a rank with runs that wait for ranks that have left.

use crate::world::World;
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::Schedule;
use network::agent::AgentClient;
use network::backend::{Backend, DrainOutcome, ExitedRank, RankExits, RunId};
use network::local;
use network::node_map::NodeMap;
use network::run_counts::StartedRuns;
use std::time::{Duration, Instant};

testing::tests![needs(Nodes, Bpf):
    runs_that_wait_for_ranks_that_have_exited_are_undeliverable,
    a_run_that_a_rank_in_the_job_can_advance_holds_the_exit,
    messages_of_a_rank_that_has_left_are_waited_for,
    ranks_that_leave_do_not_wait_for_what_the_others_never_started,
    a_rank_that_leaves_waits_for_what_another_that_leaves_has_started,
];

/// Time after which a test counts as stuck; it is no measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Rank 0 sends to rank `to` what it has received from rank `from`; the others send to rank 0.
fn relay(rank: u32, ranks: u32, from: u32, to: u32, bytes: u64) -> Schedule {
    let mut graph = Graph::new(rank, ranks);
    let block = graph.buffer(Access::InOut, bytes);
    if rank == 0 {
        let receive = graph.receive(block, from, 0);
        let send = graph.send(block, to, 0);
        graph.requires(send, receive);
    } else {
        graph.send(block, 0, 0);
    }
    compile(&graph).expect("the graph is right")
}

/// Starts a run, and drops it.
fn start(world: &World, rank: usize, communicator: u32, schedule: &Schedule) -> RunId {
    let here = &world.ranks[rank];
    let ranks = schedule.view().header().ranks as usize;
    let bytes = vec![7; schedule.view().buffers()[0].length as usize];
    let context = world.context(communicator, ranks, rank);
    let id = here.register(&context, schedule, 0).expect("it is small");
    let run = here.start(id, 0, &[&bytes]).expect("it starts, or will");
    here.discard(run);
    run
}

fn drain(world: &World, limit: Duration, exits: &dyn RankExits) -> DrainOutcome {
    world.ranks[0].drain(Instant::now() + limit, exits).expect("the engine works")
}

fn runs_that_wait_for_ranks_that_have_exited_are_undeliverable() {
    let world = World::new(2, 1, 1500);
    let mut agents = local::connect(&NodeMap::new(["a", "b"])).expect("sockets");
    let run = start(&world, 0, world.communicator(), &relay(0, 2, 1, 1, 8));
    drop(agents.pop());
    let agent = agents.remove(0);
    let undeliverable = DrainOutcome::Undeliverable { runs: 1 };
    assert_eq!(drain(&world, TIME_LIMIT, &agent), undeliverable);
    assert_eq!(agent.exited(), [ExitedRank { rank: 1, has_failed: false }]);
    let drained = agent.drain(Instant::now() + TIME_LIMIT, &Vec::new);
    assert_eq!(drained, Ok(DrainOutcome::Drained));

    let failed = || vec![ExitedRank { rank: 1, has_failed: true }];
    assert_eq!(drain(&world, TIME_LIMIT, &failed), undeliverable);
    world.ranks[0].abandon(run);
    assert_eq!(drain(&world, TIME_LIMIT, &Vec::new), DrainOutcome::Drained);

    // Eight of these fill the memory of the rank.
    for _ in 0..16 {
        start(&world, 0, world.communicator(), &relay(0, 2, 1, 1, 500_000));
    }
    let left = || vec![ExitedRank { rank: 1, has_failed: false }];
    assert_eq!(drain(&world, TIME_LIMIT, &left), DrainOutcome::Undeliverable { runs: 16 });
}

fn a_run_that_a_rank_in_the_job_can_advance_holds_the_exit() {
    let world = World::new(3, 1, 1500);
    let communicator = world.communicator();
    start(&world, 0, communicator, &relay(0, 3, 2, 1, 8));
    let left = || vec![ExitedRank { rank: 1, has_failed: false }];
    assert_eq!(drain(&world, Duration::from_secs(1), &left), DrainOutcome::TimedOut);
    start(&world, 2, communicator, &relay(2, 3, 2, 1, 8));
    assert_eq!(drain(&world, TIME_LIMIT, &left), DrainOutcome::Drained);
}

fn messages_of_a_rank_that_has_left_are_waited_for() {
    let world = World::new(2, 1, 1500);
    let communicator = world.communicator();
    start(&world, 1, communicator, &relay(1, 2, 1, 1, 100_000));
    start(&world, 0, communicator, &relay(0, 2, 1, 1, 100_000));
    let left = || vec![ExitedRank { rank: 1, has_failed: false }];
    assert_eq!(drain(&world, TIME_LIMIT, &left), DrainOutcome::Drained);
}

/// Sends to the other one of two ranks what this one has received from it.
fn answer(rank: u32, bytes: u64) -> Schedule {
    let mut graph = Graph::new(rank, 2);
    let block = graph.buffer(Access::InOut, bytes);
    let receive = graph.receive(block, 1 - rank, 0);
    let send = graph.send(block, 1 - rank, 0);
    graph.requires(send, receive);
    compile(&graph).expect("the graph is right")
}

/// Both ranks leave at the same time.
fn leave_both(world: &World, agents: &[AgentClient]) -> Vec<DrainOutcome> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|rank| {
                let deadline = Instant::now() + TIME_LIMIT;
                scope.spawn(move || world.ranks[rank].drain(deadline, &agents[rank]))
            })
            .collect();
        let outcome =
            |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
        threads.into_iter().map(outcome).map(|left: Result<_, _>| left.expect("it works")).collect()
    })
}

/// Each waits for a run that the other one has not started.
fn ranks_that_leave_do_not_wait_for_what_the_others_never_started() {
    for ranks_per_node in [1, 2] {
        let nodes = if ranks_per_node == 1 { ["a", "b"] } else { ["a", "a"] };
        let world = World::new(2 / ranks_per_node, ranks_per_node, 1500);
        let agents = local::connect(&NodeMap::new(nodes)).expect("sockets");
        for rank in 0..2 {
            start(&world, rank, world.communicator(), &answer(rank as u32, 8));
        }
        let undeliverable = DrainOutcome::Undeliverable { runs: 1 };
        assert_eq!(leave_both(&world, &agents), [undeliverable; 2]);
    }
}

/// Rank 1 has started its part, which waits for a message that comes later.
fn a_rank_that_leaves_waits_for_what_another_that_leaves_has_started() {
    let world = World::new(2, 1, 1500);
    let agents = local::connect(&NodeMap::new(["a", "b"])).expect("sockets");
    let communicator = world.communicator();
    start(&world, 0, communicator, &relay(0, 2, 1, 1, 8));
    agents[1].announce(&[StartedRuns::of(communicator, 1)]);
    assert_eq!(drain(&world, Duration::from_secs(2), &agents[0]), DrainOutcome::TimedOut);
    start(&world, 1, communicator, &relay(1, 2, 1, 1, 8));
    assert_eq!(drain(&world, TIME_LIMIT, &agents[0]), DrainOutcome::Drained);
}
