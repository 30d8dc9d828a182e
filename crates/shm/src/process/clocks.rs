//! CPU time of processes and threads.

use super::error::ProcessError;
use std::time::Duration;

/// Returns the CPU time of all threads of a process, in user and kernel mode together, in
/// nanosecond resolution.
///
/// ```
/// # fn main() -> Result<(), shm::process::ProcessError> {
/// assert!(!shm::process::cpu_time(std::process::id())?.is_zero());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ProcessError::NoSuchProcess`].
pub fn cpu_time(pid: u32) -> Result<Duration, ProcessError> {
    // The clock of a process, because /proc counts in ticks of ten milliseconds.
    let gone = || ProcessError::NoSuchProcess { pid };
    read_clock(clock_of(pid).ok_or_else(gone)?).ok_or_else(gone)
}

/// Returns the CPU time of one thread of this process, in user and kernel mode together, in
/// nanosecond resolution. `thread` is the number that gettid(2) returns.
///
/// ```
/// # fn main() -> Result<(), shm::process::ProcessError> {
/// let this = shm::process::current_thread();
/// assert!(!shm::process::thread_cpu_time(this)?.is_zero());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ProcessError::NoSuchProcess`] when this process has no such thread.
pub fn thread_cpu_time(thread: u32) -> Result<Duration, ProcessError> {
    /// Bit that distinguishes the clock number of a thread from that of a process.
    const PER_THREAD: libc::clockid_t = 4;
    let gone = || ProcessError::NoSuchProcess { pid: thread };
    read_clock(clock_of(thread).ok_or_else(gone)? | PER_THREAD).ok_or_else(gone)
}

/// Returns the number of the calling thread.
pub fn current_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Returns the clock number of a process, as clock_getcpuclockid(3) computes it, without checking
/// that the process exists.
fn clock_of(number: u32) -> Option<libc::clockid_t> {
    /// Clock type: time assigned by the scheduler.
    const SCHEDULED: libc::clockid_t = 2;
    // 0 would denote the calling process, and so would a number that the shift reduces to 0. The
    // kernel's process numbers end at 2²².
    let number = i32::try_from(number).ok().filter(|number| (1..=1 << 22).contains(number))?;
    Some(!number << 3 | SCHEDULED)
}

/// Reads a clock; `None` if it does not exist.
fn read_clock(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one `timespec` to a variable of that type.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return None;
    }
    Some(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_cpu_time_excludes_other_threads() {
        let (number, numbers) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let idle = std::thread::spawn(move || {
            number.send(current_thread()).expect("the receiver is alive");
            ended.recv().expect_err("the channel closes without a message");
        });
        let other = numbers.recv().expect("the thread sends its number");
        let used = |thread| thread_cpu_time(thread).expect("the thread exists");
        let before = used(other);
        let mine = used(current_thread());
        while used(current_thread()) < mine + Duration::from_millis(20) {}
        assert!(used(other) < before + Duration::from_millis(10), "the other thread only waits");
        drop(end);
        idle.join().expect("no panic");
        assert!(matches!(thread_cpu_time(0), Err(ProcessError::NoSuchProcess { pid: 0 })));
        assert!(thread_cpu_time(u32::MAX).is_err());
        // The number of a thread of another process is rejected.
        assert!(thread_cpu_time(1).is_err(), "the first process is not this one");
    }
}
