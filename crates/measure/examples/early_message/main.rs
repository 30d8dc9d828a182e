//! Cost of a message that arrives before it is needed: `tradewind run -n 2 --
//! target/release/examples/early_message`.
//!
//! In most measurements of latency the receiver has nothing to do but wait. In a program it
//! computes, and the message comes meanwhile. Where a message interrupts the receiver, that makes
//! it dearer (Rosing and Saltz, *Low Latency Messages on Distributed Memory Multiprocessors*, 1995,
//! section 4); here it should make it cheaper.
//!
//! Rank 1 permits rank 0 to send, computes for a while, and only then looks for the message.
//! There are two figures for every mechanism and delay: the *look*, which is what the receive
//! itself takes, and the *total*, which is everything from the telling until the message is there
//! less the computation alone, measured in turn. Other ranks look on.

#[path = "../common/mod.rs"]
mod common;
mod ways;

use clap::Parser;
use common::{Format, Spread, count};
use measure::harness::clock::{microseconds, now_ns};
use measure::harness::computation::{ComputeRate, compute};
use std::process::ExitCode;
use tradewind::{Communicator, Result};
use ways::{Ends, Mechanism, RECEIVER, SENDER, Way};

/// Measures what a message costs that arrives before it is needed.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Microseconds that the receiver computes before it looks, with commas between them
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,5,10,20,50", value_parser = delay)]
    pub(crate) delays: Vec<f64>,
    /// Only this mechanism; may be given several times
    #[arg(long = "mechanism", value_enum, id = "MECHANISM")]
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Rounds; in each, every mechanism is measured with every delay
    #[arg(long, default_value_t = 7, value_parser = common::at_least_one())]
    pub(crate) rounds: usize,
    /// Messages of each kind in a round, of which the middle half counts
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
    let enough = |ranks| {
        if ranks > 1 {
            Ok(())
        } else {
            Err("it needs at least 2 ranks: run it with -n 2 or --threads 2".to_owned())
        }
    };
    common::run("early_message", arguments.threads, enough, |world, ()| report(world, &arguments))
}

/// Measurement of one mechanism with one delay.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    program: &'static str,
    pub(crate) mechanism: Mechanism,
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
            let (rounds, messages) =
                (count(arguments.rounds, "round"), count(arguments.messages, "message"));
            println!("{rounds} of {messages} each: median [p10..p90]");
        }
        let heads = ["mechanism", "delay µs", "look µs", "total µs", "wrong"];
        arguments.format.print(&heads, &rows, |row| {
            let figures = [row.look_us, row.total_us].map(|figure| figure.to_string());
            let begin = vec![row.mechanism.name().to_owned(), row.delay_us.to_string()];
            [begin, figures.to_vec(), vec![row.wrong.to_string()]].concat()
        });
    }
    Ok(rows.iter().all(|row| row.wrong == 0))
}

