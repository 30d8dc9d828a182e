//! State and CPU time of other processes, load of cores, and binding of threads to cores.
//!
//! A process number does not identify a process for long, because the kernel reuses it after the
//! process has ended. A [`ProcessHandle`] holds a pidfd and the start time, so it always refers to
//! the process it was opened for.

mod clocks;
mod core_ticks;
mod error;

use crate::descriptor::LastingDescriptor;
pub use clocks::{cpu_time, current_thread, thread_cpu_time};
pub use core_ticks::{CoreLoad, CoreTicks};
pub use error::ProcessError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, pidfd_open, pidfd_send_signal,
    set_parent_process_death_signal,
};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::Timespec;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

/// Scheduling state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessState {
    /// Running or runnable.
    Running,
    /// Waiting for an event.
    Sleeping,
    /// Stopped by a signal or a debugger. It may continue later, so its resources are still in use.
    Stopped,
    /// Ended, but not yet waited for by its parent.
    Zombie,
    /// The process no longer exists.
    Gone,
}

/// Start time of a process, in clock ticks since boot. Together with the process number it
/// identifies a process for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartTime(pub u64);

/// Handle to one process, valid even after its number has been reused.
///
/// # Examples
///
/// ```
/// use shm::process::{ProcessHandle, ProcessState};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut child = std::process::Command::new("true").spawn()?;
/// let handle = ProcessHandle::open(child.id())?;
/// child.wait()?;
/// assert!(handle.has_exited());
/// assert_eq!(handle.state()?, ProcessState::Gone);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ProcessHandle {
    pid: u32,
    pidfd: LastingDescriptor,
    start_time: StartTime,
}

impl ProcessHandle {
    /// Opens the process that currently has the number `pid`. It may be a zombie.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NoSuchProcess`], [`ProcessError::Watch`], [`ProcessError::Read`].
    pub fn open(pid: u32) -> Result<ProcessHandle, ProcessError> {
        let gone = ProcessError::NoSuchProcess { pid };
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
            return Err(gone);
        };
        let before = start_time(pid)?;
        let pidfd = match pidfd_open(number, PidfdFlags::empty()) {
            Ok(pidfd) => LastingDescriptor::new(pidfd),
            // EINVAL: the number is that of a thread that is not a process.
            Err(Errno::SRCH | Errno::INVAL) => return Err(gone),
            Err(error) => return Err(ProcessError::Watch { pid, source: error.into() }),
        };
        // The number may have been reused between the lines above. Two processes of one number do
        // not start within a tick, so the handle is that of the process if both times are.
        match start_time(pid)? == before {
            true => Ok(ProcessHandle { pid, pidfd, start_time: before }),
            false => Err(gone),
        }
    }

    /// Returns the process number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the start time.
    pub fn start_time(&self) -> StartTime {
        self.start_time
    }

    /// Returns whether all threads of the process have ended, waited for or not, without blocking. As
    /// long as they have not, these are two system calls, and a few more before Linux 6.9. To sleep until then, poll the handle's
    /// descriptor for reading.
    pub fn has_exited(&self) -> bool {
        let mut watched = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            match poll(&mut watched, Some(&now)) {
                Err(Errno::INTR) => {}
                // What the program has closed, or replaced by another file, says nothing, whether or
                // not it is ready.
                Ok(ready) => {
                    return match self.pidfd.is_intact() {
                        true => ready > 0,
                        false => self.is_gone(),
                    };
                }
                // An error (out of memory) carries no information about the process.
                Err(_) => return false,
            }
        }
    }

    /// Returns whether the process has ended, without the handle's descriptor.
    fn is_gone(&self) -> bool {
        match read_status(self.pid) {
            Ok(Some(status)) => {
                status.start_time != self.start_time || status.state == ProcessState::Zombie
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Returns the current state of the process.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Read`].
    pub fn state(&self) -> Result<ProcessState, ProcessError> {
        match read_status(self.pid)? {
            Some(status) if status.start_time == self.start_time => match status.state {
                // The main thread has ended and others continue: the kernel shows a zombie, but the
                // process is alive.
                ProcessState::Zombie if !self.has_exited() => Ok(ProcessState::Running),
                state => Ok(state),
            },
            _ => Ok(ProcessState::Gone),
        }
    }

    /// Returns the CPU time of all threads of the process, in user and kernel mode together.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NoSuchProcess`] if it has been waited for.
    pub fn cpu_time(&self) -> Result<Duration, ProcessError> {
        let time = cpu_time(self.pid)?;
        // Checked afterwards: if the number still belongs to this process now, it did when the
        // clock was read.
        match read_status(self.pid)? {
            Some(status) if status.start_time == self.start_time => Ok(time),
            _ => Err(ProcessError::NoSuchProcess { pid: self.pid }),
        }
    }

    /// Kills the process (SIGKILL). A process that has reused its number is not affected.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NoSuchProcess`] if it has ended, [`ProcessError::Watch`] if the caller lacks
    /// permission.
    pub fn kill(&self) -> Result<(), ProcessError> {
        match pidfd_send_signal(&self.pidfd, Signal::KILL) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => Err(ProcessError::NoSuchProcess { pid: self.pid }),
            Err(error) => Err(ProcessError::Watch { pid: self.pid, source: error.into() }),
        }
    }
}

