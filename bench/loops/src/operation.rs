//! The operations, each with its blocking and its nonblocking call.
//!
//! One type for each, so that a measured call is the call itself, as an application makes it.

use crate::Failure;
use crate::memory::{InputBack, Memory, OutputBack};
use tradewind::{Communicator, Neighbors, Op, Request};

/// A call under way.
pub trait UnderWay {
    /// Returns `true` once it is complete.
    fn test(&mut self) -> Result<bool, Failure>;
    /// Waits until it is.
    fn wait(self) -> Result<(), Failure>;
}

/// A collective operation on two buffers.
pub trait Operation<M: Memory> {
    type UnderWay<'a>: UnderWay
    where
        M: 'a;

    /// Starts one call.
    fn start<'a>(
        &self,
        world: &Communicator,
        memory: &'a mut M,
        root: usize,
    ) -> Result<Self::UnderWay<'a>, Failure>;
    /// One blocking call.
    fn call_blocking(
        &self,
        world: &Communicator,
        memory: &mut M,
        root: usize,
    ) -> Result<(), Failure>;
}

/// A request that holds no buffers.
pub struct Bare(Request<'static>);

impl UnderWay for Bare {
    #[inline]
    fn test(&mut self) -> Result<bool, Failure> {
        Ok(self.0.test()?)
    }

    #[inline]
    fn wait(self) -> Result<(), Failure> {
        Ok(self.0.wait()?)
    }
}

/// A request with one buffer.
pub struct One<'a, M: Memory + 'a> {
    request: Request<'a, OutputBack<'a, M>>,
    home: M::Home<'a>,
}

impl<'a, M: Memory + 'a> UnderWay for One<'a, M> {
    #[inline]
    fn test(&mut self) -> Result<bool, Failure> {
        Ok(self.request.test()?)
    }

    #[inline]
    fn wait(self) -> Result<(), Failure> {
        M::take_output(self.home, self.request.wait()?);
        Ok(())
    }
}

/// A request with two buffers.
pub struct Two<'a, M: Memory + 'a> {
    request: Request<'a, (InputBack<'a, M>, OutputBack<'a, M>)>,
    home: M::Home<'a>,
}

impl<'a, M: Memory + 'a> UnderWay for Two<'a, M> {
    #[inline]
    fn test(&mut self) -> Result<bool, Failure> {
        Ok(self.request.test()?)
    }

    #[inline]
    fn wait(self) -> Result<(), Failure> {
        let (input, output) = self.request.wait()?;
        M::take(self.home, input, output);
        Ok(())
    }
}

/// Every rank comes.
pub struct Barrier;
/// The root's buffer, for all.
pub struct Bcast;

impl<M: Memory> Operation<M> for Barrier {
    type UnderWay<'a>
        = Bare
    where
        M: 'a;

    #[inline]
    fn start(&self, world: &Communicator, _: &mut M, _: usize) -> Result<Bare, Failure> {
        Ok(Bare(world.ibarrier()?))
    }

    #[inline]
    fn call_blocking(&self, world: &Communicator, _: &mut M, _: usize) -> Result<(), Failure> {
        Ok(world.barrier()?)
    }
}

impl<M: Memory> Operation<M> for Bcast {
    type UnderWay<'a>
        = One<'a, M>
    where
        M: 'a;

    #[inline]
    fn start<'a>(
        &self,
        world: &Communicator,
        memory: &'a mut M,
        root: usize,
    ) -> Result<One<'a, M>, Failure> {
        let (output, home) = memory.output_for_request()?;
        Ok(One { request: world.ibcast(output, root as u32)?, home })
    }

    #[inline]
    fn call_blocking(
        &self,
        world: &Communicator,
        memory: &mut M,
        root: usize,
    ) -> Result<(), Failure> {
        Ok(world.bcast(memory.receive(), root as u32)?)
    }
}

