//! Communicators with neighbours, and the execution paths of their collectives.

use super::topology::{self, Nodes, SharedTopology};
use crate::call_form::CallForm;
use crate::communicator::Communicator;
use crate::counts::{Counts, digest};
use crate::error::{Result, argument};
use crate::link_key::LinkKey;
use crate::path::ExecutionPath;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::shape::{BufferShape, InPlaceRule};
use bytemuck::Pod;
use collectives::neighbor::{self, Neighbor, Neighborhood};
use collectives::{Algorithm, CollectiveError, Tuning, two_level};
use engine::flat::{Edge, EdgeKey, FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use goal::graph::Graph;
use std::collections::HashMap;
use std::sync::Arc;

/// A communicator with a directed graph of neighbours: the sources that send to this rank and the
/// destinations that it sends to (Hoefler and Träff: "Sparse collective operations for MPI", 2009).
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// // A ring: each rank receives the number of the previous one.
/// tradewind::local(5, |world| {
///     let rank = world.rank();
///     let size = world.size();
///     let ring = world.neighbors(&[(rank + size - 1) % size], &[(rank + 1) % size])?;
///     let mut before = [0];
///     ring.neighbor_alltoall(&[rank], &mut before)?;
///     assert_eq!(before, [(rank + size - 1) % size]);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Neighbors {
    pub(super) communicator: Communicator,
    pub(super) neighborhood: Neighborhood,
    edges: Arc<Edges>,
    /// Neighbours of all ranks, where a collective may need them.
    all: Arc<SharedTopology>,
    /// Number of the topology, unique in its communicator.
    number: u64,
}

/// A rank's edges, in the form that flat collectives take.
#[derive(Debug)]
struct Edges {
    sources: Arc<[Option<Edge>]>,
    /// Labels of the blocks for the destinations.
    labels: Arc<[EdgeKey]>,
}

impl Edges {
    fn of(neighborhood: &Neighborhood) -> Self {
        let mut seen: HashMap<(u32, u32), u32> = HashMap::new();
        let mut edge = |neighbor: &Neighbor| {
            let rank = neighbor.rank?;
            let tag = neighbor.tag;
            let next = seen.entry((rank, tag)).or_default();
            let number = *next;
            *next += 1;
            Some(Edge { rank, tag, number })
        };
        let label = |neighbor: &Neighbor| {
            neighbor.rank.map_or(EdgeKey::UNUSED, |rank| EdgeKey::new(rank, neighbor.tag))
        };
        Edges {
            sources: neighborhood.sources().iter().map(&mut edge).collect(),
            labels: neighborhood.destinations().iter().map(label).collect(),
        }
    }
}

impl Neighbors {
    pub(super) fn new(
        communicator: Communicator,
        neighborhood: Neighborhood,
        all: SharedTopology,
    ) -> Self {
        let edges = Arc::new(Edges::of(&neighborhood));
        let number = communicator.next_topology();
        Neighbors { communicator, neighborhood, edges, all: Arc::new(all), number }
    }

    /// Bytes of a block, computed from the lengths of both buffers.
    pub(super) fn block(&self, input: usize, blocks: usize, output: usize) -> Result<u64> {
        let sources = self.neighborhood.sources().len();
        let Some(bytes) = input.checked_div(blocks).or(output.checked_div(sources)) else {
            return Err(argument(
                "the number of neighbours",
                "none, so that the buffers do not tell the length of a block",
                "at least one, or the collective prepared with its _init call, which is told the length",
            ));
        };
        if input == bytes * blocks && output == bytes * sources {
            return Ok(bytes as u64);
        }
        Err(argument(
            "the length of a neighbour collective's buffers",
            format!("{input} and {output} bytes"),
            format!("{blocks} and {sources} blocks of equal length"),
        ))
    }

    /// The plan of a collective with blocks of equal size.
    pub(super) fn plan_equal<T: Pod>(
        &self,
        kind: CallKind,
        bytes: u64,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let (path, shape) = self.equal_blocks(kind, bytes)?;
        Ok(CollectivePlan::new(path, shape))
    }

    /// The plan of a collective with blocks of different sizes; each rank knows its own.
    pub(super) fn plan_different<T: Pod>(
        &self,
        kind: CallKind,
        sent: &[usize],
        received: &[usize],
        form: CallForm,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let destinations = self.neighborhood.destinations().len() as u32;
        let sources = self.neighborhood.sources().len() as u32;
        let blocks = if kind == CallKind::NeighborAllgatherv { 1 } else { destinations };
        let sent = Counts::of::<T>("the list of counts that are sent", sent, blocks)?;
        let received = Counts::of::<T>("the list of counts that are received", received, sources)?;
        let (path, shape) = self.different_blocks(kind, (&sent, &received), form)?;
        Ok(CollectivePlan::new(path, shape))
    }

