//! More messages than there is memory for, for collectives that their receiver has not started.

use crate::world::World;
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::Schedule;
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext, RunId};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

testing::tests![needs(Nodes, Bpf):
    what_is_waited_for_comes_past_short_messages_that_fill_all_slots,
    what_is_waited_for_comes_past_long_messages_that_fill_all_slots,
    what_is_waited_for_comes_past_messages_of_runs_that_have_started,
];

/// Time after which a test counts as stuck; it is no measure of speed.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// Communicator of the messages whose receives are posted late.
const EARLY: u32 = 1;
/// Communicator of the message with a waiting receive.
const WANTED: u32 = 2;

/// Sends this number of bytes from rank 0 to rank 1.
fn message(rank: u32, bytes: u64) -> Schedule {
    let mut graph = Graph::new(rank, 2);
    if rank == 0 {
        let input = graph.buffer(Access::Input, bytes);
        graph.send(input, 1, 0);
    } else {
        let output = graph.buffer(Access::Output, bytes);
        graph.receive(output, 0, 0);
    }
    compile(&graph).expect("the graph is right")
}

fn context(number: u32, rank: u32) -> CommunicatorContext {
    CommunicatorContext { number, members: [0, 1].into(), rank }
}

fn wait(here: &Rank, run_id: RunId) {
    let is_complete = here.wait(run_id, Some(Instant::now() + TIME_LIMIT)).expect("it ends");
    assert!(is_complete, "rank {} waits for {:?}", here.rank(), here.waiting_for(run_id));
}

fn contents(run: u64, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|place| (run * 31 + place) as u8).collect()
}

/// Rank 0 starts many runs, then one of another communicator. Rank 1 first waits for that one, then
/// starts the many. Their numbers begin above 0 and have gaps, as where another backend runs
/// collectives between them.
fn one_behind_many(runs: u64, bytes: u64) {
    let world = World::new(2, 1, 1500);
    world.run(2, move |rank, here| {
        let rank = rank as u32;
        let many =
            here.register(&context(EARLY, rank), &message(rank, bytes), 0).expect("it is small");
        let one = here.register(&context(WANTED, rank), &message(rank, 8), 0).expect("it is small");
        let input = |run| if rank == 0 { contents(run, bytes) } else { Vec::new() };
        let start = |run| here.start(many, 3 * run + 7, &[&input(run)]).expect("it starts");
        let finish = |run, run_id| {
            wait(here, run_id);
            let mut found = vec![0; if rank == 0 { 0 } else { bytes as usize }];
            here.fetch(run_id, &mut [&mut found]).expect("it went well");
            assert!(rank == 0 || found == contents(run, bytes), "run {run}");
        };
        let go =
            || here.start(one, 0, &[if rank == 0 { &[9; 8] } else { &[] }]).expect("it starts");
        if rank == 0 {
            let run_ids: Vec<(u64, RunId)> = (0..runs).map(|run| (run, start(run))).collect();
            wait(here, go());
            run_ids.into_iter().for_each(|(run, run_id)| finish(run, run_id));
        } else {
            wait(here, go());
            for run in 0..runs {
                finish(run, start(run));
            }
        }
    });
    println!("{:?}", world.loaders[1].counts());
}

fn what_is_waited_for_comes_past_short_messages_that_fill_all_slots() {
    one_behind_many(5000, 8);
}

fn what_is_waited_for_comes_past_long_messages_that_fill_all_slots() {
    one_behind_many(700, 3000);
}

/// Rank 0 sends many messages, and one more on request. Rank 1 requests it and receives the many
/// messages only afterwards.
fn many_before_the_one(rank: u32, messages: u64, bytes: u64) -> Schedule {
    const MANY: u32 = 0;
    const CALL: u32 = 1;
    const GO: u32 = 2;
    let mut graph = Graph::new(rank, 2);
    let go = graph.buffer(Access::InOut, 8);
    let call = graph.scratchpad(8);
    let many =
        graph.buffer(if rank == 0 { Access::Input } else { Access::Output }, messages * bytes);
    let parts = (0..messages).map(|number| many.part(number * bytes, bytes));
    if rank == 0 {
        for part in parts {
            graph.send(part, 1, MANY);
        }
        let called = graph.receive(call, 1, CALL);
        let sent = graph.send(go, 1, GO);
        graph.requires(sent, called);
    } else {
        graph.send(call, 0, CALL);
        let gone = graph.receive(go, 0, GO);
        for part in parts {
            let received = graph.receive(part, 0, MANY);
            graph.requires(received, gone);
        }
    }
    compile(&graph).expect("the graph is right")
}

fn what_is_waited_for_comes_past_messages_of_runs_that_have_started() {
    const RUNS: u64 = 5;
    const MESSAGES: u64 = 300;
    const BYTES: u64 = 1000;
    let world = World::new(2, 1, 1500);
    let started = Arc::new(Barrier::new(2));
    world.run(2, move |rank, here| {
        let rank = rank as u32;
        let schedule = many_before_the_one(rank, MESSAGES, BYTES);
        let prepared = here.register(&context(EARLY, rank), &schedule, 0).expect("it is small");
        let start = |run| {
            let many = if rank == 0 { contents(run, MESSAGES * BYTES) } else { Vec::new() };
            (run, here.start(prepared, run, &[&[run as u8; 8], &many]).expect("it starts"))
        };
        // All messages are sent before rank 1 starts.
        let mut run_ids = Vec::new();
        if rank == 0 {
            run_ids.extend((0..RUNS).map(start));
        }
        started.wait();
        if rank == 1 {
            run_ids.extend((0..RUNS).map(start));
        }
        for (run, run_id) in run_ids {
            wait(here, run_id);
            let mut found = vec![0; if rank == 0 { 0 } else { (MESSAGES * BYTES) as usize }];
            here.fetch(run_id, &mut [&mut [], &mut found]).expect("it went well");
            assert!(rank == 0 || found == contents(run, MESSAGES * BYTES), "run {run}");
        }
    });
}
