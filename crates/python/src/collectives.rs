//! The collectives, in three forms each.

use crate::kind::{Kind, with_collectives};
use crate::prepared::Prepared;
use crate::started::Started;
use tradewind::{InPlace, NoBuffers, OneBuffer, Persistent, Result, TwoBuffers};

/// An argument of a call.
macro_rules! argument {
    ($prepared:ident root) => {
        $prepared.root
    };
    ($prepared:ident op) => {
        $prepared.op
    };
    ($prepared:ident counts) => {
        &$prepared.counts
    };
    ($prepared:ident received) => {
        &$prepared.received
    };
    ($prepared:ident block) => {
        $prepared.block()
    };
}

/// Declares a call of each kind in every form.
macro_rules! declare {
    ($($Kind:ident $on:ident $run:ident $start:ident $prepare:ident
        [$($before:ident)*] [$($behind:ident)*] [$($block:ident)?];)*) => {
        impl Prepared {
            /// Executes the blocking form.
            ///
            /// # Safety
            /// No other call writes the output meanwhile.
            pub(crate) unsafe fn run(&self) -> Result<()> {
                // SAFETY: the caller's promise, and `self` keeps the memory.
                let (input, output) = unsafe { self.buffers() };
                match self.kind {
                    Kind::Barrier => self.ranks.communicator.barrier(),
                    Kind::Bcast => self.ranks.communicator.bcast::<u8>(output, self.root),
                    $(Kind::$Kind => {
                        let on = self.ranks.$on();
                        match input {
                            Some(input) => on.$run::<u8>(
                                input, $(argument!(self $before),)* output, $(argument!(self $behind)),*
                            ),
                            None => on.$run::<u8>(
                                InPlace, $(argument!(self $before),)* output, $(argument!(self $behind)),*
                            ),
                        }
                    })*
                }
            }

            /// Starts the nonblocking form.
            ///
            /// # Safety
            /// `self` outlives the result, which alone writes the output.
            pub(crate) unsafe fn start(&self) -> Result<Started> {
                // SAFETY: the caller's promise.
                let (input, output) = unsafe { self.buffers() };
                Ok(match self.kind {
                    Kind::Barrier => Started::Plain(self.ranks.communicator.ibarrier()?),
                    Kind::Bcast => {
                        Started::Plain(self.ranks.communicator.ibcast::<u8, _>(output, self.root)?)
                    }
                    $(Kind::$Kind => {
                        let on = self.ranks.$on();
                        Started::Pair(match input {
                            Some(input) => on.$start::<u8, _, _>(
                                input, $(argument!(self $before),)* output, $(argument!(self $behind)),*
                            ),
                            None => on.$start::<u8, _, _>(
                                InPlace, $(argument!(self $before),)* output, $(argument!(self $behind)),*
                            ),
                        }?)
                    })*
                })
            }

            /// Prepares the persistent form.
            pub(crate) fn prepare(&self) -> Result<Plan> {
                Ok(match self.kind {
                    Kind::Barrier => Plan::Barrier(self.ranks.communicator.barrier_init()?),
                    Kind::Bcast => Plan::Bcast(
                        self.ranks.communicator.bcast_init::<u8>(self.block(), self.root)?
                    ),
                    $(Kind::$Kind => Plan::Pair(self.ranks.$on().$prepare::<u8>(
                        $(argument!(self $block),)? $(argument!(self $before),)* $(argument!(self $behind)),*
                    )?),)*
                })
            }
        }
    };
}

with_collectives!(declare);

/// A persistent collective.
pub(crate) enum Plan {
    Barrier(Persistent<NoBuffers>),
    Bcast(Persistent<OneBuffer<u8>>),
    Pair(Persistent<TwoBuffers<u8>>),
}

impl Plan {
    /// Starts the collective with the buffers that it was prepared with.
    ///
    /// # Safety
    /// `prepared` outlives the result, which alone writes the output.
    pub(crate) unsafe fn start(&self, prepared: &Prepared) -> Result<Started> {
        // SAFETY: the caller's promise.
        let (input, output) = unsafe { prepared.buffers() };
        Ok(match self {
            Plan::Barrier(plan) => Started::Plain(plan.start()?),
            Plan::Bcast(plan) => Started::Plain(plan.start(output)?),
            Plan::Pair(plan) => Started::Pair(match input {
                Some(input) => plan.start(input, output)?,
                None => plan.start(InPlace, output)?,
            }),
        })
    }
}

impl Prepared {
    /// The input, unless it lies in the output, and the output. Both are empty where there is none.
    ///
    /// # Safety
    /// `self` outlives the slices, and no other slice of the output is in use.
    unsafe fn buffers<'a>(&self) -> (Option<&'a [u8]>, &'a mut [u8]) {
        let input = match &self.input {
            // SAFETY: the caller's promise.
            Some(input) => Some(unsafe { input.slice() }),
            None if self.is_in_place => None,
            None => Some(&[][..]),
        };
        // SAFETY: the caller's promise. The input does not overlap the output.
        let output = self.output.as_ref().map(|output| unsafe { output.slice_mut() });
        (input, output.unwrap_or_default())
    }
}
