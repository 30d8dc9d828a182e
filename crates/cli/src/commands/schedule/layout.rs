//! Layout of operations in a figure: the step in which each rank runs each of its operations.

use goal::graph::{Graph, Operation, Until};
use goal::matching::{Endpoint, pair};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// A rank's vertex.
pub(super) type Place = (usize, usize);

/// The messages, and the step of every vertex: a rank does one operation in each step, in the order
/// in which they become possible, a message takes a step, and ranks meet in the same step.
pub(super) struct Layout {
    /// Send and receive.
    pub(super) messages: Vec<(Place, Place)>,
    /// For each rank and vertex.
    pub(super) steps: Vec<Vec<usize>>,
    /// The number of steps.
    pub(super) length: usize,
}

impl Layout {
    /// For graphs without operations that wait for each other for ever.
    pub(super) fn new(graphs: &[Graph]) -> Self {
        let messages = messages(graphs);
        let mut plan = LayoutBuilder::new(graphs, &messages);
        while let Some(Reverse((earliest, rank, vertex))) = plan.possible.pop() {
            plan.come_to(graphs, (rank, vertex), earliest);
        }
        let length = plan.free.iter().copied().max().unwrap_or(0);
        Layout { messages, steps: plan.steps, length }
    }
}

/// Sends and receives that meet.
fn messages(graphs: &[Graph]) -> Vec<(Place, Place)> {
    let mut sends = Vec::new();
    let mut receives = Vec::new();
    for graph in graphs {
        for (vertex, entry) in graph.vertices().iter().enumerate() {
            let end = |peer, tag| Endpoint {
                rank: graph.rank(),
                operation: vertex as u32,
                peer,
                tag,
                bytes: 0,
            };
            match &entry.operation {
                Operation::Send { peer, tag, .. } => sends.push(end(Some(*peer), Some(*tag))),
                Operation::Receive { source, tag, .. } => receives.push(end(*source, *tag)),
                _ => {}
            }
        }
    }
    let place = |end: Endpoint| (end.rank as usize, end.operation as usize);
    pair(&sends, &receives)
        .pairs
        .into_iter()
        .map(|(send, receive)| (place(send), place(receive)))
        .collect()
}

/// The layout while it is made.
struct LayoutBuilder {
    steps: Vec<Vec<usize>>,
    /// Number of vertices and messages that each vertex waits for.
    missing: Vec<Vec<usize>>,
    /// The first step that they allow.
    earliest: Vec<Vec<usize>>,
    /// Vertices that wait for each vertex, and whether until it is complete.
    waiting: Vec<Vec<Vec<(usize, bool)>>>,
    receive_of: HashMap<Place, Place>,
    /// Each rank's first step in which it has nothing to do.
    free: Vec<usize>,
    /// Ranks that have arrived at a join; it is the same one for all, since no rank passes it
    /// before.
    met: Vec<Place>,
    possible: BinaryHeap<Reverse<(usize, usize, usize)>>,
}

impl LayoutBuilder {
    fn new(graphs: &[Graph], messages: &[(Place, Place)]) -> Self {
        let zeros = || {
            graphs.iter().map(|graph| vec![0; graph.vertices().len()]).collect::<Vec<Vec<usize>>>()
        };
        let mut missing = zeros();
        let mut waiting: Vec<Vec<Vec<(usize, bool)>>> =
            graphs.iter().map(|graph| vec![Vec::new(); graph.vertices().len()]).collect();
        for (rank, graph) in graphs.iter().enumerate() {
            for edge in graph.edges() {
                missing[rank][edge.after.index()] += 1;
                waiting[rank][edge.before.index()]
                    .push((edge.after.index(), edge.until == Until::Complete));
            }
        }
        // In a figure, a receive is where its message arrives; its start, to which ready messages
        // refer, is earlier.
        for (rank, graph) in graphs.iter().enumerate() {
            for (vertex, entry) in graph.vertices().iter().enumerate() {
                if matches!(entry.operation, Operation::Receive { .. }) {
                    let starters: Vec<usize> = waiting[rank][vertex]
                        .iter()
                        .filter(|(_, complete)| !complete)
                        .map(|(after, _)| *after)
                        .collect();
                    waiting[rank][vertex].retain(|(_, complete)| *complete);
                    starters.into_iter().for_each(|after| missing[rank][after] -= 1);
                }
            }
        }
        for (_, (rank, vertex)) in messages {
            missing[*rank][*vertex] += 1;
        }
        let possible = (missing.iter().enumerate())
            .flat_map(|(rank, counts)| {
                counts
                    .iter()
                    .enumerate()
                    .filter(|(_, count)| **count == 0)
                    .map(move |(vertex, _)| (rank, vertex))
            })
            .map(|(rank, vertex)| Reverse((0, rank, vertex)))
            .collect();
        let receive_of = messages.iter().copied().collect();
        let free = vec![0; graphs.len()];
        LayoutBuilder {
            steps: zeros(),
            missing,
            earliest: zeros(),
            waiting,
            receive_of,
            free,
            met: Vec::new(),
            possible,
        }
    }

    fn come_to(&mut self, graphs: &[Graph], place: Place, earliest: usize) {
        let (rank, vertex) = place;
        if !matches!(graphs[rank].vertices()[vertex].operation, Operation::Join { .. }) {
            return self.stand(place, earliest.max(self.free[rank]));
        }
        self.met.push(place);
        if self.met.len() == graphs.len() {
            let met = std::mem::take(&mut self.met);
            let together = met
                .iter()
                .map(|(rank, vertex)| self.earliest[*rank][*vertex].max(self.free[*rank]))
                .max();
            met.into_iter().for_each(|place| self.stand(place, together.unwrap_or(0)));
        }
    }

    /// Puts a vertex into a step and finds out what it makes possible.
    fn stand(&mut self, place: Place, step: usize) {
        let (rank, vertex) = place;
        self.steps[rank][vertex] = step;
        self.free[rank] = step + 1;
        for (after, _) in std::mem::take(&mut self.waiting[rank][vertex]) {
            self.release((rank, after), step + 1);
        }
        if let Some(receive) = self.receive_of.get(&place).copied() {
            self.release(receive, step + 1);
        }
    }

    fn release(&mut self, (rank, vertex): Place, earliest: usize) {
        self.earliest[rank][vertex] = self.earliest[rank][vertex].max(earliest);
        self.missing[rank][vertex] -= 1;
        if self.missing[rank][vertex] == 0 {
            self.possible.push(Reverse((self.earliest[rank][vertex], rank, vertex)));
        }
    }
}

/// Returns true if a figure of one rank shows this vertex: its own and the other ends of its messages.
pub(super) fn shown(messages: &[(Place, Place)], rank: Option<u32>) -> impl Fn(Place) -> bool {
    let rank = rank.map(|rank| rank as usize);
    let others: std::collections::HashSet<Place> = (messages.iter())
        .filter(|(send, receive)| rank.is_some_and(|rank| send.0 == rank || receive.0 == rank))
        .flat_map(|(send, receive)| [*send, *receive])
        .collect();
    move |place| rank.is_none_or(|rank| place.0 == rank || others.contains(&place))
}
