//! Time lost by the choices of the decision table.

use super::grid::{FILE, Grid, map_of, segments};
use crate::experiments::algorithms::{CollectiveCall, TimeBudget, settle};
use crate::harness::{Error, Experiment, Finding, Setting, StepContext};
use crate::results::{Colour, Part, Square, Table, Value};
use collectives::Choice;
use models::decision::{DecisionTable, Origin, Query, decide};
use models::statistics::median;

const SUMMARY: &str = "summary";
/// Sizes between those that the table is made from.
const SIZES: [u64; 10] = [3, 192, 24 << 10, 24, 1000, 3000, 6000, 96 << 10, 384 << 10, 768 << 10];

/// The experiment.
pub fn experiment(setting: &Setting) -> Experiment {
    let mut grid = Grid::of(setting, &SIZES);
    grid.bytes.sort_unstable();
    let mut part = Part::new("regret", "What choices lose");
    part.about = "All candidates of each operation, number of ranks and size take turns, at sizes \
                  that the decision table was not made from and in jobs of their own. Those within \
                  30 % of the fastest, and the one that the table chooses, do so again for longer; \
                  regret is the chosen one's median then over that of the best."
        .to_owned();
    part.maps = grid.maps(
        setting,
        "Regret",
        "Time of the chosen algorithm over the best one measured.",
        Colour::ByRatio,
    );
    part.tables.push(Table {
        name: SUMMARY.to_owned(),
        title: "Regret".to_owned(),
        caption: "Over all operations and sizes.".to_owned(),
        columns: ["ranks", "median", "worst", "where it is worst", "cells"]
            .map(str::to_owned)
            .to_vec(),
        rows: Vec::new(),
    });
    part.notes = grid.notes(setting);
    let steps = grid.steps(setting, measure);
    Experiment::new(part, steps).concluding(conclude)
}

fn measure(
    here: &StepContext<'_>,
    collective: &CollectiveCall,
    budget: TimeBudget,
    (column, row): (usize, usize),
) -> Result<Vec<Finding>, Error> {
    let table =
        here.directory.and_then(|directory| DecisionTable::read(&directory.join(FILE)).ok());
    let CollectiveCall { operation, ranks, bytes, .. } = *collective;
    let decision =
        decide(table.as_ref(), &Query { operation, ranks, ranks_per_node: ranks, bytes });
    let mut plans = collective.plans(&segments());
    // A built-in rule may ask for what cannot be called here.
    let chosen = Some(decision.plan).filter(|plan| collective.admits(plan)).unwrap_or(plans[0]);
    if !plans.contains(&chosen) {
        plans.push(chosen);
    }
    let compared =
        settle(here.world, here.shape.shared_cores, collective, &plans, &chosen, budget)?;
    let times: Vec<(Choice, f64)> =
        compared.timed.iter().map(|timed| (timed.plan, timed.median())).collect();
    let by =
        if matches!(decision.origin, Origin::Table { .. }) { "table" } else { "built-in rules" };
    let Some((regret, detail)) = regret(&chosen, by, &times) else { return Ok(Vec::new()) };
    let cell = Square { column, row, text: format!("{regret:.2}"), value: Some(regret), detail };
    Ok(vec![Finding::Cell { map: map_of(ranks), cell }])
}

/// The time of the chosen plan over that of the fastest, and both in words.
fn regret(chosen: &Choice, by: &str, times: &[(Choice, f64)]) -> Option<(f64, String)> {
    let (best, least) = times.iter().min_by(|left, right| left.1.total_cmp(&right.1))?;
    let (_, time) = times.iter().find(|(plan, _)| plan == chosen)?;
    let detail = format!("{chosen} by the {by}: {time:.3} µs; best: {best}, {least:.3} µs");
    Some((time / least.max(1e-3), detail))
}

/// The middle and the worst of each map, and of all.
fn conclude(part: &mut Part) -> Result<(), Error> {
    let mut rows = Vec::new();
    let mut everywhere = Vec::new();
    for map in &part.maps {
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
        rows.extend(summary(map.name.trim_start_matches("ranks-"), &found));
        everywhere.extend(found);
    }
    if part.maps.len() > 1 {
        rows.extend(summary("all", &everywhere));
    }
    part.replace_rows(SUMMARY, rows);
    Ok(())
}

fn summary(ranks: &str, found: &[(f64, String)]) -> Option<Vec<Value>> {
    let (worst, place) = found.iter().max_by(|left, right| left.0.total_cmp(&right.0))?;
    let values: Vec<f64> = found.iter().map(|(value, _)| *value).collect();
    Some(vec![
        ranks.into(),
        median(&values).into(),
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
