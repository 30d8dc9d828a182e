//! One rank of the measurement: this program, started by itself.

use super::PlanArguments;
use crate::failure::Failure;
use measure::experiments::queues::{Event, Mechanism, Plan, Row, run};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use tradewind::Job;

/// A line that rank 0 writes to its standard output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Report {
    /// A row is begun.
    Begin { mechanism: Mechanism, threads: u32, bytes: u64 },
    /// A row is complete.
    Row(Box<Row>),
    /// A mechanism is left out, and why.
    Skipped { mechanism: Mechanism, why: String },
}

/// The command line that gets to [`execute`].
pub(super) fn command_line(plan: &Plan) -> Vec<OsString> {
    fn list<T: ToString>(items: &[T]) -> String {
        items.iter().map(T::to_string).collect::<Vec<_>>().join(",")
    }
    let options = [
        ("--threads", list(&plan.threads)),
        ("--mechanisms", list(&plan.mechanisms)),
        ("--sizes", list(&plan.sizes)),
        ("--rounds", plan.rounds.to_string()),
        ("--row-ms", plan.row_ms.to_string()),
    ];
    let words = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    std::iter::once("queues-rank".to_owned()).chain(words).map(OsString::from).collect()
}

/// Is one rank; `tradewind measure queues` starts it.
pub(crate) fn execute(arguments: PlanArguments) -> Result<ExitCode, Failure> {
    match measure(&arguments.into_plan()) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            eprintln!("{error}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn measure(plan: &Plan) -> Result<(), measure::Error> {
    let job = Job::init()?;
    let world = job.world();
    run(world, plan, |event| {
        if world.rank() == 0 {
            say(event);
        }
    })?;
    Ok(job.finish()?)
}

fn say(event: Event) {
    let report = match event {
        Event::Begin(case) => {
            Report::Begin { mechanism: case.mechanism, threads: case.threads, bytes: case.bytes }
        }
        Event::Row(row) => Report::Row(row),
        Event::Skipped { mechanism, why } => Report::Skipped { mechanism, why },
    };
    let line = serde_json::to_string(&report).unwrap_or_default();
    // Without a reader, the launcher reports a missing row.
    let _ = writeln!(std::io::stdout(), "{line}");
}
