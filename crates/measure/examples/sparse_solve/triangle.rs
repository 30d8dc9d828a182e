//! Lower-triangular matrices: taken from others, solved by a single process, and divided into
//! levels.

use super::matrix::SparseMatrix;

/// A lower-triangular matrix by rows, with the main diagonal apart. No element of that is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Triangle {
    /// Begin of each row's elements; one more than there are rows.
    starts: Vec<usize>,
    columns: Vec<usize>,
    values: Vec<f64>,
    diagonal: Vec<f64>,
}

impl Triangle {
    /// Returns the number of unknowns.
    pub(crate) fn rows(&self) -> usize {
        self.diagonal.len()
    }

    /// Elements below the main diagonal.
    pub(crate) fn elements(&self) -> usize {
        self.columns.len()
    }

    /// The columns of a row's elements: the unknowns that its own depends on.
    pub(crate) fn columns(&self, row: usize) -> &[usize] {
        &self.columns[self.starts[row]..self.starts[row + 1]]
    }

    /// Some of the rows, in this order and each with its elements in the order in which they were,
    /// of other numbers of unknowns.
    pub(crate) fn part(
        &self,
        rows: impl Iterator<Item = usize>,
        number: impl Fn(usize) -> usize,
    ) -> Triangle {
        let mut part = Triangle { starts: vec![0], ..Triangle::default() };
        for row in rows {
            let elements = self.starts[row]..self.starts[row + 1];
            part.columns
                .extend(self.columns[elements.clone()].iter().map(|&column| number(column)));
            part.values.extend(&self.values[elements]);
            part.diagonal.push(self.diagonal[row]);
            part.starts.push(part.columns.len());
        }
        part
    }

    /// The unknown of this row, when those that it depends on are known. Always the same operations
    /// in the same order.
    #[inline]
    pub(crate) fn solve_row(&self, row: usize, right_hand_side: f64, known: &[f64]) -> f64 {
        let values = &self.values[self.starts[row]..self.starts[row + 1]];
        let products =
            self.columns(row).iter().zip(values).map(|(&column, value)| value * known[column]);
        (right_hand_side - products.sum::<f64>()) / self.diagonal[row]
    }

    /// The solution by a single process.
    pub(crate) fn solve(&self, right_hand_side: &[f64], solution: &mut [f64]) {
        for (row, value) in right_hand_side.iter().enumerate() {
            solution[row] = self.solve_row(row, *value, solution);
        }
    }

    /// The level of each row: one more than the highest that it depends on. Rows of a level do not
    /// depend on each other.
    pub(crate) fn levels(&self) -> Vec<usize> {
        let mut levels = Vec::with_capacity(self.rows());
        for row in 0..self.rows() {
            levels.push(
                self.columns(row).iter().map(|&column| levels[column] + 1).max().unwrap_or(0),
            );
        }
        levels
    }

    /// The elements on and below the main diagonal; of one that is `unit`, the diagonal is taken to
    /// be one.
    fn of(matrix: &SparseMatrix, values: &[f64], unit: bool) -> Result<Self, String> {
        let rows = matrix.rows();
        let mut triangle = Triangle {
            starts: vec![0],
            columns: Vec::new(),
            values: Vec::new(),
            diagonal: vec![0.0; rows],
        };
        for (row, diagonal) in triangle.diagonal.iter_mut().enumerate() {
            let places = matrix.starts[row]..matrix.starts[row + 1];
            for (&column, &value) in
                matrix.column_indices[places.clone()].iter().zip(&values[places])
            {
                if column <= row && !value.is_finite() {
                    return Err(format!("row {} has an element that became {value}", row + 1));
                }
                if column < row {
                    triangle.columns.push(column);
                    triangle.values.push(value);
                } else if column == row {
                    *diagonal = value;
                }
            }
            if unit {
                *diagonal = 1.0;
            } else if *diagonal == 0.0 {
                return Err(format!(
                    "row {} has nothing on the main diagonal, so that it cannot be solved",
                    row + 1
                ));
            }
            triangle.starts.push(triangle.columns.len());
        }
        Ok(triangle)
    }
}

/// Returns true if no element lies above the main diagonal.
pub(crate) fn is_lower(matrix: &SparseMatrix) -> bool {
    matrix.elements().all(|(row, column, _)| column <= row)
}

/// Returns the elements on and below the main diagonal.
///
/// # Errors
/// In words, when an element of the diagonal is missing or zero.
pub(crate) fn lower_triangle(matrix: &SparseMatrix) -> Result<Triangle, String> {
    Triangle::of(matrix, &matrix.values, false)
}

/// The lower factor, of unit diagonal, of the incomplete factorization without fill-in (Meijerink
/// and van der Vorst, "An Iterative Solution Method for Linear Systems of Which the Coefficient
/// Matrix Is a Symmetric M-Matrix", 1977), row by row.
///
/// # Errors
/// In words, when an element of the diagonal is missing or becomes zero.
pub(crate) fn incomplete_factor(matrix: &SparseMatrix) -> Result<Triangle, String> {
    let rows = matrix.rows();
    let starts = &matrix.starts;
    let columns = &matrix.column_indices;
    let mut values = matrix.values.clone();
    let mut diagonals = vec![0; rows];
    // Where the elements of the row at hand lie, by column.
    let mut places = vec![None; rows];
    for row in 0..rows {
        let own = starts[row]..starts[row + 1];
        own.clone().for_each(|place| places[columns[place]] = Some(place));
        for place in own.clone().take_while(|&place| columns[place] < row) {
            let above = columns[place];
            values[place] /= values[diagonals[above]];
            for upper in diagonals[above] + 1..starts[above + 1] {
                if let Some(changed) = places[columns[upper]] {
                    values[changed] -= values[place] * values[upper];
                }
            }
        }
        diagonals[row] = match places[row] {
            Some(place) if values[place] != 0.0 => place,
            _ => {
                return Err(format!(
                    "row {} has no pivot, so that there is no factorization without fill-in",
                    row + 1
                ));
            }
        };
        own.for_each(|place| places[columns[place]] = None);
    }
    Triangle::of(matrix, &values, true)
}
