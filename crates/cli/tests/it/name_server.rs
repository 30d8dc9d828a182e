//! The name server that the command runs.

use service::names::{JobConfig, add_job_at};
use shm::broker::{connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::process::Command;
use std::time::{Duration, Instant};

testing::tests![the_command_starts_a_server_that_ends_with_the_last_job];

fn the_command_starts_a_server_that_ends_with_the_last_job() {
    let name = unguessable_name("tradewind-test-names").expect("random bytes");
    let starter = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
        command.args(["internal", "serve-names"]);
        command
    };
    let add = |job| add_job_at(&name, &JobConfig::new(job), Duration::from_secs(60), starter);
    let one = add("one").expect("a new job");
    let two = add("two").expect("a new job");
    let server = one.server_pid().expect("a process of this namespace");
    assert_eq!(two.server_pid(), Some(server));
    one.allow("two").expect("two jobs");
    drop((one, two));
    let limit = Instant::now() + Duration::from_secs(60);
    while !matches!(state(server).expect("/proc"), ProcessState::Gone | ProcessState::Zombie) {
        assert!(Instant::now() < limit, "the server goes on without a job");
        std::thread::yield_now();
    }
    assert!(connect(&name, Duration::ZERO).is_err(), "its name has ended with it");
}
