//! Child processes of tests: this test program again, which runs one of its ignored tests, the
//! *part*.
#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead, BufReader, Lines};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shm::arena::Arena;
use shm::process::{ProcessState, state};
use shm::segment::{Backing, Offset, Segment};

/// Environment variable with the argument of a part. Without it (a plain `--ignored` run) parts do
/// nothing.
const ARGUMENT: &str = "QUEUES_TEST_ARGUMENT";

/// Path of the standard input of a part.
const INPUT: &str = "/proc/self/fd/0";

/// Prefix of the lines that a part prints for its test.
const MARK: &str = "part says: ";

/// Limit of every wait: ends a broken test, and is never exceeded by a correct one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a segment, and an arena over all of it except its first page.
pub(crate) fn memory(bytes: u64) -> (Arc<Segment>, Arc<Arena>) {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 4096..bytes).expect("inside"));
    (segment, arena)
}

/// A child process that is killed at the latest when the test ends.
pub(crate) struct Part(Child, Lines<BufReader<ChildStdout>>);

impl Part {
    /// Starts this program in another process, which runs the ignored test `part`. Its input is a
    /// pipe.
    pub(crate) fn start(part: &str, argument: &str) -> Part {
        Part::spawn(part, argument, |command| command.stdin(Stdio::piped()))
    }

    /// Starts a part that works on the segment and these offsets.
    pub(crate) fn start_on(part: &str, segment: &Segment, places: &[Offset]) -> Part {
        let path = format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd());
        Part::start(part, &with_places(&path, places))
    }

    /// Starts a part with the segment as its input, which also works under another user.
    pub(crate) fn start_as(
        user: Option<u32>,
        part: &str,
        segment: &Segment,
        places: &[Offset],
    ) -> Part {
        let input = segment.as_fd().try_clone_to_owned().expect("a free descriptor");
        Part::spawn(part, &with_places(INPUT, places), |command| {
            if let Some(user) = user {
                command.uid(user);
            }
            command.stdin(input)
        })
    }

    fn spawn(
        part: &str,
        argument: &str,
        prepare: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Part {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", part, "--ignored", "--nocapture", "--test-threads=1"]);
        command.env(ARGUMENT, argument).stdout(Stdio::piped());
        let mut child = prepare(&mut command).spawn().expect("this program");
        let output = child.stdout.take().expect("a pipe");
        Part(child, BufReader::new(output).lines())
    }

    /// Returns the next line that the part [prints](say). Output of the test harness is skipped.
    pub(crate) fn hear(&mut self) -> String {
        let said = |line: std::io::Result<String>| {
            // The harness may have printed before it in the same line.
            line.expect("text").split_once(MARK).map(|(_, said)| said.to_owned())
        };
        self.1.by_ref().find_map(said).expect("it says something before it ends")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal)
            .expect("a child that has not been waited for");
    }

    /// Stops it and waits until it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        until("it stands", || state(self.pid()).expect("/proc") == ProcessState::Stopped);
    }

    /// Resumes it.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it sleeps in the kernel.
    pub(crate) fn until_asleep(&self) {
        until("it sleeps", || state(self.pid()).expect("/proc") == ProcessState::Sleeping);
    }

    pub(crate) fn kill(&mut self) {
        self.0.kill().expect("a child that has not been waited for");
        self.0.wait().expect("a child");
    }

    /// Kills it unless it has ended by itself.
    pub(crate) fn kill_if_alive(&mut self) {
        // The kill fails if the child has ended; the wait below succeeds in both cases.
        let _ = self.0.kill();
        self.0.wait().expect("a child");
    }

    /// Ends its input.
    pub(crate) fn dismiss(&mut self) {
        drop(self.0.stdin.take());
    }

    /// Waits until it has ended, and returns whether it succeeded.
    pub(crate) fn succeeds(&mut self) -> bool {
        self.0.wait().expect("a child").success()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Both fail if the child has ended and been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_places(path: &str, places: &[Offset]) -> String {
    places.iter().fold(path.to_owned(), |argument, place| format!("{argument} {}", place.0))
}

/// In a part: returns the segment and the offsets to work on.
pub(crate) fn given() -> Option<(Arc<Segment>, Vec<Offset>)> {
    let argument = argument()?;
    let mut words = argument.split(' ');
    let file = match words.next().expect("a path") {
        // Opening the file again would fail for another user.
        INPUT => std::io::stdin().as_fd().try_clone_to_owned().expect("a free descriptor"),
        path => {
            let opened = std::fs::File::options().read(true).write(true).open(path);
            opened.expect("the parent's descriptor").into()
        }
    };
    let segment = Arc::new(Segment::from_fd(file).expect("a segment"));
    Some((segment, words.map(|word| Offset(word.parse().expect("a number"))).collect()))
}

/// In a part: returns its argument.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// In a part: prints a line for the test.
pub(crate) fn say(what: &str) {
    println!("{MARK}{what}");
}

/// In a part: waits until the test calls [`Part::dismiss`].
pub(crate) fn until_dismissed() {
    std::io::read_to_string(std::io::stdin()).expect("until it ends");
}

/// Polls until the condition holds. The limit turns an endless wait into a failure.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}

/// Polls until there is a result. The limit turns an endless wait into a failure.
pub(crate) fn until_some<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = poll();
        found.is_some()
    });
    found.expect("just seen")
}
