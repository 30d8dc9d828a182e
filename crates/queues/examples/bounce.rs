//! One-way latency of each message kind between two processes, compared with the lower bound of the
//! machine.
//!
//! Two processes, each bound to its own core, exchange one message back and forth. The lower bound
//! is the same exchange with two plain words in separate cache lines: one side stores, the other
//! loads. Every round measures all kinds; the result is the median of the rounds.
//!
//! ```sh
//! cargo run --release -p tradewind-queues --example bounce
//! ```

use std::error::Error;
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use queues::cache_line::{
    CacheLine, CacheLineHeader, CacheLineMessage, CacheLineQueue, CacheLineSender,
};
use queues::express::ExpressMessage;
use queues::express::{Express, ExpressQueue, ExpressSender, Multi, Single};
use queues::id::SourceName;
use queues::one_poll::{OnePoll, PollSet};
use queues::queue::{Consumers, Receiver};
use shm::arena::Arena;
use shm::mapped::Mapped;
use shm::process::{allowed_cores, bind_current_thread};
use shm::segment::{Backing, Offset, Segment};

const ROUNDS: usize = 7;
const WARM_UP: u64 = 2_000;
const MESSAGES: u64 = 20_000;
const QUEUES: usize = 512;
/// Index of the measured queue in the poll set: the lowest priority, so that a poll passes all
/// others first.
const INDEX: usize = QUEUES - 1;
const CAPACITY: usize = 64;
/// Offset of the table in which the parent stores the offsets of all queues.
const TABLE: Offset = Offset(0);
const ARENA: u64 = 4096;
const BYTES: u64 = 8 << 20;

/// One direction of one kind: sends a number, or waits for one.
trait Way {
    fn send(&mut self, number: u64);
    fn receive(&mut self) -> u64;
}

/// A word in its own cache line, and its last value.
struct Bare(Mapped<AtomicU64>, u64);

impl Way for Bare {
    fn send(&mut self, number: u64) {
        // Release: pairs with the Acquire in `receive`, as a message would.
        self.0.store(number, Ordering::Release);
    }

    fn receive(&mut self) -> u64 {
        loop {
            let number = self.0.load(Ordering::Acquire);
            if number != self.1 {
                self.1 = number;
                return number;
            }
        }
    }
}

struct Words<C: Consumers>(ExpressSender, Option<Receiver<Express, C>>);

impl<C: Consumers> Way for Words<C> {
    fn send(&mut self, number: u64) {
        let message = ExpressMessage::of_number(SourceName::default(), 1, number).expect("40 bits");
        self.0.try_send(&message).expect("space");
    }

    fn receive(&mut self) -> u64 {
        let receiver = self.1.as_mut().expect("this side receives");
        loop {
            if let Some(message) = receiver.try_recv().expect("open") {
                return message.number();
            }
        }
    }
}

/// The same with the blocking receive, which sleeps after a while without a message.
struct SleepyWords(ExpressSender, Option<Receiver<Express, Multi>>);

impl Way for SleepyWords {
    fn send(&mut self, number: u64) {
        let message = ExpressMessage::of_number(SourceName::default(), 1, number).expect("40 bits");
        self.0.send(&message).expect("open");
    }

    fn receive(&mut self) -> u64 {
        let receiver = self.1.as_mut().expect("this side receives");
        receiver.recv().expect("open").number()
    }
}

struct PolledWords(ExpressSender, OnePoll, Vec<Option<Receiver<Express, Multi>>>);

impl Way for PolledWords {
    fn send(&mut self, number: u64) {
        let message = ExpressMessage::of_number(SourceName::default(), 1, number).expect("40 bits");
        self.0.try_send(&message).expect("space");
    }

    fn receive(&mut self) -> u64 {
        loop {
            if let Some((_, message)) = self.1.poll(&mut self.2[..]) {
                return message.number();
            }
        }
    }
}

fn wide(number: u64) -> CacheLineMessage {
    CacheLineMessage::new(CacheLineHeader::default(), &number.to_le_bytes()).expect("8 bytes")
}

