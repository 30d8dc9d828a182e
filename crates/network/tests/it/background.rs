//! Runs of the direct engine that no thread of their rank waits for.

use crate::jobs::{deadline, world};
use goal::compile::compile;
use goal::graph::{Access, Graph};
use network::backend::{Backend, DrainOutcome, RunId, ScheduleId};
use network::direct::DirectBackend;
use network::error::Error;
use network::job_nodes::random_key;
use network::local;
use network::transport::tcp::{Listener, Timeouts};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

testing::tests![
    a_rank_that_never_waits_takes_part,
    a_rank_that_has_sent_everything_is_needed_no_more,
    an_input_may_change_after_its_start,
    results_arrive_in_the_outputs_of_a_wait,
    results_of_a_wait_that_has_timed_out_are_kept,
    runs_of_more_bytes_than_connections_hold_advance_without_calls,
    a_discarded_run_is_completed_before_the_rank_leaves,
    a_run_that_only_exited_ranks_could_advance_holds_no_exit,
    an_abandoned_run_ends_for_the_other_rank,
    a_rank_that_computes_for_longer_than_the_node_time_out_loses_no_message,
];

/// Longer than what is sent without the receiver's consent.
const LONG: u64 = 4 << 20;

/// A message from rank 0 to rank 1 and back.
fn round_trip(rank: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, 2);
    let given = graph.buffer(Access::Input, bytes);
    let taken = graph.buffer(Access::Output, bytes);
    if rank == 0 {
        graph.send(given, 1, 0);
        graph.receive(taken, 1, 0);
    } else {
        let received = graph.receive(taken, 0, 0);
        let returned = graph.send(taken, 0, 0);
        graph.requires(returned, received);
    }
    graph
}

/// A message from rank 0 to rank 1.
fn message(rank: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, 2);
    if rank == 0 {
        let block = graph.buffer(Access::Input, bytes);
        graph.send(block, 1, 0);
    } else {
        let block = graph.buffer(Access::Output, bytes);
        graph.receive(block, 0, 0);
    }
    graph
}

fn pair() -> [DirectBackend; 2] {
    let ranks = local::connect_directly(2).expect("sockets");
    ranks.try_into().expect("two ranks")
}

fn register(backend: &DirectBackend, graph: &Graph) -> ScheduleId {
    let schedule = compile(graph).expect("in order");
    backend.register(&world(0, graph.rank(), 2), &schedule, 0).expect("it is small")
}

fn fetch(backend: &DirectBackend, run: RunId, outputs: &mut [&mut [u8]]) -> Result<(), Error> {
    assert_eq!(backend.wait(run, deadline()), Ok(true));
    backend.fetch(run, outputs)
}

/// Rank 1 returns every message while its only thread does something else.
fn a_rank_that_never_waits_takes_part() {
    let ranks = pair();
    for bytes in [8, 20_000, LONG] {
        let prepared = [0, 1].map(|rank| register(&ranks[rank], &round_trip(rank as u32, bytes)));
        let input: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
        for sequence in 0..20u64 {
            let number = sequence + 100 * bytes;
            let background = ranks[1].start(prepared[1], number, &[&input, &[]]).expect("memory");
            let run = ranks[0].start(prepared[0], number, &[&input, &[]]).expect("memory");
            let mut output = vec![0; bytes as usize];
            fetch(&ranks[0], run, &mut [&mut [], &mut output]).expect("no rank fails");
            assert!(output == input, "{bytes} bytes come back");
            while !ranks[1].is_complete(background) {
                std::thread::yield_now();
            }
            ranks[1].fetch(background, &mut []).expect("no rank fails");
        }
    }
}

/// A message in each direction.
fn exchange(rank: u32, bytes: u64) -> Graph {
    let mut graph = Graph::new(rank, 2);
    let given = graph.buffer(Access::Input, bytes);
    let taken = graph.buffer(Access::Output, bytes);
    graph.send(given, 1 - rank, 0);
    graph.receive(taken, 1 - rank, 0);
    graph
}

