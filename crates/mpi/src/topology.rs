//! Topologies: the neighbours of a communicator's ranks, and its exchanges with equal blocks.

use crate::abi::Abi;
use crate::host::{Handle, call};
use shm::biased_mutex::BiasedMutex;
use std::ffi::c_int;
use tradewind::{Communicator, Neighbors, Op, Persistent, TwoBuffers};

/// The neighbours of a communicator with a topology.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) neighbors: Neighbors,
    /// Number of ranks that send to this one.
    pub(crate) sources: usize,
    /// Number of ranks that this one sends to.
    pub(crate) destinations: usize,
    /// The same without those beyond the edge of a grid.
    neighbors_of_rank: [usize; 2],
    /// An exchange with equal blocks has blocks of one length on all ranks, each of which finds it
    /// in its arguments. In a graph a rank may have no neighbour, and MPI demands equal lengths
    /// only between neighbours.
    pub(crate) has_one_length: bool,
    /// The last exchanges with equal blocks, by form: the bytes of a block, and the exchange.
    prepared: BiasedMutex<[Option<(usize, Exchange)>; 2]>,
}

/// An exchange with equal blocks.
pub(crate) type Exchange = Persistent<TwoBuffers<u8>>;

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
        let mut kind = 0;
        call!(Topo_test(handle, &raw mut kind));
        if kind == abi.topologies.cartesian {
            let (dimensions, periodic) = grid(handle);
            let grid = communicator.cartesian(&dimensions, &periodic)?;
            return Ok(Some(Topology::new(grid, true)));
        }
        let (sources, destinations) = if kind == abi.topologies.dist_graph {
            dist_graph(handle)
        } else if kind == abi.topologies.graph {
            let neighbors = graph(handle, communicator.rank() as c_int);
            (neighbors.clone(), neighbors)
        } else {
            return Ok(None);
        };
        let neighbors = communicator.neighbors(&sources, &destinations)?;
        // Between nodes a start with lengths of single pairs of ranks would wait, so exchanges run
        // there only where each rank sends and receives. They demand one length.
        let has_one_length = communicator.nodes() > 1 && {
            let has_both = !sources.is_empty() && !destinations.is_empty();
            let mut all_have_both = [0];
            communicator.allreduce(&[u8::from(has_both)], &mut all_have_both, Op::Minimum)?;
            all_have_both == [1]
        };
        Ok(Some(Topology::new(neighbors, has_one_length)))
    }

    fn new(neighbors: Neighbors, has_one_length: bool) -> Self {
        let lists = [neighbors.sources(), neighbors.destinations()];
        let [sources, destinations] = lists.each_ref().map(Vec::len);
        let neighbors_of_rank = lists.map(|list| list.iter().flatten().count());
        let prepared = BiasedMutex::default();
        Topology { neighbors, sources, destinations, neighbors_of_rank, has_one_length, prepared }
    }

    /// Returns whether the rank has as many neighbours as in a measurement of the MPI library, which
    /// is that of a ring; those beyond the edge of a grid do not count.
    pub(crate) fn is_measured(&self) -> bool {
        self.neighbors_of_rank == [2, 2]
    }

    /// Starts an exchange with blocks of `bytes` bytes by `start`. Programs repeat one exchange, so
    /// the last one is kept.
    pub(crate) fn exchange<T>(
        &self,
        (form, bytes): (Form, usize),
        start: impl FnOnce(&Exchange) -> tradewind::Result<T>,
    ) -> tradewind::Result<T> {
        let mut prepared = self.prepared.lock();
        let last = &mut prepared[form as usize];
        if let Some((length, exchange)) = last
            && *length == bytes
        {
            return start(exchange);
        }
        let exchange = match form {
            Form::Allgather => self.neighbors.neighbor_allgather_init(bytes)?,
            Form::Alltoall => self.neighbors.neighbor_alltoall_init(bytes)?,
        };
        let (_, exchange) = last.insert((bytes, exchange));
        start(exchange)
    }
}

/// Numbers of sources and destinations of a communicator with a topology.
pub(crate) fn degrees(abi: &Abi, communicator: Handle) -> (usize, usize) {
    let (mut kind, mut rank) = (0, 0);
    call!(Topo_test(communicator, &raw mut kind));
    if kind == abi.topologies.cartesian {
        let both = 2 * grid(communicator).0.len();
        (both, both)
    } else if kind == abi.topologies.dist_graph {
        let (sources, destinations) = dist_graph(communicator);
        (sources.len(), destinations.len())
    } else if kind == abi.topologies.graph {
        call!(Comm_rank(communicator, &raw mut rank));
        let neighbors = graph(communicator, rank).len();
        (neighbors, neighbors)
    } else {
        (0, 0)
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
    (unsigned(dimensions), periodic.into_iter().map(|flag| flag != 0).collect())
}

fn graph(new: Handle, rank: c_int) -> Vec<u32> {
    let mut count = 0;
    call!(Graph_neighbors_count(new, rank, &raw mut count));
    let mut neighbors = vec![0; count.max(0) as usize];
    call!(Graph_neighbors(new, rank, count, neighbors.as_mut_ptr()));
    unsigned(neighbors)
}

fn dist_graph(new: Handle) -> (Vec<u32>, Vec<u32>) {
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
    (unsigned(sources), unsigned(destinations))
}

/// The library has checked the ranks, so none is negative.
fn unsigned(list: Vec<c_int>) -> Vec<u32> {
    list.into_iter().map(c_int::cast_unsigned).collect()
}