fn number(message: &CacheLineMessage) -> u64 {
    message.data().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

struct Lines<C: Consumers>(CacheLineSender, Option<Receiver<CacheLine, C>>);

impl<C: Consumers> Way for Lines<C> {
    fn send(&mut self, number: u64) {
        self.0.try_send(&wide(number)).expect("space");
    }

    fn receive(&mut self) -> u64 {
        let receiver = self.1.as_mut().expect("this side receives");
        loop {
            if let Some(message) = receiver.try_recv().expect("open") {
                return number(&message);
            }
        }
    }
}

struct PolledLines(CacheLineSender, OnePoll, Vec<Option<Receiver<CacheLine, Multi>>>);

impl Way for PolledLines {
    fn send(&mut self, number: u64) {
        self.0.try_send(&wide(number)).expect("space");
    }

    fn receive(&mut self) -> u64 {
        loop {
            if let Some((_, message)) = self.1.poll(&mut self.2[..]) {
                return number(&message);
            }
        }
    }
}

const KINDS: [&str; 9] = [
    "floor: one bare word",
    "Express, shared form",
    "Express, sole receiver",
    "Express through OnePoll, 1 queue",
    "Express through OnePoll, 512 queues",
    "wide Express, 8 bytes",
    "wide Express, sole receiver, 8 bytes",
    "wide Express through OnePoll, 512 queues",
    "Express, blocking send and receive",
];

/// Creates all queues and stores their offsets in the table: for each kind and direction, the
/// offset of the queue and of its poll set.
fn make(segment: &Arc<Segment>) -> Result<(), Box<dyn Error>> {
    segment.commit(TABLE, ARENA)?;
    let arena = Arena::new(Arc::clone(segment), ARENA..BYTES)?;
    let table = segment.slice_at::<AtomicU64>(TABLE, KINDS.len() * 4)?;
    for (place, entry) in table.chunks(2).enumerate() {
        let (queue, set) = match place / 2 {
            0 => (arena.allocate_zeroed(64, 128)?, Offset(0)),
            kind @ (3 | 4 | 7) => {
                let (capacity, index) = if kind == 3 { (1, 0) } else { (QUEUES, INDEX) };
                let set = PollSet::create(&arena, capacity)?;
                let queue = match kind {
                    7 => CacheLineQueue::create(&arena, CAPACITY, Some((&set, index)))?.offset(),
                    _ => ExpressQueue::create(&arena, CAPACITY, Some((&set, index)))?.offset(),
                };
                (queue, set.offset())
            }
            1 | 2 | 8 => (ExpressQueue::create(&arena, CAPACITY, None)?.offset(), Offset(0)),
            _ => (CacheLineQueue::create(&arena, CAPACITY, None)?.offset(), Offset(0)),
        };
        entry[0].store(queue.0, Ordering::Relaxed);
        entry[1].store(set.0, Ordering::Relaxed);
    }
    Ok(())
}

/// Opens one direction of a kind for one side.
fn open(
    segment: &Arc<Segment>,
    kind: usize,
    direction: usize,
    receives: bool,
) -> Result<Box<dyn Way>, Box<dyn Error>> {
    let table = segment.slice_at::<AtomicU64>(TABLE, KINDS.len() * 4)?;
    let entry =
        |index: usize| Offset(table[kind * 4 + direction * 2 + index].load(Ordering::Relaxed));
    let offset = entry(0);
    let set = entry(1);
    let poll = || PollSet::connect(segment, set);
    Ok(match kind {
        0 => Box::new(Bare(Mapped::new(segment, offset)?, 0)),
        1 => {
            let queue = ExpressQueue::connect(segment, offset)?;
            let receiver = receives.then(|| queue.receiver()).transpose()?;
            Box::new(Words::<Multi>(queue.sender(), receiver))
        }
        2 => {
            let queue = ExpressQueue::connect(segment, offset)?;
            let receiver = receives.then(|| queue.single_receiver()).transpose()?;
            Box::new(Words::<Single>(queue.sender(), receiver))
        }
        3 | 4 => {
            let queue = ExpressQueue::connect(segment, offset)?;
            let set = poll()?;
            let mut receivers: Vec<_> = (0..set.capacity()).map(|_| None).collect();
            if receives {
                receivers[set.capacity() - 1] = Some(queue.receiver()?);
            }
            Box::new(PolledWords(queue.sender(), OnePoll::new(&set), receivers))
        }
        5 => {
            let queue = CacheLineQueue::connect(segment, offset)?;
            let receiver = receives.then(|| queue.receiver()).transpose()?;
            Box::new(Lines::<Multi>(queue.sender(), receiver))
        }
        6 => {
            let queue = CacheLineQueue::connect(segment, offset)?;
            let receiver = receives.then(|| queue.single_receiver()).transpose()?;
            Box::new(Lines::<Single>(queue.sender(), receiver))
        }
        8 => {
            let queue = ExpressQueue::connect(segment, offset)?;
            let receiver = receives.then(|| queue.receiver()).transpose()?;
            Box::new(SleepyWords(queue.sender(), receiver))
        }
        _ => {
            let queue = CacheLineQueue::connect(segment, offset)?;
            let set = poll()?;
            let mut receivers: Vec<_> = (0..set.capacity()).map(|_| None).collect();
            if receives {
                receivers[INDEX] = Some(queue.receiver()?);
            }
            Box::new(PolledLines(queue.sender(), OnePoll::new(&set), receivers))
        }
    })
}

fn child() -> Result<(), Box<dyn Error>> {
    let file: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    let segment = Arc::new(Segment::from_fd(file)?);
    bind_to(1)?;
    let mut ways = Vec::new();
    for kind in 0..KINDS.len() {
        ways.push((open(&segment, kind, 0, true)?, open(&segment, kind, 1, false)?));
    }
    for _ in 0..ROUNDS {
        for (there, back) in &mut ways {
            for _ in 0..WARM_UP + MESSAGES {
                back.send(there.receive());
            }
        }
    }
    Ok(())
}

fn bind_to(index: usize) -> Result<(), Box<dyn Error>> {
    let cores = allowed_cores();
    Ok(bind_current_thread(cores[index % cores.len()])?)
}

/// Returns the one-way latency in nanoseconds, by kind and round.
fn bounce(segment: &Arc<Segment>) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let mut ways = Vec::new();
    for kind in 0..KINDS.len() {
        ways.push((open(segment, kind, 0, false)?, open(segment, kind, 1, true)?));
    }
    let mut times = vec![Vec::new(); KINDS.len()];
    let mut next = 0;
    for _ in 0..ROUNDS {
        for ((there, back), times) in ways.iter_mut().zip(&mut times) {
            let mut trips = |count: u64| {
                let started = Instant::now();
                for _ in 0..count {
                    next += 1;
                    there.send(next);
                    assert_eq!(back.receive(), next, "the answer to another message");
                }
                started.elapsed().as_nanos() as f64 / count as f64 / 2.0
            };
            trips(WARM_UP);
            times.push(trips(MESSAGES));
        }
    }
    Ok(times)
}

