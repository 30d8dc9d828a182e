//! A place with a name server of its own, and programs that run there.

use rustix::process::Signal;
use shm::broker::{BrokerError, connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use virtual_nodes::Node;

/// Time that no correct test needs.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Waits for a condition that another process brings about.
pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let limit = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < limit, "not within {TIMEOUT:?}: {what}");
        std::thread::yield_now();
    }
}

/// A running program, which is killed when this is dropped.
pub(crate) struct Program {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(command: &mut Command) -> Program {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program is there");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Program { child, output }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the next line that it prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// Writes a line to its standard input, and returns the next one that it prints.
    pub(crate) fn ask(&mut self, question: &str) -> String {
        let input = self.child.stdin.as_mut().expect("a pipe");
        writeln!(input, "{question}").expect("it reads");
        self.line()
    }

    pub(crate) fn kill(self) {}
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A place whose programs have a name server of their own: a virtual node, or a node that is
/// simulated by a variable.
pub(crate) struct Place<'a> {
    name: String,
    node: Option<&'a Node>,
    variables: Vec<(&'static str, String)>,
}

impl<'a> Place<'a> {
    pub(crate) fn new() -> Place<'a> {
        let name = unguessable_name("names").expect("random bytes");
        Place { name, node: None, variables: Vec::new() }
    }

    /// A place on a virtual node.
    pub(crate) fn on(node: &'a Node) -> Place<'a> {
        Place { node: Some(node), ..Place::new() }
    }

    /// Sets a variable for all programs.
    pub(crate) fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn program(&self, program: impl AsRef<OsStr>) -> Command {
        self.node.map_or_else(|| Command::new(&program), |node| node.command(&program))
    }

    /// Adds the variables of the place to a command.
    fn enter<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .env("TRADEWIND_NODE", &self.name)
            .env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"))
    }

    /// Returns the command of one of the tests' programs.
    pub(crate) fn part(&self, name: &str, arguments: &[&str]) -> Command {
        let name = format!("names::programs::{name}");
        let mut command = testing::part_by(&name, |program| self.program(program));
        self.enter(command.args(arguments));
        command
    }

    /// Starts one of the programs.
    pub(crate) fn start(&self, name: &str, arguments: &[&str]) -> Program {
        Program::start(&mut self.part(name, arguments))
    }

    /// Returns a `tradewind` command.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_tradewind"));
        self.enter(command.args(arguments));
        command
    }

    /// Lets other nodes connect at this address. Returns the command and the port.
    pub(crate) fn listen(&self, address: &str) -> (Program, u16) {
        let mut command = Program::start(&mut self.command(&["names", "--listen", address]));
        let line = command.line();
        let address = line.strip_prefix("other nodes connect with NAME@");
        let address = address.and_then(|rest| rest.strip_suffix(" while this command runs"));
        let address: SocketAddr = address.expect(&line).parse().expect(&line);
        (command, address.port())
    }

    /// Starts the first example, which publishes this name.
    pub(crate) fn squares(&self, name: &str) -> Program {
        let mut program = Program::start(&mut self.part("squares_program", &[name]));
        assert_eq!(program.line(), format!("{name} is published"));
        program
    }

    /// Starts the example that answers three numbers and then gives its name to another program.
    pub(crate) fn hand_over(&self, name: &str, successor: &str) -> Program {
        let mut program = Program::start(&mut self.part("hand_over_program", &[name, successor]));
        assert_eq!(program.line(), format!("{name} is published"));
        program
    }

    pub(crate) fn silent(&self, name: &str) -> Program {
        let mut program = Program::start(&mut self.part("silent", &[name]));
        assert_eq!(program.line(), "published");
        program
    }

    /// Starts a job of two ranks of the program `serves`, which publish this name once the file
    /// exists.
    pub(crate) fn serving_job(&self, name: &str, go_on: &std::path::Path) -> Program {
        let itself = std::env::current_exe().expect("/proc is mounted");
        let mut command = self.command(&["run", "-n", "2", "--serve", name, "--"]);
        command.arg(itself).args(["--part", "names::programs::serves", name]).arg(go_on);
        Program::start(&mut command)
    }

    /// Runs the second example, and returns what it prints.
    pub(crate) fn ask(&self, target: &str, numbers: &[&str]) -> Vec<String> {
        let mut command = self.part("ask_program", &[target]);
        lines(&success(command.args(numbers)))
    }

    /// Runs the `tradewind` command, and returns what it prints.
    pub(crate) fn tradewind(&self, arguments: &[&str]) -> String {
        success(&mut self.command(arguments))
    }

    /// Returns the name of the server of a user.
    pub(crate) fn server_of(&self, user: u32) -> String {
        format!("tradewind-names-{user}-{}", self.name)
    }

    fn server(&self) -> Option<u32> {
        let name = self.server_of(rustix::process::geteuid().as_raw());
        let find = || connect(&name, Duration::ZERO);
        match self.node.map_or_else(find, |node| node.run(find)) {
            Ok(socket) => socket.peer().pid,
            Err(BrokerError::NoService { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a signal to the name server, and returns its number.
    pub(crate) fn signal_server(&self, signal: Signal) -> u32 {
        let server = self.server().expect("a name server");
        let pid = rustix::process::Pid::from_raw(server.cast_signed()).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it is ours");
        server
    }

    /// Requests the end of a program.
    pub(crate) fn terminate(&self, program: &Program) {
        let pid = rustix::process::Pid::from_raw(program.id().cast_signed()).expect("a process");
        rustix::process::kill_process(pid, Signal::TERM).expect("it is ours");
    }

    pub(crate) fn kill_server(&self) {
        let server = self.signal_server(Signal::KILL);
        let has_ended =
            || matches!(state(server).expect("/proc"), ProcessState::Gone | ProcessState::Zombie);
        wait_until("the name server ends", has_ended);
    }

    pub(crate) fn await_end_of_server(&self) {
        wait_until("the name server ends after the last program", || self.server().is_none());
    }
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program is there")
}

/// Runs a command that succeeds, and returns what it prints.
pub(crate) fn success(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = run(command);
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).expect("text")
}

/// Runs a command that fails, and returns its error, which is one line.
pub(crate) fn failure(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = run(command);
    let stderr = String::from_utf8(stderr).expect("text");
    assert!(!status.success(), "{}", String::from_utf8_lossy(&stdout));
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr.trim_end().to_owned()
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}
