//! Which algorithm is best between the nodes of a job: what the models predict, and the clock's
//! answer where they leave doubt.

use super::candidates::{Candidates, Extent, of_query};
use super::grid::{NODE_SIZES, figure_of};
use crate::experiments::algorithms::{CollectiveCall, TimeBudget, compare_in_batches};
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, Step, StepContext};
use crate::results::{Axis, Figure, Part, Point, Role};
use collectives::Collective;
use models::decision::Query;
use std::num::NonZeroU32;
use tradewind::CallForm;

/// No collective takes more memory than this.
const MOST_MEMORY: u64 = 1 << 27;

/// The experiment for a job with so many ranks, so many of them on each node. Measurements of
/// different engines, as `TRADEWIND_INTERNODE` names them, are different parts.
pub fn experiment(
    setting: &Setting,
    (ranks, ranks_per_node): (u32, NonZeroU32),
    engine: Option<&str>,
) -> Experiment {
    let operations: &[Collective] = setting.choose(&Collective::ALL[..2], Collective::ALL);
    let sizes: &[u64] = setting.choose(&NODE_SIZES[..2], &NODE_SIZES);
    let budget = TimeBudget { milliseconds: setting.choose(10.0, 40.0), most_rounds: 0 };
    let suffix = engine.map(|engine| format!("-{engine}")).unwrap_or_default();
    let name = format!("decisions-nodes{suffix}");
    let mut part = Part::new(&name, "Which algorithm is best between nodes");
    part.about = "The models predict every plan of a call between the nodes of a job. Candidates \
                  whose predictions lie within the models' own error of the best take turns, in \
                  batches of calls back to back. Dashed are predictions."
        .to_owned();
    part.source = "Barchet-Estefanel, Mounié 2004, section 6".to_owned();
    let mut steps = Vec::new();
    let extent = Extent::of(setting);
    for bytes in sizes {
        for form in CallForm::ALL.iter().copied() {
            for operation in operations.iter().copied() {
                let shape = (operation, form, ranks, ranks_per_node.get());
                let name = figure_of(shape);
                if !part.figures.iter().any(|figure| figure.name == name) {
                    let title =
                        format!("{form} {operation}, {ranks} ranks, {ranks_per_node} a node");
                    let x = Axis::bytes("bytes").logarithmic();
                    let y = Axis::microseconds("time").logarithmic();
                    part.figures.push(Figure::new(&name, &title, x, y));
                }
                let bytes = match operation {
                    Collective::Barrier if *bytes != NODE_SIZES[0] => continue,
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
                steps.push(Step::new(what, shape, 100, move |here| {
                    measure(here, &query, &call, budget, extent)
                }));
            }
        }
    }
    Experiment::new(part, steps)
}

fn measure(
    here: &StepContext<'_>,
    query: &Query,
    call: &CollectiveCall,
    budget: TimeBudget,
    extent: Extent,
) -> Result<Vec<Finding>, Error> {
    let Candidates { predicted, measured } = of_query(here, query, extent)?;
    let figure = figure_of((query.operation, query.form, query.ranks, query.ranks_per_node));
    let x = query.bytes as f64;
    let points = predicted.iter().map(|(plan, time)| {
        let name = format!("{plan}, predicted");
        Finding::point(&figure, &name, Role::Predicted, Point::exact(x, *time))
    });
    let mut found: Vec<Finding> = points.collect();
    if !measured.is_empty() {
        let per_node = NonZeroU32::new(query.ranks_per_node);
        let compared = compare_in_batches(here.world, call, &measured, per_node, budget)?;
        found.extend(compared.timed.iter().map(|timed| {
            Finding::measured(&figure, &timed.plan.to_string(), Point::of(x, &timed.microseconds))
        }));
    }
    Ok(found)
}
