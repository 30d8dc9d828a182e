//! What the user sets, and jobs that tradewind does not serve.

use crate::harness::{Finished, Host};
use testing::mpi::Family;

testing::tests![needs(Mpich):
    switched_off_everything_is_left,
    unknown_values_leave_everything_in_one_line,
    only_the_named_collectives_are_taken_over,
    a_single_rank_is_left,
    one_rank_asks_for_the_report,
    reports_have_the_time_inside_every_completion_function,
    a_missing_command_leaves_everything_in_one_line,
];

fn first_host() -> Host {
    Host::all(Family::Mpich)[0]
}

fn switched_off_everything_is_left() {
    let job = first_host().job("progress", 2).variable("TRADEWIND_MPI", "off");
    let finished = job.preloaded().expect_success();
    assert!(finished.errors.contains("TRADEWIND_MPI is off"), "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce").0, 0);
    leaves_because_of(&finished, "TRADEWIND_MPI");
}

/// The first reason of each row of the report.
fn leaves_because_of(finished: &Finished, reason: &str) {
    let rows = finished.errors.lines().filter(|line| line.starts_with("tradewind: MPI_"));
    let reasons = rows.map(|row| row.trim_end_matches(|letter: char| letter.is_ascii_digit()));
    let others: Vec<&str> = reasons.filter(|row| !row.ends_with(&format!(" {reason} "))).collect();
    assert_eq!(others, [""; 0], "{finished:?}");
    assert!(finished.errors.contains(reason), "{finished:?}");
}

fn unknown_values_leave_everything_in_one_line() {
    let only = ("TRADEWIND_MPI_ONLY", "iallreduec", "the nearest name is iallreduce");
    let off = ("TRADEWIND_MPI", "0", "it must be on or off");
    for (name, value, text) in [only, off] {
        let finished = first_host().job("progress", 2).variable(name, value).preloaded();
        let finished = finished.expect_success();
        let lines = finished.errors.lines().filter(|line| line.contains("nothing runs"));
        let lines: Vec<&str> = lines.collect();
        assert!(lines.len() == 1 && lines[0].contains(text), "{finished:?}");
        leaves_because_of(&finished, name);
    }
}

fn only_the_named_collectives_are_taken_over() {
    let job = first_host().job("progress", 2);
    let job = job.variable("TRADEWIND_MPI_ONLY", "ibarrier, MPI_Ibcast, isum");
    let finished = job.preloaded().expect_success();
    let lines = finished.errors.matches("there is no collective \"isum\"").count();
    assert_eq!(lines, 1, "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce").0, 0, "{finished:?}");
    assert!(finished.calls("MPI_Iallreduce").1 > 0, "{finished:?}");
    assert!(finished.calls("MPI_Ibarrier").0 > 0, "{finished:?}");
}

fn a_single_rank_is_left() {
    let finished = first_host().job("collectives", 1).preloaded().expect_success();
    assert!(finished.errors.contains("there is one rank"), "{finished:?}");
    leaves_because_of(&finished, "one rank");
}

fn one_rank_asks_for_the_report() {
    let finished = first_host().job("report", 3).preloaded().expect_success();
    assert_eq!(finished.calls("MPI_Ibarrier"), (3, 0), "{finished:?}");
}

fn reports_have_the_time_inside_every_completion_function() {
    let ways = ["Wait", "Waitall", "Waitany", "Waitsome", "Test", "Testall", "Testany", "Testsome"];
    for way in ways {
        let finished = first_host().job("exposed", 2).argument(way).preloaded().expect_success();
        let mut words = finished.errors.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words.get(1) == Some(&"MPI_Iallreduce")).then_some(words)
        });
        let exposed = words.next().and_then(|words| words.get(4)?.parse().ok());
        // The completion executes an operation of 20 ms.
        assert!(exposed.is_some_and(|time: f64| time >= 20_000.0), "{way}: {finished:?}");
    }
}

fn a_missing_command_leaves_everything_in_one_line() {
    let job = first_host().job("progress", 2).variable("TRADEWIND_COMMAND", "/no/such/command");
    let finished = job.preloaded().expect_success();
    let lines: Vec<&str> =
        finished.errors.lines().filter(|line| line.contains("/no/such/command")).collect();
    assert_eq!(lines.len(), 1, "{finished:?}");
    assert_eq!(finished.calls("MPI_Iallreduce").0, 0, "{finished:?}");
    leaves_because_of(&finished, "no job");
}
