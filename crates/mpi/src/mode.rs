//! The two modes in which a call runs on tradewind: in the background, or to its end.
//!
//! The functions that translate arguments (`collectives`, `combining`, `neighbors`) are generic
//! over them.

use crate::abi::Abi;
use crate::buffers::Staging;
use crate::communicators::Served;
use crate::private::drive;
use crate::refusal::Refusal;
use crate::report::Reason;
use crate::requests::{Operation, Rest, Started};
use crate::table::Sizes;
use crate::topology::{Form, Topology};
use std::ffi::c_int;
use tradewind::{Communicator, Input, OpOnBytes, Output, while_waiting};

/// Longest data of a collective, in bytes of all ranks, that is taken over. The contribution of a
/// nonblocking call is copied into shared memory.
const MOST_BYTES: usize = 256 << 20;

/// Nonblocking and persistent calls, of sizes at which tradewind is faster than the MPI library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Background(pub(crate) &'static Sizes);

/// Blocking calls, likewise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking(pub(crate) &'static Sizes);

/// Defines the collectives of tradewind in both modes.
macro_rules! modes {
    ($(
        $name:ident $start:ident
        $([$generic:ident: $bound:ident])? ($($argument:ident: $type:ty),* $(,)?);
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

            /// Leaves a call to the MPI library because only some ranks have its lengths.
            fn check_unknown_lengths(self, served: &Served) -> Result<(), Refusal>;

            /// Leaves a reduction to the MPI library because only that library has its operation: its
            /// time depends on that, and is not measured.
            fn check_operation_of_library(self) -> Result<(), Refusal> {
                let is_forced = self.sizes().is_forced;
                if is_forced { Ok(()) } else { Err(Refusal::Left(Reason::Slower)) }
            }

            /// Leaves a call to the MPI library because only pairs of ranks have its lengths.
            fn check_lengths_of_pairs(self) -> Result<(), Refusal> {
                if self.sizes().all { Ok(()) } else { Err(Refusal::Left(Reason::Slower)) }
            }

            /// An exchange with the neighbours, of blocks of one length that are sent and of one
            /// that are received.
            fn exchange(
                topology: &'static Topology,
                exchange: (Form, [usize; 2]),
                input: &'static [u8],
                output: &'static mut [u8],
            ) -> tradewind::Result<Self::Begun>;

            /// Blocks of different sizes from the neighbours.
            fn neighbor_allgatherv(
                topology: &'static Topology,
                input: &'static [u8],
                output: &'static mut [u8],
                received: &[usize],
            ) -> tradewind::Result<Self::Begun>;

            /// Blocks of different sizes to and from the neighbours.
            fn neighbor_alltoallv(
                topology: &'static Topology,
                sent: (&'static [u8], &[usize]),
                output: &'static mut [u8],
                received: &[usize],
            ) -> tradewind::Result<Self::Begun>;

            $(
                fn $name $(<$generic: $bound<'static, u8, Back = ()>>)? (
                    communicator: &Communicator,
                    $($argument: $type,)*
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

            /// Between nodes the start would wait until all ranks agree on the lengths.
            fn check_unknown_lengths(self, served: &Served) -> Result<(), Refusal> {
                match served.communicator.nodes() {
                    1 => self.check_lengths_of_pairs(),
                    _ => Err(Refusal::Left(Reason::Nodes)),
                }
            }

            fn exchange(
                topology: &'static Topology,
                exchange: (Form, [usize; 2]),
                input: &'static [u8],
                output: &'static mut [u8],
            ) -> tradewind::Result<Started> {
                topology.start(exchange, input, output).map(Started::from)
            }

            fn neighbor_allgatherv(
                topology: &'static Topology,
                input: &'static [u8],
                output: &'static mut [u8],
                received: &[usize],
            ) -> tradewind::Result<Started> {
                let started = topology.neighbors.ineighbor_allgatherv(input, output, received);
                started.map(Started::from)
            }

            fn neighbor_alltoallv(
                topology: &'static Topology,
                (input, sent): (&'static [u8], &[usize]),
                output: &'static mut [u8],
                received: &[usize],
            ) -> tradewind::Result<Started> {
                let neighbors = &topology.neighbors;
                let started = neighbors.ineighbor_alltoallv(input, sent, output, received);
                started.map(Started::from)
            }

            $(
                #[inline]
                fn $name $(<$generic: $bound<'static, u8, Back = ()>>)? (
                    communicator: &Communicator,
                    $($argument: $type,)*
                ) -> tradewind::Result<Started> {
                    communicator.$start($($argument),*).map(Started::from)
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

            fn check_unknown_lengths(self, _served: &Served) -> Result<(), Refusal> {
                self.check_lengths_of_pairs()
            }

            fn exchange(
                topology: &'static Topology,
                (form, [sent, received]): (Form, [usize; 2]),
                input: &'static [u8],
                output: &'static mut [u8],
            ) -> tradewind::Result<()> {
                let received = vec![received; topology.sources];
                let sent = || vec![sent; topology.destinations];
                match form {
                    Form::Allgather => Self::neighbor_allgatherv(topology, input, output, &received),
                    Form::Alltoall => {
                        Self::neighbor_alltoallv(topology, (input, &sent()), output, &received)
                    }
                }
            }

            fn neighbor_allgatherv(
                topology: &'static Topology,
                input: &'static [u8],
                output: &'static mut [u8],
                received: &[usize],
            ) -> tradewind::Result<()> {
                let neighbors = &topology.neighbors;
                while_waiting(drive, || neighbors.neighbor_allgatherv(input, output, received))
            }

            fn neighbor_alltoallv(
                topology: &'static Topology,
                (input, sent): (&'static [u8], &[usize]),
                output: &'static mut [u8],
                received: &[usize],
            ) -> tradewind::Result<()> {
                let neighbors = &topology.neighbors;
                while_waiting(drive, || neighbors.neighbor_alltoallv(input, sent, output, received))
            }

            $(
                #[inline]
                fn $name $(<$generic: $bound<'static, u8, Back = ()>>)? (
                    communicator: &Communicator,
                    $($argument: $type,)*
                ) -> tradewind::Result<()> {
                    while_waiting(drive, || communicator.$name($($argument),*))
                }
            )*
        }
    };
}

type From = &'static [u8];
type To = &'static mut [u8];

modes! {
    barrier ibarrier();
    bcast ibcast(buffer: To, root: u32);
    gather igather[I: Input](input: I, output: To, root: u32);
    gatherv igatherv[I: Input](input: I, output: To, sizes: &[usize], root: u32);
    scatter iscatter[O: Output](input: From, output: O, root: u32);
    scatterv iscatterv[O: Output](input: From, sizes: &[usize], output: O, root: u32);
    allgather iallgather[I: Input](input: I, output: To);
    allgatherv iallgatherv[I: Input](input: I, output: To, sizes: &[usize]);
    alltoall ialltoall[I: Input](input: I, output: To);
    alltoallv ialltoallv[I: Input](input: I, sent: &[usize], output: To, received: &[usize]);
    reduce ireduce[I: Input](input: I, output: To, op: OpOnBytes, root: u32);
    allreduce iallreduce[I: Input](input: I, output: To, op: OpOnBytes);
    reduce_scatter ireduce_scatter[I: Input](input: I, output: To, sizes: &[usize], op: OpOnBytes);
    reduce_scatter_block ireduce_scatter_block[I: Input](input: I, output: To, op: OpOnBytes);
    scan iscan[I: Input](input: I, output: To, op: OpOnBytes);
    exscan iexscan[I: Input](input: I, output: To, op: OpOnBytes);
}
