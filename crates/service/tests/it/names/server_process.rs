//! The name server as a process of its own: started by the first job, shared by all, gone after the
//! last, and replaced when it is killed.

use crate::child::{Child, TIMEOUT, argument, report, until, until_input_ends};
use queues::names::{JobConfig, JobOwner, NameError, PortAddress, Refusal, TableError};
use queues::port::{Identity, NameClient, PortError, PortEvent};
use rustix::process::{Pid, Signal, kill_process};
use service::names::{StartError, add_job_at};
use shm::broker::{connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::process::Command;
use std::time::{Duration, Instant};

testing::tests![
    jobs_that_start_at_once_share_one_server,
    jobs_that_come_and_go_at_once_always_find_a_server,
    the_server_ends_with_the_last_job,
    a_job_outlives_its_owner_while_a_process_is_registered,
    a_killed_server_is_replaced_by_the_next_job,
    connections_outlive_a_killed_server,
    owners_decide_about_their_own_job_only,
    a_later_job_of_the_same_name_has_no_rights_of_the_former,
    names_of_a_removed_job_report_its_end,
    a_server_without_a_client_ends,
    errors_name_the_server_and_the_way_out,
];
testing::parts![child_is_the_server, child_is_a_job, child_comes_and_goes];

/// Returns the command that is a server, as `tradewind internal serve-names` is.
fn starter() -> Command {
    testing::part("names::server_process::child_is_the_server")
}

fn child_is_the_server() {
    // The reason has been printed for the job that started it.
    if service::names::serve(&argument()).is_err() {
        std::process::exit(1);
    }
}

fn new_name() -> String {
    unguessable_name("tradewind-test-names").expect("random bytes")
}

fn add(name: &str, job: &str) -> JobOwner {
    add_job_at(name, &JobConfig::new(job), TIMEOUT, starter).expect("a new job")
}

fn register(owner: &JobOwner, job: &str) -> NameClient {
    let identity = Identity::new(job, 0, owner.key());
    NameClient::register(owner.name_server(), &identity, TIMEOUT).expect("a free process number")
}

fn server_of(owner: &JobOwner) -> u32 {
    owner.server_pid().expect("a process of this namespace")
}

/// Waits until a process is no more, or a zombie that its parent has not waited for.
fn until_ended(pid: u32) {
    until("the server has ended", || {
        matches!(state(pid).expect("/proc"), ProcessState::Gone | ProcessState::Zombie)
    });
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("not zero");
    kill_process(pid, Signal::KILL).expect("it runs");
}

fn refusal<T: std::fmt::Debug>(outcome: Result<T, NameError>) -> Refusal {
    match outcome {
        Err(NameError::Refused { refusal, .. }) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// A job of one process: adds itself, lets the other job send, and sends it a message and receives
/// one. Prints the server's process number and the message.
fn child_is_a_job() {
    let argument = argument();
    let words: Vec<&str> = argument.split(' ').collect();
    let [name, own, other] = words[..] else { panic!("{argument}") };
    let owner = add(name, own);
    report(&server_of(&owner).to_string());
    let client = register(&owner, own);
    let (mut sender, mut receiver) = client.open_port(0).expect("a new port").split();
    // The other job may not have been added yet.
    until("the other job has been added", || match owner.allow(other) {
        Ok(()) => true,
        Err(NameError::Refused { refusal: Refusal::UnknownJob, .. }) => false,
        Err(error) => panic!("{error}"),
    });
    let deadline = Instant::now() + TIMEOUT;
    let address = PortAddress::new(other, 0, 0);
    let mut found = None;
    until("the other job permits messages", || {
        found = match client.look_up_open(&address, deadline) {
            Ok(name) => Some(name),
            Err(PortError::Names(NameError::Refused { refusal: Refusal::NoRight, .. })) => None,
            Err(error) => panic!("{error}"),
        };
        found.is_some()
    });
    sender.send(found.expect("just seen"), 0, own.as_bytes()).expect("it receives");
    match receiver.recv_deadline(deadline).expect("it can sleep").expect("a message") {
        PortEvent::Message(message) => report(&String::from_utf8_lossy(message.bytes)),
        PortEvent::Disconnected(error) => panic!("{error}"),
    }
    until_input_ends();
}

fn jobs_that_start_at_once_share_one_server() {
    for _ in 0..5 {
        let name = new_name();
        let mut jobs = [("one", "two"), ("two", "one")].map(|(own, other)| {
            let argument = format!("{name} {own} {other}");
            Child::start("names::server_process::child_is_a_job", &argument)
        });
        let servers = jobs.each_mut().map(Child::read_line);
        assert_eq!(servers[0], servers[1]);
        assert_eq!(jobs.each_mut().map(Child::read_line), ["two", "one"]);
        jobs.iter_mut().for_each(Child::end_input);
        assert!(jobs.iter_mut().all(Child::succeeds));
        until_ended(servers[0].parse().expect("a number"));
    }
}

/// Adds a job and leaves, repeatedly.
fn child_comes_and_goes() {
    let argument = argument();
    let (name, own) = argument.split_once(' ').expect("two words");
    for round in 0..30 {
        let owner = add(name, &format!("{own}-{round}"));
        if round % 3 == 0 {
            register(&owner, &format!("{own}-{round}")).open_port(0).expect("a new port");
        }
    }
}

/// The last job often leaves at the moment at which another one connects.
fn jobs_that_come_and_go_at_once_always_find_a_server() {
    let name = new_name();
    let mut jobs = ["a", "b", "c"].map(|job| {
        let argument = format!("{name} {job}");
        Child::start("names::server_process::child_comes_and_goes", &argument)
    });
    assert!(jobs.iter_mut().all(Child::succeeds));
    until("no server is left", || connect(&name, Duration::ZERO).is_err());
}

fn the_server_ends_with_the_last_job() {
    let name = new_name();
    let one = add(&name, "one");
    let two = add(&name, "two");
    let server = server_of(&one);
    assert_eq!(server_of(&two), server);
    drop(one);
    // A job that has been removed leaves its name free.
    let mut again = None;
    until("the name is free", || {
        again = add_job_at(&name, &JobConfig::new("one"), TIMEOUT, starter).ok();
        again.is_some()
    });
    assert_eq!(server_of(again.as_ref().expect("just seen")), server);
    drop(two);
    assert!(again.as_ref().expect("just seen").allow("one").is_ok(), "it serves the last job");
    drop(again);
    until_ended(server);
    assert!(connect(&name, Duration::ZERO).is_err(), "its name has ended with it");
}

fn a_job_outlives_its_owner_while_a_process_is_registered() {
    let name = new_name();
    let owner = add(&name, "job");
    let server = server_of(&owner);
    let client = register(&owner, "job");
    drop(owner);
    let port = client.open_port(0).expect("the job is there");
    assert_eq!(client.look_up(&PortAddress::new("job", 0, 0)).expect("its own"), port.name());
    let taken = add_job_at(&name, &JobConfig::new("job"), TIMEOUT, starter);
    assert!(
        matches!(
            &taken,
            Err(StartError::Names(NameError::Refused { refusal: Refusal::JobExists { pid }, .. }))
                if *pid == std::process::id()
        ),
        "{taken:?}"
    );
    drop((client, port));
    until_ended(server);
}

fn a_killed_server_is_replaced_by_the_next_job() {
    let name = new_name();
    let former = add(&name, "job");
    let client = register(&former, "job");
    let server = server_of(&former);
    kill(server);
    // At once: whether the former server is still about to end or not.
    let owner = add(&name, "job");
    assert_ne!(server_of(&owner), server);
    let registered = register(&owner, "job");
    registered.open_port(0).expect("a new port");
    let lost = client.open_port(0);
    assert!(matches!(lost, Err(PortError::Names(NameError::ServerGone))), "{lost:?}");
    let lost = former.allow("job");
    assert!(matches!(lost, Err(NameError::ServerGone)), "{lost:?}");
    drop((former, client));
    assert!(
        owner.allow("job").is_ok(),
        "the clients of the former server do not matter to this one"
    );
}

fn connections_outlive_a_killed_server() {
    let name = new_name();
    let from_owner = add(&name, "from");
    let to_owner = add(&name, "to");
    let from = register(&from_owner, "from");
    let to = register(&to_owner, "to");
    to_owner.allow("from").expect("two jobs");
    let (mut sender, _from_receiver) = from.open_port(0).expect("a new port").split();
    let (_to_sender, mut receiver) = to.open_port(0).expect("a new port").split();
    let destination = from.look_up(&PortAddress::new("to", 0, 0)).expect("allowed");
    sender.send(destination, 1, b"before").expect("it receives");
    let deadline = Instant::now() + TIMEOUT;
    let mut expect = |handler: u8, bytes: &[u8]| match receiver
        .recv_deadline(deadline)
        .expect("it can sleep")
        .expect("a message")
    {
        PortEvent::Message(message) => {
            assert_eq!((message.handler, message.bytes), (handler, bytes));
        }
        PortEvent::Disconnected(error) => panic!("{error}"),
    };
    expect(1, b"before");
    kill(server_of(&from_owner));
    until_ended(server_of(&from_owner));
    for handler in 2..100 {
        sender.send(destination, handler, b"after").expect("it receives");
        expect(handler, b"after");
    }
}

fn owners_decide_about_their_own_job_only() {
    let name = new_name();
    let one = add(&name, "one");
    let two = add(&name, "two");
    let client = register(&one, "one");
    let address = PortAddress::new("two", 0, 0);
    let look_up = || match client.look_up(&address) {
        Ok(name) => Ok(name),
        Err(PortError::Names(error)) => Err(error),
        Err(error) => panic!("{error}"),
    };
    // The right of job `two` to send to job `one`, which job `one` grants, is none of `one`.
    one.allow("two").expect("two jobs");
    assert_eq!(refusal(look_up()), Refusal::NoRight);
    two.allow("one").expect("two jobs");
    let destination = look_up().expect("allowed");
    assert_eq!(refusal(one.allow("nothing")), Refusal::UnknownJob);
    let foreign = one.move_port(&address, &address);
    assert_eq!(refusal(foreign), Refusal::NoRight);
    let own_port = client.open_port(0).expect("a new port");
    one.repoint(destination, &PortAddress::new("one", 0, 0)).expect("its own port");
    assert_eq!(
        own_port.lookup(destination).expect("open").queue,
        own_port.queue(),
        "a name of its own job"
    );
    one.revoke(destination).expect("a name of its own job");
    assert!(own_port.lookup(destination).is_err());
    assert!(matches!(
        refusal(one.revoke(queues::id::QueueName::from_bits(500))),
        Refusal::Invalid { .. }
    ));
    two.forbid("one").expect("two jobs");
    assert_eq!(refusal(look_up()), Refusal::NoRight);
}

fn a_later_job_of_the_same_name_has_no_rights_of_the_former() {
    let name = new_name();
    let server = add(&name, "server");
    let open = register(&server, "server");
    let _port = open.open_port(0).expect("a new port");
    let client = add(&name, "client");
    server.allow("client").expect("two jobs");
    let address = PortAddress::new("server", 0, 0);
    register(&client, "client").look_up(&address).expect("allowed");
    drop(client);
    let mut again = None;
    until("the name is free", || {
        again = add_job_at(&name, &JobConfig::new("client"), TIMEOUT, starter).ok();
        again.is_some()
    });
    let again = again.expect("just seen");
    let refused = register(&again, "client").look_up(&address);
    assert!(
        matches!(
            refused,
            Err(PortError::Names(NameError::Refused { refusal: Refusal::NoRight, .. }))
        ),
        "{refused:?}"
    );
}

fn names_of_a_removed_job_report_its_end() {
    let name = new_name();
    let server = add(&name, "server");
    let client = add(&name, "client");
    server.allow("client").expect("two jobs");
    let registered = register(&client, "client");
    let port = registered.open_port(0).expect("a new port");
    let address = PortAddress::new("server", 0, 0);
    let destination = registered.look_up(&address).expect("allowed");
    assert!(matches!(port.lookup(destination), Err(TableError::UnknownName { .. })));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| registered.look_up_open(&address, Instant::now() + TIMEOUT));
        std::thread::sleep(Duration::from_millis(20));
        drop(server);
        let refused = waiting.join().expect("no panic");
        assert!(
            matches!(
                refused,
                Err(PortError::Names(NameError::Refused { refusal: Refusal::UnknownJob, .. }))
            ),
            "{refused:?}"
        );
    });
    assert!(matches!(port.lookup(destination), Err(TableError::ProcessGone { .. })));
}