/// Rank 0 makes no call between its start and the end of the run on rank 1.
fn a_rank_that_has_sent_everything_is_needed_no_more() {
    let ranks = pair();
    let long = ranks[0].held() - 100;
    assert!(long > 64 << 10);
    for bytes in [0, 8, 20_000, 64 << 10, long] {
        let graphs = [0, 1].map(|rank| compile(&exchange(rank, bytes)).expect("in order"));
        assert!(graphs.iter().all(|graph| ranks[0].needs_no_thread(graph)), "{bytes} bytes");
        let prepared = [0, 1].map(|rank| register(&ranks[rank], &exchange(rank as u32, bytes)));
        for sequence in 0..20u64 {
            let number = sequence + 100 * bytes;
            let input = vec![sequence as u8; bytes as usize];
            let runs = [0, 1].map(|rank| {
                ranks[rank].start(prepared[rank], number, &[&input, &[]]).expect("memory")
            });
            let mut output = vec![9; bytes as usize];
            fetch(&ranks[1], runs[1], &mut [&mut [], &mut output]).expect("no rank fails");
            assert!(output == input, "{bytes} bytes arrive");
            while !ranks[0].is_complete(runs[0]) {
                std::thread::yield_now();
            }
            ranks[0].fetch(runs[0], &mut [&mut [], &mut output]).expect("no rank fails");
            assert!(output == input, "{bytes} bytes arrive");
        }
    }
}

/// Also where the start could not send all of it.
fn an_input_may_change_after_its_start() {
    let ranks = pair();
    for bytes in [8, 20_000, 1 << 20, LONG] {
        let prepared = [0, 1].map(|rank| register(&ranks[rank], &message(rank as u32, bytes)));
        for sequence in 0..10u64 {
            let number = sequence + 100 * bytes;
            let mut input = vec![sequence as u8 + 1; bytes as usize];
            let sent = ranks[0].start(prepared[0], number, &[&input]).expect("memory");
            input.fill(0);
            let received = ranks[1].start(prepared[1], number, &[&[]]).expect("memory");
            let mut output = vec![9; bytes as usize];
            fetch(&ranks[1], received, &mut [&mut output]).expect("no rank fails");
            assert!(output.iter().all(|byte| *byte == sequence as u8 + 1), "{bytes} bytes");
            fetch(&ranks[0], sent, &mut []).expect("no rank fails");
        }
    }
}

/// Waits with outputs that are used in place. Returns whether they have the results.
fn wait_in_place(
    backend: &DirectBackend,
    run: RunId,
    outputs: &mut [&mut [u8]],
    deadline: Option<Instant>,
) -> bool {
    let waited = backend.with_outputs_in_place(run, outputs, || backend.wait(run, deadline));
    let (waited, has_results) = waited.expect("the lengths of the schedule");
    waited.expect("no rank fails");
    has_results
}

fn results_arrive_in_the_outputs_of_a_wait() {
    let ranks = pair();
    for bytes in [20_000, 1 << 20, LONG] {
        let prepared = [0, 1].map(|rank| register(&ranks[rank], &exchange(rank as u32, bytes)));
        for sequence in 0..10u64 {
            let number = sequence + 100 * bytes;
            let inputs = [0, 1].map(|rank| vec![sequence as u8 + rank; bytes as usize]);
            let runs = [0, 1].map(|rank| {
                ranks[rank].start(prepared[rank], number, &[&inputs[rank], &[]]).expect("memory")
            });
            for (rank, other) in [(0, 1), (1, 0)] {
                let mut output = vec![99; bytes as usize];
                let run = runs[rank];
                let outputs: &mut [&mut [u8]] = &mut [&mut [], &mut output];
                let has_results = wait_in_place(&ranks[rank], run, outputs, deadline());
                // A thread of the rank may have ended the run before.
                let wanted: &mut [&mut [u8]] = if has_results { &mut [] } else { outputs };
                ranks[rank].fetch(run, wanted).expect("no rank fails");
                assert!(output == inputs[other], "{bytes} bytes");
            }
        }
    }
}

