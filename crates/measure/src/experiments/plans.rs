//! Times of plans beside their predictions, and figures and maps that show them.

use crate::results::{Axis, Categories, Colour, Figure, Map, Point, Role, Square};
use crate::rows::{Quantity, Row, Run};
use collectives::{Choice, Collective};
use models::decision::Query;
use models::machine_file::Engine;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A plan of a call, in an experiment with several engines on one of them.
pub(super) struct PlanTimes<'r> {
    pub(super) query: Query,
    pub(super) plan: Choice,
    pub(super) engine: Option<Engine>,
    /// The fastest visit: what comes between visits makes a machine slower and never faster.
    pub(super) timed: Option<&'r Row>,
    pub(super) predicted: Option<&'r Row>,
    /// True if ranks share cores.
    is_crowded: bool,
}

/// The plans of a run, in the order in which they were timed or predicted first.
pub(super) fn plans(run: &Run, has_engines: bool) -> Vec<PlanTimes<'_>> {
    let mut plans: Vec<PlanTimes<'_>> = Vec::new();
    let mut places: HashMap<(Query, Choice, Option<Engine>), usize> = HashMap::new();
    for row in run.rows() {
        let (Some(query), Some(plan)) = (row.query(), row.algorithm) else { continue };
        let engine = row.engine.filter(|_| has_engines);
        let is_crowded = row.is_crowded();
        let place = *places.entry((query, plan, engine)).or_insert(plans.len());
        if place == plans.len() {
            let predicted = None;
            plans.push(PlanTimes { query, plan, engine, timed: None, predicted, is_crowded });
        }
        let known = &mut plans[place];
        if row.quantity == Quantity::Predicted {
            known.predicted = Some(row);
        } else if known.timed.is_none_or(|timed| row.median() < timed.median()) {
            known.timed = Some(row);
        }
    }
    plans
}

impl PlanTimes<'_> {
    /// Relative error of a prediction in microseconds.
    pub(super) fn error(&self, predicted: f64) -> Option<f64> {
        Some((predicted / self.timed?.median().max(1e-3) - 1.0).abs())
    }

    fn place_of_figure(&self) -> (u32, Option<Engine>, Query) {
        (self.query.ranks, self.engine, Query { bytes: 0, ..self.query })
    }

    fn empty_figure(&self) -> Figure {
        let Query { operation, form, ranks, ranks_per_node, .. } = self.query;
        let is_alone = self.query.nodes() == 1;
        let nodes = if is_alone { String::new() } else { format!("x{ranks_per_node}") };
        let last = self.engine.map_or(form.name(), Engine::name);
        let name = format!("{}-{ranks}{nodes}-{last}", operation.name().replace('_', "-"));
        let crowd = if self.is_crowded { ", more ranks than cores" } else { "" };
        let engine = self.engine.map(|engine| format!(", {engine} engine")).unwrap_or_default();
        let title = format!("{}{crowd}{engine}", words(&self.query));
        let y = Axis::microseconds("time").logarithmic();
        Figure::new(&name, &title, Axis::bytes("bytes").logarithmic(), y)
    }
}

/// A call of any size in words.
pub(super) fn words(query: &Query) -> String {
    let Query { operation, form, ranks, ranks_per_node, .. } = query;
    let is_alone = query.nodes() == 1;
    let nodes = if is_alone { String::new() } else { format!(", {ranks_per_node} a node") };
    format!("{form} {operation}, {ranks} ranks{nodes}")
}

/// Figures of plans, one for each call of any size.
#[derive(Default)]
pub(super) struct PlanFigures(BTreeMap<(u32, Option<Engine>, Query), Figure>);

impl PlanFigures {
    /// Adds a time of a plan.
    pub(super) fn add(&mut self, of: &PlanTimes<'_>, curve: &str, role: Role, point: Point) {
        let figure = self.0.entry(of.place_of_figure()).or_insert_with(|| of.empty_figure());
        figure.add(curve, role, point);
    }

    /// Adds the times of plans, and their predictions as curves with this end of their name.
    pub(super) fn add_all<'p>(
        &mut self,
        plans: impl IntoIterator<Item = &'p PlanTimes<'p>>,
        end: &str,
    ) {
        for one in plans {
            let x = one.query.bytes as f64;
            if let Some(row) = one.timed {
                let point = Point::of(x, &row.times);
                self.add(one, &one.plan.to_string(), Role::Measured, point);
            }
            if let Some(row) = one.predicted {
                let point = Point::exact(x, row.median());
                self.add(one, &format!("{}, {end}", one.plan), Role::Predicted, point);
            }
        }
    }

    /// The figures in the order of ranks, engines and calls.
    pub(super) fn all(self) -> Vec<Figure> {
        self.0.into_values().collect()
    }
}

/// A value of a call.
pub(super) struct CallValue {
    pub(super) query: Query,
    pub(super) text: String,
    pub(super) value: Option<f64>,
    pub(super) detail: String,
}

/// A map of values of some of these calls, all of which have a place in it.
pub(super) fn map(
    (name, title, caption): (String, String, &str),
    colour: Colour,
    calls: &BTreeSet<Query>,
    values: impl IntoIterator<Item = CallValue>,
) -> Map {
    let columns: BTreeSet<u64> = calls.iter().map(|call| call.bytes).collect();
    let rows: BTreeSet<Collective> = calls.iter().map(|call| call.operation).collect();
    let cell = |CallValue { query, text, value, detail }: CallValue| {
        let column = columns.range(..query.bytes).count();
        let row = rows.range(..query.operation).count();
        Square { column, row, text, value, detail }
    };
    let cells = values.into_iter().map(cell).collect();
    let names = |label: &str, names: Vec<String>| Categories { label: label.to_owned(), names };
    Map {
        name,
        title,
        caption: caption.to_owned(),
        columns: names("bytes", columns.iter().map(u64::to_string).collect()),
        rows: names("operation", rows.iter().map(Collective::to_string).collect()),
        colour,
        cells,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::What;
    use collectives::Algorithm;
    use models::decision::CallForm;

    #[test]
    fn the_faster_visit_counts() {
        let row = |bytes, time: f64| {
            let row = Row::trial(What::Collective(Collective::Allgather), 2, bytes, &[time]);
            row.by(Engine::Peers, CallForm::Blocking, Some(Choice::of(Algorithm::Ring)))
        };
        let run = Run::of([row(8, 3.0), row(64, 2.0), row(8, 1.0), row(64, 2.5)]);
        let plans = plans(&run, true);
        let kept: Vec<_> =
            plans.iter().map(|one| (one.query.bytes, one.timed.map(Row::median))).collect();
        assert_eq!(kept, [(8, Some(1.0)), (64, Some(2.0))]);
    }
}
