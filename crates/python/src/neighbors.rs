//! Collectives between neighbours.

use crate::forms::{Array, Maybe, collectives};
use crate::handle::Handle;
use crate::prepared::Ranks;
use pyo3::prelude::*;
use std::sync::Arc;

/// A communicator in which each rank has neighbours. Made by `Communicator.neighbors` and
/// `Communicator.cartesian`.
#[pyclass(frozen, module = "tradewind")]
pub(crate) struct Neighbors(Handle<tradewind::Neighbors>);

impl Neighbors {
    pub(crate) fn new(neighbors: tradewind::Neighbors) -> Self {
        Neighbors(Handle::new(neighbors))
    }

    fn ranks(&self) -> PyResult<Ranks> {
        let neighbors = self.0.get()?;
        let communicator = Arc::new(neighbors.communicator().clone());
        Ok(Ranks { communicator, neighbors: Some(neighbors) })
    }
}

collectives! {
    Neighbors {
        /// Ranks that send to this one; `None` beyond the edge of a grid.
        #[getter]
        fn sources(&self) -> PyResult<Vec<Option<u32>>> {
            Ok(self.0.get()?.sources())
        }

        /// Ranks that this one sends to; `None` beyond the edge of a grid.
        #[getter]
        fn destinations(&self) -> PyResult<Vec<Option<u32>>> {
            Ok(self.0.get()?.destinations())
        }
    }

    /// Sends a block of the input to every destination, and receives one from every source. The first
    /// dimension of the input counts the destinations, that of the output the sources.
    neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init = NeighborAlltoall
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None) from Some(input), to out, with {};

    /// As `neighbor_alltoall`, with `counts` elements to the destinations and `received` from the sources.
    neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init = NeighborAlltoallv
        (input: Array<'_, '_>, counts: Vec<usize>, received: Vec<usize>, out: Maybe<'_, '_> = None)
        from Some(input), to out, with { counts, received };

    /// Sends the input to every destination, and receives one from every source. The first dimension of
    /// the output counts the sources.
    neighbor_allgather, ineighbor_allgather, neighbor_allgather_init = NeighborAllgather
        (input: Array<'_, '_>, out: Maybe<'_, '_> = None) from Some(input), to out, with {};

    /// As `neighbor_allgather`, with these numbers of elements from the sources.
    neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init = NeighborAllgatherv
        (input: Array<'_, '_>, received: Vec<usize>, out: Maybe<'_, '_> = None)
        from Some(input), to out, with { received };
}
