//! Finds what is wrong with a graph, or with all ranks' graphs together, and says where.

use crate::graph::Graph;

/// One breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Placeholder of the first version.
    #[error("placeholder")]
    Placeholder,
}

/// Every problem on a line of its own.
pub fn list(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Checks one rank's graph.
///
/// # Errors
/// Every problem found.
pub fn graph(_graph: &Graph) -> Result<(), Vec<Problem>> {
    Ok(())
}
