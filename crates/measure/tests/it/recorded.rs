//! Recorded times of plans, as rows.

use collectives::Choice;
use measure::rows::{Quantity, Row, Run, StepRows, What};
use models::decision::Query;
use models::machine_file::Engine;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Path of a file of recorded times, or of a machine.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/data").join(name)
}

/// A run of one step.
pub(crate) fn run(name: &str, rows: Vec<Row>) -> Run {
    let mut run = Run::default();
    name.clone_into(&mut run.name);
    run.steps = 1;
    run.found.insert(0, StepRows::from(rows));
    run
}

/// A time of a plan.
pub(crate) fn row(query: &Query, engine: Engine, plan: Choice, microseconds: f64) -> Row {
    let Query { operation, form, ranks, ranks_per_node, bytes } = *query;
    let what = What::Collective(operation);
    let row = Row::new("decisions", what, Quantity::Alone, ranks, vec![microseconds]);
    Row { nodes: query.nodes(), ranks_per_node, bytes, ..row.by(engine, form, Some(plan)) }
}

/// Recorded times of a file by their calls, in the order of the file.
pub(crate) fn recorded(name: &str) -> BTreeMap<Query, Vec<Row>> {
    let mut calls: BTreeMap<Query, Vec<Row>> = BTreeMap::new();
    let mut lines = csv::Reader::from_path(data(name)).expect("the recorded times");
    for line in lines.records() {
        let line = line.expect("a line of the recorded times");
        let number = |at: usize| line[at].parse().expect("a number");
        let query = Query {
            operation: line[0].parse().expect("an operation"),
            form: line[1].parse().expect("a form"),
            ranks: number(2),
            ranks_per_node: number(3),
            bytes: line[5].parse().expect("a size"),
        };
        let engine = line[4].parse().expect("an engine");
        let plan = line[6].parse().expect("a plan");
        let time = line[7].parse().expect("a time");
        calls.entry(query).or_default().push(row(&query, engine, plan, time));
    }
    calls
}