/// Measures every mechanism with every delay. All ranks call this, and get the same rows.
pub(crate) fn measure_all(world: &Communicator, arguments: &Arguments) -> Result<Vec<Row>> {
    let mut experiment = Experiment {
        world,
        // The first thing that is opened: without two ranks it is an error.
        go: Ends::open(world, RECEIVER, SENDER)?,
        rate: ComputeRate::calibrate(),
        clock_us: clock_us(),
        sent: 0,
    };
    let chosen = |mechanism: &Mechanism| {
        arguments.mechanisms.is_empty() || arguments.mechanisms.contains(mechanism)
    };
    let mechanisms: Vec<_> = Mechanism::ALL.into_iter().filter(chosen).collect();
    let mut ways = mechanisms
        .iter()
        .map(|mechanism| ways::open(world, *mechanism))
        .collect::<Result<Vec<_>>>()?;
    let kinds = mechanisms.len() * arguments.delays.len();
    let mut rounds = vec![Vec::new(); kinds];
    for round in 0..arguments.rounds {
        for turn in 0..kinds {
            let kind = (round + turn) % kinds;
            // Neighbours in time have different mechanisms.
            let (way, delay) =
                (&mut ways[kind % mechanisms.len()], arguments.delays[kind / mechanisms.len()]);
            rounds[kind].push(experiment.round(&mut **way, delay, arguments.messages)?);
        }
    }
    let row = |(kind, rounds): (usize, Vec<[f64; 3]>)| {
        let each = |figure: usize| {
            Spread::of(&rounds.iter().map(|round| round[figure]).collect::<Vec<_>>())
        };
        Row {
            program: "early_message",
            mechanism: mechanisms[kind % mechanisms.len()],
            delay_us: arguments.delays[kind / mechanisms.len()],
            look_us: each(0),
            total_us: each(1),
            wrong: rounds.iter().map(|round| round[2] as u64).sum(),
        }
    };
    let mut rows: Vec<Row> = rounds.into_iter().enumerate().map(row).collect();
    rows.sort_by_key(|row| mechanisms.iter().position(|mechanism| *mechanism == row.mechanism));
    Ok(rows)
}

/// Time to read the clock, which is part of every poll.
fn clock_us() -> f64 {
    let readings = (0..1000).map(|_| microseconds(now_ns(), now_ns()));
    middle(&mut readings.collect::<Vec<_>>())
}

/// The mean of the middle half: as steady as the median, and finer where the clock ticks in steps
/// of a message's cost.
fn middle(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let quarter = values.len() / 4;
    let half = &values[quarter..values.len() - quarter];
    half.iter().sum::<f64>() / half.len().max(1) as f64
}

/// One rank's part.
struct Experiment<'w> {
    world: &'w Communicator,
    /// Permission of rank 1 for the send of rank 0.
    go: Ends,
    rate: ComputeRate,
    clock_us: f64,
    /// Number of messages; each carries its number.
    sent: u64,
}

impl Experiment<'_> {
    /// So many messages with one delay: look, total, and how many were wrong. The same on all
    /// ranks.
    fn round(&mut self, way: &mut dyn Way, delay_us: f64, messages: usize) -> Result<[f64; 3]> {
        let steps = if delay_us > 0.0 { self.rate.steps(delay_us) } else { 0 };
        let mut figures = [0.0; 3];
        self.world.barrier()?;
        match self.world.rank() {
            SENDER => self.send(way, steps, messages)?,
            RECEIVER => figures = self.receive(way, steps, messages)?,
            _ => {}
        }
        self.sent += messages as u64;
        self.world.bcast(&mut figures, RECEIVER)?;
        Ok(figures)
    }

    fn send(&mut self, way: &mut dyn Way, steps: u64, messages: usize) -> Result<()> {
        for _ in 0..messages {
            let number = self.go.receive()?;
            way.send(number)?;
            // As long as the receiver, once for the message and once alone: it is awake when it is
            // told again.
            compute(2 * steps);
        }
        Ok(())
    }

    fn receive(&mut self, way: &mut dyn Way, steps: u64, messages: usize) -> Result<[f64; 3]> {
        let (mut looks, mut totals, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        let mut wrong = 0.0;
        for message in 0..messages as u64 {
            let number = self.sent + message + 1;
            let begun = now_ns();
            compute(steps);
            alone.push(microseconds(begun, now_ns()));
            self.go.send(number)?;
            let told = now_ns();
            compute(steps);
            let looked = now_ns();
            let received = way.receive()?;
            let there = now_ns();
            looks.push(microseconds(looked, there));
            totals.push(microseconds(told, there));
            wrong += f64::from(received != number);
        }
        // The look has a reading of the clock in it, the total two; of these the computation alone
        // has one.
        let total = middle(&mut totals) - middle(&mut alone) - self.clock_us;
        Ok([middle(&mut looks) - self.clock_us, total, wrong])
    }
}
