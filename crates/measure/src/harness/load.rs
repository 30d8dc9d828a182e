//! The load of a machine's cores by others than the job that measures.
//!
//! It is the busy and the stolen time of the cores in proc_stat(5), less the processor time of the
//! ranks and node services of the job. Interrupts are left out: most are of the job's own packets.

use crate::harness::agreement;
use crate::harness::clock::now_ns;
use crate::harness::context::StepContext;
use crate::harness::doubts::{Doubts, Sign};
use crate::harness::error::Error;
use crate::harness::processor_time::{RankKind, tick_us, used_by_process_us, used_by_rank_us};

/// Ticks by which the difference of two readings of a core may be wrong: the kernel counts whole ones.
const READING_ERROR_TICKS: f64 = 2.0;

/// Time of cores since the system started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct CoreTicks {
    cores: u32,
    /// In processes.
    busy: f64,
    /// In other virtual machines.
    stolen: f64,
}

impl CoreTicks {
    /// The sum of these cores in the text of /proc/stat. Fields that a kernel does not report are 0.
    fn of(stat: &str, cores: &[usize]) -> Self {
        let mut sum = CoreTicks::default();
        for line in stat.lines() {
            let Some((number, fields)) =
                line.strip_prefix("cpu").and_then(|line| line.split_once(' '))
            else {
                continue;
            };
            if !number.parse().is_ok_and(|core| cores.contains(&core)) {
                continue;
            }
            let fields: Vec<f64> =
                fields.split_whitespace().map(|field| field.parse().unwrap_or(0.0)).collect();
            let field = |index: usize| fields.get(index).copied().unwrap_or(0.0);
            // user, nice, system, idle, iowait, irq, softirq, steal
            sum.cores += 1;
            sum.busy += field(0) + field(1) + field(2);
            sum.stolen += field(7);
        }
        sum
    }

    fn read(cores: &[usize]) -> Self {
        // Without the file nothing is known of others.
        std::fs::read_to_string("/proc/stat")
            .map_or_else(|_| CoreTicks::default(), |stat| CoreTicks::of(&stat, cores))
    }

    /// Doubts about a measurement of this length, during which the job used this processor time.
    fn doubts_since(&self, begin: &CoreTicks, elapsed_us: f64, own_us: f64) -> Doubts {
        let all_us = elapsed_us * f64::from(self.cores);
        if all_us <= 0.0 || self.cores != begin.cores {
            return Doubts::default();
        }
        let error_us = READING_ERROR_TICKS * tick_us() * f64::from(self.cores);
        let share = |ticks: f64, own_us: f64| {
            ((ticks * tick_us() - own_us - error_us) / all_us).clamp(0.0, 1.0)
        };
        Doubts::of([
            (Sign::OtherProcesses, share(self.busy - begin.busy, own_us)),
            (Sign::StolenTime, share(self.stolen - begin.stolen, 0.0)),
        ])
    }
}

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
        let elapsed_us = (now_ns() - self.begin_ns) as f64 * 1e-3;
        let now = CoreTicks::read(&self.cores);
        Ok(now.doubts_since(&self.begin, elapsed_us, of_machines[machine]))
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

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 10 20 500 0 0 7 0 0 0\n\
                          cpu1 200 0 30 600 0 0 9 4 0 0\nintr 5\n";

    /// A second of two cores, of which ranks use 1.2 seconds.
    fn doubts(after: &str) -> Doubts {
        let begin = CoreTicks::of(BEFORE, &[0, 1]);
        CoreTicks::of(after, &[0, 1]).doubts_since(&begin, 1e6, 1.2e6)
    }

    #[test]
    fn cores_are_told_apart() {
        let of = |cores: &[usize]| CoreTicks::of(BEFORE, cores);
        assert_eq!(of(&[0]), CoreTicks { cores: 1, busy: 130.0, stolen: 0.0 });
        assert_eq!(of(&[0, 1, 7]), CoreTicks { cores: 2, busy: 360.0, stolen: 4.0 });
        assert_eq!(CoreTicks::of("nothing", &[0]), CoreTicks::default());
    }

    #[test]
    fn a_job_s_own_time_is_no_load() {
        let own = "cpu0 160 10 20 540 0 0 99 0 0 0\ncpu1 260 0 32 638 0 0 99 4 0 0\n";
        assert!(!doubts(own).is_disturbed(), "{:?}", doubts(own));
    }

    #[test]
    fn other_processes_and_machines_are_load() {
        // 1.2 seconds and 0.6 of a nice process.
        let other = "cpu0 160 70 20 540 0 0 7 0 0 0\ncpu1 260 0 30 638 0 0 9 4 0 0\n";
        assert_eq!(doubts(other).to_string(), "other processes used 28 % of the cores");
        let stolen = "cpu0 160 10 20 540 0 0 7 40 0 0\ncpu1 260 0 30 638 0 0 9 24 0 0\n";
        assert_eq!(doubts(stolen).to_string(), "other virtual machines used 28 % of the cores");
    }
}
