//! Graphs as GOAL files can hold them.

use super::ScheduleError;
use goal::graph::{Edge, Graph, Operation, Until};

/// The graph without places; what a rank does by itself becomes a computation that takes no time.
pub(super) fn of(graph: &Graph) -> Result<Graph, ScheduleError> {
    let mut portable = Graph::new(graph.rank(), graph.ranks());
    for entry in graph.vertices() {
        portable.add(match &entry.operation {
            Operation::Join { .. } => return Err(ScheduleError::Join),
            Operation::Local { .. } | Operation::Copy { .. } | Operation::Timestamp { .. } => {
                Operation::Calc { nanoseconds: 0 }
            }
            operation => operation.clone(),
        });
    }
    for Edge { after, before, until } in graph.edges() {
        match until {
            Until::Complete => portable.requires(*after, *before),
            Until::Started => portable.irequires(*after, *before),
        }
    }
    Ok(portable)
}
