//! A solve so fine-grained that a message carries one number: `tradewind run -n 2 --
//! target/release/examples/banded_solve`.
//!
//! The pipelined solve of a banded lower-triangular system in four versions (Rosing and Saltz, *Low
//! Latency Messages on Distributed Memory Multiprocessors*, 1995, section 4). The grid has one
//! column a rank. Each rank computes its column from top to bottom; for every value it needs a
//! product from the rank before it, and sends one to the rank after it. Between two messages lie at
//! most four floating-point operations.
//!
//! A solve lasts from when the first rank begins until the last has finished. It is divided into
//! *filling*, until the last rank has its first product; *computation*, the last rank's same loop
//! without communication, measured in turn with the solves; and *communication*, what remains.
//! Between nodes that share a clock, as virtual ones do, `message` and `channel` are measured.
//! `bench/c/banded_solve.c` is the same program over MPI.

#[path = "../common/mod.rs"]
mod common;
mod matrix;
mod versions;

use clap::Parser;
use common::{Format, Spread, count};
use matrix::{Column, serial};
use measure::harness::clock::{microseconds, now_ns};
use models::statistics::median;
use std::process::ExitCode;
use tradewind::{Communicator, Op, Result};
use versions::{Alone, Fetch, Message, SendReceive, Stage, Version};

/// Solves a banded lower-triangular system in a pipeline of ranks, and divides the time into its
/// parts.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Rows of the grid, which are the iterations of each rank; the grid has a column for each rank
    #[arg(long, default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) rows: u64,
    /// Rounds; in each, all versions are measured
    #[arg(long, default_value_t = 7, value_parser = common::at_least_one())]
    pub(crate) rounds: usize,
    /// Solves of each version in a round, of which the median counts
    #[arg(long, default_value_t = 20, value_parser = common::at_least_one())]
    pub(crate) solves: usize,
    /// Messages or values that a queue or a channel holds, a power of two
    #[arg(long, default_value_t = 1024)]
    pub(crate) capacity: usize,
    /// Only this version; may be given several times
    #[arg(long = "version", value_enum, id = "VERSION")]
    pub(crate) versions: Vec<Version>,
    /// Format of the results
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Run this many ranks as threads of this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    common::run(
        "banded_solve",
        arguments.threads,
        |_| Ok(()),
        |world, ()| report(world, &arguments),
    )
}

/// Measurement of one version.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    program: &'static str,
    pub(crate) version: Version,
    ranks: u32,
    rows: u64,
    /// Of an iteration.
    computation_us: Spread,
    communication_us: Spread,
    /// Of a whole solve.
    fill_us: Spread,
    /// Values that are not, bit for bit, those of the serial solution.
    pub(crate) wrong: u64,
}

fn report(world: &Communicator, arguments: &Arguments) -> Result<bool> {
    let rows = measure_all(world, arguments)?;
    if world.rank() == 0 {
        if arguments.format == Format::Table {
            let (rows, ranks) =
                (count(arguments.rows as usize, "row"), count(world.size() as usize, "rank"));
            let (rounds, solves) =
                (count(arguments.rounds, "round"), count(arguments.solves, "solve"));
            println!("{rows} on {ranks}, {rounds} of {solves}: median [p10..p90]");
        }
        let heads = [
            "version",
            "computation µs/iteration",
            "communication µs/iteration",
            "filling µs/solve",
            "wrong",
        ];
        arguments.format.print(&heads, &rows, |row| {
            let figures = [row.computation_us, row.communication_us, row.fill_us]
                .map(|figure| figure.to_string());
            [vec![row.version.name().to_owned()], figures.to_vec(), vec![row.wrong.to_string()]]
                .concat()
        });
    }
    Ok(rows.iter().all(|row| row.wrong == 0))
}

/// Measures the versions in turn. All ranks call this, and get the same rows.
pub(crate) fn measure_all(world: &Communicator, arguments: &Arguments) -> Result<Vec<Row>> {
    let all = [Version::SendReceive, Version::Message, Version::Channel, Version::Fetch];
    let chosen =
        |version: &Version| arguments.versions.is_empty() || arguments.versions.contains(version);
    let is_there = |version: &Version| world.nodes() == 1 || version.crosses_nodes();
    let versions: Vec<_> = all.into_iter().filter(chosen).filter(is_there).collect();
    let mut solver = Solver::new(world, arguments.rows as usize);
    let mut stages = Stages::open(world, arguments, &versions)?;
    let mut rounds = vec![Vec::new(); versions.len()];
    let mut wrong = vec![0; versions.len()];
    for round in 0..arguments.rounds {
        for turn in 0..versions.len() {
            // Each version is the first one in its turn.
            let index = (round + turn) % versions.len();
            let (times, different) = stages.round(&mut solver, index, arguments.solves)?;
            rounds[index].push(times);
            wrong[index] += different;
        }
    }
    let iterations = arguments.rows as f64;
    let row = |((version, times), wrong): ((Version, Vec<Times>), u64)| {
        let each = |of: fn(&Times) -> f64| Spread::of(&times.iter().map(of).collect::<Vec<_>>());
        let per_iteration = |of: fn(&Times) -> f64| {
            times.iter().map(|times| of(times) / iterations).collect::<Vec<_>>()
        };
        Row {
            program: "banded_solve",
            version,
            ranks: world.size(),
            rows: arguments.rows,
            computation_us: Spread::of(&per_iteration(|times| times.computation_us)),
            communication_us: Spread::of(&per_iteration(Times::communication_us)),
            fill_us: each(|times| times.fill_us),
            wrong,
        }
    };
    Ok(versions.into_iter().zip(rounds).zip(wrong).map(row).collect())
}

