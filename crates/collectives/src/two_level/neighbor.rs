//! Neighbour collectives in two levels: what leaves a node for another goes in one message.

use crate::blocks::{Parts, merged};
use crate::builder::GraphBuilder;
use crate::member::Member;
use crate::neighbor::{Edge, Topology};
use crate::row::Row;
use crate::{CollectiveError, Sizes};
use goal::graph::{Access, Block, Graph};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// A [neighbour all-to-all](crate::neighbor::neighbor_alltoall) in which all blocks from the
/// ranks of one node to those of another form one message. `nodes` contains the node of each rank;
/// all ranks pass the same topology and the same nodes.
///
/// The leader of a node for another is the rank with most to send there, or to receive from there;
/// of several equal ones a different one for each other node. A block goes from its rank to the
/// sending leader, to the receiving leader, and to its destination; a single edge between two nodes
/// is one message as in one level, and two may be. Inside a node blocks go straight.
///
/// Bienz, Gropp, Olson: "Node aware sparse matrix–vector multiplication", Journal of Parallel and
/// Distributed Computing 130, 2019: the three steps.
///
/// # Errors
/// [`CollectiveError::RankOutOfRange`], [`CollectiveError::TooManyBytes`];
/// [`CollectiveError::SizesOfOtherRanks`] when there is not a node for each rank.
///
/// ```
/// use collectives::neighbor::{Grid, Neighborhood, Topology};
/// use collectives::two_level;
///
/// // Two rows of three ranks, each row a node; each rank has one neighbour in the other row, twice,
/// // and two in its own.
/// let grid = Grid::new(&[2, 3], &[true, true])?;
/// let own = |rank| Neighborhood::cartesian(&grid, rank);
/// let topology = Topology::new(&(0..6).map(own).collect::<Result<Vec<_>, _>>()?)?;
/// let graph = two_level::neighbor_alltoall(0, &topology, &[0, 0, 0, 1, 1, 1], 64)?;
/// // Send and receive with both neighbours in the row, one of which is also its leader, and at
/// // last the message from that leader.
/// assert_eq!(graph.vertices().len(), 5);
/// # Ok::<(), collectives::CollectiveError>(())
/// ```
pub fn neighbor_alltoall(
    rank: u32,
    topology: &Topology,
    nodes: &[u32],
    bytes: u64,
) -> Result<Graph, CollectiveError> {
    let item = |edge: &Edge| Item { from: edge.from, at: edge.destination, receivers: vec![*edge] };
    let items: Vec<Item> = topology.edges().iter().map(item).collect();
    Member::new(rank, topology.ranks())?;
    build(rank, topology, nodes, (bytes, topology.neighbors_of(rank).1), &items)
}

/// A [neighbour allgather](crate::neighbor::neighbor_allgather) in which all that the ranks of a
/// node have for those of another goes in one message, with each block once. Otherwise as
/// [`neighbor_alltoall`].
///
/// # Errors
/// As [`neighbor_alltoall`].
pub fn neighbor_allgather(
    rank: u32,
    topology: &Topology,
    nodes: &[u32],
    bytes: u64,
) -> Result<Graph, CollectiveError> {
    let mut items: BTreeMap<u32, Item> = BTreeMap::new();
    for edge in topology.edges() {
        let none = || Item { from: edge.from, at: 0, receivers: Vec::new() };
        items.entry(edge.from).or_insert_with(none).receivers.push(*edge);
    }
    build(rank, topology, nodes, (bytes, 1), &items.into_values().collect::<Vec<_>>())
}

/// A block and its receivers.
struct Item {
    from: u32,
    /// Which block of that rank's input it is.
    at: usize,
    receivers: Vec<Edge>,
}

/// The steps, which are the tags of their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DeliveryStep {
    /// Inside a node: to the leader for another node, and to receivers on the same node.
    Up,
    Between,
    /// From the receiving leader to the receivers.
    Down,
}

/// Messages by step, sender and receiver, with the numbers of the items in them. At most one of a
/// step for two ranks, with its items in the same order on both.
type Messages = BTreeMap<(DeliveryStep, u32, u32), BTreeSet<usize>>;

/// Builds this rank's part in delivering all items; its input is `given` blocks of so many bytes.
fn build(
    rank: u32,
    topology: &Topology,
    nodes: &[u32],
    (bytes, given): (u64, usize),
    items: &[Item],
) -> Result<Graph, CollectiveError> {
    let ranks = topology.ranks();
    let mut builder = GraphBuilder::new(rank, ranks)?;
    if nodes.len() != ranks as usize {
        return Err(CollectiveError::SizesOfOtherRanks { sizes: nodes.len(), ranks });
    }
    let input = builder.parts(Access::Input, &Sizes::equal(given as u32, bytes)?);
    let output =
        builder.parts(Access::Output, &Sizes::equal(topology.neighbors_of(rank).0 as u32, bytes)?);
    let messages = messages(rank, nodes, items);
    let places = places(&mut builder, (rank, bytes), items, &messages, (&input, &output))?;
    let block = |number: &usize| places[number];
    for ((step, from, to), numbers) in &messages {
        let blocks = merged(numbers.iter().map(block));
        if *from == rank {
            builder.send(blocks, *to, *step as u32);
        } else {
            builder.receive(blocks, *from, *step as u32);
        }
    }
    // Along parallel edges, and from a rank to itself, the same bytes are wanted at several places.
    for (number, place) in &places {
        for edge in items[*number].receivers.iter().filter(|edge| edge.to == rank) {
            let wanted = output.at(edge.source as u32);
            if wanted != *place {
                builder.copy(*place, wanted);
            }
        }
    }
    Ok(builder.finish())
}

