//! Other processes for tests: this very test program again, running one of its ignored tests as its whole job.
#![allow(dead_code, reason = "each test program uses a part")]

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shm::arena::Arena;
use shm::process::{ProcessState, state};
use shm::segment::{Backing, Offset, Segment};

/// The variable that tells a part what to work on. Without it (a plain `--ignored` run) parts do nothing.
const ARGUMENT: &str = "QUEUES_TEST_PART";

/// A segment and one arena over all of it but its first page.
pub(crate) fn memory(bytes: u64) -> (Arc<Segment>, Arc<Arena>) {
    let segment = Arc::new(Segment::create(bytes, Backing::Memory).expect("memory"));
    let arena = Arc::new(Arena::new(Arc::clone(&segment), 4096..bytes).expect("inside"));
    (segment, arena)
}

/// Starts this program again to run the ignored test `part` on the segment and these places in it. It is killed when the
/// test fails.
pub(crate) fn start(part: &str, segment: &Segment, places: &[Offset]) -> Other {
    let mut argument = format!("/proc/{}/fd/{}", std::process::id(), segment.as_fd().as_raw_fd());
    for place in places {
        argument.push_str(&format!(" {}", place.0));
    }
    let child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", part, "--ignored", "--nocapture", "--test-threads=1"])
        .env(ARGUMENT, argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program");
    Other { child }
}

/// As [`start`], but the segment is the part's standard input, which also works for a part that another user runs.
pub(crate) fn start_as(user: Option<u32>, part: &str, segment: &Segment, places: &[Offset]) -> Other {
    let places: Vec<String> = places.iter().map(|place| place.0.to_string()).collect();
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", part, "--ignored", "--nocapture", "--test-threads=1"])
        .env(ARGUMENT, format!("/proc/self/fd/0 {}", places.join(" ")))
        .stdin(segment.as_fd().try_clone_to_owned().expect("a free descriptor"))
        .stdout(Stdio::null());
    if let Some(user) = user {
        command.uid(user);
    }
    Other { child: command.spawn().expect("this program") }
}

/// In a part: the segment and the places that it is to work on.
pub(crate) fn given() -> Option<(Arc<Segment>, Vec<Offset>)> {
    let argument = std::env::var(ARGUMENT).ok()?;
    let mut words = argument.split(' ');
    let file = match words.next().expect("a path") {
        // Opened anew it would be another user's.
        "/proc/self/fd/0" => std::io::stdin().as_fd().try_clone_to_owned().expect("a free descriptor"),
        path => {
            let opened = std::fs::File::options().read(true).write(true).open(path);
            opened.expect("the parent's descriptor").into()
        }
    };
    let segment = Arc::new(Segment::from_fd(file).expect("a segment"));
    Some((segment, words.filter(|word| !word.is_empty()).map(|word| Offset(word.parse().expect("a number"))).collect()))
}

/// Another process of the test.
pub(crate) struct Other {
    child: Child,
}

impl Other {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end and expects that its part went well.
    pub(crate) fn succeed(mut self) {
        assert!(self.child.wait().expect("a child").success(), "the other process failed");
    }

    /// Ends it at once and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("a living child");
        self.child.wait().expect("a child");
    }

    /// Stops it and waits until it stands.
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        until("it stands", || state(self.id()).expect("/proc") == ProcessState::Stopped);
    }

    /// Lets it go on.
    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("a living child");
    }

    /// Waits until it sleeps in the kernel.
    pub(crate) fn until_asleep(&self) {
        until("it sleeps", || state(self.id()).expect("/proc") == ProcessState::Sleeping);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // An error means that it has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Looks until it is so. The limit only turns an endless wait into a failure.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(60), "never happened: {what}");
        std::thread::yield_now();
    }
}

/// Looks until there is something. The limit only turns an endless wait into a failure.
pub(crate) fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = look();
        found.is_some()
    });
    found.expect("just seen")
}
