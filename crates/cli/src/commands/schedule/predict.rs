//! `tradewind schedule predict`: times of a collective by the models of a machine.

use super::collective;
use crate::commands::figures::{figure, table_with};
use crate::commands::values::number;
use crate::format::Format;
use collectives::Collective;
use comfy_table::Cell;
use models::builtin;
use models::decision::{CallForm, Query};
use models::machine_file::Machine;
use models::prediction::{Models, Prediction, USUALLY_HELD};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Predicts how long each algorithm of a collective takes, for any number of ranks.
///
/// The parameters come from a machine's file, which `tradewind tune` and `tradewind measure plogp`
/// write; without one they are the built-in ones. Nothing is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The collective.
    #[arg(value_parser = collective::parser(), value_name = "OP")]
    operation: Collective,

    /// Number of ranks.
    #[arg(short = 'n', long, value_parser = number("ranks", 2..=1_048_576_u32))]
    ranks: u32,

    /// Bytes of the message or contribution; of one block, where every rank has a block of its own.
    #[arg(short, long, default_value_t = 8, value_parser = number("bytes", 0..=1_u64 << 40))]
    bytes: u64,

    /// Number of ranks on each node [default: all on one].
    #[arg(long, value_name = "R", value_parser = number("ranks", 1..=1_048_576_u32))]
    ranks_per_node: Option<u32>,

    /// Predicts nonblocking calls, started and waited for.
    #[arg(long)]
    nonblocking: bool,

    /// Bytes that each connection between ranks holds, which decides whether ranks with a node each
    /// run short nonblocking collectives themselves. 0 for jobs in which the node services run all
    /// (TRADEWIND_INTERNODE=agent, libfabric).
    #[arg(long, value_name = "BYTES", default_value_t = USUALLY_HELD)]
    held: u64,

    /// File of the machine [default: machine.json beside the decision table, else built-in
    /// parameters].
    #[arg(long, value_name = "FILE")]
    machine: Option<PathBuf>,
}

/// Name of the parameters where there is no file.
const BUILT_IN: &str = "built-in parameters";

/// One row of the output.
#[derive(Debug, Serialize)]
struct Row {
    plan: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<&'static str>,
    predicted_us: f64,
    times_the_best: f64,
}

/// The output.
#[derive(Debug, Serialize)]
struct Output {
    query: String,
    machine: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    predictions: Vec<Row>,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> anyhow::Result<ExitCode> {
    let Arguments { operation, ranks, bytes, .. } = *arguments;
    let query = Query {
        operation,
        form: if arguments.nonblocking { CallForm::Nonblocking } else { CallForm::Blocking },
        ranks,
        ranks_per_node: arguments.ranks_per_node.unwrap_or(ranks),
        bytes,
    };
    let (path, machine, is_built_in) = machine(arguments, &query)?;
    let models = Models::of(&machine).with_connected_ranks(arguments.held);
    let found = models.exact_candidates(&query);
    let Some(least) = found.first().map(|best| best.microseconds) else {
        anyhow::bail!(
            "{}: has no parameters for a {query}: measure them with `tradewind measure plogp`",
            path.display()
        );
    };
    let row = |one: &Prediction| Row {
        plan: one.plan.to_string(),
        engine: one.engine.map(models::machine_file::Engine::name),
        predicted_us: one.microseconds,
        times_the_best: one.microseconds / least.max(f64::MIN_POSITIVE),
    };
    let output = Output {
        query: query.to_string(),
        machine: path,
        model_error: models.error(&query),
        note: note(&machine, &query, is_built_in),
        predictions: found.iter().map(row).collect(),
    };
    format.print(|| table(&output), &output)?;
    Ok(ExitCode::SUCCESS)
}

/// The parameters, the place that they are from, and whether they are the built-in ones: those of
/// the named file, of the one beside the decision table, or built-in ones where that is missing.
fn machine(arguments: &Arguments, query: &Query) -> anyhow::Result<(PathBuf, Machine, bool)> {
    let default = || {
        let path = service::decisions_path()?.with_file_name(service::MACHINE_FILE);
        path.exists().then_some(path)
    };
    Ok(match arguments.machine.clone().or_else(default) {
        // Of any machine: predictions are for other machines, too.
        Some(path) => {
            let machine = Machine::read(&path)?;
            (path, machine, false)
        }
        None => (BUILT_IN.into(), builtin::machine(query.nodes() == 1)?, true),
    })
}

/// Returns sentences where the parameters are built-in ones, where those of one node were measured
/// with another load of its cores, and where the measurement was disturbed.
fn note(machine: &Machine, query: &Query, is_built_in: bool) -> Option<String> {
    let Query { ranks, .. } = *query;
    let cores = machine.cores();
    let (these, measured) = if ranks > cores {
        ("share", "ranks with a core each")
    } else {
        ("have a core each of", "ranks that share cores")
    };
    let mut notes = Vec::new();
    if is_built_in {
        notes.push(format!(
            "no file of this machine: {}; `tradewind tune` measures this one",
            machine.fingerprint.processor
        ));
    }
    if query.nodes() == 1 && !machine.has_ranks_like(ranks) {
        notes.push(format!(
            "{ranks} ranks {these} {cores} cores: only {measured} were measured on this machine"
        ));
    }
    notes.extend(machine.disturbances().into_iter().map(|one| format!("noisy: {one}")));
    (!notes.is_empty()).then(|| notes.join("\n"))
}

fn table(output: &Output) -> String {
    let mut table = table_with(&["plan", "engine", "predicted (µs)", "times the best"]);
    for row in &output.predictions {
        table.add_row([
            Cell::new(&row.plan),
            Cell::new(row.engine.unwrap_or("–")),
            figure(format!("{:.3}", row.predicted_us)),
            figure(format!("{:.2}", row.times_the_best)),
        ]);
    }
    let error = match output.model_error {
        Some(error) => format!("model error ± {:.0} %", 100.0 * error),
        None => "model error not measured for such calls".to_owned(),
    };
    let note = output.note.as_ref().map(|note| format!("\n{note}"));
    format!(
        "{}, by {} ({error})\n{table}{}",
        output.query,
        output.machine.display(),
        note.unwrap_or_default()
    )
}
