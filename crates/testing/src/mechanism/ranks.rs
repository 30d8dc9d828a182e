//! Ends on the ranks of a job.

use super::ends::{End, Ends, Job, Mechanism, Receiver, Sender, Wait};
use std::thread;
use std::time::Duration;

/// More than any connection holds.
const UNBOUNDED: u64 = 1 << 18;

fn next(receiver: &mut Receiver<'_>) -> (u32, u64) {
    receiver(Wait::Forever).expect("a sender is there").expect("it waits")
}

fn send_all(sender: &mut Sender<'_>, count: u64) {
    (0..count).for_each(|number| assert_eq!(sender(number, Wait::Forever), Ok(true)));
}

/// Sends until the connection is full. Returns the count of what was sent.
fn fill(sender: &mut Sender<'_>) -> u64 {
    let mut sent = 0;
    while sender(sent, Wait::For(Duration::from_millis(20))) == Ok(true) {
        sent += 1;
        assert!(sent < UNBOUNDED, "a receiver that is behind stops its sender");
    }
    assert_eq!(sender(sent, Wait::No), Ok(false));
    sent
}

/// Receives `each` numbers of every sender. A sender may exit behind its last one, others at any time.
fn receive_all(receiver: &mut Receiver<'_>, senders: &[u32], each: u64) {
    let mut expected = vec![0; senders.iter().max().map_or(0, |most| *most as usize + 1)];
    let mut left = each * senders.len() as u64;
    while left > 0 {
        match receiver(Wait::Forever) {
            Ok(found) => {
                let (from, number) = found.expect("it waits");
                let expected = &mut expected[from as usize];
                assert_eq!(number, *expected, "the order of rank {from}");
                *expected += 1;
                left -= 1;
            }
            Err(End::Exited(rank))
                if !senders.contains(&rank) || expected[rank as usize] == each => {}
            Err(end) => panic!("{end:?} before {left} messages"),
        }
    }
    assert!(senders.iter().all(|from| expected[*from as usize] == each), "each once");
}

/// Sends until nothing can be sent any more. Returns the reason.
fn send_until_the_end(sender: &mut Sender<'_>) -> End {
    (0..).find_map(|number| sender(number, Wait::Forever).err()).expect("it is endless")
}

fn senders<J: Job>(job: &J, ends: &Ends) -> Vec<u32> {
    (0..job.size()).filter(|rank| *rank != job.rank() || ends.sender.is_some()).collect()
}

/// Every rank sends `each` numbers to every rank, and receives from all meanwhile.
pub fn carries_all_between_all<J: Job>(job: &J, mechanism: &Mechanism<J>, each: u64) {
    let mut all: Vec<Ends> = (0..job.size()).map(|to| (mechanism.open)(job, to)).collect();
    let from = senders(job, &all[job.rank() as usize]);
    let mut receiver = all[job.rank() as usize].receiver.take();
    let mut senders: Vec<_> = all.into_iter().filter_map(|ends| ends.sender).collect();
    let kept = thread::scope(|scope| {
        let sending = scope.spawn(move || {
            for number in 0..each {
                for sender in &mut senders {
                    let is_sent = number % 2 == 0 && sender(number, Wait::No) == Ok(true);
                    assert!(is_sent || sender(number, Wait::Forever) == Ok(true));
                }
            }
            senders
        });
        if let Some(receiver) = &mut receiver {
            receive_all(receiver, &from, each);
        }
        sending.join().expect("no panic")
    });
    job.sum(0);
    let more = receiver.map_or(Ok(None), |mut receiver| receiver(Wait::No));
    assert_eq!(more, Ok(None), "{}: each once", mechanism.name);
    job.sum(0);
    drop(kept);
}

/// Rank 0 fills its connection to rank 1, which receives nothing until the last rank has all of
/// another one.
pub fn full_stops_its_own_senders_only<J: Job>(job: &J, mechanism: &Mechanism<J>) {
    const OTHERS: u64 = 1000;
    const MORE: u64 = 100;
    let mut full = (mechanism.open)(job, 1);
    let mut free = (mechanism.open)(job, job.size() - 1);
    let mut sent = 0;
    if let (0, Some(full), Some(free)) = (job.rank(), &mut full.sender, &mut free.sender) {
        sent = fill(full);
        send_all(free, OTHERS);
    }
    if let Some(free) = &mut free.receiver {
        receive_all(free, &[0], OTHERS);
    }
    let held = job.sum(sent);
    if let (0, Some(full)) = (job.rank(), &mut full.sender) {
        (sent..sent + MORE).for_each(|one| assert_eq!(full(one, Wait::Forever), Ok(true)));
    }
    if let Some(full) = &mut full.receiver {
        receive_all(full, &[0], held + MORE);
    }
    job.sum(0);
}

