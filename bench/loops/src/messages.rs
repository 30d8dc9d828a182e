//! One way from rank 0 to rank 1: half a round trip of a small message, the time from message to
//! message in a stream, and half a round trip of large ones, of which every byte is written before and
//! read after it. Each with the mechanism that is made for it.

use crate::Failure;
use crate::measure::{repetitions_within, wall_us};
use crate::report::{Line, Options, agree};
use crate::row::Row;
use tradewind::Communicator;
use tradewind::messages::ExpressMessage;
use tradewind::messages::SourceName;
use tradewind::messages::{BulkEnd, BulkReceiver, CacheLinePort, ExpressPort};
use tradewind::messages::{BulkSender, DEFAULT_STAGING_BYTES};
use tradewind::messages::{CacheLineHeader, CacheLineMessage, LINE_DATA};

const LEAST_BATCHES: usize = 10;
const MOST_BATCHES: usize = 5000;
const WARM_UP: usize = 10;

const ROUND_TRIPS: u64 = 100;
const WINDOW: u64 = 64;
const WINDOWS: u64 = 8;

/// One repetition of a row.
pub trait Batch {
    /// Executes a batch. Returns rank 0's microseconds a message.
    fn run(&mut self, number: u64) -> Result<f64, Failure>;
}

/// Runs batches for the budget and prints the row's line. Rank 0's times count: every batch ends
/// with an answer to it.
pub fn measure_batches(
    world: &Communicator,
    row: Row,
    program: &str,
    batch: &mut impl Batch,
    options: &Options,
) -> Result<(), Failure> {
    let mut each_us = 0.0;
    // The second time without what is done once.
    for time in 0..2 {
        let start_us = wall_us();
        for number in 0..WARM_UP {
            batch.run((time * WARM_UP + number) as u64)?;
        }
        each_us = agree(world, (wall_us() - start_us) / WARM_UP as f64)?;
    }
    let batches = repetitions_within(options.budget_us, each_us, LEAST_BATCHES, MOST_BATCHES);
    let mut times = vec![0.0; batches];
    for (number, time) in times.iter_mut().enumerate() {
        *time = batch.run((2 * WARM_UP + number) as u64)?;
    }
    let mut line = Line::begin(program, row, world);
    line.add_summary("message_us", &mut times)?;
    line.end();
    // Both ranks are done with their ends before one of them closes its own.
    Ok(world.barrier()?)
}

/// Measures one row.
pub fn measure(world: &Communicator, row: Row, options: &Options) -> Result<(), Failure> {
    match row.name {
        "latency" => {
            measure_batches(world, row, "messages", &mut Latency::open(world, row)?, options)
        }
        "rate" => measure_batches(world, row, "messages", &mut Rate::open(world)?, options),
        "large" => measure_batches(world, row, "messages", &mut Large::open(world, row)?, options),
        other => {
            Err(format!("'{other}' is no operation of messages: latency, rate or large").into())
        }
    }
}

pub fn check(is_right: bool) -> Result<(), Failure> {
    if is_right { Ok(()) } else { Err("a message is wrong".into()) }
}

/// The name of a rank.
pub fn name(rank: u32) -> SourceName {
    SourceName::new(rank as u16).unwrap_or_default()
}

/// Round trips over wide queues.
struct Latency {
    rank: u32,
    port: CacheLinePort,
    header: CacheLineHeader,
    bytes: usize,
}

impl Latency {
    fn open(world: &Communicator, row: Row) -> Result<Self, Failure> {
        let header = CacheLineHeader { source: name(world.rank()), handler: 0, tag: 0 };
        Ok(Self { rank: world.rank(), port: world.cache_lines(64)?, header, bytes: row.bytes })
    }

    /// Eight bytes that say which message it is, and as many more as the row has.
    #[inline]
    fn send(&self, number: u64) -> Result<(), Failure> {
        let mut bytes = [0; LINE_DATA];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let message = CacheLineMessage::new(self.header, &bytes[..self.bytes])
            .ok_or("a wide message has 48 bytes at most")?;
        Ok(self.port.senders[1 - self.rank as usize].send(&message)?)
    }

    #[inline]
    fn receive(&mut self, number: u64) -> Result<(), Failure> {
        let message = self.port.receiver.recv()?;
        check(
            message.data().len() == self.bytes
                && message.data().first_chunk() == Some(&number.to_le_bytes()),
        )
    }
}

