//! The launcher of a job on several nodes: starts a launcher on each node, through ssh as a rule.

use super::children::Children;
use super::host::Host;
use super::node::ADDRESSES;
use super::orders::{Controls, Order, Setup};
use super::output::{Copier, Line, Output, Stream};
use super::signals::Signals;
use super::supervision::{Launch, Outcome};
use crate::error::{ServiceError, system};
use crate::events::Events;
use crate::limits::allow_open_files;
use engine::node::EngineKind;
use launch::environment::{CORE, JOB, RANK, SERVICE, SIZE, STORE};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A node and the number of its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRanks {
    /// Its name, as ssh takes it: `host` or `user@host`.
    pub host: String,
    /// Number of its ranks.
    pub ranks: u32,
}

/// Options of a launch on several nodes.
#[derive(Clone, Debug)]
pub struct NodesOptions {
    /// The nodes, in the order of their ranks.
    pub nodes: Vec<NodeRanks>,
    /// Command that executes another one on a node, without the name of the node. It gets two more
    /// words: the name, and a command line for a shell.
    pub shell: Vec<OsString>,
    /// Path of the `tradewind` command on the nodes.
    pub command: PathBuf,
    /// Engine of the job.
    pub engine: EngineKind,
    /// A core for each rank, or no binding; by default a core where there are enough.
    pub binds: Option<bool>,
    /// True if lines of output begin with the rank.
    pub prefix: bool,
    /// Variables of the ranks in addition to those that they have on their node.
    pub environment: Vec<(OsString, OsString)>,
    /// Time for the other ranks after one has failed, before they are ended.
    pub grace: Duration,
    /// Time limit of the job.
    pub limit: Option<Duration>,
}

/// Runs a program as the ranks of a job on several nodes, until all of them have ended. SIGINT,
/// SIGTERM and other signals are passed to the ranks. Standard input is not.
///
/// In the outcome the nodes take the place of the ranks: a node fails with the exit status of its
/// first rank that failed, and its launcher reports that rank on standard error.
///
/// # Errors
/// If the command that reaches the nodes cannot be executed.
pub fn launch_on_nodes(
    program: &OsStr,
    arguments: &[OsString],
    options: NodesOptions,
) -> Result<Outcome, ServiceError> {
    let orders = setups(program, arguments, &options)?;
    let NodesOptions { nodes, shell, command, grace, limit, .. } = options;
    allow_open_files(nodes.len() as u32, 5, 0)?;
    let events = Events::new()?;
    let signals = Signals::catch(&events)?;
    let controls = Controls::default();
    let first = nodes.first().map(|node| node.host.clone()).unwrap_or_default();
    let copier = Copier::new(forward(first, controls.clone()));
    let commands = nodes.iter().map(|node| remote(&shell, &node.host, &command));
    let (children, copier) = Children::start(commands, 0, &events, copier, Some(controls.clone()))?;
    controls.send_each(orders.into_iter().map(Order::Setup));
    let mut launch = Launch::new(Host::Elsewhere(events), children, 0, grace, limit);
    launch.signals = Some(signals);
    launch.finish(copier)
}

/// Returns the first order of each node.
fn setups(
    program: &OsStr,
    arguments: &[OsString],
    options: &NodesOptions,
) -> Result<Vec<Setup>, ServiceError> {
    let random: [u8; 16] =
        shm::random::bytes().map_err(system("get random bytes from the system"))?;
    let secret = format!("{:032x}", u128::from_ne_bytes(random));
    let directory = std::env::current_dir().map_err(system("find the working directory"))?;
    let total = options.nodes.iter().map(|node| node.ranks).sum();
    let mut first = 0;
    let mut setup = |node: &NodeRanks| {
        let begin = first;
        first += node.ranks;
        Setup {
            version: env!("CARGO_PKG_VERSION").into(),
            first: begin,
            ranks: node.ranks,
            total,
            secret: secret.clone(),
            serves: begin == 0,
            engine: options.engine.name().into(),
            binds: options.binds,
            prefix: options.prefix,
            grace_seconds: options.grace.as_secs_f64(),
            directory: directory.clone(),
            environment: variables(&options.environment),
            program: program.into(),
            arguments: arguments.to_vec(),
        }
    };
    Ok(options.nodes.iter().map(&mut setup).collect())
}

