//! Starting the node service as a process of its own, for ranks that `tradewind run` has not
//! started.

use crate::error::{ServiceError, system};
use crate::job_options::job_options;
use engine::node::{EngineKind, JobOptions};
use launch::environment::{COMMAND, Environment, Lookup};
use network::job_nodes::ServiceEndpoint;
use shm::broker::BrokerError;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};

/// What the service says when ranks may come.
pub(crate) const READY: &str = "ready";
/// What it says when another one has the name.
pub(crate) const TAKEN: &str = "taken";

/// A job whose ranks another launcher has started.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) ranks: u32,
    /// The launcher's process, if known.
    pub(crate) launcher: Option<u32>,
    pub(crate) engine: EngineKind,
    /// Where the service is to listen for those of the job's other nodes, if there are any.
    pub(crate) listen: Option<IpAddr>,
}

/// Starts the service, unless another rank is faster, and returns when it can be connected to.
/// Gives the address at which it listens, if this call has started it and it was to listen.
pub(crate) fn start(job: &Job) -> Result<Option<ServiceEndpoint>, ServiceError> {
    let command = Environment.get(COMMAND).unwrap_or_else(|| OsString::from("tradewind"));
    let child = Command::new(&command)
        .args([
            "serve",
            &job.name,
            "--ranks",
            &job.ranks.to_string(),
            "--engine",
            job.engine.name(),
        ])
        .args(["--cores", &cores(job.launcher).to_string()])
        .args(job.listen.iter().flat_map(|ip| ["--listen".to_owned(), ip.to_string()]))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|source| ServiceError::NoCommand {
            command: command.display().to_string(),
            source,
        })?;
    let said = first_line(child).map_err(system("start the node service"))?;
    match said.as_str() {
        READY | TAKEN => Ok(None),
        said if said.strip_prefix(READY).is_some_and(|rest| rest.starts_with(' ')) => {
            let listening = said[READY.len()..].trim_start().parse();
            listening.map(Some).map_err(|_| {
                ServiceError::NotReady(format!("it listens where nobody can knock: {said}"))
            })
        }
        "" => Err(ServiceError::NotReady(format!("{} said nothing and ended", command.display()))),
        why => Err(ServiceError::NotReady(why.to_owned())),
    }
}

/// Waits for a command that starts a service in a detached process, and returns the first line that
/// the service prints. The service has inherited the pipe and outlives the command.
pub(crate) fn first_line(mut command: Child) -> std::io::Result<String> {
    let mut line = String::new();
    let output = command.stdout.take();
    let read = output.map_or(Ok(0), |output| BufReader::new(output).read_line(&mut line));
    command.wait()?;
    read?;
    line.truncate(line.trim_end().len());
    Ok(line)
}

/// Cores that the ranks share. A launcher may have bound this rank to one; it itself is not bound
/// as a rule.
fn cores(launcher: Option<u32>) -> usize {
    let own = shm::process::allowed_cores().len();
    let of_launcher = launcher
        .and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()))
        .and_then(|pid| rustix::thread::sched_getaffinity(Some(pid)).ok())
        .map_or(0, |set| set.count() as usize);
    own.max(of_launcher).max(1)
}

/// What `tradewind serve` was asked for.
#[derive(Clone, Debug)]
pub struct Request {
    /// Name of the service's door.
    pub name: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Who runs operations.
    pub engine: EngineKind,
    /// Cores that the ranks share.
    pub cores: u32,
    /// Where to listen for the services of the job's other nodes, if there are any.
    pub listen: Option<IpAddr>,
}

/// Starts the service as a process that is nobody's child but init's, so that it leaves no zombie
/// with the rank that wanted it, and returns. `itself` is the command line that gets to [`serve`].
///
/// # Errors
/// When this program cannot be executed once more.
pub fn detach(itself: &mut Command) -> Result<(), ServiceError> {
    itself.spawn().map(drop).map_err(system("start the node service"))
}

/// Is the node service until the last rank is gone. Says on standard output that ranks may come and
/// at which address it listens if it was asked to, or why they may not.
///
/// # Errors
/// When the service cannot be had; that has been said on standard output too.
pub fn serve(request: &Request) -> Result<(), ServiceError> {
    // Out of the terminal's reach: Ctrl-C is for the ranks, and this outlives them. It fails for a
    // session's leader.
    let _ = rustix::process::setsid();
    let outcome = job_options(request.ranks, request.engine).and_then(|options| {
        let options = JobOptions { cores: request.cores, ..options };
        let ready = |listening: Option<ServiceEndpoint>| match listening {
            None => say(READY),
            Some(listening) => say(&format!("{READY} {listening}")),
        };
        crate::server::serve(
            &request.name,
            &options,
            request.listen,
            Environment.start_timeout()?,
            ready,
        )
    });
    match &outcome {
        Ok(()) => {}
        Err(ServiceError::Broker(BrokerError::NameTaken { .. })) => {
            say(TAKEN);
            return Ok(());
        }
        Err(error) => say(&error.to_string()),
    }
    outcome
}

pub(crate) fn say(what: &str) {
    // Nobody may listen any more.
    let _ = writeln!(std::io::stdout(), "{}", what.replace('\n', " "));
}
