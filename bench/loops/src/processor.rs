//! Processor time of a rank, with that of the node service that works for it.

use crate::Failure;
use crate::measure::microseconds;
use rustix::time::ClockId;
use tradewind::Job;

/// User and system time of this process and, where it is the only rank of its node, of the node
/// service, with all their threads: MPI libraries do that service's work in the ranks.
pub struct Processor {
    service: Option<libc::clockid_t>,
}

impl Processor {
    /// Finds the clocks of a rank.
    pub fn of(job: &Job) -> Result<Self, Failure> {
        let nodes = job.world().nodes();
        let is_alone = nodes > 1 && nodes == job.world().size();
        let service = if is_alone { Some(clock_of(job.service_process())?) } else { None };
        Ok(Self { service })
    }

    /// Microseconds that were used so far.
    pub fn used_us(&self) -> f64 {
        microseconds(ClockId::ProcessCPUTime) + self.service.map_or(0.0, service_us)
    }
}

fn clock_of(process: u32) -> Result<libc::clockid_t, Failure> {
    let mut clock = 0;
    // SAFETY: the call writes one clock id.
    match unsafe { libc::clock_getcpuclockid(process.cast_signed(), &raw mut clock) } {
        0 => Ok(clock),
        error => Err(std::io::Error::from_raw_os_error(error).into()),
    }
}

fn service_us(clock: libc::clockid_t) -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one time. It fails once the service has ended, and leaves 0 there.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 * 1e-3
}
