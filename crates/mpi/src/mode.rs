//! The two modes in which a call runs on tradewind: in the background, or to its end.
//!
//! The functions that translate arguments (`collectives`, `combining`, `neighbors`) are generic
//! over them.

use crate::abi::Abi;
use crate::buffers::Staging;
use crate::private::drive;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::requests::{Operation, Rest, Started};
use crate::table::Sizes;
use crate::topology::{Form, Topology};
use std::ffi::c_int;
use tradewind::interop::while_waiting;
use tradewind::{Communicator, InPlace, Neighbors, OpOnBytes};

/// Longest data of a collective, in bytes of all ranks, that is taken over. The contribution of a
/// nonblocking call is copied into shared memory.
const MOST_BYTES: usize = 256 << 20;

/// Nonblocking and persistent calls, of sizes at which tradewind is faster than the MPI library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Background(pub(crate) &'static Sizes);

/// Blocking calls, likewise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking(pub(crate) &'static Sizes);

/// Calls a collective of tradewind. The buffer in brackets may be `None`, which stands for the other one.
macro_rules! collective {
    ($on:ident.$name:ident($($argument:ident),*)) => {
        $on.$name($($argument),*)
    };
    ($on:ident.$name:ident($($before:ident),* [$buffer:ident] $($after:ident),*)) => {
        match $buffer {
            Some($buffer) => $on.$name($($before,)* $buffer, $($after),*),
            None => $on.$name($($before,)* InPlace, $($after),*),
        }
    };
}

/// Defines the collectives of tradewind in both modes: what they are called on, the names of the blocking
/// and of the nonblocking one, and the arguments, with that buffer in brackets which may be the other one.
macro_rules! modes {
    ($(
        $on:ident: $name:ident $start:ident(
            $($before:ident: $before_type:ty),*
            $([$buffer:ident: $type:ty] $($after:ident: $after_type:ty),*)?
        );
    )*) => {
        /// A mode in which a call runs.
        pub(crate) trait Mode: Copy + 'static {
            /// Value that a collective of tradewind returns.
            type Begun;
            /// Remainder of a call that has run or started here.
            type Operation;

            /// Returns the remainder of a call: `rest` follows the part of tradewind.
            fn operation(
                abi: &Abi,
                begun: Self::Begun,
                input: Option<Staging>,
                rest: Option<Rest>,
            ) -> Self::Operation;

            /// The sizes at which calls run here.
            fn sizes(self) -> &'static Sizes;

            /// Leaves a call to the MPI library because of its length, which all ranks find alike:
            /// `bytes`, `times` over.
            fn check_length(self, bytes: usize, times: usize) -> Result<(), Refusal> {
                match bytes.checked_mul(times).filter(|all| *all <= MOST_BYTES) {
                    None => Err(Refusal::Left(Reason::Length)),
                    Some(all) if self.sizes().contain(all as u64) => Ok(()),
                    Some(_) => Err(Refusal::Left(Reason::Slower)),
                }
            }

            /// Leaves a reduction to the MPI library because only that library has its operation: its
            /// time depends on that, and is not measured.
            fn check_operation_of_library(self) -> Result<(), Refusal> {
                let is_forced = self.sizes().is_forced;
                if is_forced { Ok(()) } else { Err(Refusal::Left(Reason::Operation)) }
            }

            /// Leaves a call to the MPI library because only some ranks have its lengths.
            fn check_unknown_lengths(self) -> Result<(), Refusal> {
                if self.sizes().all { Ok(()) } else { Err(Refusal::Left(Reason::Slower)) }
            }

            /// An exchange with the neighbours, of blocks of one length that are sent and of one
            /// that are received.
            fn exchange(
                topology: &'static Topology,
                exchange: (Form, [usize; 2]),
                input: From,
                output: To,
            ) -> tradewind::Result<Self::Begun>;

            $(
                fn $name(
                    on: &$on,
                    $($before: $before_type,)*
                    $($buffer: Option<$type>, $($after: $after_type,)*)?
                ) -> tradewind::Result<Self::Begun>;
            )*
        }

        impl Mode for Background {
            type Begun = Started;
            type Operation = Box<Operation>;

            fn operation(
                _abi: &Abi,
                begun: Started,
                input: Option<Staging>,
                rest: Option<Rest>,
            ) -> Box<Operation> {
                Operation::new(begun, input, rest)
            }

            #[inline]
            fn sizes(self) -> &'static Sizes {
                self.0
            }

            fn exchange(
                topology: &'static Topology,
                exchange: (Form, [usize; 2]),
                input: From,
                output: To,
            ) -> tradewind::Result<Started> {
                topology.start(exchange, input, output).map(Started::from)
            }

            $(
                #[inline]
                fn $name(
                    on: &$on,
                    $($before: $before_type,)*
                    $($buffer: Option<$type>, $($after: $after_type,)*)?
                ) -> tradewind::Result<Started> {
                    collective!(on.$start($($before),* $([$buffer] $($after),*)?))
                        .map(Started::from)
                }
            )*
        }

        impl Mode for Blocking {
            type Begun = ();
            type Operation = c_int;

            #[inline]
            fn operation(
                abi: &Abi,
                (): (),
                _input: Option<Staging>,
                rest: Option<Rest>,
            ) -> c_int {
                rest.map_or(0, |rest| rest.finish(abi))
            }

            #[inline]
            fn sizes(self) -> &'static Sizes {
                self.0
            }

            fn exchange(
                topology: &'static Topology,
                (form, [sent, received]): (Form, [usize; 2]),
                input: From,
                output: To,
            ) -> tradewind::Result<()> {
                let received = vec![received; topology.sources];
                let sent = || vec![sent; topology.destinations];
                let on = &topology.neighbors;
                match form {
                    Form::Allgather => Self::neighbor_allgatherv(on, input, output, &received),
                    Form::Alltoall => {
                        Self::neighbor_alltoallv(on, input, &sent(), output, &received)
                    }
                }
            }

            $(
                #[inline]
                fn $name(
                    on: &$on,
                    $($before: $before_type,)*
                    $($buffer: Option<$type>, $($after: $after_type,)*)?
                ) -> tradewind::Result<()> {
                    while_waiting(drive, || {
                        collective!(on.$name($($before),* $([$buffer] $($after),*)?))
                    })
                }
            )*
        }
    };
}

