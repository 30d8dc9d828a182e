//! Joining a job without a launcher: the ranks exchange the name of the node service themselves.

use crate::error::Result;
use crate::job::Job;
use launch::environment::{Environment, Lookup};
use std::path::Path;

/// # Jobs of other runtimes
///
/// Processes that another runtime has started, such as those of an MPI program, form a job without
/// a launcher: one of them starts the node service, the runtime's own messages pass its name on,
/// and all join.
impl Job {
    /// Starts the node service of a job of `ranks` ranks on this node, and returns its name when
    /// ranks can join. One process of the job calls it. `command` is the `tradewind` command,
    /// unless TRADEWIND_COMMAND names another; `None` is the one in PATH.
    ///
    /// # Errors
    /// Fails if the command cannot be executed, or the service does not start.
    pub fn start_service(ranks: u32, command: Option<&Path>) -> Result<String> {
        Ok(service::exchanged::start(ranks, command)?)
    }

    /// Joins the job with this node service as rank `rank` of `ranks`, all of them on this node,
    /// and waits for the other ranks.
    ///
    /// `agree` is called once this process is admitted, or is not, with which of the two it is. It
    /// returns whether all ranks are admitted, by the means that the ranks have without tradewind.
    /// If it returns `false`, the call fails on every rank, so no rank waits for one that cannot
    /// join.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), tradewind::Error> {
    /// let name = tradewind::Job::start_service(1, None)?;
    /// let job = tradewind::Job::join(&name, 0, 1, |admitted| admitted)?;
    /// job.world().barrier()
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails if there is no such service, or a rank is not admitted.
    pub fn join(
        service: &str,
        rank: u32,
        ranks: u32,
        agree: impl FnOnce(bool) -> bool,
    ) -> Result<Self> {
        let limit = Environment.start_timeout().map_err(service::ServiceError::from)?;
        let entered = service::attachment::enter(service, rank, ranks, limit);
        let all = agree(entered.is_ok());
        let member = entered?.member;
        if !all {
            let another = "another rank could not join".to_owned();
            return Err(service::ServiceError::Refused(another).into());
        }
        member.wait_for_all(limit).map_err(service::ServiceError::from)?;
        Job::on_one_node(member, rank)
    }
}