/// Ranks 1 and 2 send to halves of the output of rank 0, one before a wait of rank 0 and one after.
fn results_of_a_wait_that_has_timed_out_are_kept() {
    const HALF: u64 = 30_000;
    let ranks = local::connect_directly(3).expect("sockets");
    let mut gather = Graph::new(0, 3);
    let output = gather.buffer(Access::Output, 2 * HALF + 8);
    gather.receive(output.part(0, HALF), 1, 0);
    gather.receive(output.part(HALF + 8, HALF), 2, 0);
    let graphs = [1, 2].map(|rank| {
        let mut graph = Graph::new(rank, 3);
        let input = graph.buffer(Access::Input, HALF);
        graph.send(input, 0, 0);
        graph
    });
    let register = |rank: u32, graph| {
        let schedule = compile(graph).expect("in order");
        ranks[rank as usize].register(&world(0, rank, 3), &schedule, 0).expect("it is small")
    };
    let prepared = [register(0, &gather), register(1, &graphs[0]), register(2, &graphs[1])];
    for sequence in 0..20 {
        let run = ranks[0].start(prepared[0], sequence, &[&[]]).expect("memory");
        let send = |rank: usize| {
            let input = vec![rank as u8; HALF as usize];
            let run = ranks[rank].start(prepared[rank], sequence, &[&input]).expect("memory");
            ranks[rank].discard(run);
        };
        send(1);
        while ranks[0].waiting_for(run) != [2] {
            let mut first = vec![7; 2 * HALF as usize + 8];
            let soon = Some(Instant::now() + Duration::from_micros(100));
            assert!(!wait_in_place(&ranks[0], run, &mut [&mut first], soon));
        }
        send(2);
        let mut output = vec![7; 2 * HALF as usize + 8];
        let has_results = wait_in_place(&ranks[0], run, &mut [&mut output], deadline());
        let mut outputs: [&mut [u8]; 1] = [&mut output];
        let wanted = if has_results { &mut outputs[..0] } else { &mut outputs[..] };
        ranks[0].fetch(run, wanted).expect("no rank fails");
        let [first, rest] = [&output[..HALF as usize], &output[HALF as usize..]];
        assert!(first.iter().all(|byte| *byte == 1) && rest[..8] == [7; 8]);
        assert!(rest[8..].iter().all(|byte| *byte == 2));
    }
}

/// Rank 0 starts many runs and makes no call until all of them have ended on rank 1, whose messages
/// connections do not hold.
fn runs_of_more_bytes_than_connections_hold_advance_without_calls() {
    const RUNS: u64 = 400;
    const BYTES: u64 = 50_000;
    let ranks = pair();
    let prepared = [0, 1].map(|rank| register(&ranks[rank], &exchange(rank as u32, BYTES)));
    let input = vec![5; BYTES as usize];
    let mut output = vec![0; BYTES as usize];
    let start = |rank: usize, sequence| {
        ranks[rank].start(prepared[rank], sequence, &[&input, &[]]).expect("memory")
    };
    let runs: Vec<RunId> = (0..RUNS).map(|sequence| start(0, sequence)).collect();
    for sequence in 0..RUNS {
        let run = start(1, sequence);
        fetch(&ranks[1], run, &mut [&mut [], &mut output]).expect("no rank fails");
        assert!(output == input, "run {sequence}");
    }
    for run in runs {
        fetch(&ranks[0], run, &mut []).expect("no rank fails");
    }
}

