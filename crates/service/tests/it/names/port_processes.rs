//! Jobs with one name server, in processes of their own that are killed and stopped.

use crate::child::{Child, argument, report, until, until_input_ends};
use crate::key_value;
use crate::names::test_server::{TestServer, deadline, register_child};
use queues::id::{NAMES, QueueName};
use queues::names::TableError;
use queues::names::{JobConfig, JobKey, NameError, PortAddress, Refusal};
use queues::port::{NameClient, PortError, PortEvent, PortReceiver, PortSender};
use rustix::process::Signal;
use shm::process::{ProcessState, state};
use std::time::Instant;

testing::tests![
    clients_reach_the_server_and_not_each_other,
    the_end_of_a_client_is_reported_and_the_others_continue,
    the_end_of_the_server_is_reported_to_all,
    a_stopped_job_loses_nothing_and_blocks_no_other,
    the_key_value_server_replies_correctly,
    processes_killed_at_any_moment_leave_no_resources,
];
testing::parts![
    child_answers,
    child_asks,
    child_looks_around,
    child_floods,
    child_counts,
    child_counts_descriptors,
];

/// A server, and clients that may communicate with it and not with each other.
struct Jobs {
    name_server: TestServer,
    keys: Vec<(String, JobKey)>,
}

impl Jobs {
    fn new(clients: usize) -> Jobs {
        let name_server = TestServer::start();
        let mut keys = vec![("server".to_owned(), name_server.job("server"))];
        for number in 0..clients {
            let name = format!("client-{number}");
            keys.push((name.clone(), name_server.job(&name)));
            name_server.allow_both("server", &name);
        }
        Jobs { name_server, keys }
    }

    /// Starts the part as job `number`, the server being job 0.
    fn start(&self, part: &str, number: usize, how: &str) -> Child {
        let (name, key) = &self.keys[number];
        Child::start(part, &format!("{} {how}", self.name_server.identity(name, 0, *key)))
    }
}

/// Sends numbers to the server and waits for each reply.
struct Requester {
    port_sender: PortSender,
    port_receiver: PortReceiver,
    server: QueueName,
    asked: u64,
}

impl Requester {
    fn new(registration: &NameClient) -> Requester {
        let (port_sender, port_receiver) = registration.open_port(0).expect("a new port").split();
        let server = registration
            .look_up_open(&PortAddress::new("server", 0, 0), deadline())
            .expect("allowed");
        Requester { port_sender, port_receiver, server, asked: 0 }
    }

