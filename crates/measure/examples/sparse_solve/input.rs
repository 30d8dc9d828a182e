//! Sources of a triangular system: a five-point Laplacian, or a Matrix Market file.

use super::matrix::{self, SparseMatrix};
use super::triangle::{Triangle, incomplete_factor, is_lower, lower_triangle};
use clap::ValueEnum;
use std::path::Path;

/// Part that is taken of a matrix that is not lower-triangular itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The lower factor of its incomplete factorization without fill-in
    Ilu0,
    /// The elements on and below its main diagonal
    Lower,
}

/// A system and where it comes from, in words.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    pub(crate) triangle: Triangle,
    pub(crate) name: String,
}

/// The factor of the five-point Laplacian on a square grid of so many points a side.
pub(crate) fn of_grid(side: usize) -> Result<Input, String> {
    let points = side * side;
    let mut elements = Vec::new();
    for point in 0..points {
        let row = point / side;
        let column = point % side;
        elements.push((point, point, 4.0));
        let mut join = |other: usize| {
            elements.push((point, other, -1.0));
            elements.push((other, point, -1.0));
        };
        if column > 0 {
            join(point - 1);
        }
        if row > 0 {
            join(point - side);
        }
    }
    let matrix = SparseMatrix::of_elements(points, points, elements);
    let triangle = incomplete_factor(&matrix)?;
    Ok(Input {
        triangle,
        name: format!("ILU(0) factor of the five-point Laplacian on {side} × {side} points"),
    })
}

/// The system in a file: itself if it is lower-triangular and no part was asked for, otherwise that
/// part, ILU(0) by default.
pub(crate) fn of_file(path: &Path, part: Option<Part>) -> Result<Input, String> {
    let file = path.display();
    let matrix = read(path)?;
    let rows = matrix.rows();
    let columns = matrix.columns();
    if rows != columns {
        return Err(format!(
            "{file}: the matrix has {rows} rows and {columns} columns: only square ones can be solved"
        ));
    }
    let part = part.unwrap_or(if is_lower(&matrix) { Part::Lower } else { Part::Ilu0 });
    let (triangle, what) = match part {
        Part::Lower if is_lower(&matrix) => (lower_triangle(&matrix), "lower-triangular matrix"),
        Part::Lower => (lower_triangle(&matrix), "lower triangle of the matrix"),
        Part::Ilu0 => (incomplete_factor(&matrix), "ILU(0) factor of the matrix"),
    };
    let other = if part == Part::Lower { "ilu0" } else { "lower" };
    let triangle = triangle
        .map_err(|why| format!("{file}: {why}: reorder the matrix, or try --part {other}"))?;
    Ok(Input { triangle, name: format!("{what} in {file}") })
}

fn read(path: &Path) -> Result<SparseMatrix, String> {
    let file = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {file}: {error}"))?;
    let matrix = matrix::parse(&text).map_err(|why| format!("{file}: {why}"))?;
    let infinite = matrix.elements().find(|(_, _, value)| !value.is_finite());
    match infinite {
        Some((row, column, value)) => Err(format!(
            "{file}: row {}, column {} is {value}: give finite numbers",
            row + 1,
            column + 1
        )),
        None => Ok(matrix),
    }
}
