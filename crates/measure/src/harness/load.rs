//! The load of a machine's cores by others than the job that measures.
//!
//! It is the busy and the stolen time of the cores in proc_stat(5), less the processor time of the
//! ranks and node services of the job.

use crate::harness::agreement;
use crate::harness::clock::now_ns;
use crate::harness::context::StepContext;
use crate::harness::doubts::{Doubts, Sign};
use crate::harness::error::Error;
use crate::harness::processor_time::{RankKind, used_by_process_us, used_by_rank_us};
use shm::process::{CoreLoad, CoreTicks};
use std::time::Duration;

/// Measurement of the load, from its start on.
pub(super) struct LoadMeter {
    cores: Vec<usize>,
    begin_ns: i64,
    begin: CoreTicks,
    own_us: f64,
}

impl LoadMeter {
    /// Starts. All ranks call this.
    pub(super) fn start(here: &StepContext<'_>) -> Result<Self, Error> {
        let cores = match here.shape.cores.as_slice() {
            [] => shm::process::allowed_cores(),
            bound => bound.to_vec(),
        };
        here.world.barrier()?;
        let begin = CoreTicks::read(&cores);
        Ok(LoadMeter { cores, begin_ns: now_ns(), begin, own_us: own_us(here)? })
    }

    /// Doubts that follow from the load of this machine since the start. All ranks call this.
    pub(super) fn doubts(&self, here: &StepContext<'_>) -> Result<Doubts, Error> {
        let own_us = own_us(here)? - self.own_us;
        let machine = machine_of(here);
        let mut of_machines = vec![0.0; here.world.size() as usize];
        of_machines[machine] = own_us;
        let of_machines = agreement::sum(here.world, &of_machines)?;
        let elapsed = Duration::from_nanos((now_ns() - self.begin_ns).unsigned_abs());
        let own = Duration::try_from_secs_f64(of_machines[machine] * 1e-6).unwrap_or_default();
        let now = CoreTicks::read(&self.cores);
        let CoreLoad { others, stolen } = now.load_since(&self.begin, elapsed, own);
        Ok(Doubts::of([(Sign::OtherProcesses, others), (Sign::StolenTime, stolen)]))
    }
}

/// Number of this rank's machine; there are no more machines than ranks.
fn machine_of(here: &StepContext<'_>) -> usize {
    let nodes = here.shape.nodes.as_ref();
    let machine =
        nodes.and_then(|nodes| nodes.machines.get(nodes.node_of(here.world.rank())).copied());
    machine.map_or(0, |machine| machine as usize)
}

/// Processor time that this rank adds to that of its job: its process and, for the first rank of a
/// node, the node service. Ranks that are threads, which have no service, are one process.
fn own_us(here: &StepContext<'_>) -> Result<f64, Error> {
    let rank = here.world.rank();
    let nodes = here.shape.nodes.as_ref();
    let is_first_of_node = nodes.map_or(rank == 0, |nodes| nodes.is_first_of_node(rank));
    Ok(match here.service {
        Some(service) if is_first_of_node => {
            used_by_rank_us(RankKind::Process) + used_by_process_us(service)?
        }
        Some(_) => used_by_rank_us(RankKind::Process),
        None if rank == 0 => used_by_rank_us(RankKind::Process),
        None => 0.0,
    })
}
