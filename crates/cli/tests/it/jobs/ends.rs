//! Ends of jobs, and their exit statuses.

use crate::jobs::harness::{Line, TRADEWIND};

testing::tests![
    a_rank_that_exits_early_is_named_with_its_status,
    a_rank_that_exits_early_and_content_is_named_too,
    a_rank_that_leaves_in_order_while_others_wait_is_named,
    a_rank_that_panics_is_named,
    the_status_is_that_of_the_first_rank_that_fails,
    programs_that_know_nothing_of_tradewind_run_too,
    a_signal_that_ends_a_rank_is_told_as_shells_do,
    programs_that_cannot_be_started_are_named,
    impossible_numbers_of_ranks_are_refused,
    options_are_read_as_in_other_commands,
    more_ranks_than_cores_are_bound_to_none,
    ranks_that_outlive_a_failure_are_ended_whatever_they_ignore,
    a_job_whose_time_is_over_is_ended,
    two_jobs_at_once_do_not_meet,
    a_job_within_a_rank_is_a_job_of_its_own,
];

/// Runs the command with these arguments.
fn command(arguments: &[&str]) -> crate::jobs::harness::Finished {
    let mut command = std::process::Command::new(TRADEWIND);
    command.args(arguments);
    Line::command(command).finish()
}

fn leaves(how: &str, status: &str, others: &str) -> crate::jobs::harness::Finished {
    let line = Line::run(3, &[]).program("leaves");
    line.variable("HOW", how).variable("STATUS", status).variable("OTHERS", others).finish()
}

fn a_rank_that_exits_early_is_named_with_its_status() {
    let job = leaves("exit", "3", "1");
    assert_eq!(job.who_said("failed 1 exited 3"), [0, 2], "{job:?}");
    assert_eq!(job.status, 3, "{job:?}");
    assert!(job.error.contains("rank 1 failed: its process exited with status 3"), "{job:?}");
}

fn a_rank_that_exits_early_and_content_is_named_too() {
    let job = leaves("exit", "0", "6");
    assert_eq!(job.who_said("failed 1 exited 0"), [0, 2], "{job:?}");
    assert_eq!(job.status, 6, "{job:?}");
}

fn a_rank_that_leaves_in_order_while_others_wait_is_named() {
    let job = leaves("leave", "0", "0");
    assert_eq!(job.who_said("failed 1 left"), [0, 2], "{job:?}");
    assert_eq!(job.status, 0, "{job:?}");
    assert!(!job.error.contains("tradewind:"), "{job:?}");
}

fn a_rank_that_panics_is_named() {
    let job = leaves("panic", "0", "1");
    assert_eq!(job.who_said("failed 1 panicked"), [0, 2], "{job:?}");
}

fn the_status_is_that_of_the_first_rank_that_fails() {
    let job = Line::run(3, &[]).program("follows").finish();
    assert_eq!(job.status, 7, "{job:?}");
    assert!(job.error.contains("rank 2 failed"), "{job:?}");
}

fn programs_that_know_nothing_of_tradewind_run_too() {
    let script = "echo \"> $TRADEWIND_RANK of $TRADEWIND_SIZE\"";
    let job = Line::run(3, &[]).arguments(&["sh", "-c", script]).finish();
    assert_eq!(job.status, 0, "{job:?}");
    assert_eq!(job.who_said("of 3"), [0, 1, 2], "{job:?}");
}

fn a_signal_that_ends_a_rank_is_told_as_shells_do() {
    let job = Line::run(2, &[])
        .arguments(&["sh", "-c", "[ $TRADEWIND_RANK = 0 ] || kill -USR1 $$"])
        .finish();
    assert_eq!(job.status, 128 + 10, "{job:?}");
}

fn programs_that_cannot_be_started_are_named() {
    let job = Line::run(2, &[]).arguments(&["no-such-program"]).finish();
    assert_eq!(job.status, 127);
    assert!(
        job.error.contains("tradewind: cannot start no-such-program: no such program"),
        "{job:?}"
    );
    let job = Line::run(2, &[]).arguments(&["/etc/passwd"]).finish();
    assert_eq!(job.status, 126);
    assert!(
        job.error.contains("tradewind: cannot start /etc/passwd: it may not be executed"),
        "{job:?}"
    );
}

