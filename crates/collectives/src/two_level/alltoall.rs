//! All-to-all in two levels: one message from each node to each other.

use crate::alltoall::DIRECT_ONES;
use crate::alltoall::exchange::{self, Order};
use crate::blocks::{Parts, merged};
use crate::builder::{GraphBuilder, Group};
use crate::row::Row;
use crate::{Algorithm, Collective, CollectiveError, Sizes};
use goal::graph::{Access, Block, Blocks, Graph};
use std::num::NonZeroU32;

/// From a rank to the leader for a node, with the blocks for that node.
const UP: u32 = 0;
/// Between leaders.
const BETWEEN: u32 = 1;
/// From the leader for a node, with the blocks from there.
const DOWN: u32 = 2;

/// An all-to-all in which every node sends every other node one message: R² blocks, where in one
/// level R² messages go between two nodes of R ranks each. The algorithm sets the order in which
/// nodes exchange. Buffers are those of [`alltoall::graph`](crate::alltoall::graph).
///
/// The rank at position h mod R of a node is its leader for node h. A single leader would send and
/// receive all messages of its node one after the other while the other ranks wait. Each rank sends
/// each leader its blocks for all nodes of that leader in one message, and receives the blocks from
/// them in another, which also contains the leader's own block. A rank therefore sends at most
/// 2(R − 1) messages inside its node and ⌈(nodes − 1) / R⌉ to others, and the longest path is three
/// messages.
///
/// Bienz, Gropp, Olson: "Node aware sparse matrix–vector multiplication", Journal of Parallel and
/// Distributed Computing 130, 2019: three steps, and the other nodes spread over the ranks of
/// each. Träff, Rougier: "MPI Collectives and Datatypes for Hierarchical All-to-all
/// Communication", EuroMPI/ASIA 2014: nothing is packed. Here scatter/gather lists name each block
/// where it lies, a leader's own in its input and output; all others are copied to scratchpads
/// twice, so for long blocks the copies cost as much as the saved messages.
///
/// # Errors
/// As [`alltoall::graph`](crate::alltoall::graph); for an algorithm that passes on others' blocks,
/// and for a join, [`CollectiveError::HasNoLevels`].
///
/// ```
/// use collectives::{Algorithm, two_level};
/// use std::num::NonZeroU32;
///
/// // Two nodes of two ranks. Rank 1 is the leader for the other node: it receives rank 0's blocks,
/// // exchanges a message with rank 2, and sends rank 0 the result.
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
    Collective::Alltoall.check_algorithm(algorithm)?;
    let name = algorithm.name();
    let instead = DIRECT_ONES;
    let order =
        Order::of(algorithm).ok_or(CollectiveError::HasNoLevels { algorithm: name, instead })?;
    let mut builder = GraphBuilder::new(rank, ranks)?;
    let sizes = Sizes::equal(ranks, bytes)?;
    let input = builder.parts(Access::Input, &sizes);
    let output = builder.parts(Access::Output, &sizes);
    builder.copy(input.at(rank), output.at(rank));
    let nodes = Nodes { ranks, per_node: ranks_per_node.get() };
    let exchange = LeaderExchange::new(&mut builder, nodes, bytes, &input, &output)?;
    let here = nodes.ranks_of(exchange.node, rank);
    let there = nodes.leaders_for(exchange.node);
    builder.within(here, |builder| exchange.up(builder));
    builder.within(there, |builder| exchange.between(builder, order));
    builder.within(here, |builder| exchange.down(builder));
    Ok(builder.finish())
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

    /// The position in a node of its leader for another.
    fn leader(self, node: u32, other: u32) -> u32 {
        other % self.size(node)
    }

    fn ranks_of(self, node: u32, rank: u32) -> Group {
        let first = self.first(node);
        Group { first, stride: 1, count: self.size(node), replaced: None, position: rank - first }
    }

    /// The leaders for a node, by their nodes. All nodes but the last have as many ranks.
    fn leaders_for(self, node: u32) -> Group {
        let last = self.count() - 1;
        let replaced = Some((last, self.first(last) + self.leader(last, node)));
        Group {
            first: node % self.per_node,
            stride: self.per_node,
            count: last + 1,
            replaced,
            position: node,
        }
    }
}

/// A node with which this rank leads the exchange, and the blocks in both directions.
struct Partner {
    node: u32,
    /// Blocks of each rank here for the ranks there.
    held: Vec<Block>,
    /// Blocks for each rank here from the ranks there.
    arrived: Vec<Block>,
}

