//! CPU time of a job: its ranks, its services and the kernel.

use crate::harness::clock::nanoseconds;
use crate::harness::error::Error;
use rustix::time::ClockId;
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Kind of a rank; its CPU time is that of the whole process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankKind {
    /// A process, with all its threads.
    Process,
    /// One thread among others of one process.
    Thread,
}

/// Microseconds of user and system time that this rank has used.
#[inline]
pub fn used_by_rank_us(kind: RankKind) -> f64 {
    let clock = match kind {
        RankKind::Process => ClockId::ProcessCPUTime,
        RankKind::Thread => ClockId::ThreadCPUTime,
    };
    nanoseconds(clock) as f64 * 1e-3
}

/// Microseconds of user and system time that another process has used, such as the node service.
///
/// # Errors
/// When there is no such process.
pub fn used_by_process_us(process: u32) -> Result<f64, Error> {
    let time =
        shm::process::cpu_time(process).map_err(|source| Error::Processor { process, source })?;
    Ok(time.as_secs_f64() * 1e6)
}

/// Time that the kernel of this machine has spent on deferred interrupts beside the time of threads,
/// in its own ticks, for the processes of all jobs and users. `None` where the kernel does not report
/// it, or where it is part of the time of the threads that were interrupted, so that it would be
/// counted twice. In that case the time of interrupts of an idle core, and of those left to the
/// kernel's own threads, is not counted.
pub fn softirq_ticks() -> Option<u64> {
    static APART: OnceLock<bool> = OnceLock::new();
    // Where it cannot be found out, nothing is left out.
    let is_apart = *APART.get_or_init(|| share_while_interrupted().is_none_or(|share| share < 0.9));
    if is_apart { softirq_field(&std::fs::read_to_string("/proc/stat").ok()?) } else { None }
}

/// Share of the elapsed time that is this thread's while it sends to itself: a third of that is
/// deferred interrupts, which some kernels keep apart (`CONFIG_IRQ_TIME_ACCOUNTING`) and others do
/// not. The greatest share of several tries, since others may want the processor, too.
fn share_while_interrupted() -> Option<f64> {
    const TRIES: u32 = 20;
    const LENGTH: Duration = Duration::from_millis(1);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    socket.connect(socket.local_addr().ok()?).ok()?;
    let mut greatest: f64 = 0.0;
    for _ in 0..TRIES {
        let begin = Instant::now();
        let used = used_by_rank_us(RankKind::Thread);
        while begin.elapsed() < LENGTH {
            // Without a receiver, datagrams beyond the socket buffer are dropped.
            socket.send(&[0]).ok()?;
        }
        let used = used_by_rank_us(RankKind::Thread) - used;
        greatest = greatest.max(used / (begin.elapsed().as_secs_f64() * 1e6));
    }
    Some(greatest)
}

/// Microseconds of such a tick.
pub fn tick_us() -> f64 {
    1e6 / rustix::param::clock_ticks_per_second() as f64
}

/// The seventh number of the line for all processors (proc_stat(5)).
fn softirq_field(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seventh_field_is_that_of_softirqs() {
        let stat = "cpu  291800 0 48891 400354 1596 0 220 329 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(softirq_field(stat), Some(220));
        assert_eq!(softirq_field("cpu 1 2 3"), None);
        assert_eq!(softirq_field("intr 1"), None);
    }

    #[test]
    fn a_thread_has_a_share_of_the_time_that_passes() {
        assert!(share_while_interrupted().is_some_and(|share| share > 0.0 && share < 1.01));
    }

    #[test]
    fn time_that_was_computed_is_used() {
        for kind in [RankKind::Process, RankKind::Thread] {
            let before = used_by_rank_us(kind);
            crate::harness::computation::compute(1_000_000);
            assert!(used_by_rank_us(kind) > before, "{kind:?}");
        }
    }

    #[test]
    fn a_process_that_is_not_there_is_named() {
        let error = used_by_process_us(u32::MAX).expect_err("no process has this number");
        assert!(error.to_string().contains("4294967295"), "{error}");
        assert!(used_by_process_us(std::process::id()).is_ok_and(|used| used > 0.0));
    }
}