    fn ask(&mut self) -> Result<(), PortError> {
        self.asked += 1;
        self.port_sender.send(self.server, 1, &self.asked.to_le_bytes())?;
        match self.port_receiver.recv()? {
            PortEvent::Message(message) => {
                assert_eq!(message.bytes, self.asked.to_le_bytes(), "the answer to this")
            }
            PortEvent::Disconnected(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The server of the tests below.
fn child_answers() {
    let argument = argument();
    std::thread::spawn(|| {
        until_input_ends();
        std::process::exit(0);
    });
    let (registration, _) = register_child(&argument);
    let (mut port_sender, mut port_receiver) =
        registration.open_port(0).expect("a new port").split();
    report("open");
    loop {
        match port_receiver.recv().expect("it can sleep") {
            PortEvent::Message(message) => {
                // A client that has ended needs no reply; the receiver reports its end.
                let _ = port_sender.send(message.source.into(), message.handler, message.bytes);
            }
            PortEvent::Disconnected(error) => report(&error.to_string()),
        }
    }
}

/// Sends this many requests, or until an event.
fn child_asks() {
    let argument = argument();
    let (registration, how) = register_child(&argument);
    let mut asker = Requester::new(&registration);
    let most = how.trim().parse().unwrap_or(u64::MAX);
    while asker.asked < most {
        if let Err(error) = asker.ask() {
            return report(&error.to_string());
        }
        if asker.asked % 100 == 1 && most == u64::MAX {
            report("going on");
        }
    }
    report("done");
    until_input_ends();
}

fn clients_reach_the_server_and_not_each_other() {
    let jobs = Jobs::new(3);
    let mut server = jobs.start("names::port_processes::child_answers", 0, "");
    let mut clients: Vec<Child> = (1..=3)
        .map(|number| jobs.start("names::port_processes::child_looks_around", number, ""))
        .collect();
    for client in &mut clients {
        assert_eq!(client.read_line(), "done");
    }
    for client in &mut clients {
        client.end_input();
        assert!(client.succeeds());
    }
    server.end_input();
    assert!(server.succeeds());
}

/// Child process of `clients_reach_the_server_and_not_each_other`.
fn child_looks_around() {
    let argument = argument();
    let (registration, _) = register_child(&argument);
    let mut asker = Requester::new(&registration);
    let own = asker.port_sender.port().name();
    for _ in 0..1000 {
        asker.ask().expect("the server answers");
    }
    for other in 0..3 {
        let address = PortAddress::new(&format!("client-{other}"), 0, 0);
        if argument.contains(&address.job) {
            continue;
        }
        let refused = registration.look_up(&address);
        assert!(
            matches!(
                refused,
                Err(PortError::Names(NameError::Refused { refusal: Refusal::NoRight, .. }))
            ),
            "{refused:?}"
        );
    }
    for name in
        (0..NAMES).filter_map(QueueName::new).filter(|&name| name != own && name != asker.server)
    {
        let sent = asker.port_sender.try_send(name, 0, b"is a port there?");
        assert!(matches!(sent, Err(PortError::Table(TableError::UnknownName { .. }))), "{sent:?}");
    }
    // Its own two tables, and a connection in each direction.
    assert_eq!(shared_memory_of(std::process::id()), 4);
    report("done");
    until_input_ends();
}

/// Returns the number of segments of which the process has descriptors.
fn shared_memory_of(pid: u32) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("/proc");
    let links = descriptors.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().starts_with("/memfd:tradewind-segment")).count()
}

fn the_end_of_a_client_is_reported_and_the_others_continue() {
    let jobs = Jobs::new(3);
    let mut server = jobs.start("names::port_processes::child_answers", 0, "");
    assert_eq!(server.read_line(), "open");
    let mut clients: Vec<Child> =
        (1..=3).map(|number| jobs.start("names::port_processes::child_asks", number, "")).collect();
    for client in &mut clients {
        assert_eq!(client.read_line(), "going on");
    }
    let pid = clients[1].pid();
    clients[1].kill();
    assert_eq!(server.read_line(), format!("process 0 of job client-1 (pid {pid}) has ended"));
    for client in [0, 2] {
        // Twice, so that at least one is from after the death.
        assert_eq!([clients[client].read_line(), clients[client].read_line()], ["going on"; 2]);
    }
    // Another process replaces it.
    let mut successor = jobs.start("names::port_processes::child_asks", 2, "500");
    assert_eq!(successor.read_line(), "done");
    successor.end_input();
    assert!(successor.succeeds());
    let line = server.read_line();
    let of_successor = format!("process 0 of job client-1 (pid {})", successor.pid());
    assert!(line.starts_with(&of_successor), "{line}");
}

fn the_end_of_the_server_is_reported_to_all() {
    let jobs = Jobs::new(3);
    let mut server = jobs.start("names::port_processes::child_answers", 0, "");
    let pid = server.pid();
    assert_eq!(server.read_line(), "open");
    let mut clients: Vec<Child> =
        (1..=2).map(|number| jobs.start("names::port_processes::child_asks", number, "")).collect();
    for client in &mut clients {
        assert_eq!(client.read_line(), "going on");
    }
    // One more sleeps because its messages are not received, and does not wait for replies.
    let mut flooding = jobs.start("names::port_processes::child_floods", 3, "");
    assert_eq!(flooding.read_line(), "open");
    server.signal(Signal::STOP);
    assert_eq!(flooding.read_line(), "full");
    server.kill();
    clients.push(flooding);
    for client in &mut clients {
        let mut line = client.read_line();
        while line == "going on" {
            line = client.read_line();
        }
        assert_eq!(line, format!("process 0 of job server (pid {pid}) has ended"));
        assert!(client.succeeds());
    }
}

/// Child process of `the_end_of_the_server_is_reported_to_all`.
fn child_floods() {
    let argument = argument();
    let (registration, _) = register_child(&argument);
    let mut asker = Requester::new(&registration);
    asker.ask().expect("the server answers");
    report("open");
    while asker.port_sender.try_send(asker.server, 0, &[0; 4000]).expect("the server is there") {
        // Until the server is stopped it replies, and its replies have to be received.
        while asker.port_receiver.try_recv().expect("it can look").is_some() {}
    }
    let (port_sender, server) = (&mut asker.port_sender, asker.server);
    report("full");
    let error = loop {
        if let Err(error) = port_sender.send(server, 0, &[0; 4000]) {
            break error;
        }
    };
    report(&error.to_string());
}

/// A job of two processes is stopped, one process at a time, and continued; another job continues
/// meanwhile. No message to the stopped one is lost.
fn a_stopped_job_loses_nothing_and_blocks_no_other() {
    const MESSAGES: u32 = 3000;
    let name_server = TestServer::start();
    let plan = JobConfig { processes: 2, ..JobConfig::new("stopped") };
    let key = name_server.inner.add_job(plan).expect("a new job");
    let other_key = name_server.job("other");
    let (server, port) = name_server.single("server");
    name_server.allow_both("server", "stopped");
    name_server.allow_both("server", "other");
    let mut parts: Vec<Child> = (0..2)
        .map(|rank| {
            Child::start(
                "names::port_processes::child_counts",
                &name_server.identity("stopped", rank, key),
            )
        })
        .collect();
    let (mut port_sender, mut port_receiver) = port.split();
    let names = [0, 1].map(|rank| {
        server.look_up_open(&PortAddress::new("stopped", rank, 0), deadline()).expect("allowed")
    });
    let mut sent = [0u32; 2];
    // True if there was space for the next number, and one to send.
    let send = |port_sender: &mut PortSender, sent: &mut u32, to: usize| {
        let more = *sent < MESSAGES
            && port_sender.try_send(names[to], 0, &sent.to_le_bytes()).expect("it is there");
        *sent += u32::from(more);
        more
    };
    for part in [0, 1] {
        (0..100).for_each(|_| assert!(send(&mut port_sender, &mut sent[part], part)));
    }
    for part in &parts {
        part.signal(Signal::STOP);
        until("it is stopped", || state(part.pid()).expect("/proc") == ProcessState::Stopped);
    }
    // Until there is no space; then it reports so instead of waiting.
    for part in [0, 1] {
        while send(&mut port_sender, &mut sent[part], part) {}
    }
    let mut other = Child::start(
        "names::port_processes::child_asks",
        &format!("{} 2000", name_server.identity("other", 0, other_key)),
    );
    let mut answered = 0;
    while answered < 2000 {
        let PortEvent::Message(message) = port_receiver.recv().expect("it can sleep") else {
            panic!("no process has ended")
        };
        port_sender.send(message.source.into(), 0, message.bytes).expect("it is there");
        answered += 1;
    }
    assert_eq!(other.read_line(), "done");
    for part in &parts {
        assert_eq!(state(part.pid()).expect("/proc"), ProcessState::Stopped);
        part.signal(Signal::CONT);
    }
    until("all is sent", || {
        for part in [0, 1] {
            send(&mut port_sender, &mut sent[part], part);
        }
        sent == [MESSAGES; 2]
    });
    for part in &mut parts {
        assert_eq!(part.read_line(), "done");
        assert!(part.succeeds());
    }
}

/// Child process of `a_stopped_job_loses_nothing_and_blocks_no_other`.
fn child_counts() {
    let argument = argument();
    let (registration, _) = register_child(&argument);
    let (_port_sender, mut port_receiver) = registration.open_port(0).expect("a new port").split();
    for expected in 0..3000u32 {
        let PortEvent::Message(message) = port_receiver.recv().expect("it can sleep") else {
            panic!("no process has ended")
        };
        assert_eq!(message.bytes, expected.to_le_bytes());
    }
    report("done");
}

/// The example, on threads: its replies equal those of a `HashMap`.
fn the_key_value_server_replies_correctly() {
    let jobs = Jobs::new(3);
    let post = jobs.name_server.inner.name();
    let key = |job: usize| jobs.keys[job].1.to_string();
    std::thread::scope(|scope| {
        let server =
            scope.spawn(|| key_value::serve(post, &key(0), "3").map_err(|error| error.to_string()));
        for (number, (job, _)) in jobs.keys.iter().enumerate().skip(1) {
            scope.spawn(move || {
                key_value::run_client(post, job, &key(number), "2000")
                    .expect("every answer is right")
            });
        }
        server.join().expect("no panic").expect("all clients came and went");
    });
}

/// Servers and clients are killed at arbitrary moments, repeatedly. The name server releases all
/// their resources, and the remaining processes never hang.
fn processes_killed_at_any_moment_leave_no_resources() {
    // In a process of its own, so that no other test opens or closes its descriptors.
    assert!(Child::start("names::port_processes::child_counts_descriptors", "").succeeds());
}

/// Child process of `processes_killed_at_any_moment_leave_no_resources`.
fn child_counts_descriptors() {
    let jobs = Jobs::new(2);
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let before = descriptors();
    let mut random = 0x2545_f491_4f6c_dd1du64;
    let mut next = |below: u64| {
        // Marsaglia's xorshift: any distribution of moments suffices.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for _ in 0..12 {
        let mut parts = vec![jobs.start("names::port_processes::child_answers", 0, "")];
        parts.extend(
            (1..=2).map(|number| jobs.start("names::port_processes::child_asks", number, "")),
        );
        let wait = Instant::now() + std::time::Duration::from_micros(next(60_000));
        // Any moment, from before the registration to well after it.
        until("some time has passed", || Instant::now() >= wait);
        let victim = next(3) as usize;
        parts[victim].kill();
        if victim == 0 {
            // Without a server the clients end by themselves, or wait for one that may still come.
            parts.iter_mut().skip(1).for_each(Child::kill_if_alive);
        }
        drop(parts);
        until("the post name_server has forgotten them", || descriptors() == before);
    }
}
