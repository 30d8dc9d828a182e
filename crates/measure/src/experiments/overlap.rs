//! Time of a collective that remains exposed beside a computation: NBCBench (Schneider et al.
//! 2011, sections 4.2 and 4.3; Hoefler, Lumsdaine and Rehm, "Implementation and Performance
//! Analysis of Non-Blocking Collective Operations for MPI", SC 2007), without any call between
//! start and wait.
//!
//! A repetition begins with a barrier. Then a random skew delays every rank, so that no rank
//! profits from ranks that start in step, and
//!
//! - **computes**: a [fixed count of steps](crate::harness::computation), the same on all ranks; or
//! - **starts the collective, computes the same, and waits** until the result lies in its own
//!   buffer.
//!
//! The two kinds take turns in blocks, the order within a block turning too, so that both see the
//! same machine. Nothing but the difference is put down to the collective:
//!
//! | column | what it is |
//! |---|---|
//! | `alone_us` | start and wait with nothing between them, back to back; the root of a broadcast moves on |
//! | `compute_us` | the computation alone |
//! | `total_us` | start, computation, wait |
//! | `exposed_us` | `total` − `compute`, **the figure to trust**; `p10_us` and `p90_us` are its spread |
//! | `overlap` | 1 − `exposed` / `alone` in percent, within 0 and 100 |
//! | `unattended` | the share of looks, of any rank, that found the collective complete before its rank made any call |
//! | `stolen_us` | processor time of all ranks, the node service and softirqs, less that of the computation |
//!
//! All but `overlap` and `unattended` are medians, in microseconds, of the repetitions' maximum
//! over the ranks (`stolen_us`: of their sum). Overlap in percent flatters a slow collective, which
//! has much to hide, and hides a fast one, of which the start is all there is.
//!
//! **When ranks have cores of their own** a rank's time runs from its own start to its own end, and
//! its own median of the computation alone is subtracted. **When ranks share cores** that would
//! charge a rank for the turns that others take on its core; then a repetition counts once, from
//! the moment the first rank leaves the barrier until the last is done, and the same of the
//! computation alone, under the same skew, is subtracted.
//!
//! **Unattended.** A rank looks when its computation is over, with one load that does nothing for
//! the collective. Looks that come before all ranks have started, which no library could help, are
//! left out; the clock is the node's, so this is known to the nanosecond. There are always some
//! left: those of the rank that started last.
//!
//! **Stolen.** What the node service uses is charged in full. The kernel counts softirqs for the
//! whole machine, for all processes, in ticks of commonly ten milliseconds: a difference of two
//! ticks or less is none.

mod alone;
mod collective;
mod evaluate;
mod part;
mod plan;
mod repetitions;
mod row;
mod trial;

pub use collective::Collective;
pub use part::experiment;
pub use plan::{Case, MOST_BYTES, MOST_COMPUTATION_US, MOST_REPETITIONS, Plan};
pub use row::Row;

use crate::harness::Error;
use crate::harness::agreement;
use crate::harness::computation::ComputeRate;
use crate::harness::processor_time::RankKind;
use tradewind::{Communicator, EngineKind};
use trial::Trial;

/// Properties of the job.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The engine that the job runs.
    pub engine: EngineKind,
    /// True if ranks are processes.
    pub rank_kind: RankKind,
    /// Cores that the ranks share. A rank that is bound to one cannot know.
    pub cores: u32,
    /// Process of the node service; its CPU time is included.
    pub service: Option<u32>,
    /// Seed of the skews, together with the rank.
    pub seed: u64,
}

/// The experiment on one job.
#[derive(Debug)]
pub struct Experiment<'w> {
    world: &'w Communicator,
    setting: Setting,
    pace: ComputeRate,
}

impl<'w> Experiment<'w> {
    /// Prepares it: the computation is calibrated, once. All ranks call this.
    ///
    /// # Errors
    /// When a rank is gone.
    pub fn new(world: &'w Communicator, setting: Setting) -> Result<Self, Error> {
        let own = ComputeRate::calibrate().microseconds_per_step();
        // All ranks compute the same number of steps, those of the fastest.
        let pace = ComputeRate::new(-agreement::largest(world, &[-own])?[0]);
        Ok(Experiment { world, setting, pace })
    }

    /// Measures one collective of one size. All ranks call this, with the same case, and get the
    /// same row. `announce` is called once, when it is settled what will be done and the long part
    /// begins.
    ///
    /// ```
    /// use measure::experiments::overlap::{Case, Collective, Experiment, Setting};
    /// use measure::harness::processor_time::RankKind;
    /// use tradewind::EngineKind;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = std::sync::Mutex::new(Vec::new());
    /// tradewind::local(2, |world| {
    ///     let (engine, rank_kind) = (EngineKind::Peers, RankKind::Thread);
    ///     let setting = Setting { engine, rank_kind, cores: 2, service: None, seed: 1 };
    ///     let case = Case { repetitions: Some(3), ..Case::new(Collective::Allreduce, 8) };
    ///     let row = Experiment::new(&world, setting).and_then(|it| it.measure(&case, |_| {})).expect("it can be measured");
    ///     rows.lock().expect("no thread panics").push(row);
    ///     Ok(())
    /// })?;
    /// let rows = rows.into_inner()?;
    /// assert_eq!(rows[0], rows[1]);
    /// println!("exposed: {} µs", rows[0].exposed_us);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the case cannot be measured, a rank is gone, or the collective gives wrong data.
    pub fn measure(&self, case: &Case, announce: impl FnOnce(&Plan)) -> Result<Row, Error> {
        case.check()?;
        let mut trial = Trial::new(self.world, self.setting.engine, case)?;
        // Every root once: schedules are linked when they are first used.
        for root in 0..trial.roots() {
            trial.verify(root, u64::from(root))?;
        }
        alone::warm_up(self.world, &mut trial)?;
        let alone_us = alone::estimate(self.world, &mut trial)?;
        let plan = self.plan(&mut trial, case, alone_us)?;
        announce(&plan);
        let alone_us = alone::measure(self.world, &mut trial, &plan)?;
        let skews = plan.skews(self.setting.seed, self.world.rank());
        let laps = repetitions::run(self, &mut trial, &plan, &skews)?;
        trial.verify(0, u64::MAX)?;
        evaluate::row(self, &trial, &plan, alone_us, &laps)
    }

    /// Settles what the case leaves open; the same on all ranks.
    fn plan(&self, trial: &mut Trial, case: &Case, alone_us: f64) -> Result<Plan, Error> {
        let computation_us = case
            .computation_us
            .unwrap_or_else(|| plan::computation_for(alone_us, self.ranks_per_core()));
        let mut plan = Plan {
            computation_us,
            alone_us,
            steps: self.pace.steps(computation_us),
            repetitions: 2,
        };
        plan.repetitions = match case.repetitions {
            Some(repetitions) => repetitions,
            None => plan::repetitions_within_budget(
                repetitions::time_of_two_us(self, trial, &plan)? / 2.0,
            ),
        };
        Ok(plan)
    }

    /// Number of ranks on each core.
    fn ranks_per_core(&self) -> u32 {
        self.world.size().div_ceil(self.setting.cores.max(1))
    }
}
