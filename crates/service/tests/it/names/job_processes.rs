//! The processes of one job, which are killed, stopped and replaced while they send to each other.

use crate::child::{Child, argument, report, until, until_input_ends};
use crate::names::test_server::{TestServer, Transport, deadline, register_child};
use queues::connection::ConnectionError;
use queues::id::QueueName;
use queues::names::{JobKey, NameError, PortAddress, Refusal};
use queues::port::{NameClient, PortError, PortEvent, PortReceiver, PortSender};
use rustix::process::Signal;
use shm::process::{ProcessState, state};
use std::cell::Cell;
use std::time::{Duration, Instant};

testing::tests![
    a_receiver_killed_at_any_moment_is_named,
    a_sender_that_is_killed_is_named_after_its_last_message,
    a_stopped_receiver_affects_no_other,
    a_job_stopped_process_by_process_loses_nothing,
    a_rank_moves_to_another_process,
    the_death_of_the_former_receiver_ends_the_wait_for_it,
];
testing::parts![child_echoes, child_sends, child_passes_on, child_counts,];

/// A job whose last process is this one.
struct Job {
    name_server: TestServer,
    transport: Transport,
    processes: u32,
    key: JobKey,
    own: NameClient,
    port_sender: PortSender,
    port_receiver: PortReceiver,
}

impl Job {
    fn new(transport: Transport, processes: u32) -> Job {
        let name_server = TestServer::start();
        let key = name_server.inner.add_job(transport.job("job", processes, 1)).expect("a new job");
        let own = name_server.register("job", processes - 1, key);
        let (port_sender, port_receiver) = own.open_port(0).expect("a new port").split();
        Job { name_server, transport, processes, key, own, port_sender, port_receiver }
    }

    fn start(&self, part: &str, process: u32, how: &str) -> Child {
        Child::start(
            part,
            &format!("{} {how}", self.name_server.identity("job", process, self.key)),
        )
    }

    /// Returns the name of a process's port, once it is open.
    fn name(&self, process: u32) -> QueueName {
        self.own
            .look_up_open(&PortAddress::new("job", process, 0), deadline())
            .expect("a port of the job")
    }

    fn stop(&self, part: &Child) {
        part.signal(Signal::STOP);
        until("it is stopped", || state(part.pid()).expect("/proc") == ProcessState::Stopped);
    }
}

fn join(argument: &str) -> (NameClient, PortSender, PortReceiver, String) {
    let (registration, how) = register_child(argument);
    let (port_sender, port_receiver) = registration.open_port(0).expect("a new port").split();
    (registration, port_sender, port_receiver, how)
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes.try_into().expect("four bytes"))
}

/// Replies to every message.
fn child_echoes() {
    let argument = argument();
    let (_registration, mut port_sender, mut port_receiver, _) = join(&argument);
    report("open");
    loop {
        match port_receiver.recv().expect("it can sleep") {
            // A sender that has ended needs no reply.
            PortEvent::Message(message) => {
                drop(port_sender.reply(message.source, message.handler, message.bytes))
            }
            PortEvent::Disconnected(error) => report(&error.to_string()),
        }
    }
}

