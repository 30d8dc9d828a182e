//! Topologies: the neighbours of a communicator's ranks, and its exchanges with equal blocks.

use crate::abi::Abi;
use crate::host::{Handle, call};
use shm::biased_mutex::BiasedMutex;
use std::ffi::c_int;
use tradewind::{Communicator, Neighbors, Persistent, Request, TwoBuffers};

/// The neighbours of a communicator with a topology.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) neighbors: Neighbors,
    /// Number of ranks that send to this one.
    pub(crate) sources: usize,
    /// Number of ranks that this one sends to.
    pub(crate) destinations: usize,
    /// The same without those that are no rank: beyond the edge of a grid, or MPI_PROC_NULL.
    neighbors_of_rank: [usize; 2],
    /// The last exchanges with equal blocks, by form: the bytes of a block that is sent and of one
    /// that is received, and the exchange.
    prepared: BiasedMutex<[Option<Kept>; 2]>,
}

/// An exchange with blocks of one length for all destinations, and of one for all sources.
type Exchange = Persistent<TwoBuffers<u8>>;

/// An exchange and its lengths.
type Kept = ([usize; 2], Exchange);

/// The form of an exchange with equal blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Allgather,
    Alltoall,
}

impl Topology {
    /// The topology of a communicator of the MPI library, if it has one, with tradewind's
    /// counterpart of it. Collective over the communicator.
    pub(crate) fn of(
        abi: &Abi,
        handle: Handle,
        communicator: &Communicator,
    ) -> tradewind::Result<Option<Self>> {
        let neighbors = match Edges::of(abi, handle) {
            None => return Ok(None),
            Some(Edges::Grid(dimensions, periodic)) => {
                communicator.cartesian(&dimensions, &periodic)?
            }
            Some(Edges::Lists(lists)) => {
                let [sources, destinations] = lists.map(|list| ranks(abi, &list));
                communicator.neighbors_with_gaps(&sources, &destinations)?
            }
        };
        let lists = [neighbors.sources(), neighbors.destinations()];
        let [sources, destinations] = lists.each_ref().map(Vec::len);
        let neighbors_of_rank = lists.map(|list| list.iter().flatten().count());
        let prepared = BiasedMutex::default();
        Ok(Some(Topology { neighbors, sources, destinations, neighbors_of_rank, prepared }))
    }

    /// Returns whether the rank has as many neighbours as in a measurement of the MPI library, which
    /// is that of a ring; those that are no rank do not count.
    pub(crate) fn is_measured(&self) -> bool {
        self.neighbors_of_rank == [2, 2]
    }

    /// Starts an exchange of blocks of these lengths: those that are sent, and those that are
    /// received. MPI demands equal lengths only of the two ends of an edge, so no length decides
    /// anything. Programs repeat one exchange, so the last one is kept.
    pub(crate) fn start<'a>(
        &self,
        (form, lengths): (Form, [usize; 2]),
        input: &'a [u8],
        output: &'a mut [u8],
    ) -> tradewind::Result<Request<'a, ((), ())>> {
        let neighbors = &self.neighbors;
        let [sent, received] = lengths;
        let all_sent = || vec![sent; self.destinations];
        let all_received = || vec![received; self.sources];
        let mut prepared = self.prepared.lock();
        let last = &mut prepared[form as usize];
        if let Some((known, exchange)) = last
            && *known == lengths
        {
            return exchange.start(input, output);
        }
        let exchange = match form {
            Form::Allgather => neighbors.neighbor_allgatherv_init(sent, &all_received())?,
            Form::Alltoall => neighbors.neighbor_alltoallv_init(&all_sent(), &all_received())?,
        };
        let (_, exchange) = last.insert((lengths, exchange));
        exchange.start(input, output)
    }
}

/// The topology of a communicator, as the MPI library has it.
enum Edges {
    /// The lengths of a grid, and whether it is periodic in each dimension.
    Grid(Vec<u32>, Vec<bool>),
    /// The sources and the destinations of this rank.
    Lists([Vec<c_int>; 2]),
}

impl Edges {
    fn of(abi: &Abi, communicator: Handle) -> Option<Self> {
        let (mut kind, mut rank) = (0, 0);
        call!(Topo_test(communicator, &raw mut kind));
        if kind == abi.topologies.cartesian {
            let (dimensions, periodic) = grid(communicator);
            Some(Edges::Grid(dimensions, periodic))
        } else if kind == abi.topologies.dist_graph {
            Some(Edges::Lists(dist_graph(communicator)))
        } else if kind == abi.topologies.graph {
            call!(Comm_rank(communicator, &raw mut rank));
            let neighbors = graph(communicator, rank);
            Some(Edges::Lists([neighbors.clone(), neighbors]))
        } else {
            None
        }
    }
}

/// Numbers of sources and destinations of a communicator with a topology.
pub(crate) fn degrees(abi: &Abi, communicator: Handle) -> [usize; 2] {
    match Edges::of(abi, communicator) {
        None => [0; 2],
        Some(Edges::Grid(dimensions, _)) => [2 * dimensions.len(); 2],
        Some(Edges::Lists(lists)) => lists.map(|list| list.len()),
    }
}

fn grid(new: Handle) -> (Vec<u32>, Vec<bool>) {
    let mut count = 0;
    call!(Cartdim_get(new, &raw mut count));
    let mut lists = [(); 3].map(|()| vec![0; count.max(0) as usize]);
    let [dimensions, periodic, own] =
        lists.each_mut().map(|list: &mut Vec<c_int>| list.as_mut_ptr());
    call!(Cart_get(new, count, dimensions, periodic, own));
    let [dimensions, periodic, _] = lists;
    let dimensions = dimensions.into_iter().map(c_int::cast_unsigned).collect();
    (dimensions, periodic.into_iter().map(|flag| flag != 0).collect())
}

fn graph(new: Handle, rank: c_int) -> Vec<c_int> {
    let mut count = 0;
    call!(Graph_neighbors_count(new, rank, &raw mut count));
    let mut neighbors = vec![0; count.max(0) as usize];
    call!(Graph_neighbors(new, rank, count, neighbors.as_mut_ptr()));
    neighbors
}

/// The sources and the destinations.
fn dist_graph(new: Handle) -> [Vec<c_int>; 2] {
    let (mut into, mut out, mut is_weighted) = (0, 0, 0);
    call!(Dist_graph_neighbors_count(new, &raw mut into, &raw mut out, &raw mut is_weighted));
    let list = |count: c_int| vec![0; count.max(0) as usize];
    let (mut sources, mut source_weights) = (list(into), list(into));
    let (mut destinations, mut destination_weights) = (list(out), list(out));
    call!(Dist_graph_neighbors(
        new,
        into,
        sources.as_mut_ptr(),
        source_weights.as_mut_ptr(),
        out,
        destinations.as_mut_ptr(),
        destination_weights.as_mut_ptr(),
    ));
    [sources, destinations]
}

/// Neighbours as ranks; MPI_PROC_NULL, which a graph may name on any rank, is none.
fn ranks(abi: &Abi, list: &[c_int]) -> Vec<Option<u32>> {
    let is_rank = |rank: &c_int| *rank != abi.proc_null;
    list.iter().map(|rank| Some(*rank).filter(is_rank).map(c_int::cast_unsigned)).collect()
}
