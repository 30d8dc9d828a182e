//! The five operations, each with its blocking and its nonblocking call.
//!
//! One type for each, so that a measured call is the call itself, as an application makes it.

use crate::Failure;
use crate::memory::{InputBack, Memory, OutputBack};
use tradewind::{Communicator, Neighbors, Op, Request};

/// A call under way.
pub trait UnderWay {
    /// Whether it is complete.
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
    fn start<'a>(&self, world: &Communicator, memory: &'a mut M, root: usize) -> Result<Self::UnderWay<'a>, Failure>;
    /// One blocking call.
    fn call_blocking(&self, world: &Communicator, memory: &mut M, root: usize) -> Result<(), Failure>;
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
/// The sum, for all.
pub struct Allreduce;
/// A block from each to each.
pub struct Alltoall;
/// The root's buffer, for all.
pub struct Bcast;
/// A block to each neighbour.
pub struct Neighbor(pub Neighbors);

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

impl<M: Memory> Operation<M> for Allreduce {
    type UnderWay<'a>
        = Two<'a, M>
    where
        M: 'a;

    #[inline]
    fn start<'a>(&self, world: &Communicator, memory: &'a mut M, _: usize) -> Result<Two<'a, M>, Failure> {
        let (input, output, home) = memory.lend()?;
        Ok(Two { request: world.iallreduce(input, output, Op::Sum)?, home })
    }

    #[inline]
    fn call_blocking(&self, world: &Communicator, memory: &mut M, _: usize) -> Result<(), Failure> {
        let (input, output) = memory.both();
        Ok(world.allreduce(input, output, Op::Sum)?)
    }
}

impl<M: Memory> Operation<M> for Alltoall {
    type UnderWay<'a>
        = Two<'a, M>
    where
        M: 'a;

    #[inline]
    fn start<'a>(&self, world: &Communicator, memory: &'a mut M, _: usize) -> Result<Two<'a, M>, Failure> {
        let (input, output, home) = memory.lend()?;
        Ok(Two { request: world.ialltoall(input, output)?, home })
    }

    #[inline]
    fn call_blocking(&self, world: &Communicator, memory: &mut M, _: usize) -> Result<(), Failure> {
        let (input, output) = memory.both();
        Ok(world.alltoall(input, output)?)
    }
}

impl<M: Memory> Operation<M> for Bcast {
    type UnderWay<'a>
        = One<'a, M>
    where
        M: 'a;

    #[inline]
    fn start<'a>(&self, world: &Communicator, memory: &'a mut M, root: usize) -> Result<One<'a, M>, Failure> {
        let (output, home) = memory.lend_output()?;
        Ok(One { request: world.ibcast(output, root as u32)?, home })
    }

    #[inline]
    fn call_blocking(&self, world: &Communicator, memory: &mut M, root: usize) -> Result<(), Failure> {
        Ok(world.bcast(memory.receive(), root as u32)?)
    }
}

impl<M: Memory> Operation<M> for Neighbor {
    type UnderWay<'a>
        = Two<'a, M>
    where
        M: 'a;

    #[inline]
    fn start<'a>(&self, _: &Communicator, memory: &'a mut M, _: usize) -> Result<Two<'a, M>, Failure> {
        let (input, output, home) = memory.lend()?;
        Ok(Two { request: self.0.ineighbor_alltoall(input, output)?, home })
    }

    #[inline]
    fn call_blocking(&self, world: &Communicator, memory: &mut M, root: usize) -> Result<(), Failure> {
        self.start(world, memory, root)?.wait()
    }
}
