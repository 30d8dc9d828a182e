//! Which algorithm is best when: the decision table of a machine, and its regret.
//!
//! [`experiment`] times the candidates of every operation, number of ranks and size of a grid side
//! by side; [`table`] makes ranges of sizes from the winners. Models leave out what they are sure
//! about, where `machine.json` has parameters: algorithms predicted to take more than five times as
//! long as the fastest is not measured. Between what is left they cannot decide, so the clock does.
//! Joins, which no model of messages knows, are always measured.
//!
//! [`regret`] then times all candidates, without leaving any out, at sizes that the table was not
//! made from, in another job: how long the chosen algorithm takes over the best.

mod choice;
mod grid;
mod regret;

pub use choice::table;
pub use grid::{FILE, RANKS};
pub use regret::experiment as regret;

use crate::experiments::algorithms::{CollectiveCall, TimeBudget, settle};
use crate::experiments::models;
use crate::harness::{Error, Experiment, Finding, JobShape, Setting, StepContext};
use crate::results::{Axis, Colour, Figure, Part, Point, Table};
use collectives::{Algorithm, Choice};
use grid::{Grid, figure, segments};

/// Candidates predicted to take this many times as long as the fastest are left out.
const SURE: f64 = 5.0;
const LEFT_OUT: &str = "left-out";

/// Sizes that the table is made from, in the order in which a quick look takes them.
const SIZES: [u64; 13] = [
    1,
    64,
    8 << 10,
    8,
    512,
    2 << 10,
    4 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
];

/// The experiment that a table is made from.
pub fn experiment(setting: &Setting) -> Experiment {
    let mut grid = Grid::of(setting, &SIZES);
    grid.bytes.sort_unstable();
    let mut part = Part::new("decisions", "Which algorithm is best when");
    part.about = "The candidates of each operation, number of ranks and size take turns; those \
                  within 30 % of the fastest, and the join, do so again for longer. The fastest \
                  median wins, and a winner is kept for larger sizes as long as it is within 8 % \
                  of the best; so is a join, which needs no schedule, and also one within 30 % \
                  whose middle half of repetitions overlaps that of the best. Between two sizes \
                  the algorithm changes in the middle, or where the join changes its way. Models \
                  only leave out candidates that they predict to take more than five times as long \
                  as the fastest; the table says which. Joins are always measured."
        .to_owned();
    part.source = "Barchet-Estefanel, Mounié 2004, section 6".to_owned();
    for ranks in &grid.ranks {
        for operation in &grid.operations {
            let title = format!("{operation}, {}", JobShape::bound(setting, *ranks).describe());
            let (x, y) =
                (Axis::bytes("bytes").logarithmic(), Axis::microseconds("time").logarithmic());
            part.figures.push(Figure::new(&figure(*operation, *ranks), &title, x, y));
        }
    }
    let caption = "The algorithm that the decision table has for each size.";
    part.maps = grid.maps(setting, "Decisions", caption, Colour::ByText);
    part.tables.push(Table {
        name: LEFT_OUT.to_owned(),
        title: "Left out by the models".to_owned(),
        caption:
            "Candidates that were not measured, being predicted to take more than five times as \
             long as the fastest."
                .to_owned(),
        columns: ["operation", "ranks", "bytes", "candidates", "left out"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    });
    part.notes = grid.notes(setting);
    let steps = grid.steps(setting, measure);
    Experiment::new(part, steps).concluding(choice::fill_maps)
}

fn measure(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    budget: TimeBudget,
    _: (usize, usize),
) -> Result<Vec<Finding>, Error> {
    let all = collective.plans(&segments());
    let (plans, left_out) = keep(here, collective, all);
    let compared = settle(
        here.world,
        here.shape.shared_cores,
        collective,
        &plans,
        &Choice::of(Algorithm::Join),
        budget,
    )?;
    let figure = figure(collective.operation, collective.ranks);
    let point = |microseconds: &[f64]| Point::of(collective.bytes as f64, microseconds);
    let mut found: Vec<Finding> = compared
        .timed
        .iter()
        .map(|timed| {
            Finding::measured(&figure, &timed.plan.to_string(), point(&timed.microseconds))
        })
        .collect();
    if !left_out.is_empty() {
        let names = left_out.iter().map(Choice::to_string).collect::<Vec<_>>().join(", ");
        let numbers = [
            f64::from(collective.ranks),
            collective.bytes as f64,
            (plans.len() + left_out.len()) as f64,
        ];
        let row =
            std::iter::once(collective.operation.name().into()).chain(numbers.map(Into::into));
        found.push(Finding::row(LEFT_OUT, row.chain([names.into()])));
    }
    Ok(found)
}

/// Plans that are measured, and those that models are sure about. Every rank reads the same file
/// and comes to the same answer.
fn keep(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    all: Vec<Choice>,
) -> (Vec<Choice>, Vec<Choice>) {
    // The models are about ranks that have a core each.
    let costs = models::costs(here).filter(|_| !here.shape.is_crowded());
    let Some((costs, _)) = costs else { return (all, Vec::new()) };
    let CollectiveCall { operation, ranks, bytes, .. } = *collective;
    let price = |plan: &Choice| match plan.algorithm {
        Algorithm::Join => None,
        _ => costs.predict(operation, plan, ranks, bytes),
    };
    let least = all.iter().filter_map(price).fold(f64::INFINITY, f64::min);
    all.into_iter().partition(|plan| price(plan).is_none_or(|price| price <= SURE * least))
}
