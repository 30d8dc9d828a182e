//! Tables that a job corrects while it runs, where the user has asked for that.

use super::{found, here, kept, run, said};
use crate::launched;
use collectives::{Algorithm, Choice, Collective};
use models::decision::{DecisionTable, Query, Range, Row, RunnerUp, Times};
use std::process::{Command, Stdio};
use tradewind::{CallForm, Communicator, Error, Job, Op, Result};

testing::tests![
    a_job_corrects_wrong_rows,
    a_job_on_several_nodes_corrects_wrong_rows,
    a_start_waits_for_no_trial,
    a_rank_without_memory_makes_no_trial,
    a_rank_that_is_killed_in_a_trial_fails_the_others,
    a_rank_that_leaves_before_a_trial_between_nodes_fails_the_others,
    a_table_stays_as_it_is_unless_the_user_asks,
];
testing::parts![
    call_often,
    call_often_between_nodes,
    start_often,
    call_often_without_memory,
    launch_beside_a_killed_rank,
    rank_beside_a_killed_one,
    leave_before_a_trial,
];

/// Bytes of the calls by a wrong plan: a chain of segments of a few bytes.
const WRONG_BYTES: usize = 2000;

/// Calls a broadcast and a reduction so often that a job refines its table, and prints the algorithms
/// before and afterwards.
fn call_often() {
    tradewind::local(4, |world| {
        let explain = |when: &str| -> Result<()> {
            let sum = [1u64; WRONG_BYTES / 8];
            let mut whole = [0; WRONG_BYTES / 8];
            let request = world.ireduce(&sum, &mut whole, Op::Sum, 0)?;
            let of_integers = request.explain().map(|explanation| explanation.algorithm.name());
            request.wait()?;
            let of =
                |form, operation| world.explain_form(form, operation, WRONG_BYTES as u64).algorithm;
            let bcast = of(CallForm::Blocking, Collective::Bcast);
            let ibcast = of(CallForm::Nonblocking, Collective::Bcast);
            let floats = of(CallForm::Nonblocking, Collective::Reduce);
            if world.rank() == 0 {
                let integers = of_integers.unwrap_or("none");
                println!("\n{when}: {bcast} {ibcast} {integers}, floats {floats}");
            }
            Ok(())
        };
        explain("before")?;
        let mut buffer = [0u8; WRONG_BYTES];
        for call in 0..1100u32 {
            let byte = call as u8;
            buffer.fill(if world.rank() == 0 { byte } else { !byte });
            world.bcast(&mut buffer, 0)?;
            assert_eq!(buffer, [byte; WRONG_BYTES]);
            buffer.fill(if world.rank() == 3 { byte } else { !byte });
            world.ibcast(&mut buffer, 3)?.wait()?;
            assert_eq!(buffer, [byte; WRONG_BYTES]);
            let mut sum = [0.0; WRONG_BYTES / 8];
            world.ireduce(&[1.0; WRONG_BYTES / 8], &mut sum, Op::Sum, 0)?.wait()?;
            assert!(world.rank() > 0 || sum == [4.0; WRONG_BYTES / 8]);
        }
        explain("after")
    })
    .expect("every rank refines alike");
}

/// Calls a broadcast among two nodes so often that a job refines its table.
fn call_often_between_nodes() {
    tradewind::local_nodes(&[2, 2], |world| {
        for call in 0..1010u32 {
            let mut buffer = [u8::from(world.rank() == 1) * call as u8; WRONG_BYTES];
            world.bcast(&mut buffer, 1)?;
            assert_eq!(buffer, [call as u8; WRONG_BYTES]);
        }
        let chosen = world.explain(Collective::Bcast, WRONG_BYTES as u64).algorithm;
        let mut of_all = [0; 4];
        world.allgather(&[chosen as u64], &mut of_all)?;
        assert_eq!(of_all, [chosen as u64; 4], "ranks that choose differently wait for ever");
        if world.rank() == 0 {
            println!("\nafter: {chosen}");
        }
        Ok(())
    })
    .expect("every rank refines alike");
}

