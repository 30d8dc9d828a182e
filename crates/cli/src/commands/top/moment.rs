//! State of jobs, their processes, the cores and the published names at one moment.

use crate::commands::names::program_of;
use engine::node::EngineKind;
use engine::node::observed::ObservedJob;
use names::{NameEntry, default_name, published};
use service::observer::{QueueOfJob, RunningJob, RunningJobs};
use shm::process::ProcessState;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Observer of this node.
#[derive(Debug, Default)]
pub(super) struct Watch {
    jobs: RunningJobs,
}

/// The node at one moment.
#[derive(Debug)]
pub(super) struct Moment {
    pub(super) at: Instant,
    /// Times of the cores, by number.
    pub(super) cores: BTreeMap<u32, CoreTime>,
    pub(super) jobs: Vec<JobMoment>,
    pub(super) names: Vec<NameEntry>,
}

/// Time of a core since the start of the system, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CoreTime {
    pub(super) busy: u64,
    pub(super) all: u64,
}

/// A job at one moment.
#[derive(Debug)]
pub(super) struct JobMoment {
    /// Name of its node service, which no other job has.
    pub(super) name: String,
    pub(super) service: u32,
    pub(super) engine: EngineKind,
    pub(super) cores: u32,
    pub(super) job: ObservedJob,
    /// The processes of the ranks; `None` before one joins, and after it has ended.
    pub(super) processes: Vec<Option<ProcessMoment>>,
    pub(super) queues: Vec<QueueOfJob>,
}

/// A process at one moment.
#[derive(Clone, Debug)]
pub(super) struct ProcessMoment {
    pub(super) program: String,
    pub(super) core: u32,
    pub(super) state: ProcessState,
    pub(super) cpu_time: Duration,
}

impl Watch {
    /// Observes this moment.
    pub(super) fn observe(&mut self) -> anyhow::Result<Moment> {
        // As text: the status of a service's error would say that a job could not be run.
        let jobs = self.jobs.find().map_err(|error| anyhow::anyhow!("{error}"))?;
        let jobs = jobs.into_iter().map(JobMoment::of).collect();
        self.jobs.release_ended();
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        // A name server that does not answer must not end the view of the jobs.
        let names = published(&default_name()).unwrap_or_else(|error| {
            log::warn!("the published names are missing: {error}");
            Vec::new()
        });
        Ok(Moment { at: Instant::now(), cores: core_times(&stat), jobs, names })
    }
}

impl JobMoment {
    fn of(running: &RunningJob) -> JobMoment {
        let job = running.observer.observe();
        let process = |pid: u32, lives: bool| lives.then(|| ProcessMoment::of(pid)).flatten();
        let processes =
            job.ranks.iter().map(|rank| process(rank.process, rank.exit.is_none())).collect();
        JobMoment {
            name: running.name.clone(),
            service: running.service,
            engine: running.observer.engine(),
            cores: running.observer.cores(),
            queues: running.queues(job.ranks.len() as u32),
            processes,
            job,
        }
    }
}

impl ProcessMoment {
    /// Observes a process; `None` if there is none with this number.
    fn of(pid: u32) -> Option<ProcessMoment> {
        Some(ProcessMoment {
            program: program_of(pid)?,
            core: shm::process::core(pid).ok()?,
            state: shm::process::state(pid).ok()?,
            cpu_time: shm::process::cpu_time(pid).ok()?,
        })
    }
}

/// Returns the times of the cores in `/proc/stat` (proc_stat(5)).
fn core_times(stat: &str) -> BTreeMap<u32, CoreTime> {
    let parse = |line: &str| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let core = fields.next()?.parse().ok()?;
        // User, nice, system, idle, waiting for a disk, two kinds of interrupts, stolen. The times
        // of virtual machines follow, which are in the first two as well.
        let times: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let all = times.iter().sum();
        let idle = times.get(3)? + times.get(4)?;
        Some((core, CoreTime { busy: all - idle, all }))
    };
    stat.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_cores_are_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 10 1 5 100 4 1 1 2 7 0\ncpu12 1 0 0 9 0 0 0 0 0 0\n\
                    cpu3 1 2\ncpux 1\nintr 5 0\n";
        let expected = [(0, CoreTime { busy: 20, all: 124 }), (12, CoreTime { busy: 1, all: 10 })];
        assert_eq!(core_times(stat), BTreeMap::from(expected));
    }

    #[test]
    fn a_process_that_ends_is_none() {
        assert!(ProcessMoment::of(std::process::id()).is_some());
        assert!(ProcessMoment::of(0).is_none() && ProcessMoment::of(u32::MAX).is_none());
    }
}
