//! Communicators with neighbours, and the execution paths of their collectives.

use super::topology::{self, Nodes, SharedTopology};
use crate::buffer_error::Elements;
use crate::communicator::Communicator;
use crate::counts::Counts;
use crate::error::{Result, argument, does_not_fit};
use crate::forms::CallStart;
use crate::internode::unattended;
use crate::link_key::LinkKey;
use crate::path::ExecutionPath;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::reduction::FoldOrder;
use crate::shape::{BufferShape, InPlaceRule, OwnBlock};
use bytemuck::Pod;
use collectives::neighbor::{self, Neighbor, Neighborhood};
use collectives::{Algorithm, CollectiveError, Tuning, two_level};
use engine::flat::{Edge, EdgeKey, FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use goal::graph::Graph;
use shm::biased_mutex::BiasedMutex;
use std::any::Any;
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
    /// The handle that links: its schedules are dropped with the topology.
    linking: Communicator,
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
    /// Positions of the edges from the rank to itself among the destinations and among the sources;
    /// `None` if the lists do not agree, which the engine reports.
    own: Option<Vec<(usize, usize)>>,
    kept: BiasedMutex<Option<KeptPlan>>,
}

/// The plan of the last flat collective with blocks of equal size. Programs repeat their exchanges,
/// and to make a plan takes longer than a small exchange.
#[derive(Debug)]
struct KeptPlan {
    kind: CallKind,
    bytes: u64,
    /// A [`CollectivePlan`] for the elements of that call.
    plan: Arc<dyn Any + Send + Sync>,
}

/// A plan with an input and an output.
type Plan<T> = CollectivePlan<TwoBuffers<T>>;

impl Edges {
    fn of(rank: u32, neighborhood: &Neighborhood) -> Self {
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
        let sources: Arc<[_]> = neighborhood.sources().iter().map(&mut edge).collect();
        let labels: Arc<[_]> = neighborhood.destinations().iter().map(label).collect();
        let own = Edges::own_edges(rank, &labels, &sources);
        Edges { sources, labels, own, kept: BiasedMutex::new(None) }
    }

    /// The n-th block of the rank for itself with a tag is its n-th block from itself with this
    /// tag.
    fn own_edges(
        rank: u32,
        labels: &[EdgeKey],
        sources: &[Option<Edge>],
    ) -> Option<Vec<(usize, usize)>> {
        let find = |edge: &Edge| {
            let key = EdgeKey::new(rank, edge.tag);
            let with_key = labels.iter().enumerate().filter(|(_, label)| **label == key);
            with_key.map(|(number, _)| number).nth(edge.number as usize)
        };
        let own = sources.iter().enumerate().filter_map(|(number, edge)| {
            edge.as_ref().filter(|edge| edge.rank == rank).map(|edge| (find(edge), number))
        });
        own.map(|(from, to)| Some((from?, to))).collect()
    }
}

impl Neighbors {
    pub(super) fn new(
        communicator: Communicator,
        neighborhood: Neighborhood,
        all: SharedTopology,
    ) -> Self {
        let edges = Arc::new(Edges::of(communicator.rank(), &neighborhood));
        let number = communicator.next_topology();
        let linking = communicator.with_own_caches();
        Neighbors { communicator, linking, neighborhood, edges, all: Arc::new(all), number }
    }

    /// The plan of a collective with blocks of equal size.
    pub(super) fn plan_equal<T: Pod>(
        &self,
        kind: CallKind,
        start: CallStart,
    ) -> Result<Arc<Plan<T>>> {
        let bytes = match start {
            CallStart::Prepared { block } => block,
            CallStart::Buffers { input, output, .. } => {
                let [input, output] = [input, output].map(|bytes| bytes.unwrap_or(0) as usize);
                self.block_bytes::<T>(kind, input, output)?
            }
        };
        let is_kept = |kept: &&KeptPlan| kept.kind == kind && kept.bytes == bytes;
        let kept = self.edges.kept.lock().as_ref().filter(is_kept).map(|kept| kept.plan.clone());
        if let Some(Ok(plan)) = kept.map(Arc::downcast) {
            return Ok(plan);
        }
        let (path, shape, own) = self.equal_blocks(kind, bytes)?;
        let plan = CollectivePlan::with_own_edges(path, shape, FoldOrder::Common, own);
        let plan = Arc::new(plan);
        // The communicator keeps linked schedules. Whether one is there must not depend on what this
        // rank alone keeps.
        if matches!(plan.path, ExecutionPath::Flat(_)) {
            *self.edges.kept.lock() = Some(KeptPlan { kind, bytes, plan: plan.clone() });
        }
        Ok(plan)
    }

