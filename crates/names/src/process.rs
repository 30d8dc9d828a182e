//! The process of the name server, and its start on demand.

use crate::owner::{ProgramOwner, published_names};
use crate::peer_error::PeerError;
use crate::server::NameServer;
use crate::start_error::StartError;
use crate::wire::{NameEntry, NameError, Refusal};
use launch::environment::{COMMAND, Environment, Lookup, NODE};
use shm::broker::{BrokerError, Connection, connect};
use shm::detached::{READY, TAKEN, raise_limits, report};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time that a server waits for its first client.
const FIRST_USE: Duration = Duration::from_secs(10);

/// Pauses after the second and the later starts of a server for one request.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// Time for a server to start.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Time to wait for the name server, which may have to be started.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time to wait for the list of the published names.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns the name of this user's server on this node.
///
/// Abstract names belong to a network namespace; where `TRADEWIND_NODE` simulates several nodes in
/// one, each has a server of its own.
pub fn default_name() -> String {
    let user = rustix::process::geteuid().as_raw();
    match Environment.get(NODE) {
        Some(node) => format!("tradewind-names-{user}-{}", node.display()),
        None => format!("tradewind-names-{user}"),
    }
}

/// Adds a program to the name server of this name, which is started if there is none. `starter`
/// returns a command that executes [`serve`] in a process that is no child of this one; it gets the
/// name as its last argument.
///
/// # Errors
///
/// [`PeerError::Taken`]; [`PeerError::Start`] if the server cannot be started.
pub fn add_program(
    server: &str,
    program: &str,
    starter: impl Fn() -> Command,
) -> Result<ProgramOwner, PeerError> {
    let deadline = Instant::now() + SERVER_TIMEOUT;
    let added = with_server(server, deadline, starter, |socket| {
        ProgramOwner::add(socket, program, deadline)
    });
    added.map_err(|error| match error {
        StartError::Names(NameError::Refused { refusal: Refusal::Taken { pid }, .. }) => {
            PeerError::Taken { name: program.to_owned(), pid }
        }
        error => error.into(),
    })
}

/// Executes a request at the user's server on this node, which is started if there is none.
/// `command` as in [`starter`].
pub(crate) fn with_default_server<T>(
    command: Option<&Path>,
    deadline: Instant,
    request: impl Fn(Connection) -> Result<T, NameError>,
) -> Result<T, StartError> {
    with_server(&default_name(), deadline, || starter(command), request)
}

/// Returns the command that starts the user's server: the one that `TRADEWIND_COMMAND` names, or
/// else `command`, which a caller passes that is the `tradewind` command itself, or else the one in
/// PATH.
pub(crate) fn starter(command: Option<&Path>) -> Command {
    let given = || command.map_or_else(|| OsString::from("tradewind"), OsString::from);
    let command = Environment.get(COMMAND).unwrap_or_else(given);
    let mut command = Command::new(command);
    command.args(["internal", "serve-names"]);
    command
}

/// Executes a request at the server of this name, which is started if there is none.
fn with_server<T>(
    name: &str,
    deadline: Instant,
    starter: impl Fn() -> Command,
    request: impl Fn(Connection) -> Result<T, NameError>,
) -> Result<T, StartError> {
    let mut pause = Duration::ZERO;
    loop {
        // Each round either executes the request or finds no server and starts one. Two rounds
        // suffice, unless servers end or are killed as fast as they start.
        match connect(name, Duration::ZERO).map_err(NameError::from).and_then(&request) {
            Ok(outcome) => return Ok(outcome),
            // No server, or one that ended before it read the request: it was not executed, so it
            // can be repeated at the next server.
            Err(error) if is_without_server(&error) && Instant::now() < deadline => {
                start(name, starter())?;
                // A server that ends at once must not be started as fast as the processor permits.
                std::thread::sleep(pause);
                pause = (2 * pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            }
            Err(NameError::Broker(BrokerError::Busy { .. })) if Instant::now() < deadline => {
                pause = (2 * pause).clamp(FIRST_PAUSE, LONGEST_PAUSE);
                std::thread::sleep(pause);
            }
            Err(error) => return Err(StartError::at(name, error)),
        }
    }
}

/// Returns what is published at the server of this name; nothing without a server.
///
/// # Errors
///
/// [`StartError::Names`], [`StartError::OtherUser`].
pub fn published(name: &str) -> Result<Vec<NameEntry>, StartError> {
    let socket = match connect(name, Duration::ZERO) {
        Ok(socket) => socket,
        Err(BrokerError::NoService { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(StartError::at(name, error.into())),
    };
    match published_names(socket, Instant::now() + LIST_TIMEOUT) {
        // It ended a moment ago, because no program was left.
        Err(NameError::ServerGone) => Ok(Vec::new()),
        entries => Ok(entries?),
    }
}

/// Returns true if no server has executed the request.
fn is_without_server(error: &NameError) -> bool {
    match error {
        NameError::ServerGone => true,
        NameError::Broker(error) => matches!(
            error,
            BrokerError::NoService { .. } | BrokerError::Closed | BrokerError::System { .. }
        ),
        _ => false,
    }
}

/// Starts a server, unless another process is faster, and returns when it can be connected to.
fn start(name: &str, mut command: Command) -> Result<(), StartError> {
    let program = command.get_program().display().to_string();
    let not_ready = |why: String| StartError::NotReady { name: name.to_owned(), why };
    let started = shm::detached::start(command.arg(name), false, START_LIMIT);
    let started = started.map_err(|source| StartError::NoCommand {
        name: name.to_owned(),
        command: program.clone(),
        source,
    })?;
    match started.line.as_str() {
        READY | TAKEN => Ok(()),
        "" => Err(not_ready(format!("{program} has ended without a reason"))),
        why => Err(not_ready(why.to_owned())),
    }
}

/// Runs the name server of this name in this process until its last client has left. Prints a line
/// when the server can be connected to, when another one has the name, or with the reason why it
/// cannot start.
///
/// # Errors
///
/// Those of [`NameServer::bind`] and [`NameServer::serve`]; they have been printed too.
pub fn serve(name: &str) -> Result<(), StartError> {
    // The working directory may be unmounted while the server runs.
    let _ = std::env::set_current_dir("/");
    raise_limits();
    // Binding decides between servers that start at once: only one of them gets the name.
    let server = match NameServer::bind(name) {
        Ok(server) => server,
        Err(NameError::Broker(BrokerError::NameTaken { .. })) => {
            report(TAKEN);
            return Ok(());
        }
        Err(error) => {
            report(&error.to_string());
            return Err(error.into());
        }
    };
    report(READY);
    Ok(server.serve_while_used(FIRST_USE)?)
}
