//! A plan, ready to be run again and again on one rank.

use super::data::Data;
use super::graphs::CollectiveCall;
use crate::harness::Error;
use collectives::{Algorithm, Choice, Collective, Levels};
use models::decision::CallForm;
use std::num::NonZeroU32;
use tradewind::{Algorithms, Buffers, Communicator, Element, Op, Schedule};

/// A plan, linked.
pub(super) struct Runner {
    shape: CollectiveCall,
    rank: u32,
    way: ExecutionMode,
}

enum ExecutionMode {
    /// A graph.
    Linked(Schedule),
    /// The calls that programs make, with joins.
    Call(Communicator),
}

/// A rank's memory for all plans of a shape.
pub(super) struct Memory {
    input: Words,
    output: Words,
    expected: Vec<u8>,
}

/// Bytes that can be taken for numbers of 64 bits.
struct Words {
    words: Vec<u64>,
    bytes: usize,
}

impl Words {
    fn of(bytes: &[u8]) -> Self {
        let mut words = Words { words: vec![0; bytes.len().div_ceil(8)], bytes: bytes.len() };
        words.bytes_mut().copy_from_slice(bytes);
        words
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    fn numbers(&self) -> &[f64] {
        bytemuck::cast_slice(&self.words)
    }

    fn numbers_mut(&mut self) -> &mut [f64] {
        bytemuck::cast_slice_mut(&mut self.words)
    }
}

impl Memory {
    pub(super) fn new(shape: &CollectiveCall, rank: u32) -> Self {
        let Data { input, expected } = Data::of(shape, rank);
        Memory { input: Words::of(&input), output: Words::of(&expected), expected }
    }

    /// So that only a run can make it right.
    pub(super) fn spoil(&mut self) {
        self.output
            .bytes_mut()
            .iter_mut()
            .zip(&self.expected)
            .for_each(|(found, expected)| *found = !expected);
    }

    /// The first byte of the output that is wrong.
    pub(super) fn first_wrong(&self, shape: &CollectiveCall, rank: u32) -> Option<usize> {
        if shape.operation == Collective::Exscan && rank == 0 {
            return None; // it is left as it was
        }
        self.output
            .bytes()
            .iter()
            .zip(&self.expected)
            .position(|(found, expected)| found != expected)
    }
}

impl Runner {
    /// Compiles and links it. All ranks call this.
    pub(super) fn new(
        world: &Communicator,
        shape: &CollectiveCall,
        plan: &Choice,
    ) -> Result<Self, Error> {
        let rank = world.rank();
        let way = if plan.algorithm == Algorithm::Join {
            // Every operation has a join.
            let joins = Algorithms::default().with(shape.operation, Algorithm::Join);
            ExecutionMode::Call(world.with_algorithms(joins.unwrap_or_default()))
        } else {
            ExecutionMode::Linked(world.compile(&shape.graph(plan, rank)?)?)
        };
        Ok(Runner { shape: *shape, rank, way })
    }

    /// Calls of a communicator with this plan. Plans in two levels take so many consecutive ranks
    /// for a node.
    pub(super) fn calling(
        world: &Communicator,
        shape: &CollectiveCall,
        plan: &Choice,
        ranks_per_node: Option<NonZeroU32>,
    ) -> Self {
        // A plan of the operation has one of its algorithms.
        let forced = Algorithms::default().with(shape.operation, plan.algorithm);
        let forced = Algorithms {
            tuning: plan.tuning(),
            ranks_per_node: ranks_per_node.filter(|_| plan.levels == Levels::Two),
            ..forced.unwrap_or_default()
        };
        let way = ExecutionMode::Call(world.with_algorithms(forced));
        Runner { shape: *shape, rank: world.rank(), way }
    }

    /// Runs it once, from call to result.
    #[inline]
    pub(super) fn run(&self, memory: &mut Memory) -> Result<(), Error> {
        match &self.way {
            ExecutionMode::Linked(schedule) => {
                schedule.run(self.buffers(memory))?.wait().map(drop)?
            }
            ExecutionMode::Call(world) => match self.shape.form {
                CallForm::Blocking => self.call(world, memory)?,
                CallForm::Nonblocking => self.start_and_wait(world, memory)?,
            },
        }
        Ok(())
    }

