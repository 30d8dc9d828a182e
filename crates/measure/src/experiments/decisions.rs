//! Which algorithm is best when: the decision table of a machine, and its regret.
//!
//! The models of `machine.json` predict every plan of a call, each with its best segment size or
//! degree. [`experiment`] times the candidates whose predictions lie within the models' own error
//! of the best, most used sizes first, until its time is over; [`table`] builds the table from the
//! models, [at the speed](at_speed) that the clock has found, and corrects it where the clock
//! disagrees.
//!
//! Between nodes the models are [corrected] first, by times of every plan at few sizes, and the
//! predictions of single plans by their own times ([`of_table`]).
//!
//! [`regret`] times all candidates at sizes that the table was not made from, in another job: how
//! long the choices of the models, and of the table, take over the best.

mod candidates;
mod disturbed;
mod errors;
mod grid;
mod losses;
pub mod nodes;
mod purpose;
mod regret;
mod rows;
mod speed;
mod times;

pub use candidates::of_table;
pub use grid::{EFFORT, FILE, MEASURE_ALL, MODELS_ONLY, RANKS, UNTIL};
pub use losses::{PART as LOSSES, between_nodes as losses};
pub use regret::experiment as regret;
pub use rows::{between_nodes, corrected, table};
pub use speed::at_speed;
pub use times::{parts_between_nodes, parts_of, timed_between_nodes};

use crate::experiments::algorithms::{CollectiveCall, settle};
use crate::harness::timer::Budget;
use crate::harness::{ATTEMPTS, Error, Experiment, Finding, QUICK_ATTEMPTS, Setting, StepContext};
use crate::results::{Colour, Part, Square};
use candidates::{Candidates, Extent};
use collectives::Choice;
use grid::{BY_CLOCK, BY_MODELS, Grid, SIZES, figure, map_of, points};
use tradewind::CallForm;

/// The experiment that a table is made from.
pub fn experiment(setting: &Setting) -> Experiment {
    let grid = Grid::of(setting, &SIZES);
    let mut part = Part::new("decisions", "Which algorithm is best when");
    part.about = "The models predict every plan of a call. Candidates whose predictions lie within \
                  the models' own error of the best take turns; those within 30 % of the fastest do \
                  so again for longer. The models' plan stays where it is as fast as the best, or \
                  where the models leave no doubt. A flat collective, which needs no schedule, also \
                  wins where it is within 20 % of the best and the middle halves of their \
                  repetitions overlap. Dashed are predictions."
        .to_owned();
    part.source = "Barchet-Estefanel, Mounié 2004, section 6".to_owned();
    part.figures = grid.figures(setting);
    let caption = "The fastest plan of blocking calls by the clock, where it was asked.";
    let by_clock = grid.maps(setting, BY_CLOCK, "By the clock", caption, Colour::ByText);
    let caption = "The models' choice for blocking calls.";
    let by_models = grid.maps(setting, BY_MODELS, "By the models", caption, Colour::ByText);
    // For each number of ranks the models' winners lie under the clock's.
    part.maps = by_clock.into_iter().zip(by_models).flat_map(|(one, other)| [one, other]).collect();
    part.tables.extend([errors::outline(), disturbed::outline()]);
    part.notes = grid.notes(setting);
    let extent = Extent::of(setting);
    let attempts = setting.choose(QUICK_ATTEMPTS, ATTEMPTS);
    let steps = grid.steps(setting, move |here, collective, budget, place| {
        measure(here, collective, budget, place, (extent, attempts))
    });
    Experiment::new(part, steps).concluding(errors::conclude)
}

fn measure(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    budget: Budget,
    place: (usize, usize),
    (extent, attempts): (Extent, u32),
) -> Result<Vec<Finding>, Error> {
    let Candidates { predicted, measured } = candidates::of(here, collective, extent)?;
    let figure = figure(collective.operation, collective.form, collective.ranks);
    let bytes = collective.bytes;
    let mut found = points(&figure, bytes, &predicted, &[]);
    let mut cell = |by: &str, plan: &Choice, detail: String| {
        if collective.form == CallForm::Blocking {
            let (column, row) = place;
            let text = plan.to_string();
            let cell = Square { column, row, text, value: None, detail };
            found.push(Finding::Cell { map: map_of(by, collective.ranks), cell });
        }
    };
    if let Some((plan, time)) = predicted.first() {
        let next = predicted.get(1);
        let next = next.map(|(plan, time)| format!("; next: {plan}, {time:.3} µs"));
        cell(
            BY_MODELS,
            plan,
            format!("{plan}: predicted {time:.3} µs{}", next.unwrap_or_default()),
        );
    }
    if measured.is_empty() {
        return Ok(found);
    }
    let favourites = predicted.first().map(|(plan, _)| *plan);
    let favourites = [favourites.unwrap_or(measured[0])];
    let (compared, doubt) = disturbed::compare(here, attempts, (&figure, bytes), || {
        settle(here, collective, &measured, &favourites, budget)
    })?;
    let mut times: Vec<(Choice, f64)> =
        compared.iter().filter_map(|row| Some((row.algorithm?, row.median()))).collect();
    times.sort_by(|left, right| left.1.total_cmp(&right.1));
    if let Some((plan, time)) = times.first() {
        let next = times.get(1);
        let next = next.map(|(plan, time)| format!("; next: {plan}, {time:.3} µs"));
        cell(BY_CLOCK, plan, format!("{plan}: measured {time:.3} µs{}", next.unwrap_or_default()));
    }
    found.extend(points(&figure, bytes, &[], &compared));
    found.extend(doubt);
    Ok(found)
}
