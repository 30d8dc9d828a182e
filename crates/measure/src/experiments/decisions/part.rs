//! Figures, maps and tables of a run.

use super::losses::add_losses;
use super::measure::experiment;
use super::purpose::Purpose;
use super::timed::disturbed;
use crate::experiments::entry::SuiteEntry;
use crate::experiments::plans::{CallValue, PlanFigures, PlanTimes, map, plans, words};
use crate::results::{Colour, Part, Table, values};
use crate::rows::{Chooser, Row, Run};
use collectives::{Algorithm, Choice, Collective, Levels};
use models::decision::{CallForm, Query};
use models::statistics::percentile;
use std::collections::{BTreeMap, BTreeSet};

const SOURCE: &str = "Barchet-Estefanel, Mounié 2004, section 6";

/// Times that correct the models between nodes.
pub const CALIBRATION: SuiteEntry = SuiteEntry {
    name: Purpose::Calibration.name(),
    title: "Times that the models are corrected by",
    about: "Every plan of a call between the nodes of a job takes its turn, in batches of calls back to \
            back. A few constants of the models are fitted to these times.",
    source: SOURCE,
    steps: |setting| experiment(Purpose::Calibration, setting),
    view: |run, part| view(Purpose::Calibration, run, part),
};

/// Times of the candidates of a decision table.
pub const DECISIONS: SuiteEntry = SuiteEntry {
    name: Purpose::Decision.name(),
    title: "Which algorithm is best",
    about: "The models predict every plan of a call. Candidates whose predictions lie within the models' own \
            error of the best take turns; those within 30 % of the fastest do so again for longer. The \
            models' plan stays where it is as fast as the best, or where the models leave no doubt. A flat \
            collective, which needs no schedule, also wins where it is within 20 % of the best and the \
            middle halves of their repetitions overlap. Dashed are predictions.",
    source: SOURCE,
    steps: |setting| experiment(Purpose::Decision, setting),
    view: |run, part| view(Purpose::Decision, run, part),
};

/// Losses of the choices of a decision table.
pub const REGRET: SuiteEntry = SuiteEntry {
    name: Purpose::Check.name(),
    title: "What choices lose",
    about: "All candidates of each operation, number of ranks and size take turns, at sizes that the decision \
            table was not made from and in jobs of their own. Those within 30 % of the fastest, and those \
            that the built-in rules, the models and the table choose, do so again for longer; regret is the \
            chosen one's median then over that of the best. Models are those of machine.json alone, without \
            a stopwatch; their errors are those at sizes that nothing was fitted to, γ of the all-to-all \
            included.",
    source: SOURCE,
    steps: |setting| experiment(Purpose::Check, setting),
    view: |run, part| view(Purpose::Check, run, part),
};

fn view(purpose: Purpose, run: &Run, part: &mut Part) {
    let is_between_nodes = run.rows().any(|row| row.nodes > 1);
    let plans = plans(run, false);
    let mut figures = PlanFigures::default();
    figures.add_all(&plans, "predicted");
    part.figures = figures.all();
    match purpose {
        Purpose::Decision if is_between_nodes => {
            "The models predict every plan of a call between the nodes of a job. Candidates whose \
             predictions lie within the models' own error of the best take turns, in batches of calls back \
             to back. Dashed are predictions."
                .clone_into(&mut part.about);
        }
        Purpose::Decision => add_winners(part, &plans),
        Purpose::Check if is_between_nodes => {
            "What choices are compared with".clone_into(&mut part.title);
            "Every plan of a call takes its turn, at sizes that neither the models nor the table were made \
             from. Dashed are predictions."
                .clone_into(&mut part.about);
        }
        Purpose::Check => add_losses(part, &[run]),
        Purpose::Calibration => {}
    }
    part.tables.extend([errors(&plans), comparisons(run)]);
}

