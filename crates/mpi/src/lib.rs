//! The preload library `libtradewind_mpi.so`: nonblocking and persistent collectives of an
//! unmodified MPI program run on tradewind, in the background, and blocking ones where a measurement
//! has found tradewind faster. Everything else stays with the MPI library that the program was
//! linked with.
//!
//! The library defines the names of the functions that it takes over (`signatures`), loads before the
//! MPI library (`LD_PRELOAD`), and finds the original functions at run time (`host`). It has no
//! header and no symbol of an MPI library, so one file serves the ABIs of MPICH, Open MPI and the
//! MPI standard (`abi`). In a program without MPI it does nothing.
//!
//! Handles of communicators, requests and types stay those of the MPI library:
//!
//! * A communicator that tradewind serves carries its counterpart as an attribute
//!   (`communicators`).
//! * A request of tradewind is an inactive persistent request of the MPI library, unique while it is
//!   in use (`requests`). Conversion to Fortran and storage in arrays therefore need nothing. The
//!   completion functions (`completion`) find the operation behind the handle. A persistent
//!   collective (`persistent`) has one until the program frees it.
//! * Types that are not contiguous are packed and unpacked by the MPI library (`buffers`), and its
//!   `MPI_Reduce_local` applies the operations that tradewind lacks (`reductions`).
//!
//! A blocking collective (`take`) has the same translation of arguments as a nonblocking one;
//! the two differ in their `mode`. While it waits, it drives the MPI library. The sizes at which
//! blocking ones run here are in a `table`, which `tuning` measures.
//!
//! All ranks must decide alike whether a call runs here. The decision depends only on what the MPI
//! standard makes equal on all of them: the communicator, the call, and the bytes of its signature.

pub(crate) mod abi;
pub(crate) mod buffers;
mod collective_names;
pub(crate) mod collectives;
pub(crate) mod combining;
pub(crate) mod communicators;
pub(crate) mod completion;
pub(crate) mod failures;
pub(crate) mod handles;
pub(crate) mod host;
pub(crate) mod incomplete;
mod jumps;
pub(crate) mod kept;
pub(crate) mod kind;
pub(crate) mod life;
pub(crate) mod lists;
pub(crate) mod mode;
mod names;
pub(crate) mod narrow;
pub(crate) mod neighbors;
pub(crate) mod origin;
pub(crate) mod persistent;
pub(crate) mod presence;
pub(crate) mod private;
mod reason;
pub(crate) mod reductions;
pub(crate) mod refusal;
pub(crate) mod relief;
mod report;
pub(crate) mod request_array;
pub(crate) mod requests;
pub(crate) mod selection;
pub(crate) mod settings;
pub(crate) mod signatures;
pub(crate) mod status_queries;
pub(crate) mod table;
pub(crate) mod take;
mod thread_checkers;
pub(crate) mod tolerance;
pub(crate) mod topology;
mod tuning;
pub(crate) mod watch;
