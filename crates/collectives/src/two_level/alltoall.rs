//! All-to-all in two levels: one message from each node to each other.

use crate::alltoall::exchange::{self, Order};
use crate::alltoall::{Algorithm, DIRECT_ONES};
use crate::blocks::{Parts, merged};
use crate::drawing::{Drawing, Group};
use crate::row::Row;
use crate::{CollectiveError, Sizes};
use goal::graph::{Access, Block, Blocks, Graph};
use std::num::NonZeroU32;

/// From a rank to the one that speaks with a node, with what is for that node.
const UP: u32 = 0;
/// Between the ranks that speak for their nodes.
const BETWEEN: u32 = 1;
/// From the rank that spoke with a node, with what came from there.
const DOWN: u32 = 2;

/// An all-to-all in which every node sends every other node one message: R² blocks, where in one
/// level R² messages go between two nodes of R ranks each. The algorithm says in which order nodes
/// turn to each other. Buffers are those of [`Algorithm::graph`].
///
/// In a node the rank at position h mod R speaks with node h. One leader for all nodes would send
/// and receive everything that leaves its node or arrives there, one message after the other, while
/// the others wait. Each rank gives each speaker its blocks for all nodes of that speaker in one
/// message, and gets what came from them in another, which also brings the speaker's own block. So
/// a rank sends at most 2(R − 1) messages inside its node and ⌈(nodes − 1) / R⌉ to others, and the
/// longest way is three messages.
///
/// Bienz, Gropp, Olson: "Node aware sparse matrix–vector multiplication", Journal of Parallel and
/// Distributed Computing 130, 2019: three steps, and the nodes to be spoken with spread over the
/// ranks of each. Träff, Rougier: "MPI Collectives and Datatypes for Hierarchical All-to-all
/// Communication", EuroMPI/ASIA 2014: nothing is packed. Here scatter/gather lists name each block
/// where it lies, a speaker's own in its input and output; all others lie in scratchpads twice on
/// their way, and once more the bytes cost what messages save when blocks are long.
///
/// # Errors
/// As [`Algorithm::graph`]; for an algorithm that passes on others' blocks, and for a join,
/// [`CollectiveError::HasNoLevels`].
///
/// ```
/// use collectives::{alltoall::Algorithm, two_level};
/// use std::num::NonZeroU32;
///
/// // Two nodes of two ranks. Rank 1 speaks with the other node: it hears from rank 0 what that one has for it, exchanges
/// // a message with rank 2, and tells rank 0.
/// let two = NonZeroU32::new(2).expect("more than nothing");
/// let graph = two_level::alltoall(1, 4, two, 16, Algorithm::RotatedDirect)?;
/// assert_eq!(graph.vertices().len(), 5); // a copy, up, between (there and back), down
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn alltoall(
    rank: u32,
    ranks: u32,
    ranks_per_node: NonZeroU32,
    bytes: u64,
    algorithm: Algorithm,
) -> Result<Graph, CollectiveError> {
    let (name, instead) = (algorithm.name(), DIRECT_ONES);
    let order =
        Order::of(algorithm).ok_or(CollectiveError::HasNoLevels { algorithm: name, instead })?;
    let mut drawing = Drawing::new(rank, ranks)?;
    let sizes = Sizes::equal(ranks, bytes)?;
    let input = drawing.parts(Access::Input, &sizes);
    let output = drawing.parts(Access::Output, &sizes);
    drawing.copy(input.at(rank), output.at(rank));
    let nodes = Nodes { ranks, per_node: ranks_per_node.get() };
    let speaking = Speaking::new(&mut drawing, nodes, bytes, &input, &output)?;
    let (here, there) = (nodes.ranks_of(speaking.node, rank), nodes.speakers_with(speaking.node));
    drawing.within(here, |drawing| speaking.up(drawing));
    drawing.within(there, |drawing| speaking.between(drawing, order));
    drawing.within(here, |drawing| speaking.down(drawing));
    Ok(drawing.finish())
}

/// Nodes of so many ranks; the last may be smaller.
#[derive(Clone, Copy)]
struct Nodes {
    ranks: u32,
    per_node: u32,
}

impl Nodes {
    fn count(self) -> u32 {
        self.ranks.div_ceil(self.per_node)
    }

    fn first(self, node: u32) -> u32 {
        node * self.per_node
    }

    fn size(self, node: u32) -> u32 {
        self.per_node.min(self.ranks - self.first(node))
    }

    /// The position in a node of the rank that speaks with another.
    fn speaker(self, node: u32, other: u32) -> u32 {
        other % self.size(node)
    }

    fn ranks_of(self, node: u32, rank: u32) -> Group {
        let first = self.first(node);
        Group { first, stride: 1, count: self.size(node), replaced: None, position: rank - first }
    }

    /// The ranks that speak with a node, by their nodes. All nodes but the last have as many ranks.
    fn speakers_with(self, node: u32) -> Group {
        let last = self.count() - 1;
        let replaced = Some((last, self.first(last) + self.speaker(last, node)));
        Group {
            first: node % self.per_node,
            stride: self.per_node,
            count: last + 1,
            replaced,
            position: node,
        }
    }
}

