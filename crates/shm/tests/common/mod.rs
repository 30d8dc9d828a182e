//! Other processes for tests: this very test program again, running one of its ignored tests as its
//! whole job.
#![allow(dead_code, reason = "each test program uses a part")]

use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shm::segment::Segment;

/// The variable that tells a part what to work on. Without it (a plain `--ignored` run) parts do
/// nothing.
const ARGUMENT: &str = "SHM_TEST_ARGUMENT";

/// This program, about to run the ignored test `part` in a process of its own.
pub(crate) fn part(part: &str, argument: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(arguments(part))
        .env(ARGUMENT, argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    command
}

/// What the test program must be told to run only `part`; on its first thread.
pub(crate) fn arguments(part: &str) -> [&str; 5] {
    ["--exact", part, "--ignored", "--nocapture", "--test-threads=1"]
}

/// In a part: what it is to work on.
pub(crate) fn argument() -> Option<String> {
    std::env::var(ARGUMENT).ok()
}

/// A path by which another process can open the segment while this one lives.
pub(crate) fn path_of(segment: &Segment) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd())
}

/// The segment behind a path of [`path_of`].
pub(crate) fn open(path: &str) -> Segment {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("the parent's descriptor");
    Segment::from_fd(file.into()).expect("a segment")
}

/// Looks until it is so. The limit only turns an endless wait into a failure.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "never happened: {what}");
        std::thread::yield_now();
    }
}
