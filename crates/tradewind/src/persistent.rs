//! Collectives prepared once and started many times.

use crate::buffers::{Input, Output};
use crate::collective::argument;
use crate::communicator::Communicator;
use crate::error::Result;
use crate::request::{Outputs, Request};
use bytemuck::Pod;
use engine::linkage::Linkage;
use engine::meeting::Meeting;
use std::sync::Arc;

/// What a collective goes through.
#[derive(Clone, Debug)]
pub(crate) enum Plan {
    /// A single join of all ranks.
    Meeting(Meeting),
    /// A linked schedule.
    Linked(Arc<Linkage>),
}

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
    root: Option<u32>,
}

impl Persistent {
    pub(crate) fn new(communicator: &Communicator, plan: Plan) -> Self {
        Persistent::of(communicator, plan, None)
    }

    pub(crate) fn bcast(communicator: &Communicator, plan: Plan, root: u32) -> Self {
        Persistent::of(communicator, plan, Some(root))
    }

    fn of(communicator: &Communicator, plan: Plan, root: Option<u32>) -> Self {
        Persistent { communicator: communicator.clone(), plan, root }
    }

    /// Starts a collective that has no buffers: a barrier.
    ///
    /// # Errors
    /// When the collective has buffers.
    #[inline]
    pub fn start_bare(&self) -> Result<Request<'static>> {
        self.plan.start_bare(&self.communicator)
    }

    /// Starts a collective with an input and an output.
    ///
    /// # Errors
    /// When the buffers have not the length that was prepared.
    #[inline]
    pub fn start<'a, T: Pod, I: Input<'a, T>, O: Output<'a, T>>(
        &self,
        input: I,
        output: O,
    ) -> Result<Request<'a, (I::Back, O::Back)>> {
        let (from, kept) = input.into_parts();
        let (to, private, back) = output.into_parts();
        if let Plan::Meeting(meeting) = &self.plan {
            self.check(meeting.bytes, from.length)?;
            self.check(meeting.bytes, to.length)?;
        }
        self.plan.start(&self.communicator, &[from, to], Outputs::Second(private), (kept, back))
    }

    /// Starts a broadcast: one buffer, read on the root and written on the others.
    ///
    /// # Errors
    /// When the buffer has not the length that was prepared, or the collective is no broadcast.
    #[inline]
    pub fn start_bcast<'a, T: Pod, O: Output<'a, T>>(&self, buffer: O) -> Result<Request<'a, O::Back>> {
        let Some(root) = self.root else {
            return Err(argument("the collective", "no broadcast".into(), "prepared by bcast_init"));
        };
        let (to, private, back) = buffer.into_parts();
        if let Plan::Meeting(meeting) = &self.plan {
            self.check(meeting.bytes, to.length)?;
        }
        self.plan.start_bcast(&self.communicator, self.communicator.rank() == root, to, private, back)
    }

    #[inline]
    fn check(&self, expected: u64, found: u64) -> Result<()> {
        if expected == found {
            return Ok(());
        }
        Err(argument("the length of a buffer", format!("{found} bytes"), &format!("{expected} bytes, as prepared")))
    }
}