/// Parts of a solve's time.
#[derive(Clone, Copy, Debug)]
struct Times {
    total_us: f64,
    fill_us: f64,
    computation_us: f64,
}

impl Times {
    fn communication_us(&self) -> f64 {
        self.total_us - self.fill_us - self.computation_us
    }
}

/// This rank's place in each version's pipeline, open for the whole computation.
struct Stages(Vec<Box<dyn Pipelined>>);

/// A place in the pipeline of a version.
trait Pipelined {
    /// So many solves; see [`Solver::round`].
    fn round(&mut self, solver: &mut Solver, solves: usize) -> Result<(Times, u64)>;
}

impl<S: Stage> Pipelined for S {
    fn round(&mut self, solver: &mut Solver, solves: usize) -> Result<(Times, u64)> {
        solver.round(self, solves)
    }
}

impl Stages {
    fn open(world: &Communicator, arguments: &Arguments, versions: &[Version]) -> Result<Self> {
        let open = |version: &Version| -> Result<Box<dyn Pipelined>> {
            Ok(match version {
                Version::SendReceive => Box::new(SendReceive::open(world)?),
                Version::Message => Box::new(Message::open(world, arguments.capacity)?),
                Version::Channel => Box::new(world.pipeline::<f64>(arguments.capacity as u64)?),
                Version::Fetch => Box::new(Fetch::open(world, arguments.rows)?),
            })
        };
        Ok(Stages(versions.iter().map(open).collect::<Result<_>>()?))
    }

    fn round(
        &mut self,
        solver: &mut Solver,
        version: usize,
        solves: usize,
    ) -> Result<(Times, u64)> {
        self.0[version].round(solver, solves)
    }
}

/// One rank's part of all solves.
struct Solver<'w> {
    world: &'w Communicator,
    column: Column,
    /// Number of solves; each has another right-hand side.
    solve: usize,
}

impl<'w> Solver<'w> {
    fn new(world: &'w Communicator, rows: usize) -> Self {
        Solver { world, column: Column::new(world.rank() as usize, rows), solve: 0 }
    }

    /// So many solves; the medians of their parts, and how many values of all ranks are wrong.
    fn round(&mut self, stage: &mut impl Stage, solves: usize) -> Result<(Times, u64)> {
        let (mut totals, mut fills, mut computations) = (Vec::new(), Vec::new(), Vec::new());
        let mut wrong = 0;
        for _ in 0..solves {
            self.solve += 1;
            let rank = self.world.rank() as usize;
            self.column.prepare(rank, self.solve);
            let alone = self.timed(&mut Alone::new())?;
            self.column.prepare(rank, self.solve);
            let together = self.timed(stage)?;
            computations.push(alone.last_us());
            totals.push(together.total_us());
            fills.push(together.fill_us());
            wrong += self.wrong();
        }
        let mut all = [0];
        self.world.allreduce(&[wrong], &mut all, Op::Sum)?;
        let times = Times {
            total_us: median(&totals),
            fill_us: median(&fills),
            computation_us: median(&computations),
        };
        Ok((times, all[0]))
    }

    /// One solve, begun by all ranks together; its moments on the ranks that count.
    fn timed(&mut self, stage: &mut impl Stage) -> Result<Moments> {
        let rank = self.world.rank();
        let size = self.world.size();
        self.world.barrier()?;
        let begun = now_ns();
        let filled = self.sweep(stage)?;
        let ended = now_ns();
        let first = rank == 0;
        let last = rank + 1 == size;
        let mine = [(first, begun), (last, begun), (last, filled), (last, ended)];
        let mut all = [0_i64; 4];
        self.world.allreduce(
            &mine.map(|(counts, moment)| if counts { moment } else { i64::MIN }),
            &mut all,
            Op::Maximum,
        )?;
        let [first_begun, last_begun, filled, ended] = all;
        Ok(Moments { first_begun, last_begun, filled, ended })
    }

    /// The loop itself, which is this rank's column from top to bottom. When it had the first
    /// product.
    #[inline(never)]
    fn sweep<S: Stage>(&mut self, stage: &mut S) -> Result<i64> {
        let first = self.world.rank() == 0;
        let last = self.world.rank() + 1 == self.world.size();
        let Column { across, down, right_hand_side, solution } = &mut self.column;
        let mut filled = 0;
        let mut above = 0.0;
        let coefficients = across.iter().zip(down.iter());
        for (row, ((solution, right_hand_side), (across, down))) in
            solution.iter_mut().zip(right_hand_side.iter()).zip(coefficients).enumerate()
        {
            let product = if first { 0.0 } else { stage.receive()? };
            if row == 0 {
                filled = now_ns();
            }
            above = right_hand_side - product - down * above;
            *solution = above;
            if !last {
                stage.send(across * above)?;
            }
        }
        Ok(filled)
    }

    /// Number of this rank's values that differ from the serial solution.
    fn wrong(&self) -> u64 {
        let expected = serial(self.world.rank() as usize, self.column.solution.len(), self.solve);
        let pairs = self.column.solution.iter().zip(&expected);
        pairs.filter(|(mine, expected)| mine.to_bits() != expected.to_bits()).count() as u64
    }
}

/// When what happened, in nanoseconds of a clock that all ranks share.
struct Moments {
    first_begun: i64,
    last_begun: i64,
    filled: i64,
    ended: i64,
}

impl Moments {
    fn total_us(&self) -> f64 {
        microseconds(self.first_begun, self.ended)
    }

    /// Also what the last rank began later than the first.
    fn fill_us(&self) -> f64 {
        microseconds(self.first_begun, self.filled)
    }

    /// The last rank's loop by itself.
    fn last_us(&self) -> f64 {
        microseconds(self.last_begun, self.ended)
    }
}
