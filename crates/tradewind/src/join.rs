//! Joining a job without a launcher: the ranks exchange addresses by means of their own.

use crate::error::Result;
use crate::job::Job;
use std::path::Path;

/// # Jobs of other runtimes
///
/// Processes that another runtime has started, such as those of an MPI program, form a job without
/// a launcher: the messages of that runtime carry the addresses of the nodes, and the first rank on
/// each node starts the node service.
impl Job {
    /// Joins the job of `ranks` ranks, on one node or several, as rank `rank`, and waits for the
    /// other ranks. `command` is the `tradewind` command, unless TRADEWIND_COMMAND names another;
    /// `None` is the one in PATH.
    ///
    /// `exchange` is an allgather by the means that the ranks have without tradewind: it sends
    /// bytes to all ranks, and returns those of every rank, in rank order. They may differ in length.
    /// It returns `None` on all ranks if it fails. Each step of the entry ends with such an
    /// exchange, so if a rank cannot join, the call fails on every rank, and no rank waits for
    /// another, and node services that have started end. The bytes
    /// contain the job's secret: only the ranks may read them.
    ///
    /// Between nodes, nonblocking collectives run on the agents of the node services. The kernel
    /// engine is not used, because its first start of a collective waits for all ranks.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), tradewind::Error> {
    /// // A single rank receives what it sends.
    /// let job = tradewind::Job::join(0, 1, None, |own| Some(vec![own.to_vec()]))?;
    /// job.world().barrier()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if a rank cannot join: its node service does not start, another node cannot be
    /// reached, or the exchange fails.
    pub fn join(
        rank: u32,
        ranks: u32,
        command: Option<&Path>,
        exchange: impl FnMut(&[u8]) -> Option<Vec<Vec<u8>>> + Send,
    ) -> Result<Self> {
        Job::of(service::exchanged::enter((rank, ranks), command, exchange)?)
    }
}