/// Receivers are killed at arbitrary moments. Their sender never hangs, gets an error that names
/// the process, and reaches the process that replaces it.
fn a_receiver_killed_at_any_moment_is_named() {
    for transport in Transport::BOTH {
        let mut job = Job::new(transport, 2);
        for round in 0..8u64 {
            let mut receiver = job.start("names::job_processes::child_echoes", 0, "");
            let name = job.name(0);
            let pid = receiver.pid();
            job.port_sender.send(name, 0, b"are you there?").expect("it receives");
            // Any moment, from its first message on; every other time it is stopped, so that the
            // sender sleeps.
            let moment = Instant::now() + Duration::from_micros(500 * round);
            let killer = std::thread::spawn(move || {
                if round % 2 == 1 {
                    receiver.signal(Signal::STOP);
                    until("it is stopped", || {
                        state(receiver.pid()).expect("/proc") == ProcessState::Stopped
                    });
                }
                until("some time has passed", || Instant::now() >= moment);
                receiver.kill();
            });
            let error = loop {
                if let Err(error) = job.port_sender.send(name, 0, b"are you there?") {
                    break error;
                }
                while let Some(delivery) = job.port_receiver.try_recv().expect("it can look") {
                    match delivery {
                        PortEvent::Message(_) => {}
                        // This one, or the one before, if its reply was in flight when it was
                        // killed.
                        PortEvent::Disconnected(error) => {
                            assert!(
                                matches!(&error, ConnectionError::Gone { .. }),
                                "{transport:?}: {error}"
                            )
                        }
                    }
                }
            };
            killer.join().expect("no panic");
            assert!(
                matches!(&error, PortError::Connection(ConnectionError::Gone { peer }) if peer.pid == pid),
                "{transport:?}: {error}"
            );
            assert_eq!(error.to_string(), format!("process 0 of job job (pid {pid}) has ended"));
            while job.port_receiver.connections() != 0 {
                drop(job.port_receiver.recv_deadline(deadline()).expect("it can sleep"));
            }
            until("the table says so", || job.port_sender.port().lookup(name).is_err());
        }
        let mut successor = job.start("names::job_processes::child_echoes", 0, "");
        let name = job.name(0);
        job.port_sender.send_deadline(name, 5, b"hello", deadline()).expect("it receives");
        until("it answers", || {
            let delivery = job.port_receiver.try_recv().expect("it can look");
            matches!(delivery, Some(PortEvent::Message(message)) if message.bytes == b"hello" && message.handler == 5)
        });
        successor.kill();
    }
}

fn a_sender_that_is_killed_is_named_after_its_last_message() {
    for transport in Transport::BOTH {
        let mut job = Job::new(transport, 3);
        let mut sender = job.start("names::job_processes::child_sends", 0, "2");
        let mut other = job.start("names::job_processes::child_sends", 1, "2");
        let (one, two) =
            (job.own.own_name(0, 0).expect("a port"), job.own.own_name(1, 0).expect("a port"));
        let expected = [const { Cell::new(0) }; 2];
        let check = |delivery: Option<PortEvent<'_>>| match delivery.expect("something comes") {
            PortEvent::Message(message) => {
                let sender = usize::from(QueueName::from(message.source) == two);
                assert!(sender == 1 || QueueName::from(message.source) == one);
                assert_eq!(number(message.bytes), expected[sender].get(), "{transport:?}");
                expected[sender].update(|number| number + 1);
                None
            }
            PortEvent::Disconnected(error) => Some(error.to_string()),
        };
        // From both: a sender that is killed before it has a connection ends none.
        while expected.iter().any(|number| number.get() < 1000) {
            assert_eq!(
                check(job.port_receiver.recv_deadline(deadline()).expect("it can sleep")),
                None
            );
        }
        sender.kill();
        let line = loop {
            if let Some(line) =
                check(job.port_receiver.recv_deadline(deadline()).expect("it can sleep"))
            {
                break line;
            }
        };
        assert_eq!(line, format!("process 0 of job job (pid {}) has ended", sender.pid()));
        for _ in 0..5000 {
            assert_eq!(
                check(job.port_receiver.recv_deadline(deadline()).expect("it can sleep")),
                None,
                "the other goes on"
            );
        }
        other.kill();
    }
}

/// Sends numbers to the process in its argument.
fn child_sends() {
    let argument = argument();
    let (registration, mut port_sender, _port_receiver, how) = join(&argument);
    let to = how.trim().parse().expect("a process");
    let name = registration
        .look_up_open(&PortAddress::new("job", to, 0), deadline())
        .expect("a port of the job");
    for number in 0u32.. {
        port_sender.send(name, 0, &number.to_le_bytes()).expect("it receives");
    }
}