/// A receiver that is dropped at once, perhaps before others have connected, is closed for all
/// senders, and no other one is.
pub fn closes_for_senders<J: Job>(job: &J, mechanism: &Mechanism<J>, rounds: u32) {
    for to in (0..rounds).map(|round| round % job.size()) {
        let mut other = (mechanism.open)(job, to);
        let mut ends = (mechanism.open)(job, to);
        let from = senders(job, &other);
        drop(ends.receiver.take());
        if let Some(sender) = &mut ends.sender {
            assert_eq!(send_until_the_end(sender), End::Closed, "{}", mechanism.name);
        }
        let sent = thread::scope(|scope| {
            // A message may wait for its receiver.
            let sender = other.sender.take();
            let sent = scope.spawn(|| sender.map(|mut sender| send_all(&mut sender, 3)));
            if let Some(receiver) = &mut other.receiver {
                receive_all(receiver, &from, 3);
            }
            sent.join()
        });
        sent.expect("the other one is open");
        job.sum(0);
    }
}

/// Senders that are dropped are closed for their receiver, behind their last message.
pub fn closes_for_the_receiver<J: Job>(job: &J, mechanism: &Mechanism<J>) {
    assert!(mechanism.reports_closed_senders);
    for each in [0, 1, 0, 3000] {
        let Ends { sender, receiver } = (mechanism.open)(job, job.size() - 1);
        if let Some(mut sender) = sender {
            send_all(&mut sender, each);
        }
        if let Some(mut receiver) = receiver {
            let from: Vec<u32> = (0..job.size() - 1).collect();
            receive_all(&mut receiver, &from, each);
            for wait in [Wait::Forever, Wait::No] {
                assert_eq!(receiver(wait), Err(End::Closed), "{}", mechanism.name);
            }
        }
    }
    job.sum(0);
}

/// The last rank receives what the others have sent before they leave; then it learns of an end.
pub fn gives_what_precedes_an_exit<J: Job>(job: &J, mechanism: &Mechanism<J>, each: u64) {
    let last = job.size() - 1;
    let mut ends = (mechanism.open)(job, last);
    let mut silent = (mechanism.open)(job, last);
    match &mut ends.receiver {
        None => send_all(ends.sender.as_mut().expect("this rank sends"), each),
        Some(receiver) => {
            let from: Vec<u32> = (0..last).collect();
            receive_all(receiver, &from, each);
            for receiver in [Some(receiver), silent.receiver.as_mut()].into_iter().flatten() {
                let end = receiver(Wait::Forever);
                let is_expected = match end {
                    Err(End::Closed) => mechanism.reports_closed_senders,
                    Err(End::Exited(rank)) => rank < last,
                    Ok(_) => false,
                };
                assert!(is_expected, "{}: {end:?}", mechanism.name);
            }
        }
    }
}

/// Connections that are opened, used and dropped take a bounded number of bytes.
pub fn uses_memory_again<J: Job>(job: &J, mechanism: &Mechanism<J>) {
    let open = || {
        let Ends { sender, receiver } = (mechanism.open)(job, 0);
        let sends_itself = job.rank() == 0 && sender.is_some();
        if let Some(mut sender) = sender {
            assert_eq!(sender(0, Wait::Forever), Ok(true));
        }
        let from: Vec<u32> = (u32::from(!sends_itself)..job.size()).collect();
        if let Some(mut receiver) = receiver {
            receive_all(&mut receiver, &from, 1);
        }
    };
    (0..20).for_each(|_| open());
    let used = job.allocated_bytes();
    (0..200).for_each(|_| open());
    // Some are still open at ranks that are behind, and in the agent. A rank frees the memory of
    // those that are closed when it opens the next one.
    let more = || job.allocated_bytes().saturating_sub(used);
    let is_free = |_| {
        let is_free = job.sum(u64::from(more() >= 50 * mechanism.bytes)) == 0;
        if !is_free {
            open();
        }
        is_free
    };
    assert!((0..100).any(is_free), "{}: {} bytes", mechanism.name, more());
}

/// Ends of the ranks with a rank that fails, `victim`, and with rank 1.
struct WithVictim {
    to_victim: Ends,
    to_1: Ends,
    /// Messages that rank 1 has received from rank 0.
    of_rank_0: u64,
}

