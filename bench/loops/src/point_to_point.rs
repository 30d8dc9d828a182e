//! MPI's messages: half a round trip, the time from message to message in a stream, an exchange that
//! is started before a computation and completed after it, and round trips of two threads of each
//! rank. `bench/c/messages.c` and `threads.c` have the same text over MPI.

use crate::Failure;
use crate::measure::{compute, percentile, repetitions_within, skew, sort, wall_us};
use crate::messages::{Batch, check, measure_batches};
use crate::report::{Line, Options, agree, combine};
use crate::row::Row;
use tradewind::{Communicator, Op, wait_all};

const ROUND_TRIPS: u64 = 100;
const WINDOW: u64 = 64;
const WINDOWS: u64 = 8;
const THREADS: u64 = 2;
const THREAD_ROUND_TRIPS: u64 = 1000;

const PING: u32 = 1;
const PONG: u32 = 2;

/// Measures one row.
pub fn measure(world: &Communicator, row: Row, options: &mut Options) -> Result<(), Failure> {
    let words = row.bytes / 8;
    let window = words * WINDOW as usize;
    let mut buffers = Buffers { world, words, sent: vec![1; window], received: vec![1; window] };
    match row.name {
        "pingpong" => measure_batches(world, row, "messages", &mut PingPong(buffers), options),
        "written" => measure_batches(world, row, "messages", &mut Written(buffers), options),
        "stream" => measure_batches(world, row, "messages", &mut Stream(buffers), options),
        "pairs" => measure_batches(world, row, "threads", &mut Pairs(world), options),
        _ if row.computation.amount > 0 => measure_posted(&mut buffers, row, options),
        _ => measure_batches(world, row, "messages", &mut Posted(buffers), options),
    }
}

struct Buffers<'w> {
    world: &'w Communicator,
    words: usize,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Buffers<'_> {
    fn other(&self) -> u32 {
        1 - self.world.rank()
    }

    fn send(&mut self, tag: u32, number: u64) -> Result<(), Failure> {
        self.sent[0] = number;
        Ok(self.world.send(&self.sent[..self.words], self.other(), tag)?)
    }

    fn receive(&mut self, tag: u32, number: u64) -> Result<(), Failure> {
        let other = self.other();
        self.world.recv(&mut self.received[..self.words], other, tag)?;
        check(self.received[0] == number)
    }
}

struct PingPong<'w>(Buffers<'w>);

impl Batch for PingPong<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let buffers = &mut self.0;
        let start_us = wall_us();
        for number in batch * ROUND_TRIPS..(batch + 1) * ROUND_TRIPS {
            if buffers.world.rank() == 0 {
                buffers.send(PING, number)?;
                buffers.receive(PONG, number)?;
            } else {
                buffers.receive(PING, number)?;
                buffers.send(PONG, number)?;
            }
        }
        Ok((wall_us() - start_us) / ROUND_TRIPS as f64 / 2.0)
    }
}

/// One message there and one back, each written anew by the program before, untimed, and read by
/// the program after, timed: unchanged bytes lie in the caches of both ranks.
struct Written<'w>(Buffers<'w>);

impl Written<'_> {
    fn send(&mut self) -> Result<(), Failure> {
        let buffers = &self.0;
        Ok(buffers.world.send(&buffers.sent[..buffers.words], buffers.other(), PING)?)
    }

    fn receive(&mut self, first: u64) -> Result<(), Failure> {
        let buffers = &mut self.0;
        let other = buffers.other();
        let received = &mut buffers.received[..buffers.words];
        buffers.world.recv(received, other, PING)?;
        let sum = received.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
        let count = received.len() as u64;
        check(sum == count * first + count * (count - 1) / 2)
    }
}

impl Batch for Written<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let buffers = &mut self.0;
        let rank = u64::from(buffers.world.rank());
        let sent = buffers.sent[..buffers.words].iter_mut();
        sent.zip(batch * 3 + rank..).for_each(|(word, value)| *word = value);
        let expected = batch * 3 + 1 - rank;
        buffers.world.barrier()?;
        let start_us = wall_us();
        if rank == 0 {
            self.send()?;
            self.receive(expected)?;
        } else {
            self.receive(expected)?;
            self.send()?;
        }
        Ok((wall_us() - start_us) / 2.0)
    }
}

/// Windows of 64 messages, each answered by one, as the OSU benchmarks have it.
struct Stream<'w>(Buffers<'w>);