    /// The plan of an all-to-all with blocks of different sizes; each rank knows its own.
    #[inline(always)]
    pub(super) fn plan_alltoallv<T: Pod>(
        &self,
        start: CallStart,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Plan<T>> {
        self.plan_different(CallKind::NeighborAlltoallv, start, sent, received)
    }

    /// The plan of an allgather with blocks of different sizes; each rank knows its own.
    pub(super) fn plan_allgatherv<T: Pod>(
        &self,
        start: CallStart,
        received: &[usize],
    ) -> Result<Plan<T>> {
        let bytes = match start {
            CallStart::Prepared { block } => block,
            CallStart::Buffers { input, .. } => input.unwrap_or(0),
        };
        let sent = bytes as usize / size_of::<T>().max(1);
        self.plan_different(CallKind::NeighborAllgatherv, start, &[sent], received)
    }

    fn plan_different<T: Pod>(
        &self,
        kind: CallKind,
        start: CallStart,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Plan<T>> {
        let destinations = self.neighborhood.destinations().len() as u32;
        let sources = self.neighborhood.sources().len() as u32;
        let blocks = if kind == CallKind::NeighborAllgatherv { 1 } else { destinations };
        let sent = Counts::of::<T>(kind, "the list of sent counts", sent, blocks)?;
        let received = Counts::of::<T>(kind, "the list of received counts", received, sources)?;
        let (path, shape, own) = self.different_blocks(kind, (&sent, &received), start)?;
        Ok(CollectivePlan::with_own_edges(path, shape, FoldOrder::Common, own))
    }

    /// Bytes of a block of elements `T`, computed from the lengths of both buffers.
    fn block_bytes<T>(&self, kind: CallKind, input: usize, output: usize) -> Result<u64> {
        let blocks = match kind {
            CallKind::NeighborAllgather => 1,
            _ => self.neighborhood.destinations().len(),
        };
        let sources = self.neighborhood.sources().len();
        let Some(bytes) = input.checked_div(blocks).or(output.checked_div(sources)) else {
            return Err(argument(
                "the number of neighbours",
                "none, so that the buffers do not determine the length of a block",
                "at least one, or the collective prepared with its _init call, which takes the length",
            ));
        };
        if input == bytes * blocks && output == bytes * sources {
            return Ok(bytes as u64);
        }
        let elements = |bytes| Elements { bytes: bytes as u64, each: size_of::<T>() };
        if input != bytes * blocks {
            let found = format!("has {} beside an output of {}", elements(input), elements(output));
            let expected = format!("have {blocks} blocks of equal length");
            return Err(does_not_fit(kind, "the input", found, expected));
        }
        let found = format!("has {} beside an input of {}", elements(output), elements(input));
        let expected = format!("have {}, {sources} blocks", elements(bytes * sources));
        Err(does_not_fit(kind, "the output", found, expected))
    }

    /// The path and the buffers of a collective with blocks of equal size.
    fn equal_blocks(&self, kind: CallKind, bytes: u64) -> Result<NeighborPath> {
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
        let (path, own) = match algorithm {
            Algorithm::Join if kind == CallKind::NeighborAllgather => {
                self.flat_path(call, &[bytes], equal, true)
            }
            Algorithm::Join => {
                self.flat_path(call, &vec![bytes; neighborhood.destinations().len()], equal, true)
            }
            _ => match combined {
                None => (self.link_equal(call, bytes, graph)?, None),
                Some(nodes) => (self.link_together(call, bytes, nodes)?, None),
            },
        };
        let in_place = InPlaceRule::Never;
        Ok((path, BufferShape { in_place, ..BufferShape::new(input, output) }, own))
    }

    /// The path and the buffers of a collective with blocks of different sizes.
    fn different_blocks(
        &self,
        kind: CallKind,
        (sent, received): (&Counts, &Counts),
        start: CallStart,
    ) -> Result<NeighborPath> {
        let neighborhood = &self.neighborhood;
        // Only its check: no algorithm takes other sizes than those of this rank.
        self.communicator.choose_neighbor()?;
        let shape = BufferShape {
            in_place: InPlaceRule::Never,
            ..BufferShape::new(sent.total, received.total)
        };
        let call = Signature::new(kind, 0, self.number);
        let Some(internode) = self.communicator.internode() else {
            let received = received.bytes.iter().copied();
            let is_kept = matches!(start, CallStart::Prepared { .. });
            let (path, own) = self.flat_path(call, &sent.bytes, received, is_kept);
            return Ok((path, shape, own));
        };
        let key = self.link_key(call, [&sent.bytes[..], &received.bytes[..]].concat());
        let path = self.linking.path_of_own_sizes(internode, key, true, || {
            Ok(match kind {
                CallKind::NeighborAllgatherv => {
                    neighbor::neighbor_allgatherv(neighborhood, sent.total, &received.bytes)?
                }
                _ => neighbor::neighbor_alltoallv(neighborhood, &sent.bytes, &received.bytes)?,
            })
        })?;
        Ok((path, shape, None))
    }

    /// A flat collective in which each rank waits for its sources, and the blocks of the rank for
    /// itself that it leaves to the caller.
    fn flat_path(
        &self,
        call: Signature,
        sent: &[u64],
        received: impl IntoIterator<Item = u64>,
        is_kept: bool,
    ) -> (ExecutionPath, Option<Arc<[OwnBlock]>>) {
        let edges = &self.edges;
        let gathers =
            matches!(call.kind, CallKind::NeighborAllgather | CallKind::NeighborAllgatherv);
        let sources = Arc::clone(&edges.sources);
        let labels = Arc::clone(&edges.labels);
        let blocks = match (gathers, sent) {
            (true, [sent]) => {
                VariableBlocks::gathered_from_neighbors(*sent, received, sources, labels)
            }
            _ => {
                let sent = sent.iter().copied();
                VariableBlocks::between_neighbors(sent, received, sources, labels)
            }
        };
        let own = self.own_blocks(&blocks, is_kept).filter(|_| !gathers);
        let flat = FlatCollective {
            blocks: Some(Arc::new(blocks)),
            leaves_own: own.is_some(),
            ..FlatCollective::new(Pattern::Neighbors, 0, call)
        };
        (ExecutionPath::Flat(flat), own)
    }

    /// The blocks of the rank for itself, if they are long or the plan is kept, and if they have the
    /// same lengths in both buffers. Otherwise they are staged as all others, and the engine
    /// reports different lengths.
    fn own_blocks(&self, blocks: &VariableBlocks, is_kept: bool) -> Option<Arc<[OwnBlock]>> {
        /// Bytes below which a list of the blocks for one call costs more than to stage them.
        const SHORTEST: u64 = 4096;
        let own = self.edges.own.as_ref()?.iter().map(|(from, to)| {
            let sent = blocks.sent_block(*from);
            let received = blocks.received_block(*to);
            let bytes = sent.end - sent.start;
            let own = OwnBlock { from: sent.start, to: received.start, bytes };
            (bytes == received.end - received.start).then_some(own)
        });
        let total = own.clone().flatten().fold(0u64, |sum, own| sum.saturating_add(own.bytes));
        if !is_kept && total < SHORTEST {
            return None;
        }
        own.collect()
    }

    /// A schedule with a message along each edge, in blocks of one size.
    fn link_equal(&self, call: Signature, bytes: u64, graph: BuildEqual) -> Result<ExecutionPath> {
        let key = self.link_key(call, vec![bytes]);
        let own_graph = || Ok(graph(&self.neighborhood, bytes)?);
        // Not every rank has the neighbours of ranks on other nodes.
        if let Some(internode) = self.communicator.internode()
            && !unattended::needs_all_graphs(internode)
        {
            return self.linking.path_of_own_graph(internode, key, own_graph);
        }
        self.linking.path(key, |rank| match rank == self.communicator.rank() {
            true => own_graph(),
            false => Ok(graph(self.all.neighborhood(rank)?, bytes)?),
        })
    }

    /// The key of a cached schedule with a message along each edge.
    fn link_key(&self, call: Signature, sizes: Vec<u64>) -> LinkKey {
        LinkKey {
            call,
            algorithm: "direct",
            tuning: Tuning::default(),
            ranks_per_node: None,
            engine: None,
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
            engine: None,
            arguments: self.number,
            sizes: vec![bytes],
        };
        let build = match call.kind {
            CallKind::NeighborAllgather => two_level::neighbor_allgather,
            _ => two_level::neighbor_alltoall,
        };
        let nodes = topology::nodes_of_ranks(&self.communicator, nodes);
        self.linking.path(key, |rank| Ok(build(rank, self.all.edges()?, &nodes, bytes)?))
    }
}

/// Path and buffers of a collective, and the blocks that it leaves to the caller.
type NeighborPath = (ExecutionPath, BufferShape, Option<Arc<[OwnBlock]>>);

/// Builder of the graph of a collective with blocks of equal size.
type BuildEqual = fn(&Neighborhood, u64) -> Result<Graph, CollectiveError>;
