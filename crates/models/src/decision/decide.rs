//! A decision, and its reasons in words.

use super::lookup::MatchedRow;
use super::rules::{self, MachineClass};
use super::table::{DecisionTable, Gap, Row, RunnerUp, Times, sizes};
use crate::machine_file::Engine;
use crate::query::Query;
use collectives::Choice;
use std::fmt;

/// Decision for a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// For what.
    pub query: Query,
    /// The choice.
    pub plan: Choice,
    /// The engine between nodes that runs it, if the table names one.
    pub engine: Option<Engine>,
    /// Its origin.
    pub origin: Origin,
}

/// Origin of a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// A decision table.
    Table {
        /// The row's ranks.
        ranks: u32,
        /// The row's ranks a node.
        ranks_per_node: u32,
        /// The range's first size.
        from: u64,
        /// The first size beyond it, if it has an end.
        to: Option<u64>,
        /// The size that the times hold for.
        at: u64,
        /// Times of the plan.
        time: Times,
        /// Relative error of the models, where it is known.
        error: Option<f64>,
        /// The next best at that size.
        runner_up: Option<RunnerUp>,
        /// Disturbance of the measurements, if there was one.
        disturbed: Option<String>,
    },
    /// The models, with built-in parameters.
    BuiltInModels {
        /// The reason why no table decides.
        reason: Reason,
        /// The size that the times hold for.
        at: u64,
        /// Times of the plan.
        time: Times,
        /// Relative error of the models, where it is known.
        error: Option<f64>,
        /// The next best at that size.
        runner_up: Option<RunnerUp>,
    },
    /// The built-in rules.
    BuiltIn(Reason),
}

/// Reason why the built-in rules were used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no table, or none that can be used.
    NoTable,
    /// No table has a row for such a number of ranks on several nodes.
    NoNodes,
    /// The table does not say.
    Gap(Gap),
}

/// Decides by the table, and by the [built-in rules](rules) for a class of machine if there is none,
/// or if it has a gap here.
///
/// ```
/// use collectives::Collective;
/// use models::decision::rules::MachineClass;
/// use models::decision::{CallForm, Query, decide};
///
/// let query = Query {
///     operation: Collective::Allreduce,
///     form: CallForm::Blocking,
///     ranks: 4,
///     ranks_per_node: 4,
///     bytes: 8,
/// };
/// let decision = decide(None, &query, MachineClass::SharedCores);
/// assert!(decision.to_string().starts_with(
///     "blocking allreduce of 8 bytes among 4 ranks, 4 a node: join\n  \
///      built-in parameters, because there is no decision table for this machine: "
/// ));
/// ```
pub fn decide(table: Option<&DecisionTable>, query: &Query, class: MachineClass) -> Decision {
    let built_in = |reason| {
        let row = rules::on_one_node(query, class);
        let range = row.and_then(|row| Some((row, row.range(query.bytes).ok()?)));
        let origin = match range {
            Some((row, range)) => Origin::built_in(reason, range, row.error),
            None => Origin::BuiltIn(reason),
        };
        Decision { query: *query, plan: rules::plan(query, class), engine: None, origin }
    };
    let Some(table) = table else { return built_in(Reason::NoTable) };
    match table.look_up(query) {
        Err(gap) => built_in(Reason::Gap(gap)),
        Ok(MatchedRow { row, range }) => {
            let super::Range { plan, engine, .. } = *range;
            let origin = Origin::table(row, range);
            Decision { query: *query, plan, engine, origin }
        }
    }
}

impl Origin {
    /// A range of a row of a decision table.
    pub fn table(row: &Row, range: &super::Range) -> Self {
        let Row { ranks, ranks_per_node, error, .. } = *row;
        let super::Range { from, to, at, time, runner_up, .. } = *range;
        let disturbed = row.disturbed.clone();
        Origin::Table { ranks, ranks_per_node, from, to, at, time, error, runner_up, disturbed }
    }

    /// The models with built-in parameters, which found this range with this error.
    pub fn built_in(reason: Reason, range: &super::Range, error: Option<f64>) -> Self {
        let super::Range { at, time, runner_up, .. } = *range;
        Origin::BuiltInModels { reason, at, time, error, runner_up }
    }
}

/// "  times at 4096 bytes: predicted 1.02 µs; next: chain, predicted 1.31 µs".
fn write_times(
    formatter: &mut fmt::Formatter<'_>,
    at: u64,
    times: String,
    runner_up: Option<&RunnerUp>,
) -> fmt::Result {
    write!(formatter, "  times at {at} bytes: {times}")?;
    match runner_up {
        Some(RunnerUp { plan, engine, time }) => {
            write!(formatter, "; next: {plan}")?;
            if let Some(engine) = engine {
                write!(formatter, " on {engine}")?;
            }
            write!(formatter, ", {}", time.with_error(None))
        }
        None => write!(formatter, "; there was no other"),
    }
}

impl Times {
    /// "predicted 1.02 µs (model error ± 15 %), measured 1.08 µs".
    fn with_error(self, error: Option<f64>) -> String {
        let predicted = self.predicted.map(|time| {
            let error = error.map(|error| format!(" (model error ± {:.0} %)", 100.0 * error));
            format!("predicted {time:.3} µs{}", error.unwrap_or_default())
        });
        let measured = self.measured.map(|time| format!("measured {time:.3} µs"));
        predicted.into_iter().chain(measured).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Decision {
    /// Formats the choice, and below it the reason.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}\n  {}", self.query, self.plan, self.origin)
    }
}

impl fmt::Display for Origin {
    /// The origin in one or two lines.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Table {
                ranks,
                ranks_per_node,
                from,
                to,
                at,
                time,
                error,
                runner_up,
                disturbed,
            } => {
                let sizes = sizes(*from, *to);
                writeln!(
                    formatter,
                    "decision table, row for {ranks} ranks, {ranks_per_node} a node, {sizes}"
                )?;
                write_times(formatter, *at, time.with_error(*error), runner_up.as_ref())?;
                match disturbed {
                    Some(why) => write!(formatter, "; noisy: {why}"),
                    None => Ok(()),
                }
            }
            Origin::BuiltInModels { reason, at, time, error, runner_up } => {
                writeln!(formatter, "built-in parameters, because {reason}")?;
                write_times(formatter, *at, time.with_error(*error), runner_up.as_ref())
            }
            Origin::BuiltIn(reason) => write!(formatter, "built-in rules, because {reason}"),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoTable => write!(
                formatter,
                "there is no decision table for this machine: `tradewind tune` writes one"
            ),
            Reason::NoNodes => write!(
                formatter,
                "no decision table covers such nodes: `tradewind tune` in a job on these nodes \
                 writes one"
            ),
            Reason::Gap(gap) => write!(formatter, "{gap}: `tradewind tune` writes a whole one"),
        }
    }
}
