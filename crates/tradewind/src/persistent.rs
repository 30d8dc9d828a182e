//! Collectives prepared once and started many times.

use crate::buffers::{Input, Output};
use crate::collective::plan::Plan;
use crate::communicator::Communicator;
use crate::error::Result;
use crate::request::Request;
use bytemuck::Pod;

/// A collective prepared by one of the `_init` calls: nothing is looked up when it is started.
///
/// ```
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let sum = world.allreduce_init::<u64>(1, tradewind::Op::Sum)?;
///     for step in 0..10 {
///         let mut total = [0u64];
///         sum.start(&[step], &mut total)?.wait()?;
///         assert_eq!(total, [2 * step]);
///     }
///     Ok(())
/// })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Persistent {
    communicator: Communicator,
    plan: Plan,
}

impl Persistent {
    pub(crate) fn new(communicator: &Communicator, plan: Plan) -> Self {
        Persistent { communicator: communicator.clone(), plan }
    }

    /// Starts a collective that has no buffers: a barrier.
    ///
    /// # Errors
    /// When the collective has buffers.
    #[inline]
    pub fn start_bare(&self) -> Result<Request<'static>> {
        self.plan.start_bare(&self.communicator)
    }

    /// Starts a collective with an input and an output, either of which may be [in
    /// place](crate::InPlace) where the collective allows it.
    ///
    /// # Errors
    /// When the buffers have not the length that was prepared.
    #[inline]
    pub fn start<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan.start(&self.communicator, input, output)
    }

    /// Starts a broadcast: one buffer, read on the root and written on the others.
    ///
    /// # Errors
    /// When the buffer has not the length that was prepared, or the collective is no broadcast.
    #[inline]
    pub fn start_bcast<'a, T: Pod, O: Output<'a, T>>(
        &self,
        buffer: O,
    ) -> Result<Request<'a, O::Back>> {
        self.plan.start_broadcast(&self.communicator, buffer)
    }
}
