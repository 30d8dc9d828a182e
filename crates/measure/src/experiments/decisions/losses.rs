//! Time lost by choices between nodes: the jobs of all engines together.

use super::purpose::Purpose;
use super::regret::{MODELS, SUMMARY, TABLE, outline, summary};
use super::times::{measured_between_nodes, shapes_of};
use crate::results::{Categories, Colour, Map, Part, Square};
use collectives::{Choice, Collective};
use models::builtin;
use models::decision::{DecisionTable, Measured, Query};
use models::machine_file::Engine;
use models::prediction::{Models, USUALLY_HELD};
use tradewind::CallForm;

/// Name of the choice by built-in parameters, as without a table.
const BUILT_IN: &str = "built-in";
/// Name of the row that compares a table's choices with those.
const AFTER_BEFORE: &str = "table / built-in";

/// Name of the part.
pub const PART: &str = "regret-between-nodes";

/// A plan with its engine.
type EnginePlan = (Option<Engine>, Choice);
/// Name of the models or of the table, and the plan that it chooses for a call.
type Chooser<'a> = (&'a str, &'a dyn Fn(&Query) -> Option<EnginePlan>);

/// Ratios of times in the parts of [`Purpose::Check`]: of the plan that the built-in parameters, the
/// models and the table each choose, to the best plan on any engine. Calls of which the chosen plan was
/// not timed are left out.
pub fn between_nodes(
    parts: &[(Part, Engine)],
    of_table: &Models,
    table: Option<&DecisionTable>,
) -> Part {
    let mut part = Part::new(PART, "What choices between nodes lose");
    part.about =
        "Time of the chosen plan, on the chosen engine, over that of the best plan on any \
                  engine, at sizes that the decision table was not made from and in jobs of their \
                  own. Models are those that the table is made from, with their corrections, without \
                  the candidates that were timed; plans with equal graphs have one time. Built-in \
                  is what runs without a table. The last rows have the time of the table's choice \
                  over that of the built-in one, of the same measurement."
            .to_owned();
    part.complete = parts.iter().all(|(part, _)| part.complete);
    part.tables.push(outline("form of the call"));
    let measured: Vec<Engine> = parts.iter().map(|(_, engine)| *engine).collect();
    // Only the engines with a part here can be chosen.
    let of_job = |models: &Models| {
        models.clone().only(|engine| engine == Engine::Direct || measured.contains(&engine))
    };
    let models = of_job(of_table);
    let built_in = of_job(builtin::models()).with_connected_ranks(USUALLY_HELD);
    let by =
        |models: &Models, query: &Query| models.choose(query).map(|one| (one.engine, one.plan));
    let choosers: [Chooser<'_>; 3] = [
        (BUILT_IN, &|query| by(&built_in, query)),
        (MODELS, &|query| by(&models, query)),
        (TABLE, &|query| {
            let range = table?.look_up(query).ok()?.range;
            Some((range.engine, range.plan))
        }),
    ];
    let mut rows = Vec::new();
    for (name, choice) in choosers {
        for form in CallForm::ALL.iter().copied() {
            let map = map_of(parts, &models, (name, choice), form);
            let found: Vec<(f64, String)> = map
                .cells
                .iter()
                .filter_map(|cell| Some((cell.value?, cell.detail.clone())))
                .collect();
            rows.extend(summary(name, form.name(), &found));
            part.maps.push(map);
        }
    }
    for form in CallForm::ALL.iter().copied() {
        let of = |name: &str| {
            let name = format!("{name}-{form}");
            part.maps.iter().find(|map| map.name == name)
        };
        if let (Some(after), Some(before)) = (of(TABLE), of(BUILT_IN)) {
            rows.extend(summary(AFTER_BEFORE, form.name(), &ratios(after, before)));
        }
    }
    part.replace_rows(SUMMARY, rows);
    part
}

/// Of each cell that both maps have, the value of the first over that of the second, with the words of
/// both.
fn ratios(first: &Map, second: &Map) -> Vec<(f64, String)> {
    let ratio = |one: &Square| {
        let same = |other: &&Square| (one.column, one.row) == (other.column, other.row);
        let other = second.cells.iter().find(same)?;
        let value = one.value? / other.value?;
        Some((value, format!("{}; before: {}", one.detail, other.detail)))
    };
    first.cells.iter().filter_map(ratio).collect()
}

