//! Lookup of a query in a decision table.

use super::table::{DecisionTable, Gap, Range, Row};
use crate::query::Query;

/// The row and range of a table for a query.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchedRow<'a> {
    /// The row.
    pub row: &'a Row,
    /// The range of it that the size lies in.
    pub range: &'a Range,
}

/// Largest distance of two numbers of ranks: a factor of two.
const NEAR: f64 = 1.0;

impl DecisionTable {
    /// The row and the range for a query: the range of [`row`](Self::row) that the size lies in.
    ///
    /// # Errors
    /// [`Gap`]: what the table would have to say.
    pub fn look_up(&self, query: &Query) -> Result<MatchedRow<'_>, Gap> {
        let row = self.row(query)?;
        row.range(query.bytes).map(|range| MatchedRow { row, range })
    }

    /// The row for a query of any size.
    ///
    /// Among the rows of the operation and form with one node, if the query has one node, or with
    /// several, if it has several, the nearest number of ranks counts first, the nearest number of
    /// ranks a node second; near is by ratio, and of two equally near ones the lower is taken. A
    /// row is ignored if its number of ranks is off by more than a factor of two. Sizes are matched
    /// exactly: each range contains its begin and end.
    ///
    /// # Errors
    /// [`Gap`]: what the table would have to say.
    pub fn row(&self, query: &Query) -> Result<&Row, Gap> {
        let operation = query.operation;
        let of_query = |row: &&Row| row.operation == operation && row.form == query.form;
        let mut rows = self.rows.iter().filter(of_query).peekable();
        if rows.peek().is_none() {
            return Err(Gap::Collective { operation });
        }
        let one_node = |ranks: u32, ranks_per_node: u32| ranks <= ranks_per_node;
        let same_side = |row: &&Row| {
            one_node(row.ranks, row.ranks_per_node)
                == one_node(query.ranks.max(1), query.ranks_per_node.max(1))
        };
        let near = |row: &Row| {
            (
                apart(row.ranks, query.ranks),
                row.ranks,
                apart(row.ranks_per_node, query.ranks_per_node),
                row.ranks_per_node,
            )
        };
        let nearest = rows.filter(same_side).min_by(|left, right| {
            let left = near(left);
            let right = near(right);
            let by_ranks = left.0.total_cmp(&right.0).then(left.1.cmp(&right.1));
            by_ranks.then(left.2.total_cmp(&right.2)).then(left.3.cmp(&right.3))
        });
        let Some(row) = nearest.filter(|row| apart(row.ranks, query.ranks) <= NEAR) else {
            let ranks = query.ranks;
            let ranks_per_node = query.ranks_per_node;
            return Err(Gap::Ranks { operation, ranks, ranks_per_node });
        };
        Ok(row)
    }
}

impl Row {
    /// The range that a size lies in.
    ///
    /// # Errors
    /// [`Gap::Bytes`].
    pub fn range(&self, bytes: u64) -> Result<&Range, Gap> {
        let after = self.ranges.partition_point(|range| range.from <= bytes);
        match self.ranges[..after].last() {
            Some(range) if range.to.is_none_or(|to| bytes < to) => Ok(range),
            before => {
                let from = before.and_then(|range| range.to).unwrap_or(0);
                Err(self.gap(from, self.ranges.get(after).map(|range| range.from)))
            }
        }
    }
}

/// Returns the number of doublings between two numbers.
fn apart(left: u32, right: u32) -> f64 {
    (f64::from(left.max(1)).log2() - f64::from(right.max(1)).log2()).abs()
}
