//! A sparse triangular solve with dependences that are known at run time only: `tradewind run -n 2 --
//! target/release/examples/sparse_solve`.
//!
//! Each unknown depends on those that its row names, and the rows are dealt out among the ranks, so that
//! values have to be sent that no program can know beforehand (Rosing and Saltz, *Low Latency Messages on
//! Distributed Memory Multiprocessors*, 1995, section 4.1). With *fetches*, a row is solved when the values
//! it depends on have come: each is fetched from its owner's memory on condition that the owner has got
//! that far. With *levels*, the rows are sorted into levels that depend on earlier ones only, and all ranks
//! meet in a barrier after each level, so that every fetch completes at once.

#[path = "common/mod.rs"]
mod common;

use clap::Parser;
use common::{Format, Spread, count};
use measure::harness::clock::{microseconds, now_ns};
use queues::window::Condition;
use std::process::ExitCode;
use tradewind::messages::Windows;
use tradewind::{Communicator, Op, Result};

/// Solves a sparse lower-triangular system on all ranks, by conditional fetches and by levels.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Arguments {
    /// Unknowns; each depends on a few of those before it
    #[arg(long, default_value_t = 10_000, value_parser = common::at_least_one())]
    pub(crate) unknowns: usize,
    /// Rows that a rank gets at a time
    #[arg(long, default_value_t = 16, value_parser = common::at_least_one())]
    pub(crate) chunk: usize,
    /// Solves by each version, in turns
    #[arg(long, default_value_t = 50, value_parser = common::at_least_one())]
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
    let solve = |world: &Communicator, (): &()| report(world, &arguments);
    common::run("sparse_solve", arguments.threads, |_| Ok(()), solve)
}

/// Measurement of one version.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Row {
    program: &'static str,
    pub(crate) version: &'static str,
    solve_us: Spread,
    /// Values that ranks got from each other in a solve.
    pub(crate) fetches: u64,
    /// Levels of the matrix.
    pub(crate) levels: usize,
    /// Unknowns that are not, bit for bit, those of the serial solution.
    pub(crate) wrong: u64,
}

fn report(world: &Communicator, arguments: &Arguments) -> Result<bool> {
    let rows = measure_all(world, arguments)?;
    if world.rank() == 0 {
        if arguments.format == Format::Table {
            let ranks = count(world.size() as usize, "rank");
            let solves = count(arguments.solves, "solve");
            println!(
                "{}, {ranks}, {solves}: median [p10..p90]",
                count(arguments.unknowns, "unknown")
            );
        }
        let heads = ["version", "µs/solve", "fetches", "levels", "wrong"];
        arguments.format.print(&heads, &rows, |row| {
            let Row { version, solve_us, fetches, levels, wrong, .. } = row;
            [version as &dyn ToString, solve_us, fetches, levels, wrong]
                .map(|cell| cell.to_string())
                .to_vec()
        });
    }
    Ok(rows.iter().all(|row| row.wrong == 0))
}

/// Measures both versions in turns. All ranks call this, and get the same rows.
pub(crate) fn measure_all(world: &Communicator, arguments: &Arguments) -> Result<Vec<Row>> {
    let matrix = Triangle::invented(arguments.unknowns);
    let levels = matrix.levels();
    let last = levels.iter().copied().max().unwrap_or(0);
    let (rank, ranks) = (world.rank() as usize, world.size() as usize);
    let owner = |row: usize| row / arguments.chunk % ranks;
    let mut own: Vec<usize> = (0..arguments.unknowns).filter(|&row| owner(row) == rank).collect();
    // By levels: of all rows that are not solved, one of the lowest level has all its values and is the
    // next of its rank, so no ranks wait for each other in a circle.
    own.sort_by_key(|&row| (levels[row], row));
    let mut fetched: Vec<usize> = own.iter().flat_map(|&row| matrix.columns(row)).collect();
    fetched.retain(|&column| owner(column) != rank);
    fetched.sort_unstable();
    fetched.dedup();
    let mut fetches = [0];
    world.allreduce(&[fetched.len() as u64], &mut fetches, Op::Sum)?;

    // A line for every unknown, of which its owner writes the solve and then the value.
    let windows = world.windows(arguments.unknowns as u64 * LINE)?;
    let part = Part { matrix: &matrix, windows: &windows, owner: &owner };
    let versions = ["fetches", "levels"];
    let mut found = versions.map(|_| (Vec::new(), 0));
    let mut solve = 0;
    for _ in 0..arguments.solves {
        for (version, (times, wrong)) in versions.iter().zip(&mut found) {
            solve += 1;
            let expected = matrix.solve(solve);
            let mut known = vec![f64::NAN; arguments.unknowns];
            world.barrier()?;
            let begun = now_ns();
            if *version == "fetches" {
                own.iter().try_for_each(|&row| part.step(row, solve, &mut known))?;
            } else {
                for level in 0..=last {
                    let rows = own.iter().filter(|&&row| levels[row] == level);
                    rows.copied().try_for_each(|row| part.step(row, solve, &mut known))?;
                    world.barrier()?;
                }
            }
            // From when the first rank begins until the last one has finished.
            let mut all = [0_i64; 2];
            world.allreduce(&[-begun, now_ns()], &mut all, Op::Maximum)?;
            times.push(microseconds(-all[0], all[1]));
            let differs = |row: &&usize| known[**row].to_bits() != expected[**row].to_bits();
            let mut differing = [0];
            world.allreduce(
                &[own.iter().filter(differs).count() as u64],
                &mut differing,
                Op::Sum,
            )?;
            *wrong += differing[0];
        }
    }
    let row = |(version, (times, wrong)): (&'static str, (Vec<f64>, u64))| Row {
        program: "sparse_solve",
        version,
        solve_us: Spread::of(&times),
        fetches: fetches[0],
        levels: last + 1,
        wrong,
    };
    Ok(versions.into_iter().zip(found).map(row).collect())
}

