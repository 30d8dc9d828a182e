//! Summary of all ranks' graphs, in figures.

use goal::graph::{Graph, Operation, Until, Vertex};
use serde::Serialize;
use std::fmt;

/// Summary of all ranks' graphs.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    schedule: String,
    ranks: usize,
    operations: usize,
    messages: usize,
    bytes_sent: u64,
    /// Bytes of the rank that sends most.
    most_bytes_of_a_rank: u64,
    most_messages_of_a_rank: usize,
    scratchpad_bytes_of_a_rank: u64,
    /// Messages and joins one after the other.
    depth: u32,
    /// The ranks that a longest chain of messages goes through.
    longest_path: Vec<u32>,
    /// The operations of the requested rank, in the order of the graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    rank: Option<Vec<String>>,
}

impl Summary {
    pub(super) fn new(schedule: String, graphs: &[Graph], rank: Option<u32>) -> Self {
        let sent: Vec<(usize, u64)> = graphs.iter().map(sent).collect();
        let depth = goal::depth::measure(graphs);
        let mut longest_path: Vec<u32> =
            depth.iter().flat_map(|depth| &depth.longest).map(|(rank, _)| *rank).collect();
        longest_path.dedup();
        Summary {
            schedule,
            ranks: graphs.len(),
            operations: graphs.iter().map(|graph| graph.vertices().len()).sum(),
            messages: sent.iter().map(|(messages, _)| messages).sum(),
            bytes_sent: sent.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes)),
            most_bytes_of_a_rank: sent.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0),
            most_messages_of_a_rank: sent.iter().map(|(messages, _)| *messages).max().unwrap_or(0),
            scratchpad_bytes_of_a_rank: graphs
                .iter()
                .map(Graph::scratchpad_bytes)
                .max()
                .unwrap_or(0),
            depth: depth.as_ref().map_or(0, |depth| depth.deepest),
            longest_path,
            rank: rank.and_then(|rank| graphs.get(rank as usize)).map(operations),
        }
    }
}

/// Messages and bytes that a rank sends.
fn sent(graph: &Graph) -> (usize, u64) {
    let sends = graph.vertices().iter().filter_map(|entry| match &entry.operation {
        Operation::Send { data, .. } => Some(data.bytes().unwrap_or(u64::MAX)),
        _ => None,
    });
    sends.fold((0, 0), |(messages, sum), bytes| (messages + 1, sum.saturating_add(bytes)))
}

/// A rank's operations with what they wait for.
fn operations(graph: &Graph) -> Vec<String> {
    let awaited = |vertex: Vertex| {
        let edges = graph.edges().iter().filter(move |edge| edge.after == vertex);
        let names = edges.map(|edge| match edge.until {
            Until::Complete => edge.before.0.to_string(),
            Until::Started => format!("the start of {}", edge.before.0),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let describe = |(index, entry): (usize, &goal::graph::VertexEntry)| {
        let text = format!("{index}: {}", entry.operation.describe());
        match awaited(Vertex(index as u32)) {
            none if none.is_empty() => text,
            awaited => format!("{text}, after {awaited}"),
        }
    };
    graph.vertices().iter().enumerate().map(describe).collect()
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// So many ranks are named at each end of a path.
        const NAMED: usize = 8;
        writeln!(formatter, "{}", self.schedule)?;
        writeln!(formatter, "  operations    {}", self.operations)?;
        writeln!(formatter, "  messages      {}, {} bytes", self.messages, self.bytes_sent)?;
        let messages = self.most_messages_of_a_rank;
        let bytes = self.most_bytes_of_a_rank;
        writeln!(
            formatter,
            "  one rank      sends up to {messages} messages, up to {bytes} bytes"
        )?;
        writeln!(formatter, "  scratchpad    up to {} bytes", self.scratchpad_bytes_of_a_rank)?;
        writeln!(formatter, "  depth         {}", self.depth)?;
        let ranks: Vec<String> = self.longest_path.iter().map(u32::to_string).collect();
        let path = match ranks.len() {
            0 => "none".to_owned(),
            1..=20 => format!("rank {}", ranks.join(" → ")),
            many => format!(
                "rank {} → … → {}",
                ranks[..NAMED].join(" → "),
                ranks[many - NAMED..].join(" → ")
            ),
        };
        write!(formatter, "  longest path  {path}")?;
        for operation in self.rank.iter().flatten() {
            write!(formatter, "\n  {operation}")?;
        }
        Ok(())
    }
}
