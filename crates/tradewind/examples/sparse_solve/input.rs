//! Where a triangular system comes from: a five-point Laplacian, or a Matrix Market file.

use super::triangle::{Triangle, incomplete_factor, is_lower, lower_triangle};
use clap::ValueEnum;
use nalgebra_sparse::io::{MatrixMarketError, MatrixMarketErrorKind, load_coo_from_matrix_market_file};
use nalgebra_sparse::{CooMatrix, CsrMatrix};
use std::path::Path;

/// What is taken of a matrix that is not lower-triangular itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The lower factor of its incomplete factorization without fill-in
    Ilu0,
    /// What lies on and below its main diagonal
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
    let mut matrix = CooMatrix::new(points, points);
    for point in 0..points {
        let (row, column) = (point / side, point % side);
        matrix.push(point, point, 4.0);
        let mut join = |other: usize| {
            matrix.push(point, other, -1.0);
            matrix.push(other, point, -1.0);
        };
        if column > 0 {
            join(point - 1);
        }
        if row > 0 {
            join(point - side);
        }
    }
    let triangle = incomplete_factor(&CsrMatrix::from(&matrix))?;
    Ok(Input { triangle, name: format!("ILU(0) factor of the five-point Laplacian on {side} × {side} points") })
}

/// The system in a file: itself if it is lower-triangular and no part was asked for, otherwise that part, ILU(0) by default.
pub(crate) fn of_file(path: &Path, part: Option<Part>) -> Result<Input, String> {
    let file = path.display();
    let matrix = read(path)?;
    let (rows, columns) = (matrix.nrows(), matrix.ncols());
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
    let triangle = triangle.map_err(|why| format!("{file}: {why}: reorder the matrix, or try --part {other}"))?;
    Ok(Input { triangle, name: format!("{what} in {file}") })
}

fn read(path: &Path) -> Result<CsrMatrix<f64>, String> {
    let is_other_type = |error: &MatrixMarketError| error.kind() == MatrixMarketErrorKind::TypeMismatch;
    let matrix = match load_coo_from_matrix_market_file::<f64, _>(path) {
        Err(error) if is_other_type(&error) => load_coo_from_matrix_market_file::<i64, _>(path).map(|matrix| {
            let (rows, columns) = (matrix.nrows(), matrix.ncols());
            let mut real = CooMatrix::new(rows, columns);
            matrix.triplet_iter().for_each(|(row, column, value)| real.push(row, column, *value as f64));
            real
        }),
        other => other,
    };
    matrix.as_ref().map(CsrMatrix::from).map_err(|error| {
        let file = path.display();
        match error.kind() {
            MatrixMarketErrorKind::IOError(_) => format!("cannot read {file}: {}", error.message()),
            MatrixMarketErrorKind::TypeMismatch => {
                format!("{file} has complex elements, or a pattern without any: give a matrix of real or integer ones")
            }
            _ => format!("{file} is no Matrix Market file: {}\nMend it, or leave --matrix out", error.message()),
        }
    })
}
