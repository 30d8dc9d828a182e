//! What the ranks of the tests do. The tests start this very program again with the name of one of
//! these.

use crate::jobs::harness::PROGRAM;
use rustix::process::{Signal, getpid, kill_process};
use std::panic::catch_unwind;
use std::time::Duration;
use tradewind::messages::{ExpressMessage, SourceName};
use tradewind::{Algorithm, Algorithms};
use tradewind::{Communicator, Error, Exit, Job, Neighbors, Op};

testing::parts![program];

/// Is a rank if this process was started as one; as a test of its own it does nothing.
fn program() {
    let Ok(name) = std::env::var(PROGRAM) else { return };
    // The test framework must not see a panic: it writes the result of a test without the end of
    // the line to the output that all ranks share, and another rank's line may follow it there. The
    // job has been dropped by the unwinding before.
    let status = catch_unwind(|| run(&name)).unwrap_or(PANICKED);
    std::process::exit(status);
}

/// The exit status of a program that panics, as of Rust's own programs.
const PANICKED: i32 = 101;

fn run(name: &str) -> i32 {
    match name {
        "endless" => endless(),
        "kills-itself" => kills_itself(),
        "leaves" => leaves(),
        "never-joins" => never_joins(),
        "stops" => stops(),
        "sums" => sums(),
        "follows" => follows(),
        "much" => much(),
        "long" => long(),
        "joins" => joins(),
        "watched" => watched(),
        other => panic!("there is no program {other}"),
    }
}

/// Writes a line for the test, by one system call, so that it is never torn.
fn say(rank: u32, words: &str) {
    println!("> {rank} {words}");
}

fn setting(name: &str) -> u32 {
    let text = std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
}

fn raise(signal: Signal) {
    kill_process(getpid(), signal).expect("a process may signal itself");
}

/// Nanoseconds of the clock that all processes share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

/// Writes the error and its time.
fn report(rank: u32, error: &Error) {
    let at = now();
    let words = match error {
        Error::RankFailed { how: Exit::Remote(_), .. } => format!("error {error}"),
        Error::RankFailed { rank, how } => format!("failed {rank} {}", describe(how)),
        Error::ServiceFailed => "service".to_owned(),
        error => format!("error {error}"),
    };
    say(rank, &words);
    say(rank, &format!("at {at}"));
}

fn describe(how: &Exit) -> String {
    match how {
        Exit::Exited(status) => format!("exited {status}"),
        Exit::Killed(signal) => format!("killed {signal}"),
        Exit::Left => "left".into(),
        Exit::NeverStarted => "absent".into(),
        Exit::Panicked => "panicked".into(),
        Exit::Vanished => "vanished".into(),
        other => other.to_string(),
    }
}

/// The communicator of all ranks; with LINKED, one that uses schedules in which operations enable
/// each other across ranks.
fn world(job: &Job) -> Communicator {
    let linked = Algorithms {
        barrier: Some(Algorithm::Dissemination),
        allreduce: Some(Algorithm::RecursiveDoubling),
        alltoall: Some(Algorithm::Bruck),
        ..Algorithms::default()
    };
    let usual = Algorithms::default();
    job.world().with_algorithms(if std::env::var_os("LINKED").is_some() { linked } else { usual })
}

/// One round of collectives that depend on every rank; every eighth moves as much as is worked on
/// in pieces.
fn round(world: &Communicator, round: u64) -> Result<(), Error> {
    world.barrier()?;
    let elements = if round % 8 == 3 { 1 << 14 } else { 16 };
    let mut sum = vec![0u64; elements];
    world.allreduce(&vec![round; elements], &mut sum, Op::Sum)?;
    assert!(sum.iter().all(|element| *element == round * u64::from(world.size())), "{sum:?}");
    let mut all = vec![0u32; world.size() as usize];
    world.alltoall(&vec![world.rank(); world.size() as usize], &mut all)?;
    assert!(all.iter().copied().eq(0..world.size()));
    Ok(())
}

