//! Registration at a name server, and the requests that it refuses.

use crate::child::{Child, TIMEOUT, argument, report, until_input_ends};
use crate::names::test_server::{TestServer, refusal};
use queues::id::{NAMES, QueueName};
use queues::names::TableError;
use queues::names::{JobConfig, JobKey, JobOwner, NameError, PortAddress, Refusal};
use queues::port::{Identity, NameClient, PortEvent};
use service::names::NameServer;
use shm::broker::BrokerError;
use std::time::Duration;

testing::tests![
    only_processes_with_the_key_register,
    unregistered_clients_affect_no_others,
    invalid_jobs_are_refused,
    a_full_table_is_an_error_at_either_job,
    names_of_ended_jobs_are_used_again,
];

testing::parts![child_connects,];

fn only_processes_with_the_key_register() {
    let name_server = TestServer::start();
    let key = name_server.job("job");
    let enter = |job: &str, process, key| {
        NameClient::register(name_server.inner.name(), &Identity::new(job, process, key), TIMEOUT)
    };
    let wrong: JobKey = "1".repeat(32).parse().expect("32 digits");
    assert_eq!(refusal(enter("job", 0, wrong)), Refusal::WrongKey);
    assert_eq!(refusal(enter("bob", 0, key)), Refusal::UnknownJob);
    assert_eq!(refusal(enter("job", 1, key)), Refusal::NoSuchProcess { processes: 1 });
    let first = enter("job", 0, key).expect("let in");
    assert_eq!(refusal(enter("job", 0, key)), Refusal::ProcessTaken { pid: std::process::id() });
    let port = first.open_port(0).expect("a new port");
    assert_eq!(refusal(first.open_port(0)), Refusal::PortOpen);
    assert_eq!(refusal(first.open_port(1)), Refusal::NoSuchPort { ports: 1 });
    // After an exit another process may register.
    drop((first, port));
    crate::child::until("the process is free", || enter("job", 0, key).is_ok());
}

fn unregistered_clients_affect_no_others() {
    let name_server = TestServer::start();
    let connect = || shm::broker::connect(name_server.inner.name(), TIMEOUT).expect("it listens");
    let noisy = connect();
    for length in 0..200 {
        // The server may stop reading from a client that does not read its responses.
        let _ = noisy.send_message(&vec![0xa5; length], &[]);
    }
    let (_registration, port) = name_server.single("job");
    assert!(port.lookup(port.name()).is_ok());
    let mut silent = Child::start("names::registration::child_connects", name_server.inner.name());
    assert_eq!(silent.read_line(), "most are turned away");
    // The relay connects from the process of the server, once for each program of another node.
    let _own: Vec<_> = (0..100).map(|_| connect()).collect();
    assert!(matches!(
        NameServer::bind(name_server.inner.name()),
        Err(NameError::Broker(BrokerError::NameTaken { .. }))
    ));
    silent.kill();
    let key = name_server.job("another");
    let identity = Identity::new("another", 0, key);
    crate::child::until("the name server accepts a connection", || {
        NameClient::register(name_server.inner.name(), &identity, TIMEOUT).is_ok()
    });
}

/// Opens many connections without a registration.
fn child_connects() {
    let connect = || shm::broker::connect(&argument(), TIMEOUT).expect("it listens");
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    let turned_away = |connection: &shm::broker::Connection| {
        matches!(connection.receive_message(Some(Duration::ZERO)), Err(BrokerError::Closed))
    };
    crate::child::until("most are turned away", || {
        silent.iter().filter(|one| turned_away(one)).count() >= 84
    });
    report("most are turned away");
    until_input_ends();
}

fn invalid_jobs_are_refused() {
    let name_server = TestServer::start();
    name_server.job("job");
    let plan = JobConfig::new("new");
    for plan in [
        JobConfig::new(""),
        JobConfig::new(&"x".repeat(65)),
        JobConfig { processes: 0, ..plan.clone() },
        JobConfig { ports: 0, ..plan.clone() },
        JobConfig { processes: 513, ..plan.clone() },
        JobConfig { processes: u32::MAX, ports: u16::MAX, ..plan.clone() },
        JobConfig { names: NAMES + 1, ..plan.clone() },
    ] {
        assert!(
            matches!(name_server.inner.add_job(plan.clone()), Err(NameError::Config { .. })),
            "{plan:?}"
        );
    }
    assert!(matches!(
        name_server.inner.add_job(JobConfig::new("job")),
        Err(NameError::JobExists { pid: 0, .. })
    ));
    assert!(matches!(name_server.inner.allow("job", "missing"), Err(NameError::UnknownJob { .. })));
    let unknown = QueueName::new(9).expect("below 16,384");
    assert!(matches!(name_server.inner.revoke("job", unknown), Err(NameError::UnknownName { .. })));
    assert!(matches!("xyz".parse::<JobKey>(), Err(NameError::Key)));
}

fn a_full_table_is_an_error_at_either_job() {
    let name_server = TestServer::start();
    let plan = JobConfig { ports: 4, names: 4, ..JobConfig::new("small") };
    let key = name_server.inner.add_job(plan).expect("a new job");
    let (large, large_port) = name_server.single("large");
    name_server.allow_both("small", "large");
    let small = name_server.register("small", 0, key);
    let small_port = small.open_port(0).expect("a new port");
    assert_eq!(refusal(small.look_up(&PortAddress::new("large", 0, 0))), Refusal::TableFull);
    // The other way it has a name, but no source name can be given to what comes from there.
    let name = large.look_up(&PortAddress::new("small", 0, 0)).expect("its own table has space");
    assert!(matches!(large_port.lookup(name), Err(TableError::UnknownName { .. })));
    assert!(small_port.lookup(small_port.name()).is_ok());
}

/// A job with four names for others serves a hundred clients, one after the other, each in a job of
/// its own: names of jobs that have ended are used again.
fn names_of_ended_jobs_are_used_again() {
    let name_server = TestServer::start();
    let config = JobConfig { names: 5, admits_all: true, ..JobConfig::new("server") };
    let (_registered, ports) = name_server.open_ports(config);
    let (mut answers, mut requests) = ports.into_iter().flatten().next().expect("one port");
    for number in 0..100u8 {
        let config = JobConfig { admits_all: true, ..JobConfig::new(&format!("client-{number}")) };
        let owner = JobOwner::add(name_server.inner.name(), &config, TIMEOUT).expect("a new job");
        let client = name_server.register(&config.name, 0, owner.key());
        let (mut sender, mut receiver) = client.open_port(0).expect("a new port").split();
        let name = client.look_up(&PortAddress::new("server", 0, 0)).expect("it admits all");
        sender.send(name, 1, &[number]).expect("it is open");
        let source = loop {
            match requests.recv().expect("the server is there") {
                PortEvent::Message(message) => {
                    assert_eq!(message.bytes, [number]);
                    break message.source;
                }
                PortEvent::Disconnected(_) => {}
            }
        };
        assert!((1..5).contains(&source.number()), "{source}");
        answers.reply(source, 2, &[number]).expect("the name means this client");
        let event = receiver.recv().expect("it has been sent");
        assert!(matches!(event, PortEvent::Message(message) if message.bytes == [number]));
        drop((sender, receiver, client, owner));
        // The end is known before the next client comes, which may need the name.
        let ended =
            || matches!(answers.port().lookup(source.into()), Err(TableError::ProcessGone { .. }));
        crate::child::until("the client has ended", ended);
    }
}