/// Starts broadcasts so often that a trial is due, then a reduce-scatter by a user-defined operation,
/// whose start may not wait for the other rank.
fn start_often() {
    let (started, is_started) = std::sync::mpsc::channel();
    let is_started = std::sync::Mutex::new(is_started);
    tradewind::local(2, |world| {
        let mut buffer = [0u8; WRONG_BYTES];
        for _ in 0..1010 {
            world.ibcast(&mut buffer, 0)?.wait()?;
        }
        let mut sum = [0u64; 1];
        let add = tradewind::fold(|left: &mut u64, right: &u64| *left += right);
        if world.rank() == 1 {
            // The limit ends a failing test only.
            let limit = std::time::Duration::from_secs(60);
            let is_started = is_started.lock().expect("rank 1 alone has it");
            is_started.recv_timeout(limit).expect("the other rank's start has returned");
        }
        let request = world.ireduce_scatter(&[1u64; 2], &mut sum, &[1, 1], add)?;
        if world.rank() == 0 {
            started.send(()).expect("the other rank waits for it");
        }
        request.wait()?;
        assert_eq!(sum, [2]);
        world.barrier()
    })
    .expect("no start waits");
}

/// Bytes of a call with more segments of 16 bytes than a graph may have, so that it is flat.
const FLAT_BYTES: usize = 32 << 10;

/// Calls a reduction of shared buffers so often that a trial is due, on ranks of which one has no
/// more memory than these calls need.
fn call_often_without_memory() {
    tradewind::local(4, |world| {
        let ones = world.alloc::<u64>(FLAT_BYTES / 8)?;
        let mut ones = Some((ones, world.alloc::<u64>(FLAT_BYTES / 8)?));
        // Space for what such a call stages, which is less than a trial needs.
        let mut space = Some(world.alloc::<u8>(FLAT_BYTES + 4096)?);
        let mut filling = Vec::new();
        for call in 0..1010 {
            let (input, output) = ones.take().expect("each call hands them back");
            ones = Some(world.ireduce(input, output, Op::Sum, 0)?.wait()?);
            if call == 0 && world.rank() == 0 {
                for bytes in [1 << 20, 4096] {
                    while let Ok(buffer) = world.alloc::<u8>(bytes) {
                        filling.push(buffer);
                    }
                }
                drop(space.take());
            }
        }
        world.barrier()
    })
    .expect("the program's calls have the memory that they need");
}

/// The rank that is killed in a trial or leaves before it. It is the last one of a chain, so no
/// broadcast of the others waits for it.
const VICTIM: u32 = 3;

/// Calls after which a trial is due.
const CALLS: u32 = 1000;

/// Broadcasts until an error; `before` is called with the number of each call. Every broadcast
/// that succeeds has its own data, and none succeeds after one that has failed.
fn bcast_until_an_error(world: &Communicator, mut before: impl FnMut(u32)) {
    let mut buffer = [0u8; WRONG_BYTES];
    let outcome = (0..100 * CALLS).try_for_each(|call| -> Result<()> {
        before(call);
        let byte = call as u8;
        buffer.fill(if world.rank() == 0 { byte } else { !byte });
        world.bcast(&mut buffer, 0)?;
        assert_eq!(buffer, [byte; WRONG_BYTES]);
        Ok(())
    });
    // Between nodes a rank that has got an error may end the call for the others.
    let is_failure =
        |error: &Error| error.failed_rank().is_some() || matches!(error, Error::Run(_));
    let error = outcome.expect_err("a rank is gone");
    assert!(is_failure(&error), "{error}");
    let error = world.bcast(&mut buffer, 0).expect_err("a rank is gone");
    assert!(is_failure(&error) || matches!(error, Error::Broken), "{error}");
}