/// An operation with a buffer to send from and one to receive into. `$own` is what it needs besides
/// them.
macro_rules! two_buffers {
    ($(#[$about:meta])* $name:ident $(($field:ty))?, |$own:ident, $world:ident, $from:ident, $to:ident, $root:ident|
        $nonblocking:expr, $blocking:expr) => {
        $(#[$about])*
        pub struct $name $((pub $field))?;

        impl<M: Memory> Operation<M> for $name {
            type UnderWay<'a>
                = Two<'a, M>
            where
                M: 'a;

            #[inline]
            fn start<'a>(&self, $world: &Communicator, memory: &'a mut M, root: usize) -> Result<Two<'a, M>, Failure> {
                let ($own, $root) = (self, root as u32);
                let ($from, $to, home) = memory.for_request()?;
                let _ = ($own, $root, $world);
                Ok(Two { request: $nonblocking?, home })
            }

            #[inline]
            fn call_blocking(&self, $world: &Communicator, memory: &mut M, root: usize) -> Result<(), Failure> {
                let ($own, $root) = (self, root as u32);
                let ($from, $to) = memory.both();
                let _ = ($own, $root, $world);
                Ok($blocking?)
            }
        }
    };
}

two_buffers!(
    /// The sum, for all.
    Allreduce, |own, world, from, to, root| world.iallreduce(from, to, Op::Sum), world.allreduce(from, to, Op::Sum)
);
two_buffers!(
    /// A block from each to each.
    Alltoall, |own, world, from, to, root| world.ialltoall(from, to), world.alltoall(from, to)
);
two_buffers!(
    /// A block to each neighbour.
    Neighbor(Neighbors),
    |own, world, from, to, root| own.0.ineighbor_alltoall(from, to), own.0.neighbor_alltoall(from, to)
);
two_buffers!(
    /// One block to all neighbours.
    NeighborGather(Neighbors),
    |own, world, from, to, root| own.0.ineighbor_allgather(from, to), own.0.neighbor_allgather(from, to)
);
two_buffers!(
    /// The sum, for the root.
    Reduce, |own, world, from, to, root| world.ireduce(from, to, Op::Sum, root), world.reduce(from, to, Op::Sum, root)
);
two_buffers!(
    /// A block from the root to each.
    Scatter, |own, world, from, to, root| world.iscatter(from, to, root), world.scatter(from, to, root)
);
two_buffers!(
    /// A block from each to the root.
    Gather, |own, world, from, to, root| world.igather(from, to, root), world.gather(from, to, root)
);
two_buffers!(
    /// A block from each to all.
    Allgather, |own, world, from, to, root| world.iallgather(from, to), world.allgather(from, to)
);
two_buffers!(
    /// A block of the sum to each.
    ReduceScatter,
    |own, world, from, to, root| world.ireduce_scatter_block(from, to, Op::Sum),
    world.reduce_scatter_block(from, to, Op::Sum)
);
two_buffers!(
    /// The sum up to each.
    Scan, |own, world, from, to, root| world.iscan(from, to, Op::Sum), world.scan(from, to, Op::Sum)
);
two_buffers!(
    /// The sum before each.
    Exscan, |own, world, from, to, root| world.iexscan(from, to, Op::Sum), world.exscan(from, to, Op::Sum)
);

/// The sizes of all blocks, in doubles.
type Counts = Vec<usize>;

two_buffers!(
    /// As [`Alltoall`], with sizes.
    Alltoallv(Counts),
    |own, world, from, to, root| world.ialltoallv(from, &own.0, to, &own.0),
    world.alltoallv(from, &own.0, to, &own.0)
);
two_buffers!(
    /// As [`Allgather`], with sizes.
    Allgatherv(Counts),
    |own, world, from, to, root| world.iallgatherv(from, to, &own.0),
    world.allgatherv(from, to, &own.0)
);
two_buffers!(
    /// As [`Gather`], with sizes.
    Gatherv(Counts),
    |own, world, from, to, root| world.igatherv(from, to, &own.0, root),
    world.gatherv(from, to, &own.0, root)
);
two_buffers!(
    /// As [`Scatter`], with sizes.
    Scatterv(Counts),
    |own, world, from, to, root| world.iscatterv(from, &own.0, to, root),
    world.scatterv(from, &own.0, to, root)
);
