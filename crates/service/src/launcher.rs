//! Starts a job's ranks, is their node service, and sees them off.

mod children;
mod output;
mod signals;

pub use output::{Line, Output, Sink, Stream};

use crate::error::ServiceError;
use crate::events::Event;
use crate::job_options::job_options;
use crate::server::Server;
use children::{Children, Stage};
use engine::Exit;
use engine::node::{EngineKind, JobOptions};
use signals::Signals;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

/// Where ranks may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Binding {
    /// A core for each rank if there are enough, else none.
    #[default]
    Auto,
    /// A core for each rank.
    Core,
    /// Wherever the system puts them.
    None,
    /// On these cores, taken in turn.
    Map(Vec<usize>),
}

/// How a job is started.
#[derive(Debug)]
pub struct LaunchOptions {
    /// The job: ranks, engine, segment.
    pub job: JobOptions,
    /// Where ranks may run.
    pub binding: Binding,
    /// Where the ranks' output goes.
    pub output: Output,
    /// Variables that the ranks get besides those of this process.
    pub environment: Vec<(OsString, OsString)>,
    /// How long the other ranks may go on after one has failed, before they are ended.
    pub grace: Duration,
    /// How long the job may take.
    pub limit: Option<Duration>,
    /// Whether SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP and SIGCONT go to the ranks
    /// instead of this process.
    pub passes_signals: bool,
}

impl LaunchOptions {
    /// The usual ones: cores if there are enough, output as it comes, ten seconds of grace, signals
    /// passed on.
    ///
    /// # Errors
    /// When a variable of the environment that describes the segment cannot be understood.
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

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The first rank that failed, and how: [`Exit::Exited`] or [`Exit::Killed`].
    pub failed: Option<(u32, Exit)>,
    /// Ranks that had to be ended because the grace or the job's time was over.
    pub ended: Vec<u32>,
    /// Whether the job's time was over.
    pub out_of_time: bool,
    /// Whether a signal that ends programs came for it.
    pub asked_to_end: bool,
}

impl Outcome {
    /// The exit status for it: 0, that of the first failing rank (128 and the signal's number for a
    /// signal), or 124 if the time was over.
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
/// Each rank finds in its environment which one it is and where the service is. Rank 0 has this
/// process's standard input, unless that is a terminal; the others have none. Each is the leader of
/// a process group of its own.
///
/// # Errors
/// When the program or the segment is not to be had. That a rank fails is no error but an
/// [`Outcome`].
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
    let cores = cores(&options)?;
    let server = Server::new(&shm::broker::unguessable_name("tradewind")?, &options.job, None)?;
    // Two handles, a connection and two pipes.
    crate::server::allow_open_files(options.job.ranks, 5, 0)?;
    let signals =
        if options.passes_signals { Some(Signals::catch(server.events())?) } else { None };
    let command = children::Program {
        path: program,
        arguments,
        environment: &options.environment,
        cores: &cores,
    };
    let limit = options.limit.and_then(|limit| Instant::now().checked_add(limit));
    let copier = output::Copier::new(options.output);
    let (children, copier) = Children::start(&command, &server, options.job.engine, copier)?;
    let mut launch = Launch {
        server,
        children,
        signals,
        grace: options.grace,
        limit,
        outcome: Outcome {
            failed: None,
            ended: Vec::new(),
            out_of_time: false,
            asked_to_end: false,
        },
    };
    launch.run()?;
    let Launch { children, outcome, .. } = launch;
    // What is left of a failed job writes no more.
    drop(children);
    copier.finish();
    Ok(outcome)
}

/// The core of each rank; empty where they are not bound.
fn cores(options: &LaunchOptions) -> Result<Vec<usize>, ServiceError> {
    let ranks = options.job.ranks;
    let mut allowed = shm::process::allowed_cores();
    let enough = ranks as usize <= allowed.len();
    match &options.binding {
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

/// A core of the map for each rank, all of which this process may use.
fn mapped(map: &[usize], ranks: u32, allowed: &[usize]) -> Result<Vec<usize>, ServiceError> {
    match map.iter().find(|core| !allowed.contains(core)) {
        Some(core) => Err(ServiceError::NoCore { core: *core, allowed: allowed.to_vec() }),
        None => Ok(map.iter().copied().cycle().take(ranks as usize).collect()),
    }
}

/// A job under way.
struct Launch {
    server: Server,
    children: Children,
    signals: Option<Signals>,
    grace: Duration,
    /// When the job's time is over.
    limit: Option<Instant>,
    outcome: Outcome,
}

impl Launch {
    fn run(&mut self) -> Result<(), ServiceError> {
        while self.children.any_lives() || self.server.has_attached() {
            let stage_ends = self.children.stage_ends();
            let deadline = [self.limit, stage_ends].into_iter().flatten().min();
            for event in self.server.events().wait(deadline)? {
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

    fn handle(&mut self, event: Event) -> Result<(), ServiceError> {
        match event {
            Event::Child(rank) => self.see_off(rank),
            Event::Signal => {
                for signal in self.signals.iter_mut().flat_map(Signals::pending) {
                    self.children.pass_on(signal);
                    signals::follow(signal);
                    // Who asks twice is in a hurry.
                    if signals::ends(signal)
                        && std::mem::replace(&mut self.outcome.asked_to_end, true)
                    {
                        self.children.fail_within(Duration::ZERO);
                    }
                }
                Ok(())
            }
            event => self.server.handle(event, |pid| self.children.departure_of(pid)),
        }
    }

    fn see_off(&mut self, rank: u32) -> Result<(), ServiceError> {
        let Some((pid, how)) = self.children.see_off(rank, self.server.events())? else {
            return Ok(());
        };
        // It may have joined, or one that it started may have, in the moment before.
        self.server.hear_all()?;
        self.server.child_gone(rank, pid, how);
        if how != Exit::Exited(0) {
            self.outcome.failed.get_or_insert((rank, how));
            self.children.fail_within(self.grace);
        }
        Ok(())
    }

    /// The time that was given to the ranks is over.
    fn end_next(&mut self) {
        if self.children.stage() == Stage::Failing {
            self.outcome.ended = self.children.living();
        } else {
            self.server.kill_attached();
        }
        self.children.end_next();
    }
}
