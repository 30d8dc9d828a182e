//! A process of another job overwrites everything that it has mapped with random bytes, while
//! others exchange checked messages.

use crate::child::{Child, argument, report, until_input_ends};
use crate::names::test_server::{TestServer, deadline, register_child};
use queues::id::QueueName;
use queues::names::{JobKey, PortAddress};
use queues::port::{NameClient, PortError, PortEvent, PortReceiver, PortSender};
use rustix::net::{SendFlags, send};
use shm::segment::{Offset, ReadOnlySegment, Segment, SegmentError};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

testing::tests![a_process_that_writes_at_random_harms_only_itself,];
testing::tests![slow("takes a minute"): a_process_that_writes_at_random_for_a_minute_harms_only_itself];
testing::parts![child_serves, child_checks, child_spoils,];

/// Marsaglia's xorshift: the quality of the randomness does not matter here.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Runs a server, three clients that check its replies, and a hostile fourth, for the duration in
/// `how`.
fn correct_jobs_beside_a_hostile_one(how: &str) {
    let name_server = TestServer::start();
    let server_key = name_server.job("server");
    let job = |name: &str| -> JobKey {
        let key = name_server.job(name);
        name_server.allow_both(name, "server");
        key
    };
    let mut server = Child::start(
        "names::hostile::child_serves",
        &name_server.identity("server", 0, server_key),
    );
    assert_eq!(server.read_line(), "open");
    let start = |name: &str, part: &str, how: &str| {
        Child::start(part, &format!("{} {how}", name_server.identity(name, 0, job(name))))
    };
    let mut honest =
        ["one", "two", "three"].map(|name| start(name, "names::hostile::child_checks", ""));
    for part in &mut honest {
        assert_eq!(part.read_line(), "going on");
    }
    let mut hostile = start("hostile", "names::hostile::child_spoils", how);
    assert_eq!(hostile.read_line(), "done", "the hostile process");
    let pid = hostile.pid();
    drop(hostile);
    for part in &mut honest {
        part.end_input();
        let line = part.read_line();
        let asked = line.strip_prefix("all answered: ").and_then(|count| count.parse::<u64>().ok());
        assert!(asked.is_some_and(|asked| asked > 0), "{line}");
        assert!(part.succeeds());
    }
    // A later client is served as well.
    let key = name_server.job("late");
    name_server.allow_both("late", "server");
    let mut late =
        Child::start("names::hostile::child_checks", &name_server.identity("late", 0, key));
    assert_eq!(late.read_line(), "going on");
    late.end_input();
    assert!(late.read_line().starts_with("all answered: ") && late.succeeds());

    server.end_input();
    let of_hostile = format!("process 0 of job hostile (pid {pid})");
    let mut spoilt = 0;
    loop {
        let line = server.read_line();
        if line == "closed" {
            break;
        }
        // The correct clients only closed their ends, or ended, after all replies.
        let is_its = line.contains(&of_hostile);
        assert!(
            is_its
                || line.ends_with("has closed its end of the connection")
                || line.ends_with("has ended"),
            "{line}"
        );
        spoilt += u32::from(is_its && line.contains("has corrupted the connection"));
    }
    assert!(spoilt > 0, "the server's connections to the hostile process report what it did");
    assert!(server.succeeds());
}

fn a_process_that_writes_at_random_harms_only_itself() {
    correct_jobs_beside_a_hostile_one("1000 rounds");
}

fn a_process_that_writes_at_random_for_a_minute_harms_only_itself() {
    correct_jobs_beside_a_hostile_one("60 seconds");
}

/// Returns every message to its sender without waiting, and reports ended connections.
fn child_serves() {
    let argument = argument();
    let (registration, _) = register_child(&argument);
    let (mut port_sender, mut port_receiver) =
        registration.open_port(0).expect("a new port").split();
    report("open");
    let dismissed = std::thread::spawn(until_input_ends);
    // Reported at the end, because the test does not read before.
    let mut losses = Vec::new();
    let mut note = |loss: String| {
        if losses.len() < 1000 || !losses.contains(&loss) {
            losses.push(loss);
        }
    };
    while !dismissed.is_finished() {
        match port_receiver
            .recv_deadline(Instant::now() + Duration::from_millis(20))
            .expect("it can sleep")
        {
            Some(PortEvent::Message(message)) => {
                let answered =
                    port_sender.try_send(message.source.into(), message.handler, message.bytes);
                // A correct client waits for each reply, so there is space for it.
                if let Err(PortError::Connection(error)) = answered {
                    note(error.to_string());
                }
            }
            Some(PortEvent::Disconnected(error)) => note(error.to_string()),
            None => {}
        }
    }
    losses.iter().for_each(|loss| report(loss));
    report("closed");
}

struct Client {
    registration: NameClient,
    port_sender: PortSender,
    port_receiver: PortReceiver,
    server: QueueName,
}

impl Client {
    fn new(registration: NameClient) -> Client {
        let (port_sender, port_receiver) = registration.open_port(0).expect("a new port").split();
        let server = registration
            .look_up_open(&PortAddress::new("server", 0, 0), deadline())
            .expect("allowed");
        Client { registration, port_sender, port_receiver, server }
    }
}

