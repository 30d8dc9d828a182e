//! Other processes for tests: this very test program again, running one of its ignored tests as its whole job.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable that tells a part what to work on. Without it (a plain `--ignored` run) parts do nothing.
const ARGUMENT: &str = "QUEUES_TEST_ARGUMENT";

/// What a part says begins with this.
const MARK: &str = "part says: ";

/// Long enough never to matter, short enough to end a broken test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A child that does not outlive the test, however the test ends.
pub(crate) struct Part(Child, Lines<BufReader<ChildStdout>>);

impl Part {
    /// Starts this program, to run the ignored test `part` in a process of its own. Its input is a pipe.
    pub(crate) fn start(part: &str, argument: &str) -> Part {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", part, "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ARGUMENT, argument).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("this program");
        let output = child.stdout.take().expect("a pipe");
        Part(child, BufReader::new(output).lines())
    }

    /// The next thing that it [says](say). What the test harness prints is passed over.
    pub(crate) fn hear(&mut self) -> String {
        let said = |line: std::io::Result<String>| {
            // The harness may have begun a line.
            line.expect("text").split_once(MARK).map(|(_, said)| said.to_owned())
        };
        self.1.by_ref().find_map(said).expect("it says something before it ends")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("a child that has not been waited for");
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a child that has not been waited for");
        self.0.wait().expect("a child");
    }

    /// Kills it unless it has ended by itself.
    pub(crate) fn kill_if_alive(&mut self) {
        // A child that has ended can be waited for, and no more.
        let _ = self.0.kill();
        self.0.wait().expect("a child");
    }

    /// Ends its input.
    pub(crate) fn dismiss(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Waits until it has ended, and says whether all went well.
    pub(crate) fn succeeds(&mut self) -> bool {
        self.0.wait().expect("a child").success()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a part: what it is to work on.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// In a part: tells the test something.
pub(crate) fn say(what: &str) {
    println!("{MARK}{what}");
}

/// In a part: waits until the test lets it go.
pub(crate) fn until_dismissed() {
    std::io::read_to_string(std::io::stdin()).expect("until it ends");
}

/// Looks until it is so. The limit only turns an endless wait into a failure.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}
