//! Identification of messages: every message gets a window of the pattern, and every receive
//! expects a certain one.

use super::pattern::{WINDOWS, mix};
use goal::graph::{Graph, Operation, Vertex};
use goal::matching::{Endpoint, pair};
use std::collections::HashMap;

/// Fewer windows would make messages to different ranks alike too often.
const FEWEST: u64 = 4096;

/// The messages of all ranks as one rank sees them.
///
/// The messages to a rank are numbered by source and vertex order, in other words by source, tag
/// and the k of the matching rule. Those with different numbers (up to the number of windows) have
/// different windows.
#[derive(Debug)]
pub(super) struct Messages {
    /// Windows in use, the same on all ranks.
    pub(super) windows: u64,
    /// The window of each of this rank's sends.
    pub(super) sends: HashMap<Vertex, u64>,
    /// Expected content of each of this rank's receives that name their message.
    pub(super) expected: HashMap<Vertex, ExpectedMessage>,
    /// The messages to this rank that its receives with wildcards take.
    pub(super) open: Vec<ExpectedMessage>,
}

/// A message to this rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpectedMessage {
    pub(super) source: u32,
    pub(super) tag: u32,
    pub(super) bytes: u64,
    pub(super) window: u64,
}

impl Messages {
    /// From the graphs of all ranks.
    pub(super) fn of(graphs: &[Graph], rank: u32) -> Self {
        let windows = windows(graphs);
        let mut counts = vec![0u64; graphs.len()];
        let mut sends = HashMap::new();
        let mut incoming = Vec::new();
        let mut ends = Vec::new();
        for (source, vertex, operation) in operations(graphs) {
            let Operation::Send { data, peer, tag } = operation else { continue };
            let Some(count) = counts.get_mut(*peer as usize) else { continue };
            let window = (mix(u64::from(*peer)) % windows + *count) % windows;
            *count += 1;
            if source == rank {
                sends.insert(vertex, window);
            }
            if *peer == rank {
                let bytes = data.bytes().unwrap_or(0);
                let operation = incoming.len() as u32;
                incoming.push(ExpectedMessage { source, tag: *tag, bytes, window });
                ends.push(Endpoint {
                    rank: source,
                    operation,
                    peer: Some(rank),
                    tag: Some(*tag),
                    bytes,
                });
            }
        }
        // Only the messages to this rank can meet its receives.
        let pairing = pair(&ends, &receives(&graphs[rank as usize]));
        let message = |end: &Endpoint| incoming[end.operation as usize];
        let expected = pairing
            .pairs
            .iter()
            .map(|(send, receive)| (Vertex(receive.operation), message(send)))
            .collect();
        Messages {
            windows,
            sends,
            expected,
            open: pairing.open_sends.iter().map(message).collect(),
        }
    }
}

/// As many as the rank with the most messages gets.
fn windows(graphs: &[Graph]) -> u64 {
    let mut counts = vec![0u64; graphs.len()];
    for (_, _, operation) in operations(graphs) {
        if let Operation::Send { peer, .. } = operation
            && let Some(count) = counts.get_mut(*peer as usize)
        {
            *count += 1;
        }
    }
    counts.into_iter().max().unwrap_or(0).clamp(FEWEST, WINDOWS)
}

/// Rank, vertex and operation, in that order.
fn operations(graphs: &[Graph]) -> impl Iterator<Item = (u32, Vertex, &Operation)> {
    graphs.iter().flat_map(|graph| {
        (0..)
            .map(Vertex)
            .zip(graph.vertices())
            .map(|(vertex, entry)| (graph.rank(), vertex, &entry.operation))
    })
}

fn receives(graph: &Graph) -> Vec<Endpoint> {
    let of = |(rank, vertex, operation): (u32, Vertex, &Operation)| match operation {
        Operation::Receive { data, source, tag } => Some(Endpoint {
            rank,
            operation: vertex.0,
            peer: *source,
            tag: *tag,
            bytes: data.bytes().unwrap_or(0),
        }),
        _ => None,
    };
    operations(std::slice::from_ref(graph)).filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::exec::pattern::{STEP, fill};

    fn payload(message: &ExpectedMessage) -> Vec<u8> {
        let mut sequence = vec![0; (message.window * STEP + message.bytes) as usize];
        fill(&mut sequence);
        sequence.split_off((message.window * STEP) as usize)
    }

    /// 300 messages from rank 0 to rank 1, of two tags in turn, some from rank 2 between.
    fn graphs() -> Vec<Graph> {
        let mut text = String::from("num_ranks 3\nrank 0 {\n");
        (0..300).for_each(|k| text.push_str(&format!("send 2b to 1 tag {}\n", k % 2)));
        text.push_str("}\nrank 1 {\n");
        (0..300).for_each(|k| text.push_str(&format!("recv 2b from 0 tag {}\n", k / 150)));
        (0..4).for_each(|_| text.push_str("recv 2b from -1 tag 5\n"));
        text.push_str("}\nrank 2 {\n");
        (0..4).for_each(|_| text.push_str("send 2b to 1 tag 5\n"));
        text.push_str("}\n");
        goal::text::read(&text).expect("the text is right")
    }

    #[test]
    fn no_two_messages_to_a_rank_are_alike() {
        let messages = Messages::of(&graphs(), 1);
        let all = messages.expected.values().chain(&messages.open);
        let payloads: std::collections::HashSet<Vec<u8>> = all.map(payload).collect();
        assert_eq!(payloads.len(), 304);
    }

    #[test]
    fn both_ends_of_a_message_agree_on_its_window() {
        let graphs = graphs();
        let sender = Messages::of(&graphs, 0);
        let receiver = Messages::of(&graphs, 1);
        // The k-th send with tag 1 is vertex 2 k + 1, the k-th receive with tag 1 is vertex 150 +
        // k.
        for k in 0..150 {
            let expected = receiver.expected[&Vertex(150 + k)];
            assert_eq!((expected.source, expected.tag), (0, 1));
            assert_eq!(sender.sends[&Vertex(2 * k + 1)], expected.window);
        }
        assert_eq!(receiver.open.len(), 4);
        assert!(receiver.open.iter().all(|message| message.source == 2));
    }
}
