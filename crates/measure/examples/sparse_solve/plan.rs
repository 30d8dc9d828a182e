//! The rows that each rank solves, their order, and the values that have to be fetched; computed
//! when the matrix is known.
//!
//! Rows are taken in the order of their levels, as in a sorted doacross loop (Saltz, Crowley,
//! Mirchandaney, Berryman, "Run-Time Scheduling and Execution of Loops on Message Passing
//! Machines", 1990). So no cycle of ranks wait for each other: of all rows that are not
//! solved, one of the lowest level has all its values and is the next of its rank.

use super::triangle::Triangle;
use clap::ValueEnum;
use std::ops::Range;

/// Division of the rows among the ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mapping {
    /// A block of neighbouring rows for each rank
    #[default]
    Block,
    /// Chunks of rows dealt out in turn
    Cyclic,
}

impl Mapping {
    /// Number of rows that each rank gets at a time.
    pub(crate) fn chunk(self, rows: usize, ranks: usize, chunk: usize) -> usize {
        match self {
            Mapping::Block => rows.div_ceil(ranks).max(1),
            Mapping::Cyclic => chunk,
        }
    }
}

/// A value of another rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fetch {
    pub(crate) owner: usize,
    /// Number of values that its owner publishes before.
    pub(crate) place: u64,
}

/// A row that this rank solves.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) row: usize,
    /// The fetch that comes first, among all fetches. Each value is fetched once, for the first
    /// row that needs it.
    pub(crate) fetches: Range<usize>,
    /// Place where the value is published, if another rank needs it.
    pub(crate) publish: Option<u64>,
}

/// One rank's part of a solve.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The rows of the steps. Unknowns are numbered anew: those of the steps first, then those that
    /// are fetched, each in the order in which it becomes known. So what a row needs was touched a
    /// short time ago.
    pub(crate) part: Triangle,
    pub(crate) steps: Vec<Step>,
    pub(crate) fetches: Vec<Fetch>,
    /// End of each level's steps.
    pub(crate) levels: Vec<usize>,
    /// Number of values that each rank publishes in a solve.
    pub(crate) published: Vec<u64>,
}

impl Plan {
    /// The part of rank `rank` of `ranks`, which get `chunk` rows in turn.
    pub(crate) fn new(triangle: &Triangle, ranks: usize, rank: usize, chunk: usize) -> Self {
        let owner = |row: usize| row / chunk % ranks;
        let levels = triangle.levels();
        let mut order: Vec<usize> = (0..triangle.rows()).collect();
        order.sort_by_key(|&row| (levels[row], row));

        let mut is_needed = vec![false; triangle.rows()];
        for row in 0..triangle.rows() {
            let others =
                triangle.columns(row).iter().filter(|&&column| owner(column) != owner(row));
            others.for_each(|&column| is_needed[column] = true);
        }
        let mut published = vec![0; ranks];
        let mut places = vec![None; triangle.rows()];
        for &row in order.iter().filter(|&&row| is_needed[row]) {
            let count = &mut published[owner(row)];
            places[row] = Some(*count);
            *count += 1;
        }

        let own: Vec<usize> = order.into_iter().filter(|&row| owner(row) == rank).collect();
        let mut numbers = vec![None; triangle.rows()];
        own.iter().enumerate().for_each(|(step, &row)| numbers[row] = Some(step));
        let (mut steps, mut fetches) = (Vec::new(), Vec::new());
        let mut ends = vec![0; levels.iter().max().map_or(0, |highest| highest + 1)];
        for &row in &own {
            let first = fetches.len();
            for &column in triangle.columns(row) {
                // What has a number is this rank's or has been fetched.
                if let (None, Some(place)) = (numbers[column], places[column]) {
                    numbers[column] = Some(own.len() + fetches.len());
                    fetches.push(Fetch { owner: owner(column), place });
                }
            }
            steps.push(Step { row, fetches: first..fetches.len(), publish: places[row] });
            ends[levels[row]] = steps.len();
        }
        // A level without a row of this rank ends where the one before does.
        let mut end = 0;
        for level in &mut ends {
            end = end.max(*level);
            *level = end;
        }
        // Every unknown of these rows has a number by now.
        let part = triangle.part(own.into_iter(), |column| numbers[column].unwrap_or_default());
        Plan { part, steps, fetches, levels: ends, published }
    }
}