/// Messages to a stopped process are accepted until there is no space, and no other process is
/// affected.
fn a_stopped_receiver_affects_no_other() {
    for transport in Transport::BOTH {
        let mut job = Job::new(transport, 3);
        let mut stopped = job.start("names::job_processes::child_echoes", 0, "");
        let mut other = job.start("names::job_processes::child_echoes", 1, "");
        let names = [job.name(0), job.name(1)];
        let answered = |job: &mut Job, name: QueueName, question: u32| {
            job.port_sender
                .send_deadline(name, 0, &question.to_le_bytes(), deadline())
                .expect("it receives");
            match job
                .port_receiver
                .recv_deadline(deadline())
                .expect("it can sleep")
                .expect("an answer")
            {
                PortEvent::Message(message) => {
                    (QueueName::from(message.source), number(message.bytes)) == (name, question)
                }
                PortEvent::Disconnected(error) => panic!("{transport:?}: {error}"),
            }
        };
        assert!(answered(&mut job, names[0], 1) && answered(&mut job, names[1], 2));
        job.stop(&stopped);
        let mut accepted = 0u32;
        while job.port_sender.try_send(names[0], 0, &accepted.to_le_bytes()).expect("it is there") {
            accepted += 1;
            assert!(answered(&mut job, names[1], accepted));
        }
        assert!(accepted >= 200, "{transport:?}: {accepted}");
        for question in 0..1000 {
            assert!(!job.port_sender.try_send(names[0], 0, b"late").expect("it is there"));
            assert!(answered(&mut job, names[1], question));
        }
        stopped.signal(Signal::CONT);
        for expected in 0..accepted {
            match job
                .port_receiver
                .recv_deadline(deadline())
                .expect("it can sleep")
                .expect("an answer")
            {
                PortEvent::Message(message) => {
                    assert_eq!(number(message.bytes), expected, "{transport:?}")
                }
                PortEvent::Disconnected(error) => panic!("{transport:?}: {error}"),
            }
        }
        stopped.kill();
        other.kill();
    }
}

/// The processes of a job send around a ring. Each in turn is stopped, then each continued, while
/// the others continue as far as possible: no message is lost, duplicated or reordered.
fn a_job_stopped_process_by_process_loses_nothing() {
    for transport in Transport::BOTH {
        let job = Job::new(transport, 4);
        let mut ring: Vec<Child> = (0..3)
            .map(|process| job.start("names::job_processes::child_passes_on", process, ""))
            .collect();
        for part in &mut ring {
            assert_eq!(part.read_line(), "going on");
        }
        for round in 0..3 {
            for part in &ring {
                job.stop(part);
            }
            for place in 0..3 {
                ring[(place + round) % 3].signal(Signal::CONT);
            }
            for part in &mut ring {
                assert_eq!(
                    part.read_line(),
                    "going on",
                    "{:?} of {}",
                    job.transport,
                    job.processes
                );
            }
        }
        for part in &mut ring {
            part.end_input();
        }
        for part in &mut ring {
            let mut line = part.read_line();
            while line == "going on" {
                line = part.read_line();
            }
            assert_eq!(line, "all arrived in order");
            assert!(part.succeeds());
        }
    }
}

/// Sends numbers to the next of three, short and long, and checks those from the one before, until
/// it is dismissed; then an end, and waits for that of the one before.
fn child_passes_on() {
    const END: u8 = 9;
    let argument = argument();
    let (registration, mut port_sender, mut port_receiver, _) = join(&argument);
    let place = port_sender.port().name().number() as u32;
    let dismissed = std::thread::spawn(until_input_ends);
    let next = registration
        .look_up_open(&PortAddress::new("job", (place + 1) % 3, 0), deadline())
        .expect("a port");
    let (mut sent, mut expected, mut is_over, mut has_ended) = (0u32, 0, false, false);
    while !(is_over && has_ended) {
        let end = dismissed.is_finished();
        if !has_ended
            && port_sender
                .try_send(next, if end { END } else { 0 }, &sent.to_le_bytes())
                .expect("it receives")
        {
            sent += 1;
            has_ended = end;
        }
        while let Some(delivery) = port_receiver.try_recv().expect("it can look") {
            let PortEvent::Message(message) = delivery else { break };
            assert_eq!(number(message.bytes), expected);
            expected += 1;
            is_over = message.handler == END;
            if expected % 1000 == 0 {
                report("going on");
            }
        }
        std::thread::yield_now();
    }
    report("all arrived in order");
    // Until all have received what this one sent.
    while port_receiver.connections() != 0 {
        let _ = port_receiver.recv_deadline(Instant::now() + Duration::from_millis(20));
        port_sender.close(next);
    }
}

