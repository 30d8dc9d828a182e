//! Child processes of tests.

use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use shm::segment::Segment;

/// Returns a command that runs the part of this name in a child process.
pub(crate) fn child(part: &str, argument: &str) -> Command {
    let mut command = testing::part(part);
    command.arg(argument).stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// In a child: returns its argument, which follows the name of the part.
pub(crate) fn argument() -> String {
    std::env::args().nth(3).expect("an argument from the test")
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
