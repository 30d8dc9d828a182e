//! One measured collective: its buffers, its blocking and nonblocking call, and the check that its
//! result is right.

use crate::memory::Memory;
use crate::operation::{Operation, UnderWay};
use crate::row::{Kind, Row};
use crate::{Failure, grid};
use tradewind::Communicator;

/// A collective and everything its calls need. Elements are doubles.
pub struct Collective<'w, O, M> {
    pub row: Row,
    pub world: &'w Communicator,
    pub rank: usize,
    pub ranks: usize,
    elements: usize,
    operation: O,
    memory: M,
    neighbors: Vec<usize>,
}

impl<'w, M: Memory, O: Operation<M>> Collective<'w, O, M> {
    /// Makes the buffers for a row.
    pub fn open(world: &'w Communicator, row: Row, operation: O) -> Result<Self, Failure> {
        let rank = world.rank() as usize;
        let ranks = world.size() as usize;
        let elements = row.bytes / size_of::<f64>();
        let (sends, receives) = row.kind.blocks(ranks);
        let memory = M::new(world, elements * sends, elements * receives)?;
        Ok(Self {
            row,
            world,
            rank,
            ranks,
            elements,
            operation,
            memory,
            neighbors: grid::neighbors(rank, ranks),
        })
    }

    /// Computes this repetition's values: every element that will be sent is written anew, as
    /// in a program with changing data. Otherwise the data would lie in both cores' caches from the
    /// first repetition on, and a library that copies once would never move it between them.
    pub fn prepare(&mut self, root: usize, repetition: usize) {
        if self.row.kind == Kind::Barrier {
            return;
        }
        let own = (self.rank * 1000 + repetition) as f64;
        for (block, values) in self.memory.send().chunks_exact_mut(self.elements).enumerate() {
            values.fill(match self.row.kind {
                Kind::Alltoall | Kind::Alltoallv | Kind::ReduceScatter => own + block as f64,
                // Every root sends the same values.
                Kind::Scatter | Kind::Scatterv => (block * 1000 + repetition) as f64,
                _ => own,
            });
        }
        let sends_it = self.row.kind == Kind::Bcast && self.rank == root;
        for values in self.memory.receive().chunks_exact_mut(self.elements) {
            if sends_it {
                values.fill(own);
            } else {
                values[0] = -1.0;
                values[self.elements - 1] = -1.0;
            }
        }
    }

    /// Writes the values that this rank sends anew, so that they lie in its cache only.
    pub fn rewrite(&mut self, root: usize) {
        let sends_it = self.row.kind == Kind::Bcast && self.rank == root;
        let blocks = if sends_it { self.memory.receive() } else { self.memory.send() };
        for values in blocks.chunks_exact_mut(self.elements) {
            values.fill(values[0]);
        }
    }

    /// Expected value of a received block.
    fn expected(&self, root: usize, repetition: usize, block: usize) -> f64 {
        let rank = self.rank;
        let ranks = self.ranks;
        let of_ranks =
            |ranks: usize| ranks * repetition + 1000 * (ranks * ranks.saturating_sub(1) / 2);
        let value = match self.row.kind {
            Kind::Allreduce | Kind::Reduce => of_ranks(ranks),
            Kind::Alltoall | Kind::Alltoallv => repetition + block * 1000 + rank,
            Kind::Bcast => repetition + root * 1000,
            Kind::Neighbor | Kind::NeighborGather => repetition + self.neighbors[block] * 1000,
            Kind::Scatter | Kind::Scatterv => repetition + rank * 1000,
            Kind::Gather | Kind::Gatherv | Kind::Allgather | Kind::Allgatherv => {
                repetition + block * 1000
            }
            Kind::ReduceScatter => of_ranks(ranks) + ranks * rank,
            Kind::Scan => of_ranks(rank + 1),
            Kind::Exscan => of_ranks(rank),
            Kind::Barrier | Kind::Message => 0,
        };
        value as f64
    }

    /// Reads them back on the other side, every element or the first and the last of each block: a
    /// library that is fast because it does nothing does not pass. Every rank has been the root
    /// before.
    pub fn check(&mut self, root: usize, repetition: usize, every: bool) -> Result<(), Failure> {
        if self.row.kind == Kind::Barrier || (self.row.kind == Kind::Exscan && self.rank == 0) {
            return Ok(());
        }
        let (_, blocks) = self.row.kind.blocks(self.ranks);
        let expected: Vec<f64> =
            (0..blocks).map(|block| self.expected(root, repetition, block)).collect();
        for (values, expected) in self.memory.receive().chunks_exact(self.elements).zip(expected) {
            let step = if every { 1 } else { (self.elements - 1).max(1) };
            if values.iter().step_by(step).any(|value| *value != expected) {
                let rank = self.rank;
                let name = self.row.name;
                let bytes = self.row.bytes;
                return Err(
                    format!("rank {rank}: {name} {bytes} bytes: the result is wrong").into()
                );
            }
        }
        Ok(())
    }

    /// One blocking call.
    #[inline]
    pub fn call_blocking(&mut self, root: usize) -> Result<(), Failure> {
        self.operation.call_blocking(self.world, &mut self.memory, root)
    }

    /// Starts one call.
    #[inline]
    pub fn start(&mut self, root: usize) -> Result<O::UnderWay<'_>, Failure> {
        self.operation.start(self.world, &mut self.memory, root)
    }

    /// Starts one call and waits for it.
    #[inline]
    pub fn start_and_wait(&mut self, root: usize) -> Result<(), Failure> {
        self.start(root)?.wait()
    }
}
