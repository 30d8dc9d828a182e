//! The name server that the command runs.

use names::add_program;
use shm::broker::{connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::process::Command;
use std::time::{Duration, Instant};

testing::tests![the_command_starts_a_server_that_ends_with_the_last_program];

fn the_command_starts_a_server_that_ends_with_the_last_program() {
    let name = unguessable_name("tradewind-test-names").expect("random bytes");
    let starter = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
        command.args(["internal", "serve-names"]);
        command
    };
    let add = |program| add_program(&name, program, starter).expect("a new program");
    let (one, two) = (add("one"), add("two"));
    let server = one.server_pid().expect("a process of this namespace");
    assert_eq!(two.server_pid(), Some(server));
    drop((one, two));
    let limit = Instant::now() + Duration::from_secs(60);
    while !matches!(state(server).expect("/proc"), ProcessState::Gone | ProcessState::Zombie) {
        assert!(Instant::now() < limit, "the server goes on without a program");
        std::thread::yield_now();
    }
    assert!(connect(&name, Duration::ZERO).is_err(), "its name has ended with it");
}
