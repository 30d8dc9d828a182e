//! `tradewind check`: reports the errors of a GOAL file.

use crate::failure::Failure;
use crate::format::Format;
use crate::goal_file::{FileFormat, GoalFile};
use goal::check::{GlobalOptions, global};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Reports the errors of a GOAL file, text or binary: every invalid operation, with its line.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The file; - is standard input.
    file: PathBuf,

    /// Messages of up to this many bytes are sent without waiting for their receive [default: all].
    #[arg(long, value_name = "BYTES")]
    eager_bytes: Option<u64>,
}

#[derive(Serialize)]
struct CheckReport {
    file: String,
    format: Option<FileFormat>,
    ranks: usize,
    operations: usize,
    problems: Vec<String>,
}

pub(crate) fn execute(arguments: &Arguments, format: Format) -> Result<ExitCode, Failure> {
    let file = arguments.file.display().to_string();
    let report = match GoalFile::read(&arguments.file) {
        Ok(read) => {
            let options = arguments
                .eager_bytes
                .map_or_else(GlobalOptions::default, |eager_limit| GlobalOptions { eager_limit });
            let problems = global(&read.graphs, &options).err().unwrap_or_default();
            CheckReport {
                file,
                format: Some(read.format),
                ranks: read.graphs.len(),
                operations: read.operations(),
                problems: problems.iter().map(ToString::to_string).collect(),
            }
        }
        Err(Failure::Malformed { problem, .. }) => {
            CheckReport { file, format: None, ranks: 0, operations: 0, problems: vec![problem] }
        }
        Err(failure) => return Err(failure),
    };
    format.print(|| describe(&report), &report)?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn describe(report: &CheckReport) -> String {
    let CheckReport { file, ranks, operations, problems, .. } = report;
    if problems.is_empty() {
        return format!("{file}: {operations} operations on {ranks} ranks, nothing wrong");
    }
    problems.iter().map(|problem| format!("{file}: {problem}")).collect::<Vec<_>>().join("\n")
}
