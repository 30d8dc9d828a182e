//! Launcher: starts the ranks of a job, and reports their ends. For a job on one node it is also
//! the node service; for one on several nodes it starts a launcher on each.

mod binding;
mod children;
mod host;
mod node;
mod nodes;
mod orders;
mod output;
mod signals;
mod supervision;

pub use binding::Binding;
pub use node::launch_on_this_node;
pub use nodes::{NodeRanks, NodesOptions, launch_on_nodes};
pub use output::{Line, Output, Sink, Stream};
pub use supervision::Outcome;

use crate::error::ServiceError;
use crate::job_options::job_options;
use crate::limits::allow_open_files;
use crate::node_service::NodeService;
use binding::cores;
use children::{Children, RankProgram};
use engine::node::{EngineKind, JobOptions};
use host::Host;
use launch::environment::{ENGINE, SERVICE};
use output::Copier;
use signals::Signals;
use std::ffi::{OsStr, OsString};
use std::time::Duration;
use supervision::Launch;

/// Options of a launch.
#[derive(Debug)]
pub struct LaunchOptions {
    /// The job: ranks, engine, segment.
    pub job: JobOptions,
    /// Cores on which ranks may run.
    pub binding: Binding,
    /// Destination of the ranks' output.
    pub output: Output,
    /// Variables of the ranks in addition to those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// Time for the other ranks after one has failed, before they are ended.
    pub grace: Duration,
    /// Time limit of the job.
    pub limit: Option<Duration>,
    /// True if SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT are passed to the
    /// ranks and do not act on this process.
    pub passes_signals: bool,
}

impl LaunchOptions {
    /// Returns the default options: a core for each rank if there are enough, unchanged output, ten
    /// seconds of grace, signals passed to the ranks.
    ///
    /// # Errors
    /// If a variable of the environment that describes the segment is invalid.
    pub fn new(ranks: u32, engine: EngineKind) -> Result<Self, ServiceError> {
        Ok(LaunchOptions {
            job: job_options(ranks, engine)?,
            binding: Binding::Auto,
            output: Output::Inherit,
            environment: Vec::new(),
            grace: Duration::from_secs(10),
            limit: None,
            passes_signals: true,
        })
    }
}

/// Runs a program as the ranks of a job, until all of them have ended.
///
/// The environment of each rank contains its number and the name of the service. Rank 0 has this
/// process's standard input, unless that is a terminal; the others have an empty one. Each is the
/// leader of a process group of its own.
///
/// # Errors
/// If the program cannot be executed or the segment cannot be created. The failure of a rank is an
/// [`Outcome`], not an error.
///
/// ```
/// use engine::node::EngineKind;
/// use service::launcher::{LaunchOptions, launch};
///
/// # fn main() -> Result<(), service::ServiceError> {
/// let options = LaunchOptions::new(2, EngineKind::Peers)?;
/// let outcome = launch("sh".as_ref(), &["-c".into(), "exit $TRADEWIND_RANK".into()], options)?;
/// assert_eq!(outcome.exit_status(), 1);
/// # Ok(())
/// # }
/// ```
pub fn launch(
    program: &OsStr,
    arguments: &[OsString],
    options: LaunchOptions,
) -> Result<Outcome, ServiceError> {
    let LaunchOptions { job, binding, output, environment, grace, limit, passes_signals } = options;
    let cores = cores(job.ranks, &binding)?;
    let service = NodeService::new(&shm::broker::unguessable_name("tradewind")?, &job, None)?;
    // For each rank two handles, a connection and two pipes.
    allow_open_files(job.ranks, 5, 0)?;
    let signals = if passes_signals { Some(Signals::catch(service.events())?) } else { None };
    let variables = [(SERVICE, service.name().into()), (ENGINE, job.engine.name().into())];
    let command = RankProgram {
        path: program,
        arguments,
        environment: &environment,
        job: &variables,
        cores: &cores,
        first: 0,
        total: job.ranks,
        passes_input: true,
    };
    let commands = (0..job.ranks).map(|rank| command.command(rank));
    let host = Host::Service(Box::new(service));
    let copier = Copier::new(output);
    let (children, copier) = Children::start(commands, 0, host.events(), copier, None)?;
    let mut launch = Launch::new(host, children, 0, grace, limit);
    launch.signals = signals;
    launch.finish(copier)
}