/// Variables of the ranks: those of tradewind in this process's environment, and `more`.
fn variables(more: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    // Variables of a job of which this launcher itself may be a rank.
    let of_a_job = [RANK, SIZE, SERVICE, STORE, JOB, CORE];
    let is_ours = |name: &OsStr| {
        name.as_bytes().starts_with(b"TRADEWIND_") && !of_a_job.iter().any(|other| name == *other)
    };
    let own = std::env::vars_os().filter(|(name, _)| is_ours(name));
    let is_overridden = |name: &OsString| more.iter().any(|(other, _)| other == name);
    own.filter(|(name, _)| !is_overridden(name)).chain(more.iter().cloned()).collect()
}

/// Returns the command that starts the launcher of a node.
fn remote(shell: &[OsString], host: &str, tradewind: &std::path::Path) -> Command {
    let mut words = shell.iter();
    let mut command = Command::new(words.next().map_or(OsStr::new("ssh"), OsString::as_os_str));
    command.args(words).arg(host).arg(quoted(tradewind.as_os_str(), " internal node"));
    // A group of its own: Ctrl-C is for this process, which passes it to the ranks.
    command.process_group(0);
    // The terminal stops a process of another group that reads from it, and the job would wait for
    // ever. So ssh gets the answers to its questions from a program, or none, and then fails.
    command.env("SSH_ASKPASS_REQUIRE", "force");
    if std::env::var_os("SSH_ASKPASS").is_none() {
        command.env("SSH_ASKPASS", "false");
    }
    command.stdin(Stdio::piped());
    command
}

/// Returns a word of a command line for a shell, with what follows it.
fn quoted(word: &OsStr, rest: &str) -> OsString {
    let mut line = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => line.extend_from_slice(br"'\''"),
            byte => line.push(*byte),
        }
    }
    line.push(b'\'');
    line.extend_from_slice(rest.as_bytes());
    OsString::from_vec(line)
}

/// Writes the lines of all nodes to the streams of this process, except the line with the addresses
/// of the key-value space, which it passes to all nodes. `first` is the name of the first node.
fn forward(first: String, controls: Controls) -> Output {
    let mut has_addresses = false;
    Output::Lines(Box::new(move |Line { rank, stream, text }| {
        if (rank, stream, has_addresses) == (0, Stream::Output, false)
            && let Some(store) = std::str::from_utf8(text).ok().and_then(|text| store(&first, text))
        {
            has_addresses = true;
            controls.send(&Order::Store(store));
            return Ok(());
        }
        let line = [text, b"\n"].concat();
        match stream {
            Stream::Output => std::io::stdout().lock().write_all(&line),
            Stream::Error => std::io::stderr().lock().write_all(&line),
        }
    }))
}

/// Returns the hosts and ports of the key-value space from the report of the first node; `name`
/// is the name of that node. The addresses come first: the name may be an alias of this node's.
fn store(name: &str, line: &str) -> Option<String> {
    // A start-up file of the node's shell may have begun the line.
    let (_, rest) = line.split_once(ADDRESSES)?;
    let rest = rest.strip_prefix(' ')?;
    let (port, addresses) = rest.split_once(' ').unwrap_or((rest, ""));
    let host = name.rsplit_once('@').map_or(name, |(_, host)| host);
    let named =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let mut all: Vec<&str> = addresses.split(',').filter(|address| !address.is_empty()).collect();
    all.push(&named);
    Some(all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_the_command_survives_a_shell() {
        let path = "/opt/it's here/tradewind";
        let line = quoted(OsStr::new(path), " node");
        let script = OsString::from_vec([b"printf %s-%s ", line.as_bytes()].concat());
        let output =
            Command::new("sh").arg("-c").arg(script).output().expect("every system has sh");
        assert_eq!(output.stdout, format!("{path}-node").as_bytes());
    }

    #[test]
    fn ssh_does_not_ask_at_the_terminal() {
        let command = remote(&["ssh".into()], "node1", "tradewind".as_ref());
        let forces = (OsStr::new("SSH_ASKPASS_REQUIRE"), Some(OsStr::new("force")));
        assert!(command.get_envs().any(|variable| variable == forces));
    }

    #[test]
    fn the_addresses_of_the_first_node_precede_its_name() {
        let line = "tradewind-addresses 7000 10.0.0.1:7000,[fd00::1]:7000";
        let expected = "10.0.0.1:7000,[fd00::1]:7000,node1:7000";
        assert_eq!(store("me@node1", line).as_deref(), Some(expected));
        assert_eq!(store("node1", "tradewind-addresses 7 ").as_deref(), Some("node1:7"));
        let begun = format!("Welcome{line}");
        assert_eq!(store("me@node1", &begun).as_deref(), Some(expected));
        assert_eq!(store("node1", "Welcome to node1"), None);
    }
}
