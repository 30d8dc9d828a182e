//! A sparse triangular solve with dependences that are known at run time only: `tradewind run -n 2
//! -- target/release/examples/sparse_solve`, with `--matrix FILE` for a matrix of one's own.
//!
//! Each unknown depends on those that its row names, and the rows are divided among the ranks, so
//! that values have to be sent that no program can know beforehand (Rosing and Saltz, *Low Latency
//! Messages on Distributed Memory Multiprocessors*, 1995, section 4.1). With *fetches*, a row is
//! solved when the values it depends on have come: each is fetched from its owner's memory on
//! condition that the owner has got that far. With *levels*, the rows are sorted into levels that
//! depend on earlier ones only, and all ranks meet in a barrier between two levels.

#[path = "../common/mod.rs"]
mod common;
mod input;
mod matrix;
mod plan;
mod solve;
mod triangle;

use clap::Parser;
use common::{Format, Spread, count};
use input::{Input, Part};
use measure::harness::clock::{microseconds, now_ns};
use models::statistics::median;
use plan::{Mapping, Plan};
use solve::Solver;
use std::path::PathBuf;
use std::process::ExitCode;
use tradewind::{Communicator, Op, Result};

/// Solves a sparse lower-triangular system on all ranks, by conditional fetches and by levels.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Points a side of the grid; its five-point Laplacian is factored
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub(crate) grid: u64,
    /// A Matrix Market file instead of the Laplacian
    #[arg(long, value_name = "FILE", conflicts_with = "grid")]
    pub(crate) matrix: Option<PathBuf>,
    /// Part to take of the file's matrix; by default all of it if it is lower-triangular, otherwise
    /// its ILU(0) factor
    #[arg(long, value_enum, requires = "matrix")]
    pub(crate) part: Option<Part>,
    /// Division of the rows among the ranks
    #[arg(long, value_enum, default_value_t)]
    pub(crate) rows: Mapping,
    /// Rows dealt out at a time if the division is cyclic
    #[arg(long, default_value_t = 1, value_parser = common::at_least_one())]
    pub(crate) chunk: usize,
    /// Rounds; in each, both versions are measured
    #[arg(long, default_value_t = 7, value_parser = common::at_least_one())]
    pub(crate) rounds: usize,
    /// Solves of each version in a round, of which the median counts
    #[arg(long, default_value_t = 10, value_parser = common::at_least_one())]
    pub(crate) solves: usize,
    /// Format of the results
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Run this many ranks as threads of this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let solve = |world: &Communicator, input: &Input| report(world, &arguments, input);
    common::run("sparse_solve", arguments.threads, |_| arguments.read(), solve)
}

impl Arguments {
    /// The system that is to be solved, or in words why there is none.
    pub(crate) fn read(&self) -> std::result::Result<Input, String> {
        match &self.matrix {
            Some(path) => input::of_file(path, self.part),
            None => input::of_grid(self.grid as usize),
        }
    }
}

/// A way to solve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Version {
    /// By a single process, to compare with.
    Serial,
    /// Each row when its values have come.
    Fetches,
    /// Level by level.
    Levels,
}

impl Version {
    const ALL: [Version; 3] = [Version::Serial, Version::Fetches, Version::Levels];
}

/// Measurement of one version.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    program: &'static str,
    matrix: String,
    unknowns: usize,
    elements: usize,
    ranks: u32,
    pub(crate) version: Version,
    solve_us: Spread,
    /// Values that a rank got from another one, in a solve.
    pub(crate) fetches: u64,
    /// Levels of the matrix.
    pub(crate) levels: usize,
    /// Barriers in a solve.
    barriers: usize,
    /// Unknowns that are not, bit for bit, those of the serial solution.
    pub(crate) wrong: u64,
}

fn report(world: &Communicator, arguments: &Arguments, input: &Input) -> Result<bool> {
    let rows = measure_all(world, arguments, input)?;
    if world.rank() == 0 {
        if arguments.format == Format::Table {
            let unknowns = input.triangle.rows();
            let elements = input.triangle.elements();
            println!("{}", input.name);
            let unknowns = count(unknowns, "unknown");
            let elements = count(elements, "element");
            println!(
                "{unknowns}, {elements} below the diagonal, {}",
                count(world.size() as usize, "rank")
            );
            let (rounds, solves) =
                (count(arguments.rounds, "round"), count(arguments.solves, "solve"));
            println!("{rounds} of {solves}: median [p10..p90]");
        }
        arguments.format.print(
            &["version", "µs/solve", "fetches", "levels", "barriers", "wrong"],
            &rows,
            |row| {
                let counts = [row.fetches, row.levels as u64, row.barriers as u64, row.wrong]
                    .map(|count| count.to_string());
                let begin =
                    vec![format!("{:?}", row.version).to_lowercase(), row.solve_us.to_string()];
                [begin, counts.to_vec()].concat()
            },
        );
    }
    Ok(rows.iter().all(|row| row.wrong == 0))
}

