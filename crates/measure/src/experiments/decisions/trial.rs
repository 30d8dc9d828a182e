//! A row of a time, for trials.

use crate::rows::{Row, What};
use collectives::Choice;
use models::decision::Query;
use models::machine_file::Engine;

/// A row with one time of a plan.
pub(super) fn trial(query: &Query, plan: &Choice, microseconds: f64) -> Row {
    let Query { operation, form, ranks, ranks_per_node, bytes } = *query;
    let row = Row::trial(What::Collective(operation), ranks, bytes, &[microseconds]);
    Row { nodes: query.nodes(), ranks_per_node, ..row.by(Engine::Peers, form, Some(*plan)) }
}