/// Adds maps of the best plans of blocking calls: for each number of ranks those of the models lie
/// under those of the clock.
fn add_winners(part: &mut Part, plans: &[PlanTimes<'_>]) {
    let blocking = || plans.iter().filter(|one| one.query.form == CallForm::Blocking);
    let ranks: BTreeSet<u32> = blocking().map(|one| one.query.ranks).collect();
    for ranks in ranks {
        let mut of_ranks: BTreeMap<Query, Vec<&PlanTimes<'_>>> = BTreeMap::new();
        for one in blocking().filter(|one| one.query.ranks == ranks) {
            of_ranks.entry(one.query).or_default().push(one);
        }
        let calls: BTreeSet<Query> = of_ranks.keys().copied().collect();
        let mut add = |by: &str, caption: &str, winner: Winner| {
            let values = of_ranks.iter().filter_map(|(call, plans)| winner(call, plans));
            let words = (format!("{by}-{ranks}"), format!("By the {by}, {ranks} ranks"), caption);
            part.maps.push(map(words, Colour::ByText, &calls, values));
        };
        let caption = "The fastest plan of blocking calls by the clock, where it was asked.";
        add("clock", caption, fastest);
        add("models", "The models' choice for blocking calls.", chosen);
    }
}

/// The best plan of a call, of these.
type Winner = fn(&Query, &[&PlanTimes<'_>]) -> Option<CallValue>;

/// The fastest plan of a call by the clock.
fn fastest(query: &Query, plans: &[&PlanTimes<'_>]) -> Option<CallValue> {
    let timed = plans.iter().filter_map(|one| Some((one.plan, one.timed?.median())));
    let mut timed: Vec<(Choice, f64)> = timed.collect();
    timed.sort_by(|one, other| one.1.total_cmp(&other.1));
    winner(query, "measured", &timed)
}

/// The models' choice for a call. What they predict to be faster stands behind it.
fn chosen(query: &Query, plans: &[&PlanTimes<'_>]) -> Option<CallValue> {
    let mut rows: Vec<&Row> = plans.iter().filter_map(|one| one.predicted).collect();
    let is_other = |row: &Row| !row.chosen_by.contains(&Chooser::Models);
    rows.sort_by(|one, other| {
        is_other(one).cmp(&is_other(other)).then(one.median().total_cmp(&other.median()))
    });
    let predicted = rows.into_iter().filter_map(|row| Some((row.algorithm?, row.median())));
    winner(query, "predicted", &predicted.collect::<Vec<_>>())
}

fn winner(query: &Query, how: &str, times: &[(Choice, f64)]) -> Option<CallValue> {
    let (plan, time) = times.first()?;
    let next = times.get(1).map(|(plan, time)| format!("; next: {plan}, {time:.3} µs"));
    let detail = format!("{plan}: {how} {time:.3} µs{}", next.unwrap_or_default());
    Some(CallValue { query: *query, text: plan.to_string(), value: None, detail })
}

/// Relative errors of predictions, by operation and algorithm.
fn errors(plans: &[PlanTimes<'_>]) -> Table {
    let mut errors: BTreeMap<(Collective, Levels, Algorithm), Vec<f64>> = BTreeMap::new();
    for one in plans {
        let kind = (one.query.operation, one.plan.levels, one.plan.algorithm);
        if let Some(error) = one.predicted.and_then(|row| one.error(row.median())) {
            errors.entry(kind).or_default().push(error);
        }
    }
    let row = |((operation, levels, algorithm), mut errors): ((_, _, _), Vec<f64>)| {
        errors.sort_by(f64::total_cmp);
        let [median, p90] = [0.5, 0.9].map(|share| percentile(&errors, share));
        let plan = Choice { levels, ..Choice::of(algorithm) };
        values![Collective::name(operation), plan.to_string(), median, p90, errors.len()]
    };
    Table::new(
        ["errors", "Relative errors of the models"],
        "operation | algorithm | median | 90th percentile | predictions",
        "Of the predictions of plans that were timed, over sizes, forms and ranks.",
        errors.into_iter().map(row).collect(),
    )
}

/// Comparisons that something disturbed.
fn comparisons(run: &Run) -> Table {
    let row = |(query, why): (Query, String)| values![words(&query), query.bytes, why];
    Table::new(
        ["disturbed", "Disturbed comparisons"],
        "call | bytes | disturbance",
        "Candidates that were timed while the cores had other work, each attempt. Their rows of the \
         decision table are marked as noisy.",
        disturbed(&[run]).map(row).collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::decisions::trial::trial;
    use crate::results::Value;
    use crate::rows::Quantity;
    use std::num::NonZeroU32;

    #[test]
    fn each_prediction_is_compared_with_the_time_of_its_plan_and_size() {
        let dary = Choice { degree: NonZeroU32::new(3), ..Choice::of(Algorithm::Dary) };
        let chain = Choice::of(Algorithm::Chain);
        let row = |bytes, plan: &Choice, time| {
            let operation = Collective::Bcast;
            let form = CallForm::Blocking;
            trial(&Query { operation, form, ranks: 2, ranks_per_node: 2, bytes }, plan, time)
        };
        let predicted = |bytes, plan: &Choice, time| Row {
            quantity: Quantity::Predicted,
            chosen_by: if *plan == dary { vec![Chooser::Models] } else { Vec::new() },
            ..row(bytes, plan, time)
        };
        let run = Run::of([
            predicted(8, &dary, 1.0),
            predicted(8, &chain, 0.5),
            row(8, &dary, 2.0),
            predicted(64, &dary, 5.0),
            row(64, &dary, 4.0),
            row(512, &dary, 1.0),
        ]);
        let expected: Vec<Value> = values!["bcast", "d-ary", 0.375, 0.475, 2.0];
        assert_eq!(errors(&plans(&run, false)).rows, [expected]);
        let part = DECISIONS.part(&run);
        let cells = |at: usize| {
            let cells = part.maps[at].cells.iter();
            cells.map(|cell| (cell.column, cell.detail.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(cells(0).len(), 3, "by the clock");
        let models = "d-ary of degree 3: predicted 1.000 µs; next: chain, 0.500 µs";
        assert_eq!(cells(1)[0], (0, models), "their choice stands before what is faster");
        assert_eq!(part.figures[0].name, "bcast-2-blocking");
        assert_eq!(part.figures[0].series.len(), 3, "{:?}", part.figures[0]);
    }
}
