//! Time lost by choices: the time of the chosen plan over that of the best one.

use super::purpose::{Purpose, between_nodes};
use super::timed::{rows, timed};
use crate::experiments::plans::{CallValue, map};
use crate::results::{Colour, Map, Part, Table, Value, values};
use crate::rows::{Chooser, Measurements, Run};
use collectives::Choice;
use models::decision::{CallForm, Measured, Query};
use models::machine_file::Engine;
use models::statistics::percentile;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Name of the row that compares a table's choices with the built-in ones.
const TABLE_OVER_BUILT_IN: &str = "table / built-in";

/// Losses of choices between nodes: the jobs of all engines together; `None` if none was measured.
pub fn losses_between_nodes(measured: &Measurements) -> Option<Part> {
    let runs = between_nodes(measured, &[Purpose::Check]);
    let first = runs.first()?;
    let mut part = Part::new("regret-between-nodes", "What choices between nodes lose");
    part.about =
        "Time of the chosen plan, on the chosen engine, over that of the best plan on any \
                  engine, at sizes that the decision table was not made from and in jobs of their \
                  own. Models are those that the table is made from, with their corrections, without \
                  the candidates that were timed; plans with equal graphs have one time. Built-in \
                  is what runs without a table. The last rows have the time of the table's choice \
                  over that of the built-in one, of the same measurement."
            .to_owned();
    part.complete = runs.iter().all(|run| run.is_complete());
    part.setting.clone_from(&first.setting);
    add_losses(&mut part, &runs);
    Some(part)
}

/// A group of calls with one summary of losses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// On one node.
    Ranks(u32),
    /// Between nodes.
    Form(CallForm),
}

impl Group {
    fn of(query: &Query) -> Self {
        if query.nodes() == 1 { Group::Ranks(query.ranks) } else { Group::Form(query.form) }
    }

    fn name(self) -> String {
        match self {
            Group::Ranks(ranks) => ranks.to_string(),
            Group::Form(form) => form.to_string(),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if matches!(self, Group::Ranks(_)) { "ranks" } else { "calls" };
        write!(formatter, "{} {what}", self.name())
    }
}

/// Losses by calls, each with its words.
type Losses = BTreeMap<Query, (f64, String)>;

/// Adds the losses of these runs to a part: maps, and a table of their middle and worst. A call is
/// left out if its chosen plan was not timed.
pub(super) fn add_losses(part: &mut Part, runs: &[&Run]) {
    let found = losses(runs);
    let calls: BTreeSet<Query> = found.values().flat_map(BTreeMap::keys).copied().collect();
    let groups: BTreeSet<Group> = calls.iter().map(Group::of).collect();
    for (chooser, losses) in &found {
        for group in &groups {
            part.maps.extend(map_of(*chooser, *group, &calls, losses));
        }
    }
    let empty = Losses::new();
    let of = |chooser| found.get(&chooser).unwrap_or(&empty);
    let compared = ratios(of(Chooser::Table), of(Chooser::BuiltIn));
    let named = found.iter().map(|(chooser, losses)| (chooser.name(), losses));
    let mut rows = Vec::new();
    for (name, losses) in named.chain([(TABLE_OVER_BUILT_IN, &compared)]) {
        for group in &groups {
            let of_group = losses.iter().filter(|(query, _)| Group::of(query) == *group);
            rows.extend(summary(name, &group.to_string(), of_group));
        }
        if groups.len() > 1 {
            rows.extend(summary(name, "all", losses.iter()));
        }
    }
    part.tables.push(Table::new(
        ["summary", "Regret"],
        "choice | of | median | 90th percentile | worst | where it is worst | cells",
        "Over all operations and sizes.",
        rows,
    ));
}

/// Losses by what chooses.
fn losses(runs: &[&Run]) -> BTreeMap<Chooser, Losses> {
    let timed = timed(runs);
    // The last choice for a call counts: a table may have changed since an earlier one.
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| run.id);
    let mut found: BTreeMap<Chooser, Losses> = BTreeMap::new();
    for (query, engine, row) in rows(&runs) {
        let Some(plan) = row.algorithm else { continue };
        let plans = timed.get(&query).map(Vec::as_slice).unwrap_or_default();
        if let Some(loss) = loss((engine, plan), plans) {
            for chooser in &row.chosen_by {
                found.entry(*chooser).or_default().insert(query, loss.clone());
            }
        }
    }
    found
}

/// The time of a plan over that of the best, and both in words; `None` if it was not timed.
fn loss((engine, plan): (Option<Engine>, Choice), plans: &[Measured]) -> Option<(f64, String)> {
    let best = plans.iter().min_by(|one, other| one.median.total_cmp(&other.median))?;
    let chosen = plans.iter().find(|one| (one.engine, one.plan) == (engine, plan))?;
    let words = |one: &Measured| {
        let engine = one.engine.map(|engine| format!(" on {engine}")).unwrap_or_default();
        format!("{}{engine}, {:.3} µs", one.plan, one.median)
    };
    let detail = format!("{}; best: {}", words(chosen), words(best));
    Some((chosen.median / best.median.max(1e-3), detail))
}

