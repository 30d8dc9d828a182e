//! The load of the cores by others during the measurement of a collective.

use shm::process::{CoreLoad, CoreTicks, allowed_cores, cpu_time};
use std::time::{Duration, Instant};

/// A measurement of the load, from its start on.
pub(super) struct LoadMeter<'a> {
    cores: &'a [usize],
    begin: CoreTicks,
    since: Instant,
    own: Duration,
}

/// The cores of all ranks, which their launcher may have bound each to its own. `largest` returns the
/// largest number of all ranks for each of its own.
pub(super) fn cores_of(largest: impl Fn(&[f64]) -> Vec<f64>) -> Vec<usize> {
    let own = allowed_cores();
    let last = own.last().map_or(0.0, |core| *core as f64);
    let count = largest(&[last])[0] as usize + 1;
    let is_own: Vec<f64> =
        (0..count).map(|core| f64::from(u8::from(own.contains(&core)))).collect();
    let is_used = largest(&is_own);
    (0..count).filter(|core| is_used[*core] > 0.0).collect()
}

/// Processor time of this process.
fn own_time() -> Duration {
    // The clock of this process exists.
    cpu_time(std::process::id()).unwrap_or_default()
}

impl<'a> LoadMeter<'a> {
    pub(super) fn start(cores: &'a [usize]) -> Self {
        let begin = CoreTicks::read(cores);
        LoadMeter { cores, begin, since: Instant::now(), own: own_time() }
    }

    /// The load since the start, beside that of all ranks; `sum` adds a number of each.
    pub(super) fn load(&self, sum: impl FnOnce(f64) -> f64) -> CoreLoad {
        let of_all = sum(own_time().saturating_sub(self.own).as_secs_f64());
        let own = Duration::try_from_secs_f64(of_all).unwrap_or_default();
        CoreTicks::read(self.cores).load_since(&self.begin, self.since.elapsed(), own)
    }
}