fn a_discarded_run_is_completed_before_the_rank_leaves() {
    let [first, second] = pair();
    let prepared = register(&first, &message(0, LONG));
    let input = vec![3; LONG as usize];
    let run = first.start(prepared, 0, &[&input]).expect("memory");
    first.discard(run);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(move || first.drain(Instant::now() + LIMIT, &Vec::new));
        let prepared = register(&second, &message(1, LONG));
        let run = second.start(prepared, 0, &[&[]]).expect("memory");
        let mut output = vec![0; LONG as usize];
        fetch(&second, run, &mut [&mut output]).expect("the sender has not left before");
        assert!(output == input);
        assert_eq!(leaving.join().expect("no panic"), Ok(DrainOutcome::Drained));
    });
}

/// Time limit of a rank that leaves.
const LIMIT: Duration = Duration::from_secs(60);

fn a_run_that_only_exited_ranks_could_advance_holds_no_exit() {
    let [first, second] = pair();
    let prepared = register(&first, &message(0, LONG));
    let run = first.start(prepared, 0, &[&vec![3; LONG as usize]]).expect("memory");
    first.discard(run);
    drop(second);
    let drained = first.drain(Instant::now() + LIMIT, &Vec::new);
    assert!(matches!(drained, Ok(DrainOutcome::Undeliverable { runs: 1 })), "{drained:?}");
}

fn an_abandoned_run_ends_for_the_other_rank() {
    let ranks = pair();
    let prepared = [0, 1].map(|rank| register(&ranks[rank], &round_trip(rank as u32, LONG)));
    let input = vec![3; LONG as usize];
    let run = ranks[0].start(prepared[0], 0, &[&input, &[]]).expect("memory");
    ranks[0].abandon(run);
    ranks[0].discard(run);
    let run = ranks[1].start(prepared[1], 0, &[&input, &[]]).expect("memory");
    let failed = fetch(&ranks[1], run, &mut []).expect_err("rank 0 has left the run");
    assert!(failed.to_string().contains("rank 0"), "{failed}");
}

/// Rank 1 makes no call while its system has no space for what rank 0 sends.
fn a_rank_that_computes_for_longer_than_the_node_time_out_loses_no_message() {
    const RUNS: u64 = 40;
    const BYTES: u64 = 16 << 10;
    let timeouts = Timeouts { unanswered: Duration::from_secs(1), ..Timeouts::default() };
    let [first, second] = pair_with(timeouts);
    let prepared = register(&first, &message(0, BYTES));
    for sequence in 0..RUNS {
        let input = vec![sequence as u8; BYTES as usize];
        let run = first.start(prepared, sequence, &[&input]).expect("memory");
        first.discard(run);
    }
    // The computation. It synchronises nothing: it only has to take long enough.
    std::thread::sleep(3 * timeouts.unanswered);
    let prepared = register(&second, &message(1, BYTES));
    for sequence in 0..RUNS {
        let run = second.start(prepared, sequence, &[&[]]).expect("memory");
        let mut output = vec![0; BYTES as usize];
        fetch(&second, run, &mut [&mut output]).expect("rank 0 is there");
        assert!(output.iter().all(|byte| *byte == sequence as u8), "run {sequence}");
    }
    assert_eq!((first.lost(), second.lost()), (vec![], vec![]));
}

fn pair_with(timeouts: Timeouts) -> [DirectBackend; 2] {
    let key = random_key().expect("random bytes");
    let listeners = [0, 1].map(|_| Listener::bind("127.0.0.1:0").expect("a port"));
    let addresses: Vec<SocketAddr> = listeners.iter().map(Listener::address).collect();
    let [first, second] = listeners;
    let connect =
        |listener, rank| DirectBackend::connect(listener, rank, &addresses, key, timeouts, |_| {});
    std::thread::scope(|scope| {
        let second = scope.spawn(|| connect(second, 1).expect("sockets"));
        let first = connect(first, 0).expect("sockets");
        [first, second.join().expect("no panic")]
    })
}