fn map_of(
    parts: &[(Part, Engine)],
    models: &Models,
    (name, choice): Chooser<'_>,
    form: CallForm,
) -> Map {
    let mut columns: Vec<u64> = [0].into_iter().chain(Purpose::Check.sizes().to_vec()).collect();
    columns.sort_unstable();
    let names = |label: &str, names: Vec<String>| Categories { label: label.to_owned(), names };
    let mut cells = Vec::new();
    for shape in shapes_of(parts).into_iter().filter(|shape| shape.1 == form) {
        let (operation, _, ranks, ranks_per_node) = shape;
        for (bytes, plans) in measured_between_nodes(parts, models, shape) {
            let query = Query { operation, form, ranks, ranks_per_node, bytes };
            let column = columns.iter().position(|size| *size == bytes);
            let row = Collective::ALL.iter().position(|one| *one == operation);
            let lost = choice(&query).and_then(|way| lost(&query, way, &plans));
            if let (Some(column), Some(row), Some((value, detail))) = (column, row, lost) {
                let text = format!("{value:.2}");
                cells.push(Square { column, row, text, value: Some(value), detail });
            }
        }
    }
    Map {
        name: format!("{name}-{form}"),
        title: format!("Regret of the {name}, {form} calls"),
        caption: "Time of the chosen plan over the best one measured.".to_owned(),
        columns: names("bytes", columns.iter().map(u64::to_string).collect()),
        rows: names("operation", Collective::ALL.iter().map(Collective::to_string).collect()),
        colour: Colour::ByRatio,
        cells,
    }
}

/// The time of a way over that of the best, and both in words; `None` if it was not timed.
fn lost(query: &Query, (engine, plan): EnginePlan, plans: &[Measured]) -> Option<(f64, String)> {
    let best = plans.iter().min_by(|one, other| one.median.total_cmp(&other.median))?;
    let same = |one: &&Measured| one.plan == plan && (engine.is_none() || one.engine == engine);
    let chosen = plans.iter().find(same)?;
    let words = |one: &Measured| {
        let engine = one.engine.map(|engine| format!(" on {engine}")).unwrap_or_default();
        format!("{}{engine}, {:.1} µs", one.plan, one.median)
    };
    let detail = format!("{query}: {}; best: {}", words(chosen), words(best));
    Some((chosen.median / best.median.max(1e-3), detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::Algorithm;

    #[test]
    fn what_is_lost_counts_plans_on_all_engines() {
        let query = Query {
            operation: Collective::Bcast,
            form: CallForm::Nonblocking,
            ranks: 4,
            ranks_per_node: 2,
            bytes: 24,
        };
        let plan = Choice::of(Algorithm::Flat);
        let measured = |engine, median| Measured {
            plan,
            engine: Some(engine),
            median,
            quartiles: [median; 2],
        };
        let plans = [measured(Engine::Agent, 30.0), measured(Engine::Kernel, 20.0)];
        let of = |engine| lost(&query, (engine, plan), &plans).map(|(lost, _)| lost);
        assert_eq!((of(Some(Engine::Agent)), of(Some(Engine::Kernel))), (Some(1.5), Some(1.0)));
        assert_eq!(lost(&query, (None, Choice::of(Algorithm::Chain)), &plans), None);
    }

    #[test]
    fn cells_of_two_maps_are_compared_where_both_have_one() {
        let map = |cells: &[(usize, f64)]| Map {
            name: String::new(),
            title: String::new(),
            caption: String::new(),
            columns: Categories { label: String::new(), names: Vec::new() },
            rows: Categories { label: String::new(), names: Vec::new() },
            colour: Colour::ByRatio,
            cells: cells
                .iter()
                .map(|(column, value)| Square {
                    column: *column,
                    row: 0,
                    text: String::new(),
                    value: Some(*value),
                    detail: value.to_string(),
                })
                .collect(),
        };
        let found = ratios(&map(&[(0, 1.5), (1, 1.0)]), &map(&[(2, 4.0), (0, 3.0)]));
        assert_eq!(found, [(0.5, "1.5; before: 3".to_owned())]);
    }
}
