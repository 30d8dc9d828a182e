//! Processor time: what a job takes from the machine, whoever spends it.

use crate::clock::nanoseconds;
use crate::error::Error;
use rustix::time::ClockId;

/// What a rank is; its processor time is that of the whole.
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
    let time = shm::process::cpu_time(process).map_err(|source| Error::Processor { process, source })?;
    Ok(time.as_secs_f64() * 1e6)
}

/// Time that the kernel of this machine has spent on deferred interrupts, in its own ticks. It does not say for whom: all
/// processes are in it, those of other jobs and users too. `None` where the kernel does not tell.
pub fn softirq_ticks() -> Option<u64> {
    softirq_field(&std::fs::read_to_string("/proc/stat").ok()?)
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
    fn time_that_was_computed_is_used() {
        for kind in [RankKind::Process, RankKind::Thread] {
            let before = used_by_rank_us(kind);
            crate::computation::compute(1_000_000);
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