/// The messages that this rank sends or receives.
fn messages(rank: u32, nodes: &[u32], items: &[Item]) -> Messages {
    let node = |rank: u32| nodes[rank as usize];
    let leaders = NodeLeaders::new(nodes, items);
    let mut messages = Messages::new();
    let mut goes = |step: DeliveryStep, from: u32, to: u32, number: usize| {
        if from != to && (from == rank || to == rank) {
            messages.entry((step, from, to)).or_default().insert(number);
        }
    };
    for (number, item) in items.iter().enumerate() {
        for edge in &item.receivers {
            let here = node(edge.from);
            let there = node(edge.to);
            if here == there {
                goes(DeliveryStep::Up, edge.from, edge.to, number);
                continue;
            }
            let (leader, hearer) = leaders.between(here, there, edge);
            goes(DeliveryStep::Up, edge.from, leader, number);
            goes(DeliveryStep::Between, leader, hearer, number);
            goes(DeliveryStep::Down, hearer, edge.to, number);
        }
    }
    messages
}

/// Location of each item that this rank has, receives or passes on: in its buffers, or else in the
/// scratchpad.
fn places(
    builder: &mut GraphBuilder,
    (rank, bytes): (u32, u64),
    items: &[Item],
    messages: &Messages,
    (input, output): (&Parts, &Parts),
) -> Result<BTreeMap<usize, Block>, CollectiveError> {
    let arriving = messages
        .iter()
        .filter(|((_, _, to), _)| *to == rank)
        .flat_map(|(_, numbers)| numbers.iter().copied());
    let own = (0..items.len()).filter(|number| items[*number].from == rank);
    let mut places = BTreeMap::new();
    let mut passed_on = Vec::new();
    for number in arriving.chain(own) {
        let item = &items[number];
        let wanted = item.receivers.iter().find(|edge| edge.to == rank);
        match wanted {
            _ if item.from == rank => places.insert(number, input.at(item.at as u32)),
            Some(edge) => places.insert(number, output.at(edge.source as u32)),
            None => {
                passed_on.push(number);
                None
            }
        };
    }
    passed_on.sort_unstable();
    let mut row = Row::new(builder, passed_on.len(), bytes)?;
    places.extend(passed_on.into_iter().map(|number| (number, row.next_block())));
    Ok(places)
}

/// The numbers of the items that each rank has to do with.
type Shares = BTreeMap<u32, BTreeSet<usize>>;

/// Items from one node to another.
#[derive(Default)]
struct Traffic {
    sent: Shares,
    received: Shares,
    /// The two ends of each message there would be in one level.
    ends: BTreeSet<(u32, u32)>,
}

/// The ranks that send and receive for their nodes, from one node to another.
struct NodeLeaders {
    between: HashMap<(u32, u32), (u32, u32)>,
}

impl NodeLeaders {
    fn new(nodes: &[u32], items: &[Item]) -> Self {
        let node = |rank: u32| nodes[rank as usize];
        let mut traffic: HashMap<(u32, u32), Traffic> = HashMap::new();
        let mut inside = HashSet::new();
        for (number, item) in items.iter().enumerate() {
            for edge in &item.receivers {
                if node(edge.from) == node(edge.to) {
                    inside.insert((edge.from, edge.to));
                    continue;
                }
                let traffic = traffic.entry((node(edge.from), node(edge.to))).or_default();
                traffic.sent.entry(edge.from).or_default().insert(number);
                traffic.received.entry(edge.to).or_default().insert(number);
                traffic.ends.insert((edge.from, edge.to));
            }
        }
        let leaders = |((here, there), traffic): ((u32, u32), Traffic)| {
            let pair = (most(&traffic.sent, there), most(&traffic.received, here));
            traffic.pays(pair, &inside).then_some(((here, there), pair))
        };
        NodeLeaders { between: traffic.into_iter().filter_map(leaders).collect() }
    }

    /// Sender and receiver of an edge between nodes: the leaders, or without leaders the ends of
    /// the edge.
    fn between(&self, here: u32, there: u32, edge: &Edge) -> (u32, u32) {
        self.between.get(&(here, there)).copied().unwrap_or((edge.from, edge.to))
    }
}

impl Traffic {
    /// Returns `true` if one message is better than one for each edge. Two that pass at the same
    /// time are as fast, unless putting them together takes at most one message more inside the
    /// nodes. What goes to the leader anyway takes a block along.
    fn pays(&self, (leader, _): (u32, u32), inside: &HashSet<(u32, u32)>) -> bool {
        let up =
            self.sent.keys().filter(|rank| **rank != leader && !inside.contains(&(**rank, leader)));
        self.ends.len() != 2 || up.count() + self.received.len() - 1 <= 1
    }
}

/// The rank with most items; of several another one for each other node.
fn most(shares: &Shares, other: u32) -> u32 {
    let largest = shares.values().map(BTreeSet::len).max().unwrap_or(0);
    let ranks: Vec<u32> =
        shares.iter().filter(|(_, items)| items.len() == largest).map(|(rank, _)| *rank).collect();
    ranks[other as usize % ranks.len()]
}
