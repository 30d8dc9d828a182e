//! The matrix: an incompletely factored five-point operator on a grid of one column a rank.
//!
//! The operator is that of an anisotropic Laplacian; its factors without fill-in are L D Lᵀ, with L
//! of unit diagonal. The unknowns are numbered row by row, so that L has a diagonal immediately
//! below the main one, zero where a row of the grid begins, and one as far below as a row of the
//! grid is long. Number `row * ranks + column` belongs to the rank of its column: a cyclic mapping.

/// Couplings to the neighbours of the same row and of the same column of the grid.
const ACROSS: f64 = 1.0;
const DOWN: f64 = 0.5;

/// One rank's part.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Factor of a value for the next column: the diagonal next to the main one.
    pub(crate) across: Vec<f64>,
    /// Factor of the value above: the far diagonal.
    pub(crate) down: Vec<f64>,
    pub(crate) right_hand_side: Vec<f64>,
    pub(crate) solution: Vec<f64>,
}

impl Column {
    /// Column number `column` of a grid of so many rows.
    pub(crate) fn new(column: usize, rows: usize) -> Self {
        let mut pivots = vec![f64::INFINITY; rows];
        for _ in 0..=column {
            let mut above = f64::INFINITY;
            for pivot in &mut pivots {
                above = 2.0 * (ACROSS + DOWN) - ACROSS * ACROSS / *pivot - DOWN * DOWN / above;
                *pivot = above;
            }
        }
        let across = pivots.iter().map(|pivot| -ACROSS / pivot).collect();
        // Nothing lies above the first row.
        let down = std::iter::once(0.0)
            .chain(pivots.iter().map(|pivot| -DOWN / pivot))
            .take(rows)
            .collect();
        Column { across, down, right_hand_side: vec![0.0; rows], solution: vec![0.0; rows] }
    }

    /// Makes the right-hand side of another solve, and wipes the solution out.
    pub(crate) fn prepare(&mut self, column: usize, solve: usize) {
        for (row, value) in self.right_hand_side.iter_mut().enumerate() {
            *value = right_hand_side(row, column, solve);
        }
        self.solution.fill(f64::NAN);
    }
}

/// Some number between -1 and 1, another one in every solve.
fn right_hand_side(row: usize, column: usize, solve: usize) -> f64 {
    (((row * 131 + column * 17 + solve * 7) % 1009) as f64 - 504.0) / 505.0
}

/// The solution of column `column` by a single process, which needs the columns before it.
pub(crate) fn serial(column: usize, rows: usize, solve: usize) -> Vec<f64> {
    let mut products = vec![0.0; rows];
    let mut solution = Vec::new();
    for index in 0..=column {
        let part = Column::new(index, rows);
        let mut above = 0.0;
        solution.clear();
        for (row, product) in products.iter_mut().enumerate() {
            above = right_hand_side(row, index, solve) - *product - part.down[row] * above;
            *product = part.across[row] * above;
            solution.push(above);
        }
    }
    solution
}