/// Sends messages of all lengths and checks that each is returned unchanged, and nothing else.
fn child_checks() {
    let argument = argument();
    let mut client = Client::new(register_child(&argument).0);
    let mut random = Random(u64::from(std::process::id()) | 1);
    let dismissed = std::thread::spawn(until_input_ends);
    let mut asked = 0u64;
    while !dismissed.is_finished() || asked < 100 {
        asked += 1;
        let mut bytes = asked.to_le_bytes().to_vec();
        let length = random.next() % 500;
        bytes.extend((0..length).map(|place| (asked ^ place) as u8));
        let handler = asked as u8;
        client.port_sender.send(client.server, handler, &bytes).expect("the server is there");
        match client.port_receiver.recv_deadline(deadline()).expect("it can sleep") {
            Some(PortEvent::Message(message)) => {
                assert_eq!(
                    (message.handler, message.bytes),
                    (handler, &bytes[..]),
                    "the answer to message {asked}"
                );
            }
            other => panic!("no answer to message {asked}: {other:?}"),
        }
        if asked == 1 {
            report("going on");
        }
    }
    assert!(
        client.port_receiver.try_recv().expect("it can look").is_none(),
        "nothing that was not asked for"
    );
    report(&format!("all answered: {asked}"));
}

/// Returns all memory and sockets of this process.
fn possessions() -> (Vec<Segment>, Vec<OwnedFd>) {
    let (mut memory, mut sockets) = (Vec::new(), Vec::new());
    for entry in std::fs::read_dir("/proc/self/fd").expect("/proc").flatten() {
        let Ok(link) = std::fs::read_link(entry.path()) else { continue };
        let link = link.to_string_lossy().into_owned();
        let number = entry.file_name().to_string_lossy().parse().expect("a number");
        // SAFETY: the list names descriptors that are open; this thread is the only one that opens
        // and closes any. A number that is closed already is an error of the copy.
        let copy = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
        let Ok(copy) = copy else { continue };
        if link.starts_with("/memfd:tradewind-segment") {
            let table = ReadOnlySegment::from_fd(copy.try_clone().expect("a descriptor")).is_ok();
            match Segment::from_fd(copy) {
                Ok(segment) => {
                    assert!(!table, "a table is read-only");
                    memory.push(segment);
                }
                Err(error) => {
                    assert!(table && matches!(error, SegmentError::Map { .. }), "{error}")
                }
            }
        } else if link.starts_with("socket:") {
            sockets.push(copy);
        }
    }
    (memory, sockets)
}

/// Overwrites memory with random words, in some places or everywhere.
fn spoil(memory: &Segment, random: &mut Random) {
    let words = memory
        .slice_at::<AtomicU64>(Offset(0), (memory.bytes() / 8) as usize)
        .expect("whole pages");
    match random.next() % 4 {
        0 => words.iter().for_each(|word| word.store(random.next(), Ordering::Relaxed)),
        // The words of the two ends, with positions and states.
        1 => words[..32].iter().for_each(|word| word.store(random.next() % 8, Ordering::Relaxed)),
        // Single bits: a former header word is almost one.
        2 => {
            for _ in 0..64 {
                let word = &words[random.next() as usize % words.len()];
                word.store(
                    word.load(Ordering::Relaxed) ^ 1 << (random.next() % 64),
                    Ordering::Relaxed,
                );
            }
        }
        // Header words at any position: lengths of any size, and skips.
        _ => {
            for _ in 0..64 {
                let line = &words[32 + random.next() as usize % (words.len() / 8 - 4) * 8];
                let kind = 1 + random.next() % 3;
                line.store(
                    random.next() & 0xfff | kind << 42 | (random.next() % 3) << 44,
                    Ordering::Relaxed,
                );
            }
        }
    }
}

/// The hostile client of the tests above.
fn child_spoils() {
    let argument = argument();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let (mut registration, how) = register_child(&argument);
    let (number, unit) = how.split_once(' ').expect("how long");
    let number: u64 = number.parse().expect("a number");
    let until = (unit == "seconds").then(|| Instant::now() + Duration::from_secs(number));
    let mut rounds = 0;
    loop {
        let mut client = Client::new(registration);
        // Its messages to the name server end its registration sooner or later.
        while client.registration.look_up(&PortAddress::new("server", 0, 0)).is_ok() {
            rounds += 1;
            if until.map_or(rounds > number, |until| Instant::now() >= until) {
                return report("done");
            }
            act(&mut client, &mut random);
        }
        drop(client);
        registration = register_again(&argument);
    }
}

/// One round: a few messages, so that its connections are polled, and then random changes to them.
fn act(client: &mut Client, random: &mut Random) {
    for _ in 0..random.next() % 50 {
        let length = random.next() as usize % 300;
        // Its own connections may fail now.
        let _ = client.port_sender.try_send(client.server, 0, &vec![0x5a; length]);
        let _ = client.port_receiver.try_recv();
    }
    let (memory, sockets) = possessions();
    for _ in 0..random.next() % 8 {
        memory.iter().for_each(|memory| spoil(memory, random));
        let _ = client.port_receiver.try_recv();
    }
    for socket in &sockets {
        for _ in 0..random.next() % 8 {
            if random.next().is_multiple_of(64) {
                let noise: Vec<u8> = (0..random.next() % 64).map(|_| random.next() as u8).collect();
                let _ = send(socket, &noise, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }
}

/// Registers again; the name server may not have observed its exit yet.
fn register_again(argument: &str) -> NameClient {
    let mut found = None;
    crate::child::until("its place is free", || {
        found = crate::names::test_server::try_register_child(argument).ok();
        found.is_some()
    });
    found.expect("just seen")
}
