//! Ranks that another launcher has started: the first of them starts the node service.

use crate::jobs::harness::{Finished, Job, Line, TRADEWIND, send, this_test, wait_for_end};
use rustix::process::Signal;
use shm::process::ProcessHandle;
use std::process::Command;

testing::tests![
    ranks_find_each_other_and_the_service_goes_with_them,
    a_launcher_that_speaks_pmi_is_understood,
    two_jobs_do_not_meet,
    a_killed_rank_is_named,
    the_death_of_the_service_is_told_to_every_rank,
    a_rank_that_is_not_started_is_named,
    a_rank_that_is_started_twice_is_told_so,
    a_missing_command_is_explained,
    the_command_is_found_in_the_path,
    inherited_settings_are_neither_needed_nor_changed,
];

/// Names that no other run of these tests uses.
fn job_name(test: &str) -> String {
    format!("{test}-{}", std::process::id())
}

/// A rank as a launcher that knows nothing of tradewind would start it.
fn rank(variables: &[(&str, &str)], rounds: &str) -> Job {
    rank_under(&["env"], variables, rounds)
}

/// A rank that a command starts.
fn rank_under(command: &[&str], variables: &[(&str, &str)], rounds: &str) -> Job {
    let line = Line::command(Command::new(command[0])).arguments(&command[1..]);
    let line = line.program("joins").variable("ROUNDS", rounds);
    let line =
        line.variable("TRADEWIND_COMMAND", TRADEWIND).variable("TRADEWIND_START_TIMEOUT", "30");
    variables.iter().fold(line, |line, (name, value)| line.variable(name, value)).start()
}

fn ranks_of(job: &str, rounds: &str) -> Vec<Job> {
    let start = |number| {
        rank(&[("TRADEWIND_JOB", job), ("TRADEWIND_RANK", number), ("TRADEWIND_SIZE", "3")], rounds)
    };
    ["0", "1", "2"].map(start).into()
}

/// Listens until every rank has said who the service is; it is the same for all.
fn service_of(ranks: &mut [Job]) -> u32 {
    let mut services: Vec<u32> =
        ranks.iter_mut().map(|rank| rank.listen_for("service", 1)[0].number() as u32).collect();
    services.dedup();
    assert_eq!(services.len(), 1, "all ranks have met at one service");
    services[0]
}

fn finish(ranks: Vec<Job>) -> Vec<Finished> {
    ranks.into_iter().map(Job::finish).collect()
}

fn ranks_find_each_other_and_the_service_goes_with_them() {
    let name = job_name("meet");
    // Twice the same name, one job after the other.
    for _ in 0..3 {
        let mut ranks = ranks_of(&name, "20");
        let service = ProcessHandle::open(service_of(&mut ranks));
        for rank in finish(ranks) {
            assert_eq!(rank.status, 0, "{rank:?}");
            assert_eq!(rank.said.last().expect("something").words, ["through"]);
        }
        // If it could not be opened it had ended before.
        if let Ok(service) = service {
            wait_for_end(&service);
        }
    }
}

fn a_launcher_that_speaks_pmi_is_understood() {
    let start =
        |number| rank(&[("PMI_RANK", number), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "2")], "20");
    for rank in finish(["0", "1"].map(start).into()) {
        assert_eq!(rank.status, 0, "{rank:?}");
    }
}

/// Settings that a daemon or a shell leaves to the ranks, which execute the node service.
fn inherited_settings_are_neither_needed_nor_changed() {
    let scripts = [
        r#"trap '' CHLD PIPE HUP; exec "$@""#,
        r#"exec env --block-signal "$@""#,
        r#"ulimit -S -f 0; ulimit -c 0; umask 0777; exec "$@""#,
        r#"exec "$@" <&-"#,
    ];
    for (script, number) in scripts.into_iter().zip(0..) {
        let name = job_name(&format!("settings-{number}"));
        let start = |rank| {
            let variables =
                [("TRADEWIND_JOB", &*name), ("TRADEWIND_RANK", rank), ("TRADEWIND_SIZE", "2")];
            rank_under(&["sh", "-c", script, "sh"], &variables, "20")
        };
        let mut ranks: Vec<Job> = ["0", "1"].map(start).into();
        let service = ProcessHandle::open(service_of(&mut ranks));
        for rank in finish(ranks) {
            assert_eq!(rank.status, 0, "{script}: {rank:?}");
        }
        if let Ok(service) = service {
            wait_for_end(&service);
        }
    }
}

