//! Graphs as GOAL files can hold them.

use goal::graph::{Edge, Graph, Operation, Until};

const JOIN: &str = "in a join all ranks meet without messages, which a GOAL file cannot hold: use another algorithm";

/// The graph without places; what a rank does by itself becomes a computation that takes no time.
pub(super) fn of(graph: &Graph) -> anyhow::Result<Graph> {
    let mut portable = Graph::new(graph.rank(), graph.ranks());
    for entry in graph.vertices() {
        portable.add(match &entry.operation {
            Operation::Join { .. } => anyhow::bail!(JOIN),
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
