//! Programs of the tests, and a place with a name server of its own.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/ask.rs"]
mod ask;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/squares.rs"]
mod squares;

use shm::broker::{BrokerError, connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tradewind::Job;
use tradewind::names::{ConnectedPort, PeerError, PeerEvent};

/// Time that no correct test needs.
const TIMEOUT: Duration = Duration::from_secs(60);

testing::parts![squares_program, ask_program, silent, sends, receives, asks, reports];

/// Returns the arguments of a part.
fn arguments() -> Vec<String> {
    std::env::args().skip(3).collect()
}

fn target() -> String {
    arguments().swap_remove(0)
}

fn or_exit<T>(outcome: Result<T, PeerError>) -> T {
    outcome.unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1)
    })
}

fn squares_program() {
    or_exit(squares::serve(&target()));
}

fn ask_program() {
    let numbers: Vec<i64> =
        arguments()[1..].iter().map(|text| text.parse().expect("a number")).collect();
    or_exit(ask::ask(&target(), &numbers));
}

/// Publishes a name and receives nothing.
fn silent() {
    let _port = or_exit(Job::publish(&target()));
    println!("published");
    loop {
        std::thread::park();
    }
}

fn connected() -> ConnectedPort {
    let port = or_exit(Job::connect(&target()));
    println!("connected");
    port
}

/// Prints an error and that of the same operation once more, and stays.
fn print_twice(mut operation: impl FnMut() -> PeerError) {
    println!("{}", operation());
    println!("{}", operation());
    loop {
        std::thread::park();
    }
}

/// Sends until that fails. Reports when the receiver has no space left.
fn sends() {
    let mut port = connected();
    let message = [7; 1000];
    while or_exit(port.try_send(&message)) {}
    println!("full");
    print_twice(|| {
        loop {
            if let Err(error) = port.send(&message) {
                return error;
            }
        }
    });
}

/// Sends one message and receives until that fails.
fn receives() {
    let mut port = connected();
    or_exit(port.send(b"hello"));
    print_twice(|| {
        loop {
            match port.recv() {
                Ok(message) => println!("received {} bytes", message.len()),
                Err(error) => return error,
            }
        }
    });
}

/// Sends each number of standard input, and prints the answer or the error.
fn asks() {
    let mut port = connected();
    for line in std::io::stdin().lines() {
        let number: i64 = line.expect("text").parse().expect("a number");
        let answer = port.send(&number.to_le_bytes()).and_then(|()| Ok(port.recv()?.to_vec()));
        match answer {
            Ok(bytes) => println!("{}", i64::from_le_bytes(bytes.try_into().expect("a number"))),
            Err(error) => println!("{error}"),
        }
    }
}

/// Publishes a name, and prints every message, the end of every connection, and the error of a
/// reply after that.
fn reports() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    let mut last = None;
    loop {
        match or_exit(port.recv()) {
            PeerEvent::Message { client, bytes } => {
                println!("message of {} bytes", bytes.len());
                last = Some(client);
            }
            PeerEvent::Ended(error) => {
                println!("{error}");
                if let Some(Err(error)) = last.take().map(|client| port.reply(client, b"late")) {
                    println!("{error}");
                }
            }
        }
    }
}

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

/// A place whose programs have a name server of their own: they are on a simulated node.
pub(crate) struct Place {
    node: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { node: unguessable_name("names").expect("random bytes") }
    }

    /// Adds the variables of the place to a command.
    pub(crate) fn enter<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("TRADEWIND_NODE", &self.node)
            .env("TRADEWIND_COMMAND", env!("CARGO_BIN_EXE_tradewind"))
    }

    /// Returns the command of a part of this module.
    pub(crate) fn part(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = testing::part(&format!("names::harness::{name}"));
        self.enter(command.args(arguments));
        command
    }

    /// Starts the first example, which publishes this name.
    pub(crate) fn squares(&self, name: &str) -> Program {
        let mut program = Program::start(&mut self.part("squares_program", &[name]));
        assert_eq!(program.line(), format!("{name} is published"));
        program
    }

    pub(crate) fn silent(&self, name: &str) -> Program {
        let mut program = Program::start(&mut self.part("silent", &[name]));
        assert_eq!(program.line(), "published");
        program
    }

    /// Runs the second example, and returns what it prints.
    pub(crate) fn ask(&self, target: &str, numbers: &[&str]) -> Vec<String> {
        let mut command = self.part("ask_program", &[target]);
        lines(&success(command.args(numbers)))
    }

    /// Runs the `tradewind` command, and returns what it prints.
    pub(crate) fn tradewind(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tradewind"));
        success(self.enter(command.args(arguments)))
    }

    fn server(&self) -> Option<u32> {
        let user = rustix::process::geteuid().as_raw();
        match connect(&format!("tradewind-names-{user}-{}", self.node), Duration::ZERO) {
            Ok(socket) => socket.peer().pid,
            Err(BrokerError::NoService { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn kill_server(&self) {
        let server = self.server().expect("a name server");
        let pid = rustix::process::Pid::from_raw(server.cast_signed()).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it is ours");
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
fn success(command: &mut Command) -> String {
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