impl AsFd for ProcessHandle {
    /// Returns the pidfd, which is readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

/// Returns the state of the process with this number; [`ProcessState::Gone`] if there is none.
///
/// ```
/// use shm::process::{ProcessState, state};
/// # fn main() -> Result<(), shm::process::ProcessError> {
/// assert_ne!(state(std::process::id())?, ProcessState::Gone);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ProcessError::Read`].
pub fn state(pid: u32) -> Result<ProcessState, ProcessError> {
    Ok(read_status(pid)?.map_or(ProcessState::Gone, |status| status.state))
}

/// Returns the core on which the main thread of the process with this number runs, or ran last.
///
/// # Errors
///
/// [`ProcessError::NoSuchProcess`], [`ProcessError::Read`].
pub fn core(pid: u32) -> Result<u32, ProcessError> {
    read_status(pid)?.map(|status| status.core).ok_or(ProcessError::NoSuchProcess { pid })
}

/// Returns the start time of the process with this number.
///
/// # Errors
///
/// [`ProcessError::NoSuchProcess`], [`ProcessError::Read`].
pub fn start_time(pid: u32) -> Result<StartTime, ProcessError> {
    read_status(pid)?.map(|status| status.start_time).ok_or(ProcessError::NoSuchProcess { pid })
}

/// Returns the cores that this thread may run on, in ascending order; never empty.
///
/// ```
/// assert!(!shm::process::allowed_cores().is_empty());
/// ```
pub fn allowed_cores() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect(),
        // The machine has more cores than the set has bits. Their number is known; binding reports
        // a wrong core.
        Err(_) => (0..std::thread::available_parallelism().map_or(1, usize::from)).collect(),
    }
}

/// Lets the calling thread, and those that it starts from then on, run on all cores that the system
/// allows to its process, however it was bound before.
///
/// ```
/// # fn main() -> Result<(), shm::process::ProcessError> {
/// use shm::process::{allow_all_cores, allowed_cores, bind_current_thread};
///
/// let cores = allowed_cores();
/// bind_current_thread(cores[0])?;
/// allow_all_cores();
/// assert!(allowed_cores().len() >= cores.len());
/// # Ok(())
/// # }
/// ```
pub fn allow_all_cores() {
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|core| all.set(core));
    // The system leaves out those that are not allowed. A thread that stays bound is slower only.
    let _ = sched_setaffinity(None, &all);
}

/// Binds the calling thread to this core.
///
/// ```
/// # fn main() -> Result<(), shm::process::ProcessError> {
/// let core = shm::process::allowed_cores()[0];
/// shm::process::bind_current_thread(core)?;
/// assert_eq!(shm::process::allowed_cores(), [core]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ProcessError::Bind`] if the core does not exist or the process may not use it.
pub fn bind_current_thread(core: usize) -> Result<(), ProcessError> {
    let refused = |source: Errno| ProcessError::Bind {
        core,
        allowed: allowed_cores(),
        source: source.into(),
    };
    if core >= CpuSet::MAX_CPU {
        return Err(refused(Errno::INVAL));
    }
    let mut only = CpuSet::new();
    only.set(core);
    sched_setaffinity(None, &only).map_err(refused)
}

