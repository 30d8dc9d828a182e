//! Memory after many rounds of create, use and drop, in which ranks lag: it stays what it was.

mod messages;
mod objects;
mod rounds;

use crate::job_kinds::Kind;
use crate::launched;
use rounds::{Growth, RANKS, Rounds, Row};
use std::process::Command;
use tradewind::{EngineKind, Job};

testing::tests![
    rounds_on_one_node_leave_no_memory,
    rounds_of_the_callers_engine_leave_no_memory,
    rounds_between_pairs_of_ranks_leave_no_memory,
    rounds_between_nodes_leave_no_memory,
    rounds_of_processes_leave_no_memory,
];

testing::parts![rounds_of_a_job, rounds_of_a_rank];

/// The kinds of jobs: in each, ranks wait for each other and finish in other ways.
const JOBS: [Kind; 4] =
    [Kind::OneNode(EngineKind::Peers), Kind::OneNode(EngineKind::Caller), Kind::Pairs, Kind::Apart];

/// Names the rows to run, by a part of their names; all if it is not set.
const ROWS: &str = "TRADEWIND_GROWTH_ROWS";

fn rounds_on_one_node_leave_no_memory() {
    run_in_a_process(0);
}

fn rounds_of_the_callers_engine_leave_no_memory() {
    run_in_a_process(1);
}

fn rounds_between_pairs_of_ranks_leave_no_memory() {
    run_in_a_process(2);
}

fn rounds_between_nodes_leave_no_memory() {
    run_in_a_process(3);
}

fn rounds_of_processes_leave_no_memory() {
    let part = concat!(module_path!(), "::rounds_of_a_rank");
    let (outcome, finished) = launched::ranks_of(RANKS, part);
    assert_eq!((outcome.failed, finished), (None, (0..RANKS).collect()));
}

/// The memory of a process is that of all its tests, so the rounds have one of their own.
fn run_in_a_process(job: usize) {
    let mut command: Command = testing::part(concat!(module_path!(), "::rounds_of_a_job"));
    let status = command.arg(job.to_string()).status().expect("the process starts");
    assert!(status.success(), "{}: {status}", JOBS[job]);
}

/// The rows in jobs of threads, one each. The argument is the number of the kind.
fn rounds_of_a_job() {
    let argument = std::env::args().nth(3).and_then(|job| job.parse::<usize>().ok());
    let job = JOBS[argument.expect("the number of a job")];
    let on_one_node = matches!(job, Kind::OneNode(_));
    let name = job.to_string();
    check(&name, on_one_node, true, |row, rounds| rounds::measure_job(job, row, rounds));
}

/// All rows in one job, of which this process is a rank, started by any launcher.
fn rounds_of_a_rank() {
    let job = Job::init().expect("started by a launcher");
    let world = job.world();
    let name = format!("{} processes on {} nodes", world.size(), world.nodes());
    check(&name, world.nodes() == 1, world.rank() == 0, |row, rounds| {
        rounds::measure(world, row, rounds).unwrap_or_else(|error| panic!("{}: {error}", row.name))
    });
    println!("finished");
}

/// Measures all rows. Fails if one of them has grown by more than chance.
fn check(job: &str, on_one_node: bool, is_shown: bool, measure: impl Fn(&Row, Rounds) -> Growth) {
    let wanted = std::env::var(ROWS).unwrap_or_default();
    let rounds = Rounds::of_environment();
    let rows = objects::ROWS.iter().chain(messages::ROWS).filter(|row| row.name.contains(&wanted));
    let grown: Vec<String> = rows
        .filter_map(|row| {
            let growth = measure(row, rounds);
            (rounds.are_shown && is_shown).then(|| eprintln!("{job}: {growth}"));
            growth.is_excessive(on_one_node).then(|| growth.to_string())
        })
        .collect();
    assert!(grown.is_empty(), "{job}:\n{}", grown.join("\n"));
}
