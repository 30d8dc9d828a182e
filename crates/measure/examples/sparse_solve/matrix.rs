//! Sparse matrices by rows, and the Matrix Market format (<https://math.nist.gov/MatrixMarket>).

/// A sparse matrix, by rows; the elements of a row are in the order of their columns.
#[derive(Clone, Debug)]
pub(crate) struct SparseMatrix {
    columns: usize,
    /// Begin of each row's elements; one more than there are rows.
    pub(crate) starts: Vec<usize>,
    pub(crate) column_indices: Vec<usize>,
    pub(crate) values: Vec<f64>,
}

impl SparseMatrix {
    /// A matrix of elements in any order: row, column, value. Elements at the same place add up.
    pub(crate) fn of_elements(
        rows: usize,
        columns: usize,
        mut elements: Vec<(usize, usize, f64)>,
    ) -> Self {
        elements.sort_by_key(|&(row, column, _)| (row, column));
        elements.dedup_by(|next, last| {
            let is_same_place = (next.0, next.1) == (last.0, last.1);
            if is_same_place {
                last.2 += next.2;
            }
            is_same_place
        });
        let mut starts = vec![0; rows + 1];
        elements.iter().for_each(|(row, ..)| starts[row + 1] += 1);
        (0..rows).for_each(|row| starts[row + 1] += starts[row]);
        let column_indices = elements.iter().map(|&(_, column, _)| column).collect();
        let values = elements.iter().map(|&(.., value)| value).collect();
        SparseMatrix { columns, starts, column_indices, values }
    }

    pub(crate) fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Returns all elements: row, column, value.
    pub(crate) fn elements(&self) -> impl Iterator<Item = (usize, usize, f64)> {
        (0..self.rows()).flat_map(move |row| {
            let elements = self.starts[row]..self.starts[row + 1];
            elements.map(move |place| (row, self.column_indices[place], self.values[place]))
        })
    }
}

/// A word of a line, with the numbers of its line and of its first byte there.
type Word<'a> = (usize, usize, &'a str);

/// Reads a Matrix Market file of real or integer elements.
pub(crate) fn parse(text: &str) -> Result<SparseMatrix, String> {
    let header = text.lines().next().unwrap_or_default().to_ascii_lowercase();
    let (is_dense, field, symmetry) = match header.split_whitespace().collect::<Vec<_>>()[..] {
        ["%%matrixmarket", "matrix", _, "complex" | "pattern", _] => {
            let elements = "it has complex elements, or a pattern without any";
            return Err(format!("{elements}: give a matrix of real or integer ones"));
        }
        [
            "%%matrixmarket",
            "matrix",
            format @ ("coordinate" | "array"),
            field @ ("real" | "integer"),
            symmetry @ ("general" | "symmetric" | "skew-symmetric"),
        ] => (format == "array", field, symmetry),
        _ => return Err("it is no Matrix Market file: mend it, or leave --matrix out".to_owned()),
    };
    let lines = text.lines().zip(1..);
    let mut lines = lines.filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('%'));
    let (size_line, number) = lines.next().ok_or("it ends before its size line")?;
    let sizes = words(size_line, number, if is_dense { 2 } else { 3 })?;
    let sizes = sizes.into_iter().map(index).collect::<Result<Vec<usize>, String>>()?;
    check_sizes(&sizes, size_line, text.len())?;
    let rows = sizes[0];
    let columns = sizes[1];
    if symmetry != "general" && rows != columns {
        return Err(format!("{rows} rows and {columns} columns cannot be {symmetry}"));
    }
    // A dense file lists its elements column by column, a symmetric one from the diagonal on.
    let mut dense = (0..columns).flat_map(|column| {
        let first = match symmetry {
            "general" => 0,
            "symmetric" => column,
            _ => column + 1,
        };
        (first..rows).map(move |row| (row, column))
    });
    let required = if is_dense { dense.clone().count() } else { sizes[2] };
    let mut found = 0;
    let mut elements = Vec::new();
    for (line, number) in lines {
        let words = words(line, number, if is_dense { 1 } else { 3 })?;
        let (row, column) = match words[..] {
            [row, column, _] => (index(row)?.wrapping_sub(1), index(column)?.wrapping_sub(1)),
            _ => dense.next().unwrap_or((rows, columns)),
        };
        let value = value(words[words.len() - 1], field)?;
        let is_above = symmetry != "general" && column > row;
        if row >= rows || column >= columns || is_above {
            return Err(format!("the element {line:?} lies out of bounds"));
        }
        if symmetry == "skew-symmetric" && row == column {
            return Err(format!("the element {line:?} lies on the diagonal"));
        }
        found += 1;
        elements.push((row, column, value));
        if symmetry != "general" && row != column {
            let mirrored = if symmetry == "symmetric" { value } else { -value };
            elements.push((column, row, mirrored));
        }
    }
    if found != required {
        return Err(format!("{required} entries required, but {found} are there"));
    }
    Ok(SparseMatrix::of_elements(rows, columns, elements))
}

/// Refuses a size line that claims more than the file can hold, before anything is allocated for it:
/// an element is at least a byte of the file, and each row has one, that on the diagonal.
fn check_sizes(sizes: &[usize], line: &str, bytes: usize) -> Result<(), String> {
    let places = sizes[0].saturating_mul(sizes[1]);
    if sizes.iter().any(|&size| size > bytes) || (sizes.len() == 2 && places > bytes) {
        return Err(format!(
            "{bytes} bytes cannot hold what the size line {line:?} says: mend the size line"
        ));
    }
    if places == 0 {
        return Err("the matrix has no rows or no columns: there is nothing to solve".to_owned());
    }
    Ok(())
}

fn words(line: &str, number: usize, count: usize) -> Result<Vec<Word<'_>>, String> {
    let begin = line.as_ptr().addr();
    let word = |word: &str| word.as_ptr().addr() - begin + 1;
    let words: Vec<_> = line.split_whitespace().map(|text| (number, word(text), text)).collect();
    if words.len() == count {
        return Ok(words);
    }
    Err(format!("{number}:1: {line:?} has {} numbers, not {count}", words.len()))
}

/// Returns an index or a size; one that no word of the machine holds is as large as any.
fn index((line, column, text): Word<'_>) -> Result<usize, String> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(text.parse().unwrap_or(usize::MAX));
    }
    Err(format!("{line}:{column}: {text:?} is not a whole number"))
}

fn value((line, column, text): Word<'_>, field: &str) -> Result<f64, String> {
    let value = match field {
        "integer" => text.parse::<i64>().ok().map(|value| value as f64),
        _ => text.parse().ok(),
    };
    value.ok_or_else(|| format!("{line}:{column}: {text:?} is no {field} number"))
}