/// Losses over others of the same calls.
fn ratios(losses: &Losses, others: &Losses) -> Losses {
    let ratio = |(query, (loss, words)): (&Query, &(f64, String))| {
        let (other, before) = others.get(query)?;
        Some((*query, (loss / other, format!("{words}; before: {before}"))))
    };
    losses.iter().filter_map(ratio).collect()
}

fn map_of(chooser: Chooser, group: Group, calls: &BTreeSet<Query>, losses: &Losses) -> Option<Map> {
    let of_group = losses.iter().filter(|(query, _)| Group::of(query) == group);
    let value = |(query, (loss, detail)): (&Query, &(f64, String))| CallValue {
        query: *query,
        text: format!("{loss:.2}"),
        value: Some(*loss),
        detail: format!("{query}: {detail}"),
    };
    let caption = "Time of the chosen algorithm over the best one measured.";
    let name = format!("{chooser}-{}", group.name());
    let title = match chooser {
        Chooser::BuiltIn => format!("Regret of the built-in choice, {group}"),
        Chooser::Models | Chooser::Table => format!("Regret of the {chooser}, {group}"),
    };
    let map = map((name, title, caption), Colour::ByRatio, calls, of_group.map(value));
    (!map.cells.is_empty()).then_some(map)
}

/// The row of a choice in the summary.
fn summary<'l>(
    choice: &str,
    of: &str,
    losses: impl Iterator<Item = (&'l Query, &'l (f64, String))>,
) -> Option<Vec<Value>> {
    let mut losses: Vec<(&Query, &(f64, String))> = losses.collect();
    losses.sort_by(|(_, one), (_, other)| one.0.total_cmp(&other.0));
    let (query, (worst, words)) = losses.last()?;
    let values: Vec<f64> = losses.iter().map(|(_, (loss, _))| *loss).collect();
    let [median, p90] = [0.5, 0.9].map(|share| percentile(&values, share));
    let place = format!("{query}: {words}");
    Some(values![choice, of, median, p90, *worst, place, values.len()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::decisions::trial::trial;
    use crate::rows::Row;
    use collectives::{Algorithm, Collective};

    const QUERY: Query = Query {
        operation: Collective::Bcast,
        form: CallForm::Nonblocking,
        ranks: 4,
        ranks_per_node: 2,
        bytes: 24,
    };

    fn row(
        query: Query,
        (algorithm, engine): (Algorithm, Engine),
        time: f64,
        by: &[Chooser],
    ) -> Row {
        let row = trial(&query, &Choice::of(algorithm), time);
        Row { engine: Some(engine), chosen_by: by.to_vec(), ..row }
    }

    #[test]
    fn losses_count_plans_on_all_engines() {
        use Algorithm as A;
        let by = [Chooser::Models, Chooser::BuiltIn];
        let agent = Run::of([
            row(QUERY, (A::Chain, Engine::Agent), 30.0, &by),
            row(QUERY, (A::Binomial, Engine::Agent), 25.0, &[]),
        ]);
        let kernel = Run::of([row(QUERY, (A::Chain, Engine::Kernel), 20.0, &[Chooser::Table])]);
        let found = losses(&[&agent, &kernel]);
        let ratios: Vec<f64> = Chooser::ALL.iter().map(|by| found[by][&QUERY].0).collect();
        assert_eq!(ratios, [1.5, 1.5, 1.0], "in the order of the choosers");
        let words = &found[&Chooser::Models][&QUERY].1;
        assert!(words.ends_with("chain on agent, 30.000 µs; best: chain on kernel, 20.000 µs"));
    }

    #[test]
    fn losses_of_a_table_are_compared_where_both_choices_were_timed() {
        let query = |bytes| Query { ranks_per_node: 4, bytes, ..QUERY };
        let flat = |bytes, time, by: &[Chooser]| {
            row(query(bytes), (Algorithm::Flat, Engine::Peers), time, by)
        };
        let join = |bytes, time, by: &[Chooser]| {
            row(query(bytes), (Algorithm::Join, Engine::Peers), time, by)
        };
        let run = Run::of([
            flat(24, 3.0, &[Chooser::BuiltIn]),
            join(24, 2.0, &[Chooser::Table]),
            flat(192, 8.0, &[Chooser::Table]),
        ]);
        let mut part = Part::new("regret", "");
        add_losses(&mut part, &[&run]);
        let names: Vec<&str> = part.maps.iter().map(|map| map.name.as_str()).collect();
        assert_eq!(names, ["built-in-4", "table-4"]);
        let rows: Vec<(&Value, &Value)> =
            part.tables[0].rows.iter().map(|row| (&row[0], &row[2])).collect();
        let expected: [(Value, Value); 3] = [
            ("built-in".into(), 1.5.into()),
            ("table".into(), 1.0.into()),
            (TABLE_OVER_BUILT_IN.into(), (1.0 / 1.5).into()),
        ];
        assert_eq!(rows, expected.each_ref().map(|(choice, value)| (choice, value)));
    }
}
