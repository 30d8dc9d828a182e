//! Retransmission of lost packets while no rank waits for them.

use crate::memory::mapping;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Thread that periodically runs the program, which requests acknowledgements that are overdue.
/// A waiting rank requests them sooner; ranks that compute need not.
#[derive(Debug)]
pub(crate) struct Retransmitter {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Argument of the program: it requests acknowledgements that are overdue (`RETRANSMIT` in
/// `bpf/tradewind.bpf.c`).
pub(crate) const RETRANSMIT: u32 = u32::MAX - 1;
/// Interval between two runs. A loss for which no rank waits is found after two intervals.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

impl Retransmitter {
    /// Starts the thread, in the network namespace of the caller.
    pub(crate) fn start(program: OwnedFd) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ended = Arc::clone(&end);
        let retransmit = move || {
            while let Ok(0) | Err(rustix::io::Errno::INTR) =
                // Returns 0 after each period. The descriptor becomes readable only at the end.
                poll(&mut [PollFd::new(&*ended, PollFlags::IN)], Some(&PERIOD))
            {
                // If the program cannot run, the ranks report it.
                let _ = mapping::run_program(program.as_fd(), [0, RETRANSMIT]);
            }
        };
        let thread =
            std::thread::Builder::new().name("retransmitter".to_owned()).spawn(retransmit)?;
        Ok(Retransmitter { end, thread: Some(thread) })
    }
}

impl Drop for Retransmitter {
    fn drop(&mut self) {
        // The counter is zero, so the write succeeds and ends the poll.
        let _ = rustix::io::write(&self.end, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // The thread has no result, and its panic has been printed.
            let _ = thread.join();
        }
    }
}
