//! The cases of a measurement, and their steps.

use super::case::Case;
use super::collective::Collective;
use super::measure::measure;
use super::progress::Progress;
use super::row::OverlapRow;
use crate::harness::options::{RANKS, list_of, number_of, text_of};
use crate::harness::{Error, JobShape, Nodes, Setting, Step, StepContext, agreement};
use crate::rows::{Measurements, Row};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The rows to be measured: each case with each progress, one after the other, so that they meet the
/// same machine. Where a case has no computation, that of the first progress is that of all.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of ranks on one node. Between nodes, all ranks take part.
    pub ranks: u32,
    /// The cases.
    pub cases: Vec<Case>,
    /// The kinds of progress.
    pub progress: Vec<Progress>,
}

impl Plan {
    /// Checks that it can be measured.
    ///
    /// # Errors
    /// Those of [`Case::check`], and [`Error::Argument`] for progress on one node between several, or
    /// the other way round.
    pub fn check(&self, is_between_nodes: bool) -> Result<(), Error> {
        self.cases.iter().try_for_each(Case::check)?;
        let is_elsewhere = |one: &&Progress| one.crosses_nodes() != is_between_nodes;
        let expected = match is_between_nodes {
            true => "nonblocking or in-calls, which are those between nodes",
            false => "caller, peers or peers-by-messages, which are those of one node",
        };
        match self.progress.iter().find(is_elsewhere) {
            Some(one) => {
                let found = one.to_string();
                Err(Error::Argument { what: "the progress", found, expected })
            }
            None => Ok(()),
        }
    }

