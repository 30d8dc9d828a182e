//! Heat spreading over a plate: `tradewind run -n 4 -- target/release/examples/heat`, or alone with
//! `--threads 4`.
//!
//! Explicit steps of the five-point stencil on a grid of cells that is divided into one tile a
//! rank. In every step the tiles exchange their rims with a nonblocking neighbour collective, and
//! while that goes on each rank computes the cells that need no rim. Every cell is computed by the
//! same expression wherever it lies, so that the result is that of a single process, bit for bit;
//! the program checks it.

#[path = "common/ranks.rs"]
mod ranks;

use clap::Parser;
use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use tradewind::balanced_dimensions;
use tradewind::{Communicator, Op, Result};

/// The share of the difference to its neighbours that a cell takes over in one step; above 1/4 the
/// steps would not be stable.
const RATE: f64 = 0.2;
/// The temperature at the upper edge of the plate; the other edges, and everything at the start,
/// are at 0.
const HOT: f64 = 100.0;

/// Heat spreads over a plate from its hot upper edge.
#[derive(Clone, Debug, Parser)]
pub(crate) struct Plate {
    /// Rows of cells
    #[arg(long, default_value_t = 1024)]
    pub(crate) rows: usize,
    /// Columns of cells
    #[arg(long, default_value_t = 1024)]
    pub(crate) columns: usize,
    /// Steps of time
    #[arg(long, default_value_t = 200)]
    pub(crate) steps: u32,
    /// Run this many ranks as threads of this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
}

fn main() -> ExitCode {
    let plate = Plate::parse();
    ranks::run(
        "heat",
        plate.threads,
        |ranks| plate.divide(ranks),
        |world, grid| report(world, &plate, *grid),
    )
}

impl Plate {
    /// Ranks in a column and in a row of tiles.
    pub(crate) fn divide(&self, ranks: u32) -> std::result::Result<[u32; 2], String> {
        let dimensions = balanced_dimensions(ranks, 2).map_err(|error| error.to_string())?;
        let grid = [dimensions[0], dimensions[1]];
        if self.rows < grid[0] as usize || self.columns < grid[1] as usize {
            let Plate { rows, columns, .. } = self;
            let [down, across] = grid;
            return Err(format!(
                "{rows} × {columns} cells do not divide into {down} × {across} tiles: use fewer ranks or a larger plate"
            ));
        }
        Ok(grid)
    }
}

fn report(world: &Communicator, plate: &Plate, grid: [u32; 2]) -> Result<bool> {
    let Outcome { mean, wrong, times } = solve(world, plate, grid)?;
    if world.rank() == 0 {
        let Plate { rows, columns, steps, .. } = plate;
        let share = |part: Duration| {
            100.0 * part.as_secs_f64() / times.total.as_secs_f64().max(f64::MIN_POSITIVE)
        };
        println!("{rows} × {columns} cells, {steps} steps, {} × {} ranks", grid[0], grid[1]);
        println!(
            "mean temperature {mean:.6}; {wrong} cells differ from the solution of a single process"
        );
        println!(
            "{:.3} s: {:.1} % computing, {:.1} % starting the exchange, {:.1} % waiting for it",
            times.total.as_secs_f64(),
            share(times.computing),
            share(times.starting),
            share(times.waiting),
        );
    }
    Ok(wrong == 0)
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The mean temperature.
    pub(crate) mean: f64,
    /// Cells of all ranks that are not, bit for bit, those of the serial solution.
    pub(crate) wrong: u64,
    /// Times of this rank.
    pub(crate) times: Times,
}

/// Time of a run by activity.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    total: Duration,
    computing: Duration,
    starting: Duration,
    waiting: Duration,
}

/// Solves the plate on all ranks together, one tile each, and compares the result with the serial
/// one.
pub(crate) fn solve(world: &Communicator, plate: &Plate, grid: [u32; 2]) -> Result<Outcome> {
    let row = world.rank() / grid[1];
    let column = world.rank() % grid[1];
    let rows = share(plate.rows, grid[0], row);
    let columns = share(plate.columns, grid[1], column);
    let mut tile = Tile::new(rows.len(), columns.len(), row == 0);
    let times = tile.advance(world, grid, plate)?;

    let mut serial = vec![0.0; plate.rows * plate.columns];
    if world.rank() == 0 {
        serial = Tile::alone(plate).cells();
    }
    world.bcast(&mut serial, 0)?;
    let expected = rows.flat_map(|row| &serial[row * plate.columns..][columns.clone()]);
    let wrong = tile
        .cells()
        .iter()
        .zip(expected)
        .filter(|(mine, serial)| mine.to_bits() != serial.to_bits())
        .count();
    let mut total = [0];
    world.allreduce(&[wrong as u64], &mut total, Op::Sum)?;
    let mean = serial.iter().sum::<f64>() / serial.len().max(1) as f64;
    Ok(Outcome { mean, wrong: total[0], times })
}

/// The part of `cells` cells that belongs to number `index` of `parts`: as equal as they can be.
fn share(cells: usize, parts: u32, index: u32) -> Range<usize> {
    let at = |index: u32| cells * index as usize / parts as usize;
    at(index)..at(index + 1)
}