fn impossible_numbers_of_ranks_are_refused() {
    for ranks in ["0", "5000", "-1", "4294967296", "many"] {
        let job = command(&["run", "-n", ranks, "true"]);
        assert_eq!(job.status, 2, "{job:?}");
        let expected = format!("the number of ranks is {ranks}, it must be from 1 to 4096");
        assert!(job.error.contains(&expected), "{job:?}");
    }
}

fn options_are_read_as_in_other_commands() {
    for ranks in ["-n2", "-n=2", "--ranks=2"] {
        let job =
            command(&["run", ranks, "sh", "-c", "echo \"> $TRADEWIND_RANK is $1\"", "sh", "-n"]);
        assert_eq!(job.who_said("is -n"), [0, 1], "{ranks}: {job:?}");
    }
    let job = command(&["run", "-n", "2", "--bidn", "core", "true"]);
    assert_eq!(job.status, 2, "{job:?}");
    assert!(job.error.contains("'--bidn'") && job.error.contains("'--bind'"), "{job:?}");
    for time in ["-1", "0", "nan", "soon"] {
        let job = command(&["run", "-n", "2", "--timeout", time, "true"]);
        assert_eq!(job.status, 2, "{job:?}");
        assert!(job.error.contains("it must be a number of seconds above 0"), "{job:?}");
    }
}

fn more_ranks_than_cores_are_bound_to_none() {
    let many = shm::process::allowed_cores().len() as u32 + 1;
    let cores = "echo \"> $TRADEWIND_RANK core ${TRADEWIND_CORE-none}\"";
    let job = Line::run(many, &[]).arguments(&["sh", "-c", cores]).finish();
    assert_eq!(job.who_said("core none").len() as u32, many, "{job:?}");
    let job = Line::run(many, &["--bind", "core"]).arguments(&["true"]).finish();
    assert_eq!(job.status, 125);
    assert!(job.error.contains("--bind none"), "{job:?}");
    let job = Line::run(1, &[]).arguments(&["sh", "-c", cores]).finish();
    assert_eq!(job.who_said(&format!("core {}", shm::process::allowed_cores()[0])), [0], "{job:?}");
    let job = Line::run(1, &["--bind", "none"]).arguments(&["sh", "-c", cores]).finish();
    assert_eq!(job.who_said("core none"), [0], "{job:?}");
}

fn ranks_that_outlive_a_failure_are_ended_whatever_they_ignore() {
    let script = "trap '' TERM; [ $TRADEWIND_RANK = 0 ] && exit 4; while :; do sleep 1000; done";
    let job = Line::run(3, &["--grace", "0.1"]).arguments(&["sh", "-c", script]).finish();
    // The output is closed only when the sleeping processes are gone too.
    assert_eq!(job.status, 4, "{job:?}");
    assert!(job.error.contains("ended ranks 1, 2"), "{job:?}");
}

fn a_job_whose_time_is_over_is_ended() {
    let job = Line::run(2, &["--timeout", "0.2"]).arguments(&["sleep", "1000"]).finish();
    assert_eq!(job.status, 124, "{job:?}");
}

fn two_jobs_at_once_do_not_meet() {
    let start = |number| Line::run(3, &[]).program("sums").variable("NUMBER", number).start();
    let jobs = [start("5"), start("7")];
    for (job, sum) in jobs.into_iter().zip(["sum 15", "sum 21"]) {
        let job = job.finish();
        assert_eq!(job.who_said(sum), [0, 1, 2], "{job:?}");
    }
}

fn a_job_within_a_rank_is_a_job_of_its_own() {
    let inner = format!(
        "{} run -n 2 -- sh -c 'echo \"> $TRADEWIND_RANK of $TRADEWIND_SIZE\"'",
        crate::jobs::harness::TRADEWIND
    );
    let job = Line::run(1, &[]).arguments(&["sh", "-c", &inner]).finish();
    assert_eq!(job.who_said("of 2"), [0, 1], "{job:?}");
}