/// Measures the versions in turn. All ranks call this, and get the same rows.
pub(crate) fn measure_all(
    world: &Communicator,
    arguments: &Arguments,
    input: &Input,
) -> Result<Vec<Row>> {
    let triangle = &input.triangle;
    let ranks = world.size() as usize;
    let chunk = arguments.rows.chunk(triangle.rows(), ranks, arguments.chunk);
    let plan = Plan::new(triangle, ranks, world.rank() as usize, chunk);
    let mut experiment = Experiment {
        world,
        input,
        fetching: Solver::new(world, &plan)?,
        levelled: Solver::new(world, &plan)?,
        right_hand_side: vec![0.0; triangle.rows()],
        expected: vec![0.0; triangle.rows()],
        solve: 0,
    };
    let mut rounds = vec![(Vec::new(), 0); Version::ALL.len()];
    for round in 0..arguments.rounds {
        for turn in 0..Version::ALL.len() {
            // Each version is the first one in its turn.
            let index = (round + turn) % Version::ALL.len();
            let (time, wrong) = experiment.round(Version::ALL[index], arguments.solves)?;
            rounds[index].0.push(time);
            rounds[index].1 += wrong;
        }
    }
    let mut fetches = [0];
    world.allreduce(&[plan.fetches.len() as u64], &mut fetches, Op::Sum)?;
    let row = |(version, (times, wrong)): (Version, (Vec<f64>, u64))| Row {
        program: "sparse_solve",
        matrix: input.name.clone(),
        unknowns: triangle.rows(),
        elements: triangle.elements(),
        ranks: world.size(),
        version,
        solve_us: Spread::of(&times),
        fetches: if version == Version::Serial { 0 } else { fetches[0] },
        levels: plan.levels.len(),
        barriers: if version == Version::Levels { plan.levels.len().saturating_sub(1) } else { 0 },
        wrong,
    };
    Ok(Version::ALL.into_iter().zip(rounds).map(row).collect())
}

/// Some number between -1 and 1, another one in every solve.
fn right_hand_side(row: usize, solve: usize) -> f64 {
    (((row * 131 + solve * 7) % 1009) as f64 - 504.0) / 505.0
}

/// One rank's part of all solves.
struct Experiment<'a> {
    world: &'a Communicator,
    input: &'a Input,
    fetching: Solver<'a>,
    levelled: Solver<'a>,
    right_hand_side: Vec<f64>,
    /// The serial solution of the last solve.
    expected: Vec<f64>,
    solve: usize,
}

impl Experiment<'_> {
    /// So many solves: the median of their times, and how many unknowns of all ranks were wrong.
    fn round(&mut self, version: Version, solves: usize) -> Result<(f64, u64)> {
        let (mut times, mut wrong) = (Vec::new(), 0);
        for _ in 0..solves {
            let serial_us = self.solve_alone();
            let side = &self.right_hand_side;
            let expected = &self.expected;
            let (time, different) = match version {
                Version::Serial => (serial_us, 0),
                Version::Fetches => {
                    together(self.world, &mut self.fetching, side, expected, Solver::by_fetches)?
                }
                Version::Levels => {
                    together(self.world, &mut self.levelled, side, expected, Solver::by_levels)?
                }
            };
            times.push(time);
            wrong += different;
        }
        let mut all = [0];
        self.world.allreduce(&[wrong], &mut all, Op::Sum)?;
        Ok((median(&times), all[0]))
    }

    /// Another right-hand side and its serial solution, by every rank for itself; microseconds.
    fn solve_alone(&mut self) -> f64 {
        self.solve += 1;
        for (row, value) in self.right_hand_side.iter_mut().enumerate() {
            *value = right_hand_side(row, self.solve);
        }
        let begun = now_ns();
        self.input.triangle.solve(&self.right_hand_side, &mut self.expected);
        microseconds(begun, now_ns())
    }
}

/// One solve by all ranks: microseconds from when the first begins until the last has finished, and
/// how many of this rank's unknowns are wrong.
fn together<'a>(
    world: &Communicator,
    solver: &mut Solver<'a>,
    right_hand_side: &[f64],
    expected: &[f64],
    solve: impl FnOnce(&mut Solver<'a>) -> Result<()>,
) -> Result<(f64, u64)> {
    solver.prepare(right_hand_side);
    world.barrier()?;
    let begun = now_ns();
    solve(solver)?;
    let mut all = [0_i64; 2];
    world.allreduce(&[-begun, now_ns()], &mut all, Op::Maximum)?;
    Ok((microseconds(-all[0], all[1]), solver.wrong(expected)))
}