fn rank_beside_a_killed_one() {
    let job = Job::init().expect("started by the launcher");
    let world = job.world();
    // The end of its input makes the shell kill this rank, in a few calls or in the trial.
    let is_victim = world.rank() == VICTIM;
    let killer = is_victim.then(|| {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read line; kill -9 $PPID"]).stdin(Stdio::piped());
        shell.spawn().expect("there is a shell")
    });
    let mut input = killer.and_then(|mut killer| killer.stdin.take());
    bcast_until_an_error(world, |call| {
        if call + 1 == CALLS {
            input.take();
        }
    });
    println!("finished");
}

/// Its ranks have the variables of this process.
fn launch_beside_a_killed_rank() {
    let part = format!("{}::rank_beside_a_killed_one", module_path!());
    let (outcome, finished) = launched::ranks_of(4, &part);
    assert_eq!(outcome.failed.map(|(rank, _)| rank), Some(VICTIM));
    assert_eq!(finished, [0, 1, 2]);
}

/// A rank leaves before the call that the others make a trial in.
fn leave_before_a_trial() {
    let outcome = tradewind::local_nodes(&[2, 2], |world| {
        if world.rank() == VICTIM {
            let mut buffer = [0u8; WRONG_BYTES];
            return (1..CALLS).try_for_each(|_| world.bcast(&mut buffer, 0));
        }
        bcast_until_an_error(&world, |_| ());
        Ok(())
    });
    outcome.expect("each rank has found what it expects");
}

/// A table with a chain of segments of 16 bytes everywhere, and a binomial tree as the next best.
fn wrong_table(ranks_per_node: u32) -> DecisionTable {
    let range = Range {
        from: 0,
        to: None,
        plan: Choice {
            segment_bytes: std::num::NonZeroU64::new(16),
            ..Choice::of(Algorithm::SegmentedChain)
        },
        engine: None,
        at: 8,
        time: Times::predicted(1.0),
        runner_up: Some(RunnerUp {
            plan: Choice::of(Algorithm::Binomial),
            engine: None,
            time: Times::predicted(2.0),
        }),
        held: None,
    };
    let both = |form: &CallForm| {
        let row = |operation| Row {
            operation,
            form: *form,
            ranks: 4,
            ranks_per_node,
            error: None,
            disturbed: None,
            ranges: vec![range],
        };
        [Collective::Bcast, Collective::Reduce].map(row)
    };
    DecisionTable::new(here(), CallForm::ALL.iter().flat_map(both).collect())
        .expect("a table that can be")
}

/// A hundred segments take many times as long as the flat collective or a tree. A trial may still
/// find them fastest while other work uses the cores, so some jobs have to find the truth, not each.
fn a_job_corrects_wrong_rows() {
    /// Jobs of which one is hardly disturbed.
    const JOBS: u32 = 6;
    assert!((0..JOBS).any(|_| corrects_wrong_rows()), "no job of {JOBS} has found faster plans");
}

/// Returns whether a job has found faster plans for all wrong rows. It uses what it has found.
fn corrects_wrong_rows() -> bool {
    let file = kept(&wrong_table(4));
    let part = "decisions::refinement::call_often";
    let output = run(part, Some(file.path()), Some(("TRADEWIND_REFINE", "1")));
    said(&output);
    let found = found(&output);
    let line = |when: &str| {
        found.lines().find(|line| line.starts_with(when)).unwrap_or_default().to_owned()
    };
    let chain = "segmented-chain";
    assert_eq!(line("before"), format!("before: {chain} {chain} {chain}, floats {chain}"));
    let table = DecisionTable::read(file.path()).expect("it is whole");
    let plan = |form, operation, bytes| {
        let query = Query { operation, form, ranks: 4, ranks_per_node: 4, bytes };
        let range = table.look_up(&query).expect("it has no gap").range;
        (range.plan.algorithm, range.time.measured.is_some())
    };
    let calls = [
        (CallForm::Blocking, Collective::Bcast),
        (CallForm::Nonblocking, Collective::Bcast),
        (CallForm::Nonblocking, Collective::Reduce),
    ];
    let corrected = calls.map(|(form, operation)| {
        let (algorithm, is_measured) = plan(form, operation, WRONG_BYTES as u64);
        assert!(is_measured, "{operation}: {algorithm}");
        // Nothing was found out about other sizes.
        assert_eq!(plan(form, operation, 100).0, Algorithm::SegmentedChain);
        algorithm
    });
    // Sums of floating-point numbers keep the order that they had when the job started.
    let [bcast, ibcast, integers] = corrected;
    assert_eq!(line("after"), format!("after: {bcast} {ibcast} {integers}, floats {chain}"));
    corrected.iter().all(|algorithm| *algorithm != Algorithm::SegmentedChain)
}