fn open_all<J: Job>(job: &J, mechanisms: &[Mechanism<J>], victim: u32) -> Vec<WithVictim> {
    let open = |mechanism: &Mechanism<J>| WithVictim {
        to_victim: (mechanism.open)(job, victim),
        to_1: (mechanism.open)(job, 1),
        of_rank_0: 0,
    };
    let all = mechanisms.iter().map(open).collect();
    job.sum(0);
    all
}

impl WithVictim {
    /// The ends of rank 0 and 1 report that the victim has failed.
    fn wait_for_the_end(&mut self, name: &str, victim: u32) {
        let sender = self.to_victim.sender.as_mut().expect("this rank sends");
        assert_eq!(send_until_the_end(sender), End::Exited(victim), "{name}");
        while let Some(receiver) = &mut self.to_1.receiver {
            match receiver(Wait::Forever) {
                // Rank 0 has found out before, and goes on.
                Ok(found) => {
                    assert_eq!(found, Some((0, self.of_rank_0)), "{name}");
                    self.of_rank_0 += 1;
                }
                Err(end) => {
                    assert_eq!(end, End::Exited(victim), "{name}");
                    break;
                }
            }
        }
    }

    /// Messages from rank 0 to rank 1 still arrive, behind any number of reports of the failure.
    fn go_on(&mut self, rank: u32, victim: u32, each: u64) {
        if let (0, Some(sender)) = (rank, &mut self.to_1.sender) {
            send_all(sender, each);
        }
        while let Some(receiver) = &mut self.to_1.receiver
            && self.of_rank_0 < each
        {
            match receiver(Wait::For(Duration::from_millis(1))) {
                Ok(None) => {}
                Ok(found) => {
                    assert_eq!(found, Some((0, self.of_rank_0)));
                    self.of_rank_0 += 1;
                }
                Err(end) => assert_eq!(end, End::Exited(victim)),
            }
        }
    }
}

/// Rank `victim` sends `each` numbers to rank 1 through every mechanism, and kills itself. Rank 1
/// receives them, then the end; rank 0 learns of it where it sends; both go on with each other.
pub fn beside_a_killed_rank<J: Job>(
    job: &J,
    mechanisms: &[Mechanism<J>],
    (victim, each): (u32, u64),
    kill: fn(),
) {
    let mut all = open_all(job, mechanisms, victim);
    for (ends, mechanism) in all.iter_mut().zip(mechanisms) {
        match (job.rank(), &mut ends.to_1) {
            (rank, Ends { sender: Some(sender), .. }) if rank == victim => {
                send_all(sender, each);
            }
            (1, Ends { receiver: Some(receiver), .. }) => {
                for number in 0..each {
                    assert_eq!(next(receiver), (victim, number), "{}", mechanism.name);
                }
            }
            _ => {}
        }
    }
    if job.rank() == victim {
        kill();
    }
    for (ends, mechanism) in all.iter_mut().zip(mechanisms) {
        ends.wait_for_the_end(mechanism.name, victim);
        ends.go_on(job.rank(), victim, each);
    }
}

/// Calls `ready` with every mechanism open; then the node of rank `victim` has to vanish. All ranks
/// learn of it where they wait.
pub fn beside_a_vanished_node<J: Job>(
    job: &J,
    mechanisms: &[Mechanism<J>],
    victim: u32,
    ready: impl FnOnce(),
) {
    let mut all = open_all(job, mechanisms, victim);
    ready();
    for (ends, mechanism) in all.iter_mut().zip(mechanisms) {
        if job.rank() != victim {
            ends.wait_for_the_end(mechanism.name, victim);
        } else if let Some(receiver) = &mut ends.to_victim.receiver {
            while receiver(Wait::Forever).is_ok() {}
        }
    }
}

/// Rank 0 fills its connections to rank 1 and leaves; rank 1 receives everything afterwards.
pub fn outlives_its_senders<J: Job>(job: &J, mechanisms: &[Mechanism<J>]) {
    let mut all: Vec<Ends> = mechanisms.iter().map(|one| (one.open)(job, 1)).collect();
    let fill = |ends: &mut Ends| match (job.rank(), &mut ends.sender) {
        (0, Some(sender)) => fill(sender),
        _ => 0,
    };
    let held: Vec<u64> = all.iter_mut().map(|ends| job.sum(fill(ends))).collect();
    for (ends, held) in all.iter_mut().zip(held) {
        // Not closed, as if the process ended here.
        std::mem::forget(ends.sender.take());
        if let Some(receiver) = &mut ends.receiver {
            receive_all(receiver, &[0], held);
        }
    }
}