/// The exchange of one rank with its node and as a leader.
struct LeaderExchange<'a> {
    nodes: Nodes,
    bytes: u64,
    input: &'a Parts,
    output: &'a Parts,
    node: u32,
    first: u32,
    /// The position in the node.
    position: u32,
    /// The nodes for which each rank of the node is the leader.
    nodes_led: Vec<Vec<u32>>,
    /// Those of this rank.
    partners: Vec<Partner>,
}

impl<'a> LeaderExchange<'a> {
    fn new(
        builder: &mut GraphBuilder,
        nodes: Nodes,
        bytes: u64,
        input: &'a Parts,
        output: &'a Parts,
    ) -> Result<Self, CollectiveError> {
        let rank = builder.member().rank();
        let node = rank / nodes.per_node;
        let first = nodes.first(node);
        let size = nodes.size(node);
        let mut nodes_led = vec![Vec::new(); size as usize];
        for other in (0..nodes.count()).filter(|other| *other != node) {
            nodes_led[nodes.leader(node, other) as usize].push(other);
        }
        let mut exchange = LeaderExchange {
            nodes,
            bytes,
            input,
            output,
            node,
            first,
            position: rank - first,
            nodes_led,
            partners: Vec::new(),
        };
        for other in exchange.nodes_led[exchange.position as usize].clone() {
            let held = exchange.places(builder, other, input)?;
            let arrived = exchange.places(builder, other, output)?;
            exchange.partners.push(Partner { node: other, held, arrived });
        }
        Ok(exchange)
    }

    /// A place for each rank of the node with a block for each rank of another: the scratchpad for
    /// others, this rank's own in its buffer.
    fn places(
        &self,
        builder: &mut GraphBuilder,
        other: u32,
        own: &Parts,
    ) -> Result<Vec<Block>, CollectiveError> {
        let here = self.nodes_led.len() - 1;
        let there = self.nodes.size(other);
        let mut row = Row::new(builder, here, u64::from(there) * self.bytes)?;
        let own = self.of_node(own, other);
        let place = |position| if position == self.position { own } else { row.next_block() };
        Ok((0..=here as u32).map(place).collect())
    }

    /// The blocks of a node's ranks, which are one.
    fn of_node(&self, parts: &Parts, node: u32) -> Block {
        parts.range(self.nodes.first(node), self.nodes.size(node))
    }

    /// Returns `true` if a rank of the node is the leader for any other node.
    fn leads(&self, position: u32) -> bool {
        !self.nodes_led[position as usize].is_empty()
    }

    /// Each rank sends the leaders the blocks for their nodes. A block for a rank of the same node
    /// goes in the message down if its owner is a leader, otherwise in the message up.
    fn up(&self, builder: &mut GraphBuilder) {
        let goes = |from: u32, to: u32| self.leads(to) || !self.leads(from);
        let own = |parts: &Parts, owner: u32, other: u32| {
            (!self.leads(owner)).then(|| parts.at(self.first + other))
        };
        let sent = |to: u32| {
            let nodes =
                self.nodes_led[to as usize].iter().map(|node| self.of_node(self.input, *node));
            goes(self.position, to).then(|| merged(nodes.chain(own(self.input, self.position, to))))
        };
        let received = |from: u32| {
            let nodes = self.partners.iter().map(|partner| partner.held[from as usize]);
            goes(from, self.position).then(|| merged(nodes.chain(own(self.output, from, from))))
        };
        exchange::build(builder, (Order::Rotated, UP), sent, received);
    }

    /// Blocks are grouped by their rank there, in the order of the ranks here, so that they arrive
    /// in the order of the output.
    fn between(&self, builder: &mut GraphBuilder, order: Order) {
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
        exchange::build(builder, (order, BETWEEN), sent, received);
    }

    /// Each leader sends the others the blocks for them, and its own block.
    fn down(&self, builder: &mut GraphBuilder) {
        let sent = |to: u32| {
            let nodes = self.partners.iter().map(|partner| partner.arrived[to as usize]);
            self.leads(self.position)
                .then(|| merged([self.input.at(self.first + to)].into_iter().chain(nodes)))
        };
        let received = |from: u32| {
            let nodes =
                self.nodes_led[from as usize].iter().map(|node| self.of_node(self.output, *node));
            self.leads(from)
                .then(|| merged([self.output.at(self.first + from)].into_iter().chain(nodes)))
        };
        exchange::build(builder, (Order::Rotated, DOWN), sent, received);
    }
}
