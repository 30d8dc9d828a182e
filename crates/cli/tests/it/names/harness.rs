//! Programs of the tests, and a place with a name server of its own.

#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/ask.rs"]
mod ask;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/hand_over.rs"]
mod hand_over;
#[allow(dead_code, reason = "the example's main is not called")]
#[path = "../../../../tradewind/examples/squares.rs"]
mod squares;

use rustix::process::Signal;
use shm::broker::{BrokerError, connect, unguessable_name};
use shm::process::{ProcessState, state};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tradewind::Job;
use tradewind::names::{ConnectedPort, PeerError, PeerEvent};
use virtual_nodes::Node;

/// Time that no correct test needs.
const TIMEOUT: Duration = Duration::from_secs(60);

testing::parts![
    squares_program,
    hand_over_program,
    ask_program,
    silent,
    sends,
    receives,
    asks,
    reports,
    pours,
    checks,
    posts,
    sleeps_and_receives,
    overwhelms,
    serves,
];

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

fn hand_over_program() {
    or_exit(hand_over::serve(&target(), &arguments()[1], 3));
}

fn ask_program() {
    let numbers: Vec<i64> =
        arguments()[1..].iter().map(|text| text.parse().expect("a number")).collect();
    or_exit(ask::ask(&target(), &numbers));
}

/// As a rank of a job: publishes a name once a file exists, and answers as the first example does.
/// The ranks that come too late say so and end.
fn serves() {
    let go_on = arguments().swap_remove(1);
    while !std::path::Path::new(&go_on).exists() {
        std::thread::yield_now();
    }
    if let Err(error) = squares::serve(&target()) {
        println!("{error}");
    }
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
    let mut port = or_exit(Job::connect(&target()));
    or_exit(port.send(b"hello"));
    println!("connected");
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
            PeerEvent::Moved => panic!("it has not moved"),
            PeerEvent::Ended(error) => {
                println!("{error}");
                // The name server may observe the end a moment later than this process.
                let replies = last.take().map(|client| {
                    loop {
                        if let Err(error) = port.reply(client, b"late") {
                            break error;
                        }
                    }
                });
                replies.into_iter().for_each(|error| println!("{error}"));
            }
        }
    }
}

/// Returns a message whose contents follow from its number and its sender.
fn numbered(sender: u8, number: u32) -> Vec<u8> {
    let length = 5 + (number.wrapping_mul(2_654_435_761) >> 16) as usize % 600;
    let mut bytes = vec![number as u8; length];
    bytes[0] = sender;
    bytes[1..5].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Sends numbered messages, and checks that each comes back, in order.
fn pours() {
    let arguments = arguments();
    let sender: u8 = arguments[1].parse().expect("a number");
    let count: u32 = arguments[2].parse().expect("a number");
    let mut port = connected();
    let (mut sent, mut received) = (0, 0);
    while received < count {
        while sent < count && or_exit(port.try_send(&numbered(sender, sent))) {
            sent += 1;
        }
        assert_eq!(or_exit(port.recv()), numbered(sender, received), "message {received}");
        received += 1;
    }
    println!("{count} messages came back");
}

/// Publishes a name, checks numbered messages of several clients, and returns each.
fn checks() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    let mut next = [0; 256];
    loop {
        if let PeerEvent::Message { client, bytes } = or_exit(port.recv()) {
            let sender = bytes[0];
            let bytes = bytes.to_vec();
            let number = &mut next[usize::from(sender)];
            assert_eq!(bytes, numbered(sender, *number), "client {sender}");
            *number += 1;
            // The clients send a few messages ahead of what they receive.
            or_exit(port.reply(client, &bytes));
        }
    }
}

/// Sends one message, and at the next line of standard input many, and closes its end at once.
fn posts() {
    let mut port = connected();
    or_exit(port.send(b"first"));
    next_line();
    for number in 0..POSTED {
        or_exit(port.send(&number.to_le_bytes()));
    }
    drop(port);
    println!("closed");
    std::thread::park();
}

/// Number of messages of [`posts`], which fit into a ring.
pub(crate) const POSTED: u32 = 200;

/// Receives one message and sleeps, and at the next line of standard input receives those of
/// [`posts`] and the end of the connection.
fn sleeps_and_receives() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    assert!(matches!(or_exit(port.recv()), PeerEvent::Message { bytes: b"first", .. }));
    assert!(or_exit(port.recv_timeout(Duration::from_millis(1))).is_none());
    println!("slept");
    next_line();
    let mut count = 0u32;
    let error = loop {
        match or_exit(port.recv()) {
            PeerEvent::Message { bytes, .. } => assert_eq!(bytes, count.to_le_bytes()),
            PeerEvent::Moved => panic!("it has not moved"),
            PeerEvent::Ended(error) => break error,
        }
        count += 1;
    };
    println!("{count} messages, then {error}");
}

fn next_line() {
    std::io::stdin().read_line(&mut String::new()).expect("text");
}

/// Answers the first message many times, and receives nothing more.
fn overwhelms() {
    let mut port = or_exit(Job::publish(&target()));
    println!("published");
    let client = match or_exit(port.recv()) {
        PeerEvent::Message { client, .. } => client,
        PeerEvent::Moved => panic!("it has not moved"),
        PeerEvent::Ended(error) => panic!("{error}"),
    };
    println!("asked");
    let count: u32 = arguments()[1].parse().expect("a number");
    let mut replies = (0..count).map(|_| port.reply(client, &[1; 1000]));
    match replies.find_map(Result::err) {
        Some(error) => println!("{error}"),
        None => println!("answered"),
    }
    std::thread::park();
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

    /// Returns the command of a part of this module.
    pub(crate) fn part(&self, name: &str, arguments: &[&str]) -> Command {
        let name = format!("names::harness::{name}");
        let mut command = testing::part_by(&name, |program| self.program(program));
        self.enter(command.args(arguments));
        command
    }

    /// Starts a part.
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

    /// Starts a job of two ranks of the part [`serves`], which publish this name once the file
    /// exists.
    pub(crate) fn serving_job(&self, name: &str, go_on: &std::path::Path) -> Program {
        let itself = std::env::current_exe().expect("/proc is mounted");
        let mut command = self.command(&["run", "-n", "2", "--serve", name, "--"]);
        command.arg(itself).args(["--part", "names::harness::serves", name]).arg(go_on);
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
