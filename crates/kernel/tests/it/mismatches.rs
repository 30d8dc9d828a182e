//! Ranks whose schedules do not fit together: nothing is sent behind a fault, and messages that no
//! receive takes need no memory.

use crate::world::World;
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::Schedule;
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext, RunId};
use std::time::{Duration, Instant};

testing::tests![needs(Nodes, Bpf):
    a_failed_run_sends_nothing_more,
    surplus_messages_of_runs_that_have_ended_need_no_memory,
];

/// Time after which a test counts as stuck; it is no measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Communicator of the schedules that do not fit together.
const WRONG: u32 = 1;
/// Communicator of a message that is sent last.
const LAST: u32 = 2;

fn context(number: u32, rank: usize) -> CommunicatorContext {
    CommunicatorContext { number, members: [0, 1].into(), rank: rank as u32 }
}

/// Sends 8 bytes from rank 0 to rank 1.
fn message(rank: usize) -> Schedule {
    let mut graph = Graph::new(rank as u32, 2);
    if rank == 0 {
        let input = graph.buffer(Access::Input, 8);
        graph.send(input, 1, 0);
    } else {
        let output = graph.buffer(Access::Output, 8);
        graph.receive(output, 0, 0);
    }
    compile(&graph).expect("the graph is right")
}

fn start(here: &Rank, schedule: &Schedule, communicator: u32) -> RunId {
    let rank = here.rank() as usize;
    let prepared = here.register(&context(communicator, rank), schedule, 0).expect("it is small");
    let inputs: &[&[u8]] = if rank == 0 { &[&[9; 8]] } else { &[&[]] };
    here.start(prepared, 0, inputs).expect("it starts")
}

fn wait(here: &Rank, run: RunId) {
    let is_complete = here.wait(run, Some(Instant::now() + TIME_LIMIT)).expect("it ends");
    assert!(is_complete, "rank {} waits for {:?}", here.rank(), here.waiting_for(run));
}

/// Rank 0 receives a message from itself with another length than it has sent; a message to rank 1
/// depends on the one that it sends to itself.
fn fails(rank: usize) -> Schedule {
    if rank == 1 {
        return message(rank);
    }
    let mut graph = Graph::new(0, 2);
    let input = graph.buffer(Access::Input, 8);
    let longer = graph.scratchpad(16);
    graph.receive(longer, 0, 1);
    let to_itself = graph.send(input, 0, 1);
    let to_other = graph.send(input, 1, 0);
    graph.requires(to_other, to_itself);
    compile(&graph).expect("lengths are compared at run time")
}

fn a_failed_run_sends_nothing_more() {
    let world = World::new(2, 1, 1500);
    world.run(2, |rank, here| {
        let wrong = start(here, &fails(rank), WRONG);
        if rank == 0 {
            wait(here, wrong);
            let error = here.fetch(wrong, &mut [&mut []]).expect_err("it has failed").to_string();
            assert!(error.contains("sends 8 bytes to rank 0"), "{error}");
        }
        // What rank 0 sends to rank 1 arrives in order on this network.
        wait(here, start(here, &message(rank), LAST));
        assert!(rank == 0 || !here.is_complete(wrong), "the failed run has sent a message");
    });
}

/// Rank 0 sends a short message, which rank 1 answers, and then a long one that no receive takes. The
/// run of rank 1 has ended when that one arrives.
fn with_surplus(rank: usize, bytes: u64) -> Schedule {
    let mut graph = Graph::new(rank as u32, 2);
    let access = if rank == 0 { Access::Input } else { Access::Output };
    let short = graph.buffer(access, 8);
    let answer = graph.scratchpad(8);
    if rank == 0 {
        let surplus = graph.scratchpad(bytes);
        graph.send(short, 1, 0);
        let answered = graph.receive(answer, 1, 1);
        let sent = graph.send(surplus, 1, 2);
        graph.requires(sent, answered);
    } else {
        let received = graph.receive(short, 0, 0);
        let sent = graph.send(answer, 0, 1);
        graph.requires(sent, received);
    }
    compile(&graph).expect("the graph is right")
}

/// Together they are longer than what a rank keeps for runs that it has not started.
fn surplus_messages_of_runs_that_have_ended_need_no_memory() {
    const RUNS: u64 = 1200;
    const BYTES: u64 = 60_000;
    let world = World::new(2, 1, 1500);
    world.run(2, |rank, here| {
        let schedule = with_surplus(rank, BYTES);
        let prepared = here.register(&context(WRONG, rank), &schedule, 0).expect("it is small");
        let inputs: &[&[u8]] = if rank == 0 { &[&[9; 8]] } else { &[&[]] };
        for sequence in 0..RUNS {
            let run = here.start(prepared, sequence, inputs).expect("it starts");
            wait(here, run);
            let mut found = [0; 8];
            let output = if rank == 0 { &mut [][..] } else { &mut found };
            here.fetch(run, &mut [output]).expect("it went well");
            assert!(rank == 0 || found == [9; 8]);
        }
        // Rank 1 frees space for the last ones while it waits.
        wait(here, start(here, &message(rank), LAST));
    });
}
