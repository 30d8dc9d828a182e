//! Sparse neighbour collectives over any directed graph of ranks.

use crate::algorithms::Levels;
use crate::buffers::{Input, Output};
use crate::collective::argument;
use crate::communicator::{Communicator, LinkKey};
use crate::error::Result;
use crate::persistent::{Persistent, Plan};
use crate::request::{Outputs, Request};
use bytemuck::Pod;
use collectives::Tuning;
use collectives::neighbor::{self, Neighborhood};
use engine::call::CallKind;

/// A communicator with neighbours: who sends to this rank, and whom it sends to (Hoefler and Träff: "Sparse collective
/// operations for MPI", 2009).
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
    /// Tells the topologies of one communicator apart.
    number: u64,
}

impl Communicator {
    /// Names this rank's neighbours: `sources` send to it, it sends to `destinations`. Duplicates and this rank itself
    /// are allowed; the k-th edge from a to b, in a's list, meets the k-th edge from a in b's list.
    ///
    /// All ranks call it, in the same order as their other collectives; it does not wait for them. Lists that do not fit
    /// together are found when the first neighbour collective is linked.
    ///
    /// # Errors
    /// When a neighbour is no rank of the communicator.
    pub fn neighbors(&self, sources: &[u32], destinations: &[u32]) -> Result<Neighbors> {
        let neighborhood = Neighborhood::new(self.rank(), self.size(), sources, destinations)?;
        Ok(Neighbors { communicator: self.clone(), neighborhood, number: self.next_topology() })
    }

    /// A grid of ranks; the neighbours are, dimension by dimension, the one before and the one after. Rank 0 is at the
    /// origin, and the last dimension varies fastest.
    ///
    /// # Errors
    /// When the dimensions do not multiply to the number of ranks, or the two lists have different lengths.
    pub fn cartesian(&self, dimensions: &[u32], periodic: &[bool]) -> Result<Neighbors> {
        let neighborhood = Neighborhood::cartesian(dimensions, periodic, self.rank())?;
        if neighborhood.ranks() != self.size() {
            let found = format!("{} ranks", neighborhood.ranks());
            return Err(argument("the product of the dimensions", found, &format!("{} ranks", self.size())));
        }
        Ok(Neighbors { communicator: self.clone(), neighborhood, number: self.next_topology() })
    }
}

impl Neighbors {
    /// The communicator.
    pub fn communicator(&self) -> &Communicator {
        &self.communicator
    }

    /// Who sends to this rank, in the order of the blocks of an output. `None`: beyond the edge of a grid.
    pub fn sources(&self) -> Vec<Option<u32>> {
        self.neighborhood.sources().iter().map(|neighbor| neighbor.rank).collect()
    }

    /// Whom this rank sends to, in the order of the blocks of an input. `None`: beyond the edge of a grid.
    pub fn destinations(&self) -> Vec<Option<u32>> {
        self.neighborhood.destinations().iter().map(|neighbor| neighbor.rank).collect()
    }

    /// Gives every destination a block of its own and gets one from every source. Blocks of neighbours beyond the edge
    /// of a grid are left as they are.
    ///
    /// Shapes: the input has one block of n elements for each destination, the output one for each source, n the same on
    /// all ranks.
    ///
    /// # Errors
    /// When lengths do not fit, a rank is gone or in another collective.
    pub fn neighbor_alltoall<T: Pod>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.ineighbor_alltoall(input, output)?.wait().map(|_| ())
    }

    /// Begins a [`neighbor_alltoall`](Self::neighbor_alltoall).
    ///
    /// # Errors
    /// When lengths do not fit or the schedule cannot be linked. Never waits, once linked.
    pub fn ineighbor_alltoall<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let (from, kept) = input.into_parts();
        let (to, private, back) = output.into_parts();
        let bytes = self.block(from.length, self.neighborhood.destinations().len(), to.length)?;
        let plan = self.plan(CallKind::NeighborAlltoall, bytes)?;
        plan.start(&self.communicator, &[from, to], Outputs::Second(private), (kept, back))
    }

    /// Prepares a neighbor_alltoall of `count` elements a neighbour to be started many times.
    ///
    /// # Errors
    /// As [`ineighbor_alltoall`](Self::ineighbor_alltoall).
    pub fn neighbor_alltoall_init<T: Pod>(&self, count: usize) -> Result<Persistent> {
        let plan = self.plan(CallKind::NeighborAlltoall, (count * size_of::<T>()) as u64)?;
        Ok(Persistent::new(&self.communicator, plan))
    }

    /// Gives every destination the same input and gets one block from every source.
    ///
    /// Shapes: the input has n elements, the output n for each source, n the same on all ranks.
    ///
    /// # Errors
    /// When lengths do not fit, a rank is gone or in another collective.
    pub fn neighbor_allgather<T: Pod>(&self, input: &[T], output: &mut [T]) -> Result<()> {
        self.ineighbor_allgather(input, output)?.wait().map(|_| ())
    }

    /// Begins a [`neighbor_allgather`](Self::neighbor_allgather).
    ///
    /// # Errors
    /// When lengths do not fit or the schedule cannot be linked. Never waits, once linked.
    pub fn ineighbor_allgather<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let (from, kept) = input.into_parts();
        let (to, private, back) = output.into_parts();
        let bytes = self.block(from.length, 1, to.length)?;
        let plan = self.plan(CallKind::NeighborAllgather, bytes)?;
        plan.start(&self.communicator, &[from, to], Outputs::Second(private), (kept, back))
    }

    /// Prepares a neighbor_allgather of `count` elements to be started many times.
    ///
    /// # Errors
    /// As [`ineighbor_allgather`](Self::ineighbor_allgather).
    pub fn neighbor_allgather_init<T: Pod>(&self, count: usize) -> Result<Persistent> {
        let plan = self.plan(CallKind::NeighborAllgather, (count * size_of::<T>()) as u64)?;
        Ok(Persistent::new(&self.communicator, plan))
    }

    /// The bytes of a block, from the lengths of both buffers.
    fn block(&self, input: u64, blocks: usize, output: u64) -> Result<u64> {
        let sources = self.neighborhood.sources().len() as u64;
        let blocks = blocks as u64;
        let Some(bytes) = input.checked_div(blocks).or(output.checked_div(sources)) else {
            return Err(argument(
                "the number of neighbours",
                "none, so that the buffers do not tell the length of a block".into(),
                "at least one, or the collective prepared with its _init call, which is told the length",
            ));
        };
        if input == bytes * blocks && output == bytes * sources {
            return Ok(bytes);
        }
        Err(argument(
            "the length of a neighbour collective's buffers",
            format!("{input} and {output} bytes"),
            &format!("{blocks} and {sources} blocks of equal length"),
        ))
    }

    fn plan(&self, kind: CallKind, bytes: u64) -> Result<Plan> {
        let call = Communicator::call(kind, bytes, self.number);
        let key = LinkKey {
            call,
            algorithm: "direct",
            tuning: Tuning::default(),
            levels: Levels::One,
            arguments: self.number,
        };
        let draw = || match kind {
            CallKind::NeighborAllgather => Ok(neighbor::neighbor_allgather(&self.neighborhood, bytes)?),
            _ => Ok(neighbor::neighbor_alltoall(&self.neighborhood, bytes)?),
        };
        Ok(Plan::Linked(self.communicator.linkage(key, draw)?))
    }
}