/// Returns the nanoseconds of a poll of an empty set of this size, and of a receive from its last
/// queue.
fn poll_cost(queues: usize) -> Result<(f64, f64), Box<dyn Error>> {
    let segment = Arc::new(Segment::create(BYTES, Backing::Memory)?);
    let arena = Arena::new(segment, ARENA..BYTES)?;
    let set = PollSet::create(&arena, queues)?;
    let mut receivers = Vec::new();
    let mut last = None;
    for index in 0..queues {
        let queue = ExpressQueue::create(&arena, CAPACITY, Some((&set, index)))?;
        receivers.push(Some(queue.receiver()?));
        last = Some(queue.sender());
    }
    let sender = last.ok_or("a set has queues")?;
    let mut poll = OnePoll::new(&set);
    let looks = 200_000;
    let started = Instant::now();
    for _ in 0..looks {
        black_box(poll.poll(&mut receivers[..]));
    }
    let empty = started.elapsed().as_nanos() as f64 / f64::from(looks);
    let mut full = std::time::Duration::ZERO;
    for _ in 0..looks / 32 {
        (0..32).try_for_each(|_| sender.try_send(&ExpressMessage::default()))?;
        let started = Instant::now();
        for _ in 0..32 {
            assert!(black_box(poll.poll(&mut receivers[..])).is_some(), "a message waits");
        }
        full += started.elapsed();
    }
    Ok((empty, full.as_nanos() as f64 / f64::from(looks)))
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("child") {
        return child();
    }
    let segment = Arc::new(Segment::create(BYTES, Backing::Memory)?);
    make(&segment)?;
    let file = segment.as_fd().try_clone_to_owned()?;
    let mut other =
        Command::new(std::env::current_exe()?).arg("child").stdin(Stdio::from(file)).spawn()?;
    bind_to(0)?;
    let mut times = bounce(&segment)?;
    other.wait()?;
    let floor = median(&mut times[0]);
    println!("{:<42} {:>8} {:>7}", "one way", "ns", "floors");
    for (kind, times) in KINDS.iter().zip(&mut times) {
        let time = median(times);
        println!("{kind:<42} {time:>8.1} {:>7.2}", time / floor);
    }
    println!("\n{:<42} {:>8} {:>8}", "a look by OnePoll", "empty", "message");
    let mut looks = [(1, vec![], vec![]), (QUEUES, vec![], vec![])];
    for _ in 0..ROUNDS {
        for (queues, empty, full) in &mut looks {
            let (without, with) = poll_cost(*queues)?;
            empty.push(without);
            full.push(with);
        }
    }
    for (queues, empty, full) in &mut looks {
        println!(
            "{:<42} {:>8.1} {:>8.1}",
            format!("{queues} queues, the last one is used"),
            median(empty),
            median(full)
        );
    }
    Ok(())
}