impl Batch for Stream<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let buffers = &mut self.0;
        let world = buffers.world;
        let words = buffers.words;
        let start_us = wall_us();
        for window in batch * WINDOWS..(batch + 1) * WINDOWS {
            let first = window * WINDOW;
            if world.rank() == 0 {
                let mut requests = Vec::with_capacity(WINDOW as usize);
                for (message, number) in buffers.sent.chunks_mut(words).zip(first..) {
                    message[0] = number;
                    requests.push(world.isend(message, 1, PING)?);
                }
                wait_all(requests)?;
                buffers.receive(PONG, first)?;
            } else {
                let mut requests = Vec::with_capacity(WINDOW as usize);
                for message in buffers.received.chunks_mut(words) {
                    requests.push(world.irecv(message, 0, PING)?);
                }
                wait_all(requests)?;
                for (message, number) in buffers.received.chunks(words).zip(first..) {
                    check(message[0] == number)?;
                }
                buffers.send(PONG, first)?;
            }
        }
        Ok((wall_us() - start_us) / (WINDOWS * WINDOW) as f64)
    }
}

/// One message each way, both received into what was posted before.
struct Posted<'w>(Buffers<'w>);

impl Batch for Posted<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let other = self.0.other();
        let Buffers { world, words, sent, received } = &mut self.0;
        sent[0] = batch;
        world.barrier()?;
        let start_us = wall_us();
        let receive = world.irecv(&mut received[..*words], other, PING)?;
        let send = world.isend(&sent[..*words], other, PING)?;
        receive.wait()?;
        send.wait()?;
        let time_us = wall_us() - start_us;
        check(received[0] == batch)?;
        agree(world, time_us)
    }
}

/// Measures the time that an exchange adds to a computation, as `overlap.rs` has it for a collective.
fn measure_posted(
    buffers: &mut Buffers<'_>,
    row: Row,
    options: &mut Options,
) -> Result<(), Failure> {
    const LEAST: usize = 20;
    const MOST: usize = 2000;
    let other = buffers.other();
    let Buffers { world, words, sent, received } = buffers;
    let words = *words;
    let start_us = wall_us();
    compute(row.computation);
    let computation_us = agree(world, wall_us() - start_us)?;
    let repetitions = repetitions_within(options.budget_us, 3.0 * computation_us, LEAST, MOST);
    let (mut computation, mut total) = (Vec::new(), Vec::new());
    for repetition in 0..repetitions as u64 {
        world.barrier()?;
        skew(&mut options.random, row.computation, options.skew_percent);
        let start_us = wall_us();
        compute(row.computation);
        computation.push(wall_us() - start_us);
        let first = repetition * 3 + u64::from(world.rank());
        sent[..words].iter_mut().zip(first..).for_each(|(word, value)| *word = value);
        world.barrier()?;
        skew(&mut options.random, row.computation, options.skew_percent);
        let start_us = wall_us();
        let receive = world.irecv(&mut received[..words], other, PING)?;
        let send = world.isend(&sent[..words], other, PING)?;
        compute(row.computation);
        receive.wait()?;
        send.wait()?;
        total.push(wall_us() - start_us);
        let sum = received[..words].iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
        let count = words as u64;
        let first = repetition * 3 + u64::from(other);
        check(sum == count * first + count * (count - 1) / 2)?;
    }
    sort(&mut computation);
    let alone = percentile(&computation, 50);
    total.iter_mut().for_each(|total| *total -= alone);
    combine(world, &mut total, Op::Maximum)?;
    let mut line = Line::begin("messages", row, world);
    line.add_summary("message_us", &mut total)?;
    line.end();
    Ok(())
}

/// Round trips of two threads of each rank at the same time, distinguished by their tags: the time
/// of all, for half of one of each pair.
struct Pairs<'w>(&'w Communicator);

impl Pairs<'_> {
    fn round_trips(&self, pair: u64, batch: u64) -> Result<(), tradewind::Error> {
        let world = self.0;
        let tag = PING + pair as u32;
        for number in batch * THREAD_ROUND_TRIPS..(batch + 1) * THREAD_ROUND_TRIPS {
            let mut found = [number];
            if world.rank() == 0 {
                world.send(&[number], 1, tag)?;
            }
            world.recv(&mut found, 1 - world.rank(), tag)?;
            if world.rank() == 1 {
                world.send(&found, 0, tag)?;
            }
            assert_eq!(found, [number], "a message is wrong");
        }
        Ok(())
    }
}

impl Batch for Pairs<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        self.0.barrier()?;
        let start_us = wall_us();
        std::thread::scope(|scope| {
            let pairs: Vec<_> = (1..THREADS)
                .map(|pair| {
                    scope.spawn({
                        let this = &*self;
                        move || this.round_trips(pair, batch)
                    })
                })
                .collect();
            self.round_trips(0, batch)?;
            for pair in pairs {
                pair.join().map_err(|_| "a thread has panicked")??;
            }
            Ok::<_, Failure>(())
        })?;
        agree(self.0, (wall_us() - start_us) / THREAD_ROUND_TRIPS as f64 / 2.0)
    }
}
