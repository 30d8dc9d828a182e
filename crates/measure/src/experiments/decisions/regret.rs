//! Time lost by the choices of the decision table.

use super::candidates::{self, Extent};
use super::errors;
use super::grid::{FILE, Grid, figure, map_of, points, segments};
use crate::experiments::algorithms::{CollectiveCall, settle};
use crate::harness::timer::Budget;
use crate::harness::{Error, Experiment, Finding, Setting, StepContext};
use crate::results::{Colour, Map, Part, Square, Table, Value};
use collectives::Choice;
use models::decision::rules::MachineClass;
use models::decision::{DecisionTable, Origin, decide};
use models::statistics::percentile;
use tradewind::CallForm;

pub(super) const SUMMARY: &str = "summary";
/// Names of maps, by what chooses.
pub(super) const MODELS: &str = "models";
pub(super) const TABLE: &str = "table";
/// Sizes between those that the table is made from.
const SIZES: [u64; 7] = [24, 3000, 96 << 10, 192, 1000, 24 << 10, 768 << 10];

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let mut grid = Grid::of(setting, &SIZES);
    grid.forms.retain(|form| *form == CallForm::Blocking);
    let mut part = Part::new("regret", "What choices lose");
    part.about = "All candidates of each operation, number of ranks and size take turns, at sizes \
                  that the decision table was not made from and in jobs of their own. Those within \
                  30 % of the fastest, and those that the models and the table choose, do so again \
                  for longer; regret is the chosen one's median then over that of the best. Models \
                  are those of machine.json alone, without a stopwatch; their errors are those at \
                  sizes that nothing was fitted to, γ of the all-to-all included."
        .to_owned();
    let caption = "Time of the chosen algorithm over the best one measured.";
    for (by, title) in [(MODELS, "Regret of the models"), (TABLE, "Regret of the table")] {
        part.maps.extend(grid.maps(setting, by, title, caption, Colour::ByRatio));
    }
    part.figures = grid.figures(setting);
    part.tables.push(outline("ranks"));
    part.tables.push(errors::outline());
    part.notes = grid.notes(setting);
    let steps = grid.steps(setting, measure);
    Experiment::new(part, steps).concluding(conclude)
}

fn measure(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    budget: Budget,
    (column, row): (usize, usize),
) -> Result<Vec<Finding>, Error> {
    let candidates = candidates::of(here, collective, Extent::ModelsOnly)?;
    let table =
        here.directory.and_then(|directory| DecisionTable::read(&directory.join(FILE)).ok());
    let class = MachineClass::of(collective.ranks, here.shape.shared_cores);
    let decision = decide(table.as_ref(), &collective.query(), class);
    let by_table =
        if matches!(decision.origin, Origin::Table { .. }) { "table" } else { "built-in rules" };
    let by_models = candidates.predicted.first().map(|(plan, _)| (MODELS, "models", *plan));
    let chosen: Vec<(&str, &str, Choice)> =
        by_models.into_iter().chain([(TABLE, by_table, decision.plan)]).collect();
    let mut plans = collective.plans(&segments());
    for (.., plan) in &chosen {
        // A built-in rule may select a plan that cannot be called here.
        if !plans.contains(plan) && collective.admits(plan) {
            plans.push(*plan);
        }
    }
    let favourites: Vec<Choice> = chosen.iter().map(|(.., plan)| *plan).collect();
    let compared = settle(here, collective, &plans, &favourites, budget)?;
    let times: Vec<(Choice, f64)> =
        compared.iter().filter_map(|row| Some((row.algorithm?, row.median()))).collect();
    let cells = chosen.iter().filter_map(|(map, by, plan)| {
        let (regret, detail) = regret(plan, by, &times)?;
        let cell =
            Square { column, row, text: format!("{regret:.2}"), value: Some(regret), detail };
        Some(Finding::Cell { map: map_of(map, collective.ranks), cell })
    });
    let figure = figure(collective.operation, collective.form, collective.ranks);
    let points = points(&figure, collective.bytes, &candidates.predicted, &compared);
    Ok(cells.chain(points).collect())
}

/// The table of a summary, without rows: one for each choice and value of the second column.
pub(super) fn outline(second: &str) -> Table {
    Table {
        name: SUMMARY.to_owned(),
        title: "Regret".to_owned(),
        caption: "Over all operations and sizes.".to_owned(),
        columns: [
            "choice",
            second,
            "median",
            "90th percentile",
            "worst",
            "where it is worst",
            "cells",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: Vec::new(),
    }
}

/// The time of the chosen plan over that of the fastest, and both in words.
fn regret(chosen: &Choice, by: &str, times: &[(Choice, f64)]) -> Option<(f64, String)> {
    let (best, least) = times.iter().min_by(|left, right| left.1.total_cmp(&right.1))?;
    let (_, time) = times.iter().find(|(plan, _)| plan == chosen)?;
    let detail = format!("{chosen} by the {by}: {time:.3} µs; best: {best}, {least:.3} µs");
    Some((time / least.max(1e-3), detail))
}

/// The middle and the worst of each map, and of all, and the errors of the models.
fn conclude(part: &mut Part) -> Result<(), Error> {
    errors::conclude(part)?;
    let mut rows = Vec::new();
    for choice in [MODELS, TABLE] {
        let mut everywhere = Vec::new();
        let of_choice = |map: &&Map| map.name.starts_with(choice);
        for map in part.maps.iter().filter(of_choice) {
            let name = |names: &[String], at: usize| names.get(at).cloned().unwrap_or_default();
            let found = map.cells.iter().filter_map(|cell| {
                let place = format!(
                    "{}, {} bytes",
                    name(&map.rows.names, cell.row),
                    name(&map.columns.names, cell.column)
                );
                Some((cell.value?, format!("{place}: {}", cell.detail)))
            });
            let found: Vec<(f64, String)> = found.collect();
            let ranks = map.name.rsplit('-').next().unwrap_or_default();
            rows.extend(summary(choice, ranks, &found));
            everywhere.extend(found);
        }
        if part.maps.len() > 2 {
            rows.extend(summary(choice, "all", &everywhere));
        }
    }
    part.replace_rows(SUMMARY, rows);
    Ok(())
}

/// The row of a choice in the summary.
pub(super) fn summary(choice: &str, ranks: &str, found: &[(f64, String)]) -> Option<Vec<Value>> {
    let (worst, place) = found.iter().max_by(|left, right| left.0.total_cmp(&right.0))?;
    let mut values: Vec<f64> = found.iter().map(|(value, _)| *value).collect();
    values.sort_by(f64::total_cmp);
    Some(vec![
        choice.into(),
        ranks.into(),
        percentile(&values, 0.5).into(),
        percentile(&values, 0.9).into(),
        (*worst).into(),
        place.as_str().into(),
        (found.len() as f64).into(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::Algorithm;

    #[test]
    fn regret_is_the_chosen_time_over_the_least() {
        let plans = [Algorithm::Flat, Algorithm::Join, Algorithm::Chain].map(Choice::of);
        let times: Vec<(Choice, f64)> = plans.into_iter().zip([3.0, 2.0, 4.0]).collect();
        let of = |chosen: &Choice| regret(chosen, "table", &times).map(|(regret, _)| regret);
        assert_eq!(plans.each_ref().map(of), [Some(1.5), Some(1.0), Some(2.0)]);
        assert_eq!(of(&Choice::of(Algorithm::Ring)), None);
        let words = regret(&plans[0], "table", &times).map(|(_, words)| words);
        assert_eq!(words.as_deref(), Some("flat by the table: 3.000 µs; best: join, 2.000 µs"));
    }
}