impl Batch for Latency {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let start_us = wall_us();
        for number in batch * ROUND_TRIPS..(batch + 1) * ROUND_TRIPS {
            if self.rank == 0 {
                self.send(number)?;
                self.receive(number)?;
            } else {
                self.receive(number)?;
                self.send(number)?;
            }
        }
        Ok((wall_us() - start_us) / ROUND_TRIPS as f64 / 2.0)
    }
}

/// Windows of 64 Express messages, each answered by one, as the OSU benchmarks have it.
struct Rate {
    rank: u32,
    port: ExpressPort,
    received: Vec<ExpressMessage>,
}

impl Rate {
    fn open(world: &Communicator) -> Result<Self, Failure> {
        let capacity = 4 * WINDOW as usize;
        Ok(Self {
            rank: world.rank(),
            port: world.express(capacity)?,
            received: vec![ExpressMessage::default(); WINDOW as usize],
        })
    }

    /// Express carries five bytes: the number's lower ones.
    #[inline]
    fn message(&self, number: u64) -> ExpressMessage {
        let bytes = number.to_le_bytes();
        ExpressMessage::new(name(self.rank), 0, [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]])
    }

    // As a function of its own, which the compiler chooses in some builds, it adds 3 ns to a message.
    #[inline(always)]
    fn send(&self, number: u64) -> Result<(), Failure> {
        Ok(self.port.senders[1 - self.rank as usize].send(&self.message(number))?)
    }

    fn receive_window(&mut self, first: u64) -> Result<(), Failure> {
        let mut count = 0;
        while count < self.received.len() {
            let many = self.port.receiver.try_recv_many(&mut self.received[count..])?;
            count += many;
            if many == 0 {
                self.received[count] = self.port.receiver.recv()?;
                count += 1;
            }
        }
        let is_right = |(number, message): (u64, &ExpressMessage)| {
            message.data() == self.message(number).data()
        };
        check((first..).zip(&self.received).all(is_right))
    }
}

impl Batch for Rate {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let start_us = wall_us();
        for window in batch * WINDOWS..(batch + 1) * WINDOWS {
            let first = window * WINDOW;
            if self.rank == 0 {
                (first..first + WINDOW).try_for_each(|number| self.send(number))?;
                let answer = self.port.receiver.recv()?;
                check(answer.data() == self.message(first).data())?;
            } else {
                self.receive_window(first)?;
                self.send(first)?;
            }
        }
        Ok((wall_us() - start_us) / (WINDOWS * WINDOW) as f64)
    }
}

/// One message there and one back, each written anew by the program before, untimed, and read by
/// the program after, timed.
struct Large<'w> {
    world: &'w Communicator,
    sender: BulkSender,
    receiver: BulkReceiver,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl<'w> Large<'w> {
    fn open(world: &'w Communicator, row: Row) -> Result<Self, Failure> {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for (from, to) in [(0, 1), (1, 0)] {
            match world.bulk(from, to, DEFAULT_STAGING_BYTES)? {
                Some(BulkEnd::Sender(sender)) => senders.push(sender),
                Some(BulkEnd::Receiver(receiver)) => receivers.push(receiver),
                None => {}
            }
        }
        let (Some(sender), Some(receiver)) = (senders.pop(), receivers.pop()) else {
            return Err("this is for two ranks".into());
        };
        let words = row.bytes / 8;
        Ok(Self { world, sender, receiver, sent: vec![1; words], received: vec![1; words] })
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.sender.send(bytemuck::cast_slice(&self.sent))?;
        Ok(())
    }

    fn receive(&mut self, first: u64) -> Result<(), Failure> {
        self.receiver.recv(bytemuck::cast_slice_mut(&mut self.received))?;
        let words = self.received.len() as u64;
        // The sum of all words, and so a look at every byte.
        let sum = self.received.iter().fold(0_u64, |sum, word| sum.wrapping_add(*word));
        check(sum == words * first + words * (words - 1) / 2)
    }
}

impl Batch for Large<'_> {
    fn run(&mut self, batch: u64) -> Result<f64, Failure> {
        let rank = u64::from(self.world.rank());
        self.sent.iter_mut().zip(batch * 3 + rank..).for_each(|(word, value)| *word = value);
        let expected = batch * 3 + 1 - rank;
        self.world.barrier()?;
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
