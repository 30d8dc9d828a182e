//! Looks after what is lost while nobody waits for it.

use crate::system;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// A thread that has the program ask, now and then, about packets that have long not been
/// acknowledged. A rank that waits asks sooner; a rank that computes, or whose neighbours do, need
/// not.
#[derive(Debug)]
pub(crate) struct Tender {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Between two looks. What is lost when nobody waits for it is found after twice that.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Tender {
    /// Starts it, in the network namespace of the caller.
    pub(crate) fn start(program: OwnedFd) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ended = Arc::clone(&end);
        let tend = move || {
            while let Ok(0) | Err(rustix::io::Errno::INTR) =
                poll(&mut [PollFd::new(&*ended, PollFlags::IN)], Some(&PERIOD))
            {
                // Where the program cannot be run, the ranks notice, too.
                let _ = system::run_program(program.as_fd(), [0; 2]);
            }
        };
        let thread = std::thread::Builder::new().name("wire".to_owned()).spawn(tend)?;
        Ok(Tender { end, thread: Some(thread) })
    }
}

impl Drop for Tender {
    fn drop(&mut self) {
        // A new counter takes a one.
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // It has no result; its panic has been printed.
            let _ = thread.join();
        }
    }
}