/// A rank moves from one process to another, and the former one ends: no message is lost or
/// duplicated.
fn a_rank_moves_to_another_process() {
    const MESSAGES: u32 = 20_000;
    for transport in Transport::BOTH {
        let mut job = Job::new(transport, 3);
        let mut former = job.start("names::job_processes::child_counts", 0, "until it is moved");
        let mut latter = job.start("names::job_processes::child_counts", 1, "to the end");
        let name = job.name(0);
        job.name(1);
        for number in 0..MESSAGES {
            if number == MESSAGES / 2 {
                let [from, to] = [0, 1].map(|process| PortAddress::new("job", process, 0));
                job.name_server.inner.move_port(&from, &to).expect("both are open");
            }
            let handler = u8::from(number + 1 == MESSAGES);
            job.port_sender
                .send_deadline(name, handler, &number.to_le_bytes(), deadline())
                .expect("it receives");
        }
        let counts = [former.read_line(), latter.read_line()].map(|line| {
            let words: Vec<u32> =
                line.split(' ').map(|word| word.parse().expect("a number")).collect();
            (words[0], words[1])
        });
        assert_eq!((counts[0].0, counts[1].1), (0, MESSAGES), "{transport:?}: {counts:?}");
        assert_eq!(
            counts[0].1, counts[1].0,
            "{transport:?}: where the one stopped the other went on"
        );
        assert!(former.succeeds() && latter.succeeds());
    }
}

/// A name is re-pointed away from a stopped process: its sender is refused until the process is
/// killed.
fn the_death_of_the_former_receiver_ends_the_wait_for_it() {
    let mut job = Job::new(Transport::Queues, 3);
    let mut former = job.start("names::job_processes::child_echoes", 0, "");
    let mut latter = job.start("names::job_processes::child_echoes", 1, "");
    let name = job.name(0);
    job.name(1);
    job.port_sender.send(name, 0, b"first").expect("it receives");
    job.stop(&former);
    assert!(job.port_sender.try_send(name, 0, b"never received").expect("there is space"));
    let [from, to] = [0, 1].map(|process| PortAddress::new("job", process, 0));
    job.name_server.inner.move_port(&from, &to).expect("both are open");
    assert!(!job.port_sender.try_send(name, 1, b"second").expect("the former receiver lives"));
    let late = job.port_sender.send_deadline(
        name,
        1,
        b"second",
        Instant::now() + Duration::from_millis(20),
    );
    assert!(
        matches!(late, Err(PortError::Names(NameError::Refused { refusal: Refusal::Moving, .. }))),
        "{late:?}"
    );
    let killer = std::thread::spawn(move || former.kill());
    job.port_sender.send_deadline(name, 1, b"second", deadline()).expect("the latter receives");
    killer.join().expect("no panic");
    until("it answers", || {
        let delivery = job.port_receiver.try_recv().expect("it can look");
        matches!(delivery, Some(PortEvent::Message(message)) if message.bytes == b"second" && message.handler == 1)
    });
    latter.kill();
}

/// Counts numbers until no connection is left, or the last has arrived, and reports them.
fn child_counts() {
    let argument = argument();
    let (_registration, _port_sender, mut port_receiver, how) = join(&argument);
    let (mut first, mut after, mut is_last) = (None, 0, false);
    while !is_last
        && (how.trim() == "to the end" || first.is_none() || port_receiver.connections() != 0)
    {
        match port_receiver
            .recv_deadline(Instant::now() + Duration::from_millis(50))
            .expect("it can sleep")
        {
            Some(PortEvent::Message(message)) => {
                let number = number(message.bytes);
                assert!(first.is_none() || number == after);
                first.get_or_insert(number);
                after = number + 1;
                is_last = message.handler == 1;
            }
            Some(PortEvent::Disconnected(error)) => panic!("{error}"),
            None => {}
        }
    }
    report(&format!("{} {after}", first.unwrap_or(0)));
}
