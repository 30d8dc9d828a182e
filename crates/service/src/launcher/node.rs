//! The launcher of one node of a job on several nodes. The launcher of the job starts it, through
//! ssh as a rule, and sends it orders.

use super::binding::{Binding, cores};
use super::children::{Children, RankProgram};
use super::host::Host;
use super::orders::{self, Order, Orders, Setup};
use super::output::{Copier, Output};
use super::signals::{self, Signals};
use super::supervision::{Launch, Outcome};
use crate::error::{ServiceError, system};
use crate::events::Events;
use crate::limits::allow_open_files;
use launch::LaunchError;
use launch::environment::{COMMAND, ENGINE, Environment, INTERFACE, Lookup, SECRET, STORE};
use launch::node_identity::NodeIdentity;
use launch::ports::listen_everywhere;
use launch::store::{Server, SharedSecret};
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::time::Duration;

/// First word of the line in which the first node's launcher reports the addresses of the key-value
/// space.
pub(super) const ADDRESSES: &str = "tradewind-addresses";

/// The variables that the launcher of the job has sent, and those of this process.
struct Variables<'a>(&'a Setup);

impl Lookup for Variables<'_> {
    fn get(&self, name: &str) -> Option<OsString> {
        let sent = self.0.environment.iter().find(|(sent, _)| sent == name);
        sent.map(|(_, value)| value.clone()).or_else(|| Environment.get(name))
    }
}

/// Runs the ranks that the launcher of a job orders through standard input, until all of them have
/// ended. The end of the input ends them.
///
/// # Errors
/// If the orders cannot be read, the program cannot be executed, or no port is free.
pub fn launch_on_this_node() -> Result<Outcome, ServiceError> {
    let mut input = BufReader::new(std::io::stdin());
    let Some(Order::Setup(setup)) = orders::read(&mut input)? else {
        return Err(ServiceError::NotOrdered);
    };
    if setup.version != env!("CARGO_PKG_VERSION") {
        let ours = env!("CARGO_PKG_VERSION").into();
        let theirs = setup.version;
        return Err(ServiceError::OtherVersion { ours, theirs });
    }
    // A connection of the key-value space for each rank of the job.
    let connections = if setup.serves { setup.total } else { 0 };
    allow_open_files(setup.ranks, 5, connections.into())?;
    // Lives until the ranks have ended: they exchange their addresses when they join.
    let _server = if setup.serves { Some(serve(&setup)?) } else { None };
    match store(&mut input)? {
        Some((store, early)) => run(&setup, store, &early, input),
        // The launcher of the job has ended, and no rank has started.
        None => Ok(Outcome::default()),
    }
}

/// Reads the addresses of the key-value space, and the signals that arrive before them, which are
/// for ranks that have not started. `None` at the end of the input.
fn store(input: &mut impl BufRead) -> Result<Option<(String, Vec<Signal>)>, ServiceError> {
    let mut early = Vec::new();
    loop {
        match orders::read(input)? {
            Some(Order::Store(store)) => return Ok(Some((store, early))),
            Some(Order::Signal(number)) => early.extend(signals::passed(number)),
            Some(Order::Setup(_)) => return Err(ServiceError::NotOrdered),
            None => return Ok(None),
        }
    }
}

/// Starts the key-value space, and reports its addresses.
fn serve(setup: &Setup) -> Result<Server, ServiceError> {
    let variables = Variables(setup);
    let failed = "listen for the job's ranks";
    let listener = variables.ports()?.bind(listen_everywhere).map_err(system(failed))?;
    let port = listener.local_addr().map_err(system(failed))?.port();
    let secret = SharedSecret::new(&setup.secret, SECRET).map_err(LaunchError::from)?;
    let limit = variables.start_timeout()?;
    let server =
        Server::with_listener(listener, secret, setup.total, limit).map_err(LaunchError::from)?;
    let interface = variables.text(INTERFACE)?;
    let here = NodeIdentity::of_this_process(None, interface.as_deref())?;
    let addresses: Vec<String> =
        here.addresses().map(|ip| SocketAddr::new(ip, port).to_string()).collect();
    // The launcher of the job adds the name by which it has reached this node.
    shm::detached::report(&format!("{ADDRESSES} {port} {}", addresses.join(",")));
    Ok(server)
}

fn run(
    setup: &Setup,
    store: String,
    early: &[Signal],
    input: BufReader<std::io::Stdin>,
) -> Result<Outcome, ServiceError> {
    // The same directory as the launcher's, if this node has it.
    if let Err(error) = std::env::set_current_dir(&setup.directory) {
        log::warn!("the ranks run in the home directory: {}: {error}", setup.directory.display());
    }
    let binding = match setup.binds {
        None => Binding::Auto,
        Some(true) => Binding::Core,
        Some(false) => Binding::None,
    };
    let cores = cores(setup.ranks, &binding)?;
    let own = std::env::current_exe().map_err(system("find the path of this program"))?;
    let command = Variables(setup).get(COMMAND).unwrap_or_else(|| own.into());
    let variables = [
        (STORE, store.into()),
        (SECRET, setup.secret.clone().into()),
        (ENGINE, setup.engine.clone().into()),
        (COMMAND, command),
    ];
    let program = RankProgram {
        path: &setup.program,
        arguments: &setup.arguments,
        environment: &setup.environment,
        job: &variables,
        cores: &cores,
        first: setup.first,
        total: setup.total,
        passes_input: false,
    };
    let output = if setup.prefix { Output::prefixed() } else { Output::Inherit };
    let commands = (0..setup.ranks).map(|rank| program.command(rank));
    let events = Events::new()?;
    // Without it a signal to this process would leave the ranks behind.
    let signals = Signals::catch(&events)?;
    let copier = Copier::new(output);
    let (children, copier) = Children::start(commands, setup.first, &events, copier, None)?;
    let orders = Orders::receive(input, &events)?;
    let grace = Duration::try_from_secs_f64(setup.grace_seconds).unwrap_or(Duration::ZERO);
    let host = Host::Elsewhere(events);
    let mut launch = Launch::new(host, children, setup.first, grace, None);
    launch.orders = Some(orders);
    launch.signals = Some(signals);
    early.iter().for_each(|signal| launch.on_signal(*signal));
    launch.finish(copier)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_before_the_ranks_are_kept_for_them() {
        let orders = [Order::Signal(10), Order::Signal(2), Order::Store("a:7000".into())];
        let lines = orders.map(|order| serde_json::to_string(&order).expect("text") + "\n");
        let read = |lines: &[String]| store(&mut lines.concat().as_bytes()).expect("orders");
        let expected = ("a:7000".to_owned(), vec![Signal::USR1, Signal::INT]);
        assert_eq!(read(&lines), Some(expected));
        assert_eq!(read(&lines[..2]), None, "the launcher has ended");
    }
}
