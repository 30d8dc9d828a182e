//! Sparse neighbour collectives over any directed graph of ranks.

mod topology;

use crate::buffers::{Input, Output};
use crate::communicator::{Communicator, LinkKey};
use crate::counts::{Counts, digest};
use crate::error::{Result, argument};
use crate::path::ExecutionPath;
use crate::persistent::Persistent;
use crate::plan::{CollectivePlan, TwoBuffers};
use crate::request::Request;
use crate::shape::{BufferShape, InPlaceRule, bytes_of};
use bytemuck::Pod;
use collectives::neighbor::{self, Neighbor, Neighborhood};
use collectives::{Algorithm, CollectiveError, Tuning, two_level};
use engine::flat::{Edge, EdgeKey, FlatCollective, Pattern, VariableBlocks};
use engine::signature::{CallKind, Signature};
use goal::graph::Graph;
use std::collections::HashMap;
use std::sync::Arc;
use topology::{Nodes, SharedTopology};

/// A communicator with a directed graph of neighbours: the sources that send to this rank and the
/// destinations that it sends to (Hoefler and Träff: "Sparse collective operations for MPI", 2009).
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// // A ring: everyone gets the number of the rank before.
/// tradewind::local(5, |world| {
///     let (rank, size) = (world.rank(), world.size());
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
    communicator: Communicator,
    neighborhood: Neighborhood,
    edges: Arc<Edges>,
    /// Edges of all ranks, gathered by the first collective that needs them.
    gathered: Arc<SharedTopology>,
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
            let (rank, tag) = (neighbor.rank?, neighbor.tag);
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

impl Communicator {
    /// Makes a communicator with neighbours: `sources` send to this rank, which sends to
    /// `destinations`. Duplicates and this rank itself are allowed; the k-th edge from a to b in
    /// a's list matches the k-th edge from a in b's list.
    ///
    /// All ranks call it, in the same order as their other collectives; it does not wait for them.
    /// The collectives detect lists that do not match: all mismatches where a schedule is linked,
    /// else a missing block.
    ///
    /// On several nodes with several ranks each, short blocks of equal size from one node to
    /// another share a message, and a block of an allgather crosses once for all ranks of a node.
    /// The first such collective gathers the edges of all ranks. VariableBlocks of different sizes are sent
    /// separately, because only their two ends know the sizes.
    ///
    /// # Errors
    /// Fails if a neighbour is not a rank of the communicator.
    pub fn neighbors(&self, sources: &[u32], destinations: &[u32]) -> Result<Neighbors> {
        let neighborhood = Neighborhood::new(self.rank(), self.size(), sources, destinations)?;
        Ok(self.with_neighbors(neighborhood))
    }

    fn with_neighbors(&self, neighborhood: Neighborhood) -> Neighbors {
        let edges = Arc::new(Edges::of(&neighborhood));
        let (communicator, number) = (self.clone(), self.next_topology());
        Neighbors { communicator, neighborhood, edges, gathered: Arc::default(), number }
    }

    /// Makes a grid of ranks. The neighbours are, dimension by dimension, the previous and the next
    /// rank. Rank 0 is at the origin, and the last dimension varies fastest.
    ///
    /// # Errors
    /// Fails if the product of the dimensions is not the number of ranks, or the two lists have
    /// different lengths.
    pub fn cartesian(&self, dimensions: &[u32], periodic: &[bool]) -> Result<Neighbors> {
        let neighborhood = Neighborhood::cartesian(dimensions, periodic, self.rank())?;
        if neighborhood.ranks() != self.size() {
            let found = format!("{} ranks", neighborhood.ranks());
            return Err(argument(
                "the product of the dimensions",
                found,
                format!("{} ranks", self.size()),
            ));
        }
        Ok(self.with_neighbors(neighborhood))
    }
}

impl Neighbors {
    /// The underlying communicator.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Ranks that send to this one, in the order of the blocks of an output; `None` beyond the edge
    /// of a grid.
    pub fn sources(&self) -> Vec<Option<u32>> {
        self.neighborhood.sources().iter().map(|neighbor| neighbor.rank).collect()
    }

    /// Ranks that this one sends to, in the order of the blocks of an input; `None` beyond the edge
    /// of a grid.
    pub fn destinations(&self) -> Vec<Option<u32>> {
        self.neighborhood.destinations().iter().map(|neighbor| neighbor.rank).collect()
    }

