//! Collectives that are prepared once and started many times.

use crate::buffers::{Input, Output};
use crate::communicator::Communicator;
use crate::error::Result;
use crate::plan::{CollectivePlan, NoBuffers, OneBuffer, TwoBuffers};
use crate::request::Request;
use bytemuck::Pod;
use std::sync::Arc;

/// A persistent collective, prepared by one of the `_init` methods: a start looks nothing up.
///
/// The type parameter names the buffers that a start takes: [`NoBuffers`] for a barrier,
/// [`OneBuffer<T>`] for a broadcast, [`TwoBuffers<T>`] for all other collectives. The length of the
/// buffers is fixed by the preparation, the buffers themselves are not.
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
///
/// Buffers of another kind or another type do not compile: an allreduce has two buffers,
///
/// ```compile_fail,E0061
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let sum = world.allreduce_init::<u64>(1, tradewind::Op::Sum)?;
///     sum.start()?.wait().map(|_| ())
/// })
/// # }
/// ```
///
/// a barrier has none,
///
/// ```compile_fail,E0061
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let mut copy = [0u64];
///     world.barrier_init()?.start(&[1u64], &mut copy)?.wait().map(|_| ())
/// })
/// # }
/// ```
///
/// a broadcast has one,
///
/// ```compile_fail,E0061
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let mut copy = [0u64];
///     world.bcast_init::<u64>(1, 0)?.start(&[1u64], &mut copy)?.wait().map(|_| ())
/// })
/// # }
/// ```
///
/// and elements have the type that was prepared:
///
/// ```compile_fail,E0277
/// # fn main() -> Result<(), tradewind::Error> {
/// tradewind::local(2, |world| {
///     let sum = world.allreduce_init::<u64>(1, tradewind::Op::Sum)?;
///     let mut total = [0.0f64];
///     sum.start(&[1.0f64], &mut total)?.wait().map(|_| ())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Persistent<B> {
    communicator: Communicator,
    plan: Arc<CollectivePlan<B>>,
}

impl<B> Persistent<B> {
    pub(crate) fn new(
        communicator: &Communicator,
        plan: impl Into<Arc<CollectivePlan<B>>>,
    ) -> Self {
        Persistent { communicator: communicator.clone(), plan: plan.into() }
    }
}

impl<B> Clone for Persistent<B> {
    fn clone(&self) -> Self {
        Persistent { communicator: self.communicator.clone(), plan: Arc::clone(&self.plan) }
    }
}

impl Persistent<NoBuffers> {
    /// Starts the barrier.
    ///
    /// # Errors
    /// Fails if the communicator is broken by an earlier failure.
    #[inline]
    pub fn start(&self) -> Result<Request<'static>> {
        self.plan.start(&self.communicator)
    }
}

impl<T: Pod> Persistent<OneBuffer<T>> {
    /// Starts the broadcast; the buffer is read at the root and written on the other ranks.
    ///
    /// # Errors
    /// Fails if the length of the buffer is not the prepared one.
    #[inline]
    pub fn start<'a, O: Output<'a, T>>(&self, buffer: O) -> Result<Request<'a, O::Back>> {
        self.plan.start(&self.communicator, buffer)
    }
}

impl<T: Pod> Persistent<TwoBuffers<T>> {
    /// Starts the collective with an input and an output, either of which may be [in
    /// place](crate::InPlace) where the collective allows it.
    ///
    /// # Errors
    /// Fails if the length of a buffer is not the prepared one.
    #[inline]
    pub fn start<'a, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        self.plan.start(&self.communicator, input, output)
    }
}
