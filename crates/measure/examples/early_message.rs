//! Cost of a message that arrives before it is needed: `tradewind run -n 2 --
//! target/release/examples/early_message`.
//!
//! In most measurements of latency the receiver has nothing to do but wait. In a program it computes, and
//! the message comes meanwhile. Where a message interrupts the receiver, that makes it dearer (Rosing and
//! Saltz, *Low Latency Messages on Distributed Memory Multiprocessors*, 1995, section 4); here it should
//! make it cheaper.
//!
//! Rank 1 permits rank 0 to send, computes for a while, and only then receives. There are two figures for
//! every mechanism and delay: the *look*, which is the receive itself, and the *total*, which is
//! everything from the permission until the message is there, less the computation alone.

#[path = "common/mod.rs"]
mod common;

use clap::Parser;
use common::{Format, Spread, count};
use measure::harness::clock::{microseconds, now_ns};
use measure::harness::computation::{ComputeRate, compute};
use models::statistics::median;
use queues::cache_line::{CacheLineHeader, CacheLineMessage};
use queues::express::ExpressMessage;
use queues::id::SourceName;
use queues::window::Condition;
use std::process::ExitCode;
use tradewind::messages::{CacheLinePort, ChannelEnd, ExpressPort, Windows};
use tradewind::{Communicator, Result};

/// Ranks of the sender and the receiver.
const SENDER: u32 = 0;
const RECEIVER: u32 = 1;
/// Messages that a queue or a channel holds; there is never more than one.
const CAPACITY: usize = 64;

/// Measures what a message costs that arrives before it is needed.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Microseconds that the receiver computes before it looks, with commas between them
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,5,10,20,50", value_parser = delay)]
    pub(crate) delays: Vec<f64>,
    /// Rounds; in each, every mechanism is measured with every delay
    #[arg(long, default_value_t = 7, value_parser = common::at_least_one())]
    pub(crate) rounds: usize,
    /// Messages of each kind in a round, of which the median counts
    #[arg(long, default_value_t = 200, value_parser = common::at_least_one())]
    pub(crate) messages: usize,
    /// Format of the results
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Run this many ranks as threads of this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
}

/// Reads a delay: no more than a second, which is far more than any message takes.
fn delay(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(delay) if (0.0..=1e6).contains(&delay) => Ok(delay),
        _ => Err("give microseconds from 0 to 1000000".to_owned()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let few = || "it needs at least 2 ranks: run it with -n 2 or --threads 2".to_owned();
    let enough = |ranks| if ranks > 1 { Ok(()) } else { Err(few()) };
    common::run("early_message", arguments.threads, enough, |world, ()| report(world, &arguments))
}

/// Measurement of one mechanism with one delay.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    program: &'static str,
    pub(crate) mechanism: &'static str,
    pub(crate) delay_us: f64,
    look_us: Spread,
    total_us: Spread,
    /// Messages that were not the one that was sent.
    pub(crate) wrong: u64,
}

fn report(world: &Communicator, arguments: &Arguments) -> Result<bool> {
    let rows = measure_all(world, arguments)?;
    if world.rank() == 0 {
        if arguments.format == Format::Table {
            let messages = count(arguments.messages, "message");
            println!("{} of {messages} each: median [p10..p90]", count(arguments.rounds, "round"));
        }
        let heads = ["mechanism", "delay µs", "look µs", "total µs", "wrong"];
        arguments.format.print(&heads, &rows, |row| {
            let Row { mechanism, delay_us, look_us, total_us, wrong, .. } = row;
            [mechanism as &dyn ToString, delay_us, look_us, total_us, wrong]
                .map(|cell| cell.to_string())
                .to_vec()
        });
    }
    Ok(rows.iter().all(|row| row.wrong == 0))
}

/// Measures every mechanism with every delay. All ranks call this, and get the same rows.
pub(crate) fn measure_all(world: &Communicator, arguments: &Arguments) -> Result<Vec<Row>> {
    // The first thing that is opened: without two ranks it is an error.
    let mut go = Mechanism::Channel(world.channel(RECEIVER, SENDER, CAPACITY as u64)?);
    let mut mechanisms = [
        ("express", Mechanism::Express(world.express(CAPACITY)?)),
        ("wide", Mechanism::Wide(world.cache_lines(CAPACITY)?)),
        ("channel", Mechanism::Channel(world.channel(SENDER, RECEIVER, CAPACITY as u64)?)),
        ("fetch", Mechanism::Fetch(world.windows(NUMBER + 8)?)),
        ("write", Mechanism::Write { windows: world.windows(8)?, received: 0 }),
    ];
    let rate = ComputeRate::calibrate();
    let kinds = mechanisms.len() * arguments.delays.len();
    let mut rounds = vec![Vec::new(); kinds];
    let mut sent = 0;
    for round in 0..arguments.rounds {
        for turn in 0..kinds {
            let kind = (round + turn) % kinds;
            // Neighbours in time have different mechanisms.
            let delay = arguments.delays[kind / mechanisms.len()];
            let (_, way) = &mut mechanisms[kind % 5];
            let steps = if delay > 0.0 { rate.steps(delay) } else { 0 };
            let numbers = sent + 1..=sent + arguments.messages as u64;
            sent = *numbers.end();
            let mut figures = [0.0; 3];
            world.barrier()?;
            match world.rank() {
                SENDER => {
                    for number in numbers {
                        go.receive(number)?;
                        way.send(number)?;
                        // As long as the receiver, once for the message and once alone: it is awake
                        // when it is permitted again.
                        compute(2 * steps);
                    }
                }
                RECEIVER => figures = receive(&mut go, way, steps, numbers)?,
                _ => {}
            }
            world.bcast(&mut figures, RECEIVER)?;
            rounds[kind].push(figures);
        }
    }
    let row = |(kind, rounds): (usize, &Vec<[f64; 3]>)| {
        let each = |figure: usize| rounds.iter().map(|round| round[figure]).collect::<Vec<_>>();
        Row {
            program: "early_message",
            mechanism: mechanisms[kind % mechanisms.len()].0,
            delay_us: arguments.delays[kind / mechanisms.len()],
            look_us: Spread::of(&each(0)),
            total_us: Spread::of(&each(1)),
            wrong: each(2).iter().sum::<f64>() as u64,
        }
    };
    Ok(rounds.iter().enumerate().map(row).collect())
}