    /// Sends a block to every destination and receives one from every source. VariableBlocks of neighbours
    /// beyond the edge of a grid keep their values.
    ///
    /// Shapes: the input has one block of n elements for each destination, the output one for each
    /// source, with the same n on all ranks.
    ///
    /// # Errors
    /// Fails if a length does not fit, or a rank is gone or in another collective.
    pub fn neighbor_alltoall<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
    ) -> Result<()> {
        let bytes = self.block(
            input.bytes().len(),
            self.neighborhood.destinations().len(),
            size_of_val(output),
        )?;
        self.plan_equal::<T>(CallKind::NeighborAlltoall, bytes)?.run(
            &self.communicator,
            input,
            output,
        )
    }

    /// Starts a [`neighbor_alltoall`](Self::neighbor_alltoall).
    ///
    /// # Errors
    /// Fails if a length does not fit or the schedule cannot be linked. Never waits once linked.
    pub fn ineighbor_alltoall<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let destinations = self.neighborhood.destinations().len();
        let bytes = self.block(input.bytes().len(), destinations, output.bytes().len())?;
        self.plan_equal::<T>(CallKind::NeighborAlltoall, bytes)?.start(
            &self.communicator,
            input,
            output,
        )
    }

    /// Prepares a persistent neighbor_alltoall of `count` elements a neighbour.
    ///
    /// # Errors
    /// The errors of [`ineighbor_alltoall`](Self::ineighbor_alltoall).
    pub fn neighbor_alltoall_init<T: Pod>(
        &self,
        count: usize,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let plan = self.plan_equal::<T>(CallKind::NeighborAlltoall, bytes_of::<T>(count)?)?;
        Ok(Persistent::new(&self.communicator, plan))
    }

    /// Sends a block to every destination and receives one from every source; each may have another
    /// length.
    ///
    /// Shapes: `sent` has the number of elements for each destination and `received` that from each
    /// source; blocks follow each other without gaps. A neighbour beyond the edge of a grid also
    /// has a block.
    ///
    /// ```
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // A ring in which rank r passes on r elements.
    /// tradewind::local(3, |world| {
    ///     let (rank, before) = (world.rank(), (world.rank() + 2) % 3);
    ///     let ring = world.neighbors(&[before], &[(rank + 1) % 3])?;
    ///     let mut got = vec![9; before as usize];
    ///     ring.neighbor_alltoallv(&vec![rank; rank as usize], &[rank as usize], &mut got, &[before as usize])?;
    ///     assert_eq!(got, vec![before; before as usize]);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a length does not fit, a block is longer or shorter than its receiver expects, or a
    /// rank is gone or in another collective.
    pub fn neighbor_alltoallv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        sent: &[usize],
        output: &mut [T],
        received: &[usize],
    ) -> Result<()> {
        let plan = self.plan_different::<T>(CallKind::NeighborAlltoallv, sent, received)?;
        plan.run(&self.communicator, input, output)
    }

    /// Starts a [`neighbor_alltoallv`](Self::neighbor_alltoallv). Never waits with the algorithm
    /// `join`; with `direct` the ranks first agree that their sizes are those of the linked
    /// schedule.
    ///
    /// # Errors
    /// The errors of [`neighbor_alltoallv`](Self::neighbor_alltoallv).
    pub fn ineighbor_alltoallv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        sent: &[usize],
        output: O,
        received: &[usize],
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let plan = self.plan_different::<T>(CallKind::NeighborAlltoallv, sent, received)?;
        plan.start(&self.communicator, input, output)
    }

    /// Prepares a persistent neighbor_alltoallv of these numbers of elements.
    ///
    /// # Errors
    /// The errors of [`neighbor_alltoallv`](Self::neighbor_alltoallv).
    pub fn neighbor_alltoallv_init<T: Pod>(
        &self,
        sent: &[usize],
        received: &[usize],
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let plan = self.plan_different::<T>(CallKind::NeighborAlltoallv, sent, received)?;
        Ok(Persistent::new(&self.communicator, plan))
    }

    /// Sends the same input to every destination and receives one block from every source.
    ///
    /// Shapes: the input has n elements, the output n for each source, with the same n on all
    /// ranks.
    ///
    /// # Errors
    /// Fails if a length does not fit, or a rank is gone or in another collective.
    pub fn neighbor_allgather<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
    ) -> Result<()> {
        let bytes = self.block(input.bytes().len(), 1, size_of_val(output))?;
        self.plan_equal::<T>(CallKind::NeighborAllgather, bytes)?.run(
            &self.communicator,
            input,
            output,
        )
    }

    /// Starts a [`neighbor_allgather`](Self::neighbor_allgather).
    ///
    /// # Errors
    /// Fails if a length does not fit or the schedule cannot be linked. Never waits once linked.
    pub fn ineighbor_allgather<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        mut output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let bytes = self.block(input.bytes().len(), 1, output.bytes().len())?;
        self.plan_equal::<T>(CallKind::NeighborAllgather, bytes)?.start(
            &self.communicator,
            input,
            output,
        )
    }

    /// Prepares a persistent neighbor_allgather of `count` elements.
    ///
    /// # Errors
    /// The errors of [`ineighbor_allgather`](Self::ineighbor_allgather).
    pub fn neighbor_allgather_init<T: Pod>(
        &self,
        count: usize,
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let plan = self.plan_equal::<T>(CallKind::NeighborAllgather, bytes_of::<T>(count)?)?;
        Ok(Persistent::new(&self.communicator, plan))
    }

    /// Sends the same input to every destination and receives one block from every source; each may
    /// have another length.
    ///
    /// Shapes: `received` has the number of elements from each source.
    ///
    /// # Errors
    /// The errors of [`neighbor_alltoallv`](Self::neighbor_alltoallv).
    pub fn neighbor_allgatherv<'i, T: Pod>(
        &self,
        input: impl Input<'i, T, Back = ()>,
        output: &mut [T],
        received: &[usize],
    ) -> Result<()> {
        let sent = [input.bytes().len() / size_of::<T>().max(1)];
        let plan = self.plan_different::<T>(CallKind::NeighborAllgatherv, &sent, received)?;
        plan.run(&self.communicator, input, output)
    }

    /// Starts a [`neighbor_allgatherv`](Self::neighbor_allgatherv). Never waits with the algorithm
    /// `join`; with `direct` the ranks first agree that their sizes are those of the linked
    /// schedule.
    ///
    /// # Errors
    /// The errors of [`neighbor_alltoallv`](Self::neighbor_alltoallv).
    pub fn ineighbor_allgatherv<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
        received: &[usize],
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let sent = [input.bytes().len() / size_of::<T>().max(1)];
        let plan = self.plan_different::<T>(CallKind::NeighborAllgatherv, &sent, received)?;
        plan.start(&self.communicator, input, output)
    }

    /// Prepares a persistent neighbor_allgatherv of `count` elements, and `received` from the
    /// sources.
    ///
    /// # Errors
    /// The errors of [`neighbor_alltoallv`](Self::neighbor_alltoallv).
    pub fn neighbor_allgatherv_init<T: Pod>(
        &self,
        count: usize,
        received: &[usize],
    ) -> Result<Persistent<TwoBuffers<T>>> {
        let plan = self.plan_different::<T>(CallKind::NeighborAllgatherv, &[count], received)?;
        Ok(Persistent::new(&self.communicator, plan))
    }

    /// Bytes of a block, computed from the lengths of both buffers.
    fn block(&self, input: usize, blocks: usize, output: usize) -> Result<u64> {
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

    /// The path and the buffers of a collective with blocks of equal size.
    fn plan_equal<T: Pod>(
        &self,
        kind: CallKind,
        bytes: u64,
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
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
                None => self.link(call, vec![bytes], || Ok(graph(neighborhood, bytes)?))?,
                Some(nodes) => self.link_together(call, bytes, nodes)?,
            },
        };
        Ok(CollectivePlan::new(
            path,
            BufferShape { in_place: InPlaceRule::Never, ..BufferShape::new(input, output) },
        ))
    }

    /// The plan of a collective with blocks of different sizes; each rank knows its own.
    fn plan_different<T: Pod>(
        &self,
        kind: CallKind,
        sent: &[usize],
        received: &[usize],
    ) -> Result<CollectivePlan<TwoBuffers<T>>> {
        let neighborhood = &self.neighborhood;
        let (destinations, sources) =
            (neighborhood.destinations().len() as u32, neighborhood.sources().len() as u32);
        let gathers = kind == CallKind::NeighborAllgatherv;
        let sent = Counts::of::<T>(
            "the list of counts that are sent",
            sent,
            if gathers { 1 } else { destinations },
        )?;
        let received = Counts::of::<T>("the list of counts that are received", received, sources)?;
        let call = Signature::new(kind, 0, self.number);
        let shape = BufferShape {
            in_place: InPlaceRule::Never,
            ..BufferShape::new(sent.total, received.total)
        };
        if self.communicator.choose_neighbor()? == Algorithm::Join {
            return Ok(CollectivePlan::new(
                self.flat_path(call, &sent.bytes, received.bytes.iter().copied()),
                shape,
            ));
        }
        // A rank whose own sizes are unchanged must link again, too, if those of another rank have
        // changed.
        let sizes =
            self.communicator.allgather_word(digest(&[sent.digest(), received.digest()]), call)?;
        let path = self.link(call, sizes, || {
            Ok(match kind {
                CallKind::NeighborAllgatherv => {
                    neighbor::neighbor_allgatherv(neighborhood, sent.total, &received.bytes)?
                }
                _ => neighbor::neighbor_alltoallv(neighborhood, &sent.bytes, &received.bytes)?,
            })
        })?;
        Ok(CollectivePlan::new(path, shape))
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

    /// A schedule with a message along each edge.
    fn link(
        &self,
        call: Signature,
        sizes: Vec<u64>,
        build: impl FnOnce() -> Result<Graph>,
    ) -> Result<ExecutionPath> {
        let key = LinkKey {
            call,
            algorithm: "direct",
            tuning: Tuning::default(),
            ranks_per_node: None,
            arguments: self.number,
            sizes,
        };
        self.communicator.path(key, build)
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
        communicator.path(key, || {
            Ok(build(
                communicator.rank(),
                topology::gather_topology(
                    &self.communicator,
                    &self.neighborhood,
                    &self.gathered,
                    call,
                )?,
                &topology::nodes_of_ranks(&self.communicator, nodes),
                bytes,
            )?)
        })
    }
}

/// Builder of the graph of a collective with blocks of equal size.
type BuildEqual = fn(&Neighborhood, u64) -> Result<Graph, CollectiveError>;