fn a_server_without_a_client_ends() {
    let server = service::names::NameServer::bind(&new_name()).expect("a new name");
    server.serve_while_used(Duration::from_millis(20)).expect("it can sleep");
}

fn errors_name_the_server_and_the_way_out() {
    let name = new_name();
    let config = JobConfig::new("job");
    let missing = add_job_at(&name, &config, TIMEOUT, || Command::new("/no/such/tradewind"));
    let text = missing.expect_err("there is no such command").to_string();
    for part in [&name, "/no/such/tradewind", "PATH", "TRADEWIND_COMMAND"] {
        assert!(text.contains(part), "{text}");
    }
    let silent = add_job_at(&name, &config, TIMEOUT, || Command::new("true"));
    let text = silent.expect_err("it starts nothing").to_string();
    assert!(text.contains(&name) && text.contains("true"), "{text}");
    let invalid = add_job_at(&"x".repeat(200), &config, TIMEOUT, starter);
    let text = invalid.expect_err("too long").to_string();
    assert!(text.contains("xxx"), "{text}");
    let refused = add_job_at(&name, &JobConfig { names: u16::MAX, ..config }, TIMEOUT, starter);
    let text = refused.expect_err("too many names").to_string();
    assert!(text.contains("add job job") && text.contains("16,384"), "{text}");
}
