//! Time of a collective that remains exposed beside a computation: NBCBench (Schneider et al.
//! 2011, sections 4.2 and 4.3; Hoefler, Lumsdaine and Rehm, "Implementation and Performance
//! Analysis of Non-Blocking Collective Operations for MPI", SC 2007), without any call between
//! start and wait.
//!
//! A repetition begins with a barrier. Then a random skew delays every rank, so that no rank
//! profits from ranks that start in step, and
//!
//! - **computes**: a [fixed count of steps](crate::harness::computation), the same on all ranks; or
//! - **starts the collective, computes the same, and waits** until the result lies in its own
//!   buffer.
//!
//! The two kinds take turns in blocks, the order within a block turning too, so that both see the
//! same machine. Nothing but the difference is put down to the collective:
//!
//! | column | what it is |
//! |---|---|
//! | `alone_us` | start and wait with nothing between them, back to back; the root of a broadcast moves on |
//! | `compute_us` | the computation alone |
//! | `total_us` | start, computation, wait |
//! | `exposed_us` | `total` − `compute`, **the figure to trust**; `p10_us` and `p90_us` are its spread |
//! | `overlap` | 1 − `exposed` / `alone` in percent, within 0 and 100 |
//! | `unattended` | the share of looks, of any rank, that found the collective complete before its rank made any call |
//! | `stolen_us` | processor time of all ranks, the node service and softirqs, less that of the computation |
//!
//! All but `overlap` and `unattended` are medians, in microseconds, of the repetitions' maximum
//! over the ranks (`stolen_us`: of their sum). Overlap in percent flatters a slow collective, which
//! has much to hide, and hides a fast one, of which the start is all there is.
//!
//! [`Timer::over`](crate::harness::timer::Timer::over) says which time of a rank counts.
//!
//! **Unattended.** A rank looks when its computation is over, with one load that does nothing for
//! the collective. Looks that come before all ranks have started, which no library could help, are
//! left out; the clock is the node's, so this is known to the nanosecond. There are always some
//! left: those of the rank that started last.
//!
//! **Stolen.** What the node service uses is charged in full. The kernel counts softirqs for the
//! whole machine, for all processes, in ticks of commonly ten milliseconds: a difference of two
//! ticks or less is none.

mod case;
mod collective;
mod measure;
mod neighbor;
mod part;
mod plan;
mod progress;
mod row;

pub use case::{Case, MOST_REPETITIONS};
pub use collective::{Collective, MOST_BYTES};
pub use measure::measure;
pub use part::ENTRY;
pub use plan::Plan;
pub use progress::Progress;
pub use row::OverlapRow;
