//! Starting jobs whose ranks are this very test program, and listening to them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use shm::process::ProcessHandle;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

/// Which of the programs in [`crate::jobs::rank`] a process is.
pub(crate) const PROGRAM: &str = "TRADEWIND_TEST_PROGRAM";

/// The command under test.
pub(crate) const TRADEWIND: &str = env!("CARGO_BIN_EXE_tradewind");

/// Ends a job that hangs, so that its test fails instead of hanging too.
const HANGS_AFTER: &str = "60";

/// A command line.
#[derive(Debug)]
pub(crate) struct Line(Command);

impl Line {
    /// `tradewind run -n RANKS OPTIONS`, without the program.
    pub(crate) fn run(ranks: u32, options: &[&str]) -> Line {
        let mut command = Command::new(TRADEWIND);
        command.args(["run", "-n", &ranks.to_string()]).args(options);
        if !options.contains(&"--timeout") {
            command.args(["--timeout", HANGS_AFTER]);
        }
        command.arg("--");
        Line(command)
    }

    /// Any command.
    pub(crate) fn command(command: Command) -> Line {
        Line(command)
    }

    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Line {
        self.0.args(arguments);
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Line {
        self.0.env(name, value);
        self
    }

    /// This test program, which is then the named program of [`crate::jobs::rank`].
    pub(crate) fn program(self, name: &str) -> Line {
        let itself = this_test();
        let itself = itself.to_str().expect("cargo's paths are readable");
        self.arguments(&[itself, "--part", "jobs::rank::program"]).variable(PROGRAM, name)
    }

    /// Starts it.
    pub(crate) fn start(mut self) -> Job {
        let spawned =
            self.0.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("cargo has built the command");
        let output = BufReader::new(child.stdout.take().expect("it was asked for"));
        let error = child.stderr.take().expect("it was asked for");
        // Read at the same time, so that no process has to wait for space in a pipe.
        let error = std::thread::spawn(move || all_of(error));
        Job { child, output, error }
    }

    /// Starts it and waits for its end.
    pub(crate) fn finish(self) -> Finished {
        self.start().finish()
    }
}

/// This program.
pub(crate) fn this_test() -> std::path::PathBuf {
    std::env::current_exe().expect("/proc is mounted")
}

fn all_of(mut error: ChildStderr) -> String {
    let mut text = Vec::new();
    // What was read until an error is still worth showing.
    let _ = error.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// A job under way. Its end of the ranks' output is open until the last process that may write has
/// ended.
#[derive(Debug)]
pub(crate) struct Job {
    child: Child,
    output: BufReader<ChildStdout>,
    error: std::thread::JoinHandle<String>,
}

/// A line of a rank: `> RANK WORDS…`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) rank: u32,
    pub(crate) words: Vec<String>,
}

impl Said {
    fn parse(line: &str) -> Option<Said> {
        let mut words = line.strip_prefix("> ")?.split(' ').map(str::to_owned);
        let rank = words.next()?.parse().ok()?;
        Some(Said { rank, words: words.collect() })
    }

    pub(crate) fn is(&self, word: &str) -> bool {
        self.words.first().is_some_and(|first| first == word)
    }

    /// The number that is the last word.
    pub(crate) fn number(&self) -> u64 {
        self.words
            .last()
            .and_then(|word| word.parse().ok())
            .unwrap_or_else(|| panic!("no number: {self:?}"))
    }
}

/// A job that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) status: i32,
    /// Lines of ranks since the last one that was taken.
    pub(crate) said: Vec<Said>,
    pub(crate) error: String,
}

impl Finished {
    /// Ranks that said these words, in ascending order.
    pub(crate) fn who_said(&self, words: &str) -> Vec<u32> {
        let mut ranks: Vec<u32> = self
            .said
            .iter()
            .filter(|said| said.words.join(" ") == words)
            .map(|said| said.rank)
            .collect();
        ranks.sort_unstable();
        ranks
    }
}

impl Job {
    /// The launcher's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Next line of a rank; `None` when no rank is left.
    pub(crate) fn listen(&mut self) -> Option<Said> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if self.output.read_until(b'\n', &mut line).expect("a pipe") == 0 {
                return None;
            }
            // The test harness in the ranks says a few things, too.
            if let Some(said) = Said::parse(String::from_utf8_lossy(&line).trim_end()) {
                return Some(said);
            }
        }
    }

    /// Waits until each of `ranks` ranks has written this word, and returns what they wrote with
    /// it, by rank.
    pub(crate) fn listen_for(&mut self, word: &str, ranks: u32) -> Vec<Said> {
        let mut heard: Vec<Said> = Vec::new();
        while (heard.len() as u32) < ranks {
            let said = self.listen().unwrap_or_else(|| panic!("only {heard:?} said {word}"));
            if said.is(word) && heard.iter().all(|other| other.rank != said.rank) {
                heard.push(said);
            }
        }
        heard.sort_by_key(|said| said.rank);
        heard
    }

    /// Waits for the end of the launcher, and of every process that holds its output.
    pub(crate) fn finish(mut self) -> Finished {
        // Their progress is not used afterwards.
        let said = std::iter::from_fn(|| self.listen()).filter(|said| !said.is("round")).collect();
        let status = self.child.wait().expect("it is a child");
        let error = self.error.join().expect("reading does not panic");
        Finished { status: status.code().unwrap_or(-1), said, error }
    }
}

pub(crate) fn send(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("not 0");
    kill_process(pid, signal).expect("it lives");
}

/// Waits until a process has ended; fails if it does not.
pub(crate) fn wait_for_end(process: &ProcessHandle) {
    let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
    let ready =
        poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).expect("one descriptor");
    assert_eq!(ready, 1, "process {} lives on", process.pid());
}
