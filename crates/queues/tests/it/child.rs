//! Child processes of tests, and memory that they share with their test.

use std::io::{BufRead, BufReader, Lines};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use shm::arena::Arena;
use shm::process::{ProcessState, state};
use shm::segment::{Backing, Offset, Segment};

/// Path of the standard input of a child.
const INPUT: &str = "/proc/self/fd/0";

/// Limit of every wait: ends a broken test, and is never exceeded by a correct one.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Creates a segment, and an arena over all of it except its first page.
pub(crate) fn memory(bytes: u64) -> (Arc<Segment>, Arc<Arena>) {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 4096..bytes).expect("inside"));
    (segment, arena)
}

/// A child process that is killed at the latest when the test ends.
pub(crate) struct Child {
    process: std::process::Child,
    output: Lines<BufReader<ChildStdout>>,
}

impl Child {
    /// Starts a process that runs the part of this name. Its input is a pipe.
    pub(crate) fn start(part: &str, argument: &str) -> Child {
        Child::spawn(part, argument, |command| command.stdin(Stdio::piped()))
    }

    /// Starts a part that works on the segment and these offsets.
    pub(crate) fn start_on(part: &str, segment: &Segment, offsets: &[Offset]) -> Child {
        let path = format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd());
        Child::start(part, &with_offsets(&path, offsets))
    }

    /// Starts a part with the segment as its input, which also works under another user.
    pub(crate) fn start_as(
        user: Option<u32>,
        part: &str,
        segment: &Segment,
        offsets: &[Offset],
    ) -> Child {
        let input = segment.as_fd().try_clone_to_owned().expect("a free descriptor");
        Child::spawn(part, &with_offsets(INPUT, offsets), |command| {
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
    ) -> Child {
        let mut command = testing::part(part);
        command.arg(argument).stdout(Stdio::piped());
        let mut process = prepare(&mut command).spawn().expect("this program");
        let output = process.stdout.take().expect("a pipe");
        Child { process, output: BufReader::new(output).lines() }
    }

    /// Returns the next line that the child [reports](report).
    pub(crate) fn read_line(&mut self) -> String {
        self.output.next().expect("a line before its end").expect("text")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal)
            .expect("a child that has not been waited for");
    }

    /// Stops it and waits until it is stopped.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
        until("it is stopped", || state(self.pid()).expect("/proc") == ProcessState::Stopped);
    }

    /// Resumes it.
    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Waits until it sleeps in the kernel.
    pub(crate) fn until_asleep(&self) {
        until("it sleeps", || state(self.pid()).expect("/proc") == ProcessState::Sleeping);
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("a child that has not been waited for");
        self.process.wait().expect("a child");
    }

    /// Kills it unless it has ended by itself.
    pub(crate) fn kill_if_alive(&mut self) {
        // The kill fails if the child has ended; the wait below succeeds in both cases.
        let _ = self.process.kill();
        self.process.wait().expect("a child");
    }

    /// Ends its input.
    pub(crate) fn end_input(&mut self) {
        drop(self.process.stdin.take());
    }

    /// Waits until it has ended, and returns whether it succeeded.
    pub(crate) fn succeeds(&mut self) -> bool {
        self.process.wait().expect("a child").success()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Both fail if the child has ended and been waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn with_offsets(path: &str, offsets: &[Offset]) -> String {
    offsets.iter().fold(path.to_owned(), |argument, offset| format!("{argument} {}", offset.0))
}

/// In a child: returns the segment and the offsets to work on.
pub(crate) fn segment_and_offsets() -> (Arc<Segment>, Vec<Offset>) {
    let argument = argument();
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
    (segment, words.map(|word| Offset(word.parse().expect("a number"))).collect())
}

/// In a child: returns its argument, which follows the name of the part.
pub(crate) fn argument() -> String {
    std::env::args().nth(3).expect("an argument from the test")
}

/// In a child: prints a line for the test.
pub(crate) fn report(line: &str) {
    println!("{line}");
}

/// In a child: waits until the test calls [`Child::end_input`].
pub(crate) fn until_input_ends() {
    std::io::read_to_string(std::io::stdin()).expect("until it ends");
}

/// Polls until the condition holds. The limit turns an endless wait into a failure.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "never happened: {what}");
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
