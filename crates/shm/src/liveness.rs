//! Identity of a process in shared memory, and checks that it is still alive.
//!
//! A process number does not identify a process for long, because the kernel assigns it again. A
//! [`ProcessId`] therefore combines it with the process's start time.

use crate::process::{ProcessError, ProcessHandle, ProcessState, StartTime, start_time, state};
use std::sync::{Arc, Mutex, PoisonError};

/// Identity of a process in one word of shared memory: its number and the lower half of its start
/// time. 0 stands for no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId(pub u64);

impl ProcessId {
    /// No process.
    pub const NONE: ProcessId = ProcessId(0);

    /// Returns the identity of the calling process, cached after the first call.
    ///
    /// ```
    /// use shm::liveness::{ProcessId, ProcessWatch};
    /// # fn main() -> Result<(), shm::process::ProcessError> {
    /// let own = ProcessId::own()?;
    /// assert_eq!(own.pid(), std::process::id());
    /// assert!(!ProcessWatch::default().has_ended(own));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ProcessError::Read`] if /proc is not available.
    pub fn own() -> Result<ProcessId, ProcessError> {
        static OWN: Mutex<Option<ProcessId>> = Mutex::new(None);
        let pid = std::process::id();
        let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
        // A forked child inherits the cache but is another process: its number differs.
        if let Some(known) = own.filter(|known| known.pid() == pid) {
            return Ok(known);
        }
        Ok(*own.insert(ProcessId::new(pid, start_time(pid)?)))
    }

    fn new(pid: u32, started: StartTime) -> ProcessId {
        ProcessId(u64::from(pid) << 32 | started.0 & 0xffff_ffff)
    }

    /// Returns the process number.
    pub fn pid(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Liveness check of a peer process. It keeps the pidfd of the last process that it checked, so
/// that repeated checks of the same peer cost few system calls.
#[derive(Debug, Default)]
pub struct ProcessWatch {
    watched: Option<(ProcessId, ProcessHandle)>,
}

impl ProcessWatch {
    /// Returns true if the process has ended; false for [`ProcessId::NONE`].
    pub fn has_ended(&mut self, process: ProcessId) -> bool {
        if process == ProcessId::NONE {
            return false;
        }
        if self.watched.as_ref().is_none_or(|&(watched, _)| watched != process) {
            match ProcessHandle::open(process.pid()) {
                // The start time is read after the pidfd was opened. If it matches, the pidfd
                // refers to this process: the number cannot be assigned again while it is open.
                Ok(handle) if ProcessId::new(process.pid(), handle.start_time()) == process => {
                    self.watched = Some((process, handle));
                }
                // The number belongs to another process by now, or to none.
                Ok(_) | Err(ProcessError::NoSuchProcess { .. }) => return true,
                // pidfds are not available here, but /proc may be.
                Err(_) => return has_ended_by_proc(process),
            }
        }
        self.watched.as_ref().is_some_and(|(_, handle)| handle.has_exited())
    }
}

/// Checks the process through /proc. An error other than "no such process" counts as alive, because
/// a wrong "has ended" would free memory that is in use.
fn has_ended_by_proc(process: ProcessId) -> bool {
    let other = match start_time(process.pid()) {
        Ok(started) => ProcessId::new(process.pid(), started) != process,
        Err(ProcessError::NoSuchProcess { .. }) => true,
        Err(_) => false,
    };
    other || state(process.pid()).is_ok_and(|state| state == ProcessState::Zombie)
}

/// Reason why nothing follows from the other end of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerExit {
    /// All ranks there have left in order; this is one of them.
    Left(u32),
    /// This rank has failed.
    Failed(u32),
    /// The node service has ended, and no exit of a rank was reported.
    NodeServiceEnded,
}

/// Liveness check of the ranks at the other end of a queue. A waiting thread calls it about ten
/// times a second, and polls the queue once more before it acts on the result.
pub trait RankLiveness: Send + Sync + std::fmt::Debug {
    /// Returns the exit that makes waiting pointless; `None` if there is none.
    fn exited(&self) -> Option<PeerExit>;
}

/// Optional liveness check of ranks.
#[derive(Debug, Clone, Default)]
pub struct RankWatch(pub Option<Arc<dyn RankLiveness>>);

impl RankWatch {
    /// Adds a check to the present one.
    #[must_use]
    pub fn and(self, other: Arc<dyn RankLiveness>) -> RankWatch {
        RankWatch(Some(match self.0 {
            Some(present) => Arc::new(Both(present, other)),
            None => other,
        }))
    }

    /// Calls the check, if there is one.
    pub fn exited(&self) -> Option<PeerExit> {
        self.0.as_ref().and_then(|ranks| ranks.exited())
    }
}

/// Two checks, of which either ends a wait.
#[derive(Debug)]
struct Both(Arc<dyn RankLiveness>, Arc<dyn RankLiveness>);

impl RankLiveness for Both {
    fn exited(&self) -> Option<PeerExit> {
        self.0.exited().or_else(|| self.1.exited())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_alive_and_a_reaped_child_is_not() {
        let mut watch = ProcessWatch::default();
        assert!(!watch.has_ended(ProcessId::own().expect("/proc")));
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let process = ProcessId::new(child.id(), start_time(child.id()).expect("it lives"));
        assert!(!watch.has_ended(process) && !has_ended_by_proc(process));
        drop(child.stdin.take());
        child.wait().expect("a child");
        assert!(watch.has_ended(process) && has_ended_by_proc(process));
        assert!(ProcessWatch::default().has_ended(process));
    }

    #[test]
    fn a_number_with_another_start_time_is_a_dead_process() {
        let own = ProcessId::own().expect("/proc");
        assert_eq!(own.pid(), std::process::id());
        let other = ProcessId(own.0 ^ 1);
        assert!(ProcessWatch::default().has_ended(other), "the same number, another start time");
        assert!(!ProcessWatch::default().has_ended(ProcessId::NONE));
    }
}