    /// The path and the buffers of a collective with blocks of equal size.
    fn equal_blocks(&self, kind: CallKind, bytes: u64) -> Result<(ExecutionPath, BufferShape)> {
        let Neighbors { neighborhood, number, .. } = self;
        let algorithm = self.communicator.choose_neighbor()?;
        let combined = if algorithm == Algorithm::Direct {
            topology::grouping(&self.communicator, bytes)
        } else {
            None
        };
        // Part of the signature, so that ranks that combine blocks differently get a mismatch.
        let call = Signature::new(kind, bytes, *number ^ combined.map_or(0, Nodes::digest));
        let blocks = |neighbors: &[Neighbor]| {
            let all = bytes.checked_mul(neighbors.len() as u64);
            all.ok_or_else(|| {
                argument(
                    "the length of a block",
                    format!("{bytes} bytes"),
                    "one that 64 bits can count",
                )
            })
        };
        let output = blocks(neighborhood.sources())?;
        let (input, graph) = match kind {
            CallKind::NeighborAllgather => (bytes, neighbor::neighbor_allgather as BuildEqual),
            _ => (blocks(neighborhood.destinations())?, neighbor::neighbor_alltoall as BuildEqual),
        };
        let equal = vec![bytes; neighborhood.sources().len()];
        let path = match algorithm {
            Algorithm::Join if kind == CallKind::NeighborAllgather => {
                self.flat_path(call, &[bytes], equal)
            }
            Algorithm::Join => {
                self.flat_path(call, &vec![bytes; neighborhood.destinations().len()], equal)
            }
            _ => match combined {
                None => self.link_equal(call, bytes, graph)?,
                Some(nodes) => self.link_together(call, bytes, nodes)?,
            },
        };
        let in_place = InPlaceRule::Never;
        Ok((path, BufferShape { in_place, ..BufferShape::new(input, output) }))
    }

    /// The path and the buffers of a collective with blocks of different sizes.
    fn different_blocks(
        &self,
        kind: CallKind,
        (sent, received): (&Counts, &Counts),
        form: CallForm,
    ) -> Result<(ExecutionPath, BufferShape)> {
        let neighborhood = &self.neighborhood;
        let algorithm = self.communicator.choose_neighbor()?;
        let joins = algorithm == Algorithm::Join || self.communicator.joins_unknown_sizes(form);
        // Part of the signature, so that a blocking call that links gets a mismatch beside a
        // nonblocking one that joins.
        let call = Signature::new(kind, 0, self.number ^ (u64::from(joins) << 62));
        let shape = BufferShape {
            in_place: InPlaceRule::Never,
            ..BufferShape::new(sent.total, received.total)
        };
        if joins {
            let received = received.bytes.iter().copied();
            return Ok((self.flat_path(call, &sent.bytes, received), shape));
        }
        // If the sizes of another rank have changed, a rank with unchanged sizes links again, too.
        let sizes =
            self.communicator.allgather_word(digest(&[sent.digest(), received.digest()]), call)?;
        let path = self.communicator.path_of_own_graph(self.link_key(call, sizes), || {
            Ok(match kind {
                CallKind::NeighborAllgatherv => {
                    neighbor::neighbor_allgatherv(neighborhood, sent.total, &received.bytes)?
                }
                _ => neighbor::neighbor_alltoallv(neighborhood, &sent.bytes, &received.bytes)?,
            })
        })?;
        Ok((path, shape))
    }

    /// A flat collective in which each rank waits for its sources.
    fn flat_path(
        &self,
        call: Signature,
        sent: &[u64],
        received: impl IntoIterator<Item = u64>,
    ) -> ExecutionPath {
        let edges = &self.edges;
        let gathers =
            matches!(call.kind, CallKind::NeighborAllgather | CallKind::NeighborAllgatherv);
        let labels = (!gathers).then(|| Arc::clone(&edges.labels));
        let sources = Arc::clone(&edges.sources);
        let blocks =
            VariableBlocks::between_neighbors(sent.iter().copied(), received, sources, labels);
        ExecutionPath::Flat(FlatCollective {
            blocks: Some(Arc::new(blocks)),
            ..FlatCollective::new(Pattern::Neighbors, 0, call)
        })
    }

    /// A schedule with a message along each edge, in blocks of one size.
    fn link_equal(&self, call: Signature, bytes: u64, graph: BuildEqual) -> Result<ExecutionPath> {
        self.communicator.path(self.link_key(call, vec![bytes]), |rank| {
            let is_own = rank == self.communicator.rank();
            let own = if is_own { &self.neighborhood } else { self.all.neighborhood(rank)? };
            Ok(graph(own, bytes)?)
        })
    }

    /// The key of a cached schedule with a message along each edge.
    fn link_key(&self, call: Signature, sizes: Vec<u64>) -> LinkKey {
        LinkKey {
            call,
            algorithm: "direct",
            tuning: Tuning::default(),
            ranks_per_node: None,
            arguments: self.number,
            sizes,
        }
    }

    /// A schedule with a message from node to node.
    fn link_together(&self, call: Signature, bytes: u64, nodes: Nodes) -> Result<ExecutionPath> {
        let key = LinkKey {
            call,
            algorithm: "two-level direct",
            tuning: Tuning::default(),
            ranks_per_node: nodes.ranks_per_node(),
            arguments: self.number,
            sizes: vec![bytes],
        };
        let build = match call.kind {
            CallKind::NeighborAllgather => two_level::neighbor_allgather,
            _ => two_level::neighbor_alltoall,
        };
        let communicator = &self.communicator;
        let nodes = topology::nodes_of_ranks(communicator, nodes);
        communicator.path(key, |rank| Ok(build(rank, self.all.edges()?, &nodes, bytes)?))
    }
}

/// Builder of the graph of a collective with blocks of equal size.
type BuildEqual = fn(&Neighborhood, u64) -> Result<Graph, CollectiveError>;