fn two_jobs_do_not_meet() {
    let mut one = ranks_of(&job_name("one"), "200");
    let mut other = ranks_of(&job_name("other"), "200");
    assert_ne!(service_of(&mut one), service_of(&mut other));
    for rank in finish(one).into_iter().chain(finish(other)) {
        assert_eq!(rank.status, 0, "{rank:?}");
    }
}

fn a_killed_rank_is_named() {
    let mut ranks = ranks_of(&job_name("killed"), &u32::MAX.to_string());
    let victim = ranks[1].listen_for("process", 1)[0].number() as u32;
    service_of(&mut ranks);
    send(victim, Signal::KILL);
    let ranks = finish(ranks);
    for survivor in [0, 2] {
        assert_eq!(ranks[survivor].who_said("failed 1 vanished"), [survivor as u32], "{ranks:?}");
    }
}

fn the_death_of_the_service_is_told_to_every_rank() {
    let mut ranks = ranks_of(&job_name("service"), &u32::MAX.to_string());
    let service = service_of(&mut ranks);
    send(service, Signal::KILL);
    for (rank, number) in finish(ranks).into_iter().zip(0..) {
        assert_eq!(rank.who_said("service"), [number], "{rank:?}");
    }
}

fn a_rank_that_is_not_started_is_named() {
    let name = job_name("absent");
    let variables = [("TRADEWIND_JOB", &*name), ("TRADEWIND_RANK", "1"), ("TRADEWIND_SIZE", "2")];
    let line = Line::command(Command::new("env")).program("joins").variable("ROUNDS", "1");
    let line =
        line.variable("TRADEWIND_COMMAND", TRADEWIND).variable("TRADEWIND_START_TIMEOUT", "0.2");
    let rank =
        variables.iter().fold(line, |line, (name, value)| line.variable(name, value)).finish();
    assert_eq!(rank.who_said("failed 0 absent"), [1], "{rank:?}");
}

fn a_rank_that_is_started_twice_is_told_so() {
    let name = job_name("twice");
    let variables = [("TRADEWIND_JOB", &*name), ("TRADEWIND_RANK", "0"), ("TRADEWIND_SIZE", "1")];
    let mut first = rank(&variables, &u32::MAX.to_string());
    let process = first.listen_for("process", 1)[0].number();
    let second = rank(&variables, "1").finish();
    let words = second.said[0].words.join(" ");
    assert!(
        words.contains(&format!("rank 0 has joined this job already, as process {process}")),
        "{second:?}"
    );
    send(process as u32, Signal::KILL);
    first.finish();
}

fn a_missing_command_is_explained() {
    let name = job_name("command");
    let variables = [("TRADEWIND_JOB", &*name), ("TRADEWIND_RANK", "0"), ("TRADEWIND_SIZE", "1")];
    let line = Line::command(Command::new("env"))
        .program("joins")
        .variable("TRADEWIND_COMMAND", "/nowhere/tradewind");
    let rank =
        variables.iter().fold(line, |line, (name, value)| line.variable(name, value)).finish();
    let words = rank.said[0].words.join(" ");
    assert!(words.contains("/nowhere/tradewind cannot be executed"), "{rank:?}");
    assert!(words.contains("set TRADEWIND_COMMAND"), "{rank:?}");
}

fn the_command_is_found_in_the_path() {
    let name = job_name("path");
    let directory = std::path::Path::new(TRADEWIND).parent().expect("a directory");
    let path = format!("{}:/usr/bin:/bin", directory.display());
    let variables = [
        ("TRADEWIND_JOB", &*name),
        ("TRADEWIND_RANK", "0"),
        ("TRADEWIND_SIZE", "1"),
        ("PATH", &*path),
    ];
    let mut alone = Command::new(this_test());
    alone.env_remove("TRADEWIND_COMMAND").args(["--part", "jobs::rank::program"]);
    let line = Line::command(alone)
        .variable(crate::jobs::harness::PROGRAM, "joins")
        .variable("ROUNDS", "1");
    let rank =
        variables.iter().fold(line, |line, (name, value)| line.variable(name, value)).finish();
    assert_eq!(rank.status, 0, "{rank:?}");
}
