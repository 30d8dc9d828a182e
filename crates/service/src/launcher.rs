//! Launcher: starts the ranks of a job, and reports their ends. For a job on one node it is also the
//! node service; for one on several nodes it starts a launcher on each.

mod children;
mod host;
mod node;
mod nodes;
mod orders;
mod output;
mod signals;

pub use node::launch_on_this_node;
pub use nodes::{NodeRanks, NodesOptions, launch_on_nodes};
pub use output::{Line, Output, Sink, Stream};

use crate::error::ServiceError;
use crate::events::NodeEvent;
use crate::job_options::job_options;
use crate::limits::allow_open_files;
use crate::node_service::NodeService;
use children::{Children, RankProgram, Stage};
use engine::Exit;
use engine::node::{EngineKind, JobOptions};
use host::Host;
use launch::environment::{ENGINE, SERVICE};
use orders::{Action, Orders};
use output::Copier;
use rustix::process::Signal;
use signals::Signals;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

/// Cores on which ranks may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// A core for each rank if there are enough, otherwise no binding.
    #[default]
    Auto,
    /// A core for each rank.
    Core,
    /// No binding.
    None,
    /// These cores, in turn.
    Map(Vec<usize>),
}

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

/// End of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first rank that failed, with its exit: [`Exit::Exited`] or [`Exit::Killed`].
    pub failed: Option<(u32, Exit)>,
    /// Ranks that were ended after the grace, or after the time limit of the job.
    pub ended: Vec<u32>,
    /// True if the job has exceeded its time limit.
    pub out_of_time: bool,
    /// True if a signal that ends programs has arrived.
    pub interrupted: bool,
}

impl Outcome {
    /// Returns the exit status: 0, that of the first rank that failed (128 and the number of the
    /// signal, if a signal ended it), or 124 if the job has exceeded its time limit.
    pub fn exit_status(&self) -> u8 {
        match self.failed {
            _ if self.out_of_time => 124,
            None => 0,
            Some((_, Exit::Exited(status))) => status as u8,
            Some((_, Exit::Killed(signal))) => 128 + signal as u8,
            Some(_) => 1,
        }
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
    let launch = Launch { signals, ..Launch::new(host, children, 0, grace, limit) };
    launch.finish(copier)
}

/// Returns the core of each rank; empty without binding.
fn cores(ranks: u32, binding: &Binding) -> Result<Vec<usize>, ServiceError> {
    let mut allowed = shm::process::allowed_cores();
    let enough = ranks as usize <= allowed.len();
    match binding {
        Binding::Map(map) => return mapped(map, ranks, &allowed),
        Binding::None => return Ok(Vec::new()),
        Binding::Auto if !enough => return Ok(Vec::new()),
        Binding::Core if !enough => {
            return Err(ServiceError::Cores { ranks, cores: allowed.len() });
        }
        Binding::Auto | Binding::Core => {}
    }
    allowed.truncate(ranks as usize);
    Ok(allowed)
}

/// Returns a core of the map for each rank. This process may use all of them.
fn mapped(map: &[usize], ranks: u32, allowed: &[usize]) -> Result<Vec<usize>, ServiceError> {
    match map.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(ServiceError::NoCore { core: *core, allowed: allowed.to_vec() }),
        None => Ok(map.iter().copied().cycle().take(ranks as usize).collect()),
    }
}

/// A running job, or the part of it on this node.
struct Launch {
    host: Host,
    children: Children,
    signals: Option<Signals>,
    orders: Option<Orders>,
    /// Number of the first child.
    first: u32,
    grace: Duration,
    /// Time limit of the job.
    limit: Option<Instant>,
    /// True after the end of the orders: the exits that follow are no failures.
    is_ordered_to_end: bool,
    outcome: Outcome,
}

impl Launch {
    fn new(
        host: Host,
        children: Children,
        first: u32,
        grace: Duration,
        limit: Option<Duration>,
    ) -> Self {
        let outcome =
            Outcome { failed: None, ended: Vec::new(), out_of_time: false, interrupted: false };
        let limit = limit.and_then(|limit| Instant::now().checked_add(limit));
        let (signals, orders) = (None, None);
        let is_ordered_to_end = false;
        Launch { host, children, signals, orders, first, grace, limit, is_ordered_to_end, outcome }
    }

    /// Runs until all children have ended.
    fn finish(mut self, copier: Copier) -> Result<Outcome, ServiceError> {
        self.run()?;
        let Launch { children, outcome, .. } = self;
        // First the drop, which kills what is left of a failed job: then no process writes any more.
        drop(children);
        copier.finish();
        Ok(outcome)
    }

    fn run(&mut self) -> Result<(), ServiceError> {
        while self.children.any_lives() || self.host.has_living() {
            let stage_ends = self.children.stage_ends();
            let deadline = [self.limit, stage_ends].into_iter().flatten().min();
            for event in self.host.events().wait(deadline)? {
                self.handle(event)?;
            }
            if self.limit.is_some_and(|limit| Instant::now() >= limit) {
                self.limit = None;
                self.outcome.out_of_time = true;
                self.children.fail_within(Duration::ZERO);
            }
            if self.children.stage_ends().is_some_and(|end| Instant::now() >= end) {
                self.end_next();
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: NodeEvent) -> Result<(), ServiceError> {
        match event {
            NodeEvent::Child(rank) => self.on_child_exit(rank),
            NodeEvent::Signal => {
                let pending: Vec<_> = self.signals.iter_mut().flat_map(Signals::pending).collect();
                pending.into_iter().for_each(|signal| {
                    self.on_signal(signal);
                    signals::follow(signal);
                });
                Ok(())
            }
            NodeEvent::Order => {
                let pending = self.orders.as_mut().map(Orders::pending).unwrap_or_default();
                for action in pending {
                    match action {
                        Action::Pass(signal) => self.on_signal(signal),
                        Action::End => self.on_end_of_orders(),
                    }
                }
                Ok(())
            }
            event => self.host.handle(event, |pid| self.children.exit_of(pid)),
        }
    }

    /// Passes a signal to the ranks.
    fn on_signal(&mut self, signal: Signal) {
        self.children.pass_on(signal);
        // A second signal ends the job without grace.
        if signals::ends(signal) && std::mem::replace(&mut self.outcome.interrupted, true) {
            self.children.fail_within(Duration::ZERO);
        }
    }

    /// Ends the ranks: the launcher of the job has ended, or ends it.
    fn on_end_of_orders(&mut self) {
        if let Some(orders) = self.orders.take() {
            self.host.events().remove(orders.stream());
        }
        self.is_ordered_to_end = true;
        self.children.fail_within(Duration::ZERO);
    }

    /// Records the end of a child.
    fn on_child_exit(&mut self, rank: u32) -> Result<(), ServiceError> {
        let Some((pid, how)) = self.children.on_exit(rank, self.host.events())? else {
            return Ok(());
        };
        self.host.on_child_exit(rank, pid, how)?;
        if how != Exit::Exited(0) && !self.is_ordered_to_end {
            self.outcome.failed.get_or_insert((self.first + rank, how));
            self.children.fail_within(self.grace);
        }
        Ok(())
    }

    /// Starts the next stage of the end, because the time of the current one is over.
    fn end_next(&mut self) {
        if self.children.stage() == Stage::Failing {
            let living = self.children.living().into_iter();
            self.outcome.ended = living.map(|rank| self.first + rank).collect();
        } else {
            self.host.kill_all();
        }
        self.children.end_next();
    }
}
