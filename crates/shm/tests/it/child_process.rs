//! Child processes for tests: this test program again, which runs one of its ignored tests.

use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shm::segment::Segment;

/// Environment variable with the argument of a child test. Without it (a plain `--ignored` run)
/// child tests do nothing.
const ARGUMENT: &str = "SHM_TEST_ARGUMENT";

/// Returns a command that runs the ignored test `test` in a child process.
pub(crate) fn child_test(test: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(arguments(test))
        .env(ARGUMENT, argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command
}

/// Command-line arguments with which the test program runs only `test`, on its main thread.
pub(crate) fn arguments(test: &str) -> [&str; 5] {
    ["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]
}

/// Returns the argument of a child test.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// Returns a path by which another process can open the segment while this process lives.
pub(crate) fn path_of(segment: &Segment) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd())
}

/// Opens the segment at a path that [`path_of`] returned.
pub(crate) fn open(path: &str) -> Segment {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the parent's descriptor");
    Segment::from_fd(file.into()).expect("a segment")
}

/// Waits until a condition holds. The limit only turns an endless wait into a failure.
pub(crate) fn until(description: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(60), "condition never held: {description}");
        std::thread::yield_now();
    }
}