/// Bytes of a published unknown: the number of the solve that it is of, then the value. They lie in one
/// line, so that a rank that reads the number has the value too.
const LINE: u64 = 16;
const VALUE: u64 = 8;

/// One rank's part of the solves.
struct Part<'a> {
    matrix: &'a Triangle,
    windows: &'a Windows,
    owner: &'a dyn Fn(usize) -> usize,
}

impl Part<'_> {
    /// Fetches what a row needs, each value on condition that it is of this solve, solves the row, and
    /// publishes its unknown.
    fn step(&self, row: usize, solve: u64, known: &mut [f64]) -> Result<()> {
        for column in self.matrix.columns(row) {
            if known[column].is_nan() {
                let at = column as u64 * LINE;
                let condition = Condition { at, at_least: solve };
                let window = &self.windows.all[(self.owner)(column)];
                let value = window.fetch_when(condition, at + VALUE, [0; 8])?.wait()?;
                known[column] = f64::from_le_bytes(value);
            }
        }
        known[row] = self.matrix.solve_row(row, solve, known);
        let (window, at) = (self.windows.own.local(), row as u64 * LINE);
        window.put_value(at + VALUE, known[row])?;
        Ok(window.put_value(at, solve)?)
    }
}

/// A lower-triangular matrix by rows, with ones on the main diagonal.
struct Triangle {
    rows: Vec<Vec<(usize, f64)>>,
}

impl Triangle {
    /// The same matrix on every rank: up to four elements in a row, at invented places.
    fn invented(unknowns: usize) -> Self {
        // Knuth's generator for 64 bits.
        let mut state = 1_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut element = |row: usize| (next(row), next(1000) as f64 / 4000.0);
        let row = |row: usize| match row {
            0 => Vec::new(),
            row => (0..row % 5).map(|_| element(row)).collect(),
        };
        Triangle { rows: (0..unknowns).map(row).collect() }
    }

    /// The unknowns that that of a row depends on.
    fn columns(&self, row: usize) -> impl Iterator<Item = usize> {
        self.rows[row].iter().map(|(column, _)| *column)
    }

    /// The unknown of a row, when those that it depends on are known. Always the same operations in the
    /// same order; the right-hand side is another one in every solve.
    fn solve_row(&self, row: usize, solve: u64, known: &[f64]) -> f64 {
        let right_hand_side = ((row as u64 * 131 + solve * 7) % 1009) as f64 - 504.0;
        let products = self.rows[row].iter().map(|&(column, value)| value * known[column]);
        right_hand_side - products.sum::<f64>()
    }

    /// The solution by a single process.
    fn solve(&self, solve: u64) -> Vec<f64> {
        let mut known = vec![f64::NAN; self.rows.len()];
        for row in 0..self.rows.len() {
            known[row] = self.solve_row(row, solve, &known);
        }
        known
    }

    /// The level of each row: one more than the highest that it depends on.
    fn levels(&self) -> Vec<usize> {
        let mut levels: Vec<usize> = Vec::new();
        for row in 0..self.rows.len() {
            levels.push(self.columns(row).map(|column| levels[column] + 1).max().unwrap_or(0));
        }
        levels
    }
}