    /// As the graphs declare them.
    fn buffers<'a>(&self, memory: &'a mut Memory) -> Buffers<'a> {
        let buffers = Buffers::new();
        match self.shape.operation {
            Collective::Barrier => buffers,
            Collective::Bcast if self.rank == self.shape.root => {
                buffers.input(memory.input.bytes())
            }
            Collective::Bcast => buffers.output(memory.output.bytes_mut()),
            _ => buffers.input(memory.input.bytes()).output(memory.output.bytes_mut()),
        }
    }

    fn call(&self, world: &Communicator, memory: &mut Memory) -> Result<(), Error> {
        let CollectiveCall { operation, bytes, root, .. } = self.shape;
        let Memory { input, output, .. } = memory;
        if operation.is_reduction() && bytes.is_multiple_of(8) {
            return reduce(world, operation, input.numbers(), output.numbers_mut(), root);
        }
        let is_root = self.rank == root;
        let input = &mut *input;
        match operation {
            Collective::Barrier => world.barrier()?,
            Collective::Bcast if is_root => world.bcast(input.bytes_mut(), root)?,
            Collective::Bcast => world.bcast(output.bytes_mut(), root)?,
            Collective::Scatter => world.scatter(input.bytes(), output.bytes_mut(), root)?,
            Collective::Gather => world.gather(input.bytes(), output.bytes_mut(), root)?,
            Collective::Allgather => world.allgather(input.bytes(), output.bytes_mut())?,
            Collective::Alltoall => world.alltoall(input.bytes(), output.bytes_mut())?,
            _ => reduce(world, operation, input.bytes(), output.bytes_mut(), root)?,
        }
        Ok(())
    }

    fn start_and_wait(&self, world: &Communicator, memory: &mut Memory) -> Result<(), Error> {
        let CollectiveCall { operation, bytes, root, .. } = self.shape;
        let Memory { input, output, .. } = memory;
        if operation.is_reduction() && bytes.is_multiple_of(8) {
            return ireduce(world, operation, input.numbers(), output.numbers_mut(), root);
        }
        let is_root = self.rank == root;
        let input = &mut *input;
        match operation {
            Collective::Barrier => world.ibarrier()?.wait()?,
            Collective::Bcast if is_root => world.ibcast(input.bytes_mut(), root)?.wait()?,
            Collective::Bcast => world.ibcast(output.bytes_mut(), root)?.wait()?,
            Collective::Scatter => {
                world.iscatter(input.bytes(), output.bytes_mut(), root)?.wait().map(drop)?
            }
            Collective::Gather => {
                world.igather(input.bytes(), output.bytes_mut(), root)?.wait().map(drop)?
            }
            Collective::Allgather => {
                world.iallgather(input.bytes(), output.bytes_mut())?.wait().map(drop)?
            }
            Collective::Alltoall => {
                world.ialltoall(input.bytes(), output.bytes_mut())?.wait().map(drop)?
            }
            _ => ireduce(world, operation, input.bytes(), output.bytes_mut(), root)?,
        }
        Ok(())
    }
}

/// The sum of elements of any type.
fn reduce<T: Element>(
    world: &Communicator,
    operation: Collective,
    input: &[T],
    output: &mut [T],
    root: u32,
) -> Result<(), Error> {
    match operation {
        Collective::Reduce => world.reduce(input, output, Op::Sum, root)?,
        Collective::Allreduce => world.allreduce(input, output, Op::Sum)?,
        Collective::ReduceScatter => world.reduce_scatter_block(input, output, Op::Sum)?,
        Collective::Scan => world.scan(input, output, Op::Sum)?,
        _ => world.exscan(input, output, Op::Sum)?,
    }
    Ok(())
}

/// The same, started and waited for.
fn ireduce<T: Element>(
    world: &Communicator,
    operation: Collective,
    input: &[T],
    output: &mut [T],
    root: u32,
) -> Result<(), Error> {
    match operation {
        Collective::Reduce => world.ireduce(input, output, Op::Sum, root)?.wait().map(drop)?,
        Collective::Allreduce => world.iallreduce(input, output, Op::Sum)?.wait().map(drop)?,
        Collective::ReduceScatter => {
            world.ireduce_scatter_block(input, output, Op::Sum)?.wait().map(drop)?
        }
        Collective::Scan => world.iscan(input, output, Op::Sum)?.wait().map(drop)?,
        _ => world.iexscan(input, output, Op::Sum)?.wait().map(drop)?,
    }
    Ok(())
}