/// Rounds until one fails; says when it has begun and how far it is.
fn endless() -> i32 {
    let job = match Job::init() {
        Ok(job) => job,
        Err(error) => {
            report(setting("TRADEWIND_RANK"), &error);
            return 1;
        }
    };
    let world = world(&job);
    let rank = world.rank();
    say(rank, &format!("process {}", std::process::id()));
    for number in 0.. {
        if let Err(error) = round(&world, number) {
            report(rank, &error);
            return 1;
        }
        if number % 16 == 0 {
            say(rank, &format!("round {number}"));
            // A short sleep, so that the others sleep too now and then: an exit finds some ranks
            // computing, some waiting, some asleep. Only a rank that is about to sleep checks
            // whether another one has exited.
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    0
}

/// One round of long collectives between two ranks. Every byte differs from that of the round
/// before, so bytes of another round are found.
fn long_round(world: &Communicator, ring: &Neighbors, round: u64) -> Result<(), Error> {
    const ELEMENTS: usize = 32 << 10;
    let (rank, other) = (u64::from(world.rank()), 1 - u64::from(world.rank()));
    let word =
        |from: u64, to: u64, at: usize| (round << 32) + (from << 25) + (to << 24) + at as u64;
    let block = |from: u64, to: u64| (0..ELEMENTS).map(move |at| word(from, to, at));
    let sent: Vec<u64> = block(rank, 0).chain(block(rank, 1)).collect();
    let mut received = vec![0; sent.len()];
    world.alltoall(&sent, &mut received)?;
    assert!(received.iter().copied().eq(block(0, rank).chain(block(1, rank))));
    for root in [0, 1] {
        let mut buffer: Vec<u64> = if rank == root { sent.clone() } else { vec![0; sent.len()] };
        world.bcast(&mut buffer, root as u32)?;
        assert!(buffer.iter().copied().eq(block(root, 0).chain(block(root, 1))));
    }
    // Both edges lead to the other rank; the first block for it is the second from it.
    let mut received = vec![0; sent.len()];
    ring.neighbor_alltoall(&sent, &mut received)?;
    assert!(received.iter().copied().eq(block(other, 1).chain(block(other, 0))));
    let mut sum = vec![0; ELEMENTS];
    world.allreduce(&sent[..ELEMENTS], &mut sum, Op::Sum)?;
    assert!(sum.into_iter().eq(block(rank, 0).zip(block(other, 0)).map(|(one, two)| one + two)));
    Ok(())
}

/// Rounds of long collectives until one fails.
fn long() -> i32 {
    let job = Job::init().expect("a job");
    let world = job.world();
    let ring = world.cartesian(&[2], &[true]).expect("two ranks");
    say(world.rank(), &format!("process {}", std::process::id()));
    for number in 0.. {
        if let Err(error) = long_round(world, &ring, number) {
            report(world.rank(), &error);
            return 1;
        }
        if number % 16 == 0 {
            say(world.rank(), &format!("round {number}"));
        }
    }
    0
}

/// As [`endless`], but the rank VICTIM kills itself in round ROUND.
fn kills_itself() -> i32 {
    let job = Job::init().expect("a job");
    let world = world(&job);
    let rank = world.rank();
    say(rank, &format!("process {}", std::process::id()));
    for number in 0.. {
        if rank == setting("VICTIM") && number == u64::from(setting("ROUND")) {
            say(rank, &format!("dies {}", now()));
            raise(Signal::KILL);
        }
        if let Err(error) = round(&world, number) {
            report(rank, &error);
            return 1;
        }
    }
    0
}

/// Rank 1 goes before the others are done, in the manner HOW.
fn leaves() -> i32 {
    let job = Job::init().expect("a job");
    let rank = job.world().rank();
    job.world().barrier().expect("all are here");
    if rank == 1 {
        match std::env::var("HOW").as_deref() {
            Ok("exit") => std::process::exit(setting("STATUS").cast_signed()),
            Ok("leave") => drop(job),
            Ok("panic") => panic!("as asked"),
            other => panic!("{other:?}"),
        }
        return 0;
    }
    match job.world().barrier() {
        Ok(()) => 0,
        Err(error) => {
            report(rank, &error);
            setting("OTHERS").cast_signed()
        }
    }
}

/// Rank 0 does not join. It lives until it is ended.
fn never_joins() -> i32 {
    if std::env::var("TRADEWIND_RANK").as_deref() == Ok("0") {
        loop {
            std::thread::park();
        }
    }
    match Job::init() {
        Ok(_) => 0,
        Err(error) => {
            report(setting("TRADEWIND_RANK"), &error);
            1
        }
    }
}

/// Rank 1 stops itself; the others wait until the test lets it go on.
fn stops() -> i32 {
    let job = Job::init().expect("a job");
    let rank = job.world().rank();
    job.world().barrier().expect("all are here");
    if rank == 1 {
        say(rank, &format!("process {}", std::process::id()));
        raise(Signal::STOP);
        // The signal stops another thread first, perhaps, and this one a moment later.
        let file = std::env::var_os("GO_ON").expect("GO_ON is set");
        while !std::path::Path::new(&file).exists() {
            std::thread::yield_now();
        }
    }
    let mut barrier = job.world().ibarrier().expect("a request");
    loop {
        match barrier.wait_timeout(Duration::from_millis(20)) {
            Ok(()) => break,
            Err(Error::Timeout { waiting_for, .. }) => {
                let stopped =
                    waiting_for.iter().any(|straggler| straggler.rank == 1 && straggler.stopped);
                if stopped {
                    let all: Vec<_> =
                        waiting_for.iter().map(|straggler| straggler.rank.to_string()).collect();
                    say(rank, &format!("stopped {}", all.join(",")));
                }
            }
            Err(error) => {
                report(rank, &error);
                return 1;
            }
        }
    }
    round(job.world(), 5).expect("all go on");
    say(rank, "through");
    0
}

/// Three ranks that wait for each other until the file GO_ON exists: rank 0 in a barrier, rank 1
/// for a message of rank 2, which computes. Rank 0 has a queue with five messages.
fn watched() -> i32 {
    let job = Job::init().expect("a job");
    let world = job.world();
    let rank = world.rank();
    let port = world.express(16).expect("a queue");
    if rank == 1 {
        let source = SourceName::new(1).expect("below 16,384");
        let message = ExpressMessage::new(source, 0, *b"watch");
        (0..5).for_each(|_| port.senders[0].send(&message).expect("space"));
    }
    world.barrier().expect("all are here");
    say(rank, &format!("process {}", std::process::id()));
    let outcome = match rank {
        1 => world.recv(&mut [0_u32], 2, 7).map(|_| ()),
        2 => {
            let file = std::env::var_os("GO_ON").expect("GO_ON is set");
            while !std::path::Path::new(&file).exists() {
                std::hint::spin_loop();
            }
            world.send(&[1_u32], 1, 7)
        }
        _ => Ok(()),
    };
    match outcome.and_then(|()| world.barrier()) {
        Ok(()) => 0,
        Err(error) => {
            report(rank, &error);
            1
        }
    }
}

/// Adds up NUMBER over all ranks, several times, and says the sum.
fn sums() -> i32 {
    let job = Job::init().expect("a job");
    let mut sum = [0];
    for _ in 0..200 {
        job.world().allreduce(&[setting("NUMBER")], &mut sum, Op::Sum).expect("all are here");
    }
    say(job.world().rank(), &format!("sum {}", sum[0]));
    0
}

/// Rank 2 fails with status 7, rank 1 with 9 because of that; rank 0 takes it calmly.
fn follows() -> i32 {
    let job = Job::init().expect("a job");
    match job.world().rank() {
        2 => std::process::exit(7),
        rank => match job.world().barrier() {
            Err(_) => 9 * i32::from(rank == 1),
            Ok(()) => 0,
        },
    }
}

/// Requests more memory than there is.
fn much() -> i32 {
    let job = Job::init().expect("a job");
    let rank = job.world().rank();
    let elements = 1 << 20;
    let mut sum = vec![0u64; elements];
    match job.world().allreduce(&vec![1; elements], &mut sum, Op::Sum) {
        Ok(()) => 0,
        Err(error) => {
            report(rank, &error);
            1
        }
    }
}

/// Joins without the façade, names the process of the service, and meets the others until that
/// fails.
fn joins() -> i32 {
    let attachment = service::attach::attach();
    let rank = ["TRADEWIND_RANK", "PMI_RANK"].iter().find_map(|name| std::env::var(name).ok());
    let rank = rank.and_then(|rank| rank.parse().ok()).unwrap_or(0);
    let member = match attachment {
        Ok(attachment) => attachment.member,
        Err(error) => {
            report(rank, &error.into());
            return 1;
        }
    };
    assert_eq!(member.rank(), rank);
    say(rank, &format!("process {}", std::process::id()));
    say(rank, &format!("service {}", member.node().service_process()));
    let group = engine::communicator::Communicator::world(std::sync::Arc::new(member))
        .expect("a communicator");
    let call = engine::signature::Signature::new(engine::signature::CallKind::Link, 0, 0);
    for number in 0..setting("ROUNDS") {
        if let Err(error) = group.exchange_words([u64::from(number); 6], call) {
            report(rank, &error.into());
            return 1;
        }
    }
    say(rank, "through");
    0
}
