//! Measurement of one row.

use super::experiment::Experiment;
use super::plan::{self, Case, Plan};
use super::row::OverlapRow;
use super::trial::Trial;
use super::{alone, evaluate, repetitions};
use crate::harness::Error;

impl Experiment<'_> {
    /// Measures one collective of one size. All ranks call this, with the same case, and get the
    /// same row. `announce` is called once, when it is settled what will be done and the long part
    /// begins.
    ///
    /// ```
    /// use measure::experiments::overlap::{Case, Collective, Experiment, Progress, Setting};
    /// use measure::harness::processor_time::RankKind;
    /// use tradewind::EngineKind;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let rows = std::sync::Mutex::new(Vec::new());
    /// tradewind::local(2, |world| {
    ///     let setting = Setting {
    ///         progress: Progress::OnNode(EngineKind::Peers),
    ///         rank_kind: RankKind::Thread,
    ///         cores: 2,
    ///         service: None,
    ///         adds_interrupts: world.rank() == 0,
    ///         has_common_clock: true,
    ///         seed: 1,
    ///     };
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
    /// If the case cannot be measured, a rank has failed, or the collective returns wrong data.
    pub fn measure(&self, case: &Case, announce: impl FnOnce(&Plan)) -> Result<OverlapRow, Error> {
        case.check()?;
        let mut trial = Trial::new(self.world, self.setting.progress, case)?;
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
            steps: self.rate.steps(computation_us),
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
}
