//! Load of cores: the busy and the stolen time in proc_stat(5).
//!
//! Interrupts are left out: most are of a job's own packets.

use std::time::Duration;

/// Ticks by which the difference of two readings of a core may be wrong: the kernel counts whole ones.
const READING_ERROR: f64 = 2.0;

/// Time of cores since the system started, in ticks.
///
/// ```
/// use shm::process::{CoreTicks, allowed_cores, cpu_time};
/// use std::time::Instant;
///
/// # fn main() -> Result<(), shm::process::ProcessError> {
/// let cores = allowed_cores();
/// let (begin, since) = (CoreTicks::read(&cores), Instant::now());
/// let own = cpu_time(std::process::id())?;
/// // Something that is measured.
/// let own = cpu_time(std::process::id())? - own;
/// let load = CoreTicks::read(&cores).load_since(&begin, since.elapsed(), own);
/// assert!((0.0..=1.0).contains(&load.others));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTicks {
    cores: u32,
    /// In processes.
    busy: f64,
    /// In other virtual machines.
    stolen: f64,
}

/// Shares of the time of cores that a job did not have, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreLoad {
    /// In other processes.
    pub others: f64,
    /// In other virtual machines.
    pub stolen: f64,
}

impl CoreLoad {
    /// The share above which a measurement counts as disturbed. Housekeeping of an idle system stays
    /// far below, another busy process on up to 12 cores above.
    pub const LIMIT: f64 = 0.08;
}

impl CoreTicks {
    /// The sum of these cores now; nothing where /proc/stat cannot be read.
    pub fn read(cores: &[usize]) -> Self {
        std::fs::read_to_string("/proc/stat")
            .map_or_else(|_| CoreTicks::default(), |stat| CoreTicks::of(&stat, cores))
    }

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

    /// The load since an earlier reading of the same cores, this time ago, during which the processes
    /// of the job used `own` of processor time.
    pub fn load_since(&self, begin: &CoreTicks, elapsed: Duration, own: Duration) -> CoreLoad {
        let ticks_per_second = rustix::param::clock_ticks_per_second() as f64;
        let all = elapsed.as_secs_f64() * ticks_per_second * f64::from(self.cores);
        if all <= 0.0 || self.cores != begin.cores {
            return CoreLoad::default();
        }
        let error = READING_ERROR * f64::from(self.cores);
        let own = own.as_secs_f64() * ticks_per_second;
        let share = |ticks: f64| ((ticks - error) / all).clamp(0.0, 1.0);
        CoreLoad {
            others: share(self.busy - begin.busy - own),
            stolen: share(self.stolen - begin.stolen),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 100 10 20 500 0 0 7 0 0 0\n\
                          cpu1 200 0 30 600 0 0 9 4 0 0\nintr 5\n";

    /// The load, in percent, of two cores in a second, of which a job uses 1.2 seconds.
    fn load(after: &str) -> [f64; 2] {
        let begin = CoreTicks::of(BEFORE, &[0, 1]);
        let own = Duration::from_millis(1200);
        let after = CoreTicks::of(after, &[0, 1]);
        let CoreLoad { others, stolen } = after.load_since(&begin, Duration::from_secs(1), own);
        [others, stolen].map(|share| (100.0 * share).round())
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
        assert_eq!(load(own), [0.0, 0.0]);
    }

    #[test]
    fn other_processes_and_machines_are_load() {
        // 1.2 seconds and 0.6 of a nice process.
        let other = "cpu0 160 70 20 540 0 0 7 0 0 0\ncpu1 260 0 30 638 0 0 9 4 0 0\n";
        assert_eq!(load(other), [28.0, 0.0]);
        let stolen = "cpu0 160 10 20 540 0 0 7 40 0 0\ncpu1 260 0 30 638 0 0 9 24 0 0\n";
        assert_eq!(load(stolen), [0.0, 28.0]);
        let other_cores = CoreTicks::of(BEFORE, &[0]);
        let begin = CoreTicks::of(BEFORE, &[0, 1]);
        let second = Duration::from_secs(1);
        assert_eq!(other_cores.load_since(&begin, second, second), CoreLoad::default());
    }
}
