//! A process overwrites everything that it has mapped with random bytes, while others exchange
//! checked messages.

use crate::child::{Child, argument, report, until_input_ends};
use crate::harness::{TestServer, connect, publish};
use names::{ConnectedPort, PeerEvent};
use rustix::net::{SendFlags, send};
use shm::segment::{Offset, ReadOnlySegment, Segment, SegmentError};
use shm::sync::{AtomicU64, Ordering};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

testing::tests![a_process_that_writes_at_random_harms_only_itself];
testing::tests![slow("takes a minute"): a_process_that_writes_at_random_for_a_minute_harms_only_itself];
testing::parts![child_serves, child_checks, child_spoils];

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

/// Runs a program, three clients that check its replies, and a hostile fourth, for the duration in
/// `how`.
fn correct_clients_beside_a_hostile_one(how: &str) {
    let server = TestServer::start();
    let start = |part: &str, how: &str| Child::start(part, &format!("{} {how}", server.name()));
    let mut program = start("hostile::child_serves", "");
    assert_eq!(program.read_line(), "published");
    let mut honest = [(); 3].map(|()| start("hostile::child_checks", ""));
    for part in &mut honest {
        assert_eq!(part.read_line(), "going on");
    }
    let mut hostile = start("hostile::child_spoils", how);
    assert_eq!(hostile.read_line(), "done", "the hostile process");
    let pid = hostile.pid();
    drop(hostile);
    let mut later = start("hostile::child_checks", "");
    assert_eq!(later.read_line(), "going on");
    for part in honest.iter_mut().chain([&mut later]) {
        part.end_input();
        let line = part.read_line();
        let asked = line.strip_prefix("all answered: ").and_then(|count| count.parse::<u64>().ok());
        assert!(asked.is_some_and(|asked| asked > 0), "{line}");
        assert!(part.succeeds());
    }
    program.end_input();
    let of_hostile = format!("(process {pid})");
    let mut spoilt = 0;
    loop {
        let line = program.read_line();
        if line == "closed" {
            break;
        }
        // The correct clients only closed their ends, or ended, after all replies.
        let is_correct = line.contains("has closed its end") || line.contains("has ended");
        assert!(line.contains(&of_hostile) || is_correct, "{line}");
        spoilt += u32::from(line.contains("has corrupted the connection"));
    }
    assert!(spoilt > 0, "the connections to the hostile process report what it did");
    assert!(program.succeeds());
}

fn a_process_that_writes_at_random_harms_only_itself() {
    correct_clients_beside_a_hostile_one("1000 rounds");
}

fn a_process_that_writes_at_random_for_a_minute_harms_only_itself() {
    correct_clients_beside_a_hostile_one("60 seconds");
}

/// Returns every message to its sender without waiting, and reports ended connections.
fn child_serves() {
    let argument = argument();
    let mut port = publish(argument.trim(), "solver").expect("the name is free");
    report("published");
    let dismissed = std::thread::spawn(until_input_ends);
    // Reported at the end, because the test does not read before.
    let mut losses = Vec::new();
    while !dismissed.is_finished() {
        let loss = match port.recv_timeout(Duration::from_millis(20)).expect("it can sleep") {
            Some(PeerEvent::Message { client, bytes }) => {
                let bytes = bytes.to_owned();
                // A correct client waits for each reply, so there is space for it.
                port.try_reply(client, &bytes).err()
            }
            Some(PeerEvent::Ended(error)) => Some(error),
            Some(PeerEvent::Moved) => panic!("it has not moved"),
            None => None,
        };
        let loss = loss.map(|loss| loss.to_string());
        losses.extend(loss.filter(|loss| losses.len() < 1000 || !losses.contains(loss)));
    }
    losses.iter().for_each(|loss| report(loss));
    report("closed");
}

/// Sends messages of all lengths and checks that each is returned unchanged, and nothing else.
fn child_checks() {
    let argument = argument();
    let mut client = connect(argument.trim(), "solver").expect("it is published");
    let mut random = Random(u64::from(std::process::id()) | 1);
    let dismissed = std::thread::spawn(until_input_ends);
    let mut asked = 0u64;
    while !dismissed.is_finished() || asked < 100 {
        asked += 1;
        let mut bytes = asked.to_le_bytes().to_vec();
        let length = random.next() % 500;
        bytes.extend((0..length).map(|place| (asked ^ place) as u8));
        client.send(&bytes).expect("the program is there");
        assert_eq!(client.recv().expect("an answer"), bytes, "the answer to message {asked}");
        if asked == 1 {
            report("going on");
        }
    }
    let more = client.try_recv().expect("the program is there");
    assert!(more.is_none(), "nothing that was not asked for");
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
    let words: Vec<&str> = argument.split(' ').collect();
    let [server, number, unit] = words[..] else { panic!("{argument}") };
    let number: u64 = number.parse().expect("a number");
    let until = (unit == "seconds").then(|| Instant::now() + Duration::from_secs(number));
    let mut rounds = 0;
    loop {
        // Its messages to the name server end its registration sooner or later.
        let Ok(mut client) = connect(server, "solver") else { continue };
        while act(&mut client, &mut random) {
            rounds += 1;
            if until.map_or(rounds > number, |until| Instant::now() >= until) {
                return report("done");
            }
        }
        rounds += 1;
    }
}

/// One round: a few messages, so that its connections are polled, and then random changes to them.
/// Returns false if its connection has ended.
fn act(client: &mut ConnectedPort, random: &mut Random) -> bool {
    for _ in 0..random.next() % 50 {
        let length = random.next() as usize % 300;
        // Its own connections may fail now.
        let _ = client.try_send(&vec![0x5a; length]);
        let _ = client.try_recv();
    }
    let (memory, sockets) = possessions();
    for _ in 0..random.next() % 8 {
        memory.iter().for_each(|memory| spoil(memory, random));
        let _ = client.try_recv();
    }
    for socket in &sockets {
        for _ in 0..random.next() % 8 {
            if random.next().is_multiple_of(64) {
                let noise: Vec<u8> = (0..random.next() % 64).map(|_| random.next() as u8).collect();
                let _ = send(socket, &noise, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
            }
        }
    }
    client.try_send(&[]).is_ok()
}