/// The bytes that a call sends, and those that it receives.
pub(crate) type From = &'static [u8];
pub(crate) type To = &'static mut [u8];

modes! {
    Communicator: barrier ibarrier();
    Communicator: bcast ibcast(buffer: To, root: u32);
    Communicator: gather igather([input: From] output: To, root: u32);
    Communicator: gatherv igatherv([input: From] output: To, sizes: &[usize], root: u32);
    Communicator: scatter iscatter(input: From [output: To] root: u32);
    Communicator: scatterv iscatterv(input: From, sizes: &[usize] [output: To] root: u32);
    Communicator: allgather iallgather([input: From] output: To);
    Communicator: allgatherv iallgatherv([input: From] output: To, sizes: &[usize]);
    Communicator: alltoall ialltoall([input: From] output: To);
    Communicator: alltoallv ialltoallv([input: From] sent: &[usize], output: To, received: &[usize]);
    Communicator: reduce ireduce([input: From] output: To, op: OpOnBytes, root: u32);
    Communicator: allreduce iallreduce([input: From] output: To, op: OpOnBytes);
    Communicator: reduce_scatter ireduce_scatter([input: From] output: To, sizes: &[usize], op: OpOnBytes);
    Communicator: reduce_scatter_block ireduce_scatter_block([input: From] output: To, op: OpOnBytes);
    Communicator: scan iscan([input: From] output: To, op: OpOnBytes);
    Communicator: exscan iexscan([input: From] output: To, op: OpOnBytes);
    Neighbors: neighbor_allgatherv ineighbor_allgatherv(input: From, output: To, received: &[usize]);
    Neighbors: neighbor_alltoallv ineighbor_alltoallv(
        input: From, sent: &[usize], output: To, received: &[usize]
    );
}