    /// The plan in words, for [`Setting::options`]. Its cases differ in collective and size alone.
    pub fn options(&self) -> BTreeMap<String, String> {
        let first = self.cases.first();
        let computation = first.and_then(|case| case.computation_us).map(|time| time.to_string());
        let repetitions = first.and_then(|case| case.repetitions).map(|count| count.to_string());
        let words = [
            (RANKS, Some(self.ranks.to_string())),
            ("op", Some(text_of(&self.cases))),
            ("engine", Some(text_of(&self.progress))),
            ("compute-us", computation),
            ("repetitions", repetitions),
        ];
        words.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// The plan of these words; none if they are not those of a plan.
    fn of_options(options: &BTreeMap<String, String>) -> Option<Self> {
        let computation_us = number_of(options, "compute-us");
        let repetitions = number_of(options, "repetitions");
        let mut cases: Vec<Case> = list_of(options, "op")?;
        for case in &mut cases {
            *case = Case { computation_us, repetitions, ..*case };
        }
        let progress = list_of(options, "engine")?;
        Some(Plan { ranks: number_of(options, RANKS)?, cases, progress })
    }

    fn steps(&self, setting: &Setting) -> Vec<Step> {
        let ranks = setting.nodes.as_ref().map_or(self.ranks, Nodes::size);
        let mut steps = Vec::new();
        for case in &self.cases {
            let first = StepOfCase::default();
            let all = self.progress.iter().enumerate();
            steps.extend(all.map(|(number, progress)| {
                let place = StepOfCase { number, ..first.clone() };
                step(setting, *case, *progress, ranks, place)
            }));
        }
        steps
    }
}

/// The steps of the plan in the setting's options, or of the suite's own cases.
pub(super) fn steps(setting: &Setting) -> Vec<Step> {
    match Plan::of_options(&setting.options) {
        Some(plan) => plan.steps(setting),
        None => of_suite(setting),
    }
}

/// Size, microseconds of computation (about ten times what the collective takes alone),
/// repetitions.
const SIZES: [(u64, f64, u32); 6] = [
    (8, 50.0, 400),
    (1 << 10, 50.0, 400),
    (1 << 14, 200.0, 200),
    (1 << 16, 500.0, 100),
    (1 << 18, 2_000.0, 40),
    (1 << 20, 5_000.0, 20),
];
/// The same between nodes.
const SIZES_BETWEEN_NODES: [(u64, f64, u32); 5] = [
    (8, 300.0, 200),
    (1 << 10, 300.0, 200),
    (1 << 14, 1_000.0, 100),
    (1 << 16, 3_000.0, 50),
    (1 << 18, 10_000.0, 15),
];
/// Repetitions of a trial.
const FEW: u32 = 5;

fn of_suite(setting: &Setting) -> Vec<Step> {
    let (sizes, ranks) = match &setting.nodes {
        None => (SIZES.as_slice(), vec![2]),
        Some(nodes) => (SIZES_BETWEEN_NODES.as_slice(), numbers_of_ranks(nodes)),
    };
    let sizes = &sizes[..setting.choose(2, sizes.len())];
    let mut steps = Vec::new();
    for ranks in ranks {
        for progress in Progress::usual(setting.nodes.is_some()) {
            for collective in Collective::ALL.iter().copied() {
                let count = if collective.has_data() { sizes.len() } else { 1 };
                steps.extend(sizes[..count].iter().map(|(bytes, computation_us, repetitions)| {
                    let case = Case {
                        collective,
                        bytes: if collective.has_data() { *bytes } else { 0 },
                        computation_us: Some(*computation_us),
                        repetitions: Some(setting.choose(FEW, *repetitions)),
                    };
                    step(setting, case, progress, ranks, StepOfCase::default())
                }));
            }
        }
    }
    steps
}

/// 2, 4, 8 and so on as far as there are ranks, and all of them.
fn numbers_of_ranks(nodes: &Nodes) -> Vec<u32> {
    let all = nodes.size();
    let mut numbers: Vec<u32> = (1..=all.ilog2()).map(|power| 1 << power).collect();
    if numbers.last().is_some_and(|last| *last < all) {
        numbers.push(all);
    }
    numbers
}

/// Place of a step among those of its case.
#[derive(Clone, Debug, Default)]
struct StepOfCase {
    number: usize,
    /// Length of the computation, once this process has made a step of the case.
    computation_us: Arc<OnceLock<f64>>,
}

/// The step that measures a case. It has the computation of an earlier one if it is not the first.
fn step(setting: &Setting, case: Case, progress: Progress, ranks: u32, place: StepOfCase) -> Step {
    /// About how long a case takes where it does not say so, in milliseconds.
    const USUALLY: u64 = 3_000;
    let milliseconds = match (case.computation_us, case.repetitions) {
        (Some(time), Some(count)) => (f64::from(count) * time * 3e-3) as u64 + 20,
        _ => USUALLY,
    };
    let shape = JobShape::bound(setting, ranks).with_engine(progress.engine());
    let what = format!("{case}, {ranks} ranks, {progress}");
    let seed = setting.seed;
    Step::new(what, shape, milliseconds, move |here| {
        let mut case = case;
        if case.computation_us.is_none() && place.number > 0 {
            // The launcher may not have written the rows of this process yet.
            case.computation_us = match place.computation_us.get() {
                Some(computation_us) => Some(*computation_us),
                None => earlier_computation(here, &case)?,
            };
        }
        let rows = measure(here, progress, &case, seed)?;
        place.computation_us.get_or_init(|| least(&rows[1]));
        Ok(rows)
    })
}

/// The least time of a row: a disturbance makes a computation longer.
fn least(row: &Row) -> f64 {
    row.times.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Length of the computation of the latest row of a case that an earlier job has measured, the same on
/// all ranks; none without one.
fn earlier_computation(here: &StepContext<'_>, case: &Case) -> Result<Option<f64>, Error> {
    let mut found = None;
    if let (0, Some(directory)) = (here.world.rank(), here.directory) {
        let measured = Measurements::read(directory)?;
        let rows: Vec<&Row> = measured.runs.iter().flat_map(|run| run.rows()).collect();
        let computation = |rows: &[&Row]| {
            let (row, _) = OverlapRow::of(rows)?;
            let is_of_case = (row.op, row.bytes) == (case.collective, case.bytes);
            let world = here.world;
            let is_of_job = (row.ranks, rows[1].nodes) == (world.size(), world.nodes());
            (is_of_case && is_of_job).then(|| least(rows[1]))
        };
        found = rows.windows(4).rev().find_map(computation);
    }
    agreement::of_first(here.world, (here.world.rank() == 0).then_some(&found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_again_in_its_words() {
        let case = |collective, bytes, computation_us| Case {
            computation_us,
            repetitions: Some(3),
            ..Case::new(collective, bytes)
        };
        for computation_us in [None, Some(12.5)] {
            let cases = vec![
                case(Collective::Barrier, 0, computation_us),
                case(Collective::Alltoall, 1024, computation_us),
            ];
            let progress = vec![Progress::Caller, Progress::PeersByMessages];
            let plan = Plan { ranks: 3, cases, progress };
            assert_eq!(Plan::of_options(&plan.options()), Some(plan));
        }
        assert_eq!(Plan::of_options(&BTreeMap::new()), None);
    }

    #[test]
    fn progress_belongs_to_one_node_or_to_several() {
        let plan = |progress| {
            let cases = vec![Case::new(Collective::Barrier, 0)];
            Plan { ranks: 2, cases, progress: vec![progress] }
        };
        for progress in Progress::ALL.iter().copied() {
            assert!(plan(progress).check(progress.crosses_nodes()).is_ok());
            let error = plan(progress).check(!progress.crosses_nodes()).expect_err("elsewhere");
            assert!(error.to_string().contains(progress.name()), "{error}");
        }
    }
}
