//! The name server as a process of its own: started by the first program, shared by all, gone after
//! the last, and replaced when it is killed.

use crate::child::{Child, argument, report, until, until_input_ends};
use crate::harness::{number, receive};
use names::{
    ConnectedPort, PeerError, PublishedPort, StartError, add_program, connect_at, publish_at,
    published,
};
use rustix::process::{Pid, Signal, kill_process};
use shm::broker::{connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::process::Command;
use std::time::Duration;

testing::tests![
    programs_that_start_at_once_share_one_server,
    programs_that_come_and_go_at_once_always_find_a_server,
    the_server_ends_with_the_last_program,
    a_killed_server_is_replaced_and_connections_outlive_it,
    a_server_without_a_client_ends,
    errors_name_the_server_and_the_way_out,
];
testing::parts![child_is_the_server, child_is_a_program, child_comes_and_goes];

/// Returns the command that is a server, as `tradewind internal serve-names` is.
fn starter() -> Command {
    testing::part("server_process::child_is_the_server")
}

fn child_is_the_server() {
    // The reason has been printed for the program that started it.
    if names::serve(&argument()).is_err() {
        std::process::exit(1);
    }
}

fn new_name() -> String {
    unguessable_name("tradewind-test-names").expect("random bytes")
}

fn publish(server: &str, name: &str) -> PublishedPort {
    publish_at(server, name, starter).expect("a free name")
}

fn join(server: &str, name: &str) -> Result<ConnectedPort, PeerError> {
    connect_at(server, name, starter)
}

fn server_of(server: &str) -> u32 {
    let owner = add_program(server, "probe", starter).expect("a free name");
    owner.server_pid().expect("a process of this namespace")
}

/// Waits until a process is no more, or a zombie that its parent has not waited for.
fn until_ended(pid: u32) {
    until("the server has ended", || {
        matches!(state(pid).expect("/proc"), ProcessState::Gone | ProcessState::Zombie)
    });
}

/// Publishes a name, connects with another one, and exchanges a message. Prints the number that it
/// has received.
fn child_is_a_program() {
    let argument = argument();
    let words: Vec<&str> = argument.split(' ').collect();
    let [server, own, other] = words[..] else { panic!("{argument}") };
    let mut port = publish(server, own);
    let mut client = None;
    until("the other one is published", || {
        client = join(server, other).ok();
        client.is_some()
    });
    let mut client = client.expect("just seen");
    client.send(&u64::from(own.as_bytes()[0]).to_le_bytes()).expect("it receives");
    let (from, number) = receive(&mut port);
    report(&number.to_string());
    port.reply(from, b"seen").expect("it is connected");
    assert_eq!(client.recv().expect("a reply"), b"seen");
    until_input_ends();
}

fn programs_that_start_at_once_share_one_server() {
    for _ in 0..5 {
        let server = new_name();
        let mut programs = [("a", "b"), ("b", "a")].map(|(own, other)| {
            let argument = format!("{server} {own} {other}");
            Child::start("server_process::child_is_a_program", &argument)
        });
        // Two servers of one name would not know the other's names.
        assert_eq!(programs.each_mut().map(Child::read_line), ["98", "97"]);
        let pid = server_of(&server);
        programs.iter_mut().for_each(Child::end_input);
        assert!(programs.iter_mut().all(Child::succeeds));
        until_ended(pid);
    }
}

/// Publishes a name and leaves, repeatedly.
fn child_comes_and_goes() {
    let argument = argument();
    let (server, own) = argument.split_once(' ').expect("two words");
    for round in 0..30 {
        let name = format!("{own}-{round}");
        match round % 3 {
            0 => drop(publish(server, &name)),
            _ => drop(add_program(server, &name, starter).expect("a free name")),
        }
    }
}

/// The last program often leaves at the moment at which another one connects.
fn programs_that_come_and_go_at_once_always_find_a_server() {
    let server = new_name();
    let mut programs = ["a", "b", "c"].map(|program| {
        let argument = format!("{server} {program}");
        Child::start("server_process::child_comes_and_goes", &argument)
    });
    assert!(programs.iter_mut().all(Child::succeeds));
    until("no server is left", || connect(&server, Duration::ZERO).is_err());
}

fn the_server_ends_with_the_last_program() {
    let server = new_name();
    let one = publish(&server, "one");
    let two = publish(&server, "two");
    let pid = server_of(&server);
    drop(one);
    // A program that has been removed leaves its name free.
    let mut again = None;
    until("the name is free", || {
        again = publish_at(&server, "one", starter).ok();
        again.is_some()
    });
    drop(two);
    until("the second is gone", || published(&server).expect("it answers").len() == 1);
    let client = join(&server, "one").expect("it serves the last program");
    drop((again, client));
    until_ended(pid);
    assert!(connect(&server, Duration::ZERO).is_err(), "its name has ended with it");
    assert!(published(&server).expect("no server is no error").is_empty());
}

fn a_killed_server_is_replaced_and_connections_outlive_it() {
    let server = new_name();
    let mut port = publish(&server, "one");
    let mut client = join(&server, "one").expect("it is published");
    client.send(&1u64.to_le_bytes()).expect("it receives");
    let pid = server_of(&server);
    let number_of = Pid::from_raw(pid.cast_signed()).expect("not zero");
    kill_process(number_of, Signal::KILL).expect("it runs");
    until_ended(pid);
    let (sender, 1) = receive(&mut port) else { panic!("another number") };
    for value in 2..100u64 {
        client.send(&value.to_le_bytes()).expect("it receives");
        assert_eq!(receive(&mut port).1, value);
    }
    let lost = port.refuse(sender);
    assert!(matches!(lost, Err(PeerError::ServerEnded)), "{lost:?}");
    // The next one knows nothing of the former, nor do its clients matter to it.
    let mut again = publish(&server, "one");
    assert_ne!(server_of(&server), pid);
    drop(port);
    let mut other = join(&server, "one").expect("it is published");
    other.send(&5u64.to_le_bytes()).expect("it receives");
    let (sender, 5) = receive(&mut again) else { panic!("another number") };
    again.reply(sender, &6u64.to_le_bytes()).expect("it is connected");
    assert_eq!(number(other.recv().expect("a reply")), 6);
    until("the end of the first is found", || client.send(&[0; 8]).is_err());
}

fn a_server_without_a_client_ends() {
    let server = names::NameServer::bind(&new_name()).expect("a new name");
    server.serve_while_used(Duration::from_millis(20)).expect("it can sleep");
}

fn errors_name_the_server_and_the_way_out() {
    let server = new_name();
    let missing = add_program(&server, "one", || Command::new("/nonexistent/tradewind"));
    let error = missing.expect_err("there is no such command").to_string();
    for part in [&*server, "/nonexistent/tradewind", "TRADEWIND_COMMAND"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let silent = add_program(&server, "one", || Command::new("true"));
    assert!(
        matches!(silent, Err(PeerError::Start(StartError::NotReady { .. }))),
        "it prints nothing: {silent:?}"
    );
    let _one = publish(&server, "one");
    let error = publish_at(&server, "one", starter).expect_err("it is taken").to_string();
    assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    let error = join(&server, "two").expect_err("it is not published").to_string();
    assert!(error.contains("two") && error.contains("published are: one"), "{error}");
}