/// A node that this rank speaks with, and where what travels between its node and that one waits.
struct Partner {
    node: u32,
    /// What each rank here has for the ranks there.
    held: Vec<Block>,
    /// What each rank here gets from the ranks there.
    arrived: Vec<Block>,
}

/// Who says what.
struct Speaking<'a> {
    nodes: Nodes,
    bytes: u64,
    input: &'a Parts,
    output: &'a Parts,
    node: u32,
    first: u32,
    /// The position in the node.
    position: u32,
    /// The nodes that each rank of the node speaks with.
    spoken_with: Vec<Vec<u32>>,
    /// Those that this rank speaks with.
    partners: Vec<Partner>,
}

impl<'a> Speaking<'a> {
    fn new(
        drawing: &mut Drawing,
        nodes: Nodes,
        bytes: u64,
        input: &'a Parts,
        output: &'a Parts,
    ) -> Result<Self, CollectiveError> {
        let rank = drawing.member().rank();
        let node = rank / nodes.per_node;
        let (first, size) = (nodes.first(node), nodes.size(node));
        let mut spoken_with = vec![Vec::new(); size as usize];
        for other in (0..nodes.count()).filter(|other| *other != node) {
            spoken_with[nodes.speaker(node, other) as usize].push(other);
        }
        let mut speaking = Speaking {
            nodes,
            bytes,
            input,
            output,
            node,
            first,
            position: rank - first,
            spoken_with,
            partners: Vec::new(),
        };
        for other in speaking.spoken_with[speaking.position as usize].clone() {
            let held = speaking.places(drawing, other, input)?;
            let arrived = speaking.places(drawing, other, output)?;
            speaking.partners.push(Partner { node: other, held, arrived });
        }
        Ok(speaking)
    }

    /// A place for each rank of the node with a block for each rank of another: the scratchpad for
    /// others, this rank's own in its buffer.
    fn places(
        &self,
        drawing: &mut Drawing,
        other: u32,
        own: &Parts,
    ) -> Result<Vec<Block>, CollectiveError> {
        let (here, there) = (self.spoken_with.len() - 1, self.nodes.size(other));
        let mut row = Row::new(drawing, here, u64::from(there) * self.bytes)?;
        let own = self.of_node(own, other);
        let place = |position| if position == self.position { own } else { row.next_block() };
        Ok((0..=here as u32).map(place).collect())
    }

    /// The blocks of a node's ranks, which are one.
    fn of_node(&self, parts: &Parts, node: u32) -> Block {
        parts.range(self.nodes.first(node), self.nodes.size(node))
    }

    /// Whether a rank of the node speaks with any other node.
    fn speaks(&self, position: u32) -> bool {
        !self.spoken_with[position as usize].is_empty()
    }

    /// Everybody gives the speakers what is for their nodes. A block for a rank of the same node
    /// waits for the message that the rank who has it will send down, and goes up only if there
    /// will be none.
    fn up(&self, drawing: &mut Drawing) {
        let goes = |from: u32, to: u32| self.speaks(to) || !self.speaks(from);
        let own = |parts: &Parts, giver: u32, other: u32| {
            (!self.speaks(giver)).then(|| parts.at(self.first + other))
        };
        let sent = |to: u32| {
            let nodes =
                self.spoken_with[to as usize].iter().map(|node| self.of_node(self.input, *node));
            goes(self.position, to).then(|| merged(nodes.chain(own(self.input, self.position, to))))
        };
        let received = |from: u32| {
            let nodes = self.partners.iter().map(|partner| partner.held[from as usize]);
            goes(from, self.position).then(|| merged(nodes.chain(own(self.output, from, from))))
        };
        exchange::draw(drawing, (Order::Rotated, UP), sent, received);
    }

    /// What is for each rank there comes one after the other, in the order of the ranks here: so it
    /// lies where it arrives as it will in the output.
    fn between(&self, drawing: &mut Drawing, order: Order) {
        let partner = |node: u32| self.partners.iter().find(|partner| partner.node == node);
        let sent = |node: u32| {
            let held = &partner(node)?.held;
            let for_one = |there: u32| {
                let start = u64::from(there) * self.bytes;
                held.iter().map(move |block| block.part(start, self.bytes))
            };
            Some(merged((0..self.nodes.size(node)).flat_map(for_one)))
        };
        let received =
            |node: u32| -> Option<Blocks> { Some(merged(partner(node)?.arrived.iter().copied())) };
        exchange::draw(drawing, (order, BETWEEN), sent, received);
    }

    /// Every speaker gives the others what came for them, and its own block.
    fn down(&self, drawing: &mut Drawing) {
        let sent = |to: u32| {
            let nodes = self.partners.iter().map(|partner| partner.arrived[to as usize]);
            self.speaks(self.position)
                .then(|| merged([self.input.at(self.first + to)].into_iter().chain(nodes)))
        };
        let received = |from: u32| {
            let nodes =
                self.spoken_with[from as usize].iter().map(|node| self.of_node(self.output, *node));
            self.speaks(from)
                .then(|| merged([self.output.at(self.first + from)].into_iter().chain(nodes)))
        };
        exchange::draw(drawing, (Order::Rotated, DOWN), sent, received);
    }
}
