//! Many communicators, many runs of each under way at once, from several threads.

use crate::world::{JobKind, World};
use goal::arithmetic::{Arithmetic, DataType};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use goal::schedule::{Kind, Schedule};
use kernel::Rank;
use network::backend::{Backend, CommunicatorContext, RunId};
use std::sync::Arc;
use virtual_nodes::VirtualNodes;

testing::tests![needs(Nodes, Bpf):
    ranks_without_arriving_messages_have_the_program_run,
    runs_of_many_communicators_do_not_meet,
    runs_that_find_no_space_wait_for_it,
    operations_say_when_they_were_executed,
];

/// A ring: each rank sends its number to the next rank and adds the number of the previous one.
fn ring(rank: usize, ranks: usize) -> Schedule {
    let mut graph = Graph::new(rank as u32, ranks as u32);
    let count = ranks as u32;
    let input = graph.buffer(Access::Input, 8);
    let output = graph.buffer(Access::Output, 8);
    let received = graph.scratchpad(8);
    graph.send(input, (rank as u32 + 1) % count, 5);
    let receive = graph.receive(received, (rank as u32 + count - 1) % count, 5);
    let add = graph.local(Arithmetic::Add, DataType::U64, input, received, output);
    graph.requires(add, receive);
    compile(&graph).expect("the graph is right")
}

/// Returns the contribution of a rank to a run.
fn number(communicator: u32, sequence: u64, rank: usize) -> u64 {
    u64::from(communicator) << 32 | sequence << 8 | rank as u64
}

/// Starts many runs, then waits for them, the last first.
fn storm(here: &Rank, communicator: u32, rank: usize, ranks: usize) {
    const RUNS: u64 = 40;
    let context = CommunicatorContext {
        number: communicator,
        members: (0..ranks as u32).collect(),
        rank: rank as u32,
    };
    let prepared = here.register(&context, &ring(rank, ranks), 7).expect("it is small");
    for wave in 0..10 {
        let mut run_ids: Vec<(u64, RunId)> = Vec::new();
        for sequence in wave * RUNS..(wave + 1) * RUNS {
            let own = number(communicator, sequence, rank).to_le_bytes();
            run_ids
                .push((sequence, here.start(prepared, sequence, &[&own, &[]]).expect("it starts")));
        }
        for (sequence, run_id) in run_ids.into_iter().rev() {
            if sequence % 7 == 3 {
                here.discard(run_id);
                continue;
            }
            assert!(here.wait(run_id, None).expect("it ends"));
            let mut sum = [0; 8];
            here.fetch(run_id, &mut [&mut [], &mut sum]).expect("it went well");
            let before = (rank + ranks - 1) % ranks;
            let expected =
                number(communicator, sequence, rank) + number(communicator, sequence, before);
            assert_eq!(
                u64::from_le_bytes(sum),
                expected,
                "rank {rank}, communicator {communicator}, run {sequence}"
            );
        }
    }
    here.release(prepared);
}

fn ranks_without_arriving_messages_have_the_program_run() {
    let testbed = VirtualNodes::new(2, 1500).expect("virtual nodes");
    let kind = JobKind { has_no_doorbell: true, ..JobKind::default() };
    let world = World::on(Arc::new(testbed), 1, 1500, kind);
    let number = world.communicator();
    world.run(2, move |rank, here| storm(here, number, rank, 2));
}

fn runs_of_many_communicators_do_not_meet() {
    let world = World::new(2, 2, 1500);
    world.run(4, |rank, here| {
        std::thread::scope(|scope| {
            for communicator in 0..4 {
                scope.spawn(move || storm(here, communicator, rank, 4));
            }
        });
    });
}

/// A long buffer is copied from input to output when the other rank has sent a number. Six runs
/// fill the arena.
fn long_copy(rank: usize) -> Schedule {
    const BYTES: u64 = 300_000;
    let mut graph = Graph::new(rank as u32, 2);
    let input = graph.buffer(Access::Input, BYTES);
    let output = graph.buffer(Access::Output, BYTES);
    let heard = graph.scratchpad(8);
    graph.send(input.part(0, 8), 1 - rank as u32, 0);
    let receive = graph.receive(heard, 1 - rank as u32, 0);
    let copy = graph.copy(input, output);
    graph.requires(copy, receive);
    compile(&graph).expect("the graph is right")
}

fn runs_that_find_no_space_wait_for_it() {
    const RUNS: u64 = 30;
    let world = World::new(2, 1, 1500);
    world.run(2, |rank, here| {
        let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank: rank as u32 };
        let prepared = here.register(&context, &long_copy(rank), 0).expect("it is not too large");
        let bytes = |sequence: u64| vec![sequence as u8; 300_000];
        let start = |sequence| {
            here.start(prepared, sequence, &[&bytes(sequence), &[]]).expect("it starts, or will")
        };
        let mut run_ids: Vec<RunId> = (0..RUNS).map(start).collect();
        // These runs are never waited for, and the other rank needs their messages.
        run_ids.drain(20..).for_each(|run_id| here.discard(run_id));
        let later: Vec<RunId> = (RUNS..RUNS + 10).map(start).collect();
        assert!(here.wait(later[9], None).expect("it ends"), "the last one first");
        let started = (0..).zip(run_ids).chain((RUNS..).zip(later));
        for (sequence, run_id) in started {
            assert!(here.wait(run_id, None).expect("it ends"));
            let mut found = vec![0; 300_000];
            here.fetch(run_id, &mut [&mut [], &mut found]).expect("it went well");
            assert_eq!(found, bytes(sequence), "run {sequence}");
            assert!(here.fetch(run_id, &mut [&mut [], &mut found]).is_err(), "it is fetched once");
        }
    });
}

fn operations_say_when_they_were_executed() {
    let world = World::new(2, 1, 1500);
    world.run(2, |rank, here| {
        here.set_timed(true);
        let context = CommunicatorContext { number: 0, members: [0, 1].into(), rank: rank as u32 };
        let schedule = ring(rank, 2);
        let prepared = here.register(&context, &schedule, 0).expect("it is small");
        let before = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let run_id = here.start(prepared, 0, &[&[0; 8], &[]]).expect("it starts");
        assert!(here.wait(run_id, None).expect("it ends"));
        let times = here.times(run_id);
        let after = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let nanoseconds =
            |time: rustix::time::Timespec| (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64;
        assert!(
            times.iter().all(|time| (nanoseconds(before)..=nanoseconds(after)).contains(time)),
            "{times:?}"
        );
        let time_of = |kind| {
            let operations = schedule.view().operations();
            times[operations.iter().position(|record| record.kind() == kind).expect("there is one")]
        };
        assert!(
            time_of(Kind::Receive) <= time_of(Kind::Local),
            "the addition needs what was received: {times:?}"
        );
        here.fetch(run_id, &mut [&mut [], &mut [0; 8]]).expect("it went well");
    });
}
