//! Which algorithm is best between the nodes of a job: what the models predict, and the clock's
//! answer where they leave doubt.

use super::candidates::{Candidates, Extent, JobsCandidates, of_query};
use super::grid::{FILE, empty_figure, figure_of, points};
pub use super::purpose::Purpose;
use super::{disturbed, errors};
use crate::experiments::algorithms::{CollectiveCall, compare_in_batches};
use crate::harness::{
    ATTEMPTS, Error, Experiment, Finding, JobShape, QUICK_ATTEMPTS, Setting, Step, StepContext,
};
use crate::results::Part;
use collectives::{Choice, Collective};
use models::builtin;
use models::decision::{DecisionTable, Query};
use models::machine_file::Engine;
use models::prediction::USUALLY_HELD;
use std::num::NonZeroU32;
use tradewind::CallForm;

/// Calls of so many bytes or fewer are visited more than once.
const MOST_VISITED: u64 = 64 << 10;

/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 27;

/// The experiment for a job with so many ranks, so many of them on each node. Measurements of
/// different engines, as `TRADEWIND_INTERNODE` names them, are different parts.
pub fn experiment(
    purpose: Purpose,
    setting: &Setting,
    (ranks, ranks_per_node): (u32, NonZeroU32),
    engine: Option<&str>,
) -> Experiment {
    let operations: &[Collective] = setting.choose(&Collective::ALL[..2], Collective::ALL);
    let sizes = purpose.sizes();
    let sizes: &[u64] = setting.choose(&sizes[..2], sizes);
    // A call of four ranks on two cores stays at one of several speeds for a while, with all plans.
    let visits = setting.choose(1, 2);
    let milliseconds = setting.choose(10.0, purpose.milliseconds() / f64::from(visits));
    let suffix = engine.map(|engine| format!("-{engine}")).unwrap_or_default();
    let mut part = Part::new(&format!("{}{suffix}", purpose.part()), purpose.title());
    part.about = purpose.about().to_owned();
    part.source = "Barchet-Estefanel, Mounié 2004, section 6".to_owned();
    part.tables.extend([errors::outline(), disturbed::outline()]);
    let mut steps = Vec::new();
    let extent = match purpose {
        Purpose::Decision => Extent::of(setting),
        Purpose::Calibration | Purpose::Check => Extent::All,
    };
    let attempts = setting.choose(QUICK_ATTEMPTS, ATTEMPTS);
    let has_kernel = engine == Some(Engine::Kernel.name());
    // Long calls differ less, and take their time in each visit.
    let is_visited = |(visit, bytes): &(u32, &u64)| *visit == 0 || **bytes <= MOST_VISITED;
    let visited = (0..visits).flat_map(|visit| sizes.iter().map(move |bytes| (visit, bytes)));
    for (_, bytes) in visited.filter(is_visited) {
        for form in CallForm::ALL.iter().copied() {
            for operation in operations.iter().copied() {
                let shape = (operation, form, ranks, ranks_per_node.get());
                let name = figure_of(shape);
                if !part.figures.iter().any(|figure| figure.name == name) {
                    let title =
                        format!("{form} {operation}, {ranks} ranks, {ranks_per_node} a node");
                    part.figures.push(empty_figure(&name, &title));
                }
                let bytes = match operation {
                    Collective::Barrier if *bytes != sizes[0] => continue,
                    Collective::Barrier => 0,
                    _ => *bytes,
                };
                let query =
                    Query { operation, form, ranks, ranks_per_node: ranks_per_node.get(), bytes };
                let call = CollectiveCall { operation, form, ranks, bytes, root: 0 };
                if call.memory() > MOST_MEMORY {
                    continue;
                }
                let what = format!("{query}");
                let shape = JobShape::unbound(setting, ranks);
                steps.push(Step::new(what, shape, 2 * milliseconds as u64, move |here| {
                    // Calibration has every plan anyway, and no machine's choices yet.
                    let is_calibration = purpose == Purpose::Calibration;
                    let more = if is_calibration { Vec::new() } else { chosen(here, &query) };
                    let which = JobsCandidates { extent, has_kernel, more };
                    measure(here, (&query, &call), milliseconds, attempts, which)
                }));
            }
        }
    }
    Experiment::new(part, steps).concluding(errors::conclude)
}

/// The choices of the directory's table and of the built-in parameters, on rank 0: their segments are
/// those of another size, or of another machine.
fn chosen(here: &StepContext<'_>, query: &Query) -> Vec<Choice> {
    let Some(directory) = here.directory.filter(|_| here.world.rank() == 0) else {
        return Vec::new();
    };
    let table = DecisionTable::read(&directory.join(FILE)).ok();
    let by_table = table.and_then(|table| table.look_up(query).ok().map(|found| found.range.plan));
    let built_in = [true, false].into_iter().filter_map(|has_kernel| {
        let models = builtin::models().clone().with_connected_ranks(USUALLY_HELD);
        let models = models.only(|engine| has_kernel || engine != Engine::Kernel);
        models.choose(query).map(|one| one.plan)
    });
    let mut plans: Vec<Choice> = Vec::new();
    for plan in by_table.into_iter().chain(built_in) {
        if !plans.contains(&plan) {
            plans.push(plan);
        }
    }
    plans
}

fn measure(
    here: &StepContext<'_>,
    (query, call): (&Query, &CollectiveCall),
    milliseconds: f64,
    attempts: u32,
    which: JobsCandidates,
) -> Result<Vec<Finding>, Error> {
    let Candidates { predicted, measured } = of_query(here, query, which)?;
    let figure = figure_of((query.operation, query.form, query.ranks, query.ranks_per_node));
    if measured.is_empty() {
        return Ok(points(&figure, query.bytes, &predicted, &[]));
    }
    let per_node = NonZeroU32::new(query.ranks_per_node);
    let (compared, doubt) = disturbed::compare(here, attempts, (&figure, query.bytes), || {
        compare_in_batches(here, call, &measured, per_node, milliseconds)
    })?;
    let mut found = points(&figure, query.bytes, &predicted, &compared);
    found.extend(doubt);
    Ok(found)
}
