//! Sources of a triangular system: a five-point Laplacian, or a Matrix Market file.

use super::triangle::{Triangle, incomplete_factor, is_lower, lower_triangle};
use clap::ValueEnum;
use nalgebra_sparse::io::{
    MatrixMarketError, MatrixMarketErrorKind, load_coo_from_matrix_market_str,
};
use nalgebra_sparse::{CooMatrix, CsrMatrix};
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
    let mut matrix = CooMatrix::new(points, points);
    for point in 0..points {
        let row = point / side;
        let column = point % side;
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
    let rows = matrix.nrows();
    let columns = matrix.ncols();
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

fn read(path: &Path) -> Result<CsrMatrix<f64>, String> {
    let file = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|error| format!("cannot read {file}: {error}"))?;
    check_numbers(&text).map_err(|why| format!("{file}: {why}"))?;
    let matrix = parse(&text).map_err(|error| match error.kind() {
        MatrixMarketErrorKind::TypeMismatch => {
            format!("{file} has complex elements, or a pattern without any: give a matrix of real or integer ones")
        }
        _ => format!("{file} is no Matrix Market file: {}\nMend it, or leave --matrix out", error.message()),
    })?;
    match matrix.triplet_iter().find(|(_, _, value)| !value.is_finite()) {
        Some((row, column, value)) => Err(format!(
            "{file}: row {}, column {} is {value}: give finite numbers",
            row + 1,
            column + 1
        )),
        None => Ok(matrix),
    }
}

fn parse(text: &str) -> Result<CsrMatrix<f64>, MatrixMarketError> {
    match load_coo_from_matrix_market_str::<f64>(text) {
        Err(error) if error.kind() == MatrixMarketErrorKind::TypeMismatch => {
            let matrix = load_coo_from_matrix_market_str::<i64>(text)?;
            let mut real = CooMatrix::new(matrix.nrows(), matrix.ncols());
            matrix
                .triplet_iter()
                .for_each(|(row, column, value)| real.push(row, column, *value as f64));
            Ok(CsrMatrix::from(&real))
        }
        other => other.map(|matrix| CsrMatrix::from(&matrix)),
    }
}

/// Looks at the sizes and indices of a file, which the library takes at their word: it would
/// allocate a matrix of any size that is claimed, and stop the program at a number that no word of
/// the machine holds. An element is at least a byte of the file, and each row has one, that on the
/// diagonal.
fn check_numbers(text: &str) -> Result<(), String> {
    let lines = text.split(['\n', '\r']).map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('%'));
    let Some(size_line) = lines.next() else { return Ok(()) };
    let is_beyond = |word: &str| {
        word.bytes().all(|byte| byte.is_ascii_digit())
            && !word.parse().is_ok_and(|number: usize| number <= text.len())
    };
    let sizes: Vec<&str> = size_line.split_whitespace().collect();
    let is_dense = sizes.len() == 2;
    let product = sizes.iter().filter_map(|size| size.parse().ok()).fold(1, usize::saturating_mul);
    if sizes.iter().any(|size| is_beyond(size)) || (is_dense && product > text.len()) {
        let bytes = text.len();
        return Err(format!(
            "{bytes} bytes cannot hold what the size line {size_line:?} says: mend the size line"
        ));
    }
    if sizes.iter().take(2).any(|size| size.parse() == Ok(0)) {
        return Err("the matrix has no rows or no columns: there is nothing to solve".to_owned());
    }
    let is_wrong = |line: &&str| line.split_whitespace().take(2).any(is_beyond);
    match lines.find(is_wrong) {
        Some(line) if !is_dense => Err(format!("the element {line:?} lies out of bounds")),
        _ => Ok(()),
    }
}