/// Receives messages with one delay: the medians of look and total, and how many were wrong.
fn receive(
    go: &mut Mechanism,
    way: &mut Mechanism,
    steps: u64,
    numbers: impl Iterator<Item = u64>,
) -> Result<[f64; 3]> {
    let (mut looks, mut totals, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    let mut wrong = 0.0;
    for number in numbers {
        let begun = now_ns();
        compute(steps);
        alone.push(microseconds(begun, now_ns()));
        go.send(number)?;
        let permitted = now_ns();
        compute(steps);
        let looked = now_ns();
        let received = way.receive(number)?;
        let there = now_ns();
        looks.push(microseconds(looked, there));
        totals.push(microseconds(permitted, there));
        wrong += f64::from(received != number);
    }
    // The look has a reading of the clock in it, the total two; of these the computation alone has one.
    let clock_us = median(&[(); 1000].map(|()| microseconds(now_ns(), now_ns())));
    let total = median(&totals) - median(&alone) - clock_us;
    Ok([median(&looks) - clock_us, total, wrong])
}

/// Mechanism that carries numbers from one rank to another. Each is greater than the one before.
enum Mechanism {
    /// Five bytes in a word of a queue.
    Express(ExpressPort),
    /// A line of a queue.
    Wide(CacheLinePort),
    /// A word of an open channel.
    Channel(Option<ChannelEnd<u64>>),
    /// The receiver fetches it from the sender's memory as soon as it is there.
    Fetch(Windows),
    /// The sender writes it into the receiver's memory and notifies.
    Write { windows: Windows, received: u64 },
}

/// Place of a fetched number: not in the line of the number that the condition reads.
const NUMBER: u64 = 64;

impl Mechanism {
    fn send(&mut self, number: u64) -> Result<()> {
        match self {
            Mechanism::Express(port) => {
                // The receiver would notice a number of more than five bytes.
                let message = ExpressMessage::of_number(SourceName::default(), 0, number);
                port.senders[RECEIVER as usize].send(&message.unwrap_or_default())?;
            }
            Mechanism::Wide(port) => {
                let header = CacheLineHeader { source: SourceName::default(), handler: 0, tag: 0 };
                // Eight bytes are never too long.
                let message = CacheLineMessage::new(header, &number.to_le_bytes());
                port.senders[RECEIVER as usize].send(&message.unwrap_or_default())?;
            }
            Mechanism::Channel(Some(ChannelEnd::Sender(sender))) => sender.send(number)?,
            Mechanism::Channel(_) => {}
            Mechanism::Fetch(windows) => {
                windows.own.local().put_value(NUMBER, number)?;
                windows.own.local().put_value(0, number)?;
            }
            Mechanism::Write { windows, .. } => {
                windows.all[RECEIVER as usize].put_value(0, number)?;
                windows.all[RECEIVER as usize].notify()?;
            }
        }
        Ok(())
    }

    fn receive(&mut self, number: u64) -> Result<u64> {
        Ok(match self {
            Mechanism::Express(port) => port.receiver.recv()?.number(),
            Mechanism::Wide(port) => {
                port.receiver.recv()?.data().try_into().map_or(0, u64::from_le_bytes)
            }
            Mechanism::Channel(Some(ChannelEnd::Receiver(receiver))) => receiver.recv()?,
            Mechanism::Channel(_) => 0,
            Mechanism::Fetch(windows) => {
                let condition = Condition { at: 0, at_least: number };
                let sender = &windows.all[SENDER as usize];
                u64::from_le_bytes(sender.fetch_when(condition, NUMBER, [0; 8])?.wait()?)
            }
            Mechanism::Write { windows, received } => {
                *received += 1;
                windows.own.wait_for_notifications(*received, None);
                windows.own.local().get_value(0)?
            }
        })
    }
}