/// A rank's cells with a rim of one cell around them: a neighbour's, or the edge of the plate.
struct Tile {
    rows: usize,
    columns: usize,
    now: Vec<f64>,
    next: Vec<f64>,
}

impl Tile {
    fn new(rows: usize, columns: usize, is_upper: bool) -> Self {
        let mut now = vec![0.0; (rows + 2) * (columns + 2)];
        if is_upper {
            now[..columns + 2].fill(HOT);
        }
        Tile { rows, columns, next: now.clone(), now }
    }

    /// The whole plate by a single process.
    fn alone(plate: &Plate) -> Tile {
        let mut tile = Tile::new(plate.rows, plate.columns, true);
        for _ in 0..plate.steps {
            tile.compute(1..tile.rows + 1, 1..tile.columns + 1);
            std::mem::swap(&mut tile.now, &mut tile.next);
        }
        tile
    }

    /// All steps, exchanging rims underneath.
    fn advance(&mut self, world: &Communicator, grid: [u32; 2], plate: &Plate) -> Result<Times> {
        let neighbors = world.cartesian(&grid, &[false, false])?;
        // A block a neighbour, all of one length: the longest side of any tile.
        let side =
            plate.rows.div_ceil(grid[0] as usize).max(plate.columns.div_ceil(grid[1] as usize));
        let exchange = neighbors.neighbor_alltoall_init::<f64>(side)?;
        let present = neighbors.sources();
        let (mut sent, mut received) = (vec![0.0; 4 * side], vec![0.0; 4 * side]);
        let mut times = Times::default();
        world.barrier()?;
        let begun = Instant::now();
        for _ in 0..plate.steps {
            let start = Instant::now();
            self.read_rim(&mut sent, side);
            let request = exchange.start(&sent, &mut received)?;
            let started = Instant::now();
            self.compute(2..self.rows, 2..self.columns);
            let computed = Instant::now();
            request.wait()?;
            let waited = Instant::now();
            self.write_halo(&received, side, &present);
            self.compute_rim();
            std::mem::swap(&mut self.now, &mut self.next);
            times.starting += started - start;
            times.computing += (computed - started) + waited.elapsed();
            times.waiting += waited - computed;
        }
        times.total = begun.elapsed();
        Ok(times)
    }

    /// The cells of one side, in the order of a grid's neighbours: up, down, left, right; `halo`
    /// cells further out.
    fn side(&self, side: usize, halo: usize) -> impl Iterator<Item = usize> + use<> {
        let width = self.columns + 2;
        let (first, step, count) = match side {
            0 => ((1 - halo) * width + 1, 1, self.columns),
            1 => ((self.rows + halo) * width + 1, 1, self.columns),
            2 => (width + 1 - halo, width, self.rows),
            _ => (width + self.columns + halo, width, self.rows),
        };
        (0..count).map(move |number| first + number * step)
    }

    /// Collects what the neighbours need.
    fn read_rim(&self, sent: &mut [f64], length: usize) {
        for (side, block) in sent.chunks_exact_mut(length).enumerate() {
            for (value, cell) in block.iter_mut().zip(self.side(side, 0)) {
                *value = self.now[cell];
            }
        }
    }

    /// Puts what the neighbours gave around the tile; where there is none, the edge of the plate
    /// stays.
    fn write_halo(&mut self, received: &[f64], length: usize, present: &[Option<u32>]) {
        for (side, block) in
            received.chunks_exact(length).enumerate().filter(|(side, _)| present[*side].is_some())
        {
            for (value, cell) in block.iter().zip(self.side(side, 1)) {
                self.now[cell] = *value;
            }
        }
    }

    /// The cells that need a neighbour's rim.
    fn compute_rim(&mut self) {
        let Tile { rows, columns, .. } = *self;
        self.compute(1..2.min(rows + 1), 1..columns + 1);
        self.compute(rows.max(2)..rows + 1, 1..columns + 1);
        self.compute(2..rows, 1..2.min(columns + 1));
        self.compute(2..rows, columns.max(2)..columns + 1);
    }

    /// One step for these cells; rows and columns count from the rim.
    fn compute(&mut self, rows: Range<usize>, columns: Range<usize>) {
        let width = self.columns + 2;
        for row in rows {
            let line = |row: usize| &self.now[row * width..(row + 1) * width];
            let above = line(row - 1);
            let here = line(row);
            let below = line(row + 1);
            let next = &mut self.next[row * width..(row + 1) * width];
            for column in columns.clone() {
                let around =
                    (above[column] + below[column]) + (here[column - 1] + here[column + 1]);
                next[column] = here[column] + RATE * (around - 4.0 * here[column]);
            }
        }
    }

    /// The cells without the rim, row by row.
    fn cells(&self) -> Vec<f64> {
        let lines = self.now.chunks_exact(self.columns + 2).skip(1).take(self.rows);
        lines.flat_map(|line| &line[1..=self.columns]).copied().collect()
    }
}
