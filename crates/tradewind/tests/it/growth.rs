//! Memory after many rounds of create, use and drop, in which ranks lag: it stays what it was.

mod messages;
mod objects;
mod rounds;

use crate::job_kinds::Kind;
use rounds::{Rounds, Row};
use std::process::Command;
use tradewind::EngineKind;

testing::tests![
    rounds_on_one_node_leave_no_memory,
    rounds_of_the_callers_engine_leave_no_memory,
    rounds_between_pairs_of_ranks_leave_no_memory,
    rounds_between_nodes_leave_no_memory,
];

testing::parts![rounds_of_a_job];

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

/// The memory of a process is that of all its tests, so the rounds have one of their own.
fn run_in_a_process(job: usize) {
    let mut command: Command = testing::part(concat!(module_path!(), "::rounds_of_a_job"));
    let status = command.arg(job.to_string()).status().expect("the process starts");
    assert!(status.success(), "{}: {status}", JOBS[job]);
}

fn rounds_of_a_job() {
    let argument = std::env::args().nth(3).and_then(|job| job.parse::<usize>().ok());
    let job = JOBS[argument.expect("the number of a job")];
    let wanted = std::env::var(ROWS).unwrap_or_default();
    let rows = objects::ROWS.iter().chain(messages::ROWS).filter(|row| row.name.contains(&wanted));
    let rounds = Rounds::of_environment();
    let grown: Vec<String> = rows.filter_map(|row| grown(job, row, rounds)).collect();
    assert!(grown.is_empty(), "{job}:\n{}", grown.join("\n"));
}

/// Runs a row. Returns the growth if it is more than chance.
fn grown(job: Kind, row: &Row, rounds: Rounds) -> Option<String> {
    let growth = rounds::measure(job, row, rounds);
    rounds.are_shown.then(|| eprintln!("{job}: {growth}"));
    growth.is_excessive(job, rounds).then(|| growth.to_string())
}