/// Makes the kernel kill the command's process when the thread that starts it ends, in whatever
/// way, SIGKILL of the whole process included. That thread must therefore live as long as the
/// process is wanted.
///
/// The processes that the command starts in turn are not killed, and neither is a program with the
/// set-user-ID bit or with file capabilities (prctl(2), PR_SET_PDEATHSIG).
///
/// ```
/// use std::os::unix::process::ExitStatusExt;
/// use std::process::Command;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let start = || {
///     let mut command = Command::new("sleep");
///     shm::process::kill_with_this_thread(command.arg("1000"));
///     command.spawn()
/// };
/// let mut child = std::thread::spawn(start).join().expect("no panic")?;
/// assert_eq!(child.wait()?.signal(), Some(9));
/// # Ok(())
/// # }
/// ```
pub fn kill_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let prepare = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent has ended before the call above, no signal will come.
        if getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
    };
    // SAFETY: between fork and exec the closure makes two system calls. It takes no lock and
    // allocates nothing: the errors are numbers.
    unsafe { command.pre_exec(prepare) };
}

/// Fields of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Status {
    state: ProcessState,
    start_time: StartTime,
    core: u32,
}

/// Reads `/proc/PID/stat`; `None` if there is no such process.
fn read_status(pid: u32) -> Result<Option<Status>, ProcessError> {
    // Bytes instead of a string: the name of a program need not be UTF-8.
    match std::fs::read(format!("/proc/{pid}/stat")) {
        Ok(line) => parse_status(&line).map(Some).ok_or_else(|| ProcessError::Read {
            pid,
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, "a field is missing"),
        }),
        // Without /proc no process has a file there, this one included.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            match std::fs::exists("/proc/self/stat") {
                Ok(true) => Ok(None),
                _ => Err(ProcessError::Read { pid, source: error }),
            }
        }
        // ESRCH: the process ended between open and read.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(source) => Err(ProcessError::Read { pid, source }),
    }
}

/// Parses `pid (name) state … starttime …` (proc_pid_stat(5)). The program chooses its name, which
/// may contain spaces and parentheses, so fields are counted from the last closing parenthesis.
fn parse_status(line: &[u8]) -> Option<Status> {
    let after_name = line.iter().rposition(|&byte| byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&line[after_name..]).ok()?.split_ascii_whitespace();
    let state = match fields.next()? {
        "R" => ProcessState::Running,
        "T" | "t" => ProcessState::Stopped,
        "Z" => ProcessState::Zombie,
        "X" | "x" => ProcessState::Gone,
        // S, D, I and other kinds of waiting.
        _ => ProcessState::Sleeping,
    };
    // The state is field 3, the start time field 22 and the core field 39.
    let start_time = StartTime(fields.nth(22 - 4)?.parse().ok()?);
    let core = fields.nth(39 - 23)?.parse().ok()?;
    Some(Status { state, start_time, core })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_and_spaces_are_parsed() {
        let rest = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 100 200 \
                    1 1 1 1 1 1 0 0 0 0 0 0 0 17 5 0 0 0";
        for name in ["sh", "a b", "a) R (b", ") Z 1 1 1", "((", "\u{e9}"] {
            let line = format!("77 ({name}) T {rest}\n");
            let start_time = StartTime(4242);
            let expected = Status { state: ProcessState::Stopped, start_time, core: 5 };
            assert_eq!(parse_status(line.as_bytes()), Some(expected), "{name}");
        }
        assert_eq!(parse_status(b"77 (\xff\xfe) R 1 1"), None, "too short");
        assert_eq!(parse_status(b""), None);
    }

    #[test]
    fn every_letter_has_a_state() {
        let state = |letter: &str| {
            let fields = "1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9 100 200 \
                          1 1 1 1 1 1 0 0 0 0 0 0 0 17 0 0 0 0";
            let line = format!("1 (x) {letter} {fields}");
            parse_status(line.as_bytes()).map(|status| status.state)
        };
        assert_eq!(state("R"), Some(ProcessState::Running));
        assert_eq!(state("S"), Some(ProcessState::Sleeping));
        assert_eq!(state("D"), Some(ProcessState::Sleeping));
        assert_eq!(state("t"), Some(ProcessState::Stopped));
        assert_eq!(state("Z"), Some(ProcessState::Zombie));
        assert_eq!(state("X"), Some(ProcessState::Gone));
    }
}
