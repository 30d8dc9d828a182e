//! Processor time of a rank, with that of the node service that works for it.

use crate::Failure;
use crate::measure::processor_us;
use shm::process::cpu_time;
use tradewind::Job;

/// User and system time of this process and, where it is the only rank of its node, of the node
/// service, with all their threads: MPI libraries do that service's work in the ranks.
pub struct Processor {
    service: Option<u32>,
}

impl Processor {
    /// Finds the processes of a rank.
    pub fn of(job: &Job) -> Self {
        let nodes = job.world().nodes();
        let is_alone = nodes > 1 && nodes == job.world().size();
        Self { service: is_alone.then(|| job.service_process()) }
    }

    /// Microseconds that were used so far. Fails if the node service has ended.
    pub fn used_us(&self) -> Result<f64, Failure> {
        let service = self.service.map(cpu_time).transpose()?.unwrap_or_default();
        Ok(processor_us() + service.as_secs_f64() * 1e6)
    }
}
