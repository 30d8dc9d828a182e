//! Operations of several ranks that wait for each other for ever.
//!
//! Every operation has two events, its start and its completion; this graph has an edge from each
//! event to the events it waits for. A send completes on its own if its message is eager; above the
//! limit it completes with its receive ("rendezvous"), after both have started. A receive completes
//! after its send has started. A join completes after those of all ranks have started; of a
//! broadcast, after the root's. Receives with a wildcard are left out, because what they take
//! depends on the order of arrival: what is reported here does wait for ever, what is not may still
//! do so through a wildcard.

use super::digraph::{Arc, Digraph};
use super::joins;
use super::problem::{Problem, VertexLocation};
use super::report::Report;
use crate::graph::{Graph, JoinMode, Until, Vertex};
use crate::matching::{Endpoint, Pairing};
use std::collections::HashMap;

/// Adds a cycle of events, if there is one.
pub(super) fn check(graphs: &[Graph], pairing: &Pairing, eager_limit: u64, report: &mut Report) {
    let waits = Waits::of(graphs, pairing);
    if let Err(cycle) = waits.order(eager_limit) {
        let least = waits.least_eager_limit();
        // Where no limit helps, a cycle that none breaks.
        let cycle = match least {
            None => waits.order(u64::MAX).err().unwrap_or(cycle),
            Some(_) => cycle,
        };
        let cycle = waits.events.places(graphs, &cycle);
        report.add(|| Problem::Deadlock { eager_limit, least, cycle });
    }
}

/// Returns the least eager limit with which no operations wait for each other; `None` if they do
/// with every limit.
pub(super) fn least_eager_limit(graphs: &[Graph], pairing: &Pairing) -> Option<u64> {
    Waits::of(graphs, pairing).least_eager_limit()
}

/// The waits of all events for others.
struct Waits {
    events: EventGraph,
    nodes: usize,
    /// The arcs that exist with every eager limit, each with the event it leads from.
    always: Vec<(usize, Arc)>,
    /// The arcs of messages that wait for their receive, with the length of the message.
    rendezvous: Vec<(u64, (usize, Arc))>,
}

impl Waits {
    fn of(graphs: &[Graph], pairing: &Pairing) -> Self {
        let events = EventGraph::of(graphs);
        let (mut always, mut rendezvous) = (Vec::new(), Vec::new());
        for (graph, first) in graphs.iter().zip(&events.first) {
            for index in 0..graph.vertices().len() {
                always.push(arc(start(first + index), completion(first + index)));
            }
            for edge in graph.edges() {
                let before = first + edge.before.index();
                let cause = match edge.until {
                    Until::Complete => completion(before),
                    Until::Started => start(before),
                };
                always.push(arc(cause, start(first + edge.after.index())));
            }
        }
        for (send, receive) in &pairing.pairs {
            let from = events.operation(send);
            let to = events.operation(receive);
            // The receive needs the payload, which exists once the send has started. Above the limit
            // the send completes after its receive has started. So each of the two waits for the
            // start of the other and never for its completion.
            always.push(arc(start(from), completion(to)));
            rendezvous.push((send.bytes, arc(start(to), completion(from))));
        }
        let nodes = events.add_joins(graphs, &mut always);
        Waits { events, nodes, always, rendezvous }
    }

    /// The events in an order in which each follows all that it waits for.
    ///
    /// # Errors
    /// The events of a cycle.
    fn order(&self, eager_limit: u64) -> Result<Vec<usize>, Vec<usize>> {
        let long = self.rendezvous.iter().filter(|(bytes, _)| *bytes > eager_limit);
        let arcs: Vec<_> = self.always.iter().copied().chain(long.map(|(_, arc)| *arc)).collect();
        Digraph::new(self.nodes, &arcs).order()
    }

    fn least_eager_limit(&self) -> Option<u64> {
        // A larger limit only removes arcs, and they change at lengths of messages alone.
        let mut limits: Vec<u64> = self.rendezvous.iter().map(|(bytes, _)| *bytes).collect();
        limits.push(0);
        limits.sort_unstable();
        limits.dedup();
        let least = limits.partition_point(|limit| self.order(*limit).is_err());
        limits.get(least).copied()
    }
}

fn arc(from: usize, to: usize) -> (usize, Arc) {
    (from, Arc { to, until_complete: true })
}

/// Operations of all ranks, numbered through.
struct EventGraph {
    /// The number of each rank's first operation.
    first: Vec<usize>,
    operations: usize,
}

fn start(operation: usize) -> usize {
    2 * operation
}

fn completion(operation: usize) -> usize {
    2 * operation + 1
}

impl EventGraph {
    fn of(graphs: &[Graph]) -> Self {
        let mut operations = 0;
        let first = graphs
            .iter()
            .map(|graph| {
                operations += graph.vertices().len();
                operations - graph.vertices().len()
            })
            .collect();
        EventGraph { first, operations }
    }

    fn operation(&self, endpoint: &Endpoint) -> usize {
        self.first[endpoint.rank as usize] + endpoint.operation as usize
    }

    /// Adds the arcs of joins, with one more event for each join. Returns the total number of
    /// events.
    fn add_joins(&self, graphs: &[Graph], arcs: &mut Vec<(usize, Arc)>) -> usize {
        let mut joins = 0;
        for (graph, first) in graphs.iter().zip(&self.first) {
            for (number, (vertex, mode)) in joins::vertices(graph).enumerate() {
                // Between the starts and the completions, so that n ranks need 2 n arcs and not n².
                let join = 2 * self.operations + number;
                let operation = first + vertex.index();
                let contributes =
                    !matches!(mode, JoinMode::Broadcast { root } if root != graph.rank());
                if contributes {
                    arcs.push(arc(start(operation), join));
                }
                arcs.push(arc(join, completion(operation)));
                joins = joins.max(number + 1);
            }
        }
        2 * self.operations + joins
    }

    /// The operations along a cycle of events.
    fn places(&self, graphs: &[Graph], cycle: &[usize]) -> Vec<VertexLocation> {
        let events: Vec<usize> =
            cycle.iter().copied().filter(|event| event / 2 < self.operations).collect();
        let place = |operation: usize| {
            let rank = self.first.partition_point(|first| *first <= operation) - 1;
            VertexLocation::new(&graphs[rank], Vertex((operation - self.first[rank]) as u32))
        };
        without_detours(&events).into_iter().map(place).collect()
    }
}

/// The operations of a cycle of events, each once. An operation's start leads to its completion:
/// what lies between the two is a detour, and what lies between its completion and its start is a
/// cycle of its own.
fn without_detours(events: &[usize]) -> Vec<usize> {
    let mut operations: Vec<usize> = Vec::new();
    let mut place: HashMap<usize, (usize, usize)> = HashMap::new();
    for event in events.iter().copied() {
        let operation = event / 2;
        match place.get(&operation) {
            Some((index, first)) if *first == completion(operation) => {
                return operations.split_off(*index);
            }
            Some((index, _)) => {
                for dropped in operations.drain(index + 1..) {
                    place.remove(&dropped);
                }
            }
            None => {
                place.insert(operation, (operations.len(), event));
                operations.push(operation);
            }
        }
    }
    operations
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detours_are_left_out() {
        let events = [start(1), start(2), completion(1), start(3), completion(3), completion(4)];
        assert_eq!(without_detours(&events), [1, 3, 4]);
        let round = [start(9), completion(1), start(3), completion(3), start(1), completion(9)];
        assert_eq!(without_detours(&round), [1, 3]);
    }
}
