//! Periodic grid of two dimensions: a rank exchanges blocks with its four neighbours.
//!
//! The same ranks in the same order as MPI_Dims_create, MPI_Cart_create and MPI_Cart_shift give
//! `bench/c/collectives.h`.

use crate::Failure;
use tradewind::{Communicator, Neighbors};

/// Number of neighbours of a rank.
pub const NEIGHBORS: usize = 4;

/// The neighbours of a rank: before and after it in the first dimension, then in the second. On few
/// ranks they repeat, and a rank may be its own.
pub fn neighbors(rank: usize, ranks: usize) -> Vec<usize> {
    let columns = (1..=ranks)
        .take_while(|side| side * side <= ranks)
        .filter(|side| ranks.is_multiple_of(*side))
        .last()
        .unwrap_or(1);
    let rows = ranks / columns;
    let row = rank / columns;
    let column = rank % columns;
    let at = |row: usize, column: usize| (row % rows) * columns + column % columns;
    vec![
        at(row + rows - 1, column),
        at(row + 1, column),
        at(row, column + columns - 1),
        at(row, column + 1),
    ]
}

/// The grid as the library knows it.
pub fn topology(world: &Communicator) -> Result<Neighbors, Failure> {
    let neighbors: Vec<u32> = neighbors(world.rank() as usize, world.size() as usize)
        .into_iter()
        .map(|rank| rank as u32)
        .collect();
    Ok(world.neighbors(&neighbors, &neighbors)?)
}