fn a_job_on_several_nodes_corrects_wrong_rows() {
    let file = kept(&wrong_table(2));
    let part = "decisions::refinement::call_often_between_nodes";
    let output = run(part, Some(file.path()), Some(("TRADEWIND_REFINE", "1")));
    said(&output);
    let (operation, form) = (Collective::Bcast, CallForm::Blocking);
    let bytes = WRONG_BYTES as u64;
    let query = Query { operation, form, ranks: 4, ranks_per_node: 2, bytes };
    let table = DecisionTable::read(file.path()).expect("it is whole");
    let range = table.look_up(&query).expect("it has no gap").range;
    assert!(range.time.measured.is_some(), "{range:?}");
    // The fastest plan is another one while other work uses the cores. All have the same one.
    let after = format!("after: {}", range.plan.algorithm);
    assert!(found(&output).contains(&after), "{after}: {}", found(&output));
}

fn a_start_waits_for_no_trial() {
    let file = kept(&wrong_table(4));
    let output = run(
        "decisions::refinement::start_often",
        Some(file.path()),
        Some(("TRADEWIND_REFINE", "1")),
    );
    said(&output);
    // The trial took place later, in the barrier.
    let table = DecisionTable::read(file.path()).expect("it is whole");
    let (operation, form) = (Collective::Bcast, CallForm::Nonblocking);
    let query = Query { operation, form, ranks: 2, ranks_per_node: 2, bytes: WRONG_BYTES as u64 };
    let range = table.look_up(&query).expect("it has no gap").range;
    assert!(range.time.measured.is_some(), "{range:?}");
}

fn a_rank_without_memory_makes_no_trial() {
    let file = kept(&wrong_table(4));
    let part = "decisions::refinement::call_often_without_memory";
    let output = run(part, Some(file.path()), Some(("TRADEWIND_REFINE", "1")));
    assert_eq!(said(&output), [""; 0]);
    assert_eq!(DecisionTable::read(file.path()).expect("it is whole"), wrong_table(4));
}

/// Where ranks leave a trial at different calls, the next ones of the program must not meet.
fn a_rank_that_is_killed_in_a_trial_fails_the_others() {
    /// Jobs: some have the rank killed before the trial, some in it.
    const JOBS: u32 = 4;
    let file = kept(&wrong_table(4));
    for _ in 0..JOBS {
        let part = "decisions::refinement::launch_beside_a_killed_rank";
        let output = run(part, Some(file.path()), Some(("TRADEWIND_REFINE", "1")));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn a_rank_that_leaves_before_a_trial_between_nodes_fails_the_others() {
    let file = kept(&wrong_table(2));
    let part = "decisions::refinement::leave_before_a_trial";
    let output = run(part, Some(file.path()), Some(("TRADEWIND_REFINE", "1")));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn a_table_stays_as_it_is_unless_the_user_asks() {
    let file = kept(&wrong_table(4));
    let output = run("decisions::refinement::call_often", Some(file.path()), None);
    said(&output);
    assert_eq!(DecisionTable::read(file.path()).expect("it is whole"), wrong_table(4));
}
